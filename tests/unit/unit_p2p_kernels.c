/* unit_p2p_kernels.c - the GPU kernel of sends and receives itself, on fibers (emu.h): drawn lists
 * of messages of every size and way among 1 to 5 ranks, grouped and one by one, several kernels in
 * a row while ranks run apart; every byte of all memory compared with what the messages mean. And
 * kernels that must leave. T_SEED: the first case; T_CASES: how many. */
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

static uint32_t draw(uint32_t n) {
    k.random ^= k.random << 13, k.random ^= k.random >> 7, k.random ^= k.random << 17;
    return (uint32_t)((k.random >> 32) * n >> 32);
}

static unsigned char *memory(int rank) {
    return k.flat + (uint64_t)rank * STRIDE + SYMM_CTL_BYTES + SCRATCH;
}
static unsigned char *modelled(int rank) {
    return k.model + (size_t)rank * MEMORY;
}

static void begin(int n) {
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

static void end(void) {
    free(k.flat), free(k.model), free(k.host), free(k.args), free(k.launch);
}

/* ---- drawing messages ------------------------------------------------------------------------ */

static uint64_t draw_bytes(void) {
    const uint32_t ring = (uint32_t)k.ring, one = (uint32_t)SYMM_P2P_ONE_PIECE(k.ring);
    switch (draw(10)) {
    case 0: return 0;
    case 1:
    case 2: return draw(SYMM_P2P_TINY + 2);
    case 3:
    case 4: return draw(one + 1);
    case 5: return one + draw(3);
    case 6:
    case 7: return one + draw(ring - one + 1);
    case 8: return ring - 1 + draw(3);
    default: return ring + draw(2 * ring);
    }
}

/* Where an earlier message was: what a send finds there has been received, and what a receive
 * writes over has been sent. Calls of one group have places of their own. */
static int take_used(int rank, int step, int grouped, uint64_t bytes, uint64_t *at) {
    if (!k.places[rank]) return 0;
    const int i = (int)draw((uint32_t)k.places[rank]);
    if (k.place[rank][i].bytes < bytes || (grouped && k.place[rank][i].step == step)) return 0;
    k.place[rank][i].step = step;
    *at = k.place[rank][i].at;
    return 1;
}

/* Memory of the rank that no other message has, or one has had. 0: none is left. */
static int take(int rank, int step, int grouped, uint64_t bytes, uint64_t *at) {
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
static int apart(const message *m) {
    return m->from != m->to || m->at[0] + m->bytes <= m->at[1] || m->at[1] + m->bytes <= m->at[0];
}

static void draw_step(step *s, int no) {
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

static symm_gpu_p2p_args *next_args(int rank) {
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

static void launch(int rank, const char *name, unsigned ctas, unsigned threads) {
    const int i = rank * CALLS + k.calls[rank]++;
    k.launch[i] = (emu_launch){.kernel = emu_find(name),
                               .args = {.src = &k.args[i], .rank = rank},
                               .ctas = ctas,
                               .threads = threads};
    T_CHECKF(k.launch[i].kernel != NULL, "%s is not compiled in", name);
}

static symm_gpu_p2p_op op_of(const message *m, int sends) {
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
static void launch_list(int rank, const message *m, int n) {
    symm_gpu_p2p_op ops[2 * MESSAGES];
    uint16_t first[SYMM_GPU_CHANNELS];
    unsigned made = 0, channels = 0, big = 0, self = 0;
    const unsigned turn = draw(2 * RANKS);
    for (unsigned q = 0; q < 2 * RANKS; q++) {
        const int way = (int)((q + turn) % 2), peer = (int)((q + turn) / 2 % RANKS);
        const unsigned begins = made;
        for (int i = 0; i < n; i++) {
            if ((way ? m[i].from : m[i].to) != rank || (way ? m[i].to : m[i].from) != peer)
                continue;
            ops[made++] = op_of(&m[i], way);
            big |= m[i].bytes > SYMM_P2P_ONE_PIECE(k.ring);
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
    a->bulk = big != 0;
    a->self = (uint8_t)self;
    memcpy(a->first, first, channels * sizeof *first);
    if (!listed) memcpy(a->op, ops, made * sizeof *ops);
    launch(rank, "emu_p2p", 1 + draw(2), 32 * (1 + draw(3)));
}

static void launch_step(const step *s) {
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
static void even_out(void) {
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

static void draw_case(uint64_t seed, int fewest) {
    static const int ranks[] = {1, 2, 2, 2, 3, 3, 4, 5};
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    int n = ranks[draw(8)];
    begin(n < fewest ? fewest : n);
    k.nsteps = 1 + (int)draw(STEPS);
    for (int i = 0; i < k.nsteps; i++) {
        draw_step(&k.step[i], i + 1);
        launch_step(&k.step[i]);
    }
    even_out();
}

static void model_case(void) {
    for (int i = 0; i < k.nsteps; i++)
        for (int j = 0; j < k.step[i].n; j++) {
            const message *m = &k.step[i].m[j];
            memcpy(modelled(m->to) + m->at[0], modelled(m->from) + m->at[1], m->bytes);
        }
}

static const char *describe(void) {
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

static void memory_is_as_modelled(uint64_t seed) {
    for (int r = 0; r < k.n; r++)
        for (unsigned i = 0; i < MEMORY; i++)
            if (memory(r)[i] != modelled(r)[i]) {
                T_CHECKF(0, "T_SEED=%llu: rank %d, byte %u: %02x, not %02x; %s",
                         (unsigned long long)seed, r, i, memory(r)[i], modelled(r)[i], describe());
                return;
            }
}

static int cases(int usual) {
    const char *n = getenv("T_CASES"), *full = getenv("T_FULL");
    return n ? atoi(n) : full && atoi(full) > 0 ? 10 * usual : usual;
}
static uint64_t first_seed(void) {
    const char *s = getenv("T_SEED");
    return s ? strtoull(s, NULL, 0) : 1;
}

static void every_way_in_any_order(void) {
    char why[256] = "";
    for (int i = 0; i < cases(100); i++) {
        const uint64_t seed = first_seed() + (unsigned)i;
        draw_case(seed, 1);
        model_case();
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s; %s", (unsigned long long)seed, why, describe());
        if (!r) memory_is_as_modelled(seed);
        for (int p = 0; p < k.n; p++)
            T_CHECKF(!k.host[p].abort && !k.host[p].p2p.waits, "T_SEED=%llu: rank %d heard %llx",
                     (unsigned long long)seed, p, (unsigned long long)k.host[p].abort);
        end();
    }
}

/* ---- floods ---------------------------------------------------------------------------------- */

static void begin_pair(uint64_t seed) {
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    begin(2);
    k.nsteps = 0;
}

/* One list of rank 0 to rank 1, or the other way round; message i has bytes[i]. */
static void launch_flood(int rank, int n, const uint64_t *bytes) {
    symm_gpu_p2p_args *a = next_args(rank);
    uint64_t at = 64;
    for (int i = 0; i < n; i++) {
        const message m = {.to = 1, .bytes = bytes[i], .at = {at, at}};
        a->op[i] = op_of(&m, rank == 0);
        a->op[i].last = i == n - 1;
        a->bulk |= bytes[i] > SYMM_P2P_ONE_PIECE(k.ring);
        at += (bytes[i] + 47) / 16 * 16;
    }
    a->channels = 1;
    a->ops = (uint16_t)n;
    launch(rank, "emu_p2p", 1, 64);
}

static void let_go_later(void *arg, uint64_t now) {
    if (now > *(uint64_t *)arg) emu_hold(-1);
}

/* More messages than a pair has heads, and more bytes than its ring, to a receiver that comes late:
 * its kernel begins when the sender has long had to wait. */
static void floods_wait_for_their_receiver(void) {
    enum { FLOOD = SYMM_GPU_P2P_INLINE };
    char why[256] = "";
    for (int i = 0; i < cases(24); i++) {
        const uint64_t seed = 17000 + first_seed() + (unsigned)i;
        uint64_t bytes[FLOOD], until = i % 4 * 15000u, at = 64;
        begin_pair(seed);
        const uint32_t most[] = {1, 60, 2000, 5000};
        for (int m = 0; m < FLOOD; m++) bytes[m] = draw(most[i % 4]);
        for (int r = 0; r < 2; r++) launch_flood(r, FLOOD, bytes);
        even_out();
        for (int m = 0; m < FLOOD; at += (bytes[m++] + 47) / 16 * 16) {
            T_CHECK(at + bytes[m] < MEMORY);
            memcpy(modelled(1) + at, memory(0) + at, bytes[m]);
        }
        emu_hold(1);
        emu_between(let_go_later, &until);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        emu_hold(-1);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 17000, why);
        memory_is_as_modelled(seed - 17000);
        end();
    }
}

/* Large messages of one size, each to another place: what the receive before last wanted is never
 * taken for what this one wants. */
static void places_of_large_ones_are_not_mixed_up(void) {
    enum { LARGE = 6 };
    char why[256] = "";
    for (int i = 0; i < cases(100); i++) {
        const uint64_t seed = 19000 + first_seed() + (unsigned)i;
        uint64_t bytes[LARGE], at = 64;
        begin_pair(seed);
        k.scratch = symm_plan_gpu_scratch(SCRATCH / 4, k.n);
        k.ring = k.scratch.gpu.p2p_ring;
        for (int m = 0; m < LARGE; m++) bytes[m] = k.ring + 16 + (unsigned)i;
        for (int r = 0; r < 2; r++) launch_flood(r, LARGE, bytes);
        even_out();
        for (int m = 0; m < LARGE; at += (bytes[m++] + 47) / 16 * 16)
            memcpy(modelled(1) + at, memory(0) + at, bytes[m]);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 19000, why);
        memory_is_as_modelled(seed - 19000);
        end();
    }
}

static void launch_ops(int rank, const symm_gpu_p2p_op *ops, int n) {
    symm_gpu_p2p_args *a = next_args(rank);
    for (int i = 0; i < n; i++) {
        a->op[i] = ops[i];
        a->op[i].last = 1;
        a->first[i] = (uint16_t)i;
    }
    a->channels = (uint32_t)n;
    a->ops = (uint16_t)n;
    a->bulk = 1;
    launch(rank, "emu_p2p", 1, 64);
}

/* Rank 0 sends out of its window to a receive in none, which loads. Its next kernel receives into
 * the end of the same place, what lies in the ring already. */
static void what_is_sent_may_be_written_over(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 21000 + first_seed() + (unsigned)i;
        begin_pair(seed);
        const message out = {.to = 1, .bytes = 2 * k.ring, .at = {64, 64}, .staged = {1, 0}},
                      back = {.from = 1, .bytes = k.ring, .at = {64 + k.ring, 128 << 10}};
        const symm_gpu_p2p_op both[] = {op_of(&back, 1), op_of(&out, 0)}, first = op_of(&out, 1),
                              second = op_of(&back, 0);
        launch_ops(1, both, 2);
        launch_ops(0, &first, 1);
        launch_ops(0, &second, 1);
        even_out();
        memcpy(modelled(1) + 64, memory(0) + 64, out.bytes);
        memcpy(modelled(0) + back.at[0], memory(1) + back.at[1], back.bytes);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 21000, why);
        memory_is_as_modelled(seed - 21000);
        end();
    }
}

/* ---- kernels that leave ---------------------------------------------------------------------- */

static struct {
    uint64_t at, steps;
    int rank, done;
} spoiler;

static void count_steps(void *arg, uint64_t now) {
    (void)arg;
    spoiler.steps = now;
}

/* As symmCommAbort does it: the reason, in the own block first, then in the peers'. */
static void abort_at(void *arg, uint64_t now) {
    (void)arg;
    if (spoiler.done || now < spoiler.at) return;
    spoiler.done = 1;
    for (int q = 0; q < k.n; q++)
        k.host[(spoiler.rank + q) % k.n].abort =
            (uint64_t)symmAborted << 32 | (uint32_t)(spoiler.rank + 1);
}

/* Wherever an abort comes, all kernels end, those that were begun after it too. */
static void an_abort_at_any_step_ends_all_kernels(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 7000 + first_seed() + (unsigned)i;
        draw_case(seed, 1);
        emu_between(count_steps, NULL);
        T_CHECK(!emu_run(k.launch, k.n, k.most, seed, why, sizeof why));
        end();
        draw_case(seed, 1);
        spoiler.at = 1 + draw((uint32_t)spoiler.steps), spoiler.rank = (int)draw((uint32_t)k.n);
        spoiler.done = 0;
        emu_between(abort_at, NULL);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        T_CHECKF(!r, "T_SEED=%llu: %s; %s", (unsigned long long)seed - 7000, why, describe());
        T_CHECK(spoiler.done);
        end();
    }
}

/* Changes a call of a drawn message, on one of its ranks. Whose. */
static int spoil_call(int *from, int *to) {
    for (int tries = 0; tries < 1000; tries++) {
        const int rank = (int)draw((uint32_t)k.n), i = (int)draw((uint32_t)k.calls[rank]);
        symm_gpu_p2p_args *a = &k.args[rank * CALLS + i];
        if (!a->ops) continue;
        symm_gpu_p2p_op *op = &a->op[draw(a->ops)];
        if (op->count && draw(2))
            op->count--;
        else
            op->type = symmInt8;
        *from = op->sends ? rank : op->peer, *to = op->sends ? op->peer : rank;
        return rank;
    }
    return -1;
}

/* One call has another count or type: every rank's kernel ends and says so, the note names the two,
 * and what is outside the receives stays as it is. */
static void calls_that_differ_are_found(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 9000 + first_seed() + (unsigned)i;
        int from = 0, to = 0;
        draw_case(seed, 2);
        if (spoil_call(&from, &to) < 0) {
            end();
            continue;
        }
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s; %s", (unsigned long long)seed - 9000, why, describe());
        const symm_p2p_note *note = &k.host[to].p2p;
        T_CHECKF(note->differ == ((uint64_t)from << 32 | ((unsigned)to + 1)),
                 "T_SEED=%llu: %llx, not from %d to %d; %s", (unsigned long long)seed - 9000,
                 (unsigned long long)note->differ, from, to, describe());
        T_CHECK(note->sent_count != note->recv_count || note->sent_type != note->recv_type);
        for (int p = 0; p < k.n; p++)
            T_CHECKF(k.host[p].abort >> 32 == symmMismatch, "T_SEED=%llu: rank %d heard %llx",
                     (unsigned long long)seed - 9000, p, (unsigned long long)k.host[p].abort);
        end();
    }
}

/* A large message to a receive in a window that is shorter: nothing is written behind that. */
static void nothing_is_stored_where_counts_differ(void) {
    char why[256] = "";
    for (int i = 0; i < cases(24); i++) {
        const uint64_t seed = 18000 + first_seed() + (unsigned)i;
        begin_pair(seed);
        const uint64_t sent = 5 * k.ring, wanted = SYMM_P2P_ONE_PIECE(k.ring) + 1 + draw(100);
        launch_flood(0, 1, &sent);
        launch_flood(1, 1, &wanted);
        k.launch[0].ctas = 2, k.launch[0].threads = 128; /* all at once, before it is told */
        even_out();
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 18000, why);
        T_EQ(k.host[0].abort >> 32, symmMismatch);
        T_EQ(k.host[1].abort >> 32, symmMismatch);
        T_CHECK(!memcmp(memory(1) + 64 + wanted, modelled(1) + 64 + wanted, sent - wanted));
        end();
    }
}

static struct {
    uint64_t at;
    int aborted, over;
    unsigned char memory[MEMORY]; /* rank 1's, when its kernel had ended */
} leaver;

static void rank_1_aborts(void *arg, uint64_t now) {
    (void)arg;
    if (!leaver.aborted && now >= leaver.at) {
        leaver.aborted = 1;
        k.host[1].abort = (uint64_t)symmAborted << 32 | 2;
    }
    if (!leaver.aborted || leaver.over || !emu_ended(1)) return;
    leaver.over = 1;
    memcpy(leaver.memory, memory(1), MEMORY);
}

/* When a rank that aborts has ended its own kernel, each warp of a peer writes at most the piece
 * that it is at to its window; and what it has stored before may still be on the way. */
static void an_aborted_ranks_windows_are_left_alone(void) {
    enum { PIECE = 4096, ON_THE_WAY = 256 * 16, WARPS = 2 };
    char why[256] = "";
    int in_the_middle = 0;
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 20000 + first_seed() + (unsigned)i, bytes = 300 << 10;
        unsigned late = 0;
        begin_pair(seed);
        for (int r = 0; r < 2; r++) launch_flood(r, 1, &bytes);
        even_out();
        leaver.at = 4000 + draw(40000), leaver.aborted = leaver.over = 0;
        emu_between(rank_1_aborts, NULL);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        T_CHECKF(!r, "T_SEED=%llu: %s", (unsigned long long)seed - 20000, why);
        for (unsigned b = 0; leaver.over && b < MEMORY; b++)
            late += memory(1)[b] != leaver.memory[b];
        in_the_middle += late > 0;
        T_CHECKF(late <= WARPS * PIECE + ON_THE_WAY,
                 "T_SEED=%llu: %u bytes were written into the window of a rank that had left",
                 (unsigned long long)seed - 20000, late);
        end();
    }
    T_CHECKF(cases(40) < 40 || in_the_middle > 0, "no abort came while somebody wrote");
}

/* A message of one rank to another without its other call, as one list. */
static void begin_lone(uint64_t seed, int n, message m, int sends) {
    k.random = seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) draw(2);
    begin(n);
    k.nsteps = 1;
    k.step[0] = (step){.n = 1, .m = {m}};
    m.at[0] = m.at[1] = 64;
    const int own = sends ? m.from : m.to;
    symm_gpu_p2p_args *a = next_args(own);
    a->channels = a->ops = 1;
    a->op[0] = op_of(&m, sends);
    a->op[0].last = 1;
    a->bulk = m.bytes > SYMM_P2P_ONE_PIECE(k.ring);
    a->self = (uint8_t)(m.from == m.to ? 1 << sends : 0);
    launch(own, "emu_p2p", 1 + draw(2), 32 * (1 + draw(2)));
    even_out();
}

static void run_lone(uint64_t seed, symmResult_t code, int rank) {
    char why[256] = "";
    const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
    T_CHECKF(!r, "seed %llu: %s; %s", (unsigned long long)seed, why, describe());
    T_CHECKF(k.host[0].abort == ((uint64_t)code << 32 | ((unsigned)rank + 1)),
             "seed %llu: heard %llx; %s", (unsigned long long)seed,
             (unsigned long long)k.host[0].abort, describe());
    T_EQ(k.host[0].left & 0xffffffff, SYMM_STAGE_P2P);
    end();
}

static void a_message_to_oneself_without_its_other_call(void) {
    for (int i = 0; i < 12; i++) {
        const uint64_t bytes[] = {5, 1000, 200000};
        const int sends = i & 1;
        message m = {.bytes = bytes[sends ? 2 : i / 2 % 3]};
        begin_lone(15000 + (unsigned)i, 1 + i % 2, m, sends);
        run_lone(15000 + (unsigned)i, symmInvalidUsage, 0);
    }
}

static void leave_when_ended(void *arg, uint64_t now) {
    (void)arg, (void)now;
    for (int r = 0; r < k.n; r++)
        if (emu_ended(r)) k.host[r].state = SYMM_STATE_LEFT;
}

/* A peer that comes too late for the deadline, or has left. Rank 0 has said what it waits in. */
static void a_peer_that_does_not_come(void) {
    for (int i = 0; i < 16; i++) {
        const uint64_t bytes[] = {5, 1000, 9000, 200000};
        const int sends = i % 2;
        message m = {.from = !sends, .to = sends, .bytes = sends ? 200000 : bytes[i / 4]};
        begin_lone(16000 + (unsigned)i, 2, m, sends);
        if (i / 2 % 2)
            emu_between(leave_when_ended, NULL);
        else
            k.args[0].a.timeout_ns = 4096 * EMU_STEP_NS;
        const symm_p2p_note *note = &k.host[0].p2p;
        const symmResult_t code = i / 2 % 2 ? symmRemoteError : symmTimeout;
        char why[256] = "";
        T_CHECK(!emu_run(k.launch, k.n, k.most, 16000 + (unsigned)i, why, sizeof why));
        emu_between(NULL, NULL);
        T_EQ(k.host[0].abort >> 32, code);
        T_EQ((uint32_t)k.host[0].abort, 2);
        T_EQ(note->waits, (uint64_t)(sends ? SYMM_P2P_SEND : SYMM_P2P_RECV) << 32 | 2);
        T_EQ(note->waits_count, m.bytes);
        end();
    }
}

/* Who has ended its last call may leave: what it owes is there. */
static void a_rank_that_has_ended_may_leave(void) {
    char why[256] = "";
    for (int i = 0; i < cases(40); i++) {
        const uint64_t seed = 11000 + first_seed() + (unsigned)i;
        draw_case(seed, 2);
        model_case();
        emu_between(leave_when_ended, NULL);
        const int r = emu_run(k.launch, k.n, k.most, seed, why, sizeof why);
        emu_between(NULL, NULL);
        T_CHECKF(!r, "T_SEED=%llu: %s; %s", (unsigned long long)seed - 11000, why, describe());
        for (int p = 0; p < k.n; p++)
            T_CHECKF(!k.host[p].abort, "T_SEED=%llu: rank %d heard %llx; %s",
                     (unsigned long long)seed - 11000, p, (unsigned long long)k.host[p].abort,
                     describe());
        memory_is_as_modelled(seed - 11000);
        end();
    }
}

T_MAIN(T_TIMEOUT(every_way_in_any_order, 240),
       T_TIMEOUT(an_abort_at_any_step_ends_all_kernels, 120),
       T_TIMEOUT(calls_that_differ_are_found, 120), T(floods_wait_for_their_receiver),
       T(nothing_is_stored_where_counts_differ), T(places_of_large_ones_are_not_mixed_up),
       T(what_is_sent_may_be_written_over), T(an_aborted_ranks_windows_are_left_alone),
       T(a_message_to_oneself_without_its_other_call), T(a_peer_that_does_not_come),
       T_TIMEOUT(a_rank_that_has_ended_may_leave, 120))
