/* info_memory.c - what symm-info says about backends and the memory driver. A capability is shown
 * as what a probe found, with the reason where it is missing: an attribute alone may lie.
 * Everything that a probe takes it gives back. Main thread. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../src/device/reduce.h"
#include "../src/transport/vmm.h"
#include "info.h"

static int has_gpu(void) {
    DIR *d = opendir("/proc/driver/nvidia/gpus");
    int n = 0;
    if (!d) return 0;
    while (readdir(d)) n++;
    closedir(d);
    return n > 2;
}

static void show_backends(void) {
    info_head("Backends");
    info_row("host", "in use: ranks are processes or threads, device memory is memfd");
    if (has_gpu())
        info_row("cuda", "refused: this build has no CUDA kernels, though the machine has a GPU");
    else
        info_row("cuda", "refused: this build has no CUDA kernels, and the machine shows no GPU");
}

static void show_isa(void) {
    static const char *const names[] = {"base", "avx2", "avx512"};
    symm_reduce_init();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *state = !symm_reduce_isa(names[i])
                                ? "refused: this processor or build has not got it"
                            : strcmp(symm_reduce->isa, names[i]) ? "available"
                                                                 : "in use";
        info_row(names[i], "%s", state);
    }
}

/* A granule made, exported, imported from its descriptor and mapped, as a peer would. NULL if all
 * of that works, else the step. */
static const char *probe_sharing(const symm_vmm *v, uint64_t bytes, int *cu) {
    symm_vmm_handle *made, *imported;
    const char *failed = NULL;
    void *va;
    int fd = -1;
    if ((*cu = v->create(bytes, &made))) return "creating memory";
    if ((*cu = v->export_fd(made, &fd))) failed = "exporting it";
    if (!failed && (*cu = v->import_fd(fd, bytes, &imported))) failed = "importing it";
    if (fd >= 0) close(fd);
    if (failed) return v->release(made), failed;
    if ((*cu = v->reserve(bytes, 0, &va))) {
        failed = "reserving addresses";
    } else {
        if ((*cu = v->map(va, bytes, 0, imported)))
            failed = "mapping it";
        else {
            if ((*cu = v->set_access(va, bytes))) failed = "giving access";
            v->unmap(va, bytes);
        }
        v->unreserve(va, bytes);
    }
    v->release(imported);
    v->release(made);
    return failed;
}

static void show_capability(const char *name, int has, const char *reason) {
    if (has)
        info_row(name, "yes");
    else
        info_row(name, "refused: %s", *reason ? reason : "the driver gives no reason");
}

static void probe_reservation(const symm_vmm *v, const symm_vmm_caps *caps) {
    static const int ranks[] = {72, 64, 32, 16, 8, 4, 2};
    uint64_t stride =
        (caps->device_bytes + caps->granularity - 1) / caps->granularity * caps->granularity;
    char text[32];
    info_bytes(stride, text, sizeof text);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        void *va;
        if (v->reserve(stride * (unsigned)ranks[i], 0, &va)) continue;
        v->unreserve(va, stride * (unsigned)ranks[i]);
        info_row("addresses", "%d ranks of %s can be reserved", ranks[i], text);
        return;
    }
    info_row("addresses", "refused: not even 2 ranks of %s can be reserved (set SYMM_WIN_STRIDE)",
             text);
}

static void probe_channel(void) {
    int fd[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd)) {
        info_row("channel", "refused: AF_UNIX SEQPACKET sockets: %s", strerror(errno));
        return;
    }
    close(fd[0]);
    close(fd[1]);
    info_row("channel", "AF_UNIX SEQPACKET with descriptor passing");
}

static void show_driver(const symm_vmm *v) {
    symm_vmm_caps caps;
    char a[32];
    int cu = v->query(&caps);
    info_head("Memory driver");
    if (cu) {
        info_row("name", "%s, which refuses to be asked: %s", v->name, symm_vmm_code_name(cu));
        return;
    }
    info_row("name", "%s", caps.name);
    info_row("device", caps.device < 0 ? "none" : "%d", caps.device);
    info_row("device memory", "%s", info_bytes(caps.device_bytes, a, sizeof a));
    info_row("granularity", "%s", info_bytes(caps.granularity, a, sizeof a));
    const char *step = probe_sharing(v, caps.granularity, &cu);
    if (step)
        info_row("sharing", "refused: %s fails with %s", step, symm_vmm_code_name(cu));
    else
        info_row("sharing", "create, export, import and map work");
    show_capability("fd handles", caps.fd_handles, "the driver has none");
    show_capability("fabric handles", caps.fabric_handles, caps.fabric_reason);
    show_capability("multicast", caps.multicast, caps.multicast_reason);
    probe_reservation(v, &caps);
}

void info_memory(void) {
    show_backends();
    info_head("Instruction sets");
    show_isa();
    show_driver(&symm_vmm_host);
    info_head("Domain");
    info_row("extent", "all ranks on this machine: each can map every other's memory");
    probe_channel();
}
