/* fake_nvml.c - see fake_nvml.h. As strict as NVML: it wants to be initialised, and a record of a
 * version that it knows. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "fake_nvml.h"
#include "t.h"
#include "transport/cuda/cuda_fabric.h"

struct nvml_device_st {
    int device;
};

enum { INIT, HANDLE, FABRIC, FABRIC_FIRST, TEXT, CALLS };

static const char *const names[CALLS] = {"nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2",
                                         "nvmlDeviceGetGpuFabricInfoV",
                                         "nvmlDeviceGetGpuFabricInfo", "nvmlErrorString"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_nvml_config is; /* under the lock, as all below */
static int ready;           /* nvmlInit_v2 was called */
static int calls[CALLS];
static struct nvml_device_st gpus[FAKE_DEVICES];

static int call_of(const char *name) {
    for (int i = 0; i < CALLS; i++)
        if (!strcmp(names[i], name)) return i;
    t_fail(__FILE__, __LINE__, "NVML has no call %s", name);
}

/* ---- entry points --------------------------------------------------------------------------- */

/* Counts the call, and returns with the lock. */
static int enter(int call) {
    pthread_mutex_lock(&lock);
    calls[call]++;
    if (is.fails && !strcmp(is.fails, names[call])) return is.code;
    return ready || call == INIT ? SYMM_NVML_SUCCESS : SYMM_NVML_ERROR_UNINITIALIZED;
}

static int leave(int code) {
    pthread_mutex_unlock(&lock);
    return code;
}

static int init(void) {
    const int code = enter(INIT);
    if (!code) ready = 1;
    return leave(code);
}

/* The place on the bus is as fake_cuda.c tells it. */
static int handle(const char *pci, nvml_device *device) {
    unsigned domain, bus, slot, function;
    const int code = enter(HANDLE);
    if (code) return leave(code);
    if (sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4 || domain || slot ||
        function || bus < 0x10 || bus >= 0x10 + FAKE_DEVICES)
        return leave(SYMM_NVML_ERROR_NOT_FOUND);
    *device = &gpus[bus - 0x10];
    (*device)->device = (int)bus - 0x10;
    return leave(SYMM_NVML_SUCCESS);
}

static int fabric(nvml_device device, nvml_fabric *out) {
    int code = enter(FABRIC);
    if (!code && out->version != SYMM_NVML_FABRIC_VERSION) code = SYMM_NVML_ERROR_VERSION;
    if (code) return leave(code);
    memset(out->cluster, 0, sizeof out->cluster);
    out->cluster[sizeof out->cluster - 1] = is.cluster[device->device];
    out->status = is.status;
    out->clique = is.clique[device->device];
    out->state = is.state;
    out->health = 0;
    return leave(SYMM_NVML_SUCCESS);
}

static int fabric_first(nvml_device device, nvml_fabric_first *out) {
    const int code = enter(FABRIC_FIRST);
    if (code) return leave(code);
    memset(out->cluster, 0, sizeof out->cluster);
    out->cluster[sizeof out->cluster - 1] = is.cluster[device->device];
    out->status = is.status;
    out->clique = is.clique[device->device];
    out->state = is.state;
    return leave(SYMM_NVML_SUCCESS);
}

static const char *text(int code) {
    enter(TEXT);
    leave(0);
    return code == SYMM_NVML_ERROR_NOT_FOUND ? "Not Found" : "Unknown Error";
}

/* ---- control -------------------------------------------------------------------------------- */

static const symm_nvml_table table = {init, handle, fabric, fabric_first, text};
_Static_assert(sizeof table == CALLS * sizeof(void *), "in the order of the names");

static void *find(const char *symbol) {
    void *entry;
    const int call = call_of(symbol);
    memcpy(&entry, (const char *)&table + (size_t)call * sizeof entry, sizeof entry);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2; i++)
        if (is.lacks[i] && !strcmp(is.lacks[i], symbol)) entry = NULL;
    pthread_mutex_unlock(&lock);
    return entry;
}

fake_nvml_config fake_nvml_defaults(void) {
    return (fake_nvml_config){.state = SYMM_NVML_FABRIC_COMPLETED};
}

void fake_nvml_install(const fake_nvml_config *config) {
    pthread_mutex_lock(&lock);
    is = config ? *config : fake_nvml_defaults();
    ready = 0;
    memset(calls, 0, sizeof calls);
    const int missing = is.missing;
    pthread_mutex_unlock(&lock);
    symm_nvml_inject(missing ? NULL : find, "/nonexistent/libnvidia-ml.so.1");
}

void fake_nvml_set(int device, int cluster_byte, unsigned clique) {
    T_CHECK(device >= 0 && device < FAKE_DEVICES);
    pthread_mutex_lock(&lock);
    is.cluster[device] = (unsigned char)cluster_byte;
    is.clique[device] = clique;
    pthread_mutex_unlock(&lock);
}

int fake_nvml_calls(const char *call) {
    const int which = call_of(call);
    pthread_mutex_lock(&lock);
    const int n = calls[which];
    pthread_mutex_unlock(&lock);
    return n;
}
