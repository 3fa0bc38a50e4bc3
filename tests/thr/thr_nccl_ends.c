/* thr_nccl_ends.c - the drop-in, how communicators are aborted: in a group, and behind their
 * windows while a thread is stuck. On the host backend, both ranks in this process. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/wait.h"
#include "nccl_kit.h"

/* Calls of two communicators behind each other in a stream, the first without its peer; both are
 * aborted in one group, the one behind first. Each abort alone waits for what stands before it. */
static void aborts_behind_each_other(int front_first) {
    ncclComm_t front[2], behind[2];
    symmStream_t stream;
    int x = 1;
    T_EXPECT_WARNINGS();
    setenv("SYMM_BACKEND", "host", 1);
    unsetenv("SYMM_TIMEOUT"); /* the wait in vain has no end */
    N_OK(ncclCommInitAll(front, 2, NULL));
    N_OK(ncclCommInitAll(behind, 2, NULL));
    T_OK(symmStreamCreate(&stream));
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, front[0], (cudaStream_t)stream));
    N_OK(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, behind[0], (cudaStream_t)stream));
    usleep(20000);
    N_OK(ncclGroupStart());
    N_OK(ncclCommAbort(front_first ? front[0] : behind[0]));
    N_OK(ncclCommAbort(front_first ? behind[0] : front[0]));
    N_OK(ncclGroupEnd());
    T_OK(symmStreamDestroy(stream));
    N_ERR(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, front[0], NULL), ncclInvalidArgument);
    N_OK(ncclCommAbort(front[1]));
    N_OK(ncclCommAbort(behind[1]));
}

static void aborts_of_one_stream_in_a_group(void) {
    aborts_behind_each_other(1);
    aborts_behind_each_other(0);
}

typedef struct {
    ncclUniqueId id;
    _Atomic int made, over;
} pair;

/* Needs the other one no more, and so hears nothing of its abort, in a group or not. */
static void *the_peer(void *arg) {
    pair *p = arg;
    ncclResult_t now;
    ncclComm_t comm;
    N_OK(ncclCommInitRank(&comm, 2, p->id, 1));
    atomic_fetch_add(&p->made, 1);
    while (!atomic_load(&p->over)) usleep(100);
    for (int i = 0; i < 50; i++) {
        N_OK(ncclCommGetAsyncError(comm, &now));
        T_EQ(now, ncclSuccess);
        usleep(1000);
    }
    N_OK(ncclCommFinalize(comm));
    N_OK(ncclCommDestroy(comm));
    return NULL;
}

static void the_peer_of_an_abort_in_a_group(void) {
    pair p = {.made = 0};
    pthread_t t;
    ncclComm_t comm;
    T_EXPECT_WARNINGS();
    setenv("SYMM_BACKEND", "host", 1);
    N_OK(ncclGetUniqueId(&p.id));
    T_EQ(pthread_create(&t, NULL, the_peer, &p), 0);
    N_OK(ncclCommInitRank(&comm, 2, p.id, 0));
    while (!atomic_load(&p.made)) usleep(100);
    N_OK(ncclGroupStart());
    N_OK(ncclCommAbort(comm));
    N_OK(ncclCommAbort(comm)); /* again: it is on its way */
    N_OK(ncclGroupEnd());
    atomic_store(&p.over, 1);
    T_EQ(pthread_join(t, NULL), 0);
}

static void *splits_alone(void *arg) {
    ncclComm_t child;
    N_ERR(ncclCommSplit(arg, 0, 0, &child, NULL), ncclRemoteError);
    return NULL;
}

/* As PyTorch's watchdog: all windows, then the communicator, whose thread waits for a peer. */
static void windows_beside_a_thread_that_is_stuck(void) {
    enum { WINDOWS = 8, BYTES = 2 << 20 };
    ncclWindow_t win[2][WINDOWS];
    ncclComm_t comm[2];
    pthread_t t;
    char *mem;
    T_EXPECT_WARNINGS();
    setenv("SYMM_BACKEND", "host", 1);
    unsetenv("SYMM_SETUP_TIMEOUT");
    N_OK(ncclCommInitAll(comm, 2, NULL));
    N_OK(ncclMemAlloc((void **)&mem, WINDOWS * BYTES));
    for (int i = 0; i < WINDOWS; i++) {
        N_OK(ncclGroupStart());
        for (int r = 0; r < 2; r++)
            N_OK(ncclCommWindowRegister(comm[r], mem + i * BYTES, BYTES, &win[r][i], 0));
        N_OK(ncclGroupEnd());
    }
    N_OK(ncclCommWindowDeregister(comm[0], win[0][0]));
    T_EQ(pthread_create(&t, NULL, splits_alone, comm[0]), 0);
    usleep(50000);
    const uint64_t since = symm_now_ns();
    for (int i = 1; i < WINDOWS; i++) N_OK(ncclCommWindowDeregister(comm[0], win[0][i]));
    N_ERR(ncclCommWindowDeregister(comm[0], win[0][1]), ncclInvalidArgument); /* it is gone */
    T_CHECK(symm_now_ns() - since < 5000000000ull);
    N_OK(ncclCommAbort(comm[0]));
    T_EQ(pthread_join(t, NULL), 0);
    N_OK(ncclCommAbort(comm[1]));
    N_OK(ncclMemFree(mem));
}

T_MAIN(T(aborts_of_one_stream_in_a_group), T(the_peer_of_an_abort_in_a_group),
       T(windows_beside_a_thread_that_is_stuck))
