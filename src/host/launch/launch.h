/* launch.h - how a call that is ready reaches a kernel: one launcher for the host backend, one for
 * GPUs, and the order between calls, which both share. The communicator's user thread. */
#ifndef SYMM_LAUNCH_H_
#define SYMM_LAUNCH_H_

#include "host/coll/coll.h"
#include "host/gpu/hold.h"

extern const symm_launcher symm_launch_host, symm_launch_gpu;

static inline symmResult_t symm_launch_may_capture(symm_comm *c, symmStream_t stream) {
    return c->order.observer ? c->order.observer->may_capture(c, stream) : symmSuccess;
}
static inline void symm_launch_observe(symm_comm *c, const symm_observer *o) {
    c->order.observer = o;
}

/* ---- host_task.c: what calls of the host backend share --------------------------------------- */

/* What a captured call asks of its graph: it tells the communicator of its launches. */
extern const symm_graph_user symm_launch_replayed;
/* Whether a task may run: its communicator lives. */
symmResult_t symm_launch_may_run(symm_comm *c);

/* A kernel of the program begins: the end of the communicator waits until it has ended. An error:
 * the communicator is over, and it does not begin. Any thread. */
symmResult_t symm_launch_begins(symm_comm *c);
void symm_launch_ended(symm_comm *c);
/* How many kernels of the program this thread is in. */
int symm_launch_inside(void);

typedef struct { /* a call that is captured */
    symm_task_fn fn;
    void *args; /* copied */
    size_t bytes;
    const char *what; /* for texts */
    int hears;        /* every rank hears from every rank in it */
    void *kept;       /* what the graph has to hold; NULL: there was no memory for it */
    const symm_graph_user *held;
} symm_host_task;
/* Records it, behind the communicator's other calls of that capture. The graph takes its own
 * reference of `kept`. */
symmResult_t symm_host_task_capture(symm_comm *c, const symm_host_task *t, symmStream_t stream);
/* A call in which not all ranks hear from each other was given to the stream, or has run (NULL). */
symmResult_t symm_host_task_given(symm_comm *c, symmStream_t stream);
/* Memory of a peer that should have been there, in words. */
void symm_host_task_unreachable(const symm_outcome *o, char *text, size_t cap);
/* What a kernel left behind becomes the communicator's error. call: in words; alone: in words, of a
 * wait that this rank alone could have ended. */
symmResult_t symm_host_task_left(symm_comm *c, const symm_outcome *left, const char *call,
                                 const char *alone);

/* ---- streams.c: one call for several streams ------------------------------------------------- */

/* It runs on this one: on the host backend on NULL if that is among them, as its work ends in the
 * call. */
symmStream_t symm_streams_lead(const symm_comm *c, const symmStream_t *streams, int n);
/* What `lead` is given next comes behind all that the others have. symmInvalidUsage where not all
 * are recorded into one capture, or none is. in, m: on GPUs what captures the lead, and a mark that
 * the caller ends. */
symmResult_t symm_streams_gather(symm_comm *c, symmStream_t lead, const symmStream_t *streams,
                                 int n, const symm_gpu_capture *in, symm_mark *m);
/* The others come behind all that `lead` has. */
symmResult_t symm_streams_scatter(const symm_comm *c, symmStream_t lead,
                                  const symmStream_t *streams, int n, symm_mark *m);

/* ---- launch_host.c, launch_messages.c, launch_onesided.c: the host backend ------------------- */

symmResult_t symm_launch_messages(symm_comm *c, symm_p2p_list *list, const symmStream_t *streams,
                                  int nstreams);

/* Waits of a call that a task holds. */
enum { SYMM_ONESIDED_WAITS = 8 };
symmResult_t symm_launch_onesided(symm_comm *c, const symm_onesided_call *call,
                                  symmStream_t stream);
/* Whether the copy is to be made: nothing is put to a rank that has left, as the memory of its
 * windows is its program's again. */
int symm_onesided_copies(const symm_comm *c, const symm_onesided *op);
/* `unused` of symm_launcher. */
symmResult_t symm_signals_unused(const symm_comm *c, int peer, int first, int n, uint64_t *count);

/* ---- message_plan.c -------------------------------------------------------------------------- */

typedef struct {
    int ctas, threads;
} symm_message_grid;
/* GPUs: of a list in so many channels. a: what its calls have in common. */
symm_message_grid symm_launch_message_grid(const symm_comm *c, const symm_args *a,
                                           const symm_p2p_op *ops, int n, int channels);
/* The same of a put or a get. */
symm_message_grid symm_launch_copy_grid(const symm_comm *c, uint64_t bytes);
/* tell_message of symm_launcher, both backends. */
void symm_launch_tell_message(symm_comm *c, const symm_args *a, const symm_p2p_op *op,
                              const symm_win *win, symmExplain_t *plan);

/* ---- launch_kernel.c, launch_*_gpu.c: GPUs, with the context current ------------------------- */

typedef struct {
    cu_kernel kernel;
    int ctas, threads;
    int overlap; /* SYMM_GRID_ */
} symm_gpu_grid;
/* Whether a kernel may overlap its predecessor. ALONE: it does not, and its few CTAs do not count
 * for its successors. BEHIND: it does not, and they do. */
enum { SYMM_GRID_OVERLAPS, SYMM_GRID_ALONE, SYMM_GRID_BEHIND };
/* Launches a kernel of the communicator with these arguments, which the driver copies.
 * capture: of the stream, 0 none. */
symmResult_t symm_launch_kernel(symm_comm *c, const symm_gpu_grid *grid, void **args,
                                symmStream_t stream, uint64_t capture);
/* The serial number of the next eager call. */
uint32_t symm_launch_serial(const symm_comm *c);
/* Shows the other ranks the stream of this one's call, before it looks at theirs: those that are
 * threads on one GPU need streams of their own. As a number that no other thread's stream has. */
uint64_t symm_launch_show_stream(const symm_comm *c, symmStream_t stream);
/* Whether the stream may have a call, and what captures it. */
symmResult_t symm_launch_look(symm_comm *c, symmStream_t stream, symm_gpu_capture *in);
/* A communicator that pins holds the window; NULL: there is none. */
symmResult_t symm_launch_pin(symm_comm *c, symm_win *w);
/* A graph holds `kept`, made for the call: its one reference is given back. NULL: there was no
 * memory. what: the call, in words. */
symmResult_t symm_launch_hold(symm_comm *c, const symm_gpu_capture *in, void *kept,
                              const symm_graph_user *held, const char *what);
/* r, of a call. Where it is no fault of the call, and the call was eager, the communicator is
 * broken: other ranks wait for a kernel that does not come. */
symmResult_t symm_launch_result(symm_comm *c, symmResult_t r, const symm_gpu_capture *in);

/* Calls in which not all ranks hear from each other, sends and receives or one-sided: they are not
 * counted, and have a serial number all the same. */
typedef struct {
    /* *ctas: of the kernel. serial: 0 of a captured one. */
    symmResult_t (*launch)(symm_comm *c, void *call, symmStream_t stream, uint64_t capture,
                           uint32_t serial, int *ctas);
    symmResult_t (*hold)(symm_comm *c, const symm_gpu_capture *in, void *call);
} symm_gpu_call;
/* Eager or captured, in order with the other calls. Ranks that are threads of this process on one
 * GPU must not use one stream in turn: a stream that another one has used last is refused. */
symmResult_t symm_launch_uncounted(symm_comm *c, const symm_gpu_call *kind, void *call,
                                   symmStream_t stream, const symm_gpu_capture *in);

symmResult_t symm_launch_messages_gpu(symm_comm *c, symm_p2p_list *list,
                                      const symmStream_t *streams, int nstreams);
symmResult_t symm_launch_onesided_gpu(symm_comm *c, const symm_onesided_call *call,
                                      symmStream_t stream);
/* `unused` of symm_launcher. */
symmResult_t symm_signals_unused_gpu(const symm_comm *c, int peer, int first, int n,
                                     uint64_t *count);

/* launch_copies.c: what goes before the kernel of a call by copy engines. */
symmResult_t symm_launch_copies(symm_comm *c, const symm_launch *l, symmStream_t stream,
                                const symm_gpu_capture *in);

/* ---- order.c: calls run in issue order. GPUs: the context is current ------------------------- */

symmResult_t symm_launch_change(symm_comm *c, symmStream_t stream);
/* What the stream is given next comes behind the communicator's last eager call. */
static inline symmResult_t symm_launch_follow(symm_comm *c, symmStream_t stream) {
    const symm_last *last = &c->order.eager;
    return stream == last->stream && !last->marked ? symmSuccess : symm_launch_change(c, stream);
}
/* And was given: later calls come behind it. An error is that of marking it. */
symmResult_t symm_launch_given(symm_comm *c, symmStream_t stream);
/* The same for calls of one capture, by edges of its graph. */
symmResult_t symm_captured_follow(symm_comm *c, uint64_t id, symmStream_t stream);
symmResult_t symm_captured_given(symm_comm *c, uint64_t id, symmStream_t stream);
/* GPUs: whether the kernel of the next call, of that capture (0: eager), may overlap its
 * predecessor: not if more than the communicator's budget could be on the GPU then. Before the
 * launch, of which `given` tells. */
int symm_launch_overlaps(symm_comm *c, uint64_t capture, int ctas);
/* The kernel of the next call overlaps nothing. */
void symm_launch_stands(symm_comm *c, int ctas);
/* Launches an executable on a stream that is not captured. ours: it has calls of the communicator,
 * so it comes in order with the other calls, and the end of the communicator waits for it. */
symmResult_t symm_launch_graph(symm_comm *c, int ours, symmGraphExec_t exec, symmStream_t stream);
/* GPUs: the event of a change of stream is made with the communicator. Close frees all events. */
symmResult_t symm_launch_open(symm_comm *c);
void symm_launch_close(symm_comm *c);

/* ---- extents.c: counts of calls with one per rank -------------------------------------------- */

typedef struct symm_extent_block symm_extent_block;
/* Lets a's counts point to a copy, which the task of the call gives back. NULL: no memory. */
symm_extent_block *symm_extents_take(symm_comm *c, symm_args *a);
void symm_extents_give(symm_comm *c, symm_extent_block *b);
/* Frees the communicator's, when no task has one. */
void symm_extents_close(symm_comm *c);

/* ---- drain.c --------------------------------------------------------------------------------- */

/* Waits for the last eager call, and for the graphs with the communicator's calls that the
 * library was told of: on the host backend all, on GPUs those of symm_launch_graph. On GPUs it
 * touches no stream, because the streams may be gone. If nothing else keeps what captured calls
 * need (symm_gpu_pins), it waits for all that the context runs: graphs that CUDA launched are among
 * that. *runs: after an error, whether something may still run. */
symmResult_t symm_launch_drain(symm_comm *c, int *runs);
/* 1: no call that a stream was given is to run any more, in a graph or not. 0: one is, or on GPUs,
 * where nobody tells: it is not known. */
int symm_launch_idle(const symm_comm *c);

/* ---------------------------------------------------------------------------------------------- */

/* Whether every rank hears from every rank in it. */
static inline int symm_launch_hears(const symm_launch *l) {
    return symm_call_hears(&l->call) && !(symm_kernels[l->plan.kernel].flags & SYMM_K_AHEAD);
}
/* Behind every launch that succeeded. */
static inline void symm_launch_done(symm_comm *c, const symm_launch *l, symmStream_t stream,
                                    int captured) {
    if (c->order.observer) c->order.observer->called(c, stream, symm_launch_hears(l), captured);
}

#endif
