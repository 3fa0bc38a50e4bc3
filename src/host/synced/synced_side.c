/* synced_side.c - memory of a synced buffer: the host side, and the device side and the word of the
 * generation in the heap. Runs in the buffer's thread, or in the one that drops its last reference.
 * No lock of its own. */
#include "synced.h"

#include "base/fail.h"
#include "base/handle.h"
#include "base/stats.h"
#include "host/window/space.h"

/* ---- blocks of the heap ---- */

/* A SYM block is taken as symmHeapAlloc takes one: that counts as a use of the communicator. */
static symmResult_t take(symm_synced *s, uint64_t bytes, uint64_t *off) {
    symm_heap *h;
    const int sym = !(s->flags & SYMM_ALLOC_LOCAL);
    SYMM_TRY(sym ? symm_heap_enter(s->heap_handle, 1, &h) : symm_heap_pin(s->heap_handle, &h));
    symmResult_t r = symm_heap_take(h, bytes, 0, s->flags, SYMM_OWNER_SYNCED, -1, s->site, off);
    sym ? symm_heap_leave(h) : symm_heap_unpin(h);
    return r;
}

/* The driver reports the end of a graph at a time of its own choice, on each rank another. So SYM
 * blocks of a captured buffer are freed by the next symmHeapCollect. After symmHeapDestroy there is
 * no order of calls left to keep. *gone: the block was freed, which may be so after an error too
 * (guard mode reports damage when it frees). */
static symmResult_t give(symm_synced *s, uint64_t off, int *gone) {
    symm_heap *h;
    const int sym = !(s->flags & SYMM_ALLOC_LOCAL);
    const int alive = symm_handle_open(SYMM_KIND_HEAP, s->heap_handle);
    *gone = 0;
    if (sym && alive && s->captured) {
        symm_heap_give_later(s->heap, off);
        *gone = 1;
        return symmSuccess;
    }
    if (sym && alive) SYMM_TRY(symm_heap_enter(s->heap_handle, 0, &h));
    symmResult_t r = symm_heap_give(s->heap, off, SYMM_OWNER_SYNCED, s->site, NULL);
    if (sym && alive) symm_heap_leave(h);
    *gone = 1;
    return r;
}

/* ---- the word ---- */

uint64_t *symm_synced_word(const symm_synced *s, int rank) {
    return (uint64_t *)(void *)symm_heap_addr(s->heap, rank, s->word_off);
}

/* In a block of its own, so it keeps its place when the device side changes. */
symmResult_t symm_synced_need_word(symm_synced *s) {
    uint64_t off;
    if (s->word_off != SYMM_NO_OFFSET) return symmSuccess;
    SYMM_TRY(take(s, sizeof(uint64_t), &off));
    s->word_off = off;
    const symm_vmm *v = s->comm->vmm;
    int cu = v->fill((void *)symm_synced_word(s, s->comm->rank), sizeof(uint64_t), 0);
    if (!cu) return symmSuccess;
    symmResult_t r = symm_vmm_error(v, cu, "clearing the generation of a synced buffer");
    symm_synced_drop_word(s);
    return r;
}

symmResult_t symm_synced_drop_word(symm_synced *s) {
    int gone;
    if (s->word_off == SYMM_NO_OFFSET) return symmSuccess;
    symmResult_t r = give(s, s->word_off, &gone);
    if (gone) s->word_off = SYMM_NO_OFFSET;
    return r;
}

/* ---- the sides ---- */

symmResult_t symm_synced_need_cpu(symm_synced *s) {
    if (s->cpu.ptr) return symmSuccess;
    SYMM_TRY(s->ops->host_alloc(s, &s->cpu));
    s->cpu.owned = 1;
    SYMM_STAT_ADD(synced_bytes, (int64_t)s->bytes);
    return symmSuccess;
}

symmResult_t symm_synced_need_gpu(symm_synced *s) {
    uint64_t off;
    if (s->gpu.ptr) return symmSuccess;
    SYMM_TRY(symm_synced_need_word(s));
    SYMM_TRY(take(s, s->bytes ? s->bytes : 1, &off));
    s->gpu = (symm_side){symm_heap_addr(s->heap, s->comm->rank, off), 1, 0, off};
    return symmSuccess;
}

void symm_synced_drop_cpu(symm_synced *s) {
    if (s->cpu.owned) {
        s->ops->host_free(s, &s->cpu);
        SYMM_STAT_ADD(synced_bytes, -(int64_t)s->bytes);
    }
    s->cpu = (symm_side){0};
}

symmResult_t symm_synced_drop_gpu(symm_synced *s) {
    int gone = 1;
    symmResult_t r = s->gpu.owned ? give(s, s->gpu.off, &gone) : symmSuccess;
    if (gone) s->gpu = (symm_side){0};
    return r;
}
