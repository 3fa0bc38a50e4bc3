/* place_narrow.c - the placement engine in words of 32 bits: for ranges that end below 512 GiB. The
 * thread that has the owner's lock. */
#include <stdint.h>

typedef int32_t word;
#define WORD_BITS    32
#define WORD_MAX     INT32_MAX
#define ENGINE(name) symm_narrow_##name
#include "place_engine.inl"
