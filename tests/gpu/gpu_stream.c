/* gpu_stream.c - streams of all kinds: calls of a communicator keep their order when the stream
 * changes, on the legacy, the per-thread and the user's streams; two communicators run side by
 * side; a thread's current device is what it was after every call. Ranks are threads; the chain
 * (gpu_chain.h) says afterwards whether each call ran once, in order. */
#include "host/gpu/gpu.h"
#include "gpu_chain.h"
#include "gpu_cases.h"

enum { WORDS = 100000, N = 2 };

static int rounds(int many) {
    return gk_number("GPU_FAKE", 0) ? many / 10 + 1 : many;
}

static void *memory(uint64_t bytes) {
    void *p;
    T_OK(symmMemAlloc(&p, bytes));
    return p;
}

static void run(int n, t_rank_fn fn) {
    gk_job j = {.n = n, .devices = gk_begin(), .seed = ck_seed()};
    gk_run(&j, fn);
    gc_settle();
}

/* ---- order ---- */

/* Each call reads what the one before wrote, on another stream that is held up, and nothing but the
 * library orders them. */
static void order_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    enum { STREAMS = 3 };
    cu_stream stream[STREAMS];
    (void)n;
    T_OK(symmSetDevice(rank % j->devices));
    for (int i = 0; i < STREAMS; i++) stream[i] = gk_new_stream();
    void *buf = memory(WORDS * 4);
    gk_chain c = gk_chain_new(comm, rank, j->n, symmUint32, buf, WORDS, stream[0]);
    gk_meet(j);
    for (int i = 0; i < rounds(200); i++) {
        const uint64_t h = ck_hash(j->seed, (uint64_t)i, 1);
        cu_stream s = stream[h % STREAMS];
        uint64_t count, at = gk_chain_range(&c, h, &count);
        if ((h >> 50) % 4 == (unsigned)rank) gk_delay(s, 500 + h % 3000);
        gk_chain_call(&c, at, count, s);
        if (i % 40 == 39)
            for (int k = 0; k < STREAMS; k++) gk_wait(comm, stream[k]);
    }
    for (int k = 0; k < STREAMS; k++) gk_wait(comm, stream[k]);
    gk_chain_check(&c, stream[0]);
    gk_meet(j);
    gk_chain_free(&c);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
    for (int i = 0; i < STREAMS; i++) CU(cuStreamDestroy(stream[i]));
}

static void a_change_of_stream_keeps_the_order(void) {
    run(1, order_rank);
    run(N, order_rank);
    run(3, order_rank);
}

/* A stream that goes after symmCommFinalize: what it was given comes first all the same. */
static void gone_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    (void)n;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream first = gk_new_stream();
    void *buf = memory(WORDS * 4);
    gk_chain c = gk_chain_new(comm, rank, j->n, symmUint32, buf, WORDS, first);
    gk_meet(j);
    for (int i = 0; i < rounds(20); i++) {
        cu_stream s = gk_new_stream();
        gk_meet(j);
        gk_chain_call(&c, 0, WORDS, s);
        T_OK(symmCommFinalize(
            comm)); /* from here on the library does not name the stream any more */
        CU(cuStreamDestroy(s));
        gk_chain_call(&c, 0, WORDS, first);
        gk_wait(comm, first);
        gk_meet(j);
    }
    gk_chain_check(&c, first);
    gk_meet(j);
    gk_chain_free(&c);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
    CU(cuStreamDestroy(first));
}

/* ---- kinds ---- */

static void kinds_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    cu_stream blocking;
    T_OK(symmSetDevice(rank % j->devices));
    cu_stream own = gk_new_stream();
    CU(cuStreamCreate(&blocking, SYMM_CUDA_STREAM_DEFAULT));
    cu_stream kinds[] = {NULL, SYMM_CUDA_STREAM_LEGACY, SYMM_CUDA_STREAM_PER_THREAD, blocking, own};
    void *buf = memory(WORDS * 4);
    gk_chain c = gk_chain_new(comm, rank, n, symmUint32, buf, WORDS, own);
    gk_meet(j);
    for (int i = 0; i < rounds(200); i++) {
        const uint64_t h = ck_hash(j->seed, (uint64_t)i, 2);
        uint64_t count, at = gk_chain_range(&c, h, &count);
        gk_chain_call(&c, at, count, kinds[h % 5]);
        if (i % 20 == 19) gk_wait(comm, own);
    }
    for (int k = 0; k < 5; k++) gk_wait(comm, kinds[k]);
    gk_chain_check(&c, own);
    gk_meet(j);
    gk_chain_free(&c);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
    CU(cuStreamDestroy(blocking));
    CU(cuStreamDestroy(own));
}

static void legacy_per_thread_and_user_streams(void) {
    const int devices = gk_begin();
    /* A GPU each: ranks that share one are refused the legacy stream (unit_gpu). */
    for (int n = 1; n <= 3 && n <= devices; n++) run(n, kinds_rank);
}

static void a_stream_that_goes_after_finalize(void) {
    gk_begin();
    run(N, gone_rank);
}

/* ---- two communicators ---- */

typedef struct {
    symmComm_t more[SYMM_MAX_RANKS];
} second;

/* What a rank has of both: a stream, and a chain over memory of its own. */
typedef struct {
    gk_job *j;
    symmComm_t comm[2];
    cu_stream stream[2];
    gk_chain c[2];
    void *buf[2];
} both;

static both open_both(gk_job *j, int rank, uint64_t words) {
    both b = {.j = j, .comm = {j->comms[rank], ((second *)j->shared)->more[rank]}};
    T_OK(symmSetDevice(rank % j->devices));
    for (int k = 0; k < 2; k++) {
        b.stream[k] = gk_new_stream();
        b.buf[k] = memory(words * 4);
        b.c[k] = gk_chain_new(b.comm[k], rank, j->n, symmUint32, b.buf[k], words, b.stream[k]);
    }
    gk_meet(j);
    return b;
}

static void wait_both(both *b) {
    for (int k = 0; k < 2; k++) gk_wait(b->comm[k], b->stream[k]);
}

static void close_both(both *b) {
    for (int k = 0; k < 2; k++) gk_chain_check(&b->c[k], b->stream[k]);
    gk_meet(b->j);
    for (int k = 0; k < 2; k++) {
        gk_chain_free(&b->c[k]);
        T_OK(symmCommDestroy(b->comm[k]));
        T_OK(symmMemFree(b->buf[k]));
        CU(cuStreamDestroy(b->stream[k]));
    }
}

/* Issued in another order on each rank: they do not wait for each other, as long as both fit on the
 * GPU. */
static void two_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    both b = open_both(j, rank, WORDS);
    (void)n;
    for (int i = 0; i < rounds(300); i++) {
        for (int k = 0; k < 2; k++) {
            const int which = (k + rank) % 2;
            const uint64_t h = ck_hash(j->seed, (uint64_t)i, (uint64_t)which);
            uint64_t count, at = gk_chain_range(&b.c[which], h, &count);
            gk_chain_call(&b.c[which], at, count, b.stream[which]);
        }
        if (i % 50 == 49) wait_both(&b);
    }
    close_both(&b);
}

static void two_communicators_on_two_streams(void) {
    second s;
    gk_job j = {.n = N, .devices = gk_begin(), .seed = ck_seed(), .shared = &s}, other = j;
    /* A kernel that fills a GPU would keep the other communicator's out. */
    setenv("SYMM_CTAS", "8", 1);
    gk_open(&other);
    memcpy(s.more, other.comms, sizeof s.more);
    gk_run(&j, two_rank);
}

/* Each rank queues all its calls of one communicator, and then those of the other: kernels that
 * wait in their places behind the first would keep the second communicator's out, on each GPU
 * another's. */
static void queues_rank(int rank, int n, void *arg) {
    enum { CALLS = 60, LARGE = 1 << 20 };
    both b = open_both(arg, rank, LARGE);
    (void)n;
    for (int k = 0; k < 2; k++) {
        const int which = (k + rank) % 2;
        for (int i = 0; i < CALLS; i++) gk_chain_call(&b.c[which], 0, LARGE, b.stream[which]);
        usleep(50000); /* until they have their places, on both GPUs */
    }
    wait_both(&b);
    close_both(&b);
}

static void communicators_cut_to_fit_with_calls_queued(void) {
    second s;
    gk_job j = {.n = N, .devices = gk_begin(), .seed = ck_seed(), .shared = &s}, other = j;
    if (j.devices < N) T_SKIP("one GPU: no room for both communicators' kernels of both ranks");
    setenv("SYMM_CTAS", "48", 1); /* twice that is what the GPU has room for at once */
    gk_open(&other);
    memcpy(s.more, other.comms, sizeof s.more);
    gk_run(&j, queues_rank);
}

/* ---- the current device ---- */

static void current_is(cu_context want, const char *after) {
    cu_context now = NULL;
    CU(cuCtxGetCurrent(&now));
    T_CHECKF(now == want, "after %s the current context is %p, was %p", after, (void *)now,
             (void *)want);
}
#define KEEPS(want, call)          \
    do {                           \
        T_OK(call);                \
        current_is((want), #call); \
    } while (0)

/* All that a communicator's user calls, in a thread whose device is another one, or none. */
static void elsewhere(gk_job *j, int rank, const gk_chain *c, cu_context want, cu_stream stream,
                      char *buf) {
    symmComm_t comm = j->comms[rank];
    symmResult_t async;
    symmCommInfo_t info = {.size = sizeof info};
    symmWindow_t win;
    int device = -1;
    CU(cuCtxSetCurrent(want));
    KEEPS(want, symmWindowRegister(comm, buf, 2 << 20, &win, SYMM_WIN_DEFAULT));
    KEEPS(want, symmAllReduce(buf, buf, WORDS, symmUint32, c->op, comm, gk_stream(stream)));
    KEEPS(want, symmAllGather(buf, buf + (1 << 20), 1000, symmUint32, comm, gk_stream(stream)));
    KEEPS(want, symmBarrier(comm, gk_stream(stream)));
    KEEPS(want, symmCommGetAsyncError(comm, &async));
    KEEPS(want, symmCommQuery(comm, &info));
    KEEPS(want, symmCommDevice(comm, &device));
    T_EQ(device, rank % j->devices);
    KEEPS(want, symmCommFinalize(comm));
    KEEPS(want, symmWindowDeregister(comm, win));
    T_OK(symmSetDevice(rank % j->devices));
    gk_wait(comm, stream);
    gk_meet(j);
}

static void device_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmComm_t comm = j->comms[rank];
    cu_context away = NULL, own = NULL;
    T_OK(symmSetDevice(rank % j->devices));
    CU(cuCtxGetCurrent(&own));
    cu_stream stream = gk_new_stream();
    char *buf = memory(2 << 20);
    gk_chain c = gk_chain_new(comm, rank, n, symmUint32, buf, WORDS, stream);
    if (j->devices > 1) {
        T_OK(symmSetDevice((rank + 1) % j->devices));
        CU(cuCtxGetCurrent(&away));
        T_CHECK(away != own);
    }
    cu_context wants[] = {own, away, NULL}; /* one GPU: own and none */
    gk_meet(j);
    for (int i = 0; i < 9; i++) {
        elsewhere(j, rank, &c, wants[i % 3], stream, buf);
        gk_chain_note(&c, 0, WORDS, 1);
    }
    gk_chain_check(&c, stream);
    gk_meet(j);
    CU(cuCtxSetCurrent(away));
    KEEPS(away, symmCommDestroy(comm));
    T_OK(symmSetDevice(rank % j->devices));
    gk_free_pinned(c.host);
    free(c.times);
    T_OK(symmMemFree(buf));
    CU(cuStreamDestroy(stream));
}

static void the_current_device_is_left_alone(void) {
    run(N, device_rank);
}

T_MAIN(T(a_change_of_stream_keeps_the_order), T(a_stream_that_goes_after_finalize),
       T(legacy_per_thread_and_user_streams), T(two_communicators_on_two_streams),
       T(communicators_cut_to_fit_with_calls_queued), T(the_current_device_is_left_alone))
