/* thr_uneven.c - the collectives with a count per rank, with thread ranks: who has nothing, arrays
 * that change behind the call (on streams, in captures, in groups), the order of memory inside a
 * call, and ranks whose counts differ. thr_matrix draws counts; ThreadSanitizer judges the order,
 * and tests/check/check_mutants.sh takes out each release and wait. One thread per rank, or one for
 * all; no lock: the library orders everything. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll_expect.h"

enum { RANKS = 3, ROUNDS = 12, MOST = 90001, CALLS = 40, AGAIN = 30 };
enum { NOBODY, ALL, ALL_BUT_0, PLACES };

typedef struct {
    symmColl_t coll;
    int where, direct; /* who has registered; SYMM_DIRECT */
    coll_counts v[2];  /* of even and odd rounds */
    symmComm_t comms[RANKS];
} plan;

static int32_t value(int rank, int round, size_t i) {
    return (int32_t)((uint32_t)rank * 1000003u + (uint32_t)round * 8191u + (uint32_t)i * 31u);
}

static int32_t wanted(const plan *p, int rank, int part, int round, size_t i) {
    const symm_call call = {.coll = p->coll, .type = symmInt, .esize = 4};
    const coll_origin o = coll_expect_v(&call, &p->v[round % 2], rank, part);
    uint32_t sum = 0;
    if (o.from != EVERY_RANK) return value(o.from, round, i + o.at);
    for (int r = 0; r < RANKS; r++) sum += (uint32_t)value(r, round, i + o.at);
    return (int32_t)sum;
}

static symmResult_t call(const plan *p, int rank, int round, const int32_t *in, int32_t *out,
                         symmStream_t stream) {
    return symm_test_call_v(p->coll, in, out, 0, &p->v[round % 2], rank, symmInt, symmSum, 0,
                            p->comms[rank], stream);
}

static void check(const plan *p, int rank, int round, const int32_t *out) {
    const coll_counts *v = &p->v[round % 2];
    const int parts = symm_colls[p->coll].out == SYMM_VARIES ? RANKS : 1;
    for (int q = 0; q < parts; q++) {
        const size_t n = coll_part(p->coll, v, 1, rank, parts > 1 ? q : rank);
        const int32_t *at = out + coll_place(p->coll, v, 1, rank, q);
        for (size_t i = 0; i < n; i++)
            T_CHECKF(at[i] == wanted(p, rank, q, round, i),
                     "%s, round %d, rank %d, part %d, element %zu of %zu: %d, not %d",
                     symm_coll_name(p->coll), round, rank, q, i, n, at[i],
                     wanted(p, rank, q, round, i));
    }
}

static void rounds(const plan *p, int rank, int32_t *in, int32_t *out) {
    for (int round = 0; round < ROUNDS; round++) {
        const coll_counts *v = &p->v[round % 2];
        const size_t n = coll_place(p->coll, v, 0, rank, RANKS),
                     m = coll_place(p->coll, v, 1, rank, RANKS);
        memset(out, 0xcc, m * sizeof *out); /* nobody touches it before the call, or after it */
        for (size_t i = 0; i < n; i++) in[i] = value(rank, round, i);
        T_OK(call(p, rank, round, in, out, NULL));
        check(p, rank, round, out);
    }
}

static void run_rank(int rank, int n, void *arg) {
    const plan *p = arg;
    const size_t bytes = (size_t)n * (MOST + 2) * sizeof(int32_t);
    const int mine = p->where == ALL || (p->where == ALL_BUT_0 && rank);
    symmWindow_t win[2];
    int32_t *buf[2];
    for (int i = 0; i < 2; i++) {
        T_OK(symmMemAlloc((void **)&buf[i], bytes));
        if (p->where != NOBODY)
            T_OK(symmWindowRegister(p->comms[rank], mine ? buf[i] : NULL, mine ? bytes : 0, &win[i],
                                    SYMM_WIN_DEFAULT));
    }
    rounds(p, rank, buf[0], buf[1]);
    for (int i = 0; i < 2 && p->where != NOBODY; i++)
        T_OK(symmWindowDeregister(p->comms[rank], win[i]));
    /* Thread ranks have one mapping for all, so it stays until all are done. */
    T_OK(symmBarrier(p->comms[rank], NULL));
    for (int i = 0; i < 2; i++) T_OK(symmMemFree(buf[i]));
}

static void with_ranks(plan *p, t_rank_fn fn) {
    setenv("SYMM_SCRATCH", "1M", 1); /* small chunks: a staged part has several */
    setenv("SYMM_DIRECT", p->direct ? "2" : "0", 1);
    T_OK(symmCommInitAll(p->comms, RANKS, NULL));
    T_THREADS(RANKS, fn, p);
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(p->comms[r]));
}

/* Every collective with a count per rank, and every place of its buffers; what is in no window is
 * staged, or used where it is. */
static void everywhere(coll_counts even, coll_counts odd) {
    for (int c = 0; c < symmNumColls; c++)
        for (int i = 0; i < 2 * PLACES && symm_coll_varies(&symm_colls[c]); i++) {
            plan p = {.coll = (symmColl_t)c, .where = i / 2, .direct = i % 2, .v = {even, odd}};
            with_ranks(&p, run_rank);
        }
}

static coll_counts drawn(uint64_t seed, uint64_t most, int layout) {
    return (coll_counts){.n = RANKS, .layout = layout, .seed = seed, .most = most};
}

static void packets(void) {
    everywhere(drawn(3, 900, 0), drawn(4, 30, 2));
}
static void parts_of_windows_or_staging(void) {
    everywhere(drawn(5, MOST, 1), drawn(0, MOST, 0));
}
static void small_beside_large(void) {
    everywhere(drawn(6, 3000, 2), drawn(7, MOST, 0));
}
static void several_ctas(void) {
    setenv("SYMM_CTAS", "3", 1);
    everywhere(drawn(8, MOST / 2, 1), drawn(9, 2000, 0));
}
static void nothing_at_all(void) {
    everywhere(drawn(0, 0, 0), drawn(0, 0, 2));
}

/* ---- one rank has something ------------------------------------------------------------------ */

/* Rank `who` sends everybody 5000 elements; the others send and receive nothing else, and have no
 * buffers but for what comes. */
static void lone_rank(int rank, int n, void *arg) {
    const plan *p = arg;
    const size_t some = 5000;
    for (int who = 0; who < n; who++) {
        size_t to[RANKS] = {0}, from[RANKS] = {0};
        int32_t *in = rank == who ? malloc((size_t)n * some * 4) : NULL, *out = malloc(some * 4);
        for (int q = 0; q < n && rank == who; q++) to[q] = some;
        from[who] = some;
        for (size_t i = 0; rank == who && i < (size_t)n * some; i++) in[i] = value(who, 0, i);
        T_OK(symmAlltoAllv(in, to, NULL, out, from, NULL, symmInt, p->comms[rank], NULL));
        for (size_t i = 0; i < some; i++) T_EQ(out[i], value(who, 0, i + (size_t)rank * some));
        /* A rank that neither sends nor receives. */
        memset(to, 0, sizeof to);
        memset(from, 0, sizeof from);
        T_OK(symmAlltoAllv(NULL, to, NULL, NULL, from, NULL, symmInt, p->comms[rank], NULL));
        from[who] = some;
        T_OK(symmAllGatherv(in, rank == who ? some : 0, out, from, NULL, symmInt, p->comms[rank],
                            NULL));
        for (size_t i = 0; i < some; i++) T_EQ(out[i], value(who, 0, i));
        free(in);
        free(out);
    }
}

static void one_rank_sends(void) {
    plan p = {.coll = symmCollAlltoAllv};
    with_ranks(&p, lone_rank);
}

/* ---- arrays that change behind the call ------------------------------------------------------ */

typedef struct {
    size_t to[RANKS], from[RANKS], sat[RANKS], rat[RANKS];
} arrays;

/* Call i of rank: i + 1 + from + to elements, the parts the other way round. */
static void set_arrays(arrays *a, int rank, int i) {
    size_t s = 0, r = 0;
    for (int p = RANKS - 1; p >= 0; p--) {
        a->sat[p] = s, a->rat[p] = r;
        s += a->to[p] = (size_t)(i + 1 + 2 * rank + p);
        r += a->from[p] = (size_t)(i + 1 + 2 * p + rank);
    }
}
enum { CALL_ROOM = RANKS * (CALLS + 4 * RANKS) };

static void give_call(symmComm_t comm, int rank, int i, const int32_t *in, int32_t *out,
                      symmStream_t stream) {
    arrays a;
    set_arrays(&a, rank, i);
    T_OK(symmAlltoAllv(in, a.to, a.sat, out + i * CALL_ROOM, a.from, a.rat, symmInt, comm, stream));
    memset(&a, 0x7f, sizeof a); /* the call has copied them */
}

static void check_call(int rank, int i, int round, int32_t *out) {
    arrays mine, theirs;
    set_arrays(&mine, rank, i);
    for (int p = 0; p < RANKS; p++) {
        set_arrays(&theirs, p, i);
        for (size_t e = 0; e < mine.from[p]; e++)
            T_EQ(out[i * CALL_ROOM + (int)(mine.rat[p] + e)],
                 value(p, round, theirs.sat[rank] + e));
    }
    memset(out + i * CALL_ROOM, 0xcc, CALL_ROOM * sizeof *out);
}

static void stream_rank(int rank, int n, void *arg) {
    const plan *p = arg;
    symmStream_t stream;
    symmGraph_t graph;
    symmGraphExec_t exec;
    int32_t *in = malloc(CALL_ROOM * 4), *out = calloc(CALLS, CALL_ROOM * 4);
    T_CHECK(in && out && n == RANKS);
    T_OK(symmStreamCreate(&stream));
    for (int round = 0; round < 4; round++) { /* blocks come back while calls are made */
        for (int e = 0; e < CALL_ROOM; e++) in[e] = value(rank, round, (size_t)e);
        for (int i = 0; i < AGAIN * CALLS; i++)
            give_call(p->comms[rank], rank, i % CALLS, in, out, stream);
        T_OK(symmStreamSynchronize(stream));
        for (int i = 0; i < CALLS; i++) check_call(rank, i, round, out);
    }
    T_OK(symmStreamBeginCapture(stream));
    for (int i = 0; i < CALLS; i++) give_call(p->comms[rank], rank, i, in, out, stream);
    T_OK(symmStreamEndCapture(stream, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    T_OK(symmGraphDestroy(graph));
    for (int round = 0; round < 3; round++) {
        for (int e = 0; e < CALL_ROOM; e++) in[e] = value(rank, round, (size_t)e);
        T_OK(symmGraphLaunch(exec, stream));
        T_OK(symmStreamSynchronize(stream));
        for (int i = 0; i < CALLS; i++) check_call(rank, i, round, out);
    }
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmStreamDestroy(stream));
    free(in);
    free(out);
}

static void streams_and_replays_have_their_own(void) {
    plan p = {.coll = symmCollAlltoAllv};
    with_ranks(&p, stream_rank);
}

/* One thread calls all ranks, two calls each, in a group. */
static void groups_have_their_own(void) {
    static int32_t in[RANKS][CALL_ROOM], out[RANKS][2 * CALL_ROOM];
    symmComm_t comms[RANKS];
    T_OK(symmCommInitAll(comms, RANKS, NULL));
    for (int round = 0; round < 5; round++) {
        T_OK(symmGroupStart());
        for (int rank = 0; rank < RANKS; rank++) {
            for (int e = 0; e < CALL_ROOM; e++) in[rank][e] = value(rank, round, (size_t)e);
            for (int i = 0; i < 2; i++) give_call(comms[rank], rank, i, in[rank], out[rank], NULL);
        }
        T_OK(symmGroupEnd());
        for (int rank = 0; rank < RANKS; rank++)
            for (int i = 0; i < 2; i++) check_call(rank, i, round, out[rank]);
    }
    for (int rank = 0; rank < RANKS; rank++) T_OK(symmCommDestroy(comms[rank]));
}

/* ---- ranks that disagree --------------------------------------------------------------------- */

enum { FILL = 0x5a5a5a5a };
typedef struct {
    size_t sends, expects; /* rank 1 to rank 2 */
    int registered;
} quarrel;
typedef struct {
    plan p;
    quarrel q;
} dispute;

/* Nobody's memory is written outside what it expects, and the two ranks say who sends how much. */
static void quarrel_rank(int rank, int n, void *arg) {
    const dispute *d = arg;
    const size_t room = 60000;
    size_t counts[2][RANKS], at[RANKS];
    int32_t *buf[2];
    char said[96];
    symmWindow_t win;
    for (int i = 0; i < 2; i++) {
        T_OK(symmMemAlloc((void **)&buf[i], (size_t)n * room * 4));
        if (d->q.registered)
            T_OK(symmWindowRegister(d->p.comms[rank], buf[i], (size_t)n * room * 4, &win, 0));
        for (size_t e = 0; e < (size_t)n * room; e++) buf[i][e] = FILL;
    }
    for (int p = 0; p < n; p++) counts[0][p] = counts[1][p] = 700, at[p] = (size_t)p * room;
    if (rank == 1) counts[0][2] = d->q.sends;
    if (rank == 2) counts[1][1] = d->q.expects;
    symmResult_t r = symmAlltoAllv(buf[0], counts[0], at, buf[1], counts[1], at, symmInt,
                                   d->p.comms[rank], NULL);
    T_CHECKF(r == symmMismatch || (rank == 0 && r == symmSuccess), "rank %d: %d", rank, r);
    T_ERR(symmBarrier(d->p.comms[rank], NULL), symmMismatch);
    snprintf(said, sizeof said, "rank 1 sends %zu elements to rank 2, which expects %zu",
             d->q.sends, d->q.expects);
    T_MSG(symmGetLastError(d->p.comms[rank]), said);
    for (int p = 0; p < n; p++)
        for (size_t e = counts[1][p]; e < room; e++) T_EQ(buf[1][at[p] + e], FILL);
    T_OK(symmCommDestroy(d->p.comms[rank]));
    for (int i = 0; i < 2; i++) T_OK(symmMemFree(buf[i]));
}

static void counts_that_differ(void) {
    static const quarrel all[] = {{0, 1, 0},     {1, 0, 0},     {10, 12, 0},      {12, 10, 1},
                                  {50000, 7, 0}, {7, 50000, 1}, {50000, 0, 1},    {0, 50000, 0},
                                  {700, 701, 1}, {701, 700, 0}, {50000, 49999, 1}};
    T_EXPECT_WARNINGS();
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        dispute d = {.q = all[i]};
        T_OK(symmCommInitAll(d.p.comms, RANKS, NULL));
        T_THREADS(RANKS, quarrel_rank, &d);
    }
}

/* The arrays of reduce_scatterv and all_gatherv differ in one rank. */
static void other_rank(int rank, int n, void *arg) {
    const dispute *d = arg;
    size_t counts[RANKS] = {100, 200, 300};
    int32_t *in = calloc(1000, 4), *out = calloc(1000, 4);
    if (rank == 0) counts[2]++;
    symmResult_t r =
        d->p.coll == symmCollAllGatherv
            ? symmAllGatherv(in, 100u * (unsigned)(rank + 1), out, counts, NULL, symmInt,
                             d->p.comms[rank], NULL)
            : symmReduceScatterv(in, out, counts, symmInt, symmSum, d->p.comms[rank], NULL);
    T_CHECKF(r == symmMismatch || (rank == 1 && r == symmSuccess), "rank %d: %d", rank, r);
    T_ERR(symmBarrier(d->p.comms[rank], NULL), symmMismatch);
    T_MSG(symmGetLastError(d->p.comms[rank]), d->p.coll == symmCollAllGatherv
                                                  ? "rank 2 sends 300 elements to rank 0, which "
                                                    "expects 301"
                                                  : "rank 0 sends 301 elements to rank 2, which "
                                                    "expects 300");
    T_OK(symmCommDestroy(d->p.comms[rank]));
    free(in);
    free(out);
    (void)n;
}

static void arrays_that_differ(void) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 2; i++) {
        dispute d = {.p.coll = i ? symmCollAllGatherv : symmCollReduceScatterv};
        T_OK(symmCommInitAll(d.p.comms, RANKS, NULL));
        T_THREADS(RANKS, other_rank, &d);
    }
}

T_MAIN(T(packets), T(parts_of_windows_or_staging), T(small_beside_large), T(several_ctas),
       T(nothing_at_all), T(one_rank_sends), T(streams_and_replays_have_their_own),
       T(groups_have_their_own), T(counts_that_differ), T(arrays_that_differ))
