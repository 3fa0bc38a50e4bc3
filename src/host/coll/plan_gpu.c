/* plan_gpu.c - the planner's part for GPUs: rows of coll.def, grids, and how scratch is divided.
 * Pure; any thread. */
#include "plan.h"

#include "base/check.h"
#include "device/common/p2p_ring.h"

#define LINE_DATA    480u /* of a warp's four lines: cuda/dev.cuh */
#define LINE_BYTES   512u
#define STAGE_ROW    512u
#define SIDE_BY_SIDE 4 /* communicators of large CTAs whose largest grids fit on a GPU */
#define FNV          0x100000001b3ull
#define LL_MOST      (512u << 10) /* bytes of an LL slot: messages up to half of it */
/* Bytes of a result up to which direct kernels move lines if a buffer is in no window, or buffers
 * differ in their alignment (address mod 16). Measured on two H200: at 32 MB the two are within 4
 * %, at 64 MB staging wins (docs/performance.md). */
#define LINES_UPTO (32ull << 20)
/* The same for a quarter of each multiprocessor, whose few warps are slower by lines: two H100, 4
 * MB within 5 %, 8 MB 53 and 44 us. Predicted for more ranks than two. */
#define QUARTER_LINES_UPTO (4ull << 20)

static const symm_plan_row table[] = {
#define SYMM_PLAN_GPU(id, ...) {.kernel = SYMM_KERNEL_##id, __VA_ARGS__},
#include "device/common/coll.def"
};
enum { ROWS = sizeof table / sizeof table[0] };

static int clamp(int v, int lo, int hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

/* By default CTAs of a quarter of a multiprocessor: two on each for the first communicator on a
 * GPU, one for every other. Three have as many CTAs as there are quarters, so each CTA finds one.
 * (Where none is free, all are taken: by one CTA more than the communicators have.) A second CTA is
 * for lines, which few warps slow down, and lets large calls overlap. What the program has cut or
 * forced goes before the default, and has CTAs of any size. The kernels of one rank wait for
 * nobody. */
void symm_plan_budget(symm_plan_env *env, int room, int asked, int first) {
    const int large = env->threads > SYMM_GPU_QUARTER(SYMM_GPU_THREADS);
    int most = asked ? asked : large ? room / SIDE_BY_SIDE : room;
    if (env->max_ctas) most = env->max_ctas;
    if (env->min_ctas > most) most = env->min_ctas;
    if (env->ctas) most = env->ctas;
    env->sms = env->nranks == 1 ? room : clamp(most, 1, room);
    env->quarter = !asked && !large && !env->max_ctas && !env->ctas && env->nranks > 1;
    if (env->quarter && first) env->sms = clamp(2 * env->sms, 1, SYMM_GPU_MAX_CTAS);
}

/* The rows of SYMM_PLAN_TABLE that hold where CTAs have as much of a multiprocessor. */
static const symm_plan_row *measured(const symm_plan_env *env, const symm_call *call) {
    const symm_plan_rows *rows = env->rows;
    for (int i = 0; rows && i < rows->n; i++)
        if ((rows->row[i].quarter < 0 || rows->row[i].quarter == env->quarter) &&
            symm_plan_first(env, call, &rows->row[i], 1))
            return &rows->row[i];
    return NULL;
}

/* A forced kernel goes by a row of its own, or by the last one of its collective. */
const symm_plan_row *symm_plan_gpu_row(const symm_plan_env *env, const symm_call *call,
                                       int kernel) {
    const symm_plan_row *last = NULL;
    const symm_plan_row *own = kernel < 0 ? measured(env, call) : NULL;
    if (own) return own;
    for (int i = 0; i < ROWS; i++) {
        const symm_plan_row *r = &table[i];
        if (symm_kernels[r->kernel].coll != call->coll) continue;
        if (r->max_ranks && env->nranks > r->max_ranks) continue;
        if (r->quarter && !env->quarter) continue;
        const int fits = !r->upto || symm_plan_message(call) <= r->upto;
        if (kernel >= 0) { /* forced: of its own rows the first for this size, else the last */
            last = r;
            if ((int)r->kernel != kernel || (own && own->quarter != r->quarter)) continue;
            own = r;
            if (fits) break;
            continue;
        }
        if (!fits) continue;
        if (symm_plan_can(env, call, r->kernel, NULL)) return r;
    }
    return own ? own : last;
}

/* Measured on two and four GPUs, and not the calls with a count per rank. */
static int source_of(const symm_plan_env *env, const symm_call *call, int kernel,
                     const symm_plan_row *row) {
    if (kernel >= 0) return SYMM_PLAN_FORCED;
    if (row < table || row >= table + ROWS) return SYMM_PLAN_MEASURED;
    const int calculated = env->nranks > 4 || symm_kernels[row->kernel].multicast ||
                           symm_coll_varies(&symm_colls[call->coll]);
    return calculated ? SYMM_PLAN_PREDICTED : SYMM_PLAN_SHIPPED;
}

static int is_rooted(symmColl_t coll) {
    return (symm_colls[coll].flags & SYMM_COLL_ROOT) != 0;
}
/* Ranks that own a slice: all, or all but the root. */
static unsigned owners(const symm_plan_env *env, const symm_call *call) {
    return (unsigned)(env->nranks - (is_rooted(call->coll) && env->nranks > 2));
}
/* How many warps the work can occupy; at least 1. */
static uint64_t work(const symm_plan_env *env, const symm_call *call, const symm_kernel_row *k) {
    uint64_t bytes = symm_plan_message(call),
             per = k->places ? LINE_DATA : 32u * (k->cap == SYMM_CAP_LL ? 8u : 16u);
    if (k->sliced) bytes = bytes / owners(env, call) + 16;
    return bytes > per ? (bytes - 1) / per + 1 : 1;
}

/* CTAs that a call may have. */
static int most_ctas(const symm_plan_env *env, const symm_plan_row *row) {
    int ctas = clamp(row->ctas, 1, env->sms > 0 ? env->sms : 1);
    if (env->min_ctas > ctas) ctas = env->min_ctas;
    if (env->max_ctas && env->max_ctas < ctas) ctas = env->max_ctas;
    if (env->ctas) ctas = env->ctas;
    return clamp(ctas, 1, SYMM_GPU_MAX_CTAS);
}

/* Threads of a CTA that may move data: what the kernels' registers leave room for. */
static int most_threads(const symm_plan_env *env, const symm_kernel_row *k) {
    if (env->nranks == 4) {
        if (k->staged) return SYMM_GPU_THREADS_FEW;
        if (k->places && !k->sliced) return SYMM_GPU_THREADS_FOUR;
    }
    return env->nranks == 8 && (k->places || k->staged) ? SYMM_GPU_THREADS_FEW : SYMM_GPU_THREADS;
}
/* And its warps. */
static int most_warps(const symm_plan_env *env, const symm_kernel_row *k) {
    const int pair = k->cap == SYMM_CAP_LL && env->nranks == 2, threads = most_threads(env, k);
    if (pair) return (env->quarter ? SYMM_GPU_QUARTER_PAIR : SYMM_GPU_THREADS_PAIR) / 32;
    return (env->quarter ? SYMM_GPU_QUARTER(threads) : threads) / 32;
}

/* Warps of a CTA and CTAs for `need` warps' worth of work. */
static void pick_grid(const symm_plan_env *env, const symm_plan_row *row, uint64_t need,
                      symm_plan *p) {
    const int most = most_warps(env, &symm_kernels[p->kernel]);
    int ctas = most_ctas(env, row),
        warps = clamp(env->threads ? env->threads / 32 : row->warps, 1, most);
    if (need < (unsigned)warps) warps = (int)need;
    if (!env->ctas && need < (uint64_t)ctas * (unsigned)warps)
        ctas = (int)((need + (unsigned)warps - 1) / (unsigned)warps);
    const uint64_t each = (need + (unsigned)ctas - 1) / (unsigned)ctas;
    if (!env->threads && each > (unsigned)warps) warps = each > (unsigned)most ? most : (int)each;
    p->ctas = ctas;
    p->threads = 32 * clamp(warps, 1, most);
}

/* Slots that lines from one rank have: of both phases where they cross once, or a call has a root,
 * in which two ranks exchange lines of one phase; of two ranks those of the own rank, too. */
static uint64_t line_slots(const symm_plan_env *env, const symm_kernel_row *k) {
    const int two = k->sliced && !is_rooted(k->coll);
    return two ? 1 : env->nranks == 2 ? 4 : 2;
}
static uint64_t line_room(const symm_plan_env *env, uint64_t slots) {
    return slots * (env->scratch.gpu.line_slot / LINE_BYTES);
}

/* Warps that move lines, and lines of an item: what makes the call one item, as far as there is
 * scratch, in which an item has `places`; what has no place twice is one item, and other items of
 * two ranks are what goes together. Where scratch does not do for all warps CTAs have fewer of
 * them, so that the call stays on as many multiprocessors. */
static void pick_lines(const symm_plan_env *env, const symm_kernel_row *k, uint64_t need,
                       symm_plan *p) {
    const int places = k->places, once = k->cap == SYMM_CAP_LINES;
    const uint64_t room = line_room(env, line_slots(env, k)) / (unsigned)places;
    if ((uint64_t)p->ctas > room) p->ctas = room ? (int)room : 1;
    const uint64_t each = room / (unsigned)p->ctas;
    const int most = p->threads / 32, fit = each < (unsigned)most ? (int)each : most;
    p->line_warps = clamp(fit, 1, most);
    const uint64_t warps = (uint64_t)p->ctas * (unsigned)p->line_warps,
                   want = (need + warps - 1) / warps;
    p->lines = want < room / warps || once ? want : room / warps;
    if (!p->lines) p->lines = 1;
    if (env->nranks == 2 && !once && !k->sliced && p->lines > SYMM_GPU_LINES_AT_ONCE)
        p->lines = SYMM_GPU_LINES_AT_ONCE;
}

/* Lines of all slots, where a call is one item: its lines lie in the order of its data. */
uint64_t symm_plan_gpu_lines_cap(const symm_plan_env *env) {
    return line_room(env, env->nranks == 2 ? 4 : 2) * LINE_DATA;
}

/* Lines of a direct kernel, which keeps its grid: where scratch has none for each CTA, it has none.
 * Nor has all_reduce of eight ranks: relayed.cuh. */
static void pick_relay(const symm_plan_env *env, const symm_call *call, symm_plan *p) {
    const symm_kernel_row *own = &symm_kernels[p->kernel], *k = &symm_kernels[own->relay];
    const uint64_t bytes = symm_plan_message(call),
                   ranks = symm_holds_parts(symm_colls[call->coll].out, env->nranks),
                   upto = (env->quarter ? QUARTER_LINES_UPTO : LINES_UPTO) / ranks;
    if (env->relay == SYMM_RELAY_STAGING || (env->nranks == 8 && own->sliced)) return;
    if (env->relay == SYMM_RELAY_AUTO && bytes > upto) return;
    symm_plan lines = *p;
    pick_lines(env, k, work(env, call, k), &lines);
    if (lines.ctas == p->ctas) p->line_warps = lines.line_warps, p->lines = lines.lines;
}

/* Staging of a direct kernel. A post waits for all that the CTA has stored, so the more it covers
 * the better; measured up to eight rows of a warp for one peer and four for each of three
 * (docs/performance.md). At least as many as kernels load at once, and two where results go through
 * staging as well; all_gather, which stages only what cannot go between windows, has fewer where
 * more would leave multiprocessors without work. Where scratch is short there are fewer rows, then
 * fewer warps, then fewer CTAs that have some; the least scratch has room for one warp of 72
 * ranks. */
static void pick_stage(const symm_plan_env *env, uint64_t need, symm_plan *p) {
    const uint64_t n = (unsigned)env->nranks, peers = n > 1 ? n - 1 : 1,
                   warps = (unsigned)p->threads / 32u, least = n == 2 ? 4 : 2,
                   room =
                       env->scratch.gpu.stage_bytes / (SYMM_GPU_STAGE_PLACES * peers * STAGE_ROW);
    uint64_t rows = n == 2 ? 8 : n <= 4 ? 4 : 2, ctas = (unsigned)p->ctas, each = room / ctas;
    const int few = !symm_kernels[p->kernel].sliced && need < ctas * warps * rows;
    while (rows > least && (few || warps * rows > each)) rows /= 2;
    if (each < rows) {
        ctas = room / rows;
        each = rows;
    }
    p->stage_ctas = (int)ctas;
    p->stage_warps = (int)(warps * rows <= each ? warps : each / rows);
    p->stage_rows = (int)rows;
}

/* A count per rank: the packets of a pair must fit their slot. */
static uint32_t pick_pairs(const symm_plan_env *env, const symm_plan_row *row) {
    const uint64_t fit = env->scratch.gpu.ll_slot / 2;
    SYMM_ASSERT(env->gpu && row->warps > 0);
    return row->pairs < fit ? row->pairs : (uint32_t)fit;
}

/* A count per rank: ranks have different counts, so the grid is the same for all: the whole of
 * what a call may have. */
symm_plan symm_plan_gpu(const symm_plan_env *env, const symm_call *call, int kernel) {
    const symm_plan_row *row = symm_plan_gpu_row(env, call, kernel);
    if (!row) return (symm_plan){.kernel = SYMM_KERNEL_COUNT};
    symm_plan p = {.kernel = kernel >= 0 ? (symm_kernel_id)kernel : row->kernel,
                   .lines = 1,
                   .source = source_of(env, call, kernel, row)};
    const symm_kernel_row *k = &symm_kernels[p.kernel];
    const int varies = symm_coll_varies(&symm_colls[call->coll]);
    const uint64_t need = varies ? (unsigned)most_ctas(env, row) * (uint64_t)(unsigned)row->warps
                                 : work(env, call, k);
    pick_grid(env, row, need, &p);
    if (varies) p.pairs = pick_pairs(env, row);
    if (k->places) {
        pick_lines(env, k, need, &p);
        p.threads = 32 * p.line_warps;
    } else if (k->staged) {
        pick_stage(env, varies ? UINT64_MAX : need, &p);
        if (k->relay) pick_relay(env, call, &p);
    }
    return p;
}

uint64_t symm_plan_gpu_chunk(const symm_plan *plan) {
    const symm_kernel_row *k = &symm_kernels[plan->kernel];
    if (k->staged && k->sliced)
        return (uint64_t)(unsigned)plan->stage_warps * (unsigned)plan->stage_rows * STAGE_ROW;
    return k->places ? plan->lines * LINE_DATA : 0;
}

/* Rings of messages first, a quarter at most, then LL packets, then lines: [parity][source][phase]
 * slots; then staging. Where scratch is short, staging and packets are: each slot of lines has one
 * of a warp. */
symm_scratch symm_plan_gpu_scratch(uint64_t bytes, int nranks) {
    const uint64_t n = (unsigned)nranks, ring = symm_plan_p2p_ring(bytes / 2, nranks),
                   rings = (n * SYMM_P2P_GPU_BYTES(ring) + 4095) & ~4095ull, left = bytes - rings,
                   lines = 4 * n * 4 * LINE_BYTES;
    const uint64_t usual = left - left / 7 * 3, kept = usual > lines ? usual : lines;
    symm_scratch s = {.gpu = {.p2p_off = SYMM_CTL_BYTES,
                              .p2p_ring = ring,
                              .ll_off = SYMM_CTL_BYTES + rings,
                              .stage_bytes = (left - kept) & ~4095ull}};
    const uint64_t rest = left - s.gpu.stage_bytes;
    const uint64_t packets = rest / 8 < rest - lines ? rest / 8 : rest - lines;
    s.gpu.ll_slot = packets / (2 * n) & ~(LINE_BYTES - 1ull);
    if (s.gpu.ll_slot > LL_MOST) s.gpu.ll_slot = LL_MOST;
    s.gpu.line_off = s.gpu.ll_off + 2 * n * s.gpu.ll_slot;
    s.gpu.line_slot = (rest - 2 * n * s.gpu.ll_slot) / (4 * n) & ~(4ull * LINE_BYTES - 1);
    s.gpu.stage_off = s.gpu.line_off + 4 * n * s.gpu.line_slot;
    return s;
}

/* To be raised with every change of what a kernel's body sends or waits for. 3: direct kernels send
 * lines or stage what is in no window, as the plan says. 4: the shapes of shape.cuh. 5: counts per
 * rank (uneven.cuh). 6: messages have rings. 7: a rank has no staging for itself. 8: two ranks load
 * what they reduce from each other's windows (pull.cuh). 9: messages are lines with flags. 10:
 * signals (onesided.cuh). 11: what crosses once in lines has the places of both phases. 12: copy
 * engines (copies.h). 13: two ranks' lines have the slots of both. */
enum { PROTOCOL = 13 };

/* What no field of a call tells: ranks that divide scratch or staging differently must not make a
 * communicator. */
static uint64_t layout(uint64_t h) {
    static const uint64_t bytes[] = {1ull << 20, 112ull << 20};
    static const int ranks[] = {2, 4, 8, 72};
    const uint64_t fixed[] = {
        PROTOCOL,           LINE_DATA, SYMM_GPU_LINES_AT_ONCE, LINES_UPTO,
        QUARTER_LINES_UPTO, STAGE_ROW, SYMM_GPU_STAGE_PLACES,  sizeof(symm_gpu_ctl)};
    for (unsigned i = 0; i < sizeof fixed / sizeof fixed[0]; i++) h = (h ^ fixed[i]) * FNV;
    for (unsigned i = 0; i < 8; i++) {
        symm_plan_env env = {.nranks = ranks[i / 2], .gpu = 1, .sms = 132};
        env.scratch = symm_plan_gpu_scratch(bytes[i % 2], env.nranks);
        symm_plan p = {.ctas = 132, .threads = SYMM_GPU_THREADS_FEW};
        pick_stage(&env, UINT64_MAX, &p);
        const uint64_t v[] = {env.scratch.gpu.ll_slot,     env.scratch.gpu.line_slot,
                              env.scratch.gpu.stage_bytes, env.scratch.gpu.p2p_ring,
                              (uint64_t)p.stage_ctas,      (uint64_t)p.stage_warps,
                              (uint64_t)p.stage_rows};
        for (unsigned k = 0; k < sizeof v / sizeof v[0]; k++) h = (h ^ v[k]) * FNV;
    }
    return h;
}

uint64_t symm_plan_gpu_hash(uint64_t h) {
    for (int i = 0; i < ROWS; i++) h = symm_plan_mix_row(h, &table[i]);
    return layout(h);
}
