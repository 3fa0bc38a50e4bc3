/* vmm_host.h - what the host memory driver's two files share: vmm_host.c has memory and mappings,
 * host_multicast.c the multicast objects. Any thread; the lock is symm_host_table.lock. */
#ifndef SYMM_VMM_HOST_H_
#define SYMM_VMM_HOST_H_

#include "mc_object.h"
#include "memcut.h"
#include "multicast_driver.h"
#include "vmm_table.h"

struct memory {
    symm_span handle; /* [serial, serial + 1), in table.handles while refs > 0 */
    uint64_t bytes, id[2];
    int64_t refs, maps;
    symm_memcut cut;        /* what was created here */
    uint64_t off;           /* in the file */
    int fd;                 /* -1: closed */
    int imported;           /* the fd is its own */
    symm_mc_object *object; /* a multicast object; NULL: memory */
};

struct mapping {
    symm_vmm_mapping at;
    struct memory *memory;
};

extern symm_vmm_table symm_host_table;
extern const struct symm_vmm_multicast symm_host_multicast;

/* Returns cu, and keeps errno for symm_vmm_errno; the second finds the code for errno. */
int symm_host_refuse(int cu, int err);
int symm_host_refuse_os(int err);
/* A copy of `like` with a handle; on refusal nothing has changed. */
int symm_host_adopt(const struct memory *like, symm_vmm_handle **h);
/* One more reference, which symm_vmm_host.release drops; NULL if h is not live. */
struct memory *symm_host_hold(symm_vmm_handle *h);

#endif
