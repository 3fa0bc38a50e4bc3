/* unit_arena_guard.c - guard mode inside arenas, over heaps of the host backend: writes behind
 * blocks and into freed ones are found, nothing else is, whatever threads and streams do; what
 * queries say; equal offsets on all ranks. */
#include <fcntl.h>
#include <stdlib.h>

#include "base/fail.h"
#include "heap_kit.h"
#include "symm_arena.h"

#define KB (1ull << 10)
#define MB HK_MB
enum { RED = SYMM_RED_ZONE };

static symmHeap_t open_heap_of(hk *k, int guard, uint64_t sym, uint64_t local) {
    symmHeapConfig_t c = hk_config(128 * MB, sym, local);
    symmHeap_t heap = NULL;
    c.guard = guard;
    T_OK(symmHeapCreate(k->comm, &c, &heap));
    return heap;
}

static symmHeap_t open_heap(hk *k, int guard) {
    return open_heap_of(k, guard, 16 * MB, 16 * MB);
}

static symmArena_t open_arena(symmHeap_t heap, uint32_t flags, int stripes) {
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    symmArena_t a = NULL;
    c.flags = flags;
    c.bytes = 4 * MB;
    c.stripes = stripes;
    c.superblock = 64 * KB;
    c.name = "tested";
    T_OK(symmArenaCreate(heap, &c, &a));
    return a;
}

static char *take(symmArena_t a, size_t bytes, symmStream_t s) {
    void *p = NULL;
    T_OK(symmArenaAlloc(a, bytes, 0, s, &p));
    T_CHECK(p && (uintptr_t)p % 256 == 0);
    return p;
}

static symmArenaInfo_t info(symmArena_t a) {
    symmArenaInfo_t i = {.size = sizeof i};
    T_OK(symmArenaQuery(a, &i));
    return i;
}

/* ---- damage that is found -------------------------------------------------------------------- */

/* One byte behind the last, and the last one that belongs to nobody else. */
static void overrun(hk *k, symmHeap_t heap, symmArena_t a, size_t bytes) {
    const size_t last = symm_round_up(bytes + RED, 256) - 1;
    for (int far = 0; far < 2; far++) {
        char *p = take(a, bytes, NULL), *q = take(a, bytes, NULL), says[128];
        const size_t at = far ? last : bytes;
        memset(p, 1, bytes);
        memset(q, 1, bytes);
        T_OK(symmHeapCheck(heap));
        p[at] = 1;
        T_ERR(symmHeapCheck(heap), symmInvalidUsage);
        snprintf(says, sizeof says,
                 "arena tested: byte %zu was written, of a block of %zu bytes at offset %llu", at,
                 bytes, (unsigned long long)hk_off(heap, k, p));
        T_MSG(symmGetLastError(NULL), says);
        T_ERR(symmArenaFree(a, p, NULL), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), says);
        T_MSG(symmGetLastError(NULL), "it is freed all the same");
        T_ERR(symmArenaFree(a, p, NULL), symmInvalidArgument); /* it was freed */
        T_MSG(symmGetLastError(NULL), "it is free, or was freed already");
        T_EQ((unsigned char)p[0], 0xdd);
        T_EQ((unsigned char)p[last], 0xdd);
        T_OK(symmHeapCheck(heap));
        for (size_t i = 0; i < bytes; i++) T_EQ(q[i], 1);
        T_OK(symmArenaFree(a, q, NULL));
    }
    T_EQ(info(a).used, 0);
}

static void overruns(void *arg) {
    static const size_t sizes[] = {1, 255, 256, 1000, 16384, 40000, 300001};
    hk *k = arg;
    symmHeap_t heap = open_heap(k, 1);
    for (uint32_t flags = 0; flags <= SYMM_ARENA_SYM; flags++) {
        symmArena_t a = open_arena(heap, flags, 1);
        for (int i = 0; i < 7; i++) overrun(k, heap, a, sizes[i]);
        T_OK(symmArenaDestroy(a));
        T_OK(symmHeapCheck(heap));
    }
    T_OK(symmHeapDestroy(heap));
}

static void an_overrun_by_one_byte_is_found(void) {
    T_EXPECT_WARNINGS();
    hk_processes(2, overruns, NULL);
    hk_threads(2, overruns, NULL);
}

/* By the check, by whoever gets the bytes next, and by every check from then on. */
static void write_late(void *arg) {
    hk *k = arg;
    symmHeap_t heap = open_heap(k, 0); /* by the environment */
    symmArena_t a = open_arena(heap, 0, 1);
    char *p = take(a, 5000, NULL), says[128];
    snprintf(says, sizeof says, "arena tested: the byte at offset %llu was written after it was",
             (unsigned long long)hk_off(heap, k, p + 4321));
    T_OK(symmArenaFree(a, p, NULL));
    T_OK(symmHeapCheck(heap));
    const char was = p[4321];
    p[4321] = 9;
    T_ERR(symmHeapCheck(heap), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), says);
    p[4321] = was;
    T_OK(symmHeapCheck(heap));
    p[4321] = 9;
    T_CHECK(take(a, 5000, NULL) == p); /* its thread had kept it */
    T_ERR(symmHeapCheck(heap), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), says);
    T_OK(symmArenaFree(a, p, NULL));
    T_ERR(symmHeapCheck(heap), symmInvalidUsage); /* remembered */
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void a_write_after_free_is_found(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_HEAP_GUARD", "1", 1);
    hk_processes(1, write_late, NULL);
    hk_threads(1, write_late, NULL);
    unsetenv("SYMM_HEAP_GUARD");
}

/* ---- what is as without guard mode ----------------------------------------------------------- */

static void in_no_block(const char *p) {
    symmMemInfo_t i = {.size = sizeof i};
    symmRef_t ref;
    T_ERR(symmMemQuery(p, &i), symmInvalidArgument);
    T_ERR(symmRefGet(p, &ref), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "is in no block");
}

static void ask(void *arg) {
    static const size_t sizes[] = {1, 777, 1024, 40000, 300001};
    hk *k = arg;
    symmHeap_t heap = open_heap(k, 1);
    symmArena_t a = open_arena(heap, 0, 1);
    symmMemInfo_t i = {.size = sizeof i};
    symmRef_t ref;
    for (int n = 0; n < 5; n++) {
        char *p = take(a, sizes[n], NULL);
        T_OK(symmMemQuery(p + sizes[n] - 1, &i));
        T_CHECK(i.block == p && i.bytes == sizes[n]);
        T_OK(symmRefGet(p, &ref));
        T_EQ(ref.len, sizes[n]);
        in_no_block(p + sizes[n]);
        T_EQ(info(a).used, symm_round_up(sizes[n], 256));
        T_ERR(symmArenaFree(a, p + 256, NULL), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "it lies inside a block");
        T_OK(symmArenaFree(a, p, NULL));
        in_no_block(p);
        T_EQ(info(a).used, 0);
    }
    char text[256] = {0};
    int fd[2];
    take(a, 1000, NULL);
    T_EQ(pipe(fd), 0);
    T_OK(symmArenaDump(a, fd[1]));
    T_CHECK(read(fd[0], text, sizeof text - 1) > 0);
    T_MSG(text, "guard mode: of what is used, 256 bytes are red zones");
    close(fd[0]);
    close(fd[1]);
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void queries_end_where_the_program_asked(void) {
    T_EXPECT_WARNINGS();
    hk_processes(1, ask, NULL);
}

static void align(void *arg) {
    hk *k = arg;
    symmHeap_t heap = open_heap(k, 1);
    for (uint32_t flags = 0; flags <= SYMM_ARENA_SYM; flags++) {
        symmArena_t a = open_arena(heap, flags, 1);
        for (size_t to = 1; to <= MB; to *= 4) {
            void *p[3];
            for (int i = 0; i < 3; i++) {
                const size_t bytes = to / 3 + (size_t)i * 1000 + 1;
                T_OK(symmArenaAlloc(a, bytes, to, NULL, &p[i]));
                T_EQ((uintptr_t)p[i] % (to > 256 ? to : 256), 0);
                memset(p[i], i, bytes);
            }
            for (int i = 0; i < 3; i++) T_OK(symmArenaFree(a, p[i], NULL));
        }
        void *none;
        T_ERR(symmArenaAlloc(a, SIZE_MAX, 0, NULL, &none), symmOutOfMemory);
        T_ERR(symmArenaAlloc(a, SIZE_MAX - 300, 0, NULL, &none), symmOutOfMemory);
        T_OK(symmHeapCheck(heap));
        T_OK(symmArenaDestroy(a));
    }
    T_OK(symmHeapDestroy(heap));
}

static void alignment_is_kept(void) {
    T_EXPECT_WARNINGS();
    hk_processes(1, align, NULL);
}

/* No memory to note the block: it was not taken. */
static void full_table(void *arg) {
    hk *k = arg;
    symmHeap_t heap = open_heap(k, 1);
    symmArena_t a = open_arena(heap, 0, 1);
    void *p[3000] = {NULL};
    int refused = 0, n = 0;
    for (int i = 0; i < 3000; i++) {
        const uint64_t used = info(a).used;
        if (i % 2) T_EQ(symm_fail_arm("place_nodes:error"), 0);
        symmResult_t r = symmArenaAlloc(a, 300, 0, NULL, &p[n]);
        T_EQ(symm_fail_arm(""), 0);
        T_CHECK(r == symmSuccess || (i % 2 && r == symmOutOfMemory && !p[n]));
        T_EQ(info(a).used, used + (r ? 0 : 512));
        refused += r != symmSuccess;
        n += !r;
    }
    T_CHECKF(refused, "all were noted");
    for (int i = 0; i < n; i++) T_OK(symmArenaFree(a, p[i], NULL));
    T_OK(symmHeapCheck(heap));
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void a_block_that_cannot_be_noted_is_not_taken(void) {
    T_EXPECT_WARNINGS();
    hk_processes(1, full_table, NULL);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { WORKERS = 4, LIVES = 6, PLACES = 16, PASSES = T_TSAN ? 600 : 3000 };

typedef struct {
    symmHeap_t heap;
    symmArena_t a;
    char *overrun;
    _Atomic(char *) place[PLACES]; /* blocks that lie here are anybody's to free */
    _Atomic int left, wins;
    _Atomic(char *) twice;
    symmArena_t many[LIVES];
    kit k;
} crowd;

/* What a worker takes it fills, and leaves where another, or itself, frees it; and all end with
 * blocks kept. */
static void churn(crowd *c, int me) {
    unsigned seed = (unsigned)me + 5;
    for (int i = 0; i < PASSES; i++) {
        size_t bytes = (size_t)rand_r(&seed) % (i % 16 ? 3000 : 50000) + 1;
        char *p = take(c->a, bytes, NULL);
        memset(p, me, bytes);
        p = atomic_exchange(&c->place[rand_r(&seed) % PLACES], p);
        if (p) T_OK(symmArenaFree(c->a, p, NULL));
    }
    atomic_fetch_sub(&c->left, 1);
}

static void crowd_side(int t, int n, void *arg) {
    crowd *c = arg;
    if (t < n - 1) {
        churn(c, t);
        return;
    }
    do T_OK(symmHeapCheck(c->heap));
    while (atomic_load(&c->left) > 1);
    c->overrun[500] = 9;
    do {
        T_ERR(symmHeapCheck(c->heap), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 500 was written, of a block of 500 bytes");
    } while (atomic_load(&c->left));
}

static void crowd_rank(void *arg) {
    hk *k = arg;
    crowd *c = calloc(1, sizeof *c);
    T_CHECK(c != NULL);
    c->heap = open_heap_of(k, 1, 0, 3 * MB); /* a check of more takes longer than all else */
    c->a = open_arena(c->heap, 0, 1);
    c->overrun = take(c->a, 500, NULL);
    atomic_store(&c->left, WORKERS);
    T_THREADS(WORKERS + 1, crowd_side, c);
    T_ERR(symmArenaFree(c->a, c->overrun, NULL), symmInvalidUsage);
    for (int i = 0; i < PLACES; i++) T_OK(symmArenaFree(c->a, atomic_load(&c->place[i]), NULL));
    T_EQ(info(c->a).used, 0);
    T_OK(symmArenaTrim(c->a, NULL));
    T_OK(symmHeapCheck(c->heap));
    T_OK(symmArenaDestroy(c->a));
    T_OK(symmHeapDestroy(c->heap));
    free(c);
}

static void threads_free_each_others_blocks_beside_a_check(void) {
    T_EXPECT_WARNINGS();
    hk_processes(1, crowd_rank, NULL);
    hk_threads(1, crowd_rank, NULL);
}

/* The communicator's thread makes arenas, another one ends them while they are looked at. */
static void ends_side(int t, int n, void *arg) {
    crowd *c = arg;
    for (int i = 0; i < (T_TSAN ? 20 : 100); i++) {
        for (int j = 0; t && j < LIVES; j++) {
            c->many[j] = open_arena(c->heap, 0, 1);
            take(c->many[j], 3000, NULL)[2999] = 1;
        }
        if (t) atomic_store(&c->left, LIVES);
        kit_barrier(&c->k, n);
        for (int j = 0; !t && j < LIVES; j++) {
            T_OK(symmArenaDestroy(c->many[j]));
            atomic_fetch_sub(&c->left, 1);
        }
        if (t) do
                T_OK(symmHeapCheck(c->heap));
            while (atomic_load(&c->left));
        kit_barrier(&c->k, n);
    }
}

static void ends_rank(void *arg) {
    hk *k = arg;
    crowd *c = calloc(1, sizeof *c);
    T_CHECK(c != NULL);
    c->heap = open_heap(k, 1);
    T_THREADS(2, ends_side, c);
    T_OK(symmHeapDestroy(c->heap));
    free(c);
}

static void arenas_end_beside_a_check(void) {
    hk_processes(1, ends_rank, NULL);
}

/* One of two frees finds the block, the other is told. */
static void free_twice(int t, int n, void *arg) {
    crowd *c = arg;
    for (int i = 0; i < (T_TSAN ? 100 : 1000); i++) {
        if (!t) atomic_store(&c->twice, take(c->a, 20000, NULL));
        kit_barrier(&c->k, n);
        symmResult_t r = symmArenaFree(c->a, atomic_load(&c->twice), NULL);
        T_CHECK(r == symmSuccess || r == symmInvalidArgument);
        if (!r) atomic_fetch_add(&c->wins, 1);
        kit_barrier(&c->k, n);
        T_EQ(atomic_load(&c->wins), i + 1);
        kit_barrier(&c->k, n);
    }
}

static void twice_rank(void *arg) {
    hk *k = arg;
    crowd *c = calloc(1, sizeof *c);
    T_CHECK(c != NULL);
    c->heap = open_heap(k, 1);
    c->a = open_arena(c->heap, 0, 1);
    T_THREADS(2, free_twice, c);
    T_OK(symmHeapCheck(c->heap));
    T_OK(symmArenaDestroy(c->a));
    T_OK(symmHeapDestroy(c->heap));
    free(c);
}

static void one_of_two_frees_wins(void) {
    T_EXPECT_WARNINGS();
    hk_processes(1, twice_rank, NULL);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void nap(void *arg) {
    (void)arg;
    usleep(2000);
}
static void fill_1000(void *p) {
    memset(p, 7, 1000);
}
static void fill_1001(void *p) {
    memset(p, 7, 1001);
}

/* What a stream writes before the free is the block's owner's, though it comes late; and so is what
 * it writes too far. */
static void stream_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = open_heap(k, 1);
    symmArena_t a = open_arena(heap, 0, 1);
    symmStream_t s, t;
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamCreate(&t));
    for (int i = 0; i < 20; i++) {
        symmStream_t frees = i % 2 ? t : s;
        char *p = take(a, 1000, s);
        T_OK(symmStreamHostFunc(frees, nap, NULL));
        T_OK(symmStreamHostFunc(frees, fill_1000, p));
        T_OK(symmArenaFree(a, p, frees));
        T_EQ((unsigned char)p[999], 0xdd);
        T_OK(symmHeapCheck(heap));
        p = take(a, 1000, s);
        T_OK(symmStreamHostFunc(frees, nap, NULL));
        T_OK(symmStreamHostFunc(frees, fill_1001, p));
        T_ERR(symmArenaFree(a, p, frees), symmInvalidUsage);
        T_MSG(symmGetLastError(NULL), "byte 1000 was written, of a block of 1000 bytes");
        T_OK(symmHeapCheck(heap));
    }
    T_OK(symmStreamDestroy(t));
    T_OK(symmStreamDestroy(s));
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void work_of_a_stream_is_waited_for(void) {
    T_EXPECT_WARNINGS();
    hk_processes(1, stream_rank, NULL);
}

typedef struct {
    symmArena_t a;
    symmStream_t s;
    char *p;
} own;

static void free_own(void *arg) {
    own *o = arg;
    T_OK(symmArenaFree(o->a, o->p, o->s));
}

/* A stream's own function frees a block that the stream's later work writes to. It cannot wait for
 * that, so the block is left as it is and nothing is said against whoever has these bytes next. */
static void dark_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = open_heap(k, 1);
    symmArena_t a = open_arena(heap, 0, 1);
    own o = {.a = a};
    T_OK(symmStreamCreate(&o.s));
    o.p = take(a, 1000, o.s);
    T_OK(symmStreamHostFunc(o.s, free_own, &o));
    T_OK(symmStreamHostFunc(o.s, nap, NULL));
    T_OK(symmStreamHostFunc(o.s, fill_1000, o.p));
    T_OK(symmStreamSynchronize(o.s));
    T_EQ(o.p[999], 7);
    T_OK(symmHeapCheck(heap));
    char *p = take(a, 500, o.s);
    T_CHECK(p == o.p);
    T_EQ(p[500], 7); /* no red zone over what the stream may still write to */
    T_OK(symmHeapCheck(heap));
    T_OK(symmArenaFree(a, p, o.s));
    T_OK(symmHeapCheck(heap));
    T_OK(symmStreamDestroy(o.s));
    T_OK(symmArenaDestroy(a));
    T_OK(symmHeapDestroy(heap));
}

static void what_cannot_be_waited_for_is_left_alone(void) {
    T_EXPECT_WARNINGS();
    hk_processes(1, dark_rank, NULL);
}

/* ---- several ranks --------------------------------------------------------------------------- */

enum { STRIPES = 3, CALLS = 400 };

typedef struct {
    symmArena_t a;
    hk *k;
    uint64_t base, sum[STRIPES];
} striped;

static void use_stripe(int stripe, int n, void *arg) {
    striped *w = arg;
    unsigned seed = (unsigned)stripe;
    void *p[20] = {NULL};
    (void)n;
    for (int i = 0; i < CALLS; i++) {
        void **q = &p[rand_r(&seed) % 20];
        size_t bytes = (size_t)rand_r(&seed) % 9000 + 1;
        if ((i + w->k->rank) % (w->k->rank + stripe + 2) == 0) sched_yield();
        if (*q) T_OK(symmArenaFree(w->a, *q, NULL));
        T_OK(symmArenaAllocOn(w->a, stripe, bytes, 0, q));
        memset(*q, stripe, bytes);
        const uint64_t off = (uint64_t)(uintptr_t)*q - w->base;
        w->sum[stripe] = (w->sum[stripe] ^ off) * 0x9e3779b97f4a7c15ull;
    }
}

static void symmetric_rank(void *arg) {
    hk *k = arg;
    symmHeap_t heap = open_heap(k, 1);
    symmArena_t a = open_arena(heap, SYMM_ARENA_SYM, STRIPES);
    symmHeapInfo_t i = hk_info(heap);
    striped w = {.a = a, .k = k, .base = i.base + (uint64_t)k->rank * i.stride};
    void *none;
    T_THREADS(STRIPES, use_stripe, &w);
    for (int j = 0; j < STRIPES; j++) HK_ALIKE(k, w.sum[j]);
    T_OK(symmHeapCheck(heap));
    T_ERR(symmArenaAllocOn(a, 0, 64 * KB, 0, &none), symmOutOfMemory); /* with its red zone */
    T_OK(symmArenaDestroy(a));
    T_EQ(hk_info(heap).symUsed, 0);
    T_OK(symmHeapDestroy(heap));
}

static void symmetric_offsets_are_alike(void) {
    T_EXPECT_WARNINGS();
    hk_processes(3, symmetric_rank, NULL);
    hk_threads(3, symmetric_rank, NULL);
}

/* ---- what fits ------------------------------------------------------------------------------- */

static void fit_rank(void *arg) {
    static const uint64_t sizes[] = {4 * MB, 2 * MB, 64 * KB, 32 * KB, 4000};
    hk *k = arg;
    T_EXPECT_WARNINGS();
    symmHeap_t heap = open_heap(k, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t bytes = sizes[i], n = 4 * MB / symm_round_up(bytes, 256);
        symmArena_t a = open_arena(heap, 0, 1);
        void *more;
        for (uint64_t j = 0; j < n; j++) memset(take(a, bytes, NULL), 1, bytes);
        T_EQ(info(a).used, n * symm_round_up(bytes, 256));
        T_ERR(symmArenaAlloc(a, bytes, 0, NULL, &more), symmOutOfMemory); /* nor without it */
        T_MSG(symmGetLastError(NULL), "of its limit of 4194304");
        T_OK(symmHeapCheck(heap));
        T_OK(symmArenaDestroy(a));
    }
    T_OK(symmHeapDestroy(heap));
}
static void what_fits_without_guard_mode_fits_with_it(void) {
    hk_processes(1, fit_rank, NULL);
}

T_MAIN(T(what_fits_without_guard_mode_fits_with_it), T(an_overrun_by_one_byte_is_found),
       T(a_write_after_free_is_found), T(queries_end_where_the_program_asked), T(alignment_is_kept),
       T(a_block_that_cannot_be_noted_is_not_taken),
       T(threads_free_each_others_blocks_beside_a_check), T(arenas_end_beside_a_check),
       T(one_of_two_frees_wins), T(work_of_a_stream_is_waited_for),
       T(what_cannot_be_waited_for_is_left_alone), T(symmetric_offsets_are_alike))
