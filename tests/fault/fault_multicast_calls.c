/* fault_multicast_calls.c - collectives over the multicast range of the host driver, between
 * processes: every word of them, in place or not, of windows in one piece or in several, eager and
 * replayed; the way that ranks go whose buffers do not allow it; ranks that disagree; and memory
 * that is gone. */
#define _GNU_SOURCE 1 /* MAP_FIXED_NOREPLACE */
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/common/colls.h"
#include "device/common/kernels.h"
#include "host/comm/comm.h"
#include "coll_expect.h"
#include "multicast_kit.h"
#include "symm_host.h"

enum { RANKS = 3, ROOM = 8 << 20, INTS = ROOM / 4 };

/* How often this process has asked whether what lies behind an address of the range is bound. */
static int asked;
static int counted(const void *at, uint64_t bytes, uint64_t base, uint64_t stride, int n,
                   int *which) {
    asked++;
    return symm_vmm_host_multicast_is(at, bytes, base, stride, n, which);
}

/* Every kernel is forced that takes buffers over the range. */
static void force(void) {
    static char names[512];
    size_t at = 0;
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++)
        if (symm_kernels[k].multicast & (SYMM_CAST_SRC | SYMM_CAST_DST))
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? "," : "",
                                   symm_kernels[k].name);
    T_CHECK(at > 0 && at < sizeof names);
    setenv("SYMM_ALGO", names, 1);
    mk_wish();
}

typedef struct {
    symmColl_t coll;
    size_t count;
    symmRedOp_t op;
    int root, in_place;
} call;

static int word(int rank, size_t i) {
    return rank * 1000 + (int)(i % 977);
}
static int reduced(const call *x, int n, size_t i) {
    int sum = 0;
    for (int r = 0; r < n; r++) sum += word(r, i);
    switch (x->op) {
    case symmMax: return word(n - 1, i);
    case symmMin: return word(0, i);
    case symmAvg: return sum / n;
    default: return sum;
    }
}
static size_t parts(int n, int each) {
    return each ? (size_t)n : 1;
}
static int gives_each(symmColl_t coll) {
    return symm_colls[coll].in == SYMM_EACH;
}
static int takes_each(symmColl_t coll) {
    return symm_colls[coll].out == SYMM_EACH;
}

static symmResult_t give(const call *x, symmComm_t comm, const int *send, int *recv,
                         symmStream_t s) {
    return symm_test_call(x->coll, send, recv, x->count, symmInt32, x->op, x->root, comm, s);
}
/* Buffers may lie anywhere. */
static void put(int *p, size_t i, int v) {
    memcpy((char *)p + i * sizeof v, &v, sizeof v);
}
static int got(const int *p, size_t i) {
    int v;
    memcpy(&v, (const char *)p + i * sizeof v, sizeof v);
    return v;
}
static void fill(const call *x, const hk *k, int *send, int *recv) {
    for (size_t i = 0; i < x->count * parts(k->n, takes_each(x->coll)); i++) put(recv, i, -7);
    for (size_t i = 0; i < x->count * parts(k->n, gives_each(x->coll)); i++)
        put(send, i, word(k->rank, i));
}
static int expected(const call *x, const hk *k, size_t i) {
    if (x->coll == symmCollReduceScatter) return reduced(x, k->n, (unsigned)k->rank * x->count + i);
    if (x->coll == symmCollAllGather) return word((int)(i / x->count), i % x->count);
    return x->coll == symmCollBroadcast ? word(x->root, i) : reduced(x, k->n, i);
}
static void check(const call *x, const hk *k, const int *recv) {
    if (x->coll == symmCollReduce && k->rank != x->root) return;
    for (size_t i = 0; i < x->count * parts(k->n, takes_each(x->coll)); i++)
        T_CHECKF(got(recv, i) == expected(x, k, i), "%s of %zu, rank %d: word %zu is %d, not %d",
                 symm_colls[x->coll].name, x->count, k->rank, i, got(recv, i), expected(x, k, i));
}

/* The call with buffers at these addresses; in place one of them is a part of the other. */
static void run(hk *k, const call *x, int *a, int *b, symmStream_t s) {
    const size_t own = (unsigned)k->rank * x->count;
    int *send = a, *recv = x->in_place ? a : b;
    if (x->in_place && takes_each(x->coll)) send = recv + own;
    if (x->in_place && gives_each(x->coll)) recv = send + own;
    fill(x, k, send, recv);
    if (x->in_place) /* filled once more, over what `recv` was */
        for (size_t i = 0; i < x->count * parts(k->n, gives_each(x->coll)); i++)
            put(send, i, word(k->rank, i));
    T_OK(give(x, k->comm, send, recv, s));
    if (s) T_OK(symmStreamSynchronize(s));
    check(x, k, recv);
}

/* Whether this rank moves anything over the range in such a call. Slices are whole lines. */
static int moves(const call *x, const hk *k) {
    if (x->coll == symmCollAllReduce) return (int)((x->count * 4 + 63) / 64) > k->rank;
    const int rooted = x->coll == symmCollReduce || x->coll == symmCollBroadcast;
    return !rooted || k->rank == x->root;
}
static uint64_t launches(const hk *k, symmColl_t coll) {
    const symm_comm *c;
    uint64_t sum = 0;
    T_OK(symm_comm_enter(k->comm, SYMM_ENTER_ANY, (symm_comm **)&c));
    for (int i = 0; i < SYMM_KERNEL_COUNT; i++)
        if (symm_kernels[i].coll == coll && symm_kernels[i].multicast)
            sum += atomic_load(&c->calls.launches[i]);
    symm_comm_leave((symm_comm *)c);
    return sum;
}
/* over: whether it goes over the range. */
static void runs(hk *k, const call *x, int *a, int *b, int over) {
    const uint64_t before = launches(k, x->coll);
    asked = 0;
    run(k, x, a, b, NULL);
    T_EQ(launches(k, x->coll), before + 1);
    T_CHECKF(!asked == !(over && moves(x, k)), "%s of %zu, rank %d asked %d times",
             symm_colls[x->coll].name, x->count, k->rank, asked);
}

static const symmColl_t colls[] = {symmCollAllReduce, symmCollReduceScatter, symmCollReduce,
                                   symmCollAllGather, symmCollBroadcast};
enum { COLLS = sizeof colls / sizeof *colls };

/* 16 bytes are the least; the last goes over the ends of pieces and of steps. */
static const size_t counts[] = {4, 12, 1024, 4100, 100000, 400004};
enum { COUNTS = sizeof counts / sizeof *counts };

static void two_buffers(hk *k, int *buf[2]) {
    symmWindow_t win;
    for (int i = 0; i < 2; i++) {
        T_OK(symmMemAlloc((void **)&buf[i], ROOM));
        T_OK(symmWindowRegister(k->comm, buf[i], ROOM, &win, 0));
        T_EQ(mk_whole(win), 1);
    }
    __atomic_store_n(&symm_cast_reach, counted, __ATOMIC_RELAXED);
}
static void free_both(hk *k, int *buf[2]) {
    T_OK(symmBarrier(k->comm, NULL));
    for (int i = 0; i < 2; i++) T_OK(symmMemFree(buf[i]));
}

/* ---- over the range -------------------------------------------------------------------------- */

static void all_calls(hk *k, int *a, int *b) {
    static const symmRedOp_t ops[] = {symmSum, symmMax, symmMin, symmAvg};
    for (int i = 0; i < COLLS; i++)
        for (int j = 0; j < COUNTS; j++)
            for (int in_place = 0; in_place < 2; in_place++) {
                const call x = {colls[i], counts[j], ops[(i + j) % 4], j % k->n, in_place};
                if (x.count * (unsigned)k->n <= INTS) runs(k, &x, a, b, 1);
                if (x.count * (unsigned)k->n <= INTS / 2) /* anywhere in the windows */
                    runs(k, &x, a + 4 * j, b + INTS / 2 - 4, 1);
            }
}
/* What does not go over the range may lie anywhere, not even aligned to its type. */
static void anywhere(hk *k, int *a, int *b) {
    for (int by = 1; by < 64; by += 6) {
        const call rs = {symmCollReduceScatter, 9000, symmSum, 0, 0},
                   rd = {symmCollReduce, 9000, symmMax, by % k->n, 0},
                   ag = {symmCollAllGather, 9000, symmSum, 0, 0},
                   bc = {symmCollBroadcast, 9000, symmSum, by % k->n, 0};
        int *odd = (int *)(void *)((char *)b + by);
        runs(k, &rs, a, odd, 1);
        runs(k, &rd, a, odd, 1);
        runs(k, &ag, odd, a, 1);
        runs(k, &bc, odd, a, 1);
    }
}
static void everything(void *arg) {
    hk *k = arg;
    int *buf[2];
    two_buffers(k, buf);
    all_calls(k, buf[0], buf[1]);
    anywhere(k, buf[0], buf[1]);
    free_both(k, buf);
}
static void every_collective_goes_over_the_range(void) {
    T_EXPECT_WARNINGS();
    force();
    for (int n = RANKS; n <= MK_MOST; n += 2) hk_processes(n, everything, NULL);
    setenv("SYMM_CTAS", "3", 1);
    hk_processes(RANKS, everything, NULL);
}

/* Memory of four pieces: no step goes over the end of one. */
static void pieces(void *arg) {
    hk *k = arg;
    mk_memory m[2] = {{.room = ROOM}, {.room = ROOM}};
    symmWindow_t win;
    for (int i = 0; i < 2; i++) {
        while (m[i].bytes < ROOM) mk_extend(&m[i], 2 * HK_MB);
        T_OK(symmWindowRegister(k->comm, m[i].at, ROOM, &win, 0));
        T_EQ(mk_whole(win), 1);
    }
    __atomic_store_n(&symm_cast_reach, counted, __ATOMIC_RELAXED);
    for (int i = 0; i < COLLS; i++) {
        const call x = {colls[i], 600004, symmSum, i % k->n, i & 1};
        runs(k, &x, (int *)m[0].at + 4, (int *)m[1].at + 12, 1);
    }
    T_OK(symmBarrier(k->comm, NULL));
    for (int i = 0; i < 2; i++) mk_release(&m[i]);
}
static void windows_of_several_pieces(void) {
    T_EXPECT_WARNINGS();
    force();
    hk_processes(RANKS, pieces, NULL);
}

/* A graph holds the call, and each launch makes it again. */
static void replays(void *arg) {
    hk *k = arg;
    int *buf[2];
    symmStream_t s;
    symmGraph_t graph;
    symmGraphExec_t exec;
    two_buffers(k, buf);
    T_OK(symmStreamCreate(&s));
    for (int i = 0; i < COLLS; i++) {
        const call x = {colls[i], 4100, symmSum, i % k->n, 0};
        run(k, &x, buf[0], buf[1], s);
        T_OK(symmStreamBeginCapture(s));
        T_OK(give(&x, k->comm, buf[0], buf[1], s));
        T_OK(symmStreamEndCapture(s, &graph));
        T_OK(symmGraphInstantiate(graph, &exec));
        for (int turn = 0; turn < 3; turn++) {
            fill(&x, k, buf[0], buf[1]);
            asked = 0;
            T_OK(symmGraphLaunch(exec, s));
            T_OK(symmStreamSynchronize(s));
            check(&x, k, buf[1]);
            T_EQ(!asked, !moves(&x, k));
        }
        T_OK(symmGraphExecDestroy(exec));
        T_OK(symmGraphDestroy(graph));
    }
    T_OK(symmStreamDestroy(s));
    free_both(k, buf);
}
static void graphs_go_over_it_too(void) {
    T_EXPECT_WARNINGS();
    force();
    hk_processes(RANKS, replays, NULL);
}

/* Small ones in packets, of any count, from buffers anywhere: the driver is asked for each. */
static void packets(void *arg) {
    static const size_t few[] = {1, 5, 255, 1024, 1025, 2048};
    static const symmRedOp_t ops[] = {symmSum, symmMax, symmMin, symmAvg};
    hk *k = arg;
    int *buf[2], *plain = calloc(2, 32 << 10);
    T_CHECK(plain != NULL);
    two_buffers(k, buf);
    for (int j = 0; j < 6; j++)
        for (int i = 0; i < 8; i++) {
            const call x = {symmCollAllReduce, few[j], ops[i % 4], 0, i & 1};
            const uint64_t before = launches(k, symmCollAllReduce);
            const int odd = i % 3 == k->rank;
            asked = 0;
            run(k, &x, odd ? plain : buf[0] + i, odd ? plain + (32 << 10) / 4 : buf[1] + 1, NULL);
            T_EQ(launches(k, symmCollAllReduce), before + 1);
            T_EQ(asked, (few[j] * 4 + SYMM_PACKET_BYTES - 1) / SYMM_PACKET_BYTES);
        }
    free_both(k, buf);
    free(plain);
}
static void small_ones_go_in_packets(void) {
    T_EXPECT_WARNINGS();
    force();
    setenv("SYMM_ALGO", "all_reduce_multicast_packet", 1);
    for (int n = RANKS; n <= MK_MOST; n += 2) hk_processes(n, packets, NULL);
    setenv("SYMM_CTAS", "3", 1);
    hk_processes(RANKS, packets, NULL);
}

/* ---- not over the range ---------------------------------------------------------------------- */

/* In no window, at one address in all processes. */
#define PLAIN 0x200000000000ull

/* Another offset, one that is no multiple of 16, or no window at all, on one rank, or on all. */
static void unequal(void *arg) {
    hk *k = arg;
    int *buf[2];
    two_buffers(k, buf);
    int *plain = mmap((void *)PLAIN, 2 * ROOM, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    T_CHECK((uintptr_t)plain == PLAIN);
    for (int i = 0; i < COLLS; i++)
        for (int j = 0; j < COUNTS; j++) {
            const call x = {colls[i], counts[j], symmSum, j % k->n, 0};
            const int odd = k->rank == (i + j) % k->n;
            if (x.count * (unsigned)k->n > INTS - 8) continue;
            runs(k, &x, buf[0] + 4 * odd, buf[1] + 4 * odd, 0);
            runs(k, &x, buf[0] + 1, buf[1] + 1, 0);
            runs(k, &x, odd ? plain : buf[0], odd ? plain + INTS : buf[1], 0);
            runs(k, &x, plain, plain + INTS, 0); /* at the same addresses */
            runs(k, &x, buf[0], buf[1], 1);
        }
    T_EQ(munmap(plain, 2 * ROOM), 0);
    free_both(k, buf);
}
static void other_buffers_go_another_way(void) {
    T_EXPECT_WARNINGS();
    force();
    setenv("SYMM_DIRECT", "2", 1); /* what is in no window has an address, as a window has */
    hk_processes(RANKS, unequal, NULL);
    setenv("SYMM_CTAS", "3", 1);
    hk_processes(RANKS, unequal, NULL);
    setenv("SYMM_DIRECT", "0", 1); /* staged, where they are in no window */
    hk_processes(RANKS, unequal, NULL);
}

/* Ranks that hear from the root alone go on at once. The last rank sleeps while it waits for the
 * root, who comes late. When it wakes rank 1 is in its next call, if it may be: with offsets that
 * would have done for this one, in which it had others. */
static void sleeps(void *arg) {
    (void)arg;
    usleep(2000);
}
static void in_turn(void *arg) {
    hk *k = arg;
    int *buf[2];
    two_buffers(k, buf);
    if (k->rank == k->n - 1) T_OK(symmSetProgress(sleeps, NULL));
    for (int turn = 0; turn < 200; turn++) {
        const int odd = turn % 2 == 0 && k->rank == 1;
        const call x = {turn % 3 ? symmCollBroadcast : symmCollReduce, 8, symmSum, 0, 0};
        if (k->rank == 0) usleep(500);
        runs(k, &x, buf[0] + turn / 2 * 16 + 4 * odd, buf[1] + turn / 2 * 16 + 4 * odd,
             turn % 2 == 1);
    }
    T_OK(symmSetProgress(NULL, NULL));
    free_both(k, buf);
}
static void both_ways_in_turn(void) {
    T_EXPECT_WARNINGS();
    force();
    hk_processes(RANKS, in_turn, NULL);
}

/* The numbers of calls begin anew; words of before, and those that nobody has written, say nothing.
 * The last rank comes late, so the others wait. */
static void wraps(void *arg) {
    hk *k = arg;
    int *buf[2];
    symm_comm *c;
    two_buffers(k, buf);
    for (int turn = 0; turn < 40; turn++) {
        if (turn % 20 == 0) {
            T_OK(symmBarrier(k->comm, NULL));
            hk_barrier(k);
            T_OK(symm_comm_enter(k->comm, SYMM_ENTER_ANY, &c));
            for (int b = 0; b < SYMM_MAX_CTAS; b++) c->ctl->epoch[b] = *(const uint32_t *)k->arg;
            symm_comm_leave(c);
            hk_barrier(k);
        }
        const int odd = turn % 3 == 0 && k->rank == 1;
        const call x = {colls[turn % COLLS], 4096, symmSum, 0, 0};
        if (k->rank == k->n - 1) usleep(3000);
        runs(k, &x, buf[0] + 4 * odd, buf[1] + 4 * odd, turn % 3 != 0);
    }
    free_both(k, buf);
}
static void epochs_wrap(void) {
    T_EXPECT_WARNINGS();
    force();
    for (uint32_t first = UINT32_MAX - 5; first < UINT32_MAX; first++) {
        setenv("SYMM_CTAS", first % 2 ? "3" : "1", 1);
        hk_processes(RANKS, wraps, &first);
    }
}

/* The same memory in windows of another communicator, which comes and goes while a stream's calls
 * are under way: whose mappings of it are no concern of theirs. */
static void beside(void *arg) {
    hk *k = arg;
    int *buf[2];
    symmStream_t s;
    two_buffers(k, buf);
    T_OK(symmStreamCreate(&s));
    const call x = {symmCollAllReduce, 200000, symmSum, 0, 0};
    fill(&x, k, buf[0], buf[1]);
    for (int turn = 0; turn < 10; turn++) {
        symmComm_t other;
        symmWindow_t win;
        for (int i = 0; i < 5; i++) T_OK(give(&x, k->comm, buf[0], buf[1], s));
        T_OK(symmCommSplit(k->comm, 0, -k->rank, &other, NULL)); /* a space of its own */
        for (int i = 0; i < 2; i++) T_OK(symmWindowRegister(other, buf[i], ROOM, &win, 0));
        T_OK(symmBarrier(other, NULL));
        T_OK(symmCommDestroy(other));
    }
    T_OK(symmStreamSynchronize(s));
    check(&x, k, buf[1]);
    T_OK(symmStreamDestroy(s));
    free_both(k, buf);
}
static void another_communicators_windows_over_it(void) {
    T_EXPECT_WARNINGS();
    force();
    hk_processes(RANKS, beside, NULL);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Rank 1's slice is where the others have no call's memory: it finds that before it stores. */
static void disagree(void *arg) {
    hk *k = arg;
    int *buf[2];
    enum { FEW = 4, MANY = 1024 };
    two_buffers(k, buf);
    const call x = {symmCollAllReduce, k->rank == 1 ? MANY : FEW, symmSum, 0, 0};
    memset(buf[0], 1, MANY * sizeof **buf);
    memset(buf[1], 2, MANY * sizeof **buf);
    T_OK(symmBarrier(k->comm, NULL));
    if (k->rank == 1) usleep(20000); /* it does not wait: a wait would compare, too */
    T_ERR(give(&x, k->comm, buf[0], buf[1], NULL), symmMismatch);
    T_MSG(symmGetLastError(k->comm), "rank 1: symmAllReduce of 1024 int32");
    hk_barrier(k);
    for (int i = FEW; i < MANY; i++) T_EQ(buf[1][i], 0x02020202);
    T_OK(symmCommDestroy(k->comm));
    k->comm = NULL;
    hk_barrier(k);
    for (int i = 0; i < 2; i++) T_OK(symmMemFree(buf[i]));
}
static void ranks_that_disagree_are_told(void) {
    T_EXPECT_WARNINGS();
    force();
    hk_processes(RANKS, disagree, NULL);
}

/* Rank 1 finds nothing where rank 2's memory was: it says so, and nobody waits for ever. The others
 * find nothing there either once it has left, and say what they were told. */
static int *left;
static int nothing_there(const void *at, uint64_t bytes, uint64_t base, uint64_t stride, int n,
                         int *which) {
    (void)at, (void)bytes, (void)base, (void)stride, (void)n;
    *which = 2;
    return SYMM_CU_NOT_SUPPORTED;
}
static int nothing_then(const void *at, uint64_t bytes, uint64_t base, uint64_t stride, int n,
                        int *which) {
    while (!__atomic_load_n(left, __ATOMIC_ACQUIRE)) sched_yield();
    return nothing_there(at, bytes, base, stride, n, which);
}
static void gone(void *arg) {
    hk *k = arg;
    int *buf[2];
    left = k->arg;
    two_buffers(k, buf);
    __atomic_store_n(&symm_cast_reach, k->rank == 1 ? nothing_there : nothing_then,
                     __ATOMIC_RELAXED);
    const call x = {symmCollAllReduce, 4096, symmSum, 0, 0};
    const symmResult_t r = give(&x, k->comm, buf[0], buf[1], NULL);
    if (k->rank == 1) __atomic_store_n(left, 1, __ATOMIC_RELEASE);
    T_EQ(r, symmInvalidUsage);
    T_MSG(symmGetLastError(k->comm), k->rank == 1 ? "a buffer of rank 2" : "rank 2 cannot go on");
    if (k->rank == 1) T_MSG(symmGetLastError(k->comm), "cannot be accessed at 0x");
    T_OK(symmCommDestroy(k->comm));
    k->comm = NULL;
    hk_barrier(k);
    for (int i = 0; i < 2; i++) T_OK(symmMemFree(buf[i]));
}
static void memory_that_is_gone_is_an_error(void) {
    T_EXPECT_WARNINGS();
    force();
    hk_processes(RANKS, gone, T_SHARED(sizeof *left));
}

T_MAIN(T(every_collective_goes_over_the_range), T(windows_of_several_pieces),
       T(graphs_go_over_it_too), T(small_ones_go_in_packets), T(other_buffers_go_another_way),
       T(both_ways_in_turn), T(epochs_wrap), T(another_communicators_windows_over_it),
       T(ranks_that_disagree_are_told), T(memory_that_is_gone_is_an_error))
