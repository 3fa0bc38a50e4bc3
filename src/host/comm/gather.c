/* gather.c - the functions of gather.h, and what a wait of set-up looks at. The user's thread; no
 * lock. */
#include "gather.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "call_log.h"
#include "comm.h"
#include "driver.h"
#include "revoke.h"

#define LEFT_GRACE_NS 1000000000ull
#define LONG_NS       1000000000ull
/* The mesh shows within a few milliseconds why the bootstrap has lost a peer. */
#define CAUSE_MS 1000

/* ---- waiting --------------------------------------------------------------------------------- */

/* A peer that left in order may have done its part of this step before, and what it sent is still
 * on its way. So its absence counts only if the step does not end soon. */
static int may_be_done(symm_comm *c, int peer) {
    if (!symm_comm_said_left(c, peer)) return 0;
    uint64_t now = symm_now_ns();
    if (!c->exchange.left_ns) c->exchange.left_ns = now;
    return now - c->exchange.left_ns < LEFT_GRACE_NS;
}

int symm_comm_waits_long(symm_comm *c) {
    if (!c->exchange.wait_ns || symm_now_ns() - c->exchange.wait_ns < LONG_NS) return 0;
    c->exchange.wait_ns = 0;
    return 1;
}

/* The code comes with the text, a moment after the abort has begun. */
symmResult_t symm_comm_check_parent(void *arg) {
    const symm_comm *parent = arg;
    SYMM_ASSERT(parent && parent->rank >= 0);
    if (!symm_comm_is_aborted(parent) || !symm_comm_code(parent)) return symmSuccess;
    return SYMM_ERR(symmAborted, "rank %d called symmCommAbort", parent->rank);
}

/* Polled while this thread waits in set-up. */
static symmResult_t check(void *arg) {
    symm_comm *c = arg;
    if (c->exchange.parent) SYMM_TRY(symm_comm_check_parent(c->exchange.parent));
    SYMM_TRY(symm_comm_used(c));
    for (int p = 0; c->mesh && p < c->nranks; p++) {
        if (p == c->rank || !symm_mesh_hung_up(c->mesh, p) || may_be_done(c, p)) continue;
        return SYMM_ERR(symmRemoteError, "rank %d died or left the communicator", p);
    }
    if (symm_comm_waits_long(c)) symm_driver_warn(c, symm_call_log_late(c));
    return symm_call_log_look(c);
}

symmResult_t symm_comm_origin(const symm_comm *c) {
    symm_comm *parent = c->exchange.parent;
    if (!parent) return symmSuccess;
    if (c->exchange.outlives) return symm_comm_check_parent(parent);
    if (symm_comm_is_over(parent)) return symm_comm_told(parent);
    /* A rank that is not in this one has done its part in making it. */
    const uint64_t word = symm_comm_death_word(parent);
    if (!word || !symm_boot_mesh_has(c->exchange.boot, parent->mesh, (int)(uint32_t)word - 1))
        return symmSuccess;
    return symm_comm_used(parent);
}

/* A rank that has ended the parent does not come to the mesh of the child, and may have told so
 * over that of the parent alone. What its REVOKE says is more than the abort word. Deaths show in
 * the steps themselves, with the rank as it is in the child. */
static symmResult_t check_origin(const symm_comm *c) {
    const symmResult_t r = symm_comm_origin(c);
    if (c->exchange.outlives) return r; /* the parent may have ended */
    if (!r || r == symmRemoteError) return symmSuccess;
    return symm_mesh_cause_within(c->exchange.parent->mesh, r, 0);
}

/* While the mesh is being connected: its own steps see deaths, and know the reason. */
static symmResult_t check_revoked(void *arg) {
    SYMM_TRY(check_origin(arg));
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

/* ---- what a failure was ---------------------------------------------------------------------- */

/* Whom an error of the bootstrap is about: the peer that is dead or late, else this rank, which
 * found it. */
static int culprit(const symm_comm *c, symmResult_t code) {
    const int late = code == symmTimeout ? symm_call_log_late(c) : -1;
    if (code != symmRemoteError) return late >= 0 ? late : c->rank;
    for (int p = 0; c->mesh && p < c->nranks; p++)
        if (p != c->rank && (!symm_mesh_alive(c->mesh, p) || symm_mesh_hung_up(c->mesh, p)))
            return p;
    return -1;
}

/* The bootstrap names the rank whose connection ended first, which may have left because of
 * another. A reason that came by code alone, in the abort word, has its words in the mesh
 * already. */
static symmResult_t cause_of(symm_comm *c, symmResult_t code, const char *stage) {
    char who[32];
    int wait_ms = code == symmRemoteError && !symm_comm_code(c) ? CAUSE_MS : 0;
    symmResult_t r = symm_mesh_cause_within(c->mesh, code, wait_ms);
    int dead = culprit(c, r);
    if (r != symmRemoteError || symm_mesh_revoked(c->mesh) || dead < 0) return r;
    snprintf(who, sizeof who, "rank %d ", dead);
    if (!strncmp(symm_status_text(), who, strlen(who))) return r;
    return SYMM_ERR(r, "%sdied or left while %s", who, stage);
}

/* Adds to the text of a deadline what the late rank has done so far. */
static void explain_timeout(symm_comm *c) {
    char text[SYMM_ERR_TEXT], does[200];
    const int late = symm_call_log_late(c);
    if (late < 0 || strstr(symm_status_text(), "has issued")) return;
    const char *alone = symm_driver_same(c, late) ? SYMM_DRIVER_ALONE : "";
    SYMM_SAY(text, sizeof text, "%.200s; rank %d has issued %.150s%s", symm_status_text(), late,
             symm_call_log_text(c, late, does, sizeof does), alone);
    symm_status_adopt(text);
}

/* Whatever an exchange came to: if ranks are in different ones, only the number of bytes tells, or
 * nothing. */
static symmResult_t see_calls(symm_comm *c, symmResult_t r) {
    if (r && (strstr(symm_status_text(), SYMM_CALL_LOG_DIFFERENT) || symm_comm_code(c)))
        return r; /* known, and said */
    symmResult_t calls = symm_call_log_look(c);
    return calls ? calls : r;
}

/* ---- the exchanges --------------------------------------------------------------------------- */

symmResult_t symm_comm_gather(symm_comm *c, const void *mine, void *all, size_t bytes,
                              const char *stage) {
    symm_wait w = symm_comm_wait(c, stage);
    symm_call_log_enter(c, stage);
    /* first: a peer that has gone may have left its part of this one */
    symmResult_t r = symm_comm_used(c);
    if (!r) r = symm_boot_allgather(c->exchange.boot, mine, all, bytes, &w);
    if (r && c->mesh) r = cause_of(c, r, stage);
    r = see_calls(c, r);
    if (r == symmTimeout) explain_timeout(c);
    if (r)
        symm_comm_break(c, r, culprit(c, r), stage); /* the bootstrap is unusable from here on */
    else
        symm_call_log_leave(c);
    return r;
}

symmResult_t symm_comm_agree(symm_comm *c, symmResult_t mine, const char *stage) {
    symm_wait w = symm_comm_wait(c, stage);
    int dead = -1;
    symm_call_log_enter(c, stage);
    symmResult_t r = symm_agree(c->mesh, mine, &w, &dead);
    if (r == symmTimeout) explain_timeout(c);
    if (r && symm_mesh_revoked(c->mesh))
        symm_comm_break(c, r, dead >= 0 ? dead : culprit(c, r), stage);
    else
        symm_call_log_leave(c);
    return r;
}
