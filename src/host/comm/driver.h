/* driver.h - which thread drives a thread rank. One thread that calls several ranks of a
 * communicator one after the other waits in the first call for ever, because it would make the
 * other calls itself. The words are in the control block; any thread; no lock. */
#ifndef SYMM_DRIVER_H_
#define SYMM_DRIVER_H_

#include "types.h"

#define SYMM_DRIVER_ALONE                                          \
    "; this same thread called or made it last: one thread calls " \
    "several ranks between symmGroupStart and symmGroupEnd"

/* This thread has called, or made, that rank last. */
static inline void symm_driver_note(const symm_comm *c) {
    if (__builtin_expect(c->threads, 0) && c->ctl)
        __atomic_store_n(&c->ctl->driver, (uint64_t)pthread_self(), __ATOMIC_RELAXED);
}
/* The same by handle. comm: any value; nothing happens if it is no living communicator. */
void symm_driver_take(symmComm_t comm);
/* Whether this thread is the last driver of both. */
int symm_driver_same(const symm_comm *c, int peer);
/* This thread has waited for `peer` for a second: warns if it drives that rank itself. */
void symm_driver_warn(const symm_comm *c, int peer);
/* The thread's last error is a deadline that `peer` missed: adds to it if this thread drives that
 * rank too. */
void symm_driver_explain(const symm_comm *c, int peer);
/* From then on waits of kernels warn too. */
void symm_driver_watch_kernels(void);

#endif
