/* unit_vec.c - vectors: growth in place and elsewhere, memory needed meanwhile, peers that read
 * while it grows, shrinking, what is refused, each failpoint on each rank. Each test runs on
 * processes and on thread ranks where it does not say otherwise. */
#include "graph_kit.h"
#include "heap_kit.h"
#include "symm_vec.h"

enum { RANKS = 3 };

static void both(void (*fn)(void *)) {
    hk_processes(RANKS, fn, NULL);
    hk_threads(RANKS, fn, NULL);
}

static symmVec_t make(hk *k, uint64_t max, unsigned flags) {
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    symmVec_t vec = NULL;
    c.max = max;
    c.flags = flags;
    c.chunk = 4 * HK_MB;
    c.name = "v";
    T_OK(symmVecCreate(k->comm, &c, &vec));
    return vec;
}

static char *part(symmVec_t vec, int rank) {
    void *p = NULL;
    T_OK(symmVecPtr(vec, rank, &p));
    return p;
}

static uint64_t size_of(symmVec_t vec) {
    uint64_t bytes;
    T_OK(symmVecSize(vec, &bytes));
    return bytes;
}

static void paint(hk *k, symmVec_t vec, uint64_t from) {
    const uint64_t bytes = size_of(vec);
    for (uint64_t at = from; at + 64 <= bytes; at += HK_MB / 2)
        hk_fill(part(vec, k->rank) + at, 64, k->rank, (int)(at >> 19));
}

static void seen(hk *k, symmVec_t vec) {
    const uint64_t bytes = size_of(vec);
    T_OK(symmBarrier(k->comm, NULL));
    for (int r = 0; r < k->n; r++)
        for (uint64_t at = 0; at + 64 <= bytes; at += HK_MB / 2)
            hk_holds(part(vec, r) + at, 64, r, (int)(at >> 19));
    T_OK(symmBarrier(k->comm, NULL));
}

/* ---- in place ---- */

static void in_place(void *arg) {
    hk *k = arg;
    fk_gauges before = fk_take();
    hk_barrier(k);
    symmVec_t vec = make(k, 64 * HK_MB, 0);
    char *at = part(vec, k->rank), *peer = part(vec, (k->rank + 1) % k->n);
    T_EQ(size_of(vec), 0);
    for (uint64_t mb = 3; mb <= 60; mb += 3) {
        const int64_t created = SYMM_STAT_GET(created_bytes);
        const uint64_t old = size_of(vec);
        T_OK(symmVecGrow(vec, mb * HK_MB));
        hk_barrier(k);
        /* Memory is made for the new bytes, on this rank (thread ranks: on all), and for nothing
         * else, not for a moment. */
        const uint64_t had = (old + 2 * HK_MB - 1) / (2 * HK_MB),
                       has = (mb * HK_MB + 2 * HK_MB - 1) / (2 * HK_MB);
        if (!k->threads) T_EQ(SYMM_STAT_GET(created_bytes) - created, (has - had) * 2 * HK_MB);
        paint(k, vec, (old + HK_MB / 2 - 1) / (HK_MB / 2) * (HK_MB / 2));
        T_CHECK(part(vec, k->rank) == at && part(vec, (k->rank + 1) % k->n) == peer);
        hk_barrier(k);
    }
    seen(k, vec);
    int *n = (int *)(void *)at;
    symmExplain_t plan = {.size = sizeof plan};
    T_OK(symmExplain(k->comm, symmCollAllReduce, n, n + (6 << 20), 5 << 20, symmInt32, symmSum, 0,
                     &plan));
    T_EQ(plan.zeroCopySend + plan.zeroCopyRecv, 2);
    fk_reduce(k->comm, k->rank, k->n, n, n + (6 << 20), 5 << 20, NULL); /* over many pieces */
    symmRef_t ref;
    symmMemInfo_t info = {.size = sizeof info};
    T_OK(symmRefGet(at + 100, &ref));
    T_EQ(ref.len, 60 * HK_MB - 100);
    T_OK(symmMemQuery(at + 100, &info));
    T_CHECK(info.heap == NULL && info.block == at && info.symmetric == 1);
    T_EQ(info.bytes, 60 * HK_MB);
    T_OK(symmVecDestroy(vec));
    T_ERR(symmVecDestroy(vec), symmInvalidArgument);
    hk_barrier(k);
    if (!k->threads) FK_COLLECTED(k->comm, &before);
    if (k->threads && k->rank == 0) FK_UNCHANGED(&before);
    hk_barrier(k);
}
static void growth_in_place_moves_nothing_and_needs_the_new_bytes_only(void) {
    T_EXPECT_WARNINGS();
    both(in_place);
}

/* ---- elsewhere ---- */

static void elsewhere(void *arg) {
    hk *k = arg;
    fk_gauges before = fk_take();
    hk_barrier(k);
    symmVec_t vec = make(k, 8 * HK_MB, 0);
    T_OK(symmVecGrow(vec, 8 * HK_MB));
    paint(k, vec, 0);
    int moves = 0;
    for (uint64_t mb = 10; mb <= 80; mb += 10) {
        const int64_t created = SYMM_STAT_GET(created_bytes);
        char *old = part(vec, k->rank), *peer = part(vec, (k->rank + 1) % k->n);
        const uint64_t was = size_of(vec);
        T_OK(symmVecGrow(vec, mb * HK_MB));
        if (!k->threads) T_EQ(SYMM_STAT_GET(created_bytes) - created, mb * HK_MB - was);
        if (part(vec, k->rank) != old) {
            moves++;
            hk_holds(old, 64, k->rank, 0); /* good until the next one */
            hk_holds(peer, 64, (k->rank + 1) % k->n, 0);
            old[64] = 77; /* the same memory, not a copy */
            T_EQ(part(vec, k->rank)[64], 77);
        }
        paint(k, vec, was);
        seen(k, vec);
    }
    T_CHECKF(moves >= 2 && moves <= 7, "%d moves", moves);
    T_OK(symmVecReserve(vec, 300 * HK_MB));
    seen(k, vec);
    char *at = part(vec, k->rank);
    T_OK(symmVecReserve(vec, 200 * HK_MB));
    T_OK(symmVecGrow(vec, 200 * HK_MB));
    T_CHECK(part(vec, k->rank) == at);
    fk_works(k->comm, k->rank, k->n);
    T_OK(symmVecDestroy(vec));
    hk_barrier(k);
    if (!k->threads) FK_COLLECTED(k->comm, &before);
    if (k->threads && k->rank == 0) FK_UNCHANGED(&before);
    hk_barrier(k);
}
static void a_range_that_is_too_small_is_left_without_a_copy(void) {
    both(elsewhere);
}

static void captured(void *arg) {
    hk *k = arg;
    symmStream_t stream;
    symmGraph_t graph;
    symmVec_t vec = make(k, 4 * HK_MB, 0);
    T_OK(symmVecGrow(vec, 4 * HK_MB));
    int *p = (int *)(void *)part(vec, k->rank);
    T_OK(symmStreamCreate(&stream));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmAllReduce(p, p, 100000, symmInt32, symmSum, k->comm, stream));
    T_OK(symmStreamEndCapture(stream, &graph));
    for (uint64_t mb = 8; mb < 64; mb *= 2) T_OK(symmVecGrow(vec, mb * HK_MB));
    for (int i = 0; i < 100000; i++) p[i] = i * 3 + k->rank;
    T_OK(symmGraphLaunch(xg_exec(graph), stream));
    T_OK(symmStreamSynchronize(stream));
    int *now = (int *)(void *)part(vec, k->rank);
    T_CHECK(now != p);
    for (int i = 0; i < 100000; i++) T_EQ(now[i], k->n * 3 * i + k->n * (k->n - 1) / 2);
    T_OK(xg_destroy(graph));
    T_OK(symmStreamDestroy(stream));
    T_OK(symmVecDestroy(vec));
}
static void a_captured_call_keeps_the_range_it_knows(void) {
    both(captured);
}

/* ---- readers ---- */

enum { WORD = 4096, STEPS = 24 };

typedef struct {
    hk *k;
    symmVec_t vec;
    _Atomic int over;
    _Atomic uint64_t reads, longest;
} reading;

static uint64_t word_of(int rank, uint64_t i) {
    return ((uint64_t)rank + 1) << 48 | (i * 2654435761u + 1);
}

/* Whatever all ranks have is there, in every rank's part; its first word of each page is zero or
 * what the owner writes there. */
static void look_around(reading *g) {
    uint64_t bytes;
    T_OK(symmVecSync(g->vec, &bytes));
    for (int r = 0; r < g->k->n; r++) {
        const char *p = part(g->vec, r);
        for (uint64_t at = 0; at < bytes; at += WORD * 16) {
            uint64_t v =
                __atomic_load_n((const uint64_t *)(const void *)(p + at), __ATOMIC_RELAXED);
            T_CHECKF(v == 0 || v == word_of(r, at), "rank %d, byte %llu: %llx", r,
                     (unsigned long long)at, (unsigned long long)v);
        }
    }
    atomic_fetch_add(&g->reads, 1);
    if (bytes > atomic_load(&g->longest)) atomic_store(&g->longest, bytes);
}

static void one_side(int side, int n, void *arg) {
    reading *g = arg;
    (void)n;
    if (side) {
        while (!atomic_load(&g->over)) look_around(g);
        look_around(g);
        return;
    }
    for (uint64_t step = 1; step <= STEPS; step++) {
        const uint64_t old = size_of(g->vec), bytes = step * HK_MB + step * 1000 / 8 * 8;
        T_OK(symmVecGrow(g->vec, bytes));
        char *p = part(g->vec, g->k->rank);
        for (uint64_t at = (old + WORD * 16 - 1) / (WORD * 16) * (WORD * 16); at < bytes;
             at += WORD * 16)
            __atomic_store_n((uint64_t *)(void *)(p + at), word_of(g->k->rank, at),
                             __ATOMIC_RELAXED);
    }
    T_OK(symmBarrier(g->k->comm, NULL));
    atomic_store(&g->over, 1);
}

static void readers(void *arg) {
    hk *k = arg;
    reading g = {.k = k, .vec = make(k, 64 * HK_MB, SYMM_VEC_FIXED)};
    T_THREADS(2, one_side, &g);
    T_CHECK(g.reads > 0);
    T_EQ(g.longest, STEPS * HK_MB + STEPS * 1000 / 8 * 8);
    hk_barrier(k);
    T_OK(symmVecDestroy(g.vec));
}
static void peers_read_while_it_grows(void) {
    both(readers);
}

/* ---- shrink, refuse ---- */

static void shrink(void *arg) {
    hk *k = arg;
    symmVec_t vec = make(k, 8 * HK_MB, 0);
    T_OK(symmVecGrow(vec, 31 * HK_MB)); /* has moved */
    paint(k, vec, 0);
    hk_barrier(k);
    const int64_t handles = SYMM_STAT_GET(handles);
    hk_barrier(k);
    T_OK(symmVecShrink(vec, 9 * HK_MB));
    T_EQ(size_of(vec), 9 * HK_MB);
    seen(k, vec);
    if (!k->threads) fk_collect(k->comm); /* the range that it left */
    hk_barrier(k);
    T_CHECK(SYMM_STAT_GET(handles) < handles);
    T_OK(symmVecGrow(vec, 31 * HK_MB));
    T_EQ(part(vec, k->rank)[20 * HK_MB], 0); /* new memory */
    T_OK(symmVecShrink(vec, 0));
    T_EQ(size_of(vec), 0);
    T_OK(symmVecGrow(vec, 1));
    T_OK(symmVecDestroy(vec));
}
static void shrinking_gives_back_whole_pieces(void) {
    both(shrink);
}

/* Vectors with the default `max` use the window space up; the error says what to set. */
static void defaults(void *arg) {
    hk *k = arg;
    symmVec_t vec[4], small;
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    for (int i = 0; i < 3; i++) T_OK(symmVecCreate(k->comm, NULL, &vec[i]));
    T_ERR(symmVecCreate(k->comm, NULL, &vec[3]), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL),
          "1073741824 bytes do not fit in the window space (4294967296 per");
    unsigned long long hole = 0; /* all of the last quarter but for the communicator's own */
    sscanf(strstr(symmGetLastError(NULL), "per rank, "), "per rank, %llu", &hole);
    T_CHECK(hole > 900 * HK_MB && hole < 1024 * HK_MB);
    T_MSG(symmGetLastError(NULL), " free in one piece): raise SYMM_WIN_STRIDE, or lower config.");
    T_MSG(symmGetLastError(NULL), "config.max of vectors");
    c.max = 64 * HK_MB;
    T_OK(symmVecCreate(k->comm, &c, &small));
    T_OK(symmVecGrow(small, HK_MB));
    c.max = 1ull << 40;
    T_ERR(symmVecCreate(k->comm, &c, &vec[3]), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "config.max=1099511627776");
    T_OK(symmVecDestroy(small));
    for (int i = 0; i < 3; i++) T_OK(symmVecDestroy(vec[i]));
}
static void what_to_set_is_said_where_addresses_run_out(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, defaults, NULL);
}

static void refused(void *arg) {
    hk *k = arg;
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    symmVec_t vec = NULL, fixed = make(k, 4 * HK_MB, SYMM_VEC_FIXED);
    uint64_t bytes;
    void *p;
    c.flags = k->rank == 1 ? 8 : 0;
    T_ERR(symmVecCreate(k->comm, &c, &vec), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "flags=8");
    T_ERR(symmVecCreate(k->comm, NULL, NULL), symmInvalidArgument);
    T_OK(symmVecGrow(fixed, 3 * HK_MB));
    T_ERR(symmVecGrow(fixed, 2 * HK_MB), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "vector v has 3145728");
    T_ERR(symmVecShrink(fixed, 4 * HK_MB), symmInvalidArgument);
    T_ERR(symmVecGrow(fixed, 5 * HK_MB), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "is SYMM_VEC_FIXED");
    T_ERR(symmVecReserve(fixed, 5 * HK_MB), symmOutOfMemory);
    T_ERR(symmVecGrow(fixed, UINT64_MAX), symmOutOfMemory);
    T_ERR(symmVecPtr(fixed, RANKS, &p), symmInvalidArgument);
    T_ERR(symmVecPtr(fixed, -1, &p), symmInvalidArgument);
    T_ERR(symmVecPtr(fixed, 0, NULL), symmInvalidArgument);
    T_ERR(symmVecSize(fixed, NULL), symmInvalidArgument);
    T_ERR(symmVecSync(vec, &bytes), symmInvalidArgument);
    T_ERR(symmVecGrow(vec, 1), symmInvalidArgument);
    T_EQ(size_of(fixed), 3 * HK_MB);
    vec = make(k, 4 * HK_MB, 0);
    T_OK(symmVecGrow(vec, 100));
    T_ERR(symmVecGrow(vec, 1ull << 40), symmOutOfMemory);
    /* The addresses of this size are not to be had: every rank says so, and it is as it was. */
    if (!k->threads) {
        char *at = part(vec, k->rank);
        T_ERR(symmVecReserve(vec, 4095 * HK_MB), symmOutOfMemory);
        T_CHECK(part(vec, k->rank) == at);
        T_OK(symmVecGrow(vec, 5 * HK_MB));
    }
    T_ERR(symmHeapDestroy((symmHeap_t)(void *)vec), symmInvalidArgument);
}
static void wrong_calls_get_a_code_and_change_nothing(void) {
    T_EXPECT_WARNINGS();
    both(refused);
}

/* Growth within memory that is there sends no message; who grows to another size is found all the
 * same. */
static void diverge(void *arg) {
    hk *k = arg;
    symmVec_t vec = make(k, 64 * HK_MB, 0);
    T_OK(symmVecGrow(vec, 1000));
    T_OK(symmVecGrow(vec, k->rank == 2 ? 2001 : 2000));
    T_ERR(symmBarrier(k->comm, NULL), symmMismatch);
    T_MSG(symmGetLastError(NULL), "a new size of 2001 bytes at offset 0, from unit_vec");
}
static void other_sizes_are_found_at_the_next_collective(void) {
    T_EXPECT_WARNINGS();
    both(diverge);
}

/* Addresses of another length: told at once, and nothing has happened. */
static void reserve_apart(void *arg) {
    hk *k = arg;
    symmVec_t vec = make(k, 4 * HK_MB, 0);
    T_OK(symmVecGrow(vec, 3 * HK_MB));
    paint(k, vec, 0);
    char *at = part(vec, k->rank);
    T_ERR(symmVecReserve(vec, (k->rank == 1 ? 40 : 20) * HK_MB), symmMismatch);
    T_MSG(symmGetLastError(NULL),
          "moving a vector: rank 0 reserves addresses for 20971520 bytes, rank 1 for 41943040");
    T_CHECK(part(vec, k->rank) == at);
    seen(k, vec);
    T_OK(symmVecGrow(vec, 9 * HK_MB));
    paint(k, vec, 3 * HK_MB);
    seen(k, vec);
    T_OK(symmVecDestroy(vec));
}
static void ranks_that_reserve_other_lengths_are_told_at_once(void) {
    T_EXPECT_WARNINGS();
    both(reserve_apart);
}

/* Another object, or one that is fixed: likewise. */
static void make_apart(void *arg) {
    hk *k = arg;
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    symmHeapConfig_t as_heap = hk_config(4 * HK_MB, 0, 0);
    symmVec_t vec = NULL;
    symmHeap_t heap = NULL;
    c.max = c.chunk = as_heap.chunk = 4 * HK_MB;
    c.flags = k->rank == 2 ? SYMM_VEC_FIXED : 0;
    T_ERR(symmVecCreate(k->comm, &c, &vec), symmMismatch);
    T_MSG(symmGetLastError(NULL),
          "rank 0 makes a vector that may move, rank 2 a vector that is SYMM_VEC_FIXED");
    c.flags = 0;
    T_ERR(k->rank == 1 ? symmHeapCreate(k->comm, &as_heap, &heap)
                       : symmVecCreate(k->comm, &c, &vec),
          symmMismatch);
    T_MSG(symmGetLastError(NULL), "rank 0 makes a vector that may move, rank 1 a heap");
    T_CHECK(!vec && !heap);
    T_OK(symmVecCreate(k->comm, &c, &vec));
    T_OK(symmVecGrow(vec, 5 * HK_MB));
    T_OK(symmVecDestroy(vec));
}
static void ranks_that_make_other_objects_are_told_at_once(void) {
    T_EXPECT_WARNINGS();
    both(make_apart);
}

/* Who shrinks to another size is told at once, and nothing has happened. */
static void shrink_apart(void *arg) {
    hk *k = arg;
    symmVec_t vec = make(k, 64 * HK_MB, 0);
    T_OK(symmVecGrow(vec, 9 * HK_MB));
    paint(k, vec, 0);
    T_ERR(symmVecShrink(vec, k->rank == 1 ? 3 * HK_MB : 5 * HK_MB), symmMismatch);
    T_MSG(symmGetLastError(NULL),
          "shrinking a vector: keep is 5242880 on rank 0, 3145728 on rank 1");
    T_EQ(size_of(vec), 9 * HK_MB);
    seen(k, vec);
    T_ERR(symmVecShrink(vec, k->rank == 1 ? 10 * HK_MB : 5 * HK_MB), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "bytes=10485760: vector v has 9437184 (symmVecGrow)");
    T_EQ(size_of(vec), 9 * HK_MB);
    seen(k, vec);
    T_OK(symmVecShrink(vec, 5 * HK_MB));
    seen(k, vec);
    T_OK(symmVecDestroy(vec));
}
static void ranks_that_shrink_to_other_sizes_are_told_at_once(void) {
    T_EXPECT_WARNINGS();
    both(shrink_apart);
}

/* ---- failpoints ---- */

/* One call on a vector, which fails on one rank. */
typedef struct {
    uint64_t max, had, want; /* MiB; addresses, size before, size asked for */
    symmResult_t (*call)(symmVec_t, uint64_t);
    uint64_t has; /* size afterwards */
    int moves;
} step;

static void changed(hk *k, const step *s, symmVec_t vec, const char *at) {
    T_EQ(size_of(vec), s->has * HK_MB);
    T_CHECK((part(vec, k->rank) != at) == s->moves);
    if (s->has > s->had) paint(k, vec, s->had * HK_MB);
    seen(k, vec);
    /* There is memory behind the size, on all ranks, whatever was refused before. */
    T_OK(symmVecGrow(vec, 40 * HK_MB));
    paint(k, vec, s->has * HK_MB);
    seen(k, vec);
}

static void unchanged(hk *k, const step *s, symmVec_t vec, const char *at) {
    T_CHECK(part(vec, k->rank) == at);
    T_EQ(size_of(vec), s->had * HK_MB);
    seen(k, vec);
}

static void fail_step(hk *k, int point, const step *s) {
    fk *f = k->f;
    char spec[96];
    symmVec_t vec = make(k, s->max * HK_MB, 0);
    if (s->had) T_OK(symmVecGrow(vec, s->had * HK_MB));
    paint(k, vec, 0);
    char *at = part(vec, k->rank);
    fk_gauges before = fk_take();
    snprintf(spec, sizeof spec, "%s:error:1:%d", symm_fail_name(point), f->victim);
    hk_barrier(k);
    if (k->rank == f->victim) T_EQ(symm_fail_arm(spec), 0);
    fk_note(f, k->rank, s->call(vec, s->want * HK_MB));
    if (k->rank == f->victim && symm_fail_hits(point)) {
        atomic_store(&f->hits[0], 1);
        T_CHECKF(f->k.code[k->rank], "%s failed, and nothing came of it", symm_fail_name(point));
    }
    T_EQ(symm_fail_arm(""), 0);
    hk_barrier(k);
    const int code = f->k.code[f->victim];
    for (int r = 0; r < k->n; r++)
        T_CHECKF(f->k.code[r] == code, "%s of rank %d: rank %d has %d, not %d",
                 symm_fail_name(point), f->victim, r, f->k.code[r], code);
    hk_barrier(k);
    symmResult_t async;
    T_OK(symmCommGetAsyncError(k->comm, &async));
    if (async) { /* some failures of an agreement end the communicator, here as anywhere */
        T_EQ(size_of(vec), s->had * HK_MB);
        if (s->had) hk_holds(at, 64, k->rank, 0);
        return;
    }
    if (code) {
        FK_UNCHANGED(&before);
        unchanged(k, s, vec, at);
        T_OK(s->call(vec, s->want * HK_MB));
    }
    changed(k, s, vec, at);
    T_OK(symmVecDestroy(vec));
}

static void fail_growth(hk *k, int point, int moves) {
    fail_step(k, point, &(step){moves ? 8 : 64, 7, 15, symmVecGrow, 15, moves});
}
static void fail_first(hk *k, int point, int moves) {
    fail_step(k, point, &(step){moves ? 8 : 64, 0, 15, symmVecGrow, 15, moves});
}
static void fail_reserve(hk *k, int point, int empty) {
    fail_step(k, point, &(step){8, empty ? 0 : 7, 30, symmVecReserve, empty ? 0 : 7, 1});
}
static void fail_shrink(hk *k, int point, int all) {
    fail_step(k, point, &(step){64, 15, all ? 0 : 3, symmVecShrink, all ? 0 : 3, 0});
}

static void a_failure_on_one_rank_changes_nothing(void) {
    hk_failpoints("vec", fail_growth);
}
static void a_first_growth_that_fails_on_one_rank_changes_nothing(void) {
    hk_failpoints("vec_first", fail_first);
}
static void a_reservation_that_fails_on_one_rank_changes_nothing(void) {
    hk_failpoints("vec_reserve", fail_reserve);
}
static void a_shrinking_that_fails_on_one_rank_changes_nothing(void) {
    hk_failpoints("vec_shrink", fail_shrink);
}

T_MAIN(T(growth_in_place_moves_nothing_and_needs_the_new_bytes_only),
       T(a_range_that_is_too_small_is_left_without_a_copy),
       T(a_captured_call_keeps_the_range_it_knows), T(peers_read_while_it_grows),
       T(shrinking_gives_back_whole_pieces), T(what_to_set_is_said_where_addresses_run_out),
       T(wrong_calls_get_a_code_and_change_nothing),
       T(other_sizes_are_found_at_the_next_collective),
       T(ranks_that_reserve_other_lengths_are_told_at_once),
       T(ranks_that_make_other_objects_are_told_at_once),
       T(ranks_that_shrink_to_other_sizes_are_told_at_once),
       T(a_failure_on_one_rank_changes_nothing),
       T(a_first_growth_that_fails_on_one_rank_changes_nothing),
       T(a_reservation_that_fails_on_one_rank_changes_nothing),
       T(a_shrinking_that_fails_on_one_rank_changes_nothing))
