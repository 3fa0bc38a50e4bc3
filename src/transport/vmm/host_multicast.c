/* host_multicast.c - the host driver's multicast objects: addresses that a plain access faults at,
 * and a record of what each member has bound (mc_object.h). Any thread; symm_host_table.lock as in
 * vmm_host.c. */
#define _GNU_SOURCE 1 /* F_DUPFD_CLOEXEC */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"
#include "vmm_host.h"

static int bad_value(void) {
    return symm_host_refuse(SYMM_CU_INVALID_VALUE, 0);
}

static void mc_query(int kind, symm_multicast_caps *caps) {
    (void)kind; /* create says */
    *caps = (symm_multicast_caps){.there = 1, .grain = SYMM_VMM_GRANULE, .best = SYMM_VMM_GRANULE};
}

/* Takes over the object and the descriptor, also if it fails. */
static int adopt_object(symm_mc_object *o, int fd, uint64_t bytes, symm_vmm_handle **h) {
    struct memory m = {.bytes = bytes, .imported = 1, .fd = fd, .object = o};
    SYMM_STAT_ADD(fds, 1);
    const int cu = symm_host_adopt(&m, h);
    if (!cu) return cu;
    symm_mc_object_close(o);
    close(fd);
    SYMM_STAT_ADD(fds, -1);
    return cu;
}

static int mc_create(uint64_t bytes, int members, int kind, symm_vmm_handle **h) {
    symm_mc_object *o = NULL;
    int fd = -1;
    if (!h || members < 1 || !symm_vmm_size_ok(bytes)) return bad_value();
    if (kind != SYMM_SHARE_FD) return symm_host_refuse(SYMM_CU_NOT_SUPPORTED, 0);
    if (SYMM_FAIL_HERE(mc_create)) return symm_host_refuse(SYMM_CU_OUT_OF_MEMORY, ENOMEM);
    const int err = symm_mc_object_make(bytes, members, &o, &fd);
    return err ? symm_host_refuse_os(err) : adopt_object(o, fd, bytes, h);
}

static int mc_import(int fd, const symm_vmm_fabric *fabric, uint64_t bytes, symm_vmm_handle **h) {
    symm_mc_object *o = NULL;
    if (fabric) return symm_host_refuse(SYMM_CU_NOT_SUPPORTED, 0);
    if (!h || fd < 0 || !symm_vmm_size_ok(bytes)) return bad_value();
    if (SYMM_FAIL_HERE(mc_import)) return symm_host_refuse(SYMM_CU_UNKNOWN, 0);
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return errno == EBADF ? symm_host_refuse(SYMM_CU_INVALID_VALUE, EBADF)
                              : symm_host_refuse_os(errno);
    const int err = symm_mc_object_open(copy, bytes, &o);
    if (!err) return adopt_object(o, copy, bytes, h);
    close(copy);
    return err == EINVAL ? symm_host_refuse(SYMM_CU_INVALID_VALUE, err) : symm_host_refuse_os(err);
}

/* Holds the object behind h for a moment: host_release ends that. */
static symm_mc_object *hold_object(symm_vmm_handle *h) {
    struct memory *m = symm_host_hold(h);
    if (m && !m->object) symm_vmm_host.release(h);
    return m ? m->object : NULL;
}

static int refuse_object(int err) {
    if (!err) return SYMM_CU_SUCCESS;
    return symm_host_refuse(err == ENOSPC ? SYMM_CU_OUT_OF_MEMORY : SYMM_CU_INVALID_VALUE, err);
}

static int mc_join(symm_vmm_handle *h) {
    if (SYMM_FAIL_HERE(mc_join)) return symm_host_refuse(SYMM_CU_UNKNOWN, 0);
    symm_mc_object *o = hold_object(h);
    if (!o) return symm_host_refuse(SYMM_CU_INVALID_HANDLE, 0);
    const int err = symm_mc_object_join(o);
    symm_vmm_host.release(h);
    return refuse_object(err);
}

static int mc_bind(symm_vmm_handle *h, uint64_t off, symm_vmm_handle *memory, uint64_t from,
                   uint64_t bytes) {
    symm_mc_bound b = {.off = off, .bytes = bytes, .from = from};
    uint64_t has = 0;
    if (SYMM_FAIL_HERE(mc_bind)) return symm_host_refuse(SYMM_CU_OUT_OF_MEMORY, 0);
    if (!symm_vmm_size_ok(bytes) || (off | from) % SYMM_VMM_GRANULE) return bad_value();
    const int cu = symm_vmm_host.identify(memory, &has, b.id);
    if (cu) return cu;
    if (from > has || bytes > has - from) return bad_value();
    symm_mc_object *o = hold_object(h);
    if (!o) return symm_host_refuse(SYMM_CU_INVALID_HANDLE, 0);
    const int err = symm_mc_object_bind(o, &b);
    symm_vmm_host.release(h);
    return refuse_object(err);
}

static int mc_unbind(symm_vmm_handle *h, uint64_t off, uint64_t bytes) {
    symm_mc_object *o = hold_object(h);
    if (!o) return symm_host_refuse(SYMM_CU_INVALID_HANDLE, 0);
    const int err = symm_mc_object_unbind(o, off, bytes);
    symm_vmm_host.release(h);
    return refuse_object(err);
}

const struct symm_vmm_multicast symm_host_multicast = {
    .query = mc_query,
    .create = mc_create,
    .import = mc_import,
    .join = mc_join,
    .bind = mc_bind,
    .unbind = mc_unbind,
};

/* A mapping of that memory; NULL: none. */
static const symm_span *mapping_with(const symm_span *s, const uint64_t id[2]) {
    const symm_span *found = NULL;
    for (; s && !found; s = s->right) {
        const struct memory *m = ((const struct mapping *)s)->memory;
        if (!m->object && m->id[0] == id[0] && m->id[1] == id[1]) return s;
        found = mapping_with(s->left, id);
    }
    return found;
}

/* Under symm_host_table.lock. */
static int spread(const struct mapping *map, uint64_t off, uint64_t bytes, void **each) {
    const symm_mc_object *o = map->memory->object;
    for (int m = 0; m < symm_mc_object_members(o); m++) {
        symm_mc_bound b;
        if (!symm_mc_object_find(o, m, off, bytes, &b)) return SYMM_CU_NOT_SUPPORTED;
        const symm_span *at = mapping_with(symm_host_table.mappings, b.id);
        if (!at) return SYMM_CU_NOT_SUPPORTED;
        each[m] = symm_vmm_address(at->lo + b.from + (off - b.off));
    }
    return SYMM_CU_SUCCESS;
}

int symm_vmm_host_multicast(const void *va, uint64_t bytes, void **each, int *members) {
    const uint64_t at = (uintptr_t)va;
    int cu = SYMM_CU_INVALID_VALUE;
    if (at >= SYMM_VMM_SPACE || !bytes) return bad_value();
    pthread_mutex_lock(&symm_host_table.lock);
    const struct mapping *map = (const struct mapping *)symm_vmm_mapping_of(&symm_host_table, at);
    if (map && map->memory->object && bytes <= map->at.span.hi - at) {
        *members = symm_mc_object_members(map->memory->object);
        cu = spread(map, at - map->at.span.lo, bytes, each);
    }
    pthread_mutex_unlock(&symm_host_table.lock);
    return cu ? symm_host_refuse(cu, 0) : cu;
}

/* Whether a member has bound at [off, off + bytes) what lies at `at`. Under the table's lock. */
static int is_bound(const symm_mc_object *o, uint64_t off, uint64_t bytes, uint64_t at) {
    const struct mapping *map = (const struct mapping *)symm_vmm_mapping_of(&symm_host_table, at);
    if (!map || map->memory->object || bytes > map->at.span.hi - at) return 0;
    for (int m = 0; m < symm_mc_object_members(o); m++) {
        symm_mc_bound b;
        if (symm_mc_object_find(o, m, off, bytes, &b) && b.id[0] == map->memory->id[0] &&
            b.id[1] == map->memory->id[1] && b.from + (off - b.off) == at - map->at.span.lo)
            return 1;
    }
    return 0;
}
static int all_bound(const symm_mc_object *o, uint64_t off, uint64_t bytes, uint64_t base,
                     uint64_t stride, int n, int *which) {
    for (*which = 0; *which < n; ++*which)
        if (!is_bound(o, off, bytes, base + (uint64_t)*which * stride))
            return SYMM_CU_NOT_SUPPORTED;
    return SYMM_CU_SUCCESS;
}

int symm_vmm_host_multicast_is(const void *va, uint64_t bytes, uint64_t base, uint64_t stride,
                               int n, int *which) {
    const uint64_t at = (uintptr_t)va;
    int cu = SYMM_CU_INVALID_VALUE;
    *which = 0;
    if (at >= SYMM_VMM_SPACE || !bytes) return bad_value();
    pthread_mutex_lock(&symm_host_table.lock);
    const struct mapping *map = (const struct mapping *)symm_vmm_mapping_of(&symm_host_table, at);
    const symm_mc_object *o = map ? map->memory->object : NULL;
    if (o && bytes <= map->at.span.hi - at && symm_mc_object_members(o) == n)
        cu = all_bound(o, at - map->at.span.lo, bytes, base, stride, n, which);
    pthread_mutex_unlock(&symm_host_table.lock);
    return cu ? symm_host_refuse(cu, 0) : cu;
}
