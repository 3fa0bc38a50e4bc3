/* param_rows.h - one row per SYMM_ variable, and their values as text and back. Private to param.c
 * and log.c. Any thread; no lock. */
#ifndef SYMM_PARAM_ROWS_H_
#define SYMM_PARAM_ROWS_H_

#include <stddef.h>

#include "param.h"

enum { SYMM_PARAM_IS_INT, SYMM_PARAM_IS_SIZE, SYMM_PARAM_IS_ENUM, SYMM_PARAM_IS_STR };
enum { SYMM_PARAM_STR_BYTES = 256, SYMM_PARAM_ALLOWED_BYTES = 256 };

typedef struct {
    const char *var, *help, *names; /* names: of an enum, separated by | */
    size_t offset;                  /* in symm_params */
    int64_t def, min, max;
    int kind;
} symm_param_row;

extern const symm_param_row symm_param_rows[];
extern const int symm_param_row_count;

/* SYMM_FAIL is a variable of test builds only. Elsewhere it is an unknown name like any other. */
int symm_param_is_live(const symm_param_row *row);
/* A number's value as text. What is allowed, as text. */
void symm_param_number_text(const symm_param_row *row, int64_t v, char *out, size_t cap);
void symm_param_allowed_text(const symm_param_row *row, char *out, size_t cap);
/* The value in `s`, of a row of any kind but text, whatever its range. -1: it is none. */
int symm_param_read(const symm_param_row *row, const char *s, int64_t *out);
/* The environment as an array that ends with NULL. A variable's value there; "" if it is not set.
 */
char *const *symm_param_environment(void);
const char *symm_param_find(char *const *env, const char *var);
/* What the environment says about the log: its level and its file, the defaults where that is bad.
 */
void symm_param_of_log(int *level, const char **file);

#endif
