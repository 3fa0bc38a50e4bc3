/* fd_closer.c - closes descriptors in a thread of its own (see fd_closer.h). Any thread.
 * closer_lock guards the list; descriptors are closed without it. */
#include "fd_closer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"

enum { MOST = 64 }; /* descriptors that may wait: far from a process's limit */

typedef struct batch {
    struct batch *next;
    int n, fds[];
} batch;

static pthread_mutex_t closer_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_closed = PTHREAD_COND_INITIALIZER;
static batch *first, **last = &first;
static int waiting; /* descriptors taken and not yet closed */
static int running; /* there is a thread; it ends, under the lock, when nothing is waiting */

static void close_all(const int *fds, int n) {
    for (int i = 0; i < n; i++) close(fds[i]);
    SYMM_STAT_ADD(fds, -n);
}

static void *closer(void *arg) {
    (void)arg;
    pthread_mutex_lock(&closer_lock);
    while (first) {
        batch *b = first;
        first = b->next;
        if (!first) last = &first;
        pthread_mutex_unlock(&closer_lock);
        (void)SYMM_FAIL_HERE(closer_close);
        close_all(b->fds, b->n);
        pthread_mutex_lock(&closer_lock);
        waiting -= b->n;
        free(b);
    }
    running = 0;
    symm_stat_threads(-1);
    pthread_cond_broadcast(&all_closed);
    pthread_mutex_unlock(&closer_lock);
    return NULL;
}

/* ---- fork: the child has no such thread, and leaves to the parent what is being closed ------- */

static void before_fork(void) {
    pthread_mutex_lock(&closer_lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&closer_lock);
}
static void in_child(void) {
    SYMM_STAT_ADD(fds, -waiting);
    first = NULL;
    last = &first;
    waiting = running = 0;
    after_fork();
}
static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* With the lock. Signals stay with the user's threads. */
static int start(void) {
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int e =
        SYMM_FAIL_CODE(closer_thread, EAGAIN, pthread_create(&thread, NULL, closer, NULL));
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) return 0;
    pthread_detach(thread);
    symm_stat_threads(1);
    return 1;
}

void symm_closer_take(const int *fds, int n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (n <= 0) return;
    pthread_once(&once, watch_forks);
    batch *b = SYMM_FAIL_ALLOC(closer_batch, malloc(sizeof *b + (size_t)n * sizeof b->fds[0]));
    pthread_mutex_lock(&closer_lock);
    const int taken = b && waiting + n <= MOST && (running || (running = start()));
    if (taken) {
        b->next = NULL;
        b->n = n;
        memcpy(b->fds, fds, (size_t)n * sizeof *fds);
        *last = b;
        last = &b->next;
        waiting += n;
    }
    pthread_mutex_unlock(&closer_lock);
    if (taken) return;
    free(b);
    close_all(fds, n);
}

void symm_closer_wait(void) {
    pthread_mutex_lock(&closer_lock);
    while (running) pthread_cond_wait(&all_closed, &closer_lock);
    pthread_mutex_unlock(&closer_lock);
}
