/* param_rows.c - the table of SYMM_ variables (params.def), their values as text and back, and the
 * environment they are in. Pure, but for the environment: any thread, no lock. The log reads its
 * own two variables through this file, so nothing here logs or records an error. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "param.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

const symm_param_row symm_param_rows[] = {
#define FIELD(f) .offset = offsetof(symm_params, f)
#define SYMM_PARAM_INT(f, v, d, lo, hi, h) \
    {.kind = SYMM_PARAM_IS_INT, .var = v, .help = h, FIELD(f), .def = d, .min = lo, .max = hi},
#define SYMM_PARAM_SIZE(f, v, d, lo, hi, h) \
    {.kind = SYMM_PARAM_IS_SIZE, .var = v, .help = h, FIELD(f), .def = d, .min = lo, .max = hi},
#define SYMM_PARAM_ENUM(f, v, d, n, h) \
    {.kind = SYMM_PARAM_IS_ENUM, .var = v, .help = h, FIELD(f), .def = d, .names = n},
#define SYMM_PARAM_STR(f, v, h) {.kind = SYMM_PARAM_IS_STR, .var = v, .help = h, FIELD(f)},
#include "params.def"
#undef SYMM_PARAM_INT
#undef SYMM_PARAM_SIZE
#undef SYMM_PARAM_ENUM
#undef SYMM_PARAM_STR
#undef FIELD
};
const int symm_param_row_count = sizeof symm_param_rows / sizeof *symm_param_rows;
_Static_assert(sizeof((symm_params *)0)->fail == SYMM_PARAM_STR_BYTES,
               "params.def and param.h disagree");

/* SYMM_FAIL is a variable of test builds; elsewhere it is an unknown name like any other. */
int symm_param_is_live(const symm_param_row *row) {
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

void symm_param_number_text(const symm_param_row *row, int64_t v, char *out, size_t cap) {
    size_t len;
    if (row->kind == SYMM_PARAM_IS_SIZE) {
        size_text((uint64_t)v, out, cap);
    } else if (row->kind == SYMM_PARAM_IS_ENUM) {
        const char *name = nth_name(row->names, (int)v, &len);
        snprintf(out, cap, "%.*s", (int)len, name);
    } else {
        snprintf(out, cap, "%" PRId64, v);
    }
}

void symm_param_allowed_text(const symm_param_row *row, char *out, size_t cap) {
    char lo[32], hi[32];
    size_t len = 0;
    if (row->kind == SYMM_PARAM_IS_ENUM) {
        for (const char *s = row->names; *s && len + 2 < cap; s++) {
            out[len++] = *s == '|' ? ',' : *s;
            if (*s == '|') out[len++] = ' ';
        }
        out[len] = 0;
        return;
    }
    if (row->kind == SYMM_PARAM_IS_STR) {
        snprintf(out, cap, "text");
        return;
    }
    symm_param_number_text(row, row->min, lo, sizeof lo);
    symm_param_number_text(row, row->max, hi, sizeof hi);
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

int symm_param_read(const symm_param_row *row, const char *s, int64_t *out) {
    if (row->kind == SYMM_PARAM_IS_ENUM) return parse_enum(s, row->names, out);
    if (row->kind == SYMM_PARAM_IS_SIZE) return parse_size(s, out);
    return parse_int(s, out);
}

/* ---- the environment ---------------------------------------------------------------------- */

const char *symm_param_find(char *const *env, const char *var) {
    size_t len = strlen(var);
    for (; *env; env++)
        if (strncmp(*env, var, len) == 0 && (*env)[len] == '=') return *env + len + 1;
    return "";
}

char *const *symm_param_environment(void) {
    static char *const nothing[] = {NULL};
    return environ ? environ : nothing; /* clearenv leaves none */
}

static const symm_param_row *row_of(size_t offset) {
    const symm_param_row *r = symm_param_rows;
    while (r->offset != offset) r++;
    return r;
}

void symm_param_of_log(int *level, const char **file) {
    const symm_param_row *debug = row_of(offsetof(symm_params, debug));
    char *const *env = symm_param_environment();
    int64_t v = debug->def;
    symm_param_read(debug, symm_param_find(env, debug->var), &v); /* a bad one leaves v */
    *level = (int)v;
    *file = symm_param_find(env, row_of(offsetof(symm_params, debug_file))->var);
    if (strlen(*file) >= SYMM_PARAM_STR_BYTES) *file = "";
}
