/* lifeline.c - the set of sockets to peers, and of listeners for them (see lifeline.h). Any thread.
 * `lock` guards the set, and delays fork() while a descriptor is open and not in the set, or closed
 * and still in it. No lock is taken under it.
 *
 * A child does not close them: it may be inside a call (for example of a callback that forked) that
 * uses their numbers, which must not become another file. Each becomes a socket without a peer
 * instead. A child made by clone(), without the handlers of fork(), keeps its copies. Then a death
 * of the parent shows by its pidfd (watch.c), if both are in one pid namespace. */
#define _GNU_SOURCE
#include "lifeline.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

enum { MOST = 1 << 20 }; /* the kernel's own limit of a process, unless fs.nr_open is raised */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t set[MOST / 64]; /* of numbers; under lock, as top */
static int top;                 /* the highest word with a bit, at most */

void symm_lifeline_unlock(void) {
    pthread_mutex_unlock(&lock);
}

/* The first number becomes the socket itself, so this works at the limit of descriptors. */
static int replace(int fd, int dead) {
    if (dead >= 0 && dup3(dead, fd, O_CLOEXEC) == fd) return dead;
    close(fd);
    if (dead >= 0) return dead;
    dead = symm_fd_above(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (dead < 0 || dead == fd) return dead;
    dup3(dead, fd, O_CLOEXEC);
    close(dead);
    return fd;
}

static void before_fork(void) {
    pthread_mutex_lock(&lock);
}

/* The only thread of the child, which has the lock from before the fork. */
static void in_child(void) {
    int dead = -1;
    for (int i = 0; i <= top; i++)
        for (uint64_t left = set[i]; left; left &= left - 1)
            dead = replace(i * 64 + __builtin_ctzll(left), dead);
    symm_lifeline_unlock();
}

static void watch_forks(void) {
    pthread_atfork(before_fork, symm_lifeline_unlock, in_child);
}

void symm_lifeline_lock(void) {
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
}

void symm_lifeline_add(int fd) {
    if (fd < 0 || fd >= MOST) return;
    set[fd / 64] |= 1ull << fd % 64;
    if (top < fd / 64) top = fd / 64;
}

void symm_lifeline_close(int fd) {
    symm_lifeline_lock();
    if (fd >= 0 && fd < MOST) set[fd / 64] &= ~(1ull << fd % 64);
    close(fd);
    symm_lifeline_unlock();
}
