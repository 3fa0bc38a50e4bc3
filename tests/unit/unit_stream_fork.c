/* unit_stream_fork.c - children that are forked by a function which a stream or a graph runs: they
 * are no workers, and may wait. */
#include <sys/wait.h>
#include <unistd.h>

#include "symm_stream.h"
#include "t.h"

/* ThreadSanitizer itself ends a forked child that starts threads. */
enum { CHILD_MAY_START_THREADS = !T_TSAN };

static void nothing(void *arg) {
    (void)arg;
}

/* What the child cannot do is its exit status. */
static int use_new_stream(void) {
    symmStream_t own = NULL;
    if (symmStreamCreate(&own) || symmStreamHostFunc(own, nothing, NULL)) return 1;
    if (symmStreamSynchronize(own)) return 2;
    return symmStreamDestroy(own) ? 3 : 0;
}

static void fork_here(void *status) {
    const pid_t pid = fork();
    if (pid == 0) _exit(CHILD_MAY_START_THREADS ? use_new_stream() : 0);
    if (pid < 0 || waitpid(pid, status, 0) != pid) *(int *)status = -1;
}

static void a_child_of_a_streams_function_may_wait(void) {
    symmStream_t s;
    int status = -1;
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamHostFunc(s, fork_here, &status));
    T_OK(symmStreamSynchronize(s));
    T_EQ(status, 0);
    T_OK(symmStreamDestroy(s));
}

static symmGraphExec_t capture(void (*fn)(void *), void *arg) {
    symmStream_t s;
    symmGraph_t g;
    symmGraphExec_t e = NULL;
    T_OK(symmStreamCreate(&s));
    T_OK(symmStreamBeginCapture(s));
    T_OK(symmStreamHostFunc(s, fn, arg));
    T_OK(symmStreamEndCapture(s, &g));
    T_OK(symmGraphInstantiate(g, &e));
    T_OK(symmGraphDestroy(g));
    T_OK(symmStreamDestroy(s));
    return e;
}

static void fork_and_go_on(void *status) {
    const pid_t pid = fork();
    if (pid > 0 && waitpid(pid, status, 0) != pid) *(int *)status = -1;
}

/* In the child the replay ends, and leaves the thread as it was before. */
static void a_child_of_a_replay_may_wait_behind_it(void) {
    int status = -1;
    symmGraphExec_t e = capture(fork_and_go_on, &status);
    const pid_t parent = getpid();
    T_OK(symmGraphLaunch(e, NULL));
    if (getpid() != parent) _exit(CHILD_MAY_START_THREADS ? use_new_stream() : 0);
    T_EQ(status, 0);
    T_OK(symmGraphExecDestroy(e));
}

T_MAIN(T(a_child_of_a_streams_function_may_wait), T(a_child_of_a_replay_may_wait_behind_it))
