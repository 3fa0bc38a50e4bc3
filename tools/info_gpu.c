/* info_gpu.c - what symm-info says about GPUs: the driver, each device, its place in a fabric over
 * hosts, what its memory can do (tried, not believed), which of them reach which. Where there are
 * none, nothing is shown here: the backends' part says why. Main thread; makes each device's
 * primary context, as a program would that uses it. */
#include <stdio.h>
#include <string.h>

#include "device/common/kernels.h"
#include "transport/cuda/cuda_device.h"
#include "transport/cuda/cuda_fabric.h"
#include "transport/vmm/vmm.h"
#include "info.h"

/* Whether the fat binaries have code for a device: of its own generation, and not newer than the
 * device. */
static int has_kernels(const symm_cuda_info *info) {
    const char *at = symm_kernel_archs();
    int arch, used;
    for (; sscanf(at, "%d%n", &arch, &used) == 1; at += strcspn(at, " ")) {
        at += used;
        if (arch / 10 == info->cc_major && arch % 10 <= info->cc_minor) return 1;
    }
    return 0;
}

/* The cluster as nvidia-smi writes it. */
static void show_fabric(int device) {
    symm_cuda_fabric f;
    char why[256], id[40];
    size_t at = 0;
    symm_cuda_fabric_of(device, &f, why, sizeof why);
    if (!f.known) {
        info_row("NVLink fabric", "refused: %s", why);
        return;
    }
    for (int i = 0; i < 16; i++)
        at += (size_t)snprintf(id + at, sizeof id - at, "%s%02x",
                               i >= 4 && i <= 10 && i % 2 == 0 ? "-" : "", f.cluster[i]);
    info_row("NVLink fabric", "cluster %s, clique %u", id, f.clique);
}

static void show_device(int device, const symm_cuda_info *info) {
    char a[32];
    info_row("device", "%s, %s, %s", info->name, info_bytes(info->bytes, a, sizeof a), info->pci);
    info_row("multiprocessors", "%d", info->sms);
    if (has_kernels(info))
        info_row("capability", "%d.%d", info->cc_major, info->cc_minor);
    else
        info_row("capability", "%d.%d: refused: this build's kernels are for %s (CUDA_ARCHS)",
                 info->cc_major, info->cc_minor, symm_kernel_archs());
    show_fabric(device);
    if (symm_cuda_set(device) == symmSuccess)
        info_driver(&symm_vmm_cuda);
    else
        info_row("memory", "refused: %s", symmGetLastError(NULL));
}

/* One row per device that is not so with all. */
static int show_missing(int n, int (*is)(int from, int to), const char *what) {
    int all = 1;
    for (int from = 0; from < n; from++) {
        char name[24], missing[256] = "";
        size_t at = 0;
        for (int to = 0; to < n; to++)
            if (!is(from, to) && at < sizeof missing)
                at += (size_t)snprintf(missing + at, sizeof missing - at, " %d", to);
        if (!at) continue;
        all = 0;
        snprintf(name, sizeof name, "GPU %d", from);
        info_row(name, "refused: no %s GPU%s", what, missing);
    }
    return all && n > 1;
}

/* What communicators need of every pair of GPUs. */
static void show_pairs(int n) {
    if (show_missing(n, symm_cuda_reaches, "peer access to"))
        info_row("peer access", "every GPU reaches the memory of every other");
    if (show_missing(n, symm_cuda_is_joined, "NVLink (native atomics) to"))
        info_row("NVLink", "joins every GPU with every other");
}

void info_gpus(void) {
    int n = symm_kernel_have_images() ? symm_cuda_devices() : 0;
    if (!n) return;
    info_head("CUDA");
    info_row("driver", "%d.%d", symm_cuda_version() / 1000, symm_cuda_version() % 1000 / 10);
    info_row("kernels", "compiled for compute capability %s", symm_kernel_archs());
    show_pairs(n);
    for (int d = 0; d < n; d++) {
        symm_cuda_info info;
        char title[32];
        snprintf(title, sizeof title, "GPU %d", d);
        info_head(title);
        if (symm_cuda_describe(d, &info) == symmSuccess)
            show_device(d, &info);
        else
            info_row("device", "refused: %s", symmGetLastError(NULL));
    }
}

int info_sms(void) {
    symm_cuda_info info;
    return symm_cuda_devices() > 0 && !symm_cuda_describe(0, &info) ? info.sms : 0;
}
