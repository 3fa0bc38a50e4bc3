/* symm.h - symmetric memory and collectives for GPUs (or host ranks) that share one memory domain.
 *
 * Every rank's registered memory is in every process at `base + rank*stride + offset` (offset: symmWindowInfo_t); collectives are
 * single kernels that run straight over that mapping. Without a GPU the same library runs for real over shared
 * memory (the host backend).
 *
 * Conventions of this header
 *  - Every call returns a symmResult_t; nothing prints except the log (SYMM_DEBUG=WARN|INFO|TRACE).
 *  - Out-parameters are written only on success; they stand where NCCL has them, else last.
 *  - A collective that is refused on one rank (symmInvalidArgument, symmInvalidUsage) was not made there: the others
 *    wait for it. symmCommAbort or symmCommRevoke ends that, and so does its next call if that is another one.
 *  - [collective] every rank of the communicator calls it, in the same order; [local] no other rank is involved.
 *    Ranks that differ get symmMismatch, with who called what in its text, and the communicator is over.
 *  - Threads. One communicator is used by one thread at a time: a second one that enters gets symmInvalidUsage.
 *    Different communicators may be used by different threads at once.
 *  - Any thread may call these at any time, while another one is inside a call of the same communicator, stuck or not:
 *    symmCommAbort, symmCommRevoke, symmCommGetAsyncError, symmCommQuery, symmCommCount, symmCommUserRank,
 *    symmCommDevice, symmCommFailedRanks(SYMM_FAILED_LOCAL), symmCommDump, symmStats. So a watchdog may
 *    look, tell and end (docs/hangs.md). Where the communicator has ended meanwhile they answer
 *    symmInvalidArgument. None may be called from a signal handler.
 *  - Thread ranks that one thread calls one after the other: the first call waits for the others, which would come after
 *    it. One thread makes the calls of several ranks in a group, or gives them to streams. Where it waits for a rank
 *    that it called or made last itself, a warning says so after a second; a deadline says it in its error.
 *  - fork(): the child has none of the parent's communicators (symmInvalidArgument), and may make its own. It keeps
 *    nothing alive of what peers see: the death of the parent is found while the child lives. Host memory of
 *    symmMemAlloc and heaps is shared with it; what the parent frees stays the child's until that ends or execs.
 *  - The text behind the last error of this thread is symmGetLastError(comm): it names argument and value.
 *
 * Numbers (what a result is, bit for bit; the host backend and the GPU agree)
 *  - Reduction runs in rank order 0..n-1. float16, bfloat16 and both float8 types accumulate in float32 and are
 *    rounded once (to nearest, ties to even); float32 and float64 accumulate in their own type; nothing is fused.
 *  - Integers wrap modulo 2^bits. symmAvg of integers sums in 64 bits (modulo 2^64), divides by the number of
 *    ranks truncating toward zero, and keeps the low bits.
 *  - symmAvg of floats divides the sum by the number of ranks in the accumulator type, then rounds once.
 *  - premulsum multiplies each rank's element by that rank's scalar in the accumulator type (rounded to it), then sums.
 *  - symmMin and symmMax propagate NaN; between +0 and -0 the value of the lower rank stays.
 *  - A NaN result is always the canonical quiet NaN: float64 0x7ff8000000000000, float32 0x7fc00000,
 *    float16 0x7e00, bfloat16 0x7fc0, float8 0x7f.
 *  - float8 saturates: a sum beyond the largest finite value, infinities included, becomes that value with its
 *    sign (448 for e4m3, 57344 for e5m2). float16 and bfloat16 overflow to infinity.
 *  - A communicator of one rank applies the same rules (avg, premulsum and canonical NaN included).
 */
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

/* ---- types ---------------------------------------------------------------------------------------------- */

/* Result codes; 0..7 have the numeric values of ncclResult_t. */
typedef enum {
    symmSuccess = 0,
    symmUnhandledCudaError = 1,
    symmSystemError = 2,
    symmInternalError = 3,
    symmInvalidArgument = 4,
    symmInvalidUsage = 5,
    symmRemoteError = 6, /* a peer died, left or failed: the message names rank and stage */
    symmInProgress = 7,
    symmTimeout = 8,  /* a deadline passed: the message names who is missing */
    symmMismatch = 9, /* ranks disagree on collective, count, type, reduction or root */
    symmOutOfMemory = 10,
    symmFdLimit = 11, /* the process (or a peer) may not open more file descriptors */
    symmNotSupported = 12,
    symmVersionMismatch = 13, /* ranks were built from different versions, ABIs or kernel tables */
    symmAborted = 14,         /* symmCommAbort or symmCommRevoke was called here or on a peer */
    symmNeedGrow = 15,
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

/* Reductions; numeric values of ncclRedOp_t. Handles made by symmRedOpCreatePreMulSum are >= symmNumOps. */
typedef enum {
    symmSum = 0,
    symmProd = 1,
    symmMax = 2,
    symmMin = 3,
    symmAvg = 4,
    symmNumOps = 5,
    symmMaxRedOp = 0x7fffffff
} symmRedOp_t;

typedef enum {
    symmScalarDevice = 0,       /* read when the collective executes */
    symmScalarHostImmediate = 1 /* read inside symmRedOpCreatePreMulSum */
} symmScalarResidence_t;

typedef struct symmComm *symmComm_t;
typedef struct symmWindow *symmWindow_t;
/* The same C types as cudaStream_t, cudaEvent_t and cudaGraphExec_t, so that GPU users pass theirs. */
typedef struct CUstream_st *symmStream_t;
typedef struct CUevent_st *symmEvent_t;
typedef struct CUgraphExec_st *symmGraph_t;

#define SYMM_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[SYMM_UNIQUE_ID_BYTES];
} symmUniqueId_t;

#define SYMM_WIN_DEFAULT        0
#define SYMM_WIN_COLL_SYMMETRIC 1 /* accepted for NCCL's sake; every window here is symmetric */
#define SYMM_SPLIT_NOCOLOR      (-1)

/* symmCommShrink: or'ed. */
#define SYMM_SHRINK_DEFAULT 0
#define SYMM_SHRINK_ABORT \
    1 /* revokes the communicator first, so that what runs or waits in it ends */
#define SYMM_SHRINK_FAILED 2 /* leaves out everybody who is gone; excludeRanks NULL, nExclude 0 */
/* symmCommFailedRanks */
#define SYMM_FAILED_LOCAL 0
#define SYMM_FAILED_AGREE 1

/* Passed to the *Config calls. Start from SYMM_CONFIG_INITIALIZER; fields left at INT32_MIN (or NULL) keep defaults. */
typedef struct {
    size_t size;      /* sizeof(symmConfig_t) of the caller */
    uint32_t version; /* SYMM_VERSION_CODE of the caller */
    int32_t
        blocking; /* 1 (default): calls return when done. 0: creation, split and shrink continue behind
                     symmInProgress; as 1: symmCommInitBoot; in groups split and shrink */
    int32_t minCTAs;      /* 1..256; on the host backend more than 64 count as 64 */
    int32_t maxCTAs;      /* 1..256 */
    int32_t timeoutMs;    /* set-up deadline, default 300000 */
    const char *commName; /* copied; shown in the log, in errors and in symmCommDump */
} symmConfig_t;
#define SYMM_CONFIG_UNDEF INT32_MIN
#define SYMM_CONFIG_INITIALIZER                                                        \
    {                                                                                  \
        sizeof(symmConfig_t), SYMM_VERSION_CODE, SYMM_CONFIG_UNDEF, SYMM_CONFIG_UNDEF, \
            SYMM_CONFIG_UNDEF, SYMM_CONFIG_UNDEF, NULL                                 \
    }

/* ---- versions and errors -------------------------------------------------------------------------------- */

SYMM_API symmResult_t symmGetVersion(int *version); /* [local] */
SYMM_API const char *
symmGetErrorString(symmResult_t result); /* [local] short fixed text, never NULL */
SYMM_API const char *symmGetLastError(
    symmComm_t comm); /* [local] this thread's last message, "" if none; comm may be NULL */

/* ---- life of a communicator ----------------------------------------------------------------------------- */

/* Makes the id, in the process of rank 0 (with NCCL any process may), which hands it to the others by any means it
 * likes. An id serves one communicator. Opens a TCP listener in this process, at the
 * interface that SYMM_SOCKET_IFNAME names, else at one that is up and no loopback (IPv4 before IPv6), else, or where it
 * cannot listen there, at loopback. [local] */
SYMM_API symmResult_t symmGetUniqueId(symmUniqueId_t *id);

/* Creates a communicator. Every rank passes the same id and nranks and its own rank. No MPI needed. [collective]
 * Errors on every rank alike: symmTimeout (names ranks that never came), symmVersionMismatch, symmRemoteError,
 * symmNotSupported (ranks on two hosts, in two network namespaces, or of two users: named at once). */
SYMM_API symmResult_t symmCommInitRank(symmComm_t *comm, int nranks, symmUniqueId_t id, int rank);
SYMM_API symmResult_t symmCommInitRankConfig(symmComm_t *comm, int nranks, symmUniqueId_t id,
                                             int rank, const symmConfig_t *config);

/* The caller's own exchange. Both callbacks return 0 on success and are entered only from inside API calls of the
 * thread that uses the communicator. allgather: every rank contributes `bytes` from send, recv holds nranks*bytes. */
typedef struct {
    int (*allgather)(void *ctx, const void *send, void *recv, size_t bytes);
    int (*barrier)(void *ctx);
    void *ctx;
} symmBoot_t;
SYMM_API symmResult_t symmCommInitBoot(symmComm_t *comm, int nranks, int rank,
                                       const symmBoot_t *boot, const symmConfig_t *config);

/* One process, n ranks: with GPUs comms[i] drives devices[i] (NULL: 0..n-1); on the host backend devices is ignored
 * and the ranks are thread ranks: drive each from a thread of its own, or several from one between
 * symmGroupStart and symmGroupEnd. [local] */
SYMM_API symmResult_t symmCommInitAll(symmComm_t *comms, int n, const int *devices);

/* Ranks of one color get a new communicator, ordered by (key, old rank); SYMM_SPLIT_NOCOLOR gets *newcomm = NULL.
 * config NULL: the parent's. [collective]
 * With blocking 0 split and shrink write *newcomm and return symmInProgress. Until they are done, which
 * symmCommGetAsyncError of the parent tells as well, the parent answers calls with symmInProgress, but
 * for questions, abort and revoke. What went wrong is told by symmCommGetAsyncError of the new one. To
 * abort that one while it is being split off ends the parent. */
SYMM_API symmResult_t symmCommSplit(symmComm_t comm, int color, int key, symmComm_t *newcomm,
                                    const symmConfig_t *config);

/* The survivors' way on: a new communicator without the listed ranks, or (SYMM_SHRINK_FAILED) without
 * all that are gone, whoever dies meanwhile included. Works on a revoked communicator.
 * Requires: called by every rank that is not listed, with the same list and flags.
 * [collective over the remaining ranks]
 * Errors on every one of them alike, after which all may call again, with another list, as often as they
 * like:
 *  - symmRemoteError: ranks that are gone and not listed, all by name, or a rank that died meanwhile;
 *  - symmMismatch: lists that differ, with both; symmTimeout: a rank that did not come; a bad argument.
 * A rank that dies in the very last messages may leave some ranks with a new communicator and others with
 * an error. So a program that is to live through that calls symmBarrier on the new one. A rank whose
 * barrier fails destroys it and shrinks the old one again, as those do that had the error. A rank that was
 * left out alive does not call until the others' call has returned.
 * SYMM_SHRINK_FAILED starts over by itself when a rank dies while the new communicator is being made.
 * With blocking 0 nothing is tried again: the new one then ends with symmRemoteError, and all call again. */
SYMM_API symmResult_t symmCommShrink(symmComm_t comm, const int *excludeRanks, int nExclude,
                                     symmComm_t *newcomm, const symmConfig_t *config, int flags);

/* Ranks that are gone: they died, left or aborted. ranks[0..cap) gets the first of them, in order; *count
 * how many there are. ranks may be NULL where cap is 0.
 *  - SYMM_FAILED_LOCAL: as this rank sees it now. [local, any thread]
 *  - SYMM_FAILED_AGREE: the same answer on all ranks that are left, each of which calls it; who dies
 *    meanwhile is in it. Works on a revoked communicator. [collective over the ranks that are left]
 *    Errors: as those of symmCommShrink. */
SYMM_API symmResult_t symmCommFailedRanks(symmComm_t comm, int flags, int *ranks, int cap,
                                          int *count);

/* Finalize: waits until all work of this communicator that was given to streams has ended: its
 * calls and the launches of graphs that hold calls of it. A peer's death ends that work too, as it does
 * any call; what went wrong in it is returned. GPUs: launches by symmMemPlanLaunch are seen; those that
 * the program makes with cudaGraphLaunch must have ended before Finalize or Destroy is called.
 * With SYMM_GRAPH_HOLD=comm and captured calls this, as symmCommDestroy, waits for all that the GPU's context
 * runs, other communicators' kernels too: ranks that end them in different orders may wait for each other.
 * symmInvalidUsage from a function that a stream or graph runs, if it would wait. [local] */
SYMM_API symmResult_t symmCommFinalize(symmComm_t comm);
/* Finalize (what it waits for with SYMM_GRAPH_HOLD=comm included), then free everything, windows
 * included. Does not wait for a peer's Destroy. The handle
 * is dead afterwards; using it again is answered with symmInvalidArgument.
 * Graphs that hold its calls may be destroyed later, but not launched: this rank tells its peers
 * that it has left, and no longer hears of their deaths. symmGraphLaunch and symmMemPlanLaunch refuse
 * such a graph (symmInvalidUsage). Nothing refuses one that the program launches with
 * cudaGraphLaunch: it is an error of the program, of which nobody is told; where a peer comes more
 * than a second late such collectives, and all later ones, end without a result. A peer that
 * launches a graph that waits for this rank's part waits for a second, then gets symmRemoteError.
 * [local] */
SYMM_API symmResult_t symmCommDestroy(symmComm_t comm);
/* Ends the communicator on every rank, then frees it here. Once this has returned:
 *  - A call that begins after it, on any rank, ends with symmAborted: collectives, registration, growth, split,
 *    symmExplain, symmCommFinalize, and on host streams tasks and replays that begin to run. Calls that need no peer
 *    (queries, symmWindowDeregister, symmCommDestroy) and symmCommShrink go on working for the other ranks.
 *  - A call that had begun ends with symmAborted when it waits for a peer the next time. One that has all it waits for
 *    may still succeed, so ranks may differ in whether the last call before the abort succeeded.
 *  - On GPUs a kernel has begun when it was given to its stream, and a graph when it was launched.
 *  - Such a call of a peer may still write into recvbuff and windows of this rank until that next wait. On GPUs it ends at most
 *    the piece that it stores just then: of each of its warps 4 KB (all_gather) or two times 2 KB (all_reduce).
 *    This rank's own calls have ended. [local, any thread] */
SYMM_API symmResult_t symmCommAbort(symmComm_t comm);
/* As abort, but the communicator stays valid for queries, symmCommShrink and symmCommDestroy, and does not wait for this
 * rank's own calls: those of other threads and of streams end as a peer's do. flags must be 0. [local, any thread] */
SYMM_API symmResult_t symmCommRevoke(symmComm_t comm, int flags);
/* What went wrong asynchronously: symmSuccess, symmInProgress, or the error that revoked the communicator. [local] */
SYMM_API symmResult_t symmCommGetAsyncError(symmComm_t comm, symmResult_t *asyncError);

SYMM_API symmResult_t symmCommCount(symmComm_t comm, int *count);   /* [local] */
SYMM_API symmResult_t symmCommUserRank(symmComm_t comm, int *rank); /* [local] */
SYMM_API symmResult_t symmCommDevice(symmComm_t comm,
                                     int *device); /* [local] -1 on the host backend */

typedef struct {
    size_t size; /* in: sizeof(symmCommInfo_t) of the caller */
    int rank, nranks, device;
    int domainSize;        /* ranks that can map each other's memory */
    int threadRanks;       /* 1: all ranks are threads of this process */
    int oversubscribed;    /* 1: more ranks than cores: waiting yields early */
    int multicast;         /* 1: NVLS windows */
    int windows;           /* windows registered now */
    uint64_t base, stride; /* addr(rank, off) = base + rank*stride + off; off: symmWindowInfo_t */
    uint64_t scratchBytes, usedBytes;
    char backend[16];   /* "host" or "cuda" */
    char bootstrap[16]; /* "mpi", "tcp", "threads", "callbacks", "parent" */
    char name[32];
} symmCommInfo_t;
SYMM_API symmResult_t symmCommQuery(symmComm_t comm, symmCommInfo_t *info); /* [local] */

/* GPUs: makes `device` the calling thread's current one, as cudaSetDevice does; for programs without the CUDA runtime. A thread
 * that never chose gets SYMM_DEVICE, else its process's rank on the host modulo the devices. Nothing on the host backend. [local] */
SYMM_API symmResult_t symmSetDevice(int device);

/* ---- memory --------------------------------------------------------------------------------------------- */

/* Memory that can be registered: of the current device, or of the host backend. Rounded up to the granularity (2 MiB).
 * Contents: zeros on the host backend, also where freed memory is used again; on GPUs undefined.
 * [local, any thread] */
SYMM_API symmResult_t symmMemAlloc(void **ptr, size_t size);
/* The pointer symmMemAlloc returned, which is gone at once: no collective may be given it
 * afterwards, and no graph replayed that was captured with it: on the host backend that ends the
 * communicator with symmInvalidUsage on every rank; on GPUs nobody sees it. What peers reach of it (symmWindowPeerPtr) lives on
 * until that mapping is freed, see symmWindowDeregister. Windows over it may be deregistered before
 * or after, see symmWindowRegister. NULL is a no-op. [local] */
SYMM_API symmResult_t symmMemFree(void *ptr);

/* Maps [buff, buff+size) of every rank into every process. Size may differ per rank (0 allowed, with buff NULL).
 * All ranks agree, or all are back where they were. Registering the same memory again takes a reference and maps
 * nothing. buff must be VMM-backed (symmMemAlloc); other memory is refused by name with symmInvalidArgument and
 * still works in collectives, staged through scratch. [collective]
 * A window speaks for the memory that was registered, not for addresses. Where that memory ends
 * (symmMemFree, symmHeapTrim), this rank's collectives take whatever comes to lie there as in no
 * window, until it is registered itself. The rest of the window stays one, and the handle lives
 * until it is deregistered. Memory that another allocator of the process has mapped (GPUs) is told
 * apart by CUDA's number of its allocation, at each call; where a driver has no such numbers for
 * mapped memory, at the first call after a registration, a deregistration, or an end of our own
 * memory. */
SYMM_API symmResult_t symmWindowRegister(symmComm_t comm, void *buff, size_t size,
                                         symmWindow_t *win, int flags);
/* Drops the window here, whenever this rank likes and in any order between ranks. Never waits for a peer; the caller's own work
 * on it must have ended. From then on this rank's collectives take the memory as not registered; peers that still have the window
 * go on using it. What is mapped stays mapped, so it costs memory and addresses, also after symmMemFree, and registering it again
 * maps nothing. It is freed by the next registration, or creation of a communicator, over the same ranks that maps something new
 * and finds that every rank has dropped it (a window of nothing, buff NULL and size 0 on all ranks, is enough), or when the last
 * communicator over these ranks ends. symmStats counts it as `dropped`. [local] */
SYMM_API symmResult_t symmWindowDeregister(symmComm_t comm, symmWindow_t win);

typedef struct {
    size_t size; /* in: sizeof(symmWindowInfo_t) of the caller */
    void *userPtr;
    uint64_t bytes;      /* of this rank */
    uint64_t slotOffset; /* offset of the mapped slot, equal on all ranks */
    uint64_t slotBytes;
    /* Of userPtr, of this rank: in every process base + rank*stride + offset (modulo 2^64) is the address of
     * this rank's part. Other ranks' offsets are equal where their buffers begin as far into their allocations;
     * those of thread ranks (symmCommInitAll) never are, for their memory is where they have it and is not
     * mapped again: slotOffset and slotBytes are 0. symmWindowPeerPtr knows them all. */
    uint64_t offset;
    int references; /* windows that share the mapping */
    int multicast;
} symmWindowInfo_t;
SYMM_API symmResult_t symmWindowQuery(symmWindow_t win, symmWindowInfo_t *info); /* [local] */
/* Address of byte `offset` of rank's part of the window, in this process: of this rank's own part too. [local]
 * What is stored through it is the peer's memory.
 *  - Order: symmBarrier, below; nothing else orders stores of one rank with loads of another.
 *  - Atomics: on the host backend atomic operations of the language (C11, C++11, __atomic) on 1, 2, 4 and 8 bytes that are
 *    aligned are atomic among all ranks, through whichever of their addresses, and order memory as they say. So flags
 *    of the program's own may stand in place of a barrier. On GPUs: CUDA's of system scope (atomicAdd_system,
 *    cuda::atomic of thread_scope_system). */
SYMM_API symmResult_t symmWindowPeerPtr(symmWindow_t win, size_t offset, int rank, void **ptr);
/* Multicast address; symmNotSupported (with the reason) where there is none. [local] */
SYMM_API symmResult_t symmWindowMulticastPtr(symmWindow_t win, size_t offset, void **ptr);

/* ---- collectives ------------------------------------------------------------------------------------------
 * One kernel on `stream`, in issue order per communicator. Any count (0 too), any alignment, in place or not,
 * registered or not. The plan depends only on collective, count, type and reduction. [collective]
 * sendbuff and recvbuff may be equal in place, as each call says, and else may not overlap: symmInvalidArgument, by the
 * addresses that are passed. Not noticed, and undefined: two addresses of one memory (the own pointer and that of
 * symmWindowPeerPtr), and memory that another rank's buffers have in the same call. Windows may overlap.
 *
 * GPUs:
 *  - Streams. A call on another stream than the last one's is ordered behind it by an event recorded in that one. So the last call's
 *    stream may be destroyed once a call on another one has been made, or where symmCommFinalize or symmCommDestroy comes next: those
 *    wait for the call itself, touch no stream, and leave no last call. Destroyed earlier it is not noticed: CUDA leaves open what
 *    becomes of its handle then, and drivers crash.
 *    A call on CUDA's legacy stream is such a last call too: while a blocking stream is captured nobody may use it, and a call on
 *    another stream is symmInvalidUsage. On the per-thread stream each call records the event at once, for another thread may be next.
 *  - Captures. Calls on several streams of one capture are ordered in the same way, by edges of the graph, also where up to 7 other
 *    captures have calls in between. Who launches a graph orders it after the communicator's other work, and that after the graph.
 *  - Several communicators. A kernel waits for its peers', and a large call's fills its GPU: two that start in opposite order on two GPUs keep
 *    each other's peers out, for ever where SYMM_TIMEOUT sets no limit. So collectives of different communicators are issued in the same
 *    order on all their ranks and kept in it on the GPU, by one stream or by events between streams (graphs too); or they are cut so
 *    that all that may run at once fit: their CTAs (maxCTAs of each symmConfig_t, SYMM_CTAS) together are no more than the GPU has
 *    multiprocessors, divided by the ranks that share it. One communicator's own calls need neither: the library keeps their order.
 *    A communicator that is cut launches its kernels without overlap, and lets none of yours overlap them (below): those that wait
 *    behind one would not fit.
 *  - Ranks that share a GPU. Processes take turns on it. Threads of one process are for tests: they share a CUDA context and its queues,
 *    where what waits for a rank may stand in front of what that rank is to do, until SYMM_TIMEOUT ends it. Each rank has streams of its
 *    own (symmInvalidUsage, where two come to one by eager calls; the legacy stream is one for all). Set
 *    CUDA_DEVICE_MAX_CONNECTIONS=32 and have fewer streams than that. Before any of these ranks' collectives may wait, run a kernel on
 *    each of their streams (a cudaMemsetAsync is one), load your kernels and graphs (cudaGraphUpload), and be done with what waits for
 *    the whole GPU (cudaMalloc, cudaFree). Where streams or graphs have host functions, wait for them every few calls: a launch that
 *    finds no room for more of those waits, and keeps all threads of the context from launching.
 *  - Programmatic launch (PDL, compute capability 9.0 and later). A collective's kernel overlaps the end of the one before it: it lets
 *    the kernel behind it in at once (but where ranks share the GPU, or the communicator is cut), and itself waits until all before it
 *    in the stream has ended. A kernel of yours that is launched with that attribute behind a collective executes griddepcontrol.wait
 *    (cudaGridDependencySynchronize) before it touches sendbuff or recvbuff, and in any case before it ends: without it nothing after
 *    it is behind the collective either. Kernels launched without the attribute need nothing. */

SYMM_API symmResult_t symmAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                    symmDataType_t datatype, symmRedOp_t op, symmComm_t comm,
                                    symmStream_t stream);
/* recvbuff holds nranks*sendcount elements; in place when sendbuff == recvbuff + rank*sendcount. */
SYMM_API symmResult_t symmAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                    symmDataType_t datatype, symmComm_t comm, symmStream_t stream);
/* Waits until every rank has come. It orders memory between ranks: what any rank has stored before its call, through
 * symmWindowPeerPtr or into its own memory, is seen by what any rank loads behind its own; and what a rank has loaded
 * before is not changed by stores that another one makes behind. "Before" and "behind" are those of the stream (NULL on
 * the host backend: of the calling thread). Other collectives order no memory but their buffers. */
SYMM_API symmResult_t symmBarrier(symmComm_t comm, symmStream_t stream);

/* out = sum over ranks of scalar*in. datatype is the type of the scalar and of every collective it is used with. [local] */
SYMM_API symmResult_t symmRedOpCreatePreMulSum(symmRedOp_t *op, void *scalar,
                                               symmDataType_t datatype,
                                               symmScalarResidence_t residence, symmComm_t comm);
SYMM_API symmResult_t symmRedOpDestroy(symmRedOp_t op, symmComm_t comm); /* [local] */

/* Calls between Start and the outermost End are queued: creation, split, shrink, registration, growth and
 * everything else that is [collective], so one thread may drive several ranks (symmCommInitMPI and
 * symmCommInitAll are made at once). Calls that are [local] are made at once, too; symmCommFinalize,
 * symmCommDestroy and symmWindowDeregister are refused (symmInvalidUsage) where calls of that communicator
 * stand in the group, as are the calls of symm_lane.h.
 * Arguments are checked at the call; nothing blocks before End. If a call
 * was refused, or a thread that a communicator needs cannot be started, End runs none of them and returns the first
 * refusal. Calls that only give work to streams (on GPUs all collectives, else those on other streams than NULL) are
 * made by the thread that calls End, in the order in which they were queued, whatever their communicators. Where
 * creation, split or registration of the same communicator stands in the group, its calls keep their own order only;
 * those on the per-thread stream still mean the caller's. Handles made in a group (comm, window) are written by End. A
 * communicator must exist before the group that registers on it. [local] */
SYMM_API symmResult_t symmGroupStart(void);
SYMM_API symmResult_t symmGroupEnd(void);

/* ---- seeing ----------------------------------------------------------------------------------------------- */

typedef enum {
    symmCollAllReduce = 0,
    symmCollAllGather = 1,
    symmCollBarrier = 2,
    symmNumColls = 3
} symmColl_t;

typedef struct {
    size_t size;     /* in: sizeof(symmExplain_t) of the caller */
    char kernel[48]; /* kernel that a call would run */
    int ctas;
    uint64_t chunkBytes; /* sent at once, before a wait; 0 where nothing is waited for in between */
    int zeroCopySend,
        zeroCopyRecv; /* this rank's buffers: 1 used in place, 0 staged through scratch */
    /* What is staged and why, why this kernel, why not another one. Never cut. */
    char reason[2048];
} symmExplain_t;
/* What symmAllReduce etc. would do with these arguments. root: the rank of the root, or the peer; ignored
 * for collectives without one. Launches nothing. [local] */
SYMM_API symmResult_t symmExplain(symmComm_t comm, symmColl_t coll, const void *sendbuff,
                                  const void *recvbuff, size_t count, symmDataType_t datatype,
                                  symmRedOp_t op, int root, symmExplain_t *plan);
/* Counters and gauges as JSON, NUL-terminated, truncated at cap; *needed (may be NULL) is the full size.
 * comm NULL: the process. [local] */
SYMM_API symmResult_t symmStats(symmComm_t comm, char *json, size_t cap, size_t *needed);
/* Human-readable state: ranks (alive, DEAD, left), windows, epochs, flags, who waits for whom; of one that
 * is being made, how far it is. Written to fd. [local] */
SYMM_API symmResult_t symmCommDump(symmComm_t comm, int fd);

/* ---- host streams -------------------------------------------------------------------------------------------
 * For the host backend: a worker thread per stream, so that asynchronous and captured use works without a GPU.
 * The NULL stream runs calls inline, in the caller. On GPUs use CUDA's own. */

SYMM_API symmResult_t symmStreamCreate(symmStream_t *stream);
SYMM_API symmResult_t symmStreamDestroy(symmStream_t stream); /* waits for its work */
SYMM_API symmResult_t symmStreamSynchronize(
    symmStream_t stream); /* returns the first error of its work since the last call */
SYMM_API symmResult_t
symmStreamQuery(symmStream_t stream); /* symmInProgress while work is queued */
SYMM_API symmResult_t symmStreamWaitEvent(symmStream_t stream, symmEvent_t event);
SYMM_API symmResult_t symmStreamHostFunc(symmStream_t stream, void (*fn)(void *), void *arg);
SYMM_API symmResult_t symmEventCreate(symmEvent_t *event);
SYMM_API symmResult_t symmEventDestroy(symmEvent_t event);
SYMM_API symmResult_t symmEventRecord(symmEvent_t event, symmStream_t stream);
SYMM_API symmResult_t symmEventSynchronize(symmEvent_t event);
SYMM_API symmResult_t symmEventQuery(symmEvent_t event);
/* Between Begin and End, calls given to the stream are recorded, not run; the graph replays them in order. Windows
 * used by captured calls stay mapped until the graph is destroyed; the memory behind their pointers must not be freed
 * before. The NULL stream cannot be captured. */
SYMM_API symmResult_t symmStreamBeginCapture(symmStream_t stream);
SYMM_API symmResult_t symmStreamEndCapture(symmStream_t stream, symmGraph_t *graph);
SYMM_API symmResult_t symmGraphLaunch(symmGraph_t graph, symmStream_t stream);
SYMM_API symmResult_t symmGraphDestroy(symmGraph_t graph); /* waits for replays that still run */

#ifdef __cplusplus
}
#endif
#endif
