/* host_kernels.h - host kernels as programs write them (symm_device_host.h), for tests: what they
 * are told, and what they leave behind. tests/fake/host_kernels.c has them, so that mutants of the
 * header compile one file anew. The thread that runs a kernel. */
#ifndef HOST_KERNELS_H_
#define HOST_KERNELS_H_

#include "symm_device_host.h"

enum {
    HK_WORDS = 96,  /* of a round's data, 4 bytes each */
    HK_AREA = 4096, /* bytes of an index in the window */
    HK_FULL = 0,    /* signals of index 0; those of index i are 4 further on each */
    HK_READ = 1,
    HK_SUM = 2,
    HK_SIGNALS = 4,
    HK_ITEMS = 5 /* packets to each peer in a session */
};

typedef struct {
    const symmDevComm_t *dev;
    const symmDevWindow_t *win;
    int index;
    int rounds, first; /* how many, and the number of the first */
    int absent;        /* 1: this rank begins and ends, and does nothing between */
    int any;           /* 1: waits for signals name no peer */
    int slow_us;       /* sleeps so long in the middle of each round */
    /* What it leaves. */
    symmResult_t began, ended;
    int wrong, done; /* words that were wrong; rounds that it has ended */
} hk_args;

typedef void (*hk_kernel)(void *args);

/* Data of all ranks before a barrier, read behind it; another barrier before the next. */
void hk_barriers(void *args);
/* The same; the pause of the slow one is between arrive and wait: the words are there then, and the
 * others at their next barrier. */
void hk_apart(void *args);
/* A put to the next rank with a signal, which is answered by one. */
void hk_ring(void *args);
/* The same, with signals that are stored, and polled by reading them. */
void hk_polls(void *args);
/* Signals that all ranks raise, and that are reset. */
void hk_counts(void *args);
/* Packets to all ranks, the own one too. */
void hk_packets(void *args);

/* Uses what there is not. From HK_NO_INDEX on they are wrong without an index only. */
enum {
    HK_PEER,
    HK_SIGNAL,
    HK_AWAITED,
    HK_ITEM,
    HK_TOO_LONG,
    HK_UNBEGUN,
    HK_NO_INDEX,
    HK_NO_ARRIVAL,
    HK_NO_SESSION,
    HK_WRONGS
};
void hk_misuse(symmHostCta_t *cta, int how);

#endif
