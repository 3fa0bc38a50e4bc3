/* forward_life.c - forwarded communicators that are made from another one, made for all of a
 * process, and ended; the shadows of native ones, which agree.c makes. Any thread. Locks: comm.c's,
 * over what a record has for a shadow and over the reductions of shadows; `births`, over children
 * that are not there yet, which is taken before comm.c's. */
#include <pthread.h>
#include <stdlib.h>

#include "plugin.h"

/* ---- made from another one ------------------------------------------------------------------- */

typedef struct {
    const char *call;
    const nccl_calls *real;
    nccl_comm *parent; /* NULL: a new rank */
    nccl_comm *made;
    ncclComm_t *out;
} birth;

/* A child of one that does not block. The real NCCL writes its handle into the record at any moment
 * until the parent is ready again. */
typedef struct late {
    struct late *next;
    const nccl_comm *parent; /* NULL: it has ended */
    nccl_comm *made;
    ncclComm_t *out;
    uint64_t number; /* 0: its call, or the group around it, has not ended */
} late;

static pthread_mutex_t births = PTHREAD_MUTEX_INITIALIZER;
static late *waiting;
static _Atomic uint64_t waiting_count, numbers;

/* The real NCCL may write it meanwhile, in a thread of its own, or in that of the parent's
 * watchdog: who sees it sees the communicator. */
static ncclComm_t real_of(nccl_comm *c) {
    return __atomic_load_n(&c->real, __ATOMIC_ACQUIRE);
}

/* The real NCCL has written its handle, or there is no child: then *out is NULL already. */
static void be_born(nccl_comm *c, ncclComm_t *out) {
    static const char of_parent[] = "nor is the one that it is made from";
    const ncclComm_t real = real_of(c);
    if (real) *out = nccl_handle(c);
    if (real) symm_nccl_forward_tell(c, real, of_parent);
    if (real && symm_nccl_forward_take(c, real, of_parent)) {
        symm_nccl_shapes_begin(c);
        return;
    }
    symm_nccl_comm_free(c);
}

static ncclResult_t expect(const birth *b) {
    late *l = b->parent && b->parent->behind ? calloc(1, sizeof *l) : NULL;
    if (!b->parent || !b->parent->behind) return ncclSuccess;
    if (!l) return symm_nccl_fail(ncclSystemError, "%s: no memory for a communicator", b->call);
    *l = (late){NULL, b->parent, b->made, b->out, 0};
    pthread_mutex_lock(&births);
    l->next = waiting;
    waiting = l;
    atomic_fetch_add(&waiting_count, 1);
    pthread_mutex_unlock(&births);
    return ncclSuccess;
}

/* Under the lock, as long as the program may be told that the parent is ready: so a thread that is
 * told has the handle. */
static void drop_late(late **at) {
    late *l = *at;
    *at = l->next;
    free(l);
    atomic_fetch_sub(&waiting_count, 1);
}

/* Behind the call, or its group. */
static void born(void *record, void *out, ncclResult_t code) {
    nccl_comm *c = record;
    *(ncclComm_t *)out = NULL;
    pthread_mutex_lock(&births);
    late **at = &waiting;
    while (*at && (*at)->made != c) at = &(*at)->next;
    late *l = *at;
    const int waits = l && l->parent && !real_of(c) && (!code || code == ncclInProgress);
    if (waits) l->number = atomic_fetch_add(&numbers, 1) + 1;
    if (l && !waits) drop_late(at);
    if (!waits) be_born(c, out);
    pthread_mutex_unlock(&births);
}

uint64_t symm_nccl_forward_births(void) {
    return UNLIKELY(atomic_load(&waiting_count)) ? atomic_load(&numbers) : 0;
}

void symm_nccl_forward_settled(const nccl_comm *parent, uint64_t seen) {
    pthread_mutex_lock(&births);
    for (late **at = &waiting, *l; (l = *at);) {
        if (l->parent != parent || !l->number || l->number > seen) {
            at = &l->next;
            continue;
        }
        be_born(l->made, l->out);
        drop_late(at);
    }
    pthread_mutex_unlock(&births);
}

/* The parent ends, and nobody can ask it any more. */
static void end_births(const nccl_comm *parent) {
    if (!atomic_load(&waiting_count)) return;
    symm_nccl_forward_settled(parent, UINT64_MAX);
    pthread_mutex_lock(&births);
    for (late *l = waiting; l; l = l->next)
        if (l->parent == parent) l->parent = NULL;
    pthread_mutex_unlock(&births);
}

/* Whether the child goes on behind its calls, as far as its config says so. */
static int is_behind(const nccl_comm *parent, const ncclConfig_t *config) {
    const size_t has = offsetof(ncclConfig_t, blocking) + sizeof config->blocking;
    if (config && config->size >= has && config->blocking != NCCL_CONFIG_UNDEF_INT)
        return !config->blocking;
    return parent && parent->behind;
}

static ncclResult_t begin(birth *b, int there, const ncclConfig_t *config) {
    if (!b->out) return symm_nccl_group_refuse(symm_nccl_null(b->call, "newcomm"));
    *b->out = NULL;
    if (!there)
        return symm_nccl_group_refuse(
            symm_nccl_fail(ncclInvalidUsage, "%s: %s", b->call, symm_nccl_real_lacks(b->call)));
    ncclResult_t r = symm_nccl_after_room();
    if (r) return r;
    b->made = symm_nccl_comm_new();
    if (!b->made) return symm_nccl_group_refuse(ncclSystemError);
    b->made->behind = is_behind(b->parent, config) != 0;
    r = expect(b);
    if (r) {
        symm_nccl_comm_free(b->made);
        return symm_nccl_group_refuse(r);
    }
    if (!b->parent || !b->parent->behind) *b->out = nccl_handle(b->made);
    symm_nccl_group_real(b->real);
    return ncclSuccess;
}

static ncclResult_t end_birth(const birth *b, ncclResult_t r) {
    if (r && r != ncclInProgress) {
        b->made->real = NULL;
        born(b->made, b->out, r);
        return symm_nccl_forward_failed(b->call, NULL, r);
    }
    symm_nccl_after(born, b->made, b->out, symmSuccess);
    return r;
}

ncclResult_t symm_nccl_forward_split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                                     ncclConfig_t *config) {
    birth b = {"ncclCommSplit", symm_nccl_real_calls(), nccl_comm_forwarded(comm), NULL, newcomm};
    NCCL_INSIDE_REAL;
    const ncclResult_t bad = begin(&b, b.real->ncclCommSplit != NULL, config);
    return bad ? bad
               : end_birth(
                     &b, b.real->ncclCommSplit(b.parent->real, color, key, &b.made->real, config));
}

ncclResult_t symm_nccl_forward_shrink(ncclComm_t comm, int *excluded, int n, ncclComm_t *newcomm,
                                      ncclConfig_t *config, int flags) {
    birth b = {"ncclCommShrink", symm_nccl_real_calls(), nccl_comm_forwarded(comm), NULL, newcomm};
    NCCL_INSIDE_REAL;
    const ncclResult_t bad = begin(&b, b.real->ncclCommShrink != NULL, config);
    return bad ? bad
               : end_birth(&b, b.real->ncclCommShrink(b.parent->real, excluded, n, &b.made->real,
                                                      config, flags));
}

ncclResult_t symm_nccl_forward_grow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                                    ncclComm_t *newcomm, ncclConfig_t *config) {
    const char *why;
    birth b = {"ncclCommGrow", symm_nccl_real(&why), nccl_comm_forwarded(comm), NULL, newcomm};
    if (!b.real)
        return symm_nccl_group_refuse(symm_nccl_fail(ncclInvalidUsage, "ncclCommGrow: %s", why));
    const ncclComm_t parent = b.parent ? b.parent->real : NULL;
    NCCL_INSIDE_REAL;
    const ncclResult_t bad = begin(&b, b.real->ncclCommGrow != NULL, config);
    return bad ? bad
               : end_birth(&b,
                           b.real->ncclCommGrow(parent, nranks, id, rank, &b.made->real, config));
}

/* ---- all of a process ------------------------------------------------------------------------ */

static void drop(ncclComm_t *comms, int n) {
    for (int i = 0; i < n; i++) symm_nccl_comm_free((nccl_comm *)(void *)comms[i]);
    for (int i = 0; i < n; i++) comms[i] = NULL;
}

static ncclResult_t make_records(ncclComm_t *comms, int n) {
    for (int i = 0; i < n; i++) {
        nccl_comm *c = symm_nccl_comm_new();
        if (!c) {
            drop(comms, i);
            return ncclSystemError;
        }
        comms[i] = nccl_handle(c);
    }
    return ncclSuccess;
}

ncclResult_t symm_nccl_forward_all(ncclComm_t *comms, int n, const int *devices, const char *why) {
    const char *none;
    const nccl_calls *real = symm_nccl_real(&none);
    if (real && !real->ncclCommInitAll) none = symm_nccl_real_lacks("ncclCommInitAll");
    if (!real || !real->ncclCommInitAll)
        return symm_nccl_fail(ncclInvalidUsage, "%s; ncclCommInitAll: %s", why, none);
    ncclComm_t *theirs = calloc((size_t)n, sizeof(ncclComm_t));
    if (!theirs)
        return symm_nccl_fail(ncclSystemError, "ncclCommInitAll: no memory for %d ranks", n);
    NCCL_INSIDE_REAL;
    ncclResult_t r = make_records(comms, n);
    if (!r && (r = real->ncclCommInitAll(theirs, n, devices))) {
        r = symm_nccl_forward_failed("ncclCommInitAll", NULL, r);
        drop(comms, n);
    }
    for (int i = 0; !r && i < n; i++) {
        nccl_comm *c = (nccl_comm *)(void *)comms[i];
        symm_nccl_forward_tell(c, theirs[i], why);
        symm_nccl_forward_take(c, theirs[i], why);
        symm_nccl_shapes_begin(c);
    }
    free(theirs);
    return r;
}

/* ---- the end --------------------------------------------------------------------------------- */

ncclResult_t symm_nccl_forward_finalize(ncclComm_t comm) {
    const nccl_calls *real = symm_nccl_real_calls();
    const ncclComm_t theirs = nccl_comm_forwarded(comm)->real;
    if (!real->ncclCommFinalize)
        return symm_nccl_fail(ncclInvalidUsage, "ncclCommFinalize: %s",
                              symm_nccl_real_lacks("ncclCommFinalize"));
    NCCL_INSIDE_REAL;
    const ncclResult_t r = real->ncclCommFinalize(theirs);
    return r ? symm_nccl_forward_failed("ncclCommFinalize", theirs, r) : r;
}

/* One that was made behind the call has a record of symm's too, which has ended long ago. */
static void drop_shell(const nccl_comm *c) {
    if (c->comm) symmCommAbort(c->comm);
}

/* NCCL's handle is gone whatever comes of it. */
static ncclResult_t end(const char *name, nccl_comm *c, ncclResult_t (*how)(ncclComm_t comm)) {
    NCCL_INSIDE_REAL;
    ncclResult_t r = how ? how(c->real) : ncclInvalidUsage;
    if (r) r = symm_nccl_forward_failed(name, NULL, r);
    end_births(c);
    drop_shell(c);
    symm_nccl_shapes_end(c, 1);
    symm_nccl_comm_free(c);
    return r;
}

ncclResult_t symm_nccl_forward_destroy(nccl_comm *c) {
    return end("ncclCommDestroy", c, symm_nccl_real_calls()->ncclCommDestroy);
}

ncclResult_t symm_nccl_forward_abort(nccl_comm *c) {
    return end("ncclCommAbort", c, symm_nccl_real_calls()->ncclCommAbort);
}

/* ---- shadows --------------------------------------------------------------------------------- */

nccl_shadow symm_nccl_shadows[NCCL_MAX_COMMS];

void symm_nccl_shadow_set(const nccl_comm *c, ncclComm_t real) {
    /* Release: pairs with symm_nccl_shadow_ready. */
    atomic_store_explicit(&nccl_shadow_of(c)->comm, real, memory_order_release);
}

ncclComm_t symm_nccl_shadow_take(const nccl_comm *c) {
    return atomic_exchange(&nccl_shadow_of(c)->comm, NULL);
}

static ncclComm_t shadow_of(const nccl_comm *c) {
    return c->over ? atomic_load_explicit(&nccl_shadow_of(c)->comm, memory_order_acquire) : NULL;
}

/* First nobody makes it any more: then none comes behind this. */
ncclResult_t symm_nccl_shadow_end(nccl_comm *c, int failed) {
    const nccl_calls *real = symm_nccl_real_calls();
    nccl_shadow *s = nccl_shadow_of(c);
    if (c->making) symm_nccl_making_end(c->making, 1);
    symm_nccl_lock();
    const ncclComm_t theirs = symm_nccl_shadow_take(c);
    free(s->ops);
    s->ops = NULL;
    s->nops = 0;
    symm_nccl_unlock();
    if (!theirs) return ncclSuccess;
    NCCL_INSIDE_REAL;
    const ncclResult_t r = failed ? real->ncclCommAbort(theirs) : real->ncclCommDestroy(theirs);
    return r ? symm_nccl_forward_failed(failed ? "ncclCommAbort" : "ncclCommDestroy", NULL, r) : r;
}

/* Older ones have no such call, and need none. */
ncclResult_t symm_nccl_shadow_finalize(const nccl_comm *c) {
    const ncclComm_t theirs = shadow_of(c);
    if (!theirs || !symm_nccl_real_calls()->ncclCommFinalize) return ncclSuccess;
    NCCL_INSIDE_REAL;
    const ncclResult_t r = symm_nccl_real_calls()->ncclCommFinalize(theirs);
    return r ? symm_nccl_forward_failed("ncclCommFinalize", theirs, r) : r;
}

/* What stands in it ends, also where a peer does not come. Older ones have no such call: then all
 * of it ends now, as no call goes to it any more. */
static ncclResult_t stop(const nccl_comm *c, int flags) {
    const nccl_calls *real = symm_nccl_real_calls();
    const ncclComm_t theirs = shadow_of(c);
    if (!theirs) return ncclSuccess;
    NCCL_INSIDE_REAL;
    if (real->ncclCommRevoke) return real->ncclCommRevoke(theirs, flags);
    const ncclComm_t taken = symm_nccl_shadow_take(c);
    return taken ? real->ncclCommAbort(taken) : ncclSuccess;
}

ncclResult_t symm_nccl_shadow_revoke(const nccl_comm *c, int flags) {
    const ncclResult_t r = stop(c, flags);
    return r ? symm_nccl_forward_failed("ncclCommRevoke", NULL, r) : r;
}

void symm_nccl_shadow_stop(const nccl_comm *c) {
    stop(c, 0);
}

ncclResult_t symm_nccl_shadow_async(const nccl_comm *c, ncclResult_t *error) {
    const ncclComm_t theirs = shadow_of(c);
    if (!theirs) return ncclSuccess;
    NCCL_INSIDE_REAL;
    const ncclResult_t r = symm_nccl_real_calls()->ncclCommGetAsyncError(theirs, error);
    return r ? symm_nccl_forward_failed("ncclCommGetAsyncError", theirs, r) : r;
}

/* ---- their reductions ------------------------------------------------------------------------ */

enum { NO_OP = -1 };

static ncclRedOp_t op_at(const nccl_comm *c, ncclRedOp_t op, int take) {
    nccl_shadow *s = nccl_shadow_of(c);
    const int i = (int)op - NCCL_OP_THEIRS;
    ncclRedOp_t theirs = (ncclRedOp_t)NO_OP;
    symm_nccl_lock();
    if (i >= 0 && i < s->nops) {
        theirs = s->ops[i];
        if (take) s->ops[i] = (ncclRedOp_t)NO_OP;
    }
    symm_nccl_unlock();
    return theirs;
}

/* Those that are built in are the same everywhere; one of symm's the real NCCL does not know. */
ncclRedOp_t symm_nccl_shadow_op(const nccl_comm *c, ncclRedOp_t op) {
    return (int)op < NCCL_OP_HANDLES ? op : op_at(c, op, 0);
}

ncclRedOp_t symm_nccl_shadow_op_take(const nccl_comm *c, ncclRedOp_t op) {
    return op_at(c, op, 1);
}

int symm_nccl_shadow_op_new(const nccl_comm *c, ncclRedOp_t theirs) {
    nccl_shadow *s = nccl_shadow_of(c);
    int i = 0;
    symm_nccl_lock();
    while (i < s->nops && s->ops[i] != (ncclRedOp_t)NO_OP) i++;
    if (i == s->nops) {
        ncclRedOp_t *more = realloc(s->ops, (size_t)(i + 1) * sizeof *more);
        if (more) s->ops = more, s->nops++;
    }
    const int there = i < s->nops;
    if (there) s->ops[i] = theirs;
    symm_nccl_unlock();
    if (there) return NCCL_OP_THEIRS + i;
    symm_nccl_group_refuse(symm_nccl_fail(ncclSystemError, "no memory for a reduction"));
    return 0;
}
