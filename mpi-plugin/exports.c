/* exports.c - the MPI functions that programs call. Each finds out whether the call is served, says
 * it in symm's words, and is MPI's own function otherwise. The program's thread. */
#include <stdint.h>
#include <string.h>

#include "sides.h"

/* ---- reductions ------------------------------------------------------------------------------ */

EXPORT int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
                         MPI_Op op, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    pmpi_reduction e;
    if (s && count > 0 && pmpi_reduces(datatype, op, &e) &&
        pmpi_serves(s, CALL_Allreduce, (size_t)count * e.bytes)) {
        const void *in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
        return pmpi_end(
            s, CALL_Allreduce, (size_t)count * e.bytes,
            symmAllReduce(in, recvbuf, (size_t)count * e.each, e.type, e.op, s->symm, NULL));
    }
    pmpi_count(CALL_Allreduce, 0, 0);
    return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
}

EXPORT int MPI_Reduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
                      MPI_Op op, int root, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    pmpi_reduction e;
    if (s && count > 0 && root >= 0 && root < s->n && pmpi_reduces(datatype, op, &e) &&
        pmpi_serves(s, CALL_Reduce, (size_t)count * e.bytes)) {
        const void *in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
        return pmpi_end(s, CALL_Reduce, (size_t)count * e.bytes,
                        symmReduce(in, s->rank == root ? recvbuf : NULL, (size_t)count * e.each,
                                   e.type, e.op, root, s->symm, NULL));
    }
    pmpi_count(CALL_Reduce, 0, 0);
    return PMPI_Reduce(sendbuf, recvbuf, count, datatype, op, root, comm);
}

/* counts: elements of each rank's part, alike or not. In place the result comes where part 0 was,
 * which others still read: it goes through room. */
static symmResult_t scatter_reduced(pmpi_state *s, const void *sendbuf, void *recvbuf,
                                    const pmpi_reduction *e, int alike) {
    const int in_place = sendbuf == MPI_IN_PLACE;
    const size_t mine = s->counts[s->rank], bytes = mine / e->each * e->bytes;
    void *to = in_place ? pmpi_room(s, 1, bytes ? bytes : 1) : recvbuf;
    const void *in = in_place ? recvbuf : sendbuf;
    if (in_place && !to) return no_room();
    const symmResult_t r =
        alike ? symmReduceScatter(in, to, mine, e->type, e->op, s->symm, NULL)
              : symmReduceScatterv(in, to, s->counts, e->type, e->op, s->symm, NULL);
    if (!r && in_place) memcpy(recvbuf, to, bytes);
    return r;
}

EXPORT int MPI_Reduce_scatter(const void *sendbuf, void *recvbuf, const int recvcounts[],
                              MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    pmpi_reduction e;
    int alike = 0;
    if (s && pmpi_reduces(datatype, op, &e)) {
        const size_t sum = take_counts(s, recvcounts, e.each, s->counts, &alike),
                     bytes = sum == SIZE_MAX ? 0 : sum / e.each * e.bytes / (size_t)s->n;
        if (sum && sum != SIZE_MAX && pmpi_serves(s, CALL_Reduce_scatter, bytes))
            return pmpi_end(s, CALL_Reduce_scatter, bytes,
                            scatter_reduced(s, sendbuf, recvbuf, &e, alike));
    }
    pmpi_count(CALL_Reduce_scatter, 0, 0);
    return PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm);
}

EXPORT int MPI_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
                                    MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    pmpi_reduction e;
    if (s && recvcount > 0 && pmpi_reduces(datatype, op, &e) &&
        pmpi_serves(s, CALL_Reduce_scatter_block, (size_t)recvcount * e.bytes)) {
        s->counts[s->rank] = (size_t)recvcount * e.each;
        return pmpi_end(s, CALL_Reduce_scatter_block, (size_t)recvcount * e.bytes,
                        scatter_reduced(s, sendbuf, recvbuf, &e, 1));
    }
    pmpi_count(CALL_Reduce_scatter_block, 0, 0);
    return PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm);
}

/* ---- what only moves, equal parts ------------------------------------------------------------ */

EXPORT int MPI_Bcast(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    side d;
    if (s && root >= 0 && root < s->n && is_side(&d, buffer, count, datatype) && bytes_of(&d) &&
        pmpi_serves(s, CALL_Bcast, bytes_of(&d))) {
        const size_t bytes = bytes_of(&d);
        symmResult_t r = s->rank == root ? load(s, &d) : room(s, &d);
        if (!r) r = symmBroadcast(d.at, d.at, bytes, symmUint8, root, s->symm, NULL);
        if (s->rank != root) r = store(s, &d, r);
        return pmpi_end(s, CALL_Bcast, bytes, r);
    }
    pmpi_count(CALL_Bcast, 0, 0);
    return PMPI_Bcast(buffer, count, datatype, root, comm);
}

/* out: all parts, and in the own one what goes in, if it is in place. */
static symmResult_t all_gather(pmpi_state *s, side *in, side *out, int in_place) {
    symmResult_t r = room(s, out);
    if (in_place) *in = part_of(out, s->rank, s->n);
    if (in_place && out->l.contiguous) in->at = out->at + (size_t)s->rank * bytes_of(in);
    if (!r) r = load(s, in);
    if (!r) r = symmAllGather(in->at, out->at, bytes_of(in), symmUint8, s->symm, NULL);
    return store(s, out, r);
}
EXPORT int MPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                         int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    const int in_place = sendbuf == MPI_IN_PLACE;
    side in = {0}, out;
    if (s && recvcount > 0 && is_side(&out, recvbuf, (long long)recvcount * s->n, recvtype) &&
        (in_place || is_side(&in, (void *)(uintptr_t)sendbuf, sendcount, sendtype)) &&
        bytes_of(&out) && pmpi_serves(s, CALL_Allgather, bytes_of(&out) / (size_t)s->n))
        return pmpi_end(s, CALL_Allgather, bytes_of(&out) / (size_t)s->n,
                        all_gather(s, &in, &out, in_place));
    pmpi_count(CALL_Allgather, 0, 0);
    return PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

static symmResult_t gather(pmpi_state *s, side *in, side *out, int in_place, int root) {
    symmResult_t r = s->rank == root ? room(s, out) : symmSuccess;
    if (in_place) *in = part_of(out, root, s->n);
    if (in_place && out->l.contiguous) in->at = out->at + (size_t)root * bytes_of(in);
    if (!r) r = load(s, in);
    if (!r)
        r = symmGather(in->at, s->rank == root ? out->at : NULL, bytes_of(in), symmUint8, root,
                       s->symm, NULL);
    return s->rank == root ? store(s, out, r) : r;
}
EXPORT int MPI_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                      int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    const int in_place = sendbuf == MPI_IN_PLACE, is_root = s && s->rank == root;
    side in = {0}, out = {0};
    if (s && root >= 0 && root < s->n &&
        (!is_root || is_side(&out, recvbuf, (long long)recvcount * s->n, recvtype)) &&
        (in_place || is_side(&in, (void *)(uintptr_t)sendbuf, sendcount, sendtype))) {
        const size_t bytes = is_root ? bytes_of(&out) / (size_t)s->n : bytes_of(&in);
        if (bytes && pmpi_serves(s, CALL_Gather, bytes))
            return pmpi_end(s, CALL_Gather, bytes, gather(s, &in, &out, in_place, root));
    }
    pmpi_count(CALL_Gather, 0, 0);
    return PMPI_Gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm);
}

/* In place the root's part stays where it is; with gaps its copy is dropped. */
static symmResult_t scatter(pmpi_state *s, side *in, side *out, int in_place, int root,
                            size_t bytes) {
    symmResult_t r = s->rank == root ? load(s, in) : symmSuccess;
    if (!r && !in_place) r = room(s, out);
    char *to = in_place ? in->at + (size_t)root * bytes : out->at;
    if (!r)
        r = symmScatter(s->rank == root ? in->at : NULL, to, bytes, symmUint8, root, s->symm, NULL);
    return in_place ? r : store(s, out, r);
}
EXPORT int MPI_Scatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                       int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    const int in_place = recvbuf == MPI_IN_PLACE, is_root = s && s->rank == root;
    side in = {0}, out = {0};
    if (s && root >= 0 && root < s->n &&
        (!is_root ||
         is_side(&in, (void *)(uintptr_t)sendbuf, (long long)sendcount * s->n, sendtype)) &&
        (in_place || is_side(&out, recvbuf, recvcount, recvtype))) {
        const size_t bytes = is_root ? bytes_of(&in) / (size_t)s->n : bytes_of(&out);
        if (bytes && pmpi_serves(s, CALL_Scatter, bytes))
            return pmpi_end(s, CALL_Scatter, bytes, scatter(s, &in, &out, in_place, root, bytes));
    }
    pmpi_count(CALL_Scatter, 0, 0);
    return PMPI_Scatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm);
}

static symmResult_t all_to_all(pmpi_state *s, side *in, side *out, int in_place, size_t bytes) {
    symmResult_t r = room(s, out);
    if (!r && in_place && !out->l.contiguous)
        r = packed(s, out->buf, out->count, out->type, &out->l, out->at) ? symmSuccess
                                                                         : symmInternalError;
    if (!r && !in_place) r = load(s, in);
    if (!r) r = symmAlltoAll(in_place ? out->at : in->at, out->at, bytes, symmUint8, s->symm, NULL);
    return store(s, out, r);
}
EXPORT int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                        int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    const int in_place = sendbuf == MPI_IN_PLACE;
    side in = {0}, out;
    if (s && is_side(&out, recvbuf, (long long)recvcount * s->n, recvtype) && bytes_of(&out) &&
        (in_place ||
         is_side(&in, (void *)(uintptr_t)sendbuf, (long long)sendcount * s->n, sendtype))) {
        const size_t bytes = bytes_of(&out) / (size_t)s->n;
        if (pmpi_serves(s, CALL_Alltoall, bytes))
            return pmpi_end(s, CALL_Alltoall, bytes, all_to_all(s, &in, &out, in_place, bytes));
    }
    pmpi_count(CALL_Alltoall, 0, 0);
    return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

EXPORT int MPI_Barrier(MPI_Comm comm) {
    pmpi_state *s = pmpi_begin(comm);
    if (s && pmpi_serves(s, CALL_Barrier, 0))
        return pmpi_end(s, CALL_Barrier, 0, symmBarrier(s->symm, NULL));
    pmpi_count(CALL_Barrier, 0, 0);
    return PMPI_Barrier(comm);
}
