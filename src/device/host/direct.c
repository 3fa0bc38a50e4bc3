/* direct.c - buffers that peers do not map, read through the kernel. Runs on the thread that runs
 * the kernel. No lock.
 *
 * Peers only read such a buffer; its owner alone writes it. There is no function here, and no call
 * of the system in the library, that would write into another process (check_symbols.sh). So what
 * a body does for a peer whose destination is private, it does the other way round: it leaves the
 * result where the owner reads it.
 *
 * The owner announces the address in place of an offset (SYMM_PRIVATE), and keeps the buffer until
 * all peers have arrived, as it keeps a window. So ready and arrive say here what they say of
 * windows (zerocopy.inl), and no other word is needed.
 *
 * An owner that leaves with an error (a deadline, an abort, a mismatch, a death) does not wait for
 * its peers, and its user may free the buffer, or fill it with something else, while a slow peer
 * still reads. The peer's read then brings other bytes, or EFAULT; the owner's memory is as the
 * owner left it. That no rank takes such bytes for a result:
 *
 *   1. A kernel that leaves with an error sets the abort word of every peer, or finds it set, and
 *      fences, before it returns (symm_kernel_run). So the word is there before the owner's user
 *      writes the buffer. Of an abort of its own rank some peers have the death word instead.
 *   2. A rank looks at its own words, behind a fence, after the last read of a CTA and before that
 *      CTA counts as done (symm_direct_check). If the read brought a byte that was written after
 *      the owner left, the word is seen, and the call ends with the owner's error.
 *   3. A rank that got its result by way of another one's read, a slice of a reduction, has
 *      acquired a word that was released after that read. So 2 holds for it too.
 *
 * Abort words are never cleared: a communicator that has failed stays so.
 *
 * Ranks that are threads of one process read each other's buffers in the same way, though they
 * could use the addresses: memory that is freed meanwhile is EFAULT to the kernel, and a fault to a
 * load. */
#include "dev.h"

#include <errno.h>

#include "base/fail.h"
#include "machine/peer_memory.h"

/* p has been in this call and is done with it. Messages have no epoch: there is no such word. */
static int has_done(const symm_cta *c, int p) {
    const uint32_t at = symm_ld_relaxed4(&symm_ctl_of(c->a, p)->epoch[c->cta]);
    return c->epoch && (int32_t)(at - c->epoch) >= 0;
}

/* Point 1 of a rank that has aborted while we mind that only if we need it (peerDeath): our death
 * word was set before, and its own abort word. What we have read in its windows may be something
 * else, too, so calls between windows come here as well. */
static int aborted_inside(symm_cta *c) {
    for (int q = 1; q < c->a->nranks; q++) {
        const int p = symm_peer(c->a, q);
        if (!has_done(c, p) && symm_wait_abort_of(c, p, SYMM_STAGE_DIRECT)) return 1;
    }
    return 0;
}

int symm_abort_check(symm_cta *c) {
    symm_fence(); /* pairs with that behind symm_tell_peers (kernels_host.c) */
    /* acquire: pairs with end_peers of revoke.c; the rank's epochs came before */
    return symm_ld_acquire(&c->ctl->death) && aborted_inside(c);
}

int symm_direct_check(symm_cta *c) {
    symm_fence(); /* as in symm_abort_check */
    return symm_wait_abort_only(c, SYMM_STAGE_DIRECT) || symm_abort_check(c);
}

/* A peer that has left and freed its buffer has told us before; one that is gone is a death, which
 * the watchers will name too. Else memory that is not there is a fault of the program: the peer's,
 * or ours if the peer's can be read. */
static int fail(symm_cta *c, int peer, uint64_t at, int err) {
    char byte;
    const int pid = (int)symm_ctl_of(c->a, peer)->pid;
    symm_fence(); /* as in symm_direct_check */
    if (symm_wait_abort(c, SYMM_STAGE_DIRECT)) return 1;
    c->out->mine = err == EFAULT && symm_peer_read(pid, &byte, at, 1) == 1;
    c->out->code = err == ESRCH ? symmRemoteError : symmInvalidUsage;
    c->out->rank = c->out->mine ? c->a->rank : peer;
    c->out->epoch = c->epoch;
    c->out->stage = SYMM_STAGE_DIRECT;
    c->out->at = at;
    c->out->err = err;
    return 1;
}

int symm_direct_read(symm_cta *c, int peer, void *mine, uint64_t theirs, uint64_t bytes) {
    if (!bytes) return 0;
    const int pid = (int)symm_ctl_of(c->a, peer)->pid;
    size_t n = SYMM_FAIL_CALL(peer_read, 0, ESRCH, symm_peer_read(pid, mine, theirs, bytes));
    return n == bytes ? 0 : fail(c, peer, theirs + n, errno);
}
