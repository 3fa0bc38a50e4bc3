/* ledger.c - a ring of calls per rank in shared host memory. A rank writes its own ring and reads
 * the others' while they write (call_ring.h). note: with the heap's lock; all else: any thread. */
#define _GNU_SOURCE /* dladdr */
#include "ledger.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "host/comm/call_ring.h"
#include "host/comm/comm.h"
#include "heap_int.h"

enum {
    WORDS =
        /* of an entry, which is a cache line: seq, digest, issued, size, align, off, op and lane,
         * the site */
    8,
    SITES = 64,
    PROBES = 8,
    HEAD = 8192, /* bytes before the ring */
    /* Marks: the digests after the last 16 multiples of 128 calls, of 256, and so on back to the
     * first call. They tell where a call lies that the ring has lost, to an eighth of how long ago
     * it is. */
    STEP = 7,
    LEVELS = 32,
    EACH = 16,
    PART = HEAD + LEVELS * EACH * 16 + SYMM_LEDGER_CALLS * WORDS * 8
};

typedef struct { /* a call site as text; never changed once site is stored */
    _Atomic uint64_t site;
    _Atomic uint64_t text[SYMM_LEDGER_SITE / 8];
} named;

typedef struct {
    uint64_t seq, digest;
} mark;

typedef struct { /* a rank's part */
    _Atomic uint64_t count;
    _Atomic uint64_t size; /* of a vector */
    named sites[SITES];
    _Atomic uint64_t nlists, list[SYMM_LEDGER_LISTS][SYMM_LEDGER_MASK];
    char pad[HEAD - 24 - SITES * sizeof(named) - SYMM_LEDGER_LISTS * SYMM_LEDGER_MASK * 8];
    mark marks[LEVELS][EACH];
    uint64_t entry[SYMM_LEDGER_CALLS][WORDS];
} ring;
_Static_assert(sizeof(ring) == PART, "whole pages");

struct symm_ledger {
    symm_shared *shared;
    const symm_comm *c;
    ring *mine;
    int nranks;
};

static ring *ring_of(const symm_ledger *l, int rank) {
    SYMM_ASSERT(rank >= 0 && rank < l->c->nranks);
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
    SYMM_ASSERT(atomic_load_explicit(&l->mine->count, memory_order_relaxed) == 0);
    *out = l;
    return symmSuccess;
}

void symm_ledger_close(symm_ledger *l) {
    if (!l) return;
    symm_shared_drop(l->shared);
    free(l);
}

/* ---- call sites
 * ------------------------------------------------------------------------------- */

/* The entry of that site in a rank's part, or an empty one for it; NULL: there is no room. */
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

/* "program+0x123 (function)", looked up once per site. */
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

/* The text of a site; if it has none, its address. */
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

/* ---- writing --------------------------------------------------------------------------------- */

static mark *mark_of(ring *r, uint64_t seq, int level) {
    return &r->marks[level][(seq >> (STEP + level)) % EACH];
}

/* Once in 128 calls, two marks on average. */
static void leave_marks(ring *r, uint64_t seq, uint64_t digest) {
    const uint64_t words[] = {seq, digest};
    for (int i = 0; i < LEVELS && seq % (1ull << (STEP + i)) == 0; i++)
        symm_entry_write(&mark_of(r, seq, i)->seq, words, 2);
}

void symm_ledger_note(symm_ledger *l, const symm_entry *e, const void *site) {
    const uint64_t words[WORDS] = {e->seq,
                                   e->digest,
                                   e->issued,
                                   e->size,
                                   e->align,
                                   e->off,
                                   (uint64_t)(uint32_t)e->lane << 32 | (uint32_t)e->op,
                                   (uintptr_t)site};
    named *n = find_site(l->mine, (uintptr_t)site);
    SYMM_ASSERT(e->op >= SYMM_OP_ALLOC && e->op <= SYMM_OP_RESIZE);
    SYMM_ASSERT(e->seq == atomic_load_explicit(&l->mine->count, memory_order_relaxed) + 1);
    if (__builtin_expect(n && !atomic_load_explicit(&n->site, memory_order_relaxed), 0))
        name_site(n, site);
    symm_entry_write(l->mine->entry[e->seq % SYMM_LEDGER_CALLS], words, WORDS);
    if (__builtin_expect(e->seq % (1u << STEP) == 0, 0)) leave_marks(l->mine, e->seq, e->digest);
    /* Pairs with the acquires in find_extra and look: who reads the count finds the entry. */
    atomic_store_explicit(&l->mine->count, e->seq, memory_order_release);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* 0 if it is not there, or not any more. */
static int get(const symm_ledger *l, int rank, uint64_t seq, symm_entry *e, char *site) {
    uint64_t w[WORDS];
    if (!symm_entry_read(ring_of(l, rank)->entry[seq % SYMM_LEDGER_CALLS], w, WORDS)) return 0;
    if (w[0] != seq) return 0;
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
    static const char *const op[] = {"?", "symmHeapAlloc", "symmHeapFree", "symmHeapCollect",
                                     "a new size"};
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

/* The digest after call seq, which is a mark of that level; 0 if it is not there (any more). */
static int get_mark(const symm_ledger *l, int rank, uint64_t seq, int level, uint64_t *digest) {
    uint64_t w[2];
    if (!symm_entry_read(&mark_of(ring_of(l, rank), seq, level)->seq, w, 2)) return 0;
    *digest = w[1];
    return w[0] == seq;
}

/* As far as is known, ranks a and b agree in call *lo and differ in call *hi. Marks that both have
 * narrow this range. */
static void narrow(const symm_ledger *l, int a, int b, uint64_t *lo, uint64_t *hi) {
    uint64_t da, db;
    for (int level = 0; level < LEVELS; level++)
        for (int i = 0; i < EACH; i++) {
            const uint64_t seq = symm_word_get(&ring_of(l, a)->marks[level][i].seq);
            if (seq <= *lo || seq >= *hi || !get_mark(l, a, seq, level, &da) ||
                !get_mark(l, b, seq, level, &db))
                continue;
            *(da == db ? lo : hi) = seq;
        }
}

/* Ranks a and b differ in call seq: whether it is the first such call. */
static int is_first(const symm_ledger *l, int a, int b, uint64_t seq) {
    symm_entry ea, eb;
    char site[SYMM_LEDGER_SITE];
    uint64_t lo = 0, hi = seq;
    if (get(l, a, seq - 1, &ea, site) && get(l, b, seq - 1, &eb, site))
        return ea.digest == eb.digest;
    narrow(l, a, b, &lo, &hi);
    return lo == seq - 1;
}

/* Tells from the marks which rank differs from rank a first. known: a rank that differs in call hi;
 * -1: none is known yet. */
static int older(const symm_ledger *l, int a, int known, uint64_t hi, char *text, size_t cap) {
    uint64_t first = UINT64_MAX, behind = 0;
    int who = -1;
    for (int b = 0; b < l->nranks; b++) {
        uint64_t lo = 0, to = hi;
        if (b != a) narrow(l, a, b, &lo, &to);
        if ((to == hi && b != known) || to >= first) continue;
        first = to;
        behind = lo;
        who = b;
    }
    if (who < 0) return 0;
    snprintf(text, cap,
             "ranks %d and %d, longer ago than the last %d calls, between calls %llu and %llu",
             a < who ? a : who, a < who ? who : a, SYMM_LEDGER_CALLS - 1,
             (unsigned long long)behind + 1, (unsigned long long)first);
    return 1;
}

/* 1 if call seq differs between two ranks that have made it. Other ranks may not have made it
 * yet. */
static int compare(const symm_ledger *l, uint64_t seq, char *text, size_t cap) {
    symm_entry a = {0}, b;
    char sa[SYMM_LEDGER_SITE], sb[SYMM_LEDGER_SITE], wa[200], wb[200];
    int first = 0;
    while (first < l->nranks && !get(l, first, seq, &a, sa)) first++;
    for (int r = first + 1; r < l->nranks; r++) {
        if (!get(l, r, seq, &b, sb) || b.digest == a.digest) continue;
        if (!is_first(l, first, r, seq)) return older(l, first, r, seq, text, cap);
        word_call(wa, sizeof wa, &a, sa);
        word_call(wb, sizeof wb, &b, sb);
        snprintf(text, cap, "call %llu: rank %d: %s; rank %d: %s", (unsigned long long)seq, first,
                 wa, r, wb);
        return 1;
    }
    return 0;
}

static uint64_t issued(const symm_ledger *l, int rank) {
    return __atomic_load_n(&symm_comm_ctl(l->c, rank)->issued, __ATOMIC_ACQUIRE);
}

/* For ranks that agree in the calls that all have made. If b has made one more than a, they differ
 * in two cases: a has issued a collective that comes after that call, or they have met since. Else
 * a may only be late. -1: a has made calls meanwhile; look again. */
static int find_extra(const symm_ledger *l, int met, const uint64_t *count, char *text,
                      size_t cap) {
    symm_entry e;
    char site[SYMM_LEDGER_SITE], words[200];
    for (int a = 0; a < l->nranks; a++)
        for (int b = 0; b < l->nranks; b++) {
            if (count[b] <= count[a]) continue;
            const int kept = get(l, b, count[a] + 1, &e, site);
            if (!met && (!kept || issued(l, a) <= e.issued)) continue;
            /* a may have made the call and issued that collective since its calls were counted. */
            if (atomic_load_explicit(&ring_of(l, a)->count, memory_order_acquire) != count[a])
                return -1;
            if (kept)
                word_call(words, sizeof words, &e, site);
            else
                snprintf(words, sizeof words, "one of %llu more, longer ago than the last %d",
                         (unsigned long long)(count[b] - count[a]), SYMM_LEDGER_CALLS);
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
        if (compare(l, seq, text, cap)) return 1;
    for (int a = 0; first > 1 && a < l->nranks; a++)
        if (older(l, a, -1, UINT64_MAX, text, cap)) return 1;
    return find_extra(l, met, count, text, cap);
}

int symm_ledger_differ(const symm_ledger *l, int met, char *text, size_t cap) {
    if (l->c->hosts > 1) return 0; /* the others' rings are elsewhere */
    int found = look(l, met, text, cap);
    while (found < 0) found = look(l, met, text, cap); /* a rank makes a call each time: it ends */
    return found;
}

int symm_ledger_access(symm_ledger *l, const uint64_t *ranks) {
    ring *r = l->mine;
    const uint64_t n = atomic_load_explicit(&r->nlists, memory_order_relaxed);
    for (uint64_t i = 0; i < n; i++) {
        int same = 1;
        for (int w = 0; w < SYMM_LEDGER_MASK; w++)
            same &= atomic_load_explicit(&r->list[i][w], memory_order_relaxed) == ranks[w];
        if (same) return (int)i + 1;
    }
    if (n == SYMM_LEDGER_LISTS) return 0;
    for (int w = 0; w < SYMM_LEDGER_MASK; w++)
        atomic_store_explicit(&r->list[n][w], ranks[w], memory_order_relaxed);
    atomic_store_explicit(&r->nlists, n + 1,
                          memory_order_release); /* pairs with the acquire below */
    return (int)n + 1;
}

int symm_ledger_allows(const symm_ledger *l, int owner, int list, int rank) {
    ring *r = ring_of(l, owner);
    const uint64_t n = atomic_load_explicit(&r->nlists, memory_order_acquire);
    if (list < 1 || (uint64_t)list > n || list > SYMM_LEDGER_LISTS) return -1;
    return atomic_load_explicit(&r->list[list - 1][rank / 64], memory_order_relaxed) >> rank % 64 &
           1;
}

void symm_ledger_publish(symm_ledger *l, uint64_t size) {
    /* Pairs with the acquire in symm_ledger_size: what is mapped. */
    atomic_store_explicit(&l->mine->size, size, memory_order_release);
}

void symm_ledger_hear(symm_ledger *l, int rank, uint64_t size) {
    SYMM_ASSERT(l->c->hosts > 1 && rank != l->c->rank); /* else the word is not ours to write */
    /* Relaxed: what is mapped here this rank's own size says, and symmVecSync reads that too. */
    atomic_store_explicit(&ring_of(l, rank)->size, size, memory_order_relaxed);
}

uint64_t symm_ledger_size(const symm_ledger *l, int rank) {
    return atomic_load_explicit(&ring_of(l, rank)->size, memory_order_acquire);
}
