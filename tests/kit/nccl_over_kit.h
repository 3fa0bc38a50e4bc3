/* nccl_over_kit.h - for tests of native communicators with a real NCCL beside them
 * (SYMM_NCCL_FORWARD=op): what only the real NCCL has, what stands beside one, all ranks in one
 * thread. The program defines _GNU_SOURCE. */
#ifndef NCCL_OVER_KIT_H_
#define NCCL_OVER_KIT_H_

#include "../../nccl-tests-plugin/plugin.h"
#include "nccl_kit.h"
#include "nccl_real_kit.h"

/* A type and a reduction of tests/fake/nccl_whole.c alone: ints, and the sum of squares. */
enum { RANKS = 3, NEW_TYPE = ncclNumTypes, NEW_OP = ncclNumOps };
#define TYPE ((ncclDataType_t)NEW_TYPE)
#define OP   ((ncclRedOp_t)NEW_OP)
enum { DESTROY, FINALIZE, ABORT, ENDS };

static inline void use_over(const char *lib) {
    use_real("auto", lib);
    setenv("SYMM_NCCL_FORWARD", "op", 1);
}

static inline ncclComm_t shadow(ncclComm_t comm) {
    return nccl_shadow_of((nccl_comm *)(void *)comm)->comm;
}

static inline uint64_t over(ncclComm_t comm, int call) {
    return nccl_shadow_of((nccl_comm *)(void *)comm)->calls[call];
}

static inline int sum_to(int n) {
    return n * (n + 1) / 2;
}

static inline void end_one(ncclComm_t comm, int how) {
    if (how == FINALIZE) N_OK(ncclCommFinalize(comm));
    if (how == ABORT)
        N_OK(ncclCommAbort(comm));
    else
        N_OK(ncclCommDestroy(comm));
}

static ncclComm_t all[RANKS];

static inline void make_all(void) {
    N_OK(ncclCommInitAll(all, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) T_CHECK(shadow(all[r]) != NULL);
}

static inline void end_all(int how) {
    for (int r = 0; r < RANKS; r++) end_one(all[r], how);
    all_gone();
}

#endif
