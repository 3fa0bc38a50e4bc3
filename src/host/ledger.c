/* ledger.c - a ring per rank in shared host memory. A rank writes its own and reads the others' while they write: an entry is words, each
 * stored and loaded whole; its seq is cleared before it is written anew and stored, released, at its end, and a reader looks at it before and after. */
#define _GNU_SOURCE /* dladdr */
#include "ledger.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "fail.h"
#include "heap_int.h"

enum {
    WORDS =
        8, /* of an entry, which is a cache line: seq, digest, issued, size, align, off, op and lane, the site */
    SITES = 64,
    PROBES = 8,
    HEAD = 8192, /* bytes before the ring */
    PART = HEAD + SYMM_LEDGER_CALLS * WORDS * 8
};

typedef struct { /* a place of the program, as text; never changed once site is stored */
    _Atomic uint64_t site;
    _Atomic uint64_t text[SYMM_LEDGER_SITE / 8];
} named;

typedef struct { /* a rank's part */
    _Atomic uint64_t count;
    _Atomic uint64_t size; /* of a vector */
    named sites[SITES];
    char pad[HEAD - 16 - SITES * sizeof(named)];
    _Atomic uint64_t entry[SYMM_LEDGER_CALLS][WORDS];
} ring;
_Static_assert(sizeof(ring) == PART, "whole pages");

struct symm_ledger {
    symm_shared *shared;
    const symm_comm *c;
    ring *mine;
    int nranks;
};

static ring *ring_of(const symm_ledger *l, int rank) {
    return symm_shared_part(l->shared, rank);
}

symmResult_t symm_ledger_open(symm_comm *c, symmResult_t mine, const char *stage,
                              symm_ledger **out) {
    symm_shared *s = NULL;
    symm_ledger *l = mine ? NULL : SYMM_FAIL_ALLOC(ledger_record, calloc(1, sizeof *l));
    if (!mine && !l) mine = SYMM_ERR(symmOutOfMemory, "no memory for the ledger of a heap");
    symmResult_t r = symm_shared_open(c, mine, PART, stage, &s);
    if (r) {
        free(l);
        return r;
    }
    l->shared = s;
    l->c = c;
    l->mine = ring_of(l, c->rank);
    l->nranks = c->nranks;
    *out = l;
    return symmSuccess;
}

void symm_ledger_close(symm_ledger *l) {
    if (!l) return;
    symm_shared_drop(l->shared);
    free(l);
}

/* ---- places of the program --------------------------------------------------------------------------------------------- */

/* Where that site is named in a rank's part, or would be; NULL if there is no room. */
static named *find_site(ring *r, uint64_t site) {
    size_t i = (size_t)(site >> 2 ^ site >> 9);
    for (int k = 0; k < PROBES; k++, i++) {
        named *n = &r->sites[i % SITES];
        /* Pairs with the release in name_site. */
        const uint64_t s = atomic_load_explicit(&n->site, memory_order_acquire);
        if (s == site || !s) return n;
    }
    return NULL;
}

/* "program+0x123 (function)", looked up once per place. */
static void name_site(named *n, const void *site) {
    Dl_info info;
    uint64_t words[SYMM_LEDGER_SITE / 8] = {0};
    char text[SYMM_LEDGER_SITE] = {0};
    if (dladdr(site, &info) && info.dli_fname) {
        const char *slash = strrchr(info.dli_fname, '/');
        const char *base = slash ? slash + 1 : info.dli_fname;
        const unsigned long at = (unsigned long)((uintptr_t)site - (uintptr_t)info.dli_fbase);
        int len = snprintf(text, sizeof text, "%.30s+0x%lx", base, at);
        if (info.dli_sname && len > 0 && (size_t)len < sizeof text)
            snprintf(text + len, sizeof text - (size_t)len, " (%s)", info.dli_sname);
    } else {
        snprintf(text, sizeof text, "%p", site);
    }
    memcpy(words, text, sizeof text);
    for (int i = 0; i < SYMM_LEDGER_SITE / 8; i++)
        atomic_store_explicit(&n->text[i], words[i], memory_order_relaxed);
    /* Pairs with the acquire in find_site: the text is there. */
    atomic_store_explicit(&n->site, (uintptr_t)site, memory_order_release);
}

/* Of a site without a name, its address. */
static void site_text(ring *r, uint64_t site, char *text) {
    const named *n = find_site(r, site);
    uint64_t words[SYMM_LEDGER_SITE / 8];
    if (!n || !atomic_load_explicit(&n->site, memory_order_acquire)) {
        snprintf(text, SYMM_LEDGER_SITE, "%p", (void *)(uintptr_t)site);
        return;
    }
    for (int i = 0; i < SYMM_LEDGER_SITE / 8; i++)
        words[i] = atomic_load_explicit(&n->text[i], memory_order_relaxed);
    memcpy(text, words, sizeof words);
    text[SYMM_LEDGER_SITE - 1] = 0;
}

/* ---- writing ---------------------------------------------------------------------------------------------------------- */

/* Released after the clearing of seq; pairs with the acquire in get: who reads a new word sees that seq is no longer the old one. */
static void put(_Atomic uint64_t *at, uint64_t v) {
    atomic_store_explicit(at, v, memory_order_release);
}

void symm_ledger_note(symm_ledger *l, const symm_entry *e, const void *site) {
    _Atomic uint64_t *at = l->mine->entry[e->seq % SYMM_LEDGER_CALLS];
    named *n = find_site(l->mine, (uintptr_t)site);
    if (__builtin_expect(n && !atomic_load_explicit(&n->site, memory_order_relaxed), 0))
        name_site(n, site);
    put(&at[0], 0);
    put(&at[1], e->digest);
    put(&at[2], e->issued);
    put(&at[3], e->size);
    put(&at[4], e->align);
    put(&at[5], e->off);
    put(&at[6], (uint64_t)(uint32_t)e->lane << 32 | (uint32_t)e->op);
    put(&at[7], (uintptr_t)site);
    /* Both pair with the acquires in get and symm_ledger_differ. */
    atomic_store_explicit(&at[0], e->seq, memory_order_release);
    atomic_store_explicit(&l->mine->count, e->seq, memory_order_release);
}

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

/* 0 if it is not there (any more). */
static int get(const symm_ledger *l, int rank, uint64_t seq, symm_entry *e, char *site) {
    _Atomic uint64_t *at = ring_of(l, rank)->entry[seq % SYMM_LEDGER_CALLS];
    uint64_t w[WORDS];
    if (atomic_load_explicit(&at[0], memory_order_acquire) != seq) return 0;
    for (int i = 1; i < WORDS; i++) w[i] = atomic_load_explicit(&at[i], memory_order_acquire);
    if (atomic_load_explicit(&at[0], memory_order_relaxed) != seq) return 0;
    *e = (symm_entry){.seq = seq,
                      .digest = w[1],
                      .issued = w[2],
                      .size = w[3],
                      .align = w[4],
                      .off = w[5],
                      .op = (int)(uint32_t)w[6],
                      .lane = (int)(w[6] >> 32)};
    site_text(ring_of(l, rank), w[7], site);
    return 1;
}

static void word_call(char *out, size_t cap, const symm_entry *e, const char *site) {
    static const char *const op[] = {"?", "symmAlloc", "symmFree", "symmHeapCollect", "a new size"};
    int n = snprintf(out, cap, "%s of %llu bytes", op[e->op >= 0 && e->op < 5 ? e->op : 0],
                     (unsigned long long)e->size);
    if (e->op == SYMM_OP_ALLOC && n > 0 && (size_t)n < cap)
        n += snprintf(out + n, cap - (size_t)n, " (align %llu)", (unsigned long long)e->align);
    if (n > 0 && (size_t)n < cap)
        n += snprintf(out + n, cap - (size_t)n, " at offset %llu", (unsigned long long)e->off);
    if (e->lane >= 0 && n > 0 && (size_t)n < cap)
        n += snprintf(out + n, cap - (size_t)n, " on lane %d", e->lane);
    if (n > 0 && (size_t)n < cap) snprintf(out + n, cap - (size_t)n, ", from %s", site);
}

/* 1 if call seq differs between two of the ranks that have made it: the others may be on their way. */
static int compare(const symm_ledger *l, uint64_t seq, int oldest, char *text, size_t cap) {
    symm_entry a = {0}, b;
    char sa[SYMM_LEDGER_SITE], sb[SYMM_LEDGER_SITE], wa[200], wb[200];
    int first = 0;
    while (first < l->nranks && !get(l, first, seq, &a, sa)) first++;
    for (int r = first + 1; r < l->nranks; r++) {
        if (!get(l, r, seq, &b, sb) || b.digest == a.digest) continue;
        word_call(wa, sizeof wa, &a, sa);
        word_call(wb, sizeof wb, &b, sb);
        snprintf(text, cap, "call %llu%s: rank %d: %s; rank %d: %s", (unsigned long long)seq,
                 oldest && seq > 1 ? " (or an older one)" : "", first, wa, r, wb);
        return 1;
    }
    return 0;
}

static uint64_t issued(const symm_ledger *l, int rank) {
    return __atomic_load_n(&symm_comm_ctl(l->c, rank)->issued, __ATOMIC_ACQUIRE);
}

/* The ranks agree in the calls that they have made. Who has made one more than another differs from it, if that one has issued a collective
 * which comes after it, or if they have met since; else it may just be late. -1: it has made calls meanwhile, look again. */
static int find_extra(const symm_ledger *l, int met, const uint64_t *count, char *text,
                      size_t cap) {
    symm_entry e;
    char site[SYMM_LEDGER_SITE], words[200];
    for (int a = 0; a < l->nranks; a++)
        for (int b = 0; b < l->nranks; b++) {
            if (count[b] <= count[a] || !get(l, b, count[a] + 1, &e, site)) continue;
            if (!met && issued(l, a) <= e.issued) continue;
            /* It may have made the call, and issued that collective, since its calls were counted. */
            if (atomic_load_explicit(&ring_of(l, a)->count, memory_order_acquire) != count[a])
                return -1;
            word_call(words, sizeof words, &e, site);
            snprintf(text, cap, "call %llu: rank %d: %s; rank %d: none",
                     (unsigned long long)count[a] + 1, b, words, a);
            return 1;
        }
    return 0;
}

static int look(const symm_ledger *l, int met, char *text, size_t cap) {
    uint64_t count[SYMM_MAX_RANKS], most = 0;
    for (int r = 0; r < l->nranks; r++) {
        count[r] = atomic_load_explicit(&ring_of(l, r)->count, memory_order_acquire);
        if (count[r] > most) most = count[r];
    }
    const uint64_t first = most > SYMM_LEDGER_CALLS ? most - SYMM_LEDGER_CALLS + 1 : 1;
    for (uint64_t seq = first; seq <= most; seq++)
        if (compare(l, seq, seq == first, text, cap)) return 1;
    return find_extra(l, met, count, text, cap);
}

int symm_ledger_differ(const symm_ledger *l, int met, char *text, size_t cap) {
    int found = look(l, met, text, cap);
    while (found < 0) found = look(l, met, text, cap); /* each time a rank has made a call more */
    return found;
}

void symm_ledger_publish(symm_ledger *l, uint64_t size) {
    /* Pairs with the acquire in symm_ledger_size: what is mapped. */
    atomic_store_explicit(&l->mine->size, size, memory_order_release);
}

uint64_t symm_ledger_size(const symm_ledger *l, int rank) {
    return atomic_load_explicit(&ring_of(l, rank)->size, memory_order_acquire);
}
