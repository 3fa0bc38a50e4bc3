/* emu_late.c - stores that nobody sees yet: a GPU's memory may keep them back where a processor's
 * would not. For emu_run.c.
 *
 * A store to global memory waits in the list of its CTA and goes to memory at a step that is
 * drawn, in no order but what PTX promises:
 *   A release or a fence of a thread comes behind all stores that precede it: its own, and those
 *   of threads that it has met since, at a barrier of the CTA or by __syncwarp, in one meeting or
 *   through several. Votes and shuffles order nothing. A release may itself be late.
 *   Of two stores to the same bytes the one that precedes the other is seen first, and a load
 *   sees what precedes it.
 *   At the end of a grid everything is there; but where it has let the next one in before
 *   (emu_launch.early), at that one's end, and a release of that one comes behind it.
 * So for each store the threads are kept that are behind it, and nothing else: there is no order
 * between the stores of a list.
 *
 * Where PTX allows more, stores here are early rather than late. What one thread stores by one
 * instruction is seen as a whole, and so is a line that a whole warp stores: the packets and
 * lines of this library rest on that. What a rank sees, all see. An earlier store to the same
 * bytes goes to memory when they are stored or loaded again. A list holds a few hundred stores.
 *
 * What stores have written over is kept for a while, numbered: a load may be made early, and
 * bring that. Never what was there before a store that precedes it. */
#include <stdlib.h>
#include <string.h>

#include "emu.h"

enum { MOST = 256, BLOCKS = 1024, PAST = 128 };
/* Nobody may rely on a plain store's being seen before a release or the end of the grid: drawn so
 * many times on average before it is. */
enum { PLAIN = 64 };

typedef struct {
    char *to;
    size_t bytes;
    int plain;
    emu_threads behind; /* whose next release covers it */
    unsigned char data[EMU_LINE];
} store;

struct emu_late {
    unsigned n;
    uint16_t in_block[BLOCKS]; /* how many stores, by their addresses: a load seldom must search */
    store list[MOST];
};

emu_late *emu_late_new(void) {
    return calloc(1, sizeof(emu_late));
}

static int in(const emu_threads *s, unsigned thread) {
    return (int)(s->in[thread / 64] >> thread % 64 & 1);
}
void emu_threads_add(emu_threads *s, unsigned thread) {
    s->in[thread / 64] |= 1ull << thread % 64;
}

static uint16_t *block(emu_late *l, const char *p) {
    return &l->in_block[(uintptr_t)p / 16 % BLOCKS];
}
static void count(emu_late *l, const store *s, int by) {
    for (size_t i = 0; i < s->bytes; i += 16) *block(l, s->to + i) += (uint16_t)by;
}

static struct { /* the last PAST stores that went to memory: what they wrote over */
    store s;
    const emu_late *of;
} past[PAST];
static uint64_t newest; /* number of the last, which is in past[newest % PAST] */

/* The last of the list takes its place. */
static void show(emu_late *l, unsigned i) {
    store *s = &l->list[i];
    newest++;
    past[newest % PAST].s = *s;
    past[newest % PAST].of = l;
    memcpy(past[newest % PAST].s.data, s->to, s->bytes);
    memcpy(s->to, s->data, s->bytes);
    count(l, s, -1);
    if (i != --l->n) *s = l->list[l->n];
}

void emu_late_precede(emu_late *l, unsigned thread, const void *p, size_t bytes) {
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

void emu_late_store(emu_late *l, int plain, unsigned thread, unsigned threads, void *to,
                    const void *data, size_t bytes) {
    for (unsigned t = thread; t < thread + threads; t++) emu_late_precede(l, t, to, bytes);
    if (l->n == MOST) show(l, 0);
    store *s = &l->list[l->n++];
    s->to = to, s->bytes = bytes, s->plain = plain;
    memset(&s->behind, 0, sizeof s->behind);
    for (unsigned t = thread; t < thread + threads; t++) emu_threads_add(&s->behind, t);
    memcpy(s->data, data, bytes);
    count(l, s, 1);
}

void emu_late_release(emu_late *l, unsigned thread) {
    for (unsigned i = l->n; i-- > 0;)
        if (in(&l->list[i].behind, thread)) show(l, i);
}

void emu_late_meet(emu_late *l, const emu_threads *who) {
    for (store *s = l->list; s < l->list + l->n; s++) {
        uint64_t some = 0;
        for (unsigned w = 0; w < EMU_THREADS / 64; w++) some |= s->behind.in[w] & who->in[w];
        for (unsigned w = 0; some && w < EMU_THREADS / 64; w++) s->behind.in[w] |= who->in[w];
    }
}

int emu_late_some(emu_late *l, uint32_t which) {
    if (!l->n || (l->list[which % l->n].plain && which / MOST % PLAIN)) return 0;
    show(l, which % l->n);
    return 1;
}

void emu_late_all(emu_late *l) {
    while (l->n) show(l, l->n - 1);
}

void emu_late_end(emu_late *l) {
    for (unsigned i = 0; i < PAST; i++)
        if (past[i].of == l) past[i].of = NULL;
    free(l);
}

void emu_late_inherit(emu_late *l) {
    for (unsigned i = 0; i < l->n; i++) memset(&l->list[i].behind, 0xff, sizeof l->list[i].behind);
}

uint64_t emu_late_now(void) {
    return newest;
}

const void *emu_late_past(const emu_late *l, unsigned thread, const void *p, size_t bytes,
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
