/* unit_plan_none.c - a collective that a backend does not have: none of the planner's tables gives
 * it another one's kernel, and the call is refused. One thread. */
#include <stdlib.h>

#include "host/coll/coll.h"
#include "base/handle.h"
#include "t.h"

/* The tables end in the barrier's row: what has no row of its own must not get that one. */
static void a_collective_without_a_row_has_no_kernel(void) {
    int16_t forced[symmNumColls + 1] = {
        [0 ... symmNumColls - 1] = -1, [symmNumColls] = SYMM_KERNEL_BARRIER};
    for (int gpu = 0; gpu < 2; gpu++)
        for (int n = 1; n <= SYMM_MAX_RANKS; n++) {
            symm_plan_env env = {.nranks = n, .gpu = gpu, .sms = 132, .forced = forced};
            env.scratch = gpu ? symm_plan_gpu_scratch(1 << 20, n) : symm_plan_scratch(1 << 20, n);
            symm_call call = {.coll = symmNumColls, .count = 1, .type = symmUint8, .esize = 1};
            T_EQ(symm_plan_make(&env, &call).kernel, SYMM_KERNEL_COUNT);
            T_EQ(symm_plan_gpu(&env, &call, SYMM_KERNEL_BARRIER).kernel, SYMM_KERNEL_COUNT);
            call.coll = symmCollBarrier;
            T_EQ(symm_plan_make(&env, &call).kernel, SYMM_KERNEL_BARRIER);
        }
}

/* Nor does such a call come to a launch. */
static void a_collective_without_a_kernel_is_refused(void) {
    symmComm_t comm;
    symm_launch l;
    int x = 0;
    setenv("SYMM_BACKEND", "host", 1);
    T_EXPECT_WARNINGS();
    T_OK(symmCommInitAll(&comm, 1, NULL));
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    const symm_coll k = {
        .coll = symmNumColls, .src = &x, .dst = &x, .count = 1, .type = symmInt32, .op = symmSum};
    T_ERR(symm_coll_prepare(c, &k, &l), symmNotSupported);
    T_MSG(symmGetLastError(NULL), "is not on the host backend");
    T_OK(symmBarrier(comm, NULL));
    T_OK(symmCommDestroy(comm));
}

/* Ranks that name different roots have made different calls. */
static void the_root_is_in_the_signature(void) {
    symmComm_t comm;
    symm_launch at_0, at_1;
    int x = 0;
    setenv("SYMM_BACKEND", "host", 1);
    T_OK(symmCommInitAll(&comm, 1, NULL));
    symm_comm *c = symm_handle_peek(SYMM_KIND_COMM, comm);
    symm_coll k = {.coll = symmCollAllReduce,
                   .src = &x,
                   .dst = &x,
                   .count = 1,
                   .type = symmInt32,
                   .op = symmSum};
    T_OK(symm_coll_prepare(c, &k, &at_0));
    k.root = 1;
    T_OK(symm_coll_prepare(c, &k, &at_1));
    T_CHECK(at_0.args.sig != at_1.args.sig);
    T_EQ(at_1.call.root, 1);
    T_OK(symmCommDestroy(comm));
}

T_MAIN(T(a_collective_without_a_row_has_no_kernel), T(a_collective_without_a_kernel_is_refused),
       T(the_root_is_in_the_signature))
