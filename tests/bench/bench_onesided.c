/* bench_onesided.c - one-sided calls beside what they are made of, between two processes, in turn:
 * large puts and gets beside memcpy over the same mapping (the other rank is idle), and a put of 8
 * bytes with its signal beside a bare exchange of a line of data and a line of flags, which are in
 * different pages as those of the put are. Not a test: `make bench` runs it. Medians of rounds. */
#include <string.h>

#include "bench_mpi.h"
#include "symm_mpi.h"

enum { ROUNDS = 21, TURNS = 2000, APART = 8256 };
#define MOST ((size_t)64 << 20)

static symmComm_t comm;
static symmWindow_t win;
static char *mine, *theirs; /* this rank's part, and the other's as it is mapped here */
static char *own;           /* in no window */

static double middle(double *took) {
    qsort(took, ROUNDS, sizeof *took, by_value);
    return took[ROUNDS / 2];
}

/* ---- bytes ----------------------------------------------------------------------------------- */

enum { COPY, PUT, COPY_BACK, GET, WAYS };

static void move(int way, size_t bytes) {
    if (way == COPY) memcpy(theirs, own, bytes);
    if (way == PUT) must(symmPut(own, bytes, symmInt8, 1, win, 0, comm, NULL), "symmPut");
    if (way == COPY_BACK) memcpy(own, theirs, bytes);
    if (way == GET) must(symmGet(own, bytes, symmInt8, 1, win, 0, comm, NULL), "symmGet");
}

/* GB/s. */
static double rate(int way, size_t bytes) {
    const int times = bytes < MOST / 64 ? 200 : 4;
    move(way, bytes);
    const double begin = MPI_Wtime();
    for (int i = 0; i < times; i++) move(way, bytes);
    return (double)bytes * times / (MPI_Wtime() - begin) / 1e9;
}

static void show_bytes(size_t bytes) {
    double rates[WAYS][ROUNDS], at[WAYS];
    for (int i = 0; i < ROUNDS; i++)
        for (int way = 0; way < WAYS; way++) rates[way][i] = rate(way, bytes);
    for (int way = 0; way < WAYS; way++) at[way] = middle(rates[way]);
    printf("%9zu  memcpy %6.2f GB/s, put %6.2f (%.2f of it); memcpy back %6.2f, get %6.2f (%.2f)\n",
           bytes, at[COPY], at[PUT], at[PUT] / at[COPY], at[COPY_BACK], at[GET],
           at[GET] / at[COPY_BACK]);
}

/* ---- there and back -------------------------------------------------------------------------- */

/* The release pairs with the acquire of the other rank. */
static void bare_send(uint64_t turn) {
    __atomic_store_n((uint64_t *)(void *)theirs, turn, __ATOMIC_RELAXED);
    __atomic_store_n((uint64_t *)(void *)(theirs + APART), turn, __ATOMIC_RELEASE);
}
static void bare_wait(uint64_t turn) {
    while (__atomic_load_n((uint64_t *)(void *)(mine + APART), __ATOMIC_ACQUIRE) < turn)
        ;
    if (__atomic_load_n((uint64_t *)(void *)mine, __ATOMIC_RELAXED) != turn)
        must(symmInternalError, "the bare exchange");
}

static void put_send(uint64_t turn) {
    must(symmPutSignal(&turn, 1, symmUint64, 1 - rank, win, 128, 0, comm, NULL), "symmPutSignal");
}
static void put_wait(uint64_t turn) {
    const symmSignalWait_t one = {1 - rank, 0, 1};
    must(symmWaitSignal(1, &one, comm, NULL), "symmWaitSignal");
    if (__atomic_load_n((uint64_t *)(void *)(mine + 128), __ATOMIC_RELAXED) != turn)
        must(symmInternalError, "the put");
}

/* Microseconds of one way. */
static double turn_time(void (*send)(uint64_t), void (*await)(uint64_t), uint64_t *turn) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < TURNS; i++) {
        ++*turn;
        if (rank) await(*turn);
        send(*turn);
        if (!rank) await(*turn);
    }
    return (MPI_Wtime() - begin) * 1e6 / TURNS / 2;
}

static void show_turns(void) {
    double bare[ROUNDS], put[ROUNDS];
    uint64_t turns[2] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        bare[i] = turn_time(bare_send, bare_wait, &turns[0]);
        put[i] = turn_time(put_send, put_wait, &turns[1]);
    }
    const double b = middle(bare), p = middle(put);
    if (!rank)
        printf("8 bytes and a signal: bare %.3f us, put %.3f us: %.3f us more\n", b, p, p - b);
}

int main(int argc, char **argv) {
    setenv("SYMM_BACKEND", "host", 0); /* the buffers are touched by the CPU */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    must(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL), "symmCommInitMPI");
    must(symmMemAlloc((void **)&mine, MOST), "symmMemAlloc");
    must(symmMemAlloc((void **)&own, MOST), "symmMemAlloc");
    memset(own, 1, MOST);
    memset(mine, 0, MOST);
    must(symmWindowRegister(comm, mine, MOST, &win, SYMM_WIN_DEFAULT), "symmWindowRegister");
    must(symmWindowPeerPtr(win, 0, (rank + 1) % nranks, (void **)&theirs), "symmWindowPeerPtr");
    MPI_Barrier(MPI_COMM_WORLD);
    if (nranks == 2) show_turns();
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t bytes = 4096; nranks == 2 && !rank && bytes <= MOST; bytes *= 4) show_bytes(bytes);
    must(symmBarrier(comm, NULL), "symmBarrier");
    must(symmCommDestroy(comm), "symmCommDestroy");
    must(symmMemFree(mine), "symmMemFree");
    must(symmMemFree(own), "symmMemFree");
    MPI_Finalize();
    return 0;
}
