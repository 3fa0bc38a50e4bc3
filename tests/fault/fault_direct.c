/* fault_direct.c - buffers in no window, which peers read where they are: that they do, what is
 * said where the system refuses it, what a buffer that is not there leads to, that nobody but its
 * owner writes it after an error, and that what a late peer reads of it then is no result. Writes:
 * fault_direct_write.c. Forked ranks; no lock. */
#include <sys/mman.h>

#include "coll_expect.h"
#include "fault_kit.h"

enum { RANKS = 3, ODD = 1, BYTES = 1 << 20 };

static symmExplain_t plan_of(symmComm_t comm) {
    symmExplain_t p = {.size = sizeof p};
    char *in = malloc(BYTES), *out = malloc((size_t)RANKS * BYTES);
    T_CHECK(in && out);
    T_OK(symmExplain(comm, symmCollAllGather, in, out, BYTES, symmUint8, symmSum, 0, &p));
    free(in);
    free(out);
    return p;
}

static void opened(fk *f, int rank, int n, int direct, const char *says) {
    symmComm_t comm = fk_open(f, rank, n);
    symmExplain_t p = plan_of(comm);
    T_EQ(p.zeroCopySend, direct);
    if (says) T_MSG(p.reason, says);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void direct_rank(int rank, int n, void *arg) {
    opened(arg, rank, n, 1, NULL);
}
static void used_where_they_are(void) {
    unsetenv("SYMM_DIRECT"); /* the default */
    T_FORK(RANKS, direct_rank, fk_new(0, 0));
}

static void refused_rank(int rank, int n, void *arg) {
    T_EQ(symm_fail_arm(rank == ODD ? "peer_reach:error" : ""), 0);
    opened(arg, rank, n, 0, "rank 1 cannot reach the memory of rank 0 (not permitted");
}
static void staged_where_the_system_refuses(void) {
    setenv("SYMM_DIRECT", "1", 1);
    T_FORK(RANKS, refused_rank, fk_new(0, 0));
}

static void off_rank(int rank, int n, void *arg) {
    setenv("SYMM_DIRECT", rank == ODD ? "0" : "1", 1);
    opened(arg, rank, n, 0, "SYMM_DIRECT is 0 on rank 1");
}
static void switched_off_by_one_rank(void) {
    T_FORK(RANKS, off_rank, fk_new(0, 0));
}

/* In place: the rank itself does not touch the part that it sends. */
static void hole_rank(int rank, int n, void *arg) {
    symmComm_t comm = fk_open(arg, rank, n);
    fk *f = arg;
    char *all =
        mmap(NULL, (size_t)n * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *mine = all + (size_t)rank * BYTES, says[64];
    T_CHECK(all != MAP_FAILED);
    memset(all, rank, (size_t)n * BYTES);
    if (rank == ODD) {
        snprintf(f->k.text[0], sizeof f->k.text[0], "%#llx",
                 (unsigned long long)(uintptr_t)mine + BYTES / 2);
        T_EQ(munmap(mine + BYTES / 2, BYTES / 2), 0);
    }
    kit_barrier(&f->k, n);
    T_ERR(symmAllGather(mine, all, BYTES, symmUint8, comm, NULL), symmInvalidUsage);
    snprintf(says, sizeof says, "rank %d", ODD);
    T_MSG(symmGetLastError(comm), says);
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void a_buffer_that_is_not_there(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_DIRECT", "2", 1);
    T_FORK(RANKS, hole_rank, fk_new(ODD, 0));
}

/* ---- late readers ---- */

enum { OWNER = 0, LATE = 2, COUNT = 1 << 16, PART = COUNT * (int)sizeof(int32_t) };
enum { LATE_MS = 700, REUSED = 0xee };
#define MESSAGE ((symmColl_t)symmNumColls) /* in place of a collective */

typedef struct {
    symmColl_t coll;
    int root;   /* -1: of a part of the collective, the owner gives and the late one takes */
    int freed;  /* the owner's buffers are unmapped, not filled again */
    int nth;    /* the read of the late rank that is slow */
    int aborts; /* the owner has no deadline: another thread of it aborts the communicator */
} late;

static int root_of(const late *l) {
    if (l->root >= 0) return l->root;
    return l->coll != MESSAGE && symm_colls[l->coll].flags & SYMM_COLL_ROOT &&
                   symm_colls[l->coll].root_takes
               ? LATE
               : OWNER;
}

static int32_t *pages(void) {
    void *p = mmap(NULL, (size_t)RANKS * PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    T_CHECK(p != MAP_FAILED);
    return p;
}
static int32_t brought(int rank, size_t i) {
    return (int32_t)(i * 7 + (size_t)rank * 1000003);
}

/* The owner sends to the late rank. The others wait for what does not come before an error. */
static symmResult_t passed(symmComm_t comm, int rank, const int32_t *in, int32_t *out) {
    if (rank == OWNER) return symmSend(in, RANKS * COUNT, symmInt32, LATE, comm, NULL);
    if (rank == LATE) return symmRecv(out, RANKS * COUNT, symmInt32, OWNER, comm, NULL);
    return symmRecv(out, 1, symmInt32, OWNER, comm, NULL);
}
static symmResult_t called(const late *l, symmComm_t comm, const int32_t *in, int32_t *out) {
    int rank;
    T_OK(symmCommUserRank(comm, &rank));
    if (l->coll == MESSAGE) return passed(comm, rank, in, out);
    return symm_test_call(l->coll, in, out, COUNT, symmInt32, symmSum, root_of(l), comm, NULL);
}

static symmComm_t opened_late(fk *f, const late *l, int rank, int n, int32_t **in, int32_t **out) {
    char slow[64];
    symmComm_t comm;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    config.peerDeath = l->aborts ? SYMM_DEATH_WHEN_USED : SYMM_DEATH_AT_ONCE;
    fk_id(f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, f->id, rank, &config));
    *in = pages();
    *out = pages();
    for (size_t i = 0; i < (size_t)RANKS * COUNT; i++) (*in)[i] = brought(rank, i);
    memset(*out, 0x11, (size_t)RANKS * PART);
    snprintf(slow, sizeof slow, "peer_read:delay=%d:%d", LATE_MS, l->nth);
    T_EQ(symm_fail_arm(rank == OWNER || (l->nth > 1 && rank != LATE) ? "" : slow), 0);
    kit_barrier(&f->k, n);
    return comm;
}
static void ended_late(symmComm_t comm, int32_t *in, int32_t *out) {
    T_EQ(symm_fail_arm(""), 0);
    if (comm) T_OK(symmCommDestroy(comm));
    munmap(in, (size_t)RANKS * PART);
    munmap(out, (size_t)RANKS * PART);
}

typedef struct {
    fk *f;
    late l;
} late_case;

static void *abort_soon(void *comm) {
    kit_sleep(100);
    T_OK(symmCommAbort(comm));
    return NULL;
}

/* The owner gives up while the others are about to read its memory, and uses that for something
 * else. They go on: what they read then is no result, and what is there stays. */
static void gave_up_rank(int rank, int n, void *arg) {
    const late_case *k = arg;
    int32_t *buf[2];
    pthread_t other;
    const int aborts = k->l.aborts && rank == OWNER;
    if (rank == OWNER && !aborts) setenv("SYMM_TIMEOUT", "100", 1);
    symmComm_t comm = opened_late(k->f, &k->l, rank, n, &buf[0], &buf[1]);
    if (aborts) T_EQ(pthread_create(&other, NULL, abort_soon, comm), 0);
    T_ERR(called(&k->l, comm, buf[0], buf[1]), k->l.aborts ? symmAborted : symmTimeout);
    if (aborts) T_EQ(pthread_join(other, NULL), 0);
    for (int i = 0; i < 2 && rank == OWNER; i++)
        if (k->l.freed)
            T_EQ(munmap(buf[i], (size_t)RANKS * PART), 0);
        else
            memset(buf[i], REUSED, (size_t)RANKS * PART);
    kit_barrier(&k->f->k, n);
    for (int i = 0; i < 2 && rank == OWNER && !k->l.freed; i++)
        for (size_t at = 0; at < (size_t)RANKS * PART; at++)
            T_CHECKF(((unsigned char *)buf[i])[at] == REUSED,
                     "%s: byte %zu of the owner's %s was written by somebody else",
                     k->l.coll == MESSAGE ? "message" : symm_coll_name(k->l.coll), at,
                     i ? "recvbuff" : "sendbuff");
    ended_late(aborts ? NULL : comm, buf[0], buf[1]);
}

static void gave_up(symmColl_t coll, int root, int freed, int aborts) {
    late_case *k = T_SHARED(sizeof *k);
    *k = (late_case){fk_new(OWNER, 0), {coll, root, freed, 1, aborts}};
    T_FORK(RANKS, gave_up_rank, k);
}
/* Sources of reductions with a count per rank are staged. */
static int read_in_place(int coll) {
    return coll_moves((symmColl_t)coll) &&
           !(symm_coll_varies(&symm_colls[coll]) && coll_reduces((symmColl_t)coll));
}
static void an_owner_that_gave_up(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_DIRECT", "2", 1);
    for (int c = 0; c < symmNumColls; c++)
        if (read_in_place(c)) gave_up((symmColl_t)c, -1, 0, 0);
    setenv("SYMM_DIRECT_WRITE", "0", 1); /* owners fetch */
    gave_up(symmCollReduce, OWNER, 0, 0);
    gave_up(symmCollAllReduce, -1, 0, 0);
}
/* Whose peers mind that only if they need it. */
static void an_owner_that_aborted(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_DIRECT", "2", 1);
    for (int c = 0; c < symmNumColls; c++)
        if (read_in_place(c)) gave_up((symmColl_t)c, -1, c % 2, 1);
    setenv("SYMM_SCRATCH", "1M", 1); /* the ring is smaller than the message */
    gave_up(MESSAGE, -1, 0, 1);
}
static void a_sender_that_gave_up(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_DIRECT", "2", 1);
    setenv("SYMM_SCRATCH", "1M", 1); /* the ring is smaller than the message */
    for (int freed = 0; freed < 2; freed++) gave_up(MESSAGE, -1, freed, 0);
}
static void an_owner_that_freed_its_buffers(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_DIRECT", "2", 1);
    for (int c = 0; c < symmNumColls; c++)
        if (read_in_place(c)) gave_up((symmColl_t)c, -1, 1, 0);
}

/* Without an error everybody waits for the late one, whichever of its reads is slow. */
static void awaited_rank(int rank, int n, void *arg) {
    const late_case *k = arg;
    int32_t *in, *out;
    symmComm_t comm = opened_late(k->f, &k->l, rank, n, &in, &out);
    T_OK(called(&k->l, comm, in, out));
    for (size_t i = 0; (rank == LATE || k->l.coll == symmCollAllReduce) && i < COUNT; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < n; r++) sum += (uint32_t)brought(r, i);
        T_CHECKF((uint32_t)out[i] == sum, "element %zu: %d, not %d", i, out[i], (int32_t)sum);
    }
    memset(in, REUSED, (size_t)RANKS * PART);
    memset(out, REUSED, (size_t)RANKS * PART);
    kit_barrier(&k->f->k, n);
    ended_late(comm, in, out);
}
static void awaited(symmColl_t coll, int nth) {
    late_case *k = T_SHARED(sizeof *k);
    *k = (late_case){fk_new(OWNER, 0), {coll, -1, 0, nth, 0}};
    T_FORK(RANKS, awaited_rank, k);
}
static void late_readers_are_waited_for(void) {
    setenv("SYMM_DIRECT", "2", 1);
    setenv("SYMM_SCRATCH", "1M", 1); /* several chunks */
    for (int writes = 0; writes < 2; writes++) {
        setenv("SYMM_DIRECT_WRITE", writes ? "1" : "0", 1);
        for (int nth = 2; nth <= (writes ? 8 : 16); nth += writes ? 3 : 2)
            awaited(symmCollAllReduce, nth);
        for (int nth = 2; nth <= 8; nth += 3) awaited(symmCollReduce, nth);
    }
}

static void sent_rank(int rank, int n, void *arg) {
    const late_case *k = arg;
    int32_t *in, *out;
    symmComm_t comm = opened_late(k->f, &k->l, rank, n, &in, &out);
    if (rank != 1) T_OK(called(&k->l, comm, in, out));
    for (size_t i = 0; rank == LATE && i < (size_t)RANKS * COUNT; i++)
        T_CHECKF(out[i] == brought(OWNER, i), "element %zu: %d", i, out[i]);
    memset(in, REUSED, (size_t)RANKS * PART);
    kit_barrier(&k->f->k, n);
    ended_late(comm, in, out);
}
static void a_late_receiver_is_waited_for(void) {
    setenv("SYMM_DIRECT", "2", 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    late_case *k = T_SHARED(sizeof *k);
    *k = (late_case){fk_new(OWNER, 0), {MESSAGE, -1, 0, 2, 0}};
    T_FORK(RANKS, sent_rank, k);
}

/* ---- a peer that is gone ---- */

static void dead_rank(int rank, int n, void *arg) {
    const late_case *k = arg;
    int32_t *in, *out;
    symmComm_t comm = opened_late(k->f, &k->l, rank, n, &in, &out);
    if (rank == OWNER) T_EQ(symm_fail_arm("peer_read:kill"), 0);
    T_ERR(called(&k->l, comm, in, out), symmRemoteError);
    T_MSG(symmGetLastError(comm), "rank 0");
    ended_late(comm, in, out);
}
static void a_death_before_the_read(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_DIRECT", "2", 1);
    late_case *k = T_SHARED(sizeof *k);
    *k = (late_case){fk_new(OWNER, 0), {symmCollAllReduce, -1, 0, 1, 0}};
    T_FORK_DIES(RANKS, OWNER, dead_rank, k);
}

static void gone_rank(int rank, int n, void *arg) {
    const late_case *k = arg;
    int32_t *in, *out;
    symmComm_t comm = opened_late(k->f, &k->l, rank, n, &in, &out);
    T_EQ(symm_fail_arm(rank == ODD ? "peer_read:error" : ""), 0);
    kit_barrier(&k->f->k, n);
    T_ERR(called(&k->l, comm, in, out), symmRemoteError);
    if (rank == ODD) T_MSG(symmGetLastError(comm), "rank 2 died: its process is gone");
    kit_barrier(&k->f->k, n);
    ended_late(comm, in, out);
}
static void a_process_that_is_gone(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_DIRECT", "2", 1);
    late_case *k = T_SHARED(sizeof *k);
    *k = (late_case){fk_new(OWNER, 0), {symmCollAllGather, -1, 0, 1, 0}};
    T_FORK(RANKS, gone_rank, k);
}

T_MAIN(T(used_where_they_are), T(staged_where_the_system_refuses), T(switched_off_by_one_rank),
       T(a_buffer_that_is_not_there), T_TIMEOUT(an_owner_that_gave_up, 120),
       T_TIMEOUT(an_owner_that_aborted, 120), T_TIMEOUT(an_owner_that_freed_its_buffers, 120),
       T_TIMEOUT(late_readers_are_waited_for, 120), T(a_sender_that_gave_up),
       T(a_late_receiver_is_waited_for), T(a_death_before_the_read), T(a_process_that_is_gone))
