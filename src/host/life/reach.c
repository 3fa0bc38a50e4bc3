/* reach.c - whether every rank can read, and write, every other's memory through the kernel. Asked
 * once, when a communicator is made: a kernel that has begun cannot choose another way. The answer
 * is the same on all ranks, as the planner's choice depends on it. Runs inside the creating call,
 * and at the end; no lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "host/comm/comm.h"
#include "machine/peer_memory.h"
#include "comm_make.h"

/* What peers read, so that a process with the same number in another pid namespace is not taken for
 * this one. */
static symm_uuid probe;

void symm_comm_reach_offer(symm_comm *c, symm_greeting *g) {
    const symm_uuid *process = symm_comm_process();
    /* Thread ranks store the same. Peers look once the greeting has come, so after this. */
    __atomic_store_n(&probe.hi, process->hi, __ATOMIC_RELAXED);
    __atomic_store_n(&probe.lo, process->lo, __ATOMIC_RELAXED);
    g->process = *process;
    g->process_at = (uintptr_t)&probe;
    g->pid = (int32_t)getpid();
    if (!c->cuda && c->nranks > 1) c->calls.gate = symm_peer_gate();
    g->gate = (uintptr_t)c->calls.gate;
}

void symm_comm_reach_settle(symm_comm *c) {
    c->calls.gate_settled = 1;
    if (c->calls.gate && !(c->calls.reads.all && c->calls.writes.all)) symm_comm_reach_end(c);
}

/* A gate stays, closed, if a peer that was stopped may still come to it: in its try, or in a kernel
 * that this rank left with an error. */
void symm_comm_reach_end(symm_comm *c) {
    void *gate = c->calls.gate;
    SYMM_ASSERT(!gate || !c->cuda);
    c->calls.gate = NULL;
    if (!gate || (c->ctl && c->ctl->gate.closed)) return;
    if (c->calls.gate_settled)
        symm_peer_gate_free(gate);
    else
        (void)symm_peer_gate_close(gate);
}

/* errno of the first that fails; 0: none. */
static int try_peer(const symm_greeting *peer) {
    symm_uuid seen = {0, 0};
    if (SYMM_FAIL_CALL(peer_reach, 0, EPERM,
                       symm_peer_read(peer->pid, &seen, peer->process_at, sizeof seen)) !=
        sizeof seen)
        return errno == EFAULT ? EREMOTE : errno;
    return seen.hi != peer->process.hi || seen.lo != peer->process.lo ? EREMOTE : 0;
}

/* The same of a word behind its gate, which nobody reads. It is the process that was read. */
static int try_writing(const symm_greeting *peer) {
    const uint64_t word = 0;
    if (!peer->gate) return ENOMEM;
    return SYMM_FAIL_CALL(peer_write_try, 0, EPERM,
                          symm_peer_write(peer->pid, peer->gate, peer->gate + sizeof word, &word,
                                          sizeof word)) == sizeof word
               ? 0
               : errno;
}

static uint32_t said(int rank, int err) {
    return err ? (uint32_t)err << 8 | (unsigned)(rank + 1) : 0;
}

symm_reached symm_comm_reach_try(const symm_comm *c, const symm_greeting *all) {
    symm_reached found = {0, 0};
    if (!c->params.direct) found.reads = said(c->rank, ECANCELED);
    if (!c->params.direct_write) found.writes = said(c->rank, ECANCELED);
    for (int r = 0; r < c->nranks && !c->cuda; r++) {
        if (r == c->rank) continue;
        if (!found.reads) found.reads = said(r, try_peer(&all[r]));
        if (!found.reads && !found.writes) found.writes = said(r, try_writing(&all[r]));
    }
    return found;
}

/* 1: rank's is the first refusal. */
static int learn(symm_reach *reach, int rank, uint32_t found) {
    if (!found || !reach->all) return 0;
    *reach = (symm_reach){.from = rank, .to = (int)(found & 255) - 1, .err = (int)(found >> 8)};
    return 1;
}

void symm_comm_reach_learn(symm_comm *c, int rank, symm_reached found) {
    symm_reach *reads = &c->calls.reads, *writes = &c->calls.writes;
    SYMM_ASSERT(rank >= 0 && rank < c->nranks);
    if (rank == 0) reads->all = writes->all = !c->cuda;
    if (learn(reads, rank, found.reads) && c->rank == rank && c->params.direct)
        SYMM_INFO("rank %d cannot reach the memory of rank %d (%s): buffers in no window go "
                  "through scratch",
                  rank, reads->to, symm_peer_why(reads->err));
    if (learn(writes, rank, found.writes) && c->rank == rank && c->params.direct_write)
        SYMM_INFO(
            "rank %d cannot write into the memory of rank %d (%s): a recvbuff in no window is "
            "filled by its owner alone",
            rank, writes->to, symm_peer_why(writes->err));
}

/* ---- how fast -------------------------------------------------------------------------------- */

/* Cores that share a cache take 1 to 2 us for a span that another one has written; those that do
 * not some 10 us, or take 2 us for that and 11 to 14 us to store to lines that another one has
 * read. The kernel moves a span in 3 to 4 us. */
enum { SPAN = 32 << 10, SPANS = 4, NEAR_NS = 3000, REFILL_NS = 6000 };

static char *spans_of(const symm_comm *c, int rank) {
    return (char *)symm_comm_ctl(c, rank) + c->calls.proto.scratch.host.stage_off;
}
static int measurable(const symm_comm *c) {
    return c->calls.reads.all && c->nranks > 1 &&
           c->calls.proto.scratch.host.stage_bytes >= 2 * SPAN * SPANS;
}

/* Leaves lines in this core's cache that nobody else has. */
void symm_comm_reach_soil(const symm_comm *c) {
    if (measurable(c)) memset(spans_of(c, c->rank), 0x5a, SPAN * SPANS);
}

/* The best of some spans: one that is interrupted says nothing. */
static uint64_t span_ns(const symm_comm *c) {
    const char *theirs = spans_of(c, c->rank + 1 < c->nranks ? c->rank + 1 : 0);
    char *mine = spans_of(c, c->rank) + SPAN * SPANS;
    uint64_t best = UINT64_MAX;
    memset(mine, 0, SPAN);
    for (int i = 0; i < SPANS; i++) {
        for (int at = 0; at < SPAN; at += 4096) /* the page's entry, not its lines */
            (void)*(const volatile char *)(theirs + i * SPAN + at);
        uint64_t start = symm_now_ns();
        memcpy(mine, theirs + i * SPAN, SPAN);
        uint64_t took = symm_now_ns() - start;
        if (took < best) best = took;
    }
    return best;
}

/* The same of stores to lines that a peer has just read: cores that are far from each other may
 * read fast and still wait for each such store. */
static uint64_t refill_ns(const symm_comm *c) {
    char *mine = spans_of(c, c->rank);
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < SPANS; i++) {
        uint64_t start = symm_now_ns();
        memset(mine + i * SPAN, 0xa5, SPAN);
        uint64_t took = symm_now_ns() - start;
        if (took < best) best = took;
    }
    return best;
}

/* Whether no rank took longer than `most`. UINT64_MAX is of a rank that wants one way only, so the
 * calls of all stay on it. [collective] */
static symmResult_t all_near(symm_comm *c, uint64_t mine, uint64_t most, int *near) {
    uint64_t all[SYMM_MAX_RANKS];
    symm_wait w = symm_comm_wait(c, "creating a communicator");
    SYMM_TRY(symm_boot_allgather(c->exchange.boot, &mine, all, sizeof mine, &w));
    *near = 1;
    for (int r = 0; r < c->nranks; r++) {
        *near &= all[r] <= most;
        c->calls.adapts &= all[r] != UINT64_MAX;
    }
    return symmSuccess;
}

symmResult_t symm_comm_reach_measure(symm_comm *c) {
    uint64_t read, refilled = 0;
    if (!measurable(c)) return symmSuccess;
    c->calls.adapts = 1;
    read = c->params.direct == 2 ? UINT64_MAX : span_ns(c); /* as if they were far */
    SYMM_TRY(all_near(c, read, NEAR_NS, &c->calls.near));
    if (c->calls.near) SYMM_TRY(all_near(c, refilled = refill_ns(c), REFILL_NS, &c->calls.near));
    SYMM_INFO("32 KB that rank %d has written: %llu ns, written again: %llu ns; the cores are %s",
              (c->rank + 1) % c->nranks, (unsigned long long)read, (unsigned long long)refilled,
              c->calls.near ? "near each other" : "far from each other");
    return symmSuccess;
}
