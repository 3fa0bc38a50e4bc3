/* perf_stub.c - symm-perf on the fake CUDA driver: check_perf_gpu.sh links it with the tool's
 * sources, and check_tools.sh with those of symm-info. Before main it installs the driver with
 * GPU_FAKE devices. PERF_FABRIC: the cluster of several hosts that all of them are in, each in a
 * clique of its own. PERF_WRONG spoils what kernels leave, as a bad kernel would:
 *   stale    every call leaves what the call before it left there (the first: its own)
 *   replay   calls out of a graph leave one bit wrong, eager ones none
 *   burst    calls issued behind others, without a wait in between, leave one bit wrong
 * PERF_BLOCKS: blocks that a call leaves (1; the ranks, where it gathers). PERF_IMAGES=0: a
 * build without kernels. The spoiling runs in the streams' threads, each for its own buffer;
 * records are taken under lock. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/common/kernels.h"
#include "device/host/reduce.h"
#include "fake_kernels.h"
#include "fake_nvml.h"
#include "transport/cuda/cuda_driver.h"

enum { PLACES = 64 };

typedef struct {
    symm_args args;
    int behind; /* others of its thread that it has not waited for */
} call;

typedef struct {
    char *dst; /* NULL: free */
    char *last;
    uint64_t bytes;
} place;

static place places[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cu_result (*launch)(const cu_launch_config *config, cu_function function, void **args,
                           void **extra);
static cu_result (*synchronize)(cu_stream stream);
static const char *wrong;
static _Thread_local int issued;
static uint64_t blocks = 1;

/* What the last call of this size left at this address. */
static place *find(char *dst, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    place *p = places;
    while (p < places + PLACES - 1 && p->dst && (p->dst != dst || p->bytes != bytes)) p++;
    p->dst = dst;
    p->bytes = bytes;
    pthread_mutex_unlock(&lock);
    return p;
}

static void spoil(void *arg) {
    const call *c = arg;
    const symm_args *a = &c->args;
    char *dst = a->dst;
    const uint64_t bytes = a->count * a->esize * blocks;
    if (!bytes) return;
    if (strcmp(wrong, "stale")) {
        static _Thread_local uint64_t times; /* never the same bit twice in a row */
        if (!strcmp(wrong, "replay") ? !a->gpu.serial : c->behind) dst[4 * times++ % bytes] ^= 1;
        return;
    }
    place *p = find(dst, bytes);
    char *now = malloc(bytes);
    memcpy(now, dst, bytes);
    if (p->last) memcpy(dst, p->last, bytes);
    free(p->last);
    p->last = now;
}

static cu_result launch_and_spoil(const cu_launch_config *config, cu_function function, void **args,
                                  void **extra) {
    cu_result cu = launch(config, function, args, extra);
    call *copy = malloc(sizeof *copy); /* kept, because graphs run it again */
    memcpy(&copy->args, args[0], sizeof copy->args);
    copy->behind = issued++ > 0;
    return cu ? cu : symm_cu.cuLaunchHostFunc(config->stream, spoil, copy);
}

static cu_result synchronize_and_note(cu_stream stream) {
    issued = 0;
    return synchronize(stream);
}

__attribute__((constructor)) static void begin(void) {
    const char *images = getenv("PERF_IMAGES"), *devices = getenv("GPU_FAKE");
    const char *many = getenv("PERF_BLOCKS"), *cluster = getenv("PERF_FABRIC");
    wrong = getenv("PERF_WRONG");
    if (many) blocks = (uint64_t)atoi(many);
    symm_test_images = images ? atoi(images) : 1;
    fake_kernels_install(devices ? atoi(devices) : 2, 0);
    for (int i = 0; cluster && i < FAKE_DEVICES; i++) fake_nvml_set(i, atoi(cluster), (unsigned)i);
    launch = symm_cu.cuLaunchKernelEx;
    synchronize = symm_cu.cuStreamSynchronize;
    if (!wrong) return;
    symm_cu.cuLaunchKernelEx = launch_and_spoil;
    symm_cu.cuStreamSynchronize = synchronize_and_note;
}

/* For nccl_stub.c, whose collectives are host functions of the stream. */
__attribute__((visibility("default"))) int perf_stub_enqueue(void *stream, void (*fn)(void *),
                                                             void *arg);
int perf_stub_enqueue(void *stream, void (*fn)(void *), void *arg) {
    return symm_cu.cuLaunchHostFunc(stream, fn, arg);
}
__attribute__((visibility("default"))) void *perf_stub_alloc(size_t bytes);
void *perf_stub_alloc(size_t bytes) {
    cu_deviceptr at = 0;
    return symm_cu.cuMemAlloc(&at, bytes) ? NULL : (void *)(uintptr_t)at;
}
__attribute__((visibility("default"))) void perf_stub_free(void *at);
void perf_stub_free(void *at) {
    symm_cu.cuMemFree((uintptr_t)at);
}
__attribute__((visibility("default"))) void perf_stub_reduce(void *dst, const void *const *src,
                                                             int n, size_t count, int type, int op);
void perf_stub_reduce(void *dst, const void *const *src, int n, size_t count, int type, int op) {
    symm_reduce_init();
    symm_reduce->reduce[type][op](dst, src, n, count, NULL);
}
