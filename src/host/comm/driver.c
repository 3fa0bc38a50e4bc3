/* driver.c - the functions of driver.h. It is never certain that one thread drives both ranks,
 * because another thread may be about to call the peer. So it is a warning after a second, not an
 * error. Runs on the thread that waits; no lock. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#include "base/handle.h"
#include "base/log.h"
#include "comm.h"

static uint64_t driver_of(const symm_ctl *ctl) {
    return __atomic_load_n(&ctl->driver, __ATOMIC_RELAXED);
}

void symm_driver_take(symmComm_t comm) {
    symm_comm *c = symm_handle_get(SYMM_KIND_COMM, comm);
    if (!c) return;
    if (atomic_load_explicit(&c->entry.state, memory_order_acquire) == SYMM_COMM_LIVE)
        symm_driver_note(c);
    symm_handle_put(SYMM_KIND_COMM, comm);
}

static int drives_both(const symm_ctl *mine, const symm_ctl *theirs) {
    const uint64_t me = (uint64_t)pthread_self();
    return driver_of(mine) == me && driver_of(theirs) == me;
}

int symm_driver_same(const symm_comm *c, int peer) {
    return c->threads && c->ctl && peer >= 0 && peer != c->rank &&
           drives_both(c->ctl, symm_comm_ctl(c, peer));
}

static void warn(int rank, int peer) {
    SYMM_WARN("rank %d has waited a second for rank %d, which this same thread called or made "
              "last. If no "
              "other thread calls it, this call never returns: one thread makes the calls of "
              "several ranks "
              "between symmGroupStart and symmGroupEnd, or on streams",
              rank, peer);
}

void symm_driver_warn(const symm_comm *c, int peer) {
    if (symm_driver_same(c, peer)) warn(c->rank, peer);
}

void symm_driver_explain(const symm_comm *c, int peer) {
    char text[SYMM_ERR_TEXT];
    if (!symm_driver_same(c, peer) || strstr(symm_status_text(), "this same thread")) return;
    SYMM_SAY(text, sizeof text, "%.320s; rank %d is late%s", symm_status_text(), peer,
             SYMM_DRIVER_ALONE);
    symm_status_adopt(text);
}

static const symm_ctl *ctl_of(const symm_args *a, int rank) {
    return (const symm_ctl *)(uintptr_t)(a->base + (uint64_t)rank * a->stride);
}

/* A kernel on a stream runs in the worker, which drives nothing. */
static void in_kernel(const symm_args *a, int peer) {
    if (drives_both(ctl_of(a, a->rank), ctl_of(a, peer))) warn(a->rank, peer);
}

void symm_driver_watch_kernels(void) {
    __atomic_store_n(&symm_wait_long, in_kernel,
                     __ATOMIC_RELEASE); /* pairs with wait.c's acquire */
}
