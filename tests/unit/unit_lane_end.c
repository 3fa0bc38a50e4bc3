/* unit_lane_end.c - the end of a communicator beside another thread that launches and destroys
 * graphs. One rank; the test's thread ends it. */
#include <unistd.h>

#include "base/fail.h"
#include "graph_kit.h"
#include "lane_kit.h"

enum { BYTES = 4096, DELAY_MS = 300 };

typedef struct {
    symmStream_t stream;
    symmGraph_t calls, memory;
    lk_gate gate;
} late;

/* Launches when the end no longer waits for what was under way before; so it waits for this launch
 * by itself. That goes on when this thread has destroyed a graph with memory. */
static void *launch_late(void *arg) {
    late *l = arg;
    while (!symm_fail_hits(symm_fp_comm_ends)) sched_yield();
    lk_hold(l->stream, &l->gate);
    T_OK(symmGraphLaunch(xg_exec(l->calls), l->stream));
    usleep(2 * DELAY_MS * 1000);
    T_OK(xg_destroy(l->memory));
    atomic_store(&l->gate.open, 1);
    return NULL;
}

static void a_graph_with_memory_ends_while_its_communicator_waits(void) {
    lk k;
    late l = {.stream = NULL};
    pthread_t other;
    char spec[64];
    T_EXPECT_WARNINGS();
    lk_alone(&k, 1);
    l.stream = k.stream[0];
    T_OK(symmStreamBeginCapture(l.stream));
    T_OK(symmBarrier(k.comm, l.stream));
    l.calls = lk_end(l.stream);
    T_OK(symmStreamBeginCapture(l.stream));
    char *p = lk_local(k.lane[0], BYTES);
    lk_fill(l.stream, p, BYTES, 3);
    lk_free(k.lane[0], p);
    l.memory = lk_end(l.stream);
    T_OK(symmGraphLaunch(xg_exec(l.memory), l.stream));
    snprintf(spec, sizeof spec, "comm_ends:delay=%d:1", DELAY_MS);
    T_EQ(symm_fail_arm(spec), 0);
    T_EQ(pthread_create(&other, NULL, launch_late, &l), 0);
    T_OK(symmCommDestroy(k.comm));
    T_CHECK(atomic_load(&l.gate.open)); /* it has waited for that launch */
    pthread_join(other, NULL);
    T_EQ(symm_fail_arm(""), 0);
    T_ERR(symmStreamSynchronize(l.stream), symmInvalidUsage); /* it came too late to run */
    T_MSG(symmGetLastError(NULL), "replayed after its communicator");
    T_OK(symmLaneDestroy(k.lane[0]));
    T_OK(xg_destroy(l.calls));
    T_OK(symmStreamDestroy(l.stream));
    T_EQ(SYMM_STAT_GET(lanes) + SYMM_STAT_GET(plans) + SYMM_STAT_GET(comms), 0);
}

T_MAIN(T_TIMEOUT(a_graph_with_memory_ends_while_its_communicator_waits, 20))
