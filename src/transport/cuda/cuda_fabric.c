/* cuda_fabric.c - asks NVML which fabric a GPU is in. See cuda_fabric.h.
 *
 * Any thread. nvml.lock is held while NVML is opened and over each of its calls: they are few and
 * short, and NVML has not always been safe from several threads. It calls nothing of ours. A forked
 * child of a process that uses CUDA is told that there is no CUDA before it comes to the lock, so
 * it is no matter whether another thread held it.
 *
 * NVML is opened once and never closed, and nvmlShutdown is never called: other code of the process
 * may use NVML too, and other threads may be inside it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cuda_device.h"
#include "cuda_fabric.h"

#define LIBRARY "libnvidia-ml.so.1"

enum { UNKNOWN, THERE, MISSING };

static const char none[] = "the GPU is in no NVLink fabric over hosts";

symm_nvml_table symm_nvml;

static struct {
    pthread_mutex_t lock;
    int state; /* under the lock, as all below */
    char why[256];
    void *(*find)(const char *symbol); /* tests: instead of the library */
    const char *file;                  /* tests: another library */
} nvml = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    const char *symbol;
    size_t at; /* in symm_nvml_table */
    int required;
} rows[] = {
#define CALL(name) #name, offsetof(symm_nvml_table, name)
    {CALL(nvmlInit_v2), 1},
    {CALL(nvmlDeviceGetHandleByPciBusId_v2), 1},
    {CALL(nvmlDeviceGetGpuFabricInfoV), 0},
    {CALL(nvmlDeviceGetGpuFabricInfo), 0},
    {CALL(nvmlErrorString), 0},
#undef CALL
};
_Static_assert(sizeof(symm_nvml_table) == sizeof rows / sizeof *rows * sizeof(void *),
               "a table is its rows");

static int no(char *why, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int no(char *why, size_t cap, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, cap, fmt, args);
    va_end(args);
    return 0;
}

/* NVML's text of the code, where it has one. */
static int refused(char *why, size_t cap, const char *call, int code) {
    const char *text = symm_nvml.nvmlErrorString ? symm_nvml.nvmlErrorString(code) : NULL;
    return no(why, cap, "%s: %s (%d)", call, text ? text : "error", code);
}

/* ---- opening: under the lock ---------------------------------------------------------------- */

/* Returns the first required symbol that was not found, or NULL. */
static const char *fill_table(void *library) {
    const char *lacks = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *entry = nvml.find ? nvml.find(rows[i].symbol) : dlsym(library, rows[i].symbol);
        memcpy((char *)&symm_nvml + rows[i].at, &entry, sizeof entry);
        if (!entry && rows[i].required && !lacks) lacks = rows[i].symbol;
    }
    return lacks;
}

/* 1, or 0 and nvml.why. RTLD_LOCAL: its symbols must not take the place of the program's. */
static int open_nvml(void) {
    const char *file = nvml.file ? nvml.file : LIBRARY;
    void *library = nvml.find ? NULL : dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library && !nvml.find) {
        const char *text = dlerror();
        return no(nvml.why, sizeof nvml.why, "%s cannot be opened: %s", LIBRARY,
                  text ? text : "dlopen says nothing");
    }
    const char *lacks = fill_table(library);
    if (!lacks && !symm_nvml.nvmlDeviceGetGpuFabricInfoV && !symm_nvml.nvmlDeviceGetGpuFabricInfo)
        lacks = "nvmlDeviceGetGpuFabricInfo";
    if (lacks) return no(nvml.why, sizeof nvml.why, "the driver's NVML has no %s", lacks);
    const int code = symm_nvml.nvmlInit_v2();
    return code ? refused(nvml.why, sizeof nvml.why, "nvmlInit_v2", code) : 1;
}

/* The first outcome stands. */
static int there(char *why, size_t cap) {
    if (nvml.state == UNKNOWN) nvml.state = open_nvml() ? THERE : MISSING;
    return nvml.state == THERE || no(why, cap, "%s", nvml.why);
}

/* ---- asking --------------------------------------------------------------------------------- */

/* Codes of a call that there is not, or not with our record: NVML has announced that it will take
 * only later ones. */
static int is_unknown(int code) {
    return code == SYMM_NVML_ERROR_FUNCTION_NOT_FOUND || code == SYMM_NVML_ERROR_VERSION ||
           code == SYMM_NVML_ERROR_DEPRECATED;
}

/* By the newer call, or else by the older one. *call: which of them has the answer. Under the
 * lock. */
static int fabric_info(nvml_device gpu, nvml_fabric *is, const char **call) {
    int code = SYMM_NVML_ERROR_FUNCTION_NOT_FOUND;
    nvml_fabric_first first = {.status = 0};
    memset(is, 0, sizeof *is);
    is->version = SYMM_NVML_FABRIC_VERSION;
    *call = "nvmlDeviceGetGpuFabricInfoV";
    if (symm_nvml.nvmlDeviceGetGpuFabricInfoV)
        code = symm_nvml.nvmlDeviceGetGpuFabricInfoV(gpu, is);
    if (!is_unknown(code) || !symm_nvml.nvmlDeviceGetGpuFabricInfo) return code;
    *call = "nvmlDeviceGetGpuFabricInfo";
    code = symm_nvml.nvmlDeviceGetGpuFabricInfo(gpu, &first);
    memcpy(is->cluster, first.cluster, sizeof is->cluster);
    is->status = first.status;
    is->clique = first.clique;
    is->state = first.state;
    return code;
}

/* Under the lock. 1, or 0 and why. */
static int ask(const char *pci, nvml_fabric *is, char *why, size_t cap) {
    nvml_device gpu = NULL;
    const char *call = "nvmlDeviceGetHandleByPciBusId_v2";
    if (!there(why, cap)) return 0;
    int code = symm_nvml.nvmlDeviceGetHandleByPciBusId_v2(pci, &gpu);
    if (code) return refused(why, cap, call, code);
    code = fabric_info(gpu, is, &call);
    if (code == SYMM_NVML_ERROR_NOT_SUPPORTED) return no(why, cap, "%s", none);
    return code ? refused(why, cap, call, code) : 1;
}

/* Whether what NVML has said is a place in a fabric over hosts. Status and cluster mean something
 * only once the registration is over. */
static int is_in_one(const nvml_fabric *is, char *why, size_t cap) {
    static const unsigned char zero[sizeof is->cluster];
    switch (is->state) {
    case SYMM_NVML_FABRIC_COMPLETED: break;
    case SYMM_NVML_FABRIC_NOT_SUPPORTED: return no(why, cap, "%s", none);
    case SYMM_NVML_FABRIC_NOT_STARTED:
    case SYMM_NVML_FABRIC_IN_PROGRESS:
        return no(why, cap, "the fabric manager has not registered the GPU yet (state %d)",
                  is->state);
    default:
        return no(why, cap, "the driver tells a state of the fabric that is not known here (%d)",
                  is->state);
    }
    if (is->status)
        return refused(why, cap, "the fabric manager could not register the GPU", is->status);
    /* The switches of one host: they have no cluster. */
    if (!memcmp(is->cluster, zero, sizeof zero)) return no(why, cap, "%s", none);
    return 1;
}

/* NVML's own numbers of GPUs are other ones (CUDA_VISIBLE_DEVICES): places on the bus are common.
 * Not symm_cuda_describe, which reports an error where it fails. */
static int place_of(int device, char *pci, size_t room, char *why, size_t cap) {
    const int n = symm_cuda_devices();
    if (!n) return no(why, cap, "no CUDA: %s", symm_cuda_why());
    if (device < 0 || device >= n) return no(why, cap, "there is no device %d", device);
    const int cu = symm_cu.cuDeviceGetPCIBusId(pci, (int)room, device);
    const char *name = cu ? symm_cuda_code_name(cu) : NULL;
    return !cu || no(why, cap, "cuDeviceGetPCIBusId: %s (%d)", name ? name : "error", cu);
}

void symm_cuda_fabric_of(int device, symm_cuda_fabric *out, char *why, size_t cap) {
    nvml_fabric is;
    char pci[32] = "";
    memset(out, 0, sizeof *out);
    if (!place_of(device, pci, sizeof pci, why, cap)) return;
    pthread_mutex_lock(&nvml.lock);
    const int known = ask(pci, &is, why, cap) && is_in_one(&is, why, cap);
    pthread_mutex_unlock(&nvml.lock);
    if (!known) return;
    memcpy(out->cluster, is.cluster, sizeof out->cluster);
    out->clique = is.clique;
    out->known = 1;
    if (cap) *why = 0;
}

#ifdef SYMM_TESTING
void symm_nvml_inject(void *(*find)(const char *symbol), const char *file) {
    pthread_mutex_lock(&nvml.lock);
    nvml.state = UNKNOWN;
    nvml.find = find;
    nvml.file = file;
    memset(&symm_nvml, 0, sizeof symm_nvml);
    pthread_mutex_unlock(&nvml.lock);
}
#endif
