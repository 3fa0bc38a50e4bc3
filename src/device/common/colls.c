/* colls.c - the rows of coll.def. Constant; any thread. */
#include "colls.h"

enum {
    ARGS_NONE = 0,
    ARGS_DATA = 0,
    ARGS_OP = SYMM_COLL_REDUCES,
    ARGS_ROOT = SYMM_COLL_ROOT,
    ARGS_OP_ROOT = SYMM_COLL_REDUCES | SYMM_COLL_ROOT,
    ARGS_OUT_V = 0,
    ARGS_IN_V_OP = SYMM_COLL_REDUCES,
    ARGS_BOTH_V = 0
};

const symm_coll_row symm_colls[symmNumColls + 1] = {
#define SYMM_COLL(id, text, args, ...) \
    [symmColl##id] = {.name = text, .call = "symm" #id, .flags = ARGS_##args, __VA_ARGS__},
#include "coll.def"
    [symmNumColls] = {.name = "?", .call = "?"},
};

enum {
#define SYMM_COLL(id, ...) ROW_##id,
#include "coll.def"
    ROWS
};
#define SYMM_COLL(id, ...) \
    _Static_assert((int)ROW_##id == (int)symmColl##id, "symm" #id ": in the order of symmColl_t");
#include "coll.def"
_Static_assert((int)ROWS == (int)symmNumColls, "coll.def has a row for each collective of symm.h");

const char *symm_coll_name(int coll) {
    return symm_colls[(unsigned)coll < symmNumColls ? coll : symmNumColls].name;
}
