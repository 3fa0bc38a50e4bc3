/* fault_astray.c - ranks that are in different calls, of which one at least is set-up: each hears
 * who is where, soon, and nobody waits for a deadline. What only looks like it goes on. Ranks as
 * processes and as threads; shared fields are atomics, or written before a barrier. */
#include "host/comm/comm.h"
#include "base/handle.h"
#include "graph_kit.h"
#include "heap_kit.h"

enum { RANKS = 3, ODD = 1, SOON_MS = 8000, PATIENT_MS = 1200 };

static void both(void (*fn)(void *)) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, fn, NULL);
    hk_threads(RANKS, fn, NULL);
}

/* Until all others wait in an exchange of set-up that this rank has not begun; and then for longer
 * than they would bear with one that is elsewhere. */
static void be_late(hk *k) {
    const symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, k->comm);
    const uint64_t own = c->ctl->call_log.step;
    for (int r = 0; r < k->n; r++)
        while (r != k->rank &&
               __atomic_load_n(&symm_comm_ctl(c, r)->call_log.step, __ATOMIC_ACQUIRE) == own)
            usleep(1000);
    usleep(PATIENT_MS * 1000);
}

static void nap(void *arg) {
    (void)arg;
    usleep(2 * PATIENT_MS * 1000);
}

static symmResult_t registers(hk *k) {
    symmWindow_t win;
    return symmWindowRegister(k->comm, NULL, 0, &win, SYMM_WIN_DEFAULT);
}

static symmResult_t makes_a_heap(hk *k) {
    symmHeap_t heap;
    symmHeapConfig_t c = hk_config(64 * HK_MB, 4 * HK_MB, 4 * HK_MB);
    return symmHeapCreate(k->comm, &c, &heap);
}

static symmResult_t splits(hk *k) {
    symmComm_t next;
    return symmCommSplit(k->comm, 0, 0, &next, NULL);
}

static symmResult_t reduces(hk *k) {
    int v[5] = {0};
    return symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, NULL);
}

/* The odd rank does one thing, the others another. All hear of it, now or in the next call. */
static void apart(hk *k, symmResult_t (*one)(hk *), symmResult_t (*others)(hk *),
                  const char *const *parts) {
    T_OK(reduces(k));
    T_OK(registers(k));
    hk_barrier(k);
    const uint64_t since = symm_now_ns();
    T_ERR(k->rank == ODD ? one(k) : others(k), symmMismatch);
    T_CHECKF(fk_ms_since(since) < SOON_MS, "after %d ms", (int)fk_ms_since(since));
    for (int i = 0; parts[i]; i++) T_MSG(symmGetLastError(k->comm), parts[i]);
    T_ERR(reduces(k), symmMismatch);
    T_MSG(symmGetLastError(k->comm), "the ranks are in different calls");
    hk_barrier(k);
}

static void heap_apart(void *arg) {
    static const char *const parts[] = {"registering a window", "rank 1: creating a heap", NULL};
    apart(arg, makes_a_heap, registers, parts);
}
static void set_ups_that_differ(void) {
    both(heap_apart);
}

static void split_apart(void *arg) {
    static const char *const parts[] = {"creating a heap", "rank 1: splitting a communicator",
                                        NULL};
    apart(arg, splits, makes_a_heap, parts);
}
static void a_split_and_a_heap(void) {
    both(split_apart);
}

static void reduce_apart(void *arg) {
    static const char *const parts[] = {
        ": registering a window; rank 1: symmAllReduce of 5 int32 (sum) (call 2)", NULL};
    apart(arg, reduces, registers, parts);
}
static void one_is_in_a_collective(void) {
    both(reduce_apart);
}

static void register_apart(void *arg) {
    static const char *const parts[] = {"rank 1: registering a window; rank ",
                                        ": symmAllReduce of 5 int32 (sum) (call 2)", NULL};
    apart(arg, registers, reduces, parts);
}
static void one_is_in_set_up(void) {
    both(register_apart);
}

/* ---- ranks that agree on who is left ---- */

static symmResult_t shrinks(hk *k) {
    symmComm_t next = NULL;
    symmResult_t r = symmCommShrink(k->comm, NULL, 0, &next, NULL, SYMM_SHRINK_DEFAULT);
    if (!r) T_OK(symmCommDestroy(next));
    return r;
}

static symmResult_t asks(hk *k) {
    int count = -1;
    symmResult_t r = symmCommFailedRanks(k->comm, SYMM_FAILED_AGREE, NULL, 0, &count);
    T_CHECK(r || count == 0);
    return r;
}

/* The odd rank is in a collective. The others hear of it, nothing is lost, and the collective goes
 * on as soon as they call it too. */
static void in_a_collective(hk *k, symmResult_t (*call)(hk *), const char *name) {
    T_OK(reduces(k));
    hk_barrier(k);
    const uint64_t since = symm_now_ns();
    if (k->rank == ODD) {
        T_OK(reduces(k));
    } else {
        T_ERR(call(k), symmMismatch);
        T_CHECKF(fk_ms_since(since) < SOON_MS, "after %d ms", (int)fk_ms_since(since));
        T_MSG(symmGetLastError(k->comm), name);
        T_MSG(symmGetLastError(k->comm), "rank 1: symmAllReduce of 5 int32 (sum) (call 2)");
        T_OK(reduces(k));
    }
    hk_barrier(k);
    if (k->rank == ODD) T_ERR(call(k), symmMismatch); /* theirs, of which it is told */
    T_OK(call(k));
    T_OK(reduces(k));
}

static void shrink_apart(void *arg) {
    in_a_collective(arg, shrinks, ": symmCommShrink; ");
}
static void others_shrink(void) {
    both(shrink_apart);
}

static void ask_apart(void *arg) {
    in_a_collective(arg, asks, ": symmCommFailedRanks; ");
}
static void others_ask_who_is_gone(void) {
    both(ask_apart);
}

/* The same where the odd rank replays it. Its number says nothing then, and the others hear that it
 * waits for them. */
static void replay_apart(void *arg) {
    hk *k = arg;
    symmStream_t stream;
    symmGraph_t graph;
    int v[5] = {1, 0, 0, 0, 0};
    T_OK(symmStreamCreate(&stream));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, stream));
    T_OK(symmStreamEndCapture(stream, &graph));
    for (int i = 0; i < 2; i++) T_OK(symmGraphLaunch(xg_exec(graph), stream));
    T_OK(symmStreamSynchronize(stream));
    hk_barrier(k);
    const uint64_t since = symm_now_ns();
    if (k->rank != ODD) {
        T_ERR(k->threads ? asks(k) : shrinks(k), symmMismatch);
        T_CHECKF(fk_ms_since(since) < SOON_MS, "after %d ms", (int)fk_ms_since(since));
        T_MSG(symmGetLastError(k->comm), "; rank 1: in a collective that rank ");
    }
    T_OK(symmGraphLaunch(xg_exec(graph), stream));
    T_OK(symmStreamSynchronize(stream));
    T_EQ(v[0], RANKS * RANKS * RANKS);
    hk_barrier(k);
    if (k->rank == ODD) T_ERR(k->threads ? asks(k) : shrinks(k), symmMismatch);
    T_OK(shrinks(k));
    T_OK(xg_destroy(graph));
    T_OK(symmStreamDestroy(stream));
}
static void others_shrink_behind_a_replay(void) {
    both(replay_apart);
}

/* What stands in a stream behind something slow is not missing: a replay, or, of the last rank, a
 * call beside captured ones. */
static void slow_shrink(void *arg) {
    hk *k = arg;
    symmStream_t stream;
    symmGraph_t graph;
    int v[5] = {1, 0, 0, 0, 0};
    T_OK(symmStreamCreate(&stream));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, stream));
    T_OK(symmStreamEndCapture(stream, &graph));
    hk_barrier(k);
    if (k->rank != ODD) T_OK(symmStreamHostFunc(stream, nap, NULL));
    if (k->rank == k->n - 1)
        T_OK(symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, stream));
    else
        T_OK(symmGraphLaunch(xg_exec(graph), stream));
    if (k->rank == ODD) T_OK(symmStreamSynchronize(stream)); /* and comes late */
    T_OK(shrinks(k));
    T_OK(symmStreamSynchronize(stream));
    T_EQ(v[0], RANKS);
    T_OK(xg_destroy(graph));
    T_OK(symmStreamDestroy(stream));
}
static void what_is_queued_is_not_missing(void) {
    both(slow_shrink);
}

/* The odd rank has a collective on a stream and has come. Another rank comes late, and has called
 * nothing else: it is waited for. */
static void late_to_shrink(void *arg) {
    hk *k = arg;
    symmStream_t stream;
    int v[5] = {k->rank, 0, 0, 0, 1};
    T_OK(symmStreamCreate(&stream));
    T_OK(registers(k));
    if (k->rank == ODD) T_OK(symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, stream));
    if (k->rank == k->n - 1) usleep(PATIENT_MS * 1000);
    T_OK(shrinks(k));
    if (k->rank != ODD) T_OK(symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, stream));
    T_OK(symmStreamSynchronize(stream));
    T_EQ(v[4], k->n);
    T_OK(symmStreamDestroy(stream));
}
static void a_rank_that_is_late_to_shrink(void) {
    both(late_to_shrink);
}

/* ---- what only looks like it ---- */

/* On streams a collective does not keep the program: ranks that order it and a registration
 * differently meet all the same. */
static void crossed(void *arg) {
    hk *k = arg;
    symmStream_t stream;
    int v[5] = {k->rank, 0, 0, 0, 1};
    T_OK(symmStreamCreate(&stream));
    if (k->rank == ODD) T_OK(registers(k));
    T_OK(symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, stream));
    if (k->rank != ODD) T_OK(registers(k));
    T_OK(symmStreamSynchronize(stream));
    T_EQ(v[0], RANKS * (RANKS - 1) / 2);
    T_EQ(v[4], RANKS);
    T_OK(symmStreamDestroy(stream));
}
static void an_order_that_meets_is_let_through(void) {
    both(crossed);
}

/* A late rank is not one that is elsewhere, whatever it was refused meanwhile. */
static void late_one(void *arg) {
    hk *k = arg;
    symmStream_t gone;
    int v[5] = {0};
    T_OK(reduces(k));
    hk_barrier(k);
    if (k->rank == ODD) {
        T_OK(symmStreamCreate(&gone));
        T_OK(symmStreamDestroy(gone));
        for (int i = 0; i < 3; i++)
            T_ERR(symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, gone), symmInvalidArgument);
        be_late(k);
    }
    T_OK(registers(k));
    T_OK(reduces(k));
}
static void a_late_rank_is_waited_for(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, late_one, NULL);
}

/* A call that its stream's queue had no memory for was not made. */
static void full_queue(void *arg) {
    hk *k = arg;
    symmStream_t stream;
    symmResult_t r = symmSuccess;
    _Atomic uint64_t *many = &k->f->at_ns;
    int made = 0;
    T_OK(symmStreamCreate(&stream));
    if (k->rank == ODD) {
        T_EQ(symm_fail_arm("stream_grow:error"), 0);
        while (!r) made += !(r = symmBarrier(k->comm, stream));
        T_EQ(r, symmOutOfMemory);
        T_EQ(symm_fail_arm(""), 0);
        atomic_store(many, (uint64_t)made);
    }
    hk_barrier(k);
    if (k->rank != ODD)
        for (; (uint64_t)made < atomic_load(many); made++) T_OK(symmBarrier(k->comm, stream));
    hk_barrier(k);
    if (k->rank == ODD) be_late(k);
    T_OK(registers(k));
    T_OK(symmStreamSynchronize(stream));
    T_OK(symmStreamDestroy(stream));
}
static void a_call_that_found_no_room_was_not_made(void) {
    T_EXPECT_WARNINGS();
    hk_processes(RANKS, full_queue, NULL);
}

/* One rank replays what the others call, and they may be late to what comes next. */
static void replayed(void *arg) {
    hk *k = arg;
    symmStream_t stream;
    symmGraph_t graph = NULL;
    int v[5] = {0, 0, k->rank, 0, 0};
    T_OK(symmStreamCreate(&stream));
    if (k->rank == ODD) {
        T_OK(symmStreamBeginCapture(stream));
        T_OK(symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, stream));
        T_OK(symmStreamEndCapture(stream, &graph));
        T_OK(symmGraphLaunch(xg_exec(graph), stream));
    } else {
        T_OK(symmAllReduce(v, v, 5, symmInt32, symmSum, k->comm, stream));
    }
    T_OK(symmStreamSynchronize(stream));
    T_EQ(v[2], RANKS * (RANKS - 1) / 2);
    if (k->rank == 2) be_late(k);
    T_OK(registers(k));
    T_OK(reduces(k));
    if (k->rank == ODD) T_OK(xg_destroy(graph));
    T_OK(symmStreamDestroy(stream));
}
static void one_may_replay_what_others_call(void) {
    both(replayed);
}

/* Who is in neither hears of the others all the same, whichever of them says it first. */
static void bystander(void *arg) {
    hk *k = arg;
    symmResult_t async = symmSuccess;
    if (k->rank != 2) {
        T_ERR(k->rank ? makes_a_heap(k) : registers(k), symmMismatch);
    } else {
        const uint64_t since = symm_now_ns();
        while (!async && fk_ms_since(since) < SOON_MS) {
            T_OK(symmCommGetAsyncError(k->comm, &async));
            usleep(1000);
        }
        T_EQ(async, symmMismatch);
    }
    T_ERR(reduces(k), symmMismatch);
    T_MSG(symmGetLastError(k->comm), "the ranks are in different calls: rank 0: registering a "
                                     "window; rank 1: creating a heap");
}
static void who_is_elsewhere_hears_of_it(void) {
    both(bystander);
}

/* Who waits too long is told what the late one has done. */
static void too_late(void *arg) {
    hk *k = arg;
    T_OK(reduces(k));
    hk_barrier(k);
    if (k->rank != ODD) {
        T_ERR(reduces(k), symmTimeout);
        T_MSG(symmGetLastError(k->comm),
              "rank 1 did not come before a deadline (SYMM_TIMEOUT; in set-up "
              "SYMM_SETUP_TIMEOUT); it has issued 1 collectives, the last symmAllReduce of 5 int32 "
              "(sum)");
    }
    hk_barrier(k);
}
static void a_deadline_says_what_the_late_one_did(void) {
    setenv("SYMM_TIMEOUT", "1500", 1);
    both(too_late);
}

/* The same in set-up, whose deadline is another one. */
static void absent(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm;
    symmWindow_t win;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.timeoutMs = 2500;
    fk_id(f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, f->id, rank, &config));
    fk_works(comm, rank, n);
    if (rank != ODD) {
        T_ERR(symmWindowRegister(comm, NULL, 0, &win, SYMM_WIN_DEFAULT), symmTimeout);
        T_MSG(symmGetLastError(comm), "while registering a window");
        T_MSG(symmGetLastError(comm), "; rank 1 has issued 5 collectives, the last symmBarrier");
    }
    kit_barrier(&f->k, n);
    if (rank == ODD) { /* it can hear that it is the one */
        T_ERR(symmBarrier(comm, NULL), symmTimeout);
        T_MSG(symmGetLastError(comm), "rank 1 did not come");
    }
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void who_never_comes_to_set_up(void) {
    T_EXPECT_WARNINGS();
    T_FORK(RANKS, absent, fk_new(0, 0));
}

T_MAIN(T(others_shrink), T(others_ask_who_is_gone), T(a_rank_that_is_late_to_shrink),
       T_TIMEOUT(others_shrink_behind_a_replay, 60), T_TIMEOUT(what_is_queued_is_not_missing, 60),
       T_TIMEOUT(set_ups_that_differ, 40), T_TIMEOUT(a_split_and_a_heap, 40),
       T_TIMEOUT(one_is_in_a_collective, 60), T_TIMEOUT(one_is_in_set_up, 60),
       T_TIMEOUT(an_order_that_meets_is_let_through, 40), T_TIMEOUT(a_late_rank_is_waited_for, 40),
       T_TIMEOUT(a_call_that_found_no_room_was_not_made, 40),
       T_TIMEOUT(one_may_replay_what_others_call, 40), T_TIMEOUT(who_is_elsewhere_hears_of_it, 40),
       T_TIMEOUT(a_deadline_says_what_the_late_one_did, 40), T(who_never_comes_to_set_up))
