/* nccl_real.c - a real NCCL as the drop-in sees it, for check_nccl.sh, which makes a library of it:
 * a few calls, each under its two names. VERSION: its version. Without PARAMS it is an older one,
 * which lacks the calls for parameters. What it calls of its own goes by its public name, as in
 * NCCL. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define BOTH(name) extern __typeof__(name) p##name __attribute__((alias(#name)))

int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
    *version = VERSION;
    return 0;
}
BOTH(ncclGetVersion);

int ncclCommCount(const uint64_t *comm, int *count);
int ncclCommCount(const uint64_t *comm, int *count) {
    *count = 1;
    return *comm == 0x0280028002800280ull ? 0 : 4; /* what NCCL's own begin with */
}
BOTH(ncclCommCount);

#ifdef PARAMS
/* Says which version it is told of by name. */
int ncclParamGetParameter(const char *key, const char **value, int *len);
int ncclParamGetParameter(const char *key, const char **value, int *len) {
    static char text[64];
    int version = 0;
    ncclGetVersion(&version);
    *len = snprintf(text, sizeof text, "%s of %d", key, version);
    *value = text;
    return 0;
}
BOTH(ncclParamGetParameter);
#endif
