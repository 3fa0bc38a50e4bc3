/* agree.c - the mode of a communicator, which its ranks agree on when it is made: native, with a
 * shadow or without, or forwarded to a real NCCL for a reason that all of them know. Runs on the
 * thread that makes the communicator; the real NCCL's part on a thread of its own (enter.c). Lock:
 * comm.c's, over whether the program still has the record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"

enum { TEXT = 280 }; /* of an error or a reason */

struct nccl_making {
    _Atomic int refs;  /* the record; the library, if the creation may go on behind the call */
    int behind;        /* it may */
    nccl_comm *record; /* NULL: the program has ended it. Under comm.c's lock */
    int mode;
    int over;         /* native: a shadow is made beside it */
    ncclResult_t bad; /* this rank cannot go on; why: text */
    char text[TEXT];
    nccl_kept *config;
};

/* What the ranks tell each other, in every exchange. */
typedef struct {
    int32_t mode, code; /* code: an error, whose text follows */
    int32_t done, over; /* done: the real NCCL has made its communicator */
    ncclUniqueId id;    /* of the real NCCL, from rank 0 */
    char text[TEXT];
} word;

typedef struct {
    nccl_making *m;
    const symmMeeting_t *at;
    symmVerdict_t *verdict;
    word mine, *all;
} talk;

static const char *mode_name(int mode) {
    static const char *const names[] = {"auto", "native", "forward"};
    return (unsigned)mode < 3 ? names[mode] : "something else";
}

static const char *over_name(int over) {
    return over ? "op" : "never";
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static void say_error(talk *t, ncclResult_t code, const char *text) {
    t->mine.code = code > ncclInProgress ? ncclRemoteError : (int32_t)code;
    snprintf(t->mine.text, sizeof t->mine.text, "%s", text);
}

/* Whom to believe: the first rank whose error is not the consequence of another's; -1: none has
 * one. */
static int culprit(const talk *t) {
    int who = -1;
    for (int r = 0; r < t->at->nranks; r++) {
        if (!t->all[r].code) continue;
        if (who < 0 || (t->all[who].code == ncclRemoteError && t->all[r].code != ncclRemoteError))
            who = r;
    }
    return who;
}

/* All ranks come to the same. why: what led here, for the text; "": nothing. */
static symmResult_t exchange(talk *t, const char *why) {
    const symmResult_t r = symmMeetingAllgather(t->at, &t->mine, t->all, sizeof t->mine);
    if (r) return r;
    const int who = culprit(t);
    if (who < 0) return symmSuccess;
    snprintf(t->verdict->text, sizeof t->verdict->text, "%.100s%srank %d: %.270s", why,
             *why ? "; " : "", who, t->all[who].text);
    return (symmResult_t)t->all[who].code;
}

/* ---- by the real NCCL ------------------------------------------------------------------------ */

static void find_real(talk *t) {
    const char *none, *lack = NULL;
    const nccl_calls *real = symm_nccl_real(&none);
    if (!real) {
        say_error(t, ncclInvalidUsage, none);
        return;
    }
    if (!real->ncclGetUniqueId) lack = "ncclGetUniqueId";
    if (!real->ncclCommInitRankConfig) lack = "ncclCommInitRankConfig";
    if (!real->ncclCommGetAsyncError) lack = "ncclCommGetAsyncError";
    if (!real->ncclCommDestroy) lack = "ncclCommDestroy";
    if (!real->ncclCommAbort) lack = "ncclCommAbort";
    if (lack) {
        say_error(t, ncclInvalidUsage, symm_nccl_real_lacks(lack));
        return;
    }
    if (t->at->rank) return;
    NCCL_INSIDE_REAL;
    const ncclResult_t r = real->ncclGetUniqueId(&t->mine.id);
    if (!r) return;
    const char *text = real->ncclGetLastError ? real->ncclGetLastError(NULL) : "";
    char line[TEXT];
    snprintf(line, sizeof line, "ncclGetUniqueId, of the real NCCL: %.120s", text);
    say_error(t, r, line);
}

static long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* This rank's state in the next exchange. */
static void look_at(talk *t, nccl_entry *e, long limit_ms) {
    char text[TEXT];
    ncclResult_t code;
    t->mine.done = symm_nccl_entry_done(e, &code, text, sizeof text);
    if (t->mine.done && code) say_error(t, code, text);
    if (t->mine.done || now_ms() < limit_ms) return;
    snprintf(text, sizeof text, "the real NCCL has not made its communicator in %d ms",
             t->at->timeoutMs);
    say_error(t, ncclRemoteError, text);
}

static int all_done(const talk *t) {
    for (int r = 0; r < t->at->nranks; r++)
        if (!t->all[r].done) return 0;
    return 1;
}

/* The ranks tell each other how far they are, so that none waits inside the real NCCL for one that
 * has failed. */
static symmResult_t await_all(talk *t, nccl_entry *e, const char *why) {
    const long limit_ms = now_ms() + t->at->timeoutMs;
    struct timespec nap = {0, 100000};
    for (;;) {
        look_at(t, e, limit_ms);
        const symmResult_t r = exchange(t, why);
        if (r || all_done(t)) return r;
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 20000000) nap.tv_nsec *= 2;
    }
}

/* The program has ended the record meanwhile, and nobody has the real NCCL's communicator (NULL:
 * that has ended too). */
static symmResult_t nobody_has(talk *t, ncclComm_t real) {
    snprintf(t->verdict->text, sizeof t->verdict->text,
             "rank %d ended the communicator while it was made", t->at->rank);
    NCCL_INSIDE_REAL;
    if (real) symm_nccl_real_calls()->ncclCommAbort(real);
    return symmAborted;
}

/* The program's record, unless it has ended it. */
static symmResult_t install(talk *t, ncclComm_t real, const char *why) {
    symm_nccl_lock();
    nccl_comm *c = t->m->record;
    if (c && real) symm_nccl_forward_tell(c, real, why);
    const int taken = c && real && symm_nccl_forward_take(c, real, why);
    symm_nccl_unlock();
    if (taken) {
        t->verdict->elsewhere = 1;
        return symmSuccess;
    }
    return nobody_has(t, real);
}

/* symm's creation goes on, beside it. */
static symmResult_t stand_beside(talk *t, ncclComm_t real, const char *why) {
    symm_nccl_lock();
    const nccl_comm *c = t->m->record;
    if (c) symm_nccl_shadow_set(c, real);
    symm_nccl_unlock();
    if (c) {
        symm_nccl_say(symmLogInfo,
                      "drop-in: communicator %p: calls that symm does not serve go to "
                      "%s, as %s",
                      (const void *)c, symm_nccl_real_path(), why);
        return symmSuccess;
    }
    return nobody_has(t, real);
}

typedef symmResult_t (*use)(talk *t, ncclComm_t real, const char *why);

static symmResult_t enter_real(talk *t, const char *why, use use_it) {
    nccl_entry *e = NULL;
    ncclComm_t real;
    const nccl_entering how = {t->at->nranks, t->at->rank, t->at->device, t->all[0].id,
                               t->m->config};
    const ncclResult_t bad = symm_nccl_entry_begin(&how, &e);
    if (bad) say_error(t, bad, ncclGetLastError(NULL));
    symmResult_t r = e ? await_all(t, e, why) : exchange(t, why);
    if (!e) return r ? r : symmSystemError;
    real = symm_nccl_entry_end(e, r == symmSuccess);
    return r ? r : use_it(t, real, why);
}

static symmResult_t make_real(talk *t, const char *why, use use_it) {
    find_real(t);
    const symmResult_t r = exchange(t, why);
    return r ? r : enter_real(t, why, use_it);
}

/* symm's part cannot be: then the shadow, which is made already, serves all of it. */
static symmResult_t forward(talk *t, const char *why) {
    if (!t->m->over) return make_real(t, why, install);
    symm_nccl_lock();
    const ncclComm_t real = t->m->record ? symm_nccl_shadow_take(t->m->record) : NULL;
    symm_nccl_unlock();
    return install(t, real, why);
}

/* ---- what the ranks settle ------------------------------------------------------------------- */

static symmResult_t differ(talk *t, const char *var, int rank, const char *its, const char *first) {
    snprintf(t->verdict->text, sizeof t->verdict->text,
             "%s is %s on rank %d and %s on rank 0: it must be equal on all ranks", var, its, rank,
             first);
    return symmInvalidUsage;
}

static symmResult_t compare(talk *t, symmResult_t status) {
    if (t->m->bad)
        say_error(t, t->m->bad, t->m->text);
    else if (status)
        say_error(t, symm_nccl_result(status), symmGetLastError(NULL));
    const symmResult_t r = exchange(t, "");
    if (r) return r;
    for (int i = 1; i < t->at->nranks; i++) {
        const word *w = &t->all[i];
        if (w->mode != t->all->mode)
            return differ(t, "SYMM_NCCL", i, mode_name(w->mode), mode_name(t->all->mode));
        if (w->over != t->all->over)
            return differ(t, "SYMM_NCCL_FORWARD", i, over_name(w->over), over_name(t->all->over));
    }
    return symmSuccess;
}

static symmResult_t decide(talk *t, symmResult_t status) {
    char why[TEXT];
    if (status == symmNotSupported) {
        snprintf(why, sizeof why, "%s", symmGetLastError(NULL));
        return t->m->mode == NCCL_MODE_AUTO ? forward(t, why) : status;
    }
    const symmResult_t r = compare(t, status);
    if (r) return r;
    if (t->m->mode == NCCL_MODE_FORWARD) return make_real(t, "SYMM_NCCL=forward", install);
    return t->m->over ? make_real(t, "SYMM_NCCL_FORWARD=op", stand_beside) : symmSuccess;
}

static symmResult_t settle(void *ctx, const symmMeeting_t *at, symmResult_t status,
                           symmVerdict_t *verdict) {
    talk t = {.m = ctx, .at = at, .verdict = verdict};
    t.mine.mode = t.m->mode;
    t.mine.over = t.m->over;
    t.all = calloc((size_t)at->nranks, sizeof *t.all);
    if (!t.all) {
        snprintf(verdict->text, sizeof verdict->text, "no memory to agree with %d ranks",
                 at->nranks);
        return symmOutOfMemory;
    }
    const symmResult_t r = decide(&t, status);
    if (r && verdict->text[0]) symm_nccl_say(symmLogWarn, "%s", verdict->text);
    free(t.all);
    return r;
}

/* ---- while a record is made ------------------------------------------------------------------ */

static void unref(nccl_making *m) {
    if (atomic_fetch_sub(&m->refs, 1) > 1) return;
    symm_nccl_kept_drop(m->config);
    free(m);
}

static void release(void *ctx) {
    unref(ctx);
}

nccl_making *symm_nccl_making_new(nccl_comm *c, int mode, const ncclConfig_t *config,
                                  ncclResult_t bad) {
    nccl_making *m = calloc(1, sizeof *m);
    if (m && bad) snprintf(m->text, sizeof m->text, "%s", ncclGetLastError(NULL));
    if (m && config && !(m->config = symm_nccl_kept_new(config))) {
        free(m);
        m = NULL;
    }
    if (!m) {
        symm_nccl_fail(ncclSystemError, "no memory to make a communicator");
        return NULL;
    }
    m->behind = c->behind;
    m->over = c->over;
    m->refs = 1 + m->behind;
    m->record = c;
    m->mode = mode;
    m->bad = bad;
    return m;
}

symmMeet_t symm_nccl_making_meet(nccl_making *m) {
    return (symmMeet_t){settle, m->behind ? release : NULL, m};
}

void symm_nccl_making_made(nccl_making *m, int begun) {
    if (!m->behind || !begun) symm_nccl_making_end(m, begun);
}

void symm_nccl_making_end(nccl_making *m, int begun) {
    symm_nccl_lock();
    if (m->record) m->record->making = NULL;
    m->record = NULL;
    symm_nccl_unlock();
    if (m->behind && !begun) unref(m);
    unref(m);
}
