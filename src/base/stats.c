/* stats.c - counters and gauges of the process, and their JSON. Any thread; relaxed atomics, no
 * lock. Each number is right; several numbers that are read while others count may be of different
 * moments. */
#include "stats.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

symm_stats_t symm_stats;

static void forked(void) {
    atomic_store_explicit(&symm_stats.threads, 0, memory_order_relaxed);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forked);
}

void symm_stat_threads(int n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    SYMM_STAT_ADD(threads, n);
}

typedef struct {
    char *buf;
    size_t cap, len; /* len: what the whole text needs, whatever fits */
} out_t;

static void put(out_t *o, const char *before, const char *name, int64_t value) {
    size_t room = o->len < o->cap ? o->cap - o->len : 0;
    int n = snprintf(room ? o->buf + o->len : NULL, room, "%s\"%s\":%" PRId64, before, name, value);
    if (n > 0) o->len += (size_t)n;
}

static void put_text(out_t *o, const char *text) {
    size_t room = o->len < o->cap ? o->cap - o->len : 0;
    int n = snprintf(room ? o->buf + o->len : NULL, room, "%s", text);
    if (n > 0) o->len += (size_t)n;
}

size_t symm_stats_json(char *buf, size_t cap) {
    out_t o = {buf, cap, 0};
    const char *comma = "";
    put_text(&o, "\"gauges\":{");
#define SYMM_GAUGE(name, help) put(&o, comma, #name, SYMM_STAT_GET(name)), comma = ",";
#define SYMM_COUNTER(name, help)
#include "stats.def"
#undef SYMM_GAUGE
#undef SYMM_COUNTER
    put_text(&o, "},\"counters\":{");
    comma = "";
#define SYMM_GAUGE(name, help)
#define SYMM_COUNTER(name, help) put(&o, comma, #name, SYMM_STAT_GET(name)), comma = ",";
#include "stats.def"
#undef SYMM_GAUGE
#undef SYMM_COUNTER
    put_text(&o, "}");
    return o.len;
}

int symm_stats_gauges(int64_t *values, const char **names, int cap) {
    int n = 0;
#define SYMM_GAUGE(name, help)           \
    if (n < cap) {                       \
        values[n] = SYMM_STAT_GET(name); \
        if (names) names[n] = #name;     \
    }                                    \
    n++;
#define SYMM_COUNTER(name, help)
#include "stats.def"
#undef SYMM_GAUGE
#undef SYMM_COUNTER
    return n;
}
