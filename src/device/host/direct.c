/* direct.c - buffers that peers do not map, read and written through the kernel. Runs on the thread
 * that runs the kernel. No lock.
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
 * Written is such a buffer only where one end of a part would wait, and by who reduces for its
 * owner (SYMM_ARG_WRITES); else a body leaves a result where its owner reads it. After an error
 * nobody but the owner may write it. So each rank has a gate, symm_gate in its control block:
 *
 *   1. A writer says busy, and looks whether the owner has closed; then it writes a piece, and
 *      takes busy back. An owner that leaves with an error tells its peers, closes, and waits until
 *      nobody is busy. These words have one order: the writer sees closed, or is waited for.
 *   2. A writer may be stopped between its look and the call of the system. The owner waits for
 *      CLOSE_NS at most. But a write goes to the gate's page first, which the owner has made
 *      inaccessible, and keeps so: a write that begins later fails there. So it does if the process
 *      has ended meanwhile, unless another one has its number and memory at the gate's address.
 *   3. A writer that is gone (ESRCH) is not waited for, once GONE_NS have passed: its process may
 *      have ended around a thread that was still inside the call.
 *
 * What is left is a writer that stands inside the call of the system for longer than CLOSE_NS; or
 * for longer than GONE_NS in a process whose main thread alone has ended.
 *
 * Only calls with SYMM_ARG_WRITES close: in another one no peer knows a destination, and who left a
 * former one without an error has heard from all who wrote.
 *
 * Ranks that are threads of one process read each other's buffers in the same way, though they
 * could use the addresses: memory that is freed meanwhile is EFAULT to the kernel, and a fault to a
 * load. */
#include "dev.h"

#include <errno.h>
#include <sched.h>

#include "base/fail.h"
#include "base/wait.h"
#include "machine/peer_memory.h"

#define PIECE_BYTES (1u << 20) /* between two looks whether the owner has closed */
#define CLOSE_NS    1000000000u
#define GONE_NS     10000000u

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
 * or ours. */
static int fail(symm_cta *c, int peer, uint64_t at, int err, int mine) {
    symm_fence(); /* as in symm_direct_check */
    if (symm_wait_abort(c, SYMM_STAGE_DIRECT)) return 1;
    c->out->mine = err == EFAULT && mine;
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
    if (n == bytes) return 0;
    const int err = errno;
    char byte; /* ours, if the peer's can be read */
    return fail(c, peer, theirs + n, err, symm_peer_read(pid, &byte, theirs + n, 1) == 1);
}

/* ---- writes ---------------------------------------------------------------------------------- */

/* No write began. errno: why, ESRCH if the process is gone; EFAULT: it is our own memory. Whether
 * the owner has closed is found in its words (fail). */
static void why_not(const symm_cta *c, const char *mine) {
    char byte;
    if (errno == EFAULT && symm_peer_read((int)c->ctl->pid, &byte, (uintptr_t)mine, 1) == 1)
        errno = ESRCH;
}
/* Point 1. Bytes written; -1: none, and errno says why. */
static ssize_t write_piece(const symm_cta *c, int peer, uint64_t theirs, const char *mine,
                           uint64_t bytes) {
    symm_ctl *ctl = symm_ctl_of(c->a, peer);
    uint64_t *busy = &ctl->gate.busy[c->a->rank];
    ssize_t n = -1;
    int err = ESRCH;
    symm_st_ordered(busy, 1); /* with the next load: pairs with symm_direct_close */
    if (!symm_ld_ordered(&ctl->gate.closed)) {
        n = SYMM_FAIL_CALL(peer_write, -1, ESRCH,
                           symm_peer_write((int)ctl->pid, ctl->gate.page, theirs, mine, bytes));
        if (n < 0) why_not(c, mine);
        err = errno;
    }
    symm_st_release(busy, 0); /* pairs with the acquire of await_writer */
    errno = err;
    return n;
}

int symm_direct_write(symm_cta *c, int peer, uint64_t theirs, const void *mine, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        const char *from = (const char *)mine + at;
        const uint64_t rest = bytes - at, piece = rest < PIECE_BYTES ? rest : PIECE_BYTES;
        const ssize_t n = write_piece(c, peer, theirs + at, from, piece);
        if (n == (ssize_t)piece) continue;
        const int err = errno;
        const uint64_t done = n < 0 ? 0 : (uint64_t)n;
        char byte; /* the peer's, if ours can be read */
        return fail(c, peer, theirs + at + done, err,
                    symm_peer_read((int)c->ctl->pid, &byte, (uintptr_t)from + done, 1) != 1);
    }
    return 0;
}

/* Point 3. *since: when it was first found so. */
static int is_gone(const symm_cta *c, int peer, uint64_t *since) {
    char byte;
    const symm_ctl *theirs = symm_ctl_of(c->a, peer);
    if (symm_peer_read((int)theirs->pid, &byte, theirs->gate.page, 1) == 1 || errno != ESRCH)
        return 0;
    if (!*since) *since = symm_now_ns();
    return symm_now_ns() - *since > GONE_NS;
}
static void await_writer(const symm_cta *c, int peer, uint64_t until) {
    uint64_t gone = 0;
    /* also an acquire: pairs with the release of write_piece */
    while (symm_ld_ordered(&c->ctl->gate.busy[peer]) && symm_now_ns() < until) {
        if (is_gone(c, peer, &gone)) return;
        sched_yield();
    }
}
void symm_direct_close(symm_cta *c) {
    symm_gate *gate = &c->ctl->gate;
    if (!gate->page || symm_ld_relaxed(&gate->closed)) return;
    symm_st_ordered(&gate->closed, 1); /* with the loads of busy: pairs with write_piece */
    (void)SYMM_FAIL_CALL(gate_close, EPERM, EPERM, /* point 1 holds without it */
                         symm_peer_gate_close((void *)(uintptr_t)gate->page));
    const uint64_t until = symm_now_ns() + CLOSE_NS;
    for (int p = 0; p < c->a->nranks; p++) await_writer(c, p, until);
}
