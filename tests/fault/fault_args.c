/* fault_args.c - what bad input gets: a code, a text that names argument and value, the same on
 * every rank where the call is collective, and nothing changed: gauges stay and the communicator
 * goes on working. Forked ranks; no lock. */
#include <pthread.h>

#include "fault_kit.h"

enum { BYTES = 4 << 20 };

typedef struct {
    int rank, n;
    fk *f;
    symmComm_t comm;
    int *buf; /* BYTES, registered */
    symmWindow_t win;
} ctx;

typedef void (*body_fn)(ctx *x);
static body_fn body; /* set before the ranks are forked */

static void case_rank(int rank, int n, void *arg) {
    ctx x = {.rank = rank, .n = n, .f = arg};
    x.comm = fk_open(x.f, rank, n);
    T_OK(symmMemAlloc((void **)&x.buf, BYTES));
    T_OK(symmWindowRegister(x.comm, x.buf, BYTES, &x.win, SYMM_WIN_DEFAULT));
    fk_gauges before = fk_take();
    body(&x);
    FK_COLLECTED(x.comm, &before);
    kit_barrier(&x.f->k, n);
    fk_works(x.comm, rank, n);
    fk_registers(x.comm, rank, n);
    FK_COLLECTED(x.comm, &before);
    T_OK(symmWindowDeregister(x.comm, x.win));
    T_OK(symmCommDestroy(x.comm));
    T_OK(symmMemFree(x.buf));
}

static void run_case(body_fn fn, int n) {
    T_EXPECT_WARNINGS();
    body = fn;
    T_FORK(n, case_rank, fk_new(1, 0));
}

#define CASE(name)                   \
    static void name##_body(ctx *x); \
    static void name(void) {         \
        run_case(name##_body, 2);    \
    }                                \
    static void name##_body(ctx *x)

#define REFUSED(call, part)       FK_REFUSED(x->comm, call, symmInvalidArgument, part)
#define REDUCE(s, r, c, type, op) symmAllReduce(s, r, c, type, op, x->comm, NULL)
#define GATHER(s, r, c, type)     symmAllGather(s, r, c, type, x->comm, NULL)

/* ---- local calls ---- */

CASE(null_buffers) {
    REFUSED(REDUCE(NULL, x->buf, 1, symmInt32, symmSum), "sendbuff is NULL");
    REFUSED(REDUCE(x->buf, NULL, 1, symmInt32, symmSum), "recvbuff is NULL");
    REFUSED(GATHER(NULL, x->buf, 1, symmInt32), "sendbuff is NULL");
    REFUSED(GATHER(x->buf, NULL, 1, symmInt32), "recvbuff is NULL");
    T_OK(REDUCE(NULL, NULL, 0, symmInt32, symmSum)); /* nothing is no fault */
}

CASE(null_results) {
    double scalar = 1;
    REFUSED(symmGetUniqueId(NULL), "id is NULL");
    REFUSED(symmMemAlloc(NULL, 1), "ptr is NULL");
    REFUSED(symmCommCount(x->comm, NULL), "count is NULL");
    REFUSED(symmCommUserRank(x->comm, NULL), "rank is NULL");
    REFUSED(symmCommDevice(x->comm, NULL), "device is NULL");
    REFUSED(symmCommGetAsyncError(x->comm, NULL), "asyncError is NULL");
    REFUSED(symmCommQuery(x->comm, NULL), "info is NULL");
    REFUSED(symmWindowQuery(x->win, NULL), "info is NULL");
    REFUSED(symmWindowPeerPtr(x->win, 0, 0, NULL), "ptr is NULL");
    REFUSED(symmCommShrink(x->comm, NULL, 0, NULL, NULL, 0), "newcomm is NULL");
    REFUSED(symmRedOpCreatePreMulSum(NULL, &scalar, symmFloat64, symmScalarHostImmediate, x->comm),
            "op is NULL");
    REFUSED(symmExplain(x->comm, symmCollAllReduce, x->buf, x->buf, 1, symmInt32, symmSum, 0, NULL),
            "plan is NULL");
    REFUSED(symmCommInitAll(NULL, 2, NULL), "comms is NULL");
}

CASE(records_of_another_size) {
    symmCommInfo_t info = {.size = 8};
    symmWindowInfo_t win = {.size = 0};
    symmExplain_t plan = {.size = sizeof plan - 1};
    REFUSED(symmCommQuery(x->comm, &info), "without its size");
    REFUSED(symmWindowQuery(x->win, &win), "without its size");
    REFUSED(symmExplain(x->comm, symmCollBarrier, NULL, NULL, 0, symmInt32, symmSum, 0, &plan),
            "without its size");
}

CASE(wild_buffers) {
    char shown[32];
    void *wild[] = {(void *)1, (void *)4095, (void *)UINTPTR_MAX, (void *)0xffff800000000000};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        snprintf(shown, sizeof shown, "sendbuff=%p", wild[i]);
        REFUSED(REDUCE(wild[i], x->buf, 4, symmInt32, symmSum), shown);
        snprintf(shown, sizeof shown, "recvbuff=%p", wild[i]);
        REFUSED(REDUCE(x->buf, wild[i], 4, symmInt32, symmSum), shown);
        REFUSED(GATHER(x->buf, wild[i], 4, symmInt32), shown);
        T_CHECK(symmMemFree(wild[i]) == symmInvalidArgument);
    }
    REFUSED(symmMemFree((char *)x->buf + 64), "");
}

CASE(wild_handles) {
    int n = 77;
    uintptr_t wild[] = {0,
                        1,
                        0x1000,
                        (uintptr_t)x->buf,
                        UINTPTR_MAX,
                        (uintptr_t)x->win,
                        (uintptr_t)x->comm + 1,
                        (uintptr_t)x->comm ^ 1ull << 60};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        char shown[32];
        symmComm_t comm = (symmComm_t)wild[i];
        snprintf(shown, sizeof shown, "comm=%p", (void *)comm);
        REFUSED(symmCommCount(comm, &n), shown);
        REFUSED(symmAllReduce(x->buf, x->buf, 1, symmInt32, symmSum, comm, NULL), shown);
        REFUSED(symmCommDestroy(comm), shown);
        REFUSED(symmCommAbort(comm), shown);
        REFUSED(symmCommRevoke(comm, 0), shown);
    }
    T_EQ(n, 77);
    wild[5] = (uintptr_t)x->comm;
    wild[6] = (uintptr_t)x->win + 1;
    wild[7] = (uintptr_t)x->win ^ 1ull << 60;
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        void *p = &n;
        REFUSED(symmWindowPeerPtr((symmWindow_t)wild[i], 0, 0, &p), "win=");
        REFUSED(symmWindowDeregister(x->comm, (symmWindow_t)wild[i]), "win=");
        T_CHECK(p == &n);
    }
}

CASE(wrong_types) {
    static const int bad[] = {-1, symmNumTypes, 99, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        symmDataType_t t = (symmDataType_t)bad[i];
        symmRedOp_t op;
        double one = 1;
        REFUSED(REDUCE(x->buf, x->buf, 1, t, symmSum), "datatype=");
        REFUSED(GATHER(x->buf, x->buf, 1, t), "datatype=");
        REFUSED(symmRedOpCreatePreMulSum(&op, &one, t, symmScalarHostImmediate, x->comm),
                "datatype=");
    }
}

CASE(wrong_reductions) {
    static const int bad[] = {-1, symmNumOps, 99, INT32_MAX, INT32_MIN};
    float half = 0.5f;
    symmRedOp_t op;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char shown[32];
        snprintf(shown, sizeof shown, "op=%d", bad[i]);
        REFUSED(REDUCE(x->buf, x->buf, 1, symmInt32, (symmRedOp_t)bad[i]), shown);
    }
    T_OK(symmRedOpCreatePreMulSum(&op, &half, symmFloat32, symmScalarHostImmediate, x->comm));
    REFUSED(REDUCE(x->buf, x->buf, 1, symmInt32, op), "made for datatype");
    T_OK(symmRedOpDestroy(op, x->comm));
    REFUSED(REDUCE(x->buf, x->buf, 1, symmFloat32, op), "op=");
    T_CHECK(symmRedOpDestroy(op, x->comm) == symmInvalidArgument);
    T_CHECK(symmRedOpDestroy(symmSum, x->comm) == symmInvalidArgument);
    REFUSED(symmRedOpCreatePreMulSum(&op, &half, symmFloat32, (symmScalarResidence_t)9, x->comm),
            "residence=9");
}

CASE(counts_that_overflow) {
    static const size_t bad[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8 + 1, (size_t)1 << 62};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSED(REDUCE(x->buf, x->buf, bad[i], symmFloat64, symmSum), "count=");
        REFUSED(GATHER(x->buf, x->buf, bad[i], symmFloat64), "count=");
    }
}

CASE(buffers_that_overlap) {
    REFUSED(REDUCE(x->buf, x->buf + 1, 4, symmInt32, symmSum), "overlap");
    REFUSED(REDUCE(x->buf + 3, x->buf, 4, symmInt32, symmSum), "overlap");
    REFUSED(GATHER(x->buf + 2, x->buf, 4, symmInt32), "overlap");
    T_OK(REDUCE(x->buf, x->buf + 4, 4, symmInt32, symmSum));
    T_OK(GATHER(x->buf + 4 * x->rank, x->buf, 4, symmInt32)); /* in place */
}

CASE(roots_out_of_range) {
    static const int bad[] = {-1, 2, 72, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char shown[40];
        snprintf(shown, sizeof shown, "root=%d", bad[i]);
        REFUSED(symmBroadcast(x->buf, x->buf, 4, symmInt32, bad[i], x->comm, NULL), shown);
        REFUSED(symmReduce(x->buf, x->buf, 4, symmInt32, symmSum, bad[i], x->comm, NULL), shown);
        REFUSED(symmGather(x->buf, x->buf + 8, 4, symmInt32, bad[i], x->comm, NULL), shown);
        REFUSED(symmScatter(x->buf, x->buf + 8, 4, symmInt32, bad[i], x->comm, NULL), shown);
    }
}

/* The root's are refused at the root, before anything is sent; those of others are not looked
 * at. */
CASE(buffers_that_only_the_root_has) {
    const int is_root = x->rank == 1;
    int *in = is_root ? x->buf : NULL, *out = is_root ? x->buf + 64 : NULL;
    if (is_root) {
        REFUSED(symmBroadcast(NULL, x->buf, 4, symmInt32, 1, x->comm, NULL), "sendbuff is NULL");
        REFUSED(symmScatter(NULL, x->buf, 4, symmInt32, 1, x->comm, NULL), "sendbuff is NULL");
        REFUSED(symmReduce(x->buf, NULL, 4, symmInt32, symmSum, 1, x->comm, NULL),
                "recvbuff is NULL");
        REFUSED(symmGather(x->buf, NULL, 4, symmInt32, 1, x->comm, NULL), "recvbuff is NULL");
    }
    T_OK(symmBroadcast(in, x->buf + 64, 4, symmInt32, 1, x->comm, NULL));
    T_OK(symmScatter(in, x->buf + 64, 4, symmInt32, 1, x->comm, NULL));
    T_OK(symmReduce(x->buf, out, 4, symmInt32, symmSum, 1, x->comm, NULL));
    T_OK(symmGather(x->buf, out, 4, symmInt32, 1, x->comm, NULL));
}

CASE(alltoall_in_place) {
    symmExplain_t plan = {.size = sizeof plan};
    REFUSED(symmAlltoAll(x->buf, x->buf + 7, 4, symmInt32, x->comm, NULL),
            "in place means sendbuff == recvbuff");
    T_OK(symmAlltoAll(x->buf, x->buf + 8, 4, symmInt32, x->comm, NULL));
    T_OK(symmExplain(x->comm, symmCollAlltoAll, x->buf, x->buf, 4, symmInt32, symmSum, -1, &plan));
    T_MSG(plan.reason, "in place: each part goes through scratch");
    for (int count = 4; count <= 1 << 17; count <<= 5) { /* packets, then through scratch */
        for (int p = 0; p < 2; p++)
            for (int i = 0; i < count; i++) x->buf[p * count + i] = 100 * x->rank + 10 * p + i % 7;
        T_OK(symmAlltoAll(x->buf, x->buf, (size_t)count, symmInt32, x->comm, NULL));
        for (int p = 0; p < 2; p++)
            for (int i = 0; i < count; i++)
                if (x->buf[p * count + i] != 100 * p + 10 * x->rank + i % 7) T_CHECK(0);
    }
}

CASE(offsets_and_ranks_out_of_range) {
    void *p = x;
    static const int bad[] = {-1, 2, 72, INT32_MAX, INT32_MIN};
    REFUSED(symmWindowPeerPtr(x->win, BYTES, 0, &p), "offset=4194304");
    REFUSED(symmWindowPeerPtr(x->win, SIZE_MAX, 1, &p), "offset=18446744073709551615");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char shown[40];
        symmComm_t comm = NULL;
        snprintf(shown, sizeof shown, "rank=%d", bad[i]);
        REFUSED(symmWindowPeerPtr(x->win, 0, bad[i], &p), shown);
        REFUSED(symmCommInitRank(&comm, 2, x->f->id, bad[i]), shown);
        snprintf(shown, sizeof shown, "excludeRanks[0]=%d", bad[i]);
        REFUSED(symmCommShrink(x->comm, &bad[i], 1, &comm, NULL, 0), shown);
        T_CHECK(comm == NULL);
    }
    T_CHECK(p == x);
    T_OK(symmWindowPeerPtr(x->win, BYTES - 1, 1, &p));
}

/* One rank's bad argument is everybody's error, at once; the parent goes on. */
CASE(shrink_refused_by_one_rank) {
    static const int none[] = {7};
    symmConfig_t strange = SYMM_CONFIG_INITIALIZER;
    symmComm_t comm = NULL;
    const int odd = x->rank == 1;
    strange.timeoutMs = -9;
    const uint64_t since = symm_now_ns();
    REFUSED(symmCommShrink(x->comm, NULL, 0, odd ? NULL : &comm, NULL, 0),
            "rank 1: newcomm is NULL");
    REFUSED(symmCommShrink(x->comm, NULL, 0, &comm, NULL, odd ? 8 : 0), "rank 1: flags=8");
    REFUSED(symmCommShrink(x->comm, NULL, odd ? -3 : 0, &comm, NULL, 0), "rank 1: nExclude=-3");
    REFUSED(symmCommShrink(x->comm, NULL, odd, &comm, NULL, 0), "rank 1: excludeRanks is NULL");
    REFUSED(symmCommShrink(x->comm, none, odd, &comm, NULL, 0), "rank 1: excludeRanks[0]=7");
    REFUSED(symmCommShrink(x->comm, NULL, 0, &comm, odd ? &strange : NULL, 0), "rank 1: ");
    T_CHECKF(fk_ms_since(since) < 5000, "after %d ms", (int)fk_ms_since(since));
    T_CHECK(comm == NULL);
    T_OK(symmCommShrink(x->comm, NULL, 0, &comm, NULL, 0));
    fk_works(comm, x->rank, x->n);
    T_OK(symmCommDestroy(comm));
}

CASE(bad_flags_and_sizes) {
    symmComm_t comm = NULL;
    symmUniqueId_t junk = {"no id at all"};
    REFUSED(symmCommInitRank(&comm, 0, x->f->id, 0), "nranks=0");
    REFUSED(symmCommInitRank(&comm, -5, x->f->id, 0), "nranks=-5");
    REFUSED(symmCommInitRank(&comm, 73, x->f->id, 0), "nranks=73");
    REFUSED(symmCommInitRank(&comm, 2, junk, x->rank), "id");
    REFUSED(symmCommInitAll(&comm, 0, NULL), "n=0");
    REFUSED(symmCommInitBoot(&comm, 2, 0, NULL, NULL), "boot is NULL");
    REFUSED(symmCommRevoke(x->comm, 3), "flags=3");
    REFUSED(symmCommShrink(x->comm, NULL, 0, &comm, NULL, 8), "flags=8");
    REFUSED(symmCommShrink(x->comm, NULL, 2, &comm, NULL, 0), "nExclude=2");
    int gone = 7;
    REFUSED(symmCommShrink(x->comm, NULL, 2, &comm, NULL, SYMM_SHRINK_FAILED), "takes no list");
    REFUSED(symmCommFailedRanks(x->comm, 2, NULL, 0, &gone), "flags=2");
    REFUSED(symmCommFailedRanks(x->comm, SYMM_FAILED_LOCAL, NULL, 0, NULL), "count is NULL");
    REFUSED(symmCommFailedRanks(x->comm, SYMM_FAILED_AGREE, NULL, 3, &gone), "ranks is NULL");
    REFUSED(symmCommFailedRanks(x->comm, SYMM_FAILED_LOCAL, &gone, -1, &gone), "cap=-1");
    T_EQ(gone, 7);
    REFUSED(symmCommShrink(x->comm, &x->rank, 1, &comm, NULL, 0), "is this rank");
    REFUSED(symmExplain(x->comm, symmNumColls, x->buf, x->buf, 1, symmInt32, symmSum, 0, NULL),
            "must be 0 to");
    T_ERR(symmGroupEnd(), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "symmGroupEnd without symmGroupStart");
    T_CHECK(comm == NULL);
}

CASE(no_multicast) {
    void *p = x;
    FK_REFUSED(x->comm, symmWindowMulticastPtr(x->win, 0, &p), symmNotSupported, "multicast");
    T_CHECK(p == x);
}

/* ---- handles ---- */

CASE(window_of_another_communicator) {
    symmWindow_t win;
    symmComm_t other = fk_open(x->f, x->rank, x->n);
    T_OK(symmWindowRegister(other, x->buf, BYTES, &win, 0));
    REFUSED(symmWindowDeregister(x->comm, win), "belongs to communicator");
    REFUSED(symmWindowDeregister(other, x->win), "belongs to communicator");
    fk_works(other, x->rank, x->n);
    T_OK(symmCommDestroy(other)); /* its window goes with it */
    REFUSED(symmWindowDeregister(x->comm, win), "not a registered window");
}

CASE(double_deregister) {
    symmWindow_t win;
    symmWindowInfo_t info = {.size = sizeof info};
    T_OK(symmWindowRegister(x->comm, x->buf, BYTES, &win, 0));
    T_OK(symmWindowDeregister(x->comm, win));
    REFUSED(symmWindowDeregister(x->comm, win), "deregistered twice");
    REFUSED(symmWindowQuery(win, &info), "not a registered window");
    T_OK(symmWindowQuery(x->win, &info));
    T_EQ(info.references, 1);
}

CASE(use_after_destroy) {
    symmComm_t gone = fk_open(x->f, x->rank, x->n), next;
    symmWindow_t win;
    symmResult_t async;
    void *p = x;
    T_OK(symmWindowRegister(gone, x->buf, BYTES, &win, 0));
    T_OK(symmCommDestroy(gone));
    next = fk_open(x->f, x->rank, x->n); /* takes the old one's place, not its name */
    REFUSED(symmCommDestroy(gone), "not a living communicator");
    REFUSED(symmCommAbort(gone), "not a living communicator");
    REFUSED(symmCommFinalize(gone), "not a living communicator");
    REFUSED(symmCommGetAsyncError(gone, &async), "not a living communicator");
    REFUSED(symmAllReduce(x->buf, x->buf, 1, symmInt32, symmSum, gone, NULL), "comm=");
    REFUSED(symmWindowRegister(gone, x->buf, BYTES, &win, 0), "comm=");
    REFUSED(symmCommSplit(gone, 0, 0, &next, NULL), "comm=");
    REFUSED(symmWindowPeerPtr(win, 0, 0, &p), "not a registered window");
    REFUSED(symmWindowDeregister(next, win), "not a registered window");
    T_OK(symmCommDestroy(next));
}

/* ---- registration: one rank's bad argument is everybody's error ---- */

static void all_refused(ctx *x, void *buff, size_t size, symmWindow_t *win, int flags,
                        const char *part) {
    symmWindow_t none = NULL, good;
    int odd = x->rank == x->f->victim;
    fk_gauges before = fk_take();
    symmResult_t r = odd ? symmWindowRegister(x->comm, buff, size, win, flags)
                         : symmWindowRegister(x->comm, x->buf, BYTES, &none, 0);
    fk_note(x->f, x->rank, r);
    T_CHECK(none == NULL);
    FK_UNCHANGED(&before);
    kit_barrier(&x->f->k, x->n);
    fk_same(x->f, x->n, -1, symmInvalidArgument, part);
    fk_same(x->f, x->n, -1, symmInvalidArgument, "rank 1");
    kit_barrier(&x->f->k, x->n);
    T_OK(symmWindowRegister(x->comm, x->buf, BYTES, &good, 0)); /* as before */
    T_OK(symmWindowDeregister(x->comm, good));
}

CASE(memory_that_cannot_be_mapped_on_one_rank) {
    symmWindow_t win = NULL;
    char *plain = malloc(1 << 20);
    T_CHECK(plain);
    if (x->rank == 1)
        snprintf(x->f->text, sizeof x->f->text, "buff=%p, size=1048576", (void *)plain);
    kit_barrier(&x->f->k, x->n);
    all_refused(x, plain, 1 << 20, &win, 0, x->f->text);
    T_CHECK(win == NULL);
    free(plain);
}

CASE(a_buffer_that_ends_too_early_on_one_rank) {
    symmWindow_t win = NULL;
    all_refused(x, x->buf, (size_t)BYTES + 1, &win, 0, "byte 4194304 is not memory");
    all_refused(x, (char *)x->buf + BYTES - 1, 2, &win, 0, "byte 1 is not memory");
    T_CHECK(win == NULL);
}

CASE(bad_registration_arguments_on_one_rank) {
    symmWindow_t win = NULL;
    all_refused(x, x->buf, BYTES, NULL, 0, "win is NULL");
    all_refused(x, NULL, 64, &win, 0, "buff is NULL but size=64");
    all_refused(x, x->buf, BYTES, &win, 6, "flags=6");
    all_refused(x, x->buf, SIZE_MAX, &win, 0, "size=18446744073709551615");
    all_refused(x, (void *)16, 32, &win, 0, "buff=0x10, size=32");
    T_CHECK(win == NULL);
}

CASE(sizes_that_differ) {
    symmWindow_t win;
    void *p = NULL;
    size_t mine = x->rank ? BYTES : 1000;
    T_OK(symmWindowRegister(x->comm, x->buf, mine, &win, 0));
    T_OK(symmWindowPeerPtr(win, 999, 0, &p));
    REFUSED(symmWindowPeerPtr(win, 1000, 0, &p), "rank 0 registered 1000 bytes");
    T_OK(symmWindowPeerPtr(win, BYTES - 1, 1, &p));
    T_OK(symmWindowDeregister(x->comm, win));
}

CASE(nothing_on_one_rank) {
    symmWindow_t win;
    void *p = NULL;
    x->buf[5] = 42 + x->rank;
    T_OK(symmWindowRegister(x->comm, x->rank ? x->buf : NULL, x->rank ? BYTES : 0, &win, 0));
    REFUSED(symmWindowPeerPtr(win, 0, 0, &p), "rank 0 registered 0 bytes");
    T_OK(symmWindowPeerPtr(win, 5 * sizeof(int), 1, &p));
    T_EQ(*(volatile int *)p, 43);
    kit_barrier(&x->f->k, x->n);
    fk_reduce(x->comm, x->rank, x->n, x->buf, x->buf + (1 << 19), 400000, NULL);
    T_OK(symmWindowDeregister(x->comm, win));
    T_OK(symmWindowRegister(x->comm, NULL, 0, &win, 0)); /* and on all of them */
    T_OK(symmWindowDeregister(x->comm, win));
}

CASE(bad_split_on_one_rank) {
    symmComm_t child = NULL;
    symmConfig_t bad = SYMM_CONFIG_INITIALIZER;
    int odd = x->rank == 1;
    bad.maxCTAs = 257;
    for (int i = 0; i < 2; i++) {
        const char *part[] = {"newcomm is NULL", "maxCTAs=257"};
        fk_note(x->f, x->rank,
                symmCommSplit(x->comm, 0, 0, odd && i == 0 ? NULL : &child,
                              odd && i == 1 ? &bad : NULL));
        kit_barrier(&x->f->k, x->n);
        fk_same(x->f, x->n, -1, symmInvalidArgument, part[i]);
        T_CHECK(child == NULL);
        kit_barrier(&x->f->k, x->n);
    }
}

/* ---- creation: one rank's bad argument is everybody's error ---- */

static symmConfig_t bad_config(int i) {
    symmConfig_t c = SYMM_CONFIG_INITIALIZER;
    switch (i) {
    case 0: c.size = 8; break;
    case 1: c.blocking = 2; break;
    case 2: c.minCTAs = 0; break;
    case 3: c.maxCTAs = -3; break;
    case 4: c.timeoutMs = 0; break;
    default: c.minCTAs = 9, c.maxCTAs = 4; break;
    }
    return c;
}

static void config_rank(int rank, int n, void *arg) {
    static const char *const part[] = {"size=8",     "blocking=2",  "minCTAs=0",
                                       "maxCTAs=-3", "timeoutMs=0", "minCTAs=9"};
    fk *f = arg;
    fk_gauges before = fk_take();
    for (int i = 0; i < 7; i++) { /* the last: no place for the handle */
        symmComm_t comm = NULL;
        symmConfig_t bad = bad_config(i);
        int odd = rank == i % n;
        fk_id(f, rank, n);
        fk_note(f, rank,
                symmCommInitRankConfig(odd && i == 6 ? NULL : &comm, n, f->id, rank,
                                       odd && i < 6 ? &bad : NULL));
        FK_UNCHANGED(&before);
        T_CHECK(comm == NULL);
        kit_barrier(&f->k, n);
        fk_same(f, n, -1, symmInvalidArgument, i < 6 ? part[i] : "comm is NULL");
    }
    symmComm_t comm = fk_open(f, rank, n);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void bad_config_on_one_rank(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, config_rank, fk_new(1, 0));
}

typedef struct {
    const char *name, *value, *part;
    symmResult_t code;
} variable;

static const variable variables[] = {
    {"SYMM_CTAS", "257", "SYMM_CTAS", symmInvalidArgument},
    {"SYMM_SCRATCH", "12Q", "SYMM_SCRATCH", symmInvalidArgument},
    {"SYMM_DEBUG", "LOUD", "SYMM_DEBUG", symmInvalidArgument},
    {"SYMM_ALGO", "all_reduce:by_pigeon", "SYMM_ALGO", symmInvalidArgument},
    {"SYMM_BACKEND", "cuda", "SYMM_BACKEND", symmNotSupported},
    /* good values, but they decide kernels or layout and differ between the ranks */
    {"SYMM_THREADS", "64", "rank 1 has another SYMM_THREADS", symmInvalidUsage},
    {"SYMM_RELAY", "staging", "another SYMM_RELAY", symmInvalidUsage},
    {"SYMM_CTAS", "2", "rank 1 has another SYMM_CTAS than rank 0", symmInvalidUsage},
    {"SYMM_DETERMINISTIC", "1", "another SYMM_DETERMINISTIC", symmInvalidUsage},
    {"SYMM_SCRATCH", "33M", "another scratch (SYMM_SCRATCH", symmInvalidUsage},
    {"SYMM_WIN_STRIDE", "4G", "another SYMM_WIN_STRIDE", symmInvalidUsage},
    {"SYMM_ALGO", "all_reduce_2shot_packet", "another SYMM_ALGO", symmInvalidUsage},
};

static void variable_rank(int rank, int n, void *arg) {
    fk *f = arg;
    fk_gauges before = fk_take();
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const variable *v = &variables[i];
        int is_backend = !strcmp(v->name, "SYMM_BACKEND");
        if (is_backend && access("/dev/nvidiactl", F_OK) == 0) continue; /* no error there */
        symmComm_t comm = NULL;
        fk_id(f, rank, n);
        if (rank == 1) setenv(v->name, v->value, 1);
        fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
        unsetenv(v->name);
        if (is_backend) setenv(v->name, "host", 1); /* as the harness has it */
        T_CHECK(comm == NULL);
        FK_UNCHANGED(&before);
        kit_barrier(&f->k, n);
        fk_same(f, n, -1, v->code, v->part);
        fk_same(f, n, -1, v->code, "rank 1");
    }
    symmComm_t comm = fk_open(f, rank, n);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void bad_variables_on_one_rank(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, variable_rank, fk_new(1, 0));
}

static void nranks_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL;
    fk_id(f, rank, n);
    fk_note(f, rank, symmCommInitRank(&comm, rank == 1 ? n + 1 : n, f->id, rank));
    T_CHECK(comm == NULL);
    kit_barrier(&f->k, n);
    fk_same(f, n, -1, symmInvalidArgument, "nranks");
}

static void nranks_that_differ(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, nranks_rank, fk_new(1, 0));
}

static void other_ctas_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = NULL;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    T_EXPECT_WARNINGS();
    fk_id(f, rank, n);
    config.minCTAs = rank == f->victim ? 4 : 1;
    fk_note(f, rank, symmCommInitRankConfig(&comm, n, f->id, rank, &config));
    kit_barrier(&f->k, n);
    fk_same(f, n, -1, symmInvalidUsage, "minCTAs");
    T_CHECK(comm == NULL);
}

/* Ranks that planned other grids would wait for each other for ever. */
static void configs_that_plan_differently(void) {
    T_FORK(3, other_ctas_rank, fk_new(1, 0));
}

T_MAIN(T(configs_that_plan_differently), T(null_buffers), T(null_results),
       T(records_of_another_size), T(wild_buffers), T(wild_handles), T(wrong_types),
       T(wrong_reductions), T(counts_that_overflow), T(buffers_that_overlap), T(roots_out_of_range),
       T(buffers_that_only_the_root_has), T(alltoall_in_place), T(offsets_and_ranks_out_of_range),
       T(shrink_refused_by_one_rank), T(bad_flags_and_sizes), T(no_multicast),
       T(window_of_another_communicator), T(double_deregister), T(use_after_destroy),
       T(memory_that_cannot_be_mapped_on_one_rank), T(a_buffer_that_ends_too_early_on_one_rank),
       T(bad_registration_arguments_on_one_rank), T(sizes_that_differ), T(nothing_on_one_rank),
       T(bad_split_on_one_rank), T(bad_config_on_one_rank), T(bad_variables_on_one_rank),
       T(nranks_that_differ))
