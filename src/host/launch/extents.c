/* extents.c - the counts of calls that run later than they are made: each has a block from when it
 * is given to a stream until its task has run. The communicator keeps the blocks, so that there are
 * as many as calls were queued at once, and a call that finds a spare one allocates nothing. take:
 * the communicator's user thread; give: the thread that ran the task. No lock: user threads alone
 * take blocks off the list, all of them at a time. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "host/coll/counts.h"
#include "host/comm/comm.h"
#include "launch.h"

struct symm_extent_block {
    struct symm_extent_block *next;
    symm_extent at[]; /* 2 * nranks */
};

symm_extent_block *symm_extents_take(symm_comm *c, symm_args *a) {
    symm_comm_order *o = &c->order;
    /* pairs with the release in symm_extents_give: what a task read, it has read */
    if (!o->spare) o->spare = atomic_exchange_explicit(&o->used, NULL, memory_order_acquire);
    SYMM_ASSERT(a->extents && c->nranks > 0);
    symm_extent_block *b = o->spare;
    if (b)
        o->spare = b->next;
    else
        b = SYMM_FAIL_ALLOC(call_extents, malloc(sizeof *b + symm_extents_bytes(c->nranks)));
    if (!b) return NULL;
    memcpy(b->at, a->extents, symm_extents_bytes(c->nranks));
    a->extents = b->at;
    return b;
}

void symm_extents_give(symm_comm *c, symm_extent_block *b) {
    symm_extent_block *first = atomic_load_explicit(&c->order.used, memory_order_relaxed);
    do {
        b->next = first;
    } while (!atomic_compare_exchange_weak_explicit(&c->order.used, &first, b, memory_order_release,
                                                    memory_order_relaxed));
}

static void free_all(symm_extent_block *b) {
    while (b) {
        symm_extent_block *next = b->next;
        free(b);
        b = next;
    }
}

void symm_extents_close(symm_comm *c) {
    free_all(c->order.spare);
    free_all(atomic_exchange_explicit(&c->order.used, NULL, memory_order_acquire));
    c->order.spare = NULL;
}
