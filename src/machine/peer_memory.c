/* peer_memory.c - process_vm_readv. Any thread, no lock. */
#define _GNU_SOURCE
#include "peer_memory.h"

#include <errno.h>
#include <sys/uio.h>

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

const char *symm_peer_why(int err) {
    switch (err) {
    case 0: return "allowed";
    case ECANCELED: return "SYMM_DIRECT=0";
    case EPERM:
        return "not permitted: another user, a process that may not be traced, or Yama's "
               "kernel.yama.ptrace_scope";
    case ENOSYS: return "this kernel or a filter of system calls has no process_vm_readv";
    case ESRCH:
    case EREMOTE: return "the processes are in different pid namespaces";
    default: return "the system refuses process_vm_readv";
    }
}
