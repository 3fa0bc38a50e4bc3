/* call_check.c - what is always true of a call that is ready to launch, new or remembered. Called
 * through SYMM_CHECK, so in test builds only. The communicator's user thread. No lock. */
#include "host/comm/comm.h"
#include "coll.h"

#ifdef SYMM_TESTING
/* All of the buffer is in the window, or peers have its address, or it goes through scratch, as
 * what is swapped does wherever it is. */
static void check_buffer(const symm_launch *l, const symm_win *w, const void *p, uint64_t bytes,
                         uint64_t off) {
    const symm_comm *c = l->comm;
    const uint64_t at = (uintptr_t)p;
    SYMM_ASSERT(p || !bytes);
    if (!w) SYMM_ASSERT(off == (l->plan.flags & SYMM_ARG_DIRECT ? SYMM_PRIVATE | at : SYMM_STAGED));
    if (!w) return;
    const uint64_t in = at - (uintptr_t)w->ptr;
    SYMM_ASSERT(w->comm == c && bytes && in < w->bytes && bytes <= w->bytes - in);
    SYMM_ASSERT(off == (l->call.swapped ? SYMM_STAGED : w->off[c->rank] + in));
}

static void check_kernel(const symm_launch *l) {
    const symm_comm *c = l->comm;
    const symm_plan *p = &l->plan;
    SYMM_ASSERT(p->kernel < SYMM_KERNEL_COUNT);
    const symm_kernel_row *row = &symm_kernels[p->kernel];
    SYMM_ASSERT(row->coll == l->call.coll && row->flags & (c->cuda ? SYMM_K_GPU : SYMM_K_HOST));
    SYMM_ASSERT(c->nranks >= row->min_ranks && (!row->max_ranks || c->nranks <= row->max_ranks));
    SYMM_ASSERT(p->ctas > 0 && p->ctas <= (c->cuda ? SYMM_GPU_MAX_CTAS : SYMM_MAX_CTAS));
    SYMM_ASSERT(p->stage_ctas >= 0 && p->line_warps >= 0);
    SYMM_ASSERT(c->cuda || (p->chunk && (p->chunk & (p->chunk - 1)) == 0));
    SYMM_ASSERT(c->cuda || p->chunk % l->call.esize == 0);
}

/* What calls of the communicator have in common. */
static void check_calls(const symm_comm *c) {
    const symm_args *a = &c->calls.proto;
    SYMM_ASSERT(a->base == c->base && a->stride == c->stride);
    SYMM_ASSERT(a->rank == c->rank && a->nranks == c->nranks);
    SYMM_ASSERT(c->calls.nredops >= 0 && !c->calls.nredops == !c->calls.redops);
    SYMM_ASSERT(c->calls.memos != NULL);
}

void symm_call_check(const symm_launch *l) {
    const symm_args *a = &l->args;
    check_calls(l->comm);
    check_kernel(l);
    check_buffer(l, l->src_win, a->src, l->in, a->src_off);
    check_buffer(l, l->dst_win, a->dst, l->out, a->dst_off);
    SYMM_ASSERT(a->count == l->call.count && a->type == l->call.type && a->op == l->call.op);
    SYMM_ASSERT(a->esize && a->esize == l->call.esize && (a->esize & (a->esize - 1)) == 0);
    SYMM_ASSERT(a->base == l->comm->base && a->stride == l->comm->stride);
    SYMM_ASSERT(a->rank == l->comm->rank && a->nranks == l->comm->nranks);
    SYMM_ASSERT(!l->call.swapped || !(l->plan.flags & SYMM_ARG_DIRECT));
    SYMM_ASSERT(!l->from || (l->from->comm == l->comm && a->flags & SYMM_ARG_COPIES && a->scalar));
    SYMM_ASSERT(a->nctas == l->plan.ctas && !(l->plan.flags & ~a->flags));
    SYMM_ASSERT(l->comm->cuda || 1ull << a->host.chunk_log == l->plan.chunk);
}
#endif
