/* unit_gpu_unsafe.c - a capture of the caller's beside work of the library that has nothing to do
 * with it: waiting for streams that are gone, and for events. It is neither refused nor does it
 * spoil the capture (one in global mode, which forbids unsafe calls to all threads). On the fake
 * CUDA driver. */
#include "fgpu_kit.h"
#include "host/lane/memlane.h"
#include "symm_arena.h"

typedef struct {
    cu_stream stream;
    cu_graph graph;
} capture;

/* stream: made while the others live, as handles of streams that are gone come back. */
static capture begin_capture(cu_stream stream) {
    capture c = {stream, NULL};
    T_EQ(symm_cu.cuStreamBeginCapture(c.stream, SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    return c;
}
/* It takes work still, and ends as a graph. */
static void end_capture(capture *c) {
    int status = SYMM_CUDA_CAPTURE_NONE;
    T_EQ(symm_cu.cuStreamIsCapturing(c->stream, &status), 0);
    T_EQ(status, SYMM_CUDA_CAPTURE_ACTIVE);
    T_EQ(symm_cu.cuStreamEndCapture(c->stream, &c->graph), 0);
    T_CHECK(c->graph != NULL);
    T_EQ(symm_cu.cuGraphDestroy(c->graph), 0);
    T_EQ(symm_cu.cuStreamDestroy(c->stream), 0);
}

static symmComm_t open_comm(void) {
    symmComm_t comm;
    gk_start(1, 0);
    setenv("SYMM_WIN_STRIDE", "1G", 1);
    gk_open(&comm, 1, NULL);
    T_OK(symm_cuda_set(0));
    return comm;
}

static void marks_of_a_stream_that_is_gone(void) {
    symmComm_t comm = open_comm();
    symm_memmark mark = {0};
    cu_stream gone = gk_stream(0), captured = gk_stream(0);
    T_EQ(symm_cu.cuStreamDestroy(gone), 0);
    capture c = begin_capture(captured);
    const int synced = fake_cuda_calls("cuCtxSynchronize");
    T_OK(symm_memmark_set(gk_inside(comm), &mark, gk_user(gone)));
    T_EQ(fake_cuda_calls("cuCtxSynchronize"), synced + 1);
    end_capture(&c);
    symm_memmark_end(gk_inside(comm), &mark);
    gk_close(&comm, 1);
    GK_LEFT(0);
}

static void marks_are_waited_for(void) {
    symmComm_t comm = open_comm();
    symm_memmark mark = {0};
    cu_stream s = gk_stream(0);
    T_OK(symm_memmark_set(gk_inside(comm), &mark, gk_user(s)));
    capture c = begin_capture(gk_stream(0));
    T_OK(symm_memmark_reach(gk_inside(comm), &mark));
    T_EQ(symm_memmark_soon(gk_inside(comm), &mark, 1), 1);
    end_capture(&c);
    symm_memmark_end(gk_inside(comm), &mark);
    T_EQ(symm_cu.cuStreamDestroy(s), 0);
    gk_close(&comm, 1);
    GK_LEFT(0);
}

static void arenas_whose_stream_is_gone(void) {
    symmComm_t comm = open_comm();
    symmHeap_t heap;
    symmArena_t arena;
    void *p, *again;
    symmHeapConfig_t h = SYMM_HEAP_CONFIG_INITIALIZER;
    symmArenaConfig_t a = SYMM_ARENA_CONFIG_INITIALIZER;
    h.reserve = 256 * GK_MB;
    h.localBytes = 32 * GK_MB;
    a.bytes = a.piece = 4 * GK_MB;
    a.flags = SYMM_ARENA_LATE;
    T_OK(symmHeapCreate(comm, &h, &heap));
    T_OK(symmArenaCreate(heap, &a, &arena));
    cu_stream gone = gk_stream(0), other = gk_stream(0), captured = gk_stream(0);
    T_OK(symmArenaAlloc(arena, 3 * GK_MB, 0, gk_user(gone), &p));
    T_OK(symmArenaFree(arena, p, gk_user(gone)));
    T_EQ(symm_cu.cuStreamDestroy(gone), 0);
    capture c = begin_capture(captured);
    const int synced = fake_cuda_calls("cuCtxSynchronize");
    T_OK(symmArenaAlloc(arena, 3 * GK_MB, 0, gk_user(other), &again));
    T_CHECK(again == p);
    T_EQ(fake_cuda_calls("cuCtxSynchronize"), synced + 1);
    end_capture(&c);
    T_OK(symmArenaFree(arena, again, gk_user(other)));
    T_OK(symmArenaEndStream(arena, gk_user(other)));
    T_EQ(symm_cu.cuStreamDestroy(other), 0);
    T_OK(symmArenaDestroy(arena));
    T_OK(symmHeapDestroy(heap));
    gk_close(&comm, 1);
    GK_LEFT(0);
}

T_MAIN(T(marks_of_a_stream_that_is_gone), T(marks_are_waited_for), T(arenas_whose_stream_is_gone))
