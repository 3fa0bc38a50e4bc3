/* region.c - growing ranges. Locks: list_lock guards the list of thread ranks' ranges and their
 * references; a range's own lock its maps, as every rank enters its own. A slot's maps are
 * touched by the communicator's user thread, and by whoever ends the slot. */
#include "region.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "exchange.h"
#include "multicast.h"
#include "window.h"
#include "space.h"

struct symm_range {
    symm_range *next;
    uint64_t id;
    int refs;
    int nranks;
    const symm_vmm *vmm;
    uint64_t base, stride;
    pthread_mutex_t lock;
    symm_mappings maps;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static symm_range *ranges;
static uint64_t last_id;

/* The user thread's, but for what another thread rank may change: its maps, and references. */
static void region_check(const symm_region *r) {
    SYMM_ASSERT(!r->slot != !r->range && !r->range == !r->c->threads);
    SYMM_ASSERT(r->bytes && r->bytes <= r->stride && r->base);
    SYMM_ASSERT(!r->slot || r->base == r->c->space->base + r->slot->off);
    SYMM_ASSERT(!r->slot || (r->bytes <= r->slot->bytes && !r->slot->id));
    SYMM_ASSERT(!r->range || (r->base == r->range->base && r->stride == r->range->stride));
}

static void growth_check(const symm_growth *g) {
    uint64_t end = 0;
    SYMM_CHECK(region_check(g->r));
    SYMM_ASSERT(g->count >= 0 && g->old >= 0 && g->old <= g->count && (!g->old || g->from));
    SYMM_ASSERT(g->alike >= 0 && g->alike <= g->count);
    for (int i = 0; i < g->count; i++) {
        SYMM_ASSERT(g->parts[i].bytes && g->parts[i].off <= g->r->bytes);
        SYMM_ASSERT(g->parts[i].bytes <= g->r->bytes - g->parts[i].off);
        end = g->parts[i].off + g->parts[i].bytes > end ? g->parts[i].off + g->parts[i].bytes : end;
    }
    SYMM_ASSERT(end <= g->r->stride);
}

/* ---- thread ranks' ranges -------------------------------------------------------------------- */

static symmResult_t range_new(symm_comm *c, uint64_t bytes, symm_range **out) {
    void *va;
    symm_range *g = SYMM_FAIL_ALLOC(region_range, calloc(1, sizeof *g));
    if (!g) return SYMM_ERR(symmOutOfMemory, "no memory for the record of a range");
    int cu = c->vmm->reserve(bytes * (unsigned)c->nranks, 0, &va);
    if (cu) {
        free(g);
        return symm_vmm_error(c->vmm, cu,
                              "reserving %d x %llu MiB of addresses (config.reserve of a heap, "
                              "config.max of a vector)",
                              c->nranks, (unsigned long long)(bytes >> 20));
    }
    g->vmm = c->vmm;
    g->nranks = c->nranks;
    g->base = (uint64_t)(uintptr_t)va;
    g->stride = bytes;
    g->refs = 1;
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_lock(&list_lock);
    g->id = ++last_id;
    g->next = ranges;
    ranges = g;
    pthread_mutex_unlock(&list_lock);
    *out = g;
    return symmSuccess;
}

/* By number, because the rank that made it may have given up meanwhile. */
static symm_range *range_find(uint64_t id) {
    pthread_mutex_lock(&list_lock);
    symm_range *g = ranges;
    while (g && g->id != id) g = g->next;
    SYMM_ASSERT(!g || g->refs > 0);
    if (g) g->refs++;
    pthread_mutex_unlock(&list_lock);
    return g;
}

static void range_drop(symm_range *g) {
    pthread_mutex_lock(&list_lock);
    SYMM_ASSERT(g->refs > 0 && g->refs <= g->nranks);
    const int last = --g->refs == 0;
    for (symm_range **at = &ranges; last && *at; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    pthread_mutex_unlock(&list_lock);
    if (!last) return;
    for (int i = 0; i < g->maps.n; i++) {
        const symm_mapping *m = &g->maps.at[i];
        void *at = (void *)(uintptr_t)(g->base + (uint64_t)m->rank * g->stride + m->off);
        int cu = g->vmm->unmap(at, m->bytes);
        if (cu)
            symm_vmm_error(g->vmm, cu, "unmapping %llu bytes of rank %d",
                           (unsigned long long)m->bytes, m->rank);
    }
    int cu = g->vmm->unreserve((void *)(uintptr_t)g->base, g->stride * (unsigned)g->nranks);
    if (cu) symm_vmm_error(g->vmm, cu, "giving back the addresses of %d ranks", g->nranks);
    pthread_mutex_destroy(&g->lock);
    symm_mappings_end(&g->maps);
    free(g);
}

/* ---- open and close -------------------------------------------------------------------------- */

typedef struct { /* of thread ranks */
    int32_t code, pad;
    uint64_t id, bytes;
} meeting;

/* Every rank sees all sizes, so all return this. */
static symmResult_t differ(const char *stage, uint64_t first, int rank, uint64_t bytes) {
    return SYMM_ERR(symmMismatch, "%s: rank 0 reserves addresses for %llu bytes, rank %d for %llu",
                    stage, (unsigned long long)first, rank, (unsigned long long)bytes);
}

/* Rank 0 reserves for all. Its reference stays until all have agreed that they have theirs. */
static symmResult_t open_threads(symm_comm *c, symmResult_t status, uint64_t bytes,
                                 const char *stage, symm_region *r) {
    meeting all[SYMM_MAX_RANKS], mine = {.bytes = bytes};
    symm_range *g = NULL;
    if (!status && c->rank == 0) status = range_new(c, bytes, &g);
    mine.code = (int32_t)status;
    mine.id = g ? g->id : 0;
    status = symm_comm_gather(c, &mine, all, sizeof mine, stage);
    if (status) goto drop;
    int bad = 0;
    for (int p = 0; p < c->nranks; p++) bad |= all[p].code;
    for (int p = 1; !bad && p < c->nranks; p++)
        if (all[p].bytes != all[0].bytes) {
            status = differ(stage, all[0].bytes, p, all[p].bytes);
            goto drop;
        }
    status = (symmResult_t)mine.code;
    if (!bad && c->rank && !(g = range_find(all[0].id)))
        status = SYMM_ERR(symmRemoteError, "rank 0 has given up %s", stage);
    status = symm_comm_agree(c, status, stage);
    if (status) goto drop;
    *r = (symm_region){.c = c, .range = g, .base = g->base, .stride = g->stride, .bytes = bytes};
    return symmSuccess;
drop:
    if (g) range_drop(g);
    return status;
}

static symmResult_t open_processes(symm_comm *c, symmResult_t status, uint64_t bytes,
                                   const char *stage, symm_region *r) {
    symm_brought all[SYMM_MAX_RANKS];
    const symm_bring b = {.total = bytes};
    symm_slot *slot;
    int shared;
    SYMM_TRY(symm_exchange(c, status, &b, stage, all, &slot, &shared));
    for (int p = 1; p < c->nranks; p++)
        if (all[p].total != all[0].total) {
            symm_slot_discard(c->space, slot);
            return differ(stage, all[0].total, p, all[p].total);
        }
    *r = (symm_region){.c = c,
                       .slot = slot,
                       .base = c->space->base + slot->off,
                       .stride = c->space->stride,
                       .bytes = bytes};
    return symmSuccess;
}

symmResult_t symm_region_open(symm_comm *c, symmResult_t mine, uint64_t bytes, const char *stage,
                              symm_region *out) {
    return c->threads ? open_threads(c, mine, bytes, stage, out)
                      : open_processes(c, mine, bytes, stage, out);
}

void symm_region_close(symm_region *r) {
    if (r->range || r->slot) SYMM_CHECK(region_check(r));
    if (r->range) range_drop(r->range);
    if (r->slot) symm_slot_drop(r->c->space, r->slot);
    r->range = NULL;
    r->slot = NULL;
}

void symm_region_discard(symm_region *r) {
    if (r->range) range_drop(r->range);
    if (r->slot) symm_slot_discard(r->c->space, r->slot);
    r->range = NULL;
    r->slot = NULL;
}

/* ---- what is mapped -------------------------------------------------------------------------- */

static symm_mappings *lock_maps(const symm_region *r) {
    if (!r->range) return &r->slot->maps;
    pthread_mutex_lock(&r->range->lock);
    return &r->range->maps;
}

static void unlock_maps(const symm_region *r) {
    if (r->range) pthread_mutex_unlock(&r->range->lock);
}

int symm_region_backed(const symm_region *r, int rank, uint64_t off, uint64_t bytes) {
    SYMM_ASSERT(rank >= 0 && rank < r->c->nranks);
    int yes = symm_mappings_cover(lock_maps(r), rank, off, bytes);
    unlock_maps(r);
    return yes;
}

uint64_t symm_region_bytes(const symm_region *r, int rank) {
    uint64_t bytes = symm_mappings_bytes(lock_maps(r), rank);
    unlock_maps(r);
    return bytes;
}

static symmResult_t unmap(symm_region *r, int rank, symm_part part) {
    const symm_vmm *v = r->c->vmm;
    SYMM_CHECK(region_check(r));
    if (r->slot && rank == r->c->rank)
        symm_multicast_let_go(r->c->space, r->slot, part.off, part.bytes);
    int cu = v->unmap(symm_region_addr(r, rank, part.off), part.bytes);
    if (cu)
        return symm_vmm_error(v, cu, "unmapping %llu bytes at offset %llu of rank %d",
                              (unsigned long long)part.bytes, (unsigned long long)part.off, rank);
    symm_mappings *m = lock_maps(r);
    symm_mappings_remove(m, symm_mappings_find(m, rank, part.off));
    unlock_maps(r);
    return symmSuccess;
}

symmResult_t symm_region_unmap(symm_region *r, int rank, symm_part part) {
    return r->range && rank != r->c->rank ? symmSuccess : unmap(r, rank, part);
}

/* The rank's first mapping at or after `off`. 0: none. */
static int next_map(symm_region *r, int rank, uint64_t off, symm_mapping *out) {
    const symm_mappings *m = lock_maps(r);
    const int i = symm_mappings_find(m, rank, off);
    const int found = i < m->n && m->at[i].rank == rank;
    if (found) *out = m->at[i];
    unlock_maps(r);
    return found;
}

symmResult_t symm_region_clear(symm_region *r, uint64_t off, uint64_t bytes) {
    symmResult_t first = symmSuccess;
    symm_mapping m;
    for (int rank = 0; rank < r->c->nranks; rank++) {
        if (r->range && rank != r->c->rank) continue;
        for (uint64_t at = off; next_map(r, rank, at, &m) && m.off < off + bytes;
             at = m.off + m.bytes) {
            symmResult_t e = unmap(r, rank, (symm_part){m.off, m.bytes});
            if (e && !first) first = e;
        }
    }
    return first;
}

/* fresh: mapped by a growth; after an error symm_growth_end undoes it. */
static symmResult_t map_at(symm_region *r, int rank, symm_vmm_handle *h, symm_part part,
                           int fresh) {
    const symm_vmm *v = r->c->vmm;
    if (part.off + part.bytes < part.bytes || part.off + part.bytes > r->bytes)
        return SYMM_ERR(symmInternalError, "rank %d sent memory for offset %llu of %llu", rank,
                        (unsigned long long)part.off, (unsigned long long)r->bytes);
    char *at = symm_region_addr(r, rank, part.off);
    int cu = v->map(at, part.bytes, 0, h);
    if (cu)
        return symm_vmm_error(v, cu, "mapping %llu bytes of rank %d",
                              (unsigned long long)part.bytes, rank);
    int kept = symm_mappings_add(lock_maps(r), (symm_mapping){part.off, part.bytes, rank, fresh});
    unlock_maps(r);
    if (kept < 0) {
        v->unmap(at, part.bytes);
        return SYMM_ERR(symmOutOfMemory, "no memory to note a mapping");
    }
    cu = v->set_access(at, part.bytes);
    if (!cu) return symmSuccess;
    symmResult_t e = symm_vmm_error(v, cu, "giving access to %llu bytes of rank %d",
                                    (unsigned long long)part.bytes, rank);
    if (!fresh) unmap(r, rank, part);
    return e;
}

symmResult_t symm_region_map(symm_region *r, symm_part part, symm_vmm_handle *h) {
    return map_at(r, r->c->rank, h, part, 0);
}

/* ---- growing --------------------------------------------------------------------------------- */

static symmResult_t map_one(void *arg, int rank, symm_vmm_handle *h, symm_part part) {
    symm_growth *g = arg;
    if (g->mine && rank == g->r->c->rank) return symmSuccess;
    return map_at(g->r, rank, h, part, 1);
}

static symmResult_t make_part(symm_growth *g, int i) {
    const symm_region *from = i < g->old ? g->from : NULL;
    const symm_vmm *v = g->r->c->vmm;
    uint64_t bytes;
    void *base;
    if (g->mine) {
        g->handles[i] = g->mine[i];
        return symmSuccess;
    }
    int cu = from ? v->retain(symm_region_addr(from, from->c->rank, g->parts[i].off),
                              &g->handles[i], &base, &bytes)
                  : v->create_as_is(g->parts[i].bytes, &g->handles[i]);
    if (!cu) return symmSuccess;
    g->handles[i] = NULL;
    return symm_vmm_error(v, cu, from ? "finding %llu bytes again" : "making %llu bytes of memory",
                          (unsigned long long)g->parts[i].bytes);
}

symmResult_t symm_growth_prepare(symm_growth *g) {
    const size_t n = (size_t)g->count + 1;
    g->handles = SYMM_FAIL_ALLOC(region_handles, calloc(n, sizeof *g->handles));
    g->trade = (symm_handle_exchange){.c = g->r->c,
                                      .stage = g->stage,
                                      .handles = g->handles,
                                      .parts = g->parts,
                                      .count = g->count,
                                      .map = map_one,
                                      .arg = g};
    if (!g->handles) return SYMM_ERR(symmOutOfMemory, "no memory to list %d pieces", g->count);
    SYMM_CHECK(growth_check(g));
    for (int i = 0; i < g->count; i++) SYMM_TRY(make_part(g, i));
    return g->r->c->threads ? symmSuccess : symm_handle_exchange_export(&g->trade);
}

symmResult_t symm_growth_commit(symm_growth *g, const int *counts) {
    symm_handle_exchange *t = &g->trade;
    SYMM_CHECK(growth_check(g));
    if (g->r->range)
        for (int i = 0; i < g->count && !t->status; i++)
            t->status = map_one(g, g->r->c->rank, g->handles[i], g->parts[i]);
    else
        SYMM_TRY(symm_handle_exchange_run(t, counts));
    if (!t->status && SYMM_FAIL_HERE(region_commit))
        t->status = SYMM_ERR(symmSystemError, "failpoint region_commit");
    if (!t->status && g->ready) t->status = g->ready(g->arg);
    SYMM_TRY(symm_comm_agree(g->r->c, t->status, g->stage));
    if (!g->r->slot) return symmSuccess;
    const symmResult_t r =
        symm_multicast_bind_parts(g->r->c, g->r->slot, g->handles, g->parts, g->alike, g->stage);
    /* Calls that have asked whether this memory is bound must ask again: on all ranks. */
    symm_window_changed(g->r->c);
    return r;
}

/* Keeps what this growth has mapped, or finds the next piece to unmap (1). Thread ranks look at
 * their own pieces only. */
static int settle_next(symm_region *r, int keep, symm_mapping *out) {
    int found = 0;
    symm_mappings *m = lock_maps(r);
    for (int i = 0; i < m->n && !found; i++) {
        symm_mapping *at = &m->at[i];
        if (!at->fresh || (r->range && at->rank != r->c->rank)) continue;
        at->fresh = 0;
        found = !keep;
        *out = *at;
    }
    unlock_maps(r);
    return found;
}

void symm_growth_end(symm_growth *g, int keep) {
    symm_mapping m = {0, 0, 0, 0};
    if (!keep) SYMM_STAT_ADD(rollbacks, 1);
    while (settle_next(g->r, keep, &m)) unmap(g->r, m.rank, (symm_part){m.off, m.bytes});
    for (int i = 0; g->handles && !g->mine && i < g->count; i++)
        if (g->handles[i]) g->r->c->vmm->release(g->handles[i]);
    symm_handle_exchange_close(&g->trade);
    free(g->handles);
}
