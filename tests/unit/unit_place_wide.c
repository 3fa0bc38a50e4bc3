/* unit_place_wide.c - unit_place.c over engines with words of 64 bits, as those have that were
 * given a range which ends high up; with nodes of four entries. The wide engine is compiled in
 * here. */
#define SYMM_TREE_FAN 4
#include "host/place/place_wide.c"
#undef HUGE_PAGE
#define FAR 0x1000000000000000ull
#include "unit_place.c"
