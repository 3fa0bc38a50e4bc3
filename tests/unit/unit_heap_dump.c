/* unit_heap_dump.c - a heap's picture: made-up ones, whose text and JSON, and the map that
 * symm-info draws from the JSON, are known in advance; and those of heaps that live, which must
 * agree with what the heap says of itself. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>

#include "host/heap/heap.h"
#include "host/heap/heap_chart.h"
#include "host/heap/heap_int.h"
#include "../../tools/info_map.h"
#include "synced_kit.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)

/* ---- text from a descriptor ---- */

static int new_file(void) {
    char path[] = "/tmp/symm-dump-XXXXXX";
    int fd = mkstemp(path);
    T_CHECK(fd >= 0);
    unlink(path);
    return fd;
}

/* All that was written, the caller's to free. Closes fd. */
static char *read_back(int fd) {
    struct stat st;
    T_EQ(fstat(fd, &st), 0);
    char *text = malloc((size_t)st.st_size + 1);
    T_CHECK(text != NULL);
    T_EQ(pread(fd, text, (size_t)st.st_size, 0), st.st_size);
    text[st.st_size] = 0;
    close(fd);
    return text;
}

static char *drawn(void (*draw)(symm_text *, const symm_chart *), const symm_chart *m) {
    symm_text t = {.fd = new_file()};
    draw(&t, m);
    T_OK(symm_text_end(&t));
    return read_back(t.fd);
}

/* The map that symm-info draws from a dump. */
static char *map_of(const char *json) {
    info_map m;
    size_t at;
    T_CHECKF(info_map_read(json, &m, &at) == 0, "byte %zu: %.30s", at, json + at);
    char *svg = drawn(info_map_svg, &m.chart);
    info_map_end(&m);
    return svg;
}

static char *dumped(symmHeap_t heap, int format) {
    int fd = new_file();
    T_OK(symmHeapDump(heap, fd, format));
    return read_back(fd);
}

/* ---- is it XML ---- */

typedef struct {
    char open[16][16];
    int depth, elements, titles, rects;
    double bars; /* widths of rects that are as high as a bar, all together */
} xml;

static const char *skip_name(const char *at) {
    T_CHECKF((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z'), "no name: %.20s", at);
    while ((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '-' || *at == ':')
        at++;
    return at;
}

static const char *check_text(const char *at, const char *ends) {
    static const char *const entities[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
    for (; *at && !strchr(ends, *at); at++) {
        int known = *at != '&';
        for (int i = 0; i < 4; i++) known |= !strncmp(at, entities[i], strlen(entities[i]));
        T_CHECKF(known && *at != '<' && *at != '>' && ((unsigned char)*at >= 0x20 || *at == '\n'),
                 "not allowed: %.30s", at);
    }
    return at;
}

static double attribute(const char *from, const char *to, const char *name) {
    char key[24];
    snprintf(key, sizeof key, " %s=\"", name);
    const char *at = strstr(from, key);
    return at && at < to ? atof(at + strlen(key)) : -1;
}

/* From behind '<' of an element's beginning. */
static const char *check_open(xml *x, const char *at) {
    const char *name = at, *end = skip_name(at);
    T_CHECK(end - name < 16 && x->depth < 16);
    for (at = end; *at == ' ';) {
        at = skip_name(at + 1);
        T_CHECKF(at[0] == '=' && at[1] == '"', "no value: %.30s", at);
        at = check_text(at + 2, "\"") + 1;
    }
    x->elements++;
    if (!strncmp(name, "title>", 6)) x->titles++;
    if (!strncmp(name, "rect ", 5)) {
        x->rects++;
        T_CHECK(attribute(name, at, "height") != 0 && attribute(name, at, "width") != 0);
        if (attribute(name, at, "height") == 22) x->bars += attribute(name, at, "width");
    }
    if (at[0] == '/') {
        at++;
    } else {
        snprintf(x->open[x->depth], sizeof x->open[0], "%.*s", (int)(end - name), name);
        x->depth++;
    }
    T_CHECKF(*at == '>', "no end: %.30s", at);
    return at + 1;
}

static xml check_xml(const char *text) {
    static const char head[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    xml x = {.depth = 0};
    T_CHECK(!strncmp(text, head, strlen(head)));
    for (const char *at = text + strlen(head); *at;) {
        if (*at != '<') {
            at = check_text(at, "<");
        } else if (at[1] == '/') {
            T_CHECK(x.depth > 0);
            const char *name = at + 2, *end = skip_name(name);
            x.depth--;
            T_CHECKF(*end == '>' && strlen(x.open[x.depth]) == (size_t)(end - name) &&
                         !strncmp(name, x.open[x.depth], (size_t)(end - name)),
                     "</%.*s> ends <%s>", (int)(end - name), name, x.open[x.depth]);
            at = end + 1;
        } else {
            at = check_open(&x, at + 1);
        }
        T_CHECK(x.depth > 0 || !strcmp(at, "\n") || !*at); /* one root */
    }
    T_EQ(x.depth, 0);
    return x;
}

/* ---- is it JSON ---- */

static const char *check_json(const char *at);

static const char *json_string(const char *at) {
    T_CHECKF(*at == '"', "no string: %.20s", at);
    for (at++; *at != '"'; at++) {
        T_CHECK((unsigned char)*at >= 0x20);
        if (*at == '\\') {
            at++;
            T_CHECK(strchr("\"\\u", *at) != NULL);
        }
    }
    return at + 1;
}
static const char *json_space(const char *at) {
    while (*at == ' ' || *at == '\n') at++;
    return at;
}
static const char *json_list(const char *at, char end, int keys) {
    at = json_space(at + 1);
    while (*at != end) {
        if (keys) {
            at = json_space(json_string(at));
            T_CHECK(*at == ':');
            at++;
        }
        at = json_space(check_json(at));
        if (*at == end) break;
        T_CHECKF(*at == ',', "no comma: %.20s", at);
        at = json_space(at + 1);
        T_CHECK(*at != end);
    }
    return at + 1;
}
static const char *check_json(const char *at) {
    at = json_space(at);
    if (*at == '{') return json_list(at, '}', 1);
    if (*at == '[') return json_list(at, ']', 0);
    if (*at == '"') return json_string(at);
    char *end;
    strtod(at, &end);
    T_CHECKF(end != at, "no value: %.20s", at);
    return end;
}

/* ---- made-up pictures ---- */

static const symm_chart_chunk sym_chunks[] = {{0, MIB(2)}, {MIB(4), MIB(2)}};
static const symm_chart_piece sym_pieces[] = {
    {0, KIB(512), SYMM_OWNER_USER, -1},
    {KIB(512), KIB(512), SYMM_CHART_HOLE, -1},
    {MIB(1), MIB(1), SYMM_OWNER_LANE, 3},
    {MIB(4), KIB(1536), SYMM_CHART_HOLE, -1},
    {MIB(4) + KIB(1536), KIB(512), SYMM_CHART_UNCOLLECTED, -1}};
static const symm_chart_chunk local_chunks[] = {{MIB(62), MIB(2)}};
static const symm_chart_piece local_pieces[] = {{MIB(62), MIB(2), SYMM_OWNER_SYNCED, -1}};

static symm_chart made_up(const char *name) {
    return (symm_chart){
        .name = name,
        .rank = 1,
        .nranks = 4,
        .reserve = MIB(64),
        .granularity = MIB(2),
        .calls = 17,
        .digest = 0xabc,
        .zone = {{"SYM", 0, MIB(6), MIB(4), MIB(3), sym_chunks, sym_pieces, 2, 5},
                 {"LOCAL", MIB(62), MIB(64), MIB(2), MIB(2), local_chunks, local_pieces, 1, 1}}};
}

static const char wanted[] =
    "heap weights: rank 1 of 4, 64 MiB of addresses, granularity 2 MiB\n"
    "  calls on SYM so far: 17, digest 0000000000000abc\n"
    "  SYM    4 MiB in 2 chunks, offsets [0, 6291456)\n"
    "    used             2 MiB in 3 blocks, at most 3 MiB so far\n"
    "    free             2 MiB in 2 holes, the largest 1.50 MiB, fragmentation 25 %\n"
    "    |######......############                        ..................######|\n"
    "    user           512 KiB in 1\n"
    "    lane             1 MiB in 1\n"
    "    uncollected    512 KiB in 1\n"
    "    hole          1.50 MiB at 4194304\n"
    "    hole           512 KiB at 524288\n"
    "  LOCAL  2 MiB in 1 chunk, offsets [65011712, 67108864)\n"
    "    used             2 MiB in 1 block, at most 2 MiB so far\n"
    "    free               0 B in 0 holes, the largest 0 B, fragmentation 0 %\n"
    "    |########################################################################|\n"
    "    synced           2 MiB in 1\n";

static void the_text_is_as_it_should_be(void) {
    symm_chart m = made_up("weights");
    char *text = drawn(symm_chart_text, &m);
    T_STREQ(text, wanted);
    free(text);
}

static void an_empty_heap_can_be_drawn(void) {
    symm_chart m = {.name = "", .nranks = 1, .reserve = MIB(64), .granularity = MIB(2)};
    m.zone[0].name = "SYM";
    m.zone[1].name = "LOCAL";
    m.zone[1].from = m.zone[1].to = MIB(64);
    char *text = drawn(symm_chart_text, &m), *json = drawn(symm_chart_json, &m),
         *svg = map_of(json);
    T_MSG(text, "LOCAL  0 B in 0 chunks");
    T_STREQ(json_space(check_json(json)), "");
    T_CHECK(check_xml(svg).rects == 1); /* the background */
    free(text);
    free(json);
    free(svg);
}

/* Each byte of a zone is drawn once: the widths of all bars are what they must be together. */
static void the_svg_is_xml_and_shows_every_byte(void) {
    symm_chart m = made_up("<a> & \"b\"\x01\xff");
    char *json = drawn(symm_chart_json, &m), *svg = map_of(json);
    xml x = check_xml(svg);
    T_MSG(svg, "heap &lt;a&gt; &amp; &quot;b&quot;??, rank 1 of 4");
    T_MSG(svg, "lane: 1 MiB at offset 1048576, lane 3");
    T_MSG(svg, "chunk 1: 2 MiB at offset 4194304");
    T_MSG(svg, "SYM: 4 MiB in 2 chunks, 2 MiB used in 3 blocks, largest hole 1.50 MiB");
    T_MSG(svg, ">end - 1.50 MiB</text>");
    T_MSG(svg, "synced buffers, 2 MiB");
    T_CHECK(strstr(svg, "vectors") == NULL); /* no legend for what is not there */
    /* bars of 512 KiB for SYM (12 make 6 MiB), of 256 KiB for LOCAL (8 of them) */
    const double want = 960.0 * (4 * 2 + 2 * 4);
    T_CHECKF(x.bars > want - 1 && x.bars < want + 1, "%f wide, not %f", x.bars, want);
    T_STREQ(json_space(check_json(json)), "");
    T_MSG(json, "{\"heap\":\"<a> & \\\"b\\\"\\u0001\\u00ff\"");
    free(svg);
    free(json);
}

/* As large as the picture, not as the heap. */
static void many_small_pieces_are_drawn_together(void) {
    enum { MANY = 400000 };
    symm_chart m = made_up("many");
    const symm_chart_chunk chunk = {0, (uint64_t)MANY * 256};
    symm_chart_piece *pieces = malloc(MANY * sizeof *pieces);
    T_CHECK(pieces != NULL);
    for (int i = 0; i < MANY; i++)
        pieces[i] = (symm_chart_piece){(uint64_t)i * 256, 256,
                                       i % 3 ? SYMM_OWNER_ARENA : SYMM_CHART_HOLE, -1};
    m.zone[0] = (symm_chart_zone){"SYM", 0, chunk.bytes, chunk.bytes, 0, &chunk, pieces, 1, MANY};
    char *json = drawn(symm_chart_json, &m), *svg = map_of(json);
    xml x = check_xml(svg);
    const double line = (double)MIB(16), want = 960.0 * ((double)chunk.bytes / line + 8);
    T_CHECKF(x.rects < 12 * 960 + 100, "%d rectangles", x.rects);
    T_CHECKF(x.bars > want - 40 && x.bars < want + 40, "%f wide, not %f", x.bars, want);
    T_MSG(svg, " pieces at offset ");
    free(svg);
    free(json);
    char *text = drawn(symm_chart_text, &m);
    T_MSG(text, "|++++++++");
    free(text);
    free(pieces);
}

/* A file that somebody else wrote, or cut off, is refused: nothing outside of it is read. */
static void what_is_no_dump_is_not_drawn(void) {
    static const char *const bad[] = {
        "",
        "{",
        "{}",
        "[]",
        "{\"heap\":\"a\"}",
        "{\"heap\":1}",
        "{\"other\":1}",
        "{\"heap\":\"\\u00ff\"}",
        "{\"zones\":[{\"name\":\"LOCAL\"}]}",
        "{\"zones\":[{\"name\":\"SYM\",\"from\":0,\"to\":8,\"pieces\":"
        "[{\"off\":4,\"bytes\":5,\"kind\":\"user\",\"lane\":-1}]},{\"name\":\"LOCAL\"}]}",
        "{\"zones\":[{\"name\":\"SYM\",\"from\":0,\"to\":8,\"chunks\":[[0,4],[3,2]]},"
        "{\"name\":\"LOCAL\"}]}",
        "{\"zones\":[{\"name\":\"SYM\",\"to\":8,\"pieces\":[{\"bytes\":1,\"kind\":\"?\"}]},"
        "{\"name\":\"LOCAL\"}]}"};
    info_map map;
    size_t at;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        T_CHECKF(info_map_read(bad[i], &map, &at) != 0, "taken: %s", bad[i]);
        T_CHECK(at <= strlen(bad[i]));
        info_map_end(&map);
    }
    symm_chart m = made_up("weights");
    char *json = drawn(symm_chart_json, &m);
    const size_t n = strlen(json);
    for (size_t cut = n - 2; cut > 0; cut -= cut > 97 ? 97 : cut) { /* n - 1: without its newline */
        json[cut] = 0;
        T_CHECKF(info_map_read(json, &map, &at) != 0, "taken: the first %zu bytes", cut);
        info_map_end(&map);
    }
    free(json);
}

/* ---- heaps that live ---- */

static symmComm_t comm;
static symmHeap_t heap;

static void start(void) {
    setenv("SYMM_SCRATCH", "1M", 1);
    T_OK(symmCommInitAll(&comm, 1, NULL));
    heap = sy_heap(comm, MIB(4), MIB(2));
}
static void stop(void) {
    T_OK(symmHeapDestroy(heap));
    T_OK(symmCommDestroy(comm));
}

/* The piece that the JSON has at off, as "bytes kind"; "" if none. */
static const char *piece_at(const char *json, uint64_t off) {
    static char found[64];
    char key[64], kind[16];
    unsigned long long bytes;
    snprintf(key, sizeof key, "{\"off\":%llu,", (unsigned long long)off);
    const char *at = strstr(json, key);
    if (!at || sscanf(at + strlen(key), "\"bytes\":%llu,\"kind\":\"%15[a-z]", &bytes, kind) != 2)
        return "";
    snprintf(found, sizeof found, "%llu %s", bytes, kind);
    return found;
}

static uint64_t offset_of(const void *p) {
    symmRef_t ref;
    T_OK(symmRefGet(p, &ref));
    return ref.off;
}

/* Pieces tile the chunks and nothing else, in the order of their offsets. */
static void check_tiles(const char *json, uint64_t want) {
    uint64_t sum = 0, end = 0;
    unsigned long long off, bytes;
    for (const char *at = json; (at = strstr(at, "{\"off\":")); at++) {
        T_EQ(sscanf(at, "{\"off\":%llu,\"bytes\":%llu", &off, &bytes), 2);
        T_CHECKF(off >= end, "offset %llu comes behind %llu", off, (unsigned long long)end);
        end = off + bytes;
        sum += bytes;
    }
    T_EQ(sum, want);
}

static void the_picture_is_that_of_the_heap(void) {
    void *a, *b, *c, *d, *gap;
    symmHeapInfo_t info = {.size = sizeof info};
    start();
    T_OK(symmHeapAlloc(heap, 1000, 0, SYMM_ALLOC_SYM, &a));
    T_OK(symmHeapAlloc(heap, KIB(64), 0, SYMM_ALLOC_SYM, &gap));
    T_OK(symmHeapAlloc(heap, 5000, 4096, SYMM_ALLOC_SYM, &b));
    T_OK(symmHeapAlloc(heap, 300, 0, SYMM_ALLOC_LOCAL, &c));
    T_OK(symmHeapAlloc(heap, KIB(8), 0, SYMM_ALLOC_LOCAL, &d));
    T_OK(symmHeapFree(heap, gap));
    symmSynced_t s = sy_new(heap, KIB(100));
    const char *side = sy_gpu(s, NULL);
    char *json = dumped(heap, SYMM_DUMP_JSON), *svg = map_of(json),
         *text = dumped(heap, SYMM_DUMP_TEXT);
    T_STREQ(json_space(check_json(json)), "");
    T_STREQ(piece_at(json, offset_of(a)), "1024 user");
    T_STREQ(piece_at(json, offset_of(a) + 1024),
            "68608 hole"); /* what alignment leaves is joined to it */
    T_STREQ(piece_at(json, offset_of(b)), "5120 user");
    T_STREQ(piece_at(json, offset_of(c)), "512 user");
    T_STREQ(piece_at(json, offset_of(d)), "8192 user");
    T_STREQ(piece_at(json, offset_of(side)), "102400 synced");
    check_tiles(json, MIB(6));
    T_OK(symmHeapQuery(heap, &info));
    const double width = 960.0 * (8 + 8); /* bars of 512 and 256 KiB */
    const double bars = check_xml(svg).bars;
    T_CHECKF(bars > width - 5 && bars < width + 5, "%f wide, not %f", bars, width);
    T_MSG(text, "synced");
    free(json);
    free(svg);
    free(text);
    T_OK(symmSyncedDestroy(s));
    stop();
}

/* What a graph has let go shows as uncollected until it is collected. */
static void uncollected_is_shown(void) {
    symm_heap *h;
    uint64_t off;
    start();
    T_OK(symm_heap_enter(heap, 1, &h));
    T_OK(symm_heap_take(h, 700, 0, SYMM_ALLOC_SYM, SYMM_OWNER_GRAPH, 5, NULL, &off));
    symm_heap_leave(h);
    char *json = dumped(heap, SYMM_DUMP_JSON);
    T_STREQ(piece_at(json, off), "768 graph");
    T_MSG(json, "\"kind\":\"graph\",\"lane\":5}");
    free(json);
    symm_heap_give_later(h, off);
    json = dumped(heap, SYMM_DUMP_JSON);
    T_STREQ(piece_at(json, off), "768 uncollected");
    free(json);
    T_OK(symmHeapCollect(heap));
    stop();
}

static _Atomic int done;

static void *allocate_on(void *arg) {
    (void)arg;
    void *p[64] = {NULL};
    for (int i = 0; i < 4000; i++) {
        void **at = &p[i * 7 % 64];
        T_OK(symmHeapFree(heap, *at));
        *at = NULL;
        T_OK(symmHeapAlloc(heap, 256 + (size_t)(i % 13) * 1000, 0, SYMM_ALLOC_LOCAL, at));
    }
    for (int i = 0; i < 64; i++) T_OK(symmHeapFree(heap, p[i]));
    atomic_store(&done, 1);
    return NULL;
}

static void other_threads_go_on(void) {
    pthread_t thread;
    start();
    atomic_store(&done, 0);
    T_EQ(pthread_create(&thread, NULL, allocate_on, NULL), 0);
    while (!atomic_load(&done)) {
        char *json = dumped(heap, SYMM_DUMP_JSON);
        check_tiles(json, MIB(6));
        free(json);
    }
    pthread_join(thread, NULL);
    stop();
}

static void bad_arguments(void) {
    T_EXPECT_WARNINGS();
    start();
    T_ERR(symmHeapDump(heap, 1, 2), symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "format=2");
    T_ERR(symmHeapDump(heap, 1, -1), symmInvalidArgument);
    T_ERR(symmHeapDump(NULL, 1, SYMM_DUMP_TEXT), symmInvalidArgument);
    int closed = dup(1);
    close(closed);
    T_ERR(symmHeapDump(heap, closed, SYMM_DUMP_TEXT), symmSystemError);
    int reading = open("/dev/null", O_RDONLY | O_CLOEXEC);
    T_ERR(symmHeapDump(heap, reading, SYMM_DUMP_JSON), symmSystemError);
    close(reading);
    symmHeap_t gone = heap;
    stop();
    T_ERR(symmHeapDump(gone, 1, SYMM_DUMP_TEXT), symmInvalidArgument);
}

T_MAIN(T(the_text_is_as_it_should_be), T(an_empty_heap_can_be_drawn),
       T(the_svg_is_xml_and_shows_every_byte), T(many_small_pieces_are_drawn_together),
       T(what_is_no_dump_is_not_drawn), T(the_picture_is_that_of_the_heap), T(uncollected_is_shown),
       T(other_threads_go_on), T(bad_arguments))
