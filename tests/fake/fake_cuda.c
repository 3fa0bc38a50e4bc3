/* fake_cuda.c - the fake driver's entrance: table, counts, planned failures, devices, contexts. See
 * fake_cuda.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda_work.h"
#include "fake_nvml.h"
#include "t.h"
#include "transport/cuda/cuda_device.h"
#include "transport/vmm/cuda_probe.h"

enum { STACK = 16 };

fake_cuda_config fake;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int waiting;                             /* threads that wait for it */
    int ready;                               /* cuInit was called */
    int calls[FAKE_DEVICES + 1][call_count]; /* [0]: no device current */
    int fail_at, fail_call, fail_left, fail_code;
    int after_call, after_left, after_code; /* what makes it wait for that call, and its code */
    struct cu_context_st primary[FAKE_DEVICES];
    unsigned generation;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Thread_local struct {
    unsigned generation; /* another one: what is here is of an earlier install */
    int depth, mode;
    cu_context stack[STACK];
} self;

static const char *const names[] = {
#define SYMM_CU_CALL(name, symbol, required, params) #name,
#include "transport/cuda/cuda_calls.def"
#include "transport/cuda/cuda_multicast.def"
#undef SYMM_CU_CALL
};

void fake_lock(void) {
    pthread_mutex_lock(&state.lock);
}

void fake_unlock(void) {
    pthread_mutex_unlock(&state.lock);
}

void fake_wait(void) {
    state.waiting++;
    pthread_cond_wait(&state.changed, &state.lock);
    state.waiting--;
}

void fake_wake(void) {
    if (state.waiting) pthread_cond_broadcast(&state.changed);
}

void fake_wait_for(pthread_cond_t *own) {
    pthread_cond_wait(own, &state.lock);
}

static void refresh(void) {
    if (self.generation == state.generation) return;
    memset(&self, 0, sizeof self);
    self.generation = state.generation;
}

/* ---- control -------------------------------------------------------------------------------- */

fake_cuda_config fake_cuda_defaults(void) {
    return (fake_cuda_config){
        .version = 12080,
        .devices = 2,
        .bytes = 1ull << 30,
        .grain = 2ull << 20,
        .sms = 132,
        .cc_major = 9,
        .vmm = 1,
        .fd = 1,
        .fabric_code = SYMM_CUDA_ERROR_NOT_PERMITTED,
        .multicast = 1,
    };
}

symm_cuda_table fake_cuda_table(void) {
    return (symm_cuda_table){
#define SYMM_CU_CALL(name, symbol, required, params) .name = fk_##name,
#include "transport/cuda/cuda_calls.def"
#undef SYMM_CU_CALL
    };
}

void *fake_cuda_symbol(const char *symbol) {
    symm_cuda_table table = fake_cuda_table();
    static const char *const symbols[] = {
#define SYMM_CU_CALL(name, symbol, required, params) symbol,
#include "transport/cuda/cuda_calls.def"
#undef SYMM_CU_CALL
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *entry;
        memcpy(&entry, (char *)&table + i * sizeof entry, sizeof entry);
        if (strcmp(symbols[i], symbol) == 0) return entry;
    }
    return NULL;
}

void fake_cuda_install(const fake_cuda_config *config) {
    symm_cuda_table table = fake_cuda_table();
    fake_stream_reset();
    fake_lock();
    fake = config ? *config : fake_cuda_defaults();
    T_CHECK(fake.devices <= FAKE_DEVICES);
    fake_mem_reset();
    state.ready = state.fail_code = state.after_left = 0;
    state.generation++;
    memset(state.calls, 0, sizeof state.calls);
    memset(state.primary, 0, sizeof state.primary);
    for (int i = 0; i < FAKE_DEVICES; i++)
        state.primary[i] = (struct cu_context_st){.device = i, .primary = 1};
    fake_unlock();
    symm_cuda_device_forget();
    symm_cuda_probe_forget();
    symm_cuda_inject(&table);
    symm_cuda_multicast_inject(fake_multicast_symbol);
    fake_nvml_install(NULL); /* never the machine's own, which knows none of these devices */
}

static int call_of(const char *name) {
    for (int i = 0; i < call_count; i++)
        if (strcmp(names[i], name) == 0) return i;
    t_fail(__FILE__, __LINE__, "the driver has no call %s", name);
}

void fake_cuda_fail(const char *call, int nth, int code) {
    fake_cuda_fail_at(-1, call, nth, code);
}

void fake_cuda_fail_at(int device, const char *call, int nth, int code) {
    int which = call_of(call);
    fake_lock();
    state.fail_at = device;
    state.fail_call = which;
    state.fail_left = nth;
    state.fail_code = code;
    state.after_left = 0;
    fake_unlock();
}

void fake_cuda_fail_after(const char *after, int nth, const char *call, int code) {
    fake_cuda_fail(call, 1, 0);
    int which = call_of(after);
    fake_lock();
    state.after_call = which;
    state.after_left = nth;
    state.after_code = code;
    fake_unlock();
}

int fake_cuda_fail_waits(void) {
    fake_lock();
    int waits = state.fail_code != 0 || state.after_left > 0;
    fake_unlock();
    return waits;
}

int fake_cuda_calls_at(int device, const char *call) {
    int n = 0, which = call ? call_of(call) : -1;
    fake_lock();
    for (int d = 0; d <= FAKE_DEVICES; d++)
        for (int i = 0; i < call_count; i++)
            if ((which < 0 || i == which) && (device < 0 || d == device + 1))
                n += state.calls[d][i];
    fake_unlock();
    return n;
}

int fake_cuda_calls(const char *call) {
    return fake_cuda_calls_at(-1, call);
}

const char *fake_cuda_call_name(int i) {
    return i >= 0 && i < call_count ? names[i] : NULL;
}

int fake_cuda_live(void) {
    fake_lock();
    int n = fake_mem_live() + fake_stream_live();
    fake_unlock();
    return n;
}

int fake_cuda_kept(void) {
    fake_lock();
    int n = fake_stream_kept() + fake_libraries();
    fake_unlock();
    return n;
}

int fake_cuda_contexts(void) {
    int n = 0;
    fake_lock();
    for (int i = 0; i < FAKE_DEVICES; i++) n += state.primary[i].refs;
    fake_unlock();
    return n;
}

cu_context fake_cuda_context(int device) {
    cu_context c = calloc(1, sizeof *c); /* lives as long as the test's process */
    T_CHECK(c != NULL);
    c->device = device;
    c->refs = 1;
    return c;
}

/* ---- every call ----------------------------------------------------------------------------- */

static int planned(int call, int device) {
    if (state.after_left > 0 && call == state.after_call && --state.after_left == 0)
        state.fail_code = state.after_code;
    if (state.fail_code == 0 || state.fail_call != call) return 0;
    if (state.fail_at >= 0 && state.fail_at != device) return 0;
    if (state.fail_left == 0) return state.fail_code;
    if (--state.fail_left > 0) return 0;
    int code = state.fail_code;
    state.fail_code = 0;
    return code;
}

int fake_enter(int call) {
    const int early = call == call_cuInit || call == call_cuDriverGetVersion ||
                      call == call_cuGetErrorName || call == call_cuGetErrorString;
    cu_context current = fake_current();
    int device = current ? current->device : -1;
    fake_lock();
    state.calls[device + 1][call]++;
    int code = planned(call, device);
    if (!code && !early && !state.ready) code = SYMM_CUDA_ERROR_NOT_INITIALIZED;
    fake_unlock();
    return code;
}

int fake_capture_mode(void) {
    refresh();
    return self.mode;
}

int fake_unsafe(void) {
    if (fake_capture_mode() == SYMM_CUDA_CAPTURE_MODE_RELAXED) return 0;
    fake_lock();
    int spoilt = fake_any_global_capture();
    fake_unlock();
    return spoilt ? SYMM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : 0;
}

/* ---- the driver, devices -------------------------------------------------------------------- */

cu_result fk_cuInit(unsigned flags) {
    ENTER(cuInit);
    if (flags != 0) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    state.ready = fake.init_code == 0;
    fake_unlock();
    return fake.init_code;
}

cu_result fk_cuDriverGetVersion(int *version) {
    ENTER(cuDriverGetVersion);
    *version = fake.version;
    return SYMM_CUDA_SUCCESS;
}

static const struct {
    int code;
    const char *name;
} codes[] = {{0, "CUDA_SUCCESS"},
             {1, "CUDA_ERROR_INVALID_VALUE"},
             {2, "CUDA_ERROR_OUT_OF_MEMORY"},
             {3, "CUDA_ERROR_NOT_INITIALIZED"},
             {100, "CUDA_ERROR_NO_DEVICE"},
             {101, "CUDA_ERROR_INVALID_DEVICE"},
             {201, "CUDA_ERROR_INVALID_CONTEXT"},
             {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
             {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
             {400, "CUDA_ERROR_INVALID_HANDLE"},
             {500, "CUDA_ERROR_NOT_FOUND"},
             {600, "CUDA_ERROR_NOT_READY"},
             {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
             {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
             {719, "CUDA_ERROR_LAUNCH_FAILED"},
             {800, "CUDA_ERROR_NOT_PERMITTED"},
             {801, "CUDA_ERROR_NOT_SUPPORTED"},
             {999, "CUDA_ERROR_UNKNOWN"}};

cu_result fk_cuGetErrorName(cu_result code, const char **text) {
    ENTER(cuGetErrorName);
    *text = NULL;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code) *text = codes[i].name;
    return *text ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

cu_result fk_cuGetErrorString(cu_result code, const char **text) {
    ENTER(cuGetErrorString);
    return fk_cuGetErrorName(code, text);
}

int fake_device_ok(int device) {
    return device >= 0 && device < fake.devices;
}

int fake_reaches(int from, int to) {
    return from == to || !fake.apart;
}

cu_result fk_cuDeviceGetCount(int *count) {
    ENTER(cuDeviceGetCount);
    *count = fake.devices;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuDeviceGet(cu_device *device, int ordinal) {
    ENTER(cuDeviceGet);
    if (!fake_device_ok(ordinal)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuDeviceGetName(char *name, int cap, cu_device device) {
    ENTER(cuDeviceGetName);
    if (!fake_device_ok(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)cap, "Fake GPU %d", device);
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuDeviceGetAttribute(int *value, int attribute, cu_device device) {
    ENTER(cuDeviceGetAttribute);
    if (!fake_device_ok(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case SYMM_CUDA_ATTR_MULTIPROCESSOR_COUNT: *value = fake.sms; break;
    case SYMM_CUDA_ATTR_COMPUTE_CAPABILITY_MAJOR: *value = fake.cc_major; break;
    case SYMM_CUDA_ATTR_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case SYMM_CUDA_ATTR_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case SYMM_CUDA_ATTR_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case SYMM_CUDA_ATTR_CLOCK_RATE: *value = 1980000; break;
    case SYMM_CUDA_ATTR_COMPUTE_MODE: *value = 0; break;
    case SYMM_CUDA_ATTR_UNIFIED_ADDRESSING:
    case SYMM_CUDA_ATTR_COMPUTE_PREEMPTION:
    case SYMM_CUDA_ATTR_HOST_POINTER_FOR_REGISTERED:
    case SYMM_CUDA_ATTR_HOST_REGISTER: *value = 1; break;
    case SYMM_CUDA_ATTR_MAX_SHARED_MEMORY_OPTIN: *value = 227 << 10; break;
    case SYMM_CUDA_ATTR_VMM: *value = fake.vmm; break;
    case SYMM_CUDA_ATTR_PAGEABLE_MEMORY_ACCESS: *value = fake.pageable; break;
    case SYMM_CUDA_ATTR_MULTICAST: *value = fake.multicast; break;
    case SYMM_CUDA_ATTR_HANDLE_FD: *value = fake.fd; break;
    case SYMM_CUDA_ATTR_RDMA_WITH_VMM: *value = 0; break;
    case SYMM_CUDA_ATTR_HANDLE_FABRIC:
        if (fake.version < 12030) return SYMM_CUDA_ERROR_INVALID_VALUE;
        *value = fake.fabric_attr;
        break;
    default: return SYMM_CUDA_ERROR_INVALID_VALUE;
    }
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuDeviceGetUuid(cu_uuid *uuid, cu_device device) {
    ENTER(cuDeviceGetUuid);
    if (!fake_device_ok(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    memset(uuid, 0xf0 + device, sizeof *uuid);
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuDeviceTotalMem(size_t *bytes, cu_device device) {
    ENTER(cuDeviceTotalMem);
    if (!fake_device_ok(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    *bytes = fake.bytes;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuDeviceGetPCIBusId(char *id, int cap, cu_device device) {
    ENTER(cuDeviceGetPCIBusId);
    if (!fake_device_ok(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    if (cap < 13) return SYMM_CUDA_ERROR_INVALID_VALUE;
    snprintf(id, (size_t)cap, "0000:%02x:00.0", 0x10 + device);
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuDeviceCanAccessPeer(int *can, cu_device from, cu_device to) {
    ENTER(cuDeviceCanAccessPeer);
    if (!fake_device_ok(from) || !fake_device_ok(to)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    *can = from != to && fake_reaches(from, to); /* not of itself, as CUDA answers */
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuDeviceGetP2PAttribute(int *value, int attribute, cu_device from, cu_device to) {
    ENTER(cuDeviceGetP2PAttribute);
    if (!fake_device_ok(from) || !fake_device_ok(to) || from == to)
        return SYMM_CUDA_ERROR_INVALID_DEVICE;
    if (attribute != SYMM_CUDA_P2P_NATIVE_ATOMIC) return SYMM_CUDA_ERROR_INVALID_VALUE;
    *value = fake_reaches(from, to) && !((fake.pcie >> from | fake.pcie >> to) & 1);
    return SYMM_CUDA_SUCCESS;
}

/* ---- contexts ------------------------------------------------------------------------------- */

cu_context fake_current(void) {
    refresh();
    return self.depth ? self.stack[self.depth - 1] : NULL;
}

cu_result fk_cuDevicePrimaryCtxRetain(cu_context *context, cu_device device) {
    ENTER(cuDevicePrimaryCtxRetain);
    if (!fake_device_ok(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    fake_lock();
    state.primary[device].refs++;
    fake_unlock();
    *context = &state.primary[device];
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuDevicePrimaryCtxRelease(cu_device device) {
    int cu = SYMM_CUDA_SUCCESS;
    ENTER(cuDevicePrimaryCtxRelease);
    if (!fake_device_ok(device)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    fake_lock();
    if (state.primary[device].refs == 0)
        cu = SYMM_CUDA_ERROR_INVALID_CONTEXT;
    else
        state.primary[device].refs--;
    fake_unlock();
    return cu;
}

cu_result fk_cuCtxGetCurrent(cu_context *context) {
    ENTER(cuCtxGetCurrent);
    *context = fake_current();
    return SYMM_CUDA_SUCCESS;
}

/* Replaces the top of the stack; NULL takes it away. */
cu_result fk_cuCtxSetCurrent(cu_context context) {
    ENTER(cuCtxSetCurrent);
    refresh();
    if (context && context->refs == 0) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    if (self.depth > 0) self.depth--;
    if (context) self.stack[self.depth++] = context;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuCtxPushCurrent(cu_context context) {
    ENTER(cuCtxPushCurrent);
    refresh();
    if (!context) return SYMM_CUDA_ERROR_INVALID_VALUE;
    if (context->refs == 0 || self.depth == STACK) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    self.stack[self.depth++] = context;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuCtxPopCurrent(cu_context *context) {
    ENTER(cuCtxPopCurrent);
    refresh();
    if (self.depth == 0) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    *context = self.stack[--self.depth];
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuCtxGetDevice(cu_device *device) {
    ENTER(cuCtxGetDevice);
    if (!fake_current()) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    *device = fake_current()->device;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuThreadExchangeStreamCaptureMode(int *mode) {
    ENTER(cuThreadExchangeStreamCaptureMode);
    refresh();
    if (*mode < 0 || *mode > SYMM_CUDA_CAPTURE_MODE_RELAXED) return SYMM_CUDA_ERROR_INVALID_VALUE;
    int before = self.mode;
    self.mode = *mode;
    *mode = before;
    return SYMM_CUDA_SUCCESS;
}
