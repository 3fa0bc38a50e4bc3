/* params.c - the drop-in's variables: read, checked, unknown names told. Any thread. Lock: guards
 * the names that were told. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin.h"

#define PREFIX "SYMM_NCCL"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int told;

static ncclResult_t read_int(const char *var, int def, int min, int max, int *out) {
    const char *s = getenv(var);
    char *end;
    *out = def;
    if (!s || !*s) return ncclSuccess;
    const long v = strtol(s, &end, 10);
    if (*end || v < min || v > max)
        return symm_nccl_fail(ncclInvalidArgument, "%s=%.64s: must be a whole number from %d to %d",
                              var, s, min, max);
    *out = (int)v;
    return ncclSuccess;
}

static ncclResult_t read_str(const char *var, char *out, size_t cap) {
    const char *s = getenv(var);
    *out = 0;
    if (!s) return ncclSuccess;
    if (strlen(s) >= cap)
        return symm_nccl_fail(ncclInvalidArgument, "%s=%.64s...: must be at most %zu characters",
                              var, s, cap - 1);
    memcpy(out, s, strlen(s) + 1);
    return ncclSuccess;
}

/* names: as in the table. The message lists them with commas. */
static ncclResult_t bad_name(const char *var, const char *s, const char *names) {
    char list[128];
    size_t n = 0;
    for (const char *p = names; *p && n + 3 < sizeof list; p++) {
        list[n++] = *p == '|' ? ',' : *p;
        if (*p == '|') list[n++] = ' ';
    }
    list[n] = 0;
    return symm_nccl_fail(ncclInvalidArgument, "%s=%.64s: must be one of %s", var, s, list);
}

static ncclResult_t read_enum(const char *var, int def, const char *names, int *out) {
    const char *s = getenv(var);
    int at = 0;
    *out = def;
    if (!s || !*s) return ncclSuccess;
    for (const char *p = names; *p; p += strcspn(p, "|"), p += *p == '|', at++) {
        const size_t n = strcspn(p, "|");
        if (strlen(s) != n || strncmp(s, p, n)) continue;
        *out = at;
        return ncclSuccess;
    }
    return bad_name(var, s, names);
}

static int is_known(const char *name, size_t len) {
    static const char *const names[] = {
#define NCCL_PARAM_INT(field, var, def, min, max, help) var,
#define NCCL_PARAM_STR(field, var, help)                var,
#define NCCL_PARAM_ENUM(field, var, def, names, help)   var,
#include "params.def"
#undef NCCL_PARAM_INT
#undef NCCL_PARAM_STR
#undef NCCL_PARAM_ENUM
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == len && !memcmp(names[i], name, len)) return 1;
    return 0;
}

static void tell_unknown(void) {
    pthread_mutex_lock(&lock);
    for (char **e = environ; !told && e && *e; e++) {
        const size_t len = strcspn(*e, "=");
        if (!strncmp(*e, PREFIX, strlen(PREFIX)) && !is_known(*e, len))
            symm_nccl_say(symmLogWarn, "unknown variable %.*s is ignored", (int)len, *e);
    }
    told = 1;
    pthread_mutex_unlock(&lock);
}

ncclResult_t symm_nccl_params_load(symm_nccl_params *out) {
    symm_nccl_params p;
    ncclResult_t r = ncclSuccess;
#define NCCL_PARAM_INT(field, var, def, min, max, help) \
    if (!r) r = read_int(var, def, min, max, &p.field);
#define NCCL_PARAM_STR(field, var, help) \
    if (!r) r = read_str(var, p.field, sizeof p.field);
#define NCCL_PARAM_ENUM(field, var, def, names, help) \
    if (!r) r = read_enum(var, def, names, &p.field);
#include "params.def"
#undef NCCL_PARAM_INT
#undef NCCL_PARAM_STR
#undef NCCL_PARAM_ENUM
    if (r) return r;
    tell_unknown();
    *out = p;
    return ncclSuccess;
}
