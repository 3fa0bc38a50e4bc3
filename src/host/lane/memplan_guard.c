/* memplan_guard.c - guard mode of captured blocks: the red zone behind each is painted by its
 * graph. On the host backend the graph looks at it too, where it frees the block; a block that
 * outlives its graph is looked at where it is freed eagerly. The communicator's thread;
 * look_task in a stream's. */
#include <stdio.h>
#include <string.h>

#include "host/comm/comm.h"
#include "host/heap/heap_int.h"
#include "memplan.h"

typedef struct {
    symm_heap *heap;
    uint64_t off, bytes, red; /* bytes: that were asked for */
    int lane, poison;
} look;

static void say(const look *w, uint64_t at, char *text, size_t cap) {
    snprintf(text, cap,
             "heap %s: byte %llu was written, of a block of %llu bytes at offset %llu, in a graph "
             "of lane %d",
             w->heap->name, (unsigned long long)(at - w->off), (unsigned long long)w->bytes,
             (unsigned long long)w->off, w->lane);
}

static look look_at(const symm_memplan *p, const symm_memblock *b) {
    /* Peers use a block of several ranks until their own free. */
    const int alone = b->zone == SYMM_MEM_LOCAL || p->set->comm->nranks == 1;
    return (look){p->set->heap, b->off, b->bytes - b->red, b->red, p->lane, alone};
}

/* Whoever launches the graph has the heap still: it is the heap's memory that the graph works
 * on. */
static symmResult_t look_task(void *args) {
    const look *w = args;
    uint64_t at;
    char text[256];
    if (!symm_guard_intact(w->heap, w->off + w->bytes, w->red, 0, &at)) {
        say(w, at, text, sizeof text);
        symm_guard_note(w->heap, text);
    }
    if (w->poison) (void)symm_guard_paint(w->heap, w->off, w->bytes + w->red, 1);
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
    if (!p->set->comm->cuda) return symm_stream_submit(l->stream, look_task, &w, sizeof w);
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
    uint64_t at;
    char text[256];
    if (!b->red || !symm_memguard_caught_up(l, b->off) || !has_run(p->region)) return symmSuccess;
    if (symm_guard_intact(w.heap, w.off + w.bytes, w.red, 0, &at)) return symmSuccess;
    say(&w, at, text, sizeof text);
    return SYMM_ERR(symmInvalidUsage, "%s (it is freed all the same)", text);
}
