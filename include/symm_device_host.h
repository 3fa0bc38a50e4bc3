/* symm_device_host.h - what host kernels call on a device communicator (symm_device.h): pointers
 * into every rank's memory, barriers, signals, packets, puts and reductions over ranks. A host
 * kernel is a function of the program, on the host backend, that works on the mapped memory of all
 * ranks without a call of the library for each step.
 *
 *     void kernel(const symmDevComm_t *dev, const symmDevWindow_t *x, float *sum, size_t n) {
 *         symmHostCta_t cta;
 *         if (symmHostCtaBegin(dev, 0, &cta)) return;              // index 0: its only thread
 *         if (!symmHostBarrierSync(&cta)) {                        // every rank's x is there
 *             symmHostLoadReduce(&cta, x, 0, n, symmFloat, symmSum, sum);
 *             symmHostBarrierSync(&cta);                           // nobody reads x any more
 *         }
 *         symmHostCtaEnd(&cta);
 *     }
 *
 * It is called as any function, or given to a stream (symmStreamHostFunc), where it is ordered with
 * the stream's collectives, and captured and replayed with them.
 *
 * Threads:
 *  - A kernel runs on one or more threads of its rank. Each calls symmHostCtaBegin, works with its
 *    own symmHostCta_t, and calls symmHostCtaEnd. No other thread touches that record.
 *  - A thread that meets others has an *index*, below `barriers` of the requirements. It meets the
 *    threads of that index on the other ranks, and nobody else: what another thread of its own rank
 *    has stored it publishes only if the program has ordered the two (pthread_barrier_wait, join).
 *    An index is one thread's at a time. Index -1: none, for threads that use signals only.
 *  - All ranks run, for each index, kernels with the same barriers and sessions, in the same order.
 *  - All threads that wait for each other run at once: ranks that one thread drives in turn cannot.
 *  - Inside a kernel, between Begin and End, a thread calls no function of the library but these:
 *    the end of the communicator waits for the kernel (symmInvalidUsage from inside one).
 *
 * Errors: calls that wait return 0, or non-zero if they gave up: the communicator is over on every
 * rank, as symm_device.h says, and the kernel calls symmHostCtaEnd and returns. A peer, a signal or
 * a packet that is out of range is such an error too (symmInvalidUsage). After it all calls of this
 * record do nothing, and those that wait return non-zero at once.
 *
 * C99 and C++11, GCC or Clang. */
#ifndef SYMM_DEVICE_HOST_H_
#define SYMM_DEVICE_HOST_H_

#include <string.h>

#include "symm_device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYMM_HOST_LINE         64u /* words of different writers lie in lines of their own */
#define SYMM_HOST_PACKET_BYTES 56u /* of data; the flag fills the line */

/* One thread of a kernel. Programs read `over`; the rest is the library's. */
typedef struct {
    const symmDevComm_t *dev; /* the program's; it stays until the end */
    void *inside;             /* NULL: it has not begun, or has ended */
    uint64_t *kept;           /* of this index, on this rank alone: barriers, sessions, in use */
    uint64_t barrier;         /* number of the last barrier */
    uint64_t session;         /* and of the last session of packets */
    int32_t index;            /* -1: none */
    int32_t over;             /* 1: it has given up */
} symmHostCta_t;

/* ---- a kernel's thread ----------------------------------------------------------------------- */

/* Begins. Requires: *devComm stays as it is, and where it is, until symmHostCtaEnd.
 * Order: local, any thread of the rank.
 * Errors: symmInvalidArgument: it is no live device communicator (ended already), index is out of
 * range, an argument is NULL. symmInvalidUsage: another thread has the index, or the communicator
 * was destroyed. symmNotSupported: it is one of GPUs. Else why the communicator is over, also if a
 * kernel of any rank has given up before. After an error the kernel returns: nothing has begun. */
SYMM_API symmResult_t symmHostCtaBegin(const symmDevComm_t *devComm, int index, symmHostCta_t *cta);
/* Ends, by the thread that began: the index is free, and the communicator may be destroyed. Returns
 * symmSuccess, or why it gave up; symmGetLastError names rank and wait. symmInvalidArgument: it has
 * not begun. */
SYMM_API symmResult_t symmHostCtaEnd(symmHostCta_t *cta);

/* ---- inside; not for programs ---------------------------------------------------------------- */

enum { SYMM_HOST_BARRIER, SYMM_HOST_SIGNAL, SYMM_HOST_PACKET };

/* Waits until *word, which `peer` (-1: any) releases, is `want`, or at most `ahead` beyond. */
SYMM_API int symmHostCtaAwait(symmHostCta_t *cta, const uint64_t *word, uint64_t want,
                              uint64_t ahead, int peer, int what);
/* Something is out of range: the communicator is over. */
SYMM_API void symmHostCtaMisused(symmHostCta_t *cta, int what);

/* Byte `at` of a rank's resource memory; line i behind it. */
static inline char *symm_hk_line(const symmDevComm_t *dev, int rank, uint64_t at, uint64_t i) {
    return (char *)(uintptr_t)(dev->base + (uint64_t)rank * dev->stride + at + i * SYMM_HOST_LINE);
}
/* q = 1..n-1 gives rank+1, rank+2, ...: no two ranks start on the same peer. */
static inline int symm_hk_peer(const symmDevComm_t *dev, int q) {
    const int p = dev->rank + q;
    return p >= dev->nranks ? p - dev->nranks : p;
}
/* Most words are there at the first look. */
static inline int symm_hk_await(symmHostCta_t *cta, const uint64_t *word, uint64_t want,
                                uint64_t ahead, int peer, int what) {
    if (cta->over) return 1;
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) - want <= ahead) return 0;
    return symmHostCtaAwait(cta, word, want, ahead, peer, what);
}
/* 1: the call does nothing. */
static inline int symm_hk_refused(symmHostCta_t *cta, int in_range, int what) {
    if (!cta->over && !in_range) symmHostCtaMisused(cta, what);
    return cta->over;
}
static inline int symm_hk_is_rank(const symmDevComm_t *dev, int peer) {
    return (uint32_t)peer < (uint32_t)dev->nranks;
}

/* ---- pointers -------------------------------------------------------------------------------- */

/* Byte `offset` of a rank's part of a window (symmDevWindowGet); of this rank's, at its own
 * pointer. NULL: peer or offset is out of range. Loads and stores through it are the program's: a
 * barrier or a signal orders them. */
static inline char *symmHostPeerPtr(const symmDevComm_t *devComm, const symmDevWindow_t *window,
                                    int peer, uint64_t offset) {
    if (!symm_hk_is_rank(devComm, peer) || offset >= window->bytes) return (char *)0;
    return (char *)(uintptr_t)((peer == devComm->rank
                                    ? window->own
                                    : window->base + (uint64_t)peer * window->stride) +
                               offset);
}
/* The same of this rank. */
static inline char *symmHostLocalPtr(const symmDevWindow_t *window, uint64_t offset) {
    return offset < window->bytes ? (char *)(uintptr_t)(window->own + offset) : (char *)0;
}

/* ---- barrier --------------------------------------------------------------------------------- */

/* Where `source` says at `owner` which barrier this index has come to. */
static inline uint64_t *symm_hk_arrived(const symmHostCta_t *cta, int owner, int source) {
    const symmDevComm_t *dev = cta->dev;
    const uint64_t place = (uint64_t)cta->index * (uint32_t)dev->nranks + (uint32_t)source;
    return (uint64_t *)(void *)symm_hk_line(dev, owner, dev->arrivedAt, place);
}

/* The thread is at the next barrier of its index; wait waits until those of all ranks are. Work
 * that needs no peer may lie between. Any number of barriers may follow each other, in a kernel, in
 * later ones, in replays: their number is kept in the resource memory.
 * Requires: a kernel that arrives also waits, before it arrives again.
 * Order: what the thread has stored before arrive, on any rank, is seen by what those of its index
 * load after wait; what it has loaded before arrive is not changed by what they store after. */
static inline void symmHostBarrierArrive(symmHostCta_t *cta) {
    const symmDevComm_t *dev = cta->dev;
    if (symm_hk_refused(cta, cta->index >= 0, SYMM_HOST_BARRIER)) return;
    cta->kept[0] = ++cta->barrier;
    for (int q = 1; q < dev->nranks; q++) /* pairs with symmHostBarrierWait */
        __atomic_store_n(symm_hk_arrived(cta, symm_hk_peer(dev, q), dev->rank), cta->barrier,
                         __ATOMIC_RELEASE);
}
/* Returns 0, or non-zero: it gave up. */
static inline int symmHostBarrierWait(symmHostCta_t *cta) {
    const symmDevComm_t *dev = cta->dev;
    if (symm_hk_refused(cta, cta->index >= 0, SYMM_HOST_BARRIER)) return 1;
    /* A peer that has heard from this rank may be one barrier ahead. */
    for (int q = 1; !cta->over && q < dev->nranks; q++) {
        const int peer = symm_hk_peer(dev, q);
        symm_hk_await(cta, symm_hk_arrived(cta, dev->rank, peer), cta->barrier, INT64_MAX, peer,
                      SYMM_HOST_BARRIER);
    }
    return cta->over;
}
/* Both. */
static inline int symmHostBarrierSync(symmHostCta_t *cta) {
    symmHostBarrierArrive(cta);
    return symmHostBarrierWait(cta);
}

/* ---- signals --------------------------------------------------------------------------------- */

/* Each rank has `signals` counts of 64 bits, zero at creation, which threads of all ranks raise. */
static inline uint64_t *symm_hk_signal(const symmDevComm_t *dev, int rank, int signal) {
    return (uint64_t *)(void *)symm_hk_line(dev, rank, dev->signalAt, (uint32_t)signal);
}
static inline int symm_hk_is_signal(const symmDevComm_t *dev, int signal) {
    return (uint32_t)signal < (uint32_t)dev->signals;
}

/* Adds `by` to a signal of `peer`, this rank too: behind all that the thread has stored and loaded,
 * which the waiter sees. */
static inline void symmHostSignalRaise(symmHostCta_t *cta, int peer, int signal, uint64_t by) {
    const symmDevComm_t *dev = cta->dev;
    const int fits = symm_hk_is_rank(dev, peer) && symm_hk_is_signal(dev, signal);
    if (symm_hk_refused(cta, fits, SYMM_HOST_SIGNAL)) return;
    /* pairs with symmHostSignalWait and symmHostSignalRead */
    __atomic_fetch_add(symm_hk_signal(dev, peer, signal), by, __ATOMIC_RELEASE);
}
/* The same, but the signal becomes `count`: cheaper. Requires: nobody else raises it. */
static inline void symmHostSignalStore(symmHostCta_t *cta, int peer, int signal, uint64_t count) {
    const symmDevComm_t *dev = cta->dev;
    const int fits = symm_hk_is_rank(dev, peer) && symm_hk_is_signal(dev, signal);
    if (symm_hk_refused(cta, fits, SYMM_HOST_SIGNAL)) return;
    /* pairs with symmHostSignalWait and symmHostSignalRead */
    __atomic_store_n(symm_hk_signal(dev, peer, signal), count, __ATOMIC_RELEASE);
}
/* Waits until a signal of this rank is at least `count`; then what its raisers have stored before
 * is seen. peer: who raises it: if that rank has left, the wait ends; -1: several may: it ends when
 * all other ranks have left. Name the peer where there is one. A signal never goes down by itself:
 * in a replay a captured count is reached at once (symm_device.h says what to do). Returns 0, or
 * non-zero: it gave up. */
static inline int symmHostSignalWait(symmHostCta_t *cta, int signal, uint64_t count, int peer) {
    const symmDevComm_t *dev = cta->dev;
    const int fits = (peer == -1 || symm_hk_is_rank(dev, peer)) && symm_hk_is_signal(dev, signal);
    if (symm_hk_refused(cta, fits, SYMM_HOST_SIGNAL)) return 1;
    /* Pairs with symmHostSignalRaise and symmHostSignalStore. */
    return symm_hk_await(cta, symm_hk_signal(dev, dev->rank, signal), count, INT64_MAX, peer,
                         SYMM_HOST_SIGNAL);
}
/* What a signal of this rank says now; what was stored before it was raised to that is seen.
 * Requires: it is not polled in a loop, which would see no abort and have no deadline. */
static inline uint64_t symmHostSignalRead(symmHostCta_t *cta, int signal) {
    const symmDevComm_t *dev = cta->dev;
    if (symm_hk_refused(cta, symm_hk_is_signal(dev, signal), SYMM_HOST_SIGNAL)) return 0;
    /* pairs with symmHostSignalRaise and symmHostSignalStore */
    return __atomic_load_n(symm_hk_signal(dev, dev->rank, signal), __ATOMIC_ACQUIRE);
}
/* Makes a signal of this rank 0. Requires: nobody raises it before a barrier that this thread
 * passes afterwards. */
static inline void symmHostSignalReset(symmHostCta_t *cta, int signal) {
    const symmDevComm_t *dev = cta->dev;
    if (symm_hk_refused(cta, symm_hk_is_signal(dev, signal), SYMM_HOST_SIGNAL)) return;
    __atomic_store_n(symm_hk_signal(dev, dev->rank, signal), 0, __ATOMIC_RELAXED);
}

/* ---- packets --------------------------------------------------------------------------------- */

/* A packet is a cache line: 56 bytes of data and the flag. It arrives without a barrier, in one
 * way of a line from core to core. Places are fixed: packet `item`, below llBytes / 56 of the
 * device communicator, of a source in a session of the index.
 *
 * Sessions alternate between two sets of places. Requires, so that none is written before it was
 * read: in each session the thread receives something from every peer to which it sends in the next
 * one, after it has received all that it receives from that peer in the session before; or it
 * passes a barrier between the two. A place is used once in a session. */
static inline uint64_t *symm_hk_packet(const symmHostCta_t *cta, int owner, int source,
                                       uint32_t item) {
    const symmDevComm_t *dev = cta->dev;
    const uint64_t items = dev->llBytes / SYMM_HOST_PACKET_BYTES;
    const uint64_t half = (uint64_t)cta->index * 2 + (cta->session & 1);
    const uint64_t set = half * (uint32_t)dev->nranks + (uint32_t)source;
    return (uint64_t *)(void *)symm_hk_line(dev, owner, dev->llAt, set * items + item);
}
static inline int symm_hk_is_packet(const symmHostCta_t *cta, int peer, uint32_t item,
                                    size_t bytes) {
    const symmDevComm_t *dev = cta->dev;
    return cta->index >= 0 && cta->session && symm_hk_is_rank(dev, peer) &&
           item < dev->llBytes / SYMM_HOST_PACKET_BYTES && bytes <= SYMM_HOST_PACKET_BYTES;
}

/* Begins the next session of this index. A kernel calls it before its first packet. */
static inline void symmHostPacketsNext(symmHostCta_t *cta) {
    if (symm_hk_refused(cta, cta->index >= 0, SYMM_HOST_PACKET)) return;
    cta->kept[1] = ++cta->session;
}
/* Sends `bytes` of data, at most 56, to a peer, this rank too. */
static inline void symmHostPacketSend(symmHostCta_t *cta, int peer, uint32_t item, const void *data,
                                      size_t bytes) {
    if (symm_hk_refused(cta, symm_hk_is_packet(cta, peer, item, bytes), SYMM_HOST_PACKET)) return;
    uint64_t *place = symm_hk_packet(cta, peer, cta->dev->rank, item);
    uint64_t words[SYMM_HOST_PACKET_BYTES / 8] = {0};
    memcpy(words, data, bytes);
    for (uint32_t i = 0; i < SYMM_HOST_PACKET_BYTES / 8; i++) place[i] = words[i];
    /* pairs with symmHostPacketReceive */
    __atomic_store_n(place + SYMM_HOST_PACKET_BYTES / 8, cta->session, __ATOMIC_RELEASE);
}
/* Waits for that packet of a peer, and stores its first `bytes` at data. Returns 0, or non-zero: it
 * gave up, and data is as it was. */
static inline int symmHostPacketReceive(symmHostCta_t *cta, int peer, uint32_t item, void *data,
                                        size_t bytes) {
    if (symm_hk_refused(cta, symm_hk_is_packet(cta, peer, item, bytes), SYMM_HOST_PACKET)) return 1;
    const uint64_t *place = symm_hk_packet(cta, cta->dev->rank, peer, item);
    /* Pairs with symmHostPacketSend. */
    if (symm_hk_await(cta, place + SYMM_HOST_PACKET_BYTES / 8, cta->session, 0, peer,
                      SYMM_HOST_PACKET))
        return 1;
    uint64_t words[SYMM_HOST_PACKET_BYTES / 8];
    for (uint32_t i = 0; i < SYMM_HOST_PACKET_BYTES / 8; i++) words[i] = place[i];
    memcpy(data, words, bytes);
    return 0;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Copies, as fast as the library does, with stores past the caches where they pay. It waits for
 * nothing and orders nothing: a barrier or a signal of the same thread publishes it. Requires: the
 * two do not overlap, and hold `bytes`. */
SYMM_API void symmHostCopy(const symmHostCta_t *cta, void *to, const void *from, size_t bytes);
/* Stores `bytes` of data at byte `offset` of a peer's part of a window, likewise.
 * Errors: symmInvalidArgument: peer or bytes are out of range; nothing was stored. */
SYMM_API symmResult_t symmHostPut(const symmHostCta_t *cta, const symmDevWindow_t *window, int peer,
                                  uint64_t offset, const void *data, size_t bytes);
/* symmHostPut, then symmHostSignalRaise at the same peer, by one. After an error nothing is
 * raised. */
static inline symmResult_t symmHostPutSignal(symmHostCta_t *cta, const symmDevWindow_t *window,
                                             int peer, uint64_t offset, const void *data,
                                             size_t bytes, int signal) {
    const symmResult_t r = symmHostPut(cta, window, peer, offset, data, bytes);
    if (r == symmSuccess) symmHostSignalRaise(cta, peer, signal, 1);
    return r;
}
/* Reduces `count` elements at byte `offset` of all ranks' parts into `to`, in the order of the
 * ranks: the bits of symmAllReduce, for all its types and for sum, prod, max, min and avg. `to` is
 * this rank's part itself, or overlaps no part. Requires: a barrier or a signal says that all are
 * there.
 * Errors: symmInvalidArgument: type, reduction, or what lies outside the window; `to` is as it
 * was. */
SYMM_API symmResult_t symmHostLoadReduce(const symmHostCta_t *cta, const symmDevWindow_t *window,
                                         uint64_t offset, size_t count, symmDataType_t datatype,
                                         symmRedOp_t op, void *to);

#ifdef __cplusplus
}
#endif

#endif
