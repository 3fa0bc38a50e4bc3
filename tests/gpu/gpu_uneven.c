/* gpu_uneven.c - alltoallv on GPUs, where gpu_matrix does not look: arrays that change behind the
 * call (eager, captured, in a group), one pair of ranks with nearly everything, and counts that
 * differ: both ranks are told in that call, and nobody writes outside. Ranks are threads, each with
 * its own stream. */
#include "gpu_cases.h"

enum { CALLS = 6, MOST_RANKS = 8, BIG = (2 << 20) + 3, SPARE = 64, FILL = 0x5a5a5a5a };
enum { ALL, NONE, ODD_NOT, PLACES }; /* whose buffers are in windows */
enum { MIXED, ONE_PAIR };            /* which counts */

typedef struct {
    gk_job *j;
    int rank, n, kind;
    symmComm_t comm;
    cu_stream stream;
    size_t room;                   /* elements of a call's buffer */
    int32_t *in, *out;             /* the device's; out: of all calls */
    int32_t *given, *want, *found; /* pinned: what goes in, what must come out, and what does */
} rig;
typedef struct {
    size_t to[MOST_RANKS], from[MOST_RANKS], sat[MOST_RANKS], rat[MOST_RANKS];
} arrays;

static int32_t value(int rank, int round, size_t i) {
    return (int32_t)((uint32_t)rank * 1000003u + (uint32_t)round * 8191u + (uint32_t)i * 31u);
}

/* Elements of call i: none, some in packets, some in pieces; or nearly all between two ranks. */
static size_t elements(const rig *g, int i, int from, int to) {
    static const size_t scale[] = {1, 300, 3000};
    if (g->kind == ONE_PAIR) return from == 0 && to == g->n - 1 ? BIG : (size_t)(from + to) % 3;
    return (size_t)((i * 7 + from * 3 + to * 5) % 11) * scale[i % 3];
}
static size_t most_elements(int kind, int n) {
    return kind == ONE_PAIR ? BIG + 3 * (size_t)n + SPARE : 30001 * (size_t)n + SPARE;
}

/* One part behind the other, from the last rank's on, with an element between them. */
static void set_arrays(const rig *g, arrays *a, int rank, int i) {
    size_t s = 0, r = 0;
    for (int p = g->n - 1; p >= 0; p--) {
        a->sat[p] = s, a->rat[p] = r;
        s += (a->to[p] = elements(g, i, rank, p)) + 1;
        r += (a->from[p] = elements(g, i, p, rank)) + 1;
    }
    T_CHECK(s <= g->room && r <= g->room);
}

static void issue(const rig *g, int i) {
    arrays a;
    set_arrays(g, &a, g->rank, i);
    T_OK(symmAlltoAllv(g->in, a.to, a.sat, g->out + (size_t)i * g->room, a.from, a.rat, symmInt32,
                       g->comm, gk_stream(g->stream)));
    memset(&a, 0x7f, sizeof a); /* the call has copied them */
}

static rig set_up(gk_job *j, int rank, int kind, int calls) {
    rig g = {.j = j, .rank = rank, .n = j->n, .kind = kind, .comm = j->comms[rank]};
    T_OK(symmSetDevice(rank % j->devices));
    g.stream = gk_new_stream();
    g.room = most_elements(kind, j->n);
    const size_t bytes = g.room * sizeof(int32_t), all = bytes * (size_t)calls;
    T_OK(symmMemAlloc((void **)&g.in, bytes));
    T_OK(symmMemAlloc((void **)&g.out, all));
    g.given = (int32_t *)(void *)gk_pinned(bytes);
    g.want = (int32_t *)(void *)gk_pinned(all);
    g.found = (int32_t *)(void *)gk_pinned(all);
    gk_meet(j);
    if (j->how != NONE)
        for (int i = 0; i < 2; i++) {
            const int mine = j->how == ALL || rank % 2 == 0;
            symmWindow_t win;
            T_OK(symmWindowRegister(g.comm,
                                    !mine ? NULL
                                    : i   ? g.out
                                          : g.in,
                                    !mine ? 0
                                    : i   ? all
                                          : bytes,
                                    &win, SYMM_WIN_DEFAULT));
        }
    gk_meet(j);
    return g;
}
static void tear_down(rig *g) {
    gk_meet(g->j);
    T_OK(symmCommDestroy(g->comm));
    gk_meet(g->j);
    T_OK(symmMemFree(g->in));
    T_OK(symmMemFree(g->out));
    gk_free_pinned((char *)g->given);
    gk_free_pinned((char *)g->want);
    gk_free_pinned((char *)g->found);
    CU(cuStreamDestroy(g->stream));
}

/* New data; what must come of `calls` of them. */
static void begin_round(const rig *g, int round, int calls) {
    for (size_t e = 0; e < g->room; e++) g->given[e] = value(g->rank, round, e);
    gk_put(g->stream, g->in, g->given, g->room * sizeof(int32_t));
    gk_fill(g->stream, g->out, (size_t)calls * g->room * sizeof(int32_t), FILL & 255);
    for (size_t e = 0; e < (size_t)calls * g->room; e++) g->want[e] = FILL;
    for (int i = 0; i < calls; i++)
        for (int p = 0; p < g->n; p++) {
            arrays mine, theirs;
            set_arrays(g, &mine, g->rank, i);
            set_arrays(g, &theirs, p, i);
            for (size_t e = 0; e < mine.from[p]; e++)
                g->want[(size_t)i * g->room + mine.rat[p] + e] =
                    value(p, round, theirs.sat[g->rank] + e);
        }
    gk_wait(g->comm, g->stream);
    gk_meet(g->j);
}
static void end_round(const rig *g, const char *what, int calls) {
    const size_t all = (size_t)calls * g->room;
    gk_get(g->comm, g->stream, g->found, g->out, all * sizeof(int32_t));
    for (size_t e = 0; e < all; e++)
        T_CHECKF(g->found[e] == g->want[e],
                 "%s, %d ranks, place %d: element %zu of call %zu: %d, "
                 "not %d",
                 what, g->n, g->j->how, e % g->room, e / g->room, g->found[e], g->want[e]);
    gk_meet(g->j);
}

static void rounds(const rig *g, int calls) {
    int round = 0;
    for (; round < 2; round++) {
        begin_round(g, round, calls);
        for (int i = 0; i < calls; i++) issue(g, i);
        end_round(g, "eager", calls);
    }
    begin_round(g, round, calls);
    T_OK(symmGroupStart());
    for (int i = 0; i < calls; i++) issue(g, i);
    T_OK(symmGroupEnd());
    end_round(g, "in a group", calls);
    gk_capture(g->stream, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
    for (int i = 0; i < calls; i++) issue(g, i);
    gk_graph graph = gk_captured(g->stream);
    gk_meet(g->j);
    for (round = 3; round < 6; round++) {
        begin_round(g, round, calls);
        CU(cuGraphLaunch(graph.exec, g->stream));
        end_round(g, "replayed", calls);
    }
    gk_drop(&graph);
}

static void mixed_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, MIXED, CALLS);
    (void)n;
    rounds(&g, CALLS);
    tear_down(&g);
}
static void one_pair_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, ONE_PAIR, 1);
    (void)n;
    rounds(&g, 1);
    tear_down(&g);
}

static void everywhere(t_rank_fn fn) {
    static const int ranks[] = {2, 3, MOST_RANKS};
    for (int i = 0; i < 3 * PLACES; i++) {
        gk_job j = {.n = ranks[i / PLACES], .devices = gk_begin(), .how = i % PLACES};
        gk_run(&j, fn);
    }
    gc_settle();
}
static void calls_have_their_own_counts(void) {
    everywhere(mixed_rank);
}
static void one_pair_has_nearly_everything(void) {
    everywhere(one_pair_rank);
}

/* ---- counts that differ ---------------------------------------------------------------------- */

enum { QUARREL_ROOM = 60000 };
static const struct {
    size_t sends, expects; /* rank 1 to rank 0 */
} quarrels[] = {{0, 1}, {12, 10}, {7, 50000}, {50000, 0}, {50000, 49999}};

static void told(const rig *g, size_t sends, size_t expects) {
    symmResult_t async = symmSuccess;
    char said[96];
    const uint64_t since = symm_now_ns();
    gk_cu(gk_wait_code(g->comm, g->stream), "the stream after a kernel left", __FILE__, __LINE__);
    while (!async && gk_ms_since(since) < 1000) T_OK(symmCommGetAsyncError(g->comm, &async));
    T_EQ(async, symmMismatch);
    snprintf(said, sizeof said, "rank 1 sends %zu elements to rank 0, which expects %zu", sends,
             expects);
    T_MSG(symmGetLastError(g->comm), said);
}

static void quarrel_rank(int rank, int n, void *arg) {
    rig g = set_up(arg, rank, MIXED, 1);
    const int q = g.j->cases;
    size_t counts[2][MOST_RANKS], at[MOST_RANKS];
    T_CHECK(g.room >= QUARREL_ROOM);
    for (int p = 0; p < n; p++)
        counts[0][p] = counts[1][p] = 700, at[p] = (size_t)p * (g.room / (unsigned)n);
    if (rank == 1) counts[0][0] = quarrels[q].sends;
    if (rank == 0) counts[1][1] = quarrels[q].expects, at[1] = 1000, at[0] = 0;
    gk_fill(g.stream, g.out, g.room * sizeof(int32_t), FILL & 255);
    gk_wait(g.comm, g.stream);
    gk_meet(g.j);
    symmResult_t r = symmAlltoAllv(g.in, counts[0], at, g.out, counts[1], at, symmInt32, g.comm,
                                   gk_stream(g.stream));
    T_CHECK(r == symmSuccess || r == symmMismatch);
    told(&g, quarrels[q].sends, quarrels[q].expects);
    gk_meet(g.j); /* all kernels have left */
    CU(cuMemcpyDtoHAsync(g.found, (uintptr_t)g.out, g.room * sizeof(int32_t), g.stream));
    CU(cuStreamSynchronize(g.stream));
    for (size_t e = 0; e < g.room; e++) {
        int inside = 0;
        for (int p = 0; p < n; p++) inside |= e - at[p] < counts[1][p];
        T_CHECKF(inside || g.found[e] == FILL, "element %zu was written: %d", e, g.found[e]);
    }
    tear_down(&g);
}

static void counts_that_differ_are_told(void) {
    T_EXPECT_WARNINGS();
    for (unsigned i = 0; i < 2 * sizeof quarrels / sizeof *quarrels; i++) {
        gk_job j = {.n = i % 2 ? 3 : 2, .devices = gk_begin(), .how = i % 2 ? ALL : NONE};
        j.cases = (int)i / 2;
        gk_run(&j, quarrel_rank);
    }
}

T_MAIN(T(calls_have_their_own_counts), T(one_pair_has_nearly_everything),
       T(counts_that_differ_are_told))
