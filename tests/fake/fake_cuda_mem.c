/* fake_cuda_mem.c - the fake driver's memory: virtual memory management over memfd and mmap, plain
 * allocations, registered host memory, copies and fills. See fake_cuda.h.
 *
 * New memory is not clear, as CUDA does not promise it. A range is unmapped exactly as it was
 * mapped, one mapping a call. */
#define _GNU_SOURCE 1 /* memfd_create */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_cuda_int.h"
#include "t.h"

#define GRAIN (2ull << 20)

enum kind { RESERVATION, MAPPING, ALLOCATION, REGISTERED };

struct handle {
    struct handle *next;
    cu_mem_handle value;
    unsigned long long number; /* unique in the process, never used again */
    uint64_t bytes;
    int fd, device, types, refs, maps;
    int counted;            /* in used[device]: what was created here */
    symm_mc_object *object; /* NULL: memory */
};

struct area {
    struct area *next;
    enum kind kind;
    uint64_t lo, hi;
    struct handle *handle; /* MAPPING */
    uint64_t access;       /* MAPPING: devices, bit d */
    int device;            /* ALLOCATION */
};

static struct handle *handles;
static struct area *areas;
static cu_mem_handle last_value;
static uint64_t used[FAKE_DEVICES];

/* ---- bookkeeping ---------------------------------------------------------------------------- */

static struct area *area_at(enum kind kind, uint64_t at) {
    for (struct area *a = areas; a; a = a->next)
        if (a->kind == kind && a->lo <= at && at < a->hi) return a;
    return NULL;
}

static int overlaps(enum kind kind, uint64_t lo, uint64_t hi) {
    for (struct area *a = areas; a; a = a->next)
        if (a->kind == kind && a->lo < hi && lo < a->hi) return 1;
    return 0;
}

static struct area *add_area(enum kind kind, uint64_t lo, uint64_t bytes) {
    struct area *a = calloc(1, sizeof *a);
    T_CHECK(a != NULL);
    *a = (struct area){.next = areas, .kind = kind, .lo = lo, .hi = lo + bytes};
    return areas = a;
}

static void drop_area(struct area *gone) {
    struct area **at = &areas;
    while (*at != gone) at = &(*at)->next;
    *at = gone->next;
    free(gone);
}

static struct handle *handle_of(cu_mem_handle value) {
    for (struct handle *h = handles; h; h = h->next)
        if (h->value == value && h->refs > 0) return h;
    return NULL;
}

static struct handle *add_handle(int fd, uint64_t bytes, int device, int types) {
    struct handle *h = calloc(1, sizeof *h);
    T_CHECK(h != NULL);
    *h = (struct handle){.next = handles, .fd = fd, .bytes = bytes, .device = device};
    h->types = types;
    h->value = last_value += 16;
    h->number = h->value >> 4;
    h->refs = 1;
    return handles = h;
}

cu_mem_handle fake_add_object(symm_mc_object *o, int fd, int types) {
    struct handle *h = add_handle(fd, symm_mc_object_bytes(o), -1, types);
    h->object = o;
    return h->value;
}

symm_mc_object *fake_object(cu_mem_handle handle, int **device) {
    struct handle *h = handle_of(handle);
    if (h) *device = &h->device;
    return h ? h->object : NULL;
}

symm_mc_object *fake_object_at(uint64_t va, uint64_t *lo) {
    const struct area *a = area_at(MAPPING, va);
    if (a) *lo = a->lo;
    return a ? a->handle->object : NULL;
}

int fake_memory(cu_mem_handle handle, int *device, uint64_t *bytes, uint64_t id[2]) {
    const struct handle *h = handle_of(handle);
    struct stat st;
    if (!h || h->object || fstat(h->fd, &st)) return 0;
    *device = h->device;
    *bytes = h->bytes;
    id[0] = st.st_dev;
    id[1] = st.st_ino;
    return 1;
}

static void settle(struct handle *gone) {
    struct handle **at = &handles;
    if (gone->refs > 0 || gone->maps > 0) return;
    while (*at != gone) at = &(*at)->next;
    *at = gone->next;
    if (gone->counted) used[gone->device] -= gone->bytes;
    if (gone->object) symm_mc_object_close(gone->object);
    close(gone->fd);
    free(gone);
}

/* Mappings and reservations of an earlier install stay: nothing asks for them any more. */
void fake_mem_reset(void) {
    while (areas) drop_area(areas);
    while (handles) {
        struct handle *next = handles->next;
        close(handles->fd);
        free(handles);
        handles = next;
    }
    last_value = 0x5000;
    memset(used, 0, sizeof used);
}

int fake_mem_live(void) {
    int n = 0;
    for (struct area *a = areas; a; a = a->next) n++;
    for (struct handle *h = handles; h; h = h->next) n++;
    return n;
}

uint64_t fake_cuda_access(const void *va) {
    fake_lock();
    struct area *a = area_at(MAPPING, (uintptr_t)va);
    uint64_t mask = a ? a->access : 0;
    fake_unlock();
    return mask;
}

static void *pointer(uint64_t at) {
    return (void *)(uintptr_t)at;
}

static int grains(uint64_t value) {
    return value != 0 && value % GRAIN == 0;
}

/* ---- address space -------------------------------------------------------------------------- */

cu_result fk_cuMemAddressReserve(cu_deviceptr *va, size_t bytes, size_t align, cu_deviceptr wish,
                                 unsigned long long flags) {
    ENTER(cuMemAddressReserve);
    if (!va || !grains(bytes) || (align & (align - 1)) || wish || flags)
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    if (align < GRAIN) align = GRAIN;
    if (bytes >= 1ull << 47) return SYMM_CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t total = bytes + align;
    void *raw = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return SYMM_CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t start = (uintptr_t)raw, at = (start + align - 1) & ~(align - 1);
    if (at > start) munmap(raw, at - start);
    if (start + total > at + bytes) munmap(pointer(at + bytes), start + total - at - bytes);
    fake_lock();
    add_area(RESERVATION, at, bytes);
    fake_unlock();
    *va = at;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuMemAddressFree(cu_deviceptr va, size_t bytes) {
    ENTER(cuMemAddressFree);
    fake_lock();
    struct area *a = area_at(RESERVATION, va);
    int ok = a && a->lo == va && a->hi == va + bytes && !overlaps(MAPPING, va, va + bytes);
    if (ok) {
        munmap(pointer(va), bytes);
        drop_area(a);
    }
    fake_unlock();
    return ok ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

/* ---- physical memory ------------------------------------------------------------------------ */

static int prop_code(const cu_mem_prop *prop) {
    const int known = SYMM_CUDA_HANDLE_FD | SYMM_CUDA_HANDLE_FABRIC;
    if (!prop || prop->type != SYMM_CUDA_MEM_PINNED || prop->win32 ||
        prop->location.type != SYMM_CUDA_LOCATION_DEVICE || (prop->handle_types & ~known))
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    if (!fake_device_ok(prop->location.id)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    if (!fake.vmm || ((prop->handle_types & SYMM_CUDA_HANDLE_FD) && !fake.fd))
        return SYMM_CUDA_ERROR_NOT_SUPPORTED;
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuMemGetAllocationGranularity(size_t *bytes, const cu_mem_prop *prop, int option) {
    ENTER(cuMemGetAllocationGranularity);
    int cu = prop_code(prop);
    if (cu) return cu;
    *bytes = option == SYMM_CUDA_GRANULARITY_RECOMMENDED ? fake.grain : GRAIN;
    return SYMM_CUDA_SUCCESS;
}

/* The name tells the device to a process that imports it. */
static int new_file(uint64_t bytes, int device) {
    static const char dirt[64] = "what somebody else left here";
    char name[32];
    snprintf(name, sizeof name, "fake-cuda-%d", device);
    int fd = memfd_create(name, 0);
    T_CHECK(fd >= 0);
    T_EQ(ftruncate(fd, (off_t)bytes), 0);
    for (uint64_t at = 0; at < bytes; at += GRAIN / 2)
        T_EQ(pwrite(fd, dirt, sizeof dirt, (off_t)at), sizeof dirt);
    return fd;
}

cu_result fk_cuMemCreate(cu_mem_handle *handle, size_t bytes, const cu_mem_prop *prop,
                         unsigned long long flags) {
    ENTER(cuMemCreate);
    int cu = prop_code(prop);
    if (!cu) cu = fake_unsafe();
    if (cu) return cu;
    if (!handle || !grains(bytes) || flags) return SYMM_CUDA_ERROR_INVALID_VALUE;
    if ((prop->handle_types & SYMM_CUDA_HANDLE_FABRIC) && fake.fabric_code) return fake.fabric_code;
    int device = prop->location.id;
    fake_lock();
    int fits = bytes <= fake.bytes - used[device];
    if (fits) used[device] += bytes;
    fake_unlock();
    if (!fits) return SYMM_CUDA_ERROR_OUT_OF_MEMORY;
    int fd = new_file(bytes, device);
    fake_lock();
    struct handle *h = add_handle(fd, bytes, device, prop->handle_types);
    h->counted = 1;
    *handle = h->value;
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuMemRelease(cu_mem_handle handle) {
    ENTER(cuMemRelease);
    fake_lock();
    struct handle *h = handle_of(handle);
    if (h) {
        h->refs--;
        settle(h);
    }
    fake_unlock();
    return h ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

cu_result fk_cuMemGetAllocationPropertiesFromHandle(cu_mem_prop *prop, cu_mem_handle handle) {
    ENTER(cuMemGetAllocationPropertiesFromHandle);
    fake_lock();
    struct handle *h = handle_of(handle);
    if (h && h->object) h = NULL;
    if (h)
        *prop = (cu_mem_prop){.type = SYMM_CUDA_MEM_PINNED,
                              .handle_types = h->types,
                              .location = {SYMM_CUDA_LOCATION_DEVICE, h->device}};
    fake_unlock();
    return h ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

/* A descriptor that survives an exec: CUDA sets no flag. */
cu_result fk_cuMemExportToShareableHandle(void *shared, cu_mem_handle handle, int type,
                                          unsigned long long flags) {
    int cu = SYMM_CUDA_SUCCESS, fd = -1;
    ENTER(cuMemExportToShareableHandle);
    fake_lock();
    struct handle *h = handle_of(handle);
    if (!h || !shared || flags || !(h->types & type))
        cu = SYMM_CUDA_ERROR_INVALID_VALUE;
    else if (type == SYMM_CUDA_HANDLE_FABRIC)
        fake_fabric_export(h->fd, h->bytes, h->object ? -1 : h->device, shared);
    else if ((fd = dup(h->fd)) < 0)
        cu = SYMM_CUDA_ERROR_OPERATING_SYSTEM;
    else
        memcpy(shared, &fd, sizeof fd);
    fake_unlock();
    return cu;
}

static int import_fabric(const void *shared, cu_mem_handle *handle) {
    uint64_t bytes;
    int device, fd, cu = fake_fabric_import(shared, &fd, &bytes, &device);
    if (!cu && device < 0) cu = fake_import_object(fd, SYMM_CUDA_HANDLE_FABRIC, handle), close(fd);
    if (cu || device < 0) return cu;
    fake_lock();
    *handle = add_handle(fd, bytes, device, SYMM_CUDA_HANDLE_FABRIC)->value;
    fake_unlock();
    return cu;
}

/* The device of a descriptor that was exported here or by another process; -1 for any other. */
static int device_of(int fd) {
    char path[64], target[64] = "";
    int device;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd < 0 || readlink(path, target, sizeof target - 1) < 0) return -1;
    return sscanf(target, "/memfd:fake-cuda-%d", &device) == 1 ? device : -1;
}

/* A new handle each time, also for memory that this process has already. */
cu_result fk_cuMemImportFromShareableHandle(cu_mem_handle *handle, void *shared, int type) {
    struct stat st;
    ENTER(cuMemImportFromShareableHandle);
    if (type == SYMM_CUDA_HANDLE_FABRIC) return import_fabric(shared, handle);
    int given = (int)(intptr_t)shared, device = device_of(given);
    if (type == SYMM_CUDA_HANDLE_FD && device < 0) return fake_import_object(given, type, handle);
    if (type != SYMM_CUDA_HANDLE_FD || device < 0 || fstat(given, &st) != 0)
        return SYMM_CUDA_ERROR_INVALID_VALUE;
    int fd = dup(given);
    if (fd < 0) return SYMM_CUDA_ERROR_OPERATING_SYSTEM;
    fake_lock();
    *handle = add_handle(fd, (uint64_t)st.st_size, device, SYMM_CUDA_HANDLE_FD)->value;
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuMemRetainAllocationHandle(cu_mem_handle *handle, void *va) {
    ENTER(cuMemRetainAllocationHandle);
    fake_lock();
    struct area *a = area_at(MAPPING, (uintptr_t)va);
    if (a) {
        a->handle->refs++;
        *handle = a->handle->value;
    }
    fake_unlock();
    return a ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

/* ---- mappings ------------------------------------------------------------------------------- */

cu_result fk_cuMemMap(cu_deviceptr va, size_t bytes, size_t offset, cu_mem_handle handle,
                      unsigned long long flags) {
    int cu = SYMM_CUDA_ERROR_INVALID_VALUE;
    ENTER(cuMemMap);
    fake_lock();
    struct handle *h = handle_of(handle);
    struct area *r = area_at(RESERVATION, va);
    if (h && r && va + bytes <= r->hi && va % GRAIN == 0 && bytes == h->bytes && !offset &&
        !flags && !overlaps(MAPPING, va, va + bytes)) {
        T_CHECK(!h->object || symm_mc_object_full(h->object)); /* CUDA would wait */
        void *at = h->object
                       ? pointer(va)
                       : mmap(pointer(va), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, h->fd, 0);
        T_CHECK(at != MAP_FAILED);
        add_area(MAPPING, va, bytes)->handle = h;
        h->maps++;
        cu = SYMM_CUDA_SUCCESS;
    }
    fake_unlock();
    return cu;
}

cu_result fk_cuMemUnmap(cu_deviceptr va, size_t bytes) {
    ENTER(cuMemUnmap);
    fake_lock();
    struct area *a = area_at(MAPPING, va);
    int ok = a && a->lo == va && a->hi == va + bytes;
    if (ok) {
        void *at = mmap(pointer(va), bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        T_CHECK(at != MAP_FAILED);
        a->handle->maps--;
        settle(a->handle);
        drop_area(a);
    }
    fake_unlock();
    return ok ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

static int access_code(const struct area *a, const cu_mem_access *access, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != SYMM_CUDA_LOCATION_DEVICE ||
            access[i].flags != SYMM_CUDA_ACCESS_READWRITE)
            return SYMM_CUDA_ERROR_INVALID_VALUE;
        int d = access[i].location.id;
        if (!fake_device_ok(d)) return SYMM_CUDA_ERROR_INVALID_DEVICE;
        if (a->handle->device >= 0 && !fake_reaches(d, a->handle->device))
            return SYMM_CUDA_ERROR_INVALID_DEVICE;
        if (a->handle->object && d != a->handle->device) return SYMM_CUDA_ERROR_INVALID_DEVICE;
    }
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuMemSetAccess(cu_deviceptr va, size_t bytes, const cu_mem_access *access,
                            size_t count) {
    int cu = SYMM_CUDA_ERROR_INVALID_VALUE;
    ENTER(cuMemSetAccess);
    fake_lock();
    for (uint64_t lo = va, hi = va + bytes; count > 0 && lo < hi;) {
        struct area *a = area_at(MAPPING, lo);
        cu = a && a->lo == lo && a->hi <= hi ? access_code(a, access, count)
                                             : SYMM_CUDA_ERROR_INVALID_VALUE;
        if (cu) break;
        if (!a->handle->object)
            T_EQ(mprotect(pointer(a->lo), a->hi - a->lo, PROT_READ | PROT_WRITE), 0);
        for (size_t i = 0; i < count; i++) a->access |= 1ull << access[i].location.id;
        lo = a->hi;
    }
    fake_unlock();
    return cu;
}

cu_result fk_cuMemGetAddressRange(cu_deviceptr *base, size_t *bytes, cu_deviceptr va) {
    ENTER(cuMemGetAddressRange);
    if (!fake_current()) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    fake_lock();
    struct area *a = area_at(MAPPING, va);
    if (!a) a = area_at(ALLOCATION, va);
    if (a) {
        *base = a->lo;
        *bytes = a->hi - a->lo;
    }
    fake_unlock();
    return a ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_NOT_FOUND;
}

/* ---- other memory --------------------------------------------------------------------------- */

static int allocate(uint64_t bytes, int device, void **ptr) {
    size_t padded = (bytes + GRAIN - 1) & ~(GRAIN - 1);
    void *at = mmap(NULL, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return SYMM_CUDA_ERROR_OUT_OF_MEMORY;
    fake_lock();
    add_area(ALLOCATION, (uintptr_t)at, padded)->device = device;
    fake_unlock();
    *ptr = at;
    return SYMM_CUDA_SUCCESS;
}

static int deallocate(uint64_t at) {
    fake_lock();
    struct area *a = area_at(ALLOCATION, at);
    int ok = a && a->lo == at;
    if (ok) {
        munmap(pointer(at), a->hi - a->lo);
        drop_area(a);
    }
    fake_unlock();
    return ok ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

/* A call that needs a context and that capture forbids. */
static int usual(void) {
    return fake_current() ? fake_unsafe() : SYMM_CUDA_ERROR_INVALID_CONTEXT;
}

cu_result fk_cuMemGetInfo(size_t *unused, size_t *total) {
    ENTER(cuMemGetInfo);
    if (!fake_current()) return SYMM_CUDA_ERROR_INVALID_CONTEXT;
    fake_lock();
    *unused = fake.bytes - used[fake_current()->device];
    *total = fake.bytes;
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuMemAlloc(cu_deviceptr *va, size_t bytes) {
    void *ptr;
    ENTER(cuMemAlloc);
    int cu = usual();
    if (!cu && (!va || bytes == 0)) cu = SYMM_CUDA_ERROR_INVALID_VALUE;
    if (!cu && bytes > fake.bytes) cu = SYMM_CUDA_ERROR_OUT_OF_MEMORY;
    if (!cu) cu = allocate(bytes, fake_current()->device, &ptr);
    if (!cu) *va = (uintptr_t)ptr;
    return cu;
}

cu_result fk_cuMemFree(cu_deviceptr va) {
    ENTER(cuMemFree);
    int cu = usual();
    return cu ? cu : deallocate(va);
}

cu_result fk_cuMemAllocHost(void **ptr, size_t bytes) {
    ENTER(cuMemAllocHost);
    int cu = usual();
    return cu ? cu : allocate(bytes ? bytes : 1, -1, ptr);
}

cu_result fk_cuMemFreeHost(void *ptr) {
    ENTER(cuMemFreeHost);
    int cu = usual();
    return cu ? cu : deallocate((uintptr_t)ptr);
}

cu_result fk_cuMemHostRegister(void *ptr, size_t bytes, unsigned flags) {
    ENTER(cuMemHostRegister);
    uint64_t lo = (uintptr_t)ptr;
    int cu = usual();
    if (cu) return cu;
    if (!ptr || bytes == 0 || flags > 15) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    if (overlaps(REGISTERED, lo, lo + bytes))
        cu = SYMM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else
        add_area(REGISTERED, lo, bytes);
    fake_unlock();
    return cu;
}

cu_result fk_cuMemHostUnregister(void *ptr) {
    ENTER(cuMemHostUnregister);
    int cu = usual();
    if (cu) return cu;
    fake_lock();
    struct area *a = area_at(REGISTERED, (uintptr_t)ptr);
    int ok = a && a->lo == (uintptr_t)ptr;
    if (ok) drop_area(a);
    fake_unlock();
    return ok ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

cu_result fk_cuMemHostGetDevicePointer(cu_deviceptr *va, void *ptr, unsigned flags) {
    ENTER(cuMemHostGetDevicePointer);
    if (flags) return SYMM_CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    struct area *a = area_at(REGISTERED, (uintptr_t)ptr);
    if (!a) a = area_at(ALLOCATION, (uintptr_t)ptr);
    fake_unlock();
    if (!a) return SYMM_CUDA_ERROR_INVALID_VALUE;
    *va = (uintptr_t)ptr; /* the same address on both sides */
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuPointerGetAttribute(void *value, int attribute, cu_deviceptr va) {
    int device = -2;
    unsigned long long number = 0;
    ENTER(cuPointerGetAttribute);
    fake_lock();
    struct area *a = area_at(MAPPING, va);
    if (a) device = a->handle->device;
    if (a && !fake.no_numbers) number = a->handle->number;
    if (!a && (a = area_at(ALLOCATION, va))) device = a->device;
    if (!a && (a = area_at(REGISTERED, va))) device = -1;
    fake_unlock();
    if (!a) return SYMM_CUDA_ERROR_INVALID_VALUE;
    int type = device < 0 ? SYMM_CUDA_MEMORY_HOST : SYMM_CUDA_MEMORY_DEVICE;
    switch (attribute) {
    case SYMM_CUDA_POINTER_MEMORY_TYPE: memcpy(value, &type, sizeof type); break;
    case SYMM_CUDA_POINTER_DEVICE: memcpy(value, &device, sizeof device); break;
    case SYMM_CUDA_POINTER_BUFFER_ID: memcpy(value, &number, sizeof number); break;
    case SYMM_CUDA_POINTER_IS_MANAGED: memset(value, 0, sizeof(int)); break;
    default: return SYMM_CUDA_ERROR_INVALID_VALUE;
    }
    return SYMM_CUDA_SUCCESS;
}

/* ---- what may be touched -------------------------------------------------------------------- */

static int device_memory(int device, uint64_t lo, uint64_t hi) {
    while (lo < hi) {
        struct area *a = area_at(MAPPING, lo);
        if (a && !(a->access >> device & 1)) return 0;
        if (!a) a = area_at(ALLOCATION, lo);
        if (!a) a = area_at(REGISTERED, lo);
        if (!a) return 0;
        lo = a->hi;
    }
    return 1;
}

int fake_device_memory(int device, cu_deviceptr va, uint64_t bytes) {
    fake_lock();
    int ok = device_memory(device, va, va + bytes);
    fake_unlock();
    return ok;
}

int fake_copy_side(int device, cu_deviceptr va, uint64_t bytes) {
    fake_lock();
    int cudas = overlaps(RESERVATION, va, va + bytes) || overlaps(ALLOCATION, va, va + bytes);
    int ok = va != 0 && (!cudas || device_memory(device, va, va + bytes));
    fake_unlock();
    return ok;
}
