/* gpu_storm.h - random calls for a while, on one communicator: sizes, kernels, grids, eager and
 * replayed, ranks and streams held up at random; now and then a whole case of gpu_cases.h, now and
 * then a look at everything. Three chains (gpu_chain.h) of different types carry an error of any
 * word of any call to the end. Ranks are threads (gpu_torture.c) or processes (mpg_ranks.c). */
#ifndef GPU_STORM_H_
#define GPU_STORM_H_

#include "gpu_chain.h"
#include "gpu_cases.h"

enum { GS_CHAINS = 3, GS_GRAPHS = 4, GS_CALLS = 6, GS_TURN = 64 };

typedef struct {
    const gc_rank *g;
    symmComm_t comm;
    cu_stream stream;
    ck_world world;
    gk_chain chain[GS_CHAINS];
    void *memory[GS_CHAINS];
    struct {
        gk_graph graph;
        int calls, which[GS_CALLS];
        uint64_t at[GS_CALLS], count[GS_CALLS];
    } graph[GS_GRAPHS];
    int rows[symmNumColls][SYMM_KERNEL_COUNT], nrows[symmNumColls];
    uint64_t calls, cases, looks;
} gs_storm;

static const struct {
    symmDataType_t type;
    uint64_t words;
    int registered;
} gs_kinds[GS_CHAINS] = {
    {symmUint32, 1 << 20, 1}, {symmUint8, 1000003, 0}, {symmUint64, 300007, 1}};

/* Kernel and grid of the next call, alike on all ranks. */
static inline void gs_force(gs_storm *s, uint64_t h) {
    static const int ctas[] = {0, 0, 1, 2, 5, 16}, threads[] = {0, 0, 32, 96, 352, 480};
    for (int coll = 0; coll < symmNumColls; coll++) {
        if (!coll_moves((symmColl_t)coll)) continue;
        const int pick = (int)(ck_hash(h, (uint64_t)coll, 41) % (unsigned)(s->nrows[coll] + 1));
        gk_force(s->comm, (symmColl_t)coll, pick < s->nrows[coll] ? s->rows[coll][pick] : -1,
                 gk_fit(ctas[(h >> 40) % 6], s->g->n, s->g->devices), threads[(h >> 48) % 6]);
    }
    gk_relay(s->comm, (int)(h >> 56) % 3);
}

static inline void gs_capture(gs_storm *s, int k) {
    const uint64_t seed = ck_hash(s->g->seed, (uint64_t)k, 31);
    s->graph[k].calls = 1 + (int)(seed % GS_CALLS);
    gc_meet(s->g);
    gk_capture(s->stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 0; i < s->graph[k].calls; i++) {
        const uint64_t h = ck_hash(seed, (uint64_t)i, 1);
        gk_chain *c = &s->chain[s->graph[k].which[i] = (int)(h % GS_CHAINS)];
        gs_force(s, ck_hash(h, 2, 2));
        s->graph[k].at[i] = gk_chain_range(c, h, &s->graph[k].count[i]);
        gk_chain_issue(c, s->graph[k].at[i], s->graph[k].count[i], s->stream);
    }
    s->graph[k].graph = gk_captured(s->stream);
    gc_meet(s->g);
}

static inline void gs_replay(gs_storm *s, int k) {
    CU(cuGraphLaunch(s->graph[k].graph.exec, s->stream));
    for (int i = 0; i < s->graph[k].calls; i++)
        gk_chain_note(&s->chain[s->graph[k].which[i]], s->graph[k].at[i], s->graph[k].count[i], 1);
    s->calls += (unsigned)s->graph[k].calls;
}

/* This rank, or what it has given its stream, is held up: one call in thirty. */
static inline void gs_delay(gs_storm *s, uint64_t i) {
    const uint64_t h = ck_hash(s->g->seed, i, 40 + (uint64_t)s->g->rank);
    if (h % 60 == 0) usleep((useconds_t)(h >> 8) % 1500);
    if (h % 60 == 1) gk_delay(s->stream, (h >> 8) % 1500);
}

static inline void gs_case(gs_storm *s, uint64_t h) {
    ck_case k = gc_sample(h, (int)(h >> 33), s->g->n);
    if (k.count > 200000) k.count = 200000;
    ck_run(&s->world, &k);
    s->cases++;
}

static inline void gs_call(gs_storm *s, uint64_t i) {
    const uint64_t h = ck_hash(s->g->seed, i, 30), kind = h % 200;
    gk_chain *c = &s->chain[(h >> 10) % GS_CHAINS];
    uint64_t count, at = gk_chain_range(c, ck_hash(h, 3, 3), &count);
    gs_delay(s, i);
    gs_force(s, ck_hash(h, 4, 4));
    if (kind < 130) {
        gk_chain_call(c, at, count, s->stream);
        s->calls++;
    } else if (kind < 185) {
        gs_replay(s, (int)((h >> 12) % GS_GRAPHS));
    } else if (kind < 195) {
        T_OK(symmBarrier(s->comm, gk_stream(s->stream)));
        s->calls++;
    } else if (kind < 198) {
        gs_case(s, ck_hash(h, 5, 5));
    } else {
        gk_chain_check(c, s->stream);
        s->looks++;
    }
}

static inline void gs_open(gs_storm *s, const gc_rank *g, symmComm_t comm) {
    *s = (gs_storm){.g = g, .comm = comm};
    T_OK(symmSetDevice(g->rank % g->devices));
    s->stream = gk_new_stream();
    for (int coll = 0; coll < symmNumColls; coll++)
        s->nrows[coll] = gk_rows((symmColl_t)coll, g->n, s->rows[coll]);
    for (int k = 0; k < GS_CHAINS; k++) {
        symmWindow_t win;
        const uint64_t bytes = gs_kinds[k].words * symm_type_size(gs_kinds[k].type);
        T_OK(symmMemAlloc(&s->memory[k], bytes));
        if (gs_kinds[k].registered)
            T_OK(symmWindowRegister(comm, s->memory[k], bytes, &win, SYMM_WIN_DEFAULT));
        s->chain[k] = gk_chain_new(comm, g->rank, g->n, gs_kinds[k].type, s->memory[k],
                                   gs_kinds[k].words, s->stream);
    }
    ck_open_on(&s->world, comm, g->rank, g->n, g->seed, &gk_device, gk_stream(s->stream));
    for (int k = 0; k < GS_GRAPHS; k++) gs_capture(s, k);
}

/* Destroys the communicator. */
static inline void gs_close(gs_storm *s) {
    for (int k = 0; k < GS_CHAINS; k++) gk_chain_check(&s->chain[k], s->stream);
    gc_meet(s->g);
    for (int k = 0; k < GS_GRAPHS; k++) gk_drop(&s->graph[k].graph);
    for (int k = 0; k < GS_CHAINS; k++) gk_chain_free(&s->chain[k]);
    ck_close(&s->world, 1);
    for (int k = 0; k < GS_CHAINS; k++) T_OK(symmMemFree(s->memory[k]));
    CU(cuStreamDestroy(s->stream));
    gc_meet(s->g);
}

/* go_on: every rank asks, all get the same answer (rank 0's, from the seconds since it began); no
 * rank goes on before all have asked. */
static inline void gs_run(const gc_rank *g, symmComm_t comm,
                          int (*go_on)(const gc_rank *g, double seconds)) {
    gs_storm s;
    gs_open(&s, g, comm);
    const uint64_t since = symm_now_ns();
    for (uint64_t i = 0; i % GS_TURN || go_on(g, (double)gk_ms_since(since) / 1e3); i++) {
        gs_call(&s, i);
        if (i % GS_TURN == GS_TURN - 1) gk_wait(comm, s.stream);
    }
    gs_close(&s);
    if (g->rank == 0)
        gk_figure("torture, %d ranks: %llu calls, %llu cases, %llu looks in %d s; all words right",
                  g->n, (unsigned long long)s.calls, (unsigned long long)s.cases,
                  (unsigned long long)s.looks, (int)(gk_ms_since(since) / 1000));
    T_CHECK(s.calls > 0);
}

#endif
