/* unit_address.c - the formula of symm.h and symm_heap.h: base + rank*stride + offset leads to each
 * rank's part of windows and heaps, for ranks that are processes and ranks that are threads. */
#include "heap_kit.h"

enum { RANKS = 3 };

typedef struct {
    _Atomic uint64_t offset[RANKS];
} told;

static char *flat(uint64_t base, uint64_t stride, int rank, uint64_t offset) {
    return (char *)(uintptr_t)(base + (uint64_t)rank * stride + offset);
}

/* A window that begins in the middle of an allocation, further in on higher ranks. */
static void windows(hk *k, told *t) {
    symmCommInfo_t c = {.size = sizeof c};
    symmWindowInfo_t w = {.size = sizeof w};
    symmWindow_t win;
    char *p = NULL, *own;
    void *peer;
    T_OK(symmMemAlloc((void **)&p, 2 * HK_MB));
    own = p + 4096 * (k->rank + 1);
    T_OK(symmWindowRegister(k->comm, own, HK_MB, &win, SYMM_WIN_DEFAULT));
    hk_fill(own, 1000, k->rank, 7);
    T_OK(symmCommQuery(k->comm, &c));
    T_OK(symmWindowQuery(win, &w));
    T_EQ(c.threadRanks, k->threads);
    T_EQ(w.slotBytes == 0, k->threads);
    atomic_store(&t->offset[k->rank], w.offset);
    hk_barrier(k);
    for (int r = 0; r < k->n; r++) {
        T_OK(symmWindowPeerPtr(win, 0, r, &peer));
        T_CHECK(flat(c.base, c.stride, r, atomic_load(&t->offset[r])) == (char *)peer);
        hk_holds(peer, 1000, r, 7);
    }
    if (k->threads) T_CHECK(flat(c.base, c.stride, k->rank, w.offset) == own); /* where it is */
    hk_barrier(k);
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmMemFree(p));
}

/* A heap's offsets are equal on all ranks, threads too. */
static void heaps(hk *k) {
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 2 * HK_MB, 2 * HK_MB);
    char *p = hk_sym(heap, 1000);
    const symmHeapInfo_t i = hk_info(heap);
    const uint64_t off = hk_off(heap, k, p);
    HK_ALIKE(k, off);
    hk_fill(p, 1000, k->rank, 8);
    hk_barrier(k);
    for (int r = 0; r < k->n; r++) hk_holds(flat(i.base, i.stride, r, off), 1000, r, 8);
    hk_barrier(k);
    T_OK(symmHeapDestroy(heap));
}

static void use(void *arg) {
    hk *k = arg;
    windows(k, k->arg);
    heaps(k);
}
static void the_formula_holds_for_processes(void) {
    hk_processes(RANKS, use, T_SHARED(sizeof(told)));
}
static void the_formula_holds_for_threads(void) {
    hk_threads(RANKS, use, T_SHARED(sizeof(told)));
}

T_MAIN(T(the_formula_holds_for_processes), T(the_formula_holds_for_threads))
