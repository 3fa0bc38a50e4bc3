/* unit_vmm.c - the host memory driver against the rules of vmm.h, which vmm_rules.inl has as tests,
 * and what is the host's alone. Other processes, limits and failpoints: unit_vmm_share.c;
 * symmMemAlloc: unit_vmm_alloc.c. The driver speaks in CUDA's numbers, so these tests compare
 * numbers. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/stats.h"
#include "transport/vmm/vmm.h"
#include "t.h"

#define V              (&symm_vmm_host)
#define SAYS_ERRNO     symm_vmm_errno()
#define MAPPINGS_COUNT 1
#include "vmm_rules.inl"

static void query_describes_the_host(void) {
    symm_vmm_caps caps;
    IS(V->query(NULL), INVALID_VALUE);
    DONE(V->query(&caps));
    T_STREQ(caps.name, "host");
    T_STREQ(V->name, "host");
    T_EQ(caps.device, -1);
    T_EQ(caps.granularity, G);
    T_EQ(caps.device_bytes / 4096, sysconf(_SC_PHYS_PAGES) * (sysconf(_SC_PAGESIZE) / 4096));
    T_EQ(caps.fd_handles, 1);
    T_CHECK(!caps.fabric_handles && caps.fabric_reason[0]);
}

static void create_of_more_than_the_machine_has_is_out_of_memory(void) {
    symm_vmm_handle *h = NULL;
    const uint64_t big[] = {1ull << 44, 1ull << 62, 1ull << 63, UINT64_MAX - G + 1};
    for (size_t i = 0; i < sizeof big / sizeof *big; i++) {
        IS(V->create(big[i], &h), OUT_OF_MEMORY);
        T_CHECK(symm_vmm_errno() != 0);
    }
    struct rlimit limit = {G, RLIM_INFINITY}; /* a file beyond this limit would bring SIGXFSZ */
    T_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    IS(V->create(2 * G, &h), OUT_OF_MEMORY);
    T_CHECK(!h);
    DONE(V->release(created(G)));
}

/* Whether the kernel notes the advice for huge pages ("hg") for the mapping at va. -1: it does not
 * say. */
static int has_huge_advice(const void *va) {
    char line[512], start[32];
    int inside = 0, found = -1;
    FILE *f = fopen("/proc/self/smaps", "re");
    if (!f) return -1;
    snprintf(start, sizeof start, "%" PRIxPTR "-", (uintptr_t)va);
    while (found < 0 && fgets(line, sizeof line, f)) {
        if (strncmp(line, start, strlen(start)) == 0) inside = 1;
        if (inside && strncmp(line, "VmFlags:", 8) == 0) found = strstr(line, " hg") != NULL;
    }
    fclose(f);
    return found;
}

static void huge_pages_are_asked_for_if_switched_on(void) {
    if (access("/sys/kernel/mm/transparent_hugepage/shmem_enabled", F_OK) != 0)
        T_SKIP("the kernel has no huge pages for shared memory");
    void *va = reserved(2 * G);
    symm_vmm_handle *h = created(G);
    for (uint64_t on = 0; on < 2; on++) {
        symm_vmm_host_hugepages((int)on);
        DONE(V->map(at(va, on * G), G, 0, h));
        DONE(V->set_access(at(va, on * G), G));
        T_EQ(has_huge_advice(at(va, on * G)), on);
    }
    DONE(V->unmap(va, 2 * G));
    DONE(V->release(h));
    DONE(V->unreserve(va, 2 * G));
}

static void a_handle_never_takes_a_stdio_descriptor(void) {
    int fd, keep = fcntl(0, F_DUPFD_CLOEXEC, 10);
    T_CHECK(keep >= 0);
    close(0);
    symm_vmm_handle *h = created(G);
    T_EQ(fcntl(0, F_GETFD), -1);
    DONE(V->export_fd(h, &fd));
    T_CHECK(fd > 2);
    close(fd);
    DONE(V->release(h));
    T_EQ(dup2(keep, 0), 0);
    close(keep);
}

T_MAIN(VMM_RULES, T(query_describes_the_host),
       T(create_of_more_than_the_machine_has_is_out_of_memory),
       T(huge_pages_are_asked_for_if_switched_on), T(a_handle_never_takes_a_stdio_descriptor))
