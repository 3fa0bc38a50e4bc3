/* stream_int.h - what the files of this folder share. They call each other in one direction:
 * stream.c (the queue and its worker) is lowest, then graph.c (recorded work and its replay),
 * capture.c (recording), event.c and submit.c. Any thread.
 * Lock order: event, then set-up; graph, then stream. No lock is held while a task runs or an
 * object is retained or released. */
#ifndef SYMM_STREAM_INT_H_
#define SYMM_STREAM_INT_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "base/handle.h"
#include "stream.h"

struct symm_capture;

struct symm_task {
    symm_task_fn fn;
    size_t bytes;
    _Alignas(64) unsigned char args[SYMM_TASK_BYTES];
};

struct symm_stream {
    symmStream_t handle;
    pthread_t thread;
    pthread_mutex_t lock;      /* all below but the atomics' readers */
    pthread_cond_t work, idle; /* the worker sleeps on work, waiters for a task count on idle */
    struct symm_task *ring;
    size_t cap;                 /* a power of two */
    uint64_t taken;             /* tasks the worker has begun */
    _Atomic uint64_t submitted; /* written under the lock, read anywhere */
    _Atomic uint64_t done;
    int asleep, waiters, stop;
    symmResult_t error; /* first one since the last synchronize */
    char error_text[SYMM_ERR_TEXT];
    _Atomic(struct symm_capture *) capture; /* set-up lock; a look without it is a hint */
    int lane;                               /* of the capture; set-up lock */
};

/* Greater than 0 in a thread that runs a task for a worker or a replay: it must not wait. */
extern _Thread_local int symm_stream_depth;

/* Asserts what holds of a stream's queue. Under its lock. */
void symm_tasks_check(const struct symm_stream *s);
/* A pinned stream (not NULL), to be unpinned; symmInvalidArgument naming the value. */
symmResult_t symm_stream_pin(symmStream_t s, struct symm_stream **out);
void symm_stream_unpin(struct symm_stream *s);
/* Queues a task on the worker, captured or not. */
symmResult_t symm_stream_push(struct symm_stream *s, symm_task_fn fn, const void *args,
                              size_t bytes);
/* A thread of the library: named, counted, deaf to the program's signals. */
symmResult_t symm_stream_thread(pthread_t *thread, void *(*fn)(void *), void *arg,
                                const char *name);
/* Waits up to a few microseconds for *count to reach at least `until`; not at all where there is
 * only one core. */
int symm_stream_spin(const _Atomic uint64_t *count, uint64_t until);

void symm_order_reach(symm_order o);

/* ---- graph.c: recorded work ------------------------------------------------------------------ */

struct symm_step {
    struct symm_task task; /* fn NULL: wait until `upto` steps of lane `lane` are done */
    int lane;
    size_t upto;
};

/* For each lane: how many of its tasks come before a point. Lanes beyond n: none. */
struct symm_clock {
    size_t *tasks;
    int n;
};

struct symm_lane {
    struct symm_step *steps;
    size_t n, cap;
    size_t tasks;               /* steps that are no waits */
    struct symm_stream *stream; /* while captured; NULL: copied from another graph */
    struct symm_clock before;   /* while captured: what the lane's next step comes after */
    struct symm_graph *graph;
    pthread_t thread; /* lane 0 runs in the launching stream */
    uint64_t done;    /* steps over all replays; the graph's lock */
};

/* One reference of a graph to an object. */
struct symm_hold {
    struct symm_hold *next;
    void *obj;
    symm_graph_user user;
};

struct symm_graph {
    symmGraph_t handle;
    atomic_int refs;  /* handles whose slots are not free: of the graph and its executables */
    uint64_t capture; /* that it was made by */
    struct symm_hold *told, *held; /* objects that are told of launches; only kept */
    struct symm_lane *lanes;
    int nlanes, threads;  /* lanes 1..threads have theirs */
    pthread_mutex_t lock; /* all below */
    pthread_cond_t moved;
    uint64_t tickets, serving; /* replays launched, replays ended; they run in this order */
    uint64_t started;          /* replays begun: lanes with a thread follow this */
    int copies;                /* captures that are copying it now */
    int users;                 /* open handles */
    int closed;                /* an executable has been closed: launches look at the handle */
    int stop;
    symmResult_t error; /* first one of the running replay */
    char error_text[SYMM_ERR_TEXT];
};

/* Asserts what holds of a sealed graph's replays, under its lock. With `steps` of all that was
 * recorded too. */
void symm_graph_check(const struct symm_graph *g, int steps);
/* Under construction a graph belongs to its capture. NULL: no memory. */
struct symm_graph *symm_graph_new(void);
/* The new lane's number, or -1: no memory. */
int symm_graph_add_lane(struct symm_graph *g, struct symm_stream *stream);
/* Room for n more steps; -1: no memory. */
int symm_graph_reserve(struct symm_lane *lane, size_t n);
/* Makes it launchable. On failure the graph is as before. */
symmResult_t symm_graph_seal(struct symm_graph *g, symmGraph_t *handle);
/* Ends the lanes' threads, releases what the graph holds and frees it. */
void symm_graph_discard(struct symm_graph *g);
/* A graph that becomes part of another: copies of its list `from` are put before *copies (-1: no
 * memory; the caller drops them), and later behind the other graph's list. */
int symm_graph_copy_holds(const struct symm_hold *from, struct symm_hold **copies);
void symm_graph_take_holds(struct symm_hold **list, struct symm_hold *more);
void symm_graph_drop_holds(struct symm_hold *holds);
/* Retains or releases every object that the graph holds. */
void symm_graph_retain(const struct symm_graph *g);
void symm_graph_release(const struct symm_graph *g);
/* Whether the graph tells obj (NULL: anybody) of its launches, as that user. */
int symm_graph_told(const struct symm_graph *g, const void *obj, const symm_graph_user *user);
/* A pinned executable; symmInvalidArgument naming the call. */
symmResult_t symm_graph_pin_exec(const char *call, symmGraphExec_t handle, struct symm_graph **out);
void symm_graph_unpin_exec(symmGraphExec_t exec);
symmResult_t symm_graph_being_destroyed(const void *handle);
/* Runs the replay of this ticket, once its turn has come, and gives the turn to the next. */
symmResult_t symm_graph_replay(struct symm_graph *g, uint64_t ticket);
/* 1 if the calling thread is inside a replay of this graph. */
int symm_graph_replays_here(const struct symm_graph *g);

/* ---- capture.c ------------------------------------------------------------------------------- */

/* Where an event was recorded inside a capture. */
struct symm_capture_mark {
    uint64_t capture; /* 0: not inside one */
    int lane;
    size_t steps;
    struct symm_clock before;
};

/* These return 0 if s is not (or no longer) under capture; then nothing was done and *status is not
 * written. */
int symm_capture_record(struct symm_stream *s, const struct symm_step *step, symmResult_t *status);
int symm_capture_copy(struct symm_stream *s, struct symm_graph *g, symmResult_t *status);
int symm_capture_event(struct symm_stream *s, struct symm_capture_mark *mark, symmResult_t *status);
/* s comes after the mark; a stream that was not under capture joins it. */
symmResult_t symm_capture_join(struct symm_stream *s, const struct symm_capture_mark *mark);

#endif
