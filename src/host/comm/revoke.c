/* revoke.c - the functions of revoke.h. Threads as there. */
#define _GNU_SOURCE
#include "revoke.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "call_log.h"
#include "comm.h"
#include "driver.h"

const char *symm_stage_name(uint32_t stage) {
    static const char *const names[] = {"entering",
                                        "waiting for a ready word",
                                        "waiting for a packet",
                                        "waiting for an arrival word",
                                        "comparing signatures",
                                        "waiting for a scalar",
                                        "waiting for a piece",
                                        "comparing counts",
                                        "point-to-point",
                                        "reaching a peer's buffer",
                                        "waiting for a signal",
                                        "a kernel of the program"};
    return stage < sizeof names / sizeof names[0] ? names[stage] : "?";
}

/* ---- the reason ------------------------------------------------------------------------------ */

/* An abort or a death word. Pairs with the acquires of symm_comm_abort_word, symm_comm_death_word,
 * wait.c and dev.cuh; the first reason stays. */
static void set_word(uint64_t *at, symmResult_t code, int rank) {
    uint64_t none = 0, word = ((uint64_t)code << 32) | (uint32_t)(rank + 1);
    __atomic_compare_exchange_n(at, &none, word, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Nobody: creation has failed before there were control blocks; or ranks are on several hosts,
 * which hear of it over the mesh (symm_comm_hear). */
static void abort_peers(symm_comm *c, symmResult_t code, int rank) {
    for (int p = 0; c->ctl && c->hosts <= 1 && p < c->nranks; p++)
        if (p != c->rank) set_word(&symm_comm_ctl(c, p)->abort, code, rank);
}

/* This rank goes. Peers whose config says so mind that when they use the communicator. */
static void end_peers(symm_comm *c) {
    for (int p = 0; c->ctl && c->hosts <= 1 && p < c->nranks; p++) {
        symm_ctl *theirs = symm_comm_ctl(c, p);
        if (p != c->rank)
            set_word(symm_ranks_has(&c->failure.late, p) ? &theirs->death : &theirs->abort,
                     symmAborted, c->rank);
    }
}

/* Ranks of several hosts, whose kernels are told here and now what their hosts hear a little later.
 * goes: as end_peers. Best effort: memory of a rank that is dead may be gone. */
static void tell_kernels(symm_comm *c, symmResult_t code, int rank, int goes) {
    const uint64_t word = ((uint64_t)code << 32) | (uint32_t)(rank + 1);
    const uint32_t over = 1;
    SYMM_ASSERT(code != symmSuccess && rank < SYMM_MAX_RANKS); /* no ranks yet: it is being made */
    for (int p = 0; c->ctl && c->hosts > 1 && p < c->nranks; p++) {
        symm_gpu_ctl *theirs = (symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)p * c->stride);
        symm_ctl *told = (symm_ctl *)(void *)theirs->far;
        const int late = goes && symm_ranks_has(&c->failure.late, p);
        if (p == c->rank || !symm_mesh_alive(c->mesh, p)) continue;
        /* in this order: pairs with look_over in dev.cuh, and with own_abort and own_death */
        if (c->vmm->copy(late ? &told->death : &told->abort, &word, sizeof word)) return;
        if (!late && c->vmm->copy(&theirs->over, &over, sizeof over)) return;
    }
}

void symm_comm_fail(symm_comm *c, symmResult_t code, int rank, const char *text) {
    SYMM_ASSERT(code != symmSuccess && rank < SYMM_MAX_RANKS);
    pthread_mutex_lock(&c->failure.lock);
    if (atomic_load_explicit(&c->failure.code, memory_order_relaxed) == symmSuccess) {
        snprintf(c->failure.text, sizeof c->failure.text, "%s", text);
        /* pairs with symm_comm_code */
        atomic_store_explicit(&c->failure.code, code, memory_order_release);
    }
    pthread_mutex_unlock(&c->failure.lock);
    /* pairs with the release in comm_make.c */
    symm_ctl *ctl = __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE);
    if (ctl) set_word(&ctl->abort, code, rank);
}

symmResult_t symm_comm_known(symm_comm *c) {
    const symmResult_t code = symm_comm_code(c);
    if (code == symmSuccess) return code;
    pthread_mutex_lock(&c->failure.lock);
    SYMM_ASSERT(memchr(c->failure.text, 0, sizeof c->failure.text));
    symm_status_adopt(c->failure.text);
    pthread_mutex_unlock(&c->failure.lock);
    return code;
}

/* The thread's last error names one rank that is gone: if there are more, it names all. */
static void name_all_gone(const symm_comm *c) {
    char who[160], text[SYMM_ERR_TEXT];
    symm_ranks gone;
    symm_comm_gone(c, &gone);
    if (symm_ranks_count(&gone) < 2 || strstr(symm_status_text(), " are gone")) return;
    SYMM_SAY(text, sizeof text, "%.320s; %s are gone", symm_status_text(),
             symm_ranks_text(&gone, who, sizeof who));
    symm_status_adopt(text);
}

symmResult_t symm_comm_async(symm_comm *c) {
    const symmResult_t code = symm_comm_known(c);
    if (code == symmRemoteError) name_all_gone(c);
    return code;
}

symmResult_t symm_comm_told(symm_comm *c) {
    if (__builtin_expect(!symm_comm_is_over(c), 1)) return symmSuccess;
    symm_comm_adopt_abort(c);
    return symm_comm_async(c);
}

void symm_comm_note_death(symm_comm *c, int rank) {
    symm_ctl *ctl = __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE); /* as in abort_word */
    SYMM_ASSERT(rank >= 0 && rank < c->nranks);
    if (ctl) set_word(&ctl->death, symmRemoteError, rank); /* else it was never made */
}

symmResult_t symm_comm_used(symm_comm *c) {
    char text[48];
    const uint64_t word = symm_comm_death_word(c);
    if (word && !symm_comm_is_over(c)) {
        const symmResult_t code = (symmResult_t)(word >> 32);
        const int rank = (int)(uint32_t)word - 1;
        SYMM_SAY(text, sizeof text, "rank %d %s", rank,
                 code == symmAborted ? "called symmCommAbort" : "died");
        symm_comm_fail(c, code, rank, text);
    }
    return symm_comm_told(c);
}

/* What a kernel of the program waited for, as symm_device.cuh and symm_device_host.h number it. */
static const char *device_wait(uint32_t what) {
    static const char *const names[] = {"barrier", "signal", "packet", "line",
                                        "place on the GPU for each CTA"};
    return what < sizeof names / sizeof names[0] ? names[what] : "peer";
}

/* {epoch or what was waited for << 32 | SYMM_STAGE_*} of a rank's kernel that set the abort word
 * itself, written before it; 0: none. GPUs, and kernels of the program on the host backend. */
static uint64_t left_by(const symm_comm *c, int rank) {
    return __atomic_load_n(&symm_comm_ctl(c, rank)->left, __ATOMIC_RELAXED);
}

/* What the own kernel was doing when it left. */
static void add_stage(const symm_comm *c, uint64_t left, char *text, size_t cap) {
    char waits[120];
    const size_t at = strlen(text);
    const uint32_t stage = (uint32_t)left;
    if (stage == SYMM_STAGE_DEVICE)
        snprintf(text + at, cap - at, " (%s, waiting for a %s)", symm_stage_name(stage),
                 device_wait((uint32_t)(left >> 32)));
    else if (stage != SYMM_STAGE_P2P && stage != SYMM_STAGE_SIGNAL)
        snprintf(text + at, cap - at, " (collective %u, %s)", (uint32_t)(left >> 32),
                 symm_stage_name(stage));
    else if (*symm_message_awaited(c, c->rank, waits, sizeof waits))
        snprintf(text + at, cap - at, " (rank %d%s)", c->rank, waits + 1); /* "; waits in ..." */
}

void symm_comm_adopt_abort(symm_comm *c) {
    char text[SYMM_ERR_TEXT];
    const uint64_t word = symm_comm_abort_word(c); /* not 0: there are control blocks */
    if (!word || symm_comm_code(c) != symmSuccess) return;
    const uint64_t left = left_by(c, c->rank);
    symmResult_t code = (symmResult_t)(word >> 32);
    symm_comm_reason(c, code, (int)(uint32_t)word - 1, text, sizeof text - 128);
    if (left) add_stage(c, left, text, sizeof text);
    symm_comm_fail(c, code, (int)(uint32_t)word - 1, text);
}

/* ---- who is gone ----------------------------------------------------------------------------- */

int symm_comm_dead(const symm_comm *c) {
    const uint64_t word = symm_comm_abort_word(c);
    return word >> 32 == symmRemoteError ? (int)(uint32_t)word - 1 : -1;
}

void symm_comm_gone(const symm_comm *c, symm_ranks *gone) {
    *gone = (symm_ranks){{0}};
    /* The state pairs with the release in symm_comm_build: the mesh is there, and stays until the
     * end. The pointer pairs with the release in comm_make.c. */
    if (symm_comm_state(c) != SYMM_COMM_LIVE || !__atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE)) return;
    symm_survive_gone(c->mesh, gone);
    const int told = symm_comm_dead(c);
    if (told >= 0 && told < c->nranks && told != c->rank) symm_ranks_add(gone, told);
}

int symm_comm_said_left(const symm_comm *c, int peer) {
    symm_mesh_news news;
    if (!__atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE)) return 0; /* pairs with comm_make.c */
    /* pairs with the releases in comm_end.c's say_left and in symm_comm_hear_left */
    if (__atomic_load_n(&symm_comm_ctl(c, peer)->state, __ATOMIC_ACQUIRE) == SYMM_STATE_LEFT)
        return 1;
    if (c->hosts <= 1) return 0;
    symm_mesh_peek(c->mesh, peer, &news);
    if (news.left) symm_comm_hear_left(c, peer);
    return news.left;
}

/* ---- ranks of several hosts ------------------------------------------------------------------ */

void symm_comm_hear_left(const symm_comm *c, int peer) {
    SYMM_ASSERT(c->hosts > 1 && peer >= 0 && peer < c->nranks && peer != c->rank);
    /* pairs with symm_comm_said_left, and with left_for_good in dev.cuh */
    __atomic_store_n(&symm_comm_ctl(c, peer)->state, SYMM_STATE_LEFT, __ATOMIC_RELEASE);
}

/* A rank that leaves by symmCommAbort may be minded later, whoever passes that on. */
static int says_it_goes(const symm_comm *c, const symm_vote *v) {
    return v->code == symmAborted && v->rank >= 0 && v->rank < c->nranks && v->rank != c->rank &&
           !strcmp(v->stage, SYMM_COMM_GOES);
}

void symm_comm_hear(symm_comm *c, int peer, const symm_vote *v) {
    char text[SYMM_ERR_TEXT];
    symm_ctl *ctl = __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE); /* as in abort_word */
    SYMM_ASSERT(c->hosts > 1 && peer >= 0 && peer < c->nranks && peer != c->rank);
    SYMM_ASSERT(v->code > symmSuccess && v->code < symmNumResults);
    if (ctl && says_it_goes(c, v) && c->config.peerDeath == SYMM_DEATH_WHEN_USED) {
        set_word(&ctl->death, symmAborted, v->rank);
        return;
    }
    const char *what = v->text[0] ? v->text : v->stage;
    if (strstr(what, " revoked: ")) /* it has been passed on */
        SYMM_SAY(text, sizeof text, "%s", what);
    else
        SYMM_SAY(text, sizeof text, "rank %d revoked: %s", peer, what);
    symm_comm_fail(c, (symmResult_t)v->code, v->rank, text);
}

/* The end of a rank is what every rank sees by itself, and may mind later (peerDeath). */
static int is_end(const symm_comm *c, uint64_t word) {
    return word >> 32 == symmAborted || word >> 32 == symmRemoteError ||
           word == symm_comm_death_word(c);
}

void symm_comm_spread(symm_comm *c) {
    const uint64_t word = symm_comm_abort_word(c);
    if (!word || symm_mesh_revoked(c->mesh) || is_end(c, word)) return;
    symm_comm_adopt_abort(c);
    symm_comm_known(c); /* its text becomes this thread's last error */
    symm_agree_revoke(c->mesh, (symmResult_t)(word >> 32), (int)(uint32_t)word - 1,
                      "a kernel has left", symm_status_text());
}

/* ---- in words -------------------------------------------------------------------------------- */

/* 1: two ranks disagree on what one of them sends the other, and one has said so. */
static int unequal_counts(const symm_comm *c, char *text, size_t cap) {
    const symm_ctl *ctl = __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE); /* pairs with comm_make.c */
    for (int p = 0; ctl && p < c->nranks; p++) {
        const symm_unequal *u = &symm_comm_ctl(c, p)->unequal;
        /* pairs with the release in symm_pair_unequal; GPUs: in tell_unequal (uneven.cuh) */
        const uint64_t who = __atomic_load_n(&u->who, __ATOMIC_ACQUIRE), bytes = who >> 32;
        if (!bytes) continue;
        SYMM_SAY(text, cap, "rank %u sends %llu elements to rank %u, which expects %llu",
                 (unsigned)(who >> 16 & 0xffff),
                 (unsigned long long)(__atomic_load_n(&u->gives, __ATOMIC_RELAXED) / bytes),
                 (unsigned)(who & 0xffff) - 1,
                 (unsigned long long)(__atomic_load_n(&u->takes, __ATOMIC_RELAXED) / bytes));
        return 1;
    }
    return 0;
}

/* who: the rank that told it, or whose call it was; it may be the one that differs. */
static void mismatch_reason(symm_comm *c, const char *who, char *text, size_t cap) {
    static const char what[] = "called different collectives, counts, types, reductions or roots";
    char calls[SYMM_ERR_TEXT - 160];
    if (symm_message_differs(c, text, cap) || c->source->explain(c, text, cap) ||
        unequal_counts(c, text, cap))
        return;
    if (!symm_call_log_differ(c, calls, sizeof calls))
        SYMM_SAY(text, cap, "%s and another rank %s", who, what);
    else if (!strncmp(calls, "call ", 5))
        SYMM_SAY(text, cap, "the ranks %s: %s", what, calls);
    else
        snprintf(text, cap, "%s", calls);
}

/* Whether a kernel of the program found what is wrong, on this rank or on that one. It has written
 * `left` before the abort word by which we know. */
static int device_left(const symm_comm *c, int rank) {
    if (rank < 0 || !__atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE)) return 0;
    return (uint32_t)left_by(c, rank) == SYMM_STAGE_DEVICE ||
           (uint32_t)left_by(c, c->rank) == SYMM_STAGE_DEVICE;
}

/* GPUs: a call that the rank alone could have ended. Both backends: a wrong kernel of the
 * program's. */
static void left_alone(const symm_comm *c, int rank, char *text, size_t cap) {
    if (device_left(c, rank))
        SYMM_SAY(text, cap,
                 "a kernel of rank %d uses a barrier, signal, packet or peer that its device "
                 "communicator does not have, or two objects of one index, or does not fit its GPU",
                 rank);
    else if ((uint32_t)left_by(c, rank) == SYMM_STAGE_SIGNAL)
        symm_signal_alone(rank, text, cap);
    else
        symm_message_alone(rank, text, cap);
}

/* Whether this rank's own kernel has left in a call that not all ranks make. */
static int left_in_messages(const symm_comm *c) {
    const uint32_t stage = (uint32_t)left_by(c, c->rank);
    return stage == SYMM_STAGE_P2P || stage == SYMM_STAGE_SIGNAL || stage == SYMM_STAGE_DEVICE;
}

/* The rank that was waited for may have waited for another one, and its deadline was later. */
static void timeout_reason(symm_comm *c, const char *who, int rank, char *text, size_t cap) {
    char does[200] = "", fewer[80] = "", behind[160] = "; it has issued ";
    const char *mate = "";
    if (rank >= 0) {
        if (symm_comm_sees(c, rank))
            symm_call_log_text(c, rank, does, sizeof does);
        else
            behind[0] = 0;
        if (!left_in_messages(c) && *symm_call_log_fewer(c, rank, fewer, sizeof fewer))
            snprintf(behind, sizeof behind, "; fewer collectives than %s: %s; %s has issued ", who,
                     fewer, who);
        if (c->gpus.mates[rank / 64] >> rank % 64 & 1)
            mate = "; it is a thread of this process on the same GPU: before ranks wait let "
                   "each stream run a kernel and the driver load kernels and graphs, and let "
                   "no rank get far ahead (docs/gpu-rules.md, \"Ranks that share a GPU\")";
    }
    SYMM_SAY(text, cap,
             "%s did not come before a deadline (SYMM_TIMEOUT; in set-up SYMM_SETUP_TIMEOUT)"
             "%s%s%s%s",
             who, rank >= 0 ? behind : "", does, mate,
             symm_driver_same(c, rank) ? SYMM_DRIVER_ALONE : "");
}

void symm_comm_reason(symm_comm *c, symmResult_t code, int rank, char *text, size_t cap) {
    char who[32] = "a rank";
    if (rank >= 0) snprintf(who, sizeof who, "rank %d", rank);
    switch (code) {
    case symmMismatch:
        if (device_left(c, rank))
            SYMM_SAY(text, cap, "kernels of the program have another grid on %s", who);
        else
            mismatch_reason(c, who, text, cap);
        break;
    case symmTimeout: timeout_reason(c, who, rank, text, cap); break;
    case symmAborted: SYMM_SAY(text, cap, "%s aborted or revoked the communicator", who); break;
    case symmRemoteError: SYMM_SAY(text, cap, "%s died or left the communicator", who); break;
    case symmInvalidUsage:
        /* p2p.cuh, onesided.cuh and kernels of the program leave with it */
        if (rank >= 0 && (c->cuda || device_left(c, rank))) {
            left_alone(c, rank, text, cap);
            break;
        }
        /* fall through */
    default: SYMM_SAY(text, cap, "%s cannot go on: %s", who, symmGetErrorString(code)); break;
    }
}

/* ---- telling the peers ----------------------------------------------------------------------- */

void symm_comm_break(symm_comm *c, symmResult_t code, int rank, const char *stage) {
    char text[SYMM_ERR_TEXT];
    snprintf(text, sizeof text, "%s", symm_status_text());
    /* The message with the words first, then the bare code: a peer that sees the code in set-up
     * finds the message. */
    if (c->mesh && !symm_mesh_revoked(c->mesh)) symm_agree_revoke(c->mesh, code, rank, stage, text);
    abort_peers(c, code, rank);
    tell_kernels(c, code, rank, 0);
    symm_comm_fail(c, code, rank, text);
}

void symm_comm_abort_everywhere(symm_comm *c, const char *what, int goes) {
    char text[160];
    SYMM_SAY(text, sizeof text, "rank %d called %s", c->rank, what);
    if (goes)
        end_peers(c);
    else
        abort_peers(c, symmAborted, c->rank);
    symm_comm_fail(c, symmAborted, c->rank, text);
    if (c->mesh) symm_agree_revoke(c->mesh, symmAborted, c->rank, what, text);
    tell_kernels(c, symmAborted, c->rank, goes); /* behind the message, should it not return */
}

symmResult_t symm_comm_revoke_flags(int flags) {
    if (!flags || flags == SYMM_REVOKE_ABORT) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "flags=%d: symmCommRevoke takes 0 or SYMM_REVOKE_ABORT",
                    flags);
}
