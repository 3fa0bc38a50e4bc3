/* unit_kernels.c - the GPU kernels themselves, on fibers (emu.h): calls of all kernels on 2 to 8
 * ranks, drawn, with the planner's own division of scratch, one call behind the other while ranks
 * run apart; every byte of all windows compared with what the calls mean. And kernels that must
 * leave. T_SEED: the first case; T_CASES: how many. */
#include "kernel_ways.h"

/* The ways of a call's pairs of ranks, whose counts differ; and of what a rank keeps. */
static void note_pairs(const sample *s, int *ways) {
    const int straight = symm_kernels[s->plan.kernel].stages_dst;
    for (int r = 0; r < k.n; r++)
        for (int p = 0; p < k.n; p++) {
            const symm_extent *e = &s->parts[r][k.n + p];
            const int off = (s->dst[r] + e->at) % 16 != 0;
            if (e->bytes && e->bytes <= s->plan.pairs) ways[LINES]++; /* LL, as it is */
            if (e->bytes <= s->plan.pairs || p == r) continue;
            ways[!straight || s->staged[r] & OUT_DST ? STAGED : off ? STRAIGHT_OFF : STRAIGHT]++;
        }
}
static void note_way(const sample *s, int *ways) {
    if (s->v.n)
        note_pairs(s, ways);
    else if (symm_kernels[s->plan.kernel].staged)
        ways[way_of(s)]++;
}

/* Cases. Beyond these, every_kernel_in_any_order runs those in which a kernel goes a new way. */
enum { USUAL = 400, USUAL_UNEVEN = 150, LONG = 100, LONG_UNEVEN = 200 };

/* The calls that a seed draws, in the order that it draws. fresh: only if one goes a way that none
 * has gone. */
static void run_case(uint64_t seed, int *seen, int (*ways)[WAYS], int fresh) {
    char why[256] = "", text[1024];
    draw_calls(seed);
    for (int c = 0; fresh && c < k.calls; c++) {
        const symm_kernel_row *row = &symm_kernels[k.call[c].plan.kernel];
        if (row->staged && !ways[row - symm_kernels][way_of(&k.call[c])]) fresh = 0;
    }
    if (fresh) return end();
    for (int c = 0; c < k.calls; c++) {
        model_call(&k.call[c]);
        seen[k.call[c].plan.kernel]++;
        note_way(&k.call[c], ways[k.call[c].plan.kernel]);
    }
    const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
    describe(text, sizeof text);
    T_CHECKF(!r, "T_SEED=%llu, %d ranks: %s;%s", (unsigned long long)seed, k.n, why, text);
    if (!r) windows_are_as_modelled(seed);
    if (!r) astray_ranks_say_so(seed);
    end();
}

/* uneven: most calls have a count per rank. */
static void any_order(int uneven, int usual) {
    int seen[SYMM_KERNEL_COUNT] = {0}, ways[SYMM_KERNEL_COUNT][WAYS] = {{0}};
    symm_reduce_init();
    k.uneven = uneven;
    const int n = cases(usual), more = uneven || k.staging || n < usual ? n : 4 * n;
    for (int i = 0; i < more; i++) run_case(first_seed() + (unsigned)i, seen, ways, i >= n);
    for (int id = 0; !k.staging && cases(usual) >= usual && id < SYMM_KERNEL_COUNT; id++) {
        if (!(symm_kernels[id].flags & SYMM_K_GPU) || varies(id) != uneven) continue;
        T_CHECKF(seen[id], "%s was never drawn", symm_kernels[id].name);
        for (int way = 0; way < WAYS; way++)
            T_CHECKF(ways[id][way] > 0 || !has_way(&symm_kernels[id], way),
                     "%s was never drawn to go so: %s", symm_kernels[id].name, way_names[way]);
    }
}
static void every_kernel_in_any_order(void) {
    any_order(0, USUAL);
}
static void counts_per_rank_in_any_order(void) {
    any_order(1, USUAL_UNEVEN);
}
/* Credits, and rows of pieces. */
static void long_messages_through_staging(void) {
    k.staging = 1;
    any_order(0, LONG);
}
static void long_parts_through_staging(void) {
    k.staging = 1;
    any_order(2, LONG_UNEVEN);
}

/* Cases in which the next call meets what this one has staged unless a rank waits for those that it
 * stages for: about one case in five hundred. */
static void what_is_staged_is_waited_for(void) {
    static const uint64_t found[] = {294, 1042, 2196, 3165};
    int seen[SYMM_KERNEL_COUNT] = {0}, ways[SYMM_KERNEL_COUNT][WAYS] = {{0}};
    symm_reduce_init();
    k.staging = 1;
    k.uneven = 2;
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) run_case(found[i], seen, ways, 0);
}

/* More of them than a warp has lanes, or than a CTA has threads that move data. */
static void counts_per_rank_of_many_ranks(void) {
    char why[256] = "", text[1024];
    symm_reduce_init();
    k.uneven = 3;
    for (int i = 0; i < cases(2); i++) {
        const uint64_t seed = 16000 + first_seed() + (unsigned)i;
        draw_calls(seed);
        for (int c = 0; c < k.calls; c++) model_call(&k.call[c]);
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        describe(text, sizeof text);
        T_CHECKF(!r, "T_SEED=%llu: %s;%s", (unsigned long long)seed - 16000, why, text);
        if (!r) windows_are_as_modelled(seed - 16000);
        end();
    }
}

/* ---- kernels that leave ---------------------------------------------------------------------- */

static uint32_t epochs_of(int rank, int *differ) {
    const symm_gpu_ctl *ctl = (const symm_gpu_ctl *)(void *)(k.flat + (uint64_t)rank * STRIDE);
    for (int b = 1; b < SYMM_GPU_MAX_CTAS; b++) *differ |= ctl->epoch[b] != ctl->epoch[0];
    return ctl->epoch[0];
}

/* A rank whose kernels have not all come to their end, which `last` is the epoch of, knows why. */
static void who_left_has_the_reason(uint64_t seed, uint32_t last) {
    for (int p = 0; p < k.n; p++) {
        int differ = 0;
        const uint32_t epoch = epochs_of(p, &differ);
        const int ended = epoch == last && !differ;
        T_CHECKF(ended || k.host[p].abort >> 32 == symmAborted,
                 "T_SEED=%llu: rank %d of %d, which rank %d left, has epoch %u of %u and no reason",
                 (unsigned long long)seed, p, k.n, spoiler.rank, epoch, last);
    }
}

/* Wherever an abort comes, all kernels end, those that were begun after it too. */
static void abort_anywhere(int uneven) {
    char why[256] = "", text[1024];
    int spared = 0, all;
    k.uneven = uneven;
    for (int i = uneven ? 0 : -2; i < cases(25); i++) {
        /* first those that found peers not told, and lanes which left a warp one by one */
        const uint64_t seed = i < -1 ? 7189 : i < 0 ? 7056 : 7000 + first_seed() + (unsigned)i;
        draw_calls(seed);
        emu_between(count_steps, NULL);
        T_CHECK(!emu_run(k.launch, k.n, k.calls, seed, why, sizeof why));
        const uint32_t last = epochs_of(0, &all);
        end();
        draw_calls(seed);
        spoiler.at = 1 + draw((uint32_t)steps_so_far), spoiler.rank = (int)draw((uint32_t)k.n),
        spoiler.done = 0, spoiler.late = i % 3 ? draw(~0u) : 0;
        if (i % 5 == 1) /* when most ranks have ended */
            spoiler.late = ~0u, spoiler.at = steps_so_far - draw((uint32_t)steps_so_far / 16);
        emu_between(abort_at, NULL);
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        emu_between(NULL, NULL);
        describe(text, sizeof text);
        T_CHECKF(!r, "T_SEED=%llu, %d ranks: %s;%s", (unsigned long long)seed - 7000, k.n, why,
                 text);
        T_CHECK(spoiler.done);
        who_left_has_the_reason(seed - 7000, last);
        for (int p = 0; p < k.n; p++) spared += !k.host[p].abort;
        end();
    }
    T_CHECKF(cases(25) < 25 || spared > 0, "every rank needed the one that aborted");
}
static void an_abort_at_any_step_ends_all_kernels(void) {
    abort_anywhere(0);
}
static void an_abort_ends_those_with_counts_per_rank(void) {
    abort_anywhere(1);
}

/* One rank means another call: every rank's kernel ends and says so. */
static void differ(int uneven) {
    char why[256] = "", text[1024];
    k.uneven = uneven;
    for (int i = uneven ? 0 : -1; i < cases(25); i++) {
        const uint64_t seed = i < 0 ? 9075 : 9000 + first_seed() + (unsigned)i; /* see above */
        draw_calls(seed);
        const int call = (int)draw((uint32_t)k.calls), rank = (int)draw((uint32_t)k.n);
        if (k.n == 1) { /* has nobody to differ from */
            end();
            continue;
        }
        k.launch[rank * k.calls + call].args.sig ^= 1;
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        describe(text, sizeof text);
        T_CHECKF(!r, "T_SEED=%llu, %d ranks, call %d of rank %d: %s;%s",
                 (unsigned long long)seed - 9000, k.n, call, rank, why, text);
        for (int p = 0; p < k.n; p++)
            T_CHECKF(k.host[p].abort >> 32 == symmMismatch, "T_SEED=%llu: rank %d heard %llx",
                     (unsigned long long)seed - 9000, p, (unsigned long long)k.host[p].abort);
        end();
    }
}
static void ranks_that_differ_all_leave(void) {
    differ(0);
    differ(1);
}

/* ---- ranks that end before their peers ---- */

static void leave_when_ended(void *arg, uint64_t step) {
    (void)arg, (void)step;
    for (int r = 0; r < k.n; r++)
        if (emu_ended(r)) k.host[r].state = SYMM_STATE_LEFT;
}

/* As symmCommDestroy does behind its last call: what the peers still wait for has been stored. */
static void a_rank_that_has_ended_may_leave(void) {
    char why[256] = "", text[1024];
    symm_reduce_init();
    for (int i = 0; i < cases(30); i++) {
        const uint64_t seed = 11000 + first_seed() + (unsigned)i / 2;
        k.uneven = i % 2;
        draw_calls(seed);
        for (int c = 0; c < k.calls; c++) model_call(&k.call[c]);
        emu_between(leave_when_ended, NULL);
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        emu_between(NULL, NULL);
        describe(text, sizeof text);
        T_CHECKF(!r, "T_SEED=%llu, %d ranks: %s;%s", (unsigned long long)seed - 11000, k.n, why,
                 text);
        for (int p = 0; p < k.n; p++)
            T_CHECKF(!k.host[p].abort, "T_SEED=%llu: rank %d of %d heard %llx;%s",
                     (unsigned long long)seed - 11000, p, k.n, (unsigned long long)k.host[p].abort,
                     text);
        windows_are_as_modelled(seed - 11000);
        end();
    }
}

/* ---- sources of a rank that has ended ---- */

static int reused[RANKS]; /* it has written over the source of its last call */

/* The source's bytes, unless the result lies there. */
static uint64_t own_source_bytes(const sample *s, int r) {
    const uint64_t in = buffer(s, 0, r), out = buffer(s, 1, r);
    return s->src[r] < s->dst[r] + out && s->dst[r] < s->src[r] + in ? 0 : in;
}
static void reuse_when_ended(void *arg, uint64_t step) {
    const sample *s = &k.call[k.calls - 1];
    (void)arg, (void)step;
    for (int r = 0; r < k.n; r++) {
        if (reused[r] || !emu_ended(r)) continue;
        memset(window(r) + s->src[r], 0x5a, own_source_bytes(s, r));
        reused[r] = 1;
    }
}

/* A program writes over a source as soon as its kernel has ended: nobody reads it any more. Of all
 * that is drawn mostly what is loaded from peers. */
static void a_source_is_the_programs_again(void) {
    char why[256] = "", text[1024];
    int pulled = 0;
    symm_reduce_init();
    k.uneven = 0;
    for (unsigned i = 0; pulled < cases(40) && i < 20000; i++) {
        const uint64_t seed = 14000 + (i ? first_seed() + i - 1 : 735); /* an end unheard */
        draw_calls(seed);
        const sample *s = &k.call[k.calls - 1];
        const int loads =
            is_pulled(s) || (by_copies(s) && way_of(s) == COPIED) ||
            (symm_kernels[s->plan.kernel].relay && way_of(s) <= PULLED_OFF && way_of(s) >= PULLED);
        pulled += loads;
        for (int c = 0; c < k.calls && (loads || i % 40 == 0); c++) model_call(&k.call[c]);
        if (loads || i % 40 == 0) {
            memset(reused, 0, sizeof reused);
            emu_between(reuse_when_ended, NULL);
            const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
            emu_between(NULL, NULL);
            describe(text, sizeof text);
            T_CHECKF(!r, "T_SEED=%llu: %s;%s", (unsigned long long)seed - 14000, why, text);
            for (int p = 0; p < k.n; p++) {
                const uint64_t bytes = own_source_bytes(s, p);
                memset(modelled(p) + s->src[p], 0x5a, bytes);
                memset(window(p) + s->src[p], 0x5a, bytes);
            }
            windows_are_as_modelled(seed - 14000);
        }
        end();
    }
    T_CHECKF(pulled >= cases(40), "%d calls loaded from peers", pulled);
}

/* ---- windows of a rank that has aborted ---- */

/* draw_direct: an all_reduce of two ranks that is small enough to be loaded; a reduce that loads,
 * with a factor of each rank; a reduce_scatter of so many bytes a part. */
static int loads_only, factors, parts_of;

/* One call of a direct kernel straight between windows, one warp on each rank; each kernel in turn.
 * odd: bytes off a multiple of 16. */
static void draw_direct(uint64_t seed, int n, unsigned odd) {
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    begin(n);
    int direct[SYMM_KERNEL_COUNT], count = 0;
    int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
    for (int id = 0; id < SYMM_KERNEL_COUNT; id++)
        if (symm_kernels[id].staged && symm_kernels[id].stages_dst && varies(id) == k.uneven)
            direct[count++] = id;
    const symm_kernel_row *row = &symm_kernels[loads_only ? (int)SYMM_KERNEL_AR_DIRECT
                                               : factors  ? (int)SYMM_KERNEL_RD_DIRECT
                                               : parts_of ? (int)SYMM_KERNEL_RS_STAGED
                                                          : direct[seed % (unsigned)count]];
    forced[row->coll] = (int16_t)(row - symm_kernels);
    sample *s = &k.call[0];
    memset(s, 0, sizeof *s);
    s->call = (symm_call){.coll = row->coll,
                          .count = loads_only                     ? EMU_PULL_MOST
                                   : parts_of                     ? (size_t)parts_of
                                   : coll_parts(row->coll, n) > 1 ? 24 << 10
                                   : factors                      ? 3000
                                                                  : 48 << 10,
                          .type = factors ? symmBfloat16 : symmUint8,
                          .esize = 1u << factors,
                          .op = factors ? SYMM_OP_PREMUL : SYMM_OP_SUM,
                          /* who writes into rank 0's window */
                          .root = symm_colls[row->coll].root_gives ? n - 1 : 0};
    /* in staging's second hop they do not go between windows */
    if (in_two_hops(row->coll, n) && !factors) odd = 0;
    if (k.uneven) s->v.n = n;
    const symm_plan_env env = {.nranks = n,
                               .gpu = 1,
                               .sms = 1,
                               .ctas = 1,
                               .threads = 32,
                               .forced = forced,
                               .scratch = symm_plan_gpu_scratch(SMALL, n)};
    s->plan = symm_plan_make(&env, &s->call);
    for (int r = 0; r < n; r++) s->src[r] = odd, s->dst[r] = WINDOW / 2 + odd;
    if (k.uneven) make_parts(s);
    k.calls = 1;
    for (int r = 0; r < n; r++) launch_call(s, &env, r, &k.launch[r]);
}

/* When a rank that aborts has ended its own kernels, a peer's warp writes to its windows at most
 * the one piece that it is at: 4 KB; and what it has stored before may still be on the way. Two
 * times of three the last rank stands still until rank 0 has gone: then it is as far behind as the
 * posts of others, which it has, allow, and nothing but its look keeps it from all their pieces. */
static void left_alone(int uneven) {
    enum { PIECE = 4096, ON_THE_WAY = 256 * 16 };
    int in_the_middle = 0;
    k.uneven = uneven;
    leaver.told = 0;
    for (int i = 0; i < cases(140); i++) {
        const uint64_t seed = 12000 + first_seed() + (unsigned)i;
        const int n = loads_only ? 2 : 2 + i / 2 % 2; /* each kernel has both: there are 7, and 2 */
        const uint64_t hold = i / 4 % 3 ? WAITING : 0;
        char why[256] = "";
        draw_direct(seed, n, 0);
        emu_between(count_steps, NULL);
        T_CHECK(!emu_run(k.launch, k.n, 1, seed, why, sizeof why));
        end();
        draw_direct(seed, n, 0);
        run_with_the_leaver(seed, 1 + hold + draw((uint32_t)steps_so_far), hold);
        const unsigned late = changed(0, WINDOW);
        in_the_middle += late > 0;
        T_CHECKF(late <= (unsigned)(k.n - 1) * (PIECE + ON_THE_WAY),
                 "T_SEED=%llu: %d ranks have written %u bytes into the window of a rank that had "
                 "left",
                 (unsigned long long)seed - 12000, k.n - 1, late);
        end();
    }
    T_CHECKF(cases(140) < 40 || in_the_middle > 0, "no abort came while somebody wrote");
    T_CHECKF(cases(140) < 40 || leaver.told > 0, "nobody inside was told");
}
static void an_aborted_ranks_windows_are_left_alone(void) {
    left_alone(0);
}
static void the_same_by_loads(void) {
    loads_only = 1;
    left_alone(0);
    loads_only = 0;
}
static void the_same_with_counts_per_rank(void) {
    left_alone(1);
}

static struct {
    int aborted, over;
    uint64_t told; /* rank 1's abort word when rank 0's kernel had ended */
} goes;

static void rank_0_goes(void *arg, uint64_t step) {
    (void)arg;
    if (!goes.aborted && step >= WAITING) {
        goes.aborted = 1;
        k.host[1].death = k.host[0].abort = (uint64_t)symmAborted << 32 | 1;
    }
    if (!goes.aborted || goes.over || !emu_ended(0)) return;
    goes.over = 1;
    goes.told = k.host[1].abort;
    emu_hold(-1);
}

/* Rank 1 minds an end when it needs rank 0: while it is not there it is told nothing, and its call,
 * which begins later, ends with the reason. */
static void who_is_not_there_is_told_nothing(void) {
    char why[256] = "";
    for (int i = 0; i < cases(8); i++) {
        const uint64_t seed = 17000 + first_seed() + (unsigned)i;
        draw_direct(seed, 2, 0);
        memset(&goes, 0, sizeof goes);
        emu_hold(1);
        emu_between(rank_0_goes, NULL);
        T_CHECKF(!emu_run(k.launch, k.n, 1, seed, why, sizeof why), "T_SEED=%llu: %s",
                 (unsigned long long)seed - 17000, why);
        emu_between(NULL, NULL);
        T_CHECK(goes.over && !goes.told);
        T_EQ(k.host[1].abort, k.host[0].abort);
        end();
    }
}

/* Who has waited for a third rank while it left does not begin to write to it. */
static void a_rank_that_has_left_is_not_begun_with(void) {
    for (int i = 0; i < cases(24); i++) {
        const uint64_t seed = 13000 + first_seed() + (unsigned)i / 2;
        k.uneven = i % 2;
        draw_direct(seed, 3, 1 + (unsigned)i / 2 % 15);
        run_with_the_leaver(seed, 0, 0);
        /* An early look may miss it once, for the bytes at the ends. */
        T_CHECKF(changed(0, WINDOW) <= (emu_delays() ? 60 : 0),
                 "T_SEED=%llu: %u bytes of its window have changed",
                 (unsigned long long)seed - 13000, changed(0, WINDOW));
        end();
    }
}

/* ---- a factor that comes late ---- */

/* A rank has from the last one all that a direct kernel begins with, and no factor. */
static int lacks_a_factor(int rank) {
    int all;
    const symm_gpu_ctl *ctl = (const symm_gpu_ctl *)(void *)(k.flat + (uint64_t)rank * STRIDE);
    const symm_gpu_inbox *in = &ctl->inbox[k.n - 1];
    const uint32_t epoch = epochs_of(rank, &all) + 1, at = epoch & 1u;
    return in->sig[at] >> 32 == epoch && in->src_off[at][3] == epoch &&
           in->dst_off[at][3] == epoch && in->scalar[at][3] != epoch;
}
static void rank_0_goes_before_it(void *arg, uint64_t step) {
    if (!leaver.hold && (lacks_a_factor(1) || lacks_a_factor(2))) leaver.hold = step;
    if (leaver.hold) rank_0_aborts(arg, step);
}

/* Who has waited for one while rank 0 left writes nothing to it, nor the bytes at the ends. Cases
 * in which no lane happens to look at the end of its wait. */
static void a_late_factor_does_not_let_ranks_write(void) {
    static const uint64_t found[] = {299, 456, 584, 689};
    char why[256] = "";
    factors = 1;
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        const uint64_t seed = 18000 + found[i];
        draw_direct(seed, 4, 6);
        leaver.at = leaver.hold = 0, leaver.aborted = leaver.over = 0;
        emu_between(rank_0_goes_before_it, NULL);
        T_CHECKF(!emu_run(k.launch, k.n, 1, seed, why, sizeof why), "seed %llu: %s",
                 (unsigned long long)seed, why);
        emu_between(NULL, NULL);
        T_CHECKF(leaver.over && !changed(0, WINDOW),
                 "seed %llu: %u bytes of its window have changed", (unsigned long long)seed,
                 changed(0, WINDOW));
        end();
    }
    factors = 0;
}

/* ---- counts that differ ---- */

/* Of two ranks, one means another number of elements of a part that is between them. Says what. */
static void make_unequal(sample *s, int giver, int taker, symm_unequal *said) {
    const int at_taker = (int)draw(2), p = at_taker ? taker : giver;
    symm_extent *e = &s->parts[p][at_taker ? k.n + giver : taker];
    const uint64_t was = e->bytes;
    k.launch[p].args.src = window(p) + s->src[p];
    k.launch[p].args.dst = window(p) + s->dst[p];
    e->bytes = !was ? s->call.esize : draw(2) ? 0 : was - s->call.esize;
    *said = (symm_unequal){.who = (uint64_t)s->call.esize << 32 | (unsigned)giver << 16 |
                                  ((unsigned)taker + 1),
                           .gives = at_taker ? was : e->bytes,
                           .takes = at_taker ? e->bytes : was};
}

/* What a rank may have written: parts of its result, as it was told to expect them. */
static void wrote_only_its_parts(uint64_t seed, int rank) {
    const sample *s = &k.call[0];
    const symm_extent *from = &k.launch[rank].args.extents[k.n];
    for (uint64_t i = 0; i < WINDOW; i++) {
        int inside = 0;
        for (int p = 0; p < k.n; p++) inside |= i - s->dst[rank] - from[p].at < from[p].bytes;
        T_CHECKF(inside || window(rank)[i] == modelled(rank)[i],
                 "T_SEED=%llu: byte %llu of rank %d of %d was written", (unsigned long long)seed,
                 (unsigned long long)i, rank, k.n);
        if (!inside && window(rank)[i] != modelled(rank)[i]) return;
    }
}

/* Both ranks leave in this call, one says what each means, and nobody writes outside. */
static void counts_that_differ_are_told(void) {
    char why[256] = "", text[1024];
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 15000 + first_seed() + (unsigned)i;
        int said = 0;
        symm_unequal want;
        k.uneven = 2;
        draw_calls(seed);
        if (k.n == 1) {
            end();
            continue;
        }
        for (int p = 1; p < k.n; p++) k.launch[p] = k.launch[p * k.calls];
        k.calls = 1;
        const int giver = (int)draw((uint32_t)k.n),
                  taker = (giver + 1 + (int)draw((uint32_t)k.n - 1)) % k.n;
        make_unequal(&k.call[0], giver, taker, &want);
        const int r = emu_run(k.launch, k.n, 1, seed, why, sizeof why);
        describe(text, sizeof text);
        T_CHECKF(!r, "T_SEED=%llu, %d ranks: %s;%s", (unsigned long long)seed - 15000, k.n, why,
                 text);
        for (int p = 0; p < k.n; p++) {
            T_CHECKF(k.host[p].abort >> 32 == symmMismatch, "T_SEED=%llu: rank %d heard %llx",
                     (unsigned long long)seed - 15000, p, (unsigned long long)k.host[p].abort);
            if (k.host[p].unequal.who) said |= !memcmp(&k.host[p].unequal, &want, sizeof want);
            wrote_only_its_parts(seed - 15000, p);
        }
        T_CHECKF(said, "T_SEED=%llu: nobody said what rank %d has for rank %d;%s",
                 (unsigned long long)seed - 15000, giver, taker, text);
        end();
    }
}

/* ---- what a barrier orders ---- */

/* Kernels that have let the barrier's in early store to all peers; those behind it, on any rank,
 * find all of it. */
static void a_barrier_orders_what_was_stored_before_it(void) {
    enum { VECTORS = 40, ROUNDS = 3 };
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 14000 + first_seed() + (unsigned)i;
        k.random = seed * 0x9e3779b97f4a7c15ull | 1;
        for (int j = 0; j < 8; j++) draw(2);
        begin(2 + (int)draw(3));
        sample barrier = {.call = {.coll = symmCollBarrier}};
        const symm_plan_env env = {
            .nranks = k.n, .gpu = 1, .sms = 2, .scratch = symm_plan_gpu_scratch(SMALL, k.n)};
        barrier.plan = symm_plan_make(&env, &barrier.call);
        emu_launch list[RANKS * 3 * ROUNDS];
        for (int c = 0; c < 3 * ROUNDS * k.n; c++) {
            emu_launch *l = &list[c];
            launch_call(&barrier, &env, c / (3 * ROUNDS), l);
            if (c % 3 == 1) continue;
            l->kernel = emu_find(c % 3 ? "emu_scattered" : "emu_scatter");
            l->ctas = 1, l->threads = 32, l->early = c % 3 == 0;
            l->args.count = VECTORS;
            l->args.sig = 77u + (unsigned)(c / 3 % ROUNDS);
            /* each round elsewhere: nobody waits for who still reads the last one */
            l->args.dst_off =
                SYMM_CTL_BYTES + SCRATCH + (unsigned)(c / 3 % ROUNDS) * RANKS * VECTORS * 16;
        }
        T_CHECKF(!emu_run(list, k.n, 3 * ROUNDS, seed, why, sizeof why), "T_SEED=%llu: %s",
                 (unsigned long long)seed - 14000, why);
        for (int p = 0; p < k.n; p++)
            T_CHECKF(!k.host[p].left, "T_SEED=%llu: rank %d of %d did not find what was stored",
                     (unsigned long long)seed - 14000, p, k.n);
        end();
    }
}

/* Whether what two ranks scatter goes through staging. odd: bytes off a multiple of 16. */
static int stages(int bytes, unsigned odd) {
    char why[256] = "";
    int used = 0;
    parts_of = bytes;
    draw_direct(21000, 2, odd);
    T_CHECKF(!emu_run(k.launch, k.n, 1, 21000, why, sizeof why), "%s", why);
    for (unsigned i = 0; i < SCRATCH; i++) used |= k.flat[SYMM_CTL_BYTES + i];
    end();
    parts_of = 0;
    return used != 0;
}
/* Staging is faster at large sizes, but not off a multiple of 16. */
static void large_parts_are_staged_where_it_pays(void) {
    T_CHECK(!stages(EMU_PULL_MOST, 0) && !stages(EMU_PULL_MOST, 3));
    T_CHECK(stages(EMU_PULL_MOST + 16, 0) && !stages(EMU_PULL_MOST + 16, 3));
    T_CHECK(!stages(EMU_PULL_MOST + 24, 0)); /* the second part is off */
}

T_MAIN(T_TIMEOUT(every_kernel_in_any_order, 180), T(large_parts_are_staged_where_it_pays),
       T(long_messages_through_staging), T(long_parts_through_staging),
       T(what_is_staged_is_waited_for), T(counts_per_rank_in_any_order),
       T(counts_per_rank_of_many_ranks), T_TIMEOUT(an_abort_at_any_step_ends_all_kernels, 120),
       T_TIMEOUT(an_abort_ends_those_with_counts_per_rank, 120), T(counts_that_differ_are_told),
       T(ranks_that_differ_all_leave), T(a_rank_that_has_ended_may_leave),
       T(a_source_is_the_programs_again), T(an_aborted_ranks_windows_are_left_alone),
       T(who_is_not_there_is_told_nothing), T(the_same_by_loads), T(the_same_with_counts_per_rank),
       T(a_rank_that_has_left_is_not_begun_with), T(a_late_factor_does_not_let_ranks_write),
       T(a_barrier_orders_what_was_stored_before_it))
