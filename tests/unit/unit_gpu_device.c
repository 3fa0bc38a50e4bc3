/* unit_gpu_device.c - device communicators and windows of kernels on the fake CUDA driver, ranks of
 * one process: what kernels are told, ends in any order, use after the end, errors that kernels
 * report. A thread for each rank in collective calls; no lock. */
#include "fgpu_kit.h"

#include "symm_device_host.h"
#include "symm_heap.h"
#include "symm_vec.h"

enum { RANKS = 3, BYTES = 1 << 20 };

typedef struct {
    symmComm_t comms[RANKS];
    symmDevComm_t dev[RANKS], second[RANKS];
    symmDevWindow_t win[RANKS];
    void *mem[RANKS];
    int n;
} job;

static symmDevRequirements_t needs(void) {
    symmDevRequirements_t q = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    q.barriers = 5;
    q.signals = 3;
    q.llBytes = 100;
    q.lineBytes = 481;
    return q;
}

static void begin(job *j, int n) {
    memset(j, 0, sizeof *j);
    gk_start(n, 0);
    j->n = n;
    gk_open(j->comms, n, NULL);
}

static void make_rank(int rank, int n, void *arg) {
    job *j = arg;
    const symmDevRequirements_t q = needs();
    (void)n;
    T_OK(symmDevCommCreate(j->comms[rank], &q, &j->dev[rank]));
}
static void make_second(int rank, int n, void *arg) {
    job *j = arg;
    const symmDevRequirements_t q = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    (void)n;
    T_OK(symmDevCommCreate(j->comms[rank], &q, &j->second[rank]));
}

/* ---- what kernels are told ------------------------------------------------------------------- */

static void check_told(const job *j, int rank) {
    const symmDevComm_t *d = &j->dev[rank];
    const symm_comm *c = gk_inside(j->comms[rank]);
    T_EQ(d->rank, rank);
    T_EQ(d->nranks, j->n);
    T_EQ(d->barriers, 5);
    T_EQ(d->signals, 3);
    T_EQ(d->llBytes, 104);
    T_EQ(d->lineBytes, 960);
    T_CHECK(d->base == j->dev[0].base && d->stride == j->dev[0].stride);
    T_CHECK(d->serial == j->dev[0].serial && !d->multicast);
    for (int p = 0; p < j->n; p++) {
        const char *host = (const char *)(uintptr_t)(d->hostBase + (uint64_t)p * d->hostStride);
        const symm_ctl *ctl = symm_comm_ctl(c, p);
        T_CHECK(host + d->abortAt == (const char *)&ctl->abort);
        T_CHECK(host + d->leftAt == (const char *)&ctl->left);
        T_CHECK(host + d->deathAt == (const char *)&ctl->death);
        T_CHECK(host + d->stateAt == (const char *)&ctl->state);
        const symm_gpu_ctl *gpu =
            (const symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)p * c->stride);
        T_CHECK(d->overBase + (uint64_t)p * d->overStride == (uint64_t)(uintptr_t)&gpu->over);
    }
}

/* Nothing overlaps, and all of it is there and zero. */
static void check_layout(const symmDevComm_t *d) {
    const uint64_t groups = (unsigned)d->barriers, n = (unsigned)d->nranks;
    const uint64_t at[] = {0, d->arrivedAt, d->signalAt, d->llAt, d->lineAt};
    const uint64_t bytes[] = {groups * SYMM_DEV_EPOCH_BYTES, groups * n * 8,
                              (uint64_t)d->signals * 8, groups * 2 * n * d->llBytes * 2,
                              groups * 2 * n * (d->lineBytes / 480 * 512)};
    for (int i = 0; i < 5; i++) {
        T_CHECK(at[i] % 128 == 0);
        T_CHECK(i == 4 || at[i] + bytes[i] <= at[i + 1]);
        const char *own = (const char *)(uintptr_t)(d->base + (uint64_t)d->rank * d->stride);
        for (uint64_t b = 0; b < bytes[i]; b++) T_EQ(own[at[i] + b], 0);
    }
}

static void what_kernels_are_told(void) {
    for (int n = 1; n <= RANKS; n++) {
        job j;
        begin(&j, n);
        T_THREADS(n, make_rank, &j);
        for (int r = 0; r < n; r++) check_told(&j, r), check_layout(&j.dev[r]);
        T_THREADS(n, make_second, &j);
        T_CHECK(j.second[0].serial != j.dev[0].serial);
        T_CHECK(j.second[0].base != j.dev[0].base);
        T_EQ(j.second[0].barriers, 0);
        for (int r = 0; r < n; r++) {
            T_OK(symmDevCommDestroy(j.comms[r], &j.second[r]));
            T_OK(symmDevCommDestroy(j.comms[r], &j.dev[r]));
        }
        gk_close(j.comms, n);
        GK_LEFT(0);
    }
}

/* Memory of the device that holds something already. */
static void dirty_memory_is_cleared(void) {
    for (int turn = 0; turn < 2; turn++) {
        job j;
        begin(&j, 2);
        T_THREADS(2, make_rank, &j);
        for (int r = 0; r < 2; r++) {
            check_layout(&j.dev[r]);
            memset((void *)(uintptr_t)(j.dev[r].base + (uint64_t)r * j.dev[r].stride), 0xff,
                   j.dev[r].lineAt);
            T_OK(symmDevCommDestroy(j.comms[r], &j.dev[r]));
        }
        T_THREADS(2, make_rank, &j);
        for (int r = 0; r < 2; r++) check_layout(&j.dev[r]);
        gk_close(j.comms, 2); /* which ends them */
        GK_LEFT(0);
    }
}

/* ---- in a group, from one thread ------------------------------------------------------------- */

static void made_in_a_group(void) {
    job j;
    const symmDevRequirements_t q = needs();
    begin(&j, 2);
    T_OK(symmGroupStart());
    for (int r = 0; r < 2; r++) T_OK(symmDevCommCreate(j.comms[r], &q, &j.dev[r]));
    T_OK(symmGroupEnd());
    for (int r = 0; r < 2; r++) check_told(&j, r);
    gk_close(j.comms, 2);
    GK_LEFT(0);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void use_after_the_end(void) {
    job j;
    T_EXPECT_WARNINGS();
    begin(&j, 2);
    T_THREADS(2, make_rank, &j);
    T_ERR(symmDevCommDestroy(j.comms[0], NULL), symmInvalidArgument);
    T_ERR(symmDevCommDestroy(j.comms[0], &j.dev[1]), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "belongs to communicator");
    T_OK(symmDevCommDestroy(j.comms[0], &j.dev[0]));
    T_ERR(symmDevCommDestroy(j.comms[0], &j.dev[0]), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "destroyed already");
    /* its handle is that of no heap */
    T_ERR(symmHeapDestroy((symmHeap_t)j.dev[1].handle), symmInvalidArgument);
    T_ERR(symmVecDestroy((symmVec_t)j.dev[1].handle), symmInvalidArgument);
    T_OK(symmDevCommDestroy(j.comms[1], &j.dev[1]));
    gk_close(j.comms, 2);
    T_ERR(symmDevCommDestroy(j.comms[0], &j.dev[0]), symmInvalidArgument);
    T_ERR(symmDevCommCreate(j.comms[0], NULL, &j.dev[0]), symmInvalidArgument);
    GK_LEFT(0);
}

static void not_for_host_kernels(void) {
    job j;
    symmHostCta_t cta;
    T_EXPECT_WARNINGS();
    begin(&j, 2);
    T_THREADS(2, make_rank, &j);
    T_ERR(symmHostCtaBegin(&j.dev[0], 0, &cta), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "on GPUs");
    gk_close(j.comms, 2);
    GK_LEFT(0);
}

/* A kernel may still be reading the abort word: with a device communicator left, the end waits for
 * the context; without one it asks it nothing. */
static void the_end_waits_for_kernels(void) {
    for (int left = 0; left < 2; left++) {
        job j;
        begin(&j, 1);
        make_rank(0, 1, &j);
        if (!left) T_OK(symmDevCommDestroy(j.comms[0], &j.dev[0]));
        const int before = fake_cuda_calls("cuCtxSynchronize");
        if (left)
            T_OK(symmCommAbort(j.comms[0]));
        else
            T_OK(symmCommDestroy(j.comms[0]));
        T_EQ(fake_cuda_calls("cuCtxSynchronize") - before, left);
        GK_LEFT(0);
    }
}

/* As symm_device.cuh does it. */
static void kernel_gives_up(const symmDevComm_t *d, symmResult_t code, int whom, uint64_t what) {
    for (int p = 0; p < d->nranks; p++) {
        char *host = (char *)(uintptr_t)(d->hostBase + (uint64_t)p * d->hostStride);
        if (p == d->rank) *(uint64_t *)(void *)(host + d->leftAt) = what << 32 | SYMM_DEV_STAGE;
        *(uint64_t *)(void *)(host + d->abortAt) = (uint64_t)code << 32 | (unsigned)(whom + 1);
    }
}
static void what_kernels_report_is_told_by_calls(void) {
    static const char *const words[] = {"barrier", "signal", "packet", "line",
                                        "place on the GPU for each CTA"};
    T_EXPECT_WARNINGS();
    for (unsigned what = 0; what < 5; what++) {
        job j;
        symmResult_t async;
        char text[64];
        begin(&j, 2);
        T_THREADS(2, make_rank, &j);
        kernel_gives_up(&j.dev[0], symmTimeout, 1, what);
        T_OK(symmCommGetAsyncError(j.comms[0], &async));
        T_EQ(async, symmTimeout);
        snprintf(text, sizeof text, "(a kernel of the program, waiting for a %s)", words[what]);
        T_MSG(symmGetLastError(j.comms[0]), text);
        T_MSG(symmGetLastError(j.comms[0]), "rank 1");
        T_ERR(symmBarrier(j.comms[1], NULL), symmTimeout);
        gk_close(j.comms, 2);
        GK_LEFT(0);
    }
}

/* ---- windows --------------------------------------------------------------------------------- */

static void heap_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmHeap_t heap;
    symmHeapConfig_t k = SYMM_HEAP_CONFIG_INITIALIZER;
    (void)n;
    k.symBytes = BYTES;
    T_OK(symmHeapCreate(j->comms[rank], &k, &heap));
    T_OK(symmHeapAlloc(heap, BYTES / 2, 0, SYMM_ALLOC_SYM, &j->mem[rank]));
    T_OK(symmDevWindowGet(j->comms[rank], (char *)j->mem[rank] + 16, 1000, &j->win[rank]));
}
static void window_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmWindow_t win;
    void *p;
    (void)n;
    j->mem[rank] = gk_memory(rank, BYTES);
    T_OK(symmWindowRegister(j->comms[rank], j->mem[rank], BYTES - (unsigned)rank, &win, 0));
    T_OK(symmDevWindowGet(j->comms[rank], (char *)j->mem[rank] + 64, 1000, &j->win[rank]));
    T_OK(symmWindowPeerPtr(win, 64, 1 - rank, &p));
    T_CHECK(j->win[rank].base + (uint64_t)(1 - rank) * j->win[rank].stride == (uintptr_t)p);
}
static void check_windows(const job *j, uint64_t in) {
    for (int r = 0; r < j->n; r++) {
        T_EQ(j->win[r].bytes, 1000);
        T_CHECK(j->win[r].own == (uint64_t)(uintptr_t)j->mem[r] + in && !j->win[r].multicast);
        for (int p = 0; p < j->n; p++) {
            char *at = (char *)(uintptr_t)(j->win[r].base + (uint64_t)p * j->win[r].stride);
            *at = (char)('a' + p);
            T_EQ(((char *)j->mem[p])[in], 'a' + p);
        }
    }
}
static void windows_of_heaps(void) {
    for (int n = 1; n <= RANKS; n++) {
        job j;
        begin(&j, n);
        T_THREADS(n, heap_rank, &j);
        check_windows(&j, 16);
        gk_close(j.comms, n);
        GK_LEFT(0);
    }
}
static void registered_windows_of_two(void) {
    job j;
    symmDevWindow_t none = {.bytes = 7};
    T_EXPECT_WARNINGS();
    begin(&j, 2);
    T_THREADS(2, window_rank, &j);
    check_windows(&j, 64);
    /* rank 1's part is a byte shorter */
    T_ERR(symmDevWindowGet(j.comms[0], j.mem[0], BYTES, &none), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "rank 1 registered 1048575 bytes");
    T_ERR(symmDevWindowGet(j.comms[0], j.mem[0], BYTES + 1, &none), symmInvalidArgument);
    T_ERR(symmDevWindowGet(j.comms[0], &none, 8, &none), symmInvalidArgument);
    T_ERR(symmDevWindowGet(j.comms[0], NULL, 8, &none), symmInvalidArgument);
    T_ERR(symmDevWindowGet(j.comms[0], j.mem[0], 0, &none), symmInvalidArgument);
    T_ERR(symmDevWindowGet(j.comms[0], j.mem[0], 8, NULL), symmInvalidArgument);
    T_EQ(none.bytes, 7);
    gk_close(j.comms, 2);
    for (int r = 0; r < 2; r++) T_OK(symmMemFree(j.mem[r]));
    GK_LEFT(0);
}
/* Memory of one after the other, but for a gap: no stride leads to all of them. */
static void apart_rank(int rank, int n, void *arg) {
    job *j = arg;
    symmWindow_t win;
    (void)n;
    T_OK(symmWindowRegister(j->comms[rank], j->mem[rank], 4096, &win, 0));
    T_ERR(symmDevWindowGet(j->comms[rank], j->mem[rank], 1000, &j->win[rank]), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "memory of a heap");
}
static void windows_at_no_one_distance(void) {
    job j;
    T_EXPECT_WARNINGS();
    begin(&j, 3);
    for (int r = 0; r < 3; r++) j.mem[r] = gk_memory(r, BYTES);
    j.mem[2] = (char *)j.mem[2] + 128; /* wherever they lie */
    const uint64_t first = (uint64_t)((char *)j.mem[1] - (char *)j.mem[0]);
    if ((uint64_t)((char *)j.mem[2] - (char *)j.mem[1]) == first) j.mem[2] = (char *)j.mem[2] + 128;
    T_THREADS(3, apart_rank, &j);
    gk_close(j.comms, 3);
    for (int r = 0; r < 3; r++) T_OK(symmMemFree((void *)((uintptr_t)j.mem[r] / BYTES * BYTES)));
    GK_LEFT(0);
}

T_MAIN(T(what_kernels_are_told), T(dirty_memory_is_cleared), T(made_in_a_group),
       T(use_after_the_end), T(the_end_waits_for_kernels), T(what_kernels_report_is_told_by_calls),
       T(windows_of_heaps), T(registered_windows_of_two), T(windows_at_no_one_distance),
       T(not_for_host_kernels))
