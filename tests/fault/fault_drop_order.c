/* fault_drop_order.c - windows that ranks drop whenever they like: in any order, one rank long
 * before another, with collectives on the memory in between, which some ranks then find registered
 * and some do not; dropped memory that is registered again, and what is freed when. Ranks are
 * forked processes, and the same as threads where no slots are involved. */
#include <pthread.h>

#include "graph_kit.h"
#include "fault_kit.h"

enum { HALF = 1 << 20, BYTES = 2 * HALF * (int)sizeof(int), MANY = 70000, FEW = 5 };

typedef struct {
    symmComm_t comm;
    int rank, n, *buf; /* HALF ints to send, as many to receive */
    fk *f;
} side;

/* ---- collectives on memory, whoever has it registered ---- */

static void reduce(const side *s, int *send, int *recv, int count, int salt, symmStream_t stream) {
    for (int i = 0; i < count; i++) send[i] = i % 1000 + s->rank * 7 + salt;
    if (recv != send) memset(recv, 0xee, (size_t)count * sizeof *recv);
    T_OK(symmAllReduce(send, recv, (size_t)count, symmInt32, symmSum, s->comm, stream));
    if (stream) T_OK(symmStreamSynchronize(stream));
    for (int i = 0; i < count; i++) {
        int want = s->n * (i % 1000 + salt) + 7 * s->n * (s->n - 1) / 2;
        T_CHECKF(recv[i] == want, "rank %d, salt %d: element %d of %d is %d, not %d", s->rank, salt,
                 i, count, recv[i], want);
    }
}

static void gather(const side *s, int *recv, int count, int salt, int in_place) {
    int *send = in_place ? recv + s->rank * count : s->buf;
    memset(recv, 0xee, (size_t)(count * s->n) * sizeof *recv);
    for (int i = 0; i < count; i++) send[i] = i % 1000 + s->rank * 7 + salt;
    T_OK(symmAllGather(send, recv, (size_t)count, symmInt32, s->comm, NULL));
    for (int r = 0; r < s->n; r++)
        for (int i = 0; i < count; i++)
            T_CHECKF(recv[r * count + i] == i % 1000 + r * 7 + salt,
                     "rank %d, salt %d: element %d of rank %d is %d", s->rank, salt, i, r,
                     recv[r * count + i]);
}

/* Zero-copy and packets, in place and not. */
static void use(const side *s, int salt) {
    int *recv = s->buf + HALF;
    reduce(s, s->buf, recv, MANY, salt, NULL);
    reduce(s, recv, recv, MANY, salt + 1, NULL);
    reduce(s, s->buf, recv, FEW, salt + 2, NULL);
    reduce(s, s->buf, s->buf, FEW, salt + 3, NULL);
    gather(s, recv, MANY, salt + 4, 0);
    gather(s, recv, MANY, salt + 5, 1);
    gather(s, recv, FEW, salt + 6, 0);
}

static symmWindow_t add(const side *s, void *p, size_t bytes) {
    symmWindow_t win;
    T_OK(symmWindowRegister(s->comm, p, bytes, &win, SYMM_WIN_DEFAULT));
    return win;
}

static void drop(const side *s, symmWindow_t win) {
    T_OK(symmWindowDeregister(s->comm, win));
}

static uint64_t slot_of(symmWindow_t win) {
    symmWindowInfo_t info = {.size = sizeof info};
    T_OK(symmWindowQuery(win, &info));
    return info.slotOffset;
}

/* Every rank that has the window (the others bring NULL) sees every rank's memory through it. */
static void peers_are_seen(const side *s, symmWindow_t win, int *buf, int salt) {
    void *p;
    buf[0] = salt + s->rank;
    T_OK(symmBarrier(s->comm, NULL));
    for (int r = 0; win && r < s->n; r++) {
        T_OK(symmWindowPeerPtr(win, 0, r, &p));
        T_EQ(*(volatile int *)p, salt + r);
    }
    T_OK(symmBarrier(s->comm, NULL));
}

static side open_side(fk *f, int rank, int n) {
    side s = {.rank = rank, .n = n, .f = f, .comm = fk_open(f, rank, n)};
    T_OK(symmMemAlloc((void **)&s.buf, BYTES));
    return s;
}

static void close_side(side *s) {
    T_OK(symmCommDestroy(s->comm));
    T_OK(symmMemFree(s->buf));
}

/* 2, 3 and 4 ranks, as processes and as threads. */
static void run(t_rank_fn fn, int threads_too) {
    for (int n = 2; n <= 4; n++) {
        T_FORK(n, fn, fk_new(0, 0));
        if (threads_too) T_THREADS(n, fn, fk_new(0, 1));
    }
}

/* ---- every subset, every order ---- */

/* The ranks of each subset drop, then the others do. Registered again the memory is where it was,
 * without anything being mapped; where all that is dropped was freed in between, it is mapped
 * anew. */
static void subset_rank(int rank, int n, void *arg) {
    fk *f = arg;
    side s = open_side(f, rank, n);
    fk_gauges before = fk_take();
    for (int mask = 0; mask < 1 << n; mask++) {
        int revived = mask && mask % 3, first = mask >> rank & 1;
        int64_t maps = SYMM_STAT_GET(maps), shared = SYMM_STAT_GET(registrations_shared);
        symmWindow_t win = add(&s, s.buf, BYTES);
        if (!f->how) {
            T_EQ(SYMM_STAT_GET(registrations_shared), shared + revived);
            T_EQ(SYMM_STAT_GET(maps), maps + (revived ? 0 : n));
        }
        use(&s, mask * 100);
        if (first) drop(&s, win);
        use(&s, mask * 100 + 20);
        peers_are_seen(&s, first ? NULL : win, s.buf, mask * 100);
        if (!first) drop(&s, win);
        use(&s, mask * 100 + 40);
        if ((mask + 1) % 3) continue;
        if (f->how)
            fk_collect(s.comm);
        else
            FK_COLLECTED(s.comm, &before);
    }
    close_side(&s);
}

static void every_subset(void) {
    run(subset_rank, 1);
}

/* The i-th permutation: at which step each rank drops. */
static int step_of(int rank, int n, int i) {
    int left[4] = {0, 1, 2, 3}, step = 0;
    for (int r = 0; r <= rank; r++) {
        int k = i % (n - r);
        i /= n - r;
        step = left[k];
        for (; k < 3; k++) left[k] = left[k + 1];
    }
    return step;
}

static void order_rank(int rank, int n, void *arg) {
    static const int orders[] = {1, 1, 2, 6, 24};
    side s = open_side(arg, rank, n);
    for (int i = 0; i < orders[n]; i++) {
        symmWindow_t win = add(&s, s.buf, BYTES);
        for (int step = 0; step < n; step++) {
            if (step_of(rank, n, i) == step) drop(&s, win);
            reduce(&s, s.buf, s.buf + HALF, MANY, 10 * i + step, NULL);
            gather(&s, s.buf + HALF, MANY, 10 * i + step, 0);
        }
    }
    close_side(&s);
}

static void every_order(void) {
    int seen[256] = {0};
    for (int i = 0; i < 24; i++) { /* the permutations are all there */
        int steps = 0, key = 0;
        for (int r = 0; r < 4; r++) {
            steps |= 1 << step_of(r, 4, i);
            key = key * 4 + step_of(r, 4, i);
        }
        T_CHECK(steps == 15 && !seen[key]++);
    }
    run(order_rank, 1);
}

/* ---- memory that one rank has freed ---- */

/* `left` drops its window and frees the memory, the others keep theirs: in collectives it brings
 * other memory. */
static void freed_rank(int rank, int n, void *arg) {
    fk *f = arg;
    side s = open_side(f, rank, n);
    for (int left = 0; left < n; left++) {
        symmWindow_t win = add(&s, s.buf, BYTES), other = NULL;
        use(&s, 100 * left);
        int *heap = NULL;
        if (rank == left) {
            drop(&s, win);
            T_OK(symmMemFree(s.buf));
            T_CHECK((heap = malloc(BYTES)));
            s.buf = heap;
        }
        use(&s, 100 * left + 20);
        reduce(&s, s.buf, s.buf + HALF, HALF, 100 * left + 30, NULL);
        if (rank == left) T_OK(symmMemAlloc((void **)&s.buf, BYTES));
        other = add(&s, s.buf, BYTES); /* the others register the same once more */
        use(&s, 100 * left + 40);
        peers_are_seen(&s, other, s.buf, 100 * left);
        if (rank != left) drop(&s, win);
        use(&s, 100 * left + 60);
        drop(&s, other);
        free(heap);
    }
    close_side(&s);
}

static void memory_freed_by_one_rank(void) {
    run(freed_rank, 1);
}

/* ---- what is freed ---- */

/* Only what all have dropped: rank 0 drops A, rank 1 drops B, and C is registered; then the rest of
 * A and D; then the rest of B. */
static void crosswise_rank(int rank, int n, void *arg) {
    side s = open_side(arg, rank, n), a = s, b = s, c = s;
    T_OK(symmMemAlloc((void **)&a.buf, BYTES));
    T_OK(symmMemAlloc((void **)&b.buf, BYTES));
    T_OK(symmMemAlloc((void **)&c.buf, BYTES));
    fk_gauges before = fk_take();
    int64_t maps = SYMM_STAT_GET(maps);
    symmWindow_t wa = add(&a, a.buf, BYTES), wb = add(&b, b.buf, BYTES);
    uint64_t at_a = slot_of(wa), at_b = slot_of(wb);
    if (rank == 0) drop(&a, wa);
    if (rank == 1) drop(&b, wb);
    symmWindow_t wc = add(&c, c.buf, BYTES);
    T_CHECK(slot_of(wc) != at_a && slot_of(wc) != at_b);
    T_EQ(SYMM_STAT_GET(maps), maps + 3 * n); /* nothing is freed */
    use(&a, 100);
    use(&b, 200);
    peers_are_seen(&a, rank ? wa : NULL, a.buf, 10);
    if (rank != 0) drop(&a, wa);
    symmWindow_t wd = add(&s, s.buf, BYTES);
    T_EQ(slot_of(wd), at_a); /* A is gone, B is not */
    T_EQ(SYMM_STAT_GET(maps), maps + 3 * n);
    use(&a, 300);
    use(&b, 400);
    use(&s, 500);
    wa = add(&a, a.buf, BYTES); /* and back, crosswise */
    if (rank == 1) drop(&a, wa);
    if (rank != 1) drop(&b, wb);
    use(&a, 600);
    use(&b, 700);
    wb = add(&b, b.buf, BYTES);
    T_EQ(slot_of(wb), at_b); /* all had dropped it, and all have it again */
    peers_are_seen(&b, wb, b.buf, 20);
    use(&a, 800);
    if (rank != 1) drop(&a, wa);
    drop(&b, wb);
    drop(&c, wc);
    drop(&s, wd);
    T_EQ(SYMM_STAT_GET(dropped), 4);
    FK_COLLECTED(s.comm, &before);
    T_OK(symmMemFree(a.buf));
    T_OK(symmMemFree(b.buf));
    T_OK(symmMemFree(c.buf));
    close_side(&s);
}

static void crosswise(void) {
    run(crosswise_rank, 0);
}

/* More than one message of offsets, and lists of different lengths: every rank has dropped others
 * besides the common ones. */
enum { PIECES = 150 };

static void many_rank(int rank, int n, void *arg) {
    side s = open_side(arg, rank, n);
    void *piece[PIECES];
    symmWindow_t win[PIECES];
    for (int i = 0; i < PIECES; i++) T_OK(symmMemAlloc(&piece[i], 4096));
    fk_gauges before = fk_take();
    for (int i = 0; i < PIECES; i++) win[i] = add(&s, piece[i], 4096);
    int common = 0, mine = 0;
    for (int i = 0; i < PIECES; i++) {
        int all = i % 7 < 4, own = i % n == rank && (rank || i < 40);
        common += all;
        mine += all || own;
        if (all || own) drop(&s, win[i]);
    }
    T_EQ(SYMM_STAT_GET(dropped), mine);
    int64_t slots = SYMM_STAT_GET(slots);
    fk_collect(s.comm);
    T_EQ(SYMM_STAT_GET(slots), slots - common + 1);
    T_EQ(SYMM_STAT_GET(dropped), mine - common + 1);
    for (int i = 0; i < PIECES; i++) {
        int all = i % 7 < 4, own = i % n == rank && (rank || i < 40);
        if (!all && !own) drop(&s, win[i]);
    }
    FK_COLLECTED(s.comm, &before);
    for (int i = 0; i < PIECES; i++) T_OK(symmMemFree(piece[i]));
    close_side(&s);
}

static void many_at_once(void) {
    run(many_rank, 0);
}

/* Some ranks register memory that they have in a dropped slot, the others bring new memory: nothing
 * stays behind. */
static void half_new_rank(int rank, int n, void *arg) {
    setenv("SYMM_WIN_STRIDE", n == 3 ? "64M" : "16M", 1);
    setenv("SYMM_SCRATCH", "2M", 1);
    side s = open_side(arg, rank, n);
    fk_gauges before = fk_take(), full = before;
    for (int i = 0; i < 20; i++) {
        int changes = rank == n - 1;
        if (changes) T_OK(symmMemFree(s.buf));
        if (changes) T_OK(symmMemAlloc((void **)&s.buf, BYTES)); /* in 16M two do not fit */
        symmWindow_t win = add(&s, s.buf, BYTES);
        if (i == 0) full = fk_take();
        if (!changes) FK_UNCHANGED(&full);
        reduce(&s, s.buf, s.buf + HALF, MANY, i, NULL);
        drop(&s, win);
    }
    fk_collect(s.comm);
    close_side(&s);
}

static void new_memory_on_one_rank(void) {
    run(half_new_rank, 0);
}

/* ---- two communicators, one slot ---- */

static void two_comms_rank(int rank, int n, void *arg) {
    side one = open_side(arg, rank, n), two = one;
    two.comm = fk_open(arg, rank, n);
    void *other;
    T_OK(symmMemAlloc(&other, BYTES));
    fk_gauges before = fk_take();
    for (int round = 0; round < 4; round++) {
        symmWindow_t a = add(&one, one.buf, BYTES), b = add(&two, two.buf, BYTES);
        uint64_t at = slot_of(a);
        T_EQ(slot_of(b), at);
        int odd = (rank + round) & 1;
        drop(odd ? &one : &two, odd ? a : b);
        use(&one, 1000 * round);
        use(&two, 1000 * round + 100);
        symmWindow_t c = add(round & 2 ? &one : &two, other, BYTES); /* every rank still has it */
        T_CHECK(slot_of(c) != at);
        use(&one, 1000 * round + 200);
        if (odd) drop(&two, b); /* now some do not */
        use(&one, 1000 * round + 300);
        use(&two, 1000 * round + 400);
        drop(round & 2 ? &one : &two, c);
        if (!odd) drop(&one, a);
        use(&two, 1000 * round + 500);
        if (round == 1) FK_COLLECTED(one.comm, &before);
        if (round == 3) FK_COLLECTED(two.comm, &before);
    }
    symmWindow_t a = add(&one, one.buf, BYTES);
    uint64_t at = slot_of(a);
    T_OK(symmCommDestroy(one.comm)); /* drops its window; the other communicator finds the memory */
    int64_t maps = SYMM_STAT_GET(maps);
    symmWindow_t b = add(&two, two.buf, BYTES);
    T_EQ(slot_of(b), at);
    T_EQ(SYMM_STAT_GET(maps), maps);
    peers_are_seen(&two, b, two.buf, 60);
    use(&two, 9000);
    T_OK(symmMemFree(other));
    close_side(&two);
}

static void two_communicators_share_a_slot(void) {
    run(two_comms_rank, 0);
}

/* In two threads of each rank: one buffer of both, found and dropped again and again, and new
 * memory of each, which makes the other's registrations free. No rank may see another's old
 * memory. */
typedef struct {
    side s;
    int salt;
} worker;

static void *churn(void *arg) {
    worker *w = arg;
    symm_log_rank(w->s.rank);
    for (int i = 0; i < 120; i++) {
        int *fresh = NULL, salt = w->salt + 10 * i;
        symmWindow_t both = add(&w->s, w->s.buf, BYTES), own = NULL;
        if (i % 3) T_OK(symmMemAlloc((void **)&fresh, 4096));
        if (fresh) own = add(&w->s, fresh, 4096);
        if (fresh && (w->s.rank & 1)) drop(&w->s, both);
        if (fresh) peers_are_seen(&w->s, own, fresh, salt);
        if (fresh) reduce(&w->s, fresh, fresh, 512, salt, NULL);
        if (!fresh || !(w->s.rank & 1)) drop(&w->s, both);
        if (fresh) drop(&w->s, own);
        if (fresh) T_OK(symmMemFree(fresh));
    }
    return NULL;
}

static void churn_rank(int rank, int n, void *arg) {
    worker w[2] = {{.s = open_side(arg, rank, n)}};
    pthread_t thread;
    fk_gauges before;
    w[1] = w[0];
    w[1].salt = 1 << 20;
    w[1].s.comm = fk_open(arg, rank, n);
    before = fk_take();
    T_EQ(pthread_create(&thread, NULL, churn, &w[0]), 0);
    churn(&w[1]);
    T_EQ(pthread_join(thread, NULL), 0);
    FK_COLLECTED(w[1].s.comm, &before);
    T_OK(symmCommDestroy(w[1].s.comm));
    close_side(&w[0].s);
}

static void two_threads_of_each_rank(void) {
    T_FORK(2, churn_rank, fk_new(0, 0));
    T_FORK(3, churn_rank, fk_new(0, 0));
}

/* Windows of an eighth of the space, of two communicators at once: each rank sees their ranges
 * taken in another order. */
static void *large(void *arg) {
    const worker *w = arg;
    symm_log_rank(w->s.rank);
    for (int i = 0; i < 1500; i++) {
        void *fresh;
        T_OK(symmMemAlloc(&fresh, 64 << 20));
        usleep((unsigned)(i * (w->s.rank * 7 + w->salt * 13 + 5) % 50));
        drop(&w->s, add(&w->s, fresh, 64 << 20));
        T_OK(symmMemFree(fresh));
    }
    return NULL;
}

static void large_rank(int rank, int n, void *arg) {
    worker w[2] = {{.salt = 1}, {.salt = 2}};
    pthread_t thread;
    setenv("SYMM_WIN_STRIDE", "512M", 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    for (int i = 0; i < 2; i++)
        w[i].s = (side){.comm = fk_open(arg, rank, n), .rank = rank, .n = n, .f = arg};
    T_EQ(pthread_create(&thread, NULL, large, &w[0]), 0);
    large(&w[1]);
    T_EQ(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 2; i++) T_OK(symmCommDestroy(w[i].s.comm));
}

static void large_windows_of_two_threads(void) {
    T_FORK(3, large_rank, fk_new(0, 0));
}

/* ---- captured calls ---- */

static void *destroy_graph(void *graph) {
    T_OK(xg_destroy(graph));
    return NULL;
}

/* A graph of one rank has the last reference of that rank; the others have dropped. */
static void graph_rank(int rank, int n, void *arg) {
    fk *f = arg;
    side s = open_side(f, rank, n), other = s;
    symmStream_t stream;
    symmGraph_t graph;
    pthread_t thread;
    T_OK(symmMemAlloc((void **)&other.buf, BYTES));
    T_OK(symmStreamCreate(&stream));
    fk_gauges before = fk_take();
    for (int keeper = 0; keeper < n; keeper++) {
        symmWindow_t win = add(&s, s.buf, BYTES);
        uint64_t at = slot_of(win);
        if (rank == keeper) {
            T_OK(symmStreamBeginCapture(stream));
            T_OK(symmAllReduce(s.buf, s.buf + HALF, MANY, symmInt32, symmSum, s.comm, stream));
            T_OK(symmStreamEndCapture(stream, &graph));
        }
        drop(&s, win);
        symmWindow_t more = add(&other, other.buf, BYTES);
        T_CHECK(slot_of(more) != at);
        for (int i = 0; i < 3; i++) {
            if (rank != keeper) {
                reduce(&s, s.buf, s.buf + HALF, MANY, 0, NULL);
                continue;
            }
            for (int k = 0; k < MANY; k++) s.buf[k] = k % 1000 + rank * 7;
            T_OK(symmGraphLaunch(xg_exec(graph), stream));
            T_OK(symmStreamSynchronize(stream));
            for (int k = 0; k < MANY; k++)
                T_EQ(s.buf[HALF + k], n * (k % 1000) + 7 * n * (n - 1) / 2);
        }
        drop(&other, more);
        if (rank == keeper) T_EQ(pthread_create(&thread, NULL, destroy_graph, graph), 0);
        if (rank == keeper) T_EQ(pthread_join(thread, NULL), 0);
        FK_COLLECTED(s.comm, &before);
    }
    T_OK(symmStreamDestroy(stream));
    T_OK(symmMemFree(other.buf));
    close_side(&s);
}

static void a_graph_has_the_last_reference(void) {
    run(graph_rank, 0);
}

/* ---- an offer that fails ---- */

/* Registrations that fail on one rank, at any step, while there is something to free: the memory
 * that was dropped can be registered afterwards, whether it was freed or not. */
static void failing_rank(int rank, int n, void *arg) {
    static const char *const points[] = {"vmm_retain:error:1",  "vmm_export:error:1",
                                         "slot_record:error:1", "vmm_import:error:1",
                                         "vmm_map:error:1",     "win_commit:error:1"};
    side s = open_side(arg, rank, n);
    void *fresh;
    T_OK(symmMemAlloc(&fresh, BYTES));
    fk_gauges before = fk_take();
    for (int i = 0; i < 6 * n; i++) {
        symmWindow_t win = add(&s, s.buf, BYTES), none = NULL;
        drop(&s, win);
        kit_barrier(&s.f->k, n);
        if (rank == i / 6) T_EQ(symm_fail_arm(points[i % 6]), 0);
        T_CHECK(symmWindowRegister(s.comm, fresh, BYTES, &none, 0) != symmSuccess && !none);
        T_EQ(symm_fail_arm(""), 0);
        win = add(&s, s.buf, BYTES);
        peers_are_seen(&s, win, s.buf, i);
        reduce(&s, s.buf, s.buf + HALF, MANY, i, NULL);
        drop(&s, win);
        FK_COLLECTED(s.comm, &before);
    }
    T_OK(symmMemFree(fresh));
    close_side(&s);
}

static void registrations_that_fail(void) {
    T_EXPECT_WARNINGS();
    run(failing_rank, 0);
}

/* The exchange of what is dropped breaks off on one rank, which ends that communicator. In another
 * one over the same ranks the memory is mapped anew, since nobody knows who has freed it; and
 * then all of it is freed. */
static void broken_rank(int rank, int n, void *arg) {
    fk *f = arg;
    side one = open_side(f, rank, n), two = one;
    symmResult_t async;
    void *fresh;
    two.comm = fk_open(f, rank, n);
    T_OK(symmMemAlloc(&fresh, BYTES));
    fk_gauges before = fk_take();
    symmWindow_t win = add(&one, one.buf, BYTES), none = NULL;
    int64_t shared = SYMM_STAT_GET(registrations_shared);
    drop(&one, win);
    T_EQ(SYMM_STAT_GET(dropped), 1);
    kit_barrier(&f->k, n);
    if (rank == f->victim) T_EQ(symm_fail_arm("boot_allgather:error:2"), 0);
    T_CHECK(symmWindowRegister(one.comm, fresh, BYTES, &none, 0) != symmSuccess && !none);
    T_EQ(symm_fail_arm(""), 0);
    T_OK(symmCommGetAsyncError(one.comm, &async));
    T_CHECK(async != symmSuccess);
    T_EQ(SYMM_STAT_GET(dropped), 1);
    win = add(&two, two.buf, BYTES);
    T_EQ(SYMM_STAT_GET(registrations_shared), shared);
    peers_are_seen(&two, win, two.buf, 30);
    use(&two, 100);
    drop(&two, win);
    FK_COLLECTED(two.comm, &before);
    T_OK(symmCommDestroy(one.comm));
    T_OK(symmMemFree(fresh));
    close_side(&two);
}

static void an_exchange_that_breaks_off(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < 3; victim++) T_FORK(3, broken_rank, fk_new(victim, 0));
}

T_MAIN(T(every_subset), T(every_order), T(memory_freed_by_one_rank), T(crosswise), T(many_at_once),
       T(new_memory_on_one_rank), T(two_communicators_share_a_slot), T(two_threads_of_each_rank),
       T(large_windows_of_two_threads), T(a_graph_has_the_last_reference),
       T(registrations_that_fail), T(an_exchange_that_breaks_off))
