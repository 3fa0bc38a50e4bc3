/* param.c - the SYMM_ variables as one record: parsing, loading with warnings about unknown names,
 * showing, comparing. Any thread. Lock: load_lock guards the names that were warned about;
 * symm_param_load alone takes it. */
#include "param.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "log.h"

enum { NAME_BYTES = 64, MAX_WARNED = 256 };

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t warned[MAX_WARNED]; /* hashes of the unknown names that were warned about */
static int warned_count, version_said;
static _Atomic int backend_set = -1; /* -1: the environment decides */

static int is_valid_text(const symm_param_row *row, const char *s) {
    if (strlen(s) >= SYMM_PARAM_STR_BYTES) return 0;
#ifdef SYMM_TESTING
    if (row->offset == offsetof(symm_params, fail)) return symm_fail_check(s) == 0;
#else
    (void)row;
#endif
    return 1;
}

/* Leaves the reason in the thread's error text, unlogged: symm_param_parse has no side effects. */
static symmResult_t refuse(const symm_param_row *row, const char *value) {
    static const char *const must[] = {"a whole number from ", "a size from ", "one of ", ""};
    char text[SYMM_ERR_TEXT], allowed[SYMM_PARAM_ALLOWED_BYTES];
    symm_param_allowed_text(row, allowed, sizeof allowed);
    if (row->kind == SYMM_PARAM_IS_STR && strlen(value) >= SYMM_PARAM_STR_BYTES)
        snprintf(allowed, sizeof allowed, "at most %d characters", SYMM_PARAM_STR_BYTES - 1);
    else if (row->kind == SYMM_PARAM_IS_STR)
        snprintf(allowed, sizeof allowed,
                 "a list of name:action[:nth[:rank]], names as in fail.def");
    snprintf(text, sizeof text, "%s=%.64s%s: must be %s%s%s", row->var, value,
             strlen(value) > 64 ? "..." : "", must[row->kind], allowed,
             row->kind == SYMM_PARAM_IS_SIZE ? " (suffixes K, M, G, T)" : "");
    symm_status_adopt(text);
    return symmInvalidArgument;
}

static void store(symm_params *p, const symm_param_row *row, int64_t v) {
    char *field = (char *)p + row->offset;
    if (row->kind == SYMM_PARAM_IS_INT) *(int64_t *)field = v;
    if (row->kind == SYMM_PARAM_IS_SIZE) *(uint64_t *)field = (uint64_t)v;
    if (row->kind == SYMM_PARAM_IS_ENUM) *(int *)field = (int)v;
}

static int64_t fetch(const symm_params *p, const symm_param_row *row) {
    const char *field = (const char *)p + row->offset;
    if (row->kind == SYMM_PARAM_IS_INT) return *(const int64_t *)field;
    if (row->kind == SYMM_PARAM_IS_SIZE) return (int64_t) * (const uint64_t *)field;
    return *(const int *)field;
}

static symmResult_t parse_row(const symm_param_row *row, const char *value, symm_params *p) {
    int64_t v = row->def;
    int bad = 0, in_range = 1;
    if (row->kind == SYMM_PARAM_IS_STR) {
        if (!is_valid_text(row, value)) return refuse(row, value);
        strcpy((char *)p + row->offset, value); /* fits: checked above */
        return symmSuccess;
    }
    if (*value) {
        bad = symm_param_read(row, value, &v);
        in_range = row->kind == SYMM_PARAM_IS_ENUM || (v >= row->min && v <= row->max);
    }
    if (bad || !in_range) return refuse(row, value);
    store(p, row, v);
    return symmSuccess;
}

/* Who has told NCCL which interfaces lead to the other hosts means symm's ranks, too. */
static const char *value_of(char *const *env, const symm_param_row *row) {
    const char *value = symm_param_find(env, row->var);
    return *value || row->offset != offsetof(symm_params, ifname)
               ? value
               : symm_param_find(env, "NCCL_SOCKET_IFNAME");
}

symmResult_t symm_param_parse(char *const *env, symm_params *out) {
    symm_params p;
    memset(&p, 0, sizeof p); /* padding as well: copies may be compared */
    for (int i = 0; i < symm_param_row_count; i++) {
        const char *value =
            symm_param_is_live(&symm_param_rows[i]) ? value_of(env, &symm_param_rows[i]) : "";
        symmResult_t status = parse_row(&symm_param_rows[i], value, &p);
        if (status != symmSuccess) return status; /* load logs it */
    }
    const int backend = atomic_load_explicit(&backend_set, memory_order_relaxed);
    if (backend >= 0) p.backend = backend;
    *out = p;
    return symmSuccess;
}

void symm_param_set_backend(int backend) {
    atomic_store_explicit(&backend_set, backend, memory_order_relaxed);
}

/* ---- loading ------------------------------------------------------------------------------ */

static uint64_t hash_bytes(uint64_t h, const void *data, size_t len) {
    const unsigned char *s = data;
    for (size_t i = 0; i < len; i++) h = (h ^ s[i]) * 0x100000001b3ull; /* FNV-1a */
    return h;
}

enum { MAX_EDITS = 2 };

/* Edit distance of two short names, one row of the table at a time. */
static int edits(const char *a, size_t la, const char *b) {
    int cost[NAME_BYTES];
    size_t lb = strlen(b);
    if (la >= NAME_BYTES || lb >= NAME_BYTES) return NAME_BYTES;
    for (size_t j = 0; j <= lb; j++) cost[j] = (int)j;
    for (size_t i = 1; i <= la; i++) {
        int diagonal = cost[0];
        cost[0] = (int)i;
        for (size_t j = 1; j <= lb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = cost[j];
            if (cost[j] + 1 < best) best = cost[j] + 1;
            if (cost[j - 1] + 1 < best) best = cost[j - 1] + 1;
            cost[j] = best;
        }
    }
    return cost[lb];
}

static const char *nearest(const char *name, size_t len) {
    const char *found = NULL;
    int best = MAX_EDITS + 1;
    for (int i = 0; i < symm_param_row_count; i++) {
        int d = symm_param_is_live(&symm_param_rows[i]) ? edits(name, len, symm_param_rows[i].var)
                                                        : best;
        if (d < best) best = d, found = symm_param_rows[i].var;
    }
    return found;
}

/* How the names of nccl-tests-plugin and mpi-plugin begin: these read and check them themselves. */
static const char *const dropins[] = {"SYMM_NCCL", "SYMM_PMPI"};

static int is_known(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof dropins / sizeof *dropins; i++)
        if (!strncmp(name, dropins[i], strlen(dropins[i]))) return 1;
    for (int i = 0; i < symm_param_row_count; i++)
        if (symm_param_is_live(&symm_param_rows[i]) && strlen(symm_param_rows[i].var) == len &&
            !strncmp(name, symm_param_rows[i].var, len))
            return 1;
    return 0;
}

/* Once per name and process; beyond MAX_WARNED names nothing is said any more. */
static void warn_unknown(const char *name, size_t len) {
    uint64_t h = hash_bytes(0xcbf29ce484222325ull, name, len);
    for (int i = 0; i < warned_count; i++)
        if (warned[i] == h) return;
    if (warned_count == MAX_WARNED) return;
    warned[warned_count++] = h;
    const char *near = nearest(name, len);
    if (near)
        SYMM_WARN("unknown variable %.*s is ignored; did you mean %s?", (int)len, name, near);
    else
        SYMM_WARN("unknown variable %.*s is ignored", (int)len, name);
}

static void say_version(int level) {
    if (version_said || (level != SYMM_LOG_VERSION && level < SYMM_LOG_INFO)) return;
    version_said = 1;
    symm_log_write(SYMM_LOG_VERSION, __FILE__, __LINE__, "version %d.%d.%d", SYMM_MAJOR, SYMM_MINOR,
                   SYMM_PATCH);
}

symmResult_t symm_param_load(symm_params *out) {
    char *const *env = symm_param_environment();
    symm_params p;
    symmResult_t status = symm_param_parse(env, &p);
    symm_log_ask();
    if (status != symmSuccess) return SYMM_ERR(status, "%s", symm_status_text());
    pthread_mutex_lock(&load_lock);
    say_version(p.debug);
    for (char *const *e = env; *e; e++) {
        size_t len = strcspn(*e, "=");
        if (strncmp(*e, "SYMM_", 5) == 0 && !is_known(*e, len)) warn_unknown(*e, len);
    }
    pthread_mutex_unlock(&load_lock);
#ifdef SYMM_TESTING
    symm_fail_env(p.fail);
#endif
    *out = p;
    return symmSuccess;
}

/* ---- showing and comparing ---------------------------------------------------------------- */

void symm_param_each(const symm_params *p,
                     void (*row)(void *arg, const char *var, const char *value, const char *def,
                                 const char *allowed, const char *help),
                     void *arg) {
    char value[SYMM_PARAM_STR_BYTES], def[64], allowed[SYMM_PARAM_ALLOWED_BYTES];
    for (int i = 0; i < symm_param_row_count; i++) {
        const symm_param_row *r = &symm_param_rows[i];
        if (!symm_param_is_live(r)) continue;
        symm_param_allowed_text(r, allowed, sizeof allowed);
        if (r->kind == SYMM_PARAM_IS_STR) {
            row(arg, r->var, (const char *)p + r->offset, "", allowed, r->help);
            continue;
        }
        symm_param_number_text(r, fetch(p, r), value, sizeof value);
        symm_param_number_text(r, r->def, def, sizeof def);
        row(arg, r->var, value, def, allowed, r->help);
    }
}

const char *symm_param_no_multicast(const symm_params *p) {
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    char *end;
    if (!p->multicast) return "SYMM_MULTICAST=0";
    /* A number, as NCCL reads it: 00 is 0 too. */
    return nvls && !strtol(nvls, &end, 0) && end != nvls ? "NCCL_NVLS_ENABLE=0 forbids it" : NULL;
}

symm_param_agreed symm_param_to_agree(const symm_params *p) {
    return (symm_param_agreed){{
        (uint64_t)p->backend,
        (uint64_t)p->ctas,
        (uint64_t)p->threads,
        (uint64_t)p->relay,
        (uint64_t)p->deterministic,
        p->scratch,
        p->win_stride,
        (uint64_t)p->multicast,
        (uint64_t)p->cta_budget,
        (uint64_t)p->side_by_side,
        hash_bytes(0xcbf29ce484222325ull, p->algo, strlen(p->algo)),
    }};
}

const char *symm_param_differs(const symm_param_agreed *a, const symm_param_agreed *b) {
    static const char *const vars[] = {/* in the order of symm_param_to_agree */
                                       "SYMM_BACKEND",      "SYMM_CTAS",          "SYMM_THREADS",
                                       "SYMM_RELAY",        "SYMM_DETERMINISTIC", "SYMM_SCRATCH",
                                       "SYMM_WIN_STRIDE",   "SYMM_MULTICAST",     "SYMM_CTA_BUDGET",
                                       "SYMM_SIDE_BY_SIDE", "SYMM_ALGO"};
    enum { VARS = sizeof vars / sizeof *vars };
    _Static_assert(VARS == sizeof a->word / sizeof *a->word, "each word has its variable");
    for (int i = 0; i < VARS; i++)
        if (a->word[i] != b->word[i]) return vars[i];
    return NULL;
}
