/* revoke.h - why a communicator is over, and saying so: revoked by an error of this rank or of a
 * peer, by a death, or by a call of the program. The first reason stays. Any thread, except where a
 * function says otherwise; failure.lock guards the text. */
#ifndef SYMM_REVOKE_H_
#define SYMM_REVOKE_H_

#include "transport/mesh/survive.h"
#include "types.h"

/* The own abort word: {code << 32 | rank + 1} of the first reason that a peer, or a kernel of this
 * rank, has written; 0: none. Pairs with the release of ctl in comm_make.c, with set_word, and
 * with give8 in dev.cuh's leave. */
static inline uint64_t symm_comm_abort_word(const symm_comm *c) {
    const symm_ctl *ctl = __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE);
    return ctl ? __atomic_load_n(&ctl->abort, __ATOMIC_ACQUIRE) : 0;
}
/* The own death word, of the same form: a peer has died, or has called symmCommAbort (symmAborted),
 * while that was no error yet (peerDeath of the config). Pairs with symm_comm_note_death and
 * end_peers. */
static inline uint64_t symm_comm_death_word(const symm_comm *c) {
    const symm_ctl *ctl = __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE); /* as above */
    return ctl ? __atomic_load_n(&ctl->death, __ATOMIC_ACQUIRE) : 0;
}
/* The code of the reason, as far as this rank was told in words; symmSuccess: none. */
static inline symmResult_t symm_comm_code(const symm_comm *c) {
    return (symmResult_t)atomic_load_explicit(&c->failure.code, memory_order_acquire);
}
/* Also where the abort word alone says so. */
static inline int symm_comm_is_over(const symm_comm *c) {
    return symm_comm_code(c) != symmSuccess || symm_comm_abort_word(c) != 0;
}

/* Revokes: stores the reason, and sets the own abort word, so that running kernels leave. */
void symm_comm_fail(symm_comm *c, symmResult_t code, int rank, const char *text);
/* symmSuccess, or the reason, with its text as this thread's last error. Reads only what stays
 * after the end of the communicator: another thread may be ending it. */
symmResult_t symm_comm_known(symm_comm *c);
/* The same; the text names all ranks that are gone. */
symmResult_t symm_comm_async(symm_comm *c);
/* The same; a reason that only the abort word tells counts too. */
symmResult_t symm_comm_told(symm_comm *c);
/* Told, by who uses the communicator now: what the death word tells is an error from here on. */
symmResult_t symm_comm_used(symm_comm *c);
/* The watcher: from now on a peer's death ends who uses the communicator. */
void symm_comm_note_death(symm_comm *c, int rank);
/* A reason in the abort word becomes the communicator's. Kernels look at the word themselves; this
 * is for the host. */
void symm_comm_adopt_abort(symm_comm *c);

/* The rank whose death the abort word tells of; -1 none. */
int symm_comm_dead(const symm_comm *c);
/* Ranks that are gone, as this rank sees it now: connections that have ended, ranks that were found
 * dead, the one in the abort word. None while the communicator is being made. */
void symm_comm_gone(const symm_comm *c, symm_ranks *gone);
/* The peer has written LEFT into its control block: the end of its connection is no death. */
int symm_comm_said_left(const symm_comm *c, int peer);

/* What a rank says to peers that may mind it later. */
#define SYMM_COMM_GOES "symmCommAbort"
/* Ranks of several hosts, which do not see each other's control blocks; the watcher. hear: a peer
 * has sent a REVOKE. hear_left: it has said that it leaves; any thread. spread: if a kernel of this
 * rank has left, says so to the peers, whose kernels know; who has none running would not. */
void symm_comm_hear(symm_comm *c, int peer, const symm_vote *v);
void symm_comm_hear_left(const symm_comm *c, int peer);
void symm_comm_spread(symm_comm *c);

/* In words, what a kernel was doing (SYMM_STAGE_*). */
const char *symm_stage_name(uint32_t stage);
/* In words, an error that a peer or a kernel has told only by code and rank (-1 unknown). A
 * mismatch: in what the ranks differ. */
void symm_comm_reason(symm_comm *c, symmResult_t code, int rank, char *text, size_t cap);
/* This rank cannot go on with the others, for the reason in the thread's last error: revokes the
 * communicator here and on every peer, so that none waits for it. rank: whom the reason is
 * about, -1 unknown. The user's thread, or one that visits. */
void symm_comm_break(symm_comm *c, symmResult_t code, int rank, const char *stage);
/* Revokes it here and on every peer, because this rank called `what`. goes: this rank is about to
 * leave it, which peers may mind later (peerDeath). */
void symm_comm_abort_everywhere(symm_comm *c, const char *what, int goes);
/* Whether symmCommRevoke takes them. */
symmResult_t symm_comm_revoke_flags(int flags);

#endif
