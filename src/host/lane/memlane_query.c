/* memlane_query.c - sizes and counts of lanes, trimming, and what this machine supports. The
 * communicator's user thread; symmMemQuerySupport: any. */
#include <stdio.h>

#include "base/log.h"
#include "base/sized.h"
#include "memlane.h"

symmResult_t symmLaneQuery(symmLane_t lane, symmLaneInfo_t *info) {
    symm_memlane *l;
    if (!symm_sized_holds(info, sizeof *info))
        return SYMM_ERR(symmInvalidArgument, "symmLaneQuery: info is %s",
                        info ? SYMM_NO_SIZE : "NULL");
    SYMM_TRY(symm_memlane_enter(lane, "symmLaneQuery", &l));
    const symm_memzone *sym = &l->zone[SYMM_MEM_SYM], *local = &l->zone[SYMM_MEM_LOCAL];
    const symmLaneInfo_t i = {.size = info->size,
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
    symm_sized_answer(info, &i, sizeof i);
    symm_memlane_leave(l);
    return symmSuccess;
}

/* ---- trimming -------------------------------------------------------------------------------- */

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
    SYMM_TRY(symm_memlane_no_group("symmHeapTrimLanes"));
    SYMM_TRY(symm_heap_enter(heap, 1, &h));
    for (symm_memlanes *s = symm_heap_comm(h)->lanes.sets; s && !r; s = s->next) {
        if (s->heap != h) continue;
        r = trim_lanes(s, &bytes, __builtin_return_address(0));
        for (int z = 0; z < SYMM_MEM_ZONES; z++) left += s->pool[z].reserved;
    }
    if (!r && left)
        SYMM_INFO("lanes trimmed by %llu bytes; pieces of %llu bytes are still in use",
                  (unsigned long long)bytes, (unsigned long long)left);
    symm_heap_leave(h);
    if (!r && freed) *freed = bytes;
    return r;
}

/* ---- support --------------------------------------------------------------------------------- */

symmResult_t symmMemQuerySupport(symmMemSupport_t *support) {
    if (!symm_sized_holds(support, sizeof *support))
        return SYMM_ERR(symmInvalidArgument, "symmMemQuerySupport: support is %s",
                        support ? SYMM_NO_SIZE : "NULL");
    symmMemSupport_t s = {.size = support->size, .lanes = 1, .graphs = 1, .nodes = 1, .alias = 1};
    const char *why = "";
    if (symm_cuda_there()) { /* this first: the version decides what may be asked */
        s.driver = symm_cuda_version();
        if (!symm_cuda_sees_graphs()) {
            s.graphs = s.nodes = s.alias = 0;
            why = "captured allocations need a CUDA driver of 12.3 or later";
        }
    }
    snprintf(s.why, sizeof s.why, "%s", why);
    symm_sized_answer(support, &s, sizeof s);
    return symmSuccess;
}
