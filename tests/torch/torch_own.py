"""torch_own.py - PyTorch's own tests of torch.distributed over NCCL, as its package carries them.

    torch_own.py [--ranks N] [--jobs N] [--only FILE] [--log FILE]

A line per test as it ends: `NAME ok`, `NAME FAILED` or `NAME skipped`. FILE of --only has the names
of the tests to run. What the tests say goes to the log. Each test is N processes with a GPU each,
started for it; --jobs of them run side by side. Under symm-run the drop-in, else NCCL;
scripts/campaign.sh runs both and compares. Every process loads this file again.
"""
import argparse
import multiprocessing
import os
import queue
import sys
import tempfile
import unittest


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--log", default=os.devnull)
    parser.add_argument("--backend", default="nccl")  # gloo: this program itself, without a GPU
    return parser.parse_args()


if __name__ == "__main__":
    # PyTorch's tests read these when they are loaded.
    ARGS = arguments()
    os.environ["BACKEND"] = ARGS.backend
    os.environ["WORLD_SIZE"] = str(ARGS.ranks)
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "100")

from torch.testing._internal.distributed import distributed_test as theirs  # noqa: E402


class Own(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()


def word_of(result):
    if result.errors or result.failures or result.unexpectedSuccesses:
        return "FAILED"
    return "skipped" if result.skipped or result.expectedFailures else "ok"


def work(names, results, log):
    """Takes names until there are none."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    while True:
        try:
            name = names.get(timeout=1)
        except queue.Empty:
            return
        with tempfile.TemporaryDirectory() as directory:
            os.environ["TEMP_DIR"] = directory
            result = unittest.TestResult()
            unittest.TestSuite([Own(name)]).run(result)
            for _, text in result.errors + result.failures:
                print("---- %s\n%s" % (name, text), flush=True)
        results.put((name, word_of(result)))


def main():
    chosen = unittest.TestLoader().getTestCaseNames(Own)
    if ARGS.only:
        with open(ARGS.only) as file:
            wanted = set(file.read().split())
        chosen = [name for name in chosen if name in wanted]
    # What PyTorch takes in begins CUDA, which a process that was forked cannot use then.
    new = multiprocessing.get_context("spawn")
    names, results = new.Queue(), new.Queue()
    for name in chosen:
        names.put(name)
    workers = [new.Process(target=work, args=(names, results, ARGS.log))
               for _ in range(ARGS.jobs)]
    for worker in workers:
        worker.start()
    failed = False
    for _ in chosen:
        name, word = results.get()
        print(name, word, flush=True)
        failed |= word == "FAILED"
    for worker in workers:
        worker.join()
    sys.exit(failed)


if __name__ == "__main__":
    main()
