/* unit_heap.c - heaps on processes and on thread ranks: placement alike on all ranks, reach into
 * peers' parts, growth that moves nothing, zones, references, collectives without registration,
 * what is refused. Each test runs on both kinds of ranks. */
#include "graph_kit.h"
#include "heap_kit.h"

enum { RANKS = 3 };

static void both(void (*fn)(void *)) {
    hk_processes(RANKS, fn, NULL);
    hk_threads(RANKS, fn, NULL);
}

/* ---- basics ---- */

static void make_use_end(void *arg) {
    hk *k = arg;
    fk_gauges before = fk_take();
    hk_barrier(k);
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 6 * HK_MB, 2 * HK_MB);
    symmHeapInfo_t i = hk_info(heap);
    T_EQ(i.reserve, 64 * HK_MB);
    T_EQ(i.symBytes, 6 * HK_MB);
    T_EQ(i.localBytes, 2 * HK_MB);
    T_EQ(i.chunks, 3); /* 4 + 2, and 2 */
    char *p = hk_sym(heap, 100000), *q = hk_sym(heap, 5);
    HK_ALIKE(k, hk_off(heap, k, p));
    HK_ALIKE(k, hk_off(heap, k, q));
    HK_ALIKE(k, hk_info(heap).digest);
    hk_fill(p, 100000, k->rank, 1);
    T_OK(symmBarrier(k->comm, NULL));
    for (int r = 0; r < k->n; r++) hk_holds(hk_peer(k, p, r), 100000, r, 1);
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapFree(heap, q));
    T_OK(symmHeapFree(heap, NULL));
    T_EQ(hk_info(heap).symUsed, 0);
    T_EQ(hk_info(heap).calls, 4);
    T_OK(symmHeapDestroy(heap));
    T_ERR(symmHeapDestroy(heap), symmInvalidArgument);
    hk_barrier(k);
    if (!k->threads) FK_COLLECTED(k->comm, &before);
    if (k->threads && k->rank == 0) FK_UNCHANGED(&before);
    hk_barrier(k);
}
static void a_heap_is_made_used_and_ended(void) {
    T_EXPECT_WARNINGS();
    both(make_use_end);
}

static void reduce_in_heap(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 8 * HK_MB, 0);
    int *send = hk_sym(heap, 3 << 20), *recv = hk_sym(heap, 3 << 20);
    symmExplain_t plan = {.size = sizeof plan};
    T_OK(symmExplain(k->comm, symmCollAllReduce, send, recv, 700000, symmInt32, symmSum, 0, &plan));
    T_EQ(plan.zeroCopySend, 1);
    T_EQ(plan.zeroCopyRecv, 1);
    fk_reduce(k->comm, k->rank, k->n, send, recv, 700000, NULL);
    fk_reduce(k->comm, k->rank, k->n, send, recv, 3, NULL);
    T_OK(symmHeapDestroy(heap));
}
static void collectives_use_it_in_place_without_registration(void) {
    both(reduce_in_heap);
}

static void grow_in_place(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 0, 0);
    void *p = NULL;
    T_ERR(symmHeapAlloc(heap, 3 * HK_MB, 0, SYMM_ALLOC_SYM, &p), symmNeedGrow);
    T_CHECK(p == NULL);
    T_OK(symmHeapGrow(heap, 5 * HK_MB, (uint64_t)k->rank * 3 * HK_MB));
    T_EQ(hk_info(heap).symBytes, 6 * HK_MB);
    T_EQ(hk_info(heap).localBytes, ((uint64_t)k->rank * 3 + 1) / 2 * 2 * HK_MB);
    char *a = hk_sym(heap, 3 * HK_MB);
    hk_fill(a, 3 * HK_MB, k->rank, 2);
    T_ERR(symmHeapAlloc(heap, 4 * HK_MB, 0, SYMM_ALLOC_SYM, &p), symmNeedGrow);
    T_OK(symmHeapGrow(heap, 20 * HK_MB, 0));
    char *b = hk_sym(heap, 20 * HK_MB); /* over chunks, and the rest of what was there */
    T_CHECK(b == a + 3 * HK_MB);
    hk_fill(b, 20 * HK_MB, k->rank, 3);
    T_OK(symmBarrier(k->comm, NULL));
    for (int r = 0; r < k->n; r++) {
        hk_holds(hk_peer(k, a, r), 3 * HK_MB, r, 2);
        hk_holds(hk_peer(k, b, r), 20 * HK_MB, r, 3);
    }
    T_OK(symmBarrier(k->comm, NULL));
    T_ERR(symmHeapGrow(heap, 40 * HK_MB, 0), symmOutOfMemory);
    T_ERR(symmHeapAlloc(heap, 50 * HK_MB, 0, SYMM_ALLOC_SYM, &p), symmOutOfMemory);
    T_OK(symmHeapDestroy(heap));
}
static void growth_moves_nothing(void) {
    T_EXPECT_WARNINGS();
    both(grow_in_place);
}

/* SYM is bounded by the rank with the most LOCAL memory, and every rank knows that. */
static void could(void *arg) {
    hk *k = arg;
    void *p;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 2 * HK_MB, (uint64_t)k->rank * 20 * HK_MB);
    T_ERR(symmHeapAlloc(heap, 25 * HK_MB, 0, SYMM_ALLOC_SYM, &p), symmOutOfMemory);
    T_ERR(symmHeapAlloc(heap, 24 * HK_MB, 0, SYMM_ALLOC_SYM, &p), symmNeedGrow);
    T_OK(symmHeapGrow(heap, 22 * HK_MB, 0));
    T_OK(symmHeapAlloc(heap, 24 * HK_MB, 0, SYMM_ALLOC_SYM, &p));
    T_ERR(symmHeapGrow(heap, 2 * HK_MB, 0), symmOutOfMemory);
    T_OK(symmHeapTrim(heap, 0, NULL)); /* all of LOCAL goes */
    T_OK(symmHeapGrow(heap, 40 * HK_MB, 0));
    T_OK(symmHeapDestroy(heap));
}
static void whether_growing_helps_is_the_same_on_all_ranks(void) {
    T_EXPECT_WARNINGS();
    both(could);
}

/* ---- LOCAL and references ---- */

static void send_refs(void *arg) {
    hk *k = arg;
    symmRef_t mine, all[RANKS], bad;
    void *at;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 2 * HK_MB, (uint64_t)(k->rank + 1) * 2 * HK_MB);
    const uint64_t bytes = (uint64_t)(k->rank + 1) * 300000;
    for (int i = 0; i < k->rank; i++) hk_local(heap, 1000); /* nobody else does so */
    char *p = hk_local(heap, bytes);
    hk_fill(p, bytes, k->rank, 4);
    T_OK(symmRefGet(p + 100, &mine));
    T_EQ(sizeof mine, 24);
    T_CHECK(mine.len >= bytes - 100 && mine.len < bytes + 256);
    T_EQ(mine.rank, k->rank);
    T_EQ(mine.flags, SYMM_ALLOC_LOCAL);
    T_OK(symmAllGather(&mine, all, sizeof mine, symmUint8, k->comm, NULL));
    for (int r = 0; r < k->n; r++) {
        T_OK(symmRefPtr(&all[r], k->comm, SYMM_REF_OWNER, &at));
        hk_holds((char *)at - 100, (uint64_t)(r + 1) * 300000, r, 4);
        if (r != k->rank) T_ERR(symmRefPtr(&all[r], k->comm, k->rank, &at), symmInvalidArgument);
    }
    bad = all[0];
    bad.heap += 9;
    T_ERR(symmRefPtr(&bad, k->comm, SYMM_REF_OWNER, &at), symmInvalidArgument);
    bad = all[0];
    bad.len = 1ull << 40;
    T_ERR(symmRefPtr(&bad, k->comm, SYMM_REF_OWNER, &at), symmInvalidArgument);
    for (uint64_t off = 64 * HK_MB + 1; off; off = off < 1ull << 60 ? 1ull << 60 : 0) {
        bad = (symmRef_t){.off = off, .heap = mine.heap, .flags = SYMM_ALLOC_LOCAL};
        T_ERR(symmRefPtr(&bad, k->comm, SYMM_REF_OWNER, &at), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "has addresses for 67108864 bytes");
    }
    bad.off = all[0].off + all[0].len; /* what follows the last byte: nothing of it is read */
    T_OK(symmRefPtr(&bad, k->comm, SYMM_REF_OWNER, &at));
    bad = all[0];
    bad.rank = RANKS;
    T_ERR(symmRefPtr(&bad, k->comm, SYMM_REF_OWNER, &at), symmInvalidArgument);
    T_ERR(symmRefGet(&mine, &bad), symmInvalidArgument);
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmHeapDestroy(heap));
}
static void a_reference_leads_peers_to_local_blocks(void) {
    T_EXPECT_WARNINGS();
    both(send_refs);
}

static void ask(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 2 * HK_MB, 2 * HK_MB);
    symmMemInfo_t i = {.size = sizeof i};
    char *s = hk_sym(heap, 1000), *l = hk_local(heap, 3000);
    T_OK(symmMemQuery(s + 999, &i));
    T_CHECK(i.heap == heap && i.block == s);
    T_EQ(i.bytes, 1024);
    T_EQ(i.offset, 0);
    T_EQ(i.owner, k->rank);
    T_EQ(i.symmetric, 1);
    T_EQ(i.lane, -1);
    T_OK(symmMemQuery(l + 1, &i));
    T_CHECK(i.heap == heap && i.block == l);
    T_EQ(i.symmetric, 0);
    T_EQ(i.offset, 64 * HK_MB - 3072);
    T_OK(symmHeapFree(heap, s));
    T_ERR(symmMemQuery(s, &i), symmInvalidArgument);
    T_ERR(symmMemQuery(&i, &i), symmInvalidArgument);
    T_OK(symmHeapDestroy(heap));
    T_ERR(symmMemQuery(l, &i), symmInvalidArgument);
}
static void every_byte_knows_its_block(void) {
    T_EXPECT_WARNINGS();
    both(ask);
}

static void align(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 16 * HK_MB, 16 * HK_MB);
    for (int zone = 0; zone < 2; zone++) {
        const unsigned flags = zone ? SYMM_ALLOC_LOCAL : SYMM_ALLOC_SYM;
        void *p[24];
        int n = 0;
        for (uint64_t a = 1; a <= 2 * HK_MB; a *= 2, n++) {
            T_OK(symmHeapAlloc(heap, 257, a, flags, &p[n]));
            T_EQ((uintptr_t)p[n] % a, 0);
            T_EQ((uintptr_t)p[n] % 256, 0);
        }
        T_EQ(zone ? hk_info(heap).localUsed : hk_info(heap).symUsed, (uint64_t)n * 512);
        for (int i = 0; i < n; i++) T_OK(symmHeapFree(heap, p[i]));
        T_OK(symmHeapAlloc(heap, 16 * HK_MB, 2 * HK_MB, flags, &p[0])); /* nothing has leaked */
        T_OK(symmHeapFree(heap, p[0]));
    }
    T_OK(symmHeapDestroy(heap));
}
static void alignment_is_kept_and_leaks_nothing(void) {
    both(align);
}

/* Where it does not fit with what alignment would leave, it may fit alone; and growth is asked for
 * only where it helps. */
static void align_full(void *arg) {
    hk *k = arg;
    symmHeapConfig_t c = hk_config(2 * HK_MB, 0, 2 * HK_MB);
    for (int fit = 0; fit < 2; fit++) {
        symmHeap_t heap;
        void *p, *q, *more;
        c.fit = fit;
        T_OK(symmHeapCreate(k->comm, &c, &heap));
        T_OK(symmHeapAlloc(heap, 256, 0, SYMM_ALLOC_LOCAL, &p));
        T_OK(symmHeapAlloc(heap, 256, HK_MB, SYMM_ALLOC_LOCAL, &p));
        T_OK(symmHeapAlloc(heap, 256, HK_MB, SYMM_ALLOC_LOCAL, &q));
        T_CHECK(p != q && (uintptr_t)p % HK_MB == 0 && (uintptr_t)q % HK_MB == 0);
        T_ERR(symmHeapAlloc(heap, 256, HK_MB, SYMM_ALLOC_LOCAL, &more), symmOutOfMemory);
        T_EQ(hk_info(heap).localUsed, 768);
        T_OK(symmHeapFree(heap, p));
        T_OK(symmHeapFree(heap, q));
        T_OK(
            symmHeapAlloc(heap, 2 * HK_MB - 256, HK_MB, SYMM_ALLOC_LOCAL, &p)); /* the whole hole */
        T_OK(symmHeapDestroy(heap));
    }
}
static void local_alignment_finds_every_hole(void) {
    T_EXPECT_WARNINGS();
    both(align_full);
}

/* ---- what is refused ---- */

static void refused(void *arg) {
    hk *k = arg;
    symmHeap_t a = hk_heap(k, 64 * HK_MB, 4 * HK_MB, 4 * HK_MB),
               b = hk_heap(k, 64 * HK_MB, 4 * HK_MB, 0), none = NULL;
    char *p = hk_sym(a, 4096), *q = hk_sym(a, 4096), *l = hk_local(a, 4096), x;
    void *out = &x;
    symmHeapInfo_t before = hk_info(a);
    T_ERR(symmHeapFree(a, p + 256), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "inside the block of 4096 bytes");
    T_ERR(symmHeapFree(a, l + 8), symmInvalidArgument);
    T_ERR(symmHeapFree(b, p), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "not of heap 2");
    T_ERR(symmHeapFree(a, &x), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "nor of another heap");
    T_ERR(symmHeapFree(a, p + 32 * HK_MB), symmInvalidArgument);
    T_ERR(symmHeapAlloc(a, 100, 3, 0, &out), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "align=3");
    T_CHECK(out == &x);
    T_ERR(symmHeapAlloc(a, 100, 4 * HK_MB, 0, &out), symmInvalidArgument);
    T_ERR(symmHeapAlloc(a, 100, 0, 2, &out), symmInvalidArgument);
    T_ERR(symmHeapAlloc(a, 100, 0, 0, NULL), symmInvalidArgument);
    T_ERR(symmHeapAlloc(none, 100, 0, 0, &out), symmInvalidArgument);
    T_ERR(symmHeapAlloc(none, 0, 0, 0, &out), symmInvalidArgument);
    T_ERR(symmHeapAlloc(a, SIZE_MAX, 0, 0, &out), symmOutOfMemory);
    T_ERR(symmHeapAlloc(a, SIZE_MAX - 100, 0, SYMM_ALLOC_LOCAL, &out), symmOutOfMemory);
    T_ERR(symmHeapAlloc(a, 1ull << 63, 2 * HK_MB, 0, &out), symmOutOfMemory);
    T_OK(symmHeapAlloc(a, 0, 0, 0, &out));
    T_CHECK(out == NULL);
    symmHeapInfo_t after = hk_info(a);
    T_EQ(memcmp(&before, &after, sizeof before), 0);
    T_OK(symmHeapFree(a, q));
    T_ERR(symmHeapFree(a, q), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "freed already");
    T_OK(symmHeapFree(a, l));
    T_ERR(symmHeapFree(a, l), symmInvalidArgument);
    HK_ALIKE(k, hk_info(a).digest);
    T_OK(symmHeapDestroy(a));
    T_ERR(symmHeapFree(a, p), symmInvalidArgument);
    T_OK(symmHeapDestroy(b));
}
static void wrong_calls_get_a_code_and_change_nothing(void) {
    T_EXPECT_WARNINGS();
    both(refused);
}

static void configs(void *arg) {
    hk *k = arg;
    symmHeap_t heap = NULL;
    symmHeapConfig_t c = hk_config(64 * HK_MB, 0, 0);
    fk_gauges before = fk_take();
    hk_barrier(k);
    if (k->rank == 1) c.fit = 7;
    T_ERR(symmHeapCreate(k->comm, &c, &heap), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "fit=7");
    c.fit = SYMM_FIT_FIRST;
    if (k->rank == 2) c.symBytes = 2 * HK_MB;
    T_ERR(symmHeapCreate(k->comm, &c, &heap), symmMismatch);
    T_MSG(symmGetLastError(NULL), "rank 2 67108864, 2097152");
    c.symBytes = 0;
    if (k->rank == 0) c.chunk = 12345;
    T_ERR(symmHeapCreate(k->comm, &c, &heap), symmInvalidArgument);
    c.chunk = 2 * HK_MB;
    c.reserve = 1ull << 50;
    T_ERR(symmHeapCreate(k->comm, &c, &heap), symmOutOfMemory);
    c.reserve = 4 * HK_MB;
    c.symBytes = c.localBytes = 3 * HK_MB;
    T_ERR(symmHeapCreate(k->comm, &c, &heap), symmInvalidArgument);
    T_ERR(symmHeapCreate(k->comm, NULL, NULL), symmInvalidArgument);
    T_CHECK(heap == NULL);
    hk_barrier(k);
    if (k->rank == 0 || !k->threads) FK_UNCHANGED(&before);
    hk_barrier(k);
    T_OK(symmHeapCreate(k->comm, NULL, &heap));
    T_EQ(hk_info(heap).reserve, 1024 * HK_MB);
    T_OK(symmHeapDestroy(heap));
    fk_works(k->comm, k->rank, k->n);
}
static void bad_configs_fail_every_rank_alike(void) {
    T_EXPECT_WARNINGS();
    both(configs);
}

/* ---- lives ---- */

static void leave_it(void *arg) {
    hk *k = arg;
    symmHeap_t a = hk_heap(k, 64 * HK_MB, 4 * HK_MB, 4 * HK_MB), b = hk_heap(k, 0, 4 * HK_MB, 0);
    hk_sym(a, 5000);
    hk_local(a, 5000);
    hk_sym(b, 100);
}
static void the_communicator_ends_heaps_that_are_left(void) {
    both(leave_it);
}

static void hold_by_graph(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 4 * HK_MB, 0);
    symmStream_t stream;
    symmGraph_t graph;
    int *p = hk_sym(heap, 1 << 20);
    T_OK(symmStreamCreate(&stream));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmAllReduce(p, p, 200000, symmInt32, symmSum, k->comm, stream));
    T_OK(symmStreamEndCapture(stream, &graph));
    T_OK(symmHeapDestroy(heap));
    for (int i = 0; i < 200000; i++) p[i] = i + k->rank; /* mapped still */
    T_OK(symmGraphLaunch(xg_exec(graph), stream));
    T_OK(symmStreamSynchronize(stream));
    for (int i = 0; i < 200000; i++) T_EQ(p[i], k->n * i + k->n * (k->n - 1) / 2);
    T_OK(xg_destroy(graph));
    T_OK(symmStreamDestroy(stream));
}
static void a_captured_call_holds_the_memory(void) {
    both(hold_by_graph);
}

static void many(void *arg) {
    hk *k = arg;
    fk_gauges before = fk_take();
    hk_barrier(k);
    for (int i = 0; i < 12; i++) { /* each takes a quarter of the space: old ones must go */
        symmHeap_t heap = NULL;
        T_OK(symmHeapCreate(k->comm, NULL, &heap));
        T_OK(symmHeapGrow(heap, 2 * HK_MB, 2 * HK_MB));
        char *p = hk_sym(heap, 100000);
        T_CHECK(p[0] == 0);
        hk_fill(p, 100000, k->rank, i);
        T_OK(symmBarrier(k->comm, NULL));
        hk_holds(hk_peer(k, p, (k->rank + 1) % k->n), 100000, (k->rank + 1) % k->n, i);
        T_OK(symmBarrier(k->comm, NULL));
        T_OK(symmHeapDestroy(heap));
    }
    hk_barrier(k);
    if (!k->threads) FK_COLLECTED(k->comm, &before);
    if (k->threads && k->rank == 0) FK_UNCHANGED(&before);
    hk_barrier(k);
}
static void addresses_of_ended_heaps_come_back(void) {
    both(many);
}

/* Neither a call on SYM nor one on LOCAL sends anything, or has memory made or mapped. */
static void say_nothing(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 8 * HK_MB, 4 * HK_MB);
    void *live[16] = {NULL};
    hk_barrier(k); /* thread ranks share the statistics: all have made it */
    const int64_t sent = SYMM_STAT_GET(messages), made = SYMM_STAT_GET(created_bytes),
                  maps = SYMM_STAT_GET(maps);
    hk_barrier(k);
    for (int i = 0; i < 1000; i++) {
        void **p = &live[i * 7 % 16];
        T_OK(symmHeapFree(heap, *p));
        *p = i % 3 ? hk_sym(heap, 1 + (size_t)i * 97 % 50000) : hk_local(heap, 1 + (size_t)i);
    }
    hk_barrier(k);
    T_EQ(SYMM_STAT_GET(messages), sent);
    T_EQ(SYMM_STAT_GET(created_bytes), made);
    T_EQ(SYMM_STAT_GET(maps), maps);
    hk_barrier(k);
    T_OK(symmHeapGrow(heap, 4 * HK_MB, 0)); /* does, or the count would be of nothing */
    T_CHECK(SYMM_STAT_GET(messages) > sent);
    T_CHECK(SYMM_STAT_GET(created_bytes) > made);
    hk_barrier(k);
    T_OK(symmHeapDestroy(heap));
}
static void a_thousand_calls_send_no_message(void) {
    both(say_nothing);
}

/* One thread drives all ranks. */
static void one_thread_drives_several_ranks(void) {
    T_EXPECT_WARNINGS();
    symmComm_t comm[RANKS];
    symmHeap_t heap[RANKS];
    int *p[RANKS];
    hk_env();
    T_OK(symmCommInitAll(comm, RANKS, NULL));
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) {
        char name[16]; /* is copied at the call */
        symmHeapConfig_t c = hk_config(64 * HK_MB, 2 * HK_MB, 0);
        snprintf(name, sizeof name, "grouped");
        c.name = name;
        T_OK(symmHeapCreate(comm[r], &c, &heap[r]));
        memset(name, 'x', sizeof name - 1);
    }
    T_OK(symmGroupEnd());
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) T_OK(symmHeapGrow(heap[r], 4 * HK_MB, 0));
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++) {
        p[r] = hk_sym(heap[r], 3 * HK_MB);
        for (int i = 0; i < 1000; i++) p[r][i] = i + r;
    }
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++)
        T_OK(symmAllReduce(p[r], p[r], 1000, symmInt32, symmSum, comm[r], NULL));
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < 1000; i++) T_EQ(p[r][i], RANKS * i + RANKS * (RANKS - 1) / 2);
    T_ERR(symmHeapFree(heap[0], p[1]), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "heap grouped");
    T_OK(symmGroupStart());
    for (int r = 0; r < RANKS; r++) T_OK(symmHeapCheck(heap[r]));
    T_OK(symmGroupEnd());
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(comm[r]));
}
T_MAIN(T(one_thread_drives_several_ranks), T(a_thousand_calls_send_no_message),
       T(a_heap_is_made_used_and_ended), T(collectives_use_it_in_place_without_registration),
       T(growth_moves_nothing), T(whether_growing_helps_is_the_same_on_all_ranks),
       T(a_reference_leads_peers_to_local_blocks), T(every_byte_knows_its_block),
       T(alignment_is_kept_and_leaks_nothing), T(local_alignment_finds_every_hole),
       T(wrong_calls_get_a_code_and_change_nothing), T(bad_configs_fail_every_rank_alike),
       T(the_communicator_ends_heaps_that_are_left), T(a_captured_call_holds_the_memory),
       T(addresses_of_ended_heaps_come_back))
