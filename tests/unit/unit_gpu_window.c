/* unit_gpu_window.c - windows of GPUs whose memory ends under them, on the fake CUDA driver: ours,
 * which is counted, and other allocators', which is told apart by CUDA's numbers, or without these
 * where windows change. What a call makes of a buffer is read from the arguments of its launch.
 * Ranks are processes, and threads where it says so; no lock. */
#include "machine/fd_closer.h"
#include "fault_kit.h"
#include "fgpu_kit.h"

enum { COUNT = 400000, BYTES = 4 << 20 };

/* ---- memory of somebody else's ---- */

typedef struct {
    cu_deviceptr at;
    cu_mem_handle raw;
} foreign;

static void foreign_map(foreign *f, int device) {
    const cu_mem_access access = {{SYMM_CUDA_LOCATION_DEVICE, device}, SYMM_CUDA_ACCESS_READWRITE};
    cu_mem_prop prop = {.type = SYMM_CUDA_MEM_PINNED, .handle_types = SYMM_CUDA_HANDLE_FD};
    prop.location.type = SYMM_CUDA_LOCATION_DEVICE;
    prop.location.id = device;
    T_EQ(symm_cu.cuMemCreate(&f->raw, BYTES, &prop, 0), 0);
    T_EQ(symm_cu.cuMemMap(f->at, BYTES, 0, f->raw, 0), 0);
    T_EQ(symm_cu.cuMemSetAccess(f->at, BYTES, &access, 1), 0);
}

static void foreign_unmap(foreign *f) {
    T_EQ(symm_cu.cuMemUnmap(f->at, BYTES), 0);
    T_EQ(symm_cu.cuMemRelease(f->raw), 0);
}

/* ---- what a call makes of a buffer ---- */

static int takes(symmComm_t comm, int rank, void *p, cu_stream stream) {
    T_OK(symmAllReduce(p, p, COUNT, symmInt32, symmSum, comm, gk_user(stream)));
    const symm_args a = gk_last(rank).args;
    T_CHECK((a.src_off == SYMM_STAGED) == (a.dst_off == SYMM_STAGED));
    return a.src_off != SYMM_STAGED;
}

static symmWindow_t add(symmComm_t comm, void *p, size_t bytes) {
    symmWindow_t win;
    T_OK(symmWindowRegister(comm, p, bytes, &win, SYMM_WIN_DEFAULT));
    return win;
}

static symmComm_t open_process(fk *f, int rank, int n) {
    fake_cuda_config config = gk_config(n, 0);
    config.no_numbers = f->how;
    gk_env("cuda");
    gk_install(&config);
    T_OK(symmSetDevice(rank));
    return fk_open(f, rank, n);
}

/* ---- ours ---- */

static void own_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symm_vmm_handle *h;
    void *va;
    symmComm_t comm = open_process(f, rank, n);
    cu_stream stream = gk_stream(rank);
    T_OK(symmSetDevice(rank));
    T_EQ(symm_vmm_cuda.reserve(BYTES, 0, &va), 0);
    symmWindow_t win = NULL;
    for (int round = 0; round < 3; round++) {
        T_EQ(symm_vmm_cuda.create(BYTES, &h), 0);
        T_EQ(symm_vmm_cuda.map(va, BYTES, 0, h), 0);
        T_EQ(symm_vmm_cuda.set_access(va, BYTES), 0);
        T_EQ(symm_vmm_cuda.release(h), 0);
        T_EQ(takes(comm, rank, va, stream), 0);
        if (win && round == 2) T_OK(symmWindowDeregister(comm, win));
        win = add(comm, va, BYTES);
        T_EQ(takes(comm, rank, va, stream), 1);
        const gk_calls before = gk_count();
        T_EQ(takes(comm, rank, va, stream), 1); /* remembered: CUDA is asked nothing */
        GK_EXACTLY(&before, "cuCtxGetCurrent cuLaunchKernelEx cuStreamGetCaptureInfo_v3");
        T_EQ(symm_vmm_cuda.unmap(va, BYTES), 0);
    }
    T_EQ(symm_vmm_cuda.unreserve(va, BYTES), 0);
    kit_barrier(&f->k, n);
    T_EQ(symm_cu.cuStreamDestroy(stream), 0);
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void other_memory_of_ours(void) {
    T_FORK(2, own_rank, fk_new(-1, 0));
}

/* symmMemFree itself, and a captured call: its graph takes what lies there when it is captured. */
static void freed_rank(int rank, int n, void *arg) {
    fk *f = arg;
    cu_graph graph;
    symmComm_t comm = open_process(f, rank, n);
    cu_stream stream = gk_stream(rank);
    void *first, *again[4];
    int same = 0;
    T_OK(symmMemAlloc(&first, 2 * BYTES));
    symmWindow_t win = add(comm, first, 2 * BYTES);
    T_EQ(takes(comm, rank, first, stream), 1);
    T_OK(symmMemFree(first));
    for (int i = 0; i < 4; i++) {
        T_OK(symmMemAlloc(&again[i], BYTES));
        same += (char *)again[i] >= (char *)first && (char *)again[i] < (char *)first + 2 * BYTES;
        T_EQ(takes(comm, rank, again[i], stream), 0);
    }
    T_CHECK(same > 0);
    symmWindow_t next = add(comm, again[0], BYTES);
    T_EQ(symm_cu.cuStreamBeginCapture(stream, SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
    T_OK(symmAllReduce(again[0], again[0], COUNT, symmInt32, symmSum, comm, gk_user(stream)));
    T_EQ(symm_cu.cuStreamEndCapture(stream, &graph), 0);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmWindowDeregister(comm, next));
    T_EQ(symm_cu.cuGraphDestroy(graph), 0);
    for (int i = 0; i < 4; i++) T_OK(symmMemFree(again[i]));
    kit_barrier(&f->k, n);
    T_EQ(symm_cu.cuStreamDestroy(stream), 0);
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void freed_memory_is_in_no_window(void) {
    T_FORK(2, freed_rank, fk_new(-1, 0));
}

/* ---- theirs ---- */

/* With numbers the next call knows. Without, it knows when a window has come or gone since. */
static void foreign_rank(int rank, int n, void *arg) {
    fk *f = arg;
    void *other;
    symmComm_t comm = open_process(f, rank, n);
    cu_stream stream = gk_stream(rank);
    foreign m = {0, 0};
    T_OK(symmSetDevice(rank));
    T_EQ(symm_cu.cuMemAddressReserve(&m.at, BYTES, 0, 0, 0), 0);
    void *p = (void *)(uintptr_t)m.at;
    T_OK(symmMemAlloc(&other, BYTES));
    symmWindow_t win[3];
    for (int round = 0; round < 3; round++) {
        foreign_map(&m, rank);
        if (round && f->how) T_OK(symmWindowDeregister(comm, add(comm, other, BYTES)));
        T_EQ(takes(comm, rank, p, stream), 0);
        win[round] = add(comm, p, BYTES);
        T_EQ(takes(comm, rank, p, stream), 1);
        T_EQ(takes(comm, rank, p, stream), 1);
        foreign_unmap(&m);
    }
    T_EQ(symm_cu.cuMemAddressFree(m.at, BYTES), 0);
    for (int round = 0; round < 3; round++) T_OK(symmWindowDeregister(comm, win[round]));
    T_OK(symmMemFree(other));
    kit_barrier(&f->k, n);
    T_EQ(symm_cu.cuStreamDestroy(stream), 0);
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void other_memory_of_theirs(void) {
    T_FORK(2, foreign_rank, fk_new(-1, 0));
}
static void other_memory_of_theirs_without_numbers(void) {
    T_FORK(2, foreign_rank, fk_new(-1, 1));
}

/* A call whose window is theirs asks CUDA once for each piece that it touches, and nothing for our
 * own. */
static void asked_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_process(f, rank, n);
    cu_stream stream = gk_stream(rank);
    foreign m = {0, 0};
    T_OK(symmSetDevice(rank));
    T_EQ(symm_cu.cuMemAddressReserve(&m.at, BYTES, 0, 0, 0), 0);
    foreign_map(&m, rank);
    void *p = (void *)(uintptr_t)m.at;
    symmWindow_t win = add(comm, p, BYTES);
    T_EQ(takes(comm, rank, p, stream), 1);
    const gk_calls before = gk_count();
    T_EQ(takes(comm, rank, p, stream), 1);
    GK_EXACTLY(&before, f->how ? "cuCtxGetCurrent cuLaunchKernelEx cuStreamGetCaptureInfo_v3"
                               : "cuCtxGetCurrent cuLaunchKernelEx cuStreamGetCaptureInfo_v3 "
                                 "cuPointerGetAttribute*2");
    T_OK(symmWindowDeregister(comm, win));
    foreign_unmap(&m);
    T_EQ(symm_cu.cuMemAddressFree(m.at, BYTES), 0);
    kit_barrier(&f->k, n);
    T_EQ(symm_cu.cuStreamDestroy(stream), 0);
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void what_a_call_asks_of_cuda(void) {
    T_FORK(2, asked_rank, fk_new(-1, 0));
    T_FORK(2, asked_rank, fk_new(-1, 1));
}

/* No memory of ours has ended since, which alone is counted. */
static void over_rank(int rank, int n, void *arg) {
    fk *f = arg;
    void *other, *peer;
    symmComm_t comm = open_process(f, rank, n);
    foreign m = {0, 0};
    T_EXPECT_WARNINGS();
    T_OK(symmSetDevice(rank));
    T_EQ(symm_cu.cuMemAddressReserve(&m.at, BYTES, 0, 0, 0), 0);
    foreign_map(&m, rank);
    T_OK(symmMemAlloc(&other, BYTES));
    symmWindow_t win = add(comm, (void *)(uintptr_t)m.at, BYTES), next = add(comm, other, BYTES);
    T_OK(symmWindowPeerPtr(win, 0, rank, &peer));
    foreign_unmap(&m);
    T_OK(symmWindowDeregister(comm, next));
    next = add(comm, other, BYTES);
    T_ERR(symmWindowPeerPtr(win, 0, rank, &peer), symmInvalidUsage);
    T_EQ(SYMM_STAT_GET(dropped), 1);
    T_EQ(symm_cu.cuMemAddressFree(m.at, BYTES), 0);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmWindowDeregister(comm, next));
    T_OK(symmMemFree(other));
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void a_registration_lets_go_of_memory_of_theirs(void) {
    T_FORK(2, over_rank, fk_new(-1, 0));
    T_FORK(2, over_rank, fk_new(-1, 1));
}

/* Without numbers nothing is asked again before windows change, so the growth compares memory. */
static void grow_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = open_process(f, rank, n);
    cu_stream stream = gk_stream(rank);
    foreign m = {0, 0};
    T_EXPECT_WARNINGS();
    T_OK(symmSetDevice(rank));
    T_EQ(symm_cu.cuMemAddressReserve(&m.at, BYTES, 0, 0, 0), 0);
    foreign_map(&m, rank);
    void *p = (void *)(uintptr_t)m.at;
    symmWindow_t win = add(comm, p, BYTES);
    T_EQ(takes(comm, rank, p, stream), 1);
    foreign_unmap(&m);
    foreign_map(&m, rank);
    T_ERR(symmWindowGrow(win, BYTES), f->how ? symmInvalidArgument : symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), f->how ? "is not what was registered" : "was freed");
    T_OK(symmWindowDeregister(comm, win));
    foreign_unmap(&m);
    T_EQ(symm_cu.cuMemAddressFree(m.at, BYTES), 0);
    kit_barrier(&f->k, n);
    T_EQ(symm_cu.cuStreamDestroy(stream), 0);
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void a_window_does_not_grow_over_other_memory(void) {
    T_FORK(2, grow_rank, fk_new(-1, 0));
    T_FORK(2, grow_rank, fk_new(-1, 1));
}

/* CUDA's memory takes no descriptor; those by which it is handed on are closed behind the call, and
 * of these only so many wait. */
static void many_rank(int rank, int n, void *arg) {
    enum { MANY = 120, WAIT = 64 + 8 };
    fk *f = arg;
    void *p[MANY];
    symmWindow_t win[MANY];
    symmComm_t comm = open_process(f, rank, n);
    symm_closer_wait(); /* those of creation */
    const int64_t before = SYMM_STAT_GET(fds);
    for (int i = 0; i < MANY; i++) {
        T_OK(symmMemAlloc(&p[i], 2 << 20));
        T_EQ(SYMM_STAT_GET(fds), before);
    }
    for (int i = 0; i < MANY; i++) {
        win[i] = add(comm, p[i], 2 << 20);
        T_CHECK(SYMM_STAT_GET(fds) <= before + WAIT);
    }
    symm_closer_wait();
    T_EQ(SYMM_STAT_GET(fds), before);
    for (int i = 0; i < MANY; i++) T_OK(symmWindowDeregister(comm, win[i]));
    for (int i = 0; i < MANY; i++) T_OK(symmMemFree(p[i]));
    T_OK(symmCommDestroy(comm));
    GK_LEFT(0);
}
static void memory_holds_no_descriptor(void) {
    T_FORK(2, many_rank, fk_new(-1, 0));
}

T_MAIN(T(memory_holds_no_descriptor), T(other_memory_of_ours), T(freed_memory_is_in_no_window),
       T(other_memory_of_theirs), T(other_memory_of_theirs_without_numbers),
       T(what_a_call_asks_of_cuda), T(a_registration_lets_go_of_memory_of_theirs),
       T(a_window_does_not_grow_over_other_memory))
