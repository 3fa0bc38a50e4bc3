/* plan_table.h - a file of plan rows (SYMM_PLAN_TABLE), as symm-tune writes it: what runs for a
 * call, before the rows of coll.def. Text, a line a row:
 *
 *   # a comment
 *   [host ranks=2 cores=few]
 *   all_reduce_push upto=1024
 *   all_reduce_zerocopy
 *   [gpu ranks=4 quarter=1 device="NVIDIA H200"]
 *   all_reduce_ll upto=98304 warps=4 ctas=132
 *
 * A section holds for communicators of so many ranks, of a backend. cores: host backend, `few`
 * where there are more ranks than cores, else `enough`. quarter: GPUs, 1 where a CTA has a quarter
 * of a multiprocessor at most, 0 where it has more. device: the GPU's name as its driver has it.
 * Without one of these words a section holds whatever it is.
 * A row: a kernel, as symm-info lists them; upto: bytes of `count` elements, without: any; of GPUs
 * warps and ctas, as coll.def has them; pairs: calls with a count per rank, up to what a packet's
 * place holds. Of a section the first
 * row that fits a call wins. Where none does, coll.def decides.
 *
 * What runs depends on the rows, so ranks whose rows differ make no communicator. Any thread; no
 * lock. */
#ifndef SYMM_PLAN_TABLE_H_
#define SYMM_PLAN_TABLE_H_

#include "plan.h"

/* Where rows are to hold. device: NULL on the host backend. */
typedef struct {
    int gpu, nranks;
    const char *device;
} symm_plan_place;

/* The rows of the file that hold there, in its order; *rows: the caller's to free, NULL: none does.
 * Errors: symmInvalidArgument (the text names file, line and word), symmSystemError (it cannot be
 * read), symmOutOfMemory. */
symmResult_t symm_plan_table_read(const char *path, const symm_plan_place *at,
                                  symm_plan_rows **rows);
/* The same of a text, which errors call `name`. */
symmResult_t symm_plan_table_parse(const char *text, const char *name, const symm_plan_place *at,
                                   symm_plan_rows **rows);
/* Equal for equal rows; of NULL 0. */
uint64_t symm_plan_table_hash(const symm_plan_rows *rows);
/* A copy, the caller's to free; NULL: no memory. */
symm_plan_rows *symm_plan_rows_copy(const symm_plan_rows *rows);

/* The line of a section, and that of a row, as they are read; without the end of the line. The
 * section's cores or quarter are those of `row`. */
void symm_plan_table_section(const symm_plan_place *at, const symm_plan_row *row, char *text,
                             size_t cap);
void symm_plan_table_line(const symm_plan_row *row, char *text, size_t cap);

#endif
