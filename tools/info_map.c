/* info_map.c - reads the JSON of symmHeapDump, and has it drawn. What it accepts is a heap that can
 * be drawn: pieces and chunks ascend, and lie in their zone. Main thread. */
#include "info_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- JSON ------------------------------------------------------------------------------------ */

typedef struct {
    const char *at;
    int bad; /* nothing is read any more */
    info_map *map;
    int zone; /* zones that have begun */
} reader;

typedef void value_fn(reader *r, const char *key);
enum { KEY = 64, DEPTH = 8 };

static void fail(reader *r) {
    r->bad = 1;
}

/* 1 if the next character is c, which is passed. */
static int next_is(reader *r, char c) {
    while (*r->at == ' ' || *r->at == '\n') r->at++;
    if (r->bad || *r->at != c) return 0;
    r->at++;
    return 1;
}

static void expect(reader *r, char c) {
    if (!next_is(r, c)) fail(r);
}

/* The character behind a backslash; '?' for one that is no ASCII. */
static char escaped(reader *r) {
    unsigned code = 0;
    int n = 0;
    if (*r->at == '"' || *r->at == '\\') return *r->at++;
    if (sscanf(r->at, "u%4x%n", &code, &n) != 1 || n != 5) {
        fail(r);
        return 0;
    }
    r->at += n;
    return code < 0x80 ? (char)code : '?';
}

static void read_text(reader *r, char *out, size_t cap) {
    size_t n = 0;
    expect(r, '"');
    while (!r->bad && *r->at && *r->at != '"') {
        char c = *r->at++;
        if (c == '\\') c = escaped(r);
        if (n + 1 < cap) out[n++] = c;
    }
    out[n] = 0;
    expect(r, '"');
}

static uint64_t read_number(reader *r) {
    char *end = NULL;
    if (next_is(r, '-')) {
        fail(r);
        return 0;
    }
    const uint64_t v = strtoull(r->at, &end, 10);
    if (end == r->at) fail(r);
    r->at = end;
    return v;
}

static int read_int(reader *r) {
    const int minus = next_is(r, '-');
    const uint64_t v = read_number(r);
    if (v > INT32_MAX) fail(r);
    return minus ? -(int)v : (int)v;
}

static void read_object(reader *r, value_fn *field) {
    char key[KEY];
    expect(r, '{');
    if (next_is(r, '}')) return;
    do {
        read_text(r, key, sizeof key);
        expect(r, ':');
        if (!r->bad) field(r, key);
    } while (next_is(r, ','));
    expect(r, '}');
}

static void read_list(reader *r, value_fn *item) {
    expect(r, '[');
    if (next_is(r, ']')) return;
    do item(r, NULL);
    while (next_is(r, ','));
    expect(r, ']');
}

/* ---- a heap ---------------------------------------------------------------------------------- */

static symm_chart_zone *zone_of(const reader *r) {
    return &r->map->chart.zone[r->zone - 1];
}

/* Room for one more of `size` bytes behind n. NULL: no memory. */
static void *room(void *list, int n, int *cap, size_t size) {
    if (n < *cap) return list;
    *cap = *cap ? 2 * *cap : 64;
    return realloc(list, (size_t)*cap * size);
}

static void read_chunk(reader *r, const char *key) {
    struct info_map_zone *own = &r->map->zone[r->zone - 1];
    symm_chart_zone *z = zone_of(r);
    (void)key;
    void *list = room(own->chunks, z->nchunks, &own->chunk_cap, sizeof *own->chunks);
    if (!list) return fail(r);
    z->chunks = own->chunks = list;
    symm_chart_chunk *k = &own->chunks[z->nchunks++];
    expect(r, '[');
    k->off = read_number(r);
    expect(r, ',');
    k->bytes = read_number(r);
    expect(r, ']');
}

static int kind_of(const char *name) {
    int k = 0;
    while (k < SYMM_CHART_KINDS && strcmp(symm_chart_kind[k], name) != 0) k++;
    return k;
}

/* Of the piece that was begun last. */
static void piece_field(reader *r, const char *key) {
    symm_chart_piece *p = &r->map->zone[r->zone - 1].pieces[zone_of(r)->npieces - 1];
    char kind[16];
    if (!strcmp(key, "off")) {
        p->off = read_number(r);
    } else if (!strcmp(key, "bytes")) {
        p->bytes = read_number(r);
    } else if (!strcmp(key, "lane")) {
        p->lane = read_int(r);
    } else if (!strcmp(key, "kind")) {
        read_text(r, kind, sizeof kind);
        p->kind = kind_of(kind);
        if (p->kind == SYMM_CHART_KINDS) fail(r);
    } else {
        fail(r);
    }
}

static void read_piece(reader *r, const char *key) {
    struct info_map_zone *own = &r->map->zone[r->zone - 1];
    symm_chart_zone *z = zone_of(r);
    (void)key;
    void *list = room(own->pieces, z->npieces, &own->piece_cap, sizeof *own->pieces);
    if (!list) return fail(r);
    z->pieces = own->pieces = list;
    own->pieces[z->npieces++] = (symm_chart_piece){0, 0, SYMM_CHART_HOLE, -1};
    read_object(r, piece_field);
}

/* A number of the zone, NULL if it has none of that name; sums are computed anew. */
static uint64_t *zone_number(symm_chart_zone *z, const char *key) {
    static uint64_t sum;
    if (!strcmp(key, "from")) return &z->from;
    if (!strcmp(key, "to")) return &z->to;
    if (!strcmp(key, "bytes")) return &z->bytes;
    if (!strcmp(key, "peak")) return &z->peak;
    return !strcmp(key, "used") || !strcmp(key, "largest") ? &sum : NULL;
}

static void zone_field(reader *r, const char *key) {
    static const char *const names[] = {"SYM", "LOCAL"};
    symm_chart_zone *z = zone_of(r);
    char name[16];
    if (!strcmp(key, "name")) {
        read_text(r, name, sizeof name);
        if (strcmp(name, names[r->zone - 1]) != 0) fail(r);
        z->name = names[r->zone - 1];
    } else if (!strcmp(key, "chunks")) {
        read_list(r, read_chunk);
    } else if (!strcmp(key, "pieces")) {
        read_list(r, read_piece);
    } else if (zone_number(z, key)) {
        *zone_number(z, key) = read_number(r);
    } else {
        fail(r);
    }
}

/* Ascending, inside the zone, none empty. */
static int is_drawable(const symm_chart_zone *z) {
    uint64_t end = z->from;
    if (!z->name || z->from > z->to) return 0;
    for (int i = 0; i < z->npieces; end = z->pieces[i].off + z->pieces[i].bytes, i++)
        if (!z->pieces[i].bytes || z->pieces[i].off < end || z->pieces[i].off > z->to ||
            z->pieces[i].bytes > z->to - z->pieces[i].off)
            return 0;
    end = z->from;
    for (int i = 0; i < z->nchunks; end = z->chunks[i].off + z->chunks[i].bytes, i++)
        if (!z->chunks[i].bytes || z->chunks[i].off < end || z->chunks[i].off > z->to ||
            z->chunks[i].bytes > z->to - z->chunks[i].off)
            return 0;
    return 1;
}

static void read_zone(reader *r, const char *key) {
    (void)key;
    if (r->zone == 2) return fail(r);
    r->zone++;
    read_object(r, zone_field);
    if (!r->bad && !is_drawable(zone_of(r))) fail(r);
}

static void heap_field(reader *r, const char *key) {
    symm_chart *m = &r->map->chart;
    char digest[24];
    if (!strcmp(key, "heap")) {
        read_text(r, r->map->name, sizeof r->map->name);
    } else if (!strcmp(key, "digest")) {
        read_text(r, digest, sizeof digest);
        m->digest = strtoull(digest, NULL, 16);
    } else if (!strcmp(key, "zones")) {
        read_list(r, read_zone);
    } else if (!strcmp(key, "rank")) {
        m->rank = read_int(r);
    } else if (!strcmp(key, "nranks")) {
        m->nranks = read_int(r);
    } else if (!strcmp(key, "graph_ranges")) {
        m->graph_ranges = read_int(r);
    } else {
        uint64_t *number = !strcmp(key, "reserve")              ? &m->reserve
                           : !strcmp(key, "granularity")        ? &m->granularity
                           : !strcmp(key, "calls")              ? &m->calls
                           : !strcmp(key, "graph_range_bytes")  ? &m->graph_range_bytes
                           : !strcmp(key, "graph_range_memory") ? &m->graph_range_memory
                                                                : NULL;
        if (!number) return fail(r);
        *number = read_number(r);
    }
}

int info_map_read(const char *json, info_map *m, size_t *at) {
    *m = (info_map){.chart = {.rank = 0}};
    m->chart.name = m->name;
    reader r = {.at = json, .map = m};
    read_object(&r, heap_field);
    if (!r.bad && (r.zone != 2 || (!next_is(&r, 0) && *r.at))) fail(&r);
    *at = (size_t)(r.at - json);
    return r.bad ? -1 : 0;
}

void info_map_end(info_map *m) {
    for (int i = 0; i < 2; i++) {
        free(m->zone[i].chunks);
        free(m->zone[i].pieces);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

/* All of the file, the caller's to free. NULL: errno says why. */
static char *read_all(int fd) {
    size_t n = 0, cap = 1 << 16;
    char *text = malloc(cap), *more;
    while (text) {
        const ssize_t k = read(fd, text + n, cap - n - 1);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) break;
        n += (size_t)k;
        text[n] = 0;
        if (k == 0) return text;
        if (cap - n > 1) continue;
        if (!(more = realloc(text, cap *= 2))) break;
        text = more;
    }
    free(text);
    return NULL;
}

static int write_svg(const symm_chart *m, const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    symm_text t = {.fd = fd};
    if (fd >= 0) info_map_svg(&t, m);
    const symmResult_t r = fd >= 0 ? symm_text_end(&t) : symmSuccess;
    if (fd >= 0 && close(fd) == 0 && !r) return 0;
    fprintf(stderr, "symm-info: cannot write %s: %s\n", path,
            r ? symmGetLastError(NULL) : strerror(errno));
    return 1;
}

int info_map_draw_fd(int fd, const char *name, const char *svg) {
    info_map m;
    size_t at;
    int failed = 1;
    char *json = read_all(fd);
    if (!json) return fprintf(stderr, "symm-info: cannot read %s: %s\n", name, strerror(errno)), 1;
    if (info_map_read(json, &m, &at))
        fprintf(stderr,
                "symm-info: %s: no dump of a heap as symmHeapDump writes it with SYMM_DUMP_JSON "
                "(byte %zu)\n",
                name, at);
    else
        failed = write_svg(&m.chart, svg);
    info_map_end(&m);
    free(json);
    return failed;
}

int info_map_draw(const char *dump, const char *svg) {
    int fd = open(dump, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fprintf(stderr, "symm-info: cannot read %s: %s\n", dump, strerror(errno)), 1;
    const int failed = info_map_draw_fd(fd, dump, svg);
    close(fd);
    return failed;
}
