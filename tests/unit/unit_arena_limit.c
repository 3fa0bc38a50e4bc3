/* unit_arena_limit.c - what fits into an arena's limit beside what is in use is given, whatever was
 * taken and freed before: fixed cases, and random calls against a model that knows the rule. */
#include <stdlib.h>
#include <unistd.h>

#include "heap_kit.h"
#include "symm_arena.h"

#define KB (1ull << 10)
#define MB HK_MB

static symmArena_t open_arena(symmHeap_t heap, uint64_t bytes, uint64_t superblock) {
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    symmArena_t a = NULL;
    c.bytes = bytes;
    c.superblock = superblock;
    c.name = "tested";
    T_OK(symmArenaCreate(heap, &c, &a));
    return a;
}

static symmArenaInfo_t info(symmArena_t a) {
    symmArenaInfo_t i = {.size = sizeof i};
    T_OK(symmArenaQuery(a, &i));
    return i;
}

static char *take(symmArena_t a, size_t bytes, symmStream_t s) {
    void *p = NULL;
    T_OK(symmArenaAlloc(a, bytes, 0, s, &p));
    return p;
}

static void give(symmArena_t a, void *p, symmStream_t s) {
    T_OK(symmArenaFree(a, p, s));
}

static void shuffle(void **p, int n, uint64_t *state) {
    for (int i = n; i > 1; i--) {
        const uint64_t k = t_draw(state, (uint64_t)i);
        void *q = p[i - 1];
        p[i - 1] = p[k];
        p[k] = q;
    }
}

/* ---- more than there is ---------------------------------------------------------------------- */

/* No sum of a size and a limit overflows, with red zones or without. */
static void endless_rank(void *arg) {
    static const uint64_t limits[] = {1ull << 40, 1ull << 63, UINT64_MAX};
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 300, 1ull << 63, 65 * MB};
    hk *k = arg;
    void *p;
    T_EXPECT_WARNINGS();
    for (int guard = 0; guard < 2; guard++) {
        symmHeapConfig_t c = hk_config(64 * MB, 0, 8 * MB);
        symmHeap_t heap;
        c.guard = guard;
        T_OK(symmHeapCreate(k->comm, &c, &heap));
        for (int i = 0; i < 3; i++) {
            symmArena_t a = open_arena(heap, limits[i], 0);
            T_EQ(info(a).limit, 64 * MB);
            for (int j = 0; j < 4; j++) {
                T_ERR(symmArenaAlloc(a, sizes[j], 0, NULL, &p), symmOutOfMemory);
                T_ERR(symmArenaAlloc(a, sizes[j], 64 * KB, NULL, &p), symmOutOfMemory);
            }
            p = take(a, 100000, NULL);
            memset(p, 1, 100000);
            give(a, p, NULL);
            give(a, take(a, 4 * MB, NULL), NULL);
            T_OK(symmArenaDestroy(a));
        }
        T_OK(symmHeapDestroy(heap));
    }
}
static void a_limit_beyond_the_heap_is_the_heaps(void) {
    hk_processes(1, endless_rank, NULL);
}

/* ---- all of it, after a past ----------------------------------------------------------------- */

typedef struct {
    symmArena_t a;
    int on_streams;
} past;

/* A thread with or without a stream of its own: a small block, and many in random order. */
static void use_a_while(int rank, int n, void *arg) {
    const past *x = arg;
    void *p[40];
    uint64_t state = 11 + (uint64_t)rank;
    symmStream_t s = NULL;
    (void)n;
    if (x->on_streams) T_OK(symmStreamCreate(&s));
    give(x->a, take(x->a, 32 * KB, s), s);
    for (int i = 0; i < 40; i++) p[i] = take(x->a, t_draw(&state, 20 * KB) + 1, s);
    shuffle(p, 40, &state);
    for (int i = 0; i < 40; i++) give(x->a, p[i], s);
    if (x->on_streams) T_OK(symmStreamDestroy(s));
}

/* Threads, or streams, have used the arena; then one block takes all of it. */
static void whole_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 0, 32 * MB);
    for (int setting = 0; setting < 4; setting++) {
        past x = {open_arena(heap, 4 * MB, setting & 1 ? MB : 16 * KB), setting >> 1};
        T_THREADS(4, use_a_while, &x);
        char *p = take(x.a, 4 * MB, NULL);
        memset(p, 1, 4 * MB);
        T_EQ(info(x.a).held, 4 * MB);
        give(x.a, p, NULL);
        T_OK(symmArenaDestroy(x.a));
    }
    T_OK(symmHeapDestroy(heap));
}
static void all_of_it_after_threads_and_streams(void) {
    hk_processes(1, whole_rank, NULL);
}

/* Blocks of many sizes, freed in random order; then the largest that there can be. */
static void shuffled_rank(void *arg) {
    enum { N = 60 };
    hk *k = arg;
    void *p[N];
    uint64_t state = 5;
    symmHeap_t heap = hk_heap(k, 128 * MB, 0, 64 * MB);
    symmArena_t a = open_arena(heap, 32 * MB, 0);
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < N; i++) p[i] = take(a, t_draw(&state, 512 * KB) + 1, NULL);
        shuffle(p, N, &state);
        for (int i = 0; i < N; i++) give(a, p[i], NULL);
        give(a, take(a, 32 * MB, NULL), NULL);
    }
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}
static void all_of_it_after_random_frees(void) {
    hk_processes(1, shuffled_rank, NULL);
}

/* 12 of 32 MiB are in use: so 20 are left, once, whatever alignment they need. */
static void beside_rank(void *arg) {
    hk *k = arg;
    char *p[16];
    T_EXPECT_WARNINGS();
    symmHeap_t heap = hk_heap(k, 256 * MB, 0, 128 * MB);
    for (uint64_t align = 0; align <= 2 * MB; align += MB) {
        symmArena_t a = open_arena(heap, 32 * MB, 0);
        void *rest, *more;
        for (int i = 0; i < 16; i++) p[i] = take(a, 2 * MB, NULL);
        for (int i = 0; i < 16; i++)
            if (i % 8 < 5) give(a, p[i], NULL);
        T_EQ(info(a).used, 12 * MB);
        T_OK(symmArenaAlloc(a, 20 * MB, align, NULL, &rest));
        T_CHECK(!align || (uintptr_t)rest % align == 0);
        T_EQ(info(a).held, 32 * MB);
        T_ERR(symmArenaAlloc(a, 1, 0, NULL, &more), symmOutOfMemory);
        T_MSG(symmGetLastError(NULL), "33554432 of at most 33554432");
        give(a, rest, NULL);
        T_OK(symmArenaDestroy(a));
    }
    T_OK(symmHeapDestroy(heap));
}
static void what_is_left_beside_blocks(void) {
    hk_processes(1, beside_rank, NULL);
}

/* A small block is left in each piece: superblocks are what the limit counts, not pieces. */
static void pinned_rank(void *arg) {
    enum { N = 16 };
    hk *k = arg;
    char *large[N], *small[N];
    symmHeap_t heap = hk_heap(k, 256 * MB, 0, 128 * MB);
    symmArena_t a = open_arena(heap, 32 * MB, 0);
    for (int i = 0; i < N; i++) {
        small[i] = take(a, 20 * KB, NULL); /* more than a superblock: it lies in two */
        large[i] = take(a, 2 * MB - 32 * KB, NULL);
    }
    for (int i = 0; i < N; i++) give(a, large[i], NULL);
    void *p = take(a, 31 * MB, NULL);
    T_EQ(info(a).used, 31 * MB + N * 20 * KB);
    give(a, p, NULL);
    for (int i = 0; i < N; i++) give(a, small[i], NULL);
    T_OK(symmArenaDestroy(a));
    T_EQ(hk_info(heap).localUsed, 0);
    T_OK(symmHeapDestroy(heap));
}
static void blocks_pin_superblocks_only(void) {
    hk_processes(1, pinned_rank, NULL);
}

/* ---- memory that a stream may still use ------------------------------------------------------ */

static _Atomic int gate;
static void wait_gate(void *arg) {
    (void)arg;
    while (!atomic_load(&gate)) usleep(50);
}
static void *open_gate(void *arg) {
    (void)arg;
    usleep(20000);
    atomic_store(&gate, 1);
    return NULL;
}

/* A block grows on a stream that does not come on: what was freed is made longer, nobody waits. */
static void grown_rank(void *arg) {
    hk *k = arg;
    symmStream_t s, t;
    symmHeap_t heap = hk_heap(k, 64 * MB, 0, 32 * MB);
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamCreate(&t));
    for (int other = 0; other < 2; other++) {
        symmArena_t a = open_arena(heap, 8 * MB, 0);
        atomic_store(&gate, 0);
        T_OK(symmStreamHostFunc(s, wait_gate, NULL));
        for (uint64_t bytes = MB; bytes <= 8 * MB; bytes *= 2)
            give(a, take(a, bytes, other && bytes == 8 * MB ? t : s), s);
        T_EQ(info(a).held, 8 * MB);
        T_EQ(info(a).waits, (uint64_t)other);
        atomic_store(&gate, 1);
        T_OK(symmStreamSynchronize(t));
        T_OK(symmArenaDestroy(a));
    }
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
    T_OK(symmHeapDestroy(heap));
}
static void a_free_neighbour_is_extended(void) {
    hk_processes(1, grown_rank, NULL);
}

/* It cannot be made longer, for others have what lies beside it: the call waits until it can be
 * changed for other memory. */
static void waited_rank(void *arg) {
    hk *k = arg;
    symmStream_t s, t;
    pthread_t opener;
    void *wall[2];
    symmHeap_t heap = hk_heap(k, 64 * MB, 0, 32 * MB);
    symmArena_t a = open_arena(heap, 4 * MB, 0);
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamCreate(&t));
    atomic_store(&gate, 0);
    T_OK(symmStreamHostFunc(s, wait_gate, NULL));
    wall[0] = hk_local(heap, MB);
    char *p = take(a, 2 * MB, s);
    wall[1] = hk_local(heap, MB);
    give(a, p, s);
    T_EQ(pthread_create(&opener, NULL, open_gate, NULL), 0);
    char *q = take(a, 4 * MB, t);
    T_EQ(atomic_load(&gate), 1);
    pthread_join(opener, NULL);
    T_EQ(info(a).held, 4 * MB);
    give(a, q, t);
    T_OK(symmStreamDestroy(s));
    T_OK(symmStreamDestroy(t));
    T_OK(symmArenaDestroy(a));
    for (int i = 0; i < 2; i++) T_OK(symmHeapFree(heap, wall[i]));
    T_OK(symmHeapDestroy(heap));
}
static void before_it_refuses_it_waits(void) {
    hk_processes(1, waited_rank, NULL);
}

/* ---- the model ------------------------------------------------------------------------------- */

enum { MOST = 400, WALLS = 12, CELL = 16 << 10, ZONE = 48 << 20, CELLS = ZONE / CELL };

typedef struct {
    char *at;
    uint64_t bytes;
} block;

typedef struct {
    symmHeap_t heap;
    symmArena_t a;
    symmStream_t s[3];
    uint64_t limit, low; /* low: address of the zone's first byte */
    block b[MOST], wall[WALLS];
    int n, given, refused, forced;
} model;

/* Marks what blocks lie in; returns in how many cells. */
static uint64_t mark(const model *m, unsigned char *cell, const block *b, int n) {
    uint64_t marked = 0;
    for (int i = 0; i < n; i++)
        for (uint64_t at = ((uintptr_t)b[i].at - m->low) / CELL;
             b[i].at && at <= ((uintptr_t)b[i].at + b[i].bytes - 1 - m->low) / CELL; at++) {
            marked += !cell[at];
            cell[at] = 1;
        }
    return marked;
}

/* The rule. 1: it must be given; 0: it must be refused; -1: it depends on the holes in
 * superblocks. */
static int rule(const model *m, uint64_t bytes, uint64_t align) {
    static unsigned char cell[CELLS];
    const uint64_t need = (bytes + CELL - 1) / CELL;
    uint64_t live = bytes, run = 0;
    memset(cell, 0, sizeof cell);
    for (int i = 0; i < m->n; i++) live += m->b[i].bytes;
    if (live > m->limit) return 0;
    const uint64_t held = mark(m, cell, m->b, m->n);
    if (held + need > m->limit / CELL) return -1;
    mark(m, cell, m->wall, WALLS);
    for (uint64_t i = 0; i < CELLS; i++) {
        if (cell[i] || (!run && align > CELL && (m->low + i * CELL) % align))
            run = 0;
        else if (++run == need)
            return 1;
    }
    return -1;
}

static uint64_t some_size(uint64_t *state) {
    static const uint64_t most[] = {KB, 16 * KB, 40 * KB, MB, 6 * MB};
    return t_draw(state, most[t_draw(state, 5)]) + 1;
}

static void try_one(model *m, uint64_t *state) {
    const int whole = !t_draw(state, 12); /* as much as must be given, to the last superblock */
    uint64_t bytes = some_size(state), align = t_draw(state, 3) ? 0 : 256u << t_draw(state, 13);
    symmStream_t s = t_draw(state, 2) ? NULL : m->s[t_draw(state, 3)];
    void *p = NULL;
    if (whole) {
        align = 0;
        for (bytes = m->limit; bytes > CELL && rule(m, bytes, align) != 1;) bytes -= CELL;
    }
    const int must = rule(m, bytes, align);
    symmResult_t r = symmArenaAlloc(m->a, bytes, align, s, &p);
    T_CHECKF(r == symmSuccess || r == symmOutOfMemory || r == symmNeedGrow, "code %d", r);
    T_CHECKF(must < 0 || must == !r,
             "%llu bytes, alignment %llu, %d blocks: code %d where the rule says %s: %s",
             (unsigned long long)bytes, (unsigned long long)align, m->n, r,
             must ? "given" : "refused", r ? symmGetLastError(NULL) : "");
    T_CHECK(info(m->a).held <= m->limit);
    m->forced += whole && must == 1;
    m->refused += r != symmSuccess;
    if (r) return;
    m->given++;
    bytes = (bytes + 255) & -256ull;
    for (int i = 0; i < m->n; i++)
        T_CHECK((char *)p + bytes <= m->b[i].at || m->b[i].at + m->b[i].bytes <= (char *)p);
    m->b[m->n++] = (block){p, bytes};
}

/* Memory of the heap's other users, which comes and goes. */
static void change_wall(model *m, uint64_t *state) {
    block *w = &m->wall[t_draw(state, WALLS)];
    void *p = NULL;
    if (w->at) T_OK(symmHeapFree(m->heap, w->at));
    *w = (block){0};
    if (t_draw(state, 2)) return;
    const uint64_t bytes = t_draw(state, 300 * KB) + 1;
    if (symmHeapAlloc(m->heap, bytes, 0, SYMM_ALLOC_LOCAL, &p)) return;
    *w = (block){p, (bytes + 255) & -256ull};
}

static void model_rank(void *arg) {
    hk *k = arg;
    static model m;
    const char *said = getenv("T_SEED");
    uint64_t state = said ? strtoull(said, NULL, 0) : (uint64_t)getpid() * 2654435761u;
    printf("# seed %llu\n", (unsigned long long)state);
    T_EXPECT_WARNINGS();
    m.heap = hk_heap(k, 2 * ZONE, 0, ZONE);
    symmHeapInfo_t i = hk_info(m.heap);
    m.low = i.base + i.reserve - i.localBytes;
    m.limit = 16 * MB;
    m.a = open_arena(m.heap, m.limit, CELL);
    for (int j = 0; j < 3; j++) T_OK(symmStreamCreate(&m.s[j]));
    for (int calls = 0; calls < (getenv("T_FULL") ? 200000 : 6000); calls++) {
        const uint64_t what = t_draw(&state, 100);
        if (what == 0) change_wall(&m, &state);
        if (what == 1 && !t_draw(&state, 4)) T_OK(symmArenaTrim(m.a, NULL));
        if (m.n < MOST && what < 56) {
            try_one(&m, &state);
        } else if (m.n) {
            block *b = &m.b[t_draw(&state, (uint64_t)m.n)];
            give(m.a, b->at, t_draw(&state, 2) ? NULL : m.s[t_draw(&state, 3)]);
            *b = m.b[--m.n];
        }
    }
    T_CHECKF(m.given > 100 && m.refused > 10 && m.forced > 10, "%d given, %d refused, %d forced",
             m.given, m.refused, m.forced);
    T_OK(symmArenaDestroy(m.a));
    for (int j = 0; j < WALLS; j++)
        if (m.wall[j].at) T_OK(symmHeapFree(m.heap, m.wall[j].at));
    for (int j = 0; j < 3; j++) T_OK(symmStreamDestroy(m.s[j]));
    T_EQ(hk_info(m.heap).localUsed, 0);
    T_OK(symmHeapDestroy(m.heap));
}
static void random_calls_against_a_model(void) {
    hk_processes(1, model_rank, NULL);
}

T_MAIN(T(all_of_it_after_threads_and_streams), T(all_of_it_after_random_frees),
       T(what_is_left_beside_blocks), T(blocks_pin_superblocks_only),
       T(a_free_neighbour_is_extended), T(before_it_refuses_it_waits),
       T(a_limit_beyond_the_heap_is_the_heaps), T(random_calls_against_a_model))
