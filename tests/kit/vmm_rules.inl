/* vmm_rules.inl - the rules that every memory driver keeps (vmm.h), as tests: every rule of CUDA's,
 * every code, and what a caller finds changed after a refusal (nothing). Included by unit_vmm.c
 * (the host) and unit_cuda_vmm.c (CUDA, on the fake driver), which say before it
 *   V                the driver
 *   SAYS_ERRNO       the errno behind a refusal, or -1 where the driver has none
 *   MAPPINGS_COUNT   whether memory that only a mapping holds counts in the gauge `handles` */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/stats.h"
#include "transport/vmm/vmm.h"
#include "t.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#endif

#define G              (2ull << 20)
#define IS(call, code) T_EQ((call), SYMM_CU_##code)
#define DONE(call)     IS(call, SUCCESS)

static uint8_t *at(void *va, uint64_t offset) {
    return (uint8_t *)va + offset;
}

/* Whether the kernel may read the byte: no fault needed to find out. */
static int readable(const void *p) {
    int fd[2];
    T_EQ(pipe2(fd, O_CLOEXEC), 0);
    ssize_t n = write(fd[1], p, 1);
    T_CHECK(n == 1 || errno == EFAULT);
    close(fd[0]);
    close(fd[1]);
    return n == 1;
}

static void *reserved(uint64_t bytes) {
    void *va = NULL;
    DONE(V->reserve(bytes, 0, &va));
    T_CHECK(va != NULL);
    return va;
}

static symm_vmm_handle *created(uint64_t bytes) {
    symm_vmm_handle *h = NULL;
    DONE(V->create(bytes, &h));
    T_CHECK(h != NULL);
    return h;
}

static void reserve_checks_its_arguments(void) {
    void *va = &va;
    const uint64_t bad[] = {0, 1, 4096, G - 1, G + 1, 3 * G + 4096, UINT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        IS(V->reserve(bad[i], 0, &va), INVALID_VALUE);
    IS(V->reserve(G, 3, &va), INVALID_VALUE);
    IS(V->reserve(G, G + 1, &va), INVALID_VALUE);
    IS(V->reserve(G, 0, NULL), INVALID_VALUE);
    T_CHECK(SAYS_ERRNO == 0 || SAYS_ERRNO == -1);
    T_CHECK(va == (void *)&va); /* written only on success */
}

static void reserve_aligns(void) {
    for (uint64_t align = 1; align <= 64ull << 30; align *= 2) {
        void *va;
        DONE(V->reserve(3 * G, align, &va));
        T_EQ((uintptr_t)va % align, 0);
        T_EQ((uintptr_t)va % G, 0);
        T_CHECK(!readable(va));
        DONE(V->unreserve(va, 3 * G));
    }
}

static void reserve_of_more_than_there_is_is_out_of_memory(void) {
    void *va = NULL;
#ifdef UNDER_TSAN
    const uint64_t big[] = {1ull << 57, UINT64_MAX - G + 1};
#else
    const uint64_t big[] = {1ull << 48, 1ull << 57, 1ull << 63, UINT64_MAX - G + 1};
#endif
    for (size_t i = 0; i < sizeof big / sizeof *big; i++) {
        IS(V->reserve(big[i], 0, &va), OUT_OF_MEMORY);
        T_CHECK(SAYS_ERRNO == ENOMEM || SAYS_ERRNO == -1);
        T_EQ(SYMM_STAT_GET(va_bytes), 0);
    }
    IS(V->reserve(G, 1ull << 63, &va), OUT_OF_MEMORY);
    T_CHECK(!va);
}

static void reserve_72_ranks_of_192_gib(void) {
#ifdef UNDER_TSAN
    T_SKIP("ThreadSanitizer leaves a process 1.5 TiB of address space");
#endif
    const uint64_t bytes = 72 * (192ull << 30);
    void *va = reserved(bytes);
    symm_vmm_handle *h = created(G);
    DONE(V->map(at(va, bytes - G), G, 0, h));
    DONE(V->set_access(at(va, bytes - G), G));
    *at(va, bytes - 1) = 7;
    T_EQ(SYMM_STAT_GET(va_bytes), bytes);
    DONE(V->unmap(at(va, bytes - G), G));
    DONE(V->release(h));
    DONE(V->unreserve(va, bytes));
}

static void unreserve_only_if_exact_and_empty(void) {
    void *va = reserved(4 * G);
    symm_vmm_handle *h = created(G);
    IS(V->unreserve(va, 3 * G), INVALID_VALUE);
    IS(V->unreserve(va, 5 * G), INVALID_VALUE);
    IS(V->unreserve(at(va, G), 3 * G), INVALID_VALUE);
    IS(V->unreserve(at(va, 1), 4 * G), INVALID_VALUE);
    IS(V->unreserve(NULL, 4 * G), INVALID_VALUE);
    IS(V->unreserve((void *)(uintptr_t)(64 * G), 4 * G), INVALID_VALUE);
    IS(V->unreserve(va, UINT64_MAX - G + 1), INVALID_VALUE);
    for (uint64_t i = 0; i < 4; i++) { /* one mapping anywhere keeps it */
        DONE(V->map(at(va, i * G), G, 0, h));
        IS(V->unreserve(va, 4 * G), INVALID_VALUE);
        DONE(V->unmap(at(va, i * G), G));
    }
    DONE(V->unreserve(va, 4 * G));
    IS(V->unreserve(va, 4 * G), INVALID_VALUE);
    DONE(V->release(h));
}

static void create_checks_its_arguments(void) {
    symm_vmm_handle *h = NULL;
    const uint64_t bad[] = {0, 1, 4096, G - 1, G + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) IS(V->create(bad[i], &h), INVALID_VALUE);
    IS(V->create(G, NULL), INVALID_VALUE);
    T_CHECK(!h);
}

static void map_checks_its_arguments(void) {
    void *va = reserved(4 * G);
    symm_vmm_handle *h = created(2 * G);
    IS(V->map(NULL, 2 * G, 0, h), INVALID_VALUE);
    IS(V->map(at(va, 4096), 2 * G, 0, h), INVALID_VALUE);
    IS(V->map(va, 0, 0, h), INVALID_VALUE);
    IS(V->map(va, G + 4096, 0, h), INVALID_VALUE);
    IS(V->map(va, UINT64_MAX - G + 1, 0, h), INVALID_VALUE);
    IS(V->map((void *)(UINTPTR_MAX - G + 1), 2 * G, 0, h), INVALID_VALUE);
    IS(V->map(va, 2 * G, 0, NULL), INVALID_HANDLE);
    IS(V->map(va, 2 * G, 0, (symm_vmm_handle *)UINTPTR_MAX), INVALID_HANDLE);
    IS(V->map(va, 2 * G, 0, (symm_vmm_handle *)va), INVALID_HANDLE);
    T_EQ(SYMM_STAT_GET(maps), 0);
    DONE(V->release(h));
    DONE(V->unreserve(va, 4 * G));
}

static void map_takes_whole_handles_at_offset_0(void) {
    void *va = reserved(8 * G);
    symm_vmm_handle *h = created(2 * G);
    IS(V->map(va, G, 0, h), NOT_SUPPORTED);
    IS(V->map(va, 4 * G, 0, h), NOT_SUPPORTED);
    IS(V->map(va, 2 * G, G, h), NOT_SUPPORTED);
    IS(V->map(va, G, G, h), NOT_SUPPORTED);
    IS(V->map(va, 2 * G, UINT64_MAX, h), NOT_SUPPORTED);
    DONE(V->map(va, 2 * G, 0, h));
    DONE(V->unmap(va, 2 * G));
    DONE(V->release(h));
    DONE(V->unreserve(va, 8 * G));
}

static void map_lies_inside_one_reservation(void) {
    void *va = reserved(4 * G);
    symm_vmm_handle *h = created(2 * G);
    IS(V->map(at(va, 3 * G), 2 * G, 0, h), INVALID_VALUE);
    IS(V->map(va - G, 2 * G, 0, h), INVALID_VALUE);
    void *own = mmap(NULL, 6 * G, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    T_CHECK(own != MAP_FAILED);
    uint8_t *aligned = at(own, G - (uintptr_t)own % G);
    *aligned = 5;
    IS(V->map(aligned, 2 * G, 0, h), INVALID_VALUE); /* memory that is not the driver's stays */
    T_EQ(*aligned, 5);
    munmap(own, 6 * G);
    DONE(V->unreserve(va, 4 * G));
    IS(V->map(va, 2 * G, 0, h), INVALID_VALUE);
    DONE(V->release(h));
}

static void map_over_a_map_is_refused(void) {
    void *va = reserved(8 * G);
    symm_vmm_handle *h = created(2 * G);
    DONE(V->map(at(va, 2 * G), 2 * G, 0, h));
    DONE(V->set_access(at(va, 2 * G), 2 * G));
    *at(va, 3 * G) = 9;
    for (uint64_t i = 1; i <= 3; i++) IS(V->map(at(va, i * G), 2 * G, 0, h), INVALID_VALUE);
    T_EQ(*at(va, 3 * G), 9);
    DONE(V->map(va, 2 * G, 0, h)); /* close on both sides */
    DONE(V->map(at(va, 4 * G), 2 * G, 0, h));
    T_EQ(SYMM_STAT_GET(maps), 3);
    DONE(V->unmap(va, 6 * G));
    DONE(V->release(h));
    DONE(V->unreserve(va, 8 * G));
}

static void access_must_be_set(void) {
    void *va = reserved(2 * G);
    symm_vmm_handle *h = created(G);
    DONE(V->map(va, G, 0, h));
    T_CHECK(!readable(va));
    DONE(V->set_access(va, G));
    T_CHECK(readable(va));
    DONE(V->set_access(va, G)); /* again is no error */
    for (uint64_t i = 0; i < G; i += 4096) T_EQ(*at(va, i), 0);
    DONE(V->unmap(va, G));
    T_CHECK(!readable(va));
    DONE(V->map(va, G, 0, h)); /* the next map starts without it */
    T_CHECK(!readable(va));
    DONE(V->unmap(va, G));
    DONE(V->release(h));
    DONE(V->unreserve(va, 2 * G));
}

static void access_goes_by_whole_mappings(void) {
    void *va = reserved(8 * G);
    symm_vmm_handle *h = created(2 * G);
    DONE(V->map(va, 2 * G, 0, h));
    DONE(V->map(at(va, 2 * G), 2 * G, 0, h));
    IS(V->set_access(va, G), INVALID_VALUE);
    IS(V->set_access(at(va, G), G), INVALID_VALUE);
    IS(V->set_access(va, 3 * G), INVALID_VALUE);
    IS(V->set_access(va, 6 * G), INVALID_VALUE); /* not all of it is mapped */
    IS(V->set_access(at(va, 4 * G), 2 * G), INVALID_VALUE);
    IS(V->set_access(NULL, G), INVALID_VALUE);
    IS(V->set_access(va, 0), INVALID_VALUE);
    IS(V->set_access(at(va, 1), 2 * G), INVALID_VALUE);
    IS(V->set_access(va, UINT64_MAX - G + 1), INVALID_VALUE);
    T_CHECK(!readable(va) && !readable(at(va, 2 * G)));
    DONE(V->set_access(va, 4 * G)); /* several at once */
    T_CHECK(readable(va) && readable(at(va, 4 * G - 1)));
    DONE(V->unmap(va, 4 * G));
    DONE(V->release(h));
    DONE(V->unreserve(va, 8 * G));
}

static void unmap_takes_whole_mappings(void) {
    void *va = reserved(8 * G);
    symm_vmm_handle *h = created(2 * G);
    DONE(V->map(va, 2 * G, 0, h));
    DONE(V->map(at(va, 2 * G), 2 * G, 0, h));
    DONE(V->map(at(va, 6 * G), 2 * G, 0, h));
    DONE(V->set_access(va, 4 * G));
    IS(V->unmap(va, G), INVALID_VALUE);
    IS(V->unmap(at(va, G), G), INVALID_VALUE);
    IS(V->unmap(va, 3 * G), INVALID_VALUE);
    IS(V->unmap(va, 8 * G), INVALID_VALUE); /* a gap */
    IS(V->unmap(at(va, 4 * G), 2 * G), INVALID_VALUE);
    IS(V->unmap(NULL, 2 * G), INVALID_VALUE);
    IS(V->unmap(va, 0), INVALID_VALUE);
    IS(V->unmap(at(va, 8), 2 * G), INVALID_VALUE);
    IS(V->unmap(va, UINT64_MAX - G + 1), INVALID_VALUE);
    T_CHECK(readable(va) && readable(at(va, 4 * G - 1)));
    T_EQ(SYMM_STAT_GET(maps), 3);
    DONE(V->unmap(va, 4 * G)); /* several at once */
    IS(V->unmap(va, 4 * G), INVALID_VALUE);
    T_EQ(SYMM_STAT_GET(maps), 1);
    DONE(V->unmap(at(va, 6 * G), 2 * G));
    DONE(V->release(h));
    DONE(V->unreserve(va, 8 * G));
}

static void aliases_are_coherent(void) {
    void *va = reserved(6 * G);
    symm_vmm_handle *h = created(2 * G);
    for (uint64_t i = 0; i < 3; i++) DONE(V->map(at(va, 2 * i * G), 2 * G, 0, h));
    DONE(V->set_access(va, 6 * G));
    for (uint64_t i = 0; i < 2 * G; i += 4096 + 64) {
        *(volatile uint8_t *)at(va, i) = (uint8_t)(i % 251 + 1);
        T_EQ(*(volatile uint8_t *)at(va, 2 * G + i), i % 251 + 1);
        T_EQ(*(volatile uint8_t *)at(va, 4 * G + i), i % 251 + 1);
    }
    DONE(V->unmap(va, 6 * G));
    DONE(V->release(h));
    DONE(V->unreserve(va, 6 * G));
}

static void memory_survives_release_while_mapped(void) {
    void *va = reserved(4 * G), *base;
    uint64_t bytes, id[2], again[2];
    symm_vmm_handle *h = created(2 * G), *back = NULL;
    DONE(V->identify(h, &bytes, id));
    T_EQ(bytes, 2 * G);
    DONE(V->map(va, 2 * G, 0, h));
    DONE(V->set_access(va, 2 * G));
    *at(va, 5) = 55;
    DONE(V->release(h));
    IS(V->release(h), INVALID_HANDLE);
    T_EQ(*at(va, 5), 55);
    T_EQ(SYMM_STAT_GET(handles), MAPPINGS_COUNT); /* the mapping holds it */
    DONE(V->retain(va, &back, &base, &bytes));
    T_CHECK(back != h); /* what was released stays dead */
    DONE(V->identify(back, &bytes, again));
    T_CHECK(again[0] == id[0] && again[1] == id[1]);
    DONE(V->unmap(va, 2 * G));
    DONE(V->map(at(va, 2 * G), 2 * G, 0, back)); /* and now the handle held it */
    DONE(V->set_access(at(va, 2 * G), 2 * G));
    T_EQ(*at(va, 2 * G + 5), 55);
    DONE(V->release(back));
    DONE(V->unmap(at(va, 2 * G), 2 * G));
    T_EQ(SYMM_STAT_GET(handles), 0);
    T_EQ(SYMM_STAT_GET(fds), 0);
    DONE(V->unreserve(va, 4 * G));
}

static void retain_finds_the_mapping_of_an_address(void) {
    void *va = reserved(8 * G), *base = NULL;
    uint64_t bytes = 0, local;
    symm_vmm_handle *h = created(2 * G), *got = NULL;
    DONE(V->map(at(va, 2 * G), 2 * G, 0, h));
    DONE(V->map(at(va, 4 * G), 2 * G, 0, h));
    const uint64_t inside[] = {2 * G, 2 * G + 1, 3 * G, 4 * G - 1};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        DONE(V->retain(at(va, inside[i]), &got, &base, &bytes));
        T_CHECK(got == h && base == at(va, 2 * G) && bytes == 2 * G);
        DONE(V->release(got));
    }
    got = NULL;
    const void *wild[] = {NULL, (void *)1,         (void *)UINTPTR_MAX, &local,
                          va,   at(va, 2 * G - 1), at(va, 6 * G)};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++)
        IS(V->retain(wild[i], &got, &base, &bytes), INVALID_VALUE);
    IS(V->retain(at(va, 2 * G), NULL, &base, &bytes), INVALID_VALUE);
    IS(V->retain(at(va, 2 * G), &got, NULL, &bytes), INVALID_VALUE);
    IS(V->retain(at(va, 2 * G), &got, &base, NULL), INVALID_VALUE);
    T_CHECK(!got);
    DONE(V->unmap(at(va, 2 * G), 4 * G));
    IS(V->retain(at(va, 2 * G), &got, &base, &bytes), INVALID_VALUE);
    DONE(V->release(h)); /* every retain was matched: this is the last */
    IS(V->release(h), INVALID_HANDLE);
    DONE(V->unreserve(va, 8 * G));
}

static void stale_and_wild_handles_are_invalid(void) {
    void *va = reserved(2 * G);
    symm_vmm_handle *dead = created(G);
    DONE(V->release(dead));
    symm_vmm_handle *alive = created(G); /* may live where the dead one did */
    symm_vmm_handle *const bad[] = {dead, NULL, (symm_vmm_handle *)8,
                                    (symm_vmm_handle *)UINTPTR_MAX, va};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint64_t bytes, id[2];
        int fd = -7;
        IS(V->release(bad[i]), INVALID_HANDLE);
        IS(V->export_fd(bad[i], &fd), INVALID_HANDLE);
        IS(V->identify(bad[i], &bytes, id), INVALID_HANDLE);
        IS(V->map(va, G, 0, bad[i]), INVALID_HANDLE);
        T_EQ(fd, -7);
    }
    DONE(V->release(alive));
    DONE(V->unreserve(va, 2 * G));
}

/* A second bookkeeping of one reservation, slot by slot, against which random calls are judged. */
enum { SLOTS = 24, SIZES = 3, STEPS = 4000 };
struct model {
    void *va;
    symm_vmm_handle *handle[SIZES]; /* of 1, 2 and 3 slots */
    uint8_t start[SLOTS], covered[SLOTS];
};

static int model_tiles(const struct model *m, int from, int n) {
    if (n == 0 || from + n > SLOTS || !m->start[from]) return 0;
    for (int i = from; i < from + n; i++)
        if (!m->covered[i]) return 0;
    return from + n == SLOTS || m->start[from + n] || !m->covered[from + n];
}

static void model_step(struct model *m) {
    int from = rand() % SLOTS, n = rand() % 7, size = rand() % SIZES, free_slots = 1;
    switch (rand() % 3) {
    case 0:
        for (int i = from; i <= from + size; i++) free_slots &= i < SLOTS && !m->covered[i];
        T_EQ(V->map(at(m->va, from * G), (size + 1) * G, 0, m->handle[size]),
             free_slots ? SYMM_CU_SUCCESS : SYMM_CU_INVALID_VALUE);
        if (!free_slots) return;
        m->start[from] = 1;
        memset(m->covered + from, 1, size + 1);
        return;
    case 1: {
        int ok = model_tiles(m, from, n);
        T_EQ(V->unmap(at(m->va, from * G), n * G), ok ? SYMM_CU_SUCCESS : SYMM_CU_INVALID_VALUE);
        if (!ok) return;
        memset(m->start + from, 0, n);
        memset(m->covered + from, 0, n);
        return;
    }
    default:
        T_EQ(V->set_access(at(m->va, from * G), n * G),
             model_tiles(m, from, n) ? SYMM_CU_SUCCESS : SYMM_CU_INVALID_VALUE);
    }
}

static void random_calls_agree_with_a_model(void) {
    struct model m = {.va = reserved(SLOTS * G)};
    for (int i = 0; i < SIZES; i++) m.handle[i] = created((i + 1) * G);
    srand(20240229);
    for (int i = 0; i < STEPS; i++) {
        int maps = 0;
        model_step(&m);
        for (int s = 0; s < SLOTS; s++) maps += m.start[s];
        T_EQ(SYMM_STAT_GET(maps), maps);
    }
    for (int s = 0, n; s < SLOTS; s += n) {
        for (n = 1; s + n < SLOTS && m.covered[s + n] && !m.start[s + n]; n++) {
        }
        if (m.covered[s]) DONE(V->unmap(at(m.va, s * G), n * G));
    }
    for (int i = 0; i < SIZES; i++) DONE(V->release(m.handle[i]));
    DONE(V->unreserve(m.va, SLOTS * G));
}

static void fill_and_copy_check_their_arguments(void) {
    void *va = reserved(G);
    symm_vmm_handle *h = created(G);
    uint32_t word = 77;
    DONE(V->map(va, G, 0, h));
    DONE(V->set_access(va, G));
    IS(V->fill(NULL, G, 1), INVALID_VALUE);
    IS(V->fill(va, 0, 1), INVALID_VALUE);
    IS(V->fill(at(va, 2), 8, 1), INVALID_VALUE);
    IS(V->fill(va, 6, 1), INVALID_VALUE);
    IS(V->copy(NULL, va, 4), INVALID_VALUE);
    IS(V->copy(&word, NULL, 4), INVALID_VALUE);
    IS(V->copy(&word, va, 0), INVALID_VALUE);
    T_EQ(word, 77);
    T_EQ(*at(va, 0), 0);
    DONE(V->unmap(va, G));
    DONE(V->release(h));
    DONE(V->unreserve(va, G));
}

static void fill_and_copy_reach_every_byte(void) {
    const uint32_t word = 0x04030201;
    uint8_t host[64];
    void *va = reserved(2 * G);
    symm_vmm_handle *h[2] = {created(G), created(G)};
    for (uint64_t i = 0; i < 2; i++) DONE(V->map(at(va, i * G), G, 0, h[i]));
    DONE(V->set_access(va, 2 * G));
    DONE(V->fill(at(va, 4), 2 * G - 8, word)); /* across two mappings */
    T_CHECK(*at(va, 3) == 0 && *at(va, 2 * G - 4) == 0);
    for (uint64_t i = 4; i < 2 * G - 4; i++) T_EQ(*at(va, i), i % 4 + 1);
    for (int i = 0; i < 64; i++) host[i] = (uint8_t)(i + 100);
    DONE(V->copy(at(va, G - 13), host, 27)); /* from the host, across both, at odd addresses */
    DONE(V->copy(at(va, 101), at(va, G - 13), 27));
    memset(host, 0, sizeof host);
    DONE(V->copy(host + 1, at(va, 101), 27));
    for (int i = 0; i < 27; i++) T_CHECK(host[i + 1] == i + 100 && *at(va, 101 + i) == i + 100);
    T_CHECK(host[0] == 0 && host[28] == 0);
    T_EQ(*at(va, 100), 1);
    T_EQ(*at(va, 128), 1);
    DONE(V->unmap(va, 2 * G));
    for (int i = 0; i < 2; i++) DONE(V->release(h[i]));
    DONE(V->unreserve(va, 2 * G));
}

#define VMM_RULES \
    T(reserve_checks_its_arguments), \
    T(reserve_aligns), \
    T(reserve_of_more_than_there_is_is_out_of_memory), \
    T(reserve_72_ranks_of_192_gib), \
    T(unreserve_only_if_exact_and_empty), \
    T(create_checks_its_arguments), \
    T(map_checks_its_arguments), \
    T(map_takes_whole_handles_at_offset_0), \
    T(map_lies_inside_one_reservation), \
    T(map_over_a_map_is_refused), \
    T(access_must_be_set), \
    T(access_goes_by_whole_mappings), \
    T(unmap_takes_whole_mappings), \
    T(aliases_are_coherent), \
    T(memory_survives_release_while_mapped), \
    T(retain_finds_the_mapping_of_an_address), \
    T(stale_and_wild_handles_are_invalid), \
    T(random_calls_agree_with_a_model), \
    T(fill_and_copy_check_their_arguments), \
    T(fill_and_copy_reach_every_byte)
