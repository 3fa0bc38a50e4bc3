/* symm_device_data.cuh - data of the device API: packets and lines, which carry their own flags,
 * copies to peers, and sums over ranks. symm_device.cuh includes it, and has the conditions of
 * every call. GPU code. */
#ifndef SYMM_DEVICE_DATA_CUH_
#define SYMM_DEVICE_DATA_CUH_

#ifndef SYMM_DEVICE_CUH_
#error "include symm_device.cuh"
#endif

#ifdef SYMM_DEVICE_DEBUG
inline namespace symm_dev_debug {
#else
inline namespace symm_dev_plain {
#endif

/* ---- packets and lines ----------------------------------------------------------------------- */

/* Of a block of lines, 480 bytes of data, what a lane of a warp has: 16 bytes at `at`, or 8. */
struct symmDevPiece {
    int at, bytes;
};
SYMM_DEV symmDevPiece symmDevLinePiece(unsigned lane) {
    const int l = (int)(lane & 15u);
    symmDevPiece p;
    p.bytes = (l & 7) == 7 ? 8 : 16;
    p.at = (int)(lane >> 4) * 240 + (l == 7 ? 112 : l == 15 ? 120 : 16 * l);
    return p;
}

/* A session of packets of a group: each thread sends some to peers and receives those of peers. A
 * packet has 8 bytes of data and two flags in 16 bytes, a block of lines 480 bytes of data in 512.
 * Both arrive without a barrier: the receiver polls the place itself. Places are fixed: packet
 * `item` (below llBytes/8) or block `block` (below lineBytes/480) of a source in the session.
 *
 * Requires: one object of an index at a time, and of one kind of group: two at once use the same
 * epoch and the same places (SYMM_DEVICE_DEBUG finds it at end: symmInvalidUsage).
 *
 * Sessions alternate between two sets of places. Requires, so that none is written before it was
 * read: in each session the group receives something from every peer to which it sends in the next
 * one, or it passes a symmDevBarrier between the two. A place is used once in a session. end() is
 * called by all threads, also if a receive gave up.
 *
 * Order: a packet orders nothing but itself. */
template <class Group> class symmDevPackets {
  public:
    SYMM_DEV_IN symmDevPackets(const symmDevComm_t &dev, unsigned index, Group who = Group())
        : dc(dev), group(who), at(index), bad(symm_dev::unusable(dev, index, symm_dev::PACKET)) {
        if (symm_dev::CHECKED && bad) at = 0;
        epoch = next_epoch();
        if (bad) symm_dev::give_reason(dc, symm_dev::PACKET);
        bad = group.any(bad); /* and all have read the epoch before end writes it */
    }
    symmDevPackets(const symmDevPackets &) = delete;
    symmDevPackets &operator=(const symmDevPackets &) = delete;
    /* By any thread. */
    SYMM_DEV_IN void send(int peer, uint32_t item, uint2 data) const {
        if (bad || symm_dev::out_of_range(dc, item, dc.llBytes / 8, symm_dev::PACKET)) return;
        symm_ptx::put16(packet(peer, dc.rank, item), make_uint4(data.x, epoch, data.y, epoch));
    }
    /* By any thread, which alone waits. Non-zero: it gave up. */
    SYMM_DEV_IN int receive(int peer, uint32_t item, uint2 &data) const {
        uint2 one[1] = {data};
        const int over = receiveSome<1>(peer, item, 1, one);
        data = one[0];
        return over;
    }
    /* COUNT packets, `item`, `item` + `step` and so on: their loads are under way together. */
    template <int COUNT>
    SYMM_DEV_IN int receiveSome(int peer, uint32_t item, uint32_t step,
                                uint2 (&data)[COUNT]) const {
        symm_dev::waiting w = {0, 0};
        const uint64_t last = item + (uint64_t)step * (COUNT - 1);
        if (bad || symm_dev::out_of_range(dc, last, dc.llBytes / 8, symm_dev::PACKET)) return 1;
        const char *from = packet(dc.rank, peer, item);
        for (;;) {
            uint4 v[COUNT];
            int missing = 0;
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = symm_ptx::get16(from + (uint64_t)i * step * 16);
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                missing |= v[i].y != epoch || v[i].w != epoch;
                data[i] = make_uint2(v[i].x, v[i].z);
            }
            if (!missing) return 0;
            if (symm_dev::poll_again(dc, w, peer, symm_dev::PACKET)) return 1;
        }
    }
    /* By a whole warp, converged; data: this lane's piece (symmDevLinePiece), of 8 bytes the first
     * two words. */
    SYMM_DEV_IN void sendLines(int peer, uint32_t block, const uint32_t (&data)[4]) const {
        const unsigned lane = threadIdx.x & 31u;
        const int flags = (lane & 7u) == 7;
        if (bad || symm_dev::out_of_range(dc, block, dc.lineBytes / 480, symm_dev::LINES)) return;
        put_lines(lines(peer, dc.rank, block) + lane * 16,
                  flags ? make_uint4(data[0], data[1], epoch, ~epoch)
                        : make_uint4(data[0], data[1], data[2], data[3]),
                  flags);
    }
    /* By a whole warp; all its lanes get the same. Only the flags are polled. */
    SYMM_DEV_IN int receiveLines(int peer, uint32_t block, uint32_t (&data)[4]) const {
        const unsigned lane = threadIdx.x & 31u;
        const int flags = (lane & 7u) == 7;
        if (bad || symm_dev::out_of_range(dc, block, dc.lineBytes / 480, symm_dev::LINES)) return 1;
        const char *from = lines(dc.rank, peer, block) + lane * 16;
        symm_dev::waiting w = {0, 0};
        uint4 v = make_uint4(0, 0, 0, 0);
        for (;;) {
            if (flags) v = symm_ptx::get16(from);
            if (!__any_sync(0xffffffffu, flags && (v.z != epoch || v.w != ~epoch))) break;
            if (__any_sync(0xffffffffu, symm_dev::poll_again(dc, w, peer, symm_dev::LINES)))
                return 1;
        }
        __syncwarp(); /* a vote orders no memory: lanes without a flag read behind those with one */
        v = symm_ptx::get16(from);
        data[0] = v.x, data[1] = v.y, data[2] = v.z, data[3] = v.w;
        return 0;
    }
    /* gaveUp: what this thread's receives returned, or'ed. Non-zero: any thread's was. */
    SYMM_DEV_IN int end(int gaveUp) {
        check_epoch();
        if (group.thread() == 0) symm_ptx::put8(symm_dev::epochs(dc, at) + 1, epoch);
        /* all have read their places before any of them sends in the next session */
        return group.any(gaveUp || bad);
    }

  private:
    const symmDevComm_t &dc;
    Group group;
    unsigned at;
    int bad;
    uint32_t epoch; /* of this session */

    SYMM_DEV_IN uint32_t next_epoch() const {
        const uint32_t last = (uint32_t)symm_ptx::get8(symm_dev::epochs(dc, at) + 1);
        return last == 0xffffffffu ? 2u : last + 1u; /* never 0; the parity goes on */
    }
    /* Debug builds: another object of the index has had a session since this one began. By the
     * thread that writes the epoch; the others hear of it in end. */
    SYMM_DEV_IN void check_epoch() {
        if (!symm_dev::CHECKED || bad || group.thread() || next_epoch() == epoch) return;
        symm_dev::leave(dc, symmInvalidUsage, dc.rank, symm_dev::PACKET);
        bad = 1;
    }
    SYMM_DEV_IN uint64_t place(int source) const {
        return ((uint64_t)at * 2 + (epoch & 1u)) * (unsigned)dc.nranks + (unsigned)source;
    }
    SYMM_DEV_IN char *packet(int owner, int source, uint32_t item) const {
        return symm_dev::memory(dc, owner) + dc.llAt + place(source) * (dc.llBytes * 2) +
               (uint64_t)item * 16;
    }
    SYMM_DEV_IN char *lines(int owner, int source, uint32_t block) const {
        return symm_dev::memory(dc, owner) + dc.lineAt + place(source) * dc.lineSlot +
               (uint64_t)block * 512;
    }
    /* A flag must not become visible before its data, and over a link only what one instruction
     * stores arrives as one. A warp whose lanes are apart stores the data first, and the flags
     * behind a fence. */
    SYMM_DEV_IN void put_lines(char *to, uint4 v, int flags) const {
        if (!symm_ptx::put_whole_warp(to, v)) return;
        if (!flags) symm_ptx::put16(to, v);
        __syncwarp();
        if (flags) {
            /* pairs with receiveLines: whoever sees the flags reads the line after them */
            __threadfence_system();
            symm_ptx::put16(to, v);
        }
        __syncwarp();
    }
};

/* ---- copies ---------------------------------------------------------------------------------- */

/* Copies `bytes`, by all threads of the group: to or from a peer, any alignment; fastest where both
 * lie equally far from a multiple of 16. It waits for nothing and orders nothing: a barrier or
 * symmDevSignalRaise of the same group publishes it. */
template <class Group>
SYMM_DEV void symmDevCopy(Group group, void *to, const void *from, uint64_t bytes) {
    enum { AT_ONCE = 4 };
    char *d = (char *)to;
    const char *s = (const char *)from;
    const uint64_t me = group.thread(), all = group.threads();
    const uint64_t apart = (uint64_t)d ^ (uint64_t)s;
    const uint64_t unit = apart & 3 ? 1 : apart & 15 ? 4 : 16;
    uint64_t head = (uint64_t)(0 - (uint64_t)d) & (unit - 1);
    if (head > bytes) head = bytes;
    const uint64_t units = (bytes - head) / unit, tail = head + units * unit;
    /* A tile may have fewer threads than there are bytes. */
    for (uint64_t i = me; i < head; i += all) d[i] = (char)symm_ptx::load_peer1(s + i);
    if (unit == 16) {
        uint64_t i = me;
        for (; i + (AT_ONCE - 1) * all < units; i += AT_ONCE * all) {
            uint4 v[AT_ONCE]; /* all loads are under way before the first store */
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                v[k] = symm_ptx::load_peer(s + head + (i + (unsigned)k * all) * 16);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                *(uint4 *)(d + head + (i + (unsigned)k * all) * 16) = v[k];
        }
        for (; i < units; i += all)
            *(uint4 *)(d + head + i * 16) = symm_ptx::load_peer(s + head + i * 16);
    } else if (unit == 4) {
        for (uint64_t i = me; i < units; i += all)
            *(uint32_t *)(d + head + i * 4) = symm_ptx::load_peer4(s + head + i * 4);
    } else {
        for (uint64_t i = me; i < units; i += all)
            d[head + i] = (char)symm_ptx::load_peer1(s + head + i);
    }
    for (uint64_t i = tail + me; i < bytes; i += all) d[i] = (char)symm_ptx::load_peer1(s + i);
}

/* ---- sums over ranks ------------------------------------------------------------------------- */

/* 16 bytes of a type, as float32: T is symmFloat32, symmFloat16 or symmBfloat16. */
template <int T> struct symmDevVec;
template <> struct symmDevVec<symmFloat32> {
    enum { COUNT = 4 };
    static SYMM_DEV_IN void unpack(uint4 v, float (&x)[4]) {
        x[0] = __uint_as_float(v.x), x[1] = __uint_as_float(v.y);
        x[2] = __uint_as_float(v.z), x[3] = __uint_as_float(v.w);
    }
    static SYMM_DEV_IN uint4 pack(const float (&x)[4]) {
        return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                          __float_as_uint(x[3]));
    }
};
template <> struct symmDevVec<symmBfloat16> {
    enum { COUNT = 8 };
    static SYMM_DEV_IN void pair(uint32_t w, float &low, float &high) {
        low = __uint_as_float(w << 16), high = __uint_as_float(w & 0xffff0000u);
    }
    static SYMM_DEV_IN void unpack(uint4 v, float (&x)[8]) {
        pair(v.x, x[0], x[1]), pair(v.y, x[2], x[3]), pair(v.z, x[4], x[5]), pair(v.w, x[6], x[7]);
    }
    static SYMM_DEV_IN uint4 pack(const float (&x)[8]) { /* to nearest, ties to even */
        return make_uint4(symm_ptx::bfloat_pair(x[0], x[1]), symm_ptx::bfloat_pair(x[2], x[3]),
                          symm_ptx::bfloat_pair(x[4], x[5]), symm_ptx::bfloat_pair(x[6], x[7]));
    }
};
template <> struct symmDevVec<symmFloat16> {
    enum { COUNT = 8 };
    static SYMM_DEV_IN void pair(uint32_t w, float &low, float &high) {
        low = symm_ptx::half_low(w), high = symm_ptx::half_low(w >> 16);
    }
    static SYMM_DEV_IN void unpack(uint4 v, float (&x)[8]) {
        pair(v.x, x[0], x[1]), pair(v.y, x[2], x[3]), pair(v.z, x[4], x[5]), pair(v.w, x[6], x[7]);
    }
    static SYMM_DEV_IN uint4 pack(const float (&x)[8]) { /* to nearest, ties to even */
        return make_uint4(symm_ptx::half_pair(x[0], x[1]), symm_ptx::half_pair(x[2], x[3]),
                          symm_ptx::half_pair(x[4], x[5]), symm_ptx::half_pair(x[6], x[7]));
    }
};

/* Loads 16 bytes at `offset` (a multiple of 16) of every rank's part, all at once, by one thread.
 * RANKS: that of the communicator, at most 16. They are not awaited before they are used: a kernel
 * may begin several. Requires: a barrier or signal says that they are there. */
template <int RANKS>
SYMM_DEV void symmDevLoadAll(const symmDevComm_t &dc, const symmDevWindow_t &w, uint64_t offset,
                             uint4 (&v)[RANKS]) {
#pragma unroll
    for (int p = 0; p < RANKS; p++) v[p] = symm_ptx::load_peer(symmDevPeerPtr(dc, w, p, offset));
}
/* Their sum, in float32 and in the order of the ranks: the same bits on every rank, and those of
 * symmAllReduce before it rounds. */
template <int T, int RANKS>
SYMM_DEV void symmDevSum(const uint4 (&v)[RANKS], float (&sum)[symmDevVec<T>::COUNT]) {
    symmDevVec<T>::unpack(v[0], sum);
#pragma unroll
    for (int p = 1; p < RANKS; p++) {
        float x[symmDevVec<T>::COUNT];
        symmDevVec<T>::unpack(v[p], x);
#pragma unroll
        for (int i = 0; i < symmDevVec<T>::COUNT; i++) sum[i] = __fadd_rn(sum[i], x[i]);
    }
}
/* Both, for any number of ranks: 8 loads at a time. */
template <int T>
SYMM_DEV void symmDevLoadReduce(const symmDevComm_t &dc, const symmDevWindow_t &w, uint64_t offset,
                                float (&sum)[symmDevVec<T>::COUNT]) {
    enum { AT_ONCE = 8 };
    for (int first = 0; first < dc.nranks; first += AT_ONCE) {
        uint4 v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (first + k < dc.nranks)
                v[k] = symm_ptx::load_peer(symmDevPeerPtr(dc, w, first + k, offset));
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            float x[symmDevVec<T>::COUNT];
            if (first + k >= dc.nranks) break;
            symmDevVec<T>::unpack(v[k], x);
#pragma unroll
            for (int i = 0; i < symmDevVec<T>::COUNT; i++)
                sum[i] = first + k ? __fadd_rn(sum[i], x[i]) : x[i];
        }
    }
}

/* ---- over the multicast range ---------------------------------------------------------------- */

/* By one thread, 16 bytes at `offset` (a multiple of 16) of a window that has a multicast address:
 * w.multicast is not 0. sm_90 and later; before, they trap. Waits order nothing of this range
 * without the fence: between accesses of the same bytes by this address and by another one, who has
 * stored passes it before arrive or a signal, and who is to load or store does behind the wait. No
 * GPU has run them.
 *
 * The sum is the switch's, in an order of its own: T as symmDevVec's, whose words they are. */
SYMM_DEV void symmDevMulticastFence(void) {
    symm_ptx::alias_fence();
}
SYMM_DEV void symmDevMulticastStore(const symmDevWindow_t &w, uint64_t offset, uint4 v) {
    if (symm_dev::CHECKED && (!w.multicast || offset >= w.bytes)) SYMM_DEV_TRAP();
    symm_ptx::multicast_store16((char *)(w.multicast + offset), v);
}
template <int T> SYMM_DEV uint4 symmDevMulticastSum(const symmDevWindow_t &w, uint64_t offset) {
    static_assert(symmDevVec<T>::COUNT > 0, "float32, float16, bfloat16");
    if (symm_dev::CHECKED && (!w.multicast || offset >= w.bytes)) SYMM_DEV_TRAP();
    const char *from = (const char *)(w.multicast + offset);
    return T == symmFloat32   ? symm_ptx::multicast_add_f32(from)
           : T == symmFloat16 ? symm_ptx::multicast_add_f16(from)
                              : symm_ptx::multicast_add_bf16(from);
}

} // namespace symm_dev_*

#endif
