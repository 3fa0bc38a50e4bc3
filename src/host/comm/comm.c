/* comm.c - entering and leaving communicators, references, and the record of an aborted one. The
 * user's thread; visiting and references: any thread. Lock: entry.turn, by threads that wait until
 * another one has left; the one that holds it waits for that. */
#define _GNU_SOURCE
#include "comm.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/handle.h"
#include "base/log.h"
#include "base/stats.h"
#include "driver.h"
#include "outer.h"
#include "machine/thread.h"

/* A call that serves one domain. */
static symmResult_t several_domains(symm_outer *o, symmComm_t handle) {
    const symmResult_t r =
        SYMM_ERR(symmNotSupported,
                 "communicator %s is over %d domains, and this call serves one: symmCommDomain "
                 "gives the communicator of this rank's",
                 o->name, o->domains);
    symm_outer_put(handle);
    return r;
}

symmResult_t symm_outer_place(const symm_outer *o, int *rank) {
    if (*rank < 0 || *rank >= o->nranks)
        return SYMM_ERR(symmInvalidArgument, "rank=%d: the communicator has ranks 0 to %d", *rank,
                        o->nranks - 1);
    if (o->domain_of[*rank] != o->domain)
        return SYMM_ERR(symmNotSupported,
                        "rank=%d is in domain %d, this rank in domain %d: memory of another domain "
                        "has no address here",
                        *rank, o->domain_of[*rank], o->domain);
    *rank = o->place_of[*rank];
    SYMM_ASSERT(*rank >= 0);
    return symmSuccess;
}

symmResult_t symm_comm_bad_handle(symmComm_t handle) {
    symm_outer *o = symm_outer_get(handle);
    if (o) return several_domains(o, handle);
    return SYMM_ERR(symmInvalidArgument,
                    "comm=%p is not a living communicator (destroyed, or never made?)",
                    (void *)handle);
}

void symm_comm_check(const symm_comm *c) {
    const int state = symm_comm_state(c);
    SYMM_ASSERT(state >= SYMM_COMM_MAKING && state <= SYMM_COMM_FINAL);
    SYMM_ASSERT(atomic_load(&c->entry.refs) > 0 && atomic_load(&c->entry.busy));
    SYMM_ASSERT(atomic_load(&c->entry.visitors) >= 0 && atomic_load(&c->entry.parenting) >= 0);
    SYMM_ASSERT(!c->ctl || (c->rank >= 0 && c->rank < c->nranks && c->nranks <= SYMM_MAX_RANKS));
    SYMM_ASSERT(!c->ctl || symm_comm_ctl(c, c->rank) == c->ctl);
    SYMM_CHECK(symm_comm_made_check(c));
}

/* Why a thread that waits for its turn must not go on waiting; symmSuccess: it may. Aborted ones
 * keep their record, but nothing else. */
static symmResult_t lost_turn(symm_comm *c, int live) {
    if (atomic_load_explicit(&c->entry.parenting, memory_order_relaxed)) return symmInProgress;
    if (live || symm_comm_is_aborted(c)) SYMM_TRY(symm_comm_known(c));
    if (symm_comm_state(c) == SYMM_COMM_FINAL) return symm_comm_bad_handle(c->handle);
    return symmSuccess;
}

/* First it yields, then it naps: the thread inside may wait for a peer for long. */
static void relax(int turns) {
    enum { YIELDS = 200, NAP_US = 50 };
    if (turns < YIELDS)
        sched_yield();
    else
        usleep(NAP_US);
}

/* Holds the turn, so that it competes only with threads that have just come. */
static symmResult_t await_turn(symm_comm *c, int live, uintptr_t self) {
    symmResult_t r;
    for (int i = 0; !(r = lost_turn(c, live)); i += i < INT_MAX) {
        uintptr_t none = 0;
        /* acquire: as in symm_comm_enter_known */
        if (atomic_compare_exchange_weak_explicit(&c->entry.busy, &none, self, memory_order_acquire,
                                                  memory_order_relaxed))
            break;
        relax(i);
    }
    return r;
}

symmResult_t symm_comm_not_inside(const symm_comm *c) {
    if (atomic_load_explicit(&c->entry.busy, memory_order_relaxed) != symm_thread_self())
        return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "communicator %s: a call inside another call of this same thread, from one of "
                    "its callbacks, would wait for itself",
                    c->name);
}

int symm_comm_has_other(const symm_comm *c) {
    const uintptr_t busy = atomic_load_explicit(&c->entry.busy, memory_order_relaxed);
    return busy && busy != symm_thread_self();
}

/* Another thread is inside, or next. A visitor meanwhile: the communicator cannot end. */
static __attribute__((noinline)) symmResult_t enter_next(symm_comm *c, int live, uintptr_t self) {
    symm_comm *same;
    SYMM_TRY(lost_turn(c, live));
    SYMM_TRY(symm_comm_not_inside(c));
    SYMM_TRY(symm_comm_visit(c->handle, &same));
    SYMM_ASSERT(same == c);
    atomic_fetch_add_explicit(&c->entry.waiting, 1, memory_order_relaxed);
    pthread_mutex_lock(&c->entry.turn);
    const symmResult_t r = await_turn(c, live, self);
    pthread_mutex_unlock(&c->entry.turn);
    atomic_fetch_sub_explicit(&c->entry.waiting, 1, memory_order_relaxed);
    symm_comm_unvisit(c);
    return r;
}

symmResult_t symm_comm_enter_known(symm_comm *c, int live) {
    const uintptr_t self = symm_thread_self();
    uintptr_t none = 0;
    /* Pairs with the release in symm_comm_leave: the next thread sees what the last one did. */
    if (__builtin_expect(atomic_load_explicit(&c->entry.waiting, memory_order_relaxed) ||
                             !atomic_compare_exchange_strong_explicit(&c->entry.busy, &none, self,
                                                                      memory_order_acquire,
                                                                      memory_order_relaxed),
                         0))
        SYMM_TRY(enter_next(c, live, self));
    SYMM_CHECK(symm_comm_check(c));
    symmResult_t r = symmSuccess;
    if (live && __builtin_expect(symm_comm_death_word(c) != 0, 0)) r = symm_comm_used(c);
    if (live && !r && __builtin_expect(symm_comm_is_over(c), 0))
        r = live == SYMM_ENTER_COLL || c->cuda ? symm_comm_told(c) : symm_comm_async(c);
    if (__builtin_expect(r != symmSuccess, 0))
        symm_comm_leave(c); /* from here on the thread that aborts it may free it */
    else
        symm_driver_note(c);
    return r;
}

symmResult_t symm_comm_enter(symmComm_t handle, int live, symm_comm **out) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, handle);
    if (__builtin_expect(!c, 0)) return symm_comm_bad_handle(handle);
    int state = atomic_load_explicit(&c->entry.state, memory_order_acquire);
    if (state == SYMM_COMM_MAKING) {
        const symmResult_t r = symm_comm_known(c);
        return r ? r : symmInProgress;
    }
    SYMM_TRY(symm_comm_enter_known(c, live));
    *out = c;
    return symmSuccess;
}

symmResult_t symm_comm_visit(symmComm_t handle, symm_comm **out) {
    symm_comm *c = symm_handle_get(SYMM_KIND_COMM, handle); /* from here on it is not freed */
    if (!c) return symm_comm_bad_handle(handle);
    /* This count and the look at the state, and comm_end.c's store of the state and look at the
     * count, have one order: either the end waits for this visitor, or the visitor sees it. */
    atomic_fetch_add(&c->entry.visitors, 1);
    if (symm_comm_state(c) == SYMM_COMM_FINAL) {
        symm_comm_unvisit(c);
        return symm_comm_bad_handle(handle);
    }
    *out = c;
    return symmSuccess;
}

void symm_comm_unvisit(symm_comm *c) {
    const symmComm_t handle = c->handle;
    SYMM_ASSERT(atomic_load(&c->entry.visitors) > 0);
    atomic_fetch_sub(&c->entry.visitors, 1); /* release: pairs with await_visitors */
    symm_handle_put(SYMM_KIND_COMM, handle);
}

symmResult_t symm_comm_visit_made(symmComm_t comm, symm_comm **out) {
    SYMM_TRY(symm_comm_visit(comm, out));
    if (symm_comm_state(*out) != SYMM_COMM_MAKING) return symmSuccess;
    symm_comm_unvisit(*out);
    return symmInProgress;
}

symmResult_t symm_comm_run(symmComm_t comm, symm_job_fn fn, const void *args, size_t bytes) {
    symm_comm *c;
    if (symm_group_open()) {
        const symmResult_t r = symm_comm_visit(comm, &c);
        if (r) return symm_group_refuse(r);
        symm_comm_unvisit(c);
    }
    return symm_group_run(comm, SYMM_JOB_BLOCKS, fn, args, bytes);
}

void symm_comm_ref(symm_comm *c) {
    SYMM_ASSERT(atomic_load_explicit(&c->entry.refs, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&c->entry.refs, 1, memory_order_relaxed);
}

/* Another thread aborted it while the rank's own may be on its way into a call: that one has looked
 * up the handle, and holds no reference (symm_comm_enter). It finds `busy` set and the reason. So
 * the record, some 3 KB, stays as long as the process. */
static void keep_aborted(symm_comm *c) {
    static _Atomic(symm_comm *) aborted;
    atomic_store_explicit(&c->entry.busy, 1, memory_order_relaxed);
    c->entry.next_aborted = atomic_load_explicit(&aborted, memory_order_relaxed);
    /* Nobody takes one out; the list is there so that checkers of leaks find them. */
    while (!atomic_compare_exchange_weak_explicit(&aborted, &c->entry.next_aborted, c,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

void symm_comm_unref(symm_comm *c) {
    SYMM_ASSERT(atomic_load_explicit(&c->entry.refs, memory_order_relaxed) > 0);
    /* Release: what this user did comes before the free; acquire: the one who frees sees it all. */
    if (atomic_fetch_sub_explicit(&c->entry.refs, 1, memory_order_acq_rel) != 1) return;
    c->entry.undo(c);
    SYMM_STAT_ADD(comms, -1);
    if (atomic_load(&c->entry.aborting)) {
        keep_aborted(c);
        return;
    }
    pthread_mutex_destroy(&c->failure.lock);
    pthread_mutex_destroy(&c->entry.turn);
    free(c);
}
