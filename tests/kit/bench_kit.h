/* bench_kit.h - what the benchmarks of memory share: a clock that costs little and is subtracted,
 * percentiles, rows of JSON, lines of progress. One thread measures; the clock may be read by
 * any. */
#ifndef BENCH_KIT_H_
#define BENCH_KIT_H_

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

static inline void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "benchmark: %s failed\n", what);
    exit(1);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static double bk_ns_per_tick = 1;
static uint64_t bk_clock_cost;

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
    bk_ns_per_tick = (double)(b - a) / (double)(ticks() - t);
    bk_clock_cost = UINT64_MAX;
    for (int i = 0; i < 100000; i++) {
        uint64_t x = ticks(), y = ticks();
        if (y - x < bk_clock_cost) bk_clock_cost = y - x;
    }
    printf("clock: %.1f ns for two readings, subtracted\n", (double)bk_clock_cost * bk_ns_per_tick);
}

static inline double in_ns(uint32_t t) {
    return t > bk_clock_cost ? (double)(t - bk_clock_cost) * bk_ns_per_tick : 0;
}
static inline void keep_least(double *least, double v) {
    if (v < *least) *least = v;
}

/* ---- percentiles ----------------------------------------------------------------------------- */

static inline int bk_by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

typedef struct {
    double mean, p50, p99, p999;
} percentiles;

/* Of n readings in ticks, which are sorted by this. */
static inline percentiles percentiles_of(uint32_t *times, size_t n) {
    double sum = 0;
    qsort(times, n, sizeof *times, bk_by_value);
    for (size_t i = 0; i < n; i++) sum += in_ns(times[i]);
    return (percentiles){sum / (double)n, in_ns(times[n / 2]), in_ns(times[n - 1 - n / 100]),
                         in_ns(times[n - 1 - n / 1000])};
}
static inline void keep_least_of(percentiles *least, percentiles v) {
    keep_least(&least->mean, v.mean);
    keep_least(&least->p50, v.p50);
    keep_least(&least->p99, v.p99);
    keep_least(&least->p999, v.p999);
}
static const percentiles bk_none = {1e30, 1e30, 1e30, 1e30};

/* ---- output ---------------------------------------------------------------------------------- */

static FILE *bk_json;
static int bk_rows;

static inline void json_open(const char *path) {
    must((bk_json = fopen(path, "w")) != NULL, "opening the JSON file");
    fprintf(bk_json, "[");
}
static inline void row(const char *what, const char *who, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline void row(const char *what, const char *who, const char *fmt, ...) {
    va_list ap;
    if (!bk_json) return;
    fprintf(bk_json, "%s\n  {\"trace\": \"%s\", \"allocator\": \"%s\", ", bk_rows++ ? "," : "",
            what, who);
    va_start(ap, fmt);
    vfprintf(bk_json, fmt, ap);
    va_end(ap);
    fprintf(bk_json, "}");
}
/* The exit status of a program that ends with it. */
static inline int json_close(void) {
    if (!bk_json) return 0;
    fprintf(bk_json, "\n]\n");
    return fclose(bk_json) ? 1 : 0;
}

/* For people who wait at a terminal; a file does not get it. */
static inline void progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void progress(const char *fmt, ...) {
    va_list ap;
    if (!isatty(2)) return;
    fprintf(stderr, "\r\033[K");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fflush(stderr);
}
static inline void progress_end(void) {
    if (isatty(2)) fprintf(stderr, "\r\033[K");
}

#endif
