/* unit_memcut.c - memory as parts of files: one descriptor for many, what is handed on and who has
 * it, new memory is zeros, forked children. Below: thousands of allocations and of steps of a heap
 * under a limit of 256 descriptors. One thread; ranks are processes. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "transport/vmm/memcut.h"
#include "coll_kit.h"
#include "heap_kit.h"

#define G     SYMM_MEMCUT_GRANULE
#define FILES SYMM_STAT_GET(fds)

static symm_memcut made(uint64_t bytes) {
    symm_memcut cut;
    uint64_t id[2];
    T_EQ(symm_memcut_make(bytes, &cut, id), 0);
    return cut;
}

static unsigned char *seen(int fd, uint64_t off, uint64_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)off);
    T_CHECK(at != MAP_FAILED);
    return at;
}

static unsigned char *mapped(const symm_memcut *cut) {
    return seen(cut->fd, cut->off, cut->bytes);
}

static int is(const unsigned char *p, uint64_t bytes, int byte) {
    for (uint64_t i = 0; i < bytes; i += 509)
        if (p[i] != byte) return 0;
    return p[bytes - 1] == byte;
}

static uint64_t pages_of(int fd) {
    struct stat st;
    T_EQ(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

enum { MANY = 300 };

static void many_take_one_descriptor(void) {
    static symm_memcut cut[MANY];
    for (int i = 0; i < MANY; i++) {
        cut[i] = made(i % 3 ? G : 2 * G);
        T_EQ(cut[i].fd, cut[0].fd);
        unsigned char *p = mapped(&cut[i]);
        T_CHECK(is(p, 64, 0));
        memset(p, i % 255 + 1, 64);
        munmap(p, cut[i].bytes);
    }
    T_EQ(FILES, 1);
    for (int i = 0; i < MANY; i++) { /* no two have a byte in common */
        unsigned char *p = mapped(&cut[i]);
        T_EQ(p[63], i % 255 + 1);
        munmap(p, cut[i].bytes);
    }
    for (int i = 0; i < MANY; i++) symm_memcut_free(&cut[(i * 7) % MANY]);
    T_EQ(FILES, 0);
}

static void memory_used_again_is_zeros_and_its_pages_go_back(void) {
    symm_memcut stays = made(G);
    for (int i = 0; i < 5; i++) {
        symm_memcut cut = made(8 * G);
        T_EQ(cut.off, G); /* there is no other like it */
        unsigned char *p = mapped(&cut);
        T_CHECK(is(p, cut.bytes, 0));
        memset(p, 0x77, cut.bytes);
        T_EQ(pages_of(cut.fd), 8 * G);
        munmap(p, cut.bytes);
        symm_memcut_free(&cut);
        T_EQ(pages_of(stays.fd), 0);
    }
    symm_memcut_free(&stays);
    T_EQ(FILES, 0);
}

/* Freed by its owner, it is its holder's, byte for byte, and nobody's who comes later; through a
 * descriptor and through a mapping. When both are gone it is used again. */
static void what_was_handed_on_is_not_used_again(void) {
    symm_memcut stays = made(G), cut = made(4 * G);
    uint64_t off = 0, id[2];
    int fd = -1;
    T_EQ(symm_memcut_export(&cut, &fd), 0);
    T_CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    T_EQ(symm_memcut_inspect(fd, 4 * G, &off, id), 0);
    T_EQ(off, cut.off);
    unsigned char *p = mapped(&cut);
    memset(p, 0x42, cut.bytes);
    munmap(p, cut.bytes);
    const uint64_t was = cut.off;
    symm_memcut_free(&cut);
    p = seen(fd, off, 4 * G);
    symm_memcut more[60];
    for (int i = 0; i < 60; i++) { /* often enough for it to be looked at */
        more[i] = made(G);
        T_CHECK(more[i].off + G <= was || more[i].off >= was + 4 * G);
        if (i == 20) close(fd);
    }
    T_CHECK(is(p, 4 * G, 0x42));
    T_EQ(pages_of(stays.fd), 4 * G);
    for (int i = 0; i < 60; i++) symm_memcut_free(&more[i]);
    munmap(p, 4 * G);
    symm_memcut much = made(40 * G); /* waits too: now it is worth a look */
    T_EQ(symm_memcut_export(&much, &fd), 0);
    symm_memcut_free(&much);
    int again = 0;
    for (int i = 0; i < 60; i++) {
        more[i] = made(G);
        T_CHECK(more[i].off + G <= much.off || more[i].off >= much.off + 40 * G);
        again += more[i].off >= was && more[i].off < was + 4 * G;
        T_CHECK(is(p = mapped(&more[i]), G, 0));
        munmap(p, G);
    }
    T_EQ(again, 4);
    close(fd);
    for (int i = 0; i < 60; i++) symm_memcut_free(&more[i]);
    symm_memcut_free(&stays);
    T_EQ(FILES, 0);
}

static void a_holder_of_a_part_keeps_no_more_than_that(void) {
    symm_memcut held = made(2 * G), other = made(32 * G);
    int fd = -1;
    uint64_t off, id[2];
    T_EQ(symm_memcut_export(&held, &fd), 0);
    T_EQ(symm_memcut_inspect(fd, 2 * G, &off, id), 0);
    unsigned char *p = mapped(&held), *q = mapped(&other);
    memset(p, 1, 2 * G);
    memset(q, 2, 32 * G);
    munmap(q, 32 * G);
    munmap(p, 2 * G);
    symm_memcut_free(&held);
    symm_memcut_free(&other);
    T_EQ(FILES, 0); /* the owner is done with the file */
    T_EQ(pages_of(fd), 2 * G);
    p = seen(fd, off, 2 * G);
    T_CHECK(is(p, 2 * G, 1));
    munmap(p, 2 * G);
    close(fd);
}

static void positions_that_say_nothing_are_refused(void) {
    symm_memcut stays = made(G), cut = made(2 * G);
    uint64_t off = 0, id[2];
    int fd = -1;
    struct stat st;
    T_EQ(symm_memcut_export(&cut, &fd), 0);
    T_EQ(fstat(fd, &st), 0);
    const off_t good = lseek(fd, 0, SEEK_CUR), last = st.st_size / (off_t)G;
    T_EQ(symm_memcut_inspect(fd, G, &off, id), EINVAL);
    T_EQ(symm_memcut_inspect(fd, 4 * G, &off, id), EINVAL);
    const off_t bad[] = {1,
                         (off_t)2 << 31 | (last - 1),
                         (off_t)2 << 31 | last,
                         good | 0x40000000,
                         (off_t)3 << 31 | 1,
                         INT64_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        T_EQ(lseek(fd, bad[i], SEEK_SET), bad[i]);
        T_EQ(symm_memcut_inspect(fd, 2 * G, &off, id), EINVAL);
    }
    T_EQ(lseek(fd, good, SEEK_SET), good);
    T_EQ(symm_memcut_inspect(fd, 2 * G, &off, id), 0);
    close(fd);
    symm_memcut_free(&cut);
    symm_memcut_free(&stays);
}

/* A child takes nothing out of files that are the parent's, and takes no bytes away where it frees
 * what it has inherited. */
static void a_forked_child_has_files_of_its_own(void) {
    symm_memcut cut = made(G);
    int status = -1;
    unsigned char *p = mapped(&cut);
    memset(p, 0x21, G);
    pid_t pid = fork();
    if (pid == 0) {
        symm_memcut own = made(G), more = made(G);
        struct stat a, b;
        int ok = fstat(own.fd, &a) == 0 && fstat(cut.fd, &b) == 0 && a.st_ino != b.st_ino;
        ok &= own.fd == more.fd;
        symm_memcut_free(&cut);
        symm_memcut_free(&own);
        symm_memcut_free(&more);
        _exit(ok && is(p, G, 0x21) ? 0 : 1);
    }
    T_EQ(waitpid(pid, &status, 0), pid);
    T_EQ(status, 0);
    T_CHECK(is(p, G, 0x21));
    munmap(p, G);
    symm_memcut_free(&cut);
    T_EQ(FILES, 0);
}

/* ---- forked children that stay ---- */

/* A child that does one step after another as it is told, and says so. */
typedef struct {
    pid_t pid;
    int to[2], from[2];
} child;

static void child_waits(const child *c) {
    char step = 0;
    if (read(c->to[0], &step, 1) != 1) _exit(9);
}

static void child_says(const child *c, int ok) {
    char said = (char)ok;
    if (write(c->from[1], &said, 1) != 1) _exit(9);
}

static int said(const child *c) {
    char ok = 0;
    T_EQ(read(c->from[0], &ok, 1), 1);
    return ok;
}

static int told(const child *c) {
    T_EQ(write(c->to[1], "x", 1), 1);
    return said(c);
}

static void child_ends(const child *c) {
    int status = -1;
    T_EQ(write(c->to[1], "x", 1), 1);
    T_EQ(waitpid(c->pid, &status, 0), c->pid);
    T_EQ(status, 0);
    for (int i = 0; i < 2; i++) {
        close(c->to[i]);
        close(c->from[i]);
    }
}

/* Its bytes stay, and what it writes is nowhere else; with all descriptors closed but those two. */
static void child_uses(const child *c, unsigned char *p) {
    for (int fd = 3; fd < 256; fd++)
        if (fd != c->to[0] && fd != c->from[1]) close(fd);
    child_says(c, 1);
    child_waits(c);
    const int ok = is(p, 2 * G, 0x11);
    memset(p, 0x77, 2 * G);
    child_says(c, ok);
    child_waits(c);
    _exit(is(p, 2 * G, 0x77) ? 0 : 1);
}

static child child_new(void) {
    child c = {0};
    T_EQ(pipe2(c.to, O_CLOEXEC), 0);
    T_EQ(pipe2(c.from, O_CLOEXEC), 0);
    return c;
}

/* Frees what the child has and takes new memory until it would have had that, were it free. */
static void free_and_take(symm_memcut *cut, const child *c, int again) {
    enum { NEW = 40 };
    symm_memcut more[NEW];
    unsigned char *p[NEW];
    int same = 0;
    const int old = cut->fd;
    const uint64_t off = cut->off;
    symm_memcut_free(cut);
    for (int i = 0; i < NEW; i++) {
        more[i] = made(G);
        p[i] = mapped(&more[i]);
        T_CHECK(is(p[i], G, 0));
        same += more[i].fd == old && more[i].off >= off && more[i].off < off + 2 * G;
    }
    T_EQ(same, again);
    if (c) T_EQ(told(c), 1);
    for (int i = 0; i < NEW; i++) {
        T_CHECK(is(p[i], G, 0));
        munmap(p[i], G);
        symm_memcut_free(&more[i]);
    }
}

static void what_a_child_has_mapped_is_not_used_again(void) {
    symm_memcut stays = made(G), cut = made(2 * G), later;
    child c = child_new();
    unsigned char *p = mapped(&cut);
    const int files = (int)FILES;
    memset(p, 0x11, 2 * G);
    if ((c.pid = fork()) == 0) child_uses(&c, p);
    munmap(p, 2 * G);
    T_EQ(said(&c), 1);
    later = made(3 * G); /* behind the fork: no child's */
    p = mapped(&later);
    memset(p, 0x22, 3 * G);
    munmap(p, 3 * G);
    free_and_take(&cut, &c, 0);
    T_EQ(pages_of(stays.fd), 5 * G);
    symm_memcut_free(&later);
    T_EQ(pages_of(stays.fd), 2 * G);
    symm_memcut_look(); /* the child lives */
    T_EQ(pages_of(stays.fd), 2 * G);
    child_ends(&c);
    symm_memcut_look();
    T_EQ(pages_of(stays.fd), 0);
    cut = made(2 * G);
    free_and_take(&cut, NULL, 2);
    T_EQ(FILES, files);
    symm_memcut_free(&stays);
    T_EQ(FILES, 0);
}

/* Without a lock it is not known when the child ends: the file is not used for anything new. */
static void a_fork_without_descriptors_left(void) {
    symm_memcut stays = made(G), cut = made(2 * G), fresh;
    child c = child_new();
    struct rlimit limit, none;
    unsigned char *p = mapped(&cut);
    memset(p, 0x11, 2 * G);
    T_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    T_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    c.pid = fork();
    T_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    if (c.pid == 0) child_uses(&c, p);
    munmap(p, 2 * G);
    T_EQ(said(&c), 1);
    fresh = made(G);
    T_CHECK(fresh.fd != stays.fd);
    free_and_take(&cut, &c, 0);
    symm_memcut_free(&fresh);
    symm_memcut_free(&stays);
    T_EQ(FILES, 0);
    child_ends(&c);
}

/* A child that has freed all that it inherited holds nothing back any more, nor does one that has
 * become another program. A child of a child has what its parent has. */
static void children_let_go(void) {
    symm_memcut stays = made(G), cut = made(2 * G);
    child c = child_new(), other = child_new();
    unsigned char *p = mapped(&cut);
    memset(p, 0x11, 2 * G);
    if ((c.pid = fork()) == 0) {
        pid_t inner = fork();
        if (inner == 0) child_uses(&other, p);
        munmap(p, 2 * G);
        symm_memcut_free(&cut);
        symm_memcut_free(&stays);
        child_says(&c, 1);
        child_waits(&c);
        child_says(&c, waitpid(inner, NULL, 0) == inner);
        child_waits(&c);
        _exit(0);
    }
    munmap(p, 2 * G);
    T_EQ(said(&c), 1);
    T_EQ(said(&other), 1);
    free_and_take(&cut, &other, 0); /* the inner one's */
    symm_memcut_look();
    T_EQ(pages_of(stays.fd), 2 * G);
    T_EQ(write(other.to[1], "x", 1), 1);
    T_EQ(told(&c), 1); /* it has ended; c has not */
    symm_memcut_look();
    T_EQ(pages_of(stays.fd), 0);
    child_ends(&c);
    for (int i = 0; i < 2; i++) {
        close(other.to[i]);
        close(other.from[i]);
    }
    symm_memcut_free(&stays);
    T_EQ(FILES, 0);
}

/* Other threads are inside at any time: the child finds the lock free. One of them has a lock of
 * the program's around the calls, which a fork takes too. */
static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER;

static void lock_outer(void) {
    pthread_mutex_lock(&outer);
}

static void unlock_outer(void) {
    pthread_mutex_unlock(&outer);
}

static void makes(void) {
    symm_memcut cut = made(G);
    symm_memcut_free(&cut);
}

static void *makes_alone(void *over) {
    while (!atomic_load((_Atomic int *)over)) makes();
    return NULL;
}

static void *makes_inside(void *over) {
    while (!atomic_load((_Atomic int *)over)) {
        lock_outer();
        makes();
        unlock_outer();
    }
    return NULL;
}

static void forks_beside_a_thread_that_makes(void) {
    _Atomic int over = 0;
    pthread_t alone, inside;
    int status = -1;
    T_EQ(pthread_atfork(lock_outer, unlock_outer, unlock_outer), 0);
    symm_memcut stays = made(G);
    T_EQ(pthread_create(&alone, NULL, makes_alone, &over), 0);
    T_EQ(pthread_create(&inside, NULL, makes_inside, &over), 0);
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            symm_memcut_look();
            _exit(0);
        }
        T_EQ(waitpid(pid, &status, 0), pid);
        T_EQ(status, 0);
    }
    atomic_store(&over, 1);
    T_EQ(pthread_join(alone, NULL), 0);
    T_EQ(pthread_join(inside, NULL), 0);
    symm_memcut_free(&stays);
    T_EQ(FILES, 0);
}

/* ---- pages that go back ---- */

enum { HELD = 16 };

/* Freed before the others let go; without an allocation behind it. */
static void gives_back(void *arg) {
    hk *k = arg;
    char *p, *small;
    symmWindow_t win, other;
    symm_memcut stays = made(G);
    T_OK(symmMemAlloc((void **)&small, G));
    T_OK(symmMemAlloc((void **)&p, HELD * G));
    memset(p, 1, HELD * G);
    T_OK(symmWindowRegister(k->comm, p, HELD * G, &win, 0));
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmMemFree(p));
    T_OK(symmWindowDeregister(k->comm, win));
    T_CHECK(pages_of(stays.fd) >= HELD * G);
    T_OK(symmWindowRegister(k->comm, small, G, &other, 0));
    T_CHECKF(pages_of(stays.fd) < HELD * G, "%llu bytes", (unsigned long long)pages_of(stays.fd));
    T_OK(symmWindowDeregister(k->comm, other));
    T_OK(symmMemFree(small));
    symm_memcut_free(&stays);
}
static void what_all_have_dropped_goes_back_at_the_next_registration(void) {
    hk_processes(2, gives_back, NULL);
}

static void heap_gives_back(void *arg) {
    hk *k = arg;
    symm_memcut stays = made(G);
    symmHeap_t heap = hk_heap(k, 128 * HK_MB, HELD * G, 0);
    void *peer;
    char *p = hk_sym(heap, HELD * G - HK_MB);
    memset(p, 1, HELD * G - HK_MB);
    T_OK(symmBarrier(k->comm, NULL));
    peer = hk_peer(k, p, 1 - k->rank);
    T_EQ(*(char *)peer, 1);
    T_OK(symmHeapFree(heap, p));
    T_OK(symmBarrier(k->comm, NULL));
    T_CHECK(pages_of(stays.fd) >= HELD * G - HK_MB);
    T_OK(symmHeapTrim(heap, 0, NULL));
    T_CHECKF(pages_of(stays.fd) < HELD * G - HK_MB, "%llu bytes",
             (unsigned long long)pages_of(stays.fd));
    T_OK(symmHeapDestroy(heap));
    symm_memcut_free(&stays);
}
static void what_a_heap_trims_goes_back(void) {
    for (int i = 0; i < 5; i++) hk_processes(2, heap_gives_back, NULL);
}

/* ---- 256 descriptors ---- */

enum { ALLOCATIONS = 5000, STEPS = 300 };

static void limit_fds(rlim_t n) {
    struct rlimit limit;
    T_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max = n;
    T_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void allocations(int rank, int n, void *arg) {
    static void *p[ALLOCATIONS];
    static symmWindow_t win[ALLOCATIONS];
    const int every = ck_full() ? 1 : 7;
    void *peer;
    setenv("SYMM_WIN_STRIDE", "16G", 1);
    setenv("SYMM_HUGEPAGES", "0", 1); /* some bytes of each are touched */
    symm_log_rank(rank);
    limit_fds(256);
    symmComm_t comm = fk_open(arg, rank, n);
    for (int i = 0; i < ALLOCATIONS; i++) {
        T_OK(symmMemAlloc(&p[i], 100));
        *(int *)p[i] = 10 * i + rank;
    }
    T_CHECKF(FILES < 100, "%lld descriptors", (long long)FILES);
    for (int i = 0; i < ALLOCATIONS; i += every)
        T_OK(symmWindowRegister(comm, p[i], 4096, &win[i], 0));
    T_OK(symmBarrier(comm, NULL));
    for (int i = 0; i < ALLOCATIONS; i++)
        for (int r = 0; win[i] && r < n; r++) {
            T_OK(symmWindowPeerPtr(win[i], 0, r, &peer));
            T_EQ(*(volatile int *)peer, 10 * i + r);
        }
    T_OK(symmBarrier(comm, NULL));
    for (int i = 0; i < ALLOCATIONS; i++) {
        if (win[i] && i % 2) T_OK(symmWindowDeregister(comm, win[i]));
        T_OK(symmMemFree(p[i]));
        if (win[i] && i % 2 == 0) T_OK(symmWindowDeregister(comm, win[i]));
    }
    fk_registers(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}
static void five_thousand_allocations_under_256_descriptors(void) {
    T_FORK(2, allocations, fk_new(0, 0));
}

static void steps(void *arg) {
    hk *k = arg;
    limit_fds(256);
    symmHeap_t heap = hk_heap(k, 2ull << 30, 0, 0);
    for (int i = 0; i < STEPS; i++) T_OK(symmHeapGrow(heap, 2 * HK_MB, i % 3 ? 0 : 2 * HK_MB));
    char *p = hk_sym(heap, (STEPS - 1) * 2 * HK_MB);
    for (int i = 0; i < STEPS - 1; i++) p[(uint64_t)i * 2 * HK_MB] = (char)(i + k->rank);
    T_OK(symmBarrier(k->comm, NULL));
    const char *peer = hk_peer(k, p, 1 - k->rank);
    for (int i = 0; i < STEPS - 1; i++)
        T_EQ(peer[(uint64_t)i * 2 * HK_MB], (char)(i + 1 - k->rank));
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapTrim(heap, 0, NULL));
    T_OK(symmHeapGrow(heap, 4 * HK_MB, 0));
    p = hk_sym(heap, 4 * HK_MB);
    T_EQ(p[0], 0);
    T_OK(symmHeapDestroy(heap));
}
/* A window over 300 segments, on all ranks, then on one that cannot export the last of them. */
static void segments(void *arg) {
    hk *k = arg;
    symmWindow_t win;
    void *peer;
    limit_fds(256);
    symmHeap_t heap = hk_heap(k, 2ull << 30, 0, 0);
    for (int i = 0; i < STEPS; i++) T_OK(symmHeapGrow(heap, 2 * HK_MB, 0));
    char *p = hk_sym(heap, (STEPS - 1) * 2 * HK_MB);
    fk_gauges before = fk_take();
    for (int failing = 0; failing < k->n; failing++) {
        hk_barrier(k);
        if (k->rank == failing) T_EQ(symm_fail_arm("vmm_export:error:200"), 0);
        T_ERR(symmWindowRegister(k->comm, p, (STEPS - 1) * 2 * HK_MB, &win, 0), symmFdLimit);
        T_MSG(symmGetLastError(k->comm), failing ? "rank 1" : "rank 0");
        T_MSG(symmGetLastError(k->comm), "exporting segment 199 of 299");
        T_EQ(symm_fail_arm(""), 0);
        FK_UNCHANGED(&before);
    }
    T_OK(symmWindowRegister(k->comm, p, (STEPS - 1) * 2 * HK_MB, &win, 0));
    for (int i = 0; i < STEPS - 1; i++) p[(uint64_t)i * 2 * HK_MB] = (char)(i + k->rank);
    T_OK(symmBarrier(k->comm, NULL));
    for (int i = 0; i < STEPS - 1; i++) {
        T_OK(symmWindowPeerPtr(win, (uint64_t)i * 2 * HK_MB, 1 - k->rank, &peer));
        T_EQ(*(char *)peer, (char)(i + 1 - k->rank));
    }
    T_OK(symmBarrier(k->comm, NULL));
    T_OK(symmWindowDeregister(k->comm, win));
    T_OK(symmHeapFree(heap, p));
    T_OK(symmHeapDestroy(heap));
}
static void a_window_of_many_segments_under_256_descriptors(void) {
    T_EXPECT_WARNINGS();
    hk_processes(2, segments, NULL);
}
static void a_heap_in_many_steps_under_256_descriptors(void) {
    hk_processes(2, steps, NULL);
}

T_MAIN(T(many_take_one_descriptor), T(memory_used_again_is_zeros_and_its_pages_go_back),
       T(what_was_handed_on_is_not_used_again), T(a_holder_of_a_part_keeps_no_more_than_that),
       T(positions_that_say_nothing_are_refused), T(a_forked_child_has_files_of_its_own),
       T(what_a_child_has_mapped_is_not_used_again), T(a_fork_without_descriptors_left),
       T(children_let_go), T(forks_beside_a_thread_that_makes),
       T(what_all_have_dropped_goes_back_at_the_next_registration), T(what_a_heap_trims_goes_back),
       T(five_thousand_allocations_under_256_descriptors),
       T(a_heap_in_many_steps_under_256_descriptors),
       T(a_window_of_many_segments_under_256_descriptors))
