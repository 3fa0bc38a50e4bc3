/* mappings.h - which pieces of memory are mapped in a range that grows: one entry per rank and
 * piece, sorted by rank and offset. Not thread-safe: the owner of the range locks. */
#ifndef SYMM_MAPPINGS_H_
#define SYMM_MAPPINGS_H_

#include <stdint.h>

typedef struct {
    uint64_t off, bytes; /* from the beginning of rank's part */
    int32_t rank;
    int32_t fresh; /* mapped by a growth that is not agreed yet; unmapped if that fails */
} symm_mapping;

typedef struct {
    symm_mapping *at;
    int n, cap;
} symm_mappings;

/* -1: no memory; nothing changed. pre: overlaps none. */
int symm_mappings_add(symm_mappings *m, symm_mapping map);
void symm_mappings_remove(symm_mappings *m, int i);
void symm_mappings_end(symm_mappings *m);
/* Index of the first entry of rank that ends behind off, or where it would be. */
int symm_mappings_find(const symm_mappings *m, int rank, uint64_t off);
/* 1 if every byte of [off, off+bytes) of rank is mapped. */
int symm_mappings_cover(const symm_mappings *m, int rank, uint64_t off, uint64_t bytes);
uint64_t symm_mappings_bytes(const symm_mappings *m, int rank);
/* Asserts the invariants of the entries around i: none is empty, they are in order, none overlaps
 * another. */
void symm_mappings_check(const symm_mappings *m, int i);

#endif
