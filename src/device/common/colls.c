/* colls.c - the rows of coll.def. Constant; any thread. */
#include "colls.h"

const symm_coll_row symm_colls[symmNumColls + 1] = {
#define SYMM_COLL(id, name, in, out, hears, flags) \
    [symmColl##id] = {name, "symm" #id, in, out, hears, flags},
#include "coll.def"
#undef SYMM_COLL
    [symmNumColls] = {"?", "?", SYMM_NONE, SYMM_NONE, SYMM_HEARS_NOT, 0},
};

enum {
#define SYMM_COLL(id, name, in, out, hears, flags) ROW_##id,
#include "coll.def"
#undef SYMM_COLL
    ROWS
};
_Static_assert((int)ROWS == (int)symmNumColls, "coll.def has a row for each collective of symm.h");

const char *symm_coll_name(int coll) {
    return symm_colls[(unsigned)coll < symmNumColls ? coll : symmNumColls].name;
}
