/* peer_memory.c - process_vm_readv and process_vm_writev. Any thread, no lock. */
#define _GNU_SOURCE
#include "peer_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* The kernel moves at most 2 GiB at once, and stops short where memory ends. */
size_t symm_peer_read(int pid, void *mine, uint64_t theirs, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        struct iovec to = {(char *)mine + done, bytes - done};
        struct iovec from = {(void *)(uintptr_t)(theirs + done), bytes - done};
        ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);
        if (n <= 0) break;
        done += (size_t)n;
    }
    return done;
}

/* Shared, so that the kernel joins it with no other mapping: then closing it splits none, for which
 * there might be no memory. */
void *symm_peer_gate(void) {
    void *gate = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (gate == MAP_FAILED) return NULL;
    (void)madvise(gate, (size_t)sysconf(_SC_PAGESIZE), MADV_DONTFORK); /* it is this process's */
    *(volatile uint64_t *)gate = 0; /* there is memory for it now, or never */
    return gate;
}
int symm_peer_gate_close(void *gate) {
    return mprotect(gate, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE) ? errno : 0;
}
void symm_peer_gate_free(void *gate) {
    munmap(gate, (size_t)sysconf(_SC_PAGESIZE));
}

/* The kernel looks up the places of the other process one after the other, and copies to the first
 * before it looks up the second. */
ssize_t symm_peer_write(int pid, uint64_t gate, uint64_t theirs, const void *mine, size_t bytes) {
    uint64_t token = 0;
    struct iovec from[] = {{&token, sizeof token}, {(void *)(uintptr_t)mine, bytes}};
    struct iovec to[] = {{(void *)(uintptr_t)gate, sizeof token},
                         {(void *)(uintptr_t)theirs, bytes}};
    size_t done = 0;
    for (;;) {
        ssize_t n = process_vm_writev(pid, from, 2, to, 2, 0);
        if (n < (ssize_t)sizeof token) return -1;
        n -= (ssize_t)sizeof token;
        done += (size_t)n;
        if (done == bytes) return (ssize_t)done;
        if (n == 0) { /* no error is said of what stops short */
            errno = EFAULT;
            return (ssize_t)done;
        }
        from[1] = (struct iovec){(char *)from[1].iov_base + n, bytes - done};
        to[1] = (struct iovec){(char *)to[1].iov_base + n, bytes - done};
    }
}

const char *symm_peer_why(int err) {
    switch (err) {
    case 0: return "allowed";
    case ECANCELED: return "SYMM_DIRECT=0 or SYMM_DIRECT_WRITE=0";
    case EPERM:
        return "not permitted: another user, a process that may not be traced, or Yama's "
               "kernel.yama.ptrace_scope";
    case ENOSYS:
        return "this kernel or a filter of system calls has no process_vm_readv or "
               "process_vm_writev";
    case ESRCH:
    case EREMOTE: return "the processes are in different pid namespaces";
    case ENOMEM: return "out of memory";
    default: return "the system refuses process_vm_readv or process_vm_writev";
    }
}
