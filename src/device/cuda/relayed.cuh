/* relayed.cuh - large messages in buffers at any address, in windows or not. Data goes through
 * staging in both directions, or in lines where these are faster (plan_gpu.c: smaller messages).
 * GPU code: the data threads run it.
 *
 * all_reduce is that of staged.cuh with one difference: a rank stores the results of its slice into
 * its own buffer and into every peer's staging, beside the parts for the peer's own slice. The peer
 * copies them out. No rank uses another rank's buffer. A rank whose buffer is not aligned moves
 * smaller pieces; its peers do not.
 *
 * One post stands for parts and results. In turn k a CTA sends piece k, posts k, waits for the
 * posts k-1, reduces piece k-1 and takes the results of piece k-3. A peer stored those in its turn
 * k-2, before it posted k-1. Results of piece k+4 take the place of those of piece k: their owner
 * stores them in its turn k+5, after our post k+4. We made that post when all our warps had ended
 * turn k+3, in which they took piece k. What is sent, and the next call, are safe as in
 * staged.cuh.
 *
 * all_gather sends pieces of the rank's part to all peers, and in turn k takes the peers' pieces
 * k-1. It is safe for the same reasons, with a take in place of each reduction. */
#ifndef SYMM_CUDA_RELAYED_CUH_
#define SYMM_CUDA_RELAYED_CUH_

#include "hop_lines.cuh"
#include "pull.cuh"

enum { PHASE_PARTS, PHASE_RESULTS, PHASES };

/* Bytes that there are of the 16 at `from` of row j; below 1: none. */
DEV int64_t has_row(const share &w, unsigned j, uint64_t from, const slice &s) {
    return j < w.rows ? (int64_t)(s.end - from) : 0;
}
DEV void stage(char *to, const uint32_t (&v)[4]) {
    *(uint4 *)to = make_uint4(v[0], v[1], v[2], v[3]);
}

/* Copies U rows of what every peer has staged here of piece k of its slice into the result. */
template <int N, int U>
DEV void relay_take(const symm_args *a, const share &w, uint32_t k, unsigned j, unsigned phase) {
    const int n = N ? N : a->nranks;
    uint4 v[N ? N : 1][U];
#pragma unroll
    for (int q = 1; q < N; q++)
#pragma unroll
        for (unsigned i = 0; i < U; i++)
            if (j + i < w.rows)
                v[q][i] =
                    load_remote(staged_at(a, w, a->rank, peer_of(a->rank, n, q), k, j + i, phase));
#pragma unroll
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        const slice s = slice_of(w.bytes, w.each, p);
#pragma unroll
        for (unsigned i = 0; i < U; i++) {
            const uint64_t from = s.at + row_at(w, k, j + i);
            const int64_t valid = has_row(w, j + i, from, s);
            char *to = (char *)a->dst + from;
            uint32_t x[4];
            if (valid <= 0) continue;
            to_words(x, N ? v[N ? q : 0][i]
                          : load_remote(staged_at(a, w, a->rank, p, k, j + i, phase)));
            store_user(to, x, valid, alignment(to));
        }
    }
}

/* ---- all_reduce ------------------------------------------------------------------------------ */

/* U rows of piece k of every peer's slice to that peer; the loads of all of them before the first
 * store. */
template <int N, int U>
DEV void relay_send(const symm_args *a, const share &w, uint32_t k, unsigned j, int align) {
    const int n = N ? N : a->nranks;
    uint32_t v[N ? N : 1][U][4];
#pragma unroll
    for (int q = 1; q < N; q++) {
        const slice s = slice_of(w.bytes, w.each, peer_of(a->rank, n, q));
#pragma unroll
        for (unsigned i = 0; i < U; i++) {
            const uint64_t from = s.at + row_at(w, k, j + i);
            load_user(v[q][i], (const char *)a->src + from, has_row(w, j + i, from, s), align);
        }
    }
#pragma unroll
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        const slice s = slice_of(w.bytes, w.each, p);
#pragma unroll
        for (unsigned i = 0; i < U; i++) {
            const uint64_t from = s.at + row_at(w, k, j + i);
            const int64_t valid = has_row(w, j + i, from, s);
            uint32_t(&x)[4] = v[N ? q : 0][i];
            if (valid <= 0) continue;
            if (!N) load_user(x, (const char *)a->src + from, valid, align);
            stage(staged_at(a, w, p, a->rank, k, j + i, PHASE_PARTS), x);
        }
    }
}

/* Row j of piece k of the own slice, in rank order; parts: of the others. */
template <int T, int N>
DEV void relay_sum(const run &r, const share &w, uint32_t k, unsigned j, const uint32_t (&own)[4],
                   const uint4 (&parts)[N ? N : 1], uint32_t (&out)[4]) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    reduction<T, 4, ANY_OP> sum;
#pragma unroll
    for (int p = 0; p < n; p++) {
        uint32_t x[4] = {own[0], own[1], own[2], own[3]};
        if (p != a->rank)
            to_words(x, N ? parts[N ? p : 0]
                          : load_remote(staged_at(a, w, a->rank, p, k, j, PHASE_PARTS)));
        if (p == 0)
            sum.first((int)a->op, x, scale_of<T, ANY_OP>(r, p));
        else
            sum.step((int)a->op, x, scale_of<T, ANY_OP>(r, p));
    }
    sum.last((int)a->op, n, out);
}
/* U rows of piece k of the own slice: into the own buffer and every peer's staging. */
template <int T, int N, int U>
DEV void relay_reduce(const run &r, const share &w, uint32_t k, unsigned j, int in, int out) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    uint4 parts[U][N ? N : 1];
    uint32_t own[U][4], sum[4];
#pragma unroll
    for (unsigned i = 0; i < U; i++) {
        const uint64_t from = w.mine.at + row_at(w, k, j + i);
        const int64_t valid = has_row(w, j + i, from, w.mine);
#pragma unroll
        for (int p = 0; p < N; p++)
            if (p != a->rank && valid > 0)
                parts[i][p] = load_remote(staged_at(a, w, a->rank, p, k, j + i, PHASE_PARTS));
        load_user(own[i], (const char *)a->src + from, valid, in);
    }
#pragma unroll
    for (unsigned i = 0; i < U; i++) {
        const uint64_t from = w.mine.at + row_at(w, k, j + i);
        const int64_t valid = has_row(w, j + i, from, w.mine);
        if (valid <= 0) continue;
        relay_sum<T, N>(r, w, k, j + i, own[i], parts[i], sum);
        store_user((char *)a->dst + from, sum, valid, out);
#pragma unroll
        for (int q = 1; q < n; q++)
            stage(staged_at(a, w, peer_of(a->rank, n, q), a->rank, k, j + i, PHASE_RESULTS), sum);
    }
}

/* In place is safe: the thread that sends or loads 16 bytes is the one that overwrites them,
 * afterwards. */
template <int T, int N> DEV void ar_relayed(run &r, places &at) {
    const unsigned U = N == 2 || N == 4 ? 2 : 1;
    const symm_args *a = r.a;
    const share w = share_of(a, PHASES, 0);
    const int in = alignment(a->src), out = alignment(a->dst);
    const uint32_t pieces = pieces_of(w);
    if (posts_begin(r, at, pieces ? pieces + 2 : 0, scalars_wait(r))) return;
    for (uint32_t k = 0; pieces && k < pieces + 3; k++) {
        for (unsigned j = 0; k < pieces && !r.left && j < w.rows; j += U)
            relay_send<N, U>(a, w, k, j, in);
        if (turn_meet(w.warps, r.left)) {
            r.left = 1;
            break;
        }
        if (!k || posts_wait(r, w, k - 1)) continue;
        for (unsigned j = 0; k <= pieces && j < w.rows; j += U)
            relay_reduce<T, N, U>(r, w, k - 1, j, in, out);
        for (unsigned j = 0; k >= 3 && j < w.rows; j += U)
            relay_take<N, U>(a, w, k - 3, j, PHASE_RESULTS);
    }
    arrive_and_wait(r);
}

/* ---- all_gather ------------------------------------------------------------------------------ */

/* U rows of piece k of the own part to every peer and into the own result. */
template <int N, int U>
DEV void part_send(const symm_args *a, const share &w, uint32_t k, unsigned j) {
    const int n = N ? N : a->nranks;
    char *own = (char *)a->dst + w.mine.at;
    uint32_t v[U][4];
#pragma unroll
    for (unsigned i = 0; i < U; i++) {
        const uint64_t from = row_at(w, k, j + i);
        load_user(v[i], (const char *)a->src + from, has_row(w, j + i, w.mine.at + from, w.mine),
                  alignment(a->src));
    }
#pragma unroll
    for (unsigned i = 0; i < U; i++) {
        const uint64_t from = row_at(w, k, j + i);
        const int64_t valid = has_row(w, j + i, w.mine.at + from, w.mine);
        if (valid <= 0) continue;
#pragma unroll
        for (int q = 1; q < n; q++)
            stage(staged_at(a, w, peer_of(a->rank, n, q), a->rank, k, j + i, PHASE_PARTS), v[i]);
        if (own != a->src) store_user(own + from, v[i], valid, alignment(own));
    }
}

template <int N> DEV void ag_relayed(run &r, places &at) {
    const unsigned SENT = N ? 4 : 1, TAKEN = N == 2 || N == 4 ? 2 : 1;
    const symm_args *a = r.a;
    share w = share_of(a, 1, 0);
    w.each = w.bytes; /* a slice of the destination is a rank's part */
    w.bytes *= (unsigned)a->nranks;
    w.mine = slice_of(w.bytes, w.each, a->rank);
    const uint32_t pieces = pieces_of(w);
    if (posts_begin(r, at, pieces, 0)) return;
    for (uint32_t k = 0; pieces && k <= pieces; k++) {
        for (unsigned j = 0; k < pieces && !r.left && j < w.rows; j += SENT)
            part_send<N, SENT>(a, w, k, j);
        if (turn_meet(w.warps, r.left)) {
            r.left = 1;
            break;
        }
        if (!k || posts_wait(r, w, k - 1)) continue;
        for (unsigned j = 0; j < w.rows; j += TAKEN)
            relay_take<N, TAKEN>(a, w, k - 1, j, PHASE_PARTS);
    }
    arrive_and_wait(r);
}

/* ---- large messages: straight between windows, or not ---------------------------------------- */

/* Where only the results are in windows, or a part begins elsewhere in them than its source does,
 * a part is stored by the rows of each result. */
template <int N> DEV void body_ag_direct(run &r, places &at) {
    if (is_copied(r)) {
        copies_end(r, at);
        return;
    }
    say_offsets<1>(r);
    /* Loaded while the peers' offsets are on the way. */
    const ag_part g = ag_part_of<N>(r.a);
    uint4 first[AG_ROWS] = {};
    ag_load(first, g, first_chunk(g.warps, g.jobs));
    const int way = hear_places(r, at, part_bytes(r.a), 1), lines = r.a->gpu.line_warps != 0,
              stores = !way && !lines && targets_in_windows<ALL_GATHER>(r.a, at);
    if (!way && !lines && !stores) {
        ag_relayed<N>(r, at);
        return;
    }
    if (posts_begin(r, at, 0, way < 0)) return;
    if (way)
        ag_direct<N>(r, at, g, first);
    else if (stores)
        hop_direct<ALL_GATHER, N>(r, at);
    else if (has_lines(r.a))
        ag_push_late<N>(r);
}

/* Compiled once for all reductions, to keep the kernel small. The kernel for eight ranks has no
 * registers left for lines. */
template <int T, int N> DEV void ar_elsewhere(run &r, places &at) {
    if (N == 8 || !r.a->gpu.line_warps)
        ar_relayed<T, N>(r, at);
    else if (!posts_begin(r, at, 0, 0) && has_lines(r.a))
        ar_twoshot<T, N == 8 ? 0 : N, ANY_OP>(r);
}
/* Between windows: by loads where there is one peer and the message is not very large. */
template <int T, int N, int OP> DEV void ar_windows(run &r, places &at) {
    if (N == 2 && r.a->count * r.a->esize <= AR_PULL_MOST)
        ar_pull<T, OP>(r, at);
    else
        ar_staged<T, N, OP>(r, at);
}
template <int T, int N> DEV void body_ar_direct(run &r, places &at) {
    const int way = trade_places(r, at, 0, r.a->esize);
    if (way < 0)
        posts_begin(r, at, 0, 1);
    else if (!way)
        ar_elsewhere<T, N>(r, at);
    else
        by_op<HOT(T)>(r.a->op, [&](auto op) { ar_windows<T, N, op.OP>(r, at); });
}

#endif
