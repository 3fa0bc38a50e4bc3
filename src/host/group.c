/* group.c - the queue of a group, and running it so that one thread can drive several ranks.
 * Per thread; the threads that End starts are joined before it returns. No lock. */
#include "group.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "log.h"

#define JOB_BYTES 256

typedef struct job {
    struct job *next;
    const void *key;
    int blocks;
    symm_job_fn fn;
    _Alignas(16) char args[JOB_BYTES];
} job;

typedef struct { /* what the threads of a group wait at until all of them are there */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    enum { SHUT, OPEN, CALLED_OFF } state; /* under lock */
} gate;

typedef struct lane { /* the jobs of one communicator, in order */
    struct lane *next;
    const void *key;
    int blocks, threaded;
    job *first, **last;
    gate *gate;
    pthread_t thread;
    symmResult_t result;
    char text[SYMM_ERR_TEXT];
} lane;

/* initial-exec: every collective looks at it. */
static __thread __attribute__((tls_model("initial-exec"))) struct {
    int depth;
    job *first, **last;
    symmResult_t error;
    char text[SYMM_ERR_TEXT]; /* of error */
} group;

int symm_group_open(void) {
    return group.depth > 0;
}

symmResult_t symm_group_run(const void *key, int blocks, symm_job_fn fn, const void *args,
                            size_t bytes) {
    if (__builtin_expect(group.depth == 0, 1)) return fn((void *)(uintptr_t)args);
    job *j = bytes <= JOB_BYTES ? SYMM_FAIL_ALLOC(group_job, malloc(sizeof *j)) : NULL;
    if (!j)
        return symm_group_refuse(SYMM_ERR(symmOutOfMemory, "no memory to queue a call in a group"));
    *j = (job){.key = key, .blocks = blocks, .fn = fn};
    memcpy(j->args, args, bytes);
    *group.last = j;
    group.last = &j->next;
    return symmSuccess;
}

symmResult_t symm_group_refuse(symmResult_t r) {
    if (group.depth && !group.error) {
        group.error = r;
        memcpy(group.text, symm_status_text(), sizeof group.text);
    }
    return r;
}

symmResult_t symmGroupStart(void) {
    if (group.depth++ == 0) {
        group.first = NULL;
        group.last = &group.first;
        group.error = symmSuccess;
    }
    return symmSuccess;
}

static void *run_lane(void *arg) {
    lane *l = arg;
    for (job *j = l->first; j && (!l->result || l->result == symmInProgress); j = j->next) {
        symmResult_t r = j->fn(j->args);
        if (r)
            l->result =
                r; /* a creation that goes on behind is no failure: the queue goes on as well */
    }
    memcpy(l->text, symm_status_text(), sizeof l->text);
    return NULL;
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
        job *next = j->next;
        free(j);
        j = next;
    }
}

/* Sorts the queue by communicator. On failure nothing is lost: the jobs stay in the lanes made so far and in `rest`. */
static symmResult_t sort_jobs(lane **lanes, job **rest) {
    while (*rest) {
        lane *l = lane_of(lanes, (*rest)->key);
        if (!l) return SYMM_ERR(symmOutOfMemory, "no memory to run a group");
        job *j = *rest;
        *rest = j->next;
        j->next = NULL;
        l->blocks |= j->blocks;
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
    return runs ? run_lane(l) : NULL;
}

/* A thread for each lane that may wait for another, but for one, which runs in the caller's. */
static symmResult_t start_threads(lane *lanes, gate *g) {
    int blocking = 0;
    for (lane *l = lanes; l; l = l->next) blocking += l->blocks;
    for (lane *l = lanes; l; l = l->next) {
        if (!l->blocks || --blocking == 0) continue;
        l->gate = g;
        int e = SYMM_FAIL_CODE(group_thread, EAGAIN,
                               pthread_create(&l->thread, NULL, run_behind_gate, l));
        if (e)
            return SYMM_ERR(symmSystemError,
                            "cannot start a thread for a communicator of the group: %s; none of "
                            "its calls has run",
                            strerror(e));
        l->threaded = 1;
    }
    return symmSuccess;
}

static void open_gate(gate *g, int state) {
    pthread_mutex_lock(&g->lock);
    g->state = state;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}

/* All or nothing: half a group could wait for the other half for ever. What only gives work to streams goes first: the others
 * may wait for it. */
static symmResult_t run_lanes(lane *lanes) {
    gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, SHUT};
    symmResult_t status = start_threads(lanes, &g);
    for (lane *l = lanes; l && !status; l = l->next)
        if (!l->blocks) run_lane(l);
    open_gate(&g, status ? CALLED_OFF : OPEN);
    for (lane *l = lanes; l && !status; l = l->next)
        if (l->blocks && !l->threaded) run_lane(l);
    for (lane *l = lanes; l; l = l->next)
        if (l->threaded) pthread_join(l->thread, NULL);
    pthread_cond_destroy(&g.moved);
    pthread_mutex_destroy(&g.lock);
    return status;
}

symmResult_t symmGroupEnd(void) {
    lane *lanes = NULL, *next;
    if (group.depth == 0) return SYMM_ERR(symmInvalidUsage, "symmGroupEnd without symmGroupStart");
    if (--group.depth) return symmSuccess;
    job *rest = group.first;
    symmResult_t result = group.error;
    if (result) symm_status_adopt(group.text);
    if (!result) result = sort_jobs(&lanes, &rest);
    if (!result) result = run_lanes(lanes);
    for (lane *l = lanes; l; l = next) {
        next = l->next;
        if (l->result && (!result || result == symmInProgress)) {
            result = l->result;
            if (l->text[0]) symm_status_adopt(l->text);
        }
        free_jobs(l->first);
        free(l);
    }
    free_jobs(rest);
    return result;
}
