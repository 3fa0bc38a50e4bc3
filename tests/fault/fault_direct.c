/* fault_direct.c - buffers in no window, which peers read and write where they are: that they do,
 * what is said where the system refuses it, and what a buffer that is not there leads to. Forked
 * ranks; no lock. */
#include <sys/mman.h>

#include "fault_kit.h"

enum { RANKS = 3, ODD = 1, BYTES = 1 << 20 };

static symmExplain_t plan_of(symmComm_t comm) {
    symmExplain_t p = {.size = sizeof p};
    char *in = malloc(BYTES), *out = malloc((size_t)RANKS * BYTES);
    T_CHECK(in && out);
    T_OK(symmExplain(comm, symmCollAllGather, in, out, BYTES, symmUint8, symmSum, 0, &p));
    free(in);
    free(out);
    return p;
}

static void opened(fk *f, int rank, int n, int direct, const char *says) {
    symmComm_t comm = fk_open(f, rank, n);
    symmExplain_t p = plan_of(comm);
    T_EQ(p.zeroCopySend, direct);
    if (says) T_MSG(p.reason, says);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void direct_rank(int rank, int n, void *arg) {
    opened(arg, rank, n, 1, NULL);
}
static void used_where_they_are(void) {
    setenv("SYMM_DIRECT", "1", 1);
    T_FORK(RANKS, direct_rank, fk_new(0, 0));
}

static void refused_rank(int rank, int n, void *arg) {
    T_EQ(symm_fail_arm(rank == ODD ? "peer_reach:error" : ""), 0);
    opened(arg, rank, n, 0, "rank 1 cannot reach the memory of rank 0 (not permitted");
}
static void staged_where_the_system_refuses(void) {
    setenv("SYMM_DIRECT", "1", 1);
    T_FORK(RANKS, refused_rank, fk_new(0, 0));
}

static void off_rank(int rank, int n, void *arg) {
    setenv("SYMM_DIRECT", rank == ODD ? "0" : "1", 1);
    opened(arg, rank, n, 0, "SYMM_DIRECT is 0 on rank 1");
}
static void switched_off_by_one_rank(void) {
    T_FORK(RANKS, off_rank, fk_new(0, 0));
}

/* In place: the rank itself does not touch the part that it sends. */
static void hole_rank(int rank, int n, void *arg) {
    symmComm_t comm = fk_open(arg, rank, n);
    fk *f = arg;
    char *all =
        mmap(NULL, (size_t)n * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *mine = all + (size_t)rank * BYTES, says[64];
    T_CHECK(all != MAP_FAILED);
    memset(all, rank, (size_t)n * BYTES);
    if (rank == ODD) {
        snprintf(f->k.text[0], sizeof f->k.text[0], "%#llx",
                 (unsigned long long)(uintptr_t)mine + BYTES / 2);
        T_EQ(munmap(mine + BYTES / 2, BYTES / 2), 0);
    }
    kit_barrier(&f->k, n);
    T_ERR(symmAllGather(mine, all, BYTES, symmUint8, comm, NULL), symmInvalidUsage);
    snprintf(says, sizeof says, "rank %d", ODD);
    T_MSG(symmGetLastError(comm), says);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void a_buffer_that_is_not_there(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_DIRECT", "1", 1);
    T_FORK(RANKS, hole_rank, fk_new(ODD, 0));
}

T_MAIN(T(used_where_they_are), T(staged_where_the_system_refuses), T(switched_off_by_one_rank),
       T(a_buffer_that_is_not_there))
