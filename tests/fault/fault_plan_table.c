/* fault_plan_table.c - communicators and SYMM_PLAN_TABLE: kernels go by it, children have the rows
 * of their own number of ranks; where ranks have different rows, or one has a bad file, none is
 * made, and all hear why. Forked ranks; no lock. */
#include <fcntl.h>

#include "fault_kit.h"

static char path[64]; /* of the rank that writes it */

static void write_table(const char *text) {
    strcpy(path, "/tmp/symm-plan-XXXXXX");
    const int fd = mkstemp(path);
    T_CHECK(fd >= 0);
    T_EQ(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    setenv("SYMM_PLAN_TABLE", path, 1);
}

/* The core's answer, whose rows hold with few cores as with enough. */
#define ROWS(ranks, rows) \
    "[host ranks=" ranks " cores=enough]\n" rows "[host ranks=" ranks " cores=few]\n" rows

static void runs(symmComm_t comm, size_t count, const char *kernel, const char *why) {
    static int buf[4096];
    symmExplain_t e = {.size = sizeof e};
    T_OK(symmExplain(comm, symmCollAllReduce, buf, buf, count, symmInt32, symmSum, 0, &e));
    T_CHECKF(!strcmp(e.kernel, kernel), "%zu: %s, not %s: %s", count, e.kernel, kernel, e.reason);
    T_MSG(e.reason, why);
    T_OK(symmAllReduce(buf, buf, count, symmInt32, symmSum, comm, NULL));
}

static void table_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t child;
    write_table(ROWS("3", "all_reduce_2shot_packet upto=4000\n")
                    ROWS("2", "all_reduce_load_store\n"));
    symmComm_t comm = fk_open(f, rank, n);
    runs(comm, 8, "all_reduce_2shot_packet", "SYMM_PLAN_TABLE's choice");
    runs(comm, 1000, "all_reduce_2shot_packet", "SYMM_PLAN_TABLE's choice");
    runs(comm, 2000, "all_reduce_load_store", "the table's choice");
    fk_works(comm, rank, n);
    T_OK(symmCommSplit(comm, rank < 2 ? 0 : SYMM_SPLIT_NOCOLOR, rank, &child, NULL));
    if (rank < 2) runs(child, 8, "all_reduce_load_store", "SYMM_PLAN_TABLE's choice");
    if (rank < 2) T_OK(symmCommDestroy(child));
    T_OK(symmCommDestroy(comm));
    unlink(path);
}
static void kernels_go_by_a_table(void) {
    T_FORK(3, table_rank, fk_new(0, 0));
}

typedef struct {
    const char *text, *says;
    symmResult_t code;
} other;

static const other others[] = {{ROWS("3", "all_reduce_2shot_packet upto=4001\n"),
                                "other rows in SYMM_PLAN_TABLE", symmInvalidUsage},
                               {"", "other rows in SYMM_PLAN_TABLE", symmInvalidUsage},
                               {ROWS("4", "all_reduce_2shot_packet upto=4000\n"),
                                "other rows in SYMM_PLAN_TABLE", symmInvalidUsage},
                               {"[host ranks=3]\nall_reduce_by_pigeon\n",
                                "line 2: 'all_reduce_by_pigeon'", symmInvalidArgument},
                               {NULL, "No such file", symmSystemError}};

static void other_rank(int rank, int n, void *arg) {
    static const char rows[] = ROWS("3", "all_reduce_2shot_packet upto=4000\n");
    fk *f = arg;
    fk_gauges before = fk_take();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const other *o = &others[i];
        symmComm_t comm = NULL;
        fk_id(f, rank, n);
        write_table(rank == 1 && o->text ? o->text : rows);
        if (rank == 1 && !o->text) unlink(path);
        fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
        T_CHECK(comm == NULL);
        FK_UNCHANGED(&before);
        kit_barrier(&f->k, n);
        fk_same(f, n, -1, o->code, o->says);
        fk_same(f, n, -1, o->code, "rank 1");
    }
    /* Words around the rows do not count. */
    write_table(rank == 1 ? rows
                          : "# mine\n[host ranks=9]\nall_gather_load\n" ROWS(
                                "3", "all_reduce_2shot_packet   upto=4000\n"));
    symmComm_t comm = fk_open(f, rank, n);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
    unlink(path);
}
static void ranks_with_other_rows_make_none(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, other_rank, fk_new(1, 0));
}

T_MAIN(T(kernels_go_by_a_table), T(ranks_with_other_rows_make_none))
