/* group.h - calls queued between symmGroupStart and symmGroupEnd. Per thread; no lock. */
#ifndef SYMM_GROUP_H_
#define SYMM_GROUP_H_

#include <stdatomic.h>

#include "machine/thread.h"
#include "types.h"

typedef symmResult_t (*symm_job_fn)(void *args);

/* BLOCKS: the job may wait for peers inside the call (set-up, inline kernels). Jobs of several
 * communicators then need a thread each, or they would wait for each other. STREAM: it only gives
 * work to a stream. HERE: the same, but only the caller's thread may do it (per-thread stream).
 * STAYS: as BLOCKS, but in the caller's thread, as it may be that no other thread is allowed what
 * it needs. A group has such jobs of one key alone, and then none that are HERE beside jobs that
 * block: else it is refused. */
enum { SYMM_JOB_STREAM = 0, SYMM_JOB_BLOCKS = 1, SYMM_JOB_HERE = 2, SYMM_JOB_STAYS = 3 };

/* Runs fn(args) now, or, inside a group, copies args and queues it for key's
 * communicator. Creation passes a key of its own, e.g. the address that the handle goes to. */
symmResult_t symm_group_run(const void *key, int kind, symm_job_fn fn, const void *args,
                            size_t bytes);
/* Runs fn(args) as if no group were open: a graph that is replayed in the midst of one runs at
 * once, and so do the calls that its calls are made of. */
symmResult_t symm_group_apart(symm_job_fn fn, void *args);
/* What a job says of itself to symmGroupSimulateEnd. text: a line, without its end. */
typedef struct {
    int calls, messages, kernels;
    char text[400];
} symm_job_tale;
/* What is known of a job. run: as fn above. tell: what it would do, as it stands.
 * drop (may be NULL): frees what it holds when the group is over, whether it ran or not.
 * settle (may be NULL): the args have their place for good, and are a job by themselves; also after
 * a simulation, which joins jobs as the end does.
 * join (may be NULL): the args of the next job of the same key become part of these; 1, or 0 where
 * they stay a job. Jobs that only give work to streams are asked only if no other job of the same
 * stream stands in between.
 * check (may be NULL): behind all joins, before any job runs. After an error none does. */
typedef struct {
    symm_job_fn run;
    symmResult_t (*tell)(const void *args, symm_job_tale *tale);
    void (*drop)(void *args);
    void (*settle)(void *args);
    int (*join)(void *first, void *second);
    symmResult_t (*check)(const void *args);
} symm_job_row;
/* For calls that run as one, behind all others of key's communicator in the group: its job, made by
 * the first of them. *args: its record of `bytes`, zero at first. kind is that of this call. Pre: a
 * group is open. */
symmResult_t symm_group_behind(const void *key, int kind, const symm_job_row *row, size_t bytes,
                               void **args);
/* As symm_group_run inside a group, for a job of that stream, and args of any size. */
symmResult_t symm_group_join(const void *key, int kind, symmStream_t stream,
                             const symm_job_row *row, const void *args, size_t bytes);
/* A call was refused with r. Inside a group, symmGroupEnd then runs nothing and returns r, because
 * half a group could wait for the other half for ever. Returns r. */
symmResult_t symm_group_refuse(symmResult_t r);
/* For a local call, which runs at once. If calls of the same communicator are queued in the group,
 * it would run before them: symmInvalidUsage, and symmGroupEnd runs none. Else symmSuccess. */
symmResult_t symm_group_refuse_beside(const void *key, const char *call);
/* How many of the threads that share a slot have a group open. */
typedef struct {
    _Alignas(64) _Atomic int n;
} symm_open_groups;
extern symm_open_groups symm_groups[SYMM_THREAD_SLOTS];
/* The same for this thread exactly; slower, as it reads thread-local storage. */
int symm_group_is_open(void);
/* 1 between Start and End on this thread. Every collective asks. Relaxed is enough: a thread sees
 * its own additions. */
static inline int symm_group_open(void) {
    const symm_open_groups *here = &symm_groups[symm_thread_slot(symm_thread_self())];
    return __builtin_expect(atomic_load_explicit(&here->n, memory_order_relaxed) != 0, 0) &&
           symm_group_is_open();
}

#endif
