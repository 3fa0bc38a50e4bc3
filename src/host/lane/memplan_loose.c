/* memplan_loose.c - graphs that the program has never bound to a plan. Their memory is held from
 * the capture on, until the graph is gone and what it had left is freed. The communicator's user
 * thread; `launched` runs in any, where it may only count.
 *
 * Whether a graph is gone is known late and differs between ranks. So what has SYM blocks of
 * several ranks is let go by the symmHeapCollect that finds it gone on all of them; the rest as
 * soon as it is. On the host backend the graph tells of its launches: a block that it leaves is
 * allocated from a launch to its free. CUDA tells of none: there such a block counts as
 * allocated from the capture to the first free, and a free is never refused. */
#include "memplan.h"

#include "host/comm/comm.h"
#include "host/window/space.h"

static symmResult_t launched(void *plan) {
    atomic_fetch_add_explicit(&((symm_memplan *)plan)->direct, 1, memory_order_relaxed);
    return symmSuccess;
}

/* At once: who asks for memory must hear of the graph's end, not who next calls the library at
 * large. */
const symm_graph_user symm_memloose_user = {.retain = symm_memplan_retain,
                                            .release = symm_memplan_release,
                                            .begin = launched,
                                            .at_once = 1};

static int is_loose(const symm_memplan *p) {
    return !p->handle && !p->explicit_nodes;
}

static uint64_t launches_of(const symm_memplan *p) {
    return p->set->comm->cuda ? 1 : atomic_load_explicit(&p->direct, memory_order_relaxed);
}

int symm_memloose_out(const symm_memplan *p, const symm_memblock *b) {
    return is_loose(p) && !b->freed && launches_of(p) > b->given;
}

int symm_memloose_may_free(const symm_memplan *p, const symm_memblock *b) {
    return symm_memloose_out(p, b) || (p->set->comm->cuda && is_loose(p) && !b->freed);
}

void symm_memloose_freed(const symm_memplan *p, symm_memblock *b) {
    b->given = launches_of(p);
}

int symm_memloose_any(const symm_memplan *p) {
    for (int i = 0; i < p->nblocks; i++)
        if (symm_memloose_out(p, &p->blocks[i])) return 1;
    return 0;
}

void symm_memloose_forget(symm_memplan *p) {
    for (int i = 0; i < p->nblocks; i++) symm_memloose_freed(p, &p->blocks[i]);
}

/* Each launch of the one freed what a launch of the other had left. */
void symm_memloose_ends(const symm_memplan *p) {
    for (int i = 0; is_loose(p) && i < p->nfrees; i++) {
        const symm_memplan *o = p->frees[i].plan;
        symm_memblock *b = &o->blocks[p->frees[i].block];
        const uint64_t most = launches_of(o), given = b->given + launches_of(p);
        b->given = given < most ? given : most;
    }
}

int symm_memloose_is_own(const symm_memplan *p) {
    return is_loose(p) && (!p->sym_no || p->set->comm->nranks == 1);
}

/* ---- agreed on ------------------------------------------------------------------------------- */

static int waits(const symm_memplan *p) {
    return is_loose(p) && p->held && !p->destroyed && p->sym_no && !symm_memloose_is_own(p);
}

int symm_memloose_waiting(const symm_heap *h) {
    for (const symm_memlanes *s = symm_heap_comm(h)->lanes.sets; s; s = s->next)
        for (const symm_memplan *p = s->plans; s->heap == h && p; p = p->next)
            if (waits(p)) return 1;
    return 0;
}

uint64_t symm_memloose_next(const symm_heap *h, uint64_t from) {
    uint64_t best = 0;
    for (const symm_memlanes *s = symm_heap_comm(h)->lanes.sets; s; s = s->next)
        for (symm_memplan *p = s->plans; s->heap == h && p; p = p->next) {
            if (p->sym_no < from || (best && p->sym_no >= best) || !waits(p)) continue;
            if (symm_memplan_is_left(p) && !symm_memloose_any(p)) best = p->sym_no;
        }
    return best;
}

symmResult_t symm_memloose_let(symm_heap *h, uint64_t no, const void *site) {
    (void)site;
    for (symm_memlanes *s = symm_heap_comm(h)->lanes.sets; s; s = s->next)
        for (symm_memplan *p = s->plans; s->heap == h && p; p = p->next) {
            if (p->sym_no != no || !waits(p)) continue;
            p->held = 0;
            symm_memplan_settle(p); /* the list is another one now */
            return symmSuccess;
        }
    return symmSuccess;
}
