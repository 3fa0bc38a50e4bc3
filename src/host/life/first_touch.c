/* first_touch.c - this rank touches the pages first that peers write and it polls. On a machine
 * with several memory nodes a page is on the node of the thread that touches it first; else that
 * would be the sender's. Runs inside the creating call, before the last agreement: until then no
 * peer writes there. No lock. */
#include "host/comm/comm.h"
#include "comm_make.h"

enum { PAGE = 4096 };

/* Adds 0, so the contents stay, even if they are being written. */
static void touch(char *from, uint64_t bytes) {
    const uintptr_t end = (uintptr_t)from + bytes;
    for (uintptr_t at = (uintptr_t)from & ~(uintptr_t)(PAGE - 1); at < end; at += PAGE)
        __atomic_fetch_add((uint32_t *)at, 0, __ATOMIC_RELAXED);
}

/* Only the first packet of each slot: latency matters there, and all slots together may be a
 * quarter of the scratch. */
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
    touch((char *)c->ctl->p2p_in, sizeof c->ctl->p2p_in[0] * (unsigned)c->nranks);
    touch((char *)c->ctl->p2p_out, sizeof c->ctl->p2p_out[0] * (unsigned)c->nranks);
    touch((char *)c->ctl->signals, sizeof c->ctl->signals[0] * (unsigned)c->nranks);
    for (unsigned i = 0; i < 4u * (unsigned)c->nranks; i++)
        touch(mine + s->host.packet_off + i * s->host.packet_slot, packet);
}
