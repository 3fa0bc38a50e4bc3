/* exports_v.c - the MPI functions with a count per rank. Displacements are counted from the lowest
 * one, which may be negative. The program's thread. */
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "sides.h"

/* One side of such a call, in bytes. */
typedef struct {
    side d; /* count: of all parts */
    const int *counts, *displs;
    size_t *bytes, *at; /* of each part; from `d.at` on */
} sides;

static char *part_at(const sides *v, int p) {
    return v->d.buf + (long long)v->displs[p] * (long long)v->d.l.extent;
}

/* Fills in bytes and at, whichever way the type goes. 0: MPI is to say what is wrong. */
static int is_sides(const pmpi_state *s, sides *v, void *buf, const int *counts, const int *displs,
                    MPI_Datatype type, size_t *arrays) {
    long long low = LLONG_MAX;
    if (!counts || !displs || !is_side(&v->d, buf, 0, type)) return 0;
    v->counts = counts, v->displs = displs, v->bytes = arrays, v->at = arrays + s->n;
    const size_t sum = take_counts(s, counts, v->d.l.each, v->bytes, NULL);
    if (sum == SIZE_MAX) return 0;
    v->d.count = v->d.l.each ? sum / v->d.l.each : 0;
    for (int p = 0; p < s->n; p++)
        if (v->bytes[p] && displs[p] < low) low = displs[p];
    if (low == LLONG_MAX) low = 0;
    for (size_t p = 0, from = 0; p < (size_t)s->n; from += v->bytes[p++])
        v->at[p] = !v->d.l.contiguous ? from
                   : v->bytes[p]      ? (size_t)(displs[p] - low) * v->d.l.extent
                                      : 0;
    if (v->d.l.contiguous) v->d.at = v->d.buf + low * (long long)v->d.l.extent;
    return 1;
}
static symmResult_t load_parts(pmpi_state *s, sides *v) {
    if (v->d.l.contiguous) return symmSuccess;
    v->d.at = pmpi_room(s, 0, bytes_of(&v->d) + 1);
    if (!v->d.at) return no_room();
    for (int p = 0; p < s->n; p++)
        if (v->bytes[p] &&
            !packed(s, part_at(v, p), (size_t)v->counts[p], v->d.type, &v->d.l, v->d.at + v->at[p]))
            return symmInternalError;
    return symmSuccess;
}
static symmResult_t room_for_parts(pmpi_state *s, sides *v) {
    if (v->d.l.contiguous) return symmSuccess;
    return (v->d.at = pmpi_room(s, 1, bytes_of(&v->d) + 1)) ? symmSuccess : no_room();
}
static symmResult_t store_parts(pmpi_state *s, const sides *v, symmResult_t r) {
    for (int p = 0; !r && !v->d.l.contiguous && p < s->n; p++)
        if (v->bytes[p] && !unpacked(s, v->d.at + v->at[p], part_at(v, p), (size_t)v->counts[p],
                                     v->d.type, &v->d.l))
            r = symmInternalError;
    return r;
}

/* From the first byte to the last; symm takes two spans that overlap for an error, though the parts
 * in them need not overlap. */
static size_t span_of(const pmpi_state *s, const sides *v) {
    size_t end = 0;
    for (int p = 0; p < s->n; p++)
        if (v->bytes[p] && v->at[p] + v->bytes[p] > end) end = v->at[p] + v->bytes[p];
    return end;
}
static int overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}
/* Then a copy of the parts is sent. */
static symmResult_t copy_parts(pmpi_state *s, sides *v) {
    char *to = pmpi_room(s, 0, bytes_of(&v->d) + 1);
    if (!to) return no_room();
    for (size_t p = 0, at = 0; p < (size_t)s->n; at += v->bytes[p++]) {
        memcpy(to + at, v->d.at + v->at[p], v->bytes[p]);
        v->at[p] = at;
    }
    v->d.at = to;
    return symmSuccess;
}

static symmResult_t all_gather(pmpi_state *s, side *in, sides *out, int in_place) {
    symmResult_t r = room_for_parts(s, out);
    if (in_place) {
        *in = out->d;
        in->count = (size_t)out->counts[s->rank];
        in->buf = in->at = part_at(out, s->rank);
    }
    if (!r) r = load(s, in);
    if (!r && !in_place && in->l.contiguous &&
        overlap(in->at, bytes_of(in), out->d.at, span_of(s, out))) {
        char *to = pmpi_room(s, 0, bytes_of(in));
        if (!to) return no_room();
        in->at = memcpy(to, in->at, bytes_of(in));
    }
    if (!r)
        r = symmAllGatherv(in->at, bytes_of(in), out->d.at, out->bytes, out->at, symmUint8, s->symm,
                           NULL);
    return store_parts(s, out, r);
}
EXPORT int MPI_Allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                          const int recvcounts[], const int displs[], MPI_Datatype recvtype,
                          MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    const int in_place = sendbuf == MPI_IN_PLACE;
    side in = {0};
    sides out;
    if (s && is_sides(s, &out, recvbuf, recvcounts, displs, recvtype, s->counts) &&
        (in_place || is_side(&in, (void *)(uintptr_t)sendbuf, sendcount, sendtype)) &&
        bytes_of(&out.d) && pmpi_serves(s, CALL_Allgatherv, bytes_of(&out.d) / (size_t)s->n)) {
        const size_t bytes = bytes_of(&out.d) / (size_t)s->n;
        return pmpi_end(s, CALL_Allgatherv, bytes, all_gather(s, &in, &out, in_place));
    }
    pmpi_count(CALL_Allgatherv, 0, 0);
    return PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
                           comm);
}

static symmResult_t all_to_all(pmpi_state *s, sides *in, sides *out) {
    symmResult_t r = room_for_parts(s, out);
    if (!r) r = load_parts(s, in);
    if (!r && overlap(in->d.at, span_of(s, in), out->d.at, span_of(s, out))) r = copy_parts(s, in);
    if (!r)
        r = symmAlltoAllv(in->d.at, in->bytes, in->at, out->d.at, out->bytes, out->at, symmUint8,
                          s->symm, NULL);
    return store_parts(s, out, r);
}
/* No rank knows how much there is between others: all are served, but those in place, which say so
 * on all ranks. */
EXPORT int MPI_Alltoallv(const void *sendbuf, const int sendcounts[], const int sdispls[],
                         MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
                         const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    sides in, out;
    if (s && sendbuf != MPI_IN_PLACE && pmpi_serves(s, CALL_Alltoallv, 0) &&
        is_sides(s, &in, (void *)(uintptr_t)sendbuf, sendcounts, sdispls, sendtype, s->counts) &&
        is_sides(s, &out, recvbuf, recvcounts, rdispls, recvtype, s->counts + 2 * s->n)) {
        const size_t bytes = bytes_of(&in.d) / (size_t)s->n;
        return pmpi_end(s, CALL_Alltoallv, bytes, all_to_all(s, &in, &out));
    }
    pmpi_count(CALL_Alltoallv, 0, 0);
    return PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
                          recvtype, comm);
}

/* ---- one root, which alone knows the counts -------------------------------------------------- */

/* No rank but the root knows how large the call is, so each message is decided about by itself: its
 * two ranks know its bytes. MPI carries those that symm is slower with, in the same call without
 * the others. MPI counts no more than INT_MAX bytes. */
static int is_ours(const pmpi_state *s, int call, size_t bytes) {
    return bytes > INT_MAX || pmpi_serves(s, call, bytes);
}

/* At the root: `rest` gets the counts that are MPI's, and in v->bytes stay those that are not. The
 * root's own part is MPI's. own: its bytes as one of the ranks; NULL: it stays where it is. */
static symmResult_t divide(const pmpi_state *s, int call, sides *v, const side *own, int *rest) {
    const size_t mine = v->bytes[s->rank];
    for (int p = 0; p < s->n; p++) {
        const int ours = p != s->rank && is_ours(s, call, v->bytes[p]);
        rest[p] = ours ? 0 : v->counts[p];
        if (!ours) v->bytes[p] = 0;
    }
    if (!own || mine == bytes_of(own)) return symmSuccess;
    pmpi_warn("the root has %zu bytes for itself, and %zu as one of the ranks", mine,
              bytes_of(own));
    rest[s->rank] = 0;
    return symmInvalidArgument;
}
/* The root's messages, one after the other: every other rank has one alone. All are made, also
 * where one has failed. One without bytes is sent too: where a program's counts differ, both ranks
 * hear of it. */
static symmResult_t messages(pmpi_state *s, int call, const sides *v, const int *rest) {
    const int none = is_ours(s, call, 0);
    symmResult_t first = symmSuccess;
    for (int p = 0; p < s->n; p++) {
        if (p == s->rank || (!v->bytes[p] && (rest[p] || !none))) continue;
        char *at = v->d.at + v->at[p];
        const symmResult_t r = call == CALL_Gatherv
                                   ? symmRecv(at, v->bytes[p], symmUint8, p, s->symm, NULL)
                                   : symmSend(at, v->bytes[p], symmUint8, p, s->symm, NULL);
        if (!first) first = r;
    }
    return first;
}
static int *rest_of(const pmpi_state *s) {
    return (int *)(s->counts + 2 * (size_t)s->n);
}
/* What MPI gets as this rank's count. */
static int rest_of_mine(const pmpi_state *s, int call, int is_root, size_t bytes, int count) {
    if (is_root) return rest_of(s)[s->rank] ? count : 0;
    return is_ours(s, call, bytes) ? 0 : count;
}

static symmResult_t gather(pmpi_state *s, side *in, sides *out, int in_place, int root) {
    if (s->rank != root) {
        if (!is_ours(s, CALL_Gatherv, bytes_of(in))) return symmSuccess;
        const symmResult_t r = load(s, in);
        return r ? r : symmSend(in->at, bytes_of(in), symmUint8, root, s->symm, NULL);
    }
    const symmResult_t differs = divide(s, CALL_Gatherv, out, in_place ? NULL : in, rest_of(s));
    symmResult_t r = room_for_parts(s, out);
    if (!r) r = messages(s, CALL_Gatherv, out, rest_of(s));
    r = store_parts(s, out, r);
    return r ? r : differs;
}
/* MPI's part comes last and always: its ranks wait for each other, whatever became of ours. */
EXPORT int MPI_Gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                       const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
                       MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    const int in_place = sendbuf == MPI_IN_PLACE, is_root = s && s->rank == root;
    side in = {0};
    sides out = {0};
    if (s && root >= 0 && root < s->n &&
        (!is_root || is_sides(s, &out, recvbuf, recvcounts, displs, recvtype, s->counts)) &&
        (in_place ? is_root : is_side(&in, (void *)(uintptr_t)sendbuf, sendcount, sendtype))) {
        const size_t bytes = is_root ? bytes_of(&out.d) / (size_t)s->n : bytes_of(&in);
        const int ours = pmpi_end(s, CALL_Gatherv, bytes, gather(s, &in, &out, in_place, root));
        const int mpis = PMPI_Gatherv(
            sendbuf, rest_of_mine(s, CALL_Gatherv, is_root, bytes, sendcount), sendtype, recvbuf,
            is_root ? rest_of(s) : NULL, displs, recvtype, root, comm);
        return ours ? ours : mpis;
    }
    pmpi_count(CALL_Gatherv, 0, 0);
    return PMPI_Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root,
                        comm);
}

static symmResult_t scatter(pmpi_state *s, sides *in, side *out, int in_place, int root) {
    if (s->rank != root) {
        if (!is_ours(s, CALL_Scatterv, bytes_of(out))) return symmSuccess;
        symmResult_t r = room(s, out);
        if (!r) r = symmRecv(out->at, bytes_of(out), symmUint8, root, s->symm, NULL);
        return store(s, out, r);
    }
    const symmResult_t differs = divide(s, CALL_Scatterv, in, in_place ? NULL : out, rest_of(s));
    symmResult_t r = load_parts(s, in);
    if (!r) r = messages(s, CALL_Scatterv, in, rest_of(s));
    return r ? r : differs;
}
EXPORT int MPI_Scatterv(const void *sendbuf, const int sendcounts[], const int displs[],
                        MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                        int root, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    const int in_place = recvbuf == MPI_IN_PLACE, is_root = s && s->rank == root;
    sides in = {0};
    side out = {0};
    if (s && root >= 0 && root < s->n &&
        (!is_root ||
         is_sides(s, &in, (void *)(uintptr_t)sendbuf, sendcounts, displs, sendtype, s->counts)) &&
        (in_place ? is_root : is_side(&out, recvbuf, recvcount, recvtype))) {
        const size_t bytes = is_root ? bytes_of(&in.d) / (size_t)s->n : bytes_of(&out);
        const int ours = pmpi_end(s, CALL_Scatterv, bytes, scatter(s, &in, &out, in_place, root));
        const int mpis = PMPI_Scatterv(
            sendbuf, is_root ? rest_of(s) : NULL, displs, sendtype, recvbuf,
            rest_of_mine(s, CALL_Scatterv, is_root, bytes, recvcount), recvtype, root, comm);
        return ours ? ours : mpis;
    }
    pmpi_count(CALL_Scatterv, 0, 0);
    return PMPI_Scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root,
                         comm);
}
