/* launch_copies.c - the data of a call by copy engines (copies.h): a kernel that meets the other
 * ranks, then copies. What the stream is given next comes behind both. The communicator's user
 * thread, with its context current; no lock. */
#include "base/check.h"
#include "host/coll/copies.h"
#include "host/comm/comm.h"
#include "host/gpu/gpu.h"
#include "launch.h"

enum { THREADS = 64 }; /* a warp for the places of buffers, and the one for signatures */

static symmResult_t copy(const symm_copy *k, symmStream_t stream) {
    const cu_result cu = symm_cu.cuMemcpyAsync((uintptr_t)k->to, (uintptr_t)k->from, k->bytes,
                                               symm_gpu_stream(stream));
    return symm_cuda_error(cu, "copying %llu bytes", (unsigned long long)k->bytes);
}

/* One behind the other: they share the link of this rank. */
static symmResult_t copy_peers(const symm_copies *k, symmStream_t stream) {
    for (int i = 0; i < k->n; i++) SYMM_TRY(copy(&k->peer[i], stream));
    return symmSuccess;
}

/* The own part behind the others. A stream of the communicator's own would carry it beside them,
 * but might share a queue of the GPU with another one, whose kernels would wait behind it. */
static symmResult_t copy_in_turn(const symm_copies *k, symmStream_t stream) {
    SYMM_TRY(copy_peers(k, stream));
    return k->own.bytes ? copy(&k->own, stream) : symmSuccess;
}

/* The node behind which the next one comes. */
static symmResult_t last_node(symmStream_t stream, cu_graph_node *node) {
    const cu_graph_node *deps = NULL;
    cu_graph graph = NULL;
    size_t n = 0;
    const cu_result cu = symm_cuda_capture_deps(symm_gpu_stream(stream), &graph, &deps, &n);
    SYMM_TRY(symm_cuda_error(cu, "asking for the last node of a capture"));
    SYMM_ASSERT(n == 1);
    *node = deps[0];
    return symmSuccess;
}
static symmResult_t set_nodes(symmStream_t stream, cu_graph_node *nodes, size_t n) {
    return symm_cuda_error(symm_cuda_capture_set_deps(symm_gpu_stream(stream), nodes, n),
                           "setting what the next node of a capture depends on");
}

/* In a graph the own part is beside the others, if the driver shows nodes. */
static symmResult_t copy_captured(const symm_copies *k, symmStream_t stream) {
    cu_graph_node met, ends[2];
    if (!k->own.bytes || !k->n || !symm_cuda_sees_graphs()) return copy_in_turn(k, stream);
    SYMM_TRY(last_node(stream, &met));
    SYMM_TRY(copy(&k->own, stream));
    SYMM_TRY(last_node(stream, &ends[0]));
    SYMM_TRY(set_nodes(stream, &met, 1));
    SYMM_TRY(copy_peers(k, stream));
    SYMM_TRY(last_node(stream, &ends[1]));
    return set_nodes(stream, ends, 2);
}

symmResult_t symm_launch_copies(symm_comm *c, const symm_launch *l, symmStream_t stream,
                                const symm_gpu_capture *in) {
    symm_args with = l->args;
    symm_copies k;
    const symm_gpu_grid grid = {c->gpu->copies, 1, THREADS, SYMM_GRID_OVERLAPS};
    void *args[] = {&with};
    SYMM_ASSERT(with.flags & SYMM_ARG_COPIES && !with.gpu.serial);
    with.nctas = 1;
    /* astray: written by the kernel that goes before copies, of calls that run already */
    const int gives = l->from && !__atomic_load_n(&c->ctl->astray, __ATOMIC_RELAXED);
    if (!gives) with.scalar = 0;
    SYMM_TRY(symm_launch_kernel(c, &grid, args, stream, in->id));
    if (!gives) return symmSuccess;
    symm_copies_list(l, &k);
    return in->graph ? copy_captured(&k, stream) : copy_in_turn(&k, stream);
}
