#!/bin/sh
# run.sh - what `make run` shows: our time beside NCCL's on the GPUs of this machine, or, where
# there are fewer than two, beside Open MPI's on 2 to 4 ranks of its cores.
set -eu
cd "$(dirname "$0")/.."
. scripts/mpi.sh
. scripts/gpu.sh

devices=$(gpus)
if [ "$devices" -ge 2 ]; then
    find_nccl
    for collective in all_reduce all_gather; do
        # shellcheck disable=SC2086 # vs is words
        launch_gpus "$((devices < 8 ? devices : 8))" "$BIN/symm-perf" "$collective" -b 1K \
            -e 256M -f 4 -R 2 -G 2 -n 40 --rounds 5 $vs
        echo
    done
    exit
fi

cores=$(nproc 2>/dev/null || echo 2)
ranks=$((cores < 2 ? 2 : cores > 4 ? 4 : cores))
export SYMM_BACKEND=host
for collective in all_reduce all_gather reduce_scatter alltoall broadcast; do
    launch "$ranks" "$BIN/symm-perf" "$collective" -b 1K -e 16M -f 4 --vs mpi
    echo
done
