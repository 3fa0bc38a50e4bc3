/* unit_contract.c - what symm.h promises of memory that ranks share: what a barrier orders, what
 * fresh memory holds, atomics through pointers of peers, buffers that overlap. Ranks are processes,
 * and threads where ThreadSanitizer shall see both sides. Each rank on its own thread; no lock. */
#include "fault_kit.h"

enum { N = 4, WORDS = 4096, ROUNDS = 200, ADDS = 20000, BYTES = 2 << 20 };

typedef struct {
    symmComm_t comm;
    symmWindow_t win;
    int *own;
} shared;

static shared share(fk *f, int rank, int n) {
    shared s = {fk_open(f, rank, n), NULL, NULL};
    T_OK(symmMemAlloc((void **)&s.own, BYTES));
    T_OK(symmWindowRegister(s.comm, s.own, BYTES, &s.win, SYMM_WIN_DEFAULT));
    return s;
}

static int *at(const shared *s, int rank) {
    void *p;
    T_OK(symmWindowPeerPtr(s->win, 0, rank, &p));
    return p;
}

static void unshare(shared *s) {
    T_OK(symmBarrier(s->comm, NULL));
    T_OK(symmCommDestroy(s->comm));
    T_OK(symmMemFree(s->own));
}

/* ---- the barrier ---- */

/* Every rank stores a part of every rank's words, plainly, and loads all of its own and of the next
 * rank behind the barrier. The next round's stores come behind another barrier: had a load been
 * late, it would see them. */
static void store_round(const shared *s, int rank, int n, int round) {
    for (int r = 0; r < n; r++) {
        int *words = at(s, r);
        for (int i = rank; i < WORDS; i += n) words[i] = round * 1000 + i % 97 + r;
    }
}

static void load_round(const int *words, int of, int round) {
    for (int i = 0; i < WORDS; i++)
        T_CHECKF(words[i] == round * 1000 + i % 97 + of, "round %d, rank %d, word %d: %d", round,
                 of, i, words[i]);
}

static void barrier_rank(int rank, int n, void *arg) {
    fk *f = arg;
    shared s = share(f, rank, n);
    symmStream_t stream = NULL;
    if (f->how) T_OK(symmStreamCreate(&stream));
    for (int round = 0; round < (T_TSAN ? ROUNDS / 10 : ROUNDS); round++) {
        store_round(&s, rank, n, round);
        T_OK(symmBarrier(s.comm, stream));
        if (stream) T_OK(symmStreamSynchronize(stream));
        load_round(s.own, rank, round);
        load_round(at(&s, (rank + 1) % n), (rank + 1) % n, round);
        T_OK(symmBarrier(s.comm, stream));
        if (stream) T_OK(symmStreamSynchronize(stream));
    }
    if (stream) T_OK(symmStreamDestroy(stream));
    unshare(&s);
}

static void a_barrier_orders_stores_and_loads(void) {
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        T_FORK(N, barrier_rank, fk_new(0, on_stream));
        T_THREADS(N, barrier_rank, fk_new(0, on_stream));
    }
}

/* In a stream: what its work has stored is ordered, without the host waiting in between. */
typedef struct {
    const shared *s;
    int rank, n, round;
} stream_step;

static void store_step(void *arg) {
    stream_step *a = arg;
    store_round(a->s, a->rank, a->n, a->round);
}
static void load_step(void *arg) {
    stream_step *a = arg;
    load_round(a->s->own, a->rank, a->round);
}

static void stream_rank(int rank, int n, void *arg) {
    shared s = share(arg, rank, n);
    stream_step steps[16];
    symmStream_t stream;
    T_OK(symmStreamCreate(&stream));
    for (int i = 0; i < 16; i++) {
        steps[i] = (stream_step){&s, rank, n, i};
        T_OK(symmStreamHostFunc(stream, store_step, &steps[i]));
        T_OK(symmBarrier(s.comm, stream));
        T_OK(symmStreamHostFunc(stream, load_step, &steps[i]));
        T_OK(symmBarrier(s.comm, stream));
    }
    T_OK(symmStreamSynchronize(stream));
    T_OK(symmStreamDestroy(stream));
    unshare(&s);
}

static void a_barrier_orders_work_of_streams(void) {
    T_FORK(3, stream_rank, fk_new(0, 0));
    T_THREADS(3, stream_rank, fk_new(0, 0));
}

/* ---- fresh memory ---- */

static void fresh_memory_is_zero(void) {
    static const size_t sizes[] = {1, 4096, BYTES, 3 * BYTES + 1};
    for (int turn = 0; turn < 3; turn++) /* what was freed dirty is as good as new */
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *p;
            T_OK(symmMemAlloc((void **)&p, sizes[i]));
            for (size_t k = 0; k < sizes[i]; k++) T_CHECKF(!p[k], "byte %zu of %zu", k, sizes[i]);
            memset(p, 0xa5, sizes[i]);
            T_OK(symmMemFree(p));
        }
}

/* ---- atomics ---- */

static void atomic_rank(int rank, int n, void *arg) {
    shared s = share(arg, rank, n);
    uint64_t *of8 = (uint64_t *)(void *)(at(&s, 0) + 2);
    uint32_t *of4 = (uint32_t *)(void *)(at(&s, 1) + 1);
    uint16_t *of2 = (uint16_t *)(void *)(at(&s, 2) + 64);
    uint8_t *of1 = (uint8_t *)(void *)(at(&s, 2) + 96);
    for (int i = 0; i < ADDS; i++) {
        __atomic_fetch_add(of8, 1ull << 32 | 1, __ATOMIC_RELAXED);
        uint32_t old = __atomic_load_n(of4, __ATOMIC_RELAXED);
        while (
            !__atomic_compare_exchange_n(of4, &old, old + 3, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        __atomic_fetch_add(of2, 1, __ATOMIC_RELAXED);
        __atomic_fetch_xor(of1, 1u << rank, __ATOMIC_RELAXED);
    }
    T_OK(symmBarrier(s.comm, NULL));
    const uint64_t all = (uint64_t)n * ADDS;
    if (rank == 0) T_CHECK(*(uint64_t *)(void *)(s.own + 2) == (all << 32 | all));
    if (rank == 1) T_CHECK((uint32_t)s.own[1] == 3 * all);
    if (rank == 2) T_CHECK(*(uint16_t *)(void *)(s.own + 64) == (uint16_t)all);
    if (rank == 2) T_EQ(*(uint8_t *)(void *)(s.own + 96), ADDS % 2 ? (1 << n) - 1 : 0);
    unshare(&s);
}

/* A flag of the program's own in place of a barrier: release through a peer's pointer, acquire
 * through the own one. */
static void flag_rank(int rank, int n, void *arg) {
    shared s = share(arg, rank, n);
    int *next = at(&s, (rank + 1) % n);
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 64; i < 128; i++) next[i] = round * i;
        __atomic_store_n(&next[0], round, __ATOMIC_RELEASE);
        while (__atomic_load_n(&s.own[0], __ATOMIC_ACQUIRE) < round) usleep(1);
        for (int i = 64; i < 128; i++) T_EQ(s.own[i], round * i);
        int *last = at(&s, (rank + n - 1) % n);
        __atomic_store_n(&last[32], round, __ATOMIC_RELEASE); /* read: it may be written again */
        while (__atomic_load_n(&s.own[32], __ATOMIC_ACQUIRE) < round) usleep(1);
    }
    unshare(&s);
}

static void atomics_of_every_size(void) {
    T_FORK(3, atomic_rank, fk_new(0, 0));
    T_THREADS(3, atomic_rank, fk_new(0, 0));
}

static void flags_of_the_program(void) {
    T_FORK(3, flag_rank, fk_new(0, 0));
    T_THREADS(3, flag_rank, fk_new(0, 0));
}

/* ---- buffers that overlap ---- */

static void overlap_rank(int rank, int n, void *arg) {
    shared s = share(arg, rank, n), t = s;
    int *x = s.own;
    const struct {
        const int *send;
        int *recv;
        int ok;
    } reduces[] = {{x, x, 1}, {x, x + 8, 1}, {x + 8, x, 1}, {x, x + 7, 0}, {x + 7, x, 0}},
      gathers[] = {{x + rank * 8, x, 1},           {x + n * 8, x, 1}, {x, x + 8, 1},
                   {x + (rank + 1) % n * 8, x, 0}, {x, x + 7, 0},     {x + n * 8 - 1, x, 0}};
    T_OK(symmWindowRegister(s.comm, s.own, BYTES / 2, &t.win, SYMM_WIN_DEFAULT)); /* windows may */
    for (unsigned i = 0; i < sizeof reduces / sizeof *reduces; i++)
        T_ERR(symmAllReduce(reduces[i].send, reduces[i].recv, 8, symmInt32, symmSum, s.comm, NULL),
              reduces[i].ok ? symmSuccess : symmInvalidArgument);
    for (unsigned i = 0; i < sizeof gathers / sizeof *gathers; i++)
        T_ERR(symmAllGather(gathers[i].send, gathers[i].recv, 8, symmInt32, s.comm, NULL),
              gathers[i].ok ? symmSuccess : symmInvalidArgument);
    T_MSG(symmGetLastError(s.comm), "overlap");
    fk_reduce(s.comm, rank, n, x, x + 1000, 900, NULL); /* refused alike, the ranks are in step */
    unshare(&s);
}

static void buffers_overlap_in_place_only(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, overlap_rank, fk_new(0, 0));
}

T_MAIN(T(a_barrier_orders_stores_and_loads), T(a_barrier_orders_work_of_streams),
       T(fresh_memory_is_zero), T(atomics_of_every_size), T(flags_of_the_program),
       T(buffers_overlap_in_place_only))
