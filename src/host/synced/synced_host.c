/* synced_host.c - synced buffers on the host backend: copies are tasks of host streams. Runs in the
 * buffer's thread; the run_* functions in the stream's. No lock. */
#include "synced.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "device/common/signals.h"

enum { ALIGN = 4096 };

static symmResult_t look(symm_synced *s, symmStream_t stream, int *capturing) {
    (void)s;
    *capturing = 0;
    if (!stream) return symmSuccess;
    SYMM_TRY(symm_stream_check(stream));
    *capturing = symm_stream_capturing(stream);
    return symmSuccess;
}

static symmResult_t host_alloc(symm_synced *s, symm_side *side) {
    void *p = NULL;
    const size_t bytes = s->bytes ? s->bytes : 1;
    if (SYMM_FAIL_CODE(synced_host_side, ENOMEM, posix_memalign(&p, ALIGN, bytes)))
        return SYMM_ERR(symmOutOfMemory, "no memory for the host side of %zu bytes", bytes);
    side->ptr = p;
    side->pinned = 0;
    return symmSuccess;
}

static void host_free(symm_synced *s, const symm_side *side) {
    (void)s;
    free(side->ptr);
}

static symmResult_t check_device(symm_synced *s, const void *p) {
    (void)s, (void)p;
    return symmSuccess; /* all memory is the host's */
}

/* ---- work for a stream ---- */

struct move {
    void *to;
    const void *from;
    uint64_t bytes;
};

static symmResult_t run_copy(void *args) {
    const struct move *m = args;
    memcpy(m->to, m->from, m->bytes);
    return symmSuccess;
}

static symmResult_t run_zero(void *args) {
    const struct move *m = args;
    memset(m->to, 0, m->bytes);
    return symmSuccess;
}

struct stamp {
    uint64_t *word;
    uint32_t value;
};

static symmResult_t run_stamp(void *args) {
    const struct stamp *t = args;
    symm_signal_raise(t->word, t->value); /* pairs with read_word (synced_look.c), in the peers */
    return symmSuccess;
}

static symmResult_t submit(symm_task_fn fn, const void *args, size_t bytes, symmStream_t stream) {
    if (SYMM_FAIL_HERE(synced_submit))
        return SYMM_ERR(symmOutOfMemory, "stream %p: no memory to queue a copy", (void *)stream);
    return symm_stream_submit(stream, fn, args, bytes);
}

static symmResult_t copy(symm_synced *s, void *to, const void *from, uint64_t bytes,
                         symmStream_t stream) {
    struct move m = {to, from, bytes};
    (void)s;
    return submit(run_copy, &m, sizeof m, stream);
}

static symmResult_t zero(symm_synced *s, uint64_t bytes, symmStream_t stream) {
    struct move m = {s->gpu.ptr, NULL, bytes};
    return submit(run_zero, &m, sizeof m, stream);
}

static symmResult_t write_word(symm_synced *s, uint32_t value, symmStream_t stream) {
    struct stamp t = {symm_synced_word(s, s->comm->rank), value};
    return submit(run_stamp, &t, sizeof t, stream);
}

static void drain(symm_synced *s, symmStream_t stream) {
    (void)s, (void)stream; /* a mark does not fail */
}

static symmResult_t hold(symm_synced *s, symmStream_t stream) {
    return symm_graph_hold(s->comm, NULL, stream, s, &symm_synced_held);
}

const symm_synced_ops symm_synced_host = {.look = look,
                                          .host_alloc = host_alloc,
                                          .host_free = host_free,
                                          .check_device = check_device,
                                          .copy = copy,
                                          .zero = zero,
                                          .write_word = write_word,
                                          .drain = drain,
                                          .hold = hold};
