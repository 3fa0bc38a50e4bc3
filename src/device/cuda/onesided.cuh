/* onesided.cuh - one-sided calls: a copy into or out of a peer's window, and signals, which are
 * counts. GPU code. One kernel runs a call: its CTAs copy, then a single warp does the rest.
 *
 * A signal is a word in the memory of the GPU that waits. One rank alone writes it, and stores how
 * often it has raised the signal: it keeps that count in its own memory (symm_gpu_tally), as the
 * rank that waits keeps what it has used up. So no count is in a kernel's arguments, and each
 * replay of a graph raises, and uses up, its own. A store needs no atomic of the link, and what is
 * stored does not depend on what has arrived. The count is loaded beside the copy's data.
 *
 * Order. The calls of a communicator run one after the other: every thread has passed the wait of
 * enter_grid, behind which all that earlier kernels have stored comes. So of two kernels none reads
 * a count that the other is about to write.
 *
 *   - A signal behind a copy of one CTA: __syncthreads brings the stores of all threads before what
 *     thread 0 does next, which releases the count at system scope (give8).
 *   - Of several CTAs: each adds one to a counter, behind its own __syncthreads, with release and
 *     acquire at the scope of this GPU. The one that completes the count has acquired what all
 *     others have stored, and its release to the peer passes that on: order is cumulative. No CTA
 *     needs a fence at system scope, and no second kernel is launched.
 *   - A signal without a copy, or to another peer than that of a put before: those stores are of
 *     earlier kernels, and come before the release as all that this thread has seen does.
 *   - A wait acquires at system scope (take8). __syncwarp then brings what any lane has acquired
 *     before what lane 0 raises or stores; the end of the kernel before what later kernels do.
 *   - A fence is one of system scope: what was put before is at its targets before anything that
 *     comes behind this kernel is begun, plain stores of the program's own kernels too.
 *
 * Nothing is acknowledged. A kernel that leaves raises nothing: a CTA whose copy was cut short does
 * not count itself, so none is the last. */
#ifndef SYMM_CUDA_ONESIDED_CUH_
#define SYMM_CUDA_ONESIDED_CUH_

#include "copy.cuh"

#define ONESIDED_LANES 0xffffffffu

/* ---- words ----------------------------------------------------------------------------------- */

DEV uint64_t *signal_raised_at(const symm_args *a, int owner, int source, int signal) {
    return &ctl_of(a, owner)->signals[source].raised[signal];
}
DEV uint64_t *signal_raised_by(const run &r, int peer, int signal) {
    return &r.ctl->onesided.tally[peer].raised[signal];
}
DEV uint64_t *signal_used(const run &r, int peer, int signal) {
    return &r.ctl->onesided.tally[peer].used[signal];
}

/* ---- copy ------------------------------------------------------------------------------------ */

/* 1: this CTA goes on to the rest, behind all that all CTAs have copied. All threads. */
DEV int copy_part(run &r, const symm_gpu_onesided_args &args) {
    const unsigned mine = blockDim.x / 32u, team = gridDim.x * mine,
                   id = blockIdx.x * mine + threadIdx.x / 32u;
    const uint64_t at = copy_pieces(&r.ctl->over, (char *)args.to, (const char *)args.from,
                                    args.bytes, id, team, threadIdx.x & 31u);
    r.left = at * COPY_PIECE < args.bytes; /* a kernel has left */
    /* Pairs with the release of raise_signal, or with the count below. */
    if (__syncthreads_or(r.left)) return 0;
    if (gridDim.x == 1 || !args.ops) return 1; /* nothing comes behind the others' */
    int last = 0;
    /* Pairs with those of the other CTAs: behind the last one all have stored. */
    if (threadIdx.x == 0) last = add8_gpu(&r.ctl->onesided.ctas, 1) == gridDim.x - 1;
    last = __syncthreads_or(last);
    if (last && threadIdx.x == 0) put8(&r.ctl->onesided.ctas, 0); /* for the next kernel */
    return last;
}

/* ---- signals: one warp, all lanes together --------------------------------------------------- */

/* For symmCommDump and messages: what this rank waits in. One lane. */
DEV void note_signal(const symm_args *a, const symm_gpu_onesided_op *op, uint64_t came) {
    symm_p2p_note *note = &host_of(a, a->rank)->p2p;
    put8(&note->waits_count, op->count);
    put8(&note->waits_type, came << 8 | op->signal);
    put8(&note->waits, (uint64_t)SYMM_P2P_SIGNAL << 32 | (op->peer + 1u));
}

struct signal_wait {                /* of a warp, a lane for each wait of a list */
    const symm_gpu_onesided_op *op; /* this lane's */
    uint64_t used, want;
    uint32_t polls;
    uint64_t since;
    int first, noted; /* the lane that is behind, and its wait told */
};

/* One look has found that lanes `lack` signals. 1: leave. */
DEV int signals_lack(run &r, signal_wait &w, uint32_t lack, uint64_t has) {
    const int lane = (int)(threadIdx.x & 31u), first = __ffs((int)lack) - 1;
    const int own = (int)(lack >> lane & 1u) && w.op->peer == r.a->rank;
    /* Calls run in their order: what this rank has not raised at itself never comes. */
    const uint32_t alone = __ballot_sync(ONESIDED_LANES, own);
    if (first != w.first) w.since = 0; /* each wait has a deadline of its own */
    w.first = first;
    if (alone || w.polls + 1 >= SPIN_POLLS) {
        const int tells = alone ? __ffs((int)alone) - 1 : first;
        if (lane == tells) note_signal(r.a, w.op, has - w.used);
        __syncwarp(); /* the first lane may leave: the note comes before the reason */
        if (alone && lane == tells) leave(r.a, 0, symmInvalidUsage, r.a->rank, SYMM_STAGE_SIGNAL);
        if (alone) return r.left = 1;
        w.noted = 1;
        look_over(r);
    }
    const int peer = __shfl_sync(ONESIDED_LANES, (int)w.op->peer, first);
    return warp_poll_again(r, w.polls, peer, SYMM_STAGE_SIGNAL, w.since);
}

/* Waits [at, at + n) of the list, at most 32, of different signals. Each lane acquires its own. */
DEV void wait_signals(run &r, const symm_gpu_onesided_args &args, unsigned at, unsigned n) {
    const unsigned lane = threadIdx.x & 31u;
    const int mine = lane < n;
    signal_wait w = {&args.op[at + (mine ? lane : 0)], 0, 0, 0, 0, -1, 0};
    const uint64_t *raised = signal_raised_at(r.a, r.a->rank, w.op->peer, w.op->signal);
    uint64_t *used = signal_used(r, w.op->peer, w.op->signal);
    w.used = get8(used);
    w.want = w.used + w.op->count;
    for (;;) {
        const uint64_t has = take8(raised); /* pairs with raise_signal */
        const uint32_t lack = __ballot_sync(ONESIDED_LANES, mine && has < w.want);
        if (!lack) break;
        if (signals_lack(r, w, lack, has)) return;
    }
    if (mine) put8(used, w.want); /* symmSignalRead copies it before the word */
    if (w.noted && lane == 0) put8(&host_of(r.a, r.a->rank)->p2p.waits, 0);
}
/* The same, and what any lane has acquired comes before what all do next. */
DEV void await_signals(run &r, const symm_gpu_onesided_args &args, unsigned at, unsigned n) {
    wait_signals(r, args, at, n);
    __syncwarp(); /* pairs with the acquires */
}

/* Lane 0. before: how often it was raised. */
DEV void raise_signal(const run &r, const symm_gpu_onesided_op *op, uint64_t before) {
    put8(signal_raised_by(r, op->peer, op->signal), before + 1);
    give8(signal_raised_at(r.a, op->peer, r.a->rank, op->signal),
          before + 1); /* with wait_signals */
}
/* Lane 0: what has come is used up; of what was put before it says nothing. */
DEV void reset_signal(const run &r, const symm_gpu_onesided_op *op) {
    put8(signal_used(r, op->peer, op->signal),
         get8(signal_raised_at(r.a, r.a->rank, op->peer, op->signal)));
}

/* Lane 0: all but waits. */
DEV void do_signal(const run &r, const symm_gpu_onesided_op *op, uint64_t before) {
    if (op->kind == SYMM_ONESIDED_SIGNAL) raise_signal(r, op, before);
    if (op->kind == SYMM_ONESIDED_RESET) reset_signal(r, op);
    if (op->kind == SYMM_ONESIDED_FENCE) __threadfence_system(); /* pairs with whoever acquires */
}

/* How often the first call's signal was raised. Loaded before the copy, beside its data. */
DEV uint64_t raised_before(const run &r, const symm_gpu_onesided_args &args, unsigned i) {
    const symm_gpu_onesided_op *op = &args.op[i];
    if (i >= args.ops || op->kind != SYMM_ONESIDED_SIGNAL) return 0;
    return get8(signal_raised_by(r, op->peer, op->signal));
}

DEV void run_signals(run &r, const symm_gpu_onesided_args &args, uint64_t first) {
    for (unsigned i = 0; i < args.ops && !r.left;) {
        unsigned n = 0;
        while (n < 32 && i + n < args.ops && args.op[i + n].kind == SYMM_ONESIDED_WAIT) n++;
        if (n) {
            await_signals(r, args, i, n);
            i += n;
            continue;
        }
        if ((threadIdx.x & 31u) == 0)
            do_signal(r, &args.op[i], i ? raised_before(r, args, i) : first);
        __syncwarp();
        i++;
    }
}

/* ---- the kernel ------------------------------------------------------------------------------ */

DEV void onesided_run(const symm_gpu_onesided_args &args) {
    run r;
    r.a = &args.a, r.ctl = ctl_of(r.a, r.a->rank);
    r.epoch = 0, r.left = 0, r.over = 0; /* no epoch: signatures are not looked at */
    const uint64_t first = threadIdx.x ? 0 : raised_before(r, args, 0);
    look_over(r);
    int goes_on = blockIdx.x == 0;
    if (args.bytes) goes_on = copy_part(r, args);
    r.left |= r.over; /* behind a kernel that has left nothing is raised */
    if (goes_on && threadIdx.x < 32 && !__any_sync(ONESIDED_LANES, r.left))
        run_signals(r, args, first);
    if (__any_sync(ONESIDED_LANES, r.left) && !(threadIdx.x & 31u))
        give_reason(r.a, 0, SYMM_STAGE_SIGNAL);
    if (!r.a->gpu.serial) return;
    /* A signal on another stream may raise behind the done words alone, without the end of this
     * kernel: what it tells of must be at its target by then. */
    if (args.bytes) __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) give4(&r.ctl->done[blockIdx.x], r.a->gpu.serial); /* read by drain.c */
}

#endif
