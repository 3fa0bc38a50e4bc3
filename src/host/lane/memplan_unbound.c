/* memplan_unbound.c - graphs that no plan was bound to. Their memory is held from the capture until
 * the graph is gone and what it had left is freed. The communicator's user thread.
 *
 * A rank knows late that a graph is gone, and ranks know it at different times. So a graph with SYM
 * blocks of several ranks is let go by the symmHeapCollect that finds it gone on all of them; any
 * other graph as soon as it is gone. On the host backend the graph reports its launches: a block
 * that it leaves is allocated from a launch to its free. CUDA reports none: such a block counts as
 * allocated from the capture to its first free, and no free is refused. */
#include "memplan.h"

static int is_loose(const symm_memplan *p) {
    return !p->handle && !p->explicit_nodes;
}

static uint64_t launches_of(const symm_memplan *p) {
    return p->set->comm->cuda ? 1 : atomic_load_explicit(&p->direct, memory_order_relaxed);
}

int symm_unbound_out(const symm_memplan *p, const symm_memblock *b) {
    return is_loose(p) && !b->freed && launches_of(p) > b->given;
}

int symm_unbound_may_free(const symm_memplan *p, const symm_memblock *b) {
    return symm_unbound_out(p, b) || (p->set->comm->cuda && is_loose(p) && !b->freed);
}

void symm_unbound_freed(const symm_memplan *p, symm_memblock *b) {
    b->given = launches_of(p);
}

int symm_unbound_any(const symm_memplan *p) {
    for (int i = 0; i < p->nblocks; i++)
        if (symm_unbound_out(p, &p->blocks[i])) return 1;
    return 0;
}

void symm_unbound_forget(symm_memplan *p) {
    for (int i = 0; i < p->nblocks; i++) symm_unbound_freed(p, &p->blocks[i]);
}

/* Each launch of p's graph has freed what a launch of the other graph had left. */
void symm_unbound_ends(const symm_memplan *p) {
    for (int i = 0; is_loose(p) && i < p->nfrees; i++) {
        const symm_memplan *o = p->frees[i].plan;
        symm_memblock *b = &o->blocks[p->frees[i].block];
        const uint64_t most = launches_of(o), given = b->given + launches_of(p);
        b->given = given < most ? given : most;
    }
}

int symm_unbound_is_own(const symm_memplan *p) {
    return is_loose(p) && (!p->sym_no || p->set->comm->nranks == 1);
}

int symm_unbound_waits(const symm_memplan *p) {
    return is_loose(p) && p->held && !p->destroyed && p->sym_no && !symm_unbound_is_own(p);
}
