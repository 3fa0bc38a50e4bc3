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
 *  control  the slot of a communicator that holds its control block and scratch (records.h); the
 *           communicator's base is the address of rank 0's, so its offset is 0
 *  thread ranks: all ranks are threads of this process and memory is mapped once; a flat "offset"
 *  is then whatever leads from
 *           base + r*stride to the one address, modulo 2^64
 *
 * Prototypes stand in the header of the file that implements them. */
#ifndef SYMM_HOST_TYPES_H_
#define SYMM_HOST_TYPES_H_

#include "base/param.h"
#include "host/place/mappings.h"
#include "parts.h"
#include "transport/boot/boot.h"
#include "transport/mesh/mesh.h"
#include "transport/vmm/vmm.h"

struct symm_comm;
struct symm_win;

typedef struct {
    uint64_t hi, lo;
} symm_uuid;

/* State of a slot on this rank. Only a used slot has references. A dropped slot is still mapped,
 * because peers that have not dropped it may announce its offsets; it may be used again. An offered
 * or ending slot must not be used. */
enum { SYMM_SLOT_USED, SYMM_SLOT_DROPPED, SYMM_SLOT_OFFERED, SYMM_SLOT_ENDING };

typedef struct symm_slot {
    struct symm_slot *next; /* by offset, in the space's list */
    uint64_t off, bytes;    /* bytes: the largest rank's, rounded up */
    int refs;  /* windows that use it, and the communicator for control; the space's lock */
    int state; /* SYMM_SLOT_*; the space's lock, as the two below */
    const void *offerer; /* offered: the registration whose exchange lists it */
    int heard;           /* ranks that have offered it in that exchange */
    uint64_t
        /* hash of this rank's segments, to find the slot when they are registered again; 0: not
         * found */
        id;
    uint64_t *
        rank_bytes; /* mapped bytes of each rank; the mappings hold the memory, no handle is kept */
    symm_mappings maps; /* of a region: its pieces, instead of rank_bytes */
    symm_mappings
        casts;      /* own pieces that are bound for multicast, as rank 0's; the space's lock */
    char *cast_why; /* why the last ones are not; NULL: not known */
} symm_slot;

/* multicast.h. Written while the space is made; then it stays. */
typedef struct {
    symm_vmm_handle *object; /* NULL: none */
    uint64_t base, bytes, grain;
    int mapped;
    char why[SYMM_MULTICAST_WHY]; /* where there is none */
} symm_cast;

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
    symm_cast cast;
    int ready; /* its object has been made, or given up: others may share it; the list's lock */
} symm_space;

/* Windows over memory that nobody registered: heaps. The user's thread, unless it says
 * otherwise. */
typedef struct {
    /* The window that has all of [ptr, ptr + bytes); NULL: none. */
    struct symm_win *(*at)(struct symm_comm *c, const void *ptr, uint64_t bytes);
    /* Whether rank has memory for all of [in, in + bytes) of w, as far as this rank knows, and has
     * it for as long as this rank has. in + bytes: within w. */
    int (*backed)(const struct symm_win *w, int rank, uint64_t in, uint64_t bytes);
    /* 1: one has a part of it, and text says why not all. */
    int (*why)(struct symm_comm *c, const char *name, const void *ptr, uint64_t bytes, char *text,
               size_t cap);
    void (*ref)(struct symm_win *w);   /* any thread */
    void (*unref)(struct symm_win *w); /* any thread */
    /* The ranks' calls on them differ: 1, and text says where. Any thread. */
    int (*explain)(struct symm_comm *c, char *text, size_t cap);
} symm_win_source;

typedef struct symm_held { /* a slot that a window has left; captured calls may still use it */
    struct symm_held *next;
    symm_slot *slot;
} symm_held;

typedef struct { /* a piece of memory under a window */
    uint64_t lo, hi;
    uint64_t life; /* vmm.h */
    int gone;      /* it has ended; other memory may be there now */
} symm_lived;

typedef struct symm_win {
    struct symm_win *next,
        **link; /* the communicator's list, and the pointer to this one; the user's thread */
    struct symm_comm *comm;
    const struct symm_outer *outer; /* whose ranks a program means, pinned; NULL: comm's */
    symm_slot *slot;                /* NULL with thread ranks */
    symmWindow_t handle;
    _Atomic int refs; /* the user's handle and every captured call */
    char *ptr;
    uint64_t bytes;
    uint64_t *
        /* [nranks] flat offset of the window's first byte on each rank, relative to comm->base */
        off;
    uint64_t *size; /* [nranks] */
    symm_held *held;
    /* window_life.c; the user's thread */
    symm_lived *lived;
    int nlived, gone, foreign, dear; /* pieces: ended, of other allocators, slow to ask about */
    uint64_t looked_ends, looked_version;
    int ended;              /* all of its memory has ended here, and it has given up its slot */
    int told;               /* 1: the log has said that it is too short for a call */
    struct symm_heap *heap; /* whose memory this is, of comm->source; NULL: it was registered */
} symm_win;

typedef struct {   /* GPUs: written by the thread that makes the communicator, read by any */
    uint64_t seen; /* the ranks' GPUs, as this process numbers those it sees; bit d */
    int shared;    /* some rank shares its GPU with another one */
    int mate;      /* 1 + a rank of this process on the same GPU; 0: none */
    uint64_t mates[(SYMM_MAX_RANKS + 63) / 64]; /* all of them, by bits */
    int budget;  /* CTAs that its kernels may have there at once, those that overlap included */
    int quarter; /* 1: each of them takes at most a quarter of a multiprocessor */
    int first;   /* 1: it has two of these on each (symm_share_take) */
    int sms;     /* multiprocessors that a rank may fill, on the GPU that has the fewest for it */
} symm_comm_gpus;

/* First what creation settles: written by src/host/life, read by everybody. Then the parts. */
typedef struct symm_comm {
    symmComm_t handle;
    symm_comm_entry entry;
    int rank, nranks, threads, oversubscribed;
    int cuda; /* 1: GPUs; 0: the host backend */
    symm_comm_gpus gpus;
    struct symm_gpu *gpu; /* kernels, context; NULL on the host */
    char name[32];
    symmConfig_t config;
    symm_params params;
    const symm_vmm *vmm;
    symm_vmm_caps caps;
    int fabric; /* 1: every rank makes and takes fabric handles; 2: and all memory goes so */
    int hosts;  /* that the ranks are on; of several each sees its own host memory alone */
    const struct symm_launcher *launcher; /* of the backend; coll.h */
    const symm_win_source *source;        /* of windows that were not registered */
    /* Of launch: 1, no call of it that a stream was given is to run any more. The user's thread. */
    int (*idle)(const struct symm_comm *c);
    const char *bootstrap; /* name of the first; NULL before */
    symm_mesh *mesh;
    symm_space *space;
    uint64_t base, stride;
    uint64_t room; /* addresses per rank that windows have, or would have */
    symm_ctl *ctl; /* own control block (GPUs: its part in host memory); NULL before */
    symm_comm_failure failure;
    symm_comm_exchange exchange;
    symm_comm_control control;
    symm_comm_windows windows;
    symm_comm_calls calls;
    symm_comm_order order;
    symm_comm_heaps heaps;
    symm_comm_lanes lanes;
} symm_comm;

#endif
