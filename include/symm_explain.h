/* symm_explain.h - what a call would do, what the library has done, and who waits for whom. symm.h
 * includes it. */
#ifndef SYMM_EXPLAIN_H_
#define SYMM_EXPLAIN_H_

#include "symm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    size_t size;
    char kernel[48];     /* kernel that a call would run */
    int ctas;            /* its CTAs */
    uint64_t chunkBytes; /* sent at once, before a wait; 0 if nothing is waited for in between */
    int zeroCopySend;    /* this rank's sendbuff: 1 used in place, 0 staged through scratch; if the
                          * reason says that ranks decide as they go: 1 */
    int zeroCopyRecv;    /* its recvbuff */
    char reason[2048];   /* what is staged and why, why this kernel, why no other. Never cut */
} symmExplain_t;
/* What a call with these arguments would do. Launches nothing. root: rank of the root; ignored
 * for collectives without one. count: of a collective with a count per rank, all of these
 * are `count`. Order: local. */
SYMM_API symmResult_t symmExplain(symmComm_t comm, symmColl_t coll, const void *sendbuff,
                                  const void *recvbuff, size_t count, symmDataType_t datatype,
                                  symmRedOp_t op, int root, symmExplain_t *plan);
/* The same of symmSend (sends 1) or symmRecv (0) with these arguments. zeroCopySend or -Recv is
 * that of buff; the peer knows its own. Order: local. Errors: those of the call. */
SYMM_API symmResult_t symmExplainMessage(symmComm_t comm, int sends, const void *buff, size_t count,
                                         symmDataType_t datatype, int peer, symmExplain_t *plan);

typedef struct {
    size_t size;
    int calls;       /* in the group */
    int setups;      /* of them, creation, registration and all else that runs no kernel */
    int messages;    /* of them, sends and receives */
    int kernels;     /* that they would run as, together */
    int jobs;        /* calls that follow each other on a communicator and stream are one */
    int threads;     /* that End would start, and join */
    char text[4096]; /* a line for each job, in their order; the last one says how many it has no
                      * room for */
} symmGroupInfo_t;
/* What symmGroupEnd of this thread's outermost group would do with the calls so far. Launches
 * nothing, and the group stays open. No time is estimated.
 * Order: local.
 * Errors: those that symmGroupEnd would return without running a call. */
SYMM_API symmResult_t symmGroupSimulateEnd(symmGroupInfo_t *info);

typedef struct { /* bytes */
    size_t size;
    uint64_t controlBytes; /* memory of this rank: words by which ranks signal */
    uint64_t scratchBytes; /* the same: room for messages that are staged */
    uint64_t windowBytes;  /* of this rank, the program's: in registered windows, in each of them */
    uint64_t heapBytes;    /* of this rank, made by the library: in heaps */
    /* Addresses that all of this takes here, of every rank, with what other communicators of the
     * same ranks have, and what heaps reserve to grow into. */
    uint64_t addressBytes;
    uint64_t droppedBytes; /* of these, of windows that peers may still use, and nobody here */
} symmCommMem_t;
/* What a communicator holds. Order: local, any thread. */
SYMM_API symmResult_t symmCommMemQuery(symmComm_t comm, symmCommMem_t *mem);

/* Counters and gauges as JSON, NUL-terminated, truncated at cap. *needed (may be NULL): the full
 * size. comm NULL: of the process. Order: local, any thread. */
SYMM_API symmResult_t symmStats(symmComm_t comm, char *json, size_t cap, size_t *needed);
/* Writes the state to fd, for people: ranks (alive, DEAD, left), windows, epochs, flags, who waits
 * for whom; of a communicator that is being made, how far it is. Order: local, any thread. */
SYMM_API symmResult_t symmCommDump(symmComm_t comm, int fd);

/* Levels of the log, as SYMM_DEBUG numbers them. */
typedef enum { symmLogWarn = 2, symmLogInfo = 3, symmLogTrace = 4 } symmLogLevel_t;
/* *level: the highest level of which the log takes lines now; 0 or 1: it takes none of them.
 * Order: local, any thread. */
SYMM_API symmResult_t symmLogQuery(int *level);
/* A line of the caller's own in the library's log, where SYMM_DEBUG and SYMM_DEBUG_FILE say.
 * Nothing is written if the log does not take lines of that level. Order: local, any thread. */
SYMM_API symmResult_t symmLogWrite(symmLogLevel_t level, const char *text);

#ifdef __cplusplus
}
#endif

#endif
