/* fault_kit.h - what the tests of errors, deaths and limits share: communicators over a unique id
 * in forked ranks, a collective whose result is checked, notes that ranks leave for each other, the
 * gauges. Each rank uses it from its own thread; no lock: shared fields are atomics, or written
 * before a barrier and read after it. */
#ifndef FAULT_KIT_H_
#define FAULT_KIT_H_

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "mesh_kit.h"

enum { FK_GAUGES = 16 };

typedef struct {
    kit k; /* barrier, flag, codes and texts */
    symmUniqueId_t id;
    int how, victim; /* the test's own */
    int alive;       /* ranks that meet at the barriers after a death */
    _Atomic uint64_t at_ns;
    char text[256];
    _Atomic int hits[4]; /* of the failpoint that the test is about, per phase */
} fk;

static inline fk *fk_new(int victim, int how) {
    fk *f = T_SHARED(sizeof *f);
    f->victim = victim;
    f->how = how;
    return f;
}

/* Ends this process in a moment, whatever it does then; at_ns: when. */
static inline void *fk_kill_later(void *arg) {
    fk *f = arg;
    usleep(30000);
    atomic_store(&f->at_ns, symm_now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}
static inline void fk_doom(fk *f) {
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, fk_kill_later, f), 0);
}

static inline uint64_t fk_ms_since(uint64_t ns) {
    return (symm_now_ns() - ns) / 1000000;
}

/* Rank 0 makes the id, all get it. */
static inline void fk_id(fk *f, int rank, int n) {
    kit_barrier(&f->k, n);
    if (rank == 0) T_OK(symmGetUniqueId(&f->id));
    kit_barrier(&f->k, n);
}

static inline symmComm_t fk_open(fk *f, int rank, int n) {
    symmComm_t comm = NULL;
    fk_id(f, rank, n);
    T_OK(symmCommInitRank(&comm, n, f->id, rank));
    return comm;
}

static inline void fk_note(fk *f, int rank, symmResult_t code) {
    atomic_store(&f->k.code[rank], (int)code);
    snprintf(f->k.text[rank], sizeof f->k.text[rank], "%s", code ? symmGetLastError(NULL) : "");
}

/* After a barrier: every rank but `but` has left the same code, with `part` in its text. */
static inline void fk_same(const fk *f, int n, int but, symmResult_t code, const char *part) {
    for (int r = 0; r < n; r++) {
        if (r == but) continue;
        T_CHECKF(f->k.code[r] == (int)code, "rank %d: code %d, not %d (%s)", r, f->k.code[r],
                 (int)code, f->k.text[r]);
        T_CHECKF(strstr(f->k.text[r], part), "rank %d: \"%s\" is not in \"%s\"", r, part,
                 f->k.text[r]);
    }
}

typedef struct {
    int64_t value[FK_GAUGES];
    int n;
} fk_gauges;

static inline fk_gauges fk_take(void) {
    fk_gauges g;
    g.n = symm_stats_gauges(g.value, NULL, FK_GAUGES);
    return g;
}

static inline void fk_unchanged(const fk_gauges *before, int line) {
    int64_t now[FK_GAUGES];
    const char *names[FK_GAUGES];
    int n = symm_stats_gauges(now, names, FK_GAUGES);
    for (int i = 0; i < n; i++)
        T_CHECKF(now[i] == before->value[i], "line %d: gauge %s: %lld, was %lld", line, names[i],
                 (long long)now[i], (long long)before->value[i]);
}
#define FK_UNCHANGED(before) fk_unchanged(before, __LINE__)

/* Frees what all ranks have dropped: any registration that maps does, and one of nothing leaves
 * only a slot without memory. [collective] */
static inline void fk_collect(symmComm_t comm) {
    symmWindow_t win;
    T_OK(symmWindowRegister(comm, NULL, 0, &win, SYMM_WIN_DEFAULT));
    T_OK(symmWindowDeregister(comm, win));
}

/* All that was dropped since `before`, when nothing was, can be freed: the slot of the empty window
 * is all that is left. [collective] */
static inline void fk_collected(symmComm_t comm, const fk_gauges *before, int line) {
    const char *names[FK_GAUGES];
    int64_t now[FK_GAUGES];
    fk_gauges want = *before;
    int n = symm_stats_gauges(now, names, FK_GAUGES);
    for (int i = 0; i < n; i++)
        want.value[i] += !strcmp(names[i], "slots") || !strcmp(names[i], "dropped");
    fk_collect(comm);
    fk_unchanged(&want, line);
}
#define FK_COLLECTED(comm, before) fk_collected(comm, before, __LINE__)

/* all_reduce of `count` int32 values with sizes that suit each kernel; the result is checked. */
static inline void fk_reduce(symmComm_t comm, int rank, int n, int *send, int *recv, size_t count,
                             symmStream_t stream) {
    for (size_t i = 0; i < count; i++) send[i] = (int)(i % 1000) + rank * 7;
    memset(recv, 0xee, count * sizeof *recv);
    T_OK(symmAllReduce(send, recv, count, symmInt32, symmSum, comm, stream));
    if (stream) T_OK(symmStreamSynchronize(stream));
    for (size_t i = 0; i < count; i++) {
        int want = n * (int)(i % 1000) + 7 * n * (n - 1) / 2;
        T_CHECKF(recv[i] == want, "element %zu of %zu: %d, not %d", i, count, recv[i], want);
    }
}

/* The communicator does what it should: small, middling and large, a gather and a barrier. */
static inline void fk_works(symmComm_t comm, int rank, int n) {
    static const size_t counts[] = {3, 5000, 300000};
    int *send = malloc(300000 * sizeof *send), *recv = malloc(300000 * sizeof *recv);
    T_CHECK(send && recv);
    for (int i = 0; i < 3; i++) fk_reduce(comm, rank, n, send, recv, counts[i], NULL);
    send[0] = rank * 3 + 1;
    T_OK(symmAllGather(send, recv, 1, symmInt32, comm, NULL));
    for (int r = 0; r < n; r++) T_EQ(recv[r], r * 3 + 1);
    T_OK(symmBarrier(comm, NULL));
    free(send);
    free(recv);
}

/* Registration works and the mapping is the peers' memory. Leaves what fk_collect leaves. */
static inline void fk_registers(symmComm_t comm, int rank, int n) {
    symmWindow_t win;
    int *buf;
    void *peer;
    T_OK(symmMemAlloc((void **)&buf, 2 << 20));
    T_OK(symmWindowRegister(comm, buf, 2 << 20, &win, SYMM_WIN_DEFAULT));
    buf[0] = 100 + rank;
    T_OK(symmBarrier(comm, NULL));
    for (int r = 0; r < n; r++) {
        T_OK(symmWindowPeerPtr(win, 0, r, &peer));
        T_EQ(*(volatile int *)peer, 100 + r);
    }
    T_OK(symmBarrier(comm, NULL));
    fk_reduce(comm, rank, n, buf, buf + (1 << 18), 200000, NULL);
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmMemFree(buf));
    fk_collect(comm);
}

/* Is `scenario` among those that reach the failpoint? (fail.def) */
static inline int fk_meets(int point, const char *scenario) {
    size_t n = strlen(scenario);
    for (const char *s = symm_fail_where(point); *s;) {
        size_t word = strcspn(s, " ");
        if (word == n && memcmp(s, scenario, n) == 0) return 1;
        s += word + strspn(s + word, " ");
    }
    return 0;
}

/* The table says, behind a semicolon, how the library gets over that failure. */
static inline int fk_survived(int point) {
    return strchr(symm_fail_help(point), ';') != NULL;
}

#define FK_REFUSED(comm, call, code, part)   \
    do {                                     \
        T_ERR(call, code);                   \
        T_MSG(symmGetLastError(comm), part); \
    } while (0)

#endif
