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

out=$1
shift
mkdir -p "$out"
status=0

# A table of ours alone is made again once there is NCCL to stand beside it.
is_made() { [ -s "$1" ] && { [ -z "$vs" ] || grep -q '"nccl":' "$1"; }; }

# gpu_table RANKS COLLECTIVE TYPE [PLACE FLAGS...]: JSON, SVG and the table itself. The JSON comes
# last, when all has gone well. PLACE: what is not as usual, buffers in windows and aligned, sizes
# in powers of two, graphs.
gpu_table() {
    name=$out/gpu-$2-$3-$1${4:+-$4}
    place=${4:-}
    if [ "${BENCH_FORCE:-0}" != 1 ] && is_made "$name.json"; then
        echo "# $name.json is there (BENCH_FORCE=1 makes it again)"
        return 0
    fi
    rm -f "$name.json"
    ranks=$1 collective=$2 type=$3
    shift 3
    if [ -n "$place" ]; then
        shift
        set -- -f 4 "$@"
    else
        set -- -f 2 -R 2 --limits
    fi
    # shellcheck disable=SC2086 # vs is words
    if launch_gpus "$ranks" "$BIN/symm-perf" "$collective" -d "$type" -b 1K -e 1G -G 2 \
        -n 40 --rounds 5 $vs "$@" \
        --json "$name.json.new" --plot "$name.svg" >"$name.txt"; then
        mv "$name.json.new" "$name.json"
    else
        status=1
    fi
    cat "$name.txt"
    echo
}

# gpu_best RANKS COLLECTIVE TYPE: a table for each of NCCL's settings that may make it faster, for
# it reads them once a process; then its best beside ours. BENCH_NCCL= leaves them out, and names
# others.
gpu_best() {
    ranks=$1 collective=$2 type=$3 stem=$out/gpu-$2-$3-$1
    settings="NCCL_SYM_CTAS=16 NCCL_SYM_CTAS=32 NCCL_SYM_CTAS=64"
    settings=${BENCH_NCCL-$settings NCCL_GRAPH_MIXING_SUPPORT=0 NCCL_CTA_POLICY=2}
    [ -n "$vs" ] && [ -n "$settings" ] || return 0
    set --
    [ ! -s "$stem.json" ] || set -- "$stem.json"
    for setting in $settings; do
        (
            status=0
            export "${setting?}"
            gpu_table "$ranks" "$collective" "$type" "$setting" -R 2
            exit $status
        ) || status=1
        [ ! -s "$stem-$setting.json" ] || set -- "$@" "$stem-$setting.json"
    done
    awk -v stem="$stem" -f scripts/best.awk "$@" >"$stem-best.txt" || status=1
    cat "$stem-best.txt"
    echo
}

gpu_tables() {
    find_nccl
    for ranks in 2 4 8; do
        [ "$ranks" -le "$devices" ] || continue
        for collective in all_reduce all_gather; do
            for type in float bfloat16; do gpu_table "$ranks" "$collective" "$type"; done
            gpu_best "$ranks" "$collective" float
            gpu_table "$ranks" "$collective" float loose -R 0
            gpu_table "$ranks" "$collective" bfloat16 off -R 2 -u 1
            for bytes in 1000 24592 3145732; do
                gpu_table "$ranks" "$collective" float "$bytes" -b "$bytes" -e "$bytes"
            done
            gpu_table "$ranks" "$collective" float eager -e 1M -G 0 --limits
        done
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
