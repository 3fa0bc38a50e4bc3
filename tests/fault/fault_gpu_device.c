/* fault_gpu_device.c - making a device communicator on the fake CUDA driver: each call of it is
 * refused in turn on each rank, requirements that are bad on one rank or differ between ranks. All
 * ranks say the same, nothing is left, and the next attempt works. Forked ranks; no lock. */
#include "refuse_kit.h"

#include "symm_device.h"

static symmDevRequirements_t needs(void) {
    symmDevRequirements_t q = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    q.barriers = 16;
    q.signals = 8;
    q.llBytes = 4096;
    q.lineBytes = 9600;
    return q;
}

static symmDevComm_t made; /* by this process's rank, last */

static symmResult_t make_one(fk *f, int rank, rank_of *me) {
    const symmDevRequirements_t q = needs();
    (void)f, (void)rank;
    memset(&made, 0xee, sizeof made);
    const symmResult_t r = symmDevCommCreate(me->comm, &q, &made);
    const unsigned char *bytes = (const unsigned char *)&made;
    for (size_t i = 0; r && i < sizeof made; i++) T_EQ(bytes[i], 0xee); /* on success only */
    return r;
}

/* What each rank writes into its peers' memory is found there. */
static void reaches_peers(fk *f, int rank, int n, symmComm_t comm) {
    const symmDevRequirements_t q = needs();
    symmDevComm_t d;
    T_OK(symmDevCommCreate(comm, &q, &d));
    for (int p = 0; p < n; p++) {
        uint64_t *signal =
            (uint64_t *)(uintptr_t)(d.base + (uint64_t)p * d.stride + d.signalAt) + rank;
        T_EQ(*signal, 0);
        kit_barrier(&f->k, n);
        *signal = 100 + (unsigned)rank;
    }
    kit_barrier(&f->k, n);
    const uint64_t *own =
        (const uint64_t *)(uintptr_t)(d.base + (uint64_t)rank * d.stride + d.signalAt);
    for (int p = 0; p < n; p++) T_EQ(own[p], 100 + (unsigned)p);
    kit_barrier(&f->k, n);
    T_OK(symmDevCommDestroy(comm, &d));
}

static void after_making(fk *f, int rank, int n, rank_of *me) {
    if (f->k.code[rank]) T_OK(make_one(f, rank, me));
    T_OK(symmDevCommDestroy(me->comm, &made));
    reaches_peers(f, rank, n, me->comm);
}

static const phase making = {"making a device communicator", make, make_one, 0, after_making};

static void run_making(int rank, int n, void *s) {
    refuse_all(&making, s, rank, n);
}
static void refusals_while_one_is_made(void) {
    each_rank(run_making);
}

/* ---- requirements ---------------------------------------------------------------------------- */

typedef struct {
    void (*spoil)(symmDevRequirements_t *q); /* of the victim */
    symmResult_t code;
    const char *text;
} bad_need;

static void more_barriers(symmDevRequirements_t *q) {
    q->barriers++;
}
static void more_signals(symmDevRequirements_t *q) {
    q->signals++;
}
static void longer_packets(symmDevRequirements_t *q) {
    q->llBytes += 8;
}
static void more_lines(symmDevRequirements_t *q) {
    q->lineBytes += 480;
}
static void no_barriers(symmDevRequirements_t *q) {
    q->barriers = 0;
}
static void too_many(symmDevRequirements_t *q) {
    q->barriers = SYMM_DEV_MAX_BARRIERS + 1;
}
static void below_zero(symmDevRequirements_t *q) {
    q->signals = -1;
}
static void too_long(symmDevRequirements_t *q) {
    q->lineBytes = 1ull << 40;
}
static void no_size(symmDevRequirements_t *q) {
    q->size = 0;
}

static const bad_need bad_needs[] = {
    {more_barriers, symmMismatch, "barriers=17"},
    {more_signals, symmMismatch, "signals=9"},
    {longer_packets, symmMismatch, "llBytes=4104"},
    {more_lines, symmMismatch, "lineBytes=10080"},
    {no_barriers, symmInvalidArgument, "barriers=0"},
    {too_many, symmInvalidArgument, "requirements.barriers=1025"},
    {below_zero, symmInvalidArgument, "requirements.signals=-1"},
    {too_long, symmInvalidArgument, "lineBytes=1099511627776"},
    {no_size, symmInvalidArgument, "SYMM_DEV_REQUIREMENTS_INITIALIZER"},
};

static void differing_rank(int rank, int n, void *arg) {
    fk *f = arg;
    rank_of me = {NULL, NULL, NULL, {NULL, NULL}};
    fresh(rank);
    make(f, rank, n, &me);
    for (size_t i = 0; i < sizeof bad_needs / sizeof *bad_needs; i++) {
        const bad_need *b = &bad_needs[i];
        symmDevRequirements_t q = needs();
        symmDevComm_t d;
        if (rank == f->victim) b->spoil(&q);
        fk_note(f, rank, symmDevCommCreate(me.comm, &q, &d));
        kit_barrier(&f->k, n);
        /* a mismatch shows both, rank 0's first */
        for (int r = 0; r < n; r++) {
            T_CHECKF(f->k.code[r] == (int)b->code, "case %zu: rank %d: code %d (%s)", i, r,
                     f->k.code[r], f->k.text[r]);
            if (f->victim == 0 || b->code != symmMismatch)
                T_CHECKF(strstr(f->k.text[r], b->text), "case %zu: rank %d: %s", i, r,
                         f->k.text[r]);
        }
        kit_barrier(&f->k, n);
    }
    reaches_peers(f, rank, n, me.comm);
    done(&me);
    GK_LEFT(0);
}

static void requirements_that_differ_or_are_bad(void) {
    T_EXPECT_WARNINGS();
    for (int victim = 0; victim < RANKS; victim++) T_FORK(RANKS, differing_rank, fk_new(victim, 0));
}

T_MAIN(T_TIMEOUT(refusals_while_one_is_made, 180), T(requirements_that_differ_or_are_bad))
