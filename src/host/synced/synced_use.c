/* synced_use.c - who uses a synced buffer: the one thread inside an API call, and the graphs that
 * captured its copies. retain and release: any thread; the rest: the buffer's. `busy`
 * is the only lock. It is never waited for: a second thread gets an error. */
#include <stdatomic.h>

#include "base/check.h"
#include "base/handle.h"
#include "host/window/space.h"
#include "synced.h"

/* ---- invariants ------------------------------------------------------------------------------ */

static void check_side(const symm_synced *s, const symm_side *side) {
    SYMM_ASSERT(side->ptr || (!side->owned && !side->pinned));
    SYMM_ASSERT(side->owned || !side->pinned);
    SYMM_ASSERT(side != &s->gpu || !side->owned ||
                side->ptr == symm_heap_addr(s->heap, s->comm->rank, side->off));
}

void symm_synced_check(const symm_synced *s) {
    const int both = s->head == SYMM_SYNCED_SYNCED;
    SYMM_ASSERT(s->busy == 1 && s->handle && s->heap && s->comm && s->ops);
    SYMM_ASSERT(s->word_off == SYMM_NO_OFFSET || s->word_off % sizeof(uint64_t) == 0);
    SYMM_ASSERT(!s->pending || s->mark.seq);
    SYMM_ASSERT(s->head >= SYMM_SYNCED_UNINITIALIZED && s->head <= SYMM_SYNCED_SYNCED);
    SYMM_ASSERT(!s->flow || s->flow == SYMM_SYNCED_PUSHING || s->flow == SYMM_SYNCED_PULLING);
    SYMM_ASSERT(!s->flow || (both && s->pending));
    SYMM_ASSERT(s->cpu.ptr || (!both && s->head != SYMM_SYNCED_HEAD_AT_CPU));
    SYMM_ASSERT(s->gpu.ptr || (!both && s->head != SYMM_SYNCED_HEAD_AT_GPU));
    check_side(s, &s->cpu);
    check_side(s, &s->gpu);
    symm_dirty_check(&s->dirty, s->bytes);
}

/* ---- API calls ------------------------------------------------------------------------------- */

symmResult_t symm_synced_enter(symmSynced_t handle, const void *site, symm_synced **out) {
    symm_synced *s = symm_handle_get(SYMM_KIND_SYNCED, handle);
    if (!s)
        return SYMM_ERR(symmInvalidArgument, "synced=%p is not a living synced buffer",
                        (void *)handle);
    /* Acquire pairs with the release in symm_synced_leave: this thread sees what the one before did
     * to the record. */
    if (atomic_exchange_explicit(&s->busy, 1, memory_order_acquire)) {
        symm_handle_put(SYMM_KIND_SYNCED, handle);
        return SYMM_ERR(symmInvalidUsage, "synced=%p is in use by another thread", (void *)handle);
    }
    SYMM_CHECK(symm_synced_check(s));
    s->site = site;
    *out = s;
    return symmSuccess;
}

void symm_synced_leave(symm_synced *s) {
    SYMM_CHECK(symm_synced_check(s));
    atomic_store_explicit(&s->busy, 0, memory_order_release); /* see symm_synced_enter */
    symm_handle_put(SYMM_KIND_SYNCED, s->handle);
}

symmResult_t symm_synced_begin(symmSynced_t handle, const void *site, symm_synced_use *use) {
    SYMM_TRY(symm_synced_enter(handle, site, &use->s));
    symmResult_t r = symm_gpu_push(use->s->comm, &use->scope);
    if (r) symm_synced_leave(use->s);
    return r;
}

symmResult_t symm_synced_end(symm_synced_use *use, symmResult_t r) {
    symm_gpu_pop(use->s->comm, &use->scope);
    symm_synced_leave(use->s);
    return r;
}

/* ---- captured copies ------------------------------------------------------------------------- */

/* Also while the buffer is being destroyed: a graph may be copied into another capture then. */
static void retain(void *synced) {
    symm_handle_find(SYMM_KIND_SYNCED, ((symm_synced *)synced)->handle);
}

static void release(void *synced) {
    symm_handle_put(SYMM_KIND_SYNCED, ((symm_synced *)synced)->handle);
}

const symm_graph_user symm_synced_held = {.retain = retain, .release = release};
