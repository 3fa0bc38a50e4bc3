/* boot_tcp_keep.c - the ids that were made in this process, and who listens for their ranks. A rank
 * that is in this process, or in a child that was forked later, takes the listener (a claim) and is
 * the meeting's root. Else the process itself is: a launcher makes ids and is no rank.
 *
 * Threads. The *keeper* sleeps at the listeners that nobody has claimed. It ends when there is none
 * left, so a process whose ranks claim its ids has it for that long only. Where a rank knocks and
 * nobody has claimed the listener for GRACE_MS, the keeper does, and gives it to a thread of its
 * own, which is the root of that *meeting* until its last rank has gone. While ranks are missing,
 * and for a second (HOLD_MS of boot_tcp_root.c), it gives the listener back to a rank of this
 * process that comes.
 *
 * `lock` guards all of it. Nothing is waited for under it, but for the end of a keeper that has
 * nothing to do, and for a listener that is given back. A child that is forked has none of the
 * threads. A listener that it inherited can be claimed there, and the keeper of the parent then
 * lets go of its own copy. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/stats.h"
#include "boot_tcp.h"
#include "lifeline.h"

enum {
    GRACE_MS = 50, /* ranks that a process starts at once have come by then */
    USED_IDS = 64  /* of the last of them it is told that they are used up */
};

typedef struct meeting {
    struct meeting *next;
    symm_boot_tcp *t;
    _Atomic int refused; /* a rank that must come will not, or the process ends */
} meeting;

struct symm_tcp_kept {
    struct symm_tcp_kept *next;
    symm_tcp_id id;
    int fd;              /* -1: a rank of this process has it, or a meeting */
    meeting *meeting;    /* NULL: none */
    uint64_t knocked_ns; /* when the first rank was seen at the listener; 0: none was */
    _Atomic int *claims; /* a page that forked children share: who makes it 1 gets the listener */
};
typedef struct symm_tcp_kept entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER; /* a thread of this file has ended */
static entry *registry;   /* an id that is never used stays here until the process ends */
static int bell = -1;     /* wakes the keeper; -1: there is none */
static meeting *meetings; /* each has a thread */
static pid_t process;     /* that has the threads */
static int leaving;       /* the library is being unloaded, or the process ends */

static uint8_t used_secrets[USED_IDS][SYMM_TCP_SECRET];
static unsigned used_count;

/* ---- records --------------------------------------------------------------------------------- */

symmResult_t symm_tcp_keep_new(entry **out) {
    entry *e = SYMM_FAIL_ALLOC(id_alloc, calloc(1, sizeof(*e)));
    if (!e) return SYMM_ERR(symmOutOfMemory, "unique id: out of memory");
    e->claims = SYMM_FAIL_CALL(
        id_page, MAP_FAILED, ENOMEM,
        mmap(NULL, sizeof(*e->claims), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (e->claims == MAP_FAILED) {
        free(e);
        return SYMM_ERR(symmOutOfMemory, "unique id: no memory that children share: %s",
                        strerror(errno));
    }
    e->fd = -1;
    *out = e;
    return symmSuccess;
}

void symm_tcp_keep_free(entry *e) {
    munmap(e->claims, sizeof(*e->claims));
    free(e);
}

static void close_listener(int fd) {
    close(fd);
    SYMM_STAT_ADD(fds, -1);
}

/* Where the entry with this secret hangs; NULL there if there is none. Under the lock, as all that
 * follows but the threads. */
static entry **find_entry(const uint8_t *secret) {
    entry **at = &registry;
    while (*at && memcmp((*at)->id.secret, secret, SYMM_TCP_SECRET)) at = &(*at)->next;
    return at;
}

/* Whether the keeper waits at its listener. Those that a fork brought here are their maker's. */
static int is_kept(const entry *e) {
    return e->fd >= 0 && e->id.pid == (uint32_t)getpid();
}
static int count_kept(void) {
    int n = 0;
    for (const entry *e = registry; e; e = e->next) n += is_kept(e);
    return leaving ? 0 : n;
}

/* ---- a meeting ------------------------------------------------------------------------------- */

/* symm_wait's check. Ranks that have come are told. */
static symmResult_t is_refused(void *arg) {
    if (!atomic_load(&((meeting *)arg)->refused)) return symmSuccess;
    return SYMM_ERR(symmRemoteError,
                    "process %d, which made the id, ends, or a rank in it will not come",
                    (int)getpid());
}

/* To the rank that waits for it. */
static void give_back(meeting *m) {
    pthread_mutex_lock(&lock);
    entry *e = *find_entry(m->t->id.secret);
    e->fd = m->t->listener;
    e->meeting = NULL;
    e->knocked_ns = 0;
    m->t->listener = -1;
    atomic_store(e->claims, 0);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}
/* Whether it gives, or has been asked to. Under the lock. */
static int yields(const meeting *m) {
    int now = SYMM_TCP_HOLDS;
    return atomic_compare_exchange_strong(&m->t->standing, &now, SYMM_TCP_YIELDS) ||
           now == SYMM_TCP_YIELDS;
}

static void *meet(void *arg) {
    meeting *m = arg;
    /* No deadline: that of any rank ends the meeting. */
    const symm_wait w = {.stage = "creating a communicator", .check = is_refused, .arg = m};
    symm_lifeline_lock();
    symm_lifeline_add(m->t->listener);
    symm_lifeline_unlock();
    const symmResult_t r = symm_tcp_root_open(m->t, &w);
    if (r == symmInProgress) give_back(m);
    symm_tcp_end_listener(m->t);
    if (!r) symm_tcp_root_relay(m->t, &w);
    symm_tcp_free(m->t);
    pthread_mutex_lock(&lock);
    meeting **at = &meetings;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    free(m); /* symm_tcp_end_listener has ended the record that named it */
    symm_stat_threads(-1);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Signals stay with the user's threads. 0, or an errno. */
static int start(void *(*run)(void *), void *arg) {
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int e = SYMM_FAIL_CODE(keep_thread, EAGAIN, pthread_create(&thread, NULL, run, arg));
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) return e;
    pthread_detach(thread);
    symm_stat_threads(1);
    return 0;
}

/* 1: there is a thread that is the root of e's ranks. */
static int begin_meeting(entry *e) {
    meeting *m = calloc(1, sizeof(*m));
    if (!m || symm_tcp_make(-1, 0, 1, &m->t)) {
        free(m);
        return 0;
    }
    m->t->id = e->id;
    m->t->listener = e->fd;
    if (start(meet, m)) {
        symm_tcp_free(m->t);
        free(m);
        return 0;
    }
    m->next = meetings;
    meetings = m;
    e->meeting = m;
    e->fd = -1;
    return 1;
}

/* ---- the keeper ------------------------------------------------------------------------------ */

static int has_knocked(const entry *e) {
    struct pollfd p = {.fd = e->fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

/* Nobody has claimed it while a rank waits: the process does. If a thread is not to be had, again
 * after another grace. */
static void take_over(entry *e) {
    if (atomic_exchange(e->claims, 1)) return; /* a child has: let_go, the next time */
    if (begin_meeting(e)) return;
    atomic_store(e->claims, 0);
    e->knocked_ns = symm_now_ns();
}

/* A child has claimed it. A copy here would keep the port open after that child's death. */
static void let_go(entry **at) {
    entry *e = *at;
    *at = e->next;
    close_listener(e->fd);
    symm_tcp_keep_free(e);
}

static void look(void) {
    for (entry **at = &registry, *e; (e = *at);) {
        if (is_kept(e) && atomic_load(e->claims)) {
            let_go(at);
            continue;
        }
        at = &e->next;
        if (!is_kept(e)) continue;
        if (!e->knocked_ns && has_knocked(e)) e->knocked_ns = symm_now_ns();
        if (e->knocked_ns && symm_now_ns() - e->knocked_ns >= GRACE_MS * 1000000ull) take_over(e);
    }
}

/* What the keeper sleeps at, and for how long: until the next grace ends. */
static int list(struct pollfd **room, int *ms) {
    struct pollfd *p = realloc(*room, sizeof(*p) * (size_t)(1 + count_kept()));
    int n = 0;
    *ms = p ? -1 : GRACE_MS;
    if (!p) return 0;
    *room = p;
    p[n++] = (struct pollfd){.fd = bell, .events = POLLIN};
    for (const entry *e = registry; e; e = e->next) {
        if (!is_kept(e)) continue;
        if (e->knocked_ns)
            *ms = GRACE_MS; /* it is readable all the time */
        else
            p[n++] = (struct pollfd){.fd = e->fd, .events = POLLIN};
    }
    return n;
}

/* A descriptor of the list may be claimed, closed and used again while it is polled: so look asks
 * anew, under the lock. */
static void *keep(void *arg) {
    struct pollfd *p = NULL;
    uint64_t rung;
    int ms;
    (void)arg;
    pthread_mutex_lock(&lock);
    while (count_kept()) {
        const int n = list(&p, &ms);
        pthread_mutex_unlock(&lock);
        poll(p, (nfds_t)n, ms);
        (void)SYMM_FAIL_HERE(keep_wakes);
        pthread_mutex_lock(&lock);
        if (read(bell, &rung, sizeof(rung)) < 0 && errno != EAGAIN) break;
        look();
    }
    close_listener(bell);
    bell = -1;
    free(p);
    symm_stat_threads(-1);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* The list has changed. */
static void ring(void) {
    const uint64_t once = 1;
    while (bell >= 0 && write(bell, &once, sizeof(once)) < 0 && errno == EINTR) continue;
}
/* If nothing is left to wait for, the keeper has ended behind this. */
static void await_end(void) {
    while (bell >= 0 && !count_kept()) pthread_cond_wait(&ended, &lock);
}

/* There is one, or there need not be. */
static symmResult_t need_keeper(void) {
    if (bell >= 0) {
        ring();
        return symmSuccess;
    }
    bell = symm_fd_above(
        SYMM_FAIL_CALL(keep_bell, -1, EMFILE, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
    if (bell < 0)
        return SYMM_ERR(errno == EMFILE || errno == ENFILE ? symmFdLimit : symmSystemError,
                        "unique id: eventfd: %s", strerror(errno));
    SYMM_STAT_ADD(fds, 1);
    process = getpid();
    const int e = start(keep, NULL);
    if (!e) return symmSuccess;
    close_listener(bell);
    bell = -1;
    return SYMM_ERR(symmSystemError, "unique id: no thread to wait for its ranks: %s", strerror(e));
}

/* ---- fork, and the end ----------------------------------------------------------------------- */

static void before_fork(void) {
    pthread_mutex_lock(&lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&lock);
}
static void in_child(void) {
    if (bell >= 0) close_listener(bell);
    bell = -1;
    meetings = NULL;
    for (entry *e = registry; e; e = e->next) e->meeting = NULL; /* the parent's thread has it */
    ended = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    after_fork();
}
static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, in_child);
}

/* Ranks that have come hear that their root ends, and no thread of the library is left behind. A
 * child that was made without the handlers of fork() has none. */
__attribute__((destructor)) static void leave_at_exit(void) {
    if (process != getpid()) return;
    pthread_mutex_lock(&lock);
    leaving = 1;
    for (meeting *m = meetings; m; m = m->next) atomic_store(&m->refused, 1);
    ring();
    await_end();
    while (meetings) pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- for the other files --------------------------------------------------------------------- */

symmResult_t symm_tcp_keep(entry *e, const symm_tcp_id *id, int listener) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    e->id = *id;
    e->fd = listener;
    e->next = registry;
    registry = e;
    const symmResult_t status = need_keeper();
    if (status) registry = e->next; /* the lock was not let go */
    pthread_mutex_unlock(&lock);
    return status;
}

/* Takes the descriptor out of an entry. Another process may have been faster: then the entry is
 * unlinked, and *lost. */
static int take_descriptor(entry **at, entry **lost) {
    entry *e = *at;
    const int fd = e->fd;
    e->fd = -1;
    if (fd >= 0 && atomic_exchange(e->claims, 1)) {
        *at = e->next;
        *lost = e;
    }
    return fd;
}

static int is_used_up(const uint8_t *secret) {
    for (unsigned i = 0; i < used_count && i < USED_IDS; i++)
        if (!memcmp(used_secrets[i], secret, SYMM_TCP_SECRET)) return 1;
    return 0;
}

symmResult_t symm_tcp_id_claim(const symm_tcp_id *id, int *listener) {
    entry *lost = NULL;
    int fd = -1;
    pthread_mutex_lock(&lock);
    entry **at = find_entry(id->secret);
    while (*at && (*at)->meeting && yields((*at)->meeting)) {
        pthread_cond_wait(&ended, &lock);
        at = find_entry(id->secret);
    }
    if (*at) fd = take_descriptor(at, &lost);
    const int used = is_used_up(id->secret);
    ring();
    /* Who has it waits in id_done. Who lost it has no more to do with the id: the keeper's thread
     * and its descriptor are gone behind this. */
    if (lost) await_end();
    pthread_mutex_unlock(&lock);
    if (used)
        return SYMM_ERR(symmInvalidUsage, "this id has been used: an id serves one communicator, "
                                          "symmGetUniqueId makes another");
    if (lost) {
        close_listener(fd);
        symm_tcp_keep_free(lost);
        fd = -1;
    }
    *listener = fd;
    return symmSuccess;
}

static void use_up(const symm_tcp_id *id) {
    memcpy(used_secrets[used_count++ % USED_IDS], id->secret, SYMM_TCP_SECRET);
    if (used_count >= 2 * USED_IDS) used_count -= USED_IDS;
}

void symm_tcp_id_drop(const symm_tcp_id *id) {
    entry *mine = NULL;
    pthread_mutex_lock(&lock);
    entry **at = find_entry(id->secret);
    const int come = *at && is_kept(*at) && has_knocked(*at);
    const int fd = *at && !come ? take_descriptor(at, &mine) : -1;
    if (fd >= 0 && !mine) {
        mine = *at;
        *at = mine->next;
        use_up(id);
    }
    ring();
    if (mine) await_end();
    pthread_mutex_unlock(&lock);
    if (!mine) return; /* it is elsewhere, or a rank or a meeting has it */
    close_listener(fd);
    symm_tcp_keep_free(mine);
}

/* Who claimed it listens no more: the id is used up. */
static void id_done(const symm_tcp_id *id) {
    pthread_mutex_lock(&lock);
    entry **at = find_entry(id->secret), *e = *at;
    if (e) *at = e->next;
    use_up(id);
    await_end(); /* the claim has woken it: as a rule it has ended long ago */
    pthread_mutex_unlock(&lock);
    if (e) symm_tcp_keep_free(e);
}

void symm_tcp_end_listener(symm_boot_tcp *t) {
    if (t->listener < 0) return;
    if (!t->id.agreed) id_done(&t->id);
    symm_lifeline_close(t->listener);
    SYMM_STAT_ADD(fds, -1);
    t->listener = -1;
}

int symm_tcp_keep_refuse(const symm_tcp_id *id) {
    pthread_mutex_lock(&lock);
    const entry *e = *find_entry(id->secret);
    const int serves = e && e->meeting;
    if (serves) atomic_store(&e->meeting->refused, 1);
    pthread_mutex_unlock(&lock);
    return serves;
}

void symm_tcp_keep_wait(void) {
    pthread_mutex_lock(&lock);
    while (meetings || (bell >= 0 && !count_kept())) pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
}
