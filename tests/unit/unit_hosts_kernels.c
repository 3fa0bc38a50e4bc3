/* unit_hosts_kernels.c - the GPU kernels where ranks are on several hosts, on fibers (emu.h): each
 * rank sees pages of its own host alone, so what kernels tell each other goes through GPU memory.
 * Calls as they are drawn for unit_kernels, results compared; kernels that must leave: every rank
 * is told, and its own host learns the reason. T_SEED: the first case; T_CASES: how many. */
#include "kernel_kit.h"

static symm_ctl *pages[RANKS]; /* [rank][of], as rank's host has them */

/* Each rank gets pages that nobody else reaches. */
static void apart(void) {
    for (int r = 0; r < k.n; r++) {
        pages[r] = calloc((size_t)k.n, sizeof *pages[r]);
        T_CHECK(pages[r]);
        emu_memory(pages[r], (size_t)k.n * sizeof *pages[r]);
        for (int c = 0; c < k.calls; c++) {
            symm_args *a = &k.launch[r * k.calls + c].args;
            a->gpu.host_base = (uint64_t)(uintptr_t)pages[r];
            a->flags |= SYMM_ARG_HOSTS;
        }
    }
}

static void end_apart(void) {
    for (int r = 0; r < k.n; r++) free(pages[r]);
    end();
}

static symm_gpu_ctl *gpu_of(int rank) {
    return (symm_gpu_ctl *)(void *)(k.flat + (uint64_t)rank * STRIDE);
}
/* The word that a rank's own host reads. */
static uint64_t heard(int rank) {
    return pages[rank][rank].abort;
}

static void calls_go_as_on_one_host(void) {
    char why[256] = "", text[1024];
    symm_reduce_init();
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 31000 + first_seed() + (unsigned)i;
        draw_calls(seed);
        apart();
        for (int c = 0; c < k.calls; c++) model_call(&k.call[c]);
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        describe(text, sizeof text);
        T_CHECKF(!r, "T_SEED=%llu: %s;%s", (unsigned long long)seed - 31000, why, text);
        windows_are_as_modelled(seed - 31000);
        for (int p = 0; p < k.n; p++) T_EQ(heard(p), 0);
        end_apart();
    }
}

/* ---- kernels that leave ---------------------------------------------------------------------- */

/* The host of one rank ends its kernels; no other host is told, as if its message were late. */
static void abort_here(void *arg, uint64_t step) {
    (void)arg;
    if (spoiler.done || step < spoiler.at) return;
    spoiler.done = 1;
    pages[spoiler.rank][spoiler.rank].abort = (uint64_t)symmTimeout << 32 | 1;
}

/* Of a rank whose kernel was in a call then, the others that need it end; each host reads why. */
static void who_leaves_tells_kernels_of_other_hosts(void) {
    char why[256] = "";
    int told = 0, left = 0;
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 32000 + first_seed() + (unsigned)i;
        draw_calls(seed);
        apart();
        emu_between(count_steps, NULL);
        T_CHECK(!emu_run(k.launch, k.n, k.calls, seed, why, sizeof why));
        const uint32_t last = gpu_of(0)->epoch[0]; /* when all calls have ended */
        end_apart();
        draw_calls(seed);
        apart();
        spoiler.at = 1 + draw((uint32_t)steps_so_far), spoiler.rank = (int)draw((uint32_t)k.n);
        spoiler.done = 0;
        emu_between(abort_here, NULL);
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        emu_between(NULL, NULL);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 32000, why);
        for (int p = 0; p < k.n; p++) {
            if (p == spoiler.rank || !gpu_of(p)->over) continue;
            /* it may have ended all its calls before: then its GPU alone has the word */
            const symm_ctl *far = (const symm_ctl *)(const void *)gpu_of(p)->far;
            const int ended = gpu_of(p)->epoch[0] == last;
            const uint64_t word = ended && !heard(p) ? far->abort : heard(p);
            told++, left += !ended;
            T_CHECKF(word == ((uint64_t)symmTimeout << 32 | 1), "T_SEED=%llu: rank %d heard %llx",
                     (unsigned long long)seed - 32000, p, (unsigned long long)word);
        }
        end_apart();
    }
    T_CHECK(cases(60) < 60 || (told > 20 && left > 10));
}

/* A call that differs: each rank's own host reads it. */
static void calls_that_differ_are_told_to_every_host(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 33000 + first_seed() + (unsigned)i;
        draw_calls(seed);
        if (k.n < 2) {
            end();
            continue;
        }
        apart();
        const int odd = (int)draw((uint32_t)k.n);
        for (int c = 0; c < k.calls; c++) k.launch[odd * k.calls + c].args.sig ^= 1;
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 33000, why);
        for (int p = 0; p < k.n; p++)
            T_CHECKF(heard(p) >> 32 == symmMismatch, "T_SEED=%llu: rank %d heard %llx",
                     (unsigned long long)seed - 33000, p, (unsigned long long)heard(p));
        end_apart();
    }
}

/* A reason that a peer minds later (peerDeath) comes as a death; who waits ends with it. */
static void the_end_of_a_rank_comes_as_a_death(void) {
    char why[256] = "";
    int waited = 0;
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 34000 + first_seed() + (unsigned)i;
        draw_calls(seed);
        if (k.n < 2) {
            end();
            continue;
        }
        apart();
        /* rank 0 has aborted before its kernel began, and its kernels leave at once */
        pages[0][0].abort = (uint64_t)symmAborted << 32 | 1;
        gpu_of(0)->over = 1;
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 34000, why);
        for (int p = 1; p < k.n; p++) {
            if (!heard(p)) continue;
            waited++;
            T_EQ(heard(p), (uint64_t)symmAborted << 32 | 1);
            T_EQ(((const symm_ctl *)(const void *)gpu_of(p)->far)->death,
                 (uint64_t)symmAborted << 32 | 1);
        }
        end_apart();
    }
    T_CHECK(cases(40) < 40 || waited > 20);
}

T_MAIN(T_TIMEOUT(calls_go_as_on_one_host, 120),
       T_TIMEOUT(who_leaves_tells_kernels_of_other_hosts, 120),
       T_TIMEOUT(calls_that_differ_are_told_to_every_host, 120),
       T_TIMEOUT(the_end_of_a_rank_comes_as_a_death, 120))
