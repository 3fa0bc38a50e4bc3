/* symm.h - symmetric memory and collectives for ranks that share one memory domain.
 *
 * The ranks are GPUs that NVLink joins (CUDA backend), or processes or threads of one machine (host
 * backend, which needs no GPU). The registered memory of every rank is mapped in every process, at
 * `base + rank * stride + offset` (symmWindowInfo_t). A collective is one kernel that runs on that
 * mapping.
 *
 * Conventions
 *  - Calls return a symmResult_t. symmGetLastError has the text: it names argument and value.
 *    Nothing is printed except the log (SYMM_DEBUG=WARN, INFO, TRACE).
 *  - The object comes first, out-parameters last. Calls that NCCL has, and variants of them, keep
 *    NCCL's order. Out-parameters are written only on success or with symmInProgress.
 *  - Sizes are size_t, flags are unsigned; symmCommShrink, symmCommRevoke and symmWindowRegister
 *    take int, as in NCCL.
 *  - Info structs: the caller sets `size` to sizeof, the call fills in the rest (0: not known).
 *  - Any call may return symmInvalidArgument (a handle that is not live, NULL where a pointer is
 *    needed, a value out of range) and symmOutOfMemory. A call that needs peers may also return
 *    symmRemoteError, symmTimeout, symmAborted, symmMismatch, symmSystemError, symmFdLimit and
 *    symmUnhandledCudaError. `Errors:` has what is to be said of a call besides.
 *
 * `Order:` says which ranks make a call.
 *  - local: no other rank is involved.
 *  - local, same order on all ranks: no message is sent, but each rank makes the call at the same
 *    place among its calls of this kind.
 *  - collective: every rank of the communicator makes the call, in the same order. If ranks differ,
 *    all get symmMismatch, whose text says who called what, and the communicator is over.
 *    A collective that is refused on one rank (symmInvalidArgument, symmInvalidUsage) was not made
 *    there, and others may wait for it. That wait ends with symmCommAbort or symmCommRevoke,
 *    or when the refused rank makes a different collective.
 *
 * Threads
 *  - Any threads may use a communicator. One of them is inside at a time; others wait until it has
 *    left, or the communicator ends. Which of them is next is open: where ranks must make calls in
 *    one order, the program's threads see to it. A call from a callback of the same thread's own
 *    call would wait for itself: symmInvalidUsage.
 *  - Calls whose `Order:` says any thread may be made at any time, even while another thread is
 *    stuck in a call of the same communicator. So a watchdog can look, report and end
 *    (docs/hangs.md). If the communicator has ended meanwhile they return symmInvalidArgument.
 *  - No call may be made from a signal handler.
 *  - If one thread calls several thread ranks one after the other, the first call waits for the
 *    others, which would only come after it; after a second a warning says so. Make the calls of
 *    several ranks in a group, or give them to streams.
 *
 * fork(): the child has none of the parent's communicators (symmInvalidArgument) and may make its
 * own. It keeps nothing alive that peers see: the parent's death is found while the child lives.
 * Host memory of symmMemAlloc and of heaps is shared with the child. What the parent frees stays
 * the child's until the child ends or execs.
 *
 * See also: docs/numerics.md (results, bit for bit), docs/gpu-rules.md (streams, captures and
 * kernels on GPUs), docs/hangs.md. */
#ifndef SYMM_H_
#define SYMM_H_

#include <stddef.h>
#include <stdint.h>

#define SYMM_MAJOR        0
#define SYMM_MINOR        1
#define SYMM_PATCH        0
#define SYMM_VERSION_CODE (SYMM_MAJOR * 10000 + SYMM_MINOR * 100 + SYMM_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SYMM_API __attribute__((visibility("default")))
#else
#define SYMM_API
#endif

/* ---- types ----------------------------------------------------------------------------------- */

/* Result codes; 0..7 have the numeric values of ncclResult_t. */
typedef enum {
    symmSuccess = 0,
    symmUnhandledCudaError = 1,
    symmSystemError = 2,
    symmInternalError = 3,
    symmInvalidArgument = 4,
    symmInvalidUsage = 5,
    symmRemoteError = 6, /* a peer died, left or failed: the text names rank and stage */
    symmInProgress = 7,
    symmTimeout = 8,  /* a deadline passed: the text names who is missing */
    symmMismatch = 9, /* ranks disagree on collective, count, type, reduction or root */
    symmOutOfMemory = 10,
    symmFdLimit = 11, /* this process, or a peer's, may not open more file descriptors */
    symmNotSupported = 12,
    symmVersionMismatch = 13, /* ranks were built from different versions, ABIs or kernel tables */
    symmAborted = 14,         /* symmCommAbort or symmCommRevoke was called here or on a peer */
    symmNeedGrow = 15,        /* a heap has not enough memory; growing it might help */
    symmNumResults = 16
} symmResult_t;

/* Element types; numeric values of ncclDataType_t. */
typedef enum {
    symmInt8 = 0,
    symmChar = 0,
    symmUint8 = 1,
    symmInt32 = 2,
    symmInt = 2,
    symmUint32 = 3,
    symmInt64 = 4,
    symmUint64 = 5,
    symmFloat16 = 6,
    symmHalf = 6,
    symmFloat32 = 7,
    symmFloat = 7,
    symmFloat64 = 8,
    symmDouble = 8,
    symmBfloat16 = 9,
    symmFloat8e4m3 = 10,
    symmFloat8e5m2 = 11,
    symmNumTypes = 12
} symmDataType_t;

/* Reductions; numeric values of ncclRedOp_t. Those that symmRedOpCreatePreMulSum makes are
 * >= symmNumOps. */
typedef enum {
    symmSum = 0,
    symmProd = 1,
    symmMax = 2,
    symmMin = 3,
    symmAvg = 4,
    symmNumOps = 5,
    symmMaxRedOp = 0x7fffffff
} symmRedOp_t;

/* When the scalar of symmRedOpCreatePreMulSum is read. */
typedef enum {
    symmScalarDevice = 0,       /* when the collective runs; a pointer that its kernel can read */
    symmScalarHostImmediate = 1 /* inside symmRedOpCreatePreMulSum */
} symmScalarResidence_t;

typedef struct symmComm *symmComm_t;
typedef struct symmWindow *symmWindow_t;
/* The same C types as CUDA's cudaStream_t, cudaEvent_t, cudaGraph_t and cudaGraphExec_t: on GPUs
 * programs pass theirs. */
typedef struct CUstream_st *symmStream_t;
typedef struct CUevent_st *symmEvent_t;
typedef struct CUgraph_st *symmGraph_t;
typedef struct CUgraphExec_st *symmGraphExec_t;

#define SYMM_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[SYMM_UNIQUE_ID_BYTES];
} symmUniqueId_t;

/* symmWindowRegister */
#define SYMM_WIN_DEFAULT        0
#define SYMM_WIN_COLL_SYMMETRIC 1 /* accepted for NCCL's sake; every window here is symmetric */
/* symmCommSplit */
#define SYMM_SPLIT_NOCOLOR (-1)
/* symmCommShrink; may be or'ed */
#define SYMM_SHRINK_DEFAULT 0
#define SYMM_SHRINK_ABORT   1 /* revokes the communicator first: what runs or waits in it ends */
#define SYMM_SHRINK_FAILED  2 /* leaves out all that are gone; excludeRanks NULL, nExclude 0 */
#define SYMM_REVOKE_ABORT   1 /* symmCommRevoke: see there */
#define SYMM_FAILED_LOCAL   0 /* symmCommFailedRanks */
#define SYMM_FAILED_AGREE   1

/* Passed to the calls that make a communicator. Start from SYMM_CONFIG_INITIALIZER; fields left at
 * SYMM_CONFIG_UNDEF (or NULL) keep their defaults. */
typedef struct {
    size_t size;      /* sizeof(symmConfig_t) of the caller: fields behind it are not looked at */
    uint32_t version; /* SYMM_VERSION_CODE of the caller; not looked at yet */
    /* 1 (default): a call returns when it is done. 0: creation, split and shrink return
     * symmInProgress and go on. symmCommInitBoot, and split and shrink in groups, take 0 as 1. */
    int32_t blocking;
    int32_t minCTAs;      /* 1..256; on the host backend more than 64 count as 64 */
    int32_t maxCTAs;      /* 1..256 */
    int32_t timeoutMs;    /* deadline of set-up; default: SYMM_SETUP_TIMEOUT, or the parent's */
    const char *commName; /* copied; shown in the log, in errors and in symmCommDump */
    int32_t peerDeath;    /* SYMM_DEATH_*; ranks may differ */
    /* GPUs: CTAs of this communicator on a GPU at once, 1..256; docs/gpu-rules.md, "Several
     * communicators". Default: SYMM_CTA_BUDGET, else a quarter or two of each multiprocessor. */
    int32_t ctaBudget;
    /* GPUs: 0: no kernel, of ours or the program's, overlaps the end of ours; 1 (default): within
     * ctaBudget. Ranks may differ. */
    int32_t pdl;
    size_t scratch; /* bytes of each rank, 1M..4G; 0 (default): SYMM_SCRATCH */
} symmConfig_t;
/* When the death of a peer's process (symmRemoteError) or its symmCommAbort is an error here.
 *  - AT_ONCE (default): also while nobody uses the communicator. symmCommGetAsyncError tells.
 *  - WHEN_USED: of the calls that are under way or come later, except those that work on a revoked
 *    communicator. symmCommFailedRanks tells before that. */
#define SYMM_DEATH_AT_ONCE   0
#define SYMM_DEATH_WHEN_USED 1
#define SYMM_CONFIG_UNDEF    INT32_MIN
#define SYMM_CONFIG_INITIALIZER                                                               \
    {                                                                                         \
        sizeof(symmConfig_t), SYMM_VERSION_CODE, SYMM_CONFIG_UNDEF, SYMM_CONFIG_UNDEF,        \
            SYMM_CONFIG_UNDEF, SYMM_CONFIG_UNDEF, NULL, SYMM_CONFIG_UNDEF, SYMM_CONFIG_UNDEF, \
            SYMM_CONFIG_UNDEF, 0                                                              \
    }

/* ---- versions and errors --------------------------------------------------------------------- */

/* The library's SYMM_VERSION_CODE. Order: local, any thread. */
SYMM_API symmResult_t symmGetVersion(int *version);
/* Short fixed text of a result, never NULL. Order: local, any thread. */
SYMM_API const char *symmGetErrorString(symmResult_t result);
/* This thread's last message, "" if there is none. comm may be NULL. Order: local, any thread. */
SYMM_API const char *symmGetLastError(symmComm_t comm);

/* ---- life of a communicator ------------------------------------------------------------------ */

/* Makes the id of a communicator. The caller hands it to the other ranks by any means.
 * It opens a TCP listener in this process: at an interface that SYMM_SOCKET_IFNAME names, or
 * NCCL_SOCKET_IFNAME, else at one that is up and not loopback (IPv4 before IPv6). If there is none,
 * or it cannot listen there, it listens at loopback.
 * Any process may make it. If a rank is in this process, or in a child that was forked later, the
 * ranks meet there. If none is, they meet at a thread of this process, which must then live until
 * they have their communicator; after that it may end. An id serves one communicator.
 * Order: local. Errors: symmSystemError: it can listen nowhere. */
SYMM_API symmResult_t symmGetUniqueId(symmUniqueId_t *id);

/* Creates a communicator of nranks ranks, 1 to 72. Needs no MPI.
 * Requires: every rank passes the same id and nranks, and its own rank, 0..nranks-1: else all fail.
 * Order: collective.
 * Errors, the same on every rank: symmTimeout (names ranks that never came), symmVersionMismatch,
 * symmRemoteError; symmInvalidUsage: variables differ (docs/environment.md);
 * symmNotSupported: two hosts that no NVLink fabric joins, two network namespaces, two users. */
SYMM_API symmResult_t symmCommInitRank(symmComm_t *comm, int nranks, symmUniqueId_t id, int rank);
/* As symmCommInitRank; config may be NULL. */
SYMM_API symmResult_t symmCommInitRankConfig(symmComm_t *comm, int nranks, symmUniqueId_t id,
                                             int rank, const symmConfig_t *config);

/* The caller's own exchange between ranks. Both callbacks return 0 on success. They are entered
 * only inside calls of this library, by the thread that uses the communicator. */
typedef struct {
    /* Every rank contributes `bytes` from send; recv gets nranks * bytes. */
    int (*allgather)(void *ctx, const void *send, void *recv, size_t bytes);
    int (*barrier)(void *ctx);
    void *ctx; /* passed to both */
} symmBoot_t;
/* As symmCommInitRankConfig, over the caller's exchange. */
SYMM_API symmResult_t symmCommInitBoot(symmComm_t *comm, int nranks, int rank,
                                       const symmBoot_t *boot, const symmConfig_t *config);

/* Creates all n ranks of a communicator in this process. With GPUs comms[i] drives devices[i]
 * (NULL: 0..n-1). On the host backend devices is ignored and the ranks are thread ranks: drive each
 * from a thread of its own, or several from one thread between symmGroupStart and symmGroupEnd.
 * Order: local. Errors: as of symmCommInitRank. */
SYMM_API symmResult_t symmCommInitAll(symmComm_t *comms, int n, const int *devices);

/* Ranks of one color, any number, get a new communicator, ordered by (key, old rank).
 * SYMM_SPLIT_NOCOLOR gets *newcomm = NULL. config NULL: the parent's.
 * With blocking 0 split and shrink write *newcomm and return symmInProgress. Until they are done,
 * which symmCommGetAsyncError of either tells, calls of the parent return symmInProgress, except
 * those of any thread. symmCommGetAsyncError of the new communicator tells what went wrong.
 * Aborting the new one while it is being split off ends the parent.
 * Order: collective. */
SYMM_API symmResult_t symmCommSplit(symmComm_t comm, int color, int key, symmComm_t *newcomm,
                                    const symmConfig_t *config);

/* Makes a new communicator without the listed ranks, or with SYMM_SHRINK_FAILED without all that
 * are gone, those that die meanwhile included. Works on a revoked communicator.
 * flags: SYMM_SHRINK_*. blocking 0: as symmCommSplit.
 * Requires: every rank that stays passes the same list and flags. A rank that is left out alive
 * does not call until the call of the others has returned.
 * Order: collective over the ranks that stay.
 * Errors, the same on every rank that stays; all may then call again, with another list, as often
 * as they like:
 *  - symmRemoteError: ranks that are gone and not listed, all by name, or a rank died meanwhile;
 *  - symmMismatch: the lists differ (both are shown), or a rank has been for a second in a
 *    collective that another has not called; symmTimeout: a rank did not come; a bad argument of
 *    any rank.
 * If a rank dies in the very last messages, some ranks may have a new communicator and others an
 * error. A program that must survive that calls symmBarrier on the new one. A rank whose barrier
 * fails destroys it and shrinks the old one again, as do those that had the error.
 * SYMM_SHRINK_FAILED starts over by itself if a rank dies while the new communicator is made. With
 * blocking 0 it does not: the new one ends with symmRemoteError, and all ranks call again. */
SYMM_API symmResult_t symmCommShrink(symmComm_t comm, const int *excludeRanks, int nExclude,
                                     symmComm_t *newcomm, const symmConfig_t *config, int flags);

/* Ranks that are gone: they died, left or aborted. ranks[0..cap) gets the first of them in order,
 * *count how many there are. ranks may be NULL if cap is 0. flags:
 *  - SYMM_FAILED_LOCAL: as this rank sees it now. Order: local, any thread.
 *  - SYMM_FAILED_AGREE: the same answer on all ranks that are left, those that die meanwhile
 *    included. Works on a revoked communicator. Order: collective over the ranks that are left.
 *    Errors: as symmCommShrink. */
SYMM_API symmResult_t symmCommFailedRanks(symmComm_t comm, unsigned flags, int *ranks, int cap,
                                          int *count);

/* Waits until all work of this communicator that was given to streams has ended: its calls, and the
 * launches of graphs that hold its calls. A peer's death ends that work too. Returns what went
 * wrong in it.
 * With SYMM_GRAPH_HOLD=comm and captured calls, this and symmCommDestroy wait for all that the
 * GPU's context runs, kernels of other communicators too: ranks that end communicators in different
 * orders may wait for each other.
 * Requires, on GPUs: what the program launched with cudaGraphLaunch has ended. Launches by
 * symmMemPlanLaunch are waited for.
 * Order: local.
 * Errors: symmInvalidUsage: it would wait in a function that a stream or graph runs. */
SYMM_API symmResult_t symmCommFinalize(symmComm_t comm);

/* Finalizes, with the same waits, then frees everything, windows included. Does not wait for a
 * peer's Destroy, nor say that the communicator has failed. The handle is dead afterwards.
 * A process that ends by exit, with any code, or returns from main without this call leaves its
 * communicators as if it had made it: its end is no death.
 * Graphs that hold its calls may be destroyed later, but not launched: this rank tells its peers
 * that it has left, and no longer hears of their deaths. symmGraphLaunch and symmMemPlanLaunch
 * refuse such a graph (symmInvalidUsage). Of cudaGraphLaunch nobody is told: if a peer comes more
 * than a second late, that collective and all later ones end without a result. A peer that waits
 * for this rank's part gets symmRemoteError after a second.
 * Requires: as symmCommFinalize; no other thread begins a call meanwhile, but those of any thread.
 * Order: local. Errors: symmInvalidUsage, as symmCommFinalize. */
SYMM_API symmResult_t symmCommDestroy(symmComm_t comm);

/* Ends the communicator on every rank, then frees it here. Once this has returned:
 *  - A call that begins later, on any rank, ends with symmAborted: collectives, registration,
 *    growth, split, symmExplain, symmCommFinalize (not with SYMM_DEATH_WHEN_USED); on host streams
 *    also tasks and replays that begin to run. Calls that need no peer (queries, Destroy,
 *    symmWindowDeregister) and symmCommShrink still work on the other ranks.
 *  - A call that had begun ends with symmAborted when it next waits for a peer. If it has all that
 *    it waits for it may succeed, so ranks may differ in whether the last call before the abort
 *    succeeded. This holds for the making of communicators from this one, too.
 *  - On GPUs a kernel has begun when it was given to its stream, and a graph when it was launched.
 *  - This rank's own calls have ended. A call of a peer that had begun may still write into windows
 *    of this rank until it next waits, and read its buffers; nobody writes into a buffer that is in
 *    no window (docs/limits.md). On GPUs each of its warps stores at most the piece that it is at,
 *    4 KB into each window.
 * Order: local, any thread. */
SYMM_API symmResult_t symmCommAbort(symmComm_t comm);
/* As symmCommAbort, but the communicator stays valid for queries, symmCommShrink and
 * symmCommDestroy. It does not wait for this rank's own calls: those of other threads and of
 * streams end as a peer's do. flags: 0; SYMM_REVOKE_ABORT: peers hear of an abort, which follows.
 * Order: local, any thread. */
SYMM_API symmResult_t symmCommRevoke(symmComm_t comm, int flags);
/* *asyncError: symmSuccess, symmInProgress, or the error that ended the communicator.
 * Order: local, any thread. */
SYMM_API symmResult_t symmCommGetAsyncError(symmComm_t comm, symmResult_t *asyncError);

/* Number of ranks; this rank; its GPU (-1 on the host backend). Order: local, any thread. */
SYMM_API symmResult_t symmCommCount(symmComm_t comm, int *count);
SYMM_API symmResult_t symmCommUserRank(symmComm_t comm, int *rank);
SYMM_API symmResult_t symmCommDevice(symmComm_t comm, int *device);

typedef struct {
    size_t size;
    int rank, nranks;
    int device;            /* -1 on the host backend */
    int domainSize;        /* ranks that can map each other's memory */
    int threadRanks;       /* 1: all ranks are threads of this process; else each has mappings */
    int oversubscribed;    /* 1: more ranks than cores: waiting yields early */
    int multicast;         /* 1: windows may have multicast addresses */
    int windows, inside;   /* windows registered now; 1: another thread is inside a call */
    uint64_t base, stride; /* addr(rank, off) = base + rank*stride + off; off: symmWindowInfo_t */
    uint64_t scratchBytes; /* for messages that are staged */
    uint64_t usedBytes;    /* of this rank, in windows and heaps */
    char backend[16];      /* "host" or "cuda" */
    char bootstrap[16];    /* "mpi", "tcp", "threads", "callbacks", "parent" */
    char name[32];         /* commName of the config */
} symmCommInfo_t;
/* What is known of a communicator. Order: local, any thread. */
SYMM_API symmResult_t symmCommQuery(symmComm_t comm, symmCommInfo_t *info);

/* GPUs: makes `device` the calling thread's current one, as cudaSetDevice does; for programs
 * without the CUDA runtime. A thread that never chose gets SYMM_DEVICE, else its process's rank on
 * the host modulo the devices. Host backend: does nothing.
 * Order: local, any thread. */
SYMM_API symmResult_t symmSetDevice(int device);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Allocates memory that can be registered: of the current device, or of the host backend. size is
 * rounded up to the granularity (2 MiB). Contents: zeros on the host backend, also where freed
 * memory is used again; undefined on GPUs.
 * Order: local, any thread. */
SYMM_API symmResult_t symmMemAlloc(void **ptr, size_t size);
/* Frees what symmMemAlloc returned. NULL: nothing. What peers reach of it (symmWindowPeerPtr) lives
 * until that mapping is freed (symmWindowDeregister). Windows over it may be deregistered before or
 * after, or never (symmWindowRegister).
 * Requires: no later collective is given the pointer, and no graph that was captured with it is
 * replayed. Host backend: where it was in a window, such a replay ends the communicator with
 * symmInvalidUsage on every rank; else the access faults. On GPUs nobody notices.
 * Order: local, any thread. */
SYMM_API symmResult_t symmMemFree(void *ptr);

/* GPUs: pins memory of the host, so that kernels on every GPU read and write it at its own address.
 * Both may be called while a stream is captured. Host backend: do nothing.
 * Requires: the memory stays mapped until symmHostUnregister, which gets the same ptr; no kernel
 * uses it then.
 * Order: local, any thread.
 * Errors: symmUnhandledCudaError: it is pinned already, or not of this process; symmNotSupported:
 * this machine's GPUs have it at another address. */
SYMM_API symmResult_t symmHostRegister(void *ptr, size_t bytes);
SYMM_API symmResult_t symmHostUnregister(void *ptr);

/* Maps [buff, buff+size) of every rank into every process. size may differ between ranks; 0 is
 * allowed, with buff NULL. Registering the same memory again takes a reference and maps nothing.
 * flags: SYMM_WIN_*. If it fails all ranks are back where they were, or the communicator is over.
 * A window stands for the memory that was registered, not for addresses. Where that memory ends
 * (symmMemFree, symmHeapTrim), this rank's collectives treat what comes to lie there as not
 * registered, until it is registered itself. The rest of the window stays a window, and the handle
 * lives until it is deregistered. A window of which all memory has ended on this rank maps nothing
 * any more once this rank registers anything: it is deregistered but for its handle, which
 * symmWindowDeregister still takes, and symmWindowPeerPtr refuses it.
 * Memory that another allocator of the process has mapped (GPUs) is told apart by CUDA's number of
 * its allocation, at each call; if the driver has no such numbers for mapped memory, at the first
 * call after a registration, a deregistration, or an end of our own memory.
 * Order: collective.
 * Errors: symmInvalidArgument: buff is not of symmMemAlloc or other VMM memory, named in the text;
 * collectives take such memory all the same, staged through scratch. */
SYMM_API symmResult_t symmWindowRegister(symmComm_t comm, void *buff, size_t size,
                                         symmWindow_t *win, int flags);
/* Drops the window here, in any order between ranks, and never waits for a peer. This rank's
 * collectives then treat the memory as not registered. Peers that still have the window go on using
 * it.
 * What is mapped stays mapped: it costs memory and addresses, also after symmMemFree, and
 * registering it again maps nothing. symmStats counts it as `dropped`. It is freed when every rank
 * has dropped it and one of these happens: a registration or the creation of a communicator over
 * the same ranks maps something new (a window of nothing, buff NULL and size 0 on all ranks, is
 * enough), or the last communicator over these ranks ends.
 * Requires: the caller's own work on the window has ended.
 * Order: local. */
SYMM_API symmResult_t symmWindowDeregister(symmComm_t comm, symmWindow_t win);
/* Makes the window longer: [buff, buff+size) of every rank, of which the window's present memory is
 * the beginning. Nothing is copied. What is mapped stays mapped, and the new memory is mapped
 * behind it. If the addresses there are taken, all of it is mapped at another offset: peers'
 * pointers change then (symmWindowQuery, symmWindowPeerPtr). On all ranks or on none.
 * Order: collective.
 * Errors: symmInvalidUsage: its memory was freed; symmNotSupported: it is over several domains. */
SYMM_API symmResult_t symmWindowGrow(symmWindow_t win, size_t size);

typedef struct {
    size_t size;
    void *userPtr;       /* buff of the registration */
    uint64_t bytes;      /* of this rank */
    uint64_t slotOffset; /* offset of the mapped slot, equal on all ranks */
    uint64_t slotBytes;  /* its length */
    /* Of userPtr, of this rank: base + rank*stride + offset (modulo 2^64) is the address of this
     * rank's part in every process. Other ranks' offsets are equal if their buffers begin as far
     * into their allocations. Those of thread ranks (symmCommInitAll) never are, because their
     * memory is not mapped again: slotOffset and slotBytes are 0. symmWindowPeerPtr knows all. */
    uint64_t offset;
    int references; /* windows that share the mapping */
    int multicast;  /* 1: symmWindowMulticastPtr has an address */
} symmWindowInfo_t;
/* What is known of a window. Order: local. */
SYMM_API symmResult_t symmWindowQuery(symmWindow_t win, symmWindowInfo_t *info);
/* Address in this process of byte `offset` of a rank's part of the window; this rank's too. What is
 * stored there is the peer's memory.
 *  - Order of memory: only symmBarrier orders stores of one rank with loads of another.
 *  - Atomics, host backend: atomic operations of the language (C11, C++11, __atomic) on aligned 1,
 *    2, 4 and 8 bytes are atomic among all ranks, through whichever of their addresses, and order
 *    memory as they say. So the program's own flags may stand in for a barrier. On GPUs: CUDA's of
 *    system scope (atomicAdd_system, cuda::atomic of thread_scope_system).
 * Order: local. Errors: symmInvalidUsage: this rank freed the memory, and has registered since. */
SYMM_API symmResult_t symmWindowPeerPtr(symmWindow_t win, size_t offset, int rank, void **ptr);
/* Multicast address of byte `offset`: one for all ranks, in a range of addresses of its own. What a
 * GPU stores there goes to every rank's memory, and a load-reduce reads all of it (PTX: multimem).
 * Plain loads and stores are not for it; on the host backend they fault.
 *  - The ranks' buffers must begin at the same offset of their memory. What is beyond the shortest
 *    rank's part has no such address.
 *  - All ranks' accesses end before any rank deregisters the window, or frees or trims the memory.
 *  - Between accesses through this address and through another one of the same bytes a kernel needs
 *    fence.proxy.alias.
 * Requires: SYMM_MULTICAST=1 on every rank, NCCL_NVLS_ENABLE not 0. Order: local.
 * Errors: symmNotSupported, with the reason, if there is none. */
SYMM_API symmResult_t symmWindowMulticastPtr(symmWindow_t win, size_t offset, void **ptr);
/* The same for [mem, mem + bytes), this rank's memory in a window, heap or vector of comm.
 * Order: local.
 * Errors: symmInvalidArgument if it is in none of them. */
SYMM_API symmResult_t symmMemMulticastPtr(symmComm_t comm, const void *mem, size_t bytes,
                                          void **ptr);

/* ---- collectives -----------------------------------------------------------------------------
 * Each is one kernel on `stream`, or two with copies between; the calls of a communicator run in
 * the order in which they are made. Any count (0 too), any alignment, in place or not, registered
 * or not. The choice of kernel depends only on collective, count, type and reduction.
 * Requires: sendbuff and recvbuff are equal as the call says (in place), or do not overlap
 * (symmInvalidArgument, by the addresses that are passed). Not noticed, and undefined: two
 * addresses of one memory (the own pointer and that of symmWindowPeerPtr), and memory that another
 * rank's buffers have in the same call. Windows may overlap.
 * Order: collective.
 * Errors: symmMismatch where ranks differ in collective, count, type, reduction or root; of
 * symmAlltoAll also in being in place. Small calls with a root, host: in the next wait, if any.
 * GPUs: docs/gpu-rules.md has what a program owes about destroyed streams, captures, several
 * communicators, ranks that share a GPU, and kernels launched programmatically behind ours. */

/* recvbuff = reduction over ranks of sendbuff, count elements. In place if they are equal. */
SYMM_API symmResult_t symmAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                    symmDataType_t datatype, symmRedOp_t op, symmComm_t comm,
                                    symmStream_t stream);
/* recvbuff = every rank's sendbuff in rank order, nranks*sendcount elements. In place if
 * sendbuff == recvbuff + rank*sendcount. */
SYMM_API symmResult_t symmAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                    symmDataType_t datatype, symmComm_t comm, symmStream_t stream);
/* recvbuff = part `rank` of the reduction over ranks of sendbuff, which has nranks parts of
 * recvcount elements. In place if recvbuff == sendbuff + rank*recvcount. */
SYMM_API symmResult_t symmReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                        symmDataType_t datatype, symmRedOp_t op, symmComm_t comm,
                                        symmStream_t stream);
/* Part p of recvbuff = part `rank` of rank p's sendbuff; both have nranks parts of count elements.
 * In place if they are equal, on all ranks or on none: what a rank has for p changes places with
 * what p has for it, through scratch of the library. */
SYMM_API symmResult_t symmAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                                   symmDataType_t datatype, symmComm_t comm, symmStream_t stream);
/* recvbuff = root's sendbuff, count elements. Only the root's is read: others pass NULL, or memory
 * whose window, if it has one, stays until the call has ended. In place if they are equal. */
SYMM_API symmResult_t symmBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                    symmDataType_t datatype, int root, symmComm_t comm,
                                    symmStream_t stream);
/* The root's recvbuff = reduction over ranks of sendbuff, count elements. Only the root's recvbuff
 * is written: others may pass NULL. In place if they are equal. */
SYMM_API symmResult_t symmReduce(const void *sendbuff, void *recvbuff, size_t count,
                                 symmDataType_t datatype, symmRedOp_t op, int root, symmComm_t comm,
                                 symmStream_t stream);
/* Part p of the root's recvbuff = rank p's sendbuff, count elements. Only the root's recvbuff is
 * written: others may pass NULL. In place at the root if sendbuff == recvbuff + root*count. */
SYMM_API symmResult_t symmGather(const void *sendbuff, void *recvbuff, size_t count,
                                 symmDataType_t datatype, int root, symmComm_t comm,
                                 symmStream_t stream);
/* recvbuff = part `rank` of the root's sendbuff, which has nranks parts of count elements. Only the
 * root's sendbuff is read: others may pass NULL. In place at the root if
 * recvbuff == sendbuff + root*count. */
SYMM_API symmResult_t symmScatter(const void *sendbuff, void *recvbuff, size_t count,
                                  symmDataType_t datatype, int root, symmComm_t comm,
                                  symmStream_t stream);
/* ---- with a count per rank ----
 * Arrays of nranks counts and displacements, in elements, in memory of the host, which the call
 * copies: they may change once it has returned, also if it is captured or stands in a group. displs
 * NULL: each part follows the one before. Ranks may pass different arrays; what one sends another
 * must be what that one expects. Counts may be 0, for some ranks or all. A rank with nothing to
 * send, or to receive, may pass NULL for that buffer. A buffer is all that lies between its pointer
 * and the end of its last part: registered or not, and in or out of place, as a whole. The choice
 * of kernel depends on no count.
 * Errors: symmInvalidArgument: arrays that are NULL, parts that overlap in recvbuff, counts that
 * overflow, a rank that sends itself another count than it expects. symmMismatch on every rank, by
 * the next call at the latest and in this one on the two ranks, if their counts differ: the text
 * names both ranks and both counts. No rank writes outside the parts that it was told. */

/* recvbuff = rank p's sendbuff, recvcounts[p] elements at displs[p], for each p. Requires:
 * sendcount is what all ranks have for this rank in recvcounts. In place if
 * sendbuff == recvbuff + displs[rank]. */
SYMM_API symmResult_t symmAllGatherv(const void *sendbuff, size_t sendcount, void *recvbuff,
                                     const size_t *recvcounts, const size_t *displs,
                                     symmDataType_t datatype, symmComm_t comm, symmStream_t stream);
/* recvbuff = part `rank` of the reduction over ranks of sendbuff, in which part p of recvcounts[p]
 * elements follows part p-1. Requires: recvcounts is the same on all ranks. In place if recvbuff is
 * where that part of sendbuff begins. */
SYMM_API symmResult_t symmReduceScatterv(const void *sendbuff, void *recvbuff,
                                         const size_t *recvcounts, symmDataType_t datatype,
                                         symmRedOp_t op, symmComm_t comm, symmStream_t stream);
/* recvcounts[p] elements at rdispls[p] of recvbuff = what rank p has for this rank: its sendcounts
 * elements at its sdispls. Parts of sendbuff may overlap. Not in place. */
SYMM_API symmResult_t symmAlltoAllv(const void *sendbuff, const size_t *sendcounts,
                                    const size_t *sdispls, void *recvbuff, const size_t *recvcounts,
                                    const size_t *rdispls, symmDataType_t datatype, symmComm_t comm,
                                    symmStream_t stream);

/* Waits until every rank has come, and orders memory between ranks: what any rank stored before its
 * call, through symmWindowPeerPtr or into its own memory, is seen by what any rank loads after its
 * own; what a rank loaded before is not changed by stores that another rank makes after. "Before"
 * and "after" are those of the stream (NULL on the host backend: of the calling thread). Other
 * collectives order no memory but their buffers. */
SYMM_API symmResult_t symmBarrier(symmComm_t comm, symmStream_t stream);

/* Makes a reduction: the sum over ranks of scalar*in, with each rank's own scalar. datatype is the
 * type of the scalar and of every collective that uses the reduction.
 * Requires: with symmScalarDevice the scalar stays readable while collectives use it.
 * Order: local. */
SYMM_API symmResult_t symmRedOpCreatePreMulSum(symmRedOp_t *op, void *scalar,
                                               symmDataType_t datatype,
                                               symmScalarResidence_t residence, symmComm_t comm);
/* Ends it. Order: local. */
SYMM_API symmResult_t symmRedOpDestroy(symmRedOp_t op, symmComm_t comm);

/* The collectives by number: symm_explain.h. */
typedef enum {
    symmCollAllReduce = 0,
    symmCollAllGather = 1,
    symmCollBarrier = 2,
    symmCollReduceScatter = 3,
    symmCollAlltoAll = 4,
    symmCollBroadcast = 5,
    symmCollReduce = 6,
    symmCollGather = 7,
    symmCollScatter = 8,
    symmCollAllGatherv = 9,
    symmCollReduceScatterv = 10,
    symmCollAlltoAllv = 11,
    symmNumColls = 12
} symmColl_t;

#ifdef __cplusplus
}
#endif

#include "symm_explain.h"
#include "symm_group.h"
#include "symm_grow.h"
#include "symm_meet.h"
#include "symm_onesided.h"
#include "symm_p2p.h"
#include "symm_stream.h"

#endif
