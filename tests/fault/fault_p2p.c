/* fault_p2p.c - sends and receives that go wrong: counts and types that differ, a peer that dies at
 * each stage, leaves, aborts or never comes, arguments that are refused, dumps of who waits. The
 * rank that waits hears of it in time, by name, and so does its peer; others are not disturbed
 * before. Forked ranks; no lock. */
#include <fcntl.h>

#include "fault_kit.h"
#include "p2p_kit.h"

enum { SOON_MS = 1000, BIG = 8 << 20, LOADED = 64 << 20 };

/* ---- counts and types ------------------------------------------------------------------------ */

typedef struct {
    size_t sent, received;
    symmDataType_t from, to;
    const char *text;
} differs;

/* Tiny, small, in chunks; also where both have the same bytes. */
static const differs cases[] = {
    {100, 96, symmFloat, symmFloat, "rank 1 sends 100 float32, rank 0 receives 96 float32"},
    {3, 4, symmInt8, symmInt8, "rank 1 sends 3 int8, rank 0 receives 4 int8"},
    {8, 2, symmInt8, symmInt, "rank 1 sends 8 int8, rank 0 receives 2 int32"},
    {0, 1, symmInt8, symmInt8, "rank 1 sends 0 int8, rank 0 receives 1 int8"},
    {1, 0, symmInt8, symmInt8, "rank 1 sends 1 int8, rank 0 receives 0 int8"},
    {9000, 9, symmUint8, symmUint8, "rank 1 sends 9000 uint8, rank 0 receives 9 uint8"},
    {9, 9000, symmUint8, symmUint8, "rank 1 sends 9 uint8, rank 0 receives 9000 uint8"},
    {BIG / 4, BIG / 8, symmInt, symmInt, "rank 1 sends 2097152 int32, rank 0 receives 1048576"},
    {BIG / 8, BIG / 4, symmInt, symmInt, "rank 1 sends 1048576 int32, rank 0 receives 2097152"},
    {BIG / 4, BIG / 8, symmInt, symmDouble, "receives 1048576 float64"}};
enum { CASES = sizeof cases / sizeof *cases };

static void differ_rank(int rank, int n, void *arg) {
    fk *f = arg;
    for (int i = 0; i < 2 * CASES; i++) {
        const differs *k = &cases[i / 2];
        symmComm_t comm = fk_open(f, rank, n);
        const uint64_t bytes = rank ? BIG : k->received * (k->to == symmDouble ? 8 : 4);
        symmWindow_t win;
        char *p;
        T_OK(symmMemAlloc((void **)&p, BIG + 4096));
        T_OK(symmWindowRegister(comm, p, i % 2 ? BIG + 4096 : 0, &win, SYMM_WIN_DEFAULT));
        pk_empty(p + PK_GUARD, BIG);
        if (rank == 1) memset(p, 0x11, BIG + 4096);
        if (rank == 0)
            T_ERR(symmRecv(p + PK_GUARD, k->received, k->to, 1, comm, NULL), symmMismatch);
        if (rank == 1) {
            symmResult_t r = symmSend(p + PK_GUARD, k->sent, k->from, 0, comm, NULL);
            while (!r) r = symmSend(p + PK_GUARD, 0, symmInt8, 0, comm, NULL), usleep(100);
            T_EQ(r, symmMismatch);
        }
        if (rank < 2) T_MSG(symmGetLastError(comm), k->text);
        kit_barrier(&f->k, n);
        if (rank == 0)
            for (uint64_t b = bytes; b < BIG + 2 * PK_GUARD; b++)
                if (b >= bytes + PK_GUARD) T_EQ(p[b], PK_EMPTY);
        T_OK(symmCommDestroy(comm));
        kit_barrier(&f->k, n);
        T_OK(symmMemFree(p));
    }
}
static void counts_and_types_that_differ(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, differ_rank, fk_new(0, 0));
}

/* ---- deaths ---------------------------------------------------------------------------------- */

enum { NOTHING_SENT, INSIDE, IN_CHUNKS, UNDER_A_STREAM, IN_A_GROUP, WAYS };

static symmResult_t one_turn(int how, int rank, symmComm_t comm, char *p, symmStream_t s) {
    const uint64_t bytes = how == INSIDE ? 100 : BIG;
    symmResult_t r = symmSuccess;
    if (how == IN_A_GROUP) T_OK(symmGroupStart());
    if (how == IN_A_GROUP || rank == 1) r = symmSend(p, bytes, symmUint8, 1 - rank, comm, s);
    if (!r && (how == IN_A_GROUP || rank == 0))
        r = symmRecv(p + BIG, bytes, symmUint8, 1 - rank, comm, s);
    if (how == IN_A_GROUP) r = symmGroupEnd();
    if (!r && s) r = symmStreamSynchronize(s);
    return r;
}

/* Ranks 0 and 1 send to each other until rank f->victim dies. Rank 2 is in nothing. */
static void death_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    symmStream_t s = NULL;
    symmResult_t r = symmSuccess;
    char *p = calloc(1, 2 * BIG), who[16];
    T_CHECK(p != NULL);
    if (f->how == UNDER_A_STREAM) T_OK(symmStreamCreate(&s));
    snprintf(who, sizeof who, "rank %d died", f->victim);
    kit_barrier(&f->k, n);
    if (rank == f->victim) fk_doom(f);
    while (rank == f->victim && f->how == NOTHING_SENT) pause();
    while (rank < 2 && !r) r = one_turn(f->how, rank, comm, p, s);
    if (rank < 2) {
        T_EQ(r, symmRemoteError);
        T_MSG(symmGetLastError(comm), who);
        if (f->how == NOTHING_SENT) /* else the next call may be refused on entry */
            T_MSG(symmGetLastError(comm), rank ? "symmSend of" : "symmRecv of");
        const int late = (int)fk_ms_since(atomic_load(&f->at_ns));
        T_CHECKF(late < SOON_MS, "heard of the death after %d ms", late);
    }
    kit_barrier(&f->k, n - 1);
    if (s) T_OK(symmStreamDestroy(s));
    symmComm_t next;
    T_OK(symmCommShrink(comm, &f->victim, 1, &next, NULL, 0));
    fk_works(next, rank > f->victim ? rank - 1 : rank, n - 1);
    T_OK(symmCommDestroy(next));
    T_OK(symmCommDestroy(comm));
    free(p);
}
static void a_peer_that_dies(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < WAYS; how++)
        for (int victim = 0; victim < 2; victim++)
            if (how || victim) T_FORK_DIES(3, victim, death_rank, fk_new(victim, how));
}

/* ---- leaving, aborting, never coming --------------------------------------------------------- */

/* What rank 1 sent before it left is received; what it owes is an error. */
static void leaves_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    char p[256] = {0};
    if (rank == 1) {
        pk_fill(p, 200, 1, 0, 9);
        T_OK(symmSend(p, 200, symmUint8, 0, comm, NULL));
        T_OK(symmCommDestroy(comm));
    }
    kit_barrier(&f->k, n);
    if (rank == 1) return;
    T_OK(symmRecv(p, 200, symmUint8, 1, comm, NULL));
    pk_check(p, 200, 1, 0, 9);
    const uint64_t start = symm_now_ns();
    T_ERR(symmRecv(p, 200, symmUint8, 1, comm, NULL), symmRemoteError);
    T_MSG(symmGetLastError(comm), "rank 1 died or left");
    T_MSG(symmGetLastError(comm), "rank 0 in symmRecv of 200 uint8 from rank 1");
    T_CHECK(fk_ms_since(start) < 5 * SOON_MS);
    T_OK(symmCommDestroy(comm));
}
static void a_peer_that_leaves(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, leaves_rank, fk_new(0, 0));
}

static void aborts_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    char p[64] = {0};
    kit_barrier(&f->k, n);
    if (rank == 1) {
        kit_sleep(50);
        if (f->how)
            T_OK(symmCommRevoke(comm, 0));
        else
            T_OK(symmCommAbort(comm));
    } else {
        T_ERR(symmRecv(p, 64, symmUint8, 1, comm, NULL), symmAborted);
        T_MSG(symmGetLastError(comm), "rank 0 in symmRecv of 64 uint8 from rank 1");
    }
    kit_barrier(&f->k, n);
    if (rank == 0 || f->how) T_OK(symmCommDestroy(comm));
}
/* Rank 1 ends the communicator while rank 0 loads out of its window, and then writes there, from
 * the end on, until rank 0 has come to it. What that has read by then is no message. */
static char *loaded; /* rank 0's buffer, in no window; rank 1 sees when the first byte comes */

typedef struct {
    fk *f;
    symmComm_t comm;
} ender;

static void *end_in_the_middle(void *arg) {
    const ender *e = arg;
    while (!*(volatile char *)loaded) sched_yield();
    if (e->f->how)
        T_OK(symmCommRevoke(e->comm, 0));
    else
        T_OK(symmCommAbort(e->comm));
    return NULL;
}

static void sends_and_fills(fk *f, symmComm_t comm) {
    ender e = {f, comm};
    symmWindow_t win;
    pthread_t thread;
    char *p;
    T_OK(symmMemAlloc((void **)&p, LOADED));
    T_OK(symmWindowRegister(comm, p, LOADED, &win, SYMM_WIN_DEFAULT));
    memset(p, 1, LOADED);
    kit_barrier(&f->k, 2);
    T_EQ(pthread_create(&thread, NULL, end_in_the_middle, &e), 0);
    T_ERR(symmSend(p, LOADED, symmUint8, 0, comm, NULL), symmAborted);
    for (size_t at = LOADED; at > 0; at -= 4096) memset(p + at - 4096, 2, 4096);
    pthread_join(thread, NULL);
    kit_barrier(&f->k, 2);
    if (f->how) T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(p));
}

static void loads_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    if (rank == 1) {
        sends_and_fills(f, comm);
        return;
    }
    symmWindow_t win;
    T_OK(symmWindowRegister(comm, NULL, 0, &win, SYMM_WIN_DEFAULT));
    kit_barrier(&f->k, n);
    T_ERR(symmRecv(loaded, LOADED, symmUint8, 1, comm, NULL), symmAborted);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void a_sender_that_ends_while_it_is_read(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < 2; how++) {
        loaded = T_SHARED(LOADED);
        T_FORK(2, loads_rank, fk_new(0, how));
    }
}

static void a_peer_that_aborts(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < 2; how++) T_FORK(2, aborts_rank, fk_new(0, how));
}

/* Rank 2 is in no wait and hears of it later. */
static void deadline_rank(int rank, int n, void *arg) {
    fk *f = arg;
    setenv("SYMM_TIMEOUT", "300", 1);
    symmComm_t comm = fk_open(f, rank, n);
    char *p = calloc(1, BIG);
    kit_barrier(&f->k, n);
    if (rank == 0) {
        T_ERR(f->how ? symmSend(p, BIG, symmUint8, 1, comm, NULL)
                     : symmRecv(p, BIG, symmUint8, 1, comm, NULL),
              symmTimeout);
        T_MSG(symmGetLastError(comm), "rank 1 did not come before a deadline");
        T_MSG(symmGetLastError(comm), f->how ? "rank 0 in symmSend of 8388608 uint8 to rank 1"
                                             : "rank 0 in symmRecv of 8388608 uint8 from rank 1");
    }
    kit_barrier(&f->k, n);
    T_ERR(symmSend(p, 1, symmUint8, 0, comm, NULL), symmTimeout);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
    free(p);
}
static void a_peer_that_never_comes(void) {
    T_EXPECT_WARNINGS();
    for (int how = 0; how < 2; how++) T_FORK(3, deadline_rank, fk_new(0, how));
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void bad_calls(symmComm_t comm) {
    char p[8];
    const size_t most = (size_t)-1;
    T_ERR(symmSend(p, 1, symmInt8, 2, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "symmSend: peer=2: must be 0 to 1");
    T_ERR(symmRecv(p, 1, symmInt8, -1, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "symmRecv: peer=-1: must be 0 to 1");
    T_ERR(symmSend(NULL, 1, symmInt8, 1, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "sendbuff is NULL");
    T_ERR(symmRecv(NULL, 1, symmInt8, 1, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "recvbuff is NULL");
    T_ERR(symmRecv((void *)8, 1, symmInt8, 1, comm, NULL), symmInvalidArgument);
    T_ERR(symmSend(p, most, symmInt8, 1, comm, NULL), symmInvalidArgument);
    T_ERR(symmSend(p, most / 4, symmDouble, 1, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "elements of 8 bytes overflow");
    T_ERR(symmSend(p, 1, (symmDataType_t)symmNumTypes, 1, comm, NULL), symmInvalidArgument);
    T_MSG(symmGetLastError(comm), "symmSend: datatype=12");
    T_ERR(symmSend(p, 1, symmInt8, 1, NULL, NULL), symmInvalidArgument);
    T_ERR(symmSend(p, 1, symmInt8, 1, comm, (symmStream_t)(void *)p), symmInvalidArgument);
}

static void bad_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    char p[8] = {0};
    const fk_gauges before = fk_take();
    bad_calls(comm);
    T_OK(symmGroupStart()); /* a group that holds one of them runs nothing */
    T_OK(symmSend(p, 8, symmInt8, 1 - rank, comm, NULL));
    T_ERR(symmSend(p, 1, symmInt8, 9, comm, NULL), symmInvalidArgument);
    T_ERR(symmGroupEnd(), symmInvalidArgument);
    T_OK(symmGroupStart());
    T_OK(symmSend(p, 8, symmInt8, 1 - rank, comm, NULL));
    T_ERR(symmCommDestroy(comm), symmInvalidUsage);
    T_ERR(symmGroupEnd(), symmInvalidUsage);
    FK_UNCHANGED(&before);
    T_OK(symmGroupStart());
    T_OK(symmSend(NULL, 0, symmInt8, 1 - rank, comm, NULL));
    T_OK(symmRecv(NULL, 0, symmInt8, 1 - rank, comm, NULL));
    T_OK(symmGroupEnd());
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}
static void bad_arguments(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, bad_rank, fk_new(0, 0));
}

/* ---- who waits ------------------------------------------------------------------------------- */

static void dump_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    int32_t p[8] = {0};
    kit_barrier(&f->k, n);
    if (rank == 1) {
        char text[8192], name[] = "/tmp/symm_dump_XXXXXX";
        const int fd = mkstemp(name);
        T_CHECK(fd >= 0);
        unlink(name);
        kit_sleep(200);
        T_OK(symmCommDump(comm, fd));
        const ssize_t got = pread(fd, text, sizeof text - 1, 0);
        T_CHECK(got > 0);
        text[got] = 0;
        T_MSG(text, "waits in symmRecv of 8 int32 from rank 1");
        close(fd);
        T_OK(symmSend(p, 8, symmInt, 0, comm, NULL));
    } else {
        T_OK(symmRecv(p, 8, symmInt, 1, comm, NULL));
    }
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void a_dump_names_who_waits(void) {
    T_FORK(2, dump_rank, fk_new(0, 0));
}

T_MAIN(T(counts_and_types_that_differ), T(a_peer_that_dies), T(a_peer_that_leaves),
       T(a_peer_that_aborts), T(a_sender_that_ends_while_it_is_read), T(a_peer_that_never_comes),
       T(bad_arguments), T(a_dump_names_who_waits))
