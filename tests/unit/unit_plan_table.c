/* unit_plan_table.c - a file of plan rows: what is read, what is refused and how it is said, and
 * that plans go by it. One thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/coll/plan_table.h"
#include "t.h"

static const int16_t free_choice[symmNumColls] = SYMM_FORCED_NONE;
static const symm_plan_place host2 = {0, 2, NULL}, host4 = {0, 4, NULL},
                             h200 = {1, 2, "NVIDIA H200"}, other = {1, 2, "NVIDIA B200"},
                             none = {1, 2, NULL};

static const char table[] = "# of two machines\n"
                            "[host ranks=2 cores=enough]\n"
                            "  all_reduce_push_packet  upto=9000 # no comment: a word\n";

static const char good[] = "# of two machines\r\n"
                           "\n"
                           "[host ranks=2 cores=enough]\n"
                           "all_reduce_push_packet\tupto=4000  \n"
                           "all_reduce_load_store\n"
                           "[host ranks=2 cores=few] \n"
                           "all_gather_load upto=18446744073709551614\n"
                           "[gpu ranks=2 quarter=1 device=\"NVIDIA H200\"]\n"
                           "all_reduce_ll upto=98304 warps=2 ctas=32\n"
                           "all_reduce_direct warps=8 ctas=64\n"
                           "[gpu ranks=2]\n"
                           "broadcast_ll upto=512 warps=1 ctas=4\n"
                           "all_gatherv_direct pairs=64 warps=8 ctas=16\n"
                           "[gpu ranks=2 quarter=0]\n"
                           "scatter_ll upto=512 warps=1 ctas=4";

static symm_plan_rows *rows_at(const symm_plan_place *at) {
    symm_plan_rows *rows = NULL;
    T_OK(symm_plan_table_parse(good, "good", at, &rows));
    return rows;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void sections_hold_where_they_say(void) {
    symm_plan_rows *r = rows_at(&host2);
    T_EQ(r->n, 3);
    T_EQ(r->row[0].kernel, SYMM_KERNEL_AR_PUSH);
    T_EQ(r->row[0].upto, 4000);
    T_EQ(r->row[0].cores, SYMM_CORES_ENOUGH);
    T_EQ(r->row[1].upto, 0);
    T_EQ(r->row[2].cores, SYMM_CORES_FEW);
    T_CHECK(r->row[2].upto == UINT64_MAX - 1);
    free(r);
    T_CHECK(rows_at(&host4) == NULL);
    r = rows_at(&h200);
    T_EQ(r->n, 5);
    T_CHECK(r->row[0].quarter == 1 && r->row[0].warps == 2 && r->row[0].ctas == 32);
    T_CHECK(r->row[2].quarter == -1 && r->row[3].pairs == 64 && r->row[4].quarter == 0);
    free(r);
    r = rows_at(&other); /* without a device a section is every GPU's */
    T_EQ(r->n, 3);
    free(r);
    r = rows_at(&none);
    T_EQ(r->n, 3);
    free(r);
}

static void a_line_is_read_as_it_was_written(void) {
    const symm_plan_place *places[] = {&host2, &h200};
    for (int p = 0; p < 2; p++) {
        symm_plan_rows *a = rows_at(places[p]), *b = NULL;
        char text[4096] = "", line[200];
        for (int i = 0; i < a->n; i++) {
            symm_plan_table_section(places[p], &a->row[i], line, sizeof line);
            strcat(strcat(text, line), "\n");
            symm_plan_table_line(&a->row[i], line, sizeof line);
            strcat(strcat(text, line), "\n");
        }
        T_OK(symm_plan_table_parse(text, "again", places[p], &b));
        T_CHECK(b && b->n == a->n && !memcmp(a, b, sizeof *a + (size_t)a->n * sizeof a->row[0]));
        T_CHECK(symm_plan_table_hash(a) == symm_plan_table_hash(b));
        b->row[0].upto++;
        T_CHECK(symm_plan_table_hash(a) != symm_plan_table_hash(b));
        free(b);
        b = symm_plan_rows_copy(a);
        T_CHECK(b && symm_plan_table_hash(a) == symm_plan_table_hash(b));
        free(b);
        free(a);
    }
    T_EQ(symm_plan_table_hash(NULL), 0);
}

typedef struct {
    const char *text, *word, *says;
} fault;

static const fault faults[] = {
    {"all_reduce_load_store\n", "line 1: 'all_reduce_load_store'", "before the first section"},
    {"\n[host ranks=2\nx", "line 2: '[host ranks=2'", "not closed"},
    {"[", "line 1: '['", "not closed"},
    {"[]", "line 1: ''", "not closed"},
    {"[cpu ranks=2]", "'cpu'", "backend host or gpu"},
    {"[host]", "'host'", "says ranks="},
    {"[host ranks=0]", "'ranks'", "whole number from 1 to"},
    {"[host ranks=-2]", "'ranks'", "whole number from 1 to"},
    {"[host ranks=2x]", "'ranks'", "whole number from 1 to"},
    {"[host ranks=99999999999999999999]", "'ranks'", "whole number from 1 to"},
    {"[host ranks=2 cores=some]", "'cores'", "few or enough"},
    {"[host ranks=2 quarter=1]", "'quarter'", "no such word of a section"},
    {"[gpu ranks=2 quarter=2]", "'quarter'", "whole number from 0 to 1"},
    {"[gpu ranks=2 device=\"NVIDIA]", "'device'", "not closed"},
    {"[host ranks=2]\nall_reduce_by_pigeon", "line 2: 'all_reduce_by_pigeon'", "no kernel"},
    {"[host ranks=2]\nall_reduce_ll", "'all_reduce_ll'", "not one of the section's backend"},
    {"[host ranks=2]\nall_reduce_load_store upto=0", "'upto'", "whole number from 1"},
    {"[host ranks=2]\nall_reduce_load_store upto=4K", "'upto'", "whole number from 1"},
    {"[host ranks=2]\nall_reduce_load_store size=4", "'size'", "no such word of a row"},
    {"[host ranks=2]\nall_reduce_load_store upto", "'upto'", "whole number from 1"},
    {table, "line 3: '#'", "no such word of a row"}};

static void what_is_wrong_is_said_by_line(void) {
    T_EXPECT_WARNINGS();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        symm_plan_rows *rows = (void *)&rows;
        T_ERR(symm_plan_table_parse(faults[i].text, "a.table", &host2, &rows), symmInvalidArgument);
        T_CHECK(rows == NULL);
        T_MSG(symmGetLastError(NULL), "SYMM_PLAN_TABLE, line ");
        T_MSG(symmGetLastError(NULL), ", in a.table");
        T_MSG(symmGetLastError(NULL), faults[i].word);
        T_MSG(symmGetLastError(NULL), faults[i].says);
    }
    char longest[400];
    symm_plan_rows *rows;
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "[host ranks=2]\n", 15);
    longest[399] = 0;
    T_ERR(symm_plan_table_parse(longest, "a", &host2, &rows), symmInvalidArgument);
    T_ERR(symm_plan_table_parse("[gpu ranks=2]\nall_reduce_ll upto=5 ctas=4", "a", &h200, &rows),
          symmInvalidArgument);
    T_MSG(symmGetLastError(NULL), "says warps= and ctas=");
    /* Also where it does not hold. */
    T_ERR(symm_plan_table_parse("[gpu ranks=2]\nall_reduce_x", "a", &host2, &rows),
          symmInvalidArgument);
}

static void files(void) {
    char path[] = "/tmp/symm-table-XXXXXX";
    static char large[(1 << 20) + 2];
    symm_plan_rows *rows;
    const int fd = mkstemp(path);
    T_CHECK(fd >= 0);
    T_EQ(write(fd, good, sizeof good - 1), sizeof good - 1);
    T_OK(symm_plan_table_read(path, &host2, &rows));
    T_EQ(rows->n, 3);
    free(rows);
    T_EXPECT_WARNINGS();
    T_EQ(write(fd, "", 1), 1); /* a NUL: no text */
    T_ERR(symm_plan_table_read(path, &host2, &rows), symmSystemError);
    T_MSG(symmGetLastError(NULL), path);
    memset(large, '\n', sizeof large);
    T_EQ(pwrite(fd, large, sizeof large, 0), sizeof large);
    T_ERR(symm_plan_table_read(path, &host2, &rows), symmSystemError);
    T_MSG(symmGetLastError(NULL), "too large");
    T_EQ(ftruncate(fd, 0), 0);
    T_OK(symm_plan_table_read(path, &host2, &rows));
    T_CHECK(rows == NULL);
    close(fd);
    unlink(path);
    T_ERR(symm_plan_table_read(path, &host2, &rows), symmSystemError);
    T_MSG(symmGetLastError(NULL), "No such file");
    T_ERR(symm_plan_table_read("/tmp", &host2, &rows), symmSystemError);
    T_MSG(symmGetLastError(NULL), "Is a directory");
    T_EQ(mkfifo(path, 0600), 0); /* nobody writes into it */
    T_ERR(symm_plan_table_read(path, &host2, &rows), symmSystemError);
    unlink(path);
}

/* ---- planning -------------------------------------------------------------------------------- */

static symm_plan_env env_of(int gpu, const symm_plan_rows *rows) {
    symm_plan_env env = {
        .nranks = 2, .gpu = gpu, .sms = 132, .quarter = gpu, .forced = free_choice, .rows = rows};
    env.scratch = (gpu ? symm_plan_gpu_scratch : symm_plan_scratch)(32 << 20, 2);
    return env;
}

static symm_plan plan_at(const symm_plan_env *env, symmColl_t coll, uint64_t bytes) {
    const symm_call call = {.coll = coll, .count = bytes, .type = symmUint8, .esize = 1};
    return symm_plan_make(env, &call);
}

static void the_host_plans_by_it(void) {
    symm_plan_rows *rows = rows_at(&host2);
    symm_plan_env env = env_of(0, rows);
    symm_plan p = plan_at(&env, symmCollAllReduce, 4000);
    T_EQ(p.kernel, SYMM_KERNEL_AR_PUSH); /* built in: up to 1024 */
    T_EQ(p.source, SYMM_PLAN_MEASURED);
    p = plan_at(&env, symmCollAllReduce, 4001);
    T_CHECK(p.kernel == SYMM_KERNEL_AR_ZEROCOPY && p.source == SYMM_PLAN_MEASURED);
    p = plan_at(&env, symmCollReduceScatter, 64); /* of which it has no row */
    T_CHECK(p.kernel == SYMM_KERNEL_RS_PUSH && p.source == SYMM_PLAN_SHIPPED);
    env.scratch = symm_plan_scratch(1 << 20, 2);
    env.scratch.host.packet_slot = 0; /* its kernel cannot run: the next row */
    T_EQ(plan_at(&env, symmCollAllReduce, 4000).kernel, SYMM_KERNEL_AR_ZEROCOPY);
    env = env_of(0, rows);
    env.oversubscribed = 1;
    T_EQ(plan_at(&env, symmCollAllReduce, 4000).source, SYMM_PLAN_SHIPPED);
    T_EQ(plan_at(&env, symmCollAllGather, 64).kernel, SYMM_KERNEL_AG_LOAD);
    int16_t forced[symmNumColls];
    T_OK(symm_plan_parse_algo("all_reduce_load_store", forced));
    env = env_of(0, rows);
    env.forced = forced;
    p = plan_at(&env, symmCollAllReduce, 8);
    T_CHECK(p.kernel == SYMM_KERNEL_AR_ZEROCOPY && p.source == SYMM_PLAN_FORCED);
    free(rows);
}

static void gpus_plan_by_it(void) {
    symm_plan_rows *rows = rows_at(&h200);
    symm_plan_env env = env_of(1, rows);
    symm_plan p = plan_at(&env, symmCollAllReduce, 98304);
    T_CHECK(p.kernel == SYMM_KERNEL_AR_LL && p.source == SYMM_PLAN_MEASURED);
    T_EQ(p.ctas, 32);
    p = plan_at(&env, symmCollAllReduce, 98305); /* built in: lines */
    T_CHECK(p.kernel == SYMM_KERNEL_AR_DIRECT && p.source == SYMM_PLAN_MEASURED);
    T_EQ(plan_at(&env, symmCollAllReduce, 1 << 30).ctas, 64);
    T_EQ(plan_at(&env, symmCollBroadcast, 512).source, SYMM_PLAN_MEASURED);
    T_EQ(plan_at(&env, symmCollScatter, 8).source, SYMM_PLAN_SHIPPED); /* a quarter */
    env.quarter = 0;
    T_EQ(plan_at(&env, symmCollScatter, 8).source, SYMM_PLAN_MEASURED);
    T_EQ(plan_at(&env, symmCollAllReduce, 98305).source, SYMM_PLAN_SHIPPED);
    p = plan_at(&env, symmCollBroadcast, 512);
    T_CHECK(p.kernel == SYMM_KERNEL_BC_LL && p.source == SYMM_PLAN_MEASURED);
    T_EQ(plan_at(&env, symmCollBroadcast, 513).source, SYMM_PLAN_SHIPPED);
    env.rows = NULL;
    env.nranks = 8;
    env.scratch = symm_plan_gpu_scratch(32 << 20, 8);
    T_EQ(plan_at(&env, symmCollAllReduce, 8).source, SYMM_PLAN_PREDICTED);
    T_EQ(plan_at(&env, symmCollAllGatherv, 0).source, SYMM_PLAN_PREDICTED);
    free(rows);
}

/* A part that is a packet must fit its place, whatever a row says. */
static void pairs_fit_a_packet(void) {
    static const char text[] = "[host ranks=2]\nall_gatherv_pairs pairs=4000000000\n"
                               "[gpu ranks=2]\nall_gatherv_direct pairs=4000000000 warps=8 ctas=16";
    for (int gpu = 0; gpu < 2; gpu++) {
        symm_plan_rows *rows = NULL;
        T_OK(symm_plan_table_parse(text, "text", gpu ? &h200 : &host2, &rows));
        const symm_plan_env env = env_of(gpu, rows);
        const symm_plan p = plan_at(&env, symmCollAllGatherv, 0);
        T_EQ(p.source, SYMM_PLAN_MEASURED);
        T_CHECK(p.pairs <= (gpu ? env.scratch.gpu.ll_slot / 2 : env.scratch.host.packet_slot - 64));
        free(rows);
    }
}

typedef struct {
    int n, kernel[8];
    uint64_t to[8];
} listed;

static void list_row(void *arg, const char *coll, uint64_t from, uint64_t to,
                     const symm_plan *most) {
    listed *l = arg;
    (void)from;
    if (strcmp(coll, "all_reduce") != 0) return;
    T_CHECK(l->n < 8);
    l->kernel[l->n] = most->kernel, l->to[l->n++] = to;
}

/* Also limits between two powers of two, and a kernel for no bytes alone. */
static void a_list_has_every_limit(void) {
    static const char text[] = "[host ranks=2]\nall_reduce_push_packet upto=1100\n"
                               "all_reduce_2shot_packet upto=1900\n"
                               "all_reduce_push_packet upto=4000\n";
    symm_plan_rows *rows = NULL;
    listed l = {0};
    T_OK(symm_plan_table_parse(text, "text", &host2, &rows));
    symm_plan_env env = env_of(0, rows);
    symm_plan_table(&env, list_row, &l);
    T_EQ(l.n, 4);
    T_CHECK(l.kernel[0] == SYMM_KERNEL_AR_PUSH && l.to[0] == 1100);
    T_CHECK(l.to[1] == 1900 && l.kernel[2] == SYMM_KERNEL_AR_PUSH && l.to[2] == 4000);
    T_CHECK(l.kernel[3] == SYMM_KERNEL_AR_ZEROCOPY && l.to[3] == UINT64_MAX);
    free(rows);
    l.n = 0;
    env = env_of(0, NULL);
    env.scratch.host.packet_slot = 0;
    symm_plan_table(&env, list_row, &l);
    T_EQ(l.n, 2);
    T_CHECK(l.kernel[0] == SYMM_KERNEL_AR_PUSH && l.to[0] == 0);
}

static void a_plan_says_where_it_comes_from(void) {
    static const char *const names[] = {"shipped", "predicted", "measured", "forced"};
    symm_plan_rows *rows = rows_at(&host2);
    const symm_plan_env env = env_of(0, rows);
    const symm_call call = {.coll = symmCollAllReduce, .count = 64, .type = symmUint8, .esize = 1};
    const symm_plan p = symm_plan_make(&env, &call);
    char text[400];
    symm_plan_reason(&env, &call, &p, text, sizeof text);
    T_MSG(text, "SYMM_PLAN_TABLE's choice for this size");
    for (int s = SYMM_PLAN_SHIPPED; s <= SYMM_PLAN_FORCED; s++)
        T_CHECK(!strcmp(symm_plan_source(s), names[s]));
    free(rows);
}

T_MAIN(T(sections_hold_where_they_say), T(a_line_is_read_as_it_was_written),
       T(what_is_wrong_is_said_by_line), T(files), T(the_host_plans_by_it), T(gpus_plan_by_it),
       T(pairs_fit_a_packet), T(a_list_has_every_limit), T(a_plan_says_where_it_comes_from))
