/* unit_lane_model.c - graphs whose blocks outlive them, at random, beside a model: graphs of
 * several lanes are captured, or made of nodes, launched on any stream, their blocks used and freed
 * on other lanes and in other graphs, while streams are held up for a moment; memory is trimmed,
 * collected and taken by the program; plans, graphs and lanes end in any order. The model says of
 * each launch whether it is allowed.
 *
 * Each unit of memory has an owner. A block takes its units when its graph's work begins to use it,
 * and lets them go at its last use, in the order of the streams; whoever finds a unit that is not
 * free has got it too early. A mark in the block is read again at each use. SYM blocks of several
 * ranks (threads): a rank's units are free when all ranks have let go. The program orders what it
 * must order, with events, and nothing else.
 *
 * All ranks draw the same numbers; only how long a stream is held up differs. T_SEED: another
 * game. */
#include <unistd.h>

#include "host/heap/heap.h"
#include "graph_kit.h"
#include "lane_kit.h"

enum { LANES = 3, STREAMS = 4, SLOTS = 7, OWN = 4, LEFT = 3, BLOCKS = 8192, UNIT = 128, RANKS = 3 };
enum {
    UNITS = 512 << 20 >> 7
}; /* of the heap, and behind them those of memory with several addresses */

typedef struct {
    char *at[RANKS]; /* this rank's, and the peers' */
    uint64_t unit, units;
    size_t bytes;
    unsigned flags;
    int id, region, live, red;
    unsigned streams; /* that have used it since it began to live */
    _Atomic int begun;
    int rank, n; /* n 1: LOCAL */
} block;

typedef struct {
    enum { EMPTY, CAPTURED, NODES } kind;
    int lane, region, stream; /* of the last launch */
    unsigned flags;
    symmGraph_t g;
    symmMemPlan_t plan;
    block *own[OWN], *left[LEFT], *frees[LEFT];
    int nown, nleft, nfrees;
} slot;

typedef struct {
    lk k;
    symmStream_t stream[STREAMS];
    int region[LANES], regions;
    slot slots[SLOTS];
    block blocks[BLOCKS];
    int nblocks;
    uint64_t common, own; /* what is drawn alike, and alone */
    int launches, refused, frees, aliased;
} model;

static int guard;
static _Atomic int aliased; /* graphs with addresses of their own, in all games */
static _Atomic int *owner;  /* [rank][unit]: uses to come to an end; 0: free */

static unsigned draw(uint64_t *state, unsigned below) {
    return (unsigned)t_draw(state, below);
}
static int one_in(model *m, unsigned n) {
    return draw(&m->common, n) == 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static _Atomic int *unit(int rank, uint64_t at) {
    return &owner[(uint64_t)rank * UNITS + at];
}

typedef struct {
    block *b;
    int end;
} use;

static symmResult_t begin_task(void *args) {
    block *b = ((use *)args)->b;
    const int mark = b->id << 12 | atomic_fetch_add(&b->begun, 1);
    for (uint64_t u = 0; u < b->units; u++) {
        const int had = atomic_fetch_add(unit(b->rank, b->unit + u), b->n);
        T_CHECKF(had == 0, "rank %d, block %d: unit %llu of %llu is in use (%d)", b->rank, b->id,
                 (unsigned long long)u, (unsigned long long)b->units, had);
        __atomic_store_n((int *)(void *)(b->at[b->rank] + u * UNIT), mark, __ATOMIC_RELAXED);
    }
    return symmSuccess;
}

/* A look at it here and at the next rank's; the last one lets it go. */
static symmResult_t use_task(void *args) {
    const use *w = args;
    block *b = w->b;
    const int mark = b->id << 12 | (atomic_load(&b->begun) - 1);
    for (uint64_t u = 0; u < b->units; u++)
        for (int i = 0; i < (b->n > 1 ? 2 : 1); i++) {
            const int rank = (b->rank + i) % (b->n > 1 ? b->n : b->rank + 1);
            const int is =
                __atomic_load_n((int *)(void *)(b->at[rank] + u * UNIT), __ATOMIC_RELAXED);
            T_CHECKF(is == mark, "rank %d, block %d: at rank %d unit %llu has %x, not %x", b->rank,
                     b->id, rank, (unsigned long long)u, (unsigned)is, (unsigned)mark);
        }
    for (uint64_t u = 0; w->end && u < b->units; u++)
        for (int r = 0; r < b->n; r++) {
            const int had = atomic_fetch_sub(unit(b->n > 1 ? r : b->rank, b->unit + u), 1);
            T_CHECKF(had > 0, "rank %d, block %d is not in use", b->rank, b->id);
        }
    return symmSuccess;
}

static void nap(void *arg) {
    usleep((useconds_t)(uintptr_t)arg);
}

static void hold_up(model *m, symmStream_t s) {
    if (!one_in(m, 3)) return;
    const unsigned us = draw(&m->own, 4) ? draw(&m->own, 100) : draw(&m->own, 1500);
    T_OK(symmStreamHostFunc(s, nap, (void *)(uintptr_t)us));
}

static void begin(symmStream_t s, block *b) {
    use w = {b, 0};
    T_OK(symm_stream_submit(s, begin_task, &w, sizeof w));
}
static void look(model *m, symmStream_t s, block *b, int end) {
    use w = {b, end};
    hold_up(m, s);
    T_OK(symm_stream_submit(s, use_task, &w, sizeof w));
}

static block *new_block(model *m, int region, void *p, size_t bytes, unsigned flags) {
    const int sym = !(flags & SYMM_ALLOC_LOCAL);
    T_CHECK(m->nblocks < BLOCKS);
    block *b = &m->blocks[m->nblocks];
    *b = (block){.bytes = bytes, .flags = flags, .id = ++m->nblocks, .region = region};
    b->rank = m->k.rank;
    b->n = sym ? m->k.n : 1;
    symm_memlane *l = NULL;
    for (int i = 0; i < LANES && !l; i++) l = symm_memlane_peek(m->k.lane[i]);
    const uint64_t off = symm_heap_offset(l->set->heap, p);
    for (int r = 0; r < m->k.n; r++) b->at[r] = symm_heap_addr(l->set->heap, r, off);
    T_CHECK(b->at[b->rank] == p);
    b->unit = off / UNIT;
    b->units = (bytes + UNIT - 1) / UNIT;
    return b;
}

static unsigned draw_flags(model *m) {
    return (one_in(m, 3) ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL) |
           (one_in(m, 4) ? SYMM_ALLOC_KEEP : 0);
}
static size_t draw_bytes(model *m) {
    return (1 + draw(&m->common, one_in(m, 4) ? 200 : 20)) * UNIT - draw(&m->common, 2);
}

/* `to` comes behind all who have used the block. */
static void behind_users(model *m, const block *b, symmStream_t to) {
    for (int s = 0; s < STREAMS; s++)
        if (b->streams >> s & 1 && m->stream[s] != to) lk_order(m->stream[s], to);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static block *any_live(model *m) {
    block *found = NULL;
    int n = 0;
    for (int i = 0; i < SLOTS; i++)
        for (int j = 0; j < m->slots[i].nleft; j++)
            if (m->slots[i].left[j]->live && one_in(m, (unsigned)++n)) found = m->slots[i].left[j];
    return found;
}

static void capture_block(model *m, slot *s, int leave) {
    const symmLane_t lane = m->k.lane[s->lane];
    const symmStream_t on = m->stream[s->lane];
    const unsigned flags = draw_flags(m);
    const size_t bytes = draw_bytes(m);
    block *b = new_block(m, s->region, lk_alloc(lane, bytes, flags), bytes, flags);
    b->red = guard;
    begin(on, b);
    if (leave) {
        s->left[s->nleft++] = b;
        return;
    }
    s->own[s->nown++] = b;
    if (b->n > 1) T_OK(symmBarrier(m->k.comm, on)); /* it lives on all ranks */
    look(m, on, b, 1);
    lk_free(lane, b->at[b->rank]);
}

/* Where the blocks of a graph with addresses of its own lie in the memory that it shares. */
static void find_bytes(slot *s) {
    const symm_memplan *p = symm_handle_peek(SYMM_KIND_PLAN, s->plan);
    for (int i = 0; i < s->nown + s->nleft; i++) {
        block *b = i < s->nown ? s->own[i] : s->left[i - s->nown];
        for (int j = 0; j < p->nblocks; j++)
            if (p->blocks[j].off == b->unit * UNIT) {
                b->unit = p->blocks[j].at / UNIT;
                break;
            }
        T_CHECK(b->unit + b->units <= UNITS);
    }
}

static void bind_graph(model *m, slot *s) {
    const symmStream_t on = m->stream[s->lane];
    const symm_memlane *l = symm_memlane_peek(m->k.lane[s->lane]);
    const int aliased = l->region->alias != NULL;
    s->flags = one_in(m, 4) ? SYMM_MEMPLAN_AUTO_FREE : 0;
    s->plan = lk_bind(m->k.lane[s->lane], s->g, s->flags | (aliased ? SYMM_MEMPLAN_ALIAS : 0));
    if (!aliased) return;
    T_OK(symmMemPlanUpload(s->plan, xg_exec(s->g), on));
    find_bytes(s);
    m->aliased++;
}

static void capture(model *m, slot *s) {
    const int lane = (int)draw(&m->common, LANES);
    if (!m->k.lane[lane]) return;
    *s = (slot){.kind = CAPTURED, .lane = lane, .region = m->region[lane], .stream = lane};
    T_OK(symmStreamBeginCapture(m->stream[lane]));
    const int n = 1 + (int)draw(&m->common, 3);
    for (int i = 0; i < n; i++) capture_block(m, s, s->nleft < 2 && one_in(m, 2));
    block *b = any_live(m);
    if (b && one_in(m, 3)) {
        look(m, m->stream[lane], b, 1);
        lk_free(m->k.lane[lane], b->at[b->rank]);
        s->frees[s->nfrees++] = b;
    }
    if (one_in(m, 2)) capture_block(m, s, 0);
    s->g = lk_end(m->stream[lane]);
    bind_graph(m, s);
}

static void add_node(model *m, slot *s) {
    const unsigned flags = draw_flags(m);
    symmAllocNode_t params = {.size = sizeof params, .bytes = draw_bytes(m), .flags = flags};
    symmGraphNode_t node;
    void *p;
    T_OK(symmMemPlanAddAllocNode(s->plan, NULL, 0, &params, &node, &p));
    s->left[s->nleft++] = new_block(m, s->region, p, params.bytes, flags);
}

static void make_nodes(model *m, slot *s) {
    const int lane = (int)draw(&m->common, LANES);
    if (!m->k.lane[lane]) return;
    *s = (slot){.kind = NODES, .lane = lane, .region = m->region[lane], .stream = lane};
    T_OK(symmMemPlanCreate(m->k.lane[lane], NULL, 0, &s->plan));
    add_node(m, s);
}

/* With what lies behind it in guard mode, of captured blocks. */
static uint64_t end_of(const block *b) {
    return b->unit + (b->red ? symm_round_up(b->bytes + 256, 256) / UNIT : b->units);
}

static int overlap(const block *a, const block *b) {
    return !((a->flags | b->flags) & SYMM_ALLOC_KEEP) && a->unit < end_of(b) && b->unit < end_of(a);
}

static int lies_under(const slot *s, const block *b) {
    for (int i = 0; i < s->nown; i++)
        if (overlap(s->own[i], b)) return 1;
    for (int i = 0; i < s->nleft; i++)
        if (overlap(s->left[i], b)) return 1;
    return 0;
}

static int allowed(const model *m, const slot *s) {
    for (int i = 0; i < s->nleft; i++)
        if (s->left[i]->live && !(s->flags & SYMM_MEMPLAN_AUTO_FREE)) return 0;
    for (int i = 0; i < s->nfrees; i++)
        if (!s->frees[i]->live) return 0;
    for (const slot *o = m->slots; o < m->slots + SLOTS; o++)
        for (int i = 0; i < o->nleft && o != s && o->region == s->region; i++)
            if (o->left[i]->live && lies_under(s, o->left[i])) return 0;
    return 1;
}

/* What the program does beside: order those who free behind those who use, and make what a plan of
 * nodes stands for. */
static void launch(model *m, slot *s) {
    const int on = (int)draw(&m->common, STREAMS);
    const symmStream_t st = m->stream[on];
    int shared = 0;
    if (!s->plan || (s->kind == CAPTURED && !s->g)) return;
    if (!allowed(m, s)) {
        if (m->refused++ < 3)
            T_ERR(symmMemPlanLaunch(s->plan, xg_exec(s->g), st), symmInvalidUsage);
        return;
    }
    for (int i = 0; i < s->nleft; i++) {
        if (!s->left[i]->live) continue;
        behind_users(m, s->left[i], st);
        look(m, st, s->left[i], 1);
    }
    for (int i = 0; i < s->nfrees; i++) behind_users(m, s->frees[i], st);
    const symm_memplan *p = symm_handle_peek(SYMM_KIND_PLAN, s->plan);
    if (p->alias)
        T_OK(symmMemPlanUpload(s->plan, NULL, NULL)); /* its memory may have been trimmed */
    const int by_program = s->kind == CAPTURED && m->k.n == 1 && one_in(m, 4);
    T_OK(symmMemPlanLaunch(s->plan, xg_exec(by_program ? NULL : s->g), st));
    if (by_program) T_OK(symmGraphLaunch(xg_exec(s->g), st));
    for (int i = 0; i < s->nfrees; i++) s->frees[i]->live = 0;
    for (int i = 0; i < s->nleft; i++) {
        block *b = s->left[i];
        if (s->kind == NODES) begin(st, b);
        b->live = 1;
        b->streams = 1u << on;
        shared |= b->n > 1;
    }
    if (shared) T_OK(symmBarrier(m->k.comm, st)); /* they live on all ranks */
    s->stream = on;
    m->launches++;
}

static void use_block(model *m) {
    const unsigned on = draw(&m->common, STREAMS);
    block *b = any_live(m);
    if (!b) return;
    behind_users(m, b, m->stream[on]);
    look(m, m->stream[on], b, 0);
    b->streams |= 1u << on;
}

static void free_block(model *m, block *b) {
    int lane = (int)draw(&m->common, LANES);
    while (!m->k.lane[lane]) lane = (lane + 1) % LANES;
    if (!b) return;
    behind_users(m, b, m->stream[lane]);
    look(m, m->stream[lane], b, 1);
    lk_free(m->k.lane[lane], b->at[b->rank]);
    b->live = 0;
    m->frees++;
}

/* ---- others who want memory ------------------------------------------------------------------ */

/* Blocks of the program's, which it may use at once. */
static void heap_blocks(model *m, unsigned flags) {
    enum { MANY = 6 };
    void *p[MANY] = {NULL};
    for (int i = 0; i < MANY; i++) {
        const size_t bytes = draw_bytes(m);
        T_OK(symmHeapAlloc(m->k.heap, bytes, 0, flags, &p[i]));
        const block *b = new_block(m, -1, p[i], bytes, flags);
        for (uint64_t u = 0; u < b->units; u++)
            T_CHECKF(!atomic_load(unit(b->rank, b->unit + u)), "the heap gives unit %llu, in use",
                     (unsigned long long)(b->unit + u));
        m->nblocks--;
    }
    for (int i = 0; i < MANY; i++) T_OK(symmHeapFree(m->k.heap, p[i]));
}

static void eager_block(model *m) {
    const int lane = (int)draw(&m->common, LANES);
    const unsigned flags = one_in(m, 3) ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL;
    const size_t bytes = draw_bytes(m);
    if (!m->k.lane[lane]) return;
    block *b = new_block(m, -1, lk_alloc(m->k.lane[lane], bytes, flags), bytes, flags);
    begin(m->stream[lane], b);
    if (b->n > 1) T_OK(symmBarrier(m->k.comm, m->stream[lane]));
    look(m, m->stream[lane], b, 1);
    lk_free(m->k.lane[lane], b->at[b->rank]);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void end_something(model *m, slot *s) {
    if (s->plan && one_in(m, 2)) {
        T_OK(symmMemPlanDestroy(s->plan));
        s->plan = NULL;
    } else if (s->g) {
        T_OK(xg_destroy(s->g));
        s->g = NULL;
    }
}

static void tidy_slots(model *m) {
    for (slot *s = m->slots; s < m->slots + SLOTS; s++) {
        int live = 0;
        for (int i = 0; i < s->nleft; i++) live |= s->left[i]->live;
        if (!s->plan && !s->g && !live) *s = (slot){.kind = EMPTY};
    }
}

static void end_lane(model *m, int lane) {
    if (!m->k.lane[lane]) {
        T_OK(symmLaneCreate(m->k.heap, m->stream[lane], &m->k.lane[lane]));
        m->region[lane] = ++m->regions;
        return;
    }
    if (!m->k.lane[(lane + 1) % LANES] && !m->k.lane[(lane + 2) % LANES]) return;
    T_OK(symmLaneDestroy(m->k.lane[lane]));
    m->k.lane[lane] = NULL;
}

static void trim(model *m, int lane) {
    if (m->k.lane[lane]) T_OK(symmLaneTrimGraphMem(m->k.lane[lane], NULL));
}

/* All graphs of a region end while their blocks are still used, and at once the program wants
 * memory. */
static void let_go(model *m, int region, int lane) {
    for (slot *s = m->slots; s < m->slots + SLOTS; s++) {
        for (int i = 0; i < s->nleft && s->region == region; i++) {
            block *b = s->left[i];
            const int on = (int)draw(&m->common, STREAMS);
            if (!b->live) continue;
            behind_users(m, b, m->stream[on]);
            b->streams |= 1u << on;
            T_OK(symmStreamHostFunc(m->stream[on], nap, (void *)1000));
            look(m, m->stream[on], b, 0);
            free_block(m, b);
        }
        while (s->region == region && (s->plan || s->g)) end_something(m, s);
    }
    const unsigned what = draw(&m->common, 6);
    if (what < 2) trim(m, lane);
    if (what == 2) T_OK(symmHeapCollect(m->k.heap));
    if (what == 3 && m->k.lane[lane] && m->region[lane] == region) end_lane(m, lane);
    heap_blocks(m, SYMM_ALLOC_LOCAL);
    heap_blocks(m, SYMM_ALLOC_SYM);
}

static void step(model *m) {
    slot *s = &m->slots[draw(&m->common, SLOTS)];
    const unsigned what = draw(&m->common, 100);
    if (s->kind == EMPTY) {
        if (one_in(m, 4))
            make_nodes(m, s);
        else
            capture(m, s);
    } else if (what < 35) {
        launch(m, s);
    } else if (what < 50) {
        use_block(m);
    } else if (what < 70) {
        free_block(m, any_live(m));
    } else if (what < 76) {
        end_something(m, s);
    } else if (what < 80 && s->kind == NODES && s->nleft < LEFT && s->plan && m->k.lane[s->lane] &&
               m->region[s->lane] == s->region) {
        add_node(m, s);
    } else if (what < 84) {
        trim(m, s->lane);
    } else if (what < 86) {
        T_OK(symmHeapCollect(m->k.heap));
        T_OK(symmHeapCheck(m->k.heap));
        if (m->k.lane[0] && one_in(m, 2))
            T_OK(symmLaneAlias(m->k.lane[0], one_in(m, 3) ? 0 : 4 << 20));
    } else if (what < 94) {
        heap_blocks(m, one_in(m, 3) ? SYMM_ALLOC_SYM : SYMM_ALLOC_LOCAL);
    } else if (what < 96) {
        eager_block(m);
    } else if (what < 99) {
        let_go(m, s->region, s->lane);
    } else {
        end_lane(m, (int)draw(&m->common, LANES));
    }
    tidy_slots(m);
}

static void end_all(model *m) {
    symmHeapInfo_t i = {.size = sizeof i};
    for (block *b = any_live(m); b; b = any_live(m)) free_block(m, b);
    for (slot *s = m->slots; s < m->slots + SLOTS; s++)
        while (s->plan || s->g) end_something(m, s);
    for (int l = 0; l < LANES; l++)
        if (m->k.lane[l]) T_OK(symmLaneDestroy(m->k.lane[l]));
    for (int s = 0; s < STREAMS; s++) T_OK(symmStreamSynchronize(m->stream[s]));
    T_OK(symmHeapCollect(m->k.heap));
    T_OK(symmHeapCheck(m->k.heap));
    T_OK(symmHeapQuery(m->k.heap, &i));
    T_EQ(i.symUsed + i.localUsed + i.uncollected, 0);
    for (uint64_t u = 0; u < UNITS; u++) T_EQ(atomic_load(unit(m->k.rank, u)), 0);
    for (int s = 0; s < STREAMS; s++) T_OK(symmStreamDestroy(m->stream[s]));
}

typedef struct {
    symmComm_t comms[RANKS];
    uint64_t seed;
    int steps;
} game;

static void play(int rank, int n, void *arg) {
    const game *g = arg;
    model *m = calloc(1, sizeof *m);
    T_CHECK(m != NULL);
    lk_open(&m->k, rank, n, g->comms[rank], 0, 16 * LK_MB, 16 * LK_MB);
    m->common = g->seed;
    m->own = g->seed + 1 + (uint64_t)rank;
    for (int s = 0; s < STREAMS; s++) T_OK(symmStreamCreate(&m->stream[s]));
    for (int l = 0; l < LANES; l++) {
        T_OK(symmLaneCreate(m->k.heap, m->stream[l], &m->k.lane[l]));
        m->region[l] = ++m->regions;
    }
    if (g->seed & 1) T_OK(symmLaneAlias(m->k.lane[0], 4 << 20));
    for (int i = 0; i < g->steps; i++) step(m);
    end_all(m);
    atomic_fetch_add(&aliased, m->aliased);
    T_CHECK(m->launches > g->steps / 20 && m->refused > 0 && m->frees > g->steps / 40);
    T_OK(symmHeapDestroy(m->k.heap));
    T_OK(symmCommDestroy(m->k.comm));
    free(m);
}

static void games(int n, int rounds, int steps) {
    const char *seed = getenv("T_SEED");
    T_EXPECT_WARNINGS();
    lk_env();
    setenv("SYMM_HEAP_GUARD", guard ? "1" : "0", 1);
    owner = calloc((size_t)n * UNITS, sizeof *owner);
    T_CHECK(owner != NULL);
    for (int i = 0; i < rounds; i++) {
        game g = {.seed = (seed ? strtoull(seed, NULL, 0) : 1) * 1000 + (uint64_t)i};
        g.steps = steps;
        T_OK(symmCommInitAll(g.comms, n, NULL));
        T_THREADS(n, play, &g);
    }
    free(owner);
    T_CHECK(aliased > 0);
}

static void random_graphs_of_one_rank(void) {
    games(1, T_TSAN || T_ASAN ? 4 : 10, 800);
}

static void random_graphs_of_two_ranks(void) {
    games(2, T_TSAN || T_ASAN ? 2 : 6, 400);
}

/* None of it is damage, and nothing that is painted comes into a block. */
static void random_graphs_in_guard_mode(void) {
    guard = 1;
    games(1, T_TSAN || T_ASAN ? 2 : 6, 800);
    games(2, T_TSAN || T_ASAN ? 1 : 4, 400);
}

T_MAIN(T(random_graphs_of_one_rank), T(random_graphs_of_two_ranks), T(random_graphs_in_guard_mode))
