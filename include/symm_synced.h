/* symm_synced.h - a buffer with a side in host memory and a side in a symmetric heap, copied from one to the other when somebody asks
 * for the side that is old, and not before.
 *
 * The buffer knows which side is the newest (its head). Creation records the size only; the first of the six accessors allocates the
 * side that it names, filled with zeros. The device side lies in the heap, so peers read it in place; on the host backend both sides
 * are host memory and everything else is the same.
 *
 *   state            means                                    Cpu       Gpu       MutableCpu   MutableGpu   SetCpu   SetGpu
 *   UNINITIALIZED    nothing is there yet                     AT_CPU    AT_GPU    AT_CPU       AT_GPU       AT_CPU   AT_GPU
 *   HEAD_AT_CPU      the host side is newer                   same      PUSHING*  same         AT_GPU*      same     AT_GPU
 *   HEAD_AT_GPU      the device side is newer                 SYNCED*   same      AT_CPU*      same         AT_CPU   same
 *   SYNCED           both are equal                           same      same      AT_CPU       AT_GPU       AT_CPU   AT_GPU
 *   PUSHING, PULLING SYNCED as soon as a copy to the device (to the host) has ended; as SYNCED otherwise     (*: copies)
 *
 * Streams. Each call takes the stream in which the caller's device work on the buffer runs. A device pointer is good for work that is
 * given to that stream from then on: copies and fills go into the stream, and what another stream still has to do for this buffer is
 * waited for in the stream, never by the host. A host pointer is good at once: the host waits for what must end first, and for no
 * more. NULL is the NULL stream (host backend: in the caller). The order of the caller's own work on two streams is the caller's.
 *
 * Capture. Push and Pull may be captured: then the copy of the whole buffer is recorded and nothing else; the buffer's state is as it
 * was, now and after a replay (who replays orders it against other use; MutableGpu or MutableCpu with copy 0 then says where the head
 * is). A call that would itself have to copy is refused during a capture with symmInvalidUsage; one that finds its side up to date
 * is not.
 *
 * Thread rule: one buffer is used by one thread at a time. The first call that allocates the device side of a SYMM_ALLOC_SYM buffer,
 * SetGpu and Destroy count as symmHeapAlloc and symmHeapFree of the heap: every rank makes them in the same order. That call is Gpu,
 * MutableGpu, Push, Publish or Ref, whichever comes first.
 * GPUs: the host side is pinned memory; allocating it may wait for work of the device, once a buffer.
 * Conventions as in symm.h; all calls are [local]. */
#ifndef SYMM_SYNCED_H_
#define SYMM_SYNCED_H_

#include "symm_heap.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmSynced *symmSynced_t;

enum {
    SYMM_SYNCED_UNINITIALIZED = 0,
    SYMM_SYNCED_HEAD_AT_CPU = 1,
    SYMM_SYNCED_HEAD_AT_GPU = 2,
    SYMM_SYNCED_SYNCED = 3,
    SYMM_SYNCED_PUSHING = 4,
    SYMM_SYNCED_PULLING = 5
};

/* Records the size. flags: SYMM_ALLOC_SYM or SYMM_ALLOC_LOCAL, of the device side. The heap's memory lives as long as the buffer. */
SYMM_API symmResult_t symmSyncedCreate(symmHeap_t heap, size_t bytes, unsigned flags,
                                       symmSynced_t *synced);
/* Waits for copies that are under way, then frees what the buffer owns: never a pointer that SetCpu or SetGpu brought. Memory that a
 * captured copy uses lives as long as the graph. The caller's own work on the buffer, and for SYM the peers', must have ended. */
SYMM_API symmResult_t symmSyncedDestroy(symmSynced_t synced);

/* To read. */
SYMM_API symmResult_t symmSyncedCpu(symmSynced_t synced, symmStream_t stream, const void **ptr);
SYMM_API symmResult_t symmSyncedGpu(symmSynced_t synced, symmStream_t stream, const void **ptr);
/* To read and write: the head is there from now on, so the buffer is not SYNCED until the next copy. copy 0: the contents are not
 * needed; nothing is copied or filled, and what is not written is undefined. */
SYMM_API symmResult_t symmSyncedMutableCpu(symmSynced_t synced, symmStream_t stream, int copy,
                                           void **ptr);
SYMM_API symmResult_t symmSyncedMutableGpu(symmSynced_t synced, symmStream_t stream, int copy,
                                           void **ptr);
/* ptr, of at least the buffer's size, becomes that side and the head. It stays the caller's; the buffer's own memory of that side is
 * freed. Waits for copies under way. GPU: memory of the heap's device. Refused once a copy of this buffer was captured. */
SYMM_API symmResult_t symmSyncedSetCpu(symmSynced_t synced, void *ptr);
SYMM_API symmResult_t symmSyncedSetGpu(symmSynced_t synced, void *ptr);

/* Gives the copy to the device to the stream and returns. HEAD_AT_CPU becomes PUSHING, and SYNCED by itself when the copy has ended;
 * until then a device reader is ordered behind the copy and a host writer waits for it. Where nothing needs to be copied the stream is
 * ordered behind a copy that is under way. symmInvalidUsage where the host side has nothing: UNINITIALIZED, HEAD_AT_GPU. */
SYMM_API symmResult_t symmSyncedPush(symmSynced_t synced, symmStream_t stream);
/* The same to the host: HEAD_AT_GPU becomes PULLING. */
SYMM_API symmResult_t symmSyncedPull(symmSynced_t synced, symmStream_t stream);
/* Forgets the contents: UNINITIALIZED, as after creation. Own memory is kept for the next use, pointers of the caller's are let go. */
SYMM_API symmResult_t symmSyncedDiscard(symmSynced_t synced);
/* Says that of what the last Mutable call made writable only [off, off+len) was written (called again: and that). If both sides were
 * equal before, the next copy moves the named ranges only; a Mutable call for which nothing is named makes it the whole buffer.
 * symmInvalidUsage where no side is newer. */
SYMM_API symmResult_t symmSyncedDirty(symmSynced_t synced, size_t off, size_t len);

/* SYMM_SYNCED_*. Never waits. */
SYMM_API symmResult_t symmSyncedHead(symmSynced_t synced, int *state);
SYMM_API symmResult_t symmSyncedSize(symmSynced_t synced, size_t *bytes);

/* The generation counts what was put on the device side: each copy, each first fill, each Publish, modulo 2^32. It lies in a word of
 * the heap (one of its own, which stays where it is until Destroy), written in the stream behind what it counts: who has read
 * generation g there reads data of g or newer. A peer may look once it knows that the owner has allocated its device side, after a
 * barrier or from a reference that it was sent. Captured copies count nothing; Publish behind the replay does. */
/* Counts one more in the stream, behind the caller's own writes; refused in a capture, where a replay would write the same number
 * again. *generation (may be NULL): the number. */
SYMM_API symmResult_t symmSyncedPublish(symmSynced_t synced, symmStream_t stream,
                                        uint32_t *generation);
/* What rank's word says now (SYM: any rank; LOCAL: this one only); 0 where this rank has none. */
SYMM_API symmResult_t symmSyncedGeneration(symmSynced_t synced, int rank, uint32_t *generation);
/* References for peers, sendable; each may be NULL. data: symmInvalidUsage where SetGpu brought memory outside of the heap. */
SYMM_API symmResult_t symmSyncedRef(symmSynced_t synced, symmRef_t *data, symmRef_t *word);
/* Reads the word that a reference names, wherever it is. comm: that of the heap. */
SYMM_API symmResult_t symmSyncedPoll(const symmRef_t *word, symmComm_t comm, int rank,
                                     uint32_t *generation);

/* State, both sides, dirty ranges, generation, for people. Written to fd. */
SYMM_API symmResult_t symmSyncedDump(symmSynced_t synced, int fd);

#ifdef __cplusplus
}
#endif
#endif
