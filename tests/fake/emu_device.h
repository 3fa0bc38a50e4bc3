/* emu_device.h - compiles kernels that use the device API for a processor: what emu_cuda.h is to
 * the library's own kernels. It replaces symm_device_ptx.cuh. One thread, as emu.h. */
#ifndef EMU_DEVICE_H_
#define EMU_DEVICE_H_
#define SYMM_DEVICE_PTX_CUH_ /* so that it is empty */

#include <math.h>
#include <stdlib.h>

#include "emu_cuda.h"
#include "emu_dev.h"

#define SYMM_DEV               DEV
#define SYMM_DEV_SLOW          static __attribute__((noinline, unused))
#define SYMM_DEV_POLLS         8u /* no host takes part here */
#define SYMM_DEV_LEFT_GRACE_NS (256 * EMU_STEP_NS)
#define SYMM_DEV_TRAP()        abort()

namespace symm_ptx {

using ::clock_ns;
using ::count8_gpu; /* for mutants: adding without a release */
using ::get16;
using ::get4;
using ::get8;
using ::give8;
using ::put16;
using ::put4;
using ::put8;
using ::put_whole_warp;
using ::take4;
using ::take8;

DEV uint4 load_peer(const void *p) {
    return ::load16(p);
}
DEV uint32_t load_peer4(const void *p) {
    return ::load4(p);
}
DEV uint32_t load_peer1(const void *p) {
    return ::byte_at(p);
}
DEV void add8(void *p, uint64_t by) {
    emu_turn(EMU_STORES);
    emu_add(p, by);
}
DEV uint64_t most_ctas(void) {
    return emu_dev_places;
}
DEV void alias_fence(void) {
    emu_cast_fence();
}
DEV void multicast_store16(char *p, uint4 v) {
    emu_turn(EMU_STORES);
    emu_cast_store(p, (const void *)&v, sizeof v);
}
DEV void launch_dependents(void) {}
DEV void wait_for_grid_before(void) {}

DEV float half_low(uint32_t w) {
    const int e = (int)(w >> 10 & 31);
    const float m = (float)(w & 1023);
    const float f =
        e == 31 ? (w & 1023 ? NAN : INFINITY) : ldexpf(e ? m + 1024 : m, (e ? e : 1) - 25);
    return w >> 15 & 1 ? -f : f;
}
/* To nearest, ties to even: of numbers that float16 has in its normal range, or 0. */
DEV uint32_t half_bits(float f) {
    const uint32_t b = __float_as_uint(f), sign = b >> 16 & 0x8000u, v = b & 0x7fffffffu;
    if (!v) return sign;
    const uint32_t even = v + 0xfffu + (v >> 13 & 1u);
    return sign | ((even - (112u << 23)) >> 13);
}
DEV uint32_t half_pair(float low, float high) {
    return half_bits(low) | half_bits(high) << 16;
}
DEV uint32_t bfloat_bits(float f) {
    const uint32_t b = __float_as_uint(f);
    return (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
}
DEV uint32_t bfloat_pair(float low, float high) {
    return bfloat_bits(low) | bfloat_bits(high) << 16;
}

/* In rank order, so that a test can say what comes; the hardware has an order of its own. */
template <int COUNT, class U, class P> DEV uint4 added(const char *p, U unpack, P pack) {
    float sum[COUNT] = {}, x[COUNT];
    for (int r = 0; r < emu_cast_ranks(); r++) {
        uint32_t w[4];
        emu_turn(EMU_LOOKS);
        emu_cast_load(w, p, sizeof w, r);
        for (int i = 0; i < 4; i++) unpack(w[i], x + i * COUNT / 4);
        for (int i = 0; i < COUNT; i++) sum[i] = r ? sum[i] + x[i] : x[i];
    }
    return make_uint4(pack(sum), pack(sum + COUNT / 4), pack(sum + COUNT / 2),
                      pack(sum + COUNT / 4 * 3));
}
DEV uint4 multicast_add_f32(const char *p) {
    return added<4>(
        p, [](uint32_t w, float *x) { x[0] = __uint_as_float(w); },
        [](const float *x) { return __float_as_uint(x[0]); });
}
DEV uint4 multicast_add_f16(const char *p) {
    return added<8>(
        p, [](uint32_t w, float *x) { x[0] = half_low(w), x[1] = half_low(w >> 16); },
        [](const float *x) { return half_pair(x[0], x[1]); });
}
DEV uint4 multicast_add_bf16(const char *p) {
    return added<8>(
        p,
        [](uint32_t w, float *x) {
            x[0] = __uint_as_float(w << 16), x[1] = __uint_as_float(w & 0xffff0000u);
        },
        [](const float *x) { return bfloat_pair(x[0], x[1]); });
}

} // namespace symm_ptx

#endif
