/* shape.cuh - who hands what to whom in a collective whose data crosses once: all_gather,
 * reduce_scatter, alltoall, broadcast, reduce, gather, scatter, and all_reduce in one shot. A shape
 * is a constant of the kernel; the root is an argument. The same description as in host/one_hop.c.
 * GPU code, any thread.
 *
 * A buffer holds one part, or one for each rank. The part of giver p for taker q is part q of p's
 * source if that has one for each, and becomes part p of q's destination if that has one for each.
 * A rank that does not give, or does not take, exchanges signatures with all like any other
 * (frame.cuh), so the proof of double buffering holds for all shapes. What is used again inside a
 * call needs more: each body says how a rank that only gives learns that a place is free. */
#ifndef SYMM_CUDA_SHAPE_CUH_
#define SYMM_CUDA_SHAPE_CUH_

#include "frame.cuh"

enum {
    SRC_EACH = 1, /* the source has a part for each rank */
    DST_EACH = 2, /* the destination has one for each */
    ROOT_GIVES = 4,
    ROOT_TAKES = 8, /* nobody but the root does */
    REDUCES = 16    /* what comes is reduced, in rank order */
};
enum {
    ALL_REDUCE = REDUCES,
    ALL_GATHER = DST_EACH,
    REDUCE_SCATTER = SRC_EACH | REDUCES,
    ALLTOALL = SRC_EACH | DST_EACH,
    BROADCAST = ROOT_GIVES,
    REDUCE = ROOT_TAKES | REDUCES,
    GATHER = DST_EACH | ROOT_TAKES,
    SCATTER = SRC_EACH | ROOT_GIVES
};

DEV uint64_t part_bytes(const symm_args *a) {
    return a->count * a->esize;
}
DEV int is_root(const symm_args *a, int rank) {
    return rank == a->gpu.root;
}
template <int S> DEV int gives(const symm_args *a, int rank) {
    return !(S & ROOT_GIVES) || is_root(a, rank);
}
template <int S> DEV int takes(const symm_args *a, int rank) {
    return !(S & ROOT_TAKES) || is_root(a, rank);
}
/* Where the part for rank q begins in a source, and that of p in a destination. */
template <int S> DEV uint64_t part_for(const symm_args *a, int q) {
    return S & SRC_EACH ? (unsigned)q * part_bytes(a) : 0;
}
template <int S> DEV uint64_t part_from(const symm_args *a, int p) {
    return S & DST_EACH ? (unsigned)p * part_bytes(a) : 0;
}

/* Other ranks that take what this one gives, and the q-th of them, q = 1, 2, ... */
template <int S, int N> DEV int takers(const symm_args *a) {
    if (!gives<S>(a, a->rank)) return 0;
    return S & ROOT_TAKES ? !is_root(a, a->rank) : (N ? N : a->nranks) - 1;
}
template <int S, int N> DEV int taker(const symm_args *a, int q) {
    return S & ROOT_TAKES ? a->gpu.root : peer_of(a->rank, N ? N : a->nranks, q);
}
/* Other ranks that give what this one takes, and the q-th of them. */
template <int S, int N> DEV int givers(const symm_args *a) {
    if (!takes<S>(a, a->rank)) return 0;
    return S & ROOT_GIVES ? !is_root(a, a->rank) : (N ? N : a->nranks) - 1;
}
template <int S, int N> DEV int giver(const symm_args *a, int q) {
    return S & ROOT_GIVES ? a->gpu.root : peer_of(a->rank, N ? N : a->nranks, q);
}
/* The most of them that a rank can have, for loops that are unrolled: 0 not known. */
template <int S, int N> constexpr DEV int most_takers(void) {
    return S & ROOT_TAKES ? 1 : N ? N - 1 : 0;
}
template <int S, int N> constexpr DEV int most_givers(void) {
    return S & ROOT_GIVES ? 1 : N ? N - 1 : 0;
}

/* The own part, where it does not take the way of all others: where it is and where it goes.
 * NULL: there is none, or it is there. */
template <int S> DEV char *own_target(const symm_args *a) {
    char *to = (char *)a->dst + part_from<S>(a, a->rank);
    const char *from = (const char *)a->src + part_for<S>(a, a->rank);
    return S & REDUCES || !gives<S>(a, a->rank) || !takes<S>(a, a->rank) || to == from ? 0 : to;
}
template <int S> DEV const char *own_source(const symm_args *a) {
    return (const char *)a->src + part_for<S>(a, a->rank);
}

#endif
