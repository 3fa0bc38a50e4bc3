/* memplan_guard.c - guard mode of captured blocks: the red zone behind each is painted by its
 * graph. On the host backend the graph looks at it too, where it frees the block; a block that
 * outlives its graph is looked at where it is freed eagerly. The communicator's thread;
 * look_task in a stream's. */

#include "host/comm/comm.h"
#include "host/heap/heap_int.h"
#include "memplan.h"

typedef struct {
    symm_heap *heap;
    symm_spot red;
    int poison;
} look;

static look look_at(const symm_memplan *p, const symm_memblock *b) {
    /* Peers use a block of several ranks until their own free. */
    const int alone = b->zone == SYMM_MEM_LOCAL || p->set->comm->nranks == 1;
    const symm_spot red = {.off = b->off + b->bytes - b->red,
                           .bytes = b->red,
                           .block = b->off,
                           .asked = b->bytes - b->red,
                           .owner = SYMM_OWNER_GRAPH,
                           .lane = p->lane};
    return (look){p->set->heap, red, alone};
}

/* Whoever launches the graph has the heap still: it is the heap's memory that the graph works
 * on. */
static symmResult_t look_task(void *args) {
    const look *w = args;
    symm_guard_warn(w->heap, &w->red);
    if (w->poison) (void)symm_guard_paint(w->heap, w->red.block, w->red.asked + w->red.bytes, 1);
    return symmSuccess;
}

/* A call that is lost leaves a graph that must not run: the host's streams and CUDA see to that
 * themselves. */
symmResult_t symm_memguard_captured(symm_memlane *l, symm_memplan *p, symm_memblock *b,
                                    uint64_t asked) {
    b->red = (uint32_t)(b->bytes - asked);
    symmResult_t r = symm_memguard_paint(l, b->off + asked, b->red, 0);
    if (!r)
        r = symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, &b->from); /* who frees is behind */
    if (r) p->lost = 1;
    return r;
}

symmResult_t symm_memguard_uncaptured(symm_memlane *l, const symm_memplan *p,
                                      const symm_memblock *b) {
    const look w = look_at(p, b);
    if (!p->set->comm->cuda)
        return symm_stream_submit(l->stream, look_task, &w, sizeof w, NULL, NULL, NULL);
    return w.poison ? symm_memguard_paint(l, b->off, b->bytes, 1) : symmSuccess;
}

/* Launches of a region come one behind the other: the end of the last one is behind those that
 * painted. While that stream stands where it was found standing no call waits again; one that is
 * gone is not asked, for a driver that does not know it waits for all there is. */
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
