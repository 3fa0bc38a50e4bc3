/* across_order.c - the order of calls of a communicator over several domains on streams, for both
 * backends: what the last call was outside of captures, and in each capture. On the host backend
 * under its lock, on GPUs the thread inside. */
#include "base/check.h"
#include "across.h"

symm_across_last *symm_across_last_of(symm_across_order *o, uint64_t capture) {
    symm_across_last *oldest = &o->last[1];
    if (!capture) return &o->last[0];
    for (int i = 1; i < 1 + SYMM_CAPTURES; i++) {
        symm_across_last *l = &o->last[i];
        if (l->any && l->capture == capture) return l;
        if (l->no < oldest->no) oldest = l;
    }
    return oldest;
}

void symm_across_given(symm_across_order *o, symm_across_last *last, symmStream_t stream,
                       uint64_t capture) {
    SYMM_ASSERT(last >= o->last && last < o->last + 1 + SYMM_CAPTURES && last->no <= o->calls);
    last->stream = stream;
    last->capture = capture;
    last->no = ++o->calls;
    last->any = 1;
}
