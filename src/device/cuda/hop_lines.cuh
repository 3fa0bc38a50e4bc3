/* hop_lines.cuh - middle messages of every shape in lines (LL128): one hop, from who gives to who
 * takes. Buffers may be anywhere. GPU code: whole data warps run it.
 *
 * Shapes in which all give and all take use their places again, as ar_push does: item k+1 takes the
 * place of item k-3; by then this warp has read item k-1 of the same warp of every peer, and the
 * peer sent that after it had read our item k-3.
 *
 * With a root somebody gives and hears nothing, so that proof does not hold. There a call is one
 * item (SYMM_CAP_LINES: plan_gpu.c makes a warp's share as long as it must be), and no place is
 * used twice in a kernel. */
#ifndef SYMM_CUDA_HOP_LINES_CUH_
#define SYMM_CUDA_HOP_LINES_CUH_

#include "lines.cuh"
#include "shape.cuh"

#define ROOTED(S) ((S) & (ROOT_GIVES | ROOT_TAKES))

template <int S>
DEV void load_part_line(const symm_args *a, uint32_t (&v)[4], int p, uint64_t at, const piece &m) {
    const char *base = (const char *)a->src + part_for<S>(a, p);
    load_line(v, base, at, part_bytes(a), m, alignment(base));
}

/* Takers whose lines are loaded together, if each has one of its own: as many as the registers hold
 * beside the rest. The loads are volatile, so nobody but the source can bring them together. */
template <int S, int N> constexpr DEV int load_group(void) {
    return !(S & SRC_EACH) || !N ? 1 : N < 6 ? N - 1 : 4;
}

/* Item k of each part to its taker. */
template <int S, int N> DEV void hop_item_send(run &r, const warp_work &w, uint32_t k) {
    const symm_args *a = r.a;
    const unsigned lines = lines_of(w, k, part_bytes(a));
    const uint64_t flag = line_flag(r, k);
    constexpr int group = load_group<S, N>();
    const int count = takers<S, N>(a);
    if (!count) return;
#pragma unroll 1
    for (unsigned j = 0; j < lines; j++) {
        const uint64_t place = line_at(w, k, j), at = data_at(w, k, j);
        uint32_t v[group][4];
        if (!(S & SRC_EACH)) load_part_line<S>(a, v[0], 0, at, w.mine);
#pragma unroll 2
        for (int q = 1; q <= count; q += group) {
#pragma unroll
            for (int i = 0; S & SRC_EACH && i < group; i++)
                if (q + i <= count) load_part_line<S>(a, v[i], taker<S, N>(a, q + i), at, w.mine);
#pragma unroll
            for (int i = 0; i < group; i++)
                if (q + i <= count)
                    line_put(line_slot(r, taker<S, N>(a, q + i), 0, a->rank) + place,
                             line_pack(v[i], w.mine.flags, flag), w.mine.flags);
        }
    }
}

/* Line j of the parts of ranks [from, from + G), together. 1: leave. */
template <int S, int G>
DEV int hop_lines_copy(run &r, const warp_work &w, uint32_t k, unsigned j, int from) {
    const symm_args *a = r.a;
    uint4 v[G];
    if (line_gather(r, w, k, j, 0, from, v)) return 1;
#pragma unroll
    for (int i = 0; i < G; i++) {
        char *to = (char *)a->dst + part_from<S>(a, from + i);
        uint32_t x[4];
        if (from + i == a->rank) continue;
        to_words(x, v[i]);
        store_line(to, x, data_at(w, k, j), part_bytes(a), w.mine, alignment(to));
    }
    return 0;
}
/* Line j of item k of every giver, copied out. 1: leave. */
template <int S, int N> DEV int hop_line_copy(run &r, const warp_work &w, uint32_t k, unsigned j) {
    const symm_args *a = r.a;
    constexpr int group = line_group<N>();
    if (N > 2 && !(S & ROOT_GIVES)) {
#pragma unroll 1
        for (int from = 0; from < N; from += group)
            if (hop_lines_copy<S, group>(r, w, k, j, from)) return 1;
        return 0;
    }
    const int count = givers<S, N>(a);
#pragma unroll 1
    for (int q = 1; q <= count; q++) {
        const int p = giver<S, N>(a, q);
        char *to = (char *)a->dst + part_from<S>(a, p);
        uint32_t v[4];
        if (line_recv(r, w, k, j, 0, p, v)) return 1;
        store_line(to, v, data_at(w, k, j), part_bytes(a), w.mine, alignment(to));
    }
    return 0;
}
/* The own part of an item, while the links work. */
template <int S> DEV void hop_item_own(const symm_args *a, const warp_work &w, uint32_t k) {
    char *own = own_target<S>(a);
    const unsigned lines = own ? lines_of(w, k, part_bytes(a)) : 0;
    uint32_t v[4];
#pragma unroll 2
    for (unsigned j = 0; j < lines; j++) {
        load_part_line<S>(a, v, a->rank, data_at(w, k, j), w.mine);
        store_line(own, v, data_at(w, k, j), part_bytes(a), w.mine, alignment(own));
    }
}
/* Item k of all givers. In place is safe: the lanes that store a line of the result are those that
 * have loaded what was there. 1: leave. */
template <int S, int T, int N, int OP>
DEV int hop_item_take(run &r, const warp_work &w, uint32_t k) {
    const symm_args *a = r.a;
    const uint64_t bytes = part_bytes(a);
    const unsigned lines = lines_of(w, k, bytes);
#pragma unroll 1
    for (unsigned j = 0; j < lines; j++) {
        if (!(S & REDUCES)) {
            if (hop_line_copy<S, N>(r, w, k, j)) return 1;
            continue;
        }
        uint32_t own[4], sum[4];
        load_part_line<S>(a, own, a->rank, data_at(w, k, j), w.mine);
        if (line_reduce<T, N, OP>(r, w, k, j, own, sum)) return 1;
        store_line((char *)a->dst, sum, data_at(w, k, j), bytes, w.mine, alignment(a->dst));
    }
    return 0;
}

template <int S, int T, int N, int OP> DEV void hop_lines(run &r) {
    const symm_args *a = r.a;
    const warp_work w = warp_of(a, ROOTED(S) ? 1u : PUSH_PLACES);
    const int taking = takes<S>(a, a->rank);
    if (S & REDUCES && OP == ANY_OP && taking && warp_scalars_wait(r)) return;
    hop_item_send<S, N>(r, w, 0);
    for (uint32_t k = 0; data_at(w, k, 0) < part_bytes(a); k++) {
        if (!ROOTED(S)) hop_item_send<S, N>(r, w, k + 1);
        hop_item_own<S>(a, w, k);
        if (taking && hop_item_take<S, T, N, OP>(r, w, k)) return;
        if (ROOTED(S)) return;
    }
}
template <int S, int T, int N> DEV void body_hop_lines(run &r) {
    if (S & REDUCES && HOT(T) && r.a->op == SYMM_OP_SUM)
        hop_lines<S, T, N, HOT(T) ? SYMM_OP_SUM : ANY_OP>(r);
    else
        hop_lines<S, T, N, ANY_OP>(r);
}

#endif
