/* emu_device.cc - kernels that use the device API, compiled for a processor by emu_device.h, for
 * unit_device_api: each uses one part of it in many rounds and counts what is not as it must be. */
#include "emu_device.h"

#include "symm_device.cuh"

#include "emu_dev.h"

/* What a kernel was told. */
static const emu_dev_args &told(const symm_args &a) {
    return *(const emu_dev_args *)a.src;
}
static void wrong(const emu_dev_args &t) {
    put8(&t.out[OUT_WRONG], 1);
}
static void gave_up(const emu_dev_args &t) {
    put8(&t.out[OUT_GAVE_UP], 1);
}
static void done(const emu_dev_args &t) {
    put8(&t.out[OUT_DONE], 1);
}
/* What thread `thread` of rank `from` stores for round `round`. */
static uint4 value(int round, int from, unsigned thread) {
    return make_uint4((uint32_t)round * 8191u + thread, (uint32_t)from, (uint32_t)round, thread);
}
static int same(uint4 a, uint4 b) {
    return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
}
/* Where `from` stores for a thread in a round; two sets of places. */
static uint64_t place(const emu_dev_args &t, int round, int from) {
    const unsigned set = (unsigned)(round & 1);
    return (((uint64_t)set * (unsigned)t.dc.nranks + (unsigned)from) * gridDim.x + blockIdx.x) *
               blockDim.x * 16 +
           threadIdx.x * 16;
}

/* ---- barriers: plain stores to all ranks, a barrier, a look at what all have stored ---------- */

template <class Group> static void barriers(const emu_dev_args &t, unsigned index) {
    if (t.absent) return;
    Group group;
    symmDevBarrier<Group> barrier(t.dc, index);
    if (barrier.over()) {
        gave_up(t);
        return;
    }
    for (int round = t.first; round < t.first + t.rounds; round++) {
        for (int p = 0; p < t.dc.nranks; p++)
            *(uint4 *)symmDevPeerPtr(t.dc, t.win, p, place(t, round, t.dc.rank)) =
                value(round, t.dc.rank, threadIdx.x);
        if (barrier.sync()) {
            gave_up(t);
            return;
        }
        /* what a neighbour was sent */
        const unsigned base = threadIdx.x - group.thread(),
                       other = base + (group.thread() + 1) % group.threads();
        for (int p = 0; p < t.dc.nranks; p++) {
            const uint64_t at = place(t, round, p) - threadIdx.x * 16 + other * 16;
            if (!same(symm_ptx::load_peer(symmDevLocalPtr(t.win, at)), value(round, p, other)))
                wrong(t);
        }
    }
    done(t);
}
extern "C" void emu_dev_barriers(const symm_args a) {
    const emu_dev_args &t = told(a);
    const unsigned warps = blockDim.x / 32;
    if (t.warps)
        barriers<symmDevWarp>(t, blockIdx.x * warps + threadIdx.x / 32 + (unsigned)t.index);
    else
        barriers<symmDevCta>(t, blockIdx.x + (unsigned)t.index);
}
/* One rank waits before it arrives with the next one: arrive and wait apart, two objects. */
extern "C" void emu_dev_apart(const symm_args a) {
    const emu_dev_args &t = told(a);
    for (int round = t.first; round < t.first + t.rounds; round++) {
        symmDevBarrier<symmDevCta> barrier(t.dc, blockIdx.x);
        for (int p = 0; p < t.dc.nranks; p++)
            *(uint4 *)symmDevPeerPtr(t.dc, t.win, p, place(t, round, t.dc.rank)) =
                value(round, t.dc.rank, threadIdx.x);
        barrier.arrive();
        if (barrier.wait()) {
            gave_up(t);
            return;
        }
        for (int p = 0; p < t.dc.nranks; p++)
            if (!same(symm_ptx::load_peer(symmDevLocalPtr(t.win, place(t, round, p))),
                      value(round, p, threadIdx.x)))
                wrong(t);
    }
    done(t);
}

/* ---- relaxed barriers: what an earlier kernel has stored at home ----------------------------- */

extern "C" void emu_dev_fill(const symm_args a) {
    const emu_dev_args &t = told(a);
    *(uint4 *)symmDevLocalPtr(t.win, place(t, t.first, 0)) = value(t.first, t.dc.rank, threadIdx.x);
}
extern "C" void emu_dev_gather(const symm_args a) {
    const emu_dev_args &t = told(a);
    if (t.absent) return;
    symmDevBarrier<symmDevCta> barrier(t.dc, blockIdx.x);
    if (barrier.syncRelaxed()) {
        gave_up(t);
        return;
    }
    for (int p = 0; p < t.dc.nranks; p++)
        if (!same(symm_ptx::load_peer(symmDevPeerPtr(t.dc, t.win, p, place(t, t.first, 0))),
                  value(t.first, p, threadIdx.x)))
            wrong(t);
    done(t);
}

/* ---- signals: a ring with one place; `full` is raised by one, `free` is stored --------------- */

extern "C" void emu_dev_signals(const symm_args a) {
    enum { FULL = 0, FREE = 1 };
    const emu_dev_args &t = told(a);
    const int next = (t.dc.rank + 1) % t.dc.nranks,
              before = (t.dc.rank + t.dc.nranks - 1) % t.dc.nranks;
    const unsigned mine = threadIdx.x;
    symmDevCta cta;
    if (t.absent) return;
    if (symmDevIsOver(t.dc, cta)) {
        gave_up(t);
        return;
    }
    for (int round = t.first; round < t.first + t.rounds; round++) {
        if (symmDevSignalWait(t.dc, cta, FREE, (uint64_t)round, next)) {
            gave_up(t);
            return;
        }
        *(uint4 *)symmDevPeerPtr(t.dc, t.win, next, mine * 16) = value(round, t.dc.rank, mine);
        symmDevSignalRaise(t.dc, cta, next, FULL);
        if (symmDevSignalWait(t.dc, cta, FULL, (uint64_t)round + 1, before)) {
            gave_up(t);
            return;
        }
        const unsigned other = (mine + 1) % blockDim.x;
        if (!same(symm_ptx::load_peer(symmDevLocalPtr(t.win, other * 16)),
                  value(round, before, other)))
            wrong(t);
        symmDevSignalStore(t.dc, cta, before, FREE, (uint64_t)round + 1);
    }
    done(t);
}
/* Each thread polls for itself, and meets nobody before it loads. What is stored is published by a
 * store of the signal. */
extern "C" void emu_dev_polls(const symm_args a) {
    const emu_dev_args &t = told(a);
    const int next = (t.dc.rank + 1) % t.dc.nranks,
              before = (t.dc.rank + t.dc.nranks - 1) % t.dc.nranks;
    const unsigned other = (threadIdx.x + 1) % blockDim.x;
    symmDevBarrier<symmDevCta> barrier(t.dc, 0);
    for (int round = t.first; round < t.first + t.rounds; round++) {
        *(uint4 *)symmDevPeerPtr(t.dc, t.win, next, threadIdx.x * 16) =
            value(round, t.dc.rank, threadIdx.x);
        symmDevSignalStore(t.dc, symmDevCta(), next, 0, (uint64_t)round + 1);
        while (symmDevSignalRead(t.dc, 0) < (uint64_t)round + 1) continue;
        if (!same(symm_ptx::load_peer(symmDevLocalPtr(t.win, other * 16)),
                  value(round, before, other)))
            wrong(t);
        if (barrier.sync()) {
            gave_up(t);
            return;
        }
    }
    done(t);
}
/* All raise one signal of rank 0, which waits for as many, reads it and makes it 0. */
extern "C" void emu_dev_counts(const symm_args a) {
    enum { ALL = 2 };
    const emu_dev_args &t = told(a);
    symmDevCta cta;
    symmDevBarrier<symmDevCta> barrier(t.dc, 0);
    const uint64_t want = (uint64_t)t.dc.nranks * 3;
    for (int round = 0; round < t.rounds; round++) {
        symmDevSignalRaise(t.dc, cta, 0, ALL, 3);
        if (t.dc.rank == 0) {
            if (symmDevSignalWait(t.dc, cta, ALL, want)) {
                gave_up(t);
                return;
            }
            if (symmDevSignalRead(t.dc, ALL) != want) wrong(t);
            cta.sync();
            if (threadIdx.x == 0) symmDevSignalReset(t.dc, ALL);
        }
        if (barrier.sync()) {
            gave_up(t);
            return;
        }
    }
    done(t);
}

/* ---- packets and lines: everybody to everybody, in sessions ---------------------------------- */

static int packets_of(const emu_dev_args &t, symmDevPackets<symmDevCta> &s, int round) {
    int over = 0;
    for (uint32_t i = 0; i < t.items; i++)
        for (int p = 0; p < t.dc.nranks; p++)
            if (p != t.dc.rank)
                s.send(p, i * blockDim.x + threadIdx.x,
                       make_uint2((uint32_t)round * 31u + i, (uint32_t)t.dc.rank + threadIdx.x));
    for (int p = 0; p < t.dc.nranks && t.items == 2 && !over; p++) {
        uint2 v[2] = {make_uint2(0, 0), make_uint2(0, 0)};
        if (p == t.dc.rank) continue;
        over = s.receiveSome<2>(p, threadIdx.x, blockDim.x, v);
        for (uint32_t i = 0; i < 2 && !over; i++)
            if (v[i].x != (uint32_t)round * 31u + i || v[i].y != (uint32_t)p + threadIdx.x)
                wrong(t);
    }
    for (uint32_t i = 0; i < t.items && t.items != 2 && !over; i++)
        for (int p = 0; p < t.dc.nranks && !over; p++) {
            uint2 v = make_uint2(0, 0);
            if (p == t.dc.rank) continue;
            over = s.receive(p, i * blockDim.x + threadIdx.x, v);
            if (!over && (v.x != (uint32_t)round * 31u + i || v.y != (uint32_t)p + threadIdx.x))
                wrong(t);
        }
    return over;
}
static int lines_of(const emu_dev_args &t, symmDevPackets<symmDevCta> &s, int round) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int words = symmDevLinePiece(lane).bytes / 4;
    for (int p = 0; p < t.dc.nranks; p++) {
        const uint32_t v[4] = {(uint32_t)round, (uint32_t)t.dc.rank, threadIdx.x, ~lane};
        if (p != t.dc.rank) s.sendLines(p, warp, v);
    }
    for (int p = 0; p < t.dc.nranks; p++) {
        const uint32_t want[4] = {(uint32_t)round, (uint32_t)p, threadIdx.x, ~lane};
        uint32_t v[4];
        if (p == t.dc.rank) continue;
        if (s.receiveLines(p, warp, v)) return 1;
        for (int i = 0; i < words; i++)
            if (v[i] != want[i]) wrong(t);
    }
    return 0;
}
template <int LINES> static void sessions(const emu_dev_args &t) {
    if (t.absent) return;
    for (int round = t.first; round < t.first + t.rounds; round++) {
        symmDevPackets<symmDevCta> s(t.dc, blockIdx.x + (unsigned)t.index);
        if (s.end(LINES ? lines_of(t, s, round) : packets_of(t, s, round))) {
            gave_up(t);
            return;
        }
    }
    done(t);
}
extern "C" void emu_dev_packets(const symm_args a) {
    sessions<0>(told(a));
}
extern "C" void emu_dev_lines(const symm_args a) {
    sessions<1>(told(a));
}

/* ---- copies and sums ------------------------------------------------------------------------- */

/* To the next rank, which learns of it by a signal. */
extern "C" void emu_dev_copy(const symm_args a) {
    const emu_dev_args &t = told(a);
    const int next = (t.dc.rank + 1) % t.dc.nranks;
    if (t.warps) {
        if (threadIdx.x < 32)
            symmDevCopy(symmDevWarp(), symmDevPeerPtr(t.dc, t.win, next, t.to),
                        symmDevLocalPtr(t.win, t.from), t.len);
    } else {
        symmDevCopy(symmDevCta(), symmDevPeerPtr(t.dc, t.win, next, t.to),
                    symmDevLocalPtr(t.win, t.from), t.len);
    }
    symmDevSignalRaise(t.dc, symmDevCta(), next, 0);
    if (symmDevSignalWait(t.dc, symmDevCta(), 0, (uint64_t)t.first + 1)) {
        gave_up(t);
        return;
    }
    /* what the neighbours of the threads that stored it find */
    const int before = (t.dc.rank + t.dc.nranks - 1) % t.dc.nranks;
    for (uint64_t i = blockDim.x - 1 - threadIdx.x; i < t.len; i += blockDim.x)
        if (symm_ptx::load_peer1(symmDevLocalPtr(t.win, t.to + i)) !=
            symm_ptx::load_peer1(symmDevPeerPtr(t.dc, t.win, before, t.from + i)))
            wrong(t);
    done(t);
}

template <int T> static void sums(const emu_dev_args &t) {
    float sum[symmDevVec<T>::COUNT];
    const uint64_t at = threadIdx.x * 16;
    symmDevLoadReduce<T>(t.dc, t.win, t.from + at, sum);
    *(uint4 *)symmDevLocalPtr(t.win, t.to + at) = symmDevVec<T>::pack(sum);
    if (t.dc.nranks != 2) return;
    uint4 v[2];
    float again[symmDevVec<T>::COUNT];
    symmDevLoadAll<2>(t.dc, t.win, t.from + at, v);
    symmDevSum<T, 2>(v, again);
    for (int i = 0; i < symmDevVec<T>::COUNT; i++)
        if (again[i] != sum[i]) wrong(t);
}
extern "C" void emu_dev_sum_f32(const symm_args a) {
    sums<symmFloat32>(told(a));
}
extern "C" void emu_dev_sum_f16(const symm_args a) {
    sums<symmFloat16>(told(a));
}
extern "C" void emu_dev_sum_bf16(const symm_args a) {
    sums<symmBfloat16>(told(a));
}

#define ONE(name) {#name, name},
static const struct {
    const char *name;
    emu_kernel kernel;
} all[] = {ONE(emu_dev_barriers) ONE(emu_dev_apart) ONE(emu_dev_fill) ONE(emu_dev_gather)
               ONE(emu_dev_signals) ONE(emu_dev_counts) ONE(emu_dev_polls) ONE(emu_dev_packets)
                   ONE(emu_dev_lines) ONE(emu_dev_copy) ONE(emu_dev_sum_f32) ONE(emu_dev_sum_f16)
                       ONE(emu_dev_sum_bf16)};

extern "C" emu_kernel emu_device_find(const char *name) {
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(all[i].name, name)) return all[i].kernel;
    return NULL;
}
