/* moe_device.cu - a layer of a mixture of experts, one expert per rank: dispatch, expert and
 * combine as one kernel over symm's windows (moe_kernel.cuh), beside symmAlltoAllv, a kernel for
 * the expert, symmAlltoAllv. Tokens are rows of floats; a token's expert multiplies it by a number.
 * Half of the tokens go to one of two experts that everybody likes. moe_dispatch.c is the same for
 * ranks without GPUs.
 *
 * Both ways are compared bit for bit. Times are those of a call in CUDA graphs of CALLS calls: the
 * median of replays, on the slowest rank.
 *
 *     moe_device [ranks]          forks the ranks, a GPU each; default: as many as GPUs, at most 8
 *
 * Runs in: one thread of one process per rank. No lock. */
#include <string.h>

#include "fused_ranks.cuh"
#include "moe_kernel.cuh"
#include "symm_heap.h"

enum {
    COLUMNS = 2048,
    VECS = COLUMNS / 4, /* of 16 bytes, of a row */
    MOST_TOKENS = 512,
    THREADS = 512,
    MOST_CTAS = 256,
    LEAST_PARTS = 8, /* CTAs for each pair of ranks */
    EACH = 2,        /* vectors of a thread, as far as there are CTAs */
    ROWS_BYTES = MOST_TOKENS * VECS * 16,
    BOX_BYTES = MOST_CTAS * 16 + ROWS_BYTES,
    CALLS = 20, /* of a graph */
    REPLAYS = 21
};

/* ---- kernels --------------------------------------------------------------------------------- */

/* A rank that gives up returns: the communicator is over, and the host hears why. */
__global__ void __launch_bounds__(THREADS) fused(const __grid_constant__ moe_call a) {
    moe_layer(a);
}

/* The unfused way: rows by expert; the expert; rows where the tokens were. */
__global__ void pack(const uint4 *tokens, const uint32_t *order, uint4 *sorted) {
    for (unsigned i = threadIdx.x; i < VECS; i += blockDim.x)
        sorted[(uint64_t)blockIdx.x * VECS + i] = tokens[(uint64_t)order[blockIdx.x] * VECS + i];
}
__global__ void unpack(const uint4 *sorted, const uint32_t *order, uint4 *y) {
    for (unsigned i = threadIdx.x; i < VECS; i += blockDim.x)
        y[(uint64_t)order[blockIdx.x] * VECS + i] = sorted[(uint64_t)blockIdx.x * VECS + i];
}
__global__ void expert(float4 *x, uint64_t n, float scale) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += step) {
        const float4 v = x[i];
        x[i] = make_float4(__fmul_rn(v.x, scale), __fmul_rn(v.y, scale), __fmul_rn(v.z, scale),
                           __fmul_rn(v.w, scale));
    }
}

/* ---- a rank ---------------------------------------------------------------------------------- */

struct rank_state : fused_rank {
    int tokens, parts; /* parts: CTAs for each pair, with so many tokens */
    symmHeap_t heap;
    moe_call fused;        /* what the kernel is told */
    char *inbox, *results; /* in the heap: boxes of the kernel, parts of symmAlltoAllv */
    char *tokens_at, *y, *want, *sorted; /* this rank's alone */
    uint32_t *order;                     /* [MOST_TOKENS], then [MOST_RANKS + 1]: first */
    uint64_t *calls;
    size_t to[MOST_RANKS], from[MOST_RANKS], incoming; /* floats, for symmAlltoAllv */
};

static int expert_of(const rank_state *s, int from, int token) {
    const unsigned h = (unsigned)(from * MOST_TOKENS + token) * 2654435761u >> 8;
    const unsigned liked = s->ranks < 2 ? (unsigned)s->ranks : 2u;
    return (int)(h & 1 ? (h >> 1) % liked : (h >> 1) % (unsigned)s->ranks);
}

/* The router: tokens by expert, and what comes from each rank. */
static void route(rank_state *s, int tokens) {
    uint32_t order[MOST_TOKENS + MOST_RANKS + 1], at = 0;
    const int wanted =
                  (tokens * VECS + s->ranks * THREADS * EACH - 1) / (s->ranks * THREADS * EACH),
              least = wanted < LEAST_PARTS ? LEAST_PARTS : wanted, most = (int)s->fused.most;
    s->tokens = tokens;
    s->parts = least < most ? least : most;
    s->incoming = 0;
    memset(s->to, 0, sizeof s->to);
    memset(s->from, 0, sizeof s->from);
    for (int e = 0; e <= s->ranks; e++) {
        order[MOST_TOKENS + e] = at;
        for (int t = 0; t < tokens && e < s->ranks; t++)
            if (expert_of(s, s->rank, t) == e) order[at++] = (uint32_t)t, s->to[e] += COLUMNS;
    }
    for (int p = 0; p < s->ranks; p++) {
        for (int t = 0; t < tokens; t++)
            if (expert_of(s, p, t) == s->rank) s->from[p] += COLUMNS;
        s->incoming += s->from[p];
    }
    cu(cudaMemcpyAsync(s->order, order, sizeof order, cudaMemcpyHostToDevice, s->stream));
    cu(cudaStreamSynchronize(s->stream)); /* `order` is this function's */
}

static void call(const rank_state *s, int unfused) {
    if (!unfused) {
        fused<<<(unsigned)(s->ranks * s->parts), THREADS, 0, s->stream>>>(s->fused);
        return;
    }
    pack<<<(unsigned)s->tokens, 256, 0, s->stream>>>((uint4 *)s->tokens_at, s->order,
                                                     (uint4 *)s->sorted);
    ok(symmAlltoAllv(s->sorted, s->to, NULL, s->inbox, s->from, NULL, symmFloat, s->comm,
                     s->stream));
    expert<<<256, 256, 0, s->stream>>>((float4 *)s->inbox, s->incoming / 4, s->fused.scale);
    ok(symmAlltoAllv(s->inbox, s->from, NULL, s->results, s->to, NULL, symmFloat, s->comm,
                     s->stream));
    unpack<<<(unsigned)s->tokens, 256, 0, s->stream>>>((uint4 *)s->results, s->order,
                                                       (uint4 *)s->y);
}

/* What the unfused way leaves is what the fused one must leave. */
static float measure_way(rank_state *s, int unfused, uint32_t *wrong) {
    cu(cudaMemsetAsync(s->y, 0xff, ROWS_BYTES, s->stream));
    const float us = measure(s, CALLS, REPLAYS, [=](int) { call(s, unfused); });
    if (unfused)
        cu(cudaMemcpyAsync(s->want, s->y, ROWS_BYTES, cudaMemcpyDeviceToDevice, s->stream));
    else
        *wrong += look(s, s->y, s->want, (uint32_t)s->tokens * COLUMNS);
    return us;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* Each pair of ranks may have so many CTAs. */
static void prepare_kernels(rank_state *s) {
    load_kernels({(const void *)fused, (const void *)pack, (const void *)unpack,
                  (const void *)expert, (const void *)fill<float>, (const void *)differing});
    const int most = share_of(s, places(s, (const void *)fused, THREADS, 0));
    s->fused.most = (uint32_t)(std::min(most, (int)MOST_CTAS) / s->ranks);
    if (s->fused.most >= 1) return;
    fprintf(stderr, "%d CTAs must run at once, the GPU has places for %d\n", s->ranks, most);
    exit(1);
}

static void open_buffers(rank_state *s) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmDevRequirements_t need = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    const size_t boxes = (size_t)s->ranks * BOX_BYTES;
    char **own[] = {&s->tokens_at, &s->y, &s->want, &s->sorted};
    config.symBytes = 2 * boxes + 4096;
    need.signals = 2 * s->ranks * (int)s->fused.most;
    ok(symmHeapCreate(s->comm, &config, &s->heap));
    ok(symmHeapAlloc(s->heap, boxes, 0, SYMM_ALLOC_SYM, (void **)&s->inbox));
    ok(symmHeapAlloc(s->heap, boxes, 0, SYMM_ALLOC_SYM, (void **)&s->results));
    for (char **p : own) cu(cudaMalloc((void **)p, ROWS_BYTES));
    cu(cudaMalloc((void **)&s->order, (MOST_TOKENS + MOST_RANKS + 1) * sizeof *s->order));
    cu(cudaMalloc((void **)&s->calls, MOST_CTAS * sizeof *s->calls));
    cu(cudaMemsetAsync(s->calls, 0, MOST_CTAS * sizeof *s->calls, s->stream));
    fill<<<64, 256, 0, s->stream>>>((float *)s->tokens_at, ROWS_BYTES / 4, 100 + (uint32_t)s->rank);
    ok(symmDevWindowGet(s->comm, s->inbox, boxes, &s->fused.inbox));
    ok(symmDevWindowGet(s->comm, s->results, boxes, &s->fused.results));
    ok(symmDevCommCreate(s->comm, &need, &s->fused.dev));
    s->fused.tokens = (const uint4 *)s->tokens_at, s->fused.y = (uint4 *)s->y;
    s->fused.order = s->order, s->fused.first = s->order + MOST_TOKENS;
    s->fused.calls = s->calls;
    s->fused.vecs = VECS, s->fused.places = MOST_TOKENS;
    s->fused.scale = (float)(s->rank + 2);
}

static void close_buffers(rank_state *s) {
    void *own[] = {s->tokens_at, s->y, s->want, s->sorted, s->order, s->calls};
    ok(symmDevCommDestroy(s->comm, &s->fused.dev));
    ok(symmHeapDestroy(s->heap));
    for (void *p : own) cu(cudaFree(p));
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
        printf("%d experts on %d of %s, tokens of %d floats, us of a call in a graph of %d\n"
               "tokens   unfused     fused\n",
               ranks, std::min(s.gpus, ranks), s.gpu.name, COLUMNS, CALLS);
    for (int tokens = 8; tokens <= MOST_TOKENS; tokens *= 4) {
        float us[2];
        route(&s, tokens);
        for (int way = 0; way < 2; way++) us[way] = measure_way(&s, way == 0, &wrong);
        if (rank == 0) printf("%6d %9.2f %9.2f   %.2fx\n", tokens, us[0], us[1], us[0] / us[1]);
    }
    printf("rank %d: %u words differ from the unfused way\n", rank, wrong);
    close_buffers(&s);
    ok(symmCommDestroy(s.comm));
    close_rank(&s);
    return wrong != 0;
}

int main(int argc, char **argv) {
    return run_ranks("moe_device", argc, argv, run_rank);
}
