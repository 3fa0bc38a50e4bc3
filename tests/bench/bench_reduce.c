/* bench_reduce.c - not a test: how fast the reductions and copies of the host build are, per
 * instruction set and size. One thread, no lock. Each figure is the best of several rounds; GB/s
 * count the bytes of one buffer, so that reducing n sources moves n + 1 times as much.
 *
 *   bench_reduce            the main table, the latency of small counts, and copies by shift
 *   bench_reduce shifts     copies whose dst is some bytes ahead of src modulo a page, alone
 *   bench_reduce types      every type and reduction at one size that fits the second-level cache
 *   bench_reduce ranks      float32 sum by number of ranks */
#define _GNU_SOURCE
#include "device/host/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { FLOAT32 = 7, BFLOAT16 = 9, MOST_RANKS = 72 };
static const size_t LARGEST = (size_t)64 << 20;
static const char *const isas[] = {"base", "avx2", "avx512"};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    symm_reduce_fn reduce; /* or */
    symm_copy_fn copy;
    int n, type;
    size_t bytes;
    void *dst;
    const void *src[MOST_RANKS];
    uint64_t scalars[MOST_RANKS];
} job;

static void run_once(const job *j) {
    if (j->copy)
        j->copy(j->dst, j->src[0], j->bytes);
    else
        j->reduce(j->dst, j->src, j->n, j->bytes / symm_type_size((unsigned)j->type), j->scalars);
}

/* Seconds per call: the best of 7 rounds, each about 10 ms long. */
static double time_job(const job *j) {
    long calls = 1;
    double best = 1e9;
    for (int round = 0; round < 7;) {
        double start = now();
        for (long i = 0; i < calls; i++) run_once(j);
        double took = now() - start;
        if (took < 5e-3) {
            calls *= took < 5e-4 ? 10 : 2;
            continue;
        }
        if (took / (double)calls < best) best = took / (double)calls;
        round++;
    }
    return best;
}

static char *buffer(size_t bytes) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0x3c, bytes);
    return p;
}

static void bare_memcpy(void *dst, const void *src, size_t bytes) {
    memcpy(dst, src, bytes);
}

static void bare_rep_movsb(void *dst, const void *src, size_t bytes) {
#if defined(__x86_64__)
    __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes)::"memory");
#else
    memcpy(dst, src, bytes);
#endif
}

/* The copies that the table's own are measured against. */
static void print_bare(job j) {
    static const struct {
        const char *name;
        symm_copy_fn fn;
    } bare[] = {{"memcpy", bare_memcpy}, {"rep movsb", bare_rep_movsb}};
    for (int b = 0; b < 2; b++) {
        printf("%-8s %-13s", "", bare[b].name);
        j.copy = bare[b].fn;
        for (j.bytes = 4096; j.bytes <= LARGEST; j.bytes *= 4)
            printf(" %8.1f", (double)j.bytes / time_job(&j) * 1e-9);
        printf("\n");
    }
}

static void print_row(const char *isa, const char *what, job j) {
    printf("%-8s %-13s", isa, what);
    for (j.bytes = 4096; j.bytes <= LARGEST; j.bytes *= 4)
        printf(" %8.1f", (double)j.bytes / time_job(&j) * 1e-9);
    printf("\n");
    fflush(stdout);
}

static void main_table(job j) {
    printf("%-22s", "GB/s of one buffer");
    for (size_t bytes = 4096; bytes <= LARGEST; bytes *= 4) printf(" %6zu K", bytes >> 10);
    printf("\n");
    print_bare(j);
    for (int k = 0; k < 3; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        if (!t) continue;
        j.n = 2;
        j.type = FLOAT32, j.reduce = t->reduce[FLOAT32][SYMM_OP_SUM];
        print_row(t->isa, "f32 sum", j);
        j.reduce = t->reduce_nt[FLOAT32][SYMM_OP_SUM];
        print_row(t->isa, "f32 sum nt", j);
        j.type = BFLOAT16, j.reduce = t->reduce[BFLOAT16][SYMM_OP_SUM];
        print_row(t->isa, "bf16 sum", j);
        j.copy = t->copy;
        print_row(t->isa, "copy", j);
        j.copy = t->copy_nt;
        print_row(t->isa, "copy nt", j);
        j.copy = NULL;
    }
}

static void small_table(job j) {
    static const size_t counts[] = {1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 64, 128, 256};
    enum { N = sizeof(counts) / sizeof(*counts) };
    printf("\n%-22s", "ns per call");
    for (int c = 0; c < N; c++) printf(" %6zu", counts[c]);
    printf("\n");
    for (int k = 0; k < 3; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        if (!t) continue;
        for (int what = 0; what < 3; what++) {
            static const char *const names[] = {"f32 sum", "bf16 sum", "copy (bytes)"};
            printf("%-8s %-13s", t->isa, names[what]);
            j.type = what == 1 ? BFLOAT16 : FLOAT32, j.n = 2;
            j.reduce = t->reduce[j.type][SYMM_OP_SUM];
            j.copy = what == 2 ? t->copy : NULL;
            for (int c = 0; c < N; c++) {
                j.bytes = counts[c] * (what == 2 ? 1 : symm_type_size((unsigned)j.type));
                printf(" %6.1f", 1e9 * time_job(&j));
            }
            printf("\n");
        }
    }
}

/* dst is so many bytes ahead of src modulo a page. "copy" is what symm_reduce_init chose. */
static void shifts_table(job j) {
    static const int shifts[] = {0, 1, 8, 16, 32, 64, 2048, -1, -8};
    enum { N = sizeof(shifts) / sizeof(*shifts) };
    symm_reduce_init();
    char *dst = (char *)j.dst + 4096;
    printf("\n%-22s", "GB/s by dst's shift");
    for (int i = 0; i < N; i++) printf(" %6d", shifts[i]);
    printf("   (vectors are taken where lines differ: %s)\n", symm_copy_apart ? "yes" : "no");
    for (j.bytes = 4096; j.bytes <= (4u << 20); j.bytes *= 4) {
        const symm_copy_fn fns[] = {bare_memcpy, symm_reduce->copy_vectors, symm_reduce->copy};
        for (int f = 0; f < 3; f++) {
            static const char *const names[] = {"memcpy", "vectors", "copy"};
            printf("%-8s %8zu K   ", names[f], j.bytes >> 10);
            j.copy = fns[f];
            for (int i = 0; i < N; i++) {
                j.dst = dst + shifts[i];
                printf(" %6.1f", (double)j.bytes / time_job(&j) * 1e-9);
            }
            printf("\n");
        }
    }
}

static void types_table(job j) {
    static const char *const types[] = {"int8", "uint8", "int32", "uint32", "int64", "uint64",
                                        "f16",  "f32",   "f64",   "bf16",   "e4m3",  "e5m2"};
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg", "premul"};
    j.bytes = 65536;
    for (int k = 0; k < 3; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        if (!t) continue;
        for (j.n = 2; j.n <= 3; j.n++) {
            printf("%s, n = %d: GB/s of one buffer at 64 K\n%-8s", t->isa, j.n, "");
            for (int op = 0; op < 6; op++) printf(" %8s", ops[op]);
            for (j.type = 0; j.type < 12; j.type++) {
                printf("\n%-8s", types[j.type]);
                for (int op = 0; op < 6; op++) {
                    j.reduce = t->reduce[j.type][op];
                    printf(" %8.1f", (double)j.bytes / time_job(&j) * 1e-9);
                }
            }
            printf("\n");
        }
    }
}

static void ranks_table(job j) {
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 36, 72};
    enum { N = sizeof(ranks) / sizeof(*ranks) };
    printf("%-22s", "GB/s read, f32 sum, n =");
    for (int i = 0; i < N; i++) printf(" %6d", ranks[i]);
    printf("\n");
    j.type = FLOAT32;
    for (int k = 0; k < 3; k++) {
        const symm_reduce_table *t = symm_reduce_isa(isas[k]);
        if (!t) continue;
        j.reduce = t->reduce[FLOAT32][SYMM_OP_SUM];
        for (j.bytes = 4096; j.bytes <= (1u << 20); j.bytes *= 16) {
            printf("%-8s %8zu K    ", t->isa, j.bytes >> 10);
            for (int i = 0; i < N; i++) {
                j.n = ranks[i];
                printf(" %6.1f", (double)j.bytes * j.n / time_job(&j) * 1e-9);
            }
            printf("\n");
        }
    }
}

int main(int argc, char **argv) {
    job j = {.dst = buffer(LARGEST)};
    /* Sources lie apart by an odd number of cache lines, so that they do not fight for the same
     * sets. */
    const size_t step = ((size_t)1 << 20) + 64 * 67;
    char *pool = buffer(2 * LARGEST + MOST_RANKS * step);
    j.src[0] = pool, j.src[1] = pool + LARGEST + step, j.src[2] = j.src[1] + step;
    if (argc > 1 && strcmp(argv[1], "types") == 0) {
        types_table(j);
    } else if (argc > 1 && strcmp(argv[1], "ranks") == 0) {
        for (int r = 0; r < MOST_RANKS; r++) j.src[r] = pool + (size_t)r * step;
        ranks_table(j);
    } else if (argc > 1 && strcmp(argv[1], "shifts") == 0) {
        shifts_table(j);
    } else {
        main_table(j);
        small_table(j);
        shifts_table(j);
    }
    return 0;
}
