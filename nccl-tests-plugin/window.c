/* window.c - memory, windows, registrations. Any thread. Locks: comm.c's, over which records are
 * free and over the lists of registrations; `pinning`, over which pages of records are pinned.
 *
 * A window's handle is the address of a record in the layout that device code of NCCL reads: base
 * of rank 0's part and stride. The record lies in memory of the host, which is pinned, so that
 * kernels read it at that address. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin.h"

#define MAX_WINDOWS 65536

/* LEFT: the program has given it back, symm has it till the end of the communicator. */
enum { WINDOW_FREE, WINDOW_MAKING, WINDOW_LIVE, WINDOW_ENDING, WINDOW_LEFT };

typedef struct {
    _Alignas(128) struct ncclWindow_vidmem seen; /* first: the handle is its address */
    _Atomic int state;                           /* LIVE is stored, released, behind the rest */
    symmWindow_t win;
    _Atomic(nccl_comm *) comm; /* read by other communicators' ends, too */
    void *user;
    ncclWindow_t theirs; /* the shadow's, of the same memory; NULL: none */
} window;

struct symm_nccl_registered { /* ncclCommRegister: nothing but a handle */
    symm_nccl_registered *next;
    void *theirs; /* the shadow's; NULL: none */
};

static _Alignas(4096) window windows[MAX_WINDOWS];
static unsigned fresh; /* under the lock, as the ring of those that are used again */
static uint32_t freed[MAX_WINDOWS];
static unsigned freed_first, freed_count;

enum { PIN_BYTES = 64 << 10, PINS = sizeof windows / PIN_BYTES };
static pthread_mutex_t pinning = PTHREAD_MUTEX_INITIALIZER;
static unsigned char pinned[PINS];
static int readers; /* communicators of GPUs that live and had windows */

_Static_assert(offsetof(struct ncclWindow_vidmem, lsaFlatBase) == 8 &&
                   offsetof(struct ncclWindow_vidmem, lsaRank) == 16 &&
                   offsetof(struct ncclWindow_vidmem, stride4G) == 24 &&
                   offsetof(struct ncclWindow_vidmem, mcOffset4K) == 28,
               "where NCCL's device code has them");

/* ---- records --------------------------------------------------------------------------------- */

static window *take_free(void) {
    if (fresh < MAX_WINDOWS) return &windows[fresh++];
    if (!freed_count) return NULL;
    window *w = &windows[freed[freed_first]];
    freed_first = (freed_first + 1) % MAX_WINDOWS;
    freed_count--;
    return w;
}

static window *new_window(nccl_comm *c, void *user) {
    symm_nccl_lock();
    window *w = take_free();
    symm_nccl_unlock();
    if (!w) {
        symm_nccl_fail(ncclSystemError, "there are %d windows: no more can be made", MAX_WINDOWS);
        return NULL;
    }
    w->win = NULL;
    atomic_store_explicit(&w->comm, c, memory_order_relaxed);
    w->user = user;
    w->theirs = NULL;
    atomic_store_explicit(&w->state, WINDOW_MAKING, memory_order_relaxed);
    return w;
}

static void free_window(window *w) {
    atomic_store_explicit(&w->state, WINDOW_FREE, memory_order_release);
    symm_nccl_lock();
    freed[(freed_first + freed_count++) % MAX_WINDOWS] = (uint32_t)(w - windows);
    symm_nccl_unlock();
}

static nccl_comm *comm_of(const window *w) {
    return atomic_load_explicit(&w->comm, memory_order_relaxed);
}

static window *find(ncclWindow_t win) {
    const uintptr_t at = (uintptr_t)win - (uintptr_t)windows;
    window *w = (window *)(void *)win;
    if (at >= sizeof windows || at % sizeof *w) return NULL;
    /* Acquire: pairs with made. */
    return atomic_load_explicit(&w->state, memory_order_acquire) == WINDOW_LIVE ? w : NULL;
}

int symm_nccl_window_ours(ncclWindow_t win) {
    return (uintptr_t)win - (uintptr_t)windows < sizeof windows;
}

ncclWindow_t symm_nccl_window_theirs(ncclWindow_t win) {
    const window *w = find(win);
    return w ? w->theirs : NULL;
}

ncclResult_t symm_nccl_window_none(ncclWindow_t win, const char *call) {
    if (!win) return symm_nccl_null(call, "win");
    return symm_nccl_fail(ncclInvalidArgument, "%s: %p is no window of symm, or it ended", call,
                          (void *)win);
}

/* The handle is one of c's. *code: else the error. */
static window *find_of(const nccl_comm *c, ncclWindow_t win, const char *call, ncclResult_t *code) {
    window *w = find(win);
    *code = w ? ncclSuccess : symm_nccl_window_none(win, call);
    if (w && comm_of(w) != c)
        *code = symm_nccl_fail(ncclInvalidArgument, "%s: window %p is of another communicator",
                               call, (void *)win);
    return *code ? NULL : w;
}

ncclResult_t symm_nccl_window_of(const nccl_comm *c, ncclWindow_t win, const char *call,
                                 symmWindow_t *out) {
    ncclResult_t code;
    const window *w = find_of(c, win, call, &code);
    *out = w ? w->win : NULL;
    return code;
}

/* ---- records that kernels read --------------------------------------------------------------- */

/* Without it, all but kernels that look into the record go on working. */
static void make_readable(const window *w) {
    const size_t k = (size_t)((const char *)w - (const char *)windows) / PIN_BYTES;
    pthread_mutex_lock(&pinning);
    nccl_comm *c = comm_of(w);
    readers += !c->reads_windows;
    c->reads_windows = 1;
    if (!pinned[k]) {
        pinned[k] = symmHostRegister((char *)windows + k * PIN_BYTES, PIN_BYTES) == symmSuccess;
        if (!pinned[k])
            symm_nccl_say(symmLogInfo, "ncclCommWindowRegister: kernels cannot read the handle: %s",
                          symmGetLastError(NULL));
    }
    pthread_mutex_unlock(&pinning);
}

/* The communicator has ended, and so have its kernels. (Unpinning may wait for the GPU, where a
 * kernel waits for a peer: a deregistration must not do it.) */
static void end_readable(nccl_comm *c) {
    pthread_mutex_lock(&pinning);
    const int was = c->reads_windows;
    c->reads_windows = 0;
    readers -= was;
    for (size_t k = 0; was && !readers && k < PINS; k++) {
        if (pinned[k]) symmHostUnregister((char *)windows + k * PIN_BYTES);
        pinned[k] = 0;
    }
    pthread_mutex_unlock(&pinning);
}

/* ---- the end of a communicator --------------------------------------------------------------- */

/* The state first: a live one's communicator is seen with it, and where that is c the window stays
 * c's, whose calls have ended. Other communicators' windows come and go meanwhile. */
static int lives_of(const window *w, const nccl_comm *c) {
    /* Acquire: pairs with made. */
    const int state = atomic_load_explicit(&w->state, memory_order_acquire);
    return (state == WINDOW_LIVE || state == WINDOW_LEFT) && comm_of(w) == c;
}

void symm_nccl_windows_end(nccl_comm *c) {
    symm_nccl_lock();
    const unsigned used = fresh;
    symm_nccl_registered *r = c->registered;
    c->registered = NULL;
    symm_nccl_unlock();
    end_readable(c);
    for (unsigned i = 0; i < used; i++)
        if (lives_of(&windows[i], c)) free_window(&windows[i]);
    for (symm_nccl_registered *next; r; r = next) {
        next = r->next;
        free(r);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* No bytes: no memory, as NCCL has it of cudaMalloc. */
ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
    if (ptr && !size) {
        *ptr = NULL;
        return ncclSuccess;
    }
    return nccl_of(symmMemAlloc(ptr, size));
}
NCCL_ALIAS(ncclMemAlloc);

ncclResult_t ncclMemFree(void *ptr) {
    return nccl_of(symmMemFree(ptr));
}
NCCL_ALIAS(ncclMemFree);

/* ---- windows --------------------------------------------------------------------------------- */

/* Device code reaches all parts by one base and stride if they lie at one offset of their slots. */
static int lies_alike(const window *w, const symmCommInfo_t *comm, const symmWindowInfo_t *info) {
    for (int r = 0; r < comm->nranks; r++) {
        const uint64_t at = comm->base + comm->stride * (unsigned)r + info->offset;
        void *part;
        if (r == comm->rank) continue;                        /* its own may be another address */
        if (symmWindowPeerPtr(w->win, 0, r, &part)) continue; /* it has nothing there */
        if ((uint64_t)(uintptr_t)part != at) return 0;
    }
    return 1;
}

/* What device code reads. Where peers' memory is not mapped by one rule (thread ranks, buffers at
 * different offsets of their memory) there is no base: ncclGetPeerDevicePointer knows the addresses
 * all the same. */
static void show(window *w) {
    symmCommInfo_t comm = {.size = sizeof comm};
    symmWindowInfo_t info = {.size = sizeof info};
    w->seen = (struct ncclWindow_vidmem){.winHost = w};
    if (symmCommQuery(comm_of(w)->comm, &comm) || symmWindowQuery(w->win, &info)) return;
    w->seen.lsaRank = w->seen.worldRank = comm.rank;
    if (!strcmp(comm.backend, "cuda")) make_readable(w);
    if (comm.threadRanks || comm.stride >> 32 << 32 != comm.stride) return;
    if (!lies_alike(w, &comm, &info)) {
        symm_nccl_say(symmLogInfo,
                      "ncclCommWindowRegister: the ranks' buffers begin at different offsets of "
                      "their memory: kernels cannot reach peers by the window's handle");
        return;
    }
    w->seen.lsaFlatBase = (char *)(uintptr_t)(comm.base + info.offset);
    w->seen.stride4G = (uint32_t)(comm.stride >> 32);
}

static void made(void *record, void *out, ncclResult_t code) {
    window *w = record;
    (void)code; /* of a group: other windows may have failed, this one not */
    if (!w->win) {
        free_window(w);
        return;
    }
    show(w);
    /* Release: pairs with find. */
    atomic_store_explicit(&w->state, WINDOW_LIVE, memory_order_release);
    *(ncclWindow_t *)out = &w->seen;
}

/* What a program registers with a communicator that has a shadow, for calls that go there. What the
 * real NCCL does not take stays symm's: the calls are refused then that need it. */
static const nccl_calls *shadow_calls(const nccl_comm *c, ncclComm_t *real) {
    *real = c->over ? atomic_load(&nccl_shadow_of(c)->comm) : NULL;
    return *real ? symm_nccl_real_calls() : NULL;
}

static void not_taken(const char *call, ncclComm_t real, ncclResult_t r) {
    const nccl_calls *calls = symm_nccl_real_calls();
    const char *text = calls->ncclGetLastError ? calls->ncclGetLastError(real) : "";
    symm_nccl_say(symmLogInfo,
                  "%s: the real NCCL does not take it, calls that need that are "
                  "refused: %d, %.300s",
                  call, (int)r, text);
}

static void register_over(window *w, void *buff, size_t size, int flags) {
    ncclComm_t real;
    const nccl_calls *calls = shadow_calls(comm_of(w), &real);
    if (!calls || !calls->ncclCommWindowRegister) return;
    NCCL_INSIDE_REAL;
    symm_nccl_group_real(calls);
    const ncclResult_t r = calls->ncclCommWindowRegister(real, buff, size, &w->theirs, flags);
    if (!r || r == ncclInProgress) return;
    w->theirs = NULL;
    not_taken("ncclCommWindowRegister", real, r);
}

/* Flags are hints for transports that symm does not have. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int flags) {
    static const char call[] = "ncclCommWindowRegister";
    nccl_comm *c = nccl_comm_live(comm);
    if (!c) return NCCL_ELSE(ncclCommWindowRegister)(comm, buff, size, win, flags);
    if (!win) return symm_nccl_group_refuse(symm_nccl_null(call, "win"));
    *win = NULL; /* until it is made */
    if (nccl_comm_unready(c)) return symm_nccl_group_refuse(symm_nccl_unready(call));
    const ncclResult_t r = symm_nccl_after_room();
    if (r) return r;
    window *w = new_window(c, buff);
    if (!w) return symm_nccl_group_refuse(ncclSystemError);
    const symmResult_t now =
        symmWindowRegister(c->comm, buff, size, &w->win, SYMM_WIN_COLL_SYMMETRIC);
    if (!now) register_over(w, buff, size, flags);
    if (now != symmInProgress) return symm_nccl_after(made, w, win, now);
    free_window(w);
    return nccl_done(call, now);
}
NCCL_ALIAS(ncclCommWindowRegister);

static void deregister_over(const window *w) {
    ncclComm_t real;
    const nccl_calls *calls = shadow_calls(comm_of(w), &real);
    if (!w->theirs || !calls || !calls->ncclCommWindowDeregister) return;
    NCCL_INSIDE_REAL;
    const ncclResult_t r = calls->ncclCommWindowDeregister(real, w->theirs);
    if (r) not_taken("ncclCommWindowDeregister", real, r);
}

static uint64_t calls_of(const nccl_comm *c) {
    uint64_t n = 0;
    for (int i = 0; i < CALLS; i++) n += atomic_load_explicit(&c->calls[i], memory_order_relaxed);
    return n;
}

/* Whether another thread is inside and makes no call for a second. It may wait for a peer that does
 * not come, and to deregister would be to wait for that thread. PyTorch's watchdog gives all
 * windows back before it aborts: only the first one waits here. */
static int stands_still(nccl_comm *c) {
    enum { PATIENCE_MS = 1000 };
    symmCommInfo_t info = {.size = sizeof info};
    const uint64_t calls = calls_of(c);
    for (int ms = 0;; ms++) {
        const int inside = !symmCommQuery(c->comm, &info) && info.inside && calls_of(c) == calls;
        if (!inside) atomic_store_explicit(&c->stuck, 0, memory_order_relaxed);
        if (!inside || atomic_load_explicit(&c->stuck, memory_order_relaxed)) return inside;
        if (ms == PATIENCE_MS) atomic_store_explicit(&c->stuck, 1, memory_order_relaxed);
        usleep(1000);
    }
}

static ncclResult_t drop(window *w) {
    int live = WINDOW_LIVE;
    if (!atomic_compare_exchange_strong(&w->state, &live, WINDOW_ENDING))
        return symm_nccl_window_none(&w->seen, "ncclCommWindowDeregister");
    if (stands_still(comm_of(w))) {
        atomic_store_explicit(&w->state, WINDOW_LEFT, memory_order_release);
        return ncclSuccess;
    }
    const symmResult_t r = symmWindowDeregister(comm_of(w)->comm, w->win);
    if (r) {
        atomic_store_explicit(&w->state, WINDOW_LIVE, memory_order_release);
        return nccl_done("ncclCommWindowDeregister", r);
    }
    deregister_over(w);
    free_window(w);
    return ncclSuccess;
}

/* What a program did not get a window for, it may give back: NULL. */
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
    if (symm_nccl_passes(comm)) return NCCL_ELSE(ncclCommWindowDeregister)(comm, win);
    static const char call[] = "ncclCommWindowDeregister";
    nccl_comm *c;
    const ncclResult_t bad = symm_nccl_comm_find(comm, call, &c);
    if (bad) return bad;
    ncclResult_t code;
    if (!win) return ncclSuccess;
    if (nccl_comm_unready(c)) return symm_nccl_group_refuse(symm_nccl_unready(call));
    window *w = find_of(c, win, call, &code);
    return w ? drop(w) : code;
}
NCCL_ALIAS(ncclCommWindowDeregister);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **ptr) {
    if (symm_nccl_passes(comm)) return NCCL_ELSE(ncclWinGetUserPtr)(comm, win, ptr);
    static const char call[] = "ncclWinGetUserPtr";
    nccl_comm *c;
    const ncclResult_t bad = symm_nccl_comm_find(comm, call, &c);
    if (bad) return bad;
    window *w = find(win);
    if (!w) return symm_nccl_window_none(win, call);
    if (!ptr) return symm_nccl_null(call, "outUserPtr");
    *ptr = w->user;
    return ncclSuccess;
}
NCCL_ALIAS(ncclWinGetUserPtr);

static ncclResult_t peer_pointer(const char *call, ncclWindow_t win, size_t offset, int rank,
                                 void **ptr) {
    window *w = find(win);
    if (!w) return symm_nccl_window_none(win, call);
    if (!ptr) return symm_nccl_null(call, "outPtr");
    return nccl_of(symmWindowPeerPtr(w->win, offset, rank, ptr));
}

/* All ranks of a communicator are one team that reaches its memory by loads and stores. */
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t win, size_t offset, int lsaRank, void **ptr) {
    if (symm_nccl_passes_window(win))
        return NCCL_ELSE(ncclGetLsaDevicePointer)(win, offset, lsaRank, ptr);
    return peer_pointer("ncclGetLsaDevicePointer", win, offset, lsaRank, ptr);
}
NCCL_ALIAS(ncclGetLsaDevicePointer);

ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t win, size_t offset, int peer, void **ptr) {
    if (symm_nccl_passes_window(win))
        return NCCL_ELSE(ncclGetPeerDevicePointer)(win, offset, peer, ptr);
    return peer_pointer("ncclGetPeerDevicePointer", win, offset, peer, ptr);
}
NCCL_ALIAS(ncclGetPeerDevicePointer);

/* ---- registration of one rank ---------------------------------------------------------------- */

/* The shadow's handle of a buffer; NULL: none. */
static void *buffer_over(const nccl_comm *c, void *buff, size_t size) {
    ncclComm_t real;
    void *theirs = NULL;
    const nccl_calls *calls = shadow_calls(c, &real);
    if (!calls || !calls->ncclCommRegister || !calls->ncclCommDeregister) return NULL;
    NCCL_INSIDE_REAL;
    const ncclResult_t r = calls->ncclCommRegister(real, buff, size, &theirs);
    if (!r) return theirs;
    not_taken("ncclCommRegister", real, r);
    return NULL;
}

static void drop_over(const nccl_comm *c, void *theirs) {
    ncclComm_t real;
    const nccl_calls *calls = theirs ? shadow_calls(c, &real) : NULL;
    if (!calls) return;
    NCCL_INSIDE_REAL;
    const ncclResult_t r = calls->ncclCommDeregister(real, theirs);
    if (r) not_taken("ncclCommDeregister", real, r);
}

/* NCCL may use such a buffer without a copy. symm has nothing to gain from one rank's. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle) {
    static const char call[] = "ncclCommRegister";
    if (symm_nccl_passes(comm)) return NCCL_ELSE(ncclCommRegister)(comm, buff, size, handle);
    nccl_comm *c;
    int rank;
    const ncclResult_t bad = symm_nccl_comm_find(comm, call, &c);
    if (bad) return bad;
    if (!buff || !handle) return symm_nccl_null(call, buff ? "handle" : "buff");
    /* It may become forwarded: the real NCCL would be asked to take our handle back. */
    if (symmCommUserRank(c->comm, &rank) == symmInProgress) return symm_nccl_unready(call);
    symm_nccl_registered *r = malloc(sizeof *r);
    if (!r) return symm_nccl_fail(ncclSystemError, "%s: no memory for a handle", call);
    r->theirs = buffer_over(c, buff, size);
    symm_nccl_lock();
    r->next = c->registered;
    c->registered = r;
    symm_nccl_unlock();
    *handle = r;
    return ncclSuccess;
}
NCCL_ALIAS(ncclCommRegister);

/* 1 if the handle was one of the communicator's. */
static int forget(nccl_comm *c, const void *handle) {
    symm_nccl_lock();
    symm_nccl_registered **at = &c->registered;
    while (*at && *at != handle) at = &(*at)->next;
    symm_nccl_registered *found = *at;
    if (found) *at = found->next;
    symm_nccl_unlock();
    if (found) drop_over(c, found->theirs);
    free(found);
    return found != NULL;
}

/* PyTorch's abort hands windows to it. */
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    static const char call[] = "ncclCommDeregister";
    if (symm_nccl_passes(comm)) return NCCL_ELSE(ncclCommDeregister)(comm, handle);
    nccl_comm *c;
    const ncclResult_t bad = symm_nccl_comm_find(comm, call, &c);
    if (bad) return bad;
    if (find(handle)) return ncclCommWindowDeregister(comm, handle);
    if (!handle || forget(c, handle)) return ncclSuccess;
    return symm_nccl_fail(ncclInvalidUsage, "%s: %p is no handle of this communicator", call,
                          handle);
}
NCCL_ALIAS(ncclCommDeregister);
