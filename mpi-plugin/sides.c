/* sides.c - buffers of the program's as bytes without gaps. The program's thread; no lock. */
#include "sides.h"

#include <limits.h>

/* MPI packs at most INT_MAX bytes at once, and one element may have more. Then a collective of one
 * rank copies it, to or from as many bytes. */
static int is_too_large(const pmpi_layout *l) {
    return l->each > INT_MAX;
}
static int type_of_bytes(size_t bytes, MPI_Datatype *out) {
    enum { BLOCK = 1 << 20 };
    MPI_Datatype block = MPI_DATATYPE_NULL, blocks = MPI_DATATYPE_NULL;
    int many[2] = {1, (int)(bytes % BLOCK)};
    MPI_Aint at[2] = {0, (MPI_Aint)(bytes - bytes % BLOCK)};
    int ok = bytes / BLOCK <= INT_MAX && !PMPI_Type_contiguous(BLOCK, MPI_BYTE, &block) &&
             !PMPI_Type_contiguous((int)(bytes / BLOCK), block, &blocks);
    MPI_Datatype types[2] = {blocks, MPI_BYTE};
    ok = ok && !PMPI_Type_create_struct(2, many, at, types, out);
    if (block != MPI_DATATYPE_NULL) PMPI_Type_free(&block);
    if (blocks != MPI_DATATYPE_NULL) PMPI_Type_free(&blocks);
    return ok && !PMPI_Type_commit(out);
}
static int copied_one(const void *from, MPI_Datatype its, void *to, MPI_Datatype other) {
    return !PMPI_Allgather(from, 1, its, to, 1, other, MPI_COMM_SELF);
}
static int copied(const char *from, size_t from_step, MPI_Datatype its, char *to, size_t to_step,
                  MPI_Datatype other, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!copied_one(from + i * from_step, its, to + i * to_step, other)) return 0;
    return 1;
}

static int most_packed(const pmpi_layout *l, size_t count) {
    const size_t most = l->each ? INT_MAX / l->each : INT_MAX;
    return (int)(count < most ? count : most);
}
int packed(const pmpi_state *s, const void *buf, size_t count, MPI_Datatype type,
           const pmpi_layout *l, char *to) {
    MPI_Datatype bytes;
    int some, at;
    if (is_too_large(l)) {
        if (!type_of_bytes(l->each, &bytes)) return 0;
        some = copied(buf, l->extent, type, to, l->each, bytes, count);
        PMPI_Type_free(&bytes);
        return some;
    }
    for (size_t i = 0; i < count; i += (size_t)some, to += (size_t)some * l->each) {
        some = most_packed(l, count - i), at = 0;
        if (PMPI_Pack((const char *)buf + i * l->extent, some, type, to,
                      (int)((size_t)some * l->each), &at, s->comm))
            return 0;
    }
    return 1;
}
int unpacked(const pmpi_state *s, const char *from, void *buf, size_t count, MPI_Datatype type,
             const pmpi_layout *l) {
    MPI_Datatype bytes;
    int some, at;
    if (is_too_large(l)) {
        if (!type_of_bytes(l->each, &bytes)) return 0;
        some = copied(from, l->each, bytes, buf, l->extent, type, count);
        PMPI_Type_free(&bytes);
        return some;
    }
    for (size_t i = 0; i < count; i += (size_t)some, from += (size_t)some * l->each) {
        some = most_packed(l, count - i), at = 0;
        if (PMPI_Unpack(from, (int)((size_t)some * l->each), &at, (char *)buf + i * l->extent, some,
                        type, s->comm))
            return 0;
    }
    return 1;
}

int is_side(side *d, void *buf, long long count, MPI_Datatype type) {
    *d = (side){.type = type, .buf = buf, .at = buf, .count = (size_t)count};
    return count >= 0 && pmpi_layout_of(type, &d->l);
}
size_t bytes_of(const side *d) {
    return d->count * d->l.each;
}
symmResult_t no_room(void) {
    pmpi_warn("no memory for data of a type with gaps");
    return symmOutOfMemory;
}
symmResult_t load(pmpi_state *s, side *d) {
    if (d->l.contiguous) return symmSuccess;
    d->at = pmpi_room(s, 0, bytes_of(d) + 1);
    return d->at && packed(s, d->buf, d->count, d->type, &d->l, d->at) ? symmSuccess : no_room();
}
symmResult_t room(pmpi_state *s, side *d) {
    if (d->l.contiguous) return symmSuccess;
    return (d->at = pmpi_room(s, 1, bytes_of(d) + 1)) ? symmSuccess : no_room();
}
symmResult_t store(pmpi_state *s, const side *d, symmResult_t r) {
    if (r || d->l.contiguous) return r;
    return unpacked(s, d->at, d->buf, d->count, d->type, &d->l) ? symmSuccess : symmInternalError;
}
side part_of(const side *d, int p, int parts) {
    side part = *d;
    part.count = d->count / (size_t)parts;
    part.buf = part.at = d->buf + (size_t)p * part.count * d->l.extent;
    return part;
}

size_t take_counts(const pmpi_state *s, const int *from, size_t each, size_t *to, int *alike) {
    size_t sum = 0;
    int same = 1;
    if (!from) return SIZE_MAX;
    for (int p = 0; p < s->n; p++) {
        if (from[p] < 0) return SIZE_MAX;
        same &= from[p] == from[0];
        sum += to[p] = (size_t)from[p] * each;
    }
    if (alike) *alike = same;
    return sum;
}
