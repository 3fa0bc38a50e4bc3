/* unit_vmm_share.c - the host memory driver beyond its rules: handing memory to other processes,
 * what is refused on import, the limits of the machine, every failpoint. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
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
#define SEALS          (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static uint8_t *at(void *va, uint64_t offset) {
    return (uint8_t *)va + offset;
}

static symm_vmm_handle *created(uint64_t bytes) {
    symm_vmm_handle *h = NULL;
    DONE(V->create(bytes, &h));
    return h;
}

static int exported(symm_vmm_handle *h) {
    int fd = -1;
    DONE(V->export_fd(h, &fd));
    T_CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    return fd;
}

static void *mapped(symm_vmm_handle *h, uint64_t bytes) {
    void *va = NULL;
    DONE(V->reserve(bytes, 0, &va));
    DONE(V->map(va, bytes, 0, h));
    DONE(V->set_access(va, bytes));
    return va;
}

static void unmapped(void *va, uint64_t bytes) {
    DONE(V->unmap(va, bytes));
    DONE(V->unreserve(va, bytes));
}

/* ---- handing on ----------------------------------------------------------------------------- */

static void export_and_import_give_the_same_memory(void) {
    uint64_t bytes, id[2], other[2];
    symm_vmm_handle *h = created(2 * G), *got = NULL, *stranger = created(2 * G);
    int fd = exported(h);
    T_CHECK((fcntl(fd, F_GET_SEALS) & SEALS) == SEALS);
    DONE(V->import_fd(fd, 2 * G, &got));
    T_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC); /* stays the caller's */
    close(fd);
    T_CHECK(got != h);
    DONE(V->identify(h, &bytes, id));
    DONE(V->identify(got, &bytes, other));
    T_CHECK(bytes == 2 * G && id[0] == other[0] && id[1] == other[1]);
    DONE(V->identify(stranger, &bytes, other));
    T_CHECK(id[0] != other[0] || id[1] != other[1]);
    IS(V->identify(h, NULL, id), INVALID_VALUE);
    IS(V->identify(h, &bytes, NULL), INVALID_VALUE);
    IS(V->export_fd(h, NULL), INVALID_VALUE);
    uint8_t *a = mapped(h, 2 * G), *b = mapped(got, 2 * G);
    DONE(V->release(h));
    *(volatile uint8_t *)(a + G + 3) = 33;
    T_EQ(*(volatile uint8_t *)(b + G + 3), 33);
    int again = exported(got); /* what was imported can be handed on */
    close(again);
    DONE(V->release(got));
    DONE(V->release(stranger));
    unmapped(a, 2 * G);
    T_EQ(b[G + 3], 33);
    unmapped(b, 2 * G);
}

static void imported_memory_needs_no_fd_once_it_is_released(void) {
    symm_vmm_handle *h = created(G), *got = NULL;
    int fd = exported(h);
    DONE(V->import_fd(fd, G, &got));
    close(fd);
    uint8_t *a = mapped(h, G), *b = mapped(got, G);
    T_EQ(SYMM_STAT_GET(fds), 2);
    DONE(V->release(got));
    T_EQ(SYMM_STAT_GET(fds), 1);
    a[7] = 77;
    T_EQ(*(volatile uint8_t *)(b + 7), 77);
    void *base;
    uint64_t bytes;
    IS(V->retain(b, &got, &base, &bytes), NOT_SUPPORTED);
    DONE(V->retain(a, &got, &base, &bytes)); /* our own can always be handed on */
    DONE(V->release(got));
    DONE(V->release(h));
    unmapped(a, G);
    unmapped(b, G);
}

static int file_of(uint64_t bytes, int seals) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    T_CHECK(fd >= 0);
    T_EQ(ftruncate(fd, (off_t)bytes), 0);
    if (seals) T_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void refused(int fd, uint64_t bytes, int err) {
    symm_vmm_handle *h = NULL;
    IS(V->import_fd(fd, bytes, &h), INVALID_VALUE);
    T_EQ(symm_vmm_errno(), err);
    T_CHECK(!h);
    T_EQ(SYMM_STAT_GET(fds), 0);
    T_EQ(SYMM_STAT_GET(handles), 0);
}

static void refused_and_closed(int fd, uint64_t bytes, int err) {
    T_CHECK(fd >= 0);
    refused(fd, bytes, err);
    close(fd);
}

static void import_refuses_files_that_could_change_under_us(void) {
    refused_and_closed(file_of(G, 0), G, EPERM);
    refused_and_closed(file_of(G, F_SEAL_SEAL), G, EPERM);
    refused_and_closed(file_of(G, F_SEAL_GROW | F_SEAL_SEAL), G, EPERM);
    refused_and_closed(file_of(G, F_SEAL_SHRINK | F_SEAL_SEAL), G, EPERM);
    refused_and_closed(file_of(G, F_SEAL_SHRINK | F_SEAL_GROW), G,
                       EPERM); /* more seals could come */
    refused_and_closed(file_of(G, SEALS | F_SEAL_WRITE), G, EPERM);
    symm_vmm_handle *h = NULL;
    int good = file_of(G, SEALS);
    DONE(V->import_fd(good, G, &h));
    DONE(V->release(h));
    close(good);
}

static void import_refuses_other_sizes(void) {
    const uint64_t real[] = {0, 1, G - 4096, G + 1, 2 * G};
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        refused_and_closed(file_of(real[i], SEALS), G, EINVAL);
    const uint64_t bad[] = {0, 1, G - 1, G + 4096, UINT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused_and_closed(file_of(bad[i] % (4 * G), SEALS), bad[i], 0);
    refused_and_closed(file_of(G, SEALS), UINT64_MAX - G + 1, EINVAL);
}

static void import_refuses_what_is_no_memory(void) {
    char path[64];
    int pipes[2], good = file_of(G, SEALS);
    refused(-1, G, 0);
    refused(1 << 20, G, EBADF);
    IS(V->import_fd(good, G, NULL), INVALID_VALUE);
    snprintf(path, sizeof path, "/proc/self/fd/%d", good);
    refused_and_closed(open(path, O_RDONLY | O_CLOEXEC), G, EACCES);
    close(good);
    T_EQ(pipe2(pipes, O_CLOEXEC), 0);
    refused_and_closed(pipes[0], G, EINVAL);
    refused_and_closed(pipes[1], G, EINVAL);
    refused_and_closed(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), G, EINVAL);
    refused_and_closed(open("/dev/null", O_RDWR | O_CLOEXEC), G, EINVAL);
    refused_and_closed(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), G, EINVAL);
    FILE *f =
        tmpfile(); /* a file of the right size, of a file system without seals or with none set */
    T_CHECK(f != NULL);
    T_EQ(ftruncate(fileno(f), G), 0);
    symm_vmm_handle *h = NULL;
    IS(V->import_fd(fileno(f), G, &h), INVALID_VALUE);
    fclose(f);
}

/* ---- another process ------------------------------------------------------------------------ */

static void pass_fd(int sock, int fd) {
    char byte = 1;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } ctl = {.room = {0}};
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    T_EQ(sendmsg(sock, &msg, MSG_NOSIGNAL), 1);
}

static int take_fd(int sock) {
    char byte;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } ctl;
    struct iovec iov = {&byte, 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl};
    int fd = -1;
    T_EQ(recvmsg(sock, &msg, MSG_CMSG_CLOEXEC), 1);
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    T_CHECK(c && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd));
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static void say(int sock) {
    T_EQ(send(sock, "x", 1, MSG_NOSIGNAL), 1);
}

static void hear(int sock) {
    char byte;
    T_EQ(recv(sock, &byte, 1, 0), 1);
}

static uint8_t pattern(uint64_t i) {
    return (uint8_t)(i * 7 + i / 4096 + 1);
}

static void owner(int sock) {
    symm_vmm_handle *h = created(2 * G);
    uint8_t *a = mapped(h, 2 * G);
    for (uint64_t i = 0; i < 2 * G; i += 509) a[i] = pattern(i);
    int fd = exported(h);
    pass_fd(sock, fd);
    close(fd);
    hear(sock); /* the peer has answered in the memory, and tried to cut it */
    T_EQ(a[1], 200);
    a[2] = 201;
    DONE(V->release(h));
    unmapped(a, 2 * G);
    say(sock); /* nothing here holds it any more */
}

static void peer(int sock) {
    symm_vmm_handle *h = NULL;
    int fd = take_fd(sock);
    IS(V->import_fd(fd, G, &h), INVALID_VALUE);
    DONE(V->import_fd(fd, 2 * G, &h));
    T_CHECK(ftruncate(fd, 0) == -1 && errno == EPERM);
    T_CHECK(ftruncate(fd, 4 * G) == -1 && errno == EPERM);
    close(fd);
    uint8_t *b = mapped(h, 2 * G);
    DONE(V->release(h));
    for (uint64_t i = 0; i < 2 * G; i += 509) T_EQ(b[i], pattern(i));
    b[1] = 200;
    say(sock);
    hear(sock);
    T_EQ(b[2], 201);
    for (uint64_t i = 509; i < 2 * G; i += 509) T_EQ(b[i], pattern(i));
    unmapped(b, 2 * G);
}

static void owner_or_peer(int rank, int n, void *arg) {
    const int *sock = arg;
    (void)n;
    if (rank == 0)
        owner(sock[0]);
    else
        peer(sock[1]);
}

static void a_peer_sees_the_bytes_and_keeps_them(void) {
    int sock[2];
    T_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
    T_FORK(2, owner_or_peer, sock);
    close(sock[0]);
    close(sock[1]);
}

/* ---- limits --------------------------------------------------------------------------------- */

/* Maps h at va, va+G, ... until the driver refuses or n are mapped; returns how many. */
static uint64_t alias(symm_vmm_handle *h, void *va, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        int cu = V->map(at(va, i * G), G, 0, h);
        if (cu == SYMM_CU_SUCCESS) continue;
        T_EQ(cu, SYMM_CU_OUT_OF_MEMORY);
        T_EQ(symm_vmm_errno(), ENOMEM);
        T_EQ(SYMM_STAT_GET(maps), i);
        return i;
    }
    return n;
}

static void one_handle_at_20000_addresses(void) {
    const uint64_t n = 20000;
    void *va;
    symm_vmm_handle *h = created(G);
    DONE(V->reserve(n * G, 0, &va));
    uint64_t got = alias(h, va, n);
    T_CHECKF(got == n || got > 1000, "only %llu aliases", (unsigned long long)got);
    DONE(V->set_access(va, G));
    DONE(V->set_access(at(va, (got - 1) * G), G));
    *(volatile uint8_t *)at(va, 9) = 99;
    T_EQ(*(volatile uint8_t *)at(va, (got - 1) * G + 9), 99);
    for (uint64_t i = 0; i < got; i += 2) DONE(V->unmap(at(va, i * G), G));
    for (uint64_t i = 1; i < got; i += 2) DONE(V->unmap(at(va, i * G), G));
    DONE(V->unreserve(va, n * G));
    DONE(V->release(h));
}

static long max_map_count(void) {
    long n = 0;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
    if (f && fscanf(f, "%ld", &n) != 1) n = 0;
    if (f) fclose(f);
    return n;
}

/* At the limit a map is refused; unmapping and giving back, which the caller needs to get away from
 * it, are not. */
static void the_limit_of_mappings_is_refused_and_left_again(void) {
#if T_ASAN || T_TSAN
    T_SKIP("the sanitizer itself needs mappings");
#endif
    long limit = max_map_count();
    if (limit == 0 || limit > 200000) T_SKIP("a process may have %ld mappings here", limit);
    uint64_t n = (uint64_t)limit + 1000;
    void *va, *other;
    symm_vmm_handle *h = created(G);
    DONE(V->reserve(4 * G, 0, &other));
    DONE(V->reserve(n * G, 0, &va));
    uint64_t got = alias(h, va, n);
    T_CHECK(got > 1000 && got < n);
    IS(V->map(at(va, got * G), G, 0, h), OUT_OF_MEMORY); /* still */
    void *more[4];
    for (int i = 0; i < 4; i++) /* whatever else the process can still map, it does */
        more[i] = mmap(NULL, 1, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (uint64_t i = 0; i < got; i += 2) DONE(V->unmap(at(va, i * G), G));
    for (uint64_t i = 1; i < got; i += 2) DONE(V->unmap(at(va, i * G), G));
    DONE(V->map(va, G, 0, h)); /* there is room again */
    DONE(V->unmap(va, G));
    for (int i = 0; i < 4; i++)
        if (more[i] != MAP_FAILED) munmap(more[i], 1);
    DONE(V->unreserve(va, n * G));
    DONE(V->unreserve(other, 4 * G));
    DONE(V->release(h));
}

static void lower_fd_limit(rlim_t n) {
    struct rlimit limit;
    T_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = n;
    T_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static int plug_fds(int *plugs) {
    int n = 0;
    while ((plugs[n] = dup(0)) >= 0) n++;
    return n;
}

static void the_limit_of_fds_is_an_os_error(void) {
    symm_vmm_handle *h = NULL, *more[20], *extra = NULL;
    int cu, fd = -7, keep, plugs[64];
    T_EXPECT_WARNINGS();
    lower_fd_limit(40);
    int n = plug_fds(plugs);
    cu = V->create(G, &h);
    T_EQ(cu, SYMM_CU_OS_ERROR);
    T_EQ(symm_vmm_errno(), EMFILE);
    T_EQ(symm_vmm_error(V, cu, "create of %d bytes", 2097152), symmFdLimit);
    T_MSG(symm_status_text(),
          "memory driver host: create of 2097152 bytes: operating system error (304)");
    T_MSG(symm_status_text(), "limit 40");
    close(plugs[--n]); /* room for one: memory that shares it with none */
    DONE(V->create(G, &h));
    T_EQ(SYMM_STAT_GET(fds), 1);
    IS(V->create(G, &extra), OS_ERROR);
    T_CHECK(!extra);
    DONE(V->release(h));
    close(plugs[--n]); /* for two: the second is for handing on */
    for (int i = 0; i < 20; i++) more[i] = created(G);
    T_EQ(SYMM_STAT_GET(fds), 1);
    keep = exported(more[0]);
    IS(V->export_fd(more[1], &fd), OS_ERROR);
    T_EQ(symm_vmm_errno(), EMFILE);
    T_EQ(fd, -7);
    IS(V->import_fd(keep, G, &extra), OS_ERROR);
    T_EQ(symm_vmm_errno(), EMFILE);
    T_CHECK(!extra);
    T_EQ(SYMM_STAT_GET(fds), 1);
    T_EQ(SYMM_STAT_GET(handles), 20);
    close(keep);
    for (int i = 0; i < 20; i++) DONE(V->release(more[i]));
    T_EQ(SYMM_STAT_GET(fds), 0);
    while (n > 0) close(plugs[--n]);
}

/* ---- failpoints ----------------------------------------------------------------------------- */

static void every_failpoint_refuses_and_changes_nothing(void) {
    symm_vmm_handle *h = created(G), *got = NULL;
    uint8_t *a = mapped(h, G);
    void *va = NULL, *base = NULL;
    uint64_t bytes = 0;
    int fd = -1, own = exported(h);
    DONE(V->reserve(G, 0, &va));
    void *spot = va, *no = NULL;
    T_EQ(symm_fail_arm("vmm_reserve:error,vmm_create:error,vmm_retain:error,vmm_export:error,"
                       "vmm_import:error,vmm_map:error,vmm_access:error"),
         0);
    IS(V->reserve(G, 0, &no), UNKNOWN);
    IS(V->create(G, &got), OUT_OF_MEMORY);
    T_EQ(symm_vmm_errno(), ENOMEM);
    IS(V->retain(a, &got, &base, &bytes), UNKNOWN);
    T_EQ(symm_vmm_errno(), 0);
    IS(V->export_fd(h, &fd), OS_ERROR);
    T_EQ(symm_vmm_errno(), EMFILE);
    IS(V->import_fd(own, G, &got), UNKNOWN);
    IS(V->map(spot, G, 0, h), UNKNOWN);
    IS(V->set_access(a, G), UNKNOWN);
    const int points[] = {symm_fp_vmm_reserve, symm_fp_vmm_create, symm_fp_vmm_retain,
                          symm_fp_vmm_export,  symm_fp_vmm_import, symm_fp_vmm_map,
                          symm_fp_vmm_access};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) T_EQ(symm_fail_hits(points[i]), 1);
    T_CHECK(!no && !got && !base && fd == -1);
    T_EQ(symm_fail_arm(""), 0);
    T_EQ(SYMM_STAT_GET(maps), 1);
    T_EQ(SYMM_STAT_GET(handles), 1);
    T_EQ(SYMM_STAT_GET(fds), 1); /* of the handle; an exported fd is the caller's */
    close(own);
    DONE(V->release(h));
    DONE(V->unreserve(spot, G));
    unmapped(a, G);
}

T_MAIN(T(export_and_import_give_the_same_memory),
       T(imported_memory_needs_no_fd_once_it_is_released),
       T(import_refuses_files_that_could_change_under_us), T(import_refuses_other_sizes),
       T(import_refuses_what_is_no_memory), T(a_peer_sees_the_bytes_and_keeps_them),
       T(one_handle_at_20000_addresses), T(the_limit_of_mappings_is_refused_and_left_again),
       T(the_limit_of_fds_is_an_os_error), T(every_failpoint_refuses_and_changes_nothing))
