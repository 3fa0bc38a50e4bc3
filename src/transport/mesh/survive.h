/* survive.h - what the ranks that are still there agree on after others died or left: who goes on,
 * in symmCommShrink, and who is gone, in symmCommFailedRanks. Over the control mesh, also when that
 * is revoked. Runs on the thread that owns the mesh; no lock.
 *
 * A call is numbered, alike on all ranks that take part; messages of older ones are dropped, so a
 * call that failed leaves nothing behind and may be made again, with another list. */
#ifndef SYMM_SURVIVE_H_
#define SYMM_SURVIVE_H_

#include "mesh.h"

enum { SYMM_SET_RANKS = 128 };
typedef struct { /* a set of ranks; on the wire */
    uint64_t bit[SYMM_SET_RANKS / 64];
} symm_ranks;

static inline int symm_ranks_has(const symm_ranks *s, int r) {
    return s->bit[r / 64] >> r % 64 & 1;
}
static inline void symm_ranks_add(symm_ranks *s, int r) {
    s->bit[r / 64] |= 1ull << r % 64;
}
static inline int symm_ranks_same(const symm_ranks *a, const symm_ranks *b) {
    return a->bit[0] == b->bit[0] && a->bit[1] == b->bit[1];
}
static inline int symm_ranks_count(const symm_ranks *s) {
    return __builtin_popcountll(s->bit[0]) + __builtin_popcountll(s->bit[1]);
}
/* "rank 1", "ranks 1, 4-6", "nobody". Returns text. */
const char *symm_ranks_text(const symm_ranks *s, char *text, size_t cap);

/* LIST: every rank brings the same list, and all that it leaves out must be gone or away: nobody
 * waits for them. GONE: the list is what turns out, all ranks that are gone. ASK: the same, and
 * nothing comes of it. Ranks that mean different ones fail. */
enum { SYMM_SURVIVE_LIST = 1, SYMM_SURVIVE_GONE, SYMM_SURVIVE_ASK };

/* [every rank that is neither gone nor in the list] mine: this rank's status, its text the thread's
 * last error. *out: the list, in and out. *call: the number of the call.
 * All ranks that come through return the same: success with the same *out, or failure. A rank that
 * dies meanwhile makes LIST fail (symmRemoteError, all that are gone by name) and is added to the
 * others. Lists that differ: symmMismatch. A rank that is late is waited for until w's deadline. */
symmResult_t symm_survive(symm_mesh *m, int kind, symmResult_t mine, symm_ranks *out,
                          uint32_t *call, const symm_wait *w);

/* In w->check of the call under way: whether rank p has said anything in it, or in one that this
 * rank has not heard the end of. If not, p may be elsewhere. */
int symm_survive_came(const symm_mesh *m, int p);

/* Ranks that this one sees gone: their connection has ended, or they were found dead. Any
 * thread. */
void symm_survive_gone(const symm_mesh *m, symm_ranks *gone);

#endif
