/* hosts_kit.h - what the tests of ranks on several hosts of one NVLink fabric share: forked ranks
 * on the fake driver that play hosts, buffers, a collective whose result is checked, the
 * communicator's end. Of each rank's own thread; no lock. */
#ifndef HOSTS_KIT_H_
#define HOSTS_KIT_H_

#include "fault_kit.h"

#include "symm_device.h"
#include "symm_heap.h"
#include "symm_onesided.h"
#include "symm_p2p.h"
#include "symm_vec.h"

#include "base/handle.h"
#include "host/comm/comm.h"
#include "transport/cuda/cuda_driver.h"
#include "fake_kernels.h"
#include "fake_nvml.h"

extern int symm_test_where[2]; /* where.c: host, user */
extern int symm_test_images;

enum { COUNT = 5000, SOON_MS = 1500 };

typedef struct {
    fk f;
    int cyclic; /* ranks take hosts in turn */
    int per;    /* ranks of a host */
} hosts;

static inline hosts *hosts_new(int per, int cyclic, int victim, int how) {
    hosts *h = T_SHARED(sizeof *h);
    h->per = per, h->cyclic = cyclic, h->f.victim = victim, h->f.how = how;
    return h;
}
static inline int host_of_rank(const hosts *h, int rank, int n) {
    return h->cyclic ? rank % ((n + h->per - 1) / h->per) : rank / h->per;
}

/* This process becomes a rank of its host. */
static inline fk_gauges begin(const hosts *h, int rank, int n) {
    T_EXPECT_FDS();
    const fk_gauges before = fk_take();
    setenv("SYMM_BACKEND", "cuda", 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_SOCKET_IFNAME", "lo", 1);
    symm_test_images = 1;
    fake_kernels_install(n, 1);
    for (int d = 0; d < n; d++) fake_nvml_set(d, 9, 3);
    symm_test_where[0] = host_of_rank(h, rank, n);
    T_OK(symmSetDevice(rank));
    return before;
}

static inline int peer_code(symmComm_t comm) {
    symmResult_t async = symmSuccess;
    T_OK(symmCommGetAsyncError(comm, &async));
    return (int)async;
}
/* The communicator's end, once it is known here; how long that took. */
static inline int await_code(symmComm_t comm, uint64_t *ms) {
    const uint64_t since = symm_now_ns();
    int code;
    while (!(code = peer_code(comm)) && fk_ms_since(since) < 10000) usleep(500);
    *ms = fk_ms_since(since);
    return code;
}
static inline void run(void) {
    T_EQ(symm_cu.cuStreamSynchronize(NULL), 0);
}

typedef struct { /* of a rank */
    symmWindow_t win;
    int *mem, *out;
} buffers;

static inline buffers buffers_new(symmComm_t comm, int n) {
    buffers b = {0};
    const size_t bytes = (size_t)n * COUNT * sizeof(int);
    T_OK(symmMemAlloc((void **)&b.mem, 2 * bytes));
    T_OK(symmWindowRegister(comm, b.mem, 2 * bytes, &b.win, SYMM_WIN_DEFAULT));
    b.out = b.mem + (size_t)n * COUNT;
    return b;
}
static inline void buffers_free(symmComm_t comm, buffers *b) {
    T_OK(symmWindowDeregister(comm, b->win));
    T_OK(symmMemFree(b->mem));
}

static inline void reduces(symmComm_t comm, const buffers *b, int rank, int n) {
    for (int i = 0; i < COUNT; i++) b->mem[i] = i + rank;
    T_OK(symmAllReduce(b->mem, b->out, COUNT, symmInt32, symmSum, comm, NULL));
    run();
    T_EQ(peer_code(comm), 0);
    for (int i = 0; i < COUNT; i++) T_EQ(b->out[i], n * i + n * (n - 1) / 2);
}

#endif
