/* watch.c - the process's watcher thread. Locks: life_lock serialises start and stop, so that the thread's end is waited for before
 * a new one starts; watch_lock, inside it, guards the list of watched communicators. Neither is held while waiting for a peer. */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm.h"
#include "fail.h"
#include "log.h"
#include "stats.h"

struct symm_watch {
    struct symm_watch *next;
    symm_comm *comm;
};

static pthread_mutex_t life_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct symm_watch *watched;
static pthread_t thread;
static int running, wake_fd = -1;
static unsigned generation; /* grows when the list changes */

/* The peer's end of file: orderly if it said so in its control block before it closed, else a death. */
static void hung_up(symm_comm *c, int peer) {
    char text[160];
    symm_mesh_mark_dead(c->mesh, peer);
    if (__atomic_load_n(
            &c->ctl,
            __ATOMIC_ACQUIRE)) { /* set once base is: pairs with the release in comm_make.c */
        const symm_ctl *theirs =
            (const symm_ctl *)(uintptr_t)(c->base + (uint64_t)peer * c->stride);
        /* Pairs with the release in comm.c's say_left. */
        if (__atomic_load_n(&theirs->state, __ATOMIC_ACQUIRE) == SYMM_STATE_LEFT) return;
    }
    snprintf(text, sizeof text, "rank %d died", peer);
    SYMM_WARN("communicator %s: %s", c->name, text);
    symm_comm_fail(c, symmRemoteError, peer, text);
}

static int count_fds(void) {
    int n = 1;
    for (struct symm_watch *w = watched; w; w = w->next) n += w->comm->nranks;
    return n;
}

typedef struct {
    struct pollfd *fds;
    symm_comm **comm;
    int *peer;
    int n, cap;
} poll_set;

static int set_reserve(poll_set *s, int n) {
    if (n <= s->cap) return 1;
    struct pollfd *f = realloc(s->fds, (size_t)n * sizeof *f);
    if (f) s->fds = f;
    symm_comm **c = realloc(s->comm, (size_t)n * sizeof *c);
    if (c) s->comm = c;
    int *p = realloc(s->peer, (size_t)n * sizeof *p);
    if (p) s->peer = p;
    if (f && c && p) s->cap = n;
    return f && c && p;
}

static void set_add(poll_set *s, int fd, short events, symm_comm *c, int peer) {
    s->fds[s->n] = (struct pollfd){.fd = fd, .events = events};
    s->comm[s->n] = c;
    s->peer[s->n++] = peer;
}

/* While it is being made the creating thread watches the mesh itself: there a peer's end often has a
 * reason, which lies in its queue. */
static int is_watched(const symm_comm *c, int peer) {
    return atomic_load_explicit(&c->state, memory_order_acquire) != SYMM_COMM_MAKING &&
           symm_mesh_fd(c->mesh, peer) >= 0 && symm_mesh_alive(c->mesh, peer);
}

/* With the lock. A peer that was found dead once is polled no more. */
static void set_fill(poll_set *s) {
    s->n = 0;
    if (!set_reserve(s, count_fds())) return;
    set_add(s, wake_fd, POLLIN, NULL, -1);
    for (struct symm_watch *w = watched; w; w = w->next)
        for (int p = 0; p < w->comm->nranks; p++)
            if (is_watched(w->comm, p))
                set_add(s, symm_mesh_fd(w->comm->mesh, p), POLLRDHUP, w->comm, p);
}

static void *watcher(void *arg) {
    poll_set s = {0};
    (void)arg;
    pthread_mutex_lock(&watch_lock);
    while (watched) {
        unsigned seen = generation;
        set_fill(&s);
        pthread_mutex_unlock(&watch_lock);
        int n = s.n ? poll(s.fds, (nfds_t)s.n, -1)
                    : (usleep(10000), 0); /* no memory for the set: try again */
        uint64_t drained;
        if (n > 0 && s.fds[0].revents && read(wake_fd, &drained, sizeof drained) < 0 &&
            errno != EAGAIN)
            usleep(1000);
        pthread_mutex_lock(&watch_lock);
        if (seen != generation) continue; /* the communicators of this set may be gone */
        for (int i = 1; n > 0 && i < s.n; i++)
            if (s.fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL))
                hung_up(s.comm[i], s.peer[i]);
    }
    pthread_mutex_unlock(&watch_lock);
    free(s.fds);
    free(s.comm);
    free(s.peer);
    return NULL;
}

static void wake(void) {
    uint64_t one = 1;
    generation++;
    if (write(wake_fd, &one, sizeof one) < 0) SYMM_WARN("waking the watcher: %m");
}

/* ---- fork: the child has neither the thread nor any communicator (handle.c) -------------------------------------------------- */

static void before_fork(void) {
    pthread_mutex_lock(&life_lock);
    pthread_mutex_lock(&watch_lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&watch_lock);
    pthread_mutex_unlock(&life_lock);
}

static void in_child(void) {
    watched = NULL;
    generation++;
    if (running) {
        running = 0;
        close(wake_fd); /* the child's copy: a write to it would wake the parent's thread */
        wake_fd = -1;
        SYMM_STAT_ADD(fds, -1);
        SYMM_STAT_ADD(threads, -1);
    }
    after_fork();
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- the thread ---------------------------------------------------------------------------------------------------------------- */

/* With the locks. Signals stay with the user's threads. */
static symmResult_t start_thread(void) {
    sigset_t all, old;
    wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0)
        return SYMM_ERR(errno == EMFILE || errno == ENFILE ? symmFdLimit : symmSystemError,
                        "watcher: eventfd: %m");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = pthread_create(&thread, NULL, watcher, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) {
        close(wake_fd);
        wake_fd = -1;
        return SYMM_ERR(symmSystemError, "watcher: cannot start a thread: %s", strerror(e));
    }
    running = 1;
    SYMM_STAT_ADD(fds, 1);
    SYMM_STAT_ADD(threads, 1);
    return symmSuccess;
}

symmResult_t symm_watch_start(symm_comm *c) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (c->threads || c->nranks == 1) return symmSuccess;
    pthread_once(&once, watch_forks);
    struct symm_watch *w = malloc(sizeof *w);
    if (!w || SYMM_FAIL_HERE(comm_watch)) {
        free(w);
        return SYMM_ERR(symmOutOfMemory, "no memory to watch the peers of communicator %s",
                        c->name);
    }
    w->comm = c;
    symmResult_t status = symmSuccess;
    pthread_mutex_lock(&life_lock);
    pthread_mutex_lock(&watch_lock);
    w->next = watched;
    watched = w; /* before the thread looks: it ends when the list is empty */
    if (!running) status = start_thread();
    if (status)
        watched = w->next;
    else
        wake();
    pthread_mutex_unlock(&watch_lock);
    pthread_mutex_unlock(&life_lock);
    if (status)
        free(w);
    else
        c->watch = w;
    return status;
}

/* With life_lock: nobody starts a new thread before this one has ended. */
static void end_thread(void) {
    pthread_join(thread, NULL);
    running = 0;
    close(wake_fd);
    wake_fd = -1;
    SYMM_STAT_ADD(fds, -1);
    SYMM_STAT_ADD(threads, -1);
}

void symm_watch_stop(symm_comm *c) {
    if (!c->watch) return;
    pthread_mutex_lock(&life_lock);
    pthread_mutex_lock(&watch_lock);
    struct symm_watch **at = &watched;
    while (*at != c->watch) at = &(*at)->next;
    *at = c->watch->next;
    int last = !watched;
    wake();
    pthread_mutex_unlock(&watch_lock);
    if (last) end_thread();
    pthread_mutex_unlock(&life_lock);
    free(c->watch);
    c->watch = NULL;
}

void symm_watch_look(void) {
    pthread_mutex_lock(&watch_lock);
    if (wake_fd >= 0) wake();
    pthread_mutex_unlock(&watch_lock);
}
