/* unit_tune.c - from times to rows: symm-tune's choice. Pure; one thread. */
#include <string.h>

#include "../../tools/tune.h"
#include "t.h"

static const symm_kernel_id SMALL = SYMM_KERNEL_AR_PUSH, LARGE = SYMM_KERNEL_AR_ZEROCOPY;

static tune_candidate taking(symm_kernel_id kernel, const double *us, int n) {
    tune_candidate c = {.row = {.kernel = kernel}, .n = n};
    memcpy(c.us, us, (size_t)n * sizeof *us);
    return c;
}

/* A machine is three times as slow from the fourth pass on: medians would be from one state or the
 * other. */
static void what_passes_share_does_not_count(void) {
    const double first[] = {1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0},
                 second[] = {1.1, 1.1, 1.1, 1.1, 3.3, 3.3, 3.3};
    const tune_candidate a = taking(LARGE, first, 7), b = taking(SMALL, second, 7);
    const tune_option o = tune_option_of(&b, &a), own = tune_option_of(&a, &a);
    T_CHECK(tune_median(&b) < tune_median(&a));
    T_CHECKF(o.ratio > 1.09 && o.ratio < 1.11, "ratio %f", o.ratio);
    T_CHECK(own.ratio == 1 && own.us == 3.0 && o.row.kernel == SMALL);
}

/* Sizes of powers of four from 256 bytes; what runs without a table is LARGE. ratio: SMALL's. */
static int made_of(const double *ratio, int n, symm_plan_row *rows, tune_size *size) {
    for (int i = 0; i < n; i++) {
        const uint64_t bytes = 256ull << 2 * i;
        size[i] = (tune_size){.bytes = bytes, .input = bytes, .n = 2};
        size[i].option[0] = (tune_option){{.kernel = LARGE}, 1, 1};
        size[i].option[1] = (tune_option){{.kernel = SMALL}, ratio[i], ratio[i]};
    }
    tune_choose(size, n);
    return tune_rows(size, n, rows);
}

static void a_limit_lies_between_two_sizes(void) {
    const double ratio[] = {0.5, 0.6, 0.8, 1.3, 2.0, 4.0};
    symm_plan_row rows[6];
    tune_size size[6];
    T_EQ(made_of(ratio, 6, rows, size), 2);
    T_EQ(rows[0].kernel, SMALL);
    T_EQ(rows[0].upto, 8192); /* between 4096 and 16384 */
    T_EQ(rows[1].kernel, LARGE);
    T_EQ(rows[1].upto, 256 << 10); /* the largest: nobody knows what is behind it */
}

static void what_runs_without_a_table_stays_if_little_is_gained(void) {
    const double little[] = {0.96, 0.97, 1.0, 0.96, 1.1, 0.97},
                 more[] = {0.9, 0.9, 0.9, 0.9, 0.9, 1};
    symm_plan_row rows[6];
    tune_size size[6];
    T_EQ(made_of(little, 6, rows, size), 1);
    T_EQ(rows[0].kernel, LARGE);
    T_EQ(made_of(more, 6, rows, size), 1);
    T_EQ(rows[0].kernel, SMALL);
    for (int i = 0; i < 6; i++) T_EQ(size[i].chosen, 1);
}

/* One size that was measured badly makes no row of its own; one that differs by much does. */
static void one_size_changes_little(void) {
    const double slip[] = {0.5, 0.5, 1.08, 0.5, 1.5, 1.5}, hole[] = {0.5, 0.5, 4.0, 0.5, 1.5, 1.5};
    symm_plan_row rows[6];
    tune_size size[6];
    T_EQ(made_of(slip, 6, rows, size), 2);
    T_EQ(rows[0].upto, 32 << 10);
    T_EQ(made_of(hole, 6, rows, size), 4);
    T_EQ(rows[1].kernel, LARGE);
}

/* The same kernel on another grid is another row. */
static void grids_are_rows(void) {
    tune_size size[2] = {{.bytes = 1024, .input = 512, .n = 1},
                         {.bytes = 4096, .input = 2048, .n = 1}};
    symm_plan_row rows[2];
    for (int i = 0; i < 2; i++)
        size[i].option[0] = (tune_option){{.kernel = SMALL, .warps = 4, .ctas = 32 << i}, 1, 1};
    tune_choose(size, 2);
    T_EQ(tune_rows(size, 2, rows), 2);
    T_EQ(rows[0].ctas, 32);
    T_EQ(rows[0].upto, 1024); /* of a rank's input */
    T_EQ(rows[1].ctas, 64);
    T_EQ(tune_rows(size, 0, rows), 0);
}

T_MAIN(T(what_passes_share_does_not_count), T(a_limit_lies_between_two_sizes),
       T(what_runs_without_a_table_stays_if_little_is_gained), T(one_size_changes_little),
       T(grids_are_rows))
