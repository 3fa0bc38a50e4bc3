/* config.c - see config.h. Any thread; no lock. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

static const ncclConfig_t unset = {
    .size = sizeof(ncclConfig_t),
    .magic = NCCL_API_MAGIC,
#define CONFIG_INT(field, since, lo, hi) .field = NCCL_CONFIG_UNDEF_INT,
#define CONFIG_STR(field, since)         .field = NULL,
#include "config.def"
#undef CONFIG_INT
#undef CONFIG_STR
};

/* The head of a record that a program filled in. */
static ncclResult_t check_head(const void *record, unsigned magic, const char *what) {
    nccl_record head;
    memcpy(&head, record, sizeof head);
    if (head.magic == magic && head.size >= sizeof head) return ncclSuccess;
    return symm_nccl_fail(ncclInvalidArgument,
                          "%s: magic %#x, size %zu: it must be made with NCCL's initializer", what,
                          head.magic, head.size);
}

static void drop_newer(ncclConfig_t *c) {
#define CONFIG_INT(field, since, lo, hi) \
    if (c->version < (since)) c->field = unset.field;
#define CONFIG_STR(field, since) \
    if (c->version < (since)) c->field = unset.field;
#include "config.def"
#undef CONFIG_INT
#undef CONFIG_STR
}

static ncclResult_t check_range(const char *field, int v, int lo, int hi) {
    if (v == NCCL_CONFIG_UNDEF_INT || (v >= lo && v <= hi)) return ncclSuccess;
    if (hi == INT_MAX)
        return symm_nccl_fail(ncclInvalidArgument, "ncclConfig_t: %s=%d: must be at least %d",
                              field, v, lo);
    return symm_nccl_fail(ncclInvalidArgument, "ncclConfig_t: %s=%d: must be %d to %d", field, v,
                          lo, hi);
}

static ncclResult_t check_ranges(const ncclConfig_t *c) {
    ncclResult_t r = ncclSuccess;
#define CONFIG_INT(field, since, lo, hi) \
    if (!r) r = check_range(#field, c->field, lo, hi);
#define CONFIG_STR(field, since)
#include "config.def"
#undef CONFIG_INT
#undef CONFIG_STR
    if (r || c->minCTAs == NCCL_CONFIG_UNDEF_INT || c->maxCTAs == NCCL_CONFIG_UNDEF_INT ||
        c->minCTAs <= c->maxCTAs)
        return r;
    return symm_nccl_fail(ncclInvalidArgument, "ncclConfig_t: minCTAs=%d is more than maxCTAs=%d",
                          c->minCTAs, c->maxCTAs);
}

/* symm takes 1 to 256; NCCL any number, of which it uses no more than it has channels. */
static int ctas(int v) {
    if (v == NCCL_CONFIG_UNDEF_INT) return SYMM_CONFIG_UNDEF;
    return v > 256 ? 256 : v;
}

ncclResult_t symm_nccl_config(const ncclConfig_t *config, symmConfig_t *out) {
    symmConfig_t mine = SYMM_CONFIG_INITIALIZER;
    ncclConfig_t c = unset;
    if (config) {
        ncclResult_t r = check_head(config, NCCL_API_MAGIC, "ncclConfig_t");
        if (r) return r;
        memcpy(&c, config, config->size < sizeof c ? config->size : sizeof c);
        drop_newer(&c);
        r = check_ranges(&c);
        if (r) return r;
        mine.minCTAs = ctas(c.minCTAs);
        mine.maxCTAs = ctas(c.maxCTAs);
        mine.commName = c.commName;
        if (c.blocking != NCCL_CONFIG_UNDEF_INT) mine.blocking = c.blocking;
    }
    /* NCCL waits for ranks that are late until somebody aborts: a program has its own watchdog. */
    if (!getenv("SYMM_SETUP_TIMEOUT")) mine.timeoutMs = INT32_MAX;
    *out = mine;
    return ncclSuccess;
}

static int asks_for_anything(const ncclCollConfig_t *c) {
    return c->ext || c->minCTAs != NCCL_CONFIG_UNDEF_INT || c->maxCTAs != NCCL_CONFIG_UNDEF_INT ||
           c->nvlsCTAs != NCCL_CONFIG_UNDEF_INT || c->cgaClusterSize != NCCL_CONFIG_UNDEF_INT ||
           (c->algSelection && *c->algSelection) || c->CTAPolicy != NCCL_CONFIG_UNDEF_INT;
}

ncclResult_t symm_nccl_coll_config(const ncclCollConfig_t *config, const char *call) {
    static _Atomic int said;
    const size_t least = offsetof(ncclCollConfig_t, launchCompletionEvent); /* 2.31 has no more */
    ncclCollConfig_t c = {0};
    if (!config) return ncclSuccess;
    ncclResult_t r = check_head(config, NCCL_API_MAGIC, "ncclCollConfig_t");
    if (r) return r;
    memcpy(&c, config, config->size < sizeof c ? config->size : sizeof c);
    if (c.size < least)
        return symm_nccl_fail(ncclInvalidArgument,
                              "ncclCollConfig_t: size %zu: must be at least %zu", c.size, least);
    if (c.launchCompletionEvent)
        return symm_nccl_fail(ncclInvalidUsage,
                              "%s: launchCompletionEvent is set, and symm records no such event",
                              call);
    if (asks_for_anything(&c) && !atomic_exchange(&said, 1))
        symm_nccl_say(symmLogInfo,
                      "%s: symm chooses kernels itself: what the config asks for is ignored here "
                      "and from now on",
                      call);
    return ncclSuccess;
}

/* ---- kept for later -------------------------------------------------------------------------- */

struct nccl_kept {
    _Atomic int refs;
    char *net, *name;
    union {
        ncclConfig_t config;
        char bytes[1]; /* as many as the program's has */
    };
};

/* A field that the caller's record has. */
#define HAS(c, field) \
    ((c)->size >= offsetof(ncclConfig_t, field) + sizeof(c)->field && (c)->field != NULL)

nccl_kept *symm_nccl_kept_new(const ncclConfig_t *config) {
    const size_t bytes = config->size > sizeof *config ? config->size : sizeof *config;
    nccl_kept *k = calloc(1, sizeof *k + bytes);
    if (!k) return NULL;
    k->refs = 1;
    memcpy(k->bytes, config, config->size);
    if (HAS(config, netName)) k->config.netName = k->net = strdup(config->netName);
    if (HAS(config, commName)) k->config.commName = k->name = strdup(config->commName);
    return k;
}

nccl_kept *symm_nccl_kept_ref(nccl_kept *k) {
    if (k) atomic_fetch_add(&k->refs, 1);
    return k;
}

void symm_nccl_kept_drop(nccl_kept *k) {
    if (!k || atomic_fetch_sub(&k->refs, 1) > 1) return;
    free(k->net);
    free(k->name);
    free(k);
}

ncclConfig_t *symm_nccl_kept_config(nccl_kept *k) {
    return k ? &k->config : NULL;
}
