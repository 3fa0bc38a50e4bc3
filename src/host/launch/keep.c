/* keep.c - see keep.h. Any thread; counted, no lock. */
#include "keep.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "host/coll/counts.h"
#include "host/comm/comm.h"
#include "host/window/window.h"

struct symm_keep {
    _Atomic int refs;
    symm_comm *comm;
    symm_win *src, *dst;
    _Atomic uint64_t ends; /* relaxed: a hint that nothing has ended since */
    symm_extent *extents;  /* a count per rank: behind the pieces; else NULL */
    int n;                 /* host backend: the pieces of windows under its buffers; else none */
    symm_lived at[];
};

const symm_extent *symm_keep_extents(const symm_keep *k) {
    return k->extents;
}

int symm_keep_lives(symm_keep *k) {
    const uint64_t ends = symm_vmm_ended();
    if (atomic_load_explicit(&k->ends, memory_order_relaxed) == ends) return 1;
    for (int i = 0; i < k->n; i++)
        if (k->comm->vmm->life((const void *)(uintptr_t)k->at[i].lo) != k->at[i].life) return 0;
    atomic_store_explicit(&k->ends, ends, memory_order_relaxed);
    return 1;
}

static void retain(void *p) {
    SYMM_ASSERT(atomic_load_explicit(&((symm_keep *)p)->refs, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&((symm_keep *)p)->refs, 1, memory_order_relaxed);
}

void symm_keep_release(void *p) {
    symm_keep *k = p;
    SYMM_ASSERT(atomic_load_explicit(&k->refs, memory_order_relaxed) > 0 && k->comm);
    /* Acquire and release: whoever frees comes after every replay. */
    if (atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1) return;
    if (k->src) symm_window_unref(k->src);
    if (k->dst) symm_window_unref(k->dst);
    symm_comm_unref(k->comm);
    free(k);
}

const symm_graph_user symm_keep_held = {.retain = retain, .release = symm_keep_release};

symm_keep *symm_keep_new(const symm_launch *l) {
    symm_win *src = l->src_win ? l->src_win : l->from, *dst = l->dst_win;
    const int host = !l->comm->cuda,
              n = src && host ? symm_window_pieces(src, l->args.src, l->in, NULL) : 0,
              more = dst && host ? symm_window_pieces(dst, l->args.dst, l->out, NULL) : 0;
    const symm_extent *extents = host ? l->args.extents : NULL;
    const size_t bytes = extents ? symm_extents_bytes(l->comm->nranks) : 0,
                 pieces = sizeof(symm_keep) + (size_t)(n + more) * sizeof(symm_lived);
    symm_keep *k = SYMM_FAIL_ALLOC(capture_call, calloc(1, pieces + bytes));
    if (!k) return NULL;
    _Static_assert(sizeof(symm_lived) % _Alignof(symm_extent) == 0, "extents lie behind pieces");
    if (extents) k->extents = memcpy((char *)k + pieces, extents, bytes);
    atomic_store(&k->refs, 1);
    k->comm = l->comm;
    k->src = src;
    k->dst = dst;
    k->n = n + more;
    if (n) symm_window_pieces(src, l->args.src, l->in, k->at);
    if (more) symm_window_pieces(dst, l->args.dst, l->out, k->at + n);
    for (int i = 0; i < k->n; i++) SYMM_ASSERT(k->at[i].lo < k->at[i].hi && !k->at[i].gone);
    symm_comm_ref(k->comm);
    if (k->src) symm_window_ref(k->src);
    if (k->dst) symm_window_ref(k->dst);
    return k;
}
