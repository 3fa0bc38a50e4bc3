/* stats.h - process-wide counters and gauges. Any thread; relaxed atomics, no lock. */
#ifndef SYMM_STATS_H_
#define SYMM_STATS_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
#define SYMM_GAUGE(name, help)   _Atomic int64_t name;
#define SYMM_COUNTER(name, help) _Atomic int64_t name;
#include "stats.def"
#undef SYMM_GAUGE
#undef SYMM_COUNTER
} symm_stats_t;

extern symm_stats_t symm_stats;

#define SYMM_STAT_ADD(name, n) \
    atomic_fetch_add_explicit(&symm_stats.name, (n), memory_order_relaxed)
/* n threads of the library begin (-n: have ended). A child that is forked later has none. */
void symm_stat_threads(int n);
#define SYMM_STAT_GET(name) atomic_load_explicit(&symm_stats.name, memory_order_relaxed)

/* Writes `"gauges":{...},"counters":{...}` at buf, as snprintf does: NUL-terminated, truncated at
 * cap (0 allowed); returns the full length. */
size_t symm_stats_json(char *buf, size_t cap);
/* Copies the gauges in table order, at most cap; returns how many there are. names may be NULL. For
 * leak checks. */
int symm_stats_gauges(int64_t *values, const char **names, int cap);

#endif
