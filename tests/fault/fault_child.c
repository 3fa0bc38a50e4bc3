/* fault_child.c - a rank cannot go on while a communicator is made from another one: what rank 0 of
 * thread ranks has made for all is freed once. Forked ranks and thread ranks; no lock. */
#include "fault_kit.h"

enum { RANKS = 3 };

enum { SPLIT, SHRINK, WAYS };

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
    setenv("SYMM_SETUP_TIMEOUT", "300", 1);
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
    const symmResult_t r = make(way, comm, rank, &made);
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
    for (int way = 0; way <= SPLIT; way++)
        for (int victim = 0; victim < n; victim++)
            for (int nth = 1; !fails_at(x, way, rank, n, victim, nth); nth++) T_CHECK(nth < 100);
    all_is_freed(x, rank, n, &before);
}

static void a_rank_of_threads_that_cannot_go_on(void) {
    T_EXPECT_WARNINGS();
    run(cannot_go_on_rank, 1);
}

T_MAIN(T(a_rank_of_threads_that_cannot_go_on))
