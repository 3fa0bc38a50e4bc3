#!/bin/bash
# check_fabric.sh - ranks of several hosts in one NVLink fabric, on the fake driver: processes that
# play hosts (GPU_FAKE_HOST), and hosts that are namespaces of this machine (tests/hosts.sh), of
# which one is cut off. Random calls of all kinds, deaths, what kernels tell each other.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
. scripts/mpi.sh
build=${BUILD:-build}
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
unset SYMM_DOMAIN_SIZE SYMM_DEBUG NCCL_NVLS_ENABLE GPU_FAKE_CAST
export SYMM_MULTICAST=0 SYMM_SCRATCH=1M GPU_CASES="${GPU_CASES:-2}" T_SECONDS_TORTURE=4
if [ ! -e "$build/test/mpg_hosts" ]; then
    t_skip "hosts of one fabric" "needs mpi: $build/test/mpg_hosts is not built"
    t_done
fi

shown() { tail -n 20 "$dir/log"; }
# ranks, of each host, program, tests
play() {
    label="$1 ranks, $2 of a host${GPU_FAKE_CAST:+, multicast}"
    export GPU_FAKE=$1 GPU_FAKE_HOST=$2
    ranks=$1
    shift 2
    timeout 300 sh -c '. scripts/mpi.sh; launch "$@"' sh "$ranks" "$build/test/$1" "${@:2}" \
        >"$dir/log" 2>&1
    t_of "$label, $1" "$dir/log" $?
}
play 4 2 mpg_hosts
play 4 2 mpg_ranks
# The same with multicast windows, which no test asks a real driver for (gpu_kit.h).
export GPU_FAKE_CAST=1
play 4 2 mpg_hosts
play 5 2 mpg_ranks matrix messages
unset GPU_FAKE_CAST
play 3 1 mpg_ranks matrix messages
play 5 2 mpg_ranks matrix puts_and_signals
play 4 2 mpg_nccl
play 5 2 mpg_nccl

export GPU_FAKE=4 GPU_FAKE_HOST=2
timeout 300 sh tests/run.sh "recover=4:$build/test/mpg_death gpu survivors_pass" >"$dir/log" 2>&1
t_expect "4 ranks, 2 of a host, mpg_death" 0 $?

tests/hosts.sh 1,1 true >"$dir/log" 2>&1
rc=$?
if [ $rc -ne 0 ]; then
    t_skip "a network of hosts" "no namespaces or no launcher: $(tail -n 1 "$dir/log")"
    t_done
fi
export T_CUT=1
timeout 300 tests/hosts.sh 2,2 "$build/test/mpg_hosts" >"$dir/log" 2>&1
t_of "hosts of 2,2 ranks, mpg_hosts" "$dir/log" $?
timeout 300 tests/hosts.sh 2,2 "$build/test/mpg_nccl" >"$dir/log" 2>&1
t_of "hosts of 2,2 ranks, mpg_nccl" "$dir/log" $?
GPU_FAKE=3 GPU_FAKE_HOST=1 timeout 300 tests/hosts.sh 1,1,1 "$build/test/mpg_hosts" >"$dir/log" 2>&1
t_of "hosts of 1,1,1 ranks, mpg_hosts" "$dir/log" $?
t_done
