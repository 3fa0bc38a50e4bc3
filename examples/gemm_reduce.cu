/* gemm_reduce.cu - a layer whose weights are divided over ranks along the inner dimension: each
 * rank multiplies its part, and the products are summed. Fused: one kernel, whose tiles are summed
 * as they finish (gemm_kernel.cuh), beside the same product as a kernel and symmAllReduce behind
 * it.
 *
 * x and w are bfloat16, products and sums float32. Both ways add in rank order, and are compared
 * bit for bit. Times are those of a call in CUDA graphs of CALLS calls: the median of replays, on
 * the slowest rank.
 *
 *     gemm_reduce [ranks]         forks the ranks, a GPU each; default: as many as GPUs, at most 8
 *
 * Runs in: one thread of one process per rank. No lock. */
#include <cuda_pipeline.h>
#include <mma.h>
#include <string.h>

#include "fused_ranks.cuh"
#include "gemm_kernel.cuh"
#include "symm_heap.h"

enum {
    COLUMNS = 4096,
    INNER = 2048, /* of a rank */
    MOST_ROWS = 8192,
    TILE = 128,
    DEPTH = 32, /* of the inner dimension, at a time */
    STAGES = 3,
    PAD = 8, /* rows of a stage begin in other banks */
    THREADS = 256,
    MOST_CTAS = 512,
    Y_BYTES = MOST_ROWS * COLUMNS * 4,
    TILE_BYTES = TILE * TILE * 4,
    CALLS = 10, /* of a graph */
    REPLAYS = 15
};

/* ---- the product ----------------------------------------------------------------------------- */

using bf16 = __nv_bfloat16;
using namespace nvcuda;

struct factors {
    const bf16 *x, *w; /* rows of INNER, rows of COLUMNS */
};
struct stage {
    bf16 x[TILE][DEPTH + PAD];
    bf16 w[DEPTH][TILE + PAD];
};
static_assert(STAGES * sizeof(stage) <= TILE_BYTES, "the stages and then the tile lie there");
enum { SHARED = TILE_BYTES };

/* Vectors of 16 bytes of both factors, on their way while earlier ones are multiplied. */
__device__ void fetch(const factors &f, uint32_t row, uint32_t column, int step, stage &to) {
    enum { X_VECS = TILE * DEPTH / 8, W_VECS = DEPTH * TILE / 8 };
    for (int i = (int)threadIdx.x; i < X_VECS; i += THREADS) {
        const int r = i / (DEPTH / 8), c = i % (DEPTH / 8) * 8;
        __pipeline_memcpy_async(&to.x[r][c], &f.x[(uint64_t)(row + r) * INNER + step * DEPTH + c],
                                16);
    }
    for (int i = (int)threadIdx.x; i < W_VECS; i += THREADS) {
        const int r = i / (TILE / 8), c = i % (TILE / 8) * 8;
        __pipeline_memcpy_async(&to.w[r][c],
                                &f.w[(uint64_t)(step * DEPTH + r) * COLUMNS + column + c], 16);
    }
}

/* A tile into shared memory, by eight warps of 32 x 64. */
struct product {
    factors f;
    char *shared;

    __device__ const uint4 *operator()(uint32_t tile) const {
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][4];
        const uint32_t row = tile / (COLUMNS / TILE) * TILE,
                       column = tile % (COLUMNS / TILE) * TILE;
        const int warp = (int)threadIdx.x / 32, down = warp / 2 * 32, across = warp % 2 * 64;
        stage *ring = (stage *)shared;
        float *out = (float *)shared;
        for (int i = 0; i < 8; i++) wmma::fill_fragment(sum[i / 4][i % 4], 0.0f);
        __syncthreads(); /* the tile before has been read */
        for (int s = 0; s < STAGES - 1; s++) {
            fetch(f, row, column, s, ring[s]);
            __pipeline_commit();
        }
        for (int step = 0; step < INNER / DEPTH; step++) {
            __pipeline_wait_prior(STAGES - 2);
            __syncthreads(); /* all have this stage, and are done with the one that is filled now */
            if (step + STAGES - 1 < INNER / DEPTH)
                fetch(f, row, column, step + STAGES - 1, ring[(step + STAGES - 1) % STAGES]);
            __pipeline_commit();
            multiply(ring[step % STAGES], down, across, sum);
        }
        __syncthreads(); /* the stages are read no more */
        for (int i = 0; i < 8; i++)
            wmma::store_matrix_sync(&out[(down + i / 4 * 16) * TILE + across + i % 4 * 16],
                                    sum[i / 4][i % 4], TILE, wmma::mem_row_major);
        __syncthreads();
        return (const uint4 *)shared;
    }

    static __device__ void
    multiply(const stage &s, int down, int across,
             wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][4]) {
        for (int at = 0; at < DEPTH; at += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> x[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> w[4];
            for (int i = 0; i < 2; i++)
                wmma::load_matrix_sync(x[i], &s.x[down + i * 16][at], DEPTH + PAD);
            for (int j = 0; j < 4; j++)
                wmma::load_matrix_sync(w[j], &s.w[at][across + j * 16], TILE + PAD);
            for (int i = 0; i < 8; i++)
                wmma::mma_sync(sum[i / 4][i % 4], x[i / 4], w[i % 4], sum[i / 4][i % 4]);
        }
    }
};

/* ---- kernels --------------------------------------------------------------------------------- */

extern __shared__ __align__(128) char shared_memory[];

/* A rank that gives up returns: the communicator is over, and the host hears why. */
__global__ void __launch_bounds__(THREADS, 2)
    fused(const __grid_constant__ gemm_call a, const __grid_constant__ factors f) {
    gemm_reduce(a, product{f, shared_memory});
}

/* The unfused way: the same product, to be summed by symmAllReduce. */
__global__ void __launch_bounds__(THREADS, 2)
    multiply(const __grid_constant__ gemm_call a, const __grid_constant__ factors f, char *y) {
    const product make{f, shared_memory};
    for (uint32_t tile = blockIdx.x; tile < gemm_tiles(a); tile += gridDim.x) {
        const uint4 *made = make(tile);
        for (uint32_t i = threadIdx.x; i < gemm_tile_vecs(a); i += blockDim.x)
            *(uint4 *)(y + gemm_vec(a, tile, i)) = made[i];
    }
}

/* ---- a rank ---------------------------------------------------------------------------------- */

struct rank_state : fused_rank {
    int most; /* CTAs that run at once */
    symmHeap_t heap;
    gemm_call fused;     /* what the kernel is told */
    factors f;           /* this rank's alone */
    char *inbox, *y, *z; /* in the heap: tiles; sums; the unfused way's */
};

static unsigned grid_of(const rank_state *s) {
    const unsigned tiles = s->fused.rows / TILE * (COLUMNS / TILE);
    return tiles < (unsigned)s->most ? tiles : (unsigned)s->most;
}

static void call(const rank_state *s, int unfused) {
    if (!unfused) {
        fused<<<grid_of(s), THREADS, SHARED, s->stream>>>(s->fused, s->f);
        return;
    }
    multiply<<<grid_of(s), THREADS, SHARED, s->stream>>>(s->fused, s->f, s->z);
    ok(symmAllReduce(s->z, s->z, (size_t)s->fused.rows * COLUMNS, symmFloat, symmSum, s->comm,
                     s->stream));
}

/* Another number of rows: signals count on from 0 again, and so do the calls. */
static void begin_rows(rank_state *s, uint32_t rows) {
    symmDevRequirements_t need = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    s->fused.rows = rows;
    need.barriers = (int)grid_of(s);
    need.signals = s->ranks * (int)grid_of(s);
    cu(cudaMemsetAsync(s->fused.calls, 0, MOST_CTAS * sizeof *s->fused.calls, s->stream));
    ok(symmDevCommCreate(s->comm, &need, &s->fused.dev));
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void prepare_kernels(rank_state *s) {
    const std::vector<const void *> kernels = {(const void *)fused, (const void *)multiply,
                                               (const void *)fill<bf16>, (const void *)differing};
    load_kernels(kernels);
    for (int i = 0; i < 2; i++)
        cu(cudaFuncSetAttribute(kernels[i], cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    s->most = std::min(share_of(s, places(s, kernels[0], THREADS, SHARED)), (int)MOST_CTAS);
    if (s->most >= 1) return;
    fprintf(stderr, "the GPU has no place for a CTA of the kernel\n");
    exit(1);
}

static void open_buffers(rank_state *s) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    /* All ranks' tiles of the rows that this one owns, and a place for each CTA and rank more. */
    const size_t tiles = (MOST_ROWS / TILE) * (COLUMNS / TILE),
                 inbox = (tiles + (size_t)s->ranks * 2 * (size_t)s->most) * TILE_BYTES;
    config.symBytes = inbox + 2 * (size_t)Y_BYTES + 8192;
    ok(symmHeapCreate(s->comm, &config, &s->heap));
    ok(symmHeapAlloc(s->heap, inbox, 0, SYMM_ALLOC_SYM, (void **)&s->inbox));
    ok(symmHeapAlloc(s->heap, Y_BYTES, 0, SYMM_ALLOC_SYM, (void **)&s->y));
    ok(symmHeapAlloc(s->heap, Y_BYTES, 0, SYMM_ALLOC_SYM, (void **)&s->z));
    cu(cudaMalloc((void **)&s->f.x, MOST_ROWS * INNER * sizeof(bf16)));
    cu(cudaMalloc((void **)&s->f.w, INNER * COLUMNS * sizeof(bf16)));
    cu(cudaMalloc((void **)&s->fused.calls, MOST_CTAS * sizeof *s->fused.calls));
    fill<<<256, 256, 0, s->stream>>>((bf16 *)s->f.x, MOST_ROWS * INNER, 100 + (uint32_t)s->rank);
    fill<<<256, 256, 0, s->stream>>>((bf16 *)s->f.w, INNER * COLUMNS, 200 + (uint32_t)s->rank);
    ok(symmDevWindowGet(s->comm, s->inbox, inbox, &s->fused.inbox));
    ok(symmDevWindowGet(s->comm, s->y, Y_BYTES, &s->fused.y));
    s->fused.columns = COLUMNS;
    s->fused.tile_rows = s->fused.tile_columns = TILE;
}

static void close_buffers(rank_state *s) {
    void *own[] = {(void *)s->f.x, (void *)s->f.w, s->fused.calls};
    ok(symmHeapDestroy(s->heap));
    for (void *p : own) cu(cudaFree(p));
}

static float measure_way(const rank_state *s, int unfused) {
    cu(cudaMemsetAsync(unfused ? s->z : s->y, 0xff, Y_BYTES, s->stream));
    return measure(s, CALLS, REPLAYS, [=](int) { call(s, unfused); });
}

static int run_rank(int rank, int ranks, const symmUniqueId_t *id) {
    rank_state s = {};
    uint32_t wrong = 0;
    open_rank(&s, rank, ranks);
    prepare_kernels(&s);
    ok(symmCommInitRank(&s.comm, ranks, *id, rank));
    open_buffers(&s);
    meet(&s);
    if (rank == 0)
        printf("%d ranks on %d of %s, %d columns, %d of the inner dimension each, us of a call in "
               "a graph of %d\n  rows   unfused     fused\n",
               ranks, std::min(s.gpus, ranks), s.gpu.name, COLUMNS, INNER, CALLS);
    for (uint32_t rows = TILE; rows <= MOST_ROWS; rows *= 4) {
        float us[2];
        begin_rows(&s, rows);
        for (int way = 0; way < 2; way++) us[way] = measure_way(&s, way == 0);
        wrong += look(&s, s.y, s.z, rows * COLUMNS);
        ok(symmDevCommDestroy(s.comm, &s.fused.dev));
        if (rank == 0) printf("%6u %9.2f %9.2f   %.2fx\n", rows, us[0], us[1], us[0] / us[1]);
    }
    printf("rank %d: %u words differ from the unfused way\n", rank, wrong);
    close_buffers(&s);
    ok(symmCommDestroy(s.comm));
    close_rank(&s);
    return wrong != 0;
}

int main(int argc, char **argv) {
    return run_ranks("gemm_reduce", argc, argv, run_rank);
}
