/* first_touch.c - the pages that peers write and this rank polls are made by this rank: on a
 * machine with several memory nodes a page lies where the one runs that touches it first, and would
 * else lie at the sender's. Runs inside the creating call, before the ranks agree that they have a
 * communicator: until then no peer writes there. No lock. */
#include "host/comm/comm.h"
#include "comm_make.h"

enum { PAGE = 4096 };

/* An addition of nothing: whatever is there stays, even if it is written just now. */
static void touch(char *from, uint64_t bytes) {
    const uintptr_t end = (uintptr_t)from + bytes;
    for (uintptr_t at = (uintptr_t)from & ~(uintptr_t)(PAGE - 1); at < end; at += PAGE)
        __atomic_fetch_add((uint32_t *)at, 0, __ATOMIC_RELAXED);
}

/* Of each slot of packets the first one only: that is where latency counts, and all slots together
 * may be a quarter of the scratch. */
void symm_comm_first_touch(const symm_comm *c) {
    const symm_scratch *s = &c->calls.proto.scratch;
    char *mine = (char *)c->ctl;
    const uint64_t packet =
        s->host.packet_slot < SYMM_PACKET_STRIDE ? s->host.packet_slot : SYMM_PACKET_STRIDE;
    const int ctas = c->params.ctas > 0 ? (int)c->params.ctas : 1;
    if (c->cuda) return;
    touch(mine,
          offsetof(symm_ctl, inbox) +
              sizeof c->ctl->inbox[0] * (unsigned)(ctas < SYMM_MAX_CTAS ? ctas : SYMM_MAX_CTAS));
    for (unsigned i = 0; i < 4u * (unsigned)c->nranks; i++)
        touch(mine + s->host.packet_off + i * s->host.packet_slot, packet);
}
