/* cuda_probe.c - finds out what handles a device supports: makes one granule of memory with each
 * kind, exports it, imports it in the same process and frees it.
 *
 * Any thread. probes.lock is held during a probe; other callers wait for its outcome. The release
 * store of `done` comes after the outcome and pairs with the acquire load of `done` before it is
 * read. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "transport/cuda/cuda_device.h"
#include "cuda_probe.h"
#include "vmm.h"

#define SMALLEST (2ull << 20) /* what the rest of the library aligns to at least */

static struct {
    pthread_mutex_t lock;
    atomic_int done[SYMM_CUDA_MAX_DEVICES];
    symm_cuda_memory memory[SYMM_CUDA_MAX_DEVICES];
} probes = {.lock = PTHREAD_MUTEX_INITIALIZER};

cu_mem_prop symm_cuda_prop(int device, int handle_types) {
    return (cu_mem_prop){
        .type = SYMM_CUDA_MEM_PINNED,
        .handle_types = handle_types,
        .location = {SYMM_CUDA_LOCATION_DEVICE, device},
    };
}

static cu_result granularity(int device, int types, uint64_t *bytes) {
    cu_mem_prop prop = symm_cuda_prop(device, types);
    size_t got = 0;
    int cu = symm_cu.cuMemGetAllocationGranularity(&got, &prop, SYMM_CUDA_GRANULARITY_RECOMMENDED);
    if (!cu) *bytes = got > SMALLEST ? got : SMALLEST;
    return cu;
}

/* Exports and imports by one kind of handle. *step names the step that was refused. */
static cu_result hand_on(cu_mem_handle handle, int type, const char **step) {
    cu_fabric_handle fabric;
    cu_mem_handle again = 0;
    int fd = -1;
    int is_fd = type == SYMM_CUDA_HANDLE_FD;
    *step = "export";
    int cu = symm_cu.cuMemExportToShareableHandle(is_fd ? (void *)&fd : (void *)&fabric, handle,
                                                  type, 0);
    if (cu) return cu;
    if (is_fd && (fd = symm_fd_above(fd)) < 0) return SYMM_CU_OS_ERROR;
    *step = "import";
    cu = symm_cu.cuMemImportFromShareableHandle(
        &again, is_fd ? (void *)(intptr_t)fd : (void *)&fabric, type);
    if (is_fd) close(fd);
    if (!cu) symm_cu.cuMemRelease(again);
    return cu;
}

/* Memory that allows all of `types`, handed on as `type`. */
static cu_result try_handles(int device, int types, int type, uint64_t bytes, const char **step) {
    cu_mem_prop prop = symm_cuda_prop(device, types);
    cu_mem_handle handle = 0;
    *step = "creation";
    int cu = symm_cu.cuMemCreate(&handle, bytes, &prop, 0);
    if (cu) return cu;
    cu = hand_on(handle, type, step);
    symm_cu.cuMemRelease(handle);
    return cu;
}

static void try_fabric(int device, symm_cuda_memory *m) {
    const int types = m->handle_types | SYMM_CUDA_HANDLE_FABRIC;
    const char *step = "granularity";
    uint64_t grain = m->granularity;
    int says = 0;
    /* A driver that does not know the attribute refuses it as a bad value: the same as "no". */
    if (symm_cu.cuDeviceGetAttribute(&says, SYMM_CUDA_ATTR_HANDLE_FABRIC, device) != 0 || !says) {
        snprintf(m->fabric_reason, sizeof m->fabric_reason, "the device has no fabric handles");
        return;
    }
    int cu = granularity(device, types, &grain);
    if (!cu) cu = try_handles(device, types, SYMM_CUDA_HANDLE_FABRIC, grain, &step);
    if (cu) {
        const char *name = symm_cuda_code_name(cu);
        snprintf(m->fabric_reason, sizeof m->fabric_reason, "%s refused: %s (%d)", step,
                 name ? name : "error", cu);
        return;
    }
    m->handle_types = types;
    if (grain > m->granularity) m->granularity = grain;
}

/* The device has no such handles. Any other refusal (no memory, no descriptor) says nothing about
 * that, and a later try may succeed. */
static int means_no(int cu) {
    return cu == SYMM_CUDA_ERROR_NOT_SUPPORTED || cu == SYMM_CUDA_ERROR_NOT_PERMITTED ||
           cu == SYMM_CUDA_ERROR_INVALID_VALUE || cu == SYMM_CUDA_ERROR_INVALID_DEVICE;
}

/* Under probes.lock. */
static cu_result probe(int device, symm_cuda_memory *m) {
    const char *step;
    size_t total = 0;
    int has = 0;
    memset(m, 0, sizeof *m);
    int cu = symm_cu.cuDeviceGetAttribute(&has, SYMM_CUDA_ATTR_VMM, device);
    if (!cu && !has) cu = SYMM_CUDA_ERROR_NOT_SUPPORTED;
    if (!cu) cu = symm_cu.cuDeviceTotalMem(&total, device);
    if (!cu) cu = granularity(device, SYMM_CUDA_HANDLE_NONE, &m->granularity);
    if (cu) return cu;
    m->bytes = total;
    uint64_t grain = m->granularity;
    cu = granularity(device, SYMM_CUDA_HANDLE_FD, &grain);
    if (!cu) cu = try_handles(device, SYMM_CUDA_HANDLE_FD, SYMM_CUDA_HANDLE_FD, grain, &step);
    if (cu && !means_no(cu)) return cu;
    if (!cu) m->handle_types |= SYMM_CUDA_HANDLE_FD;
    if (!cu && grain > m->granularity) m->granularity = grain;
    try_fabric(device, m);
    return SYMM_CUDA_SUCCESS;
}

cu_result symm_cuda_probe(int device, const symm_cuda_memory **memory) {
    symm_cuda_scope scope;
    int cu = SYMM_CUDA_SUCCESS;
    if (device < 0 || device >= SYMM_CUDA_MAX_DEVICES) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    *memory = &probes.memory[device];
    if (atomic_load_explicit(&probes.done[device], memory_order_acquire)) return cu;
    cu = symm_cuda_push_cu(device, &scope);
    if (cu) return cu;
    pthread_mutex_lock(&probes.lock);
    if (!atomic_load_explicit(&probes.done[device], memory_order_relaxed)) {
        cu = probe(device, &probes.memory[device]);
        if (!cu) atomic_store_explicit(&probes.done[device], 1, memory_order_release);
    }
    pthread_mutex_unlock(&probes.lock);
    symm_cuda_pop(&scope);
    return cu;
}

#ifdef SYMM_TESTING
void symm_cuda_probe_forget(void) {
    for (int i = 0; i < SYMM_CUDA_MAX_DEVICES; i++)
        atomic_store_explicit(&probes.done[i], 0, memory_order_relaxed);
}
#endif
