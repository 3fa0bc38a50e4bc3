/* hop_ll.cuh - small messages of every shape in LL packets: one hop, from who gives to who takes.
 * Buffers may be anywhere. An item's place in scratch is used once in a kernel, so nobody needs to
 * know that it is free, not even a rank that gives and hears nothing: between kernels the
 * signatures say it (frame.cuh). GPU code: the data threads run it. */
#ifndef SYMM_CUDA_HOP_LL_CUH_
#define SYMM_CUDA_HOP_LL_CUH_

#include "shape.cuh"
#include "small.cuh"

/* A thread's 8 bytes of each part of an item: [0] the own one, or the only one; [q] that for the
 * rank's q-th peer. Of a run-time number of ranks only [0] is kept. */
template <int S, int N> struct hop_words {
    enum { PARTS = S & SRC_EACH && N ? N : 1 };
    uint32_t w[PARTS][2];
    span8 s; /* of the first item */
    ll_pair<N> pair;
};
template <int S> DEV void load_part(const symm_args *a, uint32_t (&w)[2], int p, const span8 &s) {
    const char *from = (const char *)a->src + part_for<S>(a, p) + s.at;
    load_user(w, from, s.valid, alignment(from));
}
template <int S, int N>
DEV void load_parts(const symm_args *a, hop_words<S, N> &v, const span8 &s) {
    const int parts = hop_words<S, N>::PARTS;
    if (!gives<S>(a, a->rank) || s.valid <= 0) return;
    if (parts > 1 && parts_are_whole(a->src, part_bytes(a), s)) {
#pragma unroll
        for (int q = 0; q < parts; q++) {
            const uint2 x =
                load8((const char *)a->src + part_for<S>(a, peer_of(a->rank, N ? N : 1, q)) + s.at);
            v.w[q][0] = x.x, v.w[q][1] = x.y;
        }
        return;
    }
#pragma unroll
    for (int q = 0; q < parts; q++)
        load_part<S>(a, v.w[q], N ? peer_of(a->rank, N, q) : a->rank, s);
}
/* Those of a thread's first item, loaded while its epoch word is on the way. */
template <int S, int N> DEV hop_words<S, N> place_parts(const symm_args &a) {
    hop_words<S, N> v = {};
    v.s = span8_of(first_item(), part_bytes(&a));
    v.s.valid = (int64_t)anew((uint64_t)v.s.valid);
    v.pair = place_pair<N>(a);
    return v;
}
template <int S, int N> DEV uint64_t known_of(const hop_words<S, N> &v) {
    return known_of(v.pair) | (uint64_t)v.s.valid;
}
template <int S, int N> DEV void load_first(const symm_args &a, hop_words<S, N> &v) {
    if (is_data()) load_parts<S, N>(&a, v, v.s);
}

template <int S, int N>
DEV void hop_ll_send(run &r, uint64_t item, const hop_words<S, N> &v, const span8 &s) {
    const symm_args *a = r.a;
    const int count = takers<S, N>(a), most = most_takers<S, N>();
#pragma unroll
    for (int q = 1; q <= (most ? most : count); q++) {
        if (most && q > count) continue;
        const int p = taker<S, N>(a, q);
        uint32_t w[2] = {v.w[S & SRC_EACH && N ? q : 0][0], v.w[S & SRC_EACH && N ? q : 0][1]};
        if (S & SRC_EACH && !N) load_part<S>(a, w, p, s);
        if (N == 2)
            ll_put(v.pair.to, 0, w, ll_flag(r));
        else
            ll_put(ll_slot(r, p, a->rank), item, w, ll_flag(r));
    }
}

template <int S, int N> DEV void send_first(run &r, hop_words<S, N> &v) {
    pair_begin(r, v.pair);
    if (v.s.valid > 0) hop_ll_send<S, N>(r, v.s.at / 8, v, v.s);
}

/* Every giver's 8 bytes of an item, copied out. 1: leave. */
template <int S, int N>
DEV int hop_ll_copy(run &r, uint64_t item, const ll_pair<N> &pair, const span8 &s) {
    const symm_args *a = r.a;
    if (N > 2 && !(S & ROOT_GIVES)) {
        uint32_t w[N ? N : 1][2];
        if (!takes<S>(a, a->rank)) return 0;
        if (ll_gather<N, 1>(r, item, pair, w)) return 1;
        store_peers<N>(a, w, part_bytes(a), s);
        return 0;
    }
    const int count = givers<S, N>(a);
    for (int q = 1; q <= count; q++) {
        const int p = giver<S, N>(a, q);
        char *to = (char *)a->dst + part_from<S>(a, p) + s.at;
        uint32_t w[2];
        if (N == 2 ? ll_recv_at(r, p, pair.from, w) : ll_recv(r, p, item, w)) return 1;
        store_user(to, w, s.valid, alignment(to));
    }
    return 0;
}

/* In place is safe: the thread that stores 8 bytes is the one that has loaded what was there. */
template <int S, int T, int N, int OP> DEV void hop_ll(run &r, const hop_words<S, N> &first) {
    const symm_args *a = r.a;
    hop_words<S, N> v = first;
    const uint64_t stride = (uint64_t)gridDim.x * data_threads();
    char *own = own_target<S>(a);
    const int taking = takes<S>(a, a->rank);
    if (S & REDUCES && OP == ANY_OP && taking && scalars_wait(r)) return;
    for (span8 s = first.s; s.valid > 0;) {
        const uint64_t i = s.at / 8;
        const span8 next = span8_next(s, stride);
        uint32_t sum[2];
        if (own) store_user(own + s.at, v.w[0], s.valid, alignment(own + s.at));
        if (S & REDUCES) {
            if (taking && ll_reduce<T, N, OP>(r, i, v.pair, v.w[0], sum)) return;
        } else {
            if (hop_ll_copy<S, N>(r, i, v.pair, s)) return;
        }
        load_parts<S, N>(a, v, next);
        char *to = (char *)a->dst + s.at;
        if (S & REDUCES && taking) store_user(to, sum, s.valid, alignment(to));
        s = next;
        pair_next(v.pair, stride);
        if (s.valid > 0) hop_ll_send<S, N>(r, s.at / 8, v, s);
    }
}
template <int S, int T, int N> DEV void body_hop_ll(run &r, hop_words<S, N> &first) {
    send_first(r, first);
    by_op<S & REDUCES && HOT(T)>(r.a->op, [&](auto op) { hop_ll<S, T, N, op.OP>(r, first); });
}

#endif
