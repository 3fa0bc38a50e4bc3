/* emu_run.c - the fibers of emu.h: one for each thread of each running kernel, and the draw of the
 * next one. One thread. */
#define _GNU_SOURCE 1
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "emu.h"

enum {
    STACK = 64 << 10,
    WARP = 32,
    BARRIERS = 16,
    PIECES = 64,
    RANKS = SYMM_MAX_RANKS,
    SHARED = 32 << 10,
    READS = 8
};
/* So many steps for each fiber in which all fibers only poll mean that nothing moves any more. */
enum { PATIENCE = 3000 };

typedef struct { /* a barrier of a CTA, or the lanes of a warp */
    unsigned arrived, expected, any, result;
    uint64_t phase;
    emu_threads who;
} meeting;

typedef struct {
    uint32_t mask, here, ballot;
    uint64_t phase, value[WARP], was[WARP];
    void *to[WARP];
    unsigned char data[WARP][16];
    int apart, why;
} warp;
enum { VOTE, SYNC, STORE, LOAD }; /* why lanes meet */

typedef struct {
    meeting at[BARRIERS];
    unsigned char *shared;
    size_t shared_bytes;
    warp *warps;
    emu_stores *late;
} cta;

typedef struct {
    emu_place place;
    ucontext_t context; /* for its beginning; from then on: */
    jmp_buf here;
    int begun;
    const emu_launch *launch;
    cta *cta;
    int rank, slow, waits, at; /* at: in the list of those that can go on */
    /* Its loads return nothing that a store up to this number has overwritten; at these places, up
     * to those numbers. */
    uint64_t since;
    uint64_t fenced; /* the same for its loads by multicast addresses: as of its last alias fence */
    struct {
        const char *p;
        size_t bytes;
        uint64_t number;
    } read[READS];
    unsigned reads;
} fiber;

typedef struct {
    const emu_launch *next;
    int left; /* launches after the one under way */
    int step; /* of the next one: what of that which comes before it was launched */
    emu_launch before;
    unsigned running;
    fiber *fibers;
    cta *ctas;
    unsigned nfibers, nctas;
    emu_stores *carried; /* of a kernel that ended early, handed to the next one */
} rank_state;

static struct {
    uint64_t random, steps, idle;
    uint32_t late; /* a drawn CTA shows one store in so many steps; 0: at once */
    jmp_buf main;
    fiber *self, **ready;
    unsigned nready, fibers;
    rank_state rank[RANKS];
    struct {
        const char *p;
        size_t bytes;
    } piece[PIECES];
    int pieces, failed, held, held_cta; /* held: the rank that stands still; -1: none */
    void **stack;                       /* stacks that no fiber uses */
    size_t stacks, made;
    char why[256];
    void (*between)(void *, uint64_t);
    void *arg;
} e = {.held = -1};

const emu_place *emu_self;

static uint32_t draw(uint32_t n) {
    e.random ^= e.random << 13, e.random ^= e.random >> 7, e.random ^= e.random << 17;
    return (uint32_t)((e.random >> 32) * n >> 32);
}

/* ---- switching ------------------------------------------------------------------------------- */

/* Switching contexts would call the system for the signal mask each time. */
static void to_main(void) {
    if (!_setjmp(e.self->here)) _longjmp(e.main, 1);
}
static void go_on(fiber *f) {
    if (_setjmp(e.main)) return;
    if (f->begun++) _longjmp(f->here, 1);
    setcontext(&f->context);
}

__attribute__((format(printf, 1, 2))) static void fail(const char *fmt, ...) {
    va_list args;
    const emu_place *p = emu_self;
    int n = snprintf(e.why, sizeof e.why, "rank %d, CTA %u, thread %u: ", e.self->rank, p->block.x,
                     p->thread.x);
    va_start(args, fmt);
    vsnprintf(e.why + n, sizeof e.why - (size_t)n, fmt, args);
    va_end(args);
    e.failed = 1;
    for (;;) to_main(); /* never resumed */
}

static void make_ready(fiber *f) {
    f->waits = 0;
    f->at = (int)e.nready;
    e.ready[e.nready++] = f;
}
static void not_ready(fiber *f) {
    fiber *last = e.ready[--e.nready];
    e.ready[f->at] = last;
    last->at = f->at;
    f->waits = 1;
}

void emu_poll(int one_in) {
    if (!draw((uint32_t)one_in)) to_main();
}
void emu_turn(int one_in) {
    e.idle = 0;
    emu_poll(one_in);
}

uint64_t emu_clock(void) {
    return (e.steps + 1024) * EMU_STEP_NS;
}

int emu_ended(int rank) {
    return !e.rank[rank].running && !e.rank[rank].left;
}
int emu_delays(void) {
    return e.late != 0;
}
void emu_hold_cta(int rank, int cta) {
    e.held = rank, e.held_cta = cta;
}

void emu_memory(const void *p, size_t bytes) {
    if (e.pieces == PIECES) abort();
    e.piece[e.pieces].p = p;
    e.piece[e.pieces++].bytes = bytes;
}
void emu_forget(void) {
    e.pieces = 0;
    emu_multicast(NULL, 0, NULL, 0, 0);
}
void emu_between(void (*fn)(void *arg, uint64_t step), void *arg) {
    e.between = fn;
    e.arg = arg;
}
void *emu_at(const void *p, size_t bytes) {
    const char *at = p;
    if ((uintptr_t)p % bytes) fail("%zu bytes at %p, which is no multiple of them", bytes, p);
    for (int i = 0; i < e.pieces; i++)
        if (at >= e.piece[i].p && at + bytes <= e.piece[i].p + e.piece[i].bytes) return (void *)at;
    const char *stack = e.self->context.uc_stack.ss_sp;
    if (at >= stack && at < stack + STACK) return (void *)at;
    fail("%zu bytes at %p are nobody's memory", bytes, p);
    return NULL;
}
int emu_on_stack(const void *p) {
    const char *at = p, *stack = e.self->context.uc_stack.ss_sp;
    return at >= stack && at < stack + STACK;
}
void *emu_shared(size_t bytes) {
    cta *c = e.self->cta;
    if (bytes > SHARED) fail("%zu bytes of shared memory", bytes);
    if (c->shared_bytes && c->shared_bytes != bytes) fail("two shared variables");
    c->shared_bytes = bytes;
    return c->shared;
}

/* ---- stores ---------------------------------------------------------------------------------- */

/* No load from here on is made earlier. */
static void order_loads(fiber *f) {
    f->since = emu_stores_now();
    f->reads = 0;
}

/* Notes that the place was read as it is after the store with this number. The oldest note makes
 * room, and then holds for all places. */
static void note_read(fiber *f, const char *p, size_t bytes, uint64_t number) {
    const unsigned i = f->reads++ % READS;
    if (f->reads > READS && f->read[i].number > f->since) f->since = f->read[i].number;
    f->read[i].p = p, f->read[i].bytes = bytes, f->read[i].number = number;
}

static uint64_t read_since(const fiber *f, const char *p, size_t bytes) {
    uint64_t since = f->since;
    for (unsigned i = 0; i < f->reads && i < READS; i++)
        if (f->read[i].p < p + bytes && p < f->read[i].p + f->read[i].bytes &&
            f->read[i].number > since)
            since = f->read[i].number;
    return since;
}

void emu_load(void *to, const void *p, size_t bytes, int order) {
    fiber *f = e.self;
    uint64_t number = 0;
    const void *at = emu_at(p, bytes), *old = NULL;
    emu_stores_precede(f->cta->late, f->place.thread.x, p, bytes);
    if (e.late && order != EMU_ACQUIRES && !draw(3))
        old = emu_stores_past(f->cta->late, f->place.thread.x, p, bytes, read_since(f, p, bytes),
                              &number);
    memcpy(to, old ? old : at, bytes);
    if (order == EMU_ACQUIRES)
        order_loads(f);
    else if (e.late)
        note_read(f, p, bytes, old ? number - 1 : emu_stores_now());
}

/* By neighbouring threads, as one. */
static void store(int plain, unsigned thread, unsigned threads, void *p, const void *data,
                  size_t bytes) {
    if (e.late)
        emu_stores_store(e.self->cta->late, plain, thread, threads, p, data, bytes);
    else
        memcpy(p, data, bytes);
}
void emu_store(void *p, const void *data, size_t bytes, int plain) {
    store(plain, e.self->place.thread.x, 1, emu_at(p, bytes), data, bytes);
}

void emu_release(void) {
    emu_stores_release(e.self->cta->late, e.self->place.thread.x);
}
void emu_fence(void) {
    emu_release();
    order_loads(e.self);
}

static void *cast_at(const void *p, size_t bytes, int rank) {
    void *at = emu_cast_at(p, bytes, rank);
    if (!at) fail("%zu bytes at %p are no multicast memory", bytes, p);
    return emu_at(at, bytes);
}
void emu_cast_store(void *p, const void *data, size_t bytes) {
    for (int r = 0; r < emu_cast_ranks(); r++) {
        void *to = cast_at(p, bytes, r);
        if (e.late)
            emu_stores_cast(e.self->cta->late, e.self->place.thread.x, to, data, bytes);
        else
            memcpy(to, data, bytes);
    }
}
void emu_cast_load(void *to, const void *p, size_t bytes, int rank) {
    const fiber *f = e.self;
    uint64_t number = 0;
    const void *at = cast_at(p, bytes, rank), *old = NULL;
    if (e.late && !draw(3))
        old = emu_stores_past(f->cta->late, f->place.thread.x, at, bytes, f->fenced, &number);
    memcpy(to, old ? old : at, bytes);
}
void emu_cast_fence(void) {
    emu_stores_alias(e.self->cta->late, e.self->place.thread.x);
    e.self->fenced = e.self->since;
}

/* No other thread's store to the word may be late: it would undo this. */
uint64_t emu_count(void *p, uint64_t by) {
    uint64_t *at = emu_at(p, sizeof *at);
    const uint64_t was = *at;
    *at = was + by;
    return was;
}
uint64_t emu_add(void *p, uint64_t by) {
    emu_release();
    const uint64_t was = emu_count(p, by);
    order_loads(e.self);
    return was;
}

static void show_some(int ranks) {
    if (!e.late || draw(e.late)) return;
    const rank_state *r = &e.rank[draw((uint32_t)ranks)];
    if (r->nctas && emu_stores_some(r->ctas[draw(r->nctas)].late, draw(1u << 16))) e.idle = 0;
}

/* ---- meeting --------------------------------------------------------------------------------- */

static void release(cta *c, const warp *w) {
    fiber *first = NULL;
    unsigned n = 0;
    const rank_state *r = &e.rank[e.self->rank];
    if (w) {
        first = r->fibers + (size_t)(c - r->ctas) * e.self->place.threads.x +
                (size_t)(w - c->warps) * WARP;
        n = WARP;
    } else {
        first = r->fibers + (size_t)(c - r->ctas) * e.self->place.threads.x;
        n = e.self->place.threads.x;
    }
    for (unsigned i = 0; i < n; i++)
        if (first[i].waits) first[i].waits = 2; /* checks whether it is one of them */
    for (unsigned i = 0; i < n; i++)
        if (first[i].waits == 2) make_ready(&first[i]);
}

int emu_meet(int barrier, unsigned threads, int left) {
    meeting *m = &e.self->cta->at[barrier];
    if (m->arrived && m->expected != threads)
        fail("barrier %d is for %u threads and for %u", barrier, m->expected, threads);
    const uint64_t phase = m->phase;
    m->expected = threads;
    m->any |= (unsigned)left;
    emu_threads_add(&m->who, e.self->place.thread.x);
    if (++m->arrived == threads) {
        m->result = m->any;
        m->arrived = m->any = 0;
        emu_stores_meet(e.self->cta->late, &m->who);
        memset(&m->who, 0, sizeof m->who);
        m->phase++;
        release(e.self->cta, NULL);
    }
    while (m->phase == phase) {
        not_ready(e.self);
        to_main();
    }
    order_loads(e.self);
    return (int)m->result;
}

static void order_lanes(const warp *w) {
    const unsigned first = (unsigned)(w - e.self->cta->warps) * WARP;
    emu_threads all = {{0}};
    for (unsigned i = 0; i < WARP; i++) emu_threads_add(&all, first + i);
    emu_stores_meet(e.self->cta->late, &all);
}

/* What all lanes store at once: sometimes in parts. Lines of 128 bytes arrive as a whole. */
static void store_lines(warp *w) {
    const unsigned first = (unsigned)(w - e.self->cta->warps) * WARP, lanes = EMU_LINE / 16;
    w->apart = !draw(4);
    e.idle = 0;
    for (unsigned i = 0; !w->apart && i < WARP; i += lanes) {
        for (unsigned j = i; j < i + lanes; j++)
            if (w->to[j] != (char *)w->to[i] + (j - i) * 16) fail("a line that is in pieces");
        store(EMU_RELAXED, first + i, lanes, w->to[i], w->data[i], EMU_LINE);
    }
}

/* What all lanes load at once, as it is now; sometimes in parts. */
static void load_lines(warp *w) {
    const unsigned first = (unsigned)(w - e.self->cta->warps) * WARP;
    w->apart = !draw(4);
    for (unsigned i = 0; !w->apart && i < WARP; i++) {
        if (!w->to[i]) continue;
        emu_stores_precede(e.self->cta->late, first + i, w->to[i], 16);
        memcpy(w->data[i], emu_at(w->to[i], 16), 16);
    }
}

/* The lanes of mask, all of them or the caller alone. to: what each would store, or load. */
static warp *meet_lanes(uint32_t mask, uint64_t value, int why, void *to, const void *data) {
    const unsigned lane = e.self->place.thread.x % WARP;
    warp *w = &e.self->cta->warps[e.self->place.thread.x / WARP];
    if (w->here && w->mask != mask) fail("lanes meet for %x and for %x", w->mask, mask);
    if (w->here && w->why != why) fail("lanes meet at different places");
    const uint64_t phase = w->phase;
    w->mask = mask;
    w->why = why;
    w->here |= 1u << lane;
    w->value[lane] = value;
    w->to[lane] = to;
    if (data) memcpy(w->data[lane], data, 16);
    if (w->here == mask) {
        w->ballot = 0;
        for (unsigned i = 0; i < WARP; i++) {
            w->was[i] = w->value[i];
            if (mask >> i & 1 && w->value[i]) w->ballot |= 1u << i;
        }
        if (why == STORE) store_lines(w);
        if (why == LOAD) load_lines(w);
        if (why == SYNC) order_lanes(w);
        w->here = 0;
        w->phase++;
        release(e.self->cta, w);
        return w;
    }
    while (w->phase == phase) {
        not_ready(e.self);
        to_main();
    }
    return w;
}

emu_vote emu_warp(uint32_t mask, uint64_t value, int lane) {
    emu_vote v = {.any = value != 0, .from = value};
    if (mask == 1u << e.self->place.thread.x % WARP) {
        v.ballot = value ? mask : 0;
        return v;
    }
    const warp *w = meet_lanes(mask, value, VOTE, NULL, NULL);
    v.ballot = w->ballot;
    v.any = w->ballot != 0;
    v.from = w->was[lane];
    return v;
}

void emu_sync_warp(uint32_t mask) {
    if (mask != 1u << e.self->place.thread.x % WARP) meet_lanes(mask, 0, SYNC, NULL, NULL);
    order_loads(e.self);
}

int emu_warp_store(void *p, const void *sixteen) {
    return meet_lanes(~0u, 0, STORE, p, sixteen)->apart;
}
int emu_warp_load(void *sixteen, const void *p) {
    const warp *w = meet_lanes(~0u, 0, LOAD, (void *)p, NULL);
    const int apart = w->apart;
    if (p && !apart) {
        memcpy(sixteen, w->data[e.self->place.thread.x % WARP], 16);
        if (e.late) note_read(e.self, p, 16, emu_stores_now());
    }
    return apart;
}

/* ---- launches -------------------------------------------------------------------------------- */

static void enter(void) {
    fiber *f = e.self;
    f->launch->kernel(f->launch->args);
    not_ready(f);
    f->waits = 0; /* for ever */
    rank_state *r = &e.rank[f->rank];
    r->running--;
    if (!r->running && f->launch->early && r->left)
        r->carried = r->ctas[0].late;
    else
        for (unsigned i = 0; !r->running && i < r->nctas; i++) emu_stores_all(r->ctas[i].late);
    e.idle = 0;
    for (;;) to_main();
}

static void drop(rank_state *r) {
    for (unsigned i = 0; i < r->nfibers; i++)
        e.stack[e.stacks++] = r->fibers[i].context.uc_stack.ss_sp;
    for (unsigned i = 0; i < r->nctas; i++) {
        free(r->ctas[i].shared);
        if (r->ctas[i].late != r->carried) emu_stores_end(r->ctas[i].late);
        free(r->ctas[i].warps);
    }
    free(r->fibers);
    free(r->ctas);
    e.fibers -= r->nfibers;
    r->fibers = NULL, r->ctas = NULL, r->nfibers = r->nctas = 0;
}

static void *need(void *p) {
    if (!p || p == MAP_FAILED) abort();
    return p;
}

/* Stacks are used again; the list has room for all. */
static void *new_stack(void) {
    e.stack = need(realloc(e.stack, ++e.made * sizeof *e.stack));
    return need(mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

static void start(fiber *f, emu_place place, const emu_launch *l, cta *c, int rank, int slow) {
    *f = (fiber){.place = place, .launch = l, .cta = c, .rank = rank, .since = emu_stores_now()};
    f->fenced = f->since;
    f->slow = slow + (place.thread.x % WARP ? f[-1].slow > slow : !draw(6)); /* whole warps */
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = e.stacks ? e.stack[--e.stacks] : new_stack();
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL; /* enter() does not return */
    makecontext(&f->context, enter, 0);
    make_ready(f);
}

/* The next launch, or what comes before it. */
static const emu_launch *next_of(rank_state *r) {
    const emu_launch *l = r->next;
    if (!l->copies || r->step == 2) return r->step = 0, r->left--, r->next++;
    r->before = (emu_launch){l->copies->meet, l->args, 1, 2 * WARP, 0, NULL};
    if (r->step++) {
        r->before.kernel = l->copies->copy;
        r->before.threads = WARP;
        r->before.args.src = l->copies;
    }
    return &r->before;
}

static void launch(int rank) {
    rank_state *r = &e.rank[rank];
    drop(r);
    const emu_launch *l = next_of(r);
    r->nctas = l->ctas;
    r->nfibers = r->running = l->ctas * l->threads;
    r->ctas = need(calloc(r->nctas, sizeof *r->ctas));
    r->fibers = need(calloc(r->nfibers, sizeof *r->fibers));
    e.fibers += r->nfibers;
    e.ready = need(realloc(e.ready, (e.fibers + 1) * sizeof *e.ready));
    const int slow_rank = !draw(4);
    if (l->threads > EMU_THREADS) abort();
    for (unsigned b = 0; b < l->ctas; b++) {
        cta *c = &r->ctas[b];
        c->shared = need(malloc(SHARED));
        memset(c->shared, 0xa5, SHARED);
        c->late = r->carried ? r->carried : need(emu_stores_new());
        /* Stores of several CTAs all come behind these, and each CTA has a list of its own. */
        if (r->carried && l->ctas > 1) emu_stores_all(c->late);
        if (r->carried) emu_stores_inherit(c->late);
        r->carried = NULL;
        c->warps = need(calloc(l->threads / WARP, sizeof *c->warps));
        const int slow_cta = !draw(6);
        for (unsigned t = 0; t < l->threads; t++)
            start(&r->fibers[b * l->threads + t], (emu_place){{t}, {b}, {l->threads}, {l->ctas}}, l,
                  c, rank, slow_rank + slow_cta);
    }
}

/* The rank that is held goes on all the same where nobody else can. */
static fiber *choose(void) {
    enum { TRIES = 1000 };
    fiber *f = e.ready[draw(e.nready)];
    for (int i = 0; f->slow && i < 2 * f->slow && draw(8); i++) f = e.ready[draw(e.nready)];
    for (int i = 0, cta = e.held_cta; f->rank == e.held && i < TRIES; i++)
        if (cta < 0 || f->place.block.x == (unsigned)cta) f = e.ready[draw(e.nready)];
    return f;
}

/* 1: something is left to do. */
static int next_launches(int ranks) {
    int more = 0;
    for (int r = 0; r < ranks; r++) {
        if (!e.rank[r].running && e.rank[r].left && (r != e.held || e.held_cta >= 0)) launch(r);
        more |= !emu_ended(r);
    }
    return more;
}

static void stands_still(void) {
    int n = snprintf(e.why, sizeof e.why, "nothing goes on;");
    for (int r = 0; r < RANKS; r++)
        if (e.rank[r].running)
            n += snprintf(e.why + n, sizeof e.why - (size_t)n,
                          " rank %d has %u threads and %d calls left;", r, e.rank[r].running,
                          e.rank[r].left);
    e.failed = 1;
}

int emu_run(const emu_launch *launches, int ranks, int calls, uint64_t seed, char *why,
            size_t cap) {
    if (ranks > RANKS) abort();
    e.random = seed * 2 + 1;
    e.failed = 0, e.nready = 0, e.idle = 0, e.steps = 0;
    memset(e.rank, 0, sizeof e.rank);
    for (int i = 0; i < 16; i++) draw(2);
    e.late = draw(3) ? 2u << draw(4) : 0;
    for (int r = 0; r < ranks; r++)
        e.rank[r] = (rank_state){.next = launches + (size_t)r * (unsigned)calls, .left = calls};
    while (!e.failed && next_launches(ranks)) {
        if (!e.nready || e.idle++ > (uint64_t)PATIENCE * e.fibers) {
            stands_still();
            break;
        }
        e.self = choose();
        emu_self = &e.self->place;
        e.steps++;
        go_on(e.self);
        show_some(ranks);
        if (e.between) e.between(e.arg, e.steps);
    }
    for (int r = 0; r < ranks; r++) drop(&e.rank[r]);
    free(e.ready);
    e.ready = NULL;
    if (e.failed) snprintf(why, cap, "%s", e.why);
    return e.failed ? -1 : 0;
}
