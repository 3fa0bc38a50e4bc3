/* staging.c - buffers in no window: where in its places a call stages them, and whether it does, or
 * peers read them through the kernel (direct.c). Runs on the thread that runs the kernel. No lock.
 *
 * Which is faster depends on how far the ranks' cores are from each other, and a machine may move
 * them while a program runs. So ranks time what they copy into and out of staging, and tell rank 0
 * in the next epoch. Rank 0 says in each epoch which way calls of the next one go that may go
 * either (SYMM_ARG_EITHER). Every rank has heard from rank 0 in epoch e-1 before its kernel of
 * epoch e begins, so all take the same one. Captured calls too: it is looked up when a kernel runs.
 * The bits are the same.
 *
 *   through staging    some calls are timed; after SLOW slow ones in a row, through the kernel
 *   through the kernel after PROBE calls one goes through staging, and is timed; after FAST quick
 *                      ones in a row all do
 *
 * Until rank 0 has said anything, calls go as the planner has found when the communicator was made
 * (SYMM_ARG_NEAR). */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/wait.h"
#include "dev.h"

enum { WALK_RANKS = 8, SLOW = 16, FAST = 2, PROBE = 512, TIMED = 4 };
enum { TOOK_QUICK = 1, TOOK_SLOW = 2, TOOK_BITS = 2 }; /* epoch << TOOK_BITS | one of these */

/* Copies are quick if they take less than QUICK_NS each and one more nanosecond for QUICK_PER_NS
 * bytes; the kernel takes about as long. Fewer than LEAST_BYTES say nothing: the clock itself takes
 * some 20 ns. */
#define QUICK_NS     1000u
#define QUICK_PER_NS 12u
#define LEAST_BYTES  (16u << 10)

/* ---- where ----------------------------------------------------------------------------------- */

/* Pages that are made, or mapped here, one by one would slow the first calls of a walk down, and
 * staging would seem slow. Where the system has no such call they are. */
static void make_pages(const symm_cta *c) {
#ifdef MADV_POPULATE_WRITE
    const int before = errno;
    symm_cta at = *c;
    at.walk = 0;
    for (int i = 0; i < 4 && c->a->nranks <= WALK_RANKS; i++) {
        at.epoch = (unsigned)i & 1u;
        for (int p = 0; p < c->a->nranks; p++)
            (void)madvise(symm_stage(&at, p, 0, i >> 1), symm_place_bytes(c), MADV_POPULATE_WRITE);
    }
    errno = before;
#else
    (void)c;
#endif
}

void symm_walk_on(symm_cta *c, uint64_t bytes) {
    const symm_args *a = c->a;
    symm_way *way = &c->ctl->way;
    const uint64_t step = (bytes + 4095) & ~4095ull;
    const uint64_t steps = symm_place_bytes(c) / step;
    if (steps < SYMM_WALK_STEPS) return;
    c->walk = (c->epoch >> 1) % steps * step;
    if (c->cta) return;
    if (way->made || (a->src_off != SYMM_STAGED && a->dst_off != SYMM_STAGED)) return;
    way->made = 1;
    make_pages(c);
}

/* ---- whether --------------------------------------------------------------------------------- */

uint64_t (*symm_copy_clock)(void);

uint64_t symm_copy_ns(void) {
    return symm_copy_clock ? symm_copy_clock() : symm_now_ns();
}

/* What rank 0 has said in the epoch before this one. */
static uint32_t said(const symm_args *a, const symm_ctl *ctl, uint32_t epoch) {
    const uint32_t i = (epoch - 1) & 1u;
    if (a->rank == 0) return ctl->way.said[i];
    return symm_ld_relaxed4(&ctl->inbox[0][0].way[i]);
}

const symm_args *symm_way_take(const symm_args *a, symm_ctl *ctl, uint32_t epoch,
                               symm_args *staged) {
    symm_way *way = &ctl->way;
    uint32_t now = said(a, ctl, epoch);
    if (now == SYMM_WAY_UNSAID) now = a->flags & SYMM_ARG_NEAR ? SYMM_WAY_STAGING : SYMM_WAY_KERNEL;
    if (way->now == SYMM_WAY_UNSAID) way->now = now;
    if (now == SYMM_WAY_KERNEL) {
        way->calls++;
        return a;
    }
    if (now == SYMM_WAY_PROBE) way->calls = 0; /* it is said until a call has taken it */
    way->timed = now == SYMM_WAY_PROBE || way->staged++ % TIMED == 0 ? epoch : 0;
    *staged = *a;
    staged->flags &= ~(uint32_t)SYMM_ARG_DIRECT;
    if (symm_is_private(a->src_off)) staged->src_off = SYMM_STAGED;
    if (symm_is_private(a->dst_off)) staged->dst_off = SYMM_STAGED;
    return staged;
}

/* What ranks have told of the call of epoch t, in their next one, which is over. 0: nothing. */
static uint32_t tally(const symm_cta *c, uint32_t t) {
    uint32_t found = 0;
    for (int p = 0; p < c->a->nranks; p++) {
        const uint32_t took = p == c->a->rank
                                  ? c->ctl->way.took[t & 1u]
                                  : symm_ld_relaxed4(&c->ctl->inbox[0][p].way[(t + 1) & 1u]);
        if (took >> TOOK_BITS == (t << TOOK_BITS) >> TOOK_BITS) found |= took;
    }
    found &= TOOK_QUICK | TOOK_SLOW;
    return found & TOOK_SLOW ? TOOK_SLOW : found;
}
static void decide(symm_cta *c) {
    symm_way *way = &c->ctl->way;
    const uint32_t t = c->epoch - 2, staging = way->now == SYMM_WAY_STAGING;
    const uint32_t found = way->asked == t ? tally(c, t) : 0;
    way->asked = way->told;
    way->told = way->timed;
    if (found) {
        way->row = found == (staging ? TOOK_SLOW : TOOK_QUICK) ? way->row + 1 : 0;
        way->calls = !staging && way->row ? PROBE : 0; /* one more behind a quick one */
    }
    if (way->row >= (staging ? SLOW : FAST)) {
        way->now = staging ? SYMM_WAY_KERNEL : SYMM_WAY_STAGING;
        way->row = way->calls = 0;
    }
    way->said[c->epoch & 1u] =
        way->now == SYMM_WAY_KERNEL && way->calls >= PROBE ? SYMM_WAY_PROBE : way->now;
}

void symm_way_tell(symm_cta *c) {
    symm_way *way = &c->ctl->way;
    const uint32_t i = c->epoch & 1u, last = way->took[!i];
    if (c->a->rank != 0) {
        if (last) symm_st_relaxed4(&symm_outbox(c, 0)->way[i], last);
        return;
    }
    decide(c);
    for (int p = 1; p < c->a->nranks; p++)
        symm_st_relaxed4(&symm_outbox(c, p)->way[i], way->said[i]);
}

int symm_way_times(const symm_cta *c, uint32_t epoch) {
    return c->ctl->way.timed == epoch;
}

void symm_way_learn(const symm_cta *c) {
    const uint32_t quick = c->copy_ns < c->copies * QUICK_NS + c->copied / QUICK_PER_NS;
    if (c->copied < LEAST_BYTES) return;
    c->ctl->way.took[c->epoch & 1u] = c->epoch << TOOK_BITS | (quick ? TOOK_QUICK : TOOK_SLOW);
}
