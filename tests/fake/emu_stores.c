/* emu_stores.c - stores that are not visible yet: the memory of a GPU may delay them where a
 * processor's would not. For emu_run.c.
 *
 * A store to global memory waits in the list of its CTA. It goes to memory at a step that is drawn,
 * in any order that PTX allows:
 *
 * - A release or a fence of a thread comes after all stores that precede it: its own, and those of
 * threads that it has met since, at a barrier of the CTA or by __syncwarp, directly or through
 * others. Votes and shuffles order nothing. A release may itself be late.
 *
 * - Of two stores to the same bytes the one that precedes the other is seen first, and a load sees
 * what precedes it.
 *
 * - At the end of a grid all stores are visible. If it has let the next one begin before
 * (emu_launch.early), and that has one CTA, they are visible at the end of that one, and before a
 * release in it.
 *
 * So each store has the set of threads that come after it. There is no other order between the
 * stores of a list.
 *
 * - A store by a multicast address is one for each rank, in any order. A release, or a load by the
 * usual address, comes after it only if an alias fence lies between.
 *
 * Where PTX allows more, stores here are early rather than late. What one thread stores by one
 * instruction is seen as a whole, and so is a line that a whole warp stores: the packets and lines
 * of this library rely on that. Likewise what a whole warp loads of a line by one instruction is as
 * it is at one moment (emu_run.c). What one rank sees, all see. An earlier store to the same bytes
 * goes to memory when these are stored or loaded again. A list holds a few hundred stores.
 *
 * What stores have overwritten is kept for a while, with numbers: a load may be made early and
 * return it, but never what was there before a store that precedes the load. */
#include <stdlib.h>
#include <string.h>

#include "emu.h"

enum { MOST = 256, BLOCKS = 1024, PAST = 128 };
/* A plain store may stay invisible until a release or the end of the grid. This is the average
 * number of draws until it is visible. */
enum { PLAIN = 64 };

typedef struct {
    char *to;
    size_t bytes;
    int plain;
    emu_threads behind; /* threads whose next release comes after it */
    emu_threads aside; /* by a multicast address: threads whose alias fence adds them to `behind` */
    unsigned char data[EMU_LINE];
} store;

struct emu_stores {
    unsigned n;
    uint16_t in_block[BLOCKS]; /* number of stores by address, so a load seldom has to search */
    store list[MOST];
};

emu_stores *emu_stores_new(void) {
    return calloc(1, sizeof(emu_stores));
}

/* ---- the multicast range --------------------------------------------------------------------- */

static struct {
    const char *at;
    size_t bytes;
    char *first;
    size_t stride;
    int ranks;
    uint64_t uses;
} cast;

void emu_multicast(const void *at, size_t bytes, void *first, size_t stride, int ranks) {
    cast.at = at, cast.bytes = bytes;
    cast.first = first, cast.stride = stride, cast.ranks = ranks;
}
void *emu_cast_at(const void *p, size_t bytes, int rank) {
    const char *at = p;
    if (!cast.ranks || at < cast.at || at + bytes > cast.at + cast.bytes) return NULL;
    cast.uses++;
    return cast.first + (unsigned)rank * cast.stride + (at - cast.at);
}
int emu_cast_ranks(void) {
    return cast.ranks;
}
uint64_t emu_cast_uses(void) {
    return cast.uses;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static int in(const emu_threads *s, unsigned thread) {
    return (int)(s->in[thread / 64] >> thread % 64 & 1);
}
void emu_threads_add(emu_threads *s, unsigned thread) {
    s->in[thread / 64] |= 1ull << thread % 64;
}

static uint16_t *block(emu_stores *l, const char *p) {
    return &l->in_block[(uintptr_t)p / 16 % BLOCKS];
}
static void count(emu_stores *l, const store *s, int by) {
    for (size_t i = 0; i < s->bytes; i += 16) *block(l, s->to + i) += (uint16_t)by;
}

static struct { /* the last PAST stores that went to memory: the bytes that they overwrote */
    store s;
    const emu_stores *of;
} past[PAST];
static uint64_t newest; /* number of the last, which is in past[newest % PAST] */

/* The last entry of the list takes its place. */
static void show(emu_stores *l, unsigned i) {
    store *s = &l->list[i];
    newest++;
    past[newest % PAST].s = *s;
    past[newest % PAST].of = l;
    memcpy(past[newest % PAST].s.data, s->to, s->bytes);
    memcpy(s->to, s->data, s->bytes);
    count(l, s, -1);
    if (i != --l->n) *s = l->list[l->n];
}

void emu_stores_precede(emu_stores *l, unsigned thread, const void *p, size_t bytes) {
    const char *at = p;
    for (size_t done = 0; done < bytes; done += 16) {
        if (!*block(l, at + done)) continue;
        for (unsigned i = l->n; i-- > 0;) {
            const store *s = &l->list[i];
            if (s->to < at + bytes && at < s->to + s->bytes && in(&s->behind, thread)) show(l, i);
        }
        return;
    }
}

void emu_stores_store(emu_stores *l, int plain, unsigned thread, unsigned threads, void *to,
                      const void *data, size_t bytes) {
    for (unsigned t = thread; t < thread + threads; t++) emu_stores_precede(l, t, to, bytes);
    if (l->n == MOST) show(l, 0);
    store *s = &l->list[l->n++];
    s->to = to, s->bytes = bytes, s->plain = plain;
    memset(&s->behind, 0, sizeof s->behind);
    memset(&s->aside, 0, sizeof s->aside);
    for (unsigned t = thread; t < thread + threads; t++) emu_threads_add(&s->behind, t);
    memcpy(s->data, data, bytes);
    count(l, s, 1);
}

void emu_stores_cast(emu_stores *l, unsigned thread, void *to, const void *data, size_t bytes) {
    emu_stores_store(l, 0, thread, 1, to, data, bytes);
    store *s = &l->list[l->n - 1];
    s->aside = s->behind;
    memset(&s->behind, 0, sizeof s->behind);
}
void emu_stores_alias(emu_stores *l, unsigned thread) {
    for (unsigned i = 0; i < l->n; i++)
        if (in(&l->list[i].aside, thread)) emu_threads_add(&l->list[i].behind, thread);
}

void emu_stores_release(emu_stores *l, unsigned thread) {
    for (unsigned i = l->n; i-- > 0;)
        if (in(&l->list[i].behind, thread)) show(l, i);
}

/* Who meets one of them is one of them. */
static void join(emu_threads *s, const emu_threads *who) {
    uint64_t some = 0;
    for (unsigned w = 0; w < EMU_THREADS / 64; w++) some |= s->in[w] & who->in[w];
    for (unsigned w = 0; some && w < EMU_THREADS / 64; w++) s->in[w] |= who->in[w];
}
void emu_stores_meet(emu_stores *l, const emu_threads *who) {
    for (store *s = l->list; s < l->list + l->n; s++) {
        join(&s->behind, who);
        join(&s->aside, who);
    }
}

int emu_stores_some(emu_stores *l, uint32_t which) {
    if (!l->n || (l->list[which % l->n].plain && which / MOST % PLAIN)) return 0;
    show(l, which % l->n);
    return 1;
}

void emu_stores_all(emu_stores *l) {
    while (l->n) show(l, l->n - 1);
}

void emu_stores_end(emu_stores *l) {
    for (unsigned i = 0; i < PAST; i++)
        if (past[i].of == l) past[i].of = NULL;
    free(l);
}

void emu_stores_inherit(emu_stores *l) {
    for (unsigned i = 0; i < l->n; i++) memset(&l->list[i].behind, 0xff, sizeof l->list[i].behind);
}

uint64_t emu_stores_now(void) {
    return newest;
}

const void *emu_stores_past(const emu_stores *l, unsigned thread, const void *p, size_t bytes,
                            uint64_t since, uint64_t *number) {
    const char *at = p;
    const void *found = NULL;
    for (uint64_t k = newest; k > since && k + PAST > newest; k--) {
        const store *s = &past[k % PAST].s;
        if (s->to >= at + bytes || at >= s->to + s->bytes) continue;
        if (past[k % PAST].of == l && in(&s->behind, thread)) break;
        if (at < s->to || at + bytes > s->to + s->bytes) break;
        found = s->data + (at - s->to);
        *number = k;
    }
    return found;
}
