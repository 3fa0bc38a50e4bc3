/* thread.h - which thread this is, for what every call asks, without a thread-local variable. Any
 * thread; no lock.
 *
 * A variable at a fixed distance from the thread's pointer (initial-exec) would be as fast. But the
 * loader has little room for those of libraries that are opened late, and refuses a library where
 * none is left. A variable that is found through the loader costs a call each time. So what every
 * call asks is found by the thread's own address; thread-local variables are for the rest, and
 * tests/check/check_load.sh sees that none is initial-exec. */
#ifndef SYMM_THREAD_H_
#define SYMM_THREAD_H_

#include <pthread.h>
#include <stdint.h>

/* Not 0, and no other thread's as long as this one lives; later it may be another's. */
static inline uintptr_t symm_thread_self(void) {
#if defined(__x86_64__)
    uintptr_t self;
    __asm__("mov %%fs:0, %0" : "=r"(self)); /* the ABI keeps the address of the block there */
    return self;
#elif defined(__aarch64__)
    uintptr_t self;
    __asm__("mrs %0, tpidr_el0" : "=r"(self));
    return self;
#else
    return (uintptr_t)pthread_self();
#endif
}

/* Its place in a table of SYMM_THREAD_SLOTS; threads may share one. */
enum { SYMM_THREAD_SLOTS = 64 };
static inline unsigned symm_thread_slot(uintptr_t self) {
    return (unsigned)((uint64_t)self * 0x9e3779b97f4a7c15u >> 58);
}

#endif
