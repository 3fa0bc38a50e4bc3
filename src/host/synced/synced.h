/* synced.h - a synced buffer inside the library: its record, and the table of what differs between
 * the host backend and GPUs. Used by the buffer's thread; symm_synced_retain and _release by any.
 * No lock. */
#ifndef SYMM_SYNCED_INT_H_
#define SYMM_SYNCED_INT_H_

#include "symm_synced.h"
#include "host/gpu/gpu.h"
#include "host/gpu/point.h"
#include "host/heap/heap.h"
#include "dirty_ranges.h"

typedef struct symm_synced symm_synced;

typedef struct {
    char *ptr;    /* NULL: none */
    int owned;    /* allocated here */
    int pinned;   /* host side: allocated by the CUDA driver, which frees it */
    uint64_t off; /* device side, if owned: offset of its block in the heap */
} symm_side;

/* What differs between the backends. In all of them `stream` has passed `look`. */
typedef struct {
    /* Whether the stream can take this buffer's copies; *capturing: whether it records them. */
    symmResult_t (*look)(symm_synced *s, symmStream_t stream, int *capturing);
    symmResult_t (*host_alloc)(symm_synced *s, symm_side *side);
    void (*host_free)(symm_synced *s, const symm_side *side);
    /* Whether p can be the device side. */
    symmResult_t (*check_device)(symm_synced *s, const void *p);
    /* The three give work to the stream. */
    symmResult_t (*copy)(symm_synced *s, void *to, const void *from, uint64_t bytes,
                         symmStream_t stream);
    symmResult_t (*zero)(symm_synced *s, uint64_t bytes, symmStream_t stream);
    symmResult_t (*write_word)(symm_synced *s, uint32_t value, symmStream_t stream);
    /* The caller waits for the whole stream; used only after mark has failed. */
    void (*drain)(symm_synced *s, symmStream_t stream);
    /* The graph under capture holds the buffer's memory from now on. */
    symmResult_t (*hold)(symm_synced *s, symmStream_t stream);
} symm_synced_ops;

struct symm_synced {
    symmSynced_t handle;
    symmHeap_t heap_handle;
    symm_heap *heap; /* referenced, as comm */
    symm_comm *comm;
    const symm_synced_ops *ops;
    _Atomic int busy;
    uint64_t bytes;
    unsigned flags;
    int head;    /* UNINITIALIZED, HEAD_AT_*, SYNCED */
    int flow;    /* SYNCED: PUSHING or PULLING while that copy may be under way, else 0 */
    int pending; /* there is a mark that is not known to have passed */
    /* A graph has its memory: the memory stays as it is, and is not freed in the order of calls. */
    int captured;
    symm_side cpu, gpu;
    symm_dirty dirty;
    uint64_t word_off;   /* of the word's block, SYMM_NO_OFFSET: none yet */
    uint32_t generation; /* the last one that a stream was given to write */
    const void *site;    /* of the API call under way */
    symm_mark mark;      /* behind the last work that a stream was given for it; point.h */
};

extern const symm_synced_ops symm_synced_host; /* synced_host.c */
extern const symm_synced_ops symm_synced_gpu;  /* synced_gpu.c */

/* The caller's place in its program, for the heap's ledger. */
#define SYMM_SITE() __builtin_return_address(0)

/* ---- synced_use.c: who uses the buffer ---- */

/* Begins an API call; leave ends it. */
symmResult_t symm_synced_enter(symmSynced_t handle, const void *site, symm_synced **out);
void symm_synced_leave(symm_synced *s);
/* The same for a call that may talk to the GPU: its context is current until the end, which returns
 * r. */
typedef struct {
    symm_synced *s;
    symm_cuda_scope scope;
} symm_synced_use;
symmResult_t symm_synced_begin(symmSynced_t handle, const void *site, symm_synced_use *use);
symmResult_t symm_synced_end(symm_synced_use *use, symmResult_t r);
/* How a graph holds a buffer whose copies it has. Any thread. */
extern const symm_graph_user symm_synced_held;
/* The invariants of a buffer inside an API call. */
void symm_synced_check(const symm_synced *s);

/* ---- synced_move.c: work for streams. On GPUs the communicator's context is current ---- */

/* The caller waits for all work that streams were given for this buffer. */
symmResult_t symm_synced_settle(symm_synced *s);
/* Device work that the stream is given from now on runs after all of it. */
symmResult_t symm_synced_join(symm_synced *s, symmStream_t stream, int capturing);
/* Marks what the stream was given; `work` is what came of giving it. Returns work if that is an
 * error, else what came of marking. */
symmResult_t symm_synced_seal(symm_synced *s, symmStream_t stream, symmResult_t work);
/* Counts the generation up and gives the stream the new number to write. */
symmResult_t symm_synced_count(symm_synced *s, symmStream_t stream);
/* Push: HEAD_AT_CPU becomes SYNCED. Pull: HEAD_AT_GPU becomes SYNCED. */
symmResult_t symm_synced_push(symm_synced *s, symmStream_t stream);
symmResult_t symm_synced_pull(symm_synced *s, symmStream_t stream);
/* Records the copy in the stream's capture. down: to the host. */
symmResult_t symm_synced_record(symm_synced *s, symmStream_t stream, int down);
/* Zeros on the device side. */
symmResult_t symm_synced_zero(symm_synced *s, symmStream_t stream, int capturing);

/* ---- synced_side.c: memory of the two sides ---- */

/* Allocates the side if it has no memory; the contents are undefined. The device side also gets its
 * word. */
symmResult_t symm_synced_need_cpu(symm_synced *s);
symmResult_t symm_synced_need_gpu(symm_synced *s);
symmResult_t symm_synced_need_word(symm_synced *s);
/* Frees a side that is owned, forgets one that is the caller's. After an error of gpu or word, what
 * the record still names was not freed. */
void symm_synced_drop_cpu(symm_synced *s);
symmResult_t symm_synced_drop_gpu(symm_synced *s);
symmResult_t symm_synced_drop_word(symm_synced *s);
/* This process's address of rank's word. */
uint64_t *symm_synced_word(const symm_synced *s, int rank);

#endif
