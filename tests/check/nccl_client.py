# nccl_client.py LIBRARY RANKS - NCCL through ctypes, as vLLM's client declares it: the sixteen
# functions, the id by value, pointers as void*. Ranks are forked; numpy's memory if it is there.
import ctypes
import os
import sys

try:
    import numpy
except ImportError:
    numpy = None


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


comm_t = stream_t = window_t = buffer_t = ctypes.c_void_p
result_t = type_t = op_t = ctypes.c_int
size_t = ctypes.c_size_t
P = ctypes.POINTER
FUNCTIONS = {
    "ncclGetErrorString": (ctypes.c_char_p, [result_t]),
    "ncclGetVersion": (result_t, [P(ctypes.c_int)]),
    "ncclGetUniqueId": (result_t, [P(UniqueId)]),
    "ncclCommInitRank": (result_t, [P(comm_t), ctypes.c_int, UniqueId, ctypes.c_int]),
    "ncclAllReduce": (result_t, [buffer_t, buffer_t, size_t, type_t, op_t, comm_t, stream_t]),
    "ncclReduce": (
        result_t,
        [buffer_t, buffer_t, size_t, type_t, op_t, ctypes.c_int, comm_t, stream_t],
    ),
    "ncclAllGather": (result_t, [buffer_t, buffer_t, size_t, type_t, comm_t, stream_t]),
    "ncclReduceScatter": (result_t, [buffer_t, buffer_t, size_t, type_t, op_t, comm_t, stream_t]),
    "ncclSend": (result_t, [buffer_t, size_t, type_t, ctypes.c_int, comm_t, stream_t]),
    "ncclRecv": (result_t, [buffer_t, size_t, type_t, ctypes.c_int, comm_t, stream_t]),
    "ncclBroadcast": (
        result_t,
        [buffer_t, buffer_t, size_t, type_t, ctypes.c_int, comm_t, stream_t],
    ),
    "ncclCommDestroy": (result_t, [comm_t]),
    "ncclGroupStart": (result_t, []),
    "ncclGroupEnd": (result_t, []),
    "ncclCommWindowRegister": (
        result_t,
        [comm_t, buffer_t, size_t, P(window_t), ctypes.c_int],
    ),
    "ncclCommWindowDeregister": (result_t, [comm_t, window_t]),
}
INT32, SUM, MAX = 2, 0, 2

library, ranks = ctypes.CDLL(sys.argv[1]), int(sys.argv[2])
for name, (result, arguments) in FUNCTIONS.items():
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments


def ok(result):
    if result:
        raise SystemExit(library.ncclGetErrorString(result).decode())


class Memory:
    """count int32, as numpy's or ctypes'"""

    def __init__(self, values):
        if numpy:
            self.array = numpy.array(values, dtype=numpy.int32)
            self.at = self.array.ctypes.data
        else:
            self.array = (ctypes.c_int32 * len(values))(*values)
            self.at = ctypes.addressof(self.array)

    def values(self):
        return [int(x) for x in self.array]


def equal(name, memory, want):
    if memory.values() != want:
        raise SystemExit("%s: %s, not %s" % (name, memory.values(), want))


def work(rank, ident):
    comm, version, window = comm_t(), ctypes.c_int(), window_t()
    total = ranks * (ranks + 1) // 2
    ok(library.ncclGetVersion(ctypes.byref(version)))
    ok(library.ncclCommInitRank(ctypes.byref(comm), ranks, ident, rank))
    a, b, wide = Memory([rank + 1] * 4), Memory([0] * 4), Memory([0] * 4 * ranks)
    ok(library.ncclAllReduce(a.at, b.at, 4, INT32, SUM, comm, None))
    equal("all_reduce", b, [total] * 4)
    ok(library.ncclReduce(a.at, b.at, 4, INT32, MAX, 0, comm, None))
    if rank == 0:
        equal("reduce", b, [ranks] * 4)
    ok(library.ncclAllGather(a.at, wide.at, 4, INT32, comm, None))
    equal("all_gather", wide, [r + 1 for r in range(ranks) for _ in range(4)])
    ok(library.ncclReduceScatter(wide.at, b.at, 4, INT32, SUM, comm, None))
    equal("reduce_scatter", b, [ranks * (rank + 1)] * 4)
    ok(library.ncclBroadcast(a.at, b.at, 4, INT32, ranks - 1, comm, None))
    equal("broadcast", b, [ranks] * 4)
    ok(library.ncclGroupStart())
    ok(library.ncclSend(a.at, 4, INT32, (rank + 1) % ranks, comm, None))
    ok(library.ncclRecv(b.at, 4, INT32, (rank - 1) % ranks, comm, None))
    ok(library.ncclGroupEnd())
    equal("recv", b, [(rank - 1) % ranks + 1] * 4)
    memory = ctypes.c_void_p()
    ok(library.ncclMemAlloc(ctypes.byref(memory), size_t(4096)))
    ok(library.ncclCommWindowRegister(comm, memory, 4096, ctypes.byref(window), 1))
    ok(library.ncclCommWindowDeregister(comm, window))
    ok(library.ncclCommDestroy(comm))
    ok(library.ncclMemFree(memory))


ident, children = UniqueId(), []
ok(library.ncclGetUniqueId(ctypes.byref(ident)))
for rank in range(1, ranks):
    child = os.fork()
    if child == 0:
        work(rank, ident)
        os._exit(0)
    children.append(child)
work(0, ident)
if any(os.waitpid(child, 0)[1] for child in children):
    raise SystemExit("a rank failed")
print("%d ranks" % ranks)
