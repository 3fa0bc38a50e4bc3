/* unit_graph_event.c - events that are used again in captures of other streams. Capture and replay:
 * unit_graph.c. */
#include <stdatomic.h>

#include "t.h"

enum { STREAMS = 4 };

static atomic_int ran;
static void count(void *arg) {
    (void)arg;
    atomic_fetch_add(&ran, 1);
}

/* A chain over n streams and back to the first; the same event joins all. */
static void chain(symmStream_t *s, int n, symmEvent_t e) {
    symmGraph_t g;
    symmGraphExec_t exec;
    T_OK(symmStreamBeginCapture(s[0]));
    for (int i = 0; i <= n; i++) {
        T_OK(symmStreamHostFunc(s[i % n], count, NULL));
        if (i == n) break;
        T_OK(symmEventRecord(e, s[i]));
        T_OK(symmStreamWaitEvent(s[(i + 1) % n], e));
    }
    T_OK(symmStreamEndCapture(s[0], &g));
    T_OK(symmGraphInstantiate(g, &exec));
    T_OK(symmGraphLaunch(exec, s[0]));
    T_OK(symmStreamSynchronize(s[0]));
    T_EQ(atomic_exchange(&ran, 0), n + 1);
    T_OK(symmGraphExecDestroy(exec));
    T_OK(symmGraphDestroy(g));
}

/* What it knew of a larger capture says nothing of a smaller one. */
static void an_event_goes_from_capture_to_capture(void) {
    static const int lanes[] = {4, 2, 3, 1, 4, 1};
    symmStream_t s[STREAMS];
    symmEvent_t e;
    for (int i = 0; i < STREAMS; i++) T_OK(symmStreamCreate(&s[i]));
    T_OK(symmEventCreate(&e));
    for (int i = 0; i < 6; i++) chain(s, lanes[i], e);
    T_OK(symmEventDestroy(e));
    for (int i = 0; i < STREAMS; i++) T_OK(symmStreamDestroy(s[i]));
}

T_MAIN(T(an_event_goes_from_capture_to_capture))
