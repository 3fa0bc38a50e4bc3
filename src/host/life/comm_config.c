/* comm_config.c - a caller's config: read by its size, checked, kept until a group makes the call.
 * Any thread; no lock. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "comm_make.h"

/* As SYMM_SCRATCH. */
#define LEAST_SCRATCH (1ull << 20)
#define MOST_SCRATCH  (4ull << 30)
#define FIRST_BYTES   offsetof(symmConfig_t, peerDeath) /* of the first version */

/* Fields that the caller's version does not have keep their defaults. */
static symmConfig_t read_config(const symmConfig_t *config) {
    symmConfig_t c = SYMM_CONFIG_INITIALIZER;
    memcpy(&c, config, config->size < sizeof c ? config->size : sizeof c);
    return c;
}

static symmResult_t check_range(const char *name, int v, int lo, int hi) {
    if (v == SYMM_CONFIG_UNDEF || (v >= lo && v <= hi)) return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "config: %s=%d: must be %d to %d", name, v, lo, hi);
}

static symmResult_t check_fields(const symmConfig_t *c) {
    SYMM_TRY(check_range("blocking", c->blocking, 0, 1));
    SYMM_TRY(check_range("minCTAs", c->minCTAs, 1, SYMM_GPU_ASK_CTAS));
    SYMM_TRY(check_range("maxCTAs", c->maxCTAs, 1, SYMM_GPU_ASK_CTAS));
    SYMM_TRY(check_range("timeoutMs", c->timeoutMs, 1, INT32_MAX));
    SYMM_TRY(check_range("peerDeath", c->peerDeath, SYMM_DEATH_AT_ONCE, SYMM_DEATH_WHEN_USED));
    SYMM_TRY(check_range("ctaBudget", c->ctaBudget, 1, SYMM_GPU_ASK_CTAS));
    SYMM_TRY(check_range("pdl", c->pdl, 0, 1));
    if (c->scratch && (c->scratch < LEAST_SCRATCH || c->scratch > MOST_SCRATCH))
        return SYMM_ERR(symmInvalidArgument, "config: scratch=%zu: must be 0 or %llu to %llu",
                        c->scratch, LEAST_SCRATCH, MOST_SCRATCH);
    if (c->minCTAs == SYMM_CONFIG_UNDEF || c->maxCTAs == SYMM_CONFIG_UNDEF ||
        c->minCTAs <= c->maxCTAs)
        return symmSuccess;
    return SYMM_ERR(symmInvalidArgument, "config: minCTAs=%d is more than maxCTAs=%d", c->minCTAs,
                    c->maxCTAs);
}

symmResult_t symm_config_check(const symmConfig_t *config, symmConfig_t *out) {
    symmConfig_t c = SYMM_CONFIG_INITIALIZER;
    if (config) {
        if (config->size < FIRST_BYTES)
            return SYMM_ERR(symmInvalidArgument,
                            "config: size=%zu: start from SYMM_CONFIG_INITIALIZER (%zu)",
                            config->size, sizeof c);
        c = read_config(config);
        SYMM_TRY(check_fields(&c));
    }
    *out = c;
    return symmSuccess;
}

/* Of a config with a wrong size only the size is kept: the call refuses it later. */
void symm_config_keep(symm_config_copy *k, const symmConfig_t *config) {
    *k = (symm_config_copy){.given = config != NULL};
    if (!config) return;
    k->config.size = config->size;
    if (config->size < FIRST_BYTES) return;
    k->config = read_config(config);
    k->config.size = sizeof k->config;
    k->named = config->commName != NULL;
    if (k->named) snprintf(k->name, sizeof k->name, "%s", config->commName);
}

const symmConfig_t *symm_config_kept(const symm_config_copy *k, symmConfig_t *out) {
    if (!k->given) return NULL;
    *out = k->config;
    out->commName = k->named ? k->name : NULL;
    return out;
}

/* If the child's config sets no deadline, it has the parent's. */
symmConfig_t symm_config_child(const symm_comm *parent, const symm_config_copy *k) {
    symmConfig_t c = parent->config;
    c.commName = NULL;
    symm_config_kept(k, &c);
    if (c.timeoutMs == SYMM_CONFIG_UNDEF) c.timeoutMs = parent->config.timeoutMs;
    return c;
}
