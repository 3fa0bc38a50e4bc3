/* unit_gpu_arena.c - arenas of a heap on a GPU, on the fake CUDA driver: which streams wait for
 * which, by which calls of the driver, and what becomes of it when one is refused. The test's
 * thread, and those of queued streams. */
#include <unistd.h>

#include "fgpu_kit.h"
#include "base/fail.h"
#include "symm_arena.h"

typedef struct {
    symmComm_t comm;
    symmHeap_t heap;
    symmArena_t arena;
    symmStream_t s, t;
} fix;

static uint32_t flags = SYMM_ARENA_LATE; /* of most tests here */

static fix open_fix_of(int queued, uint64_t bytes) {
    fix f = {0};
    symmHeapConfig_t h = SYMM_HEAP_CONFIG_INITIALIZER;
    symmArenaConfig_t a = SYMM_ARENA_CONFIG_INITIALIZER;
    gk_start(1, queued);
    setenv("SYMM_WIN_STRIDE", "1G", 1);
    h.reserve = 256 * GK_MB;
    h.localBytes = 32 * GK_MB;
    a.bytes = bytes;
    a.flags = flags;
    a.piece = 4 * GK_MB;
    gk_open(&f.comm, 1, NULL);
    T_OK(symmHeapCreate(f.comm, &h, &f.heap));
    T_OK(symmArenaCreate(f.heap, &a, &f.arena));
    f.s = gk_user(gk_stream(0));
    f.t = gk_user(gk_stream(0));
    return f;
}

/* queued: streams run in threads of their own, at whose end ThreadSanitizer takes a second. */
static fix open_fix(int queued) {
    return open_fix_of(queued, 4 * GK_MB);
}

static void end_stream(symmStream_t s) {
    symm_cuda_scope scope;
    T_OK(symm_cuda_push(0, &scope));
    T_EQ(symm_cu.cuStreamDestroy((cu_stream)(void *)s), 0);
    symm_cuda_pop(&scope);
}

static void idle(void) {
    symm_cuda_scope scope;
    T_OK(symm_cuda_push(0, &scope));
    T_EQ(symm_cu.cuCtxSynchronize(), 0);
    symm_cuda_pop(&scope);
}

static void close_fix(fix *f) {
    T_OK(symmArenaEndStream(f->arena, f->s));
    T_OK(symmArenaEndStream(f->arena, f->t));
    end_stream(f->s);
    end_stream(f->t);
    T_OK(symmArenaDestroy(f->arena));
    T_OK(symmHeapDestroy(f->heap));
    idle(); /* a point of the legacy stream keeps its event until it is passed */
    gk_close(&f->comm, 1);
    GK_LEFT(0);
}

static void *take(const fix *f, symmStream_t s, size_t bytes) {
    void *p = NULL;
    T_OK(symmArenaAlloc(f->arena, bytes, 0, s, &p));
    T_CHECK(p != NULL);
    return p;
}

static uint64_t waits(const fix *f) {
    symmArenaInfo_t i = {.size = sizeof i};
    T_OK(symmArenaQuery(f->arena, &i));
    return i.waits;
}

/* Small blocks of one stream: nothing is asked of the driver but whether the stream is being
 * captured. */
static void a_streams_own_blocks_need_no_event(void) {
    fix f = open_fix(0);
    void *first = take(&f, f.s, 1000);
    symm_cuda_scope scope;
    T_OK(symm_cuda_push(0, &scope));
    gk_calls before = gk_count();
    for (int i = 0; i < 10; i++) T_OK(symmArenaFree(f.arena, take(&f, f.s, 2000), f.s));
    gk_exactly(&before, "cuStreamIsCapturing*20", __LINE__);
    symm_cuda_pop(&scope);
    T_OK(symmArenaFree(f.arena, first, f.s));
    close_fix(&f);
}

/* Nor do large ones and superblocks, as long as nobody else is there. */
static void one_stream_alone_needs_no_event(void) {
    enum { N = 100, PARTS = 8 };
    fix f = open_fix(0);
    void *part[PARTS];
    gk_calls before = gk_count();
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < PARTS; k++) part[k] = take(&f, f.s, k % 2 ? 16000 : 100000);
        for (int k = 0; k < PARTS; k++) T_OK(symmArenaFree(f.arena, part[k], f.s));
    }
    gk_calls after = gk_count();
    for (int i = 0; fake_cuda_call_name(i); i++)
        T_EQ(after.n[i] - before.n[i],
             strcmp(fake_cuda_call_name(i), "cuStreamIsCapturing") ? 0 : 2 * N * PARTS);
    T_EQ(waits(&f), 0);
    close_fix(&f);
}

/* One event where memory changes streams, one wait of the other stream. */
static void another_stream_waits_for_an_event(void) {
    fix f = open_fix(0);
    void *p = take(&f, f.s, 3 * GK_MB);
    symm_cuda_scope scope;
    T_OK(symm_cuda_push(0, &scope));
    gk_calls before = gk_count();
    T_OK(symmArenaFree(f.arena, p, f.s));
    gk_exactly(&before, "cuStreamIsCapturing", __LINE__);
    before = gk_count(); /* the first stream is asked whether it is captured, and for a point */
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    gk_exactly(&before,
               "cuStreamIsCapturing*2 cuCtxGetCurrent*2 cuEventCreate cuEventRecord "
               "cuStreamWaitEvent",
               __LINE__);
    T_EQ(waits(&f), 1);
    before = gk_count(); /* from here on at the free */
    T_OK(symmArenaFree(f.arena, p, f.t));
    gk_exactly(&before, "cuStreamIsCapturing cuCtxGetCurrent cuEventCreate cuEventRecord",
               __LINE__); /* the first event is that of what lies beside p */
    before = gk_count();
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p); /* its own */
    gk_exactly(&before, "cuStreamIsCapturing", __LINE__);
    before = gk_count();
    T_OK(symmArenaFree(f.arena, p, f.t));
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    gk_exactly(&before, "cuStreamIsCapturing*2 cuCtxGetCurrent cuEventRecord", __LINE__);
    T_EQ(waits(&f), 1);
    T_OK(symmArenaFree(f.arena, p, NULL)); /* the legacy stream is one like others */
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    T_EQ(waits(&f), 2);
    symm_cuda_pop(&scope);
    close_fix(&f);
}

/* Of several entries of one stream the newest is waited for; events are made once. */
static void waits_are_one_a_stream(void) {
    enum { N = 6 };
    fix f = open_fix(0);
    void *p[N];
    take(&f, f.t, 256); /* both are known */
    for (int i = 0; i < N; i++) p[i] = take(&f, f.s, 512 << 10);
    void *between = take(&f, NULL, 256); /* and the legacy one */
    for (int round = 0; round < 20; round++) {
        const uint64_t before = waits(&f);
        const int made = fake_cuda_calls("cuEventCreate");
        for (int i = 0; i < N; i += 2) T_OK(symmArenaFree(f.arena, p[i], round % 2 ? f.t : f.s));
        for (int i = 1; i < N; i += 2) T_OK(symmArenaFree(f.arena, p[i], round % 2 ? f.t : f.s));
        void *all = take(&f, round % 2 ? f.s : f.t, N * (512 << 10));
        T_EQ(waits(&f), before + 1);
        T_OK(symmArenaFree(f.arena, all, round % 2 ? f.s : f.t));
        for (int i = 0; i < N; i++) p[i] = take(&f, round % 2 ? f.s : f.t, 512 << 10);
        if (round) T_EQ(fake_cuda_calls("cuEventCreate"), made);
    }
    T_EQ(fake_cuda_calls("cuEventDestroy"), 0);
    T_OK(symmArenaFree(f.arena, between, NULL));
    close_fix(&f);
}

static void small_blocks_freed_on_another_stream(void) {
    fix f = open_fix(1);
    enum { N = 2000 }; /* more than the arena holds, unless what others freed comes back */
    for (int i = 0; i < N; i++) T_OK(symmArenaFree(f.arena, take(&f, f.s, 8000), f.t));
    T_CHECK(waits(&f) > 0 && waits(&f) < N);
    close_fix(&f);
}

/* A stream ends with its work still to come; CUDA gives the next one the same handle. That one
 * waits like any other, for large blocks and for those of a sub-arena that s freed in. */
static void the_handle_of_an_ended_stream_is_another_streams(void) {
    fix f = open_fix(1);
    void *p = take(&f, f.s, 3 * GK_MB), *small = take(&f, f.t, 1000);
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_OK(symmArenaEndStream(f.arena, f.s));
    T_CHECK(take(&f, f.s, 3 * GK_MB) == p);
    T_EQ(waits(&f), 1);
    T_OK(symmArenaFree(f.arena, small, f.s)); /* noted with the first s ... */
    T_OK(symmArenaEndStream(f.arena, f.s));
    small = take(&f, f.t, 1000);
    T_OK(symmArenaFree(f.arena, small, f.s)); /* ... and with the second */
    while (waits(&f) == 1) take(&f, f.t, 16000);
    T_EQ(waits(&f), 3); /* for each of them */
    close_fix(&f);
}

/* Without an event the stream is waited for, and all goes on: at the free, or (alone) when the
 * second stream comes. */
static void refused_events_are_waited_for(void) {
    static const char *const call[] = {"cuEventCreate", "cuEventRecord", "arena_point:error"};
    for (int i = 0; i < 6; i++) {
        fix f = open_fix(0);
        const int alone = i >= 3;
        void *q = NULL;
        if (!alone) T_OK(symmArenaFree(f.arena, take(&f, f.t, 256), f.t));
        void *p = take(&f, f.s, 3 * GK_MB);
        int synced = fake_cuda_calls("cuStreamSynchronize");
        if (alone) T_OK(symmArenaFree(f.arena, p, f.s));
        if (i % 3 < 2)
            fake_cuda_fail(call[i % 3], 1, SYMM_CUDA_ERROR_OUT_OF_MEMORY);
        else
            T_EQ(symm_fail_arm(call[2]), 0);
        if (!alone) T_OK(symmArenaFree(f.arena, p, f.s));
        if (alone) q = take(&f, f.t, 3 * GK_MB);
        T_EQ(symm_fail_arm(""), 0);
        T_EQ(fake_cuda_calls("cuStreamSynchronize"), synced + 1);
        if (!alone) q = take(&f, f.t, 3 * GK_MB);
        T_CHECK(q == p);
        T_EQ(waits(&f), 0);
        close_fix(&f);
    }
}

/* The memory is given back, and still has to be waited for. */
static void a_refused_wait_gives_nothing(void) {
    fix f = open_fix(0);
    T_EXPECT_WARNINGS();
    void *p = take(&f, f.s, 3 * GK_MB), *q = NULL;
    T_OK(symmArenaFree(f.arena, p, f.s));
    fake_cuda_fail("cuStreamWaitEvent", 1, SYMM_CUDA_ERROR_UNKNOWN);
    T_CHECK(symmArenaAlloc(f.arena, 3 * GK_MB, 0, f.t, &q) != symmSuccess);
    T_CHECK(q == NULL);
    T_EQ(waits(&f), 0);
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    T_EQ(waits(&f), 1);
    close_fix(&f);
}

static void captures_and_per_thread_streams_are_refused(void) {
    fix f = open_fix(0);
    symm_cuda_scope scope;
    void *p;
    T_EXPECT_WARNINGS();
    T_ERR(symmArenaAlloc(f.arena, 256, 0, (symmStream_t)2, &p), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "another stream in each thread");
    void *mine = take(&f, f.s, 256);
    T_ERR(symmArenaFree(f.arena, mine, (symmStream_t)2), symmInvalidArgument);
    T_OK(symm_cuda_push(0, &scope));
    T_EQ(symm_cu.cuStreamBeginCapture((cu_stream)(void *)f.s, SYMM_CUDA_CAPTURE_MODE_RELAXED), 0);
    T_ERR(symmArenaAlloc(f.arena, 256, 0, f.s, &p), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "being captured");
    T_ERR(symmArenaFree(f.arena, mine, f.s), symmInvalidUsage);
    cu_graph graph;
    T_EQ(symm_cu.cuStreamEndCapture((cu_stream)(void *)f.s, &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmArenaFree(f.arena, mine, f.s));
    symm_cuda_pop(&scope);
    close_fix(&f);
}

/* ---- the stream that was alone --------------------------------------------------------------- */

static _Atomic int gate, passed;
static void wait_gate(void *arg) {
    (void)arg;
    while (!atomic_load(&gate)) usleep(50);
}
static void note(void *arg) {
    (void)arg;
    atomic_store(&passed, 1);
}

static void shut(symmStream_t s) {
    atomic_store(&gate, 0);
    atomic_store(&passed, 0);
    T_EQ(symm_cu.cuLaunchHostFunc((cu_stream)(void *)s, wait_gate, NULL), 0);
}

/* What is given to t from here on runs behind the gate. */
static void comes_behind(symmStream_t t) {
    T_EQ(symm_cu.cuLaunchHostFunc((cu_stream)(void *)t, note, NULL), 0);
    usleep(2000);
    T_EQ(atomic_load(&passed), 0);
    atomic_store(&gate, 1);
    T_EQ(symm_cu.cuStreamSynchronize((cu_stream)(void *)t), 0);
    T_EQ(atomic_load(&passed), 1);
}

/* Large, as a superblock, and in a superblock that several others lie beside. */
static void a_second_stream_comes_behind_the_first(void) {
    static const size_t sizes[] = {3 * GK_MB, 1000, 100000};
    for (int i = 0; i < 3; i++) {
        fix f = open_fix(1);
        void *p = take(&f, f.s, sizes[i]);
        shut(f.s);
        T_OK(symmArenaFree(f.arena, p, f.s));
        if (i == 1) T_OK(symmArenaTrim(f.arena, NULL)); /* streams keep one superblock */
        T_EQ(fake_cuda_calls("cuStreamWaitEvent"), 0);
        T_CHECK(take(&f, f.t, sizes[i]) == p);
        T_EQ(waits(&f), 1);
        comes_behind(f.t);
        close_fix(&f);
    }
}

/* s frees on both sides of a block, its work coming to the gate in between. */
static void the_newest_point_is_waited_for(void) {
    fix f = open_fix(1);
    void *p[3], *tiny = take(&f, f.t, 256);
    for (int i = 0; i < 3; i++) p[i] = take(&f, f.s, GK_MB);
    T_OK(symmArenaFree(f.arena, p[0], f.s));
    shut(f.s);
    T_OK(symmArenaFree(f.arena, p[2], f.s));
    T_OK(symmArenaFree(f.arena, p[1], f.t));
    void *all = take(&f, f.t, 3 * GK_MB);
    T_EQ(waits(&f), 1);
    T_CHECK(all == p[0] || all == p[2]);
    comes_behind(f.t);
    T_OK(symmArenaFree(f.arena, tiny, f.t));
    close_fix(&f);
}

/* Memory that the first has never freed is nobody's. */
static void a_second_stream_waits_for_no_new_memory(void) {
    fix f = open_fix(0);
    void *p = take(&f, f.s, GK_MB);
    void *q = take(&f, f.t, GK_MB);
    T_EQ(waits(&f), 0);
    T_EQ(fake_cuda_calls("cuEventRecord"), 0);
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_OK(symmArenaFree(f.arena, q, f.t));
    close_fix(&f);
}

/* t waits for s's free, or (what s freed alone) for what s had been given when t came; for nothing
 * that s was given later. */
static void later_work_is_not_waited_for(void) {
    for (int alone = 0; alone < 2; alone++) {
        fix f = open_fix(1);
        void *tiny = take(&f, f.s, 256), *p = take(&f, f.s, 3 * GK_MB);
        if (alone) T_OK(symmArenaFree(f.arena, p, f.s));
        T_OK(symmArenaFree(f.arena, tiny, f.t));
        if (!alone) T_OK(symmArenaFree(f.arena, p, f.s));
        T_EQ(fake_cuda_calls("cuEventRecord"), 2); /* one for the tiny one */
        shut(f.s);
        T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
        T_EQ(symm_cu.cuLaunchHostFunc((cu_stream)(void *)f.t, note, NULL), 0);
        T_EQ(symm_cu.cuStreamSynchronize((cu_stream)(void *)f.t), 0);
        T_EQ(atomic_load(&passed), 1); /* though the gate is shut */
        T_EQ(fake_cuda_calls("cuEventRecord"), 2);
        T_EQ(waits(&f), 1);
        atomic_store(&gate, 1);
        close_fix(&f);
    }
}

static void open_gate(void *arg) {
    (void)arg;
    atomic_store(&gate, 1);
}

/* What s is given after its free may wait for t, whose first call comes later still. */
static void a_point_is_taken_at_the_free_where_none_may_be_late(void) {
    flags = 0;
    fix f = open_fix(1);
    void *p = take(&f, f.s, 3 * GK_MB);
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_EQ(fake_cuda_calls("cuEventRecord"), 1);
    shut(f.s);
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    T_EQ(waits(&f), 1);
    T_EQ(symm_cu.cuLaunchHostFunc((cu_stream)(void *)f.t, open_gate, NULL), 0);
    T_EQ(symm_cu.cuStreamSynchronize((cu_stream)(void *)f.s), 0);
    close_fix(&f);
}

/* It ends, and is destroyed, with frees that have no point; with and without memory to list
 * them. */
static void the_lone_stream_ends(void) {
    for (int i = 0; i < 2; i++) {
        fix f = open_fix(1);
        void *p = take(&f, f.s, 3 * GK_MB);
        if (!i) shut(f.s);
        T_OK(symmArenaFree(f.arena, p, f.s));
        if (i) T_EQ(symm_fail_arm("arena_pending:error"), 0);
        T_OK(symmArenaEndStream(f.arena, f.s));
        T_EQ(symm_fail_arm(""), 0);
        T_EQ(fake_cuda_calls("cuEventSynchronize"), 2 * i);
        T_EQ(fake_cuda_calls("cuEventRecord"), 2); /* for its sub, and for what it freed alone */
        symmStream_t u = gk_user(gk_stream(0));
        if (i) end_stream(f.s);
        T_CHECK(take(&f, u, 3 * GK_MB) == p);
        T_EQ(waits(&f), !i);
        if (!i) comes_behind(u);
        T_OK(symmArenaFree(f.arena, p, u)); /* alone again */
        T_EQ(fake_cuda_calls("cuEventRecord"), 2);
        T_OK(symmArenaEndStream(f.arena, u));
        end_stream(u);
        if (i) f.s = gk_user(gk_stream(0));
        close_fix(&f);
    }
}

/* Destroyed without symmArenaEndStream: all that the GPU does is waited for, as nobody knows
 * more. */
static void the_lone_stream_is_gone(void) {
    fix f = open_fix(0);
    void *p = take(&f, f.s, 3 * GK_MB);
    T_OK(symmArenaFree(f.arena, p, f.s));
    end_stream(f.s);
    int synced = fake_cuda_calls("cuCtxSynchronize");
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    T_EQ(fake_cuda_calls("cuCtxSynchronize"), synced + 1);
    T_EQ(waits(&f), 0);
    f.s = f.t;
    f.t = gk_user(gk_stream(0));
    close_fix(&f);
}

/* Nothing goes to the heap that the lone stream may still work on; and an arena ends with such
 * memory. */
static void trim_asks_the_lone_stream(void) {
    fix f = open_fix(1);
    uint64_t freed = 1;
    void *p = take(&f, f.s, 3 * GK_MB);
    shut(f.s);
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_OK(symmArenaTrim(f.arena, &freed));
    T_EQ(freed, 0);
    T_EQ(fake_cuda_calls("cuEventRecord"), 1);
    T_OK(symmArenaTrim(f.arena, &freed)); /* the point is there */
    T_EQ(freed, 0);
    T_EQ(fake_cuda_calls("cuEventRecord"), 1);
    p = take(&f, f.s, GK_MB);
    T_OK(symmArenaFree(f.arena, p, f.s)); /* behind that point */
    atomic_store(&gate, 1);
    T_EQ(symm_cu.cuStreamSynchronize((cu_stream)(void *)f.s), 0);
    T_OK(symmArenaTrim(f.arena, &freed));
    T_EQ(symm_cu.cuStreamSynchronize((cu_stream)(void *)f.s), 0);
    T_OK(symmArenaTrim(f.arena, freed ? NULL : &freed));
    T_EQ(freed, 4 * GK_MB);
    T_EQ(fake_cuda_calls("cuEventRecord"), 2);
    T_OK(symmArenaFree(f.arena, take(&f, f.s, GK_MB), f.s));
    close_fix(&f);
}

/* A stream that is being captured has no point to give and is left alone: what it freed is not to
 * be had, other memory is. */
static void the_lone_stream_is_captured(void) {
    fix f = open_fix(0);
    symm_cuda_scope scope;
    cu_graph graph;
    void *q;
    T_EXPECT_WARNINGS();
    T_OK(symm_cuda_push(0, &scope));
    cu_stream s = (cu_stream)(void *)f.s;
    T_OK(symmArenaFree(f.arena, take(&f, f.s, 1000), f.s));
    void *p = take(&f, f.s, 2 * GK_MB);
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_EQ(symm_cu.cuStreamBeginCapture(s, SYMM_CUDA_CAPTURE_MODE_RELAXED), 0);
    T_ERR(symmArenaAlloc(f.arena, 2 * GK_MB, 0, f.t, &q), symmOutOfMemory);
    T_OK(symmArenaTrim(f.arena, NULL));
    T_EQ(fake_cuda_calls("cuEventRecord"), 0);
    T_EQ(symm_cu.cuStreamEndCapture(s, &graph), 0); /* it is as it was */
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_CHECK(take(&f, f.t, 2 * GK_MB) == p);
    T_EQ(waits(&f), 1);
    symm_cuda_pop(&scope);
    close_fix(&f);
}

/* Other memory is to be had meanwhile, and its next free gives what it freed alone a point. */
static void the_lone_stream_comes_back(void) {
    fix f = open_fix_of(1, 12 * GK_MB);
    symm_cuda_scope scope;
    cu_graph graph;
    T_OK(symm_cuda_push(0, &scope));
    cu_stream s = (cu_stream)(void *)f.s;
    void *p = take(&f, f.s, 3 * GK_MB), *other = take(&f, f.s, 512 << 10);
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_EQ(symm_cu.cuStreamBeginCapture(s, SYMM_CUDA_CAPTURE_MODE_RELAXED), 0);
    void *small = take(&f, f.t, 1000), *large = take(&f, f.t, 2 * GK_MB);
    T_OK(symmArenaFree(f.arena, large, f.t));
    T_CHECK(take(&f, f.t, 2 * GK_MB) == large);
    T_EQ(waits(&f), 0);
    T_EQ(symm_cu.cuStreamEndCapture(s, &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    int recorded = fake_cuda_calls("cuEventRecord");
    T_OK(symmArenaFree(f.arena, other, f.s));
    T_EQ(fake_cuda_calls("cuEventRecord"), recorded + 1);
    shut(f.s);
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    T_EQ(fake_cuda_calls("cuEventRecord"), recorded + 1);
    T_EQ(waits(&f), 1);
    T_EQ(symm_cu.cuStreamSynchronize((cu_stream)(void *)f.t), 0); /* though the gate is shut */
    atomic_store(&gate, 1);
    T_OK(symmArenaFree(f.arena, small, f.t));
    symm_cuda_pop(&scope);
    close_fix(&f);
}

/* No memory to list what the lone stream has freed: the second stream's call fails, and can be made
 * again. */
static void a_second_stream_without_memory(void) {
    fix f = open_fix(0);
    void *p = take(&f, f.s, 3 * GK_MB), *q;
    T_EXPECT_WARNINGS();
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_EQ(symm_fail_arm("arena_pending:error"), 0);
    T_ERR(symmArenaAlloc(f.arena, 3 * GK_MB, 0, f.t, &q), symmOutOfMemory);
    T_EQ(symm_fail_arm(""), 0);
    T_CHECK(take(&f, f.s, 3 * GK_MB) == p); /* its own still */
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    T_EQ(waits(&f), 1);
    close_fix(&f);
}

/* Two streams have freed, and the second wait is refused: neither is forgotten. */
static void a_refused_second_wait_forgets_neither(void) {
    fix f = open_fix(0);
    T_EXPECT_WARNINGS();
    void *p = take(&f, f.s, GK_MB), *q = take(&f, f.t, GK_MB), *r;
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_OK(symmArenaFree(f.arena, q, f.t));
    fake_cuda_fail("cuStreamWaitEvent", 2, SYMM_CUDA_ERROR_UNKNOWN);
    T_CHECK(symmArenaAlloc(f.arena, 2 * GK_MB, 0, NULL, &r) != symmSuccess);
    const uint64_t before = waits(&f);
    T_OK(symmArenaFree(f.arena, take(&f, NULL, 2 * GK_MB), NULL));
    T_EQ(waits(&f), before + 2);
    close_fix(&f);
}

/* Wherever the call is made from: another device's context, or none. */
static void any_context_may_be_current(void) {
    fix f = open_fix(0);
    cu_context was;
    T_EQ(symm_cu.cuCtxGetCurrent(&was), 0);
    for (int i = 0; i < 2; i++) {
        if (was) T_EQ(symm_cu.cuCtxPopCurrent(&was), 0);
        void *p = take(&f, f.s, 3 * GK_MB);
        T_OK(symmArenaFree(f.arena, p, f.s));
        T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
        T_OK(symmArenaFree(f.arena, p, f.t));
        T_EQ(waits(&f), 1 + 2 * (unsigned)i);
        if (was) T_EQ(symm_cu.cuCtxPushCurrent(was), 0);
    }
    close_fix(&f);
}

/* Streams that come no further are asked about now and then, not at each call; those that have come
 * further leave the list. */
static void streams_that_stand_are_seldom_asked(void) {
    enum { N = 300 };
    fix f = open_fix_of(1, 12 * GK_MB);
    void *p[N];
    take(&f, f.t, 256);
    shut(f.s);
    for (int i = 0; i < N; i++) p[i] = take(&f, f.s, 33 << 10);
    int asked = fake_cuda_calls("cuEventQuery");
    for (int i = 0; i < N; i += 2) T_OK(symmArenaFree(f.arena, p[i], f.s)); /* no neighbours */
    asked = fake_cuda_calls("cuEventQuery") - asked;
    T_CHECKF(asked > 0 && asked < 10, "%d questions", asked);
    T_EQ(fake_cuda_calls("cuEventRecord"), N / 2);
    T_CHECK(fake_cuda_calls("cuEventCreate") <= N / 2 + 1);
    atomic_store(&gate, 1);
    T_EQ(symm_cu.cuStreamSynchronize((cu_stream)(void *)f.s), 0);
    for (int i = 0; i < N; i += 2) p[i] = take(&f, f.s, 33 << 10);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i += 2) T_OK(symmArenaFree(f.arena, p[i], f.s));
        for (int i = 0; i < N; i += 2) p[i] = take(&f, f.s, 33 << 10);
    }
    T_EQ(fake_cuda_calls("cuEventRecord"), 4 * N / 2);
    T_CHECK(fake_cuda_calls("cuEventCreate") <= N / 2 + 1);
    close_fix(&f);
}

T_MAIN(T(a_streams_own_blocks_need_no_event), T(one_stream_alone_needs_no_event),
       T(another_stream_waits_for_an_event), T(waits_are_one_a_stream),
       T(small_blocks_freed_on_another_stream), T(the_handle_of_an_ended_stream_is_another_streams),
       T(refused_events_are_waited_for), T(a_refused_wait_gives_nothing),
       T(captures_and_per_thread_streams_are_refused), T(a_second_stream_comes_behind_the_first),
       T(the_newest_point_is_waited_for), T(a_second_stream_waits_for_no_new_memory),
       T(later_work_is_not_waited_for), T(a_point_is_taken_at_the_free_where_none_may_be_late),
       T(the_lone_stream_ends), T(the_lone_stream_is_gone), T(trim_asks_the_lone_stream),
       T(the_lone_stream_is_captured), T(the_lone_stream_comes_back),
       T(a_second_stream_without_memory), T(a_refused_second_wait_forgets_neither),
       T(any_context_may_be_current), T(streams_that_stand_are_seldom_asked))
