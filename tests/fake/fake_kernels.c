/* fake_kernels.c - see fake_kernels.h. A kernel runs in its stream's thread. Ranks, threads or
 * processes, meet through the control blocks that the real kernels use: signatures and scalars in
 * the inbox, steps in the arrival words of CTA 0, errors in the host's pages. Data goes through
 * scratch, chunk by chunk. */
#include "fake_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/common/colls.h"
#include "device/common/kernels.h"
#include "device/host/reduce.h"
#include "fake_run.h"
#include "t.h"

enum { CHUNK = 256 << 10, NAMES = 1024 };

/* {epoch, step} of a peer is there, or a later one. 1: leave. */
static int await(const run *r, const uint64_t *word, int peer, uint32_t step, int stage) {
    const uint64_t since = symm_now_ns();
    int left = 0;
    for (;;) {
        uint64_t w = take(word);
        int32_t ahead = (int32_t)((uint32_t)(w >> 32) - r->epoch);
        /* A peer is one epoch ahead at most, over the wrap 3; anything else is old. */
        if ((ahead > 0 && ahead <= 3) || (ahead == 0 && (uint32_t)w >= step)) return 0;
        if (again(r, peer, stage, since, &left)) return 1;
    }
}

static int meet(const run *r, uint32_t step) {
    const symm_args *a = r->a;
    for (int p = 0; p < a->nranks; p++)
        give(&ctl_of(a, p)->arrive[0][a->rank], (uint64_t)r->epoch << 32 | step);
    for (int p = 0; p < a->nranks; p++)
        if (await(r, &r->ctl->arrive[0][p], p, step, SYMM_STAGE_ARRIVE)) return 1;
    return 0;
}

/* Words behind which copies have been given are those of the copies, and are there already. */
static int signatures(const run *r, uint64_t *scalars) {
    const symm_args *a = r->a;
    const unsigned at = r->epoch & 1;
    uint64_t mine = a->scalar;
    if (a->scalar_ptr) memcpy(&mine, a->scalar_ptr, a->esize);
    for (int p = 0; p < a->nranks; p++) {
        symm_gpu_inbox *box = &ctl_of(a, p)->inbox[a->rank];
        if (!(a->flags & SYMM_ARG_COPIES) || r->meets) memcpy(box->scalar[at], &mine, sizeof mine);
        give(&box->sig[at], (uint64_t)r->epoch << 32 | a->sig);
    }
    for (int p = 0; p < a->nranks; p++) {
        const uint64_t *word = &r->ctl->inbox[p].sig[at];
        if (await(r, word, p, 0, SYMM_STAGE_SIGNATURE)) return 1;
        if ((uint32_t)take(word) != a->sig && (uint32_t)(take(word) >> 32) == r->epoch)
            return leave(r, symmMismatch, p, SYMM_STAGE_SIGNATURE);
        memcpy(&scalars[p], r->ctl->inbox[p].scalar[at], sizeof *scalars);
    }
    return 0;
}

static int open_run(run *r, uint64_t *scalars) {
    r->ctl = ctl_of(r->a, r->a->rank);
    uint32_t e = r->ctl->epoch[0];
    const uint64_t abort = own_abort(r->a);
    r->epoch = e == 0xffffffffu ? 2u : e + 1u;
    if (abort)
        return leave(r, (uint32_t)(abort >> 32), (int)(uint32_t)abort - 1, SYMM_STAGE_ARRIVE);
    return signatures(r, scalars);
}

static void close_run(run *r) {
    for (int b = 0; b < SYMM_GPU_MAX_CTAS; b++) r->ctl->epoch[b] = r->epoch;
}

typedef struct { /* of a part of a collective's sources: where it is in these and in what is made */
    const symm_coll_row *row;
    uint64_t part, at, bytes; /* the part; its chunk */
} piece;

static int gives(const symm_args *a, const symm_coll_row *row, int rank) {
    return symm_coll_in(row, a->nranks, rank == a->gpu.root) > 0;
}

/* A chunk of every giver's part is in its scratch; `chunk` is where rank p's lies. */
static void consume(const run *r, const piece *c, char *const *chunk, const uint64_t *scalars) {
    const symm_args *a = r->a;
    const uint64_t count = a->count * a->esize;
    if (!symm_coll_out(c->row, a->nranks, a->rank == a->gpu.root)) return;
    if (c->row->in == SYMM_EACH && (int)c->part != a->rank) return;
    if (c->row->flags & SYMM_COLL_REDUCES)
        symm_reduce_isa("base")->reduce[a->type][a->op]((char *)a->dst + c->at,
                                                        (const void *const *)chunk, a->nranks,
                                                        c->bytes / a->esize, scalars);
    for (int p = 0; !(c->row->flags & SYMM_COLL_REDUCES) && p < a->nranks; p++)
        if (gives(a, c->row, p))
            memcpy((char *)a->dst + (c->row->out == SYMM_EACH ? (unsigned)p * count : 0) + c->at,
                   chunk[p], c->bytes);
}

/* All ranks meet before and after each chunk of each part. 1: leave. */
static int move_chunk(const run *r, const piece *c, uint32_t step, const uint64_t *scalars) {
    const symm_args *a = r->a;
    char *chunk[SYMM_MAX_RANKS];
    for (int p = 0; p < a->nranks; p++)
        chunk[p] = flat(a, p, SYMM_CTL_BYTES + (step / 2 & 1) * CHUNK);
    if (gives(a, c->row, a->rank))
        memcpy(chunk[a->rank], (const char *)a->src + c->part * a->count * a->esize + c->at,
               c->bytes);
    if (meet(r, step + 1)) return 1;
    consume(r, c, chunk, scalars);
    return meet(r, step + 2);
}

/* Part by part, chunk by chunk. 1: leave. */
static int move_all(const run *r, const symm_coll_row *row, const uint64_t *scalars) {
    const symm_args *a = r->a;
    const uint64_t total = a->count * a->esize, parts = symm_holds_parts(row->in, a->nranks);
    piece c = {.row = row};
    uint32_t step = 0;
    for (; c.part < parts; c.part++)
        for (c.at = 0; c.at < total; c.at += CHUNK, step += 2) {
            c.bytes = total - c.at < CHUNK ? total - c.at : CHUNK;
            if (move_chunk(r, &c, step, scalars)) return 1;
        }
    return 0;
}

/* In place a rank receives into parts that it gives later: those are taken from a copy. */
static void move(const symm_args *a, symmColl_t coll) {
    const symm_coll_row *row = &symm_colls[coll];
    symm_args own = *a;
    run r = {.a = &own};
    uint64_t scalars[SYMM_MAX_RANKS];
    const uint64_t bytes = a->count * a->esize * symm_holds_parts(row->in, a->nranks);
    char *copy = NULL;
    if (open_run(&r, scalars)) return;
    if (row->swaps && a->src == a->dst && bytes) {
        copy = malloc(bytes);
        T_CHECK(copy);
        own.src = memcpy(copy, a->src, bytes);
    }
    const int copied = own.flags & SYMM_ARG_COPIES && r.ctl->copied == r.epoch;
    if (copied ? !meet(&r, 1) : !move_all(&r, row, scalars)) close_run(&r);
    free(copy);
}

/* As copies_meet of direct.cuh. */
static void kernel_copies(const cu_launch_config *config, void **args) {
    const symm_args *a = args[0];
    run r = {.a = a, .meets = 1};
    uint64_t words[SYMM_MAX_RANKS];
    int same = a->scalar != 0;
    (void)config;
    if (open_run(&r, words)) return;
    for (int p = 0; p < a->nranks; p++) same &= words[p] == a->scalar;
    r.ctl->copied = same ? r.epoch : 0;
    if (!same && a->scalar) __atomic_store_n(&host_of(a, a->rank)->astray, 1, __ATOMIC_RELAXED);
}

/* ---- with a count per rank: chunks for all ranks lie beside each other in scratch ------------ */

typedef struct {
    run r;
    const symm_coll_row *row;
    const symm_extent *to, *from;
    uint64_t scalars[SYMM_MAX_RANKS], each, chunks; /* each: bytes of a chunk; chunks: the most */
} parts;

static uint64_t word(const uint32_t *w) {
    return (uint64_t)w[2] << 32 | w[0];
}
static void set_word(uint32_t *w, uint64_t v) {
    w[0] = (uint32_t)v, w[2] = (uint32_t)(v >> 32);
}

/* Every rank tells every rank what it gives, expects and how many chunks that is. 1: leave. */
static int compare_counts(parts *k) {
    const symm_args *a = k->r.a;
    for (int p = 0; p < a->nranks; p++) {
        const uint64_t chunks = (k->to[p].bytes + k->each - 1) / k->each;
        if (chunks > k->chunks) k->chunks = chunks;
    }
    for (int p = 0; p < a->nranks; p++) {
        symm_gpu_pair *line = &ctl_of(a, p)->pair[k->r.epoch & 1][a->rank];
        set_word(line->gives, k->to[p].bytes);
        set_word(line->takes, k->from[p].bytes);
        set_word(line->where, k->chunks);
    }
    if (meet(&k->r, 1)) return 1;
    for (int p = 0; p < a->nranks; p++) {
        const symm_gpu_pair *line = &k->r.ctl->pair[k->r.epoch & 1][p];
        const uint64_t gives = word(line->gives), takes = word(line->takes);
        const int here = gives != k->from[p].bytes;
        symm_unequal *say = &host_of(a, a->rank)->unequal;
        if (word(line->where) > k->chunks) k->chunks = word(line->where);
        if (!here && takes == k->to[p].bytes) continue;
        say->gives = here ? gives : k->to[p].bytes;
        say->takes = here ? k->from[p].bytes : takes;
        give(&say->who, (uint64_t)a->esize << 32 | (unsigned)(here ? p : a->rank) << 16 |
                            ((unsigned)(here ? a->rank : p) + 1));
        return leave(&k->r, symmMismatch, p, SYMM_STAGE_COUNTS);
    }
    return 0;
}

/* Chunk i of a part. */
static uint64_t chunk_bytes(const parts *k, const symm_extent *part, uint64_t i) {
    const uint64_t at = i * k->each;
    return at >= part->bytes ? 0 : part->bytes - at < k->each ? part->bytes - at : k->each;
}

static void take_chunk(const parts *k, uint64_t i, char *const *chunk) {
    const symm_args *a = k->r.a;
    const symm_extent *own = &k->from[a->rank];
    if (k->row->flags & SYMM_COLL_REDUCES) {
        if (chunk_bytes(k, own, i))
            symm_reduce_isa("base")->reduce[a->type][a->op](
                (char *)a->dst + own->at + i * k->each, (const void *const *)chunk, a->nranks,
                chunk_bytes(k, own, i) / a->esize, k->scalars);
        return;
    }
    for (int p = 0; p < a->nranks; p++)
        if (chunk_bytes(k, &k->from[p], i))
            memmove((char *)a->dst + k->from[p].at + i * k->each, chunk[p],
                    chunk_bytes(k, &k->from[p], i));
}

static void move_parts(const symm_args *a, const symm_extents *e, symmColl_t coll) {
    parts k = {.r.a = a, .row = &symm_colls[coll], .to = e->part, .from = e->part + a->nranks};
    char *chunk[SYMM_MAX_RANKS];
    k.each = CHUNK / (unsigned)a->nranks & ~63ull;
    if (open_run(&k.r, k.scalars) || compare_counts(&k)) return;
    for (uint64_t i = 0; i < k.chunks; i++) {
        const uint64_t half = SYMM_CTL_BYTES + (i & 1) * CHUNK;
        for (int p = 0; p < a->nranks; p++) {
            char *mine = flat(a, a->rank, half + (unsigned)p * k.each);
            if (chunk_bytes(&k, &k.to[p], i))
                memcpy(mine, (const char *)a->src + k.to[p].at + i * k.each,
                       chunk_bytes(&k, &k.to[p], i));
            chunk[p] = flat(a, p, half + (unsigned)a->rank * k.each);
        }
        if (meet(&k.r, (uint32_t)(2 * i + 2))) return;
        take_chunk(&k, i, chunk);
        if (meet(&k.r, (uint32_t)(2 * i + 3))) return;
    }
    close_run(&k.r);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

/* kernel_<Id>: that collective's. */
#define SYMM_COLL(id, ...)                                                 \
    static void kernel_##id(const cu_launch_config *config, void **args) { \
        if (symm_coll_varies(&symm_colls[symmColl##id]))                   \
            move_parts(args[0], args[1], symmColl##id);                    \
        else                                                               \
            move(args[0], symmColl##id);                                   \
        ended(config, args[0]);                                            \
    }
#include "device/common/coll.def"

/* ---- sends and receives ---------------------------------------------------------------------- */

/* Every message has a head and goes through the ring of its pair, by records of its own: the real
 * kernel's are lines, which need warps. They lie behind the control block's. */
typedef struct { /* from one source to the owner */
    uint64_t received, filled;
    symm_p2p_head head[SYMM_P2P_SLOTS];
} from_source;
typedef struct { /* from the owner to one destination */
    uint64_t sent, at, taken, taken_at;
} to_rank;
typedef struct {
    to_rank out[SYMM_MAX_RANKS];
    from_source in[SYMM_MAX_RANKS];
} pairs;
SYMM_STATIC_ASSERT(sizeof(symm_gpu_ctl) + sizeof(pairs) <= SYMM_CTL_BYTES, "they fit there");

static pairs *pairs_of(const symm_args *a, int rank) {
    return (pairs *)(void *)(ctl_of(a, rank) + 1);
}

typedef struct {
    symm_gpu_p2p_op op;
    unsigned at;                 /* its call */
    uint64_t seq, begins, moved; /* seq 0: not begun */
    int over, left;
    uint64_t since;
} lane;

typedef struct {
    run r;
    const symm_gpu_p2p_args *args;
    lane lanes[SYMM_GPU_CHANNELS];
} messages;

static void load_op(const messages *m, lane *l) {
    l->op = m->args->listed ? m->r.ctl->p2p.list[l->at] : m->args->op[l->at];
    l->seq = l->moved = 0;
}

static int end_op(messages *m, lane *l) {
    l->over = l->op.last;
    l->at++;
    if (!l->over) load_op(m, l);
    return 1;
}

static uint64_t op_bytes(const lane *l) {
    return l->op.count << l->op.esize_log;
}

static char *in_ring(const symm_args *a, int source, int rank, uint64_t at) {
    const uint64_t ring = a->scratch.gpu.p2p_ring;
    return flat(a, rank, a->scratch.gpu.p2p_off + (unsigned)source * ring + (at & (ring - 1)));
}

/* Bytes of the message that can be moved now. */
static uint64_t ring_step(const messages *m, const lane *l, uint64_t there) {
    const uint64_t ring = m->r.a->scratch.gpu.p2p_ring, left = op_bytes(l) - l->moved,
                   end = ring - ((l->begins + l->moved) & (ring - 1)),
                   most = left < end ? left : end;
    return there < most ? there : most;
}

static int send_some(messages *m, lane *l) {
    const symm_args *a = m->r.a;
    to_rank *out = &pairs_of(a, a->rank)->out[l->op.peer];
    from_source *in = &pairs_of(a, l->op.peer)->in[a->rank];
    if (!l->seq) {
        if (out->sent + 1 > SYMM_P2P_SLOTS + take(&out->taken)) return 0;
        symm_p2p_head *head = &in->head[(l->seq = ++out->sent) % SYMM_P2P_SLOTS];
        l->begins = out->at;
        out->at += op_bytes(l);
        head->count = l->op.count, head->type = l->op.type, head->at = l->begins;
        give(&head->seq, l->seq);
        return op_bytes(l) ? 1 : end_op(m, l);
    }
    const uint64_t at = l->begins + l->moved,
                   part = ring_step(m, l, take(&out->taken_at) + a->scratch.gpu.p2p_ring - at);
    if (!part) return 0;
    memcpy(in_ring(a, a->rank, l->op.peer, at), (char *)(uintptr_t)l->op.buff + l->moved, part);
    l->moved += part;
    give(&in->filled, at + part);
    return l->moved < op_bytes(l) ? 1 : end_op(m, l);
}

static int differs(const messages *m, const lane *l, const symm_p2p_head *head) {
    symm_p2p_note *note = &host_of(m->r.a, m->r.a->rank)->p2p;
    note->sent_count = head->count, note->sent_type = head->type;
    note->recv_count = l->op.count, note->recv_type = l->op.type;
    give(&note->differ, (uint64_t)l->op.peer << 32 | ((unsigned)m->r.a->rank + 1));
    return -leave(&m->r, symmMismatch, l->op.peer, SYMM_STAGE_P2P);
}

/* -1: leave. */
static int receive_some(messages *m, lane *l) {
    const symm_args *a = m->r.a;
    to_rank *out = &pairs_of(a, l->op.peer)->out[a->rank];
    from_source *in = &pairs_of(a, a->rank)->in[l->op.peer];
    const uint64_t seq = in->received + 1;
    const symm_p2p_head *head = &in->head[seq % SYMM_P2P_SLOTS];
    if (take(&head->seq) != seq) return 0;
    if (head->count != l->op.count || head->type != l->op.type) return differs(m, l, head);
    l->begins = head->at;
    const uint64_t at = l->begins + l->moved, filled = take(&in->filled),
                   part = ring_step(m, l, (int64_t)(filled - at) > 0 ? filled - at : 0);
    if (!part && op_bytes(l)) return 0;
    if (part)
        memcpy((char *)(uintptr_t)l->op.buff + l->moved, in_ring(a, l->op.peer, a->rank, at), part);
    l->moved += part;
    if (part) give(&out->taken_at, at + part);
    if (l->moved < op_bytes(l)) return 1;
    in->received = seq;
    give(&out->taken, seq);
    return end_op(m, l);
}

/* As note_wait of p2p.cuh. */
static void note(const messages *m, const lane *l) {
    symm_p2p_note *n = &host_of(m->r.a, m->r.a->rank)->p2p;
    n->waits_count = l->op.count, n->waits_type = l->op.type;
    give(&n->waits, (uint64_t)(l->op.sends ? SYMM_P2P_SEND : SYMM_P2P_RECV) << 32 |
                        ((unsigned)l->op.peer + 1));
}

/* As is_alone of p2p.cuh: a message to this rank itself whose other call cannot come. */
static int alone(const messages *m, const lane *l) {
    if (l->op.peer != m->r.a->rank) return 0;
    for (unsigned i = 0; i < m->args->channels; i++)
        if (&m->lanes[i] != l && m->lanes[i].op.peer == l->op.peer) return m->lanes[i].over;
    return 1;
}

/* 1: all have ended; -1: leave. */
static int round_of(messages *m) {
    int moved = 0, open = 0;
    for (unsigned i = 0; i < m->args->channels; i++) {
        lane *l = &m->lanes[i];
        if (l->over) continue;
        const int got = l->op.sends ? send_some(m, l) : receive_some(m, l);
        if (got < 0) return got;
        if (got) l->since = symm_now_ns(), l->left = 0;
        moved |= got;
        open |= !l->over;
    }
    if (!open) return 1;
    for (unsigned i = 0; !moved && i < m->args->channels; i++)
        if (!m->lanes[i].over && alone(m, &m->lanes[i]))
            return -leave(&m->r, symmInvalidUsage, m->r.a->rank, SYMM_STAGE_P2P);
    for (unsigned i = 0; !moved && i < m->args->channels; i++)
        if (!m->lanes[i].over) note(m, &m->lanes[i]);
    for (unsigned i = 0; !moved && i < m->args->channels; i++)
        if (!m->lanes[i].over &&
            again(&m->r, m->lanes[i].op.peer, SYMM_STAGE_P2P, m->lanes[i].since, &m->lanes[i].left))
            return -1;
    return 0;
}

static void kernel_messages(const cu_launch_config *config, void **args) {
    messages *m = calloc(1, sizeof *m);
    T_CHECK(m != NULL);
    m->args = args[0];
    m->r = (run){.a = args[0], .ctl = ctl_of(args[0], ((const symm_args *)args[0])->rank)};
    for (unsigned i = 0; i < m->args->channels; i++) {
        m->lanes[i].at = m->args->first[i];
        m->lanes[i].since = symm_now_ns();
        load_op(m, &m->lanes[i]);
    }
    int end = own_abort(m->r.a) ? -1 : 0;
    while (!end) end = round_of(m);
    if (end > 0) give(&host_of(m->r.a, m->r.a->rank)->p2p.waits, 0);
    free(m);
    ended(config, args[0]);
}

static void kernel_message_list(const cu_launch_config *config, void **args) {
    const symm_gpu_p2p_args *a = args[0];
    (void)config;
    memcpy(&ctl_of(&a->a, a->a.rank)->p2p.list[a->first[0]], a->op, a->ops * sizeof a->op[0]);
}

/* Partial results of domains become one; the type is in the kernel's name. */
static void kernel_join(const cu_launch_config *config, void **args) {
    const symm_gpu_join *j = args[0];
    const void *from[SYMM_MAX_RANKS];
    const char *name = fake_cuda_running() + strlen("symm_join_");
    int t = 0;
    (void)config;
    while (strncmp(name, symm_kernel_images[t].type, strcspn(name, "_")) != 0) t++;
    for (int d = 0; d < j->domains; d++)
        from[d] =
            (const void *)(uintptr_t)(d == j->domain
                                          ? j->dst
                                          : j->others + (uint64_t)(d - (d > j->domain)) * j->step);
    void *dst = (void *)(uintptr_t)j->dst;
    symm_reduce_isa("base")->reduce[t][j->op](dst, from, j->domains, j->count,
                                              (const uint64_t *)(uintptr_t)j->scalars);
    if (j->divides) symm_reduce_isa("base")->divide[t](dst, j->count, j->divides);
}

/* ---------------------------------------------------------------------------------------------- */

static char names[NAMES][64];
static int named;

static void add(const symm_kernel_row *row, const char *type, int variant) {
    static const fake_cuda_fn bodies[] = {
#define SYMM_COLL(id, ...) kernel_##id,
#include "device/common/coll.def"
    };
    const size_t sizes[] = {sizeof(symm_args), sizeof(symm_extents)};
    T_CHECK(named < NAMES);
    snprintf(names[named], sizeof names[named], "symm_%s%s%s_n%d", row->name, *type ? "_" : "",
             type, variant);
    fake_cuda_kernel(names[named++], bodies[row->coll],
                     symm_coll_varies(&symm_colls[row->coll]) ? 2 : 1, sizes);
}

void fake_kernels_install(int devices, int fabric) {
    static const int variants[] = {0, 1, 2, 4, 8};
    fake_cuda_config config = fake_cuda_defaults();
    config.devices = devices;
    config.bytes = 2ull << 30;
    config.queued = 1;
    config.fabric_attr = fabric;
    if (fabric) config.fabric_code = 0;
    fake_cuda_install(&config);
    named = 0;
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        const symm_kernel_row *row = &symm_kernels[k];
        if (!(row->flags & SYMM_K_GPU)) continue;
        for (int v = 0; v < (row->flags & SYMM_K_ONE_IMAGE ? 1 : 5); v++)
            for (int t = 0; t < (row->flags & SYMM_K_TYPED ? symmNumTypes : 1); t++)
                add(row, row->flags & SYMM_K_TYPED ? symm_kernel_images[t].type : "", variants[v]);
    }
    const size_t join = sizeof(symm_gpu_join);
    for (int t = 0; t < symmNumTypes; t++) {
        T_CHECK(named < NAMES);
        snprintf(names[named], sizeof names[named], "symm_join_%s_n0", symm_kernel_images[t].type);
        fake_cuda_kernel(names[named++], kernel_join, 1, &join);
    }
    const size_t size = sizeof(symm_gpu_p2p_args);
    fake_cuda_kernel("symm_p2p_n0", kernel_messages, 1, &size);
    fake_cuda_kernel("symm_p2p_list_n0", kernel_message_list, 1, &size);
    const size_t copies = sizeof(symm_args);
    fake_cuda_kernel("symm_copies_n0", kernel_copies, 1, &copies);
    const size_t onesided = sizeof(symm_gpu_onesided_args);
    fake_cuda_kernel("symm_onesided_n0", fake_onesided, 1, &onesided);
}
