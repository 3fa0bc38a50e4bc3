/* stream.h - the host backend's streams, as the rest of the library uses them (users: symm.h, "host
 * streams"). Any thread may call anything here; the locks are inside, and no lock is held while a
 * task runs.
 *
 * Order. A stream is one worker thread: its tasks run one after the other, in the order in which
 * they were given to it. The first error of its tasks is kept until symmStreamSynchronize returns
 * it; later tasks run all the same, as a peer that did not fail runs them too.
 * The NULL stream is like one more stream that runs in whoever calls: its work has ended when the
 * call returns, and it is ordered with no other stream (unlike CUDA's legacy default stream). Use
 * events to order it.
 * A function that a worker or a graph replay runs must not wait for streams, events or graphs:
 * calls that would are refused with symmInvalidUsage instead of hanging. It may give more work.
 *
 * Capture. It begins on one stream; another one joins by waiting for an event recorded inside, and
 * must be waited for in turn before the end. Each stream is a lane of the graph: lanes replay at
 * the same time (ranks of one process that wait for each other may share a graph), steps of a lane
 * in order, replays of one graph one by one.
 * A captured call neither waits for eager work nor is waited for: whoever replays orders the
 * replay. So who keeps a symm_order per communicator leaves it alone while symm_stream_capturing.
 *
 * Handles are not addresses: a stale or invented one is recognised, and is answered with
 * symmInvalidArgument. In a forked child every inherited handle is stale. */
#ifndef SYMM_STREAM_H_
#define SYMM_STREAM_H_

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Runs on a worker (or inline for the NULL stream). args: a copy of its own, aligned to 64 bytes,
 * that it may change; on the NULL stream the submitter's args themselves. */
typedef symmResult_t (*symm_task_fn)(void *args);
#define SYMM_TASK_BYTES 512

/* Gives one task to a stream; args (bytes <= SYMM_TASK_BYTES) are copied before it returns.
 * NULL stream: runs fn at once and returns its result.
 * Stream under capture: fn is recorded, not run. What it needs is held by the graph
 * (symm_stream_capture_hold, before this call).
 * Errors: symmInvalidArgument (no such stream, too many bytes), symmOutOfMemory. The task was then
 * not taken. A capture that lost a task for want of memory is discarded at its end. */
symmResult_t symm_stream_submit(symmStream_t s, symm_task_fn fn, const void *args, size_t bytes);
/* The same for a task that must be recorded: symmInvalidUsage if another thread has ended the
 * capture meanwhile. */
symmResult_t symm_stream_record(symmStream_t s, symm_task_fn fn, const void *args, size_t bytes);
/* The same for a task whose caller has found s under no capture, and so holds nothing for a graph:
 * if another thread has begun one meanwhile, the task runs, as if given before. */
symmResult_t symm_stream_run(symmStream_t s, symm_task_fn fn, const void *args, size_t bytes);

/* 1 while calls given to s are recorded; 0 for the NULL stream and for what is no stream. Never
 * logs. */
int symm_stream_capturing(symmStream_t s);
/* -1: s is no stream; 0: calls given to it run; 1: they are recorded, and *capture is the capture's
 * id, unique in the process. NULL runs. Never logs. No other thread destroys s meanwhile: it is
 * not pinned. */
int symm_stream_capture(symmStream_t s, uint64_t *capture);
/* Where s stands inside its capture: for each stream of it how many of its calls come before what s
 * is given next. *counts: the caller's to free. Two points are in order if no count of the one
 * exceeds the other's. 0; -1: no memory, or no capture. */
int symm_stream_capture_clock(symmStream_t s, size_t **counts, int *n);
/* Both are recorded into one capture: what s is given next comes behind what `last` has, as by an
 * event. */
symmResult_t symm_stream_follow_captured(symmStream_t s, symmStream_t last);
/* An object that a graph holds. retain is called when the graph takes it, release when the graph is
 * gone: destroyed with all its executables, or a capture that was discarded. A graph that is
 * launched into another capture becomes part of that graph, which then holds the object too.
 * The others may be NULL; if begin is there, the graph tells of its launches. begin: before each
 * one, and an error refuses it. end: when that launch has ended, in the thread that ran it. allow:
 * whether the graph may become part of another. at_once is for GPUs, where CUDA tells of a graph's
 * end in a thread of its own: release calls nothing of CUDA's, so it is called there. */
typedef struct {
    void (*retain)(void *obj);
    void (*release)(void *obj);
    symmResult_t (*begin)(void *obj);
    void (*end)(void *obj);
    symmResult_t (*allow)(void *obj);
    int at_once;
} symm_graph_user;
/* The graph that s is recorded into holds obj: once per call, or once per capture if user->begin is
 * there. Errors: symmInvalidUsage without a capture, symmOutOfMemory. */
symmResult_t symm_stream_capture_hold(symmStream_t s, void *obj, const symm_graph_user *user);
/* Whether an executable tells obj of its launches, as that user (obj NULL: anybody): 1 or 0;
 * -1: it is no live executable. */
int symm_graph_tells(symmGraphExec_t exec, const void *obj, const symm_graph_user *user);
/* The capture that a graph was made by; 0 for what is no live graph. */
uint64_t symm_graph_capture(symmGraph_t graph);
/* A call to s was lost for want of memory: a graph without it would be wrong, so its capture will
 * not become one. */
void symm_stream_lose_capture(symmStream_t s);

/* symmInvalidUsage naming the call if this thread runs a task for a worker or a replay: it must not
 * wait. */
symmResult_t symm_stream_may_wait(const char *call);
/* How deep this thread is in such tasks; 0: in none. A thread that makes calls for this one, which
 * waits for it, takes that over: it must not wait either. */
int symm_stream_inside(void);
void symm_stream_take_inside(int depth);

/* symmInvalidArgument, naming the value, if s is neither NULL nor a live stream. */
symmResult_t symm_stream_check(symmStream_t s);

/* An order point: everything given to a stream so far. A value: copy it freely, nothing is held.
 * All zero: reached. */
typedef struct {
    symmStream_t stream;
    uint64_t tasks;
} symm_order;

/* The point after everything given to s so far, captured calls excepted. A stream that is gone has
 * ended all its work: the point is then reached already. Never fails. */
void symm_order_take(symmStream_t s, symm_order *o);
/* Work given to s later starts after the point. NULL s: the caller waits here. Costs nothing if the
 * point is reached, or is of s itself; does nothing if s is under capture. symmInvalidUsage if a
 * task would have to wait here. */
symmResult_t symm_order_wait(symmStream_t s, symm_order o);
/* The same, but symmInvalidUsage if s is under capture and the point is not reached. */
symmResult_t symm_order_follow(symmStream_t s, symm_order o);
/* 1 if what the point stands for has ended; then all that it wrote is visible. Never waits. */
int symm_order_reached(symm_order o);
/* Forgets the point: *o is reached. */
void symm_order_drop(symm_order *o);

#endif
