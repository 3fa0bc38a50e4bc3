/* mp_large.c - more than 4 GiB in one call: offsets, counts and chunk numbers beyond 32 bits. Two
 * ranks under mpirun; other numbers of ranks, and machines without the memory, skip with the
 * reason. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>

#include "coll_kit.h"
#include "symm_mpi.h"

#define GIB       (1ull << 30)
#define COUNT     (4 * GIB + 3)
#define NEEDS     (20 * GIB)
#define PERIOD    65521ull /* prime, so an offset cut to 32 bits finds other data */
#define GUARD     256ull
#define SAMPLES   400000
#define TIMELIMIT 120

static uint64_t available(void) {
    char line[128];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) return 0;
    while (!kib && fgets(line, sizeof line, f)) {
        unsigned long long v;
        if (sscanf(line, "MemAvailable: %llu", &v) == 1) kib = v;
    }
    fclose(f);
    return kib * 1024;
}

static unsigned char value(int rank, uint64_t i) {
    return (unsigned char)ck_hash(20, i % PERIOD, (uint64_t)rank);
}

static void fill(unsigned char *p, int rank) {
    static unsigned char pattern[PERIOD];
    for (uint64_t i = 0; i < PERIOD; i++) pattern[i] = value(rank, i);
    ck_fill((char *)p, COUNT, (char *)pattern, PERIOD);
    memset(p - GUARD, 0xab, GUARD);
    memset(p + COUNT, 0xab, GUARD);
}

static void check_at(const unsigned char *p, uint64_t i) {
    unsigned char want = (unsigned char)(value(0, i) + value(1, i));
    T_CHECKF(p[i] == want, "element %llu is %u, must be %u", (unsigned long long)i, p[i], want);
}

static void check(const unsigned char *p) {
    uint64_t seed = ck_seed();
    for (uint64_t i = 0; i < 5000; i++) { /* both ends, and around 2^31 and 2^32 */
        check_at(p, i);
        check_at(p, COUNT - 1 - i);
        check_at(p, 2 * GIB - 2500 + i);
        check_at(p, 4 * GIB - 4997 + i);
    }
    for (uint64_t i = 0; i < SAMPLES; i++) check_at(p, ck_hash(seed, i, 0) % COUNT);
    for (uint64_t j = 0; j < GUARD; j++) T_CHECK(p[j - GUARD] == 0xab && p[COUNT + j] == 0xab);
}

static void more_than_4_gib(void) {
    int rank, ranks, enough = available() >= NEEDS;
    unsigned char *memory, *p;
    symmComm_t comm;
    symmWindow_t win;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (ranks != 2) T_SKIP("runs with 2 ranks only");
    if ((T_ASAN || T_TSAN) && !ck_full()) T_SKIP("takes 9 GiB: under sanitizers T_FULL=1 runs it");
    if (!enough) T_SKIP("needs memory: 20 GiB available");
    T_OK(symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL));
    T_OK(symmMemAlloc((void **)&memory, COUNT + 4096));
    p = memory + 1027; /* aligned to nothing */
    T_OK(symmWindowRegister(comm, memory, COUNT + 4096, &win, SYMM_WIN_DEFAULT));
    fill(p, rank);
    T_OK(symmAllReduce(p, p, COUNT, symmUint8, symmSum, comm, NULL));
    check(p);
    T_OK(symmWindowDeregister(comm, win));
    if (ck_full()) { /* the same through scratch, chunk by chunk */
        fill(p, rank);
        T_OK(symmAllReduce(p, p, COUNT, symmUint8, symmSum, comm, NULL));
        check(p);
    }
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(memory));
}

T_MAIN_MPI(T_TIMEOUT(more_than_4_gib, TIMELIMIT))
