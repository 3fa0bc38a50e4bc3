/* memplan_mem.c - how much memory lanes and graphs have, giving it back, who may access it, what
 * this machine can do. The communicator's user thread; symmMemQuerySupport any. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/log.h"
#include "host/comm/comm.h"
#include "host/gpu/backend.h"
#include "host/heap/ledger.h"
#include "host/window/space.h"
#include "memplan.h"

/* ---- lanes ----------------------------------------------------------------------------------- */

symmResult_t symmLaneQuery(symmLane_t lane, symmLaneInfo_t *info) {
    symm_memlane *l;
    if (!info || info->size < sizeof *info)
        return SYMM_ERR(symmInvalidArgument, "symmLaneQuery: info is %s",
                        info ? SYMM_NO_SIZE : "NULL");
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneQuery", &l));
    const symm_memzone *sym = &l->zone[SYMM_MEM_SYM], *local = &l->zone[SYMM_MEM_LOCAL];
    *info = (symmLaneInfo_t){.size = info->size,
                             .ordinal = l->ordinal,
                             .symLive = sym->live - sym->red,
                             .localLive = local->live - local->red,
                             .symKept = sym->kept,
                             .localKept = local->kept,
                             .symPending = sym->pending,
                             .symReserved = l->set->pool[SYMM_MEM_SYM].reserved,
                             .localReserved = l->set->pool[SYMM_MEM_LOCAL].reserved,
                             .allocs = l->allocs,
                             .frees = l->frees,
                             .epochs = l->epochs,
                             .spared = l->spared,
                             .follows = l->follows};
    symm_memlane_leave(l);
    return symmSuccess;
}

static symmResult_t trim_lanes(symm_memlanes *s, uint64_t *freed, const void *site) {
    symm_memstate st;
    for (int i = 0; i < s->made; i++) {
        symm_memlane *l = s->lanes[i];
        if (!l || !symm_mem_alive(s->comm, l->stream)) continue;
        SYMM_TRY(symm_mem_state(s->comm, l->stream, &st));
        if (st.how == SYMM_STREAM_CAPTURED)
            return SYMM_ERR(symmInvalidUsage,
                            "symmHeapTrimLanes: stream=%p of lane %d is under capture",
                            (void *)l->stream, l->ordinal);
    }
    for (int i = 0; i < s->made; i++)
        for (int z = 0; z < SYMM_MEM_ZONES && s->lanes[i]; z++)
            SYMM_TRY(symm_memlane_flush(s->lanes[i], z));
    for (int i = 0; i < s->made; i++)
        for (int z = 0; z < SYMM_MEM_ZONES && s->lanes[i]; z++)
            SYMM_TRY(symm_memmark_reach(s->comm, &s->lanes[i]->zone[z].given));
    if (s->guard) symm_memguard_look(s);
    for (int z = 0; z < SYMM_MEM_ZONES; z++) *freed += symm_mempool_shrink(s, z, site);
    return symmSuccess;
}

symmResult_t symmHeapTrimLanes(symmHeap_t heap, size_t *freed) {
    symm_heap *h;
    uint64_t bytes = 0, left = 0;
    symmResult_t r = symmSuccess;
    SYMM_TRY(symm_heap_enter(heap, 1, &h));
    for (symm_memlanes *s = symm_heap_comm(h)->lanes.sets; s && !r; s = s->next) {
        if (s->heap != h) continue;
        r = trim_lanes(s, &bytes, __builtin_return_address(0));
        for (int z = 0; z < SYMM_MEM_ZONES; z++) left += s->pool[z].reserved;
    }
    if (!r && left)
        SYMM_INFO("lanes trimmed by %llu bytes; pieces of %llu bytes stay, in use",
                  (unsigned long long)bytes, (unsigned long long)left);
    symm_heap_leave(h);
    if (!r && freed) *freed = bytes;
    return r;
}

/* ---- footprint ------------------------------------------------------------------------------- */

typedef struct {
    uint64_t off, end;
} span;

static int by_offset(const void *a, const void *b) {
    const span *x = a, *y = b;
    return x->off < y->off ? -1 : x->off > y->off;
}

/* Guard mode: by the plans' own lists, which tell blocks from what is behind them. */
static size_t spans_of(const symm_memregion *r, span *out) {
    const int guard = r->set->guard != NULL;
    size_t n = 0;
    uint64_t off, bytes;
    for (const symm_memplan *p = r->set->plans; p; p = p->next) {
        if (p->region != r || !p->held) continue;
        for (int z = 0; z < SYMM_MEM_ZONES; z++)
            for (int k = 0; !guard && symm_gplan_piece(p->points, z, k, &off, &bytes); k++, n++)
                if (out) out[n] = (span){off, off + bytes};
        for (int i = 0; i < p->nblocks; i++) {
            const symm_memblock *b = &p->blocks[i];
            if (b->no >= 0 && !guard) continue;
            if (out) out[n] = (span){b->at, b->at + b->bytes - b->red};
            n++;
        }
    }
    return n;
}

/* Bytes under blocks of plans that somebody holds, each once. */
static symmResult_t used_of(const symm_memregion *r, uint64_t *used) {
    const size_t n = spans_of(r, NULL);
    uint64_t sum = 0, reach = 0;
    span *s = SYMM_FAIL_ALLOC(memplan_used, malloc((n ? n : 1) * sizeof *s));
    if (!s) return SYMM_ERR(symmOutOfMemory, "no memory to count graph memory");
    spans_of(r, s);
    qsort(s, n, sizeof *s, by_offset);
    for (size_t i = 0; i < n; i++) {
        const uint64_t from = s[i].off > reach ? s[i].off : reach;
        if (s[i].end <= from) continue;
        sum += s[i].end - from;
        reach = s[i].end;
    }
    free(s);
    *used = sum;
    return symmSuccess;
}

void symm_memregion_measure(symm_memregion *r) {
    uint64_t used;
    if (r && used_of(r, &used) == symmSuccess && r->used_high < used) r->used_high = used;
}

static symmResult_t get(symm_memregion *r, int attr, uint64_t *value) {
    uint64_t used = 0;
    if (r) SYMM_TRY(used_of(r, &used));
    if (r && r->used_high < used) r->used_high = used;
    const uint64_t values[] = {used, r ? r->used_high : 0, r ? r->reserved : 0,
                               r ? r->reserved_high : 0};
    *value = values[attr];
    return symmSuccess;
}

symmResult_t symmLaneGetGraphMem(symmLane_t lane, int attr, size_t *value) {
    symm_memlane *l;
    if (!value || attr < SYMM_GRAPH_MEM_USED || attr > SYMM_GRAPH_MEM_RESERVED_HIGH)
        return SYMM_ERR(symmInvalidArgument, "symmLaneGetGraphMem: attr=%d, value=%p", attr,
                        (void *)value);
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneGetGraphMem", &l));
    symm_memplan_reap(l->set->comm);
    symmResult_t r = get(l->region, attr, value);
    symm_memlane_leave(l);
    return r;
}

static symmResult_t reset(symm_memregion *r, int attr) {
    uint64_t used = 0;
    SYMM_TRY(used_of(r, &used));
    if (attr == SYMM_GRAPH_MEM_USED_HIGH)
        r->used_high = used;
    else
        r->reserved_high = r->reserved;
    return symmSuccess;
}

symmResult_t symmLaneSetGraphMem(symmLane_t lane, int attr, size_t value) {
    symm_memlane *l;
    if (attr != SYMM_GRAPH_MEM_USED_HIGH && attr != SYMM_GRAPH_MEM_RESERVED_HIGH)
        return SYMM_ERR(symmInvalidArgument, "symmLaneSetGraphMem: attr=%d cannot be set", attr);
    if (value)
        return SYMM_ERR(symmInvalidArgument, "symmLaneSetGraphMem: value=%llu: only 0 can be set",
                        (unsigned long long)value);
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneSetGraphMem", &l));
    symmResult_t r = l->region ? reset(l->region, attr) : symmSuccess;
    symm_memlane_leave(l);
    return r;
}

/* ---- trimming -------------------------------------------------------------------------------- */

/* By what the program holds: which graphs are gone differs between ranks. */
static int is_held(const symm_memregion *r, int zone, const symm_mempiece *e) {
    for (const symm_memplan *p = r->set->plans; p; p = p->next)
        if (p->region == r && p->held && symm_gplan_touches(p->points, zone, e->off, e->bytes))
            return 1;
    return 0;
}

/* Graphs that are being made must not have blocks there later. */
static int withdraw(const symm_memregion *r, int zone, const symm_mempiece *e) {
    for (symm_memplan *p = r->set->plans; p; p = p->next) {
        if (p->region != r || !p->held || (p->handle && !p->explicit_nodes)) continue;
        if (symm_gplan_withdraw(p->points, zone, e->off, e->bytes)) return -1;
    }
    return 0;
}

static symmResult_t trim(symm_memregion *r, uint64_t *freed) {
    for (int z = 0; z < SYMM_MEM_ZONES; z++)
        for (int i = r->npieces[z]; i-- > 0;) {
            const symm_mempiece e = r->pieces[z][i];
            if (is_held(r, z, &e)) continue;
            symm_memretired *t = SYMM_FAIL_ALLOC(memplan_retire, malloc(sizeof *t));
            if (!t || withdraw(r, z, &e)) {
                free(t);
                return SYMM_ERR(symmOutOfMemory, "symmLaneTrimGraphMem: no memory");
            }
            *t = (symm_memretired){r->retired, e, z};
            r->retired = t;
            memmove(&r->pieces[z][i], &r->pieces[z][i + 1],
                    (size_t)(r->npieces[z] - i - 1) * sizeof e);
            r->npieces[z]--;
            r->reserved -= e.bytes;
            *freed += e.bytes;
        }
    return symmSuccess;
}

/* What no graph runs over any more has ended with the last launch, and with what used blocks that
 * they had left. */
static symmResult_t trim_region(symm_memlane *l, uint64_t *freed) {
    symm_memregion *r = l->region;
    symm_comm *c = l->set->comm;
    if (!r) return symmSuccess;
    symm_memregion_measure(r);
    if (r->launches) {
        SYMM_TRY(symm_memlate_mark(c, &r->launched, r->launch_stream));
        SYMM_TRY(symm_memmark_reach(c, &r->launched));
    }
    SYMM_TRY(symm_memlate_reach(l->set, r));
    symmResult_t status = trim(r, freed);
    if (!status) *freed += symm_memalias_trim(r);
    symm_memregion_sweep(r);
    return status;
}

symmResult_t symmLaneTrimGraphMem(symmLane_t lane, size_t *freed) {
    symm_memlane *l;
    uint64_t bytes = 0;
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneTrimGraphMem", &l));
    symm_memplan_reap(l->set->comm);
    symmResult_t r = trim_region(l, &bytes);
    if (!r && l->region && l->region->reserved)
        SYMM_INFO("graphs of lane %d trimmed by %llu bytes; pieces of %llu bytes stay, in use",
                  l->ordinal, (unsigned long long)bytes, (unsigned long long)l->region->reserved);
    symm_memlane_leave(l);
    if (!r && freed) *freed = bytes;
    return r;
}

/* ---- access ---------------------------------------------------------------------------------- */

symmResult_t symm_memaccess_set(symm_memaccess *a, const symm_comm *c, const int *ranks,
                                int nranks) {
    symm_memaccess next = {.some = nranks > 0};
    if (nranks < 0 || (nranks && !ranks))
        return SYMM_ERR(symmInvalidArgument, "nranks=%d, ranks=%p", nranks, (const void *)ranks);
    for (int i = 0; i < nranks; i++) {
        if (ranks[i] < 0 || ranks[i] >= c->nranks)
            return SYMM_ERR(symmInvalidArgument, "ranks[%d]=%d: must be 0 to %d", i, ranks[i],
                            c->nranks - 1);
        next.ranks[ranks[i] / 64] |= 1ull << (ranks[i] % 64);
    }
    *a = next;
    return symmSuccess;
}

symmResult_t symmLaneSetAccess(symmLane_t lane, const int *ranks, int nranks) {
    symm_memlane *l;
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneSetAccess", &l));
    symmResult_t r = symm_memaccess_set(&l->access, l->set->comm, ranks, nranks);
    symm_memlane_leave(l);
    return r;
}

/* Who may access off, by the blocks of graphs that hold it: graphs share bytes, so it is whoever
 * one of them allows. 0: it is in none. */
static int access_at(const symm_memlanes *s, uint64_t off, symm_memaccess *all) {
    int found = 0, some = 1;
    *all = (symm_memaccess){0};
    for (const symm_memplan *p = s->plans; p; p = p->next)
        for (int i = 0; i < p->nblocks; i++) {
            const symm_memblock *b = &p->blocks[i];
            if (off - b->off >= b->bytes - b->red) continue;
            found = 1;
            some &= b->access.some;
            for (int w = 0; w < SYMM_LEDGER_MASK; w++) all->ranks[w] |= b->access.ranks[w];
        }
    all->some = some;
    return found;
}

int symm_memplan_access(void *set, uint64_t off, uint64_t *ranks) {
    symm_memaccess a;
    if (!access_at(set, off, &a) || !a.some) return 0;
    memcpy(ranks, a.ranks, sizeof a.ranks);
    return 1;
}

static symmResult_t find_access(const symm_memlane *l, const void *ptr, int rank, int *allowed) {
    const symm_memlanes *s = l->set;
    const uint64_t off = symm_heap_offset(s->heap, ptr);
    if (rank < 0 || rank >= s->comm->nranks)
        return SYMM_ERR(symmInvalidArgument, "symmLaneGetAccess: rank=%d: must be 0 to %d", rank,
                        s->comm->nranks - 1);
    symm_memaccess a;
    if (off != SYMM_NO_OFFSET && access_at(s, off, &a)) {
        *allowed = !a.some || rank == s->comm->rank || (a.ranks[rank / 64] >> (rank % 64) & 1);
        return symmSuccess;
    }
    if (off == SYMM_NO_OFFSET || !symm_memtable_find(&s->table, off))
        return SYMM_ERR(symmInvalidArgument,
                        "symmLaneGetAccess: ptr=%p does not begin a block of a lane", ptr);
    *allowed = 1;
    return symmSuccess;
}

symmResult_t symmLaneGetAccess(symmLane_t lane, const void *ptr, int rank, int *allowed) {
    symm_memlane *l;
    if (!allowed) return SYMM_ERR(symmInvalidArgument, "symmLaneGetAccess: allowed is NULL");
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneGetAccess", &l));
    symmResult_t r = find_access(l, ptr, rank, allowed);
    symm_memlane_leave(l);
    return r;
}

/* ---- support --------------------------------------------------------------------------------- */

symmResult_t symmMemQuerySupport(symmMemSupport_t *support) {
    if (!support || support->size < sizeof *support)
        return SYMM_ERR(symmInvalidArgument, "symmMemQuerySupport: support is %s",
                        support ? SYMM_NO_SIZE : "NULL");
    symmMemSupport_t s = {.size = support->size, .lanes = 1, .graphs = 1, .nodes = 1, .alias = 1};
    const char *why = "";
    if (symm_cuda_there()) { /* the version first: it says what may be asked */
        s.driver = symm_cuda_version();
        if (!symm_cuda_sees_graphs()) {
            s.graphs = s.nodes = s.alias = 0;
            why = "captured allocations need a CUDA driver of 12.3 or later";
        }
    }
    snprintf(s.why, sizeof s.why, "%s", why);
    *support = s;
    return symmSuccess;
}
