"""torch_train.py - what PyTorch programs do with NCCL, small, with results that can be compared.

    torchrun --nproc-per-node N torch_train.py BACKEND CASE

BACKEND is `nccl`, under symm-run the drop-in, or `gloo`, whose results are the reference. Rank 0
prints one line, `CASE: RESULT`; RESULT is `ok` where the words themselves were checked. Where a
net is trained it is the losses of the steps, which must fall, and for each rank two sums: over the
weights that it holds, and over the gradients at the input. Each word has a factor of its own.

Before a collective adds something up, it is rounded to so few bits that every order gives the exact
sum, if ranks are a power of two and no more than 8. So two backends have the same result in every
digit. That an error would show is tried, too: the training is repeated with one wrong word, for
each call of the construction and of the last step, on the first rank and on the last.

Ranks may share a GPU. One thread a process; scripts/campaign.sh runs it.
"""
import datetime
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

STEPS = 20
RATE = 0.2
GRID = 2.0**18


class Wire(TorchDispatchMode):
    """Sees what torch.distributed is given while it is entered.

    What a rank contributes to a sum is rounded to the grid and cut to 8. Contribution number
    `error` is wrong: its largest word is a thousandth too large. `live` tells of each whether it
    has a word that is not 0: else there is nothing to be wrong.
    """

    def __init__(self, error=None):
        super().__init__()
        self.error, self.live, self.steps = error, [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace in ("c10d", "_c10d_functional"):
            for x in contributed(func.__name__, args):
                if "reduce" in func.__name__:
                    x.copy_((x * GRID).round_().clamp_(-8 * GRID, 8 * GRID) / GRID)
                if len(self.live) == self.error:
                    size = x.abs()
                    x.mul_(torch.where(size == size.max(), 1.001, 1.0))
                self.live.append(x.any())
        return func(*args, **(kwargs or {}))


def contributed(name, args):
    """The floats that a call takes from this rank: its inputs come after its outputs."""
    if name.startswith(("recv", "wait", "_wrap")):
        return []
    if name.startswith(("broadcast", "scatter")) and dist.get_rank():
        return []
    inputs = tree_leaves(args[1:2])
    if not inputs or not isinstance(inputs[0], torch.Tensor):
        inputs = tree_leaves(args[:1])
    return [x for x in inputs if isinstance(x, torch.Tensor) and x.is_floating_point()]


def weighted(x):
    """The sum of all words, each by a factor of its own."""
    x = x.detach().double().flatten()
    return (x * torch.linspace(1, 2, x.numel(), dtype=x.dtype, device=x.device)).sum()


def data(width, device, rows=64):
    """Drawn by the rank's own seed: patterns and noise, labels say which pattern."""
    y = torch.randint(0, 10, (rows,), device=device)
    patterns = torch.arange(width * 10, device=device).sin().view(10, width)
    x = torch.randn(rows, width, device=device) + patterns[y]
    return x.requires_grad_(True), y


def mean_of_ranks(loss):
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


class Trainer:
    """A net and how it is trained. A call is a step: the mean loss, the gradient at the input."""

    def __init__(self, net, width, device):
        self.net, self.width, self.device = net, width, device
        self.optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def __call__(self):
        x, y = data(self.width, self.device)
        loss = self.step(x, y)
        return mean_of_ranks(loss), x.grad

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


def once(make, wire, seed):
    """Trains what make() makes: the losses, then each rank's sums."""
    with wire:
        trainer = make()
        torch.manual_seed(100 + seed)
        losses, inner = [], 0.0
        for _ in range(STEPS):
            wire.steps.append(len(wire.live))
            loss, gradient = trainer()
            losses.append("%.7f" % loss.item())
            inner += weighted(gradient).item()
    parts = [p.to_local() if hasattr(p, "to_local") else p for p in trainer.net.parameters()]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, "%.15g %.15g" % (sum(weighted(p).item() for p in parts), inner))
    return losses + every


def train(make, seed):
    """The result, once it is sure that errors would show in it."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    wire = Wire()
    result = once(make, wire, seed)
    assert once(make, Wire(), seed) == result, "it is not the same twice"
    assert float(result[STEPS - 1]) < 0.8 * float(result[0]), result
    last = max(k for k in wire.steps if k < len(wire.live))  # a replay makes no calls
    live = [k for k in range(len(wire.live)) if k < wire.steps[0] or k >= last]
    every = [None] * ranks
    dist.all_gather_object(every, [k for k in live if wire.live[k].item()])
    found = 0
    for r in (0, ranks - 1):
        assert every[r], "rank %d contributes nothing" % r
        for k in every[r]:
            wrong = once(make, Wire(k if rank == r else None), seed)
            assert wrong != result, "contribution %d of rank %d: no error shows" % (k, r)
            found += 1
    if rank == 0:
        print("%d errors of one word show in the result" % found, file=sys.stderr)
    return result


def layers(width, device, seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, 303), nn.ReLU(), nn.Linear(303, 77), nn.ReLU(),
                         nn.Linear(77, 10)).to(device)


class HalfUsed(nn.Module):
    """Of two branches a step uses one, so the other's parameters have no gradient."""

    def __init__(self, device, seed):
        super().__init__()
        self.branch = nn.ModuleList(layers(100, device, seed) for _ in range(2))
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
    """Small buckets. The weights that count are rank 0's."""
    def make():
        net = layers(100, device, rank)
        return Trainer(nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.05), 100, device)

    return train(make, rank)


def case_unused(rank, _ranks, device):
    """Parameters that a step does not use."""
    def make():
        net = HalfUsed(device, rank)
        net = nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
        return Trainer(net, 100, device)

    return train(make, rank)


def shard(net, mesh=None):
    from torch.distributed.fsdp import fully_shard

    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def case_fsdp(rank, _ranks, device):
    """FSDP2 whose dimensions no number of ranks divides."""
    return train(lambda: Trainer(shard(layers(101, device)), 101, device), rank)


def case_hsdp(rank, ranks, device):
    """Sharded in pairs of ranks, replicated across the pairs."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cuda", (ranks // 2, 2), mesh_dim_names=("replicate", "shard"))
    return train(lambda: Trainer(shard(layers(101, device), mesh), 101, device), rank)


def case_tensor(_rank, ranks, device):
    """Tensor parallel: all ranks have the same data."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    mesh = init_device_mesh("cuda", (ranks,))

    def make():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(96, 320), nn.ReLU(), nn.Linear(320, 10)).to(device)
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        return Trainer(parallelize_module(net, mesh, plan), 96, device)

    return train(make, 0)


class Captured(Trainer):
    """The first step is called; then one is captured, and replayed for each that follows."""

    def __init__(self, net, width, device):
        super().__init__(net, width, device)
        self.stream, self.graph, self.x = torch.cuda.Stream(), None, None

    def __call__(self):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.turn(*data(self.width, self.device))
        torch.cuda.current_stream().wait_stream(self.stream)
        return result

    def turn(self, x, y):
        if self.x is None or dist.get_backend() == "gloo":
            self.x, self.y = x, y
            self.loss = self.step(x, y)
        else:
            with torch.no_grad():
                self.x.copy_(x)
                self.y.copy_(y)
            if self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph, stream=self.stream):
                    self.loss = self.step(self.x, self.y)
            self.graph.replay()
        return self.loss, self.x.grad

    def step(self, x, y):
        x.grad = None
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        self.optimizer.step()
        return mean_of_ranks(loss)


def case_captured(rank, _ranks, device):
    """A step in a CUDA graph: all_reduces, what follows them, and what is before."""
    return train(lambda: Captured(layers(100, device), 100, device), rank)


class Stage(Trainer):
    """A rank's part of a pipeline: activations go on and gradients come back."""

    def __call__(self):
        rank, last = dist.get_rank(), dist.get_world_size() - 1
        x, labels = data(self.width, self.device)
        given = x.detach().clone()
        if rank:
            exchange([dist.P2POp(dist.irecv, given, rank - 1)])
        given.requires_grad_(True)
        y = self.net(given)
        self.optimizer.zero_grad()
        if rank < last:
            exchange([dist.P2POp(dist.isend, y.detach(), rank + 1)])
            gradient = torch.empty_like(y)
            exchange([dist.P2POp(dist.irecv, gradient, rank + 1)])
            y.backward(gradient)
            loss = torch.zeros((), device=self.device)
        else:
            loss = nn.functional.cross_entropy(y, labels)
            loss.backward()
        self.optimizer.step()
        if rank:
            exchange([dist.P2POp(dist.isend, given.grad, rank - 1)])
        return mean_of_ranks(loss) * (last + 1), given.grad


def case_pipeline(rank, ranks, device):
    """Each rank a stage: all have the same data. Then a ring, batched."""
    def make():
        torch.manual_seed(rank)
        last = nn.Linear(64, 10 if rank + 1 == ranks else 64).to(device)
        return Stage(nn.Sequential(nn.Tanh() if rank else nn.Identity(), last), 64, device)

    result = train(make, 7)
    ring = torch.full((100000,), float(rank), device=device)
    got = torch.empty_like(ring)
    exchange([dist.P2POp(dist.isend, ring, (rank + 1) % ranks),
              dist.P2POp(dist.irecv, got, (rank - 1) % ranks)])
    assert torch.equal(got, torch.full_like(got, float((rank - 1) % ranks)))
    return result


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
