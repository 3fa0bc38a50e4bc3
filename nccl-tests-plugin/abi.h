/* abi.h - the types of NCCL's ABI, as far as its calls need them: our own declarations, of versions
 * 2.14 to 2.32. tests/check/check_nccl.sh compares them with an nccl.h where there is one. Values
 * of types and reductions are those of symm.h, which has them from the same place. */
#ifndef SYMM_NCCL_ABI_H_
#define SYMM_NCCL_ABI_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "symm.h"

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef symmStream_t cudaStream_t;

typedef struct {
    char internal[128];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8, /* newer headers only: never returned */
    ncclNumResults = 9
} ncclResult_t;

/* Larger values come from programs: an enum that holds all of int. */
typedef enum {
    ncclSum,
    ncclProd,
    ncclMax,
    ncclMin,
    ncclAvg,
    ncclNumOps,
    ncclMaxRedOp = INT_MAX
} ncclRedOp_t;
typedef enum {
    ncclInt8,
    ncclUint8,
    ncclInt32,
    ncclUint32,
    ncclInt64,
    ncclUint64,
    ncclFloat16,
    ncclFloat32,
    ncclFloat64,
    ncclBfloat16,
    ncclFloat8e4m3,
    ncclFloat8e5m2,
    ncclNumTypes
} ncclDataType_t;
typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;

#define NCCL_API_MAGIC          0xcafebeefu
#define NCCL_SIM_MAGIC          0x74685283u
#define NCCL_CONFIG_UNDEF_INT   INT_MIN
#define NCCL_SPLIT_NOCOLOR      (-1)
#define NCCL_SHRINK_DEFAULT     0
#define NCCL_SHRINK_ABORT       1
#define NCCL_WIN_DEFAULT        0
#define NCCL_WIN_COLL_SYMMETRIC 1

/* What begins each record that grows from version to version. */
typedef struct {
    size_t size;
    unsigned magic, version;
} nccl_record;

/* A communicator's configuration: config.def has the fields, in order. */
typedef struct {
    size_t size;
    unsigned magic, version;
#define CONFIG_INT(field, since, lo, hi) int field;
#define CONFIG_STR(field, since)         const char *field;
#include "config.def"
#undef CONFIG_INT
#undef CONFIG_STR
} ncclConfig_t;

typedef struct ncclConfigExt ncclConfigExt_t;
typedef struct {
    size_t size;
    unsigned magic, version;
    ncclConfigExt_t *ext;
    int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
    const char *algSelection;
    int forceAlgSelection, CTAPolicy;
    uint64_t userProfilerTag;
    symmEvent_t launchCompletionEvent;
} ncclCollConfig_t;

typedef struct {
    size_t size;
    unsigned magic, version;
    float estimatedTime;
} ncclSimInfo_t;

typedef enum {
    ncclStatGpuMemSuspend,
    ncclStatGpuMemSuspended,
    ncclStatGpuMemPersist,
    ncclStatGpuMemTotal
} ncclCommMemStat_t;

/* As far as 2.30 has it; what newer versions have behind is left as the caller filled it. */
typedef struct ncclCommProperties {
    size_t size;
    unsigned magic, version;
    int rank, nRanks, cudaDev, nvmlDev;
    _Bool deviceApiSupport, multimemSupport;
    int ginType;
    int nLsaTeams;
    _Bool hostRmaSupport; /* ncclPutSignal and its like */
    int railedGinType;
} ncclCommProperties_t;

typedef struct ncclTeam {
    int nRanks, rank, stride;
} ncclTeam_t;

/* The record behind a window's handle, as device code of 2.28 to 2.32 reads it. */
struct ncclWindow_vidmem {
    void *winHost;
    char *lsaFlatBase; /* rank 0's part of the window; rank r's: + (r * stride4G << 32) */
    int lsaRank, worldRank;
    uint32_t stride4G;
    uint32_t mcOffset4K, ginOffset4K;
};

/* Only ever pointed to, or passed on. */
typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;
typedef struct ncclDevComm ncclDevComm_t;
typedef struct ncclDevResourceRequirements ncclDevResourceRequirements_t;
typedef struct ncclParamHandle *ncclParamHandle_t;
typedef struct ncclEncryptionConfig ncclEncryptionConfig_t;
typedef struct ncclLsaBarrierHandle ncclLsaBarrierHandle_t;
typedef struct ncclGinBarrierHandle ncclGinBarrierHandle_t;
typedef struct ncclLLA2AHandle ncclLLA2AHandle_t;
typedef struct ncclGinOutboxHandle ncclGinOutboxHandle_t;
typedef struct ncclGinInboxA2AHandle ncclGinInboxA2AHandle_t;
typedef uint32_t ncclCftLeId;
typedef int ncclCftTeamMode_t;
typedef struct {
    void *mcBasePtr;
} ncclMultimemHandle_t;
typedef struct {
    int opCnt, peer, sigIdx, ctx;
} ncclWaitSignalDesc_t;

#endif
