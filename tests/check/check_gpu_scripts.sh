#!/bin/sh
# check_gpu_scripts.sh - what the scripts make of a machine with GPUs: how many count, and what make
# bench and make bench-memory do when a part fails, is interrupted or finds no NCCL. The machine is
# a directory of impostors; symm-perf is one that writes down how it was called. And that what is
# predicted of GPUs stands in docs/performance.md as the planner's rows are now.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
top=$(mktemp -d) || exit 2
trap 'rm -rf "$top"' EXIT
unset CUDA_VISIBLE_DEVICES SYMM_BACKEND PERF_NCCL_LIB BENCH_FORCE
mkdir "$top/bin" "$top/path"

command_file() { # path body
    printf '#!/bin/sh\n%s\n' "$2" >"$1"
    chmod +x "$1"
}
command_file "$top/path/nvidia-smi" \
    'for i in 0 1 2 3; do echo "GPU $i: NVIDIA H200 (UUID: GPU-0000000$i)"; done'
command_file "$top/path/python3" 'exit 1' # no NCCL as a package
PATH=$top/path:$PATH
shown() { cat "$top/out" 2>/dev/null; } # where a t_expect fails

# ---- how many GPUs ----
gpus() { sh -c '. scripts/gpu.sh && gpus'; }
t_expect "all GPUs" 4 "$(gpus)"
t_expect "none where the host is asked for" 0 "$(SYMM_BACKEND=host gpus)"
mkdir -p "$top/proc/0000:1b:00.0" "$top/proc/0000:43:00.0" "$top/toolless"
command_file "$top/toolless/nvidia-smi" 'exit 127'
t_expect "without the driver's tool" 2 "$(PATH=$top/toolless:$PATH GPU_PROC=$top/proc gpus)"
t_expect "without tool and driver" 0 "$(PATH=$top/toolless:$PATH GPU_PROC=$top/none gpus)"
GPU_DEVICES=one scripts/check_gpu.sh run gpu_life >"$top/out" 2>&1
t_expect "GPU_DEVICES that is no number" "2 GPU_DEVICES='one' is no number" "$? $(cat "$top/out")"
seen() { # CUDA_VISIBLE_DEVICES, how many the driver shows then
    t_expect "CUDA_VISIBLE_DEVICES='$1'" "$2" "$(CUDA_VISIBLE_DEVICES=$1 gpus)"
}
seen 0 1
seen 2,3 2
seen 3,1,0,2 4
seen '' 0
seen -1 0
seen 1,-1,2 1
seen 1,4,2 1
seen GPU-00000002,GPU-00000000 2

# ---- make bench ----
# Fails where the command line has FAIL in it; says so on stderr where it asks for NCCL and there is
# none.
command_file "$top/bin/symm-perf" 'echo "$*" >>'"$top"'/calls
case "${NCCL:-1} $*" in
1\ *) ;;
*barrier*) echo "symm-perf: --vs nccl: no such library" >&2 && exit 2 ;;
esac
case "$*" in ${FAIL:-none}) exit 1 ;; esac
json= peer= sizes=1024 ratio=2
case $* in *"-f 2 -R 2"*) sizes="1024 2048" ;; esac
[ "${NCCL_SYM_CTAS:-0}" != 32 ] || ratio=1.5
while [ $# -gt 0 ]; do
    case $1 in --json) json=$2 ;; --vs) peer=", \"nccl\": {}" ;; esac
    shift
done
echo "a table"
[ -z "$json" ] || {
    echo "{\"config\": 1$peer"
    for size in $sizes; do
        echo "    {\"size\": $size, \"count\": 1,"
        [ -n "$peer" ] || continue
        echo "     \"out_of_place\":" \
            "{\"time\": 4.5, \"nccl_time\": 9, \"nccl_ratio\": $ratio},"
        echo "     \"in_place\": {\"time\": 3, \"nccl_time\": 12, \"nccl_ratio\": 4}}"
    done
} >"$json"'
command_file "$top/bin/good" 'echo good'
command_file "$top/bin/bad" 'exit 3'
bench() { # programs...
    : >"$top/calls"
    BIN=$top/bin BENCH_RANKS=threads scripts/bench.sh "$top/bench" "$@" >"$top/out" 2>&1
    rc=$?
    tables=$(grep -c -- '--json' "$top/calls")
}
files() { find "$top/bench" -name "$1" | wc -l; }

FAIL='all_gather -d bfloat16*threads 4' bench "$top/bin/good"
cp "$top/calls" "$top/calls0"
t_expect "a table that fails fails the whole, and the rest is made" \
    "1 52 50 1" "$rc $tables $(files '*.json') $(grep -c '^good' "$top/out")"
bench
t_expect "what failed is made again, the rest is there" "0 2 52" "$rc $tables $(files '*.json')"
t_expect "tables of odd sizes, eager calls, other places" \
    "4 4 4 4" "$(grep -c -- '-b 1000 -e 1000' "$top/calls0") $(grep -c -- '-G 0' "$top/calls0")" \
    "$(grep -c -- '-R 0.*--json' "$top/calls0") $(grep -c -- '-u 1' "$top/calls0")"
command_file "$top/bin/bench_gpu" \
    'case $SYMM_BACKEND,$* in cuda,) echo sweep ;; cuda,-i*) echo "host time" && exit 1 ;; esac'
bench "$top/bin/bench_gpu"
t_expect "a sweep of the kernels, and the host time of a call" \
    "1 1 1" "$rc $(grep -c '^sweep' "$top/out") $(grep -c '^host time' "$top/out")"
bench "$top/bin/bad" "$top/bin/good"
t_expect "a program that fails fails the whole" "1 0 1" "$rc $tables $(grep -c '^good' "$top/out")"
t_expect "NCCL's best of all settings beside ours" \
    "1024 out 4.50 9.00 1.50x NCCL_SYM_CTAS=32;1024 in 3.00 12.00 4.00x as it comes;" \
    "$(grep -v '^#' "$top/bench/gpu-all_reduce-float-4-best.txt" | tr -s ' ' |
    sed 's/^ //' | tr '\n' ';')"
t_expect "and its mean" \
    "# geometric mean 2.45x, smallest 1.50x" \
    "$(tail -n 1 "$top/bench/gpu-all_gather-float-2-best.txt")"
BENCH_FORCE=1 bench
t_expect "all is made again where that is asked for" "0 52" "$rc $tables"
BENCH_NCCL='' BENCH_FORCE=1 bench
t_expect "without NCCL's settings where that is asked for" "0 32" "$rc $tables"
rm -rf "$top/bench"
NCCL=0 bench
t_expect "without NCCL: said, and tables of ours alone" \
    "0 32 1 0" "$rc $tables" \
    "$(grep -c '^# without NCCL: symm-perf: --vs nccl: no such library' "$top/out")" \
    "$(grep -lr nccl "$top/bench" | wc -l)"
NCCL=0 bench
t_expect "they are there as long as there is none" "0 0" "$rc $tables"
bench
t_expect "and are made again beside NCCL once it is there" \
    "0 52 52" "$rc $tables $(grep -l nccl "$top"/bench/*.json | wc -l)"
NCCL=0 bench
t_expect "tables beside NCCL are kept without it" \
    "0 0 52" "$rc $tables $(grep -l nccl "$top"/bench/*.json | wc -l)"
CUDA_VISIBLE_DEVICES=1,0 BENCH_FORCE=1 bench
t_expect "no more ranks than visible GPUs" \
    "0 26 26" "$rc $tables $(grep -c -- '--threads 2' "$top/calls")"

# ---- make bench-memory ----
command_file "$top/bin/bench_memory" 'exit 3'
command_file "$top/bin/bench_lane" 'echo lanes'
mkdir "$top/memory"
# as an interrupted run leaves them
for part in place replay lane; do echo ok >"$top/memory/memory-$part.status"; done
SYMM_BACKEND=host scripts/bench_memory.sh "$top/memory" "$top/bin" >"$top/out" 2>&1
rc=$?
t_expect "a part that fails fails the whole, whatever an earlier run has left" \
    "1 2 1" "$rc $(grep -c '^==== failed' "$top/out") $(grep -c '^lanes' "$top/out")"

# ---- what is predicted ----
scripts/predict_gpu.sh >"$top/predicted"
t_empty "what is predicted stands in docs/performance.md" \
    "$([ -s "$top/predicted" ] || echo nothing is; grep -vxFf docs/performance.md "$top/predicted")"
t_done
