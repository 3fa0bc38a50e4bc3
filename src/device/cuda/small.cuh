/* small.cuh - small messages in LL packets: 8 bytes of data and two copies of the epoch in one
 * store to each peer. One-shot. Ranks share only scratch, so buffers may be anywhere. A packet's
 * epoch pairs ll_put with ll_recv_at and ll_gather. Also the kernels for one rank. GPU code: the
 * data threads run it. */
#ifndef SYMM_CUDA_SMALL_CUH_
#define SYMM_CUDA_SMALL_CUH_

#include "frame.cuh"

/* ---- small: one-shot, LL --------------------------------------------------------------------- */

/* A thread's 8 bytes of the message. */
struct span8 {
    uint64_t at;   /* byte of the message */
    int64_t valid; /* bytes that exist, from there */
};
DEV span8 span8_of(uint64_t item, uint64_t bytes) {
    span8 s = {item * 8, (int64_t)(bytes - item * 8)};
    return s;
}
/* What is `items` further on. */
DEV span8 span8_next(const span8 &s, uint64_t items) {
    return {s.at + items * 8, s.valid - (int64_t)(items * 8)};
}

/* Whether these 8 bytes of every part of a buffer are one load or one store. Then those of all
 * parts are under way together: between them there is no branch, behind which each is waited
 * for. */
DEV int parts_are_whole(const void *buf, uint64_t part, const span8 &s) {
    return s.valid >= 8 && (((uint64_t)(uintptr_t)buf | part) & 7u) == 0;
}

/* Where two ranks' packets of a thread's item go, and come from, at even epochs. That of the first
 * item is known before the kernel begins (frame.cuh). Of more ranks there is nothing. */
template <int N> struct ll_pair {
    char *to;
    const char *from;
    uint64_t step; /* to those of odd epochs */
};
DEV uint64_t first_item(void) {
    return (uint64_t)blockIdx.x * data_threads() + threadIdx.x;
}
template <int N> DEV ll_pair<N> place_pair(const symm_args &a) {
    if (N != 2) return {0, 0, 0};
    const uint64_t at = a.scratch.gpu.ll_off + first_item() * 16, slot = a.scratch.gpu.ll_slot;
    const int peer = 1 - a.rank;
    return {anew(flat(&a, peer, at + (unsigned)a.rank * slot)),
            anew(flat(&a, a.rank, at + (unsigned)peer * slot)), anew(2 * slot)};
}
/* Behind the epoch word: of this epoch. */
template <int N> DEV void pair_begin(const run &r, ll_pair<N> &pair) {
    const uint64_t other = r.epoch & 1u ? pair.step : 0;
    if (N == 2) pair.to += other, pair.from += other;
}
template <int N> DEV void pair_next(ll_pair<N> &pair, uint64_t items) {
    if (N == 2) pair.to += items * 16, pair.from += items * 16;
}

/* A thread's first 8 bytes, loaded while its epoch word is on the way. */
template <int N, int CAST> struct first_words {
    const char *at;
    span8 s;
    uint32_t w[2];
    ll_pair<N> pair;
};
template <int N, int CAST> DEV first_words<N, CAST> place_first(const symm_args &a) {
    span8 s = span8_of(first_item(), a.count * a.esize);
    s.valid = (int64_t)anew((uint64_t)s.valid);
    return {anew((const char *)a.src + s.at), s, {0, 0}, place_pair<N>(a)};
}
template <int N> DEV uint64_t known_of(const ll_pair<N> &pair) {
    return (uint64_t)(uintptr_t)pair.to | (uint64_t)(uintptr_t)pair.from | pair.step;
}
template <int N, int CAST> DEV uint64_t known_of(const first_words<N, CAST> &f) {
    return (uint64_t)(uintptr_t)f.at | (uint64_t)f.s.valid | known_of(f.pair);
}
template <int N, int CAST> DEV void load_first(const symm_args &a, first_words<N, CAST> &f) {
    if (is_data() && f.s.valid > 0) load_user(f.w, f.at, f.s.valid, alignment(a.src));
}

template <int N>
DEV void ll_send(run &r, uint64_t item, const uint32_t (&w)[2], const ll_pair<N> &pair) {
    const int n = N ? N : r.a->nranks;
    if (N == 2) ll_put(pair.to, 0, w, ll_flag(r));
#pragma unroll
    for (int q = 1; N != 2 && q < n; q++)
        ll_put(ll_slot(r, peer_of(r.a->rank, n, q), r.a->rank), item, w, ll_flag(r));
}
/* Over the multicast range, into all ranks' scratch, the own one too, where nobody looks. It has no
 * store of 16 bytes that is seen as a whole; each half has its flag, and needs no fence. */
DEV void ll_send_to_all(run &r, uint64_t item, const uint32_t (&w)[2]) {
    char *to = (char *)(r.a->gpu.multicast + ll_slot_at(r, r.a->rank)) + item * 16;
    multicast_store8(to, w[0], ll_flag(r));
    multicast_store8(to + 8, w[1], ll_flag(r));
}
/* What is there of a thread's words, to all. */
template <int N, int CAST>
DEV void ll_send_words(run &r, const span8 &s, const uint32_t (&w)[2], const ll_pair<N> &pair) {
    if (s.valid <= 0) return;
    if (CAST)
        ll_send_to_all(r, s.at / 8, w);
    else
        ll_send<N>(r, s.at / 8, w, pair);
}
/* What a thread sends first, before anything is asked: which way through the kernel this call goes,
 * and how its results lie, is found out while the packets are under way. */
template <int N, int CAST> DEV void send_first(run &r, first_words<N, CAST> &f) {
    pair_begin(r, f.pair);
    ll_send_words<N, CAST>(r, f.s, f.w, f.pair);
}
DEV int ll_recv_at(run &r, int p, const char *at, uint32_t (&w)[2]) {
    uint32_t polls = 0;
    uint64_t since = 0;
    uint4 v;
    while (!ll_is(v = get16(at), ll_flag(r)))
        if (poll_again(r, polls, p, SYMM_STAGE_PACKET, since)) return 1;
    w[0] = v.x, w[1] = v.z;
    return 0;
}
DEV int ll_recv(run &r, int p, uint64_t item, uint32_t (&w)[2]) {
    return ll_recv_at(r, p, ll_slot(r, r.a->rank, p) + item * 16, w);
}

/* One look at all peers' packets of one item: N is known, so they are in registers. w of the own
 * rank is not defined afterwards. Returns a rank whose packet is not there; -1: there is none.
 * TOGETHER: without a branch, so that all loads are under way at once. What is reduced is faster
 * without (docs/performance.md). */
template <int N, int TOGETHER>
DEV int ll_look(const run &r, const char *mine, uint32_t (&w)[N ? N : 1][2]) {
    const uint64_t slot = r.a->scratch.gpu.ll_slot;
    int missing = -1;
    uint4 v[N ? N : 1];
#pragma unroll
    for (int p = 0; TOGETHER && p < N; p++) get16_if(v[p], mine + p * slot, p != r.a->rank);
#pragma unroll
    for (int p = 0; p < N; p++) {
        if (p == r.a->rank) continue;
        if (!TOGETHER) v[p] = get16(mine + p * slot);
        if (!ll_is(v[p], ll_flag(r))) missing = p;
        w[p][0] = v[p].x, w[p][1] = v[p].z;
    }
    return missing;
}
/* All peers' packets of one item, polled together. 1: leave. */
template <int N, int TOGETHER>
DEV int ll_gather(run &r, uint64_t item, const ll_pair<N> &pair, uint32_t (&w)[N ? N : 1][2]) {
    if constexpr (N == 2) {
        if (ll_recv_at(r, 1 - r.a->rank, pair.from, w[0])) return 1;
        w[1][0] = w[0][0], w[1][1] = w[0][1];
        return 0;
    } else {
        uint32_t polls = 0;
        uint64_t since = 0;
        const char *mine = ll_slot(r, r.a->rank, 0) + item * 16;
        for (;;) {
            const int missing = ll_look<N, TOGETHER>(r, mine, w);
            if (missing < 0) return 0;
            if (poll_again(r, polls, missing, SYMM_STAGE_PACKET, since)) return 1;
        }
    }
}

template <int T, int N, int OP>
DEV int ll_reduce(run &r, uint64_t item, const ll_pair<N> &pair, const uint32_t (&own)[2],
                  uint32_t (&out)[2]) {
    const symm_args *a = r.a;
    const int rank = anew(a->rank);
    reduction<T, 2, OP> sum;
    if (N) {
        uint32_t w[N ? N : 1][2];
        if (ll_gather<N, 0>(r, item, pair, w)) return 1;
#pragma unroll
        for (int p = 0; p < N; p++) {
            const uint32_t x[2] = {p == rank ? own[0] : w[p][0], p == rank ? own[1] : w[p][1]};
            if (p == 0)
                sum.first((int)a->op, x, scale_of<T, OP>(r, p));
            else
                sum.step((int)a->op, x, scale_of<T, OP>(r, p));
        }
    } else {
        for (int p = 0; p < a->nranks; p++) {
            uint32_t x[2] = {own[0], own[1]};
            if (p != rank && ll_recv(r, p, item, x)) return 1;
            if (p == 0)
                sum.first((int)a->op, x, scale_of<T, OP>(r, p));
            else
                sum.step((int)a->op, x, scale_of<T, OP>(r, p));
        }
    }
    sum.last((int)a->op, a->nranks, out);
    return 0;
}

/* One-shot push: everything to everyone, everybody reduces everything. A place of scratch is used
 * once per kernel. CAST: over the multicast range. */
template <int T, int N, int OP, int CAST>
DEV void ar_ll(run &r, const first_words<N, CAST> &first) {
    const symm_args *a = r.a;
    uint32_t w[2] = {first.w[0], first.w[1]}, sum[2];
    ll_pair<N> pair = first.pair;
    if (OP == ANY_OP && scalars_wait(r)) return;
    const int in = alignment(a->src), out = alignment(a->dst);
    const uint64_t stride = (uint64_t)gridDim.x * data_threads();
    for (span8 s = first.s; s.valid > 0;) {
        const span8 next = span8_next(s, stride);
        if (ll_reduce<T, N, OP>(r, s.at / 8, pair, w, sum)) return;
        if (next.valid > 0) load_user(w, (const char *)a->src + next.at, next.valid, in);
        store_user((char *)a->dst + s.at, sum, s.valid, out);
        s = next;
        pair_next(pair, stride);
        ll_send_words<N, CAST>(r, s, w, pair);
    }
}
template <int T, int N, int CAST> DEV void body_ar_ll(run &r, first_words<N, CAST> &first) {
    send_first(r, first);
    by_op<HOT(T)>(r.a->op, [&](auto op) { ar_ll<T, N, op.OP, CAST>(r, first); });
}

/* Every peer's 8 bytes of an item into its part of the result. */
template <int N>
DEV void store_peers(const symm_args *a, const uint32_t (&w)[N ? N : 1][2], uint64_t part,
                     const span8 &s) {
    if (parts_are_whole(a->dst, part, s)) {
#pragma unroll
        for (int p = 0; p < N; p++)
            if (p != a->rank)
                *(uint2 *)((char *)a->dst + (uint64_t)p * part + s.at) =
                    make_uint2(w[p][0], w[p][1]);
        return;
    }
#pragma unroll
    for (int p = 0; p < N; p++) {
        char *to = (char *)a->dst + (uint64_t)p * part + s.at;
        if (p != a->rank) store_user(to, w[p], s.valid, alignment(to));
    }
}

/* The peers' 8 bytes of an item, polled together. 1: leave. */
template <int N>
DEV int gather_peers(run &r, uint64_t item, const ll_pair<N> &pair, const span8 &s,
                     uint64_t bytes) {
    uint32_t w[N ? N : 1][2];
    if (ll_gather<N, 1>(r, item, pair, w)) return 1;
    store_peers<N>(r.a, w, bytes, s);
    return 0;
}

template <int N> DEV void body_ag_ll(run &r, first_words<N, 0> &first) {
    const symm_args *a = r.a;
    send_first(r, first);
    uint32_t w[2] = {first.w[0], first.w[1]}, got[2];
    ll_pair<N> pair = first.pair;
    const uint64_t bytes = a->count * a->esize;
    const int in = alignment(a->src);
    const int n = N ? N : a->nranks;
    const uint64_t stride = (uint64_t)gridDim.x * data_threads();
    for (span8 s = first.s; s.valid > 0;) {
        const uint64_t i = s.at / 8;
        const span8 next = span8_next(s, stride);
        /* The own part first: its store waits for nobody. Then peer after peer, if there is one
         * peer, or too many for the registers. */
        for (int q = 0; q < (N > 2 ? 1 : n); q++) {
            const int p = peer_of(a->rank, n, q);
            char *to = (char *)a->dst + (uint64_t)p * bytes + s.at;
            if (q && (N == 2 ? ll_recv_at(r, p, pair.from, got) : ll_recv(r, p, i, got))) return;
            if (q)
                store_user(to, got, s.valid, alignment(to));
            else
                store_user(to, w, s.valid, alignment(to));
        }
        if (N > 2 && gather_peers<N>(r, i, pair, s, bytes)) return;
        if (next.valid > 0) load_user(w, (const char *)a->src + next.at, next.valid, in);
        s = next;
        pair_next(pair, stride);
        ll_send_words<N, 0>(r, s, w, pair);
    }
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* The reduction's own arithmetic on the own buffer: averages by 1, scalars, canonical NaN. */
template <int T> DEV void body_ar_local(run &r) {
    const symm_args *a = r.a;
    const uint64_t bytes = a->count * a->esize, items = (bytes + 15) / 16;
    const int in = alignment(a->src), out = alignment(a->dst);
    const uint64_t stride = (uint64_t)gridDim.x * data_threads();
    const typename elem<T>::acc scale = scale_of<T, ANY_OP>(r, a->rank);
    for (uint64_t i = (uint64_t)blockIdx.x * data_threads() + threadIdx.x; i < items; i += stride) {
        uint32_t w[4], sum[4];
        reduction<T, 4, ANY_OP> one;
        load_user(w, (const char *)a->src + i * 16, (int64_t)(bytes - i * 16), in);
        one.first((int)a->op, w, scale);
        one.last((int)a->op, 1, sum);
        store_user((char *)a->dst + i * 16, sum, (int64_t)(bytes - i * 16), out);
    }
}

DEV void body_ag_local(run &r) {
    const symm_args *a = r.a;
    const uint64_t bytes = a->count * a->esize, items = (bytes + 15) / 16;
    const int in = alignment(a->src), out = alignment(a->dst);
    const uint64_t stride = (uint64_t)gridDim.x * data_threads();
    if (a->src == a->dst) return;
    for (uint64_t i = (uint64_t)blockIdx.x * data_threads() + threadIdx.x; i < items; i += stride) {
        uint32_t w[4];
        load_user(w, (const char *)a->src + i * 16, (int64_t)(bytes - i * 16), in);
        store_user((char *)a->dst + i * 16, w, (int64_t)(bytes - i * 16), out);
    }
}

#endif
