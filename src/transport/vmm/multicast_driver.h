/* multicast_driver.h - multicast objects of a memory driver, shaped after CUDA's: what is stored at
 * an address of the object goes to the memory that every member has bound there, and a load-reduce
 * reads all of it. Part of the porting contract of vmm.h: codes, threads and handles as there. The
 * handle of an object is one of vmm.h: export_fd or export_fabric, by the kind that it was created
 * for, release, map (the whole, at offset 0), set_access and unmap take it; retain, identify,
 * import_fd and import_fabric do not.
 *
 * The order over all members: create by one, import by the others, join by each, and only when all
 * have joined bind and map. CUDA lets a call that comes too early wait for the others; so the
 * callers agree between the steps, and the host driver refuses what would have to wait. */
#ifndef SYMM_MULTICAST_DRIVER_H_
#define SYMM_MULTICAST_DRIVER_H_

#include <stdint.h>

#include "vmm.h"

/* A driver's software is not running yet: worth another try. */
#define SYMM_CU_SYSTEM_NOT_READY 802

typedef struct {
    int there;      /* 1: this process's device can have such objects */
    uint64_t grain; /* offsets and sizes of what is bound are multiples of it */
    uint64_t best;  /* of the size of an object, and of what is bound, for full speed */
    char why[96];   /* where there is 0 */
} symm_multicast_caps;

struct symm_vmm_multicast {
    /* What there is. On GPUs this is what looks up the driver's entry points, so it is called only
     * where SYMM_MULTICAST=1 asks for them and NCCL_NVLS_ENABLE=0 does not forbid them. kind:
     * SYMM_SHARE_*, what objects are handed on as. */
    void (*query)(int kind, symm_multicast_caps *caps);
    /* An object of `bytes` addresses, without memory, for so many members. It is exported as `kind`
     * alone. The host driver: NOT_SUPPORTED for fabric handles. */
    int (*create)(uint64_t bytes, int members, int kind, symm_vmm_handle **object);
    /* As import_fabric of vmm.h, or as import_fd where `fabric` is NULL; `bytes` must be the size
     * it was created with. */
    int (*import)(int fd, const symm_vmm_fabric *fabric, uint64_t bytes, symm_vmm_handle **object);
    /* This process's device (host: this handle) becomes a member, for as long as the object lives.
     * INVALID_VALUE where it is one, or where there are as many as there can be. */
    int (*join)(symm_vmm_handle *object);
    /* Own memory, from byte `from` on, at [off, off + bytes) of the object. INVALID_VALUE for what
     * is bound there already, is beyond either, or is no multiple of the grain. OUT_OF_MEMORY where
     * the object takes no more. */
    int (*bind)(symm_vmm_handle *object, uint64_t off, symm_vmm_handle *memory, uint64_t from,
                uint64_t bytes);
    /* Exactly what one bind has bound, of this member. Nobody uses it any more. */
    int (*unbind)(symm_vmm_handle *object, uint64_t off, uint64_t bytes);
};

/* Host driver, which has no hardware that spreads a store: a mapped object has addresses, and a
 * plain access faults. each[member]: where in this process the memory lies that the member has
 * bound behind [va, va + bytes). INVALID_VALUE if that is not in one mapped object; NOT_SUPPORTED
 * if a member has not bound all of it in one piece, or its memory is not mapped here. *members: how
 * many there are; each has room for that many. */
int symm_vmm_host_multicast(const void *va, uint64_t bytes, void **each, int *members);
/* Whether the memory that lies at base + r*stride here is what one of the n members has bound
 * behind [va, va + bytes), for r = 0..n-1. 0; or a code, and *which is the first r of which it is
 * not. */
int symm_vmm_host_multicast_is(const void *va, uint64_t bytes, uint64_t base, uint64_t stride,
                               int n, int *which);

#endif
