/* unit_synced_use.c - synced buffers on the host backend: dirty ranges, ownership, captures, the
 * generation, what is refused, what happens when something fails, the dump. States and the order
 * of copies: unit_synced.c. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

#include "host/synced/dirty_ranges.h"
#include "base/fail.h"
#include "host/heap/heap.h"
#include "base/stats.h"
#include "graph_kit.h"
#include "synced_kit.h"

static symmComm_t comm;
static symmHeap_t heap;

static void start(void) {
    heap = sy_world(&comm);
}
static void stop(void) {
    sy_world_end(comm, heap);
}

/* ---- dirty ranges ---- */

enum { SPACE = 400 };

/* What is listed covers what was named, is in order, and is no more than that while ranges are
 * few. */
static void check_list(const symm_dirty *d, const char *named, int few) {
    symm_dirty_range list[SYMM_DIRTY_MAX];
    char listed[SPACE] = {0};
    uint64_t last = 0;
    const int n = symm_dirty_list(d, SPACE, list);
    T_CHECK(n <= SYMM_DIRTY_MAX);
    for (int i = 0; i < n; i++) {
        T_CHECK(list[i].from < list[i].to && list[i].to <= SPACE);
        T_CHECK(!i || list[i].from > last);
        last = list[i].to;
        memset(listed + list[i].from, 1, list[i].to - list[i].from);
    }
    for (int i = 0; i < SPACE; i++) {
        T_CHECK(!named[i] || listed[i]);
        T_CHECK(!few || named[i] == listed[i]);
    }
}

static void ranges_cover_what_was_named(void) {
    uint64_t x = 7;
    for (int round = 0; round < 2000; round++) {
        symm_dirty d;
        char named[SPACE] = {0};
        const int count = round % 40, most = round % 3 ? 8 : 60;
        symm_dirty_start(&d, 1);
        for (int i = 0; i < count; i++) {
            t_roll(&x);
            const uint64_t from = (x >> 33) % SPACE, len = (x >> 20) % (unsigned)most;
            const uint64_t cut = len < SPACE - from ? len : SPACE - from;
            symm_dirty_hand_out(&d);
            symm_dirty_name(&d, from, cut);
            memset(named + from, 1, cut);
            symm_dirty_check(&d, SPACE);
            check_list(&d, named, i < SYMM_DIRTY_MAX);
        }
    }
}

static void a_writer_that_names_nothing_makes_it_all_dirty(void) {
    symm_dirty_range list[SYMM_DIRTY_MAX];
    symm_dirty d;
    symm_dirty_start(&d, 1);
    T_EQ(symm_dirty_list(&d, 100, list), 0);
    symm_dirty_hand_out(&d);
    T_EQ(symm_dirty_list(&d, 100, list), 1);
    T_CHECK(list[0].from == 0 && list[0].to == 100);
    symm_dirty_name(&d, 10, 5);
    T_EQ(symm_dirty_list(&d, 100, list), 1);
    T_CHECK(list[0].from == 10 && list[0].to == 15);
    symm_dirty_hand_out(&d); /* this one names nothing */
    symm_dirty_hand_out(&d);
    symm_dirty_name(&d, 90, 1);
    T_EQ(symm_dirty_list(&d, 100, list), 1);
    T_CHECK(list[0].from == 0 && list[0].to == 100);
    symm_dirty_start(&d, 0); /* sides that differ: naming cannot help */
    symm_dirty_hand_out(&d);
    symm_dirty_name(&d, 90, 1);
    T_EQ(symm_dirty_list(&d, 100, list), 1);
    T_CHECK(list[0].to == 100);
}

/* The test writes elsewhere too and does not say so: those bytes must stay behind. */
static void only_named_ranges_are_copied(void) {
    char seen[SY_BYTES];
    start();
    symmStream_t stream = sy_stream();
    for (int down = 0; down < 2; down++) {
        symmSynced_t s = sy_new(heap, SY_BYTES);
        memset(sy_mut_cpu(s, stream, 1), 1, SY_BYTES);
        sy_gpu(s, stream);
        char *p = down ? sy_mut_gpu(s, stream, 1) : sy_mut_cpu(s, stream, 1);
        T_OK(symmStreamSynchronize(stream));
        memset(p, 9, SY_BYTES);
        T_OK(symmSyncedDirty(s, 100, 50));
        T_OK(symmSyncedDirty(s, SY_BYTES - 3, 3));
        if (down)
            memcpy(seen, sy_cpu(s, stream), SY_BYTES);
        else
            sy_host_get(seen, sy_gpu(s, stream), SY_BYTES, stream);
        for (int i = 0; i < SY_BYTES; i++)
            T_EQ(seen[i], (i >= 100 && i < 150) || i >= SY_BYTES - 3 ? 9 : 1);
        T_OK(symmSyncedDestroy(s));
    }
    T_OK(symmStreamDestroy(stream));
    stop();
}

/* ---- whose memory ---- */

/* Freed exactly once, by its owner: AddressSanitizer and the gauges see anything else. */
static void only_own_memory_is_freed(void) {
    start();
    char *a = malloc(SY_BYTES), *b = malloc(SY_BYTES);
    memset(a, 1, SY_BYTES);
    symmSynced_t s = sy_new(heap, SY_BYTES);
    sy_mut_cpu(s, NULL, 1);
    sy_gpu(s, NULL);
    const uint64_t used = sy_used(heap);
    T_EQ(SYMM_STAT_GET(synced_bytes), SY_BYTES);
    T_OK(symmSyncedSetCpu(s, a)); /* its own host side is freed */
    T_EQ(SYMM_STAT_GET(synced_bytes), 0);
    T_CHECK(sy_cpu(s, NULL) == a);
    sy_device_all(&sy_host, s, NULL, 1, SY_BYTES);
    T_OK(symmSyncedSetGpu(s, b)); /* its block too; the word stays */
    T_CHECK(sy_used(heap) < used && sy_used(heap) > 0);
    T_CHECK(sy_gpu(s, NULL) == b);
    memset(sy_mut_gpu(s, NULL, 1), 2, SY_BYTES);
    sy_all(sy_cpu(s, NULL), 2, SY_BYTES, "pulled into the caller's memory");
    T_CHECK(a[0] == 2 && a[SY_BYTES - 1] == 2);
    T_OK(symmSyncedSetCpu(s, b)); /* from one pointer of the caller's to another, and back */
    T_OK(symmSyncedSetCpu(s, a));
    T_OK(symmSyncedDiscard(s)); /* lets both go */
    memset(a, 0x55, SY_BYTES);
    memset(b, 0x55, SY_BYTES);
    sy_all(sy_cpu(s, NULL), 0, SY_BYTES, "own memory again");
    sy_device_all(&sy_host, s, NULL, 0, SY_BYTES);
    sy_all(a, 0x55, SY_BYTES, "the caller's");
    sy_all(b, 0x55, SY_BYTES, "the caller's");
    free(a);
    free(b);
    T_OK(symmSyncedDestroy(s));
    stop();
}

/* The heap's handle may go first. */
static void a_buffer_outlives_its_heaps_handle(void) {
    T_EXPECT_WARNINGS();
    const void *p;
    start();
    symmSynced_t s = sy_new(heap, SY_BYTES), late = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(s, NULL, 1), 3, SY_BYTES);
    sy_gpu(s, NULL);
    T_OK(symmHeapDestroy(heap));
    sy_device_all(&sy_host, s, NULL, 3, SY_BYTES);
    memset(sy_mut_gpu(s, NULL, 1), 4, SY_BYTES);
    sy_all(sy_cpu(s, NULL), 4, SY_BYTES, "after the heap's end");
    T_ERR(symmSyncedGpu(late, NULL, &p), symmInvalidArgument); /* nothing new can be had there */
    sy_all(sy_cpu(late, NULL), 0, SY_BYTES, "its host side");
    T_OK(symmSyncedDestroy(s));
    T_OK(symmSyncedDestroy(late));
    T_OK(symmCommDestroy(comm));
}

/* A publication without a stream waits for the push before it, so nothing is under way then. */
static void a_push_is_over_after_a_publication_without_a_stream(void) {
    sy_gate gate = {0};
    pthread_t opener;
    start();
    symmStream_t stream = sy_stream();
    symmSynced_t s = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(s, NULL, 1), 1, SY_BYTES);
    T_OK(symmStreamHostFunc(stream, sy_pass, &gate));
    T_OK(symmSyncedPush(s, stream));
    T_EQ(sy_head(s), SYMM_SYNCED_PUSHING);
    T_EQ(pthread_create(&opener, NULL, sy_open_later, &gate), 0);
    T_OK(symmSyncedPublish(s, NULL, NULL));
    T_EQ(sy_head(s), SYMM_SYNCED_SYNCED);
    pthread_join(opener, NULL);
    T_OK(symmSyncedDestroy(s));
    T_OK(symmStreamDestroy(stream));
    stop();
}

/* ---- captures ---- */

/* Replays copy what is there when they run; the buffer's state is not theirs. */
static void pushes_and_pulls_are_captured(void) {
    symmGraph_t up, down;
    start();
    symmStream_t stream = sy_stream();
    symmSynced_t s = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(s, NULL, 1), 1, SY_BYTES);
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmSyncedPush(s, stream));
    T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_CPU);
    T_OK(symmStreamEndCapture(stream, &up));
    T_OK(symmStreamBeginCapture(stream));
    T_OK(symmSyncedPull(s, stream));
    T_OK(symmStreamEndCapture(stream, &down));
    for (int i = 2; i < 5; i++) {
        memset(sy_mut_cpu(s, stream, 0), i, SY_BYTES);
        T_OK(symmGraphLaunch(xg_exec(up), stream));
        char *p = sy_mut_gpu(s, stream, 0); /* the caller says where the head is */
        char seen[SY_BYTES];
        sy_host_get(seen, p, SY_BYTES, stream);
        sy_all(seen, i, SY_BYTES, "after a replay");
        sy_host_set(p, i + 10, SY_BYTES, stream);
        T_OK(symmGraphLaunch(xg_exec(down), stream));
        T_OK(symmStreamSynchronize(stream));
        sy_all(sy_mut_cpu(s, stream, 0), i + 10, SY_BYTES, "after a replay down");
    }
    /* the graph's memory outlives the buffer */
    T_OK(symmSyncedDestroy(s));
    T_CHECK(sy_used(heap) > 0 && SYMM_STAT_GET(synced_bytes) == SY_BYTES);
    T_OK(symmGraphLaunch(xg_exec(up), stream));
    T_OK(symmStreamSynchronize(stream));
    T_OK(xg_destroy(up));
    T_OK(xg_destroy(down));
    T_OK(symmStreamDestroy(stream));
    stop();
}

static void a_capture_takes_no_copy_that_would_run_now(void) {
    const void *p;
    void *q;
    uint32_t g;
    symmGraph_t graph;
    T_EXPECT_WARNINGS();
    start();
    symmStream_t stream = sy_stream(), eager = sy_stream();
    symmSynced_t s = sy_new(heap, SY_BYTES), fresh = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(s, NULL, 1), 1, SY_BYTES);
    T_OK(symmStreamBeginCapture(stream));
    T_ERR(symmSyncedGpu(s, stream, &p), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "is under capture and the device side is old");
    T_ERR(symmSyncedMutableGpu(s, stream, 1, &q), symmInvalidUsage);
    T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_CPU);
    T_ERR(symmSyncedPublish(s, stream, &g), symmInvalidUsage);
    T_ERR(symmSyncedPush(fresh, stream), symmInvalidUsage); /* there is nothing on either side */
    T_ERR(symmSyncedPull(fresh, stream), symmInvalidUsage);
    T_EQ(sy_head(fresh), SYMM_SYNCED_UNINITIALIZED);
    /* what is up to date may be used, also where an eager stream has just brought it */
    sy_gpu(s, eager);
    T_CHECK(sy_gpu(s, stream) != NULL);
    sy_host_set(sy_mut_gpu(s, stream, 1), 6, SY_BYTES, stream);
    T_ERR(symmSyncedCpu(s, stream, &p), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "the host side is old");
    /* a first touch is filled now, not at the replay */
    const char *zeros = sy_gpu(fresh, stream);
    sy_all(zeros, 0, SY_BYTES, "first touch in a capture");
    T_OK(symmStreamEndCapture(stream, &graph));
    T_OK(symmGraphLaunch(xg_exec(graph), stream));
    sy_all(sy_cpu(s, stream), 6, SY_BYTES, "written by the replay");
    T_OK(xg_destroy(graph));
    T_OK(symmSyncedDestroy(s));
    T_OK(symmSyncedDestroy(fresh));
    T_OK(symmStreamDestroy(stream));
    T_OK(symmStreamDestroy(eager));
    stop();
}

/* ---- the generation ---- */

static uint32_t generation(symmSynced_t s) {
    uint32_t g = 77;
    T_OK(symmSyncedGeneration(s, 0, &g));
    return g;
}

static void the_generation_counts_what_reached_the_device(void) {
    symmRef_t data, word;
    uint32_t g;
    void *p;
    start();
    symmSynced_t s = sy_new(heap, SY_BYTES);
    T_EQ(generation(s), 0);
    sy_mut_cpu(s, NULL, 1);
    T_EQ(generation(s), 0);
    sy_gpu(s, NULL); /* a copy */
    T_EQ(generation(s), 1);
    sy_gpu(s, NULL);
    sy_mut_gpu(s, NULL, 1); /* no copy */
    T_EQ(generation(s), 1);
    T_OK(symmSyncedPublish(s, NULL, &g));
    T_CHECK(g == 2 && generation(s) == 2);
    sy_mut_cpu(s, NULL, 1);
    T_OK(symmSyncedPush(s, NULL));
    T_EQ(generation(s), 3);
    T_OK(symmSyncedRef(s, &data, &word));
    T_EQ(data.len, SY_BYTES);
    T_EQ(word.len, sizeof(uint64_t));
    T_OK(symmRefPtr(&data, comm, SYMM_REF_OWNER, &p));
    T_CHECK(p == (const void *)sy_gpu(s, NULL));
    T_OK(symmSyncedPoll(&word, comm, SYMM_REF_OWNER, &g));
    T_EQ(g, 3);
    T_OK(symmSyncedSetGpu(s, memset(malloc(SY_BYTES), 0, SY_BYTES)));
    void *foreign = sy_mut_gpu(s, NULL, 1);
    T_OK(symmSyncedRef(s, NULL, &word)); /* where it was */
    T_OK(symmSyncedPoll(&word, comm, SYMM_REF_OWNER, &g));
    T_EQ(g, 3);
    T_OK(symmSyncedDestroy(s));
    free(foreign);
    stop();
}

/* ---- what is refused ---- */

static void bad_arguments(void) {
    symmSynced_t s = NULL, none = NULL;
    symmRef_t data, word;
    const void *p;
    void *q;
    uint32_t g;
    size_t bytes;
    int state;
    T_EXPECT_WARNINGS();
    start();
    T_ERR(symmSyncedCreate(NULL, 1, 0, &s), symmInvalidArgument);
    T_ERR(symmSyncedCreate(heap, 1, 2, &s), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "flags=2");
    T_ERR(symmSyncedCreate(heap, 1, 0, NULL), symmInvalidArgument);
    s = sy_new(heap, 100);
    T_ERR(symmSyncedCpu(s, NULL, NULL), symmInvalidArgument);
    T_ERR(symmSyncedGpu(s, NULL, NULL), symmInvalidArgument);
    T_ERR(symmSyncedMutableCpu(s, NULL, 1, NULL), symmInvalidArgument);
    T_ERR(symmSyncedMutableGpu(s, NULL, 1, NULL), symmInvalidArgument);
    T_ERR(symmSyncedCpu(s, (symmStream_t)(void *)&bytes, &p), symmInvalidArgument);
    T_ERR(symmSyncedGpu(s, (symmStream_t)(void *)&bytes, &p), symmInvalidArgument);
    T_ERR(symmSyncedPush(s, (symmStream_t)(void *)&bytes), symmInvalidArgument);
    T_ERR(symmSyncedSetCpu(s, NULL), symmInvalidArgument);
    T_ERR(symmSyncedSetGpu(s, NULL), symmInvalidArgument);
    T_ERR(symmSyncedPush(s, NULL), symmInvalidUsage);
    T_MSG(symmGetLastError(NULL), "UNINITIALIZED");
    T_ERR(symmSyncedHead(s, NULL), symmInvalidArgument);
    T_ERR(symmSyncedSize(s, NULL), symmInvalidArgument);
    T_ERR(symmSyncedGeneration(s, 0, NULL), symmInvalidArgument);
    T_ERR(symmSyncedGeneration(s, 1, &g), symmInvalidArgument);
    T_EQ(sy_head(s), SYMM_SYNCED_UNINITIALIZED);
    T_EQ(sy_used(heap), 0); /* none of it touched anything */
    char *own = sy_mut_cpu(s, NULL, 1);
    T_ERR(symmSyncedSetCpu(s, own + 1), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "own memory");
    T_ERR(symmSyncedDirty(s, 101, 0), symmInvalidArgument);
    T_ERR(symmSyncedDirty(s, 50, 51), symmInvalidArgument);
    T_ERR(symmSyncedDirty(s, 1, SIZE_MAX), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL),
          "off=1, len=18446744073709551615: the range must be inside the 100 bytes");
    T_ERR(symmSyncedPull(s, NULL), symmInvalidUsage);
    T_OK(symmSyncedRef(s, &data, NULL));
    T_ERR(symmSyncedPoll(&data, comm, SYMM_REF_OWNER, NULL), symmInvalidArgument);
    word = data;
    word.len = 3;
    T_ERR(symmSyncedPoll(&word, comm, SYMM_REF_OWNER, &g), symmInvalidArgument);
    T_OK(symmSyncedSetGpu(s, own));
    T_ERR(symmSyncedRef(s, &data, NULL), symmInvalidUsage);
    T_OK(symmSyncedDestroy(s));
    T_ERR(symmSyncedDestroy(s), symmInvalidArgument);
    T_ERR(symmSyncedHead(s, &state), symmInvalidArgument);
    T_ERR(symmSyncedMutableGpu(none, NULL, 1, &q), symmInvalidArgument);
    T_ERR(symmSyncedDump(none, 1), symmInvalidArgument);
    stop();
}

static symmSynced_t shared;
static symmResult_t from_inside[2];

static void use_inside(void *arg) {
    sy_gate *g = arg;
    const void *p;
    atomic_store(&g->reached, 1);
    from_inside[0] = symmSyncedMutableCpu(shared, NULL, 1, (void **)&p);
    from_inside[1] = symmSyncedDestroy(shared);
}

/* A function that a stream runs must not wait, not even for a copy. */
static void a_host_function_does_not_wait(void) {
    sy_gate gate = {0, 0}, inside = {0, 0};
    T_EXPECT_WARNINGS();
    start();
    symmStream_t held = sy_stream(), stream = sy_stream();
    shared = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(shared, NULL, 1), 1, SY_BYTES);
    T_OK(symmStreamHostFunc(held, sy_pass, &gate));
    T_OK(symmSyncedPush(shared, held));
    T_OK(symmStreamHostFunc(stream, use_inside, &inside));
    T_OK(symmStreamSynchronize(stream));
    T_EQ(from_inside[0], symmInvalidUsage);
    T_EQ(from_inside[1], symmInvalidUsage);
    T_EQ(sy_head(shared), SYMM_SYNCED_PUSHING);
    sy_open(&gate);
    T_OK(symmSyncedDestroy(shared));
    T_OK(symmStreamDestroy(held));
    T_OK(symmStreamDestroy(stream));
    stop();
}

/* Either may be the second one, as long as it is there alone. */
static void *wait_inside(void *arg) {
    symmResult_t *r = arg;
    void *p;
    do *r = symmSyncedMutableCpu(shared, NULL, 1, &p);
    while (*r == symmInvalidUsage);
    return NULL;
}

static void a_second_thread_is_reported(void) {
    sy_gate gate = {0, 0};
    symmResult_t first = symmInternalError, second = symmSuccess;
    pthread_t thread;
    size_t bytes;
    T_EXPECT_WARNINGS();
    start();
    symmStream_t held = sy_stream();
    shared = sy_new(heap, SY_BYTES);
    sy_mut_cpu(shared, NULL, 1);
    T_OK(symmStreamHostFunc(held, sy_pass, &gate));
    T_OK(symmSyncedPush(shared, held));
    T_EQ(pthread_create(&thread, NULL, wait_inside, &first), 0);
    for (int i = 0; i < 10000 && !second; i++) {
        second = symmSyncedSize(shared, &bytes);
        usleep(100);
    }
    T_EQ(second, symmInvalidUsage);
    sy_open(&gate);
    pthread_join(thread, NULL);
    T_EQ(first, symmSuccess);
    T_OK(symmSyncedSize(shared, &bytes));
    T_OK(symmSyncedDestroy(shared));
    T_OK(symmStreamDestroy(held));
    stop();
}

/* Blocks of SYM go back as use of the communicator: where another thread is inside, the end is
 * refused, and comes later. */
static void an_end_that_is_refused_comes_later(void) {
    symm_heap *h;
    symmSynced_t s = NULL;
    T_EXPECT_WARNINGS();
    start();
    T_OK(symmSyncedCreate(heap, SY_BYTES, SYMM_ALLOC_SYM, &s));
    sy_gpu(s, NULL);
    T_OK(symm_heap_enter(heap, 1, &h));
    T_ERR(symmSyncedDestroy(s), symmInvalidUsage);
    symm_heap_leave(h);
    T_EQ(sy_head(s), SYMM_SYNCED_UNINITIALIZED);
    sy_device_all(&sy_host, s, NULL, 0, SY_BYTES);
    T_OK(symmSyncedDestroy(s));
    stop();
}

/* ---- when something fails ---- */

/* A stream that takes no more, at the first, the second, ... task of a call: the state is as
 * before, and the next try works. */
static void a_copy_that_is_refused_changes_nothing(void) {
    T_EXPECT_WARNINGS();
    start();
    symmStream_t stream = sy_stream();
    for (int nth = 1; nth <= 4; nth++)
        for (int call = 0; call < 2; call++) {
            char spec[64];
            symmSynced_t s = sy_new(heap, SY_BYTES);
            memset(sy_mut_cpu(s, stream, 1), 1, SY_BYTES);
            sy_gpu(s, stream);
            memset(sy_mut_cpu(s, stream, 1), 2, SY_BYTES);
            T_OK(symmSyncedDirty(s, 0, 10)); /* three copies and a generation */
            T_OK(symmSyncedDirty(s, 1000, 10));
            T_OK(symmSyncedDirty(s, SY_BYTES - 10, 10));
            const uint32_t before = generation(s);
            snprintf(spec, sizeof spec, "synced_submit:error:%d", nth);
            T_EQ(symm_fail_arm(spec), 0);
            const void *p = NULL;
            T_ERR(call ? symmSyncedPush(s, stream) : symmSyncedGpu(s, stream, &p), symmOutOfMemory);
            T_EQ(symm_fail_arm(""), 0);
            T_CHECK(p == NULL);
            T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_CPU);
            char seen[SY_BYTES];
            sy_host_get(seen, sy_gpu(s, stream), SY_BYTES, stream);
            T_CHECK(seen[0] == 2 && seen[10] == 1 && seen[1009] == 2 && seen[SY_BYTES - 1] == 2);
            T_EQ(generation(s), before + 1);
            T_OK(symmSyncedDestroy(s));
        }
    T_OK(symmStreamDestroy(stream));
    stop();
}

static void a_full_heap_is_no_end(void) {
    const void *p;
    void *block;
    T_EXPECT_WARNINGS();
    start();
    symmSynced_t s = sy_new(heap, SY_MB);
    memset(sy_mut_cpu(s, NULL, 1), 1, SY_MB);
    T_OK(symmHeapAlloc(heap, 3 * SY_MB / 2, 0, SYMM_ALLOC_LOCAL, &block));
    T_ERR(symmSyncedGpu(s, NULL, &p), symmNeedGrow);
    T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_CPU);
    T_OK(symmHeapFree(heap, block));
    sy_device_all(&sy_host, s, NULL, 1, SY_MB);
    T_OK(symmSyncedDestroy(s));
    stop();
}

/* ---- dump ---- */

static void the_dump_tells(void) {
    char text[1024], path[] = "/tmp/symm-synced-XXXXXX", mine[200];
    int fd = mkstemp(path), closed;
    T_EXPECT_WARNINGS();
    T_CHECK(fd >= 0);
    unlink(path);
    start();
    symmSynced_t s = sy_new(heap, sizeof mine);
    T_OK(symmSyncedSetCpu(s, mine));
    sy_gpu(s, NULL);
    sy_mut_cpu(s, NULL, 1);
    T_OK(symmSyncedDirty(s, 3, 4));
    T_OK(symmSyncedDump(s, fd));
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    T_CHECK(n > 0);
    text[n] = 0;
    T_MSG(text, "200 bytes, LOCAL, HEAD_AT_CPU\n");
    T_MSG(text, "the caller's\n");
    T_MSG(text, "its own\n");
    T_MSG(text, "newer: [3, 7)\n");
    T_MSG(text, "generation: 1\n");
    closed = dup(fd);
    close(closed);
    T_ERR(symmSyncedDump(s, closed), symmSystemError);
    close(fd);
    T_OK(symmSyncedDestroy(s));
    stop();
}

T_MAIN(T(a_push_is_over_after_a_publication_without_a_stream), T(ranges_cover_what_was_named),
       T(a_writer_that_names_nothing_makes_it_all_dirty), T(only_named_ranges_are_copied),
       T(only_own_memory_is_freed), T(a_buffer_outlives_its_heaps_handle),
       T(pushes_and_pulls_are_captured), T(a_capture_takes_no_copy_that_would_run_now),
       T(the_generation_counts_what_reached_the_device), T(bad_arguments),
       T(a_host_function_does_not_wait), T(a_second_thread_is_reported),
       T(an_end_that_is_refused_comes_later), T(a_copy_that_is_refused_changes_nothing),
       T(a_full_heap_is_no_end), T(the_dump_tells))
