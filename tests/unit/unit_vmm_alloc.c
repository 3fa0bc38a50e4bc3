/* unit_vmm_alloc.c - what stands over a memory driver (vmm.c): its refusals as messages,
 * symmMemAlloc and symmMemFree, and threads that use both at once. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"
#include "base/status.h"
#include "transport/vmm/vmm.h"
#include "t.h"

#define G              (2ull << 20)
#define V              (&symm_vmm_host)
#define IS(call, code) T_EQ((call), SYMM_CU_##code)
#define DONE(call)     IS(call, SUCCESS)

static uint8_t *at(void *va, uint64_t offset) {
    return (uint8_t *)va + offset;
}

static void alloc_unwinds_from_every_failpoint(void) {
    static const struct {
        const char *spec, *text;
        symmResult_t code;
    } at_point[] = {
        {"vmm_create:error", "create of 4194304 bytes: out of memory (2): Cannot allocate memory",
         symmOutOfMemory},
        {"vmm_reserve:error", "reservation of 4194304 bytes: unknown error (999)",
         symmUnhandledCudaError},
        {"vmm_map:error", "map of 4194304 bytes at 0x", symmUnhandledCudaError},
        {"vmm_access:error", "access to 4194304 bytes at 0x", symmUnhandledCudaError},
    };
    void *p = NULL;
    T_EXPECT_WARNINGS();
    for (size_t i = 0; i < sizeof at_point / sizeof *at_point; i++) {
        T_EQ(symm_fail_arm(at_point[i].spec), 0);
        T_ERR(symm_vmm_alloc(V, G + 1, &p), at_point[i].code);
        T_MSG(symm_status_text(), at_point[i].text);
        T_CHECK(!p);
        T_EQ(SYMM_STAT_GET(maps) + SYMM_STAT_GET(handles) + SYMM_STAT_GET(fds) +
                 SYMM_STAT_GET(va_bytes),
             0);
    }
    T_EQ(symm_fail_arm(""), 0);
    T_OK(symm_vmm_alloc(V, G + 1, &p));
    T_OK(symm_vmm_free(V, p));
}

/* ---- symmMemAlloc --------------------------------------------------------------------------- */

static void alloc_rounds_up_and_gives_zeroed_exportable_memory(void) {
    const uint64_t sizes[] = {1, 4096, G - 1, G, G + 1, 5 * G};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t bytes, want = (sizes[i] + G - 1) / G * G;
        symm_vmm_handle *h = NULL;
        void *p = NULL, *base = NULL;
        T_OK(symm_vmm_alloc(V, sizes[i], &p));
        T_EQ((uintptr_t)p % G, 0);
        T_EQ(*at(p, 0) + *at(p, want - 1), 0);
        memset(p, 0x5a, want);
        DONE(V->retain(at(p, want - 1), &h, &base, &bytes));
        T_CHECK(base == p && bytes == want);
        int fd = -1;
        DONE(V->export_fd(h, &fd));
        close(fd);
        DONE(V->release(h));
        T_OK(symm_vmm_free(V, p));
    }
}

static void alloc_refuses_bad_arguments(void) {
    void *p = &p;
    T_EXPECT_WARNINGS();
    T_ERR(symm_vmm_alloc(V, 0, &p), symmInvalidArgument);
    T_MSG(symm_status_text(), "size=0: must be at least 1");
    T_ERR(symm_vmm_alloc(V, G, NULL), symmInvalidArgument);
    T_MSG(symm_status_text(), "ptr is NULL");
    T_ERR(symm_vmm_alloc(NULL, G, &p), symmInvalidArgument);
    T_ERR(symm_vmm_alloc(V, 1ull << 50, &p), symmOutOfMemory);
    T_MSG(symm_status_text(), "create of 1125899906842624 bytes: out of memory (2)");
    T_ERR(symm_vmm_alloc(V, UINT64_MAX - G, &p), symmOutOfMemory);
    T_ERR(symm_vmm_alloc(V, UINT64_MAX, &p), symmOutOfMemory); /* rounding up would wrap */
    T_CHECK(p == (void *)&p);
}

static void alloc_at_the_fd_limit_says_so(void) {
    struct rlimit limit;
    void *p, *last = &last;
    int plugs[40], n = 0;
    T_EXPECT_WARNINGS();
    T_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = 40;
    T_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    while (n < 40 && (plugs[n] = dup(0)) >= 0) n++;
    T_CHECK(n > 0 && n < 40);
    T_ERR(symm_vmm_alloc(V, 1, &last), symmFdLimit);
    T_MSG(symm_status_text(), "create of 2097152 bytes: operating system error (304)");
    T_MSG(symm_status_text(), "limit 40");
    T_CHECK(last == (void *)&last);
    close(plugs[--n]);
    T_OK(symm_vmm_alloc(V, 1, &p));
    T_OK(symm_vmm_free(V, p));
    while (n > 0) close(plugs[--n]);
}

static void free_names_what_it_was_given(void) {
    symm_vmm other = symm_vmm_host;
    void *a = NULL, *b = NULL;
    int local;
    other.name = "other";
    T_EXPECT_WARNINGS();
    T_OK(symm_vmm_alloc(V, 2 * G, &a));
    T_OK(symm_vmm_alloc(V, 2 * G, &b));
    T_OK(symm_vmm_free(V, NULL));
    T_ERR(symm_vmm_free(V, at(a, G + 5)), symmInvalidArgument);
    T_MSG(symm_status_text(), "lies 2097157 bytes inside the allocation of 4194304 bytes at 0x");
    T_ERR(symm_vmm_free(V, &local), symmInvalidArgument);
    T_MSG(symm_status_text(), "is not an allocation");
    T_ERR(symm_vmm_free(V, (void *)8), symmInvalidArgument);
    T_MSG(symm_status_text(), "0x8 is not an allocation");
    T_ERR(symm_vmm_free(V, (void *)UINTPTR_MAX), symmInvalidArgument);
    T_ERR(symm_vmm_free(&other, a), symmInvalidArgument);
    T_MSG(symm_status_text(), "belongs to memory driver host, not other");
    T_ERR(symm_vmm_free(NULL, a), symmInvalidArgument);
    memset(a, 1, 2 * G); /* all of them changed nothing */
    memset(b, 2, 2 * G);
    T_OK(symm_vmm_free(V, a));
    T_ERR(symm_vmm_free(V, a), symmInvalidArgument);
    T_MSG(symm_status_text(), "freed before");
    T_OK(symm_vmm_free(V, b));
}

static void errors_have_names(void) {
    static const struct {
        int cu;
        symmResult_t code;
        const char *name;
    } codes[] = {
        {SYMM_CU_INVALID_VALUE, symmInvalidArgument, "invalid value (1)"},
        {SYMM_CU_OUT_OF_MEMORY, symmOutOfMemory, "out of memory (2)"},
        {SYMM_CU_OS_ERROR, symmUnhandledCudaError, "operating system error (304)"},
        {SYMM_CU_INVALID_HANDLE, symmInvalidArgument, "invalid handle (400)"},
        {SYMM_CU_NOT_PERMITTED, symmUnhandledCudaError, "not permitted (800)"},
        {SYMM_CU_NOT_SUPPORTED, symmNotSupported, "not supported (801)"},
        {SYMM_CU_UNKNOWN, symmUnhandledCudaError, "unknown error (999)"},
        {719, symmUnhandledCudaError, "error (719)"},
    };
    symm_vmm fake = {.name = "fake"};
    T_EXPECT_WARNINGS();
    T_EQ(symm_vmm_error(&fake, SYMM_CU_SUCCESS, "nothing"), symmSuccess);
    T_STREQ(symm_vmm_code_name(SYMM_CU_SUCCESS), "success");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        T_EQ(symm_vmm_error(&fake, codes[i].cu, "map %d", 3), codes[i].code);
        T_MSG(symm_status_text(), "memory driver fake: map 3: ");
        T_MSG(symm_status_text(), codes[i].name);
    }
    /* An errno of the host driver says nothing about another driver's refusal. */
    T_EQ(symm_fail_arm("vmm_export:error"), 0);
    int fd;
    IS(V->export_fd(NULL, &fd), OS_ERROR);
    T_EQ(symm_fail_arm(""), 0);
    T_EQ(symm_vmm_error(V, SYMM_CU_OS_ERROR, "export"), symmFdLimit);
    T_EQ(symm_vmm_error(&fake, SYMM_CU_OS_ERROR, "export"), symmUnhandledCudaError);
    IS(V->export_fd(NULL, NULL), INVALID_VALUE);
    T_EQ(symm_vmm_errno(), 0);
}

/* ---- threads -------------------------------------------------------------------------------- */

static void churn(int rank, int n, void *arg) {
    uint8_t *window = arg;
    void *base;
    uint64_t bytes;
    (void)n;
    for (int i = 0; i < 60; i++) {
        symm_vmm_handle *h = NULL;
        void *p = NULL;
        T_OK(symm_vmm_alloc(V, (uint64_t)(rank + 1) * G, &p));
        *(uint64_t *)p = (uint64_t)(rank * 1000 + i);
        DONE(V->retain(p, &h, &base, &bytes));
        uint8_t *place = window + (uint64_t)rank * 4 * G;
        DONE(V->map(place, bytes, 0, h));
        DONE(V->release(h));
        DONE(V->set_access(place, bytes));
        T_EQ(*(uint64_t *)place, rank * 1000 + i);
        T_OK(symm_vmm_free(V, p));
        T_EQ(*(uint64_t *)place, rank * 1000 + i);
        DONE(V->unmap(place, bytes));
    }
}

static void threads_may_use_it_at_once(void) {
    void *window;
    DONE(V->reserve(16 * G, 0, &window));
    T_THREADS(4, churn, window);
    DONE(V->unreserve(window, 16 * G));
}

struct race {
    void *p[50];
    _Atomic int freed;
};

static void free_all(int rank, int n, void *arg) {
    struct race *r = arg;
    (void)rank, (void)n;
    for (int i = 0; i < 50; i++)
        if (symm_vmm_free(V, r->p[i]) == symmSuccess) r->freed++;
}

static void of_two_frees_at_once_one_wins(void) {
    struct race r = {.freed = 0};
    T_EXPECT_WARNINGS();
    for (int i = 0; i < 50; i++) T_OK(symm_vmm_alloc(V, G, &r.p[i]));
    T_THREADS(3, free_all, &r);
    T_EQ(r.freed, 50);
}

T_MAIN(T(alloc_unwinds_from_every_failpoint), T(alloc_rounds_up_and_gives_zeroed_exportable_memory),
       T(alloc_refuses_bad_arguments), T(alloc_at_the_fd_limit_says_so),
       T(free_names_what_it_was_given), T(errors_have_names), T(threads_may_use_it_at_once),
       T(of_two_frees_at_once_one_wins))
