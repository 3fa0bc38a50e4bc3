/* gpu_device_api.c - kernels that use the device API on GPUs: barriers, signals, packets, lines,
 * copies and sums of 1 to 4 ranks, in kernels that follow each other and in graphs that are
 * replayed; a rank that does not come, an abort under a kernel that waits. The kernels are those of
 * unit_device_api (device_kernels.inl). Thread ranks on GPU rank % devices; each drives a stream of
 * its own. On the fake driver no kernel waits: only what the test itself does is run. */
#include "gpu_kit.h"

#include "emu_dev.h"
#include "fake_cuda.h"
#include "moe_kit.h"
#include "symm_heap.h"

enum { MOST = 4, WINDOW = 1 << 20, SIGNALS = 16, GROUPS = 8, CALLS = 3, REPLAYS = 20 };
enum {
    BARRIERS,
    APART,
    FILL,
    GATHER,
    SIGNALLING,
    POLLS,
    COUNTS,
    PACKETS,
    LINES,
    COPY,
    SUM,
    MOE,
    KERNELS
};
static const char *const names[KERNELS] = {
    "dev_barriers", "dev_apart",   "dev_fill",  "dev_gather", "dev_signals", "dev_polls",
    "dev_counts",   "dev_packets", "dev_lines", "dev_copy",   "dev_sum_f32", "dev_moe"};

typedef struct {
    gk_job *j;
    char *image;
    _Atomic int told; /* ranks that were told of an error */
} plan;

typedef struct {
    const plan *p;
    int rank, n;
    symmComm_t comm;
    cu_stream stream;
    cu_library lib;
    cu_kernel kernel[KERNELS];
    symmHeap_t heap;
    char *window;
    uint64_t *out;
    symmDevWindow_t win;
    symmDevComm_t dev;
} user;

/* ---- set-up ---------------------------------------------------------------------------------- */

/* The fake driver's kernel: it has done all. */
static void fake_kernel(const cu_launch_config *config, void **args) {
    const emu_dev_args *t = args[0];
    (void)config;
    if (!t->absent) t->out[OUT_DONE] = 1;
}

static char *read_image(int debug) {
    static const size_t size = sizeof(emu_dev_args);
    const char *path =
        debug ? "build/cuda/user_device_debug.fatbin" : "build/cuda/user_device.fatbin";
    if (gk_number("GPU_FAKE", 0)) {
        for (int k = 0; k < KERNELS; k++) fake_cuda_kernel(names[k], fake_kernel, 1, &size);
        return calloc(1, 1);
    }
    FILE *f = fopen(path, "rb");
    if (!f) T_SKIP("no %s (make check-gpu builds it where nvcc is)", path);
    T_EQ(fseek(f, 0, SEEK_END), 0);
    const long bytes = ftell(f);
    char *image = malloc((size_t)bytes);
    rewind(f);
    T_CHECK(image && fread(image, 1, (size_t)bytes, f) == (size_t)bytes);
    fclose(f);
    return image;
}

static void launch(const user *u, int kernel, unsigned ctas, unsigned threads, emu_dev_args what) {
    cu_launch_config config = {ctas, 1, 1, threads, 1, 1, 0, u->stream, NULL, 0};
    what.dc = u->dev;
    what.win = u->win;
    what.out = u->out;
    void *args[] = {&what};
    CU(cuLaunchKernelEx(&config, (cu_function)(void *)u->kernel[kernel], args, NULL));
}

/* The driver loads a kernel when it is first launched, and may wait for the GPU then. */
static void load_kernels(user *u) {
    CU(cuLibraryLoadData(&u->lib, u->p->image, NULL, NULL, 0, NULL, NULL, 0));
    for (int k = 0; k < KERNELS; k++) {
        CU(cuLibraryGetKernel(&u->kernel[k], u->lib, names[k]));
        launch(u, k, 1, 64, (emu_dev_args){.absent = 1});
    }
    gk_wait(u->comm, u->stream);
}

static void clear_out(const user *u) {
    CU(cuMemsetD8Async((uintptr_t)u->out, 0, OUT_WORDS * 8, u->stream));
}

static user open_user(const plan *p, int rank, int n) {
    user u = {.p = p, .rank = rank, .n = n, .comm = p->j->comms[rank], .dev.nranks = 1};
    symmHeapConfig_t k = SYMM_HEAP_CONFIG_INITIALIZER;
    symmDevRequirements_t need = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    T_OK(symmSetDevice(rank % p->j->devices));
    u.stream = gk_new_stream();
    u.out = (uint64_t *)(void *)gk_plain(OUT_WORDS * 8);
    load_kernels(&u);
    k.symBytes = WINDOW;
    T_OK(symmHeapCreate(u.comm, &k, &u.heap));
    T_OK(symmHeapAlloc(u.heap, WINDOW / 2, 0, SYMM_ALLOC_SYM, (void **)&u.window));
    T_OK(symmDevWindowGet(u.comm, u.window, WINDOW / 2, &u.win));
    need.barriers = GROUPS;
    need.signals = SIGNALS;
    need.llBytes = 4096;
    need.lineBytes = 2000;
    T_OK(symmDevCommCreate(u.comm, &need, &u.dev));
    clear_out(&u);
    gk_wait(u.comm, u.stream);
    gk_meet(p->j);
    return u;
}

static void close_user(user *u) {
    gk_meet(u->p->j);
    T_OK(symmDevCommDestroy(u->comm, &u->dev));
    T_OK(symmHeapDestroy(u->heap));
    T_OK(symmCommDestroy(u->comm));
    gk_free_plain((char *)u->out);
    CU(cuStreamDestroy(u->stream));
}

/* What the kernels since the last time have left. */
static void all_is_well(const user *u, const char *what) {
    uint64_t out[OUT_WORDS];
    gk_get(u->comm, u->stream, out, u->out, sizeof out);
    T_CHECKF(!out[OUT_GAVE_UP], "%s: rank %d of %d gave up: %s", what, u->rank, u->n,
             gk_env("SYMM_TIMEOUT"));
    T_CHECKF(!out[OUT_WRONG], "%s: rank %d of %d: wrong data", what, u->rank, u->n);
    T_CHECKF(out[OUT_DONE], "%s: rank %d of %d: nothing was done", what, u->rank, u->n);
    gk_meet(u->p->j);
    clear_out(u);
    gk_wait(u->comm, u->stream);
    gk_meet(u->p->j);
}

/* ---- kernels that follow each other ---------------------------------------------------------- */

/* first: the number of the first round; those of signals go on from call to call. */
static void calls_of(const user *u, int kernel, unsigned ctas, unsigned threads, int warps) {
    const int rounds = kernel == COUNTS ? 4 : 50;
    for (int c = 0; c < CALLS; c++)
        launch(u, kernel, ctas, threads,
               (emu_dev_args){
                   .rounds = rounds, .first = c * rounds, .items = 3, .warps = (uint32_t)warps});
    all_is_well(u, names[kernel]);
}

/* A put with its signal, and the answer, in a kernel that goes on: what calls of the host add is
 * the start of their kernels. */
static void time_signals(const user *u) {
    enum { ROUNDS = 4000, TIMES = 5 };
    double best = 0;
    for (int i = 0; i < TIMES; i++) {
        gk_meet(u->p->j);
        const uint64_t since = symm_now_ns();
        launch(u, SIGNALLING, 1, 32,
               (emu_dev_args){.rounds = ROUNDS, .first = CALLS * 50 + i * ROUNDS});
        gk_wait(u->comm, u->stream);
        const double us = (double)(symm_now_ns() - since) / 1e3 / ROUNDS;
        if (!i || us < best) best = us;
    }
    all_is_well(u, "dev_signals, timed");
    if (u->rank == 0 && u->n == 2 && !gk_number("GPU_FAKE", 0))
        gk_figure("put of 512 bytes with its signal in a kernel, and the answer: %.2f us", best);
}

/* The signals that ring and polls count on are 0 again. */
static void reset_signals(user *u) {
    symmDevRequirements_t need = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    need.barriers = GROUPS;
    need.signals = SIGNALS;
    need.llBytes = 4096;
    need.lineBytes = 2000;
    T_OK(symmDevCommDestroy(u->comm, &u->dev));
    T_OK(symmDevCommCreate(u->comm, &need, &u->dev));
    gk_meet(u->p->j);
}

static void gathers(const user *u) {
    for (int c = 0; c < 20; c++) {
        launch(u, FILL, 2, 64, (emu_dev_args){.first = c});
        launch(u, GATHER, 2, 64, (emu_dev_args){.first = c});
    }
    all_is_well(u, "dev_gather");
}

static void copies(const user *u) {
    static const uint64_t lengths[] = {0, 1, 15, 16, 17, 4096, 100003};
    for (int c = 0, count = 0; c < 2; c++)
        for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++, count++) {
            const emu_dev_args what = {.from = 16 + i,
                                       .to = WINDOW / 4 + 32 + i * (unsigned)c,
                                       .len = lengths[i],
                                       .warps = i % 3,
                                       .first = count};
            gk_fill(u->stream, u->window + WINDOW / 4, WINDOW / 4, 0);
            gk_fill(u->stream, u->window, WINDOW / 4, 17 * u->rank + (int)i);
            gk_wait(u->comm, u->stream);
            gk_meet(u->p->j);
            launch(u, COPY, 1, 128, what);
            all_is_well(u, "dev_copy");
        }
}

/* Small numbers, whose sums are exact. */
static void sums(const user *u) {
    enum { COUNT = 256, AT = 65536 };
    float in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) in[i] = (float)(i % 17 - 8 + u->rank * (i % 5));
    gk_put(u->stream, u->window, in, sizeof in);
    gk_wait(u->comm, u->stream);
    gk_meet(u->p->j);
    launch(u, SUM, 1, COUNT / 4, (emu_dev_args){.from = 0, .to = AT});
    gk_get(u->comm, u->stream, out, u->window + AT, sizeof out);
    for (int i = 0; i < COUNT && !gk_number("GPU_FAKE", 0); i++) {
        float want = 0;
        for (int p = 0; p < u->n; p++) want += (float)(i % 17 - 8 + p * (i % 5));
        T_CHECKF(out[i] == want, "element %d of rank %d: %g, not %g", i, u->rank, (double)out[i],
                 (double)want);
    }
    gk_meet(u->p->j);
}

/* A layer of experts whose grid changes, one of them with all tokens: while rank 0's part for
 * itself is late, the others are in their next call. */
static void experts(const user *u) {
    enum { BYTES = MOE_AT + 4096 };
    emu_dev_args what = {.items = 8, .len = MOE_MOST, .from = MOE_AT, .to = 50000};
    unsigned char *in = calloc(1, BYTES);
    uint64_t random = (unsigned)u->rank + 1;
    T_CHECK(in);
    moe_fill(in, u->n, &what, 1, &random);
    gk_put(u->stream, u->window, in, BYTES);
    gk_wait(u->comm, u->stream);
    gk_meet(u->p->j);
    for (; what.first < 40; what.first++)
        launch(u, MOE, (unsigned)u->n * (2 - (unsigned)what.first % 2), 32, what);
    all_is_well(u, "dev_moe");
    free(in);
}

static void parts_rank(int rank, int n, void *arg) {
    user u = open_user(arg, rank, n);
    calls_of(&u, BARRIERS, 2, 64, 0);
    calls_of(&u, BARRIERS, 2, 64, 1);
    calls_of(&u, APART, 2, 64, 0);
    calls_of(&u, PACKETS, 2, 64, 0);
    calls_of(&u, LINES, 2, 64, 0);
    gathers(&u);
    calls_of(&u, SIGNALLING, 1, 64, 0);
    time_signals(&u);
    reset_signals(&u);
    calls_of(&u, POLLS, 1, 64, 0);
    reset_signals(&u);
    calls_of(&u, COUNTS, 1, 64, 0);
    reset_signals(&u);
    experts(&u);
    reset_signals(&u);
    copies(&u);
    sums(&u);
    close_user(&u);
}

/* ---- in graphs ------------------------------------------------------------------------------- */

static void replay_rank(int rank, int n, void *arg) {
    static const int kernels[] = {BARRIERS, APART, PACKETS, LINES};
    user u = open_user(arg, rank, n);
    gk_capture(u.stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    for (int k = 0; k < 4; k++) /* an even number: the next kernel begins with the other set */
        launch(&u, kernels[k], 2, 64, (emu_dev_args){.rounds = 4, .items = 2});
    gk_graph g = gk_captured(u.stream);
    gk_meet(u.p->j);
    for (int i = 0; i < REPLAYS; i++) CU(cuGraphLaunch(g.exec, u.stream));
    all_is_well(&u, "replays");
    gk_drop(&g);
    close_user(&u);
}

/* ---- debug builds ---------------------------------------------------------------------------- */

/* Rank 0 looks late: its peer is in the next kernel by then, which has another grid. What kernels
 * store lies elsewhere in each grid, so only who gives up counts. */
static void grids_rank(int rank, int n, void *arg) {
    user u = open_user(arg, rank, n);
    uint64_t out[OUT_WORDS];
    for (int c = 0; c < 60; c++)
        launch(&u, APART, 1 + (unsigned)c % 3, 64,
               (emu_dev_args){.rounds = 1, .first = c, .len = 100000});
    gk_get(u.comm, u.stream, out, u.out, sizeof out);
    T_CHECKF(!out[OUT_GAVE_UP] && out[OUT_DONE], "rank %d gave up", rank);
    close_user(&u);
}

/* ---- kernels that give up -------------------------------------------------------------------- */

static void is_told(user *u, symmResult_t code, const char *text) {
    symmResult_t async = symmSuccess;
    uint64_t out[OUT_WORDS];
    gk_get(NULL, u->stream, out, u->out, sizeof out);
    T_OK(symmCommGetAsyncError(u->comm, &async));
    T_EQ(async, code);
    if (u->rank == 0) T_MSG(symmGetLastError(u->comm), text);
    if (u->rank == 0) T_CHECK(out[OUT_GAVE_UP] && !out[OUT_DONE]);
}

static void absent_rank(int rank, int n, void *arg) {
    user u = open_user(arg, rank, n);
    launch(&u, BARRIERS, 2, 64, (emu_dev_args){.rounds = 3, .absent = rank == 1});
    if (rank == 0) CU(cuStreamSynchronize(u.stream));
    gk_meet(u.p->j);
    is_told(&u, symmTimeout, "(a kernel of the program, waiting for a barrier)");
    close_user(&u);
}

static void aborting_rank(int rank, int n, void *arg) {
    user u = open_user(arg, rank, n);
    if (rank == 0) launch(&u, PACKETS, 2, 64, (emu_dev_args){.rounds = 3, .items = 2});
    gk_meet(u.p->j);
    if (rank == 1) {
        usleep(200000);
        T_OK(symmCommAbort(u.comm));
    } else {
        CU(cuStreamSynchronize(u.stream));
        is_told(&u, symmAborted, "rank 1");
        T_OK(symmCommDestroy(u.comm));
    }
    gk_meet(u.p->j);
    gk_free_plain((char *)u.out);
    CU(cuStreamDestroy(u.stream));
}

/* ---- how many ranks -------------------------------------------------------------------------- */

static void run_of(int debug, int n, t_rank_fn fn, const char *timeout) {
    gk_job j = {.devices = gk_begin()};
    plan p = {.j = &j, .image = read_image(debug)};
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("SYMM_TIMEOUT", timeout, 1);
    j.n = n;
    pthread_barrier_init(&j.meet, NULL, (unsigned)n);
    gk_open(&j);
    T_THREADS(n, fn, &p);
    pthread_barrier_destroy(&j.meet);
    free(p.image);
}

static void run(int n, t_rank_fn fn, const char *timeout) {
    run_of(0, n, fn, timeout);
}

static void one_rank(void) {
    run(1, parts_rank, "15000");
}
static void two_ranks(void) {
    run(2, parts_rank, "15000");
}
static void three_ranks(void) {
    run(3, parts_rank, "15000");
}
static void four_ranks(void) {
    run(MOST, parts_rank, "15000");
}
static void replays_of_graphs(void) {
    run(2, replay_rank, "15000");
}
static void grids_of_a_debug_build_may_change(void) {
    run_of(1, 2, grids_rank, "15000");
}
static void no_real_kernels(void) {
    if (gk_number("GPU_FAKE", 0)) T_SKIP("needs cuda: the fake driver's kernels wait for nobody");
    T_EXPECT_WARNINGS();
}
static void a_rank_that_does_not_come(void) {
    no_real_kernels();
    run(2, absent_rank, "1000");
}
static void an_abort_ends_a_kernel(void) {
    no_real_kernels();
    run(2, aborting_rank, "15000");
}

T_MAIN(T(one_rank), T(two_ranks), T(three_ranks), T(four_ranks), T(replays_of_graphs),
       T(grids_of_a_debug_build_may_change), T(a_rank_that_does_not_come),
       T(an_abort_ends_a_kernel))
