/* types.c - MPI's types and reductions as symm's; how data of a type lies in memory. Any thread; no
 * lock: the table is written once, before MPI may be served. */
#include "pmpi.h"

/* MPI's predefined types that may be reduced. A complex number is two real ones to a sum, and to
 * nothing else. What is most in use comes first. */
typedef struct {
    MPI_Datatype mpi; /* NULL: MPI has another type of this name */
    symmDataType_t type;
    size_t each, bytes;
} reduced_type;
static reduced_type reduced[] = {
    {MPI_DOUBLE, symmFloat64, 1, sizeof(double)},
    {MPI_FLOAT, symmFloat32, 1, sizeof(float)},
    {MPI_INT, symmInt32, 1, sizeof(int)},
    {MPI_LONG, sizeof(long) == 8 ? symmInt64 : symmInt32, 1, sizeof(long)},
    {MPI_UNSIGNED, symmUint32, 1, sizeof(unsigned)},
    {MPI_UNSIGNED_LONG, sizeof(long) == 8 ? symmUint64 : symmUint32, 1, sizeof(unsigned long)},
    {MPI_LONG_LONG, symmInt64, 1, sizeof(long long)},
    {MPI_UNSIGNED_LONG_LONG, symmUint64, 1, sizeof(unsigned long long)},
    {MPI_INT32_T, symmInt32, 1, 4},
    {MPI_INT64_T, symmInt64, 1, 8},
    {MPI_UINT32_T, symmUint32, 1, 4},
    {MPI_UINT64_T, symmUint64, 1, 8},
    {MPI_SIGNED_CHAR, symmInt8, 1, 1},
    {MPI_UNSIGNED_CHAR, symmUint8, 1, 1},
    {MPI_INT8_T, symmInt8, 1, 1},
    {MPI_UINT8_T, symmUint8, 1, 1},
    {MPI_AINT, sizeof(MPI_Aint) == 8 ? symmInt64 : symmInt32, 1, sizeof(MPI_Aint)},
    {MPI_OFFSET, sizeof(MPI_Offset) == 8 ? symmInt64 : symmInt32, 1, sizeof(MPI_Offset)},
    {MPI_COUNT, sizeof(MPI_Count) == 8 ? symmInt64 : symmInt32, 1, sizeof(MPI_Count)},
    {MPI_C_FLOAT_COMPLEX, symmFloat32, 2, 2 * sizeof(float)},
    {MPI_C_DOUBLE_COMPLEX, symmFloat64, 2, 2 * sizeof(double)},
    {MPI_CXX_FLOAT_COMPLEX, symmFloat32, 2, 2 * sizeof(float)},
    {MPI_CXX_DOUBLE_COMPLEX, symmFloat64, 2, 2 * sizeof(double)},
    {MPI_DOUBLE_PRECISION, symmFloat64, 1, 8},
    {MPI_INTEGER, symmInt32, 1, 4},
    {MPI_REAL, symmFloat32, 1, 4},
    {MPI_COMPLEX, symmFloat32, 2, 8},
    {MPI_DOUBLE_COMPLEX, symmFloat64, 2, 16},
#if OMPI_HAVE_FORTRAN_INTEGER4
    {MPI_INTEGER4, symmInt32, 1, 4},
#endif
#if OMPI_HAVE_FORTRAN_INTEGER8
    {MPI_INTEGER8, symmInt64, 1, 8},
#endif
#if OMPI_HAVE_FORTRAN_REAL4
    {MPI_REAL4, symmFloat32, 1, 4},
    {MPI_COMPLEX8, symmFloat32, 2, 8},
#endif
#if OMPI_HAVE_FORTRAN_REAL8
    {MPI_REAL8, symmFloat64, 1, 8},
    {MPI_COMPLEX16, symmFloat64, 2, 16},
#endif
};
enum { REDUCED = sizeof reduced / sizeof *reduced };

/* How long Fortran's are was settled when MPI was built, by options of the compiler. */
void pmpi_types_set_up(void) {
    MPI_Count size;
    for (reduced_type *t = reduced; t < reduced + REDUCED; t++)
        if (PMPI_Type_size_x(t->mpi, &size) || (size_t)size != t->bytes) t->mpi = NULL;
}

static const reduced_type *find_reduced(MPI_Datatype type) {
    for (const reduced_type *t = reduced; type && t < reduced + REDUCED; t++)
        if (t->mpi == type) return t;
    return NULL;
}

static int op_of(MPI_Op op, symmRedOp_t *out) {
    if (op == MPI_SUM) return *out = symmSum, 1;
    if (op == MPI_MAX) return *out = symmMax, 1;
    if (op == MPI_MIN) return *out = symmMin, 1;
    if (op == MPI_PROD) return *out = symmProd, 1;
    return 0;
}

int pmpi_reduces(MPI_Datatype type, MPI_Op op, pmpi_reduction *out) {
    const reduced_type *t = op_of(op, &out->op) ? find_reduced(type) : NULL;
    if (!t) return 0;
    out->type = t->type;
    out->each = t->each;
    out->bytes = t->bytes;
    return out->each == 1 || out->op == symmSum;
}

/* 1: a type of MPI's, which nobody frees: one with a name, or one of Fortran's that
 * MPI_Type_create_f90_real and the like give. */
static int is_mpis(int combiner) {
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_REAL ||
           combiner == MPI_COMBINER_F90_COMPLEX || combiner == MPI_COMBINER_F90_INTEGER;
}

/* The bytes of a predefined type are in the order in which they are sent, and so are those of
 * several contiguous ones. Of all others that is not looked into. */
static int in_order(MPI_Datatype type) {
    int ints, addresses, types, combiner, in_turn = 0, values[1];
    MPI_Aint none[1];
    MPI_Datatype inner[1];
    if (PMPI_Type_get_envelope(type, &ints, &addresses, &types, &combiner)) return 0;
    if (is_mpis(combiner)) return 1;
    if ((combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP) || types != 1)
        return 0;
    if (PMPI_Type_get_contents(type, ints, 0, 1, values, none, inner)) return 0;
    in_turn = in_order(inner[0]);
    /* contents gives a handle of its own, but of a predefined type */
    if (PMPI_Type_get_envelope(inner[0], &ints, &addresses, &types, &combiner) == MPI_SUCCESS &&
        !is_mpis(combiner))
        PMPI_Type_free(&inner[0]);
    return in_turn;
}

int pmpi_layout_of(MPI_Datatype type, pmpi_layout *out) {
    MPI_Count size, low, extent; /* a type may be larger than an int says */
    const reduced_type *t = find_reduced(type);
    if (t) return *out = (pmpi_layout){t->bytes, t->bytes, 1}, 1;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) || size < 0 ||
        PMPI_Type_get_extent_x(type, &low, &extent))
        return 0;
    *out =
        (pmpi_layout){(size_t)size, (size_t)extent, low == 0 && extent == size && in_order(type)};
    return 1;
}
