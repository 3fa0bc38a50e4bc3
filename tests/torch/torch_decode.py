"""torch_decode.py - CUDA graphs of small all_reduces, as a model has them that makes one word after
the other.

    torchrun --nproc-per-node N torch_decode.py plain|pool

Times a replay of 80 all_reduces of bfloat16: a graph for each size from 8 to 512 KB, and one with
all sizes in turn. `pool`: tensors of the backend's own memory, registered as windows. Rank 0 prints
one line, `decode MODE: US...`, the slowest rank's median of 30 replays for each graph. Under
symm-run the drop-in, else NCCL. A GPU for each rank; one thread a process.
"""
import datetime
import os
import sys

import torch
import torch.distributed as dist

CALLS, REPLAYS, WARM = 80, 30, 5
SIZES = [8, 16, 32, 64, 128, 256, 512]  # KB


def tensors(mode, device):
    """The tensors, and what must live as long as they do."""
    def make():
        return [torch.zeros(k * 512, dtype=torch.bfloat16, device=device) for k in SIZES]

    if mode == "plain":
        return make(), None
    backend = dist.distributed_c10d._get_default_group()._get_backend(device)
    pool = torch.cuda.MemPool(backend.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        made = make()
    backend.register_mem_pool(pool, symm=True)
    return made, pool


def check(xs, ranks):
    """Each sums right; then zeros, which stay so however often they are summed."""
    for x in xs:
        x.fill_(1)
        dist.all_reduce(x)
        assert torch.equal(x, torch.full_like(x, ranks))
        x.zero_()


def replay_us(xs, stream, device):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(CALLS):
            dist.all_reduce(xs[i % len(xs)])
    times = []
    for i in range(WARM + REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        graph.replay()
        end.record(stream)
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    median = torch.tensor(sorted(times[WARM:])[REPLAYS // 2], device=device)
    dist.all_reduce(median, op=dist.ReduceOp.MAX)
    return "%.1f" % median.item()


def main():
    mode = sys.argv[1]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=60), device_id=device)
    dist.barrier(device_ids=[device.index])
    xs, pool = tensors(mode, device)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        check(xs, ranks)
        result = [replay_us(some, stream, device) for some in [[x] for x in xs] + [xs]]
    if rank == 0:
        print("decode " + mode + ":", " ".join(result), flush=True)
    dist.barrier(device_ids=[device.index])
    del xs, pool
    dist.destroy_process_group()


main()
