# shellcheck shell=sh
# gpu_tables.sh - sourced after mpi.sh and gpu.sh: tables of symm-perf on GPUs, beside NCCL where it
# is found (find_nccl sets vs). The caller sets BIN, out: the directory of JSON, SVG and text, and
# status: 1 once a table has failed. A table whose JSON exists is not made again (BENCH_FORCE=1: all
# are).
: "${BIN:?}"

# What has tables: all that symm-perf runs on GPUs, but for barrier, which moves nothing, pingpong,
# which has two ranks, and alltoall_sends, which is alltoall once more.
# shellcheck disable=SC2034 # it is the caller's
gpu_collectives="all_reduce all_gather reduce_scatter alltoall broadcast reduce gather scatter
    all_gatherv reduce_scatterv alltoallv sendrecv hypercube"

# A table of ours alone is made again once there is NCCL to stand beside it.
is_made() { [ -s "$1" ] && { [ -z "$vs" ] || grep -q '"nccl":' "$1"; }; }

# The flag for bare loops beside it, of which symm-perf has some for these.
with_limits() { case $1 in all_reduce | all_gather) echo --limits ;; esac }

# gpu_table RANKS COLLECTIVE TYPE [PLACE FLAGS...]: JSON, SVG and the table itself. The JSON comes
# last, when all has gone well. PLACE: what is not as usual, buffers in windows and aligned, sizes
# in powers of two, graphs.
gpu_table() {
    name=${out:?}/gpu-$2-$3-$1${4:+-$4}
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
        # shellcheck disable=SC2046 # a flag or none
        set -- -f 2 -R 2 $(with_limits "$collective")
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

# NCCL's settings that may make a collective faster. For three it has symmetric kernels, whose CTAs
# can be set.
settings_of() {
    case $1 in
    all_reduce | all_gather | reduce_scatter)
        echo NCCL_SYM_CTAS=16 NCCL_SYM_CTAS=32 NCCL_SYM_CTAS=64
        ;;
    esac
    echo NCCL_GRAPH_MIXING_SUPPORT=0 NCCL_CTA_POLICY=2
}

# gpu_best RANKS COLLECTIVE TYPE: a table for each of these settings, for NCCL reads them once a
# process; then its best beside ours. BENCH_NCCL= leaves them out, and names others.
gpu_best() {
    ranks=$1 collective=$2 type=$3 stem=$out/gpu-$2-$3-$1
    settings=${BENCH_NCCL-$(settings_of "$2")}
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

# gpu_tables_of RANKS COLLECTIVE: all tables of one collective.
gpu_tables_of() {
    for type in float bfloat16; do gpu_table "$1" "$2" "$type"; done
    gpu_best "$1" "$2" float
    gpu_table "$1" "$2" float loose -R 0
    gpu_table "$1" "$2" bfloat16 off -R 2 -u 1
    for bytes in 1000 24592 3145732; do
        gpu_table "$1" "$2" float "$bytes" -b "$bytes" -e "$bytes"
    done
    # shellcheck disable=SC2046 # a flag or none
    gpu_table "$1" "$2" float eager -e 1M -G 0 $(with_limits "$2")
}
