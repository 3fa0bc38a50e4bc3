/* captured.c - the captures that have calls of a communicator, and the stream of each one's last
 * call. The communicator's user thread. */
#include "launch.h"

symm_captured *symm_captured_find(symm_comm *c, uint64_t id) {
    for (int i = 0; id && i < SYMM_CAPTURES; i++)
        if (c->order.captured[i].id == id) return &c->order.captured[i];
    return NULL;
}

symm_captured *symm_captured_note(symm_comm *c, uint64_t id, symmStream_t stream) {
    symm_captured *at = symm_captured_find(c, id);
    if (!at) { /* one that is free, or was silent longest */
        at = c->order.captured;
        for (int i = 1; i < SYMM_CAPTURES; i++)
            if (c->order.captured[i].no < at->no) at = &c->order.captured[i];
    }
    *at = (symm_captured){id, ++c->order.ncaptured, stream};
    return at;
}
