/* symm_vec.h - a vector: bytes that grow where they are, at equal offsets on all ranks, and that every rank reaches.
 *
 * Its addresses are reserved up front; growing maps more memory behind what there is, so nothing is copied and no pointer changes. Where
 * the addresses do not suffice, a larger range is reserved and the same memory is mapped there: pointers change, still nothing is copied. While
 * it grows it needs memory for the new bytes only. It is memory of a heap of its own: collectives use it in place, symmRefGet and
 * symmMemQuery know it.
 *
 * Thread rule: symmVecPtr, symmVecSize and symmVecSync may be called by any thread, also while the vector grows. All else counts as use of its
 * communicator: one thread at a time. Conventions as in symm.h. */
#ifndef SYMM_VEC_H_
#define SYMM_VEC_H_

#include "symm_heap.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct symmVec *symmVec_t;

#define SYMM_VEC_FIXED 1u /* never moves: past `max` it cannot grow */

/* Start from SYMM_VEC_CONFIG_INITIALIZER. Equal on all ranks but for name. */
typedef struct {
    size_t size;      /* sizeof(symmVecConfig_t) of the caller */
    uint32_t version; /* SYMM_VERSION_CODE of the caller */
    uint32_t flags;   /* SYMM_VEC_* */
    uint64_t
        max; /* addresses reserved: so far it grows in place. 0: a quarter of the window space (SYMM_WIN_STRIDE): three such vectors use it up */
    uint64_t chunk;   /* memory comes in pieces of at most this size; 0: 64 MiB */
    const char *name; /* copied; shown in errors */
} symmVecConfig_t;
#define SYMM_VEC_CONFIG_INITIALIZER \
    { sizeof(symmVecConfig_t), SYMM_VERSION_CODE, 0, 0, 0, NULL }

/* An empty vector. config NULL: the defaults. [collective] */
SYMM_API symmResult_t symmVecCreate(symmComm_t comm, const symmVecConfig_t *config, symmVec_t *vec);
/* Ends it here, as symmHeapDestroy. [local] */
SYMM_API symmResult_t symmVecDestroy(symmVec_t vec);

/* Addresses for `bytes`. Where it has fewer, it moves, unless it is SYMM_VEC_FIXED (symmOutOfMemory). On all ranks or on none. [collective] */
SYMM_API symmResult_t symmVecReserve(symmVec_t vec, size_t bytes);
/* Makes it `bytes` long; what is new is uninitialised. Sends no message where memory lies behind that many bytes already; else memory for
 * the rest is mapped on all ranks, or on none. Moves only where it has no addresses for it. After a move, pointers from before are good until
 * the next move or shrinking. symmInvalidArgument: it is longer already. [collective] */
SYMM_API symmResult_t symmVecGrow(symmVec_t vec, size_t bytes);
/* Makes it `bytes` long and gives back whole chunks behind them, on all ranks or on none. The ranks' work on those bytes must have ended.
 * [collective] */
SYMM_API symmResult_t symmVecShrink(symmVec_t vec, size_t bytes);

/* Where this process reaches the first byte of rank's part, now. [local] */
SYMM_API symmResult_t symmVecPtr(symmVec_t vec, int rank, void **ptr);
/* Bytes that this rank has. [local] */
SYMM_API symmResult_t symmVecSize(symmVec_t vec, size_t *bytes);
/* Bytes that all ranks have by now: so many may be read and written in every rank's part. [local] */
SYMM_API symmResult_t symmVecSync(symmVec_t vec, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
