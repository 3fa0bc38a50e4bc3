/* unit_multicast_kernels.c - the kernels over the multicast range, on fibers (emu.h): a store there
 * is one for each rank, in any order and late, and neither a release nor a load by another address
 * comes behind it without an alias fence. Calls on 3 to 8 ranks, drawn, one after the other and
 * between kernels that use the same windows by their usual addresses; every byte of all windows
 * compared with what the calls mean. And kernels that must leave. T_SEED: the first case; T_CASES:
 * how many. */
#include <sys/mman.h>

#include "kernel_kit.h"

/* Where windows keep it from being used, all ranks must take the other way. */
enum { USED, ELSEWHERE, UNBOUND, IN_NO_WINDOW, WAYS };
static const char *const way_names[] = {"over the range", "a rank's buffers lie elsewhere",
                                        "not bound", "a rank's buffers are in no window"};

static struct {
    char *at; /* the range: no memory of its own */
    int way[CALLS];
    int side[CALLS];  /* SYMM_CAST_: the buffers that lie elsewhere, or are not bound */
    int usual[CALLS]; /* a kernel of another kind */
} cast;

static const symm_kernel_id kernels[] = {SYMM_KERNEL_AR_MULTICAST, SYMM_KERNEL_AG_MULTICAST,
                                         SYMM_KERNEL_RS_MULTICAST, SYMM_KERNEL_RD_MULTICAST,
                                         SYMM_KERNEL_BC_MULTICAST};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

/* Buffers at the same offsets on all ranks, but where the way says otherwise; often what the call
 * before has written is read: by another address, while it is still on its way. */
static void place_alike(sample *s, int way, int *side) {
    const uint64_t half = WINDOW / 2 - GUARD, in = buffer(s, 0, 0), out = buffer(s, 1, 0),
                   before = s > k.call ? s[-1].dst[0] : 0,
                   b = draw((uint32_t)((half - out) / 16 + 1)) * 16u;
    const int chained = s > k.call && draw(4) && before % (WINDOW / 2) + in <= half;
    const uint64_t a =
        chained ? before % (WINDOW / 2) : draw((uint32_t)((half - in) / 16 + 1)) * 16u;
    const int in_place = !draw(3), swap = chained ? before >= WINDOW / 2 : (int)draw(2),
              other = (int)draw((uint32_t)k.n);
    for (int r = 0; r < k.n; r++) {
        s->src[r] = a + (swap ? WINDOW / 2 : 0);
        s->dst[r] = b + (swap ? 0 : WINDOW / 2);
        if (in_place) *side = SYMM_CAST_SRC | SYMM_CAST_DST;
        if (way == ELSEWHERE && r == other && *side & SYMM_CAST_SRC) s->src[r] += 16;
        if (way == ELSEWHERE && r == other && *side & SYMM_CAST_DST) s->dst[r] += 16;
        if (in_place && in <= out)
            s->src[r] = s->dst[r] + own_at(s, 1, coll_send_part(s->call.coll, r), r);
        if (in_place && in > out)
            s->dst[r] = s->src[r] + own_at(s, 0, coll_recv_part(s->call.coll, r), r);
        s->staged[r] = way == IN_NO_WINDOW && r == other ? OUT_SRC | OUT_DST : 0;
    }
}

static void draw_cast(sample *s, const symm_plan_env *base, int i) {
    const symm_kernel_row *row = &symm_kernels[kernels[draw(KERNELS)]];
    static const int of[] = {0, 1, 3}; /* f32, bf16, i32 */
    static const uint32_t ops[] = {symmSum, symmAvg, symmMax, symmMin};
    const int t = coll_reduces(row->coll) ? of[draw(3)] : 0;
    memset(s, 0, sizeof *s);
    s->call.coll = row->coll;
    s->call.type = types[t].type;
    s->call.esize = types[t].size;
    s->call.op = coll_reduces(row->coll) && draw(2) ? ops[draw(t == 3 ? 4 : t == 0 ? 2 : 1)] : 0;
    s->call.root = symm_colls[row->coll].flags & SYMM_COLL_ROOT ? (int)draw((uint32_t)k.n) : 0;
    const unsigned most = (draw(3) ? 6000u : 60000u) / (unsigned)coll_parts(row->coll, k.n);
    s->call.count = (1 + draw(most / 16)) * 16 / s->call.esize;
    cast.usual[i] = !draw(4) && t != 3;
    cast.way[i] = draw(3) ? USED : (int)draw(WAYS);
    cast.side[i] = 1 + (int)draw(3);
    int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
    forced[row->coll] = (int16_t)(cast.usual[i] ? kernel_of(row->coll) : row - symm_kernels);
    symm_plan_env env = *base;
    env.forced = forced;
    env.ctas = 1 + (int)draw(2);
    env.threads = 32 * (1 + (int)draw(3));
    env.relay = draw(2) ? SYMM_RELAY_STAGING : SYMM_RELAY_AUTO;
    s->plan = symm_plan_make(&env, &s->call);
    T_CHECK(cast.usual[i] || s->plan.kernel == row - symm_kernels);
    place_alike(s, cast.way[i], &cast.side[i]);
}

static void launch_cast(const sample *s, const symm_plan_env *env, int rank, int i, emu_launch *l) {
    launch_call(s, env, rank, l);
    l->args.gpu.multicast = (uint64_t)(uintptr_t)cast.at;
    const int unbound = cast.way[i] == UNBOUND ? cast.side[i] : 0;
    if (l->args.src_off != SYMM_STAGED && !(unbound & SYMM_CAST_SRC))
        l->args.flags |= SYMM_ARG_CAST_SRC;
    if (l->args.dst_off != SYMM_STAGED && !(unbound & SYMM_CAST_DST))
        l->args.flags |= SYMM_ARG_CAST_DST;
}

/* Some ranks, and a range over all that they have. What the planner knows of them. */
static symm_plan_env open_range(uint64_t seed) {
    static const int ranks[] = {3, 3, 4, 4, 5, 8};
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    begin(ranks[draw(6)]);
    if (!cast.at)
        cast.at = mmap(NULL, STRIDE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    T_CHECK(cast.at != MAP_FAILED);
    emu_multicast(cast.at, STRIDE, k.flat, STRIDE, k.n);
    return (symm_plan_env){.nranks = k.n,
                           .gpu = 1,
                           .sms = 2,
                           .multicast = 1,
                           .cast_scratch = 1,
                           .scratch = symm_plan_gpu_scratch(SMALL, k.n)};
}
static void draw_casts(uint64_t seed) {
    const symm_plan_env env = open_range(seed);
    k.calls = 2 + (int)draw(CALLS - 1);
    for (int c = 0; c < k.calls; c++) {
        draw_cast(&k.call[c], &env, c);
        for (int r = 0; r < k.n; r++)
            launch_cast(&k.call[c], &env, r, c, &k.launch[r * k.calls + c]);
    }
}

/* ---- what they mean -------------------------------------------------------------------------- */

static void calls_in_any_order(void) {
    int seen[KERNELS][WAYS] = {{0}};
    symm_reduce_init();
    for (int i = 0; i < cases(200); i++) {
        const uint64_t seed = first_seed() + (unsigned)i;
        char why[256] = "", text[1024];
        draw_casts(seed);
        int uses = 0;
        for (int c = 0; c < k.calls; c++) {
            model_call(&k.call[c]);
            for (int j = 0; j < KERNELS; j++)
                if (k.call[c].plan.kernel == kernels[j]) seen[j][cast.way[c]]++;
            uses += !cast.usual[c] && cast.way[c] == USED;
        }
        const uint64_t before = emu_cast_uses();
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        describe(text, sizeof text);
        T_CHECKF(!r, "T_SEED=%llu, %d ranks: %s;%s", (unsigned long long)seed, k.n, why, text);
        if (!r) windows_are_as_modelled(seed);
        T_CHECKF((emu_cast_uses() > before) >= (uses > 0), "T_SEED=%llu: the range was not used;%s",
                 (unsigned long long)seed, text);
        end();
    }
    for (int j = 0; j < KERNELS; j++)
        for (int way = 0; way < WAYS; way++)
            T_CHECKF(cases(200) < 200 || seen[j][way], "%s was never drawn: %s",
                     symm_kernels[kernels[j]].name, way_names[way]);
}

/* What must not go over the range does not: every access there is refused. */
static void other_ways_leave_the_range_alone(void) {
    symm_reduce_init();
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 3000 + first_seed() + (unsigned)i;
        char why[256] = "";
        draw_casts(seed);
        const symm_plan_env env = {.nranks = k.n, .scratch = symm_plan_gpu_scratch(SMALL, k.n)};
        for (int c = 0; c < k.calls; c++) {
            const int needs = symm_kernels[k.call[c].plan.kernel].multicast;
            cast.way[c] = 1 + i % (WAYS - 1);
            cast.side[c] &= needs;
            if (!cast.side[c]) cast.side[c] = needs;
            place_alike(&k.call[c], cast.way[c], &cast.side[c]);
            for (int r = 0; r < k.n; r++)
                launch_cast(&k.call[c], &env, r, c, &k.launch[r * k.calls + c]);
            model_call(&k.call[c]);
        }
        const uint64_t before = emu_cast_uses();
        T_CHECKF(!emu_run(k.launch, k.n, k.calls, seed, why, sizeof why), "T_SEED=%llu: %s",
                 (unsigned long long)seed - 3000, why);
        windows_are_as_modelled(seed - 3000);
        T_CHECKF(emu_cast_uses() == before, "T_SEED=%llu: %s, yet it was used",
                 (unsigned long long)seed - 3000, way_names[cast.way[0]]);
        end();
    }
}

/* ---- packets --------------------------------------------------------------------------------- */

/* Calls of any size that packets have room for, of any reduction, with buffers anywhere; now and
 * then they go to one peer after the other, through the same places of scratch. */
static void draw_packet(sample *s, const symm_plan_env *base) {
    const int t = (int)draw(3);
    const uint64_t most = draw(3) ? 600 : base->scratch.gpu.ll_slot / 2;
    memset(s, 0, sizeof *s);
    s->call = (symm_call){.coll = symmCollAllReduce,
                          .type = types[t].type,
                          .esize = types[t].size,
                          .op = draw(2) ? SYMM_OP_SUM : draw(SYMM_OP_COUNT),
                          .count = 1 + draw((uint32_t)most / types[t].size)};
    int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
    const int kernel = draw(4) ? SYMM_KERNEL_AR_CAST_PACKET : SYMM_KERNEL_AR_LL;
    forced[symmCollAllReduce] = (int16_t)kernel;
    symm_plan_env env = *base;
    env.forced = forced;
    env.ctas = 1 + (int)draw(2);
    env.threads = 32 * (1 + (int)draw(3));
    s->plan = symm_plan_make(&env, &s->call);
    T_EQ(s->plan.kernel, kernel);
    place(s);
}
/* Stores of the calls' packets: two for 8 bytes of each rank, each of which goes to all. */
static uint64_t draw_packets(uint64_t seed) {
    uint64_t stores = 0;
    const symm_plan_env env = open_range(seed);
    k.calls = 2 + (int)draw(CALLS - 1);
    for (int c = 0; c < k.calls; c++) {
        sample *s = &k.call[c];
        draw_packet(s, &env);
        if (s->plan.kernel == SYMM_KERNEL_AR_CAST_PACKET)
            stores += (s->call.count * s->call.esize + 7) / 8 * 2 * (unsigned)(k.n * k.n);
        for (int r = 0; r < k.n; r++) {
            launch_call(s, &env, r, &k.launch[r * k.calls + c]);
            k.launch[r * k.calls + c].args.gpu.multicast = (uint64_t)(uintptr_t)cast.at;
        }
    }
    return stores;
}
static void packets_go_to_all_at_once(void) {
    symm_reduce_init();
    for (int i = 0; i < cases(150); i++) {
        const uint64_t seed = 11000 + first_seed() + (unsigned)i;
        char why[256] = "", text[1024];
        const uint64_t stores = draw_packets(seed), before = emu_cast_uses();
        for (int c = 0; c < k.calls; c++) model_call(&k.call[c]);
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        describe(text, sizeof text);
        T_CHECKF(!r, "T_SEED=%llu, %d ranks: %s;%s", (unsigned long long)seed - 11000, k.n, why,
                 text);
        windows_are_as_modelled(seed - 11000);
        T_CHECKF(emu_cast_uses() == before + stores, "T_SEED=%llu: %llu stores, not %llu;%s",
                 (unsigned long long)seed - 11000, (unsigned long long)(emu_cast_uses() - before),
                 (unsigned long long)stores, text);
        end();
    }
}

/* ---- kernels that leave ---------------------------------------------------------------------- */

/* Large ones and packets in turn. */
static void draw_either(uint64_t seed) {
    if (seed % 2)
        draw_packets(seed);
    else
        draw_casts(seed);
}
static void an_abort_at_any_step_ends_all(void) {
    for (int i = 0; i < cases(60); i++) {
        const uint64_t seed = 5000 + first_seed() + (unsigned)i;
        char why[256] = "";
        draw_either(seed);
        emu_between(count_steps, NULL);
        T_CHECK(!emu_run(k.launch, k.n, k.calls, seed, why, sizeof why));
        end();
        draw_either(seed);
        spoiler.at = 1 + draw((uint32_t)steps_so_far), spoiler.rank = (int)draw((uint32_t)k.n);
        spoiler.done = 0;
        emu_between(abort_at, NULL);
        const int r = emu_run(k.launch, k.n, k.calls, seed, why, sizeof why);
        emu_between(NULL, NULL);
        T_CHECKF(!r, "T_SEED=%llu, %d ranks: %s", (unsigned long long)seed - 5000, k.n, why);
        T_CHECK(spoiler.done);
        end();
    }
}

/* One long call, over the range, one warp on each rank: what is stored goes into all windows. */
static void draw_long(uint64_t seed) {
    int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
    int stores[KERNELS], count = 0;
    draw_casts(seed); /* the range */
    for (int j = 0; j < KERNELS; j++)
        if (symm_kernels[kernels[j]].multicast & SYMM_CAST_DST) stores[count++] = kernels[j];
    const symm_kernel_row *row = &symm_kernels[stores[seed % (unsigned)count]];
    sample *s = &k.call[0];
    memset(s, 0, sizeof *s);
    forced[row->coll] = (int16_t)(row - symm_kernels);
    s->call = (symm_call){.coll = row->coll,
                          .count = 48u * 1024 / 4 / (unsigned)coll_parts(row->coll, k.n) / 4 * 4,
                          .type = symmFloat32,
                          .esize = 4,
                          .op = SYMM_OP_SUM,
                          .root = k.n - 1};
    const symm_plan_env env = {.nranks = k.n,
                               .gpu = 1,
                               .sms = 1,
                               .ctas = 1,
                               .threads = 32,
                               .multicast = 1,
                               .forced = forced,
                               .scratch = symm_plan_gpu_scratch(SMALL, k.n)};
    s->plan = symm_plan_make(&env, &s->call);
    T_CHECK(s->plan.kernel == row - symm_kernels);
    for (int r = 0; r < k.n; r++) s->dst[r] = WINDOW / 2;
    cast.way[0] = USED, cast.usual[0] = 0;
    k.calls = 1;
    for (int r = 0; r < k.n; r++) launch_cast(s, &env, r, 0, &k.launch[r]);
}

/* As in unit_kernels: when a rank that aborts has ended its kernel, a peer's warp writes to its
 * window at most the rows that it is at, and what it has stored before may be on the way. */
static void an_aborted_ranks_windows_are_left_alone(void) {
    enum { ROWS = 4 * 512, ON_THE_WAY = 256 * 16 };
    int in_the_middle = 0;
    for (int i = 0; i < cases(90); i++) {
        const uint64_t seed = 9000 + first_seed() + (unsigned)i;
        char why[256] = "";
        draw_long(seed);
        emu_between(count_steps, NULL);
        T_CHECKF(!emu_run(k.launch, k.n, 1, seed, why, sizeof why), "%s", why);
        end();
        draw_long(seed);
        run_with_the_leaver(seed, 1 + draw((uint32_t)steps_so_far), 0);
        const unsigned late = changed(0, WINDOW);
        in_the_middle += late > 0;
        T_CHECKF(late <= (unsigned)(k.n - 1) * (ROWS + ON_THE_WAY),
                 "T_SEED=%llu: %d ranks have written %u bytes into the window of a rank that had "
                 "left",
                 (unsigned long long)seed - 9000, k.n - 1, late);
        end();
    }
    T_CHECKF(cases(90) < 40 || in_the_middle > 0, "no abort came while somebody wrote");
}

/* One rank means another call: nobody stores into another's windows, and all say so. */
static void ranks_that_differ_all_leave(void) {
    for (int i = 0; i < cases(30); i++) {
        const uint64_t seed = 7000 + first_seed() + (unsigned)i;
        char why[256] = "";
        draw_casts(seed);
        for (int p = 1; p < k.n; p++) k.launch[p] = k.launch[p * k.calls];
        k.calls = 1;
        k.launch[draw((uint32_t)k.n)].args.sig ^= 1;
        const uint64_t before = emu_cast_uses();
        T_CHECKF(!emu_run(k.launch, k.n, 1, seed, why, sizeof why), "T_SEED=%llu: %s",
                 (unsigned long long)seed - 7000, why);
        T_CHECKF(emu_cast_uses() == before, "T_SEED=%llu: the range was used all the same",
                 (unsigned long long)seed - 7000);
        for (int p = 0; p < k.n; p++)
            T_CHECKF(k.host[p].abort >> 32 == symmMismatch, "T_SEED=%llu: rank %d heard %llx",
                     (unsigned long long)seed - 7000, p, (unsigned long long)k.host[p].abort);
        end();
    }
}

T_MAIN(T_TIMEOUT(calls_in_any_order, 120), T(other_ways_leave_the_range_alone),
       T(packets_go_to_all_at_once), T(an_abort_at_any_step_ends_all),
       T(an_aborted_ranks_windows_are_left_alone), T(ranks_that_differ_all_leave))
