/* fake_cuda_fabric.c - fabric handles of the fake driver: bytes from which any process of this user
 * finds the memory, as long as the process that exported it has it. Any thread; no lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fake_cuda_int.h"

#define MARK 0xfab71c00u

typedef struct { /* what the bytes are */
    uint32_t mark;
    int32_t pid, fd, device;
    uint64_t bytes, spare[5];
} words;
_Static_assert(sizeof(words) == sizeof(cu_fabric_handle), "they take CUDA's room");

void fake_fabric_export(int fd, uint64_t bytes, int device, void *out) {
    const words w = {
        .mark = MARK, .pid = (int32_t)getpid(), .fd = fd, .device = device, .bytes = bytes};
    memcpy(out, &w, sizeof w);
}

/* Of memory that has ended the number may be another file by now: the name and the size tell. */
static int is_it(int fd, const words *w) {
    char path[64], target[64] = "", name[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    snprintf(name, sizeof name, w->device < 0 ? "/memfd:symm-multicast " : "/memfd:fake-cuda-%d ",
             w->device);
    return readlink(path, target, sizeof target - 1) > 0 && !strncmp(target, name, strlen(name)) &&
           (w->device < 0 || lseek(fd, 0, SEEK_END) == (off_t)w->bytes);
}

cu_result fake_fabric_import(const void *shared, int *fd, uint64_t *bytes, int *device) {
    char path[64];
    words w;
    memcpy(&w, shared, sizeof w);
    if (w.mark != MARK || !fake.fabric_attr) return SYMM_CUDA_ERROR_INVALID_VALUE;
    if (fake.fabric_code) return fake.fabric_code;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)w.pid, (int)w.fd);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0 && (errno == EMFILE || errno == ENFILE)) return SYMM_CUDA_ERROR_OPERATING_SYSTEM;
    if (*fd < 0) return SYMM_CUDA_ERROR_INVALID_VALUE;
    if (!is_it(*fd, &w)) {
        close(*fd);
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    }
    *bytes = w.bytes;
    *device = w.device;
    return SYMM_CUDA_SUCCESS;
}
