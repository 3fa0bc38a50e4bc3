/* bench_lane.c - host time of stream-ordered memory on the host backend: AllocAsync+FreeAsync as a pair and at random, beside malloc and the
 * heap's own calls; lanes of small blocks against what they use; a graph with and without blocks. Figures, never a verdict.
 *
 *   bench_lane [--json FILE] */
#include "lane_kit.h"
#include "bench_kit.h"
#include "../src/transport/wait.h"

enum { PAIRS = 400000, TRIES = 5 };

static double per(uint64_t since, int calls) {
    return (double)(symm_now_ns() - since) / calls;
}
static double best(double a, double b) {
    return a == 0 || b < a ? b : a;
}

static void show_pair(const char *name, size_t bytes, double ns) {
    printf("%-44s %8zu bytes %8.1f ns a pair\n", name, bytes, ns);
    row(name, "pair", "\"bytes\": %zu, \"pair_ns\": %.1f", bytes, ns);
}

static void pairs(lk *k, const char *name, size_t bytes, unsigned flags) {
    double ns = 0;
    for (int t = 0; t < TRIES; t++) {
        uint64_t at = symm_now_ns();
        for (int i = 0; i < PAIRS; i++) {
            void *p;
            symmAllocAsync(k->lane[0], bytes, flags, &p);
            symmFreeAsync(k->lane[0], p);
        }
        ns = best(ns, per(at, PAIRS));
    }
    show_pair(name, bytes, ns);
}

static void heap_pairs(lk *k, size_t bytes) {
    double ns = 0;
    for (int t = 0; t < TRIES; t++) {
        uint64_t at = symm_now_ns();
        for (int i = 0; i < PAIRS; i++) {
            void *p;
            symmAlloc(k->heap, bytes, 0, SYMM_ALLOC_LOCAL, &p);
            symmFree(k->heap, p);
        }
        ns = best(ns, per(at, PAIRS));
    }
    show_pair("symmAlloc + symmFree, LOCAL", bytes, ns);
}

static void malloc_pairs(size_t bytes) {
    double ns = 0;
    for (int t = 0; t < TRIES; t++) {
        uint64_t at = symm_now_ns();
        for (int i = 0; i < PAIRS; i++) {
            void *volatile p = malloc(bytes);
            free(p);
        }
        ns = best(ns, per(at, PAIRS));
    }
    show_pair("malloc + free", bytes, ns);
}

/* 200 live, sizes at random: pairs do not fit each other. */
static void at_random(lk *k, unsigned flags, const char *name) {
    enum { LIVE = 200 };
    static void *live[LIVE];
    static uint64_t bytes[LIVE];
    uint64_t seed = 3, now = 0, used = 0;
    uint64_t at = symm_now_ns();
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < PAIRS; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        const unsigned n = (seed >> 40) % LIVE;
        if (live[n]) symmFreeAsync(k->lane[0], live[n]);
        now -= bytes[n];
        bytes[n] = 1 + (seed >> 20) % 65536;
        now += bytes[n];
        if (used < now) used = now;
        if (symmAllocAsync(k->lane[0], bytes[n], flags, &live[n])) abort();
    }
    double ns = per(at, PAIRS);
    symmLaneInfo_t i = lk_info(k->lane[0]);
    uint64_t has = flags ? i.localReserved : i.symReserved;
    printf("%-44s  1..65536 bytes %8.1f ns a pair, %.2f of the most in use reserved\n", name, ns,
           (double)has / (double)used);
    row(name, "random", "\"pair_ns\": %.1f, \"reserved_over_used\": %.4f", ns,
        (double)has / (double)used);
    for (int n = 0; n < LIVE; n++) lk_free(k->lane[0], live[n]), live[n] = NULL;
}

static symmResult_t nothing(void *args) {
    (void)args;
    return symmSuccess;
}

static void launches(lk *k, int blocks, int by_plan) {
    symmGraphPlan_t plan = NULL;
    double ns = 0;
    T_OK(symmStreamBeginCapture(k->stream[0]));
    for (int i = 0; i < 8; i++) {
        char *p = blocks ? lk_local(k->lane[0], 4096) : NULL;
        T_OK(symm_stream_submit(k->stream[0], nothing, NULL, 0, NULL, NULL, NULL));
        if (p) lk_free(k->lane[0], p);
    }
    symmGraph_t g = lk_end(k->stream[0]);
    if (by_plan) plan = lk_bind(k->lane[0], g, 0);
    for (int t = 0; t < 50; t++) {
        enum { MANY = 2000 };
        uint64_t at = symm_now_ns();
        for (int i = 0; i < MANY; i++)
            if (plan)
                symmPlanLaunch(plan, g, NULL);
            else
                symmGraphLaunch(g, NULL);
        ns = best(ns, per(at, MANY));
    }
    const char *name = !blocks   ? "graph of 8 calls, without blocks"
                       : by_plan ? "graph of 8 calls, 8 blocks, symmPlanLaunch"
                                 : "graph of 8 calls, 8 blocks, symmGraphLaunch";
    printf("%-44s %23.1f ns a replay\n", name, ns);
    row(name, "replay", "\"replay_ns\": %.1f", ns);
    T_OK(symmGraphDestroy(g));
    if (plan) T_OK(symmPlanDestroy(plan));
}

/* memory.md's case of many streams with small blocks. */
static void small_blocks(void) {
    enum { PER = 300 };
    static void *p[LK_LANES][PER];
    lk k;
    uint64_t seed = 11, live = 0;
    lk_alone(&k, LK_LANES);
    for (int round = 0; round < 30; round++)
        for (int i = 0; i < PER; i++)
            for (int l = 0; l < LK_LANES; l++) {
                seed = seed * 6364136223846793005ull + 1442695040888963407ull;
                if (p[l][i] && (seed >> 60) < 12) lk_free(k.lane[l], p[l][i]), p[l][i] = NULL;
                if (!p[l][i]) p[l][i] = lk_local(k.lane[l], 256 * (1 + (seed >> 33) % 6));
            }
    for (int l = 0; l < LK_LANES; l++) live += lk_info(k.lane[l]).localLive;
    printf("%-44s %8.1f MiB live, %.2f of it reserved\n", "64 lanes of 256 to 1536 bytes",
           (double)live / (double)LK_MB, (double)lk_info(k.lane[0]).localReserved / (double)live);
    row("64 lanes of 256 to 1536 bytes", "lanes",
        "\"live_bytes\": %llu, \"reserved_over_live\": %.4f", (unsigned long long)live,
        (double)lk_info(k.lane[0]).localReserved / (double)live);
    for (int l = 0; l < LK_LANES; l++)
        for (int i = 0; i < PER; i++) lk_free(k.lane[l], p[l][i]);
    lk_close(&k);
}

int main(int argc, char **argv) {
    lk k;
    if (argc == 3 && !strcmp(argv[1], "--json")) json_open(argv[2]);
    lk_alone(&k, 1);
    for (size_t bytes = 512; bytes <= 1 << 20; bytes *= 2048) {
        pairs(&k, "symmAllocAsync + symmFreeAsync, LOCAL", bytes, SYMM_ALLOC_LOCAL);
        pairs(&k, "symmAllocAsync + symmFreeAsync, SYM, 1 rank", bytes, SYMM_ALLOC_SYM);
        heap_pairs(&k, bytes);
        malloc_pairs(bytes);
    }
    at_random(&k, SYMM_ALLOC_LOCAL, "at random, 200 live, LOCAL");
    at_random(&k, SYMM_ALLOC_SYM, "at random, 200 live, SYM, 1 rank");
    launches(&k, 0, 0);
    launches(&k, 1, 0);
    launches(&k, 1, 1);
    lk_close(&k);
    small_blocks();
    return json_close();
}
