/* unit_param.c - the SYMM_ variables: values, ranges, texts, and what loading does beside. One
 * process per test. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "t.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/param.h"
#include "base/stats.h"

/* Parses one variable. */
static symmResult_t parse1(const char *entry, symm_params *p) {
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", entry);
    char *env[] = {(char *)"HOME=/", copy, NULL};
    return symm_param_parse(env, p);
}

static symm_params parsed(const char *entry) {
    symm_params p;
    memset(&p, 0xee, sizeof p);
    T_OK(parse1(entry, &p));
    return p;
}

static void refused(const char *entry, const char *text) {
    symm_params p, before;
    memset(&p, 0xee, sizeof p);
    before = p;
    T_CHECKF(parse1(entry, &p) == symmInvalidArgument, "%s was taken", entry);
    T_STREQ(symm_status_text(), text);
    T_EQ(memcmp(&p, &before, sizeof p), 0);
    T_EQ(SYMM_STAT_GET(log_warnings), 0);
}

static void defaults_are_the_table_s(void) {
    symm_params p = parsed("PATH=/bin");
#define SYMM_PARAM_INT(field, var, def, min, max, help)  T_EQ(p.field, def);
#define SYMM_PARAM_SIZE(field, var, def, min, max, help) T_EQ(p.field, def);
#define SYMM_PARAM_ENUM(field, var, def, names, help)    T_EQ(p.field, def);
#define SYMM_PARAM_STR(field, var, help)                 T_STREQ(p.field, "");
#include "base/params.def"
#undef SYMM_PARAM_INT
#undef SYMM_PARAM_SIZE
#undef SYMM_PARAM_ENUM
#undef SYMM_PARAM_STR
}

static void empty_values_are_defaults(void) {
    symm_params p = parsed("PATH=/bin"), q;
#define SYMM_PARAM_INT(field, var, def, min, max, help) \
    q = parsed(var "=");                                \
    T_EQ(memcmp(&p, &q, sizeof p), 0);
#define SYMM_PARAM_SIZE(field, var, def, min, max, help) \
    SYMM_PARAM_INT(field, var, def, min, max, help)
#define SYMM_PARAM_ENUM(field, var, def, names, help) SYMM_PARAM_INT(field, var, def, 0, 0, help)
#define SYMM_PARAM_STR(field, var, help)              SYMM_PARAM_INT(field, var, 0, 0, 0, help)
#include "base/params.def"
#undef SYMM_PARAM_INT
#undef SYMM_PARAM_SIZE
#undef SYMM_PARAM_ENUM
#undef SYMM_PARAM_STR
}

static void check_bound(const char *var, int64_t value, int is_inside) {
    char entry[128];
    symm_params p;
    snprintf(entry, sizeof entry, "%s=%lld", var, (long long)value);
    T_CHECKF((parse1(entry, &p) == symmSuccess) == is_inside, "%s", entry);
    T_CHECKF(is_inside || strstr(symm_status_text(), entry), "\"%s\" does not name %s",
             symm_status_text(), entry);
}

static void every_range_is_kept(void) {
#define SYMM_PARAM_INT(field, var, def, min, max, help)                       \
    check_bound(var, (int64_t)(min), 1), check_bound(var, (int64_t)(max), 1); \
    check_bound(var, (int64_t)(min)-1, 0), check_bound(var, (int64_t)(max) + 1, 0);
#define SYMM_PARAM_SIZE(field, var, def, min, max, help) \
    SYMM_PARAM_INT(field, var, def, min, max, help)
#define SYMM_PARAM_ENUM(field, var, def, names, help)
#define SYMM_PARAM_STR(field, var, help)
#include "base/params.def"
#undef SYMM_PARAM_INT
#undef SYMM_PARAM_SIZE
#undef SYMM_PARAM_ENUM
#undef SYMM_PARAM_STR
}

static void whole_numbers(void) {
    T_EQ(parsed("SYMM_CTAS=17").ctas, 17);
    T_EQ(parsed("SYMM_CTAS=007").ctas, 7);
    T_EQ(parsed("SYMM_SPIN=-1").spin, -1);
    refused("SYMM_CTAS=257", "SYMM_CTAS=257: must be a whole number from 0 to 256");
    refused("SYMM_SPIN=-2", "SYMM_SPIN=-2: must be a whole number from -1 to 1000000");
    static const char *const bad[] = {"4x",
                                      " 4",
                                      "4 ",
                                      "+4",
                                      "-",
                                      "0x4",
                                      "4.0",
                                      "four",
                                      "--4",
                                      "99999999999999999999",
                                      "-99999999999999999999"};
    char entry[64], text[128];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(entry, sizeof entry, "SYMM_CTAS=%s", bad[i]);
        snprintf(text, sizeof text, "%s: must be a whole number from 0 to 256", entry);
        refused(entry, text);
    }
}

static void sizes(void) {
    T_EQ(parsed("SYMM_SCRATCH=1048576").scratch, 1 << 20);
    T_EQ(parsed("SYMM_SCRATCH=2048K").scratch, 2 << 20);
    T_EQ(parsed("SYMM_SCRATCH=3m").scratch, 3 << 20);
    T_EQ(parsed("SYMM_SCRATCH=4G").scratch, 4ll << 30);
    T_EQ(parsed("SYMM_WIN_STRIDE=2T").win_stride, 2ll << 40);
    const char *must = "must be a size from 1M to 4G (suffixes K, M, G, T)";
    static const char *const bad[] = {"1K",  "5G",  "M",         "1MB",
                                      "1 M", "-1M", "+1M",       "1.5M",
                                      "1P",  "1@",  "16777216T", "99999999999999999999999",
                                      "1`"};
    char entry[64], text[128];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(entry, sizeof entry, "SYMM_SCRATCH=%s", bad[i]);
        snprintf(text, sizeof text, "%s: %s", entry, must);
        refused(entry, text);
    }
}

static void enums_ignore_case(void) {
    T_EQ(parsed("SYMM_BACKEND=host").backend, 1);
    T_EQ(parsed("SYMM_BACKEND=CUDA").backend, 2);
    T_EQ(parsed("SYMM_DEBUG=info").debug, SYMM_LOG_INFO);
    T_EQ(parsed("SYMM_DEBUG=NONE").debug, SYMM_LOG_NONE);
    T_EQ(parsed("SYMM_DEBUG=Trace").debug, SYMM_LOG_TRACE);
    refused("SYMM_BACKEND=foo", "SYMM_BACKEND=foo: must be one of auto, host, cuda");
    refused("SYMM_BACKEND=hos", "SYMM_BACKEND=hos: must be one of auto, host, cuda");
    refused("SYMM_BACKEND=host|cuda", "SYMM_BACKEND=host|cuda: must be one of auto, host, cuda");
    refused("SYMM_DEBUG=2", "SYMM_DEBUG=2: must be one of NONE, VERSION, WARN, INFO, TRACE");
}

static void texts(void) {
    char entry[400] = "SYMM_ALGO=", want[300];
    T_STREQ(parsed("SYMM_ALGO=a,b=c").algo, "a,b=c");
    memset(entry + 10, 'k', 255);
    memset(want, 'k', 255);
    want[255] = 0;
    T_STREQ(parsed(entry).algo, want);
    entry[265] = 'k';
    snprintf(want, sizeof want, "SYMM_ALGO=%.64s...: must be at most 255 characters", entry + 10);
    refused(entry, want);
}

static void the_first_of_two_counts(void) {
    char *env[] = {(char *)"SYMM_CTAS=3", (char *)"SYMM_CTAS=4", NULL}, *none[] = {NULL};
    symm_params p;
    T_OK(symm_param_parse(env, &p));
    T_EQ(p.ctas, 3);
    T_OK(symm_param_parse(none, &p));
    T_EQ(p.ctas, 0);
}

static void parsing_passes_over_strangers(void) {
    symm_params p = parsed("PATH=/bin"), q;
    static const char *const entries[] = {"SYMM_NO_SUCH=1",
                                          "SYMM_CTA=5",
                                          "SYMM_CTASS=5",
                                          "SYMM_CTAS",
                                          "XSYMM_CTAS=5",
                                          "symm_ctas=5",
                                          "=",
                                          ""};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        q = parsed(entries[i]);
        T_CHECKF(memcmp(&p, &q, sizeof p) == 0, "\"%s\" changed a parameter", entries[i]);
    }
    T_EQ(SYMM_STAT_GET(log_warnings), 0);
}

/* ---- loading ------------------------------------------------------------------------------ */

static void loading_reads_the_environment_anew(void) {
    symm_params p;
    setenv("SYMM_CTAS", "5", 1);
    T_OK(symm_param_load(&p));
    T_EQ(p.ctas, 5);
    setenv("SYMM_CTAS", "6", 1);
    T_OK(symm_param_load(&p));
    T_EQ(p.ctas, 6);
    clearenv();
    T_OK(symm_param_load(&p));
    T_EQ(p.ctas, 0);
}

static void a_bad_value_is_logged_once_and_changes_nothing(void) {
    symm_params p;
    T_EXPECT_WARNINGS();
    memset(&p, 0xee, sizeof p);
    symm_params before = p;
    setenv("SYMM_DEBUG", "TRACE", 1);
    setenv("SYMM_DETERMINISTIC", "yes", 1);
    T_ERR(symm_param_load(&p), symmInvalidArgument);
    T_STREQ(symmGetLastError(NULL), "SYMM_DETERMINISTIC=yes: must be a whole number from 0 to 1");
    T_EQ(SYMM_STAT_GET(log_warnings), 1);
    T_EQ(symm_log_level, SYMM_LOG_TRACE); /* that one is good, and holds for this very message */
    T_EQ(memcmp(&p, &before, sizeof p), 0);
}

static char *captured(void (*fn)(void)) {
    static char text[8192];
    char path[] = "/tmp/symm-unit-XXXXXX";
    int fd = mkstemp(path), old = dup(STDERR_FILENO);
    T_CHECK(fd >= 0 && old >= 0);
    unlink(path);
    dup2(fd, STDERR_FILENO);
    fn();
    dup2(old, STDERR_FILENO);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    close(fd);
    close(old);
    return text;
}

/* ---- the first message, before anything has loaded the parameters ---- */

static void refused_by_the_first_call(void) {
    T_ERR(symmMemAlloc(NULL, 1), symmInvalidArgument);
}

static void load_refused(void) {
    symm_params p;
    T_ERR(symm_param_load(&p), symmInvalidArgument);
}

static void NONE_holds_for_the_first_message(void) {
    setenv("SYMM_DEBUG", "NONE", 1);
    T_STREQ(captured(refused_by_the_first_call), "");
    T_MSG(symmGetLastError(NULL), "ptr");
    T_EQ(SYMM_STAT_GET(log_warnings), 0);
}

static void NONE_holds_where_another_variable_is_bad(void) {
    setenv("SYMM_DEBUG", "NONE", 1);
    setenv("SYMM_CTAS", "many", 1);
    T_STREQ(captured(load_refused), "");
    T_MSG(symmGetLastError(NULL), "SYMM_CTAS=many");
    T_EQ(SYMM_STAT_GET(log_warnings), 0);
}

static void a_bad_level_is_said_at_the_default_one(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_DEBUG", "QUIET", 1);
    T_MSG(captured(load_refused), "SYMM_DEBUG=QUIET: must be one of");
    T_EQ(symm_log_level, SYMM_LOG_WARN);
}

static void the_first_message_goes_to_the_file(void) {
    char path[] = "/tmp/symm-unit-XXXXXX", text[512] = "";
    T_EXPECT_WARNINGS();
    int fd = mkstemp(path);
    T_CHECK(fd >= 0);
    setenv("SYMM_DEBUG_FILE", path, 1);
    T_STREQ(captured(refused_by_the_first_call), "");
    T_CHECK(read(fd, text, sizeof text - 1) > 0);
    T_MSG(text, "symm WARN");
    symm_log_setup(SYMM_LOG_WARN, "");
    close(fd);
    unlink(path);
}

static void load_twice(void) {
    symm_params p;
    T_OK(symm_param_load(&p));
    T_OK(symm_param_load(&p));
}

static void an_unknown_name_is_warned_about_once(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_CTSA", "4", 1);
    setenv("SYMM_SOMETHING_ELSE", "", 1);
    setenv("SYMMETRY", "1", 1);
    const char *text = captured(load_twice);
    T_EQ(SYMM_STAT_GET(log_warnings), 2);
    T_MSG(text, "unknown variable SYMM_CTSA is ignored; did you mean SYMM_CTAS?\n");
    T_MSG(text, "unknown variable SYMM_SOMETHING_ELSE is ignored\n");
    setenv("SYMM_THIRD", "", 1);
    T_MSG(captured(load_twice), "unknown variable SYMM_THIRD is ignored\n");
    T_EQ(SYMM_STAT_GET(log_warnings), 3);
}

static void loading_sets_level_and_file(void) {
    char path[] = "/tmp/symm-unit-XXXXXX", text[512] = "";
    symm_params p;
    int fd = mkstemp(path);
    T_CHECK(fd >= 0);
    setenv("SYMM_DEBUG", "info", 1);
    setenv("SYMM_DEBUG_FILE", path, 1);
    T_OK(symm_param_load(&p));
    T_EQ(symm_log_level, SYMM_LOG_INFO);
    SYMM_INFO("to the file");
    unsetenv("SYMM_DEBUG_FILE");
    unsetenv("SYMM_DEBUG");
    T_OK(symm_param_load(&p));
    T_EQ(symm_log_level, SYMM_LOG_WARN);
    T_CHECK(read(fd, text, sizeof text - 1) > 0);
    T_MSG(text, "symm VERSION version ");
    T_MSG(text, "symm INFO to the file\n");
    close(fd);
    unlink(path);
}

static void load_often(int rank, int n, void *arg) {
    (void)rank;
    (void)n;
    (void)arg;
    for (int i = 0; i < 200; i++) {
        symm_params p;
        T_OK(symm_param_load(&p));
        T_EQ(p.ctas, 9);
    }
}

static void threads_may_load_at_once(void) {
    T_EXPECT_WARNINGS();
    setenv("SYMM_CTAS", "9", 1);
    setenv("SYMM_UNHEARD_OF", "9", 1);
    T_THREADS(4, load_often, NULL);
    T_EQ(SYMM_STAT_GET(log_warnings), 1);
}

static void sym_fail_belongs_to_test_builds(void) {
    symm_params p;
    setenv("SYMM_FAIL", "vmm_map:error", 1);
#ifndef SYMM_TESTING
    T_EXPECT_WARNINGS();
    T_MSG(captured(load_twice), "unknown variable SYMM_FAIL is ignored");
    T_OK(symm_param_load(&p));
    T_STREQ(p.fail, "");
#else
    T_OK(symm_param_load(&p));
    T_STREQ(p.fail, "vmm_map:error");
#endif
}

/* ---- showing and comparing ---------------------------------------------------------------- */

typedef struct {
    int rows;
    char text[8192];
} listing_t;

static void add_row(void *arg, const char *var, const char *value, const char *def,
                    const char *allowed, const char *help) {
    listing_t *l = arg;
    size_t len = strlen(l->text);
    T_CHECK(help[0] && allowed[0]);
    snprintf(l->text + len, sizeof l->text - len, "%s=%s (%s; %s)\n", var, value, def, allowed);
    l->rows++;
}

enum {
#define SYMM_PARAM_INT(field, var, def, min, max, help)  row_##field,
#define SYMM_PARAM_SIZE(field, var, def, min, max, help) row_##field,
#define SYMM_PARAM_ENUM(field, var, def, names, help)    row_##field,
#define SYMM_PARAM_STR(field, var, help)                 row_##field,
#include "base/params.def"
#undef SYMM_PARAM_INT
#undef SYMM_PARAM_SIZE
#undef SYMM_PARAM_ENUM
#undef SYMM_PARAM_STR
    ROWS
};

static void each_lists_every_parameter(void) {
    static listing_t l;
    char *env[] = {(char *)"SYMM_CTAS=3",          (char *)"SYMM_SCRATCH=3M",
                   (char *)"SYMM_BACKEND=HOST",    (char *)"SYMM_ALGO=x,y",
                   (char *)"SYMM_WIN_STRIDE=1025", NULL};
    symm_params p;
    T_OK(symm_param_parse(env, &p));
    symm_param_each(&p, add_row, &l);
    T_MSG(l.text, "SYMM_CTAS=3 (0; 0 to 256)\n");
    T_MSG(l.text, "SYMM_SCRATCH=3M (32M; 1M to 4G)\n");
    T_MSG(l.text, "SYMM_BACKEND=host (auto; auto, host, cuda)\n");
    T_MSG(l.text, "SYMM_ALGO=x,y (; text)\n");
    T_MSG(l.text, "SYMM_WIN_STRIDE=1025 (0; 0 to 16T)\n");
    T_MSG(l.text, "SYMM_SPIN=-1 (-1; -1 to 1000000)\n");
#ifdef SYMM_TESTING
    T_EQ(l.rows, ROWS);
    T_MSG(l.text, "SYMM_FAIL=");
#else
    T_EQ(l.rows, ROWS - 1);
    T_CHECK(!strstr(l.text, "SYMM_FAIL"));
#endif
}

/* The variable in which ranks differ, of which each has one of these; "": none. */
static const char *differs(const char *one, const char *other) {
    const symm_params p = parsed(one), q = parsed(other);
    const symm_param_agreed a = symm_param_to_agree(&p), b = symm_param_to_agree(&q);
    const char *var = symm_param_differs(&a, &b);
    return var ? var : "";
}

static void what_ranks_must_share_is_named(void) {
    static const char *const shared[] = {
        "PATH=/",           "SYMM_CTAS=3",        "SYMM_CTAS=4",        "SYMM_THREADS=3",
        "SYMM_THREADS=64",  "SYMM_ALGO=a",        "SYMM_ALGO=b",        "SYMM_DETERMINISTIC=1",
        "SYMM_SCRATCH=16M", "SYMM_MULTICAST=1",   "SYMM_WIN_STRIDE=1G", "SYMM_BACKEND=host",
        "SYMM_RELAY=lines", "SYMM_RELAY=staging", "SYMM_CTA_BUDGET=9",  "SYMM_SIDE_BY_SIDE=4"};
    static const char *const own[] = {"SYMM_DEBUG=INFO",  "SYMM_DEBUG_FILE=x",     "SYMM_SPIN=5",
                                      "SYMM_TIMEOUT=7",   "SYMM_SOCKET_IFNAME=lo", "SYMM_CTAS=0",
                                      "SYMM_HUGEPAGES=0", "SYMM_RELAY=auto"};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        for (size_t k = 0; k < i; k++) {
            const char *var = differs(shared[i], shared[k]);
            const size_t len = strlen(var);
            T_CHECKF(len && (!strncmp(shared[i], var, len) || !strncmp(shared[k], var, len)),
                     "%s, %s: %s", shared[i], shared[k], var);
            if (!k) T_CHECKF(shared[i][len] == '=', "%s: %s", shared[i], var);
        }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) T_STREQ(differs(own[i], "PATH=/"), "");
}

/* NCCL's variable counts where symm's own says nothing. */
static void interfaces_may_be_those_of_nccl(void) {
    char *const both[] = {"NCCL_SOCKET_IFNAME=^lo,docker", "SYMM_SOCKET_IFNAME=eth", NULL};
    char *const empty[] = {"NCCL_SOCKET_IFNAME==ib0", "SYMM_SOCKET_IFNAME=", NULL};
    symm_params p;
    T_OK(symm_param_parse(both, &p));
    T_STREQ(p.ifname, "eth");
    T_OK(symm_param_parse(empty, &p));
    T_STREQ(p.ifname, "=ib0");
    p = parsed("NCCL_SOCKET_IFNAME=^lo,docker");
    T_STREQ(p.ifname, "^lo,docker");
    T_STREQ(p.nccl_lib, "");
    T_STREQ(differs("NCCL_SOCKET_IFNAME=lo", "PATH=/"), "");
}

T_MAIN(T(defaults_are_the_table_s), T(empty_values_are_defaults), T(every_range_is_kept),
       T(whole_numbers), T(sizes), T(enums_ignore_case), T(texts), T(the_first_of_two_counts),
       T(parsing_passes_over_strangers), T(loading_reads_the_environment_anew),
       T(a_bad_value_is_logged_once_and_changes_nothing), T(NONE_holds_for_the_first_message),
       T(NONE_holds_where_another_variable_is_bad), T(a_bad_level_is_said_at_the_default_one),
       T(the_first_message_goes_to_the_file), T(an_unknown_name_is_warned_about_once),
       T(loading_sets_level_and_file), T(threads_may_load_at_once),
       T(sym_fail_belongs_to_test_builds), T(each_lists_every_parameter),
       T(what_ranks_must_share_is_named), T(interfaces_may_be_those_of_nccl))
