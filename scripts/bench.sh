#!/bin/sh
# bench.sh - the figures of docs/performance.md. Usage: bench.sh DIRECTORY [benchmark programs].
# Tables go to the screen, JSON and SVG to DIRECTORY. Nothing else should run on the machine
# meanwhile.
#
# With two GPUs or more it makes the GPU tables, beside NCCL:
#   - A table whose JSON exists is not made again, so an interrupted run can be continued
#     (BENCH_FORCE=1 makes all).
#   - A table without NCCL is made again if there is NCCL now.
# Otherwise, or with SYMM_BACKEND=host, it measures the host backend, beside Open MPI, and beside
# the better of Open MPI and MPICH, whichever are there. Then the benchmark programs run: those of
# GPUs if there is one, the others on the host backend.
set -eu
cd "$(dirname "$0")/.."
. scripts/mpi.sh
. scripts/gpu.sh
. scripts/gpu_tables.sh

out=$1
shift
mkdir -p "$out"
status=0

gpu_tables() {
    find_nccl
    for ranks in 2 4 8; do
        [ "$ranks" -le "$devices" ] || continue
        for collective in all_reduce all_gather; do gpu_tables_of "$ranks" "$collective"; done
    done
}

# best_mpi COLLECTIVE RANKS REGISTERED: a table beside each MPI that was found when this was built,
# with a program of its own; then the better of them beside ours, for each size.
best_mpi() {
    stem=$out/mpi-$1-$2-R$3 collective=$1 ranks=$2 registered=$3
    set --
    for mpi in openmpi mpich; do
        program=$BIN/bench/symm-perf-$mpi
        [ -x "$program" ] || continue
        if MPIRUN=mpirun.$mpi launch "$ranks" "$program" "$collective" -b 1K -e 64M -f 4 \
            -R "$registered" --rounds 5 --vs mpi --json "$stem-$mpi.json" >"$stem-$mpi.txt"; then
            set -- "$@" "$stem-$mpi.json"
        else
            status=1
        fi
    done
    [ $# -gt 0 ] || return 0
    where=windows
    [ "$registered" != 0 ] || where='in no window'
    echo "# $collective, $ranks ranks, $where"
    awk -v stem="$stem" -v rival=mpi -v name=MPI -f scripts/best.awk "$@" >"$stem-best.txt" ||
        status=1
    cat "$stem-best.txt"
    echo
}

best_tables() {
    for ranks in 2 4 8; do
        for registered in 0 1; do
            for collective in all_reduce reduce_scatter all_gather alltoall; do
                best_mpi $collective "$ranks" "$registered"
            done
            for collective in broadcast reduce gather scatter; do
                best_mpi $collective "$ranks" "$registered"
            done
        done
    done
}

host_tables() {
    for collective in all_reduce all_gather; do
        per_rank=
        [ $collective = all_reduce ] || per_rank=--per-rank
        for ranks in 2 4 8; do
            name=$out/$collective-$ranks
            limits=
            [ $ranks != 2 ] || limits=--limits
            # shellcheck disable=SC2086 # empty or single words
            launch $ranks "$BIN/symm-perf" $collective -b 1K -e 64M -f 2 $per_rank --vs mpi \
                $limits --json "$name.json" \
                --plot "$name.svg" || status=1
            echo
        done
    done
    best_tables
    # Below 1 KB only the distance to the bare exchange is asked for.
    launch 2 "$BIN/symm-perf" all_reduce -b 4 -e 1K -f 2 --vs mpi --limits \
        --json "$out/small.json" || status=1
}

devices=$(gpus)
if [ "$devices" -ge 2 ]; then
    gpu_tables
    export SYMM_BACKEND=host
else
    export SYMM_BACKEND=host
    host_tables
fi

for program in "$@"; do
    echo
    echo "# $program"
    case $program in
    */bench_gpu | */bench_memory_gpu)
        if [ "$devices" -eq 0 ]; then
            echo "# needs a GPU"
        else
            SYMM_BACKEND=cuda "$program" || status=1
            # Host time of a call, beside that of an empty launch.
            [ "${program##*/}" != bench_gpu ] || SYMM_BACKEND=cuda "$program" -i -e 1K || status=1
        fi
        ;;
    np=*:*) ranks=${program%%:*} && launch "${ranks#np=}" "${program#*:}" || status=1 ;;
    *) "$program" || status=1 ;;
    esac
done
exit $status
