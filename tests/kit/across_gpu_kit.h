/* across_gpu_kit.h - communicators of GPUs over several domains for tests, with ranks as threads,
 * on the fake CUDA driver, with an NCCL and a mover between threads. Each rank's thread opens and
 * uses its own communicator. */
#ifndef ACROSS_GPU_KIT_H_
#define ACROSS_GPU_KIT_H_

#include "across_kit.h"
#include "base/fail.h"
#include "fake_cuda.h"
#include "gpu_across.h"
#include "host/across/across_gpu.h"
#include "nccl_threads.h"

enum { AG_GPUS = 8, AG_CHUNK = 96 << 10 };

typedef struct {
    ak_job j;
    pthread_barrier_t meet;
    void (*fn)(const gc_rank *g, symmComm_t comm);
} ag_job;

static inline void ag_meet(void *arg) {
    pthread_barrier_wait(&((ag_job *)arg)->meet);
}

static inline void ag_begin(int slow) {
    char text[8];
    snprintf(text, sizeof text, "%d", AG_GPUS);
    setenv("GPU_FAKE", text, 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_SETUP_TIMEOUT", "20000", 1);
    (void)gk_begin();
    symm_test_across_chunk = AG_CHUNK; /* most calls take several steps */
    nn_install(slow);
}

static inline ag_job ag_new_job(const char *hosts) {
    ag_job b = {.j = ak_new_on(hosts, AG_GPUS)};
    pthread_barrier_init(&b.meet, NULL, (unsigned)b.j.n);
    return b;
}

static inline void ag_end_job(ag_job *b) {
    nt_hub_free(b->j.hub);
    pthread_barrier_destroy(&b->meet);
    nn_end();
    gc_settle();
}

static inline gc_rank ag_rank_of(ag_job *b, int rank) {
    return (gc_rank){.rank = rank,
                     .n = b->j.n,
                     .devices = AG_GPUS,
                     .seed = b->j.seed,
                     .meet = ag_meet,
                     .arg = b};
}

static inline symmComm_t ag_open_rank(ag_job *b, int rank) {
    T_OK(symmSetDevice(rank % AG_GPUS));
    return ak_open(&b->j, rank, symmSuccess, symmSuccess);
}

static inline void ag_with_comm(int rank, int n, void *arg) {
    ag_job *b = arg;
    const gc_rank g = ag_rank_of(b, rank);
    symmComm_t comm = ag_open_rank(b, rank);
    (void)n;
    b->fn(&g, comm);
    gc_meet(&g);
    T_OK(symmCommDestroy(comm));
}

static const char *const ag_layouts[] = {"ab", "aabb", "abcabc", "abbbac", "aaaabbbb"};
enum { AG_LAYOUTS = sizeof ag_layouts / sizeof *ag_layouts };

static inline void ag_each_layout(void (*fn)(const gc_rank *g, symmComm_t comm)) {
    for (int i = 0; i < AG_LAYOUTS; i++) {
        ag_begin(i % 2 * 3);
        ag_job b = ag_new_job(ag_layouts[i]);
        b.fn = fn;
        T_THREADS(b.j.n, ag_with_comm, &b);
        ag_end_job(&b);
    }
}

/* Why it is over, found as programs do; symmSuccess: it is not, for 10 s. */
static inline symmResult_t ag_until_over(symmComm_t comm) {
    symmResult_t async = symmSuccess;
    const uint64_t since = symm_now_ns();
    while (!async && gk_ms_since(since) < 10000) {
        T_OK(symmCommGetAsyncError(comm, &async));
        usleep(500);
    }
    return async;
}

#endif
