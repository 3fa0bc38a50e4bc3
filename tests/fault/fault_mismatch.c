/* fault_mismatch.c - processes whose ranks disagree on collective, count, type or reduction: each
 * one hears symmMismatch at the latest in its next call, and nobody hangs or reads what is not
 * there. Forked ranks; no lock. */
#include "fault_kit.h"
#include "mismatch_kit.h"

enum { NULL_STREAM = 1, WORKER = 2, REGISTERED = 4 };

/* No more memory than the call needs: what a peer would read or write beyond is not mapped. */
static void *exact(symmComm_t comm, size_t bytes) {
    void *p = NULL;
    symmWindow_t win;
    if (bytes) T_OK(symmMemAlloc(&p, bytes));
    T_OK(symmWindowRegister(comm, p, bytes, &win, 0));
    return p;
}

static void one_case(fk *f, const mm_case *c, int rank, int n, int odd, symmStream_t stream) {
    const mm_call *k = rank == odd ? &c->odd : &c->most;
    symmComm_t comm = fk_open(f, rank, n);
    size_t bytes = k->count * (k->type == symmInt64 ? 8 : 4);
    size_t out = bytes * (size_t)coll_parts(k->coll, n);
    int registered = f->how & REGISTERED;
    void *send = registered ? exact(comm, bytes) : malloc(bytes + 1);
    void *recv = registered ? exact(comm, out) : malloc(out + 1);
    mm_disagree(c, rank, odd, send, recv, comm, stream);
    T_OK(symmCommDestroy(comm));
    if (registered) {
        T_OK(symmMemFree(send));
        T_OK(symmMemFree(recv));
    } else {
        free(send);
        free(recv);
    }
}

static void mismatch_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmStream_t stream = NULL;
    setenv("SYMM_SCRATCH", "8M", 1);
    if (f->how & WORKER) T_OK(symmStreamCreate(&stream));
    for (int i = 0; i < MM_CASES; i++)
        one_case(f, &mm_cases[i], rank, n, (f->victim + i) % n, stream);
    symmComm_t comm = fk_open(f, rank, n);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
    if (stream) T_OK(symmStreamDestroy(stream));
}

static void disagree(int n, int how) {
    T_EXPECT_WARNINGS();
    T_FORK(n, mismatch_rank, fk_new(0, how));
}

static void two_ranks(void) {
    disagree(2, NULL_STREAM);
}
static void two_ranks_on_streams(void) {
    disagree(2, WORKER);
}
static void two_ranks_registered(void) {
    disagree(2, REGISTERED);
}
static void three_ranks(void) {
    disagree(3, NULL_STREAM);
}
static void three_ranks_on_streams_registered(void) {
    disagree(3, WORKER | REGISTERED);
}
static void five_ranks(void) {
    disagree(5, NULL_STREAM);
}

T_MAIN(T_TIMEOUT(two_ranks, 20), T_TIMEOUT(two_ranks_on_streams, 20),
       T_TIMEOUT(two_ranks_registered, 20), T_TIMEOUT(three_ranks, 20),
       T_TIMEOUT(three_ranks_on_streams_registered, 20), T_TIMEOUT(five_ranks, 20))
