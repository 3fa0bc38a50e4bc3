/* fused_norm_host.c - all_reduce, residual and RMSNorm of a transformer layer in one host kernel
 * over symm's windows, beside symmAllReduce and a function for the norm. Rows are floats:
 *
 *     next = (sum over ranks of x) + residual;  y = next / sqrt(mean(next^2) + 1e-5) * weight
 *
 * The kernel sums a row while it is in the cache, and each rank does a part of the rows and stores
 * their y to all: so the norm too is done once, where the unfused way does it on every rank. Both
 * ways give the same bits. Times are medians of calls, on the slowest rank. See fused_norm.cu for
 * GPUs.
 *
 *     fused_norm_host [ranks [rows [columns]]]        default: 2 ranks, 64 rows, 2048 columns
 *
 * Runs in: one thread per rank. No lock: each rank's record is one thread's. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "symm_device_host.h"
#include "symm_heap.h"

enum { MOST_RANKS = 16, CALLS = 41 };

static int ranks = 2, rows = 64, columns = 2048;

typedef struct {
    int rank;
    symmComm_t comm;
    symmHeap_t heap;
    symmDevComm_t dev;
    symmDevWindow_t xWin, yWin;
    float *x, *y;                                 /* in the heap */
    float *residual, *weight, *sum, *next, *want; /* this rank's alone */
    int wrong;
    double us[2]; /* unfused, fused */
} rank_state;

static void ok(symmResult_t r) {
    if (r == symmSuccess) return;
    fprintf(stderr, "%s: %s\n", symmGetErrorString(r), symmGetLastError(NULL));
    exit(1);
}

static size_t row_bytes(void) {
    return (size_t)columns * sizeof(float);
}

/* One row, of which the sum is in `next`. Both ways run this code: the same bits. */
static __attribute__((noinline)) void finish_row(const float *residual, const float *weight,
                                                 float *next, float *y) {
    float squares = 0;
    for (int i = 0; i < columns; i++) {
        next[i] += residual[i];
        squares += next[i] * next[i];
    }
    const float scale = 1 / sqrtf(squares / (float)columns + 1e-5f);
    for (int i = 0; i < columns; i++) y[i] = next[i] * scale * weight[i];
}

/* ---- two ways -------------------------------------------------------------------------------- */

/* Every rank gets all sums, then does all rows. */
static void unfused(rank_state *s) {
    ok(symmAllReduce(s->x, s->sum, (size_t)rows * (size_t)columns, symmFloat, symmSum, s->comm,
                     NULL));
    for (int row = 0; row < rows; row++) {
        const size_t at = (size_t)row * (size_t)columns;
        finish_row(s->residual + at, s->weight, s->sum + at, s->want + at);
    }
}

/* Rank r does rows r, r + ranks, ...: sums each over the ranks, finishes it, stores it to all. */
static void rows_of_rank(rank_state *s, symmHostCta_t *cta) {
    for (int row = s->rank; row < rows; row += ranks) {
        const size_t at = (size_t)row * (size_t)columns;
        const uint64_t byte = (uint64_t)at * sizeof(float);
        ok(symmHostLoadReduce(cta, &s->xWin, byte, (size_t)columns, symmFloat, symmSum, s->next));
        finish_row(s->residual + at, s->weight, s->next, s->y + at);
        for (int p = 0; p < ranks; p++)
            if (p != s->rank) ok(symmHostPut(cta, &s->yWin, p, byte, s->y + at, row_bytes()));
    }
}

/* A rank that gives up returns: the communicator is over, and the call says why. */
static void fused(rank_state *s) {
    symmHostCta_t cta;
    ok(symmHostCtaBegin(&s->dev, 0, &cta));
    if (!symmHostBarrierSync(&cta)) { /* every rank's x is there, and nobody reads y any more */
        rows_of_rank(s, &cta);
        symmHostBarrierSync(&cta); /* all rows have come, and nobody reads x any more */
    }
    ok(symmHostCtaEnd(&cta));
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}
static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of this rank's calls, then the slowest rank's. */
static double measure(rank_state *s, void (*way)(rank_state *)) {
    double us[CALLS], slowest;
    for (int i = 0; i < CALLS; i++) {
        ok(symmBarrier(s->comm, NULL));
        const double begin = now_us();
        way(s);
        us[i] = now_us() - begin;
    }
    qsort(us, CALLS, sizeof *us, by_size);
    ok(symmAllReduce(&us[CALLS / 2], &slowest, 1, symmDouble, symmMax, s->comm, NULL));
    return slowest;
}

static float *private_floats(size_t count, uint32_t seed) {
    float *p = malloc(count * sizeof *p);
    if (!p) fprintf(stderr, "no memory\n"), exit(1);
    for (size_t i = 0; i < count; i++) {
        uint32_t h = ((uint32_t)i ^ seed * 0x9e3779b9u) * 0x85ebca6bu;
        p[i] = (float)(int)((h ^ h >> 13) >> 8) / (1 << 23) - 1;
    }
    return p;
}

static void make(rank_state *s) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmDevRequirements_t need = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    const size_t count = (size_t)rows * (size_t)columns, bytes = count * sizeof(float);
    config.symBytes = 2 * bytes + 4096;
    need.barriers = 1; /* one thread of each rank */
    ok(symmHeapCreate(s->comm, &config, &s->heap));
    ok(symmHeapAlloc(s->heap, bytes, 0, SYMM_ALLOC_SYM, (void **)&s->x));
    ok(symmHeapAlloc(s->heap, bytes, 0, SYMM_ALLOC_SYM, (void **)&s->y));
    ok(symmDevWindowGet(s->comm, s->x, bytes, &s->xWin));
    ok(symmDevWindowGet(s->comm, s->y, bytes, &s->yWin));
    ok(symmDevCommCreate(s->comm, &need, &s->dev));
    float *mine = private_floats(count, 100 + (uint32_t)s->rank);
    memcpy(s->x, mine, bytes);
    free(mine);
    s->residual = private_floats(count, 1); /* the same on all ranks */
    s->weight = private_floats((size_t)columns, 2);
    s->sum = private_floats(count, 3);
    s->next = private_floats((size_t)columns, 4);
    s->want = private_floats(count, 5);
}

static void *drive(void *arg) {
    rank_state *s = arg;
    make(s);
    s->us[0] = measure(s, unfused);
    s->us[1] = measure(s, fused);
    for (int i = 0; i < rows * columns; i++) s->wrong += s->y[i] != s->want[i];
    ok(symmBarrier(s->comm, NULL)); /* before memory that peers may still read goes */
    ok(symmDevCommDestroy(s->comm, &s->dev));
    ok(symmHeapDestroy(s->heap));
    free(s->residual), free(s->weight), free(s->sum), free(s->next), free(s->want);
    return NULL;
}

int main(int argc, char **argv) {
    symmComm_t comms[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    rank_state state[MOST_RANKS];
    int gpu, wrong = 0;
    if (argc > 1) ranks = atoi(argv[1]);
    if (argc > 2) rows = atoi(argv[2]);
    if (argc > 3) columns = atoi(argv[3]);
    if (ranks < 1 || ranks > MOST_RANKS || rows < 1 || rows > 65536 || columns < 1 ||
        columns > 16384) {
        fprintf(stderr, "fused_norm_host: 1 to %d ranks, 65536 rows, 16384 columns\n", MOST_RANKS);
        return 2;
    }
    setenv("SYMM_BACKEND", "host", 0); /* unless it is set: the CPU runs the kernel */
    ok(symmCommInitAll(comms, ranks, NULL));
    ok(symmCommDevice(comms[0], &gpu)); /* -1: none */
    if (gpu >= 0) fprintf(stderr, "x is on a GPU: see fused_norm.cu\n"), exit(1);
    for (int r = 0; r < ranks; r++) {
        state[r] = (rank_state){.rank = r, .comm = comms[r]};
        if (pthread_create(&threads[r], NULL, drive, &state[r])) return 1;
    }
    for (int r = 0; r < ranks; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < ranks; r++) {
        wrong += state[r].wrong;
        ok(symmCommDestroy(comms[r]));
    }
    printf("%d ranks, %d rows of %d floats: %d wrong\n", ranks, rows, columns, wrong);
    printf("unfused: %.1f us, fused: %.1f us, %.2fx\n", state[0].us[0], state[0].us[1],
           state[0].us[0] / state[0].us[1]);
    return wrong != 0;
}
