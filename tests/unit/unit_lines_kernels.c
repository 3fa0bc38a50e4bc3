/* unit_lines_kernels.c - lines (lines.cuh) and packets (small.cuh) of two ranks, on fibers (emu.h).
 * Calls as they are drawn for unit_kernels. T_SEED: the first case; T_CASES: how many. One
 * thread. */
#include "kernel_kit.h"

/* Lines: buffers at any distance from a multiple of 16, which nothing lies beside, so that a load
 * of one byte too many is found. */

/* Buffers apart, or one for both; on each rank somewhere else. */
static void place_alone(sample *s) {
    const int same = s->call.coll == symmCollAllReduce && !draw(3);
    emu_forget();
    emu_memory(k.host, (size_t)k.n * sizeof *k.host);
    for (int r = 0; r < k.n; r++) {
        const unsigned unit = draw(4) ? 2 : 1;
        s->src[r] = GUARD + draw(8) * unit;
        s->dst[r] = same ? s->src[r] : WINDOW / 2 + GUARD + draw(8) * unit;
        emu_memory(k.flat + (uint64_t)r * STRIDE, SYMM_CTL_BYTES + SCRATCH);
        emu_memory(window(r) + s->src[r], buffer(s, 0, r));
        emu_memory(window(r) + s->dst[r], buffer(s, 1, r));
    }
}

/* 0: the seed draws no call of this kind. */
static int one_call(uint64_t seed) {
    char why[256] = "", text[1024];
    sample *s = &k.call[0];
    draw_calls(seed);
    k.calls = 1;
    const int lines = k.n == 2 && s->call.count && strstr(symm_kernels[s->plan.kernel].name, "128");
    if (lines) {
        const symm_plan_env env = {.scratch = k.launch[0].args.scratch};
        place_alone(s);
        for (int r = 0; r < k.n; r++) launch_call(s, &env, r, &k.launch[r]);
        model_call(s);
        const int failed = emu_run(k.launch, k.n, 1, seed, why, sizeof why);
        describe(text, sizeof text);
        T_CHECKF(!failed, "T_SEED=%llu: %s;%s", (unsigned long long)seed, why, text);
        windows_are_as_modelled(seed);
    }
    end();
    return lines;
}

static void lines_of_two_ranks_anywhere(void) {
    symm_reduce_init();
    uint64_t seed = first_seed();
    for (int i = 0; i < cases(300); seed++) i += one_call(seed);
}

/* Packets, one call behind the other: one rank is a call ahead while a thread of the other has not
 * read what the call before sent it. 0: the seed draws too few of them. */
static int packets_in_series(uint64_t seed) {
    char why[256] = "", text[1024];
    int packets = 0;
    draw_calls(seed);
    for (int c = 0; k.n == 2 && c < k.calls; c++) {
        const char *name = symm_kernels[k.call[c].plan.kernel].name;
        packets += strcmp(name + strlen(name) - 3, "_ll") == 0;
    }
    if (packets >= 2) {
        for (int c = 0; c < k.calls; c++) model_call(&k.call[c]);
        const int failed = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        describe(text, sizeof text);
        T_CHECKF(!failed, "T_SEED=%llu: %s;%s", (unsigned long long)seed, why, text);
        if (!failed) windows_are_as_modelled(seed);
    }
    end();
    return packets >= 2;
}
static void packets_of_two_ranks_call_behind_call(void) {
    symm_reduce_init();
    uint64_t seed = first_seed();
    for (int i = 0; i < cases(100); seed++) i += packets_in_series(seed);
}

T_MAIN(T(lines_of_two_ranks_anywhere), T(packets_of_two_ranks_call_behind_call))
