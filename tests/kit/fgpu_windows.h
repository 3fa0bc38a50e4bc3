/* fgpu_windows.h - ranks on the fake CUDA driver with a window of 4 MB each, for tests of what
 * calls between windows launch. One thread. */
#ifndef FGPU_WINDOWS_H_
#define FGPU_WINDOWS_H_

#include "fgpu_kit.h"

static symmComm_t comms[GK_RANKS];
static char *mem, *all[GK_RANKS];
static symmWindow_t wins[GK_RANKS];

/* Ranks with a GPU each; all calls are rank 0's, whose kernels are notes. A window of 4 MB. */
static inline void start(int n) {
    gk_start(n, 0);
    gk_open(comms, n, NULL);
    for (int r = 0; r < n; r++) all[r] = gk_memory(r, 4 * GK_MB);
    T_OK(symmGroupStart());
    for (int r = 0; r < n; r++)
        T_OK(symmWindowRegister(comms[r], all[r], 4 * GK_MB, &wins[r], SYMM_WIN_DEFAULT));
    T_OK(symmGroupEnd());
    mem = all[0];
    T_OK(symm_cuda_set(0));
}

static inline void free_all(int n) {
    for (int r = 0; r < n; r++) T_OK(symmMemFree(all[r]));
}
static inline void finish(int n) {
    gk_close(comms, n);
    free_all(n);
}

#endif
