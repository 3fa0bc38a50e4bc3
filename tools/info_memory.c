/* info_memory.c - what symm-info says about backends and the memory driver. A capability is shown
 * as what a probe found, with the reason where it is missing: an attribute alone may lie.
 * Everything that a probe takes it gives back. Main thread. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "device/host/reduce.h"
#include "host/gpu/backend.h"
#include "transport/cuda/cuda_device.h"
#include "transport/vmm/multicast_driver.h"
#include "transport/vmm/vmm.h"
#include "info.h"

/* Which one a program would use here, as SYMM_BACKEND says; what the other one is good for. */
static void show_backends(void) {
    symm_params p;
    int cuda = 0;
    const char *why = symm_backend_why();
    info_head("Backends");
    symmResult_t r = symm_param_load(&p);
    if (!r) r = symm_backend_pick(&p, &cuda);
    info_row("host", "%s: ranks are processes or threads, device memory is memfd",
             r || cuda ? "available (SYMM_BACKEND=host)" : "in use");
    if (*why)
        info_row("cuda", "refused: %s", why);
    else
        info_row("cuda", "%s: %d GPU%s", !r && cuda ? "in use" : "available (SYMM_BACKEND=cuda)",
                 symm_cuda_devices(), symm_cuda_devices() == 1 ? "" : "s");
    if (r) info_row("SYMM_BACKEND", "refused: %s", symmGetLastError(NULL));
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

/* Asks the driver only where communicators would. */
static void show_multicast(const symm_vmm *v) {
    symm_multicast_caps caps = {.there = 0};
    symm_params p;
    const char *no = symm_param_load(&p) ? "the settings are bad" : symm_param_no_multicast(&p);
    symm_vmm_caps memory;
    const int fd = !v->query(&memory) && memory.fd_handles;
    if (!no) v->multicast->query(fd ? SYMM_SHARE_FD : SYMM_SHARE_FABRIC, &caps);
    show_capability("multicast", caps.there, no ? no : caps.why);
}

void info_driver(const symm_vmm *v) {
    symm_vmm_caps caps;
    char a[32];
    int cu = v->query(&caps);
    if (cu) {
        info_row("memory driver", "%s, which refuses to be asked: %s", v->name,
                 symm_vmm_code_name(cu));
        return;
    }
    info_row("device memory", "%s", info_bytes(caps.device_bytes, a, sizeof a));
    info_row("granularity", "%s", info_bytes(caps.granularity, a, sizeof a));
    const char *step = probe_sharing(v, caps.granularity, &cu);
    if (step)
        info_row("sharing", "refused: %s fails with %s", step, symm_vmm_code_name(cu));
    else
        info_row("sharing", "create, export, import and map work");
    show_capability("fd handles", caps.fd_handles, "the driver has none");
    show_capability("fabric handles", caps.fabric_handles, caps.fabric_reason);
    show_multicast(v);
    probe_reservation(v, &caps);
}

void info_memory(void) {
    show_backends();
    info_gpus();
    info_head("Instruction sets");
    show_isa();
    info_head("Memory driver of the host");
    info_driver(&symm_vmm_host);
    info_head("Domain");
    info_domain();
    probe_channel();
}
