/* synced_move.c - work of a synced buffer for streams: copies, fills, the generation, and their
 * order. Runs in the buffer's thread. No lock. */
#include "synced.h"

#include "host/window/space.h"

/* ---- order ----------------------------------------------------------------------------------- */

symmResult_t symm_synced_settle(symm_synced *s) {
    if (!s->pending) return symmSuccess;
    SYMM_TRY(symm_mark_reach(s->comm, &s->mark));
    s->pending = s->flow = 0;
    return symmSuccess;
}

/* Also if it is the stream of the mark: the handle of a destroyed stream may come back as another
 * stream's. A capture cannot wait for work outside of it, so the caller waits. */
symmResult_t symm_synced_join(symm_synced *s, symmStream_t stream, int capturing) {
    if (!s->pending) return symmSuccess;
    return capturing ? symm_synced_settle(s) : symm_mark_follow(s->comm, &s->mark, stream);
}

/* Also after an error of `work`: a copy of it may run. */
symmResult_t symm_synced_seal(symm_synced *s, symmStream_t stream, symmResult_t work) {
    symmResult_t r = symm_mark_set(s->comm, &s->mark, stream);
    if (r)
        s->ops->drain(s, stream);
    else /* on the host backend a mark without a stream stands for what has ended */
        s->pending = s->comm->cuda || s->mark.order.stream;
    if (!s->pending) s->flow = 0;
    return work ? work : r;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static symmResult_t give_copies(symm_synced *s, char *to, const char *from, symmStream_t stream) {
    symm_dirty_range list[SYMM_DIRTY_MAX];
    const int n = symm_dirty_list(&s->dirty, s->bytes, list);
    for (int i = 0; i < n; i++)
        SYMM_TRY(s->ops->copy(s, to + list[i].from, from + list[i].from, list[i].to - list[i].from,
                              stream));
    return symmSuccess;
}

symmResult_t symm_synced_count(symm_synced *s, symmStream_t stream) {
    if (s->word_off == SYMM_NO_OFFSET) return symmSuccess;
    SYMM_TRY(s->ops->write_word(s, s->generation + 1, stream));
    s->generation++;
    return symmSuccess;
}

/* The device side becomes equal to the host side in the stream. */
symmResult_t symm_synced_push(symm_synced *s, symmStream_t stream) {
    SYMM_TRY(symm_synced_need_gpu(s));
    SYMM_TRY(symm_synced_join(s, stream, 0));
    symmResult_t r = give_copies(s, s->gpu.ptr, s->cpu.ptr, stream);
    if (!r) r = symm_synced_count(s, stream);
    SYMM_TRY(symm_synced_seal(s, stream, r));
    s->head = SYMM_SYNCED_SYNCED;
    s->flow = s->pending ? SYMM_SYNCED_PUSHING : 0;
    return symmSuccess;
}

/* The host side becomes equal to the device side in the stream. */
symmResult_t symm_synced_pull(symm_synced *s, symmStream_t stream) {
    SYMM_TRY(symm_synced_need_cpu(s));
    SYMM_TRY(symm_synced_join(s, stream, 0));
    SYMM_TRY(symm_synced_seal(s, stream, give_copies(s, s->cpu.ptr, s->gpu.ptr, stream)));
    s->head = SYMM_SYNCED_SYNCED;
    s->flow = s->pending ? SYMM_SYNCED_PULLING : 0;
    return symmSuccess;
}

/* Copies the whole buffer: which ranges are newer at a replay is not known now. */
symmResult_t symm_synced_record(symm_synced *s, symmStream_t stream, int down) {
    if (!(down ? s->gpu.ptr : s->cpu.ptr))
        return SYMM_ERR(symmInvalidUsage,
                        "synced=%p: the %s side was never used, so there is nothing to capture",
                        (void *)s->handle, down ? "device" : "host");
    SYMM_TRY(down ? symm_synced_need_cpu(s) : symm_synced_need_gpu(s));
    SYMM_TRY(s->ops->hold(s, stream));
    s->captured = 1;
    if (!s->bytes) return symmSuccess;
    return down ? s->ops->copy(s, s->cpu.ptr, s->gpu.ptr, s->bytes, stream)
                : s->ops->copy(s, s->gpu.ptr, s->cpu.ptr, s->bytes, stream);
}

symmResult_t symm_synced_zero(symm_synced *s, symmStream_t stream, int capturing) {
    if (capturing) { /* at once, outside of the capture: no other work has this memory yet */
        const symm_vmm *v = s->comm->vmm;
        /* A fill is of whole words, and in guard mode a red zone begins behind the last byte. */
        const uint64_t rest = s->bytes % 4, whole = s->bytes - rest;
        const uint32_t none = 0;
        int cu = whole ? v->fill(s->gpu.ptr, whole, 0) : 0;
        if (!cu && rest) cu = v->copy(s->gpu.ptr + whole, &none, rest);
        return cu ? symm_vmm_error(v, cu, "clearing a synced buffer") : symmSuccess;
    }
    symmResult_t r = s->bytes ? s->ops->zero(s, s->bytes, stream) : symmSuccess;
    if (!r) r = symm_synced_count(s, stream);
    return symm_synced_seal(s, stream, r);
}
