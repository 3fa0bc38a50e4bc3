/* group.c - the queue of a group, and running it so that one thread can drive several ranks.
 * Per thread; the threads that End starts are joined before it returns. No lock. */
#include "group.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"

#define JOB_BYTES 256

typedef struct job {
    struct job *next;
    const void *key;
    int blocks;
    symm_job_fn fn;
    _Alignas(16) char args[JOB_BYTES];
} job;

typedef struct lane { /* the jobs of one communicator, in order */
    struct lane *next;
    const void *key;
    int blocks, threaded;
    job *first, **last;
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
    job *j = bytes <= JOB_BYTES ? malloc(sizeof *j) : NULL;
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
    if (!*at && (*at = calloc(1, sizeof **at))) {
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

/* Several communicators that may wait for each other: a thread each, but the last runs here. */
static void run_lanes(lane *lanes) {
    int blocking = 0;
    for (lane *l = lanes; l; l = l->next)
        if (l->blocks)
            blocking++;
        else
            run_lane(
                l); /* what only gives work to streams goes first: the others may wait for it */
    for (lane *l = lanes; l; l = l->next) {
        if (!l->blocks || --blocking == 0) continue;
        l->threaded = pthread_create(&l->thread, NULL, run_lane, l) == 0;
        if (!l->threaded)
            l->result = SYMM_ERR(symmSystemError, "no thread for a communicator of the group");
    }
    for (lane *l = lanes; l; l = l->next)
        if (l->blocks && !l->threaded && !l->result) run_lane(l);
    for (lane *l = lanes; l; l = l->next)
        if (l->threaded) pthread_join(l->thread, NULL);
}

symmResult_t symmGroupEnd(void) {
    lane *lanes = NULL, *next;
    if (group.depth == 0) return SYMM_ERR(symmInvalidUsage, "symmGroupEnd without symmGroupStart");
    if (--group.depth) return symmSuccess;
    job *rest = group.first;
    symmResult_t result = group.error;
    if (result) symm_status_adopt(group.text);
    if (!result) result = sort_jobs(&lanes, &rest);
    if (!result) run_lanes(lanes);
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
