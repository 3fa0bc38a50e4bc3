/* unit_device_api.c - kernels that use the device API (symm_device.cuh), on fibers: barriers with
 * stores that become visible late, signals, packets, lines, copies and sums, over many epochs and
 * kernels; an abort at any step of each wait, deadlines, peers that have left; debug builds.
 * T_SEED: the first case; T_CASES: how many. One thread. */
#include <math.h>
#include <sys/mman.h>

#include "device_api_kit.h"
#include "moe_kit.h"

/* ---- each part, many epochs ------------------------------------------------------------------ */

/* Several kernels in a row, each of several rounds. */
static void rounds_of(const char *kernel, int n, int warps, uint64_t seed) {
    begin(seed, n);
    const int ctas = n > 4 || warps ? 1 + (int)draw(2) : 1 + (int)draw(3),
              rounds = 2 + (int)draw(3);
    for (int c = 0, first = 0; c < 3; c++, first += rounds)
        add((call){
            kernel,
            0,
            ctas,
            32 * (1 + (int)draw(2) * (n < 5)),
            {.rounds = rounds, .first = first, .items = 1 + draw(3), .warps = (uint32_t)warps}});
    for (int r = 0; r < n; r++) /* equal grids */
        for (int c = 1; c < k.calls; c++)
            k.launch[r * CALLS + c].threads = k.launch[r * CALLS].threads;
    run(seed, kernel);
    all_is_well(seed, kernel);
    end();
}
static void many_rounds(const char *kernel, int warps, int count, uint64_t salt) {
    for (int i = 0; i < cases(count); i++)
        rounds_of(kernel, ranks_of(i), warps, salt + first_seed() + (unsigned)i);
}

static void barriers_of_ctas(void) {
    many_rounds("emu_dev_barriers", 0, 60, 1000);
}
static void barriers_of_warps(void) {
    many_rounds("emu_dev_barriers", 1, 40, 2000);
}
static void barriers_of_other_groups(void) {
    many_rounds("emu_dev_coops", 0, 30, 21000);
    many_rounds("emu_dev_coops", 1, 30, 22000);
}
static void arrive_and_wait_in_sessions_of_their_own(void) {
    many_rounds("emu_dev_apart", 0, 40, 3000);
}
static void packets_in_sessions(void) {
    many_rounds("emu_dev_packets", 0, 60, 4000);
}
static void lines_in_sessions(void) {
    many_rounds("emu_dev_lines", 0, 60, 5000);
}

static void relaxed_barriers_show_what_earlier_kernels_stored(void) {
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 6000 + first_seed() + (unsigned)i;
        begin(seed, ranks_of(i));
        for (int c = 0; c < CALLS / 2; c++) {
            add((call){"emu_dev_fill", 0, 2, 32, {.first = c}});
            add((call){"emu_dev_gather", 0, 2, 32, {.first = c}});
        }
        run(seed, "gather");
        T_EQ(sum_of(OUT_WRONG) + sum_of(OUT_GAVE_UP), 0);
        T_EQ(sum_of(OUT_DONE), (uint64_t)(k.n * k.calls / 2));
        end();
    }
}

static void signals_in_a_ring(void) {
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 7000 + first_seed() + (unsigned)i;
        begin(seed, ranks_of(i));
        for (int c = 0; c < 3; c++)
            add((call){"emu_dev_signals", 0, 1, 64, {.rounds = 4, .first = 4 * c}});
        run(seed, "signals");
        all_is_well(seed, "signals");
        end();
    }
}
static void signals_that_threads_poll(void) {
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 16000 + first_seed() + (unsigned)i;
        begin(seed, ranks_of(i));
        for (int c = 0; c < 3; c++)
            add((call){"emu_dev_polls", 0, 1, 64, {.rounds = 4, .first = 4 * c}});
        run(seed, "polls");
        all_is_well(seed, "polls");
        end();
    }
}
static void signals_are_counts_and_can_be_reset(void) {
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 8000 + first_seed() + (unsigned)i;
        begin(seed, ranks_of(i));
        for (int c = 0; c < 3; c++) add((call){"emu_dev_counts", 0, 1, 32, {.rounds = 4}});
        run(seed, "counts");
        all_is_well(seed, "counts");
        end();
    }
}

/* ---- a layer of experts (examples/moe_kernel.cuh) -------------------------------------------- */

static void experts(void) {
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 18000 + first_seed() + (unsigned)i;
        begin(seed, ranks_of(i));
        emu_dev_args a = {.items = 1 + draw(8), .len = draw(MOE_MOST + 1), .from = MOE_AT};
        for (int r = 0; r < k.n; r++) moe_fill(window(r), k.n, &a, 0, &k.random);
        for (; a.first < 3; a.first++) {
            const int parts = k.n > 4 ? 1 : 1 + (int)draw(2); /* another grid each time */
            add((call){"emu_dev_moe", 0, k.n * parts, 32, a});
        }
        run(seed, "moe");
        all_is_well(seed, "moe");
        end();
    }
}

/* All boxes of an expert are full, and a rank is in its next call, with another grid, while the
 * expert reads what the others have brought. */
static void full_boxes_in_other_grids(void) {
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 20000 + first_seed() + (unsigned)i;
        begin(seed, 2 + i % 3);
        emu_dev_args a = {.items = 1 + draw(8), .len = MOE_MOST, .from = MOE_AT};
        for (int r = 0; r < k.n; r++) moe_fill(window(r), k.n, &a, 1, &k.random);
        for (; a.first < CALLS; a.first++)
            add((call){"emu_dev_moe", 0, k.n * (2 - a.first % 2), 32, a});
        run(seed, "full boxes");
        all_is_well(seed, "full boxes");
        end();
    }
}

/* ---- tiles that are summed as they finish (examples/gemm_kernel.cuh) ------------------------- */

/* Also more tiles than ranks, and fewer; CTAs with another number of tiles than others. */
static void tiles(void) {
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 19000 + first_seed() + (unsigned)i;
        begin(seed, ranks_of(i));
        emu_dev_args a = {.from = 1 + draw(4), .to = 1 + draw(3)};
        const int most = (int)(a.from * a.to),
                  ctas = 1 + (int)draw((uint64_t)(most < 4 ? most : 4));
        T_CHECK(most <= GEMM_MOST);
        for (; a.first < 4; a.first++) add((call){"emu_dev_gemm", 0, ctas, 32, a});
        run(seed, "gemm");
        all_is_well(seed, "gemm");
        end();
    }
}

/* ---- copies and sums ------------------------------------------------------------------------- */

static void copies_of_any_size_and_place(void) {
    for (int i = 0; i < cases(100); i++) {
        const uint64_t seed = 9000 + first_seed() + (unsigned)i;
        static unsigned char want[RANKS][WINDOW];
        begin(seed, i % 5 ? 2 : 3);
        const uint64_t half = WINDOW / 2, from = 16 + draw(32),
                       to = half + 16 +
                            (draw(2)   ? from % 16
                             : draw(3) ? from % 4
                                       : draw(16)),
                       len = draw(4) ? draw(300) : 2000 + draw(6000);
        for (int r = 0; r < k.n; r++)
            for (unsigned b = 0; b < WINDOW; b++) window(r)[b] = (unsigned char)draw(256);
        for (int r = 0; r < k.n; r++) memcpy(want[r], window(r), WINDOW);
        for (int r = 0; r < k.n; r++) memcpy(want[(r + 1) % k.n] + to, window(r) + from, len);
        add((call){
            "emu_dev_copy", 0, 1, 64, {.from = from, .to = to, .len = len, .warps = draw(3)}});
        run(seed, "copy");
        all_is_well(seed, "copy");
        for (int r = 0; r < k.n; r++)
            T_CHECKF(!memcmp(window(r), want[r], WINDOW),
                     "T_SEED=%llu: rank %d: %llu bytes from %llu to %llu", (unsigned long long)seed,
                     r, (unsigned long long)len, (unsigned long long)from, (unsigned long long)to);
        end();
    }
}

/* Numbers of few bits: their sums are exact in each type, so any order of a right sum is right. */
static float number(int rank, unsigned i) {
    return (float)((int)(i * 7 + (unsigned)rank * 13) % 31 - 15) / 4;
}
/* Of a number that float16 holds. */
static uint16_t bits_f16(float f) {
    int e;
    const float part = frexpf(fabsf(f), &e); /* 0, or at least a half and below 1 */
    const unsigned sign = signbit(f) ? 0x8000 : 0;
    if (part == 0) return (uint16_t)sign;
    return (uint16_t)(sign | (unsigned)(e + 14) << 10 | ((unsigned)(part * 2048) & 1023));
}
static uint16_t bits16(const char *type, float f) {
    uint32_t b;
    if (!strcmp(type, "emu_dev_sum_f16")) return bits_f16(f);
    memcpy(&b, &f, sizeof b);
    return (uint16_t)(b >> 16);
}
static void sums_of(const char *kernel, int n, uint64_t seed) {
    enum { THREADS = 32, FROM = 0, TO = 8192 };
    const unsigned size = strcmp(kernel, "emu_dev_sum_f32") ? 2 : 4, count = THREADS * 16 / size;
    begin(seed, n);
    for (int r = 0; r < n; r++)
        for (unsigned i = 0; i < count; i++) {
            const float f = number(r, i);
            const uint16_t h = bits16(kernel, f);
            memcpy(window(r) + FROM + i * size, size == 4 ? (const void *)&f : &h, size);
        }
    add((call){kernel, 0, 1, THREADS, {.from = FROM, .to = TO}});
    run(seed, kernel);
    T_EQ(sum_of(OUT_WRONG), 0);
    for (int r = 0; r < n; r++)
        for (unsigned i = 0; i < count; i++) {
            float sum = 0;
            for (int p = 0; p < n; p++) sum += number(p, i);
            const uint16_t h = bits16(kernel, sum);
            T_CHECKF(!memcmp(window(r) + TO + i * size, size == 4 ? (const void *)&sum : &h, size),
                     "%s: rank %d of %d, element %u", kernel, r, n, i);
        }
    end();
}
/* 1 + 2^-24 + 2^-24 is 1 in this order and more than 1 in the other: float32, in rank order. */
static void sums_go_in_rank_order(void) {
    begin(1, 3);
    for (int r = 0; r < 3; r++)
        for (unsigned i = 0; i < 128; i++) {
            const float f = r ? ldexpf(1, -24) : 1;
            memcpy(window(r) + i * 4, &f, 4);
        }
    add((call){"emu_dev_sum_f32", 0, 1, 32, {.from = 0, .to = 8192}});
    run(1, "order");
    for (int r = 0; r < 3; r++) {
        float got;
        memcpy(&got, window(r) + 8192, 4);
        T_CHECK(got == 1);
    }
    end();
}
static void sums_over_ranks(void) {
    static const char *const kernels[] = {"emu_dev_sum_f32", "emu_dev_sum_f16", "emu_dev_sum_bf16"};
    for (int n = 1; n <= RANKS; n++)
        for (int t = 0; t < 3; t++) sums_of(kernels[t], n, (uint64_t)n);
    sums_go_in_rank_order();
}

/* ---- kernels that give up -------------------------------------------------------------------- */

static const char *const waiters[] = {"emu_dev_barriers", "emu_dev_gather", "emu_dev_signals",
                                      "emu_dev_packets", "emu_dev_lines"};
enum { WAITERS = sizeof waiters / sizeof *waiters };

static struct {
    uint64_t at, steps;
    int rank, done;
    enum { ABORT, DEATH, LATE_ABORT, HOWS } how;
} spoiler;

static void count_steps(void *arg, uint64_t now) {
    (void)arg;
    spoiler.steps = now;
}
/* A death that is noted, or an abort that peers mind at once, or when they need the rank. */
static void spoil(void *arg, uint64_t now) {
    (void)arg;
    if (spoiler.done || now < spoiler.at) return;
    spoiler.done = 1;
    for (int q = 1; q <= k.n; q++) {
        symm_ctl *host = &k.host[(spoiler.rank + q) % k.n];
        const int later = spoiler.how == DEATH || (spoiler.how == LATE_ABORT && q < k.n);
        const uint64_t why = spoiler.how == DEATH ? symmRemoteError : symmAborted;
        *(later ? &host->death : &host->abort) = why << 32 | (uint32_t)(spoiler.rank + 1);
    }
}

static void three_kernels(const char *kernel, int absent) {
    for (int c = 0; c < 3; c++) {
        add((call){kernel, 0, 1, 32, {.rounds = 3, .first = 3 * c, .items = 1}});
        for (int r = 0; r < k.n; r++) k.args[r][c].absent = r == absent;
    }
}

/* Wherever it comes, all kernels end, also those that begin later. */
static void an_abort_or_a_death_at_any_step(void) {
    for (int i = 0; i < cases(100); i++) {
        const uint64_t seed = 10000 + first_seed() + (unsigned)i;
        const char *kernel = waiters[i % WAITERS];
        memset(&spoiler, 0, sizeof spoiler);
        begin(seed, 2 + i % 2);
        three_kernels(kernel, -1);
        emu_between(count_steps, NULL);
        run(seed, kernel), emu_between(NULL, NULL);
        end();
        begin(seed, 2 + i % 2);
        three_kernels(kernel, -1);
        spoiler.at = 1 + draw((uint32_t)spoiler.steps), spoiler.rank = (int)draw((uint32_t)k.n);
        spoiler.how = i / WAITERS % HOWS;
        emu_between(spoil, NULL);
        run(seed, kernel), emu_between(NULL, NULL);
        T_CHECK(spoiler.done);
        for (int c = 0; c < 3 * k.n; c++) /* a rank that gives up knows why */
            T_CHECK(!k.out[c / 3][c % 3][OUT_GAVE_UP] || k.host[c / 3].abort);
        /* nobody has filled the windows of emu_dev_gather here */
        T_CHECK(!strcmp(kernel, "emu_dev_gather") || !sum_of(OUT_WRONG));
        end();
    }
}

/* A rank whose kernels do not come: with a deadline all others give up, say who is missing and what
 * they waited for, and tell every rank and later kernels. */
static void each_wait_has_a_deadline(void) {
    static const uint32_t what[] = {0, 0, 1, 2, 3};
    for (int i = 0; i < cases(5 * WAITERS); i++) {
        const uint64_t seed = 11000 + first_seed() + (unsigned)i;
        const int w = i % WAITERS, n = 2 + (i / WAITERS) % 2, absent = (int)(seed % (unsigned)n);
        begin(seed, n);
        for (int r = 0; r < n; r++) k.dc[r].timeoutNs = 500 * EMU_STEP_NS;
        three_kernels(waiters[w], absent);
        run(seed, waiters[w]);
        for (int r = 0; r < n; r++) {
            T_CHECKF(k.host[r].abort >> 32 == symmTimeout, "T_SEED=%llu: %s: rank %d heard %llx",
                     (unsigned long long)seed, waiters[w], r, (unsigned long long)k.host[r].abort);
            T_EQ(k.over[r], 1);
            if (n == 2)
                T_CHECKF((uint32_t)k.host[r].abort == (uint32_t)absent + 1,
                         "T_SEED=%llu: %s: rank %d heard of %u", (unsigned long long)seed,
                         waiters[w], r, (uint32_t)k.host[r].abort);
            if (r != absent && n == 2)
                T_CHECKF(k.host[r].left == ((uint64_t)what[w] << 32 | SYMM_STAGE_DEVICE),
                         "T_SEED=%llu: %s: rank %d left %llx", (unsigned long long)seed, waiters[w],
                         r, (unsigned long long)k.host[r].left);
            for (int c = 0; c < 3 && r != absent; c++)
                T_CHECKF(k.out[r][c][OUT_GAVE_UP] && !k.out[r][c][OUT_DONE],
                         "T_SEED=%llu: %s: rank %d, kernel %d went on", (unsigned long long)seed,
                         waiters[w], r, c);
        }
        end();
    }
}

/* What hosts and kernels see at any moment: what a rank waited for before an abort word that tells
 * of it, and that before the word by which later kernels leave. */
static void reasons_come_first(void *arg, uint64_t step) {
    (void)arg, (void)step;
    for (int r = 0; r < k.n; r++) {
        T_CHECK(!k.host[r].abort || k.host[0].left);
        T_CHECK(!k.over[r] || k.host[r].abort);
    }
}
static void reasons_come_before_what_tells_of_them(void) {
    for (int i = 0; i < cases(20 * WAITERS); i++) {
        const uint64_t seed = 23000 + first_seed() + (unsigned)i;
        begin(seed, 2); /* rank 0 alone waits */
        k.dc[0].timeoutNs = 500 * EMU_STEP_NS;
        three_kernels(waiters[i % WAITERS], 1);
        emu_between(reasons_come_first, NULL);
        run(seed, waiters[i % WAITERS]), emu_between(NULL, NULL);
        T_EQ(k.host[1].abort >> 32, symmTimeout);
        T_EQ(k.over[1], 1);
        end();
    }
}

/* Rank 1 does not come, and there is no deadline: the wait ends because it has left, because this
 * rank's communicator has ended, by an abort, and by a death. */
static void who_is_gone_is_not_waited_for(void) {
    for (int i = 0; i < cases(8 * WAITERS); i++) {
        const uint64_t seed = 12000 + first_seed() + (unsigned)i,
                       told[] = {
                           (uint64_t)symmRemoteError << 32 | 2, (uint64_t)symmRemoteError << 32 | 1,
                           (uint64_t)symmAborted << 32 | 2, (uint64_t)symmRemoteError << 32 | 2};
        const int w = i % WAITERS, how = i / WAITERS % 4;
        begin(seed, 2);
        three_kernels(waiters[w], 1);
        switch (how) {
        case 0: k.host[1].state = SYMM_STATE_LEFT; break;
        case 1: k.host[0].state = SYMM_STATE_LEFT; break;
        case 2: k.host[0].abort = told[2]; break;
        default: k.host[0].death = told[3]; break;
        }
        run(seed, waiters[w]);
        T_EQ(k.host[0].abort, told[how]);
        T_EQ((k.host[1].abort | k.host[1].death), told[how]);
        for (int c = 0; c < 3; c++) T_CHECK(k.out[0][c][OUT_GAVE_UP]);
        end();
    }
}
/* A wait that names no peer ends when all others have left; until then its deadline alone helps. */
static void a_signal_of_any_rank_ends_when_all_have_left(void) {
    for (int i = 0; i < cases(10); i++) {
        const uint64_t seed = 16000 + first_seed() + (unsigned)i;
        const int all = i % 2;
        begin(seed, 3);
        k.dc[0].timeoutNs = 3000 * EMU_STEP_NS;
        add((call){"emu_dev_counts", 0, 1, 32, {.rounds = 1}});
        k.args[1][0].absent = k.args[2][0].absent = 1;
        k.host[1].state = SYMM_STATE_LEFT;
        if (all) k.host[2].state = SYMM_STATE_LEFT;
        run(seed, "any peer");
        T_EQ(k.host[0].abort,
             all ? (uint64_t)symmRemoteError << 32 | 2 : (uint64_t)symmTimeout << 32);
        T_CHECK(k.out[0][0][OUT_GAVE_UP]);
        end();
    }
}
/* A rank on which a kernel has given up says nothing any more, though its kernels are launched. */
static void who_has_given_up_does_not_arrive(void) {
    static const char *const kernels[] = {"emu_dev_apart", "emu_dev_gather", "emu_dev_packets",
                                          "emu_dev_lines"};
    for (int i = 0; i < cases(16); i++) {
        const uint64_t seed = 17000 + first_seed() + (unsigned)i;
        begin(seed, 2);
        k.dc[0].timeoutNs = 300 * EMU_STEP_NS;
        k.over[1] = 1;
        add((call){kernels[i % 4], 0, 1, 32, {.rounds = 1, .items = 1}});
        run(seed, kernels[i % 4]);
        T_CHECK(k.out[0][0][OUT_GAVE_UP] && k.out[1][0][OUT_GAVE_UP]);
        T_EQ(k.host[0].abort, (uint64_t)symmTimeout << 32 | 2);
        end();
    }
}
/* A peer that has left owes nothing if it had stored its words before: all of its kernels ran. */
static void rank_1_leaves(void *arg, uint64_t now) {
    (void)arg, (void)now;
    if (emu_ended(1)) k.host[1].state = SYMM_STATE_LEFT;
}
static void what_a_peer_stored_before_it_left_counts(void) {
    for (int i = 0; i < cases(20 * WAITERS); i++) {
        const uint64_t seed = 13000 + first_seed() + (unsigned)i;
        const char *kernel = waiters[i % WAITERS];
        begin(seed, 2);
        three_kernels(kernel, -1);
        emu_between(rank_1_leaves, NULL);
        run(seed, kernel);
        emu_between(NULL, NULL);
        T_CHECKF(!sum_of(OUT_GAVE_UP) && sum_of(OUT_DONE) == 6, "T_SEED=%llu: %s: gave up",
                 (unsigned long long)seed, kernel);
        end();
    }
}
/* A kernel that finds that another one has left asks nobody. */
static void later_kernels_leave_at_once(void) {
    for (int w = 0; w < WAITERS; w++) {
        begin(1, 2);
        three_kernels(waiters[w], 1);
        k.over[0] = k.over[1] = 1;
        run(1, waiters[w]);
        for (int c = 0; c < 3; c++) T_CHECK(k.out[0][c][OUT_GAVE_UP]);
        T_EQ(k.host[0].abort, 0);
        end();
    }
}

/* ---- multicast ------------------------------------------------------------------------------- */

static void sums_and_stores_over_the_range(void) {
    static const char *const kernels[] = {"emu_dev_cast_f32", "emu_dev_cast_f16",
                                          "emu_dev_cast_bf16"};
    char *range = mmap(NULL, WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_CHECK(range != MAP_FAILED);
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 25000 + first_seed() + (unsigned)i, before = emu_cast_uses();
        begin(seed, 2 + i % 4);
        emu_multicast(range, WINDOW, window(0), k.stride, k.n);
        for (int c = 0; c < 2; c++)
            add((call){kernels[i % 3], i % 2, 2, 32, {.rounds = 3, .first = 3 * c}});
        for (int r = 0; r < k.n; r++)
            for (int c = 0; c < 2; c++) k.args[r][c].win.multicast = (uint64_t)(uintptr_t)range;
        run(seed, kernels[i % 3]);
        all_is_well(seed, kernels[i % 3]);
        T_CHECK(emu_cast_uses() > before);
        end();
    }
    T_EQ(munmap(range, WINDOW), 0);
}

/* ---- debug builds ---------------------------------------------------------------------------- */

static void a_debug_build_works_too(void) {
    static const char *const kernels[] = {"emu_dev_barriers", "emu_dev_gather", "emu_dev_signals",
                                          "emu_dev_packets", "emu_dev_lines"};
    for (int i = 0; i < cases(10); i++) {
        char name[40];
        const uint64_t seed = 14000 + first_seed() + (unsigned)i;
        snprintf(name, sizeof name, "%s", kernels[i % 5]);
        begin(seed, 2 + i % 3);
        if (i % 5 == 1) add((call){"emu_dev_fill", 1, 1, 32, {.first = 3}});
        add((call){name, 1, 1, 32, {.rounds = 3, .first = i % 5 == 1 ? 3 : 0, .items = 1}});
        run(seed, name);
        T_EQ(sum_of(OUT_WRONG) + sum_of(OUT_GAVE_UP), 0);
        T_CHECK(sum_of(OUT_DONE) == (uint64_t)k.n);
        end();
    }
}
static void a_debug_build_finds_what_is_out_of_range(void) {
    static const struct {
        const char *kernel;
        emu_dev_args what;
        uint32_t stage;
    } bad[] = {{"emu_dev_barriers", {.rounds = 1, .index = GROUPS}, 0},
               {"emu_dev_packets", {.rounds = 1, .index = GROUPS, .items = 1}, 2},
               {"emu_dev_packets", {.rounds = 1, .items = 17}, 2},
               /* an epoch that is another object's */
               {"emu_dev_twice", {.rounds = 1}, 0},
               {"emu_dev_overlap", {.rounds = 1}, 0},
               {"emu_dev_sessions", {.rounds = 1}, 2}};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin(i + 1, 2);
        add((call){bad[i].kernel, 1, 1, 32, bad[i].what});
        run(i + 1, bad[i].kernel);
        for (int r = 0; r < 2; r++) {
            T_EQ(k.host[r].abort >> 32, symmInvalidUsage);
            T_CHECK(k.out[r][0][OUT_GAVE_UP]);
        }
        /* who was told by the other one before it found it has not written what it did */
        const int first = k.host[0].left ? 0 : 1;
        T_EQ((uint32_t)k.host[first].left, SYMM_STAGE_DEVICE);
        T_EQ(k.host[first].left >> 32, bad[i].stage);
        end();
    }
}
/* A CTA without a place on the GPU would never meet its peers. */
static void a_debug_build_counts_places(void) {
    static const char *const kernels[] = {"emu_dev_barriers", "emu_dev_packets"};
    for (unsigned i = 0; i < 4; i++) {
        emu_dev_places = i < 2 ? 2 : 3;
        begin(i + 1, 2);
        add((call){kernels[i % 2], 1, 3, 32, {.rounds = 1, .items = 1}});
        run(i + 1, kernels[i % 2]);
        emu_dev_places = UINT64_MAX;
        T_EQ(sum_of(OUT_GAVE_UP) > 0, i < 2);
        for (int r = 0; r < 2; r++)
            T_EQ(k.host[r].abort >> 32, i < 2 ? symmInvalidUsage : symmSuccess);
        const int first = k.host[0].left ? 0 : 1;
        if (i < 2) T_EQ(k.host[first].left, 4ull << 32 | SYMM_STAGE_DEVICE);
        end();
    }
}
static void a_debug_build_compares_grids(void) {
    for (int i = 0; i < cases(10); i++) {
        const uint64_t seed = 15000 + first_seed() + (unsigned)i;
        begin(seed, 2);
        add((call){"emu_dev_barriers", 1, 2, 32, {.rounds = 2}});
        k.launch[CALLS].ctas = 3; /* rank 1's */
        run(seed, "grids");
        for (int r = 0; r < 2; r++) {
            T_EQ(k.host[r].abort >> 32, symmMismatch);
            T_CHECK(k.out[r][0][OUT_GAVE_UP]);
        }
        end();
    }
}
/* A peer may be in its next kernel already, with another grid, when this rank looks. What the
 * kernels store lies elsewhere in each grid, so only who gives up counts. */
static void grids_of_a_debug_build_may_change(void) {
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 19000 + first_seed() + (unsigned)i;
        begin(seed, 2 + i % 3);
        for (int c = 0; c < CALLS; c++)
            add((call){i % 2 ? "emu_dev_gather" : "emu_dev_barriers",
                       1,
                       1 + (c + i) % 3,
                       32,
                       {.rounds = 1}});
        run(seed, "other grids");
        T_CHECKF(!sum_of(OUT_GAVE_UP) && sum_of(OUT_DONE) == (uint64_t)(k.n * CALLS),
                 "T_SEED=%llu: gave up: reason %llx", (unsigned long long)seed,
                 (unsigned long long)k.host[0].abort);
        end();
    }
}

T_MAIN(T_TIMEOUT(barriers_of_ctas, 120), T(barriers_of_warps), T(barriers_of_other_groups),
       T(arrive_and_wait_in_sessions_of_their_own), T_TIMEOUT(packets_in_sessions, 120),
       T_TIMEOUT(lines_in_sessions, 120), T(relaxed_barriers_show_what_earlier_kernels_stored),
       T(signals_in_a_ring), T(signals_that_threads_poll), T(signals_are_counts_and_can_be_reset),
       T_TIMEOUT(experts, 120), T(full_boxes_in_other_grids), T_TIMEOUT(tiles, 120),
       T_TIMEOUT(copies_of_any_size_and_place, 120), T(sums_over_ranks),
       T(sums_and_stores_over_the_range), T_TIMEOUT(an_abort_or_a_death_at_any_step, 120),
       T(each_wait_has_a_deadline), T(reasons_come_before_what_tells_of_them),
       T(who_is_gone_is_not_waited_for), T(a_signal_of_any_rank_ends_when_all_have_left),
       T(who_has_given_up_does_not_arrive), T(what_a_peer_stored_before_it_left_counts),
       T(later_kernels_leave_at_once), T(a_debug_build_works_too),
       T(a_debug_build_finds_what_is_out_of_range), T(a_debug_build_counts_places),
       T(a_debug_build_compares_grids), T(grids_of_a_debug_build_may_change))
