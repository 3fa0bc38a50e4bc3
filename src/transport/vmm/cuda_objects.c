/* cuda_objects.c - CUDA's multicast objects behind the contract of multicast_driver.h. Any thread;
 * a call acts on the thread's current device. No lock. */
#include <stdio.h>

#include "base/fail.h"
#include "transport/cuda/cuda_device.h"
#include "transport/cuda/cuda_multicast.h"
#include "vmm_cuda.h"
#include "vmm_table.h"

static int bad_value(void) {
    return symm_cuda_vmm_refuse(SYMM_CU_INVALID_VALUE, 0);
}

static int done(int cu) {
    return cu ? symm_cuda_vmm_refuse(cu, 0) : SYMM_CU_SUCCESS;
}

/* One type alone: memory of hosts that have no descriptors for it has none for objects. */
static cu_multicast_prop object_prop(int members, uint64_t bytes, int kind) {
    return (cu_multicast_prop){.devices = (unsigned)members,
                               .bytes = bytes,
                               .handle_types = kind == SYMM_SHARE_FABRIC ? SYMM_CUDA_HANDLE_FABRIC
                                                                         : SYMM_CUDA_HANDLE_FD};
}

/* NULL, or why the device has no such objects. */
static const char *missing(int kind, symm_vmm_caps *memory) {
    int says = 0;
    if (symm_vmm_cuda.query(memory)) return "CUDA cannot be used";
    if (symm_cu.cuDeviceGetAttribute(&says, SYMM_CUDA_ATTR_MULTICAST, memory->device) || !says)
        return "the device has no multicast";
    if (kind == SYMM_SHARE_FABRIC)
        return memory->fabric_handles ? NULL : "the driver has no fabric handles";
    return memory->fd_handles ? NULL : "the driver has no fd handles";
}

static void objects_query(int kind, symm_multicast_caps *caps) {
    symm_vmm_caps memory;
    size_t least = 0, best = 0;
    *caps = (symm_multicast_caps){.there = 0};
    const char *why = missing(kind, &memory), *lacks = why ? NULL : symm_cuda_multicast_load();
    if (why || lacks) {
        snprintf(caps->why, sizeof caps->why, why ? "%s" : "the driver lacks %s",
                 why ? why : lacks);
        return;
    }
    const cu_multicast_prop prop = object_prop(2, memory.granularity, kind);
    int cu =
        symm_cu_multicast.cuMulticastGetGranularity(&least, &prop, SYMM_CUDA_GRANULARITY_MINIMUM);
    if (!cu)
        cu = symm_cu_multicast.cuMulticastGetGranularity(&best, &prop,
                                                         SYMM_CUDA_GRANULARITY_RECOMMENDED);
    if (cu || !least) {
        const char *name = symm_cuda_code_name(cu);
        snprintf(caps->why, sizeof caps->why, "granularity refused: %s (%d)", name ? name : "error",
                 cu);
        return;
    }
    caps->there = 1;
    caps->grain = least > SYMM_VMM_GRANULE ? least : SYMM_VMM_GRANULE;
    caps->best = best > caps->grain ? best : caps->grain;
}

/* Nothing but query looks the entry points up: who has not asked has none. */
static int there(void) {
    return symm_cu_multicast.cuMulticastCreate ? SYMM_CU_SUCCESS
                                               : symm_cuda_vmm_refuse(SYMM_CU_NOT_SUPPORTED, 0);
}

static int objects_create(uint64_t bytes, int members, int kind, symm_vmm_handle **h) {
    cu_mem_handle raw = 0;
    int cu = there();
    if (cu) return cu;
    if (!h || members < 1 || !symm_vmm_size_ok(bytes)) return bad_value();
    if (SYMM_FAIL_HERE(mc_create)) return done(SYMM_CU_OUT_OF_MEMORY);
    const cu_multicast_prop prop = object_prop(members, bytes, kind);
    cu = symm_cu_multicast.cuMulticastCreate(&raw, &prop);
    return cu ? done(cu) : symm_cuda_vmm_adopt(raw, bytes, -1, h);
}

/* CUDA imports it as it does memory. */
static int objects_import(int fd, const symm_vmm_fabric *fabric, uint64_t bytes,
                          symm_vmm_handle **h) {
    const int cu = there();
    if (cu) return cu;
    if (SYMM_FAIL_HERE(mc_import)) return done(SYMM_CU_UNKNOWN);
    return fabric ? symm_vmm_cuda.import_fabric(fabric, bytes, h)
                  : symm_vmm_cuda.import_fd(fd, bytes, h);
}

static int objects_join(symm_vmm_handle *h) {
    symm_cuda_held object;
    int device, cu = there();
    if (!cu) cu = symm_cuda_current_cu(&device);
    if (cu) return done(cu);
    if (SYMM_FAIL_HERE(mc_join)) return done(SYMM_CU_UNKNOWN);
    cu = symm_cuda_vmm_hold(h, &object);
    if (cu) return cu;
    cu = symm_cu_multicast.cuMulticastAddDevice(object.raw, device);
    if (!cu) symm_cuda_vmm_joined(h, device);
    symm_vmm_cuda.release(h);
    return done(cu);
}

/* Inside the device's scope: to CUDA the memory is the current context's to bind. */
static int bind_held(const symm_cuda_held *object, uint64_t off, const symm_cuda_held *memory,
                     uint64_t from, uint64_t bytes) {
    symm_cuda_scope scope;
    if (off > object->bytes || bytes > object->bytes - off) return bad_value();
    if (from > memory->bytes || bytes > memory->bytes - from) return bad_value();
    int cu = object->device < 0 ? SYMM_CU_INVALID_VALUE : symm_cuda_push_cu(object->device, &scope);
    if (cu) return done(cu);
    cu = symm_cu_multicast.cuMulticastBindMem(object->raw, off, memory->raw, from, bytes, 0);
    symm_cuda_pop(&scope);
    return done(cu);
}

static int objects_bind(symm_vmm_handle *h, uint64_t off, symm_vmm_handle *memory, uint64_t from,
                        uint64_t bytes) {
    symm_cuda_held object, piece;
    int cu = there();
    if (cu) return cu;
    if (SYMM_FAIL_HERE(mc_bind)) return done(SYMM_CU_OUT_OF_MEMORY);
    if (!symm_vmm_size_ok(bytes) || (off | from) % SYMM_VMM_GRANULE) return bad_value();
    cu = symm_cuda_vmm_hold(h, &object);
    if (cu) return cu;
    cu = symm_cuda_vmm_hold(memory, &piece);
    if (!cu) {
        cu = bind_held(&object, off, &piece, from, bytes);
        symm_vmm_cuda.release(memory);
    }
    symm_vmm_cuda.release(h);
    return cu;
}

/* Of the device that has joined, whichever is current. */
static int objects_unbind(symm_vmm_handle *h, uint64_t off, uint64_t bytes) {
    symm_cuda_held object;
    int cu = there();
    if (cu) return cu;
    cu = symm_cuda_vmm_hold(h, &object);
    if (cu) return cu;
    cu = symm_cu_multicast.cuMulticastUnbind(object.raw, object.device, off, bytes);
    symm_vmm_cuda.release(h);
    return done(cu);
}

const struct symm_vmm_multicast symm_cuda_objects = {
    .query = objects_query,
    .create = objects_create,
    .import = objects_import,
    .join = objects_join,
    .bind = objects_bind,
    .unbind = objects_unbind,
};
