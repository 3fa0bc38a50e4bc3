/* fault_gpu.c - every call of the CUDA driver that a communicator of GPUs makes, refused in turn,
 * on each rank: all ranks say the same, nobody waits, nothing is left, and the same process makes a
 * communicator that works. Ranks are forked, and threads. Machines that lack something:
 * fault_gpu_machine.c; heaps and vectors: fault_gpu_heap.c. No lock: what ranks share stands
 * behind barriers. */
#include <sys/wait.h>
#include <unistd.h>

#include "refuse_kit.h"

/* ---- phases --------------------------------------------------------------------------------- */

static void before_nothing(fk *f, int rank, int n, rank_of *me) {
    (void)me;
    fk_id(f, rank, n);
}

static symmResult_t create(fk *f, int rank, rank_of *me) {
    return symmCommInitRank(&me->comm, RANKS, f->id, rank);
}

static symmResult_t all_reduce(rank_of *me, cu_stream stream) {
    return symmAllReduce(me->mem, me->mem, 1000, symmFloat32, symmSum, me->comm, gk_user(stream));
}

/* The victim's calls; the others' come afterwards, and find the communicator broken. */
static symmResult_t launch(fk *f, int rank, rank_of *me) {
    symmResult_t r = symmSuccess;
    if (rank == f->victim) {
        for (int i = 0; i < 4 && !r; i++) r = all_reduce(me, me->stream[i / 2]);
        if (!r) r = all_reduce(me, SYMM_CUDA_STREAM_PER_THREAD);
        if (!r) r = all_reduce(me, NULL);
    }
    kit_barrier(&f->k, RANKS);
    return rank == f->victim ? r : symmBarrier(me->comm, NULL);
}

static const phase creation = {"creation", before_nothing, create, 0, NULL};
static const phase registration = {"registration", make, do_register, 0, NULL};
static const phase launching = {"launching", make, launch, 1, NULL};

static void run_creation(int rank, int n, void *s) {
    refuse_all(&creation, s, rank, n);
}
static void run_registration(int rank, int n, void *s) {
    refuse_all(&registration, s, rank, n);
}
static void run_launching(int rank, int n, void *s) {
    refuse_all(&launching, s, rank, n);
}

static void refusals_in_creation(void) {
    each_rank(run_creation);
}
static void refusals_in_registration(void) {
    each_rank(run_registration);
}
static void refusals_of_launches(void) {
    each_rank(run_launching);
}

/* ---- thread ranks --------------------------------------------------------------------------- */

static symmComm_t comms[RANKS];

static symmResult_t register_all(void *const *mem, symmWindow_t *win) {
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++)
        T_OK(symmWindowRegister(comms[r], mem[r], WIN, &win[r], SYMM_WIN_DEFAULT));
    return symmGroupEnd();
}

/* Refuses in the threads in which `device` is current (-1: anywhere), in creation. */
static int refuse_in_threads(int device, const char *name, int nth) {
    char text[SYMM_ERR_TEXT];
    fk_gauges before = fk_take();
    gk_start(RANKS, 0);
    memset(comms, 0, sizeof comms);
    fake_cuda_fail_at(device, name, nth, CODE);
    uint64_t since = symm_now_ns();
    symmResult_t r = symmCommInitAll(comms, RANKS, NULL);
    snprintf(text, sizeof text, "%s", symmGetLastError(NULL));
    int met = !fake_cuda_fail_waits();
    fake_cuda_fail("cuInit", 1, 0);
    T_CHECKF(fk_ms_since(since) < SLOW_MS, "%s %d: waited", name, nth);
    T_CHECKF(!met || r || can_do_without(name), "%s %d: nothing came of it", name, nth);
    T_CHECKF(r != symmTimeout && r != symmRemoteError, "%s %d: %s", name, nth, text);
    T_CHECKF(!r || strstr(text, "CUDA") || strstr(text, "driver") || strstr(text, "device"),
             "%s %d says only \"%s\"", name, nth, text);
    for (int i = 0; i < RANKS; i++) T_EQ(comms[i] != NULL, r == 0);
    if (!r) gk_close(comms, RANKS);
    FK_UNCHANGED(&before);
    GK_LEFT(0);
    gk_open(comms, RANKS, NULL);
    for (int i = 0; i < RANKS; i++) works(comms[i], i, name, nth);
    gk_close(comms, RANKS);
    FK_UNCHANGED(&before);
    GK_LEFT(0);
    return met;
}

static void refusals_in_creation_of_thread_ranks(void) {
    int met = 0;
    T_EXPECT_WARNINGS();
    for (int device = -1; device < RANKS; device++) {
        int count[GK_CALLS];
        gk_start(RANKS, 0);
        gk_open(comms, RANKS, NULL);
        for (int i = 0; fake_cuda_call_name(i); i++)
            count[i] = fake_cuda_calls_at(device, fake_cuda_call_name(i));
        gk_close(comms, RANKS);
        for (int call = 0; fake_cuda_call_name(call); call++) {
            const char *name = fake_cuda_call_name(call);
            if (gives_back(name) || strcmp(name, "cuInit") == 0) continue;
            for (int i = 0, nth; (nth = hit_of(i, count[call])) > 0; i++)
                met += refuse_in_threads(device, name, nth);
        }
    }
    T_CHECKF(met > 60, "only %d refusals were met", met);
}

/* Not in the caller's own loop: there GCC 12.2 with both sanitizers takes win[1] for win[0] (not
 * with -fno-ivopts). */
static void __attribute__((noinline)) end_windows(symmWindow_t *win, const char *name, int nth) {
    for (int r = 0; r < RANKS; r++) {
        works(comms[r], r, name, nth);
        T_OK(symmWindowDeregister(comms[r], win[r]));
    }
}

static int refuse_registration(int device, const char *name, int nth) {
    void *mem[RANKS];
    symmWindow_t win[RANKS] = {NULL, NULL};
    gk_start(RANKS, 0);
    fk_gauges none = fk_take();
    gk_open(comms, RANKS, NULL);
    for (int r = 0; r < RANKS; r++) mem[r] = gk_memory(r, WIN);
    fk_gauges before = fk_take();
    fake_cuda_fail_at(device, name, nth, CODE);
    symmResult_t code = register_all(mem, win);
    int met = !fake_cuda_fail_waits();
    fake_cuda_fail("cuInit", 1, 0);
    T_CHECKF(!met || code || can_do_without(name), "%s %d: nothing came of it", name, nth);
    T_CHECKF(!code || strstr(symmGetLastError(NULL), "driver") ||
                 strstr(symmGetLastError(NULL), "CUDA"),
             "%s %d says only \"%s\"", name, nth, symmGetLastError(NULL));
    for (int r = 0; r < RANKS; r++) T_EQ(win[r] != NULL, code == 0);
    if (code) {
        FK_UNCHANGED(&before);
        T_OK(register_all(mem, win));
    }
    end_windows(win, name, nth);
    gk_close(comms, RANKS);
    for (int r = 0; r < RANKS; r++) T_OK(symmMemFree(mem[r]));
    FK_UNCHANGED(&none);
    GK_LEFT(0);
    return met;
}

static void refusals_in_registration_of_thread_ranks(void) {
    static const char *const calls[] = {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuMemSetAccess",
                                        "cuMemRetainAllocationHandle", "cuMemGetAddressRange"};
    int met = 0;
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 15; i++)
        for (int nth = 1; nth <= 4; nth++) met += refuse_registration(i % 3 - 1, calls[i / 3], nth);
    T_CHECKF(met > 8, "only %d refusals were met", met);
}

/* ---- memory, capture, the end --------------------------------------------------------------- */

/* One process alone, which does it again and again. act: 1 if it failed. */
static void refuse_alone(int (*act)(void), int at_least) {
    int met = 0, count[GK_CALLS];
    T_EXPECT_WARNINGS();
    gk_start(RANKS, 0);
    T_OK(symm_cuda_set(0));
    gk_calls before = gk_count();
    T_EQ(act(), 0);
    for (int i = 0; fake_cuda_call_name(i); i++) count[i] = calls_of(&before, i);
    for (int call = 0; fake_cuda_call_name(call); call++) {
        const char *name = fake_cuda_call_name(call);
        if (gives_back(name)) continue;
        for (int i = 0, nth; (nth = hit_of(i, count[call])) > 0; i++) {
            fk_gauges gauges = fk_take();
            gk_start(RANKS, 0);
            T_OK(symm_cuda_set(0));
            fake_cuda_fail(name, nth, CODE);
            int failed = act();
            met += failed;
            T_CHECKF(failed || can_do_without(name), "%s %d: nothing came of it", name, nth);
            fake_cuda_fail("cuInit", 1, 0);
            FK_UNCHANGED(&gauges);
            GK_LEFT(0);
            T_EQ(act(), 0);
        }
    }
    T_CHECKF(met >= at_least, "only %d refusals were met", met);
}

static int allocate(void) {
    void *p = NULL;
    symmResult_t r = symmMemAlloc(&p, 100);
    T_CHECK((r == symmSuccess) == (p != NULL));
    fake_cuda_fail("cuInit", 1, 0);
    if (r) T_CHECK(symmGetLastError(NULL)[0]);
    T_OK(symmMemFree(p));
    return r != symmSuccess;
}

static void refusals_of_allocation(void) {
    refuse_alone(allocate, 10);
}

/* A captured call that is refused holds nothing, and the communicator lives on. */
static void refuse_capture(const char *name, int nth) {
    symmWindow_t win[RANKS] = {NULL, NULL};
    void *mem[RANKS];
    cu_graph graph = NULL;
    cu_event event = NULL;
    fk_gauges gauges = fk_take();
    gk_start(RANKS, 0);
    gk_open(comms, RANKS, NULL);
    for (int r = 0; r < RANKS; r++) mem[r] = gk_memory(r, WIN);
    T_OK(register_all(mem, win));
    cu_stream s = gk_stream(0), t = gk_stream(0);
    T_OK(symm_cuda_set(0));
    T_EQ(symm_cu.cuEventCreate(&event, SYMM_CUDA_EVENT_DISABLE_TIMING), 0);
    T_OK(symm_cuda_set(1));
    T_EQ(symm_cu.cuStreamBeginCapture(s, SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    T_EQ(symm_cu.cuEventRecord(event, s), 0);
    T_EQ(symm_cu.cuStreamWaitEvent(t, event, 0), 0);
    T_OK(symmAllReduce(mem[0], mem[0], 9, symmInt8, symmSum, comms[0], gk_user(t)));
    T_EQ(symm_cu.cuEventRecord(event, t), 0);
    T_EQ(symm_cu.cuStreamWaitEvent(s, event, 0), 0);
    fake_cuda_fail(name, nth, CODE);
    symmResult_t code = symmAllReduce(mem[0], mem[0], 9, symmInt8, symmSum, comms[0], gk_user(s));
    T_CHECKF(!fake_cuda_fail_waits() && code == symmUnhandledCudaError, "%s: %d", name, code);
    T_MSG(symmGetLastError(comms[0]), "CUDA");
    fake_cuda_fail("cuInit", 1, 0);
    T_EQ(symm_cu.cuStreamEndCapture(s, &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    T_EQ(symm_cu.cuEventDestroy(event), 0);
    if (strcmp(name, "cuCtxGetCurrent") && strcmp(name, "cuCtxPushCurrent") &&
        strncmp(name, "cuStreamGetCaptureInfo", 22))
        for (int r = 0; r < RANKS; r++) works(comms[r], r, name, nth);
    symm_gpu_reap();
    T_OK(symmWindowDeregister(comms[0], win[0]));
    T_OK(symmWindowDeregister(comms[1], win[1]));
    T_EQ(SYMM_STAT_GET(windows), 0);
    gk_close(comms, RANKS);
    for (int r = 0; r < RANKS; r++) T_OK(symmMemFree(mem[r]));
    FK_UNCHANGED(&gauges);
    GK_LEFT(0);
}

static void refusals_of_captured_calls(void) {
    static const char *const calls[] = {
        "cuCtxGetCurrent",  "cuCtxPushCurrent",   "cuStreamGetCaptureInfo_v3", "cuStreamGetCtx",
        "cuLaunchKernelEx", "cuUserObjectCreate", "cuGraphRetainUserObject",   "cuEventCreate",
        "cuEventRecord",    "cuStreamWaitEvent"};
    T_EXPECT_WARNINGS();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) refuse_capture(calls[i], 1);
}

/* Destroy may be refused while work may run, and then be called again; it never frees half. */
static void refuse_end(const char *name, int nth, int sticky) {
    fk_gauges gauges = fk_take();
    gk_start(RANKS, 0);
    gk_open(comms, RANKS, NULL);
    for (int r = 0; r < RANKS; r++) works(comms[r], r, name, nth);
    fake_cuda_fail(name, sticky ? 0 : nth, CODE);
    symmResult_t code = symmCommDestroy(comms[0]);
    fake_cuda_fail("cuInit", 1, 0);
    if (symm_handle_peek(SYMM_KIND_COMM, comms[0])) {
        T_CHECKF(code != 0, "%s: done, and not done", name);
        T_OK(symmCommDestroy(comms[0]));
    }
    T_ERR(symmCommDestroy(comms[0]), symmInvalidArgument);
    T_OK(symmCommDestroy(comms[1]));
    FK_UNCHANGED(&gauges);
    GK_LEFT(0);
}

static void refusals_at_the_end(void) {
    static const char *const calls[] = {"cuEventRecord", "cuEventSynchronize", "cuCtxSynchronize",
                                        "cuCtxGetCurrent", "cuCtxPushCurrent"};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 5; i++)
        for (int nth = 0; nth < 4; nth++) refuse_end(calls[i], nth, nth == 0);
}

/* The program has ended the context first: nothing runs there any more, so the communicator ends,
 * and its peers hear of it. Later it would find no better time. */
static void a_context_that_is_gone_holds_up_no_end(void) {
    static const int codes[] = {SYMM_CUDA_ERROR_CONTEXT_IS_DESTROYED,
                                SYMM_CUDA_ERROR_INVALID_CONTEXT, SYMM_CUDA_ERROR_DEINITIALIZED};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 3; i++) {
        fk_gauges gauges = fk_take();
        gk_start(RANKS, 0);
        gk_open(comms, RANKS, NULL);
        for (int r = 0; r < RANKS; r++) works(comms[r], r, "cuCtxPushCurrent", i);
        const symm_ctl *said = symm_comm_ctl(gk_inside(comms[1]), 0);
        T_OK(symm_cuda_set(1));
        fake_cuda_fail("cuCtxPushCurrent", 0, codes[i]);
        T_ERR(symmCommDestroy(comms[0]), symmUnhandledCudaError);
        fake_cuda_fail("cuInit", 1, 0);
        T_CHECKF(!symm_handle_peek(SYMM_KIND_COMM, comms[0]), "code %d: it is still there",
                 codes[i]);
        T_EQ(said->state, SYMM_STATE_LEFT);
        T_OK(symmCommDestroy(comms[1]));
        FK_UNCHANGED(&gauges);
        GK_LEFT(0);
    }
}

/* Whatever CUDA will not take back, the rest is given back and nobody waits. In a process of its
 * own, which ends with what is left. */
static void refused_release(const char *name, int nth) {
    pid_t child = fork();
    int status = 0;
    T_CHECK(child >= 0);
    if (child == 0) {
        alarm(20);
        gk_start(RANKS, 0);
        gk_open(comms, RANKS, NULL);
        for (int r = 0; r < RANKS; r++) works(comms[r], r, name, nth);
        fake_cuda_fail(name, nth, CODE);
        for (int r = 0; r < RANKS; r++)
            if (symmCommDestroy(comms[r]) && symm_handle_peek(SYMM_KIND_COMM, comms[r]))
                T_OK(symmCommDestroy(comms[r])); /* not begun */
        fake_cuda_fail("cuInit", 1, 0);
        int left = fake_cuda_live() - fake_cuda_kept();
        T_CHECKF(left <= 3, "%s %d: %d objects are left", name, nth, left);
        T_CHECK(SYMM_STAT_GET(comms) == 0 && SYMM_STAT_GET(slots) == 0);
        gk_open(comms, RANKS, NULL);
        for (int r = 0; r < RANKS; r++) works(comms[r], r, name, nth);
        _exit(0);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
}

static void refused_releases_hold_up_nothing(void) {
    static const char *const calls[] = {"cuMemUnmap",          "cuMemAddressFree",
                                        "cuMemHostUnregister", "cuEventDestroy",
                                        "cuCtxPopCurrent",     "cuThreadExchangeStreamCaptureMode"};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 6; i++)
        for (int nth = 1; nth <= 3; nth++) refused_release(calls[i], nth);
}

T_MAIN(T_TIMEOUT(refusals_in_creation, 180), T_TIMEOUT(refusals_in_registration, 180),
       T_TIMEOUT(refusals_of_launches, 180), T_TIMEOUT(refusals_in_creation_of_thread_ranks, 180),
       T(refusals_in_registration_of_thread_ranks), T(refusals_of_allocation),
       T(refusals_of_captured_calls), T(refusals_at_the_end),
       T(a_context_that_is_gone_holds_up_no_end), T(refused_releases_hold_up_nothing))
