/* direct.cuh - large messages: straight between the users' windows, no scratch, no flag in the data.
 *
 * Every rank tells every peer where its buffers lie (ready); once all have, each knows whether all buffers of all ranks are in windows
 * and aligned. All come to the same answer from the same words: if so they load and store there, else all take the way through
 * scratch. A ready word also says that its sender's kernel has begun, so its buffers may be read and written.
 * At its end a CTA has an arrival word released on every peer, behind its stores, and waits for those of the same CTA of all
 * peers: then nobody reads its source any more, and what was stored here is here. */
#ifndef SYMM_CUDA_DIRECT_CUH_
#define SYMM_CUDA_DIRECT_CUH_

#include "lines.cuh"

/* Measured on two H200; docs/performance.md. */
enum { AG_WARPS = 4 };

struct places { /* of all ranks' buffers; shared by the CTA */
    uint64_t src[SYMM_MAX_RANKS], dst[SYMM_MAX_RANKS];
    int left;
};

/* The data warps of a CTA alone: the last warp is busy with signatures. */
DEV void data_barrier(void) {
    asm volatile("bar.sync 1, %0;" ::"r"(data_threads()) : "memory");
}

DEV void put_offset(uint32_t *to, uint64_t off, uint32_t epoch) {
    put16(to, make_uint4((uint32_t)off, epoch, (uint32_t)(off >> 32),
                         epoch)); /* pairs with take_offset */
}
DEV int take_offset(run &r, int p, const uint32_t *from, uint64_t &off) {
    uint32_t polls = 0;
    uint64_t since = 0;
    uint4 v;
    while (!ll_is(v = get16(from), r.epoch))
        if (poll_again(r, polls, p, SYMM_STAGE_READY, since)) return 1;
    off = (uint64_t)v.z << 32 | v.x;
    return 0;
}

/* Trades the offsets. 1: all are in windows and aligned; 0: some are not; -1: leave. All data threads. */
DEV int trade_places(run &r, places &at) {
    const symm_args *a = r.a;
    const unsigned parity = r.epoch & 1u;
    if (threadIdx.x == 0) at.left = 0;
    data_barrier();
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads()) {
        symm_gpu_inbox *out = &ctl_of(a, p)->inbox[a->rank], *in = &r.ctl->inbox[p];
        at.src[p] = a->src_off, at.dst[p] = a->dst_off;
        if (p == a->rank) continue;
        if (blockIdx.x == 0) {
            put_offset(out->src_off[parity], a->src_off, r.epoch);
            put_offset(out->dst_off[parity], a->dst_off, r.epoch);
        }
        /* Who means another call must not be let into these buffers, nor we into its. */
        if (take_offset(r, p, in->src_off[parity], at.src[p]) ||
            take_offset(r, p, in->dst_off[parity], at.dst[p]) || signature_differs(r, p))
            at.left = 1;
    }
    if (r.over) at.left = 1; /* what is announced here may have waited for us, and been let go */
    data_barrier();
    if (at.left) return -1;
    uint64_t bad = 0;
    for (int p = 0; p < a->nranks; p++)
        bad |= at.src[p] == SYMM_STAGED || at.dst[p] == SYMM_STAGED ? 1u
                                                                    : (at.src[p] | at.dst[p]) & 15u;
    return !bad;
}

/* After the CTA's last load and store. */
DEV void arrive_and_wait(run &r) {
    const symm_args *a = r.a;
    data_barrier(); /* the others' stores come before the release below, which is cumulative */
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads())
        if (p != a->rank)
            give8(&ctl_of(a, p)->arrive[blockIdx.x][a->rank],
                  r.epoch); /* pairs with the wait below */
    for (int p = (int)threadIdx.x; p < a->nranks; p += (int)data_threads()) {
        uint32_t polls = 0;
        uint64_t since = 0;
        while (p != a->rank && (uint32_t)take8(&r.ctl->arrive[blockIdx.x][p]) != r.epoch)
            if (poll_again(r, polls, p, SYMM_STAGE_ARRIVE, since)) return;
    }
}

/* One address only for each local byte: the user's own. */
DEV const char *source_of(const symm_args *a, const places &at, int p) {
    return p == a->rank ? (const char *)a->src : flat(a, p, at.src[p]);
}
DEV char *target_of(const symm_args *a, const places &at, int p) {
    return p == a->rank ? (char *)a->dst : flat(a, p, at.dst[p]);
}

/* A chunk is a warp's, and the first of `warps` warps of all CTAs come before the second: what there is spreads over all
 * multiprocessors. `none` for a warp that has no part in it. */
DEV uint64_t first_chunk(unsigned warps, uint64_t none) {
    const unsigned warp = threadIdx.x / 32u;
    return warp < warps ? (uint64_t)warp * gridDim.x + blockIdx.x : none;
}

/* ---- all_reduce: every rank loads its slice from all, reduces, stores to all ------------------------------------------------ */

/* v[q] is of rank + q, modulo N, a power of two; after this v[p] is of rank p. Turned by 1, 2, 4 where rank has that bit: no register is
 * chosen by a number that is not known. */
template <int N, int U> DEV void by_rank(uint4 (&v)[N][U], int rank) {
#pragma unroll
    for (int by = 1; by < N; by *= 2) {
        const int turn = rank & by;
        uint4 was[N][U];
#pragma unroll
        for (int p = 0; p < N; p++)
#pragma unroll
            for (int i = 0; i < U; i++) was[p][i] = v[p][i];
#pragma unroll
        for (int p = 0; p < N; p++)
#pragma unroll
            for (int i = 0; i < U; i++) v[p][i] = turn ? was[(p + N - by) % N][i] : was[p][i];
    }
}

/* U vectors of 16 bytes at once, `step` apart: vector i of them if i < some. */
template <int T, int N, int OP, int U>
DEV void reduce_vectors(const run &r, const places &at, uint64_t from, uint64_t step, int some) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    reduction<T, 4, OP> sum[U];
    uint32_t out[4];
    if (N) {
        uint4 v[N ? N : 1][U];
#pragma unroll
        for (int q = 0; q < N;
             q++) { /* each rank begins with another one, which spreads over the links */
            const char *source = source_of(a, at, N == 2 ? q : peer_of(a->rank, N, q)) + from;
#pragma unroll
            for (int i = 0; i < U; i++)
                if (i < some) v[q][i] = load_remote(source + (unsigned)i * step);
        }
        if (N > 2) by_rank(v, a->rank);
#pragma unroll
        for (int p = 0; p < N; p++)
#pragma unroll
            for (int i = 0; i < U; i++) {
                uint32_t x[4];
                to_words(x, v[p][i]);
                if (p == 0)
                    sum[i].first((int)a->op, x, scale_of<T, OP>(r, p));
                else
                    sum[i].step((int)a->op, x, scale_of<T, OP>(r, p));
            }
    } else {
        for (int p = 0; p < n; p++)
#pragma unroll
            for (int i = 0; i < U; i++) {
                uint32_t x[4] = {0, 0, 0, 0};
                if (i < some)
                    to_words(x, load_remote(source_of(a, at, p) + from + (unsigned)i * step));
                if (p == 0)
                    sum[i].first((int)a->op, x, scale_of<T, OP>(r, p));
                else
                    sum[i].step((int)a->op, x, scale_of<T, OP>(r, p));
            }
    }
#pragma unroll
    for (int i = 0; i < U; i++) {
        sum[i].last((int)a->op, n, out);
#pragma unroll
        for (int q = 0; q < n; q++)
            if (i < some)
                *(uint4 *)(target_of(a, at, peer_of(a->rank, n, q)) + from + (unsigned)i * step) =
                    make_uint4(out[0], out[1], out[2], out[3]);
    }
}

/* The last bytes of the message, fewer than 16; by one thread of the last slice's owner. */
template <int T, int OP>
DEV void reduce_tail(const run &r, const places &at, uint64_t from, uint64_t bytes) {
    const symm_args *a = r.a;
    reduction<T, 4, OP> sum;
    uint32_t x[4], out[4];
    for (int p = 0; p < a->nranks; p++) {
        to_words(x, load_pieces<4>(source_of(a, at, p) + from, (int64_t)bytes, 16));
        if (p == 0)
            sum.first((int)a->op, x, scale_of<T, OP>(r, p));
        else
            sum.step((int)a->op, x, scale_of<T, OP>(r, p));
    }
    sum.last((int)a->op, a->nranks, out);
    for (int p = 0; p < a->nranks; p++)
        store_pieces<4>(target_of(a, at, p) + from, make_uint4(out[0], out[1], out[2], out[3]),
                        (int64_t)bytes, 16);
}

/* In place is safe: what lies in a rank's slice is read and written by that rank alone, by one thread, in this order. */
template <int T, int N, int OP> DEV void ar_direct(run &r, places &at) {
    const int U = N == 2 && elem<T>::BYTES > 1 ? 4 : N == 2 || N == 4 ? 2 : 1;
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    const uint64_t bytes = a->count * a->esize, each = slice_bytes(bytes, n);
    const slice mine = slice_of(bytes, each, a->rank);
    const uint64_t vectors = (mine.end - mine.at) / 16, block = 32u * U,
                   chunks = (vectors + block - 1) / block;
    const unsigned warps = data_threads() / 32u;
    if (OP == ANY_OP && a->op == SYMM_OP_PREMUL) {
        if (scalars_wait(r))
            at.left = 1; /* all leave together: the others wait at barriers of the CTA */
        data_barrier();
        if (at.left) return;
    }
    for (uint64_t c = first_chunk(warps, chunks); c < chunks; c += (uint64_t)warps * gridDim.x) {
        const uint64_t b = c * block;
        const uint64_t first = b + threadIdx.x % 32u,
                       left = first < vectors ? (vectors - first + 31u) / 32u : 0;
        if (left)
            reduce_vectors<T, N, OP, U>(r, at, mine.at + first * 16, 32u * 16,
                                        left < U ? (int)left : U);
    }
    const uint64_t tail = (mine.end - mine.at) % 16;
    if (tail && blockIdx.x == 0 && threadIdx.x == 0)
        reduce_tail<T, OP>(r, at, mine.end - tail, tail);
    arrive_and_wait(r);
}

template <int T, int N> DEV void body_ar_direct(run &r) {
    __shared__ places at;
    const int way = trade_places(r, at);
    if (way < 0) {
        r.left = 1;
    } else if (
        !way) { /* once for all, to keep the kernel small: registered memory is what large messages are for */
        if (has_lines(r.a)) ar_twoshot<T, 0, ANY_OP>(r);
    } else if (HOT(T) && r.a->op == SYMM_OP_SUM) {
        ar_direct<T, N, HOT(T) ? SYMM_OP_SUM : ANY_OP>(r, at);
    } else {
        ar_direct<T, N, ANY_OP>(r, at);
    }
}

/* ---- all_gather: every rank stores its part to all --------------------------------------------------------------------------- */

/* Whole vectors of 16 bytes only. Chunk by chunk, each chunk to another peer first; the own copy beside the first of them, while the link works. */
template <int N> DEV void ag_direct(run &r, const places &at) {
    const int U = 8;
    const symm_args *a = r.a;
    const unsigned n = (unsigned)(N ? N : a->nranks);
    const uint64_t bytes = a->count * a->esize, vectors = bytes / 16,
                   mine = (uint64_t)a->rank * bytes;
    const uint64_t step = 32u, block = step * U, chunks = (vectors + block - 1) / block;
    const char *src = (const char *)a->src;
    char *own = (char *)a->dst + mine;
    const uint64_t all = chunks * (n - 1);
    /* With more of them under way at once the link is no busier, and the message ends later. */
    const unsigned has = data_threads() / 32u, warps = has < AG_WARPS ? has : AG_WARPS;
    for (uint64_t w = first_chunk(warps, all); w < all; w += (uint64_t)warps * gridDim.x) {
        const uint64_t c = w / (n - 1), first = c * block + threadIdx.x % 32u;
        const int q = 1 + (int)((w + c) % (n - 1));
        char *to = target_of(a, at, peer_of(a->rank, (int)n, q)) + mine;
        uint4 v[U];
#pragma unroll
        for (int i = 0; i < U; i++)
            if (first + i * step < vectors) v[i] = load16(src + (first + i * step) * 16);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (first + i * step < vectors) *((uint4 *)to + first + i * step) = v[i];
#pragma unroll
        for (int i = 0; i < U; i++)
            if (q == 1 && own != src && first + i * step < vectors)
                *((uint4 *)own + first + i * step) = v[i];
    }
    arrive_and_wait(r);
}

template <int N> DEV void body_ag_direct(run &r) {
    __shared__ places at;
    const int way = trade_places(r, at);
    /* A part begins at a multiple of its length. */
    if (way < 0)
        r.left = 1;
    else if (way && (r.a->count * r.a->esize) % 16 == 0)
        ag_direct<N>(r, at);
    else if (has_lines(r.a))
        body_ag_push<N>(r);
}

#endif
