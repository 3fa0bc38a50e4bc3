/* boot_threads.c - bootstrap between ranks that are threads of one process: a meeting point in
 * memory. Each rank's calls run in that rank's thread, abandon in any. One lock per group. Blocks
 * are copied into memory of the exchange, so a rank that fails or leaves pulls none away from
 * another. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "boot.h"
#include "boot_text.h"

enum { NEVER = 0, JOINED, LEFT }; /* a rank's state */

typedef struct { /* one exchange; freed by the last rank that leaves it */
    size_t bytes;
    int arrived, inside;
    unsigned char *here; /* [nranks] */
    unsigned char *data; /* [nranks * bytes] */
} round;

struct symm_boot_group {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* everything below; on CLOCK_MONOTONIC */
    int nranks;
    int joined, closed;
    int abandoned;
    int held;             /* by whom made the group and may still let ranks in: not freed before */
    unsigned char *state; /* [nranks] */
    round *now;           /* the exchange that ranks arrive at; NULL between two */
    symmResult_t verdict; /* what ended the group, for every rank alike */
    char text[SYMM_ERR_TEXT];
};

typedef struct {
    symm_boot base;
    symm_boot_group *g;
} boot_threads;

/* ---- group ---- */

symmResult_t symm_boot_group_create(int nranks, symm_boot_group **out) {
    if (nranks < 1)
        return SYMM_ERR(symmInvalidArgument, "a group of %d ranks: at least 1 is needed", nranks);
    symm_boot_group *g = calloc(1, sizeof(*g));
    unsigned char *state = calloc((size_t)nranks, 1);
    if (!g || !state || SYMM_FAIL_HERE(boot_group)) {
        free(g);
        free(state);
        return SYMM_ERR(symmOutOfMemory, "bootstrap threads: out of memory (%d ranks)", nranks);
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->moved, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&g->lock, NULL);
    g->nranks = nranks;
    g->state = state;
    *out = g;
    return symmSuccess;
}

/* Unlocks; frees the group when nobody is in it or can come any more. */
static void unlock_group(symm_boot_group *g) {
    int over = !g->held && g->closed == (g->abandoned ? g->joined : g->nranks);
    pthread_mutex_unlock(&g->lock);
    if (!over) return;
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
    free(g->state);
    free(g);
}

void symm_boot_group_hold(symm_boot_group *g, int held) {
    pthread_mutex_lock(&g->lock);
    g->held = held;
    unlock_group(g);
}

void symm_boot_group_abandon(symm_boot_group *g) {
    pthread_mutex_lock(&g->lock);
    g->abandoned = 1;
    pthread_cond_broadcast(&g->moved);
    unlock_group(g);
}

/* ---- one exchange (all under the lock) ---- */

static void decide(symm_boot_group *g, symmResult_t code) {
    if (g->verdict) return;
    g->verdict = code;
    snprintf(g->text, sizeof(g->text), "%s", symm_status_text());
    pthread_cond_broadcast(&g->moved);
}

static symmResult_t enter_round(symm_boot_group *g, size_t bytes, round **out) {
    round *x = g->now;
    if (!x) {
        size_t n = (size_t)g->nranks;
        x = calloc(1, sizeof(*x));
        unsigned char *here = calloc(n, 1);
        unsigned char *data = malloc(n * bytes + 1);
        if (!x || !here || !data || SYMM_FAIL_HERE(boot_round)) {
            free(x);
            free(here);
            free(data);
            return SYMM_ERR(symmOutOfMemory,
                            "bootstrap threads: no memory for %d blocks of %zu bytes", g->nranks,
                            bytes);
        }
        *x = (round){.bytes = bytes, .here = here, .data = data};
        g->now = x;
    }
    x->inside++;
    *out = x;
    return symmSuccess;
}

static void leave_round(symm_boot_group *g, round *x) {
    if (--x->inside) return;
    if (g->now == x) g->now = NULL;
    free(x->here);
    free(x->data);
    free(x);
}

static void arrive(symm_boot_group *g, round *x, int rank, const void *send) {
    if (x->bytes) memcpy(x->data + (size_t)rank * x->bytes, send, x->bytes);
    x->here[rank] = 1;
    if (++x->arrived < g->nranks) return;
    g->now = NULL; /* complete: who comes now begins the next one */
    pthread_cond_broadcast(&g->moved);
}

/* "ranks 1, 4" of those that have not arrived and are in `state`. NULL: there are none. */
static const char *missing_text(const symm_boot_group *g, const round *x, int state, char *buf,
                                size_t cap) {
    unsigned char missing[g->nranks];
    int many = 0;
    for (int r = 0; r < g->nranks; r++) {
        missing[r] = !x->here[r] && (state < 0 || g->state[r] == state);
        many += missing[r];
    }
    return many ? symm_boot_ranks(missing, g->nranks, buf, cap) : NULL;
}

/* Nobody shall wait for a rank that cannot come any more. */
static void judge_missing(symm_boot_group *g, const round *x, const symm_wait *w) {
    char ranks[256];
    if (g->verdict) return;
    if (missing_text(g, x, LEFT, ranks, sizeof(ranks)))
        decide(g, SYMM_ERR(symmRemoteError, "%s left while %s", ranks, symm_boot_stage(w)));
    else if (g->abandoned && missing_text(g, x, NEVER, ranks, sizeof(ranks)))
        decide(g, SYMM_ERR(symmRemoteError, "%s never came and will not any more (while %s)", ranks,
                           symm_boot_stage(w)));
}

static void sleep_slice(symm_boot_group *g, const symm_wait *w) {
    int ms = symm_boot_slice_ms(w, w->deadline_ns);
    uint64_t until = symm_now_ns() + (uint64_t)ms * 1000000;
    struct timespec t = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    pthread_cond_timedwait(&g->moved, &g->lock, &t); /* however it ends, the caller looks again */
}

/* The caller's own business ends its wait: the others learn who gave up. Returns what check says.
 */
static symmResult_t check_unlocked(symm_boot_group *g, const symm_wait *w) {
    pthread_mutex_unlock(&g->lock); /* it may do anything, long waits for other locks included */
    symmResult_t status = symm_boot_check(w);
    pthread_mutex_lock(&g->lock);
    return status;
}

/* Until everybody has arrived, or the group has a verdict. Own errors are the caller's to spread.
 */
static symmResult_t await_round(symm_boot_group *g, round *x, const symm_wait *w) {
    uint64_t start_ns = symm_now_ns();
    for (;;) {
        if (x->arrived == g->nranks) return symmSuccess;
        judge_missing(g, x, w);
        if (g->verdict) return symmSuccess;
        const symmResult_t status = check_unlocked(g, w);
        /* What is complete counts: a peer may have gone on, and ended it all, in the meantime. */
        if (x->arrived == g->nranks || g->verdict) continue;
        if (status) return status;
        if (symm_wait_over(w)) {
            char ranks[256];
            missing_text(g, x, -1, ranks, sizeof(ranks));
            decide(g, SYMM_ERR(symmTimeout, "%s did not come (waited %.1f s while %s)", ranks,
                               symm_boot_seconds(start_ns), symm_boot_stage(w)));
            continue;
        }
        sleep_slice(g, w);
    }
}

/* ---- operations ---- */

static symmResult_t meet(symm_boot_group *g, int rank, const void *send, void *recv, size_t bytes,
                         const symm_wait *w) {
    round *x = NULL;
    if (g->verdict) return symmSuccess;
    if (SYMM_FAIL_HERE(boot_allgather))
        return SYMM_ERR(symmSystemError, "failpoint boot_allgather on rank %d", rank);
    if (g->now && g->now->bytes != bytes)
        return SYMM_ERR(symmMismatch, "rank %d brings %zu bytes where others bring %zu (%s)", rank,
                        bytes, g->now->bytes, symm_boot_stage(w));
    SYMM_TRY(enter_round(g, bytes, &x));
    arrive(g, x, rank, send);
    symmResult_t status = await_round(g, x, w);
    int complete = x->arrived == g->nranks;
    if (!status && complete && bytes) {
        /* Complete blocks change no more, and stay until we leave: no need to make the others wait.
         */
        pthread_mutex_unlock(&g->lock);
        memcpy(recv, x->data, (size_t)g->nranks * bytes);
        pthread_mutex_lock(&g->lock);
    }
    leave_round(g, x);
    return status ? status : complete ? symmSuccess : g->verdict;
}

/* A rank's own error becomes everybody's: a mismatch as it is, anything else as that rank's
 * departure. */
static void spread(symm_boot_group *g, int rank, symmResult_t code, const symm_wait *w) {
    char own[SYMM_ERR_TEXT];
    if (g->verdict) return;
    snprintf(own, sizeof(own), "%s", symm_status_text());
    g->verdict = code == symmMismatch ? code : symmRemoteError;
    if (code == symmMismatch)
        snprintf(g->text, sizeof(g->text), "%s", own);
    else
        SYMM_SAY(g->text, sizeof(g->text), "rank %d gave up while %s: %.300s", rank,
                 symm_boot_stage(w), own);
    pthread_cond_broadcast(&g->moved);
}

static symmResult_t threads_allgather(symm_boot *b, const void *send, void *recv, size_t bytes,
                                      const symm_wait *w) {
    symm_boot_group *g = ((boot_threads *)b)->g;
    if (bytes > SIZE_MAX / (size_t)b->nranks - 1)
        return SYMM_ERR(symmInvalidArgument, "bootstrap threads: %zu bytes per rank are too many",
                        bytes);
    pthread_mutex_lock(&g->lock);
    int failed_before = g->verdict != symmSuccess;
    symmResult_t status = meet(g, b->rank, send, recv, bytes, w);
    if (failed_before) status = g->verdict;
    if (status && !g->verdict)
        spread(g, b->rank, status, w);
    else if (status && status == g->verdict)
        symm_status_adopt(g->text);
    pthread_mutex_unlock(&g->lock);
    return status;
}

static void threads_close(symm_boot *b) {
    symm_boot_group *g = ((boot_threads *)b)->g;
    pthread_mutex_lock(&g->lock);
    g->state[b->rank] = LEFT;
    g->closed++;
    pthread_cond_broadcast(&g->moved);
    unlock_group(g);
    free(b);
}

static const symm_boot_ops threads_ops = {"threads", threads_allgather, threads_close, 0, NULL};

static symmResult_t join(symm_boot_group *g, int rank) {
    if (rank < 0 || rank >= g->nranks)
        return SYMM_ERR(symmInvalidArgument, "rank %d of %d ranks: rank must be in [0, nranks)",
                        rank, g->nranks);
    if (g->state[rank] != NEVER)
        return SYMM_ERR(symmInvalidArgument, "rank %d of this group was given twice", rank);
    if (g->abandoned)
        return SYMM_ERR(symmRemoteError, "rank %d comes too late: the group was given up", rank);
    if (SYMM_FAIL_HERE(boot_connect))
        return SYMM_ERR(symmSystemError, "failpoint boot_connect on rank %d", rank);
    g->state[rank] = JOINED;
    g->joined++;
    return symmSuccess;
}

symmResult_t symm_boot_threads_open(symm_boot_group *g, int rank, symm_boot **out) {
    boot_threads *b = SYMM_FAIL_ALLOC(boot_alloc, calloc(1, sizeof(*b)));
    if (!b) return SYMM_ERR(symmOutOfMemory, "bootstrap threads: out of memory (rank %d)", rank);
    pthread_mutex_lock(&g->lock);
    symmResult_t status = join(g, rank);
    pthread_mutex_unlock(&g->lock);
    if (status) {
        free(b);
        return status;
    }
    *b = (boot_threads){{.ops = &threads_ops, .rank = rank, .nranks = g->nranks}, g};
    *out = &b->base;
    return symmSuccess;
}
