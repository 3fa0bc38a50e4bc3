/* staged.cuh - all_reduce of large messages in windows, by stores alone. Only bytes at the ends of
 * the message are loaded over a link, because a load is slower than a store. GPU code: the data
 * threads run it; the last warp of each CTA posts.
 *
 * Every rank owns a slice of the message. For each piece a CTA
 *   1. stores its piece of each slice into the staging of the slice's owner,
 *   2. posts that it has (post: a release),
 *   3. waits for the posts of the same CTA of all peers (posts_wait),
 *   4. reduces what they have staged here, and stores the result into all windows.
 * A release waits until the CTA's stores have arrived. So there is one post for all warps of a CTA,
 * pieces are sent one ahead, and the last warp posts, which has nothing else to do: the others go
 * on at once. It comes to their next barrier when its post has left.
 *
 * A place of staging is used again after STAGE_PLACES pieces: piece k may take the place of piece
 * k-4. A warp sends piece k after it has reduced piece k-2, so after its peer's post of k-2. Before
 * that post all warps of the peer's CTA had met, each after its reduction of piece k-4.
 *
 * The next call need not wait, whatever its grid: a kernel ends only after each of its CTAs has the
 * arrival word of the same CTA of every peer. That word is released after the CTA's last read of
 * staging and of posts. A kernel that leaves early lets no later kernel past trade_places. */
#ifndef SYMM_CUDA_STAGED_CUH_
#define SYMM_CUDA_STAGED_CUH_

#include "direct.cuh"

#define STAGE_PLACES SYMM_GPU_STAGE_PLACES

struct share {                  /* a warp's */
    unsigned lane, warp, warps; /* of those of the CTA that have staging */
    unsigned ctas;              /* that have some: the first */
    unsigned phases; /* kinds of pieces in staging: what is to be reduced; results (relayed.cuh) */
    unsigned rows;   /* of a warp, piece and phase */
    unsigned lead;   /* bytes of the message before its first multiple of 16: of no slice */
    uint64_t bytes, each; /* of the message behind them; of a slice */
    slice mine;
};

DEV slice slice_at(const share &w, int p) {
    slice s = slice_of(w.bytes, w.each, p);
    s.at += w.lead, s.end += w.lead;
    return s;
}
DEV share share_of(const symm_args *a, unsigned phases, unsigned lead) {
    share w;
    w.phases = phases;
    w.lane = threadIdx.x % 32u;
    w.warp = threadIdx.x / 32u;
    w.warps = a->gpu.stage_warps;
    w.ctas = a->gpu.stage_ctas;
    w.rows = a->gpu.stage_rows / phases;
    w.lead = lead;
    w.bytes = a->count * a->esize - lead;
    w.each = slice_bytes(w.bytes, a->nranks);
    w.mine = slice_at(w, a->rank);
    return w;
}
/* Pieces of this CTA: the same for all its warps that have staging, and on every rank. */
DEV uint32_t pieces_of(const share &w) {
    const uint64_t piece = (uint64_t)w.warps * w.rows * ROW, first = blockIdx.x * piece,
                   round = w.ctas * piece;
    return w.warp < w.warps && blockIdx.x < w.ctas && first < w.each
               ? (uint32_t)((w.each - first + round - 1) / round)
               : 0;
}
/* This lane's 16 bytes of row j of the warp's part of piece k: in a slice, and in the staging of
 * `rank` for what `source` sends. */
DEV uint64_t row_at(const share &w, uint32_t k, unsigned j) {
    const uint64_t part = ((uint64_t)k * w.ctas + blockIdx.x) * w.warps + w.warp;
    return (part * w.rows + j) * ROW + w.lane * 16;
}
DEV char *staged_at(const symm_args *a, const share &w, int rank, int source, uint32_t k,
                    unsigned j, unsigned phase = 0) {
    const unsigned slot = (unsigned)(source - (source > rank)); /* none for itself */
    const uint64_t place = ((uint64_t)slot * w.phases + phase) * STAGE_PLACES + k % STAGE_PLACES,
                   part = (place * w.ctas + blockIdx.x) * w.warps + w.warp;
    return flat(a, rank, a->scratch.gpu.stage_off + (part * w.rows + j) * ROW + w.lane * 16);
}

/* Rows that a warp of N ranks' kernel has under way at once: as the registers allow. wide: four of
 * one peer. */
constexpr DEV int rows_at_once(int n, int wide) {
    return n == 2 ? (wide ? 4 : 2) : n == 4 ? 2 : 1;
}
/* Of rows that are reduced: narrow types are reduced in wider ones, and any reduction takes more
 * registers than the sum. */
template <int T, int OP> constexpr DEV int wide_rows(void) {
    return OP != ANY_OP && elem<T>::BYTES == 4;
}

/* U rows of piece k of every peer's slice to that peer; all loads before the first store. */
template <int N, int U>
DEV void rows_send(const symm_args *a, const share &w, uint32_t k, unsigned j) {
    const int n = N ? N : a->nranks;
    const uint64_t at = row_at(w, k, j);
    uint4 v[N ? N : 1][U];
#pragma unroll
    for (int q = 1; q < N; q++) {
        const slice s = slice_at(w, peer_of(a->rank, n, q));
#pragma unroll
        for (int i = 0; i < U; i++)
            if (s.at + at + i * ROW + 16 <= s.end)
                v[q][i] = load16((const char *)a->src + s.at + at + i * ROW);
    }
#pragma unroll
    for (int q = 1; q < n; q++) {
        const int p = peer_of(a->rank, n, q);
        const slice s = slice_at(w, p);
        char *to = staged_at(a, w, p, a->rank, k, j);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (s.at + at + i * ROW + 16 <= s.end)
                *(uint4 *)(to + i * ROW) =
                    N ? v[N ? q : 0][i] : load16((const char *)a->src + s.at + at + i * ROW);
    }
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* The data warps that have staging and the last warp, between the send of a turn and its post. */
DEV int turn_meet(unsigned warps, int left) {
    return meet(2, (warps + 1) * 32u, left);
}
/* By all data threads of a kernel that posts, once, whatever way it goes; pairs with post_turns.
 * 1: leave. */
DEV int posts_begin(run &r, places &at, uint32_t posts, int left) {
    if (threadIdx.x == 0) at.posts = posts;
    if (meet(3, blockDim.x, left)) r.left = 1;
    return r.left;
}
/* By the data threads of a kernel behind copies (is_copied): nothing is posted. The arrival says
 * that this rank loads from its peers no more: its copies have ended before this kernel began. */
DEV void copies_end(run &r, places &at) {
    if (posts_begin(r, at, 0, r.over)) return;
    r.loads = 1;
    arrive_and_wait(r);
}
/* By the last warp, after a barrier of all warps that sent: the release covers their stores. Pairs
 * with posts_wait. */
DEV void post(const run &r, uint32_t k) {
    const symm_args *a = r.a;
    for (int q = 1 + (int)(threadIdx.x % 32u); q < a->nranks; q += 32)
        give8(&ctl_of(a, peer_of(a->rank, a->nranks, q))->posted[blockIdx.x][a->rank],
              (uint64_t)r.epoch << 32 | (k + 1));
}
/* The last warp of a kernel that posts. It waits for nobody but the data warps, which bring it
 * along when they leave. */
DEV void post_turns(run &r, places &at) {
    say_signature(r);
    if (meet(3, blockDim.x, 0)) return;
    for (uint32_t k = 0; at.posts && k <= at.posts; k++) {
        if (turn_meet(r.a->gpu.stage_warps, 0)) return;
        if (k < at.posts) post(r, k);
    }
}
/* Every peer's post of piece k or a later one, a lane per peer. 1: this warp is leaving: also where
 * all have posted and one has left since, whose windows are its own again. */
DEV int posts_wait(run &r, const share &w, uint32_t k) {
    const symm_args *a = r.a;
    look_over(r); /* its time is that of the first poll */
    for (int q = 1 + (int)w.lane; q < a->nranks && !r.left; q += 32) {
        const int p = peer_of(a->rank, a->nranks, q);
        uint32_t polls = 0;
        uint64_t since = 0, word;
        while (word = take8(&r.ctl->posted[blockIdx.x][p]),
               (uint32_t)(word >> 32) != r.epoch || (uint32_t)word <= k)
            if (poll_again(r, polls, p, SYMM_STAGE_POST, since)) break;
    }
    r.left = __any_sync(0xffffffffu, r.left | r.over);
    /* A vote orders no memory. After this the other lanes may read, and overwrite, what one lane
     * has acquired. */
    __syncwarp();
    return r.left;
}

/* Where rank p's rows of the own slice are: the own ones in the source, at `from`. */
DEV const char *rows_of(const symm_args *a, const share &w, int p, uint64_t from, uint32_t k,
                        unsigned j) {
    return p == a->rank ? (const char *)a->src + from : staged_at(a, w, a->rank, p, k, j);
}

/* U rows of piece k of the own slice, in rank order. */
template <int T, int N, int OP, int U>
DEV void rows_sum(const run &r, const share &w, uint32_t k, unsigned j, uint64_t from,
                  uint4 (&out)[U]) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    reduction<T, 4, OP> sum[U];
    uint4 v[N ? N : 1][U];
#pragma unroll
    for (int p = 0; p < N; p++) {
        const char *rows = rows_of(a, w, p, from, k, j);
#pragma unroll
        for (int i = 0; i < U; i++)
            if (from + i * ROW + 16 <= w.mine.end) v[p][i] = load_remote(rows + i * ROW);
    }
#pragma unroll
    for (int p = 0; p < n; p++) {
        const char *rows = rows_of(a, w, p, from, k, j);
#pragma unroll
        for (int i = 0; i < U; i++) {
            uint32_t x[4] = {0, 0, 0, 0};
            if (N)
                to_words(x, v[N ? p : 0][i]);
            else if (from + i * ROW + 16 <= w.mine.end)
                to_words(x, load_remote(rows + i * ROW));
            if (p == 0)
                sum[i].first((int)a->op, x, scale_of<T, OP>(r, p));
            else
                sum[i].step((int)a->op, x, scale_of<T, OP>(r, p));
        }
    }
#pragma unroll
    for (int i = 0; i < U; i++) {
        uint32_t x[4];
        sum[i].last((int)a->op, n, x);
        out[i] = make_uint4(x[0], x[1], x[2], x[3]);
    }
}
template <int T, int N, int OP, int U>
DEV void rows_reduce(const run &r, const share &w, const places &at, uint32_t k, unsigned j) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    const uint64_t from = w.mine.at + row_at(w, k, j);
    uint4 out[U];
    rows_sum<T, N, OP, U>(r, w, k, j, from, out);
#pragma unroll
    for (int q = 0; q < n; q++) {
        char *to = target_of(a, at, peer_of(a->rank, n, q)) + from;
#pragma unroll
        for (int i = 0; i < U; i++)
            if (from + i * ROW + 16 <= w.mine.end) *(uint4 *)(to + i * ROW) = out[i];
    }
}

/* ---- the ends of what a rank reduces --------------------------------------------------------- */

/* The bytes before the first row, from `lead_at` on, and behind the last, from `tail_at` on. All
 * begin and end between elements, and these are aligned as their type is. */
struct ends {
    uint64_t lead_at, tail_at;
    unsigned lead, tail; /* bytes */
};
template <int BYTES> DEV void load_element(uint32_t *w, const char *p) {
    if (BYTES == 1) w[0] = byte_at(p);
    if (BYTES == 2) w[0] = pair_at(p);
    if (BYTES == 4) w[0] = load4(p);
    if (BYTES == 8) {
        const uint2 v = load8(p);
        w[0] = v.x, w[1] = v.y;
    }
}
/* Element `from` of all ranks, reduced. Of N ranks all are under way at once. */
template <int T, int N, int OP, int WORDS>
DEV void element_sum(const run &r, const places &at, uint64_t from, uint32_t (&out)[WORDS]) {
    const symm_args *a = r.a;
    const int n = N ? N : a->nranks;
    reduction<T, WORDS, OP> sum;
    uint32_t x[N ? N : 1][WORDS];
#pragma unroll
    for (int p = 0; p < (N ? N : 1); p++)
        load_element<elem<T>::BYTES>(x[p], source_of(a, at, p) + from);
    sum.first((int)a->op, x[0], scale_of<T, OP>(r, 0));
#pragma unroll
    for (int p = 1; p < n; p++) {
        if (!N) load_element<elem<T>::BYTES>(x[0], source_of(a, at, p) + from);
        sum.step((int)a->op, x[N ? p : 0], scale_of<T, OP>(r, p));
    }
    sum.last((int)a->op, n, out);
}
/* By CTA 0, in which a thread has an element of either end. `to` is where what is at lead_at goes;
 * null: into all windows, to the same place. Sources are announced, and stay as they are until
 * CTA 0 has sent its arrival words. Who has aborted tells this rank before its memory is its
 * user's, so that what was loaded there is no result (give_reason). */
template <int T, int N, int OP>
DEV void reduce_ends(run &r, const places &at, const ends &e, char *to) {
    const unsigned step = elem<T>::BYTES;
    if (blockIdx.x) return;
#pragma unroll 1
    for (unsigned i = threadIdx.x * step; i < e.lead + e.tail; i += data_threads() * step) {
        const uint64_t from = i < e.lead ? e.lead_at + i : e.tail_at + i - e.lead;
        uint32_t sum[step > 4 ? 2 : 1];
        look_over(r);
        element_sum<T, N, OP>(r, at, from, sum);
        if (r.over) {
            r.left = 1;
            return;
        }
        for (int p = 0; p < (to ? 1 : r.a->nranks); p++) {
            char *place = to ? to + (from - e.lead_at) : target_of(r.a, at, p) + from;
#pragma unroll
            for (unsigned b = 0; b < step; b++) place[b] = (char)(sum[b / 4] >> (b % 4 * 8));
        }
    }
}
/* All_reduce: lead and tail of the slices. */
template <int T, int N, int OP>
DEV void reduce_slice_ends(run &r, const places &at, const share &w) {
    const unsigned lead = r.a->rank ? 0 : (unsigned)w.lead,
                   tail = (unsigned)(w.mine.end - w.mine.at) % 16u;
    if (!r.left) reduce_ends<T, N, OP>(r, at, {0, w.mine.end - tail, lead, tail}, 0);
}

/* In place is safe. A slice's bytes at a rank are overwritten by the slice's owner, after this
 * rank's post, which follows its loads of them. Its own slice is overwritten by the thread that
 * has loaded it. Warps without staging wait at the end. When a rank has left, each warp of a
 * peer stores at most its part of the piece that it is at into that rank's windows, and CTA 0
 * the ends of the message behind its last: before each piece it looks (posts_wait). */
template <int T, int N, int OP> DEV void ar_staged(run &r, places &at) {
    const int SENT = rows_at_once(N, 1), SUMMED = rows_at_once(N, wide_rows<T, OP>());
    const symm_args *a = r.a;
    const share w = share_of(a, 1, lead_of(a->src, a->count * a->esize));
    const uint32_t pieces = pieces_of(w);
    if (posts_begin(r, at, pieces, OP == ANY_OP && scalars_wait(r))) return;
    for (uint32_t k = 0; pieces && k <= pieces; k++) {
        for (unsigned j = 0; k < pieces && !r.left && j < w.rows; j += SENT)
            rows_send<N, SENT>(a, w, k, j);
        if (turn_meet(w.warps, r.left)) {
            r.left = 1;
            break;
        }
        if (!k || posts_wait(r, w, k - 1)) continue;
        for (unsigned j = 0; j < w.rows; j += SUMMED)
            rows_reduce<T, N, OP, SUMMED>(r, w, at, k - 1, j);
    }
    reduce_slice_ends<T, N, OP>(r, at, w);
    arrive_and_wait(r);
}

#endif
