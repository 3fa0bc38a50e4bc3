/* synced_look.c - calls that copy no side of a synced buffer: dirty ranges, state, generation,
 * references, dump. Runs in the buffer's thread; symmSyncedPoll in the communicator's. No lock. */
#include "synced.h"

#include "base/handle.h"
#include "base/text.h"
#include "device/common/signals.h"
#include "host/comm/comm.h"
#include "host/window/space.h"

static const char *const names[] = {"UNINITIALIZED", "HEAD_AT_CPU", "HEAD_AT_GPU",
                                    "SYNCED",        "PUSHING",     "PULLING"};

/* ---- what was written ------------------------------------------------------------------------ */

static symmResult_t name_range(symm_synced *s, size_t off, size_t len) {
    if (off > s->bytes || len > s->bytes - off)
        return SYMM_ERR(
            symmInvalidArgument,
            "symmSyncedDirty: off=%zu, len=%zu: the range must be inside the %llu bytes", off, len,
            (unsigned long long)s->bytes);
    if (s->head != SYMM_SYNCED_HEAD_AT_CPU && s->head != SYMM_SYNCED_HEAD_AT_GPU)
        return SYMM_ERR(symmInvalidUsage,
                        "symmSyncedDirty: synced=%p is %s: the head must be at one side",
                        (void *)s->handle, names[s->head]);
    symm_dirty_name(&s->dirty, off, len);
    return symmSuccess;
}

symmResult_t symmSyncedDirty(symmSynced_t synced, size_t off, size_t len) {
    symm_synced *s;
    SYMM_TRY(symm_synced_enter(synced, SYMM_SITE(), &s));
    symmResult_t r = name_range(s, off, len);
    symm_synced_leave(s);
    return r;
}

/* ---- state ----------------------------------------------------------------------------------- */

/* Also notes that a copy has ended. */
static int state_of(symm_synced *s) {
    if (s->pending && s->flow && symm_mark_reached(s->comm, &s->mark)) s->pending = s->flow = 0;
    return s->head == SYMM_SYNCED_SYNCED && s->flow ? s->flow : s->head;
}

symmResult_t symmSyncedHead(symmSynced_t synced, int *state) {
    symm_synced *s;
    if (!state) return SYMM_ERR(symmInvalidArgument, "symmSyncedHead: state is NULL");
    SYMM_TRY(symm_synced_enter(synced, SYMM_SITE(), &s));
    *state = state_of(s);
    symm_synced_leave(s);
    return symmSuccess;
}

symmResult_t symmSyncedSize(symmSynced_t synced, size_t *bytes) {
    symm_synced *s;
    if (!bytes) return SYMM_ERR(symmInvalidArgument, "symmSyncedSize: bytes is NULL");
    SYMM_TRY(symm_synced_enter(synced, SYMM_SITE(), &s));
    *bytes = s->bytes;
    symm_synced_leave(s);
    return symmSuccess;
}

/* ---- the generation -------------------------------------------------------------------------- */

static symmResult_t publish(symm_synced *s, symmStream_t stream, uint32_t *generation) {
    int capturing;
    SYMM_TRY(s->ops->look(s, stream, &capturing));
    if (capturing)
        return SYMM_ERR(symmInvalidUsage,
                        "symmSyncedPublish: stream=%p is under capture, and each replay would "
                        "write the same generation",
                        (void *)stream);
    SYMM_TRY(symm_synced_need_word(s));
    SYMM_TRY(symm_synced_join(s, stream, 0));
    SYMM_TRY(symm_synced_seal(s, stream, symm_synced_count(s, stream)));
    if (generation) *generation = s->generation;
    return symmSuccess;
}

symmResult_t symmSyncedPublish(symmSynced_t synced, symmStream_t stream, uint32_t *generation) {
    symm_synced_use use;
    SYMM_TRY(symm_synced_begin(synced, SYMM_SITE(), &use));
    return symm_synced_end(&use, publish(use.s, stream, generation));
}

/* A GPU's memory is read by a copy in the library's own stream, which waits for no work of the
 * user's. */
static symmResult_t read_word(const symm_comm *c, const uint64_t *word, uint32_t *generation) {
    symm_cuda_scope scope;
    if (!c->cuda) {
        *generation = (uint32_t)symm_signal_raised(word); /* pairs with run_stamp (synced_host.c) */
        return symmSuccess;
    }
    SYMM_TRY(symm_gpu_push(c, &scope));
    uint64_t seen = 0;
    int cu = c->vmm->copy(&seen, word, sizeof seen);
    symm_gpu_pop(c, &scope);
    if (cu) return symm_vmm_error(c->vmm, cu, "reading the generation of a synced buffer");
    *generation = (uint32_t)seen;
    return symmSuccess;
}

static symmResult_t generation_of(symm_synced *s, int rank, uint32_t *generation) {
    const int sym = !(s->flags & SYMM_ALLOC_LOCAL);
    if (rank < 0 || rank >= s->comm->nranks || (!sym && rank != s->comm->rank))
        return SYMM_ERR(symmInvalidArgument, "symmSyncedGeneration: rank=%d: must be %s", rank,
                        sym ? "a rank of the communicator" : "this rank, as the buffer is LOCAL");
    if (s->word_off != SYMM_NO_OFFSET)
        return read_word(s->comm, symm_synced_word(s, rank), generation);
    *generation = 0;
    return symmSuccess;
}

symmResult_t symmSyncedGeneration(symmSynced_t synced, int rank, uint32_t *generation) {
    symm_synced *s;
    if (!generation)
        return SYMM_ERR(symmInvalidArgument, "symmSyncedGeneration: generation is NULL");
    SYMM_TRY(symm_synced_enter(synced, SYMM_SITE(), &s));
    symmResult_t r = generation_of(s, rank, generation);
    symm_synced_leave(s);
    return r;
}

symmResult_t symmSyncedPoll(const symmRef_t *word, symmComm_t comm, int rank,
                            uint32_t *generation) {
    void *at;
    if (!generation) return SYMM_ERR(symmInvalidArgument, "symmSyncedPoll: generation is NULL");
    SYMM_TRY(symmRefPtr(word, comm, rank, &at));
    if (word->len < sizeof(uint64_t) || word->off % sizeof(uint64_t))
        return SYMM_ERR(symmInvalidArgument,
                        "symmSyncedPoll: word refers to %llu bytes at %llu: pass the word of "
                        "symmSyncedRef",
                        (unsigned long long)word->len, (unsigned long long)word->off);
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    if (!c) return SYMM_ERR(symmInvalidArgument, "comm=%p is no communicator", (void *)comm);
    return read_word(c, at, generation);
}

/* ---- references ------------------------------------------------------------------------------ */

static symmResult_t refs(symm_synced *s, symmRef_t *data, symmRef_t *word) {
    symmRef_t d, w;
    if (data) {
        if (s->gpu.ptr && symm_heap_offset(s->heap, s->gpu.ptr) == SYMM_NO_OFFSET)
            return SYMM_ERR(symmInvalidUsage,
                            "symmSyncedRef: synced=%p: the device side %p is memory of the caller "
                            "outside of the buffer's heap",
                            (void *)s->handle, (void *)s->gpu.ptr);
        SYMM_TRY(symm_synced_need_gpu(s));
        SYMM_TRY(symmRefGet(s->gpu.ptr, &d));
        if (d.len > s->bytes) d.len = s->bytes;
    }
    if (word) {
        SYMM_TRY(symm_synced_need_word(s));
        SYMM_TRY(symmRefGet((void *)symm_synced_word(s, s->comm->rank), &w));
        w.len = sizeof(uint64_t);
    }
    if (data) *data = d;
    if (word) *word = w;
    return symmSuccess;
}

symmResult_t symmSyncedRef(symmSynced_t synced, symmRef_t *data, symmRef_t *word) {
    symm_synced_use use;
    SYMM_TRY(symm_synced_begin(synced, SYMM_SITE(), &use));
    return symm_synced_end(&use, refs(use.s, data, word));
}

/* ---- dump ------------------------------------------------------------------------------------ */

static void put_side(symm_text *t, const char *name, const symm_side *side) {
    if (!side->ptr)
        symm_text_put(t, "  %s: none\n", name);
    else
        symm_text_put(t, "  %s: %p, %s%s\n", name, (void *)side->ptr,
                      side->owned ? "its own" : "the caller's", side->pinned ? ", pinned" : "");
}

static void put_dirty(symm_text *t, const symm_synced *s) {
    symm_dirty_range list[SYMM_DIRTY_MAX];
    if (s->head != SYMM_SYNCED_HEAD_AT_CPU && s->head != SYMM_SYNCED_HEAD_AT_GPU) return;
    const int n = symm_dirty_list(&s->dirty, s->bytes, list);
    symm_text_put(t, "  newer:");
    for (int i = 0; i < n; i++)
        symm_text_put(t, " [%llu, %llu)", (unsigned long long)list[i].from,
                      (unsigned long long)list[i].to);
    symm_text_put(t, n ? "\n" : " nothing\n");
}

symmResult_t symmSyncedDump(symmSynced_t synced, int fd) {
    symm_synced *s;
    symm_text t = {.fd = fd};
    SYMM_TRY(symm_synced_enter(synced, SYMM_SITE(), &s));
    symm_text_put(&t, "synced buffer %p: %llu bytes, %s, %s%s\n", (void *)s->handle,
                  (unsigned long long)s->bytes, s->flags & SYMM_ALLOC_LOCAL ? "LOCAL" : "SYM",
                  names[state_of(s)], s->captured ? ", captured" : "");
    put_side(&t, "host side", &s->cpu);
    put_side(&t, "device side", &s->gpu);
    put_dirty(&t, s);
    symm_text_put(&t, "  generation: %u\n", s->generation);
    symm_synced_leave(s);
    return symm_text_end(&t);
}
