/* report.c - what was served, in numbers; what the library says. Any thread: the counters are
 * atomic, a line is written at once. */
#include "pmpi.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 1 << 10, MEDIUM = 1 << 20 }; /* up to these */
enum { UP_TO_1K, UP_TO_1M, LARGER, SIZES };
/* A name, and five numbers of up to 20 digits with words between them. */
enum { OF_A_CALL = 160, OF_ALL = PMPI_CALLS * OF_A_CALL };

static const char *const names[] = {
#define CALL(name, ...) #name,
#include "calls.def"
#undef CALL
};
static _Atomic uint64_t served[PMPI_CALLS][SIZES], left[PMPI_CALLS];

void pmpi_count(int call, int is_served, size_t bytes) {
    const int size = bytes <= SMALL ? UP_TO_1K : bytes <= MEDIUM ? UP_TO_1M : LARGER;
    atomic_fetch_add_explicit(is_served ? &served[call][size] : &left[call], 1,
                              memory_order_relaxed);
}

/* One write, so that lines of several ranks do not mix. */
static void say(const char *level, const char *fmt, va_list ap) {
    char line[OF_ALL + 64];
    int n = snprintf(line, sizeof line, "symm-pmpi: %s", level);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    line[n] = '\n';
    fwrite(line, 1, (size_t)n + 1, stderr);
}
void pmpi_warn(const char *fmt, ...) {
    const char *level = getenv("SYMM_DEBUG");
    va_list ap;
    if (level && !strcmp(level, "NONE")) return;
    va_start(ap, fmt);
    say("WARN ", fmt, ap);
    va_end(ap);
}
static int is_info(void) {
    const char *level = getenv("SYMM_DEBUG");
    return level && (!strcmp(level, "INFO") || !strcmp(level, "TRACE"));
}
void pmpi_info(const char *fmt, ...) {
    va_list ap;
    if (!is_info()) return;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

void pmpi_report(void) {
    char text[OF_ALL];
    int n = 0;
    for (int c = 0; c < PMPI_CALLS; c++) {
        const unsigned long long small = served[c][UP_TO_1K], medium = served[c][UP_TO_1M],
                                 large = served[c][LARGER], mpis = left[c],
                                 ours = small + medium + large;
        if (!ours && !mpis) continue;
        n += snprintf(text + n, sizeof text - (size_t)n,
                      "%s%s %llu (<=1K %llu, <=1M %llu, >1M "
                      "%llu) of %llu",
                      n ? "; " : "", names[c], ours, small, medium, large, ours + mpis);
        if (n >= (int)sizeof text) break;
    }
    pmpi_info("served: %s", n ? text : "nothing");
}
