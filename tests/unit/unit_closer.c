/* unit_closer.c - descriptors that are closed by a thread of its own: all of them, counted, while
 * others go on; at once where there is no thread or memory; after a fork. What is closed shows
 * at the other end of a pipe. */
#include "machine/fd_closer.h"

#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"
#include "t.h"

enum { TAKERS = 4, ROUNDS = 50, EACH = 3 };

typedef struct {
    int read[EACH], write[EACH];
} pipes;

static pipes make(void) {
    pipes p;
    for (int i = 0; i < EACH; i++) {
        int fd[2];
        T_EQ(pipe(fd), 0);
        p.read[i] = fd[0];
        p.write[i] = fd[1];
    }
    SYMM_STAT_ADD(fds, EACH);
    return p;
}

static int is_closed(int read_end) {
    struct pollfd at = {.fd = read_end, .events = POLLIN};
    return poll(&at, 1, 0) == 1 && at.revents & POLLHUP;
}
static int closed(const pipes *p) {
    int n = 0;
    for (int i = 0; i < EACH; i++) n += is_closed(p->read[i]);
    return n;
}
static void drop(const pipes *p) {
    for (int i = 0; i < EACH; i++) close(p->read[i]);
}

static void whoever_gives_does_not_wait(void) {
    T_EQ(symm_fail_arm("closer_close:delay=200"), 0);
    pipes a = make(), b = make();
    symm_closer_take(a.write, EACH);
    symm_closer_take(b.write, EACH);
    T_EQ(closed(&a) + closed(&b), 0);
    T_CHECK(SYMM_STAT_GET(threads) == 1 && SYMM_STAT_GET(fds) == 2 * EACH);
    symm_closer_wait();
    T_EQ(closed(&a) + closed(&b), 2 * EACH);
    T_EQ(symm_fail_hits(symm_fp_closer_close), 2);
    T_CHECK(SYMM_STAT_GET(threads) == 0 && SYMM_STAT_GET(fds) == 0);
    symm_closer_wait(); /* nothing: at once */
    symm_closer_take(NULL, 0);
    T_EQ(SYMM_STAT_GET(threads), 0);
    drop(&a);
    drop(&b);
}

static void without_thread_or_memory_it_is_done_at_once(void) {
    static const char *const specs[] = {"closer_batch:error", "closer_thread:error"};
    for (int i = 0; i < 2; i++) {
        T_EQ(symm_fail_arm(specs[i]), 0);
        pipes a = make();
        symm_closer_take(a.write, EACH);
        T_EQ(closed(&a), EACH);
        T_CHECK(SYMM_STAT_GET(threads) == 0 && SYMM_STAT_GET(fds) == 0);
        drop(&a);
    }
}

/* More than may wait: the rest is closed by who gives it. */
static void only_so_many_wait(void) {
    enum { MANY = 40 };
    pipes p[MANY];
    int later = 0;
    T_EQ(symm_fail_arm("closer_close:delay=50:1"), 0);
    for (int i = 0; i < MANY; i++) p[i] = make();
    for (int i = 0; i < MANY; i++) {
        symm_closer_take(p[i].write, EACH);
        later += closed(&p[i]) == 0;
    }
    T_CHECKF(later >= 20 && later <= 64 / EACH, "%d of %d are closed later", later, MANY);
    symm_closer_wait();
    for (int i = 0; i < MANY; i++) {
        T_EQ(closed(&p[i]), EACH);
        drop(&p[i]);
    }
    T_EQ(SYMM_STAT_GET(fds), 0);
}

static void *give_and_wait(void *arg) {
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        pipes a = make(), b = make();
        symm_closer_take(a.write, EACH);
        symm_closer_take(b.write, EACH);
        symm_closer_wait();
        T_EQ(closed(&a) + closed(&b), 2 * EACH);
        drop(&a);
        drop(&b);
    }
    return NULL;
}

static void from_several_threads(void) {
    pthread_t t[TAKERS];
    for (int i = 0; i < TAKERS; i++) T_EQ(pthread_create(&t[i], NULL, give_and_wait, NULL), 0);
    for (int i = 0; i < TAKERS; i++) T_EQ(pthread_join(t[i], NULL), 0);
    T_CHECK(SYMM_STAT_GET(threads) == 0 && SYMM_STAT_GET(fds) == 0);
}

/* The child has no thread to wait for, and one of its own when it needs it. */
static void a_child_begins_anew(void) {
    int status;
    T_EQ(symm_fail_arm("closer_close:delay=200"), 0);
    pipes a = make();
    symm_closer_take(a.write, EACH);
    T_LET_THREADS_REST();
    const pid_t child = fork();
    if (!child) {
        int fd[2];
        symm_closer_wait();
        if (SYMM_STAT_GET(threads) || SYMM_STAT_GET(fds) || pipe(fd)) _exit(1);
        if (T_TSAN) _exit(0); /* which does not allow a thread here */
        SYMM_STAT_ADD(fds, 1);
        symm_closer_take(&fd[1], 1);
        symm_closer_wait();
        _exit(is_closed(fd[0]) && !SYMM_STAT_GET(fds) ? 0 : 2);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    symm_closer_wait();
    T_EQ(closed(&a), EACH);
    drop(&a);
}

T_MAIN(T(whoever_gives_does_not_wait), T(without_thread_or_memory_it_is_done_at_once),
       T(only_so_many_wait), T(from_several_threads), T(a_child_begins_anew))
