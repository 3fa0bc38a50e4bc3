/* synced.c - the API calls of synced buffers: which side is the newest, what must be copied before
 * it is used, and which work must have ended before that (the table is in symm_synced.h). One
 * thread at a time in each buffer; `busy` (synced_use.c) reports a second one. No lock.
 *
 * All work that a stream is given for a buffer is ordered after the work before it, and then
 * marked. So whoever follows the last mark, or waits for it, comes after all of it. */
#include "synced.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "host/window/space.h"

/* ---- life ------------------------------------------------------------------------------------ */

static void free_synced(void *obj) {
    symm_synced *s = obj;
    symm_cuda_scope scope;
    s->site = NULL;
    const int pushed = symm_gpu_push(s->comm, &scope) == symmSuccess;
    symm_synced_drop_cpu(s);
    symm_synced_drop_gpu(s);
    symm_synced_drop_word(s);
    symm_mark_end(s->comm, &s->mark);
    if (pushed) symm_gpu_pop(s->comm, &scope);
    symm_heap_unref(s->heap);
    symm_comm_unref(s->comm);
    SYMM_STAT_ADD(synced, -1);
    free(s);
}

static symmResult_t make(symm_heap *h, symmHeap_t heap, size_t bytes, unsigned flags,
                         symmSynced_t *out) {
    void *handle;
    symm_synced *s = SYMM_FAIL_ALLOC(synced_record, calloc(1, sizeof *s));
    if (!s) return SYMM_ERR(symmOutOfMemory, "no memory for the record of a synced buffer");
    *s = (symm_synced){.heap_handle = heap,
                       .heap = h,
                       .comm = symm_heap_comm(h),
                       .bytes = bytes,
                       .flags = flags,
                       .word_off = SYMM_NO_OFFSET};
    s->ops = s->comm->cuda ? &symm_synced_gpu : &symm_synced_host;
    symmResult_t r = symm_handle_new(SYMM_KIND_SYNCED, s, free_synced, &handle);
    if (r) {
        free(s);
        return r;
    }
    s->handle = handle;
    symm_heap_ref(h);
    symm_comm_ref(s->comm);
    SYMM_STAT_ADD(synced, 1);
    *out = s->handle;
    return symmSuccess;
}

symmResult_t symmSyncedCreate(symmHeap_t heap, size_t bytes, unsigned flags, symmSynced_t *synced) {
    symm_heap *h;
    if (!synced) return SYMM_ERR(symmInvalidArgument, "symmSyncedCreate: synced is NULL");
    if (flags > SYMM_ALLOC_LOCAL)
        return SYMM_ERR(symmInvalidArgument,
                        "symmSyncedCreate: flags=%u is neither SYMM_ALLOC_SYM nor SYMM_ALLOC_LOCAL",
                        flags);
    SYMM_TRY(symm_heap_pin(heap, &h));
    if (symm_heap_comm(h)->cuda) symm_gpu_reap();
    symmResult_t r = make(h, heap, bytes, flags, synced);
    symm_heap_unpin(h);
    return r;
}

/* Frees the blocks while an error can still be returned to the caller. Those of a captured buffer
 * are freed with its graph. */
static symmResult_t give_back(symm_synced *s) {
    symm_dirty_start(&s->dirty, 0);
    s->head = SYMM_SYNCED_UNINITIALIZED; /* also if freeing fails: the contents are gone */
    s->flow = 0;
    symmResult_t r = symm_synced_drop_gpu(s);
    symmResult_t w = symm_synced_drop_word(s);
    return r ? r : w;
}

/* *over: the buffer can be closed. Not inside a host function, which must not wait. Closed also if
 * the wait fails because the device is beyond use: no work ends there any more, and the memory must
 * not stay for ever. */
static symmResult_t wind_up(symm_synced *s, int *over) {
    *over = 0;
    symmResult_t r = symm_synced_settle(s);
    if (r == symmInvalidUsage) return r;
    symmResult_t given = s->captured ? symmSuccess : give_back(s);
    *over = s->captured || (!s->gpu.ptr && s->word_off == SYMM_NO_OFFSET);
    return r ? r : given;
}

symmResult_t symmSyncedDestroy(symmSynced_t synced) {
    symm_synced *s;
    symm_cuda_scope scope;
    int over = 1;
    SYMM_TRY(symm_synced_enter(synced, SYMM_SITE(), &s));
    symmResult_t r = symm_gpu_push(s->comm, &scope);
    if (!r) {
        r = wind_up(s, &over);
        symm_gpu_pop(s->comm, &scope);
    }
    if (over && symm_handle_close(SYMM_KIND_SYNCED, synced))
        symm_handle_put(SYMM_KIND_SYNCED, synced);
    symm_synced_leave(s);
    return r;
}

/* ---- the accessors --------------------------------------------------------------------------- */

static symmResult_t would_copy(const symm_synced *s, symmStream_t stream, const char *side) {
    return SYMM_ERR(symmInvalidUsage,
                    "synced=%p: stream=%p is under capture and the %s side is old, so it would be "
                    "copied now; capture symmSyncedPush or symmSyncedPull",
                    (void *)s->handle, (void *)stream, side);
}

static symmResult_t first_on_cpu(symm_synced *s, int copy) {
    SYMM_TRY(symm_synced_settle(s)); /* copies of contents that were discarded since */
    SYMM_TRY(symm_synced_need_cpu(s));
    if (copy) memset(s->cpu.ptr, 0, s->bytes);
    s->head = SYMM_SYNCED_HEAD_AT_CPU;
    symm_dirty_start(&s->dirty, 0);
    return symmSuccess;
}

/* Memory that was there before a discard is cleared in the stream, behind the caller's work. A
 * capture takes no fill, and only the caller knows when that work has ended. */
static symmResult_t first_on_gpu(symm_synced *s, symmStream_t stream, int copy, int capturing) {
    if (capturing && copy && s->gpu.ptr)
        return SYMM_ERR(symmInvalidUsage,
                        "synced=%p: stream=%p is under capture and the device side would be "
                        "cleared now, though work from before symmSyncedDiscard may use it: use it "
                        "before the capture, or with copy 0",
                        (void *)s->handle, (void *)stream);
    SYMM_TRY(symm_synced_need_gpu(s));
    SYMM_TRY(symm_synced_join(s, stream, capturing));
    if (copy) SYMM_TRY(symm_synced_zero(s, stream, capturing));
    s->head = SYMM_SYNCED_HEAD_AT_GPU;
    symm_dirty_start(&s->dirty, 0);
    return symmSuccess;
}

/* The host side is there and, with `copy`, up to date. */
static symmResult_t to_cpu(symm_synced *s, symmStream_t stream, int copy) {
    int capturing;
    SYMM_TRY(s->ops->look(s, stream, &capturing));
    if (s->head == SYMM_SYNCED_UNINITIALIZED) return first_on_cpu(s, copy);
    if (s->head == SYMM_SYNCED_HEAD_AT_GPU && !copy) return symm_synced_need_cpu(s);
    if (s->head == SYMM_SYNCED_HEAD_AT_GPU) {
        if (capturing) return would_copy(s, stream, "host");
        SYMM_TRY(symm_synced_pull(s, stream));
    }
    return s->flow == SYMM_SYNCED_PULLING ? symm_synced_settle(s) : symmSuccess;
}

/* The same for the device side, for work that the stream is given from now on. */
static symmResult_t to_gpu(symm_synced *s, symmStream_t stream, int copy) {
    int capturing;
    SYMM_TRY(s->ops->look(s, stream, &capturing));
    if (s->head == SYMM_SYNCED_UNINITIALIZED) return first_on_gpu(s, stream, copy, capturing);
    if (s->head == SYMM_SYNCED_HEAD_AT_CPU && copy)
        return capturing ? would_copy(s, stream, "device") : symm_synced_push(s, stream);
    SYMM_TRY(symm_synced_need_gpu(s));
    return symm_synced_join(s, stream, capturing);
}

/* The caller may write that side from now on. */
static void move_head(symm_synced *s, int head, int copy) {
    if (s->head != head || !copy)
        symm_dirty_start(&s->dirty, s->head == SYMM_SYNCED_SYNCED && copy);
    s->head = head;
    s->flow = 0;
    symm_dirty_hand_out(&s->dirty);
}

static symmResult_t mutable_cpu(symm_synced *s, symmStream_t stream, int copy) {
    SYMM_TRY(to_cpu(s, stream, copy));
    SYMM_TRY(symm_synced_settle(s)); /* a push may still read what the caller is about to write */
    move_head(s, SYMM_SYNCED_HEAD_AT_CPU, copy);
    return symmSuccess;
}

static symmResult_t mutable_gpu(symm_synced *s, symmStream_t stream, int copy) {
    SYMM_TRY(to_gpu(s, stream, copy));
    move_head(s, SYMM_SYNCED_HEAD_AT_GPU, copy);
    return symmSuccess;
}

static symmResult_t no_pointer(const char *call) {
    return SYMM_ERR(symmInvalidArgument, "%s: ptr is NULL", call);
}

/* The side is up to date and no copy is under way. The accessor then makes no call of the
 * driver. */
static int at_rest(const symm_synced *s, int old) {
    return s->head != SYMM_SYNCED_UNINITIALIZED && s->head != old && !s->pending;
}

/* One call of an accessor: which side, and whether the caller will write it. */
struct access {
    const char *call;
    const void *site;
    symmStream_t stream;
    int gpu, write, copy;
};

static symmResult_t reach(symm_synced *s, const struct access *a) {
    if (a->write)
        return a->gpu ? mutable_gpu(s, a->stream, a->copy) : mutable_cpu(s, a->stream, a->copy);
    return a->gpu ? to_gpu(s, a->stream, 1) : to_cpu(s, a->stream, 1);
}

static symmResult_t access_side(symmSynced_t synced, const struct access *a, const void **ptr) {
    symm_synced *s;
    symm_cuda_scope scope;
    if (!ptr) return no_pointer(a->call);
    SYMM_TRY(symm_synced_enter(synced, a->site, &s));
    const int old = a->gpu ? SYMM_SYNCED_HEAD_AT_CPU : SYMM_SYNCED_HEAD_AT_GPU;
    symmResult_t r = symmSuccess;
    if ((a->write || !at_rest(s, old)) && !(r = symm_gpu_push(s->comm, &scope))) {
        r = reach(s, a);
        symm_gpu_pop(s->comm, &scope);
    }
    if (!r) *ptr = a->gpu ? s->gpu.ptr : s->cpu.ptr;
    symm_synced_leave(s);
    return r;
}

symmResult_t symmSyncedCpu(symmSynced_t synced, symmStream_t stream, const void **ptr) {
    const struct access a = {"symmSyncedCpu", SYMM_SITE(), stream, 0, 0, 1};
    return access_side(synced, &a, ptr);
}

symmResult_t symmSyncedGpu(symmSynced_t synced, symmStream_t stream, const void **ptr) {
    const struct access a = {"symmSyncedGpu", SYMM_SITE(), stream, 1, 0, 1};
    return access_side(synced, &a, ptr);
}

symmResult_t symmSyncedMutableCpu(symmSynced_t synced, symmStream_t stream, int copy, void **ptr) {
    const struct access a = {"symmSyncedMutableCpu", SYMM_SITE(), stream, 0, 1, copy};
    return access_side(synced, &a, (const void **)ptr);
}

symmResult_t symmSyncedMutableGpu(symmSynced_t synced, symmStream_t stream, int copy, void **ptr) {
    const struct access a = {"symmSyncedMutableGpu", SYMM_SITE(), stream, 1, 1, copy};
    return access_side(synced, &a, (const void **)ptr);
}

/* ---- memory of the caller's ------------------------------------------------------------------ */

/* Before a side is exchanged: nothing of the old one is in use. */
static symmResult_t may_set(symm_synced *s, const symm_side *old, const char *ptr,
                            const char *call) {
    if (s->captured)
        return SYMM_ERR(symmInvalidUsage,
                        "%s: synced=%p was captured, and the graph uses the memory that it has now",
                        call, (void *)s->handle);
    if (old->owned && ptr >= old->ptr && ptr < old->ptr + (s->bytes ? s->bytes : 1))
        return SYMM_ERR(symmInvalidArgument,
                        "%s: ptr=%p is the buffer's own memory: pass other memory", call,
                        (const void *)ptr);
    return symm_synced_settle(s);
}

static void set_head(symm_synced *s, int head) {
    s->head = head;
    s->flow = 0;
    symm_dirty_start(&s->dirty, 0);
}

static symmResult_t set_cpu(symm_synced *s, char *ptr) {
    SYMM_TRY(may_set(s, &s->cpu, ptr, "symmSyncedSetCpu"));
    symm_synced_drop_cpu(s);
    s->cpu = (symm_side){.ptr = ptr};
    set_head(s, SYMM_SYNCED_HEAD_AT_CPU);
    return symmSuccess;
}

static symmResult_t set_gpu(symm_synced *s, char *ptr) {
    SYMM_TRY(s->ops->check_device(s, ptr));
    SYMM_TRY(may_set(s, &s->gpu, ptr, "symmSyncedSetGpu"));
    symmResult_t r = symm_synced_drop_gpu(s);
    if (s->gpu.ptr) return r;
    s->gpu = (symm_side){.ptr = ptr};
    set_head(s, SYMM_SYNCED_HEAD_AT_GPU);
    return r; /* guard mode: the old block was freed, and was written beyond its end */
}

symmResult_t symmSyncedSetCpu(symmSynced_t synced, void *ptr) {
    symm_synced_use use;
    if (!ptr) return no_pointer("symmSyncedSetCpu");
    SYMM_TRY(symm_synced_begin(synced, SYMM_SITE(), &use));
    return symm_synced_end(&use, set_cpu(use.s, ptr));
}

symmResult_t symmSyncedSetGpu(symmSynced_t synced, void *ptr) {
    symm_synced_use use;
    if (!ptr) return no_pointer("symmSyncedSetGpu");
    SYMM_TRY(symm_synced_begin(synced, SYMM_SITE(), &use));
    return symm_synced_end(&use, set_gpu(use.s, ptr));
}

static symmResult_t discard(symm_synced *s) {
    const int foreign = (s->cpu.ptr && !s->cpu.owned) || (s->gpu.ptr && !s->gpu.owned);
    if (foreign) SYMM_TRY(symm_synced_settle(s)); /* the caller may free it when this returns */
    if (!s->cpu.owned) s->cpu = (symm_side){0};
    if (!s->gpu.owned) s->gpu = (symm_side){0};
    set_head(s, SYMM_SYNCED_UNINITIALIZED);
    return symmSuccess;
}

symmResult_t symmSyncedDiscard(symmSynced_t synced) {
    symm_synced_use use;
    SYMM_TRY(symm_synced_begin(synced, SYMM_SITE(), &use));
    return symm_synced_end(&use, discard(use.s));
}

/* ---- push and pull --------------------------------------------------------------------------- */

static symmResult_t move(symm_synced *s, symmStream_t stream, int down) {
    int capturing;
    const int from = down ? SYMM_SYNCED_HEAD_AT_GPU : SYMM_SYNCED_HEAD_AT_CPU;
    SYMM_TRY(s->ops->look(s, stream, &capturing));
    if (capturing) return symm_synced_record(s, stream, down);
    if (s->head == from) return down ? symm_synced_pull(s, stream) : symm_synced_push(s, stream);
    if (s->head == SYMM_SYNCED_SYNCED) return symm_synced_join(s, stream, 0);
    return SYMM_ERR(
        symmInvalidUsage, "%s: synced=%p: the %s side has nothing to copy, as the state is %s",
        down ? "symmSyncedPull" : "symmSyncedPush", (void *)s->handle, down ? "device" : "host",
        s->head == SYMM_SYNCED_UNINITIALIZED ? "UNINITIALIZED"
        : down                               ? "HEAD_AT_CPU"
                                             : "HEAD_AT_GPU");
}

symmResult_t symmSyncedPush(symmSynced_t synced, symmStream_t stream) {
    symm_synced_use use;
    SYMM_TRY(symm_synced_begin(synced, SYMM_SITE(), &use));
    return symm_synced_end(&use, move(use.s, stream, 0));
}

symmResult_t symmSyncedPull(symmSynced_t synced, symmStream_t stream) {
    symm_synced_use use;
    SYMM_TRY(symm_synced_begin(synced, SYMM_SITE(), &use));
    return symm_synced_end(&use, move(use.s, stream, 1));
}
