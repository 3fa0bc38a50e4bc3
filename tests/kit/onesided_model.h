/* onesided_model.h - random programs of one-sided calls, for thread ranks and processes, against a
 * reference. All ranks draw the same list of actions and carry them out in its order, each rank its
 * own: a wait asks only for signals that were raised earlier in the list, so nobody waits for ever.
 *
 * Each rank has a lane of its window for each source. What may be done when follows from what the
 * ranks know, as vector clocks: a lane is read only by a rank that knows of its last put, and is
 * put to only by a source that knows of all its reads. If a rank does not know enough, the model
 * lets the others tell it first, by signals. Every rank keeps the contents of all lanes for itself.
 * Any thread; no lock. */
#ifndef ONESIDED_MODEL_H_
#define ONESIDED_MODEL_H_

#include "coll_data.h"
#include "onesided_kit.h"

#ifndef OM_LANE /* bytes of a lane, and what a program is drawn from */
#define OM_LANE    3000
#define OM_ACTIONS 60
#endif
enum {
    OM_MOST = 8,
    OM_IDS = 5, /* signals that a program uses; spread over all numbers */
    OM_PENDING = 4 * OM_ACTIONS
};

enum { OM_PUT, OM_GET, OM_CHECK, OM_SIGNAL, OM_WAIT, OM_READ, OM_RESET, OM_FENCE };

typedef struct {
    int what, rank, peer, id; /* rank acts. put: rank puts to peer. check, get: lane of `of` */
    int of, signals;          /* get, check: whose lane; put: signals, with id */
    uint64_t at, bytes, count, no, low; /* read: count is at least low */
} om_action;

typedef struct {
    uint32_t at[OM_MOST];
} om_clock;

/* What is known of a program while it is drawn. */
typedef struct {
    int n;
    uint64_t s;                                               /* of the draw */
    om_clock clock[OM_MOST], read[OM_MOST][OM_MOST][OM_MOST]; /* read: [source][owner][reader] */
    om_clock put[OM_MOST][OM_MOST];                           /* of the last one */
    uint32_t raised[OM_MOST][OM_MOST][OM_IDS], used[OM_MOST][OM_MOST][OM_IDS]; /* [from][to] */
    om_clock told[OM_MOST][OM_MOST][OM_IDS][OM_PENDING]; /* what the k-th raise tells */
    om_action list[8 * OM_ACTIONS];
    int actions;
} om_program;

static inline void om_join(om_clock *a, const om_clock *b) {
    for (int i = 0; i < OM_MOST; i++)
        if (b->at[i] > a->at[i]) a->at[i] = b->at[i];
}
static inline int om_knows(const om_clock *a, const om_clock *b) {
    for (int i = 0; i < OM_MOST; i++)
        if (b->at[i] > a->at[i]) return 0;
    return 1;
}
/* Lets a rank do something; what it is then known by. */
static inline om_action *om_add(om_program *p, int what, int rank, int peer) {
    om_action *a = &p->list[p->actions++];
    T_CHECK(p->actions <= (int)(sizeof p->list / sizeof *p->list));
    *a = (om_action){.what = what, .rank = rank, .peer = peer};
    a->no = ck_hash(p->s, (uint64_t)p->actions, 3) & 0xffff;
    p->clock[rank].at[rank]++;
    return a;
}
static inline void om_raise(om_program *p, int from, int to, int id) {
    const uint32_t k = p->raised[from][to][id]++;
    T_CHECK(k < OM_PENDING);
    p->told[from][to][id][k] = p->clock[from];
}
static inline void om_signal(om_program *p, int from, int to, int id) {
    om_add(p, OM_SIGNAL, from, to)->id = id;
    om_raise(p, from, to, id);
}
static inline void om_use(om_program *p, int from, int to, int id, uint32_t n) {
    p->used[from][to][id] += n;
    if (p->used[from][to][id])
        om_join(&p->clock[to], &p->told[from][to][id][p->used[from][to][id] - 1]);
}
static inline void om_wait(om_program *p, int rank, int peer, int id, uint32_t n) {
    om_action *a = om_add(p, OM_WAIT, rank, peer);
    a->id = id;
    a->count = n;
    om_use(p, peer, rank, id, n);
}
/* Rank learns all that `from` knows now. */
static inline void om_tell(om_program *p, int from, int rank) {
    const int id = (int)t_draw(&p->s, OM_IDS);
    om_signal(p, from, rank, id);
    om_wait(p, rank, from, id, p->raised[from][rank][id] - p->used[from][rank][id]);
}

/* ---- drawing --------------------------------------------------------------------------------- */

static inline void om_draw_put(om_program *p, int from, int to) {
    for (int r = 0; r < p->n; r++)
        if (!om_knows(&p->clock[from], &p->read[from][to][r])) om_tell(p, r, from);
    om_action *a = om_add(p, OM_PUT, from, to);
    a->at = t_draw(&p->s, OM_LANE);
    a->bytes = t_draw(&p->s, 4) ? t_draw(&p->s, 40) : t_draw(&p->s, OM_LANE);
    if (a->bytes > OM_LANE - a->at) a->bytes = OM_LANE - a->at;
    a->signals = t_draw(&p->s, 2) == 0;
    a->id = (int)t_draw(&p->s, OM_IDS);
    p->put[from][to] = p->clock[from];
    if (a->signals) om_raise(p, from, to, a->id);
}
/* The lane of source `of` at `owner`, by `rank`, on the spot (its own) or by a get. */
static inline void om_draw_read(om_program *p, int rank, int owner, int of) {
    if (!om_knows(&p->clock[rank], &p->put[of][owner])) {
        /* A signal tells of puts to the same peer: to a third rank the owner, or a fence, tells. */
        if (rank == owner) {
            om_tell(p, of, rank);
        } else if (t_draw(&p->s, 2)) {
            if (!om_knows(&p->clock[owner], &p->put[of][owner])) om_tell(p, of, owner);
            om_tell(p, owner, rank);
        } else {
            om_add(p, OM_FENCE, of, of);
            om_tell(p, of, rank);
        }
    }
    om_action *a = om_add(p, rank == owner && t_draw(&p->s, 2) ? OM_CHECK : OM_GET, rank, owner);
    a->of = of;
    a->at = a->what == OM_GET ? t_draw(&p->s, OM_LANE) : 0;
    a->bytes = a->what == OM_GET ? t_draw(&p->s, OM_LANE - a->at + 1) : OM_LANE;
    p->read[of][owner][rank] = p->clock[rank];
}
/* How many of the raises a rank knows of, without a wait. */
static inline uint32_t om_known(const om_program *p, int from, int to, int id) {
    uint32_t k = p->used[from][to][id];
    while (k < p->raised[from][to][id] && om_knows(&p->clock[to], &p->told[from][to][id][k])) k++;
    return k;
}
static inline void om_draw_count(om_program *p, int rank, int peer, int id) {
    const uint32_t known = om_known(p, peer, rank, id), used = p->used[peer][rank][id];
    if (known == p->raised[peer][rank][id] && t_draw(&p->s, 2)) { /* nothing is on its way */
        om_add(p, OM_RESET, rank, peer)->id = id;
        om_use(p, peer, rank, id, known - used);
        om_tell(p, rank, peer); /* it would else use up what comes later in the list */
        return;
    }
    om_action *a = om_add(p, OM_READ, rank, peer);
    a->id = id;
    a->low = known - used;
    a->count = p->raised[peer][rank][id] - used; /* so far: more if ranks are ahead */
}

static inline void om_draw(om_program *p, uint64_t seed, int n) {
    memset(p, 0, sizeof *p);
    p->n = n;
    p->s = seed;
    for (int i = 0; i < OM_ACTIONS; i++) {
        const int a = (int)t_draw(&p->s, (unsigned)n), b = (int)t_draw(&p->s, (unsigned)n),
                  c = (int)t_draw(&p->s, (unsigned)n), id = (int)t_draw(&p->s, OM_IDS);
        const uint32_t left = p->raised[b][a][id] - p->used[b][a][id];
        switch (t_draw(&p->s, 8)) {
        case 0:
        case 1:
        case 2: om_draw_put(p, a, b); break;
        case 3: om_signal(p, a, b, id); break;
        case 4: om_wait(p, a, b, id, (uint32_t)t_draw(&p->s, left + 1)); break;
        case 5: om_draw_count(p, a, b, id); break;
        default: om_draw_read(p, a, b, c); break;
        }
    }
    /* Nobody leaves a lane before all have read it, or begins the next program early. */
    for (int r = 1; r < n; r++) om_tell(p, r, 0);
    for (int r = 1; r < n; r++) om_tell(p, 0, r);
}

/* ---- carrying out ---------------------------------------------------------------------------- */

enum { OM_STREAMS = 3, OM_BUFFERS = 8 * OM_ACTIONS };

/* What backends do differently. Buffers are memory that both kernels and the program touch. */
typedef struct {
    void *(*buffer)(size_t bytes);
    void (*free_buffer)(void *p);
    symmStream_t (*stream)(int i); /* the i-th of a rank */
    void (*end_stream)(symmStream_t s);
    void (*sync)(symmComm_t comm, symmStream_t s);
    void (*capture)(symmStream_t s);
    void (*replay)(symmComm_t comm, symmStream_t s); /* what was captured, and awaits it */
    /* A copy of a window's memory in stream order; both ends are awaited. */
    void (*look)(symmComm_t comm, symmStream_t s, void *to, const void *from, uint64_t bytes);
    int captures; /* 0: this rank must not capture */
} om_ways;

typedef struct {
    ok_world w;
    const om_ways *ways;
    symmStream_t streams[OM_STREAMS];
    char *lanes;      /* contents of all lanes, as they must be */
    char *got, *copy; /* of gets that may still run: what comes, and what must have come */
    const om_action *gets[OM_BUFFERS];
    int ngets;
    char *sent; /* sources of puts that may still run */
    uint64_t sent_bytes;
    uint64_t rolls, base; /* its own choices; number of the first signal */
    int mode;             /* OM_CAPTURED, OM_GROUPED: a section is open */
    symmStream_t on;      /* of the section */
} om_rank;
enum { OM_PLAIN, OM_CAPTURED, OM_GROUPED };
enum { OM_SENT = OM_BUFFERS * 64 + OM_ACTIONS * (OM_LANE + 64) };

static inline uint64_t om_lane(int n, int of) {
    (void)n;
    return (uint64_t)of * OM_LANE;
}
static inline char *om_contents(om_rank *r, int of, int owner) {
    return r->lanes + ((uint64_t)of * OM_MOST + (uint64_t)owner) * OM_LANE;
}
static inline int om_id(const om_rank *r, int id) {
    return (int)((r->base + (uint64_t)id * 13) % SYMM_SIGNALS);
}
/* The world is open, its lanes are empty. */
static inline void om_begin(om_rank *r, const om_ways *ways) {
    r->ways = ways;
    r->lanes = calloc(OM_MOST * OM_MOST, OM_LANE);
    r->got = ways->buffer((size_t)OM_BUFFERS * OM_LANE);
    r->copy = ways->buffer((size_t)OM_BUFFERS * OM_LANE);
    r->sent = ways->buffer(OM_SENT);
    T_CHECK(r->lanes && r->got && r->copy && r->sent);
    for (int i = 0; i < OM_STREAMS; i++) r->streams[i] = ways->stream(i);
}
static inline void om_end(om_rank *r) {
    for (int i = 0; i < OM_STREAMS; i++) r->ways->end_stream(r->streams[i]);
    r->ways->free_buffer(r->got);
    r->ways->free_buffer(r->copy);
    r->ways->free_buffer(r->sent);
    free(r->lanes);
}
static inline void om_sync(om_rank *r) {
    for (int i = 0; i < OM_STREAMS; i++) r->ways->sync(r->w.p.comm, r->streams[i]);
}

/* ---- the host backend ---- */

static inline symmStream_t om_host_stream(int i) {
    symmStream_t s = NULL; /* the first one: calls end before they return */
    if (i) T_OK(symmStreamCreate(&s));
    return s;
}
static inline void om_host_end_stream(symmStream_t s) {
    if (s) T_OK(symmStreamDestroy(s));
}
static inline void om_host_sync(symmComm_t comm, symmStream_t s) {
    (void)comm;
    if (s) T_OK(symmStreamSynchronize(s));
}
static inline void om_host_capture(symmStream_t s) {
    T_OK(symmStreamBeginCapture(s));
}
static inline void om_host_replay(symmComm_t comm, symmStream_t s) {
    symmGraph_t graph;
    symmGraphExec_t exec;
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmGraphLaunch(exec, s));
    om_host_sync(comm, s);
    T_OK(symmGraphExecDestroy(exec));
}
static inline void om_host_look(symmComm_t comm, symmStream_t s, void *to, const void *from,
                                uint64_t bytes) {
    (void)comm, (void)s;
    memcpy(to, from, bytes);
}
static const om_ways om_host __attribute__((unused)) = {malloc,
                                                        free,
                                                        om_host_stream,
                                                        om_host_end_stream,
                                                        om_host_sync,
                                                        om_host_capture,
                                                        om_host_replay,
                                                        om_host_look,
                                                        1};

static inline void om_open(om_rank *r, symmComm_t comm, int rank, int n) {
    memset(r, 0, sizeof *r);
    ok_open(&r->w, comm, rank, n, OM_MOST * OM_LANE);
    memset(r->w.p.memory, 0, OM_MOST * OM_LANE);
    om_begin(r, &om_host);
    T_OK(symmBarrier(comm, NULL)); /* the lanes are empty */
}
static inline void om_close(om_rank *r) {
    om_end(r);
    ok_close(&r->w);
}

/* ---- any backend ---- */

/* All that was called has ended. */
static inline void om_settle(om_rank *r) {
    if (r->mode == OM_GROUPED) T_OK(symmGroupEnd());
    if (r->mode == OM_CAPTURED) r->ways->replay(r->w.p.comm, r->on);
    om_sync(r);
    r->mode = OM_PLAIN;
    for (int i = 0; i < r->ngets; i++)
        T_CHECKF(!memcmp(r->got + i * OM_LANE, r->copy + i * OM_LANE, r->gets[i]->bytes),
                 "rank %d: a get of %llu bytes from rank %d, lane of %d", r->w.p.rank,
                 (unsigned long long)r->gets[i]->bytes, r->gets[i]->peer, r->gets[i]->of);
    r->ngets = 0;
    r->sent_bytes = 0;
}

/* How a rank makes its calls is its own affair. A captured section begins behind what its streams
 * have, as nothing orders its launch. */
static inline symmStream_t om_stream(om_rank *r) {
    const uint64_t how = t_draw(&r->rolls, 24);
    if (r->mode == OM_PLAIN && how >= 21) {
        om_settle(r);
        r->mode = how == 21 && r->ways->captures ? OM_CAPTURED : OM_GROUPED;
        r->on = r->streams[how == 21 ? 1 + t_draw(&r->rolls, 2) : t_draw(&r->rolls, OM_STREAMS)];
        if (r->mode == OM_CAPTURED) r->ways->capture(r->on);
        if (r->mode == OM_GROUPED) T_OK(symmGroupStart());
    } else if (how < 2) {
        om_settle(r);
    }
    return r->mode == OM_PLAIN ? r->streams[how % OM_STREAMS] : r->on;
}

static inline void om_do_put(om_rank *r, const om_action *a) {
    const ok_world *w = &r->w;
    const uint64_t at = om_lane(w->p.n, a->rank) + a->at;
    symmStream_t s = om_stream(r);
    T_CHECK(r->sent_bytes + a->bytes + 64 < OM_SENT);
    char *from = r->sent + r->sent_bytes + t_draw(&r->rolls, 8);
    pk_fill(from, a->bytes, a->rank, a->peer, a->no);
    r->sent_bytes += a->bytes + 16;
    if (a->signals)
        T_OK(symmPutSignal(from, a->bytes, symmUint8, a->peer, w->p.win, at, om_id(r, a->id),
                           w->p.comm, s));
    else
        T_OK(symmPut(from, a->bytes, symmUint8, a->peer, w->p.win, at, w->p.comm, s));
}
static inline void om_do_get(om_rank *r, const om_action *a) {
    const ok_world *w = &r->w;
    symmStream_t s = om_stream(r);
    T_CHECK(r->ngets < OM_BUFFERS);
    memcpy(r->copy + r->ngets * OM_LANE, om_contents(r, a->of, a->peer) + a->at, a->bytes);
    T_OK(symmGet(r->got + r->ngets * OM_LANE, a->bytes, symmUint8, a->peer, w->p.win,
                 om_lane(w->p.n, a->of) + a->at, w->p.comm, s));
    r->gets[r->ngets++] = a;
}
static inline void om_do_check(om_rank *r, const om_action *a) {
    om_settle(r);
    char *lane = r->got; /* no get runs */
    r->ways->look(r->w.p.comm, r->streams[0], lane, r->w.p.memory + om_lane(r->w.p.n, a->of),
                  OM_LANE);
    T_CHECKF(!memcmp(lane, om_contents(r, a->of, a->rank), OM_LANE), "rank %d: its lane of rank %d",
             a->rank, a->of);
}
static inline void om_do_read(om_rank *r, const om_action *a, const om_program *p) {
    om_settle(r);
    const uint64_t n = ok_read(&r->w, a->peer, om_id(r, a->id));
    T_CHECKF(n >= a->low && n <= p->raised[a->peer][a->rank][a->id],
             "rank %d counts %llu of a signal of rank %d, at least %llu", a->rank,
             (unsigned long long)n, a->peer, (unsigned long long)a->low);
}

static inline void om_do(om_rank *r, const om_action *a, const om_program *p) {
    symmComm_t comm = r->w.p.comm;
    const int id = om_id(r, a->id);
    switch (a->what) {
    case OM_PUT: om_do_put(r, a); break;
    case OM_GET: om_do_get(r, a); break;
    case OM_CHECK: om_do_check(r, a); break;
    case OM_SIGNAL: T_OK(symmSignal(a->peer, id, comm, om_stream(r))); break;
    case OM_WAIT: ok_wait(&r->w, a->peer, id, a->count, om_stream(r)); break;
    case OM_READ: om_do_read(r, a, p); break;
    case OM_RESET: T_OK(symmSignalReset(a->peer, id, comm, om_stream(r))); break;
    default: T_OK(symmFence(comm, om_stream(r))); break;
    }
}

/* Nothing is left of the signals behind it. */
static inline void om_run(om_rank *r, const om_program *p, uint64_t seed) {
    const int me = r->w.p.rank;
    r->base = seed % SYMM_SIGNALS;
    r->rolls = ck_hash(seed, (uint64_t)me, 78);
    for (int i = 0; i < p->actions; i++) {
        const om_action *a = &p->list[i];
        if (a->rank == me) om_do(r, a, p);
        if (a->what == OM_PUT)
            pk_fill(om_contents(r, a->rank, a->peer) + a->at, a->bytes, a->rank, a->peer, a->no);
    }
    om_settle(r);
    T_OK(symmBarrier(r->w.p.comm, r->streams[0]));
    om_sync(r);
    for (int from = 0; from < p->n; from++)
        for (int id = 0; id < OM_IDS; id++) {
            T_EQ(ok_read(&r->w, from, om_id(r, id)),
                 p->raised[from][me][id] - p->used[from][me][id]);
            T_OK(symmSignalReset(from, om_id(r, id), r->w.p.comm, r->streams[0]));
        }
    om_sync(r);
    T_EQ(ok_unused(&r->w), 0);
    T_OK(symmBarrier(r->w.p.comm, r->streams[0]));
    om_sync(r);
}

#endif
