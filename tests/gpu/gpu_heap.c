/* gpu_heap.c - heaps, vectors and windows that grow, in GPU memory: placement and reach,
 * collectives in place over many pieces, growth, trim, guard mode, captured calls, ranks that
 * differ in their calls. Ranks as threads and as processes. */
#include "fault_kit.h"
#include "gpu_kit.h"
#include "symm_heap.h"
#include "symm_vec.h"

#define MB (1ull << 20)

enum { WORDS = 1300000 }; /* more than two pieces of 2 MiB */

typedef struct { /* a rank, and what it meets the others with */
    int rank, n;
    symmComm_t comm;
    cu_stream stream;
    int *host;
    gk_job *job; /* threads */
    fk *f;       /* processes */
} who;

static void meet(who *w) {
    if (w->job)
        gk_meet(w->job);
    else
        kit_barrier(&w->f->k, w->n);
}

typedef void (*body)(who *);

static void as_rank(who *w, body fn) {
    w->stream = gk_new_stream();
    w->host = (int *)(void *)gk_pinned(2 * WORDS * sizeof *w->host);
    meet(w);
    fn(w);
    meet(w);
    if (w->comm) T_OK(symmCommDestroy(w->comm));
    meet(w);
    gk_free_pinned((char *)w->host);
    CU(cuStreamDestroy(w->stream));
}

static body current;

static void thread_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    who w = {.rank = rank, .n = n, .comm = j->comms[rank], .job = j};
    T_OK(symmSetDevice(rank % j->devices));
    as_rank(&w, current);
}

static void process_rank(int rank, int n, void *arg) {
    fk *f = arg;
    const char *why;
    T_EXPECT_FDS();
    const int devices = gk_find(&why);
    T_OK(symmSetDevice(rank % devices));
    symm_log_rank(rank);
    who w = {.rank = rank, .n = n, .f = f};
    w.comm = fk_open(f, rank, n);
    as_rank(&w, current);
}

/* The fake driver's kernels need no images. */
static void begin(void) {
    if (gk_number("GPU_FAKE", 0)) symm_test_images = 1;
}

static void as_threads(int n, body fn) {
    begin();
    gk_job j = {.devices = gk_begin()};
    j.n = n;
    current = fn;
    gk_run(&j, thread_rank);
}

static void as_processes(int n, body fn) {
    begin();
    gk_begin_forked();
    current = fn;
    T_FORK(n, process_rank, fk_new(0, 0));
}

static symmHeap_t make(who *w, uint64_t sym, uint64_t local, int guard) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap = NULL;
    c.reserve = 256 * MB;
    c.chunk = 2 * MB;
    c.symBytes = sym;
    c.localBytes = local;
    c.guard = guard;
    T_OK(symmHeapCreate(w->comm, &c, &heap));
    return heap;
}

static void *take(symmHeap_t heap, uint64_t bytes, unsigned flags) {
    void *p = NULL;
    T_OK(symmHeapAlloc(heap, bytes, 0, flags, &p));
    return p;
}

static void fill(who *w, int *at, size_t count, int salt) {
    for (size_t i = 0; i < count; i++) w->host[i] = (int)(i % 1000) + w->rank * 7 + salt;
    gk_put(w->stream, at, w->host, count * sizeof *at);
    gk_wait(w->comm, w->stream);
}

static void holds(who *w, const int *at, size_t count, int rank, int salt) {
    gk_get(w->comm, w->stream, w->host, at, count * sizeof *at);
    for (size_t i = 0; i < count; i++)
        T_CHECKF(w->host[i] == (int)(i % 1000) + rank * 7 + salt, "word %zu of rank %d: %d", i,
                 rank, w->host[i]);
}

/* In place, and right. */
static void reduces(who *w, int *send, int *recv, size_t count) {
    symmExplain_t plan = {.size = sizeof plan};
    T_OK(symmExplain(w->comm, symmCollAllReduce, send, recv, count, symmInt32, symmSum, 0, &plan));
    T_EQ(plan.zeroCopySend, 1);
    T_EQ(plan.zeroCopyRecv, 1);
    fill(w, send, count, 0);
    meet(w);
    T_OK(symmAllReduce(send, recv, count, symmInt32, symmSum, w->comm, gk_stream(w->stream)));
    gk_get(w->comm, w->stream, w->host, recv, count * sizeof *recv);
    for (size_t i = 0; i < count; i++) {
        const int want = w->n * (int)(i % 1000) + 7 * w->n * (w->n - 1) / 2;
        T_CHECKF(w->host[i] == want, "element %zu of %zu: %d, not %d", i, count, w->host[i], want);
    }
    meet(w);
}

/* ---- heap ---- */

static void use_heap(who *w) {
    void *p = NULL, *peer;
    symmHeap_t heap = make(w, 12 * MB, (uint64_t)(w->rank + 1) * 2 * MB, 0);
    int *send = take(heap, WORDS * 4, 0), *recv = take(heap, WORDS * 4, 0);
    reduces(w, send, recv, WORDS);
    reduces(w, send, recv, 3000);
    int *local = take(heap, 100000, SYMM_ALLOC_LOCAL);
    fill(w, local, 25000, 5);
    symmRef_t mine, *all = (symmRef_t *)(void *)(w->host + WORDS);
    T_OK(symmRefGet(local, &mine));
    gk_put(w->stream, send, &mine, sizeof mine);
    meet(w);
    T_OK(symmAllGather(send, recv, sizeof mine, symmUint8, w->comm, gk_stream(w->stream)));
    gk_get(w->comm, w->stream, all, recv, (size_t)w->n * sizeof mine);
    for (int r = 0; r < w->n; r++) {
        T_OK(symmRefPtr(&all[r], w->comm, SYMM_REF_OWNER, &peer));
        holds(w, peer, 25000, r, 5);
    }
    meet(w);
    T_ERR(symmHeapAlloc(heap, 30 * MB, 0, 0, &p), symmNeedGrow);
    T_OK(symmHeapGrow(heap, 31 * MB, 2 * MB));
    holds(w, local, 25000, w->rank, 5); /* where it was */
    int *more = take(heap, 30 * MB, 0);
    reduces(w, more, more + WORDS, WORDS);
    T_OK(symmHeapFree(heap, more));
    T_OK(symmHeapTrim(heap, 0, NULL));
    reduces(w, send, recv, WORDS);
    T_OK(symmHeapCheck(heap));
    T_OK(symmHeapDestroy(heap));
}
static void heaps_of_thread_ranks(void) {
    as_threads(2, use_heap);
    as_threads(3, use_heap);
}
static void heaps_of_processes(void) {
    as_processes(2, use_heap);
}

/* ---- captured ---- */

static void hold_by_graph(who *w) {
    symmHeap_t heap = make(w, 12 * MB, 0, 0);
    int *p = take(heap, WORDS * 4, 0);
    meet(w);
    gk_capture(w->stream, SYMM_CUDA_CAPTURE_MODE_RELAXED);
    T_OK(symmAllReduce(p, p, WORDS, symmInt32, symmSum, w->comm, gk_stream(w->stream)));
    gk_graph g = gk_captured(w->stream);
    T_OK(symmHeapDestroy(heap)); /* the graph has it */
    fill(w, p, WORDS, 0);
    meet(w);
    CU(cuGraphLaunch(g.exec, w->stream));
    gk_get(w->comm, w->stream, w->host, p, WORDS * 4);
    for (int i = 0; i < WORDS; i++) T_EQ(w->host[i], w->n * (i % 1000) + 7 * w->n * (w->n - 1) / 2);
    meet(w);
    gk_drop(&g);
    meet(w);
    symmHeap_t next = make(w, 2 * MB, 0, 0); /* frees what the graph has let go */
    T_OK(symmHeapDestroy(next));
}
static void a_graph_holds_the_memory(void) {
    as_threads(2, hold_by_graph);
}
static void a_graph_holds_the_memory_of_processes(void) {
    as_processes(2, hold_by_graph);
}

/* ---- guard mode ---- */

static void guard(who *w) {
    symmHeap_t heap = make(w, 4 * MB, 2 * MB, 1);
    const char one = 1;
    for (unsigned zone = 0; zone < 2; zone++) {
        char *p = take(heap, 1001, zone);
        T_OK(symmHeapCheck(heap));
        gk_put(w->stream, p + 1001, &one, 1);
        gk_wait(w->comm, w->stream);
        meet(w);
        T_ERR(symmHeapCheck(heap), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 1001 was written, of a block of 1001 bytes");
        T_ERR(symmHeapFree(heap, p), symmInvalidUsage);
        meet(w);
        T_OK(symmHeapCheck(heap));
        if (zone) {
            gk_put(w->stream, p + 77, &one, 1);
            gk_wait(w->comm, w->stream);
            meet(w);
            T_ERR(symmHeapCheck(heap), symmInvalidUsage);
            T_MSG(symmGetLastError(NULL), "was written after it was freed");
        }
        meet(w);
    }
    T_OK(symmHeapDestroy(heap));
}
static void guard_mode_reads_gpu_memory(void) {
    T_EXPECT_WARNINGS();
    as_threads(2, guard);
}
static void guard_mode_in_processes(void) {
    T_EXPECT_WARNINGS();
    as_processes(2, guard);
}

/* ---- vector ---- */

static void vector(who *w) {
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    symmVec_t vec;
    void *at, *was;
    c.max = 8 * MB;
    c.chunk = 2 * MB;
    T_OK(symmVecCreate(w->comm, &c, &vec));
    T_OK(symmVecGrow(vec, 8 * MB));
    T_OK(symmVecPtr(vec, w->rank, &was));
    fill(w, was, WORDS, 9);
    meet(w);
    for (uint64_t mb = 12; mb <= 48; mb *= 2) {
        T_OK(symmVecGrow(vec, mb * MB));
        for (int r = 0; r < w->n; r++) { /* the same bytes, not copied */
            T_OK(symmVecPtr(vec, r, &at));
            holds(w, at, WORDS, r, 9);
        }
        meet(w);
    }
    T_OK(symmVecPtr(vec, w->rank, &at));
    T_CHECK(at != was);
    reduces(w, at, (int *)at + WORDS, WORDS);
    T_OK(symmVecShrink(vec, 4 * MB));
    T_OK(symmVecDestroy(vec));
}
static void vectors_move_without_a_copy(void) {
    as_threads(2, vector);
}
static void vectors_of_processes(void) {
    as_processes(2, vector);
}

/* ---- divergence ---- */

static void diverge(who *w) {
    symmHeap_t heap = make(w, 8 * MB, 2 * MB, 0);
    take(heap, 1000, 0);
    int *p = take(heap, w->rank == 1 ? 50001 : 50000, 0);
    symmResult_t async = symmSuccess;
    meet(w);
    T_OK(symmAllReduce(p, p, 5000, symmInt32, symmSum, w->comm, gk_stream(w->stream)));
    gk_cu(gk_wait_code(w->comm, w->stream), "the stream after a kernel left", __FILE__, __LINE__);
    const uint64_t since = symm_now_ns();
    while (!async && gk_ms_since(since) < 2000) T_OK(symmCommGetAsyncError(w->comm, &async));
    T_CHECKF(async == symmMismatch, "code %d (%s)", async, symmGetLastError(NULL));
    T_MSG(symmGetLastError(NULL),
          "zone SYM of heap 1: call 2: rank 0: symmHeapAlloc of 50000 bytes");
    T_MSG(symmGetLastError(NULL), "rank 1: symmHeapAlloc of 50001 bytes");
    meet(w);
}
static void divergence_is_named(void) {
    T_EXPECT_WARNINGS();
    as_threads(2, diverge);
}
static void divergence_is_named_in_processes(void) {
    T_EXPECT_WARNINGS();
    as_processes(2, diverge);
}

T_MAIN(T(heaps_of_thread_ranks), T(heaps_of_processes), T(a_graph_holds_the_memory),
       T(a_graph_holds_the_memory_of_processes), T(guard_mode_reads_gpu_memory),
       T(guard_mode_in_processes), T(vectors_move_without_a_copy), T(vectors_of_processes),
       T(divergence_is_named), T(divergence_is_named_in_processes))
