/* exchange.c - the collective part of a registration: allgather of records, freeing slots that all
 * have dropped, an offset that is free on all ranks, handles, mapping, agreement. Runs on the
 * thread inside the API call. */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/stats.h"
#include "host/comm/comm.h"
#include "transport/vmm/memcut.h"
#include "multicast.h"
#include "space.h"

#define OFFER_SLOTS 32 /* in one message of an offer */

typedef struct { /* one registration under way */
    symm_comm *c;
    const symm_bring *bring;
    const char *stage;
    symm_brought *all;
    symm_slot *slot;
    symm_handle_exchange trade;
} exchange;

static symmResult_t gather(exchange *x, const symm_brought *mine) {
    return symm_comm_gather(x->c, mine, x->all, sizeof *mine, x->stage);
}

/* What this rank brings: pieces one after the other, found by their hash. */
static void bring_check(const symm_bring *b) {
    uint64_t total = 0;
    SYMM_ASSERT(b->count >= 0 && b->count <= SYMM_MAX_SEGMENTS);
    for (int i = 0; i < b->count; i++) {
        SYMM_ASSERT(b->parts[i].off == total && b->parts[i].bytes && b->handles[i]);
        total += b->parts[i].bytes;
    }
    SYMM_ASSERT(!b->count || (total == b->total && b->id));
    SYMM_ASSERT(!b->count || b->user_off < b->parts[0].bytes);
    SYMM_ASSERT(!b->count || b->user_bytes <= total - b->user_off);
}

/* Everybody's status becomes the worst of all. */
static symmResult_t agree(exchange *x, symmResult_t mine) {
    return symm_comm_agree(x->c, mine, x->stage);
}

static int any_failed(const exchange *x) {
    for (int r = 0; r < x->c->nranks; r++)
        if (x->all[r].code) return 1;
    return 0;
}

/* ---- maps ------------------------------------------------------------------------------------ */

/* A rank's segments follow each other from the beginning of the slot. */
symmResult_t symm_exchange_map(symm_comm *c, symm_slot *slot, uint64_t total, int rank,
                               symm_vmm_handle *h, symm_part part) {
    const symm_vmm *v = c->vmm;
    uint64_t *mapped = &slot->rank_bytes[rank];
    if (part.off != *mapped || *mapped + part.bytes < part.bytes || *mapped + part.bytes > total)
        return SYMM_ERR(symmInternalError, "rank %d sent other memory than it announced", rank);
    char *at = symm_space_addr(c->space, rank, slot->off + part.off);
    int cu = v->map(at, part.bytes, 0, h);
    if (cu)
        return symm_vmm_error(v, cu, "mapping %llu bytes of rank %d",
                              (unsigned long long)part.bytes, rank);
    *mapped += part.bytes; /* from here on the slot unmaps it */
    cu = v->set_access(at, part.bytes);
    if (cu)
        return symm_vmm_error(v, cu, "giving access to %llu bytes of rank %d",
                              (unsigned long long)part.bytes, rank);
    return symmSuccess;
}

static symmResult_t map_one(void *arg, int rank, symm_vmm_handle *h, symm_part part) {
    exchange *x = arg;
    return symm_exchange_map(x->c, x->slot, x->all[rank].total, rank, h, part);
}

/* ---- what all have dropped ------------------------------------------------------------------- */

/* The largest number of dropped slots on a rank; 0 if a rank has none, because then no slot is
 * dropped everywhere. Computed from the records only, so every rank gets the same. */
static uint64_t most_dropped(const exchange *x) {
    uint64_t most = 0;
    for (int r = 0; r < x->c->nranks; r++) {
        if (x->all[r].dropped == 0) return 0;
        if (x->all[r].dropped > most) most = x->all[r].dropped;
    }
    return most;
}

/* Frees the slots that all ranks have dropped, so that their ranges can be taken at once. Each rank
 * lists its dropped slots to the others, in as many messages as the longest list needs. A slot that
 * is in all lists has no user. */
static symmResult_t free_dropped(exchange *x) {
    uint64_t mine[OFFER_SLOTS], all[SYMM_MAX_RANKS][OFFER_SLOTS], from = 0, most = most_dropped(x);
    symm_space *s = x->c->space;
    symm_slots_offer(s, x, most);
    for (uint64_t at = 0; at < most; at += OFFER_SLOTS) {
        from = symm_slots_offered(s, x, from, mine, OFFER_SLOTS);
        symmResult_t r = symm_comm_gather(x->c, mine, all, sizeof mine, x->stage);
        if (r) {
            symm_slots_withdraw(s, x);
            return r;
        }
        for (int p = 0; p < x->c->nranks; p++) symm_slots_heard(s, x, all[p], OFFER_SLOTS);
    }
    if (most) symm_slots_settle(s, x);
    return symmSuccess;
}

/* ---- offset ---------------------------------------------------------------------------------- */

static uint64_t largest(const exchange *x) {
    uint64_t most = 0;
    for (int r = 0; r < x->c->nranks; r++)
        if (x->all[r].total > most) most = x->all[r].total;
    return most;
}

static uint64_t least(const exchange *x) {
    uint64_t bytes = x->all[0].total;
    for (int r = 1; r < x->c->nranks; r++)
        if (x->all[r].total < bytes) bytes = x->all[r].total;
    return bytes;
}

/* 1: this rank has a range at or above `from`. */
static int find_range(exchange *x, symm_brought *mine, uint64_t bytes, uint64_t from) {
    if (x->slot) return symm_slot_move(x->c->space, x->slot, from);
    mine->code = (int32_t)symm_slot_take(x->c->space, bytes, from, &x->slot);
    return x->slot != NULL;
}

enum { AGAIN = 10 };

/* Gives the range back, so that others find room. From the second time on it also waits, so that
 * they go first: for a time drawn anew, whose limit doubles. Rank 0 alone waits; the others wait
 * for it in the next exchange. Where there is no room, a registration is refused after 52 ms of
 * these at most. */
static void begin_again(exchange *x, int begun) {
    enum { FIRST_US = 100 };
    struct timespec now;
    symm_slot_discard(x->c->space, x->slot);
    x->slot = NULL;
    if (begun < 2 || x->c->rank) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    usleep((unsigned)(now.tv_nsec % (FIRST_US << (begun - 2))));
}

/* Every rank proposes its lowest free range. The highest proposal is the next lower bound. They
 * repeat until all are equal. A rank never proposes a range that it has mapped, so such a range is
 * not reused.
 * Other communicators may register at the same time in the same space. Where ranks take the ranges
 * of two in different orders, each drives the other up, perhaps past the end of the space; and
 * slots that ranks have put into different offers were not freed. So if a rank has no range above
 * the bound, all give their ranges back, free what they have dropped and begin again at 0, AGAIN
 * times. */
static symmResult_t settle_offset(exchange *x, symm_brought *mine) {
    symm_space *s = x->c->space;
    const uint64_t gran = x->c->caps.granularity;
    uint64_t bytes = (largest(x) + gran - 1) / gran * gran, from = 0;
    if (bytes == 0) bytes = gran; /* all ranks are empty; the window needs an offset */
    for (int begun = 0;;) {
        const int found = find_range(x, mine, bytes, from);
        uint64_t lo = SYMM_NO_OFFSET, hi = 0;
        mine->propose = found ? x->slot->off : SYMM_NO_OFFSET;
        mine->dropped = symm_slots_dropped(s, NULL);
        SYMM_TRY(gather(x, mine));
        if (any_failed(x)) return agree(x, (symmResult_t)mine->code);
        for (int r = 0; r < x->c->nranks; r++) {
            if (x->all[r].propose < lo) lo = x->all[r].propose;
            if (x->all[r].propose > hi) hi = x->all[r].propose;
        }
        from = hi;
        if (hi == SYMM_NO_OFFSET) {
            if (begun++ == AGAIN)
                return agree(x, found ? symmSuccess : symm_slot_no_room(s, bytes));
            begin_again(x, begun);
            SYMM_TRY(free_dropped(x));
            from = 0;
        } else if (lo == hi) {
            return symmSuccess;
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* 1 if every rank has its segments in the same slot already. */
static int all_have(const exchange *x) {
    for (int r = 0; r < x->c->nranks; r++)
        if (x->all[r].slot == SYMM_NO_OFFSET || x->all[r].slot != x->all[0].slot) return 0;
    return 1;
}

static int someone_has(const exchange *x) {
    for (int r = 0; r < x->c->nranks; r++)
        if (x->all[r].slot != SYMM_NO_OFFSET) return 1;
    return 0;
}

static symmResult_t map_all(exchange *x) {
    int counts[SYMM_MAX_RANKS];
    for (int r = 0; r < x->c->nranks; r++) counts[r] = x->all[r].count;
    SYMM_TRY(symm_handle_exchange_run(&x->trade, counts));
    if (!x->trade.status && SYMM_FAIL_HERE(win_commit))
        x->trade.status = SYMM_ERR(symmSystemError, "failpoint win_commit");
    SYMM_TRY(agree(x, x->trade.status));
    return symm_multicast_bind_range(x->c, x->slot, x->bring->handles, x->bring->parts,
                                     x->bring->count, 0, least(x), x->stage);
}

static symmResult_t map_new(exchange *x, symm_brought *mine, int late_export) {
    if (late_export) { /* a rank expected to share its slot and has not exported yet */
        symmResult_t r = symm_handle_exchange_export(&x->trade);
        SYMM_TRY(agree(x, r));
    }
    SYMM_TRY(free_dropped(x));
    SYMM_TRY(settle_offset(x, mine));
    SYMM_TRY(map_all(x));
    symm_memcut_look(); /* all ranks have passed free_dropped */
    symm_slot_publish(x->c->space, x->slot, x->bring->id);
    return symmSuccess;
}

symmResult_t symm_exchange(symm_comm *c, symmResult_t status, const symm_bring *bring,
                           const char *stage, symm_brought *all, symm_slot **slot, int *shared) {
    exchange x = {.c = c, .bring = bring, .stage = stage, .all = all};
    x.trade = (symm_handle_exchange){.c = c,
                                     .stage = stage,
                                     .handles = bring->handles,
                                     .parts = bring->parts,
                                     .count = bring->count,
                                     .map = map_one,
                                     .arg = &x};
    symm_brought mine = {.count = bring->count,
                         .total = bring->total,
                         .user_bytes = bring->user_bytes,
                         .user_off = bring->user_off,
                         .slot = SYMM_NO_OFFSET,
                         .propose = SYMM_NO_OFFSET};
    if (!status) SYMM_CHECK(bring_check(bring));
    symm_slot *have =
        status || !bring->count ? NULL : symm_slot_find(c->space, bring->id, bring->total);
    mine.dropped = symm_slots_dropped(c->space, have); /* dropped again unless all have it */
    if (have)
        mine.slot = have->off;
    else if (!status)
        status = symm_handle_exchange_export(&x.trade);
    mine.code = (int32_t)status;
    status = gather(&x, &mine);
    int good = !status && !any_failed(&x);
    if (good && have && all_have(&x)) {
        *shared = 1;
        *slot = have;
        return symmSuccess;
    }
    symm_slot_drop(c->space, have);
    if (good)
        status = map_new(&x, &mine, someone_has(&x));
    else if (!status)
        status = agree(&x, (symmResult_t)mine.code);
    symm_handle_exchange_close(&x.trade);
    if (status) {
        SYMM_STAT_ADD(rollbacks, 1);
        symm_slot_discard(c->space, x.slot); /* no collective has used it */
        return status;
    }
    SYMM_ASSERT(x.slot && x.slot->off == all[0].propose);
    *shared = 0;
    *slot = x.slot;
    return symmSuccess;
}
