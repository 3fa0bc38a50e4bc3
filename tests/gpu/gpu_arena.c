/* gpu_arena.c - arenas in GPU memory: streams that take what others freed while its last work still
 * runs, threads that hand blocks on, streams that end, exhaustion, captures, symmetric arenas that
 * peers write into; and what a pair costs. Ranks are threads, some with threads of their own.
 * Whoever frees writes late, held up by a host function, so whoever takes the memory too early
 * finds those bytes. */
#include <fcntl.h>
#include <sched.h>

#include "fault_kit.h"
#include "gpu_kit.h"
#include "symm_arena.h"

#define KB (1ull << 10)
#define MB (1ull << 20)
enum { N = 2, STREAMS = 3, SEEN = 4 << 20, ROUNDS = 10, LATE_US = 3000, WAIT_US = 8000 };

typedef struct {
    gk_job *j;
    int rank, n;
    symmComm_t comm;
    symmHeap_t heap;
    cu_stream stream[STREAMS];
    unsigned char *seen; /* pinned */
} rig;

static rig set_up(gk_job *j, int rank, int n) {
    rig g = {.j = j, .rank = rank, .n = n, .comm = j->comms[rank]};
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    T_OK(symmSetDevice(rank % j->devices));
    c.reserve = 256 * MB;
    c.symBytes = 16 * MB;
    c.localBytes = 64 * MB;
    T_OK(symmHeapCreate(g.comm, &c, &g.heap));
    for (int i = 0; i < STREAMS; i++) g.stream[i] = gk_new_stream();
    g.seen = (unsigned char *)gk_pinned(SEEN);
    gk_meet(j);
    return g;
}

static void tear_down(rig *g) {
    for (int i = 0; i < STREAMS; i++) gk_wait(g->comm, g->stream[i]);
    gk_meet(g->j);
    gk_free_pinned((char *)g->seen);
    for (int i = 0; i < STREAMS; i++) CU(cuStreamDestroy(g->stream[i]));
    T_OK(symmHeapDestroy(g->heap));
    gk_meet(g->j);
    T_OK(symmCommDestroy(g->comm));
    gk_meet(g->j);
}

static void run(int n, t_rank_fn fn) {
    gk_job j = {.devices = gk_begin(), .n = n, .seed = ck_seed()};
    gk_run(&j, fn);
}

/* ---- arenas ---------------------------------------------------------------------------------- */

static symmArena_t open_arena(const rig *g, unsigned flags, uint64_t bytes, uint64_t superblock,
                              int stripes) {
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    symmArena_t a = NULL;
    c.flags = flags;
    c.bytes = bytes;
    c.superblock = superblock;
    c.piece = bytes <= 4 * MB ? bytes : 0; /* one, or those of an arena that grows */
    c.stripes = stripes;
    c.name = "tested";
    T_OK(symmArenaCreate(g->heap, &c, &a));
    return a;
}

static symmArenaInfo_t info(symmArena_t a) {
    symmArenaInfo_t i = {.size = sizeof i};
    T_OK(symmArenaQuery(a, &i));
    return i;
}

static char *take(symmArena_t a, size_t bytes, cu_stream s) {
    void *p = NULL;
    T_OK(symmArenaAlloc(a, bytes, 0, gk_stream(s), &p));
    T_CHECK(p != NULL);
    return p;
}

static void give(symmArena_t a, void *p, cu_stream s) {
    T_OK(symmArenaFree(a, p, gk_stream(s)));
}

/* All of it goes back to the heap: to the global part first, behind a point of each stream, and
 * once those are reached. */
static void close_arena(const rig *g, symmArena_t a) {
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < STREAMS; k++) gk_wait(g->comm, g->stream[k]);
        CU(cuCtxSynchronize());
        T_OK(symmArenaTrim(a, NULL));
    }
    T_EQ(info(a).used, 0);
    T_EQ(info(a).held, 0);
    T_OK(symmArenaDestroy(a));
}

static void leave(rig *g, symmArena_t a) {
    close_arena(g, a);
    tear_down(g);
}

/* ---- work ------------------------------------------------------------------------------------ */

/* The last work of whoever frees p comes late. */
static void give_late(symmArena_t a, char *p, size_t bytes, cu_stream s) {
    gk_delay(s, LATE_US);
    gk_fill(s, p, bytes, 0x77);
    give(a, p, s);
}
/* What s writes stays, also when the late ones have come. Returns when it has been looked at. */
static void is_ours(const rig *g, cu_stream s, char *p, size_t bytes, int value) {
    gk_view l;
    gk_fill(s, p, bytes, value);
    gk_delay(s, WAIT_US);
    gk_check(s, p, bytes, value, g->seen, &l);
    gk_wait(g->comm, s);
}

/* ---- one stream behind another --------------------------------------------------------------- */

static void large_rank(int rank, int n, void *arg) {
    enum { BIG = 3 << 20 };
    rig g = set_up(arg, rank, n);
    symmArena_t a = open_arena(&g, 0, 4 * MB, 0, 1); /* does not hold two */
    for (int i = 0; i < ROUNDS; i++) {
        cu_stream s = g.stream[i & 1], t = g.stream[!(i & 1)];
        char *p = take(a, BIG, s);
        give_late(a, p, BIG, s);
        T_CHECK(take(a, BIG, s) == p); /* its own: at once */
        T_EQ(info(a).waits, i);
        give_late(a, p, BIG, s);
        T_CHECK(take(a, BIG, t) == p);
        T_EQ(info(a).waits, i + 1);
        is_ours(&g, t, p, BIG, i);
        give(a, p, t);
    }
    leave(&g, a);
}

static void a_large_block_goes_from_stream_to_stream(void) {
    run(N, large_rank);
}

/* A stream's small block that another one freed; the block beside it is not touched. */
static void small_rank(int rank, int n, void *arg) {
    enum { HALF = 32 << 10 };
    rig g = set_up(arg, rank, n);
    cu_stream s = g.stream[0], t = g.stream[1];
    symmArena_t a = open_arena(&g, 0, 2 * HALF, 2 * HALF, 1);
    gk_view l;
    char *p = take(a, HALF, t), *beside = take(a, HALF, t);
    gk_fill(t, beside, HALF, 0x21);
    for (int i = 0; i < ROUNDS; i++) {
        give_late(a, p, HALF, s);
        T_CHECK(take(a, HALF, t) == p);
        T_EQ(info(a).waits, i + 1);
        is_ours(&g, t, p, HALF, i);
    }
    gk_check(t, beside, HALF, 0x21, g.seen, &l);
    give(a, p, t);
    give(a, beside, t);
    leave(&g, a);
}

static void a_small_block_freed_on_another_stream(void) {
    run(N, small_rank);
}

/* The only superblock goes through the global part to the other stream. */
static void super_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    symmArena_t a = open_arena(&g, 0, 64 * KB, 64 * KB, 1);
    for (int i = 0; i < ROUNDS; i++) {
        cu_stream s = g.stream[i & 1], t = g.stream[!(i & 1)];
        char *p = take(a, 256, s);
        give_late(a, p, 256, s);
        T_OK(symmArenaTrim(a, NULL));
        char *q = take(a, 256, t);
        T_CHECK(p == q);
        is_ours(&g, t, q, 256, i);
        give(a, q, t);
    }
    T_CHECK(info(a).waits > 0);
    leave(&g, a);
}

static void superblocks_carry_their_order(void) {
    run(N, super_rank);
}

/* What a stream leaves when it ends, with its work still to come. */
static void end_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    symmArena_t a = open_arena(&g, 0, 4 * MB, 64 * KB, 1);
    cu_event filled;
    gk_view l;
    CU(cuEventCreate(&filled, SYMM_CUDA_EVENT_DISABLE_TIMING));
    for (int i = 0; i < ROUNDS; i++) {
        cu_stream s = gk_new_stream(), t = gk_new_stream();
        char *left = take(a, 256, s), *p = take(a, 256, s);
        gk_fill(s, left, 256, 0x21);
        CU(cuEventRecord(filled, s));
        give_late(a, p, 256, s);
        T_OK(symmArenaEndStream(a, gk_stream(s)));
        if (i & 1) CU(cuStreamDestroy(s));
        char *q = take(a, 256, t);
        is_ours(&g, t, q, 256, i);
        CU(cuStreamWaitEvent(t, filled, 0));
        gk_check(t, left, 256, 0x21, g.seen, &l);
        give(a, q, t);
        give(a, left, t);
        T_OK(symmArenaEndStream(a, gk_stream(t)));
        gk_wait(g.comm, t);
        CU(cuStreamDestroy(t));
        if (!(i & 1)) CU(cuStreamDestroy(s));
        T_EQ(info(a).streams, 0);
    }
    T_CHECK(info(a).superblocks <= 4 && info(a).ended <= 4); /* those of twenty went on */
    CU(cuEventDestroy(filled));
    leave(&g, a);
}

static void streams_that_end_leave_what_they_had(void) {
    run(N, end_rank);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { WORKERS = 4, SLOTS = 8, PASSES = 300, MOST = 1 << 20 };

typedef struct {
    char *p;
    size_t bytes;
    unsigned char value;
    cu_event filled;
} parcel;

typedef struct { /* from one worker to the next; each end is one thread's */
    parcel at[SLOTS];
    _Atomic unsigned put, taken;
} belt;

typedef struct {
    symmArena_t a;
    int device;
    uint64_t seed;
    belt to[WORKERS];
} crowd;

typedef struct {
    crowd *c;
    int me;
    unsigned got;
    cu_stream stream;
    unsigned char *seen;
    gk_view looks[PASSES];
} worker;

/* What came is looked at, now and then late, and freed on this worker's stream. 0: nothing has
 * come. */
static int look_at_next(worker *w) {
    belt *b = &w->c->to[w->me];
    unsigned at = atomic_load_explicit(&b->taken, memory_order_relaxed);
    if (atomic_load_explicit(&b->put, memory_order_acquire) == at)
        return 0; /* pairs with hand_on */
    parcel *q = &b->at[at % SLOTS];
    CU(cuStreamWaitEvent(w->stream, q->filled, 0));
    if (ck_hash(w->c->seed, at, (uint64_t)w->me + 20) % 8 == 0) gk_delay(w->stream, 500);
    gk_check(w->stream, q->p, q->bytes, q->value, w->seen, &w->looks[w->got++]);
    give(w->c->a, q->p, w->stream);
    atomic_store_explicit(&b->taken, at + 1, memory_order_release); /* pairs with hand_on */
    return 1;
}

/* Three of four are small. */
static void hand_on(worker *w, unsigned i) {
    belt *b = &w->c->to[(w->me + 1) % WORKERS];
    uint64_t h = ck_hash(w->c->seed, i, (uint64_t)w->me);
    size_t bytes = h % 4 ? (h >> 8) % (16 * KB) + 1 : (h >> 8) % MOST + 1;
    while (i - atomic_load_explicit(&b->taken, memory_order_acquire) == SLOTS)
        if (!look_at_next(w)) sched_yield();
    parcel *q = &b->at[i % SLOTS];
    q->p = take(w->c->a, bytes, w->stream);
    q->bytes = bytes;
    q->value = (unsigned char)(h >> 40);
    gk_fill(w->stream, q->p, bytes, q->value);
    CU(cuEventRecord(q->filled, w->stream));
    atomic_store_explicit(&b->put, i + 1, memory_order_release);
}

/* Half of the workers use the NULL stream, which is one for all of them, with sub-arenas of their
 * own. */
static void work(int me, int n, void *arg) {
    crowd *c = arg;
    worker *w = calloc(1, sizeof *w);
    T_CHECK(w && n == WORKERS);
    T_OK(symmSetDevice(c->device));
    *w = (worker){.c = c, .me = me, .stream = me % 2 ? gk_new_stream() : NULL};
    w->seen = (unsigned char *)gk_pinned(MOST);
    for (unsigned i = 0; i < PASSES; i++) {
        hand_on(w, i);
        if (ck_hash(c->seed, i, 40) % 3) look_at_next(w);
    }
    while (w->got < PASSES)
        if (!look_at_next(w)) sched_yield();
    gk_wait(NULL, w->stream);
    T_OK(symmArenaEndStream(c->a, gk_stream(w->stream)));
    if (w->stream) CU(cuStreamDestroy(w->stream));
    gk_free_pinned((char *)w->seen);
    free(w);
}

static void crowd_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    crowd c = {.device = rank % g.j->devices, .seed = g.j->seed + (uint64_t)rank};
    c.a = open_arena(&g, 0, 48 * MB, 0, 1);
    for (int i = 0; i < WORKERS * SLOTS; i++)
        CU(cuEventCreate(&c.to[i / SLOTS].at[i % SLOTS].filled, SYMM_CUDA_EVENT_DISABLE_TIMING));
    T_THREADS(WORKERS, work, &c);
    for (int i = 0; i < WORKERS * SLOTS; i++)
        CU(cuEventDestroy(c.to[i / SLOTS].at[i % SLOTS].filled));
    T_CHECK(info(c.a).waits > 0);
    T_EQ(info(c.a).threads, 0);
    T_EQ(info(c.a).streams, 0);
    gk_wait(g.comm, NULL);
    leave(&g, c.a);
}

static void threads_hand_blocks_on(void) {
    run(N, crowd_rank);
}

/* ---- exhaustion ------------------------------------------------------------------------------ */

/* Where no memory is: the code, and the table on stderr. */
static void write_table(symmArena_t a, cu_stream s, char *text, size_t room) {
    char path[] = "/tmp/symm-arena-XXXXXX";
    void *p = NULL;
    int fd = mkstemp(path), keep = dup(2);
    T_CHECK(fd >= 0 && keep >= 0);
    T_EQ(dup2(fd, 2), 2);
    symmResult_t r = symmArenaAlloc(a, 3 * MB, 0, gk_stream(s), &p);
    T_EQ(dup2(keep, 2), 2);
    close(keep);
    T_EQ(r, symmOutOfMemory);
    T_CHECK(p == NULL);
    ssize_t got = pread(fd, text, room - 1, 0);
    T_CHECK(got > 0);
    text[got] = 0;
    close(fd);
    unlink(path);
}

/* Full of one stream's small blocks; what a second one frees late, a third one gets as one large
 * block. */
static void full_rank(int rank, int n, void *arg) {
    enum { SMALL = 32 << 10, MANY = (4 << 20) / SMALL };
    rig g = set_up(arg, rank, n);
    symmArena_t a = open_arena(&g, SYMM_ARENA_DUMP, 4 * MB, 64 * KB, 1);
    cu_stream s = g.stream[0], t = g.stream[1], u = g.stream[2];
    char *p[MANY], text[16384];
    T_EXPECT_WARNINGS();
    for (int i = 0; i < MANY; i++) p[i] = take(a, SMALL, s);
    write_table(a, u, text, sizeof text);
    T_MSG(text, "arena tested: local, arena size 4194304");
    T_MSG(text, "superblock size 65536");
    gk_delay(t, LATE_US);
    for (int i = 0; i < MANY; i++) {
        gk_fill(t, p[i], SMALL, 0x77);
        give(a, p[i], t);
    }
    char *q = take(a, 3 * MB, u);
    is_ours(&g, u, q, 3 * MB, 1);
    give(a, q, u);
    leave(&g, a);
}

static void exhaustion_writes_the_table_and_collects(void) {
    run(1, full_rank);
}

/* ---- captures -------------------------------------------------------------------------------- */

/* A captured stream is refused, and its capture is as before, though other streams go on in the
 * arena meanwhile. */
static void capture_rank(int rank, int n, void *arg) {
    static const int modes[] = {SYMM_CUDA_CAPTURE_MODE_GLOBAL, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL,
                                SYMM_CUDA_CAPTURE_MODE_RELAXED};
    rig g = set_up(arg, rank, n);
    symmArena_t a = open_arena(&g, 0, 4 * MB, 0, 1);
    cu_stream s = g.stream[0], t = g.stream[1], u = g.stream[2];
    gk_view l;
    void *q = &l;
    T_EXPECT_WARNINGS();
    T_ERR(symmArenaAlloc(a, 256, 0, gk_stream(SYMM_CUDA_STREAM_PER_THREAD), &q),
          symmInvalidArgument);
    for (int i = 0; i < 3; i++) {
        char *mine = take(a, 256, s);
        gk_capture(s, modes[i]);
        gk_fill(s, mine, 256, 0x21 + i);
        T_ERR(symmArenaAlloc(a, 256, 0, gk_stream(s), &q), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "being captured");
        T_CHECK(q == &l);
        T_ERR(symmArenaFree(a, mine, gk_stream(s)), symmInvalidUsage);
        char *p = take(a, 3 * MB, t); /* an event, a wait */
        give_late(a, p, 3 * MB, t);
        T_CHECK(take(a, 3 * MB, u) == p);
        gk_fill(u, p, 3 * MB, i);
        give(a, p, u);
        gk_graph graph = gk_captured(s);
        CU(cuGraphLaunch(graph.exec, s));
        gk_check(s, mine, 256, 0x21 + i, g.seen, &l);
        gk_wait(g.comm, s);
        gk_drop(&graph);
        give(a, mine, s);
    }
    leave(&g, a);
}

static void captures_are_refused_and_unharmed(void) {
    run(1, capture_rank);
}

/* ---- symmetric arenas ------------------------------------------------------------------------ */

enum { STRIPES = 3, CALLS = 400, PART = 48 << 10 };

typedef struct {
    symmArena_t a;
    int stripe, rank;
    const char *base;
    uint64_t sum;
} striped;

/* The same calls on each rank, at another pace. */
static void *use_stripe(void *arg) {
    striped *x = arg;
    void *p[20] = {NULL};
    for (uint64_t i = 0; i < CALLS; i++) {
        const uint64_t h = ck_hash(99, i, (uint64_t)x->stripe);
        void **q = &p[h % 20];
        if ((i + (unsigned)x->rank) % (unsigned)(x->rank + x->stripe + 2) == 0) sched_yield();
        T_OK(symmArenaFree(x->a, *q, NULL));
        T_OK(symmArenaAllocOn(x->a, x->stripe, (h >> 8) % 9000 + 1, 0, q));
        x->sum = ck_hash(x->sum, (uint64_t)((char *)*q - x->base), 1);
    }
    for (int k = 0; k < 20; k++) T_OK(symmArenaFree(x->a, p[k], NULL));
    return NULL;
}

/* Every rank writes its part of every rank's block, then reads the last rank's block where that has
 * it. */
static void meet_in(rig *g, char *p, int round) {
    cu_stream s = g->stream[0];
    char *pattern;
    void *at;
    symmRef_t ref;
    T_OK(symmRefGet(p, &ref));
    T_OK(symmHeapAlloc(g->heap, PART, 0, SYMM_ALLOC_LOCAL, &at));
    pattern = at;
    gk_fill(s, pattern, PART, round * 16 + g->rank + 1);
    for (int r = 0; r < g->n; r++) {
        T_OK(symmRefPtr(&ref, g->comm, r, &at));
        CU(cuMemcpyDtoDAsync((uintptr_t)at + (unsigned)(g->rank * PART), (uintptr_t)pattern, PART,
                             s));
    }
    T_OK(symmBarrier(g->comm, gk_stream(s)));
    for (int whose = 0; whose < 2; whose++) {
        T_OK(symmRefPtr(&ref, g->comm, whose ? g->n - 1 : g->rank, &at));
        gk_get(g->comm, s, g->seen, at, (uint64_t)g->n * PART);
        for (int i = 0; i < g->n * PART; i++)
            T_CHECKF(g->seen[i] == (unsigned char)(round * 16 + i / PART + 1), "byte %d is %d", i,
                     g->seen[i]);
    }
    gk_meet(g->j); /* all have read */
    T_OK(symmHeapFree(g->heap, pattern));
}

static void symmetric_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    _Atomic uint64_t(*sums)[STRIPES] = g.j->shared;
    symmArena_t a = open_arena(&g, SYMM_ARENA_SYM, 8 * MB, 512 * KB, STRIPES);
    symmHeapInfo_t h = {.size = sizeof h};
    striped x[STRIPES];
    pthread_t thread[STRIPES];
    void *p[STRIPES];
    T_OK(symmHeapQuery(g.heap, &h));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < STRIPES; i++) {
            x[i] =
                (striped){a, i, rank, (char *)(uintptr_t)(h.base + (uint64_t)rank * h.stride), 0};
            T_EQ(pthread_create(&thread[i], NULL, use_stripe, &x[i]), 0);
        }
        for (int i = 0; i < STRIPES; i++) T_EQ(pthread_join(thread[i], NULL), 0);
        for (int i = 0; i < STRIPES; i++) atomic_store(&sums[rank][i], x[i].sum);
        gk_meet(g.j);
        for (int i = 0; i < STRIPES; i++)
            T_CHECKF(sums[0][i] == x[i].sum && x[i].sum, "stripe %d of rank %d is not rank 0's", i,
                     rank);
        for (int i = 0; i < STRIPES; i++) T_OK(symmArenaAllocOn(a, i, (size_t)n * PART, 0, &p[i]));
        for (int i = 0; i < STRIPES; i++) meet_in(&g, p[i], 3 * round + i);
        int *words = p[round]; /* a collective in place */
        gk_reduce(g.comm, rank, n, words, (int *)(void *)g.seen, 4000, g.stream[0]);
        gk_meet(g.j);
        for (int i = 0; i < STRIPES; i++) T_OK(symmArenaFree(a, p[i], NULL));
    }
    T_OK(symmHeapCheck(g.heap));
    gk_meet(g.j);
    T_OK(symmArenaDestroy(a));
    tear_down(&g);
}

static void symmetric_blocks_are_met_by_peers(void) {
    static const int sizes[] = {2, 3, 5, 8};
    _Atomic uint64_t sums[8][STRIPES];
    for (int i = 0; i < 4; i++) {
        gk_job j = {.devices = gk_begin(), .n = sizes[i], .shared = sums};
        gk_run(&j, symmetric_rank);
    }
}

/* ---- again and again ------------------------------------------------------------------------- */

static void life_rank(int rank, int n, void *arg) {
    enum { LIVES = 60, WARM = 10 };
    static const uint64_t slack = 8 * MB; /* of the driver's own */
    rig g = set_up(arg, rank, n);
    size_t before = 0, now = 0, total;
    fk_gauges gauges = fk_take();
    for (int i = 0; i < LIVES; i++) {
        if (i == WARM) CU(cuMemGetInfo(&before, &total));
        if (i == WARM) gauges = fk_take();
        symmArena_t a = open_arena(&g, i % 2 ? SYMM_ARENA_SYM : 0, 8 * MB, 0, 1);
        for (int k = 0; k < 40; k++) {
            size_t bytes = (size_t)1 << (8 + k % 14);
            cu_stream s = i % 2 ? NULL : g.stream[k % STREAMS];
            char *p = take(a, bytes, s);
            gk_fill(g.stream[k % STREAMS], p, bytes, k);
            if (i % 2) gk_wait(g.comm, g.stream[k % STREAMS]);
            if (k % 3) give(a, p, s); /* the rest goes with the arena */
        }
        for (int k = 0; k < STREAMS; k++) gk_wait(g.comm, g.stream[k]);
        T_OK(symmArenaDestroy(a));
    }
    FK_UNCHANGED(&gauges);
    CU(cuMemGetInfo(&now, &total));
    T_CHECKF(now + slack >= before, "%zu bytes are free, were %zu", now, before);
    tear_down(&g);
}

static void lives_of_arenas_leave_nothing(void) {
    run(1, life_rank);
}

/* ---- what it costs --------------------------------------------------------------------------- */

/* Nanoseconds of a pair, the lowest of some rounds; t: another stream that frees. */
static double pair(const rig *g, symmArena_t a, size_t bytes, cu_stream s, cu_stream t) {
    enum { PAIRS = 5000, TRIES = 5 };
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        uint64_t since = symm_now_ns();
        for (int k = 0; k < PAIRS; k++) give(a, take(a, bytes, s), t);
        double ns = (double)(symm_now_ns() - since) / PAIRS;
        if (!i || ns < best) best = ns;
        gk_wait(g->comm, s);
        gk_wait(g->comm, t);
    }
    return best;
}

static void costs_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    symmArena_t a = open_arena(&g, 0, 32 * MB, 0, 1);
    cu_stream s = g.stream[0], t = g.stream[1];
    for (size_t bytes = 512; bytes <= 8 << 20; bytes *= 128) {
        gk_figure("arena: pair of %zu bytes on the NULL stream: %.0f ns", bytes,
                  pair(&g, a, bytes, NULL, NULL));
        gk_figure("arena: pair of %zu bytes on a stream: %.0f ns", bytes, pair(&g, a, bytes, s, s));
        gk_figure("arena: pair of %zu bytes, freed on another stream: %.0f ns", bytes,
                  pair(&g, a, bytes, s, t));
    }
    T_OK(symmArenaDestroy(a)); /* with what this thread keeps */
    tear_down(&g);
}

static void what_pairs_cost(void) {
    run(1, costs_rank);
}

T_MAIN(T(a_large_block_goes_from_stream_to_stream), T(a_small_block_freed_on_another_stream),
       T(superblocks_carry_their_order), T(streams_that_end_leave_what_they_had),
       T(threads_hand_blocks_on), T(exhaustion_writes_the_table_and_collects),
       T(captures_are_refused_and_unharmed), T(symmetric_blocks_are_met_by_peers),
       T(lives_of_arenas_leave_nothing), T(what_pairs_cost))
