"""vllm_server.py - vLLM's server over NCCL, asked by several clients at once.

    vllm_server.py RANKS

Starts the server of its package with a GPU for each rank, its workers processes of its own, and
sends it the four beginnings of vllm_model.py, ten rounds, all four at once. Prints one line,
`server: WORDS`, the words that one rank alone must write (vllm_ranks.py, case `model`), which each
round has to give. Under symm-run the drop-in, else NCCL. A thread for each question;
scripts/campaign.sh runs it.
"""
import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import vllm_model

ROUNDS = 10
STARTS_IN = 180  # seconds


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(path, ranks, port):
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", path,
            "--served-model-name", "small", "--host", "127.0.0.1", "--port", str(port),
            "--tensor-parallel-size", str(ranks), "--dtype", "float32", "--max-model-len", "256",
            "--disable-custom-all-reduce", "--attention-backend", "TRITON_ATTN",
            "--kv-cache-memory-bytes", str(256 << 20), "--gpu-memory-utilization", "0.2",
            "--seed", "1", "--compilation-config", json.dumps(vllm_model.GRAPHS)]


def ready(server, url):
    end = time.monotonic() + STARTS_IN
    while time.monotonic() < end:
        if server.poll() is not None:
            sys.exit("the server ended before it was ready")
        try:
            urllib.request.urlopen(url + "/health", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    sys.exit("the server was not ready after %d s" % STARTS_IN)


def ask(url, begin):
    """What the model writes on from there."""
    question = {"model": "small", "prompt": begin, "max_tokens": vllm_model.WORDS,
                "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(question).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["token_ids"]


def rounds(url):
    with concurrent.futures.ThreadPoolExecutor(len(vllm_model.BEGINS)) as clients:
        for _ in range(ROUNDS):
            yield list(clients.map(lambda begin: ask(url, begin), vllm_model.BEGINS))


def main():
    vllm_model.set_variables()
    with tempfile.TemporaryDirectory() as path:
        vllm_model.save_model(path)
        vllm_model.save_tokenizer(path)
        port = free_port()
        url = "http://127.0.0.1:%d" % port
        server = subprocess.Popen(command(path, int(sys.argv[1]), port), stdout=sys.stderr,
                                  start_new_session=True)
        try:
            ready(server, url)
            said = list(rounds(url))
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                print("the server did not end by itself", file=sys.stderr)
                os.killpg(server.pid, signal.SIGKILL)
    if any(one != said[0] for one in said):
        sys.exit("rounds differ: %s" % said)
    print("server:", " ".join(str(word) for one in said[0] for word in one))


if __name__ == "__main__":
    main()
