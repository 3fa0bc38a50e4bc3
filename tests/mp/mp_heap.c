/* mp_heap.c - heaps, vectors and windows on ranks of mpirun, whatever their number: placement
 * alike, reach, growth, collectives in place, different sizes of LOCAL, shrinking. The numbers
 * of ranks are the runner's. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symm_heap.h"
#include "symm_mpi.h"
#include "symm_vec.h"
#include "t.h"

#define MB (1ull << 20)

static int rank, n;
static symmComm_t comm;

static void begin(void) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    setenv("SYMM_SCRATCH", "1M", 1);
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
}

static symmHeap_t make(uint64_t sym, uint64_t local) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    c.reserve = 512 * MB;
    c.chunk = 4 * MB;
    c.symBytes = sym;
    c.localBytes = local;
    T_OK(symmHeapCreate(comm, &c, &heap));
    return heap;
}

static void *take(symmHeap_t heap, size_t bytes, unsigned flags) {
    void *p;
    T_OK(symmHeapAlloc(heap, bytes, 0, flags, &p));
    return p;
}

static int value(int r, size_t i) {
    return r * 1000003 + (int)(i * 7919 % 1000000);
}

static void fill(int *p, size_t count) {
    for (size_t i = 0; i < count; i++) p[i] = value(rank, i);
}

static void all_hold(const void *block, size_t count) {
    symmRef_t ref;
    void *p;
    T_OK(symmRefGet(block, &ref));
    T_OK(symmBarrier(comm, NULL));
    for (int r = 0; r < n; r++) {
        T_OK(symmRefPtr(&ref, comm, r, &p));
        for (size_t i = 0; i < count; i += 97)
            T_CHECKF(((int *)p)[i] == value(r, i), "word %zu of rank %d is %d", i, r,
                     ((int *)p)[i]);
    }
    T_OK(symmBarrier(comm, NULL));
}

static void reduces(int *p, size_t count) {
    for (size_t i = 0; i < count; i++) p[i] = (int)(i % 5000) + rank;
    T_OK(symmAllReduce(p, p, count, symmInt32, symmSum, comm, NULL));
    for (size_t i = 0; i < count; i += 13) {
        const int want = n * (int)(i % 5000) + n * (n - 1) / 2;
        T_CHECKF(p[i] == want, "element %zu: %d, not %d", i, p[i], want);
    }
}

/* Random calls, the same on all ranks, with LOCAL ones in between that are not. */
static void placement_is_alike_whatever_is_local(void) {
    enum { LIVE = 300, CALLS = 3000 };
    void *held[LIVE] = {0}, *own[LIVE] = {0};
    begin();
    symmHeap_t heap = make(64 * MB, (uint64_t)(rank % 3) * 8 * MB);
    unsigned seed = 12345, mine = (unsigned)rank * 31 + 7;
    for (int i = 0; i < CALLS; i++) {
        void **at = &held[rand_r(&seed) % LIVE], **here = &own[rand_r(&mine) % LIVE];
        const size_t bytes = 1 + (size_t)rand_r(&seed) % 300000, align = 1u << rand_r(&seed) % 15;
        if (*at) {
            T_OK(symmHeapFree(heap, *at));
            *at = NULL;
        } else {
            symmResult_t r = symmHeapAlloc(heap, bytes, align, SYMM_ALLOC_SYM, at);
            T_CHECK(r == symmSuccess || r == symmNeedGrow);
        }
        T_OK(symmHeapFree(heap, *here));
        *here = NULL;
        if (rand_r(&mine) % 3)
            symmHeapAlloc(heap, 1 + (size_t)rand_r(&mine) % 90000, 0, SYMM_ALLOC_LOCAL, here);
        if (i % 500 == 0) T_OK(symmBarrier(comm, NULL));
    }
    T_OK(symmHeapCheck(heap));
    symmHeapInfo_t info = {.size = sizeof info};
    T_OK(symmHeapQuery(heap, &info));
    uint64_t digest = info.digest, first = info.digest;
    MPI_Bcast(&first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    T_CHECK(digest == first);
    T_OK(symmCommDestroy(comm)); /* with all that is left */
}

static void growth_reaches_every_peer(void) {
    begin();
    symmHeap_t heap = make(2 * MB, 0);
    int *p = take(heap, 2 * MB, 0);
    fill(p, MB / 2);
    for (int i = 1; i <= 5; i++) {
        T_OK(symmHeapGrow(heap, (uint64_t)i * 2 * MB, rank == i % n ? 2 * MB : 0));
        int *q = take(heap, (size_t)i * 2 * MB, 0);
        fill(q, (size_t)i * MB / 2);
        all_hold(q, (size_t)i * MB / 2);
        all_hold(p, MB / 2);
    }
    T_OK(symmHeapTrim(heap, 0, NULL)); /* all is in use */
    all_hold(p, MB / 2);
    int *q = take(heap, 0, 0);
    T_CHECK(q == NULL);
    reduces(p, MB / 2);
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
}

static void vectors_grow_move_and_shrink(void) {
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    symmVec_t vec;
    void *p, *at;
    uint64_t bytes;
    begin();
    c.max = 4 * MB;
    c.chunk = 2 * MB;
    T_OK(symmVecCreate(comm, &c, &vec));
    for (uint64_t mb = 1; mb <= 33; mb = mb * 2 + 1) {
        T_OK(symmVecGrow(vec, mb * MB));
        T_OK(symmVecPtr(vec, rank, &p));
        fill(p, mb * MB / 4);
        T_OK(symmBarrier(comm, NULL));
        T_OK(symmVecSync(vec, &bytes));
        T_EQ(bytes, mb * MB);
        for (int r = 0; r < n; r++) {
            T_OK(symmVecPtr(vec, r, &at));
            for (size_t i = 0; i < mb * MB / 4; i += 997) T_EQ(((int *)at)[i], value(r, i));
        }
        T_OK(symmBarrier(comm, NULL));
    }
    T_OK(symmVecShrink(vec, 3 * MB));
    T_OK(symmVecPtr(vec, rank, &p));
    reduces(p, 3 * MB / 4);
    T_OK(symmVecDestroy(vec));
    T_OK(symmCommDestroy(comm));
}

T_MAIN_MPI(T(placement_is_alike_whatever_is_local), T(growth_reaches_every_peer),
           T(vectors_grow_move_and_shrink))
