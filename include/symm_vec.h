/* symm_vec.h - a vector: bytes that grow where they are, at equal offsets on all ranks, and that
 * every rank reaches.
 *
 * Its addresses are reserved at creation. Growing maps more memory behind what there is, so nothing
 * is copied and no pointer changes. If the addresses do not suffice, a larger range is reserved and
 * the same memory is mapped there: pointers change, still nothing is copied. While it grows it
 * needs memory for the new bytes only. It is memory of a heap of its own: collectives use it in
 * place, symmRefGet and symmMemQuery know it.
 *
 * Threads: any thread may call symmVecPtr, symmVecSize and symmVecSync, also while the vector
 * grows. All other calls count as use of the communicator: threads take turns. Conventions as in
 * symm.h. */
#ifndef SYMM_VEC_H_
#define SYMM_VEC_H_

#include "symm_heap.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmVec *symmVec_t;

#define SYMM_VEC_FIXED 1u /* never moves: past `max` it cannot grow */

/* Start from SYMM_VEC_CONFIG_INITIALIZER. Equal on all ranks except name. */
typedef struct {
    size_t size;      /* sizeof(symmVecConfig_t) of the caller */
    uint32_t version; /* SYMM_VERSION_CODE of the caller; not looked at yet */
    uint32_t flags;   /* SYMM_VEC_* */
    /* Addresses reserved: up to here it grows in place. 0: a quarter of the window space
     * (SYMM_WIN_STRIDE); a fourth such vector does not fit. */
    uint64_t max;
    uint64_t chunk;   /* memory comes in pieces of at most this size; 0: 64 MiB */
    const char *name; /* copied; shown in errors */
} symmVecConfig_t;
#define SYMM_VEC_CONFIG_INITIALIZER \
    { sizeof(symmVecConfig_t), SYMM_VERSION_CODE, 0, 0, 0, NULL }

/* Makes an empty vector. config NULL: the defaults. Order: collective.
 * Errors: symmMismatch: the configs differ. */
SYMM_API symmResult_t symmVecCreate(symmComm_t comm, const symmVecConfig_t *config, symmVec_t *vec);
/* Ends it here, as symmHeapDestroy. Order: local. */
SYMM_API symmResult_t symmVecDestroy(symmVec_t vec);

/* Reserves addresses for `bytes`. If it has fewer, it moves. On all ranks or on none.
 * Order: collective.
 * Errors: symmOutOfMemory: it is SYMM_VEC_FIXED and would have to move. symmMismatch: the ranks
 * reserve addresses for other lengths. */
SYMM_API symmResult_t symmVecReserve(symmVec_t vec, size_t bytes);
/* Makes it `bytes` long; new bytes are uninitialised. Nobody is waited for if memory lies behind
 * that many bytes already. Otherwise memory for the rest is mapped, on all ranks or on none. It
 * moves only if it has no addresses for it. Pointers from before a move are good until the next
 * move or shrinking.
 * Order: collective.
 * Errors: symmInvalidArgument: it is longer already. Where that is so on some ranks only, others
 * that need memory wait for the next collective of these. symmMismatch: ranks differ in bytes;
 * where nobody is waited for, the next collective finds it. */
SYMM_API symmResult_t symmVecGrow(symmVec_t vec, size_t bytes);
/* Makes it `bytes` long and gives back whole chunks behind them, on all ranks or on none.
 * Requires: the ranks' work on those bytes has ended.
 * Order: collective.
 * Errors: symmInvalidArgument: it is shorter already. */
SYMM_API symmResult_t symmVecShrink(symmVec_t vec, size_t bytes);

/* Where this process now reaches the first byte of a rank's part. Order: local, any thread. */
SYMM_API symmResult_t symmVecPtr(symmVec_t vec, int rank, void **ptr);
/* Bytes that this rank has. Order: local, any thread. */
SYMM_API symmResult_t symmVecSize(symmVec_t vec, size_t *bytes);
/* Bytes that all ranks have by now: that many may be read and written in every rank's part.
 * Ranks on several hosts hear of each other's sizes by messages: a size may be known later than a
 * barrier on the GPU has ended. The result is then too small, never too large.
 * Order: local, any thread. */
SYMM_API symmResult_t symmVecSync(symmVec_t vec, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
