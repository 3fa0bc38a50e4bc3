/* unit_fabric_info.c - which fabric over hosts a GPU is in, as NVML tells it, or why that is not
 * known. On the fake driver, with a fake NVML (fake_nvml.h), and once with a library that is opened
 * (nvml_stub.c). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "fake_cuda.h"
#include "fake_nvml.h"
#include "t.h"
#include "transport/cuda/cuda_device.h"
#include "transport/cuda/cuda_fabric.h"

#define NONE "the GPU is in no NVLink fabric over hosts"

static char why[256];

static symm_cuda_fabric ask(int device) {
    symm_cuda_fabric f;
    memset(&f, 0xa5, sizeof f);
    memset(why, 0xa5, sizeof why);
    symm_cuda_fabric_of(device, &f, why, sizeof why);
    return f;
}

static int is(const symm_cuda_fabric *f, int cluster_byte, unsigned clique) {
    symm_cuda_fabric want = {.clique = clique, .known = 1};
    want.cluster[15] = (uint8_t)cluster_byte;
    return !memcmp(f, &want, sizeof want) && !*why;
}

/* Device 0 is not known, with nothing left of what NVML said, for this reason. */
static void unknown(const char *reason) {
    static const symm_cuda_fabric nothing;
    const symm_cuda_fabric f = ask(0);
    T_CHECKF(!memcmp(&f, &nothing, sizeof f), "known %d, clique %u", (int)f.known, f.clique);
    T_STREQ(why, reason);
}

/* Both devices in clusters of their own. */
static fake_nvml_config in_two(void) {
    fake_nvml_config config = fake_nvml_defaults();
    config.cluster[0] = 7, config.clique[0] = 3;
    config.cluster[1] = 8, config.clique[1] = 0;
    return config;
}

static void with(fake_nvml_config config, const char *reason) {
    fake_nvml_install(&config);
    unknown(reason);
}

/* ---- what is known -------------------------------------------------------------------------- */

static void each_device_has_its_place(void) {
    const fake_nvml_config config = in_two();
    fake_nvml_install(&config);
    for (int i = 0; i < 2; i++) {
        const symm_cuda_fabric a = ask(0), b = ask(1);
        T_CHECK(is(&a, 7, 3) && is(&b, 8, 0));
    }
    T_EQ(fake_nvml_calls("nvmlInit_v2"), 1);
    T_EQ(fake_nvml_calls("nvmlDeviceGetGpuFabricInfoV"), 4);
    T_EQ(fake_nvml_calls("nvmlDeviceGetGpuFabricInfo"), 0);
}

static void an_older_driver_has_the_older_call(void) {
    static const int codes[] = {0, SYMM_NVML_ERROR_FUNCTION_NOT_FOUND, SYMM_NVML_ERROR_VERSION,
                                SYMM_NVML_ERROR_DEPRECATED};
    for (int i = 0; i < 4; i++) { /* the newer one lacks; is there, and does not know our record */
        fake_nvml_config config = in_two();
        config.lacks[0] = codes[i] ? NULL : "nvmlDeviceGetGpuFabricInfoV";
        config.fails = codes[i] ? "nvmlDeviceGetGpuFabricInfoV" : NULL;
        config.code = codes[i];
        fake_nvml_install(&config);
        const symm_cuda_fabric a = ask(0), b = ask(1);
        T_CHECK(is(&a, 7, 3) && is(&b, 8, 0));
        T_EQ(fake_nvml_calls("nvmlDeviceGetGpuFabricInfo"), 2);
    }
}

static void a_newer_driver_may_lack_the_older_call(void) {
    fake_nvml_config config = in_two();
    config.lacks[0] = "nvmlDeviceGetGpuFabricInfo";
    config.lacks[1] = "nvmlErrorString";
    fake_nvml_install(&config);
    const symm_cuda_fabric f = ask(1);
    T_CHECK(is(&f, 8, 0));
    config.fails = "nvmlDeviceGetGpuFabricInfoV";
    config.code = SYMM_NVML_ERROR_VERSION;
    with(config, "nvmlDeviceGetGpuFabricInfoV: error (25)");
}

/* A GPU is registered while the program runs: it is asked anew. */
static void a_place_may_come_later(void) {
    unknown(NONE);
    fake_nvml_set(0, 200, 0xfffffffe);
    const symm_cuda_fabric f = ask(0), other = ask(1);
    T_CHECK(f.known && f.cluster[15] == 200 && f.clique == 0xfffffffe && !other.known);
    fake_nvml_set(0, 0, 1);
    unknown(NONE);
}

/* ---- what is not ---------------------------------------------------------------------------- */

/* fake_cuda_install alone: its NVML was asked, and no other. */
static void the_fake_driver_has_an_nvml_without_a_fabric(void) {
    unknown(NONE);
    T_EQ(fake_nvml_calls("nvmlDeviceGetGpuFabricInfoV"), 1);
    fake_nvml_set(0, 7, 1);
    fake_cuda_install(NULL);
    unknown(NONE);
    T_EQ(fake_nvml_calls("nvmlDeviceGetGpuFabricInfoV"), 1);
}

static void every_state_has_its_reason(void) {
    fake_nvml_config config = in_two();
    config.state = 0;
    with(config, NONE);
    config.state = 1;
    with(config, "the fabric manager has not registered the GPU yet (state 1)");
    config.state = 2;
    config.status = 6; /* means nothing yet */
    with(config, "the fabric manager has not registered the GPU yet (state 2)");
    config.state = 3;
    with(config, "the fabric manager could not register the GPU: Not Found (6)");
    config.state = 4;
    with(config, "the driver tells a state of the fabric that is not known here (4)");
    config.state = 3;
    config.status = 0;
    config.cluster[0] = 0; /* the clique alone is no place */
    with(config, NONE);
    config.lacks[0] = "nvmlDeviceGetGpuFabricInfoV";
    with(config, NONE);
    config.cluster[0] = 7;
    config.state = 2;
    with(config, "the fabric manager has not registered the GPU yet (state 2)");
}

static void every_call_that_fails_is_named(void) {
    static const char *const calls[] = {"nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2",
                                        "nvmlDeviceGetGpuFabricInfoV",
                                        "nvmlDeviceGetGpuFabricInfo"};
    char reason[96];
    for (int i = 0; i < 4; i++) {
        fake_nvml_config config = in_two();
        config.lacks[0] = i == 3 ? "nvmlDeviceGetGpuFabricInfoV" : NULL;
        config.fails = calls[i];
        config.code = 999;
        snprintf(reason, sizeof reason, "%s: Unknown Error (999)", calls[i]);
        with(config, reason);
        config.code = SYMM_NVML_ERROR_NOT_SUPPORTED; /* the answer of a GPU without NVLink */
        snprintf(reason, sizeof reason, "%s: Unknown Error (3)", calls[i]);
        with(config, i < 2 ? reason : NONE);
    }
}

static void every_symbol_that_lacks_is_named(void) {
    fake_nvml_config config = in_two();
    config.lacks[0] = "nvmlInit_v2";
    with(config, "the driver's NVML has no nvmlInit_v2");
    config.lacks[0] = "nvmlDeviceGetHandleByPciBusId_v2";
    with(config, "the driver's NVML has no nvmlDeviceGetHandleByPciBusId_v2");
    T_EQ(fake_nvml_calls("nvmlInit_v2"), 0);
    config.lacks[0] = "nvmlDeviceGetGpuFabricInfoV";
    config.lacks[1] = "nvmlDeviceGetGpuFabricInfo";
    with(config, "the driver's NVML has no nvmlDeviceGetGpuFabricInfo");
    T_EQ(fake_nvml_calls("nvmlInit_v2"), 0);
}

static void what_was_found_first_stands(void) {
    fake_nvml_config config = in_two();
    config.fails = "nvmlInit_v2";
    config.code = 9;
    with(config, "nvmlInit_v2: Unknown Error (9)");
    unknown("nvmlInit_v2: Unknown Error (9)");
    T_EQ(fake_nvml_calls("nvmlInit_v2"), 1);
    T_EQ(fake_nvml_calls("nvmlDeviceGetHandleByPciBusId_v2"), 0);
}

/* NVML is not asked, and nothing is logged: it is no error. */
static void without_a_device_there_is_no_place(void) {
    fake_cuda_config none = fake_cuda_defaults();
    const fake_nvml_config config = in_two();
    fake_nvml_install(&config);
    T_CHECK(!ask(-1).known);
    T_STREQ(why, "there is no device -1");
    T_CHECK(!ask(2).known);
    T_STREQ(why, "there is no device 2");
    fake_cuda_fail("cuDeviceGetPCIBusId", 1, SYMM_CUDA_ERROR_INVALID_DEVICE);
    unknown("cuDeviceGetPCIBusId: CUDA_ERROR_INVALID_DEVICE (101)");
    none.devices = 0;
    fake_cuda_install(&none);
    unknown("no CUDA: 0 devices");
    T_EQ(fake_nvml_calls("nvmlInit_v2"), 0);
}

static void a_reason_is_cut_to_its_room(void) {
    symm_cuda_fabric f;
    char small[9] = "xxxxxxxx";
    symm_cuda_fabric_of(0, &f, small, 8);
    T_STREQ(small, "the GPU");
}

/* ---- threads, processes --------------------------------------------------------------------- */

static void ask_often(int rank, int n, void *arg) {
    char mine[64];
    symm_cuda_fabric f;
    (void)n, (void)arg;
    for (int i = 0; i < 100; i++) {
        symm_cuda_fabric_of(rank % 2, &f, mine, sizeof mine);
        T_CHECK(f.known && f.cluster[15] == 7 + rank % 2 && !*mine);
    }
}

static void threads_open_it_once(void) {
    const fake_nvml_config config = in_two();
    fake_nvml_install(&config);
    T_THREADS(6, ask_often, NULL);
    T_EQ(fake_nvml_calls("nvmlInit_v2"), 1);
}

static void set_and_ask(int rank, int n, void *arg) {
    (void)n, (void)arg;
    fake_nvml_set(0, 7 + rank, (unsigned)rank);
    const symm_cuda_fabric f = ask(0);
    T_CHECK(is(&f, 7 + rank, (unsigned)rank));
}

static void ranks_have_places_of_their_own(void) {
    T_FORK(3, set_and_ask, NULL);
    unknown(NONE);
}

/* ---- libraries ------------------------------------------------------------------------------ */

/* Where the loader finds it, or beside the program: a sanitizer's dlopen does not look on the
 * program's own library path. */
static const char *stub(void) {
    static const char name[] = "libnvidia-ml-stub.so";
    static char path[4096];
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library) return dlclose(library), name;
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof name);
    T_CHECK(n > 0);
    path[n] = 0;
    strcpy(strrchr(path, '/') + 1, name);
    return path;
}

static void a_library_is_opened(void) {
    symm_nvml_inject(NULL, stub());
    const symm_cuda_fabric f = ask(0);
    T_STREQ(why, "");
    T_CHECK(f.known && f.clique == 9);
    for (int i = 0; i < 16; i++) T_EQ(f.cluster[i], i + 1);
    T_CHECK(!dlsym(RTLD_DEFAULT, "nvmlInit_v2")); /* its names stay its own */
    T_CHECK(!ask(1).known);
    T_STREQ(why, "nvmlDeviceGetHandleByPciBusId_v2: error (6)");
}

static void a_library_that_is_not_there(void) {
    fake_nvml_config config = in_two();
    config.missing = 1;
    fake_nvml_install(&config);
    T_CHECK(!ask(0).known);
    T_MSG(why, "libnvidia-ml.so.1 cannot be opened: ");
    T_MSG(why, "No such file");
}

/* Each test's process inherits the installed driver. */
int main(int argc, char **argv) {
    static const t_test tests[] = {T(each_device_has_its_place),
                                   T(an_older_driver_has_the_older_call),
                                   T(a_newer_driver_may_lack_the_older_call),
                                   T(a_place_may_come_later),
                                   T(the_fake_driver_has_an_nvml_without_a_fabric),
                                   T(every_state_has_its_reason),
                                   T(every_call_that_fails_is_named),
                                   T(every_symbol_that_lacks_is_named),
                                   T(what_was_found_first_stands),
                                   T(without_a_device_there_is_no_place),
                                   T(a_reason_is_cut_to_its_room),
                                   T(threads_open_it_once),
                                   T(ranks_have_places_of_their_own),
                                   T(a_library_is_opened),
                                   T(a_library_that_is_not_there)};
    fake_cuda_install(NULL);
    return t_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests));
}
