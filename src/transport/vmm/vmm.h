/* vmm.h - the memory driver: the porting contract of a backend. Shaped after CUDA's virtual memory
 * management and as strict as it: the host driver refuses whatever CUDA refuses, with CUDA's codes.
 *
 * Functions return CUresult numbers (SYMM_CU_*); callers turn them into an error with
 * symm_vmm_error. Any thread. Sizes and addresses for create, reserve, map, set_access and unmap
 * are multiples of the granularity, else INVALID_VALUE. A handle is counted: create, retain and
 * import give one reference each, release takes one. A mapping holds the memory too. So memory
 * lives until every handle and mapping, in every process, has ended. */
#ifndef SYMM_VMM_H_
#define SYMM_VMM_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { /* the CUresult values the contract uses */
       SYMM_CU_SUCCESS = 0,
       SYMM_CU_INVALID_VALUE = 1,
       SYMM_CU_OUT_OF_MEMORY = 2,
       SYMM_CU_NOT_INITIALIZED = 3,
       SYMM_CU_OS_ERROR = 304,
       SYMM_CU_INVALID_HANDLE = 400,
       SYMM_CU_NOT_PERMITTED = 800,
       SYMM_CU_NOT_SUPPORTED = 801,
       SYMM_CU_UNKNOWN = 999
};

typedef struct symm_vmm_handle symm_vmm_handle; /* opaque, counted */

/* What memory is handed on to other processes as. FD: a descriptor. FABRIC: bytes, which reach
 * processes that no descriptor reaches; not every machine has them, and none has them for host
 * memory. */
enum { SYMM_SHARE_FD = 1, SYMM_SHARE_FABRIC = 2 };
typedef struct {
    uint8_t bytes[64];
} symm_vmm_fabric;

/* Bits of a life, see below. FOREIGN: a mapping of another allocator; symm_vmm_ended does not count
 * its end. DEAR: slow to ask for, and unique only while the memory is held somewhere. */
#define SYMM_LIFE_FOREIGN (1ull << 63)
#define SYMM_LIFE_DEAR    (1ull << 62)

typedef struct {
    char name[16];         /* "host", "cuda" */
    int device;            /* -1 on the host */
    uint64_t granularity;  /* 2 MiB, or what the device recommends where that is more */
    uint64_t device_bytes; /* memory of the device (host: physical memory of the machine) */
    int fd_handles, fabric_handles; /* capabilities */
    char fabric_reason[96];         /* why not, where the capability is 0 */
} symm_vmm_caps;

typedef struct {
    const char *name;
    int (*query)(symm_vmm_caps *caps);
    /* Address space only. align: power of two or 0. No page is touched; 72 x 192 GiB must work. */
    int (*reserve)(uint64_t bytes, uint64_t align, void **va);
    /* pre: va, bytes exactly as reserved, nothing mapped inside (else INVALID_VALUE). */
    int (*unreserve)(void *va, uint64_t bytes);
    /* New physical memory, zero-filled, exportable. OUT_OF_MEMORY where it cannot be had. */
    int (*create)(uint64_t bytes, symm_vmm_handle **h);
    /* The same, not cleared (host: zeros): on a GPU clearing needs one more mapping. */
    int (*create_as_is)(uint64_t bytes, symm_vmm_handle **h);
    /* The handle mapped at va, one more reference; *base, *bytes: that mapping. INVALID_VALUE if va
     * is not memory that this driver mapped; NOT_SUPPORTED on the host for a peer's memory whose
     * imported handle was released (its fd is gone). */
    int (*retain)(const void *va, symm_vmm_handle **h, void **base, uint64_t *bytes);
    /* Drops one reference. INVALID_HANDLE for one that is not live. */
    int (*release)(symm_vmm_handle *h);
    /* *kinds: SYMM_SHARE_*, what this memory was made to be handed on as. */
    int (*shares)(symm_vmm_handle *h, int *kinds);
    /* A new fd, CLOEXEC, the caller's to count and close. NOT_SUPPORTED for thread-rank handles. */
    int (*export_fd)(symm_vmm_handle *h, int *fd);
    /* Takes a reference to the memory behind fd, which stays the caller's. `bytes` must be the real
     * size and the object sealed against shrinking (a peer could else cut our pages away):
     * INVALID_VALUE otherwise. CUDA tells no size: there map refuses a size that is too large. */
    int (*import_fd)(int fd, uint64_t bytes, symm_vmm_handle **h);
    /* The same by a fabric handle. It ends with the memory; nothing is to be closed. */
    int (*export_fabric)(symm_vmm_handle *h, symm_vmm_fabric *out);
    int (*import_fabric)(const symm_vmm_fabric *from, uint64_t bytes, symm_vmm_handle **h);
    /* Size and an identity that is equal for equal memory in this process (host: st_dev, st_ino, so
     * in every process of the host; cuda: the driver's handle and the device. There, memory
     * imported by the process that made it counts as other memory). */
    int (*identify)(symm_vmm_handle *h, uint64_t *bytes, uint64_t id[2]);
    /* A number for the mapping that holds va: no other mapping at these addresses has it, before or
     * after. 0: nothing is mapped there. */
    uint64_t (*life)(const void *va);
    /* Maps the whole handle (bytes == its size, offset == 0, else NOT_SUPPORTED) at va inside a
     * reservation. A map over a map: INVALID_VALUE. No access yet: touching it faults. One
     * handle may be mapped many times. */
    int (*map)(void *va, uint64_t bytes, uint64_t offset, symm_vmm_handle *h);
    /* Read-write access for whole mappings inside [va, va+bytes); a part of one: INVALID_VALUE.
     * CUDA: also for one whole mapping that another allocator made, as retain found it. */
    int (*set_access)(void *va, uint64_t bytes);
    /* One or several whole mappings, all of the range mapped; else INVALID_VALUE. Never
     * synchronises with running work. */
    int (*unmap)(void *va, uint64_t bytes);
    /* Fills memory that has its access set with 32-bit words (va, bytes: multiples of 4). It has
     * ended when this returns, and it waits for no other work of the device: it may be called
     * while kernels spin. */
    int (*fill)(void *va, uint64_t bytes, uint32_t word);
    /* Copies; each side is memory of the driver with its access set, or plain host memory. As fill
     * otherwise. */
    int (*copy)(void *dst, const void *src, uint64_t bytes);
    const struct symm_vmm_multicast *multicast; /* multicast_driver.h */
} symm_vmm;

extern const symm_vmm symm_vmm_host; /* vmm_host.c: sealed memfd + mmap */
/* vmm_cuda.c: every call acts on the calling thread's current device (cuda_device.h). No CUDA:
 * NOT_INITIALIZED everywhere. */
extern const symm_vmm symm_vmm_cuda;
/* How many mappings of these drivers have ended. While it does not change, no life changes that is
 * not FOREIGN. Acquire pairs with the release in symm_vmm_note_end: who reads a number sees that
 * the mappings it counts have ended. */
extern _Atomic uint64_t symm_vmm_ends;
static inline uint64_t symm_vmm_ended(void) {
    return atomic_load_explicit(&symm_vmm_ends, memory_order_acquire);
}
/* Called by the drivers, before anything else can be mapped at the addresses. */
static inline void symm_vmm_note_end(void) {
    atomic_fetch_add_explicit(&symm_vmm_ends, 1, memory_order_release);
}
/* Whether set_access of the host driver asks for huge pages (SYMM_HUGEPAGES). Process-wide, default
 * on. */
void symm_vmm_host_hugepages(int on);

/* Records the driver's refusal: "memory driver host: create of 2097152 bytes: out of memory (2)".
 * Returns symmOutOfMemory for OUT_OF_MEMORY, symmFdLimit where errno said EMFILE or ENFILE,
 * symmInvalidArgument, symmNotSupported or symmUnhandledCudaError. symm_vmm_errno: errno behind the
 * calling thread's last refusal of the host driver, 0 if none; symm_vmm_cuda_errno: of the CUDA
 * driver, which tells it only for descriptors. symm_vmm_code_name: names of CUDA's other codes
 * as the driver words them. */
symmResult_t symm_vmm_error(const symm_vmm *v, int cu, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int symm_vmm_errno(void);
int symm_vmm_cuda_errno(void);
const char *symm_vmm_code_name(int cu);

/* symmMemAlloc / symmMemFree over a driver: reserve + create + map + set_access, and back. Registry
 * inside; any thread. */
symmResult_t symm_vmm_alloc(const symm_vmm *v, uint64_t bytes, void **ptr);
symmResult_t symm_vmm_free(const symm_vmm *v, void *ptr);
/* The driver of the allocation that holds ptr, NULL if none does. */
const symm_vmm *symm_vmm_owner(const void *ptr);

#endif
