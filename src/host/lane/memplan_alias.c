/* memplan_alias.c - graphs with addresses of their own over shared memory (symmLaneAlias). Each
 * plan has a graph range: a range of the heap's addresses. The same pieces of memory are mapped in
 * the graph ranges of all plans. The communicator's user thread.
 *
 * This rank's pieces are mapped in its own part when blocks are captured, because CUDA checks the
 * memory that a captured copy or fill points at. The peers' pieces are mapped by symmMemPlanUpload,
 * on all ranks or on none. The same byte is never in use under two addresses: each graph has a
 * barrier in front of its first SYM block, and launches of a lane run one after the other. Graph
 * ranges are given back by symmHeapCollect: heap_graph_range.c. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/log.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/heap/heap_int.h"
#include "host/window/space.h"
#include "host/window/window.h"
#include "memplan.h"

static const char uploading[] = "uploading a plan";

/* ---- the memory ------------------------------------------------------------------------------ */

/* Piece i. The memory on top begins with a piece of its own, so that it can be left out. */
static symm_part piece(const symm_memalias *a, int i) {
    SYMM_ASSERT(i >= 0 && i < a->most);
    const int top = i >= a->count;
    const uint64_t off =
        top ? a->bytes + (uint64_t)(i - a->count) * a->chunk : (uint64_t)i * a->chunk;
    const uint64_t left = (top ? a->room : a->bytes) - off;
    return (symm_part){off, left < a->chunk ? left : a->chunk};
}

static uint64_t covered(const symm_memalias *a, int pieces) {
    const symm_part last = pieces ? piece(a, pieces - 1) : (symm_part){0, 0};
    return last.off + last.bytes;
}

static int pieces_of(uint64_t bytes, uint64_t chunk) {
    return (int)((bytes + chunk - 1) / chunk);
}

void symm_memalias_discard(symm_comm *c, symm_memalias *a) {
    for (int i = 0; a->handles && i < a->most; i++)
        if (a->handles[i]) c->vmm->release(a->handles[i]);
    free(a->handles);
    free(a);
}

/* Counts bytes of the region, and those that the heap's pictures show, which any thread may
 * draw. */
static void count(symm_memregion *r, int64_t bytes) {
    symm_heap *h = r->set->heap;
    SYMM_ASSERT(bytes >= 0 || (r->reserved >= (uint64_t)-bytes && h->apart >= (uint64_t)-bytes));
    r->reserved += (uint64_t)bytes;
    if (r->reserved_high < r->reserved) r->reserved_high = r->reserved;
    symm_heap_lock(h);
    h->apart += (uint64_t)bytes;
    symm_heap_unlock(h);
}

/* Mappings keep the memory until the plans' graph ranges go. */
void symm_memalias_unref(symm_memalias *a) {
    if (!a) return;
    SYMM_ASSERT(a->refs > 0);
    if (--a->refs) return;
    symm_comm *c = a->region->set->comm;
    if (!a->left_out) count(a->region, -(int64_t)a->bytes);
    symm_memalias_discard(c, a);
}

static symmResult_t make_piece(symm_comm *c, symm_memalias *a, int i) {
    if (a->handles[i]) return symmSuccess;
    int cu = c->vmm->create_as_is(piece(a, i).bytes, &a->handles[i]);
    if (!cu) return symmSuccess;
    a->handles[i] = NULL;
    return symm_vmm_error(c->vmm, cu, "making %llu bytes of memory for a lane's graphs",
                          (unsigned long long)piece(a, i).bytes);
}

static symmResult_t make_pieces(symm_comm *c, symm_memalias *a) {
    a->handles = SYMM_FAIL_ALLOC(memalias_handles, calloc((size_t)a->most, sizeof *a->handles));
    if (!a->handles) return SYMM_ERR(symmOutOfMemory, "no memory to list %d pieces", a->most);
    for (int i = 0; i < a->count; i++) SYMM_TRY(make_piece(c, a, i));
    return symmSuccess;
}

symmResult_t symm_memalias_make(symm_memlane *l, uint64_t bytes, symm_memalias **out) {
    const symm_heap *h = l->set->heap;
    if (bytes > h->reserve)
        return SYMM_ERR(symmOutOfMemory,
                        "symmLaneAlias: bytes=%llu: heap %s has addresses for %llu",
                        (unsigned long long)bytes, h->name, (unsigned long long)h->reserve);
    symm_memalias *a = SYMM_FAIL_ALLOC(memalias_record, calloc(1, sizeof *a));
    if (!a) return SYMM_ERR(symmOutOfMemory, "no memory to note what a lane's graphs share");
    a->refs = 1;
    a->chunk = h->chunk;
    a->bytes = (bytes + h->granularity - 1) / h->granularity * h->granularity;
    a->count = pieces_of(a->bytes, a->chunk);
    /* A red zone is not longer than its block in units of placement. So twice the memory is enough
     * for all sizes. */
    const uint64_t top = l->set->guard ? a->bytes : 0;
    a->room = a->bytes + top;
    a->most = a->count + pieces_of(top, a->chunk);
    symmResult_t r = make_pieces(l->set->comm, a);
    if (r)
        symm_memalias_discard(l->set->comm, a);
    else
        *out = a;
    return r;
}

void symm_memalias_replace(symm_memlane *l, symm_memalias *next) {
    symm_memregion *r = l->region;
    symm_memalias_unref(r->alias);
    r->alias = next;
    if (!next) return;
    SYMM_ASSERT(next->refs == 1 && !next->region && !next->trimmed);
    next->region = r;
    next->first = l->set->heap->reserve + l->set->aliased;
    l->set->aliased += next->room;
    count(r, (int64_t)next->bytes);
}

/* ---- a plan's addresses ---------------------------------------------------------------------- */

symmResult_t symm_memalias_open(symm_memplan *p) {
    if (p->graph_range != SYMM_NO_OFFSET) return symmSuccess;
    /* If addresses are scarce, a graph gets as many as without guard mode. */
    const int top = symm_heap_graph_range_fits(p->set->heap, p->alias->room);
    p->graph_range_bytes = top ? p->alias->room : p->alias->bytes;
    return symm_heap_graph_range_take(p->set->heap, p->graph_range_bytes, p->lane, &p->graph_range);
}

void symm_memalias_close(symm_memplan *p) {
    if (p->graph_range == SYMM_NO_OFFSET) return;
    if (symm_handle_open(SYMM_KIND_HEAP, p->set->handle))
        symm_heap_graph_range_later(p->set->heap, p->graph_range);
    p->graph_range = SYMM_NO_OFFSET;
}

static symm_part own_part(const symm_memplan *p, int i) {
    symm_part part = piece(p->alias, i);
    part.off += p->graph_range;
    return part;
}

/* Maps pieces until `bytes` have memory; or none at all. */
static symmResult_t map_own(symm_memplan *p, uint64_t bytes) {
    symm_region *to = &p->set->heap->region;
    const int had = p->backed, rank = p->set->comm->rank;
    symmResult_t r = symmSuccess;
    while (!r && covered(p->alias, p->backed) < bytes) {
        r = make_piece(p->set->comm, p->alias, p->backed);
        if (!r) r = symm_region_map(to, own_part(p, p->backed), p->alias->handles[p->backed]);
        if (!r) p->backed++;
    }
    while (r && p->backed > had) symm_region_unmap(to, rank, own_part(p, --p->backed));
    symm_window_changed(p->set->comm); /* remembered calls must look again */
    return r;
}

symmResult_t symm_memalias_back(symm_memplan *p, const symm_memblock *b) {
    symm_cuda_scope scope;
    const symm_comm *c = p->set->comm;
    const uint64_t bytes = b->at - p->alias->first + b->bytes;
    if (bytes > p->graph_range_bytes) return symm_memalias_full(p, b->bytes);
    symm_memalias_wake(p->alias);
    if (covered(p->alias, p->backed) < bytes) {
        SYMM_TRY(symm_gpu_push(c, &scope));
        symmResult_t r = map_own(p, bytes);
        symm_gpu_pop(c, &scope);
        if (r) return r;
    }
    SYMM_ASSERT(covered(p->alias, p->backed) >= bytes);
    if (p->reach < bytes) p->reach = bytes;
    return symmSuccess;
}

symmResult_t symm_memalias_full(const symm_memplan *p, uint64_t bytes) {
    char text[256];
    snprintf(text, sizeof text,
             "%llu bytes do not fit in the %llu bytes of memory that graphs of lane %d share "
             "(symmLaneAlias); this graph uses %llu of them",
             (unsigned long long)bytes, (unsigned long long)p->alias->bytes, p->lane,
             (unsigned long long)symm_gplan_footprint(p->points, SYMM_MEM_SYM));
    symm_status_adopt(text); /* expected, so no warning */
    return symmNeedGrow;
}

/* ---- uploading ------------------------------------------------------------------------------- */

typedef struct { /* what each rank says of its plan */
    int32_t code, backed, uploaded, pad;
    uint64_t graph_range, digest;
} state;

static symmResult_t compare(const symm_heap *h, const state *all) {
    for (int r = 1; r < h->comm->nranks; r++) {
        if (all[r].graph_range != all[0].graph_range || all[r].backed != all[0].backed ||
            all[r].uploaded != all[0].uploaded)
            return SYMM_ERR(
                symmMismatch,
                "symmMemPlanUpload: rank 0 has pieces %d to %d at offset %llu, rank %d %d "
                "to %d at %llu",
                all[0].uploaded, all[0].backed, (unsigned long long)all[0].graph_range, r,
                all[r].uploaded, all[r].backed, (unsigned long long)all[r].graph_range);
        SYMM_TRY(symm_heap_compare(h, all[0].digest, all[r].digest, r, uploading));
    }
    return symmSuccess;
}

static symmResult_t share(symm_memplan *p, symmResult_t status, symm_growth *g) {
    const symm_heap *h = p->set->heap;
    symm_comm *c = p->set->comm;
    state all[SYMM_MAX_RANKS];
    int counts[SYMM_MAX_RANKS];
    const state mine = {(int32_t)status, p->backed, p->uploaded, 0, p->graph_range, h->digest};
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, uploading));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, uploading);
    SYMM_TRY(compare(h, all));
    for (int r = 0; r < c->nranks; r++) counts[r] = all[r].backed - all[r].uploaded;
    return symm_growth_commit(g, counts);
}

static symmResult_t map_all(symm_memplan *p, symmResult_t status) {
    const int n = p->backed - p->uploaded;
    symm_part *parts = SYMM_FAIL_ALLOC(memalias_parts, calloc((size_t)n, sizeof *parts));
    symm_growth g = {.r = &p->set->heap->region,
                     .stage = uploading,
                     .parts = parts,
                     .count = parts ? n : 0,
                     .alike = parts ? n : 0,
                     .mine = p->alias->handles + p->uploaded};
    for (int i = 0; i < g.count; i++) parts[i] = own_part(p, p->uploaded + i);
    if (!status && !parts) status = SYMM_ERR(symmOutOfMemory, "no memory to list %d pieces", n);
    if (!status) status = symm_growth_prepare(&g);
    status = share(p, status, &g);
    symm_growth_end(&g, !status);
    free(parts);
    SYMM_ASSERT(p->uploaded <= p->backed && p->backed <= p->alias->most);
    if (!status) p->uploaded = p->backed;
    return status;
}

void symm_memalias_release(symm_memalias *a) {
    symm_memlanes *s = a->region->set;
    for (const symm_memplan *p = s->plans; p; p = p->next)
        if (p->alias == a && p->backed) return;
    for (int i = 0; i < a->most; i++) {
        if (a->handles[i]) s->comm->vmm->release(a->handles[i]);
        a->handles[i] = NULL;
    }
}

/* If memory was trimmed, this rank makes and maps its own part first. */
static symmResult_t upload(symm_memplan *p, symmResult_t status) {
    const int had = p->backed, trimmed = covered(p->alias, had) < p->reach;
    if (!status && trimmed) status = map_own(p, p->reach);
    symmResult_t r = map_all(p, status);
    if (!r || !trimmed) return r;
    while (p->backed > had)
        symm_region_unmap(&p->set->heap->region, p->set->comm->rank, own_part(p, --p->backed));
    symm_memalias_release(p->alias);
    return r;
}

symmResult_t symm_memalias_upload(symm_memplan *p, symmResult_t status) {
    symm_cuda_scope scope;
    symm_comm *c = p->set->comm;
    int there;
    if (p->alias) symm_memalias_wake(p->alias);
    if (symm_memalias_pieces(p, &there) <= there) return status; /* the same on all ranks */
    symm_log_rank(c->rank);
    const symmResult_t inside = symm_gpu_push(c, &scope);
    symmResult_t r = upload(p, status ? status : inside);
    if (!inside) symm_gpu_pop(c, &scope);
    return r;
}

/* ---- trimming -------------------------------------------------------------------------------- */
/* Two steps, as for all SYM memory. symmLaneTrimGraphMem, called in the same order on all ranks,
 * marks the memory. symmHeapCollect unmaps and releases it once all ranks have marked it. In
 * between nothing is launched over it. An upload or a capture removes the mark, the same on all
 * ranks. */

void symm_memalias_wake(symm_memalias *a) {
    SYMM_ASSERT(!a->trimmed || a->left_out);
    a->trimmed = 0;
    if (a->left_out) count(a->region, (int64_t)a->bytes);
    a->left_out = 0;
}

int symm_memalias_pieces(const symm_memplan *p, int *there) {
    int n = p->backed;
    *there = p->uploaded;
    if (!p->alias) return n;
    while (covered(p->alias, n) < p->reach) n++;
    if (p->alias->trimmed) *there = 0;
    return n;
}

/* 1: a block in the memory is allocated, or nobody has bound the graph, which may be launched at
 * any time. What lies elsewhere does not count: LOCAL blocks, and graphs that have no others, are
 * each rank's own business, and all ranks must decide alike. */
static int keeps(const symm_memplan *p) {
    SYMM_ASSERT(p->alias && p->nlive >= 0);
    for (int i = 0; p->nlive && i < p->nblocks; i++) {
        const symm_memblock *b = &p->blocks[i];
        if (b->live && b->zone == SYMM_MEM_SYM && b->no >= 0) return 1;
    }
    return p->reach && p->held && !p->handle && !p->explicit_nodes;
}

/* Decided by what the program holds, as for the region's own pieces. */
static int is_idle(const symm_memalias *a) {
    for (const symm_memplan *p = a->region->set->plans; p; p = p->next)
        if (p->alias == a && keeps(p)) return 0;
    return 1;
}

static uint64_t mark(symm_memalias *a) {
    if (!a || a->left_out || !is_idle(a)) return 0;
    a->trimmed = a->left_out = 1;
    count(a->region, -(int64_t)a->bytes);
    return a->bytes;
}

uint64_t symm_memalias_trim(const symm_memregion *r) {
    uint64_t freed = mark(r->alias);
    for (const symm_memplan *p = r->set->plans; p; p = p->next)
        if (p->region == r) freed += mark(p->alias);
    return freed;
}
