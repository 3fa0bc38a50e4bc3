/* cache_info.h - how much of what a rank touches its caches keep. Pure reading of what the system
 * says; any thread. */
#ifndef SYMM_CACHES_H_
#define SYMM_CACHES_H_

#include <stdint.h>

/* Bytes that a rank may touch in a call, of nranks that do so at once, and find in its caches
 * afterwards. 0: the system does not say, or the measure is another (cache_info.c). */
uint64_t symm_caches_keep(int nranks);

/* `size` as sysfs writes it ("32768K"), 0 if it is none. */
uint64_t symm_caches_size(const char *text);
/* CPUs in a list as sysfs writes it ("0-3,8"), 0 if it is none. */
int symm_caches_cpus(const char *text);

#endif
