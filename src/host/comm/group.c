/* group.c - the calls of a group, and how they run so that one thread can drive several ranks. They
 * are per thread. symmGroupEnd joins the threads that it starts. Lock: the gate's, over what
 * these threads and the caller tell each other. */
#include "group.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/sized.h"
#include "device/common/kernels.h"
#include "host/stream/stream.h"
#include "driver.h"

typedef struct job {
    struct job *next;  /* of its queue */
    struct job *later; /* in the order of the calls */
    struct queue *queue;
    struct job *joined; /* the job of which it is part; NULL: it is one itself */
    const void *key;
    int kind;
    symmStream_t stream; /* that it gives work to */
    symm_job_fn fn;
    const symm_job_row *row; /* NULL: set-up, a job by itself */
    _Alignas(16) char args[];
} job;

typedef struct { /* where the threads of a group wait until all of them have started */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    enum { SHUT, OPEN, CALLED_OFF } state; /* under lock, as the rest */
    int threads;                           /* that have not ended */
    int inside;                            /* symm_stream_inside of the caller */
} gate;

typedef struct queue { /* the jobs of one communicator, in order */
    struct queue *next;
    const void *key;
    int blocks, stays, threaded;
    job *first, **last, *newest;
    const job *joined; /* to the newest; NULL: none yet */
    gate *gate;
    job *handed; /* to the caller's thread, which this one waits for; under the gate's lock */
    pthread_t thread;
    symmResult_t result;
    char text[SYMM_ERR_TEXT];
} queue;

typedef struct {
    int depth;
    job *first, **last;
    job *behind, **behind_last; /* come behind those */
    symmResult_t error;
    char text[SYMM_ERR_TEXT]; /* of error */
} calls;
static _Thread_local calls group;

symm_open_groups symm_groups[SYMM_THREAD_SLOTS];

static _Atomic int *open_here(void) {
    return &symm_groups[symm_thread_slot(symm_thread_self())].n;
}

int symm_group_is_open(void) {
    return group.depth > 0;
}

symmResult_t symm_group_apart(symm_job_fn fn, void *args) {
    if (!symm_group_open()) return fn(args);
    const calls mine = group;
    group.depth = 0;
    const symmResult_t r = fn(args);
    SYMM_ASSERT(group.depth == 0);
    group = mine;
    return r;
}

static void settle(job *j) {
    if (j->row && j->row->settle) j->row->settle(j->args);
}

/* One communicator can have the caller's thread. */
static symmResult_t check_stays(const void *key, int kind) {
    const job *lists[] = {group.first, group.behind};
    for (int i = 0; i < 2 && kind == SYMM_JOB_STAYS; i++)
        for (const job *j = lists[i]; j; j = j->later)
            if (j->kind == SYMM_JOB_STAYS && j->key != key)
                return symm_group_refuse(SYMM_ERR(symmNotSupported,
                                                  "a group may have calls of one communicator over "
                                                  "several domains, not of two"));
    return symmSuccess;
}

static symmResult_t add_job(const job *head, const void *args, size_t bytes) {
    SYMM_TRY(check_stays(head->key, head->kind));
    job *j = SYMM_FAIL_ALLOC(group_job, malloc(sizeof *j + bytes));
    if (!j)
        return symm_group_refuse(SYMM_ERR(symmOutOfMemory, "no memory to queue a call in a group"));
    *j = *head;
    memcpy(j->args, args, bytes);
    *group.last = j;
    group.last = &j->later;
    settle(j);
    return symmSuccess;
}

symmResult_t symm_group_run(const void *key, int kind, symm_job_fn fn, const void *args,
                            size_t bytes) {
    if (__builtin_expect(!symm_group_open(), 1)) return fn((void *)(uintptr_t)args);
    return add_job(&(job){.key = key, .kind = kind, .fn = fn}, args, bytes);
}

symmResult_t symm_group_join(const void *key, int kind, symmStream_t stream,
                             const symm_job_row *row, const void *args, size_t bytes) {
    const job j = {.key = key, .kind = kind, .stream = stream, .fn = row->run, .row = row};
    return add_job(&j, args, bytes);
}

static int waits(int kind) {
    return kind == SYMM_JOB_BLOCKS || kind == SYMM_JOB_STAYS;
}

static job *find_behind(const void *key, const symm_job_row *row) {
    job *j = group.behind;
    while (j && (j->key != key || (row && j->row != row))) j = j->later;
    return j;
}

symmResult_t symm_group_behind(const void *key, int kind, const symm_job_row *row, size_t bytes,
                               void **args) {
    job *j = find_behind(key, row);
    SYMM_ASSERT(group.depth > 0);
    SYMM_TRY(check_stays(key, kind));
    if (!j) {
        j = SYMM_FAIL_ALLOC(group_behind, calloc(1, sizeof *j + bytes));
        if (!j)
            return symm_group_refuse(
                SYMM_ERR(symmOutOfMemory, "no memory to queue a call in a group"));
        j->key = key, j->fn = row->run, j->row = row;
        *group.behind_last = j;
        group.behind_last = &j->later;
    }
    if (waits(kind) || (kind == SYMM_JOB_HERE && !waits(j->kind))) j->kind = kind;
    *args = j->args;
    return symmSuccess;
}

symmResult_t symm_group_refuse(symmResult_t r) {
    if (group.depth && !group.error) {
        group.error = r;
        memcpy(group.text, symm_status_text(), sizeof group.text);
    }
    return r;
}

symmResult_t symm_group_refuse_beside(const void *key, const char *call) {
    if (__builtin_expect(group.depth == 0, 1)) return symmSuccess;
    int queued = find_behind(key, NULL) != NULL;
    for (const job *j = group.first; j && !queued; j = j->later) queued = j->key == key;
    if (queued)
        return symm_group_refuse(SYMM_ERR(
            symmInvalidUsage,
            "%s: this group has calls of the communicator, which run only at symmGroupEnd: make "
            "this call before them, or after the group",
            call));
    return symmSuccess;
}

symmResult_t symmGroupStart(void) {
    if (group.depth++ == 0) {
        atomic_fetch_add_explicit(open_here(), 1, memory_order_relaxed);
        group.first = NULL;
        group.last = &group.first;
        group.behind = NULL;
        group.behind_last = &group.behind;
        group.error = symmSuccess;
    }
    return symmSuccess;
}

/* Takes the jobs out of the group, which is over: those that come behind are the last. */
static job *close_group(void) {
    SYMM_ASSERT(group.depth == 0 && !*group.last);
    atomic_fetch_sub_explicit(open_here(), 1, memory_order_relaxed);
    *group.last = group.behind;
    return group.first;
}

static void run_job(job *j) {
    queue *q = j->queue;
    symmResult_t r = j->fn(j->args);
    if (!r) return;
    q->result = r;
    memcpy(q->text, symm_status_text(), sizeof q->text);
}

/* A non-blocking creation in progress is no failure: the queue goes on. */
static int goes_on(const queue *q) {
    return !q->result || q->result == symmInProgress;
}

/* To the thread that made the call; this one waits until it is done. */
static void hand_over(job *j) {
    gate *g = j->queue->gate;
    pthread_mutex_lock(&g->lock);
    j->queue->handed = j;
    pthread_cond_broadcast(&g->moved);
    while (j->queue->handed) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void run_queue(queue *q) {
    for (job *j = q->first; j && goes_on(q); j = j->next)
        if (q->threaded && j->kind == SYMM_JOB_HERE)
            hand_over(j);
        else
            run_job(j);
}

static queue *queue_of(queue **queues, const void *key) {
    queue **at = queues;
    while (*at && (*at)->key != key) at = &(*at)->next;
    if (!*at && (*at = SYMM_FAIL_ALLOC(group_queue, calloc(1, sizeof **at)))) {
        (*at)->key = key;
        (*at)->last = &(*at)->first;
    }
    return *at;
}

static void free_jobs(job *j) {
    while (j) {
        job *later = j->later;
        if (j->row && j->row->drop) j->row->drop(j->args);
        free(j);
        j = later;
    }
}

/* Whether a job of the same stream stands between the two. What only gives work to a stream keeps
 * the order of the calls there, whatever their communicators. */
static int is_between(const job *from, const job *to) {
    for (const job *j = from->later; j != to; j = j->later)
        if (!waits(j->kind) && j->stream == to->stream) return 1;
    return 0;
}

/* Whether j has become part of its queue's newest job. */
static int joins(queue *q, job *j) {
    job *to = q->newest;
    if (!to || !to->row || !to->row->join || to->row != j->row || to->kind != j->kind) return 0;
    if (!waits(j->kind) && is_between(q->joined ? q->joined : to, j)) return 0;
    if (!to->row->join(to->args, j->args)) return 0;
    q->joined = j;
    j->joined = to;
    return 1;
}

/* A queue for each communicator. The jobs stay in the order of the calls as well, and whoever
 * frees them goes by that. */
static symmResult_t sort_jobs(queue **queues, job *all) {
    for (job *j = all; j; j = j->later) {
        queue *q = j->queue = queue_of(queues, j->key);
        if (!q) return SYMM_ERR(symmOutOfMemory, "no memory to run a group");
        if (joins(q, j)) continue;
        q->blocks |= waits(j->kind);
        q->stays |= j->kind == SYMM_JOB_STAYS;
        *q->last = j;
        q->last = &j->next;
        q->newest = j;
        q->joined = NULL;
    }
    for (const job *j = all; j; j = j->later)
        if (!j->joined && j->row && j->row->check) SYMM_TRY(j->row->check(j->args));
    return symmSuccess;
}

static void *run_behind_gate(void *arg) {
    queue *q = arg;
    symm_stream_take_inside(q->gate->inside);
    pthread_mutex_lock(&q->gate->lock);
    while (q->gate->state == SHUT) pthread_cond_wait(&q->gate->moved, &q->gate->lock);
    int runs = q->gate->state == OPEN;
    pthread_mutex_unlock(&q->gate->lock);
    if (runs) run_queue(q);
    pthread_mutex_lock(&q->gate->lock);
    q->gate->threads--;
    pthread_cond_broadcast(&q->gate->moved);
    pthread_mutex_unlock(&q->gate->lock);
    return NULL;
}

/* Whether a queue that needs a thread has a call that only the caller's thread may make. The caller
 * then must not run a queue that waits. */
static int must_serve(const job *all) {
    for (; all; all = all->later)
        if (all->kind == SYMM_JOB_HERE && all->queue->blocks) return 1;
    return 0;
}

/* A thread for each queue that may wait for another. One of them runs in the caller's thread,
 * unless that must serve the others. */
static int threads_for(const queue *queues, const job *all) {
    int blocking = 0;
    for (const queue *q = queues; q; q = q->next) blocking += q->blocks;
    return blocking > 1 ? blocking - !must_serve(all) : 0;
}

static symmResult_t start_thread(queue *q, gate *g) {
    q->gate = g;
    q->threaded = 1; /* before its thread looks */
    int e =
        SYMM_FAIL_CODE(group_thread, EAGAIN, pthread_create(&q->thread, NULL, run_behind_gate, q));
    if (e) {
        q->threaded = 0;
        return SYMM_ERR(symmSystemError,
                        "cannot start a thread for a communicator of the group: %s; none of its "
                        "calls has run",
                        strerror(e));
    }
    pthread_mutex_lock(&g->lock);
    g->threads++;
    pthread_mutex_unlock(&g->lock);
    return symmSuccess;
}

/* Those that would rather stay come last. */
static symmResult_t start_threads(queue *queues, int wanted, gate *g) {
    for (int stays = 0; stays < 2; stays++)
        for (queue *q = queues; q && wanted; q = q->next) {
            if (!q->blocks || q->stays != stays) continue;
            wanted--;
            SYMM_TRY(start_thread(q, g));
        }
    return symmSuccess;
}

static void open_gate(gate *g, int state) {
    pthread_mutex_lock(&g->lock);
    g->state = state;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static job *handed(queue *queues) {
    for (queue *q = queues; q; q = q->next)
        if (q->handed) return q->handed;
    return NULL;
}

/* What the program wants done while this thread's calls wait (symmSetProgress) is this thread's to
 * do: those of the group have nothing set. */
static void poll_once(gate *g) {
    pthread_mutex_unlock(&g->lock);
    (void)symm_progress_turn();
    sched_yield();
    pthread_mutex_lock(&g->lock);
}

/* Makes the calls that the queues' threads may not make, until all threads have ended. */
static void serve_queues(queue *queues, gate *g) {
    const int polls = symm_progress_turn();
    pthread_mutex_lock(&g->lock);
    while (g->threads) {
        job *j = handed(queues);
        if (!j) {
            if (polls)
                poll_once(g);
            else
                pthread_cond_wait(&g->moved, &g->lock);
            continue;
        }
        pthread_mutex_unlock(&g->lock);
        run_job(j);
        pthread_mutex_lock(&g->lock);
        j->queue->handed = NULL;
        pthread_cond_broadcast(&g->moved);
    }
    pthread_mutex_unlock(&g->lock);
}

static int has_stays(const queue *queues) {
    while (queues && !queues->stays) queues = queues->next;
    return queues != NULL;
}

/* All or nothing: half a group could wait for the other half for ever. Jobs that only give work to
 * streams run first, because the others may wait for it. They run in the order of the calls, across
 * communicators: on one stream this is the order that a rank without a group has too. */
static symmResult_t run_queues(queue *queues, job *all) {
    gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, SHUT, 0, symm_stream_inside()};
    if (has_stays(queues) && must_serve(all))
        return SYMM_ERR(symmNotSupported,
                        "a group with a call of a communicator over several domains may have none "
                        "on a per-thread stream: both need this thread");
    symmResult_t status = start_threads(queues, threads_for(queues, all), &g);
    const int threads = g.threads; /* no thread has passed the gate, so nobody else writes it */
    for (job *j = all; j && !status; j = j->later)
        if (!j->joined && !j->queue->blocks && goes_on(j->queue)) run_job(j);
    if (threads) open_gate(&g, status ? CALLED_OFF : OPEN);
    for (queue *q = queues; q && !status; q = q->next)
        if (q->blocks && !q->threaded) run_queue(q);
    if (threads) serve_queues(queues, &g);
    for (queue *q = queues; q; q = q->next)
        if (q->threaded) {
            pthread_join(q->thread, NULL);
            symm_driver_take((symmComm_t)(uintptr_t)q->key); /* on whose behalf it called */
        }
    pthread_cond_destroy(&g.moved);
    pthread_mutex_destroy(&g.lock);
    return status;
}

/* What a call that was refused makes of the group. */
static symmResult_t refused(void) {
    if (group.error) symm_status_adopt(group.text);
    return group.error;
}

static void free_queues(queue *queues) {
    for (queue *q = queues, *next; q; q = next) {
        next = q->next;
        free(q);
    }
}

symmResult_t symmGroupEnd(void) {
    queue *queues = NULL;
    if (group.depth == 0) return SYMM_ERR(symmInvalidUsage, "symmGroupEnd without symmGroupStart");
    if (--group.depth) return symmSuccess;
    job *all = close_group();
    symmResult_t result = refused();
    if (!result) result = sort_jobs(&queues, all);
    if (!result) result = run_queues(queues, all);
    for (queue *q = queues; q; q = q->next)
        if (q->result && (!result || result == symmInProgress)) {
            result = q->result;
            if (q->text[0]) symm_status_adopt(q->text);
        }
    free_queues(queues);
    free_jobs(all);
    return result;
}

symmResult_t symmGroupDiscard(void) {
    if (group.depth == 0)
        return SYMM_ERR(symmInvalidUsage, "symmGroupDiscard without symmGroupStart");
    group.depth = 0;
    free_jobs(close_group());
    return symmSuccess;
}

/* ---- what the end would do ------------------------------------------------------------------- */

/* Behind the text, or not at all: what is left out is counted in the last line. */
static void append(char *text, size_t cap, int *left_out, const char *line) {
    const size_t at = strlen(text), last_line = 40;
    if (*left_out || at + strlen(line) + 1 + last_line > cap)
        ++*left_out;
    else
        snprintf(text + at, cap - at, "%s\n", line);
}

static symmResult_t tell_job(const job *j, symmGroupInfo_t *info, int *left_out) {
    symm_job_tale tale = {.calls = 1, .text = "set-up"};
    if (j->row) SYMM_TRY(j->row->tell(j->args, &tale));
    SYMM_ASSERT(tale.calls > 0 && tale.kernels <= tale.calls && tale.messages <= tale.calls);
    SYMM_ASSERT(!strchr(tale.text, '\n'));
    info->jobs++;
    info->calls += tale.calls;
    info->messages += tale.messages;
    info->kernels += tale.kernels;
    if (!j->row) info->setups++;
    append(info->text, sizeof info->text, left_out, tale.text);
    return symmSuccess;
}

static symmResult_t tell_jobs(const queue *queues, const job *all, symmGroupInfo_t *info) {
    int left_out = 0;
    for (const job *j = all; j; j = j->later)
        if (!j->joined) SYMM_TRY(tell_job(j, info, &left_out));
    info->threads = threads_for(queues, all);
    const size_t at = strlen(info->text);
    if (left_out) snprintf(info->text + at, sizeof info->text - at, "... and %d more\n", left_out);
    return symmSuccess;
}

/* As it was before sort_jobs. */
static void unsort_jobs(job *all) {
    for (job *j = all; j; j = j->later) {
        j->next = j->joined = NULL;
        j->queue = NULL;
        settle(j);
    }
}

symmResult_t symmGroupSimulateEnd(symmGroupInfo_t *info) {
    if (group.depth == 0)
        return SYMM_ERR(symmInvalidUsage, "symmGroupSimulateEnd without symmGroupStart");
    if (!symm_sized_holds(info, sizeof *info))
        return SYMM_ERR(symmInvalidArgument, "info is %s", info ? SYMM_NO_SIZE : "NULL");
    SYMM_TRY(refused());
    SYMM_ASSERT(!*group.last);
    queue *queues = NULL;
    symmGroupInfo_t told = {.size = info->size};
    *group.last = group.behind;
    symmResult_t r = sort_jobs(&queues, group.first);
    if (!r) r = tell_jobs(queues, group.first, &told);
    unsort_jobs(group.first);
    *group.last = NULL;
    free_queues(queues);
    if (!r) symm_sized_answer(info, &told, sizeof told);
    return r;
}
