"""torch_train.py - what PyTorch programs do with NCCL, small, with results that can be compared.

    torchrun --nproc-per-node N torch_train.py BACKEND CASE

BACKEND is `nccl`, under symm-run the drop-in, or `gloo`, whose results are the reference. Rank 0
prints one line, `CASE: RESULT`; RESULT is the losses of ten steps, or `ok` where the words
themselves were checked. Ranks may share a GPU. One thread a process; scripts/campaign.sh runs it.
"""
import datetime
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS = 10


def step(net, optimizer, width, device):
    """A training step on data drawn by the rank's own seed; the mean loss of all ranks."""
    x = torch.randn(64, width, device=device)
    y = torch.randint(0, 10, (64,), device=device)
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


def train(net, width, device, seed):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    torch.manual_seed(100 + seed)
    return ["%.5f" % step(net, optimizer, width, device).item() for _ in range(STEPS)]


def layers(width, device):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(width, 303), nn.ReLU(), nn.Linear(303, 77), nn.ReLU(),
                         nn.Linear(77, 10)).to(device)


class HalfUsed(nn.Module):
    """Of two branches a step uses one, so the other's parameters have no gradient."""

    def __init__(self, device):
        super().__init__()
        self.branch = nn.ModuleList(layers(100, device) for _ in range(2))
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        return self.branch[self.turn % 2](x)


def case_collectives(rank, ranks, device):
    """Words of all_reduce, all_gather, reduce_scatter, broadcast, all_to_all."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for n in (1, 1000, 1 << 20):
            base = torch.arange(n, device=device).remainder(13)
            x = (base + rank).to(dtype)
            dist.all_reduce(x)
            assert torch.equal(x, (base * ranks + ranks * (ranks - 1) // 2).to(dtype)), n
            parts = [torch.empty(n, device=device, dtype=dtype) for _ in range(ranks)]
            dist.all_gather(parts, torch.full((n,), rank + 1, device=device, dtype=dtype))
            for r, part in enumerate(parts):
                assert torch.equal(part, torch.full_like(part, r + 1)), n
            out = torch.empty(n, device=device, dtype=dtype)
            dist.reduce_scatter_tensor(out, torch.ones(n * ranks, device=device, dtype=dtype))
            assert torch.equal(out, torch.full_like(out, ranks)), n
            dist.broadcast(x.fill_(rank + 5), ranks - 1)
            assert torch.equal(x, torch.full_like(x, ranks + 4)), n
            every = torch.empty(n * ranks, device=device, dtype=dtype)
            dist.all_to_all_single(every, torch.full_like(every, rank))
            first = every.view(ranks, n)[:, 0].cpu().float()
            assert torch.equal(first, torch.arange(ranks).float()), n
    return "ok"


def case_nonblocking(rank, ranks, device):
    """The same with communicators that are created without waiting (main)."""
    return case_collectives(rank, ranks, device)


def case_ddp(rank, _ranks, device):
    """Small buckets."""
    net = nn.parallel.DistributedDataParallel(layers(100, device), bucket_cap_mb=0.05)
    return train(net, 100, device, rank)


def case_unused(rank, _ranks, device):
    """Parameters that a step does not use."""
    net = nn.parallel.DistributedDataParallel(HalfUsed(device), find_unused_parameters=True)
    return train(net, 100, device, rank)


def shard(net, mesh=None):
    from torch.distributed.fsdp import fully_shard

    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def case_fsdp(rank, _ranks, device):
    """FSDP2 whose dimensions no number of ranks divides."""
    return train(shard(layers(101, device)), 101, device, rank)


def case_hsdp(rank, ranks, device):
    """Sharded in pairs of ranks, replicated across the pairs."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cuda", (ranks // 2, 2), mesh_dim_names=("replicate", "shard"))
    return train(shard(layers(101, device), mesh), 101, device, rank)


def case_tensor(_rank, ranks, device):
    """Tensor parallel: all ranks have the same data."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(96, 320), nn.ReLU(), nn.Linear(320, 10)).to(device)
    mesh = init_device_mesh("cuda", (ranks,))
    net = parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(net, 96, device, 0)


def case_pipeline(rank, ranks, device):
    """Each rank a stage: activations go on and gradients come back, batched with each other."""
    torch.manual_seed(1)
    stages = [nn.Linear(64, 64).to(device) for _ in range(ranks)]
    stage = stages[rank]
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
    torch.manual_seed(7)
    sums = []
    for _ in range(STEPS):
        x = torch.randn(3, 64, device=device)
        if rank:
            exchange([dist.P2POp(dist.irecv, x, rank - 1)])
        x.requires_grad_(True)
        y = stage(x)
        if rank + 1 < ranks:
            exchange([dist.P2POp(dist.isend, y.detach(), rank + 1)])
            gradient = torch.empty_like(y)
            exchange([dist.P2POp(dist.irecv, gradient, rank + 1)])
        else:
            gradient = 2 * y.detach() / y.numel()
        optimizer.zero_grad()
        y.backward(gradient)
        optimizer.step()
        if rank:
            exchange([dist.P2POp(dist.isend, x.grad, rank - 1)])
        total = stage.weight.detach().double().sum().float()
        dist.all_reduce(total)
        sums.append("%.4f" % total.item())
    ring = torch.full((100000,), float(rank), device=device)
    got = torch.empty_like(ring)
    exchange([dist.P2POp(dist.isend, ring, (rank + 1) % ranks),
              dist.P2POp(dist.irecv, got, (rank - 1) % ranks)])
    assert torch.equal(got, torch.full_like(got, float((rank - 1) % ranks)))
    return sums


def exchange(calls):
    """Sends and receives; by way of the host where gloo would be given memory of a GPU."""
    if dist.get_backend() == "gloo":
        for call in calls:
            call.given, call.tensor = call.tensor, call.tensor.cpu()
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    for call in calls:
        if dist.get_backend() == "gloo" and call.op == dist.irecv:
            call.given.copy_(call.tensor)


def case_uneven(rank, ranks, device):
    """all_to_all whose parts have different lengths, as a mixture of experts has them."""
    give = [(rank + 1) * 1000 + r for r in range(ranks)]
    take = [(r + 1) * 1000 + rank for r in range(ranks)]
    got = torch.empty(sum(take), device=device)
    dist.all_to_all_single(got, torch.full((sum(give),), float(rank), device=device), take, give)
    want = torch.cat([torch.full((n,), float(r)) for r, n in enumerate(take)])
    assert torch.equal(got.cpu(), want)
    return "ok"


def case_graph(_rank, ranks, device):
    """A CUDA graph of four all_reduces, replayed; the reference's words without one."""
    x = torch.ones(4096, device=device)
    if dist.get_backend() == "gloo":
        return "ok"
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        dist.all_reduce(x)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(4):
                dist.all_reduce(x)
        for _ in range(3):
            x.fill_(1)
            graph.replay()
            stream.synchronize()
            assert torch.equal(x, torch.full_like(x, float(ranks**4)))
    return "ok"


def case_abort(rank, ranks, device):
    """A collective that a rank never joins, aborted by all; then a new group."""
    group = dist.new_group()
    x = torch.ones(1000, device=device)
    dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    if dist.get_backend() == "nccl":
        if rank:
            dist.all_reduce(x, group=group, async_op=True)
        dist.distributed_c10d._abort_process_group(group)
    group = dist.new_group()
    x.fill_(1)
    dist.all_reduce(x, group=group)
    assert torch.equal(x, torch.full_like(x, float(ranks)))
    return "ok"


def main():
    backend, case = sys.argv[1:3]
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    if case == "nonblocking":
        os.environ["TORCH_NCCL_USE_COMM_NONBLOCKING"] = "1"
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
    result = globals()["case_" + case](rank, ranks, device)
    dist.barrier(device_ids=[device.index])
    dist.destroy_process_group()
    if rank == 0:
        print(case + ":", result if isinstance(result, str) else " ".join(result), flush=True)


main()
