#!/bin/sh
# run.sh - what `make run` shows: our time beside Open MPI's, on 2 to 4 ranks of this machine.
set -eu
cd "$(dirname "$0")/.."
. scripts/mpi.sh

cores=$(nproc 2>/dev/null || echo 2)
ranks=$((cores < 2 ? 2 : cores > 4 ? 4 : cores))
for collective in all_reduce all_gather; do
    launch "$ranks" "$BIN/symm-perf" "$collective" -b 1K -e 16M -f 4 --vs mpi
    echo
done
