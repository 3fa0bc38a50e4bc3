/* emu_p2p.h - lists of sends and receives for the GPU kernel on fibers (emu.h): drawn among 1 to 5
 * ranks, with all memory and what it must be afterwards. T_SEED: the first case; T_CASES: how many.
 * One thread. */
#ifndef EMU_P2P_H_
#define EMU_P2P_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/common/p2p_ring.h"
#include "emu.h"
#include "host/coll/plan.h"
#include "t.h"

enum {
    RANKS = 5,
    MESSAGES = 10,
    STEPS = 3,
    CALLS = STEPS * MESSAGES * 2,
    REGIONS = STEPS * MESSAGES * 2,
    SCRATCH = 256 << 10,
    MEMORY = 512 << 10,
    GUARD = 32
};
#define STRIDE ((uint64_t)SYMM_CTL_BYTES + SCRATCH + MEMORY)

typedef struct {
    int from, to, staged[2]; /* staged: receiver, sender */
    uint64_t bytes, at[2];   /* at: in the receiver's memory, in the sender's */
} message;

typedef struct {
    int n, grouped;
    message m[MESSAGES];
} step;

static struct {
    int n, calls[RANKS];
    uint64_t random, ring;
    unsigned char *flat, *model;
    symm_ctl *host;
    symm_scratch scratch;
    struct {
        uint64_t at, bytes;
        int step;            /* that used it last */
    } place[RANKS][REGIONS]; /* what messages have used of each rank's memory */
    int places[RANKS];
    uint64_t used[RANKS];
    int nsteps;
    step step[STEPS];
    symm_gpu_p2p_args *args; /* [RANKS][CALLS] */
    emu_launch *launch;      /* the same; then in rows of `most` */
    int most;
} k;

static inline uint32_t draw(uint32_t n) {
    k.random ^= k.random << 13, k.random ^= k.random >> 7, k.random ^= k.random << 17;
    return (uint32_t)((k.random >> 32) * n >> 32);
}

static inline unsigned char *memory(int rank) {
    return k.flat + (uint64_t)rank * STRIDE + SYMM_CTL_BYTES + SCRATCH;
}
static inline unsigned char *modelled(int rank) {
    return k.model + (size_t)rank * MEMORY;
}

/* As if each pair had used its ring often: its units cross a number of more than 32 bits. */
static inline void many_units_before(void) {
    const uint64_t units = SYMM_P2P_GPU_BYTES(k.ring) / 512, laps = (1ull << 32) / units - 1;
    for (int s = 0; s < k.n; s++)
        for (int r = 0; r < k.n; r++) {
            symm_gpu_p2p_in *in = &((symm_gpu_ctl *)(k.flat + (uint64_t)r * STRIDE))->p2p_in[s];
            symm_gpu_p2p_out *out = &((symm_gpu_ctl *)(k.flat + (uint64_t)s * STRIDE))->p2p_out[r];
            in->at[0].unit = out->at[0].unit = laps * units;
            for (int i = 0; i < SYMM_GPU_P2P_SEGMENTS; i++)
                in->taken[i] = out->credit[i] = laps * (units / SYMM_GPU_P2P_SEGMENTS);
        }
}

static inline void begin(int n) {
    k.n = n;
    k.flat = calloc((size_t)n, STRIDE);
    k.model = malloc((size_t)n * MEMORY);
    k.host = calloc((size_t)n, sizeof *k.host);
    k.args = calloc(RANKS * CALLS, sizeof *k.args);
    k.launch = calloc(RANKS * CALLS, sizeof *k.launch);
    T_CHECK(k.flat && k.model && k.host && k.args && k.launch);
    emu_forget();
    emu_memory(k.flat, (size_t)n * STRIDE);
    emu_memory(k.host, (size_t)n * sizeof *k.host);
    k.scratch = symm_plan_gpu_scratch(draw(3) ? SCRATCH / 2 : SCRATCH, n);
    k.ring = k.scratch.gpu.p2p_ring;
    memset(k.calls, 0, sizeof k.calls);
    memset(k.places, 0, sizeof k.places);
    for (int r = 0; r < n; r++) {
        k.used[r] = GUARD;
        for (unsigned i = 0; i < MEMORY; i++) memory(r)[i] = (unsigned char)draw(256);
        memcpy(modelled(r), memory(r), MEMORY);
    }
}

static inline void end(void) {
    free(k.flat), free(k.model), free(k.host), free(k.args), free(k.launch);
}

/* ---- drawing messages ------------------------------------------------------------------------ */

/* Of every way, and about where a unit ends: the first one has 464 bytes, others 480. */
static inline uint64_t draw_bytes(void) {
    const uint32_t ring = (uint32_t)k.ring;
    switch (draw(10)) {
    case 0: return 0;
    case 1:
    case 2: return draw(100);
    case 3: return 464 + 480 * draw(5) - 1 + draw(3);
    case 4:
    case 5: return draw(ring < 9000 ? ring + 1 : 9000);
    case 6:
    case 7: return draw(ring + 1);
    case 8: return ring - 1 + draw(3);
    default: return ring + draw(2 * ring);
    }
}

/* Where an earlier message was: what a send finds there has been received, and what a receive
 * writes over has been sent. Calls of one group have places of their own. */
static inline int take_used(int rank, int step, int grouped, uint64_t bytes, uint64_t *at) {
    if (!k.places[rank]) return 0;
    const int i = (int)draw((uint32_t)k.places[rank]);
    if (k.place[rank][i].bytes < bytes || (grouped && k.place[rank][i].step == step)) return 0;
    k.place[rank][i].step = step;
    *at = k.place[rank][i].at;
    return 1;
}

/* Memory of the rank that no other message has, or one has had. 0: none is left. */
static inline int take(int rank, int step, int grouped, uint64_t bytes, uint64_t *at) {
    const uint64_t odd = draw(3) ? 0 : draw(4) ? 4 * draw(4) : draw(16);
    if (draw(2) && take_used(rank, step, grouped, bytes, at)) return 1;
    if (k.used[rank] + bytes + 2 * GUARD > MEMORY) return 0;
    *at = (k.used[rank] + 15) / 16 * 16 + odd;
    k.used[rank] = *at + bytes + GUARD / 2;
    const int i = k.places[rank]++;
    k.place[rank][i].at = *at, k.place[rank][i].bytes = bytes, k.place[rank][i].step = step;
    return 1;
}

/* A rank's message to itself has two places. */
static inline int apart(const message *m) {
    return m->from != m->to || m->at[0] + m->bytes <= m->at[1] || m->at[1] + m->bytes <= m->at[0];
}

static inline void draw_step(step *s, int no) {
    const int want = 1 + (int)draw(MESSAGES);
    *s = (step){.grouped = draw(3) > 0};
    for (int i = 0; i < want; i++) {
        message *m = &s->m[s->n];
        m->from = (int)draw((uint32_t)k.n), m->to = (int)draw((uint32_t)k.n);
        if (k.n > 1 && draw(2)) m->from = 0, m->to = 1; /* rings go round */
        m->bytes = draw_bytes();
        /* Its receive comes behind it. */
        if (!s->grouped && m->from == m->to && m->bytes > k.ring / 4) m->bytes = 100;
        m->staged[0] = !draw(2), m->staged[1] = !draw(2);
        if (take(m->to, no, s->grouped, m->bytes, &m->at[0]) &&
            take(m->from, no, s->grouped, m->bytes, &m->at[1]) && apart(m))
            s->n++;
    }
}

/* ---- lists ----------------------------------------------------------------------------------- */

static inline symm_gpu_p2p_args *next_args(int rank) {
    symm_gpu_p2p_args *a = &k.args[rank * CALLS + k.calls[rank]];
    a->a = (symm_args){
        .base = (uint64_t)(uintptr_t)k.flat,
        .stride = STRIDE,
        .rank = rank,
        .nranks = k.n,
        .scratch = k.scratch,
        .gpu = {.host_base = (uint64_t)(uintptr_t)k.host, .host_stride = sizeof *k.host}};
    return a;
}

static inline void launch(int rank, const char *name, unsigned ctas, unsigned threads) {
    const int i = rank * CALLS + k.calls[rank]++;
    k.launch[i] = (emu_launch){.kernel = emu_find(name),
                               .args = {.src = &k.args[i], .rank = rank},
                               .ctas = ctas,
                               .threads = threads};
    T_CHECKF(k.launch[i].kernel != NULL, "%s is not compiled in", name);
}

static inline symm_gpu_p2p_op op_of(const message *m, int sends) {
    const int own = sends ? m->from : m->to, peer = sends ? m->to : m->from;
    const uint64_t at = m->at[sends];
    return (symm_gpu_p2p_op){.buff = (uint64_t)(uintptr_t)(memory(own) + at),
                             .off = m->staged[sends] && peer != own ? SYMM_STAGED
                                                                    : SYMM_CTL_BYTES + SCRATCH + at,
                             .count = m->bytes,
                             .type = symmUint8,
                             .peer = (uint8_t)peer,
                             .sends = (uint8_t)sends};
}

/* The calls of one rank in a step, or of one message: channel by channel, the channels in a drawn
 * order. Sometimes by way of the list in the control block. */
static inline void launch_list(int rank, const message *m, int n) {
    symm_gpu_p2p_op ops[2 * MESSAGES];
    uint16_t first[SYMM_GPU_CHANNELS];
    unsigned made = 0, channels = 0, self = 0;
    const unsigned turn = draw(2 * RANKS);
    for (unsigned q = 0; q < 2 * RANKS; q++) {
        const int way = (int)((q + turn) % 2), peer = (int)((q + turn) / 2 % RANKS);
        const unsigned begins = made;
        for (int i = 0; i < n; i++) {
            if ((way ? m[i].from : m[i].to) != rank || (way ? m[i].to : m[i].from) != peer)
                continue;
            ops[made++] = op_of(&m[i], way);
            if (peer == rank) self |= 1u << way;
        }
        if (made == begins) continue;
        first[channels++] = (uint16_t)begins;
        ops[made - 1].last = 1;
    }
    if (!made) return;
    const int listed = !draw(3);
    symm_gpu_p2p_args *a;
    for (unsigned done = 0, part; listed && done < made; done += part) {
        part = 1 + draw(made - done);
        a = next_args(rank);
        a->ops = (uint16_t)part;
        a->first[0] = (uint16_t)done;
        memcpy(a->op, ops + done, part * sizeof *ops);
        launch(rank, "emu_p2p_list", 1, 32);
    }
    a = next_args(rank);
    a->channels = channels;
    a->listed = listed ? made : 0;
    a->ops = (uint16_t)(listed ? 0 : made);
    a->self = (uint8_t)self;
    memcpy(a->first, first, channels * sizeof *first);
    if (!listed) memcpy(a->op, ops, made * sizeof *ops);
    launch(rank, "emu_p2p", 1 + draw(3), 32 * (1 + draw(4)));
}

static inline void launch_step(const step *s) {
    for (int r = 0; r < k.n; r++) {
        if (s->grouped) launch_list(r, s->m, s->n);
        for (int i = 0; !s->grouped && i < s->n; i++) {
            message m = s->m[i];
            if (m.from == r && m.to == r) { /* the send first */
                m.to = RANKS;
                const int at = k.calls[r];
                launch_list(r, &s->m[i], 0);
                T_EQ(k.calls[r], at);
            }
            launch_list(r, &s->m[i], 1);
        }
    }
}

/* All ranks have as many launches: those without have a kernel of no channels. */
static inline void even_out(void) {
    k.most = 1;
    for (int r = 0; r < k.n; r++)
        if (k.calls[r] > k.most) k.most = k.calls[r];
    for (int r = 0; r < k.n; r++)
        while (k.calls[r] < k.most) {
            next_args(r);
            launch(r, "emu_p2p", 1, 32);
        }
    for (int r = 0; r < k.n; r++)
        memmove(k.launch + r * k.most, k.launch + r * CALLS, (size_t)k.most * sizeof *k.launch);
}

static inline void draw_case(uint64_t seed, int fewest) {
    static const int ranks[] = {1, 2, 2, 2, 3, 3, 4, 5};
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    int n = ranks[draw(8)];
    begin(n < fewest ? fewest : n);
    if (!draw(3)) many_units_before();
    k.nsteps = 1 + (int)draw(STEPS);
    for (int i = 0; i < k.nsteps; i++) {
        draw_step(&k.step[i], i + 1);
        launch_step(&k.step[i]);
    }
    even_out();
}

static inline void model_case(void) {
    for (int i = 0; i < k.nsteps; i++)
        for (int j = 0; j < k.step[i].n; j++) {
            const message *m = &k.step[i].m[j];
            memcpy(modelled(m->to) + m->at[0], modelled(m->from) + m->at[1], m->bytes);
        }
}

static inline const char *describe(void) {
    static char text[4096];
    size_t at = (size_t)snprintf(text, sizeof text, "%d ranks, ring %llu;", k.n,
                                 (unsigned long long)k.ring);
    for (int i = 0; i < k.nsteps; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at,
                               " %s:", k.step[i].grouped ? "group" : "calls");
        for (int j = 0; j < k.step[i].n && at < sizeof text - 80; j++) {
            const message *m = &k.step[i].m[j];
            at += (size_t)snprintf(text + at, sizeof text - at, " %d%s->%d%s %llu,", m->from,
                                   m->staged[1] ? "s" : "", m->to, m->staged[0] ? "s" : "",
                                   (unsigned long long)m->bytes);
        }
    }
    return text;
}

static inline void memory_is_as_modelled(uint64_t seed) {
    for (int r = 0; r < k.n; r++)
        for (unsigned i = 0; i < MEMORY; i++)
            if (memory(r)[i] != modelled(r)[i]) {
                T_CHECKF(0, "T_SEED=%llu: rank %d, byte %u: %02x, not %02x; %s",
                         (unsigned long long)seed, r, i, memory(r)[i], modelled(r)[i], describe());
                return;
            }
}

static inline int cases(int usual) {
    const char *n = getenv("T_CASES"), *full = getenv("T_FULL");
    return n ? atoi(n) : full && atoi(full) > 0 ? 3 * usual : usual;
}
static inline uint64_t first_seed(void) {
    const char *s = getenv("T_SEED");
    return s ? strtoull(s, NULL, 0) : 1;
}

/* ---- pairs ---- */

static inline void begin_pair(uint64_t seed) {
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    begin(2);
    k.nsteps = 0;
}

/* ring: a power of two, 1024 to 16384. */
static inline void begin_pair_with(uint64_t seed, uint64_t ring) {
    begin_pair(seed);
    k.scratch = symm_plan_gpu_scratch(SCRATCH, k.n);
    T_CHECK(ring <= k.scratch.gpu.p2p_ring);
    k.scratch.gpu.p2p_ring = k.ring = ring;
    if (!draw(2)) many_units_before();
}

/* One list of rank 0 to rank 1, or the other way round, by a team of so many warps; message i has
 * bytes[i]. staged: the receiver's places are in no window. */
static inline void launch_flood_to(int rank, int n, const uint64_t *bytes, int staged,
                                   unsigned warps) {
    symm_gpu_p2p_args *a = next_args(rank);
    uint64_t at = 64;
    for (int i = 0; i < n; i++) {
        const message m = {.to = 1, .bytes = bytes[i], .at = {at, at}, .staged = {staged, 0}};
        a->op[i] = op_of(&m, rank == 0);
        a->op[i].last = i == n - 1;
        at += (bytes[i] + 47) / 16 * 16;
    }
    a->channels = 1;
    a->ops = (uint16_t)n;
    launch(rank, "emu_p2p", 1, 32 * warps);
}
static inline void launch_flood(int rank, int n, const uint64_t *bytes) {
    launch_flood_to(rank, n, bytes, 0, 2);
}

#endif
