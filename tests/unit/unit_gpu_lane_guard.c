/* unit_gpu_lane_guard.c - guard mode of lanes on the fake CUDA driver: what is painted in the
 * streams and read behind them, what is left when a call of the driver fails, and captures of
 * other streams meanwhile. One thread. Order and damage in general: unit_lane_guard.c. */
#include "host/lane/memplan.h"
#include "fgpu_lane_kit.h"

static void guarded(int ranks) {
    setenv("SYMM_HEAP_GUARD", "1", 1);
    start(ranks);
}

static void put(int i, char *p, int value) {
    T_EQ(symm_cu.cuMemsetD8Async((uintptr_t)p, (unsigned char)value, 1, streams[i]), 0);
}

static void an_overrun_is_told_by_the_free(void) {
    T_EXPECT_WARNINGS();
    guarded(1);
    for (int sym = 0; sym < 2; sym++) {
        const unsigned flags = sym ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL;
        char *p = alloc(0, 1001, flags);
        put(0, p + 1000, 1);
        drop(0, p);
        T_CHECK(alloc(0, 1001, flags) == p);
        put(0, p + 1001, 1);
        T_ERR(symmLaneFree(lanes[0], p), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 1001 was written, of a block of 1001 bytes at offset ");
        T_OK(symmHeapCheck(heaps[0]));
        T_CHECK(alloc(0, 1001, flags) == p);
        drop(0, p);
    }
    finish(1);
}

static void a_write_after_the_free_is_found(void) {
    T_EXPECT_WARNINGS();
    guarded(1);
    char *p = local(0, 5000);
    drop(0, p);
    T_OK(symmHeapCheck(heaps[0]));
    put(1, p + 4321, 1);
    T_EQ(symm_cu.cuStreamSynchronize(streams[1]), 0);
    T_ERR(symmHeapCheck(heaps[0]), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "was written after it was freed on a lane");
    T_CHECK(local(0, 5000) == p);
    drop(0, p);
    T_ERR(symmHeapCheck(heaps[0]), symmInvalidUsage); /* remembered */
    finish(1);
}

/* A free goes on without poison, and what was not painted is no damage later; an allocation is
 * refused, and what it had got is kept. */
static void a_driver_that_fails_is_no_damage(void) {
    void *q = NULL;
    T_EXPECT_WARNINGS();
    guarded(1);
    for (int pooled = 0; pooled < 2; pooled++) {
        char *p = local(0, 5000);
        put(0, p + 99, 1);
        fake_cuda_fail("cuMemsetD8Async", 1, SYMM_CUDA_ERROR_LAUNCH_FAILED);
        drop(0, p);
        T_CHECK(!fake_cuda_fail_waits());
        if (pooled) T_OK(symm_memlane_flush(symm_memlane_peek(lanes[0]), SYMM_MEM_LOCAL));
        T_OK(symmHeapCheck(heaps[0]));
        T_CHECK(local(0, 5000) == p);
        T_OK(symmHeapCheck(heaps[0]));
        drop(0, p);
        fake_cuda_fail("cuMemsetD8Async", 1, SYMM_CUDA_ERROR_LAUNCH_FAILED);
        T_ERR(symmLaneAlloc(lanes[0], 5000, SYMM_ALLOC_LOCAL, &q), symmUnhandledCudaError);
        T_CHECK(q == NULL && !fake_cuda_fail_waits());
        T_OK(symmHeapCheck(heaps[0]));
        T_CHECK(local(0, 5000) == p);
        drop(0, p);
    }
    finish(1);
}

/* Calls that a capture in global mode forbids are not made in the open. */
static void another_streams_capture_goes_on(void) {
    cu_graph graph = NULL;
    guarded(1);
    char *p = local(0, 5000);
    T_EQ(symm_cu.cuStreamBeginCapture(streams[1], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    drop(0, p);
    T_CHECK(local(0, 5000) == p);
    drop(0, p);
    T_EQ(symm_cu.cuStreamEndCapture(streams[1], &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmHeapCheck(heaps[0]));
    finish(1);
}

/* The legacy stream may not be touched while a blocking one is captured: its lane works on, and
 * nothing is painted, or looked at later. */
static void a_lane_on_the_legacy_stream_paints_nothing_while_others_are_captured(void) {
    void *p = NULL, *q = NULL, *r = NULL;
    symmLane_t legacy;
    cu_stream blocking;
    cu_graph graph;
    guarded(1);
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuStreamCreate(&blocking, SYMM_CUDA_STREAM_DEFAULT), 0);
    T_OK(symmLaneCreate(heaps[0], NULL, &legacy));
    T_OK(symmLaneAlloc(legacy, 5000, SYMM_ALLOC_LOCAL, &p));
    char *other = local(0, 3000);
    T_EQ(symm_cu.cuStreamBeginCapture(blocking, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    T_OK(symmLaneAlloc(legacy, 700, SYMM_ALLOC_LOCAL, &q));
    T_OK(symmLaneFree(legacy, p));
    T_OK(symmLaneFree(legacy, other));
    T_OK(symmLaneAlloc(legacy, 5000, SYMM_ALLOC_LOCAL, &r));
    T_CHECK(r == p);
    T_OK(symmLaneFree(legacy, r));
    T_OK(symmHeapCheck(heaps[0]));
    T_EQ(symm_cu.cuStreamEndCapture(blocking, &graph), 0); /* unharmed */
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmHeapCheck(heaps[0]));
    T_OK(symmLaneAlloc(legacy, 5000, SYMM_ALLOC_LOCAL, &r));
    T_OK(symmLaneFree(legacy, q));
    T_OK(symmLaneFree(legacy, r));
    T_OK(symmLaneDestroy(legacy));
    T_OK(symmHeapCheck(heaps[0]));
    T_EQ(symm_cu.cuStreamDestroy(blocking), 0);
    finish(1);
}

/* The graph paints; a free in it poisons, and one outside looks. */
static void a_block_that_a_graph_left_is_looked_at(void) {
    symmMemPlan_t plan;
    cu_graph_exec exec;
    unsigned char seen = 0;
    T_EXPECT_WARNINGS();
    guarded(1);
    begin();
    char *p = local(0, 1001), *q = local(0, 300);
    put(0, q, 1);
    drop(0, q);
    cu_graph graph = end();
    T_OK(symmMemPlanBind(lanes[0], (symmGraph_t)(void *)graph, 0, &plan));
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    for (int over = 0; over < 2; over++) {
        T_OK(symmMemPlanLaunch(plan, (symmGraphExec_t)(void *)exec, gk_user(streams[0])));
        put(0, p + 1000 + over, 1);
        T_EQ(symmLaneFree(lanes[0], p), over ? symmInvalidUsage : symmSuccess);
    }
    T_MSG(symmGetLastError(NULL), "byte 1001 was written, of a block of 1001 bytes at offset ");
    T_EQ(symm_cu.cuMemcpyDtoH(&seen, (uintptr_t)q, 1), 0);
    T_EQ(seen, 0xdd);
    T_OK(symmHeapCheck(heaps[0]));
    T_OK(symmMemPlanDestroy(plan));
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    finish(1);
}

/* The lane's own calls neither: not those that need a barrier, nor those that paint. */
static void a_lane_on_a_stream_that_is_shut_spoils_no_capture(void) {
    symmLane_t legacy;
    cu_stream blocking;
    cu_graph graph;
    void *p, *q;
    T_EXPECT_WARNINGS();
    for (int guard = 0; guard < 2; guard++) {
        if (guard)
            guarded(2);
        else
            start(2);
        T_OK(symm_cuda_set(0));
        T_EQ(symm_cu.cuStreamCreate(&blocking, SYMM_CUDA_STREAM_DEFAULT), 0);
        T_OK(symmLaneCreate(heaps[0], NULL, &legacy));
        T_OK(symmLaneAlloc(legacy, 5 * GK_MB, SYMM_ALLOC_SYM, &p));
        T_OK(symmLaneFree(legacy, p));
        T_OK(symmLaneAlloc(legacy, 1024, SYMM_ALLOC_SYM, &q));
        T_EQ(symm_cu.cuStreamBeginCapture(blocking, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
        int refused = 0;
        for (int i = 0; i < 200 && !refused; i++) {
            const symmResult_t r = symmLaneAlloc(legacy, BIG, SYMM_ALLOC_SYM, &p);
            if (r == symmSuccess) {
                T_OK(symmLaneFree(legacy, p));
                continue;
            }
            T_EQ(r, symmInvalidUsage);
            T_MSG(symmGetLastError(NULL), "cannot be used while a blocking stream is captured");
            refused = 1;
        }
        T_CHECK(refused);
        /* Another lane's neither: its peers, where nothing is shut, would get those bytes. */
        T_ERR(symmLaneAlloc(lanes[0], 5 * GK_MB, SYMM_ALLOC_SYM, &p), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "cannot be used while a blocking stream is captured");
        T_OK(symmLaneFree(legacy, q));
        T_EQ(symm_cu.cuStreamEndCapture(blocking, &graph), 0); /* unharmed */
        T_EQ(symm_cu.cuGraphDestroy(graph), 0);
        T_OK(symmLaneAlloc(legacy, 1024, SYMM_ALLOC_SYM, &p));
        T_OK(symmLaneFree(legacy, p));
        drop(0, alloc(0, 5 * GK_MB, SYMM_ALLOC_SYM));
        T_OK(symmLaneDestroy(legacy));
        T_EQ(symm_cu.cuStreamDestroy(blocking), 0);
        finish(2);
    }
}

T_MAIN(T(a_lane_on_a_stream_that_is_shut_spoils_no_capture), T(an_overrun_is_told_by_the_free),
       T(a_write_after_the_free_is_found), T(a_driver_that_fails_is_no_damage),
       T(another_streams_capture_goes_on),
       T(a_lane_on_the_legacy_stream_paints_nothing_while_others_are_captured),
       T(a_block_that_a_graph_left_is_looked_at))
