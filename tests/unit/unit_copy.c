/* unit_copy.c - the copies of the host build: every size, alignment and way, and what they do on
 * a machine whose libc crawls. This program has a memcpy of its own, which is such a machine
 * when `crawling` is set. One thread, no lock. */
#include "t.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "device/host/reduce.h"

/* Under a checker libc's memcpy is the checker's, and copies take it alone. */
#if !T_ASAN && !T_TSAN && defined(__x86_64__)
#define OWN_MEMCPY 1
#else
#define OWN_MEMCPY 0
#endif

enum { MOST = 300001, PAD = 192, NUM_ISAS = 3, LARGE = 4096 };
static const char *const isas[NUM_ISAS] = {"base", "avx2", "avx512"};

/* ---- libc's ---- */

static int crawling;
static long calls_apart; /* of LARGE bytes and more, whose dst and src differ modulo a line */

#if OWN_MEMCPY
/* All memcpy of the objects that are linked into this program. */
void *memcpy(void *restrict dst, const void *restrict src, size_t bytes) {
    void *to = dst;
    const int apart = ((uintptr_t)dst - (uintptr_t)src) % 64 != 0 && bytes >= LARGE;
    calls_apart += apart;
    if (apart && crawling) { /* byte by byte: volatile, so that no compiler knows better */
        volatile char *d = dst;
        const volatile char *s = src;
        for (size_t i = 0; i < bytes; i++) d[i] = s[i];
    } else {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(src), "+c"(bytes)::"memory");
    }
    return dst;
}
#endif

/* ---- every size and alignment ---- */

typedef struct {
    char *from, *to, *was; /* from's bytes */
} room;

static char *memory(size_t bytes) {
    char *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    T_CHECK(p != NULL);
    return p;
}

static room room_open(void) {
    room r = {memory(MOST + 4 * PAD), memory(MOST + 4 * PAD), memory(MOST + 4 * PAD)};
    for (size_t i = 0; i < MOST + 4 * PAD; i++) r.was[i] = (char)(i * 2654435761u >> 13);
    memmove(r.from, r.was, MOST + 4 * PAD);
    return r;
}

static void room_close(room *r) {
    free(r->from), free(r->to), free(r->was);
}

static void check_copy(const room *r, symm_copy_fn fn, const char *what, size_t to, size_t from,
                       size_t bytes) {
    char *dst = r->to + PAD + to;
    memset(dst - 64, 0xa5, bytes + 128);
    fn(dst, r->from + PAD + from, bytes);
    T_CHECKF(memcmp(dst, r->was + PAD + from, bytes) == 0, "%s: %zu bytes at +%zu from +%zu", what,
             bytes, to, from);
    for (int i = 1; i <= 64; i++)
        T_CHECKF((unsigned char)dst[-i] == 0xa5 &&
                     (unsigned char)dst[bytes + (size_t)i - 1] == 0xa5,
                 "%s: %zu bytes at +%zu from +%zu: written outside", what, bytes, to, from);
}

static void check_isa(const room *r, const symm_reduce_table *t) {
    static const size_t large[] = {2048, 4095, 4096, 4097, 65536, 65537, MOST};
    const symm_copy_fn fns[] = {t->copy, t->copy_nt, t->copy_vectors};
    for (int f = 0; f < 3; f++) {
        for (size_t bytes = 0; bytes <= 1100; bytes++)
            check_copy(r, fns[f], t->isa, bytes * 7 % 65, bytes * 11 % 65, bytes);
        for (size_t bytes = 255; bytes <= 260; bytes++) /* a step of the widest, and its ends */
            for (size_t at = 0; at < 65 * 65; at++)
                check_copy(r, fns[f], t->isa, at / 65, at % 65, bytes);
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            for (size_t off = 0; off < 65; off += 8 - off % 2 * 6)
                check_copy(r, fns[f], t->isa, off, i % 2 ? 0 : off * 5 % 64, large[i]),
                    check_copy(r, fns[f], t->isa, 0, off, large[i]);
    }
    T_CHECK(memcmp(r->from, r->was, MOST + 4 * PAD) == 0);
}

static void both_ways_copy(void) {
    room r = room_open();
    symm_reduce_init();
    for (int k = 0; k < NUM_ISAS; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        if (!t) continue;
        for (symm_copy_apart = 0; symm_copy_apart <= 1; symm_copy_apart++) check_isa(&r, t);
    }
    room_close(&r);
}

/* ---- which way ---- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of `bytes` at dst + to: the best of 20. */
static double time_of(const room *r, size_t to, size_t bytes) {
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        double start = now();
        symm_reduce->copy(r->to + 4096 + to, r->from + 4096, bytes);
        double took = now() - start;
        if (took < best) best = took;
    }
    return best;
}

/* A machine may be slow for as long as 20 copies take; a cliff is there every time. */
static int is_cliff(const room *r, size_t to, size_t bytes, double *shifted, double *straight) {
    for (int i = 0; i < 5; i++) {
        if (i) usleep(2000);
        *straight = time_of(r, 0, bytes);
        *shifted = time_of(r, to, bytes);
        if (*shifted < 6 * *straight + 1e-6) return 0;
    }
    return 1;
}

/* However libc's memcpy is: no shift makes a copy many times slower. */
static void check_no_cliff(void) {
    static const size_t shifts[] = {1, 2, 4, 8, 16, 32, 63, 64, 65, 4095};
    room r = room_open();
    double shifted, straight;
    for (size_t bytes = 16384; bytes <= 262144; bytes *= 4)
        for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++)
            T_CHECKF(!is_cliff(&r, shifts[i], bytes, &shifted, &straight),
                     "%zu bytes at +%zu: %.2f us, at +0 %.2f us", bytes, shifts[i], 1e6 * shifted,
                     1e6 * straight);
    room_close(&r);
}

static void no_shift_is_a_cliff(void) {
    /* The library compares libc with vectors, and these are instrumented there, libc is not. */
    if (T_ASAN) T_SKIP("copies are not timed where vectors are instrumented");
    symm_reduce_init();
    check_no_cliff();
}

static void a_libc_that_crawls_is_found_out(void) {
    if (!OWN_MEMCPY) T_SKIP("needs a memcpy of this program's own");
    crawling = 1;
    symm_reduce_init();
    T_EQ(symm_copy_apart, 1);
    calls_apart = 0;
    check_no_cliff();
    T_EQ(calls_apart, 0);
}

/* Where it does not crawl it is taken, for what it can do better. */
static void a_libc_that_runs_is_taken(void) {
    if (!OWN_MEMCPY) T_SKIP("needs a memcpy of this program's own");
    room r = room_open();
    symm_reduce_init();
    symm_copy_apart = 0;
    calls_apart = 0;
    symm_reduce->copy(r.to + 1, r.from, 65536);
    T_EQ(calls_apart, 1);
    room_close(&r);
}

/* The vectors never come back to libc, by whatever a compiler makes of their loop. */
static void vectors_are_vectors(void) {
    if (!OWN_MEMCPY) T_SKIP("needs a memcpy of this program's own");
    room r = room_open();
    for (int k = 0; k < NUM_ISAS; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        if (!t) continue;
        calls_apart = 0;
        t->copy_vectors(r.to + 1, r.from, 65536);
        T_EQ(calls_apart, 0);
    }
    room_close(&r);
}

static void slow_copy(void *dst, const void *src, size_t bytes) {
    volatile char *d = dst;
    const volatile char *s = src;
    for (size_t i = 0; i < bytes; i++) d[i] = s[i];
}

/* Slow only where dst is a byte behind src, or a byte ahead. */
static void slow_behind(void *dst, const void *src, size_t bytes) {
    if (((uintptr_t)dst - (uintptr_t)src) % 4096 > 2048)
        slow_copy(dst, src, bytes);
    else
        symm_reduce->copy_vectors(dst, src, bytes);
}

static void slow_ahead(void *dst, const void *src, size_t bytes) {
    if (((uintptr_t)dst - (uintptr_t)src) % 4096 < 2048)
        slow_copy(dst, src, bytes);
    else
        symm_reduce->copy_vectors(dst, src, bytes);
}

static void crawling_is_told_from_running(void) {
    if (T_ASAN || T_TSAN) T_SKIP("a checker's copies are all slow");
    symm_reduce_init();
    const symm_copy_fn ours = symm_reduce->copy_vectors;
    T_EQ(symm_copy_crawls(slow_copy, ours), 1);
    T_EQ(symm_copy_crawls(slow_behind, ours), 1);
    T_EQ(symm_copy_crawls(slow_ahead, ours), 1);
    T_EQ(symm_copy_crawls(ours, ours), 0);
    T_EQ(symm_copy_crawls(ours, slow_copy), 0);
}

T_MAIN(T(both_ways_copy), T(no_shift_is_a_cliff), T(a_libc_that_crawls_is_found_out),
       T(a_libc_that_runs_is_taken), T(vectors_are_vectors), T(crawling_is_told_from_running))
