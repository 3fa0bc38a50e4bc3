/* cache_info.h - how many bytes of a call stay in a rank's caches, as the system describes them.
 * Any thread; no lock. */
#ifndef SYMM_CACHES_H_
#define SYMM_CACHES_H_

#include <stdint.h>

/* Bytes that each of nranks ranks may use in a call and find in its caches afterwards. 0: the
 * system does not say, or the second level decides (cache_info.c). */
uint64_t symm_caches_keep(int nranks);

/* `size` as sysfs writes it ("32768K"), 0 if it is none. */
uint64_t symm_caches_size(const char *text);
/* CPUs in a list as sysfs writes it ("0-3,8"), 0 if it is none. */
int symm_caches_cpus(const char *text);

#endif
