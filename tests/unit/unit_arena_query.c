/* unit_arena_query.c - what a heap knows of the blocks in its arenas, how far arenas use the heap's
 * last bytes, what stripes cannot hold, fit and superblock. */
#include "heap_kit.h"
#include "symm_arena.h"

/* ---- what a query knows ---------------------------------------------------------------------- */

static void is_block(const char *p, uint64_t bytes) {
    symmMemInfo_t i = {.size = sizeof i};
    symmRef_t ref;
    T_OK(symmMemQuery(p + bytes - 1, &i));
    T_CHECK(i.block == p && i.bytes == bytes && i.lane == -1);
    T_OK(symmRefGet(p + 100, &ref));
    T_EQ(ref.len, bytes - 100);
}
static void is_none(const char *p) {
    symmMemInfo_t i = {.size = sizeof i};
    symmRef_t ref;
    T_ERR(symmMemQuery(p, &i), symmInvalidArgument);
    T_ERR(symmRefGet(p, &ref), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "is in no block");
}

/* Blocks, not the pieces that arenas lie in; and what is freed is none, though its thread keeps
 * it. */
static void know_blocks(void *arg) {
    hk *k = arg;
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    symmArena_t a, b, sym;
    char *p[6];
    T_EXPECT_WARNINGS();
    symmHeap_t h = hk_heap(k, 64 * HK_MB, 8 * HK_MB, 16 * HK_MB);
    T_OK(symmArenaCreate(h, NULL, &a));
    T_OK(symmArenaCreate(h, NULL, &b));
    c.flags = SYMM_ARENA_SYM;
    c.bytes = HK_MB;
    T_OK(symmArenaCreate(h, &c, &sym));
    T_OK(symmArenaAlloc(a, 1000, 0, NULL, (void **)&p[0]));
    T_OK(symmArenaAlloc(a, 1000, 0, NULL, (void **)&p[1]));
    T_OK(symmArenaAlloc(a, 30000, 0, NULL, (void **)&p[2])); /* over two superblocks */
    T_OK(symmArenaAlloc(a, 100000, 0, NULL, (void **)&p[3]));
    T_OK(symmArenaAlloc(b, 300, 0, NULL, (void **)&p[4]));
    T_OK(symmArenaAlloc(sym, 700, 0, NULL, (void **)&p[5]));
    is_block(p[0], 1024);
    is_block(p[1], 1024);
    is_block(p[2], 30208);
    is_block(p[3], 100096);
    is_block(p[4], 512);
    is_block(p[5], 768);
    is_none(p[5] + 768);
    for (int i = 0; i < 6; i++) {
        T_OK(symmArenaFree(i < 4 ? a : i < 5 ? b : sym, p[i], NULL));
        is_none(p[i]);
    }
    T_OK(symmArenaDestroy(sym));
    T_OK(symmArenaDestroy(b));
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(h));
}

/* Less than a piece is left in the heap. */
static void take_last_bytes(void *arg) {
    hk *k = arg;
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    symmArena_t a;
    void *first, *p;
    int n = 0;
    T_EXPECT_WARNINGS();
    symmHeap_t h = hk_heap(k, 64 * HK_MB, 0, 2 * HK_MB);
    T_OK(symmHeapAlloc(h, 256, 0, SYMM_ALLOC_LOCAL, &first));
    c.bytes = 64 * HK_MB;
    T_OK(symmArenaCreate(h, &c, &a));
    while (symmArenaAlloc(a, 1000, 0, NULL, &p) == symmSuccess) n++;
    T_MSG(symmGetLastError(NULL), "symmHeapGrow");
    T_CHECKF(n >= 2016, "%d blocks of 1,000 bytes out of 2 MiB", n);
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(h));
}

static void refuse_above_a_superblock(void *arg) {
    hk *k = arg;
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    symmArena_t a;
    void *p = NULL;
    T_EXPECT_WARNINGS();
    symmHeap_t h = hk_heap(k, 64 * HK_MB, 8 * HK_MB, 0);
    c.flags = SYMM_ARENA_SYM;
    c.stripes = 2;
    c.bytes = 4 * HK_MB;
    T_OK(symmArenaCreate(h, &c, &a));
    T_OK(symmArenaAllocOn(a, 1, 16 << 10, 0, &p));
    T_ERR(symmArenaAllocOn(a, 1, (16 << 10) + 1, 0, &p), symmOutOfMemory);
    T_MSG(symmGetLastError(NULL), "more than a superblock of 16384");
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(h));
}

/* The public way: superblocks of 1 MiB, in which blocks of up to half of that lie. */
static void configure(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 0, 16 * HK_MB);
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    symmArena_t a = NULL;
    symmArenaInfo_t i = {.size = sizeof i};
    void *p[3];
    T_EXPECT_WARNINGS();
    T_EQ(c.fit, SYMM_FIT_BEST);
    c.bytes = 8 * HK_MB;
    c.superblock = HK_MB;
    c.fit = 7;
    T_ERR(symmArenaCreate(heap, &c, &a), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "config->fit=7");
    c.fit = SYMM_FIT_FIRST;
    T_OK(symmArenaCreate(heap, &c, &a));
    for (int j = 0; j < 3; j++) T_OK(symmArenaAlloc(a, j < 2 ? 400 : 512 << 10, 0, NULL, &p[j]));
    T_OK(symmArenaFree(a, p[0], NULL));
    T_OK(symmArenaFree(a, p[1], NULL));
    T_OK(symmArenaQuery(a, &i));
    T_EQ(i.superblock, HK_MB);
    T_EQ(i.superblocks, 1);
    T_EQ(i.largeBlocks, 0);
    T_EQ(i.cached, 0);
    void *again, *wide;
    T_OK(symmArenaAlloc(a, 400, 0, NULL, &again));
    T_CHECK(again == p[0]); /* the lowest, not the one freed last */
    T_OK(symmArenaAlloc(a, (512 << 10) + 1, 0, NULL, &wide));
    T_OK(symmArenaQuery(a, &i));
    T_EQ(i.largeBlocks, 1);
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}
static void fit_and_superblock_are_configured(void) {
    hk_processes(1, configure, NULL);
}

static void queries_and_references_know_blocks(void) {
    hk_processes(1, know_blocks, NULL);
}
static void the_heaps_last_bytes_are_taken(void) {
    hk_processes(1, take_last_bytes, NULL);
}
static void stripes_have_no_block_above_a_superblock(void) {
    hk_processes(1, refuse_above_a_superblock, NULL);
}

T_MAIN(T(queries_and_references_know_blocks), T(the_heaps_last_bytes_are_taken),
       T(stripes_have_no_block_above_a_superblock), T(fit_and_superblock_are_configured))
