/* messages.c - symmSend and symmRecv: check, find windows, and one list of what a group has queued.
 * They are no collectives, so they have no rows in coll.def: no two ranks need make the same calls.
 * The user's thread; no lock. Only a group allocates. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/sized.h"
#include "device/host/p2p.h"
#include "device/host/reduce.h"
#include "host/comm/comm.h"
#include "host/comm/group.h"
#include "host/comm/outer.h"
#include "host/window/window.h"
#include "coll.h"

/* ---- check ----------------------------------------------------------------------------------- */

symmResult_t symm_message_check(const symm_message *m, int nranks, uint64_t *bytes) {
    const char *call = symm_message_name(m);
    const uint64_t size = symm_type_size(m->type);
    if (!size)
        return SYMM_ERR(symmInvalidArgument, "%s: datatype=%u: must be 0 to %d", call, m->type,
                        symmNumTypes - 1);
    if (__builtin_mul_overflow(m->count, size, bytes) || *bytes >> 46)
        return SYMM_ERR(symmInvalidArgument, "%s: count=%llu elements of %llu bytes overflow", call,
                        (unsigned long long)m->count, (unsigned long long)size);
    if ((unsigned)m->peer >= (unsigned)nranks)
        return SYMM_ERR(symmInvalidArgument, "%s: peer=%d: must be 0 to %d", call, m->peer,
                        nranks - 1);
    return symm_coll_check_buffer(m->sends ? "sendbuff" : "recvbuff", m->buff, *bytes);
}

static symmResult_t check(symm_comm *c, const symm_message *m) {
    uint64_t bytes;
    SYMM_TRY(symm_message_check(m, c->nranks, &bytes));
    if (!c->cuda || !bytes || symm_window_at(c, m->buff, bytes)) return symmSuccess;
    return c->launcher->check_buffer(c, m->sends ? "sendbuff" : "recvbuff", m->buff);
}

/* What a kernel relies on: every call is in one channel, in call order. */
static void list_check(const symm_p2p_list *l) {
    int found = 0;
    SYMM_ASSERT(l->n > 0 && l->nchannels > 0 && l->nchannels <= l->n);
    for (int k = 0; k < l->nchannels; k++)
        for (int i = l->channels[k].first; i >= 0; i = l->ops[i].next, found++) {
            const symm_p2p_op *first = &l->ops[l->channels[k].first], *op = &l->ops[i];
            SYMM_ASSERT(i < l->n && (op->next < 0 || op->next > i));
            SYMM_ASSERT(op->peer == first->peer && op->sends == first->sends);
            SYMM_ASSERT(op->bytes == op->count * symm_type_size(op->type));
        }
    SYMM_ASSERT(found == l->n);
}

/* ---- a list ---------------------------------------------------------------------------------- */

/* This process reaches all of its own memory: a message to itself is never staged. Cores that are
 * far from each other need longer for a ring than the kernel for each page, so there a receiver
 * reads a large message where it is. Nobody writes there: a receiver's buffer is as if staged. */
static uint64_t offset_of(const symm_comm *c, const symm_win *w, const symm_message *m) {
    const uint64_t bytes = m->count * symm_type_size(m->type);
    if (m->peer == c->rank)
        return (uint64_t)(uintptr_t)m->buff - (c->base + (uint64_t)c->rank * c->stride);
    if (w) return symm_window_offset(w, c->rank, m->buff);
    return m->sends && c->calls.reads.all && !c->calls.near && bytes >= SYMM_P2P_DIRECT
               ? SYMM_PRIVATE | (uintptr_t)m->buff
               : SYMM_STAGED;
}

/* A message in one piece needs no window, but a graph keeps it. */
static void fill_op(symm_comm *c, const symm_message *m, symm_p2p_op *op, symm_win **win) {
    const uint64_t bytes = m->count * symm_type_size(m->type);
    const int looks = bytes && (m->stream || c->cuda || symm_p2p_is_big(&c->calls.proto, bytes));
    *win = looks ? symm_window_at(c, m->buff, bytes) : NULL;
    *op = (symm_p2p_op){.buff = m->buff,
                        .off = offset_of(c, *win, m),
                        .count = m->count,
                        .bytes = bytes,
                        .type = m->type,
                        .peer = (int16_t)m->peer,
                        .sends = (uint8_t)m->sends,
                        .next = -1};
    if (bytes > SYMM_P2P_SMALL) op->nt = (uint8_t)symm_plan_past_caches(2 * bytes, c->calls.keeps);
}

/* Calls of one direction of one pair in call order; the pairs in another order on each rank, so
 * that not all of them begin with the same peer. */
static int link_channels(const symm_comm *c, symm_p2p_op *ops, int n, symm_p2p_channel *channels) {
    int32_t first[2][SYMM_MAX_RANKS], last[2][SYMM_MAX_RANKS];
    int made = 0;
    memset(first, -1, sizeof first);
    for (int i = 0; i < n; i++) {
        const int way = ops[i].sends, peer = ops[i].peer;
        if (first[way][peer] < 0)
            first[way][peer] = i;
        else
            ops[last[way][peer]].next = i;
        last[way][peer] = i;
    }
    for (int q = 0; q < 2 * c->nranks; q++) {
        const int way = q & 1, peer = (c->rank + (way ? q / 2 : c->nranks - q / 2)) % c->nranks;
        if (first[way][peer] >= 0) channels[made++].first = first[way][peer];
    }
    return made;
}

static void count(_Atomic uint64_t *n, uint64_t more) {
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static void count_list(symm_comm *c, const symm_p2p_list *l) {
    symm_message_counts *to = &c->calls.messages;
    count(&to->kernels, 1);
    for (int i = 0; i < l->n; i++) {
        count(l->ops[i].sends ? &to->sends : &to->receives, 1);
        count(l->ops[i].sends ? &to->sent_bytes : &to->received_bytes, l->ops[i].bytes);
    }
}

static symmResult_t run_list(symm_comm *c, symm_p2p_list *l, const symmStream_t *streams,
                             int nstreams) {
    count_list(c, l);
    return c->launcher->messages(c, l, streams, nstreams);
}

static symmResult_t run_one(symm_comm *c, const symm_message *m) {
    symm_p2p_op op;
    symm_win *win;
    symm_p2p_channel channel = {.first = 0};
    fill_op(c, m, &op, &win);
    symm_p2p_list list = {&c->calls.proto, &op, &win, &channel, 1, 1, 0};
    return run_list(c, &list, &m->stream, 1);
}

int symm_message_streams(const symm_message *m, int n, symmStream_t *streams) {
    int made = 0, k;
    for (int i = 0; i < n; i++) {
        for (k = made; k > 0 && streams[k - 1] != m[i].stream; k--)
            ;
        if (!k) streams[made++] = m[i].stream;
    }
    return made;
}

/* ---- groups ---------------------------------------------------------------------------------- */

typedef struct {        /* what a group has queued, and the memory for all that its end needs */
    symm_p2p_list list; /* first: freeing it frees the batch */
    symm_message *calls;
    symmStream_t *streams;
    int n, cap;
} batch;

typedef struct {
    symmComm_t comm;
    batch *batch;
} queued;

void symm_p2p_list_ref(symm_p2p_list *list) {
    SYMM_ASSERT(atomic_load_explicit(&list->refs, memory_order_relaxed) > 0);
    atomic_fetch_add_explicit(&list->refs, 1, memory_order_relaxed);
}

void symm_p2p_list_unref(symm_p2p_list *list) {
    SYMM_ASSERT(atomic_load_explicit(&list->refs, memory_order_relaxed) > 0);
    /* Acquire and release: whoever frees comes after every run. */
    if (atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) == 1)
        free(list); /* the first of its batch */
}

static char *cut(char **at, size_t bytes) {
    char *piece = *at;
    *at += bytes;
    return piece;
}

/* One block. NULL: no memory. */
static batch *batch_new(const symm_comm *c, int cap) {
    const size_t n = (size_t)cap, channels = n < 2 * (size_t)c->nranks ? n : 2 * (size_t)c->nranks;
    batch *b = SYMM_FAIL_ALLOC(p2p_more, malloc(sizeof *b +
                                                n * (sizeof *b->calls + sizeof *b->streams +
                                                     sizeof *b->list.ops + sizeof *b->list.wins) +
                                                channels * sizeof *b->list.channels));
    if (!b) return NULL;
    char *at = (char *)(b + 1);
    *b = (batch){.list = {.args = &c->calls.proto, .refs = 1}, .cap = cap};
    b->calls = (symm_message *)(void *)cut(&at, n * sizeof *b->calls);
    b->streams = (symmStream_t *)(void *)cut(&at, n * sizeof *b->streams);
    b->list.ops = (symm_p2p_op *)(void *)cut(&at, n * sizeof *b->list.ops);
    b->list.wins = (symm_win **)(void *)cut(&at, n * sizeof *b->list.wins);
    b->list.channels = (symm_p2p_channel *)(void *)at;
    return b;
}

static symmResult_t run_batch(symm_comm *c, batch *b) {
    symm_p2p_list *l = &b->list;
    SYMM_ASSERT(b->n > 0 && b->n <= b->cap);
    l->n = b->n;
    for (int i = 0; i < b->n; i++) fill_op(c, &b->calls[i], &l->ops[i], &l->wins[i]);
    l->nchannels = link_channels(c, l->ops, b->n, l->channels);
    SYMM_CHECK(list_check(l));
    return run_list(c, l, b->streams, symm_message_streams(b->calls, b->n, b->streams));
}

static symmResult_t run_queued(void *p) {
    const queued *q = p;
    symm_comm *c;
    SYMM_TRY(symm_comm_enter(q->comm, SYMM_ENTER_COLL, &c));
    const symmResult_t r = run_batch(c, q->batch);
    symm_comm_leave(c);
    return r;
}

static void drop_queued(void *p) {
    batch *b = ((queued *)p)->batch;
    if (b) symm_p2p_list_unref(&b->list);
}

static symmResult_t tell_queued(const void *p, symm_job_tale *t) {
    const queued *q = p;
    batch *b = q->batch;
    symm_comm *c;
    int sends = 0;
    SYMM_ASSERT(b && b->n > 0);
    SYMM_TRY(symm_comm_visit(q->comm, &c));
    for (int i = 0; i < b->n; i++) sends += b->calls[i].sends;
    *t = (symm_job_tale){.calls = b->n, .messages = b->n, .kernels = 1};
    snprintf(t->text, sizeof t->text,
             "communicator %s, rank %d: %d sends and %d receives of %d streams, in one kernel",
             c->name, c->rank, sends, b->n - sends,
             symm_message_streams(b->calls, b->n, b->streams));
    symm_comm_unvisit(c);
    return symmSuccess;
}

static const symm_job_row queued_row = {
    .run = run_queued, .tell = tell_queued, .drop = drop_queued};

/* Room for one more. */
static symmResult_t make_room(const symm_comm *c, queued *q) {
    batch *b = q->batch, *more;
    if (b && b->n < b->cap) return symmSuccess;
    more = batch_new(c, b ? 2 * b->cap : 16);
    if (!more) return SYMM_ERR(symmOutOfMemory, "no memory to queue a call in a group");
    if (b) memcpy(more->calls, b->calls, (size_t)b->n * sizeof *b->calls);
    more->n = b ? b->n : 0;
    drop_queued(q);
    q->batch = more;
    return symmSuccess;
}

static symmResult_t append(symm_comm *c, const symm_message *m, symmComm_t comm) {
    void *at;
    SYMM_TRY(
        symm_group_behind(comm, c->launcher->job(m->stream), &queued_row, sizeof(queued), &at));
    queued *q = at;
    q->comm = comm;
    if (c->cuda && q->batch && q->batch->n == SYMM_GPU_P2P_LIST)
        return SYMM_ERR(symmInvalidUsage, "%s: a group on GPUs has at most %d sends and receives",
                        symm_message_name(m), SYMM_GPU_P2P_LIST);
    SYMM_TRY(make_room(c, q));
    SYMM_ASSERT(q->batch->n < q->batch->cap);
    q->batch->calls[q->batch->n++] = *m;
    return symmSuccess;
}

static symmResult_t queue(const symm_message *m, symmComm_t comm) {
    symm_comm *c;
    symmResult_t r = symm_comm_enter(comm, SYMM_ENTER_COLL, &c);
    if (r) return symm_group_refuse(r);
    r = check(c, m);
    if (!r) r = c->launcher->check_stream(c, m->stream);
    if (!r) r = append(c, m, comm);
    symm_comm_leave(c);
    return r ? symm_group_refuse(r) : symmSuccess;
}

/* ---- the public calls ------------------------------------------------------------------------ */

/* Of a communicator over several domains. */
static symmResult_t call_outer(const symm_message *m, symmComm_t comm) {
    symm_outer *o = symm_outer_get(comm);
    if (!o) return symm_comm_bad_handle(comm);
    const symmResult_t r = o->message(o, m);
    symm_outer_put(comm);
    return r;
}

static symmResult_t call(const symm_message *m, symmComm_t comm) {
    symm_comm *c;
    if (__builtin_expect(symm_outer_is(comm), 0)) return call_outer(m, comm);
    if (__builtin_expect(symm_group_open(), 0)) return queue(m, comm);
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_COLL, &c));
    symmResult_t r = check(c, m);
    if (!r) r = run_one(c, m);
    symm_comm_leave(c);
    return r;
}

symmResult_t symmSend(const void *sendbuff, size_t count, symmDataType_t datatype, int peer,
                      symmComm_t comm, symmStream_t stream) {
    const symm_message m = {(void *)(uintptr_t)sendbuff, count, stream,
                            (uint32_t)datatype,          peer,  1};
    return call(&m, comm);
}

symmResult_t symmRecv(void *recvbuff, size_t count, symmDataType_t datatype, int peer,
                      symmComm_t comm, symmStream_t stream) {
    const symm_message m = {recvbuff, count, stream, (uint32_t)datatype, peer, 0};
    return call(&m, comm);
}

symmResult_t symmExplainMessage(symmComm_t comm, int sends, const void *buff, size_t count,
                                symmDataType_t datatype, int peer, symmExplain_t *plan) {
    const symm_message m = {(void *)(uintptr_t)buff, count, NULL,
                            (uint32_t)datatype,      peer,  sends != 0};
    symm_comm *c;
    symm_p2p_op op;
    symm_win *win;
    SYMM_TRY(symm_comm_enter(comm, SYMM_ENTER_COLL, &c));
    symmResult_t r = check(c, &m);
    if (!r && !symm_sized_holds(plan, sizeof *plan))
        r = SYMM_ERR(symmInvalidArgument, "plan is %s", plan ? SYMM_NO_SIZE : "NULL");
    if (!r) {
        fill_op(c, &m, &op, &win);
        c->launcher->tell_message(c, &c->calls.proto, &op, win, plan);
    }
    symm_comm_leave(c);
    return r;
}
