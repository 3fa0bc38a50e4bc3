/* fault_local.c - the failpoints that one process meets alone: ids, allocations, pages, streams,
 * events, captures, graphs, groups, reductions, bootstraps, non-blocking creation, late ranks. Each
 * scenario is run once for every hit of every point that fail.def says it meets; one not met fails.
 * A failure is reported, unless the table says how it is survived. The test's thread; no lock. */
#include <fcntl.h>
#include <pthread.h>

#include "host/comm/pages.h"
#include "host/place/place.h"
#include "graph_kit.h"
#include "symm_arena.h"
#include "fault_kit.h"
#include "symm_synced.h"

enum { TASKS = 100, COUNT = 256, GROUP_RANKS = 3, MAX_HITS = 200 };

/* A call of a scenario after the first error is left out; what was made is taken down all the
 * same. */
#define STEP(call) ((void)(result == symmSuccess && (result = (call)) != symmSuccess))

static void *unfreed; /* what symmMemFree could not free while a point was armed */

/* ---- id, alloc, pages, redop ----------------------------------------------------------------- */

static symmResult_t get_id(void) {
    symmUniqueId_t id;
    symmComm_t comm;
    symmResult_t result = symmGetUniqueId(&id);
    if (result) return result;
    T_OK(symmCommInitRank(&comm, 1, id, 0)); /* takes the listener */
    T_OK(symmCommDestroy(comm));
    return result;
}

/* With stdin closed, so that a new descriptor must be moved away from its number. */
static int without_stdin(void) {
    int keep = fcntl(0, F_DUPFD_CLOEXEC, 10);
    close(0);
    return keep;
}

static void restore_stdin(int keep) {
    if (keep < 0) return;
    T_EQ(dup2(keep, 0), 0);
    close(keep);
}

static symmResult_t allocate(void) {
    char *p = NULL;
    int keep = without_stdin();
    symmResult_t result = symmMemAlloc((void **)&p, 2 << 20);
    restore_stdin(keep);
    if (result) return result;
    p[0] = p[(2 << 20) - 1] = 1;
    result = symmMemFree(p);
    if (result) unfreed = p;
    return result;
}

/* Pages as rank 0 makes them and a peer maps them: each sees what the other writes. */
static symmResult_t share_pages(void) {
    symm_pages *own = NULL, *peer = NULL;
    int fd = -1, keep = without_stdin();
    symmResult_t result = symm_pages_new(4, &fd, &own);
    restore_stdin(keep);
    STEP(symm_pages_map(4, fd, &peer));
    for (int r = 0; r < 4 && !result; r++) {
        T_EQ(symm_pages_ctl(own, r)->state, SYMM_STATE_NONE);
        symm_pages_ctl(r % 2 ? own : peer, r)->state = (uint32_t)r + 7;
        T_EQ(symm_pages_ctl(r % 2 ? peer : own, r)->state, (uint32_t)r + 7);
    }
    symm_pages_unref(peer);
    symm_pages_unref(own);
    if (fd < 0) return result;
    close(fd);
    SYMM_STAT_ADD(fds, -1);
    return result;
}

/* Two engines that grow until both have needed more nodes. What was placed comes back, whatever was
 * refused. */
static symmResult_t place(void) {
    static uint64_t off[2][500];
    symmResult_t result = symmSuccess;
    for (int fit = 0; fit < 2 && !result; fit++) {
        int n = 0, why = 0;
        symm_place *p = symm_place_new(fit);
        if (!p || symm_place_add(p, 0, 1ull << 40)) result = symmOutOfMemory;
        for (; n < 500 && !result; n += !result)
            if ((off[fit][n] = symm_place_take(p, 1, 512, 0, &why)) == SYMM_PLACE_NONE)
                result = symmOutOfMemory;
        T_CHECK(!why || why == ENOMEM);
        while (n-- > 0) T_EQ(symm_place_give(p, off[fit][n]), SYMM_PLACE_UNIT);
        symm_place_end(p);
    }
    return result ? SYMM_ERR(result, "no memory to place blocks") : result;
}

/* What a thread leaves in the arena when it ends. */
static void *free_and_take(void *arg) {
    void **p = arg;
    for (int i = 1; i < 100; i++) (void)symmArenaFree(p[0], p[i], NULL);
    p[1] = NULL;
    return (void *)(uintptr_t)symmArenaAlloc(p[0], 1000, 0, NULL, &p[1]);
}

/* Of everybody's calls the first error; what the streams and the other thread free is freed in any
 * case. */
static symmResult_t use_arena(symmArena_t a, symmStream_t s, symmStream_t t) {
    void *p[100] = {a}, *q[20] = {NULL};
    pthread_t thread;
    symmArenaInfo_t info = {.size = sizeof info};
    symmResult_t result = symmSuccess;
    for (int i = 1; i < 100; i++) STEP(symmArenaAlloc(a, 2000, 0, NULL, &p[i]));
    for (int i = 0; i < 20; i++) STEP(symmArenaAlloc(a, i % 2 ? 1 << 20 : 500, 0, s, &q[i]));
    for (int i = 0; i < 20; i++) T_OK(symmArenaFree(a, q[i], t));
    T_EQ(pthread_create(&thread, NULL, free_and_take, p), 0);
    void *r = NULL, *end;
    T_EQ(pthread_join(thread, &end), 0);
    STEP((symmResult_t)(uintptr_t)end);
    STEP(symmArenaAlloc(a, 8 << 20, 0, s, &r));
    T_OK(symmArenaFree(a, r, s));
    T_OK(symmArenaFree(a, p[1], NULL));
    T_OK(symmArenaTrim(a, NULL));
    T_OK(symmArenaQuery(a, &info));
    T_EQ(info.used, 0);
    int fd = open("/dev/null", O_WRONLY);
    STEP(symmArenaDump(a, fd));
    close(fd);
    return result;
}

static symmResult_t guarded_arena(symmComm_t comm) {
    symmHeap_t heap;
    symmArena_t a = NULL;
    symmHeapConfig_t h = SYMM_HEAP_CONFIG_INITIALIZER;
    h.localBytes = 16 << 20;
    h.reserve = 64 << 20;
    h.guard = 1;
    T_OK(symmHeapCreate(comm, &h, &heap));
    symmResult_t result = symmArenaCreate(heap, NULL, &a);
    if (a) T_OK(symmArenaDestroy(a));
    T_OK(symmHeapCheck(heap));
    T_OK(symmHeapDestroy(heap));
    return result;
}

static symmResult_t arena_of_heap(void) {
    symmComm_t comm;
    symmHeap_t heap;
    symmStream_t s, t;
    symmArena_t a = NULL, b = NULL;
    symmHeapConfig_t h = SYMM_HEAP_CONFIG_INITIALIZER;
    symmArenaConfig_t c = SYMM_ARENA_CONFIG_INITIALIZER;
    h.reserve = 256 << 20;
    h.localBytes = h.symBytes = 64 << 20;
    setenv("SYMM_WIN_STRIDE", "1G", 1);
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_OK(symmHeapCreate(comm, &h, &heap));
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamCreate(&t));
    symmResult_t result = symmArenaCreate(heap, NULL, &a);
    if (a) result = use_arena(a, s, t);
    c.flags = SYMM_ARENA_SYM;
    c.stripes = 4;
    c.bytes = 1 << 20;
    STEP(symmArenaCreate(heap, &c, &b));
    if (b) T_OK(symmArenaDestroy(b));
    if (a) T_OK(symmArenaDestroy(a));
    T_OK(symmStreamDestroy(t));
    T_OK(symmStreamDestroy(s));
    STEP(guarded_arena(comm));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
    return result;
}

static symmResult_t make_reduction(void) {
    symmComm_t comm;
    symmRedOp_t op;
    float two = 2;
    T_OK(symmCommInitAll(&comm, 1, NULL));
    symmResult_t result =
        symmRedOpCreatePreMulSum(&op, &two, symmFloat32, symmScalarHostImmediate, comm);
    if (!result) T_OK(symmRedOpDestroy(op, comm));
    T_OK(symmCommDestroy(comm));
    return result;
}

/* A log file, a line in it, and a dump. The log goes back to stderr, which closes the file. */
static symmResult_t report(void) {
    char path[] = "/tmp/symm-fault-XXXXXX", text[256];
    symmComm_t comm;
    int fd = mkstemp(path);
    T_CHECK(fd >= 0);
    setenv("SYMM_DEBUG_FILE", path, 1);
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_ERR(symmMemAlloc(NULL, 1), symmInvalidArgument); /* says so */
    symmResult_t result = symmCommDump(comm, fd);
    T_OK(symmCommDestroy(comm));
    T_CHECK(result || pread(fd, text, sizeof text, 0) > 0);
    unsetenv("SYMM_DEBUG_FILE");
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_OK(symmCommDestroy(comm));
    close(fd);
    unlink(path);
    return result;
}

/* ---- streams and events ---------------------------------------------------------------------- */

static _Atomic int go_on, ran;

static void wait_for_go(void *arg) {
    (void)arg;
    while (!atomic_load(&go_on)) usleep(100);
}

static void count(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
}

/* A queue that grows behind a task that takes long. What was accepted runs, whatever was
 * refused. */
static symmResult_t use_stream(void) {
    symmStream_t s = NULL;
    int accepted = 0;
    atomic_store(&go_on, 0);
    atomic_store(&ran, 0);
    symmResult_t result = symmStreamCreate(&s);
    STEP(symmStreamHostFunc(s, wait_for_go, NULL));
    for (int i = 0; i < TASKS; i++) {
        STEP(symmStreamHostFunc(s, count, NULL));
        accepted += result == symmSuccess;
    }
    atomic_store(&go_on, 1);
    if (!s) return result;
    T_OK(symmStreamSynchronize(s));
    T_EQ(ran, accepted);
    T_OK(symmStreamDestroy(s));
    return result;
}

/* A call with a count per rank waits in a stream. */
static symmResult_t queue_counts(void) {
    static const size_t one = 1;
    symmStream_t s;
    symmComm_t comm;
    int in = 7, out = 0, twice[2] = {0};
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_OK(symmStreamCreate(&s));
    symmResult_t result = symmAlltoAllv(&in, &one, NULL, &out, &one, NULL, symmInt32, comm, s);
    T_OK(symmGroupStart());
    STEP(symmAlltoAllv(&in, &one, NULL, &twice[0], &one, NULL, symmInt32, comm, s));
    STEP(symmAlltoAllv(&in, &one, NULL, &twice[1], &one, NULL, symmInt32, comm, s));
    T_OK(symmGroupEnd());
    T_OK(symmStreamDestroy(s));
    T_EQ(out + twice[1], result ? 0 : 14);
    T_OK(symmCommDestroy(comm));
    return result;
}

static symmResult_t use_event(void) {
    symmEvent_t e = NULL;
    symmResult_t result = symmEventCreate(&e);
    STEP(symmEventRecord(e, NULL));
    STEP(symmEventSynchronize(e));
    if (e) T_OK(symmEventDestroy(e));
    return result;
}

/* ---- captures and graphs --------------------------------------------------------------------- */

static symmResult_t end_capture(symmStream_t s, symmGraph_t *g, symmResult_t result) {
    symmResult_t end = symmStreamEndCapture(s, g);
    T_CHECKF((*g != NULL) == (end == symmSuccess), "a graph, or an error");
    T_CHECKF(!result || end, "a capture that lost a call became a graph");
    return result ? result : end;
}

/* A collective, a message and an event on one stream. */
static symmResult_t capture(void) {
    symmComm_t comm;
    symmStream_t s;
    symmEvent_t e;
    symmGraph_t g = NULL;
    int one = 1, sum = 0;
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_OK(symmStreamCreate(&s));
    T_OK(symmEventCreate(&e));
    symmResult_t result = symmStreamBeginCapture(s);
    int begun = result == symmSuccess;
    STEP(symmAllReduce(&one, &sum, 1, symmInt32, symmSum, comm, s));
    STEP(symmSend(&sum, 1, symmInt32, 0, comm, s));
    STEP(symmRecv(&sum, 1, symmInt32, 0, comm, s));
    STEP(symmEventRecord(e, s));
    if (begun) result = end_capture(s, &g, result);
    STEP(xg_launch(g, s));
    T_OK(symmStreamSynchronize(s));
    T_EQ(sum, result ? 0 : 1);
    if (g) T_OK(xg_destroy(g));
    T_OK(symmEventDestroy(e));
    T_OK(symmStreamDestroy(s));
    T_OK(symmCommDestroy(comm));
    return result;
}

/* Two lanes: s records, t joins and is joined again. */
static symmResult_t record_lanes(symmStream_t s, symmStream_t t, const symmEvent_t *e) {
    symmResult_t result = symmStreamHostFunc(s, count, NULL);
    STEP(symmEventRecord(e[0], s));
    STEP(symmStreamWaitEvent(t, e[0]));
    STEP(symmStreamHostFunc(t, count, NULL));
    STEP(symmEventRecord(e[1], t));
    STEP(symmStreamWaitEvent(s, e[1]));
    return result;
}

/* A graph of two lanes, replayed, and copied into another capture. */
static symmResult_t use_graphs(void) {
    symmStream_t s = NULL, t = NULL;
    symmEvent_t e[2] = {NULL, NULL};
    symmGraph_t g[2] = {NULL, NULL};
    atomic_store(&ran, 0);
    symmResult_t result = symmStreamCreate(&s);
    STEP(symmStreamCreate(&t));
    STEP(symmEventCreate(&e[0]));
    STEP(symmEventCreate(&e[1]));
    for (int i = 0; i < 2 && !result; i++) {
        STEP(symmStreamBeginCapture(s));
        if (result) break;
        result = i ? xg_launch(g[0], s) : record_lanes(s, t, e);
        result = end_capture(s, &g[i], result);
        STEP(xg_launch(g[i], s));
        T_OK(symmStreamSynchronize(s));
        T_EQ(ran, 2 * i + (result ? 0 : 2));
    }
    for (int i = 0; i < 2; i++) {
        if (g[i]) T_OK(xg_destroy(g[i]));
        if (e[i]) T_OK(symmEventDestroy(e[i]));
    }
    if (t) T_OK(symmStreamDestroy(t));
    if (s) T_OK(symmStreamDestroy(s));
    return result;
}

/* ---- synced buffers and a heap's map --------------------------------------------------------- */

static symmResult_t look_at_heap(symmHeap_t heap, symmSynced_t s) {
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    T_CHECK(fd >= 0);
    symmResult_t result = symmSyncedDump(s, fd);
    for (int format = SYMM_DUMP_TEXT; format <= SYMM_DUMP_JSON; format++)
        STEP(symmHeapDump(heap, fd, format));
    close(fd);
    return result;
}

static symmResult_t use_synced(void) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmComm_t comm;
    symmHeap_t heap;
    symmSynced_t s = NULL;
    char *host = NULL;
    const char *device = NULL;
    config.localBytes = 2 << 20;
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_OK(symmHeapCreate(comm, &config, &heap));
    symmResult_t result = symmSyncedCreate(heap, COUNT, SYMM_ALLOC_LOCAL, &s);
    STEP(symmSyncedGpu(s, NULL, (const void **)&device));
    STEP(symmSyncedMutableCpu(s, NULL, 1, (void **)&host));
    if (!result) memset(host, 1, COUNT);
    STEP(symmSyncedPush(s, NULL));
    T_CHECK(result || device[COUNT - 1] == 1);
    STEP(look_at_heap(heap, s));
    if (s) T_OK(symmSyncedDestroy(s));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
    return result;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static symmResult_t reduce_in_group(symmComm_t *comm, int (*out)[COUNT]) {
    static int in[COUNT], got[COUNT];
    for (int i = 0; i < COUNT; i++) in[i] = i;
    memset(out, 0, GROUP_RANKS * sizeof *out);
    T_OK(symmGroupStart());
    for (int r = 0; r < GROUP_RANKS; r++) {
        symmAllReduce(in, out[r], COUNT, symmInt32, symmSum, comm[r], NULL);
        symmSend(in, COUNT, symmInt32, r, comm[r], NULL);
        symmRecv(got, COUNT, symmInt32, r, comm[r], NULL);
    }
    return symmGroupEnd();
}

/* All of a group or nothing of it: what a failed one left is as before, and the next one works. */
static symmResult_t use_group(void) {
    symmComm_t comm[GROUP_RANKS];
    int out[GROUP_RANKS][COUNT];
    T_OK(symmCommInitAll(comm, GROUP_RANKS, NULL));
    symmResult_t result = reduce_in_group(comm, out);
    for (int r = 0; r < GROUP_RANKS && result; r++)
        for (int i = 0; i < COUNT; i++) T_EQ(out[r][i], 0);
    if (result) T_OK(reduce_in_group(comm, out)); /* the armed hit is over */
    for (int r = 0; r < GROUP_RANKS; r++)
        for (int i = 0; i < COUNT; i++) T_EQ(out[r][i], GROUP_RANKS * i);
    for (int r = 0; r < GROUP_RANKS; r++) T_OK(symmCommDestroy(comm[r]));
    return result;
}

/* ---- creation by one rank -------------------------------------------------------------------- */

static int gather_alone(void *ctx, const void *send, void *recv, size_t bytes) {
    (void)ctx;
    memcpy(recv, send, bytes);
    return 0;
}

static int meet_alone(void *ctx) {
    (void)ctx;
    return 0;
}

static symmResult_t create_by_callbacks(void) {
    symmBoot_t boot = {.allgather = gather_alone, .barrier = meet_alone};
    symmComm_t comm = NULL;
    symmResult_t result = symmCommInitBoot(&comm, 1, 0, &boot, NULL);
    T_CHECK((result == symmSuccess) == (comm != NULL));
    if (comm) T_OK(symmCommDestroy(comm));
    return result;
}

/* The id's listener goes with the attempt: it is in the gauge of descriptors. */
static symmResult_t create_behind(void) {
    symmConfig_t config = SYMM_CONFIG_INITIALIZER;
    symmComm_t comm = NULL;
    symmUniqueId_t id;
    symmResult_t async = symmInProgress;
    config.blocking = 0;
    T_OK(symmGetUniqueId(&id));
    symmResult_t result = symmCommInitRankConfig(&comm, 1, id, 0, &config);
    if (result != symmInProgress) return result;
    while (async == symmInProgress) T_OK(symmCommGetAsyncError(comm, &async));
    while (SYMM_STAT_GET(threads)) usleep(100); /* it counts itself out last */
    T_OK(symmCommDestroy(comm));
    return async;
}

/* ---- every point of a scenario --------------------------------------------------------------- */

typedef struct {
    const char *name;
    symmResult_t (*run)(void);
    int point;
} scenario;

/* nth 0: every hit fails. Returns how often the point was met. */
static int run_armed(const scenario *s, int nth) {
    char spec[96];
    fk_gauges before = fk_take();
    snprintf(spec, sizeof spec, "%s:error:%d", symm_fail_name(s->point), nth);
    T_EQ(symm_fail_arm(spec), 0);
    symmResult_t result = s->run();
    int hits = symm_fail_hits(s->point);
    T_EQ(symm_fail_arm(""), 0);
    if (unfreed) T_OK(symmMemFree(unfreed)); /* nothing of it was lost */
    unfreed = NULL;
    FK_UNCHANGED(&before);
    T_CHECKF(!result || symmGetLastError(NULL)[0], "%s: an error without a text", spec);
    T_CHECKF(!result || hits >= nth, "%s: fails though the hit did not come: %s", spec,
             symmGetLastError(NULL));
    T_CHECKF(result || hits < nth || fk_survived(s->point), "%s failed, and nothing came of it",
             spec);
    return hits;
}

static void point_rank(int rank, int n, void *arg) {
    const scenario *s = arg;
    int nth = 1, hits;
    (void)n;
    symm_log_rank(rank);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_SETUP_TIMEOUT", "2000", 1);
    do {
        hits = run_armed(s, nth);
        T_CHECKF(nth > 1 || hits, "failpoint %s was not reached in %s", symm_fail_name(s->point),
                 s->name);
    } while (hits >= nth++ && nth < MAX_HITS);
    if (s->run == allocate || s->run == get_id) run_armed(s, 0);
    T_OK(s->run());
}

static void every_point_of(const char *name, symmResult_t (*run)(void)) {
    int points = 0;
    T_EXPECT_WARNINGS();
    for (int p = 0; p < symm_fp_count; p++) {
        scenario s = {name, run, p};
        if (!fk_meets(p, name)) continue;
        T_FORK(1, point_rank, &s); /* a fresh process: some things happen once */
        points++;
    }
    T_CHECKF(points, "no point is marked %s", name);
}

static void ids(void) {
    every_point_of("id", get_id);
}
static void allocations(void) {
    every_point_of("alloc", allocate);
}
static void streams(void) {
    every_point_of("stream", use_stream);
    every_point_of("counts", queue_counts);
}
static void events(void) {
    every_point_of("event", use_event);
}
static void captures(void) {
    every_point_of("capture", capture);
}
static void graphs(void) {
    every_point_of("graph", use_graphs);
}
static void synced_buffers(void) {
    every_point_of("synced", use_synced);
}
static void groups(void) {
    every_point_of("group", use_group);
}
static void pages(void) {
    every_point_of("pages", share_pages);
}
static void placements(void) {
    every_point_of("place", place);
}
static void arenas(void) {
    every_point_of("arena", arena_of_heap);
}
static void reductions(void) {
    every_point_of("redop", make_reduction);
}
static void reports(void) {
    every_point_of("report", report);
}
static void callbacks(void) {
    every_point_of("callbacks", create_by_callbacks);
}
static void behind(void) {
    every_point_of("behind", create_behind);
}

/* ---- ranks that come late: watched by a pidfd while they connect, waited for in poll --------- */

static void late_rank(int rank, int n, void *arg) {
    fk *f = arg;
    char spec[96];
    fk_id(f, rank, n);
    snprintf(spec, sizeof spec, "%s:error", symm_fail_name(f->how));
    T_EQ(symm_fail_arm(rank ? "mesh_connect:delay=60:1,agree_enter:delay=60:1" : spec), 0);
    symmComm_t comm;
    T_OK(symmCommInitRank(&comm, n, f->id, rank));
    T_CHECKF(rank || symm_fail_hits(f->how), "failpoint %s was not reached by a late rank",
             symm_fail_name(f->how));
    T_EQ(symm_fail_arm(""), 0);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void late_ranks(void) {
    for (int p = 0; p < symm_fp_count; p++)
        if (fk_meets(p, "late")) T_FORK(2, late_rank, fk_new(0, p));
}

/* ---- the table itself ------------------------------------------------------------------------ */

static void every_point_is_driven_somewhere(void) {
    static const char *const scenarios[] = {
        "create",      "register",   "split",        "threads",       "id",           "alloc",
        "stream",      "event",      "capture",      "graph",         "group",        "redop",
        "behind",      "late",       "report",       "callbacks",     "mpi",          "pages",
        "place",       "heap",       "heap_threads", "window_grow",   "vec",          "vec_first",
        "vec_reserve", "vec_shrink", "arena",        "arena_gpu",     "synced",       "lane",
        "lane_ranks",  "lane_gpu",   "alias",        "alias_threads", "capture_gpu",  "hold_gpu",
        "closer",      "lane_keep",  "lane_guard",   "counts",        "behind_split", "private",
        "multicast",   "across",     "across_call",  "across_group",  "across_split", "across_gpu",
        "keep",        "mesh_tcp",   "replay"};
    for (size_t p = 0, known = 0; p < symm_fp_count; p++, known = 0) {
        for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
            if (fk_meets((int)p, scenarios[i])) known += strlen(scenarios[i]) + (known > 0);
        T_CHECKF(known && known == strlen(symm_fail_where((int)p)),
                 "%s: \"%s\" has a scenario that no test drives", symm_fail_name((int)p),
                 symm_fail_where((int)p));
    }
}

T_MAIN(T(ids), T(allocations), T(streams), T(events), T(captures), T(graphs), T(synced_buffers),
       T(groups), T(pages), T(placements), T(arenas), T(reductions), T(reports), T(callbacks),
       T(behind), T(late_ranks), T(every_point_is_driven_somewhere))
