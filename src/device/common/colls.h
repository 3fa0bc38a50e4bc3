/* colls.h - what each collective is (coll.def), and one call of it. Constant; any thread. */
#ifndef SYMM_COLLS_H_
#define SYMM_COLLS_H_

#include "symm.h"
#include "device/common/records.h"

/* Of a rank's buffer: see coll.def. */
typedef enum { SYMM_NONE, SYMM_COUNT, SYMM_EACH, SYMM_VARIES } symm_holds;
enum { SYMM_HEARS_NOT, SYMM_HEARS_DATA, SYMM_HEARS_ALWAYS };
enum { SYMM_COLL_REDUCES = 1, SYMM_COLL_ROOT = 2 };

typedef struct {
    const char *name; /* all_reduce */
    const char *call; /* symmAllReduce */
    symm_holds in, out;
    int hears;
    int root_gives, root_takes; /* nobody else has a source; nobody else has a destination */
    int apart;                  /* never in place: the buffers may not overlap */
    int swaps;      /* in place each part is sent and received into, on all ranks or on none */
    int fuses;      /* symmColl_t that stands for calls of a group with different roots; 0: none */
    unsigned flags; /* SYMM_COLL_REDUCES, SYMM_COLL_ROOT: its call takes a reduction, a root */
} symm_coll_row;

extern const symm_coll_row symm_colls[symmNumColls + 1]; /* the last one: of no collective */
/* A name, "?" for what is no collective. */
const char *symm_coll_name(int coll);

typedef struct { /* a call */
    symmColl_t coll;
    uint64_t count; /* elements; where one buffer has some for each rank: of one rank */
    uint32_t type, op, esize;
    union {
        int32_t root;  /* a rank; 0 where the collective has none */
        int32_t fused; /* with a count per rank, in place of rooted calls of a group: how many they
                        * are, less one */
    };
    /* Of a call with a count per rank: bytes of this rank's buffers. Ranks differ in it, so that
     * it decides nothing that they must agree on; count is 0. */
    uint64_t local;
    int swapped; /* in place, of a collective that swaps; equal on all ranks, as the count is */
} symm_call;

/* How many times `count` elements such a buffer holds; SYMM_VARIES: if all counts are equal. */
static inline uint64_t symm_holds_parts(symm_holds share, int nranks) {
    return share == SYMM_NONE ? 0 : share >= SYMM_EACH ? (uint64_t)nranks : 1;
}
/* Whether it has a count per rank. */
static inline int symm_coll_varies(const symm_coll_row *row) {
    return row->in == SYMM_VARIES || row->out == SYMM_VARIES;
}
/* The same of a rank's own buffers. */
static inline uint64_t symm_coll_in(const symm_coll_row *row, int nranks, int is_root) {
    return row->root_gives && !is_root ? 0 : symm_holds_parts(row->in, nranks);
}
static inline uint64_t symm_coll_out(const symm_coll_row *row, int nranks, int is_root) {
    return row->root_takes && !is_root ? 0 : symm_holds_parts(row->out, nranks);
}
/* Those of the larger one of a rank's buffers. */
static inline uint64_t symm_coll_parts(const symm_coll_row *row, int nranks) {
    return symm_holds_parts(row->in > row->out ? row->in : row->out, nranks);
}
static inline int symm_coll_moves(const symm_coll_row *row) {
    return row->in != SYMM_NONE || row->out != SYMM_NONE;
}
/* Whether every rank hears from every rank in it, by any kernel in which none goes ahead. */
static inline int symm_call_hears(const symm_call *call) {
    const int hears = symm_colls[call->coll].hears;
    return hears == SYMM_HEARS_ALWAYS || (hears == SYMM_HEARS_DATA && call->count > 0);
}

#endif
