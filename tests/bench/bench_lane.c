/* bench_lane.c - host time of stream-ordered memory on the host backend: AllocAsync+FreeAsync as a
 * pair and at random, beside malloc and the heap's own calls; lanes of small blocks against what
 * they use; a graph with and without blocks. Figures, never a verdict.
 *
 *   bench_lane [--json FILE] */
#include "graph_kit.h"
#include "lane_kit.h"
#include "bench_kit.h"
#include "base/wait.h"

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
            symmLaneAlloc(k->lane[0], bytes, flags, &p);
            symmLaneFree(k->lane[0], p);
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
            symmHeapAlloc(k->heap, bytes, 0, SYMM_ALLOC_LOCAL, &p);
            symmHeapFree(k->heap, p);
        }
        ns = best(ns, per(at, PAIRS));
    }
    show_pair("symmHeapAlloc + symmHeapFree, LOCAL", bytes, ns);
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
        t_roll(&seed);
        const unsigned n = (seed >> 40) % LIVE;
        if (live[n]) symmLaneFree(k->lane[0], live[n]);
        now -= bytes[n];
        bytes[n] = 1 + (seed >> 20) % 65536;
        now += bytes[n];
        if (used < now) used = now;
        if (symmLaneAlloc(k->lane[0], bytes[n], flags, &live[n])) abort();
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
    symmMemPlan_t plan = NULL;
    double ns = 0;
    T_OK(symmStreamBeginCapture(k->stream[0]));
    for (int i = 0; i < 8; i++) {
        char *p = blocks ? lk_local(k->lane[0], 4096) : NULL;
        T_OK(symm_stream_submit(k->stream[0], nothing, NULL, 0));
        if (p) lk_free(k->lane[0], p);
    }
    symmGraph_t g = lk_end(k->stream[0]);
    const symmGraphExec_t exec = xg_exec(g);
    if (by_plan) plan = lk_bind(k->lane[0], g, 0);
    for (int t = 0; t < 50; t++) {
        enum { MANY = 2000 };
        uint64_t at = symm_now_ns();
        for (int i = 0; i < MANY; i++)
            if (plan)
                symmMemPlanLaunch(plan, exec, NULL);
            else
                symmGraphLaunch(exec, NULL);
        ns = best(ns, per(at, MANY));
    }
    const char *name = !blocks   ? "graph of 8 calls, without blocks"
                       : by_plan ? "graph of 8 calls, 8 blocks, symmMemPlanLaunch"
                                 : "graph of 8 calls, 8 blocks, symmGraphLaunch";
    printf("%-44s %23.1f ns a replay\n", name, ns);
    row(name, "replay", "\"replay_ns\": %.1f", ns);
    T_OK(xg_destroy(g));
    if (plan) T_OK(symmMemPlanDestroy(plan));
}

/* memory.md's case of many streams with small blocks; over the bytes that were asked for, and over
 * those as lanes round them. */
static void small_blocks(uint64_t most, int per) {
    enum { MOST = 512 };
    static struct {
        void *at;
        uint64_t bytes;
    } b[LK_LANES][MOST];
    lk k;
    char what[64];
    uint64_t seed = 11, asked = 0, live = 0;
    memset(b, 0, sizeof b);
    lk_alone(&k, LK_LANES);
    for (int round = 0; round < 30; round++)
        for (int i = 0; i < per; i++)
            for (int l = 0; l < LK_LANES; l++) {
                t_roll(&seed);
                if (b[l][i].at && (seed >> 60) < 12) {
                    lk_free(k.lane[l], b[l][i].at);
                    asked -= b[l][i].bytes;
                    b[l][i].at = NULL;
                }
                if (b[l][i].at) continue;
                b[l][i].bytes = 1 + (seed >> 33) % most;
                b[l][i].at = lk_local(k.lane[l], b[l][i].bytes);
                asked += b[l][i].bytes;
            }
    for (int l = 0; l < LK_LANES; l++) live += lk_info(k.lane[l]).localLive;
    const double held = (double)lk_info(k.lane[0]).localReserved;
    printf("64 lanes of 1 to %5llu bytes: %5.1f MiB asked for, %.2f of it reserved, %.2f of it "
           "rounded\n",
           (unsigned long long)most, (double)asked / (double)LK_MB, held / (double)asked,
           held / (double)live);
    snprintf(what, sizeof what, "64 lanes of 1 to %llu bytes", (unsigned long long)most);
    row(what, "lanes",
        "\"asked_bytes\": %llu, \"held_over_asked\": %.4f, \"held_over_rounded\": %.4f",
        (unsigned long long)asked, held / (double)asked, held / (double)live);
    for (int l = 0; l < LK_LANES; l++)
        for (int i = 0; i < per; i++) lk_free(k.lane[l], b[l][i].at);
    lk_close(&k);
}

int main(int argc, char **argv) {
    lk k;
    if (argc == 3 && !strcmp(argv[1], "--json")) json_open(argv[2]);
    lk_alone(&k, 1);
    for (size_t bytes = 512; bytes <= 1 << 20; bytes *= 2048) {
        pairs(&k, "symmLaneAlloc + symmLaneFree, LOCAL", bytes, SYMM_ALLOC_LOCAL);
        pairs(&k, "symmLaneAlloc + symmLaneFree, SYM, 1 rank", bytes, SYMM_ALLOC_SYM);
        heap_pairs(&k, bytes);
        malloc_pairs(bytes);
    }
    at_random(&k, SYMM_ALLOC_LOCAL, "at random, 200 live, LOCAL");
    at_random(&k, SYMM_ALLOC_SYM, "at random, 200 live, SYM, 1 rank");
    launches(&k, 0, 0);
    launches(&k, 1, 0);
    launches(&k, 1, 1);
    lk_close(&k);
    for (uint64_t most = 1024; most <= 16384; most *= 4)
        small_blocks(most, (int)(512 * 1024 / most));
    return json_close();
}
