/* symm_device.h - communicators for kernels of the program: barriers, signals, packets and pointers
 * into every rank's memory, inside a kernel. This is how they are made, on both backends. What
 * kernels call is in symm_device.cuh for GPUs, in symm_device_host.h for the host backend.
 *
 *     symmDevRequirements_t need = SYMM_DEV_REQUIREMENTS_INITIALIZER;
 *     need.barriers = 64;                                      // CTAs of the kernel
 *     symmDevCommCreate(comm, &need, &dev);                    // all ranks
 *     symmDevWindowGet(comm, x, bytes, &win);                  // x: in a window, heap or vector
 *     kernel<<<64, 256, 0, stream>>>(dev, win);                // both by value
 *
 * A device communicator is symmetric memory of the library's own, with words that only its kernels
 * use, and the addresses of them. It counts epochs of barriers and packets in that memory. So any
 * number of kernels may follow each other, and graphs with them be replayed, without a call of the
 * host in between. Signals are no epochs: they never go down by themselves, and a count to wait for
 * that was captured is the same in each replay. A kernel that may be replayed keeps its own count
 * in memory, or resets the signal and passes a barrier. One communicator may have several device
 * communicators; kernels that may overlap on a rank have one each.
 *
 * Errors in kernels: every wait of a kernel ends when the communicator is over (abort, revoke, a
 * death, an error of any rank), when the peer that it waits for has left, and after SYMM_TIMEOUT.
 * That is 0 by default: for ever. Set it while you develop. A wait for a signal that names no peer
 * ends when all other ranks have left, not before. A wait that has ended so returns non-zero, the
 * communicator is over on every rank, and calls of the host say why (symmCommGetAsyncError). The
 * kernel ends itself; docs/device-api.md shows how.
 *
 * Conventions as in symm.h. */
#ifndef SYMM_DEVICE_H_
#define SYMM_DEVICE_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYMM_DEV_MAX_BARRIERS 1024
#define SYMM_DEV_MAX_SIGNALS  65536
/* What symm_device.cuh knows of the library's records; not for programs. */
#define SYMM_DEV_EPOCH_BYTES 32u
#define SYMM_DEV_STATE_LEFT  2u
#define SYMM_DEV_STAGE       11u

/* Start from SYMM_DEV_REQUIREMENTS_INITIALIZER. Equal on all ranks. */
typedef struct {
    size_t size;      /* sizeof(symmDevRequirements_t) of the caller */
    uint32_t version; /* SYMM_VERSION_CODE of the caller */
    /* Groups of threads (CTAs or warps; on the host backend single threads) of one rank that meet
     * the same group of the other ranks, in barriers and sessions of packets: 0 to
     * SYMM_DEV_MAX_BARRIERS. */
    int32_t barriers;
    int32_t signals; /* 0 to SYMM_DEV_MAX_SIGNALS */
    int32_t pad;
    /* Data that one group may send each peer within a session, in packets and in lines: bytes.
     * Memory of each rank: about 4 * barriers * ranks * llBytes, and 2.2 times as much as
     * barriers * ranks * lineBytes. On the host backend a packet is a line: 2.3 times barriers *
     * ranks * llBytes, and no memory for lineBytes. */
    uint64_t llBytes, lineBytes;
} symmDevRequirements_t;
#define SYMM_DEV_REQUIREMENTS_INITIALIZER \
    { sizeof(symmDevRequirements_t), SYMM_VERSION_CODE, 0, 0, 0, 0, 0 }

/* Passed to kernels of GPUs by value, as `const __grid_constant__ symmDevComm_t`, and by pointer to
 * host kernels. Programs read the first six fields; the others are the library's. */
typedef struct {
    int32_t rank, nranks;
    int32_t barriers, signals;
    uint64_t llBytes, lineBytes; /* rounded up; host backend: lineBytes is 0 */
    void *handle;
    uint64_t timeoutNs;              /* 0: no deadline */
    uint64_t base, stride;           /* of the resource memory: rank r's at base + r*stride */
    uint64_t signalAt, llAt, lineAt; /* in it */
    uint64_t arrivedAt;              /* likewise */
    uint64_t lineSlot;               /* bytes of one source's lines in a session */
    uint64_t multicast;              /* address of all ranks' resource memory; 0: none */
    uint64_t hostBase, hostStride;   /* words in host memory; rank r's at base + r*stride */
    uint64_t abortAt, leftAt;        /* in them */
    uint64_t deathAt, stateAt;       /* likewise */
    uint64_t overBase, overStride;   /* words in GPU memory that tell later kernels */
    uint64_t serial;                 /* of this device communicator; equal on all ranks */
    /* Words in GPU memory where peers write abort and death; 0: they write those in host memory */
    uint64_t farBase, farStride;
} symmDevComm_t;

/* A window, or a piece of one, as kernels see it; passed by value. */
typedef struct {
    uint64_t base, stride; /* rank r's part begins at base + r*stride, modulo 2^64 */
    uint64_t own;          /* this rank's, at its own pointer */
    uint64_t bytes;
    uint64_t multicast; /* one address for all ranks' parts; 0: none */
} symmDevWindow_t;

/* Makes a device communicator: registers its memory, cleared, on all ranks or on none. Inside a
 * group it is made at the end of the group.
 * Requires: no graph with kernels that use it is launched after symmDevCommDestroy or
 * symmCommDestroy: its addresses are in the graph.
 * Order: collective.
 * Errors, the same on every rank: symmMismatch: the requirements differ (both are shown);
 * symmInvalidArgument: a requirement is out of range on some rank; symmOutOfMemory: they need more
 * memory or addresses than there are. */
SYMM_API symmResult_t symmDevCommCreate(symmComm_t comm, const symmDevRequirements_t *requirements,
                                        symmDevComm_t *devComm);
/* Ends it here; waits for no peer. Its memory is freed as that of a deregistered window.
 * symmCommDestroy and symmCommAbort end those that are left, and wait before that for all that the
 * GPU's context runs: a kernel may still be reading the abort word. On the host backend they wait
 * for threads between symmHostCtaBegin and symmHostCtaEnd; no kernel begins after that.
 * Requires: this rank's kernels that use it have ended, and no graph with such kernels is launched
 * after this, nor after symmCommDestroy. Kernels of peers may still store into it.
 * Order: local.
 * Errors: symmInvalidArgument: it is none of comm's, or ended already. */
SYMM_API symmResult_t symmDevCommDestroy(symmComm_t comm, const symmDevComm_t *devComm);

/* [mem, mem + bytes), this rank's memory in a window, heap or vector of comm, for kernels. Nothing
 * has to be ended; it holds as long as the window or block does and is not moved.
 * Requires: on every rank mem lies equally far into its part of the window or heap.
 * Order: local.
 * Errors: symmInvalidArgument: the memory is in none of them, or a peer's part is shorter.
 * symmNotSupported: the ranks' parts do not lie at one distance, so that base and stride cannot say
 * where they are (three and more thread ranks, whose windows are never mapped again): take memory
 * of a heap. */
SYMM_API symmResult_t symmDevWindowGet(symmComm_t comm, const void *mem, size_t bytes,
                                       symmDevWindow_t *window);

#ifdef __cplusplus
}
#endif

#endif
