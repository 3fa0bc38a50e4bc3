/* device_api_kit.h - kernels that use the device API (symm_device.cuh) on fibers, for the tests of
 * it: a domain's memory and words, calls of every rank, what came of them. One thread; the state is
 * the test's. */
#ifndef DEVICE_API_KIT_H_
#define DEVICE_API_KIT_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/life/dev_comm.h"
#include "emu_dev.h"
#include "t.h"

enum { RANKS = 8, CALLS = 6, WINDOW = 64 << 10, SIGNALS = 48, GROUPS = 8 };

static struct {
    int n, calls;
    uint64_t random, stride, at; /* at: of the window in a rank's part */
    unsigned char *flat;
    symm_ctl *host;
    uint32_t *over;
    uint64_t out[RANKS][CALLS][OUT_WORDS];
    symmDevComm_t dc[RANKS];
    emu_dev_args args[RANKS][CALLS];
    emu_launch launch[RANKS * CALLS];
} k;

static inline uint32_t draw(uint32_t n) {
    return (uint32_t)t_draw(&k.random, n);
}
static inline int cases(int n) {
    const char *text = getenv("T_CASES");
    return text ? atoi(text) : n;
}
static inline uint64_t first_seed(void) {
    const char *text = getenv("T_SEED");
    return text ? strtoull(text, NULL, 10) : 1;
}
static inline unsigned char *window(int rank) {
    return k.flat + (uint64_t)rank * k.stride + k.at;
}

/* ---- a domain -------------------------------------------------------------------------------- */

/* Epochs as after many kernels, now and then just before 32 bits are full. */
static inline void set_epochs(int rank) {
    const uint64_t drawn = k.random >> 33,
                   last = drawn % 4 ? drawn % 1000 : 0xfffffffdu + drawn / 4 % 3;
    for (int g = 0; g < GROUPS; g++) {
        uint64_t *epoch = (uint64_t *)(void *)(k.flat + (uint64_t)rank * k.stride) +
                          (unsigned)g * SYMM_DEV_EPOCH_BYTES / 8;
        uint64_t *arrived =
            (uint64_t *)(void *)(k.flat + (uint64_t)rank * k.stride + k.dc[rank].arrivedAt) +
            (unsigned)(g * k.n);
        epoch[0] = last, epoch[1] = (uint32_t)last;
        for (int p = 0; p < k.n; p++) arrived[p] = last;
    }
}

static inline void begin(uint64_t seed, int n) {
    const symmDevRequirements_t need = {
        .barriers = GROUPS, .signals = SIGNALS, .llBytes = 4096, .lineBytes = 2000};
    symmDevComm_t d = {.nranks = n};
    memset(&k, 0, sizeof k);
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    k.n = n;
    k.at = (symm_dev_comm_lay_out(&need, &d) + 4095) / 4096 * 4096;
    k.stride = k.at + WINDOW;
    k.flat = calloc((size_t)n, k.stride);
    k.host = calloc((size_t)n, sizeof *k.host);
    k.over = calloc((size_t)n, sizeof *k.over);
    T_CHECK(k.flat && k.host && k.over);
    emu_forget();
    emu_memory(k.flat, (size_t)n * k.stride);
    emu_memory(k.host, (size_t)n * sizeof *k.host);
    emu_memory(k.over, (size_t)n * sizeof *k.over);
    emu_memory(k.out, sizeof k.out);
    for (int r = 0; r < n; r++) {
        d.rank = r;
        d.base = (uint64_t)(uintptr_t)k.flat, d.stride = k.stride;
        d.hostBase = (uint64_t)(uintptr_t)k.host, d.hostStride = sizeof *k.host;
        d.abortAt = offsetof(symm_ctl, abort), d.leftAt = offsetof(symm_ctl, left);
        d.deathAt = offsetof(symm_ctl, death), d.stateAt = offsetof(symm_ctl, state);
        d.overBase = (uint64_t)(uintptr_t)k.over, d.overStride = sizeof *k.over;
        k.dc[r] = d;
        k.host[r].state = SYMM_STATE_ALIVE;
    }
    const uint64_t random = k.random;
    for (int r = 0; r < n; r++) k.random = random, set_epochs(r); /* the same on all ranks */
}
static inline void end(void) {
    free(k.flat), free(k.host), free(k.over);
}

typedef struct {
    const char *kernel;
    int debug, ctas, threads;
    emu_dev_args what;
} call;

/* One more kernel of every rank. */
static inline void add(call c) {
    const emu_kernel kernel = c.debug ? emu_device_debug_find(c.kernel) : emu_device_find(c.kernel);
    T_CHECKF(kernel, "%s is not compiled in", c.kernel);
    T_CHECK(k.calls < CALLS);
    for (int r = 0; r < k.n; r++) {
        emu_dev_args *a = &k.args[r][k.calls];
        *a = c.what;
        a->dc = k.dc[r];
        a->win = (symmDevWindow_t){.base = (uint64_t)(uintptr_t)window(0),
                                   .stride = k.stride,
                                   .own = (uint64_t)(uintptr_t)window(r),
                                   .bytes = WINDOW};
        a->out = k.out[r][k.calls];
        k.launch[r * CALLS + k.calls] = (emu_launch){.kernel = kernel,
                                                     .args = {.src = a},
                                                     .ctas = (unsigned)c.ctas,
                                                     .threads = (unsigned)c.threads};
    }
    k.calls++;
}

static inline void run(uint64_t seed, const char *name) {
    static emu_launch rows[RANKS * CALLS];
    char why[256] = "";
    for (int r = 0; r < k.n; r++)
        for (int c = 0; c < k.calls; c++) rows[r * k.calls + c] = k.launch[r * CALLS + c];
    const int bad = emu_run(rows, k.n, k.calls, seed, why, sizeof why);
    T_CHECKF(!bad, "T_SEED=%llu: %s: %s", (unsigned long long)seed, name, why);
}

static inline uint64_t sum_of_rank(int rank, int word) {
    uint64_t sum = 0;
    for (int c = 0; c < k.calls; c++) sum += k.out[rank][c][word];
    return sum;
}
static inline uint64_t sum_of(int word) {
    uint64_t sum = 0;
    for (int r = 0; r < k.n; r++) sum += sum_of_rank(r, word);
    return sum;
}
static inline void all_is_well(uint64_t seed, const char *name) {
    T_CHECKF(!sum_of(OUT_WRONG), "T_SEED=%llu: %s: wrong data, %d ranks", (unsigned long long)seed,
             name, k.n);
    T_CHECKF(!sum_of(OUT_GAVE_UP), "T_SEED=%llu: %s: gave up", (unsigned long long)seed, name);
    T_CHECKF(sum_of(OUT_DONE) == (uint64_t)(k.n * k.calls), "T_SEED=%llu: %s: not done",
             (unsigned long long)seed, name);
    for (int r = 0; r < k.n; r++) T_CHECK(!k.host[r].abort && !k.over[r]);
}

static inline int ranks_of(int i) {
    static const int ranks[] = {2, 2, 3, 1, 4, 8};
    return ranks[(unsigned)i % (sizeof ranks / sizeof *ranks)];
}

#endif
