/* param.c - parses the SYMM_ variables by the table in params.def. Any thread; load_lock is held by
 * symm_param_load for the names already warned about, and by nothing else. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "param.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "fail.h"
#include "log.h"

enum { INT, SIZE, ENUM, STR };
enum { STR_BYTES = 256, NAME_BYTES = 64, MAX_WARNED = 256, ALLOWED_BYTES = 256 };

typedef struct {
    const char *var, *help, *names; /* names: of an enum, separated by | */
    size_t offset;
    int64_t def, min, max;
    int kind;
} row_t;

static const row_t rows[] = {
#define FIELD(f) .offset = offsetof(symm_params, f)
#define SYMM_PARAM_INT(f, v, d, lo, hi, h) \
    {.kind = INT, .var = v, .help = h, FIELD(f), .def = d, .min = lo, .max = hi},
#define SYMM_PARAM_SIZE(f, v, d, lo, hi, h) \
    {.kind = SIZE, .var = v, .help = h, FIELD(f), .def = d, .min = lo, .max = hi},
#define SYMM_PARAM_ENUM(f, v, d, n, h) \
    {.kind = ENUM, .var = v, .help = h, FIELD(f), .def = d, .names = n},
#define SYMM_PARAM_STR(f, v, h) {.kind = STR, .var = v, .help = h, FIELD(f)},
#include "params.def"
#undef SYMM_PARAM_INT
#undef SYMM_PARAM_SIZE
#undef SYMM_PARAM_ENUM
#undef SYMM_PARAM_STR
#undef FIELD
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert(sizeof((symm_params *)0)->fail == STR_BYTES, "params.def and param.h disagree");

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t warned[MAX_WARNED]; /* hashes of the unknown names that were warned about */
static int warned_count, version_said;

/* SYMM_FAIL is a variable of test builds; elsewhere it is an unknown name like any other. */
static int is_live(const row_t *row) {
#ifdef SYMM_TESTING
    (void)row;
    return 1;
#else
    return row->offset != offsetof(symm_params, fail);
#endif
}

/* ---- values as text ----------------------------------------------------------------------- */

static const char *nth_name(const char *names, int index, size_t *len) {
    for (; index > 0 && names; index--) {
        names = strchr(names, '|');
        if (names) names++;
    }
    *len = names ? strcspn(names, "|") : 0;
    return names ? names : "";
}

static void size_text(uint64_t v, char *out, size_t cap) {
    static const char suffix[] = {0, 'K', 'M', 'G', 'T', 0};
    int k = 0;
    while (v && v % 1024 == 0 && k < 4) v /= 1024, k++;
    snprintf(out, cap, "%" PRIu64 "%s", v, (char[2]){suffix[k], 0});
}

static void number_text(const row_t *row, int64_t v, char *out, size_t cap) {
    size_t len;
    if (row->kind == SIZE) {
        size_text((uint64_t)v, out, cap);
    } else if (row->kind == ENUM) {
        const char *name = nth_name(row->names, (int)v, &len);
        snprintf(out, cap, "%.*s", (int)len, name);
    } else {
        snprintf(out, cap, "%" PRId64, v);
    }
}

static void allowed_text(const row_t *row, char *out, size_t cap) {
    char lo[32], hi[32];
    size_t len = 0;
    if (row->kind == ENUM) {
        for (const char *s = row->names; *s && len + 2 < cap; s++) {
            out[len++] = *s == '|' ? ',' : *s;
            if (*s == '|') out[len++] = ' ';
        }
        out[len] = 0;
        return;
    }
    if (row->kind == STR) {
        snprintf(out, cap, "text");
        return;
    }
    number_text(row, row->min, lo, sizeof lo);
    number_text(row, row->max, hi, sizeof hi);
    snprintf(out, cap, "%s to %s", lo, hi);
}

/* ---- parsing ------------------------------------------------------------------------------ */

static int parse_int(const char *s, int64_t *out) {
    char *end;
    const char *digits = *s == '-' ? s + 1 : s;
    if (*digits < '0' || *digits > '9') return -1; /* strtoll would take blanks and '+' */
    errno = 0;
    *out = strtoll(s, &end, 10);
    return errno || *end ? -1 : 0;
}

static int parse_size(const char *s, int64_t *out) {
    static const char suffixes[] = "KMGT";
    char *end;
    int shift = 0;
    if (*s < '0' || *s > '9') return -1;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno) return -1;
    if (*end) {
        const char *at = strchr(suffixes, *end & ~0x20); /* upper case */
        if (!at || !*at || end[1]) return -1;
        shift = 10 * (int)(at - suffixes + 1);
    }
    if (v > ((unsigned long long)INT64_MAX >> shift)) return -1;
    *out = (int64_t)(v << shift);
    return 0;
}

static int parse_enum(const char *s, const char *names, int64_t *out) {
    size_t len;
    const char *name;
    for (int i = 0; (name = nth_name(names, i, &len)), len > 0; i++) {
        if (strlen(s) != len || strncasecmp(s, name, len) != 0) continue;
        *out = i;
        return 0;
    }
    return -1;
}

static int is_valid_text(const row_t *row, const char *s) {
    if (strlen(s) >= STR_BYTES) return 0;
#ifdef SYMM_TESTING
    if (row->offset == offsetof(symm_params, fail)) return symm_fail_check(s) == 0;
#else
    (void)row;
#endif
    return 1;
}

/* Leaves the reason in the thread's error text, unlogged: symm_param_parse has no side effects. */
static symmResult_t refuse(const row_t *row, const char *value) {
    static const char *const must[] = {"a whole number from ", "a size from ", "one of ", ""};
    char text[SYMM_ERR_TEXT], allowed[ALLOWED_BYTES];
    allowed_text(row, allowed, sizeof allowed);
    if (row->kind == STR && strlen(value) >= STR_BYTES)
        snprintf(allowed, sizeof allowed, "at most %d characters", STR_BYTES - 1);
    else if (row->kind == STR)
        snprintf(allowed, sizeof allowed,
                 "a list of name:action[:nth[:rank]], names as in fail.def");
    snprintf(text, sizeof text, "%s=%.64s%s: must be %s%s%s", row->var, value,
             strlen(value) > 64 ? "..." : "", must[row->kind], allowed,
             row->kind == SIZE ? " (suffixes K, M, G, T)" : "");
    symm_status_adopt(text);
    return symmInvalidArgument;
}

static void store(symm_params *p, const row_t *row, int64_t v) {
    char *field = (char *)p + row->offset;
    if (row->kind == INT) *(int64_t *)field = v;
    if (row->kind == SIZE) *(uint64_t *)field = (uint64_t)v;
    if (row->kind == ENUM) *(int *)field = (int)v;
}

static int64_t fetch(const symm_params *p, const row_t *row) {
    const char *field = (const char *)p + row->offset;
    if (row->kind == INT) return *(const int64_t *)field;
    if (row->kind == SIZE) return (int64_t) * (const uint64_t *)field;
    return *(const int *)field;
}

static symmResult_t parse_row(const row_t *row, const char *value, symm_params *p) {
    int64_t v = row->def;
    int bad = 0, in_range = 1;
    if (row->kind == STR) {
        if (!is_valid_text(row, value)) return refuse(row, value);
        strcpy((char *)p + row->offset, value); /* fits: checked above */
        return symmSuccess;
    }
    if (*value) {
        if (row->kind == ENUM) bad = parse_enum(value, row->names, &v);
        if (row->kind == SIZE) bad = parse_size(value, &v);
        if (row->kind == INT) bad = parse_int(value, &v);
        in_range = row->kind == ENUM || (v >= row->min && v <= row->max);
    }
    if (bad || !in_range) return refuse(row, value);
    store(p, row, v);
    return symmSuccess;
}

static const char *find_value(char *const *env, const char *var) {
    size_t len = strlen(var);
    for (; *env; env++)
        if (strncmp(*env, var, len) == 0 && (*env)[len] == '=') return *env + len + 1;
    return "";
}

symmResult_t symm_param_parse(char *const *env, symm_params *out) {
    symm_params p;
    memset(&p, 0, sizeof p); /* padding as well: copies may be compared */
    for (int i = 0; i < ROWS; i++) {
        const char *value = is_live(&rows[i]) ? find_value(env, rows[i].var) : "";
        symmResult_t status = parse_row(&rows[i], value, &p);
        if (status != symmSuccess) return status; /* load logs it */
    }
    *out = p;
    return symmSuccess;
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
    for (int i = 0; i < ROWS; i++) {
        int d = is_live(&rows[i]) ? edits(name, len, rows[i].var) : best;
        if (d < best) best = d, found = rows[i].var;
    }
    return found;
}

static int is_known(const char *name, size_t len) {
    for (int i = 0; i < ROWS; i++)
        if (is_live(&rows[i]) && strlen(rows[i].var) == len && !strncmp(name, rows[i].var, len))
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

static char *const *environment(void) {
    static char *const nothing[] = {NULL};
    return environ ? environ : nothing; /* clearenv leaves none */
}

static const row_t *row_of(size_t offset) {
    const row_t *r = rows;
    while (r->offset != offset) r++;
    return r;
}

void symm_param_log(void) {
    const row_t *debug = row_of(offsetof(symm_params, debug));
    char *const *env = environment();
    const char *level = find_value(env, debug->var),
               *file = find_value(env, row_of(offsetof(symm_params, debug_file))->var);
    int64_t v = debug->def;
    parse_enum(level, debug->names, &v); /* a bad one leaves v, and is the loader's to report */
    symm_log_setup((int)v, strlen(file) < STR_BYTES ? file : "");
}

symmResult_t symm_param_load(symm_params *out) {
    char *const *env = environment();
    symm_params p;
    symmResult_t status = symm_param_parse(env, &p);
    symm_param_log();
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
    char value[STR_BYTES], def[64], allowed[ALLOWED_BYTES];
    for (int i = 0; i < ROWS; i++) {
        const row_t *r = &rows[i];
        if (!is_live(r)) continue;
        allowed_text(r, allowed, sizeof allowed);
        if (r->kind == STR) {
            row(arg, r->var, (const char *)p + r->offset, "", allowed, r->help);
            continue;
        }
        number_text(r, fetch(p, r), value, sizeof value);
        number_text(r, r->def, def, sizeof def);
        row(arg, r->var, value, def, allowed, r->help);
    }
}

uint64_t symm_param_hash(const symm_params *p) {
    uint64_t words[] = {(uint64_t)p->backend, (uint64_t)p->ctas,          (uint64_t)p->threads,
                        (uint64_t)p->relay,   (uint64_t)p->deterministic, p->scratch,
                        p->win_stride,        (uint64_t)p->multicast};
    uint64_t h = hash_bytes(0xcbf29ce484222325ull, words, sizeof words);
    return hash_bytes(h, p->algo, strlen(p->algo));
}
