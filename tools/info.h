/* info.h - symm-info: what its files share. One thread, no lock. */
#ifndef INFO_H_
#define INFO_H_

#include <stddef.h>
#include <stdint.h>

#include "transport/vmm/vmm.h"

void info_head(const char *title);
void info_row(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "2 MiB" into out; returns out. */
const char *info_bytes(uint64_t bytes, char *out, size_t cap);

void info_machine(void); /* info_machine.c */
void info_memory(void);  /* info_memory.c */
void info_errors(void);  /* info_errors.c */
void info_domain(void);  /* info_domain.c */
/* A driver's memory: on GPUs, of the current device. */
void info_driver(const symm_vmm *v);
/* Limits, costs and layout of a heap of that many ranks (0: GPUs, or 2 on the host); svg: NULL or a
 * file for its map. 1: failed. */
int info_heap(int ranks, const char *svg); /* info_heap.c */
/* What runs when, for that many ranks (0: 2, 4 and 8), as the variables have it; plot: NULL or a
 * file for the drawing. 1: failed. */
int info_plans(int ranks, const char *plot); /* info_plan.c */
void info_gpus(void);                        /* info_gpu.c */
/* Multiprocessors of the first GPU, 0 without one. */
int info_sms(void);

#endif
