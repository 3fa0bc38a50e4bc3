/* fault_gpu_heap.c - every call of the CUDA driver that making a heap, growing it and moving a
 * vector take, refused in turn on each rank: all ranks say the same, the heap or vector is as it
 * was and works, and nothing is left. Forked ranks on the fake driver; no lock. */
#include "refuse_kit.h"

#include "symm_heap.h"
#include "symm_vec.h"

enum { CHUNK = 2 << 20, BLOCK = 5000, VEC = 2 * CHUNK, LONGER = 4 * CHUNK + 1000 };

/* One thing of this process at a time. */
static symmHeap_t heap;
static symmHeapInfo_t info;
static symmVec_t vec;
static char *block;

static symmResult_t new_heap(int rank, rank_of *me) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    c.reserve = 32 * CHUNK;
    c.chunk = CHUNK;
    c.symBytes = 2 * CHUNK;
    c.localBytes = (uint64_t)(1 + rank) * CHUNK;
    heap = NULL;
    return symmHeapCreate(me->comm, &c, &heap);
}

static symmHeapInfo_t asked(void) {
    symmHeapInfo_t i;
    memset(&i, 0, sizeof i); /* compared as bytes */
    i.size = sizeof i;
    T_OK(symmHeapQuery(heap, &i));
    return i;
}

static void fill(char *at, uint64_t bytes, int rank) {
    memset(at, 'a' + rank, bytes);
}
static void filled(const char *at, uint64_t bytes, int rank) {
    for (uint64_t i = 0; i < bytes; i += i + 1 < bytes ? bytes - 1 : 1) T_EQ(at[i], 'a' + rank);
}

/* A block that is written here is found there, in every rank's part. Kernels of the fake driver
 * wait for nobody: so the test's own barrier. */
static void reaches(fk *f, rank_of *me, int rank, int n, char *at, uint64_t bytes) {
    symmRef_t ref;
    void *there;
    fill(at, bytes, rank);
    kit_barrier(&f->k, n);
    T_OK(symmRefGet(at, &ref));
    for (int r = 0; r < n; r++) {
        T_OK(symmRefPtr(&ref, me->comm, r, &there));
        filled(there, bytes, r);
    }
    kit_barrier(&f->k, n);
}

static void before_growth(fk *f, int rank, int n, rank_of *me) {
    void *p;
    make(f, rank, n, me);
    T_OK(new_heap(rank, me));
    T_OK(symmHeapAlloc(heap, BLOCK, 0, SYMM_ALLOC_SYM, &p));
    block = p;
    fill(block, BLOCK, rank);
    info = asked();
}

static symmResult_t grow(fk *f, int rank, rank_of *me) {
    (void)f, (void)me;
    return symmHeapGrow(heap, 3 * CHUNK, (uint64_t)(1 + rank) * CHUNK);
}

/* As it was, if that was refused, and then it grows. */
static void after_growth(fk *f, int rank, int n, rank_of *me) {
    void *p;
    filled(block, BLOCK, rank);
    if (f->k.code[rank]) {
        const symmHeapInfo_t now = asked();
        T_EQ(memcmp(&now, &info, sizeof now), 0);
        T_OK(grow(f, rank, me));
    }
    T_EQ(asked().symBytes, info.symBytes + 3 * CHUNK);
    T_EQ(asked().localBytes, info.localBytes + (uint64_t)(1 + rank) * CHUNK);
    T_EQ(asked().digest, info.digest);
    T_OK(symmHeapAlloc(heap, 3 * CHUNK, 0, SYMM_ALLOC_SYM, &p));
    reaches(f, me, rank, n, p, 3 * CHUNK);
    reaches(f, me, rank, n, block, BLOCK);
    T_OK(symmHeapCheck(heap));
    T_OK(symmHeapDestroy(heap));
}

static symmResult_t create(fk *f, int rank, rank_of *me) {
    (void)f;
    symmResult_t r = new_heap(rank, me);
    T_CHECK((r != symmSuccess) == (heap == NULL));
    return r;
}

static void after_creation(fk *f, int rank, int n, rank_of *me) {
    void *p;
    if (f->k.code[rank]) T_OK(create(f, rank, me));
    T_OK(symmHeapAlloc(heap, BLOCK, 0, SYMM_ALLOC_SYM, &p));
    reaches(f, me, rank, n, p, BLOCK);
    T_OK(symmHeapDestroy(heap));
}

/* Twice as long as its addresses reach: it moves. */
static void before_the_move(fk *f, int rank, int n, rank_of *me) {
    symmVecConfig_t c = SYMM_VEC_CONFIG_INITIALIZER;
    void *p;
    make(f, rank, n, me);
    c.max = VEC;
    c.chunk = CHUNK;
    T_OK(symmVecCreate(me->comm, &c, &vec));
    T_OK(symmVecGrow(vec, VEC));
    T_OK(symmVecPtr(vec, rank, &p));
    block = p;
    fill(block, VEC, rank);
}

static symmResult_t move(fk *f, int rank, rank_of *me) {
    (void)f, (void)rank, (void)me;
    return symmVecGrow(vec, LONGER);
}

static void after_the_move(fk *f, int rank, int n, rank_of *me) {
    uint64_t bytes;
    void *p;
    T_OK(symmVecSize(vec, &bytes));
    T_OK(symmVecPtr(vec, rank, &p));
    filled(p, VEC, rank);
    if (f->k.code[rank]) {
        T_EQ(bytes, VEC);
        T_CHECK(p == block);
        T_OK(move(f, rank, me));
    }
    T_OK(symmVecSize(vec, &bytes));
    T_EQ(bytes, LONGER);
    T_OK(symmVecPtr(vec, rank, &p));
    T_CHECK(p != block);
    filled(p, VEC, rank);
    fill(p, LONGER, rank);
    kit_barrier(&f->k, n);
    for (int r = 0; r < n; r++) {
        T_OK(symmVecPtr(vec, r, &p));
        filled(p, LONGER, r);
    }
    kit_barrier(&f->k, n);
    T_OK(symmVecDestroy(vec));
}

static const phase creation = {"making a heap", make, create, 0, after_creation};
static const phase growth = {"growing a heap", before_growth, grow, 0, after_growth};
static const phase moving = {"moving a vector", before_the_move, move, 0, after_the_move};

static void run_creation(int rank, int n, void *s) {
    refuse_all(&creation, s, rank, n);
}
static void run_growth(int rank, int n, void *s) {
    refuse_all(&growth, s, rank, n);
}
static void run_moving(int rank, int n, void *s) {
    refuse_all(&moving, s, rank, n);
}

static void refusals_while_a_heap_is_made(void) {
    each_rank(run_creation);
}
static void refusals_while_a_heap_grows(void) {
    each_rank(run_growth);
}
static void refusals_while_a_vector_moves(void) {
    each_rank(run_moving);
}

T_MAIN(T_TIMEOUT(refusals_while_a_heap_is_made, 180), T_TIMEOUT(refusals_while_a_heap_grows, 180),
       T_TIMEOUT(refusals_while_a_vector_moves, 180))
