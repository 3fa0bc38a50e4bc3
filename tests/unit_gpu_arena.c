/* unit_gpu_arena.c - arenas of a heap on a GPU, on the fake CUDA driver: which streams wait for which, by which calls of the driver, and what
 * becomes of it when one is refused. The test's thread, and those of queued streams. */
#include "fgpu_kit.h"
#include "../src/host/fail.h"
#include "symm_arena.h"

typedef struct {
    symmComm_t comm;
    symmHeap_t heap;
    symmArena_t arena;
    symmStream_t s, t;
} fix;

static fix open_fix(int queued) {
    fix f = {0};
    symmHeapConfig_t h = SYMM_HEAP_CONFIG_INITIALIZER;
    symmArenaConfig_t a = SYMM_ARENA_CONFIG_INITIALIZER;
    gk_start(1, queued);
    setenv("SYMM_WIN_STRIDE", "1G", 1);
    h.reserve = 256 * GK_MB;
    h.localBytes = 32 * GK_MB;
    a.bytes = 4 * GK_MB;
    a.piece = 4 * GK_MB;
    gk_open(&f.comm, 1, NULL);
    T_OK(symmHeapCreate(f.comm, &h, &f.heap));
    T_OK(symmArenaCreate(f.heap, &a, &f.arena));
    f.s = gk_user(gk_stream(0));
    f.t = gk_user(gk_stream(0));
    return f;
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
    T_OK(symmArenaStreamEnd(f->arena, f->s));
    T_OK(symmArenaStreamEnd(f->arena, f->t));
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

/* Small blocks of one stream: nothing is asked of the driver but whether the stream is being captured. */
static void a_streams_own_blocks_need_no_event(void) {
    fix f = open_fix(0);
    void *first = take(&f, f.s, 1000);
    symm_cuda_scope scope;
    T_OK(symm_cuda_push(0, &scope));
    gk_calls before = gk_count();
    for (int i = 0; i < 10; i++) T_OK(symmArenaFree(f.arena, take(&f, f.s, 2000), f.s));
    gk_exactly(&before, "cuStreamIsCapturing*20 cuCtxGetCurrent*20", __LINE__);
    symm_cuda_pop(&scope);
    T_OK(symmArenaFree(f.arena, first, f.s));
    close_fix(&f);
}

/* One event where memory changes streams, one wait of the other stream. */
static void another_stream_waits_for_an_event(void) {
    fix f = open_fix(1);
    void *p = take(&f, f.s, 3 * GK_MB);
    symm_cuda_scope scope;
    T_OK(symm_cuda_push(0, &scope));
    gk_calls before = gk_count();
    T_OK(symmArenaFree(f.arena, p, f.s));
    gk_exactly(&before, "cuStreamIsCapturing cuCtxGetCurrent*2 cuEventCreate cuEventRecord",
               __LINE__);
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    T_EQ(waits(&f), 1);
    T_OK(symmArenaFree(f.arena, p, f.t));
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p); /* its own */
    T_EQ(waits(&f), 1);
    T_OK(symmArenaFree(f.arena, p, NULL)); /* the legacy stream is one like others */
    T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
    T_EQ(waits(&f), 2);
    symm_cuda_pop(&scope);
    close_fix(&f);
}

static void small_blocks_freed_on_another_stream(void) {
    fix f = open_fix(1);
    enum { N = 2000 }; /* more than the arena holds, unless what others freed comes back */
    for (int i = 0; i < N; i++) T_OK(symmArenaFree(f.arena, take(&f, f.s, 8000), f.t));
    T_CHECK(waits(&f) > 0 && waits(&f) < N);
    close_fix(&f);
}

/* A stream ends with its work still to come; CUDA gives the next one the same handle. That one waits like any other, for large blocks and
 * for those of a sub-arena that s freed in. */
static void the_handle_of_an_ended_stream_is_another_streams(void) {
    fix f = open_fix(1);
    void *p = take(&f, f.s, 3 * GK_MB), *small = take(&f, f.t, 1000);
    T_OK(symmArenaFree(f.arena, p, f.s));
    T_OK(symmArenaStreamEnd(f.arena, f.s));
    T_CHECK(take(&f, f.s, 3 * GK_MB) == p);
    T_EQ(waits(&f), 1);
    T_OK(symmArenaFree(f.arena, small, f.s)); /* noted with the first s ... */
    T_OK(symmArenaStreamEnd(f.arena, f.s));
    small = take(&f, f.t, 1000);
    T_OK(symmArenaFree(f.arena, small, f.s)); /* ... and with the second */
    while (waits(&f) == 1) take(&f, f.t, 16000);
    T_EQ(waits(&f), 3); /* for each of them */
    close_fix(&f);
}

/* Without an event the stream is waited for, and all goes on. */
static void refused_events_are_waited_for(void) {
    static const char *const call[] = {"cuEventCreate", "cuEventRecord", "arena_point:error"};
    for (int i = 0; i < 3; i++) {
        fix f = open_fix(1);
        void *p = take(&f, f.s, 3 * GK_MB);
        int synced = fake_cuda_calls("cuStreamSynchronize");
        if (i < 2)
            fake_cuda_fail(call[i], 1, SYMM_CUDA_ERROR_OUT_OF_MEMORY);
        else
            T_EQ(symm_fail_arm(call[i]), 0);
        T_OK(symmArenaFree(f.arena, p, f.s));
        T_EQ(symm_fail_arm(""), 0);
        T_EQ(fake_cuda_calls("cuStreamSynchronize"), synced + 1);
        T_CHECK(take(&f, f.t, 3 * GK_MB) == p);
        T_EQ(waits(&f), 0);
        close_fix(&f);
    }
}

/* The memory is given back, and still has to be waited for. */
static void a_refused_wait_gives_nothing(void) {
    fix f = open_fix(1);
    T_EXPECT_WARNINGS();
    void *p = take(&f, f.s, 3 * GK_MB), *q;
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

T_MAIN(T(a_streams_own_blocks_need_no_event), T(another_stream_waits_for_an_event),
       T(small_blocks_freed_on_another_stream), T(the_handle_of_an_ended_stream_is_another_streams),
       T(refused_events_are_waited_for), T(a_refused_wait_gives_nothing),
       T(captures_and_per_thread_streams_are_refused))
