/* memplan_uses.c - work of other streams on blocks that outlived their graph. Later launches over
 * the same bytes come behind that work, and the host waits for it before the bytes leave the
 * region. The communicator's user thread.
 *
 * There is one note for each region and lane, because the uses of one lane are in order: its frees
 * by its stream, the launches of its graphs by symmMemPlanLaunch. Launches over one region are in
 * order too. So the first launch that has blocks in the bytes follows the use, and later ones are
 * behind that launch. A graph that lies elsewhere does not wait. */
#include <stdlib.h>

#include "base/fail.h"
#include "memplan.h"

enum { NOT_YET, BY_THIS_LAUNCH, FOLLOWED };

/* ---- notes ----------------------------------------------------------------------------------- */

static void use_check(const symm_memlanes *s, const symm_memuse *e) {
    SYMM_ASSERT(e->lane >= 0 && e->lane < s->made);
    SYMM_ASSERT(e->followed >= NOT_YET && e->followed <= FOLLOWED);
    SYMM_ASSERT(!e->reached || (!e->lazy && e->followed == FOLLOWED));
    SYMM_ASSERT(e->lazy || e->reached || e->mark.seq);
    for (int z = 0; z < SYMM_MEM_ZONES; z++) SYMM_ASSERT(!e->to[z] || e->from[z] < e->to[z]);
}

static symm_memuse *find(const symm_memlanes *s, const symm_memregion *r, int lane, int launched) {
    for (symm_memuse *e = s->uses; e; e = e->next)
        if (e->region == r && e->lane == lane && e->launched == launched) return e;
    return NULL;
}

static symmResult_t open_note(symm_memregion *r, int lane, int launched, symm_memuse **out) {
    symm_memlanes *s = r->set;
    *out = find(s, r, lane, launched);
    if (*out) SYMM_CHECK(use_check(s, *out));
    if (*out) return symmSuccess;
    symm_memuse *e = SYMM_FAIL_ALLOC(memplan_late, calloc(1, sizeof *e));
    if (!e) return SYMM_ERR(symmOutOfMemory, "no memory to note who has used a graph's block");
    e->region = r;
    e->lane = lane;
    e->launched = launched;
    e->followed = FOLLOWED;
    e->reached = 1;
    e->next = s->uses;
    s->uses = e;
    *out = e;
    return symmSuccess;
}

static void drop(symm_memlanes *s, symm_memuse *e) {
    symm_memuse **at = &s->uses;
    while (*at != e) {
        SYMM_ASSERT(*at);
        at = &(*at)->next;
    }
    *at = e->next;
    symm_memmark_end(s->comm, &e->mark);
    free(e);
}

static void widen(symm_memuse *e, int zone, uint64_t from, uint64_t to) {
    if (!e->to[zone] || from < e->from[zone]) e->from[zone] = from;
    if (to > e->to[zone]) e->to[zone] = to;
}

/* Notes a use up to now. b NULL: no launch must be ordered after it. A launch on the stream of the
 * region's last launch is in order already; one on another stream is put behind that stream's
 * end. */
static void note(symm_memuse *e, const symm_memblock *b, symmStream_t stream) {
    symm_memregion *r = e->region;
    const int behind = r->launches && r->launch_stream == stream;
    for (int z = 0; z < SYMM_MEM_ZONES && e->followed == FOLLOWED; z++) e->from[z] = e->to[z] = 0;
    if (b) widen(e, b->zone, b->at, b->at + b->bytes);
    e->stream = stream;
    e->lazy = e->reached = 0;
    e->followed = behind || !b ? FOLLOWED : NOT_YET;
    if (e->followed == NOT_YET) r->uses++;
}

symmResult_t symm_memuse_freed(symm_memregion *r, const symm_memblock *b, symm_memlane *l) {
    symm_memuse *e;
    SYMM_TRY(open_note(r, l->ordinal, 0, &e));
    SYMM_TRY(symm_memmark_set(l->set->comm, &e->mark, l->stream));
    note(e, b, l->stream);
    return symmSuccess;
}

symmResult_t symm_memuse_mark(symm_comm *c, symm_memmark *m, symmStream_t stream) {
    symm_memstate st;
    if (symm_mem_alive(c, stream)) {
        SYMM_TRY(symm_mem_state(c, stream, &st));
        if (st.how == SYMM_STREAM_CAPTURED)
            return SYMM_ERR(symmInvalidUsage,
                            "stream=%p is under capture, and a lane's graph was launched on it: "
                            "nothing can be ordered after that launch",
                            (void *)stream);
    }
    return symm_memmark_set(c, m, stream);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* The region that notes a launch of the plan for its i-th free, if that is another lane's; NULL:
 * none. i -1: the plan's own region, if no graph reports the launch's end. */
static symm_memregion *noted_in(const symm_memplan *p, int i) {
    if (i < 0) return p->explicit_nodes && !p->graph ? p->region : NULL;
    symm_memregion *r = p->frees[i].plan->region;
    return r == p->region ? NULL : r;
}

symmResult_t symm_memuse_reserve(const symm_memplan *p) {
    symm_memuse *e;
    for (int i = -1; i < p->nfrees; i++) {
        symm_memregion *r = noted_in(p, i);
        if (r) SYMM_TRY(open_note(r, p->lane, 1, &e));
    }
    return symmSuccess;
}

/* If the program launches by itself, only the next call that asks can mark the end. */
void symm_memuse_launched(const symm_memplan *p, int here, symmStream_t stream) {
    symm_comm *c = p->set->comm;
    for (int i = -1; i < p->nfrees; i++) {
        symm_memregion *r = noted_in(p, i);
        if (!r) continue;
        symm_memuse *e = find(p->set, r, p->lane, 1);
        SYMM_ASSERT(e != NULL); /* symm_memuse_reserve */
        note(e, i < 0 ? NULL : &p->frees[i].plan->blocks[p->frees[i].block], stream);
        e->lazy = !here || symm_memmark_set(c, &e->mark, stream);
    }
}

static int touches(const symm_memplan *p, const symm_memuse *e) {
    for (int z = 0; z < SYMM_MEM_ZONES; z++) {
        const uint64_t bytes = e->to[z] - e->from[z];
        if (!bytes) continue;
        if (symm_gplan_touches(p->points, z, e->from[z], bytes)) return 1;
        for (int i = 0; i < p->nblocks; i++) { /* KEEP: unknown to the planner */
            const symm_memblock *b = &p->blocks[i];
            if (b->no < 0 && b->zone == z && b->at < e->to[z] && e->from[z] < b->at + b->bytes)
                return 1;
        }
    }
    return 0;
}

static symmResult_t follow(const symm_memlanes *s, symm_memuse *e, symmStream_t stream) {
    const symm_memlane *l = s->lanes[e->lane];
    if (e->stream == stream && (e->launched || l)) return symmSuccess;
    if (e->lazy) SYMM_TRY(symm_memuse_mark(s->comm, &e->mark, e->stream));
    e->lazy = 0;
    SYMM_CHECK(use_check(s, e));
    return symm_memmark_follow(s->comm, &e->mark, stream);
}

symmResult_t symm_memuse_follow(const symm_memplan *p, symmStream_t stream) {
    const symm_memlanes *s = p->set;
    if (p->clear_of == p->region->uses) return symmSuccess;
    for (symm_memuse *e = s->uses; e; e = e->next) {
        if (e->region != p->region || e->followed == FOLLOWED) continue;
        e->followed = touches(p, e) ? BY_THIS_LAUNCH : NOT_YET;
        if (e->followed) SYMM_TRY(follow(s, e, stream));
    }
    return symmSuccess;
}

void symm_memuse_followed(symm_memplan *p) {
    if (p->clear_of == p->region->uses) return;
    for (symm_memuse *e = p->set->uses; e; e = e->next)
        if (e->region == p->region && e->followed == BY_THIS_LAUNCH) e->followed = FOLLOWED;
    p->clear_of = p->region->uses;
}

/* ---- the host -------------------------------------------------------------------------------- */

int symm_memuse_open(const symm_memregion *r) {
    for (const symm_memuse *e = r->set->uses; e; e = e->next)
        if (e->region == r && !e->reached) return 1;
    return 0;
}

symmResult_t symm_memuse_reach(symm_memlanes *s, const symm_memregion *r) {
    for (symm_memuse *e = s->uses, *next; e; e = next) {
        next = e->next;
        if (r && e->region != r) continue;
        if (!e->reached && e->lazy) SYMM_TRY(symm_memuse_mark(s->comm, &e->mark, e->stream));
        e->lazy = 0;
        if (!e->reached) SYMM_TRY(symm_memmark_reach(s->comm, &e->mark));
        SYMM_ASSERT(e->reached || e->mark.seq);
        e->reached = 1;
        e->followed = FOLLOWED;
        if (!e->region || !s->lanes[e->lane]) drop(s, e);
    }
    return symmSuccess;
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* The heir's stream is behind this lane's. So a mark there is behind all that both have used. */
static symmResult_t hand_on(symm_memlanes *s, symm_memuse *e, const symm_memlane *heir) {
    symm_memuse *to = find(s, e->region, heir->ordinal, 0);
    if (to == NULL) {
        SYMM_TRY(symm_memmark_set(s->comm, &e->mark, heir->stream));
        e->stream = heir->stream;
        e->lane = heir->ordinal;
        return symmSuccess;
    }
    SYMM_TRY(symm_memmark_set(s->comm, &to->mark, heir->stream));
    for (int z = 0; z < SYMM_MEM_ZONES; z++) {
        if (to->followed == FOLLOWED) to->from[z] = to->to[z] = 0;
        if (e->followed != FOLLOWED && e->to[z]) widen(to, z, e->from[z], e->to[z]);
    }
    if (e->followed != FOLLOWED) to->followed = NOT_YET;
    to->reached &= e->reached;
    drop(s, e);
    return symmSuccess;
}

symmResult_t symm_memuse_inherit(symm_memlane *l, const symm_memlane *heir) {
    symm_memlanes *s = l->set;
    for (symm_memuse *e = s->uses, *next; e; e = next) {
        next = e->next;
        if (e->launched || e->lane != l->ordinal) continue;
        if (e->reached)
            drop(s, e);
        else
            SYMM_TRY(hand_on(s, e, heir));
    }
    return symmSuccess;
}

void symm_memuse_leave(const symm_memregion *r) {
    symm_memlanes *s = r->set;
    for (symm_memuse *e = s->uses, *next; e; e = next) {
        next = e->next;
        if (e->region != r) continue;
        e->region = NULL;
        if (e->reached) drop(s, e);
    }
}

void symm_memuse_end(symm_memlanes *s) {
    while (s->uses) drop(s, s->uses);
}
