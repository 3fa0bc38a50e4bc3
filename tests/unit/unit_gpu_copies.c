/* unit_gpu_copies.c - calls by copy engines on the fake CUDA driver: what the stream is given, what
 * is copied from where, when nothing is, what a graph holds and how its nodes depend on each other,
 * and the driver's errors. */
#include "host/coll/copies.h"
#include "fgpu_kit.h"
#include "symm_heap.h"

enum { COUNT = 1000, PART = 4 * COUNT, N = 2 };
#define HALF (2 * GK_MB)

static symmComm_t comms[GK_RANKS];
static cu_stream streams[GK_RANKS];
static char *buf[GK_RANKS];
static symmWindow_t win[GK_RANKS];
static symmHeap_t heap[GK_RANKS];

/* A window of each rank, or a block of a heap: its source at 0, its result in the second half. Of
 * thread ranks copies load from heaps alone; what prepare() makes is what processes have. */
static void start(int n, const char *algo, int heaps) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    setenv("SYMM_ALGO", algo, 1);
    gk_start(n, 0);
    gk_open(comms, n, NULL);
    unsetenv("SYMM_ALGO");
    config.symBytes = config.localBytes = 2 * HALF;
    memset(heap, 0, sizeof heap);
    T_OK(symmGroupStart());
    for (int r = 0; r < n; r++) {
        streams[r] = gk_stream(r);
        if (heaps)
            T_OK(symmHeapCreate(comms[r], &config, &heap[r]));
        else
            buf[r] = gk_memory(r, 2 * HALF);
        if (!heaps) T_OK(symmWindowRegister(comms[r], buf[r], 2 * HALF, &win[r], SYMM_WIN_DEFAULT));
    }
    T_OK(symmGroupEnd());
    for (int r = 0; r < n && heaps; r++)
        T_OK(symmHeapAlloc(heap[r], 2 * HALF, 0, 0, (void **)&buf[r]));
}
static void finish(int n) {
    for (int r = 0; r < n; r++) {
        T_OK(symm_cuda_set(r));
        T_EQ(symm_cu.cuStreamDestroy(streams[r]), 0);
        if (heap[r]) T_OK(symmHeapDestroy(heap[r]));
        T_OK(symmCommDestroy(comms[r]));
        if (!heap[r]) T_OK(symmMemFree(buf[r]));
    }
    GK_LEFT(0);
}

static void gather(int r, const void *src, void *dst) {
    T_OK(symm_cuda_set(r));
    T_OK(symmAllGather(src, dst, COUNT, symmInt32, comms[r], gk_user(streams[r])));
}
static symm_ctl *ctl(int r) {
    return gk_inside(comms[r])->ctl;
}
static void fill(int r, int from, int value) {
    T_OK(symm_cuda_set(r));
    T_EQ(symm_cu.cuMemsetD8((uintptr_t)(buf[r] + from), (unsigned char)value, PART), 0);
}
static int byte_at(int r, uint64_t at) {
    unsigned char seen = 0;
    T_OK(symm_cuda_set(r));
    T_EQ(symm_cu.cuMemcpyDtoH(&seen, (uintptr_t)(buf[r] + at), 1), 0);
    return seen;
}

/* ---- eager ---- */

/* The own part is copied too; in place there is none. */
static void an_eager_call_is_two_kernels_and_copies(void) {
    start(N, "all_gather_copies", 1);
    for (int r = 0; r < N; r++) fill(r, 0, 11 + r);
    gather(0, buf[0], buf[0] + HALF); /* the first call also looks at its stream */
    const gk_calls before = gk_count();
    T_OK(symmAllGather(buf[0], buf[0] + HALF, COUNT, symmInt32, comms[0], gk_user(streams[0])));
    GK_EXACTLY(&before,
               "cuCtxGetCurrent cuStreamGetCaptureInfo_v3 cuLaunchKernelEx*2 cuMemcpyAsync*2");
    for (int p = 0; p < N; p++) {
        T_EQ(byte_at(0, HALF + (unsigned)p * PART), 11 + p);
        T_EQ(byte_at(0, HALF + (unsigned)p * PART + PART - 1), 11 + p);
    }
    T_EQ(byte_at(0, HALF + N * PART), 0);
    T_STREQ(gk_last(0).kernel, "symm_all_gather_direct_n2"); /* ends the call */
    T_CHECK(gk_last(0).args.flags & SYMM_ARG_COPIES);
    T_EQ(gk_last(0).config.num_attrs, 0); /* what is before it is no kernel */
    const int copies = fake_cuda_calls("cuMemcpyAsync");
    gather(1, buf[1] + HALF + PART, buf[1] + HALF);
    T_EQ(fake_cuda_calls("cuMemcpyAsync") - copies, 1);
    finish(N);
}

static void the_kernel_before_has_the_word_of_the_places(void) {
    start(N, "all_gather_copies", 1);
    for (int r = 0; r < N; r++) gather(r, buf[r], buf[r] + HALF);
    const uint64_t word = gk_last(0).copies.scalar;
    T_CHECK(word);
    T_EQ(gk_last(1).copies.scalar, word);
    gather(1, buf[1] + 16, buf[1] + HALF); /* another place */
    T_CHECK(gk_last(1).copies.scalar && gk_last(1).copies.scalar != word);
    gather(1, buf[1], buf[1] + HALF + 16); /* the result may be anywhere */
    T_EQ(gk_last(1).copies.scalar, word);
    for (int r = 0; r < N; r++) gather(r, buf[r] + HALF + r * PART, buf[r] + HALF);
    const uint64_t in_place = gk_last(0).copies.scalar;
    T_CHECK(in_place && in_place != word);
    T_EQ(gk_last(1).copies.scalar, in_place);
    gather(1, buf[1] + HALF, buf[1] + HALF + N * PART); /* rank 0's place, and not in place */
    T_CHECK(gk_last(1).copies.scalar != in_place);
    finish(N);
}

static int copies_of(int r, const void *src, void *dst) {
    const int before = fake_cuda_calls("cuMemcpyAsync");
    gather(r, src, dst);
    return fake_cuda_calls("cuMemcpyAsync") - before;
}

/* The kernels run all the same: other ranks may have their sources in windows. */
static void nothing_is_copied_from_no_window(void) {
    symmExplain_t plan = {.size = sizeof plan};
    start(N, "all_gather_copies", 1);
    char *loose = gk_memory(0, HALF);
    int launches = fake_cuda_calls("cuLaunchKernelEx");
    T_EQ(copies_of(0, loose, buf[0] + HALF), 0);
    T_EQ(gk_last(0).copies.scalar, 0);
    T_EQ(fake_cuda_calls("cuLaunchKernelEx") - launches, 2);
    T_EQ(copies_of(0, buf[0], loose), 2);
    T_OK(symmExplain(comms[0], symmCollAllGather, loose, buf[0] + HALF, COUNT, symmInt32, symmSum,
                     0, &plan));
    T_CHECK(!plan.zeroCopySend && plan.zeroCopyRecv);
    T_MSG(plan.reason, "copy engines need all ranks' sources at one place of a window");
    /* without lines the kernel stores it straight into windows, or stages it if its result is in
     * none */
    symm_comm *c = gk_inside(comms[0]);
    c->params.relay = SYMM_RELAY_STAGING;
    c->windows.version++; /* what is remembered of calls ends */
    T_OK(symmExplain(comms[0], symmCollAllGather, loose, buf[0] + HALF, COUNT, symmInt32, symmSum,
                     0, &plan));
    T_CHECK(plan.zeroCopySend && plan.zeroCopyRecv && !strstr(plan.reason, "staged through"));
    c->params.relay = SYMM_RELAY_AUTO;
    c->windows.version++;
    T_OK(symmExplain(comms[0], symmCollAllGather, buf[0], loose, COUNT, symmInt32, symmSum, 0,
                     &plan));
    T_STREQ(plan.kernel, "all_gather_copies");
    T_CHECK(plan.zeroCopySend && plan.zeroCopyRecv);
    T_MSG(plan.reason, "copy engines move it if the sources of all ranks are at the same place");
    T_OK(symmMemFree(loose));
    finish(N);
}

/* The driver may copy into host memory while the caller waits. The copy waits for peers, which may
 * need this thread. */
static void nothing_is_copied_into_host_memory(void) {
    void *host = NULL;
    start(N, "all_gather_copies", 1);
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuMemAllocHost(&host, N * PART), 0);
    T_EQ(copies_of(0, buf[0], host), 0);
    T_EQ(gk_last(0).copies.scalar, 0);
    T_EQ(copies_of(0, buf[0], buf[0] + HALF), 2);
    T_EQ(symm_cu.cuMemFreeHost(host), 0);
    finish(N);
}

/* The kernel finds that copies were for nothing, and says so in the rank's page. */
static void a_rank_whose_copies_were_for_nothing_gives_none(void) {
    symmExplain_t plan = {.size = sizeof plan};
    start(N, "all_gather_copies", 1);
    T_EQ(copies_of(0, buf[0], buf[0] + HALF), 2);
    ctl(0)->astray = 1;
    T_EQ(copies_of(0, buf[0], buf[0] + HALF), 0);
    T_EQ(gk_last(0).copies.scalar, 0);
    T_EQ(copies_of(1, buf[1], buf[1] + HALF), 2);
    T_OK(symmExplain(comms[0], symmCollAllGather, buf[0], buf[0] + HALF, COUNT, symmInt32, symmSum,
                     0, &plan));
    T_MSG(plan.reason, "not behind a call whose sources were not at the same place");
    char *loose = gk_memory(0, HALF);
    T_OK(symmExplain(comms[0], symmCollAllGather, buf[0], loose, COUNT, symmInt32, symmSum, 0,
                     &plan));
    T_CHECK(!plan.zeroCopyRecv); /* as the kernel that moves it */
    T_OK(symmMemFree(loose));
    finish(N);
}

/* ---- what is copied ---- */

static void prepare(int r, symm_coll k, symm_launch *l, symm_copies *out) {
    symm_comm *c = gk_inside(comms[r]);
    c->threads = 0;
    T_OK(symm_coll_prepare(c, &k, l));
    c->threads = 1;
    symm_copies_list(l, out);
}
/* Where at a rank the address is. */
static uint64_t place_at(int rank, const void *p) {
    const symm_comm *c = gk_inside(comms[0]);
    const symm_win *w = symm_handle_peek(SYMM_KIND_WINDOW, win[0]);
    return (uintptr_t)p - (c->base + (unsigned)rank * c->stride + w->off[rank]);
}

/* Each rank's part of every source, from its next rank on: no two load from one at a time. */
static void parts_come_in_turn(void) {
    enum { RANKS = 4 };
    symm_launch l;
    symm_copies k;
    start(RANKS, "alltoall:alltoall_copies,all_gather:all_gather_copies", 0);
    for (int r = 0; r < RANKS; r++) {
        prepare(r,
                (symm_coll){.coll = symmCollAlltoAll,
                            .src = buf[r],
                            .dst = buf[r] + HALF,
                            .count = COUNT,
                            .type = symmInt32},
                &l, &k);
        T_EQ(k.n, RANKS - 1);
        T_EQ(k.own.bytes, PART);
        T_CHECK(k.own.to == buf[r] + HALF + r * PART && k.own.from == buf[r] + r * PART);
        for (int q = 1; q < RANKS; q++) {
            const int p = (r + q) % RANKS;
            T_EQ(k.peer[q - 1].bytes, PART);
            T_CHECK(k.peer[q - 1].to == buf[r] + HALF + p * PART);
            T_EQ(place_at(p, k.peer[q - 1].from), (unsigned)r * PART);
        }
    }
    for (int r = 0; r < RANKS; r++) { /* in place */
        prepare(r,
                (symm_coll){.coll = symmCollAllGather,
                            .src = buf[r] + 64 + r * PART,
                            .dst = buf[r] + 64,
                            .count = COUNT,
                            .type = symmInt32},
                &l, &k);
        T_EQ(k.n, RANKS - 1);
        T_EQ(k.own.bytes, 0);
        for (int q = 1; q < RANKS; q++)
            T_EQ(place_at((r + q) % RANKS, k.peer[q - 1].from),
                 64 + (unsigned)((r + q) % RANKS) * PART);
    }
    finish(RANKS);
}

/* The root copies its own part, if at all. The other rank loads from where its sendbuff points to,
 * or else from where it receives. */
static void a_root_is_loaded_from(void) {
    symm_launch l;
    symm_copies k;
    symm_coll call = {.coll = symmCollBroadcast, .root = 1, .count = COUNT, .type = symmInt32};
    start(N, "broadcast:broadcast_copies", 0);
    for (int named = 0; named < 2; named++) {
        call.src = named ? buf[0] : NULL, call.dst = buf[0] + HALF;
        prepare(0, call, &l, &k);
        T_CHECK(k.n == 1 && !k.own.bytes && k.peer[0].to == buf[0] + HALF);
        T_EQ(k.peer[0].bytes, PART);
        T_EQ(place_at(1, k.peer[0].from), named ? 0 : HALF);
        const uint64_t word = l.args.scalar;
        call.src = buf[1], call.dst = buf[1] + HALF;
        prepare(1, call, &l, &k);
        T_CHECK(k.n == 0 && k.own.bytes == PART && k.own.from == buf[1]);
        T_EQ(l.args.scalar == word, named);
        call.src = call.dst;
        prepare(1, call, &l, &k);
        T_CHECK(k.n == 0 && !k.own.bytes);
        T_EQ(l.args.scalar == word, !named);
    }
    finish(N);
}

/* What is swapped goes through scratch; and no bytes are not copied. */
static void what_is_not_copied(void) {
    symm_launch l;
    symm_copies k;
    start(N, "alltoall:alltoall_copies", 0);
    symm_coll call = {
        .coll = symmCollAlltoAll, .src = buf[0], .dst = buf[0], .count = COUNT, .type = symmInt32};
    prepare(0, call, &l, &k);
    T_CHECK(!k.n && !k.own.bytes && !l.args.scalar && l.args.flags & SYMM_ARG_COPIES);
    call.dst = buf[0] + HALF, call.count = 0;
    prepare(0, call, &l, &k);
    T_CHECK(!k.n && !k.own.bytes && !l.args.scalar);
    finish(N);
}

/* Windows may be of any size on each rank: what a peer has not is not loaded. */
static void a_window_may_be_shorter_elsewhere(void) {
    symm_launch l;
    symm_copies k;
    symmWindow_t more[N];
    char *other[N];
    start(N, "all_gather_copies", 0);
    T_OK(symmGroupStart());
    for (int r = 0; r < N; r++) {
        other[r] = gk_memory(r, HALF);
        T_OK(symmWindowRegister(comms[r], other[r], r ? 2 * PART : 3 * PART, &more[r],
                                SYMM_WIN_DEFAULT));
    }
    T_OK(symmGroupEnd());
    const uint64_t from[] = {PART, PART + 4, 2 * PART};
    for (int i = 0; i < 3; i++) {
        prepare(0,
                (symm_coll){.coll = symmCollAllGather,
                            .src = other[0] + from[i],
                            .dst = buf[0],
                            .count = COUNT,
                            .type = symmInt32},
                &l, &k);
        T_EQ(k.n, i == 0);
        T_EQ(l.args.scalar != 0, i == 0);
    }
    for (int r = 0; r < N; r++) {
        T_OK(symmWindowDeregister(comms[r], more[r]));
        T_OK(symmMemFree(other[r]));
    }
    finish(N);
}

/* Thread ranks: a peer that has freed its part of a window has unmapped it for all. What is behind
 * a heap stays until the last rank has left it; LOCAL blocks are no peer's business. */
static void thread_ranks_copy_from_heaps_alone(void) {
    symmWindow_t more[N];
    char *other[N], *local;
    start(N, "all_gather_copies", 1);
    T_OK(symmGroupStart());
    for (int r = 0; r < N; r++) {
        other[r] = gk_memory(r, HALF);
        T_OK(symmWindowRegister(comms[r], other[r], HALF, &more[r], SYMM_WIN_DEFAULT));
    }
    T_OK(symmGroupEnd());
    T_OK(symmHeapAlloc(heap[0], PART, 0, SYMM_ALLOC_LOCAL, (void **)&local));
    T_EQ(copies_of(0, other[0], buf[0] + HALF), 0);
    T_EQ(gk_last(0).copies.scalar, 0);
    T_EQ(copies_of(0, local, buf[0] + HALF), 0);
    T_EQ(copies_of(0, buf[0], buf[0] + HALF), 2);
    for (int r = 0; r < N; r++) {
        T_OK(symmWindowDeregister(comms[r], more[r]));
        T_OK(symmMemFree(other[r]));
    }
    finish(N);
}

/* Sums of places differ: these two pairs were one word when each place was multiplied alone. */
static void other_places_are_another_word(void) {
    static const uint64_t at[][2] = {{0x378200000, 0xc80200000}, {0xb78200000, 0x1480200000}};
    symm_launch l;
    symm_copies k;
    start(N, "all_gather_copies", 0);
    symm_win *w = symm_handle_peek(SYMM_KIND_WINDOW, win[0]);
    const symm_coll call = {.coll = symmCollAllGather,
                            .src = buf[0],
                            .dst = buf[0] + HALF,
                            .count = COUNT,
                            .type = symmInt32};
    for (int i = 0; i < 2; i++) {
        uint64_t word[2], own[N] = {w->off[0], w->off[1]};
        for (int side = 0; side < 2; side++) {
            w->off[0] = w->off[1] = at[i][side];
            prepare(0, call, &l, &k);
            word[side] = l.args.scalar;
        }
        w->off[0] = own[0], w->off[1] = own[1];
        T_CHECK(word[0] && word[1] && word[0] != word[1]);
    }
    finish(N);
}

/* ---- captured ---- */

static cu_graph capture(int r, void *dst) {
    cu_graph graph = NULL;
    T_OK(symm_cuda_set(r));
    T_EQ(symm_cu.cuStreamBeginCapture(streams[r], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    gather(r, buf[r], dst);
    T_EQ(symm_cu.cuStreamEndCapture(streams[r], &graph), 0);
    return graph;
}

/* The copies are beside each other there too, by edges: no stream or event of ours is in the
 * capture. A graph holds the window. */
static void a_graph_has_copies_as_nodes(void) {
    cu_graph_exec exec;
    start(N, "all_gather_copies", 1);
    fill(0, 0, 11), fill(1, 0, 12);
    const int records = fake_cuda_calls("cuEventRecord"),
              edges = fake_cuda_calls("cuStreamUpdateCaptureDependencies_v2");
    cu_graph graph = capture(0, buf[0] + HALF);
    T_EQ(fake_cuda_calls("cuEventRecord"), records);
    T_EQ(fake_cuda_calls("cuStreamUpdateCaptureDependencies_v2") - edges, 2);
    T_EQ(gk_last(0).count, 0); /* recorded, not run */
    T_EQ(symm_cu.cuGraphInstantiate(&exec, graph, 0), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_EQ(copies_of(0, buf[0], buf[0] + HALF), 2); /* eager, between capture and replay */
    for (int i = 0; i < 3; i++) {
        fill(1, 0, 20 + i);
        T_EQ(symm_cu.cuGraphLaunch(exec, streams[0]), 0);
        T_EQ(gk_last(0).count, 2 * (i + 2));
        T_EQ(byte_at(0, HALF), 11);
        T_EQ(byte_at(0, HALF + PART), 20 + i);
    }
    T_EQ(symm_cu.cuGraphExecDestroy(exec), 0);
    symm_gpu_reap();
    finish(N);
}

/* The window that a rank loads from is held too, if it has no source of its own. */
static void a_graph_holds_the_window_that_is_loaded(void) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t more[N];
    char *other[N];
    cu_graph graph;
    start(N, "broadcast:broadcast_copies", 1);
    config.symBytes = HALF;
    T_OK(symmGroupStart());
    for (int r = 0; r < N; r++) T_OK(symmHeapCreate(comms[r], &config, &more[r]));
    T_OK(symmGroupEnd());
    for (int r = 0; r < N; r++) T_OK(symmHeapAlloc(more[r], PART, 0, 0, (void **)&other[r]));
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuStreamBeginCapture(streams[0], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    T_OK(symmBroadcast(other[0], buf[0], COUNT, symmInt32, 1, comms[0], gk_user(streams[0])));
    T_EQ(symm_cu.cuStreamEndCapture(streams[0], &graph), 0);
    for (int r = 0; r < N; r++) T_OK(symmHeapDestroy(more[r]));
    T_EQ(fake_cuda_access(other[0]), 3); /* still there */
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    symm_gpu_reap();
    T_EQ(fake_cuda_access(other[0]), 0);
    finish(N);
}

/* ---- errors ---- */

/* An eager call that fails halfway breaks the communicator: its peers wait for a kernel. */
static void a_copy_that_fails_breaks_the_communicator(void) {
    static const struct {
        const char *call;
        int nth;
    } calls[] = {{"cuMemcpyAsync", 1},
                 {"cuMemcpyAsync", 2},
                 {"cuLaunchKernelEx", 2},
                 {"cuLaunchKernelEx", 1}};
    T_EXPECT_WARNINGS();
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        symmResult_t async = symmSuccess;
        start(N, "all_gather_copies", 1);
        gather(0, buf[0], buf[0] + HALF);
        fake_cuda_fail(calls[i].call, calls[i].nth, 719);
        T_ERR(symmAllGather(buf[0], buf[0] + HALF, COUNT, symmInt32, comms[0], gk_user(streams[0])),
              symmUnhandledCudaError);
        T_MSG(symmGetLastError(NULL), "CUDA_ERROR_LAUNCH_FAILED");
        T_OK(symmCommGetAsyncError(comms[0], &async));
        T_EQ(async, symmUnhandledCudaError);
        finish(N);
    }
}

T_MAIN(T(an_eager_call_is_two_kernels_and_copies), T(the_kernel_before_has_the_word_of_the_places),
       T(nothing_is_copied_from_no_window), T(nothing_is_copied_into_host_memory),
       T(a_rank_whose_copies_were_for_nothing_gives_none), T(parts_come_in_turn),
       T(a_root_is_loaded_from), T(what_is_not_copied), T(a_window_may_be_shorter_elsewhere),
       T(thread_ranks_copy_from_heaps_alone), T(other_places_are_another_word),
       T(a_graph_has_copies_as_nodes), T(a_graph_holds_the_window_that_is_loaded),
       T(a_copy_that_fails_breaks_the_communicator))
