/* make.c - making and ending communicators. Any thread; no lock. A handle is written when the call
 * is made, as NCCL does; in a group it can be used when the group has ended. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "config.h"

/* Behind the creation: the handle can be used, or is taken back. */
static void made(void *record, void *out, ncclResult_t code) {
    nccl_comm *c = record;
    (void)code; /* of a group: other communicators may have failed, this one not */
    if (c->making) symm_nccl_making_made(c->making, c->comm != NULL);
    if (c->comm || nccl_comm_forwarded(nccl_handle(c))) {
        symm_nccl_shapes_begin(c);
        symm_nccl_comm_live(c);
        return;
    }
    *(ncclComm_t *)out = NULL;
    symm_nccl_comm_free(c);
}

/* A record, and room for what is done behind the call. */
static ncclResult_t begin_record(nccl_comm **record) {
    ncclResult_t r = symm_nccl_after_room();
    if (!r && !(*record = symm_nccl_comm_new())) r = ncclSystemError;
    return r;
}

/* Its ranks settle first whether they have a shadow, and make it. bad: this rank cannot go on. */
static ncclResult_t begin_shadow(nccl_comm *c, const ncclConfig_t *config, ncclResult_t bad) {
    c->making = symm_nccl_making_new(c, NCCL_MODE_NATIVE, config, bad);
    if (c->making) return ncclSuccess;
    symm_nccl_comm_free(c);
    return ncclSystemError;
}

/* Programs of NCCL's end their ranks in any order: a rank that has no call under way does not hear
 * of a peer's end. One with a shadow hears at once, as calls of the shadow would wait for the
 * peer. */
static void mind_ends(const nccl_comm *c, symmConfig_t *mine) {
    mine->peerDeath = c->over ? SYMM_DEATH_AT_ONCE : SYMM_DEATH_WHEN_USED;
}

/* How a communicator is made from another one. */
enum { BY_SPLIT, BY_SHRINK, BY_GROW, WITHOUT_COLOR };

static void is_unready(nccl_comm *c) {
    atomic_fetch_or_explicit(&c->refuses, COMM_UNREADY, memory_order_relaxed);
}

/* It goes on behind the call, and so does what its parent does for it. */
static void goes_behind(nccl_comm *c, nccl_comm *parent) {
    c->behind = 1;
    is_unready(c);
    if (parent) is_unready(parent);
}

/* What it begins with: the config and a record. It has a shadow if its parent has one; a new rank,
 * which has no parent, goes by its variables, and tells the others what is wrong with them. Ranks
 * that grow always settle, as each of the two kinds knows its own side alone. In a group split and
 * shrink do not go on behind the call. */
static ncclResult_t begin(const char *call, int how, nccl_comm *parent, ncclComm_t *out,
                          const ncclConfig_t *config, symmConfig_t *mine, nccl_comm **record) {
    symm_nccl_params p = {.over = NCCL_FORWARD_NEVER};
    if (!out) return symm_nccl_group_refuse(symm_nccl_null(call, "comm"));
    *out = NULL;
    if (parent && nccl_comm_unready(parent)) return symm_nccl_group_refuse(symm_nccl_unready(call));
    const ncclResult_t bad = parent ? ncclSuccess : symm_nccl_params_load(&p);
    ncclResult_t r = symm_nccl_config(config, mine);
    if (!r) r = begin_record(record);
    if (r) return symm_nccl_group_refuse(r);
    nccl_comm *c = *record;
    const int behind = config ? mine->blocking == 0 : parent && parent->behind;
    if (behind && (how == BY_GROW || !symm_nccl_group_open())) goes_behind(c, parent);
    c->over = parent ? parent->over : !bad && p.over == NCCL_FORWARD_OP;
    if (how == WITHOUT_COLOR) c->over = 0;
    mind_ends(c, mine);
    if (c->over || how == BY_GROW) r = begin_shadow(c, config, bad);
    return r ? symm_nccl_group_refuse(r) : r;
}

/* What its ranks settle when they meet. All of them are told then of variables that are wrong here;
 * a config is the program's own, and as in NCCL the others are not told. */
static ncclResult_t begin_making(nccl_comm *c, const ncclConfig_t *config, symmConfig_t *mine) {
    symm_nccl_params p = {.mode = NCCL_MODE_AUTO};
    ncclResult_t r = symm_nccl_config(config, mine);
    const ncclResult_t bad = r ? r : symm_nccl_params_load(&p);
    if (!r && mine->blocking == 0) goes_behind(c, NULL);
    c->over = !bad && p.over == NCCL_FORWARD_OP;
    mind_ends(c, mine);
    if (!r && !(c->making = symm_nccl_making_new(c, p.mode, config, bad))) r = ncclSystemError;
    if (!r) return r;
    symm_nccl_comm_free(c);
    return symm_nccl_group_refuse(r);
}

static ncclResult_t init_rank(const char *call, ncclComm_t *comm, int nranks,
                              const ncclUniqueId *id, int rank, const ncclConfig_t *config) {
    symmConfig_t mine;
    symmUniqueId_t mine_id;
    nccl_comm *c;
    if (!comm) return symm_nccl_group_refuse(symm_nccl_null(call, "comm"));
    *comm = NULL;
    ncclResult_t r = begin_record(&c);
    if (r) return symm_nccl_group_refuse(r);
    r = begin_making(c, config, &mine);
    if (r) return r;
    _Static_assert(sizeof mine_id == sizeof *id, "an id of symm is one of NCCL");
    mine_id = *(const symmUniqueId_t *)(const void *)id;
    *comm = nccl_handle(c);
    const symmMeet_t meet = symm_nccl_making_meet(c->making);
    return symm_nccl_after(made, c, comm,
                           symmCommInitRankMeet(&c->comm, nranks, mine_id, rank, &mine, &meet));
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank) {
    return init_rank("ncclCommInitRank", comm, nranks, &id, rank, NULL);
}
NCCL_ALIAS(ncclCommInitRank);

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    return init_rank("ncclCommInitRankConfig", comm, nranks, &id, rank, config);
}
NCCL_ALIAS(ncclCommInitRankConfig);

/* One id is enough for symm's ranks to meet: the first, which every rank passes. The others would
 * listen to the end of the process that made them. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nId,
                                      ncclUniqueId *ids, ncclConfig_t *config) {
    static const char call[] = "ncclCommInitRankScalable";
    if (comm) *comm = NULL;
    if (!ids) return symm_nccl_group_refuse(symm_nccl_null(call, "commIds"));
    if (nId < 1 || nId > nranks)
        return symm_nccl_group_refuse(symm_nccl_fail(
            ncclInvalidArgument, "%s: nId=%d: must be 1 to nranks, %d", call, nId, nranks));
    const ncclResult_t r = init_rank(call, comm, nranks, ids, rank, config);
    for (int i = 1; i < nId && (!r || r == ncclInProgress); i++)
        symmUniqueIdDrop((const symmUniqueId_t *)(const void *)&ids[i]);
    return r;
}
NCCL_ALIAS(ncclCommInitRankScalable);

static void drop_all(nccl_comm **records, int n) {
    for (int i = 0; i < n; i++) symm_nccl_comm_free(records[i]);
}

/* Why is symm's last text. */
static ncclResult_t not_native(ncclComm_t *comms, int n, const int *devices) {
    char why[160];
    symm_nccl_params p;
    const ncclResult_t bad = symm_nccl_params_load(&p);
    if (bad || p.mode == NCCL_MODE_NATIVE) return bad ? bad : symm_nccl_result(symmNotSupported);
    snprintf(why, sizeof why, "%s", symmGetLastError(NULL));
    return symm_nccl_forward_all(comms, n, devices, why);
}

/* meets: with shadows, what each rank settles. */
static ncclResult_t new_records(nccl_comm **records, int n, int over, symmMeet_t *meets) {
    for (int i = 0; i < n; i++) {
        nccl_comm *c = records[i] = symm_nccl_comm_new();
        if (c) c->over = over != 0;
        if (c && (!over || !begin_shadow(c, NULL, ncclSuccess))) {
            if (over) meets[i] = symm_nccl_making_meet(c->making);
            continue;
        }
        drop_all(records, i);
        return ncclSystemError;
    }
    return ncclSuccess;
}

static ncclResult_t init_all(ncclComm_t *comms, int n, const int *devices, nccl_comm **records,
                             symmComm_t *mine, symmMeet_t *meets) {
    const ncclResult_t bad = new_records(records, n, meets != NULL, meets);
    if (bad) return bad;
    const symmResult_t r =
        meets ? symmCommInitAllMeet(mine, n, devices, meets) : symmCommInitAll(mine, n, devices);
    if (r) {
        drop_all(records, n);
        return r == symmNotSupported ? not_native(comms, n, devices) : symm_nccl_result(r);
    }
    for (int i = 0; i < n; i++) {
        records[i]->comm = mine[i];
        comms[i] = nccl_handle(records[i]);
        made(records[i], &comms[i], ncclSuccess);
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
    static const char call[] = "ncclCommInitAll";
    symm_nccl_params p;
    if (!comms) return symm_nccl_null(call, "comms");
    if (n < 1 || n > NCCL_MAX_COMMS)
        return symm_nccl_fail(ncclInvalidArgument, "%s: ndev=%d: must be at least 1", call, n);
    const ncclResult_t bad = symm_nccl_params_load(&p);
    if (bad) return bad;
    if (p.mode == NCCL_MODE_FORWARD)
        return symm_nccl_forward_all(comms, n, devices, "SYMM_NCCL=forward");
    nccl_comm **records = calloc((size_t)n, sizeof *records);
    symmComm_t *mine = calloc((size_t)n, sizeof *mine);
    const int over = p.over == NCCL_FORWARD_OP;
    symmMeet_t *meets = over ? calloc((size_t)n, sizeof *meets) : NULL;
    const ncclResult_t r =
        records && mine && (meets || !over)
            ? init_all(comms, n, devices, records, mine, meets)
            : symm_nccl_fail(ncclSystemError, "%s: no memory for %d ranks", call, n);
    free(records);
    free(mine);
    free(meets);
    return r;
}
NCCL_ALIAS(ncclCommInitAll);

/* ---- from another one ------------------------------------------------------------------------ */

/* symm has been called, with that result. A thread that asked for the parent's state before symm
 * began has seen it ready: so it is to be asked again. In progress, and there is none, though there
 * is to be one: another thread makes one from the same parent. */
static ncclResult_t after_child(const char *call, int how, nccl_comm *c, nccl_comm *parent,
                                ncclComm_t *out, symmResult_t now) {
    if (now == symmInProgress && parent) is_unready(parent);
    if (now != symmInProgress || c->comm || how == WITHOUT_COLOR)
        return symm_nccl_after(made, c, out, now);
    made(c, out, ncclInvalidArgument);
    return nccl_done(call, now);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config) {
    static const char call[] = "ncclCommSplit";
    symmConfig_t mine;
    nccl_comm *parent = nccl_comm_live(comm), *c;
    if (nccl_comm_forwarded(comm))
        return symm_nccl_forward_split(comm, color, key, newcomm, config);
    if (!parent) return symm_nccl_comm_none(comm, call);
    const int how = color == NCCL_SPLIT_NOCOLOR ? WITHOUT_COLOR : BY_SPLIT;
    const ncclResult_t r = begin(call, how, parent, newcomm, config, &mine, &c);
    if (r) return r;
    *newcomm = nccl_handle(c);
    const symmConfig_t *its = config ? &mine : NULL;
    const symmMeet_t meet =
        c->over ? symm_nccl_making_meet(c->making) : (symmMeet_t){.settle = NULL};
    return after_child(call, how, c, parent, newcomm,
                       c->over ? symmCommSplitMeet(parent->comm, color, key, &c->comm, its, &meet)
                               : symmCommSplit(parent->comm, color, key, &c->comm, its));
}
NCCL_ALIAS(ncclCommSplit);

/* Its calls end, as this rank wishes. symm does its own part. */
static void stop(nccl_comm *parent) {
    atomic_fetch_or_explicit(&parent->refuses, COMM_STOPPED, memory_order_relaxed);
    symm_nccl_shadow_stop(parent);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int n, ncclComm_t *newcomm,
                            ncclConfig_t *config, int flags) {
    static const char call[] = "ncclCommShrink";
    symmConfig_t mine;
    nccl_comm *parent = nccl_comm_live(comm), *c;
    if (nccl_comm_forwarded(comm))
        return symm_nccl_forward_shrink(comm, excluded, n, newcomm, config, flags);
    if (!parent) return symm_nccl_comm_none(comm, call);
    if (flags & ~NCCL_SHRINK_ABORT)
        return symm_nccl_group_refuse(symm_nccl_fail(
            ncclInvalidArgument, "%s: flags=%#x: must be 0 or %d", call, flags, NCCL_SHRINK_ABORT));
    const ncclResult_t r = begin(call, BY_SHRINK, parent, newcomm, config, &mine, &c);
    if (r) return r;
    if (flags & NCCL_SHRINK_ABORT) stop(parent);
    *newcomm = nccl_handle(c);
    const symmConfig_t *its = config ? &mine : NULL;
    const symmMeet_t meet =
        c->over ? symm_nccl_making_meet(c->making) : (symmMeet_t){.settle = NULL};
    return after_child(
        call, BY_SHRINK, c, parent, newcomm,
        c->over ? symmCommShrinkMeet(parent->comm, excluded, n, &c->comm, its, flags, &meet)
                : symmCommShrink(parent->comm, excluded, n, &c->comm, its, flags));
}
NCCL_ALIAS(ncclCommShrink);

/* A new rank, which has no communicator yet, goes to who serves all of them. */
static int grows_elsewhere(ncclComm_t comm) {
    symm_nccl_params p;
    if (comm) return nccl_comm_forwarded(comm) != NULL;
    return !symm_nccl_params_load(&p) && p.mode == NCCL_MODE_FORWARD;
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                          ncclComm_t *newcomm, ncclConfig_t *config) {
    static const char call[] = "ncclCommGrow";
    symmConfig_t mine;
    nccl_comm *parent = nccl_comm_live(comm), *c;
    if (grows_elsewhere(comm))
        return symm_nccl_forward_grow(comm, nranks, id, rank, newcomm, config);
    if (comm && !parent) return symm_nccl_comm_none(comm, call);
    const ncclResult_t r = begin(call, BY_GROW, parent, newcomm, config, &mine, &c);
    if (r) return r;
    *newcomm = nccl_handle(c);
    const symmMeet_t meet = symm_nccl_making_meet(c->making);
    return after_child(call, BY_GROW, c, parent, newcomm,
                       symmCommGrowMeet(parent ? parent->comm : NULL, nranks,
                                        (const symmUniqueId_t *)(const void *)id, rank, &c->comm,
                                        config || !parent ? &mine : NULL, &meet));
}
NCCL_ALIAS(ncclCommGrow);

/* ---- the end --------------------------------------------------------------------------------- */

/* Of a finalize: it is over already. */
static ncclResult_t over_already(const char *call, const char *how) {
    return symm_nccl_group_refuse(
        symm_nccl_fail(ncclInvalidArgument, "%s: the communicator was %s", call, how));
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    if (!comm) return ncclSuccess;
    if (nccl_comm_forwarded(comm)) return symm_nccl_forward_finalize(comm);
    static const char call[] = "ncclCommFinalize";
    nccl_comm *c = nccl_comm_live(comm);
    if (nccl_comm_state(comm) == COMM_FINAL) return over_already(call, "finalized already");
    if (!c) return symm_nccl_comm_none(comm, call);
    if (nccl_comm_unready(c)) return symm_nccl_group_refuse(symm_nccl_unready(call));
    if (nccl_comm_refuses(c) & COMM_REVOKED) return over_already(call, "revoked");
    const symmResult_t r = symmCommFinalize(c->comm);
    int live = COMM_LIVE;
    if (r) return nccl_done(call, r);
    atomic_compare_exchange_strong(&c->state, &live, COMM_FINAL);
    return symm_nccl_shadow_finalize(c);
}
NCCL_ALIAS(ncclCommFinalize);

/* After a call that should have ended it: whether it has. */
static int lives(const nccl_comm *c) {
    int n;
    return symmCommCount(c->comm, &n) == symmSuccess;
}

/* 1: its ranks may not all come to an end in good order. */
static int has_failed(const nccl_comm *c) {
    symmResult_t now = symmSuccess;
    return symmCommGetAsyncError(c->comm, &now) || now;
}

/* Of a destroy: another thread has aborted it, and is about to end it. The code is the reason why
 * the communicator is over; what refuses a destroy has none of these. */
static int is_aborted(symmResult_t r) {
    return r == symmAborted || r == symmRemoteError || r == symmTimeout || r == symmMismatch;
}

static ncclResult_t end(nccl_comm *c, int state, symmResult_t (*how)(symmComm_t comm)) {
    const int failed = how == symmCommAbort || has_failed(c);
    const symmResult_t r = how(c->comm);
    while (is_aborted(r) && lives(c)) sched_yield();
    ncclResult_t code = is_aborted(r) ? ncclSuccess : nccl_done("ncclCommDestroy", r);
    if (code && lives(c)) { /* refused, as in a group that uses it */
        atomic_store_explicit(&c->state, state, memory_order_release);
        return code;
    }
    if (c->over) {
        const ncclResult_t shadow = symm_nccl_shadow_end(c, failed || r);
        if (!code) code = shadow;
    }
    symm_nccl_shapes_end(c, 0);
    symm_nccl_windows_end(c);
    symm_nccl_comm_free(c);
    return code;
}

/* Behind the call it may become forwarded until this thread has its record: then nobody else ends
 * the real NCCL's. */
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    static const char call[] = "ncclCommDestroy";
    if (!comm) return ncclSuccess;
    nccl_comm *c;
    const ncclResult_t bad = symm_nccl_comm_find_any(comm, call, &c);
    if (bad) return bad;
    if (!nccl_comm_forwarded(comm) && nccl_comm_unready(c)) return symm_nccl_unready(call);
    const int state = symm_nccl_comm_end(c);
    if (state == COMM_FORWARDED) return symm_nccl_forward_destroy(c);
    return state ? end(c, state, symmCommDestroy) : symm_nccl_comm_none(comm, call);
}
NCCL_ALIAS(ncclCommDestroy);

static void end_aborted(void *record, void *state, ncclResult_t code) {
    (void)code;
    symm_nccl_after_failed(end(record, (int)(intptr_t)state, symmCommAbort));
}

/* In a group, as in NCCL: what runs is told at once, and waited for when the group ends. Calls of
 * several communicators may stand behind each other in a stream; PyTorch aborts them together. So
 * may calls of a shadow, and native ones behind them. */
static ncclResult_t abort_here(nccl_comm *c, int state) {
    if (c->over) symm_nccl_shadow_stop(c);
    if (!symm_nccl_group_open() || symm_nccl_after_room() ||
        symmCommRevoke(c->comm, SYMM_REVOKE_ABORT))
        return end(c, state, symmCommAbort);
    return symm_nccl_after(end_aborted, c, (void *)(intptr_t)state, symmSuccess);
}

/* Of one that another thread destroys: frees that thread, which may wait for a peer. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    static const char call[] = "ncclCommAbort";
    if (!comm) return ncclSuccess;
    nccl_comm *c = (nccl_comm *)(void *)comm;
    if (nccl_comm_state(comm) == COMM_ENDING && !c->real) {
        if (symm_nccl_after_has(end_aborted, c)) return ncclSuccess; /* twice in a group */
        const symmResult_t r = symmCommAbort(c->comm);
        return r == symmInvalidArgument ? ncclSuccess
                                        : nccl_of(r); /* that thread is done with it */
    }
    const ncclResult_t bad = symm_nccl_comm_find_any(comm, call, &c);
    if (bad) return bad;
    const int state = symm_nccl_comm_end(c);
    if (state == COMM_FORWARDED) return symm_nccl_forward_abort(c);
    return state ? abort_here(c, state) : symm_nccl_comm_none(comm, call);
}
NCCL_ALIAS(ncclCommAbort);

/* As in NCCL one's own revocation is no error of the communicator, and there is one. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
    if (!comm) return ncclSuccess;
    if (symm_nccl_passes(comm)) return NCCL_ELSE(ncclCommRevoke)(comm, flags);
    static const char call[] = "ncclCommRevoke";
    nccl_comm *c;
    const ncclResult_t bad = symm_nccl_comm_find(comm, call, &c);
    if (bad) return bad;
    if (flags) return symm_nccl_fail(ncclInvalidArgument, "%s: flags=%d: must be 0", call, flags);
    if (atomic_fetch_or(&c->refuses, COMM_REVOKED) & COMM_REVOKED)
        return symm_nccl_fail(ncclInvalidArgument, "%s: the communicator was revoked already",
                              call);
    const symmResult_t r = symmCommRevoke(c->comm, flags);
    if (!r) return symm_nccl_shadow_revoke(c, flags);
    atomic_fetch_and(&c->refuses, (unsigned char)~COMM_REVOKED);
    return r == symmInProgress ? symm_nccl_unready(call) : symm_nccl_result(r);
}
NCCL_ALIAS(ncclCommRevoke);
