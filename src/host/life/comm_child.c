/* comm_child.c - communicators made from another one: split; and shrink, in which the ranks that
 * are left go on. Runs on the caller's thread; with config.blocking 0 on a thread of its own. The
 * parent is in use meanwhile. Lock: `telling`, while both ends of a creation behind its call are
 * told that it is done. */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/log.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/comm/failed.h"
#include "host/comm/group.h"
#include "host/comm/outer.h"
#include "host/gpu/gpu.h"
#include "machine/thread.h"
#include "transport/mesh/survive.h"
#include "across_end.h"
#include "comm_make.h"

#define DEATH_SHOWS_NS \
    1000000000ull /* a death that another rank has seen is seen here within this time */

/* The arguments by value, because a group makes the call later. */
typedef struct {
    symmComm_t parent;
    symmComm_t *out;
    symm_config_copy config;
    symm_comm
        *made; /* non-blocking: the record whose handle was returned; NULL: made in the call */
    int color, key, flags;
    int grouped;
    int code;        /* what is wrong with the arguments, and why */
    symmMeet_t meet; /* what its ranks settle first; settle NULL: nothing */
    symm_ranks list; /* shrink: whom it leaves out */
    char why[88];
} child_args;
_Static_assert(sizeof(child_args) <= 288, "a group keeps no more of a call");

typedef symmResult_t (*make_fn)(symm_comm *c, const child_args *a);

static symmResult_t check_args(const child_args *a) {
    symmConfig_t config, checked;
    if (a->code) return SYMM_ERR((symmResult_t)a->code, "%s", a->why);
    return symm_config_check(symm_config_kept(&a->config, &config), &checked);
}

/* outlives: it is made of the ranks that are left of c, which may be over. */
static symmResult_t open_child(symm_comm *c, symm_boot *boot, const child_args *a, int outlives) {
    symmConfig_t cfg = symm_config_child(c, &a->config);
    cfg.blocking =
        /* the child's bootstrap is the parent's mesh, which is in use until the child is made */
        SYMM_CONFIG_UNDEF;
    const symm_origin from = {c->gpu ? c->gpu->context : NULL, c, outlives};
    boot->meet = a->meet;
    symmResult_t r = a->made ? symm_comm_build_from(&from, boot, a->made)
                             : symm_comm_open_from(&from, boot, &cfg, a->out);
    symm_log_rank(c->rank);
    return r;
}

/* If the mesh was revoked meanwhile (an exchange failed half-way, or a rank died), the parent is
 * over too. A shrink behind an abort that is no error yet leaves it so. */
static void learn_end(symm_comm *c, symmResult_t r) {
    char text[SYMM_ERR_TEXT], own[SYMM_ERR_TEXT];
    const int other = !r || r == symmInvalidArgument || r == symmMismatch; /* than this rank's */
    if (!symm_mesh_revoked(c->mesh) ||
        atomic_load_explicit(&c->failure.code, memory_order_acquire) != symmSuccess ||
        (!r && symm_comm_death_word(c)))
        return;
    snprintf(own, sizeof own, "%s", symm_status_text());
    symm_comm_reason(c, symmRemoteError, -1, text, sizeof text);
    if (other) symm_status_adopt(text);
    symm_comm_break(c, other ? symmRemoteError : r, other ? -1 : c->rank,
                    "creating a communicator from it");
    symm_status_adopt(own);
}

/* ---- in the call, or in another thread
 * ------------------------------------------------------------ */

typedef struct {
    symm_comm *parent;
    child_args a;
    make_fn make;
    symmComm_t nothing; /* `out` of a rank without a color, as the caller's variable may be gone */
} behind;

static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;
enum { NO_THREAD = 1 }; /* of entry.busy: the address of no thread's block */

/* Pairs with the releases in say_done. */
static int behind_now(symm_comm *c) {
    return atomic_load_explicit(&c->entry.behind, memory_order_acquire) ||
           atomic_load_explicit(&c->entry.parenting, memory_order_acquire);
}

int symm_comm_goes_on(symm_comm *c) {
    int on = behind_now(c);
    if (!on) return 0;
    pthread_mutex_lock(&telling); /* the other end may have been told just now */
    on = behind_now(c);
    pthread_mutex_unlock(&telling);
    return on;
}

/* A thread that sees one end done finds the other one done, whichever it asks first. A count for
 * the parent, because the next creation may begin in between. */
static void say_done(symm_comm *parent, symm_comm *made) {
    pthread_mutex_lock(&telling);
    atomic_fetch_sub_explicit(&parent->entry.parenting, 1, memory_order_release);
    (void)SYMM_FAIL_HERE(behind_done); /* only held up */
    if (made) atomic_store_explicit(&made->entry.behind, 0, memory_order_release);
    pthread_mutex_unlock(&telling);
}

/* The parent stays held, on behalf of that thread: calls that ask whether they are inside it
 * themselves (symm_comm_not_inside) mean this one. */
static void take_inside(symm_comm *parent, uintptr_t thread) {
    SYMM_ASSERT(atomic_load_explicit(&parent->entry.busy, memory_order_relaxed));
    atomic_store_explicit(&parent->entry.busy, thread, memory_order_relaxed);
}

/* This thread holds the parent until it is done. After a failure symmCommGetAsyncError of the new
 * one returns it. */
static void *make_behind(void *arg) {
    behind b = *(behind *)arg;
    symm_comm *made = b.a.made;
    free(arg);
    b.a.out = &b.nothing;
    take_inside(b.parent, symm_thread_self());
    symm_log_rank(b.parent->rank);
    symmResult_t r = b.make(b.parent, &b.a);
    if (made && r) {
        symm_comm_fail(made, r, -1, symm_status_text());
        atomic_store_explicit(&made->entry.state, SYMM_COMM_LIVE, memory_order_release);
    }
    (void)SYMM_FAIL_HERE(behind_leave); /* only held up: the new one must not be done before */
    /* First, so that a call that finds the parent in use also finds the reason. */
    symm_comm_leave(b.parent);
    say_done(b.parent, made);
    if (made) symm_comm_unref(made);
    symm_comm_unref(b.parent);
    if (b.a.meet.release) b.a.meet.release(b.a.meet.ctx);
    symm_stat_threads(-1);
    return NULL;
}

static int goes_behind(const symm_comm *c, const child_args *a) {
    const int32_t blocking = a->config.given ? a->config.config.blocking : c->config.blocking;
    return !a->grouped && a->out && !a->code && !check_args(a) && blocking == 0;
}

static symmResult_t start_behind(symm_comm *c, child_args *a, make_fn make, int has_child) {
    pthread_t t;
    symmConfig_t cfg = symm_config_child(c, &a->config);
    symmComm_t handle = NULL;
    behind *b = SYMM_FAIL_ALLOC(behind_alloc, malloc(sizeof *b));
    if (!b) return SYMM_ERR(symmOutOfMemory, "no memory to create a communicator");
    symmResult_t r = has_child ? symm_comm_shell(&cfg, &a->made) : symmSuccess;
    if (r) goto free_record;
    if (a->made) {
        handle =
            a->made->handle; /* the new one may be done, and aborted, before this thread goes on */
        symm_comm_ref(a->made);
        atomic_store_explicit(&a->made->entry.behind, 1,
                              memory_order_relaxed); /* nobody has it yet */
        symm_comm_making(a->made, "waiting for the other ranks of the parent");
    }
    *b = (behind){c, *a, make, NULL};
    symm_comm_ref(c);
    atomic_fetch_add_explicit(&c->entry.parenting, 1, memory_order_release);
    take_inside(c, NO_THREAD); /* first: then only the new one does it */
    symm_stat_threads(1);
    int e = SYMM_FAIL_CODE(behind_thread, EAGAIN, pthread_create(&t, NULL, make_behind, b));
    if (!e) {
        pthread_detach(t);
        *a->out = handle;
        return symmInProgress;
    }
    symm_stat_threads(-1);
    take_inside(c, symm_thread_self());
    atomic_fetch_sub_explicit(&c->entry.parenting, 1, memory_order_release);
    symm_comm_unref(c);
    if (a->made) {
        symm_comm_unref(a->made);
        symm_handle_close(SYMM_KIND_COMM, handle);
        symm_handle_put(SYMM_KIND_COMM, handle);
    }
    a->made = NULL;
    r = SYMM_ERR(symmSystemError, "cannot start a thread for non-blocking creation: %s",
                 strerror(e));
free_record:
    free(b);
    return r;
}

/* If no thread can be started, this rank takes part in the call, with its error, because the others
 * wait for it. Ends the use of c, now or later. */
static symmResult_t make_child(symm_comm *c, child_args *a, make_fn make, int has_child) {
    symmResult_t r = symmSuccess;
    if (goes_behind(c, a)) {
        r = start_behind(c, a, make, has_child);
        if (r == symmInProgress) return r;
        a->code = (int)r;
        snprintf(a->why, sizeof a->why, "%.87s", symm_status_text());
    }
    r = make(c, a);
    symm_comm_leave(c);
    return r;
}

/* ---- split ----------------------------------------------------------------------------------- */

typedef struct {
    int32_t color, key, code, pad;
} wish;

/* Members of `color` in order of (key, old rank). Returns how many; *mine: this rank's index. */
static int sort_members(const wish *all, int nranks, int color, int self, int *members, int *mine) {
    int n = 0;
    for (int r = 0; r < nranks; r++) {
        if (all[r].color != color) continue;
        int at = n++;
        while (at > 0 && all[members[at - 1]].key > all[r].key) {
            members[at] = members[at - 1];
            at--;
        }
        members[at] = r;
    }
    for (int i = 0; i < n; i++)
        if (members[i] == self) *mine = i;
    return n;
}

static symmResult_t split(symm_comm *c, const child_args *a) {
    wish all[SYMM_MAX_RANKS], mine = {a->color, a->key, 0, 0};
    int members[SYMM_MAX_RANKS], rank = 0;
    symmResult_t status = check_args(a);
    if (!status && !a->out) status = SYMM_ERR(symmInvalidArgument, "newcomm is NULL");
    mine.code = (int32_t)status;
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, "splitting a communicator"));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, "splitting a communicator");
    symm_boot *boot = NULL;
    if (a->color != SYMM_SPLIT_NOCOLOR) {
        int n = sort_members(all, c->nranks, a->color, c->rank, members, &rank);
        status = symm_boot_mesh_open(c->mesh, members, n, rank, &boot);
    }
    status = symm_comm_agree(c, status,
                             "splitting a communicator"); /* nobody begins before all ranks can */
    if (status) {
        symm_boot_close(boot);
        return status;
    }
    if (!boot) {
        *a->out = NULL;
        return symmSuccess;
    }
    status = open_child(c, boot, a, 0);
    learn_end(c, status);
    return status;
}

static symmResult_t split_job(void *p) {
    child_args *a = p;
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(a->parent, 1, &c));
    return make_child(c, a, split, a->color != SYMM_SPLIT_NOCOLOR);
}

/* What is wrong on this rank, with its text, is told to the others when the call is made. */
static void note_error(child_args *a, symmResult_t status) {
    if (status) snprintf(a->why, sizeof a->why, "%.87s", symm_status_text());
    a->code = (int)status;
}

/* status: as note_error's. */
static symmResult_t split_off(symmComm_t comm, int color, int key, symmComm_t *newcomm,
                              const symmConfig_t *config, const symmMeet_t *meet,
                              symmResult_t status) {
    child_args a = {
        .parent = comm, .out = newcomm, .color = color, .key = key, .grouped = symm_group_open()};
    if (meet) a.meet = *meet;
    note_error(&a, status);
    symm_config_keep(&a.config, config);
    return symm_comm_run(comm, split_job, &a, sizeof a);
}

symmResult_t symmCommSplit(symmComm_t comm, int color, int key, symmComm_t *newcomm,
                           const symmConfig_t *config) {
    if (symm_outer_is(comm)) return symm_across_split(comm, color, key, newcomm, config);
    return split_off(comm, color, key, newcomm, config, NULL, symmSuccess);
}

symmResult_t symmCommSplitMeet(symmComm_t comm, int color, int key, symmComm_t *newcomm,
                               const symmConfig_t *config, const symmMeet_t *meet) {
    return split_off(comm, color, key, newcomm, config, meet, symm_comm_check_meet(meet));
}

/* ---- shrink ---------------------------------------------------------------------------------- */

static void wrong(child_args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void wrong(child_args *a, const char *fmt, ...) {
    va_list ap;
    if (a->code) return;
    a->code = symmInvalidArgument;
    va_start(ap, fmt);
    vsnprintf(a->why, sizeof a->why, fmt, ap);
    va_end(ap);
}

/* Errors are kept, and told to the others when the call is made, because they would wait for this
 * rank. */
static void read_list(const symm_comm *c, child_args *a, const int *list, int n) {
    if (!a->out) wrong(a, "newcomm is NULL");
    if (a->flags & ~(SYMM_SHRINK_ABORT | SYMM_SHRINK_FAILED))
        wrong(a, "flags=%d: not SYMM_SHRINK_ABORT, SYMM_SHRINK_FAILED or 0", a->flags);
    if (n && a->flags & SYMM_SHRINK_FAILED)
        wrong(a, "nExclude=%d: SYMM_SHRINK_FAILED takes no list", n);
    if (n < 0) wrong(a, "nExclude=%d: must not be negative", n);
    if (n > 0 && !list) wrong(a, "excludeRanks is NULL, nExclude=%d", n);
    for (int i = 0; list && i < n; i++) {
        if (list[i] < 0 || list[i] >= c->nranks)
            wrong(a, "excludeRanks[%d]=%d: the communicator has ranks 0 to %d", i, list[i],
                  c->nranks - 1);
        else
            symm_ranks_add(&a->list, list[i]);
        if (list[i] == c->rank) wrong(a, "excludeRanks[%d]=%d is this rank", i, list[i]);
    }
}

static int remaining(const symm_comm *c, const symm_ranks *gone, int *members, int *rank) {
    int n = 0;
    for (int r = 0; r < c->nranks; r++) {
        if (symm_ranks_has(gone, r)) continue;
        if (r == c->rank) *rank = n;
        members[n++] = r;
    }
    return n;
}

/* Before the ranks agree, every failure must be told to them. After that nothing may fail that a
 * rank needs to meet the others. */
static symmResult_t shrink_once(symm_comm *c, const child_args *a, symm_ranks *out) {
    int members[SYMM_MAX_RANKS], rank = 0;
    uint32_t call;
    symm_boot *boot = NULL;
    symm_ranks none = {{0}};
    symmResult_t status = check_args(a);
    const int kind = a->flags & SYMM_SHRINK_FAILED ? SYMM_SURVIVE_GONE : SYMM_SURVIVE_LIST;
    const int all = remaining(c, &none, members, &rank);
    if (!status) status = symm_boot_mesh_open(c->mesh, members, all, rank, &boot);
    symm_wait w = symm_comm_wait(c, "shrinking a communicator");
    symm_remain left = {c, out};
    w.check = symm_failed_check;
    w.arg = &left;
    status = symm_survive(c->mesh, kind, status, out, &call, &w);
    if (status == symmTimeout) symm_failed_explain(&left);
    if (status) {
        symm_boot_close(boot);
        return status;
    }
    const int n = remaining(c, out, members, &rank);
    symm_boot_mesh_survive(boot, call, members, n, rank);
    return open_child(c, boot, a, 1);
}

/* 1: a rank has died since the ranks agreed on who goes on. A rank that found the death may have
 * told that it gives up before this rank's own connection to the dead one has ended. All must try
 * again, or none, so this waits for that end for a while. */
static int one_more_is_gone(const symm_comm *c, const symm_ranks *out) {
    const uint64_t end = symm_now_ns() + DEATH_SHOWS_NS;
    symm_ranks gone;
    for (;;) {
        symm_survive_gone(c->mesh, &gone);
        if ((gone.bit[0] & ~out->bit[0]) || (gone.bit[1] & ~out->bit[1])) return 1;
        if (symm_now_ns() >= end) return 0;
        usleep(500);
    }
}

static symmResult_t shrink(symm_comm *c, const child_args *a) {
    symm_ranks out = a->list;
    symmResult_t r;
    do r = shrink_once(c, a, &out);
    while (r == symmRemoteError && !a->made && a->flags & SYMM_SHRINK_FAILED &&
           one_more_is_gone(c, &out));
    learn_end(c, r);
    return r;
}

/* With SYMM_SHRINK_ABORT: ends what runs in the parent, and waits until a thread that is inside has
 * left. */
static symmResult_t enter_parent(const child_args *a, symm_comm **c) {
    if (!a->code && a->flags & SYMM_SHRINK_ABORT) {
        const symm_comm *p = symm_handle_peek(SYMM_KIND_COMM, a->parent);
        if (p) SYMM_TRY(symm_comm_not_inside(p));
        SYMM_TRY(symmCommRevoke(a->parent, 0));
        while (p && atomic_load_explicit(&p->entry.busy, memory_order_relaxed) &&
               atomic_load(&p->entry.state) != SYMM_COMM_FINAL) /* else it was aborted meanwhile */
            sched_yield();
    }
    SYMM_TRY(symm_comm_enter(a->parent, 0, c));
    if ((*c)->ctl) return symmSuccess;
    symmResult_t r = SYMM_ERR(symmInvalidUsage, "communicator %s was never made", (*c)->name);
    symm_comm_leave(*c);
    return r;
}

static symmResult_t shrink_job(void *p) {
    child_args *a = p;
    symm_comm *c;
    SYMM_TRY(enter_parent(a, &c));
    return make_child(c, a, shrink, 1);
}

/* status: as note_error's. */
static symmResult_t shrink_to(symmComm_t comm, const int *excludeRanks, int nExclude,
                              symmComm_t *newcomm, const symmConfig_t *config, int flags,
                              const symmMeet_t *meet, symmResult_t status) {
    child_args a = {.parent = comm, .out = newcomm, .flags = flags, .grouped = symm_group_open()};
    if (meet) a.meet = *meet;
    note_error(&a, status);
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    symm_config_keep(&a.config, config);
    if (c) read_list(c, &a, excludeRanks, nExclude); /* else refused when the call is made */
    return symm_comm_run(comm, shrink_job, &a, sizeof a);
}

symmResult_t symmCommShrink(symmComm_t comm, const int *excludeRanks, int nExclude,
                            symmComm_t *newcomm, const symmConfig_t *config, int flags) {
    if (symm_outer_is(comm))
        return symm_across_shrink(comm, excludeRanks, nExclude, newcomm, config, flags);
    return shrink_to(comm, excludeRanks, nExclude, newcomm, config, flags, NULL, symmSuccess);
}

symmResult_t symm_comm_shrink_with(symmComm_t comm, const int *excludeRanks, int nExclude,
                                   symmComm_t *newcomm, const symmConfig_t *config, int flags,
                                   symmResult_t status) {
    return shrink_to(comm, excludeRanks, nExclude, newcomm, config, flags, NULL, status);
}

symmResult_t symmCommShrinkMeet(symmComm_t comm, const int *excludeRanks, int nExclude,
                                symmComm_t *newcomm, const symmConfig_t *config, int flags,
                                const symmMeet_t *meet) {
    return shrink_to(comm, excludeRanks, nExclude, newcomm, config, flags, meet,
                     symm_comm_check_meet(meet));
}
