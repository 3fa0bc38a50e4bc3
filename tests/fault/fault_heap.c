/* fault_heap.c - what can go wrong while a heap is made, grown and trimmed: each failpoint on each
 * rank, at its first hits, as an error and as a death. All ranks return an error, the heap is as
 * it was, nothing leaks, and the next growth works. Forked ranks and thread ranks; no lock. */
#include "heap_kit.h"

enum { MAKE, GROW, TRIM, PHASES, RANKS = 3, SIDES = 4, HITS = 3, SETUP_MS = 4000 };

/* A failure: that hit of that failpoint, on rank f->victim. */
typedef struct {
    int point, phase, hit;
} failure;

static const char *const phase_name[PHASES] = {"making", "growing", "trimming"};

static int cannot_tell(int point) {
    return strncmp(symm_fail_name(point), "boot_", 5) == 0;
}

/* What registration meets is met here too; of the bootstrap's points, which wait for deadlines, one
 * will do. */
static int concerns(int point, int threads) {
    return threads
               ? fk_meets(point, "heap_threads")
               : fk_meets(point, "heap") || (fk_meets(point, "register") && !cannot_tell(point));
}

/* A confirmation that does not leave or is not read may split the outcome of an agreement. */
static int may_split(int point, int code) {
    return (point == symm_fp_mesh_send || point == symm_fp_mesh_sendmsg ||
            point == symm_fp_mesh_recvmsg) &&
           code == symmSuccess;
}

static void arm(int point, const char *action, int hit, int victim) {
    char spec[96];
    snprintf(spec, sizeof spec, "%s:%s:%d:%d", symm_fail_name(point), action, hit, victim);
    T_EQ(symm_fail_arm(spec), 0);
}

/* A heap with a block of each zone that holds something. */
typedef struct {
    symmHeap_t heap;
    char *sym, *local;
    symmHeapInfo_t info;
} holding;

static holding hold(hk *k) {
    holding h = {.heap = hk_heap(k, 128 * HK_MB, 12 * HK_MB, 6 * HK_MB)};
    h.sym = hk_sym(h.heap, 100000);
    h.local = hk_local(h.heap, 50000);
    hk_fill(h.sym, 100000, k->rank, 1);
    hk_fill(h.local, 50000, k->rank, 2);
    h.info = hk_info(h.heap);
    return h;
}

static void intact(hk *k, const holding *h, int alone) {
    symmHeapInfo_t now = hk_info(h->heap);
    T_EQ(now.symBytes, h->info.symBytes);
    T_EQ(now.localBytes, h->info.localBytes);
    T_EQ(now.chunks, h->info.chunks);
    T_EQ(now.digest, h->info.digest);
    T_EQ(now.symLargest, h->info.symLargest);
    hk_holds(h->sym, 100000, k->rank, 1);
    hk_holds(h->local, 50000, k->rank, 2);
    for (int r = 0; r < k->n && !alone; r++) hk_holds(hk_peer(k, h->sym, r), 100000, r, 1);
}

/* Whatever it came to: alike on all ranks, and no block has lost its memory. */
static void trimmed(hk *k, const holding *h, int over) {
    hk_holds(h->sym, 100000, k->rank, 1);
    hk_holds(h->local, 50000, k->rank, 2);
    if (over) return;
    HK_ALIKE(k, hk_info(h->heap).symBytes);
    for (int r = 0; r < k->n; r++) hk_holds(hk_peer(k, h->sym, r), 100000, r, 1);
}

/* Memory where the growth that failed would have put it, reached by all. */
static void grows(hk *k, symmHeap_t heap) {
    T_OK(symmHeapGrow(heap, 8 * HK_MB, 4 * HK_MB));
    char *p = hk_sym(heap, 8 * HK_MB);
    hk_fill(p, 3000, k->rank, 5);
    T_OK(symmBarrier(k->comm, NULL));
    for (int r = 0; r < k->n; r++) hk_holds(hk_peer(k, p, r), 3000, r, 5);
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmHeapFree(heap, p));
}

static void judge(hk *k, const failure *what) {
    const int point = what->point, victim = k->f->victim,
              failed = k->f->k.code[victim] != symmSuccess;
    hk_barrier(k);
    for (int r = 0; r < k->n; r++) {
        const int code = k->f->k.code[r];
        T_CHECKF((code != symmSuccess) == failed || may_split(point, code),
                 "%s %d of rank %d, %s: rank %d has code %d (%s)", symm_fail_name(point), what->hit,
                 victim, phase_name[what->phase], r, code, k->f->k.text[r]);
        T_CHECKF(cannot_tell(point) || code == k->f->k.code[victim] || may_split(point, code),
                 "%s %d of rank %d, %s: rank %d has code %d (%s), the victim %d (%s)",
                 symm_fail_name(point), what->hit, victim, phase_name[what->phase], r, code,
                 k->f->k.text[r], k->f->k.code[victim], k->f->k.text[victim]);
    }
    hk_barrier(k);
}

static symmResult_t attempt(hk *k, int phase, holding *h) {
    symmHeapConfig_t c = hk_config(128 * HK_MB, 12 * HK_MB, 6 * HK_MB);
    if (phase == MAKE) return symmHeapCreate(k->comm, &c, &h->heap);
    if (phase == GROW) return symmHeapGrow(h->heap, 8 * HK_MB, 4 * HK_MB);
    return symmHeapTrim(h->heap, 0, NULL);
}

/* 1 if the communicator is over, on every rank. */
static int is_over(hk *k, int point) {
    symmResult_t async;
    T_OK(symmCommGetAsyncError(k->comm, &async));
    atomic_store(&k->f->k.code[k->rank], (int)async);
    hk_barrier(k);
    for (int r = 0; r < k->n; r++)
        T_CHECKF((k->f->k.code[r] != 0) == (async != 0), "%s of rank %d: over on some ranks only",
                 symm_fail_name(point), k->f->victim);
    hk_barrier(k);
    return async != symmSuccess;
}

/* The victim's, behind the attempt: was that hit reached, and did something come of it? Thread
 * ranks: others' hits count too. */
static void see_hits(hk *k, const failure *what) {
    fk *f = k->f;
    const int reached = symm_fail_hits(what->point) >= what->hit;
    atomic_store(&f->hits[1], reached);
    if (reached) atomic_store(&f->hits[0], 1);
    T_CHECKF(f->k.code[f->victim] || k->threads || !reached || fk_survived(what->point),
             "%s %d of rank %d failed, %s, and nothing came of it", symm_fail_name(what->point),
             what->hit, f->victim, phase_name[what->phase]);
    T_EQ(symm_fail_arm(""), 0);
}

static void try_one(hk *k, const failure *what) {
    fk *f = k->f;
    const int phase = what->phase;
    holding h = {0};
    if (phase != MAKE) h = hold(k);
    fk_gauges before = fk_take();
    hk_barrier(k);
    if (k->rank == f->victim) arm(what->point, "error", what->hit, f->victim);
    hk_barrier(k);
    fk_note(f, k->rank, attempt(k, phase, &h));
    hk_barrier(k);
    if (k->rank == f->victim) see_hits(k, what);
    hk_barrier(k);
    judge(k, what);
    const int failed = f->k.code[k->rank] != symmSuccess;
    hk_barrier(k);
    if (failed && phase != TRIM && (k->rank == 0 || !k->threads)) FK_UNCHANGED(&before);
    T_CHECK(phase != MAKE || failed == (h.heap == NULL));
    const int over = is_over(k, what->point);
    if (failed && phase == GROW) intact(k, &h, over);
    if (phase == TRIM) trimmed(k, &h, over);
    if (!over && h.heap) grows(k, h.heap);
    if (h.heap) T_OK(symmHeapDestroy(h.heap));
    if (!over && phase == MAKE) {
        h = hold(k);
        T_OK(symmHeapDestroy(h.heap));
    }
}

/* The phase's next hit, or the next phase's first. */
static void next(const fk *f, failure *what) {
    if (f->hits[1] && what->hit < HITS) {
        what->hit++;
    } else {
        what->phase++;
        what->hit = 1;
    }
}

/* Each rank is the victim in each phase, at each hit up to the first that is not reached; a
 * communicator each, for some points end it. */
static void process_rank(int rank, int n, void *arg) {
    fk *f = arg;
    char limit[16];
    snprintf(limit, sizeof limit, "%d", SETUP_MS);
    hk_env();
    setenv("SYMM_SETUP_TIMEOUT", limit, 1);
    symm_log_rank(rank);
    hk k = {.f = f, .rank = rank, .n = n};
    for (int victim = 0; victim < n; victim++)
        for (failure what = {f->how, 0, 1}; what.phase < PHASES;) {
            hk_barrier(&k);
            f->victim = victim;
            k.comm = fk_open(f, rank, n);
            try_one(&k, &what);
            T_OK(symmCommDestroy(k.comm));
            next(f, &what);
        }
    hk_barrier(&k);
    T_CHECKF(f->hits[0] || !fk_meets(f->how, "heap"), "failpoint %s was not reached",
             symm_fail_name(f->how));
}

static void processes_side(int side, int sides, void *arg) {
    (void)arg;
    T_EXPECT_WARNINGS();
    for (int point = 0, i = 0; point < symm_fp_count; point++)
        if (concerns(point, 0) && i++ % sides == side)
            T_FORK(RANKS, process_rank, fk_new(0, point));
}
static void errors_in_processes(void) {
    T_EXPECT_WARNINGS();
    T_FORK(SIDES, processes_side, NULL);
}

typedef struct {
    fk *f;
    symmComm_t comm[RANKS];
    failure what;
} threads_case;

static void thread_rank(int rank, int n, void *arg) {
    threads_case *c = arg;
    symm_log_rank(rank);
    hk k = {.f = c->f, .rank = rank, .n = n, .threads = 1, .comm = c->comm[rank]};
    try_one(&k, &c->what);
}

static void threads_of(int one, int of, void *arg) {
    char limit[16];
    fk *f = fk_new(0, *(int *)arg);
    (void)one;
    (void)of;
    T_EXPECT_WARNINGS();
    snprintf(limit, sizeof limit, "%d", SETUP_MS);
    hk_env();
    setenv("SYMM_SETUP_TIMEOUT", limit, 1);
    for (int victim = 0; victim < RANKS; victim++)
        for (failure what = {f->how, 0, 1}; what.phase < PHASES; next(f, &what)) {
            threads_case c = {.f = f, .what = what};
            f->victim = victim;
            T_OK(symmCommInitAll(c.comm, RANKS, NULL));
            T_THREADS(RANKS, thread_rank, &c);
            for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(c.comm[r]));
        }
    T_CHECKF(f->hits[0], "failpoint %s was not reached by thread ranks", symm_fail_name(f->how));
}
static void errors_in_thread_ranks(void) {
    T_EXPECT_WARNINGS();
    for (int point = 0; point < symm_fp_count; point++)
        if (concerns(point, 1)) T_FORK(1, threads_of, &point);
}

/* ---- deaths ---- */

/* f->hits: the hit of which the victim dies; 1 if it was not reached, and it died behind the
 * growth. */

static void dying_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t next;
    hk_env();
    setenv("SYMM_SETUP_TIMEOUT", "5000", 1);
    symm_log_rank(rank);
    hk k = {.f = f, .rank = rank, .n = n};
    k.comm = fk_open(f, rank, n);
    holding h = hold(&k);
    hk_barrier(&k);
    if (rank == f->victim) arm(f->how, "kill", f->hits[0], rank);
    symmResult_t r = symmHeapGrow(h.heap, 8 * HK_MB, 4 * HK_MB);
    if (rank == f->victim) {
        atomic_store(&f->hits[1], 1);
        kill(getpid(), SIGKILL);
    }
    const int grown = !r;
    if (grown) r = symmBarrier(k.comm, NULL); /* behind the last confirmation */
    T_CHECKF(r == symmRemoteError, "%s: code %d (%s)", symm_fail_name(f->how), r,
             symmGetLastError(NULL));
    T_MSG(symmGetLastError(NULL), "rank");
    if (!grown) intact(&k, &h, 1);
    hk_holds(h.sym, 100000, rank, 1);
    T_ERR(symmHeapGrow(h.heap, HK_MB, 0), symmRemoteError);
    void *p;
    T_OK(symmHeapAlloc(h.heap, 100, 0, SYMM_ALLOC_LOCAL, &p)); /* its own affair */
    T_OK(symmHeapFree(h.heap, p));
    kit_barrier(&f->k, n - 1);
    T_OK(symmCommShrink(k.comm, &f->victim, 1, &next, NULL, 0));
    T_OK(symmHeapDestroy(h.heap));
    T_OK(symmCommDestroy(k.comm));
    k.rank = rank > f->victim ? rank - 1 : rank;
    k.n = n - 1;
    k.comm = next;
    h = hold(&k);
    grows(&k, h.heap);
    T_OK(symmCommDestroy(next));
}

static void dies_of(int point, int victim) {
    for (int hit = 1, late = 0; hit <= HITS && !late; hit++) {
        fk *f = fk_new(victim, point);
        f->hits[0] = hit;
        T_FORK_DIES(RANKS, victim, dying_rank, f);
        late = f->hits[1];
    }
}

static void deaths_side(int side, int sides, void *arg) {
    (void)arg;
    T_EXPECT_WARNINGS();
    for (int point = 0, i = 0; point < symm_fp_count; point++)
        if (fk_meets(point, "heap") && !cannot_tell(point) && i++ % sides == side)
            for (int victim = 0; victim < RANKS; victim++) dies_of(point, victim);
}
static void a_rank_killed_while_growing(void) {
    T_EXPECT_WARNINGS();
    T_FORK(SIDES, deaths_side, NULL);
}

/* ---- divergence ---- */

enum { EXTRA, OTHER_SIZE, OTHER_ORDER, NO_FREE, OTHER_ALIGN, MISSING, KINDS };
static const char *const kind_text[KINDS] = {
    "symmHeapAlloc of 999 bytes", "of 5001 bytes", "symmHeapFree of",
    "symmHeapAlloc of 300 bytes", "(align 4096)",  "none"};

typedef struct {
    int kind, culprit,
        /* how: found by a collective, by symmHeapCheck, by the next growth, by one on a stream */
        how;
} bent;

enum { BY_COLLECTIVE, BY_CHECK, BY_GROW, BY_STREAM, BY_REMEMBERED, WAYS };

static void bend(symmHeap_t heap, int kind, int me) {
    void *a, *b;
    /* At offset 0 whatever the alignment. */
    T_OK(symmHeapAlloc(heap, 2000, kind == OTHER_ALIGN && me ? 4096 : 0, SYMM_ALLOC_SYM, &a));
    if (kind == EXTRA && me) hk_sym(heap, 999);
    b = hk_sym(heap, kind == OTHER_SIZE && me ? 5001 : 5000);
    if (kind == OTHER_ORDER && me) T_OK(symmHeapFree(heap, b));
    if (!(kind == NO_FREE && me)) T_OK(symmHeapFree(heap, a));
    if (kind == OTHER_ORDER && !me) T_OK(symmHeapFree(heap, b));
    if (!(kind == MISSING && me)) hk_sym(heap, 300);
}

static symmResult_t notice(hk *k, symmHeap_t heap, int how) {
    int *p = hk_local(heap, 400000);
    symmStream_t s;
    symmResult_t r;
    switch (how) {
    case BY_CHECK: return symmHeapCheck(heap);
    case BY_GROW: return symmHeapGrow(heap, 2 * HK_MB, 0);
    case BY_REMEMBERED: return symmBarrier(k->comm, NULL); /* as it was called before */
    case BY_STREAM:
        T_OK(symmStreamCreate(&s));
        r = symmAllReduce(p, p, 3000, symmInt32, symmSum, k->comm, s);
        if (!r) r = symmStreamSynchronize(s); /* else a peer that found it first had told it */
        T_OK(symmStreamDestroy(s));
        return r;
    default: return symmAllReduce(p, p, 50000, symmInt32, symmSum, k->comm, NULL);
    }
}

static void diverge(void *arg) {
    hk *k = arg;
    const bent *b = k->arg;
    char line[80];
    symmHeap_t other = hk_heap(k, 64 * HK_MB, 2 * HK_MB, 0),
               heap = hk_heap(k, 64 * HK_MB, 4 * HK_MB, 2 * HK_MB);
    for (int i = 0; i < 20; i++) T_OK(symmHeapFree(other, hk_sym(other, 100 + (size_t)i)));
    T_OK(symmBarrier(k->comm, NULL)); /* nothing yet */
    fk_works(k->comm, k->rank, k->n);
    bend(heap, b->kind, k->rank == b->culprit);
    symmResult_t r = notice(k, heap, b->how);
    const char *text = symmGetLastError(NULL);
    T_CHECKF(r == symmMismatch, "kind %d, way %d: rank %d got %d (%s)", b->kind, b->how, k->rank, r,
             text);
    T_CHECKF(strstr(text, "zone SYM of heap 2"), "kind %d, way %d: \"%s\"", b->kind, b->how, text);
    T_CHECKF(strstr(text, kind_text[b->kind]), "kind %d: \"%s\"", b->kind, text);
    snprintf(line, sizeof line, "rank %d: ", b->culprit);
    T_CHECKF(strstr(text, line), "\"%s\" does not name rank %d", text, b->culprit);
    T_CHECKF(strstr(text, "from fault_heap"), "no call site in \"%s\"", text);
    if (b->how == BY_CHECK) T_OK(symmHeapDestroy(heap)); /* told, not broken */
}

static void divergence_is_found(int threads) {
    T_EXPECT_WARNINGS();
    for (int kind = 0; kind < KINDS; kind++)
        for (int how = 0; how < WAYS; how++) {
            /* Whether a call was left out or will still come, a collective tells. */
            if (kind == MISSING && (how == BY_CHECK || how == BY_GROW)) continue;
            bent b = {kind, 1 + (kind + how) % 2, how};
            if (threads)
                hk_threads(RANKS, diverge, &b);
            else
                hk_processes(RANKS, diverge, &b);
        }
}
static void divergence_is_found_among_processes(void) {
    divergence_is_found(0);
}
static void divergence_is_found_among_threads(void) {
    divergence_is_found(1);
}

/* More places than the ledger has names for: those that came too late are told by their
 * addresses. */
static void from_many_places(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 2 * HK_MB, 0);
    symm_heap *h;
    char late[32];
    const uintptr_t here = (uintptr_t)&from_many_places;
    T_OK(symm_heap_enter(heap, 1, &h));
    for (uintptr_t i = 0; i < 1000; i++) symm_heap_note(h, 0, 64, -1, 0, (void *)(here + i));
    symm_heap_note(h, 0, k->rank ? 99 : 98, -1, 0, (void *)(here + 1000));
    symm_heap_leave(h);
    T_ERR(symmHeapCheck(heap), symmMismatch);
    const char *text = symmGetLastError(NULL);
    snprintf(late, sizeof late, "from %p", (void *)(here + 1000));
    T_CHECKF(strstr(text, "symmHeapAlloc of 98 bytes") && strstr(text, "symmHeapAlloc of 99 bytes"),
             "%s", text);
    T_CHECKF(k->rank || strstr(text, late), "\"%s\" does not say \"%s\"", text, late);
}
static void a_place_without_a_name_is_told_by_its_address(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, from_many_places, NULL);
    hk_threads(RANKS, from_many_places, NULL);
}

/* The ranks differ in call 7 and make `then` equal calls behind it; last: rank 1 makes so many
 * more. */
typedef struct {
    int then, last;
    const char *says, *never;
} old_call;

static void long_ago(void *arg) {
    hk *k = arg;
    const old_call *o = k->arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 2 * HK_MB, 0);
    symm_heap *h;
    const char *text;
    T_OK(symm_heap_enter(heap, 1, &h));
    for (int i = 1; i <= 6; i++) symm_heap_note(h, 0, 64, -1, 0, NULL);
    symm_heap_note(h, 0, k->rank == 1 && !o->last ? 99 : 98, -1, 0, NULL);
    for (int i = 0; i < o->then; i++) symm_heap_note(h, 0, 64, -1, 0, NULL);
    for (int i = 0; k->rank == 1 && i < o->last; i++) symm_heap_note(h, 0, 77, -1, 0, NULL);
    symm_heap_leave(h);
    T_ERR(symmHeapCheck(heap), symmMismatch);
    text = symmGetLastError(NULL);
    T_CHECKF(strstr(text, o->says), "%d calls: \"%s\" does not say \"%s\"", o->then, text, o->says);
    T_CHECKF(!strstr(text, o->never), "%d calls: \"%s\" says \"%s\"", o->then, text, o->never);
}
static void a_call_of_long_ago_is_told_by_marks(void) {
    static const char said[] = "longer ago than";
    static const old_call jobs[] = {
        {400, 0, "call 7: rank 0: symmHeapAlloc of 98 bytes", said},
        {1022, 0, "call 7: rank 0: symmHeapAlloc of 98 bytes", said},
        {1023, 0, "the last 1023 calls, between calls 1 and 7", "of 98 bytes"},
        {1024, 0, "the last 1023 calls, between calls 1 and 8", "of 64 bytes"},
        {1200, 0, "the last 1023 calls, between calls 1 and 128", "of 64 bytes"},
        {100000, 0, "the last 1023 calls, between calls 1 and 8192", "of 64 bytes"},
        {0, 50, "call 8: rank 1: symmHeapAlloc of 77 bytes", said},
        {0, 2000, "call 8: rank 1: one of 2000 more, longer ago", "of 77 bytes"}};
    T_EXPECT_WARNINGS();
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        old_call o = jobs[i];
        hk_threads(RANKS, long_ago, &o);
    }
}

/* Also where the ranks had agreed for long: to an eighth of how long ago it is. */
static void late_divergence(void *arg) {
    hk *k = arg;
    symmHeap_t heap = hk_heap(k, 64 * HK_MB, 2 * HK_MB, 0);
    symm_heap *h;
    T_OK(symm_heap_enter(heap, 1, &h));
    for (int i = 1; i <= 60000; i++)
        symm_heap_note(h, 0, i == 50000 && k->rank == 2 ? 99 : 64, -1, 0, NULL);
    symm_heap_leave(h);
    T_ERR(symmHeapCheck(heap), symmMismatch);
    T_MSG(symmGetLastError(NULL), "ranks 0 and 2, ");
    T_MSG(symmGetLastError(NULL), "between calls 49153 and 50176");
}
static void marks_are_closer_the_later_they_are(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, late_divergence, NULL);
}

/* Orders that change nothing are no divergence. */
static void two_heaps(void *arg) {
    hk *k = arg;
    symmHeap_t a = hk_heap(k, 64 * HK_MB, 2 * HK_MB, 2 * HK_MB),
               b = hk_heap(k, 64 * HK_MB, 2 * HK_MB, 2 * HK_MB);
    for (int i = 0; i < 1200; i++) { /* longer than the ledger */
        symmHeap_t first = k->rank == 1 ? b : a, second = k->rank == 1 ? a : b;
        hk_sym(first, 64);
        hk_sym(second, 64);
        if (i % k->n == k->rank) hk_local(first, 99);
        if (i % 50 == 0) T_OK(symmBarrier(k->comm, NULL));
    }
    fk_works(k->comm, k->rank, k->n);
    T_OK(symmHeapCheck(a));
    T_OK(symmHeapCheck(b));
}
static void what_has_no_order_is_no_divergence(void) {
    hk_processes(RANKS, two_heaps, NULL);
    hk_threads(RANKS, two_heaps, NULL);
}

T_MAIN(T(errors_in_processes), T(errors_in_thread_ranks), T(a_rank_killed_while_growing),
       T(divergence_is_found_among_processes), T(divergence_is_found_among_threads),
       T(a_place_without_a_name_is_told_by_its_address), T(a_call_of_long_ago_is_told_by_marks),
       T(marks_are_closer_the_later_they_are), T(what_has_no_order_is_no_divergence))
