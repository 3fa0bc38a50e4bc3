/* wait.h - how long and how anything that waits for a peer waits. Plain data, owned by the
 * caller. */
#ifndef SYMM_WAIT_H_
#define SYMM_WAIT_H_

#include <stdint.h>
#include <time.h>

#include "status.h"

typedef struct {
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    const char
        *stage; /* what is being waited for, e.g. "registering a window"; goes into messages */
    symmResult_t (*check)(
        void *arg); /* polled every few ms; anything but success ends the wait with that code */
    void *arg;      /* check may be NULL */
} symm_wait;

static inline uint64_t symm_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}
static inline int symm_wait_over(const symm_wait *w) {
    return w->deadline_ns && symm_now_ns() >= w->deadline_ns;
}

#endif
