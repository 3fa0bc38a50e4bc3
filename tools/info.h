/* info.h - symm-info: what its files share. One thread, no lock. */
#ifndef INFO_H_
#define INFO_H_

#include <stddef.h>
#include <stdint.h>

#include "../src/transport/vmm.h"

void info_head(const char *title);
void info_row(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "2 MiB" into out; returns out. */
const char *info_bytes(uint64_t bytes, char *out, size_t cap);

void info_machine(void); /* info_machine.c */
void info_memory(void);  /* info_memory.c */
/* A driver's memory: on GPUs, of the current device. */
void info_driver(const symm_vmm *v);
void info_gpus(void); /* info_gpu.c */
/* Multiprocessors of the first GPU, 0 without one. */
int info_sms(void);

#endif
