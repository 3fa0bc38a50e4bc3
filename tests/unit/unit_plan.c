/* unit_plan.c - the planner: every call has a kernel that can run it, forced kernels are honoured
 * or refused with a reason, SYMM_ALGO is parsed strictly. Pure; one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/common/p2p_ring.h"
#include "device/host/reduce.h"
#include "host/coll/plan.h"
#include "coll_expect.h"

static const int16_t free_choice[symmNumColls] = SYMM_FORCED_NONE;

static const uint64_t counts[] = {
    0,    1,     2,      7,        56,        57,          64,          112,
    113,  448,   449,    512,      1023,      1024,        1025,        4096,
    4097, 65536, 100003, 0x100000, 0x1000000, 0x100000000, 0x100000003, 0x10000000000};
enum { COUNTS = sizeof counts / sizeof counts[0] };

typedef void (*visit)(const symm_plan_env *env, const symm_call *call);

/* Whether the collective is on the backend at all; if not, there is no plan. */
static int is_there(const symm_plan_env *env, const symm_call *call) {
    int kernels[SYMM_KERNEL_COUNT];
    if (coll_kernels(call->coll, env->gpu ? SYMM_K_GPU : SYMM_K_HOST, env->nranks, kernels))
        return 1;
    T_EQ(symm_plan_make(env, call).kernel, SYMM_KERNEL_COUNT);
    return 0;
}

enum { EVERY_COLL = -1 };

/* Calls of one collective, or of every one that the backend has. */
static void each_call(const symm_plan_env *env, int only, visit fn) {
    static const uint32_t types[] = {symmUint8, symmFloat16, symmFloat32, symmFloat64};
    for (int coll = 0; coll < symmNumColls; coll++) {
        const symm_call none = {.coll = (symmColl_t)coll, .type = symmUint8, .esize = 1};
        if ((only != EVERY_COLL && coll != only) || !is_there(env, &none)) continue;
        for (int t = 0; t < 4; t++)
            for (int i = 0; i < COUNTS; i++) {
                uint32_t esize = (uint32_t)symm_type_size(types[t]);
                symm_call call = {.coll = (symmColl_t)coll,
                                  .count = counts[i],
                                  .type = types[t],
                                  .op = SYMM_OP_SUM,
                                  .esize = esize};
                if (!symm_coll_moves(&symm_colls[coll])) call.count = 0;
                fn(env, &call);
            }
    }
}

/* Ranks (all, or 1 to 5, 10, 20, 40 and 72), scratch, cores, CTAs and
 * determinism in all combinations. */
static void each_environment(const int16_t *forced, int only, int all_ranks, visit fn) {
    static const uint64_t scratch[] = {1ull << 20, 3ull << 20, 64ull << 20, 4ull << 30};
    static const int ctas[] = {0, 1, 3, 64};
    for (int n = 1; n <= SYMM_MAX_RANKS; n += all_ranks || n < 5 ? 1 : n < 40 ? n : 32)
        for (int bits = 0; bits < 64; bits++) {
            symm_plan_env env = {.nranks = n,
                                 .oversubscribed = bits & 1,
                                 .deterministic = bits >> 1 & 1,
                                 .ctas = ctas[bits >> 2 & 3],
                                 .forced = forced};
            env.scratch = symm_plan_scratch(scratch[bits >> 4], n);
            each_call(&env, only, fn);
        }
}

static int same(const symm_plan *a, const symm_plan *b) {
    return a->kernel == b->kernel && a->ctas == b->ctas && a->chunk == b->chunk &&
           a->lines == b->lines && a->line_warps == b->line_warps && a->flags == b->flags &&
           a->force_refused == b->force_refused;
}

static void is_sound(const symm_plan_env *env, const symm_call *call) {
    const char *why = "unset";
    symm_plan p = symm_plan_make(env, call), again = symm_plan_make(env, call);
    T_CHECK(p.kernel < SYMM_KERNEL_COUNT);
    T_EQ(symm_kernels[p.kernel].coll, call->coll);
    T_CHECKF(symm_plan_can(env, call, p.kernel, &why), "%s planned for %d ranks, count %llu: %s",
             symm_kernels[p.kernel].name, env->nranks, (unsigned long long)call->count, why);
    T_CHECK(why == NULL);
    T_CHECK(same(&p, &again));
    T_CHECK(p.ctas >= 1 && p.ctas <= SYMM_MAX_CTAS);
    if (env->ctas) T_EQ(p.ctas, env->ctas);
    T_CHECK(p.chunk >= 64 && (p.chunk & (p.chunk - 1)) == 0);
    T_CHECK(4ull * (unsigned)p.ctas * p.chunk <= env->scratch.host.stage_bytes);
    if (env->deterministic) T_CHECK(symm_kernels[p.kernel].flags & SYMM_K_ORDERED);
}

static void every_call_has_a_kernel(void) {
    each_environment(free_choice, EVERY_COLL, 1, is_sound);
}

/* The kernel that env forces, or -1. */
static int forced_kernel(const symm_plan_env *env, const symm_call *call) {
    return env->forced[call->coll];
}

static void forcing_holds_or_says_why(const symm_plan_env *env, const symm_call *call) {
    char text[512];
    const char *why = NULL;
    int k = forced_kernel(env, call);
    is_sound(env, call);
    symm_plan p = symm_plan_make(env, call);
    symm_plan_reason(env, call, &p, text, sizeof text);
    if (k < 0) {
        T_EQ(p.force_refused, 0);
    } else if (symm_plan_can(env, call, (symm_kernel_id)k, &why)) {
        T_EQ(p.kernel, k);
        T_EQ(p.force_refused, 0);
        T_MSG(text, "SYMM_ALGO");
    } else {
        symm_plan_env open = *env;
        open.forced = free_choice;
        T_EQ(p.force_refused, 1);
        T_EQ(p.kernel, symm_plan_make(&open, call).kernel);
        T_CHECK(why != NULL && why[0]);
        T_MSG(text, symm_kernels[k].name);
        T_MSG(text, why);
    }
}

static void forced_kernels_are_honoured_or_refused(void) {
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
        forced[symm_kernels[k].coll] = (int16_t)k;
        each_environment(forced, (int)symm_kernels[k].coll, 0, forcing_holds_or_says_why);
        symm_plan_env env = {
            .nranks = 4, .forced = forced, .scratch = symm_plan_scratch(64 << 20, 4)};
        each_call(&env, EVERY_COLL, forcing_holds_or_says_why); /* others are not concerned */
    }
}

/* A packet kernel must be refused exactly where its packets would leave their slot. */
static void packets_fit_their_slots(void) {
    for (int n = 2; n <= SYMM_MAX_RANKS; n++)
        for (uint64_t bytes = 1ull << 20; bytes <= 64ull << 20; bytes *= 2)
            for (int i = 0; i < COUNTS; i++) {
                symm_plan_env env = {
                    .nranks = n, .forced = free_choice, .scratch = symm_plan_scratch(bytes, n)};
                symm_call call = {
                    .coll = symmCollAllReduce, .count = counts[i], .type = symmUint8, .esize = 1};
                uint64_t packets = env.scratch.host.packet_slot / SYMM_PACKET_STRIDE;
                uint64_t slice =
                    (counts[i] + 63) / 64; /* in 64-byte units, as the kernel divides */
                slice =
                    (slice + (unsigned)n - 1) / (unsigned)n; /* of the first rank, the largest */
                int one = symm_plan_can(&env, &call, SYMM_KERNEL_AR_PUSH, NULL),
                    two = symm_plan_can(&env, &call, SYMM_KERNEL_AR_TWOSHOT, NULL);
                T_EQ(one, counts[i] <= packets * SYMM_PACKET_BYTES);
                if (two) T_CHECK(slice * 64 <= packets * SYMM_PACKET_BYTES || counts[i] == 0);
            }
}

static void limits_of_ctas_hold(void) {
    symm_call call = {.coll = symmCollAllReduce, .count = 100, .type = symmFloat32, .esize = 4};
    symm_plan_env env = {
        .nranks = 4, .forced = free_choice, .scratch = symm_plan_scratch(8 << 20, 4)};
    env.min_ctas = 5;
    T_EQ(symm_plan_make(&env, &call).ctas, 5);
    env.ctas = 9;
    T_EQ(symm_plan_make(&env, &call).ctas, 9);
    env.max_ctas = 7;
    T_EQ(symm_plan_make(&env, &call).ctas, 7);
    env = (symm_plan_env){.nranks = 4, .ctas = 1000, .forced = free_choice, .scratch = env.scratch};
    T_EQ(symm_plan_make(&env, &call).ctas, SYMM_MAX_CTAS);
}

static void stores_go_past_the_caches_where_they_keep_no_more(void) {
    symm_plan_env env = {
        .nranks = 2, .forced = free_choice, .scratch = symm_plan_scratch(8 << 20, 2)};
    static const struct {
        uint64_t keeps,
            bytes; /* of the message, of which all_gather of two ranks touches four times as much */
        int past;
    } rows[] = {{0, (3 << 18) - 4, 0},        {0, 3 << 18, 1},
                {1 << 20, 3 << 18, 1},        {16 << 20, 4 << 20, 0},
                {16 << 20, (4 << 20) + 4, 1}, {UINT64_MAX, 1ull << 40, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        symm_call call = {
            .coll = symmCollAllGather, .count = rows[i].bytes / 4, .type = symmFloat32, .esize = 4};
        env.keeps = rows[i].keeps;
        T_EQ((symm_plan_make(&env, &call).flags & SYMM_ARG_NT) != 0,
             rows[i].past && SYMM_PAST_CACHES);
    }
}

/* ---- SYMM_ALGO ---- */

static void parses(const char *text, int reduce, int gather, int barrier) {
    int16_t forced[symmNumColls] = {[0 ... symmNumColls - 1] = 99};
    T_OK(symm_plan_parse_algo(text, forced));
    T_EQ(forced[symmCollAllReduce], reduce);
    T_EQ(forced[symmCollAllGather], gather);
    T_EQ(forced[symmCollBarrier], barrier);
}

static void good_words(void) {
    parses("", -1, -1, -1);
    parses(",", -1, -1, -1);
    parses("all_reduce_push_packet", SYMM_KERNEL_AR_PUSH, -1, -1);
    parses("all_reduce:all_reduce_push_packet", SYMM_KERNEL_AR_PUSH, -1, -1);
    parses("all_gather_load,all_reduce_load_store", SYMM_KERNEL_AR_ZEROCOPY, SYMM_KERNEL_AG_LOAD,
           -1);
    parses("all_reduce_push_packet,all_reduce_2shot_packet", SYMM_KERNEL_AR_TWOSHOT, -1, -1);
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        int16_t forced[symmNumColls];
        T_OK(symm_plan_parse_algo(symm_kernels[k].name, forced));
        T_EQ(forced[symm_kernels[k].coll], k);
    }
}

static void refuses(const char *text, const char *word) {
    int16_t forced[symmNumColls] = {[0 ... symmNumColls - 1] = 99};
    T_ERR(symm_plan_parse_algo(text, forced), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), word);
    T_MSG(symmGetLastError(NULL), "SYMM_ALGO");
    T_MSG(symmGetLastError(NULL), "symm-info kernels");
    for (int c = 0; c < symmNumColls; c++) T_EQ(forced[c], 99);
}

static void bad_words_are_named(void) {
    T_EXPECT_WARNINGS();
    refuses("ring", "'ring'");
    refuses("all_reduce_push_packet,tree", "'tree'");
    refuses("all_reduce", "'all_reduce'");
    refuses("all_reduce_push_packe", "'all_reduce_push_packe'");
    refuses("all_reduce_push_packets", "'all_reduce_push_packets'");
    refuses("broadcast:all_reduce_push_packet", "'broadcast:all_reduce_push_packet'");
    refuses("all_gather:all_reduce_push_packet", "'all_gather:all_reduce_push_packet'");
    refuses("all_reduce:", "'all_reduce:'");
    refuses(":all_reduce_push_packet", "':all_reduce_push_packet'");
    refuses(" all_reduce_push_packet", "' all_reduce_push_packet'");
}

/* ---- what is shown ---- */

static void hash_is_stable(void) {
    uint64_t h = symm_plan_hash();
    T_CHECK(h != 0);
    symm_plan_env env = {
        .nranks = 3, .forced = free_choice, .scratch = symm_plan_scratch(1 << 20, 3)};
    each_call(&env, EVERY_COLL, is_sound);
    T_EQ(symm_plan_hash(), h);
}

static void count_kernel(void *arg, const char *name, const char *coll, const char *types,
                         const char *range, const char *how) {
    T_CHECK(name[0] && coll[0] && types[0] && range[0] && how[0]);
    T_CHECK(strncmp(name, coll, strlen(coll)) == 0); /* names begin with the collective */
    ++*(int *)arg;
}

typedef struct {
    symm_plan_env env;
    uint64_t next;
    char coll[32];
} walk;

/* Rows follow each other without a gap, and say what the planner says at both of their ends. */
static void check_row(void *arg, const char *coll, uint64_t from, uint64_t to,
                      const symm_plan *most) {
    walk *w = arg;
    if (strcmp(w->coll, coll)) {
        T_EQ(w->next, 0); /* the last row of the one before ends at the largest number */
        snprintf(w->coll, sizeof w->coll, "%s", coll);
    }
    T_EQ(from, w->next);
    T_CHECK(to >= from);
    for (int end = 0; end < 2; end++)
        for (int c = 0; c < symmNumColls; c++) {
            uint64_t bytes = !end ? from : to > 1ull << 40 ? 1ull << 40 : to;
            symm_call call = {.coll = (symmColl_t)c, .count = bytes, .type = symmUint8, .esize = 1};
            if (strcmp(symm_coll_name(c), coll)) continue;
            if (!symm_coll_moves(&symm_colls[c])) call.count = 0;
            symm_plan p = symm_plan_make(&w->env, &call);
            T_EQ(p.kernel, most->kernel);
            if (end) T_CHECK(same(&p, most));
        }
    w->next = to + 1;
}

static void walk_table(symm_plan_env env) {
    walk w = {.env = env};
    symm_plan_table(&w.env, check_row, &w);
    int last = symmNumColls - 1;
    while (!is_there(&w.env, &(symm_call){.coll = (symmColl_t)last, .type = symmUint8, .esize = 1}))
        last--;
    T_STREQ(w.coll, symm_coll_name(last));
    T_EQ(w.next, 0);
}

static void tables_say_what_is_done(void) {
    int kernels = 0, everywhere = 0;
    for (int gpu = 0; gpu < 2; gpu++) symm_plan_kernels(gpu, count_kernel, &kernels);
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++)
        everywhere +=
            (symm_kernels[k].flags & (SYMM_K_HOST | SYMM_K_GPU)) == (SYMM_K_HOST | SYMM_K_GPU);
    T_EQ(kernels, SYMM_KERNEL_COUNT + everywhere);
    for (int n = 1; n <= SYMM_MAX_RANKS; n++) {
        for (int over = 0; over < 2; over++)
            walk_table((symm_plan_env){
                .nranks = n, .oversubscribed = over, .scratch = symm_plan_scratch(64ull << 20, n)});
        for (int sms = 1; sms <= 264; sms += 131)
            walk_table((symm_plan_env){.nranks = n,
                                       .gpu = 1,
                                       .sms = sms,
                                       .scratch = symm_plan_gpu_scratch(64ull << 20, n)});
    }
    T_STREQ(symm_coll_name(-1), "?");
    T_STREQ(symm_coll_name(symmNumColls), "?");
}

static uint32_t flags_of(int coll, uint64_t bytes, symm_plan_env env) {
    const symm_call call = {
        .coll = (symmColl_t)coll, .count = bytes, .type = symmUint8, .esize = 1};
    env.direct = 1;
    env.scratch = symm_plan_scratch(32ull << 20, env.nranks);
    return symm_plan_make(&env, &call).flags;
}
/* What several ranks take of one buffer is staged, unless all is to be read where it is. */
static void a_broadcast_to_many_is_staged(void) {
    for (int n = 2; n <= 4; n++)
        for (int adapts = 0; adapts < 2; adapts++)
            for (int c = 0; c < symmNumColls; c++) {
                if (c != symmCollBroadcast && c != symmCollScatter && c != symmCollGather) continue;
                const uint32_t flags =
                    flags_of(c, 1 << 20, (symm_plan_env){.nranks = n, .adapts = adapts});
                T_EQ(!(flags & SYMM_ARG_DIRECT), c == symmCollBroadcast && n > 2 && adapts);
            }
}

/* From which part on both ends move what is in no window, as one would wait; 0: never. */
static uint64_t both_from(int coll, int n, int crowded, int writes) {
    const symm_plan_env env = {.nranks = n, .writes = writes, .oversubscribed = crowded};
    for (uint64_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 2)
        if (flags_of(coll, bytes, env) & SYMM_ARG_WRITES) return bytes;
    return 0;
}
static void both_ends_move_a_share(void) {
    for (int c = 0; c < symmNumColls; c++) {
        const uint64_t rooted = symm_colls[c].flags & SYMM_COLL_ROOT ? 32 << 10 : 0;
        T_EQ(both_from(c, 2, 0, 1),
             c == symmCollReduce || c == symmCollAllReduce ? 16 << 10 : rooted);
        T_EQ(both_from(c, 2, 0, 0), 0);
    }
    T_EQ(both_from(symmCollScatter, 4, 0, 1), 32 << 10);
    T_EQ(both_from(symmCollScatter, 4, 1, 1), 0);
    T_EQ(both_from(symmCollGather, 4, 0, 1), 512 << 10);
    T_EQ(both_from(symmCollGather, 4, 1, 1), 32 << 10);
}

/* ---- GPUs ---- */

static const uint64_t gpu_scratch[] = {1ull << 20, (1ull << 20) + 4096, 3ull << 20, 112ull << 20,
                                       4ull << 30};
enum { GPU_SCRATCH = sizeof gpu_scratch / sizeof gpu_scratch[0] };

/* How many of the 450 combinations of what may be forced and of scratch are passed over. T_FULL=1
 * takes all of them; where kernels are forced every 7th, as those come for each kernel: so each
 * scratch, relay and determinism, with two of the 15 forced grids, others for other ranks and
 * GPUs. */
static int gpu_step(int many) {
    const char *full = getenv("T_FULL");
    if (full && atoi(full) > 0) return many ? 1 : 7;
    return many ? 19 : 89;
}

/* Ranks, multiprocessors (a shared GPU's, an H200's, more than any grid has), what may be forced,
 * scratch. */
static void each_gpu(const int16_t *forced, int only, int many, visit fn) {
    const int step = gpu_step(many);
    static const int sms[] = {1, 3, 33, 132, 264}, ctas[] = {0, 1, 64},
                     threads[] = {0, 1, 32, 97, 480};
    for (int n = 1; n <= SYMM_MAX_RANKS; n += n < 9 ? 1 : many ? 7 : 63)
        for (int s = 0; s < 5; s++)
            for (int bits = (5 * n + s) % step; bits < 3 * 5 * 2 * GPU_SCRATCH * 3; bits += step) {
                symm_plan_env env = {.nranks = n,
                                     .gpu = 1,
                                     .sms = sms[s],
                                     .quarter = (s + bits) % 2,
                                     .ctas = ctas[bits % 3],
                                     .threads = threads[bits / 3 % 5],
                                     .deterministic = bits / 15 % 2,
                                     .relay = bits / 30 / GPU_SCRATCH,
                                     .min_ctas = s == 2 ? 40 : 0,
                                     .max_ctas = s == 3 ? 100 : 0,
                                     .forced = forced};
                env.scratch = symm_plan_gpu_scratch(gpu_scratch[bits / 30 % GPU_SCRATCH], n);
                each_call(&env, only, fn);
            }
}

static int min(int a, int b) {
    return a < b ? a : b;
}

/* What all CTAs stage fits there; half of the rows may be for results; the grid is as without. */
static void staging_is_sound(const symm_plan_env *env, const symm_plan *p) {
    const uint64_t n = (unsigned)env->nranks, rows = (uint64_t)(unsigned)p->stage_ctas *
                                                     (unsigned)p->stage_warps *
                                                     (unsigned)p->stage_rows;
    T_CHECK(p->stage_ctas >= 1 && p->stage_ctas <= p->ctas);
    T_CHECK(p->stage_warps >= 1 && p->stage_warps <= p->threads / 32);
    /* as many as kernels load at once */
    T_CHECK(p->stage_rows >= 2 && p->stage_rows % (n == 2 ? 4 : 2) == 0);
    T_CHECKF(rows * 512 * (n - 1) * SYMM_GPU_STAGE_PLACES <= env->scratch.gpu.stage_bytes,
             "%d ranks: %d CTAs of %d warps of %d rows leave the %llu bytes of staging",
             env->nranks, p->stage_ctas, p->stage_warps, p->stage_rows,
             (unsigned long long)env->scratch.gpu.stage_bytes);
}

/* What all warps send before they wait fits into a slot. A direct kernel has the places of the
 * kernel whose lines it sends. Where no place may be used twice, that is the whole message. */
static void lines_are_sound(const symm_plan_env *env, const symm_call *call,
                            const symm_kernel_row *k, const symm_plan *p) {
    const int once = k->cap == SYMM_CAP_LINES, places = once       ? 1
                                                        : k->relay ? symm_kernels[k->relay].places
                                                                   : k->places;
    const uint64_t warps = (uint64_t)p->ctas * (unsigned)p->line_warps;
    T_CHECK(p->line_warps >= 0 && p->line_warps <= p->threads / 32);
    if (k->places) T_EQ(p->line_warps, p->threads / 32);
    if (!places) T_EQ(p->line_warps, 0);
    if (!p->line_warps) return;
    /* What crosses once has the places of both phases, and so has a call with a root. */
    const int two = !(symm_colls[k->coll].flags & SYMM_COLL_ROOT), all = env->nranks == 2 ? 4 : 2;
    const unsigned slots = two && (k->relay ? &symm_kernels[k->relay] : k)->sliced ? 1 : all;
    const uint64_t lines = slots * (env->scratch.gpu.line_slot / 512u);
    /* One item: a line of it has the place that it has in the message. */
    if (once) T_CHECK((symm_plan_message(call) + 479) / 480 <= lines);
    T_CHECKF(once || p->lines <= lines / ((unsigned)places * warps),
             "%s, %d ranks: %llu lines of %llu warps in %d places leave their slot of %llu bytes",
             k->name, env->nranks, (unsigned long long)p->lines, (unsigned long long)warps, places,
             (unsigned long long)env->scratch.gpu.line_slot);
    if (once) T_CHECK(p->lines * warps * 480 >= symm_plan_message(call));
}

static void grid_is_sound(const symm_plan_env *env, const symm_call *call, const symm_kernel_row *k,
                          const symm_plan *p) {
    const int lines = k->places && !k->staged,
              few = env->nranks == 4 ? k->staged : (lines || k->staged) && env->nranks == 8,
              many = env->nranks == 4 && lines && !k->sliced,
              pair = k->cap == SYMM_CAP_LL && env->nranks == 2,
              whole = pair   ? SYMM_GPU_THREADS_PAIR
                      : many ? SYMM_GPU_THREADS_FOUR
                      : few  ? SYMM_GPU_THREADS_FEW
                             : SYMM_GPU_THREADS,
              quarter = pair ? SYMM_GPU_QUARTER_PAIR : SYMM_GPU_QUARTER(whole),
              most = env->quarter ? quarter : whole;
    T_CHECK(p->ctas >= 1 && p->ctas <= SYMM_GPU_MAX_CTAS);
    T_CHECKF(p->ctas <= env->sms, "%s: %d CTAs on %d multiprocessors: they wait for each other",
             k->name, p->ctas, env->sms);
    T_CHECK(p->threads >= 32 && p->threads % 32 == 0);
    T_CHECKF(p->threads <= most, "%s, %d ranks: %d threads", k->name, env->nranks, p->threads);
    if (env->max_ctas && !env->ctas) T_CHECK(p->ctas <= env->max_ctas);
    /* Forced grids are kept, but where lines would not fit into scratch or CTAs on the GPU. */
    if (env->ctas && !k->places) T_EQ(p->ctas, min(env->ctas, env->sms));
    if (env->ctas) T_CHECK(p->ctas <= env->ctas);
    if (env->threads >= 32) T_CHECK(p->threads <= env->threads);
    T_CHECK(p->lines >= 1);
    if (k->staged) staging_is_sound(env, p);
    lines_are_sound(env, call, k, p);
}

static void is_sound_on_gpus(const symm_plan_env *env, const symm_call *call) {
    const char *why = "unset";
    symm_plan p = symm_plan_make(env, call), again = symm_plan_make(env, call);
    T_CHECK(p.kernel < SYMM_KERNEL_COUNT);
    const symm_kernel_row *k = &symm_kernels[p.kernel];
    T_EQ(k->coll, call->coll);
    T_CHECKF(symm_plan_can(env, call, p.kernel, &why),
             "%s planned for %d GPUs, %llu bytes of slot, count %llu: %s", k->name, env->nranks,
             (unsigned long long)env->scratch.gpu.line_slot, (unsigned long long)call->count, why);
    T_CHECK(k->flags & SYMM_K_GPU);
    T_CHECK(same(&p, &again) && p.threads == again.threads);
    T_EQ(p.flags, 0); /* stores past the caches are the host's */
    if (env->deterministic) T_CHECK(k->flags & SYMM_K_ORDERED);
    grid_is_sound(env, call, k, &p);
}

static void every_call_has_a_gpu_kernel(void) {
    each_gpu(free_choice, EVERY_COLL, 1, is_sound_on_gpus);
}

static void forcing_holds_on_gpus_or_says_why(const symm_plan_env *env, const symm_call *call) {
    char text[1024];
    const char *why = NULL;
    const int k = forced_kernel(env, call);
    is_sound_on_gpus(env, call);
    symm_plan p = symm_plan_make(env, call);
    symm_plan_reason(env, call, &p, text, sizeof text);
    if (symm_plan_can(env, call, (symm_kernel_id)k, &why)) {
        T_EQ(p.kernel, k);
        T_EQ(p.force_refused, 0);
        T_MSG(text, "SYMM_ALGO");
        return;
    }
    symm_plan_env open = *env;
    open.forced = free_choice;
    symm_plan chosen = symm_plan_make(&open, call);
    T_EQ(p.force_refused, 1);
    T_EQ(p.kernel, chosen.kernel);
    T_EQ(p.ctas, chosen.ctas);
    T_EQ(p.threads, chosen.threads);
    T_CHECK(why != NULL && why[0]);
    T_MSG(text, symm_kernels[k].name);
    T_MSG(text, why);
    if (!(symm_kernels[k].flags & SYMM_K_GPU)) T_MSG(text, "host backend");
}

static void forced_kernels_are_honoured_or_refused_on_gpus(void) {
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
        const int coll = (int)symm_kernels[k].coll;
        forced[coll] = (int16_t)k;
        each_gpu(forced, coll, 0, forcing_holds_on_gpus_or_says_why);
    }
}

/* A kernel is on a table of its backend only, and each collective has one on both, for one rank and
 * for more. */
static void no_kernel_runs_on_the_wrong_backend(void) {
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++)
        for (int gpu = 0; gpu < 2; gpu++)
            for (int n = 1; n <= 2; n++) {
                symm_plan_env env = {.nranks = n, .gpu = gpu, .sms = 132, .forced = free_choice};
                env.scratch = (gpu ? symm_plan_gpu_scratch : symm_plan_scratch)(64 << 20, n);
                symm_call call = {.coll = symm_kernels[k].coll, .type = symmUint8, .esize = 1};
                const char *why = NULL;
                int there = !!(symm_kernels[k].flags & (gpu ? SYMM_K_GPU : SYMM_K_HOST));
                int can = symm_plan_can(&env, &call, (symm_kernel_id)k, &why);
                if (!there) T_CHECK(!can);
                if (!there) T_MSG(why, gpu ? "host backend" : "GPUs");
            }
}

/* Rings, LL packets, lines, staging: each area in its place, no slot over another, none over the
 * end. */
static void gpu_scratch_is_divided(void) {
    for (uint64_t bytes = 1ull << 20; bytes <= 4ull << 30; bytes += bytes / 3 & ~4095ull)
        for (int n = 1; n <= SYMM_MAX_RANKS; n++) {
            symm_scratch s = symm_plan_gpu_scratch(bytes, n);
            uint64_t ranks = (unsigned)n, ll_end = s.gpu.ll_off + 2 * ranks * s.gpu.ll_slot,
                     end = s.gpu.line_off + 4 * ranks * s.gpu.line_slot;
            T_CHECK(s.gpu.ll_off >= sizeof(symm_gpu_ctl) && s.gpu.ll_off % 4096 == 0);
            T_CHECK(s.gpu.ll_slot % 512 == 0);
            T_CHECK(s.gpu.line_off >= ll_end && s.gpu.line_off % 128 == 0);
            T_CHECKF(end <= SYMM_CTL_BYTES + bytes, "%d ranks, %llu bytes: ends at %llu", n,
                     (unsigned long long)bytes, (unsigned long long)end);
            T_CHECKF(s.gpu.line_slot >= 4 * 512 && s.gpu.line_slot % (4 * 512) == 0,
                     "%d ranks, %llu bytes: a slot of %llu holds no lines", n,
                     (unsigned long long)bytes, (unsigned long long)s.gpu.line_slot);
            T_CHECK(s.gpu.stage_off >= end && s.gpu.stage_off % 128 == 0);
            /* at least two rows of one warp */
            T_CHECK(s.gpu.stage_bytes % 4096 == 0 &&
                    s.gpu.stage_bytes >= 2 * 512 * ranks * SYMM_GPU_STAGE_PLACES);
            T_CHECK(s.gpu.p2p_ring >= 1024 && !(s.gpu.p2p_ring & (s.gpu.p2p_ring - 1)));
            T_CHECK(s.gpu.p2p_off >= sizeof(symm_gpu_ctl) && s.gpu.p2p_off % 4096 == 0);
            T_CHECK(s.gpu.ll_off >= s.gpu.p2p_off + ranks * SYMM_P2P_GPU_BYTES(s.gpu.p2p_ring));
            T_CHECK(ranks * SYMM_P2P_GPU_BYTES(s.gpu.p2p_ring) <= bytes / 4);
            T_CHECK(s.gpu.stage_off + s.gpu.stage_bytes <= SYMM_CTL_BYTES + bytes);
        }
}

/* The LL kernels take what fits a slot of 8-byte data beside their flags, and not a byte more. */
static void ll_messages_fit_their_slots(void) {
    for (int n = 2; n <= SYMM_MAX_RANKS; n++)
        for (int i = 0; i < GPU_SCRATCH; i++) {
            symm_plan_env env = {.nranks = n, .gpu = 1, .sms = 132, .forced = free_choice};
            env.scratch = symm_plan_gpu_scratch(gpu_scratch[i], n);
            for (int more = 0; more < 2; more++) {
                symm_call call = {.coll = symmCollAllReduce,
                                  .count = env.scratch.gpu.ll_slot / 2 + (unsigned)more,
                                  .type = symmUint8,
                                  .esize = 1};
                T_EQ(symm_plan_can(&env, &call, SYMM_KERNEL_AR_LL, NULL), !more);
                call.coll = symmCollAllGather;
                T_EQ(symm_plan_can(&env, &call, SYMM_KERNEL_AG_LL, NULL), !more);
            }
        }
}

/* What params.def says of SYMM_DETERMINISTIC. */
static void all_kernels_reduce_in_rank_order(void) {
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        const symm_kernel_row *row = &symm_kernels[k];
        const int by_the_switch = row->multicast & SYMM_CAST_SRC;
        T_CHECKF(by_the_switch != !!(row->flags & SYMM_K_ORDERED), "%s", row->name);
    }
}

T_MAIN(T(all_kernels_reduce_in_rank_order), T(every_call_has_a_kernel),
       T(forced_kernels_are_honoured_or_refused), T(packets_fit_their_slots),
       T(limits_of_ctas_hold), T(stores_go_past_the_caches_where_they_keep_no_more), T(good_words),
       T(bad_words_are_named), T(hash_is_stable), T(tables_say_what_is_done),
       T(a_broadcast_to_many_is_staged), T(both_ends_move_a_share), T(every_call_has_a_gpu_kernel),
       T(forced_kernels_are_honoured_or_refused_on_gpus), T(no_kernel_runs_on_the_wrong_backend),
       T(gpu_scratch_is_divided), T(ll_messages_fit_their_slots))
