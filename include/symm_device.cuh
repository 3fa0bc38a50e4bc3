/* symm_device.cuh - what kernels of the program call on a device communicator (symm_device.h):
 * pointers into every rank's memory, barriers, signals; symm_device_data.cuh, which it includes,
 * has packets, lines, copies and sums. CUDA C++17, sm_80 and later. GPU code.
 *
 * Conditions of every call:
 *  - A kernel takes the device communicator as `const __grid_constant__ symmDevComm_t`: else the
 *    compiler copies it to local memory.
 *  - A *group* is a CTA (symmDevCta), a warp (symmDevWarp), or one of cooperative_groups
 *    (symmDevCoop). All its threads make a group's calls, together. CTAs are one-dimensional and
 *    have whole warps.
 *  - A group that waits has an *index*, below `barriers` of the requirements. It meets the groups
 *    of the same index on the other ranks, of the same kind. No two groups that run at once on a
 *    rank have the same index, and kernels that use one device communicator do not overlap.
 *  - All ranks launch the same kernel with equal grids, in the same order (SYMM_DEVICE_DEBUG
 *    compares the grids at barriers).
 *  - The whole grid runs at once: a CTA that has no place keeps its peers waiting. A grid of at
 *    most as many CTAs as fit the GPU (cudaOccupancyMaxActiveBlocksPerMultiprocessor) does, if
 *    nothing else that waits is on the GPU. A cooperative launch checks it. (SYMM_DEVICE_DEBUG
 *    checks what threads and shared memory take, not registers.)
 *  - With programmatic dependent launch a kernel calls symmDevWaitForGridBefore before anything
 *    else here. (SYMM_DEVICE_DEBUG finds kernels that are in one barrier or session at a time.)
 *
 * Errors: calls that wait return 0, or non-zero if they gave up: the communicator is over on every
 * rank, as symm_device.h says, and the kernel returns. All threads of the group get the same.
 * SYMM_DEVICE_DEBUG (defined before the include, on all ranks): an index, a signal, a packet that
 * is out of range, two objects of an index at a time, a grid that does not fit or that differs, is
 * such an error too (symmInvalidUsage, symmMismatch); an address that is out of range traps. */
#ifndef SYMM_DEVICE_CUH_
#define SYMM_DEVICE_CUH_

#include "symm_device.h"
#include "symm_device_ptx.cuh"

#define SYMM_DEV_IN __device__ __forceinline__ /* member functions */

/* Polls of a word in this GPU's memory between two looks at the host's: about a millisecond. */
#ifndef SYMM_DEV_POLLS
#define SYMM_DEV_POLLS 4000u
#endif
/* After a peer has left: how long its last words may still be on their way. */
#ifndef SYMM_DEV_LEFT_GRACE_NS
#define SYMM_DEV_LEFT_GRACE_NS 1000000000ull
#endif
#ifndef SYMM_DEV_TRAP
#define SYMM_DEV_TRAP() __trap()
#endif

/* Code of both kinds may be in one program: their names differ. */
#ifdef SYMM_DEVICE_DEBUG
inline namespace symm_dev_debug {
#else
inline namespace symm_dev_plain {
#endif

/* ---- groups ---------------------------------------------------------------------------------- */

struct symmDevCta {
    SYMM_DEV_IN unsigned thread() const { return threadIdx.x; }
    SYMM_DEV_IN unsigned threads() const { return blockDim.x; }
    /* All have come; what each stored before precedes what any of them does after. */
    SYMM_DEV_IN void sync() const { __syncthreads(); }
    /* The same; whether any of them says so. */
    SYMM_DEV_IN int any(int says) const { return __syncthreads_or(says); }
};
struct symmDevWarp {
    SYMM_DEV_IN unsigned thread() const { return threadIdx.x & 31u; }
    SYMM_DEV_IN unsigned threads() const { return 32; }
    SYMM_DEV_IN void sync() const { __syncwarp(); }
    SYMM_DEV_IN int any(int says) const {
        const int some = __any_sync(0xffffffffu, says);
        __syncwarp(); /* a vote orders no memory */
        return some;
    }
};

/* A group of cooperative_groups, as symmDevCoop{tiled_partition<16>(this_thread_block())}: a CTA or
 * a tile of it; lines of symmDevPackets need whole warps. It is the last argument of what makes an
 * object. Coop has thread_rank, size, sync, and any but where it is the CTA. */
template <class Coop> struct symmDevCoop {
    Coop coop;
    SYMM_DEV_IN unsigned thread() const { return (unsigned)coop.thread_rank(); }
    SYMM_DEV_IN unsigned threads() const { return (unsigned)coop.size(); }
    SYMM_DEV_IN void sync() const { coop.sync(); }
    SYMM_DEV_IN int any(int says) const { return vote(coop, says, 0); }

  private:
    template <class C>
    static SYMM_DEV_IN auto vote(const C &c, int says, int) -> decltype(c.any(says), 0) {
        const int some = c.any(says);
        c.sync(); /* a vote orders no memory */
        return some;
    }
    template <class C> static SYMM_DEV_IN int vote(const C &, int says, long) {
        return __syncthreads_or(says);
    }
};
template <class Coop> symmDevCoop(Coop) -> symmDevCoop<Coop>;

/* ---- inside ---------------------------------------------------------------------------------- */

namespace symm_dev {

enum { BARRIER, SIGNAL, PACKET, LINES, PLACES }; /* what is waited for: revoke.c has the words */

#ifdef SYMM_DEVICE_DEBUG
enum { CHECKED = 1 };
#else
enum { CHECKED = 0 };
#endif

/* A rank's resource memory. */
SYMM_DEV char *memory(const symmDevComm_t &dc, int rank) {
    return (char *)(dc.base + (uint64_t)rank * dc.stride);
}
/* A word of a rank in memory of the host, which its processor and all GPUs see. */
SYMM_DEV char *host_word(const symmDevComm_t &dc, int rank, uint64_t at) {
    return (char *)(dc.hostBase + (uint64_t)rank * dc.hostStride + at);
}
/* Where peers write a rank's abort and death words. Ranks of several hosts do not reach each
 * other's host memory. */
SYMM_DEV char *told_word(const symmDevComm_t &dc, int rank, uint64_t at) {
    return dc.farBase ? (char *)(dc.farBase + (uint64_t)rank * dc.farStride + at)
                      : host_word(dc, rank, at);
}
/* This rank's: what its host has written there, or else a peer's kernel. Pairs with set_word in
 * revoke.c, and with leave, also of dev.cuh. */
SYMM_DEV uint64_t own_word(const symmDevComm_t &dc, uint64_t at) {
    const uint64_t word = symm_ptx::take8(host_word(dc, dc.rank, at));
    return word || !dc.farBase ? word : symm_ptx::take8(told_word(dc, dc.rank, at));
}
SYMM_DEV char *over_word(const symmDevComm_t &dc, int rank) {
    return (char *)(dc.overBase + (uint64_t)rank * dc.overStride);
}
/* Epochs of a group, of this rank alone: how many barriers, and sessions of packets, it has had. */
SYMM_DEV uint64_t *epochs(const symmDevComm_t &dc, unsigned index) {
    return (uint64_t *)(memory(dc, dc.rank) + (uint64_t)index * SYMM_DEV_EPOCH_BYTES);
}
/* q = 1..n-1 gives rank+1, rank+2, ...: no two ranks start on the same peer. */
SYMM_DEV int peer_of(const symmDevComm_t &dc, int q) {
    const int p = dc.rank + q;
    return p >= dc.nranks ? p - dc.nranks : p;
}

/* The communicator is over: the reason goes to this rank's host words and to every peer's, whose
 * kernels would otherwise wait for ours until their deadline. The first reason stays. */
SYMM_DEV_SLOW void leave(const symmDevComm_t &dc, uint32_t code, int rank, uint32_t what) {
    char *own = host_word(dc, dc.rank, dc.abortAt);
    const uint64_t death = own_word(dc, dc.deathAt), abort = own_word(dc, dc.abortAt);
    /* the first reason stays, one that was no error until now too */
    const uint64_t word = abort   ? abort
                          : death ? death
                                  : (uint64_t)code << 32 | (uint32_t)(rank + 1);
    if (!abort)
        symm_ptx::put8(host_word(dc, dc.rank, dc.leftAt), (uint64_t)what << 32 | SYMM_DEV_STAGE);
    /* pairs with the acquire in symm_comm_adopt_abort: what it was doing is there */
    if (!symm_ptx::get8(own)) symm_ptx::give8(own, word);
    /* The end of a rank peers may mind only when they need it (peerDeath): into the death word. Who
     * minds it at once has been told by that rank's host or by its own watcher. */
    const int late = word >> 32 == symmAborted || word == death;
    for (int q = 1; q < dc.nranks; q++) {
        char *theirs = told_word(dc, peer_of(dc, q), late ? dc.deathAt : dc.abortAt);
        if (!symm_ptx::get8(theirs)) symm_ptx::give8(theirs, word);
    }
    /* Kernels that run or come later, the library's too, leave at once. Who sees `over` finds the
     * reason: the fence is before these stores. */
    __threadfence_system();
    for (int p = 0; p < dc.nranks; p++) symm_ptx::put4(over_word(dc, p), 1);
}

/* A thread that gives up because of `over`. There may be no reason here yet: a peer has aborted,
 * which was no error of this rank until it needed the peer. Now it is. */
SYMM_DEV_SLOW void give_reason(const symmDevComm_t &dc, uint32_t what) {
    __threadfence_system(); /* `over` was read; pairs with that in leave, also of dev.cuh */
    uint64_t word = dc.farBase ? own_word(dc, dc.abortAt) : 0; /* this host may not know it */
    if (!word) word = own_word(dc, dc.deathAt);
    if (word && !symm_ptx::get8(host_word(dc, dc.rank, dc.abortAt)))
        leave(dc, (uint32_t)(word >> 32), (int)(uint32_t)word - 1, what);
}
/* A kernel has given up, on any rank. */
SYMM_DEV int is_over(const symmDevComm_t &dc, uint32_t what) {
    if (!symm_ptx::get4(over_word(dc, dc.rank))) return 0; /* pairs with leave, also of dev.cuh */
    give_reason(dc, what);
    return 1;
}

struct waiting { /* one wait of a thread */
    uint32_t polls;
    uint64_t since; /* when the host was asked first; its low bits: the peer that had left then */
};
#define SYMM_DEV_LEFT_SEEN 127ull
#define SYMM_DEV_GAVE_UP   (~0ull)

/* A peer that has left, or all others (peer < 0), may have written our word before: the word is
 * polled again behind the first look, before it counts as missing. 1: the second one. */
SYMM_DEV int left_for_good(const symmDevComm_t &dc, int peer, uint64_t &since) {
    const uint64_t seen = peer < 0 ? SYMM_DEV_LEFT_SEEN : (unsigned)peer + 1;
    const int first = peer < 0 ? 1 : 0, last = peer < 0 ? dc.nranks - 1 : 0;
    if (last < first) return 0; /* any peer, and there is none */
    for (int q = first; q <= last; q++) {
        /* pairs with say_left in comm_end.c: what the peer's kernels stored for us is there */
        const char *state = host_word(dc, peer < 0 ? peer_of(dc, q) : peer, dc.stateAt);
        if (symm_ptx::take4(state) != SYMM_DEV_STATE_LEFT) return 0;
    }
    if ((since & SYMM_DEV_LEFT_SEEN) == seen) return 1;
    since = (since & ~SYMM_DEV_LEFT_SEEN) | seen;
    return 0;
}

/* Every SYMM_DEV_POLLS polls: abort word, death, deadline, ranks that are gone. since: 0 at the
 * first call of a wait, then what this returned; SYMM_DEV_GAVE_UP: the reason is written. peer: -1
 * any: it is gone when all others are. */
SYMM_DEV_SLOW uint64_t ask_host(const symmDevComm_t &dc, int peer, uint32_t what, uint64_t since) {
    uint64_t reason = own_word(dc, dc.abortAt);
    const uint64_t now = symm_ptx::clock_ns();
    uint32_t code = 0;
    int rank = peer;
    if (!reason) reason = own_word(dc, dc.deathAt);
    if (!since) since = now & ~SYMM_DEV_LEFT_SEEN; /* no clock is near 0 */
    const uint64_t waited = now - (since & ~SYMM_DEV_LEFT_SEEN);
    if (reason)
        code = (uint32_t)(reason >> 32), rank = (int)(uint32_t)reason - 1;
    else if (dc.timeoutNs && waited > dc.timeoutNs)
        code = symmTimeout;
    else if (symm_ptx::take4(host_word(dc, dc.rank, dc.stateAt)) == SYMM_DEV_STATE_LEFT)
        code = symmRemoteError, rank = dc.rank; /* destroyed here, under its kernel */
    else if (waited > SYMM_DEV_LEFT_GRACE_NS && left_for_good(dc, peer, since))
        code = symmRemoteError, rank = peer < 0 ? peer_of(dc, 1) : peer;
    if (!code) return since;
    leave(dc, code, rank, what);
    return SYMM_DEV_GAVE_UP;
}

/* One poll has failed. 1: give up. Of the threads of a warp that are here together one asks the
 * host; the others learn from `over`, which a thread that gives up sets. They exchange nothing:
 * threads that are here together need not be so at the next instruction. */
SYMM_DEV int poll_again(const symmDevComm_t &dc, waiting &w, int peer, uint32_t what) {
    if (w.polls++ && w.polls < SYMM_DEV_POLLS) return 0;
    if (is_over(dc, what)) return 1;
    if (w.polls == 1) return 0;
    w.polls = 1;
    if ((int)(threadIdx.x & 31u) == __ffs((int)__activemask()) - 1) {
        w.since = ask_host(dc, peer, what, w.since);
        return w.since == SYMM_DEV_GAVE_UP;
    }
    if (!w.since) w.since = symm_ptx::clock_ns() & ~SYMM_DEV_LEFT_SEEN;
    return 0;
}

/* Debug builds: 1: `at` is out of range, and the communicator is over for it. */
SYMM_DEV int out_of_range(const symmDevComm_t &dc, uint64_t at, uint64_t end, uint32_t what) {
    if (!CHECKED || at < end) return 0;
    leave(dc, symmInvalidUsage, dc.rank, what);
    return 1;
}

/* Debug builds: 1: the grid has more CTAs than have places on the GPU at once, and the communicator
 * is over for it. */
SYMM_DEV int crowded(const symmDevComm_t &dc) {
    if (!CHECKED || gridDim.x <= symm_ptx::most_ctas()) return 0;
    leave(dc, symmInvalidUsage, dc.rank, PLACES);
    return 1;
}

/* A group's session cannot begin: 1. Later kernels end here once one has given up on any rank: the
 * epochs of ranks differ then. Begun beside the load of the epoch, whose time hides its own; who
 * finds 1 calls give_reason behind it. */
SYMM_DEV int unusable(const symmDevComm_t &dc, unsigned index, uint32_t what) {
    return out_of_range(dc, index, (unsigned)dc.barriers, what) || crowded(dc) ||
           symm_ptx::get4(over_word(dc, dc.rank)); /* pairs with leave, also of dev.cuh */
}

} // namespace symm_dev

/* Whether a kernel has given up, on any rank, before this one or beside it. Barriers and sessions
 * of packets ask by themselves; a kernel that only raises signals asks first, so that none is
 * raised for data that an earlier kernel did not bring. */
template <class Group> SYMM_DEV int symmDevIsOver(const symmDevComm_t &dc, Group group) {
    return group.any(symm_dev::is_over(dc, 0));
}

/* ---- programmatic launch --------------------------------------------------------------------- */

/* Lets the next kernel of the stream begin now, as far as its own symmDevWaitForGridBefore. Call it
 * behind this kernel's own: called first, each kernel that comes lets in one more, and the whole
 * chain of kernels takes places on the GPU and waits there.
 * Requires: it was launched with cudaLaunchAttributeProgrammaticStreamSerialization, and fits the
 * GPU beside this one; SYMM_CTA_BUDGET and docs/gpu-rules.md if it waits for peers. Before sm_90:
 * nothing. */
SYMM_DEV void symmDevLaunchDependents(void) {
    symm_ptx::launch_dependents();
}
/* Waits for the end of the kernel before. Before sm_90: nothing, it has ended. */
SYMM_DEV void symmDevWaitForGridBefore(void) {
    symm_ptx::wait_for_grid_before();
}

/* ---- pointers -------------------------------------------------------------------------------- */

/* Byte `offset` of a rank's part of a window; of this rank's, at its own pointer. What is stored at
 * a peer's is in its memory. Other ranks see it behind a barrier or signal. */
SYMM_DEV char *symmDevPeerPtr(const symmDevComm_t &dc, const symmDevWindow_t &w, int peer,
                              uint64_t offset) {
    if (symm_dev::CHECKED && ((unsigned)peer >= (unsigned)dc.nranks || offset >= w.bytes))
        SYMM_DEV_TRAP();
    const uint64_t part = peer == dc.rank ? w.own : w.base + (uint64_t)peer * w.stride;
    return (char *)(part + offset);
}
/* The same of this rank. */
SYMM_DEV char *symmDevLocalPtr(const symmDevWindow_t &w, uint64_t offset) {
    if (symm_dev::CHECKED && offset >= w.bytes) SYMM_DEV_TRAP();
    return (char *)(w.own + offset);
}
/* One address of all ranks' parts, for symmDevMulticastStore, symmDevMulticastSum, and multimem
 * instructions; NULL: there is none, which is so unless SYMM_MULTICAST=1. symmWindowMulticastPtr
 * says what is owed. */
SYMM_DEV char *symmDevMulticastPtr(const symmDevWindow_t &w, uint64_t offset) {
    return w.multicast ? (char *)(w.multicast + offset) : (char *)0;
}

/* ---- barrier --------------------------------------------------------------------------------- */

/* A group meets those of its index on all ranks. arrive says that it is here, wait waits until all
 * have said so; work that needs no peer may lie between. Any number of barriers may follow each
 * other, in a kernel, in later ones, in replays: their number is kept in the resource memory. An
 * object reads it when it is made and counts on by itself.
 * Requires: one object of an index at a time, and of one kind of group; else two of them count
 * alike, and are no barrier (SYMM_DEVICE_DEBUG finds it: symmInvalidUsage). Between
 * arrive and wait there is no other arrive of the index. A kernel that arrives also waits.
 *
 * Order: what the group's threads stored before arrive, on any rank, is seen by what they load
 * after wait; what they loaded before arrive is not changed by stores after wait. The relaxed calls
 * order nothing of this kernel: what earlier kernels of a rank's stream stored in that rank's own
 * memory precedes what follows waitRelaxed on any rank, if that loads past L1 (symm_ptx::load_peer,
 * symmDevLoadReduce); what they loaded is not changed by stores after it. What they stored at peers
 * needs arrive and wait. They save a fence, at the beginning of a kernel. */
template <class Group> class symmDevBarrier {
  public:
    SYMM_DEV_IN symmDevBarrier(const symmDevComm_t &dev, unsigned index, Group who = Group())
        : dc(dev), group(who), at(index), bad(symm_dev::unusable(dev, index, symm_dev::BARRIER)) {
        if (symm_dev::CHECKED && bad) at = 0;
        epoch = symm_ptx::get8(symm_dev::epochs(dc, at));
        if (bad) symm_dev::give_reason(dc, symm_dev::BARRIER);
        bad = group.any(bad); /* and all have read the epoch before leave_barrier writes it */
    }
    symmDevBarrier(const symmDevBarrier &) = delete;
    symmDevBarrier &operator=(const symmDevBarrier &) = delete;
    /* 1: an earlier kernel, or one of a peer, has given up, and wait will do so. A kernel that
     * stores into peers' memory before its first wait asks this first. */
    SYMM_DEV_IN int over() const { return bad; }
    SYMM_DEV_IN void arrive() {
        group.sync(); /* the others' stores precede this thread's release */
        check_epoch();
        if (bad) return;
        for (int q = 1 + (int)group.thread(); q < dc.nranks; q += (int)group.threads())
            symm_ptx::give8(word(symm_dev::peer_of(dc, q), dc.rank), said()); /* pairs with wait */
    }
    SYMM_DEV_IN int wait() {
        int over = bad;
        for (int q = 1 + (int)group.thread(); !over && q < dc.nranks; q += (int)group.threads()) {
            const int peer = symm_dev::peer_of(dc, q);
            const uint64_t *from = word(dc.rank, peer);
            symm_dev::waiting w = {0, 0};
            uint64_t has;
            while (missing(has = symm_ptx::take8(from)) && !over) /* pairs with arrive */
                over = symm_dev::poll_again(dc, w, peer, symm_dev::BARRIER);
            over = over || differs(has, peer);
        }
        return leave_barrier(over);
    }
    SYMM_DEV_IN int sync() {
        arrive();
        return wait();
    }
    SYMM_DEV_IN void arriveRelaxed() {
        check_epoch();
        if (bad) return;
        for (int q = 1 + (int)group.thread(); q < dc.nranks; q += (int)group.threads())
            symm_ptx::put8(word(symm_dev::peer_of(dc, q), dc.rank), said());
    }
    SYMM_DEV_IN int waitRelaxed() {
        int over = bad;
        for (int q = 1 + (int)group.thread(); !over && q < dc.nranks; q += (int)group.threads()) {
            const int peer = symm_dev::peer_of(dc, q);
            const uint64_t *from = word(dc.rank, peer);
            symm_dev::waiting w = {0, 0};
            uint64_t has;
            while (missing(has = symm_ptx::get8(from)) && !over)
                over = symm_dev::poll_again(dc, w, peer, symm_dev::BARRIER);
            over = over || differs(has, peer);
        }
        return leave_barrier(over);
    }
    SYMM_DEV_IN int syncRelaxed() {
        arriveRelaxed();
        return waitRelaxed();
    }

  private:
    const symmDevComm_t &dc;
    Group group;
    unsigned at;
    int bad;
    uint64_t epoch; /* of the last barrier */

    /* Where `source` says at `owner` which barrier it has come to. */
    SYMM_DEV_IN uint64_t *word(int owner, int source) const {
        return (uint64_t *)(symm_dev::memory(dc, owner) + dc.arrivedAt) +
               (uint64_t)at * (unsigned)dc.nranks + (unsigned)source;
    }
    /* 48 bits of epoch; in debug builds the size of the grid above them. */
    SYMM_DEV_IN uint64_t said() const {
        const uint64_t grid = symm_dev::CHECKED ? gridDim.x : 0;
        return grid << 48 | ((epoch + 1) << 16 >> 16);
    }
    /* A peer that has heard from us may be one barrier ahead. */
    SYMM_DEV_IN int missing(uint64_t has) const {
        return (int64_t)((has << 16) - ((epoch + 1) << 16)) < 0;
    }
    /* Of a peer that is ahead, perhaps in its next kernel, the grid says nothing of this barrier:
     * it has compared ours. */
    SYMM_DEV_IN int differs(uint64_t has, int peer) const {
        const uint64_t grid = has >> 48;
        if (!symm_dev::CHECKED || !grid || grid == (gridDim.x & 0xffffu)) return 0;
        if ((has ^ said()) << 16) return 0;
        symm_dev::leave(dc, symmMismatch, peer, symm_dev::BARRIER);
        return 1;
    }
    /* Debug builds: another object of the index has had a barrier since this one was made: in this
     * kernel, or in one that overlaps it. By the thread that writes the epoch; the others hear of
     * it in wait. */
    SYMM_DEV_IN void check_epoch() {
        if (!symm_dev::CHECKED || bad || group.thread()) return;
        if (symm_ptx::get8(symm_dev::epochs(dc, at)) == epoch) return;
        symm_dev::leave(dc, symmInvalidUsage, dc.rank, symm_dev::BARRIER);
        bad = 1;
    }
    /* The epoch is written before the group meets: its next barrier, by whichever threads, reads
     * it behind that. */
    SYMM_DEV_IN int leave_barrier(int over) {
        check_epoch();
        over = over || (symm_dev::CHECKED && bad);
        epoch++;
        if (group.thread() == 0) symm_ptx::put8(symm_dev::epochs(dc, at), epoch);
        return group.any(over);
    }
};

/* ---- signals --------------------------------------------------------------------------------- */

/* Each rank has `signals` counts of 64 bits, zero at creation, which all ranks' kernels raise. */
namespace symm_dev {
SYMM_DEV uint64_t *signal_word(const symmDevComm_t &dc, int rank, unsigned signal) {
    return (uint64_t *)(memory(dc, rank) + dc.signalAt) + signal;
}
} // namespace symm_dev

/* Adds `by` to a signal of `peer`, this rank too: behind all that the group's threads have stored,
 * which the waiter sees. */
template <class Group>
SYMM_DEV void symmDevSignalRaise(const symmDevComm_t &dc, Group group, int peer, unsigned signal,
                                 uint64_t by = 1) {
    group.sync(); /* the others' stores precede the release */
    if (group.thread() ||
        symm_dev::out_of_range(dc, signal, (unsigned)dc.signals, symm_dev::SIGNAL))
        return;
    symm_ptx::add8(symm_dev::signal_word(dc, peer, signal), by); /* pairs with symmDevSignalWait */
}
/* The same, but the signal becomes `count`: cheaper. Requires: nobody else raises it. */
template <class Group>
SYMM_DEV void symmDevSignalStore(const symmDevComm_t &dc, Group group, int peer, unsigned signal,
                                 uint64_t count) {
    group.sync();
    if (group.thread() ||
        symm_dev::out_of_range(dc, signal, (unsigned)dc.signals, symm_dev::SIGNAL))
        return;
    symm_ptx::give8(symm_dev::signal_word(dc, peer, signal), count); /* pairs with ...Wait */
}
/* Waits until a signal of this rank is at least `count`; then what its raisers stored before is
 * seen by the whole group. peer: who raises it: if that rank has left, the wait ends; -1: several
 * may: it ends when all other ranks have left, and with SYMM_TIMEOUT=0 (the default) does not see
 * that one of them is missing. Name the peer where there is one. A signal never goes down by
 * itself: in a replay a captured count is reached at once (symm_device.h says what to do). */
template <class Group>
SYMM_DEV int symmDevSignalWait(const symmDevComm_t &dc, Group group, unsigned signal,
                               uint64_t count, int peer = -1) {
    int over = 0;
    if (group.thread() == 0) {
        symm_dev::waiting w = {0, 0};
        over = symm_dev::out_of_range(dc, signal, (unsigned)dc.signals, symm_dev::SIGNAL);
        const uint64_t *at = symm_dev::signal_word(dc, dc.rank, signal);
        /* pairs with symmDevSignalRaise and symmDevSignalStore */
        while (!over && symm_ptx::take8(at) < count)
            over = symm_dev::poll_again(dc, w, peer, symm_dev::SIGNAL);
    }
    return group.any(over);
}
/* What a signal of this rank says now; what was stored before it was raised to that is seen by this
 * thread. Requires: it is not polled in a loop, which would see no abort and have no deadline: use
 * symmDevSignalWait. */
SYMM_DEV uint64_t symmDevSignalRead(const symmDevComm_t &dc, unsigned signal) {
    return symm_ptx::take8(symm_dev::signal_word(dc, dc.rank, signal));
}
/* Makes a signal of this rank 0, by one thread. Requires: nobody raises it before a barrier that
 * this thread's group passes afterwards. */
SYMM_DEV void symmDevSignalReset(const symmDevComm_t &dc, unsigned signal) {
    symm_ptx::put8(symm_dev::signal_word(dc, dc.rank, signal), 0);
}

} // namespace symm_dev_*

#include "symm_device_data.cuh"

#endif
