/* comm_check.c - what is always true of the record of a communicator that is made: its addresses,
 * its GPUs, and what creation settles. Other parts of the record: in their owners' files. Called
 * through SYMM_CHECK, so in test builds only. The thread that is inside. No lock. */
#include <string.h>

#include "comm.h"

#ifdef SYMM_TESTING
static void check_addresses(const symm_comm *c) {
    const symm_space *s = c->space;
    const symm_slot *slot = c->control.slot;
    SYMM_ASSERT(s && slot && c->stride == s->stride && c->nranks == s->nranks);
    SYMM_ASSERT(c->threads || c->rank == s->rank); /* thread ranks share rank 0's */
    SYMM_ASSERT(c->threads || c->base == s->base + slot->off);
    SYMM_ASSERT(!c->threads || c->base == s->base);
    SYMM_ASSERT(slot->bytes > SYMM_CTL_BYTES);
    SYMM_ASSERT(slot->off <= c->stride && slot->bytes <= c->stride - slot->off);
    SYMM_ASSERT(!c->cuda == !c->control.pages && !c->control.pages == !c->control.host_base);
}

static void check_gpus(const symm_comm *c) {
    const symm_comm_gpus *g = &c->gpus;
    SYMM_ASSERT(!c->cuda == !c->gpu);
    SYMM_ASSERT(g->mate >= 0 && g->mate <= c->nranks && g->mate != c->rank + 1);
    SYMM_ASSERT(!g->mate || g->shared);
    SYMM_ASSERT(!g->mate || g->mates[(g->mate - 1) / 64] >> (g->mate - 1) % 64 & 1);
    SYMM_ASSERT(!(g->mates[c->rank / 64] >> c->rank % 64 & 1));
}

void symm_comm_made_check(const symm_comm *c) {
    if (symm_comm_state(c) != SYMM_COMM_LIVE || !c->ctl) return; /* not made, or in vain */
    SYMM_ASSERT(c->handle && c->entry.undo && c->vmm && c->launcher && c->source && c->mesh);
    SYMM_ASSERT(c->exchange.boot && !c->exchange.over_mesh && c->bootstrap);
    SYMM_ASSERT(memchr(c->name, 0, sizeof c->name) != NULL);
    SYMM_ASSERT((unsigned)symm_comm_code(c) < symmNumResults);
    SYMM_ASSERT(c->threads || c->room <= c->stride);
    check_addresses(c);
    check_gpus(c);
}
#endif
