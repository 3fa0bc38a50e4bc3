/* reduce.h - element types, reductions and copies of the host build of the kernels. Pure, any
 * thread, no state but the dispatch table, which is filled once by symm_reduce_init (idempotent,
 * any thread).
 *
 * reduce_span.inl holds the arithmetic once; reduce_host.c is compiled once per instruction set
 * (SYMM_ISA = base, avx2, avx512) and the best one that the CPU has is picked at run time. All
 * three give the same bits: those of docs/numerics.md. */
#ifndef SYMM_REDUCE_H_
#define SYMM_REDUCE_H_

#include <stddef.h>
#include <stdint.h>

enum {
    SYMM_OP_SUM = 0,
    SYMM_OP_PROD = 1,
    SYMM_OP_MAX = 2,
    SYMM_OP_MIN = 3,
    SYMM_OP_AVG = 4,
    SYMM_OP_PREMUL = 5,
    SYMM_OP_COUNT = 6
};

/* dst[i] = op over r = 0..n-1, in that order, of src[r][i], for i < count.
 * pre: n >= 1; src[r] and dst are aligned to nothing in particular; dst equals some src[r] exactly
 * or overlaps none. scalars: SYMM_OP_PREMUL only: n values of the element type, each in the low
 * bytes of a uint64_t; else ignored. */
typedef void (*symm_reduce_fn)(void *dst, const void *const *src, int n, size_t count,
                               const uint64_t *scalars);

/* The same into two destinations, neither of which is a source. */
typedef void (*symm_reduce2_fn)(void *dst, void *twin, const void *const *src, int n, size_t count,
                                const uint64_t *scalars);

/* p[i] divided by n, as the average of n ranks divides their sum, for i < count. */
typedef void (*symm_divide_fn)(void *p, size_t count, int n);

/* bytes of memory, any alignment, no overlap. copy_nt writes past the caches and ends with the
 * store fence that orders it before later stores. */
typedef void (*symm_copy_fn)(void *dst, const void *src, size_t bytes);

typedef struct {
    const char *isa; /* "base", "avx2", "avx512" */
    symm_reduce_fn reduce[12][SYMM_OP_COUNT];
    /* The same with stores past the caches where that is possible (falls back inside); ends with
     * the store fence. */
    symm_reduce_fn reduce_nt[12][SYMM_OP_COUNT];
    symm_reduce2_fn reduce_nt2[12][SYMM_OP_COUNT];
    symm_divide_fn divide[12];
    symm_copy_fn copy, copy_nt;
    symm_copy_fn copy_vectors; /* what copy does where libc's memcpy crawls; for measuring */
} symm_reduce_table;

/* Whether the processor has stores past the caches that we use. Where it has not, what is called
 * _nt makes ordinary ones, with more ado: it is not to be asked for. */
#if defined(__x86_64__)
enum { SYMM_PAST_CACHES = 1 };
#else
enum { SYMM_PAST_CACHES = 0 };
#endif

extern const symm_reduce_table *symm_reduce; /* NULL before init */
void symm_reduce_init(void);
/* For tests: the table of one instruction set, NULL if this CPU or build has not got it. */
const symm_reduce_table *symm_reduce_isa(const char *isa);

/* Whether copy leaves spans to vectors whose dst and src differ modulo 64. Written by
 * symm_copy_choose, in symm_reduce_init, before any copy. */
extern int symm_copy_apart;
void symm_copy_choose(const symm_reduce_table *table);
/* Whether the first takes three times as long as the second for such spans, or longer. */
int symm_copy_crawls(symm_copy_fn libc, symm_copy_fn vectors);

/* Bytes per element of a symmDataType_t value, 0 if out of range. */
static inline size_t symm_type_size(unsigned type) {
    static const uint8_t size[12] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type < 12 ? size[type] : 0;
}

#endif
