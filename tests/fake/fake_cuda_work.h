/* fake_cuda_work.h - work on the fake driver's streams: one piece is an op; a graph is a list of
 * them. Under fake_lock(). */
#ifndef FAKE_CUDA_WORK_H_
#define FAKE_CUDA_WORK_H_

#include <pthread.h>
#include <string.h>

#include "fake_cuda_int.h"

enum { FAKE_DATA = 4096, FAKE_ATTRS = 4, FAKE_DEPS = 64 };

/* Predecessors: nodes of a graph that is being captured, each once. */
struct deps {
    cu_graph_node at[FAKE_DEPS];
    int n;
};

struct op {
    struct op *next;
    enum {
        OP_KERNEL,
        OP_HOST,
        OP_SET8,
        OP_SET32,
        OP_COPY,
        OP_RECORD,
        OP_WAIT,
        OP_WORD,
        OP_EMPTY
    } kind;
    cu_host_fn host;
    void *arg, *to;
    const void *from;
    uint64_t count;
    unsigned value;
    cu_event event;      /* of a record */
    struct record *when; /* of a record or a wait */
    cu_graph_exec exec;  /* the launch that it is part of */
    fake_cuda_fn kernel;
    const char *name; /* of the kernel */
    int device;       /* where it runs */
    cu_launch_config config;
    cu_launch_attr attrs[FAKE_ATTRS];
    struct deps deps; /* of a node: an op of a graph, whose address is its handle */
    int nargs;
    uint32_t at[FAKE_ARGS]; /* of the i-th argument in data */
    uint64_t data[FAKE_DATA / 8];
};

/* One cuEventRecord. A wait is for the last record at that time, whatever the event is recorded for
 * later. */
struct record {
    int refs, done;
    double ms;
};

struct cu_event_st {
    cu_event next;
    unsigned flags;
    int refs;
    struct record *last; /* NULL: never recorded */
    cu_graph captured;   /* recorded in this capture, at that stream and place */
    cu_stream stream;
    int place;
    struct deps deps;
};

/* Both under the lock. */
static inline void fake_record_unref(struct record *r) {
    if (r && --r->refs == 0) free(r);
}
static inline int fake_is_passed(cu_event e) {
    return !e->last || e->last->done;
}

struct cu_stream_st {
    cu_stream next;
    cu_context context;
    unsigned flags;
    struct op *first, *last;
    int busy, stop, threaded, implied; /* implied: a NULL or per-thread stream */
    pthread_t thread;
    pthread_cond_t given; /* to it: first, or stop */
    pthread_t owner;      /* of a per-thread stream */
    cu_graph capture;
    int placed,
        joined; /* ops captured here; of these, how many the capture's first stream waits for */
    struct deps deps; /* of the next op captured here */
};

struct held {
    struct held *next;
    cu_user_object object;
    unsigned count;
};

struct cu_graph_st {
    cu_graph next;
    struct op *first, *last;
    struct held *held;
    /* while it is being captured */
    uint64_t id;
    int status, mode;
    cu_stream origin;
    pthread_t thread;
};

struct op *fake_op(int kind);
struct op *fake_op_copy(const struct op *op);
void fake_op_append(struct op **first, struct op **last, struct op *op);
/* Adds those that are missing. Under the lock. */
void fake_deps_add(struct deps *to, const struct deps *more);
/* The stream of a handle; NULL: there is none. */
cu_stream fake_stream(cu_stream stream);
/* Puts op into the stream, or into its capture. Owns op from then on. Without the lock. */
int fake_enqueue(cu_stream stream, struct op *op);
/* Before a kernel runs, sign 1: waits for room; behind it, -1. Without the lock, as the next. */
void fake_room_take(const struct op *op, int sign);
void fake_word_await(const struct op *op);
double fake_now_ms(void);
/* Waits until all that was put into the stream has run. Without the lock. */
void fake_drain(cu_stream stream);
void fake_exec_unref(cu_graph_exec exec); /* without the lock */
int fake_graph_live(void);
int fake_libraries(void);
void fake_graph_reset(void);
cu_graph fake_graph_new(void);
void fake_graph_drop(cu_graph graph); /* without the lock */

/* As on a GPU a word is copied whole, whatever another stream writes there meanwhile; so are a few
 * of 8 bytes. */
static inline void fake_move(void *to, const void *from, uint64_t bytes) {
    enum { FEW = 512 };
    const uintptr_t at = (uintptr_t)to | (uintptr_t)from;
    if (bytes == 4 && at % 4 == 0)
        __atomic_store_n((unsigned *)to, __atomic_load_n((const unsigned *)from, __ATOMIC_RELAXED),
                         __ATOMIC_RELAXED);
    else if (bytes <= FEW && (bytes | at) % 8 == 0)
        for (uint64_t i = 0; i < bytes / 8; i++)
            __atomic_store_n((uint64_t *)to + i,
                             __atomic_load_n((const uint64_t *)from + i, __ATOMIC_ACQUIRE),
                             __ATOMIC_RELAXED);
    else
        memmove(to, from, bytes);
}

#endif
