/* region.h - a range of addresses at one offset on all ranks; memory is mapped into it piece by
 * piece while it is in use: addr(rank, off) = base + rank*stride + off. Heaps and vectors are made
 * of regions. Processes: a slot of the space, whose maps are the region's. Thread ranks: one
 * reservation that all share, and each piece is mapped once, by its owner. The communicator's user
 * thread, but for symm_region_close. No lock is held while waiting for a peer. */
#ifndef SYMM_REGION_H_
#define SYMM_REGION_H_

#include "host/comm/types.h"
#include "handle_exchange.h"

typedef struct symm_range symm_range; /* thread ranks: the reservation, counted */

typedef struct {
    symm_comm *c;
    symm_slot *slot;   /* processes */
    symm_range *range; /* thread ranks */
    uint64_t base, stride, bytes;
} symm_region;

/* Reserves `bytes` (equal on all ranks, a multiple of the granularity) everywhere or nowhere. mine:
 * this rank's status so far, as in symm_exchange. [collective] */
symmResult_t symm_region_open(symm_comm *c, symmResult_t mine, uint64_t bytes, const char *stage,
                              symm_region *out);
/* This rank no longer uses it. Processes: the slot is dropped. Thread ranks: it is unmapped when
 * the last rank has closed it. Waits for no peer. */
void symm_region_close(symm_region *r);
/* The same for a region that no peer can have used: unmapped at once. */
void symm_region_discard(symm_region *r);

static inline char *symm_region_addr(const symm_region *r, int rank, uint64_t off) {
    return (char *)(uintptr_t)(r->base + (uint64_t)rank * r->stride + off);
}
/* 1 if memory lies behind all of it. */
int symm_region_backed(const symm_region *r, int rank, uint64_t off, uint64_t bytes);
uint64_t symm_region_bytes(const symm_region *r, int rank);

/* Growing, in steps: prepare (local), an exchange of the caller's in which every rank tells its
 * count and status, commit if all are well (collective), end. Until the caller keeps it, end
 * takes back whatever was mapped. */
typedef struct {
    symm_region *r;
    const char *stage;
    const symm_part *parts; /* own pieces */
    int count;
    /* The first `old` of them are memory that `from` has at the same offsets; the others are
     * made. */
    int old;
    const symm_region *from;
    /* Not NULL: they are these handles' memory, the caller's, which this rank has mapped there
     * already (symm_region_map). */
    symm_vmm_handle *const *mine;
    /* Called when all is mapped here, before the agreement; its error is everybody's. May be
     * NULL. */
    symmResult_t (*ready)(void *arg);
    void *arg;
    symm_vmm_handle **handles;
    symm_handle_exchange trade;
    int alike; /* the first parts, which every rank has: they are bound for multicast */
} symm_growth;

/* Makes or finds the memory. */
symmResult_t symm_growth_prepare(symm_growth *g);
symmResult_t symm_growth_commit(symm_growth *g, const int *counts);
void symm_growth_end(symm_growth *g, int keep);

/* Takes back one mapping: of any rank (processes), of this one (thread ranks: the others' mappings
 * are theirs to take back, and nothing is done). An error: it is still there. [local] */
symmResult_t symm_region_unmap(symm_region *r, int rank, symm_part part);
/* The same for all that is mapped in [off, off + bytes), of every rank. The first error; what it is
 * about is still there. [local] */
symmResult_t symm_region_clear(symm_region *r, uint64_t off, uint64_t bytes);
/* One piece of own memory, outside of any growth: of the peers only thread ranks see it. An error:
 * nothing is mapped. [local] */
symmResult_t symm_region_map(symm_region *r, symm_part part, symm_vmm_handle *h);

#endif
