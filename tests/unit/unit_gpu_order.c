/* unit_gpu_order.c - the order of calls on GPUs, on the fake CUDA driver: changes of stream,
 * streams that are gone, calls that overlap, and how much of a GPU a communicator may fill. */
#include <fcntl.h>
#include <unistd.h>

#include "fgpu_kit.h"

static symmComm_t comms[GK_RANKS];

/* ---- streams -------------------------------------------------------------------------------- */

#define STAY            "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuCtxGetCurrent"
#define BARRIER(stream) T_OK(symmBarrier(comms[0], stream))

/* Communicators that are to fit side by side (symm.h): no kernel of theirs is let in while the one
 * before it waits for peers. */
static void cut_communicators_launch_without_overlap(void) {
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmUniqueId_t id;
    for (int how = 0; how < 3; how++) {
        gk_start(1, 0);
        T_OK(symm_cuda_set(0));
        config.maxCTAs = how == 0 ? 8 : SYMM_CONFIG_UNDEF;
        if (how == 1) setenv("SYMM_CTAS", "8", 1);
        T_OK(symmGetUniqueId(&id));
        T_OK(symmCommInitRankConfig(&comms[0], 1, id, 0, &config));
        unsetenv("SYMM_CTAS");
        BARRIER(NULL);
        T_EQ(gk_last(0).config.num_attrs, how == 2);
        T_EQ((gk_last(0).args.flags & SYMM_ARG_APART) != 0, how != 2);
        gk_close(comms, 1);
        GK_LEFT(0);
    }
}

#define CHANGE "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuStreamGetCtx cuCtxGetCurrent "

/* The first change waits for words; then calls are marked for a while, and then no more. */
static void a_change_of_stream_costs_one_event(void) {
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    T_OK(symm_cuda_set(0));
    symmStream_t a = gk_user(gk_stream(0)), b = gk_user(gk_stream(0));
    BARRIER(a);
    for (int i = 0; i < 3; i++) {
        gk_calls before = gk_count();
        BARRIER(a);
        GK_EXACTLY(&before, STAY);
    }
    for (int i = 0; i < 4; i++) {
        gk_calls before = gk_count();
        BARRIER(i % 2 ? a : b);
        if (i)
            GK_EXACTLY(&before, CHANGE "cuStreamWaitEvent cuEventRecord");
        else
            GK_EXACTLY(&before, CHANGE "cuStreamBatchMemOp cuEventRecord");
    }
    int marked = 0;
    for (int i = 0; i < 40; i++) {
        gk_calls before = gk_count();
        const int records = fake_cuda_calls("cuEventRecord");
        BARRIER(a);
        marked += fake_cuda_calls("cuEventRecord") - records;
        if (i == 39) GK_EXACTLY(&before, STAY);
    }
    T_EQ(marked, 31);
    T_EQ(fake_cuda_calls("cuEventCreate"), 2); /* creation's, one a rank */
    T_EQ(fake_cuda_calls("cuStreamSynchronize") - fake_cuda_calls("cuMemsetD32Async"), 0);
    gk_close(comms, 2);
}

/* The fake driver refuses the handle of a stream that is gone, whatever it is used for. */
static void the_last_stream_may_be_gone(void) {
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    T_OK(symm_cuda_set(0));
    cu_stream next = gk_stream(0);
    for (int i = 0; i < 200; i++) {
        cu_stream s = next;
        for (int k = 0; k < 1 + i % 3; k++) BARRIER(gk_user(s));
        if (i % 7 == 0) /* so that words are waited for, too */
            for (int k = 0; k < 40; k++) BARRIER(gk_user(s));
        next = gk_stream(0); /* before this one goes: another handle */
        T_EQ(symm_cu.cuStreamDestroy(s), 0);
    }
    T_CHECK(fake_cuda_calls("cuStreamBatchMemOp") > 20);
    T_EQ(fake_cuda_calls("cuCtxSynchronize"), 0);
    gk_close(comms, 2);
}

/* As before such waits: the event is recorded in the last call's stream. */
static void a_driver_without_waits_for_words(void) {
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    T_OK(symm_cuda_set(0));
    symmStream_t a = gk_user(gk_stream(0)), b = gk_user(gk_stream(0));
    BARRIER(a);
    fake_cuda_fail("cuStreamBatchMemOp", 1, SYMM_CUDA_ERROR_NOT_SUPPORTED);
    gk_calls before = gk_count();
    BARRIER(b);
    GK_EXACTLY(&before, "cuLaunchKernelEx cuStreamGetCaptureInfo_v3*2 cuStreamGetCtx "
                        "cuCtxGetCurrent cuStreamBatchMemOp cuEventRecord*2 cuStreamWaitEvent");
    gk_close(comms, 2);
}

/* With such a driver the legacy stream cannot be followed while a blocking stream is captured. The
 * call is refused, and the capture unharmed. */
static void a_legacy_stream_where_words_cannot_be_waited_for(void) {
    cu_stream blocking;
    cu_graph graph;
    T_EXPECT_WARNINGS();
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    T_OK(symm_cuda_set(0));
    symmStream_t other = gk_user(gk_stream(0));
    T_EQ(symm_cu.cuStreamCreate(&blocking, SYMM_CUDA_STREAM_DEFAULT), 0);
    BARRIER(NULL);
    T_EQ(symm_cu.cuStreamBeginCapture(blocking, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL), 0);
    fake_cuda_fail("cuStreamBatchMemOp", 1, SYMM_CUDA_ERROR_NOT_SUPPORTED);
    T_ERR(symmBarrier(comms[0], other), symmInvalidUsage);
    T_MSG(symmGetLastError(comms[0]), "waits for blocking streams, of which one is being captured");
    T_EQ(symm_cu.cuStreamEndCapture(blocking, &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    BARRIER(other);
    gk_close(comms, 2);
}

/* A call of `count` floats on one stream: its CTAs, and whether it may overlap the one before. */
static int one_call(symmStream_t s, float *p, size_t count, int *overlaps) {
    T_OK(symmAllReduce(p, p, count, symmFloat32, symmSum, comms[0], s));
    *overlaps = (int)gk_last(0).config.num_attrs;
    return (int)gk_last(0).config.grid_x;
}

/* What may be on the GPU at once, kernels that were let in early included, is never more than the
 * budget. */
static void calls_that_overlap_keep_to_the_budget(void) {
    static const size_t counts[] = {1, 3000, 300, 40000, 2, 2, 2, 4000000, 1, 60000, 60000, 1};
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    T_OK(symm_cuda_set(0));
    float *p;
    T_OK(symmMemAlloc((void **)&p, 16 * GK_MB));
    const int budget = gk_inside(comms[0])->gpus.budget;
    symmStream_t s = gk_user(gk_stream(0));
    int packed = 0, overlapped = 0, alone = 0;
    T_EQ(budget, 264);
    for (int i = 0; i < 300; i++) {
        int overlaps;
        const int ctas = one_call(s, p, counts[i % 12], &overlaps);
        T_CHECK(ctas <= budget);
        packed = overlaps ? packed + ctas : ctas;
        T_CHECKF(packed <= budget, "call %d: %d CTAs may run at once", i, packed);
        overlapped += overlaps;
        alone += !overlaps;
    }
    T_CHECK(overlapped > 50 && alone > 10);
    T_OK(symmMemFree(p));
    gk_close(comms, 2);
}

static void pair(symmComm_t *comms, int first, int budget) {
    const int devices[] = {first, first + 1};
    gk_open(comms, 2, devices);
    for (int r = 0; r < 2; r++) T_EQ(gk_inside(comms[r])->gpus.budget, budget);
}

/* Two CTAs on each multiprocessor for the first communicator on a GPU, if it is the first on all
 * its GPUs; and again when that one has gone. */
static void the_first_on_a_gpu_has_twice_the_ctas(void) {
    symmComm_t one[2], two[2], three[2];
    gk_start(4, 0);
    pair(one, 0, 264);
    pair(two, 1, 132); /* GPU 1 is taken; GPU 2 is not kept */
    pair(three, 2, 264);
    gk_close(three, 2);
    gk_close(one, 2);
    setenv("SYMM_CTA_BUDGET", "20", 1); /* cut: keeps none */
    pair(one, 2, 20);
    unsetenv("SYMM_CTA_BUDGET");
    pair(three, 2, 264);
    setenv("SYMM_SIDE_BY_SIDE", "4", 1);
    gk_close(two, 2);
    pair(two, 0, 132);
    unsetenv("SYMM_SIDE_BY_SIDE");
    gk_close(two, 2);
    pair(two, 0, 264);
    gk_close(one, 2);
    gk_close(two, 2);
    gk_close(three, 2);
}

typedef struct {
    int cta_budget, budget, min, max, ctas, pdl; /* config and variables; 0: not set */
    int most, overlaps; /* CTAs of the largest grid; whether a small call overlaps */
} limits;

/* The default, the knob for the whole GPU, and what cuts. */
static void budgets(void) {
    static const limits of[] = {{.most = 132, .overlaps = 1},
                                {.cta_budget = 256, .most = 132, .overlaps = 1},
                                {.budget = 256, .most = 132, .overlaps = 1},
                                {.budget = 256, .cta_budget = 20, .most = 20, .overlaps = 1},
                                {.max = 100, .most = 100},
                                {.max = 8, .most = 8},
                                {.ctas = 64, .most = 64},
                                {.min = 50, .most = 132, .overlaps = 1},
                                {.pdl = 1, .most = 132}};
    for (unsigned i = 0; i < sizeof of / sizeof of[0]; i++) {
        const limits *l = &of[i];
        char text[16];
        symmUniqueId_t id;
        symmConfig_t config = SYMM_CONFIG_INITIALIZER;
        symmExplain_t plan = {.size = sizeof plan};
        float *p;
        gk_start(2, 0);
        T_OK(symm_cuda_set(0));
        if (l->cta_budget) config.ctaBudget = l->cta_budget;
        if (l->min) config.minCTAs = l->min;
        if (l->max) config.maxCTAs = l->max;
        if (l->pdl) config.pdl = 0;
        snprintf(text, sizeof text, "%d", l->ctas ? l->ctas : l->budget);
        if (l->ctas || l->budget) setenv(l->ctas ? "SYMM_CTAS" : "SYMM_CTA_BUDGET", text, 1);
        T_OK(symmGetUniqueId(&id));
        T_OK(symmGroupStart());
        for (int r = 0; r < 2; r++) {
            T_OK(symm_cuda_set(r));
            T_OK(symmCommInitRankConfig(&comms[r], 2, id, r, &config));
        }
        T_OK(symmGroupEnd());
        T_OK(symm_cuda_set(0));
        T_OK(symmMemAlloc((void **)&p, 64 * GK_MB));
        T_OK(
            symmExplain(comms[0], symmCollAllReduce, p, p, 16 << 20, symmFloat, symmSum, 0, &plan));
        T_CHECKF(plan.ctas == l->most, "case %u: %d CTAs, not %d", i, plan.ctas, l->most);
        BARRIER(NULL);
        T_CHECKF((int)gk_last(0).config.num_attrs == l->overlaps, "case %u: overlap", i);
        T_OK(symmMemFree(p));
        unsetenv("SYMM_CTAS");
        unsetenv("SYMM_CTA_BUDGET");
        gk_close(comms, 2);
    }
}

static void slow(void *arg) {
    while (!__atomic_load_n((int *)arg, __ATOMIC_ACQUIRE)) usleep(200);
}

/* Work on the second stream waits for the call on the first, as seen by what has run; whether the
 * first change of stream, or a later one. */
static void in_order(int changes) {
    int gate = 0;
    gk_start(2, 1);
    gk_open(comms, 2, NULL);
    cu_stream a = gk_stream(0), b = gk_stream(0);
    for (int i = 0; i < changes; i++) BARRIER(gk_user(i % 2 ? a : b));
    T_OK(symmCommFinalize(comms[0]));
    T_EQ(symm_cu.cuLaunchHostFunc(a, slow, &gate), 0);
    BARRIER(gk_user(a));
    BARRIER(gk_user(b));
    usleep(20000);
    T_EQ(gk_last(0).count, changes);
    T_EQ(symm_cu.cuStreamQuery(b), SYMM_CUDA_ERROR_NOT_READY);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    T_OK(symmCommFinalize(comms[0])); /* waits for the last call, and so for all */
    T_EQ(gk_last(0).count, changes + 2);
    T_CHECK(gk_last(0).config.stream == b);
    gk_close(comms, 2);
    T_EQ(symm_cu.cuStreamDestroy(a), 0);
    T_EQ(symm_cu.cuStreamDestroy(b), 0);
}

static void streams_are_in_order(void) {
    in_order(0);
    in_order(5);
}

static void default_streams_work(void) {
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    T_OK(symm_cuda_set(0));
    BARRIER(NULL);
    gk_calls before = gk_count();
    BARRIER(NULL);
    GK_EXACTLY(&before, "cuLaunchKernelEx cuCtxGetCurrent"); /* it cannot be captured */
    T_CHECK(gk_last(0).config.stream == NULL);
    BARRIER(gk_user(SYMM_CUDA_STREAM_LEGACY));
    T_CHECK(gk_last(0).config.stream == SYMM_CUDA_STREAM_LEGACY);
    before = gk_count();
    BARRIER(gk_user(SYMM_CUDA_STREAM_LEGACY));
    GK_EXACTLY(&before, "cuLaunchKernelEx cuCtxGetCurrent cuEventRecord");
    BARRIER(gk_user(SYMM_CUDA_STREAM_PER_THREAD));
    T_CHECK(gk_last(0).config.stream == SYMM_CUDA_STREAM_PER_THREAD);
    T_EQ(gk_last(0).count, 5);
    gk_close(comms, 2);
}

static void *in_another_thread(void *arg) {
    T_OK(symm_cuda_set(0));
    BARRIER(gk_user(SYMM_CUDA_STREAM_PER_THREAD));
    *(int *)arg = 1;
    T_EQ(symm_cu.cuStreamSynchronize(SYMM_CUDA_STREAM_PER_THREAD), 0);
    return NULL;
}

/* The same handle means another stream in another thread. */
static void per_thread_streams_of_two_threads_are_in_order(void) {
    pthread_t other;
    int gate = 0, given = 0;
    gk_start(2, 1);
    gk_open(comms, 2, NULL);
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuLaunchHostFunc(SYMM_CUDA_STREAM_PER_THREAD, slow, &gate), 0);
    BARRIER(gk_user(SYMM_CUDA_STREAM_PER_THREAD));
    T_EQ(pthread_create(&other, NULL, in_another_thread, &given), 0);
    usleep(50000);
    T_EQ(gk_last(0).count, 0);
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
    T_EQ(pthread_join(other, NULL), 0);
    T_CHECK(given && gk_last(0).count == 2);
    gk_close(comms, 2);
}

static void wrong_streams_are_refused(void) {
    symmStream_t good;
    int *nothing = malloc(64);
    T_EXPECT_WARNINGS();
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    good = gk_user(gk_stream(0));
    BARRIER(good);
    T_ERR(symmBarrier(comms[0], (symmStream_t)(void *)nothing), symmInvalidArgument);
    T_MSG(symmGetLastError(comms[0]), "is no stream");
    T_ERR(symmBarrier(comms[0], gk_user(gk_stream(1))), symmInvalidArgument);
    T_MSG(symmGetLastError(comms[0]), "GPU");
    T_EQ(gk_last(0).count, 1);
    T_OK(symm_cuda_set(0));
    gk_calls before = gk_count();
    BARRIER(good); /* the refused ones have left no trace */
    GK_EXACTLY(&before, STAY);
    free(nothing);
    gk_close(comms, 2);
}

/* A stream may be destroyed while the communicator lives, where symm.h says so: no handle of one
 * that is gone comes to the driver (the fake one would refuse it), and nobody waits for the
 * whole GPU. */
static void streams_may_go_when_they_are_not_needed(void) {
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    T_OK(symm_cuda_set(0));
    cu_stream a = gk_stream(0), b = gk_stream(0), c = gk_stream(0);
    BARRIER(gk_user(a));
    T_OK(symmCommFinalize(comms[0]));
    T_EQ(symm_cu.cuStreamDestroy(a), 0);
    gk_calls before = gk_count();
    BARRIER(gk_user(b));
    GK_EXACTLY(&before,
               "cuLaunchKernelEx cuStreamGetCaptureInfo_v3 cuStreamGetCtx cuCtxGetCurrent");
    BARRIER(gk_user(c)); /* behind what b has */
    T_EQ(symm_cu.cuStreamDestroy(b), 0);
    BARRIER(gk_user(c));
    T_EQ(symm_cu.cuStreamDestroy(c), 0);
    T_EQ(fake_cuda_calls("cuCtxSynchronize"), 0);
    gk_close(comms, 2); /* waits for the last call without its stream */
    T_EQ(fake_cuda_calls("cuCtxSynchronize"), 0);
}

/* ---- captures ------------------------------------------------------------------------------- */

/* Each capture has its own row of calls that may overlap, whatever is called in between. */
static void captured_calls_overlap_within_the_budget(void) {
    gk_start(2, 0);
    setenv("SYMM_CTA_BUDGET", "33", 1);
    gk_open(comms, 2, NULL);
    unsetenv("SYMM_CTA_BUDGET");
    T_OK(symm_cuda_set(0));
    cu_stream own = gk_stream(0), other = gk_stream(0);
    cu_graph graph;
    const symm_comm *c = gk_inside(comms[0]);
    symmExplain_t few = {.size = sizeof few}, many = few;
    float *p;
    T_OK(symmMemAlloc((void **)&p, 1 << 20));
    T_OK(symmExplain(comms[0], symmCollAllReduce, p, p, 3000, symmFloat, symmSum, 0, &few));
    T_OK(symmExplain(comms[0], symmCollAllReduce, p, p, 60000, symmFloat, symmSum, 0, &many));
    T_CHECKF(many.ctas + few.ctas > c->gpus.budget, "%d + %d CTAs", many.ctas, few.ctas);
    T_CHECK(few.ctas * 2 <= c->gpus.budget && few.ctas * 3 > c->gpus.budget);
    T_EQ(symm_cu.cuStreamBeginCapture(own, SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    for (int i = 0; i < 9; i++) {
        T_OK(symmAllReduce(p, p, 3000, symmFloat, symmSum, comms[0], gk_user(own)));
        T_EQ(c->order.packs, i % 2 ? 2 * few.ctas : few.ctas);
        T_OK(symmAllReduce(p, p, 60000, symmFloat, symmSum, comms[0], gk_user(other)));
        T_EQ(c->order.packs, many.ctas); /* and no more: it does not overlap */
    }
    T_EQ(symm_cu.cuStreamEndCapture(own, &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_OK(symmMemFree(p));
    gk_close(comms, 2);
}

/* Memory is made and registered while both ranks' streams are captured, in the strictest mode: CUDA
 * forbids most calls to who does not say that they are its own. */
static void registered_inside_a_capture(void) {
    void *p[2];
    symmWindow_t win[2];
    cu_graph graph[2];
    cu_stream streams[2];
    gk_start(2, 0);
    gk_open(comms, 2, NULL);
    for (int r = 0; r < 2; r++) streams[r] = gk_stream(r);
    for (int r = 0; r < 2; r++) {
        T_OK(symm_cuda_set(r));
        T_EQ(symm_cu.cuStreamBeginCapture(streams[r], SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    }
    for (int r = 0; r < 2; r++) {
        T_OK(symm_cuda_set(r));
        T_OK(symmMemAlloc(&p[r], 1 << 20));
    }
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++)
        T_OK(symmWindowRegister(comms[r], p[r], 1 << 20, &win[r], SYMM_WIN_DEFAULT));
    T_OK(symmGroupEnd());
    for (int r = 0; r < 2; r++) {
        T_OK(symm_cuda_set(r));
        T_OK(symmAllReduce(p[r], p[r], 1000, symmFloat, symmSum, comms[r], gk_user(streams[r])));
        T_EQ(symm_cu.cuStreamEndCapture(streams[r], &graph[r]), 0); /* it was not spoilt */
        T_EQ(symm_cu.cuGraphDestroy(graph[r]), 0);
        T_OK(symmWindowDeregister(comms[r], win[r]));
        T_OK(symmMemFree(p[r]));
    }
    gk_close(comms, 2);
}

T_MAIN(T(captured_calls_overlap_within_the_budget), T(registered_inside_a_capture),
       T(cut_communicators_launch_without_overlap), T(a_change_of_stream_costs_one_event),
       T(the_last_stream_may_be_gone), T(a_driver_without_waits_for_words),
       T(a_legacy_stream_where_words_cannot_be_waited_for),
       T(calls_that_overlap_keep_to_the_budget), T(the_first_on_a_gpu_has_twice_the_ctas),
       T(budgets), T(streams_are_in_order), T(default_streams_work),
       T(per_thread_streams_of_two_threads_are_in_order), T(wrong_streams_are_refused),
       T(streams_may_go_when_they_are_not_needed))
