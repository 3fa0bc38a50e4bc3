/* cores.c - the processors of the calling thread (see cores.h). Any thread, no lock. The kernel
 * refuses a set that is smaller than its own, and a cpu_set_t has 1,024 processors. So the set
 * grows until the kernel takes it. */
#define _GNU_SOURCE
#include "cores.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"

enum { FIRST = 1024, LAST = 1 << 16 }; /* as far as the numbers of a list reach */

int symm_cores(uint16_t *list, int most) {
    for (int room = FIRST; room <= LAST; room *= 2) {
        const size_t bytes = CPU_ALLOC_SIZE(room);
        cpu_set_t *set = CPU_ALLOC(room);
        if (!set) return 0;
        const int bad = sched_getaffinity(0, bytes, set) ? errno : 0;
        int count = bad ? 0 : CPU_COUNT_S(bytes, set);
        for (int i = 0, n = 0; !bad && i < room && n < most && n < count; i++)
            if (CPU_ISSET_S(i, bytes, set)) list[n++] = (uint16_t)i;
        CPU_FREE(set);
        if (bad != EINVAL) return count;
    }
    return 0;
}

void symm_cpu_name(char *out, size_t cap) {
    char line[512];
    FILE *f = symm_fd_read("/proc/cpuinfo");
    int found = 0;
    snprintf(out, cap, "unknown");
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        found = colon && !strncmp(line, "model name", 10);
        if (!found) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(out, cap, "%s", colon + 1 + strspn(colon + 1, " \t"));
    }
    if (f) fclose(f);
}
