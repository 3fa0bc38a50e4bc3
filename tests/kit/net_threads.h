/* net_threads.h - a mover between ranks that are threads of one process, for tests. A message is
 * copied when both ends have begun it, from where it then lies: a sender that changes its memory
 * too early is found out. Lock: the hub's, held for a copy at most. */
#ifndef NET_THREADS_H_
#define NET_THREADS_H_

#include <pthread.h>

#include "t.h"
#include "transport/net/net.h"

enum { NT_RANKS = 8, NT_MESSAGES = 256, NT_POSTS = 3 };

typedef struct {
    const char *from;
    size_t bytes;
    uint32_t mark;
    char *copy; /* of a message that was posted: `from`; else NULL */
} nt_message;
typedef struct { /* from one rank to another, the oldest first */
    nt_message at[NT_MESSAGES];
    int n;
} nt_queue;

struct nt_hub;
typedef struct nt_part { /* a mover of some of the ranks */
    struct nt_part *next;
    struct nt_hub *hub;
    int ranks[NT_RANKS], n, opened;
} nt_part;

typedef struct nt_hub {
    pthread_mutex_t lock;
    int n;
    nt_queue queue[SYMM_NET_WAYS][NT_RANKS][NT_RANKS]; /* by sender, receiver */
    symm_net_word word[NT_RANKS];                      /* said by; code 0: nothing */
    int heard[NT_RANKS][NT_RANKS], gone[NT_RANKS];
    uint64_t messages, bytes, posts; /* that have crossed; that were posted */
    int slow;                        /* a test of so many finds nothing done */
    int streams;                     /* workers of streams may use it, too */
    nt_part *parts;                  /* freed with the hub */
} nt_hub;

typedef struct {
    symm_net_end end;
    char *to;
    size_t bytes;
    int done;
} nt_receive;
typedef struct {
    symm_net base;
    nt_hub *hub;
    pthread_t home; /* who opened it, and may use it */
    int rank, n;
    nt_receive wants[NT_MESSAGES];
    int tests, cancelled;
} nt_net;

static _Thread_local int nt_barred; /* this thread may not use movers now */

static inline int nt_may(symm_net *n) {
    (void)n;
    return !nt_barred;
}
static inline const char *nt_alone(symm_net *n) {
    return ((nt_net *)n)->hub->streams ? NULL : "the test's mover is its thread's";
}
static inline symmResult_t nt_enter(symm_net *n) {
    (void)n;
    return nt_barred ? SYMM_ERR(symmInvalidUsage, "this thread may not use the mover")
                     : symmSuccess;
}

/* Over is over, and no fault of who asks. */
static inline symmResult_t nt_known(const nt_net *n) {
    return n->cancelled ? SYMM_ERR(symmAborted, "the communicator is over") : symmSuccess;
}

static inline int nt_at_home(const nt_net *n) {
    return n->hub->streams || pthread_equal(n->home, pthread_self());
}
static inline void nt_put(nt_net *n, symm_net_end to, const void *from, size_t bytes, char *copy) {
    nt_queue *q = &n->hub->queue[to.way][n->rank][to.rank];
    T_CHECK(nt_at_home(n));
    T_CHECK(!n->cancelled && to.mark < 1u << SYMM_MARK_BITS && q->n < NT_MESSAGES);
    q->at[q->n++] = (nt_message){from, bytes, to.mark, copy};
}

static inline symmResult_t nt_send(symm_net *base, symm_net_end to, const void *from,
                                   size_t bytes) {
    nt_net *n = (nt_net *)base;
    SYMM_TRY(nt_known(n));
    pthread_mutex_lock(&n->hub->lock);
    nt_put(n, to, from, bytes, NULL);
    pthread_mutex_unlock(&n->hub->lock);
    return symmSuccess;
}

static inline symmResult_t nt_post(symm_net *base, symm_net_end to, const void *from, size_t bytes,
                                   int *posted) {
    nt_net *n = (nt_net *)base;
    int under_way = 0;
    pthread_mutex_lock(&n->hub->lock);
    const nt_queue *q = &n->hub->queue[to.way][n->rank][to.rank];
    for (int i = 0; i < q->n; i++) under_way += q->at[i].copy != NULL;
    *posted = under_way < NT_POSTS;
    if (*posted) {
        char *copy = malloc(bytes + 1);
        T_CHECK(copy != NULL);
        if (bytes) memcpy(copy, from, bytes);
        nt_put(n, to, copy, bytes, copy);
        n->hub->posts++;
    }
    pthread_mutex_unlock(&n->hub->lock);
    return symmSuccess;
}

static inline symmResult_t nt_receive_(symm_net *base, symm_net_end from, void *to, size_t bytes) {
    nt_net *n = (nt_net *)base;
    SYMM_TRY(nt_known(n));
    T_CHECK(nt_at_home(n) && n->n < NT_MESSAGES);
    n->wants[n->n++] = (nt_receive){from, to, bytes, 0};
    return symmSuccess;
}

/* The oldest message of that rank, if there is one. */
static inline symmResult_t nt_take(nt_net *n, nt_receive *w) {
    nt_queue *q = &n->hub->queue[w->end.way][w->end.rank][n->rank];
    if (!q->n) return symmSuccess;
    const nt_message m = q->at[0];
    if (m.mark != w->end.mark || m.bytes != w->bytes)
        return SYMM_ERR(symmMismatch, "rank %d sends %zu bytes of call %u, not %zu of %u",
                        w->end.rank, m.bytes, m.mark, w->bytes, w->end.mark);
    if (m.bytes) memcpy(w->to, m.from, m.bytes);
    free(m.copy);
    memmove(q->at, q->at + 1, (size_t)--q->n * sizeof *q->at);
    w->done = 1;
    n->hub->messages++;
    n->hub->bytes += m.bytes;
    return symmSuccess;
}

/* Of those that wait for that rank in that way: messages keep their order. */
static inline int nt_is_first(const nt_net *n, int i) {
    for (int j = 0; j < i; j++)
        if (!n->wants[j].done && n->wants[j].end.rank == n->wants[i].end.rank &&
            n->wants[j].end.way == n->wants[i].end.way)
            return 0;
    return 1;
}

static inline symmResult_t nt_test(symm_net *base, int *left, int *rank) {
    nt_net *n = (nt_net *)base;
    symmResult_t r = symmSuccess;
    *left = 0;
    pthread_mutex_lock(&n->hub->lock);
    const int idle = n->hub->slow && n->tests++ % n->hub->slow;
    for (int i = 0; i < n->n; i++) {
        if (!n->wants[i].done && nt_is_first(n, i) && !r && !idle) r = nt_take(n, &n->wants[i]);
        if (!n->wants[i].done) ++*left, *rank = n->wants[i].end.rank;
    }
    if (!*left) n->n = 0;
    for (int way = 0; way < SYMM_NET_WAYS; way++)
        for (int p = 0; p < n->hub->n; p++) {
            const nt_queue *q = &n->hub->queue[way][n->rank][p];
            for (int i = 0; i < q->n; i++)
                if (!q->at[i].copy) ++*left, *rank = p;
        }
    pthread_mutex_unlock(&n->hub->lock);
    return r;
}

static inline void nt_empty(nt_queue *q) {
    for (int i = 0; i < q->n; i++) free(q->at[i].copy);
    q->n = 0;
}

static inline void nt_cancel(symm_net *base) {
    nt_net *n = (nt_net *)base;
    pthread_mutex_lock(&n->hub->lock);
    for (int way = 0; way < SYMM_NET_WAYS; way++)
        for (int p = 0; p < n->hub->n; p++) nt_empty(&n->hub->queue[way][n->rank][p]);
    n->n = 0;
    n->cancelled = 1;
    pthread_mutex_unlock(&n->hub->lock);
}

static inline void nt_tell(symm_net *base, const symm_net_word *word) {
    nt_net *n = (nt_net *)base;
    T_CHECK(!nt_barred);
    pthread_mutex_lock(&n->hub->lock);
    if (!n->hub->word[n->rank].code) n->hub->word[n->rank] = *word; /* the first stays */
    pthread_mutex_unlock(&n->hub->lock);
}

static inline int nt_told(symm_net *base, symm_net_word *word) {
    nt_net *n = (nt_net *)base;
    int some = 0;
    T_CHECK(!nt_barred);
    pthread_mutex_lock(&n->hub->lock);
    for (int p = 0; p < n->hub->n && !some; p++) {
        if (p == n->rank || !n->hub->word[p].code || n->hub->heard[n->rank][p]) continue;
        some = n->hub->heard[n->rank][p] = 1;
        *word = n->hub->word[p];
    }
    pthread_mutex_unlock(&n->hub->lock);
    return some;
}

static inline symm_net *nt_open(nt_hub *hub, int rank);
static inline nt_hub *nt_hub_new(int n);
/* Each rank opens those of the same ranks in the same order. */
static inline symmResult_t nt_part_of(symm_net *base, const int *ranks, int nranks,
                                      symm_net **out) {
    nt_net *n = (nt_net *)base;
    int own = 0;
    while (ranks[own] != n->rank) own++;
    pthread_mutex_lock(&n->hub->lock);
    nt_part **at = &n->hub->parts; /* the oldest first */
    while (*at && ((*at)->n != nranks || (*at)->opened >> own & 1 ||
                   memcmp((*at)->ranks, ranks, (size_t)nranks * sizeof *ranks) != 0))
        at = &(*at)->next;
    if (!*at) {
        T_CHECK((*at = calloc(1, sizeof **at)) != NULL);
        (*at)->hub = nt_hub_new((*at)->n = nranks);
        (*at)->hub->slow = n->hub->slow;
        (*at)->hub->streams = n->hub->streams;
        memcpy((*at)->ranks, ranks, (size_t)nranks * sizeof *ranks);
    }
    (*at)->opened |= 1 << own;
    nt_hub *hub = (*at)->hub;
    pthread_mutex_unlock(&n->hub->lock);
    *out = nt_open(hub, own);
    return symmSuccess;
}

static inline int nt_is_gone(symm_net *base, int rank) {
    nt_net *n = (nt_net *)base;
    pthread_mutex_lock(&n->hub->lock);
    const int gone = n->hub->gone[rank];
    pthread_mutex_unlock(&n->hub->lock);
    return gone;
}

static inline void nt_close(symm_net *base, void *held) {
    nt_net *n = (nt_net *)base;
    pthread_mutex_lock(&n->hub->lock);
    n->hub->gone[n->rank] = 1;
    pthread_mutex_unlock(&n->hub->lock);
    free(held);
    free(n);
}

static const symm_net_ops nt_ops = {.name = "threads",
                                    .enter = nt_enter,
                                    .may = nt_may,
                                    .alone = nt_alone,
                                    .send = nt_send,
                                    .receive = nt_receive_,
                                    .post = nt_post,
                                    .test = nt_test,
                                    .cancel = nt_cancel,
                                    .tell = nt_tell,
                                    .told = nt_told,
                                    .is_gone = nt_is_gone,
                                    .part = nt_part_of,
                                    .close = nt_close};

static inline symm_net *nt_open(nt_hub *hub, int rank) {
    nt_net *n = calloc(1, sizeof *n);
    T_CHECK(n != NULL);
    n->base.ops = &nt_ops;
    n->hub = hub;
    n->rank = rank;
    n->home = pthread_self();
    return &n->base;
}

static inline nt_hub *nt_hub_new(int n) {
    nt_hub *h = calloc(1, sizeof *h);
    T_CHECK(h && n <= NT_RANKS);
    pthread_mutex_init(&h->lock, NULL);
    h->n = n;
    return h;
}
static inline void nt_hub_free(nt_hub *h) {
    for (int way = 0; way < SYMM_NET_WAYS; way++)
        for (int a = 0; a < h->n; a++)
            for (int b = 0; b < h->n; b++) T_EQ(h->queue[way][a][b].n, 0);
    for (nt_part *p = h->parts, *next; p; p = next) {
        next = p->next;
        nt_hub_free(p->hub);
        free(p);
    }
    pthread_mutex_destroy(&h->lock);
    free(h);
}

#endif
