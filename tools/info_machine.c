/* info_machine.c - what symm-info says about the machine: read from /proc and /sys, nothing is
 * changed. Main thread. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine/cores.h"
#include "machine/peer_memory.h"
#include "info.h"

/* First line of a file without its newline; 0 if there is none. */
static int read_line(const char *path, char *out, int cap) {
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    int got = fgets(out, cap, f) != NULL;
    fclose(f);
    if (got) out[strcspn(out, "\n")] = 0;
    return got;
}

/* The value behind `key:` in a /proc file. */
static int read_key(const char *path, const char *key, char *out, size_t cap) {
    char line[512];
    FILE *f = fopen(path, "r");
    int found = 0;
    if (!f) return 0;
    while (!found && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key))) continue;
        char *v = colon + 1;
        while (isspace((unsigned char)*v)) v++;
        v[strcspn(v, "\n")] = 0;
        snprintf(out, cap, "%s", v);
        found = 1;
    }
    fclose(f);
    return found;
}

const char *info_bytes(uint64_t bytes, char *out, size_t cap) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    int u = 0;
    while (v >= 1024 && u < 5) v /= 1024, u++;
    snprintf(out, cap, v == (double)(uint64_t)v ? "%.0f %s" : "%.1f %s", v, units[u]);
    return out;
}

static uint64_t meminfo(const char *key) {
    char text[64];
    return read_key("/proc/meminfo", key, text, sizeof text) ? strtoull(text, NULL, 10) << 10 : 0;
}

static void show_memory(void) {
    char a[32], b[32], limit[64];
    info_row("memory", "%s, of which %s available", info_bytes(meminfo("MemTotal"), a, sizeof a),
             info_bytes(meminfo("MemAvailable"), b, sizeof b));
    if (read_line("/sys/fs/cgroup/memory.max", limit, sizeof limit) && strcmp(limit, "max"))
        info_row("memory limit", "%s (cgroup)", info_bytes(strtoull(limit, NULL, 10), a, sizeof a));
}

/* One line: "L1d 48K, L2 2048K, L3 491520K". Instruction caches say nothing here. */
static void show_caches(void) {
    char text[256] = "", path[128], level[16], type[32], size[32];
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        if (!read_line(path, level, sizeof level)) break;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (!read_line(path, type, sizeof type) || !strcmp(type, "Instruction")) continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (!read_line(path, size, sizeof size)) continue;
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%sL%s%s %s", used ? ", " : "", level,
                 !strcmp(type, "Data") ? "d" : "", size);
    }
    info_row("caches", "%s", *text ? text : "unknown");
}

static void show_limits(void) {
    char maps[32] = "unknown", thp[96] = "not supported by this kernel";
    struct rlimit fds, as;
    char a[32];
    if (!getrlimit(RLIMIT_NOFILE, &fds))
        info_row("open files", "%llu (hard limit %llu)", (unsigned long long)fds.rlim_cur,
                 (unsigned long long)fds.rlim_max);
    if (!getrlimit(RLIMIT_AS, &as) && as.rlim_cur != RLIM_INFINITY)
        info_row("address space", "limited to %s: large reservations will fail",
                 info_bytes(as.rlim_cur, a, sizeof a));
    read_line("/proc/sys/vm/max_map_count", maps, sizeof maps);
    info_row("mappings", "%s per process", maps);
    read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", thp, sizeof thp);
    info_row("huge pages", "for shared memory: %s", thp);
}

/* Whether a process may read another one that is not its child, as ranks must; tried by a child,
 * which reads this one. */
static void show_peer_memory(void) {
    static const uint64_t mark = 0x796d6d7379;
    uint64_t seen = 0;
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        size_t n = symm_peer_read((int)getppid(), &seen, (uintptr_t)&mark, sizeof seen);
        _exit(n == sizeof seen && seen == mark ? 0 : errno & 255);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        info_row("peers' memory", "not tried: no process could be made");
        return;
    }
    const int err = WEXITSTATUS(status);
    info_row("peers' memory", "%s%s", err ? "buffers in no window go through scratch: " : "",
             err ? symm_peer_why(err)
                 : "buffers in no window are read where they are (process_vm_readv); whether ranks "
                   "write there, symmExplain says");
}

void info_machine(void) {
    struct utsname u;
    char model[256];
    symm_cpu_name(model, sizeof model);
    info_head("Machine");
    if (!uname(&u)) {
        info_row("host", "%s", u.nodename);
        info_row("kernel", "%s %s %s", u.sysname, u.release, u.machine);
    }
    info_row("processor", "%s", model);
    info_row("cores", "%ld online, %d for this process", sysconf(_SC_NPROCESSORS_ONLN),
             symm_cores(NULL, 0));
    show_caches();
    show_memory();
    show_limits();
    show_peer_memory();
}
