/* unit_arena_heap.c - arenas over heaps: the public calls and what they refuse, memory that is
 * written and read by peers, equal offsets on ranks that are processes and threads, a heap that
 * grows and one that goes. */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>

#include "graph_kit.h"
#include "heap_kit.h"
#include "symm_arena.h"

#define KB (1ull << 10)
#define MB HK_MB

static symmArenaInfo_t info(symmArena_t a) {
    symmArenaInfo_t i = {.size = sizeof i};
    T_OK(symmArenaQuery(a, &i));
    return i;
}

static symmArenaConfig_t config(uint32_t flags, uint64_t bytes, int stripes) {
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    c.flags = flags;
    c.bytes = bytes;
    c.stripes = stripes;
    c.name = "tested";
    return c;
}

static symmArena_t open_arena(symmHeap_t heap, uint32_t flags, uint64_t bytes, int stripes) {
    symmArenaConfig_t c = config(flags, bytes, stripes);
    symmArena_t a = NULL;
    T_OK(symmArenaCreate(heap, &c, &a));
    T_CHECK(a != NULL);
    return a;
}

static void *take(symmArena_t a, size_t bytes, symmStream_t s) {
    void *p = NULL;
    T_OK(symmArenaAlloc(a, bytes, 0, s, &p));
    T_CHECK(p && (uintptr_t)p % 256 == 0);
    return p;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void refused_configs(symmHeap_t heap) {
    symmArena_t a = (symmArena_t)heap;
    symmArenaConfig_t c = config(0, 8 * MB, 1);
    T_ERR(symmArenaCreate(NULL, &c, &a), symmInvalidArgument); /* no upstream */
    T_MSG(symmGetLastError(NULL), "heap is NULL");
    T_CHECK((void *)a == (void *)heap); /* as it was */
    T_ERR(symmArenaCreate(heap, &c, NULL), symmInvalidArgument);
    static const struct {
        uint64_t superblock, piece, bytes;
        uint32_t flags;
        int stripes;
        const char *text;
    } row[] = {{48 * KB, 0, 8 * MB, 0, 1, "superblock=49152"},
               {8 * KB, 0, 8 * MB, 0, 1, "superblock=8192"},
               {2 * MB, 0, 8 * MB, 0, 1, "superblock=2097152"},
               {64 * KB, 100 * KB, 8 * MB, 0, 1, "piece=102400"},
               {0, 0, 8 * MB, 8, 1, "flags=8"},
               {0, 0, 8 * MB, 0, 2, "stripes=2"},
               {0, 0, 8 * MB, SYMM_ARENA_SYM, 0, "stripes=0"},
               {0, 0, 20 * KB, SYMM_ARENA_SYM, 2, "bytes=20480"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        c = config(row[i].flags, row[i].bytes, row[i].stripes);
        c.superblock = row[i].superblock;
        c.piece = row[i].piece;
        T_ERR(symmArenaCreate(heap, &c, &a), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), row[i].text);
        T_CHECK((void *)a == (void *)heap);
    }
    c = config(0, 8 * MB, 1);
    c.size = 8;
    T_ERR(symmArenaCreate(heap, &c, &a), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "config->size=8");
}

static void bad_arguments_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 8 * MB, 16 * MB);
    void *p = heap, *q;
    int equal = 1;
    T_EXPECT_WARNINGS();
    refused_configs(heap);
    symmArena_t a = open_arena(heap, 0, 8 * MB, 1), b = open_arena(heap, 0, 4 * MB, 1);
    T_ERR(symmArenaAlloc(a, 1, 3, NULL, &p), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "align=3");
    T_CHECK(p == heap);
    T_ERR(symmArenaAlloc(a, 1, 1ull << 40, NULL, &p), symmInvalidArgument);
    T_ERR(symmArenaAlloc(a, 1, 0, NULL, NULL), symmInvalidArgument);
    T_ERR(symmArenaAlloc(a, SIZE_MAX, 0, NULL, &p), symmOutOfMemory);
    T_ERR(symmArenaAlloc(a, 1, 0, (symmStream_t)heap, &p), symmInvalidArgument); /* no stream */
    T_ERR(symmArenaAllocOn(a, 0, 1, 0, &p), symmInvalidArgument);                /* no stripes */
    T_OK(symmArenaAlloc(a, 0, 0, NULL, &p));
    T_CHECK(p == NULL);
    T_OK(symmArenaFree(a, NULL, NULL));
    p = take(a, 1000, NULL);
    T_ERR(symmArenaFree(b, p, NULL), symmInvalidArgument);
    T_ERR(symmArenaFree(a, (char *)p + 1, NULL), symmInvalidArgument);
    T_ERR(symmArenaFree(a, &equal, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "is not memory of arena tested's heap");
    T_ERR(symmHeapFree(heap, p), symmInvalidArgument); /* not the user's block */
    q = hk_local(heap, 100);
    T_ERR(symmArenaFree(a, q, NULL), symmInvalidArgument);
    T_OK(symmHeapFree(heap, q));
    T_OK(symmArenaFree(a, p, NULL));
    T_ERR(symmArenaFree(a, p, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "freed already");
    T_OK(symmArenaEqual(a, a, &equal));
    T_EQ(equal, 1);
    T_OK(symmArenaEqual(a, b, &equal));
    T_EQ(equal, 0);
    symmArenaInfo_t i = {.size = 3};
    T_ERR(symmArenaQuery(a, &i), symmInvalidArgument);
    T_ERR(symmArenaDump(a, -1), symmSystemError);
    T_OK(symmArenaDestroy(b));
    T_ERR(symmArenaDestroy(b), symmInvalidArgument);
    T_ERR(symmArenaAlloc(b, 1, 0, NULL, &p), symmInvalidArgument);
    T_OK(symmArenaDestroy(a));
    T_EQ(hk_info(heap).localUsed, 0);
    T_OK(symmHeapDestroy(heap));
}

static void bad_arguments(void) {
    hk_processes(1, bad_arguments_rank, NULL);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static void blocks_hold_what_is_written_rank(void *arg) {
    enum { N = 200 };
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 256 * MB, 8 * MB, 64 * MB);
    symmArena_t a = open_arena(heap, 0, 0, 1);
    unsigned char *p[N];
    size_t bytes[N];
    T_EQ(info(a).limit, 32 * MB); /* half of what is free */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            bytes[i] = (size_t)(i * i * 3 % 70000 + 1);
            void *q = NULL;
            T_OK(symmArenaAlloc(a, bytes[i], (size_t)256 << i % 6, NULL, &q));
            T_EQ((uintptr_t)q % (256u << i % 6), 0);
            p[i] = q;
            memset(p[i], i + round, bytes[i]);
        }
        for (int i = 0; i < N; i++) {
            for (size_t j = 0; j < bytes[i]; j++) T_EQ(p[i][j], (unsigned char)(i + round));
            T_OK(symmArenaFree(a, p[i], NULL));
        }
    }
    uint64_t freed = 0, held = info(a).held;
    T_CHECK(held >= 6 * MB && hk_info(heap).localUsed == held);
    T_EQ(info(a).used, 0);
    T_OK(symmArenaDestroy(a));
    a = open_arena(heap, 0, 0, 1);
    T_OK(symmArenaFree(a, take(a, 40 * KB, NULL), NULL));
    T_EQ(info(a).held, 2 * MB);
    T_OK(symmArenaTrim(a, &freed));
    T_EQ(freed, 2 * MB);
    T_EQ(hk_info(heap).localUsed, 0);
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void blocks_hold_what_is_written(void) {
    hk_processes(1, blocks_hold_what_is_written_rank, NULL);
}

/* A call that finds no memory; text: what it wrote to stderr meanwhile. */
static symmResult_t take_and_read(symmArena_t a, size_t bytes, char *text, size_t room) {
    char path[] = "/tmp/symm-arena-XXXXXX";
    void *p = a;
    int fd = mkstemp(path), keep = dup(2);
    T_CHECK(fd >= 0 && keep >= 0);
    T_EQ(dup2(fd, 2), 2);
    symmResult_t status = symmArenaAlloc(a, bytes, 0, NULL, &p);
    T_EQ(dup2(keep, 2), 2);
    close(keep);
    T_CHECK(p == a);
    ssize_t got = pread(fd, text, room - 1, 0);
    T_CHECK(got >= 0);
    text[got] = 0;
    close(fd);
    unlink(path);
    return status;
}

/* A call that fails for want of memory writes the table to stderr, where that is wanted; its reason
 * stays the call's. */
static void dump_log_on_failure_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 4 * MB, 12 * MB);
    symmArena_t a = NULL, quiet = open_arena(heap, 0, 4 * MB, 1);
    char text[8192], *table;
    T_EXPECT_WARNINGS();
    symmArenaConfig_t c = config(SYMM_ARENA_DUMP, 4 * MB, 1);
    c.superblock = 64 * KB;
    T_OK(symmArenaCreate(heap, &c, &a));
    void *hole = take(a, 20 * KB, NULL), *left = take(a, 1000, NULL), *large = take(a, MB, NULL);
    T_OK(symmArenaFree(a, hole, NULL));
    T_EQ(take_and_read(a, 4 * MB - 1, text, sizeof text), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "do not fit");
    table = strstr(text, "arena tested: local, arena size 4194304, superblock size 65536");
    T_CHECKF(table != NULL, "no table: %s", text);
    T_MSG(table, "superblocks 1, large blocks 1");
    T_MSG(table, "global: used 1114112, free");
    T_MSG(table, "thread 0, 1 superblocks: used 1024, free 64512, largest 44032");
    T_MSG(table, "used 1024, free 64512, largest 44032, blocks 1, holes 2, fragmentation 31.75 %");
    T_EQ(take_and_read(a, 5 * MB, text, sizeof text), symmOutOfMemory); /* over the limit at once */
    T_MSG(text, "arena tested: local, arena size 4194304");
    T_EQ(take_and_read(quiet, 5 * MB, text, sizeof text), symmOutOfMemory);
    T_CHECKF(!strstr(text, "arena size"), "not asked for: %s", text);
    T_EQ(info(a).used, 1024 + MB);
    T_OK(symmArenaFree(a, left, NULL));
    T_OK(symmArenaFree(a, large, NULL));
    T_OK(symmArenaDestroy(quiet));
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void dump_log_on_failure(void) {
    hk_processes(1, dump_log_on_failure_rank, NULL);
}

/* No growth inside a call: the caller is told, grows, and goes on. Exhaustion writes the table. */
static void growth_is_the_callers_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 4 * MB, 4 * MB);
    symmArena_t a = NULL;
    void *p;
    char text[4096];
    T_EXPECT_WARNINGS();
    symmArenaConfig_t c = config(SYMM_ARENA_DUMP, 16 * MB, 1);
    T_OK(symmArenaCreate(heap, &c, &a));
    void *first = take(a, 3 * MB, NULL);
    T_EQ(take_and_read(a, 3 * MB, text, sizeof text), symmNeedGrow);
    T_MSG(text, "arena tested: local, arena size 16777216, superblock size 16384");
    T_OK(symmHeapGrow(heap, 0, 8 * MB));
    p = take(a, 3 * MB, NULL);
    T_OK(symmArenaFree(a, p, NULL));
    T_OK(symmArenaFree(a, first, NULL));
    T_OK(symmArenaDestroy(a));
    symmArenaConfig_t none = config(0, 0, 1);
    p = hk_local(heap, 12 * MB - 16 * KB);
    T_ERR(symmArenaCreate(heap, &none, &a), symmNeedGrow);
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapDestroy(heap));
}

static void growth_is_the_callers(void) {
    hk_processes(1, growth_is_the_callers_rank, NULL);
}

/* An arena fills the memory that it has before it takes more, though a heap gives the highest of
 * its LOCAL zone first. */
static void what_is_held_is_filled_rank(void *arg) {
    enum { N = 400 };
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 512 * MB, 4 * MB, 256 * MB);
    symmArena_t a = open_arena(heap, 0, 240 * MB, 1);
    static struct {
        char *at;
        uint64_t bytes;
    } b[N];
    uint64_t state = 7, live = 0, peak = 0;
    for (int i = 0; i < N; i++) {
        t_roll(&state);
        b[i].bytes = (state >> 33) % MB + 1;
        b[i].at = take(a, b[i].bytes, NULL);
        live += b[i].bytes;
        if (live > peak) peak = live;
        int other = (int)((state >> 20) % N);
        if ((state >> 60) > 3 || !b[other].at) continue;
        T_OK(symmArenaFree(a, b[other].at, NULL));
        live -= b[other].bytes;
        b[other].at = NULL;
    }
    T_CHECKF(info(a).heldPeak * 100 <= peak * 106, "%llu bytes were held for %llu at most",
             (unsigned long long)info(a).heldPeak, (unsigned long long)peak);
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void what_is_held_is_filled(void) {
    hk_processes(1, what_is_held_is_filled_rank, NULL);
}

/* The arena keeps the heap's memory until it ends itself. */
static void an_arena_outlives_its_heaps_handle_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 4 * MB, 4 * MB);
    symmArena_t a = open_arena(heap, 0, 2 * MB, 1), b = open_arena(heap, SYMM_ARENA_SYM, 2 * MB, 2);
    char *p = take(a, 1000, NULL);
    memset(p, 7, 1000);
    T_OK(symmArenaDestroy(b));
    b = open_arena(heap, SYMM_ARENA_SYM, 2 * MB, 2);
    T_OK(symmHeapDestroy(heap));
    T_EQ(p[999], 7);
    T_OK(symmArenaFree(a, p, NULL));
    T_OK(symmArenaDestroy(a));
    T_OK(symmArenaDestroy(b));
}

static void an_arena_outlives_its_heaps_handle(void) {
    hk_processes(1, an_arena_outlives_its_heaps_handle_rank, NULL);
}

static void stream_fill(void *arg) {
    memset(*(void **)arg, 0x5a, 1000);
}

static void streams_use_the_arena_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 4 * MB, 16 * MB);
    symmArena_t a = open_arena(heap, 0, 8 * MB, 1);
    symmStream_t s[3];
    static void *p[3][50];
    for (int i = 0; i < 3; i++) T_OK(symmStreamCreate(&s[i]));
    for (int i = 0; i < 50; i++)
        for (int j = 0; j < 3; j++) {
            p[j][i] = take(a, 1000 + (size_t)i * 100, s[j]);
            T_OK(symmStreamHostFunc(s[j], stream_fill, &p[j][i]));
            if (i) T_OK(symmArenaFree(a, p[(j + 1) % 3][i - 1], s[j]));
        }
    T_EQ(info(a).streams, 3);
    for (int i = 0; i < 3; i++) T_OK(symmStreamSynchronize(s[i]));
    T_OK(symmArenaEndStream(a, s[0]));
    T_EQ(info(a).streams, 2);
    for (int i = 0; i < 3; i++) T_OK(symmStreamDestroy(s[i]));
    T_OK(symmArenaDestroy(a));
    T_EQ(hk_info(heap).localUsed, 0);
    T_OK(symmHeapDestroy(heap));
}

static void captured_streams_are_refused_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 4 * MB, 16 * MB);
    symmArena_t a = open_arena(heap, 0, 8 * MB, 1);
    symmStream_t s;
    symmGraph_t g;
    void *p = take(a, 1000, NULL), *q;
    T_EXPECT_WARNINGS();
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamBeginCapture(s));
    T_ERR(symmArenaAlloc(a, 1000, 0, s, &q), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "being captured");
    T_ERR(symmArenaFree(a, p, s), symmInvalidUsage);
    T_OK(symmStreamEndCapture(s, &g));
    T_OK(xg_destroy(g));
    T_OK(symmArenaFree(a, p, s));
    T_OK(symmStreamDestroy(s));
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void captured_streams_are_refused(void) {
    hk_processes(1, captured_streams_are_refused_rank, NULL);
}

static void streams_use_the_arena(void) {
    hk_processes(1, streams_use_the_arena_rank, NULL);
}

/* ---- several ranks --------------------------------------------------------------------------- */

enum { STRIPES = 3, CALLS = 400 };

typedef struct {
    symmArena_t arena;
    int stripe, rank;
    uint64_t base, sum;
} worker;

/* The same calls on each rank, at another pace. */
static void *use_stripe(void *arg) {
    worker *w = arg;
    uint64_t state = 99 + (uint64_t)w->stripe, off;
    void *p[20] = {NULL};
    for (int i = 0; i < CALLS; i++) {
        t_roll(&state);
        void **q = &p[(state >> 33) % 20];
        if ((i + w->rank) % (w->rank + w->stripe + 2) == 0) sched_yield();
        if (*q) T_OK(symmArenaFree(w->arena, *q, NULL));
        T_OK(symmArenaAllocOn(w->arena, w->stripe, (state >> 40) % 9000 + 1, 0, q));
        off = (uint64_t)(uintptr_t)*q - w->base;
        w->sum = (w->sum ^ off) * 0x9e3779b97f4a7c15ull;
    }
    return NULL;
}

static void symmetric_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 16 * MB, 4 * MB);
    symmArena_t a = open_arena(heap, SYMM_ARENA_SYM, 6 * MB, STRIPES);
    symmHeapInfo_t i = hk_info(heap);
    worker w[STRIPES];
    pthread_t t[STRIPES];
    for (int j = 0; j < STRIPES; j++) {
        w[j] = (worker){a, j, k->rank, i.base + (uint64_t)k->rank * i.stride, 1};
        T_EQ(pthread_create(&t[j], NULL, use_stripe, &w[j]), 0);
    }
    for (int j = 0; j < STRIPES; j++) T_EQ(pthread_join(t[j], NULL), 0);
    for (int j = 0; j < STRIPES; j++) HK_ALIKE(k, w[j].sum);
    T_OK(symmHeapCheck(heap));
    T_EQ(hk_info(heap).calls, 1); /* of the arena's blocks the heap hears nothing */
    void *p = NULL;
    T_OK(symmArenaAllocOn(a, 0, 4096, 0, &p));
    hk_fill(p, 4096, k->rank, 5);
    hk_barrier(k);
    for (int r = 0; r < k->n; r++) hk_holds(hk_peer(k, p, r), 4096, r, 5);
    hk_barrier(k);
    void *none;
    T_ERR(symmArenaAlloc(a, 1, 0, NULL, &none), symmInvalidUsage);
    T_ERR(symmArenaAllocOn(a, STRIPES, 1, 0, &none), symmInvalidArgument);
    T_OK(symmArenaDestroy(a));
    T_EQ(hk_info(heap).symUsed, 0);
    T_OK(symmHeapCheck(heap));
    T_OK(symmHeapDestroy(heap));
}

static void symmetric_offsets_on_processes(void) {
    T_EXPECT_WARNINGS();
    hk_processes(3, symmetric_rank, NULL);
}

static void symmetric_offsets_on_threads(void) {
    T_EXPECT_WARNINGS();
    hk_threads(3, symmetric_rank, NULL);
}

/* The last rank differs on stripe `stripe`: in a size, a free, the order, the number of calls. */
enum { OTHER_SIZE, OTHER_FREE, OTHER_ORDER, ONE_MORE, BENT };

static void bend(symmArena_t a, int stripe, int how, int other) {
    void *p, *q, *r;
    T_OK(symmArenaAllocOn(a, stripe, how == OTHER_SIZE && other ? 300 : 200, 0, &p));
    T_OK(symmArenaAllocOn(a, stripe, how == OTHER_ORDER && other ? 5000 : 2000, 0, &q));
    T_OK(symmArenaAllocOn(a, stripe, how == OTHER_ORDER && other ? 2000 : 5000, 0, &r));
    T_OK(symmArenaFree(a, how == OTHER_FREE && other ? p : q, NULL));
    if (how == ONE_MORE && other) T_OK(symmArenaFree(a, r, NULL));
}

static void differing_rank(void *arg) {
    hk *k = arg;
    const int how = *(const int *)k->arg, stripe = how == ONE_MORE ? 0 : 30 + how;
    char says[80];
    symmHeap_t heap = hk_heap(k, 64 * MB, 16 * MB, 4 * MB);
    symmArena_t first = open_arena(heap, SYMM_ARENA_SYM, MB, 2);
    symmArena_t a = open_arena(heap, SYMM_ARENA_SYM, 2 * MB, 40);
    void *p;
    for (int i = 0; i < 2; i++) T_OK(symmArenaAllocOn(first, i ^ (k->rank & 1), 999, 0, &p));
    T_OK(symmHeapCheck(heap)); /* between stripes there is no order */
    bend(a, stripe, how, k->rank == k->n - 1);
    hk_barrier(k);
    if (how == ONE_MORE) {
        T_OK(symmHeapGrow(heap, 2 * MB, 0)); /* it may be on its way */
        T_OK(symmHeapCollect(heap));
        snprintf(says, sizeof says, "rank 0 has made 4, rank %d 5", k->n - 1);
    } else {
        T_ERR(symmHeapGrow(heap, 2 * MB, 0), symmMismatch);
        T_ERR(symmHeapCollect(heap), symmMismatch);
        snprintf(says, sizeof says, "rank 0 has made 4, rank %d 4, of other", k->n - 1);
    }
    T_ERR(symmHeapCheck(heap), symmMismatch);
    T_MSG(symmGetLastError(NULL), says);
    snprintf(says, sizeof says, "on stripe %d of symmetric arena 2 ", stripe);
    T_MSG(symmGetLastError(NULL), says);
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapCheck(heap)); /* gone with it */
    T_OK(symmArenaDestroy(first));
    T_OK(symmHeapDestroy(heap));
}

static void other_stripes_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 16 * MB, 4 * MB);
    symmArena_t a = open_arena(heap, SYMM_ARENA_SYM, MB, k->rank ? 3 : 2);
    void *p;
    T_OK(symmArenaAllocOn(a, 0, 100, 0, &p));
    T_ERR(symmHeapCheck(heap), symmMismatch);
    T_MSG(symmGetLastError(NULL), "another number of stripes on rank 1 than on rank 0");
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void ranks_that_differ_on_a_stripe_are_told(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < BENT; how++) {
        hk_threads(3, differing_rank, &how);
        hk_processes(2, differing_rank, &how);
    }
    hk_threads(2, other_stripes_rank, NULL);
}

/* Each rank its own blocks, of its own sizes; a peer reads them through a reference. */
static void local_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * MB, 4 * MB, 8 * MB);
    symmArena_t a = open_arena(heap, 0, 4 * MB, 1);
    symmRef_t *refs = k->arg, ref;
    for (int i = 0; i <= k->rank; i++) take(a, 5000, NULL);
    void *p = take(a, 2000, NULL), *at;
    hk_fill(p, 2000, k->rank, 9);
    T_OK(symmRefGet(p, &ref));
    refs[k->rank] = ref;
    hk_barrier(k);
    T_OK(symmRefPtr(&refs[(k->rank + 1) % k->n], k->comm, SYMM_REF_OWNER, &at));
    hk_holds(at, 2000, (k->rank + 1) % k->n, 9);
    hk_barrier(k);
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void peers_read_local_blocks(void) {
    hk_processes(3, local_rank, T_SHARED(3 * sizeof(symmRef_t)));
}

T_MAIN(T(bad_arguments), T(blocks_hold_what_is_written), T(what_is_held_is_filled),
       T(dump_log_on_failure), T(growth_is_the_callers), T(an_arena_outlives_its_heaps_handle),
       T(streams_use_the_arena), T(captured_streams_are_refused), T(symmetric_offsets_on_processes),
       T(symmetric_offsets_on_threads), T(ranks_that_differ_on_a_stripe_are_told),
       T(peers_read_local_blocks))
