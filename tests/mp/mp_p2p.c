/* mp_p2p.c - sends and receives between processes under mpirun: every size and place around a ring,
 * and all to all in groups, each time with other data; in one domain, and over several. */
#include <mpi.h>
#include <stdio.h>

#include "p2p_kit.h"
#include "symm_mpi.h"

enum { MOST = 3 << 20, ROOM = 2 * (MOST + 4096) };

static int rank, n;

/* domain: ranks of each; 0: as the machines are. */
static symmComm_t open_world(pk_world *w, int domain) {
    symmComm_t comm;
    char text[16];
    snprintf(text, sizeof text, "%d", domain);
    setenv("SYMM_DOMAIN_SIZE", text, 1);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    pk_open(w, comm, rank, n, ROOM);
    return comm;
}

static void close_world(pk_world *w) {
    pk_close(w);
    T_OK(symmCommDestroy(w->comm));
}

static void ring(int domain) {
    static const uint64_t sizes[] = {0, 1, 40, 41, 8192, 8193, 100001, 1048577, MOST};
    pk_world w;
    open_world(&w, domain);
    const int next = (rank + 1) % n, prev = (rank + n - 1) % n;
    for (int i = 0; i < 9 * 4; i++) {
        const uint64_t bytes = sizes[i / 4], no = (unsigned)i;
        char *out = pk_half(&w, i & 1) + 129, *in = pk_half(&w, i >> 1 & 1) + ROOM / 2 + 130;
        pk_fill(out, bytes, rank, next, no);
        pk_empty(in, bytes);
        T_OK(symmGroupStart());
        pk_send(w.comm, out, bytes, next, NULL);
        pk_recv(w.comm, in, bytes, prev, NULL);
        T_OK(symmGroupEnd());
        pk_received(in, bytes, prev, rank, no);
        memset(out, 0xee, bytes);
    }
    close_world(&w);
}

static void around_a_ring(void) {
    for (int domain = 0; domain < 4; domain++) ring(domain);
}

static void all_to_all(int domain) {
    pk_world w;
    open_world(&w, domain);
    const uint64_t part = ROOM / 2 / (unsigned)n - 256;
    for (int round = 0; round < 12; round++) {
        const uint64_t bytes = round % 3 == 0 ? 8 : round % 3 == 1 ? 5000 : part - 400;
        char *out = pk_half(&w, round & 1), *in = pk_half(&w, !(round & 1)) + ROOM / 2;
        for (int q = 0; q < n; q++) {
            pk_fill(out + (unsigned)q * part + 100, bytes, rank, q, (unsigned)round);
            pk_empty(in + (unsigned)q * part + 100, bytes);
        }
        T_OK(symmGroupStart());
        for (int q = 0; q < n; q++) {
            pk_send(w.comm, out + (unsigned)q * part + 100, bytes, q, NULL);
            pk_recv(w.comm, in + (unsigned)q * part + 100, bytes, q, NULL);
        }
        T_OK(symmGroupEnd());
        for (int q = 0; q < n; q++)
            pk_received(in + (unsigned)q * part + 100, bytes, q, rank, (unsigned)round);
    }
    close_world(&w);
}

static void all_to_all_in_groups(void) {
    for (int domain = 0; domain < 4; domain++) all_to_all(domain);
}

T_MAIN_MPI(T(around_a_ring), T(all_to_all_in_groups))
