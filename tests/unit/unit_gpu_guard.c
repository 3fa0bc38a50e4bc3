/* unit_gpu_guard.c - guard mode inside arenas of a heap on a GPU, on the fake CUDA driver: what
 * streams write late, what captures forbid, a check beside another thread's calls. The test's
 * thread, and those of queued streams; the fake's memory is the CPU's. */
#include <unistd.h>

#include "fgpu_kit.h"
#include "host/heap/heap_int.h"
#include "symm_arena.h"

typedef struct {
    symmComm_t comm;
    symmHeap_t heap;
    symmArena_t arena;
    cu_stream s, t, blocking;
    symm_cuda_scope scope;
} fix;

static fix open_fix(int queued) {
    fix f = {0};
    symmHeapConfig_t h = SYMM_HEAP_CONFIG_INITIALIZER;
    symmArenaConfig_t a = SYMM_ARENA_CONFIG_INITIALIZER;
    gk_start(1, queued);
    setenv("SYMM_WIN_STRIDE", "1G", 1);
    h.reserve = 256 * GK_MB;
    h.localBytes = 16 * GK_MB;
    h.guard = 1;
    a.bytes = 4 * GK_MB;
    a.name = "tested";
    gk_open(&f.comm, 1, NULL);
    T_OK(symmHeapCreate(f.comm, &h, &f.heap));
    T_OK(symmArenaCreate(f.heap, &a, &f.arena));
    T_OK(symm_cuda_push(0, &f.scope));
    T_EQ(symm_cu.cuStreamCreate(&f.s, SYMM_CUDA_STREAM_NON_BLOCKING), 0);
    T_EQ(symm_cu.cuStreamCreate(&f.t, SYMM_CUDA_STREAM_NON_BLOCKING), 0);
    T_EQ(symm_cu.cuStreamCreate(&f.blocking, 0), 0);
    return f;
}

static void close_fix(fix *f) {
    cu_stream s[] = {f->s, f->t, f->blocking};
    for (int i = 0; i < 3; i++) {
        T_OK(symmArenaEndStream(f->arena, gk_user(s[i])));
        T_EQ(symm_cu.cuStreamDestroy(s[i]), 0);
    }
    T_EQ(symm_cu.cuCtxSynchronize(), 0);
    symm_cuda_pop(&f->scope);
    T_OK(symmArenaDestroy(f->arena));
    T_OK(symmHeapDestroy(f->heap));
    gk_close(&f->comm, 1);
    GK_LEFT(0);
}

static char *take(const fix *f, cu_stream s, size_t bytes) {
    void *p = NULL;
    T_OK(symmArenaAlloc(f->arena, bytes, 0, gk_user(s), &p));
    T_CHECK(p != NULL);
    return p;
}

static symmResult_t give(const fix *f, void *p, cu_stream s) {
    return symmArenaFree(f->arena, p, gk_user(s));
}

static void nap(void *arg) {
    (void)arg;
    usleep(2000);
}

/* Late, in the stream. */
static void fill(cu_stream s, char *p, size_t bytes) {
    T_EQ(symm_cu.cuLaunchHostFunc(s, nap, NULL), 0);
    T_EQ(symm_cu.cuMemsetD8Async((uintptr_t)p, 7, bytes, s), 0);
}

/* Small blocks and large ones, freed on the stream that has them, on another one and on the legacy
 * one. */
static void work_of_a_stream_is_waited_for(void) {
    static const size_t sizes[] = {1001, 100000};
    fix f = open_fix(1);
    cu_stream on[] = {f.s, f.t, NULL};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 6; i++) {
        const size_t bytes = sizes[i % 2];
        cu_stream frees = on[i / 2];
        char *p = take(&f, f.s, bytes), says[64];
        fill(frees, p, bytes);
        T_OK(give(&f, p, frees));
        T_EQ((unsigned char)p[bytes - 1], 0xdd);
        T_OK(symmHeapCheck(f.heap));
        p = take(&f, f.s, bytes);
        fill(frees, p, bytes + 1);
        snprintf(says, sizeof says, "byte %zu was written, of a block of %zu bytes", bytes, bytes);
        T_ERR(give(&f, p, frees), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), says);
        T_ERR(give(&f, p, frees), symmInvalidArgument);
        T_OK(symmHeapCheck(f.heap));
    }
    close_fix(&f);
}

static void a_write_after_free_is_found(void) {
    fix f = open_fix(1);
    T_EXPECT_WARNINGS();
    char *p = take(&f, f.s, 5000);
    T_OK(give(&f, p, f.s));
    fill(f.s, p + 321, 1);
    T_EQ(symm_cu.cuStreamSynchronize(f.s), 0);
    T_ERR(symmHeapCheck(f.heap), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "was written after it was freed");
    T_CHECK(take(&f, f.s, 700) == p);
    T_ERR(symmHeapCheck(f.heap), symmInvalidUsage); /* remembered */
    T_OK(give(&f, p, f.s));
    close_fix(&f);
}

/* ---- captures -------------------------------------------------------------------------------- */

static void begin(cu_stream s) {
    T_EQ(symm_cu.cuStreamBeginCapture(s, SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
}

static void end(cu_stream s) {
    cu_graph graph;
    T_EQ(symm_cu.cuStreamEndCapture(s, &graph), 0);
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
}

/* Other streams' blocks, and the legacy one's where that has nothing to do with what is captured,
 * are looked at as ever. */
static void captures_of_others_are_unharmed(void) {
    fix f = open_fix(0);
    cu_stream on[] = {f.t, NULL};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 2; i++) {
        char *p = take(&f, on[i], 1000);
        T_EQ(symm_cu.cuMemsetD8Async((uintptr_t)p, 7, 1001, on[i]), 0);
        begin(f.s);
        T_ERR(give(&f, p, on[i]), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 1000 was written");
        p = take(&f, on[i], 1000);
        T_OK(give(&f, p, on[i]));
        T_OK(symmHeapCheck(f.heap));
        end(f.s);
    }
    close_fix(&f);
}

/* The legacy stream may not be waited for, and still has work: its block stays as it is, and is
 * nobody's fault. */
static void what_cannot_be_waited_for_is_left_alone(void) {
    fix f = open_fix(1);
    char *p = take(&f, NULL, 1000), *q = take(&f, NULL, 1000);
    fill(NULL, p, 1000);
    begin(f.blocking);
    T_OK(give(&f, p, NULL));
    end(f.blocking);
    T_CHECK(take(&f, NULL, 800) == p);
    T_EQ(symm_cu.cuStreamSynchronize(NULL), 0);
    T_EQ(p[800], 7); /* no red zone over what may still be written to */
    T_OK(symmHeapCheck(f.heap));
    T_OK(give(&f, p, NULL));
    T_OK(symmHeapCheck(f.heap));
    T_EXPECT_WARNINGS();
    q[1000] = 1; /* others are looked at */
    T_ERR(give(&f, q, NULL), symmInvalidUsage);
    close_fix(&f);
}

/* Where the driver does not paint, a red zone at the take or poison at the free, nobody is told of
 * damage later. */
static void what_could_not_be_painted_is_no_damage(void) {
    T_EXPECT_WARNINGS();
    for (int nth = 1; nth <= 2; nth++) {
        fix f = open_fix(0);
        char *q = take(&f, f.s, 1000), *other = take(&f, f.s, 1000);
        memset(q, 7, 1000);
        T_OK(give(&f, q, f.s)); /* poison */
        fake_cuda_fail("cuMemsetD32Async", nth, SYMM_CUDA_ERROR_LAUNCH_FAILED);
        char *p = take(&f, f.s, 500);
        memset(p, 7, 500);
        if (nth == 1) T_CHECK(!fake_cuda_fail_waits());
        T_OK(symmHeapCheck(f.heap));
        T_OK(give(&f, p, f.s));
        T_CHECK(!fake_cuda_fail_waits());
        T_OK(symmHeapCheck(f.heap));
        p = take(&f, f.s, 900);
        T_OK(symmHeapCheck(f.heap));
        T_OK(give(&f, p, f.s));
        other[1000] = 1; /* others are looked at */
        T_ERR(give(&f, other, f.s), symmInvalidUsage);
        close_fix(&f);
    }
}

/* ---- a check beside calls of another thread -------------------------------------------------- */

static symm_vmm driver; /* the communicator's, but for its copies */
static const symm_vmm *own;
static fix *beside;
static const void *arm; /* whose turn it is: what begins there is read for the arena */
static void (*meanwhile)(char *at);

static int copy_late(void *dst, const void *src, uint64_t bytes) {
    if (src == arm) {
        arm = NULL;
        meanwhile((char *)(uintptr_t)src);
    }
    return own->copy(dst, src, bytes);
}

static symm_heap *hook(fix *f, const void *p) {
    symm_heap *h = symm_heap_of(p);
    T_CHECK(h != NULL);
    beside = f;
    own = h->comm->vmm;
    driver = *own;
    driver.copy = copy_late;
    h->comm->vmm = &driver;
    return h;
}

static void unhook(symm_heap *h) {
    h->comm->vmm = own;
    symm_heap_unref(h);
}

static void take_and_fill(char *at) {
    T_CHECK(take(beside, NULL, 3000) == at);
    memset(at, 7, 3000);
}

static void a_check_beside_other_calls_finds_nothing(void) {
    fix f = open_fix(0);
    char *p = take(&f, NULL, 500);
    symm_heap *h = hook(&f, p);
    T_EXPECT_WARNINGS();
    arm = p + 768; /* the hole behind the red zone of p */
    meanwhile = take_and_fill;
    T_OK(symmHeapCheck(f.heap));
    T_CHECK(!arm);
    T_OK(symmHeapCheck(f.heap));
    p[500] = 9;
    T_ERR(symmHeapCheck(f.heap), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "byte 500 was written, of a block of 500 bytes");
    T_ERR(give(&f, p, NULL), symmInvalidUsage);
    unhook(h);
    close_fix(&f);
}

/* A block that is being taken or freed is nobody's to judge, to ask about or to free. */
static void look_at_it(char *at) {
    symmMemInfo_t i = {.size = sizeof i};
    T_OK(symmHeapCheck(beside->heap));
    at = (char *)((uintptr_t)at & ~(uintptr_t)1023); /* where the block begins */
    T_ERR(symmMemQuery(at, &i), symmInvalidArgument);
    T_ERR(give(beside, at, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "it is free, or was freed already");
}

static void a_block_that_is_taken_or_freed_is_passed_over(void) {
    fix f = open_fix(0);
    void *first;
    T_EXPECT_WARNINGS();
    T_OK(symmArenaAlloc(f.arena, 600, 1024, NULL, &first));
    char *p = first;
    symm_heap *h = hook(&f, p);
    meanwhile = look_at_it;
    p[600] = 9;
    arm = p + 600; /* its red zone, at the free */
    T_ERR(give(&f, p, NULL), symmInvalidUsage);
    T_CHECK(!arm);
    arm = p; /* all of it, when it is taken */
    T_CHECK(take(&f, NULL, 600) == p);
    T_CHECK(!arm);
    T_OK(symmHeapCheck(f.heap));
    T_OK(give(&f, p, NULL));
    unhook(h);
    close_fix(&f);
}

T_MAIN(T(work_of_a_stream_is_waited_for), T(a_write_after_free_is_found),
       T(captures_of_others_are_unharmed), T(what_cannot_be_waited_for_is_left_alone),
       T(what_could_not_be_painted_is_no_damage), T(a_check_beside_other_calls_finds_nothing),
       T(a_block_that_is_taken_or_freed_is_passed_over))
