#!/bin/sh
# bench_memory.sh - the figures of memory objects. Usage: bench_memory.sh DIRECTORY PROGRAMS, the
# directory of the benchmark programs. Tables go to the screen, tables (.txt) and JSON to
# DIRECTORY/memory-*. Nothing else should run on the machine meanwhile.
#
#   1  placement and arenas on traces of allocators, beside glibc's malloc; a trace that is written
#      and replayed
#   2  lanes on the host backend: pairs, at random, graphs, 64 lanes
#   3  if there is MPI: heaps on the host backend with 1, 2 and 4 ranks: calls on SYM and LOCAL,
#      what they send, growth
#   4  if there is a GPU: CUDA's stream-ordered pool beside lanes and arenas; what calls, launches,
#      pairs of arenas and pushes cost; heaps on as many ranks as there are GPUs
#
# BENCH=quick: short traces; BENCH=all: every maximum of RMM's random allocations.
# SYMM_BACKEND=host: no GPU.
set -u
cd "$(dirname "$0")/.." || exit 2
. scripts/mpi.sh
. scripts/gpu.sh

out=$1
programs=$2
mkdir -p "$out" || exit 2
status=0
args=
case ${BENCH:-} in
quick | all) args=--$BENCH ;;
'') ;;
*) echo "BENCH=$BENCH: quick, all or nothing" >&2 && exit 2 ;;
esac

# part TITLE NAME COMMAND...: its output on the screen and in DIRECTORY/memory-NAME.txt; what fails
# is told, and the rest still runs.
part() {
    title=$1 name=$2
    shift 2
    echo
    echo "==== $title"
    rm -f "$out/memory-$name.status" # of a run that was interrupted
    { "$@" && echo ok >"$out/memory-$name.status"; } 2>&1 | tee "$out/memory-$name.txt"
    if [ "$(cat "$out/memory-$name.status" 2>/dev/null)" != ok ]; then
        echo "==== failed: $title"
        status=1
    fi
    rm -f "$out/memory-$name.status"
}
# The tests that measure write their figures into the file that GPU_FIGURES names.
figures() { # program tests...
    rm -f "$out/figures"
    GPU_FIGURES="$out/figures" "$@" >"$out/figures.tap" 2>&1 ||
        { cat "$out/figures.tap" && return 1; }
    cat "$out/figures"
    rm -f "$out/figures" "$out/figures.tap"
}
heaps() { # backend ranks
    launch "$2" env SYMM_BACKEND="$1" "$programs/bench_heap" --json "$out/memory-heap-$1-$2.json"
}

devices=$(gpus)
part "placement and arenas" place env SYMM_BACKEND=host "$programs/bench_memory" $args \
    --json "$out/memory-place.json"
part "a trace, written and replayed" replay env SYMM_BACKEND=host "$programs/bench_memory" \
    --write "$out/trace.csv" --replay "$out/trace.csv"
part "lanes, host backend" lane env SYMM_BACKEND=host "$programs/bench_lane" \
    --json "$out/memory-lane.json"
if [ -x "$programs/bench_heap" ] && command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1; then
    for ranks in 1 2 4; do
        part "heaps, host backend, ranks: $ranks" heap-host-$ranks heaps host $ranks
    done
else
    echo "==== no heaps: bench_heap needs MPI"
fi

if [ "$devices" -eq 0 ]; then
    echo "==== no figures of GPUs: there is none, or SYMM_BACKEND=host"
    exit $status
fi
export SYMM_BACKEND=cuda
part "CUDA's pool, lanes and arenas on a GPU" gpu "$programs/bench_memory_gpu" $args \
    --json "$out/memory-gpu.json"
part "calls and launches on a GPU" gpu-lane figures "$programs/gpu_lane_cost"
part "pairs of arenas on a GPU" gpu-arena figures "$programs/gpu_arena" what_pairs_cost
part "synced buffers on a GPU" gpu-synced figures "$programs/gpu_synced" figures
if [ -x "$programs/bench_heap" ] && command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1; then
    for ranks in 1 2 4 8; do
        [ "$ranks" -gt "$devices" ] ||
            part "heaps on GPUs, ranks: $ranks" heap-cuda-$ranks heaps cuda $ranks
    done
fi
exit $status
