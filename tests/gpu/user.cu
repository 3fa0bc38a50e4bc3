/* user.cu - kernels as a user of the library might write them, launched programmatically before and
 * after a collective: they let their dependants in at once and do everything after their own wait.
 * Loaded by gpu_pdl.c and gpu_litmus.c from build/cuda/user.fatbin. */
#include <stdint.h>

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
