/* p2p_model.h - random schedules of sends and receives, for thread ranks, GPUs and processes. A
 * step is a list of messages that all ranks draw alike; what every rank must find is known from it
 * alone. Without a group each rank makes its calls in the order of the list: the first message that
 * has not ended is the next one of both its ranks, so none can wait for ever. In a group each rank
 * writes its calls down in an order of its own, which keeps only that of each pair. Any thread; no
 * lock. */
#ifndef P2P_MODEL_H_
#define P2P_MODEL_H_

#include "coll_data.h"
#include "p2p_kit.h"

enum { PM_MESSAGES = 14, PM_STREAMS = 3, PM_SUM = 128, PM_SLOW = T_TSAN || T_ASAN };

typedef struct {
    int from, to;
    uint64_t bytes, at, no; /* at: in both ranks' halves */
} pm_message;

typedef struct {
    pm_message m[PM_MESSAGES];
    int n, grouped, repeats, sums; /* sums: a collective of all ranks stands in it */
    uint64_t seed;
} pm_step;

/* A rank: its halves, for receives and for sends, each in no window and in one; the words of its
 * collective, PM_SUM of them and as many results. */
typedef struct {
    int rank, n;
    symmComm_t comm;
    char *half[2][2];
    int32_t *sum;
    symmStream_t streams[PM_STREAMS];
    uint64_t rolls; /* its own choices */
} pm_rank;

/* Mostly small; `room` is left in the halves. */
static inline uint64_t pm_bytes(uint64_t *s, uint64_t room) {
    static const uint64_t below[] = {64, 64, 64, 9000, 9000, 70000, 300000, 3000000};
    uint64_t bytes = t_draw(s, below[t_draw(s, PM_SLOW ? 7 : 8)]);
    if (t_draw(s, 8) == 0) bytes = 0;
    return bytes > room ? room : bytes;
}

/* half: bytes of each. */
static inline void pm_draw(pm_step *st, uint64_t seed, int n, uint64_t half) {
    uint64_t s = seed, at = 256, subset;
    *st = (pm_step){.seed = seed, .n = 1 + (int)t_draw(&s, PM_MESSAGES)};
    st->grouped = t_draw(&s, 3) > 0;
    st->repeats = 1 + (int)t_draw(&s, 3);
    st->sums = t_draw(&s, 4) == 0;
    do subset = t_draw(&s, 1u << n);
    while (!subset);
    for (int i = 0; i < st->n; i++) {
        pm_message *m = &st->m[i];
        do m->from = (int)t_draw(&s, (unsigned)n);
        while (!(subset >> m->from & 1));
        do m->to = (int)t_draw(&s, (unsigned)n);
        while (!(subset >> m->to & 1));
        m->bytes = pm_bytes(&s, (half - 65536 - at) / (PM_MESSAGES - (unsigned)i));
        /* Its receive comes behind it. */
        if (!st->grouped && m->from == m->to && m->bytes > 8000) m->bytes = 8000;
        m->at = at + t_draw(&s, 64);
        m->no = ck_hash(seed, (uint64_t)i, 1) & 0xffff;
        at += (m->bytes + 64 + 2 * PK_GUARD + 63) / 64 * 64;
    }
}

/* Where a rank has the message: in a window or not, at what offset there. */
static inline int pm_registered(const pm_rank *r, const pm_message *m, int sends) {
    return (int)(ck_hash(m->no, (uint64_t)r->rank, (uint64_t)sends) >> 20 & 1);
}
static inline uint64_t pm_at(const pm_rank *r, const pm_message *m, int sends) {
    return m->at + (sends ? 0 : ck_hash(m->no, (uint64_t)r->rank, 0) % 3);
}
static inline char *pm_place(const pm_rank *r, const pm_message *m, int sends) {
    return r->half[sends][pm_registered(r, m, sends)] + pm_at(r, m, sends);
}

static inline void pm_prepare(pm_rank *r, const pm_step *st) {
    for (int i = 0; i < st->n; i++) {
        const pm_message *m = &st->m[i];
        if (m->from == r->rank) pk_fill(pm_place(r, m, 1), m->bytes, m->from, m->to, m->no);
        if (m->to == r->rank) pk_empty(pm_place(r, m, 0), m->bytes);
    }
    for (int i = 0; i < PM_SUM; i++) r->sum[i] = r->rank * 1000 + i, r->sum[PM_SUM + i] = -1;
}

static inline void pm_check(const pm_rank *r, const pm_step *st) {
    const int n = r->n;
    for (int i = 0; i < st->n; i++) {
        const pm_message *m = &st->m[i];
        if (m->to == r->rank) pk_received(pm_place(r, m, 0), m->bytes, m->from, m->to, m->no);
    }
    for (int i = 0; st->sums && i < PM_SUM; i++)
        T_EQ(r->sum[PM_SUM + i], n * (n - 1) / 2 * 1000 + n * i);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Of several streams each call of a group takes its own. */
typedef struct {
    symmStream_t at[PM_STREAMS];
    int n;
} pm_streams;

static inline symmStream_t pm_stream(pm_rank *r, const pm_streams *s) {
    return s->at[s->n > 1 ? (int)t_draw(&r->rolls, (unsigned)s->n) : 0];
}
static inline void pm_add_up(pm_rank *r, symmStream_t s) {
    T_OK(symmAllReduce(r->sum, r->sum + PM_SUM, PM_SUM, symmInt, symmSum, r->comm, s));
}
static inline void pm_call_one(pm_rank *r, const pm_message *m, int sends, symmStream_t s) {
    if (sends)
        pk_send(r->comm, pm_place(r, m, 1), m->bytes, m->to, s);
    else
        pk_recv(r->comm, pm_place(r, m, 0), m->bytes, m->from, s);
}

/* In the order of the list. */
static inline void pm_call_all(pm_rank *r, const pm_step *st, const pm_streams *s) {
    for (int i = 0; i < st->n; i++) {
        if (st->m[i].from == r->rank) pm_call_one(r, &st->m[i], 1, s->at[0]);
        if (st->m[i].to == r->rank) pm_call_one(r, &st->m[i], 0, s->at[0]);
    }
    if (st->sums) pm_add_up(r, s->at[0]);
}

/* The same call of an earlier message of this pair is still to come. */
static inline int pm_must_wait(const pm_step *st, const char *called, int i, int sends) {
    for (int k = 0; k < i; k++)
        if (st->m[k].from == st->m[i].from && st->m[k].to == st->m[i].to && !called[2 * k + sends])
            return 1;
    return 0;
}

/* In any order that keeps the pairs'. */
static inline void pm_call_group(pm_rank *r, const pm_step *st, const pm_streams *s) {
    char called[2 * PM_MESSAGES] = {0};
    int left = 0, sums = st->sums;
    for (int i = 0; i < st->n; i++) left += (st->m[i].from == r->rank) + (st->m[i].to == r->rank);
    T_OK(symmGroupStart());
    while (left || sums) {
        const int pick = (int)t_draw(&r->rolls, 2 * (unsigned)st->n + 1), i = pick / 2,
                  sends = pick & 1;
        if (i == st->n || !left) {
            if (sums) pm_add_up(r, s->at[0]);
            sums = 0;
            continue;
        }
        if ((sends ? st->m[i].from : st->m[i].to) != r->rank || called[pick] ||
            pm_must_wait(st, called, i, sends))
            continue;
        pm_call_one(r, &st->m[i], sends, pm_stream(r, s));
        called[pick] = 1;
        left--;
    }
    T_OK(symmGroupEnd());
}

static inline void pm_call(pm_rank *r, const pm_step *st, const pm_streams *s) {
    if (st->grouped)
        pm_call_group(r, st, s);
    else
        pm_call_all(r, st, s);
}

#endif
