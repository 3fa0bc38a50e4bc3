"""vllm_model.py - a Llama of random weights, and the beginnings that it is asked to go on from.

Taken in by vllm_ranks.py and vllm_server.py, whose words have to be the same.
"""
import importlib.util
import os

import torch

BEGINS = [[(r * 97 + i * 31) % 1000 for i in range(5 + 20 * r)] for r in range(4)]
WORDS = 24
# Decoding with CUDA graphs, nothing compiled.
GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4]}


def set_variables():
    """To be called before vLLM is loaded."""
    # A way that is not NCCL's, over NVLink's multicast.
    os.environ["VLLM_ALLREDUCE_USE_SYMM_MEM"] = "0"
    os.environ["VLLM_USE_NCCL_SYMM_MEM"] = "1"
    if not importlib.util.find_spec("flashinfer"):
        os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"


def save_model(path):
    """The same weights on every rank, large enough to prefer some words clearly."""
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(7)
    config = LlamaConfig(vocab_size=1024, hidden_size=512, intermediate_size=1024,
                         num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4,
                         max_position_embeddings=512, initializer_range=0.2,
                         torch_dtype="float32")
    LlamaForCausalLM(config).save_pretrained(path)


def save_tokenizer(path):
    """A word for each number, which servers ask for."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    words = {"w%d" % i: i for i in range(1024)}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")),
                            unk_token="w0").save_pretrained(path)
