/* fault_hosts_spread.c - what a GPU stores at a multicast address and loads there, where ranks are
 * on several hosts of one NVLink fabric, and growth of what is bound: windows, heaps and vectors,
 * on the fake driver. How the object is made: fault_hosts_cast.c. Of each rank's own thread; no
 * lock: what ranks share stands behind barriers. */
#include "hosts_kit.h"
#include "transport/cuda/cuda_multicast.h"

#define MB    (1ull << 20)
#define BYTES (4 * MB)

enum { WORDS = 1500, RANKS = 4 };

/* This process becomes a rank that asks for multicast windows. */
static fk_gauges start(const hosts *h, int rank, int n) {
    setenv("SYMM_WIN_STRIDE", "4G", 1);
    setenv("SYMM_MULTICAST", "1", 1);
    unsetenv("NCCL_NVLS_ENABLE");
    return begin(h, rank, n);
}

static int word(int rank, int i) {
    return 100000 * (rank + 1) + i;
}
static int cast_of(int root, int i) {
    return -word(root, 7 * i);
}

/* A word, WORDS words and a word of each rank's memory, by its multicast address: the sum that
 * every rank loads there, then what each rank stores there in turn, which all have and no more. */
static void spreads(hosts *h, symmComm_t comm, int *own, int rank, int n) {
    int sums[WORDS];
    int *cast, values[WORDS];
    for (int i = -1; i <= WORDS; i++) own[1 + i] = word(rank, i);
    T_OK(symmMemMulticastPtr(comm, own, (WORDS + 2) * sizeof *own, (void **)&cast));
    kit_barrier(&h->f.k, n);
    fake_cuda_cast_sum(cast + 1, sums, WORDS);
    for (int i = 0; i < WORDS; i++) T_EQ(sums[i], n * i + 100000 * (n * (n + 1) / 2));
    for (int root = 0; root < n; root++) {
        kit_barrier(&h->f.k, n);
        for (int i = 0; i < WORDS; i++) values[i] = cast_of(root, i);
        if (root == rank) fake_cuda_cast_store(cast + 1, values, sizeof values);
        kit_barrier(&h->f.k, n);
        for (int i = 0; i < WORDS; i++) T_EQ(own[1 + i], cast_of(root, i));
        T_EQ(own[0], word(rank, -1));
        T_EQ(own[1 + WORDS], word(rank, WORDS));
    }
    kit_barrier(&h->f.k, n);
}
static int *at(void *mem, uint64_t off) {
    return (int *)(void *)((char *)mem + off);
}

/* Memory of this rank has no multicast address; on every rank it says so, and what a call of all
 * would do with it. */
static void not_bound(symmComm_t comm, void *mem, uint64_t bytes, const char *why) {
    symmExplain_t plan = {.size = sizeof plan};
    void *p = NULL;
    T_ERR(symmMemMulticastPtr(comm, mem, bytes, &p), symmNotSupported);
    T_MSG(symmGetLastError(NULL), why);
    T_CHECK(!p);
    T_OK(symmExplain(comm, symmCollAllReduce, mem, mem, bytes / 4, symmFloat32, symmSum, 0, &plan));
    T_MSG(plan.reason, "sendbuff: not over the multicast range: ");
    T_MSG(plan.reason, why);
}

/* ---- contents -------------------------------------------------------------------------------- */

static void contents_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const fk_gauges before = start(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmExplain_t plan = {.size = sizeof plan};
    symmWindow_t win[2];
    void *buf[2];
    for (int i = 0; i < 2; i++) { /* the second goes elsewhere in the object */
        T_OK(symmMemAlloc(&buf[i], BYTES));
        T_OK(symmWindowRegister(comm, buf[i], BYTES, &win[i], 0));
    }
    for (int i = 0; i < 2; i++) {
        spreads(h, comm, at(buf[i], 0), rank, n);
        spreads(h, comm, at(buf[i], 2 * MB - 400), rank, n);
        spreads(h, comm, at(buf[i], BYTES - (WORDS + 2) * sizeof(int)), rank, n);
    }
    T_OK(symmExplain(comm, symmCollAllReduce, buf[1], buf[1], MB, symmFloat32, symmSum, 0, &plan));
    T_MSG(plan.kernel, "all_reduce_multicast");
    T_MSG(plan.reason, "over the multicast range if");
    for (int i = 0; i < 2; i++) T_OK(symmWindowDeregister(comm, win[i]));
    for (int i = 0; i < 2; i++) T_OK(symmMemFree(buf[i]));
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
}
static void what_is_stored_goes_to_all_hosts(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, contents_rank, hosts_new(1, 0, -1, 0));
    T_FORK(4, contents_rank, hosts_new(2, 1, -1, 0));
    T_FORK(5, contents_rank, hosts_new(3, 0, -1, 0));
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* A rank's driver refuses the second piece that it is to bind from now on. */
static void refuse(const hosts *h, int rank) {
    if (rank == h->f.victim) fake_cuda_fail("cuMulticastBindMem", 2, SYMM_CUDA_ERROR_NOT_PERMITTED);
}

typedef struct { /* calls of this rank, and what all say of a piece that one has refused */
    int binds, unbinds;
    char says[64];
} tally;

static tally take_tally(const hosts *h) {
    tally t = {fake_cuda_calls("cuMulticastBindMem"), fake_cuda_calls("cuMulticastUnbind"), ""};
    snprintf(t.says, sizeof t.says, "rank %d: binding memory: not permitted", h->f.victim);
    return t;
}
/* Of two pieces the first was bound and let go, on every rank; the second too, where it was not
 * refused. */
static void both_let_go(const hosts *h, const tally *before, int rank) {
    const tally now = take_tally(h);
    T_EQ(now.binds - before->binds, 2);
    T_EQ(now.unbinds - before->unbinds, 2 - (rank == h->f.victim));
    T_EQ(fake_cuda_fail_waits(), 0);
}

enum { ROOM = 64 << 20 };

/* More memory of the user's, in such pieces, behind what there is. */
static void extend(char *mem, uint64_t *bytes, uint64_t to, uint64_t piece) {
    symm_vmm_handle *h;
    for (; *bytes < to; *bytes += piece) {
        T_EQ(symm_vmm_cuda.create(piece, &h), 0);
        T_EQ(symm_vmm_cuda.map(mem + *bytes, piece, 0, h), 0);
        T_EQ(symm_vmm_cuda.set_access(mem + *bytes, piece), 0);
        T_EQ(symm_vmm_cuda.release(h), 0);
    }
}
static int whole(symmWindow_t win) {
    symmWindowInfo_t i = {.size = sizeof i};
    T_OK(symmWindowQuery(win, &i));
    return i.multicast;
}

static void window_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const fk_gauges before = start(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmWindow_t win;
    uint64_t bytes = 0;
    void *mem;
    T_EQ(symm_vmm_cuda.reserve(ROOM, 0, &mem), 0);
    extend(mem, &bytes, 4 * MB, 2 * MB);
    T_OK(symmWindowRegister(comm, mem, bytes, &win, 0));
    extend(mem, &bytes, 8 * MB, 2 * MB);
    T_OK(symmWindowGrow(win, bytes));
    T_EQ(whole(win), 1);
    spreads(h, comm, at(mem, 4 * MB - 200), rank, n);
    spreads(h, comm, at(mem, 6 * MB + 64), rank, n);
    extend(mem, &bytes, 12 * MB, 2 * MB);
    const tally was = take_tally(h);
    refuse(h, rank);
    T_OK(symmWindowGrow(win, bytes));
    both_let_go(h, &was, rank);
    T_EQ(whole(win), 0);
    not_bound(comm, at(mem, 8 * MB), 4 * MB, was.says);
    spreads(h, comm, at(mem, 6 * MB + 64), rank, n);           /* what was bound still is */
    for (uint64_t to = 16 * MB; to <= 20 * MB; to += 4 * MB) { /* what all have is bound */
        extend(mem, &bytes, rank == 1 ? 20 * MB : to, (rank == 1 ? 8 : 2) * MB);
        T_OK(symmWindowGrow(win, bytes));
        spreads(h, comm, at(mem, to - 3 * MB), rank, n);
    }
    not_bound(comm, at(mem, 10 * MB), 4 * MB, was.says);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmCommDestroy(comm));
    kit_barrier(&h->f.k, n);
    T_EQ(symm_vmm_cuda.unmap(mem, bytes), 0);
    T_EQ(symm_vmm_cuda.unreserve(mem, ROOM), 0);
    FK_UNCHANGED(&before);
}
static void windows_grow_on_all_ranks_or_on_none(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < RANKS; victim++)
        T_FORK(RANKS, window_rank, hosts_new(2, victim & 1, victim, 0));
}

/* Growth of 8 MiB is two pieces. */
static void heap_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const fk_gauges before = start(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    void *block[3];
    c.reserve = 64 * MB, c.symBytes = 8 * MB, c.chunk = 4 * MB;
    T_OK(symmHeapCreate(comm, &c, &heap));
    T_OK(symmHeapAlloc(heap, 7 * MB, 0, SYMM_ALLOC_SYM, &block[0]));
    spreads(h, comm, at(block[0], 4 * MB - 100), rank, n);
    const tally was = take_tally(h);
    refuse(h, rank);
    T_OK(symmHeapGrow(heap, 8 * MB, 0));
    both_let_go(h, &was, rank);
    T_OK(symmHeapAlloc(heap, 7 * MB, 0, SYMM_ALLOC_SYM, &block[1]));
    not_bound(comm, block[1], 7 * MB, was.says);
    spreads(h, comm, at(block[0], 64), rank, n);
    T_OK(symmHeapGrow(heap, 8 * MB, 0));
    T_OK(symmHeapAlloc(heap, 7 * MB, 0, SYMM_ALLOC_SYM, &block[2]));
    spreads(h, comm, at(block[2], 2 * MB), rank, n);
    for (int i = 0; i < 3; i++) T_OK(symmHeapFree(heap, block[i]));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
}
static void heaps_grow_on_all_ranks_or_on_none(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < RANKS; victim++)
        T_FORK(RANKS, heap_rank, hosts_new(2, victim & 1, victim, 0));
}

static void vector_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const fk_gauges before = start(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    symmVec_t vec;
    void *mem;
    c.max = 64 * MB, c.chunk = 2 * MB, c.flags = SYMM_VEC_FIXED;
    T_OK(symmVecCreate(comm, &c, &vec));
    T_OK(symmVecGrow(vec, 4 * MB));
    T_OK(symmVecPtr(vec, rank, &mem));
    spreads(h, comm, at(mem, 2 * MB - 100), rank, n);
    const tally was = take_tally(h);
    refuse(h, rank);
    T_OK(symmVecGrow(vec, 8 * MB));
    both_let_go(h, &was, rank);
    not_bound(comm, at(mem, 4 * MB), 4 * MB, was.says);
    spreads(h, comm, at(mem, 64), rank, n);
    T_OK(symmVecGrow(vec, 12 * MB));
    spreads(h, comm, at(mem, 10 * MB - 100), rank, n);
    T_OK(symmVecDestroy(vec));
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
}
static void vectors_grow_on_all_ranks_or_on_none(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < RANKS; victim++)
        T_FORK(RANKS, vector_rank, hosts_new(2, victim & 1, victim, 0));
}

/* ---- growth that waits, and that nobody ends ------------------------------------------------- */

/* 802: the software that joins the hosts is not up yet. All try again. */
static void late_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const fk_gauges before = start(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmVec_t vec;
    void *mem;
    T_OK(symmVecCreate(comm, NULL, &vec));
    if (rank == h->f.victim)
        fake_cuda_fail("cuMulticastBindMem", 1, SYMM_CUDA_ERROR_SYSTEM_NOT_READY);
    T_OK(symmVecGrow(vec, 4 * MB));
    T_EQ(fake_cuda_fail_waits(), 0);
    T_OK(symmVecPtr(vec, rank, &mem));
    spreads(h, comm, at(mem, 2 * MB), rank, n);
    T_OK(symmVecDestroy(vec));
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
}
static void not_ready_is_tried_again_by_all_hosts(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 3; victim++) T_FORK(3, late_rank, hosts_new(2, 0, victim, 0));
}

/* The others hear of it, and let go what they have bound. */
static void dies_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const fk_gauges before = start(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmVec_t vec;
    char who[32];
    T_OK(symmVecCreate(comm, NULL, &vec));
    T_OK(symmVecGrow(vec, 4 * MB));
    if (rank == h->f.victim) T_EQ(symm_fail_arm("mc_bind:kill:1"), 0);
    T_ERR(symmVecGrow(vec, 100 * MB), symmRemoteError);
    snprintf(who, sizeof who, "rank %d ", h->f.victim);
    T_MSG(symmGetLastError(comm), who);
    T_OK(symmVecDestroy(vec));
    T_OK(symmCommDestroy(comm));
    T_EQ(fake_cuda_calls("cuMulticastUnbind"), fake_cuda_calls("cuMulticastBindMem"));
    kit_barrier(&h->f.k, n - 1);
    FK_UNCHANGED(&before);
}
static void who_dies_while_all_grow_is_named(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 3; victim++)
        T_FORK_DIES(3, victim, dies_rank, hosts_new(2, 0, victim, 0));
}

T_MAIN(T_TIMEOUT(what_is_stored_goes_to_all_hosts, 60),
       T_TIMEOUT(windows_grow_on_all_ranks_or_on_none, 60),
       T_TIMEOUT(heaps_grow_on_all_ranks_or_on_none, 60),
       T_TIMEOUT(vectors_grow_on_all_ranks_or_on_none, 60),
       T_TIMEOUT(not_ready_is_tried_again_by_all_hosts, 60),
       T_TIMEOUT(who_dies_while_all_grow_is_named, 60))
