#!/bin/sh
# campaign.sh - all that is to be run on a machine with GPUs, in parts that can be resumed.
#
#   scripts/campaign.sh list [WORD...]   the parts in their order, and what each has left
#   scripts/campaign.sh run [WORD...]    runs the parts that have left nothing yet, until the time
#                                        is over; run it again for the rest. Ends with
#                                        `N passed, N failed, N skipped` of all parts so far
#
# WORDs choose the parts whose names begin with one of them, in the order of the words. Parts, one
# for each
#   check-PROGRAM      program of `make check-gpu`, on all GPUs
#   alone-PROGRAM      the same where all ranks share the first GPU; with two GPUs or more
#   sanitizer          compute-sanitizer's memcheck and initcheck
#   torture            ten times the random calls
#   table-COLLECTIVE-RANKS   tables of symm-perf, beside NCCL under each of its settings, for each
#                      collective and what is made of sends; with two GPUs or more
#   tune-RANKS         symm-tune: which kernel is the fastest here, and calls by its table; with two
#                      GPUs or more
#   nccl-PROGRAM-RANKS a program of nccl-tests under symm-run, with each of its options that
#                      changes what NCCL is asked for; where NCCL_TESTS names its directory
#   columns-COLLECTIVE-RANKS   whether nccl-tests shows what symm-perf does: its times over NCCL and
#                      under symm-run, in turns, beside those of symm-perf; where NCCL_TESTS names
#                      its directory, a GPU for each rank
#   decode-RANKS       tests/torch/torch_decode.py, over NCCL with and without its graph mixing, and
#                      under symm-run; where torchrun is, a GPU for each rank
#   torch-CASE-RANKS   a case of tests/torch/torch_train.py under symm-run, compared with gloo;
#                      where torchrun is
#   own-RANKS          PyTorch's own tests over NCCL and under symm-run: which fail; where torchrun
#                      and Python's expecttest are, a GPU for each rank
#   vllm-CASE-RANKS    a case of tests/torch/vllm_ranks.py under symm-run, or vLLM's server: a model
#                      writes what one rank writes alone; where torchrun and vLLM are
#
# CAMPAIGN_OUT (build/campaign) gets per part a log and, once the part has ended by itself, a record
# PART.json; `make gpu-report` reads these. A part that the time cuts off leaves none.
#
#   CAMPAIGN_SECONDS=540  time of one run
#   CAMPAIGN_LEAST=20     no part begins with less time left
#   CAMPAIGN_FORCE=1      parts that have left a record are run again
#   CAMPAIGN_FAKE=1       on the fake driver of the tests with two devices: no GPU, no kernel. PERF
#                         is then a symm-perf over that driver; without it there are no tables.
#                         They are beside NCCL where PERF_NCCL_LIB names one
set -u
cd "$(dirname "$0")/.." || exit 2
. scripts/mpi.sh
. scripts/gpu.sh
export BIN="${BIN:-${BUILD:-build}/bin}"
. scripts/gpu_tables.sh
: "${BUILD:=build}" "${CAMPAIGN_SECONDS:=540}" "${CAMPAIGN_LEAST:=20}" "${CAMPAIGN_FAKE:=0}"
dir=${CAMPAIGN_OUT:-$BUILD/campaign}
export BUILD NCCL_NVLS_ENABLE=0 SYMM_MULTICAST=0
[ -z "${PERF:-}" ] || BIN=$(dirname "$PERF")
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
                for collective in $gpu_collectives; do echo "table-$collective-$ranks"; done
        done
    fi
    [ "$mode" = fake ] || for ranks in 8 4 2; do
        [ "$devices" -lt 2 ] || [ "$ranks" -gt "$devices" ] || echo "tune-$ranks"
    done
    [ "$mode" = fake ] || echo sanitizer
    echo torture
    [ "$devices" -lt 2 ] || for program in $(names); do echo "alone-$program"; done
    [ -z "${NCCL_TESTS:-}" ] || nccl_parts
    [ "$mode" = fake ] || ! command -v torchrun >/dev/null 2>&1 || { torch_parts && vllm_parts; }
}
# Ranks beyond the GPUs share the first one, as far as four.
rank_counts() {
    for ranks in 2 4 8; do
        [ "$ranks" -gt "$devices" ] && [ "$ranks" -gt 4 ] || echo "$ranks"
    done
}
nccl_parts() {
    for ranks in $(rank_counts); do
        for program in "$NCCL_TESTS"/*_perf; do
            [ ! -x "$program" ] || echo "nccl-$(basename "$program")-$ranks"
        done
        for collective in all_reduce all_gather reduce_scatter alltoall broadcast; do
            [ "$ranks" -gt "$devices" ] || [ ! -x "$NCCL_TESTS/${collective}_perf" ] ||
                echo "columns-$collective-$ranks"
        done
    done
}
torch_parts() {
    for ranks in 2 4 8; do
        [ "$ranks" -gt "$devices" ] || echo "decode-$ranks"
    done
    for ranks in 2 4 8; do
        [ "$ranks" -gt "$devices" ] || ! has_module expecttest || echo "own-$ranks"
    done
    for ranks in $(rank_counts); do
        for case in $(sed -n 's/^def case_\([a-z]*\)(.*/\1/p' tests/torch/torch_train.py); do
            echo "torch-$case-$ranks"
        done
    done
}
has_module() { # Python's
    python3 -c "from importlib.util import find_spec as f; exit(not f('$1'))" 2>/dev/null
}
# The server's workers have a GPU each.
vllm_parts() {
    has_module vllm || return 0
    for ranks in $(rank_counts); do
        for case in comm model graph; do echo "vllm-$case-$ranks"; done
        [ "$ranks" -gt "$devices" ] || echo "vllm-server-$ranks"
    done
}
# In the order of the words, each part once.
chosen() { # words
    [ $# -gt 0 ] || set -- ''
    all=$(parts)
    for word in "$@"; do
        for part in $all; do
            case $part in "$word"*) echo "$part" ;; esac
        done
    done | awk '!seen[$0]++'
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
    vs=
    [ "$mode" != fake ] || export BENCH_RANKS=threads
    [ "$mode" = fake ] && [ -z "${PERF_NCCL_LIB:-}" ] || find_nccl
    gpu_tables_of "$2" "$1"
    echo "$((1 - status)) passed, $status failed, 0 skipped"
}
part_tune() { # ranks
    table=$dir/tune-$1.table
    launch "$1" "$BIN/symm-tune" -b 1K -e 256M -s 170 -o "$table" || {
        echo "0 passed, 1 failed, 0 skipped"
        return
    }
    cat "$table"
    status=0
    for collective in all_reduce all_gather reduce_scatter broadcast; do
        SYMM_PLAN_TABLE=$table launch "$1" "$BIN/symm-perf" "$collective" -b 1K -e 64M -G 2 -n 20 ||
            status=1
    done
    echo "$((2 - status)) passed, $status failed, 0 skipped"
}
# Options of nccl-tests, a set a line: the buffers as they are, registered, in symmetric windows;
# all types and reductions; graphs; aggregated calls; odd addresses; blocking; parallel creation;
# what it measured as JSON; communicators of every second rank. Behind a bar variables: all calls,
# and those that symm does not serve, go to a real NCCL. With a GPU for each rank also all ranks in
# one process, which is what -g (of one thread) and -t (a thread each) ask for.
nccl_options() { # ranks
    cat <<OPTIONS
-R 0 -e 16M
-R 1 -e 16M
-R 2 -e 16M
-R 2 -d all -o all -e 64K
-R 2 -G 2 -e 1M
-m 3 -e 1M
-u 1 -e 1M
-z 1 -e 64K
-p 1 -e 64K
-M 1 -e 64K
-y 1 -e 64K
-J $dir/nccl-tests/out.json -e 64K
-R 2 -e 1M|NCCL_TESTS_SPLIT=%2
-R 0 -e 1M|SYMM_NCCL=forward
-R 2 -e 1M|SYMM_NCCL=forward
-R 2 -e 1M|SYMM_NCCL_FORWARD=op
OPTIONS
    [ "$1" -gt "$devices" ] || for how in -g -t; do
        echo "$how $1 -R 2 -e 16M"
        echo "$how $1 -R 0 -G 2 -e 1M"
        echo "$how $1 -d all -o all -e 64K"
    done
}
# A run passes if all ranks were in it and no word was wrong.
part_nccl() { # program ranks
    passed=0 failed=0
    [ "$2" -le "$devices" ] || export NCCL_TESTS_DEVICE=0
    mkdir -p "$dir/nccl-tests"
    # NCCL refuses ranks that share a GPU.
    nccl_options "$2" | if [ "$2" -le "$devices" ]; then cat; else grep -v '|SYMM_NCCL'; fi \
        >"$dir/options"
    while IFS='|' read -r options variables; do
        processes=$2
        case $options in -[gt]*) processes=1 ;; esac
        # shellcheck disable=SC2086 # words
        if launch "$processes" env $variables "$BIN/symm-run" "$NCCL_TESTS/$1" \
            -b 8 -f 32 -n 3 -w 1 $options >"$dir/nccl.txt" 2>&1 </dev/null &&
            grep -q "^# *Rank *$(($2 - 1)) " "$dir/nccl.txt" &&
            grep -q 'Out of bounds values : 0 OK' "$dir/nccl.txt"; then
            passed=$((passed + 1))
            echo "passed: $options $variables"
        else
            failed=$((failed + 1))
            echo "FAILED: $options $variables"
        fi
        cat "$dir/nccl.txt"
    done <"$dir/options"
    echo "$passed passed, $failed failed, 0 skipped"
}
# Graphs, windows, out of place; the least of three rounds. nccl-tests runs over the NCCL that
# symm-perf finds. It times the first launch of a graph, which brings the graph to the GPU;
# symm-perf does not: so each launches its graph often.
part_columns() { # collective ranks
    find_nccl
    seen=$dir/columns
    rm -rf "$seen" && mkdir -p "$seen"
    sizes='-b 1K -e 64M -f 4 -R 2 -n 20 -G 20'
    # shellcheck disable=SC2086 # words
    launch "$2" "$BIN/symm-perf" "$1" $sizes --rounds 5 $vs >"$seen/perf.1"
    for round in 1 2 3; do
        for run in nccl symm; do
            under='env'
            [ $run != symm ] || under=$BIN/symm-run
            # shellcheck disable=SC2086 # words
            launch "$2" env ${PERF_NCCL_LIB:+"LD_LIBRARY_PATH=${PERF_NCCL_LIB%/*}"} "$under" \
                "$NCCL_TESTS/${1}_perf" $sizes -w 5 >"$seen/$run.$round" </dev/null
        done
    done
    awk -f scripts/columns.awk "$seen"/* && failed=0 || failed=1
    echo "$((1 - failed)) passed, $failed failed, 0 skipped"
}
trained() { # ranks backend case [wrapper]: the case's line
    timeout 240 ${4:+"$4"} torchrun --standalone --nproc-per-node "$1" \
        tests/torch/torch_train.py "$2" "$3" 2>"$dir/torch.txt" | grep "^$3: "
    cat "$dir/torch.txt" >&2
}
# Two rounds, each program in turn.
part_decode() { # ranks
    passed=0 failed=0
    for run in nccl.plain nomixing.plain symm.plain nccl.pool nomixing.pool symm.pool \
        nccl.plain nomixing.plain symm.plain nccl.pool nomixing.pool symm.pool; do
        mixing=1 under=env
        [ "${run%.*}" != nomixing ] || mixing=0
        [ "${run%.*}" != symm ] || under=$BIN/symm-run
        if line=$(NCCL_GRAPH_MIXING_SUPPORT=$mixing timeout 90 "$under" torchrun --standalone \
            --nproc-per-node "$1" tests/torch/torch_decode.py "${run#*.}" 2>"$dir/torch.txt" |
            grep '^decode'); then
            passed=$((passed + 1))
            echo "${run%.*} $line"
        else
            failed=$((failed + 1))
            cat "$dir/torch.txt"
        fi
    done
    echo "$passed passed, $failed failed, 0 skipped"
}
# The same in every digit: the order of a sum changes nothing in these programs.
part_torch() { # case ranks
    want=$(trained "$2" gloo "$1")
    got=$(trained "$2" nccl "$1" "$BIN/symm-run")
    echo "gloo $want"
    echo "symm $got"
    failed=$(if [ -n "$want" ] && [ "$got" = "$want" ]; then echo 0; else echo 1; fi)
    echo "$((1 - failed)) passed, $failed failed, 0 skipped"
}
# Under symm-run the tests that NCCL did not skip; those that fail there alone run once more, one at
# a time. Passed are those that pass in both; skipped those that NCCL skips or fails, too.
own() { # ranks jobs out [wrapper]
    ${4:+"$4"} python3 tests/torch/torch_own.py --ranks "$1" --jobs "$2" --log "$3.log" \
        $(if [ -s "$dir/own.names" ]; then echo "--only $dir/own.names"; fi) >"$3"
}
part_own() { # ranks
    jobs=$(($(nproc) / 3 + 2)) # more than one
    : >"$dir/own.names"
    own "$1" $jobs "$dir/own.nccl"
    awk '$2 != "skipped" { print $1 }' "$dir/own.nccl" >"$dir/own.names"
    own "$1" $jobs "$dir/own.symm" "$BIN/symm-run"
    awk 'NR == FNR { nccl[$1] = $2; next } $2 == "FAILED" && nccl[$1] != "FAILED" { print $1 }' \
        "$dir/own.nccl" "$dir/own.symm" >"$dir/own.names"
    : >"$dir/own.again"
    [ ! -s "$dir/own.names" ] || own "$1" 1 "$dir/own.again" "$BIN/symm-run"
    cat "$dir"/own.*.log
    awk '
        NF < 2 { next }
        FILENAME ~ /nccl$/ { nccl[$1] = $2; next }
        { symm[$1] = $2 } # the later one stands
        END {
            for (name in nccl) {
                all++
                if (nccl[name] == "FAILED" || nccl[name] == "ok" && symm[name] != "ok")
                    print name ": NCCL " nccl[name] ", symm " symm[name]
                passed += nccl[name] == "ok" && symm[name] == "ok"
                failed += nccl[name] == "ok" && symm[name] != "ok"
            }
            failed += all == 0
            printf "%d passed, %d failed, %d skipped\n", passed, failed,
                all ? all - passed - failed : 0
        }' "$dir/own.nccl" "$dir/own.symm" "$dir/own.again"
}
served() { # ranks case [wrapper]: what rank 0 said
    if [ "$2" = server ]; then
        timeout 300 ${3:+"$3"} python3 tests/torch/vllm_server.py "$1"
    else
        timeout 200 ${3:+"$3"} torchrun --standalone --nproc-per-node "$1" \
            tests/torch/vllm_ranks.py "$2"
    fi >"$dir/vllm.txt" 2>&1
    sed -n "s/^$2: //p" "$dir/vllm.txt"
    cat "$dir/vllm.txt" >&2
}
part_vllm() { # case ranks
    want=ok
    [ "$1" = comm ] || want=$(served 1 model)
    got=$(served "$2" "$1" "$BIN/symm-run")
    echo "want $want"
    echo "symm $got"
    failed=$(if [ -n "$got" ] && [ "$got" = "$want" ]; then echo 0; else echo 1; fi)
    echo "$((1 - failed)) passed, $failed failed, 0 skipped"
}
run_part() { # part
    rest=${1#*-}
    case $1 in
    check-*) part_check "$rest" ;;
    alone-*) GPU_DEVICES=1 part_check "$rest" ;;
    sanitizer) scripts/check_gpu.sh sanitizer ;;
    torture) part_torture ;;
    tune-*) part_tune "$rest" ;;
    table-*) part_table "${rest%-*}" "${rest##*-}" ;;
    columns-*) part_columns "${rest%-*}" "${rest##*-}" ;;
    nccl-*) part_nccl "${rest%-*}" "${rest##*-}" ;;
    decode-*) part_decode "$rest" ;;
    torch-*) part_torch "${rest%-*}" "${rest##*-}" ;;
    own-*) part_own "$rest" ;;
    vllm-*) part_vllm "${rest%-*}" "${rest##*-}" ;;
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

refuse() { # reason
    echo "campaign.sh: $1" >&2
    exit 2
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
    [ "$devices" -ge 1 ] || refuse "this machine has no GPU (CAMPAIGN_FAKE=1: the fake driver)"
    # Else every part would fail, minutes later, for this alone.
    [ "$mode" = fake ] || [ -x "$BIN/symm-run" ] ||
        refuse "there is no $BIN/symm-run: run 'make all tests-gpu' first"
    for word in "$@"; do
        [ -n "$(chosen "$word")" ] ||
            refuse "no part begins with '$word' here (scripts/campaign.sh list; NCCL_TESTS)"
    done
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
