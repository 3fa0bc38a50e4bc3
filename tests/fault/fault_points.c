/* fault_points.c - the failpoints of creation, split and registration on every rank, as an error
 * and as a death. Whatever fails: each rank returns an error, nobody hangs, nothing leaks, and the
 * same processes make a working communicator afterwards. Which point is met where stands in
 * fail.def; one that is not met there fails the test. Forked ranks and thread ranks; no lock.
 *
 * Codes are the same on all ranks but in the stages in which a rank cannot tell the others: boot_*,
 * where it never came, which is a missing rank or a closed door to them, or leaves the exchange,
 * which is a rank that left. */
#include "fault_kit.h"

enum {
    CREATION,
    REGISTRATION,
    SPLIT,
    PHASES,
    SETUP_MS = 600,
    REG_BYTES = 2 << 20,
    SIDES = 6,
    ROUNDS = 20
};

static const char *const phase_name[PHASES] = {"create", "register", "split"};

static int last_nth(void) {
    const char *full = getenv("T_FULL");
    return full && atoi(full) > 0 ? 6 : 2;
}

static int cannot_tell(int point) {
    return strncmp(symm_fail_name(point), "boot_", 5) == 0;
}

static void arm(int point, const char *action, int nth) {
    char spec[96];
    snprintf(spec, sizeof spec, "%s:%s:%d", symm_fail_name(point), action, nth);
    T_EQ(symm_fail_arm(spec), 0);
}

/* A confirmation that does not leave or is not read may split the outcome of an agreement
 * (docs/communicator.md, Agreement): who has them all goes on, and finds the communicator over in
 * its next call. */
static int may_split(int point, int code) {
    int confirms = point == symm_fp_mesh_send || point == symm_fp_mesh_sendmsg ||
                   point == symm_fp_mesh_recvmsg;
    return confirms && code == symmSuccess;
}

/* All succeeded, or all failed, alike where that can be. Returns 1 if this rank failed. */
static int judge(const fk *f, int rank, int n, int point, int nth) {
    int victim = f->victim, failed = f->k.code[victim] != symmSuccess;
    for (int r = 0; r < n; r++) {
        int code = f->k.code[r];
        T_CHECKF((code != symmSuccess) == failed || may_split(point, code),
                 "%s of rank %d, hit %d: rank %d has code %d (%s)", symm_fail_name(point), victim,
                 nth, r, code, f->k.text[r]);
        T_CHECKF(cannot_tell(point) || code == f->k.code[victim] || may_split(point, code),
                 "%s of rank %d, hit %d: rank %d has code %d (%s), the victim %d (%s)",
                 symm_fail_name(point), victim, nth, r, code, f->k.text[r], f->k.code[victim],
                 f->k.text[victim]);
        T_CHECKF(cannot_tell(point) || code != symmTimeout, "%s of rank %d: rank %d waited: %s",
                 symm_fail_name(point), victim, r, f->k.text[r]);
        T_CHECKF(!code || f->k.text[r][0], "%s: rank %d has no text", symm_fail_name(point), r);
    }
    return f->k.code[rank] != symmSuccess;
}

/* On the victim, before it disarms. A hit that failed must have had a consequence, unless the table
 * says otherwise. */
static void reached(fk *f, int point, int phase, int nth) {
    int hits = symm_fail_hits(point), code = f->k.code[f->victim];
    if (hits) atomic_store(&f->hits[phase], 1);
    T_CHECKF(code || hits < nth || fk_survived(point),
             "%s of rank %d failed at hit %d of %d, and nothing came of it", symm_fail_name(point),
             f->victim, nth, hits);
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
    if (rank == f->victim) reached(f, point, CREATION, nth);
    T_EQ(symm_fail_arm(""), 0);
    kit_barrier(&f->k, n);
    int failed = f->k.code[f->victim] != symmSuccess;
    T_CHECK(judge(f, rank, n, point, nth) == (comm == NULL));
    kit_barrier(&f->k, n);
    if (comm) T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
    if (failed) all_is_well(f, rank, n);
}

static int is_over(symmComm_t comm) {
    symmResult_t async;
    T_OK(symmCommGetAsyncError(comm, &async));
    return async != symmSuccess;
}

/* The communicator does its work still, on every rank, or is over on every rank: which of both. */
static int go_on(fk *f, int rank, int n, symmComm_t comm, int point) {
    symmResult_t async;
    T_OK(symmCommGetAsyncError(comm, &async));
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
    return async != symmSuccess;
}

static void fail_registration(fk *f, int rank, int n, int point, int nth) {
    symmComm_t comm = fk_open(f, rank, n);
    symmWindow_t win = NULL;
    void *buf;
    T_OK(symmMemAlloc(&buf, REG_BYTES));
    fk_gauges before = fk_take();
    kit_barrier(&f->k, n);
    if (rank == f->victim) arm(point, "error", nth);
    fk_note(f, rank, symmWindowRegister(comm, buf, REG_BYTES, &win, 0));
    if (rank == f->victim) reached(f, point, REGISTRATION, nth);
    T_EQ(symm_fail_arm(""), 0);
    kit_barrier(&f->k, n);
    T_CHECK(judge(f, rank, n, point, nth) == (win == NULL));
    kit_barrier(&f->k, n);
    if (win) T_OK(symmWindowDeregister(comm, win));
    if (!win)
        FK_UNCHANGED(&before); /* what fails is undone at once */
    else if (!is_over(comm))   /* it is where the outcome was split */
        FK_COLLECTED(comm, &before);
    int over = go_on(f, rank, n, comm, point);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
    if (over) all_is_well(f, rank, n);
}

/* In another order than the parent, so that the child has addresses of its own. */
static void fail_split(fk *f, int rank, int n, int point, int nth) {
    symmComm_t comm = fk_open(f, rank, n), child = NULL;
    fk_gauges before = fk_take();
    kit_barrier(&f->k, n);
    if (rank == f->victim) arm(point, "error", nth);
    fk_note(f, rank, symmCommSplit(comm, 0, n - rank, &child, NULL));
    if (rank == f->victim) reached(f, point, SPLIT, nth);
    T_EQ(symm_fail_arm(""), 0);
    kit_barrier(&f->k, n);
    T_CHECK(judge(f, rank, n, point, nth) == (child == NULL));
    kit_barrier(&f->k, n);
    if (child) T_OK(symmCommDestroy(child));
    FK_UNCHANGED(&before);
    int over = go_on(f, rank, n, comm, point);
    T_OK(symmCommDestroy(comm));
    if (over) all_is_well(f, rank, n);
}

static void (*const fail_phase[PHASES])(fk *, int, int, int, int) = {fail_creation,
                                                                     fail_registration, fail_split};

/* Each rank in turn is the victim. Whether the point was reached, the same answer on all ranks. */
static int try_phase(fk *f, int rank, int n, int point, int phase) {
    int nths = n == 2 ? 1 : last_nth();
    for (int victim = 0; victim < n; victim++) {
        kit_barrier(&f->k, n);
        f->victim = victim;
        kit_barrier(&f->k, n);
        for (int nth = 1; nth <= nths; nth++) fail_phase[phase](f, rank, n, point, nth);
    }
    kit_barrier(&f->k, n);
    int hit = f->hits[phase];
    kit_barrier(&f->k, n);
    return hit;
}

/* One point in processes of its own, so that what happens once in a process happens here. Again
 * where it was not reached: who finds everything there at once has nothing to wait for. */
static void error_rank(int rank, int n, void *arg) {
    fk *f = arg;
    char limit[16];
    int point = f->how, phases = n == 2 ? PHASES : SPLIT;
    snprintf(limit, sizeof limit, "%d", SETUP_MS);
    setenv("SYMM_SETUP_TIMEOUT", limit, 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_DIRECT", "1", 1); /* else nobody tries to reach a peer's memory */
    symm_log_rank(rank);
    for (int phase = 0; phase < phases; phase++) {
        int hit = !fk_meets(point, phase_name[phase]);
        for (int round = 0; !hit && round < ROUNDS; round++)
            hit = try_phase(f, rank, n, point, phase);
        T_CHECKF(hit, "failpoint %s was not reached in %s", symm_fail_name(point),
                 phase_name[phase]);
    }
}

/* Points side by side: they mostly wait for deadlines. */
static void side_by_side(int side, int sides, void *arg) {
    T_EXPECT_WARNINGS();
    for (int point = side; point < symm_fp_count; point += sides)
        T_FORK(*(int *)arg, error_rank, fk_new(0, point));
}

static void errors_in_two_ranks(void) {
    int n = 2;
    T_EXPECT_WARNINGS();
    T_FORK(SIDES, side_by_side, &n);
}

static void errors_in_three_ranks(void) {
    int n = 3;
    T_EXPECT_WARNINGS();
    T_FORK(SIDES, side_by_side, &n);
}

/* ---- thread ranks ---- */

/* victim -1: the first hit of all. Returns whether it was reached. */
static int fail_init_all(int point, int victim, int n) {
    symmComm_t comm[3] = {NULL};
    char spec[96];
    fk_gauges before = fk_take();
    snprintf(spec, sizeof spec, victim < 0 ? "%s:error:1" : "%s:error:1:%d", symm_fail_name(point),
             victim);
    T_EQ(symm_fail_arm(spec), 0);
    symmResult_t r = symmCommInitAll(comm, n, NULL);
    int hits = symm_fail_hits(point);
    T_EQ(symm_fail_arm(""), 0);
    T_CHECK((r == symmSuccess) == (comm[0] != NULL));
    T_CHECKF(r || victim >= 0 || fk_survived(point), "%s failed, and nothing came of it",
             symm_fail_name(point));
    for (int i = 0; r == symmSuccess && i < n; i++) T_OK(symmCommDestroy(comm[i]));
    FK_UNCHANGED(&before);
    return hits > 0;
}

static void thread_ranks(int one, int of, void *arg) {
    int n = 3, point = *(int *)arg;
    symmComm_t comm[3];
    (void)one;
    (void)of;
    setenv("SYMM_SETUP_TIMEOUT", "250", 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    symm_log_rank(0); /* which the threads do not inherit */
    for (int victim = -1; victim < n; victim++) {
        int hit = fail_init_all(point, victim, n);
        T_CHECKF(hit || victim >= 0, "failpoint %s was not reached by thread ranks",
                 symm_fail_name(point));
    }
    T_OK(symmCommInitAll(comm, n, NULL));
    for (int i = 0; i < n; i++) T_OK(symmCommDestroy(comm[i]));
}

static void errors_in_thread_ranks(void) {
    T_EXPECT_WARNINGS();
    for (int point = 0; point < symm_fp_count; point++)
        if (fk_meets(point, "threads")) T_FORK(1, thread_ranks, &point);
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

static void deaths_side(int side, int sides, void *arg) {
    int phase = *(int *)arg;
    T_EXPECT_WARNINGS();
    for (int point = side; point < symm_fp_count; point += sides) {
        if (!fk_meets(point, phase_name[phase])) continue;
        death *d = T_SHARED(sizeof *d);
        d->phase = phase;
        d->point = point;
        d->f.victim = (point + phase) % 3;
        T_FORK_DIES(3, d->f.victim, death_rank, d);
    }
}

static void deaths(int phase) {
    T_EXPECT_WARNINGS();
    T_FORK(SIDES, deaths_side, &phase);
}

static void deaths_in_creation(void) {
    deaths(CREATION);
}
static void deaths_in_registration(void) {
    deaths(REGISTRATION);
}

T_MAIN(T(errors_in_two_ranks), T(errors_in_three_ranks), T(errors_in_thread_ranks),
       T(deaths_in_creation), T(deaths_in_registration))
