/* fault_hosts_end.c - ranks on several hosts of one NVLink fabric that die, leave, abort or revoke,
 * with kernels that wait for them and without, on the fake driver: who hears of it, when, and what
 * is minded later (peerDeath). No lock: what ranks share stands behind barriers. */
#include "hosts_kit.h"

/* ---- ends ------------------------------------------------------------------------------------ */

enum { WAITS, IDLE }; /* what the others do when a rank ends */
enum { DIES = 0, REVOKES = 2, ABORTS = 4 };

/* A rank ends; the others have a kernel that waits for it, or nothing. */
static void ends_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    const int waits = !(f->how & 1), how = f->how & ~1;
    uint64_t ms;
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    buffers b = buffers_new(comm, n);
    reduces(comm, &b, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        usleep(50000);
        if (how == DIES) kill(getpid(), SIGKILL);
        if (how == REVOKES) T_OK(symmCommRevoke(comm, 0));
        if (how == ABORTS) T_OK(symmCommAbort(comm));
        if (how == ABORTS) T_OK(symmMemFree(b.mem));
        if (how == ABORTS) return;
    } else if (waits) {
        T_OK(symmAllReduce(b.mem, b.out, COUNT, symmInt32, symmSum, comm, NULL));
    }
    const int code = await_code(comm, &ms), want = how == DIES ? symmRemoteError : symmAborted;
    T_CHECKF(code == want, "rank %d: code %d after %d ms: %s", rank, code, (int)ms,
             symmGetLastError(comm));
    T_CHECKF(ms < SOON_MS, "rank %d: after %d ms", rank, (int)ms);
    if (rank != f->victim) T_MSG(symmGetLastError(comm), "rank 1");
    run();
    kit_barrier(&f->k, how == REVOKES ? n : n - 1); /* an abort is news, too */
    T_OK(symmCommAbort(comm));
    T_OK(symmMemFree(b.mem));
}

static void ends(int how) {
    T_EXPECT_WARNINGS();
    for (int idle = 0; idle < 2; idle++)
        T_FORK_DIES(4, how == DIES ? 1 : -1, ends_rank,
                    hosts_new(2, idle, 1, how | (idle ? IDLE : WAITS)));
}
static void a_death_is_heard_on_all_hosts(void) {
    ends(DIES);
}
static void a_revocation_is_heard_on_all_hosts(void) {
    ends(REVOKES);
}
static void an_abort_is_heard_on_all_hosts(void) {
    ends(ABORTS);
}

/* Survivors of two hosts shrink, and go on. */
static void shrinks_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    symmComm_t next = NULL;
    uint64_t ms;
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    buffers b = buffers_new(comm, n);
    reduces(comm, &b, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) kill(getpid(), SIGKILL);
    T_EQ(await_code(comm, &ms), symmRemoteError);
    T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_FAILED));
    T_OK(symmCommAbort(comm));
    const int me = rank - (rank > f->victim);
    buffers mine = buffers_new(next, n - 1);
    reduces(next, &mine, me, n - 1);
    buffers_free(next, &mine);
    T_OK(symmCommDestroy(next));
    T_OK(symmMemFree(b.mem));
}
static void survivors_shrink(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(4, 1, shrinks_rank, hosts_new(2, 0, 1, 0));
}

/* Who destroys its communicator, or exits, is not dead. The others hear of it when they need it. */
static void leaves_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    uint64_t ms;
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    buffers b = buffers_new(comm, n);
    reduces(comm, &b, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        if (!f->how) T_OK(symmCommDestroy(comm));
        if (!f->how) T_OK(symmMemFree(b.mem));
        atomic_store(&f->k.flag, 1);
        if (f->how) exit(0);
        return;
    }
    kit_await_flag(&f->k, 1);
    usleep(300000);
    T_EQ(peer_code(comm), 0);
    T_OK(symmAllReduce(b.mem, b.out, COUNT, symmInt32, symmSum, comm, NULL));
    T_EQ(await_code(comm, &ms), symmRemoteError);
    T_MSG(symmGetLastError(comm), "rank");
    run();
    kit_barrier(&f->k, n - 1);
    T_OK(symmCommAbort(comm));
    T_OK(symmMemFree(b.mem));
}
static void who_leaves_is_not_dead(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, leaves_rank, hosts_new(1, 0, 1, 0));
    T_FORK(3, leaves_rank, hosts_new(2, 0, 0, 0));
    T_FORK_DIES(3, 1, leaves_rank, hosts_new(1, 0, 1, 1));
}

/* With SYMM_DEATH_WHEN_USED an abort ends who uses the communicator, and nobody else. */
static void later_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t comm = NULL;
    symm_comm *c;
    uint64_t ms;
    begin(h, rank, n);
    config.peerDeath = SYMM_DEATH_WHEN_USED;
    fk_id(f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, f->id, rank, &config));
    buffers b = buffers_new(comm, n);
    reduces(comm, &b, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        T_OK(symmCommAbort(comm));
        T_OK(symmMemFree(b.mem));
        atomic_store(&f->k.flag, 1);
        kit_await_flag(&f->k, 2);
        return;
    }
    kit_await_flag(&f->k, 1);
    usleep(300000);
    T_EQ(peer_code(comm), 0);
    T_OK(symm_comm_visit(comm, &c)); /* its host has heard */
    T_EQ(symm_comm_death_word(c), (uint64_t)symmAborted << 32 | 2);
    symm_comm_unvisit(c);
    if (rank == 2) { /* needs it */
        const symmResult_t r = symmAllReduce(b.mem, b.out, COUNT, symmInt32, symmSum, comm, NULL);
        T_EQ(r ? (int)r : await_code(comm, &ms), symmAborted);
        T_MSG(symmGetLastError(comm), "rank 1");
        run();
        usleep(1200000); /* the watcher has looked again */
        atomic_store(&f->k.flag, 2);
    }
    kit_await_flag(&f->k, 2);
    if (rank == 0) T_EQ(peer_code(comm), 0); /* it has not used it since */
    T_OK(symmCommAbort(comm));
    T_OK(symmMemFree(b.mem));
}
static void an_abort_may_be_minded_later(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, later_rank, hosts_new(1, 0, 1, 0));
}

/* A program that revokes ends all ranks at once, whatever they mind later; and of a death those
 * that mind it later hear nothing from those that mind it at once. how: 1 a death, of which rank 2
 * alone wants to know at once. */
static void minds_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t comm = NULL;
    uint64_t ms;
    begin(h, rank, n);
    if (!f->how || rank != 2) config.peerDeath = SYMM_DEATH_WHEN_USED;
    fk_id(f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, f->id, rank, &config));
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        if (f->how) kill(getpid(), SIGKILL);
        T_OK(symmCommRevoke(comm, 0));
    }
    if (!f->how || rank == 2) {
        T_EQ(await_code(comm, &ms), f->how ? symmRemoteError : symmAborted);
        T_CHECKF(ms < SOON_MS, "rank %d: after %d ms", rank, (int)ms);
    }
    usleep(500000); /* watchers have looked again */
    if (f->how && rank == 0) T_EQ(peer_code(comm), 0);
    kit_barrier(&f->k, n - f->how);
    T_OK(symmCommAbort(comm));
}
static void a_revocation_is_minded_at_once(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, minds_rank, hosts_new(1, 0, 1, 0));
}
static void a_death_is_minded_as_each_rank_wants(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 1, minds_rank, hosts_new(1, 0, 1, 1));
}

/* When symmCommRevoke has returned, or symmCommAbort (how 1), kernels of other hosts find it in
 * their GPU's memory, whatever their hosts know. */
static void told_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t comm = NULL;
    symm_comm *c;
    begin(h, rank, n);
    if (f->how) config.peerDeath = SYMM_DEATH_WHEN_USED;
    fk_id(f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, f->id, rank, &config));
    T_OK(symm_comm_visit(comm, &c));
    const symm_gpu_ctl *own =
        (const symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)rank * c->stride);
    const symm_ctl *far = (const symm_ctl *)(const void *)own->far;
    const uint64_t word = (uint64_t)symmAborted << 32 | 2;
    symm_comm_unvisit(c);
    kit_barrier(&f->k, n);
    if (rank == f->victim) T_OK(f->how ? symmCommAbort(comm) : symmCommRevoke(comm, 0));
    kit_barrier(&f->k, n);
    if (rank != f->victim) {
        T_EQ(f->how ? far->death : far->abort, word);
        T_EQ(own->over, f->how ? 0 : 1);
    }
    kit_barrier(&f->k, n);
    if (rank != f->victim || !f->how) T_OK(symmCommAbort(comm));
}
static void kernels_are_told_by_the_call_itself(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, told_rank, hosts_new(1, 0, 1, 0));
    T_FORK(3, told_rank, hosts_new(1, 0, 1, 1));
}

/* The thread inside takes what the watcher would have heard: a revocation (how 0), or that a peer
 * leaves. */
static void taken_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    uint64_t ms;
    int count = 0;
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    buffers b = buffers_new(comm, n);
    reduces(comm, &b, rank, n);
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        usleep(20000); /* the others wait for it by now */
        if (f->how)
            T_OK(symmCommDestroy(comm));
        else
            T_OK(symmCommRevoke(comm, 0));
    }
    if (rank != f->victim || !f->how)
        T_OK(symmCommFailedRanks(comm, SYMM_FAILED_AGREE, NULL, 0, &count));
    kit_barrier(&f->k, n);
    if (f->how && rank != f->victim) {
        usleep(300000);
        T_EQ(peer_code(comm), 0);
        T_OK(symmAllReduce(b.mem, b.out, COUNT, symmInt32, symmSum, comm, NULL));
    }
    if (!f->how || rank != f->victim) {
        T_EQ(await_code(comm, &ms), f->how ? symmRemoteError : symmAborted);
        T_CHECKF(ms < 1000 + SOON_MS, "rank %d: after %d ms", rank, (int)ms);
        run();
    }
    kit_barrier(&f->k, n);
    if (!f->how || rank != f->victim) T_OK(symmCommAbort(comm));
    T_OK(symmMemFree(b.mem));
}
static void what_the_thread_inside_has_taken_is_told(void) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 6; i++) T_FORK(3, taken_rank, hosts_new(1, 0, 1, i & 1));
}

T_MAIN(T_TIMEOUT(a_death_is_heard_on_all_hosts, 60),
       T_TIMEOUT(a_revocation_is_heard_on_all_hosts, 60),
       T_TIMEOUT(an_abort_is_heard_on_all_hosts, 60), T_TIMEOUT(survivors_shrink, 60),
       T_TIMEOUT(who_leaves_is_not_dead, 60), T_TIMEOUT(an_abort_may_be_minded_later, 60),
       T_TIMEOUT(a_revocation_is_minded_at_once, 60),
       T_TIMEOUT(a_death_is_minded_as_each_rank_wants, 60),
       T_TIMEOUT(kernels_are_told_by_the_call_itself, 60),
       T_TIMEOUT(what_the_thread_inside_has_taken_is_told, 60))
