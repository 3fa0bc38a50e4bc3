/* watch.c - the process's watcher thread. It polls the connections to all peers, and the peers'
 * processes, because a child that a rank forked may hold copies of its sockets and hide its end. If
 * ranks are on several hosts, it also looks for what their peers say: that the communicator is
 * over, or that they leave. Such messages are read later, by the thread inside.
 * Locks: life_lock serialises start and stop, so that a new thread starts only after the old one
 * has ended; watch_lock, inside it, guards the lists of watched communicators and of processes.
 * Neither is held while waiting for a peer. */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/stats.h"
#include "comm.h"

typedef struct process { /* that has ranks of watched communicators */
    struct process *next;
    pid_t pid;
    int fd, refs;
} process;

struct symm_watch {
    struct symm_watch *next;
    symm_comm *comm;
    pid_t pid;        /* that made it; a child without fork's handlers has a copy */
    uint64_t quiet;   /* ranks of several hosts: until then no messages are looked for */
    symm_ranks ended; /* of whom it has told the end */
    symm_ranks heard; /* of whom it has taken in the last news */
    process *of[];    /* [nranks] NULL: only the connection tells */
};

enum {
    NAP_US = 10000,
    LOOK_MS = 1000, /* the list is looked at so often even if nobody could wake the thread */
    HOSTS_MS = 100, /* the same, if there are ranks of several hosts */
    QUIET_MS = 10   /* after messages that are for the thread inside, which may take them soon */
};

static pthread_mutex_t life_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct symm_watch *watched;
static process *processes;
static pthread_t thread;
static int running, wake_fd = -1;
static unsigned generation; /* grows when the list changes */

/* The peer's end of file is a death, unless the peer said before that it left. */
static void hung_up(symm_comm *c, int peer) {
    char text[160];
    symm_mesh_mark_dead(c->mesh, peer);
    if (symm_comm_said_left(c, peer)) return;
    symm_comm_adopt_abort(c); /* if it ended behind an error that it had told, that is the reason */
    if (c->config.peerDeath == SYMM_DEATH_WHEN_USED && symm_comm_code(c) == symmSuccess) {
        SYMM_INFO("communicator %s: rank %d died; an error of who uses it from now on", c->name,
                  peer);
        symm_comm_note_death(c, peer);
        return;
    }
    SYMM_SAY(text, sizeof text, "rank %d died", peer);
    SYMM_WARN("communicator %s: %s", c->name, text);
    symm_comm_fail(c, symmRemoteError, peer, text);
}

static int count_fds(void) {
    int n = 1;
    for (struct symm_watch *w = watched; w; w = w->next) n += 2 * w->comm->nranks;
    return n;
}

typedef struct {
    struct pollfd *fds;
    struct symm_watch **of;
    int *peer;
    int n, cap;
    int ms; /* to sleep at most */
} poll_set;

static int set_reserve(poll_set *s, int n) {
    if (n <= s->cap) return 1;
    struct pollfd *f = SYMM_FAIL_ALLOC(watch_set, realloc(s->fds, (size_t)n * sizeof *f));
    if (f) s->fds = f;
    struct symm_watch **c = realloc(s->of, (size_t)n * sizeof *c);
    if (c) s->of = c;
    int *p = realloc(s->peer, (size_t)n * sizeof *p);
    if (p) s->peer = p;
    if (f && c && p) s->cap = n;
    return f && c && p;
}

static void set_add(poll_set *s, int fd, short events, struct symm_watch *w, int peer) {
    s->fds[s->n] = (struct pollfd){.fd = fd, .events = events};
    s->of[s->n] = w;
    s->peer[s->n++] = peer;
}

/* During creation the creating thread watches the mesh itself: a peer's end often has a reason, and
 * that is still in the connection's queue. */
static int is_watched(const struct symm_watch *w, int peer) {
    const symm_comm *c = w->comm;
    return atomic_load_explicit(&c->entry.state, memory_order_acquire) != SYMM_COMM_MAKING &&
           symm_mesh_fd(c->mesh, peer) >= 0 && !symm_ranks_has(&w->ended, peer);
}

/* With the lock. Ranks of several hosts: whether to look for messages of peer. Also once the
 * communicator is over here: a peer that does not know yet says sizes, which must not fill its
 * socket. */
static int listens(const struct symm_watch *w, int peer, uint64_t now) {
    return w->comm->hosts > 1 && now >= w->quiet && !symm_ranks_has(&w->heard, peer);
}

/* With the lock. A peer that was found dead once is polled no more. */
static void set_fill(poll_set *s) {
    const uint64_t now = symm_now_ns();
    s->n = 0;
    s->ms = LOOK_MS;
    if (!set_reserve(s, count_fds())) return;
    set_add(s, wake_fd, POLLIN, NULL, -1);
    for (struct symm_watch *w = watched; w; w = w->next) {
        if (w->comm->hosts > 1 && s->ms > HOSTS_MS) s->ms = HOSTS_MS;
        if (now < w->quiet) s->ms = QUIET_MS;
        for (int p = 0; p < w->comm->nranks; p++) {
            if (!is_watched(w, p)) continue;
            const short in = listens(w, p, now) ? POLLIN : 0;
            set_add(s, symm_mesh_fd(w->comm->mesh, p), POLLRDHUP | in, w, p);
            if (w->of[p]) set_add(s, w->of[p]->fd, POLLIN, w, p);
        }
    }
}

/* If the kernel refuses the set (no memory, or RLIMIT_NOFILE was lowered below its size), each
 * entry is polled by itself after a nap. */
static int poll_set_once(poll_set *s) {
    int n = SYMM_FAIL_CALL(watch_poll, -1, EINVAL, poll(s->fds, (nfds_t)s->n, s->ms));
    if (n >= 0 || errno == EINTR) return n;
    usleep(NAP_US);
    n = 0;
    for (int i = 0; i < s->n; i++) {
        s->fds[i].revents = 0;
        n += poll(&s->fds[i], 1, 0) > 0;
    }
    return n;
}

/* The peer's end, by its connection or its process; 1 once if both tell. */
static int has_ended(const poll_set *s, int i) {
    const short hosts = s->of[i]->comm->hosts > 1, /* then POLLIN means a message */
        end = (hosts ? 0 : POLLIN) | POLLRDHUP | POLLHUP | POLLERR | POLLNVAL;
    if (!(s->fds[i].revents & end)) return 0;
    int again = s->of[i] == s->of[i - 1] && s->peer[i] == s->peer[i - 1];
    return !again || !(s->fds[i - 1].revents & end);
}

/* With the lock. Messages of a peer of another host lie there. WORDs are taken. If none of the rest
 * is for this thread, they are left alone for a while. */
static void hear(struct symm_watch *w, int peer) {
    symm_mesh_news news;
    SYMM_ASSERT(peer >= 0 && peer < w->comm->nranks);
    const int some = symm_mesh_peek(w->comm->mesh, peer, &news);
    if (news.revoked && symm_comm_code(w->comm) == symmSuccess)
        symm_comm_hear(w->comm, peer, &news.vote);
    if (news.left) symm_comm_hear_left(w->comm, peer);
    if (news.revoked || news.left)
        symm_ranks_add(&w->heard, peer);
    else if (some)
        w->quiet = symm_now_ns() + QUIET_MS * 1000000ull;
}

/* With the lock. What has been found in s. */
static void take_in(const poll_set *s) {
    for (int i = 1; i < s->n; i++) {
        struct symm_watch *w = s->of[i];
        const int ended = has_ended(s, i);
        /* the last words of who has ended may have come while none were looked for */
        if (w->comm->hosts > 1 && (ended || s->fds[i].revents & POLLIN)) hear(w, s->peer[i]);
        if (ended) symm_ranks_add(&w->ended, s->peer[i]), hung_up(w->comm, s->peer[i]);
    }
}

/* With the lock. Ranks of several hosts: what the thread inside has taken, and not told. */
static void hear_taken(symm_comm *c) {
    symm_vote v;
    int peer;
    if (symm_comm_code(c) == symmSuccess && symm_mesh_obeyed(c->mesh, &peer, &v))
        symm_comm_hear(c, peer, &v);
    for (int p = 0; p < c->nranks; p++)
        if (symm_mesh_said_left(c->mesh, p)) symm_comm_hear_left(c, p);
}

/* With the lock. The same: what must not wait for a call of the program. */
static void look_at_hosts(void) {
    for (struct symm_watch *w = watched; w; w = w->next) {
        if (w->comm->hosts <= 1 || symm_comm_state(w->comm) == SYMM_COMM_MAKING) continue;
        hear_taken(w->comm);
        symm_comm_spread(w->comm);
        symm_mesh_push(w->comm->mesh);
    }
}

static void *watcher(void *arg) {
    poll_set s = {0};
    (void)arg;
    pthread_mutex_lock(&watch_lock);
    while (watched) {
        unsigned seen = generation;
        set_fill(&s);
        pthread_mutex_unlock(&watch_lock);
        int n =
            s.n ? poll_set_once(&s) : (usleep(NAP_US), 0); /* no memory for the set: try again */
        uint64_t drained;
        if (n > 0 && s.fds[0].revents &&
            SYMM_FAIL_CALL(watch_drain, -1, EIO, read(wake_fd, &drained, sizeof drained)) < 0 &&
            errno != EAGAIN)
            usleep(1000);
        pthread_mutex_lock(&watch_lock);
        if (seen != generation) continue; /* the communicators of this set may be gone */
        if (n > 0) take_in(&s);
        look_at_hosts();
    }
    pthread_mutex_unlock(&watch_lock);
    free(s.fds);
    free(s.of);
    free(s.peer);
    return NULL;
}

static void wake(void) {
    uint64_t one = 1;
    generation++;
    if (SYMM_FAIL_CALL(watch_wake, -1, EIO, write(wake_fd, &one, sizeof one)) < 0)
        SYMM_WARN("waking the watcher: %m");
}

/* ---- the peers' processes -------------------------------------------------------------------- */

static int is_over(int pidfd) {
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

static int open_pidfd(pid_t pid) {
#ifdef SYS_pidfd_open
    return symm_fd_above(
        SYMM_FAIL_CALL(watch_pidfd, -1, EPERM, (int)syscall(SYS_pidfd_open, pid, 0)));
#else
    (void)pid;
    return -1;
#endif
}

/* With the lock. One descriptor per process, however many communicators its ranks are in. Best
 * effort: NULL for a peer of this process, of a pid namespace that is not visible here, or if the
 * kernel forbids it. Then only the connection tells. */
static process *process_of(const symm_comm *c, int peer) {
    struct ucred who = {.pid = 0};
    socklen_t len = sizeof who;
    int s = symm_mesh_fd(c->mesh, peer);
    if (s < 0 || SYMM_FAIL_CALL(watch_who, -1, ENOBUFS,
                                getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &len)) != 0)
        return NULL;
    if (who.pid <= 0 || who.pid == getpid()) return NULL;
    for (process *p = processes; p; p = p->next)
        if (p->pid == who.pid && !is_over(p->fd)) { /* else the number means a new process */
            p->refs++;
            return p;
        }
    int fd = open_pidfd(who.pid);
    if (fd < 0) return NULL;
    process *p = SYMM_FAIL_ALLOC(watch_process, malloc(sizeof *p));
    if (!p) {
        close(fd);
        return NULL;
    }
    *p = (process){processes, who.pid, fd, 1};
    processes = p;
    SYMM_STAT_ADD(fds, 1);
    return p;
}

/* With the lock. */
static void drop_process(process *p) {
    if (!p || --p->refs) return;
    process **at = &processes;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    close(p->fd);
    SYMM_STAT_ADD(fds, -1);
    free(p);
}

/* With the lock. */
static void drop_processes(struct symm_watch *w) {
    for (int p = 0; p < w->comm->nranks; p++) drop_process(w->of[p]);
}

/* ---- fork: the child has neither the thread nor any communicator (handle.c) ------------------ */

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
    for (process *p = processes; p; p = p->next) {
        close(p->fd);
        SYMM_STAT_ADD(fds, -1);
    }
    processes = NULL;
    if (running) {
        running = 0;
        close(wake_fd); /* the child's copy: a write to it would wake the parent's thread */
        wake_fd = -1;
        SYMM_STAT_ADD(fds, -1);
    }
    after_fork();
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* With the locks. Signals stay with the user's threads. */
static symmResult_t start_thread(void) {
    sigset_t all, old;
    wake_fd = symm_fd_above(
        SYMM_FAIL_CALL(watch_event, -1, EMFILE, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
    if (wake_fd < 0)
        return SYMM_ERR(errno == EMFILE || errno == ENFILE ? symmFdLimit : symmSystemError,
                        "watcher: eventfd: %m");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int e = SYMM_FAIL_CODE(watch_thread, EAGAIN, pthread_create(&thread, NULL, watcher, NULL));
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) {
        close(wake_fd);
        wake_fd = -1;
        return SYMM_ERR(symmSystemError, "watcher: cannot start a thread: %s", strerror(e));
    }
    running = 1;
    SYMM_STAT_ADD(fds, 1);
    symm_stat_threads(1);
    return symmSuccess;
}

symmResult_t symm_watch_start(symm_comm *c) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (c->threads || c->nranks == 1) return symmSuccess;
    pthread_once(&once, watch_forks);
    struct symm_watch *w = malloc(sizeof *w + (size_t)c->nranks * sizeof w->of[0]);
    if (!w || SYMM_FAIL_HERE(comm_watch)) {
        free(w);
        return SYMM_ERR(symmOutOfMemory, "no memory to watch the peers of communicator %s",
                        c->name);
    }
    w->comm = c;
    w->pid = getpid();
    w->quiet = 0;
    w->heard = w->ended = (symm_ranks){{0}};
    symmResult_t status = symmSuccess;
    pthread_mutex_lock(&life_lock);
    pthread_mutex_lock(&watch_lock);
    for (int p = 0; p < c->nranks; p++) w->of[p] = process_of(c, p);
    w->next = watched;
    watched = w; /* before the thread looks: it ends when the list is empty */
    if (!running) status = start_thread();
    if (status) {
        watched = w->next;
        drop_processes(w);
    } else {
        wake();
    }
    pthread_mutex_unlock(&watch_lock);
    pthread_mutex_unlock(&life_lock);
    if (status)
        free(w);
    else
        c->failure.watch = w;
    return status;
}

/* With life_lock: nobody starts a new thread before this one has ended. */
static void end_thread(void) {
    pthread_join(thread, NULL);
    running = 0;
    close(wake_fd);
    wake_fd = -1;
    SYMM_STAT_ADD(fds, -1);
    symm_stat_threads(-1);
}

void symm_watch_stop(symm_comm *c) {
    if (!c->failure.watch) return;
    pthread_mutex_lock(&life_lock);
    pthread_mutex_lock(&watch_lock);
    struct symm_watch **at = &watched;
    while (*at != c->failure.watch) at = &(*at)->next;
    *at = c->failure.watch->next;
    drop_processes(c->failure.watch);
    int last = !watched;
    wake();
    pthread_mutex_unlock(&watch_lock);
    if (last) end_thread();
    pthread_mutex_unlock(&life_lock);
    free(c->failure.watch);
    c->failure.watch = NULL;
}

void symm_watch_look(void) {
    pthread_mutex_lock(&watch_lock);
    if (wake_fd >= 0) wake();
    pthread_mutex_unlock(&watch_lock);
}

/* The process ends by exit: communicators that it has not destroyed are left, not dead. Nothing is
 * freed, because other threads may still be inside. Pairs with symm_comm_said_left, and on GPUs
 * with left_for_good in dev.cuh. */
__attribute__((destructor)) static void leave_at_exit(void) {
    pthread_mutex_lock(&watch_lock);
    for (const struct symm_watch *w = watched; w; w = w->next)
        if (w->pid == getpid() && symm_comm_state(w->comm) == SYMM_COMM_LIVE && w->comm->ctl) {
            __atomic_store_n(&w->comm->ctl->state, SYMM_STATE_LEFT, __ATOMIC_RELEASE);
            symm_mesh_leave(w->comm->mesh);
        }
    pthread_mutex_unlock(&watch_lock);
}
