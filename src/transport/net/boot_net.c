/* boot_net.c - see boot_net.h: each rank sends its block to all others. The thread inside; no
 * lock. */
#include "boot_net.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"

typedef struct {
    symm_boot base;
    symm_net *net;
} boot_net;

typedef struct room { /* of an exchange */
    struct room *next;
    _Alignas(16) char blocks[];
} room;
/* Of exchanges that failed: the mover may still write to them. Never freed; the list is for
 * checkers of leaks. Any thread pushes. */
static _Atomic(room *) stranded;

static void strand(room *r) {
    r->next = atomic_load_explicit(&stranded, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&stranded, &r->next, r, memory_order_release,
                                                  memory_order_relaxed))
        continue;
}

void symm_boot_net_give_up(symm_net *net, symmResult_t r) {
    symm_net_word word = {.code = (int32_t)r, .domain = -1};
    snprintf(word.text, sizeof word.text, "%s", symm_status_text());
    net->ops->cancel(net);
    net->ops->tell(net, &word);
    symm_status_adopt(word.text);
}

/* What has begun is in `blocks`, which the mover may write to. */
static symmResult_t exchange(boot_net *b, char *blocks, size_t bytes, const symm_wait *w) {
    const symm_net_ops *ops = b->net->ops;
    const int self = b->base.rank, n = b->base.nranks;
    int left = 0, rank = self;
    for (int r = 0; r < n; r++) {
        const symm_net_end end = {.rank = r, .way = SYMM_NET_CALLS, .mark = 0};
        if (r == self) continue;
        SYMM_TRY(ops->receive(b->net, end, blocks + (unsigned)r * bytes, bytes));
        SYMM_TRY(ops->send(b->net, end, blocks + (unsigned)self * bytes, bytes));
    }
    for (unsigned turn = 1;; turn++) {
        symm_net_word word;
        SYMM_TRY(ops->test(b->net, &left, &rank));
        if (!left) return symmSuccess;
        if (turn % 64 == 0 && ops->told(b->net, &word))
            return SYMM_ERR((symmResult_t)word.code, "%s: another rank says: %.400s", w->stage,
                            word.text);
        if (w->check) SYMM_TRY(w->check(w->arg));
        if (symm_wait_over(w))
            return SYMM_ERR(symmTimeout, "%s: rank %d did not come in time", w->stage, rank);
        sched_yield();
    }
}

static symmResult_t allgather(symm_boot *base, const void *send, void *recv, size_t bytes,
                              const symm_wait *w) {
    boot_net *b = (boot_net *)base;
    const size_t all = (size_t)base->nranks * bytes;
    SYMM_ASSERT(base->rank >= 0 && base->rank < base->nranks && bytes > 0);
    room *own = SYMM_FAIL_ALLOC(boot_net_blocks, malloc(sizeof *own + all));
    if (!own) {
        const symmResult_t r = SYMM_ERR(symmOutOfMemory, "%s: no memory for an exchange", w->stage);
        symm_boot_net_give_up(b->net, r);
        return r;
    }
    memcpy(own->blocks + (unsigned)base->rank * bytes, send, bytes);
    const symmResult_t r = exchange(b, own->blocks, bytes, w);
    if (r) {
        symm_boot_net_give_up(b->net, r);
        strand(own);
        return r;
    }
    memcpy(recv, own->blocks, all);
    free(own);
    return symmSuccess;
}

static void close_boot(symm_boot *base) {
    free(base);
}

static const symm_boot_ops net_ops = {.name = "mover", .allgather = allgather, .close = close_boot};

symmResult_t symm_boot_net_open(symm_net *net, int rank, int nranks, symm_boot **out) {
    boot_net *b = SYMM_FAIL_ALLOC(boot_net_alloc, calloc(1, sizeof *b));
    if (!b) return SYMM_ERR(symmOutOfMemory, "no memory for an exchange over a mover");
    b->base = (symm_boot){.ops = &net_ops, .rank = rank, .nranks = nranks};
    b->net = net;
    *out = &b->base;
    return symmSuccess;
}
