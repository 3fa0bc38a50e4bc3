/* where.c - host, user and network namespace of a rank. The mesh connects abstract sockets, which
 * belong to a network namespace, and accepts only its own user. If these differ between ranks, they
 * would wait for each other until the deadline of set-up. Any thread; no lock. */
#define _GNU_SOURCE
#include "where.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"
#include "base/log.h"

#ifdef SYMM_TESTING
/* For tests: plays a rank of another host or user. */
int symm_test_where[2];
#define ELSEWHERE(i) symm_test_where[i]
#else
#define ELSEWHERE(i) 0
#endif

/* mpi-plugin/state.c asks the same of the system, before it makes a communicator.
 * Ranks of one host must find the same id: without a descriptor to read it, this fails instead of
 * using another. */
static symmResult_t host_id(symm_uuid *out) {
    char text[64] = "";
    symm_uuid id = {0, 0};
    FILE *f =
        SYMM_FAIL_CALL(comm_host, NULL, EMFILE, symm_fd_read("/proc/sys/kernel/random/boot_id"));
    if (!f && (errno == EMFILE || errno == ENFILE))
        return SYMM_ERR(symmFdLimit,
                        "no file descriptor left to identify the host: %m (ulimit -n)");
    if (f) {
        if (!fgets(text, sizeof text, f)) text[0] = 0;
        fclose(f);
    }
    if (!text[0]) gethostname(text, sizeof text - 1);
    for (const char *p = text; *p; p++) {
        id.hi = (id.hi ^ (unsigned char)*p) * 0x100000001b3ull;
        id.lo = id.lo * 31 + (unsigned char)*p;
    }
    *out = id;
    return symmSuccess;
}

/* The number that the kernel shows as net:[4026531840]. */
static uint64_t namespace_id(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

symmResult_t symm_where_fill(symm_where *w) {
    memset(w, 0, sizeof *w);
    SYMM_TRY(host_id(&w->host));
    w->host.lo += (unsigned)ELSEWHERE(0);
    w->netns = namespace_id("/proc/self/ns/net");
    w->userns = namespace_id("/proc/self/ns/user");
    w->uid = (uint32_t)geteuid() + (uint32_t)ELSEWHERE(1);
    if (gethostname(w->name, sizeof w->name - 1) != 0) snprintf(w->name, sizeof w->name, "?");
    return symmSuccess;
}

static symmResult_t other_host(int r, const symm_where *theirs, const symm_where *root) {
    return SYMM_ERR(
        symmNotSupported,
        "rank %d runs on host %.63s and rank 0 on %s%.63s, which share no memory: symmCommInitMPI "
        "makes a communicator over several hosts; else make one for each",
        r, theirs->name, strcmp(theirs->name, root->name) ? "" : "another one of the name ",
        root->name);
}

static symmResult_t other_network(int r, const symm_where *theirs, const symm_where *root) {
    return SYMM_ERR(symmNotSupported,
                    "rank %d (host name %.63s) is in another network namespace than rank 0 "
                    "(net:[%llu], net:[%llu]): start their containers with one network "
                    "(--network=host)",
                    r, theirs->name, (unsigned long long)theirs->netns,
                    (unsigned long long)root->netns);
}

symmResult_t symm_where_compare(int r, const symm_where *theirs, const symm_where *root) {
    if (memcmp(&theirs->host, &root->host, sizeof root->host)) return other_host(r, theirs, root);
    if (theirs->netns && root->netns && theirs->netns != root->netns)
        return other_network(r, theirs, root);
    if (theirs->uid != root->uid)
        return SYMM_ERR(symmNotSupported,
                        "rank %d runs as user %u%s, rank 0 as user %u: the ranks of a communicator "
                        "are processes of one user",
                        r, theirs->uid,
                        theirs->userns != root->userns ? " of another user namespace" : "",
                        root->uid);
    return symmSuccess;
}
