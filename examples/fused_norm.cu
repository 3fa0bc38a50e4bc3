/* fused_norm.cu - all_reduce, residual and RMSNorm of a transformer layer as one kernel over symm's
 * windows, beside symmAllReduce and an RMSNorm kernel. Rows are bfloat16, 8192 wide:
 *
 *     s = sum over ranks of x, rounded;  next = s + residual, rounded
 *     y = next / sqrt(mean(next^2) + 1e-5) * weight
 *
 * Three ways of the fused kernel, each with one CTA for a token, which meets the same CTA of the
 * other ranks:
 *  - load: a barrier, then each rank loads the row of every rank;
 *  - two-shot: a barrier, each rank sums a part of the row and stores it to all, a barrier;
 *  - packets: each rank sends its row to all, with the flags in the data; no barrier.
 * Results are compared with the unfused way bit for bit. Times are those of a call in CUDA graphs
 * of CALLS calls: the median of replays, on the slowest rank.
 *
 *     fused_norm [ranks]          forks the ranks, a GPU each; default: as many as GPUs, at most 8
 *     mpirun -np 2 fused_norm     the ranks are mpirun's processes
 *
 * The caller's part: x has two buffers, which calls use in turn. A rank writes the one of call k
 * again after its call k+1 has ended: that one has met all peers, whose call k had ended then.
 * Runs in: one thread of one process per rank. No lock. */
#include <cuda_bf16.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fused_ranks.cuh"
#include "symm_device.cuh"
#include "symm_heap.h"

enum {
    COLUMNS = 8192,
    MOST_TOKENS = 64,
    THREADS = 512,
    VECS = COLUMNS / 8 / THREADS, /* of 16 bytes, of a thread */
    ROW = COLUMNS * 2,            /* bytes */
    BUFFER = MOST_TOKENS * ROW,
    CALLS = 40, /* of a graph */
    REPLAYS = 31
};
enum { UNFUSED, LOAD, TWO_SHOT, PACKETS, WAYS };
static const char *const way_names[WAYS] = {"unfused", "load", "two-shot", "packets"};

/* ---- kernels --------------------------------------------------------------------------------- */

typedef symmDevVec<symmBfloat16> bf16x8;

struct layer {                      /* what all kernels are told; a row of each buffer per token */
    const uint4 *residual, *weight; /* weight: one row */
    uint4 *next, *y;
};

/* The sum over the CTA, the same in all its threads and each time. */
static __device__ float sum_of_cta(float mine) {
    __shared__ float warps[THREADS / 32];
    for (int by = 16; by; by >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, by);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < THREADS / 32; w++) sum += warps[w];
    __syncthreads(); /* all have read: the next call may write */
    return sum;
}

/* Where vector k of this thread lies in a buffer of rows. */
static __device__ int vec_at(int k) {
    return (int)blockIdx.x * (COLUMNS / 8) + k * THREADS + (int)threadIdx.x;
}
struct loaded { /* what is no peer's: loaded before the wait */
    uint4 residual[VECS], weight[VECS];
};
static __device__ __forceinline__ loaded load_layer(const layer &l) {
    loaded v;
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        v.residual[k] = l.residual[vec_at(k)];
        v.weight[k] = l.weight[k * THREADS + threadIdx.x];
    }
    return v;
}

/* Of a row of sums: residual and norm. Both ways run this code: the same bits. */
static __device__ __forceinline__ void finish(const layer &l, const loaded &in,
                                              const uint4 (&sums)[VECS]) {
    float z[VECS][8], w[8], r[8], squares = 0;
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        bf16x8::unpack(sums[k], z[k]);
        bf16x8::unpack(in.residual[k], r);
#pragma unroll
        for (int i = 0; i < 8; i++) z[k][i] = __fadd_rn(z[k][i], r[i]);
        const uint4 next = bf16x8::pack(z[k]);
        l.next[vec_at(k)] = next;
        bf16x8::unpack(next, z[k]);
#pragma unroll
        for (int i = 0; i < 8; i++) squares = __fmaf_rn(z[k][i], z[k][i], squares);
    }
    const float scale = rsqrtf(sum_of_cta(squares) / COLUMNS + 1e-5f);
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        bf16x8::unpack(in.weight[k], w);
#pragma unroll
        for (int i = 0; i < 8; i++) z[k][i] = __fmul_rn(__fmul_rn(z[k][i], scale), w[i]);
        l.y[vec_at(k)] = bf16x8::pack(z[k]);
    }
}

/* The unfused way's second kernel. */
__global__ void __launch_bounds__(THREADS)
    rms_norm(const __grid_constant__ layer l, const uint4 *sums) {
    uint4 v[VECS];
    symmDevWaitForGridBefore();
    symmDevLaunchDependents();
    const loaded in = load_layer(l);
#pragma unroll
    for (int k = 0; k < VECS; k++) v[k] = sums[vec_at(k)];
    finish(l, in, v);
}

struct fused { /* of one call */
    symmDevComm_t dev;
    symmDevWindow_t x, sums; /* this call's buffers */
    layer l;
};

/* A rank that gives up returns: the communicator is over, and the host hears why. */
template <int RANKS>
__global__ void __launch_bounds__(THREADS) fused_load(const __grid_constant__ fused a) {
    uint4 v[VECS][RANKS], sums[VECS];
    symmDevWaitForGridBefore();
    symmDevLaunchDependents();
    symmDevBarrier<symmDevCta> barrier(a.dev, blockIdx.x);
    barrier.arriveRelaxed(); /* x was stored by an earlier kernel */
    const loaded in = load_layer(a.l);
    if (barrier.waitRelaxed()) return;
#pragma unroll
    for (int k = 0; k < VECS; k++)
        symmDevLoadAll<RANKS>(a.dev, a.x, (uint64_t)vec_at(k) * 16, v[k]);
#pragma unroll
    for (int k = 0; k < VECS; k++) {
        float sum[8];
        symmDevSum<symmBfloat16, RANKS>(v[k], sum);
        sums[k] = bf16x8::pack(sum);
    }
    finish(a.l, in, sums);
}

/* Of a row, rank r sums the vectors r*width..(r+1)*width and stores them to all. */
template <int RANKS>
__global__ void __launch_bounds__(THREADS) fused_two_shot(const __grid_constant__ fused a) {
    enum { WIDTH = (COLUMNS / 8 + RANKS - 1) / RANKS };
    uint4 sums[VECS];
    symmDevWaitForGridBefore();
    symmDevLaunchDependents();
    symmDevBarrier<symmDevCta> barrier(a.dev, blockIdx.x);
    barrier.arriveRelaxed();
    const loaded in = load_layer(a.l);
    if (barrier.waitRelaxed()) return;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < WIDTH; i += THREADS) {
        const int at = a.dev.rank * WIDTH + i;
        const uint64_t byte = ((uint64_t)blockIdx.x * (COLUMNS / 8) + (unsigned)at) * 16;
        uint4 v[RANKS];
        float sum[8];
        if (at >= COLUMNS / 8) break;
        symmDevLoadAll<RANKS>(a.dev, a.x, byte, v);
        symmDevSum<symmBfloat16, RANKS>(v, sum);
        const uint4 part = bf16x8::pack(sum);
#pragma unroll
        for (int p = 0; p < RANKS; p++) *(uint4 *)symmDevPeerPtr(a.dev, a.sums, p, byte) = part;
    }
    if (barrier.sync()) return;
#pragma unroll
    for (int k = 0; k < VECS; k++)
        sums[k] = symm_ptx::load_peer(symmDevLocalPtr(a.sums, (uint64_t)vec_at(k) * 16));
    finish(a.l, in, sums);
}

/* A vector is two packets. All ranks send and receive in each session, which is what sessions
 * require. */
template <int RANKS>
__global__ void __launch_bounds__(THREADS) fused_packets(const __grid_constant__ fused a) {
    uint4 own[VECS], sums[VECS];
    float sum[VECS][8];
    int over = 0;
    symmDevWaitForGridBefore();
    symmDevLaunchDependents();
#pragma unroll
    for (int k = 0; k < VECS; k++) /* under way together with what the session loads */
        own[k] = symm_ptx::load_peer(symmDevLocalPtr(a.x, (uint64_t)vec_at(k) * 16));
    symmDevPackets<symmDevCta> session(a.dev, blockIdx.x);
#pragma unroll
    for (int k = 0; k < VECS; k++)
#pragma unroll
        for (int p = 0; p < RANKS; p++) {
            if (p == a.dev.rank) continue;
            session.send(p, 2 * k * THREADS + threadIdx.x, make_uint2(own[k].x, own[k].y));
            session.send(p, (2 * k + 1) * THREADS + threadIdx.x, make_uint2(own[k].z, own[k].w));
        }
    const loaded in = load_layer(a.l);
#pragma unroll
    for (int p = 0; p < RANKS; p++) { /* in rank order */
        uint2 got[2 * VECS];
        if (p != a.dev.rank) over |= session.receiveSome<2 * VECS>(p, threadIdx.x, THREADS, got);
#pragma unroll
        for (int k = 0; k < VECS; k++) {
            float x[8];
            bf16x8::unpack(p == a.dev.rank ? own[k]
                                           : make_uint4(got[2 * k].x, got[2 * k].y,
                                                        got[2 * k + 1].x, got[2 * k + 1].y),
                           x);
#pragma unroll
            for (int i = 0; i < 8; i++) sum[k][i] = p ? __fadd_rn(sum[k][i], x[i]) : x[i];
        }
    }
    if (session.end(over)) return;
#pragma unroll
    for (int k = 0; k < VECS; k++) sums[k] = bf16x8::pack(sum[k]);
    finish(a.l, in, sums);
}

/* ---- a rank ---------------------------------------------------------------------------------- */

struct rank_state : fused_rank {
    symmHeap_t heap;
    symmDevComm_t dev;
    symmDevWindow_t xs[2], sumss[2];
    char *x[2], *sums[2];               /* in the heap */
    char *residual, *weight, *next, *y; /* this rank's alone */
    char *wantNext, *wantY;             /* of the unfused way */
};

typedef void (*fused_kernel)(const fused);
template <int RANKS> static fused_kernel kernel_of(int way) {
    return way == LOAD       ? fused_load<RANKS>
           : way == TWO_SHOT ? fused_two_shot<RANKS>
                             : fused_packets<RANKS>;
}
static fused_kernel fused_of(int way, int ranks) {
    switch (ranks) {
    case 1: return kernel_of<1>(way);
    case 2: return kernel_of<2>(way);
    case 3: return kernel_of<3>(way);
    case 4: return kernel_of<4>(way);
    case 5: return kernel_of<5>(way);
    case 6: return kernel_of<6>(way);
    case 7: return kernel_of<7>(way);
    default: return kernel_of<8>(way);
    }
}

/* Programmatic, so that the kernel is in place when the one before it ends. */
template <class Kernel, class... Args>
static void launch(const rank_state *s, Kernel kernel, int tokens, const Args &...args) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)tokens);
    config.blockDim = dim3(THREADS);
    config.stream = s->stream;
    config.attrs = &early;
    config.numAttrs = s->gpus < s->ranks ? 0 : 1; /* a successor could keep a peer's kernel out */
    cu(cudaLaunchKernelEx(&config, kernel, args...));
}

static void call(const rank_state *s, int way, int tokens, int i) {
    const layer l = {(const uint4 *)s->residual, (const uint4 *)s->weight, (uint4 *)s->next,
                     (uint4 *)s->y};
    if (way == UNFUSED) {
        ok(symmAllReduce(s->x[i % 2], s->sums[i % 2], (size_t)tokens * COLUMNS, symmBfloat16,
                         symmSum, s->comm, s->stream));
        launch(s, rms_norm, tokens, l, (const uint4 *)s->sums[i % 2]);
    } else {
        launch(s, fused_of(way, s->ranks), tokens, fused{s->dev, s->xs[i % 2], s->sumss[i % 2], l});
    }
}

/* What the unfused way leaves is what the others must leave. */
static float measure_way(rank_state *s, int way, int tokens, uint32_t *wrong) {
    const uint32_t words = (uint32_t)tokens * ROW / 4;
    cu(cudaMemsetAsync(s->y, 0xff, (size_t)tokens * ROW, s->stream));
    cu(cudaMemsetAsync(s->next, 0xff, (size_t)tokens * ROW, s->stream));
    const float us = measure(s, CALLS, REPLAYS, [=](int i) { call(s, way, tokens, i); });
    if (way == UNFUSED) {
        cu(cudaMemcpyAsync(s->wantNext, s->next, BUFFER, cudaMemcpyDeviceToDevice, s->stream));
        cu(cudaMemcpyAsync(s->wantY, s->y, BUFFER, cudaMemcpyDeviceToDevice, s->stream));
    } else {
        *wrong += look(s, s->next, s->wantNext, words) + look(s, s->y, s->wantY, words);
    }
    return us;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Each token has a CTA. */
static void prepare_kernels(const rank_state *s) {
    load_kernels(
        {(const void *)rms_norm, (const void *)fill<__nv_bfloat16>, (const void *)differing});
    for (int way = LOAD; way < WAYS; way++) {
        const void *kernel = (const void *)fused_of(way, s->ranks);
        load_kernels({kernel});
        const int most = places(s, kernel, THREADS, 0);
        if (most >= MOST_TOKENS) continue;
        fprintf(stderr, "%s: %d CTAs must run at once, the GPU has places for %d\n", way_names[way],
                MOST_TOKENS, most);
        exit(1);
    }
}

static void open_buffers(rank_state *s) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmDevRequirements_t need = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    char **own[] = {&s->residual, &s->weight, &s->next, &s->y, &s->wantNext, &s->wantY};
    config.symBytes = 5 * BUFFER;
    ok(symmHeapCreate(s->comm, &config, &s->heap));
    for (int i = 0; i < 2; i++) {
        ok(symmHeapAlloc(s->heap, BUFFER, 0, SYMM_ALLOC_SYM, (void **)&s->x[i]));
        ok(symmHeapAlloc(s->heap, BUFFER, 0, SYMM_ALLOC_SYM, (void **)&s->sums[i]));
        ok(symmDevWindowGet(s->comm, s->x[i], BUFFER, &s->xs[i]));
        ok(symmDevWindowGet(s->comm, s->sums[i], BUFFER, &s->sumss[i]));
        fill<<<64, 256, 0, s->stream>>>((__nv_bfloat16 *)s->x[i], BUFFER / 2,
                                        (uint32_t)(100 + 2 * s->rank + i));
    }
    for (int i = 0; i < 6; i++) {
        cu(cudaMalloc((void **)own[i], BUFFER));
        if (i < 2)
            fill<<<64, 256, 0, s->stream>>>((__nv_bfloat16 *)*own[i], BUFFER / 2, (uint32_t)i + 1);
    }
    need.barriers = MOST_TOKENS;
    need.llBytes = ROW;
    ok(symmDevCommCreate(s->comm, &need, &s->dev));
}

static void close_buffers(rank_state *s) {
    char *own[] = {s->residual, s->weight, s->next, s->y, s->wantNext, s->wantY};
    ok(symmDevCommDestroy(s->comm, &s->dev));
    ok(symmHeapDestroy(s->heap));
    for (char *p : own) cu(cudaFree(p));
}

static int run_rank(int rank, int ranks, const symmUniqueId_t *id) {
    rank_state s = {};
    uint32_t wrong = 0;
    double ratios = 1;
    open_rank(&s, rank, ranks);
    prepare_kernels(&s);
    ok(symmCommInitRank(&s.comm, ranks, *id, rank));
    open_buffers(&s);
    meet(&s);
    if (rank == 0)
        printf("%d ranks on %d of %s, rows of %d bfloat16, us of a call in a graph of %d\n"
               "tokens   unfused      load  two-shot   packets   best fused\n",
               ranks, std::min(s.gpus, ranks), s.gpu.name, COLUMNS, CALLS);
    for (int tokens = 1; tokens <= MOST_TOKENS; tokens *= 2) {
        float us[WAYS];
        int best = LOAD;
        for (int way = 0; way < WAYS; way++) us[way] = measure_way(&s, way, tokens, &wrong);
        for (int way = LOAD; way < WAYS; way++)
            if (us[way] < us[best]) best = way;
        ratios *= us[UNFUSED] / us[best];
        if (rank == 0)
            printf("%6d %9.2f %9.2f %9.2f %9.2f   %.2fx (%s)\n", tokens, us[UNFUSED], us[LOAD],
                   us[TWO_SHOT], us[PACKETS], us[UNFUSED] / us[best], way_names[best]);
    }
    if (rank == 0) printf("fused beside unfused: %.2fx geometric mean\n", pow(ratios, 1.0 / 7));
    printf("rank %d: %u words differ from the unfused way\n", rank, wrong);
    close_buffers(&s);
    ok(symmCommDestroy(s.comm));
    close_rank(&s);
    return wrong != 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* Under mpirun: its processes are children of one, whose number names a file for the id. MPI itself
 * is not needed. */
static int run_under_mpirun(int rank, int ranks) {
    char path[100], fresh[120];
    symmUniqueId_t id;
    snprintf(path, sizeof path, "/tmp/fused_norm.%d.%d", (int)getuid(), (int)getppid());
    snprintf(fresh, sizeof fresh, "%s.new", path);
    if (rank == 0) {
        ok(symmGetUniqueId(&id));
        FILE *f = fopen(fresh, "wb");
        if (!f || fwrite(&id, sizeof id, 1, f) != 1 || fclose(f) || rename(fresh, path)) {
            perror(path);
            return 1;
        }
    }
    for (int tries = 0; rank && tries < 6000; tries++) {
        FILE *f = fopen(path, "rb");
        const int there = f && fread(&id, sizeof id, 1, f) == 1;
        if (f) fclose(f);
        if (there) break;
        if (tries == 5999) {
            fprintf(stderr, "rank %d: rank 0 wrote no %s in a minute\n", rank, path);
            return 1;
        }
        usleep(10000);
    }
    const int failed = run_rank(rank, ranks, &id);
    if (rank == 0) unlink(path);
    return failed;
}

static int number(const char *name, const char *or_name) {
    const char *text = getenv(name) ? getenv(name) : getenv(or_name);
    return text ? atoi(text) : -1;
}

int main(int argc, char **argv) {
    const int rank = number("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
              size = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
    if (size <= 0) return run_ranks("fused_norm", argc, argv, run_rank);
    if (!count_gpus()) {
        printf("no GPU here\n");
        return 0;
    }
    if (size > MOST_RANKS) {
        fprintf(stderr, "fused_norm: 1 to %d ranks, not %d\n", MOST_RANKS, size);
        return 2;
    }
    return run_under_mpirun(rank, size);
}
