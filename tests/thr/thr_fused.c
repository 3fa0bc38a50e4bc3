/* thr_fused.c - rooted calls of a group that run as one (src/host/coll/fused.h): the same bits as
 * one by one, wherever the buffers lie; which calls do, on all ranks alike; what is refused. Ranks
 * are threads, or processes where memory is reached through the kernel. No lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symm.h"
#include "t.h"

enum { MOST = 5, ROOM = 40000 }; /* elements that a buffer has room for */

typedef struct { /* of a rank: buffer i is of the call with root i */
    symmComm_t comm;
    symmStream_t stream;
    float *in[MOST], *out[MOST], *want[MOST];
    symmWindow_t win[MOST];
    size_t count[MOST];
    int rank, n, skip; /* skip: a root that makes no call; -1: all do */
} place;

static symmGroupInfo_t simulate(void) {
    symmGroupInfo_t info = {.size = sizeof info};
    T_OK(symmGroupSimulateEnd(&info));
    return info;
}

/* Buffers of the even roots in windows of their own, of the others in none; `all`: in one. */
static void open_place(place *p, symmComm_t comm, int rank, int n, int all) {
    *p = (place){.comm = comm, .rank = rank, .n = n};
    char *block = NULL;
    const size_t each = 2 * ROOM * sizeof(float);
    if (all) {
        T_OK(symmMemAlloc((void **)&block, (size_t)n * each));
        T_OK(symmWindowRegister(comm, block, (size_t)n * each, &p->win[0], SYMM_WIN_DEFAULT));
    }
    for (int i = 0; i < n; i++) {
        if (all)
            p->in[i] = (float *)(void *)(block + (size_t)(n - 1 - i) * each);
        else if (i % 2)
            T_CHECK((p->in[i] = malloc(each)) != NULL);
        else
            T_OK(symmMemAlloc((void **)&p->in[i], each));
        if (!all && i % 2 == 0)
            T_OK(symmWindowRegister(comm, p->in[i], each, &p->win[i], SYMM_WIN_DEFAULT));
        p->out[i] = p->in[i] + ROOM;
        T_CHECK((p->want[i] = malloc(ROOM * sizeof(float))) != NULL);
    }
}

static void close_place(place *p, int all) {
    for (int i = 0; i < p->n; i++) {
        if (p->win[i]) T_OK(symmWindowDeregister(p->comm, p->win[i]));
        if (!all && i % 2)
            free(p->in[i]);
        else if (!all)
            T_OK(symmMemFree(p->in[i]));
        free(p->want[i]);
    }
    if (all) T_OK(symmMemFree(p->in[p->n - 1]));
}

static void fill(place *p, unsigned round, size_t most) {
    for (int i = 0; i < p->n; i++) {
        p->count[i] = i == (int)round % 3 ? 0 : 1 + (most + (unsigned)i * 977u) % ROOM;
        for (size_t e = 0; e < ROOM; e++) {
            p->in[i][e] = (float)((e * 7 + round + (unsigned)(p->rank * 3 + i)) % 1000) / 7;
            p->out[i][e] = -1;
        }
    }
}

/* The calls, from root `first` on. NULL on ranks where a buffer is not used. */
static void call_all(place *p, int reduces, int in_place, int first, float *const *out) {
    for (int k = 0; k < p->n; k++) {
        const int i = (first + k) % p->n, root = i == p->rank;
        float *to = in_place ? p->in[i] : out[i];
        if (i == p->skip) continue;
        if (reduces)
            T_OK(symmReduce(p->in[i], root ? to : NULL, p->count[i], symmFloat, symmAvg, i, p->comm,
                            p->stream));
        else
            T_OK(symmBroadcast(root       ? p->in[i]
                               : in_place ? to
                                          : NULL,
                               to, p->count[i], symmFloat, i, p->comm, p->stream));
    }
}

static void run_group(place *p, int reduces, int in_place, int captured) {
    symmGraph_t graph;
    symmGraphExec_t exec;
    if (captured) T_OK(symmStreamBeginCapture(p->stream));
    T_OK(symmGroupStart());
    call_all(p, reduces, in_place, p->n / 2, p->out);
    T_EQ(simulate().kernels, 1);
    T_EQ(simulate().calls, p->n - (p->skip >= 0));
    T_OK(symmGroupEnd());
    if (captured) {
        T_OK(symmStreamEndCapture(p->stream, &graph));
        T_OK(symmGraphInstantiate(graph, &exec));
        T_OK(symmGraphLaunch(exec, p->stream));
    }
    if (p->stream) T_OK(symmStreamSynchronize(p->stream));
    if (captured) {
        T_OK(symmGraphExecDestroy(exec));
        T_OK(symmGraphDestroy(graph));
    }
}

/* One by one, then as one. */
static void compare(place *p, unsigned round, int reduces, int in_place) {
    static const size_t most[] = {0, 3, 100, 5000, ROOM - 5000};
    const int captured = p->stream && round % 2;
    p->skip = p->n > 2 && round % 4 == 3 ? (int)round % p->n : -1;
    fill(p, round, most[round % 5]);
    call_all(p, reduces, 0, 0, p->want);
    if (p->stream) T_OK(symmStreamSynchronize(p->stream));
    run_group(p, reduces, in_place, captured);
    for (int i = 0; i < p->n; i++) {
        const float *got = in_place ? p->in[i] : p->out[i];
        if (i == p->skip || (reduces && i != p->rank)) continue;
        T_CHECKF(!memcmp(got, p->want[i], p->count[i] * sizeof *got),
                 "round %u, root %d, %zu elements%s%s: not the bits of a call by itself", round, i,
                 p->count[i], reduces ? ", reduced" : "", in_place ? ", in place" : "");
        if (!in_place) T_CHECK(p->count[i] == ROOM || got[p->count[i]] == -1);
    }
}

static void work(symmComm_t comm, int rank, int n) {
    place p;
    for (int all = 0; all < 2; all++) {
        open_place(&p, comm, rank, n, all);
        for (unsigned round = 0; round < 20; round++) {
            if (round == 10) T_OK(symmStreamCreate(&p.stream));
            compare(&p, round, 0, round / 5 % 2);
            compare(&p, round, 1, round / 5 % 2);
        }
        T_OK(symmStreamDestroy(p.stream));
        close_place(&p, all);
    }
}

static symmComm_t comms[2][MOST];

static void thread_rank(int rank, int n, void *arg) {
    (void)arg;
    work(comms[0][rank], rank, n);
}

static void same_bits_among_threads(void) {
    for (int n = 2; n <= MOST; n += n == 3 ? 2 : 1) {
        T_OK(symmCommInitAll(comms[0], n, NULL));
        T_THREADS(n, thread_rank, NULL);
        for (int r = 0; r < n; r++) T_OK(symmCommDestroy(comms[0][r]));
    }
}

typedef struct {
    symmUniqueId_t id;
    _Atomic int made;
} meeting;

static void process_rank(int rank, int n, void *arg) {
    meeting *m = arg;
    symmComm_t comm;
    if (!rank) T_OK(symmGetUniqueId(&m->id)), m->made = 1;
    while (!m->made) usleep(1000);
    T_OK(symmCommInitRank(&comm, n, m->id, rank));
    work(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void same_bits_among_processes(void) {
    for (int direct = 0; direct < 2; direct++) {
        meeting *m = T_SHARED(sizeof *m);
        setenv("SYMM_DIRECT", direct ? "2" : "0", 1);
        T_FORK(3, process_rank, m);
    }
}

/* ---- which calls ----------------------------------------------------------------------------- */

static void open_all(int n) {
    for (int i = 0; i < n; i++) T_OK(symmCommInitAll(comms[i], 3, NULL));
}
static void close_all(int n) {
    for (int i = 0; i < n; i++)
        for (int r = 0; r < 3; r++) T_OK(symmCommDestroy(comms[i][r]));
}

enum { SAME_ROOT, OTHER_TYPE, OTHER_CALL, BETWEEN, OWN_REDUCTION, CASES };

static void kinds_rank(int rank, int n, void *arg) {
    static const int kernels[] = {2, 2, 2, 3, 2};
    symmComm_t comm = comms[0][rank];
    int in[3] = {1, 2, 3}, out[3], none, scalar = 2;
    symmRedOp_t op;
    (void)n, (void)arg;
    T_OK(symmRedOpCreatePreMulSum(&op, &scalar, symmInt32, symmScalarHostImmediate, comm));
    for (int c = 0; c < CASES; c++) {
        const symmRedOp_t how = c == OWN_REDUCTION ? op : symmSum;
        T_OK(symmGroupStart());
        T_OK(symmReduce(&in[0], &out[0], 1, symmInt32, how, 1, comm, NULL));
        if (c == BETWEEN) T_OK(symmAllReduce(&in[2], &none, 1, symmInt32, symmSum, comm, NULL));
        if (c == OTHER_CALL)
            T_OK(symmBroadcast(&in[1], &out[1], 1, symmInt32, 2, comm, NULL));
        else
            T_OK(symmReduce(&in[1], &out[1], 1, c == OTHER_TYPE ? symmUint32 : symmInt32, how,
                            c == SAME_ROOT ? 1 : 2, comm, NULL));
        T_CHECKF(simulate().kernels == kernels[c], "case %d: %d kernels, not %d", c,
                 simulate().kernels, kernels[c]);
        T_OK(symmGroupEnd());
        if (rank == 1) T_EQ(out[0], c == OWN_REDUCTION ? 6 : 3);
        if (rank == (c == SAME_ROOT ? 1 : 2))
            T_EQ(out[1], c == OTHER_CALL ? 2 : c == OWN_REDUCTION ? 12 : 6);
    }
    T_OK(symmRedOpDestroy(op, comm));
}

static void what_stays_by_itself(void) {
    open_all(1);
    T_THREADS(3, kinds_rank, NULL);
    close_all(1);
}

/* A root again begins the next kernel; the text says what runs as one. */
static void runs_rank(int rank, int n, void *arg) {
    static const int roots[] = {2, 0, 1, 1, 0, 2, 2};
    int in[7], out[7];
    char line[200];
    (void)n, (void)arg;
    for (int i = 0; i < 7; i++) in[i] = 10 * rank + i;
    T_OK(symmGroupStart());
    for (int i = 0; i < 7; i++)
        T_OK(symmBroadcast(&in[i], &out[i], 1, symmInt32, roots[i], comms[0][rank], NULL));
    const symmGroupInfo_t told = simulate();
    T_EQ(told.kernels, 3);
    T_EQ(told.jobs, 1);
    snprintf(line, sizeof line,
             "rank %d, stream (nil): 3 x broadcast as one all_gatherv, 3 x broadcast as one "
             "all_gatherv, broadcast_ahead\n",
             rank);
    T_MSG(told.text, line);
    T_OK(symmGroupEnd());
    for (int i = 0; i < 7; i++) T_EQ(out[i], 10 * roots[i] + i);
}

static void a_root_again_begins_the_next(void) {
    open_all(1);
    T_THREADS(3, runs_rank, NULL);
    close_all(1);
}

/* One thread has two of the ranks, whose calls alternate, and another communicator's in between;
 * another thread has one rank alone. All come to the same. */
static void mixed_thread(int part, int n, void *arg) {
    static int in[3][3], out[3][3], sum[3];
    symmStream_t streams[3], other[3];
    const int first = part ? 2 : 0, end = part ? 3 : 2;
    (void)n, (void)arg;
    for (int r = first; r < end; r++) {
        T_OK(symmStreamCreate(&streams[r]));
        T_OK(symmStreamCreate(&other[r]));
    }
    T_OK(symmGroupStart());
    for (int root = 0; root < 3; root++)
        for (int r = first; r < end; r++) {
            in[r][root] = 10 * r + root;
            T_OK(symmBroadcast(&in[r][root], &out[r][root], 1, symmInt32, root, comms[0][r],
                               streams[r]));
            if (root == 1)
                T_OK(symmAllReduce(&in[r][0], &sum[r], 1, symmInt32, symmSum, comms[1][r],
                                   other[r]));
        }
    T_EQ(simulate().kernels, 2 * (end - first));
    T_OK(symmGroupEnd());
    for (int r = first; r < end; r++) {
        T_OK(symmStreamSynchronize(streams[r]));
        T_OK(symmStreamSynchronize(other[r]));
        for (int root = 0; root < 3; root++) T_EQ(out[r][root], 10 * root + root);
        T_EQ(sum[r], 30);
        T_OK(symmStreamDestroy(streams[r]));
        T_OK(symmStreamDestroy(other[r]));
    }
}

static void ranks_of_one_thread_and_of_two(void) {
    open_all(2);
    T_THREADS(2, mixed_thread, NULL);
    close_all(2);
}

/* A call of another communicator on the same stream keeps its place between the two. */
static void order_rank(int rank, int n, void *arg) {
    symmStream_t stream;
    int x[3] = {rank + 1, 0, 0}, y = 0;
    (void)arg;
    T_OK(symmStreamCreate(&stream));
    T_OK(symmGroupStart());
    T_OK(symmBroadcast(&x[0], &x[1], 1, symmInt32, 0, comms[0][rank], stream));
    T_OK(symmAllReduce(&x[1], &x[2], 1, symmInt32, symmSum, comms[1][rank], stream));
    T_OK(symmBroadcast(&x[2], &y, 1, symmInt32, 1, comms[0][rank], stream));
    T_EQ(simulate().kernels, 3);
    T_OK(symmGroupEnd());
    T_OK(symmStreamSynchronize(stream));
    T_EQ(y, n);
    T_OK(symmStreamDestroy(stream));
}

static void a_call_of_the_stream_in_between(void) {
    open_all(2);
    T_THREADS(3, order_rank, NULL);
    close_all(2);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* One call needs what another writes. None of the group runs, so one rank may find out alone. */
static void calls_that_need_each_other(void) {
    int x[4] = {1, 2, 3, 4};
    open_all(1);
    T_EXPECT_WARNINGS();
    for (int c = 0; c < 3; c++) {
        symmComm_t comm = comms[0][1];
        T_OK(symmGroupStart());
        T_OK(symmAllReduce(&x[3], &x[3], 1, symmInt32, symmSum, comm, NULL));
        if (c == 0) { /* this rank sends on what it has received */
            T_OK(symmBroadcast(NULL, &x[0], 1, symmInt32, 0, comm, NULL));
            T_OK(symmBroadcast(&x[0], &x[1], 1, symmInt32, 1, comm, NULL));
        } else if (c == 1) { /* two into one place */
            T_OK(symmBroadcast(NULL, &x[0], 2, symmInt32, 0, comm, NULL));
            T_OK(symmBroadcast(NULL, &x[1], 2, symmInt32, 2, comm, NULL));
        } else {
            T_OK(symmReduce(&x[0], &x[1], 1, symmInt32, symmSum, 1, comm, NULL));
            T_OK(symmReduce(&x[1], NULL, 1, symmInt32, symmSum, 2, comm, NULL));
        }
        symmGroupInfo_t info = {.size = sizeof info};
        T_ERR(symmGroupSimulateEnd(&info), symmInvalidArgument);
        T_ERR(symmGroupEnd(), symmInvalidArgument);
        T_MSG(symmGetLastError(NULL), "run as one in this group");
        T_EQ(x[0], 1);
        T_EQ(x[3], 4);
    }
    close_all(1);
}

/* Ranks of which one has no group hear of it, at the latest at the end of theirs. */
static void astray_rank(int rank, int n, void *arg) {
    int in[2] = {1, 2}, out[2];
    symmComm_t comm = comms[0][rank];
    symmResult_t r = symmSuccess;
    (void)n, (void)arg;
    if (rank != 2) T_OK(symmGroupStart());
    for (int i = 0; i < 2 && !r; i++)
        r = symmBroadcast(&in[i], &out[i], 1, symmInt32, i, comm, NULL);
    if (rank != 2) r = symmGroupEnd();
    T_ERR(r, symmMismatch);
    T_MSG(symmGetLastError(NULL), ": symmAllGatherv of int32, 2 calls of a group");
    T_MSG(symmGetLastError(NULL), "rank 2: symmBroadcast of 1 int32, root 0");
}

static void a_rank_without_the_group(void) {
    T_EXPECT_WARNINGS();
    open_all(1);
    T_THREADS(3, astray_rank, NULL);
    close_all(1);
}

T_MAIN(T(same_bits_among_threads), T(same_bits_among_processes), T(what_stays_by_itself),
       T(a_root_again_begins_the_next), T(ranks_of_one_thread_and_of_two),
       T(a_call_of_the_stream_in_between), T(calls_that_need_each_other),
       T(a_rank_without_the_group))
