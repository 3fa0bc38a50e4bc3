# shellcheck shell=sh
# gpu.sh - sourced after mpi.sh: what scripts need to know of GPUs.

# How many GPUs there are to measure; 0 if SYMM_BACKEND=host excludes them. nvidia-smi also shows
# GPUs that CUDA_VISIBLE_DEVICES hides from programs. Containers often lack it: then the kernel's
# list is counted.
gpus() {
    if [ "${SYMM_BACKEND:-auto}" = host ]; then
        echo 0
        return
    fi
    all=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true)
    shown=${GPU_PROC:-/proc/driver/nvidia/gpus}
    [ "$all" -gt 0 ] || all=$(find "$shown" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
    if [ -z "${CUDA_VISIBLE_DEVICES+set}" ]; then
        echo "$all"
    else
        visible "$all"
    fi
}
# As CUDA reads it: numbers and UUIDs, up to the first that is none of its GPUs.
visible() {
    printf '%s\n' "$CUDA_VISIBLE_DEVICES" | tr , '\n' |
        awk -v all="$1" '
            { gsub(/ /, "") }
            /^[0-9]+$/ ? $0 + 0 >= all : !/^(GPU|MIG)-/ { exit }
            { n++ }
            END { print n + 0 }'
}

# Sets vs to the flags that compare with NCCL, where its library is found: by PERF_NCCL_LIB, where
# symm_nccl.h says, or as a Python package. Elsewhere vs is empty, and one line says why.
# shellcheck disable=SC2034 # vs is the caller's
find_nccl() {
    vs='--vs nccl'
    why=$(probe_nccl) && return 0
    if [ -z "${PERF_NCCL_LIB:-}" ] &&
        at=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2>/dev/null); then
        export PERF_NCCL_LIB="$at/lib/libnccl.so.2"
        why=$(probe_nccl) && return 0
    fi
    echo "# without NCCL: $why"
    vs=
}
# One rank, no collective that NCCL has: its library is opened and asked for a communicator, no
# more. What it says on stderr is the answer.
# shellcheck disable=SC2069
probe_nccl() { "$BIN/symm-perf" barrier -t 1 -R 0 -n 1 -w 0 --rounds 1 --vs nccl 2>&1 >/dev/null; }

# launch_gpus N program args: N ranks with a GPU each, as processes where there is mpirun, else as
# threads of one.
launch_gpus() {
    if command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1 && [ "${BENCH_RANKS:-mpi}" != threads ]; then
        launch "$@"
    else
        count=$1
        shift
        "$@" --threads "$count"
    fi
}
