/* choice.c - which code moves and reduces on this machine: the instruction set, and whether libc's
 * memcpy crawls. Once per process, in symm_reduce_init, on the thread that comes first. The only
 * synchronisation is pthread_once: after symm_reduce_init a thread reads symm_reduce and
 * symm_copy_apart without any.
 *
 * libc takes `rep movsb` for large spans where the processor says that it is fast. Some
 * processors that say so (AMD's Zen 3 and 4, where glibc does not know better) do 1 to 4 GB/s
 * where dst and src differ modulo a cache line, a twentieth of what vectors do. On others it is
 * a little faster than vectors. Which of the two this machine is cannot be told by its name:
 * libc, microcode and GLIBC_TUNABLES have their say. So it is measured: 50 to 70 us, once. */
#define _GNU_SOURCE
#include "reduce.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- copies ---------------------------------------------------------------------------------- */

enum {
    SPAN = 32 << 10, /* more than any threshold of libc's for `rep movsb`, and in the first cache */
    ROOM = SPAN + (8 << 10),
    TRIES = 5,  /* the best of them: a try that is interrupted says nothing */
    CRAWL = 3,  /* times as long as vectors: no noise, and no dispute about a tenth */
    FIRST = 64, /* where in its room a span begins */
};

int symm_copy_apart;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t shorter(uint64_t best, symm_copy_fn copy, char *dst, const char *src) {
    uint64_t start = now_ns();
    copy(dst, src, SPAN);
    uint64_t took = now_ns() - start;
    return took < best ? took : best;
}

/* dst a byte ahead of src modulo a page, and a byte behind it. */
int symm_copy_crawls(symm_copy_fn libc, symm_copy_fn vectors) {
    char *room = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (room == MAP_FAILED) return 0; /* slow at worst */
    int crawls = 0;
    for (int shift = -1; shift <= 1; shift += 2) {
        char *dst = room + FIRST + shift;
        const char *src = room + ROOM + FIRST;
        uint64_t theirs = UINT64_MAX, ours = UINT64_MAX;
        for (int i = 0; i < TRIES; i++) {
            ours = shorter(ours, vectors, dst, src);
            theirs = shorter(theirs, libc, dst, src);
        }
        crawls |= theirs > CRAWL * (ours + 20); /* 20: no quotient of readings of the clock */
    }
    munmap(room, 2 * ROOM);
    return crawls;
}

static void libc_copy(void *dst, const void *src, size_t bytes) {
    memcpy(dst, src, bytes);
}

void symm_copy_choose(const symm_reduce_table *table) {
    symm_copy_apart = symm_copy_crawls(libc_copy, table->copy_vectors);
}

/* ---- the instruction set --------------------------------------------------------------------- */

extern const symm_reduce_table symm_reduce_base;
#if defined(__x86_64__)
extern const symm_reduce_table symm_reduce_avx2, symm_reduce_avx512;
#endif

const symm_reduce_table *symm_reduce;

static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
/* Compilers disagree whether __builtin_cpu_supports knows f16c; that the system saves its registers
 * follows from avx2. */
static int has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx2(void) {
    return __builtin_cpu_supports("avx2") && has_f16c();
}

static int has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

const symm_reduce_table *symm_reduce_isa(const char *isa) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (strcmp(isa, "avx512") == 0) return has_avx512() ? &symm_reduce_avx512 : NULL;
    if (strcmp(isa, "avx2") == 0) return has_avx2() ? &symm_reduce_avx2 : NULL;
#endif
    return strcmp(isa, "base") == 0 ? &symm_reduce_base : NULL;
}

static void pick(void) {
    static const char *const best_first[] = {"avx512", "avx2", "base"};
    for (size_t i = 0; symm_reduce == NULL; i++) symm_reduce = symm_reduce_isa(best_first[i]);
    symm_copy_choose(symm_reduce);
}

void symm_reduce_init(void) {
    pthread_once(&once, pick);
}
