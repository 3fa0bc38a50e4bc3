/* fault_points.c - every failpoint of fail.def on every rank, in creation and in registration, as an
 * error and as a death. Whatever fails: each rank returns an error, nobody hangs, nothing leaks, and
 * the same processes make a working communicator afterwards. Forked ranks and thread ranks; no lock.
 *
 * Codes are the same on all ranks but in the stages in which a rank cannot tell the others:
 *   boot_connect    it never came, which is a missing rank or a closed door to them
 *   boot_allgather  it leaves the exchange, which is a rank that left to them */
#include "fault_kit.h"

enum { CREATION, REGISTRATION, PHASES, SETUP_MS = 250, REG_BYTES = 2 << 20 };

static int last_nth(void) {
    const char *full = getenv("T_FULL");
    return full && atoi(full) > 0 ? 6 : 2;
}

static int cannot_tell(int point) {
    return point == symm_fp_boot_connect || point == symm_fp_boot_allgather;
}

static void arm(int point, const char *action, int nth) {
    char spec[96];
    snprintf(spec, sizeof spec, "%s:%s:%d", symm_fail_name(point), action, nth);
    T_EQ(symm_fail_arm(spec), 0);
}

/* All succeeded, or all failed, alike where that can be. Returns 1 if they failed. */
static int judge(const fk *f, int n, int point, int victim, int nth) {
    int failed = f->k.code[victim] != symmSuccess;
    for (int r = 0; r < n; r++) {
        int code = f->k.code[r];
        T_CHECKF((code != symmSuccess) == failed, "%s of rank %d, hit %d: rank %d has code %d (%s)",
                 symm_fail_name(point), victim, nth, r, code, f->k.text[r]);
        T_CHECKF(cannot_tell(point) || code == f->k.code[victim],
                 "%s of rank %d, hit %d: rank %d has code %d (%s), the victim %d (%s)",
                 symm_fail_name(point), victim, nth, r, code, f->k.text[r], f->k.code[victim],
                 f->k.text[victim]);
        T_CHECKF(!failed || f->k.text[r][0], "%s: rank %d has no text", symm_fail_name(point), r);
    }
    return failed;
}

static void reached(fk *f, int point) {
    if (symm_fail_hits(point)) atomic_store(&f->hits[point], 1);
}

static void all_is_well(fk *f, int rank, int n) {
    T_EQ(symm_fail_arm(""), 0);
    symmComm_t comm = fk_open(f, rank, n);
    fk_registers(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void fail_creation(fk *f, int rank, int n, int point, int nth) {
    symmComm_t comm = NULL;
    fk_gauges before = fk_take();
    fk_id(f, rank, n); /* whatever point that hits is not armed yet */
    if (rank == f->victim) arm(point, "error", nth);
    fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
    if (rank == f->victim) reached(f, point);
    T_EQ(symm_fail_arm(""), 0);
    kit_barrier(&f->k, n);
    int failed = judge(f, n, point, f->victim, nth);
    T_CHECK(failed == (comm == NULL));
    kit_barrier(&f->k, n);
    if (comm) T_OK(symmCommDestroy(comm));
    if (rank != 0) FK_UNCHANGED(&before); /* rank 0's id had a listener */
    if (failed) all_is_well(f, rank, n);
}

static void fail_registration(fk *f, int rank, int n, int point, int nth) {
    symmComm_t comm = fk_open(f, rank, n);
    symmWindow_t win = NULL;
    symmResult_t async;
    void *buf;
    T_OK(symmMemAlloc(&buf, REG_BYTES));
    fk_gauges before = fk_take();
    kit_barrier(&f->k, n);
    if (rank == f->victim) arm(point, "error", nth);
    fk_note(f, rank, symmWindowRegister(comm, buf, REG_BYTES, &win, 0));
    if (rank == f->victim) reached(f, point);
    T_EQ(symm_fail_arm(""), 0);
    kit_barrier(&f->k, n);
    T_CHECK(judge(f, n, point, f->victim, nth) == (win == NULL));
    kit_barrier(&f->k, n);
    if (win) {
        T_OK(symmWindowDeregister(comm, win));
        FK_COLLECTED(comm, &before);
    } else {
        FK_UNCHANGED(&before); /* what fails is undone at once */
    }
    T_OK(symmCommGetAsyncError(comm, &async)); /* if it is over, it is over for all */
    atomic_store(&f->k.code[rank], (int)async);
    kit_barrier(&f->k, n);
    for (int r = 0; r < n; r++)
        T_CHECKF((f->k.code[r] != 0) == (async != 0), "%s of rank %d: over on some ranks only",
                 symm_fail_name(point), f->victim);
    kit_barrier(&f->k, n);
    if (async)
        T_CHECK(symmBarrier(comm, NULL) != symmSuccess);
    else
        fk_registers(comm, rank, n);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
    if (async) all_is_well(f, rank, n);
}

static void error_rank(int rank, int n, void *arg) {
    fk *f = arg;
    char limit[16];
    snprintf(limit, sizeof limit, "%d", SETUP_MS);
    setenv("SYMM_SETUP_TIMEOUT", limit, 1);
    setenv("SYMM_SCRATCH", "4M", 1);
    symm_log_rank(rank);
    for (int point = f->how; point < symm_fp_count; point += 2) {
        for (int victim = 0; victim < n; victim++) {
            kit_barrier(&f->k, n);
            f->victim = victim;
            kit_barrier(&f->k, n);
            for (int nth = 1; nth <= last_nth(); nth++) {
                fail_creation(f, rank, n, point, nth);
                fail_registration(f, rank, n, point, nth);
            }
        }
        kit_barrier(&f->k, n);
        T_CHECKF(f->hits[point], "failpoint %s was never reached", symm_fail_name(point));
    }
}

/* Odd and even points side by side: they mostly wait for deadlines. */
static void side_by_side(int rank, int n, void *arg) {
    (void)n;
    T_EXPECT_WARNINGS();
    T_FORK(*(int *)arg, error_rank, fk_new(0, rank));
}

static void errors_in_two_ranks(void) {
    int n = 2;
    T_EXPECT_WARNINGS();
    T_FORK(2, side_by_side, &n);
}

static void errors_in_three_ranks(void) {
    int n = 3;
    T_EXPECT_WARNINGS();
    T_FORK(2, side_by_side, &n);
}

/* ---- thread ranks ---- */

static void errors_in_thread_ranks(void) {
    int n = 3, failures = 0;
    symmComm_t comm[3];
    T_EXPECT_WARNINGS();
    setenv("SYMM_SETUP_TIMEOUT", "250", 1);
    setenv("SYMM_SCRATCH", "4M", 1);
    symm_log_rank(0); /* which the threads do not inherit */
    for (int point = 0; point < symm_fp_count; point++) {
        for (int victim = -1; victim < n; victim++) {
            char spec[96];
            fk_gauges before = fk_take();
            snprintf(spec, sizeof spec, "%s:error:1%s%.0d%s", symm_fail_name(point),
                     victim < 0 ? "" : ":", victim < 0 ? 0 : victim, victim == 0 ? "0" : "");
            T_EQ(symm_fail_arm(spec), 0);
            comm[0] = NULL;
            symmResult_t r = symmCommInitAll(comm, n, NULL);
            T_EQ(symm_fail_arm(""), 0);
            failures += r != symmSuccess;
            T_CHECK((r == symmSuccess) == (comm[0] != NULL));
            for (int i = 0; r == symmSuccess && i < n; i++) T_OK(symmCommDestroy(comm[i]));
            FK_UNCHANGED(&before);
        }
    }
    T_CHECKF(failures > 20, "only %d of the points did anything", failures);
    T_OK(symmCommInitAll(comm, n, NULL));
    for (int i = 0; i < n; i++) T_OK(symmCommDestroy(comm[i]));
}

/* ---- deaths ---- */

typedef struct {
    fk f;
    int phase, point;
} death;

/* After a death in creation there is no parent: a new id, from the lowest survivor. */
static void begin_anew(fk *f, int mine, int n) {
    symmComm_t comm;
    if (mine == 0) T_OK(symmGetUniqueId(&f->id));
    kit_barrier(&f->k, n);
    T_OK(symmCommInitRank(&comm, n, f->id, mine));
    fk_registers(comm, mine, n);
    T_OK(symmCommDestroy(comm));
}

static void die_here(const death *d) {
    arm(d->point, "kill", 1);
}

static int is_death(symmResult_t r) {
    return r == symmRemoteError || r == symmTimeout;
}

static void death_in_creation(death *d, int rank, int n) {
    fk *f = &d->f;
    symmComm_t comm = NULL;
    int mine = rank > f->victim ? rank - 1 : rank;
    fk_id(f, rank, n);
    if (rank == f->victim) die_here(d);
    symmResult_t r = symmCommInitRank(&comm, n, f->id, rank), next = r;
    if (rank == f->victim) kill(getpid(), SIGKILL); /* the point is not in this phase */
    /* A death behind the last confirmation shows in the next call. */
    if (r == symmSuccess) next = symmBarrier(comm, NULL);
    T_CHECKF(is_death(next), "%s: code %d (%s)", symm_fail_name(d->point), next,
             symmGetLastError(comm));
    if (comm) T_OK(symmCommDestroy(comm));
    kit_barrier(&f->k, n - 1);
    begin_anew(f, mine, n - 1);
}

static void death_in_registration(death *d, int rank, int n) {
    fk *f = &d->f;
    symmComm_t comm = fk_open(f, rank, n), next;
    symmWindow_t win;
    void *buf;
    int mine = rank > f->victim ? rank - 1 : rank;
    T_OK(symmMemAlloc(&buf, REG_BYTES));
    kit_barrier(&f->k, n);
    if (rank == f->victim) die_here(d);
    symmResult_t r = symmWindowRegister(comm, buf, REG_BYTES, &win, 0);
    if (rank == f->victim) kill(getpid(), SIGKILL);
    if (r == symmSuccess) r = symmBarrier(comm, NULL);
    T_CHECKF(is_death(r), "%s: code %d (%s)", symm_fail_name(d->point), r, symmGetLastError(comm));
    kit_barrier(&f->k, n - 1);
    T_OK(symmCommShrink(comm, &f->victim, 1, &next, NULL, 0));
    T_OK(symmCommDestroy(comm));
    fk_registers(next, mine, n - 1);
    T_OK(symmCommDestroy(next));
    T_OK(symmMemFree(buf));
}

static void death_rank(int rank, int n, void *arg) {
    death *d = arg;
    setenv("SYMM_SETUP_TIMEOUT", "600", 1);
    setenv("SYMM_SCRATCH", "4M", 1);
    symm_log_rank(rank);
    if (d->phase == CREATION)
        death_in_creation(d, rank, n);
    else
        death_in_registration(d, rank, n);
}

static void deaths(int phase) {
    T_EXPECT_WARNINGS();
    for (int point = 0; point < symm_fp_count; point++) {
        death *d = T_SHARED(sizeof *d);
        d->phase = phase;
        d->point = point;
        d->f.victim = (point + phase) % 3;
        T_FORK_DIES(3, d->f.victim, death_rank, d);
    }
}

static void deaths_in_creation(void) {
    deaths(CREATION);
}
static void deaths_in_registration(void) {
    deaths(REGISTRATION);
}

T_MAIN(T(errors_in_two_ranks), T(errors_in_three_ranks), T(errors_in_thread_ranks),
       T(deaths_in_creation), T(deaths_in_registration))
