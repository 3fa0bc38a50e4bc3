/* plan_table.c - reading and writing a file of plan rows. Any thread; no lock. */
#include "plan_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/fd.h"
#include "base/status.h"

enum { MOST_BYTES = 1 << 20, WORD = 96 };
#define BLANKS " \t\r"

typedef struct {
    const char *name; /* of the file */
    int line;
    const symm_plan_place *at;
    int in_section, holds;        /* a section has begun; its rows are taken */
    symm_plan_row section;        /* what its rows have of it */
    symm_plan_rows *rows;         /* NULL: they are only counted */
    int n;                        /* rows that hold so far */
    char word[WORD], value[WORD]; /* as they are read: name=value, or name */
} reader;

/* ---- words ----------------------------------------------------------------------------------- */

static symmResult_t bad(const reader *r, const char *what) {
    /* The file last: peers get 190 characters. */
    return SYMM_ERR(symmInvalidArgument, "SYMM_PLAN_TABLE, line %d: '%.60s': %s, in %s", r->line,
                    r->word, what, r->name);
}

/* The next word of a line that ends at `end`; value: behind =, "" without. 1: there was one, 0:
 * none is left, -1: it is too long, or a quote is not closed. */
static int next_word(reader *r, const char **at, const char *end) {
    char *out = r->word, *const outs[] = {r->word + WORD - 1, r->value + WORD - 1};
    int quoted = 0, in_value = 0;
    const char *p = *at;
    while (p < end && strchr(BLANKS, *p)) p++;
    r->word[0] = r->value[0] = 0;
    if (p == end) return 0;
    for (; p < end && (quoted || !strchr(BLANKS, *p)); p++) {
        if (*p == '"') {
            quoted = !quoted;
        } else if (*p == '=' && !in_value && !quoted) {
            *out = 0, out = r->value, in_value = 1;
        } else {
            if (out == outs[in_value]) return *out = 0, -1;
            *out++ = *p;
        }
    }
    *out = 0;
    *at = p;
    return quoted ? -1 : 1;
}

static symmResult_t number(const reader *r, uint64_t least, uint64_t most, uint64_t *out) {
    char text[80], *end = NULL;
    errno = 0;
    *out = strtoull(r->value, &end, 10);
    if (*r->value >= '0' && *r->value <= '9' && !*end && !errno && *out >= least && *out <= most)
        return symmSuccess;
    snprintf(text, sizeof text, "must be a whole number from %llu to %llu",
             (unsigned long long)least, (unsigned long long)most);
    return bad(r, text);
}

static symmResult_t small_number(const reader *r, int least, int most, int *out) {
    uint64_t v;
    SYMM_TRY(number(r, (uint64_t)least, (uint64_t)most, &v));
    *out = (int)v;
    return symmSuccess;
}

/* ---- sections and rows ----------------------------------------------------------------------- */

static symmResult_t section_word(reader *r, int gpu, const char **device) {
    symm_plan_row *s = &r->section;
    if (!strcmp(r->word, "ranks")) return small_number(r, 1, SYMM_MAX_RANKS, &s->max_ranks);
    if (gpu && !strcmp(r->word, "quarter")) return small_number(r, 0, 1, &s->quarter);
    if (gpu && !strcmp(r->word, "device")) {
        *device = r->value;
        return symmSuccess;
    }
    if (gpu || strcmp(r->word, "cores")) return bad(r, "no such word of a section");
    s->cores = !strcmp(r->value, "few")      ? SYMM_CORES_FEW
               : !strcmp(r->value, "enough") ? SYMM_CORES_ENOUGH
                                             : SYMM_CORES_ANY;
    return s->cores == SYMM_CORES_ANY ? bad(r, "must be few or enough") : symmSuccess;
}

/* [backend word=value...] */
static symmResult_t begin_section(reader *r, const char *at, const char *end) {
    int more, gpu, holds;
    while (end > at && strchr(BLANKS, end[-1])) end--;
    if (end[-1] != ']' || next_word(r, &at, end - 1) < 1) return bad(r, "a section is not closed");
    gpu = !strcmp(r->word, "gpu");
    if ((!gpu && strcmp(r->word, "host")) || *r->value)
        return bad(r, "a section is of the backend host or gpu");
    r->section = (symm_plan_row){.quarter = gpu ? -1 : 0};
    holds = gpu == r->at->gpu;
    while ((more = next_word(r, &at, end - 1)) > 0) {
        const char *device = NULL;
        SYMM_TRY(section_word(r, gpu, &device));
        if (device && (!r->at->device || strcmp(device, r->at->device))) holds = 0;
    }
    if (more < 0) return bad(r, "too long, or a quote that is not closed");
    snprintf(r->word, sizeof r->word, "%s", gpu ? "gpu" : "host");
    if (!r->section.max_ranks) return bad(r, "a section says ranks=");
    r->in_section = 1;
    r->holds = holds && r->section.max_ranks == r->at->nranks;
    return symmSuccess;
}

static int kernel_named(const char *name) {
    int k = 0;
    while (k < SYMM_KERNEL_COUNT && strcmp(symm_kernels[k].name, name)) k++;
    return k;
}

static symmResult_t row_word(const reader *r, symm_plan_row *row) {
    uint64_t v = 0;
    if (!strcmp(r->word, "upto")) return number(r, 1, UINT64_MAX - 1, &row->upto);
    if (!strcmp(r->word, "warps")) return small_number(r, 1, SYMM_GPU_THREADS / 32, &row->warps);
    if (!strcmp(r->word, "ctas")) return small_number(r, 1, SYMM_GPU_MAX_CTAS, &row->ctas);
    if (strcmp(r->word, "pairs")) return bad(r, "no such word of a row");
    SYMM_TRY(number(r, 0, UINT32_MAX, &v));
    row->pairs = (uint32_t)v;
    return symmSuccess;
}

static symmResult_t add_row(reader *r, const char *at, const char *end) {
    symm_plan_row row = r->section;
    const int backend = r->at->gpu ? SYMM_K_GPU : SYMM_K_HOST;
    int more;
    if (!r->in_section) return bad(r, "a row stands before the first section");
    if (next_word(r, &at, end) < 1) return bad(r, "too long, or a quote that is not closed");
    const int kernel = kernel_named(r->word);
    if (kernel == SYMM_KERNEL_COUNT || *r->value)
        return bad(r, "no kernel has this name (symm-info kernels lists them)");
    row.kernel = (symm_kernel_id)kernel;
    if (r->holds && !(symm_kernels[kernel].flags & backend))
        return bad(r, "the kernel is not one of the section's backend");
    while ((more = next_word(r, &at, end)) > 0) SYMM_TRY(row_word(r, &row));
    if (more < 0) return bad(r, "too long, or a quote that is not closed");
    if (r->holds && r->at->gpu && (!row.warps || !row.ctas))
        return bad(r, "a row of GPUs says warps= and ctas=");
    if (!r->holds) return symmSuccess;
    if (r->rows) r->rows->row[r->n] = row;
    r->n++;
    return symmSuccess;
}

/* All lines. They are read twice: rows is NULL the first time. */
static symmResult_t read_lines(reader *r, const char *text, symm_plan_rows *rows) {
    r->line = r->in_section = r->holds = r->n = 0;
    r->rows = rows;
    while (*text) {
        const char *end = text + strcspn(text, "\n"), *at = text;
        text = *end ? end + 1 : end;
        r->line++;
        while (at < end && strchr(BLANKS, *at)) at++;
        snprintf(r->word, sizeof r->word, "%.*s", (int)(end - at), at);
        if (at == end || *at == '#') continue;
        SYMM_TRY(*at == '[' ? begin_section(r, at + 1, end) : add_row(r, at, end));
    }
    return symmSuccess;
}

symmResult_t symm_plan_table_parse(const char *text, const char *name, const symm_plan_place *at,
                                   symm_plan_rows **rows) {
    reader r = {.name = name, .at = at};
    *rows = NULL;
    SYMM_ASSERT(at->nranks >= 1 && at->nranks <= SYMM_MAX_RANKS);
    SYMM_TRY(read_lines(&r, text, NULL));
    if (!r.n) return symmSuccess;
    symm_plan_rows *out = malloc(sizeof *out + (size_t)r.n * sizeof out->row[0]);
    if (!out) return SYMM_ERR(symmOutOfMemory, "no memory for the rows of SYMM_PLAN_TABLE");
    (void)read_lines(&r, text, out); /* as the first time */
    SYMM_ASSERT(r.n > 0 && r.rows == out);
    out->n = r.n;
    *rows = out;
    return symmSuccess;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* NULL: errno says why. */
static char *read_file(const char *path) {
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode)) { /* a pipe could be waited for for ever */
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return NULL;
    }
    FILE *f = symm_fd_read(path);
    if (!f) return NULL;
    char *text = malloc(MOST_BYTES + 1);
    size_t n = text ? fread(text, 1, MOST_BYTES + 1, f) : 0;
    int e = !text ? ENOMEM : ferror(f) ? EIO : n > MOST_BYTES ? EFBIG : 0;
    fclose(f);
    if (!e && memchr(text, 0, n)) e = EINVAL; /* no text */
    if (e) {
        free(text);
        errno = e;
        return NULL;
    }
    text[n] = 0;
    return text;
}

symmResult_t symm_plan_table_read(const char *path, const symm_plan_place *at,
                                  symm_plan_rows **rows) {
    *rows = NULL;
    char *text = read_file(path);
    if (!text)
        return SYMM_ERR(symmSystemError, "SYMM_PLAN_TABLE cannot be read: %s: %s", strerror(errno),
                        path);
    const symmResult_t r = symm_plan_table_parse(text, path, at, rows);
    free(text);
    return r;
}

/* ---- rows ------------------------------------------------------------------------------------ */

uint64_t symm_plan_table_hash(const symm_plan_rows *rows) {
    uint64_t h = rows ? 0xcbf29ce484222325ull : 0;
    for (int i = 0; rows && i < rows->n; i++) h = symm_plan_mix_row(h, &rows->row[i]);
    return h;
}

symm_plan_rows *symm_plan_rows_copy(const symm_plan_rows *rows) {
    SYMM_ASSERT(rows->n >= 0);
    const size_t bytes = sizeof *rows + (size_t)rows->n * sizeof rows->row[0];
    symm_plan_rows *copy = malloc(bytes);
    return copy ? memcpy(copy, rows, bytes) : NULL;
}

void symm_plan_table_section(const symm_plan_place *at, const symm_plan_row *row, char *text,
                             size_t cap) {
    char quarter[24] = "";
    if (row->quarter >= 0) snprintf(quarter, sizeof quarter, " quarter=%d", row->quarter);
    if (at->gpu)
        snprintf(text, cap, "[gpu ranks=%d%s device=\"%s\"]", at->nranks, quarter, at->device);
    else
        snprintf(text, cap, "[host ranks=%d cores=%s]", at->nranks,
                 row->cores == SYMM_CORES_FEW ? "few" : "enough");
}

void symm_plan_table_line(const symm_plan_row *row, char *text, size_t cap) {
    char upto[40] = "", grid[48] = "", pairs[24] = "";
    if (row->upto) snprintf(upto, sizeof upto, " upto=%llu", (unsigned long long)row->upto);
    if (row->warps) snprintf(grid, sizeof grid, " warps=%d ctas=%d", row->warps, row->ctas);
    if (row->pairs) snprintf(pairs, sizeof pairs, " pairs=%u", row->pairs);
    snprintf(text, cap, "%s%s%s%s", symm_kernels[row->kernel].name, upto, grid, pairs);
}
