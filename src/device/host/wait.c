/* wait.c - the slow path of a device-side wait on the host backend, and what a kernel does when it
 * must leave; signals, and words of the program's kernels, which are words to wait for. Runs on the
 * thread that runs the kernel (the caller's, a stream's worker, or any of the program's). Takes no
 * lock. */
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>

#include "device/common/kernels.h"
#include "device/common/signals.h"
#include "dev.h"
#include "symm_host.h"

#define LEFT_GRACE_NS \
    1000000000ull /* how long a peer that destroyed its communicator may still owe us nothing */

#define LONG_NS 1000000000ull

#define VAIN_NS    1000u /* a yield that returns within that has let nobody run */
#define VAIN_MOST  32u   /* so many of them, one after the other, and the thread sleeps */
#define VAIN_AGAIN 4u    /* and so many until it sleeps again */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static int leave(symm_cta *c, uint32_t code, int rank, int stage) {
    c->out->code = code;
    c->out->rank = rank;
    c->out->epoch = c->epoch;
    c->out->stage = (uint32_t)stage;
    return 1;
}

/* The end of a rank goes into the death word, as peers may mind it only when they need it
 * (peerDeath). Who minds it at once has been told by that rank's host or by its own watcher. */
void symm_tell_peers(const symm_cta *c) {
    const uint64_t word = ((uint64_t)c->out->code << 32) | (uint32_t)(c->out->rank + 1);
    const int late = c->out->code == symmAborted || word == symm_ld_relaxed(&c->ctl->death);
    for (int p = 0; p < c->a->nranks; p++) {
        symm_ctl *theirs = symm_ctl_of(c->a, p);
        uint64_t none = 0; /* the first reason stays; pairs with the acquires in told */
        if (p != c->a->rank && !(late && symm_ld_relaxed(&theirs->abort)))
            __atomic_compare_exchange_n(late ? &theirs->death : &theirs->abort, &none, word, 0,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED);
    }
}

/* Whether peer p, which has not posted its signature of this epoch, has given a message that has
 * not come up here (ahead.c). It would have posted that before, and we would see it: pairs with
 * give. */
static int has_gone_elsewhere(const symm_cta *c, int p) {
    const uint64_t next = c->ctl->ahead.from[p].number + 1;
    const symm_ahead *theirs = &symm_ctl_of(c->a, p)->ahead;
    if (symm_ld_acquire(&theirs->head[next % SYMM_AHEAD_SLOTS].flag) >> 32 != (uint32_t)next)
        return 0;
    return symm_ld_acquire(&c->ctl->inbox[0][p].sig[c->epoch & 1u]) >> 32 != c->epoch;
}

/* A rank whose signature of this epoch differs from ours will never send what we wait for. Waits of
 * no collective have epoch 0. */
static int differing_rank(const symm_cta *c) {
    for (int p = 0; p < c->a->nranks; p++) {
        if (p == c->a->rank) continue;
        uint64_t w = symm_ld_acquire(
            &c->ctl->inbox[0][p].sig[c->epoch & 1u]); /* pairs with post_signature */
        if ((uint32_t)(w >> 32) == c->epoch && (uint32_t)w != c->a->sig) return p;
        if (c->epoch && (uint32_t)(w >> 32) != c->epoch && has_gone_elsewhere(c, p)) return p;
    }
    return -1;
}

void (*symm_wait_long)(const symm_args *a, int peer);

static void tell_long(symm_cta *c, int peer) {
    void (*told)(const symm_args *, int) = __atomic_load_n(&symm_wait_long, __ATOMIC_ACQUIRE);
    if (!c->long_seen && told) told(c->a, peer);
    c->long_seen = 1;
}

/* Pairs with the release in the peer's destroy (say_left in comm_end.c): whatever it wrote for us
 * before it left is visible by now. */
static int has_left(const symm_cta *c, int peer) {
    return __atomic_load_n(&symm_ctl_of(c->a, peer)->state, __ATOMIC_ACQUIRE) == SYMM_STATE_LEFT;
}
/* Whom a wait for any rank (peer < 0) can still hear from: 0: nobody, all others have left. */
static int any_is_here(const symm_cta *c) {
    for (int q = 1; q < c->a->nranks; q++)
        if (!has_left(c, symm_peer(c->a, q))) return 1;
    return c->a->nranks == 1; /* its own threads */
}

int symm_wait_clock(symm_cta *c, int peer, int stage, uint64_t *turns) {
    uint64_t now = now_ns();
    if (*turns == 0) *turns = now;
    uint64_t waited = now - *turns;
    if (c->a->timeout_ns && waited > c->a->timeout_ns) return leave(c, symmTimeout, peer, stage);
    if (waited > LONG_NS && peer >= 0 && peer != c->a->rank) tell_long(c, peer);
    if (waited <= LEFT_GRACE_NS || (peer < 0 ? any_is_here(c) : !has_left(c, peer))) return 0;
    /* It may have written our word and left since we last looked: the word is polled once more
     * before it counts as missing. */
    if (c->left_seen == *turns)
        return leave(c, symmRemoteError, peer < 0 ? symm_peer(c->a, 1) : peer, stage);
    c->left_seen = *turns;
    return 0;
}

static int told(symm_cta *c, const uint64_t *word, int stage) {
    /* pairs with set_word of revoke.c and the peers' symm_tell_peers */
    const uint64_t why = symm_ld_acquire(word);
    return why && leave(c, (uint32_t)(why >> 32), (int)(uint32_t)why - 1, stage);
}
int symm_wait_abort_only(symm_cta *c, int stage) {
    return told(c, &c->ctl->abort, stage);
}
int symm_wait_abort_of(symm_cta *c, int peer, int stage) {
    return told(c, &symm_ctl_of(c->a, peer)->abort, stage);
}
int symm_wait_abort(symm_cta *c, int stage) {
    return told(c, &c->ctl->abort, stage) || told(c, &c->ctl->death, stage);
}

/* What symmSetProgress has said: of this thread. */
static _Thread_local void (*progress)(void *arg);
static _Thread_local void *progress_arg;

symmResult_t symmSetProgress(void (*fn)(void *arg), void *arg) {
    progress = fn;
    progress_arg = arg;
    return symmSuccess;
}

void symm_progress_swap(symm_progress *with) {
    const symm_progress was = {progress, progress_arg};
    progress = with->fn;
    progress_arg = with->arg;
    *with = was;
}

int symm_progress_turn(void) {
    if (!progress) return 0;
    progress(progress_arg);
    return 1;
}

void symm_give_core(const symm_args *a, uint32_t *vain) {
    (void)symm_progress_turn();
    const int crowded = (a->flags & SYMM_ARG_CROWDED) != 0;
    const uint64_t from = crowded ? now_ns() : 0;
    sched_yield();
    if (!crowded) return;
    *vain = now_ns() - from < VAIN_NS ? *vain + 1 : 0;
    if (*vain < VAIN_MOST) return;
    const struct timespec least = {0, 1}; /* the kernel makes some 50 us of it */
    nanosleep(&least, NULL);
    *vain = VAIN_MOST - VAIN_AGAIN;
}

int symm_wait_slow(symm_cta *c, int peer, int stage, uint64_t *turns) {
    if (symm_wait_abort(c, stage)) return 1;
    int rank = differing_rank(c);
    if (rank >= 0) return leave(c, symmMismatch, rank, stage);
    if (symm_wait_clock(c, peer, stage, turns)) return 1;
    symm_give_core(c->a, &c->vain);
    return 0;
}

/* ---- signals --------------------------------------------------------------------------------- */

void symm_signal_raise(uint64_t *raised, uint64_t count) {
    symm_st_release(raised, count); /* pairs with the acquires of the two functions below */
    symm_give_line(raised);
}

uint64_t symm_signal_raised(const uint64_t *raised) {
    return symm_ld_acquire(raised); /* pairs with symm_signal_raise */
}

void symm_signal_give_up(const symm_args *a, symm_outcome *out) {
    const symm_cta c = {.a = a, .ctl = symm_ctl_of(a, a->rank), .out = out};
    symm_tell_peers(&c);
}

/* Epoch 0 is that of no collective, so no signature differs. */
int symm_signal_wait(const symm_args *a, const uint64_t *raised, uint64_t want, int peer,
                     symm_outcome *out) {
    symm_cta c = {.a = a, .ctl = symm_ctl_of(a, a->rank), .out = out};
    *out = (symm_outcome){.code = 0};
    /* Pairs with symm_signal_raise. The word is at want, or beyond. */
    if (!symm_wait_within(&c, raised, want, INT64_MAX, peer, SYMM_STAGE_SIGNAL)) return 0;
    symm_signal_give_up(a, out);
    return 1;
}

/* ---- kernels of the program ------------------------------------------------------------------ */

/* As GPUs do it (leave in symm_device.cuh): what was waited for first, then the reason. */
void symm_program_over(const symm_args *a, symm_outcome *out, uint32_t what) {
    const symm_cta c = {.a = a, .ctl = symm_ctl_of(a, a->rank), .out = out};
    const uint64_t word = (uint64_t)out->code << 32 | (uint32_t)(out->rank + 1);
    uint64_t none = 0;
    if (!symm_ld_relaxed(&c.ctl->abort)) {
        symm_st_relaxed(&c.ctl->left, (uint64_t)what << 32 | SYMM_STAGE_DEVICE);
        /* Pairs with the acquires of symm_comm_abort_word, by which symm_comm_adopt_abort finds
         * `left`, and of symm_wait_abort in this rank's other kernels. */
        __atomic_compare_exchange_n(&c.ctl->abort, &none, word, 0, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
    }
    symm_tell_peers(&c);
}

/* Epoch 0, as in symm_signal_wait. */
int symm_program_wait(const symm_args *a, const uint64_t *word, uint64_t want, uint64_t ahead,
                      int peer, uint32_t what) {
    symm_outcome out = {.code = 0};
    symm_cta c = {.a = a, .ctl = symm_ctl_of(a, a->rank), .out = &out};
    /* Pairs with the releases of symm_device_host.h. */
    if (!symm_wait_within(&c, word, want, ahead, peer, SYMM_STAGE_DEVICE)) return 0;
    symm_program_over(a, &out, what);
    return 1;
}
