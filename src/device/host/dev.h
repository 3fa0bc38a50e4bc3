/* dev.h - what a kernel body is written in: addresses, waiting, moving and reducing, for the
 * backend that compiles it.
 *
 * A body (a file per collective) says who sends what to whom, with which flag and after which wait;
 * it is the same text for every backend. How a span is moved, how it is reduced, what a packet
 * looks like and how one waits is here, and this is the only place that names memory order and
 * scope. On the host a CTA is one thread, the grid runs CTA after CTA, and a CTA waits only for the
 * same CTA of its peers, so running them in sequence cannot deadlock. */
#ifndef SYMM_DEV_H_
#define SYMM_DEV_H_

#include "device/common/records.h"

#ifdef __CUDACC__
#error "the GPU primitives are not part of this build"
#endif

#include <stddef.h>

#include "symm.h"
#include "reduce.h"

#define SYMM_DEV static inline

typedef struct { /* one CTA at work */
    const symm_args *a;
    symm_ctl *ctl;  /* own control block */
    uint32_t epoch; /* of this collective */
    int cta;
    symm_outcome *out;  /* out->code != 0: the body is leaving */
    uint64_t *scalars;  /* premulsum: one per rank, filled by symm_scalars */
    uint64_t left_seen; /* the wait (by its start) in which an awaited peer was seen to have left */
    int long_seen;      /* a wait of this kernel has lasted a second, and symm_wait_long was told */
    uint32_t vain;      /* of symm_give_core */
    uint64_t walk;      /* where in its places this call stages (symm_walk) */
    int heard;          /* every peer's signature of this epoch has come with its packets */
} symm_cta;

/* ---- memory order: every ordered access of the library's kernels ----------------------------- */

/* Pairs with symm_st_release of a peer: what it wrote before is visible after. */
SYMM_DEV uint64_t symm_ld_acquire(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
SYMM_DEV uint64_t symm_ld_relaxed(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
/* Pairs with symm_ld_acquire in the rank that owns *p. Stores past the caches are fenced where they
 * are made. */
SYMM_DEV void symm_st_release(uint64_t *p, uint64_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
SYMM_DEV void symm_st_relaxed(uint64_t *p, uint64_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/* Between a rank that leaves early and a peer that still reads its memory (direct.c): words set in
 * the peers before are seen by whoever sees what is stored after; what was loaded before, by this
 * thread or by the kernel for it, was loaded before what is loaded after. On x86 a locked
 * instruction set those words, and loads keep their order. */
SYMM_DEV void symm_fence(void) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__ __volatile__("" ::: "memory");
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
/* A store and a load in one order with all others of these: of two threads that store to one word
 * and then load the other's, one at least sees the other. */
SYMM_DEV void symm_st_ordered(uint64_t *p, uint64_t v) {
    __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}
SYMM_DEV uint64_t symm_ld_ordered(const uint64_t *p) {
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

SYMM_DEV uint32_t symm_ld_relaxed4(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
SYMM_DEV void symm_st_relaxed4(uint32_t *p, uint32_t v) {
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}

SYMM_DEV void symm_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory"); /* yield does nothing on most cores */
#else
    __asm__ __volatile__("" ::: "memory");
#endif
}

/* Takes the cache line of *p for writing, ahead of a store: a line that a peer has read last would
 * else make the store, and whoever waits for it, a round trip later. */
SYMM_DEV void symm_own_line(void *p) {
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" ::"m"(*(char *)p));
#else
    __builtin_prefetch(p, 1, 3);
#endif
}

/* Gives the cache line of *p, just written, to the cache that the cores share: the peer that waits
 * for it finds it there instead of asking this core. CLDEMOTE; where the processor does not know
 * it, the opcode is a NOP. */
SYMM_DEV void symm_give_line(void *p) {
#if defined(__x86_64__)
    __asm__ __volatile__(".byte 0x0f, 0x1c, 0x00" ::"a"(p) : "memory"); /* cldemote (%rax) */
#else
    (void)p;
#endif
}
/* Bytes of a packet whose lines are given to its reader, and taken ahead of the next one. */
#define SYMM_HAND_OVER 1024u

/* ---- addresses ------------------------------------------------------------------------------- */

SYMM_DEV char *symm_flat(const symm_args *a, int rank, uint64_t off) {
    return (char *)(uintptr_t)(a->base + (uint64_t)rank * a->stride +
                               off); /* modulo 2^64 on purpose */
}
SYMM_DEV symm_ctl *symm_ctl_of(const symm_args *a, int rank) {
    return (symm_ctl *)(void *)symm_flat(a, rank, 0);
}
/* My line in peer's control block, and peer's line in mine. */
SYMM_DEV symm_inbox *symm_outbox(const symm_cta *c, int peer) {
    return &symm_ctl_of(c->a, peer)->inbox[c->cta][c->a->rank];
}
SYMM_DEV symm_inbox *symm_inbox_of(const symm_cta *c, int peer) {
    return &c->ctl->inbox[c->cta][peer];
}
/* The peers in a staggered order: q = 1..n-1 gives rank+1, rank+2, ..., so that no two ranks start
 * on the same one. */
SYMM_DEV int symm_peer(const symm_args *a, int q) {
    int p = a->rank + q;
    return p >= a->nranks ? p - a->nranks : p;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Never 0, which is what unused words hold; the parity goes on. */
SYMM_DEV uint32_t symm_next_epoch(uint32_t e) {
    return e == UINT32_MAX ? 2 : e + 1;
}

SYMM_DEV uint64_t symm_word(uint32_t epoch, uint32_t number) {
    return ((uint64_t)epoch << 32) | number;
}

/* The slow path of every wait (wait.c): looks at the abort word, the peers' signatures and states,
 * the deadline; gives the core away. *turns counts the calls of one wait. Returns 0 to go on
 * waiting, else the code that is now in c->out. */
int symm_wait_slow(symm_cta *c, int peer, int stage, uint64_t *turns);
/* Parts of it: the abort word, and the death word too; the deadline and the peer's state. And the
 * peer's own abort word. */
int symm_wait_abort_only(symm_cta *c, int stage);
int symm_wait_abort_of(symm_cta *c, int peer, int stage);
int symm_wait_abort(symm_cta *c, int stage);
int symm_wait_clock(symm_cta *c, int peer, int stage, uint64_t *turns);

/* One poll has failed: the i-th since the slow path was taken last. */
SYMM_DEV int symm_wait_turn(symm_cta *c, uint32_t *i, int peer, int stage, uint64_t *turns) {
    if (*i < 32) return 0; /* the first polls bare: a pause costs as much as the line's way here */
    symm_relax();
    if (*i < c->a->host.spin) return 0;
    *i = 0;
    return symm_wait_slow(c, peer, stage, turns);
}

/* Waits until *p, a word that `peer` releases, is at most `ahead` beyond `want`. So it is of want's
 * epoch, and has reached its number: a word of another epoch is further off, whichever way epochs
 * have wrapped since. 0, or non-zero: leave the body. */
SYMM_DEV int symm_wait_within(symm_cta *c, const uint64_t *p, uint64_t want, uint64_t ahead,
                              int peer, int stage) {
    uint64_t turns = 0;
    for (uint32_t i = 1; symm_ld_acquire(p) - want > ahead; i++)
        if (symm_wait_turn(c, &i, peer, stage, &turns)) return 1;
    return 0;
}
/* The number is any: a signature. want has 0 for it. */
SYMM_DEV int symm_wait_epoch(symm_cta *c, const uint64_t *p, uint64_t want, int peer, int stage) {
    return symm_wait_within(c, p, want, UINT32_MAX, peer, stage);
}
/* The number counts chunks, fewer than 2^31. A word of the next epoch is then further ahead. Such a
 * word is 0, which nobody has written, in the last epoch before they wrap. */
SYMM_DEV int symm_wait_number(symm_cta *c, const uint64_t *p, uint64_t want, int peer, int stage) {
    return symm_wait_within(c, p, want, INT32_MAX, peer, stage);
}

/* ---- spans ----------------------------------------------------------------------------------- */

SYMM_DEV void symm_move(const symm_cta *c, void *dst, const void *src, uint64_t bytes) {
    if (dst == src || bytes == 0) return;
    if (c->a->flags & SYMM_ARG_NT)
        symm_reduce->copy_nt(dst, src, bytes);
    else
        symm_reduce->copy(dst, src, bytes);
}
SYMM_DEV void symm_move_cached(void *dst, const void *src, uint64_t bytes) {
    if (dst != src && bytes) symm_reduce->copy(dst, src, bytes);
}

/* Reduces `count` elements of srcs, in rank order, into dst. */
SYMM_DEV void symm_reduce_here(const symm_cta *c, char *dst, const void *const *srcs,
                               uint64_t count) {
    symm_reduce->reduce[c->a->type][c->a->op](dst, srcs, c->a->nranks, count, c->scalars);
}

/* ---- packets: data and flag in one go, at fixed places --------------------------------------- */

/* Slot of source `src` for phase 0 or 1 in rank's scratch, for this epoch. */
SYMM_DEV char *symm_slot(const symm_cta *c, int rank, int phase, int src) {
    const symm_scratch *s = &c->a->scratch;
    uint64_t i = ((c->epoch & 1u) * 2u + (unsigned)phase) * (unsigned)c->a->nranks + (unsigned)src;
    return symm_flat(c->a, rank, s->host.packet_off + i * s->host.packet_slot);
}
/* The data begins a line after the flag: a line that its reader polls comes and goes between two
 * stores to it. */
SYMM_DEV char *symm_packet_data(char *packet) {
    return packet + 64;
}
SYMM_DEV void symm_packet_put(const symm_cta *c, char *packet, const void *src, uint64_t bytes) {
    symm_move_cached(symm_packet_data(packet), src, bytes);
    /* Pairs with symm_packet_came. The flag carries the signature, so whoever got a packet need not
     * look for it elsewhere. */
    symm_st_release((uint64_t *)(void *)packet, symm_word(c->epoch, c->a->sig));
    if (bytes > SYMM_HAND_OVER) return;
    symm_give_line(packet);
    for (uint64_t at = 0; at < bytes; at += 64) symm_give_line(symm_packet_data(packet) + at);
}
SYMM_DEV int symm_packet_came(const symm_cta *c, const char *packet) {
    return symm_ld_acquire((const uint64_t *)(const void *)packet) == /* pairs with the release */
           symm_word(c->epoch, c->a->sig);                            /* of symm_packet_put */
}
/* A packet of another signature is not ours: the wait goes on until its slow path has found who
 * differs. */
SYMM_DEV int symm_packet_wait(symm_cta *c, const char *packet, int peer) {
    uint64_t turns = 0;
    for (uint32_t i = 1; !symm_packet_came(c, packet); i++)
        if (symm_wait_turn(c, &i, peer, SYMM_STAGE_PACKET, &turns)) return 1;
    return 0;
}

/* Reduces the message out of all peers' packets of phase 0, CTA b those of b, b + nctas, ...
 * (all_reduce.c). */
void symm_packets_reduce(symm_cta *c);

/* Sets the peers' abort words, or their death words, to c->out's reason: whoever waits for this
 * rank would wait for ever. */
void symm_tell_peers(const symm_cta *c);
/* ---- memory of a peer that is not mapped here (direct.c) ------------------------------------- */

/* 0, or non-zero: leave the body; c->out says whose memory could not be reached. */
int symm_direct_read(symm_cta *c, int peer, void *mine, uint64_t theirs, uint64_t bytes);
/* The same of a buffer of peer's that peer has offered in this call (SYMM_ARG_WRITES). */
int symm_direct_write(symm_cta *c, int peer, uint64_t theirs, const void *mine, uint64_t bytes);
/* Behind symm_tell_peers, of a call with SYMM_ARG_WRITES: when this returns, no peer writes into
 * this rank's buffers any more (direct.c says what is left). */
void symm_direct_close(symm_cta *c);
/* After the last read of a CTA, by whichever rank, that its result has come from. 0, or non-zero: a
 * rank has left with an error, so what was read may be something else. */
int symm_direct_check(symm_cta *c);
/* The same between windows, of ranks that have aborted while that was no error yet (peerDeath). */
int symm_abort_check(symm_cta *c);

SYMM_DEV int symm_is_private(uint64_t off) {
    return off >> 62 == SYMM_PRIVATE >> 62;
}

/* ---- staging (staging.c) --------------------------------------------------------------------- */

/* The room of a place where scratch has it, what a call must stage to walk through it, and how
 * often it must fit in. */
#define SYMM_WALK       (1ull << 20)
#define SYMM_WALK_LEAST (16u << 10)
#define SYMM_WALK_STEPS 4u

/* Bytes between two places. */
SYMM_DEV uint64_t symm_place_bytes(const symm_cta *c) {
    const uint64_t least = c->a->host.chunk, per = 4ull * (unsigned)c->a->nctas;
    return least < SYMM_WALK && per * SYMM_WALK <= c->a->scratch.host.stage_bytes ? SYMM_WALK
                                                                                  : least;
}
/* Staging place of chunk k in rank's scratch; out: the destination's half. */
SYMM_DEV char *symm_stage(const symm_cta *c, int rank, uint64_t k, int out) {
    const symm_scratch *s = &c->a->scratch;
    uint64_t place = ((unsigned)c->cta * 2u + (k & 1u)) * 2u + (unsigned)out;
    return symm_flat(c->a, rank,
                     s->host.stage_off + (c->epoch & 1u) * s->host.stage_bytes +
                         place * symm_place_bytes(c) + c->walk);
}

/* Calls that stage less than a place has walk through it, each behind the last one of its parity: a
 * line that another core has read last waits for that core's cache when it is written again, one
 * that has meanwhile gone on to the shared cache does not. `bytes`: of one place; equal on all
 * ranks. */
void symm_walk_on(symm_cta *c, uint64_t bytes);
SYMM_DEV void symm_walk(symm_cta *c, uint64_t bytes) {
    if (bytes >= SYMM_WALK_LEAST && !(c->a->flags & SYMM_ARG_DIRECT)) symm_walk_on(c, bytes);
}

/* Of a call that may go either way: which kind it is of, which way it goes (1: not as was found
 * when the communicator was made), and since when it is timed (rank 0). */
typedef struct {
    int kind, other, timed;
    uint64_t since;
} symm_way_turn;
/* Its arguments in this epoch: a, or *staged, which has nothing moved through the kernel; learn: at
 * its end, if it is timed. say: of every call, ahead of the signature. */
const symm_args *symm_way_take(symm_way_turn *t, int coll, const symm_args *a, symm_ctl *ctl,
                               uint32_t epoch, symm_args *staged);
void symm_way_learn(const symm_way_turn *t, const symm_args *a, symm_ctl *ctl);
void symm_way_tell(const symm_cta *c);
SYMM_DEV void symm_way_say(const symm_cta *c) {
    if (c->a->rank == 0 && c->ctl->way.now != SYMM_WAY_UNSAID) symm_way_tell(c);
}

/* ---- ranks that go ahead (ahead.c) ----------------------------------------------------------- */

/* The arguments of a collective in which all ranks hear from all: a, or *copy, whose signature also
 * says which calls in which ranks go ahead came before it. */
SYMM_DEV const symm_args *symm_ahead_sign(const symm_ctl *ctl, const symm_args *a,
                                          symm_args *copy) {
    if (!ctl->ahead.said) return a;
    *copy = *a;
    copy->sig ^= ctl->ahead.said;
    return copy;
}

/* ---- the bodies, by the rows of coll.def ----------------------------------------------------- */

#define SYMM_KERNEL(id, body, ...) void body(symm_cta *c);
#include "device/common/coll.def"

#endif
