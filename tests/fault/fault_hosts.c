/* fault_hosts.c - communicators whose ranks are on several hosts of one NVLink fabric, on the fake
 * driver: forked ranks of which some play another host. All kinds of calls; ranks that die, leave,
 * abort or differ, with kernels that wait for them and without; who is refused. No lock: what ranks
 * share stands behind barriers. */
#include "fault_kit.h"

#include "symm_device.h"
#include "symm_heap.h"
#include "symm_onesided.h"
#include "symm_p2p.h"
#include "symm_vec.h"

#include "base/handle.h"
#include "host/comm/comm.h"
#include "transport/cuda/cuda_driver.h"
#include "fake_kernels.h"
#include "fake_nvml.h"

extern int symm_test_where[2]; /* where.c: host, user */
extern int symm_test_images;

enum { COUNT = 5000, SOON_MS = 1500 };

typedef struct {
    fk f;
    int cyclic; /* ranks take hosts in turn */
    int per;    /* ranks of a host */
} hosts;

static hosts *hosts_new(int per, int cyclic, int victim, int how) {
    hosts *h = T_SHARED(sizeof *h);
    h->per = per, h->cyclic = cyclic, h->f.victim = victim, h->f.how = how;
    return h;
}
static int host_of_rank(const hosts *h, int rank, int n) {
    return h->cyclic ? rank % ((n + h->per - 1) / h->per) : rank / h->per;
}

/* This process becomes a rank of its host. */
static fk_gauges begin(const hosts *h, int rank, int n) {
    T_EXPECT_FDS();
    const fk_gauges before = fk_take();
    setenv("SYMM_BACKEND", "cuda", 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_SOCKET_IFNAME", "lo", 1);
    symm_test_images = 1;
    fake_kernels_install(n, 1);
    for (int d = 0; d < n; d++) fake_nvml_set(d, 9, 3);
    symm_test_where[0] = host_of_rank(h, rank, n);
    T_OK(symmSetDevice(rank));
    return before;
}

static int peer_code(symmComm_t comm) {
    symmResult_t async = symmSuccess;
    T_OK(symmCommGetAsyncError(comm, &async));
    return (int)async;
}
/* The communicator's end, once it is known here; how long that took. */
static int await_code(symmComm_t comm, uint64_t *ms) {
    const uint64_t since = symm_now_ns();
    int code;
    while (!(code = peer_code(comm)) && fk_ms_since(since) < 10000) usleep(500);
    *ms = fk_ms_since(since);
    return code;
}
static void run(void) {
    T_EQ(symm_cu.cuStreamSynchronize(NULL), 0);
}

typedef struct { /* of a rank */
    symmWindow_t win;
    int *mem, *out;
} buffers;

static buffers buffers_new(symmComm_t comm, int n) {
    buffers b = {0};
    const size_t bytes = (size_t)n * COUNT * sizeof(int);
    T_OK(symmMemAlloc((void **)&b.mem, 2 * bytes));
    T_OK(symmWindowRegister(comm, b.mem, 2 * bytes, &b.win, SYMM_WIN_DEFAULT));
    b.out = b.mem + (size_t)n * COUNT;
    return b;
}
static void buffers_free(symmComm_t comm, buffers *b) {
    T_OK(symmWindowDeregister(comm, b->win));
    T_OK(symmMemFree(b->mem));
}

static void reduces(symmComm_t comm, const buffers *b, int rank, int n) {
    for (int i = 0; i < COUNT; i++) b->mem[i] = i + rank;
    T_OK(symmAllReduce(b->mem, b->out, COUNT, symmInt32, symmSum, comm, NULL));
    run();
    T_EQ(peer_code(comm), 0);
    for (int i = 0; i < COUNT; i++) T_EQ(b->out[i], n * i + n * (n - 1) / 2);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void collectives(symmComm_t comm, const buffers *b, int rank, int n) {
    reduces(comm, b, rank, n);
    for (int i = 0; i < COUNT; i++) b->mem[i] = 1000 * rank + i % 7;
    T_OK(symmAllGather(b->mem, b->out, COUNT, symmInt32, comm, NULL));
    run();
    for (int r = 0; r < n; r++) T_EQ(b->out[r * COUNT + 8], 1000 * r + 1);
    for (int i = 0; i < n * COUNT; i++) b->mem[i] = rank;
    T_OK(symmAlltoAll(b->mem, b->out, COUNT, symmInt32, comm, NULL));
    run();
    for (int r = 0; r < n; r++) T_EQ(b->out[r * COUNT + 5], r);
    T_OK(symmBroadcast(b->mem, b->out, COUNT, symmInt32, n - 1, comm, NULL));
    T_OK(symmBarrier(comm, NULL));
    run();
    T_EQ(b->out[COUNT - 1], n - 1);
    T_EQ(peer_code(comm), 0);
}

/* A message to the next rank and one from the one before; a put with a signal likewise. */
static void messages(symmComm_t comm, const buffers *b, int rank, int n) {
    const int to = (rank + 1) % n, from = (rank + n - 1) % n;
    for (int i = 0; i < COUNT; i++) b->mem[i] = 100 * rank + 1;
    T_OK(symmGroupStart());
    T_OK(symmSend(b->mem, COUNT, symmInt32, to, comm, NULL));
    T_OK(symmRecv(b->out, COUNT, symmInt32, from, comm, NULL));
    T_OK(symmGroupEnd());
    run();
    T_EQ(b->out[COUNT - 1], 100 * from + 1);
    T_OK(symmBarrier(comm, NULL));
    const symmSignalWait_t wait = {from, 5, 1};
    T_OK(symmPutSignal(b->mem, 64, symmInt32, to, b->win, (size_t)n * COUNT * sizeof(int), 5, comm,
                       NULL));
    T_OK(symmWaitSignal(1, &wait, comm, NULL));
    run();
    T_EQ(b->out[0], 100 * from + 1);
    T_EQ(peer_code(comm), 0);
}

static void memory_objects(symmComm_t comm, int rank, int n) {
    symmHeapConfig_t c = SYMM_HEAP_CONFIG_INITIALIZER;
    symmHeap_t heap;
    symmVec_t vec;
    size_t bytes;
    int *p, *there;
    c.reserve = 32 << 20;
    c.symBytes = 8 << 20;
    T_OK(symmHeapCreate(comm, &c, &heap));
    T_OK(symmHeapAlloc(heap, 4 << 20, 0, SYMM_ALLOC_SYM, (void **)&p));
    p[3] = 50 + rank;
    T_OK(symmBarrier(comm, NULL));
    run();
    symmRef_t ref;
    T_OK(symmRefGet(p, &ref));
    T_OK(symmRefPtr(&ref, comm, (rank + 1) % n, (void **)&there));
    T_EQ(there[3], 50 + (rank + 1) % n);
    T_OK(symmBarrier(comm, NULL));
    run();
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmVecCreate(comm, NULL, &vec));
    T_OK(symmVecGrow(vec, 5 << 20));
    T_OK(symmVecSize(vec, &bytes));
    T_EQ(bytes, 5 << 20);
    T_EXPECT_WARNINGS();
    T_ERR(symmVecSync(vec, &bytes), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "hosts");
    T_OK(symmVecDestroy(vec));
}

static void device_communicator(symmComm_t comm, int rank) {
    symmDevRequirements_t want = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    symmDevComm_t dev;
    symm_comm *c;
    want.barriers = 2;
    T_OK(symmDevCommCreate(comm, &want, &dev));
    T_OK(symm_comm_visit(comm, &c));
    for (int p = 0; p < dev.nranks; p++) {
        const symm_gpu_ctl *ctl =
            (const symm_gpu_ctl *)(uintptr_t)(c->base + (uint64_t)p * c->stride);
        T_EQ(dev.farBase + (uint64_t)p * dev.farStride, (uintptr_t)ctl->far);
    }
    symm_comm_unvisit(c);
    T_EQ(dev.rank, rank);
    T_OK(symmDevCommDestroy(comm, &dev));
}

/* Those of this host, which need no fabric; and the first two ranks. */
static void children(const hosts *h, symmComm_t comm, int rank, int n) {
    for (int how = 0; how < 2; how++) {
        symmComm_t child = NULL;
        symm_comm *c;
        const int color = how ? (rank < 2 ? 0 : SYMM_SPLIT_NOCOLOR) : host_of_rank(h, rank, n);
        T_OK(symmCommSplit(comm, color, rank, &child, NULL));
        if (!child) continue;
        T_OK(symm_comm_visit(child, &c));
        const int hosts = how && (h->cyclic || h->per < 2) ? 2 : 1, ranks = c->nranks, me = c->rank;
        T_EQ(c->hosts, hosts);
        symm_comm_unvisit(c);
        buffers b = buffers_new(child, ranks);
        reduces(child, &b, me, ranks);
        buffers_free(child, &b);
        T_OK(symmCommDestroy(child));
    }
}

static void whole_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    const fk_gauges before = begin(h, rank, n);
    symmComm_t comm = fk_open(&h->f, rank, n);
    symm_comm *c;
    T_OK(symm_comm_visit(comm, &c));
    T_EQ(c->hosts, (n + h->per - 1) / h->per);
    T_CHECK(!c->threads && c->fabric == 2);
    symm_comm_unvisit(c);
    buffers b = buffers_new(comm, n);
    collectives(comm, &b, rank, n);
    messages(comm, &b, rank, n);
    memory_objects(comm, rank, n);
    device_communicator(comm, rank);
    children(h, comm, rank, n);
    collectives(comm, &b, rank, n);
    buffers_free(comm, &b);
    T_OK(symmCommDestroy(comm));
    FK_UNCHANGED(&before);
}

static void all_calls_over_two_hosts(void) {
    T_FORK(4, whole_rank, hosts_new(2, 0, -1, 0));
}
static void all_calls_where_hosts_take_turns(void) {
    T_FORK(4, whole_rank, hosts_new(2, 1, -1, 0));
}
static void all_calls_over_hosts_of_one_rank_and_of_unequal_numbers(void) {
    T_FORK(3, whole_rank, hosts_new(1, 0, -1, 0));
    T_FORK(5, whole_rank, hosts_new(3, 0, -1, 0));
}

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

/* ---- ranks that differ ----------------------------------------------------------------------- */

static void differs_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    uint64_t ms;
    if (f->how) setenv("SYMM_TIMEOUT", "400", 1);
    begin(h, rank, n);
    symmComm_t comm = fk_open(f, rank, n);
    buffers b = buffers_new(comm, n);
    reduces(comm, &b, rank, n);
    kit_barrier(&f->k, n);
    if (!f->how || rank != f->victim) /* how: the victim does not come at all */
        T_OK(symmAllReduce(b.mem, b.out, COUNT - (rank == f->victim), symmInt32, symmSum, comm,
                           NULL));
    T_EQ(await_code(comm, &ms), f->how ? symmTimeout : symmMismatch);
    T_CHECKF(ms < 400 + SOON_MS, "rank %d: after %d ms", rank, (int)ms);
    run();
    kit_barrier(&f->k, n);
    T_OK(symmCommAbort(comm));
    T_OK(symmMemFree(b.mem));
}
static void calls_that_differ_are_told_everywhere(void) {
    T_EXPECT_WARNINGS();
    T_FORK(4, differs_rank, hosts_new(2, 0, 3, 0));
}
static void a_deadline_is_told_to_who_is_not_there(void) {
    T_EXPECT_WARNINGS();
    T_FORK(4, differs_rank, hosts_new(2, 1, 3, 1));
}

/* ---- who is refused -------------------------------------------------------------------------- */

enum { OTHER_CLIQUE, NO_FABRIC, NO_HANDLES, FD_WANTED };

static void refused_rank(int rank, int n, void *arg) {
    hosts *h = arg;
    fk *f = &h->f;
    static const char *const why[] = {"share no memory", "share no memory",
                                      "makes no fabric handles", "makes no fabric handles"};
    symmComm_t comm = NULL;
    const fk_gauges before = begin(h, rank, n);
    if (rank == f->victim) {
        if (f->how == OTHER_CLIQUE) fake_nvml_set(rank, 9, 4);
        if (f->how == NO_FABRIC) fake_nvml_set(rank, 0, 0);
        if (f->how == NO_HANDLES) {
            fake_kernels_install(n, 0);
            fake_nvml_set(rank, 9, 3);
            T_OK(symmSetDevice(rank));
        }
        if (f->how == FD_WANTED) setenv("SYMM_HANDLES", "fd", 1);
    }
    fk_id(f, rank, n);
    fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
    kit_barrier(&f->k, n);
    fk_same(f, n, -1, symmNotSupported, why[f->how]);
    fk_same(f, n, -1, symmNotSupported, "rank 2");
    T_CHECK(!comm);
    FK_UNCHANGED(&before);
}
static void who_has_no_fabric_is_refused_by_name(void) {
    T_EXPECT_WARNINGS();
    for (int how = OTHER_CLIQUE; how <= FD_WANTED; how++)
        T_FORK(3, refused_rank, hosts_new(2, 0, 2, how));
}

T_MAIN(T_TIMEOUT(all_calls_over_two_hosts, 60), T_TIMEOUT(all_calls_where_hosts_take_turns, 60),
       T_TIMEOUT(all_calls_over_hosts_of_one_rank_and_of_unequal_numbers, 90),
       T_TIMEOUT(a_death_is_heard_on_all_hosts, 60),
       T_TIMEOUT(a_revocation_is_heard_on_all_hosts, 60),
       T_TIMEOUT(an_abort_is_heard_on_all_hosts, 60), T_TIMEOUT(survivors_shrink, 60),
       T_TIMEOUT(who_leaves_is_not_dead, 60), T_TIMEOUT(an_abort_may_be_minded_later, 60),
       T_TIMEOUT(calls_that_differ_are_told_everywhere, 60),
       T_TIMEOUT(a_deadline_is_told_to_who_is_not_there, 60),
       T_TIMEOUT(who_has_no_fabric_is_refused_by_name, 60))
