/* reach.c - whether every rank can read every other's memory through the kernel. Asked once, when a
 * communicator is made: a kernel that has begun cannot choose another way. The answer is the same
 * on all ranks, as the planner's choice depends on it. Runs inside the creating call; no lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "host/comm/comm.h"
#include "machine/peer_memory.h"
#include "comm_make.h"

/* What peers read, so that a process with the same number in another pid namespace is not taken for
 * this one. */
static symm_uuid probe;

void symm_comm_reach_offer(const symm_uuid *process, symm_greeting *g) {
    /* Thread ranks store the same. Peers look once the greeting has come, so after this. */
    __atomic_store_n(&probe.hi, process->hi, __ATOMIC_RELAXED);
    __atomic_store_n(&probe.lo, process->lo, __ATOMIC_RELAXED);
    g->process = *process;
    g->process_at = (uintptr_t)&probe;
    g->pid = (int32_t)getpid();
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

uint32_t symm_comm_reach_try(const symm_comm *c, const symm_greeting *all) {
    if (!c->params.direct) return (uint32_t)ECANCELED << 8 | (unsigned)(c->rank + 1);
    for (int r = 0; r < c->nranks && !c->cuda; r++) {
        int err = r == c->rank ? 0 : try_peer(&all[r]);
        if (err) return (uint32_t)err << 8 | (unsigned)(r + 1);
    }
    return 0;
}

void symm_comm_reach_learn(symm_comm *c, int rank, uint32_t found) {
    if (rank == 0) c->calls.direct = !c->cuda;
    if (!found || !c->calls.direct) return;
    c->calls.direct = 0;
    c->calls.refused[0] = rank;
    c->calls.refused[1] = (int)(found & 255) - 1;
    c->calls.refused_err = (int)(found >> 8);
    if (c->rank == rank && c->params.direct)
        SYMM_INFO("rank %d cannot reach the memory of rank %d (%s): buffers in no window go "
                  "through scratch",
                  rank, c->calls.refused[1], symm_peer_why(c->calls.refused_err));
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
    return c->calls.direct && c->nranks > 1 &&
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
