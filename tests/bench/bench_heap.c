/* bench_heap.c - what heaps cost: allocating and freeing SYM and LOCAL blocks with many alive,
 * growth of a heap, growth of a vector in place and by moving beside malloc + copy + free; what the
 * calls send and have made. Not a test: `make bench-memory` runs it under mpirun; the slowest rank
 * counts.
 *
 *   bench_heap [--json FILE] */
#include <mpi.h>

#include "base/stats.h"
#include "transport/cuda/cuda_device.h"
#include "transport/vmm/cuda_probe.h"
#include "bench_kit.h"
#include "symm_heap.h"
#include "symm_mpi.h"
#include "symm_vec.h"

#define MB (1ull << 20)

enum {
    LIVE = 100000,
    OPS = 400000,
    ROUNDS = 7,
    FEW = 3,
    STEPS = 16
}; /* few: of a second and more */

static int rank, nranks;

static void ok(symmResult_t r, const char *what) {
    if (!r) return;
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, symmGetLastError(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t next_random(uint64_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static uint64_t clock_cost(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 10000; i++) {
        const uint64_t t = now_ns(), d = now_ns() - t;
        if (d < least) least = d;
    }
    return least;
}

typedef struct {
    symmHeap_t heap;
    unsigned flags;
    void *block[LIVE];
    uint64_t ns[2 * OPS];
} trace;

static size_t some_size(uint64_t *seed, size_t most) {
    return 1 + next_random(seed) % most;
}

/* worst: p50, p99, p99.9, mean, messages, bytes of memory made. */
static void show_blocks(const char *name, int live, size_t most, const uint64_t *worst) {
    const double a_thousand = 1e3 / (2 * OPS);
    char what[64];
    printf("%-6s %6d blocks up to %7zu B: alloc or free p50 %4llu ns, p99 %4llu, p99.9 %5llu, "
           "mean %4llu; in 1,000 calls %.3g messages, %.3g bytes of memory made\n",
           name, live, most, (unsigned long long)worst[0], (unsigned long long)worst[1],
           (unsigned long long)worst[2], (unsigned long long)worst[3],
           (double)worst[4] * a_thousand, (double)worst[5] * a_thousand);
    snprintf(what, sizeof what, "%d blocks up to %zu B, %d ranks", live, most, nranks);
    row(what, name,
        "\"p50_ns\": %llu, \"p99_ns\": %llu, \"p999_ns\": %llu, \"mean_ns\": %llu, "
        "\"messages_1000\": %.3g, \"made_bytes_1000\": %.3g",
        (unsigned long long)worst[0], (unsigned long long)worst[1], (unsigned long long)worst[2],
        (unsigned long long)worst[3], (double)worst[4] * a_thousand, (double)worst[5] * a_thousand);
}

/* A block goes and another one comes, at random; all ranks make the same calls. */
static void random_blocks(symmComm_t comm, const char *name, unsigned flags, int live,
                          size_t most) {
    static trace t;
    uint64_t seed = 88172645463325252ull, cost = clock_cost(), sum = 0;
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    const uint64_t bytes = (uint64_t)live * most * 5 / 8 + 64 * MB;
    c.reserve = (bytes + 8 * MB) / (2 * MB) * (2 * MB);
    c.symBytes = flags ? 0 : bytes;
    c.localBytes = flags ? bytes : 0;
    ok(symmHeapCreate(comm, &c, &t.heap), "symmHeapCreate");
    for (int i = 0; i < live; i++)
        ok(symmHeapAlloc(t.heap, some_size(&seed, most), 0, flags, &t.block[i]), "symmHeapAlloc");
    const int64_t sent = SYMM_STAT_GET(messages), made = SYMM_STAT_GET(created_bytes);
    for (int i = 0; i < OPS; i++) {
        const int at = (int)(next_random(&seed) % (unsigned)live);
        const size_t size = some_size(&seed, most);
        void *const block = t.block[at]; /* a caller has it at hand */
        const uint64_t t0 = now_ns();
        symmResult_t r = symmHeapFree(t.heap, block);
        const uint64_t t1 = now_ns();
        ok(r, "symmHeapFree");
        const uint64_t t2 = now_ns();
        r = symmHeapAlloc(t.heap, size, 0, flags, &t.block[at]);
        const uint64_t t3 = now_ns();
        ok(r, "symmHeapAlloc");
        t.ns[2 * i] = t1 - t0 > cost ? t1 - t0 - cost : 0;
        t.ns[2 * i + 1] = t3 - t2 > cost ? t3 - t2 - cost : 0;
        sum += t.ns[2 * i] + t.ns[2 * i + 1];
    }
    qsort(t.ns, 2 * OPS, sizeof t.ns[0], by_value);
    uint64_t mine[6] = {t.ns[OPS],
                        t.ns[2 * OPS / 100 * 99],
                        t.ns[2 * OPS - 2 * OPS / 1000],
                        sum / (2 * OPS),
                        (uint64_t)(SYMM_STAT_GET(messages) - sent),
                        (uint64_t)(SYMM_STAT_GET(created_bytes) - made)},
             worst[6];
    MPI_Reduce(mine, worst, 6, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    if (!rank) show_blocks(name, live, most, worst);
    ok(symmHeapDestroy(t.heap), "symmHeapDestroy");
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---- growth ---------------------------------------------------------------------------------- */

static void show(const char *what, uint64_t *ns, int rounds) {
    uint64_t worst[ROUNDS];
    MPI_Reduce(ns, worst, rounds, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank) return;
    qsort(worst, (size_t)rounds, sizeof worst[0], by_value);
    printf("%-64s median %10.1f us   min %10.1f   max %10.1f\n", what,
           (double)worst[rounds / 2] / 1e3, (double)worst[0] / 1e3,
           (double)worst[rounds - 1] / 1e3);
    row(what, "growth", "\"ranks\": %d, \"median_us\": %.1f, \"min_us\": %.1f, \"max_us\": %.1f",
        nranks, (double)worst[rounds / 2] / 1e3, (double)worst[0] / 1e3,
        (double)worst[rounds - 1] / 1e3);
}

static uint64_t begin(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    return now_ns();
}

static symmVec_t make_vec(symmComm_t comm, uint64_t max) {
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    symmVec_t vec;
    c.max = max;
    ok(symmVecCreate(comm, &c, &vec), "symmVecCreate");
    return vec;
}

/* To 1 GiB in 64 MiB steps. touch: each new page is written once, as the copying way has to. */
static uint64_t grow_vec(symmComm_t comm, uint64_t max, int touch) {
    symmVec_t vec = make_vec(comm, max);
    void *p;
    uint64_t t = begin();
    for (int i = 1; i <= STEPS; i++) {
        ok(symmVecGrow(vec, (uint64_t)i * 64 * MB), "symmVecGrow");
        ok(symmVecPtr(vec, rank, &p), "symmVecPtr");
        if (touch) memset((char *)p + (uint64_t)(i - 1) * 64 * MB, i, 64 * MB);
    }
    t = now_ns() - t;
    ok(symmVecDestroy(vec), "symmVecDestroy");
    return t;
}

static uint64_t grow_by_copy(void) {
    char *p = NULL;
    uint64_t t = begin();
    for (int i = 1; i <= STEPS; i++) {
        char *next = malloc((size_t)i * 64 * MB);
        if (!next) MPI_Abort(MPI_COMM_WORLD, 1);
        if (p) memcpy(next, p, (size_t)(i - 1) * 64 * MB);
        memset(next + (size_t)(i - 1) * 64 * MB, i, 64 * MB);
        free(p);
        p = next;
    }
    t = now_ns() - t;
    free(p);
    return t;
}

/* The same on a GPU, in its own memory; nothing is written but by the copies. */
static uint64_t grow_by_device_copy(void) {
    cu_deviceptr p = 0, next = 0;
    int bad = 0;
    uint64_t t = begin();
    for (int i = 1; i <= STEPS && !bad; i++) {
        bad = symm_cu.cuMemAlloc(&next, (size_t)i * 64 * MB);
        if (!bad && p) bad = symm_cu.cuMemcpyDtoD(next, p, (size_t)(i - 1) * 64 * MB);
        if (!bad && p) bad = symm_cu.cuMemFree(p); /* waits for the copy */
        p = next;
    }
    t = now_ns() - t;
    if (bad || symm_cu.cuMemFree(p)) MPI_Abort(MPI_COMM_WORLD, 1);
    return t;
}

/* What the driver takes for the vector's steps, by itself and without peers: the least that growing
 * can cost. */
static uint64_t grow_by_driver(int device) {
    const cu_mem_prop prop = symm_cuda_prop(device, SYMM_CUDA_HANDLE_FD);
    const cu_mem_access access = {{SYMM_CUDA_LOCATION_DEVICE, device}, SYMM_CUDA_ACCESS_READWRITE};
    cu_deviceptr va = 0;
    cu_mem_handle h = 0;
    int bad = symm_cu.cuMemAddressReserve(&va, STEPS * 64 * MB, 0, 0, 0);
    uint64_t t = begin();
    for (unsigned i = 0; i < STEPS && !bad; i++) {
        const cu_deviceptr at = va + i * 64 * MB;
        bad = symm_cu.cuMemCreate(&h, 64 * MB, &prop, 0);
        if (!bad) bad = symm_cu.cuMemMap(at, 64 * MB, 0, h, 0);
        if (!bad) bad = symm_cu.cuMemSetAccess(at, 64 * MB, &access, 1);
        if (!bad) bad = symm_cu.cuMemRelease(h);
    }
    t = now_ns() - t;
    if (bad || symm_cu.cuMemUnmap(va, STEPS * 64 * MB) ||
        symm_cu.cuMemAddressFree(va, STEPS * 64 * MB))
        MPI_Abort(MPI_COMM_WORLD, 1);
    return t;
}

static uint64_t grow_heap(symmComm_t comm, uint64_t bytes, uint64_t chunk) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    c.chunk = chunk;
    ok(symmHeapCreate(comm, &c, &heap), "symmHeapCreate");
    uint64_t t = begin();
    ok(symmHeapGrow(heap, bytes, 0), "symmHeapGrow");
    t = now_ns() - t;
    ok(symmHeapDestroy(heap), "symmHeapDestroy");
    return t;
}

static uint64_t trim_heap(symmComm_t comm) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    c.symBytes = 256 * MB;
    ok(symmHeapCreate(comm, &c, &heap), "symmHeapCreate");
    uint64_t t = begin();
    ok(symmHeapTrim(heap, 0, NULL), "symmHeapTrim");
    t = now_ns() - t;
    ok(symmHeapDestroy(heap), "symmHeapDestroy");
    return t;
}

static void growth(symmComm_t comm) {
    uint64_t ns[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) ns[i] = grow_vec(comm, 1024 * MB, 0);
    show("vector to 1 GiB in 64 MiB steps, in place", ns, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) ns[i] = grow_vec(comm, 64 * MB, 0);
    show("the same from a range of 64 MiB, moving", ns, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) ns[i] = grow_heap(comm, 256 * MB, 64 * MB);
    show("heap grows by 256 MiB, pieces of 64 MiB", ns, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) ns[i] = grow_heap(comm, 256 * MB, 256 * MB);
    show("heap grows by 256 MiB, one piece", ns, ROUNDS);
    for (int i = 0; i < ROUNDS; i++) ns[i] = trim_heap(comm);
    show("heap trims 256 MiB that nobody touched", ns, ROUNDS);
    int device;
    ok(symmCommDevice(comm, &device), "symmCommDevice");
    if (device >= 0) { /* ordinary code cannot write there */
        ok(symmSetDevice(device), "symmSetDevice");
        for (int i = 0; i < ROUNDS; i++) ns[i] = grow_by_driver(device);
        show("the driver's calls for 16 pieces of 64 MiB, alone", ns, ROUNDS);
        for (int i = 0; i < ROUNDS; i++) ns[i] = grow_by_device_copy();
        show("cuMemAlloc + copy + cuMemFree to 1 GiB in 64 MiB steps", ns, ROUNDS);
        return;
    }
    if (nranks > 2) return; /* memory that is touched: 2 GiB a rank */
    for (int i = 0; i < FEW; i++) ns[i] = grow_vec(comm, 1024 * MB, 1);
    show("vector to 1 GiB in 64 MiB steps, new bytes written", ns, FEW);
    for (int i = 0; i < FEW; i++) ns[i] = grow_by_copy();
    show("malloc + copy + free to 1 GiB in 64 MiB steps, new bytes written", ns, FEW);
}

int main(int argc, char **argv) {
    symmComm_t comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    ok(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL), "symmCommInitMPI");
    if (!rank) printf("%d ranks\n", nranks);
    if (!rank && argc == 3 && !strcmp(argv[1], "--json")) json_open(argv[2]);
    random_blocks(comm, "SYM", SYMM_ALLOC_SYM, 1000, 65536);
    random_blocks(comm, "SYM", SYMM_ALLOC_SYM, LIVE, 16384);
    random_blocks(comm, "LOCAL", SYMM_ALLOC_LOCAL, 1000, 65536);
    random_blocks(comm, "LOCAL", SYMM_ALLOC_LOCAL, LIVE, 16384);
    growth(comm);
    ok(symmCommDestroy(comm), "symmCommDestroy");
    MPI_Finalize();
    return json_close();
}
