/* thr_p2p_model.c - the model test of sends and receives: random schedules over random subsets of
 * thread ranks, in groups and out of them, on the NULL stream and on streams that change, eager,
 * captured and replayed, beside collectives. What every rank must find is known from the schedule
 * alone, and every schedule ends. Each rank is a thread; no lock.
 *
 * A step is a list of messages that all ranks draw alike. Without a group each rank makes its calls
 * in the order of the list: the first message that has not ended is the next one of both its ranks,
 * so none can wait for ever. In a group each rank writes its calls down in an order of its own,
 * which keeps only that of each pair. */
#include <pthread.h>
#include <stdio.h>

#include "coll_data.h"
#include "p2p_kit.h"

enum { MOST = 6, MESSAGES = 14, STEPS = 6, HALF = 12 << 20, SLOW = T_TSAN || T_ASAN };

typedef struct {
    int from, to;
    uint64_t bytes, at, no; /* at: in both ranks' halves */
} message;

typedef struct {
    message m[MESSAGES];
    int n, grouped, repeats, sums; /* sums: a collective of all ranks stands in it */
    uint64_t seed;
} step;

typedef struct {
    symmComm_t comms[MOST];
    uint64_t seed;
    int schedules;
} job;

/* Mostly small; `room` is left in the halves. */
static uint64_t draw_bytes(uint64_t *s, uint64_t room) {
    static const uint64_t below[] = {64, 64, 64, 9000, 9000, 70000, 300000, 3000000};
    uint64_t bytes = t_draw(s, below[t_draw(s, SLOW ? 7 : 8)]);
    if (t_draw(s, 8) == 0) bytes = 0;
    return bytes > room ? room : bytes;
}

static void draw_step(step *st, uint64_t seed, int n) {
    uint64_t s = seed, at = 256, subset;
    *st = (step){.seed = seed, .n = 1 + (int)t_draw(&s, MESSAGES)};
    st->grouped = t_draw(&s, 3) > 0;
    st->repeats = 1 + (int)t_draw(&s, 3);
    st->sums = t_draw(&s, 4) == 0;
    do subset = t_draw(&s, 1u << n);
    while (!subset);
    for (int i = 0; i < st->n; i++) {
        message *m = &st->m[i];
        do m->from = (int)t_draw(&s, (unsigned)n);
        while (!(subset >> m->from & 1));
        do m->to = (int)t_draw(&s, (unsigned)n);
        while (!(subset >> m->to & 1));
        m->bytes = draw_bytes(&s, (HALF - 65536 - at) / (MESSAGES - (unsigned)i));
        /* Its receive comes behind it. */
        if (!st->grouped && m->from == m->to && m->bytes > 8000) m->bytes = 8000;
        m->at = at + t_draw(&s, 64);
        m->no = ck_hash(seed, (uint64_t)i, 1) & 0xffff;
        at += (m->bytes + 64 + 2 * PK_GUARD + 63) / 64 * 64;
    }
}

/* ---- one rank -------------------------------------------------------------------------------- */

typedef struct {
    pk_world in, out; /* halves for receives, for sends */
    symmStream_t streams[3];
    int32_t sum[256];
    uint64_t rolls; /* its own choices */
} rank;

static char *place(const rank *r, const message *m, int sends) {
    const uint64_t h = ck_hash(m->no, (uint64_t)r->in.rank, (uint64_t)sends);
    return pk_half(sends ? &r->out : &r->in, h >> 20 & 1) + m->at + (sends ? 0 : h % 3);
}

static void prepare(rank *r, const step *st) {
    for (int i = 0; i < st->n; i++) {
        const message *m = &st->m[i];
        if (m->from == r->in.rank) pk_fill(place(r, m, 1), m->bytes, m->from, m->to, m->no);
        if (m->to == r->in.rank) pk_empty(place(r, m, 0), m->bytes);
    }
    for (int i = 0; i < 128; i++) r->sum[i] = r->in.rank * 1000 + i, r->sum[128 + i] = -1;
}

static void check(const rank *r, const step *st) {
    const int n = r->in.n;
    for (int i = 0; i < st->n; i++) {
        const message *m = &st->m[i];
        if (m->to == r->in.rank) pk_received(place(r, m, 0), m->bytes, m->from, m->to, m->no);
    }
    for (int i = 0; st->sums && i < 128; i++) T_EQ(r->sum[128 + i], n * (n - 1) / 2 * 1000 + n * i);
}

static void add_up(rank *r, symmStream_t s) {
    T_OK(symmAllReduce(r->sum, r->sum + 128, 128, symmInt, symmSum, r->in.comm, s));
}

static void call_one(rank *r, const message *m, int sends, symmStream_t s) {
    if (sends)
        pk_send(r->in.comm, place(r, m, 1), m->bytes, m->to, s);
    else
        pk_recv(r->in.comm, place(r, m, 0), m->bytes, m->from, s);
}

/* In the order of the list. */
static void call_all(rank *r, const step *st, symmStream_t s) {
    for (int i = 0; i < st->n; i++) {
        if (st->m[i].from == r->in.rank) call_one(r, &st->m[i], 1, s);
        if (st->m[i].to == r->in.rank) call_one(r, &st->m[i], 0, s);
    }
    if (st->sums) add_up(r, s);
}

/* The same call of an earlier message of this pair is still to come. */
static int must_wait(const step *st, const char *called, int i, int sends) {
    for (int k = 0; k < i; k++)
        if (st->m[k].from == st->m[i].from && st->m[k].to == st->m[i].to && !called[2 * k + sends])
            return 1;
    return 0;
}

/* In any order that keeps the pairs'. */
static void call_group(rank *r, const step *st, symmStream_t s) {
    char called[2 * MESSAGES] = {0};
    int left = 0, sums = st->sums;
    for (int i = 0; i < st->n; i++)
        left += (st->m[i].from == r->in.rank) + (st->m[i].to == r->in.rank);
    T_OK(symmGroupStart());
    while (left || sums) {
        const int pick = (int)t_draw(&r->rolls, 2 * (unsigned)st->n + 1), i = pick / 2,
                  sends = pick & 1;
        if (i == st->n || !left) {
            if (sums) add_up(r, s);
            sums = 0;
            continue;
        }
        if ((sends ? st->m[i].from : st->m[i].to) != r->in.rank || called[pick] ||
            must_wait(st, called, i, sends))
            continue;
        call_one(r, &st->m[i], sends, s);
        called[pick] = 1;
        left--;
    }
    T_OK(symmGroupEnd());
}

static void call_step(rank *r, const step *st, symmStream_t s) {
    if (st->grouped)
        call_group(r, st, s);
    else
        call_all(r, st, s);
}

static void replay(rank *r, const step *st, symmStream_t s) {
    symmGraph_t graph;
    symmGraphExec_t exec;
    T_OK(symmStreamBeginCapture(s));
    call_step(r, st, s);
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    for (int i = 0; i < st->repeats; i++) T_OK(symmGraphLaunch(exec, s));
    T_OK(symmStreamSynchronize(s));
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
}

/* How a rank makes its calls is its own affair. */
static void run_step(rank *r, const step *st) {
    const uint64_t how = t_draw(&r->rolls, 8);
    symmStream_t s = r->streams[how % 3];
    prepare(r, st);
    if (s && how >= 5) {
        replay(r, st, s);
    } else {
        for (int i = 0; i < st->repeats; i++) call_step(r, st, s);
        if (s) T_OK(symmStreamSynchronize(s));
    }
    check(r, st);
}

static void run_rank(int me, int n, void *arg) {
    const job *j = arg;
    rank r = {.rolls = ck_hash(j->seed, (uint64_t)me, 77)};
    step st;
    pk_open(&r.in, j->comms[me], me, n, HALF);
    pk_open(&r.out, j->comms[me], me, n, HALF);
    for (int i = 1; i < 3; i++) T_OK(symmStreamCreate(&r.streams[i]));
    for (int k = 0; k < j->schedules; k++)
        for (int i = 0; i < STEPS; i++) {
            draw_step(&st, ck_hash(j->seed, (uint64_t)k, (uint64_t)i), n);
            run_step(&r, &st);
        }
    for (int i = 1; i < 3; i++) T_OK(symmStreamDestroy(r.streams[i]));
    pk_close(&r.in);
    pk_close(&r.out);
}

static void run_job(uint64_t seed, int i, int schedules) {
    static const char *const scratch[] = {"112M", "1M", "16M"};
    job j = {.seed = ck_hash(seed, (uint64_t)i, 5), .schedules = schedules};
    const int n = 1 + (int)(j.seed % MOST);
    setenv("SYMM_SCRATCH", scratch[i % 3], 1);
    T_OK(symmCommInitAll(j.comms, n, NULL));
    T_THREADS(n, run_rank, &j);
    for (int r = 0; r < n; r++) T_OK(symmCommDestroy(j.comms[r]));
}

/* T_FULL=1: ten thousand schedules. */
static void random_schedules(void) {
    const uint64_t seed = ck_seed();
    const int jobs = ck_full() ? 200 : SLOW ? 5 : 16, each = ck_full() ? 50 : 8;
    printf("# T_SEED=%llu, %d schedules\n", (unsigned long long)seed, jobs * each);
    fflush(stdout);
    for (int i = 0; i < jobs; i++) run_job(seed, i, each);
}

T_MAIN(T_TIMEOUT(random_schedules, 1500))
