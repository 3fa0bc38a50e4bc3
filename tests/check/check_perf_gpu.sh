#!/bin/sh
# check_perf_gpu.sh - symm-perf on GPUs without one: the tool's own code on the fake driver
# (perf_stub.c), beside an NCCL that is none (nccl_stub.c). Flags, refusals, columns, JSON, and
# whether the data check finds kernels that leave wrong data. How fast anything is plays no part.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
. tests/check/fake_perf.sh

export SYMM_BACKEND=cuda SYMM_SCRATCH=1M GPU_FAKE=4
unset PERF_NCCL_LIB
run() {
    timeout 60 "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
out() { grep -cE -- "$1" "$dir/out"; }
err() { grep -cE -- "$1" "$dir/err"; }
shown() { cat "$dir/err" "$dir/out"; } # where a t_expect fails
nccl() { run "$perf" "$@" --vs nccl --nccl "$dir/libnccl.so" -n 2 -w 0 --rounds 3; }
old_nccl() { run "$perf" "$@" --vs nccl --nccl "$dir/libnccl-old.so" -n 2 -w 0 --rounds 3; }

# ---- runs ----
run "$perf" all_reduce -g 2 -b 20 -e 100K -f 71 -d all -o all -n 2
t_expect "all types and reductions" \
    "0 1 216" "$rc $(out 'Out of bounds values : 0 OK') $(out '^ .*  0$')"
run "$perf" all_gather -g 3 -b 1K -e 64K -f 8 -d bfloat16 -u 1 -R 0 -n 2 -z 1 -m 2
t_expect "all_gather unaligned, no windows, groups, waiting" \
    "0 1 3" "$rc $(out 'Out of bounds values : 0 OK')" \
    "$(out '^# +Rank +[012] .* device [012] \[0000:1')"
for collective in all_reduce all_gather; do
    run "$perf" $collective -g 2 -b 1K -e 2M -f 8 -G 3 -n 4 --limits --json "$dir/x.json"
    t_expect "$collective captured and replayed, with the time to issue" "0 1 1" \
        "$rc $(out 'Out of bounds values : 0 OK')" \
        "$(grep -c '"backend": "cuda", "launch": "graph"' "$dir/x.json")"
done
for collective in all_gatherv reduce_scatterv alltoallv; do
    run "$perf" $collective -g 3 -b 1K -e 1M -f 32 -G 3 -n 4 -d float
    t_expect "$collective: counts that differ, captured and replayed" "0 1 3" \
        "$rc $(out 'Out of bounds values : 0 OK') $(out '^ .*  0$')"
done
run "$perf" hypercube -g 4 -b 1K -e 1M -f 32 -G 3 -n 4
t_expect "hypercube captured and replayed, with its own block" "0 1 3" \
    "$rc $(out 'Out of bounds values : 0 OK') $(out '^ .*  0$')"
run "$perf" put -g 2 -b 8 -e 1M -f 8 -G 3 -n 4
t_expect "puts with signals, there and back, captured and replayed" "0 1 6" \
    "$rc $(out 'Out of bounds values : 0 OK') $(out '^ .* 0$')"
run "$perf" barrier -g 1
t_expect "one GPU, without -t and mpirun" "0 1" "$rc $(out '^ +0 +0 +none')"
run "$perf" barrier -g 1 -t 3
t_expect "threads times GPUs" "0 3" "$rc $(out '^# +Rank')"

# ---- the check finds wrong data ----
found() { # name, what is wrong, blocks, flags...
    name=$1 wrong=$2 blocks=$3
    shift 3
    PERF_WRONG=$wrong PERF_BLOCKS=$blocks run "$perf" "$@" -g 2 -n 4
    t_expect "found: $name" "1 1 1 1" "$rc $(out 'Out of bounds values : [1-9][0-9]* FAILED')" \
        "$(wrong_cells 9) $(wrong_cells 13)"
}
# Of the column, out of place or in place.
wrong_cells() { awk -v at="$1" '/^ +[0-9]/ && $at > 0 { n++ } END { print n + 0 }' "$dir/out"; }
found "all_reduce leaves what the call before it left" stale 1 all_reduce -b 1K -e 1K
found "all_gather leaves what the call before it left" stale 2 all_gather -b 1K -e 1K
found "the same in messages that are looked at once" stale 2 all_gather -b 4M -e 4M
found "a replay leaves a wrong bit in all_reduce" replay 1 all_reduce -b 1K -e 1K -G 2
found "a replay leaves a wrong bit in all_gather" replay 2 all_gather -b 1K -e 1K -G 2
found "calls one behind the other leave a wrong bit in all_reduce" burst 1 all_reduce -b 1K -e 1K
found "calls one behind the other leave a wrong bit in all_gather" burst 2 all_gather -b 1K -e 1K
found "the same in a graph" burst 2 all_gather -b 1K -e 1K -G 2

# ---- beside NCCL ----
nccl all_reduce -g 2 -b 1K -e 64K -f 8 -G 2 --limits --json "$dir/x.json"
t_expect "beside NCCL: a ratio per cell, their mean, its windows" "0 1 3 1" \
    "$rc $(out '^# Ratio to NCCL +: [0-9.]+x geometric mean') $(out '^ .*[0-9]x .*[0-9]x')" \
    "$(out '^# NCCL 2\.28\.9 .*registered: windows, memory: the same')"
cat >"$dir/sums.py" <<'EOF'
import json, math, sys
d = json.load(open(sys.argv[1]))
n = d["config"]["ranks"]
cells = [(r["size"], r[k]) for r in d["results"] for k in ("out_of_place", "in_place")]
def same(a, b, c):
    assert abs(a - b) <= 1e-4 * abs(b), (a, b, c)
for size, c in cells:
    for of in "", "nccl_":
        same(c[of + "alg_bw"], size / c[of + "time"] / 1e3, c)
        same(c[of + "bus_bw"], c[of + "alg_bw"] * 2 * (n - 1) / n, c)
        assert c[of + "issue_time"] > 0, c
        assert c[of + "nwrong"] == 0, c
    same(c["nccl_ratio"], c["nccl_time"] / c["time"], c)
ratios = [c["nccl_ratio"] for size, c in cells]
mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
said = [l for l in open(sys.argv[2]) if l.startswith("# Ratio to NCCL")][0].split(":")[1].split()
for text, is_so in (said[0], mean), (said[said.index("smallest") + 1], min(ratios)):
    assert abs(float(text[:-1]) - is_so) <= 0.006, (text, is_so)
print("right", d["out_of_bounds"], d["config"]["nccl"]["calls"])
EOF
if command -v python3 >/dev/null 2>&1; then
    t_expect "bandwidths, ratios and their mean are what the times say" \
        "right 0 ncclAllReduce" "$(python3 "$dir/sums.py" "$dir/x.json" "$dir/out" 2>&1)"
else
    t_skip "bandwidths, ratios and their mean are what the times say" "needs python3"
fi

# Every collective and pattern, with the calls of NCCL 2.28 and those of before; NCCL's results are
# right as ours are: in windows, by eager calls, with each root; in none, captured, in groups.
compared() { # text: what NCCL runs
    echo "$rc $(out 'Out of bounds values : 0 OK') $(out '^# Wrong values of NCCL : 0$')" \
        "$(grep -cxF "# NCCL runs $1" "$dir/out") $(out '^# Ratio to NCCL +: [0-9.]+x geometric')"
}
beside() { # collective ranks what-NCCL-runs what-an-older-one-runs
    nccl "$1" -g "$2" -b 1K -e 8K -f 8 -r -1
    t_expect "$1 beside $3" "0 1 1 1 1" "$(compared "$3")"
    group=2
    case $1 in hypercube | pingpong) group=1 ;; esac # their steps follow each other
    old_nccl "$1" -g "$2" -b 1000 -e 8K -f 8 -R 0 -G 2 -m $group
    t_expect "$1 beside $4, of NCCL 2.22, captured" "0 1 1 1 1" "$(compared "$4")"
}
sends='ncclSend and ncclRecv, in a group'
for pair in all_reduce:AllReduce all_gather:AllGather reduce_scatter:ReduceScatter \
    broadcast:Broadcast reduce:Reduce; do
    beside "${pair%:*}" 3 "nccl${pair#*:}" "nccl${pair#*:}"
done
for pair in alltoall:AlltoAll gather:Gather scatter:Scatter; do
    beside "${pair%:*}" 3 "nccl${pair#*:}" "$sends"
done
for name in alltoallv sendrecv alltoall_sends; do beside $name 3 "$sends" "$sends"; done
beside all_gatherv 3 'ncclBroadcast, in a group' 'ncclBroadcast, in a group'
beside reduce_scatterv 3 'ncclReduce, in a group' 'ncclReduce, in a group'
beside hypercube 4 "$sends for each step" "$sends for each step"
beside pingpong 2 'ncclSend and ncclRecv, one by one' 'ncclSend and ncclRecv, one by one'
nccl reduce_scatter -g 2 -b 1000 -e 1000 -u 1 -d all -o all
t_expect "all types and reductions; premulsum is ours alone" "0 1 1 12 60" \
    "$rc $(out 'Out of bounds values : 0 OK') $(out '^# Wrong values of NCCL : 0$')" \
    "$(out '^ .* mulsum .* N/A  .* N/A$') $(out '^ .*[0-9]x .*[0-9]x$')"
old_nccl alltoallv -g 2 -b 1000 -e 1000 -d all
t_expect "types that NCCL does not know yet are moved as bytes" "0 1 12" \
    "$rc $(out '^# Wrong values of NCCL : 0$') $(out '^ .*[0-9]x$')"
old_nccl reduce -g 2 -b 1000 -e 1000 -d f8e4m3
t_expect "and not reduced" "0 1" "$rc $(out '^# Ratio to NCCL +: N/A')"
nccl all_reduce -g 2 -b 4K -e 4K -o avg
t_expect "an average is compared, its last bits are not" "0 0 1" \
    "$rc $(out '^# Wrong values of NCCL') $(out '^# Ratio to NCCL +: [0-9.]+x')"
for name in gather alltoallv; do
    NCCL_STUB_WRONG=1 nccl $name -g 2 -b 4K -e 4K --json "$dir/x.json"
    t_expect "$name: wrong values of NCCL are told and do not count as ours" "0 1 1 0" \
        "$rc $(out 'Out of bounds values : 0 OK') $(out '^# Wrong values of NCCL : [1-9]')" \
        "$(grep -c '"nccl_nwrong": 0' "$dir/x.json")"
done
NCCL_STUB_REFUSES=sends nccl alltoall -g 2 -b 4K -e 4K
t_expect "NCCL's own call is taken where it is" "0" "$rc"
NCCL_STUB_REFUSES=sends old_nccl alltoall -g 2 -b 4K -e 4K -R 0
t_expect "a send that NCCL refuses" "1 1 0" \
    "$rc $(err 'NCCL: send: refused by the stub') $(out '^ ')"

nccl all_gather -g 2 -b 4K -e 4K -R 0
t_expect "no windows for either" "0 1" "$rc $(out 'registered: no, memory: the same')"
nccl all_gather -g 2 -b 4K -e 4K -R 1
t_expect "registered buffers" "0 1" "$rc $(out 'registered: buffers, memory: the same')"
NCCL_STUB_REFUSES=windows nccl all_reduce -g 2 -b 4K -e 4K -G 2
t_expect "windows over our memory refused: NCCL's own" "0 1 1 1" \
    "$rc $(out '^# NCCL refuses windows over this memory: refused by the stub')" \
    "$(out 'registered: windows, memory: its own') $(out 'values : 0 OK')"
for name in reduce_scatter scatter all_gatherv; do
    NCCL_STUB_REFUSES=windows nccl $name -g 2 -b 4K -e 4K
    t_expect "$name in NCCL's own memory, in place too" "0 1 1" \
        "$rc $(out 'memory: its own') $(out '^# Wrong values of NCCL : 0$')"
done
NCCL_STUB_REFUSES=all-windows nccl all_reduce -g 2 -b 4K -e 4K
t_expect "windows refused everywhere" \
    "0 1 1" "$rc $(out '^# NCCL refuses windows over its own memory')" \
    "$(out 'registered: no, memory: the same')"
NCCL_STUB_REFUSES=buffers nccl all_reduce -g 2 -b 4K -e 4K -R 1
t_expect "buffers refused on one rank: on all" \
    "0 1" "$rc $(out '^# NCCL refuses to register the buffers: refused on another rank')"
NCCL_STUB_REFUSES=init nccl all_reduce -g 2 -b 4K -e 4K
t_expect "an NCCL that does not start" "1 0" "$rc $(out '^ +4096')"
nccl all_reduce -g 2 -b 4K -e 4K -o mulsum
t_expect "what NCCL has not has no ratio" "0 1" "$rc $(out '^# Ratio to NCCL +: N/A')"
run "$perf" all_reduce -t 1 --vs nccl --nccl "$dir/none.so"
t_expect "NCCL that is not there" "2 1" "$rc $(err 'none.so: cannot open')"
echo 'int ncclGetVersion(int *v) { return *v = 0; }' | $cc -shared -fPIC -x c - -o "$dir/part.so"
run "$perf" all_reduce -t 1 --vs nccl --nccl "$dir/part.so"
t_expect "NCCL that lacks a function" \
    "2 1" "$rc $(err '^symm-perf: --vs nccl: .*part.so has no ncclGetUniqueId')"
PERF_NCCL_LIB=$dir/libnccl.so run "$perf" all_reduce -g 2 -b 4K -e 4K -n 2 --rounds 1 --vs nccl
t_expect "NCCL by PERF_NCCL_LIB, of which the library does not warn" \
    "0 1 0" "$rc $(out 'registered: windows') $(err .)"

# ---- refused ----
refused() { # text, flags...
    text=$1
    shift
    run "$perf" "$@"
    t_expect "symm-perf $*: refused" "2 1" "$rc $(err "^symm-perf: .*$text")"
}
refused '5 ranks with a GPU each \(-g\): there are 4 GPUs' all_reduce -g 5
refused 'vs mpi needs ranks under mpirun' all_reduce -g 2 --vs mpi
refused 'not with -z 1, which waits' all_reduce -g 2 --limits -z 1
refused '-z 1 cannot wait inside a graph' all_reduce -g 2 -G 2 -z 1
PERF_IMAGES=0 SYMM_BACKEND=auto refused '--ngpus needs GPUs: this build has no GPU kernels' \
    all_reduce -g 2
PERF_IMAGES=0 SYMM_BACKEND=auto refused '--vs nccl needs GPUs: this build has no GPU kernels' \
    all_reduce -t 2 --vs nccl
GPU_FAKE=0 refused 'SYMM_BACKEND=cuda needs GPUs: 0 devices' all_reduce -t 2

# ---- processes ----
mpi=$objects/src/transport/mpi/boot_mpi.o
if [ -e "$mpi" ] && command -v "${MPICC:-mpicc}" >/dev/null 2>&1 &&
    command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    OMPI_CC=$cc MPICH_CC=$cc ${MPICC:-mpicc} $flags -DSYMM_HAVE_MPI \
        -rdynamic tests/fake/perf_stub.c $sources tools/perf_mpi.c $library \
        -o "$perf" >"$dir/log" 2>&1 ||
        { t_fail "symm-perf builds with the fake driver and MPI" "$(cat "$dir/log")" && t_done; }
    export OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}" GPU_FAKE=2
    ranks() { # N flags...
        timeout 60 sh -c '. scripts/mpi.sh; launch "$@"' - "$1" "$perf" "$2" -b 1K -e 64K -f 8 \
            -n 3 $3 >"$dir/out" 2>"$dir/err"
        rc=$?
    }
    ranks 2 all_reduce "-g 1 -G 2"
    t_expect "processes with a GPU each" \
        "0 1 2" "$rc $(out 'Out of bounds values : 0 OK') $(out '^# +Rank +[01] .* device [01] ')"
    ranks 3 all_gather ""
    t_expect "processes that share a GPU" \
        "0 1 2" "$rc $(out 'Out of bounds values : 0 OK') $(out '^# +Rank .* device 0 ')"
    ranks 3 all_gather "-g 1"
    said='it and rank 0 have the same GPU \(0000:10:00.0\), and -g asks for one each'
    t_expect "refused where -g asks for one each" "2 1 0" \
        "$rc $(err "^symm-perf: rank 2: $said") $(out '^#')"
else
    t_skip "processes on the fake driver" "needs mpi"
fi
t_done
