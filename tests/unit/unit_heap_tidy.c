/* unit_heap_tidy.c - trim, collect and what waits for it, check, guard mode. Each test runs on
 * ranks that are processes and on ranks that are threads. */
#include "heap_kit.h"

enum { RANKS = 3 };

static void both(void (*fn)(void *)) {
    hk_processes(RANKS, fn, NULL);
    hk_threads(RANKS, fn, NULL);
}

/* ---- trim ---- */

static void trim(void *arg) {
    hk *k = arg;
    uint64_t freed;
    symmHeap_t heap = hk_heap(k, 128 * HK_MB, 16 * HK_MB, (uint64_t)(k->rank + 1) * 4 * HK_MB);
    const int64_t handles = SYMM_STAT_GET(handles);
    char *a = hk_sym(heap, 3 * HK_MB), *b = hk_sym(heap, 3 * HK_MB), *c = hk_sym(heap, HK_MB);
    char *l = hk_local(heap, 100);
    hk_fill(c, HK_MB, k->rank, 1);
    T_OK(symmHeapFree(heap, a));
    T_OK(symmHeapFree(heap, b)); /* chunk 0 is free now; 1 has c; 2 and 3 are free */
    T_OK(symmHeapTrim(heap, 12 * HK_MB, &freed));
    T_EQ(freed, 4 * HK_MB);
    T_EQ(hk_info(heap).symBytes, 12 * HK_MB);
    T_EQ(hk_info(heap).symSkipped, 0);
    T_EQ(hk_info(heap).localBytes, (uint64_t)(k->rank + 1) * 4 * HK_MB);
    T_OK(symmHeapTrim(heap, 0, &freed)); /* in use: chunk 1 of SYM, the first of LOCAL */
    T_EQ(freed, 8 * HK_MB + (uint64_t)k->rank * 4 * HK_MB);
    T_EQ(hk_info(heap).symBytes, 4 * HK_MB);
    T_EQ(hk_info(heap).localBytes, 4 * HK_MB);
    T_EQ(hk_info(heap).symSkipped, 4 * HK_MB);
    T_EQ(hk_info(heap).localSkipped, 4 * HK_MB);
    T_OK(symmHeapTrim(heap, 0, NULL));
    T_EQ(hk_info(heap).chunks, 2);
    hk_barrier(k);
    if (!k->threads) /* own and peers': nothing of it is left in this process */
        T_CHECK(SYMM_STAT_GET(handles) < handles);
    hk_holds(c, HK_MB, k->rank, 1);
    char *d = hk_sym(heap, HK_MB); /* before c: the lowest memory that there is */
    T_CHECK(d == a + 4 * HK_MB);
    T_OK(symmHeapGrow(heap, 4 * HK_MB, 0)); /* where chunk 0 was */
    char *e = hk_sym(heap, 3 * HK_MB);
    T_CHECK(e == a);
    T_OK(symmBarrier(k->comm, NULL));
    for (int r = 0; r < k->n; r++) {
        hk_holds(hk_peer(k, c, r), HK_MB, r, 1);
        T_EQ(*(char *)hk_peer(k, e, r), 0); /* new memory */
    }
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmHeapFree(heap, l));
    T_OK(symmHeapFree(heap, e));
    T_OK(symmHeapDestroy(heap));
}
static void trim_gives_back_what_no_block_uses(void) {
    both(trim);
}

/* No collective was issued before or after: it is the check itself by which the others cannot be
 * late. */
static void one_call_more(void *arg) {
    hk *k = arg;
    void *p, *more = NULL;
    symmHeap_t heap = hk_heap(k, 128 * HK_MB, 8 * HK_MB, 0);
    T_OK(symmHeapAlloc(heap, 512, 0, SYMM_ALLOC_SYM, &p));
    if (k->rank == 1) T_OK(symmHeapAlloc(heap, 1000, 0, SYMM_ALLOC_SYM, &more));
    T_ERR(symmHeapCheck(heap), symmMismatch);
    T_MSG(symmGetLastError(NULL), "call 2: rank 1: symmHeapAlloc of 1000 bytes");
    T_MSG(symmGetLastError(NULL), "rank 0: none");
}
static void a_call_that_one_rank_made_more_is_named(void) {
    T_EXPECT_WARNINGS();
    both(one_call_more);
}

static void trim_refused(void *arg) {
    hk *k = arg;
    uint64_t freed = 7;
    symmHeap_t heap = hk_heap(k, 128 * HK_MB, 8 * HK_MB, 0);
    T_ERR(symmHeapTrim(heap, k->rank == 1 ? 0 : HK_MB, &freed), symmMismatch);
    T_MSG(symmGetLastError(NULL), "keep is");
    T_EQ(freed, 0);
    T_EQ(hk_info(heap).symBytes, 8 * HK_MB);
    T_ERR(symmHeapTrim(NULL, 0, &freed), symmInvalidArgument);
    T_ERR(symmHeapGrow(NULL, 1, 1), symmInvalidArgument);
    T_ERR(symmHeapCheck(NULL), symmInvalidArgument);
    T_ERR(symmHeapCollect(NULL), symmInvalidArgument);
    T_ERR(symmHeapGrow(heap, k->rank == 2 ? 4 * HK_MB : 2 * HK_MB, 0), symmMismatch);
    T_MSG(symmGetLastError(NULL), "rank 0 grows zone SYM by 2097152 bytes, rank 2 by 4194304");
    T_EQ(hk_info(heap).symBytes, 8 * HK_MB);
    T_OK(symmHeapDestroy(heap));
}
static void ranks_that_ask_for_different_things(void) {
    T_EXPECT_WARNINGS();
    both(trim_refused);
}

/* ---- uncollected ---- */

enum { BLOCKS = 300 };

static void collect(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 128 * HK_MB, 8 * HK_MB, 4 * HK_MB);
    symm_heap *h;
    uint64_t off[BLOCKS], room = 0;
    T_OK(symm_heap_pin(heap, &h));
    for (int i = 0; i < BLOCKS; i++) off[i] = hk_off(heap, k, hk_sym(heap, 1000 + (size_t)i * 13));
    const uint64_t local = hk_off(heap, k, hk_local(heap, 5000));
    /* Each rank in an order of its own; rank 1 lacks every seventh, rank 2 every fifth. */
    for (int i = 0; i < BLOCKS; i++) {
        const int at = (i * 7 + k->rank * 100) % BLOCKS;
        if ((k->rank == 1 && at % 7 == 0) || (k->rank == 2 && at % 5 == 0)) continue;
        symm_heap_give_later(h, off[at]);
        symm_heap_give_later(h, off[at]); /* twice is once */
    }
    symm_heap_give_later(h, local);
    T_CHECK(hk_info(heap).uncollected > 0);
    T_ERR(symmHeapFree(heap, symm_heap_addr(h, k->rank, off[1])), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "waits for symmHeapCollect");
    T_OK(symmHeapCollect(heap));
    HK_ALIKE(k, hk_info(heap).digest);
    HK_ALIKE(k, hk_info(heap).symUsed);
    T_EQ(hk_info(heap).localUsed, 0);
    for (int i = 0; i < BLOCKS; i++) {
        const int stays = i % 7 == 0 || i % 5 == 0;
        uint64_t bytes;
        T_EQ(symm_heap_block(h, off[i], &bytes, NULL, NULL),
             stays ? symmSuccess : symmInvalidArgument);
        if (stays) room += bytes;
        if ((k->rank == 1 && i % 7 == 0) || (k->rank == 2 && i % 5 == 0))
            symm_heap_give_later(h, off[i]);
    }
    T_EQ(hk_info(heap).symUsed, room);
    T_OK(symmHeapCollect(heap));
    T_EQ(hk_info(heap).symUsed, 0);
    T_EQ(hk_info(heap).uncollected, 0);
    HK_ALIKE(k, hk_info(heap).digest);
    symm_heap_unpin(h);
    T_OK(symmHeapCheck(heap));
    T_OK(symmHeapDestroy(heap));
}
static void collect_returns_what_every_rank_has(void) {
    T_EXPECT_WARNINGS();
    both(collect);
}

static void owners(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 128 * HK_MB, 8 * HK_MB, 4 * HK_MB);
    symm_heap *h;
    uint64_t off, bytes;
    int owner, lane;
    T_OK(symm_heap_enter(heap, 1, &h));
    T_OK(symm_heap_take(h, 3000, 0, SYMM_ALLOC_SYM, SYMM_OWNER_LANE, 5, NULL, &off));
    T_OK(symm_heap_block(h, off, &bytes, &owner, &lane));
    T_EQ(bytes, 3072);
    T_EQ(owner, SYMM_OWNER_LANE);
    T_EQ(lane, 5);
    T_ERR(symm_heap_give(h, off, SYMM_OWNER_ARENA, NULL, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "belongs to a lane, not to an arena");
    symm_heap_leave(h);
    T_ERR(symmHeapFree(heap, symm_heap_addr(h, k->rank, off)), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "belongs to a lane, not to the user");
    symmMemInfo_t i = {.size = sizeof i};
    T_OK(symmMemQuery(symm_heap_addr(h, k->rank, off), &i));
    T_EQ(i.lane, 5);
    T_OK(symm_heap_enter(heap, 1, &h));
    T_OK(symm_heap_give(h, off, SYMM_OWNER_LANE, NULL, &bytes));
    T_EQ(bytes, 3072);
    symm_heap_leave(h);
    T_OK(symmHeapDestroy(heap));
}
static void a_block_is_freed_by_its_owner_only(void) {
    T_EXPECT_WARNINGS();
    both(owners);
}

/* ---- guard mode ---- */

static void guard(void *arg) {
    hk *k = arg;
    symmHeapConfig_t c = hk_config(128 * HK_MB, 4 * HK_MB, 2 * HK_MB);
    symmHeap_t heap;
    c.guard = 1;
    T_OK(symmHeapCreate(k->comm, &c, &heap));
    for (int zone = 0; zone < 2; zone++) {
        unsigned char *p = zone ? hk_local(heap, 1001) : hk_sym(heap, 1001);
        unsigned char *q = zone ? hk_local(heap, 10) : hk_sym(heap, 10);
        memset(p, 1, 1001);
        memset(q, 1, 10);
        T_OK(symmHeapCheck(heap));
        p[1001] = 1; /* one too far */
        T_ERR(symmHeapCheck(heap), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 1001 was written, of a block of 1001 bytes");
        T_ERR(symmHeapFree(heap, p), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 1001 was written");
        T_ERR(symmHeapFree(heap, p), symmInvalidArgument); /* it was freed */
        T_OK(symmHeapCheck(heap));
        T_EQ(p[500], 0xdd);
        T_OK(symmHeapFree(heap, q));
    }
    symmMemInfo_t i = {.size = sizeof i};
    unsigned char *p = hk_sym(heap, 777);
    T_OK(symmMemQuery(p, &i));
    T_EQ(i.bytes, 777);
    HK_ALIKE(k, hk_info(heap).digest);
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapGrow(heap, 4 * HK_MB, 0));
    p = hk_sym(heap, 7 * HK_MB);
    T_OK(symmHeapCheck(heap));
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapCheck(heap));
    T_OK(symmHeapDestroy(heap));
}
static void guard_mode_finds_an_overrun(void) {
    T_EXPECT_WARNINGS();
    both(guard);
}

static void write_late(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 128 * HK_MB, 4 * HK_MB, 2 * HK_MB); /* by the environment */
    unsigned char *p = hk_sym(heap, 5000);
    T_OK(symmHeapFree(heap, p));
    if (k->rank == 1) p[4321] = 9;
    T_ERR(symmHeapCheck(heap), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "the byte at offset 4321 was written after it was freed");
    T_CHECK(hk_sym(heap, 5000) == p); /* found once more, and remembered */
    T_ERR(symmHeapCheck(heap), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "offset 4321");
    T_OK(symmHeapDestroy(heap));
}
static void guard_mode_finds_a_write_after_free(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_HEAP_GUARD", "1", 1);
    both(write_late);
    unsetenv("SYMM_HEAP_GUARD");
}

/* ---- LOCAL by threads ---- */

static void local_thread(int t, int n, void *arg) {
    symmHeap_t heap = *(symmHeap_t *)arg;
    void *held[16] = {0};
    unsigned seed = (unsigned)t * 77 + 5;
    (void)n;
    for (int i = 0; i < 1500; i++) {
        void **at = &held[rand_r(&seed) % 16];
        if (*at) {
            T_EQ(*(int *)*at, t);
            T_OK(symmHeapFree(heap, *at));
            *at = NULL;
        } else {
            symmResult_t r =
                symmHeapAlloc(heap, 1 + (size_t)rand_r(&seed) % 20000, 0, SYMM_ALLOC_LOCAL, at);
            T_CHECK(r == symmSuccess || r == symmNeedGrow);
            if (*at) *(int *)*at = t;
        }
    }
    for (int i = 0; i < 16; i++) T_OK(symmHeapFree(heap, held[i]));
}

typedef struct {
    symmHeap_t heap;
    symmComm_t comm;
    _Atomic int done;
} growing;

static void local_side(int t, int n, void *arg) {
    growing *g = arg;
    if (t < n - 1) {
        local_thread(t, n, &g->heap);
        atomic_fetch_add(&g->done, 1);
        return;
    }
    for (int i = 0; i < 20; i++) { /* the communicator's thread, meanwhile */
        T_OK(symmHeapGrow(g->heap, 2 * HK_MB, 2 * HK_MB));
        char *p = hk_sym(g->heap, 4000);
        T_OK(symmHeapFree(g->heap, p));
        T_OK(symmHeapTrim(g->heap, 2 * HK_MB, NULL));
    }
}

static void local_and_growth(void *arg) {
    hk *k = arg;
    growing g = {.comm = k->comm};
    g.heap = hk_heap(k, 256 * HK_MB, 2 * HK_MB, 0);
    T_THREADS(3, local_side, &g);
    hk_barrier(k);
    T_EQ(hk_info(g.heap).localUsed, 0);
    T_OK(symmHeapDestroy(g.heap));
}
static void threads_take_local_blocks_while_the_heap_grows(void) {
    hk_processes(2, local_and_growth, NULL);
    hk_threads(2, local_and_growth, NULL);
}

/* ---- guard mode beside threads ---- */

typedef struct {
    symmHeap_t heap;
    char *overrun;
    _Atomic int over;
} churn;

/* Writes every byte that it owns, and none else. */
static void guard_side(int t, int n, void *arg) {
    churn *c = arg;
    if (t < n - 1) {
        for (size_t i = 0; !atomic_load(&c->over); i++) {
            char *p = hk_local(c->heap, 3000 + i % 7 * 100);
            memset(p, t, 3000 + i % 7 * 100);
            T_OK(symmHeapFree(c->heap, p));
        }
        return;
    }
    for (int i = 0; i < 200; i++) T_OK(symmHeapCheck(c->heap));
    c->overrun[500] = 9;
    for (int i = 0; i < 20; i++) {
        T_ERR(symmHeapCheck(c->heap), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 500 was written, of a block of 500 bytes");
    }
    atomic_store(&c->over, 1);
}

static void check_beside_threads(void *arg) {
    hk *k = arg;
    churn c = {.overrun = NULL};
    c.heap = hk_heap(k, 128 * HK_MB, 0, 2 * HK_MB);
    c.overrun = hk_local(c.heap, 500);
    T_THREADS(3, guard_side, &c);
    T_ERR(symmHeapFree(c.heap, c.overrun), symmInvalidUsage);
    T_OK(symmHeapCheck(c.heap));
    T_OK(symmHeapDestroy(c.heap));
}
static void guard_mode_checks_beside_threads(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_HEAP_GUARD", "1", 1);
    hk_processes(2, check_beside_threads, NULL);
    hk_threads(1, check_beside_threads, NULL);
    unsetenv("SYMM_HEAP_GUARD");
}

T_MAIN(T(trim_gives_back_what_no_block_uses), T(ranks_that_ask_for_different_things),
       T(a_call_that_one_rank_made_more_is_named), T(collect_returns_what_every_rank_has),
       T(a_block_is_freed_by_its_owner_only), T(guard_mode_finds_an_overrun),
       T(guard_mode_finds_a_write_after_free), T(threads_take_local_blocks_while_the_heap_grows),
       T(guard_mode_checks_beside_threads))
