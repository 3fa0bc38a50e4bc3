/* group.c - the queue of a group, and running it so that one thread can drive several ranks.
 * Per thread; the threads that End starts are joined before it returns. Lock: the gate's, over
 * what they and the caller tell each other. */
#include "group.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "driver.h"

#define JOB_BYTES 256

typedef struct job {
    struct job *next;  /* of its lane */
    struct job *later; /* in the order of the calls */
    struct lane *lane;
    const void *key;
    int kind;
    symm_job_fn fn;
    _Alignas(16) char args[JOB_BYTES];
} job;

typedef struct { /* what the threads of a group wait at until all of them are there */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    enum { SHUT, OPEN, CALLED_OFF } state; /* under lock, as the rest */
    int threads;                           /* that have not ended */
} gate;

typedef struct lane { /* the jobs of one communicator, in order */
    struct lane *next;
    const void *key;
    int blocks, threaded;
    job *first, **last;
    gate *gate;
    job *handed; /* to the caller's thread, which this one waits for; under the gate's lock */
    pthread_t thread;
    symmResult_t result;
    char text[SYMM_ERR_TEXT];
} lane;

static _Thread_local struct {
    int depth;
    job *first, **last;
    symmResult_t error;
    char text[SYMM_ERR_TEXT]; /* of error */
} group;

symm_open_groups symm_groups[SYMM_THREAD_SLOTS];

static _Atomic int *open_here(void) {
    return &symm_groups[symm_thread_slot(symm_thread_self())].n;
}

int symm_group_is_open(void) {
    return group.depth > 0;
}

symmResult_t symm_group_run(const void *key, int kind, symm_job_fn fn, const void *args,
                            size_t bytes) {
    if (__builtin_expect(!symm_group_open(), 1)) return fn((void *)(uintptr_t)args);
    job *j = bytes <= JOB_BYTES ? SYMM_FAIL_ALLOC(group_job, malloc(sizeof *j)) : NULL;
    if (!j)
        return symm_group_refuse(SYMM_ERR(symmOutOfMemory, "no memory to queue a call in a group"));
    *j = (job){.key = key, .kind = kind, .fn = fn};
    memcpy(j->args, args, bytes);
    *group.last = j;
    group.last = &j->later;
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
    for (const job *j = group.first; j; j = j->later)
        if (j->key == key)
            return symm_group_refuse(SYMM_ERR(
                symmInvalidUsage,
                "%s: inside a group in which calls of this communicator stand, which run only at "
                "symmGroupEnd",
                call));
    return symmSuccess;
}

symmResult_t symmGroupStart(void) {
    if (group.depth++ == 0) {
        atomic_fetch_add_explicit(open_here(), 1, memory_order_relaxed);
        group.first = NULL;
        group.last = &group.first;
        group.error = symmSuccess;
    }
    return symmSuccess;
}

static void run_job(job *j) {
    lane *l = j->lane;
    symmResult_t r = j->fn(j->args);
    if (!r) return;
    l->result = r;
    memcpy(l->text, symm_status_text(), sizeof l->text);
}

/* A creation that goes on behind is no failure: the queue goes on as well. */
static int goes_on(const lane *l) {
    return !l->result || l->result == symmInProgress;
}

/* To the thread that made the call; this one waits until it is done. */
static void hand_over(job *j) {
    gate *g = j->lane->gate;
    pthread_mutex_lock(&g->lock);
    j->lane->handed = j;
    pthread_cond_broadcast(&g->moved);
    while (j->lane->handed) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void run_lane(lane *l) {
    for (job *j = l->first; j && goes_on(l); j = j->next)
        if (l->threaded && j->kind == SYMM_JOB_HERE)
            hand_over(j);
        else
            run_job(j);
}

static lane *lane_of(lane **lanes, const void *key) {
    lane **at = lanes;
    while (*at && (*at)->key != key) at = &(*at)->next;
    if (!*at && (*at = SYMM_FAIL_ALLOC(group_lane, calloc(1, sizeof **at)))) {
        (*at)->key = key;
        (*at)->last = &(*at)->first;
    }
    return *at;
}

static void free_jobs(job *j) {
    while (j) {
        job *later = j->later;
        free(j);
        j = later;
    }
}

/* Sorts the queue by communicator. The jobs stay in the order of the calls as well, and whoever
 * frees them goes by that. */
static symmResult_t sort_jobs(lane **lanes, job *all) {
    for (job *j = all; j; j = j->later) {
        lane *l = j->lane = lane_of(lanes, j->key);
        if (!l) return SYMM_ERR(symmOutOfMemory, "no memory to run a group");
        l->blocks |= j->kind == SYMM_JOB_BLOCKS;
        *l->last = j;
        l->last = &j->next;
    }
    return symmSuccess;
}

static void *run_behind_gate(void *arg) {
    lane *l = arg;
    pthread_mutex_lock(&l->gate->lock);
    while (l->gate->state == SHUT) pthread_cond_wait(&l->gate->moved, &l->gate->lock);
    int runs = l->gate->state == OPEN;
    pthread_mutex_unlock(&l->gate->lock);
    if (runs) run_lane(l);
    pthread_mutex_lock(&l->gate->lock);
    l->gate->threads--;
    pthread_cond_broadcast(&l->gate->moved);
    pthread_mutex_unlock(&l->gate->lock);
    return NULL;
}

/* Whether a lane that needs a thread has a call that only the caller's may make, which then must
 * have no lane of its own to wait in. */
static int must_serve(const job *all) {
    for (; all; all = all->later)
        if (all->kind == SYMM_JOB_HERE && all->lane->blocks) return 1;
    return 0;
}

/* A thread for each lane that may wait for another, but for one, which runs in the caller's where
 * that has nothing else to do. */
static symmResult_t start_threads(lane *lanes, int serve, gate *g) {
    int blocking = 0;
    for (lane *l = lanes; l; l = l->next) blocking += l->blocks;
    if (blocking > 1) blocking += serve;
    for (lane *l = lanes; l; l = l->next) {
        if (!l->blocks || --blocking == 0) continue;
        l->gate = g;
        l->threaded = 1; /* before its thread looks */
        int e = SYMM_FAIL_CODE(group_thread, EAGAIN,
                               pthread_create(&l->thread, NULL, run_behind_gate, l));
        if (e) {
            l->threaded = 0;
            return SYMM_ERR(symmSystemError,
                            "cannot start a thread for a communicator of the group: %s; none of "
                            "its calls has run",
                            strerror(e));
        }
        pthread_mutex_lock(&g->lock);
        g->threads++;
        pthread_mutex_unlock(&g->lock);
    }
    return symmSuccess;
}

static void open_gate(gate *g, int state) {
    pthread_mutex_lock(&g->lock);
    g->state = state;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

static job *handed(lane *lanes) {
    for (lane *l = lanes; l; l = l->next)
        if (l->handed) return l->handed;
    return NULL;
}

/* Makes the calls that the lanes' threads may not make, until all have ended. */
static void serve_lanes(lane *lanes, gate *g) {
    pthread_mutex_lock(&g->lock);
    while (g->threads) {
        job *j = handed(lanes);
        if (!j) {
            pthread_cond_wait(&g->moved, &g->lock);
            continue;
        }
        pthread_mutex_unlock(&g->lock);
        run_job(j);
        pthread_mutex_lock(&g->lock);
        j->lane->handed = NULL;
        pthread_cond_broadcast(&g->moved);
    }
    pthread_mutex_unlock(&g->lock);
}

/* All or nothing: half a group could wait for the other half for ever. What only gives work to
 * streams goes first: the others may wait for it. It goes in the order of the calls, whosever they
 * are: on one stream that is an order among communicators, and a rank that calls without a group
 * keeps the same. */
static symmResult_t run_lanes(lane *lanes, job *all) {
    gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, SHUT, 0};
    symmResult_t status = start_threads(lanes, must_serve(all), &g);
    const int threads = g.threads; /* none has come through the gate: nobody else writes it */
    for (job *j = all; j && !status; j = j->later)
        if (!j->lane->blocks && goes_on(j->lane)) run_job(j);
    if (threads) open_gate(&g, status ? CALLED_OFF : OPEN);
    for (lane *l = lanes; l && !status; l = l->next)
        if (l->blocks && !l->threaded) run_lane(l);
    if (threads) serve_lanes(lanes, &g);
    for (lane *l = lanes; l; l = l->next)
        if (l->threaded) {
            pthread_join(l->thread, NULL);
            symm_driver_take((symmComm_t)(uintptr_t)l->key); /* on whose behalf it called */
        }
    pthread_cond_destroy(&g.moved);
    pthread_mutex_destroy(&g.lock);
    return status;
}

symmResult_t symmGroupEnd(void) {
    lane *lanes = NULL, *next;
    if (group.depth == 0) return SYMM_ERR(symmInvalidUsage, "symmGroupEnd without symmGroupStart");
    if (--group.depth) return symmSuccess;
    atomic_fetch_sub_explicit(open_here(), 1, memory_order_relaxed);
    job *all = group.first;
    symmResult_t result = group.error;
    if (result) symm_status_adopt(group.text);
    if (!result) result = sort_jobs(&lanes, all);
    if (!result) result = run_lanes(lanes, all);
    for (lane *l = lanes; l; l = next) {
        next = l->next;
        if (l->result && (!result || result == symmInProgress)) {
            result = l->result;
            if (l->text[0]) symm_status_adopt(l->text);
        }
        free(l);
    }
    free_jobs(all);
    return result;
}
