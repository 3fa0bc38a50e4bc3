/* mesh_threads.c - the control mesh between thread ranks: one mailbox per rank, in a block that all
 * ranks of the process share. A box has one queue per sender. Payloads are copied; fds are refused,
 * as threads share the table of descriptors. Runs in the thread that owns the mesh; put and hung_up
 * in any thread. Locks: each box has one for its queues. No thread holds two of them. */
#include "mesh_impl.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

#define QUEUE_MAX 256 /* messages that one sender may have waiting in one box */

enum { ABSENT, JOINED, GAVE_UP }; /* how far a rank is */

typedef struct note {
    struct note *next;
    symm_wire_msg head;
    uint8_t payload[];
} note;

typedef struct {
    note *first, *last;
    int count;
    int crowded; /* the sender met a full queue and sleeps on its own box */
} queue;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* waits: the owning rank only */
    uint64_t events;        /* under lock: mail, room or a hang-up that concerns this rank */
    int sleeping, closed;   /* under lock */
    queue *from;            /* [nranks] under lock */
} box;

typedef struct {
    int nranks;
    _Atomic int refs;
    _Atomic uint8_t *joined, *closed; /* [nranks] */
    box *boxes;                       /* [nranks] */
} block;

typedef struct {
    symm_mesh base;
    block *b;
    uint64_t seen; /* events of the own box that the last wait returned with */
} mesh_threads;

/* ---- the shared block ---- */

static void queue_clear(queue *q) {
    for (note *n = q->first; n;) {
        note *next = n->next;
        free(n);
        n = next;
    }
    *q = (queue){0};
}

static symmResult_t box_init(box *x, int nranks) {
    pthread_condattr_t attr;
    x->from = SYMM_FAIL_ALLOC(mesh_box, calloc((size_t)nranks, sizeof *x->from));
    if (!x->from) return SYMM_ERR(symmOutOfMemory, "no memory for mailboxes of %d ranks", nranks);
    pthread_mutex_init(&x->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&x->changed, &attr);
    pthread_condattr_destroy(&attr);
    return symmSuccess;
}

static void box_fini(box *x, int nranks) {
    if (!x->from) return;
    for (int r = 0; r < nranks; r++) queue_clear(&x->from[r]);
    free(x->from);
    pthread_cond_destroy(&x->changed);
    pthread_mutex_destroy(&x->lock);
}

static void block_free(block *b) {
    for (int r = 0; b->boxes && r < b->nranks; r++) box_fini(&b->boxes[r], b->nranks);
    free(b->boxes);
    free(b->joined);
    free(b->closed);
    free(b);
}

symmResult_t symm_mesh_share(int nranks, void **shared) {
    symmResult_t status;
    block *b = SYMM_FAIL_ALLOC(mesh_share, calloc(1, sizeof *b));
    if (!b) return SYMM_ERR(symmOutOfMemory, "no memory for mailboxes");
    b->nranks = nranks;
    atomic_store_explicit(&b->refs, 1, memory_order_relaxed); /* nobody else has it yet */
    b->boxes = calloc((size_t)nranks, sizeof *b->boxes);
    b->joined = calloc((size_t)nranks, sizeof *b->joined);
    b->closed = calloc((size_t)nranks, sizeof *b->closed);
    if (!b->boxes || !b->joined || !b->closed || SYMM_FAIL_HERE(mesh_boxes)) {
        status = SYMM_ERR(symmOutOfMemory, "no memory for mailboxes of %d ranks", nranks);
        goto free_block;
    }
    for (int r = 0; r < nranks; r++) SYMM_TRY_GOTO(box_init(&b->boxes[r], nranks), free_block);
    *shared = b;
    return symmSuccess;

free_block:
    block_free(b);
    return status;
}

void symm_mesh_share_ref(void *shared) {
    block *b = shared;
    SYMM_ASSERT(atomic_load_explicit(&b->refs, memory_order_relaxed) > 0);
    /* relaxed: the caller's own reference keeps it */
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

void symm_mesh_unshare(void *shared) {
    block *b = shared;
    SYMM_ASSERT(!b || atomic_load_explicit(&b->refs, memory_order_relaxed) > 0);
    /* Acquire and release: who frees comes after everyone's last use. */
    if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1) block_free(b);
}

/* ---- events ---- */

/* Under x->lock: its owner may be waiting for what has happened. */
static void notify(box *x) {
    x->events++;
    if (x->sleeping) pthread_cond_signal(&x->changed);
}

static void notify_all(block *b, int except) {
    for (int r = 0; r < b->nranks; r++) {
        if (r == except) continue;
        pthread_mutex_lock(&b->boxes[r].lock);
        notify(&b->boxes[r]);
        pthread_mutex_unlock(&b->boxes[r].lock);
    }
}

static struct timespec in_ms(int ms) {
    uint64_t t = symm_now_ns() + (uint64_t)ms * 1000000;
    return (struct timespec){(time_t)(t / 1000000000), (long)(t % 1000000000)};
}

/* Acquire pairs with the release in close_threads. What the closer had queued is seen under the
 * box's lock. */
static int hung_up(const symm_mesh *m, int peer) {
    const block *b = ((const mesh_threads *)m)->b;
    return b && atomic_load_explicit(&b->closed[peer], memory_order_acquire);
}

/* All steps before this call saw the events up to `seen`. A newer event ends the sleep at once, so
 * none is lost. */
static void wait_threads(symm_mesh *m, uint8_t *want, int ms) {
    mesh_threads *t = (mesh_threads *)m;
    box *x = &t->b->boxes[m->rank];
    struct timespec until = in_ms(ms);
    pthread_mutex_lock(&x->lock);
    x->sleeping = 1;
    while (x->events == t->seen) {
        if (pthread_cond_timedwait(&x->changed, &x->lock, &until) == ETIMEDOUT) break;
    }
    x->sleeping = 0;
    t->seen = x->events;
    pthread_mutex_unlock(&x->lock);
    for (int r = 0; r < m->nranks; r++) {
        if (want[r] && r != m->rank && hung_up(m, r)) want[r] |= MESH_LOST;
    }
}

/* ---- messages ---- */

/* Under x->lock: the invariants of one queue, at most QUEUE_MAX steps. */
static void symm_queue_check(const queue *q) {
    int n = 0;
    for (const note *at = q->first; at; at = at->next, n++)
        SYMM_ASSERT(n < q->count && (at->next || at == q->last));
    SYMM_ASSERT(n == q->count && n <= QUEUE_MAX && !q->first == !q->last);
    SYMM_ASSERT(!q->crowded || n > 0);
}

/* Under x->lock. */
static void append(box *x, int from, note *n) {
    queue *q = &x->from[from];
    if (q->last)
        q->last->next = n;
    else
        q->first = n;
    q->last = n;
    q->count++;
    SYMM_CHECK(symm_queue_check(q));
    notify(x);
}

static symmResult_t put(symm_mesh *m, int peer, int type, const void *payload, size_t bytes,
                        const int *fds, int nfds, int *state) {
    block *b = ((mesh_threads *)m)->b;
    (void)fds;
    *state = MESH_GONE;
    if (nfds) {
        return SYMM_ERR(symmInternalError, "%d fds sent to thread rank %d: threads pass none", nfds,
                        peer);
    }
    if (!b) return symmSuccess;
    note *n = SYMM_FAIL_ALLOC(mesh_note, malloc(sizeof *n + bytes));
    if (!n) return SYMM_ERR(symmOutOfMemory, "no memory for a message to rank %d", peer);
    n->next = NULL;
    n->head = (symm_wire_msg){.type = (uint16_t)type,
                              .bytes = (uint32_t)bytes,
                              .from = (uint32_t)m->rank,
                              .to = (uint32_t)peer};
    if (bytes) memcpy(n->payload, payload, bytes);
    box *x = &b->boxes[peer];
    pthread_mutex_lock(&x->lock);
    int full = x->from[m->rank].count >= QUEUE_MAX;
    if (!x->closed && full) x->from[m->rank].crowded = 1;
    if (!x->closed && !full) {
        append(x, m->rank, n);
        n = NULL;
    }
    *state = x->closed ? MESH_GONE : full ? MESH_NOTHING : MESH_READY;
    pthread_mutex_unlock(&x->lock);
    free(n);
    return symmSuccess;
}

/* Takes the oldest message of peer. *crowded: peer waits for the room that this makes. */
static note *pop(box *x, int peer, int *crowded) {
    pthread_mutex_lock(&x->lock);
    queue *q = &x->from[peer];
    note *n = q->first;
    *crowded = 0;
    if (n) {
        q->first = n->next;
        if (!q->first) q->last = NULL;
        q->count--;
        *crowded = q->crowded;
        q->crowded = 0;
        SYMM_CHECK(symm_queue_check(q));
    }
    pthread_mutex_unlock(&x->lock);
    return n;
}

static symmResult_t take(symm_mesh *m, int peer, int *state) {
    block *b = ((mesh_threads *)m)->b;
    int crowded;
    *state = MESH_GONE;
    if (!b) return symmSuccess;
    int gone = hung_up(m, peer); /* read before the queue: a closed peer queues nothing any more */
    note *n = pop(&b->boxes[m->rank], peer, &crowded);
    if (!n) {
        *state = gone ? MESH_GONE : MESH_NOTHING;
        return symmSuccess;
    }
    if (crowded) {
        pthread_mutex_lock(&b->boxes[peer].lock);
        notify(&b->boxes[peer]);
        pthread_mutex_unlock(&b->boxes[peer].lock);
    }
    m->in.head = n->head;
    m->in.why = NULL;
    m->in.nfds = m->in.truncated = 0;
    memcpy(m->in.buf + SYMM_WIRE_HEADER, n->payload, n->head.bytes);
    free(n);
    *state = MESH_READY;
    return symmSuccess;
}

static size_t next_threads(symm_mesh *m, int peer, uint8_t *raw, size_t cap) {
    block *b = ((mesh_threads *)m)->b;
    size_t bytes = 0;
    if (!b) return 0;
    box *x = &b->boxes[m->rank];
    pthread_mutex_lock(&x->lock);
    const note *n = x->from[peer].first;
    if (n && SYMM_WIRE_HEADER + n->head.bytes <= cap) {
        symm_wire_put(&n->head, raw);
        if (n->head.bytes) memcpy(raw + SYMM_WIRE_HEADER, n->payload, n->head.bytes);
        bytes = SYMM_WIRE_HEADER + n->head.bytes;
    }
    pthread_mutex_unlock(&x->lock);
    return bytes;
}

/* ---- life ---- */

/* Acquire pairs with the release in set_state: a rank's REVOKE is seen with its state. */
static int state_of(const block *b, int rank) {
    return atomic_load_explicit(&b->joined[rank], memory_order_acquire);
}

static void set_state(block *b, int rank, int state) {
    atomic_store_explicit(&b->joined[rank], (uint8_t)state, memory_order_release);
    notify_all(b, rank);
}

/* As with sockets, connecting ends when all ranks have come. A change of a state after it was read
 * here makes an event, which ends the sleep. */
static symmResult_t await_all(symm_mesh *m, const symm_wait *w) {
    const block *b = ((mesh_threads *)m)->b;
    for (;;) {
        int missing = 0;
        for (int r = 0; r < m->nranks; r++) {
            m->pending[r] = 0;
            if (r == m->rank) continue;
            int state = state_of(b, r);
            if (state == GAVE_UP || hung_up(m, r)) return symm_mesh_lost(m, r, w);
            m->pending[r] = state == ABSENT;
            missing += state == ABSENT;
        }
        if (!missing) return symmSuccess;
        SYMM_TRY(symm_mesh_pause(m, m->pending, w, MESH_SLICE_MS));
    }
}

static symmResult_t meet(symm_mesh *m, const symm_wait *w) {
    if (m->rank > 0 && SYMM_FAIL_HERE(mesh_connect)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_connect (%s)", w->stage);
    }
    set_state(((mesh_threads *)m)->b, m->rank, JOINED);
    if (m->rank < m->nranks - 1 && SYMM_FAIL_HERE(mesh_accept)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_accept (%s)", w->stage);
    }
    return await_all(m, w);
}

static symmResult_t connect_threads(symm_mesh *m, const symm_mesh_addr *addrs, void *shared,
                                    const symm_wait *w) {
    mesh_threads *t = (mesh_threads *)m;
    (void)addrs;
    block *b = shared;
    if (b->nranks != m->nranks) {
        symm_mesh_unshare(b);
        return SYMM_ERR(symmInternalError, "mailboxes for another number of ranks than %d (%s)",
                        m->nranks, w->stage);
    }
    t->b = b;
    symmResult_t status = meet(m, w);
    if (status != symmSuccess) {
        symm_mesh_spread(m, status,
                         w); /* first, so that a rank that sees the state has the cause */
        set_state(b, m->rank, GAVE_UP);
    }
    return status;
}

static void close_threads(symm_mesh *m) {
    block *b = ((mesh_threads *)m)->b;
    if (!b) return;
    box *x = &b->boxes[m->rank];
    pthread_mutex_lock(&x->lock);
    x->closed = 1; /* put refuses from here on, so the queues stay empty */
    for (int r = 0; r < b->nranks; r++) queue_clear(&x->from[r]);
    pthread_mutex_unlock(&x->lock);
    /* Release pairs with hung_up's acquire. */
    atomic_store_explicit(&b->closed[m->rank], 1, memory_order_release);
    notify_all(b, m->rank);
    symm_mesh_unshare(b);
}

static int no_fd(const symm_mesh *m, int peer) {
    (void)m;
    (void)peer;
    return -1;
}

static const symm_mesh_ops threads_ops = {
    .connect = connect_threads,
    .put = put,
    .take = take,
    .wait = wait_threads,
    .next = next_threads,
    .hung_up = hung_up,
    .fd = no_fd,
    .close = close_threads,
};

symmResult_t symm_mesh_threads_listen(int rank, int nranks, symm_mesh_addr *mine, symm_mesh **out) {
    if (SYMM_FAIL_HERE(mesh_socket)) {
        return SYMM_ERR(symmSystemError, "failpoint mesh_socket (rank %d)", rank);
    }
    mesh_threads *t = SYMM_FAIL_ALLOC(mesh_alloc, calloc(1, sizeof *t));
    if (!t) return SYMM_ERR(symmOutOfMemory, "no memory for a control mesh");
    symmResult_t status = symm_mesh_init(&t->base, &threads_ops, rank, nranks);
    if (status != symmSuccess) {
        free(t);
        return status;
    }
    memset(mine, 0, sizeof *mine);
    mine->pid = (uint32_t)getpid();
    mine->uid = (uint32_t)geteuid();
    *out = &t->base;
    return symmSuccess;
}
