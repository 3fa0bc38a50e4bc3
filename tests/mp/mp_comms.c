/* mp_comms.c - many communicators over one MPI communicator at once, under mpirun: made one after
 * the other and by several threads, each used for registrations, splits and growth while the others
 * live. Needs MPI_THREAD_MULTIPLE where threads make them. MPI's calls are counted on their way
 * through. */
#include <mpi.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "symm_heap.h"
#include "symm_mpi.h"
#include "t.h"

enum { COMMS = 4, ROUNDS = 3, PER_THREAD = 2, BYTES = 2 << 20 };

static _Atomic int splits, entered;

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *newcomm) {
    atomic_fetch_add(&splits, 1);
    return PMPI_Comm_split(comm, color, key, newcomm);
}

int MPI_Iallgather(const void *send, int sendcount, MPI_Datatype sendtype, void *recv,
                   int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request) {
    atomic_fetch_add(&entered, 1);
    return PMPI_Iallgather(send, sendcount, sendtype, recv, recvcount, recvtype, comm, request);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    atomic_fetch_add(&entered, 1);
    return PMPI_Test(request, flag, status);
}

static int rank, ranks;

static symmComm_t make(MPI_Comm over) {
    symmComm_t comm = NULL;
    T_OK(symmCommInitMPI(&comm, over, NULL));
    return comm;
}

/* Window, collective over it, a heap that grows, a child that does the same. */
static void work_over(symmComm_t comm, int depth) {
    int n, me;
    int *buf;
    symmWindow_t win;
    symmHeap_t heap;
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    void *peer;
    T_OK(symmCommCount(comm, &n));
    T_OK(symmCommUserRank(comm, &me));
    T_OK(symmMemAlloc((void **)&buf, BYTES));
    T_OK(symmWindowRegister(comm, buf, BYTES, &win, SYMM_WIN_DEFAULT));
    buf[0] = me + 1;
    T_OK(symmAllReduce(buf, buf, 1, symmInt32, symmSum, comm, NULL));
    T_EQ(buf[0], n * (n + 1) / 2);
    T_OK(symmWindowPeerPtr(win, 0, (me + 1) % n, &peer));
    T_OK(symmBarrier(comm, NULL));
    T_EQ(*(int *)peer, n * (n + 1) / 2);
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmMemFree(buf));
    c.reserve = 64 << 20;
    c.chunk = BYTES;
    c.symBytes = BYTES;
    T_OK(symmHeapCreate(comm, &c, &heap));
    T_OK(symmHeapGrow(heap, 2 * (uint64_t)BYTES, 0));
    T_OK(symmHeapDestroy(heap));
    if (!depth) return;
    symmComm_t child;
    T_OK(symmCommSplit(comm, 0, -me, &child, NULL));
    work_over(child, depth - 1);
    T_OK(symmCommDestroy(child));
}

/* ---- one thread ---- */

static void several_live_over_one_duplicate(void) {
    MPI_Comm over;
    symmComm_t comm[COMMS];
    symmCommInfo_t info = {.size = sizeof info};
    MPI_Comm_dup(MPI_COMM_WORLD, &over);
    atomic_store(&splits, 0);
    for (int i = 0; i < COMMS; i++) {
        comm[i] = make(over);
        for (int k = 0; k <= i; k++) work_over(comm[k], k == i);
    }
    T_EQ(splits, 1);
    T_OK(symmCommQuery(comm[0], &info));
    T_STREQ(info.bootstrap, "mpi");
    for (int i = 0; i < COMMS; i++) { /* they go in another order on each rank */
        T_OK(symmCommDestroy(comm[(i + rank) % COMMS]));
        comm[(i + rank) % COMMS] = NULL;
    }
    symmComm_t again = make(over);
    work_over(again, 1);
    T_OK(symmCommDestroy(again));
    T_EQ(splits, 1);
    MPI_Comm_free(&over);
}

/* So it may be used by any thread at any level of MPI's, and its exchanges meet nobody else's. */
static void a_living_one_enters_mpi_no_more(void) {
    symmComm_t first = make(MPI_COMM_WORLD), second = make(MPI_COMM_WORLD);
    const int before = atomic_load(&entered);
    work_over(first, 2);
    work_over(second, 2);
    T_EQ(entered, before);
    T_OK(symmCommDestroy(first));
    work_over(second, 1);
    T_EQ(entered, before);
    T_OK(symmCommDestroy(second));
}

static void it_outlives_the_mpi_communicator(void) {
    MPI_Comm over;
    MPI_Comm_dup(MPI_COMM_WORLD, &over);
    symmComm_t comm = make(over);
    MPI_Comm_free(&over);
    work_over(comm, 1);
    T_OK(symmCommDestroy(comm));
}

/* ---- several threads ---- */

typedef struct {
    symmComm_t comm[PER_THREAD];
    int no;
} worker;

static void *make_and_work(void *arg) {
    worker *w = arg;
    for (int i = 0; i < PER_THREAD; i++) w->comm[i] = make(MPI_COMM_WORLD);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < PER_THREAD; i++) work_over(w->comm[i], 1);
    return NULL;
}

static void need_multiple(void) {
    int level;
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) T_SKIP("this MPI gives no MPI_THREAD_MULTIPLE");
}

static void threads_make_them_at_once(void) {
    pthread_t t[COMMS];
    worker w[COMMS];
    need_multiple();
    for (int i = 0; i < COMMS; i++) {
        w[i].no = i;
        T_EQ(pthread_create(&t[i], NULL, make_and_work, &w[i]), 0);
    }
    for (int i = 0; i < COMMS; i++) T_EQ(pthread_join(t[i], NULL), 0);
    for (int i = 0; i < COMMS; i++) {
        int k = (i + rank) % COMMS;
        for (int j = 0; j < PER_THREAD; j++) T_OK(symmCommDestroy(w[k].comm[j]));
    }
}

/* Made by one thread, used by others, in an order of each rank's own. */
static void *use(void *arg) {
    for (int round = 0; round < ROUNDS; round++) work_over(*(symmComm_t *)arg, 1);
    return NULL;
}

static void threads_use_what_one_made(void) {
    pthread_t t[COMMS];
    symmComm_t comm[COMMS];
    for (int i = 0; i < COMMS; i++) comm[i] = make(MPI_COMM_WORLD);
    for (int i = 0; i < COMMS; i++)
        T_EQ(pthread_create(&t[i], NULL, use, &comm[(i + rank) % COMMS]), 0);
    for (int i = 0; i < COMMS; i++) T_EQ(pthread_join(t[i], NULL), 0);
    for (int i = 0; i < COMMS; i++) T_OK(symmCommDestroy(comm[i]));
}

static const t_test tests[] = {
    T(several_live_over_one_duplicate),  T(a_living_one_enters_mpi_no_more),
    T(it_outlives_the_mpi_communicator), T(threads_make_them_at_once),
    T(threads_use_what_one_made),
};

int main(int argc, char **argv) {
    int level;
    setenv("SYMM_SCRATCH", "1M", 1);
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int rc = t_inline(argc, argv, tests, (int)(sizeof tests / sizeof *tests), rank);
    MPI_Finalize();
    return rc == 77 ? 0 : rc;
}
