/* vmm_host.c - the host memory driver: a handle is a part of a sealed memfd, a mapping is mmap
 * inside a PROT_NONE reservation. It enforces CUDA's rules with CUDA's codes, so that what passes
 * here passes there.
 *
 * Any thread. One lock (table.lock) guards the table (vmm_table.h) and every mmap call that must
 * agree with it. It is not held while a memfd is closed (freeing gigabytes takes long), and no
 * other lock is taken under it.
 *
 * Memory (struct memory) lives while it has references or mappings. Memory that was created here is
 * a part of a larger file (memcut.h); the file's fd stays open for retain and export. Imported
 * memory closes its fd with the last reference, because every segment of a peer costs one. A
 * multicast object is a record of the same kind: its mappings have addresses and no pages. */
#define _GNU_SOURCE 1 /* MAP_ANONYMOUS, F_DUPFD_CLOEXEC */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"
#include "memfd.h"
#include "vmm_host.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

_Static_assert(sizeof(void *) == 8, "address arithmetic here is 64-bit");

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

symm_vmm_table symm_host_table = {.lock = PTHREAD_MUTEX_INITIALIZER, .mark = 0x5379000000000000ull};
static void *spare; /* under table.lock, see drop_spare */

static atomic_int hugepages = 1; /* relaxed: a switch, orders nothing */
static _Thread_local int last_errno;

int symm_vmm_errno(void) {
    return last_errno;
}

void symm_vmm_host_hugepages(int on) {
    atomic_store_explicit(&hugepages, on != 0, memory_order_relaxed);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static int refuse(int cu, int err) {
    last_errno = err;
    return cu;
}

int symm_host_refuse(int cu, int err) {
    return refuse(cu, err);
}

int symm_host_refuse_os(int err) {
    switch (err) {
    case ENOMEM:
    case ENOSPC: return refuse(SYMM_CU_OUT_OF_MEMORY, err);
    case EPERM:
    case EACCES: return refuse(SYMM_CU_NOT_PERMITTED, err);
    default: return refuse(SYMM_CU_OS_ERROR, err);
    }
}

static int refuse_os(int err) {
    return symm_host_refuse_os(err);
}

static int bad_value(void) {
    return refuse(SYMM_CU_INVALID_VALUE, 0);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void close_fd(int fd) {
    if (fd < 0) return;
    close(fd); /* on Linux the descriptor is gone whatever close returns */
    SYMM_STAT_ADD(fds, -1);
}

/* ---- memory and its handles ----------------------------------------------------------------- */

/* All of these under table.lock. */

static symm_vmm_handle *handle_of(const struct memory *m) {
    return (symm_vmm_handle *)symm_vmm_address(m->handle.lo);
}

static struct memory *live(const symm_vmm_handle *h) {
    return (struct memory *)symm_vmm_live(&symm_host_table, h);
}

/* The first reference: also after all had been dropped and only mappings were left. */
static void give_handle(struct memory *m) {
    m->refs = 1;
    symm_vmm_give_handle(&symm_host_table, &m->handle);
}

/* What must be freed without the lock, after a reference or mapping of m has ended. */
struct leftovers {
    struct memory *memory;
    int fd;
};

static struct leftovers settle(struct memory *m) {
    struct leftovers left = {NULL, -1};
    if (m->refs == 0 && m->imported) {
        left.fd = m->fd;
        m->fd = -1;
    }
    if (m->refs == 0 && m->maps == 0) left.memory = m;
    return left;
}

/* Without the lock. */
static void clear(struct leftovers left) {
    close_fd(left.fd);
    if (!left.memory) return;
    if (left.memory->object)
        symm_mc_object_close(left.memory->object);
    else if (!left.memory->imported)
        symm_memcut_free(&left.memory->cut);
    free(left.memory);
    SYMM_STAT_ADD(handles, -1);
}

int symm_host_adopt(const struct memory *like, symm_vmm_handle **h) {
    struct memory *m = SYMM_FAIL_ALLOC(vmm_record, calloc(1, sizeof *m));
    if (!m) return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    *m = *like;
    SYMM_STAT_ADD(handles, 1);
    pthread_mutex_lock(&symm_host_table.lock);
    give_handle(m);
    *h = handle_of(m);
    pthread_mutex_unlock(&symm_host_table.lock);
    return SYMM_CU_SUCCESS;
}

static int host_create(uint64_t bytes, symm_vmm_handle **h) {
    struct memory m = {.bytes = bytes};
    if (!h || !symm_vmm_size_ok(bytes)) return bad_value();
    if (SYMM_FAIL_HERE(vmm_create)) return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    if (!symm_memfd_fits(bytes)) return refuse(SYMM_CU_OUT_OF_MEMORY, EFBIG);
    int err = symm_memcut_make(bytes, &m.cut, m.id);
    if (err) return refuse_os(err);
    m.fd = m.cut.fd;
    m.off = m.cut.off;
    int cu = symm_host_adopt(&m, h);
    if (cu)
        symm_memcut_free(&m.cut);
    else
        SYMM_STAT_ADD(created_bytes, (int64_t)bytes);
    return cu;
}

static int host_release(symm_vmm_handle *h) {
    struct leftovers left = {NULL, -1};
    pthread_mutex_lock(&symm_host_table.lock);
    struct memory *m = live(h);
    if (m && --m->refs == 0) {
        symm_vmm_drop_handle(&symm_host_table, &m->handle);
        left = settle(m);
    }
    pthread_mutex_unlock(&symm_host_table.lock);
    clear(left);
    return m ? SYMM_CU_SUCCESS : refuse(SYMM_CU_INVALID_HANDLE, 0);
}

static int host_retain(const void *va, symm_vmm_handle **h, void **base, uint64_t *bytes) {
    uint64_t at = (uintptr_t)va;
    int cu = SYMM_CU_SUCCESS;
    if (!h || !base || !bytes || at >= SYMM_VMM_SPACE) return bad_value();
    if (SYMM_FAIL_HERE(vmm_retain)) return refuse(SYMM_CU_UNKNOWN, 0);
    pthread_mutex_lock(&symm_host_table.lock);
    const struct mapping *map = (const struct mapping *)symm_vmm_mapping_of(&symm_host_table, at);
    if (!map || map->memory->object) {
        cu = SYMM_CU_INVALID_VALUE;
    } else if (map->memory->fd < 0) {
        cu = SYMM_CU_NOT_SUPPORTED; /* a peer's memory, imported and released: it can be neither
                                       mapped nor exported */
    } else {
        if (map->memory->refs > 0)
            map->memory->refs++;
        else
            give_handle(map->memory);
        *h = handle_of(map->memory);
        *base = symm_vmm_address(map->at.span.lo);
        *bytes = map->at.span.hi - map->at.span.lo;
    }
    pthread_mutex_unlock(&symm_host_table.lock);
    return cu ? refuse(cu, 0) : cu;
}

struct memory *symm_host_hold(symm_vmm_handle *h) {
    pthread_mutex_lock(&symm_host_table.lock);
    struct memory *m = live(h);
    if (m) m->refs++;
    pthread_mutex_unlock(&symm_host_table.lock);
    return m;
}

static int host_shares(symm_vmm_handle *h, int *kinds) {
    if (!kinds) return bad_value();
    if (!symm_host_hold(h)) return refuse(SYMM_CU_INVALID_HANDLE, 0);
    host_release(h);
    *kinds = SYMM_SHARE_FD;
    return SYMM_CU_SUCCESS;
}

static int host_export_fabric(symm_vmm_handle *h, symm_vmm_fabric *out) {
    (void)h, (void)out;
    return refuse(SYMM_CU_NOT_SUPPORTED, 0);
}
static int host_import_fabric(const symm_vmm_fabric *from, uint64_t bytes, symm_vmm_handle **h) {
    (void)from, (void)bytes, (void)h;
    return refuse(SYMM_CU_NOT_SUPPORTED, 0);
}

static int host_export(symm_vmm_handle *h, int *fd) {
    int copy = -1, err = 0;
    if (!fd) return bad_value();
    if (SYMM_FAIL_HERE(vmm_export)) return refuse(SYMM_CU_OS_ERROR, EMFILE);
    struct memory *m = symm_host_hold(h); /* so it has its descriptor */
    if (!m) return refuse(SYMM_CU_INVALID_HANDLE, 0);
    if (!m->imported)
        err = symm_memcut_export(&m->cut, &copy);
    else if ((copy = fcntl(m->fd, F_DUPFD_CLOEXEC, 3)) < 0)
        err = errno;
    host_release(h);
    if (err) return refuse_os(err);
    *fd = copy;
    return SYMM_CU_SUCCESS;
}

/* Inspects the copy: the caller's number may be another file by then. */
static int host_import(int fd, uint64_t bytes, symm_vmm_handle **h) {
    struct memory m = {.bytes = bytes, .imported = 1};
    if (!h || fd < 0 || !symm_vmm_size_ok(bytes)) return bad_value();
    if (SYMM_FAIL_HERE(vmm_import)) return refuse(SYMM_CU_UNKNOWN, 0);
    int copy = SYMM_FAIL_CALL(vmm_copy, -1, EMFILE, fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (copy < 0) return errno == EBADF ? refuse(SYMM_CU_INVALID_VALUE, EBADF) : refuse_os(errno);
    SYMM_STAT_ADD(fds, 1);
    m.fd = copy;
    int err = symm_memcut_inspect(copy, bytes, &m.off, m.id);
    int cu = err ? refuse(SYMM_CU_INVALID_VALUE, err) : symm_host_adopt(&m, h);
    if (cu) close_fd(copy);
    return cu;
}

static int host_identify(symm_vmm_handle *h, uint64_t *bytes, uint64_t id[2]) {
    if (!bytes || !id) return bad_value();
    pthread_mutex_lock(&symm_host_table.lock);
    struct memory *m = live(h);
    if (m && m->object) m = NULL;
    if (m) {
        *bytes = m->bytes;
        id[0] = m->id[0];
        id[1] = m->id[1];
    }
    pthread_mutex_unlock(&symm_host_table.lock);
    return m ? SYMM_CU_SUCCESS : refuse(SYMM_CU_INVALID_HANDLE, 0);
}

/* ---- address space -------------------------------------------------------------------------- */

/* A process at vm.max_map_count can be one mapping above it. There the kernel refuses even the mmap
 * that restores a reservation, so memory could not be unmapped any more. So one page is kept mapped
 * (shared: it merges with no neighbour), and unmapped to make room for that call. Under
 * table.lock. */
static void keep_spare(void) {
    if (spare) return;
    void *page = SYMM_FAIL_CALL(vmm_spare, MAP_FAILED, ENOMEM,
                                mmap(NULL, 1, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    if (page != MAP_FAILED) spare = page;
}

static int drop_spare(void) {
    if (!spare) return 0;
    munmap(spare, 1);
    spare = NULL;
    return 1;
}

/* Turns [lo, lo+bytes), whole mappings, back into reserved address space. In one step, so that no
 * other mmap can take the range in between. Returns errno. */
static int cover(uint64_t lo, uint64_t bytes) {
    while (SYMM_FAIL_CALL(vmm_cover, MAP_FAILED, ENOMEM,
                          mmap(symm_vmm_address(lo), bytes, PROT_NONE, RESERVED | MAP_FIXED, -1,
                               0)) == MAP_FAILED)
        if (errno != ENOMEM || !drop_spare()) return errno;
    keep_spare();
    return 0;
}

static int uncover(uint64_t lo, uint64_t bytes) {
    while (SYMM_FAIL_CALL(vmm_uncover, -1, ENOMEM, munmap(symm_vmm_address(lo), bytes)) != 0)
        if (errno != ENOMEM || !drop_spare()) return errno;
    keep_spare();
    return 0;
}

/* Reserves too much and unmaps what is outside of the alignment: mmap aligns to pages only. */
static int reserve_aligned(uint64_t bytes, uint64_t align, uint64_t *lo) {
    uint64_t total = bytes + align;
    void *raw = SYMM_FAIL_CALL(vmm_range, MAP_FAILED, ENOMEM,
                               mmap(NULL, total, PROT_NONE, RESERVED, -1, 0));
    if (raw == MAP_FAILED) return errno;
    uint64_t start = (uintptr_t)raw, at = (start + align - 1) & ~(align - 1);
    if (at > start) munmap(raw, at - start);
    if (start + total > at + bytes)
        munmap(symm_vmm_address(at + bytes), start + total - at - bytes);
    *lo = at;
    return 0;
}

static int host_reserve(uint64_t bytes, uint64_t align, void **va) {
    if (!va || !symm_vmm_size_ok(bytes) || (align & (align - 1)) != 0) return bad_value();
    if (SYMM_FAIL_HERE(vmm_reserve)) return refuse(SYMM_CU_UNKNOWN, 0);
    if (align < SYMM_VMM_GRANULE) align = SYMM_VMM_GRANULE;
    if (bytes > SYMM_VMM_SPACE || align > SYMM_VMM_SPACE)
        return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    symm_span *s = SYMM_FAIL_ALLOC(vmm_span, calloc(1, sizeof *s));
    if (!s) return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    int err = reserve_aligned(bytes, align, &s->lo);
    if (err) {
        free(s);
        return refuse_os(err);
    }
    s->hi = s->lo + bytes;
    SYMM_STAT_ADD(va_bytes, (int64_t)bytes);
    *va = symm_vmm_address(s->lo);
    symm_vmm_add_reservation(&symm_host_table, s);
    pthread_mutex_lock(&symm_host_table.lock);
    keep_spare();
    pthread_mutex_unlock(&symm_host_table.lock);
    return SYMM_CU_SUCCESS;
}

static int host_unreserve(void *va, uint64_t bytes) {
    if (!symm_vmm_range_ok(va, bytes)) return bad_value();
    uint64_t lo = (uintptr_t)va, hi = lo + bytes;
    int err = 0;
    pthread_mutex_lock(&symm_host_table.lock);
    const int exact = symm_vmm_idle_reservation(&symm_host_table, lo, hi) != NULL;
    if (exact) {
        err = uncover(lo, bytes);
        if (!err) free(symm_span_take(&symm_host_table.reservations, lo, hi));
    }
    pthread_mutex_unlock(&symm_host_table.lock);
    if (!exact) return bad_value();
    if (err) return refuse_os(err);
    SYMM_STAT_ADD(va_bytes, -(int64_t)bytes);
    return SYMM_CU_SUCCESS;
}

/* ---- mappings ------------------------------------------------------------------------------- */

/* Under table.lock. Returns errno. mmap may have unmapped the range before it failed (old kernels,
 * out of kernel memory); then the range is reserved again. An object's range stays as reserved: a
 * plain access faults. */
static int place(uint64_t lo, const struct memory *m) {
    void *va = symm_vmm_address(lo);
    if (m->object) return symm_mc_object_full(m->object) ? 0 : EAGAIN;
    if (SYMM_FAIL_CALL(vmm_place, MAP_FAILED, ENOMEM,
                       mmap(va, m->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, m->fd,
                            (off_t)m->off)) != MAP_FAILED)
        return 0;
    int err = errno;
    mmap(va, m->bytes, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0);
    return err;
}

/* Under table.lock. */
static int map_locked(struct mapping *map, uint64_t offset, symm_vmm_handle *h) {
    uint64_t lo = map->at.span.lo, hi = map->at.span.hi;
    struct memory *m = live(h);
    if (!m) return refuse(SYMM_CU_INVALID_HANDLE, 0);
    if (offset != 0 || hi - lo != m->bytes) return refuse(SYMM_CU_NOT_SUPPORTED, 0);
    if (!symm_vmm_can_map(&symm_host_table, lo, hi)) return bad_value();
    int err = place(lo, m);
    if (err) return refuse_os(err);
    map->memory = m;
    m->maps++;
    symm_vmm_add_mapping(&symm_host_table, &map->at);
    return SYMM_CU_SUCCESS;
}

static int host_map(void *va, uint64_t bytes, uint64_t offset, symm_vmm_handle *h) {
    if (!symm_vmm_range_ok(va, bytes)) return bad_value();
    if (SYMM_FAIL_HERE(vmm_map)) return refuse(SYMM_CU_UNKNOWN, 0);
    struct mapping *map = SYMM_FAIL_ALLOC(vmm_mapping, calloc(1, sizeof *map));
    if (!map) return refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    map->at.span.lo = (uintptr_t)va;
    map->at.span.hi = map->at.span.lo + bytes;
    pthread_mutex_lock(&symm_host_table.lock);
    int cu = map_locked(map, offset, h);
    pthread_mutex_unlock(&symm_host_table.lock);
    if (cu)
        free(map);
    else
        SYMM_STAT_ADD(maps, 1);
    return cu;
}

static uint64_t host_life(const void *va) {
    return symm_vmm_mapping_life(&symm_host_table, va);
}

/* Under table.lock; [lo, hi) is tiled. 1: one object's mapping, 0: memory, -1: some of both. */
static int holds_object(uint64_t lo, uint64_t hi) {
    int objects = 0, all = 0;
    while (lo < hi) {
        const struct mapping *map =
            (const struct mapping *)symm_vmm_mapping_of(&symm_host_table, lo);
        objects += map->memory->object != NULL;
        all++;
        lo = map->at.span.hi;
    }
    return !objects ? 0 : all == 1 ? 1 : -1;
}

/* Under the lock also during mprotect: else the range could be unmapped meanwhile and be taken by
 * another mmap. */
static int host_set_access(void *va, uint64_t bytes) {
    if (!symm_vmm_range_ok(va, bytes)) return bad_value();
    if (SYMM_FAIL_HERE(vmm_access)) return refuse(SYMM_CU_UNKNOWN, 0);
    uint64_t lo = (uintptr_t)va;
    int err = 0;
    pthread_mutex_lock(&symm_host_table.lock);
    int whole = symm_span_tiles(symm_host_table.mappings, lo, lo + bytes);
    const int object = whole ? holds_object(lo, lo + bytes) : 0;
    if (object < 0) whole = 0;
    if (whole && !object &&
        SYMM_FAIL_CALL(vmm_protect, -1, ENOMEM, mprotect(va, bytes, PROT_READ | PROT_WRITE)) != 0)
        err = errno;
    if (whole && !object && !err && atomic_load_explicit(&hugepages, memory_order_relaxed))
        madvise(
            va, bytes,
            MADV_HUGEPAGE); /* many machines give shared memory huge pages only on this advice */
    pthread_mutex_unlock(&symm_host_table.lock);
    if (!whole) return bad_value();
    return err ? refuse_os(err) : SYMM_CU_SUCCESS;
}

/* Drops a set of mappings that was taken out of the table. */
static void drop_mappings(symm_span *s) {
    while (s) {
        struct mapping *map = (struct mapping *)s;
        symm_span *right = s->right;
        drop_mappings(s->left);
        pthread_mutex_lock(&symm_host_table.lock);
        map->memory->maps--;
        struct leftovers left = settle(map->memory);
        pthread_mutex_unlock(&symm_host_table.lock);
        clear(left);
        free(map);
        SYMM_STAT_ADD(maps, -1);
        s = right;
    }
}

static int host_unmap(void *va, uint64_t bytes) {
    if (!symm_vmm_range_ok(va, bytes)) return bad_value();
    uint64_t lo = (uintptr_t)va, hi = lo + bytes;
    symm_span *gone = NULL;
    int err = 0;
    pthread_mutex_lock(&symm_host_table.lock);
    int whole = symm_span_tiles(symm_host_table.mappings, lo, hi);
    if (whole) err = cover(lo, bytes);
    if (whole && !err) {
        gone = symm_vmm_take_mappings(&symm_host_table, lo, hi);
        symm_vmm_note_end();
    }
    pthread_mutex_unlock(&symm_host_table.lock);
    if (!whole) return bad_value();
    if (err) return refuse_os(err);
    drop_mappings(gone);
    return SYMM_CU_SUCCESS;
}

/* ---- contents ------------------------------------------------------------------------------- */

static int host_fill(void *va, uint64_t bytes, uint32_t word) {
    uint32_t *at = va;
    if (!va || bytes == 0 || ((uintptr_t)va | bytes) % sizeof word != 0) return bad_value();
    for (uint64_t i = 0; i < bytes / sizeof word; i++) at[i] = word;
    return SYMM_CU_SUCCESS;
}

static int host_copy(void *dst, const void *src, uint64_t bytes) {
    if (!dst || !src || bytes == 0) return bad_value();
    memcpy(dst, src, bytes);
    return SYMM_CU_SUCCESS;
}

/* ---- the driver ----------------------------------------------------------------------------- */

static int host_query(symm_vmm_caps *caps) {
    if (!caps) return bad_value();
    *caps = (symm_vmm_caps){
        .name = "host",
        .device = -1,
        .granularity = SYMM_VMM_GRANULE,
        .device_bytes = symm_memfd_machine_bytes(0),
        .fd_handles = 1,
        .fabric_reason = "host memory reaches no other machine",
    };
    return SYMM_CU_SUCCESS;
}

const symm_vmm symm_vmm_host = {
    .name = "host",
    .query = host_query,
    .reserve = host_reserve,
    .unreserve = host_unreserve,
    .create = host_create,
    .create_as_is = host_create, /* a new file is zeros */
    .retain = host_retain,
    .release = host_release,
    .shares = host_shares,
    .export_fd = host_export,
    .import_fd = host_import,
    .export_fabric = host_export_fabric,
    .import_fabric = host_import_fabric,
    .identify = host_identify,
    .life = host_life,
    .map = host_map,
    .set_access = host_set_access,
    .unmap = host_unmap,
    .fill = host_fill,
    .copy = host_copy,
    .multicast = &symm_host_multicast,
};
