/* unit_synced.c - synced buffers on the host backend: every state times every call, Caffe's cases,
 * the order of copies behind streams that are held up, ownership, dirty ranges, captures,
 * refusals. Peers: thr_synced.c; GPUs: unit_gpu_synced.c. */
#include <pthread.h>
#include <stdio.h>

#include "host/synced/dirty_ranges.h"
#include "base/stats.h"
#include "synced_kit.h"

static symmComm_t comm;
static symmHeap_t heap;

static void start(void) {
    heap = sy_world(&comm);
}
static void stop(void) {
    sy_world_end(comm, heap);
}

/* ---- states ---- */

static void caffes_cases(void) {
    start();
    symmStream_t streams[] = {NULL, sy_stream()};
    for (int i = 0; i < 2; i++) {
        sy_case_initialization(heap);
        sy_case_allocation(heap, &sy_host, streams[i]);
        sy_case_cpu_write(heap, streams[i]);
        sy_case_gpu_read(heap, &sy_host, streams[i]);
        sy_case_gpu_write(heap, &sy_host, streams[i]);
    }
    T_OK(symmStreamDestroy(streams[1]));
    stop();
}

/* Foreign memory is exactly as long as it must be: AddressSanitizer watches its ends. */
static void every_state_times_every_call(void) {
    T_EXPECT_WARNINGS();
    start();
    symmStream_t streams[] = {NULL, sy_stream()};
    for (int i = 0; i < 2; i++) {
        sy_walk w = {.heap = heap,
                     .device = &sy_host,
                     .stream = streams[i],
                     .own_cpu = malloc(SY_BYTES),
                     .own_gpu = malloc(SY_BYTES)};
        sy_table(&w);
        free(w.own_cpu);
        free(w.own_gpu);
    }
    T_OK(symmStreamDestroy(streams[1]));
    stop();
}

static void a_buffer_of_nothing(void) {
    T_EXPECT_WARNINGS();
    start();
    symmSynced_t s = sy_new(heap, 0);
    T_CHECK(sy_cpu(s, NULL) && sy_gpu(s, NULL));
    T_ERR(symmSyncedDirty(s, 0, 0), symmInvalidUsage);
    sy_mut_gpu(s, NULL, 1);
    sy_cpu(s, NULL);
    T_EQ(sy_head(s), SYMM_SYNCED_SYNCED);
    T_OK(symmSyncedDestroy(s));
    stop();
}

/* ---- copies behind a stream that is held up ---- */

static sy_gate gate;
static symmStream_t held, other;

static void hold(void) {
    held = sy_stream();
    other = sy_stream();
    gate = (sy_gate){0, 0};
    T_OK(symmStreamHostFunc(held, sy_pass, &gate));
}
static void let_go(void) {
    sy_open(&gate);
    T_OK(symmStreamDestroy(held));
    T_OK(symmStreamDestroy(other));
}

/* The race of Caffe's async_gpu_push: it calls the buffer SYNCED while the copy is under way. */
static void a_reader_comes_after_a_push(void) {
    char *seen = malloc(SY_BYTES);
    start();
    hold();
    symmSynced_t s = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(s, NULL, 1), 5, SY_BYTES);
    T_OK(symmSyncedPush(s, held));
    T_EQ(sy_head(s), SYMM_SYNCED_PUSHING);
    /* a host reader needs no copy, so it does not wait */
    sy_all(sy_cpu(s, NULL), 5, SY_BYTES, "host side");
    memset(seen, 0, SY_BYTES);
    sy_give(other, sy_run_get, (sy_work){seen, sy_gpu(s, other), 0, SY_BYTES});
    usleep(20000);
    T_ERR(symmStreamQuery(other), symmInProgress); /* ordered, and nobody waited */
    T_EQ(sy_head(s), SYMM_SYNCED_PUSHING);
    sy_open(&gate);
    T_OK(symmStreamSynchronize(other));
    sy_all(seen, 5, SY_BYTES, "device side");
    T_EQ(sy_head(s), SYMM_SYNCED_SYNCED);
    T_OK(symmSyncedDestroy(s));
    let_go();
    stop();
    free(seen);
}

static void a_writer_waits_for_a_push(void) {
    pthread_t opener;
    start();
    hold();
    symmSynced_t s = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(s, NULL, 1), 5, SY_BYTES);
    T_OK(symmSyncedPush(s, held));
    T_EQ(pthread_create(&opener, NULL, sy_open_later, &gate), 0);
    char *p = sy_mut_cpu(s, NULL, 1);
    T_EQ(atomic_load(&gate.open), 1);
    memset(p, 6, SY_BYTES);
    T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_CPU);
    sy_device_all(&sy_host, s, other, 6, SY_BYTES);
    pthread_join(opener, NULL);
    T_OK(symmSyncedDestroy(s));
    let_go();
    stop();
}

/* A device writer goes behind the push, and what it writes is what is found; the push does not come
 * over it. */
static void a_device_writer_comes_after_a_push(void) {
    start();
    hold();
    symmSynced_t s = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(s, NULL, 1), 5, SY_BYTES);
    T_OK(symmSyncedPush(s, held));
    sy_host_set(sy_mut_gpu(s, other, 1), 7, SY_BYTES, other);
    T_EQ(sy_head(s), SYMM_SYNCED_HEAD_AT_GPU);
    usleep(10000);
    sy_open(&gate);
    sy_all(sy_cpu(s, other), 7, SY_BYTES, "host side");
    T_OK(symmSyncedDestroy(s));
    let_go();
    stop();
}

static void a_reader_waits_for_a_pull(void) {
    pthread_t opener;
    start();
    hold();
    symmSynced_t s = sy_new(heap, SY_BYTES);
    sy_host_set(sy_mut_gpu(s, held, 1), 8, SY_BYTES, held);
    T_OK(symmSyncedPull(s, held));
    T_EQ(sy_head(s), SYMM_SYNCED_PULLING);
    T_OK(symmSyncedPull(s, other)); /* nothing to copy: `other` is ordered behind it */
    T_OK(symmSyncedPush(s, other));
    T_ERR(symmStreamQuery(other), symmInProgress);
    T_EQ(pthread_create(&opener, NULL, sy_open_later, &gate), 0);
    sy_all(sy_cpu(s, NULL), 8, SY_BYTES, "host side");
    T_EQ(sy_head(s), SYMM_SYNCED_SYNCED);
    pthread_join(opener, NULL);
    T_OK(symmSyncedDestroy(s));
    let_go();
    stop();
}

/* Discarded, then used again, while the old push is under way. */
static void contents_that_were_discarded_stay_away(void) {
    start();
    hold();
    symmSynced_t s = sy_new(heap, SY_BYTES);
    memset(sy_mut_cpu(s, NULL, 1), 5, SY_BYTES);
    T_OK(symmSyncedPush(s, held));
    const uint64_t used = sy_used(heap);
    T_OK(symmSyncedDiscard(s));
    T_EQ(sy_head(s), SYMM_SYNCED_UNINITIALIZED);
    const char *zeros = sy_gpu(s, other);
    T_EQ(sy_used(heap), used); /* its memory was kept */
    usleep(10000);
    sy_open(&gate);
    char *seen = malloc(SY_BYTES);
    sy_host_get(seen, zeros, SY_BYTES, other);
    sy_all(seen, 0, SY_BYTES, "after a discard");
    free(seen);
    T_OK(symmSyncedDestroy(s));
    let_go();
    stop();
}

/* Destroy and Set wait: the copy's memory is freed behind them. */
static void destroy_and_set_wait_for_a_push(void) {
    for (int set = 0; set < 3; set++) {
        pthread_t opener;
        char *mine = malloc(SY_BYTES);
        start();
        hold();
        symmSynced_t s = sy_new(heap, SY_BYTES);
        if (set == 2) { /* the caller's memory may be freed when a call has taken it away */
            memset(mine, 5, SY_BYTES);
            T_OK(symmSyncedSetCpu(s, mine));
        } else {
            memset(sy_mut_cpu(s, NULL, 1), 5, SY_BYTES);
        }
        T_OK(symmSyncedPush(s, held));
        T_EQ(pthread_create(&opener, NULL, sy_open_later, &gate), 0);
        if (set == 1) T_OK(symmSyncedSetCpu(s, mine));
        if (set == 2) T_OK(symmSyncedDiscard(s));
        if (set) T_EQ(atomic_load(&gate.open), 1);
        if (set == 2) free(mine);
        T_OK(symmSyncedDestroy(s));
        T_EQ(atomic_load(&gate.open), 1);
        pthread_join(opener, NULL);
        if (set != 2) free(mine);
        let_go();
        stop();
    }
}

/* ---- a random walk beside a model ---- */

enum { WALK_BYTES = 1500, WALK_STREAMS = 3 };
static char want[WALK_BYTES];
static uint64_t walk_state;
static symmStream_t walk_stream[WALK_STREAMS];
static symmEvent_t written; /* the test's own last work on the device side */

static uint32_t roll(uint32_t n) {
    return (uint32_t)t_draw(&walk_state, n);
}

static void nap(void *arg) {
    (void)arg;
    usleep(300);
}

static void check_device_later(void *arg) {
    char *expected = arg; /* want, then the address */
    const char *p;
    memcpy(&p, expected + WALK_BYTES, sizeof p);
    T_CHECK(memcmp(p, expected, WALK_BYTES) == 0);
    free(expected);
}

/* The caller's own device work is the caller's to order; the library's copies are not. */
static void own_work(symmStream_t stream, void (*fn)(void *), void *arg) {
    T_OK(symmStreamHostFunc(stream, fn, arg));
    T_OK(symmEventRecord(written, stream));
}

static void walk_write(symmSynced_t s, int device, symmStream_t stream) {
    const int over = roll(4) == 0, name = roll(2);
    const size_t from = over ? 0 : roll(WALK_BYTES),
                 len = over ? WALK_BYTES : roll(WALK_BYTES - (uint32_t)from + 1);
    const int value = (int)roll(120) + 1;
    char *p = device ? sy_mut_gpu(s, stream, !over) : sy_mut_cpu(s, stream, !over);
    memset(want + from, value, len);
    if (device) {
        sy_work *w = malloc(sizeof *w);
        T_CHECK(w != NULL);
        *w = (sy_work){p + from, NULL, value, len};
        own_work(stream, sy_run_set, w);
    } else {
        memset(p + from, value, len);
    }
    if (name) T_OK(symmSyncedDirty(s, from, len));
}

static void walk_read(symmSynced_t s, int device, symmStream_t stream) {
    if (!device) {
        T_CHECK(memcmp(sy_cpu(s, stream), want, WALK_BYTES) == 0);
        return;
    }
    const char *p = sy_gpu(s, stream);
    char *expected = malloc(WALK_BYTES + sizeof p);
    T_CHECK(expected != NULL);
    memcpy(expected, want, WALK_BYTES);
    memcpy(expected + WALK_BYTES, &p, sizeof p);
    own_work(stream, check_device_later, expected);
}

static void walk_step(symmSynced_t s) {
    symmStream_t stream = walk_stream[roll(WALK_STREAMS)];
    const int device = (int)roll(2), state = sy_head(s);
    if (stream && roll(3) == 0) T_OK(symmStreamHostFunc(stream, nap, NULL));
    T_OK(symmStreamWaitEvent(stream, written));
    switch (roll(6)) {
    case 0:
    case 1: walk_write(s, device, stream); break;
    case 2:
    case 3: walk_read(s, device, stream); break;
    case 4:
        if (roll(10) == 0) {
            T_OK(symmEventSynchronize(written)); /* the caller's work on it has ended */
            T_OK(symmSyncedDiscard(s));
            memset(want, 0, sizeof want);
        }
        break;
    default:
        if (state == SYMM_SYNCED_HEAD_AT_CPU) T_OK(symmSyncedPush(s, stream));
        if (state == SYMM_SYNCED_HEAD_AT_GPU) T_OK(symmSyncedPull(s, stream));
    }
}

static void a_random_walk_never_reads_what_is_old(void) {
    const char *seed = getenv("T_SEED");
    walk_state = seed ? strtoull(seed, NULL, 0) : 20240611;
    fprintf(stderr, "T_SEED=%llu\n", (unsigned long long)walk_state);
    start();
    for (int i = 1; i < WALK_STREAMS; i++) walk_stream[i] = sy_stream();
    T_OK(symmEventCreate(&written));
    symmSynced_t s = sy_new(heap, WALK_BYTES);
    for (int i = 0; i < 3000; i++) walk_step(s);
    T_OK(symmEventSynchronize(written));
    T_OK(symmSyncedDestroy(s));
    T_OK(symmEventDestroy(written));
    for (int i = 1; i < WALK_STREAMS; i++) T_OK(symmStreamDestroy(walk_stream[i]));
    stop();
}

T_MAIN(T(caffes_cases), T(every_state_times_every_call), T(a_buffer_of_nothing),
       T(a_reader_comes_after_a_push), T(a_writer_waits_for_a_push),
       T(a_device_writer_comes_after_a_push), T(a_reader_waits_for_a_pull),
       T(contents_that_were_discarded_stay_away), T(destroy_and_set_wait_for_a_push),
       T(a_random_walk_never_reads_what_is_old))
