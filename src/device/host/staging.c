/* staging.c - buffers in no window: where in its places a call stages them, and whether it does, or
 * peers read them through the kernel (direct.c). Runs on the thread that runs the kernel. No lock.
 *
 * Which is faster depends on the machine, on the size, and on how far the ranks' cores are from
 * each other; and a machine may move them while a program runs. So rank 0 times calls, for each
 * collective and range of sizes: the last ones of a run, then some that go the other way. That is
 * kept if it is faster by an eighth. In all these calls every rank waits for all others, so one
 * rank sees what they take. What others copy out of staging last, it sees in its next call.
 *
 * Rank 0 says in each epoch which way calls of the next one go that may go either
 * (SYMM_ARG_EITHER). Every rank has heard from rank 0 in epoch e-1 before its kernel of epoch e
 * begins, so all take the same one. Captured calls too: it is looked up when a kernel runs. The
 * bits are the same.
 *
 * Until rank 0 has said anything, calls go as the planner has found when the communicator was made
 * (SYMM_ARG_NEAR). */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/wait.h"
#include "device/common/colls.h"
#include "dev.h"

enum { WALK_RANKS = 8 };
/* Calls of a kind that are timed: the last ones of a run, and of those that try the other way. The
 * first call behind a change of way is not: caches and pages are not yet those of that way, and in
 * its first wait it meets what other ranks still do of the last call. Calls of the first run, and
 * of later ones. */
enum { TIMED = 3, RUN_FIRST = 4, RUN_LEAST = 64, RUN_MOST = 512 };
/* Calls of one kind differ in size, up to four times. Times are compared by this many bytes and
 * those that a call's own cost is worth. */
#define OWN_BYTES   (16u << 10)
#define LEAST_BYTES (16u << 10) /* of a call that may go either way; the first range begins here */

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

uint64_t (*symm_way_clock)(const symm_ctl *ctl);

static uint64_t clock_of(const symm_ctl *ctl) {
    return symm_way_clock ? symm_way_clock(ctl) : symm_now_ns();
}

/* Equal on all ranks: reductions whose result goes to all, in parts, or to a root; copies of one
 * part to all, or of a part to each. Other collectives go one way (plan.c). */
static int kind_of(int coll, const symm_args *a) {
    const symm_coll_row *row = &symm_colls[coll];
    const int reduces = (row->flags & SYMM_COLL_REDUCES) != 0, each = row->in == SYMM_EACH,
              shape = !reduces                      ? 3 + each
                      : row->flags & SYMM_COLL_ROOT ? 2
                                                    : each;
    int size = 0;
    for (uint64_t least = 4u * LEAST_BYTES; size < SYMM_WAY_SIZES - 1; least *= 4, size++)
        if (a->count * a->esize < least) break;
    return shape * SYMM_WAY_SIZES + size;
}

/* What rank 0 has said in the epoch before this one. */
static uint32_t said(const symm_args *a, const symm_ctl *ctl, uint32_t epoch) {
    const uint32_t i = (epoch - 1) & 1u;
    if (a->rank == 0) return ctl->way.said[i];
    return symm_ld_relaxed4(&ctl->inbox[0][0].way[i]);
}

/* Between windows both ways are one. With a root, others have one buffer. */
static int is_private(int coll, const symm_args *a) {
    const int takes = !(symm_colls[coll].flags & SYMM_COLL_ROOT) || a->host.root == a->rank;
    return symm_is_private(a->src_off) || (takes && symm_is_private(a->dst_off));
}

/* Rank 0: whether to time this call. Not the first one behind a step, which goes as was said
 * before it. */
static int times(const symm_way_turn *t, symm_ctl *ctl) {
    symm_way_kind *k = &ctl->ways[t->kind];
    if (!k->run) k->left = k->run = RUN_FIRST;
    if (t->other != (int)((ctl->way.kept ^ ctl->way.tried) >> t->kind & 1)) return 0;
    if (k->left > TIMED) {
        k->left--;
        return 0;
    }
    if (k->left == TIMED) k->least[t->other] = UINT32_MAX;
    return 1;
}

const symm_args *symm_way_take(symm_way_turn *t, int coll, const symm_args *a, symm_ctl *ctl,
                               uint32_t epoch, symm_args *staged) {
    t->kind = kind_of(coll, a);
    t->other = said(a, ctl, epoch) >> t->kind & 1;
    const int stages = t->other != ((a->flags & SYMM_ARG_NEAR) != 0);
    ctl->way.now = stages ? SYMM_WAY_STAGING : SYMM_WAY_KERNEL;
    t->timed = is_private(coll, a) && a->rank == 0 && times(t, ctl);
    if (t->timed) t->since = clock_of(ctl);
    if (!stages) return a;
    *staged = *a;
    staged->flags &= ~(uint32_t)(SYMM_ARG_DIRECT | SYMM_ARG_WRITES);
    if (symm_is_private(a->src_off)) staged->src_off = SYMM_STAGED;
    if (symm_is_private(a->dst_off)) staged->dst_off = SYMM_STAGED;
    return staged;
}

void symm_way_learn(const symm_way_turn *t, const symm_args *a, symm_ctl *ctl) {
    symm_way_kind *k = &ctl->ways[t->kind];
    symm_way *way = &ctl->way;
    const uint32_t bit = 1u << t->kind, *least = k->least;
    const uint64_t took = (clock_of(ctl) - t->since) * 1024 / (a->count * a->esize + OWN_BYTES);
    if (took < k->least[t->other]) k->least[t->other] = (uint32_t)took;
    if (--k->left) return;
    way->tried ^= bit;
    if (way->tried & bit) {
        k->left = TIMED + 1;
        return;
    }
    const int faster = least[t->other] < least[!t->other] - least[!t->other] / 8;
    if (faster) way->kept ^= bit;
    if (faster || k->run < RUN_LEAST)
        k->run = RUN_LEAST;
    else if (k->run < RUN_MOST)
        k->run *= 2;
    k->left = k->run;
}

void symm_way_tell(const symm_cta *c) {
    symm_way *way = &c->ctl->way;
    const uint32_t i = c->epoch & 1u;
    way->said[i] = way->kept ^ way->tried;
    for (int p = 1; p < c->a->nranks; p++)
        symm_st_relaxed4(&symm_outbox(c, p)->way[i], way->said[i]);
}
