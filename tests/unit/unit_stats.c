/* unit_stats.c - counters, gauges and their JSON; names in it. Threads where it says so. */
#include "t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "base/text.h"

enum {
#define SYMM_GAUGE(name, help) gauge_##name,
#define SYMM_COUNTER(name, help)
#include "base/stats.def"
#undef SYMM_GAUGE
#undef SYMM_COUNTER
    GAUGES
};

static void gauges_come_in_table_order(void) {
    int64_t values[GAUGES + 1];
    const char *names[GAUGES + 1];
    values[GAUGES] = 77;
    SYMM_STAT_ADD(maps, 4);
    T_EQ(symm_stats_gauges(values, names, GAUGES), GAUGES);
    T_EQ(values[GAUGES], 77);
    T_EQ(values[gauge_maps], 4);
    T_STREQ(names[gauge_maps], "maps");
    T_EQ(values[gauge_fds], 0);
    T_STREQ(names[gauge_fds], "fds");
    SYMM_STAT_ADD(maps, -4);
}

static void a_small_array_gets_what_fits(void) {
    int64_t values[2] = {-1, -1};
    T_EQ(symm_stats_gauges(values, NULL, 1), GAUGES);
    T_EQ(values[0], 0);
    T_EQ(values[1], -1);
    T_EQ(symm_stats_gauges(NULL, NULL, 0), GAUGES);
}

static void json_holds_every_name_once(void) {
    char text[4096], key[64];
    SYMM_STAT_ADD(launches, 12345678901);
    size_t len = symm_stats_json(text, sizeof text);
    T_EQ(len, strlen(text));
    T_CHECK(strncmp(text, "\"gauges\":{\"fds\":0,", 18) == 0);
    T_MSG(text, "},\"counters\":{\"launches\":12345678901,");
    T_EQ(text[len - 1], '}');
#define SYMM_GAUGE(name, help)                   \
    snprintf(key, sizeof key, "\"%s\":", #name); \
    T_CHECKF(strstr(text, key) && !strstr(strstr(text, key) + 1, key), "%s once in %s", key, text);
#define SYMM_COUNTER(name, help) SYMM_GAUGE(name, help)
#include "base/stats.def"
#undef SYMM_GAUGE
#undef SYMM_COUNTER
}

static void json_is_cut_at_every_size(void) {
    char whole[4096], part[4096];
    size_t len = symm_stats_json(whole, sizeof whole);
    T_EQ(symm_stats_json(NULL, 0), len);
    for (size_t cap = 1; cap <= len + 1; cap++) {
        memset(part, 'x', sizeof part);
        T_EQ(symm_stats_json(part, cap), len);
        T_EQ(strlen(part), cap - 1);
        T_EQ(memcmp(part, whole, cap - 1), 0);
        T_EQ(part[cap], 'x');
    }
}

/* Names of a program's, whatever bytes they have. */
static void names_are_json(void) {
    static const struct {
        const char *name, *json;
    } all[] = {{"a b", "a b"},
               {"\"\\\n\x7f", "\\\"\\\\\\u000a\x7f"},
               {"v\xc3\xa4r", "v\xc3\xa4r"},
               {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
               {"v\xc3", "v\\u00c3"},
               {"\xe2\x82", "\\u00e2\\u0082"},
               {"\xc0\xaf\xed\xa0\x80", "\\u00c0\\u00af\\u00ed\\u00a0\\u0080"},
               {"\xf4\x90\x80\x80", "\\u00f4\\u0090\\u0080\\u0080"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[64] = "", piece[SYMM_TEXT_JSON];
        for (const char *s = all[i].name; *s;) {
            s += symm_text_json(s, piece);
            strcat(text, piece);
        }
        T_STREQ(text, all[i].json);
    }
}

enum { ROUNDS = 20000 };

static void count(int rank, int n, void *arg) {
    (void)rank;
    (void)n;
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        SYMM_STAT_ADD(launches, 1);
        SYMM_STAT_ADD(windows, 1);
        SYMM_STAT_ADD(windows, -1);
    }
}

static void threads_lose_no_count(void) {
    T_THREADS(4, count, NULL);
    T_EQ(SYMM_STAT_GET(launches), 4 * ROUNDS);
    T_EQ(SYMM_STAT_GET(windows), 0);
}

T_MAIN(T(gauges_come_in_table_order), T(a_small_array_gets_what_fits),
       T(json_holds_every_name_once), T(json_is_cut_at_every_size), T(names_are_json),
       T(threads_lose_no_count))
