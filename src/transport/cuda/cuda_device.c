/* cuda_device.c - devices and contexts: which device a thread works with, its primary context, and
 * which devices can reach each other.
 *
 * Any thread. devices.lock is held while the context and the stream of a device are made, once
 * each. Both are published with a release store, which pairs with the acquire load of the threads
 * that find them. They are kept until the process ends, because other threads and mappings may need
 * them.
 *
 * The handle of a device (CUdevice) is its ordinal, as in every driver so far. Both are called
 * `device` here. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/param.h"
#include "cuda_device.h"

extern char **environ;

static struct {
    pthread_mutex_t lock;
    _Atomic(cu_context) primary[SYMM_CUDA_MAX_DEVICES];
    _Atomic(cu_stream) stream[SYMM_CUDA_MAX_DEVICES];
    _Atomic uint64_t used; /* relaxed: who needs a bit has set it, or heard of it over the mesh */
} devices = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the devices ------------------------------------------------------------------------------
 * */

int symm_cuda_devices(void) {
    int count = 0;
    if (!symm_cuda_there() || symm_cu.cuDeviceGetCount(&count) != 0 || count < 0) return 0;
    return count < SYMM_CUDA_MAX_DEVICES ? count : SYMM_CUDA_MAX_DEVICES;
}

static int exists(int device) {
    return device >= 0 && device < symm_cuda_devices();
}

static symmResult_t no_such(int device) {
    SYMM_TRY(symm_cuda_load());
    return SYMM_ERR(symmInvalidArgument, "device=%d: this process sees %d CUDA device%s", device,
                    symm_cuda_devices(), symm_cuda_devices() == 1 ? "" : "s");
}

static int attribute(int device, int which, int *value, int cu) {
    return cu ? cu : symm_cu.cuDeviceGetAttribute(value, which, device);
}

symmResult_t symm_cuda_describe(int device, symm_cuda_info *info) {
    size_t bytes = 0;
    cu_uuid uuid;
    if (!exists(device)) return no_such(device);
    memset(info, 0, sizeof *info);
    info->device = device;
    int cu = symm_cu.cuDeviceGetName(info->name, sizeof info->name, device);
    cu = attribute(device, SYMM_CUDA_ATTR_MULTIPROCESSOR_COUNT, &info->sms, cu);
    cu = attribute(device, SYMM_CUDA_ATTR_COMPUTE_CAPABILITY_MAJOR, &info->cc_major, cu);
    cu = attribute(device, SYMM_CUDA_ATTR_COMPUTE_CAPABILITY_MINOR, &info->cc_minor, cu);
    if (!cu) cu = symm_cu.cuDeviceTotalMem(&bytes, device);
    if (!cu) cu = symm_cu.cuDeviceGetUuid(&uuid, device);
    if (!cu) cu = symm_cu.cuDeviceGetPCIBusId(info->pci, sizeof info->pci, device);
    if (cu) return symm_cuda_error(cu, "description of device %d", device);
    /* Drivers older than 12.4 do not know this attribute. */
    if (attribute(device, SYMM_CUDA_ATTR_HANDLE_FABRIC, &info->attr_fabric, 0))
        info->attr_fabric = 0;
    info->name[sizeof info->name - 1] = info->pci[sizeof info->pci - 1] = 0;
    info->bytes = bytes;
    memcpy(info->uuid, uuid.bytes, sizeof info->uuid);
    return symmSuccess;
}

int symm_cuda_reaches(int from, int to) {
    int can = 0;
    if (!exists(from) || !exists(to)) return 0;
    return from == to || (symm_cu.cuDeviceCanAccessPeer(&can, from, to) == 0 && can);
}

cu_result symm_cuda_grant(uint64_t lo, uint64_t bytes, int owner, int device) {
    cu_mem_access access[SYMM_CUDA_MAX_DEVICES];
    uint64_t in_use = symm_cuda_in_use() | 1ull << device;
    size_t n = 0;
    for (int d = 0; d < SYMM_CUDA_MAX_DEVICES; d++) {
        if (!(in_use >> d & 1)) continue;
        if (d != device && owner >= 0 && !symm_cuda_reaches(d, owner)) continue;
        access[n++] = (cu_mem_access){{SYMM_CUDA_LOCATION_DEVICE, d}, SYMM_CUDA_ACCESS_READWRITE};
    }
    return symm_cu.cuMemSetAccess(lo, bytes, access, n);
}

static void name_of(int device, char *out, size_t cap) {
    char id[16] = "";
    if (symm_cu.cuDeviceGetPCIBusId(id, sizeof id, device) != 0) id[0] = 0;
    snprintf(out, cap, "device %d%s%s%s", device, *id ? " (" : "", id, *id ? ")" : "");
}

symmResult_t symm_cuda_reach(int from, int to) {
    char a[48], b[48];
    if (!exists(from)) return no_such(from);
    if (!exists(to)) return no_such(to);
    if (symm_cuda_reaches(from, to)) return symmSuccess;
    name_of(from, a, sizeof a);
    name_of(to, b, sizeof b);
    return SYMM_ERR(symmNotSupported,
                    "kernels of %s cannot reach the memory of %s: no peer access between them "
                    "(see nvidia-smi topo -p2p r)",
                    a, b);
}

/* CUDA returns an error if a device is compared with itself. */
static cu_result native_atomics(int from, int to, int *has) {
    *has = from == to;
    if (*has) return SYMM_CUDA_SUCCESS;
    return symm_cu.cuDeviceGetP2PAttribute(has, SYMM_CUDA_P2P_NATIVE_ATOMIC, from, to);
}

int symm_cuda_is_joined(int from, int to) {
    int has = 0;
    return exists(from) && exists(to) && native_atomics(from, to, &has) == 0 && has;
}

symmResult_t symm_cuda_joined(int from, int to) {
    char a[48], b[48];
    int has = 0;
    if (!exists(from)) return no_such(from);
    if (!exists(to)) return no_such(to);
    const cu_result cu = native_atomics(from, to, &has);
    if (!cu && has) return symmSuccess;
    name_of(from, a, sizeof a);
    name_of(to, b, sizeof b);
    if (cu) return symm_cuda_error(cu, "asking how %s and %s are joined", a, b);
    return SYMM_ERR(symmNotSupported,
                    "%s and %s are not joined by NVLink (no native atomics between them): over "
                    "PCIe the kernels' lines of 128 bytes might arrive in parts "
                    "(see nvidia-smi topo -m)",
                    a, b);
}

/* ---- in use --------------------------------------------------------------------------------- */

static void mark(int device) {
    uint64_t bit = 1ull << device;
    if (!(atomic_load_explicit(&devices.used, memory_order_relaxed) & bit))
        atomic_fetch_or_explicit(&devices.used, bit, memory_order_relaxed);
}

symmResult_t symm_cuda_use(int device) {
    if (!exists(device)) return no_such(device);
    mark(device);
    return symmSuccess;
}

uint64_t symm_cuda_in_use(void) {
    return atomic_load_explicit(&devices.used, memory_order_relaxed);
}

/* ---- contexts ------------------------------------------------------------------------------- */

static cu_result primary(int device, cu_context *context) {
    int cu = SYMM_CUDA_SUCCESS;
    if (!symm_cuda_there()) return SYMM_CUDA_ERROR_NOT_INITIALIZED;
    if (device < 0 || device >= SYMM_CUDA_MAX_DEVICES) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    *context = atomic_load_explicit(&devices.primary[device], memory_order_acquire);
    if (*context) return SYMM_CUDA_SUCCESS;
    if (!exists(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&devices.lock);
    *context = atomic_load_explicit(&devices.primary[device], memory_order_relaxed);
    if (!*context) cu = symm_cu.cuDevicePrimaryCtxRetain(context, device);
    if (!cu) atomic_store_explicit(&devices.primary[device], *context, memory_order_release);
    pthread_mutex_unlock(&devices.lock);
    return cu;
}

symmResult_t symm_cuda_primary(int device, cu_context *context) {
    int cu = primary(device, context);
    if (cu == SYMM_CUDA_ERROR_INVALID_DEVICE && !exists(device)) return no_such(device);
    return symm_cuda_error(cu, "primary context of device %d", device);
}

/* The value of a launcher's variable; -1 if it is not set or not a number. */
static int variable(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || *text < '0' || *text > '9') return -1;
    long n = strtol(text, &end, 10);
    return *end || n > 1 << 20 ? -1 : (int)n;
}

static int local_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID", "LOCAL_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int rank = variable(names[i]);
        if (rank >= 0) return rank;
    }
    return 0;
}

/* The device of a thread that has none. If the launcher shows each process its own devices only,
 * this gives the right one too: there is one device, or the ranks share them evenly. */
static cu_result pick(int *device, char *why, size_t cap) {
    symm_params p;
    int count = symm_cuda_devices();
    if (symm_param_parse(environ, &p) != symmSuccess) {
        snprintf(why, cap, "%s", symm_status_text());
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    }
    if (count == 0 || p.device >= count) {
        snprintf(why, cap, "SYMM_DEVICE=%d: this process sees %d CUDA device%s", (int)p.device,
                 count, count == 1 ? "" : "s");
        return SYMM_CUDA_ERROR_INVALID_DEVICE;
    }
    *device = p.device >= 0 ? (int)p.device : local_rank() % count;
    return SYMM_CUDA_SUCCESS;
}

static cu_result set_current(int device) {
    cu_context context = NULL;
    int cu = primary(device, &context);
    if (!cu) cu = symm_cu.cuCtxSetCurrent(context);
    if (!cu) mark(device);
    return cu;
}

static cu_result current(int *device, char *why, size_t cap) {
    cu_context context = NULL;
    *why = 0;
    if (!symm_cuda_there()) return SYMM_CUDA_ERROR_NOT_INITIALIZED;
    int cu = symm_cu.cuCtxGetCurrent(&context);
    if (cu) return cu;
    if (!context) {
        cu = pick(device, why, cap);
        return cu ? cu : set_current(*device);
    }
    cu = symm_cu.cuCtxGetDevice(device);
    if (!cu && (*device < 0 || *device >= SYMM_CUDA_MAX_DEVICES))
        cu = SYMM_CUDA_ERROR_INVALID_DEVICE;
    if (!cu) mark(*device);
    return cu;
}

cu_result symm_cuda_current_cu(int *device) {
    char why[SYMM_ERR_TEXT];
    return current(device, why, sizeof why);
}

symmResult_t symm_cuda_current(int *device) {
    char why[SYMM_ERR_TEXT];
    SYMM_TRY(symm_cuda_load());
    int cu = current(device, why, sizeof why);
    if (*why) return SYMM_ERR(symmInvalidArgument, "choice of a CUDA device: %s", why);
    return symm_cuda_error(cu, "current device of this thread");
}

symmResult_t symm_cuda_set(int device) {
    if (!exists(device)) return no_such(device);
    return symm_cuda_error(set_current(device), "making device %d current", device);
}

/* ---- scopes --------------------------------------------------------------------------------- */

static cu_result push(cu_context context, symm_cuda_scope *scope) {
    cu_context before = NULL, popped;
    *scope = (symm_cuda_scope){.mode = SYMM_CUDA_CAPTURE_MODE_RELAXED};
    int cu = symm_cu.cuCtxGetCurrent(&before);
    if (!cu && before != context) {
        cu = symm_cu.cuCtxPushCurrent(context);
        scope->pushed = cu == 0;
    }
    if (!cu) cu = symm_cu.cuThreadExchangeStreamCaptureMode(&scope->mode); /* gives the old one */
    if (cu && scope->pushed) symm_cu.cuCtxPopCurrent(&popped);
    return cu;
}

cu_result symm_cuda_push_cu(int device, symm_cuda_scope *scope) {
    cu_context context = NULL;
    int cu = primary(device, &context);
    if (!cu) mark(device);
    return cu ? cu : push(context, scope);
}

symmResult_t symm_cuda_push(int device, symm_cuda_scope *scope) {
    if (!symm_cuda_there() || !exists(device)) return no_such(device);
    return symm_cuda_error(symm_cuda_push_cu(device, scope), "switch to device %d", device);
}

symmResult_t symm_cuda_push_context(cu_context context, symm_cuda_scope *scope) {
    SYMM_TRY(symm_cuda_load());
    return symm_cuda_error(push(context, scope), "switch to context %p", (void *)context);
}

void symm_cuda_pop(symm_cuda_scope *scope) {
    cu_context popped;
    symm_cu.cuThreadExchangeStreamCaptureMode(&scope->mode);
    if (scope->pushed) symm_cu.cuCtxPopCurrent(&popped);
}

/* ---- private streams ------------------------------------------------------------------------ */

/* Under devices.lock, the primary context current. */
static cu_result make_stream(int device, cu_stream *stream) {
    *stream = atomic_load_explicit(&devices.stream[device], memory_order_relaxed);
    if (*stream) return SYMM_CUDA_SUCCESS;
    int cu = symm_cu.cuStreamCreate(stream, SYMM_CUDA_STREAM_NON_BLOCKING);
    if (!cu) atomic_store_explicit(&devices.stream[device], *stream, memory_order_release);
    return cu;
}

cu_result symm_cuda_private_stream(int device, cu_stream *stream) {
    symm_cuda_scope scope;
    if (device < 0 || device >= SYMM_CUDA_MAX_DEVICES) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    *stream = atomic_load_explicit(&devices.stream[device], memory_order_acquire);
    if (*stream) return SYMM_CUDA_SUCCESS;
    int cu = symm_cuda_push_cu(device, &scope);
    if (cu) return cu;
    pthread_mutex_lock(&devices.lock);
    cu = make_stream(device, stream);
    pthread_mutex_unlock(&devices.lock);
    symm_cuda_pop(&scope);
    return cu;
}

#ifdef SYMM_TESTING
void symm_cuda_device_forget(void) {
    for (int i = 0; i < SYMM_CUDA_MAX_DEVICES; i++) {
        atomic_store_explicit(&devices.primary[i], NULL, memory_order_relaxed);
        atomic_store_explicit(&devices.stream[i], NULL, memory_order_relaxed);
    }
    atomic_store_explicit(&devices.used, 0, memory_order_relaxed);
}
#endif
