/* gpu_guard.c - guard mode inside arenas in GPU memory: what streams write late, before and after a
 * free, blocks that change streams, captures, symmetric arenas that peers write into. Ranks are
 * threads, some with threads of their own. */
#include "fault_kit.h"
#include "gpu_kit.h"
#include "symm_arena.h"

#define KB (1ull << 10)
#define MB (1ull << 20)
enum { N = 2, LATE_US = 2000 };

typedef struct {
    gk_job *j;
    int rank, n;
    symmComm_t comm;
    symmHeap_t heap;
    symmArena_t a;
    cu_stream s, t;
} rig;

static symmArena_t open_arena(const rig *g, unsigned flags) {
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    symmArena_t a = NULL;
    c.flags = flags;
    c.bytes = 8 * MB;
    c.superblock = 64 * KB;
    c.name = "tested";
    T_OK(symmArenaCreate(g->heap, &c, &a));
    return a;
}

static rig set_up(gk_job *j, int rank, int n) {
    rig g = {.j = j, .rank = rank, .n = n, .comm = j->comms[rank]};
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    T_OK(symmSetDevice(rank % j->devices));
    c.reserve = 256 * MB;
    c.symBytes = 16 * MB;
    c.localBytes = 16 * MB;
    c.guard = 1;
    T_OK(symmHeapCreate(g.comm, &c, &g.heap));
    g.a = open_arena(&g, 0);
    g.s = gk_new_stream();
    g.t = gk_new_stream();
    gk_meet(j);
    return g;
}

/* Nothing is damaged, on any rank. */
static void is_sound(const rig *g) {
    gk_meet(g->j);
    T_OK(symmHeapCheck(g->heap));
    gk_meet(g->j);
}

static void tear_down(rig *g) {
    gk_wait(g->comm, g->s);
    gk_wait(g->comm, g->t);
    gk_meet(g->j);
    CU(cuStreamDestroy(g->s));
    CU(cuStreamDestroy(g->t));
    T_OK(symmArenaDestroy(g->a));
    T_OK(symmHeapDestroy(g->heap));
    gk_meet(g->j);
    T_OK(symmCommDestroy(g->comm));
    gk_meet(g->j);
}

static void run(int n, t_rank_fn fn) {
    gk_job j = {.devices = gk_begin(), .n = n, .seed = ck_seed()};
    T_EXPECT_WARNINGS();
    gk_run(&j, fn);
}

static char *take(symmArena_t a, size_t bytes, cu_stream s) {
    void *p = NULL;
    T_OK(symmArenaAlloc(a, bytes, 0, gk_stream(s), &p));
    T_CHECK(p != NULL);
    return p;
}

static void fill_late(cu_stream s, char *p, size_t bytes) {
    gk_delay(s, LATE_US);
    gk_fill(s, p, bytes, 7);
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Freed on the stream that has the block, and on another one; small and large. */
static void late_rank(int rank, int n, void *arg) {
    static const size_t sizes[] = {1, 1001, 40003, 3 << 20};
    rig g = set_up(arg, rank, n);
    char says[80];
    for (int i = 0; i < 16; i++) {
        const size_t bytes = sizes[i % 4];
        cu_stream frees = i / 4 % 2 ? g.t : g.s;
        char *p = take(g.a, bytes, g.s);
        fill_late(frees, p, bytes);
        T_OK(symmArenaFree(g.a, p, gk_stream(frees)));
        is_sound(&g);
        p = take(g.a, bytes, i % 3 ? g.s : g.t);
        fill_late(frees, p, bytes + 1);
        snprintf(says, sizeof says, "byte %zu was written, of a block of %zu bytes", bytes, bytes);
        T_ERR(symmArenaFree(g.a, p, gk_stream(frees)), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), says);
        T_ERR(symmArenaFree(g.a, p, gk_stream(frees)), symmInvalidArgument);
        is_sound(&g);
    }
    tear_down(&g);
}

static void an_overrun_by_one_byte_is_found(void) {
    run(N, late_rank);
}

static void after_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    char *p = take(g.a, 5000, g.s);
    T_OK(symmArenaFree(g.a, p, gk_stream(g.s)));
    is_sound(&g);
    gk_fill(g.s, p + 4321, 1, 7);
    gk_wait(g.comm, g.s);
    for (int i = 0; i < 2; i++) { /* by the check; by who gets the bytes, and remembered */
        gk_meet(g.j);
        T_ERR(symmHeapCheck(g.heap), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "was written after it was freed");
        gk_meet(g.j);
        if (!i) T_CHECK(take(g.a, 5000, g.s) == p);
    }
    T_OK(symmArenaFree(g.a, p, gk_stream(g.s)));
    tear_down(&g);
}

static void a_write_after_free_is_found(void) {
    run(N, after_rank);
}

/* Blocks go from stream to stream while both work; nobody writes too far, and nobody is blamed. */
static void busy_rank(int rank, int n, void *arg) {
    enum { LIVE = 16, CALLS = 600 };
    rig g = set_up(arg, rank, n);
    char *p[LIVE] = {NULL};
    uint64_t state = (uint64_t)rank + 3;
    for (int i = 0; i < CALLS; i++) {
        t_roll(&state);
        char **q = &p[(state >> 33) % LIVE];
        cu_stream s = state >> 60 & 1 ? g.t : g.s;
        if (*q) T_OK(symmArenaFree(g.a, *q, gk_stream(s)));
        const size_t bytes =
            state >> 40 & 7 ? (state >> 43) % 5000 + 1 : (state >> 43) % 100000 + 1;
        *q = take(g.a, bytes, s);
        gk_fill(s, *q, bytes, i);
        CU(cuStreamSynchronize(s)); /* it may be freed on the other one */
    }
    for (int i = 0; i < LIVE; i++) T_OK(symmArenaFree(g.a, p[i], gk_stream(g.s)));
    is_sound(&g);
    tear_down(&g);
}

static void blocks_that_change_streams_are_sound(void) {
    run(N, busy_rank);
}

/* ---- captures -------------------------------------------------------------------------------- */

/* A capture of another stream is as before, and what others free is looked at; but the legacy
 * stream's block is left alone while what that stream waits for is captured. */
static void capture_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    cu_stream blocking = NULL;
    CU(cuStreamCreate(&blocking, 0));
    char *mine = take(g.a, 256, g.s), *p = take(g.a, 1000, NULL), *q;
    for (int i = 0; i < 2; i++) {
        cu_stream captured = i ? blocking : g.s;
        q = take(g.a, 3000, g.t);
        gk_capture(captured, SYMM_CUDA_CAPTURE_MODE_GLOBAL);
        gk_fill(captured, mine, 256, 0x21);
        fill_late(g.t, q, 3001);
        T_ERR(symmArenaFree(g.a, q, gk_stream(g.t)), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 3000 was written");
        T_OK(symmArenaFree(g.a, p, NULL));
        p = take(g.a, 1000, NULL);
        gk_graph graph = gk_captured(captured);
        CU(cuGraphLaunch(graph.exec, captured));
        gk_wait(g.comm, captured);
        gk_drop(&graph);
        is_sound(&g);
    }
    T_OK(symmArenaFree(g.a, p, NULL));
    T_OK(symmArenaFree(g.a, mine, gk_stream(g.s)));
    is_sound(&g);
    CU(cuStreamDestroy(blocking));
    tear_down(&g);
}

static void captures_are_unharmed(void) {
    run(1, capture_rank);
}

/* ---- symmetric arenas ------------------------------------------------------------------------ */

/* A peer writes all of a block, and then one byte more. */
static void symmetric_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, n);
    symmArena_t a = open_arena(&g, SYMM_ARENA_SYM);
    symmHeapInfo_t h = {.size = sizeof h};
    _Atomic uint64_t *offs = g.j->shared;
    symmRef_t ref;
    void *at;
    T_OK(symmHeapQuery(g.heap, &h));
    for (int far = 0; far < 2; far++) {
        char *p = take(a, 5001, NULL);
        atomic_store(&offs[rank], (uint64_t)(uintptr_t)p - h.base - (uint64_t)rank * h.stride);
        T_OK(symmRefGet(p, &ref));
        T_EQ(ref.len, 5001);
        gk_meet(g.j); /* all have it */
        T_OK(symmRefPtr(&ref, g.comm, (rank + 1) % n, &at));
        gk_fill(g.s, at, 5001 + (size_t)far, rank + 1);
        gk_wait(g.comm, g.s);
        gk_meet(g.j);
        T_EQ(atomic_load(&offs[0]), atomic_load(&offs[rank]));
        T_EQ(symmArenaFree(a, p, NULL), far ? symmInvalidUsage : symmSuccess);
        is_sound(&g);
    }
    T_OK(symmArenaDestroy(a));
    tear_down(&g);
}

static void a_peers_overrun_is_found(void) {
    _Atomic uint64_t offs[3];
    gk_job j = {.devices = gk_begin(), .n = 3, .shared = offs};
    T_EXPECT_WARNINGS();
    gk_run(&j, symmetric_rank);
}

T_MAIN(T(an_overrun_by_one_byte_is_found), T(a_write_after_free_is_found),
       T(blocks_that_change_streams_are_sound), T(captures_are_unharmed),
       T(a_peers_overrun_is_found))
