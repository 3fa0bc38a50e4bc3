/* bench_setup.c - what set-up costs: creating a communicator beyond MPI_Init, registering memory,
 * registering it again, dropping it, having it back, and freeing it, which is a part of the next
 * registration that maps something. Not a test: `make bench` runs it; medians over rounds, the
 * slowest rank counts. */
#include <string.h>

#include "bench_mpi.h"
#include "symm_mpi.h"

enum { ROUNDS = 9 };

static void show(const char *what, double *seconds, int n) {
    double slowest[ROUNDS * 64];
    MPI_Reduce(seconds, slowest, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank) return;
    qsort(slowest, (size_t)n, sizeof *slowest, by_value);
    printf("%-44s median %10.1f us   min %10.1f   max %10.1f\n", what, slowest[n / 2] * 1e6,
           slowest[0] * 1e6, slowest[n - 1] * 1e6);
}

static void creation(void) {
    double create[ROUNDS], destroy[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        symmComm_t c;
        MPI_Barrier(MPI_COMM_WORLD);
        double t0 = MPI_Wtime();
        must(symmCommInitMPI(&c, MPI_COMM_WORLD, NULL), "symmCommInitMPI");
        double t1 = MPI_Wtime();
        must(symmCommDestroy(c), "symmCommDestroy");
        create[i] = t1 - t0;
        destroy[i] = MPI_Wtime() - t1;
    }
    show("create a communicator", create, ROUNDS);
    show("destroy it", destroy, ROUNDS);
}

static double timed_register(symmComm_t c, void *p, size_t bytes, symmWindow_t *win) {
    MPI_Barrier(MPI_COMM_WORLD);
    double t = MPI_Wtime();
    must(symmWindowRegister(c, p, bytes, win, 0), "symmWindowRegister");
    return MPI_Wtime() - t;
}

static double timed_deregister(symmComm_t c, symmWindow_t win) {
    MPI_Barrier(MPI_COMM_WORLD); /* the first to be done would else take the others' cores */
    double t = MPI_Wtime();
    must(symmWindowDeregister(c, win), "symmWindowDeregister");
    return MPI_Wtime() - t;
}

/* Each round frees its memory at its end, so that the next one's first registration does not pay
 * for that. */
static void registration(symmComm_t c, size_t bytes) {
    double first[ROUNDS], again[ROUNDS], drop[ROUNDS], back[ROUNDS], freed[ROUNDS];
    char text[64];
    for (int i = 0; i < ROUNDS; i++) {
        void *p;
        symmWindow_t a, b, empty;
        must(symmMemAlloc(&p, bytes), "symmMemAlloc");
        memset(p, 1, bytes);
        first[i] = timed_register(c, p, bytes, &a);
        again[i] = timed_register(c, p, bytes, &b);
        must(symmWindowDeregister(c, b), "symmWindowDeregister");
        drop[i] = timed_deregister(c, a);
        back[i] = timed_register(c, p, bytes, &a);
        must(symmWindowDeregister(c, a), "symmWindowDeregister");
        must(symmMemFree(p), "symmMemFree");
        freed[i] = timed_register(c, NULL, 0, &empty);
        must(symmWindowDeregister(c, empty), "symmWindowDeregister");
    }
    snprintf(text, sizeof text, "register %zu MiB", bytes >> 20);
    show(text, first, ROUNDS);
    show("register it again (a reference)", again, ROUNDS);
    show("deregister", drop, ROUNDS);
    show("register what was dropped", back, ROUNDS);
    show("free it (an empty window)", freed, ROUNDS);
}

int main(int argc, char **argv) {
    symmComm_t c;
    setenv("SYMM_BACKEND", "host", 0); /* the buffers are touched by the CPU */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    if (!rank) printf("set-up, %d ranks\n", nranks);
    creation();
    must(symmCommInitMPI(&c, MPI_COMM_WORLD, NULL), "symmCommInitMPI");
    registration(c, 2u << 20);
    registration(c, 64u << 20);
    must(symmCommDestroy(c), "symmCommDestroy");
    MPI_Finalize();
    return 0;
}
