/* memplan_memory.c - the memory of a lane's graphs, as the program sees it: symmLaneAlias,
 * footprint, trimming. The communicator's user thread. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/setup.h"
#include "host/heap/heap_int.h"
#include "memplan.h"

/* ---- setting apart --------------------------------------------------------------------------- */

static const char setting[] = "setting memory apart for a lane's graphs";

typedef struct { /* what each rank says of its lane */
    int32_t code, lane;
    uint64_t bytes, digest;
} offer;

/* All ranks see the same offers, so all return the same. */
static symmResult_t agree_on(const symm_memlane *l, symmResult_t status, uint64_t bytes) {
    const symm_heap *h = l->set->heap;
    symm_comm *c = l->set->comm;
    offer all[SYMM_MAX_RANKS];
    const offer mine = {(int32_t)status, l->ordinal, bytes, h->digest};
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, setting));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, setting);
    for (int r = 1; r < c->nranks; r++) {
        if (all[r].lane != all[0].lane || all[r].bytes != all[0].bytes)
            return SYMM_ERR(symmMismatch,
                            "symmLaneAlias: rank 0 has lane %d and bytes=%llu, rank %d lane %d and "
                            "bytes=%llu",
                            all[0].lane, (unsigned long long)all[0].bytes, r, all[r].lane,
                            (unsigned long long)all[r].bytes);
        SYMM_TRY(symm_heap_compare(h, all[0].digest, all[r].digest, r, setting));
    }
    return symmSuccess;
}

typedef struct {
    symmLane_t lane;
    uint64_t bytes;
} alias_args;

/* A rank that has failed, or has a bad argument, takes part too. So all ranks return its error. */
static symmResult_t alias_job(void *args) {
    const alias_args *a = args;
    symm_memlane *l;
    symm_setup s;
    symm_memalias *next = NULL;
    SYMM_TRY(symm_memlane_enter(a->lane, "symmLaneAlias", &l));
    symm_setup_begin(l->set->comm, &s);
    symmResult_t r = s.status;
    if (!r) r = symm_memregion_of(l);
    if (!r && a->bytes) r = symm_memalias_make(l, a->bytes, &next);
    r = agree_on(l, r, a->bytes);
    if (!r)
        symm_memalias_replace(l, next);
    else if (next)
        symm_memalias_discard(s.c, next);
    symm_setup_end(&s);
    symm_memlane_leave(l);
    return r;
}

symmResult_t symmLaneAlias(symmLane_t lane, size_t bytes) {
    alias_args a = {lane, bytes};
    const symm_memlane *l = symm_memlane_peek(lane);
    if (!l) return symm_group_refuse(alias_job(&a)); /* this returns the error */
    return symm_group_run(l->set->comm->handle, SYMM_JOB_BLOCKS, alias_job, &a, sizeof a);
}

/* ---- footprint ------------------------------------------------------------------------------- */

typedef struct {
    uint64_t off, end;
} span;

static int by_offset(const void *a, const void *b) {
    const span *x = a, *y = b;
    return x->off < y->off ? -1 : x->off > y->off;
}

/* The spans that plans' blocks lie in; out NULL: only their number. In guard mode each block is
 * listed alone, because the planner does not tell blocks from red zones. */
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

/* Bytes under blocks of held plans, each byte once. */
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
        return SYMM_ERR(symmInvalidArgument,
                        "symmLaneGetGraphMem: attr=%d, value=%p: attr must "
                        "be SYMM_GRAPH_MEM_*, and value not NULL",
                        attr, (void *)value);
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
        return SYMM_ERR(symmInvalidArgument,
                        "symmLaneSetGraphMem: attr=%d: only "
                        "SYMM_GRAPH_MEM_USED_HIGH and "
                        "SYMM_GRAPH_MEM_RESERVED_HIGH can be set",
                        attr);
    if (value)
        return SYMM_ERR(symmInvalidArgument, "symmLaneSetGraphMem: value=%llu: only 0 can be set",
                        (unsigned long long)value);
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneSetGraphMem", &l));
    symmResult_t r = l->region ? reset(l->region, attr) : symmSuccess;
    symm_memlane_leave(l);
    return r;
}

/* ---- trimming -------------------------------------------------------------------------------- */

/* Decided by what the program holds, because ranks differ in which graphs are gone. */
static int is_held(const symm_memregion *r, int zone, const symm_mempiece *e) {
    for (const symm_memplan *p = r->set->plans; p; p = p->next)
        if (p->region == r && symm_memplan_holds(p, zone) &&
            symm_gplan_touches(p->points, zone, e->off, e->bytes))
            return 1;
    return 0;
}

/* Plans that can still get blocks must not get any there. */
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

/* Work on what no graph uses any more ends with the last launch, and with the uses of blocks that
 * graphs had left. */
static symmResult_t trim_region(symm_memlane *l, uint64_t *freed) {
    symm_memregion *r = l->region;
    symm_comm *c = l->set->comm;
    if (!r) return symmSuccess;
    symm_memregion_measure(r);
    if (r->launches) {
        SYMM_TRY(symm_memuse_mark(c, &r->launched, r->launch_stream));
        SYMM_TRY(symm_memmark_reach(c, &r->launched));
    }
    SYMM_TRY(symm_memuse_reach(l->set, r));
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
        SYMM_INFO("graphs of lane %d trimmed by %llu bytes; pieces of %llu bytes are still in use",
                  l->ordinal, (unsigned long long)bytes, (unsigned long long)l->region->reserved);
    symm_memlane_leave(l);
    if (!r && freed) *freed = bytes;
    return r;
}
