/* mp_device_api.c - host kernels (symm_device_host.h) of processes under mpirun: barriers, signals,
 * packets, on one and more threads of each rank, and reductions beside symmAllReduce. */
#include <mpi.h>
#include <stdio.h>

#include "coll_data.h"
#include "host_kernel_kit.h"
#include "symm_mpi.h"

static int rank, n;

static void open_rank(hkk_rank *w) {
    symmComm_t comm;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    hkk_open(w, comm, rank, n);
}
static void close_rank(hkk_rank *w) {
    hkk_close(w);
    T_OK(symmCommDestroy(w->comm));
}

/* Each kernel several times, in turn with the others and with collectives. */
static void every_kernel(void) {
    static const hk_kernel kernels[] = {hk_barriers, hk_ring, hk_packets, hk_counts, hk_apart};
    hkk_rank w;
    open_rank(&w);
    for (int round = 0; round < 3; round++)
        for (int k = 0; k < 5; k++) {
            int32_t one = 1, sum = 0;
            hk_args a = hkk_args(&w, 0, 6);
            a.first = 6 * round;
            a.slow_us = rank == round % n && k != 4 ? 300 : 0;
            hkk_run(kernels[k], &a, n > 4 ? 1 : 2);
            T_OK(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, w.comm, NULL));
            T_EQ(sum, n);
        }
    close_rank(&w);
}

/* A registered window, which processes map at one distance. */
static void reductions_over_a_window(void) {
    enum { COUNT = 5000 };
    hkk_rank w;
    symmWindow_t win;
    symmDevWindow_t x;
    symmHostCta_t cta;
    float *mem, got[COUNT], want[COUNT];
    open_rank(&w);
    T_OK(symmMemAlloc((void **)&mem, sizeof got));
    T_OK(symmWindowRegister(w.comm, mem, sizeof got, &win, SYMM_WIN_DEFAULT));
    T_OK(symmDevWindowGet(w.comm, mem, sizeof got, &x));
    for (int i = 0; i < COUNT; i++)
        mem[i] = (float)(ck_hash(5, (uint64_t)i, (uint64_t)rank) % 1000003) / 977;
    T_OK(symmAllReduce(mem, want, COUNT, symmFloat, symmSum, w.comm, NULL));
    for (int k = 0; k < 20; k++) {
        memset(got, 0, sizeof got);
        T_OK(symmHostCtaBegin(&w.dev, k % HKK_CTAS, &cta));
        T_EQ(symmHostBarrierSync(&cta), 0);
        T_OK(symmHostLoadReduce(&cta, &x, 0, COUNT, symmFloat, symmSum, got));
        T_EQ(symmHostBarrierSync(&cta), 0);
        T_OK(symmHostCtaEnd(&cta));
        T_CHECKF(!memcmp(got, want, sizeof got), "rank %d of %d: other bits", rank, n);
    }
    T_OK(symmBarrier(w.comm, NULL));
    T_OK(symmWindowDeregister(w.comm, win));
    T_OK(symmMemFree(mem));
    close_rank(&w);
}

T_MAIN_MPI(T(every_kernel), T(reductions_over_a_window))
