/* thr_mismatch.c - thread ranks that disagree on collective, count, type, reduction, root or on
 * being in place: each one hears symmMismatch at the latest in its next call. For ThreadSanitizer
 * above all. One thread per rank; no lock. */
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

/* ---- roots ---- */

typedef struct {
    symmComm_t comm[3];
    symmColl_t coll;
    size_t count;
    int odd;
} rooted;

static void root_thread(int rank, int n, void *arg) {
    rooted *m = arg;
    char *send = calloc((size_t)n, m->count), *recv = calloc((size_t)n, m->count);
    T_CHECK(send && recv);
    const symmResult_t r = symm_test_call(m->coll, send, recv, m->count, symmUint8, symmSum,
                                          rank == m->odd, m->comm[rank], NULL);
    T_ERR(r ? r : symmBarrier(m->comm[rank], NULL), symmMismatch); /* a root may go ahead */
    T_MSG(symmGetLastError(m->comm[rank]), "root 0");
    T_MSG(symmGetLastError(m->comm[rank]), "root 1");
    free(send);
    free(recv);
}

/* Every collective with a root, small and large; the odd one is each rank in turn. */
static void roots_that_differ(void) {
    T_EXPECT_WARNINGS();
    int calls = 0;
    for (int c = 0; c < symmNumColls; c++)
        for (int i = 0; (symm_colls[c].flags & SYMM_COLL_ROOT) && i < 6; i++, calls++) {
            rooted m = {.coll = (symmColl_t)c, .count = i < 3 ? 64 : 1 << 20, .odd = i % 3};
            T_OK(symmCommInitAll(m.comm, 3, NULL));
            T_THREADS(3, root_thread, &m);
            for (int r = 0; r < 3; r++) T_OK(symmCommDestroy(m.comm[r]));
        }
    T_CHECK(calls > 0);
}

/* ---- in place -------------------------------------------------------------------------------- */

static void swap_thread(int rank, int n, void *arg) {
    rooted *m = arg;
    char *send = calloc((size_t)n, m->count), *recv = calloc((size_t)n, m->count);
    T_CHECK(send && recv);
    T_ERR(
        symmAlltoAll(send, rank == m->odd ? send : recv, m->count, symmUint8, m->comm[rank], NULL),
        symmMismatch);
    T_MSG(symmGetLastError(m->comm[rank]), "uint8, in place");
    free(send);
    free(recv);
}

/* Buffers in no window are read from where they lie, unless they are swapped: ranks that did not
 * mean the same would read elsewhere. */
static void in_place_on_some_ranks(void) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 6; i++) {
        rooted m = {.count = i < 3 ? 64 : 1 << 20, .odd = i % 3};
        T_OK(symmCommInitAll(m.comm, 3, NULL));
        T_THREADS(3, swap_thread, &m);
        for (int r = 0; r < 3; r++) T_OK(symmCommDestroy(m.comm[r]));
    }
}

T_MAIN(T(two_ranks), T(two_ranks_on_streams), T(three_ranks), T(five_ranks_on_streams),
       T(roots_that_differ), T(in_place_on_some_ranks))
