/* fault_limits.c - what runs out: file descriptors, memory, address space; and what must not: the
 * same buffer registered over and over, slots, reservations, a fork in the middle. Forked ranks and
 * thread ranks; no lock. */
#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "fault_kit.h"

enum { SMALL = 2 << 20, LARGE = 20 << 20 };

static uint64_t offset_of(symmWindow_t win) {
    symmWindowInfo_t info = {.size = sizeof info};
    T_OK(symmWindowQuery(win, &info));
    return info.slotOffset;
}

static void check_peers(symmComm_t comm, symmWindow_t win, int *buf, int rank, int n, int salt) {
    void *p;
    buf[0] = salt + rank;
    T_OK(symmBarrier(comm, NULL));
    for (int r = 0; r < n; r++) {
        T_OK(symmWindowPeerPtr(win, 0, r, &p));
        T_EQ(*(volatile int *)p, salt + r);
    }
    T_OK(symmBarrier(comm, NULL));
}

/* ---- file descriptors ---- */

static int highest_fd(void) {
    DIR *d = opendir("/proc/self/fd");
    int most = 0;
    T_CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        if (atoi(e->d_name) > most && atoi(e->d_name) != dirfd(d)) most = atoi(e->d_name);
    closedir(d);
    return most;
}

static int open_fds(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    T_CHECK(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* From now on `more` new descriptors can be had. Fills the holes below the highest one. */
static rlim_t limit_fds(int more, int *plugs, int *nplugs) {
    struct rlimit l;
    T_EQ(getrlimit(RLIMIT_NOFILE, &l), 0);
    rlim_t old = l.rlim_cur;
    int top = highest_fd();
    *nplugs = 0;
    for (int fd; (fd = dup(0)) >= 0;) {
        if (fd > top) {
            close(fd);
            break;
        }
        plugs[(*nplugs)++] = fd;
    }
    l.rlim_cur = (rlim_t)(top + 1 + more);
    T_EQ(setrlimit(RLIMIT_NOFILE, &l), 0);
    return old;
}

static void unlimit_fds(rlim_t old, int *plugs, int nplugs) {
    struct rlimit l;
    T_EQ(getrlimit(RLIMIT_NOFILE, &l), 0);
    l.rlim_cur = old;
    T_EQ(setrlimit(RLIMIT_NOFILE, &l), 0);
    while (nplugs) close(plugs[--nplugs]);
}

static void same_or_fd_limit(const fk *f, int n, int more) {
    for (int r = 0; r < n; r++) {
        T_CHECKF(f->k.code[r] == f->k.code[0], "%d fds: rank %d has code %d (%s), rank 0 %d (%s)",
                 more, r, f->k.code[r], f->k.text[r], f->k.code[0], f->k.text[0]);
        T_CHECKF(f->k.code[r] == symmSuccess || f->k.code[r] == symmFdLimit,
                 "%d fds: rank %d has code %d (%s)", more, r, f->k.code[r], f->k.text[r]);
    }
}

static void fd_registration_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    void *buf;
    int plugs[256], nplugs = 0, refused = 0;
    T_OK(symmMemAlloc(&buf, SMALL));
    fk_gauges before = fk_take();
    for (int more = 0; more < 5; more++) {
        symmWindow_t win = NULL;
        rlim_t old = 0;
        int fds = open_fds();
        kit_barrier(&f->k, n);
        if (rank == f->victim) old = limit_fds(more, plugs, &nplugs);
        fk_note(f, rank, symmWindowRegister(comm, buf, SMALL, &win, 0));
        if (rank == f->victim) unlimit_fds(old, plugs, nplugs);
        T_EQ(open_fds(), fds);
        kit_barrier(&f->k, n);
        same_or_fd_limit(f, n, more);
        if (f->k.code[rank]) T_MSG(f->k.text[rank], "rank 1");
        refused += f->k.code[rank] != 0;
        kit_barrier(&f->k, n);
        if (win) T_OK(symmWindowDeregister(comm, win));
        FK_COLLECTED(comm, &before);
        fk_registers(comm, rank, n); /* the communicator has not suffered */
        FK_COLLECTED(comm, &before);
    }
    T_CHECKF(refused > 0 && refused < 5, "refused %d of 5 times", refused);
    T_OK(symmMemFree(buf));
    T_OK(symmCommDestroy(comm));
}

static void no_fd_for_registration(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, fd_registration_rank, fk_new(1, 0));
    T_FORK(3, fd_registration_rank, fk_new(1, 0));
}

/* With fewer descriptors than the bootstrap itself takes a rank cannot come, and the others see
 * that only. */
static void fd_creation_rank(int rank, int n, void *arg) {
    fk *f = arg;
    int plugs[256], nplugs = 0, refused = 0, made = 0;
    int boot = f->victim == 0 ? n : 1;
    fk_gauges before = fk_take();
    setenv("SYMM_SETUP_TIMEOUT", "2000", 1);
    for (int more = boot; more < boot + 14; more++) {
        symmComm_t comm = NULL;
        rlim_t old = 0;
        fk_id(f, rank, n);
        int fds = open_fds() - 2 * (rank == 0); /* a listener of its id, and who waits there */
        if (rank == f->victim) old = limit_fds(more, plugs, &nplugs);
        fk_note(f, rank, symmCommInitRank(&comm, n, f->id, rank));
        if (rank == f->victim) unlimit_fds(old, plugs, nplugs);
        kit_barrier(&f->k, n);
        same_or_fd_limit(f, n, more);
        refused += f->k.code[rank] != 0;
        made += f->k.code[rank] == 0;
        kit_barrier(&f->k, n);
        if (comm) T_OK(symmCommDestroy(comm));
        T_EQ(open_fds(), fds);
        FK_UNCHANGED(&before);
    }
    T_CHECKF(refused > 0 && made > 0, "refused %d times, made %d times", refused, made);
    symmComm_t comm = fk_open(f, rank, n);
    fk_registers(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void no_fd_for_creation(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, fd_creation_rank, fk_new(1, 0));
    T_FORK(3, fd_creation_rank, fk_new(2, 0));
    T_FORK(3, fd_creation_rank, fk_new(0, 0));
}

/* ---- memory ---- */

static void no_memory_rank(int rank, int n, void *arg) {
    static const char *const points[] = {"vmm_map:error:1", "vmm_import:error:1",
                                         "vmm_access:error:1", "slot_record:error:1",
                                         "win_record:error:1"};
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    void *buf, *p = f;
    T_OK(symmMemAlloc(&buf, SMALL));
    fk_gauges before = fk_take();
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        symmWindow_t win = NULL;
        kit_barrier(&f->k, n);
        if (rank == 1) T_EQ(symm_fail_arm(points[i]), 0);
        fk_note(f, rank, symmWindowRegister(comm, buf, SMALL, &win, 0));
        T_EQ(symm_fail_arm(""), 0);
        kit_barrier(&f->k, n);
        T_CHECK(f->k.code[1] != symmSuccess);
        fk_same(f, n, -1, (symmResult_t)f->k.code[1], "rank 1");
        FK_UNCHANGED(&before);
    }
    T_EQ(symm_fail_arm("vmm_create:error:1"), 0);
    T_CHECK(symmMemAlloc(&p, SMALL) != symmSuccess);
    T_EQ(symm_fail_arm(""), 0);
    T_CHECK(symmMemAlloc(&p, (size_t)1 << 60) != symmSuccess);
    T_CHECK(symmGetLastError(NULL)[0]);
    T_CHECK(symmMemAlloc(&p, SIZE_MAX) != symmSuccess);
    T_CHECK(p == f);
    FK_UNCHANGED(&before);
    fk_registers(comm, rank, n);
    T_OK(symmMemFree(buf));
    T_OK(symmCommDestroy(comm));
}

static void no_memory_on_one_rank(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, no_memory_rank, fk_new(1, 0));
}

/* A window that does not fit in one rank's part of the space: every rank hears it. */
static void no_room_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmWindow_t win = NULL;
    void *buf;
    setenv("SYMM_WIN_STRIDE", "32M", 1);
    setenv("SYMM_SCRATCH", "4M", 1);
    symmComm_t comm = fk_open(f, rank, n);
    T_OK(symmMemAlloc(&buf, rank ? 40 << 20 : SMALL));
    fk_gauges before = fk_take();
    fk_note(f, rank, symmWindowRegister(comm, buf, rank ? 40 << 20 : SMALL, &win, 0));
    kit_barrier(&f->k, n);
    fk_same(f, n, -1, symmOutOfMemory, "SYMM_WIN_STRIDE");
    FK_UNCHANGED(&before);
    fk_registers(comm, rank, n);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
}

static void no_room_in_the_space(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, no_room_rank, fk_new(1, 0));
}

/* ---- the same buffer, again and again ---- */

enum { LIVE = 3000 };

static void again_rank(int rank, int n, void *arg) {
    fk *f = arg;
    static symmWindow_t win[LIVE];
    int times = 100000;
    symmComm_t comm = fk_open(f, rank, n);
    symmWindowInfo_t first = {.size = sizeof first}, info = first;
    void *buf;
    T_OK(symmMemAlloc(&buf, SMALL));
    T_OK(symmWindowRegister(comm, buf, SMALL, &win[0], 0));
    T_OK(symmWindowQuery(win[0], &first));
    fk_gauges before = fk_take();
    int fds = open_fds();
    for (int i = 1; i < times; i++) {
        int at = i % LIVE;
        if (win[at]) T_OK(symmWindowDeregister(comm, win[at]));
        T_OK(symmWindowRegister(comm, buf, SMALL, &win[at], 0));
        if (i % 1000) continue;
        T_OK(symmWindowQuery(win[at], &info));
        T_EQ(info.offset, first.offset);
        T_EQ(info.references, i < LIVE ? i + 1 : LIVE);
        T_EQ(open_fds(), fds);
    }
    for (int i = 1; i < LIVE; i++) T_OK(symmWindowDeregister(comm, win[i]));
    FK_UNCHANGED(&before); /* maps, addresses and descriptors of one window */
    fk_reduce(comm, rank, n, buf, (int *)buf + (1 << 18), 200000, NULL);
    T_OK(symmWindowDeregister(comm, win[0]));
    T_OK(symmMemFree(buf));
    T_OK(symmCommDestroy(comm));
}

static void one_buffer_many_times(void) {
    T_FORK(2, again_rank, fk_new(0, 0));
}

/* Dropped each time before it is registered again, so no other window keeps it mapped. */
static void again_alone_rank(int rank, int n, void *arg) {
    symmComm_t comm = fk_open(arg, rank, n);
    symmWindowInfo_t first = {.size = sizeof first}, info = first;
    symmWindow_t win;
    void *buf;
    T_OK(symmMemAlloc(&buf, SMALL));
    T_OK(symmWindowRegister(comm, buf, SMALL, &win, 0));
    T_OK(symmWindowQuery(win, &first));
    fk_gauges before = fk_take();
    int64_t mapped_anew = SYMM_STAT_GET(registrations) - SYMM_STAT_GET(registrations_shared);
    int fds = open_fds();
    for (int i = 1; i < 100000; i++) {
        T_OK(symmWindowDeregister(comm, win));
        T_OK(symmWindowRegister(comm, buf, SMALL, &win, 0));
        if (i % 1000) continue;
        T_OK(symmWindowQuery(win, &info));
        T_EQ(info.offset, first.offset);
        T_EQ(info.references, 1);
        T_EQ(open_fds(), fds);
        FK_UNCHANGED(&before);
    }
    T_EQ(SYMM_STAT_GET(registrations) - SYMM_STAT_GET(registrations_shared), mapped_anew);
    fk_reduce(comm, rank, n, buf, (int *)buf + (1 << 18), 200000, NULL);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
}

static void one_buffer_dropped_many_times(void) {
    T_FORK(2, again_alone_rank, fk_new(0, 0));
}

/* New memory each time, in a space that has no room for a third: what all have dropped must make
 * room first. The ranks drop in different orders. */
static void many_buffers_rank(int rank, int n, void *arg) {
    setenv("SYMM_WIN_STRIDE", "64M", 1);
    setenv("SYMM_SCRATCH", "4M", 1);
    symmComm_t comm = fk_open(arg, rank, n);
    symmWindow_t win[2];
    uint64_t place[2] = {0, 0};
    void *buf[2];
    fk_gauges before = fk_take(), full = before;
    int fds = open_fds();
    for (int i = 0; i < 300; i++) {
        for (int k = 0; k < 2; k++) {
            T_OK(symmMemAlloc(&buf[k], LARGE));
            T_OK(symmWindowRegister(comm, buf[k], LARGE, &win[k], 0));
            if (i == 0) place[k] = offset_of(win[k]);
            T_EQ(offset_of(win[k]), place[k]);
        }
        if (i == 0) full = fk_take();
        FK_UNCHANGED(&full); /* two windows' worth, however many there were */
        if (i % 50 == 0) check_peers(comm, win[1], buf[1], rank, n, i);
        for (int k = 0; k < 2; k++) T_OK(symmWindowDeregister(comm, win[k ^ (rank & 1)]));
        for (int k = 0; k < 2; k++) T_OK(symmMemFree(buf[k]));
    }
    FK_COLLECTED(comm, &before);
    T_EQ(open_fds(), fds);
    T_OK(symmCommDestroy(comm));
}

static void many_buffers_in_a_small_space(void) {
    T_FORK(2, many_buffers_rank, fk_new(0, 0));
    T_FORK(3, many_buffers_rank, fk_new(0, 0));
}

/* ---- slots ---- */

/* A range that one rank has dropped is not used again before all have; then the next registration
 * frees it and takes it. */
static void slot_rank(int rank, int n, void *arg) {
    symmComm_t comm = fk_open(arg, rank, n);
    symmWindow_t a, b, c;
    int *first, *second, *third;
    T_OK(symmMemAlloc((void **)&first, SMALL));
    T_OK(symmMemAlloc((void **)&second, SMALL));
    T_OK(symmMemAlloc((void **)&third, SMALL));
    fk_gauges before = fk_take();
    T_OK(symmWindowRegister(comm, first, SMALL, &a, 0));
    uint64_t old = offset_of(a);
    first[0] = 70 + rank;
    T_OK(symmBarrier(comm, NULL));
    if (rank == 0) T_OK(symmWindowDeregister(comm, a)); /* the others still have it */
    T_OK(symmWindowRegister(comm, second, SMALL, &b, 0));
    T_CHECKF(offset_of(b) != old, "the slot at %llu is taken", (unsigned long long)old);
    check_peers(comm, b, second, rank, n, 500);
    for (int r = 0; rank != 0 && r < n; r++) { /* and the old one still shows the old memory */
        void *p;
        T_OK(symmWindowPeerPtr(a, 0, r, &p));
        T_EQ(*(volatile int *)p, 70 + r);
    }
    if (rank != 0) T_OK(symmWindowDeregister(comm, a));
    T_OK(symmWindowRegister(comm, third, SMALL, &c, 0));
    T_EQ(offset_of(c), old); /* all have dropped it: the lowest free range again */
    check_peers(comm, c, third, rank, n, 900);
    T_OK(symmWindowDeregister(comm, b));
    T_OK(symmWindowDeregister(comm, c));
    FK_COLLECTED(comm, &before);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(first));
    T_OK(symmMemFree(second));
    T_OK(symmMemFree(third));
}

static void slots_are_reused_when_all_have_dropped_them(void) {
    T_FORK(2, slot_rank, fk_new(0, 0));
    T_FORK(3, slot_rank, fk_new(0, 0));
}

/* Rank 0 drops and registers the same memory while the others keep it: it is still there, each
 * time. */
static void one_sided_rank(int rank, int n, void *arg) {
    symmComm_t comm = fk_open(arg, rank, n);
    symmWindow_t win[8];
    int *buf;
    T_OK(symmMemAlloc((void **)&buf, SMALL));
    T_OK(symmWindowRegister(comm, buf, SMALL, &win[0], 0));
    uint64_t first = offset_of(win[0]);
    fk_gauges before = fk_take();
    for (int i = 1; i < 8; i++) {
        if (rank == 0) T_OK(symmWindowDeregister(comm, win[i - 1]));
        T_OK(symmWindowRegister(comm, buf, SMALL, &win[i], 0));
        T_EQ(offset_of(win[i]), first);
        check_peers(comm, win[i], buf, rank, n, 10 * i);
        if (rank != 0) T_OK(symmWindowDeregister(comm, win[i - 1]));
        FK_UNCHANGED(&before);
    }
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
}

static void memory_that_one_rank_dropped_is_found_again(void) {
    T_FORK(2, one_sided_rank, fk_new(0, 0));
}

/* ---- several communicators over the same ranks ---- */

static void space_rank(int rank, int n, void *arg) {
    symmComm_t one = fk_open(arg, rank, n), two, half;
    int64_t va = SYMM_STAT_GET(va_bytes);
    symmWindow_t a, b;
    int *buf;
    T_OK(symmMemAlloc((void **)&buf, SMALL));
    int64_t alloc = SYMM_STAT_GET(va_bytes) - va; /* the allocation's own */
    two = fk_open(arg, rank, n);
    T_EQ(SYMM_STAT_GET(va_bytes), va + alloc);
    T_OK(symmWindowRegister(one, buf, SMALL, &a, 0));
    int64_t maps = SYMM_STAT_GET(maps), slots = SYMM_STAT_GET(slots);
    T_OK(symmWindowRegister(two, buf, SMALL, &b, 0));
    T_EQ(SYMM_STAT_GET(maps), maps);
    T_EQ(SYMM_STAT_GET(slots), slots);
    T_EQ(offset_of(a), offset_of(b));
    check_peers(two, b, buf, rank, n, 70);
    T_OK(symmCommSplit(two, rank < 2 ? 0 : 1, rank, &half,
                       NULL)); /* other ranks: a space of its own */
    T_CHECK(SYMM_STAT_GET(va_bytes) > va + alloc);
    T_OK(symmCommDestroy(half));
    T_EQ(SYMM_STAT_GET(va_bytes), va + alloc);
    T_OK(symmCommDestroy(one)); /* the window of the other one stays mapped */
    T_EQ(SYMM_STAT_GET(va_bytes), va + alloc);
    check_peers(two, b, buf, rank, n, 80);
    T_OK(symmCommDestroy(two));
    T_OK(symmMemFree(buf));
}

static void communicators_share_a_reservation(void) {
    T_FORK(3, space_rank, fk_new(0, 0));
}

/* Registering again takes one exchange, and a rank that has its part of it may leave at once: the
 * others, however slow, have theirs all the same. */
static void hasty_rank(int rank, int n, void *arg) {
    void *buf;
    T_OK(symmMemAlloc(&buf, SMALL));
    symmComm_t keep = fk_open(arg, rank, n);
    symmWindow_t win;
    T_OK(symmWindowRegister(keep, buf, SMALL, &win, 0));
    for (int i = 0; i < 60; i++) {
        symmComm_t comm = fk_open(arg, rank, n);
        T_OK(symmWindowRegister(comm, buf, SMALL, &win, 0));
        T_OK(symmCommDestroy(comm));
    }
    T_OK(symmCommDestroy(keep));
    T_OK(symmMemFree(buf));
}

static void leaving_right_after_registration(void) {
    T_FORK(3, hasty_rank, fk_new(0, 0));
}

/* 72 x 192 GiB, as 8 processes reserve it: 13.5 TiB of addresses each. */
static void huge_rank(int rank, int n, void *arg) {
    symmCommInfo_t info = {.size = sizeof info};
    setenv("SYMM_WIN_STRIDE", "1728G", 1);
    symmComm_t comm = fk_open(arg, rank, n);
    T_OK(symmCommQuery(comm, &info));
    T_EQ(info.stride, 1728ull << 30);
    T_CHECK(SYMM_STAT_GET(va_bytes) >= (int64_t)(72ull * 192 << 30));
    fk_works(comm, rank, n);
    fk_registers(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void a_reservation_for_72_large_gpus(void) {
    T_FORK(8, huge_rank, fk_new(0, 0));
}

/* ---- fork ---- */

static void child_of(symmComm_t comm, symmWindow_t win, int *buf) {
    symmCommInfo_t info = {.size = sizeof info};
    symmComm_t own;
    symmUniqueId_t id;
    void *p;
    int ok = symmAllReduce(buf, buf, 1, symmInt32, symmSum, comm, NULL) == symmInvalidArgument;
    ok &= symmCommQuery(comm, &info) == symmInvalidArgument;
    ok &= symmWindowPeerPtr(win, 0, 0, &p) == symmInvalidArgument;
    ok &= symmCommDestroy(comm) == symmInvalidArgument;
    ok &= strstr(symmGetLastError(NULL), "not a living communicator") != NULL;
    /* It is a process like any other, and may have communicators of its own. */
    ok &= symmGetUniqueId(&id) == symmSuccess;
    ok &= symmCommInitRank(&own, 1, id, 0) == symmSuccess;
    ok &= symmBarrier(own, NULL) == symmSuccess;
    ok &= symmCommDestroy(own) == symmSuccess;
    _exit(ok ? 0 : 1);
}

static void fork_rank(int rank, int n, void *arg) {
    symmComm_t comm = fk_open(arg, rank, n);
    symmWindow_t win;
    int *buf, status = -1;
    T_OK(symmMemAlloc((void **)&buf, SMALL));
    T_OK(symmWindowRegister(comm, buf, SMALL, &win, 0));
    T_LET_THREADS_REST();
    pid_t pid = fork();
    if (pid == 0) child_of(comm, win, buf);
    check_peers(comm, win, buf, rank, n, 40);
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's status is %x", status);
    fk_works(comm, rank, n);
    fk_registers(comm, rank, n);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
}

static void a_fork_in_the_middle(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, fork_rank, fk_new(0, 0));
}

/* The children of a fork make a communicator among themselves while the parents' lives. */
static void grandchild_rank(int rank, int n, fk *f) {
    symmComm_t comm;
    if (rank == 0 && symmGetUniqueId(&f->id)) _exit(2);
    kit_barrier(&f->k, n);
    if (symmCommInitRank(&comm, n, f->id, rank)) _exit(3);
    if (symmBarrier(comm, NULL)) _exit(4);
    kit_barrier(&f->k, n);
    _exit(symmCommDestroy(comm) ? 5 : 0);
}

static void two_generations_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm = fk_open(f, rank, n);
    int status = -1;
    T_LET_THREADS_REST();
    pid_t pid = fork();
    if (pid == 0) grandchild_rank(rank, n, f);
    T_EQ(waitpid(pid, &status, 0), pid);
    T_CHECKF(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's status is %x", status);
    fk_works(comm, rank, n);
    T_OK(symmCommDestroy(comm));
}

static void forked_children_have_communicators_of_their_own(void) {
    T_EXPECT_WARNINGS();
    T_FORK(2, two_generations_rank, fk_new(0, 0));
}

T_MAIN(T(no_fd_for_registration), T(no_fd_for_creation), T(no_memory_on_one_rank),
       T(no_room_in_the_space), T_TIMEOUT(one_buffer_many_times, 120),
       T_TIMEOUT(one_buffer_dropped_many_times, 120), T(many_buffers_in_a_small_space),
       T(slots_are_reused_when_all_have_dropped_them),
       T(memory_that_one_rank_dropped_is_found_again), T(communicators_share_a_reservation),
       T(leaving_right_after_registration), T(a_reservation_for_72_large_gpus),
       T(a_fork_in_the_middle), T(forked_children_have_communicators_of_their_own))
