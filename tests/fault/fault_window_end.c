/* fault_window_end.c - memory that ends while windows over it are registered, and other memory at
 * the same addresses: collectives must take the new memory for what it is, in no window. Ranks are
 * processes unless it says threads. */
#include "graph_kit.h"
#include "coll_kit.h"
#include "heap_kit.h"

enum { BIG = 8 << 20, COUNT = 60000, PART = COUNT * (int)sizeof(int) };

/* ---- collectives whose results are checked, and whether they were staged ---- */

static void put(hk *k, int *p, int salt) {
    for (int i = 0; i < COUNT; i++) p[i] = i * 3 + k->rank * 7 + salt;
}

static void gathered(hk *k, const int *p, int salt) {
    for (int r = 0; r < k->n; r++)
        for (int i = 0; i < COUNT; i++)
            T_CHECKF(p[r * COUNT + i] == i * 3 + r * 7 + salt,
                     "salt %d: element %d of rank %d is %d, not %d", salt, i, r, p[r * COUNT + i],
                     i * 3 + r * 7 + salt);
}

static void reduced(hk *k, const int *p, int salt) {
    for (int i = 0; i < COUNT; i++)
        T_CHECKF(p[i] == k->n * (i * 3 + salt) + 7 * k->n * (k->n - 1) / 2,
                 "salt %d: element %d of the sum is %d", salt, i, p[i]);
}

/* src and dst hold COUNT elements of each rank. */
static void use(hk *k, int *src, int *dst, int salt, symmStream_t stream) {
    put(k, src, salt);
    memset(dst, 0x5e, (size_t)PART * (unsigned)k->n);
    T_OK(symmAllGather(src, dst, COUNT, symmInt32, k->comm, stream));
    if (stream) T_OK(symmStreamSynchronize(stream));
    gathered(k, dst, salt);
    T_OK(symmAllReduce(src, dst, COUNT, symmInt32, symmSum, k->comm, stream));
    if (stream) T_OK(symmStreamSynchronize(stream));
    reduced(k, dst, salt);
    T_OK(symmAllReduce(src, src, COUNT, symmInt32, symmSum, k->comm, stream));
    if (stream) T_OK(symmStreamSynchronize(stream));
    reduced(k, src, salt);
}

static void is_taken(hk *k, const int *src, const int *dst, int in_place, int line) {
    symmExplain_t plan = {.size = sizeof plan};
    T_OK(symmExplain(k->comm, symmCollAllReduce, src, dst, COUNT, symmInt32, symmSum, 0, &plan));
    T_CHECKF(plan.zeroCopySend == in_place && plan.zeroCopyRecv == in_place,
             "line %d: zero-copy %d %d, must be %d (%s)", line, plan.zeroCopySend,
             plan.zeroCopyRecv, in_place, plan.reason);
}
#define IS_TAKEN(k, src, dst, in_place) is_taken(k, src, dst, in_place, __LINE__)

/* ---- the allocator gives the same addresses again ---- */

static int holds(const char *old, const void *p, uint64_t bytes) {
    const uint64_t in = (uint64_t)((uintptr_t)p - (uintptr_t)old);
    return in < BIG && bytes <= BIG - in;
}

static void reused(void *arg) {
    hk *k = arg;
    char *old;
    void *now[8];
    int inside = 0;
    symmWindow_t win;
    fk_gauges before = fk_take();
    hk_barrier(k);
    T_OK(symmMemAlloc((void **)&old, BIG));
    T_OK(symmWindowRegister(k->comm, old, BIG, &win, 0));
    use(k, (int *)(void *)old, (int *)(void *)(old + BIG / 2), 1, NULL);
    hk_barrier(k);
    T_OK(symmMemFree(old)); /* before it is deregistered */
    for (int i = 0; i < 8; i++) T_OK(symmMemAlloc(&now[i], BIG / 4));
    for (int i = 0; i < 8; i++) {
        int *p = now[i];
        inside += holds(old, p, BIG / 4);
        IS_TAKEN(k, p, p + COUNT, 0);
        use(k, p, p + COUNT, 10 * i, NULL);
    }
    if (!k->threads) T_CHECKF(inside > 0, "no allocation lies where the window was");
    T_OK(symmWindowDeregister(k->comm, win));
    for (int i = 0; i < 8; i++) T_OK(symmMemFree(now[i]));
    if (!k->threads) FK_COLLECTED(k->comm, &before);
    hk_barrier(k);
}
static void freed_memory_is_not_taken_for_new(void) {
    setenv("SYMM_DIRECT", "0", 1); /* so that what is in no window is staged */
    hk_processes(2, reused, NULL);
    hk_processes(3, reused, NULL);
    hk_threads(2, reused, NULL);
}

/* ---- memory that the test maps where it likes ---- */

typedef struct {
    char *at;
    uint64_t room;
} place;

static place place_new(uint64_t room) {
    void *va;
    T_EQ(symm_vmm_host.reserve(room, 0, &va), 0);
    return (place){va, room};
}

static void place_end(place *p) {
    T_EQ(symm_vmm_host.unreserve(p->at, p->room), 0);
}

static void map(const place *p, uint64_t off, uint64_t bytes) {
    symm_vmm_handle *h;
    T_EQ(symm_vmm_host.create(bytes, &h), 0);
    T_EQ(symm_vmm_host.map(p->at + off, bytes, 0, h), 0);
    T_EQ(symm_vmm_host.set_access(p->at + off, bytes), 0);
    T_EQ(symm_vmm_host.release(h), 0);
}

static void unmap(const place *p, uint64_t off, uint64_t bytes) {
    T_EQ(symm_vmm_host.unmap(p->at + off, bytes), 0);
}

/* The very same calls before and after, so that what is remembered of them has to be forgotten;
 * eager and on a stream. */
static void replaced(void *arg) {
    hk *k = arg;
    place p = place_new(BIG);
    symmWindow_t win[6];
    symmStream_t stream;
    int *src = (int *)(void *)(p.at + 64), *dst = (int *)(void *)(p.at + BIG / 2 + 64);
    T_OK(symmStreamCreate(&stream));
    for (int round = 0; round < 6; round++) {
        map(&p, 0, BIG);
        if (round) IS_TAKEN(k, src, dst, 0);
        use(k, src, dst, round, round % 2 ? stream : NULL);
        T_OK(symmWindowRegister(k->comm, p.at, BIG, &win[round], 0));
        IS_TAKEN(k, src, dst, 1);
        use(k, src, dst, round + 100, round % 2 ? stream : NULL);
        hk_barrier(k);
        if (round == 5) T_OK(symmWindowDeregister(k->comm, win[5])); /* before it ends */
        unmap(&p, 0, BIG);
        if (round == 2) T_OK(symmWindowDeregister(k->comm, win[1])); /* long after */
    }
    map(&p, 0, BIG);
    IS_TAKEN(k, src, dst, 0);
    use(k, src, dst, 7, NULL);
    hk_barrier(k);
    unmap(&p, 0, BIG);
    for (int round = 0; round < 5; round++)
        if (round != 1) T_OK(symmWindowDeregister(k->comm, win[round]));
    T_OK(symmStreamDestroy(stream));
    place_end(&p);
}
static void other_memory_at_the_same_addresses(void) {
    setenv("SYMM_DIRECT", "0", 1); /* so that what is in no window is staged */
    hk_processes(2, replaced, NULL);
    hk_processes(4, replaced, NULL);
    hk_threads(3, replaced, NULL);
}

/* What is left of a window is a window still, on either side of what ended; on one rank alone as on
 * all. */
static void partly(void *arg) {
    hk *k = arg;
    place p = place_new(3ull * BIG);
    symmWindow_t win, twin;
    int *part[3];
    for (uint64_t i = 0; i < 3; i++) {
        map(&p, i * BIG, BIG);
        part[i] = (int *)(void *)(p.at + i * BIG + 8192);
    }
    /* Begins behind the next one, so that it is found first. */
    T_OK(symmWindowRegister(k->comm, p.at + 4096, p.room - 4096, &win, 0));
    for (int i = 0; i < 3; i++) use(k, part[i], part[i] + 4 * COUNT, i, NULL);
    hk_barrier(k);
    const int mine = k->rank != 1;
    if (mine) {
        unmap(&p, BIG, BIG);
        map(&p, BIG, BIG);
    }
    for (int i = 0; i < 3; i++) {
        IS_TAKEN(k, part[i], part[i] + 4 * COUNT, !mine || i != 1);
        use(k, part[i], part[i] + 4 * COUNT, i + 10, NULL);
    }
    int *across = (int *)(void *)(p.at + BIG - PART / 2); /* begins before what ended */
    IS_TAKEN(k, across, across, !mine);
    use(k, across, part[2], 20, NULL);
    across = (int *)(void *)(p.at + 2ull * BIG - PART / 2);
    IS_TAKEN(k, across, across, !mine);
    use(k, across, part[0], 21, NULL);
    T_OK(symmWindowRegister(k->comm, p.at, p.room, &twin,
                            0)); /* over the first, which is there still */
    IS_TAKEN(k, across, across, 1);
    use(k, across, part[0], 22, NULL);
    T_OK(symmWindowDeregister(k->comm, k->rank ? win : twin));
    use(k, across, part[0], 23, NULL);
    T_OK(symmWindowDeregister(k->comm, k->rank ? twin : win));
    hk_barrier(k);
    unmap(&p, 0, p.room);
    place_end(&p);
}
static void what_is_left_of_a_window_is_one(void) {
    setenv("SYMM_DIRECT", "0", 1); /* so that what is in no window is staged */
    hk_processes(2, partly, NULL);
    hk_processes(3, partly, NULL);
    hk_threads(3, partly, NULL);
}

/* ---- memory of a heap ---- */

static void trimmed(void *arg) {
    hk *k = arg;
    symmWindow_t win;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 0, 0);
    T_OK(symmHeapGrow(heap, 8 * HK_MB, 0));
    int *p = hk_sym(heap, 4 * HK_MB);
    T_OK(symmWindowRegister(k->comm, p, 4 * HK_MB, &win, 0));
    use(k, p, p + COUNT, 1, NULL);
    T_OK(symmHeapFree(heap, p));
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmHeapTrim(heap, 0, NULL));
    T_OK(symmHeapGrow(heap, 8 * HK_MB, 0));
    int *again = hk_sym(heap, 4 * HK_MB);
    T_CHECK(again == p);
    IS_TAKEN(k, p, p + COUNT, 1); /* in the heap's own window */
    for (int round = 0; round < 3; round++) use(k, p, p + COUNT, 5 + round, NULL);
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapDestroy(heap));
}
static void a_heap_that_is_trimmed_and_grown_again(void) {
    hk_processes(2, trimmed, NULL);
    hk_processes(3, trimmed, NULL);
    hk_threads(2, trimmed, NULL);
}

/* ---- captured calls ---- */

static symmGraph_t record(hk *k, int *p, symmStream_t stream) {
    symmGraph_t graph;
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmAllReduce(p, p, COUNT, symmInt32, symmSum, k->comm, stream));
    T_OK(symmStreamEndCapture(stream, &graph));
    return graph;
}

static void replay(hk *k, symmGraph_t graph, int *p, int salt, symmStream_t stream) {
    put(k, p, salt);
    T_OK(symmGraphLaunch(xg_exec(graph), stream));
    T_OK(symmStreamSynchronize(stream));
    reduced(k, p, salt);
}

/* A graph of memory that has not ended does not mind that other memory has. What is captured
 * afterwards takes memory at the same place for what it is; a replay of the older graph does not,
 * and ends the communicator. */
static void captured(void *arg) {
    hk *k = arg;
    place p = place_new(2ull * BIG);
    symmWindow_t win;
    symmStream_t stream;
    int *first = (int *)(void *)p.at, *second = (int *)(void *)(p.at + BIG);
    T_OK(symmStreamCreate(&stream));
    map(&p, 0, BIG);
    map(&p, BIG, BIG);
    T_OK(symmWindowRegister(k->comm, p.at, p.room, &win, 0));
    symmGraph_t one = record(k, first, stream), two = record(k, second, stream);
    replay(k, one, first, 1, stream);
    replay(k, two, second, 2, stream);
    hk_barrier(k);
    unmap(&p, BIG, BIG);
    replay(k, one, first, 3, stream);
    map(&p, BIG, BIG);
    replay(k, one, first, 4, stream);
    symmGraph_t three = record(k, second, stream);
    replay(k, three, second, 5, stream);
    T_OK(symmWindowDeregister(k->comm, win));
    replay(k, one, first, 6, stream);
    hk_barrier(k); /* a rank that is still in that call might end it with a peer's error */
    T_OK(symmGraphLaunch(xg_exec(two), stream));
    T_ERR(symmStreamSynchronize(stream), symmInvalidUsage);
    T_ERR(symmBarrier(k->comm, NULL), symmInvalidUsage);
    T_OK(xg_destroy(one));
    T_OK(xg_destroy(two));
    T_OK(xg_destroy(three));
    T_OK(symmStreamDestroy(stream));
    hk_barrier(k);
    unmap(&p, 0, p.room);
    place_end(&p);
}

/* The memory has ended on one rank only, and the graph has another call behind: that must not meet
 * the others' part of the first. */
static void captured_on_one(void *arg) {
    hk *k = arg;
    place p = place_new(BIG);
    symmWindow_t win;
    symmStream_t stream;
    symmGraph_t graph;
    int *in = (int *)(void *)p.at, *other = calloc(COUNT, sizeof *other);
    T_OK(symmStreamCreate(&stream));
    map(&p, 0, BIG);
    T_OK(symmWindowRegister(k->comm, p.at, p.room, &win, 0));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmAllReduce(in, in, COUNT, symmInt32, symmSum, k->comm, stream));
    T_OK(symmAllReduce(other, other, COUNT, symmInt32, symmSum, k->comm, stream));
    T_OK(symmStreamEndCapture(stream, &graph));
    replay(k, graph, in, 1, stream);
    hk_barrier(k);
    if (k->rank == 1) unmap(&p, 0, BIG);
    T_OK(symmGraphLaunch(xg_exec(graph), stream));
    T_ERR(symmStreamSynchronize(stream), symmInvalidUsage);
    if (k->rank == 1)
        T_MSG(symmGetLastError(NULL), "has ended");
    else
        T_MSG(symmGetLastError(NULL), "rank 1");
    for (int i = 0; i < COUNT; i++) T_EQ(other[i], 0);
    T_OK(xg_destroy(graph));
    T_OK(symmStreamDestroy(stream));
    hk_barrier(k);
    if (k->rank != 1) unmap(&p, 0, BIG);
    place_end(&p);
    free(other);
}
static void a_replay_that_one_rank_refuses_is_everybodys_error(void) {
    T_EXPECT_WARNINGS();
    hk_processes(2, captured_on_one, NULL);
    hk_processes(3, captured_on_one, NULL);
    hk_threads(3, captured_on_one, NULL);
}
static void captured_calls_do_not_outlive_their_memory(void) {
    T_EXPECT_WARNINGS();
    hk_processes(2, captured, NULL);
    hk_processes(3, captured, NULL);
    hk_threads(2, captured, NULL);
}

/* ---- allocate, register, free, allocate, deregister: drawn ---- */

enum { BUFS = 6, WINS = 8, MANY = 20000, STEPS = T_TSAN ? 150 : 400 };

typedef struct {
    char *at; /* NULL: none */
    uint64_t bytes;
} buffer;

typedef struct {
    buffer buf[BUFS];
    symmWindow_t win[WINS];
    int again; /* new memory that lies over a window's, so far */
    buffer over[WINS];
    int loose[MANY];
} rig;

static void draw_alloc(rig *g, buffer *b, uint64_t h) {
    b->bytes = (1 + h % 4) * (2ull << 20);
    T_OK(symmMemAlloc((void **)&b->at, b->bytes));
    for (int w = 0; w < WINS; w++)
        g->again += g->win[w] && g->over[w].at < b->at + b->bytes &&
                    b->at < g->over[w].at + g->over[w].bytes;
}

/* All ranks register, each what its number says it has. */
static void draw_register(hk *k, rig *g, int w, uint64_t all, uint64_t mine) {
    buffer *b = &g->buf[all % BUFS];
    if (g->win[w] || !b->at) return;
    const uint64_t off = mine % 5 * 4096, less = mine / 5 % 3 * 8192;
    g->over[w] = (buffer){b->at + off, b->bytes - off - less};
    T_OK(symmWindowRegister(k->comm, g->over[w].at, g->over[w].bytes, &g->win[w], 0));
}

static void draw_call(hk *k, rig *g, uint64_t all, uint64_t mine, int salt) {
    const buffer *b = &g->buf[(all ^ mine % 3) % BUFS];
    for (int i = 0; !b->at && i < BUFS; i++) b = &g->buf[i];
    int *p = b->at ? (int *)(void *)(b->at + mine % 7 * 64) : NULL;
    if (!p) p = g->loose;
    for (int i = 0; i < MANY; i++) p[i] = i + k->rank + salt;
    T_OK(symmAllReduce(p, p, all % 2 ? MANY : 60, symmInt32, symmSum, k->comm, NULL));
    for (int i = 0; i < (all % 2 ? MANY : 60); i++)
        T_CHECKF(p[i] == k->n * (i + salt) + k->n * (k->n - 1) / 2, "call %d: element %d is %d",
                 salt, i, p[i]);
}

/* all: equal on all ranks; mine: this rank's. Who has freed what, and when, is each rank's own
 * affair. */
static void draw(hk *k, rig *g, uint64_t all, uint64_t mine, int step) {
    buffer *b = &g->buf[all / 16 % BUFS], *own = &g->buf[mine / 16 % BUFS];
    const int w = (int)(all / 64 % WINS);
    switch (all % 8) {
    case 0: /* all have it afterwards, so that they can register it */
        if (!b->at) draw_alloc(g, b, all / 1024);
        break;
    case 1: draw_register(k, g, w, all / 4096, mine / 4096); break;
    case 2:
        if (own->at && mine % 2) T_OK(symmMemFree(own->at));
        if (own->at && mine % 2) draw_alloc(g, own, mine / 1024); /* often where it was */
        break;
    case 3:
        if (b->at) T_OK(symmMemFree(b->at));
        b->at = NULL;
        break;
    case 4:
        if (g->win[w]) T_OK(symmWindowDeregister(k->comm, g->win[w]));
        g->win[w] = NULL;
        break;
    default: draw_call(k, g, all / 16, mine / 16, step); break;
    }
}

static void drawn(void *arg) {
    hk *k = arg;
    const uint64_t seed = *(const uint64_t *)k->arg;
    const int steps = ck_full() ? 20 * STEPS : STEPS;
    rig *g = calloc(1, sizeof *g);
    T_CHECK(g != NULL);
    for (int i = 0; i < steps; i++)
        draw(k, g, ck_hash(seed, (uint64_t)i, 0),
             ck_hash(seed, (uint64_t)i, 1u + (unsigned)k->rank), i);
    if (!k->threads) T_CHECKF(g->again > 0, "no memory came to lie where a window was");
    for (int w = 0; w < WINS; w++)
        if (g->win[w]) T_OK(symmWindowDeregister(k->comm, g->win[w]));
    hk_barrier(k);
    for (int b = 0; b < BUFS; b++)
        if (g->buf[b].at) T_OK(symmMemFree(g->buf[b].at));
    free(g);
}
static void allocate_register_free_allocate_deregister(void) {
    uint64_t seed = ck_seed();
    printf("# T_SEED=%llu\n", (unsigned long long)seed);
    for (int n = 2; n <= 5; n++) hk_processes(n, drawn, &seed);
    hk_threads(3, drawn, &seed);
}

/* ---- memory that is freed and never deregistered ---- */

static int64_t dropped_and_slots(int64_t *slots) {
    int64_t v[16], dropped = -1;
    const char *names[16];
    const int n = symm_stats_gauges(v, names, 16);
    for (int i = 0; i < n; i++) {
        if (!strcmp(names[i], "dropped")) dropped = v[i];
        if (!strcmp(names[i], "slots")) *slots = v[i];
    }
    return dropped;
}

static void let_go(void *arg) {
    enum { ROUNDS = 6 };
    hk *k = arg;
    symmWindow_t old[ROUNDS], none;
    int64_t slots = 0, first = 0;
    void *peer;
    for (int i = 0; i < ROUNDS; i++) {
        int *p;
        T_OK(symmMemAlloc((void **)&p, BIG));
        T_OK(symmWindowRegister(k->comm, p, BIG, &old[i], 0));
        use(k, p, p + COUNT, i, NULL);
        T_OK(symmMemFree(p));
        T_OK(symmWindowPeerPtr(old[i], 0, 0, &peer)); /* until the next registration */
        if (i == 1) (void)dropped_and_slots(&first);
    }
    T_OK(symmWindowRegister(k->comm, NULL, 0, &none, 0));
    T_OK(symmWindowDeregister(k->comm, none));
    T_OK(symmWindowRegister(k->comm, NULL, 0, &none, 0));
    (void)dropped_and_slots(&slots);
    T_CHECKF(slots <= first, "%d slots after %d windows, %d after 2", (int)slots, ROUNDS,
             (int)first);
    T_ERR(symmWindowPeerPtr(old[0], 0, 0, &peer), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "was freed");
    T_ERR(symmWindowGrow(old[0], 2 * BIG), symmInvalidUsage);
    for (int i = 0; i < ROUNDS; i++) T_OK(symmWindowDeregister(k->comm, old[i]));
    T_ERR(symmWindowDeregister(k->comm, old[0]), symmInvalidArgument);
    T_OK(symmWindowDeregister(k->comm, none));
}

/* What a graph holds is not let go. */
static void kept_by_a_graph(void *arg) {
    hk *k = arg;
    symmStream_t s;
    symmGraph_t graph;
    symmWindow_t win, none;
    int *p;
    void *peer;
    T_OK(symmStreamCreate(&s));
    T_OK(symmMemAlloc((void **)&p, BIG));
    T_OK(symmWindowRegister(k->comm, p, BIG, &win, 0));
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmAllReduce(p, p, COUNT, symmInt32, symmSum, k->comm, s));
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmMemFree(p));
    T_OK(symmWindowRegister(k->comm, NULL, 0, &none, 0));
    T_OK(symmWindowPeerPtr(win, 0, 0, &peer));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmWindowDeregister(k->comm, none));
    T_OK(symmStreamDestroy(s));
}

static void a_freed_window_lets_go_of_its_memory(void) {
    T_EXPECT_WARNINGS();
    hk_processes(3, let_go, NULL);
    hk_processes(2, kept_by_a_graph, NULL);
}

/* ---- more pieces than any list was once made for ---- */

static void many_pieces(void *arg) {
    enum { PIECE = 2 << 20, PIECES = 1900 };
    hk *k = arg;
    place p = place_new((uint64_t)PIECE * PIECES);
    symmWindow_t win, again;
    void *peer;
    for (int i = 0; i < PIECES; i++) map(&p, (uint64_t)i * PIECE, PIECE);
    T_OK(symmWindowRegister(k->comm, p.at, (size_t)PIECE * PIECES, &win, 0));
    for (int i = 0; i < PIECES; i += 499) {
        int *src = (int *)(void *)(p.at + (uint64_t)i * PIECE + 64), *dst = src + COUNT;
        IS_TAKEN(k, src, dst, 1);
        use(k, src, dst, i, NULL);
        T_OK(symmWindowPeerPtr(win, (size_t)i * PIECE + 64, (k->rank + 1) % k->n, &peer));
        T_OK(symmBarrier(k->comm, NULL));
        T_EQ(*(int *)peer, src[0]);
        T_OK(symmBarrier(k->comm, NULL));
    }
    T_OK(symmWindowRegister(k->comm, p.at, (size_t)PIECE * PIECES, &again, 0));
    T_OK(symmWindowDeregister(k->comm, again));
    T_OK(symmWindowDeregister(k->comm, win));
    hk_barrier(k);
    unmap(&p, 0, (uint64_t)PIECE * PIECES);
    place_end(&p);
}

static void thousands_of_pieces_are_one_window(void) {
    hk_processes(2, many_pieces, NULL);
    hk_threads(2, many_pieces, NULL);
}

/* ---- while a stream is captured ---- */

/* Registered between two calls of a capture, and used by the second one without a copy. */
static void in_a_capture(void *arg) {
    hk *k = arg;
    symmStream_t s;
    symmGraph_t graph;
    symmGraphExec_t exec;
    symmWindow_t win;
    int *p;
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmBarrier(k->comm, s));
    T_OK(symmMemAlloc((void **)&p, BIG));
    T_OK(symmWindowRegister(k->comm, p, BIG, &win, 0));
    IS_TAKEN(k, p, p + COUNT, 1);
    T_OK(symmAllReduce(p, p + COUNT, COUNT, symmInt32, symmSum, k->comm, s));
    T_OK(symmStreamEndCapture(s, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    for (int i = 0; i < 3; i++) {
        put(k, p, i);
        T_OK(symmGraphLaunch(exec, s));
        T_OK(symmStreamSynchronize(s));
        reduced(k, p + COUNT, i);
    }
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmMemFree(p));
    T_OK(symmStreamDestroy(s));
}

static void registered_inside_a_capture(void) {
    hk_processes(3, in_a_capture, NULL);
    hk_threads(2, in_a_capture, NULL);
}

T_MAIN(T(registered_inside_a_capture), T(thousands_of_pieces_are_one_window),
       T(a_freed_window_lets_go_of_its_memory), T(freed_memory_is_not_taken_for_new),
       T(other_memory_at_the_same_addresses), T(what_is_left_of_a_window_is_one),
       T(a_heap_that_is_trimmed_and_grown_again), T(captured_calls_do_not_outlive_their_memory),
       T(a_replay_that_one_rank_refuses_is_everybodys_error),
       T(allocate_register_free_allocate_deregister))
