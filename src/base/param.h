/* param.h - the parsed SYMM_ variables. symm_param_load is called at every communicator creation
 * (any thread, one lock) and reads the environment anew; readers take a copy into their
 * communicator. */
#ifndef SYMM_PARAM_H_
#define SYMM_PARAM_H_

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct {
#define SYMM_PARAM_INT(field, var, def, min, max, help)  int64_t field;
#define SYMM_PARAM_SIZE(field, var, def, min, max, help) uint64_t field;
#define SYMM_PARAM_ENUM(field, var, def, names, help)    int field;
#define SYMM_PARAM_STR(field, var, help)                 char field[256];
#include "params.def"
#undef SYMM_PARAM_INT
#undef SYMM_PARAM_SIZE
#undef SYMM_PARAM_ENUM
#undef SYMM_PARAM_STR
} symm_params;

/* Parses the environment into *out. A bad value: symmInvalidArgument naming variable, value and
 * what is allowed
 * (*out unchanged). An unknown SYMM_ name: one warning per name and process. Sets log level and
 * file, also where another variable is bad. */
SYMM_API symmResult_t symm_param_load(symm_params *out);
/* Behind symmSetBackend: from now on load and parse give this backend, whatever SYMM_BACKEND is. */
void symm_param_set_backend(int backend);
/* NULL if multicast windows are asked for (SYMM_MULTICAST=1) and not forbidden
 * (NCCL_NVLS_ENABLE=0), else which of the two. */
SYMM_API const char *symm_param_no_multicast(const symm_params *p);
/* As load, but from `env` ("NAME=value" strings, NULL-terminated; of two with one name the first
 * counts, as in getenv; an empty value is the default) and without side effects: unknown names are
 * passed over, and of a bad value nothing is left but the calling thread's error text. But for what
 * symmSetBackend said, a function of env alone: for tests. */
symmResult_t symm_param_parse(char *const *env, symm_params *out);
/* Calls row(arg, variable, current value as text, default as text, allowed as text, help) for each
 * parameter. */
void symm_param_each(const symm_params *p,
                     void (*row)(void *arg, const char *var, const char *value, const char *def,
                                 const char *allowed, const char *help),
                     void *arg);
/* The parameters that decide which kernel runs or how memory is laid out must be equal on all
 * ranks. This is what a rank tells the others of its own. */
typedef struct {
    uint64_t word[11];
} symm_param_agreed;
symm_param_agreed symm_param_to_agree(const symm_params *p);
/* The first variable in which two ranks differ; NULL: there is none. */
const char *symm_param_differs(const symm_param_agreed *a, const symm_param_agreed *b);

/* ---- param_rows.c, for param.c and log.c: one row per variable, values as text and back ---- */

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
