/* unit_out.c - out-parameters are written only on success: a call that fails, and one that waits in
 * a group, leaves them alone. One process, one rank; no lock. */
#include "symm_arena.h"
#include "symm_heap.h"
#include "symm_vec.h"
#include "t.h"

#define MARK  ((void *)(uintptr_t)0x5a5a5a00)
#define LARGE ((size_t)1 << 60)

typedef struct {
    symmComm_t comm;
    symmHeap_t heap;
    symmArena_t arena, striped;
} all;

static all open_all(void) {
    all a;
    symmArenaConfig_t sym = SYMM_ARENA_CONFIG_INITIALIZER;
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    c.symBytes = c.localBytes = 8 << 20;
    sym.flags = SYMM_ARENA_SYM;
    sym.stripes = 2;
    T_OK(symmCommInitAll(&a.comm, 1, NULL));
    T_OK(symmHeapCreate(a.comm, &c, &a.heap));
    T_OK(symmArenaCreate(a.heap, NULL, &a.arena));
    T_OK(symmArenaCreate(a.heap, &sym, &a.striped));
    return a;
}

static void close_all(all *a) {
    T_OK(symmArenaDestroy(a->striped));
    T_OK(symmArenaDestroy(a->arena));
    T_OK(symmHeapDestroy(a->heap));
    T_OK(symmCommDestroy(a->comm));
}

#define FAILS(call, out)                         \
    do {                                         \
        void *was_ = MARK;                       \
        memcpy(&(out), &was_, sizeof was_);      \
        T_CHECK((call) != symmSuccess);          \
        T_EQ((uintptr_t)(out), (uintptr_t)MARK); \
    } while (0)

static void what_fails_writes_nothing(void) {
    all a = open_all();
    symmHeapConfig_t bad = SYMM_HEAP_CONFIG_INITIALIZER;
    symmVecConfig_t bad_vec = SYMM_VEC_CONFIG_INITIALIZER;
    symmArenaConfig_t bad_arena = SYMM_ARENA_CONFIG_INITIALIZER;
    symmHeap_t heap;
    symmVec_t vec;
    symmArena_t arena;
    void *p;
    int equal = 7;
    T_EXPECT_WARNINGS();
    bad.size = bad_vec.size = 1;
    bad_arena.flags = 0xffff;
    FAILS(symmHeapCreate(a.comm, &bad, &heap), heap);
    FAILS(symmHeapCreate(NULL, NULL, &heap), heap);
    FAILS(symmVecCreate(a.comm, &bad_vec, &vec), vec);
    FAILS(symmVecCreate(NULL, NULL, &vec), vec);
    FAILS(symmArenaCreate(NULL, NULL, &arena), arena);
    FAILS(symmArenaCreate(a.heap, &bad_arena, &arena), arena);
    FAILS(symmHeapAlloc(a.heap, LARGE, 0, SYMM_ALLOC_SYM, &p), p);
    FAILS(symmHeapAlloc(a.heap, 8, 3, SYMM_ALLOC_LOCAL, &p), p);
    FAILS(symmHeapAlloc(NULL, 0, 0, SYMM_ALLOC_SYM, &p), p);
    FAILS(symmArenaAlloc(a.arena, LARGE, 0, NULL, &p), p);
    FAILS(symmArenaAlloc(a.arena, 8, 3, NULL, &p), p);
    FAILS(symmArenaAlloc(NULL, 8, 0, NULL, &p), p);
    FAILS(symmArenaAlloc(a.striped, 8, 0, NULL, &p), p);
    FAILS(symmArenaAllocOn(a.striped, 9, 8, 0, &p), p);
    FAILS(symmArenaAllocOn(a.striped, 1, LARGE, 0, &p), p);
    T_ERR(symmArenaEqual(a.arena, NULL, &equal), symmInvalidArgument);
    T_EQ(equal, 7);
    close_all(&a);
}

static void nothing_asked_for_is_NULL(void) {
    all a = open_all();
    void *p = MARK;
    T_OK(symmHeapAlloc(a.heap, 0, 0, SYMM_ALLOC_SYM, &p));
    T_CHECK(p == NULL);
    p = MARK;
    T_OK(symmArenaAlloc(a.arena, 0, 0, NULL, &p));
    T_CHECK(p == NULL);
    p = MARK;
    T_OK(symmArenaAllocOn(a.striped, 1, 0, 0, &p));
    T_CHECK(p == NULL);
    close_all(&a);
}

static void a_group_writes_at_its_end(void) {
    symmComm_t comm;
    symmHeap_t heap = MARK;
    symmVec_t vec = MARK;
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_OK(symmGroupStart());
    T_OK(symmHeapCreate(comm, NULL, &heap));
    T_OK(symmVecCreate(comm, NULL, &vec));
    T_CHECK((void *)heap == MARK && (void *)vec == MARK);
    T_OK(symmGroupEnd());
    T_OK(symmVecDestroy(vec));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
}

T_MAIN(T(what_fails_writes_nothing), T(nothing_asked_for_is_NULL), T(a_group_writes_at_its_end))
