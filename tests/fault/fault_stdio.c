/* fault_stdio.c - programs that were started with stdin, stdout or stderr closed, and print all
 * the same: no descriptor of the library's takes the place, whatever makes it. Each rank is a
 * process, or a thread. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "fault_kit.h"

enum { COUNT = 3000, BYTES = 1 << 20 };

/* Descriptors 0..2 of this process that `closed` names by bits, kept elsewhere meanwhile. Where its
 * ranks are threads they meet at `alone` before and after they look. */
typedef struct {
    int closed, kept[3];
    pthread_barrier_t *alone;
} stdio_kept;

static stdio_kept stdio_close(int closed) {
    stdio_kept s = {.closed = closed};
    fflush(NULL);
    for (int fd = 0; fd < 3; fd++) T_CHECK((s.kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100)) >= 100);
    for (int fd = 0; fd < 3; fd++)
        if (closed >> fd & 1) T_EQ(close(fd), 0);
    return s;
}

static void stdio_restore(const stdio_kept *s) {
    for (int fd = 0; fd < 3; fd++) {
        if (s->closed >> fd & 1) T_EQ(dup2(s->kept[fd], fd), fd);
        T_EQ(close(s->kept[fd]), 0);
    }
}

/* No other thread of the process is inside a call until all have met again: a descriptor that is
 * being made may be 0, 1 or 2 for a moment (docs/limits.md). */
static void meet(const stdio_kept *s) {
    if (s->alone) pthread_barrier_wait(s->alone);
}

/* What the program says lands nowhere, and no descriptor came where it was said to. */
static void speak(const stdio_kept *s, const char *after) {
    meet(s);
    for (int fd = 0; fd < 3; fd++) {
        if (!(s->closed >> fd & 1)) continue;
        if (fd)
            T_CHECKF(write(fd, "spoken\n", 7) == -1, "after %s descriptor %d takes words", after,
                     fd);
        T_CHECKF(fcntl(fd, F_GETFD) == -1, "after %s descriptor %d is open", after, fd);
    }
    printf("printed after %s\n", after);
    fflush(stdout);
    meet(s);
}

static void reduce(symmComm_t comm, symmStream_t stream, float *x, int n) {
    for (int i = 0; i < COUNT; i++) x[i] = 1;
    T_OK(symmAllReduce(x, x, COUNT, symmFloat, symmSum, comm, stream));
    if (stream) T_OK(symmStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++) T_EQ((int)x[i], n);
}

/* All that a rank does with descriptors. */
static void life(symmComm_t comm, const stdio_kept *s, int n) {
    symmComm_t part;
    symmWindow_t win;
    symmStream_t stream;
    void *mem;
    float *x;
    speak(s, "creation");
    T_OK(symmMemAlloc(&mem, BYTES));
    x = mem;
    speak(s, "an allocation");
    reduce(comm, NULL, x, n);
    speak(s, "a collective");
    T_OK(symmWindowRegister(comm, mem, BYTES, &win, SYMM_WIN_DEFAULT));
    speak(s, "a registration");
    T_OK(symmStreamCreate(&stream));
    reduce(comm, stream, x, n);
    speak(s, "a collective on a stream");
    T_OK(symmCommSplit(comm, 0, 0, &part, NULL));
    speak(s, "a split");
    reduce(part, NULL, x, n);
    T_OK(symmCommDestroy(part));
    T_OK(symmCommDump(comm, s->kept[2]));
    T_OK(symmWindowDeregister(comm, win));
    T_OK(symmStreamDestroy(stream));
    reduce(comm, NULL, x, n);
    T_OK(symmCommDestroy(comm));
    T_OK(symmMemFree(mem));
    speak(s, "the end");
}

static void rank_life(int rank, int n, void *arg) {
    fk *f = arg;
    symmComm_t comm;
    stdio_kept s = stdio_close(f->how);
    fk_id(f, rank, n); /* its listener; TCP until the ranks have met, sockets and pidfds then */
    if (rank == 0) speak(&s, "symmGetUniqueId");
    T_OK(symmCommInitRank(&comm, n, f->id, rank));
    life(comm, &s, n);
    symm_log_setup(symm_log_level, ""); /* a log file ends */
    stdio_restore(&s);
}

static void over(int closed, int n) {
    T_FORK(n, rank_life, fk_new(-1, closed));
}

static void stdout_is_closed(void) {
    over(1 << 1, 3);
}

static void stdin_is_closed(void) {
    over(1 << 0, 2);
}

static void stderr_is_closed(void) {
    over(1 << 2, 2);
}

static void all_are_closed(void) {
    over(7, 3);
}

/* A log file is kept open for as long as the process lives. */
static void a_log_file_is_moved_too(void) {
    char path[] = "/tmp/symm-stdio-XXXXXX";
    int fd = mkstemp(path);
    T_CHECK(fd >= 0);
    close(fd);
    setenv("SYMM_DEBUG", "INFO", 1);
    setenv("SYMM_DEBUG_FILE", path, 1);
    over(7, 2);
    T_EQ(unlink(path), 0);
}

static symmComm_t thread_comm[2];
static stdio_kept thread_stdio;

static void thread_life(int rank, int n, void *arg) {
    (void)arg;
    life(thread_comm[rank], &thread_stdio, n);
}

static void thread_ranks(void) {
    pthread_barrier_t alone;
    T_EQ(pthread_barrier_init(&alone, NULL, 2), 0);
    thread_stdio = stdio_close(7);
    thread_stdio.alone = &alone;
    T_OK(symmCommInitAll(thread_comm, 2, NULL));
    T_THREADS(2, thread_life, NULL);
    stdio_restore(&thread_stdio);
    T_EQ(pthread_barrier_destroy(&alone), 0);
}

T_MAIN(T(stdout_is_closed), T(stdin_is_closed), T(stderr_is_closed), T(all_are_closed),
       T(a_log_file_is_moved_too), T(thread_ranks))
