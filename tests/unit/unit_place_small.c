/* unit_place_small.c - unit_place.c over nodes of four entries: deep trees that split and join at
 * every few calls. The engine is compiled in here, its names are this program's. */
#define SYMM_TREE_FAN 4
#include "host/place/place_narrow.c"
#undef HUGE_PAGE
#include "host/place/place_sizes.c"
#include "host/place/place.c"
#include "unit_place.c"
