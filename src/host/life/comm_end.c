/* comm_end.c - how a communicator ends: Finalize, Destroy, Revoke, Abort. What belongs to it is
 * dropped in this order: heaps, windows, reductions, mesh, bootstrap. The user's thread; Revoke and
 * Abort: any thread. */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/handle.h"
#include "host/coll/redop.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/comm/outer.h"
#include "host/comm/watch.h"
#include "host/gpu/gpu.h"
#include "host/heap/heap_int.h"
#include "host/lane/memlane.h"
#include "host/launch/launch.h"
#include "host/window/window.h"
#include "machine/thread.h"
#include "dev_comm.h"
#include "across_end.h"

/* Tells the peers that the end of our connection is no death. A peer that reads it sees all that
 * this rank wrote. Pairs with symm_comm_said_left, and on GPUs with left_for_good in dev.cuh. */
static void say_left(symm_comm *c) {
    if (c->ctl) __atomic_store_n(&c->ctl->state, SYMM_STATE_LEFT, __ATOMIC_RELEASE);
    if (c->mesh) symm_mesh_leave(c->mesh); /* peers of other hosts */
}

/* Visitors read what is freed next. They are never inside for long. */
static void await_visitors(const symm_comm *c) {
    while (atomic_load(&c->entry.visitors)) sched_yield();
}

/* From here on the handle is invalid. Captured calls keep control block and scratch until their
 * graphs are destroyed, but replaying them is an error: launch_host.c looks at the state, in
 * may_launch and run_task. */
static symmResult_t end(symm_comm *c) {
    const int gpus = c->cuda;
    int runs;
    symmResult_t r = symm_launch_drain(c, &runs);
    if (r && runs) { /* nothing can be freed here and now */
        symm_comm_leave(c);
        return r;
    }
    symm_dev_comm_drain(c);
    (void)SYMM_FAIL_HERE(comm_ends);
    atomic_store(&c->entry.state, SYMM_COMM_FINAL); /* pairs with symm_comm_visit */
    await_visitors(c);
    /* Waits for launches that another thread made after drain() and before FINAL. They may wait for
     * a peer, so this comes before the watcher's end. Pairs with the release in launch_host.c's
     * launch_ended. */
    while (atomic_load(&c->order.replays)) usleep(20);
    symm_memplan_lock_ending(c); /* not before that wait: the end of a graph takes the lock, too */
    say_left(c);
    symm_watch_stop(c);
    symm_gpu_unpin(c);
    symm_heap_drop_all(c);
    symm_sizes_drop_all(c);
    symm_memplan_reap(c);
    symm_memplan_unlock_dead();
    symm_window_drop_all(c);
    symm_redop_drop_all(c);
    symm_mesh_close(c->mesh);
    c->mesh = NULL;
    symm_boot_close(c->exchange.boot);
    c->exchange.boot = NULL;
    symm_handle_close(SYMM_KIND_COMM, c->handle);
    symm_handle_put(SYMM_KIND_COMM, c->handle); /* the handle's own reference to the communicator */
    if (gpus) symm_gpu_reap();
    return r;
}

symmResult_t symmCommFinalize(symmComm_t comm) {
    symm_comm *c;
    SYMM_TRY(symm_group_refuse_beside(comm, "symmCommFinalize"));
    if (symm_outer_is(comm)) return symm_across_finalize(comm);
    SYMM_TRY(symm_comm_enter(comm, 0, &c));
    int runs;
    symmResult_t r = symm_launch_drain(c, &runs);
    if (r == symmSuccess) r = symm_comm_told(c);
    symm_comm_leave(c);
    return r;
}

symmResult_t symmCommDestroy(symmComm_t comm) {
    symm_comm *c;
    SYMM_TRY(symm_group_refuse_beside(comm, "symmCommDestroy"));
    if (symm_outer_is(comm)) return symm_across_destroy(comm, 0);
    SYMM_TRY(symm_comm_enter(comm, 0, &c));
    return end(c);
}

symmResult_t symmCommRevoke(symmComm_t comm, int flags) {
    symm_comm *c;
    if (symm_outer_is(comm)) return symm_across_revoke(comm, flags);
    SYMM_TRY(symm_comm_visit_made(comm, &c));
    const symmResult_t r = symm_comm_revoke_flags(flags);
    const int aborts = flags == SYMM_REVOKE_ABORT;
    if (!r) symm_comm_abort_everywhere(c, aborts ? SYMM_COMM_GOES : "symmCommRevoke", aborts);
    symm_comm_unvisit(c);
    return r;
}

/* Which rank of it this is, or that is not known yet: the ranks of a child are sorted behind the
 * call. Pairs with the release in symm_comm_build. */
static void say_abort(const symm_comm *c, int *rank, char *text, size_t cap) {
    const int known = __atomic_load_n(&c->nranks, __ATOMIC_ACQUIRE) > 0;
    *rank = known ? __atomic_load_n(&c->rank, __ATOMIC_RELAXED) : -1;
    if (known)
        SYMM_SAY(text, cap, "rank %d called symmCommAbort", *rank);
    else
        SYMM_SAY(text, cap, "symmCommAbort was called while the ranks were being sorted");
}

/* The thread that creates it sees this at its next check, drops it and leaves. Nobody waits for
 * that here. 0: it is done with making it, and it lives. */
static int abort_creation(symm_comm *c) {
    char text[96];
    int rank, outcome = 0;
    say_abort(c, &rank, text, sizeof text);
    symm_comm_fail(c, symmAborted, rank, text); /* first: pairs with comm_make.c's go_live */
    if (!atomic_compare_exchange_strong(&c->entry.outcome, &outcome, SYMM_COMM_IS_GIVEN_UP) &&
        outcome == SYMM_COMM_IS_MADE) {
        while (symm_comm_state(c) == SYMM_COMM_MAKING) sched_yield();
        return 0;
    }
    if (symm_handle_close(SYMM_KIND_COMM, c->handle)) symm_handle_put(SYMM_KIND_COMM, c->handle);
    return 1;
}

/* 1: this thread ends it; a call in another thread has left. 0: another thread is ending it
 * already. */
static int take_turn(symm_comm *c) {
    for (;;) {
        uintptr_t none = 0;
        /* acquire: pairs with symm_comm_leave */
        if (atomic_compare_exchange_weak_explicit(&c->entry.busy, &none, symm_thread_self(),
                                                  memory_order_acquire, memory_order_relaxed))
            return 1;
        if (atomic_load(&c->entry.state) == SYMM_COMM_FINAL) return 0;
        sched_yield();
    }
}

symmResult_t symmCommAbort(symmComm_t comm) {
    symm_comm *c;
    if (symm_outer_is(comm)) return symm_across_destroy(comm, 1);
    SYMM_TRY(symm_comm_visit(comm, &c));
    const symmResult_t inside = symm_comm_not_inside(c);
    if (inside) { /* take_turn would wait for this thread */
        symm_comm_unvisit(c);
        return inside;
    }
    atomic_store(&c->entry.aborting, 1); /* holds for the end in any thread */
    if (atomic_load_explicit(&c->entry.state, memory_order_acquire) == SYMM_COMM_MAKING &&
        abort_creation(c)) {
        symm_comm_unvisit(c);
        return symmSuccess;
    }
    symm_comm_abort_everywhere(c, SYMM_COMM_GOES, 1);
    const int turn = take_turn(c);
    symm_comm_unvisit(c); /* nobody else ends it after the turn is taken */
    return turn ? end(c) : symm_comm_bad_handle(comm);
}
