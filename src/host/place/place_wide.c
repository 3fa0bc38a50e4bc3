/* place_wide.c - the placement engine in words of 64 bits, for any range. The thread that has the
 * owner's lock. */
#include <stdint.h>

typedef int64_t word;
#define WORD_BITS    64
#define WORD_MAX     INT64_MAX
#define ENGINE(name) symm_wide_##name
#include "place_engine.inl"
