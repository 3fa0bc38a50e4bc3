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

/* A kernel begins in three steps, because the first needs no memory: it is over before the kernel
 * before this one has ended. Each address that is needed behind the epoch word is calculated in it,
 * and kept there by `anew`: behind the word each instruction is time that every call takes.
 *   begin_kernel  addresses
 *   epoch_word    the wait for the kernel before, and the first loads
 *   open_kernel   the epoch
 * HURRY: the addresses here, too, are kept; 2: that of the epoch word in registers of each thread.
 * Kernels without registers for that go without. */
DEV run begin_kernel(const symm_args &a) {
    run r;
    let_next(a.flags & SYMM_ARG_APART);
    r.a = &a;
    r.ctl = ctl_of(&a, a.rank);
    r.left = r.loads = 0;
    const int peer = (int)(threadIdx.x & 31u), says = peer < a.nranks && peer != a.rank;
    r.said = says && !blockIdx.x ? (char *)ctl_of(&a, peer)->inbox[a.rank].sig : 0;
    return r;
}
template <int HURRY> DEV uint32_t epoch_word(run &r, uint64_t known) {
    const uint32_t *word = &r.ctl->epoch[blockIdx.x];
    if (HURRY) {
        /* + 0, of which compilers do not know that it is the same for all lanes. Else the address
         * is in a register of the whole warp, from which it is moved behind the wait, and other
         * loads come first. */
        word = anew(HURRY == 2 ? word + (anew((int)threadIdx.x) >> 12) : word);
        r.ctl = anew(r.ctl), r.said = anew(r.said);
        known |= (uint64_t)(uintptr_t)word | (uint64_t)(uintptr_t)r.said;
    }
    wait_grid(known | (uint64_t)(uintptr_t)r.ctl);
    const uint32_t e = get4(word);
    look_over(r); /* awaited where a poll fails, and before the users' memory is written */
    return e;
}
DEV void open_kernel(run &r, uint32_t word) {
    r.epoch = word == 0xffffffffu ? 2u : word + 1u; /* never 0; the parity goes on */
}
/* All of them, where nothing is to be done in between. */
template <int HURRY> DEV run enter_kernel(const symm_args &a) {
    run r = begin_kernel(a);
    open_kernel(r, epoch_word<HURRY>(r, 0));
    return r;
}

DEV uint64_t own_scalar(const symm_args *a) {
    if (!a->scalar_ptr) return a->scalar;
    uint64_t bits = 0;
#pragma unroll 1
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

template <int ORDERS> DEV void say_word(char *to, uint32_t epoch, uint32_t sig) {
    const uint64_t word = (uint64_t)epoch << 32 | sig;
    to += (epoch & 1u) * sizeof word;
    if (ORDERS)
        give8(to, word); /* both pair with signature_differs */
    else
        put8(to, word);
}
/* What few calls need: the signature to peers beyond the first 32, and of premulsum this rank's
 * factor to every peer. */
template <int ORDERS> DEV void say_more(const symm_args *a, uint32_t epoch) {
#pragma unroll 1
    for (int p = 32 + (int)(threadIdx.x & 31u); p < a->nranks; p += 32)
        if (p != a->rank) say_word<ORDERS>((char *)ctl_of(a, p)->inbox[a->rank].sig, epoch, a->sig);
    if (a->op != SYMM_OP_PREMUL) return;
    const uint64_t scalar = own_scalar(a);
#pragma unroll 1
    for (int p = (int)(threadIdx.x & 31u); p < a->nranks; p += 32)
        if (p != a->rank) /* pairs with scalar_of */
            put16(&ctl_of(a, p)->inbox[a->rank].scalar[epoch & 1u],
                  make_uint4((uint32_t)scalar, epoch, (uint32_t)(scalar >> 32), epoch));
}

/* By the last warp of every CTA, a lane per peer; that of CTA 0 has something to say. ORDERS: with
 * release and acquire, so that kernels after this one, on every rank, see what kernels before it
 * have stored on any rank. Other collectives do not need it: what they store is released or carries
 * its own flag. */
template <int ORDERS = 0> DEV void say_signature(run &r) {
    if (r.said) say_word<ORDERS>(r.said, r.epoch, r.a->sig);
    if (!blockIdx.x && (r.a->nranks > 32 || r.a->op == SYMM_OP_PREMUL))
        say_more<ORDERS>(r.a, r.epoch);
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

/* ---- kernels --------------------------------------------------------------------------------- */

/* KERNEL_NAME(row, tag), of the file that has them, is what a kernel of a row of coll.def is
 * called. Its bounds: data warps and the one for signatures, and CTAs beside each other. */
#define KERNEL_ENTRY(row, tag, threads, ctas)                          \
    extern "C" __global__ void __launch_bounds__((threads) + 32, ctas) \
        KERNEL_NAME(row, tag)(const __grid_constant__ symm_args a)
/* Data warps, as plan_gpu.c keeps to. */
#define THREADS(N)      ((N) >= 4 ? SYMM_GPU_THREADS_FEW : SYMM_GPU_THREADS)
#define LL_THREADS(N)   ((N) == 2 ? SYMM_GPU_THREADS_PAIR : SYMM_GPU_THREADS)
#define LINE_THREADS(N) ((N) == 4 ? SYMM_GPU_THREADS_FOUR : THREADS(N)) /* what crosses once */
#define SHOT_THREADS(N) ((N) == 4 ? SYMM_GPU_THREADS : THREADS(N))      /* in two shots */

#define KERNEL(row, tag, threads, ...)   \
    KERNEL_ENTRY(row, tag, threads, 1) { \
        run r = enter_kernel<0>(a);      \
        if (is_data())                   \
            __VA_ARGS__(r);              \
        else                             \
            say_signature(r);            \
        close_kernel(r);                 \
    }

/* With a last warp that posts (staged.cuh). Those of more ranks than two have no registers for what
 * is calculated ahead. */
#define KERNEL_POSTS(row, N, ...)            \
    KERNEL_ENTRY(row, n##N, THREADS(N), 1) { \
        CTA_SHARED(places, at);              \
        run r = enter_kernel<(N) == 2>(a);   \
        if (is_data())                       \
            __VA_ARGS__(r, at);              \
        else                                 \
            post_turns(r, at);               \
        close_kernel(r);                     \
    }

/* What a thread sends first is placed before anything is waited for, loaded while the epoch word is
 * on the way, and sent before anything is asked. place: place_first of small.cuh and the like. */
#define KERNEL_FIRST(row, tag, threads, ctas, hurry, place, ...)     \
    KERNEL_ENTRY(row, tag, threads, ctas) {                          \
        run r = begin_kernel(a);                                     \
        auto first = place(a);                                       \
        const uint32_t word = epoch_word<hurry>(r, known_of(first)); \
        load_first(a, first);                                        \
        open_kernel(r, (uint32_t)anew((int)word));                   \
        if (is_data())                                               \
            __VA_ARGS__(r, first);                                   \
        else                                                         \
            say_signature(r);                                        \
        close_kernel(r);                                             \
    }
/* Packets: for two ranks with registers for SYMM_GPU_QUARTER_PAIR threads in a quarter. */
#define KERNEL_LL(row, N, place, ...) \
    KERNEL_FIRST(row, n##N, LL_THREADS(N), (N) == 2 ? 2 : 1, 1, place, __VA_ARGS__)
#define KERNEL_LINES(row, N, place, ...) \
    KERNEL_FIRST(row, n##N, LINE_THREADS(N), 1, (N) == 2 ? 2 : 0, place, __VA_ARGS__)

#endif
