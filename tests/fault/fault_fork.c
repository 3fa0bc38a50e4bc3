/* fault_fork.c - a rank that dies and leaves a child which it forked: the child has let go of the
 * rank's connections, so the others hear of the death, also where no pidfd tells of it, as
 * between pid namespaces, and in set-up. Forked ranks; no lock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

#include "fault_kit.h"
#include "symm_heap.h"

enum { SOON_MS = 3000, LATER_MS = 100 };
enum { IDLE, REGISTERING, ON_A_STREAM };

/* Ends this process in a moment, whatever it does then, behind a child that stays. */
static void *leave_a_child(void *arg) {
    fk *f = arg;
    kit_sleep(LATER_MS);
    pid_t child = fork();
    while (child == 0) pause();
    atomic_store(&f->k.flag, (int)child);
    atomic_store(&f->at_ns, symm_now_ns());
    kill(getpid(), SIGKILL);
    return NULL;
}

static void doom(fk *f) {
    pthread_t t;
    T_EQ(pthread_create(&t, NULL, leave_a_child, f), 0);
}

/* Whoever survives ends the child; the pid is the one that the victim knows. */
static void heard(fk *f, const char *text, int rank, int ends_child) {
    const int late = (int)fk_ms_since(atomic_load(&f->at_ns));
    char who[16];
    snprintf(who, sizeof who, "rank %d", f->victim);
    T_MSG(text, who);
    T_CHECKF(late < SOON_MS, "heard of the death after %d ms", late);
    if (ends_child && rank == (f->victim == 0)) kill(atomic_load(&f->k.flag), SIGKILL);
}

static symmResult_t meet_the_death(const fk *f, symmComm_t comm, void *buf) {
    symmWindow_t win;
    symmStream_t stream;
    symmResult_t r = symmSuccess;
    const uint64_t start = symm_now_ns();
    if (f->how == REGISTERING) return symmWindowRegister(comm, buf, 2 << 20, &win, 0);
    if (f->how == IDLE) {
        while (r == symmSuccess && fk_ms_since(start) < 2 * SOON_MS)
            T_OK(symmCommGetAsyncError(comm, &r));
        return r;
    }
    T_OK(symmStreamCreate(&stream));
    T_OK(symmBarrier(comm, stream));
    r = symmStreamSynchronize(stream);
    T_OK(symmStreamDestroy(stream));
    return r;
}

static void rank_of(fk *f, int rank, int n, int ends_child) {
    symmComm_t comm = fk_open(f, rank, n);
    void *buf;
    T_OK(symmMemAlloc(&buf, 2 << 20));
    kit_barrier(&f->k, n);
    if (rank == f->victim) {
        doom(f);
        for (;;) pause();
    }
    T_EQ(meet_the_death(f, comm, buf), symmRemoteError);
    heard(f, symmGetLastError(comm), rank, ends_child);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(buf));
}

static void live_rank(int rank, int n, void *arg) {
    rank_of(arg, rank, n, 1);
}

/* Without pidfds: only the connections tell. */
static void a_child_lets_go_of_the_connections(void) {
    T_EXPECT_WARNINGS();
    T_EQ(symm_fail_arm("watch_pidfd:error,mesh_pidfd:error"), 0); /* the ranks inherit it */
    T_FORK_DIES(3, 1, live_rank, fk_new(1, IDLE));
    T_FORK_DIES(3, 0, live_rank, fk_new(0, REGISTERING));
    T_FORK_DIES(2, 1, live_rank, fk_new(1, ON_A_STREAM));
    T_EQ(symm_fail_arm(""), 0);
}

/* ---- in set-up: rank 2 never comes, and the one that dies is waiting for it at rank 0's door, or
 * is rank 0 ---- */

static void set_up_rank(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm;
    fk_id(f, rank, n);
    if (rank == 2) {
        kit_barrier(&f->k, n - 1);
        return;
    }
    if (rank == f->victim) doom(f);
    T_ERR(symmCommInitRank(&comm, n, f->id, rank), symmRemoteError);
    heard(f, symmGetLastError(NULL), rank, 1);
    kit_barrier(&f->k, n - 1);
}

static void a_child_of_a_rank_that_dies_in_set_up(void) {
    T_EXPECT_WARNINGS();
    T_FORK_DIES(3, 1, set_up_rank, fk_new(1, 0));
    T_FORK_DIES(3, 0, set_up_rank, fk_new(0, 0));
}

/* ---- in a pid namespace of its own ---- */

static int write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    if (!f) return -1;
    fputs(text, f);
    return fclose(f);
}

/* A pid namespace needs a privilege, which a user namespace gives; there this user stays the one it
 * is. */
static int leave_namespace(void) {
    char map[64];
    if (unshare(CLONE_NEWPID) == 0) return 0;
    const int uid = (int)geteuid(), gid = (int)getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) return -1;
    snprintf(map, sizeof map, "%d %d 1", uid, uid);
    if (write_text("/proc/self/uid_map", map)) return -1;
    write_text("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%d %d 1", gid, gid);
    return write_text("/proc/self/gid_map", map);
}

static int exit_code(pid_t pid) {
    int status = -1;
    if (waitpid(pid, &status, 0) != pid) return 201;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

/* In the namespace the rank is a child of its first process, whose end would be that of all: the
 * victim's child has to live on. */
static int keep(fk *f, int rank, int n) {
    pid_t inner = fork();
    if (inner == 0) {
        rank_of(f, rank, n, 0);
        _exit(0);
    }
    const int code = exit_code(inner);
    while (rank == f->victim && !f->k.value) usleep(1000);
    return code;
}

/* A process of its own leaves the namespace: leak checks of this one would not find their way from
 * there. */
static void apart_rank(int rank, int n, void *arg) {
    fk *f = arg;
    pid_t helper = fork();
    if (helper == 0) {
        if (leave_namespace()) _exit(202);
        pid_t keeper = fork();
        if (keeper == 0) _exit(keep(f, rank, n));
        _exit(exit_code(keeper));
    }
    const int code = exit_code(helper);
    if (rank == f->victim) kill(getpid(), SIGKILL);
    T_EQ(code, 0);
    f->k.value = 1; /* the victim's namespace, with the child in it, may end */
}

static int can_leave_namespace(void) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) _exit(leave_namespace() ? 1 : 0);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void a_child_in_another_pid_namespace(void) {
    T_EXPECT_WARNINGS();
    if (!can_leave_namespace()) T_SKIP("needs pid namespaces: %s", strerror(EPERM));
    T_FORK_DIES(2, 1, apart_rank, fk_new(1, IDLE));
}

/* The child has the memory, but no heap of its parent's. */
static void a_heap_of_the_parent(void) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    symmMemInfo_t info = {.size = sizeof info};
    symmComm_t comm;
    symmHeap_t heap;
    symmRef_t ref;
    void *block;
    int status;
    T_EXPECT_WARNINGS();
    config.symBytes = 4 << 20;
    T_OK(symmCommInitAll(&comm, 1, NULL));
    T_OK(symmHeapCreate(comm, &config, &heap));
    T_OK(symmHeapAlloc(heap, 256, 0, SYMM_ALLOC_SYM, &block));
    const pid_t child = fork();
    if (!child)
        _exit(symmRefGet(block, &ref) != symmInvalidArgument ||
              symmMemQuery(block, &info) != symmInvalidArgument);
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    T_OK(symmRefGet(block, &ref));
    T_OK(symmMemQuery(block, &info));
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
}

T_MAIN(T(a_child_lets_go_of_the_connections), T(a_child_of_a_rank_that_dies_in_set_up),
       T(a_child_in_another_pid_namespace), T(a_heap_of_the_parent))
