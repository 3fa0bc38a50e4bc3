/* bench_clock.h - clocks for benchmarks: what a call took, and what a thread had of the cores. ns_per_tick and clock_cost once calibrate() has
 * run, before other threads begin. */
#ifndef BENCH_CLOCK_H_
#define BENCH_CLOCK_H_

#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static double ns_per_tick = 1;
static uint64_t clock_cost;

static inline uint64_t read_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t now_ns(void) {
    return read_ns(CLOCK_MONOTONIC);
}

static inline uint64_t ticks(void) {
#if defined(__x86_64__)
    unsigned cpu;
    return __rdtscp(&cpu);
#else
    return now_ns();
#endif
}

static inline void calibrate(void) {
    uint64_t a = now_ns(), t = ticks();
    while (now_ns() - a < 50000000) {
    }
    uint64_t b = now_ns();
    ns_per_tick = (double)(b - a) / (double)(ticks() - t);
    clock_cost = UINT64_MAX;
    for (int i = 0; i < 100000; i++) {
        uint64_t x = ticks(), y = ticks();
        if (y - x < clock_cost) clock_cost = y - x;
    }
}

#endif
