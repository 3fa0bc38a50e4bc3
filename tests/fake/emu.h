/* emu.h - GPUs made of fibers: kernels of several ranks, each thread a fiber, in one thread of the
 * processor and in an order that a seed chooses. For unit_kernels. Not thread-safe. */
#ifndef EMU_H_
#define EMU_H_

#include <stddef.h>
#include <stdint.h>

#include "../../src/device/common/records.h"

/* Bytes up to which all_reduce and a part of reduce_scatter of two ranks go by loads here, so that
 * little memory shows both of their ways. */
#define EMU_PULL_MOST (40 << 10)

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*emu_kernel)(const symm_args a);
emu_kernel emu_find(const char *name); /* symm_all_reduce_ll_f32_n2; NULL: not compiled in */

typedef struct { /* what copy engines do, as a kernel, and the one that comes before them */
    emu_kernel meet, copy;
    int n;
    struct {
        char *to;
        const char *from;
        uint64_t bytes;
    } at[16];
} emu_copies;

typedef struct { /* one launch */
    emu_kernel kernel;
    symm_args args;
    unsigned ctas, threads; /* with the warp of the signatures */
    /* Its only CTA has let the next kernel begin. So its stores may become visible as late as at
     * the end of that kernel, or at a release there, before the wait (griddepcontrol.wait) of which
     * they come. */
    int early;
    /* Before it come `meet`, with the same arguments, and these. NULL: nothing. */
    const emu_copies *copies;
} emu_launch;

/* Runs launches[rank][0..calls) of each rank, one after the other on a rank, while ranks get as far
 * apart as they can. 0: all have ended. -1: nothing moves any more, or a kernel accessed memory
 * that is not there; `why` says where. */
int emu_run(const emu_launch *launches, int ranks, int calls, uint64_t seed, char *why, size_t cap);
/* Memory that kernels may access; everything else is refused. At most 64 pieces, until emu_forget.
 * */
void emu_memory(const void *p, size_t bytes);
void emu_forget(void);
/* A multicast range: [at, at + bytes) stands for as many bytes of each rank's memory, from first +
 * r*stride on. None after emu_forget. */
void emu_multicast(const void *at, size_t bytes, void *first, size_t stride, int ranks);
/* 1: all kernels of the rank have ended. During a run; the next two also after it. */
int emu_ended(int rank);
int emu_delays(void); /* 1: in this run stores become visible late, and loads are made early */
/* No kernel of this rank begins, and those that run stand still, until emu_hold(-1); of one CTA, it
 * alone stands still. Before a run, and from emu_between. */
void emu_hold_cta(int rank, int cta);
static inline void emu_hold(int rank) {
    emu_hold_cta(rank, -1);
}
/* Called after each step of the fibers, counted from 1 in each run, for tests that interfere (for
 * example with an abort word); NULL: none. */
void emu_between(void (*fn)(void *arg, uint64_t step), void *arg);

/* ---- for the kernels ------------------------------------------------------------------------- */

typedef struct {
    unsigned x;
} emu_dim;
typedef struct {
    emu_dim thread, block, threads, blocks;
} emu_place;
extern const emu_place *emu_self;

enum { EMU_LOOKS = 2, EMU_STORES = 8 }; /* one in so many changes to another fiber */
void emu_turn(int one_in);
/* The same for a read that may be repeated because it found nothing. If all fibers only do that,
 * nothing moves any more. */
void emu_poll(int one_in);
void *emu_at(const void *p, size_t bytes);
enum { EMU_RELAXED, EMU_PLAIN, EMU_ACQUIRES };
void emu_load(void *to, const void *p, size_t bytes, int order);    /* at most 16 */
void emu_store(void *p, const void *data, size_t bytes, int plain); /* at most 16 */
void emu_release(void); /* earlier stores are seen before later ones */
void emu_fence(void);   /* the same, and no later load is made earlier */
/* By multicast addresses: into all ranks' memory; of one rank; how many there are; the fence
 * between two addresses of the same bytes. */
void emu_cast_store(void *p, const void *data, size_t bytes);
void emu_cast_load(void *to, const void *p, size_t bytes, int rank);
int emu_cast_ranks(void);
void *emu_cast_at(const void *p, size_t bytes, int rank); /* one rank's; NULL: not of the range */
uint64_t emu_cast_uses(void);                             /* loads and stores there, ever */
void emu_cast_fence(void);
/* Adds to a word at once, and returns what was there; a fence before and behind. */
uint64_t emu_add(void *p, uint64_t by);
uint64_t emu_count(void *p, uint64_t by); /* the same without the fences */
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
int emu_warp_load(void *sixteen, const void *p); /* p NULL: nothing */

/* ---- for emu_run.c: delayed stores of one CTA, early loads (emu_stores.c)
 * ------------------------- */

enum { EMU_THREADS = 256, EMU_LINE = 128 }; /* the most of a CTA; bytes of one store */
typedef struct {
    uint64_t in[EMU_THREADS / 64];
} emu_threads;
void emu_threads_add(emu_threads *s, unsigned thread);

typedef struct emu_stores emu_stores;
emu_stores *emu_stores_new(void); /* to be freed; NULL: no memory */
/* Of threads [thread, thread + threads), as one. */
void emu_stores_store(emu_stores *l, int plain, unsigned thread, unsigned threads, void *to,
                      const void *data, size_t bytes);
/* The same by a multicast address; and the fence that a release needs before it comes after it. */
void emu_stores_cast(emu_stores *l, unsigned thread, void *to, const void *data, size_t bytes);
void emu_stores_alias(emu_stores *l, unsigned thread);
void emu_stores_precede(emu_stores *l, unsigned thread, const void *p, size_t bytes);
void emu_stores_release(emu_stores *l, unsigned thread);
void emu_stores_meet(emu_stores *l, const emu_threads *who);
int emu_stores_some(emu_stores *l, uint32_t which); /* 1: one became visible */
void emu_stores_all(emu_stores *l);
void emu_stores_end(emu_stores *l);     /* frees it */
void emu_stores_inherit(emu_stores *l); /* all threads of the CTA have seen what is in the list */
/* The number of the last store that went to memory. */
uint64_t emu_stores_now(void);
/* What was there before a store with a higher number than `since`, and *number of that store. NULL:
 * this thread can see only the present value. */
const void *emu_stores_past(const emu_stores *l, unsigned thread, const void *p, size_t bytes,
                            uint64_t since, uint64_t *number);

#ifdef __cplusplus
}
#endif
#endif
