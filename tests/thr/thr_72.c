/* thr_72.c - as many ranks as a domain may have, as threads, run every kernel at small sizes,
 * forced in turn: all types and reductions, premulsum with 72 scalars, and the barrier. Each
 * rank's thread uses its own communicator. */
#include "coll_kit.h"

enum { RANKS = SYMM_MAX_RANKS, PART = 64 << 10 };

/* ThreadSanitizer slows 72 ranks on few cores most: fewer cases there, the same ranks and
 * kernels. */
enum { CASES = CK_SLOW ? 4 : 24 };

typedef struct {
    symmComm_t comms[RANKS];
    uint64_t seed;
    int env;
} job;

/* All arenas in one small allocation; the window covers those that ck_arena takes as registered. */
static void open_small(ck_world *w, symmComm_t comm, int rank, int n) {
    const uint64_t bytes = 2ull * CK_ARENAS * PART;
    char *p;
    *w = (ck_world){.rank = rank, .n = n, .comm = comm, .domain = comm, .loose_even = 1};
    T_OK(symmMemAlloc((void **)&p, bytes));
    w->memory[CK_LOOSE] = p;
    for (int a = 0; a < CK_ARENAS; a++)
        for (int h = 0; h < 2; h++) w->half[a][h] = p + (2 * a + h) * PART;
    char *from = w->half[CK_WHOLE][0];
    ck_register(w, from, bytes - (uint64_t)(from - p));
}

static void rank_runs(int rank, int n, void *arg) {
    static const uint64_t counts[] = {0, 1, 3, 14, 15, 64, 257, 500};
    job *j = arg;
    ck_world w;
    open_small(&w, j->comms[rank], rank, n);
    for (int i = 0; i < CASES; i++) {
        uint64_t draw = ck_hash(j->seed, (uint64_t)i, 9);
        ck_case k = ck_sample(j->seed, i * 72 / CASES + (int)(draw % 3), n);
        k.count = counts[draw >> 8 & 7];
        if (i % 4 == 0) k.op = SYMM_OP_PREMUL;
        k.coll = coll_draw(draw >> 16, SYMM_K_HOST, i % 4 != 3);
        if (coll_parts(k.coll, n) > 1 && k.count > 100) k.count = 100;
        ck_run(&w, &k);
    }
    /* Small enough for every kernel: one that is forced runs, whatever was drawn. */
    for (int c = 0; c < symmNumColls; c++) {
        ck_case k = {.coll = (symmColl_t)c, .type = symmInt32, .count = 16, .seed = j->seed};
        if (coll_moves((symmColl_t)c)) ck_run(&w, &k);
    }
    T_OK(symmBarrier(w.comm, NULL));
    T_CHECK(ck_forced_ran(w.comm, j->env));
    T_OK(symmCommDestroy(w.comm));
    T_OK(symmMemFree(w.memory[CK_LOOSE]));
}

static void kernels_of(int env) {
    job j = {.seed = ck_seed(), .env = env};
    ck_env(env);
    setenv("SYMM_SCRATCH", "8M", 1); /* one packet for each of 72 sources, phases and parities */
    setenv("SYMM_WIN_STRIDE", "64M", 1);
    T_OK(symmCommInitAll(j.comms, RANKS, NULL));
    T_THREADS(RANKS, rank_runs, &j);
}

static void push_packets(void) {
    kernels_of(0);
}
static void two_shot_packets(void) {
    kernels_of(1);
}
static void load_and_store(void) {
    kernels_of(2);
}
static void several_ctas(void) {
    kernels_of(CK_ALGOS + 0);
}
static void as_planned(void) {
    kernels_of(CK_ALGOS - 1);
}

T_MAIN(T(push_packets), T(two_shot_packets), T(load_and_store), T(several_ctas), T(as_planned))
