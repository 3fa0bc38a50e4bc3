#!/bin/sh
# check_gpu.sh - behind `make check-gpu` and its relatives. BUILD is the build directory, MPIRUN the
# launcher.
#
#   scripts/check_gpu.sh run PROGRAM...    gpu_* and mpg_* programs, and scripts with their path, on
#                                          the GPUs of this machine; one line each with its seconds,
#                                          then what they measured, then `N passed, N failed, N
#                                          skipped`. No GPU is a failure.
#   scripts/check_gpu.sh sanitizer         a few cases under compute-sanitizer's memcheck and
#                                          initcheck
#   scripts/check_gpu.sh fake PROGRAM...   the programs' own logic on a fake driver with two
#                                          devices: no GPU, no kernel
#
#   GPU_DEVICES=1              use the first GPU only: all ranks share it
#   GPU_CASES=n                cases per environment of the matrices (48; sanitizer: 2)
#   T_SECONDS_TORTURE=n        seconds of the torture (20); long ones raise the limits
#   T_SEED=n T_SLOW=n          as in all tests; TIMEOUT: seconds per program (400)
#   COMPUTE_SANITIZER=path     where it is, if not on PATH or beside nvcc
set -u
cd "$(dirname "$0")/.." || exit 2
. scripts/mpi.sh
. scripts/gpu.sh
: "${BUILD:=build}"
# Multicast objects are not made on machines that may be shared.
export SYMM_MULTICAST=0 NCCL_NVLS_ENABLE=0
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

# Programs as tests/run.sh wants them: mpg_* under mpirun, a process per GPU, at least two;
# mpg_death with at least three, of which some die.
specs() {
    devices=$(gpus)
    case ${GPU_DEVICES:-0} in *[!0-9]*)
        echo "GPU_DEVICES='$GPU_DEVICES' is no number" >&2
        return 2
        ;;
    esac
    [ "${GPU_DEVICES:-0}" -eq 0 ] || [ "$GPU_DEVICES" -ge "$devices" ] || devices=$GPU_DEVICES
    for name in "$@"; do
        case $name in
        mpg_death)
            ranks=$((devices > 3 ? devices : 3))
            echo "recover=$ranks:$BUILD/test/$name gpu survivors_pass"
            ;;
        mpg_*)
            echo "np=2:$BUILD/test/$name"
            for ranks in $(printf '%s\n' 4 8 "$devices" | sort -nu); do
                [ "$ranks" -lt 3 ] || [ "$ranks" -gt "$devices" ] ||
                    echo "np=$ranks:$BUILD/test/$name"
            done
            ;;
        */*) echo "$name" ;;
        *) echo "$BUILD/test/$name" ;;
        esac
    done
}

limits() {
    seconds=${T_SECONDS_TORTURE:-20}
    [ "$seconds" -le 60 ] || T_SLOW=${T_SLOW:-$((seconds / 30))}
    export TIMEOUT="${TIMEOUT:-400}" T_SLOW="${T_SLOW:-1}" GPU_FIGURES="$dir/figures"
}

# What was measured comes before the last line, which is said again.
run() {
    limits
    specs "$@" >"$dir/specs" || exit
    { sh tests/run.sh "@$dir/specs"; echo $? >"$dir/status"; } | tee "$dir/said"
    if [ -s "$dir/figures" ]; then
        echo
        sed 's/^/  /' "$dir/figures"
        tail -n 1 "$dir/said"
    fi
    exit "$(cat "$dir/status")"
}

find_sanitizer() {
    for at in "${COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer 2>/dev/null)" \
        "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" \
        "${CUDA_HOME:-/usr/local/cuda}/compute-sanitizer/compute-sanitizer"; do
        [ -z "$at" ] || [ ! -x "$at" ] || { echo "$at" && return 0; }
    done
    return 1
}

# One tool over one program. The tool may let a process run one kernel at a time, so no two ranks
# are in one process.
examine() { # tool label command...
    tool=$1 label=$2
    shift 2
    began=$(date +%s)
    if timeout -k 10 "${TIMEOUT:-170}" "$@" >"$dir/out" 2>&1 &&
        ! grep -qE '^not ok|needs cuda' "$dir/out"; then
        passed=$((passed + 1))
        verdict=ok
    else
        failed=$((failed + 1))
        verdict=FAIL
        tail -n 60 "$dir/out" | sed 's/^/     | /'
    fi
    printf '%-4s %s %s  %d s\n' "$verdict" "$tool" "$label" $(($(date +%s) - began))
}

sanitizer() {
    passed=0 failed=0
    if ! tool_path=$(find_sanitizer); then
        echo "compute-sanitizer was not found: set COMPUTE_SANITIZER"
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
    fi
    export GPU_CASES="${GPU_CASES:-2}" T_SLOW="${T_SLOW:-5}" SYMM_TIMEOUT=120000 \
        OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"
    for tool in memcheck initcheck; do
        # Not what the driver refuses: the library looks at every code, and asks for fabric handles
        # to learn whether there are any.
        set -- "$tool_path" --tool "$tool" --report-api-errors no \
            --error-exitcode 9 --launch-timeout 60
        examine "$tool" "gpu_matrix ranks_1" "$@" "$BUILD/test/gpu_matrix" -d ranks_1
        examine "$tool" "mpg_ranks matrix, 2 processes" sh -c '. scripts/mpi.sh; launch "$@"' sh 2 \
            "$@" "$BUILD/test/mpg_ranks" matrix
    done
    echo
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" -eq 0 ]
}

mode=${1:-}
[ $# -eq 0 ] || shift
case $mode in
run)
    unset GPU_FAKE
    export REQUIRE="cuda${REQUIRE:+,$REQUIRE}"
    run "$@"
    ;;
sanitizer)
    unset GPU_FAKE
    sanitizer
    ;;
fake)
    export GPU_FAKE=2 GPU_CASES="${GPU_CASES:-4}" \
        T_SECONDS_TORTURE="${T_SECONDS_TORTURE:-4}" T_SLOW="${T_SLOW:-3}"
    run "$@"
    ;;
*)
    sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p;}' "$0" >&2
    exit 2
    ;;
esac
