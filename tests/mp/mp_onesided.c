/* mp_onesided.c - one-sided calls between processes under mpirun: every size and place around a
 * ring, and random programs against a reference (onesided_model.h). */
#include <mpi.h>
#include <stdio.h>

#include "onesided_model.h"
#include "symm_mpi.h"

enum { BIG = 3 << 20, HALF = BIG + 8192 };

static int rank, n;

static symmComm_t open_comm(void) {
    symmComm_t comm;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    return comm;
}

static void around_a_ring(void) {
    static const uint64_t sizes[] = {0, 1, 40, 64, 4097, 100001, BIG};
    ok_world w;
    symmComm_t comm = open_comm();
    ok_open(&w, comm, rank, n, 2 * HALF);
    const int next = (rank + 1) % n, prev = (rank + n - 1) % n;
    for (int i = 0; i < 7 * 4; i++) {
        const uint64_t bytes = sizes[i / 4], at = 500 + (unsigned)i % 5, no = (unsigned)i;
        char *from = pk_half(&w.p, i & 1) + HALF + 64 + (i >> 1 & 1), *back = w.p.heap + 64;
        pk_fill(from, bytes, rank, next, no);
        pk_empty(w.p.memory + at, bytes);
        pk_empty(back, bytes);
        ok_credit(&w, prev, next);
        T_OK(symmPutSignal(from, bytes, symmUint8, next, w.p.win, at, i, comm, NULL));
        T_OK(symmGet(back, bytes, symmUint8, next, w.p.win, at, comm, NULL)); /* what it put */
        ok_wait(&w, prev, i, 1, NULL);
        pk_received(w.p.memory + at, bytes, prev, rank, no);
        pk_received(back, bytes, rank, next, no);
        T_OK(symmBarrier(comm, NULL));
    }
    ok_close(&w);
    T_OK(symmCommDestroy(comm));
}

static void random_programs(void) {
    uint64_t seed = ck_seed();
    om_program *p = malloc(sizeof *p);
    om_rank r;
    T_CHECK(p != NULL);
    symmComm_t comm = open_comm();
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (n > OM_MOST) {
        T_OK(symmCommDestroy(comm));
        free(p);
        T_SKIP("needs at most %d ranks", OM_MOST);
    }
    if (rank == 0) printf("# T_SEED=%llu\n", (unsigned long long)seed);
    om_open(&r, comm, rank, n);
    for (int k = 0; k < (ck_full() ? 1000 : 60); k++) {
        const uint64_t s = ck_hash(seed, (uint64_t)k, 16);
        om_draw(p, s, n);
        om_run(&r, p, s);
    }
    om_close(&r);
    T_OK(symmCommDestroy(comm));
    free(p);
}

T_MAIN_MPI(T(around_a_ring), T(random_programs))
