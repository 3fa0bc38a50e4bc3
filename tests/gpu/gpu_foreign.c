/* gpu_foreign.c - windows over memory that another allocator made: pieces mapped side by side, as
 * an allocator with expandable segments has them, and NCCL's ncclMemAlloc where there is an NCCL
 * (PERF_NCCL_LIB names another one). Thread ranks and processes; kernels must have gone straight
 * to it. */
#include <dlfcn.h>

#include "fault_kit.h"
#include "gpu_kit.h"

#define PIECE  (2ull << 20)
#define PIECES 8
#define BYTES  (PIECE * PIECES)

/* ---- allocators ---- */

typedef struct {
    char *ptr;
    cu_mem_handle raw[PIECES];
} foreign;

static foreign in_pieces(int device) {
    const cu_mem_access access = {{SYMM_CUDA_LOCATION_DEVICE, device}, SYMM_CUDA_ACCESS_READWRITE};
    cu_mem_prop prop = {.type = SYMM_CUDA_MEM_PINNED, .handle_types = SYMM_CUDA_HANDLE_FD};
    cu_deviceptr va = 0;
    foreign f = {NULL, {0}};
    prop.location.type = SYMM_CUDA_LOCATION_DEVICE;
    prop.location.id = device;
    CU(cuMemAddressReserve(&va, BYTES, 0, 0, 0));
    for (uint64_t i = 0; i < PIECES; i++) {
        CU(cuMemCreate(&f.raw[i], PIECE, &prop, 0));
        CU(cuMemMap(va + i * PIECE, PIECE, 0, f.raw[i], 0));
    }
    CU(cuMemSetAccess(va, BYTES, &access, 1)); /* its own device's alone */
    f.ptr = (char *)(uintptr_t)va;
    return f;
}

static void drop_pieces(foreign *f) {
    const cu_deviceptr va = (uintptr_t)f->ptr;
    for (uint64_t i = 0; i < PIECES; i++) {
        CU(cuMemUnmap(va + i * PIECE, PIECE));
        CU(cuMemRelease(f->raw[i]));
    }
    CU(cuMemAddressFree(va, BYTES));
}

static int (*nccl_alloc)(void **, size_t);
static int (*nccl_free)(void *);

static const char *find_nccl(void) {
    const char *path = getenv("PERF_NCCL_LIB");
    if (gk_number("GPU_FAKE", 0)) return "a GPU that is none";
    void *so = dlopen(path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!so) return "no libnccl.so.2";
    *(void **)&nccl_alloc = dlsym(so, "ncclMemAlloc");
    *(void **)&nccl_free = dlsym(so, "ncclMemFree");
    return nccl_alloc && nccl_free ? NULL : "an NCCL without ncclMemAlloc";
}

enum { PIECEWISE, NCCL };

static foreign allocate(int how, int device) {
    foreign f = {NULL, {0}};
    if (how == PIECEWISE) return in_pieces(device);
    T_EQ(nccl_alloc((void **)&f.ptr, BYTES), 0);
    return f;
}
static void let_go(int how, foreign *f) {
    if (how == PIECEWISE)
        drop_pieces(f);
    else
        T_EQ(nccl_free(f->ptr), 0);
}

/* ---- a rank ---- */

/* A large call whose operands cross the borders of the pieces, and one of some kilobytes. */
static void use(symmComm_t comm, int rank, int n, int *device, cu_stream stream) {
    const size_t most = BYTES / 2 / sizeof *device;
    int *host = (int *)(void *)gk_pinned(most * sizeof *host);
    gk_force(comm, symmCollAllReduce, SYMM_KERNEL_AR_DIRECT, 0, 0);
    gk_reduce(comm, rank, n, device, host, most, stream);
    gk_reduce(comm, rank, n, device + 3, host, most / 2 + 1, stream);
    gk_force(comm, symmCollAllReduce, -1, 0, 0);
    gk_reduce(comm, rank, n, device + 1, host, 999, stream);
    T_CHECK(gk_launches(comm, SYMM_KERNEL_AR_DIRECT) >= 2);
    gk_free_pinned((char *)host);
}

static void check_plan(symmComm_t comm, const char *ptr) {
    symmExplain_t plan = {.size = sizeof plan};
    T_OK(symmExplain(comm, symmCollAllReduce, ptr, ptr, BYTES / 4, symmInt32, symmSum, 0, &plan));
    T_CHECKF(plan.zeroCopySend && plan.zeroCopyRecv, "%s: %s", plan.kernel, plan.reason);
}

static void thread_rank(int rank, int n, void *arg) {
    gk_job *j = arg;
    symmWindow_t win;
    const int device = rank % j->devices;
    T_OK(symmSetDevice(device));
    cu_stream stream = gk_new_stream();
    foreign f = allocate(j->how, device);
    gk_meet(j);
    T_OK(symmWindowRegister(j->comms[rank], f.ptr, BYTES, &win, SYMM_WIN_DEFAULT));
    check_plan(j->comms[rank], f.ptr);
    gk_meet(j);
    use(j->comms[rank], rank, n, (int *)(void *)f.ptr, stream);
    gk_meet(j);
    T_OK(symmWindowDeregister(j->comms[rank], win));
    T_OK(symmCommDestroy(j->comms[rank]));
    gk_meet(j);
    let_go(j->how, &f);
    CU(cuStreamDestroy(stream));
}

static void process_rank(int rank, int n, void *arg) {
    fk *job = arg;
    const char *why;
    symmWindow_t win;
    const int devices = gk_find(&why), device = rank % devices;
    T_EXPECT_FDS();
    T_OK(symmSetDevice(device));
    if (job->how == NCCL) T_CHECK(find_nccl() == NULL);
    symmComm_t comm = fk_open(job, rank, n);
    cu_stream stream = gk_new_stream();
    foreign f = allocate(job->how, device);
    T_OK(symmWindowRegister(comm, f.ptr, BYTES, &win, SYMM_WIN_DEFAULT));
    check_plan(comm, f.ptr);
    use(comm, rank, n, (int *)(void *)f.ptr, stream);
    kit_barrier(&job->k, n);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmCommDestroy(comm));
    let_go(job->how, &f);
    CU(cuStreamDestroy(stream));
}

/* ---- tests ---- */

static void threads(int how) {
    gk_job j = {.n = 2, .devices = gk_begin(), .how = how};
    const char *lacks = how == NCCL ? find_nccl() : NULL;
    if (lacks) T_SKIP("needs nccl: %s", lacks);
    gk_run(&j, thread_rank);
}

static void processes(int how) {
    gk_begin_forked();
    const char *lacks = how == NCCL ? find_nccl() : NULL;
    if (lacks) T_SKIP("needs nccl: %s", lacks);
    T_FORK(2, process_rank, fk_new(0, how));
}

static void pieces_threads(void) {
    threads(PIECEWISE);
}
static void pieces_processes(void) {
    processes(PIECEWISE);
}
static void nccl_threads(void) {
    threads(NCCL);
}
static void nccl_processes(void) {
    processes(NCCL);
}

T_MAIN(T_TIMEOUT(pieces_threads, 90), T_TIMEOUT(pieces_processes, 90), T_TIMEOUT(nccl_threads, 90),
       T_TIMEOUT(nccl_processes, 90))
