/* emu_onesided.h - one-sided calls for the GPU kernel on fibers (emu.h): ranks with memory, calls
 * that are launched one after the other, and what memory must hold afterwards. T_SEED: the first
 * case; T_CASES: how many. One thread. */
#ifndef EMU_ONESIDED_H_
#define EMU_ONESIDED_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"
#include "t.h"

enum { EO_RANKS = 5, EO_CALLS = 160, EO_MEMORY = 1 << 20 };
#define EO_STRIDE ((uint64_t)SYMM_CTL_BYTES + EO_MEMORY)

static struct {
    int n, calls[EO_RANKS], most;
    uint64_t random;
    unsigned char *flat, *model;
    symm_ctl *host;
    symm_gpu_onesided_args *args; /* [EO_RANKS][EO_CALLS] */
    emu_launch *launch;           /* the same; then in rows of `most` */
} o;

static inline uint32_t eo_draw(uint32_t n) {
    o.random ^= o.random << 13, o.random ^= o.random >> 7, o.random ^= o.random << 17;
    return (uint32_t)((o.random >> 32) * n >> 32);
}
static inline symm_gpu_ctl *eo_ctl(int rank) {
    return (symm_gpu_ctl *)(o.flat + (uint64_t)rank * EO_STRIDE);
}
static inline unsigned char *eo_memory(int rank) {
    return o.flat + (uint64_t)rank * EO_STRIDE + SYMM_CTL_BYTES;
}
static inline unsigned char *eo_modelled(int rank) {
    return o.model + (size_t)rank * EO_MEMORY;
}
/* How often `from` has raised a signal at `at`, as memory has it. */
static inline uint64_t eo_raised(int at, int from, int signal) {
    return eo_ctl(at)->signals[from].raised[signal];
}

static inline void eo_begin(uint64_t seed, int n) {
    o.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) eo_draw(2);
    o.n = n;
    o.flat = calloc((size_t)n, EO_STRIDE);
    o.model = calloc((size_t)n, EO_MEMORY);
    o.host = calloc((size_t)n, sizeof *o.host);
    o.args = calloc(EO_RANKS * EO_CALLS, sizeof *o.args);
    o.launch = calloc(EO_RANKS * EO_CALLS, sizeof *o.launch);
    T_CHECK(n <= EO_RANKS && o.flat && o.model && o.host && o.args && o.launch);
    emu_forget();
    emu_memory(o.flat, (size_t)n * EO_STRIDE);
    emu_memory(o.host, (size_t)n * sizeof *o.host);
    memset(o.calls, 0, sizeof o.calls);
    for (int r = 0; r < n; r++) {
        for (unsigned i = 0; i < EO_MEMORY / 8; i++) {
            const uint64_t v = ((uint64_t)r << 56 | i) * 0x9e3779b97f4a7c15ull;
            memcpy(eo_memory(r) + 8 * i, &v, 8);
        }
        memcpy(eo_modelled(r), eo_memory(r), EO_MEMORY);
    }
}
static inline void eo_end(void) {
    free(o.flat), free(o.model), free(o.host), free(o.args), free(o.launch);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* The arguments of the rank's next call. */
static inline symm_gpu_onesided_args *eo_next(int rank) {
    T_CHECK(o.calls[rank] < EO_CALLS);
    symm_gpu_onesided_args *a = &o.args[rank * EO_CALLS + o.calls[rank]];
    *a = (symm_gpu_onesided_args){
        .a = {.base = (uint64_t)(uintptr_t)o.flat,
              .stride = EO_STRIDE,
              .rank = rank,
              .nranks = o.n,
              .gpu = {.host_base = (uint64_t)(uintptr_t)o.host, .host_stride = sizeof *o.host}}};
    return a;
}
static inline void eo_op(symm_gpu_onesided_args *a, int kind, int peer, int signal,
                         uint64_t count) {
    a->op[a->ops++] = (symm_gpu_onesided_op){
        .count = count, .kind = (uint8_t)kind, .peer = (uint8_t)peer, .signal = (uint8_t)signal};
}
/* from, to: places in the memory of two ranks. */
static inline void eo_copy(symm_gpu_onesided_args *a, int to_rank, uint64_t to, int from_rank,
                           uint64_t from, uint64_t bytes) {
    T_CHECK(to + bytes <= EO_MEMORY && from + bytes <= EO_MEMORY);
    a->to = (uintptr_t)(eo_memory(to_rank) + to);
    a->from = (uintptr_t)(eo_memory(from_rank) + from);
    a->bytes = bytes;
}
static inline emu_launch *eo_launch(int rank, const char *name, unsigned ctas, unsigned threads) {
    const int i = rank * EO_CALLS + o.calls[rank]++;
    o.launch[i] = (emu_launch){.kernel = emu_find(name),
                               .args = {.src = &o.args[i], .rank = rank, .nranks = o.n},
                               .ctas = ctas,
                               .threads = threads};
    T_CHECKF(o.launch[i].kernel != NULL, "%s is not compiled in", name);
    return &o.launch[i];
}
/* In a drawn grid; sometimes the next kernel begins before its stores are seen. */
static inline void eo_go(int rank, unsigned most_ctas, unsigned most_warps) {
    const unsigned ctas = 1 + eo_draw(most_ctas);
    emu_launch *l = eo_launch(rank, "emu_onesided", ctas, 32 * (1 + eo_draw(most_warps)));
    l->early = ctas == 1 && eo_draw(2);
}

/* All ranks have as many launches. */
static inline void eo_even_out(void) {
    o.most = 1;
    for (int r = 0; r < o.n; r++)
        if (o.calls[r] > o.most) o.most = o.calls[r];
    for (int r = 0; r < o.n; r++)
        while (o.calls[r] < o.most) {
            eo_next(r);
            eo_launch(r, "emu_onesided", 1, 32);
        }
    for (int r = 0; r < o.n; r++)
        memmove(o.launch + r * o.most, o.launch + r * EO_CALLS, (size_t)o.most * sizeof *o.launch);
}

static inline void eo_run(uint64_t seed) {
    char why[256] = "";
    const int r = emu_run(o.launch, o.n, o.most, seed, why, sizeof why);
    T_CHECKF(!r, "seed %llu: %s", (unsigned long long)seed, why);
}
/* Nobody has left early, and nobody waits. */
static inline void eo_quiet(uint64_t seed) {
    for (int p = 0; p < o.n; p++)
        T_CHECKF(!o.host[p].abort && !o.host[p].p2p.waits, "seed %llu: rank %d heard %llx",
                 (unsigned long long)seed, p, (unsigned long long)o.host[p].abort);
}
static inline void eo_as_modelled(uint64_t seed) {
    for (int r = 0; r < o.n; r++)
        for (unsigned i = 0; i < EO_MEMORY; i++)
            if (eo_memory(r)[i] != eo_modelled(r)[i]) {
                T_CHECKF(0, "seed %llu: rank %d, byte %u: %02x, not %02x", (unsigned long long)seed,
                         r, i, eo_memory(r)[i], eo_modelled(r)[i]);
                return;
            }
}

static inline int eo_cases(int usual) {
    const char *n = getenv("T_CASES"), *full = getenv("T_FULL");
    return n ? atoi(n) : full && atoi(full) > 0 ? 3 * usual : usual;
}
static inline uint64_t eo_first(void) {
    const char *s = getenv("T_SEED");
    return s ? strtoull(s, NULL, 0) : 1;
}

#endif
