/* mappings.h - which pieces of memory are mapped in a range that grows: one entry per rank and
 * piece, sorted by rank and offset. Not thread-safe: the owner of the range locks. */
#ifndef SYMM_MAPS_H_
#define SYMM_MAPS_H_

#include <stdint.h>

typedef struct {
    uint64_t off, bytes; /* from the beginning of rank's part */
    int32_t rank;
    int32_t fresh; /* mapped by a growth that is not agreed yet; unmapped if that fails */
} symm_map;

typedef struct {
    symm_map *at;
    int n, cap;
} symm_maps;

/* -1: no memory; nothing changed. pre: overlaps none. */
int symm_maps_add(symm_maps *m, symm_map map);
void symm_maps_remove(symm_maps *m, int i);
void symm_maps_end(symm_maps *m);
/* Index of the first entry of rank that ends behind off, or where it would be. */
int symm_maps_find(const symm_maps *m, int rank, uint64_t off);
/* 1 if every byte of [off, off+bytes) of rank is mapped. */
int symm_maps_cover(const symm_maps *m, int rank, uint64_t off, uint64_t bytes);
uint64_t symm_maps_bytes(const symm_maps *m, int rank);
/* Asserts the invariants of the entries around i: none is empty, they are in order, none overlaps
 * another. */
void symm_maps_check(const symm_maps *m, int i);

#endif
