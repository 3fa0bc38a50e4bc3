/* fault_mixed.c - processes of several ranks: each rank has mappings of its own, as if it were a
 * process. Ranks are threads of forked
 * processes; no lock. */
#include <pthread.h>

#include "coll_expect.h"
#include "fault_kit.h"

enum { PROCESSES = 2, EACH = 2, N = PROCESSES * EACH, BYTES = 4 << 20 };

typedef struct {
    fk *f;
    int process, rank;
    void (*body)(fk *f, int rank);
} one;

static void *run_one(void *arg) {
    one *o = arg;
    o->body(o->f, o->rank);
    return NULL;
}

/* How ranks lie on the processes: in blocks, or in turns. */
static int rank_of(int process, int thread, int turns) {
    return turns ? thread * PROCESSES + process : process * EACH + thread;
}

static void (*body)(fk *f, int rank);

static void process(int me, int n, void *arg) {
    fk *f = arg;
    one all[EACH];
    pthread_t t[EACH];
    (void)n;
    for (int i = 0; i < EACH; i++) {
        all[i] = (one){f, me, rank_of(me, i, f->how), body};
        T_EQ(pthread_create(&t[i], NULL, run_one, &all[i]), 0);
    }
    for (int i = 0; i < EACH; i++) pthread_join(t[i], NULL);
}

static void run(void (*fn)(fk *f, int rank)) {
    body = fn;
    for (int turns = 0; turns < 2; turns++) T_FORK(PROCESSES, process, fk_new(-1, turns));
}

/* ---- what works ---- */

static void works(fk *f, int rank) {
    symmCommInfo_t info = {.size = sizeof info};
    symmComm_t comm = fk_open(f, rank, N), child;
    T_OK(symmCommQuery(comm, &info));
    T_EQ(info.threadRanks, 0);
    fk_works(comm, rank, N);
    for (int i = 0; i < 3; i++) fk_registers(comm, rank, N);
    T_OK(symmCommSplit(comm, rank % 2, rank, &child, NULL));
    fk_works(child, rank / 2, N / 2);
    T_OK(symmCommDestroy(comm));
    fk_registers(child, rank / 2, N / 2);
    T_OK(symmCommDestroy(child));
}

static void threads_of_processes_are_ranks(void) {
    run(works);
}

/* One thread drives both ranks of its process in groups, as `-g 2` of test programs does. */
static void drive_both(int me, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm[EACH];
    symmWindow_t win[EACH];
    int *buf[EACH];
    (void)n;
    kit_barrier(&f->k, PROCESSES);
    if (me == 0) T_OK(symmGetUniqueId(&f->id));
    kit_barrier(&f->k, PROCESSES);
    T_OK(symmGroupStart());
    for (int i = 0; i < EACH; i++)
        T_OK(symmCommInitRank(&comm[i], N, f->id, rank_of(me, i, f->how)));
    T_OK(symmGroupEnd());
    for (int i = 0; i < EACH; i++) T_OK(symmMemAlloc((void **)&buf[i], BYTES));
    T_OK(symmGroupStart());
    for (int i = 0; i < EACH; i++) T_OK(symmWindowRegister(comm[i], buf[i], BYTES, &win[i], 0));
    T_OK(symmGroupEnd());
    for (int count = 3; count <= 300000; count *= 10) {
        for (int i = 0; i < EACH; i++)
            for (int k = 0; k < count; k++) buf[i][k] = rank_of(me, i, f->how) + k % 1000;
        T_OK(symmGroupStart());
        for (int i = 0; i < EACH; i++)
            T_OK(symmAllReduce(buf[i], buf[i], (size_t)count, symmInt32, symmSum, comm[i], NULL));
        T_OK(symmGroupEnd());
        for (int i = 0; i < EACH; i++)
            for (int k = 0; k < count; k++) T_EQ(buf[i][k], N * (N - 1) / 2 + N * (k % 1000));
    }
    for (int i = 0; i < EACH; i++) {
        T_OK(symmWindowDeregister(comm[i], win[i]));
        T_OK(symmCommDestroy(comm[i]));
        T_OK(symmMemFree(buf[i]));
    }
}

static void a_thread_drives_the_ranks_of_its_process(void) {
    for (int turns = 0; turns < 2; turns++) T_FORK(PROCESSES, drive_both, fk_new(-1, turns));
}

/* ---- what fails ---- */

/* The other process ends, and two ranks with it. */
static void loses(fk *f, int rank) {
    const int dies = (f->how ? rank % PROCESSES : rank / EACH) == f->victim;
    symmComm_t comm = fk_open(f, rank, N), next;
    fk_works(comm, rank, N);
    kit_barrier(&f->k, N);
    if (dies) {
        usleep(30000);
        kill(getpid(), SIGKILL);
    }
    symmResult_t r;
    do r = symmBarrier(comm, NULL);
    while (r == symmSuccess);
    T_EQ(r, symmRemoteError);
    T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_FAILED));
    fk_works(next, f->how ? rank / PROCESSES : rank % EACH, EACH);
    fk_registers(next, f->how ? rank / PROCESSES : rank % EACH, EACH);
    T_OK(symmCommDestroy(comm));
    T_OK(symmCommDestroy(next));
}

static void a_process_dies_with_its_ranks(void) {
    T_EXPECT_WARNINGS();
    body = loses;
    for (int i = 0; i < 4; i++) T_FORK_DIES(PROCESSES, i / 2, process, fk_new(i / 2, i % 2));
}

/* One of two ranks of a process ends its communicator; the process goes on. */
static void aborts(fk *f, int rank) {
    symmComm_t comm = fk_open(f, rank, N);
    kit_barrier(&f->k, N);
    if (rank == 1) {
        T_OK(symmCommAbort(comm));
    } else {
        symmResult_t r;
        do r = symmBarrier(comm, NULL);
        while (r == symmSuccess);
        T_EQ(r, symmAborted);
        T_OK(symmCommDestroy(comm));
    }
}

static void one_of_two_ranks_aborts(void) {
    T_EXPECT_WARNINGS();
    run(aborts);
}

T_MAIN(T(threads_of_processes_are_ranks), T(a_thread_drives_the_ranks_of_its_process),
       T(a_process_dies_with_its_ranks), T(one_of_two_ranks_aborts))
