"""vllm_ranks.py - vLLM's own communicator and engine over NCCL, small, with results that are known.

    torchrun --nproc-per-node N vllm_ranks.py CASE

`comm`: every call of vLLM's communicator, eager and in a graph, and its allocator whose pool it
registers as windows; each word is checked. `model`: a Llama of random weights, cut over the ranks,
writes on from four beginnings; rank 0 prints the words, which one rank alone must write, too.
`graph`: the same, decoding with CUDA graphs. Rank 0 prints one line, `CASE: RESULT`. Ranks may
share a GPU. Under symm-run the drop-in, else NCCL. One thread a process; scripts/campaign.sh runs
it.
"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import vllm_model

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# vLLM takes the GPU of this number.
os.environ["LOCAL_RANK"] = str(RANK % torch.cuda.device_count())
vllm_model.set_variables()
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8)
COUNTS = (1, 1000, 4096, 1 << 20)


def want(n, dtype, device):
    """Words of all ranks and their sum, small enough for each type."""
    base = torch.arange(n, device=device).remainder(7)
    words = [(base + r).to(dtype) for r in range(RANKS)]
    return words, (base * RANKS + RANKS * (RANKS - 1) // 2).to(dtype)


def check_reductions(comm, n, dtype, device):
    words, total = want(n, dtype, device)
    assert torch.equal(comm.all_reduce(words[RANK].clone()), total)
    if n % RANKS == 0:
        part = n // RANKS
        out = torch.empty(part, dtype=dtype, device=device)
        comm.reduce_scatter(out, words[RANK].clone())
        assert torch.equal(out, total[RANK * part:(RANK + 1) * part])
    sizes = uneven(n)
    out = torch.empty(sizes[RANK], dtype=dtype, device=device)
    comm.reduce_scatterv(out, words[RANK].clone(), sizes)
    assert torch.equal(out, total.split(sizes)[RANK])


def uneven(n):
    """n cut into parts of different sizes, some of none."""
    first = n // 3
    return [first] + [0] * (RANKS - 2) + [n - first]


def check_moves(comm, n, dtype, device):
    words, _ = want(n, dtype, device)
    out = torch.empty(n * RANKS, dtype=dtype, device=device)
    comm.all_gather(out, words[RANK])
    assert torch.equal(out, torch.cat(words))
    sizes = uneven(n)
    out = torch.empty(n, dtype=dtype, device=device)
    comm.all_gatherv(out, words[RANK][:sizes[RANK]].clone(), sizes)
    assert torch.equal(out, torch.cat([w[:s] for w, s in zip(words, sizes)]))
    for root in range(RANKS):
        x = words[RANK].clone()
        comm.broadcast(x, root)
        assert torch.equal(x, words[root])
    out = torch.empty_like(words[0])
    before = (RANK - 1) % RANKS
    comm.group_start()
    comm.send(words[RANK], (RANK + 1) % RANKS)
    comm.recv(out, before)
    comm.group_end()
    assert torch.equal(out, words[before])


def check_graph(comm, device):
    """Sums in a graph, replayed over new words."""
    x = torch.zeros(4096, dtype=torch.bfloat16, device=device)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        y = comm.all_reduce(x)
        z = comm.all_reduce(y)
    for turn in range(3):
        x.fill_(turn + RANK)
        graph.replay()
        total = turn * RANKS + RANKS * (RANKS - 1) // 2
        assert torch.equal(z, torch.full_like(z, total * RANKS)), turn


def check_pool(comm, device):
    """Tensors of vLLM's allocator, which makes windows of its pool."""
    from vllm.distributed.device_communicators import pynccl_allocator as pool
    with pool.nccl_symm_mem_context(comm):
        x = torch.empty(1 << 20, dtype=torch.bfloat16, device=device)
        y = torch.empty_like(x)
    assert pool.is_symmetric_memory_tensor(x), "vLLM's allocator was not built"
    x.fill_(RANK + 1)
    comm.all_reduce(x, y)
    assert torch.equal(y, torch.full_like(y, RANKS * (RANKS + 1) // 2))


def case_comm():
    from vllm.distributed.device_communicators.pynccl import PyNcclCommunicator
    dist.init_process_group("gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    comm = PyNcclCommunicator(dist.group.WORLD, device)
    assert comm.available
    for dtype in DTYPES:
        for n in COUNTS:
            check_reductions(comm, n, dtype, device)
            check_moves(comm, n, dtype, device)
    check_graph(comm, device)
    check_pool(comm, device)
    torch.cuda.synchronize()
    return "ok"


def words_of_model(graphs):
    from vllm import LLM, SamplingParams
    options = {"compilation_config": vllm_model.GRAPHS} if graphs else {"enforce_eager": True}
    with tempfile.TemporaryDirectory() as path:
        vllm_model.save_model(path)
        llm = LLM(model=path, skip_tokenizer_init=True, dtype="float32", max_model_len=256,
                  tensor_parallel_size=RANKS, distributed_executor_backend="external_launcher",
                  disable_custom_all_reduce=True, attention_config={"backend": "TRITON_ATTN"},
                  kv_cache_memory_bytes=256 << 20, gpu_memory_utilization=0.2, seed=1, **options)
        begins = [{"prompt_token_ids": begin} for begin in vllm_model.BEGINS]
        made = llm.generate(begins, SamplingParams(temperature=0, max_tokens=vllm_model.WORDS,
                                                   detokenize=False, ignore_eos=True),
                            use_tqdm=False)
    return " ".join(str(word) for one in made for word in one.outputs[0].token_ids)


def main():
    case = sys.argv[1]
    result = case_comm() if case == "comm" else words_of_model(case == "graph")
    if RANK == 0:
        print(case + ":", result, flush=True)
    # Python's own end would take the engine apart in any order.
    if dist.is_initialized():
        dist.barrier()
    os._exit(0)


main()
