/* thr_across_p2p.c - sends, receives and groups over several domains, with ranks as threads and a
 * mover between them (across_kit.h): random schedules (p2p_model.h), sends that end before their
 * receive, what a group keeps of its calls, messages that differ. Each rank's thread uses its own
 * communicator. */
#include <unistd.h>

#include "across_kit.h"
#include "host/comm/outer.h"
#include "p2p_model.h"
#include "symm_group.h"

enum { HALF = 12 << 20, STEPS = 4 };

/* ---- schedules ------------------------------------------------------------------------------- */

static void schedule_rank(int me, int n, void *arg) {
    ak_job *j = arg;
    const symmComm_t comm = ak_open(j, me, symmSuccess, symmSuccess);
    const pm_streams none = {.n = 1};
    int32_t sum[2 * PM_SUM];
    pk_world in, out;
    pm_step st;
    pk_open(&in, comm, me, n, HALF);
    pk_open(&out, comm, me, n, HALF);
    pm_rank r = {.rank = me,
                 .n = n,
                 .comm = comm,
                 .half = {{in.heap, in.memory}, {out.heap, out.memory}},
                 .sum = sum,
                 .rolls = ck_hash(j->seed, (uint64_t)me, 77)};
    for (int k = 0; k < j->cases * STEPS; k++) {
        pm_draw(&st, ck_hash(j->seed, (uint64_t)k, 3), n, HALF);
        pm_prepare(&r, &st);
        for (int i = 0; i < st.repeats; i++) pm_call(&r, &st, &none);
        pm_check(&r, &st);
    }
    pk_close(&in);
    pk_close(&out);
    T_OK(symmCommDestroy(comm));
}

static void random_schedules(void) {
    static const char *const layouts[] = {"ab", "aabb", "abcabc", "abbbac", "aaab"};
    const uint64_t seed = ck_seed();
    printf("# T_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < 5; i++) {
        ak_job j = ak_new(layouts[i]);
        j.seed = ck_hash(seed, (uint64_t)i, 9);
        j.cases = ck_full() ? 200 : PM_SLOW ? 4 : 20;
        j.hub->slow = i % 3 * 5;
        T_THREADS(j.n, schedule_rank, &j);
        T_CHECK(j.hub->posts > 0 && j.hub->messages > j.hub->posts);
        nt_hub_free(j.hub);
    }
}

/* ---- sends that end first -------------------------------------------------------------------- */

enum { SMALL = 3968, LARGE = 5000 };

/* Ranks 0 and 1 are of two domains. What is posted is the sender's again at once, and collectives
 * come between it and its receive. One more than there is room for, and one that is large, wait. */
static void early_rank(int me, int n, void *arg) {
    ak_job *j = arg;
    const symmComm_t comm = ak_open(j, me, symmSuccess, symmSuccess);
    char room[LARGE + 2 * PK_GUARD], *in = room + PK_GUARD, out[LARGE];
    float x = 1, y = 0;
    for (int i = 0; i < NT_POSTS && me == 0; i++) {
        pk_fill(out, SMALL, 0, 1, (unsigned)i);
        pk_send(comm, out, SMALL, 1, NULL);
        memset(out, 0xee, SMALL);
    }
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_EQ((int)y, n);
    for (int i = 0; i < NT_POSTS && me == 1; i++) {
        pk_empty(in, SMALL);
        pk_recv(comm, in, SMALL, 0, NULL);
        pk_received(in, SMALL, 0, 1, (unsigned)i);
    }
    T_OK(symmBarrier(comm, NULL));
    for (int i = 0; i <= NT_POSTS + 1 && me == 0; i++) {
        atomic_store(&j->over, i);
        pk_send(comm, out, i <= NT_POSTS ? SMALL : LARGE, 1, NULL);
    }
    for (int i = 0; i <= NT_POSTS + 1 && me == 1; i++) {
        while (!i && atomic_load(&j->over) < NT_POSTS) usleep(1000);
        if (!i || i == NT_POSTS + 1) usleep(50000);
        if (!i) T_EQ(atomic_load(&j->over), NT_POSTS);
        pk_recv(comm, in, i <= NT_POSTS ? SMALL : LARGE, 0, NULL);
    }
    T_OK(symmCommDestroy(comm));
}

static void a_small_send_ends_without_its_receive(void) {
    ak_job j = ak_new("abb");
    T_THREADS(j.n, early_rank, &j);
    T_CHECK(j.hub->posts >= 2 * NT_POSTS);
    nt_hub_free(j.hub);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* What the program changes between a call and symmGroupEnd does not matter: reduction, factor and
 * counts. Collectives run in their order, then the messages. */
static void group_rank(int me, int n, void *arg) {
    const symmComm_t comm = ak_open(arg, me, symmSuccess, symmSuccess);
    float x = (float)(me + 1), factor = 3, scaled = 0, sum = 0, first = -1;
    int32_t from[NT_RANKS], to[NT_RANKS], one = 100 + me, got = -1;
    size_t counts[NT_RANKS], displs[NT_RANKS];
    symmRedOp_t op;
    symmGroupInfo_t info = {.size = sizeof info};
    for (int q = 0; q < n; q++)
        from[q] = 10 * me + q, to[q] = -1, counts[q] = 1, displs[q] = (size_t)q;
    T_OK(symmRedOpCreatePreMulSum(&op, &factor, symmFloat32, symmScalarHostImmediate, comm));
    T_OK(symmGroupStart());
    T_OK(symmSend(&one, 1, symmInt32, (me + 1) % n, comm, NULL));
    T_OK(symmAlltoAllv(from, counts, displs, to, counts, displs, symmInt32, comm, NULL));
    T_OK(symmAllReduce(&x, &scaled, 1, symmFloat32, op, comm, NULL));
    T_OK(symmAllReduce(&x, &sum, 1, symmFloat32, symmSum, comm, NULL));
    T_OK(symmBroadcast(&x, &first, 1, symmFloat32, 0, comm, NULL));
    T_OK(symmRecv(&got, 1, symmInt32, (me + n - 1) % n, comm, NULL));
    T_OK(symmRedOpDestroy(op, comm));
    factor = 7;
    memset(counts, 0x77, sizeof counts);
    memset(displs, 0x77, sizeof displs);
    T_OK(symmGroupSimulateEnd(&info));
    T_EQ(info.jobs, 5);
    T_EQ(info.calls, 6);
    T_EQ(info.messages, 2);
    T_CHECK(strstr(info.text, "1 sends and 1 receives") && strstr(info.text, "over 2 domains"));
    T_OK(symmGroupEnd());
    T_EQ((int)sum, n * (n + 1) / 2);
    T_EQ((int)scaled, 3 * n * (n + 1) / 2);
    T_EQ((int)first, 1);
    T_EQ(got, 100 + (me + n - 1) % n);
    for (int q = 0; q < n; q++) T_EQ(to[q], 10 * q + me);
    T_OK(symmCommDestroy(comm));
}
static void a_group_keeps_its_calls(void) {
    ak_job j = ak_new("abab");
    T_THREADS(j.n, group_rank, &j);
    nt_hub_free(j.hub);
}

/* A call that is refused ends the group: nothing of it runs, and the communicator goes on. */
static void refused_rank(int me, int n, void *arg) {
    const symmComm_t comm = ak_open(arg, me, symmSuccess, symmSuccess);
    float x = 1, y = 0;
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_ERR(symmSend(&x, 1, symmFloat32, n, comm, NULL), symmInvalidArgument);
    T_ERR(symmCommDestroy(comm), symmInvalidUsage);
    T_ERR(symmGroupEnd(), symmInvalidArgument);
    T_EQ((int)y, 0);
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_OK(symmGroupDiscard());
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_EQ((int)y, n);
    T_OK(symmCommDestroy(comm));
}
static void a_refused_call_ends_the_group_alone(void) {
    T_EXPECT_WARNINGS();
    ak_job j = ak_new("aab");
    T_THREADS(j.n, refused_rank, &j);
    nt_hub_free(j.hub);
}

/* Beside calls of another communicator, which get a thread: MPI may allow the mover no other thread
 * than the caller's (net_threads.h looks). */
static void beside_rank(int me, int n, void *arg) {
    const symmComm_t comm = ak_open(arg, me, symmSuccess, symmSuccess);
    symmComm_t inner, other;
    int32_t one = 1, sum, there;
    T_OK(symmCommDomain(comm, &inner));
    T_OK(symmCommSplit(inner, 0, 0, &other, NULL));
    for (int i = 0; i < 20; i++) {
        sum = there = 0;
        T_OK(symmGroupStart());
        for (int k = 0; k < 2; k++) {
            if ((i ^ k) & 1)
                T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, comm, NULL));
            else
                T_OK(symmAllReduce(&one, &there, 1, symmInt32, symmSum, other, NULL));
        }
        T_OK(symmGroupEnd());
        T_EQ(sum, n);
        T_EQ(there, n / 2);
    }
    T_OK(symmCommDestroy(other));
    T_OK(symmCommDestroy(comm));
}
static void a_group_runs_it_in_the_callers_thread(void) {
    ak_job j = ak_new("aabb");
    T_THREADS(j.n, beside_rank, &j);
    nt_hub_free(j.hub);
}

/* Calls of the communicator and of its inner one keep their order, as both use the inner one; two
 * communicators over domains are too many for one thread. */
static void both_rank(int me, int n, void *arg) {
    const symmComm_t comm = ak_open(arg, me, symmSuccess, symmSuccess);
    symmComm_t inner, other;
    T_OK(symmCommDomain(comm, &inner));
    for (int i = 0; i < 40; i++) {
        const int32_t one = 1, ten = 10;
        int32_t all = 0, here = 0, to = me, from = -1;
        T_OK(symmGroupStart());
        if (i & 1) T_OK(symmAllReduce(&one, &all, 1, symmInt32, symmSum, comm, NULL));
        T_OK(symmAllReduce(&ten, &here, 1, symmInt32, symmSum, inner, NULL));
        if (!(i & 1)) T_OK(symmAllReduce(&one, &all, 1, symmInt32, symmSum, comm, NULL));
        T_OK(symmSend(&to, 1, symmInt32, (me + 1) % n, comm, NULL));
        T_OK(symmRecv(&from, 1, symmInt32, (me + n - 1) % n, comm, NULL));
        T_OK(symmGroupEnd());
        T_EQ(all, n);
        T_EQ(here, 10 * n / 2);
        T_EQ(from, (me + n - 1) % n);
    }
    T_OK(symmCommSplit(comm, 0, 0, &other, NULL));
    float x = 1, y = 0;
    T_OK(symmGroupStart());
    T_OK(symmAllReduce(&x, &y, 1, symmFloat32, symmSum, comm, NULL));
    T_ERR(symmSend(&x, 1, symmFloat32, me, other, NULL), symmNotSupported);
    T_ERR(symmGroupEnd(), symmNotSupported);
    T_OK(symmCommDestroy(other));
    T_OK(symmCommDestroy(comm));
}
static void a_group_of_both_keeps_their_order(void) {
    T_EXPECT_WARNINGS();
    ak_job j = ak_new("aabb");
    T_THREADS(j.n, both_rank, &j);
    nt_hub_free(j.hub);
}

/* Windows of a group are made at its end, on all ranks. None ends beside calls of its
 * communicator, or of the inner one. */
static void window_rank(int me, int n, void *arg) {
    const symmComm_t comm = ak_open(arg, me, symmSuccess, symmSuccess);
    symmWindow_t win[2] = {NULL, NULL};
    symmComm_t inner;
    int *memory;
    T_OK(symmMemAlloc((void **)&memory, 8192));
    T_OK(symmGroupStart());
    for (int i = 0; i < 2; i++) T_OK(symmWindowRegister(comm, memory + 1024 * i, 4096, &win[i], 0));
    T_CHECK(!win[0] && !win[1]);
    T_OK(symmGroupEnd());
    T_CHECK(win[0] && win[1]);
    memory[0] = me + 1;
    T_OK(symmAllReduce(memory, memory, 1, symmInt32, symmSum, comm, NULL));
    T_EQ(memory[0], n * (n + 1) / 2);
    T_OK(symmCommDomain(comm, &inner));
    for (int i = 0; i < 2; i++) {
        T_OK(symmGroupStart());
        T_OK(symmAllReduce(memory, memory, 1, symmInt32, symmSum, i ? inner : comm, NULL));
        T_ERR(symmWindowDeregister(comm, win[0]), symmInvalidUsage);
        T_ERR(symmGroupEnd(), symmInvalidUsage);
    }
    for (int i = 0; i < 2; i++) T_OK(symmWindowDeregister(comm, win[i]));
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(memory));
}
static void windows_of_a_group(void) {
    T_EXPECT_WARNINGS();
    ak_job j = ak_new("aabb");
    T_THREADS(j.n, window_rank, &j);
    nt_hub_free(j.hub);
}

/* A question about a window that is under way in another thread has what it needs of its
 * communicator until it ends, and nothing has it longer. */
static void asked_rank(int me, int n, void *arg) {
    const symmComm_t comm = ak_open(arg, me, symmSuccess, symmSuccess);
    symmWindow_t win;
    void *memory;
    int rank = me;
    (void)n;
    T_OK(symmMemAlloc(&memory, 4096));
    T_OK(symmWindowRegister(comm, memory, 4096, &win, 0));
    const symm_win *w = symm_handle_get(SYMM_KIND_WINDOW, win);
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmCommDestroy(comm));
    T_CHECK(symm_handle_find(SYMM_KIND_ACROSS, comm) != NULL);
    symm_handle_put(SYMM_KIND_ACROSS, comm);
    T_OK(symm_outer_place(w->outer, &rank));
    symm_handle_put(SYMM_KIND_WINDOW, win);
    T_CHECK(symm_handle_find(SYMM_KIND_ACROSS, comm) == NULL);
    T_OK(symmMemFree(memory));
}
static void questions_keep_what_they_need(void) {
    ak_job j = ak_new("aabb");
    T_THREADS(j.n, asked_rank, &j);
    nt_hub_free(j.hub);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* Rank 0 sends to the last rank, of another domain. mode 0: another count; 1: another type of the
 * same size; 2: it leaves instead; 3: the last rank sends to itself what it never receives. */
static void wrong_rank(int me, int n, void *arg) {
    ak_job *j = arg;
    const symmComm_t comm = ak_open(j, me, symmSuccess, symmSuccess);
    float x[4] = {1}, y[4] = {0};
    symmResult_t r = symmSuccess;
    if (me == 0 && j->mode < 2)
        T_OK(symmSend(x, j->mode ? 4 : 3, j->mode ? symmInt32 : symmFloat32, n - 1, comm, NULL));
    if (me == 0 && j->mode == 2) {
        T_OK(symmCommDestroy(comm));
        return;
    }
    if (me == n - 1 && j->mode == 3) {
        T_OK(symmGroupStart());
        T_OK(symmRecv(y, 4, symmFloat32, me, comm, NULL));
        r = symmGroupEnd();
        T_EQ(r, symmInvalidUsage);
    } else if (me == n - 1) {
        r = symmRecv(y, 4, symmFloat32, 0, comm, NULL);
        T_EQ(r, j->mode == 2 ? symmRemoteError : symmMismatch);
        T_CHECK(y[0] == 0 || j->mode == 0);
    }
    for (int i = 0; i < 1000 && !r; i++)
        r = symmAllReduce(x, y, 4, symmFloat32, symmSum, comm, NULL);
    T_CHECK(r != symmSuccess);
    T_OK(symmCommDestroy(comm));
}
static void what_differs_ends_it_for_all(void) {
    T_EXPECT_WARNINGS();
    for (int mode = 0; mode < 4; mode++) {
        ak_job j = ak_new("aabb");
        j.mode = mode;
        T_THREADS(j.n, wrong_rank, &j);
        nt_hub_free(j.hub);
    }
}

T_MAIN(T_TIMEOUT(random_schedules, 600), T(a_small_send_ends_without_its_receive),
       T(a_group_keeps_its_calls), T(a_refused_call_ends_the_group_alone), T(windows_of_a_group),
       T(questions_keep_what_they_need), T(a_group_of_both_keeps_their_order),
       T(a_group_runs_it_in_the_callers_thread), T(what_differs_ends_it_for_all))
