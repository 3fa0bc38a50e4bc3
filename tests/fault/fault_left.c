/* fault_left.c - a rank that waits for those that are left (symmCommShrink, symmCommFailedRanks
 * with SYMM_FAILED_AGREE), alone: another thread's symmCommAbort ends the wait, and one thread
 * that drives several ranks is told. Thread ranks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/stats.h"
#include "coll_kit.h"

enum { AGREE, SHRINK, SHRINK_FAILED, SPLIT };

typedef struct {
    symmComm_t comm;
    int what;
    symmResult_t result;
} waiter;

static symmResult_t wait_for_others(symmComm_t comm, int what) {
    symmComm_t child;
    int n;
    if (what == AGREE) return symmCommFailedRanks(comm, SYMM_FAILED_AGREE, NULL, 0, &n);
    if (what == SPLIT) return symmCommSplit(comm, 0, 0, &child, NULL);
    return symmCommShrink(comm, NULL, 0, &child, NULL,
                          what == SHRINK_FAILED ? SYMM_SHRINK_FAILED : 0);
}

static void *waits(void *arg) {
    waiter *w = arg;
    w->result = wait_for_others(w->comm, w->what);
    if (w->result == symmAborted) T_MSG(symmGetLastError(NULL), "symmCommAbort");
    return NULL;
}

/* Without a look at the abort the wait ends at its deadline, with symmTimeout. */
static void an_abort_ends_it(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_SETUP_TIMEOUT", "20000", 1);
    for (int what = AGREE; what <= SHRINK_FAILED; what++) {
        symmComm_t comm[2];
        pthread_t t;
        T_OK(symmCommInitAll(comm, 2, NULL));
        waiter w = {comm[0], what, symmSuccess};
        T_EQ(pthread_create(&t, NULL, waits, &w), 0);
        usleep(50000);
        T_OK(symmCommAbort(comm[0]));
        pthread_join(t, NULL);
        T_EQ(w.result, symmAborted);
        T_OK(symmCommDestroy(comm[1]));
    }
}

static void one_thread_is_told(int what) {
    symmComm_t comm[2];
    T_EXPECT_WARNINGS();
    setenv("SYMM_SETUP_TIMEOUT", "1500", 1);
    T_OK(symmCommInitAll(comm, 2, NULL));
    const int64_t before = (int64_t)SYMM_STAT_GET(log_warnings);
    T_ERR(wait_for_others(comm[0], what), symmTimeout);
    T_MSG(symmGetLastError(NULL), "this same thread called or made it last");
    T_CHECK((int64_t)SYMM_STAT_GET(log_warnings) >= before + 2); /* after a second, and the error */
    for (int r = 0; r < 2; r++) T_OK(symmCommDestroy(comm[r]));
}

static void one_thread_that_agrees(void) {
    one_thread_is_told(AGREE);
}
static void one_thread_that_shrinks(void) {
    one_thread_is_told(SHRINK_FAILED);
}
static void one_thread_that_splits(void) {
    one_thread_is_told(SPLIT);
}

T_MAIN(T(an_abort_ends_it), T(one_thread_that_agrees), T(one_thread_that_shrinks),
       T(one_thread_that_splits))
