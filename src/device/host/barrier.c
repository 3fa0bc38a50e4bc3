/* barrier.c - the barrier on the host backend. Runs on the thread that calls symm_kernel_run
 * (kernels_host.c). No lock. */
#include "dev.h"

/* What every kernel does on entry and exit (signature.inl) is the barrier. */
void symm_body_barrier(symm_cta *c) {
    for (int q = 1; c->cta == 0 && q < c->a->nranks; q++)
        symm_give_line(symm_outbox(c, symm_peer(c->a, q)));
}
