/* moe_kit.h - tokens for the kernel `moe` of device_kernels.inl: what a rank has, and which expert
 * each goes to. One thread. */
#ifndef MOE_KIT_H_
#define MOE_KIT_H_

#include "emu_dev.h"
#include "t.h"

/* Of n ranks. In the window the tokens lie at a->from; room for the results is behind them, then
 * `order` and `first`. Often an expert gets none, often all; one: one of them gets all. */
static inline void moe_fill(unsigned char *window, int n, const emu_dev_args *a, int one,
                            uint64_t *random) {
    const unsigned tokens = (unsigned)a->len, vecs = a->items;
    unsigned char *own = window + a->from;
    float *x = (float *)(void *)own;
    uint32_t *order = (uint32_t *)(void *)(own + 2 * tokens * vecs * 16), at = 0;
    int expert[MOE_MOST] = {0};
    for (unsigned i = 0; i < tokens * vecs * 4; i++) x[i] = (float)t_draw(random, 1000) - 500;
    for (unsigned i = 0; i < tokens; i++)
        if (!one && t_draw(random, 3)) expert[i] = (int)t_draw(random, (uint64_t)n);
    for (int e = 0; e <= n; e++) {
        order[MOE_MOST + e] = at;
        for (unsigned i = 0; i < tokens; i++)
            if (expert[i] == e) order[at++] = i;
    }
}

#endif
