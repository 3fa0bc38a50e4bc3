/* heap_stripes.c - compares calls on stripes. Threads make them concurrently, and only calls on one
 * stripe have an order that ranks share, so the heap's digest does not have them. Where the ranks
 * meet anyway they compare the number and a digest of the calls on each stripe. The communicator's
 * user thread changes the list, with h->lock, and reads it without. */
#include "base/fail.h"
#include "host/comm/comm.h"
#include "heap_int.h"

enum { LINES = 21 };
typedef struct {
    uint32_t id; /* of the object */
    int32_t stripe;
    uint64_t calls, digest;
} line;
typedef struct { /* the next stripes of all objects, in order */
    int32_t n, more;
    line list[LINES];
} page;

/* Ranks make the objects in one order, so their ids are the same. */
void symm_heap_watch(symm_heap *h, symm_stripes *s) {
    symm_stripes **at = &h->stripes;
    symm_heap_lock(h);
    while (*at) at = &(*at)->next;
    SYMM_ASSERT(s->count > 0 && s->look);
    s->next = NULL;
    s->id = ++h->stripes_made;
    *at = s;
    symm_heap_unlock(h);
}

void symm_heap_unwatch(symm_heap *h, symm_stripes *s) {
    symm_stripes **at = &h->stripes;
    symm_heap_lock(h);
    while (*at != s) {
        SYMM_ASSERT(*at && (*at)->id < s->id); /* by age */
        at = &(*at)->next;
    }
    *at = s->next;
    symm_heap_unlock(h);
}

static line look(const symm_stripes *s, int stripe) {
    line l = {.id = s->id, .stripe = stripe};
    s->look(s->ctx, stripe, &l.calls, &l.digest);
    return l;
}

uint64_t symm_heap_stripes_word(const symm_heap *h) {
    uint64_t word = 0;
    for (const symm_stripes *s = h->stripes; s; s = s->next)
        for (int i = 0; i < s->count; i++) {
            const line l = look(s, i);
            word = (word ^ l.calls) * 0x9fb21c651e98df25ull;
            word = (word ^ word >> 32 ^ l.digest) * 0x9fb21c651e98df25ull;
            word ^= word >> 29;
        }
    return word;
}

/* Fills the page from stripe (s, i) on, and moves (s, i) behind what it has. */
static void fill(page *p, const symm_stripes **s, int *i) {
    *p = (page){0};
    while (*s && p->n < LINES) {
        p->list[p->n++] = look(*s, *i);
        if (++*i < (*s)->count) continue;
        *s = (*s)->next;
        *i = 0;
    }
    p->more = *s != NULL;
    SYMM_ASSERT(p->n <= LINES && (p->n || !p->more));
}

/* After equal calls on SYM each object of one rank has its counterpart on every rank. The number of
 * stripes may differ. */
static symmResult_t other_stripes(const symm_heap *h, int a, int b, const char *stage) {
    return SYMM_ERR(symmMismatch,
                    "%s: the symmetric arenas of heap %s have another number of stripes on rank %d "
                    "than on rank %d",
                    stage, h->name, b, a);
}

static symmResult_t differ(const symm_heap *h, const line *x, int a, const line *y, int b,
                           const char *stage) {
    const symm_stripes *s = h->stripes;
    while (s && s->id != x->id) s = s->next;
    return SYMM_ERR(symmMismatch,
                    "%s: calls on stripe %d of symmetric arena %u (%s) of heap %s differ: rank %d "
                    "has made %llu, rank %d %llu%s",
                    stage, x->stripe, x->id, s && s->name[0] ? s->name : "no name", h->name, a,
                    (unsigned long long)x->calls, b, (unsigned long long)y->calls,
                    x->calls == y->calls ? ", of other sizes, alignments or blocks, or in another "
                                           "order"
                                         : "");
}

/* still: no thread uses a stripe, so numbers that differ are a difference. */
static symmResult_t compare(const symm_heap *h, const page *x, int a, const page *y, int b,
                            int still, const char *stage) {
    for (int i = 0; i < x->n || i < y->n; i++) {
        const line *l = &x->list[i], *m = &y->list[i];
        if (i >= x->n || i >= y->n || l->id != m->id || l->stripe != m->stripe)
            return other_stripes(h, a, b, stage);
        if (l->calls == m->calls ? l->digest != m->digest : still)
            return differ(h, l, a, m, b, stage);
    }
    return symmSuccess;
}

symmResult_t symm_heap_stripes_compare(symm_heap *h, int still, const char *stage) {
    symm_comm *c = h->comm;
    const symm_stripes *s = h->stripes;
    page mine, all[SYMM_MAX_RANKS];
    for (int more = 1, i = 0; more;) {
        fill(&mine, &s, &i);
        SYMM_TRY(symm_comm_gather(c, &mine, all, sizeof mine, stage));
        more = 0;
        for (int b = 0; b < c->nranks; b++) {
            for (int a = 0; a < b; a++) SYMM_TRY(compare(h, &all[a], a, &all[b], b, still, stage));
            more |= all[b].more;
        }
    }
    return symmSuccess;
}
