/* thr_nccl_windows.c - the drop-in's table of windows, on the host backend: many handles, one after
 * the other and at once, and communicators that end beside each other. */
#include <pthread.h>
#include <stdatomic.h>

#include "nccl_kit.h"

enum { MOST = 65536, COMMS = 64, BYTES = 1 << 16 };

static ncclComm_t comm;
static void *memory;

static void start(void) {
    N_OK(ncclCommInitAll(&comm, 1, NULL));
    N_OK(ncclMemAlloc(&memory, BYTES));
}
static void finish(void) {
    N_OK(ncclCommDestroy(comm));
    N_OK(ncclMemFree(memory));
}

static ncclWindow_t make(void) {
    ncclWindow_t win = NULL;
    N_OK(ncclCommWindowRegister(comm, memory, BYTES, &win, NCCL_WIN_COLL_SYMMETRIC));
    T_CHECK(win != NULL);
    return win;
}

/* PyTorch registers the same memory again and again: the records are used in turn, so that an old
 * handle stays one that is refused for as long as can be, and the first comes again at last. */
static void the_same_memory_again(void) {
    T_EXPECT_WARNINGS();
    void *p;
    start();
    ncclWindow_t first = NULL, second = NULL;
    for (int i = 0; i < MOST; i++) {
        const ncclWindow_t win = make();
        T_CHECKF(win != first && win != second, "after %d windows", i);
        if (i == 0) first = win;
        if (i == 1) second = win;
        N_OK(ncclCommWindowDeregister(comm, win));
    }
    N_ERR(ncclGetPeerDevicePointer(first, 0, 0, &p), ncclInvalidArgument);
    const ncclWindow_t again = make(), other = make();
    T_CHECK(again == first && other == second);
    N_OK(ncclGetPeerDevicePointer(again, 8, 0, &p));
    *(int *)p = 7;
    T_EQ(((int *)memory)[2], 7);
    finish(); /* with both */
}

/* Of several communicators: each registration looks at the windows that its own has. */
static void fill(ncclComm_t *of, ncclWindow_t *win) {
    N_OK(ncclMemAlloc(&memory, BYTES));
    for (int k = 0; k < COMMS; k++) {
        N_OK(ncclCommInitAll(&of[k], 1, NULL));
        comm = of[k];
        for (int i = k; i < MOST; i += COMMS) win[i] = make();
    }
}
static void empty(const ncclComm_t *of) {
    for (int k = 0; k < COMMS; k++) N_OK(ncclCommDestroy(of[k]));
    N_OK(ncclMemFree(memory));
}

static void as_many_as_there_can_be(void) {
    T_EXPECT_WARNINGS();
    static ncclWindow_t win[MOST];
    ncclComm_t of[COMMS];
    ncclWindow_t more = (ncclWindow_t)(void *)win;
    int x = 1, y = 0;
    fill(of, win);
    N_REFUSED(ncclCommWindowRegister(comm, memory, BYTES, &more, 0), ncclSystemError,
              "there are 65536 windows: no more can be made");
    T_CHECK(!more);
    N_OK(ncclGroupStart()); /* a group that such a call stands in runs nothing */
    N_OK(ncclSend(&x, 1, ncclInt32, 0, comm, NULL));
    N_OK(ncclRecv(&y, 1, ncclInt32, 0, comm, NULL));
    N_ERR(ncclCommWindowRegister(comm, memory, BYTES, &more, 0), ncclSystemError);
    N_ERR(ncclGroupEnd(), ncclSystemError);
    T_EQ(y, 0);
    N_OK(ncclCommWindowDeregister(comm, win[MOST - 1]));
    T_CHECK(make() == win[MOST - 1]);
    empty(of); /* with all of them: they are free again */
    start();
    T_CHECK(make() != NULL);
    finish();
}

static void *ends_communicators(void *arg) {
    _Atomic int *over = arg;
    void *mem;
    N_OK(ncclMemAlloc(&mem, BYTES));
    for (int i = 0; i < 40; i++) {
        ncclComm_t own;
        ncclWindow_t win;
        N_OK(ncclCommInitAll(&own, 1, NULL));
        N_OK(ncclCommWindowRegister(own, mem, BYTES, &win, NCCL_WIN_COLL_SYMMETRIC));
        N_OK(ncclCommDestroy(own)); /* and its window */
        void *p;
        N_ERR(ncclGetPeerDevicePointer(win, 0, 0, &p), ncclInvalidArgument);
    }
    N_OK(ncclMemFree(mem));
    atomic_store(over, 1);
    return NULL;
}

/* One ends with its window, and another thread's communicator keeps its own. */
static void one_ends_beside_another(void) {
    T_EXPECT_WARNINGS();
    _Atomic int over = 0;
    pthread_t other;
    start();
    T_EQ(pthread_create(&other, NULL, ends_communicators, &over), 0);
    while (!atomic_load(&over)) {
        const ncclWindow_t a = make(), b = make();
        N_OK(ncclCommWindowDeregister(comm, a));
        N_OK(ncclCommWindowDeregister(comm, b));
    }
    T_EQ(pthread_join(other, NULL), 0);
    finish();
}

T_MAIN(T_TIMEOUT(the_same_memory_again, 120), T_TIMEOUT(as_many_as_there_can_be, 120),
       T(one_ends_beside_another))
