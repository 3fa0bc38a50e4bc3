/* direct.c - buffers that peers do not map, read and written through the kernel. Runs on the thread
 * that runs the kernel. No lock.
 *
 * The owner of the buffer announces its address in place of an offset (SYMM_PRIVATE), and keeps it
 * valid until all peers have arrived, as it keeps a window. So ready and arrive say here what they
 * say of windows (zerocopy.inl), and no other word is needed. */
#include "dev.h"

#include <errno.h>

#include "machine/peer_memory.h"

/* A peer that is gone is a death, which the watchers will name too. Memory that is not there is a
 * fault of the program: the peer's, or ours if the peer's can be read. */
static int fail(symm_cta *c, int peer, uint64_t at, int err) {
    char byte;
    const int pid = (int)symm_ctl_of(c->a, peer)->pid;
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
    size_t n = symm_peer_read((int)symm_ctl_of(c->a, peer)->pid, mine, theirs, bytes);
    return n == bytes ? 0 : fail(c, peer, theirs + n, errno);
}

int symm_direct_write(symm_cta *c, int peer, uint64_t theirs, const void *mine, uint64_t bytes) {
    if (!bytes) return 0;
    size_t n = symm_peer_write((int)symm_ctl_of(c->a, peer)->pid, mine, theirs, bytes);
    return n == bytes ? 0 : fail(c, peer, theirs + n, errno);
}
