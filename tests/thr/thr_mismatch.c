/* thr_mismatch.c - thread ranks that disagree on collective, count, type or reduction: each one
 * hears symmMismatch at the latest in its next call. For ThreadSanitizer above all. One thread per
 * rank; no lock. */
#include "mismatch_kit.h"

typedef struct {
    symmComm_t comm[5];
    int odd, worker;
    const mm_case *c;
} meeting;

static void rank_thread(int rank, int n, void *arg) {
    meeting *m = arg;
    symmStream_t stream = NULL;
    void *send = calloc(1, MM_BYTES), *recv = calloc(1, MM_BYTES);
    (void)n;
    T_CHECK(send && recv);
    if (m->worker) T_OK(symmStreamCreate(&stream));
    mm_disagree(m->c, rank, m->odd, send, recv, m->comm[rank], stream);
    if (stream) T_OK(symmStreamDestroy(stream));
    free(send);
    free(recv);
}

static void disagree(int n, int worker) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_SCRATCH", "8M", 1);
    for (int i = 0; i < MM_CASES; i++) {
        meeting m = {.odd = i % n, .worker = worker, .c = &mm_cases[i]};
        T_OK(symmCommInitAll(m.comm, n, NULL));
        T_THREADS(n, rank_thread, &m);
        for (int r = 0; r < n; r++) T_OK(symmCommDestroy(m.comm[r]));
    }
}

static void two_ranks(void) {
    disagree(2, 0);
}
static void two_ranks_on_streams(void) {
    disagree(2, 1);
}
static void three_ranks(void) {
    disagree(3, 0);
}
static void five_ranks_on_streams(void) {
    disagree(5, 1);
}

T_MAIN(T(two_ranks), T(two_ranks_on_streams), T(three_ranks), T(five_ranks_on_streams))
