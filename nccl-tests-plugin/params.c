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

static int is_known(const char *name, size_t len) {
    static const char *const names[] = {
#define NCCL_PARAM_INT(field, var, def, min, max, help) var,
#define NCCL_PARAM_STR(field, var, help)                var,
#include "params.def"
#undef NCCL_PARAM_INT
#undef NCCL_PARAM_STR
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
#include "params.def"
#undef NCCL_PARAM_INT
#undef NCCL_PARAM_STR
    if (r) return r;
    tell_unknown();
    *out = p;
    return ncclSuccess;
}
