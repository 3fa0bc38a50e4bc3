/* fault_version.c - ranks that were built differently meet: every rank gets the same clear error,
 * and nothing is left behind. Forked ranks over a unique id; no lock. */
#include "fault_kit.h"

extern int symm_test_skew[3]; /* comm_hello.c: version, records, kernel table */

static void skewed_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL;
    T_EXPECT_WARNINGS();
    fk_id(f, rank, n);
    if (rank == f->victim) symm_test_skew[f->how / 2] = f->how % 2 ? 1 : -1;
    fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
    T_CHECK(comm == NULL);
    kit_barrier(&f->k, n);
    static const char *const says[] = {"runs symm", "other records", "another kernel table"};
    fk_same(f, n, -1, symmVersionMismatch, says[f->how / 2]);
    T_STREQ(f->k.text[rank], f->k.text[0]);
    if (f->how / 2 == 0) T_MSG(f->k.text[rank], f->victim ? "0.1.0" : "rank 1");
    symm_test_skew[f->how / 2] = 0; /* built alike again: the same processes get a communicator */
    comm = fk_open(f, rank, n);
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmCommDestroy(comm));
}

static void every_skew_on_every_rank(void) {
    for (int how = 0; how < 6; how++)
        for (int victim = 0; victim < 3; victim++) T_FORK(3, skewed_rank, fk_new(victim, how));
}

T_MAIN(T(every_skew_on_every_rank))
