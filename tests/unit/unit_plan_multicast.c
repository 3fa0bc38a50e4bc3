/* unit_plan_multicast.c - when the planner takes the multicast range: which calls can go there, and
 * from which size on. Pure; one thread. */
#include <string.h>

#include "device/host/reduce.h"
#include "host/coll/plan.h"
#include "t.h"

static const int16_t free_choice[symmNumColls] = SYMM_FORCED_NONE;

static symm_plan_env env_of(int n, int quarter) {
    return (symm_plan_env){.nranks = n,
                           .gpu = 1,
                           .sms = 132,
                           .quarter = quarter,
                           .multicast = 1,
                           .forced = free_choice,
                           .scratch = symm_plan_gpu_scratch(32u << 20, n)};
}
static symm_call call_of(symmColl_t coll, symmDataType_t type, uint32_t op, uint64_t bytes) {
    const uint32_t esize = (uint32_t)symm_type_size(type);
    return (symm_call){
        .coll = coll, .type = type, .op = op, .esize = esize, .count = bytes / esize};
}

/* Of the types and reductions, those that the switch has. */
static int is_there(uint32_t type, uint32_t op) {
    const int whole = type == symmInt32 || type == symmUint32 || type == symmInt64 ||
                      type == symmUint64,
              wide = type == symmFloat32 || type == symmFloat64,
              half = type == symmFloat16 || type == symmBfloat16;
    switch (op) {
    case symmSum: return whole || wide || half;
    case symmAvg: return whole || wide;
    case symmMax:
    case symmMin: return whole;
    default: return 0;
    }
}

static void multicast_where_it_can(void) {
    symm_plan_env env = env_of(4, 1);
    const char *why;
    for (uint32_t type = 0; type < symmNumTypes; type++)
        for (uint32_t op = 0; op < SYMM_OP_COUNT; op++) {
            const symm_call call = call_of(symmCollAllReduce, (symmDataType_t)type, op, 1 << 20);
            T_EQ(symm_plan_can(&env, &call, SYMM_KERNEL_AR_MULTICAST, NULL), is_there(type, op));
        }
    symm_call call = call_of(symmCollAllReduce, symmFloat32, symmSum, (1 << 20) + 4);
    T_CHECK(!symm_plan_can(&env, &call, SYMM_KERNEL_AR_MULTICAST, &why));
    T_CHECK(strstr(why, "16 bytes"));
    call.count--;
    T_CHECK(symm_plan_can(&env, &call, SYMM_KERNEL_AR_MULTICAST, &why));
    env.deterministic = 1;
    T_CHECK(!symm_plan_can(&env, &call, SYMM_KERNEL_AR_MULTICAST, &why));
    T_CHECK(strstr(why, "rank order"));
    env.deterministic = 0, env.nranks = 2;
    T_CHECK(!symm_plan_can(&env, &call, SYMM_KERNEL_AR_MULTICAST, NULL));
    env.nranks = 4, env.multicast = 0;
    T_CHECK(!symm_plan_can(&env, &call, SYMM_KERNEL_AR_MULTICAST, &why));
    T_CHECK(strstr(why, "SYMM_MULTICAST"));
    /* What moves needs no switch that reduces, and may be deterministic. */
    env.multicast = env.deterministic = 1;
    call = call_of(symmCollBroadcast, symmFloat8e4m3, 0, 1 << 20);
    T_CHECK(symm_plan_can(&env, &call, SYMM_KERNEL_BC_MULTICAST, NULL));
}

/* Without a range the plan is what it was; with one, from some size on it is over the range. */
static void large_messages_take_it(void) {
    static const symmColl_t colls[] = {symmCollAllReduce, symmCollBroadcast, symmCollReduce};
    for (int i = 0; i < 3; i++)
        for (int n = 2; n <= 16; n++)
            for (int quarter = 0; quarter < 2; quarter++) {
                int taken = 0;
                for (uint64_t bytes = 64; bytes <= 1u << 30; bytes *= 2) {
                    symm_plan_env env = env_of(n, quarter);
                    const symm_call call = call_of(colls[i], symmFloat32, symmSum, bytes);
                    const symm_plan with = symm_plan_make(&env, &call);
                    env.multicast = 0;
                    const symm_plan without = symm_plan_make(&env, &call);
                    const int is = symm_kernels[with.kernel].multicast != 0;
                    T_CHECK(!symm_kernels[without.kernel].multicast);
                    if (!is) T_CHECK(!memcmp(&with, &without, sizeof with));
                    T_CHECKF(is || !taken, "%s of %llu bytes, %d ranks: not any more",
                             symm_colls[colls[i]].name, (unsigned long long)bytes, n);
                    taken |= is;
                }
                T_EQ(taken, n > 2);
            }
}

/* Packets take any call that LL takes: ranks reduce it, in their order. */
static void packets_where_scratch_is_bound(void) {
    symm_plan_env env = env_of(4, 1);
    const char *why;
    env.cast_scratch = env.deterministic = 1;
    const uint64_t most = env.scratch.gpu.ll_slot / 2;
    symm_call call = call_of(symmCollAllReduce, symmFloat8e4m3, symmMax, 13);
    T_CHECK(symm_plan_can(&env, &call, SYMM_KERNEL_AR_CAST_PACKET, NULL));
    call.count = most;
    T_CHECK(symm_plan_can(&env, &call, SYMM_KERNEL_AR_CAST_PACKET, NULL));
    call.count = most + 1;
    T_CHECK(!symm_plan_can(&env, &call, SYMM_KERNEL_AR_CAST_PACKET, NULL));
    call.count = 13, env.cast_scratch = 0;
    T_CHECK(!symm_plan_can(&env, &call, SYMM_KERNEL_AR_CAST_PACKET, &why));
    T_CHECK(strstr(why, "scratch"));
    env.cast_scratch = 1, env.nranks = 2;
    T_CHECK(!symm_plan_can(&env, &call, SYMM_KERNEL_AR_CAST_PACKET, NULL));
    env.nranks = 4, env.gpu = 0; /* as many as other packets of the host backend */
    env.scratch = symm_plan_scratch(1u << 20, 4);
    for (uint64_t bytes = 64; bytes <= 1u << 20; bytes += 4096) {
        call.count = bytes;
        T_EQ(symm_plan_can(&env, &call, SYMM_KERNEL_AR_CAST_PACKET, NULL),
             symm_plan_can(&env, &call, SYMM_KERNEL_AR_PUSH, NULL));
    }
}
/* By themselves of five ranks and more, where LL would go; nothing else changes. */
static void small_messages_of_many_take_it(void) {
    for (int n = 2; n <= 16; n++)
        for (uint64_t bytes = 1; bytes <= 1u << 20; bytes *= 2) {
            symm_plan_env env = env_of(n, 0);
            const symm_call call = call_of(symmCollAllReduce, symmUint8, symmMin, bytes);
            symm_plan without = symm_plan_make(&env, &call);
            env.cast_scratch = 1;
            const symm_plan with = symm_plan_make(&env, &call);
            if (n > 4 && without.kernel == SYMM_KERNEL_AR_LL) {
                without.kernel = SYMM_KERNEL_AR_CAST_PACKET;
                T_EQ(with.source, SYMM_PLAN_PREDICTED);
            }
            T_CHECKF(!memcmp(&with, &without, sizeof with), "%d ranks, %llu bytes: %s", n,
                     (unsigned long long)bytes, symm_kernels[with.kernel].name);
        }
}

T_MAIN(T(packets_where_scratch_is_bound), T(small_messages_of_many_take_it),
       T(multicast_where_it_can), T(large_messages_take_it))
