/* emu_kernels.cc - the GPU kernels, compiled for a processor by emu_cuda.h: those that move bytes, and those that reduce for three types: one with
 * a path of its own for sums, one of them narrow, and one of a single byte. */
#include "emu_cuda.h"

#include "../src/device/cuda/move.cu"
#undef KERNEL
#undef KERNEL_LL
#undef RANKS

#define SYMM_T     symmFloat32
#define SYMM_TNAME f32
#include "../src/device/cuda/reduce.cu"
#undef SYMM_T
#undef SYMM_TNAME
#undef KERNEL
#undef KERNEL_LL
#undef RANKS
#define SYMM_T     symmBfloat16
#define SYMM_TNAME bf16
#include "../src/device/cuda/reduce.cu"
#undef SYMM_T
#undef SYMM_TNAME
#undef KERNEL
#undef KERNEL_LL
#undef RANKS
#define SYMM_T     symmUint8
#define SYMM_TNAME u8
#include "../src/device/cuda/reduce.cu"

#define ONE(name) {#name, name},
#define RANKS_(row) \
    ONE(symm_##row##_n2) ONE(symm_##row##_n4) ONE(symm_##row##_n8) ONE(symm_##row##_n0)
#define TYPES(row) RANKS_(row##_f32) RANKS_(row##_bf16) RANKS_(row##_u8)
static const struct {
    const char *name;
    emu_kernel kernel;
} all[] = {TYPES(all_reduce_ll) TYPES(all_reduce_push_ll128) TYPES(all_reduce_2shot_ll128)
               TYPES(all_reduce_direct) RANKS_(all_gather_ll) RANKS_(all_gather_push_ll128)
                   RANKS_(all_gather_direct) ONE(symm_barrier_word_n0)};

extern "C" emu_kernel emu_find(const char *name) {
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(all[i].name, name)) return all[i].kernel;
    return NULL;
}
