/* gpu_synced.c - synced buffers on GPUs: states and cases as on the host backend, pushes that are
 * under way when the next call comes, replays, peers that poll a generation and copy from the
 * owner's GPU, and what a push costs. Ranks are threads. */
#include "host/gpu/gpu.h"
#include "gpu_kit.h"
#include "synced_kit.h"

enum { BIG = 16 << 20, ROUNDS = 50 };

static void dev_set(void *dst, int value, size_t bytes, symmStream_t s) {
    CU(cuMemsetD8Async((uintptr_t)dst, (unsigned char)value, bytes, (cu_stream)(void *)s));
}
static void dev_get(void *dst, const void *src, size_t bytes, symmStream_t s) {
    CU(cuMemcpyDtoHAsync(dst, (uintptr_t)src, bytes, (cu_stream)(void *)s));
    CU(cuStreamSynchronize((cu_stream)(void *)s));
}
static const sy_device gpu = {dev_set, dev_get};

typedef struct {
    symmComm_t comm;
    symmHeap_t heap;
    cu_stream a, b;
} place;

static place place_new(void) {
    place p = {0};
    gk_begin();
    T_OK(symmCommInitAll(&p.comm, 1, NULL));
    T_OK(symmSetDevice(0));
    p.heap = sy_heap(p.comm, 2 * SY_MB, 4ull * BIG);
    p.a = gk_new_stream();
    p.b = gk_new_stream();
    return p;
}
static void place_end(place *p) {
    CU(cuStreamDestroy(p->a));
    CU(cuStreamDestroy(p->b));
    T_EQ(sy_used(p->heap), 0);
    T_OK(symmHeapDestroy(p->heap));
    T_OK(symmCommDestroy(p->comm));
}

/* ---- states ---- */

static void caffes_cases(void) {
    place p = place_new();
    symmStream_t streams[] = {NULL, gk_stream(p.a), gk_stream(SYMM_CUDA_STREAM_PER_THREAD)};
    for (int i = 0; i < 3; i++) {
        sy_case_initialization(p.heap);
        sy_case_allocation(p.heap, &gpu, streams[i]);
        sy_case_cpu_write(p.heap, streams[i]);
        sy_case_gpu_read(p.heap, &gpu, streams[i]);
        sy_case_gpu_write(p.heap, &gpu, streams[i]);
    }
    place_end(&p);
}

static void every_state_times_every_call(void) {
    T_EXPECT_WARNINGS();
    place p = place_new();
    sy_walk w = {.heap = p.heap,
                 .device = &gpu,
                 .stream = gk_stream(p.a),
                 .own_cpu = malloc(SY_BYTES),
                 .own_gpu = gk_plain(SY_BYTES)};
    sy_table(&w);
    free(w.own_cpu);
    gk_free_plain(w.own_gpu);
    place_end(&p);
}

/* ---- copies under way ---- */

/* The copy has not begun when the next call comes: a reader on another stream, a writer on the
 * host, a writer on the device. */
static void whoever_comes_next_is_in_order(void) {
    place p = place_new();
    char *seen = gk_pinned(BIG);
    symmSynced_t s = sy_new(p.heap, BIG);
    for (int i = 0; i < ROUNDS; i++) {
        const int value = i % 50 + 1;
        memset(sy_mut_cpu(s, gk_stream(p.a), 1), value, BIG);
        gk_delay(p.a, 1500);
        T_OK(symmSyncedPush(s, gk_stream(p.a)));
        if (!gk_number("GPU_FAKE", 0)) T_EQ(sy_head(s), SYMM_SYNCED_PUSHING);
        if (i % 3 == 0) {
            CU(cuMemcpyDtoHAsync(seen, (uintptr_t)sy_gpu(s, gk_stream(p.b)), BIG, p.b));
            gk_wait(NULL, p.b);
            sy_all(seen, value, BIG, "a reader on another stream");
        } else if (i % 3 == 1) {
            memset(sy_mut_cpu(s, gk_stream(p.b), 1), value + 100, BIG);
            sy_device_all(&gpu, s, gk_stream(p.b), value + 100, BIG);
        } else {
            dev_set(sy_mut_gpu(s, gk_stream(p.b), 1), value + 100, BIG, gk_stream(p.b));
            sy_all(sy_cpu(s, gk_stream(p.b)), value + 100, BIG, "a writer on another stream");
        }
        gk_wait(NULL, p.b); /* the caller's own order, before the next round uses stream a */
    }
    gk_delay(p.a, 1500);
    sy_mut_cpu(s, NULL, 1);
    T_OK(symmSyncedPush(s, gk_stream(p.a)));
    T_OK(symmSyncedDestroy(s)); /* waits */
    gk_free_pinned(seen);
    place_end(&p);
}

static void dirty_ranges_only(void) {
    place p = place_new();
    symmStream_t a = gk_stream(p.a);
    char *seen = gk_pinned(BIG);
    symmSynced_t s = sy_new(p.heap, BIG);
    memset(sy_mut_cpu(s, a, 1), 1, BIG);
    sy_gpu(s, a);
    memset(sy_mut_cpu(s, a, 1), 2, BIG);
    T_OK(symmSyncedDirty(s, 12345, 1000));
    T_OK(symmSyncedDirty(s, BIG - 1, 1));
    dev_get(seen, sy_gpu(s, a), BIG, a);
    for (int i = 0; i < BIG; i++)
        T_CHECKF(seen[i] == ((i >= 12345 && i < 13345) || i == BIG - 1 ? 2 : 1), "byte %d is %d", i,
                 seen[i]);
    T_OK(symmSyncedDestroy(s));
    gk_free_pinned(seen);
    place_end(&p);
}

static void replays_copy_what_is_there(void) {
    place p = place_new();
    symmStream_t a = gk_stream(p.a);
    symmSynced_t s = sy_new(p.heap, BIG);
    sy_mut_gpu(s, a, 1);
    gk_wait(NULL, p.a);
    gk_capture(p.a, SYMM_CUDA_CAPTURE_MODE_GLOBAL);
    T_OK(symmSyncedPull(s, a)); /* pinned memory in the strictest capture mode */
    gk_graph down = gk_captured(p.a);
    gk_capture(p.a, SYMM_CUDA_CAPTURE_MODE_GLOBAL);
    T_OK(symmSyncedPush(s, a));
    gk_graph up = gk_captured(p.a);
    for (int i = 1; i < 6; i++) {
        dev_set(sy_mut_gpu(s, a, 0), i, BIG, a);
        CU(cuGraphLaunch(down.exec, p.a));
        gk_wait(NULL, p.a);
        char *host = sy_mut_cpu(s, a, 0);
        sy_all(host, i, BIG, "after a replay down");
        memset(host, i + 50, BIG);
        CU(cuGraphLaunch(up.exec, p.a));
        sy_mut_gpu(s, a, 0);
        sy_device_all(&gpu, s, a, i + 50, BIG);
    }
    T_OK(symmSyncedDestroy(s));
    CU(cuGraphLaunch(up.exec, p.a)); /* the graph has what it needs */
    gk_wait(NULL, p.a);
    gk_drop(&up);
    gk_drop(&down);
    /* CUDA tells of a graph's end when it likes */
    for (int i = 0; i < 5000 && sy_used(p.heap); i++) {
        symm_gpu_reap();
        usleep(1000);
    }
    place_end(&p);
}

/* ---- peers ---- */

static void await_word(symmSynced_t s, int rank, uint32_t least) {
    const uint64_t since = symm_now_ns();
    uint32_t g = 0;
    do {
        T_OK(symmSyncedGeneration(s, rank, &g));
        T_CHECKF(gk_ms_since(since) < GK_STUCK_MS, "rank %d's generation stays %u, not %u", rank, g,
                 least);
    } while ((int32_t)(g - least) < 0);
}

/* The owner changes every round; the others poll its word and copy from its GPU, and answer with a
 * generation of their own. */
static void peer_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    symmRef_t data;
    symmSynced_t s;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream mine = gk_new_stream();
    char *seen = gk_pinned(SY_MB);
    symmHeap_t heap = sy_heap(comm, 4 * SY_MB, 0);
    T_OK(symmSyncedCreate(heap, SY_MB, SYMM_ALLOC_SYM, &s));
    T_OK(symmSyncedRef(s, &data, NULL));
    memset(sy_mut_cpu(s, NULL, 1), 0, SY_MB); /* pinned memory now, while nobody waits */
    gk_meet(j);
    for (int i = 0; i < ROUNDS; i++) {
        const int owner = i % n, value = i % 100 + 1;
        const uint32_t next = (uint32_t)i + 1;
        void *theirs;
        if (rank == owner) {
            memset(sy_mut_cpu(s, gk_stream(mine), 0), value, SY_MB);
            T_OK(symmSyncedPush(s, gk_stream(mine)));
        } else {
            await_word(s, owner, next);
            T_OK(symmRefPtr(&data, comm, owner, &theirs));
            CU(cuMemcpyDtoHAsync(seen, (uintptr_t)theirs, SY_MB, mine));
            gk_wait(NULL, mine);
            sy_all(seen, value, SY_MB, "a peer's data");
            T_OK(symmSyncedPublish(s, gk_stream(mine), NULL));
        }
        for (int r = 0; r < n; r++) await_word(s, r, next);
    }
    gk_wait(NULL, mine);
    gk_meet(j);
    T_OK(symmSyncedDestroy(s));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
    gk_free_pinned(seen);
    CU(cuStreamDestroy(mine));
}

static void peers_poll_the_generation_and_read(void) {
    static const int sizes[] = {2, 3, 5, 8};
    for (int i = 0; i < 4; i++) {
        gk_job j = {.n = sizes[i], .devices = gk_begin(), .seed = ck_seed()};
        gk_run(&j, peer_rank);
    }
}

/* ---- figures ---- */

static double us_since(uint64_t ns, int n) {
    return (double)(symm_now_ns() - ns) / 1e3 / n;
}

static void figures(void) {
    enum { TIMES = 200 };
    place p = place_new();
    symmStream_t a = gk_stream(p.a);
    symmSynced_t s = sy_new(p.heap, BIG);
    memset(sy_mut_cpu(s, a, 1), 1, BIG);
    sy_gpu(s, a);
    gk_wait(NULL, p.a);
    sy_settled(s);
    uint64_t t = symm_now_ns();
    for (int i = 0; i < TIMES * 100; i++) sy_gpu(s, a);
    gk_figure("synced: Gpu of a buffer that is at rest: %.3f us", us_since(t, TIMES * 100));
    t = symm_now_ns();
    for (int i = 0; i < TIMES; i++) {
        sy_mut_cpu(s, a, 1);
        T_OK(symmSyncedDirty(s, 0, 64));
        T_OK(symmSyncedPush(s, a));
    }
    gk_wait(NULL, p.a);
    gk_figure("synced: MutableCpu, Dirty of 64 B, Push, one after the other: %.2f us",
              us_since(t, TIMES));
    t = symm_now_ns();
    for (int i = 0; i < 20; i++) {
        sy_mut_cpu(s, a, 1);
        T_OK(symmSyncedPush(s, a));
    }
    gk_wait(NULL, p.a);
    gk_figure("synced: Push of 16 MiB: %.1f GB/s", BIG / us_since(t, 20) / 1e3);
    T_OK(symmSyncedDestroy(s));
    place_end(&p);
}

T_MAIN(T(caffes_cases), T(every_state_times_every_call), T(whoever_comes_next_is_in_order),
       T(dirty_ranges_only), T(replays_copy_what_is_there), T(peers_poll_the_generation_and_read),
       T(figures))
