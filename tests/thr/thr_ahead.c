/* thr_ahead.c - small broadcasts, scatters, gathers and reduces, in which ranks do not wait for who
 * takes what they give: how far they go ahead, that nothing is written over before all have it, and
 * that ranks which have called something else are told. Ranks are threads; no lock. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "coll_kit.h"
#include "t.h"

enum { RANKS = 3, SMALL = 8, LARGE = 32 << 10, STILL_MS = 50, MOST_MS = 20000 };

typedef struct {
    symmComm_t comm[RANKS];
    _Atomic int given, taken[RANKS]; /* calls that have returned */
    _Atomic int go[RANKS];           /* calls that a taker may make */
    size_t bytes;
    symmColl_t coll;
    int calls;
    uint64_t seed;
} course;

static void open_all(course *m) {
    setenv("SYMM_ALGO",
           "broadcast:broadcast_ahead,scatter:scatter_ahead,"
           "gather:gather_ahead,reduce:reduce_ahead",
           1);
    T_OK(symmCommInitAll(m->comm, RANKS, NULL));
}
static void close_all(course *m) {
    for (int r = 0; r < RANKS; r++) T_OK(symmCommDestroy(m->comm[r]));
    for (int r = 0; r < RANKS; r++) atomic_store(&m->taken[r], 0);
    for (int r = 0; r < RANKS; r++) atomic_store(&m->go[r], 0);
    atomic_store(&m->given, 0);
}

static void all_run(void (*rank)(int rank, int n, void *arg), course m) {
    open_all(&m);
    T_THREADS(RANKS, rank, &m);
    close_all(&m);
}

static unsigned char byte_of(int call, int part, size_t i) {
    return (unsigned char)(call * 31 + part * 7 + (int)(i % 251));
}
static void fill(unsigned char *at, int call, int part, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) at[i] = byte_of(call, part, i);
}
static void is_right(const unsigned char *at, int call, int part, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++)
        T_CHECKF(at[i] == byte_of(call, part, i), "T_SEED=%llu: call %d, byte %zu: %d, not %d",
                 (unsigned long long)seed, call, i, at[i], byte_of(call, part, i));
}
static int within(_Atomic int *at, int want) {
    for (int ms = 0; atomic_load(at) < want && ms < MOST_MS; ms++) usleep(1000);
    return atomic_load(at);
}

/* ---- how far --------------------------------------------------------------------------------- */

static int each(const course *m) { /* a giver's message has a part for each */
    return m->coll == symmCollScatter;
}
static void is_taken(const course *m, int rank, int i, const unsigned char *recv) {
    switch (m->coll) {
    case symmCollBroadcast: is_right(recv, i, 0, m->bytes, m->seed); break;
    case symmCollScatter: is_right(recv, i, rank, m->bytes, m->seed); break;
    case symmCollGather:
        for (int p = 0; rank == 0 && p < RANKS; p++)
            is_right(recv + (size_t)p * m->bytes, i, p, m->bytes, m->seed);
        break;
    default: /* the sum of what byte_of says for each rank */
        for (size_t b = 0; rank == 0 && b < m->bytes; b++)
            T_EQ(recv[b], (unsigned char)(byte_of(i, 0, b) + byte_of(i, 1, b) + byte_of(i, 2, b)));
    }
}
static void call(const course *m, int rank, int i) {
    static _Thread_local unsigned char send[RANKS * LARGE], recv[RANKS * LARGE];
    const int gives = m->coll == symmCollGather || m->coll == symmCollReduce || rank == 0;
    for (int p = 0; gives && p < (each(m) ? RANKS : 1); p++)
        fill(send + (size_t)p * m->bytes, i, each(m) ? p : rank, m->bytes);
    memset(recv, 0, sizeof recv);
    T_OK(symm_test_call(m->coll, send, recv, m->bytes, symmUint8, symmSum, 0, m->comm[rank], NULL));
    memset(send, 0xee, sizeof send); /* the source is the caller's again */
    is_taken(m, rank, i, recv);
}

/* Givers go as fast as they may; a taker makes as many calls as it is let. Who gives and takes: the
 * root 0 and all others, or they and the root. */
static int is_taker(const course *m, int rank) {
    return (m->coll == symmCollGather || m->coll == symmCollReduce) ? rank == 0 : rank > 0;
}
static void rank_of_course(int rank, int n, void *arg) {
    course *m = arg;
    (void)n;
    for (int i = 0; i < m->calls; i++) {
        if (is_taker(m, rank)) within(&m->go[rank], i + 1);
        call(m, rank, i);
        atomic_fetch_add(&m->taken[rank], 1);
    }
}

/* The last thread lets takers go, and looks how far a giver has come: `ahead` calls. */
typedef struct {
    course *m;
    int ahead;
} watched;
static void stays(_Atomic int *at, int want) {
    T_EQ(within(at, want), want);
    usleep(STILL_MS * 1000);
    T_EQ(atomic_load(at), want);
}
/* What a report says that a rank waits for. */
static void waits_for(const course *m, int rank, const char *text) {
    char dump[8192] = "";
    FILE *f = tmpfile();
    T_CHECK(f);
    T_OK(symmCommDump(m->comm[rank], fileno(f)));
    rewind(f);
    T_CHECK(fread(dump, 1, sizeof dump - 1, f) > 0);
    fclose(f);
    T_MSG(dump, text);
}
static void looker(const watched *w) {
    course *m = w->m;
    const int many = is_taker(m, 1); /* takers */
    _Atomic int *given = &m->taken[many ? 0 : 1];
    stays(given, w->ahead); /* with no taker there */
    if (many) {
        atomic_store(&m->go[1], m->calls); /* the other one has none yet */
        T_EQ(within(&m->taken[1], w->ahead), w->ahead);
        stays(given, w->ahead);
        waits_for(m, 0, "waiting for rank 2"); /* the root; the other taker: */
        waits_for(m, 0, "waiting for rank 0");
    }
    atomic_store(&m->go[many ? 2 : 0], 1);
    T_CHECK(within(given, w->ahead + 1) > w->ahead);
    atomic_store(&m->go[many ? 2 : 0], m->calls);
}
static void one_of_course(int rank, int n, void *arg) {
    const watched *w = arg;
    if (rank == RANKS)
        looker(w);
    else
        rank_of_course(rank, n, w->m);
}

static void goes_ahead(symmColl_t coll, size_t bytes, int ahead) {
    course m = {.bytes = bytes, .coll = coll, .calls = 3 * ahead};
    watched w = {&m, ahead};
    open_all(&m);
    T_THREADS(RANKS + 1, one_of_course, &w);
    close_all(&m);
}

static void by_so_many_messages(void) {
    static const symmColl_t all[] = {symmCollBroadcast, symmCollScatter, symmCollGather,
                                     symmCollReduce};
    for (int i = 0; i < 4; i++) {
        goes_ahead(all[i], SMALL, SYMM_AHEAD_SLOTS); /* in heads, but for scatter */
        goes_ahead(all[i], 512, SYMM_AHEAD_SLOTS);   /* in the ring, which holds them all */
    }
}

/* Messages of up to 32 KiB lie in the ring's first 256 KiB, larger ones anywhere in its MiB: here
 * 48 KiB, each in one piece. */
static void by_so_many_bytes(void) {
    goes_ahead(symmCollBroadcast, LARGE, 8);
    goes_ahead(symmCollGather, LARGE, 8);
    goes_ahead(symmCollReduce, LARGE, 8);
    goes_ahead(symmCollScatter, 16 << 10, 21);
}

/* ---- what lies in the ring ------------------------------------------------------------------- */

enum { ROUNDS = 6000, MANY = 9000 };

/* All have filled what they would give: part p of rank r as part p + r. */
static void random_call(course *m, int rank, int i, int root, symmColl_t coll, size_t bytes) {
    static _Thread_local unsigned char send[RANKS * MANY], recv[RANKS * MANY];
    for (int p = 0; p < RANKS; p++) fill(send + (size_t)p * bytes, i, p + rank, bytes);
    T_OK(symm_test_call(coll, send, recv, bytes, symmUint8, symmSum, root, m->comm[rank], NULL));
    if (coll == symmCollBroadcast) is_right(recv, i, root, bytes, m->seed);
    if (coll == symmCollScatter) is_right(recv, i, root + rank, bytes, m->seed);
    for (int p = 0; coll == symmCollGather && rank == root && p < RANKS; p++)
        is_right(recv + (size_t)p * bytes, i, p, bytes, m->seed);
    for (size_t b = 0; coll == symmCollReduce && rank == root && b < bytes; b++)
        T_EQ(recv[b], (unsigned char)(byte_of(i, 0, b) + byte_of(i, 1, b) + byte_of(i, 2, b)));
}
static void random_rank(int rank, int n, void *arg) {
    static const symmColl_t all[] = {symmCollBroadcast, symmCollScatter, symmCollGather,
                                     symmCollReduce};
    course *m = arg;
    uint64_t same = m->seed, own = m->seed + 77u * (unsigned)rank;
    for (int i = 0; i < ROUNDS; i++) {
        const int root = (int)t_draw(&same, RANKS), kind = (int)t_draw(&same, 17);
        const size_t bytes = t_draw(&same, kind & 1 ? 100 : MANY);
        int sum = rank;
        if (t_draw(&own, 40) == 0) usleep((unsigned)t_draw(&own, 300));
        if (kind < 16) {
            random_call(m, rank, i, root, all[kind / 4], bytes);
        } else {
            T_OK(symmAllReduce(&sum, &sum, 1, symmInt32, symmSum, m->comm[rank], NULL));
            T_EQ(sum, n * (n - 1) / 2);
        }
    }
}
static void random_calls_are_right(void) {
    all_run(random_rank, (course){.seed = ck_seed()});
}

/* Large ones take another way then, as a ring holds little. */
static void in_little_scratch(void) {
    setenv("SYMM_SCRATCH", "1M", 1);
    random_calls_are_right();
}

/* Numbers of messages, of which flags have 32 bits. */
static void numbers_go_on(void) {
    const uint64_t last = UINT32_MAX - 300;
    course m = {.seed = ck_seed()};
    open_all(&m);
    for (int r = 0; r < RANKS; r++) {
        symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, m.comm[r]);
        symm_ahead *a = &c->ctl->ahead;
        a->seen = last;
        for (int p = 0; p < RANKS; p++) a->from[p].number = a->taken[p].number = last;
    }
    T_THREADS(RANKS, random_rank, &m);
    close_all(&m);
}

/* Eager calls on a stream, and captured ones. */
static void replaying_rank(int rank, int n, void *arg) {
    course *m = arg;
    symmStream_t stream;
    symmGraph_t graph;
    symmGraphExec_t exec;
    int x[2], y[2] = {0};
    (void)n;
    T_OK(symmStreamCreate(&stream));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmBroadcast(x, y, 2, symmInt32, 1, m->comm[rank], stream));
    T_OK(symmStreamEndCapture(stream, &graph));
    T_OK(symmGraphInstantiate(graph, &exec));
    for (int i = 0; i < 300; i++) {
        x[0] = rank * 1000 + i;
        x[1] = i;
        T_OK(i % 3 ? symmGraphLaunch(exec, stream)
                   : symmBroadcast(x, y, 2, symmInt32, 1, m->comm[rank], stream));
        T_OK(symmStreamSynchronize(stream));
        T_EQ(y[0], 1000 + i);
        T_EQ(y[1], i);
    }
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(graph));
    T_OK(symmStreamDestroy(stream));
}
static void replays_are_right(void) {
    all_run(replaying_rank, (course){.bytes = 0});
}

/* ---- ranks that have called something else --------------------------------------------------- */

/* What each rank calls, a letter a call: b, c: broadcast of root 0, 1; B: of more elements; s:
 * scatter of root 0; g: gather of root 0; d, e: reduce of root 0, 1; r: all_reduce; -: nothing
 * more. Then all call barriers. */
static const char *const astray[][RANKS] = {
    {"b", "b", "c"},    {"c", "b", "b"},    {"b", "c", "b"},      {"c", "b", "c"},
    {"b", "B", "b"},    {"b", "s", "b"},    {"r", "b", "b"},      {"b", "r", "b"},
    {"b", "b", "r"},    {"r", "b", "r"},    {"b", "-", "b"},      {"-", "b", "b"},
    {"bb", "b", "b"},   {"b", "bb", "b"},   {"br", "rb", "br"},   {"rb", "br", "rb"},
    {"bc", "cb", "bc"}, {"bc", "cb", "cb"}, {"rbr", "rr", "rbr"}, {"d", "d", "e"},
    {"e", "d", "d"},    {"d", "e", "d"},    {"g", "d", "g"},      {"g", "s", "g"},
    {"b", "g", "g"},    {"gr", "rg", "gr"}, {"d", "-", "d"},      {"-", "d", "d"},
    {"dd", "d", "d"},   {"gb", "bg", "gb"}, {"de", "ed", "de"},   {"dr", "r", "dr"},
};
enum { ASTRAY = sizeof astray / sizeof astray[0] };

static symmResult_t one_call(char what, symmComm_t comm) {
    int x[RANKS * 2] = {0}, y[RANKS * 2];
    switch (what) {
    case 'b':
    case 'c': return symmBroadcast(x, y, 1, symmInt32, what == 'c', comm, NULL);
    case 'B': return symmBroadcast(x, y, 2, symmInt32, 0, comm, NULL);
    case 's': return symmScatter(x, y, 1, symmInt32, 0, comm, NULL);
    case 'g': return symmGather(x, y, 1, symmInt32, 0, comm, NULL);
    case 'd':
    case 'e': return symmReduce(x, y, 1, symmInt32, symmSum, what == 'e', comm, NULL);
    default: return symmAllReduce(x, y, 1, symmInt32, symmSum, comm, NULL);
    }
}
static void straying_rank(int rank, int n, void *arg) {
    course *m = arg;
    symmResult_t r = symmSuccess;
    (void)n;
    for (const char *c = astray[m->calls][rank]; *c && *c != '-' && !r; c++)
        r = one_call(*c, m->comm[rank]);
    if (!r) r = symmBarrier(m->comm[rank], NULL); /* at the latest in the next call */
    T_CHECKF(r == symmMismatch, "case %d, rank %d: %d", m->calls, rank, (int)r);
    T_MSG(symmGetLastError(m->comm[rank]), "call ");
}
static void ranks_that_differ_are_told(void) {
    T_EXPECT_WARNINGS();
    for (int i = 0; i < ASTRAY; i++) all_run(straying_rank, (course){.calls = i});
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void leaving_rank(int rank, int n, void *arg) {
    course *m = arg;
    (void)n;
    for (int i = 0; i < m->calls; i++) call(m, rank, i);
    if (rank) return;
    T_OK(symmCommDestroy(m->comm[0]));
    atomic_store(&m->given, 1);
}
static void late_rank(int rank, int n, void *arg) {
    course *m = arg;
    if (rank) within(&m->given, 1);
    leaving_rank(rank, n, arg);
}
/* What a root has given before it left comes. */
static void a_root_that_leaves(void) {
    course m = {.bytes = 512, .coll = symmCollBroadcast, .calls = SYMM_AHEAD_SLOTS};
    open_all(&m);
    T_THREADS(RANKS, late_rank, &m);
    for (int r = 1; r < RANKS; r++) T_OK(symmCommDestroy(m.comm[r]));
}

/* It went ahead of ranks that call something else, and has left: they are told what differs. */
static void left_alone(int rank, int n, void *arg) {
    course *m = arg;
    int x[RANKS] = {0};
    (void)n;
    if (rank == 0) {
        T_OK(symmBroadcast(x, x, 1, symmInt32, 0, m->comm[0], NULL));
        T_OK(symmCommDestroy(m->comm[0]));
        return;
    }
    T_ERR(symmAllReduce(x, x, 1, symmInt32, symmSum, m->comm[rank], NULL), symmMismatch);
    T_MSG(symmGetLastError(m->comm[rank]), "symmBroadcast");
}
static void a_root_that_leaves_too_early(void) {
    T_EXPECT_WARNINGS();
    course m = {.bytes = SMALL};
    open_all(&m);
    T_THREADS(RANKS, left_alone, &m);
    for (int r = 1; r < RANKS; r++) T_OK(symmCommDestroy(m.comm[r]));
}

/* It went ahead, and waits elsewhere: in a receive, which looks at no signature. */
static void rank_elsewhere(int rank, int n, void *arg) {
    course *m = arg;
    int x[RANKS] = {0};
    (void)n;
    if (rank == 0) {
        T_OK(symmBroadcast(x, x, 1, symmInt32, 0, m->comm[0], NULL));
        T_ERR(symmRecv(x, 1, symmInt32, 1, m->comm[0], NULL), symmMismatch);
    } else {
        T_ERR(symmAllReduce(x, x, 1, symmInt32, symmSum, m->comm[rank], NULL), symmMismatch);
    }
    T_MSG(symmGetLastError(m->comm[rank]), "symmBroadcast");
}
static void a_root_that_goes_elsewhere(void) {
    T_EXPECT_WARNINGS();
    all_run(rank_elsewhere, (course){.bytes = SMALL});
}

/* Rank 0 waits for a message of rank 1, which waits for room, that is for rank 2, which waits for
 * another message of rank 0. */
static void rank_of_a_ring(int rank, int n, void *arg) {
    course *m = arg;
    int x[RANKS] = {0}, y[RANKS];
    symmResult_t r = symmSuccess;
    (void)n;
    for (int i = 0; rank < 2 && i < SYMM_AHEAD_SLOTS && !r; i++)
        r = symmBroadcast(x, x, 1, symmInt32, 1, m->comm[rank], NULL);
    if (!r) r = symmReduce(x, y, 1, symmInt32, symmSum, rank == 2 ? 2 : 0, m->comm[rank], NULL);
    if (!r) r = symmBarrier(m->comm[rank], NULL);
    T_EQ(r, symmMismatch);
}
static void ranks_that_wait_in_a_ring(void) {
    T_EXPECT_WARNINGS();
    all_run(rank_of_a_ring, (course){.bytes = SMALL});
}

static void revoked_rank(int rank, int n, void *arg) {
    course *m = arg;
    int x = 0;
    symmResult_t r = symmSuccess;
    (void)n;
    if (rank == 2) {
        within(&m->given, SYMM_AHEAD_SLOTS);
        T_OK(symmCommRevoke(m->comm[2], 0));
        return;
    }
    for (int i = 0; i < 3 * SYMM_AHEAD_SLOTS && !r; i++) {
        r = symmBroadcast(&x, &x, 1, symmInt32, 0, m->comm[rank], NULL);
        if (!rank && !r) atomic_fetch_add(&m->given, 1);
    }
    T_EQ(r, symmAborted);
    T_EQ(atomic_load(&m->given), SYMM_AHEAD_SLOTS);
}
/* A root that waits for room leaves when the communicator is revoked. */
static void a_root_that_waits_is_woken(void) {
    T_EXPECT_WARNINGS();
    all_run(revoked_rank, (course){.bytes = SMALL});
}

T_MAIN(T(by_so_many_messages), T(by_so_many_bytes), T(random_calls_are_right), T(in_little_scratch),
       T(numbers_go_on), T(replays_are_right), T(ranks_that_differ_are_told), T(a_root_that_leaves),
       T(a_root_that_leaves_too_early), T(a_root_that_goes_elsewhere), T(ranks_that_wait_in_a_ring),
       T(a_root_that_waits_is_woken))
