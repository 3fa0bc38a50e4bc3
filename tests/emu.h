/* emu.h - GPUs out of fibers: kernels of several ranks, CTA for CTA and thread for thread, in one thread and in an order that a seed
 * chooses. For unit_kernels. Not thread-safe. */
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
} emu_launch;

/* Runs launches[rank][0..calls) of each rank, one after the other on a rank, ranks as far apart as they may be. 0: all have ended;
 * -1: they stand still, or one went to memory that is none, and `why` says where. */
int emu_run(const emu_launch *launches, int ranks, int calls, uint64_t seed, char *why, size_t cap);
/* Memory that kernels may touch; everything else is refused. At most 64 pieces; forgotten by emu_forget. */
void emu_memory(const void *p, size_t bytes);
void emu_forget(void);
/* Called after each step of the fibers, counted from 1 in each run, for tests that interfere (an abort word, say); NULL: nobody. */
void emu_between(void (*fn)(void *arg, uint64_t step), void *arg);

/* ---- for the kernels --------------------------------------------------------------------------------------------------- */

typedef struct {
    unsigned x;
} emu_dim;
typedef struct {
    emu_dim thread, block, threads, blocks;
} emu_place;
extern const emu_place *emu_self;

enum { EMU_LOOKS = 2, EMU_STORES = 8 }; /* another fiber's turn in one of so many */
void emu_turn(int one_in);
void *emu_at(const void *p, size_t bytes);
uint64_t emu_clock(void);
void *emu_shared(size_t bytes); /* the same for all threads of a CTA */
int emu_meet(int barrier, unsigned threads, int left);
typedef struct {
    uint32_t any, ballot;
    uint64_t from;
} emu_vote;
emu_vote emu_warp(uint32_t mask, uint64_t value, int lane);
int emu_on_stack(const void *p);
int emu_warp_store(void *p, const void *sixteen);

#ifdef __cplusplus
}
#endif
#endif
