/* kernel_kit.h - calls of the GPU kernels on fibers (emu.h), for unit_kernels: drawn from a seed,
 * launched with the planner's own division of a small scratch, and what they mean. One thread; the
 * state is the test's. */
#ifndef KERNEL_KIT_H_
#define KERNEL_KIT_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"
#include "host/coll/plan.h"
#include "device/host/reduce.h"
#include "coll_expect.h"

/* SMALL: scratch that calls are told of, but where there are as many ranks as MANY. */
enum { RANKS = 40, MANY = 40, CALLS = 5, WINDOW = 192 << 10, GUARD = 256 };
enum { SMALL = 1 << 20, SCRATCH = 8 << 20 };
#define STRIDE ((uint64_t)SYMM_CTL_BYTES + SCRATCH + WINDOW)

enum { OUT_SRC = 1, OUT_DST = 2 }; /* which of a rank's buffers are in no window */

typedef struct { /* a call as all ranks make it, but for their places */
    symm_call call;
    symm_plan plan;
    uint64_t src[RANKS], dst[RANKS]; /* offsets in the window */
    int staged[RANKS];               /* OUT_SRC | OUT_DST */
    uint64_t scalar[RANKS];
    coll_counts v; /* where it has a count per rank: of at most `count` elements */
    symm_extent parts[RANKS][2 * RANKS];
} sample;

static struct {
    int n, calls, uneven; /* uneven: 1 most calls have a count per rank, 2 the first one
                           * too, 3 all, of many ranks */
    int staging;          /* long messages of 3 and 4 ranks, half of the buffers in no window */
    uint64_t random;
    unsigned char *flat, *model; /* all ranks' parts; windows as they should be */
    symm_ctl *host;
    sample call[CALLS];
    emu_launch launch[RANKS * CALLS];
    emu_copies copies[RANKS * CALLS]; /* of each launch that has some */
} k;

static uint32_t draw(uint32_t n) {
    k.random ^= k.random << 13, k.random ^= k.random >> 7, k.random ^= k.random << 17;
    return (uint32_t)((k.random >> 32) * n >> 32);
}

static unsigned char *window(int rank) {
    return k.flat + (uint64_t)rank * STRIDE + SYMM_CTL_BYTES + SCRATCH;
}
static unsigned char *modelled(int rank) {
    return k.model + (size_t)rank * WINDOW;
}

static void begin(int n) {
    k.n = n;
    k.flat = calloc((size_t)n, STRIDE);
    k.model = malloc((size_t)n * WINDOW);
    k.host = calloc((size_t)n, sizeof *k.host);
    T_CHECK(k.flat && k.model && k.host);
    emu_forget();
    emu_memory(k.flat, (size_t)n * STRIDE);
    emu_memory(k.host, (size_t)n * sizeof *k.host);
    const uint32_t epoch = draw(4) ? draw(1000) : 0xfffffffeu - draw(CALLS);
    for (int r = 0; r < n; r++) {
        symm_gpu_ctl *ctl = (symm_gpu_ctl *)(void *)(k.flat + (uint64_t)r * STRIDE);
        for (int b = 0; b < SYMM_GPU_MAX_CTAS; b++) ctl->epoch[b] = epoch;
        uint32_t *w = (uint32_t *)(void *)window(r);
        for (unsigned i = 0; i < WINDOW / 4; i++)
            w[i] = draw(8) ? draw(1u << 20) + 0x3f000000u : draw(~0u);
        memcpy(modelled(r), w, WINDOW);
    }
}

static void end(void) {
    free(k.flat);
    free(k.model);
    free(k.host);
}

/* ---- drawing a call -------------------------------------------------------------------------- */

static const struct {
    symmDataType_t type;
    const char *name;
    uint32_t size;
} types[] = {{symmFloat32, "f32", 4},
             {symmBfloat16, "bf16", 2},
             {symmUint8, "u8", 1},
             {symmInt32, "i32", 4}}; /* over the multicast range alone */

static symm_kernel_id kernel_of(symmColl_t coll) {
    int kernels[SYMM_KERNEL_COUNT];
    const int count = coll_kernels(coll, SYMM_K_GPU, k.n, kernels);
    return (symm_kernel_id)kernels[draw((uint32_t)count)];
}

/* Elements of a rank's part p of its source (side 0) or result, and where it begins; p == k.n:
 * where the buffer ends. */
static uint64_t part_of(const sample *s, int side, int rank, int p) {
    return s->v.n ? coll_part(s->call.coll, &s->v, side, rank, p) : s->call.count;
}
static uint64_t part_at(const sample *s, int side, int rank, int p) {
    if (s->v.n) return coll_place(s->call.coll, &s->v, side, rank, p);
    if (p == k.n) p = side ? coll_out(s->call.coll, k.n) : coll_in(s->call.coll, k.n);
    return (unsigned)p * s->call.count;
}
/* Bytes of a rank's buffer. */
static uint64_t buffer(const sample *s, int side, int rank) {
    return part_at(s, side, rank, k.n) * s->call.esize;
}

/* Where the part that is this rank's begins in the larger buffer, in place. */
static uint64_t own_at(const sample *s, int side, int part, int rank) {
    return part_at(s, side, rank, part) * s->call.esize;
}

/* Copy engines: the places on all ranks are those of one that has both buffers. */
static int by_copies(const sample *s) {
    return symm_kernels[s->plan.kernel].copies != 0;
}
static void place_as_one(sample *s, int in_place) {
    const int one = symm_colls[s->call.coll].flags & SYMM_COLL_ROOT ? s->call.root : 0;
    for (int r = 0; r < k.n; r++) {
        s->src[r] = s->src[one], s->dst[r] = s->dst[one], s->staged[r] = 0;
        if (in_place && coll_out(s->call.coll, k.n) > coll_in(s->call.coll, k.n))
            s->src[r] = s->dst[r] + own_at(s, 1, coll_send_part(s->call.coll, r), r);
    }
}
/* Whether each rank gives copies to its stream, and they load from where the sources are; the word
 * of each rank. As copies.c has it, for one window at the same place on all ranks. */
static int is_copied(const sample *s, uint64_t *word) {
    const int coll = s->call.coll, rooted = symm_colls[coll].flags & SYMM_COLL_ROOT,
              gathers = coll_out(s->call.coll, k.n) > coll_in(s->call.coll, k.n);
    const uint64_t part = s->call.count * s->call.esize;
    int alike = by_copies(s) && part;
    for (int r = 0; r < k.n && by_copies(s); r++) {
        const int gives = !rooted || r == s->call.root,
                  within = gathers && s->src[r] == s->dst[r] + (unsigned)r * part,
                  swapped = symm_colls[coll].swaps && s->src[r] == s->dst[r],
                  out = gives && !within ? OUT_SRC : OUT_DST;
        word[r] = 1 + 2 * (gives && !within ? s->src[r] : s->dst[r]) + (uint64_t)within;
        if (s->staged[r] & out || swapped || !part) word[r] = 0;
        alike &= word[r] && word[r] == word[0];
    }
    return alike;
}

/* Room for both buffers on every rank, apart. */
static void place(sample *s) {
    const uint64_t half = WINDOW / 2 - GUARD;
    const int chained =
                  s > k.call && s[-1].call.count && draw(3), /* reads what the call before wrote */
        in_place = !draw(3) && !symm_colls[s->call.coll].apart,
              shift = draw(4)   ? 16
                      : draw(2) ? (int)s->call.esize
                                : 1,
              other = draw(4) ? shift : 4; /* now and then results lie otherwise than sources */
    for (int r = 0; r < k.n; r++) {
        const uint64_t in = buffer(s, 0, r), out = buffer(s, 1, r);
        const int swap = chained ? s[-1].dst[r] >= WINDOW / 2 : (int)draw(2);
        uint64_t a = draw((uint32_t)((half - in) / 16 + 1)) * 16u,
                 b = draw((uint32_t)((half - out) / 16 + 1)) * 16u;
        a += a + in + 16 < half ? (unsigned)shift % 16 : 0;
        b += b + out + 16 < half ? (unsigned)other % 16 : 0;
        s->src[r] = a + (swap ? WINDOW / 2 : 0);
        s->dst[r] = b + (swap ? 0 : WINDOW / 2);
        if (chained && s[-1].dst[r] % (WINDOW / 2) + in < half) s->src[r] = s[-1].dst[r];
        if (in_place && in <= out)
            s->src[r] = s->dst[r] + own_at(s, 1, coll_send_part(s->call.coll, r), r);
        if (in_place && in > out)
            s->dst[r] = s->src[r] + own_at(s, 0, coll_recv_part(s->call.coll, r), r);
        if (!draw(k.staging ? 2 : 24))
            s->staged[r] = in_place || draw(2) ? OUT_SRC | OUT_DST : draw(2) ? OUT_SRC : OUT_DST;
        s->scalar[r] = s->call.type == symmFloat32    ? 0x3f800000u + (draw(3) << 22)
                       : s->call.type == symmBfloat16 ? 0x3f80u + (draw(3) << 6)
                                                      : draw(5);
    }
    if (by_copies(s) && draw(4)) place_as_one(s, in_place);
    /* a program that has no windows, or none over what it sends */
    if (!draw(24))
        for (int r = 0; r < k.n; r++) s->staged[r] |= in_place ? OUT_SRC | OUT_DST : OUT_SRC;
    /* all that is loaded is in windows, and where it goes is not */
    if (s->call.coll == symmCollReduce && !in_place && !draw(4)) s->staged[s->call.root] = OUT_DST;
}

/* A call with a count per rank; now and then the counts are equal. */
static void draw_uneven(sample *s) {
    s->call.coll = coll_draw_of(draw(1000), SYMM_K_GPU, !draw(3), 1);
    s->v =
        (coll_counts){.n = k.n, .layout = (int)draw(3), .seed = draw(5) ? 1 + draw(1u << 20) : 0};
}
static void make_parts(sample *s) {
    const uint64_t esize = s->call.esize;
    s->v.most = s->call.count;
    for (int r = 0; r < k.n; r++)
        for (int side = 0; side < 2; side++)
            for (int p = 0; p < k.n; p++)
                s->parts[r][side * k.n + p] =
                    (symm_extent){part_at(s, side, r, p) * esize, part_of(s, side, r, p) * esize};
}

static inline void draw_call(sample *s, const symm_plan_env *base) {
    const int t = (int)draw(3), ops = draw(2) ? SYMM_OP_SUM + 1 : SYMM_OP_COUNT;
    const uint32_t what = draw(10), esize = types[t].size,
                   most = draw(3) && !k.staging ? 3000u : 80000u;
    memset(s, 0, sizeof *s);
    /* more of the two whose direct kernels have lines: they go in more ways */
    s->call.coll = what == 9  ? symmCollBarrier
                   : !draw(3) ? (what < 5 ? symmCollAllReduce : symmCollAllGather)
                              : coll_draw_of(draw(1000), SYMM_K_GPU, what < 5, 0);
    if (k.n == MANY || (k.uneven && (draw(3) || (k.uneven == 2 && s == k.call)))) draw_uneven(s);
    const unsigned parts = (unsigned)coll_parts(s->call.coll, k.n);
    s->call.type = types[t].type;
    s->call.esize = esize;
    s->call.op = coll_reduces(s->call.coll) ? draw((uint32_t)ops) : 0;
    s->call.root = symm_colls[s->call.coll].flags & SYMM_COLL_ROOT ? (int)draw((uint32_t)k.n) : 0;
    s->call.count = parts ? 1 + draw(most / esize / parts) : 0;
    /* parts that begin at a multiple of 16, or all at the same distance from one */
    if (parts > 1 && draw(2)) s->call.count = (s->call.count * esize + 15) / 16 * 16 / esize;
    int16_t forced[symmNumColls] = SYMM_FORCED_NONE;
    forced[s->call.coll] = (int16_t)kernel_of(s->call.coll);
    symm_plan_env env = *base;
    env.forced = forced;
    env.ctas = 1 + (int)draw(2);
    env.threads = 32 * (1 + (int)draw(3));
    env.relay = draw(2) ? SYMM_RELAY_STAGING : SYMM_RELAY_AUTO;
    if (k.n == MANY) env.ctas = 1, env.threads = 32;
    s->plan = symm_plan_make(&env, &s->call);
    /* as where scratch is short */
    if (!symm_kernels[s->plan.kernel].places && s->plan.line_warps && draw(4))
        s->plan.line_warps = 1;
    /* fewer rows of a warp, of which results have half: an odd number, and many more pieces */
    if (k.staging && s->plan.stage_rows > 2 && draw(2)) s->plan.stage_rows = 2;
    if (s->v.n) make_parts(s);
    if (s->call.count) place(s);
}

/* What rank copies: the own part, then those of its peers. */
static void set_copies(const sample *s, int rank, emu_launch *l) {
    const symmColl_t coll = s->call.coll;
    emu_copies *c = &k.copies[l - k.launch];
    uint64_t word[RANKS] = {0};
    const uint64_t part = s->call.count * s->call.esize;
    const int each = coll_in(coll, k.n) > 1, rooted = symm_colls[coll].flags & SYMM_COLL_ROOT,
              gathers = !each && coll_out(coll, k.n) > 1;
    is_copied(s, word);
    *c = (emu_copies){emu_find("symm_copies_n0"), emu_find("emu_copies"), 0, {{0}}};
    T_CHECK(c->meet && c->copy);
    l->copies = c;
    l->args.flags |= SYMM_ARG_COPIES;
    l->args.scalar = word[rank];
    for (int q = 0; q < k.n && word[rank]; q++) {
        const int p = (rank + q) % k.n,
                  within = gathers && s->src[rank] == s->dst[rank] + (unsigned)rank * part;
        const uint64_t from = rooted && rank != s->call.root ? s->dst[rank]
                              : within                       ? s->dst[rank] + (unsigned)p * part
                                       : s->src[rank] + (each ? (unsigned)rank * part : 0),
                       to = s->dst[rank] + (coll_out(coll, k.n) > 1 ? (unsigned)p * part : 0);
        if ((rooted && p != s->call.root) || (q == 0 && from == to)) continue;
        c->at[c->n].from = (const char *)window(p) + from;
        c->at[c->n].to = (char *)window(rank) + to;
        c->at[c->n++].bytes = part;
    }
}

static void launch_call(const sample *s, const symm_plan_env *env, int rank, emu_launch *l) {
    const symm_kernel_row *own = &symm_kernels[s->plan.kernel],
                          *row = own->copies ? &symm_kernels[own->copies] : own;
    char name[96], type[16] = "";
    for (unsigned t = 0; t < sizeof types / sizeof types[0]; t++)
        if (row->flags & SYMM_K_TYPED && types[t].type == s->call.type)
            snprintf(type, sizeof type, "_%s", types[t].name);
    snprintf(name, sizeof name, "symm_%s%s_n%d", row->name, type,
             row->max_ranks == 1                                                      ? 1
             : !(row->flags & SYMM_K_ONE_IMAGE) && (k.n == 2 || k.n == 4 || k.n == 8) ? k.n
                                                                                      : 0);
    l->kernel = emu_find(name);
    T_CHECKF(l->kernel != NULL, "%s is not compiled in", name);
    l->ctas = (unsigned)s->plan.ctas;
    l->threads = (unsigned)s->plan.threads + 32;
    l->args = (symm_args){.base = (uint64_t)(uintptr_t)k.flat,
                          .stride = STRIDE,
                          .src = window(rank) + s->src[rank],
                          .dst = window(rank) + s->dst[rank],
                          .count = s->v.n ? 0 : s->call.count,
                          .rank = rank,
                          .nranks = k.n,
                          .scratch = env->scratch,
                          .op = s->call.op,
                          .esize = s->call.esize,
                          .sig = (uint32_t)s->call.count * 2654435761u + s->call.op +
                                 (uint32_t)s->call.coll * 64 + (uint32_t)s->call.root * 4096,
                          .type = s->call.type,
                          .src_off = SYMM_STAGED,
                          .dst_off = SYMM_STAGED,
                          .scalar = s->scalar[rank],
                          .nctas = s->plan.ctas,
                          .extents = s->v.n ? s->parts[rank] : NULL,
                          .gpu = {.host_base = (uint64_t)(uintptr_t)k.host,
                                  .host_stride = sizeof *k.host,
                                  .lines = s->plan.lines,
                                  .line_warps = (uint32_t)s->plan.line_warps,
                                  .stage_ctas = (uint32_t)s->plan.stage_ctas,
                                  .stage_warps = (uint32_t)s->plan.stage_warps,
                                  .stage_rows = (uint32_t)s->plan.stage_rows,
                                  .root = s->call.root,
                                  .pairs = s->plan.pairs}};
    if (!(s->staged[rank] & OUT_SRC)) l->args.src_off = SYMM_CTL_BYTES + SCRATCH + s->src[rank];
    if (!(s->staged[rank] & OUT_DST)) l->args.dst_off = SYMM_CTL_BYTES + SCRATCH + s->dst[rank];
    /* as coll.c does for what is swapped */
    if (symm_colls[s->call.coll].swaps && s->src[rank] == s->dst[rank])
        l->args.src_off = l->args.dst_off = SYMM_STAGED;
    const int is_root = s->call.root == rank;
    if (!coll_in_at(s->call.coll, k.n, is_root) || !buffer(s, 0, rank))
        l->args.src = NULL, l->args.src_off = SYMM_STAGED;
    if (!coll_out_at(s->call.coll, k.n, is_root) || !buffer(s, 1, rank))
        l->args.dst = NULL, l->args.dst_off = SYMM_STAGED;
    l->copies = NULL;
    if (by_copies(s)) set_copies(s, rank, l);
}

/* ---- what it means --------------------------------------------------------------------------- */

/* All results are made before one is stored: a destination may be a source of the same call. */
static void model_call(const sample *s) {
    static unsigned char all[WINDOW], out[RANKS][WINDOW];
    const uint64_t esize = s->call.esize;
    const void *src[RANKS];
    for (int r = 0; r < k.n; r++) src[r] = modelled(r) + s->src[r];
    if (coll_reduces(s->call.coll))
        symm_reduce->reduce[s->call.type][s->call.op](all, src, k.n, part_at(s, 0, 0, k.n),
                                                      s->scalar);
    for (int r = 0; r < k.n; r++) {
        const int parts = coll_out_at(s->call.coll, k.n, s->call.root == r);
        memcpy(out[r], modelled(r), WINDOW);
        for (int p = 0; p < parts && s->call.count; p++) {
            const coll_origin o =
                s->v.n ? coll_expect_v(&s->call, &s->v, r, p) : coll_expect(&s->call, r, p);
            const unsigned char *from = o.from == EVERY_RANK ? all : src[o.from];
            memcpy(out[r] + s->dst[r] + part_at(s, 1, r, p) * esize, from + o.at * esize,
                   part_of(s, 1, r, parts > 1 ? p : r) * esize);
        }
    }
    for (int r = 0; r < k.n; r++) memcpy(modelled(r), out[r], WINDOW);
}

static void describe(char *text, size_t cap) {
    size_t at = 0;
    for (int c = 0; c < k.calls && at < cap; c++) {
        const sample *s = &k.call[c];
        at +=
            (size_t)snprintf(text + at, cap - at,
                             " %s type %d op %u count %llu root %d, %d CTAs of %d threads, "
                             "chunk %llu, staging %d x %d x %d, packets %u;",
                             symm_kernels[s->plan.kernel].name, (int)s->call.type, s->call.op,
                             (unsigned long long)s->call.count, s->call.root, s->plan.ctas,
                             s->plan.threads, (unsigned long long)s->plan.lines, s->plan.stage_ctas,
                             s->plan.stage_warps, s->plan.stage_rows, s->plan.pairs);
    }
}

static inline void windows_are_as_modelled(uint64_t seed) {
    char text[1024] = "";
    for (int r = 0; r < k.n; r++) {
        const unsigned char *is = window(r), *want = modelled(r);
        unsigned i = 0;
        while (i < WINDOW && is[i] == want[i]) i++;
        if (i == WINDOW) continue;
        describe(text, sizeof text);
        T_CHECKF(0, "T_SEED=%llu: rank %d of %d, byte %u: %02x, not %02x;%s",
                 (unsigned long long)seed, r, k.n, i, is[i], want[i], text);
        return;
    }
}

/* The kernel that ends its calls. */
static inline const symm_kernel_row *ends(int kernel) {
    const symm_kernel_row *row = &symm_kernels[kernel];
    return row->copies ? &symm_kernels[row->copies] : row;
}

/* Whether the rank has given copies in a call that the kernel had to move. */
static inline int went_astray(int rank) {
    int astray = 0;
    for (int c = 0; c < k.calls; c++) {
        uint64_t word[RANKS] = {0};
        astray |= !is_copied(&k.call[c], word) && word[rank];
    }
    return astray;
}
static inline void astray_ranks_say_so(uint64_t seed) {
    char text[1024] = "";
    describe(text, sizeof text);
    for (int r = 0; r < k.n; r++)
        T_CHECKF(!k.host[r].astray == !went_astray(r), "T_SEED=%llu: rank %d of %d: %s;%s",
                 (unsigned long long)seed, r, k.n,
                 k.host[r].astray ? "has copied for nothing, it says" : "does not say that it has",
                 text);
}

static inline void draw_calls(uint64_t seed) {
    static const int ranks[] = {1, 2, 2, 3, 3, 4, 4, 5, 8, 8};
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    const int drawn = ranks[draw(10)];
    begin(k.uneven == 3 ? MANY : k.staging ? 3 + drawn % 2 : drawn);
    const uint64_t scratch = k.n == MANY ? SCRATCH : draw(2) ? SMALL : SMALL / 5;
    const symm_plan_env env = {
        .nranks = k.n, .gpu = 1, .sms = 2, .scratch = symm_plan_gpu_scratch(scratch, k.n)};
    k.calls = 2 + (int)draw(CALLS - 1);
    for (int c = 0; c < k.calls; c++) {
        draw_call(&k.call[c], &env);
        for (int r = 0; r < k.n; r++) launch_call(&k.call[c], &env, r, &k.launch[r * k.calls + c]);
    }
}

/* ---- cases, and what disturbs them ----------------------------------------------------------- */

static int cases(int usual) {
    const char *n = getenv("T_CASES"), *full = getenv("T_FULL");
    return n ? atoi(n) : full && atoi(full) > 0 ? 2 * usual : usual;
}
static uint64_t first_seed(void) {
    const char *s = getenv("T_SEED");
    return s ? strtoull(s, NULL, 0) : 1;
}

static struct {
    uint64_t at;
    int rank, done;
    unsigned late; /* bit q: the q-th rank behind it minds its end when it uses the communicator */
} spoiler;

/* As symmCommAbort does it: the reason, in the peers' blocks first, then in the own. A peer that
 * minds it when it uses the communicator has it as a death. */
static inline void abort_at(void *arg, uint64_t step) {
    (void)arg;
    if (spoiler.done || step < spoiler.at) return;
    spoiler.done = 1;
    for (int q = 1; q <= k.n; q++) {
        symm_ctl *host = &k.host[(spoiler.rank + q) % k.n];
        *(q < k.n && spoiler.late >> q & 1 ? &host->death : &host->abort) =
            (uint64_t)symmAborted << 32 | (uint32_t)(spoiler.rank + 1);
    }
}

static uint64_t steps_so_far;
static inline void count_steps(void *arg, uint64_t step) {
    (void)arg;
    steps_so_far = step;
}

/* ---- windows of a rank that has aborted ------------------------------------------------------ */

static struct {
    /* the step at which rank 0 aborts; 0: when all ranks but the last wait for that one */
    uint64_t at;
    uint64_t hold; /* the step from which the last rank stands still until then; 0: none */
    int aborted, over;
    int told; /* rank 1, which was inside the call, had the reason by then and not by itself */
    unsigned char window[WINDOW]; /* rank 0's, when its kernel had ended */
} leaver;

enum { WAITING = 20000 }; /* steps, by when they do */

static inline void rank_0_aborts(void *arg, uint64_t step) {
    (void)arg;
    if (leaver.hold && step == leaver.hold) emu_hold(k.n - 1);
    const int ended = leaver.hold && step >= leaver.hold && emu_ended(0); /* all was done */
    if (!leaver.aborted && (ended || step >= (leaver.at ? leaver.at : WAITING))) {
        leaver.aborted = 1;
        for (int p = 1; leaver.at && p < k.n; p++)
            *(p & 1 ? &k.host[p].death : &k.host[p].abort) = (uint64_t)symmAborted << 32 | 1;
        k.host[0].abort = (uint64_t)symmAborted << 32 | 1;
    }
    if (leaver.aborted && !leaver.over && emu_ended(0)) {
        leaver.over = 1;
        leaver.told += leaver.at && !emu_ended(1) && k.host[1].abort && !k.host[1].left;
        memcpy(leaver.window, window(0), WINDOW);
        emu_hold(-1);
    }
}

/* hold: at is so many steps after the one from which the last rank stands still. */
static inline void run_with_the_leaver(uint64_t seed, uint64_t at, uint64_t hold) {
    char why[256] = "";
    leaver.at = at, leaver.aborted = leaver.over = 0;
    leaver.hold = hold ? at - hold : 0;
    if (!at) emu_hold(k.n - 1);
    emu_between(rank_0_aborts, NULL);
    T_CHECKF(!emu_run(k.launch, k.n, 1, seed, why, sizeof why), "T_SEED=%llu: %s",
             (unsigned long long)seed, why);
    emu_between(NULL, NULL);
    T_CHECK(leaver.over);
}

/* Bytes of [from, from + bytes) of rank 0's window that have changed since its kernel ended. */
static inline unsigned changed(uint64_t from, uint64_t bytes) {
    unsigned n = 0;
    for (uint64_t i = from; i < from + bytes; i++) n += window(0)[i] != leaver.window[i];
    return n;
}

#endif
