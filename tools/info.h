/* info.h - symm-info: what its files share. One thread, no lock. */
#ifndef INFO_H_
#define INFO_H_

#include <stddef.h>
#include <stdint.h>

void info_head(const char *title);
void info_row(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "2 MiB" into out; returns out. */
const char *info_bytes(uint64_t bytes, char *out, size_t cap);

void info_machine(void); /* info_machine.c */
void info_memory(void);  /* info_memory.c */

#endif
