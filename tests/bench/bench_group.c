/* bench_group.c - what a group gains where calls with different roots run as one: broadcasts and
 * reduces of one size by themselves; in a group, each unlike the one before, so that they stay one
 * by one; in a group as one. Not a test: `make bench` runs it.
 * Usage: bench_group [roots [unregistered]]. Medians over rounds; the slowest rank counts. */
#include <string.h>

#include "bench_mpi.h"
#include "symm_mpi.h"

enum { ROUNDS = 9, FROM = 16, UPTO = 1 << 19, STEP = 8 }; /* elements */

static int roots;
static symmComm_t comm;
static float *one, *many; /* of one call; of all */

enum { ALONE, GROUPED, AS_ONE, WAYS };

static void call_all(size_t count, int reduces, int way) {
    for (int i = 0; i < roots; i++) {
        float *part = many + (size_t)i * count;
        const int unlike = way == GROUPED && i % 2;
        must(
            reduces
                ? symmReduce(part, one, count, symmFloat, unlike ? symmMax : symmSum, i, comm, NULL)
                : symmBroadcast(one, part, count, unlike ? symmInt32 : symmFloat, i, comm, NULL),
            reduces ? "symmReduce" : "symmBroadcast");
    }
}

/* Microseconds of all calls together. */
static double measure(size_t count, int reduces, int way) {
    const int times = count <= 1024 ? 200 : count <= 65536 ? 20 : 5;
    double took[ROUNDS], slowest[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        must(symmBarrier(comm, NULL), "symmBarrier");
        const double begin = MPI_Wtime();
        for (int k = 0; k < times; k++) {
            if (way) must(symmGroupStart(), "symmGroupStart");
            call_all(count, reduces, way);
            if (way) must(symmGroupEnd(), "symmGroupEnd");
        }
        took[i] = (MPI_Wtime() - begin) / times;
    }
    MPI_Reduce(took, slowest, ROUNDS, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    qsort(slowest, ROUNDS, sizeof *slowest, by_value);
    return slowest[ROUNDS / 2] * 1e6;
}

static void show(size_t count) {
    double took[2][WAYS];
    for (int reduces = 0; reduces < 2; reduces++)
        for (int way = 0; way < WAYS; way++) took[reduces][way] = measure(count, reduces, way);
    if (rank) return;
    printf("%9zu", count * sizeof(float));
    for (int reduces = 0; reduces < 2; reduces++)
        printf("  %10.2f %9.2f %8.2f %6.2fx", took[reduces][ALONE], took[reduces][GROUPED],
               took[reduces][AS_ONE], took[reduces][GROUPED] / took[reduces][AS_ONE]);
    printf("\n");
}

int main(int argc, char **argv) {
    symmWindow_t win;
    setenv("SYMM_BACKEND", "host", 0); /* the buffers are touched by the CPU */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    roots = argc > 1 && atoi(argv[1]) > 0 && atoi(argv[1]) < nranks ? atoi(argv[1]) : nranks;
    const size_t bytes = (size_t)(nranks + 1) * UPTO * sizeof *one;
    must(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL), "symmCommInitMPI");
    must(symmMemAlloc((void **)&one, bytes), "symmMemAlloc");
    memset(one, 0, bytes);
    many = one + UPTO;
    if (argc < 3)
        must(symmWindowRegister(comm, one, bytes, &win, SYMM_WIN_DEFAULT), "symmWindowRegister");
    if (!rank)
        printf("# %d ranks, %d roots, %s, us\n#   bytes  broadcasts  in group   as one   gain     "
               "reduces"
               "  in group   as one   gain\n",
               nranks, roots, argc < 3 ? "registered" : "in no window");
    for (size_t count = FROM; count <= UPTO; count *= STEP) show(count);
    must(symmCommDestroy(comm), "symmCommDestroy");
    must(symmMemFree(one), "symmMemFree");
    MPI_Finalize();
    return 0;
}
