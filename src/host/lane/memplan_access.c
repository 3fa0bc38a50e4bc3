/* memplan_access.c - which block of a graph an offset is in, and which ranks may access it. The
 * communicator's user thread. */
#include <string.h>

#include "host/comm/comm.h"
#include "host/heap/ledger.h"
#include "host/window/space.h"
#include "memplan.h"

int symm_memplan_inside(void *set, uint64_t off, uint64_t *begin, uint64_t *bytes, int *lane) {
    const symm_memlanes *s = set;
    for (const symm_memplan *p = s->plans; p; p = p->next)
        for (int i = p->nblocks; i-- > 0;) {
            const symm_memblock *b = &p->blocks[i];
            if (off - b->off >= b->bytes - b->red) continue;
            *begin = b->off;
            *bytes = b->bytes - b->red;
            *lane = p->lane;
            return 1;
        }
    return 0;
}

symmResult_t symm_memaccess_set(symm_memaccess *a, const symm_comm *c, const int *ranks,
                                int nranks) {
    symm_memaccess next = {.some = nranks > 0};
    if (nranks < 0 || (nranks && !ranks))
        return SYMM_ERR(symmInvalidArgument,
                        "nranks=%d, ranks=%p: nranks must be at least 0, and "
                        "ranks not NULL if it is "
                        "more",
                        nranks, (const void *)ranks);
    for (int i = 0; i < nranks; i++) {
        if (ranks[i] < 0 || ranks[i] >= c->nranks)
            return SYMM_ERR(symmInvalidArgument, "ranks[%d]=%d: must be 0 to %d", i, ranks[i],
                            c->nranks - 1);
        next.ranks[ranks[i] / 64] |= 1ull << (ranks[i] % 64);
    }
    *a = next;
    return symmSuccess;
}

symmResult_t symmLaneSetAccess(symmLane_t lane, const int *ranks, int nranks) {
    symm_memlane *l;
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneSetAccess", &l));
    symmResult_t r = symm_memaccess_set(&l->access, l->set->comm, ranks, nranks);
    symm_memlane_leave(l);
    return r;
}

/* Which ranks may access `off`. Graphs share bytes, so a rank may if one of the blocks there allows
 * it. 0: no block is there. */
static int access_at(const symm_memlanes *s, uint64_t off, symm_memaccess *all) {
    int found = 0, some = 1;
    *all = (symm_memaccess){0};
    for (const symm_memplan *p = s->plans; p; p = p->next)
        for (int i = 0; i < p->nblocks; i++) {
            const symm_memblock *b = &p->blocks[i];
            if (off - b->off >= b->bytes - b->red) continue;
            found = 1;
            some &= b->access.some;
            for (int w = 0; w < SYMM_LEDGER_MASK; w++) all->ranks[w] |= b->access.ranks[w];
        }
    all->some = some;
    return found;
}

int symm_memplan_access(void *set, uint64_t off, uint64_t *ranks) {
    symm_memaccess a;
    if (!access_at(set, off, &a) || !a.some) return 0;
    memcpy(ranks, a.ranks, sizeof a.ranks);
    return 1;
}

static symmResult_t find_access(const symm_memlane *l, const void *ptr, int rank, int *allowed) {
    const symm_memlanes *s = l->set;
    const uint64_t off = symm_heap_offset(s->heap, ptr);
    if (rank < 0 || rank >= s->comm->nranks)
        return SYMM_ERR(symmInvalidArgument, "symmLaneGetAccess: rank=%d: must be 0 to %d", rank,
                        s->comm->nranks - 1);
    symm_memaccess a;
    if (off != SYMM_NO_OFFSET && access_at(s, off, &a)) {
        *allowed = !a.some || rank == s->comm->rank || (a.ranks[rank / 64] >> (rank % 64) & 1);
        return symmSuccess;
    }
    if (off == SYMM_NO_OFFSET || !symm_memtable_find(&s->table, off))
        return SYMM_ERR(symmInvalidArgument,
                        "symmLaneGetAccess: ptr=%p does not begin a block of a lane", ptr);
    *allowed = 1;
    return symmSuccess;
}

symmResult_t symmLaneGetAccess(symmLane_t lane, const void *ptr, int rank, int *allowed) {
    symm_memlane *l;
    if (!allowed) return SYMM_ERR(symmInvalidArgument, "symmLaneGetAccess: allowed is NULL");
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneGetAccess", &l));
    symmResult_t r = find_access(l, ptr, rank, allowed);
    symm_memlane_leave(l);
    return r;
}
