/* fault_hosts_vec.c - sizes of vectors whose ranks are on several hosts of one NVLink fabric, on
 * the fake driver: what symmVecSync says of peers that are in no call, behind, full, gone, or have
 * shrunk. The rank's own thread, and one that asks; no lock: what ranks share stands behind
 * barriers. */
#include "hosts_kit.h"

#include <sys/socket.h>

#include "host/comm/watch.h"

enum { LONG_MS = 20000, ROOM = 1 << 20, MANY = 20000, VECTORS = 20 };

/* Memory lies behind the first ROOM bytes, so sizes up to there are said in no exchange. */
static symmVec_t vec_new(symmComm_t comm) {
    symmVecConfig_t config = SYMM_VEC_CONFIG_INITIALIZER;
    symmVec_t vec;
    config.max = 16 << 20;
    T_OK(symmVecCreate(comm, &config, &vec));
    T_OK(symmVecGrow(vec, 1));
    return vec;
}
static uint64_t synced(symmVec_t vec) {
    size_t bytes = 0;
    T_OK(symmVecSync(vec, &bytes));
    return bytes;
}
/* Comes to be `want`, and is never more. */
static void await_size(symmVec_t vec, uint64_t want) {
    const uint64_t since = symm_now_ns();
    uint64_t got;
    while ((got = synced(vec)) != want && fk_ms_since(since) < LONG_MS) {
        T_CHECKF(got < want, "%d bytes, not %d", (int)got, (int)want);
        usleep(200);
    }
    T_EQ(got, want);
}
static void stays(symmVec_t vec, uint64_t want, int ms) {
    const uint64_t since = symm_now_ns();
    while (fk_ms_since(since) < (uint64_t)ms) {
        T_EQ(synced(vec), want);
        usleep(200);
    }
}
static void end(symmComm_t comm, symmVec_t vec, const fk_gauges *before) {
    T_OK(symmVecDestroy(vec));
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(before);
}
/* What this rank says finds no room from now on, or finds room again. */
static void let_say(int may) {
    T_EQ(symm_fail_arm(may ? "" : "mesh_sendmsg:error"), 0);
}
/* The watcher of this rank does not look for so long, beginning within a moment. */
static void watcher_sleeps(int ms) {
    char spec[64];
    snprintf(spec, sizeof spec, "watch_poll:delay=%d:1", ms);
    T_EQ(symm_fail_arm(spec), 0);
    symm_watch_look();
    const uint64_t since = symm_now_ns();
    while (!symm_fail_hits(symm_fp_watch_poll) && fk_ms_since(since) < LONG_MS) usleep(200);
}

/* ---- growing --------------------------------------------------------------------------------- */

/* One rank is behind, each in turn. Nobody is in a call meanwhile. */
static void late_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmVec_t vec = vec_new(comm);
    uint64_t size = 1;
    for (int late = 0; late < n; late++, size += 1000) {
        await_size(vec, size);
        kit_barrier(&h->f.k, n);
        if (rank != late) T_OK(symmVecGrow(vec, size + 1000));
        kit_barrier(&h->f.k, n);
        stays(vec, size, 150);
        kit_barrier(&h->f.k, n);
        if (rank == late) T_OK(symmVecGrow(vec, size + 1000));
    }
    await_size(vec, size);
    kit_barrier(&h->f.k, n);
    T_OK(symmVecGrow(vec, ROOM - (unsigned)rank * 100)); /* each its own: the least of them */
    await_size(vec, ROOM - (unsigned)(n - 1) * 100);
    kit_barrier(&h->f.k, n);
    end(comm, vec, &before);
}
static void who_is_behind_limits_all(void) {
    T_FORK(4, late_rank, hosts_new(2, 0, -1, 0));
    T_FORK(3, late_rank, hosts_new(2, 1, -1, 0));
    T_FORK(2, late_rank, hosts_new(1, 0, -1, 0));
}

typedef struct {
    symmVec_t vec;
    _Atomic int over;
    uint64_t most;
} asker;

/* Another thread. While vectors only grow, so does what it is told. */
static void *ask(void *arg) {
    asker *a = arg;
    uint64_t last = 0;
    while (!atomic_load(&a->over)) {
        const uint64_t now = synced(a->vec);
        T_CHECKF(now >= last && now <= a->most, "%d bytes after %d", (int)now, (int)last);
        last = now;
    }
    return NULL;
}

static void asking_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    pthread_t thread;
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    asker a = {.vec = vec_new(comm), .most = 12 << 20};
    T_EQ(pthread_create(&thread, NULL, ask, &a), 0);
    for (uint64_t size = 2; size <= 12 << 20; size += size < ROOM ? 5000 : ROOM) {
        T_OK(symmVecGrow(a.vec, size)); /* by exchanges, too */
        if (size % 11 == 0) usleep((unsigned)rank * 500);
    }
    T_OK(symmVecGrow(a.vec, 12 << 20));
    await_size(a.vec, 12 << 20);
    atomic_store(&a.over, 1);
    T_EQ(pthread_join(thread, NULL), 0);
    kit_barrier(&h->f.k, n);
    end(comm, a.vec, &before);
}
static void another_thread_asks(void) {
    T_FORK(4, asking_rank, hosts_new(2, 0, -1, 0));
}

/* ---- shrinking ------------------------------------------------------------------------------- */

/* Ranks shrink, and one of them cannot say so. What others knew of it before is too much. */
static void shrinking_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const int mute = rank == h->f.victim;
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmVec_t vec = vec_new(comm);
    T_OK(symmVecGrow(vec, 5000));
    await_size(vec, 5000);
    kit_barrier(&h->f.k, n);
    let_say(!mute);
    T_OK(symmVecShrink(vec, 100));
    kit_barrier(&h->f.k, n);
    if (!mute) T_OK(symmVecGrow(vec, 3000));
    stays(vec, 100, 300);
    kit_barrier(&h->f.k, n);
    if (mute) {
        T_OK(symmVecGrow(vec, 3000));
        await_size(vec, 3000); /* the others have said it */
    }
    kit_barrier(&h->f.k, n);
    if (!mute) stays(vec, 100, 200);
    kit_barrier(&h->f.k, n);
    let_say(1);
    await_size(vec, 3000);
    kit_barrier(&h->f.k, n);
    end(comm, vec, &before);
}
static void who_shrank_and_grew_has_no_more_than_it_has(void) {
    T_EXPECT_WARNINGS();
    T_FORK(4, shrinking_rank, hosts_new(2, 0, 3, 0));
    T_FORK(3, shrinking_rank, hosts_new(2, 0, 0, 0));
}

/* A size from before a shrinking is found only afterwards. */
static void stale_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const int mute = rank == h->f.victim, deaf = rank == (h->f.victim + 1) % n;
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmVec_t vec = vec_new(comm);
    await_size(vec, 1);
    kit_barrier(&h->f.k, n);
    if (deaf) watcher_sleeps(800);
    kit_barrier(&h->f.k, n);
    T_OK(symmVecGrow(vec, 5000));
    kit_barrier(&h->f.k, n);
    if (mute) let_say(0);
    T_OK(symmVecShrink(vec, 100));
    kit_barrier(&h->f.k, n);
    if (!mute) T_OK(symmVecGrow(vec, 3000));
    const uint64_t since = symm_now_ns();
    while (deaf && fk_ms_since(since) < 1200) T_CHECK(synced(vec) <= 100);
    kit_barrier(&h->f.k, n);
    if (mute) let_say(1);
    if (mute) T_OK(symmVecGrow(vec, 3000));
    await_size(vec, 3000);
    kit_barrier(&h->f.k, n);
    end(comm, vec, &before);
}
static void a_size_from_before_a_shrinking_is_dropped(void) {
    T_EXPECT_WARNINGS();
    T_FORK(4, stale_rank, hosts_new(2, 0, 1, 0));
}

/* ---- many ------------------------------------------------------------------------------------ */

static void small_sockets(symmComm_t comm, int rank, int n) {
    symm_comm *c;
    const int bytes = 4096;
    T_OK(symm_comm_visit(comm, &c));
    for (int p = 0; p < n; p++) {
        if (p == rank) continue;
        const int s = symm_mesh_fd(c->mesh, p);
        T_EQ(setsockopt(s, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
        T_EQ(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
    }
    symm_comm_unvisit(c);
}

/* Rank 0 grows many vectors many times, and the others are in no call. how: their watchers sleep
 * until it has ended, so the sockets fill: rank 0 waits for nobody. */
static void many_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    symmVec_t vec[VECTORS];
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    small_sockets(comm, rank, n);
    for (int v = 0; v < VECTORS; v++) vec[v] = vec_new(comm);
    for (int v = 0; v < VECTORS; v++) await_size(vec[v], 1);
    kit_barrier(&f->k, n);
    if (rank && f->how) watcher_sleeps(3000);
    kit_barrier(&f->k, n);
    const uint64_t since = symm_now_ns();
    for (int grown = 0; grown < 2; grown++) {
        for (int i = 0; i < MANY && !rank == !grown; i++)
            T_OK(symmVecGrow(vec[i % VECTORS], (size_t)(2 + i / VECTORS)));
        if (!rank && !grown && f->how && !T_TSAN) T_CHECK(fk_ms_since(since) < 2900);
        kit_barrier(&f->k, n);
    }
    for (int v = 0; v < VECTORS; v++) await_size(vec[v], 1 + MANY / VECTORS);
    T_EQ(peer_code(comm), 0);
    kit_barrier(&f->k, n);
    buffers b = buffers_new(comm, n); /* nothing is left of them in the way of an exchange */
    reduces(comm, &b, rank, n);
    buffers_free(comm, &b);
    for (int v = 1; v < VECTORS; v++) T_OK(symmVecDestroy(vec[v]));
    end(comm, vec[0], &before);
}
static void many_sizes_are_taken_by_who_is_in_no_call(void) {
    T_FORK(3, many_rank, hosts_new(2, 0, -1, 0));
}
static void a_full_socket_holds_up_nobody(void) {
    T_FORK(3, many_rank, hosts_new(2, 0, -1, 1));
}

/* Sizes come between the messages of exchanges, to who is inside and whose watcher sleeps. */
static void between_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    uint64_t size = 1;
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmVec_t vec = vec_new(comm);
    for (int i = 0; i < 20; i++) {
        symmComm_t child;
        if (i % 4 == 0 && rank % 2) watcher_sleeps(50);
        kit_barrier(&h->f.k, n);
        for (int k = 0; k < 20 * (rank + 1); k++) T_OK(symmVecGrow(vec, size + (unsigned)k));
        for (int k = 20 * (rank + 1); k < 20 * n; k++) T_OK(symmVecGrow(vec, size + (unsigned)k));
        size += 20 * (unsigned)n;
        if (i % 2) {
            T_OK(symmCommSplit(comm, 0, rank, &child, NULL));
            T_OK(symmCommDestroy(child));
        } else {
            buffers b = buffers_new(comm, n);
            buffers_free(comm, &b);
        }
        T_EQ(peer_code(comm), 0);
    }
    await_size(vec, size - 1);
    kit_barrier(&h->f.k, n);
    end(comm, vec, &before);
}
static void sizes_come_between_the_messages_of_exchanges(void) {
    T_FORK(4, between_rank, hosts_new(2, 0, -1, 0));
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Destroyed on some ranks, while the others grow it. Another vector lives on. how: the last size of
 * who destroys it is said behind its end. */
static void destroyed_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const int leaves = rank % 2, mute = leaves && h->f.how;
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symmVec_t vec = vec_new(comm), other = vec_new(comm);
    await_size(vec, 1);
    kit_barrier(&h->f.k, n);
    if (mute) let_say(0);
    if (leaves) {
        T_OK(symmVecGrow(vec, 2000));
        T_OK(symmVecDestroy(vec));
    }
    if (mute) usleep(300000);
    if (mute) let_say(1);
    for (unsigned i = 2; i <= 2000 && !leaves; i++) T_OK(symmVecGrow(vec, i));
    if (!leaves) await_size(vec, 2000);
    T_OK(symmVecGrow(other, 777));
    await_size(other, 777);
    kit_barrier(&h->f.k, n);
    if (!leaves) T_OK(symmVecDestroy(vec));
    kit_barrier(&h->f.k, n);
    end(comm, other, &before);
}
static void a_vector_ends_while_sizes_come(void) {
    T_FORK(4, destroyed_rank, hosts_new(2, 0, -1, 0));
}
static void a_vector_ends_before_its_size_is_said(void) {
    T_EXPECT_WARNINGS();
    T_FORK(4, destroyed_rank, hosts_new(2, 0, -1, 1));
}

static void dying_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    uint64_t ms, size = 1;
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    symmVec_t vec = vec_new(comm);
    await_size(vec, 1);
    kit_barrier(&f->k, n);
    if (rank == f->victim) fk_doom(f);
    const uint64_t since = symm_now_ns();
    while (!peer_code(comm) && fk_ms_since(since) < LONG_MS && size < ROOM) {
        if (symmVecGrow(vec, ++size)) break;
        (void)synced(vec);
        usleep(20);
    }
    T_EQ(await_code(comm, &ms), symmRemoteError);
    T_MSG(symmGetLastError(comm), "rank 1 died");
    T_CHECK(synced(vec) <= size); /* what it had is still told */
    kit_barrier(&f->k, n - 1);
    T_OK(symmVecDestroy(vec));
    T_OK(symmCommAbort(comm));
}
static void a_peer_dies_while_sizes_come(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(4, 1, dying_rank, hosts_new(2, 0, 1, 0));
}

/* The last word of rank 0, a revocation or that it leaves (how), behind more sizes than a look
 * shows, and than the sockets hold. Its own watcher sleeps while it ends: until the others look. */
static void last_word_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    uint64_t ms;
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    small_sockets(comm, rank, n);
    symmVec_t vec = vec_new(comm);
    await_size(vec, 1);
    kit_barrier(&f->k, n);
    if (rank) watcher_sleeps(500);
    kit_barrier(&f->k, n);
    for (unsigned i = 2; i < 5000 && !rank; i++) T_OK(symmVecGrow(vec, i));
    if (!rank && f->how) watcher_sleeps(1000);
    if (!rank && !f->how) T_OK(symmCommRevoke(comm, 0));
    if (!f->how) T_EQ(await_code(comm, &ms), symmAborted);
    if (!f->how) T_CHECKF(ms < SOON_MS, "rank %d: after %d ms", rank, (int)ms);
    if (!f->how) kit_barrier(&f->k, n);
    if (!rank) T_OK(symmVecDestroy(vec));
    if (!rank) T_OK(symmCommDestroy(comm));
    kit_barrier(&f->k, n);
    for (int i = 0; i < 300 && rank && f->how; i++, usleep(1000)) T_EQ(peer_code(comm), 0);
    if (rank) T_OK(symmVecDestroy(vec));
    if (rank) T_OK(f->how ? symmCommDestroy(comm) : symmCommAbort(comm));
}
static void a_revocation_is_heard_behind_sizes(void) {
    T_EXPECT_WARNINGS();
    T_FORK(3, last_word_rank, hosts_new(1, 0, 0, 0));
}
static void who_leaves_behind_sizes_is_not_dead(void) {
    T_FORK(3, last_word_rank, hosts_new(1, 0, 0, 1));
}

/* A rank that knows of a death hears the sizes of one that does not yet, and does not lose it. */
static void knowing_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    uint64_t ms;
    int left = 0;
    symmComm_t next;
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    small_sockets(comm, rank, n);
    symmVec_t vec = vec_new(comm);
    await_size(vec, 1);
    if (rank) T_OK(symmVecGrow(vec, 5000));
    kit_barrier(&f->k, n);
    if (!rank) watcher_sleeps(2000);
    kit_barrier(&f->k, n);
    if (rank == f->victim) kill(getpid(), SIGKILL);
    if (rank) T_EQ(await_code(comm, &ms), symmRemoteError);
    kit_barrier(&f->k, n - 1);
    for (unsigned i = 2; i <= 5000 && !rank; i++) T_OK(symmVecGrow(vec, i));
    if (rank) await_size(vec, 5000);
    if (!rank) T_EQ(await_code(comm, &ms), symmRemoteError);
    T_OK(symmCommShrink(comm, NULL, 0, &next, NULL, SYMM_SHRINK_FAILED));
    T_OK(symmCommCount(next, &left));
    T_EQ(left, n - 1);
    T_OK(symmVecDestroy(vec));
    T_OK(symmCommAbort(comm));
    kit_barrier(&f->k, n - 1);
    T_OK(symmCommDestroy(next));
}
static void who_knows_of_a_death_hears_sizes_of_who_does_not(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 2, knowing_rank, hosts_new(1, 0, 2, 0));
}

T_MAIN(T(who_is_behind_limits_all), T(another_thread_asks),
       T(who_shrank_and_grew_has_no_more_than_it_has), T(a_size_from_before_a_shrinking_is_dropped),
       T(many_sizes_are_taken_by_who_is_in_no_call), T(a_full_socket_holds_up_nobody),
       T(sizes_come_between_the_messages_of_exchanges), T(a_vector_ends_while_sizes_come),
       T(a_vector_ends_before_its_size_is_said), T(a_peer_dies_while_sizes_come),
       T(a_revocation_is_heard_behind_sizes), T(who_leaves_behind_sizes_is_not_dead),
       T(who_knows_of_a_death_hears_sizes_of_who_does_not))
