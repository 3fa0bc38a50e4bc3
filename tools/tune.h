/* tune.h - symm-tune: what its files share. It measures, of each collective and size, the kernels
 * that can run it (on GPUs with several grids), and writes which was the fastest as a table for
 * SYMM_PLAN_TABLE. Every rank runs the same code, measures with symm-perf's parts, and comes to the
 * same numbers and so to the same choices. No lock. */
#ifndef TUNE_H_
#define TUNE_H_

#include "host/coll/plan_table.h"
#include "perf.h"

typedef struct {
    const char *out; /* file of the table; NULL: the screen */
    int seconds;     /* that it may take */
    uint64_t min_bytes, max_bytes;
    int colls[symmNumColls]; /* 1: asked for */
    int registered;          /* as symm-perf's -R */
    int threads, gpus;       /* as symm-perf's -t and -g */
    int help;
} tune_config;

/* ---- choosing (tune_choose.c): pure ---- */

enum { TUNE_SAMPLES = 16, TUNE_OPTIONS = 6, TUNE_SIZES = 48 };

typedef struct { /* what may run a call */
    symm_plan_row row;
    double us[TUNE_SAMPLES]; /* of a call, pass by pass */
    int n;
} tune_candidate;

typedef struct {
    symm_plan_row row;
    double us;    /* the median */
    double ratio; /* to what runs without a table: the median of what both took in the same pass */
} tune_option;

typedef struct {           /* a size */
    uint64_t bytes, input; /* as the table of sizes has it; of `count` elements, as rows do */
    int n, chosen;
    tune_option option[TUNE_OPTIONS]; /* the first one runs without a table */
} tune_size;

double tune_median(const tune_candidate *c);
/* A candidate as an option; first: what runs without a table, timed in the same passes. A machine
 * that is in another state every now and then is in the same one for both. */
tune_option tune_option_of(const tune_candidate *c, const tune_candidate *first);
/* Fills `chosen` of n sizes in rising order: the fastest, but without changes from size to size
 * that gain less than measurements vary. */
void tune_choose(tune_size *size, int n);
/* Rows that choose so: one for each run of equal ones. A limit lies in the middle between two
 * sizes, by their ratio; behind the last size nothing is chosen. How many; at most n. */
int tune_rows(const tune_size *size, int n, symm_plan_row *out);

/* ---- measuring (tune_measure.c) ---- */

typedef struct {
    const tune_config *cfg;
    perf_rank rank;
    perf_config perf; /* of the collective that is measured */
    symm_plan_env env;
    symm_plan_rows *one; /* a list of one row */
    double began_us;     /* when it began */
    double done, todo;   /* sizes that were measured; all of them */
    int left;            /* sizes that the time was too short for */
    const char *device;  /* GPUs: the name of the device */
    FILE *log;           /* rank 0: where the table of sizes goes */
} tune_rank;

/* All ranks together. How many sizes were measured. */
int tune_coll(tune_rank *t, symmColl_t coll, tune_size *out);
/* What it measures of a collective of at least some bytes with one count for all ranks. */
int tune_has(symmColl_t coll);
int tune_sizes(const tune_config *cfg);

#endif
