/* comm.h - a communicator inside the library: entering it, visiting it, references. One thread at a
 * time is inside; a visit may come from any thread. */
#ifndef SYMM_COMM_H_
#define SYMM_COMM_H_

#include "base/check.h"
#include "gather.h"
#include "group.h"
#include "pages.h"
#include "revoke.h"
#include "types.h"

/* Begins an API call: finds the communicator, waits until no other thread is inside, and refuses a
 * dead handle, a communicator that is still being made (symmInProgress), and a thread that is
 * inside already. symm_comm_leave ends the call. live: which reasons to be over are answered with
 * their error, also while it waits. */
enum {
    SYMM_ENTER_ANY = 0,
    SYMM_ENTER_LIVE = 1, /* what this rank was told in words; exchanges of set-up look for more */
    SYMM_ENTER_COLL = 2  /* also what a peer told by the abort word alone */
};
symmResult_t symm_comm_enter(symmComm_t handle, int live, symm_comm **out);
/* The same by what lives only while its communicator does (a heap whose handle was just found
 * open): no look-up. */
symmResult_t symm_comm_enter_known(symm_comm *c, int live);
/* Asserts the invariants of the record. The thread that is inside. */
void symm_comm_check(const symm_comm *c);
void symm_comm_made_check(const symm_comm *c); /* its part in comm_check.c */
static inline void symm_comm_leave(symm_comm *c) {
    SYMM_CHECK(symm_comm_check(c));
    atomic_store_explicit(&c->entry.busy, 0, memory_order_release);
}

/* symmInvalidUsage if the calling thread is inside the communicator already: it is in a callback of
 * its own call, and would wait for itself. Any thread. */
symmResult_t symm_comm_not_inside(const symm_comm *c);
/* 1: another thread is inside a call of it now. Any thread. */
int symm_comm_has_other(const symm_comm *c);

/* SYMM_COMM_*. Sequentially consistent: host_task.c's launch_begins pairs with comm_end.c's end
 * through it. Any thread, as the three below. */
static inline int symm_comm_state(const symm_comm *c) {
    return atomic_load(&c->entry.state);
}
/* Another one is being made from it, in another thread. */
static inline int symm_comm_is_parent(const symm_comm *c) {
    return atomic_load(&c->entry.parenting);
}
/* symmCommAbort has begun. */
static inline int symm_comm_is_aborted(const symm_comm *c) {
    return atomic_load(&c->entry.aborting);
}
/* What it waits for while it is being made; a literal, or NULL. */
static inline const char *symm_comm_step(const symm_comm *c) {
    return atomic_load_explicit(&c->entry.making, memory_order_relaxed);
}

/* Begins a call that any thread may make while another thread is inside; unvisit ends it. The end
 * of the communicator waits until then. Also finds one that is still being made. */
symmResult_t symm_comm_visit(symmComm_t handle, symm_comm **out);
void symm_comm_unvisit(symm_comm *c);
/* The same; symmInProgress while it is being made. */
symmResult_t symm_comm_visit_made(symmComm_t handle, symm_comm **out);
/* symmInvalidArgument: the handle is none of a living communicator. */
symmResult_t symm_comm_bad_handle(symmComm_t handle);

/* symm_group_run of a call that all ranks of comm make, and that may wait for them. In a group a
 * handle that is none refuses all of it now: nobody could be told when the call is made. */
symmResult_t symm_comm_run(symmComm_t comm, symm_job_fn fn, const void *args, size_t bytes);

/* A rank's control block as this process reaches it (GPUs: the part in host memory: state and abort
 * word). After set-up. Any thread. */
static inline symm_ctl *symm_comm_ctl(const symm_comm *c, int rank) {
    if (c->control.pages) return symm_pages_ctl(c->control.pages, rank);
    return (symm_ctl *)(uintptr_t)(c->base + (uint64_t)rank * c->stride);
}

/* Whether that control block, and other host memory of the ranks, has what rank has written. Where
 * ranks are on several hosts, each has such memory for itself: of a peer only `state` is known. */
static inline int symm_comm_sees(const symm_comm *c, int rank) {
    return c->hosts <= 1 || rank == c->rank;
}

/* Any thread. The last reference frees the record. */
void symm_comm_ref(symm_comm *c);
void symm_comm_unref(symm_comm *c);

#endif
