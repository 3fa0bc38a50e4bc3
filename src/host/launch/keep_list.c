/* keep_list.c - what captured sends and receives keep alive, see keep.h. Any thread; counted, no
 * lock. */
#include "keep.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "host/comm/comm.h"
#include "host/window/window.h"

struct symm_kept_list {
    _Atomic int refs;
    symm_comm *comm;
    symm_p2p_list *list;   /* host backend; NULL: the one call is in the task */
    _Atomic uint64_t ends; /* of mappings, relaxed: a hint that nothing has ended since */
    int nwins, npieces;
    symm_win **wins;
    symm_lived pieces[]; /* host backend: of the windows under the buffers; else none */
};

static void retain(void *p) {
    SYMM_ASSERT(atomic_load_explicit(&((symm_kept_list *)p)->refs, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&((symm_kept_list *)p)->refs, 1, memory_order_relaxed);
}

void symm_kept_list_release(void *p) {
    symm_kept_list *h = p;
    SYMM_ASSERT(atomic_load_explicit(&h->refs, memory_order_relaxed) > 0);
    /* Acquire and release: whoever frees comes after every replay. */
    if (atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) != 1) return;
    for (int i = 0; i < h->nwins; i++)
        if (h->wins[i]) symm_window_unref(h->wins[i]);
    if (h->list) symm_p2p_list_unref(h->list);
    symm_comm_unref(h->comm);
    free(h);
}

const symm_graph_user symm_kept_list_held = {.retain = retain, .release = symm_kept_list_release};

static int list_pieces(const symm_p2p_list *l, symm_lived *out) {
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->wins[i])
            n += symm_window_pieces(l->wins[i], l->ops[i].buff, l->ops[i].bytes,
                                    out ? out + n : NULL);
    return n;
}

symm_kept_list *symm_kept_list_new(symm_comm *c, symm_p2p_list *l) {
    const int n = c->cuda ? 0 : list_pieces(l, NULL);
    const size_t pieces = (size_t)n * sizeof(symm_lived), wins = (size_t)l->n * sizeof *l->wins;
    symm_kept_list *h = SYMM_FAIL_ALLOC(p2p_keep, malloc(sizeof *h + pieces + wins));
    if (!h) return NULL;
    *h = (symm_kept_list){.refs = 1, .comm = c, .nwins = l->n, .npieces = n};
    if (n) list_pieces(l, h->pieces);
    for (int i = 0; i < n; i++) SYMM_ASSERT(h->pieces[i].lo < h->pieces[i].hi);
    h->wins = memcpy((char *)h->pieces + pieces, l->wins, wins);
    symm_comm_ref(c);
    for (int i = 0; i < l->n; i++)
        if (l->wins[i]) symm_window_ref(l->wins[i]);
    if (c->cuda || !l->refs) return h;
    symm_p2p_list_ref(l);
    h->list = l;
    return h;
}

symm_kept_list *symm_kept_onesided(symm_comm *c, const symm_onesided_call *call) {
    symm_p2p_op ops[2] = {{.buff = call->buff, .bytes = call->bytes}, {.buff = NULL}};
    symm_win *wins[2] = {call->near, call->target};
    symm_p2p_list both = {.ops = ops, .wins = wins, .n = 2};
    return symm_kept_list_new(c, &both);
}

int symm_kept_list_lives(symm_kept_list *h) {
    const uint64_t ends = symm_vmm_ended();
    if (atomic_load_explicit(&h->ends, memory_order_relaxed) == ends) return 1;
    for (int i = 0; i < h->npieces; i++)
        if (h->comm->vmm->life((const void *)(uintptr_t)h->pieces[i].lo) != h->pieces[i].life)
            return 0;
    atomic_store_explicit(&h->ends, ends, memory_order_relaxed);
    return 1;
}
