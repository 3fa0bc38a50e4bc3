/* arena_core.c - an arena over any upstream: makes and ends it, takes and frees blocks. Any thread;
 * locks as in arena_int.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/fail.h"
#include "arena_int.h"

/* Larger blocks come from the global part, unless half a superblock is larger: with large
 * superblocks a stream would otherwise wait for others at each such block. */
enum { SMALL = 32 << 10 };

/* ---- made and ended -------------------------------------------------------------------------- */

/* The map covers all offsets. Pages that are not touched cost nothing. */
static int map_open(symm_arena *a) {
    a->map_bytes = (a->up.limit / a->super + 1) * sizeof *a->map;
    void *map = SYMM_FAIL_CALL(arena_map, MAP_FAILED, ENOMEM,
                               mmap(NULL, a->map_bytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    a->map = map == MAP_FAILED ? NULL : map;
    return a->map ? 0 : -1;
}

static void free_supers(symm_arena *a) {
    for (symm_super *super = a->all, *next; super; super = next) {
        next = super->next;
        free(super);
    }
}

/* Stripe i of K gets superblocks i, i+K, ... of the one piece. Superblocks left over at the end are
 * not used. */
static symmResult_t deal_stripes(symm_arena *a) {
    uint64_t off, rounds = a->limit / a->super / (unsigned)a->stripes;
    a->stripe = SYMM_FAIL_ALLOC(arena_stripes, calloc((size_t)a->stripes, sizeof *a->stripe));
    if (!a->stripe) goto no_memory;
    for (int i = 0; i < a->stripes; i++) {
        a->stripe[i] = symm_sub_new(a, SYMM_SUB_STRIPE, NULL);
        if (!a->stripe[i]) goto no_memory;
        a->stripe[i]->ordinal = i;
        a->stripe[i]->next = a->subs;
        a->subs = a->stripe[i];
        a->nsubs++;
    }
    SYMM_TRY(a->up.take(a->up.ctx, a->limit, a->super, &off));
    symmResult_t status = symm_global_add(a, off, a->limit);
    if (status) {
        a->up.give(a->up.ctx, off, a->limit);
        return status;
    }
    for (uint64_t k = 0; k < rounds * (unsigned)a->stripes; k++) {
        symm_sub *sub = a->stripe[k % (unsigned)a->stripes];
        SYMM_TRY(symm_global_take(a, sub, NULL, a->super, a->super, 1, &off));
        if (symm_place_add(sub->place, off, a->super)) goto no_memory;
        sub->supers++;
    }
    SYMM_ASSERT(a->supers == rounds * (unsigned)a->stripes && a->nsubs == a->stripes);
    return symmSuccess;
no_memory:
    return SYMM_ERR(symmOutOfMemory, "arena %s: no memory for the records of %d stripes", a->name,
                    a->stripes);
}

symmResult_t symm_arena_new(const symm_upstream *up, const symm_arena_order *order,
                            const symm_arena_options *o, symm_arena **out) {
    symm_arena *a = SYMM_FAIL_ALLOC(arena_alloc, calloc(1, sizeof *a));
    symmResult_t status;
    if (!a) return SYMM_ERR(symmOutOfMemory, "no memory for the record of an arena");
    a->up = *up;
    a->order = *order;
    a->super = o->superblock;
    a->shift = (unsigned)__builtin_ctzll(a->super);
    a->units = a->super / SYMM_ARENA_UNIT;
    a->small = a->super / 2 > SMALL ? a->super / 2 : SMALL;
    a->first = o->first;
    a->keep = o->first ? 0 : SYMM_KEEP_UNITS;
    a->piece = o->piece;
    a->limit = o->bytes;
    a->sym = o->sym;
    a->stripes = o->sym ? o->stripes : 0;
    atomic_init(&a->only,
                order->dear && o->late && !a->sym ? SYMM_STREAM_NOBODY : SYMM_STREAM_MANY);
    if (a->sym) a->limit &= -a->super;
    /* So that sums of sizes do not overflow. Of SYM all is taken now, so too much is refused. */
    if (!a->sym && a->limit > up->limit) a->limit = up->limit;
    a->most = a->limit;
    strncpy(a->name, o->name ? o->name : "", sizeof a->name - 1);
    pthread_mutex_init(&a->lock, NULL);
    pthread_mutex_init(&a->list_lock, NULL);
    symm_bins_open();
    symm_arena_enlist(a);
    if (map_open(a) || !(a->place = symm_place_new(SYMM_PLACE_FIRST)))
        status = SYMM_ERR(symmOutOfMemory, "arena %s: no memory to place blocks", a->name);
    else
        status = a->sym ? deal_stripes(a) : symmSuccess;
    if (status) {
        symm_arena_end(a);
        return status;
    }
    *out = a;
    return symmSuccess;
}

void symm_arena_end(symm_arena *a) {
    symm_arena_delist(a); /* threads that end later do not find it any more */
    for (symm_sub *sub = a->subs, *next; sub; sub = next) {
        next = sub->next;
        symm_sub_free(sub);
    }
    symm_pending_clear(a, &a->pending);
    a->order.end(a->order.ctx);
    for (int i = 0; i < a->npieces; i++)
        a->up.give(a->up.ctx, a->pieces[i].off, a->pieces[i].bytes);
    free_supers(a);
    if (a->map) munmap(a->map, a->map_bytes);
    symm_place_end(a->place);
    symm_arena_guard_end(a->guard);
    free(a->pieces);
    free(a->stripe);
    pthread_mutex_destroy(&a->lock);
    pthread_mutex_destroy(&a->list_lock);
    free(a);
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Takes the last block of that size that this thread freed. */
static inline int take_kept(symm_arena *a, symm_sub *sub, uint64_t units, uint64_t *off) {
    symm_bin *bin = &sub->bin[units];
    const int in = symm_bins_enter(sub);
    if (__builtin_expect(!in, 0)) symm_sub_lock(sub);
    const int found = bin->n > 0;
    if (found) {
        SYMM_ASSERT(bin->low <= bin->n && bin->n <= SYMM_KEEP_EACH);
        *off = bin->off[--bin->n];
        if (bin->n < bin->low) bin->low = bin->n;
        symm_super *super = symm_super_at(a, *off);
        atomic_store_explicit(&super->block[(*off & (a->super - 1)) / SYMM_ARENA_UNIT],
                              SYMM_BLOCK_LIVE | (uint32_t)units, memory_order_relaxed);
        uint64_t kept = atomic_load_explicit(&sub->kept, memory_order_relaxed);
        SYMM_ASSERT(super && units * SYMM_ARENA_UNIT <= kept);
        atomic_store_explicit(&sub->kept, kept - units * SYMM_ARENA_UNIT, memory_order_relaxed);
    }
    if (__builtin_expect(in, 1))
        symm_bins_leave(sub);
    else
        symm_sub_unlock(sub);
    return found;
}

static symmResult_t too_much(const symm_arena *a, uint64_t bytes) {
    return SYMM_ERR(symmOutOfMemory, "arena %s: %llu bytes are more than its limit of %llu",
                    a->name, (unsigned long long)bytes, (unsigned long long)a->limit);
}

static symmResult_t take_once(symm_arena *a, symm_sub *sub, symmStream_t s, uint64_t bytes,
                              uint64_t align, int last, uint64_t *off) {
    if (!sub || bytes > a->small || align > a->super)
        return symm_global_take(a, NULL, s, bytes, align, last, off);
    return symm_sub_take(sub, bytes, align, last, off);
}

static int is_exhausted(symmResult_t status) {
    return status == symmOutOfMemory || status == symmNeedGrow;
}

void symm_arena_reclaim(symm_arena *a) {
    symm_sub *mine = symm_sub_mine(a);
    pthread_mutex_lock(&a->list_lock);
    for (symm_sub *sub = a->subs; sub; sub = sub->next) {
        if (!atomic_load_explicit(&sub->kept, memory_order_relaxed)) continue;
        symm_sub_lock(sub);
        const int barred = sub != mine && symm_bins_bar(sub);
        if (barred || sub == mine) symm_sub_flush(sub);
        if (barred) symm_bins_unbar(sub);
        symm_sub_unlock(sub);
    }
    pthread_mutex_unlock(&a->list_lock);
}

/* After a try that found no memory: tries again with all unused memory, then once more after
 * waiting for all work before the frees. */
static symmResult_t take_exhausted(symm_arena *a, symm_sub *sub, symmStream_t s, uint64_t bytes,
                                   uint64_t align, uint64_t *off) {
    symmResult_t status = symmOutOfMemory;
    for (int last = 0; last < 2 && is_exhausted(status); last++) {
        if (last) symm_arena_await(a);
        symm_arena_reclaim(a);
        symm_arena_defragment(a);
        status = take_once(a, sub, s, bytes, align, last, off);
    }
    return status;
}

symmResult_t symm_arena_take(symm_arena *a, symmStream_t s, uint64_t bytes, uint64_t align,
                             uint64_t *off) {
    symm_sub *sub = s ? NULL : symm_sub_mine(a);
    uint64_t units = (bytes + SYMM_ARENA_UNIT - 1) / SYMM_ARENA_UNIT;
    if (__builtin_expect(bytes > a->most, 0)) return too_much(a, bytes);
    SYMM_TRY(symm_arena_meet(a, s));
    if (!sub) SYMM_TRY(symm_sub_for(a, s, &sub));
    if (sub && !s && units <= a->keep && align <= SYMM_ARENA_UNIT &&
        (take_kept(a, sub, units, off) || (symm_sub_collect(sub) && take_kept(a, sub, units, off))))
        return symmSuccess;
    symmResult_t status = take_once(a, sub, s, bytes, align, 0, off);
    return __builtin_expect(is_exhausted(status), 0) ? take_exhausted(a, sub, s, bytes, align, off)
                                                     : status;
}

symmResult_t symm_arena_take_on(symm_arena *a, int stripe, uint64_t bytes, uint64_t align,
                                uint64_t *off) {
    if (bytes > a->limit) return too_much(a, bytes);
    if (bytes > a->super && a->stripes > 1)
        return SYMM_ERR(
            symmOutOfMemory,
            "arena %s: %llu bytes are more than a superblock of %llu, and with %d stripes "
            "no two superblocks of a stripe are adjacent",
            a->name, (unsigned long long)bytes, (unsigned long long)a->super, a->stripes);
    return symm_sub_take(a->stripe[stripe], bytes, align, 1, off);
}

/* ---- giving back ----------------------------------------------------------------------------- */

static symmResult_t no_block(const symm_arena *a, uint64_t off, const char *why) {
    return SYMM_ERR(symmInvalidArgument, "arena %s: no block begins at offset %llu: %s", a->name,
                    (unsigned long long)off, why);
}

/* Why no live block begins at off, which belongs to that sub or to the global part. */
static symmResult_t why_not(symm_arena *a, symm_sub *sub, uint64_t off) {
    symm_piece q = {0};
    pthread_mutex_t *lock = sub ? &sub->lock : &a->lock;
    pthread_mutex_lock(lock);
    int found =
        sub ? symm_place_at(sub->place, off, &q) && q.off <= off : symm_global_at(a, off, &q);
    pthread_mutex_unlock(lock);
    if (found && q.used && q.off != off) return no_block(a, off, "it lies inside a block");
    if (!found) return no_block(a, off, "it is no memory of this arena");
    return no_block(a, off, "it is free, or was freed already");
}

symmResult_t symm_arena_refuse(symm_arena *a, uint64_t off) {
    const symm_super *super = symm_super_at(a, off);
    return why_not(a, super ? atomic_load_explicit(&super->owner, memory_order_acquire) : NULL,
                   off);
}

static int block_at(symm_arena *a, uint64_t off, uint64_t *begin, uint64_t *bytes) {
    const symm_super *super = symm_super_at(a, off);
    symm_sub *owner = super ? atomic_load_explicit(&super->owner, memory_order_acquire) : NULL;
    pthread_mutex_t *lock = owner ? &owner->lock : &a->lock;
    symm_piece q = {0};
    pthread_mutex_lock(lock);
    int found = owner ? symm_place_at(owner->place, off, &q) : symm_global_at(a, off, &q);
    pthread_mutex_unlock(lock);
    if (!found || !q.used || q.off > off) return 0;
    *begin = q.off;
    *bytes = q.bytes;
    if (!owner) return 1;
    super = symm_super_at(a, q.off); /* the block may begin in an earlier superblock */
    const uint32_t is = atomic_load_explicit(
        &super->block[(q.off & (a->super - 1)) / SYMM_ARENA_UNIT], memory_order_relaxed);
    return (is & SYMM_BLOCK_LIVE) != 0;
}

int symm_arena_block(symm_arena *a, uint64_t off, uint64_t *begin, uint64_t *bytes) {
    return block_at(a, off, begin, bytes) &&
           (!a->guard || symm_arena_guard_narrow(a->guard, *begin, off, bytes));
}

static inline int is_full(const symm_sub *sub, uint64_t units) {
    return sub->bin[units].n == SYMM_KEEP_EACH || sub->frees >= SYMM_KEEP_CALLS ||
           atomic_load_explicit(&sub->kept, memory_order_relaxed) > SYMM_KEEP_BYTES;
}

/* Keeps the block for this thread's next call. */
static inline void keep(symm_sub *sub, uint64_t units, uint64_t off) {
    symm_bin *bin = &sub->bin[units];
    int in = symm_bins_enter(sub);
    if (__builtin_expect(in && is_full(sub, units), 0)) {
        symm_bins_leave(sub);
        in = 0;
    }
    if (__builtin_expect(!in, 0)) {
        symm_bins_shrink(sub, (uint32_t)units);
        symm_sub_lock(sub); /* the bin is not fuller now: others only empty it */
    }
    SYMM_ASSERT(bin->n < SYMM_KEEP_EACH);
    bin->off[bin->n++] = off;
    sub->frees++;
    uint64_t kept = atomic_load_explicit(&sub->kept, memory_order_relaxed);
    atomic_store_explicit(&sub->kept, kept + units * SYMM_ARENA_UNIT, memory_order_relaxed);
    if (__builtin_expect(in, 1))
        symm_bins_leave(sub);
    else
        symm_sub_unlock(sub);
}

symmResult_t symm_arena_give(symm_arena *a, symmStream_t s, uint64_t off) {
    symm_super *super = symm_super_at(a, off);
    symm_sub *owner = super ? atomic_load_explicit(&super->owner, memory_order_acquire) : NULL;
    if (off % SYMM_ARENA_UNIT) return why_not(a, owner, off);
    SYMM_TRY(symm_arena_meet(a, s));
    if (!owner) return symm_global_give(a, NULL, s, off) ? why_not(a, NULL, off) : symmSuccess;
    _Atomic uint32_t *block = &super->block[(off & (a->super - 1)) / SYMM_ARENA_UNIT];
    uint32_t is = atomic_load_explicit(block, memory_order_relaxed);
    /* Of two frees of a block one wins, whichever threads they come from. */
    if (!(is & SYMM_BLOCK_LIVE) || !atomic_compare_exchange_strong_explicit(
                                       block, &is, (is & ~SYMM_BLOCK_LIVE) | SYMM_BLOCK_KEPT,
                                       memory_order_acq_rel, memory_order_relaxed))
        return why_not(a, owner, off);
    uint64_t units = is & SYMM_BLOCK_UNITS;
    if (a->sym || symm_sub_is(owner, s)) {
        if (!s && !a->sym && units <= a->keep) {
            keep(owner, units, off);
            return symmSuccess;
        }
        atomic_store_explicit(block, 0, memory_order_relaxed);
        symm_sub_give(owner, off);
        return symmSuccess;
    }
    /* Another thread's block. The NULL stream is the same for both. */
    symm_sub *mine = s ? NULL : symm_sub_mine(a);
    if (mine && units <= a->keep &&
        atomic_load_explicit(&owner->kind, memory_order_relaxed) == SYMM_SUB_THREAD)
        keep(mine, units, off);
    else
        symm_sub_give_far(owner, off, s);
    return symmSuccess;
}

/* ---- tidying --------------------------------------------------------------------------------- */

void symm_arena_stream_end(symm_arena *a, symmStream_t s) {
    pthread_mutex_lock(&a->list_lock);
    for (symm_sub *sub = s ? a->subs : NULL; sub; sub = sub->next) {
        if (symm_sub_stream(sub) == s) symm_sub_close(sub);
        if (!a->order.recycles) continue;
        pthread_mutex_lock(&sub->far_lock);
        symm_pending_disown(&sub->waits, s);
        pthread_mutex_unlock(&sub->far_lock);
    }
    pthread_mutex_unlock(&a->list_lock);
    if (s && a->order.recycles) symm_global_stream_end(a, s);
}

void symm_arena_defragment(symm_arena *a) {
    if (a->sym) return;
    pthread_mutex_lock(&a->list_lock);
    for (symm_sub *sub = a->subs; sub; sub = sub->next) {
        symm_sub_lock(sub);
        const int stream =
            atomic_load_explicit(&sub->kind, memory_order_relaxed) == SYMM_SUB_STREAM;
        /* A stream that is being captured can neither be made to wait nor be asked. */
        if (!stream || a->order.able(a->order.ctx, symm_sub_stream(sub))) {
            /* A thread waits for streams itself when it needs what they freed. */
            (void)symm_sub_drain(sub, stream);
            symm_sub_tidy(sub, 0);
        }
        symm_sub_unlock(sub);
    }
    pthread_mutex_unlock(&a->list_lock);
}

uint64_t symm_arena_trim(symm_arena *a) {
    if (a->sym) return 0;
    symm_arena_reclaim(a);
    symm_arena_defragment(a);
    symm_arena_lock(a);
    uint64_t returned = symm_global_return_parts(a);
    symm_arena_unlock(a);
    return returned;
}
