/* plan.c - the planner: the rows of coll.def, walked in order. Pure; any thread. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "device/host/p2p.h"
#include "device/host/reduce.h"

static const symm_plan_row table[] = {
#define SYMM_PLAN_HOST(id, ...) {.kernel = SYMM_KERNEL_##id, __VA_ARGS__},
#include "device/common/coll.def"
};
enum { ROWS = sizeof table / sizeof table[0] };

#define CHUNK_BYTES (512u << 10) /* two in, two out and their sources stay in a 2 MiB L2 */
#define NT_BYTES \
    (3u << 20) /* a rank that touches as much as this pushes a 2 MiB L2 over: store past it */

/* Of a rank that goes ahead: room for several large messages. */
#define AHEAD_RING (1u << 20)

/* From here on buffers in no window are read through the kernel; below, its 1.6 us are more than
 * the second copy through scratch. Of a part, where a buffer has one for each rank. */
#define DIRECT_BYTES (16u << 10)
/* Bytes of a part in no window that both ends move: a piece of it must be worth a call of the
 * system to each. Several that write into one process at once hinder each other at first. */
#define BOTH_BYTES (32u << 10)
#define MANY_BYTES (512u << 10)
/* Of what a rank reduces for others, to write it there. */
#define SLICE_BYTES (8u << 10)

/* Of a kernel of both backends the host's packets are not LL. */
static int cap_of(const symm_kernel_row *row, int gpu) {
    return row->cap == SYMM_CAP_LL && !gpu ? SYMM_CAP_PACKETS : row->cap;
}
static uint64_t packet_cap(const symm_plan_env *env, const symm_kernel_row *row) {
    const int cap = cap_of(row, env->gpu);
    const uint64_t parts = symm_holds_parts(symm_colls[row->coll].in, env->nranks);
    if (cap == SYMM_CAP_AHEAD) return env->scratch.host.ahead_ring / 4 / parts & ~63ull;
    if (cap == SYMM_CAP_LL) return env->scratch.gpu.ll_slot / 2;
    if (cap == SYMM_CAP_LINES) return symm_plan_gpu_lines_cap(env);
    uint64_t slot = env->scratch.host.packet_slot / SYMM_PACKET_STRIDE * SYMM_PACKET_BYTES;
    if (cap == SYMM_CAP_PACKETS) return slot;
    /* two-shot: a slice, rounded up to 64 bytes, must fit a slot */
    return slot > 64 ? (slot - 64) * (unsigned)env->nranks : 0;
}

/* What the switch reduces, as cuda/multicast.cuh: sums and averages of numbers of 32 and 64 bits,
 * sums of float16 and bfloat16, the greatest and the least of integers of 32 and 64 bits. (Of
 * floats it takes a number for the greatest where there is a NaN, and averages of 16 bits would be
 * rounded twice.) */
static int switch_reduces(const symm_call *call) {
    enum { SUM = 1 << symmSum, MEAN = 1 << symmAvg, ENDS = 1 << symmMax | 1 << symmMin };
    static const unsigned ops[symmNumTypes] = {[symmInt32] = SUM | MEAN | ENDS,
                                               [symmUint32] = SUM | MEAN | ENDS,
                                               [symmInt64] = SUM | MEAN | ENDS,
                                               [symmUint64] = SUM | MEAN | ENDS,
                                               [symmFloat32] = SUM | MEAN,
                                               [symmFloat64] = SUM | MEAN,
                                               [symmFloat16] = SUM,
                                               [symmBfloat16] = SUM};
    return call->op < symmNumOps && ops[call->type] >> call->op & 1;
}
/* Why the call cannot go over the multicast range; NULL: it can. What goes in packets is reduced by
 * the ranks, in their order. */
static const char *no_multicast(const symm_plan_env *env, const symm_call *call, int needs) {
    SYMM_ASSERT(call->coll < symmNumColls);
    if (!env->multicast) return "the communicator has no multicast range (SYMM_MULTICAST)";
    if (needs == SYMM_CAST_SCRATCH)
        return env->cast_scratch ? NULL : "multicast: scratch could not be bound in the range";
    if (symm_plan_message(call) % 16) return "multicast: the count is no multiple of 16 bytes";
    if ((symm_colls[call->coll].flags & SYMM_COLL_REDUCES) && !switch_reduces(call))
        return "multicast: the switch has no such reduction of this type";
    return NULL;
}

int symm_plan_can(const symm_plan_env *env, const symm_call *call, symm_kernel_id kernel,
                  const char **why) {
    const symm_kernel_row *row = &symm_kernels[kernel];
    const char *text = NULL;
    if (row->coll != call->coll)
        text = "is of another collective";
    else if (!(row->flags & (env->gpu ? SYMM_K_GPU : SYMM_K_HOST)))
        text = env->gpu ? "is the host backend's" : "is for GPUs";
    else if (env->nranks < row->min_ranks)
        text = "needs more ranks";
    else if (row->max_ranks && env->nranks > row->max_ranks)
        text = row->max_ranks == 1 ? "is for one rank" : "is for fewer ranks";
    else if (row->cap == SYMM_CAP_AHEAD && symm_plan_message(call) > packet_cap(env, row))
        text = "the message is larger than a quarter of a ring";
    else if (row->cap != SYMM_CAP_NONE && symm_plan_message(call) > packet_cap(env, row))
        text = "packets: the message is larger than the packet scratch (SYMM_SCRATCH)";
    else if (row->places && env->scratch.gpu.line_slot < (unsigned)row->places * 512u)
        text = "lines: there is too little scratch (SYMM_SCRATCH)";
    else if (env->deterministic && !(row->flags & SYMM_K_ORDERED))
        text = "does not reduce in rank order (SYMM_DETERMINISTIC=1)";
    else if (row->multicast)
        text = no_multicast(env, call, row->multicast);
    if (why) *why = text;
    return text == NULL;
}

const symm_plan_row *symm_plan_first(const symm_plan_env *env, const symm_call *call,
                                     const symm_plan_row *row, int n) {
    const uint64_t bytes = symm_plan_message(call);
    const int cores = env->oversubscribed ? SYMM_CORES_FEW : SYMM_CORES_ENOUGH;
    for (const symm_plan_row *r = row; r < row + n; r++) {
        if (symm_kernels[r->kernel].coll != call->coll) continue;
        if (r->max_ranks && env->nranks > r->max_ranks) continue;
        if (!env->gpu && r->cores != SYMM_CORES_ANY && r->cores != cores) continue;
        if (r->quarter == 1 && !env->quarter) continue;
        if (r->upto && bytes > r->upto) continue;
        if (symm_plan_can(env, call, r->kernel, NULL)) return r;
    }
    return NULL;
}

/* NULL: the collective is not on this backend. */
static const symm_plan_row *pick(const symm_plan_env *env, const symm_call *call, int *source) {
    const symm_plan_rows *rows = env->rows;
    const symm_plan_row *r = rows ? symm_plan_first(env, call, rows->row, rows->n) : NULL;
    *source = r ? SYMM_PLAN_MEASURED : SYMM_PLAN_SHIPPED;
    return r ? r : symm_plan_first(env, call, table, ROWS);
}

/* A packet must fit its slot, if there is one. */
static uint32_t pick_pairs(const symm_plan_env *env, const symm_plan_row *row) {
    const uint64_t slot = env->scratch.host.packet_slot,
                   fit = slot < SYMM_PACKET_STRIDE ? 0 : slot - SYMM_PACKET_STRIDE;
    return row->pairs < fit ? row->pairs : (uint32_t)fit;
}

static int pick_ctas(const symm_plan_env *env) {
    int ctas = env->ctas ? env->ctas
                         : 1; /* a CTA is one thread here and they run in turn: more only cost */
    if (env->min_ctas > ctas) ctas = env->min_ctas;
    if (env->max_ctas && env->max_ctas < ctas) ctas = env->max_ctas;
    return ctas < 1 ? 1 : ctas > SYMM_MAX_CTAS ? SYMM_MAX_CTAS : ctas;
}

/* Bytes that one rank reads and writes: slices of all sources and destinations, or everything
 * twice. */
static uint64_t touched(const symm_plan_env *env, const symm_call *call) {
    if (call->local) return call->local;
    uint64_t per = 2u * symm_coll_parts(&symm_colls[call->coll], env->nranks), bytes;
    return __builtin_mul_overflow(symm_plan_message(call), per, &bytes) ? UINT64_MAX : bytes;
}

/* The largest power of two that leaves four chunks for every CTA. */
static uint64_t pick_chunk(const symm_plan_env *env, int ctas) {
    uint64_t chunk = CHUNK_BYTES;
    while (chunk * 4u * (unsigned)ctas > env->scratch.host.stage_bytes) chunk /= 2;
    return chunk;
}

/* What is swapped goes through scratch: a peer may not read what the owner overwrites. A reduction
 * needs room for a slice of each rank's chunk, whose ends are whole lines, in four chunks of
 * staging (zerocopy.inl); where each rank decides for its own counts, a peer's may be in use. What
 * several ranks read of one buffer, the kernel would copy for one after the other. */
static int goes_direct(const symm_plan_env *env, const symm_call *call, uint64_t chunk) {
    const symm_coll_row *row = &symm_colls[call->coll];
    const int reduces = (row->flags & SYMM_COLL_REDUCES) != 0;
    if (env->adapts && row->root_gives && row->in == SYMM_COUNT && env->nranks > 2) return 0;
    const uint64_t bytes =
        call->local ? call->local / (2u * (unsigned)env->nranks) : symm_plan_message(call);
    if ((call->local && reduces) || call->swapped) return 0;
    return env->direct && bytes >= DIRECT_BYTES && chunk >= 64u * (unsigned)env->nranks;
}
/* What goes so or through scratch, by how far the cores are from each other when it runs
 * (staging.c). Not what a root hands out or collects: between windows both ends move a share of
 * that, which staging does not do, and all ranks take one way. Nor where each rank decides for its
 * own counts: there is nothing that all agree on. */
static uint32_t either(const symm_plan_env *env, const symm_call *call) {
    const symm_coll_row *row = &symm_colls[call->coll];
    const int copies = !(row->flags & SYMM_COLL_REDUCES);
    if (!env->adapts || call->local || (copies && row->flags & SYMM_COLL_ROOT)) return 0;
    return SYMM_ARG_EITHER | (env->near ? SYMM_ARG_NEAR : 0);
}

/* Where the root, which only gives, is idle, or those that only give to it. If ranks share cores,
 * an idle root's serves others. Slices that are reduced for others go to them so, too: they would
 * load what another core has just stored to, which far ones wait for. */
int symm_plan_may_write(const symm_plan_env *env, const symm_call *call, const symm_plan *plan) {
    const symm_coll_row *row = &symm_colls[call->coll];
    if (env->gpu || env->nranks == 1 || !(plan->flags & SYMM_ARG_DIRECT) || call->local) return 0;
    const int reduces = (row->flags & SYMM_COLL_REDUCES) != 0;
    const uint64_t bytes = symm_plan_message(call);
    if (reduces && row->in == SYMM_COUNT) return bytes >= SLICE_BYTES * (unsigned)env->nranks;
    if (!(row->flags & SYMM_COLL_ROOT)) return 0;
    if (row->root_gives && env->oversubscribed) return 0;
    const int at_once = row->root_takes && env->nranks > 2 && !env->oversubscribed;
    return bytes >= (at_once ? MANY_BYTES : BOTH_BYTES);
}

/* GPUs: the CTAs of a grid wait for those of other ranks, so all of it must run at once, whatever
 * was asked for. */
static symm_plan plan_gpu(const symm_plan_env *env, const symm_call *call, int kernel) {
    symm_plan_env e = *env;
    if (e.ctas > e.sms) e.ctas = e.sms;
    if (e.min_ctas > e.sms) e.min_ctas = e.sms;
    return symm_plan_gpu(&e, call, kernel);
}

int symm_plan_past_caches(uint64_t touched, uint64_t keeps) {
    return SYMM_PAST_CACHES && touched >= NT_BYTES && touched > keeps;
}

symm_plan symm_plan_make(const symm_plan_env *env, const symm_call *call) {
    symm_plan plan = {.kernel = SYMM_KERNEL_COUNT};
    int forced = env->forced && call->coll < symmNumColls ? env->forced[call->coll] : -1;
    if (forced >= 0 && symm_plan_can(env, call, (symm_kernel_id)forced, NULL))
        plan.kernel = (symm_kernel_id)forced;
    int refused = forced >= 0 && plan.kernel == SYMM_KERNEL_COUNT;
    if (env->gpu)
        plan = plan_gpu(env, call, plan.kernel == SYMM_KERNEL_COUNT ? -1 : (int)plan.kernel);
    plan.force_refused = refused;
    if (env->gpu) return plan;
    const symm_plan_row *row = pick(env, call, &plan.source);
    if (plan.kernel != SYMM_KERNEL_COUNT) plan.source = SYMM_PLAN_FORCED;
    if (plan.kernel == SYMM_KERNEL_COUNT && row) plan.kernel = row->kernel;
    if (row && row->pairs) plan.pairs = pick_pairs(env, row);
    plan.ctas = pick_ctas(env);
    plan.chunk = pick_chunk(env, plan.ctas);
    if (goes_direct(env, call, plan.chunk)) plan.flags |= SYMM_ARG_DIRECT | either(env, call);
    if (env->writes && symm_plan_may_write(env, call, &plan)) plan.flags |= SYMM_ARG_WRITES;
    if (symm_plan_past_caches(touched(env, call), env->keeps)) plan.flags |= SYMM_ARG_NT;
    return plan;
}

/* The largest power of two of which every source's ring has one, in a quarter of the scratch. */
uint64_t symm_plan_p2p_ring(uint64_t bytes, int nranks) {
    uint64_t ring = nranks <= SYMM_P2P_FEW ? SYMM_P2P_RING_FEW : SYMM_P2P_RING;
    while (ring * (unsigned)nranks > bytes / 4) ring /= 2;
    return ring;
}

symm_scratch symm_plan_scratch(uint64_t bytes, int nranks) {
    symm_scratch s = {{0}};
    s.host.ahead_ring = AHEAD_RING;
    while (s.host.ahead_ring > bytes / 32) s.host.ahead_ring /= 2;
    /* The rest is for staging, where the large messages go. */
    const uint64_t packets = bytes / 4 - s.host.ahead_ring;
    s.host.packet_off = SYMM_CTL_BYTES;
    s.host.packet_slot =
        packets / (4u * (unsigned)nranks) / SYMM_PACKET_STRIDE * SYMM_PACKET_STRIDE;
    if (s.host.packet_slot > 64u * SYMM_PACKET_STRIDE)
        s.host.packet_slot = 64u * SYMM_PACKET_STRIDE;
    s.host.p2p_off =
        s.host.packet_off + ((4u * (unsigned)nranks * s.host.packet_slot + 4095) & ~4095ull);
    s.host.p2p_ring = symm_plan_p2p_ring(bytes, nranks);
    s.host.ahead_off = s.host.p2p_off + ((s.host.p2p_ring * (unsigned)nranks + 4095) & ~4095ull);
    s.host.stage_off = s.host.ahead_off + ((s.host.ahead_ring + 4095) & ~4095ull);
    s.host.stage_bytes = (bytes - (s.host.stage_off - SYMM_CTL_BYTES)) / 2 & ~4095ull;
    return s;
}

static void append(char *text, size_t cap, size_t *at, const char *fmt, const char *a,
                   const char *b) {
    if (*at >= cap) return;
    int n = snprintf(text + *at, cap - *at, fmt, a, b);
    if (n > 0) *at += (size_t)n;
}

const char *symm_plan_source(int source) {
    static const char *const names[] = {"shipped", "predicted", "measured", "forced"};
    return names[source];
}

void symm_plan_reason(const symm_plan_env *env, const symm_call *call, const symm_plan *plan,
                      char *text, size_t cap) {
    size_t at = 0;
    const char *why = NULL;
    int forced = env->forced ? env->forced[call->coll] : -1;
    if (!cap) return;
    text[0] = 0;
    if (forced >= 0 && !plan->force_refused)
        append(text, cap, &at, "%s%s", "forced by SYMM_ALGO", "");
    else
        append(text, cap, &at, "%s%s",
               plan->source == SYMM_PLAN_MEASURED    ? "SYMM_PLAN_TABLE's choice for this size"
               : plan->source == SYMM_PLAN_PREDICTED ? "the table's choice for this size, predicted"
                                                     : "the table's choice for this size",
               env->oversubscribed ? " (more ranks than cores)" : "");
    if (plan->force_refused) {
        symm_plan_can(env, call, (symm_kernel_id)forced, &why);
        append(text, cap, &at, "; SYMM_ALGO's %s not used: %s", symm_kernels[forced].name, why);
    }
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        if (symm_kernels[k].coll != call->coll || k == (int)plan->kernel || k == forced) continue;
        if (env->nranks > 1 && symm_kernels[k].min_ranks == 1) continue;
        if (!env->gpu && symm_kernels[k].multicast) continue; /* only by SYMM_ALGO */
        if (!(symm_kernels[k].flags & (env->gpu ? SYMM_K_GPU : SYMM_K_HOST))) continue;
        if (!symm_plan_can(env, call, (symm_kernel_id)k, &why))
            append(text, cap, &at, "; not %s: %s", symm_kernels[k].name, why);
    }
}

static int find_kernel(const char *name, size_t len, int coll) {
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++)
        if ((coll < 0 || (int)symm_kernels[k].coll == coll) &&
            strlen(symm_kernels[k].name) == len && !memcmp(symm_kernels[k].name, name, len))
            return k;
    return -1;
}

static symmResult_t bad_algo(const char *word, size_t len) {
    return SYMM_ERR(symmInvalidArgument,
                    "SYMM_ALGO: '%.*s' is no kernel; must be [collective:]name, as "
                    "`symm-info kernels` lists them",
                    (int)len, word);
}

symmResult_t symm_plan_parse_algo(const char *text, int16_t *forced) {
    int16_t out[symmNumColls] = SYMM_FORCED_NONE;
    while (*text) {
        size_t len = strcspn(text, ","), colon = strcspn(text, ",:");
        const char *name = text;
        int coll = -1;
        if (text[colon] == ':') {
            for (int c = 0; c < symmNumColls; c++)
                if (strlen(symm_coll_name(c)) == colon && !memcmp(symm_coll_name(c), text, colon))
                    coll = c;
            if (coll < 0) return bad_algo(text, len);
            name = text + colon + 1;
        }
        int k = find_kernel(name, len - (size_t)(name - text), coll);
        if (len && k < 0) return bad_algo(text, len);
        if (len) out[symm_kernels[k].coll] = (int16_t)k;
        text += len + (text[len] == ',');
    }
    memcpy(forced, out, sizeof out);
    return symmSuccess;
}

static uint64_t mix(uint64_t h, const void *p, size_t n) {
    const unsigned char *b = p;
    while (n--) h = (h ^ *b++) * 0x100000001b3ull;
    return h;
}

uint64_t symm_plan_mix_row(uint64_t h, const symm_plan_row *r) {
    const uint64_t v[] = {r->kernel, (unsigned)r->max_ranks, (unsigned)r->cores,
                          r->upto,   (unsigned)r->warps,     (unsigned)r->ctas,
                          r->pairs,  (unsigned)r->quarter};
    return mix(h, v, sizeof v);
}

uint64_t symm_plan_hash(void) {
    uint64_t h = 0xcbf29ce484222325ull;
    uint64_t constants[] = {CHUNK_BYTES,          NT_BYTES,         DIRECT_BYTES,
                            BOTH_BYTES,           MANY_BYTES,       SLICE_BYTES,
                            SYMM_PACKET_BYTES,    SYMM_CTL_BYTES,   sizeof(symm_ctl),
                            sizeof(symm_inbox),   SYMM_P2P_RING,    SYMM_P2P_RING_FEW,
                            SYMM_P2P_SMALL,       SYMM_P2P_CHUNK,   SYMM_P2P_SHORT,
                            SYMM_P2P_SHORT_CHUNK, AHEAD_RING,       SYMM_AHEAD_SLOTS,
                            SYMM_AHEAD_TINY,      SYMM_AHEAD_SHORT, SYMM_AHEAD_NEAR};
    h = mix(h, constants, sizeof constants);
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        h = mix(h, symm_kernels[k].name, strlen(symm_kernels[k].name));
        const symm_kernel_row *r = &symm_kernels[k];
        int v[] = {(int)r->coll, r->min_ranks, r->cap,   (int)r->flags, r->places,
                   r->sliced,    r->staged,    r->relay, r->copies,     r->multicast};
        h = mix(h, v, sizeof v);
    }
    for (int i = 0; i < ROWS; i++) h = symm_plan_mix_row(h, &table[i]);
    return symm_plan_gpu_hash(h);
}

void symm_plan_kernels(int gpu,
                       void (*row)(void *arg, const char *name, const char *coll, const char *types,
                                   const char *range, const char *how),
                       void *arg) {
    static const char *const range[] = {"any size",
                                        "packet scratch of one rank",
                                        "packet scratch of all ranks",
                                        "LL scratch of one rank",
                                        "line scratch of one rank",
                                        "a quarter of a ring"};
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        const symm_kernel_row *r = &symm_kernels[k];
        if (!(r->flags & (gpu ? SYMM_K_GPU : SYMM_K_HOST))) continue;
        row(arg, r->name, symm_coll_name(r->coll),
            symm_coll_moves(&symm_colls[r->coll]) ? "all 12" : "-", range[cap_of(r, gpu)], r->how);
    }
}

static symm_plan plan_bytes(const symm_plan_env *env, int coll, uint64_t bytes) {
    symm_call call = {.coll = (symmColl_t)coll, .count = bytes, .type = symmUint8, .esize = 1};
    if (!symm_coll_moves(&symm_colls[coll])) call.count = 0;
    return symm_plan_make(env, &call);
}

static int same_row(const symm_plan *a, const symm_plan *b) {
    return a->kernel == b->kernel && a->source == b->source;
}

/* The last size with the kernel of `lo`, from the same source, between it and `hi`, which has
 * another. */
static uint64_t last_of(const symm_plan_env *env, int coll, uint64_t lo, uint64_t hi) {
    const symm_plan first = plan_bytes(env, coll, lo);
    while (hi - lo > 1) {
        uint64_t middle = lo + (hi - lo) / 2;
        const symm_plan plan = plan_bytes(env, coll, middle);
        if (same_row(&plan, &first))
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

/* Where another row may begin behind `at`: powers of two, between which the rows of coll.def have
 * one limit, and the limits of SYMM_PLAN_TABLE. */
static uint64_t next_look(const symm_plan_env *env, int coll, uint64_t at) {
    uint64_t next = 1;
    SYMM_ASSERT(coll >= 0 && coll < symmNumColls);
    while (next <= at) next *= 2;
    for (int i = 0; env->rows && i < env->rows->n; i++) {
        const symm_plan_row *r = &env->rows->row[i];
        const int own = (int)symm_kernels[r->kernel].coll == coll;
        if (own && r->upto >= at && r->upto + 1 < next) next = r->upto + 1;
    }
    return next;
}

void symm_plan_table(const symm_plan_env *env,
                     void (*row)(void *arg, const char *coll, uint64_t from, uint64_t to,
                                 const symm_plan *most),
                     void *arg) {
    const uint64_t end = 1ull << 40; /* no table has a limit beyond */
    for (int c = 0; c < symmNumColls; c++) {
        uint64_t from = 0;
        symm_plan last = plan_bytes(env, c, 0);
        for (uint64_t seen = 0, at = 1; at <= end;) {
            const symm_plan plan = plan_bytes(env, c, at);
            if (same_row(&plan, &last)) {
                seen = at;
                at = next_look(env, c, at);
                continue;
            }
            const uint64_t to = last_of(env, c, from > seen ? from : seen, at);
            last = plan_bytes(env, c, to);
            if (last.kernel != SYMM_KERNEL_COUNT) row(arg, symm_coll_name(c), from, to, &last);
            from = to + 1; /* there may be another limit before `at` */
            last = plan_bytes(env, c, from);
        }
        last = plan_bytes(env, c, end);
        if (last.kernel != SYMM_KERNEL_COUNT) row(arg, symm_coll_name(c), from, UINT64_MAX, &last);
    }
}
