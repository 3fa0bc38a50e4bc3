/* thr_synced.c - synced buffers that peers read: ranks are threads, so ThreadSanitizer sees both
 * sides of every access. The owner pushes from its stream; peers poll its generation and read
 * the data in place, and answer with generations of their own. */
#include <pthread.h>

#include "synced_kit.h"

enum { RANKS = 3, ROUNDS = 100, BYTES = 3000 };

typedef struct {
    symmComm_t comms[RANKS];
    symmRef_t data, word;
} job;

static void wait_for(symmSynced_t s, int rank, uint32_t least) {
    uint32_t g = 0;
    for (;;) {
        T_OK(symmSyncedGeneration(s, rank, &g));
        if ((int32_t)(g - least) >= 0) return;
        sched_yield();
    }
}

/* Every rank makes the same calls on SYM: the first touch is the same one everywhere. */
static symmSynced_t sym_buffer(symmComm_t comm, symmHeap_t heap, symmRef_t *data) {
    symmSynced_t s = NULL;
    T_OK(symmSyncedCreate(heap, BYTES, SYMM_ALLOC_SYM, &s));
    T_OK(symmSyncedRef(s, data, NULL));
    T_OK(symmBarrier(comm, NULL)); /* everybody's word is there */
    return s;
}

static void write_and_push(symmSynced_t s, symmStream_t stream, int value) {
    memset(sy_mut_cpu(s, stream, 0), value, BYTES);
    T_OK(symmSyncedPush(s, stream));
}

static void sym_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = j->comms[rank];
    symmHeap_t heap = sy_heap(comm, SY_MB, SY_MB);
    symmStream_t stream = sy_stream();
    symmRef_t data;
    symmSynced_t s = sym_buffer(comm, heap, &data);
    for (int i = 0; i < ROUNDS; i++) {
        const int owner = i % n;
        /* rounds of this rank as owner, and as reader that answered, before this one; each counts
         * one */
        const uint32_t mine = (uint32_t)i;
        void *theirs;
        if (rank == owner) {
            write_and_push(s, stream, i % 100 + 1);
            for (int r = 0; r < n; r++) wait_for(s, r, mine + 1);
            continue;
        }
        wait_for(s, owner, mine + 1);
        T_OK(symmRefPtr(&data, comm, owner, &theirs));
        sy_all(theirs, i % 100 + 1, BYTES, "a peer's data");
        T_OK(symmSyncedPublish(s, stream, NULL));
        for (int r = 0; r < n; r++) wait_for(s, r, mine + 1); /* the next owner may start at once */
    }
    T_OK(symmStreamDestroy(stream));
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmSyncedDestroy(s));
    T_OK(symmHeapCheck(heap));
    T_EQ(sy_used(heap), 0);
    T_OK(symmHeapDestroy(heap));
}

static void run(t_rank_fn fn) {
    job j;
    setenv("SYMM_SCRATCH", "1M", 1);
    T_OK(symmCommInitAll(j.comms, RANKS, NULL));
    T_THREADS(RANKS, fn, &j);
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(j.comms[r]));
}

static void peers_poll_the_generation_and_read(void) {
    run(sym_rank);
}

/* Sides differ in size and place on every rank: peers know them by references only. */
static void local_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = j->comms[rank];
    symmHeap_t heap = sy_heap(comm, SY_MB, SY_MB);
    symmStream_t stream = sy_stream();
    symmSynced_t s = NULL, pad = NULL;
    void *theirs;
    uint32_t g = 0;
    T_OK(symmSyncedCreate(heap, 100 + (size_t)rank * 5000, SYMM_ALLOC_LOCAL, &pad));
    sy_gpu(pad, NULL);
    if (rank == n - 1) {
        s = sy_new(heap, BYTES);
        T_OK(symmSyncedRef(s, &j->data, &j->word));
    }
    T_OK(symmBarrier(comm, NULL));
    const symmRef_t data = j->data, word = j->word;
    T_EQ(data.rank, n - 1);
    if (s) write_and_push(s, stream, 42);
    while (g < 1) {
        T_OK(symmSyncedPoll(&word, comm, SYMM_REF_OWNER, &g));
        sched_yield();
    }
    T_OK(symmRefPtr(&data, comm, SYMM_REF_OWNER, &theirs));
    sy_all(theirs, 42, BYTES, "the owner's data");
    T_OK(symmBarrier(comm, NULL));
    if (s) T_OK(symmSyncedDestroy(s));
    T_OK(symmSyncedDestroy(pad));
    T_OK(symmStreamDestroy(stream));
    T_OK(symmHeapCheck(heap));
    T_OK(symmHeapDestroy(heap));
}

static void references_lead_to_local_buffers(void) {
    run(local_rank);
}

/* The first touch is an allocation: ranks that touch in another order have diverged, and are
 * told. */
static void diverging_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmHeap_t heap = sy_heap(j->comms[rank], SY_MB, SY_MB);
    symmSynced_t s[2];
    (void)n;
    for (int i = 0; i < 2; i++)
        T_OK(symmSyncedCreate(heap, 1000 + (size_t)i * 1000, SYMM_ALLOC_SYM, &s[i]));
    for (int i = 0; i < 2; i++) sy_gpu(s[rank == 1 ? 1 - i : i], NULL);
    T_ERR(symmHeapCheck(heap), symmMismatch);
    for (int i = 0; i < 2; i++) T_OK(symmSyncedDestroy(s[i]));
    T_OK(symmHeapDestroy(heap));
}

static void another_order_of_first_touch_is_found(void) {
    T_EXPECT_WARNINGS();
    run(diverging_rank);
}

/* A graph ends after its heap, on each rank at another place among the calls: that is no order to
 * agree on. */
static void late_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmComm_t comm = j->comms[rank];
    symmHeap_t heap = sy_heap(comm, SY_MB, SY_MB);
    symmStream_t stream = sy_stream();
    symmSynced_t s = NULL;
    symmGraph_t g;
    T_OK(symmSyncedCreate(heap, BYTES, SYMM_ALLOC_SYM, &s));
    sy_gpu(s, stream);
    T_OK(symmStreamSynchronize(stream));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmSyncedPull(s, stream));
    T_OK(symmStreamEndCapture(stream, &g));
    T_OK(symmSyncedDestroy(s));
    T_OK(symmHeapDestroy(heap));
    for (int i = 0; i < n; i++) {
        T_OK(symmBarrier(comm, NULL));
        if (i == rank) T_OK(symmGraphDestroy(g));
    }
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmStreamDestroy(stream));
}

static void graphs_end_after_their_heap_in_any_order(void) {
    run(late_rank);
}

T_MAIN(T(peers_poll_the_generation_and_read), T(references_lead_to_local_buffers),
       T(another_order_of_first_touch_is_found), T(graphs_end_after_their_heap_in_any_order))
