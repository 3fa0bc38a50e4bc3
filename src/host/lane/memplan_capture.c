/* memplan_capture.c - captured allocations and frees, and the communicator's captured calls while
 * it has lanes. The communicator's user thread. */
#include "memplan.h"

#include <stdlib.h>

#include "base/fail.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"

static symmResult_t no_memory(void) {
    return SYMM_ERR(symmOutOfMemory, "no memory for the plan of a graph");
}

/* ---- a capture's plan ------------------------------------------------------------------------ */

static symm_memplan *find_capture(const symm_memlanes *s, uint64_t capture) {
    for (symm_memplan *p = s->plans; p; p = p->next)
        if (p->capture == capture && !p->explicit_nodes) return p;
    return NULL;
}

static symmResult_t plan_of(symm_memlanes *s, symmStream_t stream, const symm_memstate *st,
                            symm_memplan **out) {
    *out = find_capture(s, st->capture);
    if (*out) return symmSuccess;
    if (s->comm->cuda && !symm_cuda_sees_graphs())
        return SYMM_ERR(symmNotSupported,
                        "captured allocations need a CUDA driver of 12.3 or later, not %d.%d",
                        symm_cuda_version() / 1000, symm_cuda_version() % 1000 / 10);
    if (s->blind == st->capture) return no_memory();
    symm_memplan_reap(s->comm);
    SYMM_TRY(symm_memplan_new(s, out));
    (*out)->capture = st->capture;
    (*out)->graph = st->graph;
    symm_memplan_retain(*out); /* so that there is one way to let it go, whatever fails */
    symmResult_t r = symm_memplan_hold(*out, stream);
    symm_memplan_release(*out);
    if (r) symm_memplan_reap(s->comm);
    return r;
}

static symmResult_t note_caller(symm_memplan *p, const symm_memlane *l) {
    for (int i = 0; i < p->ncallers; i++)
        if (p->callers[i] == l->ordinal) return symmSuccess;
    int *more = SYMM_FAIL_ALLOC(memplan_callers,
                                realloc(p->callers, ((size_t)p->ncallers + 1) * sizeof *more));
    if (!more) return no_memory();
    p->callers = more;
    more[p->ncallers++] = l->ordinal;
    return symmSuccess;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

symmResult_t symm_memplan_alloc(symm_memlane *l, const symm_memstate *st, uint64_t asked,
                                unsigned flags, const void *site, uint64_t *off) {
    const uint64_t bytes =
        symm_round_up(l->set->guard ? asked + SYMM_MEMLANE_RED : asked, SYMM_PLACE_UNIT);
    symm_memplan *p;
    int point, block;
    SYMM_TRY(plan_of(l->set, l->stream, st, &p));
    if (p->lost) return no_memory();
    SYMM_TRY(symm_memplan_settle_on(p, l));
    SYMM_TRY(note_caller(p, l));
    SYMM_TRY(symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, &point));
    SYMM_TRY(symm_memplan_place(p, l, point, bytes, flags, site, &block));
    if (l->set->guard) SYMM_TRY(symm_memguard_captured(l, p, &p->blocks[block], asked));
    l->allocs++;
    *off = p->blocks[block].off;
    symm_memplan_note(p, block, 0, l->ordinal, site);
    return symmSuccess;
}

/* Guard mode: what the graph does with its own block comes before the point of the free. If the
 * block cannot be freed there, symm_memplan_free_at returns the error. */
static symmResult_t guard_free(symm_memplan *p, symm_memlane *l, uint64_t off, int *point) {
    const int i = symm_memplan_find(p, off);
    const symm_memblock *b = i < 0 ? NULL : &p->blocks[i];
    if (!b || !b->red || b->freed || !symm_gplan_follows(p->points, *point, b->from))
        return symmSuccess;
    SYMM_TRY(symm_memguard_uncaptured(l, p, b));
    return symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, point);
}

symmResult_t symm_memplan_free(symm_memlane *l, const symm_memstate *st, uint64_t off,
                               const void *ptr, const void *site) {
    symm_memplan *p;
    int point;
    SYMM_TRY(plan_of(l->set, l->stream, st, &p));
    if (p->lost) return no_memory();
    SYMM_TRY(symm_memplan_settle_on(p, l));
    SYMM_TRY(note_caller(p, l));
    SYMM_TRY(symm_memplan_point(p, l->stream, SYMM_POINT_PLAIN, &point));
    if (l->set->guard) SYMM_TRY(guard_free(p, l, off, &point));
    SYMM_TRY(symm_memplan_free_at(p, point, off, ptr, site));
    l->frees++;
    return symmSuccess;
}

/* ---- the communicator's calls ---------------------------------------------------------------- */

static symmResult_t add_call(symm_memplan *p, symmStream_t stream, int hears) {
    int point;
    int *more =
        SYMM_FAIL_ALLOC(memplan_call, realloc(p->calls, ((size_t)p->ncalls + 1) * sizeof *more));
    if (!more) return no_memory();
    p->calls = more;
    SYMM_TRY(symm_memplan_point(p, stream, hears ? SYMM_POINT_HEAR : SYMM_POINT_PLAIN, &point));
    more[p->ncalls++] = point;
    return symmSuccess;
}

/* The call itself is captured. If a note of it fails, later blocks of this capture fail. A set
 * without lanes gets no blocks any more, and plan_of may free it: only graphs hold it. */
static void note_captured(symm_comm *c, symmStream_t stream, int hears) {
    symm_memstate st;
    if (symm_mem_state(c, stream, &st) || st.how != SYMM_STREAM_CAPTURED) return;
    for (symm_memlanes *s = c->lanes.sets; s; s = s->next) {
        symm_memplan *p;
        if (!s->alive) continue;
        if (plan_of(s, stream, &st, &p))
            s->blind = st.capture;
        else if (add_call(p, stream, hears))
            p->lost = 1;
    }
}

static symmResult_t may_capture(symm_comm *c, symmStream_t stream) {
    symm_memstate st;
    SYMM_TRY(symm_mem_state(c, stream, &st));
    for (symm_memlanes *s = c->lanes.sets; s; s = s->next) {
        int point;
        symm_memplan *p = find_capture(s, st.capture);
        if (!p || !p->nbarriers) continue;
        SYMM_TRY(symm_memplan_point(p, stream, SYMM_POINT_PLAIN, &point));
        for (int i = 0; i < p->nbarriers; i++)
            if (!symm_gplan_follows(p->points, point, p->barriers[i]))
                return SYMM_ERR(symmInvalidUsage,
                                "stream=%p: this call would run beside a barrier of a SYM block "
                                "of the same capture: join the streams first",
                                (void *)stream);
    }
    return symmSuccess;
}

static void called(symm_comm *c, symmStream_t stream, int hears, int captured) {
    if (captured) {
        if (!c->cuda || symm_cuda_sees_graphs()) note_captured(c, stream, hears);
    } else if (hears) {
        c->lanes.heard++;
        c->lanes.heard_stream = stream;
        c->lanes.heard_any = 1;
    }
}

const symm_observer symm_memlane_observer = {may_capture, called};
