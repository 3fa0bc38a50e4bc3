/* unit_cuda_driver.c - finding the CUDA driver, or saying why there is none; devices and contexts.
 * On the fake driver. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_cuda.h"
#include "base/stats.h"
#include "t.h"
#include "transport/cuda/cuda_device.h"

/* ---- loading -------------------------------------------------------------------------------- */

static void a_machine_without_cuda_says_why(void) {
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (lib) T_SKIP("this machine has libcuda.so.1");
    symm_cuda_inject(NULL); /* the real thing */
    T_STREQ(symm_cuda_why(), "");
    T_ERR(symm_cuda_load(), symmNotSupported);
    T_MSG(symm_cuda_why(), "no libcuda.so.1: ");
    T_MSG(symm_status_text(), "no CUDA: no libcuda.so.1: ");
    T_EQ(SYMM_STAT_GET(log_warnings), 0); /* no fault */
    T_EQ(symm_cuda_there(), 0);
    T_EQ(symm_cuda_devices(), 0);
    T_EQ(symm_cuda_version(), 0);
    T_CHECK(!symm_cuda_code_name(700) && !symm_cu.cuInit);
    int device;
    T_ERR(symm_cuda_current(&device), symmNotSupported);
    T_ERR(symm_cuda_set(0), symmNotSupported);
    T_EQ(symm_cuda_current_cu(&device), SYMM_CUDA_ERROR_NOT_INITIALIZED);
    T_EXPECT_WARNINGS();
    T_ERR(symm_cuda_error(100, "launch of %s", "it"), symmNotSupported);
    T_MSG(symm_status_text(), "CUDA: launch of it: no CUDA: no libcuda.so.1");
}

static char asked[256][64];
static int asked_count;
static const char *lacking;

static void *find(const char *symbol) {
    T_CHECK(asked_count < 256);
    snprintf(asked[asked_count++], sizeof asked[0], "%s", symbol);
    return lacking && strcmp(symbol, lacking) == 0 ? NULL : fake_cuda_symbol(symbol);
}

static symmResult_t load_without(const char *symbol) {
    lacking = symbol;
    asked_count = 0;
    return symm_cuda_load_by(find);
}

static void every_symbol_is_looked_up_once_and_none_of_multicast(void) {
    const int rows = (int)(sizeof symm_cu / sizeof(void *));
    T_OK(load_without(NULL));
    T_EQ(symm_cuda_version(), 12080);
    T_STREQ(symm_cuda_why(), "");
    T_EQ(asked_count, rows);
    for (int i = 0; i < rows; i++) {
        void *entry;
        memcpy(&entry, (char *)&symm_cu + (size_t)i * sizeof entry, sizeof entry);
        T_CHECKF(entry == fake_cuda_symbol(asked[i]), "%s is another entry point", asked[i]);
        T_CHECK(!strstr(asked[i], "Multicast") && !strstr(fake_cuda_call_name(i), "Multicast"));
        T_CHECKF(strncmp(asked[i], fake_cuda_call_name(i), 9) == 0, "%s for %s", asked[i],
                 fake_cuda_call_name(i));
        for (int j = 0; j < i; j++) T_CHECK(strcmp(asked[i], asked[j]) != 0);
    }
}

/* What older drivers have not got: the table leaves it NULL. */
static const char *const optional[] = {
#define SYMM_CU_CALL(name, symbol, required, params) required ? NULL : symbol,
#include "transport/cuda/cuda_calls.def"
#undef SYMM_CU_CALL
};

static int may_lack(const char *symbol) {
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (optional[i] && strcmp(optional[i], symbol) == 0) return 1;
    return 0;
}

static void a_symbol_that_lacks_is_named(void) {
    static char all[256][64];
    char why[96];
    int n, lacking = 0;
    T_OK(load_without(NULL));
    T_CHECK(symm_cuda_sees_graphs());
    n = asked_count;
    memcpy(all, asked, sizeof all);
    for (int i = 0; i < n; i++) {
        void *entry;
        if (may_lack(all[i])) {
            T_OK(load_without(all[i]));
            T_CHECK(!symm_cuda_sees_graphs() || !strstr(all[i], "Dependencies"));
            memcpy(&entry, (char *)&symm_cu + (size_t)i * sizeof entry, sizeof entry);
            T_CHECKF(!entry, "%s is there", all[i]);
            lacking++;
            continue;
        }
        T_ERR(load_without(all[i]), symmNotSupported);
        snprintf(why, sizeof why, " lacks %.63s", all[i]);
        T_MSG(symm_cuda_why(), why);
        T_MSG(symm_status_text(), why);
        T_CHECK(!symm_cu.cuInit && symm_cuda_devices() == 0);
    }
    T_CHECK(may_lack("cuStreamGetCaptureInfo_v3")); /* drivers before 12.3 */
    T_CHECKF(lacking < 8, "%d entry points are optional", lacking);
}

static void refused(fake_cuda_config config, const char *why) {
    fake_cuda_install(&config);
    T_ERR(symm_cuda_load(), symmNotSupported);
    T_STREQ(symm_cuda_why(), why);
    int calls = fake_cuda_calls(NULL);
    T_ERR(symm_cuda_load(), symmNotSupported);
    T_EQ(symm_cuda_devices(), 0);
    T_EQ(fake_cuda_calls(NULL), calls); /* the first outcome stands */
    T_EQ(symm_cuda_version(), 0);
}

static void a_driver_that_cannot_be_used_says_why(void) {
    fake_cuda_config config = fake_cuda_defaults();
    config.version = 11040;
    refused(config, "driver 11.4 is too old: 12.0 is needed");
    T_EQ(fake_cuda_calls("cuInit"), 0);
    config.version = 11999;
    refused(config, "driver 11.99 is too old: 12.0 is needed");
    config.version = 12000;
    config.init_code = SYMM_CUDA_ERROR_NO_DEVICE;
    refused(config, "cuInit: CUDA_ERROR_NO_DEVICE (100)");
    config.init_code = 34;
    refused(config, "cuInit: error (34)");
    config.init_code = 0;
    config.devices = 0;
    refused(config, "0 devices");
    config.devices = 1; /* and the oldest that can */
    fake_cuda_install(&config);
    T_OK(symm_cuda_load());
    T_EQ(symm_cuda_version(), 12000);
    T_EQ(symm_cuda_devices(), 1);
}

static void errors_have_cudas_names(void) {
    T_EXPECT_WARNINGS();
    T_OK(symm_cuda_error(0, "nothing"));
    T_ERR(symm_cuda_error(700, "launch of %s", "all_reduce"), symmUnhandledCudaError);
    T_STREQ(symm_status_text(), "CUDA: launch of all_reduce: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    T_ERR(symm_cuda_error(2, "x"), symmOutOfMemory);
    T_ERR(symm_cuda_error(801, "x"), symmNotSupported);
    T_ERR(symm_cuda_error(54321, "x"), symmUnhandledCudaError);
    T_STREQ(symm_status_text(), "CUDA: x: error (54321)");
}

static void capture_is_asked_for_by_the_newest_call(void) {
    symm_cuda_table table = fake_cuda_table();
    cu_stream stream;
    cu_graph graph = NULL, end;
    uint64_t id = 0;
    int device, status;
    for (int v3 = 1; v3 >= 0; v3--) {
        fake_cuda_install(NULL);
        if (!v3) table.cuStreamGetCaptureInfo_v3 = NULL;
        symm_cuda_inject(&table);
        T_OK(symm_cuda_current(&device));
        T_EQ(symm_cu.cuStreamCreate(&stream, SYMM_CUDA_STREAM_NON_BLOCKING), 0);
        T_EQ(symm_cuda_capture_info(stream, &status, &id, &graph), 0);
        T_CHECK(status == SYMM_CUDA_CAPTURE_NONE && graph == NULL);
        T_EQ(symm_cu.cuStreamBeginCapture(stream, SYMM_CUDA_CAPTURE_MODE_GLOBAL), 0);
        T_EQ(symm_cuda_capture_info(stream, &status, &id, &graph), 0);
        T_CHECK(status == SYMM_CUDA_CAPTURE_ACTIVE && id != 0);
        T_EQ(symm_cuda_capture_info(stream, &status, NULL, NULL), 0);
        T_EQ(symm_cu.cuStreamEndCapture(stream, &end), 0);
        T_CHECK(end == graph);
        T_EQ(fake_cuda_calls("cuStreamGetCaptureInfo_v3"), v3 ? 3 : 0);
        T_EQ(symm_cu.cuGraphDestroy(end), 0);
        T_EQ(symm_cu.cuStreamDestroy(stream), 0);
        graph = NULL;
    }
}

/* ---- devices -------------------------------------------------------------------------------- */

static void devices_are_described(void) {
    fake_cuda_config config = fake_cuda_defaults();
    symm_cuda_info info;
    config.fabric_attr = 1;
    fake_cuda_install(&config);
    T_EQ(symm_cuda_devices(), 2);
    T_OK(symm_cuda_describe(1, &info));
    T_EQ(info.device, 1);
    T_EQ(info.sms, 132);
    T_EQ(info.cc_major, 9);
    T_EQ(info.cc_minor, 0);
    T_EQ(info.bytes, 1ull << 30);
    T_EQ(info.attr_fabric, 1);
    T_EQ(info.uuid[0], 0xf1);
    T_EQ(info.uuid[15], 0xf1);
    T_STREQ(info.name, "Fake GPU 1");
    T_STREQ(info.pci, "0000:11:00.0");
    config.version = 12000; /* does not know the attribute */
    fake_cuda_install(&config);
    T_OK(symm_cuda_describe(0, &info));
    T_EQ(info.attr_fabric, 0);
    T_EXPECT_WARNINGS();
    fake_cuda_fail("cuDeviceGetUuid", 1, 999);
    T_ERR(symm_cuda_describe(0, &info), symmUnhandledCudaError);
    T_MSG(symm_status_text(), "description of device 0: CUDA_ERROR_UNKNOWN (999)");
    T_ERR(symm_cuda_describe(2, &info), symmInvalidArgument);
    T_STREQ(symm_status_text(), "device=2: this process sees 2 CUDA devices");
}

static void wrong_devices_are_refused(void) {
    const int wrong[] = {-1, 2, 63, 64, 1 << 30};
    symm_cuda_scope scope;
    cu_context context;
    cu_stream stream;
    T_EXPECT_WARNINGS();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        T_ERR(symm_cuda_set(wrong[i]), symmInvalidArgument);
        T_ERR(symm_cuda_use(wrong[i]), symmInvalidArgument);
        T_ERR(symm_cuda_push(wrong[i], &scope), symmInvalidArgument);
        T_ERR(symm_cuda_primary(wrong[i], &context), symmInvalidArgument);
        T_ERR(symm_cuda_reach(0, wrong[i]), symmInvalidArgument);
        T_ERR(symm_cuda_reach(wrong[i], 0), symmInvalidArgument);
        T_EQ(symm_cuda_reaches(0, wrong[i]), 0);
        T_EQ(symm_cuda_private_stream(wrong[i], &stream), SYMM_CUDA_ERROR_INVALID_DEVICE);
    }
    T_EQ(symm_cuda_in_use(), 0);
    T_EQ(fake_cuda_contexts(), 0);
}

static int picked(int devices) {
    fake_cuda_config config = fake_cuda_defaults();
    int device = -1, again = -1;
    cu_context context = NULL;
    config.devices = devices;
    fake_cuda_install(&config);
    T_OK(symm_cuda_current(&device));
    T_EQ(symm_cu.cuCtxGetCurrent(&context), 0); /* it is current now */
    T_CHECK(context != NULL);
    T_OK(symm_cuda_current(&again));
    T_EQ(device, again);
    T_EQ(fake_cuda_contexts(), 1);
    T_EQ(symm_cuda_in_use(), 1ull << device);
    return device;
}

static void a_thread_without_a_device_gets_the_ranks(void) {
    static const char *const names[] = {"SYMM_DEVICE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"};
    for (int i = 0; i < 5; i++) unsetenv(names[i]);
    T_EQ(picked(4), 0);
    setenv("LOCAL_RANK", "3", 1); /* each beats those before it */
    T_EQ(picked(4), 3);
    T_EQ(picked(2), 1);
    setenv("SLURM_LOCALID", "2", 1);
    T_EQ(picked(4), 2);
    setenv("MPI_LOCALRANKID", "1", 1);
    T_EQ(picked(4), 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "7", 1);
    T_EQ(picked(4), 3);
    const char *const nonsense[] = {"", "x", "-1", "3x", "99999999999999999999"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        setenv("OMPI_COMM_WORLD_LOCAL_RANK", nonsense[i], 1);
        T_EQ(picked(4), 1);
    }
    setenv("SYMM_DEVICE", "2", 1);
    T_EQ(picked(4), 2);
    setenv("SYMM_DEVICE", "-1", 1);
    T_EQ(picked(4), 1);
}

static void a_choice_that_there_is_not_is_refused(void) {
    int device;
    T_EXPECT_WARNINGS();
    setenv("SYMM_DEVICE", "2", 1);
    T_ERR(symm_cuda_current(&device), symmInvalidArgument);
    T_MSG(symm_status_text(), "SYMM_DEVICE=2: this process sees 2 CUDA devices");
    T_EQ(symm_cuda_current_cu(&device), SYMM_CUDA_ERROR_INVALID_DEVICE);
    setenv("SYMM_DEVICE", "64", 1);
    T_ERR(symm_cuda_current(&device), symmInvalidArgument);
    T_MSG(symm_status_text(), "SYMM_DEVICE=64");
    T_EQ(fake_cuda_contexts(), 0);
}

static void a_context_of_the_user_is_left_alone(void) {
    cu_context mine = fake_cuda_context(1), now;
    int device = -1;
    T_EQ(symm_cu.cuCtxSetCurrent(mine), 0);
    T_OK(symm_cuda_current(&device));
    T_EQ(device, 1);
    T_EQ(symm_cu.cuCtxGetCurrent(&now), 0);
    T_CHECK(now == mine);
    T_EQ(fake_cuda_contexts(), 0);
    T_EQ(symm_cuda_in_use(), 2);
    symm_cuda_scope scope;
    T_OK(symm_cuda_push(1, &scope)); /* the library works in the primary one */
    T_EQ(symm_cu.cuCtxGetCurrent(&now), 0);
    T_CHECK(now != mine);
    symm_cuda_pop(&scope);
    T_EQ(symm_cu.cuCtxGetCurrent(&now), 0);
    T_CHECK(now == mine);
    T_OK(symm_cuda_push_context(mine, &scope));
    T_EQ(scope.pushed, 0);
    symm_cuda_pop(&scope);
    free(mine);
}

static void scopes_nest_and_restore(void) {
    symm_cuda_scope outer, inner;
    cu_context now;
    int device, mode = SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL;
    T_EQ(symm_cu.cuThreadExchangeStreamCaptureMode(&mode), 0);
    T_OK(symm_cuda_push(0, &outer));
    T_OK(symm_cuda_push(1, &inner));
    T_OK(symm_cuda_current(&device));
    T_EQ(device, 1);
    mode = SYMM_CUDA_CAPTURE_MODE_RELAXED;
    T_EQ(symm_cu.cuThreadExchangeStreamCaptureMode(&mode), 0);
    T_EQ(mode, SYMM_CUDA_CAPTURE_MODE_RELAXED);
    symm_cuda_pop(&inner);
    T_OK(symm_cuda_current(&device));
    T_EQ(device, 0);
    symm_cuda_pop(&outer);
    T_EQ(symm_cu.cuCtxGetCurrent(&now), 0);
    T_CHECK(now == NULL); /* the thread has none, as before */
    mode = SYMM_CUDA_CAPTURE_MODE_GLOBAL;
    T_EQ(symm_cu.cuThreadExchangeStreamCaptureMode(&mode), 0);
    T_EQ(mode, SYMM_CUDA_CAPTURE_MODE_THREAD_LOCAL);
}

static void a_push_that_fails_leaves_what_was(void) {
    const char *const calls[] = {"cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxPushCurrent",
                                 "cuThreadExchangeStreamCaptureMode"};
    symm_cuda_scope scope;
    cu_context now;
    T_EXPECT_WARNINGS();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fake_cuda_install(NULL);
        fake_cuda_fail(calls[i], 1, 719);
        T_ERR(symm_cuda_push(1, &scope), symmUnhandledCudaError);
        T_MSG(symm_status_text(), "switch to device 1: CUDA_ERROR_LAUNCH_FAILED (719)");
        T_EQ(symm_cu.cuCtxGetCurrent(&now), 0);
        T_CHECK(now == NULL);
        T_OK(symm_cuda_push(1, &scope)); /* and can be had again */
        symm_cuda_pop(&scope);
        T_EQ(fake_cuda_contexts(), 1);
    }
}

static void reach_names_both(void) {
    fake_cuda_config config = fake_cuda_defaults();
    T_OK(symm_cuda_reach(0, 1));
    T_OK(symm_cuda_reach(1, 1));
    config.apart = 1;
    fake_cuda_install(&config);
    T_OK(symm_cuda_reach(1, 1));
    T_EQ(symm_cuda_reaches(0, 1), 0);
    T_EXPECT_WARNINGS();
    T_ERR(symm_cuda_reach(0, 1), symmNotSupported);
    T_MSG(symm_status_text(),
          "kernels of device 0 (0000:10:00.0) cannot reach the memory of device "
          "1 (0000:11:00.0)");
}

static void what_is_not_joined_is_named(void) {
    fake_cuda_config config = fake_cuda_defaults();
    config.devices = 3;
    config.pcie = 1u << 1;
    fake_cuda_install(&config);
    T_OK(symm_cuda_joined(0, 2));
    T_OK(symm_cuda_joined(1, 1)); /* the driver is not asked: it would call that an error */
    T_EQ(fake_cuda_calls("cuDeviceGetP2PAttribute"), 1);
    T_EQ(symm_cuda_is_joined(2, 0), 1);
    T_EQ(symm_cuda_is_joined(0, 1), 0);
    T_EQ(symm_cuda_is_joined(0, 3), 0);
    T_EXPECT_WARNINGS();
    T_ERR(symm_cuda_joined(2, 1), symmNotSupported);
    T_MSG(symm_status_text(), "device 2 (0000:12:00.0) and device 1 (0000:11:00.0) are not joined");
    T_ERR(symm_cuda_joined(0, 3), symmInvalidArgument);
    T_MSG(symm_status_text(), "device=3");
    fake_cuda_fail("cuDeviceGetP2PAttribute", 0, 719);
    T_EQ(symm_cuda_is_joined(0, 2), 0); /* silence is no yes */
    T_ERR(symm_cuda_joined(0, 2), symmUnhandledCudaError);
    T_MSG(symm_status_text(), "asking how device 0 (0000:10:00.0) and device 2 (0000:12:00.0)");
}

static void same_for_all(int rank, int n, void *arg) {
    cu_context context, *contexts = arg;
    cu_stream stream;
    (void)n;
    T_OK(symm_cuda_primary(rank % 2, &context));
    T_EQ(symm_cuda_private_stream(rank % 2, &stream), 0);
    contexts[rank] = context;
    T_OK(symm_cuda_set(rank % 2));
}

static void threads_share_one_context_and_stream_a_device(void) {
    cu_context contexts[8];
    T_THREADS(8, same_for_all, contexts);
    for (int i = 0; i < 8; i++) T_CHECK(contexts[i] == contexts[i % 2]);
    T_CHECK(contexts[0] != contexts[1]);
    T_EQ(fake_cuda_contexts(), 2);
    T_EQ(fake_cuda_calls("cuStreamCreate"), 2);
    T_EQ(symm_cuda_in_use(), 3);
}

/* Each test's process inherits the installed driver. */
int main(int argc, char **argv) {
    static const t_test tests[] = {T(a_machine_without_cuda_says_why),
                                   T(every_symbol_is_looked_up_once_and_none_of_multicast),
                                   T(a_symbol_that_lacks_is_named),
                                   T(a_driver_that_cannot_be_used_says_why),
                                   T(errors_have_cudas_names),
                                   T(capture_is_asked_for_by_the_newest_call),
                                   T(devices_are_described),
                                   T(wrong_devices_are_refused),
                                   T(a_thread_without_a_device_gets_the_ranks),
                                   T(a_choice_that_there_is_not_is_refused),
                                   T(a_context_of_the_user_is_left_alone),
                                   T(scopes_nest_and_restore),
                                   T(a_push_that_fails_leaves_what_was),
                                   T(reach_names_both),
                                   T(what_is_not_joined_is_named),
                                   T(threads_share_one_context_and_stream_a_device)};
    fake_cuda_install(NULL);
    return t_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests));
}
