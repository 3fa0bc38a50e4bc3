/* host_kernel_kit.h - what tests of host kernels share: a rank's memory and device communicator,
 * and running a kernel of host_kernels.h on several threads of it. Each rank's own thread; no
 * lock. */
#ifndef HOST_KERNEL_KIT_H_
#define HOST_KERNEL_KIT_H_

#include <pthread.h>
#include <string.h>

#include "host_kernels.h"
#include "symm_heap.h"
#include "t.h"

enum { HKK_CTAS = 3, HKK_BYTES = 4 << 20, HKK_SIGNALS = HKK_CTAS * HK_SIGNALS };

typedef struct {
    int rank, n;
    symmComm_t comm;
    symmHeap_t heap;
    char *mem;
    symmDevWindow_t win;
    symmDevComm_t dev;
} hkk_rank;

static inline symmDevRequirements_t hkk_need(void) {
    symmDevRequirements_t q = SYMM_DEV_REQUIREMENTS_INITIALIZER;
    q.barriers = HKK_CTAS;
    q.signals = HKK_SIGNALS;
    q.llBytes = HK_ITEMS * SYMM_HOST_PACKET_BYTES - 3; /* rounded up to whole packets */
    q.lineBytes = 1000;                                /* of which there are none here */
    return q;
}

/* [collective] */
static inline void hkk_open(hkk_rank *w, symmComm_t comm, int rank, int n) {
    symmHeapConfig_t config = SYMM_HEAP_CONFIG_INITIALIZER;
    const symmDevRequirements_t need = hkk_need();
    *w = (hkk_rank){.rank = rank, .n = n, .comm = comm};
    config.symBytes = HKK_BYTES;
    T_OK(symmHeapCreate(comm, &config, &w->heap));
    T_OK(symmHeapAlloc(w->heap, HKK_BYTES, 0, SYMM_ALLOC_SYM, (void **)&w->mem));
    T_OK(symmDevWindowGet(comm, w->mem, HKK_BYTES, &w->win));
    T_OK(symmDevCommCreate(comm, &need, &w->dev));
    T_EQ(w->dev.rank, rank);
    T_EQ(w->dev.nranks, n);
    T_EQ(w->dev.llBytes, HK_ITEMS * SYMM_HOST_PACKET_BYTES);
    T_EQ(w->dev.lineBytes, 0);
}
static inline void hkk_close(hkk_rank *w) {
    T_OK(symmBarrier(w->comm, NULL)); /* peers may still read and store */
    T_OK(symmDevCommDestroy(w->comm, &w->dev));
    T_OK(symmHeapDestroy(w->heap));
}

static inline hk_args hkk_args(const hkk_rank *w, int index, int rounds) {
    return (hk_args){.dev = &w->dev, .win = &w->win, .index = index, .rounds = rounds};
}

typedef struct {
    hk_kernel kernel;
    hk_args args;
} hkk_thread;
static inline void *hkk_run_thread(void *arg) {
    hkk_thread *t = arg;
    t->kernel(&t->args);
    return NULL;
}

/* One kernel on `ctas` threads, which all must succeed. base: what they are told, but for the
 * index. */
static inline void hkk_run(hk_kernel kernel, const hk_args *base, int ctas) {
    hkk_thread t[HKK_CTAS] = {{0}};
    pthread_t thread[HKK_CTAS];
    for (int i = 0; i < ctas; i++) {
        t[i] = (hkk_thread){kernel, *base};
        t[i].args.index = i;
        if (i) T_EQ(pthread_create(&thread[i], NULL, hkk_run_thread, &t[i]), 0);
    }
    hkk_run_thread(&t[0]);
    for (int i = 0; i < ctas; i++) {
        if (i) pthread_join(thread[i], NULL);
        T_OK(t[i].args.began);
        T_OK(t[i].args.ended);
        T_CHECKF(!t[i].args.wrong, "rank %d of %d, index %d: %d words are wrong", base->dev->rank,
                 base->dev->nranks, i, t[i].args.wrong);
        T_EQ(t[i].args.done, base->rounds);
    }
}

#endif
