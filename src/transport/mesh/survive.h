/* survive.h - agreement among the ranks that are left after others died or left: who goes on
 * (symmCommShrink), and who is gone (symmCommFailedRanks). Runs over the control mesh, also if that
 * is revoked, in the thread that owns the mesh. No lock.
 *
 * A call has a number, the same on all ranks that take part. Messages of older calls are dropped.
 * So a call that failed leaves nothing behind, and may be made again with another list. */
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

/* LIST: every rank passes the same list of ranks to leave out. They are gone or do not call, and no
 * rank waits for them. GONE: the list is the result, all ranks that are gone. ASK: the same, for a
 * question. The call fails if ranks pass different kinds. */
enum { SYMM_SURVIVE_LIST = 1, SYMM_SURVIVE_GONE, SYMM_SURVIVE_ASK };

/* [every rank that is neither gone nor in the list] mine: this rank's status, whose text is the
 * thread's last error. *out: the list, in and out. *call: the number of the call.
 * All ranks that return, return the same: success with the same *out, or failure. If a rank dies
 * meanwhile, LIST fails (symmRemoteError, which names all that are gone); the other kinds add it to
 * *out. Lists that differ: symmMismatch. A late rank is waited for until w's deadline, or until
 * w->check fails. */
symmResult_t symm_survive(symm_mesh *m, int kind, symmResult_t mine, symm_ranks *out,
                          uint32_t *call, const symm_wait *w);

/* In w->check of the call under way: whether rank p has said anything in it, or in one that this
 * rank has not heard the end of. If not, p may be elsewhere. */
int symm_survive_came(const symm_mesh *m, int p);

/* Ranks that this one sees gone: their connection has ended, or they were found dead. Any
 * thread. */
void symm_survive_gone(const symm_mesh *m, symm_ranks *gone);

#endif
