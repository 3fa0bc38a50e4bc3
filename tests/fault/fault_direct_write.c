/* fault_direct_write.c - buffers in no window into which peers write: what comes there, what is
 * said where the system refuses it, what memory that is not there leads to, and that nobody
 * writes into a buffer whose owner has left with an error, however late a writer is. Forked ranks;
 * no lock. */
#include <sys/mman.h>

#include "coll_expect.h"
#include "fault_kit.h"
#include "machine/cores.h"

enum { OWNER = 0, WRITER = 1, MOST = 4, REUSED = 0xee };
enum { PART = 5 << 20 }; /* bytes: several pieces of what one end writes */

static char *pages(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_CHECK(p != MAP_FAILED);
    return p;
}

/* A root that gives writes nothing where ranks share cores. */
static int roots_write(int n) {
    return symm_cores(NULL, 0) >= n;
}

static void said(symmComm_t comm, const char *says) {
    symmExplain_t p = {.size = sizeof p};
    char *in = pages(PART), *out = pages((size_t)MOST * PART);
    T_OK(symmExplain(comm, symmCollGather, in, out, PART, symmUint8, symmSum, 0, &p));
    T_MSG(p.reason, says);
    T_OK(symmExplain(comm, symmCollAllGather, in, out, PART, symmUint8, symmSum, 0, &p));
    T_CHECK(!strstr(p.reason, says)); /* there no end would wait */
    munmap(in, PART);
    munmap(out, (size_t)MOST * PART);
}

/* ---- what is moved ---- */

static unsigned char byte_of(int rank, size_t i) {
    return (unsigned char)(i * 31 + (i >> 12) + (unsigned)rank * 57);
}
static int wrong_part(const char *at, int rank, size_t from, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)at[i] != byte_of(rank, from + i)) return 1;
    return 0;
}

typedef struct {
    fk *f;
    size_t bytes; /* of a part */
    int in_place;
} moved;

/* Both buffers begin at an odd address. Outside the parts nothing changes. */
static void gathered(symmComm_t comm, int rank, int n, const moved *m, int root) {
    const size_t all = (size_t)n * m->bytes;
    char *out = pages(all + 2) + 1, *in = pages(m->bytes + 2) + 1,
         *own = m->in_place && rank == root ? out + (size_t)rank * m->bytes : in;
    for (size_t i = 0; i < m->bytes; i++) own[i] = (char)byte_of(rank, i);
    T_OK(symmGather(own, out, m->bytes, symmUint8, root, comm, NULL));
    for (int r = 0; rank == root && r < n; r++)
        T_CHECKF(!wrong_part(out + (size_t)r * m->bytes, r, 0, m->bytes),
                 "gather of %d ranks, %zu bytes, in place %d: part %d", n, m->bytes, m->in_place,
                 r);
    T_CHECK(!out[-1] && !out[all]);
    munmap(out - 1, all + 2);
    munmap(in - 1, m->bytes + 2);
}
static void scattered(symmComm_t comm, int rank, int n, const moved *m, int root) {
    const size_t all = (size_t)n * m->bytes;
    char *in = pages(all + 2) + 1, *out = pages(m->bytes + 2) + 1,
         *own = m->in_place && rank == root ? in + (size_t)rank * m->bytes : out;
    for (size_t i = 0; rank == root && i < all; i++) in[i] = (char)byte_of(root, i);
    T_OK(symmScatter(in, own, m->bytes, symmUint8, root, comm, NULL));
    T_CHECKF(!wrong_part(own, root, (size_t)rank * m->bytes, m->bytes),
             "scatter to %d ranks, %zu bytes, in place %d", n, m->bytes, m->in_place);
    T_CHECK(!out[-1] && !out[m->bytes]);
    munmap(in - 1, all + 2);
    munmap(out - 1, m->bytes + 2);
}
static void broadcasted(symmComm_t comm, int rank, int n, const moved *m, int root) {
    char *in = pages(m->bytes + 2) + 1, *out = pages(m->bytes + 2) + 1,
         *to = m->in_place ? in : out;
    for (size_t i = 0; rank == root && i < m->bytes; i++) in[i] = (char)byte_of(root, i);
    T_OK(symmBroadcast(in, to, m->bytes, symmUint8, root, comm, NULL));
    T_CHECKF(!wrong_part(to, root, 0, m->bytes), "broadcast to %d ranks, %zu bytes, in place %d", n,
             m->bytes, m->in_place);
    T_CHECK(!to[-1] && !to[m->bytes]);
    munmap(in - 1, m->bytes + 2);
    munmap(out - 1, m->bytes + 2);
}

/* root -1: all_reduce. */
static void summed(symmComm_t comm, const char *in, char *out, size_t bytes, int root) {
    if (root < 0)
        T_OK(symmAllReduce(in, out, bytes, symmUint8, symmSum, comm, NULL));
    else
        T_OK(symmReduce(in, out, bytes, symmUint8, symmSum, root, comm, NULL));
}
static int wrong_sum(const char *at, int n, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        unsigned sum = 0;
        for (int r = 0; r < n; r++) sum += byte_of(r, i);
        if ((unsigned char)at[i] != (unsigned char)sum) return 1;
    }
    return 0;
}
static void reduced(symmComm_t comm, int rank, int n, const moved *m, int root) {
    char *in = pages(m->bytes + 2) + 1, *out = pages(m->bytes + 2) + 1,
         *to = m->in_place ? in : out;
    for (size_t i = 0; i < m->bytes; i++) in[i] = (char)byte_of(rank, i);
    summed(comm, in, to, m->bytes, root);
    if (root < 0 || rank == root)
        T_CHECKF(!wrong_sum(to, n, m->bytes), "%d ranks, root %d, %zu bytes, in place %d", n, root,
                 m->bytes, m->in_place);
    T_CHECK(!to[-1] && !to[m->bytes]);
    munmap(in - 1, m->bytes + 2);
    munmap(out - 1, m->bytes + 2);
}

static void moved_rank(int rank, int n, void *arg) {
    static const size_t sizes[] = {32 << 10, (64 << 10) + 8, (3 << 20) + 17, PART};
    moved m = {.f = arg};
    symmComm_t comm = fk_open(m.f, rank, n);
    said(comm, "peers write a share of a recvbuff in no window");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (m.in_place = 0; m.in_place < 2; m.in_place++) {
            m.bytes = sizes[s];
            for (int root = 0; root < n; root += n - 1) {
                gathered(comm, rank, n, &m, root);
                scattered(comm, rank, n, &m, root);
                broadcasted(comm, rank, n, &m, root);
                reduced(comm, rank, n, &m, root);
            }
            reduced(comm, rank, n, &m, -1);
        }
    T_OK(symmCommDestroy(comm));
}
static void both_ends_move_a_share(void) {
    setenv("SYMM_DIRECT", "2", 1);
    for (int n = 2; n <= MOST; n++) T_FORK(n, moved_rank, fk_new(0, 0));
}

/* Chunks of a few lines for each rank. */
static void many_rank(int rank, int n, void *arg) {
    moved m = {.f = arg, .bytes = 300001};
    symmComm_t comm = fk_open(m.f, rank, n);
    for (int root = 0; root < n; root += n - 1) reduced(comm, rank, n, &m, root);
    for (m.in_place = 0; m.in_place < 2; m.in_place++) reduced(comm, rank, n, &m, -1);
    T_OK(symmCommDestroy(comm));
}
static void many_ranks_with_small_chunks(void) {
    setenv("SYMM_DIRECT", "2", 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_CTAS", "32", 1);
    T_FORK(16, many_rank, fk_new(0, 0));
}

/* In windows or not, and in place or not, as each rank has it; roots and sizes are all ranks'. */
typedef struct {
    char *in[2], *out[2];
    unsigned common, own;
} drawn;
static char *some(char *const *where, unsigned *seed) {
    char *at = where[rand_r(seed) & 1];
    return at + rand_r(seed) % 64;
}
static void a_mixed_sum(symmComm_t comm, int rank, int n, int root, char *in, char *out,
                        size_t bytes) {
    for (size_t i = 0; i < bytes; i++) in[i] = (char)byte_of(rank, i);
    summed(comm, in, out, bytes, root);
    if (root < 0 || rank == root)
        T_CHECKF(!wrong_sum(out, n, bytes), "%d ranks, root %d, %zu bytes", n, root, bytes);
}
static void a_mixed_call(symmComm_t comm, int rank, int n, drawn *d) {
    const size_t bytes = 32768 + (size_t)rand_r(&d->common) % ((1 << 20) - 32768);
    const int coll = rand_r(&d->common) % 5, root = rand_r(&d->common) % n;
    const int place = rand_r(&d->own) & 1, is_root = rank == root;
    char *in = some(d->in, &d->own), *out = some(d->out, &d->own), *none = place ? NULL : in;
    if (coll == 0) {
        char *from = place && is_root ? out + (size_t)rank * bytes : in;
        for (size_t i = 0; i < bytes; i++) from[i] = (char)byte_of(rank, i);
        T_OK(symmGather(from, is_root ? out : none, bytes, symmUint8, root, comm, NULL));
        for (int r = 0; is_root && r < n; r++)
            T_CHECKF(!wrong_part(out + (size_t)r * bytes, r, 0, bytes), "gather: part %d", r);
        return;
    }
    if (coll > 2) {
        a_mixed_sum(comm, rank, n, coll == 3 ? -1 : root, in, place ? in : out, bytes);
        return;
    }
    const size_t all = coll == 1 ? (size_t)n * bytes : bytes, mine = coll == 1 ? bytes : 0;
    char *to = place && (coll == 2 || is_root) ? in + (size_t)rank * mine : out;
    memset(to, 0, bytes);
    for (size_t i = 0; is_root && i < all; i++) in[i] = (char)byte_of(root, i);
    if (coll == 1)
        T_OK(symmScatter(is_root ? in : none, to, bytes, symmUint8, root, comm, NULL));
    else
        T_OK(symmBroadcast(is_root ? in : none, to, bytes, symmUint8, root, comm, NULL));
    T_CHECKF(!wrong_part(to, root, (size_t)rank * mine, bytes), "%s", coll == 1 ? "scatter" : "bc");
}
static void mixed_rank(int rank, int n, void *arg) {
    const size_t all = (size_t)n << 20;
    drawn d = {.common = 12345, .own = 777u + (unsigned)rank};
    void *windows[2];
    symmWindow_t w[2];
    symmComm_t comm = fk_open(arg, rank, n);
    for (int i = 0; i < 2; i++) {
        T_OK(symmMemAlloc(&windows[i], all + 128));
        T_OK(symmWindowRegister(comm, windows[i], all + 128, &w[i], SYMM_WIN_DEFAULT));
    }
    d.in[0] = windows[0], d.out[0] = windows[1];
    d.in[1] = pages(all + 128), d.out[1] = pages(all + 128);
    for (int i = 0; i < 100; i++) a_mixed_call(comm, rank, n, &d);
    for (int i = 0; i < 2; i++) T_OK(symmWindowDeregister(comm, w[i]));
    T_OK(symmCommDestroy(comm));
    for (int i = 0; i < 2; i++) T_OK(symmMemFree(windows[i]));
}
static void buffers_of_all_kinds(void) {
    setenv("SYMM_DIRECT", "2", 1);
    for (int ctas = 1; ctas <= 3; ctas += 2) {
        setenv("SYMM_CTAS", ctas == 1 ? "1" : "3", 1);
        for (int n = 2; n <= MOST; n += 2) T_FORK(n, mixed_rank, fk_new(0, 0));
    }
}

/* ---- where ranks may not ---- */

static void allowed(fk *f, int rank, int n, const char *says) {
    moved m = {.f = f, .bytes = PART};
    symmComm_t comm = fk_open(f, rank, n);
    said(comm, says);
    T_EQ(symm_fail_arm("peer_write:error"), 0); /* nobody comes there */
    gathered(comm, rank, n, &m, 0);
    scattered(comm, rank, n, &m, 0);
    reduced(comm, rank, n, &m, 0);
    reduced(comm, rank, n, &m, -1);
    T_OK(symmCommDestroy(comm));
}
static void refused_rank(int rank, int n, void *arg) {
    T_EQ(symm_fail_arm(rank == WRITER ? "peer_write_try:error" : ""), 0);
    allowed(arg, rank, n, "rank 1 cannot write into the memory of rank 0 (not permitted");
}
static void owners_write_where_the_system_refuses(void) {
    setenv("SYMM_DIRECT", "2", 1);
    T_FORK(MOST, refused_rank, fk_new(0, 0));
}
static void off_rank(int rank, int n, void *arg) {
    setenv("SYMM_DIRECT_WRITE", rank == WRITER ? "0" : "1", 1);
    allowed(arg, rank, n, "SYMM_DIRECT_WRITE is 0 on rank 1");
}
static void switched_off_by_one_rank(void) {
    setenv("SYMM_DIRECT", "2", 1);
    T_FORK(MOST, off_rank, fk_new(0, 0));
}

/* A rank that gives up while the communicator is made, and a peer that tries its memory later. */
static void late_try_rank(int rank, int n, void *arg) {
    enum { PAGES = 64 };
    fk *f = arg;
    symmComm_t comm = NULL;
    if (rank == OWNER) setenv("SYMM_SETUP_TIMEOUT", "500", 1);
    T_EQ(symm_fail_arm(rank == WRITER ? "peer_write_try:delay=3000" : ""), 0);
    fk_id(f, rank, n);
    const symmResult_t r = symmCommInitRank(&comm, n, f->id, rank);
    T_CHECK(r);
    char *mine[PAGES]; /* where the gate was, if it went */
    for (int i = 0; i < PAGES; i++) memset(mine[i] = pages(4096), REUSED, 4096);
    kit_barrier(&f->k, n);
    for (int i = 0; rank == OWNER && i < PAGES; i++)
        for (int at = 0; at < 4096; at++)
            T_CHECKF((unsigned char)mine[i][at] == REUSED, "byte %d was written", at);
}
static void a_try_behind_a_failed_creation(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, late_try_rank, fk_new(0, 0));
}

/* ---- memory that is not there ---- */

/* The end of a part is what the giver writes. whose: the rank that has a hole there, or can only
 * read what is there. */
typedef struct {
    fk *f;
    int whose, read_only;
} hole;

static void hole_rank(int rank, int n, void *arg) {
    const hole *h = arg;
    symmComm_t comm = fk_open(h->f, rank, n);
    char *in = pages(PART), *out = pages((size_t)n * PART), says[96],
         *end = (rank == WRITER ? in + PART : out + (size_t)n * PART) - 4096;
    memset(in, rank, PART);
    if (rank == h->whose)
        T_EQ(h->read_only ? mprotect(end, 4096, PROT_READ) : munmap(end, 4096), 0);
    if (rank == OWNER)
        snprintf(h->f->k.text[0], sizeof h->f->k.text[0], "%#llx",
                 (unsigned long long)(uintptr_t)end);
    kit_barrier(&h->f->k, n);
    T_ERR(symmGather(in, out, PART, symmUint8, OWNER, comm, NULL), symmInvalidUsage);
    snprintf(says, sizeof says, "rank %d", h->whose);
    T_MSG(symmGetLastError(comm), says);
    if (rank == WRITER && h->whose == OWNER) T_MSG(symmGetLastError(comm), h->f->k.text[0]);
    if (rank == WRITER && h->whose == WRITER)
        T_MSG(symmGetLastError(comm), "which it passed itself");
    kit_barrier(&h->f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void memory_that_is_not_there(void) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 3; i++) {
        hole *h = T_SHARED(sizeof *h);
        *h = (hole){fk_new(0, 0), i == 1 ? WRITER : OWNER, i == 2};
        T_FORK(2, hole_rank, h);
    }
}

/* An address that no process can have, which the owner finds later. */
static void wild_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    char *in = rank == WRITER ? (char *)0x00f0000000000000 : pages(PART),
         *out = pages((size_t)n * PART);
    T_EQ(symm_fail_arm(rank == OWNER ? "peer_read:delay=300" : ""), 0);
    kit_barrier(&f->k, n);
    T_ERR(symmGather(in, out, PART, symmUint8, OWNER, comm, NULL), symmInvalidUsage);
    T_MSG(symmGetLastError(comm), "rank 1");
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void a_source_that_cannot_be(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, wild_rank, fk_new(0, 0));
}

/* ---- late writers ---- */

typedef struct {
    fk *f;
    symmColl_t coll;
    int ms;         /* how late writers are, each in its first write */
    int stays_open; /* the owner's gate cannot be closed */
    int freed;      /* the owner's buffer is unmapped, not filled again */
    int aborts;     /* the owner has no deadline: another thread of it aborts the communicator */
} late;

static symmComm_t opened_late(const late *l, int rank, int n) {
    char slow[64];
    symmComm_t comm;
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    const int aborts = l->aborts;
    config.peerDeath = aborts ? SYMM_DEATH_WHEN_USED : SYMM_DEATH_AT_ONCE;
    if (rank == OWNER && !aborts) setenv("SYMM_TIMEOUT", "100", 1);
    fk_id(l->f, rank, n);
    T_OK(symmCommInitRankConfig(&comm, n, l->f->id, rank, &config));
    snprintf(slow, sizeof slow, "peer_write:delay=%d:1", l->ms);
    T_EQ(symm_fail_arm(rank != OWNER ? slow : l->stays_open ? "gate_close:error" : ""), 0);
    kit_barrier(&l->f->k, n);
    return comm;
}
static void *abort_soon(void *comm) {
    kit_sleep(100);
    T_OK(symmCommAbort(comm));
    return NULL;
}
/* The owner takes, from all others or from the last rank. */
static symmResult_t called(const late *l, symmComm_t comm, int n, const char *in, char *out) {
    return symm_test_call(l->coll, in, out, PART, symmUint8, symmSum,
                          symm_colls[l->coll].root_takes ? OWNER : n - 1, comm, NULL);
}

/* What the owner does with its buffer after the error is not undone. */
static void gave_up_rank(int rank, int n, void *arg) {
    const late *l = arg;
    pthread_t other;
    const size_t bytes = (size_t)n * PART;
    const int owner = rank == OWNER, aborts = l->aborts && owner;
    symmComm_t comm = opened_late(l, rank, n);
    char *in = pages(bytes), *out = pages(bytes);
    memset(in, 0x22, bytes);
    if (aborts) T_EQ(pthread_create(&other, NULL, abort_soon, comm), 0);
    T_ERR(called(l, comm, n, in, out), l->aborts ? symmAborted : symmTimeout);
    if (aborts) T_EQ(pthread_join(other, NULL), 0);
    if (owner && l->freed)
        T_EQ(munmap(out, bytes), 0);
    else if (owner)
        memset(out, REUSED, bytes);
    kit_barrier(&l->f->k, n); /* the writers are back */
    for (size_t at = 0; owner && !l->freed && at < bytes; at++)
        T_CHECKF((unsigned char)out[at] == REUSED, "%s: byte %zu was written by somebody else",
                 symm_coll_name(l->coll), at);
    if (!owner || !l->freed) munmap(out, bytes);
    munmap(in, bytes);
    if (!aborts) T_OK(symmCommDestroy(comm));
}
static void gave_up(int ms, int stays_open, int freed, int aborts) {
    static const symmColl_t colls[] = {symmCollGather, symmCollReduce, symmCollAllReduce,
                                       symmCollScatter, symmCollBroadcast};
    setenv("SYMM_DIRECT", "2", 1);
    for (int i = 0; i < 5; i++) {
        const int takes = !symm_colls[colls[i]].root_gives, n = takes ? 3 : 2;
        late *l = T_SHARED(sizeof *l);
        if (!takes && !roots_write(n)) continue;
        *l = (late){fk_new(OWNER, 0), colls[i], ms, stays_open, freed, aborts};
        T_FORK(n, gave_up_rank, l);
    }
}
/* The first write is under way when the owner leaves; the second would begin behind that. */
static void a_taker_that_waits_for_its_writers(void) {
    T_EXPECT_WARNINGS();
    for (int aborts = 0; aborts < 2; aborts++) gave_up(500, 1, 0, aborts);
}
/* For longer than the owner waits. */
static void a_writer_that_was_stopped(void) {
    T_EXPECT_WARNINGS();
    for (int freed = 0; freed < 2; freed++) gave_up(1600, 0, freed, 0);
    gave_up(1600, 0, 0, 1);
}

/* ---- a peer that is gone ---- */

static void dead_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    char *in = pages((size_t)n * PART), *out = pages((size_t)n * PART);
    if (rank == WRITER) T_EQ(symm_fail_arm("peer_write:kill"), 0);
    const uint64_t began = symm_now_ns();
    const symmResult_t r = symmGather(in, out, PART, symmUint8, OWNER, comm, NULL);
    if (rank == OWNER) { /* rank 2 may be done with its part before */
        T_ERR(r, symmRemoteError);
        T_MSG(symmGetLastError(comm), "rank 1");
        if (fk_ms_since(began) < 900) atomic_fetch_add(&f->hits[0], 1);
    }
    T_OK(symmCommDestroy(comm));
}
/* It left its busy word set. Its owner does not wait until the end for that: but on a machine that
 * is busy itself, once. */
static void a_writer_that_died(void) {
    T_EXPECT_WARNINGS();
    fk *f = fk_new(0, 0);
    for (int i = 0; i < 3; i++) T_FORK_DIES(3, WRITER, dead_rank, f);
    T_CHECK(atomic_load(&f->hits[0]) > 0);
}

static void gone_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    char *in = pages((size_t)n * PART), *out = pages((size_t)n * PART);
    T_EQ(symm_fail_arm(rank == WRITER ? "peer_write:error" : ""), 0);
    T_ERR(symmGather(in, out, PART, symmUint8, OWNER, comm, NULL), symmRemoteError);
    if (rank == WRITER) T_MSG(symmGetLastError(comm), "rank 0 died: its process is gone");
    kit_barrier(&f->k, n);
    T_OK(symmCommDestroy(comm));
}
static void a_taker_that_is_gone(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, gone_rank, fk_new(0, 0));
}

T_MAIN(T_TIMEOUT(both_ends_move_a_share, 120), T(many_ranks_with_small_chunks),
       T_TIMEOUT(buffers_of_all_kinds, 60), T(a_try_behind_a_failed_creation),
       T(a_source_that_cannot_be), T(owners_write_where_the_system_refuses),
       T(switched_off_by_one_rank), T(memory_that_is_not_there),
       T_TIMEOUT(a_taker_that_waits_for_its_writers, 60), T_TIMEOUT(a_writer_that_was_stopped, 120),
       T(a_writer_that_died), T(a_taker_that_is_gone))
