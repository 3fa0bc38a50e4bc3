/* symm_synced.h - a buffer with a side in host memory and a side in a symmetric heap. One is copied
 * to the other when somebody asks for the side that is old, and not before.
 *
 * The buffer knows which side is the newest (its head). Creation records the size only; the first
 * of the six accessors allocates the side that it names, filled with zeros. The device side lies in
 * the heap, so peers read it in place. On the host backend both sides are host memory, and all else
 * is the same.
 *
 *   state              Cpu       Gpu        MutableCpu  MutableGpu  SetCpu    SetGpu
 *   UNINITIALIZED      AT_CPU    AT_GPU     AT_CPU      AT_GPU      AT_CPU    AT_GPU
 *   HEAD_AT_CPU        same      PUSHING*   same        AT_GPU*     same      AT_GPU
 *   HEAD_AT_GPU        SYNCED*   same       AT_CPU*     same        AT_CPU    same
 *   SYNCED             same      same       AT_CPU      AT_GPU      AT_CPU    AT_GPU
 *   PUSHING, PULLING   as SYNCED                                              (*: copies)
 *
 * Streams. Each call takes the stream in which the caller's device work on the buffer runs.
 *  - A device pointer is good for work that is given to that stream from then on. Copies and fills
 *    go into the stream. What another stream still has to do for this buffer is waited for in the
 *    stream, never by the host.
 *  - A host pointer is good at once: the host waits for what must end first, and for no more.
 *  - NULL is the NULL stream (host backend: in the caller). The caller orders its own work on two
 *    streams.
 *
 * Capture. Push and Pull may be captured: then the copy of the whole buffer is recorded and nothing
 * else. The buffer's state does not change, neither now nor by a replay. The program orders a
 * replay against other use; MutableGpu or MutableCpu with copy 0 then says where the head is.
 * Another call is refused during a capture if it would have to copy, or to clear a device side that
 * was there before Discard (symmInvalidUsage).
 *
 * Order: local, all calls. SYM buffers: those that allocate or free count as symmHeapAlloc and
 * symmHeapFree of the heap: same order on all ranks. The device side is allocated by the first of
 * Gpu, MutableGpu, Push and Ref of the data that finds none, so once more after SetGpu and Discard;
 * the word of the generation by the first of these, Publish and Ref of the word. SetGpu and Destroy
 * free.
 * Threads: one buffer is used by one thread at a time.
 * GPUs: the host side is pinned memory. Allocating it may wait for work of the device, once a
 * buffer. Conventions as in symm.h. */
#ifndef SYMM_SYNCED_H_
#define SYMM_SYNCED_H_

#include "symm_heap.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmSynced *symmSynced_t;

enum {
    SYMM_SYNCED_UNINITIALIZED = 0, /* nothing is there yet */
    SYMM_SYNCED_HEAD_AT_CPU = 1,   /* the host side is newer */
    SYMM_SYNCED_HEAD_AT_GPU = 2,   /* the device side is newer */
    SYMM_SYNCED_SYNCED = 3,        /* both are equal */
    SYMM_SYNCED_PUSHING = 4,       /* SYNCED as soon as a copy to the device has ended */
    SYMM_SYNCED_PULLING = 5        /* SYNCED as soon as a copy to the host has ended */
};

/* ---- life ------------------------------------------------------------------------------------ */

/* Makes a buffer of `bytes`; allocates nothing. flags, of the device side: SYMM_ALLOC_SYM or
 * SYMM_ALLOC_LOCAL. The heap's memory lives as long as the buffer. */
SYMM_API symmResult_t symmSyncedCreate(symmHeap_t heap, size_t bytes, unsigned flags,
                                       symmSynced_t *synced);
/* Waits for copies that are under way, then frees what the buffer owns, never a pointer of SetCpu
 * or SetGpu. Memory that a captured copy uses lives as long as the graph.
 * Requires: the caller's own work on the buffer, and for SYM the peers', has ended. */
SYMM_API symmResult_t symmSyncedDestroy(symmSynced_t synced);

/* ---- accessors ------------------------------------------------------------------------------- */

/* The host side, or the device side, to read. */
SYMM_API symmResult_t symmSyncedCpu(symmSynced_t synced, symmStream_t stream, const void **ptr);
SYMM_API symmResult_t symmSyncedGpu(symmSynced_t synced, symmStream_t stream, const void **ptr);
/* To read and write: the head is there from now on, so the buffer is not SYNCED until the next
 * copy. copy 0: the contents are not needed; nothing is copied or filled, and what is not written
 * is undefined. */
SYMM_API symmResult_t symmSyncedMutableCpu(symmSynced_t synced, symmStream_t stream, int copy,
                                           void **ptr);
SYMM_API symmResult_t symmSyncedMutableGpu(symmSynced_t synced, symmStream_t stream, int copy,
                                           void **ptr);
/* ptr becomes that side and the head. It stays the caller's; the buffer's own memory of that side
 * is freed. Waits for copies that are under way. Refused once a copy of this buffer was captured.
 * Requires: ptr has at least the buffer's size; SetGpu: memory of the heap's device. */
SYMM_API symmResult_t symmSyncedSetCpu(symmSynced_t synced, void *ptr);
SYMM_API symmResult_t symmSyncedSetGpu(symmSynced_t synced, void *ptr);

/* ---- copies ---------------------------------------------------------------------------------- */

/* Gives the copy to the device to the stream and returns. HEAD_AT_CPU becomes PUSHING, and SYNCED
 * by itself when the copy has ended. Until then a device reader is ordered behind the copy, and a
 * host writer waits for it. If nothing needs to be copied, the stream is ordered behind a copy that
 * is under way.
 * Errors: symmInvalidUsage: the host side has nothing (UNINITIALIZED, HEAD_AT_GPU). */
SYMM_API symmResult_t symmSyncedPush(symmSynced_t synced, symmStream_t stream);
/* The same to the host: HEAD_AT_GPU becomes PULLING. */
SYMM_API symmResult_t symmSyncedPull(symmSynced_t synced, symmStream_t stream);
/* Forgets the contents: UNINITIALIZED, as after creation. Own memory is kept for the next use, the
 * caller's pointers are let go. */
SYMM_API symmResult_t symmSyncedDiscard(symmSynced_t synced);
/* Says that of what the last Mutable call made writable only [off, off+len) was written; called
 * again, that range too. If both sides were equal before, the next copy moves the named ranges
 * only. A Mutable call for which no range is named makes it the whole buffer.
 * Errors: symmInvalidUsage: no side is newer. */
SYMM_API symmResult_t symmSyncedDirty(symmSynced_t synced, size_t off, size_t len);

/* *state: SYMM_SYNCED_*. Never waits. */
SYMM_API symmResult_t symmSyncedHead(symmSynced_t synced, int *state);
/* The size given at creation. */
SYMM_API symmResult_t symmSyncedSize(symmSynced_t synced, size_t *bytes);

/* ---- generation ------------------------------------------------------------------------------
 * Counts what was put on the device side, modulo 2^32: each copy, each first fill, each Publish. It
 * is a word of the heap (one of its own, which stays where it is until Destroy), written in the
 * stream behind what it counts: who has read generation g there reads data of g or newer. Captured
 * copies count nothing; Publish after the replay does.
 * Requires: a peer looks only once it knows that the owner has allocated its device side: after a
 * barrier, or from a reference that it was sent. */

/* Counts one more in the stream, behind the caller's own writes. *generation (may be NULL): the
 * number. Refused in a capture, where a replay would write the same number again. */
SYMM_API symmResult_t symmSyncedPublish(symmSynced_t synced, symmStream_t stream,
                                        uint32_t *generation);
/* What a rank's word says now (SYM: any rank; LOCAL: this one only); 0 if this rank has none. */
SYMM_API symmResult_t symmSyncedGeneration(symmSynced_t synced, int rank, uint32_t *generation);
/* References to the device side and to the word, to be sent to peers; each may be NULL.
 * Errors: symmInvalidUsage: data, where SetGpu brought memory outside of the heap. */
SYMM_API symmResult_t symmSyncedRef(symmSynced_t synced, symmRef_t *data, symmRef_t *word);
/* Reads the word that a reference names, on `rank` as in symmRefPtr. comm: that of the heap.
 * Threads: use of the communicator. */
SYMM_API symmResult_t symmSyncedPoll(const symmRef_t *word, symmComm_t comm, int rank,
                                     uint32_t *generation);

/* Writes state, both sides, dirty ranges and generation to fd, for people. */
SYMM_API symmResult_t symmSyncedDump(symmSynced_t synced, int fd);

#ifdef __cplusplus
}
#endif
#endif
