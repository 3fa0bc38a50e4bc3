/* across_gpu.c - see across_gpu.h: making it, and its calls. No lock of its own. */
#include "across_gpu_record.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/wait.h"
#include "host/comm/comm.h"

/* ---- making ---------------------------------------------------------------------------------- */

/* The most that any call stages: see where symm_across_stage is called. */
static size_t stage_room(const symm_domains *d, size_t chunk) {
    const size_t line = 128, domains = (size_t)d->ndomains, ranks = (size_t)d->nranks;
    size_t slots = domains - 1;
    for (int q = 0; q < d->nranks; q++)
        slots += d->domain_of[q] != d->domain && symm_domain_stand_in(d, q) == d->place;
    const size_t rails = domains * (chunk / (size_t)d->least + line),
                 columns = slots * (chunk / ranks + line), parts = ranks * line;
    size_t most = rails > columns ? rails : columns;
    if (most < chunk) most = chunk; /* alltoall in place */
    return most > parts ? most : parts;
}

static symmResult_t allocate(symm_across_gpu *g, symm_across *s) {
    const size_t slots = 2 * (size_t)s->map.nranks, line = 128;
    cu_deviceptr at = 0;
    cu_result cu = 0;
    g->room = (stage_room(&s->map, s->chunk) + line - 1) / line * line;
    g->slot = s->chunk / slots / line * line + line;
    for (int i = 0; i < 1 + SYMM_CAPTURES && !cu; i++) cu = symm_mark_make(&s->order.last[i].end);
    if (!cu) cu = symm_cu.cuMemAlloc(&at, g->room + slots * g->slot);
    g->stage = (char *)(uintptr_t)at;
    g->bounce = g->stage + g->room;
    return symm_cuda_error(cu, "%zu bytes to stage calls over %d domains",
                           g->room + slots * g->slot, s->map.ndomains);
}

symmResult_t symm_across_gpu_prepare(symm_across *s) {
    symm_comm *c;
    symm_cuda_scope scope;
    const size_t bytes = sizeof(symm_across_gpu) + 2 * (size_t)s->map.nranks;
    symm_across_gpu *g = SYMM_FAIL_ALLOC(across_gpu_alloc, calloc(1, bytes));
    if (!g) return SYMM_ERR(symmOutOfMemory, "no memory for GPUs of several domains");
    s->gpu = g;
    SYMM_TRY(symm_comm_visit(s->outer.inner, &c));
    g->context = c->gpu->context;
    symmResult_t r = symm_nccl_find(c->params.nccl_lib, &g->nccl);
    if (!r) r = symm_gpu_push(c, &scope);
    if (!r) {
        r = symm_gpu_find_joins(c);
        if (!r) r = allocate(g, s);
        symm_gpu_pop(c, &scope);
    }
    symm_comm_unvisit(c);
    return r;
}

symmResult_t symm_across_gpu_version(const symm_across *s, int *version) {
    const symm_nccl *n = s->gpu->nccl;
    return symm_nccl_error(n, n->ncclGetVersion(version), "ncclGetVersion");
}

int symm_across_gpu_registers(const symm_across *s) {
    return s->gpu->nccl->registers;
}

void symm_across_gpu_set_direct(symm_across *s) {
    s->gpu->direct = 1;
}

symmResult_t symm_across_gpu_id(const symm_across *s, nccl_id *id) {
    const symm_nccl *n = s->gpu->nccl;
    return symm_nccl_error(n, n->ncclGetUniqueId(id), "ncclGetUniqueId");
}

/* ---- waiting for NCCL ------------------------------------------------------------------------ */

/* Of NCCL, which does not block: `code` of a call, until the host's part has ended. Others may say
 * meanwhile that the communicator is over. */
static symmResult_t await(symm_across *s, nccl_result code, const char *call, uint64_t until) {
    const symm_across_gpu *g = s->gpu;
    while (code == NCCL_IN_PROGRESS) {
        if (symm_now_ns() > until)
            return SYMM_ERR(symmTimeout,
                            "communicator %s: %s has not ended within %lld ms (SYMM_SETUP_TIMEOUT)",
                            s->outer.name, call, (long long)s->setup_ms);
        SYMM_TRY(symm_across_look(s, 1));
        usleep(SYMM_ACROSS_GPU_NAP_US);
        const nccl_result asked = g->nccl->ncclCommGetAsyncError(g->comm, &code);
        if (asked) code = asked;
    }
    return symm_nccl_error(g->nccl, code, call);
}

static symmResult_t await_stream(symm_across *s, cu_stream stream, uint64_t until) {
    cu_result cu;
    while ((cu = symm_cu.cuStreamQuery(stream)) == SYMM_CUDA_ERROR_NOT_READY) {
        if (symm_now_ns() > until)
            return SYMM_ERR(symmTimeout,
                            "communicator %s: the first messages of NCCL have not come within "
                            "%lld ms (SYMM_SETUP_TIMEOUT)",
                            s->outer.name, (long long)s->setup_ms);
        SYMM_TRY(symm_across_look(s, 1));
        usleep(SYMM_ACROSS_GPU_NAP_US);
    }
    return symm_cuda_error(cu, "the first messages of NCCL");
}

/* For NCCL to connect ranks: what is left of creation, or as long again in a call. */
static uint64_t setup_deadline(const symm_across *s) {
    return s->gpu->until ? s->gpu->until : symm_now_ns() + (uint64_t)s->setup_ms * 1000000u;
}

/* The messages of a small all_reduce. NCCL connects ranks at their first ones: so what is wrong
 * shows here, and calls of large sums connect nobody. */
static symmResult_t greet(symm_across *s) {
    const symm_domains *d = &s->map;
    for (int e = 0; e < d->ndomains; e++)
        if (e != d->domain)
            SYMM_TRY(symm_across_gpu_message(s, symm_domain_partner(d, e), 0,
                                             s->gpu->stage + 4 * (unsigned)(e + 1), 4));
    for (int q = 0; q < d->nranks; q++)
        if (d->domain_of[q] != d->domain && symm_domain_stand_in(d, q) == d->place)
            SYMM_TRY(symm_across_gpu_message(s, q, 1, s->gpu->stage, 4));
    return symm_across_gpu_finish(s);
}

static symmResult_t connect(symm_across *s, const nccl_id *id) {
    symm_across_gpu *g = s->gpu;
    cu_stream stream = NULL;
    nccl_config config = NCCL_CONFIG;
    const char *call = "ncclCommInitRankConfig";
    const nccl_result code =
        g->nccl->ncclCommInitRankConfig(&g->comm, s->map.nranks, *id, s->map.rank, &config);
    SYMM_TRY(await(s, code, call, g->until));
    cu_result cu = symm_cu.cuStreamCreate(&stream, SYMM_CUDA_STREAM_NON_BLOCKING);
    if (cu) return symm_cuda_error(cu, "a stream");
    g->stream = (symmStream_t)(void *)stream;
    symmResult_t r = greet(s);
    if (!r) r = await_stream(s, stream, g->until);
    if (r) r = symm_across_fail(s, r); /* before the stream ends: a kernel in it may wait */
    symm_cu.cuStreamDestroy(stream);
    return r;
}

symmResult_t symm_across_gpu_connect(symm_across *s, const nccl_id *id, uint64_t deadline_ns) {
    symm_cuda_scope scope;
    SYMM_ASSERT(!s->gpu->comm);
    SYMM_TRY(symm_cuda_push_context(s->gpu->context, &scope));
    s->gpu->until = deadline_ns;
    const symmResult_t r = connect(s, id);
    s->gpu->until = 0;
    symm_cuda_pop(&scope);
    return r ? symm_across_fail(s, r) : symmSuccess;
}

/* ---- before a call --------------------------------------------------------------------------- */

symmResult_t symm_across_gpu_check(const symm_across *s, const char *call, symmStream_t stream) {
    symm_comm *c;
    symm_cuda_scope scope;
    symm_gpu_capture in;
    if (symm_gpu_is_per_thread(stream))
        return SYMM_ERR(symmNotSupported,
                        "%s: over several domains stream must not be the per-thread stream: NCCL "
                        "launches from a thread of its own",
                        call);
    SYMM_TRY(symm_comm_visit(s->outer.inner, &c));
    symmResult_t r = symm_gpu_enter(c, &scope);
    if (!r) {
        r = symm_gpu_look(c, stream, &in);
        if (!r) r = symm_gpu_check_alone(c, stream);
        symm_gpu_leave(&scope);
    }
    symm_comm_unvisit(c);
    return r;
}

symmResult_t symm_across_gpu_reaches(const symm_across *s, const void *src, const void *dst) {
    symm_comm *c;
    symm_cuda_scope scope;
    SYMM_TRY(symm_comm_visit(s->outer.inner, &c));
    symmResult_t r = symm_gpu_enter(c, &scope);
    if (!r) {
        if (src) r = symm_gpu_check_buffer(c, "sendbuff", src);
        if (!r && dst) r = symm_gpu_check_buffer(c, "recvbuff", dst);
        symm_gpu_leave(&scope);
    }
    symm_comm_unvisit(c);
    return r;
}

symmResult_t symm_across_gpu_look(const symm_across *s) {
    const symm_across_gpu *g = s->gpu;
    nccl_result error = 0;
    if (!g->comm) return SYMM_ERR(symmAborted, "communicator %s is over", s->outer.name);
    SYMM_TRY(symm_nccl_error(g->nccl, g->nccl->ncclCommGetAsyncError(g->comm, &error),
                             "ncclCommGetAsyncError"));
    return error == NCCL_IN_PROGRESS ? symmSuccess
                                     : symm_nccl_error(g->nccl, error, "a message of NCCL");
}

/* ---- order ----------------------------------------------------------------------------------- */

static symm_across_last *last_of(symm_across *s) {
    return symm_across_last_of(&s->order, s->gpu->in.graph ? s->gpu->in.id : 0);
}

static symmResult_t follow(symm_across *s) {
    const symm_across_gpu *g = s->gpu;
    const symm_across_last *l = last_of(s);
    if (!l->any || l->capture != g->in.id) return symmSuccess;
    if (l->stream == g->stream) return symmSuccess;
    return symm_gpu_order_error(symm_mark_await(&l->end, g->stream), g->stream);
}

static symmResult_t mark(symm_across *s) {
    const symm_across_gpu *g = s->gpu;
    symm_across_last *l = last_of(s);
    SYMM_ASSERT(l->end.event);
    const cu_result cu = symm_mark_record(&l->end, g->stream);
    symm_across_given(&s->order, l, g->stream, g->in.id);
    return symm_gpu_order_error(cu, g->stream);
}

/* *begun: the call may have given something to the stream. */
static symmResult_t run(symm_across *s, symmResult_t (*fn)(void *arg), void *arg, int *begun) {
    symm_across_gpu *g = s->gpu;
    *begun = 0;
    SYMM_ASSERT(g->comm && g->stage);
    SYMM_TRY(symm_gpu_look(g->c, g->stream, &g->in));
    SYMM_TRY(follow(s));
    *begun = 1;
    g->n = 0;
    SYMM_TRY(fn(arg));
    SYMM_ASSERT(g->n == 0);
    return mark(s);
}

symmResult_t symm_across_gpu_run(symm_across *s, symmStream_t stream, symmResult_t (*fn)(void *arg),
                                 void *arg) {
    symm_across_gpu *g = s->gpu;
    symm_cuda_scope scope;
    int begun = 0;
    SYMM_ASSERT(!g->c && g->n == 0);
    SYMM_TRY(symm_comm_visit(s->outer.inner, &g->c));
    g->stream = stream;
    g->given = 0;
    symmResult_t r = symm_gpu_enter(g->c, &scope);
    if (!r) {
        r = run(s, fn, arg, &begun);
        g->n = 0; /* of a call that failed half-way in a capture */
        symm_gpu_leave(&scope);
    }
    symm_comm_unvisit(g->c);
    g->c = NULL;
    /* Nothing of a captured call has run. But once NCCL's group has begun, its communicator may
     * differ from the others', and a word of theirs may have been taken, which comes only once. */
    const int fatal = begun && (!g->in.graph || g->given);
    return r && fatal ? symm_across_fail(s, r) : r;
}

/* ---- inside a call --------------------------------------------------------------------------- */

symmResult_t symm_across_gpu_message(symm_across *s, int rank, int sends, const void *at,
                                     size_t bytes) {
    symm_across_gpu *g = s->gpu;
    SYMM_ASSERT(rank >= 0 && rank < s->map.nranks && s->map.domain_of[rank] != s->map.domain);
    if (!bytes) return symmSuccess; /* both sides know */
    if (g->n == g->cap) {
        const int cap = g->cap ? 2 * g->cap : 64;
        symm_across_pending *more =
            SYMM_FAIL_ALLOC(across_gpu_pending, realloc(g->pending, (size_t)cap * sizeof *more));
        if (!more) return SYMM_ERR(symmOutOfMemory, "no memory for %d messages of a call", cap);
        g->pending = more;
        g->cap = cap;
    }
    g->pending[g->n++] =
        (symm_across_pending){.rank = rank, .sends = sends, .at = at, .bytes = bytes};
    return symmSuccess;
}

static symmResult_t give(const symm_across_gpu *g, const symm_across_pending *m, const char *at,
                         size_t n) {
    const symm_nccl *nccl = g->nccl;
    void *stream = (void *)g->stream;
    if (m->sends)
        return symm_nccl_error(nccl, nccl->ncclSend(at, n, NCCL_BYTES, m->rank, g->comm, stream),
                               "ncclSend");
    return symm_nccl_error(
        nccl, nccl->ncclRecv((void *)(uintptr_t)at, n, NCCL_BYTES, m->rank, g->comm, stream),
        "ncclRecv");
}

static char *slot_of(const symm_across *s, const symm_across_pending *m) {
    const int slot = (m->sends ? s->map.nranks : 0) + m->rank;
    SYMM_ASSERT(slot >= 0 && slot < 2 * s->map.nranks);
    return s->gpu->bounce + (size_t)slot * s->gpu->slot;
}

/* bounces: what this round moves of each message, through its slot; else all of it. */
static symmResult_t give_all(const symm_across *s, int bounces) {
    const symm_across_gpu *g = s->gpu;
    for (const symm_across_pending *m = g->pending; m < g->pending + g->n; m++)
        if (!bounces)
            SYMM_TRY(give(g, m, m->at, m->bytes));
        else if (m->now)
            SYMM_TRY(give(g, m, slot_of(s, m), m->now));
    return symmSuccess;
}

/* NCCL's group ends even if a message could not begin. */
static symmResult_t group(symm_across *s, int bounces) {
    const symm_nccl *n = s->gpu->nccl;
    s->gpu->given = 1;
    SYMM_TRY(symm_nccl_error(n, n->ncclGroupStart(), "ncclGroupStart"));
    const symmResult_t r = give_all(s, bounces);
    const nccl_result ended = n->ncclGroupEnd();
    return r ? r : await(s, ended, "ncclGroupEnd", setup_deadline(s));
}

/* The next piece of the first message of each pair of ranks, each way, that is not done. So the
 * i-th piece of a pair is in the i-th group of both. 0: all are done. */
static int draw_round(symm_across *s) {
    symm_across_gpu *g = s->gpu;
    int some = 0;
    memset(g->busy, 0, 2 * (size_t)s->map.nranks);
    for (symm_across_pending *m = g->pending; m < g->pending + g->n; m++) {
        const size_t left = m->bytes - m->moved;
        unsigned char *busy = &g->busy[(m->sends ? s->map.nranks : 0) + m->rank];
        m->now = *busy || !left ? 0 : left < g->slot ? left : g->slot;
        *busy |= left > 0;
        some |= left > 0;
    }
    return some;
}

static symmResult_t copy_round(symm_across *s, int sends) {
    for (symm_across_pending *m = s->gpu->pending; m < s->gpu->pending + s->gpu->n; m++) {
        char *user = (char *)(uintptr_t)m->at + m->moved;
        if (m->sends != sends || !m->now) continue;
        SYMM_TRY(sends ? symm_across_gpu_copy(s, slot_of(s, m), user, m->now)
                       : symm_across_gpu_copy(s, user, slot_of(s, m), m->now));
    }
    return symmSuccess;
}

/* NCCL registers the memory of captured messages by itself if its kind allows it, and hangs where
 * the other end's does not. Here both are the bounce's. */
static symmResult_t finish_captured(symm_across *s) {
    while (draw_round(s)) {
        SYMM_TRY(copy_round(s, 1));
        SYMM_TRY(group(s, 1));
        SYMM_TRY(copy_round(s, 0));
        for (symm_across_pending *m = s->gpu->pending; m < s->gpu->pending + s->gpu->n; m++)
            m->moved += m->now;
    }
    return symmSuccess;
}

symmResult_t symm_across_gpu_finish(symm_across *s) {
    symm_across_gpu *g = s->gpu;
    if (!g->n) return symmSuccess;
    const symmResult_t r = g->in.graph && !g->direct ? finish_captured(s) : group(s, 0);
    g->n = 0;
    return r;
}

symmResult_t symm_across_gpu_copy(const symm_across *s, void *to, const void *from, size_t bytes) {
    const cu_result cu = symm_cu.cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes,
                                               symm_gpu_stream(s->gpu->stream));
    return symm_cuda_error(cu, "copying %zu bytes", bytes);
}

symmResult_t symm_across_gpu_stage(const symm_across *s, size_t bytes, char **out) {
    SYMM_ASSERT(s->gpu->n == 0 && s->gpu->c); /* no message uses what the call before staged */
    *out = s->gpu->stage;
    if (bytes <= s->gpu->room) return symmSuccess;
    return SYMM_ERR(symmInternalError, "communicator %s: a call stages %zu bytes, of %zu",
                    s->outer.name, bytes, s->gpu->room);
}

static symmResult_t launch(const symm_across_call *a, symm_gpu_join *j) {
    enum { MOST = 256 };
    const symm_across_gpu *g = a->s->gpu;
    const uint64_t threads = (j->count * a->esize + 15) / 16,
                   ctas = (threads + SYMM_GPU_THREADS - 1) / SYMM_GPU_THREADS;
    void *args[] = {j};
    cu_launch_config config = {.grid_x = (unsigned)(ctas < MOST ? ctas : MOST),
                               .grid_y = 1,
                               .grid_z = 1,
                               .block_x = SYMM_GPU_THREADS,
                               .block_y = 1,
                               .block_z = 1,
                               .stream = symm_gpu_stream(g->stream)};
    SYMM_ASSERT(g->n == 0 && j->domain <= j->domains);
    if (!j->count) return symmSuccess;
    const cu_result cu = symm_cu.cuLaunchKernelEx(
        &config, (cu_function)(void *)g->c->gpu->join[a->k->type], args, NULL);
    return symm_cuda_error(cu, "launching a kernel");
}

symmResult_t symm_across_gpu_join(const symm_across_call *a, void *dst, char *const *others,
                                  size_t count) {
    const symm_domains *d = &a->s->map;
    symm_gpu_join j = {.dst = (uintptr_t)dst,
                       .others = (uintptr_t)others[0],
                       .step = d->ndomains > 2 ? (uint64_t)(others[1] - others[0]) : 0,
                       .count = count,
                       .domains = d->ndomains,
                       .domain = d->domain,
                       .op = a->joins,
                       .divides = a->divides};
    SYMM_ASSERT(d->domain < d->ndomains);
    return launch(a, &j);
}

symmResult_t symm_across_gpu_reduce(const symm_across_call *a, int op, void *dst, const char *all,
                                    size_t count, const uint64_t *scalars) {
    const int n = a->s->map.nranks;
    symm_gpu_join j = {.dst = (uintptr_t)dst,
                       .others = (uintptr_t)all,
                       .scalars = (uintptr_t)scalars,
                       .step = count * a->esize,
                       .count = count,
                       .domains = n,
                       .domain = n,
                       .op = op};
    return launch(a, &j);
}

/* By value, where it is known now: a graph runs it later. */
symmResult_t symm_across_gpu_scalar(const symm_across_call *a, uint64_t *at) {
    const cu_deviceptr to = (uintptr_t)at;
    cu_stream stream = symm_gpu_stream(a->s->gpu->stream);
    if (a->scalar_at) return symm_across_gpu_copy(a->s, at, a->scalar_at, a->esize);
    cu_result cu = symm_cu.cuMemsetD32Async(to, (unsigned)a->scalar, 1, stream);
    if (!cu) cu = symm_cu.cuMemsetD32Async(to + 4, (unsigned)(a->scalar >> 32), 1, stream);
    return symm_cuda_error(cu, "the factor of a reduction");
}
