/* cache_info.c - how many bytes of a call stay in a rank's caches. Any thread, no lock. Two kinds
 * of last-level cache were measured (docs/performance.md):
 *  - one for a few cores, and near (AMD): data that fits the rank's share is better kept there;
 *  - one for all cores of a large chip, or mostly used by other guests: there the second level
 *    decides, and the planner's own constant is used. */
#include "cache_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

enum { LEVEL = 3, TEXT = 256 };

uint64_t symm_caches_size(const char *text) {
    char *end;
    const unsigned long n = strtoul(text, &end, 10);
    if (end == text || n > 1ul << 30) return 0;
    if (*end == 'K') return (uint64_t)n << 10;
    if (*end == 'M') return (uint64_t)n << 20;
    return 0;
}

int symm_caches_cpus(const char *text) {
    int count = 0;
    for (const char *at = text; *at && *at != '\n';) {
        char *end;
        const long first = strtol(at, &end, 10);
        long last = first;
        if (end == at || first < 0) return 0;
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            if (end == at || last < first || last > 1 << 20) return 0;
        }
        count += (int)(last - first + 1);
        at = *end == ',' ? end + 1 : end;
        if (*end != ',' && *end != '\n' && *end) return 0;
    }
    return count;
}

static int read_line(const char *name, char *line) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", LEVEL, name);
    FILE *f = symm_fd_read(path);
    if (!f) return 0;
    const int got = fgets(line, TEXT, f) != NULL;
    fclose(f);
    return got;
}

static int is_near(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") != 0;
#else
    return 0;
#endif
}

uint64_t symm_caches_keep(int nranks) {
    char size[TEXT], cpus[TEXT];
    if (!is_near() || !read_line("size", size) || !read_line("shared_cpu_list", cpus)) return 0;
    const int sharing = symm_caches_cpus(cpus), users = sharing < nranks ? sharing : nranks;
    return users > 0 ? symm_caches_size(size) / (unsigned)users : 0;
}
