/* device_kernels.inl - kernels that use the device API, each one part of it in many rounds; they
 * count what is not as it must be. Who includes it says what KERNEL(name) makes of a body with its
 * arguments at `t`: fibers (tests/fake/emu_device.cc) and GPUs (tests/gpu/user_device.cu) run the
 * same code. GPU code, all threads. */

#define GEMM_BATCH 2u
#include "gemm_kernel.cuh"
#include "moe_kernel.cuh"

static __device__ void wrong(const emu_dev_args &t) {
    symm_ptx::put8(&t.out[OUT_WRONG], 1);
}
static __device__ void gave_up(const emu_dev_args &t) {
    symm_ptx::put8(&t.out[OUT_GAVE_UP], 1);
}
static __device__ void done(const emu_dev_args &t) {
    symm_ptx::put8(&t.out[OUT_DONE], 1);
}
/* What thread `thread` of rank `from` stores for round `round`. */
static __device__ uint4 value(int round, int from, unsigned thread) {
    return make_uint4((uint32_t)round * 8191u + thread, (uint32_t)from, (uint32_t)round, thread);
}
static __device__ int same(uint4 a, uint4 b) {
    return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
}
/* Where `from` stores for a thread in a round; two sets of places. */
static __device__ uint64_t place(const emu_dev_args &t, int round, int from) {
    const unsigned set = (unsigned)(round & 1);
    return (((uint64_t)set * (unsigned)t.dc.nranks + (unsigned)from) * gridDim.x + blockIdx.x) *
               blockDim.x * 16 +
           threadIdx.x * 16;
}

/* ---- barriers: plain stores to all ranks, a barrier, a look at what all have stored ---------- */

template <class Group> static __device__ void barriers(const emu_dev_args &t, unsigned index) {
    if (t.absent) return;
    Group group{};
    symmDevBarrier<Group> barrier(t.dc, index, group);
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
KERNEL(barriers) {
    const unsigned warps = blockDim.x / 32;
    if (t.warps)
        barriers<symmDevWarp>(t, blockIdx.x * warps + threadIdx.x / 32 + (unsigned)t.index);
    else
        barriers<symmDevCta>(t, blockIdx.x + (unsigned)t.index);
}
/* Groups as cooperative_groups has them: a tile, which can vote, and a CTA, which cannot. */
struct tile_like {
    __device__ unsigned thread_rank() const { return threadIdx.x & 31u; }
    __device__ unsigned size() const { return 32; }
    __device__ void sync() const { __syncwarp(); }
    __device__ int any(int says) const { return __any_sync(0xffffffffu, says); }
};
struct block_like {
    __device__ unsigned thread_rank() const { return threadIdx.x; }
    __device__ unsigned size() const { return blockDim.x; }
    __device__ void sync() const { __syncthreads(); }
};
KERNEL(coops) {
    const unsigned warps = blockDim.x / 32;
    if (t.warps)
        barriers<symmDevCoop<tile_like>>(t, blockIdx.x * warps + threadIdx.x / 32);
    else
        barriers<symmDevCoop<block_like>>(t, blockIdx.x);
}
/* One rank waits before it arrives with the next one: arrive and wait apart, two objects. Rank 0
 * has work of t.len nanoseconds in between: none on fibers, whose clock would stand still. */
KERNEL(apart) {
    if (t.absent) return;
    for (int round = t.first; round < t.first + t.rounds; round++) {
        symmDevBarrier<symmDevCta> barrier(t.dc, blockIdx.x);
        for (int p = 0; p < t.dc.nranks; p++)
            *(uint4 *)symmDevPeerPtr(t.dc, t.win, p, place(t, round, t.dc.rank)) =
                value(round, t.dc.rank, threadIdx.x);
        barrier.arrive();
        const uint64_t until = symm_ptx::clock_ns() + (t.dc.rank ? 0 : t.len);
        while (symm_ptx::clock_ns() < until) continue;
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

/* Two objects of one index at once, which is wrong: debug builds find it. */
KERNEL(twice) {
    symmDevBarrier<symmDevCta> one(t.dc, 0), two(t.dc, 0);
    if (one.sync() || two.sync())
        gave_up(t);
    else
        done(t);
}

/* The same as of kernels that overlap: both have arrived before either leaves. */
KERNEL(overlap) {
    symmDevBarrier<symmDevCta> one(t.dc, 0), two(t.dc, 0);
    one.arrive();
    two.arrive();
    if (one.wait() || two.wait())
        gave_up(t);
    else
        done(t);
}
KERNEL(sessions) {
    symmDevPackets<symmDevCta> one(t.dc, 0), two(t.dc, 0);
    if (one.end(0) || two.end(0))
        gave_up(t);
    else
        done(t);
}

/* ---- relaxed barriers: what an earlier kernel has stored at home ----------------------------- */

KERNEL(fill) {
    if (t.absent) return;
    *(uint4 *)symmDevLocalPtr(t.win, place(t, t.first, 0)) = value(t.first, t.dc.rank, threadIdx.x);
}
KERNEL(gather) {
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

KERNEL(signals) {
    enum { FULL = 0, FREE = 1 };
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
 * store of the signal. Programs call symmDevSignalWait: a loop of their own would not end if the
 * peer did not come. This one ends when a kernel has given up, and after ten seconds. */
struct one_thread {
    __device__ int any(int says) const { return says; }
};
static __device__ int poll_alone(const emu_dev_args &t, uint64_t count) {
    const uint64_t since = symm_ptx::clock_ns();
    while (symmDevSignalRead(t.dc, 0) < count)
        if (symmDevIsOver(t.dc, one_thread()) || symm_ptx::clock_ns() - since > 10000000000ull)
            return 1;
    return 0;
}
KERNEL(polls) {
    if (t.absent) return;
    const int next = (t.dc.rank + 1) % t.dc.nranks,
              before = (t.dc.rank + t.dc.nranks - 1) % t.dc.nranks;
    const unsigned other = (threadIdx.x + 1) % blockDim.x;
    symmDevBarrier<symmDevCta> barrier(t.dc, 0);
    for (int round = t.first; round < t.first + t.rounds; round++) {
        *(uint4 *)symmDevPeerPtr(t.dc, t.win, next, threadIdx.x * 16) =
            value(round, t.dc.rank, threadIdx.x);
        symmDevSignalStore(t.dc, symmDevCta(), next, 0, (uint64_t)round + 1);
        const int over = poll_alone(t, (uint64_t)round + 1);
        if (!over && !same(symm_ptx::load_peer(symmDevLocalPtr(t.win, other * 16)),
                           value(round, before, other)))
            wrong(t);
        if (symmDevCta().any(over) || barrier.sync()) {
            gave_up(t);
            return;
        }
    }
    done(t);
}
/* All raise one signal of rank 0, which waits for as many, reads it and makes it 0. */
KERNEL(counts) {
    enum { ALL = 2 };
    if (t.absent) return;
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

static __device__ int packets_of(const emu_dev_args &t, symmDevPackets<symmDevCta> &s, int round) {
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
static __device__ int lines_of(const emu_dev_args &t, symmDevPackets<symmDevCta> &s, int round) {
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
template <int LINES> static __device__ void sessions(const emu_dev_args &t) {
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
KERNEL(packets) {
    sessions<0>(t);
}
KERNEL(lines) {
    sessions<1>(t);
}

/* ---- copies and sums ------------------------------------------------------------------------- */

/* A tile of four threads, as cooperative_groups makes it. */
struct tile_of_four {
    SYMM_DEV_IN unsigned thread() const { return threadIdx.x & 3u; }
    SYMM_DEV_IN unsigned threads() const { return 4; }
};
/* To the next rank, which learns of it by a signal. By a CTA, its first warp, or its first tile. */
KERNEL(copy) {
    if (t.absent) return;
    const int next = (t.dc.rank + 1) % t.dc.nranks;
    char *to = symmDevPeerPtr(t.dc, t.win, next, t.to);
    const char *from = symmDevLocalPtr(t.win, t.from);
    if (!t.warps) symmDevCopy(symmDevCta(), to, from, t.len);
    if (t.warps == 1 && threadIdx.x < 32) symmDevCopy(symmDevWarp(), to, from, t.len);
    if (t.warps == 2 && threadIdx.x < 4) symmDevCopy(tile_of_four(), to, from, t.len);
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

template <int T> static __device__ void sums(const emu_dev_args &t) {
    if (t.absent) return;
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
KERNEL(sum_f32) {
    sums<symmFloat32>(t);
}
KERNEL(sum_f16) {
    sums<symmFloat16>(t);
}
KERNEL(sum_bf16) {
    sums<symmBfloat16>(t);
}

/* ---- examples/moe_kernel.cuh: the layer, then a look at what it has left --------------------- */

static __device__ symmDevWindow_t part_of(const symmDevWindow_t &w, uint64_t at, uint64_t bytes) {
    symmDevWindow_t part = w;
    part.base += at, part.own += at, part.bytes = bytes;
    return part;
}
static __device__ float moe_scale(const emu_dev_args &t, int expert) {
    return (float)(expert + 2 + t.first);
}
KERNEL(moe) {
    if (t.absent) return;
    typedef symmDevVec<symmFloat32> vec;
    const uint64_t tokens = t.len, bytes = tokens * t.items * 16;
    char *own = symmDevLocalPtr(t.win, t.from);
    moe_call a;
    a.dev = t.dc;
    a.inbox = part_of(t.win, 0, MOE_BOXES), a.results = part_of(t.win, MOE_BOXES, MOE_BOXES);
    a.tokens = (const uint4 *)own, a.y = (uint4 *)(own + bytes);
    a.order = (const uint32_t *)(own + 2 * bytes), a.first = a.order + MOE_MOST;
    a.calls = (uint64_t *)(own + 2 * bytes + MOE_CALLS);
    a.vecs = t.items, a.places = MOE_MOST, a.most = 2;
    a.scale = moe_scale(t, t.dc.rank);
    /* late: rank 0's part that serves itself, by t.to nanoseconds; not on fibers */
    const uint64_t until = symm_ptx::clock_ns() + (t.dc.rank || blockIdx.x ? 0 : t.to);
    while (symm_ptx::clock_ns() < until) continue;
    if (moe_layer(a)) {
        gave_up(t);
        return;
    }
    const int expert = (t.dc.rank + (int)blockIdx.x % t.dc.nranks) % t.dc.nranks;
    const unsigned part = blockIdx.x / (unsigned)t.dc.nranks,
                   parts = gridDim.x / (unsigned)t.dc.nranks;
    const uint64_t all = (uint64_t)(a.first[expert + 1] - a.first[expert]) * a.vecs;
    for (uint64_t i = part * blockDim.x + threadIdx.x; i < all; i += parts * blockDim.x) {
        const uint64_t at = a.order[a.first[expert] + i / a.vecs] * (uint64_t)a.vecs + i % a.vecs;
        float x[4];
        vec::unpack(a.tokens[at], x);
        for (int k = 0; k < 4; k++) x[k] = __fmul_rn(x[k], moe_scale(t, expert));
        if (!same(symm_ptx::load_peer((const char *)&a.y[at]), vec::pack(x))) wrong(t);
    }
    done(t);
}

/* ---- examples/gemm_kernel.cuh: a made-up product, then a look at the sums -------------------- */

static __device__ float gemm_value(const emu_dev_args &t, int rank, uint32_t tile, uint32_t i) {
    return (float)((tile * 37u + i * 5u + (uint32_t)rank * 11u + (uint32_t)t.first * 3u) % 4099u);
}
/* Into this CTA's place behind the sums. */
struct gemm_maker {
    const emu_dev_args &t;
    __device__ const uint4 *operator()(uint32_t tile) const {
        float *to = (float *)symmDevLocalPtr(t.win, GEMM_MADE + blockIdx.x * GEMM_TILE_BYTES);
        symmDevCta cta;
        cta.sync(); /* the tile before has been read */
        for (uint32_t i = threadIdx.x; i < GEMM_TILE_BYTES / 4; i += blockDim.x)
            to[i] = gemm_value(t, t.dc.rank, tile, i);
        cta.sync();
        return (const uint4 *)to;
    }
};
KERNEL(gemm) {
    gemm_call a;
    a.dev = t.dc;
    a.inbox = part_of(t.win, 0, GEMM_Y), a.y = part_of(t.win, GEMM_Y, GEMM_MADE - GEMM_Y);
    a.calls = (uint64_t *)symmDevLocalPtr(t.win, GEMM_CALLS);
    a.rows = (uint32_t)t.from * 8, a.columns = (uint32_t)t.to * 32;
    a.tile_rows = 8, a.tile_columns = 32;
    if (t.absent) return;
    if (gemm_reduce(a, gemm_maker{t})) {
        gave_up(t);
        return;
    }
    for (uint32_t tile = blockIdx.x; tile < gemm_tiles(a); tile += gridDim.x)
        for (uint32_t i = threadIdx.x; i < gemm_tile_vecs(a); i += blockDim.x) {
            float x[4];
            symmDevVec<symmFloat32>::unpack(
                symm_ptx::load_peer(symmDevLocalPtr(a.y, gemm_vec(a, tile, i))), x);
            for (uint32_t e = 0; e < 4; e++) {
                float sum = 0;
                for (int p = 0; p < t.dc.nranks; p++) sum += gemm_value(t, p, tile, i * 4 + e);
                if (x[e] != sum) wrong(t);
            }
        }
    done(t);
}

/* ---- multicast: each rank fills its part, sums a slice of all and stores it to all ----------- */

template <int T> static __device__ void cast(const emu_dev_args &t) {
    enum { COUNT = symmDevVec<T>::COUNT };
    if (t.absent) return;
    symmDevBarrier<symmDevCta> barrier(t.dc, blockIdx.x);
    const unsigned n = (unsigned)t.dc.nranks;
    for (int round = t.first; round < t.first + t.rounds; round++) {
        const uint64_t from = place(t, round, 0), to = from + WINDOW_HALF;
        float x[COUNT];
        for (int i = 0; i < COUNT; i++)
            x[i] = (float)(round % 4 + t.dc.rank + (int)threadIdx.x % 8 + i);
        *(uint4 *)symmDevLocalPtr(t.win, from) = symmDevVec<T>::pack(x);
        symmDevMulticastFence();
        int over = barrier.sync();
        symmDevMulticastFence();
        if (!over && threadIdx.x % n == (unsigned)t.dc.rank)
            symmDevMulticastStore(t.win, to, symmDevMulticastSum<T>(t.win, from));
        symmDevMulticastFence();
        over = over || barrier.sync();
        if (over) {
            gave_up(t);
            return;
        }
        symmDevVec<T>::unpack(symm_ptx::load_peer(symmDevLocalPtr(t.win, to)), x);
        for (int i = 0; i < COUNT; i++) {
            const int own = round % 4 + (int)threadIdx.x % 8 + i;
            if (x[i] != (float)((int)n * own + (int)(n * (n - 1) / 2))) wrong(t);
        }
    }
    done(t);
}
KERNEL(cast_f32) {
    cast<symmFloat32>(t);
}
KERNEL(cast_f16) {
    cast<symmFloat16>(t);
}
KERNEL(cast_bf16) {
    cast<symmBfloat16>(t);
}

#define DEVICE_KERNELS(ONE)                                                               \
    ONE(barriers)                                                                         \
    ONE(apart)                                                                            \
    ONE(fill)                                                                             \
    ONE(gather)                                                                           \
    ONE(signals)                                                                          \
    ONE(polls)                                                                            \
    ONE(counts) ONE(packets) ONE(lines) ONE(copy) ONE(sum_f32) ONE(sum_f16) ONE(sum_bf16) \
        ONE(twice) ONE(overlap) ONE(cast_f32) ONE(cast_f16) ONE(cast_bf16) ONE(sessions)  \
            ONE(coops) ONE(moe) ONE(gemm)
