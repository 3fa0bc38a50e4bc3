/* thr_nccl_behind.c - the drop-in where a communicator is made behind the call from one that other
 * threads use meanwhile: on the host backend, both ranks in this process. */
#include <pthread.h>
#include <stdatomic.h>

#include "nccl_kit.h"

enum { ROUNDS = 100 };

static ncclComm_t parent[2];

static void await_made(ncclComm_t comm) {
    ncclResult_t now = ncclInProgress;
    while (now == ncclInProgress) N_OK(ncclCommGetAsyncError(comm, &now));
    T_EQ(now, ncclSuccess);
}

static void start(void) {
    ncclUniqueId id;
    ncclConfig_t config = n_config(NCCL_VERSION_CODE, sizeof config);
    T_EXPECT_WARNINGS();
    setenv("SYMM_BACKEND", "host", 1);
    setenv("SYMM_DEBUG", "NONE", 1); /* refusals by the thousand */
    config.blocking = 0;
    N_OK(ncclGetUniqueId(&id));
    for (int r = 0; r < 2; r++)
        N_ERR(ncclCommInitRankConfig(&parent[r], 2, id, r, &config), ncclInProgress);
    for (int r = 0; r < 2; r++) await_made(parent[r]);
}
static void finish(void) {
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(parent[r]));
}

/* Of a call that needs no peer: done, or refused. In progress would mean that it goes on. */
static void done_or_refused(ncclResult_t r, const char *call) {
    T_CHECKF(r == ncclSuccess || r == ncclInvalidArgument, "%s: %d: %s", call, (int)r,
             ncclGetLastError(NULL));
}

/* Rank 0's communicator, which is now ready and now not. */
static void *uses(void *arg) {
    _Atomic int *over = arg;
    int scalar = 2;
    while (!atomic_load(over)) {
        ncclRedOp_t op;
        void *handle;
        done_or_refused(ncclAllReduce(NULL, NULL, 0, ncclInt8, ncclSum, parent[0], NULL),
                        "ncclAllReduce");
        done_or_refused(ncclSend(&scalar, 0, ncclNumTypes, 0, parent[0], NULL), "ncclSend");
        ncclResult_t r =
            ncclRedOpCreatePreMulSum(&op, &scalar, ncclInt32, ncclScalarHostImmediate, parent[0]);
        done_or_refused(r, "ncclRedOpCreatePreMulSum");
        if (!r) done_or_refused(ncclRedOpDestroy(op, parent[0]), "ncclRedOpDestroy");
        r = ncclCommRegister(parent[0], &scalar, sizeof scalar, &handle);
        done_or_refused(r, "ncclCommRegister");
        if (!r) N_OK(ncclCommDeregister(parent[0], handle));
    }
    return NULL;
}

static void split_both(void) {
    ncclComm_t child[2];
    for (int r = 0; r < 2; r++)
        N_ERR(ncclCommSplit(parent[r], 0, r, &child[r], NULL), ncclInProgress);
    for (int r = 0; r < 2; r++) await_made(parent[r]);
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(child[r]));
}

static void a_parent_that_another_thread_uses(void) {
    _Atomic int over = 0;
    pthread_t other;
    start();
    T_EQ(pthread_create(&other, NULL, uses, &over), 0);
    for (int i = 0; i < ROUNDS; i++) split_both();
    atomic_store(&over, 1);
    T_EQ(pthread_join(other, NULL), 0);
    finish();
}

/* A group's calls would run at its end, where in progress is said of what is made. A split without
 * a color has no handle by which to tell whether it was accepted. */
static void other_calls_beside_a_split(void) {
    ncclComm_t child[2], none;
    int x = 1;
    start();
    N_ERR(ncclCommSplit(parent[0], 0, 0, &child[0], NULL), ncclInProgress);
    N_OK(ncclGroupStart());
    N_REFUSED(ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, parent[0], NULL), ncclInvalidArgument,
              "is still being made");
    N_ERR(ncclGroupEnd(), ncclInvalidArgument);
    N_REFUSED(ncclCommSplit(parent[0], NCCL_SPLIT_NOCOLOR, 0, &none, NULL), ncclInvalidArgument,
              "is still being made");
    N_ERR(ncclCommSplit(parent[1], 0, 0, &child[1], NULL), ncclInProgress);
    for (int r = 0; r < 2; r++) await_made(parent[r]);
    for (int r = 0; r < 2; r++) N_OK(ncclCommDestroy(child[r]));
    finish();
}

/* Two threads of rank 0 at once: one makes it, and the other's is refused and leaves no handle. */
typedef struct {
    pthread_barrier_t meet;
    ncclComm_t child[2];
    ncclResult_t code[2];
} pair;
static void *splits(void *arg) {
    pair *p = arg;
    pthread_barrier_wait(&p->meet);
    p->code[1] = ncclCommSplit(parent[0], 0, 0, &p->child[1], NULL);
    return NULL;
}

static void one_of_two(pair *p) {
    pthread_t other;
    ncclComm_t peer;
    memset(p->child, 0xa5, sizeof p->child);
    T_EQ(pthread_create(&other, NULL, splits, p), 0);
    pthread_barrier_wait(&p->meet);
    p->code[0] = ncclCommSplit(parent[0], 0, 0, &p->child[0], NULL);
    T_EQ(pthread_join(other, NULL), 0);
    const int won = p->code[1] == ncclInProgress;
    T_CHECKF(p->code[won] == ncclInProgress && p->code[!won] == ncclInvalidArgument, "%d and %d",
             (int)p->code[0], (int)p->code[1]);
    T_CHECK(p->child[won] && !p->child[!won]);
    N_ERR(ncclCommSplit(parent[1], 0, 0, &peer, NULL), ncclInProgress);
    for (int r = 0; r < 2; r++) await_made(parent[r]);
    N_OK(ncclCommDestroy(p->child[won]));
    N_OK(ncclCommDestroy(peer));
}

static void two_threads_that_split(void) {
    pair p;
    T_EQ(pthread_barrier_init(&p.meet, NULL, 2), 0);
    start();
    for (int i = 0; i < ROUNDS; i++) one_of_two(&p);
    finish();
    T_EQ(pthread_barrier_destroy(&p.meet), 0);
}

T_MAIN(T_TIMEOUT(a_parent_that_another_thread_uses, 120), T(other_calls_beside_a_split),
       T_TIMEOUT(two_threads_that_split, 120))
