/* comm.c - entering and failing communicators, and how their calls wait for peers. The user's
 * thread, except symm_comm_fail (any thread; failure.lock). */
#define _GNU_SOURCE
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/handle.h"
#include "base/log.h"
#include "base/stats.h"
#include "call_log.h"
#include "driver.h"
#include "failed.h"
#include "group.h"
#include "pages.h"
#include "watch.h"

#define LEFT_GRACE_NS 1000000000ull
#define LONG_NS       1000000000ull
/* The mesh shows within a few milliseconds why the bootstrap has lost a peer. */
#define CAUSE_MS 1000

symm_ctl *symm_comm_ctl(const symm_comm *c, int rank) {
    if (c->control.pages) return symm_pages_ctl(c->control.pages, rank);
    return (symm_ctl *)(uintptr_t)(c->base + (uint64_t)rank * c->stride);
}

const char *symm_stage_name(uint32_t stage) {
    static const char *const names[] = {"entering",
                                        "waiting for a ready word",
                                        "waiting for a packet",
                                        "waiting for an arrival word",
                                        "comparing signatures",
                                        "waiting for a scalar",
                                        "waiting for a piece"};
    return stage < sizeof names / sizeof names[0] ? names[stage] : "?";
}

symmResult_t symm_comm_bad_handle(symmComm_t handle) {
    return SYMM_ERR(symmInvalidArgument, "comm=%p is not a living communicator", (void *)handle);
}

/* pairs with give8 in cuda/dev.cuh's leave, and with set_abort */
static uint64_t abort_word(const symm_comm *c) {
    const symm_ctl *ctl =
        __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE); /* pairs with the release in comm_make.c */
    return ctl ? __atomic_load_n(&ctl->abort, __ATOMIC_ACQUIRE) : 0;
}

/* A peer, or a kernel of this rank that left, may have said so in the abort word alone, and nobody
 * waited for it. */
static int is_over(const symm_comm *c) {
    return atomic_load_explicit(&c->failure.code, memory_order_acquire) != symmSuccess ||
           abort_word(c) != 0;
}

/* symmSuccess, or the reason. Touches nothing of the communicator that its end frees: another
 * thread may be ending it. */
static symmResult_t told_before(symm_comm *c) {
    symmResult_t code = (symmResult_t)atomic_load_explicit(&c->failure.code, memory_order_acquire);
    if (code == symmSuccess) return code;
    pthread_mutex_lock(&c->failure.lock);
    symm_status_adopt(c->failure.text);
    pthread_mutex_unlock(&c->failure.lock);
    return code;
}

symmResult_t symm_comm_enter_known(symm_comm *c, int live) {
    /* Pairs with the release in symm_comm_leave: the next thread sees what the last one did. */
    if (__builtin_expect(atomic_exchange_explicit(&c->entry.busy, 1, memory_order_acquire), 0)) {
        if (atomic_load_explicit(&c->entry.parenting, memory_order_relaxed)) return symmInProgress;
        const symmResult_t over = told_before(c); /* being aborted by that other thread */
        return over ? over
                    : SYMM_ERR(symmInvalidUsage, "communicator %s is in use by another thread",
                               c->name);
    }
    symmResult_t r = symmSuccess;
    if (live && __builtin_expect(is_over(c), 0))
        r = live == SYMM_ENTER_COLL || c->cuda ? symm_comm_told(c) : symm_comm_async(c);
    if (__builtin_expect(r != symmSuccess, 0))
        symm_comm_leave(c); /* from here on the thread that aborts it may free it */
    else
        symm_driver_note(c);
    return r;
}

symmResult_t symm_comm_enter(symmComm_t handle, int live, symm_comm **out) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, handle);
    if (__builtin_expect(!c, 0)) return symm_comm_bad_handle(handle);
    int state = atomic_load_explicit(&c->entry.state, memory_order_acquire);
    if (state == SYMM_COMM_MAKING) {
        const symmResult_t r = told_before(c);
        return r ? r : symmInProgress;
    }
    SYMM_TRY(symm_comm_enter_known(c, live));
    *out = c;
    return symmSuccess;
}

symmResult_t symm_comm_visit(symmComm_t handle, symm_comm **out) {
    symm_comm *c = symm_handle_get(SYMM_KIND_COMM, handle); /* from here on it is not freed */
    if (!c) return symm_comm_bad_handle(handle);
    /* One order of these two and of those in end(): either that waits for this visitor, or it is
     * seen here. */
    atomic_fetch_add(&c->entry.visitors, 1);
    if (atomic_load(&c->entry.state) == SYMM_COMM_FINAL) {
        symm_comm_unvisit(c);
        return symm_comm_bad_handle(handle);
    }
    *out = c;
    return symmSuccess;
}

void symm_comm_unvisit(symm_comm *c) {
    const symmComm_t handle = c->handle;
    atomic_fetch_sub(&c->entry.visitors, 1); /* release: pairs with await_visitors */
    symm_handle_put(SYMM_KIND_COMM, handle);
}

symmResult_t symm_comm_visit_made(symmComm_t comm, symm_comm **out) {
    SYMM_TRY(symm_comm_visit(comm, out));
    if (atomic_load_explicit(&(*out)->entry.state, memory_order_acquire) != SYMM_COMM_MAKING)
        return symmSuccess;
    symm_comm_unvisit(*out);
    return symmInProgress;
}

symmResult_t symm_comm_async(symm_comm *c) {
    const symmResult_t code = told_before(c);
    if (code == symmRemoteError) symm_failed_name_all(c);
    return code;
}

symmResult_t symm_comm_told(symm_comm *c) {
    if (__builtin_expect(!is_over(c), 1)) return symmSuccess;
    symm_comm_adopt_abort(c);
    return symm_comm_async(c);
}

static void set_abort(symm_ctl *ctl, symmResult_t code, int rank) {
    uint64_t none = 0, word = ((uint64_t)code << 32) | (uint32_t)(rank + 1);
    /* Pairs with the acquire in symm_wait_slow; the first reason stays. */
    __atomic_compare_exchange_n(&ctl->abort, &none, word, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

void symm_comm_fail(symm_comm *c, symmResult_t code, int rank, const char *text) {
    pthread_mutex_lock(&c->failure.lock);
    if (atomic_load_explicit(&c->failure.code, memory_order_relaxed) == symmSuccess) {
        snprintf(c->failure.text, sizeof c->failure.text, "%s", text);
        atomic_store_explicit(&c->failure.code, code,
                              memory_order_release); /* pairs with symm_comm_enter */
    }
    pthread_mutex_unlock(&c->failure.lock);
    symm_ctl *ctl =
        __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE); /* pairs with the release in comm_make.c */
    if (ctl) set_abort(ctl, code, rank);
}

int symm_comm_dead(const symm_comm *c) {
    const uint64_t word = abort_word(c);
    return word >> 32 == symmRemoteError ? (int)(uint32_t)word - 1 : -1;
}

void symm_comm_adopt_abort(symm_comm *c) {
    char text[SYMM_ERR_TEXT];
    const symm_ctl *ctl = __atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE); /* as in abort_word */
    uint64_t word = abort_word(c);
    if (!word || atomic_load_explicit(&c->failure.code, memory_order_acquire) != symmSuccess)
        return;
    symmResult_t code = (symmResult_t)(word >> 32);
    symm_comm_reason(c, code, (int)(uint32_t)word - 1, text, sizeof text - 80);
    if (c->cuda && ctl->left) { /* own kernel: written before the word */
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, " (collective %u, %s)", (uint32_t)(ctl->left >> 32),
                 symm_stage_name((uint32_t)ctl->left));
    }
    symm_comm_fail(c, code, (int)(uint32_t)word - 1, text);
}

static int said_left(const symm_comm *c, int peer) {
    if (!__atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE)) return 0; /* as above */
    const symm_ctl *theirs = symm_comm_ctl(c, peer);
    return __atomic_load_n(&theirs->state, __ATOMIC_ACQUIRE) ==
           SYMM_STATE_LEFT; /* pairs with say_left */
}

/* Who left orderly may have done its part of this step first, and what it sent is still on its way
 * here. Its absence counts only if the step does not end soon. */
static int may_be_done(symm_comm *c, int peer) {
    if (!said_left(c, peer)) return 0;
    uint64_t now = symm_now_ns();
    if (!c->exchange.left_ns) c->exchange.left_ns = now;
    return now - c->exchange.left_ns < LEFT_GRACE_NS;
}

static void warn_if_alone(symm_comm *c) {
    if (!c->exchange.wait_ns || symm_now_ns() - c->exchange.wait_ns < LONG_NS) return;
    c->exchange.wait_ns = 0; /* once a wait */
    symm_driver_warn(c, symm_doing_late(c));
}

/* Polled while this thread waits in set-up: a revocation, or a peer whose connection has ended. */
static symmResult_t check(void *arg) {
    symm_comm *c = arg;
    SYMM_TRY(symm_comm_told(c));
    for (int p = 0; c->mesh && p < c->nranks; p++) {
        if (p == c->rank || !symm_mesh_hung_up(c->mesh, p) || may_be_done(c, p)) continue;
        return SYMM_ERR(symmRemoteError, "rank %d died or left the communicator", p);
    }
    warn_if_alone(c);
    return symm_doing_look(c);
}

/* rank: who told it, or whose call it was; it may be the one that differs. */
static void mismatch_reason(symm_comm *c, const char *who, char *text, size_t cap) {
    static const char what[] = "called different collectives, counts, types or reductions";
    char calls[SYMM_ERR_TEXT - 160];
    if (c->source->explain(c, text, cap)) return;
    if (!symm_doing_differ(c, calls, sizeof calls))
        snprintf(text, cap, "%s and another rank %s", who, what);
    else if (!strncmp(calls, "call ", 5))
        snprintf(text, cap, "the ranks %s: %s", what, calls);
    else
        snprintf(text, cap, "%s", calls);
}

void symm_comm_reason(symm_comm *c, symmResult_t code, int rank, char *text, size_t cap) {
    char who[32] = "a rank", does[200];
    if (rank >= 0) snprintf(who, sizeof who, "rank %d", rank);
    switch (code) {
    case symmMismatch: mismatch_reason(c, who, text, cap); break;
    case symmTimeout:
        snprintf(text, cap,
                 "%s did not come before a deadline (SYMM_TIMEOUT; in set-up SYMM_SETUP_TIMEOUT)"
                 "%s%s%s%s",
                 who, rank >= 0 ? "; it has issued " : "",
                 rank >= 0 ? symm_doing_text(c, rank, does, sizeof does) : "",
                 rank >= 0 && c->gpus.mates[rank / 64] >> rank % 64 & 1
                     ? "; it is a thread of this process on the same GPU: before ranks wait let "
                       "each stream run a kernel and the driver load kernels and graphs, and let "
                       "no rank get far ahead (docs/gpu-rules.md, \"Ranks that share a GPU\")"
                     : "",
                 symm_driver_same(c, rank) ? SYMM_DRIVER_ALONE : "");
        break;
    case symmAborted: snprintf(text, cap, "%s aborted or revoked the communicator", who); break;
    case symmRemoteError: snprintf(text, cap, "%s died or left the communicator", who); break;
    default: snprintf(text, cap, "%s cannot go on: %s", who, symmGetErrorString(code)); break;
    }
}

void symm_comm_break(symm_comm *c, symmResult_t code, int rank, const char *stage) {
    char text[SYMM_ERR_TEXT];
    snprintf(text, sizeof text, "%s", symm_status_text());
    /* First the words of the message, then the bare code: who sees the code in set-up finds the
     * message. */
    if (c->mesh && !symm_mesh_revoked(c->mesh)) symm_agree_revoke(c->mesh, code, rank, stage, text);
    for (int p = 0; c->ctl && p < c->nranks; p++)
        if (p != c->rank) set_abort(symm_comm_ctl(c, p), code, rank);
    symm_comm_fail(c, code, rank, text);
}

void symm_comm_abort_everywhere(symm_comm *c, const char *what) {
    char text[160];
    snprintf(text, sizeof text, "rank %d called %s", c->rank, what);
    for (int p = 0; c->ctl && p < c->nranks; p++) /* none: non-blocking creation has failed */
        if (p != c->rank) set_abort(symm_comm_ctl(c, p), symmAborted, c->rank);
    symm_comm_fail(c, symmAborted, c->rank, text);
    if (c->mesh) symm_agree_revoke(c->mesh, symmAborted, c->rank, what, text);
}

/* Whom an error of the bootstrap is about: the dead peer or the late one, where one is, else this
 * rank, which found it. */
static int culprit(const symm_comm *c, symmResult_t code) {
    const int late = code == symmTimeout ? symm_doing_late(c) : -1;
    if (code != symmRemoteError) return late >= 0 ? late : c->rank;
    for (int p = 0; c->mesh && p < c->nranks; p++)
        if (p != c->rank && (!symm_mesh_alive(c->mesh, p) || symm_mesh_hung_up(c->mesh, p)))
            return p;
    return -1;
}

/* The bootstrap names whose connection ended first, which may be a rank that left because of
 * another. What was told by code alone, in the abort word, has its words in the mesh already. */
static symmResult_t cause_of(symm_comm *c, symmResult_t code, const char *stage) {
    char who[32];
    int told = atomic_load_explicit(&c->failure.code, memory_order_acquire) != symmSuccess;
    int wait_ms = code == symmRemoteError && !told ? CAUSE_MS : 0;
    symmResult_t r = symm_mesh_cause_within(c->mesh, code, wait_ms);
    int dead = culprit(c, r);
    if (r != symmRemoteError || symm_mesh_revoked(c->mesh) || dead < 0) return r;
    snprintf(who, sizeof who, "rank %d ", dead);
    if (!strncmp(symm_status_text(), who, strlen(who))) return r;
    return SYMM_ERR(r, "%sdied or left while %s", who, stage);
}

/* To the deadline's text: what the late rank has done so far. */
static void explain_timeout(symm_comm *c) {
    char text[SYMM_ERR_TEXT], does[200];
    const int late = symm_doing_late(c);
    if (late < 0 || strstr(symm_status_text(), "has issued")) return;
    const char *alone = symm_driver_same(c, late) ? SYMM_DRIVER_ALONE : "";
    snprintf(text, sizeof text, "%.200s; rank %d has issued %.150s%s", symm_status_text(), late,
             symm_doing_text(c, late, does, sizeof does), alone);
    symm_status_adopt(text);
}

/* Whatever an exchange came to: ranks that are in different ones are told apart by bytes there, if
 * at all. */
static symmResult_t see_calls(symm_comm *c, symmResult_t r) {
    if (r && (strstr(symm_status_text(), SYMM_DOING_DIFFERENT) ||
              atomic_load_explicit(&c->failure.code, memory_order_acquire) != symmSuccess))
        return r; /* known, and said */
    symmResult_t calls = symm_doing_look(c);
    return calls ? calls : r;
}

symmResult_t symm_comm_gather(symm_comm *c, const void *mine, void *all, size_t bytes,
                              const char *stage) {
    symm_wait w = symm_comm_wait(c, stage);
    symm_doing_enter(c, stage);
    symmResult_t r =
        symm_comm_told(c); /* a peer that has gone may have left its part of this one */
    if (!r) r = symm_boot_allgather(c->exchange.boot, mine, all, bytes, &w);
    if (r && c->mesh) r = cause_of(c, r, stage);
    r = see_calls(c, r);
    if (r == symmTimeout) explain_timeout(c);
    if (r)
        symm_comm_break(c, r, culprit(c, r), stage); /* the bootstrap is unusable from here on */
    else
        symm_doing_leave(c);
    return r;
}

symmResult_t symm_comm_agree(symm_comm *c, symmResult_t mine, const char *stage) {
    symm_wait w = symm_comm_wait(c, stage);
    int dead = -1;
    symm_doing_enter(c, stage);
    symmResult_t r = symm_agree(c->mesh, mine, &w, &dead);
    if (r == symmTimeout) explain_timeout(c);
    if (r && symm_mesh_revoked(c->mesh))
        symm_comm_break(c, r, dead >= 0 ? dead : culprit(c, r), stage);
    else
        symm_doing_leave(c);
    return r;
}

/* While the mesh is being connected: its own steps see deaths, and know the reason. */
static symmResult_t check_revoked(void *arg) {
    return symm_comm_async(arg);
}

symm_wait symm_comm_wait_early(symm_comm *c, const char *stage) {
    symm_wait w = symm_comm_wait(c, stage);
    w.check = check_revoked;
    return w;
}

symm_wait symm_comm_wait(symm_comm *c, const char *stage) {
    uint64_t ms = c->config.timeoutMs != SYMM_CONFIG_UNDEF ? (uint64_t)c->config.timeoutMs
                                                           : (uint64_t)c->params.setup_timeout_ms;
    symm_wait w = {
        .deadline_ns = symm_now_ns() + ms * 1000000ull, .stage = stage, .check = check, .arg = c};
    c->exchange.left_ns = c->exchange.astray_ns = 0;
    c->exchange.wait_ns = c->threads ? symm_now_ns() : 0;
    return w;
}

void symm_comm_ref(symm_comm *c) {
    atomic_fetch_add_explicit(&c->entry.refs, 1, memory_order_relaxed);
}

/* Another thread aborted it while the rank's own may be on its way into a call: that has looked up
 * the handle, and holds no reference (symm_comm_enter). It finds `busy` set and the reason. So
 * the record, some 3 KB, stays as long as the process. */
static void keep_aborted(symm_comm *c) {
    static _Atomic(symm_comm *) aborted;
    atomic_store_explicit(&c->entry.busy, 1, memory_order_relaxed);
    c->entry.next_aborted = atomic_load_explicit(&aborted, memory_order_relaxed);
    /* Nobody takes one out; the list is there so that checkers of leaks find them. */
    while (!atomic_compare_exchange_weak_explicit(&aborted, &c->entry.next_aborted, c,
                                                  memory_order_release, memory_order_relaxed))
        ;
}

void symm_comm_unref(symm_comm *c) {
    /* Release: what this user did comes before the free; acquire: the one who frees sees it all. */
    if (atomic_fetch_sub_explicit(&c->entry.refs, 1, memory_order_acq_rel) != 1) return;
    c->entry.undo(c);
    SYMM_STAT_ADD(comms, -1);
    if (atomic_load(&c->entry.aborting)) {
        keep_aborted(c);
        return;
    }
    pthread_mutex_destroy(&c->failure.lock);
    free(c);
}
