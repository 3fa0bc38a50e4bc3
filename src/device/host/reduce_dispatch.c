/* reduce_dispatch.c - picks the instruction set of the reductions, once per process. Any thread.
 * The only synchronisation is pthread_once: after symm_reduce_init a thread reads the table without
 * any. */
#include "reduce.h"

#include <pthread.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

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
