/* fault_multicast_refused.c - every call of the CUDA driver that creation, registration and growth
 * make with multicast windows, refused in turn on each rank, on the fake driver: they fail on all
 * ranks, or go on without multicast on all, and say on which rank what was refused. Nothing is
 * left, and the next attempt works. Forked ranks; no lock. */
#include "refuse_kit.h"

#include "symm_heap.h"

enum { CHUNK = 2 << 20, BLOCK = 3 << 20 };

/* What a rank is told where others have an address: whose step it was. */
static void says_whose(const fk *f, symmResult_t r, const void *at) {
    char whose[16];
    snprintf(whose, sizeof whose, "rank %d: ", f->victim);
    T_EQ(r, symmNotSupported);
    T_CHECK(!at);
    T_MSG(symmGetLastError(NULL), whose);
}

/* The window's multicast address reaches all ranks' memory, or there is none. */
static int window_is_cast(const rank_of *me) {
    symmWindowInfo_t info = {.size = sizeof info};
    T_OK(symmWindowQuery(me->win, &info));
    return info.multicast;
}
static void look_at_window(const fk *f, const rank_of *me, int n) {
    void *at = NULL;
    if (!me->win) return;
    const symmResult_t r = symmWindowMulticastPtr(me->win, 0, &at);
    if (window_is_cast(me))
        fake_cuda_all_bound(at, WIN, n);
    else
        says_whose(f, r, at);
}

/* ---- creation -------------------------------------------------------------------------------- */

static void before_nothing(fk *f, int rank, int n, rank_of *me) {
    (void)me;
    fk_id(f, rank, n);
}
static symmResult_t create(fk *f, int rank, rank_of *me) {
    return symmCommInitRank(&me->comm, RANKS, f->id, rank);
}
static int comm_is_cast(const rank_of *me) {
    symmCommInfo_t info = {.size = sizeof info};
    T_OK(symmCommQuery(me->comm, &info));
    return info.multicast;
}
/* Windows work, bound or not. */
static void after_creation(fk *f, int rank, int n, rank_of *me) {
    if (f->k.code[rank]) return;
    T_OK(symmMemAlloc(&me->mem, WIN));
    T_OK(do_register(f, rank, me));
    T_EQ(window_is_cast(me), comm_is_cast(me));
    look_at_window(f, me, n);
    kit_barrier(&f->k, n);
}

/* ---- registration ---------------------------------------------------------------------------- */

static void after_registration(fk *f, int rank, int n, rank_of *me) {
    (void)rank;
    look_at_window(f, me, n);
    kit_barrier(&f->k, n);
}

/* ---- growth of a heap ------------------------------------------------------------------------ */

static symmHeap_t heap; /* one of this process at a time */

static void before_growth(fk *f, int rank, int n, rank_of *me) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    make(f, rank, n, me);
    c.reserve = 32 * CHUNK;
    c.chunk = CHUNK;
    c.symBytes = CHUNK;
    c.localBytes = CHUNK;
    T_OK(symmHeapCreate(me->comm, &c, &heap));
}
static symmResult_t grow(fk *f, int rank, rank_of *me) {
    (void)f, (void)rank, (void)me;
    return symmHeapGrow(heap, 3 * CHUNK, 0);
}
/* A block that has no place without what has come. */
static int block_is_cast(const rank_of *me) {
    void *block, *at = NULL;
    T_OK(symmHeapAlloc(heap, BLOCK, 0, SYMM_ALLOC_SYM, &block));
    const symmResult_t r = symmMemMulticastPtr(me->comm, block, BLOCK, &at);
    for (uint64_t in = 0; !r && in < BLOCK; in += CHUNK / 2) /* of several pieces */
        fake_cuda_all_bound((char *)at + in, 64, RANKS);
    T_OK(symmHeapFree(heap, block));
    T_EQ(r, at ? symmSuccess : symmNotSupported);
    return at != NULL;
}
/* What was refused comes with the next growth, and is bound then. */
static void after_growth(fk *f, int rank, int n, rank_of *me) {
    if (f->k.code[rank]) {
        T_OK(grow(f, rank, me));
        T_CHECK(block_is_cast(me));
    }
    kit_barrier(&f->k, n);
    T_OK(symmHeapDestroy(heap));
    kit_barrier(&f->k, n);
}

static const phase creation = {"creation", before_nothing, create, 0, after_creation};
static const phase registration = {"registration", make, do_register, 0, after_registration};
static const phase growth = {"growth of a heap", before_growth, grow, 0, after_growth};

static void run_creation(int rank, int n, void *s) {
    cast_of = comm_is_cast;
    spared = "cuMulticastBindMem"; /* of the control block, which nobody uses by that address */
    refuse_all(&creation, s, rank, n);
}
static void run_registration(int rank, int n, void *s) {
    cast_of = window_is_cast;
    refuse_all(&registration, s, rank, n);
}
static void run_growth(int rank, int n, void *s) {
    cast_of = block_is_cast;
    refuse_all(&growth, s, rank, n);
}

static void refusals_in_creation(void) {
    each_rank(run_creation);
}
static void refusals_in_registration(void) {
    each_rank(run_registration);
}
static void refusals_in_growth(void) {
    each_rank(run_growth);
}

T_MAIN(T_TIMEOUT(refusals_in_creation, 120), T_TIMEOUT(refusals_in_registration, 60),
       T_TIMEOUT(refusals_in_growth, 60))
