/* user.cu - kernels as a user of the library might write them, launched programmatically before and
 * after a collective: they let their dependants in at once and do everything after their own wait.
 * Loaded by gpu_pdl.c and gpu_litmus.c from build/cuda/user.fatbin. */
#include <stdint.h>

#include "../../src/device/cuda/ptx.cuh"

static __device__ void enter(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Late on purpose: whoever does not wait for it reads what was there before. */
extern "C" __global__ void user_fill(float *p, unsigned long long n, float value,
                                     unsigned long long delay_ns) {
    uint64_t begin, now;
    enter();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < delay_ns);
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        p[i] = value + (float)(i % 5);
}

/* Counts what is not want + scale * (i % 5). */
extern "C" __global__ void user_check(const float *p, unsigned long long n, float want, float scale,
                                      unsigned *wrong) {
    enter();
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        if (p[i] != want + scale * (float)(i % 5)) atomicAdd(wrong, 1u);
}

/* For gpu_litmus.c: plain stores to all ranks, and a look for what all ranks have stored here. */
struct peers {
    unsigned *at[8];
};
extern "C" __global__ void user_scatter(peers p, int n, int rank, unsigned long long words,
                                        unsigned value) {
    enter();
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < words;
         i += (uint64_t)gridDim.x * blockDim.x)
        for (int q = 0; q < n; q++)
            p.at[q][(uint64_t)rank * words + i] = value + (unsigned)rank + (unsigned)i;
}
extern "C" __global__ void user_scattered(const unsigned *own, int n, unsigned long long words,
                                          unsigned value, unsigned *wrong) {
    enter();
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < words;
         i += (uint64_t)gridDim.x * blockDim.x)
        for (int p = 0; p < n; p++)
            if (own[(uint64_t)p * words + i] != value + (unsigned)p + (unsigned)i)
                atomicAdd(wrong, 1u);
}

/* For gpu_litmus.c: each warp stores 512 bytes, four lines, again and again as the kernels do, each
 * time with another number in all its words. */
extern "C" __global__ void user_lines_put(char *to, unsigned rounds) {
    char *at = to + (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) * 16;
    enter();
    for (unsigned i = 1; i <= rounds; i++)
        while (put_whole_warp(at, make_uint4(i, i, i, i))) __syncwarp();
}
/* Each warp loads its lines as the kernels do until the last number is there, or for `ns`. counts:
 * lines in pieces, numbers seen, warps that have not seen the last one. */
extern "C" __global__ void user_lines_look(const char *own, unsigned last, unsigned long long ns,
                                           unsigned *counts) {
    const char *at = own + (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) * 16;
    unsigned torn = 0, seen = 0, before = 0;
    int going = 1;
    enter();
    const uint64_t until = clock_ns() + ns;
    while (going) {
        uint4 v = make_uint4(0, 0, 0, 0);
        __syncwarp();
        if (get_whole_warp(v, at, 1)) continue;
        const unsigned first = __shfl_sync(0xffffffffu, v.x, (int)(threadIdx.x & 24u));
        torn += v.x != first || v.y != first || v.z != first || v.w != first;
        seen += first != before, before = first;
        going = __any_sync(0xffffffffu, first != last && clock_ns() < until);
    }
    if (torn) atomicAdd(&counts[0], torn);
    if ((threadIdx.x & 7u) == 0) atomicAdd(&counts[1], seen);
    if (before != last) atomicAdd(&counts[2], 1u);
}
