/* vmm_cuda.c - the CUDA memory driver: CUDA's virtual memory management behind the contract of
 * vmm.h.
 *
 * Any thread; a call acts on the thread's current device. One lock (table.lock) guards the table
 * (vmm_table.h) and the set `raws`. It is held during no call of CUDA: unmapping may wait for work
 * of the device, and that work for another thread's call. So if two threads use one range at once,
 * CUDA decides. The table says what CUDA was told, not what it has done yet.
 *
 * A record (struct memory) is for one CUDA handle and owns exactly one of CUDA's references to it,
 * however often it is retained here. CUDA returns the same handle for a mapped piece of memory each
 * time, so one piece has one record. A mapping keeps its memory without the record. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/stats.h"
#include "transport/cuda/cuda_device.h"
#include "cuda_probe.h"
#include "cuda_share.h"
#include "vmm_cuda.h"
#include "vmm_table.h"

struct memory;
struct raw {
    symm_span span; /* [cu, cu + 1), in raws */
    struct memory *memory;
};

struct memory {
    symm_span handle; /* in table.handles */
    struct raw raw;
    uint64_t bytes;
    int64_t refs;
    int device; /* where the memory is; -1: not known, or on no device */
    int object; /* a multicast object, which `device` has joined */
};

struct mapping {
    symm_vmm_mapping at;
    int device; /* of the memory */
    int object; /* only that device has access */
};

static symm_vmm_table table = {.lock = PTHREAD_MUTEX_INITIALIZER, .mark = 0x4375000000000000ull};
static symm_span *raws; /* struct raw, under table.lock */

static _Thread_local int last_errno;

int symm_vmm_cuda_errno(void) {
    return last_errno;
}

/* ---- refusals ------------------------------------------------------------------------------- */

static int refuse(int cu, int err) {
    last_errno = err;
    return cu;
}

int symm_cuda_vmm_refuse(int cu, int err) {
    return refuse(cu, err);
}

static int bad_value(void) {
    return refuse(SYMM_CU_INVALID_VALUE, 0);
}

static int there(void) {
    return symm_cuda_there() ? SYMM_CU_SUCCESS : refuse(SYMM_CU_NOT_INITIALIZED, 0);
}

static int current(int *device, const symm_cuda_memory **m) {
    int cu = symm_cuda_current_cu(device);
    if (!cu && m) cu = symm_cuda_probe(*device, m);
    return cu ? refuse(cu, 0) : cu;
}

/* ---- memory and its handles ----------------------------------------------------------------- */

/* Under table.lock, both. */
static struct memory *live(const symm_vmm_handle *h) {
    return (struct memory *)symm_vmm_live(&table, h);
}

static struct memory *record_of(cu_mem_handle raw) {
    const symm_span *s = symm_span_floor(raws, raw);
    return s && s->lo == raw ? ((const struct raw *)s)->memory : NULL;
}

static struct memory *hold(const symm_vmm_handle *h) {
    pthread_mutex_lock(&table.lock);
    struct memory *m = live(h);
    if (m) m->refs++;
    pthread_mutex_unlock(&table.lock);
    return m;
}

int symm_cuda_vmm_hold(symm_vmm_handle *h, symm_cuda_held *out) {
    const struct memory *m = hold(h);
    if (!m) return refuse(SYMM_CU_INVALID_HANDLE, 0);
    *out = (symm_cuda_held){m->raw.span.lo, m->bytes, m->device};
    return SYMM_CU_SUCCESS;
}

void symm_cuda_vmm_joined(symm_vmm_handle *h, int device) {
    pthread_mutex_lock(&table.lock);
    struct memory *m = live(h);
    if (m) {
        m->device = device;
        m->object = 1;
    }
    pthread_mutex_unlock(&table.lock);
}

/* Under table.lock. Returns m if that was the last reference: it is in no set any more, and the
 * caller finishes it. */
static struct memory *unref(struct memory *m) {
    if (--m->refs > 0) return NULL;
    symm_vmm_drop_handle(&table, &m->handle);
    symm_span_take(&raws, m->raw.span.lo, m->raw.span.hi);
    return m;
}

/* Without the lock. */
static int finish(struct memory *last) {
    if (!last) return SYMM_CU_SUCCESS;
    int cu = symm_cu.cuMemRelease(last->raw.span.lo);
    free(last);
    SYMM_STAT_ADD(handles, -1);
    return cu;
}

static void let_go(struct memory *m) {
    pthread_mutex_lock(&table.lock);
    struct memory *last = unref(m);
    pthread_mutex_unlock(&table.lock);
    finish(last);
}

static struct memory *new_record(cu_mem_handle raw, uint64_t bytes, int device) {
    struct memory *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->raw = (struct raw){.span = {.lo = raw, .hi = raw + 1}, .memory = m};
    m->bytes = bytes;
    m->device = device;
    m->refs = 1;
    return m;
}

int symm_cuda_vmm_adopt(cu_mem_handle raw, uint64_t bytes, int device, symm_vmm_handle **h) {
    struct memory *fresh = new_record(raw, bytes, device), *known = NULL;
    uint64_t real = bytes;
    pthread_mutex_lock(&table.lock);
    known = record_of(raw);
    if (known) {
        real = known->bytes;
        if (real == bytes) known->refs++;
    } else if (fresh) {
        symm_vmm_give_handle(&table, &fresh->handle);
        symm_span_insert(&raws, &fresh->raw.span);
        SYMM_STAT_ADD(handles, 1);
    }
    struct memory *m = known ? known : fresh;
    if (m && real == bytes) *h = (symm_vmm_handle *)symm_vmm_address(m->handle.lo);
    pthread_mutex_unlock(&table.lock);
    if (known || !fresh) symm_cu.cuMemRelease(raw); /* the record has its own */
    if (known) free(fresh);
    if (!m) return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    return real == bytes ? SYMM_CU_SUCCESS : bad_value();
}

static int cuda_release(symm_vmm_handle *h) {
    int cu = there();
    if (cu) return cu;
    pthread_mutex_lock(&table.lock);
    struct memory *m = live(h), *last = m ? unref(m) : NULL;
    pthread_mutex_unlock(&table.lock);
    if (!m) return refuse(SYMM_CU_INVALID_HANDLE, 0);
    cu = finish(last);
    return cu ? refuse(cu, 0) : cu;
}

/* The device of memory that was not created here, and the kinds of handles it can be exported by.
 * Device -1: it is on none, or CUDA does not say. */
static int properties(cu_mem_handle raw, int *device, int *handle_types) {
    cu_mem_prop prop = {0};
    int cu = symm_cu.cuMemGetAllocationPropertiesFromHandle(&prop, raw);
    *handle_types = cu ? 0 : prop.handle_types;
    *device = !cu && prop.location.type == SYMM_CUDA_LOCATION_DEVICE ? prop.location.id : -1;
    return cu;
}

/* ---- contents ------------------------------------------------------------------------------- */

static int cuda_fill(void *va, uint64_t bytes, uint32_t word) {
    int device, cu;
    if (!va || bytes == 0 || ((uintptr_t)va | bytes) % sizeof word != 0) return bad_value();
    if ((cu = current(&device, NULL)) != 0) return cu;
    cu = symm_cuda_fill(device, (uintptr_t)va, bytes, word);
    return cu ? refuse(cu, 0) : cu;
}

static int cuda_copy(void *dst, const void *src, uint64_t bytes) {
    int device, cu;
    if (!dst || !src || bytes == 0) return bad_value();
    if ((cu = current(&device, NULL)) != 0) return cu;
    cu = symm_cuda_copy(device, dst, src, bytes);
    return cu ? refuse(cu, 0) : cu;
}

/* ---- making and finding --------------------------------------------------------------------- */

/* Inside the device's scope, so that an allocation does not end a capture of some stream. */
static int create(int device, const symm_cuda_memory *m, uint64_t bytes, int zeros,
                  cu_mem_handle *raw) {
    cu_mem_prop prop = symm_cuda_prop(device, m->handle_types);
    int cu = symm_cu.cuMemCreate(raw, bytes, &prop, 0);
    if (cu) return cu;
    cu = zeros ? symm_cuda_clear(device, *raw, bytes) : 0;
    if (cu)
        symm_cu.cuMemRelease(*raw);
    else
        SYMM_STAT_ADD(created_bytes, (int64_t)bytes);
    return cu;
}

static int make(uint64_t bytes, int zeros, symm_vmm_handle **h) {
    const symm_cuda_memory *m;
    symm_cuda_scope scope;
    cu_mem_handle raw = 0;
    int device, cu;
    if (!h) return bad_value();
    if ((cu = current(&device, &m)) != 0) return cu;
    if (bytes == 0 || bytes % m->granularity != 0) return bad_value();
    if (SYMM_FAIL_HERE(vmm_create)) return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    if (bytes > m->bytes) return refuse(SYMM_CU_OUT_OF_MEMORY, 0);
    if ((cu = symm_cuda_push_cu(device, &scope)) != 0) return refuse(cu, 0);
    cu = create(device, m, bytes, zeros, &raw);
    symm_cuda_pop(&scope);
    return cu ? refuse(cu, 0) : symm_cuda_vmm_adopt(raw, bytes, device, h);
}

static int cuda_create(uint64_t bytes, symm_vmm_handle **h) {
    return make(bytes, 1, h);
}

static int cuda_create_as_is(uint64_t bytes, symm_vmm_handle **h) {
    return make(bytes, 0, h);
}

/* A mapping of this driver is in the table; for any other CUDA is asked. */
static int find_mapping(uint64_t at, void **base, uint64_t *bytes) {
    cu_deviceptr start = 0;
    size_t size = 0;
    pthread_mutex_lock(&table.lock);
    const symm_vmm_mapping *s = symm_vmm_mapping_of(&table, at);
    if (s) {
        start = s->span.lo;
        size = s->span.hi - s->span.lo;
    }
    pthread_mutex_unlock(&table.lock);
    int cu = s ? SYMM_CU_SUCCESS : symm_cu.cuMemGetAddressRange(&start, &size, at);
    *base = symm_vmm_address(start);
    *bytes = size;
    return cu;
}

/* CUDA's codes for memory that is not of its VMM (of cudaMalloc, the host, a pool). An error that
 * ended the context is not among them. */
static int not_ours(int cu) {
    return cu == SYMM_CU_INVALID_VALUE || cu == SYMM_CU_INVALID_HANDLE ||
           cu == SYMM_CU_NOT_SUPPORTED || cu == SYMM_CUDA_ERROR_NOT_FOUND;
}

static int cuda_retain(const void *va, symm_vmm_handle **h, void **base, uint64_t *bytes) {
    uint64_t at = (uintptr_t)va, size = 0;
    cu_mem_handle raw = 0;
    void *start = NULL;
    int device, types, cu;
    if (!h || !base || !bytes || at == 0 || at >= SYMM_VMM_SPACE) return bad_value();
    if ((cu = current(&device, NULL)) != 0) return cu;
    if (SYMM_FAIL_HERE(vmm_retain)) return refuse(SYMM_CU_UNKNOWN, 0);
    cu = symm_cu.cuMemRetainAllocationHandle(&raw, symm_vmm_address(at));
    if (cu) return not_ours(cu) ? bad_value() : refuse(cu, 0);
    cu = properties(raw, &device, &types);
    if (!cu) cu = find_mapping(at, &start, &size);
    /* Memory of another allocator may have been made without handles to export. */
    if (cu || !symm_cuda_share_kinds(types)) {
        symm_cu.cuMemRelease(raw);
        return !cu || not_ours(cu) ? bad_value() : refuse(cu, 0);
    }
    cu = symm_cuda_vmm_adopt(raw, size, device, h);
    if (cu) return cu;
    *base = start;
    *bytes = size;
    return SYMM_CU_SUCCESS;
}

/* ---- handing on ----------------------------------------------------------------------------- */

static int cuda_shares(symm_vmm_handle *h, int *kinds) {
    int device, types, cu;
    if (!kinds) return bad_value();
    if ((cu = there()) != 0) return cu;
    struct memory *m = hold(h);
    if (!m) return refuse(SYMM_CU_INVALID_HANDLE, 0);
    cu = properties(m->raw.span.lo, &device, &types);
    let_go(m);
    *kinds = symm_cuda_share_kinds(types);
    return cu ? refuse(cu, 0) : SYMM_CU_SUCCESS;
}

/* One of fd and fabric is not NULL. */
static int export(symm_vmm_handle *h, int *fd, symm_vmm_fabric *fabric) {
    int err = 0, cu = there();
    if (cu) return cu;
    if (SYMM_FAIL_HERE(vmm_export)) return refuse(SYMM_CU_OS_ERROR, EMFILE);
    struct memory *m = hold(h);
    if (!m) return refuse(SYMM_CU_INVALID_HANDLE, 0);
    cu = fd ? symm_cuda_share_fd(m->raw.span.lo, fd, &err)
            : symm_cuda_share_fabric(m->raw.span.lo, fabric);
    let_go(m);
    return cu ? refuse(cu, err) : SYMM_CU_SUCCESS;
}

static int cuda_export_fd(symm_vmm_handle *h, int *fd) {
    return fd ? export(h, fd, NULL) : bad_value();
}
static int cuda_export_fabric(symm_vmm_handle *h, symm_vmm_fabric *out) {
    return out ? export(h, NULL, out) : bad_value();
}

/* By fabric, or by fd if that is NULL. The size cannot be checked: CUDA does not tell it, but
 * refuses to map more than there is. A peer with the handle cannot make the memory smaller. */
static int import(int fd, const symm_vmm_fabric *fabric, uint64_t bytes, symm_vmm_handle **h) {
    const symm_cuda_memory *m;
    cu_mem_handle raw = 0;
    int device, types, err = 0, cu;
    if (!h) return bad_value();
    if ((cu = current(&device, &m)) != 0) return cu;
    if (bytes == 0 || bytes % SYMM_VMM_GRANULE != 0 || bytes > SYMM_VMM_SPACE) return bad_value();
    if (SYMM_FAIL_HERE(vmm_import)) return refuse(SYMM_CU_UNKNOWN, 0);
    cu = fabric ? symm_cuda_share_from_fabric(fabric, &raw)
                : symm_cuda_share_from_fd(fd, &raw, &err);
    if (cu) return refuse(cu, err);
    properties(raw, &device, &types); /* only to know which devices can reach it */
    return symm_cuda_vmm_adopt(raw, bytes, device, h);
}

static int cuda_import_fd(int fd, uint64_t bytes, symm_vmm_handle **h) {
    return fd < 0 ? bad_value() : import(fd, NULL, bytes, h);
}
static int cuda_import_fabric(const symm_vmm_fabric *from, uint64_t bytes, symm_vmm_handle **h) {
    return from ? import(-1, from, bytes, h) : bad_value();
}

static int cuda_identify(symm_vmm_handle *h, uint64_t *bytes, uint64_t id[2]) {
    int cu = there();
    if (cu) return cu;
    if (!bytes || !id) return bad_value();
    pthread_mutex_lock(&table.lock);
    struct memory *m = live(h);
    if (m) {
        *bytes = m->bytes;
        id[0] = m->raw.span.lo;
        id[1] = (uint64_t)(int64_t)m->device;
    }
    pthread_mutex_unlock(&table.lock);
    return m ? SYMM_CU_SUCCESS : refuse(SYMM_CU_INVALID_HANDLE, 0);
}

/* ---- address space -------------------------------------------------------------------------- */

static int cuda_reserve(uint64_t bytes, uint64_t align, void **va) {
    const symm_cuda_memory *m;
    cu_deviceptr at = 0;
    int device, cu;
    if (!va || (align & (align - 1)) != 0) return bad_value();
    if ((cu = current(&device, &m)) != 0) return cu;
    if (bytes == 0 || bytes % m->granularity != 0) return bad_value();
    if (SYMM_FAIL_HERE(vmm_reserve)) return refuse(SYMM_CU_UNKNOWN, 0);
    if (align < m->granularity) align = m->granularity;
    if (bytes > SYMM_VMM_SPACE || align > SYMM_VMM_SPACE)
        return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    symm_span *s = calloc(1, sizeof *s);
    if (!s) return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    cu = symm_cu.cuMemAddressReserve(&at, bytes, align, 0, 0);
    if (cu) {
        free(s);
        return refuse(cu, 0);
    }
    s->lo = at;
    s->hi = at + bytes;
    symm_vmm_add_reservation(&table, s);
    SYMM_STAT_ADD(va_bytes, (int64_t)bytes);
    *va = symm_vmm_address(at);
    return SYMM_CU_SUCCESS;
}

static int cuda_unreserve(void *va, uint64_t bytes) {
    int cu = there();
    if (cu) return cu;
    if (!symm_vmm_range_ok(va, bytes)) return bad_value();
    uint64_t lo = (uintptr_t)va, hi = lo + bytes;
    pthread_mutex_lock(&table.lock);
    symm_span *s = symm_vmm_idle_reservation(&table, lo, hi);
    /* Before CUDA can reserve the range for another call. */
    if (s) symm_span_take(&table.reservations, lo, hi);
    pthread_mutex_unlock(&table.lock);
    if (!s) return bad_value();
    cu = symm_cu.cuMemAddressFree(lo, bytes);
    if (cu) {
        symm_vmm_add_reservation(&table, s);
        return refuse(cu, 0);
    }
    free(s);
    SYMM_STAT_ADD(va_bytes, -(int64_t)bytes);
    return SYMM_CU_SUCCESS;
}

/* ---- mappings ------------------------------------------------------------------------------- */

/* Records `map`, so that no other call of this driver maps there meanwhile. */
static int claim(struct mapping *map) {
    pthread_mutex_lock(&table.lock);
    const int ok = symm_vmm_can_map(&table, map->at.span.lo, map->at.span.hi);
    if (ok) symm_vmm_add_mapping(&table, &map->at);
    pthread_mutex_unlock(&table.lock);
    return ok;
}

static int map_memory(struct memory *m, uint64_t lo, uint64_t bytes, uint64_t offset) {
    if (offset != 0 || bytes != m->bytes) return refuse(SYMM_CU_NOT_SUPPORTED, 0);
    struct mapping *map = calloc(1, sizeof *map);
    if (!map) return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    map->at.span.lo = lo;
    map->at.span.hi = lo + bytes;
    map->device = m->device;
    map->object = m->object;
    if (!claim(map)) {
        free(map);
        return bad_value();
    }
    int cu = symm_cu.cuMemMap(lo, bytes, 0, m->raw.span.lo, 0);
    if (!cu) {
        SYMM_STAT_ADD(maps, 1);
        return cu;
    }
    pthread_mutex_lock(&table.lock);
    symm_vmm_take_mappings(&table, lo, lo + bytes);
    pthread_mutex_unlock(&table.lock);
    free(map);
    return refuse(cu, 0);
}

static int cuda_map(void *va, uint64_t bytes, uint64_t offset, symm_vmm_handle *h) {
    int cu = there();
    if (cu) return cu;
    if (!symm_vmm_range_ok(va, bytes)) return bad_value();
    if (SYMM_FAIL_HERE(vmm_map)) return refuse(SYMM_CU_UNKNOWN, 0);
    struct memory *m = hold(h);
    if (!m) return refuse(SYMM_CU_INVALID_HANDLE, 0);
    cu = map_memory(m, (uintptr_t)va, bytes, offset);
    let_go(m);
    return cu;
}

static int tiled(uint64_t lo, uint64_t hi) {
    pthread_mutex_lock(&table.lock);
    int whole = symm_span_tiles(table.mappings, lo, hi);
    pthread_mutex_unlock(&table.lock);
    return whole;
}

/* A copy of the mapping that starts at lo. */
static int mapping_at(uint64_t lo, struct mapping *map) {
    pthread_mutex_lock(&table.lock);
    symm_span *s = symm_span_floor(table.mappings, lo);
    int found = s && s->lo == lo;
    if (found) *map = *(struct mapping *)s;
    pthread_mutex_unlock(&table.lock);
    return found;
}

static uint64_t cuda_life(const void *va) {
    const uint64_t at = (uintptr_t)va;
    if (at >= SYMM_VMM_SPACE || there()) return 0;
    const uint64_t life = symm_vmm_mapping_life(&table, va);
    return life ? life : symm_cuda_foreign_life(at);
}

/* One whole mapping of another allocator, which may have given access to other devices only. */
static int share_foreign(uint64_t lo, uint64_t bytes, int device) {
    cu_mem_handle raw = 0;
    uint64_t size = 0;
    void *start = NULL;
    int owner, types, cu = symm_cu.cuMemRetainAllocationHandle(&raw, symm_vmm_address(lo));
    if (cu) return not_ours(cu) ? bad_value() : refuse(cu, 0);
    cu = properties(raw, &owner, &types);
    if (!cu) cu = find_mapping(lo, &start, &size);
    symm_cu.cuMemRelease(raw);
    if (cu || start != symm_vmm_address(lo) || size != bytes) return bad_value();
    cu = symm_cuda_grant(lo, bytes, owner, device);
    return cu ? refuse(cu, 0) : SYMM_CU_SUCCESS;
}

static int grant_one(uint64_t lo, uint64_t bytes, int device) {
    const cu_mem_access access = {{SYMM_CUDA_LOCATION_DEVICE, device}, SYMM_CUDA_ACCESS_READWRITE};
    return symm_cu.cuMemSetAccess(lo, bytes, &access, 1);
}

static int cuda_set_access(void *va, uint64_t bytes) {
    uint64_t lo = (uintptr_t)va, hi = lo + bytes;
    struct mapping map;
    int device, cu;
    if (!symm_vmm_range_ok(va, bytes)) return bad_value();
    if ((cu = current(&device, NULL)) != 0) return cu;
    if (SYMM_FAIL_HERE(vmm_access)) return refuse(SYMM_CU_UNKNOWN, 0);
    if (!tiled(lo, hi)) return share_foreign(lo, bytes, device);
    for (; lo < hi; lo = map.at.span.hi) {
        if (!mapping_at(lo, &map)) return bad_value();
        cu = map.object ? grant_one(lo, map.at.span.hi - lo, map.device)
                        : symm_cuda_grant(lo, map.at.span.hi - lo, map.device, device);
        if (cu) return refuse(cu, 0);
    }
    return SYMM_CU_SUCCESS;
}

/* Mapping by mapping, as CUDA requires. After a refusal that mapping and those behind it stay. */
static int cuda_unmap(void *va, uint64_t bytes) {
    uint64_t lo = (uintptr_t)va, hi = lo + bytes;
    struct mapping map;
    int cu = there();
    if (cu) return cu;
    if (!symm_vmm_range_ok(va, bytes) || !tiled(lo, hi)) return bad_value();
    for (; lo < hi; lo = map.at.span.hi) {
        if (!mapping_at(lo, &map)) return bad_value();
        cu = symm_cu.cuMemUnmap(lo, map.at.span.hi - lo);
        if (cu) return refuse(cu, 0);
        pthread_mutex_lock(&table.lock);
        symm_span *gone = symm_vmm_take_mappings(&table, lo, lo + 1);
        symm_vmm_note_end();
        pthread_mutex_unlock(&table.lock);
        free(gone); /* the first member of its mapping */
        SYMM_STAT_ADD(maps, -1);
    }
    return SYMM_CU_SUCCESS;
}

/* ---- the driver ----------------------------------------------------------------------------- */

static int cuda_query(symm_vmm_caps *caps) {
    const symm_cuda_memory *m;
    int device, cu;
    if (!caps) return bad_value();
    if ((cu = current(&device, &m)) != 0) return cu;
    *caps = (symm_vmm_caps){
        .name = "cuda",
        .device = device,
        .granularity = m->granularity,
        .device_bytes = m->bytes,
        .fd_handles = (m->handle_types & SYMM_CUDA_HANDLE_FD) != 0,
        .fabric_handles = (m->handle_types & SYMM_CUDA_HANDLE_FABRIC) != 0,
    };
    snprintf(caps->fabric_reason, sizeof caps->fabric_reason, "%s", m->fabric_reason);
    return SYMM_CU_SUCCESS;
}

const symm_vmm symm_vmm_cuda = {
    .name = "cuda",
    .query = cuda_query,
    .reserve = cuda_reserve,
    .unreserve = cuda_unreserve,
    .create = cuda_create,
    .create_as_is = cuda_create_as_is,
    .retain = cuda_retain,
    .release = cuda_release,
    .shares = cuda_shares,
    .export_fd = cuda_export_fd,
    .import_fd = cuda_import_fd,
    .export_fabric = cuda_export_fabric,
    .import_fabric = cuda_import_fabric,
    .identify = cuda_identify,
    .life = cuda_life,
    .map = cuda_map,
    .set_access = cuda_set_access,
    .unmap = cuda_unmap,
    .fill = cuda_fill,
    .copy = cuda_copy,
    .multicast = &symm_cuda_objects,
};
