/* types.h - glossary, and the records that the files of src/host share.
 *
 *  rank     one process (or thread) of a communicator; domain: the ranks that can map each other's
 *           memory
 *  segment  one piece of physical memory behind a handle of the memory driver
 *  space    the reservation of nranks * stride bytes of addresses in this process; communicators
 *           over the same ranks share it
 *  slot     a range [off, off + bytes) of the space, the same on every rank, in which rank r's
 *           segments are mapped at base + r*stride + off. Counted: windows over the same memory
 *           share one slot. Dropped: without a user here, mapped until every rank has shown that it
 *           has none
 *  window   what the user registered: a piece of a slot, with this rank's pointer and every rank's
 *           offset
 *  region   a slot that memory is mapped into piece by piece, while it is in use (region.h): what
 *           heaps are made of
 *  control  the slot of a communicator that holds its control block and scratch (symm_types.h); the
 *           communicator's base is the address of rank 0's, so its offset is 0
 *  thread ranks: all ranks are threads of this process and memory is mapped once; a flat "offset"
 *  is then whatever leads from
 *           base + r*stride to the one address, modulo 2^64
 *
 * Prototypes stand in the header of the file that implements them. */
#ifndef SYMM_HOST_TYPES_H_
#define SYMM_HOST_TYPES_H_

#include <pthread.h>
#include <stdatomic.h>

#include "symm.h"
#include "symm_types.h"
#include "base/param.h"
#include "device/common/kernels.h"
#include "host/place/mappings.h"
#include "host/stream/stream.h"
#include "transport/boot/boot.h"
#include "transport/mesh/mesh.h"
#include "transport/vmm/vmm.h"
#include "window_table.h"

struct symm_comm;
struct symm_win;

typedef struct {
    uint64_t hi, lo;
} symm_uuid;

/* What a slot is here; only a used one has references. A dropped one is still mapped, for peers
 * that have not dropped it may announce its offsets, and may be used again; one that is offered
 * or ending is nobody's to use. */
enum { SYMM_SLOT_USED, SYMM_SLOT_DROPPED, SYMM_SLOT_OFFERED, SYMM_SLOT_ENDING };

typedef struct symm_slot {
    struct symm_slot *next; /* by offset, in the space's list */
    uint64_t off, bytes;    /* bytes: the largest rank's, rounded up */
    int refs;  /* windows (and the communicator, for control) that use it; the space's lock */
    int state; /* SYMM_SLOT_*; the space's lock, as the two below */
    const void *offerer; /* of an offered one: the registration whose exchange it is part of */
    int heard;           /* ranks that have offered it in that exchange */
    uint64_t
        /* hash of this rank's segments: finds the slot again when they are registered again; 0:
         * never */
        id;
    uint64_t *
        rank_bytes; /* mapped bytes of each rank; the mappings hold the memory, no handle is kept */
    symm_maps maps; /* of a region: its pieces, instead of rank_bytes */
} symm_slot;

typedef struct symm_space {
    struct symm_space *next; /* process-wide list */
    int refs;                /* communicators; the list's lock */
    int nranks, rank, threads;
    uint64_t id;        /* chosen by rank 0, equal on all ranks */
    symm_uuid *members; /* key: the ranks in order */
    uint64_t base, stride;
    const symm_vmm *vmm;
    uint64_t granularity;
    pthread_mutex_t lock; /* slots */
    symm_slot *slots;
} symm_space;

/* Windows over memory that nobody registered: those of heaps. The communicator's user thread, but
 * for what is said otherwise. */
typedef struct {
    /* The window that has all of [ptr, ptr + bytes); NULL: none. */
    struct symm_win *(*at)(struct symm_comm *c, const void *ptr, uint64_t bytes);
    /* 1: one has a part of it, and text says why not all. */
    int (*why)(struct symm_comm *c, const char *name, const void *ptr, uint64_t bytes, char *text,
               size_t cap);
    void (*ref)(struct symm_win *w);   /* any thread */
    void (*unref)(struct symm_win *w); /* any thread */
    /* The ranks' calls on them differ: 1, and text says where. Any thread. */
    int (*explain)(struct symm_comm *c, char *text, size_t cap);
} symm_win_source;

typedef struct symm_held { /* a slot that a window has left, and that captured calls of it know */
    struct symm_held *next;
    symm_slot *slot;
} symm_held;

typedef struct { /* a piece of memory under a window */
    uint64_t lo, hi;
    uint64_t life; /* vmm.h */
    int gone;      /* it has ended; other memory may lie there */
} symm_lived;

typedef struct symm_win {
    struct symm_win *next,
        **link; /* communicator's list, and what leads here; its user thread only */
    struct symm_comm *comm;
    symm_slot *slot; /* NULL with thread ranks */
    symmWindow_t handle;
    _Atomic int refs; /* the user's handle and every captured call */
    char *ptr;
    uint64_t bytes;
    uint64_t *
        /* [nranks] flat offset of the window's first byte on each rank, relative to comm->base */
        off;
    uint64_t *size; /* [nranks] */
    symm_held *held;
    /* window_life.c; the communicator's user thread only */
    symm_lived *lived;
    int nlived, gone, foreign, dear; /* how many of them are */
    uint64_t looked_ends, looked_version;
    int told;               /* that it is too short for a call */
    struct symm_heap *heap; /* whose memory this is, of comm->source; NULL: it was registered */
} symm_win;

enum { SYMM_COMM_MAKING, SYMM_COMM_LIVE, SYMM_COMM_FINAL };

/* A capture under way, or one that has ended: which stream of it has the last call. Several may be
 * under way, and have calls in turns; of more than these the ones that had a call lately are
 * known. */
enum { SYMM_CAPTURES = 8 };
typedef struct {
    uint64_t id; /* 0: none */
    uint64_t no; /* of that call, among all captured ones */
    symmStream_t stream;
} symm_captured;

/* Who is told of calls while a communicator has one: its lanes (symm_lane.h). The communicator's
 * user thread. */
typedef struct {
    /* Before a call is recorded: whether it may be, beside what else the capture has. */
    symmResult_t (*may_capture)(struct symm_comm *c, symmStream_t stream);
    /* A call was launched or recorded. hears: every rank hears from every rank in it. */
    void (*called)(struct symm_comm *c, symmStream_t stream, int hears, int captured);
} symm_observer;

typedef struct symm_comm {
    symmComm_t handle;
    _Atomic int refs; /* handle, captured calls */
    _Atomic int state;
    _Atomic int busy;     /* the thread that is inside; a second one is reported */
    _Atomic int visitors; /* calls that any thread may make; the end waits for them */
    int rank, nranks, threads, oversubscribed;
    int cuda;       /* 1: GPUs; 0: the host backend */
    uint64_t gpus;  /* GPUs: the ranks', as this process numbers those it sees; bit d */
    int gpu_shared; /* GPUs: some rank shares its GPU with another one */
    int gpu_mate;   /* GPUs: 1 + a rank of this process on the same GPU; 0: none */
    uint64_t gpu_mates[(SYMM_MAX_RANKS + 63) / 64]; /* all of them, by bits */
    int sms; /* GPUs: multiprocessors that a rank may fill, on the poorest of them */
    const struct symm_launcher *launcher; /* of the backend; coll.h */
    void (*undo)(struct symm_comm *c);    /* frees what making it has made */
    struct symm_gpu *gpu;                 /* kernels, context; NULL on the host */
    uint64_t host_base;                   /* GPUs: the pages as kernels see them */
    struct symm_pages *pages; /* GPUs: where the control blocks lie that the host writes too */
    char name[32];
    symmConfig_t config;
    symm_params params;
    const symm_vmm *vmm;
    symm_vmm_caps caps;
    symm_boot *boot;
    symm_boot *over_mesh;  /* takes boot's place where that only serves to meet */
    const char *bootstrap; /* name of the first; NULL before */
    symm_mesh *mesh;
    symm_space *space;
    symm_slot *control;
    uint64_t base, stride;
    symm_ctl *ctl;                 /* own control block (GPUs: its part in host memory) */
    symm_args proto;               /* what all calls' arguments have in common */
    int16_t forced[symmNumColls];  /* kernel forced by SYMM_ALGO, -1 none */
    symm_win *windows;             /* newest first */
    symm_wtable wtable;            /* by address */
    _Atomic int nwindows;          /* symmCommQuery and symmCommDump read it from any thread */
    _Atomic uint64_t window_bytes; /* relaxed: symmCommQuery reads it from any thread */
    const symm_win_source *source; /* of windows that were not registered */
    struct symm_heap *heaps; /* most recently made first; the communicator's user thread only */
    uint32_t heap_serial;    /* heaps so far, equal on all ranks */
    uint64_t issued;         /* collectives so far, eager or captured */
    uint64_t
        digest; /* of all calls on SYM memory so far; equal on all ranks that keep to the rules */
    uint64_t keeps; /* cache_info.h */
    uint64_t room;  /* addresses per rank that windows have, or would have */
    symmStream_t last_stream;
    const symm_observer *observer;  /* of its calls; NULL: nobody */
    struct symm_memlanes *memlanes; /* of its heaps; memlane.h */
    uint64_t
        /* eager calls so far in which every rank hears from every rank; counted while there are
         * memlanes */
        heard;
    symmStream_t heard_stream; /* of the last of them, where there was one */
    int heard_any;
    symm_order last_order; /* end of the last call, when it was given to a stream */
    _Atomic int replays;   /* host backend: launches of graphs with its calls that have not ended */
    struct symm_memo *memos; /* [SYMM_MEMOS] */
    uint64_t version;        /* of windows and reductions; starts at 1 */
    struct symm_redop *redops;
    int nredops;
    _Atomic int async; /* symmResult_t: why the communicator is revoked */
    pthread_mutex_t async_lock;
    char async_text[SYMM_ERR_TEXT];
    struct symm_watch *watch;
    /* When a wait of set-up first saw that a peer had left, or was in a collective instead; the
     * user's thread. */
    uint64_t left_ns, astray_ns;
    uint64_t wait_ns; /* thread ranks: when the wait began; 0 once it was told to be long */
    symm_captured captured[SYMM_CAPTURES]; /* symm_captured_find */
    uint64_t ncaptured;                    /* calls so far */
    _Atomic uint64_t launches[SYMM_KERNEL_COUNT];
    _Atomic int parenting;        /* splits and shrinks of it that go on behind, and have it busy */
    _Atomic int behind;           /* the thread that makes it is not done with its parent yet */
    _Atomic(const char *) making; /* what it waits for while it is being made; a literal */
    _Atomic int aborting;         /* symmCommAbort has begun */
    struct symm_comm *next_aborted; /* once it has ended by that: comm.c keeps it */
} symm_comm;

#endif
