/* fgpu_kit.h - what the tests of communicators on the fake CUDA driver share: its set-up, kernels
 * that note how they were launched, ranks of one process. Notes: one lock; the rest is the test's
 * own thread. */
#ifndef FGPU_KIT_H_
#define FGPU_KIT_H_

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/coll/coll.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "base/handle.h"
#include "host/comm/pages.h"
#include "base/stats.h"
#include "transport/cuda/cuda_device.h"
#include "fake_cuda.h"
#include "coll_expect.h"

enum { GK_RANKS = 16 };
#define GK_MB (1ull << 20)

typedef struct { /* the last launch of a rank */
    int count, device;
    char kernel[64];
    cu_launch_config config;
    cu_launch_attr attr;
    symm_args args;
    symm_args copies;           /* of the last kernel before copies */
    symm_extents extents;       /* of the last call with a count per rank */
    symm_gpu_p2p_args messages; /* of a kernel of sends and receives */
    symm_gpu_onesided_args onesided;
} gk_launch;

static gk_launch gk_seen[GK_RANKS];
static pthread_mutex_t gk_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *const gk_types[] = {"i8",  "u8",  "i32", "u32",  "i64",  "u64",
                                       "f16", "f32", "f64", "bf16", "e4m3", "e5m2"};

/* What a real kernel does at its end, and all that the host sees of it. The host polls it by
 * copies, as it does a GPU's memory; ThreadSanitizer would call that a race of two threads. */
static void __attribute__((noinline, no_sanitize("thread")))
gk_end(const symm_args *a, unsigned ctas) {
    symm_gpu_ctl *ctl = (symm_gpu_ctl *)(uintptr_t)(a->base + (uint64_t)a->rank * a->stride);
    for (unsigned b = 0; a->gpu.serial && b < ctas; b++) ctl->done[b] = a->gpu.serial;
}

static void gk_note(const cu_launch_config *config, void **args) {
    const symm_args *a = args[0];
    T_CHECK(a->rank >= 0 && a->rank < GK_RANKS);
    pthread_mutex_lock(&gk_lock);
    gk_launch *l = &gk_seen[a->rank];
    l->count++;
    snprintf(l->kernel, sizeof l->kernel, "%s", fake_cuda_running());
    l->config = *config;
    l->config.attrs = NULL;
    if (config->num_attrs) l->attr = config->attrs[0];
    memcpy(&l->args, a, sizeof *a);
    if (!strncmp(l->kernel, "symm_copies", 11)) memcpy(&l->copies, a, sizeof l->copies);
    if (!strncmp(l->kernel, "symm_p2p", 8)) memcpy(&l->messages, a, sizeof l->messages);
    if (!strncmp(l->kernel, "symm_onesided", 13)) memcpy(&l->onesided, a, sizeof l->onesided);
    gk_end(a, config->grid_x);
    pthread_mutex_unlock(&gk_lock);
}

static void gk_note_extents(const cu_launch_config *config, void **args) {
    const symm_args *a = args[0];
    pthread_mutex_lock(&gk_lock);
    memcpy(&gk_seen[a->rank].extents, args[1], sizeof(symm_extents));
    pthread_mutex_unlock(&gk_lock);
    gk_note(config, args);
}

static inline gk_launch gk_last(int rank) {
    pthread_mutex_lock(&gk_lock);
    gk_launch l = gk_seen[rank];
    pthread_mutex_unlock(&gk_lock);
    return l;
}

static inline void gk_kernel(const symm_kernel_row *row, const char *type, int ranks) {
    const size_t sizes[] = {sizeof(symm_args), sizeof(symm_extents)};
    char name[64];
    snprintf(name, sizeof name, "symm_%s%s%s_n%d", row->name, *type ? "_" : "", type, ranks);
    if (symm_coll_varies(&symm_colls[row->coll]))
        fake_cuda_kernel(name, gk_note_extents, 2, sizes);
    else
        fake_cuda_kernel(name, gk_note, 1, sizes);
}

/* The kernels that src/device/cuda has, by the rows of coll.def: reduce.cu for each type, move.cu.
 */
static inline void gk_kernels(void) {
    static const int ranks[] = {0, 2, 4, 8};
    for (int k = 0; k < SYMM_KERNEL_COUNT; k++) {
        const symm_kernel_row *row = &symm_kernels[k];
        const int typed = (row->flags & SYMM_K_TYPED) != 0,
                  variants = row->max_ranks == 1 || row->flags & SYMM_K_ONE_IMAGE ? 1 : 4;
        if (!(row->flags & SYMM_K_GPU)) continue;
        for (int t = 0; t < (typed ? symmNumTypes : 1); t++)
            for (int v = 0; v < variants; v++)
                gk_kernel(row, typed ? gk_types[t] : "", row->max_ranks == 1 ? 1 : ranks[v]);
    }
    const size_t size = sizeof(symm_gpu_p2p_args);
    fake_cuda_kernel("symm_p2p_n0", gk_note, 1, &size);
    fake_cuda_kernel("symm_p2p_list_n0", gk_note, 1, &size);
    const size_t copies = sizeof(symm_args);
    fake_cuda_kernel("symm_copies_n0", gk_note, 1, &copies);
    const size_t onesided = sizeof(symm_gpu_onesided_args);
    fake_cuda_kernel("symm_onesided_n0", gk_note, 1, &onesided);
}

/* A fresh driver with `devices`, as a process finds it that has done nothing yet. */
static inline void gk_install(const fake_cuda_config *config) {
    symm_gpu_forget();
    fake_cuda_install(config);
    gk_kernels();
    memset(gk_seen, 0, sizeof gk_seen);
}

static inline fake_cuda_config gk_config(int devices, int queued) {
    fake_cuda_config config = fake_cuda_defaults();
    config.devices = devices;
    config.queued = queued;
    return config;
}

static inline void gk_env(const char *backend) {
    setenv("SYMM_BACKEND", backend, 1);
    setenv("SYMM_SCRATCH", "1M", 1);
    setenv("SYMM_SETUP_TIMEOUT", "30000", 1);
    symm_test_images = 1;
}

static inline void gk_start(int devices, int queued) {
    fake_cuda_config config = gk_config(devices, queued);
    gk_env("cuda");
    gk_install(&config);
}

/* Nothing of CUDA's is left but what is kept to the end of the process, and `more`. */
#define GK_LEFT(more) T_EQ(fake_cuda_live(), fake_cuda_kept() + (more))

/* Ranks in this process; NULL devices: a GPU each. */
static inline void gk_open(symmComm_t *comms, int n, const int *devices) {
    T_OK(symmCommInitAll(comms, n, devices));
}

static inline void gk_close(symmComm_t *comms, int n) {
    for (int r = 0; r < n; r++) T_OK(symmCommDestroy(comms[r]));
}

static inline symm_comm *gk_inside(symmComm_t comm) {
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    T_CHECK(c != NULL);
    return c;
}

/* The device current in this thread, -1 none. */
static inline int gk_device(void) {
    cu_context context = NULL;
    int device = -1;
    T_EQ(symm_cu.cuCtxGetCurrent(&context), 0);
    if (context) T_EQ(symm_cu.cuCtxGetDevice(&device), 0);
    return device;
}

static inline cu_stream gk_stream(int device) {
    symm_cuda_scope scope;
    cu_stream stream = NULL;
    T_OK(symm_cuda_push(device, &scope));
    T_EQ(symm_cu.cuStreamCreate(&stream, SYMM_CUDA_STREAM_NON_BLOCKING), 0);
    symm_cuda_pop(&scope);
    return stream;
}

/* What `to` is given from now on starts behind what `from` has. Their device is current. */
static inline void gk_order(cu_stream from, cu_stream to) {
    cu_event e;
    T_EQ(symm_cu.cuEventCreate(&e, SYMM_CUDA_EVENT_DISABLE_TIMING), 0);
    T_EQ(symm_cu.cuEventRecord(e, from), 0);
    T_EQ(symm_cu.cuStreamWaitEvent(to, e, 0), 0);
    T_EQ(symm_cu.cuEventDestroy(e), 0);
}

static inline symmStream_t gk_user(cu_stream stream) {
    return (symmStream_t)(void *)stream;
}

/* Memory of that device that can be registered. */
static inline char *gk_memory(int device, size_t bytes) {
    symm_cuda_scope scope;
    void *p = NULL;
    T_OK(symm_cuda_push(device, &scope));
    T_OK(symmMemAlloc(&p, bytes));
    symm_cuda_pop(&scope);
    return p;
}

/* All calls of the driver, by entry point. */
enum { GK_CALLS = 128 };
typedef struct {
    int n[GK_CALLS];
} gk_calls;

static inline gk_calls gk_count(void) {
    gk_calls c = {{0}};
    for (int i = 0; fake_cuda_call_name(i); i++) {
        T_CHECK(i < GK_CALLS);
        c.n[i] = fake_cuda_calls(fake_cuda_call_name(i));
    }
    return c;
}

/* Since `before` there was exactly what `want` says: "cuEventRecord cuLaunchKernelEx*2 ...". */
static inline void gk_exactly(const gk_calls *before, const char *want, int line) {
    gk_calls now = gk_count();
    for (int i = 0; fake_cuda_call_name(i); i++) {
        const char *name = fake_cuda_call_name(i), *at = want;
        size_t len = strlen(name);
        int n = 0;
        while ((at = strstr(at, name))) {
            const char *end = at + len;
            if ((at == want || at[-1] == ' ') && (*end == 0 || *end == ' ' || *end == '*'))
                n = *end == '*' ? atoi(end + 1) : 1;
            at = end;
        }
        T_CHECKF(now.n[i] - before->n[i] == n, "line %d: %d calls of %s, not %d", line,
                 now.n[i] - before->n[i], name, n);
    }
}
#define GK_EXACTLY(before, want) gk_exactly(before, want, __LINE__)

#endif
