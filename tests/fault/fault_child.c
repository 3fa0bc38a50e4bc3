/* fault_child.c - a rank cannot go on while a communicator is made from another one, or aborts that
 * one meanwhile: nobody waits for it, and what rank 0 of thread ranks has made for all is freed
 * once. Forked ranks and thread ranks; no lock. */
#include "fault_kit.h"

enum { RANKS = 3, HELD_MS = 1600, SOON_MS = 1200 };

enum { SPLIT, SHRINK, WAYS };
static const char *const way_name[] = {"split", "shrink"};

typedef struct {
    fk f;
    int threads;
} child;

static symmResult_t make(int way, symmComm_t comm, int rank, symmComm_t *out) {
    if (way == SPLIT) return symmCommSplit(comm, 0, rank, out, NULL);
    return symmCommShrink(comm, NULL, 0, out, NULL, 0);
}

/* Points are armed in each process: by rank 0 for thread ranks. */
static void arm(child *x, int rank, int n, const char *spec) {
    kit_barrier(&x->f.k, n);
    if (!x->threads || !rank) T_EQ(symm_fail_arm(spec), 0);
    kit_barrier(&x->f.k, n);
}

/* What ended a moment ago may still be on its way out in another thread. */
static void all_is_freed(child *x, int rank, int n, const fk_gauges *before) {
    kit_barrier(&x->f.k, n);
    if (x->threads && rank) return;
    for (int i = 0; i < 2000 && SYMM_STAT_GET(threads); i++) usleep(1000);
    FK_UNCHANGED(before);
}

static void run(t_rank_fn fn, int threads) {
    child *x = T_SHARED(sizeof *x);
    x->threads = threads;
    setenv("SYMM_SETUP_TIMEOUT", "20000", 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    if (threads)
        T_THREADS(RANKS, fn, x);
    else
        T_FORK(RANKS, fn, x);
}

/* ---- one rank cannot go on ---- */

/* 1: the message was the last one, or later: all have what they made. */
static int fails_at(child *x, int way, int rank, int n, int victim, int nth) {
    symmComm_t comm = fk_open(&x->f, rank, n), made = NULL;
    char spec[64];
    snprintf(spec, sizeof spec, "mesh_recv:error:%d:%d", nth, victim);
    arm(x, rank, n, spec);
    const uint64_t start = symm_now_ns();
    const symmResult_t r = make(way, comm, rank, &made);
    T_CHECKF(fk_ms_since(start) < 3000, "%s, message %d of rank %d: rank %d took %llu ms",
             way_name[way], nth, victim, rank, (unsigned long long)fk_ms_since(start));
    T_CHECK((r == symmSuccess) == (made != NULL));
    fk_note(&x->f, rank, r);
    arm(x, rank, n, "");
    int good = 0;
    for (int p = 0; p < n; p++) good += x->f.k.code[p] == symmSuccess;
    T_CHECK(good == n || x->f.k.code[victim] != symmSuccess);
    if (made) T_OK(symmCommDestroy(made));
    kit_barrier(&x->f.k, n);
    T_OK(symmCommDestroy(comm));
    return good == n;
}

/* Whichever message of the making it is that a rank cannot take. It has sent its own by then, so
 * the others may be ahead of it. */
static void cannot_go_on_rank(int rank, int n, void *arg) {
    child *x = arg;
    const fk_gauges before = fk_take();
    kit_barrier(&x->f.k, n);
    for (int way = 0; way < WAYS; way++)
        for (int victim = 0; victim < n; victim++)
            for (int nth = 1; !fails_at(x, way, rank, n, victim, nth); nth++) T_CHECK(nth < 100);
    all_is_freed(x, rank, n, &before);
}

static void a_rank_of_processes_that_cannot_go_on(void) {
    T_EXPECT_WARNINGS();
    run(cannot_go_on_rank, 0);
}

static void a_rank_of_threads_that_cannot_go_on(void) {
    T_EXPECT_WARNINGS();
    run(cannot_go_on_rank, 1);
}

/* ---- the parent is aborted ---- */

static void *aborts(void *arg) {
    kit_sleep(100);
    const uint64_t start = symm_now_ns();
    T_OK(symmCommAbort(arg));
    const uint64_t ms = fk_ms_since(start);
    T_CHECKF(ms < SOON_MS, "symmCommAbort took %llu ms", (unsigned long long)ms);
    return NULL;
}

/* Rank 1 is held up at a point of the making; rank 0 aborts the parent meanwhile. */
static void aborted_at(child *x, int way, int rank, int n, const char *point, int nth) {
    symmComm_t comm = fk_open(&x->f, rank, n), made = NULL;
    char spec[64];
    pthread_t other;
    snprintf(spec, sizeof spec, "%s:delay=%d:%d:1", point, HELD_MS, nth);
    arm(x, rank, n, spec);
    const uint64_t start = symm_now_ns();
    if (!rank) T_EQ(pthread_create(&other, NULL, aborts, comm), 0);
    const symmResult_t r = make(way, comm, rank, &made);
    const uint64_t ms = fk_ms_since(start);
    T_CHECKF(rank == 1 || ms < SOON_MS, "%s, rank 1 held at %s: rank %d took %llu ms",
             way_name[way], point, rank, (unsigned long long)ms);
    T_CHECKF(r, "%s, rank 1 held at %s: rank %d has a communicator", way_name[way], point, rank);
    T_CHECK(rank || r == symmAborted);
    if (rank)
        T_CHECKF(r == symmAborted || r == symmRemoteError, "rank %d: %d", rank, r);
    else
        T_EQ(pthread_join(other, NULL), 0);
    arm(x, rank, n, "");
    if (rank) T_OK(symmCommDestroy(comm));
}

static void aborted_rank(int rank, int n, void *arg) {
    child *x = arg;
    const fk_gauges before = fk_take();
    kit_barrier(&x->f.k, n);
    aborted_at(x, SPLIT, rank, n, "boot_allgather", 3); /* the greetings */
    aborted_at(x, SPLIT, rank, n, "mesh_connect", 1);
    aborted_at(x, SPLIT, rank, n, "comm_ctl", 1);
    aborted_at(x, SHRINK, rank, n, "mesh_connect", 1);
    aborted_at(x, SHRINK, rank, n, "comm_ctl", 1);
    all_is_freed(x, rank, n, &before);
}

static void processes_whose_parent_is_aborted(void) {
    T_EXPECT_WARNINGS();
    run(aborted_rank, 0);
}

static void threads_whose_parent_is_aborted(void) {
    T_EXPECT_WARNINGS();
    run(aborted_rank, 1);
}

/* A rank without a color has done its part: that it aborts the parent then is nothing to those who
 * still make theirs, and mind an end only where they need the rank. */
static void bystander_rank(int rank, int n, void *arg) {
    child *x = arg;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t comm, made = NULL;
    config.peerDeath = SYMM_DEATH_WHEN_USED;
    fk_id(&x->f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, x->f.id, rank, &config));
    arm(x, rank, n, "boot_allgather:delay=500:3:1"); /* rank 1, at the greetings */
    T_OK(symmCommSplit(comm, rank < n - 1 ? 0 : SYMM_SPLIT_NOCOLOR, rank, &made, NULL));
    T_EQ(made != NULL, rank < n - 1);
    if (!made) {
        T_OK(symmCommAbort(comm));
    } else {
        fk_works(made, rank, n - 1);
        T_OK(symmCommDestroy(made));
    }
    kit_barrier(&x->f.k, n);
    arm(x, rank, n, "");
    if (rank < n - 1) T_OK(symmCommDestroy(comm));
}

static void another_rank_aborts_the_parent(void) {
    T_EXPECT_WARNINGS();
    run(bystander_rank, 0);
    run(bystander_rank, 1);
}

/* A child that is made owes its parent nothing. */
static void outlives_rank(int rank, int n, void *arg) {
    child *x = arg;
    const fk_gauges before = fk_take();
    kit_barrier(&x->f.k, n);
    for (int way = 0; way < WAYS; way++) {
        symmComm_t comm = fk_open(&x->f, rank, n), made;
        T_OK(make(way, comm, rank, &made));
        T_OK(symmCommAbort(comm));
        fk_works(made, rank, n);
        fk_registers(made, rank, n);
        T_OK(symmCommDestroy(made));
    }
    all_is_freed(x, rank, n, &before);
}

static void a_child_outlives_its_parent(void) {
    T_EXPECT_WARNINGS();
    run(outlives_rank, 0);
    run(outlives_rank, 1);
}

T_MAIN(T(a_rank_of_processes_that_cannot_go_on), T(a_rank_of_threads_that_cannot_go_on),
       T(processes_whose_parent_is_aborted), T(threads_whose_parent_is_aborted),
       T(another_rank_aborts_the_parent), T(a_child_outlives_its_parent))
