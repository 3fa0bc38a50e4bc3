/* emu.h - GPUs out of fibers: kernels of several ranks, CTA for CTA and thread for thread, in one
 * thread and in an order that a seed chooses. For unit_kernels. Not thread-safe. */
#ifndef EMU_H_
#define EMU_H_

#include <stddef.h>
#include <stdint.h>

#include "symm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*emu_kernel)(const symm_args a);
emu_kernel emu_find(const char *name); /* symm_all_reduce_ll_f32_n2; NULL: not compiled in */

typedef struct { /* one launch */
    emu_kernel kernel;
    symm_args args;
    unsigned ctas, threads; /* with the warp of the signatures */
    /* Its CTA, the only one, has let the next kernel in: what it has stored may be seen as late
     * as at that one's end, or behind a release there, whose wait (griddepcontrol.wait) it
     * precedes. */
    int early;
} emu_launch;

/* Runs launches[rank][0..calls) of each rank, one after the other on a rank, ranks as far apart as
 * they may be. 0: all have ended; -1: they stand still, or one went to memory that is none, and
 * `why` says where. */
int emu_run(const emu_launch *launches, int ranks, int calls, uint64_t seed, char *why, size_t cap);
/* Memory that kernels may touch; everything else is refused. At most 64 pieces; forgotten by
 * emu_forget. */
void emu_memory(const void *p, size_t bytes);
void emu_forget(void);
/* 1: all kernels of the rank have ended. Within a run; the next two also after it. */
int emu_ended(int rank);
int emu_delays(void); /* 1: stores become visible late in this run, and loads are made early */
/* No kernel of this rank begins before it is let go, by -1. Before a run, and from emu_between. */
void emu_hold(int rank);
/* Called after each step of the fibers, counted from 1 in each run, for tests that interfere (an
 * abort word, say); NULL: nobody. */
void emu_between(void (*fn)(void *arg, uint64_t step), void *arg);

/* ---- for the kernels ------------------------------------------------------------------------- */

typedef struct {
    unsigned x;
} emu_dim;
typedef struct {
    emu_dim thread, block, threads, blocks;
} emu_place;
extern const emu_place *emu_self;

enum { EMU_LOOKS = 2, EMU_STORES = 8 }; /* another fiber's turn in one of so many */
void emu_turn(int one_in);
/* The same for a look that may be in vain, and be made again. A run in which there is nothing else
 * stands still. */
void emu_poll(int one_in);
void *emu_at(const void *p, size_t bytes);
enum { EMU_RELAXED, EMU_PLAIN, EMU_ACQUIRES };
void emu_load(void *to, const void *p, size_t bytes, int order);    /* at most 16 */
void emu_store(void *p, const void *data, size_t bytes, int plain); /* at most 16 */
void emu_release(void); /* what precedes it is seen before what follows */
void emu_fence(void);   /* the same, and no later load is made before it */
#define EMU_STEP_NS 1024ull
uint64_t emu_clock(void);
void *emu_shared(size_t bytes); /* the same for all threads of a CTA */
int emu_meet(int barrier, unsigned threads, int left);
typedef struct {
    uint32_t any, ballot;
    uint64_t from;
} emu_vote;
emu_vote emu_warp(uint32_t mask, uint64_t value, int lane); /* orders no stores */
void emu_sync_warp(uint32_t mask);                          /* of all lanes, or the caller alone */
int emu_on_stack(const void *p);
int emu_warp_store(void *p, const void *sixteen);

/* ---- for emu_run.c: late stores of one CTA, early loads (emu_late.c) ------------------------- */

enum { EMU_THREADS = 256, EMU_LINE = 128 }; /* the most of a CTA; bytes of one store */
typedef struct {
    uint64_t in[EMU_THREADS / 64];
} emu_threads;
void emu_threads_add(emu_threads *s, unsigned thread);

typedef struct emu_late emu_late;
emu_late *emu_late_new(void); /* to be freed; NULL: no memory */
/* Of threads [thread, thread + threads), as one. */
void emu_late_store(emu_late *l, int plain, unsigned thread, unsigned threads, void *to,
                    const void *data, size_t bytes);
void emu_late_precede(emu_late *l, unsigned thread, const void *p, size_t bytes); /* a load there */
void emu_late_release(emu_late *l, unsigned thread);
void emu_late_meet(emu_late *l, const emu_threads *who);
int emu_late_some(emu_late *l, uint32_t which); /* 1: one is seen */
void emu_late_all(emu_late *l);
void emu_late_end(emu_late *l);     /* frees it */
void emu_late_inherit(emu_late *l); /* all threads of the CTA are behind what is in the list */
/* The number of the last store that went to memory. */
uint64_t emu_late_now(void);
/* What was there before a store of a higher number than `since` came, and *number of that; NULL:
 * nothing else than now that this thread might see. */
const void *emu_late_past(const emu_late *l, unsigned thread, const void *p, size_t bytes,
                          uint64_t since, uint64_t *number);

#ifdef __cplusplus
}
#endif
#endif
