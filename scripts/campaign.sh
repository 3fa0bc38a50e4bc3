#!/bin/sh
# campaign.sh - all that is to be run on a machine with GPUs, in parts that can be resumed.
#
#   scripts/campaign.sh list [WORD...]   the parts in their order, and what each has left
#   scripts/campaign.sh run [WORD...]    runs the parts that have left nothing yet, until the time
#                                        is over; run it again for the rest. Ends with
#                                        `N passed, N failed, N skipped` of all parts so far
#
# WORDs choose the parts whose names begin with one of them. Parts, one for each
#   check-PROGRAM      program of `make check-gpu`, on all GPUs
#   alone-PROGRAM      the same where all ranks share the first GPU; with two GPUs or more
#   sanitizer          compute-sanitizer's memcheck and initcheck
#   torture            ten times the random calls
#   table-COLLECTIVE-RANKS   tables of symm-perf, beside NCCL under each of its settings; with two
#                      GPUs or more
#   nccl-PROGRAM-RANKS a program of nccl-tests under libnccl.so.2 of this build, buffers registered
#                      and not; where NCCL_TESTS names its directory
#
# CAMPAIGN_OUT (build/campaign) gets per part a log and, once the part has ended by itself, a record
# PART.json; `make gpu-report` reads these. A part that the time cuts off leaves none.
#
#   CAMPAIGN_SECONDS=540  time of one run
#   CAMPAIGN_LEAST=20     no part begins with less time left
#   CAMPAIGN_FORCE=1      parts that have left a record are run again
#   CAMPAIGN_FAKE=1       on the fake driver of the tests with two devices: no GPU, no kernel. PERF
#                         is then a symm-perf over that driver; without it there are no tables
set -u
cd "$(dirname "$0")/.." || exit 2
. scripts/mpi.sh
. scripts/gpu.sh
export BIN="${BIN:-${BUILD:-build}/bin}"
. scripts/gpu_tables.sh
: "${BUILD:=build}" "${CAMPAIGN_SECONDS:=540}" "${CAMPAIGN_LEAST:=20}" "${CAMPAIGN_FAKE:=0}"
dir=${CAMPAIGN_OUT:-$BUILD/campaign}
export BUILD NCCL_NVLS_ENABLE=0
[ -z "${PERF:-}" ] || BIN=$(dirname "$PERF")
collectives="all_reduce all_gather reduce_scatter alltoall broadcast reduce gather scatter"
began=$(date +%s)

devices=$(if [ "$CAMPAIGN_FAKE" = 1 ]; then echo 2; else gpus; fi)
mode=$(if [ "$CAMPAIGN_FAKE" = 1 ]; then echo fake; else echo run; fi)

# ---- the parts ----
names() { find tests/gpu -name '*.c' | sed 's|.*/||;s|\.c$||' | sort; }
parts() {
    for program in $(names); do echo "check-$program"; done
    if [ "$devices" -ge 2 ] && { [ "$mode" = run ] || [ -n "${PERF:-}" ]; }; then
        for ranks in 8 4 2; do
            [ "$ranks" -gt "$devices" ] ||
                for collective in $collectives; do echo "table-$collective-$ranks"; done
        done
    fi
    [ "$mode" = fake ] || echo sanitizer
    echo torture
    [ "$devices" -lt 2 ] || for program in $(names); do echo "alone-$program"; done
    [ -z "${NCCL_TESTS:-}" ] || nccl_parts
}
nccl_parts() {
    for program in "$NCCL_TESTS"/*_perf; do
        for ranks in 2 4 8; do
            # Ranks beyond the GPUs share the first one, as far as four.
            [ "$ranks" -gt "$devices" ] && [ "$ranks" -gt 4 ] ||
                echo "nccl-$(basename "$program")-$ranks"
        done
    done
}
chosen() { # words
    [ $# -gt 0 ] || set -- ''
    parts | while read -r part; do
        for word in "$@"; do
            case $part in "$word"*) echo "$part" && break ;; esac
        done
    done
}

# ---- one part: what it prints ends with `N passed, N failed, N skipped` ----
part_check() { # program
    scripts/check_gpu.sh "$mode" "$1"
}
part_torture() {
    seconds=$(if [ "$mode" = fake ]; then echo 8; else echo 200; fi)
    T_SECONDS_TORTURE=$seconds TIMEOUT=520 scripts/check_gpu.sh "$mode" gpu_torture
}
part_table() { # collective ranks
    out=$dir/tables status=0
    mkdir -p "$out"
    if [ "$mode" = fake ]; then
        vs=
        export BENCH_RANKS=threads
    else
        find_nccl
    fi
    gpu_tables_of "$2" "$1"
    echo "$((1 - status)) passed, $status failed, 0 skipped"
}
# A run passes if no word was wrong. The buffers: as they are, registered, in symmetric windows.
part_nccl() { # program ranks
    passed=0 failed=0
    [ "$2" -le "$devices" ] || export NCCL_TESTS_DEVICE=0
    for registered in 0 1 2; do
        if LD_LIBRARY_PATH="$BUILD/lib/nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
            launch "$2" "$NCCL_TESTS/$1" -b 8 -e 64M -f 8 -n 5 -w 2 -R "$registered" \
            >"$dir/nccl.txt" 2>&1 && grep -q 'Out of bounds values : 0 OK' "$dir/nccl.txt"; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
        cat "$dir/nccl.txt"
    done
    echo "$passed passed, $failed failed, 0 skipped"
}
run_part() { # part
    rest=${1#*-}
    case $1 in
    check-*) part_check "$rest" ;;
    alone-*) GPU_DEVICES=1 part_check "$rest" ;;
    sanitizer) scripts/check_gpu.sh sanitizer ;;
    torture) part_torture ;;
    table-*) part_table "${rest%-*}" "${rest##*-}" ;;
    nccl-*) part_nccl "${rest%-*}" "${rest##*-}" ;;
    esac
}

# ---- records ----
gpu_name() {
    [ "$mode" = run ] || { echo fake && return; }
    nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1
}
record() { # part seconds counts
    printf '{"part": "%s", "gpu": "%s", "gpus": %d, "date": "%s", "commit": "%s", %s, %s}\n' \
        "$1" "$(gpu_name)" "$devices" "$(date -u +%F)" \
        "$(git describe --always --dirty 2>/dev/null || echo unknown)" "\"seconds\": $2" \
        "$(echo "$3" | sed 's/\([0-9][0-9]*\) \([a-z]*\)/"\2": \1/g')"
}
# Under a time limit, in a process of its own, so that what hangs ends with it.
one() { # part
    log=$dir/$1.log start=$(date +%s)
    left=$((began + CAMPAIGN_SECONDS - start))
    timeout -k 10 "$left" "$0" part "$1" >"$log" 2>&1 </dev/null
    took=$(($(date +%s) - start))
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    if [ -n "$counts" ]; then
        record "$1" "$took" "$counts" >"$dir/$1.json"
    elif [ "$took" -lt "$left" ]; then
        counts='0 passed, 1 failed, 0 skipped' # it ended without a word
        record "$1" "$took" "$counts" >"$dir/$1.json"
    fi
    printf '%-32s %4d s  %s\n' "$1" "$took" "${counts:-the time was over}"
}
made() { [ "${CAMPAIGN_FORCE:-0}" != 1 ] && [ -s "$dir/$1.json" ]; }
total() { # words
    for part in $(chosen "$@"); do
        if [ -s "$dir/$part.json" ]; then cat "$dir/$part.json"; else echo "left"; fi
    done | awk '
        function value(key) {
            if (!match($0, "\"" key "\": [0-9]+")) return 0
            return substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) + 0
        }
        /^left/ { left++ }
        { passed += value("passed"); failed += value("failed"); skipped += value("skipped") }
        END {
            if (left) printf "# %d parts are left: run it again\n", left
            printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
            exit failed > 0
        }'
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
list)
    for part in $(chosen "$@"); do
        printf '%-32s %s\n' "$part" "$(cat "$dir/$part.json" 2>/dev/null)"
    done
    ;;
run)
    if [ "$devices" -lt 1 ]; then
        echo "campaign.sh: this machine has no GPU (CAMPAIGN_FAKE=1: the fake driver)" >&2
        exit 2
    fi
    mkdir -p "$dir" || exit 2
    for part in $(chosen "$@"); do
        made "$part" || [ $(($(date +%s) - began + CAMPAIGN_LEAST)) -gt "$CAMPAIGN_SECONDS" ] ||
            one "$part"
    done
    total "$@"
    ;;
part) run_part "$1" ;;
*)
    sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p;}' "$0" >&2
    exit 2
    ;;
esac
