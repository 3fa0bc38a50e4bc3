/* unit_plan_grid.c - the planner on GPUs: how large calls spread over multiprocessors, whole or a
 * quarter of each, and which way data goes that cannot go between windows. Pure; one thread. */
#include "host/coll/plan.h"
#include "t.h"

static const int16_t free_choice[symmNumColls] = SYMM_FORCED_NONE;

/* A large call is on every multiprocessor, however little scratch there is for each warp: direct
 * kernels with all warps, others with at least as many as scratch has lines for. */
static void large_calls_fill_the_gpu(void) {
    static const symmColl_t colls[] = {symmCollAllReduce, symmCollAllGather};
    for (int n = 2; n <= 16; n += n < 8 ? 1 : 8)
        for (uint64_t mb = 16; mb <= 1024; mb *= 4)
            for (int c = 0; c < 2; c++)
                for (int bits = 0; bits < 4; bits++) {
                    const int small = bits & 1, quarter = bits >> 1;
                    symm_plan_env env = {.nranks = n,
                                         .gpu = 1,
                                         .sms = 132,
                                         .quarter = quarter,
                                         .forced = free_choice};
                    env.scratch = symm_plan_gpu_scratch(small ? 16 << 20 : 112 << 20, n);
                    symm_call call = {.coll = colls[c],
                                      .count = (mb << 20) / (c ? (unsigned)n : 1),
                                      .type = symmUint8,
                                      .esize = 1};
                    symm_plan p = symm_plan_make(&env, &call);
                    const int direct =
                        p.kernel == SYMM_KERNEL_AR_DIRECT || p.kernel == SYMM_KERNEL_AG_DIRECT;
                    const uint64_t room = direct ? 132
                                                 : (p.kernel == SYMM_KERNEL_AR_2SHOT128 ? 1
                                                    : n == 2                            ? 4
                                                                                        : 2) *
                                                       (env.scratch.gpu.line_slot / 512u) /
                                                       (unsigned)symm_kernels[p.kernel].places;
                    T_CHECKF(p.ctas == (room < 132 ? (int)room : 132),
                             "%s of %llu MB, %d ranks: %s on %d CTAs",
                             c ? "all_gather" : "all_reduce", (unsigned long long)mb, n,
                             symm_kernels[p.kernel].name, p.ctas);
                    const int whole = n == 4 || n == 8 ? SYMM_GPU_THREADS_FEW : SYMM_GPU_THREADS;
                    if (direct && mb >= 64)
                        T_EQ(p.threads, quarter ? SYMM_GPU_QUARTER(whole) : whole);
                    if (direct && !small) T_EQ(p.stage_ctas, 132);
                    if (direct && !small && n <= 4)
                        T_CHECKF(p.stage_warps == p.threads / 32, "%d ranks: %d of %d warps", n,
                                 p.stage_warps, p.threads / 32);
                    /* Staged pieces of all_gather spread over the GPU too: each CTA with staging
                     * has one at least. */
                    if (p.kernel == SYMM_KERNEL_AG_DIRECT && !small && n <= 4 && mb > 16)
                        T_CHECK((uint64_t)p.stage_ctas * (unsigned)p.stage_warps *
                                    (unsigned)p.stage_rows * 512 <=
                                call.count);
                }
}

/* Buffers in no window go in lines up to 32 MB of result, beyond through staging; or as SYMM_RELAY
 * says, but for all_reduce of eight, which has no lines. */
static void direct_kernels_relay_by_size(void) {
    static const symmColl_t colls[] = {symmCollAllReduce, symmCollAllGather};
    for (int n = 2; n <= 8; n++)
        for (int c = 0; c < 2; c++)
            for (int relay = 0; relay < 3; relay++)
                for (int more = 0; more < 2; more++) {
                    symm_plan_env env = {
                        .nranks = n, .gpu = 1, .sms = 132, .relay = relay, .forced = free_choice};
                    env.scratch = symm_plan_gpu_scratch(112 << 20, n);
                    const uint64_t each = (32ull << 20) / (c ? (unsigned)n : 1) + (unsigned)more;
                    symm_call call = {
                        .coll = colls[c], .count = each, .type = symmUint8, .esize = 1};
                    symm_plan p = symm_plan_make(&env, &call);
                    T_EQ(p.kernel, c ? SYMM_KERNEL_AG_DIRECT : SYMM_KERNEL_AR_DIRECT);
                    T_EQ(p.line_warps > 0, (c || n != 8) && (relay == SYMM_RELAY_LINES ||
                                                             (relay == SYMM_RELAY_AUTO && !more)));
                    if (p.line_warps) T_CHECK(p.line_warps * 4 >= p.threads / 32);
                    env.scratch = symm_plan_gpu_scratch(1 << 20, n); /* no line for each CTA */
                    p = symm_plan_make(&env, &call);
                    T_EQ(p.ctas, 132);
                    T_EQ(p.line_warps, 0);
                }
}

/* The few warps of a quarter of each multiprocessor are slower by lines: they end earlier. */
static void quarters_relay_less_by_lines(void) {
    static const symmColl_t colls[] = {symmCollAllReduce, symmCollAllGather};
    for (int c = 0; c < 2; c++)
        for (int more = 0; more < 2; more++) {
            int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
            symm_plan_env env = {.nranks = 2, .gpu = 1, .sms = 132, .quarter = 1, .forced = forced};
            forced[colls[c]] = c ? SYMM_KERNEL_AG_DIRECT : SYMM_KERNEL_AR_DIRECT;
            env.scratch = symm_plan_gpu_scratch(112 << 20, 2);
            const uint64_t each = (4ull << 20) / (c ? 2u : 1u) + (unsigned)more;
            const symm_call call = {.coll = colls[c], .count = each, .type = symmUint8, .esize = 1};
            const symm_plan p = symm_plan_make(&env, &call);
            T_EQ(p.kernel, c ? SYMM_KERNEL_AG_DIRECT : SYMM_KERNEL_AR_DIRECT);
            T_EQ(p.line_warps > 0, !more);
        }
}

/* A kernel with rows for several sizes. */
static void forced_kernels_have_the_grid_of_their_size(void) {
    static const struct {
        int quarter, ctas;
        uint64_t bytes;
    } of[] = {{1, 132, 512 << 10}, {1, 264, 4 << 20}, {1, 264, 64 << 20}, {0, 132, 4 << 20}};
    for (unsigned i = 0; i < sizeof of / sizeof of[0]; i++) {
        int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
        symm_plan_env env = {
            .nranks = 4, .gpu = 1, .sms = 264, .quarter = of[i].quarter, .forced = forced};
        const symm_call call = {
            .coll = symmCollAllReduce, .count = of[i].bytes, .type = symmUint8, .esize = 1};
        forced[symmCollAllReduce] = SYMM_KERNEL_AR_2SHOT128;
        env.scratch = symm_plan_gpu_scratch(32 << 20, 4);
        const symm_plan p = symm_plan_make(&env, &call);
        T_EQ(p.kernel, SYMM_KERNEL_AR_2SHOT128);
        T_CHECKF(of[i].ctas == 264 ? p.ctas > 132 : p.ctas <= 132, "case %u: %d CTAs", i, p.ctas);
    }
}

/* Lines that cross twice with a root, which owns no slice and with whom, as between any two ranks,
 * go lines of one phase: 1 MB is one item, and 2 MB have as many warps as there are places for. */
static void rooted_shots_use_both_phases(void) {
    static const struct {
        symmColl_t coll;
        symm_kernel_id kernel;
        uint64_t bytes, warps;
    } of[] = {{symmCollReduce, SYMM_KERNEL_RD_2SHOT128, 1 << 20, 0},
              {symmCollBroadcast, SYMM_KERNEL_BC_2SHOT128, 1 << 20, 0},
              {symmCollReduce, SYMM_KERNEL_RD_2SHOT128, 2 << 20, 2 * 264},
              {symmCollBroadcast, SYMM_KERNEL_BC_2SHOT128, 2 << 20, 2 * 264}};
    for (unsigned i = 0; i < sizeof of / sizeof of[0]; i++) {
        symm_plan_env env = {.nranks = 4, .gpu = 1, .sms = 264, .quarter = 1};
        const symm_call call = {
            .coll = of[i].coll, .count = of[i].bytes, .type = symmUint8, .esize = 1};
        env.scratch = symm_plan_gpu_scratch(32 << 20, 4);
        const symm_plan p = symm_plan_make(&env, &call);
        const uint64_t warps = (uint64_t)p.ctas * (unsigned)p.line_warps;
        T_EQ(p.kernel, of[i].kernel);
        T_EQ(p.lines, 1);
        if (of[i].warps)
            T_EQ(warps, of[i].warps);
        else
            T_CHECKF(warps * 480 * 3 >= of[i].bytes, "case %u: %d CTAs of %d warps", i, p.ctas,
                     p.line_warps);
    }
}

/* What is left of a GPU for others, by what the program has asked for. */
static void budgets(void) {
    static const struct {
        int ranks, ctas, threads, min, max, asked, sms, quarter, first;
    } of[] = {{2, 0, 0, 0, 0, 0, 132, 1, 0},   {72, 0, 0, 0, 0, 0, 132, 1, 0},
              {1, 0, 0, 0, 0, 0, 132, 0, 0},   {2, 0, 96, 0, 0, 0, 132, 1, 0},
              {2, 0, 128, 0, 0, 0, 33, 0, 0},  {2, 0, 0, 0, 0, 256, 132, 0, 0},
              {2, 0, 0, 0, 0, 20, 20, 0, 0},   {2, 64, 0, 0, 0, 20, 64, 0, 0},
              {2, 0, 0, 0, 100, 0, 100, 0, 0}, {2, 0, 0, 50, 0, 20, 50, 0, 0},
              {2, 0, 0, 0, 0, 0, 264, 1, 1},   {1, 0, 0, 0, 0, 0, 132, 0, 1},
              {2, 0, 128, 0, 0, 0, 33, 0, 1},  {2, 0, 0, 0, 0, 20, 20, 0, 1},
              {2, 0, 0, 0, 100, 0, 100, 0, 1}};
    for (unsigned i = 0; i < sizeof of / sizeof of[0]; i++) {
        symm_plan_env env = {.nranks = of[i].ranks,
                             .ctas = of[i].ctas,
                             .threads = of[i].threads,
                             .min_ctas = of[i].min,
                             .max_ctas = of[i].max};
        symm_plan_budget(&env, 132, of[i].asked, of[i].first);
        T_CHECKF(env.sms == of[i].sms && env.quarter == of[i].quarter, "case %u: %d, %d", i,
                 env.sms, env.quarter);
    }
}

T_MAIN(T(large_calls_fill_the_gpu), T(direct_kernels_relay_by_size),
       T(quarters_relay_less_by_lines), T(forced_kernels_have_the_grid_of_their_size),
       T(rooted_shots_use_both_phases), T(budgets))
