/* unit_device_hosts.c - kernels that use the device API where ranks are on several hosts, on
 * fibers: each rank sees pages of its own host alone. They work as on one host; where one gives up,
 * those of other hosts do, too, and each host learns why. T_SEED: the first case; T_CASES: how
 * many. One thread. */
#include "device_api_kit.h"

static symm_ctl *pages[RANKS]; /* [rank][of], as rank's host has them */
static uint64_t (*far)[8];     /* [of], in GPU memory */

static void begin_apart(uint64_t seed, int n) {
    begin(seed, n);
    far = calloc((size_t)n, sizeof *far);
    T_CHECK(far != NULL);
    emu_memory(far, (size_t)n * sizeof *far);
    for (int r = 0; r < n; r++) {
        pages[r] = calloc((size_t)n, sizeof *pages[r]);
        T_CHECK(pages[r]);
        emu_memory(pages[r], (size_t)n * sizeof *pages[r]);
        for (int p = 0; p < n; p++) pages[r][p].state = SYMM_STATE_ALIVE;
        k.dc[r].hostBase = (uint64_t)(uintptr_t)pages[r];
        k.dc[r].farBase = (uint64_t)(uintptr_t)far, k.dc[r].farStride = sizeof *far;
    }
}
static void end_apart(void) {
    for (int r = 0; r < k.n; r++) free(pages[r]);
    free(far);
    end();
}

static const char *const kernels[] = {"emu_dev_barriers", "emu_dev_packets", "emu_dev_signals",
                                      "emu_dev_lines"};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static void three_kernels(const char *kernel) {
    for (int c = 0; c < 3; c++)
        add((call){kernel, 0, 1, 64, {.rounds = 4, .first = 4 * c, .items = 1}});
}

static void they_work_as_on_one_host(void) {
    for (int i = 0; i < cases(24); i++) {
        const uint64_t seed = 41000 + first_seed() + (unsigned)i;
        begin_apart(seed, ranks_of(i));
        three_kernels(kernels[i % KERNELS]);
        run(seed, kernels[i % KERNELS]);
        all_is_well(seed, kernels[i % KERNELS]);
        for (int r = 0; r < k.n; r++) T_CHECK(!pages[r][r].abort && !far[r][1]);
        end_apart();
    }
}

static struct {
    uint64_t at, steps, word;
    int rank, done, late;
} spoiler;

static void count_steps(void *arg, uint64_t now) {
    (void)arg;
    spoiler.steps = now;
}
/* A host tells its own rank's kernels, as its watcher does. */
static void spoil(void *arg, uint64_t now) {
    (void)arg;
    if (spoiler.done || now < spoiler.at) return;
    spoiler.done = 1;
    symm_ctl *own = &pages[spoiler.rank][spoiler.rank];
    *(spoiler.late ? &own->death : &own->abort) = spoiler.word;
}

/* late: it comes as a death, which the others then hear of as a death. */
static void told_at_any_step(int late) {
    int heard = 0;
    for (int i = 0; i < cases(48); i++) {
        const uint64_t seed = 42000 + first_seed() + (unsigned)i;
        const char *kernel = kernels[i % KERNELS];
        begin_apart(seed, 2 + i % 3);
        three_kernels(kernel);
        emu_between(count_steps, NULL);
        run(seed, kernel);
        end_apart();
        begin_apart(seed, 2 + i % 3);
        three_kernels(kernel);
        spoiler.at = 1 + draw((uint32_t)spoiler.steps), spoiler.rank = (int)draw((uint32_t)k.n);
        spoiler.late = late, spoiler.done = 0;
        spoiler.word = (uint64_t)symmRemoteError << 32 | 7;
        emu_between(spoil, NULL);
        run(seed, kernel); /* all end */
        emu_between(NULL, NULL);
        for (int r = 0; r < k.n; r++) {
            if (!k.over[r] || r == spoiler.rank) continue;
            const symm_ctl *told = (const symm_ctl *)(const void *)far[r];
            T_EQ(late ? told->death : told->abort, spoiler.word);
            if (!sum_of_rank(r, OUT_GAVE_UP)) continue;
            heard++;
            T_CHECKF(pages[r][r].abort == spoiler.word,
                     "T_SEED=%llu: rank %d has given up, and its "
                     "host reads %llx",
                     (unsigned long long)seed, r, (unsigned long long)pages[r][r].abort);
        }
        end_apart();
    }
    T_CHECK(cases(48) < 48 || heard > 10);
}
static void who_gives_up_tells_kernels_of_other_hosts(void) {
    told_at_any_step(0);
}
static void a_death_is_passed_on_as_a_death(void) {
    told_at_any_step(1);
}

T_MAIN(T_TIMEOUT(they_work_as_on_one_host, 60),
       T_TIMEOUT(who_gives_up_tells_kernels_of_other_hosts, 60),
       T_TIMEOUT(a_death_is_passed_on_as_a_death, 60))
