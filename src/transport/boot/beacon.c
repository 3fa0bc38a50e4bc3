/* beacon.c - presence by abstract sockets (see beacon.h). Any thread; `lights_lock` guards the list
 * of this process's own beacons. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/stats.h"
#include "beacon.h"
#include "lifeline.h"

#define LOOKS 64 /* connections that the kernel queues; nothing accepts them */

struct symm_beacon {
    struct symm_beacon *next;
    symm_beacon_key key;
    int rank, refs;
    int fd; /* -1: another process has the name */
};

static pthread_mutex_t lights_lock = PTHREAD_MUTEX_INITIALIZER;
static symm_beacon *lights;

uint64_t symm_beacon_hash(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    if (!h) h = 14695981039346656037ull;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211ull;
    return h;
}

uint64_t symm_beacon_job(void) {
    /* Those that are set are equal on all ranks of a job. */
    static const char *const names[] = {"PMIX_NAMESPACE",
                                        "OMPI_MCA_ess_base_jobid",
                                        "OMPI_MCA_orte_ess_jobid",
                                        "PMI_JOBID",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID"};
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value) h = symm_beacon_hash(h, value, strlen(value) + 1);
    }
    if (h) return h;
    pid_t launcher = getppid();
    return symm_beacon_hash(0, &launcher, sizeof(launcher));
}

uint64_t symm_beacon_sight(uint64_t job) {
    char boot[64] = "";
    struct stat net = {.st_ino = 0}; /* numbers of namespaces are equal on many hosts */
    FILE *f = symm_fd_read("/proc/sys/kernel/random/boot_id");
    if (f && !fgets(boot, sizeof boot, f)) boot[0] = 0;
    if (f) fclose(f);
    (void)stat("/proc/self/ns/net", &net);
    uint64_t h = symm_beacon_hash(0, &job, sizeof job);
    h = symm_beacon_hash(h, &net.st_ino, sizeof net.st_ino);
    return symm_beacon_hash(h, boot, strlen(boot));
}

static socklen_t beacon_name(const symm_beacon_key *key, int rank, struct sockaddr_un *a) {
    memset(a, 0, sizeof(*a));
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "symm-beacon-%u-%016llx-%016llx-%d",
                     (unsigned)geteuid(), (unsigned long long)key->job,
                     (unsigned long long)key->group, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* A listener with this name; -1 if the name is taken. */
static symmResult_t open_light(const symm_beacon_key *key, int rank, int *out) {
    struct sockaddr_un a;
    socklen_t len = beacon_name(key, rank, &a);
    symm_lifeline_lock();
    int fd = symm_fd_above(
        SYMM_FAIL_CALL(beacon_socket, -1, EMFILE,
                       socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    symm_lifeline_add(fd);
    symm_lifeline_unlock();
    if (fd < 0)
        return SYMM_ERR(errno == EMFILE || errno == ENFILE ? symmFdLimit : symmSystemError,
                        "making the presence socket of rank %d failed: %s", rank, strerror(errno));
    if (SYMM_FAIL_CALL(beacon_bind, -1, ENOMEM, bind(fd, (struct sockaddr *)&a, len)) == 0 &&
        SYMM_FAIL_CALL(beacon_listen, -1, ENOMEM, listen(fd, LOOKS)) == 0) {
        SYMM_STAT_ADD(fds, +1);
        *out = fd;
        return symmSuccess;
    }
    int e = errno;
    symm_lifeline_close(fd);
    if (e != EADDRINUSE)
        return SYMM_ERR(symmSystemError, "binding the presence socket of rank %d failed: %s", rank,
                        strerror(e));
    SYMM_INFO("the presence socket of rank %d is taken by another process", rank);
    *out = -1;
    return symmSuccess;
}

static symm_beacon *find_light(const symm_beacon_key *key, int rank) {
    symm_beacon *b = lights;
    while (b && (b->key.job != key->job || b->key.group != key->group || b->rank != rank))
        b = b->next;
    return b;
}

static symmResult_t new_light(const symm_beacon_key *key, int rank, symm_beacon **out) {
    symm_beacon *b = SYMM_FAIL_ALLOC(beacon_alloc, calloc(1, sizeof(*b)));
    if (!b) return SYMM_ERR(symmOutOfMemory, "presence of rank %d: out of memory", rank);
    symmResult_t status = open_light(key, rank, &b->fd);
    if (status) {
        free(b);
        return status;
    }
    b->key = *key;
    b->rank = rank;
    b->next = lights;
    lights = b;
    *out = b;
    return symmSuccess;
}

symmResult_t symm_beacon_light(const symm_beacon_key *key, int rank, symm_beacon **out) {
    symmResult_t status = symmSuccess;
    pthread_mutex_lock(&lights_lock);
    symm_beacon *b = find_light(key, rank);
    if (!b) status = new_light(key, rank, &b);
    if (!status) {
        b->refs++;
        *out = b;
    }
    pthread_mutex_unlock(&lights_lock);
    return status;
}

void symm_beacon_douse(symm_beacon *b) {
    if (!b) return;
    pthread_mutex_lock(&lights_lock);
    int last = --b->refs == 0;
    if (last) {
        symm_beacon **at = &lights;
        while (*at != b) at = &(*at)->next;
        *at = b->next;
    }
    pthread_mutex_unlock(&lights_lock);
    if (!last) return;
    if (b->fd >= 0) {
        symm_lifeline_close(b->fd);
        SYMM_STAT_ADD(fds, -1);
    }
    free(b);
}

/* Another user's socket of that name says nothing about our rank. */
static int ours(int fd) {
    struct ucred peer;
    socklen_t len = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.uid == geteuid();
}

int symm_beacon_seen(const symm_beacon_key *key, int rank) {
    struct sockaddr_un a;
    socklen_t len = beacon_name(key, rank, &a);
    int fd = symm_fd_above(
        SYMM_FAIL_CALL(beacon_look, -1, EMFILE,
                       socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    if (fd < 0) return -1;
    int seen;
    if (connect(fd, (struct sockaddr *)&a, len) == 0)
        seen = ours(fd);
    else if (errno == EAGAIN) /* there is a listener; so many have looked that its queue is full */
        seen = 1;
    else
        seen = errno == ECONNREFUSED ? 0 : -1;
    close(fd);
    return seen;
}
