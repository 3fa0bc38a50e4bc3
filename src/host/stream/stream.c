/* stream.c - the host backend's streams: one worker thread and one queue of tasks each.
 * Any thread calls in; `worker` runs in the stream's own thread. Lock: the stream's, never while a
 * task runs. A task costs no allocation unless the queue is longer than it ever was. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_setname_np, adaptive mutexes */
#endif
#include "stream.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/stats.h"
#include "machine/cores.h"
#include "stream_int.h"

enum { FIRST_TASKS = 32, POLLS = 100 };

_Thread_local int symm_stream_depth;

symmResult_t symm_stream_may_wait(const char *call) {
    if (!symm_stream_depth) return symmSuccess;
    return SYMM_ERR(symmInvalidUsage,
                    "%s: called from a function that a stream or graph runs, which must not wait",
                    call);
}

int symm_stream_inside(void) {
    return symm_stream_depth;
}

void symm_stream_take_inside(int depth) {
    SYMM_ASSERT(depth >= 0);
    symm_stream_depth = depth;
}

#ifdef SYMM_TESTING
void symm_tasks_check(const struct symm_stream *s) {
    const uint64_t submitted = atomic_load_explicit(&s->submitted, memory_order_relaxed),
                   done = atomic_load_explicit(&s->done, memory_order_relaxed);
    SYMM_ASSERT(s->cap >= FIRST_TASKS && (s->cap & (s->cap - 1)) == 0);
    SYMM_ASSERT((uintptr_t)s->ring % 64 == 0);
    SYMM_ASSERT(s->taken <= submitted && submitted - s->taken <= s->cap);
    SYMM_ASSERT(done == s->taken || done + 1 == s->taken); /* one task runs at a time */
    SYMM_ASSERT(!s->asleep || s->taken == submitted);
    SYMM_ASSERT(s->waiters >= 0);
    if (s->taken == submitted) return;
    const struct symm_task *next = &s->ring[s->taken & (s->cap - 1)];
    SYMM_ASSERT(next->fn && next->bytes <= SYMM_TASK_BYTES);
}
#endif

/* ---- waiting --------------------------------------------------------------------------------- */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int spin_polls;

/* Cores that this process may use, not cores of the machine: a rank bound to one core must not
 * spin. */
static void count_cores(void) {
    const int cores = symm_cores(NULL, 0);
    spin_polls = (cores ? cores : (int)sysconf(_SC_NPROCESSORS_ONLN)) > 1 ? POLLS : 0;
}

/* A child that a task has forked is no worker: nobody waits for what it does. */
static void forked(void) {
    symm_stream_depth = 0;
}

static void open_once(void) {
    count_cores();
    pthread_atfork(NULL, NULL, forked);
}

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory"); /* yield does nothing on most cores */
#endif
}

int symm_stream_spin(const _Atomic uint64_t *count, uint64_t until) {
    for (int i = 0; i <= spin_polls; i++) {
        /* pairs with the release in finish (done) and in symm_stream_push (submitted) */
        if (atomic_load_explicit(count, memory_order_acquire) >= until) return 1;
        pause_core();
    }
    return 0;
}

/* Waits until the worker has done `tasks` tasks. */
static void wait_done(struct symm_stream *s, uint64_t tasks) {
    SYMM_ASSERT(tasks <= atomic_load_explicit(&s->submitted, memory_order_relaxed));
    if (symm_stream_spin(&s->done, tasks)) return;
    pthread_mutex_lock(&s->lock);
    s->waiters++;
    while (atomic_load_explicit(&s->done, memory_order_relaxed) < tasks)
        pthread_cond_wait(&s->idle, &s->lock);
    SYMM_ASSERT(s->waiters > 0);
    s->waiters--;
    pthread_mutex_unlock(&s->lock);
}

/* ---- the worker ------------------------------------------------------------------------------ */

/* Takes the next task, or 0 once the stream stops and is empty. Under the lock, which it gives up
 * while it waits. */
static int take(struct symm_stream *s, struct symm_task *task) {
    int spun = 0;
    while (s->taken == atomic_load_explicit(&s->submitted, memory_order_relaxed)) {
        if (s->stop) return 0;
        if (!spun) {
            pthread_mutex_unlock(&s->lock);
            spun = 1;
            symm_stream_spin(&s->submitted, s->taken + 1);
            pthread_mutex_lock(&s->lock);
            continue;
        }
        s->asleep = 1;
        pthread_cond_wait(&s->work, &s->lock);
        s->asleep = 0;
    }
    const struct symm_task *slot = &s->ring[s->taken++ & (s->cap - 1)];
    task->fn = slot->fn;
    memcpy(task->args, slot->args, slot->bytes);
    SYMM_CHECK(symm_tasks_check(s));
    return 1;
}

/* Under the lock. */
static void finish(struct symm_stream *s, symmResult_t result) {
    if (result != symmSuccess && s->error == symmSuccess) {
        s->error = result;
        snprintf(s->error_text, sizeof s->error_text, "%s", symm_status_text());
    }
    uint64_t done = atomic_load_explicit(&s->done, memory_order_relaxed) + 1;
    SYMM_ASSERT(done == s->taken);
    /* release: whoever reads done without the lock (symm_stream_spin, symm_order_reached) sees what
     * the task wrote */
    atomic_store_explicit(&s->done, done, memory_order_release);
    if (s->waiters) pthread_cond_broadcast(&s->idle);
    SYMM_CHECK(symm_tasks_check(s));
}

static void *worker(void *arg) {
    struct symm_stream *s = arg;
    struct symm_task task;
    symm_stream_depth = 1;
    pthread_mutex_lock(&s->lock);
    while (take(s, &task)) {
        pthread_mutex_unlock(&s->lock);
        symmResult_t result = task.fn(task.args);
        pthread_mutex_lock(&s->lock);
        finish(s, result);
    }
    SYMM_CHECK(symm_tasks_check(s));
    SYMM_ASSERT(s->taken == atomic_load_explicit(&s->submitted, memory_order_relaxed));
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals meant for the program go to the program's threads; faults and profiling must reach this
 * one. */
static void block_signals(sigset_t *old) {
    static const int ours[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) sigdelset(&set, ours[i]);
    pthread_sigmask(SIG_SETMASK, &set, old);
}

symmResult_t symm_stream_thread(pthread_t *thread, void *(*fn)(void *), void *arg,
                                const char *name) {
    sigset_t old;
    pthread_once(&once, open_once);
    block_signals(&old);
    int err = SYMM_FAIL_CODE(stream_thread, EAGAIN, pthread_create(thread, NULL, fn, arg));
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (err) return SYMM_ERR(symmSystemError, "%s: cannot start a thread: %s", name, strerror(err));
    pthread_setname_np(*thread, name);
    symm_stat_threads(1);
    return symmSuccess;
}

/* ---- giving it work -------------------------------------------------------------------------- */

symmResult_t symm_stream_pin(symmStream_t s, struct symm_stream **out) {
    struct symm_stream *found = symm_handle_get(SYMM_KIND_STREAM, s);
    if (!found)
        return SYMM_ERR(symmInvalidArgument, "stream: %p is not a live host stream", (void *)s);
    *out = found;
    return symmSuccess;
}

void symm_stream_unpin(struct symm_stream *s) {
    symm_handle_put(SYMM_KIND_STREAM, s->handle);
}

symmResult_t symm_stream_check(symmStream_t s) {
    if (!s || symm_handle_open(SYMM_KIND_STREAM, s)) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "stream: %p is not a live host stream", (void *)s);
}

/* Doubles the queue. Under the lock. -1: no memory, nothing changed. */
static int grow(struct symm_stream *s, uint64_t submitted) {
    struct symm_task *ring;
    if (SYMM_FAIL_CODE(stream_grow, ENOMEM,
                       posix_memalign((void **)&ring, 64, 2 * s->cap * sizeof *ring)))
        return -1;
    for (uint64_t i = s->taken; i < submitted; i++) {
        const struct symm_task *from = &s->ring[i & (s->cap - 1)];
        struct symm_task *to = &ring[i & (2 * s->cap - 1)];
        to->fn = from->fn;
        to->bytes = from->bytes;
        memcpy(to->args, from->args, from->bytes);
    }
    SYMM_ASSERT(submitted - s->taken == s->cap);
    free(s->ring);
    s->ring = ring;
    s->cap *= 2;
    return 0;
}

symmResult_t symm_stream_push(struct symm_stream *s, symm_task_fn fn, const void *args,
                              size_t bytes) {
    symmResult_t status = symmSuccess;
    int wake = 0;
    pthread_mutex_lock(&s->lock);
    SYMM_CHECK(symm_tasks_check(s));
    uint64_t n = atomic_load_explicit(&s->submitted, memory_order_relaxed);
    if (s->stop) {
        status = symmInvalidArgument;
    } else if (n - s->taken == s->cap && grow(s, n)) {
        status = symmOutOfMemory;
    } else {
        struct symm_task *task = &s->ring[n & (s->cap - 1)];
        task->fn = fn;
        task->bytes = bytes;
        if (bytes) memcpy(task->args, args, bytes);
        /* release: pairs with the acquire of order points and of the spinning worker */
        atomic_store_explicit(&s->submitted, n + 1, memory_order_release);
        wake = s->asleep;
        s->asleep = 0;
    }
    SYMM_CHECK(symm_tasks_check(s));
    pthread_mutex_unlock(&s->lock);
    if (wake) pthread_cond_signal(&s->work);
    if (status == symmInvalidArgument)
        return SYMM_ERR(status, "stream: %p is being destroyed", (void *)s->handle);
    if (status)
        return SYMM_ERR(status, "stream %p: no memory to queue more than %zu tasks",
                        (void *)s->handle, s->cap);
    return symmSuccess;
}

/* ---- order points ---------------------------------------------------------------------------- */

void symm_order_take(symmStream_t s, symm_order *o) {
    struct symm_stream *stream = s ? symm_handle_find(SYMM_KIND_STREAM, s) : NULL;
    *o = (symm_order){NULL, 0};
    if (!stream) return;
    /* acquire pairs with the release in symm_stream_push: another thread's tasks count too */
    uint64_t tasks = atomic_load_explicit(&stream->submitted, memory_order_acquire);
    if (atomic_load_explicit(&stream->done, memory_order_acquire) < tasks)
        *o = (symm_order){s, tasks};
    symm_stream_unpin(stream);
}

void symm_order_drop(symm_order *o) {
    *o = (symm_order){NULL, 0};
}

int symm_order_reached(symm_order o) {
    struct symm_stream *stream = o.stream ? symm_handle_find(SYMM_KIND_STREAM, o.stream) : NULL;
    if (!stream) return 1; /* the handle outlives the stream's work */
    /* acquire pairs with the release in finish: what those tasks wrote is visible to who goes on */
    int reached = atomic_load_explicit(&stream->done, memory_order_acquire) >= o.tasks;
    symm_stream_unpin(stream);
    return reached;
}

void symm_order_reach(symm_order o) {
    struct symm_stream *stream = o.stream ? symm_handle_find(SYMM_KIND_STREAM, o.stream) : NULL;
    if (!stream) return;
    wait_done(stream, o.tasks);
    symm_stream_unpin(stream);
}

/* Cannot hang: a point is taken before the task that waits for it is given to a stream, so waits
 * form no circle. */
static symmResult_t wait_task(void *args) {
    symm_order_reach(*(symm_order *)args);
    return symmSuccess;
}

/* captured: what a stream under capture makes of it. */
static symmResult_t wait_for(symmStream_t s, symm_order o, symmResult_t captured) {
    if (o.stream == s || symm_order_reached(o)) return symmSuccess;
    if (!s) {
        SYMM_TRY(symm_stream_may_wait("waiting for another stream in the NULL stream"));
        symm_order_reach(o);
        return symmSuccess;
    }
    struct symm_stream *stream = NULL;
    symmResult_t status = symmSuccess;
    SYMM_TRY(symm_stream_pin(s, &stream));
    if (!atomic_load_explicit(&stream->capture, memory_order_relaxed))
        status = symm_stream_push(stream, wait_task, &o, sizeof o);
    else if (captured)
        status = SYMM_ERR(captured, "stream %p is under capture: it cannot wait for stream %p",
                          (void *)s, (void *)o.stream);
    symm_stream_unpin(stream);
    return status;
}

symmResult_t symm_order_wait(symmStream_t s, symm_order o) {
    return wait_for(s, o, symmSuccess);
}

symmResult_t symm_order_follow(symmStream_t s, symm_order o) {
    return wait_for(s, o, symmInvalidUsage);
}

/* ---- public calls ---------------------------------------------------------------------------- */

static void free_stream(void *obj) {
    struct symm_stream *s = obj;
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->idle);
    pthread_mutex_destroy(&s->lock);
    free(s->ring);
    free(s);
}

/* Held for the copy of one task: whoever finds it taken does better to spin than to sleep. */
static void init_lock(pthread_mutex_t *lock) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

static symmResult_t new_stream(struct symm_stream **out) {
    struct symm_stream *s = SYMM_FAIL_ALLOC(stream_alloc, calloc(1, sizeof *s));
    if (s && SYMM_FAIL_CODE(stream_ring, ENOMEM,
                            posix_memalign((void **)&s->ring, 64, FIRST_TASKS * sizeof *s->ring))) {
        free(s);
        s = NULL;
    }
    if (!s) return SYMM_ERR(symmOutOfMemory, "no memory for a host stream");
    s->cap = FIRST_TASKS;
    init_lock(&s->lock);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->idle, NULL);
    *out = s;
    return symmSuccess;
}

symmResult_t symmStreamCreate(symmStream_t *stream) {
    struct symm_stream *s = NULL;
    void *handle;
    symmResult_t status;
    if (!stream) return SYMM_ERR(symmInvalidArgument, "symmStreamCreate: stream is NULL");
    SYMM_TRY(new_stream(&s));
    SYMM_TRY_GOTO(symm_handle_new(SYMM_KIND_STREAM, s, free_stream, &handle), free_memory);
    s->handle = handle;
    SYMM_TRY_GOTO(symm_stream_thread(&s->thread, worker, s, "symm-stream"), drop_handle);
    *stream = s->handle;
    return symmSuccess;
drop_handle:
    symm_handle_close(SYMM_KIND_STREAM, handle);
    symm_handle_put(SYMM_KIND_STREAM, handle);
    return status;
free_memory:
    free_stream(s);
    return status;
}

/* The worker does what is queued, then leaves. */
static void stop_worker(struct symm_stream *s) {
    pthread_mutex_lock(&s->lock);
    s->stop = 1;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    symm_stat_threads(-1);
}

/* Closes the handle unless the stream is under capture. The set-up lock keeps captures out. */
static symmResult_t close_handle(struct symm_stream *s) {
    symmResult_t status = symmSuccess;
    symm_handle_lock();
    if (atomic_load_explicit(&s->capture, memory_order_relaxed))
        status = SYMM_ERR(symmInvalidUsage,
                          "symmStreamDestroy: stream %p is under capture: end the capture first",
                          (void *)s->handle);
    else if (!symm_handle_close(SYMM_KIND_STREAM, s->handle))
        status = SYMM_ERR(symmInvalidArgument, "stream: %p is being destroyed", (void *)s->handle);
    symm_handle_unlock();
    return status;
}

symmResult_t symmStreamDestroy(symmStream_t stream) {
    struct symm_stream *s = NULL;
    SYMM_TRY(symm_stream_may_wait("symmStreamDestroy"));
    SYMM_TRY(symm_stream_pin(stream, &s));
    symmResult_t status = close_handle(s);
    if (status == symmSuccess) {
        stop_worker(s);
        symm_handle_put(SYMM_KIND_STREAM, stream);
    }
    symm_stream_unpin(s);
    return status;
}

/* Waits for what was given to it so far, and hands over the first error. */
static symmResult_t synchronize(struct symm_stream *s) {
    if (atomic_load_explicit(&s->capture, memory_order_relaxed))
        return SYMM_ERR(symmInvalidUsage,
                        "symmStreamSynchronize: stream %p is under capture, its calls do not run",
                        (void *)s->handle);
    wait_done(s, atomic_load_explicit(&s->submitted, memory_order_acquire));
    pthread_mutex_lock(&s->lock);
    symmResult_t error = s->error;
    s->error = symmSuccess;
    if (error) symm_status_adopt(s->error_text);
    pthread_mutex_unlock(&s->lock);
    return error;
}

symmResult_t symmStreamSynchronize(symmStream_t stream) {
    struct symm_stream *s = NULL;
    if (!stream) return symmSuccess;
    SYMM_TRY(symm_stream_may_wait("symmStreamSynchronize"));
    SYMM_TRY(symm_stream_pin(stream, &s));
    symmResult_t status = synchronize(s);
    symm_stream_unpin(s);
    return status;
}

/* Idle with an error that no synchronize has returned yet: the error, which stays. */
static symmResult_t query(struct symm_stream *s) {
    if (atomic_load_explicit(&s->capture, memory_order_relaxed))
        return SYMM_ERR(symmInvalidUsage,
                        "symmStreamQuery: stream %p is under capture, its calls do not run",
                        (void *)s->handle);
    pthread_mutex_lock(&s->lock);
    symmResult_t result = s->error;
    uint64_t submitted = atomic_load_explicit(&s->submitted, memory_order_relaxed);
    if (atomic_load_explicit(&s->done, memory_order_relaxed) < submitted)
        result = symmInProgress;
    else if (result)
        symm_status_adopt(s->error_text);
    pthread_mutex_unlock(&s->lock);
    return result;
}

symmResult_t symmStreamQuery(symmStream_t stream) {
    struct symm_stream *s = NULL;
    if (!stream) return symmSuccess;
    SYMM_TRY(symm_stream_pin(stream, &s));
    symmResult_t status = query(s);
    symm_stream_unpin(s);
    return status;
}
