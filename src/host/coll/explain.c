/* explain.c - what would run and what did: symmExplain, symmStats, symmCommDump. The communicator's
 * user thread (symmStats and symmCommDump: any thread, they only read). No lock of its own. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/handle.h"
#include "base/log.h"
#include "base/sized.h"
#include "base/stats.h"
#include "base/text.h"
#include "host/comm/call_log.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "host/window/multicast.h"
#include "host/window/window.h"
#include "machine/peer_memory.h"
#include "coll.h"
#include "counts.h"

/* Host backend: why peers do not take such a buffer from where it is. */
static void why_refused(const symm_comm *c, char *text, size_t cap) {
    const symm_reach *k = &c->calls.reads;
    const size_t at = strlen(text);
    if (c->cuda || k->all || at >= cap || strstr(text, "cannot reach")) return;
    if (k->err == ECANCELED)
        snprintf(text + at, cap - at, "SYMM_DIRECT is 0 on rank %d; ", k->from);
    else
        snprintf(text + at, cap - at, "rank %d cannot reach the memory of rank %d (%s); ", k->from,
                 k->to, symm_peer_why(k->err));
}

/* Who moves what is in no window. */
static void explain_ends(const symm_launch *l, char *text, size_t cap) {
    const symm_reach *k = &l->comm->calls.writes;
    const size_t at = strlen(text);
    if (at >= cap || (l->out ? l->dst_win : l->src_win)) return;
    if (!symm_plan_may_write(&l->env, &l->call, &l->plan)) return;
    if (l->args.flags & SYMM_ARG_WRITES)
        snprintf(text + at, cap - at, "peers write a share of a recvbuff in no window; ");
    else if (!k->all && k->err == ECANCELED)
        snprintf(text + at, cap - at, "SYMM_DIRECT_WRITE is 0 on rank %d; ", k->from);
    else if (!k->all)
        snprintf(text + at, cap - at, "rank %d cannot write into the memory of rank %d (%s); ",
                 k->from, k->to, symm_peer_why(k->err));
}

static void why_staged(symm_comm *c, const char *name, const symm_win *w, const void *p,
                       uint64_t bytes, char *text, size_t cap) {
    const size_t at = strlen(text);
    char why[400];
    if (w || !p || at >= cap) return;
    symm_window_why(c, name, p, bytes, why, sizeof why);
    snprintf(text + at, cap - at, "%s: staged through scratch (symmWindowRegister); ", why);
    why_refused(c, text, cap);
}

/* A kernel over the multicast range: whether this rank's buffer allows it. */
static void why_unicast(const symm_comm *c, const char *name, const symm_win *w, uint64_t off,
                        uint64_t bytes, char *text, size_t cap) {
    char why[SYMM_MULTICAST_WHY] = "it is in no window";
    const size_t at = strlen(text);
    if (at >= cap || !bytes) return;
    if (w && off != SYMM_STAGED && symm_multicast_flat(c, off, bytes, why, sizeof why)) return;
    snprintf(text + at, cap - at, "%s: not over the multicast range: %s; ", name, why);
}
static void explain_multicast(const symm_launch *l, char *text, size_t cap) {
    const int needs = symm_kernels[l->plan.kernel].multicast;
    const size_t at = strlen(text);
    if (needs & SYMM_CAST_SRC)
        why_unicast(l->comm, "sendbuff", l->src_win, l->args.src_off, l->in, text, cap);
    if (needs & SYMM_CAST_DST)
        why_unicast(l->comm, "recvbuff", l->dst_win, l->args.dst_off, l->out, text, cap);
    if (needs & (SYMM_CAST_SRC | SYMM_CAST_DST) && at == strlen(text) && at < cap)
        snprintf(text + at, cap - at,
                 "over the multicast range if all ranks' buffers have the same offset, "
                 "a multiple of 16; ");
}

/* SYMM_MULTICAST=1 asked for a range, and there is none: of collectives with a kernel there. */
static void explain_no_range(const symm_launch *l, char *text, size_t cap) {
    const char *why = symm_multicast_why(l->comm);
    const size_t at = strlen(text);
    int has = 0;
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++)
        has |= symm_kernels[k].coll == l->call.coll && symm_kernels[k].multicast;
    if (has && *why && l->comm->params.multicast && at < cap)
        snprintf(text + at, cap - at, "no multicast range: %s; ", why);
}

static int is_astray(const symm_launch *l) {
    return __atomic_load_n(&l->comm->ctl->astray, __ATOMIC_RELAXED) != 0;
}
static void explain_copies(const symm_launch *l, char *text, size_t cap) {
    const int ends = symm_kernels[l->plan.kernel].copies;
    const size_t at = strlen(text);
    if (!ends || at >= cap || !l->call.count) return;
    const char *how = !l->from ? "copy engines need all ranks' sources at one place of a window "
                                 "that is long enough on each, and results in memory of a GPU: %s "
                                 "moves it; "
                      : is_astray(l)
                          ? "copy engines: not behind a call whose sources were not at the same "
                            "place on all ranks: %s moves it; "
                          : "copy engines move it if the sources of all ranks are at the same "
                            "place of one window, else %s does; ";
    snprintf(text + at, cap - at, how, symm_kernels[ends].name);
}

/* With a count per rank: that of all ranks. */
static symmResult_t all_equal(const symm_comm *c, symm_coll *k, symm_extent *extents) {
    size_t counts[SYMM_MAX_RANKS];
    const symm_side side = {.counts = counts, .name = "count"};
    for (int p = 0; p < c->nranks; p++) counts[p] = k->count;
    k->extents = extents;
    return symm_counts_read(k, &(symm_counts){side, side}, c->rank, c->nranks, extents);
}

/* Whether this rank's source goes through scratch. */
static int stages_source(const symm_launch *l, const symm_kernel_row *row) {
    const int straight = row->stages_src == SYMM_STAGES_SOME && l->comm->cuda &&
                         !l->plan.line_warps && l->args.dst_off != SYMM_STAGED;
    return row->stages_src && !straight && l->in && l->args.src_off == SYMM_STAGED;
}

static symmResult_t explain(symm_comm *c, symm_coll *k, symmExplain_t *plan) {
    symm_launch l;
    symm_extent extents[SYMM_EXTENTS];
    if (symm_coll_varies(&symm_colls[k->coll])) SYMM_TRY(all_equal(c, k, extents));
    SYMM_TRY(symm_coll_prepare(c, k, &l));
    symmExplain_t p = {.size = plan->size,
                       .ctas = l.plan.ctas,
                       .chunkBytes = c->cuda ? symm_plan_gpu_chunk(&l.plan) : l.plan.chunk};
    const symm_kernel_row *own = &symm_kernels[l.plan.kernel],
                          *row = own->copies && (!l.from || is_astray(&l))
                                     ? &symm_kernels[own->copies]
                                     : own;
    snprintf(p.kernel, sizeof p.kernel, "%s", row->name);
    p.zeroCopySend = !stages_source(&l, row);
    p.zeroCopyRecv = !row->stages_dst || !l.out || l.args.dst_off != SYMM_STAGED;
    /* What the caller can change comes first. */
    if (l.call.swapped)
        snprintf(p.reason, sizeof p.reason, "in place: each part goes through scratch; ");
    if (!p.zeroCopySend)
        why_staged(c, "sendbuff", l.src_win, k->src, l.in, p.reason, sizeof p.reason);
    if (!p.zeroCopyRecv)
        why_staged(c, "recvbuff", l.dst_win, k->dst, l.out, p.reason, sizeof p.reason);
    if (l.args.flags & SYMM_ARG_EITHER && ((l.in && !l.src_win) || (l.out && !l.dst_win))) {
        const size_t end = strlen(p.reason);
        snprintf(p.reason + end, sizeof p.reason - end,
                 "what is in no window is read where it is, "
                 "or goes through scratch, as ranks find faster (SYMM_DIRECT); ");
    }
    explain_copies(&l, p.reason, sizeof p.reason);
    explain_ends(&l, p.reason, sizeof p.reason);
    explain_multicast(&l, p.reason, sizeof p.reason);
    explain_no_range(&l, p.reason, sizeof p.reason);
    const size_t at = strlen(p.reason);
    symm_plan_reason(&l.env, &l.call, &l.plan, p.reason + at, sizeof p.reason - at);
    symm_sized_answer(plan, &p, sizeof p);
    return symmSuccess;
}

symmResult_t symmExplain(symmComm_t comm, symmColl_t coll, const void *sendbuff,
                         const void *recvbuff, size_t count, symmDataType_t datatype,
                         symmRedOp_t op, int root, symmExplain_t *plan) {
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_COLL, &c));
    symmResult_t r;
    if ((unsigned)coll >= symmNumColls) {
        r = SYMM_ERR(symmInvalidArgument, "coll=%d: must be 0 to %d", (int)coll, symmNumColls - 1);
    } else if (!symm_sized_holds(plan, sizeof *plan)) {
        r = SYMM_ERR(symmInvalidArgument, "plan is %s", plan ? SYMM_NO_SIZE : "NULL");
    } else {
        const symm_coll_row *row = &symm_colls[coll];
        symm_coll k = {.coll = coll,
                       .root = row->flags & SYMM_COLL_ROOT ? root : 0,
                       .src = sendbuff,
                       .dst = (void *)(uintptr_t)recvbuff,
                       .count = symm_coll_moves(row) ? count : 0,
                       .type = (uint32_t)datatype,
                       .op = op};
        r = explain(c, &k, plan);
    }
    symm_comm_leave(c);
    return r;
}

/* ---- text that grows ------------------------------------------------------------------------- */

typedef struct {
    char *buf;
    size_t cap, len;
} writer;

static void put(writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(writer *w, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    size_t room = w->len < w->cap ? w->cap - w->len : 0;
    int n = vsnprintf(room ? w->buf + w->len : NULL, room, fmt, ap);
    va_end(ap);
    if (n > 0) w->len += (size_t)n;
}

static void put_name(writer *w, const char *name) {
    char piece[SYMM_TEXT_JSON];
    while (*name) {
        name += symm_text_json(name, piece);
        put(w, "%s", piece);
    }
}

static void put_launches(writer *w, symm_comm *c) {
    put(w, ",\"kernels\":{");
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++)
        put(w, "%s\"%s\":%llu", k ? "," : "", symm_kernels[k].name,
            (unsigned long long)atomic_load(&c->calls.launches[k]));
    put(w, "}");
}

static void put_messages(writer *w, symm_comm *c) {
    symm_message_counts *m = &c->calls.messages;
    const struct {
        const char *name;
        _Atomic uint64_t *at;
    } all[] = {{"kernels", &m->kernels},
               {"sends", &m->sends},
               {"receives", &m->receives},
               {"sent_bytes", &m->sent_bytes},
               {"received_bytes", &m->received_bytes}};
    put(w, ",\"send_receive\":{");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        put(w, "%s\"%s\":%llu", i ? "," : "", all[i].name,
            (unsigned long long)atomic_load_explicit(all[i].at, memory_order_relaxed));
    put(w, "}");
}

static uint64_t unused_signals(const symm_comm *c) {
    uint64_t n = 0;
    for (int p = 0; p < c->nranks; p++) n += symm_onesided_unused(c, p);
    return n;
}

static void put_onesided(writer *w, symm_comm *c) {
    symm_onesided_counts *o = &c->calls.onesided;
    const struct {
        const char *name;
        _Atomic uint64_t *at;
    } all[] = {{"puts", &o->puts},           {"gets", &o->gets},       {"put_bytes", &o->put_bytes},
               {"got_bytes", &o->got_bytes}, {"signals", &o->signals}, {"waits", &o->waits}};
    put(w, ",\"one_sided\":{");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        put(w, "\"%s\":%llu,", all[i].name,
            (unsigned long long)atomic_load_explicit(all[i].at, memory_order_relaxed));
    put(w, "\"signals_unused\":%llu}", (unsigned long long)unused_signals(c));
}

symmResult_t symmStats(symmComm_t comm, char *json, size_t cap, size_t *needed) {
    writer w = {json, cap, 0};
    symm_comm *c = NULL;
    if (!json && cap) return SYMM_ERR(symmInvalidArgument, "json is NULL but cap=%zu", cap);
    if (comm) SYMM_TRY(symm_comm_visit(comm, &c));
    put(&w, "{");
    size_t room = w.len < cap ? cap - w.len : 0;
    w.len += symm_stats_json(room ? json + w.len : NULL, room);
    if (c) {
        put(&w, ",\"comm\":\"");
        put_name(&w, c->name);
        put(&w, "\",\"rank\":%d,\"nranks\":%d", c->rank, c->nranks);
        put_launches(&w, c);
        put_messages(&w, c);
        put_onesided(&w, c);
        symm_comm_unvisit(c);
    }
    put(&w, "}");
    if (needed) *needed = w.len + 1;
    return symmSuccess;
}

/* ---- dump ------------------------------------------------------------------------------------ */

/* A rank's control block in the memory of its GPU. */
static const symm_gpu_ctl *gpu_ctl(const symm_comm *c, int rank) {
    return (const symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)rank * c->stride);
}

/* What this rank's inbox says of r. On GPUs the words are copied from device memory. */
static void dump_words(writer *w, symm_comm *c, int r) {
    const char *text = "; its words here: ";
    if (c->cuda) {
        symm_gpu_inbox box;
        if (!c->vmm->copy(&box, &gpu_ctl(c, c->rank)->inbox[r], sizeof box))
            put(w, "%ssignatures %llx %llx", text, (unsigned long long)box.sig[0],
                (unsigned long long)box.sig[1]);
        return;
    }
    const symm_inbox *box = &c->ctl->inbox[0][r];
    put(w, "%sready %llx, arrive %llx, signatures %llx %llx", text,
        (unsigned long long)__atomic_load_n(&box->ready, __ATOMIC_RELAXED),
        (unsigned long long)__atomic_load_n(&box->arrive, __ATOMIC_RELAXED),
        (unsigned long long)__atomic_load_n(&box->sig[0], __ATOMIC_RELAXED),
        (unsigned long long)__atomic_load_n(&box->sig[1], __ATOMIC_RELAXED));
}

/* Collectives that a rank has finished. */
static uint32_t dump_epoch(symm_comm *c, int r) {
    uint32_t epoch = 0;
    const symm_ctl *ctl = symm_comm_ctl(c, r);
    if (!c->cuda)
        return __atomic_load_n(&ctl->epoch[0], __ATOMIC_RELAXED) +
               __atomic_load_n(&ctl->ahead.calls, __ATOMIC_RELAXED);
    c->vmm->copy(&epoch, &gpu_ctl(c, r)->epoch[0], sizeof epoch);
    return epoch;
}

static void dump_peers(writer *w, symm_comm *c) {
    static const char *const states[] = {"not there yet", "alive", "left"};
    char does[200], awaits[200];
    uint32_t epochs[SYMM_MAX_RANKS];
    symm_ranks gone;
    symm_comm_gone(c, &gone);
    for (int r = 0; r < c->nranks; r++) epochs[r] = dump_epoch(c, r);
    for (int r = 0; r < c->nranks; r++) {
        const symm_ctl *ctl = symm_comm_ctl(c, r);
        uint32_t state = __atomic_load_n(&ctl->state, __ATOMIC_RELAXED);
        const int dead = symm_ranks_has(&gone, r) && state != SYMM_STATE_LEFT;
        put(w, "  rank %d%s: %s, collectives finished %u, abort word %llx", r,
            r == c->rank ? " (this)" : "",
            dead        ? "DEAD"
            : state < 3 ? states[state]
                        : "?",
            epochs[r], (unsigned long long)__atomic_load_n(&ctl->abort, __ATOMIC_RELAXED));
        if (r != c->rank) dump_words(w, c, r);
        put(w, "; has issued %s%s", symm_call_log_text(c, r, does, sizeof does),
            dead ? "" : symm_call_log_awaits(c, r, epochs, awaits, sizeof awaits));
        put(w, "%s", dead ? "" : symm_message_awaited(c, r, awaits, sizeof awaits));
        const uint64_t unused = symm_onesided_unused(c, r);
        if (unused)
            put(w, "; has raised %llu signals here that nothing has used up",
                (unsigned long long)unused);
        put(w, "\n");
    }
}

/* A communicator that is being made, or whose creation failed: it has no control block to read. */
static void dump_unmade(writer *w, symm_comm *c) {
    const char *at = symm_comm_step(c);
    const int making = symm_comm_state(c) == SYMM_COMM_MAKING;
    put(w, "communicator %s\n  state: %s%s%s\n", c->name,
        making ? "being created" : "could not be created", at ? ": " : "", at ? at : "");
    if (symm_comm_async(c)) put(w, "  error: %s\n", symm_status_text());
}

static void dump(writer *w, symm_comm *c) {
    put(w,
        "communicator %s: rank %d of %d, %s, bootstrap %s, base %llx, stride %llx, scratch %llu\n",
        c->name, c->rank, c->nranks, c->threads ? "thread ranks" : "processes",
        c->bootstrap ? c->bootstrap : "-", (unsigned long long)c->base,
        (unsigned long long)c->stride, (unsigned long long)c->params.scratch);
    symmResult_t async = symm_comm_code(c);
    put(w, "  state: %s%s\n", async ? symmGetErrorString(async) : "live",
        symm_comm_is_parent(c) ? "; another one is being made from it" : "");
    if (async && symm_comm_async(c)) put(w, "  error: %s\n", symm_status_text());
    dump_peers(w, c);
    put(w, "  windows: %d\n", symm_window_count(c));
}

static symmResult_t write_all(int fd, const char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        ssize_t k = SYMM_FAIL_CALL(dump_write, -1, EIO, write(fd, text + at, n - at));
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return SYMM_ERR(symmSystemError, "writing the dump to fd %d: %m", fd);
        at += (size_t)k;
    }
    return symmSuccess;
}

static symmResult_t dump_all(writer *w, symm_comm *c) {
    if (symm_comm_state(c) != SYMM_COMM_LIVE || !__atomic_load_n(&c->ctl, __ATOMIC_ACQUIRE)) {
        dump_unmade(w, c); /* the pointer pairs with the release in comm_make.c */
        return symmSuccess;
    }
    symm_cuda_scope scope;
    SYMM_TRY(symm_gpu_push(c, &scope));
    dump(w, c);
    symm_gpu_pop(c, &scope);
    return symmSuccess;
}

/* The epoch words are read without order while kernels run, so they need not fit together. */
symmResult_t symmCommDump(symmComm_t comm, int fd) {
    char text[32768];
    writer w = {text, sizeof text, 0};
    symm_comm *c;
    SYMM_TRY(symm_comm_visit(comm, &c));
    symmResult_t r = dump_all(&w, c);
    symm_comm_unvisit(c); /* before the write, which may take as long as a reader likes */
    return r ? r : write_all(fd, text, w.len < sizeof text ? w.len : sizeof text - 1);
}
