/* sides.h - a buffer of the program's as bytes without gaps, which is what symm moves: the buffer
 * itself, or room in the state where its type has gaps. Types may differ between ranks; their bytes
 * may not. The program's thread; no lock. */
#ifndef SIDES_H_
#define SIDES_H_

#include "pmpi.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct {
    pmpi_layout l;
    MPI_Datatype type;
    char *buf, *at; /* the program's; what symm gets */
    size_t count;
} side;

/* 0: MPI is to say what is wrong. */
int is_side(side *d, void *buf, long long count, MPI_Datatype type);
size_t bytes_of(const side *d);
/* What is to be read. */
symmResult_t load(pmpi_state *s, side *d);
/* Room for what is to be written; and its way back, unless r is an error. */
symmResult_t room(pmpi_state *s, side *d);
symmResult_t store(pmpi_state *s, const side *d, symmResult_t r);
/* Part p of `parts` equal ones, as the program has it. */
side part_of(const side *d, int p, int parts);

/* Data with gaps: `count` elements to where they have none, and back. 0: MPI refused. */
int packed(const pmpi_state *s, const void *buf, size_t count, MPI_Datatype type,
           const pmpi_layout *l, char *to);
int unpacked(const pmpi_state *s, const char *from, void *buf, size_t count, MPI_Datatype type,
             const pmpi_layout *l);
symmResult_t no_room(void);

/* The counts of all ranks, times `each`, into `to`. Returns their sum; SIZE_MAX: there are none, or
 * one is negative. alike: whether they are the same; may be NULL. */
size_t take_counts(const pmpi_state *s, const int *from, size_t each, size_t *to, int *alike);

#endif
