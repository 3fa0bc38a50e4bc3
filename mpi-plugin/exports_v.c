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
        if (!packed(s, part_at(v, p), (size_t)v->counts[p], v->d.type, &v->d.l, v->d.at + v->at[p]))
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

static symmResult_t of_mpi(int r) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    if (r == MPI_SUCCESS) return symmSuccess;
    PMPI_Error_string(r, text, &n);
    pmpi_warn("a message of MPI's: %s", text);
    return symmSystemError;
}
/* A message of MPI's that is shorter than expected is no error of MPI's. */
static symmResult_t receive_of_mpi(pmpi_state *s, void *at, size_t bytes, int peer) {
    MPI_Status status;
    int got = 0;
    const symmResult_t r =
        of_mpi(PMPI_Recv(at, (int)bytes, MPI_BYTE, peer, s->round, s->beside, &status));
    if (!r) PMPI_Get_count(&status, MPI_BYTE, &got);
    if (r || (size_t)got == bytes) return r;
    pmpi_warn("rank %d sent %d bytes, %zu were expected", peer, got, bytes);
    return symmMismatch;
}
/* No rank but the root knows how large the call is, so each message is decided about by itself: its
 * two ranks know its bytes. One that symm is slower with is a message of MPI's, beside the
 * program's. One without bytes is sent too: where a program's counts differ, both ranks hear of
 * it. */
static symmResult_t message(pmpi_state *s, int call, int sends, void *at, size_t bytes, int peer) {
    if (bytes > INT_MAX || pmpi_serves(s, call, bytes))
        return sends ? symmSend(at, bytes, symmUint8, peer, s->symm, NULL)
                     : symmRecv(at, bytes, symmUint8, peer, s->symm, NULL);
    if (sends) return of_mpi(PMPI_Send(at, (int)bytes, MPI_BYTE, peer, s->round, s->beside));
    return receive_of_mpi(s, at, bytes, peer);
}
/* What the root has for itself, as the root and as one of the ranks. */
static symmResult_t copy_own(char *part, size_t bytes, const side *own, int to_root) {
    if (bytes != bytes_of(own)) {
        pmpi_warn("the root has %zu bytes for itself, and %zu as one of the ranks", bytes,
                  bytes_of(own));
        return symmInvalidArgument;
    }
    if (bytes) memcpy(to_root ? part : own->at, to_root ? own->at : part, bytes);
    return symmSuccess;
}
/* A message for each of the root's parts, one after the other: every other rank has one alone. All
 * are made, also where one has failed: a peer that waits for MPI hears of nothing else. own: what
 * this rank has, or gets; NULL: the root's stays where it is. */
static symmResult_t messages(pmpi_state *s, int call, int root, const sides *parts,
                             const side *own) {
    const int to_root = call == CALL_Gatherv;
    symmResult_t first = symmSuccess;
    if (s->rank != root) return message(s, call, to_root, own->at, bytes_of(own), root);
    for (int p = 0; p < s->n; p++) {
        char *at = parts->d.at + parts->at[p];
        symmResult_t r = symmSuccess;
        if (p != root)
            r = message(s, call, !to_root, at, parts->bytes[p], p);
        else if (own)
            r = copy_own(at, parts->bytes[p], own, to_root);
        if (!first) first = r;
    }
    return first;
}

/* This rank has no message. Who waits for it by MPI gets one that is too short. */
static void send_nothing(pmpi_state *s, int call, size_t bytes, int peer) {
    if (bytes && bytes <= INT_MAX && !pmpi_serves(s, call, bytes))
        (void)of_mpi(PMPI_Send(NULL, 0, MPI_BYTE, peer, s->round, s->beside));
}

static symmResult_t gather(pmpi_state *s, side *in, sides *out, int in_place, int root) {
    symmResult_t r = s->rank == root ? room_for_parts(s, out) : symmSuccess;
    if (in_place) out->bytes[root] = 0; /* nothing to unpack */
    if (!r && !in_place) r = load(s, in);
    if (r && s->rank != root) send_nothing(s, CALL_Gatherv, bytes_of(in), root);
    if (!r) r = messages(s, CALL_Gatherv, root, out, in_place ? NULL : in);
    return s->rank == root ? store_parts(s, out, r) : r;
}
EXPORT int MPI_Gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                       const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
                       MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    const int in_place = sendbuf == MPI_IN_PLACE, is_root = s && s->rank == root;
    side in = {0};
    sides out = {0};
    if (s && root >= 0 && root < s->n && pmpi_beside(s) &&
        (!is_root || is_sides(s, &out, recvbuf, recvcounts, displs, recvtype, s->counts)) &&
        (in_place ? is_root : is_side(&in, (void *)(uintptr_t)sendbuf, sendcount, sendtype))) {
        const size_t bytes = is_root ? bytes_of(&out.d) / (size_t)s->n : bytes_of(&in);
        return pmpi_end(s, CALL_Gatherv, bytes, gather(s, &in, &out, in_place, root));
    }
    pmpi_count(CALL_Gatherv, 0, 0);
    return PMPI_Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root,
                        comm);
}

static symmResult_t scatter(pmpi_state *s, sides *in, side *out, int in_place, int root) {
    symmResult_t r = s->rank == root ? load_parts(s, in) : symmSuccess;
    if (!r && !in_place) r = room(s, out);
    if (!r) r = messages(s, CALL_Scatterv, root, in, in_place ? NULL : out);
    return in_place ? r : store(s, out, r);
}
EXPORT int MPI_Scatterv(const void *sendbuf, const int sendcounts[], const int displs[],
                        MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                        int root, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    const int in_place = recvbuf == MPI_IN_PLACE, is_root = s && s->rank == root;
    sides in = {0};
    side out = {0};
    if (s && root >= 0 && root < s->n && pmpi_beside(s) &&
        (!is_root ||
         is_sides(s, &in, (void *)(uintptr_t)sendbuf, sendcounts, displs, sendtype, s->counts)) &&
        (in_place ? is_root : is_side(&out, recvbuf, recvcount, recvtype))) {
        const size_t bytes = is_root ? bytes_of(&in.d) / (size_t)s->n : bytes_of(&out);
        return pmpi_end(s, CALL_Scatterv, bytes, scatter(s, &in, &out, in_place, root));
    }
    pmpi_count(CALL_Scatterv, 0, 0);
    return PMPI_Scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root,
                         comm);
}
