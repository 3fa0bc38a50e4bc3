/* fake_cuda_multicast.c - the fake driver's multicast objects, as strict as CUDA: see fake_cuda.h.
 * An object is a file that its members share (mc_object.h), so ranks may be processes. Where CUDA
 * waits for members that have not joined, the test fails: the library agrees first. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_cuda_int.h"
#include "t.h"

static uint64_t grain(void) {
    return fake.cast ? fake.cast : 2ull << 20;
}

void *fake_multicast_symbol(const char *symbol) {
    const symm_cuda_multicast_table table = {
#define SYMM_CU_CALL(name, symbol, required, params) .name = fk_##name,
#include "transport/cuda/cuda_multicast.def"
#undef SYMM_CU_CALL
    };
    static const char *const symbols[] = {
#define SYMM_CU_CALL(name, symbol, required, params) symbol,
#include "transport/cuda/cuda_multicast.def"
#undef SYMM_CU_CALL
    };
    void *entry = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (!strcmp(symbols[i], symbol))
            memcpy(&entry, (const char *)&table + i * sizeof entry, sizeof entry);
    return entry;
}

static int prop_ok(const cu_multicast_prop *prop) {
    return prop && prop->devices > 0 && prop->bytes && !prop->flags &&
           (prop->handle_types == SYMM_CUDA_HANDLE_FD ||
            prop->handle_types == SYMM_CUDA_HANDLE_FABRIC);
}

cu_result fk_cuMulticastGetGranularity(size_t *bytes, const cu_multicast_prop *prop, int option) {
    ENTER(cuMulticastGetGranularity);
    if (!bytes || !prop_ok(prop)) return SYMM_CUDA_ERROR_INVALID_VALUE;
    *bytes = option == SYMM_CUDA_GRANULARITY_RECOMMENDED ? 512ull << 20 : grain();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuMulticastCreate(cu_mem_handle *object, const cu_multicast_prop *prop) {
    symm_mc_object *o;
    int fd;
    ENTER(cuMulticastCreate);
    if (!fake.multicast) return SYMM_CUDA_ERROR_NOT_SUPPORTED;
    if (!object || !prop_ok(prop) || prop->bytes % grain()) return SYMM_CUDA_ERROR_INVALID_VALUE;
    if (prop->handle_types == SYMM_CUDA_HANDLE_FABRIC && fake.fabric_code) return fake.fabric_code;
    T_EQ(symm_mc_object_make(prop->bytes, (int)prop->devices, &o, &fd), 0);
    fake_lock();
    *object = fake_add_object(o, fd, (int)prop->handle_types);
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

cu_result fk_cuMulticastAddDevice(cu_mem_handle object, cu_device device) {
    int *joined;
    ENTER(cuMulticastAddDevice);
    fake_lock();
    symm_mc_object *o = fake_object(object, &joined);
    const int ok = o && fake_device_ok(device) && !symm_mc_object_join(o);
    if (ok) *joined = device;
    fake_unlock();
    return ok ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

cu_result fk_cuMulticastBindMem(cu_mem_handle object, size_t at, cu_mem_handle memory, size_t from,
                                size_t bytes, unsigned long long flags) {
    symm_mc_bound b = {.off = at, .bytes = bytes, .from = from};
    uint64_t has = 0;
    int device = -1, err = EINVAL, *joined;
    ENTER(cuMulticastBindMem);
    fake_lock();
    symm_mc_object *o = fake_object(object, &joined);
    cu_context context = fake_current();
    const int ours = o && fake_memory(memory, &device, &has, b.id) && context &&
                     context->device == device && *joined == device;
    const int good =
        ours && !flags && (at | from | bytes) % grain() == 0 && from <= has && bytes <= has - from;
    if (good) err = symm_mc_object_bind(o, &b);
    fake_unlock();
    T_CHECK(err != EAGAIN); /* CUDA would wait */
    if (err == ENOSPC) return SYMM_CUDA_ERROR_OUT_OF_MEMORY;
    return err ? SYMM_CUDA_ERROR_INVALID_VALUE : SYMM_CUDA_SUCCESS;
}

cu_result fk_cuMulticastUnbind(cu_mem_handle object, cu_device device, size_t at, size_t bytes) {
    int *joined;
    ENTER(cuMulticastUnbind);
    fake_lock();
    symm_mc_object *o = fake_object(object, &joined);
    const int ok = o && *joined == device && !symm_mc_object_unbind(o, at, bytes);
    fake_unlock();
    return ok ? SYMM_CUDA_SUCCESS : SYMM_CUDA_ERROR_INVALID_VALUE;
}

int fake_import_object(int given, int types, cu_mem_handle *handle) {
    symm_mc_object *o;
    if (symm_mc_object_open(given, 0, &o)) return SYMM_CUDA_ERROR_INVALID_VALUE;
    int fd = dup(given);
    T_CHECK(fd >= 0);
    fake_lock();
    *handle = fake_add_object(o, fd, types);
    fake_unlock();
    return SYMM_CUDA_SUCCESS;
}

void fake_cuda_all_bound(const void *va, uint64_t bytes, int n) {
    symm_mc_bound each[FAKE_DEVICES];
    uint64_t lo = 0;
    fake_lock();
    const symm_mc_object *o = fake_object_at((uintptr_t)va, &lo);
    const int members = o ? symm_mc_object_members(o) : -1;
    T_CHECK(members == n && n <= FAKE_DEVICES);
    for (int m = 0; m < n; m++)
        T_CHECK(symm_mc_object_find(o, m, (uintptr_t)va - lo, bytes, &each[m]));
    fake_unlock();
    for (int m = 0; m < n; m++) {
        T_CHECK(each[m].bytes >= bytes);
        for (int other = 0; other < m; other++) T_CHECK(each[m].id[1] != each[other].id[1]);
    }
}

/* ---- what a GPU does there ------------------------------------------------------------------- */

enum { FILES = 4096 };

/* A descriptor of that memory: who has mapped a window has one of every rank's. */
static int file_of(const uint64_t id[2]) {
    struct stat st;
    for (int fd = 0; fd < FILES; fd++)
        if (!fstat(fd, &st) && st.st_dev == id[0] && st.st_ino == id[1]) return fd;
    return -1;
}

typedef struct { /* a range of addresses in which no piece begins, and each member's memory there */
    uint64_t bytes;
    int members, fd[FAKE_DEVICES];
    off_t at[FAKE_DEVICES];
} part;

/* The first one of [va, va + bytes). */
static part first_part(uint64_t va, uint64_t bytes) {
    cu_context context = fake_current();
    uint64_t base = 0;
    symm_mc_bound b;
    T_CHECK(context && fake_device_memory(context->device, va, bytes));
    fake_lock();
    const symm_mc_object *o = fake_object_at(va, &base);
    const uint64_t left = grain() - (va - base) % grain();
    part p = {.bytes = bytes < left ? bytes : left, .members = o ? symm_mc_object_members(o) : 0};
    T_CHECK(p.members > 0 && p.members <= FAKE_DEVICES);
    for (int m = 0; m < p.members; m++) {
        T_CHECKF(symm_mc_object_find(o, m, va - base, p.bytes, &b), "member %d has bound nothing",
                 m);
        p.fd[m] = file_of(b.id);
        p.at[m] = (off_t)(b.from + (va - base - b.off));
        T_CHECKF(p.fd[m] >= 0, "the memory of member %d is not known here", m);
    }
    fake_unlock();
    return p;
}

void fake_cuda_cast_store(void *va, const void *from, uint64_t bytes) {
    uint64_t step;
    for (uint64_t done = 0; done < bytes; done += step) {
        const part p = first_part((uintptr_t)va + done, bytes - done);
        step = p.bytes;
        for (int m = 0; m < p.members; m++)
            T_EQ(pwrite(p.fd[m], (const char *)from + done, step, p.at[m]), (ssize_t)step);
    }
}

static void add(int fd, off_t at, int *sums, uint64_t count) {
    int word[1024];
    for (uint64_t i = 0; i < count; i += 1024) {
        const uint64_t n = count - i < 1024 ? count - i : 1024, bytes = n * sizeof *word;
        T_EQ(pread(fd, word, bytes, at + (off_t)(i * sizeof *word)), (ssize_t)bytes);
        for (uint64_t j = 0; j < n; j++) sums[i + j] += word[j];
    }
}

void fake_cuda_cast_sum(const void *va, int *sums, int count) {
    const uint64_t bytes = (uint64_t)count * sizeof *sums;
    uint64_t step;
    memset(sums, 0, bytes);
    T_CHECK((uintptr_t)va % sizeof *sums == 0);
    for (uint64_t done = 0; done < bytes; done += step) {
        const part p = first_part((uintptr_t)va + done, bytes - done);
        step = p.bytes;
        for (int m = 0; m < p.members; m++)
            add(p.fd[m], p.at[m], sums + done / sizeof *sums, step / sizeof *sums);
    }
}
