/* frame.cuh - entry and exit of every GPU kernel. GPU code: all threads run it.
 *
 * The last warp of CTA 0 stores {epoch, signature} to every peer, then waits for every peer's, and
 * compares. It does so beside the data warps; kernels that post (staged.cuh) have it post in
 * between. So in every collective each rank hears from each rank. The double buffering of scratch
 * rests on this barrier. The proof is that of signature.inl:
 *
 *   A rank writes epoch e into a peer's scratch of parity e & 1 only inside its kernel e. That
 *   kernel began after its kernel e-1 had ended, which had heard from the peer in epoch e-1. The
 *   peer spoke inside its kernel e-1, so its kernel e-2, the last that read this parity, had ended.
 *
 * Staging has no parity: staged.cuh says why it needs none. Within a kernel the same warp uses a
 * place of scratch again a fixed number of items later; each body says why the place is free. */
#ifndef SYMM_CUDA_FRAME_CUH_
#define SYMM_CUDA_FRAME_CUH_

#include "elem.cuh"

/* ---- entry and exit -------------------------------------------------------------------------- */

/* 1: this thread has data to move; 0: it is of the last warp, which is for the signatures. */
DEV int is_data(void) {
    return threadIdx.x < blockDim.x - 32;
}
DEV unsigned data_threads(void) {
    return blockDim.x - 32;
}

DEV run open_kernel(const symm_args &a) {
    run r;
    r.a = &a;
    r.ctl = ctl_of(&a, a.rank);
    uint32_t e = get4(&r.ctl->epoch[blockIdx.x]);
    r.left = r.loads = 0;
    look_over(r); /* awaited where a poll fails, and before the users' memory is written */
    r.epoch = e == 0xffffffffu ? 2u : e + 1u; /* never 0; the parity goes on */
    return r;
}

DEV uint64_t own_scalar(const symm_args *a) {
    if (!a->scalar_ptr) return a->scalar;
    uint64_t bits = 0;
    for (unsigned b = 0; b < a->esize; b++)
        bits |= (uint64_t)byte_at((const char *)a->scalar_ptr + b) << (8 * b);
    return bits;
}

/* A word of this epoch. A peer may be one epoch ahead, in the other place: in this one the word is
 * of this epoch or old. */
DEV int is_signature(const run &r, uint64_t word) {
    return (uint32_t)(word >> 32) == r.epoch;
}
/* Whether it is another call's. 1: leave. */
DEV int is_mismatch(run &r, int p, uint64_t word) {
    if ((uint32_t)word == r.a->sig) return 0;
    leave(r.a, r.epoch, symmMismatch, p, SYMM_STAGE_SIGNATURE);
    r.left = 1;
    return 1;
}
/* Waits for peer's signature and compares. 1: leave. acquires: what the peer has released by it
 * is there. */
template <int ACQUIRES> DEV int signature_differs(run &r, int p) {
    uint32_t polls = 0;
    uint64_t since = 0, word;
    while (!is_signature(r, word = get8(&r.ctl->inbox[p].sig[r.epoch & 1u])))
        if (poll_again(r, polls, p, SYMM_STAGE_SIGNATURE, since)) return 1;
    if (ACQUIRES) word = take8(&r.ctl->inbox[p].sig[r.epoch & 1u]);
    return is_mismatch(r, p, word);
}

/* By the last warp of every CTA, a lane per peer; that of CTA 0 has something to say. ORDERS: with
 * release and acquire, so that kernels after this one, on every rank, see what kernels before it
 * have stored on any rank. Other collectives do not need it: what they store is released or carries
 * its own flag. */
template <int ORDERS = 0> DEV void say_signature(run &r) {
    const symm_args *a = r.a;
    const unsigned lane = threadIdx.x & 31u, at = r.epoch & 1u;
    if (blockIdx.x || a->nranks == 1) return;
    const uint64_t scalar = a->op == SYMM_OP_PREMUL ? own_scalar(a) : 0;
    for (int p = (int)lane; p < a->nranks; p += 32) {
        if (p == a->rank) continue;
        symm_gpu_inbox *box = &ctl_of(a, p)->inbox[a->rank];
        const uint64_t word = (uint64_t)r.epoch << 32 | a->sig;
        if (ORDERS)
            give8(&box->sig[at], word); /* both pair with signature_differs */
        else
            put8(&box->sig[at], word);
        if (a->op == SYMM_OP_PREMUL) /* pairs with scalar_of */
            put16(&box->scalar[at],
                  make_uint4((uint32_t)scalar, r.epoch, (uint32_t)(scalar >> 32), r.epoch));
    }
}
/* Every peer's. */
template <int ORDERS> DEV void hear_signatures(run &r) {
    const symm_args *a = r.a;
    const unsigned lane = threadIdx.x & 31u;
    if (blockIdx.x || a->nranks == 1) return;
    for (int p = (int)lane; p < a->nranks; p += 32)
        if (p != a->rank && signature_differs<ORDERS>(r, p)) return;
}

/* premulsum: waits until every rank's factor is in the inbox; they come beside the signatures. 1:
 * leave. */
DEV int scalars_wait(run &r) {
    const symm_args *a = r.a;
    if (a->op != SYMM_OP_PREMUL || a->nranks == 1) return 0;
    for (int p = 0; p < a->nranks; p++) {
        uint32_t polls = 0;
        uint64_t since = 0;
        while (p != a->rank && !ll_is(get16(&r.ctl->inbox[p].scalar[r.epoch & 1u]), r.epoch))
            if (poll_again(r, polls, p, SYMM_STAGE_SCALAR, since)) return 1;
    }
    return 0;
}
/* After scalars_wait. Not inlined, because few reductions need it. */
static __device__ __noinline__ uint64_t scalar_of(const symm_args *a, uint32_t epoch, int p) {
    if (p == a->rank) return own_scalar(a);
    const uint32_t *w = ctl_of(a, a->rank)->inbox[p].scalar[epoch & 1u];
    return (uint64_t)get4(w + 2) << 32 | get4(w);
}
template <int T, int OP> DEV typename elem<T>::acc scale_of(const run &r, int p) {
    return OP == ANY_OP && r.a->op == SYMM_OP_PREMUL ? elem<T>::scalar(scalar_of(r.a, r.epoch, p))
                                                     : 0;
}

/* Every thread of every CTA comes here. CTA b advances epoch word b, CTA 0 also those beyond the
 * grid, so all words are always equal. A kernel that leaves early advances none: the communicator
 * cannot be used again. */
template <int ORDERS = 0> DEV void close_kernel(run &r) {
    if (!is_data()) hear_signatures<ORDERS>(r);
    const int left = __syncthreads_or(r.left);
    if (!left) {
        if (threadIdx.x == 0) r.ctl->epoch[blockIdx.x] = r.epoch;
        if (blockIdx.x == 0)
            for (unsigned b = gridDim.x + threadIdx.x; b < SYMM_GPU_MAX_CTAS; b += blockDim.x)
                r.ctl->epoch[b] = r.epoch;
        if (!r.a->gpu.serial) return;
    }
    /* Behind the way out of a call that went well: what few calls need costs it no instructions. */
    if (left && threadIdx.x == 0) give_reason(r.a, r.epoch, SYMM_STAGE_ENTER);
    if (!r.a->gpu.serial) return;
    /* All threads have written their epoch words: nothing of this CTA comes after the done word. */
    __syncthreads();
    if (threadIdx.x == 0) give4(&r.ctl->done[blockIdx.x], r.a->gpu.serial); /* read by drain.c */
}

#endif
