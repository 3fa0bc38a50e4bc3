/* emu_range.h - the multicast range for kernels on fibers, in place of what ptx.cuh has of it.
 * Behind elem.cuh, whose numbers of 16 bits it needs. One thread. */
#ifndef EMU_RANGE_H_
#define EMU_RANGE_H_

#include "emu_cuda.h"
#include "../../src/device/cuda/elem.cuh"

DEV void alias_fence(void) {
    emu_cast_fence();
}
DEV void multicast_store8(char *p, uint32_t low, uint32_t high) {
    const uint32_t v[2] = {low, high};
    emu_turn(EMU_STORES);
    emu_cast_store(p, v, sizeof v);
}
DEV void multicast_store16(char *p, uint4 v) {
    emu_turn(EMU_STORES);
    emu_cast_store(p, (const void *)&v, sizeof v);
}
/* 16 bytes as elements E, which `widen` makes numbers A; in rank order, so that a test can say what
 * comes. The hardware has an order of its own. */
template <typename E, typename A, typename W, typename N, typename F>
static inline uint4 emu_multicast(const char *p, W widen, N narrow, F two) {
    const int n = 16 / sizeof(E);
    E in[16 / sizeof(E)];
    A sum[16 / sizeof(E)] = {};
    for (int r = 0; r < emu_cast_ranks(); r++) {
        emu_turn(EMU_LOOKS);
        emu_cast_load(in, p, sizeof in, r);
        for (int i = 0; i < n; i++) sum[i] = r ? two(sum[i], widen(in[i])) : widen(in[i]);
    }
    for (int i = 0; i < n; i++) in[i] = narrow(sum[i]);
    uint4 v;
    memcpy((void *)&v, in, sizeof v);
    return v;
}
#define EMU_MULTICAST(name, E, A, widen, narrow, two)                                    \
    DEV uint4 multicast_##name(const char *p) {                                          \
        return emu_multicast<E, A>(                                                      \
            p, [](E v) -> A { return widen(v); }, [](A v) -> E { return (E)narrow(v); }, \
            [](A a, A b) -> A { return two; });                                          \
    }
EMU_MULTICAST(add_f32, float, float, , , a + b)
EMU_MULTICAST(add_f16, uint16_t, float, symm_f16_decode, symm_f16_encode, a + b)
EMU_MULTICAST(add_bf16, uint16_t, float, symm_bf16_decode, symm_bf16_encode, a + b)
EMU_MULTICAST(add_f64, double, double, , , a + b)
#define EMU_MULTICAST_INT(name, E)                     \
    EMU_MULTICAST(max_##name, E, E, , , a > b ? a : b) \
    EMU_MULTICAST(min_##name, E, E, , , a < b ? a : b)
EMU_MULTICAST(add_u32, uint32_t, uint32_t, , , a + b)
EMU_MULTICAST(add_u64, uint64_t, uint64_t, , , a + b)
EMU_MULTICAST_INT(u32, uint32_t)
EMU_MULTICAST_INT(s32, int32_t)
EMU_MULTICAST_INT(u64, uint64_t)
EMU_MULTICAST_INT(s64, int64_t)

#endif
