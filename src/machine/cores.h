/* cores.h - which processors the calling thread may use, however many the machine has, and what
 * they are. Any thread, no lock. */
#ifndef SYMM_CORES_H_
#define SYMM_CORES_H_

#include <stddef.h>
#include <stdint.h>

/* How many; the first `most` of their numbers go to list. 0: the system does not say. */
int symm_cores(uint16_t *list, int most);
/* What the system calls the processor; "unknown" where it has no name for it. */
void symm_cpu_name(char *out, size_t cap);

#endif
