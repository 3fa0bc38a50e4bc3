/* nccl.h - NCCL as the library sees it: what carries messages between domains of GPUs. It is opened
 * at run time, so the library builds and runs without it; its types are declared here only. Any
 * thread. */
#ifndef SYMM_NCCL_H_
#define SYMM_NCCL_H_

#include <stddef.h>

#include "base/status.h"

typedef int nccl_result; /* ncclResult_t: an enum, passed as an int; 0 is success */
typedef struct ncclComm *nccl_comm;
typedef struct {
    char bytes[128];
} nccl_id; /* ncclUniqueId */
/* ncclUint8, of ncclDataType_t; ncclInProgress: the host's part of a call has not ended. */
enum { NCCL_BYTES = 1, NCCL_IN_PROGRESS = 7 };
typedef struct { /* ncclConfig_t of 2.14: later versions take it, and their defaults for the rest */
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config;
#define NCCL_CONFIG ((nccl_config){sizeof(nccl_config), 0xcafebeefu, 21400, 0})

/* Every entry point that is used: X(name, (parameters)). */
#define SYMM_NCCL_CALLS(X)                                                                        \
    X(ncclGetVersion, (int *version))                                                             \
    X(ncclGetUniqueId, (nccl_id * id))                                                            \
    X(ncclCommInitRankConfig,                                                                     \
      (nccl_comm * comm, int nranks, nccl_id id, int rank, nccl_config *config))                  \
    X(ncclCommDestroy, (nccl_comm comm))                                                          \
    X(ncclCommAbort, (nccl_comm comm))                                                            \
    X(ncclCommGetAsyncError, (nccl_comm comm, nccl_result * error))                               \
    X(ncclSend, (const void *from, size_t count, int type, int to, nccl_comm comm, void *stream)) \
    X(ncclRecv, (void *to, size_t count, int type, int from, nccl_comm comm, void *stream))       \
    X(ncclGroupStart, (void))                                                                     \
    X(ncclGroupEnd, (void))

typedef struct {
#define MEMBER(name, params) nccl_result(*name) params;
    SYMM_NCCL_CALLS(MEMBER)
#undef MEMBER
    int registers; /* the memory of captured messages: NCCL_GRAPH_REGISTER, when it was found */
    const char *(*ncclGetErrorString)(nccl_result code);
    const char *(*ncclGetLastError)(nccl_comm comm);
} symm_nccl;

/* The process's NCCL: the first call looks for it and decides. named: its path; "": it is looked
 * for. symmNotSupported: there is none, and the text says where it was looked for. */
symmResult_t symm_nccl_find(const char *named, const symm_nccl **out);
/* The file that it was found in, once symm_nccl_find has succeeded. */
const char *symm_nccl_path(void);
/* What a call of NCCL returned, as an error that names the call. symmSuccess for 0. */
symmResult_t symm_nccl_error(const symm_nccl *n, nccl_result code, const char *call);

#ifdef SYMM_TESTING
/* Takes the place of what is found; NULL: it is looked for again. No communicator is left. */
void symm_nccl_inject(const symm_nccl *n);
#endif

#endif
