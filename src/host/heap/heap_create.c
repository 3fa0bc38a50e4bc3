/* heap_create.c - making and destroying a heap. Collective calls (destroying is local), on the
 * communicator's user thread. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/sized.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/gpu/setup.h"
#include "heap_int.h"

#define CHUNK_DEFAULT (64ull << 20)

typedef struct {
    symmComm_t comm;
    symmHeapConfig_t config;
    char name[32];
    symmHeap_t *heap;
} create_args;

typedef struct { /* what the ranks compare */
    int32_t code, fit, guard, serial, kind, fixed;
    uint64_t reserve, sym, chunk;
} terms;

static symmResult_t check_config(const symm_comm *c, const symmHeapConfig_t *k, int kind) {
    const uint64_t g = c->caps.granularity, most = c->room;
    if (k->size != sizeof *k)
        return SYMM_ERR(symmInvalidArgument,
                        "config.size=%zu: start from SYMM_HEAP_CONFIG_INITIALIZER" SYMM_NEWER,
                        k->size);
    if (k->fit != SYMM_FIT_FIRST && k->fit != SYMM_FIT_BEST)
        return SYMM_ERR(symmInvalidArgument,
                        "config.fit=%d: must be SYMM_FIT_FIRST or SYMM_FIT_BEST", k->fit);
    if (k->guard != 0 && k->guard != 1)
        return SYMM_ERR(symmInvalidArgument, "config.guard=%d: must be 0 or 1", k->guard);
    if (k->chunk % g)
        return SYMM_ERR(symmInvalidArgument,
                        "config.chunk=%llu: must be a multiple of the granularity, %llu",
                        (unsigned long long)k->chunk, (unsigned long long)g);
    if (k->reserve > most || k->symBytes > most || k->localBytes > most)
        return SYMM_ERR(symmOutOfMemory,
                        "config.%s=%llu, symBytes=%llu, localBytes=%llu: the window space has "
                        "%llu bytes per rank (SYMM_WIN_STRIDE enlarges it)",
                        kind == SYMM_KIND_VEC ? "max" : "reserve", (unsigned long long)k->reserve,
                        (unsigned long long)k->symBytes, (unsigned long long)k->localBytes,
                        (unsigned long long)most);
    if (k->reserve && symm_heap_round(k->symBytes, g) + symm_heap_round(k->localBytes, g) >
                          symm_heap_round(k->reserve, g))
        return SYMM_ERR(symmInvalidArgument,
                        "config.reserve=%llu does not hold symBytes=%llu and localBytes=%llu",
                        (unsigned long long)k->reserve, (unsigned long long)k->symBytes,
                        (unsigned long long)k->localBytes);
    return symmSuccess;
}

/* Fills in defaults. pre: k is checked. */
static void settle_config(const symm_comm *c, symmHeapConfig_t *k, int kind) {
    const uint64_t g = c->caps.granularity;
    if (!k->chunk) k->chunk = symm_heap_round(CHUNK_DEFAULT, g);
    if (!k->reserve) k->reserve = c->room / 4;
    k->reserve = symm_heap_round(k->reserve, g);
    if (kind == SYMM_KIND_HEAP) k->guard |= (int)c->params.heap_guard;
}

static symmResult_t make_record(symm_comm *c, int kind, const symmHeapConfig_t *k,
                                symm_heap **out) {
    const size_t n = (size_t)c->nranks;
    const int says = kind == SYMM_KIND_VEC && c->hosts > 1; /* its size, to other hosts */
    symm_heap *h = SYMM_FAIL_ALLOC(heap_record, calloc(1, sizeof *h));
    if (!h) return SYMM_ERR(symmOutOfMemory, "no memory for the record of a heap");
    SYMM_STAT_ADD(heaps, 1);
    h->comm = c;
    h->fit = k->fit;
    h->guard = k->guard;
    symm_heap_set_guest(h, NULL);
    h->reserve = k->reserve;
    h->chunk = k->chunk;
    h->granularity = c->caps.granularity;
    atomic_store(&h->refs, 1);
    h->win.off = SYMM_FAIL_ALLOC(heap_offsets, calloc(n, sizeof *h->win.off));
    h->win.size = SYMM_FAIL_ALLOC(heap_sizes, calloc(n, sizeof *h->win.size));
    for (int i = 0; i < SYMM_ZONES; i++)
        h->zone[i].place =
            SYMM_FAIL_ALLOC(heap_place, symm_place_new(k->fit == SYMM_FIT_BEST ? SYMM_PLACE_BEST
                                                                               : SYMM_PLACE_FIRST));
    if (says) h->sizes = symm_sizes_new(c->nranks);
    if (!h->win.off || !h->win.size || !h->zone[0].place || !h->zone[1].place ||
        (says && !h->sizes)) {
        symm_heap_free_record(h);
        return SYMM_ERR(symmOutOfMemory, "no memory for the record of a heap");
    }
    h->id = c->heaps.serial;
    if (*k->name)
        snprintf(h->name, sizeof h->name, "%s", k->name);
    else
        snprintf(h->name, sizeof h->name, "%u", h->id);
    *out = h;
    return symmSuccess;
}

static const char *kind_name(const terms *t) {
    if (t->kind == SYMM_KIND_HEAP) return "heap";
    if (t->kind == SYMM_KIND_DEVCOMM) return "device communicator";
    return t->fixed ? "vector that is SYMM_VEC_FIXED" : "vector that may move";
}

/* Every rank sees the same terms, so all return the same. */
static symmResult_t compare(const symm_comm *c, const terms *all) {
    for (int r = 1; r < c->nranks; r++) {
        const terms *a = &all[0], *b = &all[r];
        if (a->kind != b->kind || a->fixed != b->fixed)
            return SYMM_ERR(symmMismatch, "creating a heap: rank 0 makes a %s, rank %d a %s",
                            kind_name(a), r, kind_name(b));
        if (a->serial == b->serial && a->fit == b->fit && a->guard == b->guard &&
            a->reserve == b->reserve && a->sym == b->sym && a->chunk == b->chunk)
            continue;
        return SYMM_ERR(
            symmMismatch,
            "creating a heap: rank 0 has reserve=%llu, symBytes=%llu, chunk=%llu, fit=%d, guard=%d "
            "(heap %d), rank %d %llu, %llu, %llu, %d, %d (heap %d)",
            (unsigned long long)a->reserve, (unsigned long long)a->sym,
            (unsigned long long)a->chunk, a->fit, a->guard, a->serial, r,
            (unsigned long long)b->reserve, (unsigned long long)b->sym,
            (unsigned long long)b->chunk, b->fit, b->guard, b->serial);
    }
    return symmSuccess;
}

/* All ranks make the same heap. If one has failed, or its terms differ, all fail. */
static symmResult_t agree_terms(symm_comm *c, symmResult_t status, int kind, int fixed,
                                const symmHeapConfig_t *k) {
    terms all[SYMM_MAX_RANKS];
    terms mine = {.code = (int32_t)status,
                  .kind = kind,
                  .fixed = fixed,
                  .fit = k->fit,
                  .guard = k->guard,
                  .serial = (int32_t)c->heaps.serial,
                  .reserve = k->reserve,
                  .sym = symm_heap_round(k->symBytes, c->caps.granularity),
                  .chunk = k->chunk};
    SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, "creating a heap"));
    for (int r = 0; r < c->nranks; r++)
        if (all[r].code) return symm_comm_agree(c, status, "creating a heap");
    return compare(c, all);
}

static void handle_gone(void *obj) {
    symm_heap_unref(obj);
}

/* A rank that has failed still takes part, so that all ranks return its error. */
symmResult_t symm_heap_create(symm_comm *c, symmResult_t status, int kind, int fixed,
                              symmHeapConfig_t *k, symm_heap **out) {
    symm_heap *h = NULL;
    void *handle = NULL;
    c->heaps.serial++;
    if (!status) status = check_config(c, k, kind);
    if (!status) settle_config(c, k, kind);
    if (!status) status = make_record(c, kind, k, &h);
    if (!status) status = symm_handle_new(kind, h, handle_gone, &handle);
    SYMM_TRY_GOTO(agree_terms(c, status, kind, fixed, k), drop_record);
    SYMM_TRY_GOTO(symm_ledger_open(c, status, "creating a heap", &h->ledger), drop_record);
    SYMM_TRY_GOTO(symm_region_open(c, status, h->reserve, "creating a heap", &h->region),
                  drop_record);
    symm_heap_set_window(h);
    status = symm_heap_more(h, status, (symm_more){k->symBytes, k->localBytes}, "creating a heap");
    if (status) goto discard;
    h->handle = handle;
    h->kind = kind;
    h->fixed = fixed;
    symm_heap_say_range(h);
    symm_comm_ref(c);
    symm_heap_link(c, h);
    *out = h;
    return symmSuccess;
discard:
    symm_region_discard(&h->region);
drop_record:
    if (handle) { /* nobody else has seen it: no list to leave */
        symm_comm_ref(c);
        symm_handle_close(kind, handle);
        symm_handle_put(kind, handle);
    } else if (h) {
        symm_heap_free_record(h); /* without a handle there is no ledger either */
    }
    return status;
}

static symmResult_t create_job(void *p) {
    create_args *a = p;
    symm_setup s;
    symm_heap *h;
    SYMM_TRY(symm_setup_enter(a->comm, &s));
    symmResult_t r = s.status;
    if (!r && !a->heap) r = SYMM_ERR(symmInvalidArgument, "heap is NULL");
    a->config.name = a->name;
    r = symm_heap_create(s.c, r, SYMM_KIND_HEAP, 0, &a->config, &h);
    if (!r) *a->heap = h->handle;
    return symm_setup_leave(&s, r);
}

symmResult_t symmHeapCreate(symmComm_t comm, const symmHeapConfig_t *config, symmHeap_t *heap) {
    create_args a = {.comm = comm, .config = SYMM_HEAP_CONFIG_INITIALIZER, .heap = heap};
    if (config && symm_sized_read(&a.config, sizeof a.config, sizeof a.config, config))
        a.config.size = config->size; /* refused where the ranks compare */
    /* Inside a group the heap is made later, so the name is copied now. */
    if (a.config.size == sizeof a.config && a.config.name)
        snprintf(a.name, sizeof a.name, "%s", a.config.name);
    return symm_comm_run(comm, create_job, &a, sizeof a);
}

symmResult_t symmHeapDestroy(symmHeap_t heap) {
    symm_heap *h;
    SYMM_TRY(symm_heap_enter(heap, 0, &h));
    symm_comm *c = h->comm;
    symm_comm_ref(c); /* the heap's may be the last but for the handle's */
    symm_heap_close(c, h);
    symm_comm_leave(c);
    symm_comm_unref(c);
    return symmSuccess;
}
