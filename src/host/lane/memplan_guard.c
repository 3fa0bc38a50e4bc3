/* memplan_guard.c - guard mode of captured blocks. The graph paints the red zone behind each block.
 * On the host backend it also checks the red zone where it frees the block. The red zone of a block
 * that outlives its graph is checked when the block is freed eagerly. The communicator's user
 * thread; look_task in a stream's thread. */

#include "host/comm/comm.h"
#include "host/heap/heap_int.h"
#include "memplan.h"

typedef struct {
    symm_heap *heap;
    symm_spot red;
    int poison;
} look;

static look look_at(const symm_memplan *p, const symm_memblock *b) {
    /* Peers may use a SYM block until their own free. */
    const int alone = b->zone == SYMM_MEM_LOCAL || p->set->comm->nranks == 1;
    const symm_spot red = {.off = b->off + b->bytes - b->red,
                           .bytes = b->red,
                           .block = b->off,
                           .asked = b->bytes - b->red,
                           .owner = SYMM_OWNER_GRAPH,
                           .lane = p->lane};
    return (look){p->set->heap, red, alone};
}

/* The heap lives: who launches the graph uses its memory. */
static symmResult_t look_task(void *args) {
    const look *w = args;
    symm_guard_warn(w->heap, &w->red);
    if (w->poison) (void)symm_guard_paint(w->heap, w->red.block, w->red.asked + w->red.bytes, 1);
    return symmSuccess;
}

/* If a call of the capture is lost, the graph must not run; the host's streams and CUDA refuse
 * it. */
symmResult_t symm_memguard_captured(symm_memlane *l, symm_memplan *p, symm_memblock *b,
                                    uint64_t asked) {
    b->red = (uint32_t)(b->bytes - asked);
    symmResult_t r = symm_memguard_paint(l, b->off + asked, b->red, 0);
    if (!r)
        r = symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, &b->from); /* frees come behind it */
    if (r) p->lost = 1;
    return r;
}

symmResult_t symm_memguard_uncaptured(symm_memlane *l, const symm_memplan *p,
                                      const symm_memblock *b) {
    const look w = look_at(p, b);
    if (!p->set->comm->cuda) return symm_stream_submit(l->stream, look_task, &w, sizeof w);
    return w.poison ? symm_memguard_paint(l, b->off, b->bytes, 1) : symmSuccess;
}

/* Whether all launches over the region have ended. They run one after the other, so the end of the
 * last one is behind all painting. No call waits again for a stream that has not moved since the
 * last wait. On GPUs a stream that is gone is not marked, because marking it waits for everything
 * on the device. */
static int has_run(symm_memregion *r) {
    symm_memstate st;
    symm_comm *c = r->set->comm;
    const symmStream_t s = r->launch_stream;
    if (r->stands && !symm_memmark_soon(c, &r->launched, 0)) return 0;
    if ((c->cuda && !symm_mem_alive(c, s)) || symm_mem_shut(c, s)) return 0;
    if (symm_mem_alive(c, s) && (symm_mem_state(c, s, &st) || st.how == SYMM_STREAM_CAPTURED))
        return 0;
    if (symm_memmark_set(c, &r->launched, s)) return 0;
    r->stands = !symm_memmark_soon(c, &r->launched, SYMM_MEMGUARD_WAIT_MS);
    return !r->stands;
}

symmResult_t symm_memguard_left(symm_memlane *l, const symm_memplan *p, const symm_memblock *b) {
    const look w = look_at(p, b);
    if (!b->red || !symm_memguard_caught_up(l, b->off) || !has_run(p->region)) return symmSuccess;
    return symm_guard_freed(w.heap, &w.red);
}
