#!/bin/sh
# check_tools.sh - symm-perf, symm-tune and symm-info as a user meets them: flags, exit codes,
# columns, files. How fast anything is plays no part.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
. scripts/mpi.sh
perf=${BUILD:-build}/bin/symm-perf
info=${BUILD:-build}/bin/symm-info
tune=${BUILD:-build}/bin/symm-tune
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
export OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"
export SYMM_BACKEND=host # also where there are GPUs: their part is at the end
mpi=no
nm -D "$perf" 2>/dev/null | grep -q MPI_Init && mpi=yes

# run COMMAND...: keeps what it printed in $dir/out and $dir/err, its status in rc
run() {
    timeout 120 "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
ranks() { # N COMMAND...
    timeout 120 sh -c '. scripts/mpi.sh; launch "$@"' - "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
}
out() { grep -cE -- "$1" "$dir/out"; }
err() { grep -cE -- "$1" "$dir/err"; }
shown() { cat "$dir/err" "$dir/out"; } # where a t_expect fails
need_mpi() { [ $mpi = yes ] || { t_skip "$1" "needs mpi" && return 1; }; }

# ---- symm-perf: flags ----
refused() { # text, flags...
    text=$1
    shift
    run "$perf" "$@"
    t_expect "symm-perf $*: refused" "2 1" "$rc $(err "^symm-perf: .*$text")"
}
refused "which collective" -n 5
refused "unknown collective 'all_red'" all_red
refused "unknown flag --bogus" all_reduce --bogus
refused "unknown flag -q" all_reduce -q
refused "needs a value" all_reduce -b
refused "minbytes: '1Q'" all_reduce -b 1Q
refused "maxbytes: '-1'" all_reduce -e -1
refused "maxbytes: '16 '" all_reduce -e '16 '
refused "maxbytes: '8 B' is not bytes from 0 to 1048576G" all_reduce -e '8 B'
refused "maxbytes: '4611686018427387904'" alltoall --per-rank -e 4611686018427387904 -t 4
refused "minbytes 1125899906842624 is more" all_reduce -b 1048576G -t 2
refused "flag --limits takes no value" all_reduce --limits=1 -t 2
refused "minbytes 2097152 is more than --maxbytes 1048576" all_reduce -b 2M -e 1M
refused "datatype: 'f17'" all_reduce -d f17
refused "threads: '0'" all_reduce -t 0
refused "vs: 'rccl' is not mpi or nccl" all_reduce --vs rccl
refused "vs nccl needs GPUs" all_reduce --vs nccl -t 2
refused "ngpus needs GPUs" all_reduce -g 2
refused "ngpus needs GPUs" all_reduce -g 1 -t 2
refused "ngpus: '0'" all_reduce -g 0
refused "together make 144 ranks" all_reduce -g 2 -t 72
refused "nccl /x.so is for --vs nccl" all_reduce --nccl /x.so -t 2
refused "vs mpi needs ranks under mpirun" all_reduce --vs mpi -t 2
refused "stepbytes adds, --stepfactor multiplies" all_reduce -i 1K -f 2 -t 2
refused "per-rank is for collectives that have a part for each rank" all_reduce --per-rank -t 2
refused "corrupt needs a check" barrier --corrupt -t 2
refused "corrupt needs a check" all_reduce --corrupt -c 0 -t 2
refused "hypercube has steps, which a group .-m 2. would make at once" hypercube -m 2 -t 2
refused "pingpong has steps" pingpong -m 2 -t 2
refused "limits measures over windows" all_reduce --limits -t 2 -R 0
refused "limits needs -d float -o sum" all_reduce --limits -t 2 -o max
SYMM_BACKEND=auto run env CUDA_VISIBLE_DEVICES= "$perf" all_reduce -g 2
t_expect "GPUs that are not there: one line says why" \
    "2 1" "$rc $(err '^symm-perf: --ngpus needs GPUs: .+')"
refused "limits measures between 2 ranks; there are 3" all_reduce --limits -t 3
refused "root 9: there are 2 ranks" all_reduce -r 9 -t 2
run "$perf" --help
t_expect "symm-perf --help lists the flags" "0 1" "$rc $(out '--minbytes SIZE')"
if need_mpi "under mpirun a bad flag is told once and every rank leaves"; then
    ranks 3 "$perf" all_reduce --bogus
    t_expect "under mpirun a bad flag is told once and every rank leaves" \
        "2 1" "$rc $(err '^symm-perf: unknown flag')"
fi

if need_mpi "over several domains, what they do not serve is told once"; then
    for flags in "all_reduce -y 1" "all_reduce -G 2" "all_reduce --limits" put; do
        # shellcheck disable=SC2086 # words
        ranks 2 env SYMM_DOMAIN_SIZE=1 "$perf" $flags -b 8 -e 8
        t_expect "symm-perf $flags over several domains: told once, and every rank leaves" "2 1 0" \
            "$rc $(err "^symm-perf: .* is for ranks of one domain; these are of 2") $(err _ABORT)"
    done
fi

if need_mpi "under mpirun -g is for a single process"; then
    ranks 2 "$perf" all_reduce -g 2
    t_expect "under mpirun -g is for a single process" \
        "2 1" "$rc $(err '^symm-perf: --ngpus 2 is for a single process; there are 2')"
    ranks 2 "$perf" all_reduce -t 2
    t_expect "under mpirun -t is for a single process" "2 1 0" \
        "$rc $(err '^symm-perf: --threads 2 is for a single process; there are 2')" \
        "$(out '^# nRanks')"
    ranks 1 "$perf" all_reduce -t 2 -b 1K -e 1K
    t_expect "which mpirun may start" "0 1" "$rc $(out '^# nRanks 2 ')"
    ranks 2 "$perf" all_reduce --vs nccl
    t_expect "under mpirun a refusal by the backend is told once" \
        "2 1" "$rc $(err '^symm-perf: --vs nccl needs GPUs')"
fi

# ---- symm-perf: runs ----
run "$perf" all_reduce -t 3 -b 20 -e 100K -f 71 -d all -o all -n 2
t_expect "all types and reductions are right, out of place and in place" \
    "0 1 216" "$rc $(out 'Out of bounds values : 0 OK') $(out '^ .*  0$')"
run "$perf" all_gather -t 2 -b 64 -e 64K -f 32 -d all -n 2 -u 1
t_expect "all_gather, unaligned" "0 1" "$rc $(out 'Out of bounds values : 0 OK')"
run "$perf" all_reduce -t 2 -b 4K -e 4K -R 0 -y 1 -z 1 -n 3 -m 2
t_expect "no windows, a stream, groups" "0 1" "$rc $(out 'Out of bounds values : 0 OK')"
run "$perf" all_reduce -t 2 -b 4K -e 4K -G 5 -n 3
t_expect "captured and replayed" "0 1" "$rc $(out 'Out of bounds values : 0 OK')"
# Threads that begin on one core and spin there would have a first row a hundred times too slow.
cores() { sed -n 's/^# *Rank .* core \([0-9]*\)$/\1/p' "$dir/out" | sort -u | wc -l; }
run "$perf" all_reduce -t 2 -b 1K -e 1K
t_expect "two thread ranks have a core each, where there are two" \
    "0 $(($(nproc) > 1 ? 2 : 1))" "$rc $(cores)"
run "$perf" all_reduce -t 5 -b 1K -e 1K
t_expect "five share what there is" "0 $(($(nproc) > 5 ? 5 : $(nproc)))" "$rc $(cores)"
if command -v taskset >/dev/null 2>&1; then
    last=$(taskset -cp $$ | sed 's/.*[-, ]//')
    run taskset -c "$last" "$perf" all_reduce -t 2 -b 1K -e 1K
    t_expect "no core is taken that is not allowed" "0 2" "$rc $(out "^# *Rank .* core $last$")"
else
    t_skip "no core is taken that is not allowed" "needs taskset"
fi
run "$perf" all_reduce -t 2 -b 1K -e 1K -y 1
t_expect "beside a stream's worker no core is held" "0 0" "$rc $(cores)"
run "$perf" broadcast_perf -t 3 -b 1K -e 1K -r -1
t_expect "-r -1 measures each root; nccl-tests' name" "0 1 0 1 2" \
    "$rc $(out 'values : 0 OK') $(awk '/^ +1024 / { print $5 }' "$dir/out" | xargs)"
for collective in all_gatherv reduce_scatterv alltoallv; do
    run "$perf" "$collective" -t 3 -b 4 -e 256K -f 16 -d all -n 2
    t_expect "$collective, parts of unequal size" "0 1" "$rc $(out 'values : 0 OK')"
    run "$perf" "$collective" -t 2 -b 1K -e 1K --corrupt
    t_expect "a spoilt element of $collective is found" "1 1" "$rc $(out '[1-9][0-9]* FAILED')"
done
for collective in reduce gather; do
    run "$perf" "$collective" -t 2 -b 1K -e 1K -r 1 --corrupt
    t_expect "a spoilt element of $collective is found, whatever the root" \
        "1 1" "$rc $(out '[1-9][0-9]* FAILED')"
done
run "$perf" put -t 2 -b 1K -e 1K -m 3 -n 1 -w 0
t_expect "puts and waits keep their order in a group" "0 1" "$rc $(out 'values : 0 OK')"
SYMM_DEBUG=NONE SYMM_ALGO=ring run "$perf" all_reduce -t 5
t_expect "thread ranks that cannot be a communicator say why, once" "1 1 1" \
    "$rc $(err "^symm-perf: rank 0: .*'ring' is no kernel") $(err .)"
run "$perf" hypercube -t 4 -b 4K -e 64K -f 16 -G 3 -n 2
t_expect "hypercube in a graph, with its own block" "0 1" "$rc $(out 'values : 0 OK')"
run "$perf" barrier -t 2 -d all
t_expect "a barrier has no types" "0 1" "$rc $(out '^ +0 +0 +none')"
run "$perf" barrier -t 2
t_expect "barrier" "0 1" "$rc $(out '^ +0 +0 +none')"
run "$perf" all_reduce -t 2 -b 1K -e 1K --corrupt
t_expect "a spoilt element is found: exit 1" \
    "1 1" "$rc $(out 'Out of bounds values : [1-9][0-9]* FAILED')"
run "$perf" all_reduce -t 2 -b 1K -e 1K -c 0
t_expect "no check where none is wanted" "0 1" "$rc $(out 'values : not checked')"
run "$perf" all_reduce -t 2 -b 1K -e 1K -n 100000000 -T 1
t_expect "a measurement that takes too long ends in a timeout: exit 3" \
    "3 1" "$rc $(err 'timeout: all_reduce of 1024 bytes, out of place')"
run "$perf" all_reduce -t 2 -b 256 -e 1M -f 64 --limits
t_expect "bare loops stand beside it" \
    "0 1 1" "$rc $(out "values : 0 OK")" \
    "$(out '^# limit: a bare two-cache-line exchange takes [0-9.]+ us; calls under 1 KB')"
run "$perf" all_reduce -t 2 -b 1K -e 1K --json /nonexistent/x.json
t_expect "a file that cannot be written is a failure" \
    "1 1" "$rc $(err 'cannot write /nonexistent/x.json: No such file')"

if [ -w /dev/full ]; then
    timeout 120 "$perf" all_reduce -t 2 -b 1K -e 1K >/dev/full 2>"$dir/err"
    t_expect "and so is a table" "1 1" "$? $(err '^symm-perf: cannot write the table$')"
    timeout 120 "$info" params >/dev/full 2>"$dir/err"
    t_expect "and what symm-info found" "1 1" "$? $(err '^symm-info: cannot write what it found')"
else
    t_skip "and so is a table" "needs /dev/full"
fi

run "$perf" all_gather -t 2 -b 1K -e 64K -f 4 --json "$dir/x.json" --plot "$dir/x.svg"
if command -v python3 >/dev/null 2>&1; then
    rows=$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
wrong = d["results"][0]["in_place"]["nwrong"]
print(len(d["results"]), wrong, len(d["config"]["devices"]))' "$dir/x.json" 2>&1)
    t_expect "the JSON is JSON" "0 4 0 2" "$rc $rows"
    name=$dir/$(printf 'v\303\244r \344 \355\240\200 "\\')
    run "$perf" all_reduce -t 2 -b 1K -e 1K -c 0 --json "$name"
    said=$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1].encode("utf-8", "surrogateescape"), encoding="utf-8"))
name = ascii(d["args"][-2].rsplit("/", 1)[1])
print(d["out_of_bounds"], d["results"][0]["in_place"]["nwrong"], name, d["args"][-1])' "$name" 2>&1)
    t_expect "whatever bytes it shows, and what was not checked is not right" \
        "0 None None 'v\\xe4r \\xe4 \\xed\\xa0\\x80 \"\\\\' all_reduce" "$rc $said"
    lines='import sys, xml.dom.minidom
paths = xml.dom.minidom.parse(sys.argv[1]).getElementsByTagName("path")
print(*[p.getAttribute("d").count("M") for p in paths])'
    run python3 -c "$lines" "$dir/x.svg"
    t_expect "the plot is SVG with a line per placement" "0 1 1" "$rc $(cat "$dir/out")"
    "$perf" all_gather -t 2 -b 1K -e 16K -f 4 -N 2 --plot "$dir/x.svg" >"$dir/out" 2>&1
    run python3 -c "$lines" "$dir/x.svg"
    t_expect "measured twice, a line is drawn twice, not back" "0 2 2" "$rc $(cat "$dir/out")"
else
    t_skip "the JSON is JSON" "needs python3"
    t_skip "the plot is SVG" "needs python3"
fi

if need_mpi "beside MPI"; then
    ranks 2 "$perf" all_reduce -b 1K -e 64K -f 8 --vs mpi --limits
    t_expect "all_reduce beside MPI: a ratio per cell, and their mean" "0 1 3" \
        "$rc $(out '^# Ratio to MPI +: [0-9.]+x geometric mean') $(out '^ .*[0-9]x .*[0-9]x')"
    ranks 2 "$perf" all_gather -b 4K -e 4K -d half --per-rank --vs mpi
    t_expect "all_gather of a type MPI lacks, sizes per rank" \
        "0 1 1" "$rc $(out '^# Ratio to MPI +: [0-9.]+x') $(out '^ +4096 +2048 +half')"
    for collective in reduce_scatter alltoall broadcast reduce gather scatter all_gatherv \
        reduce_scatterv alltoallv; do
        ranks 3 "$perf" "$collective" -b 4K -e 64K -f 16 --vs mpi -r -1
        t_expect "$collective beside MPI" "0 1 1" \
            "$rc $(out 'values : 0 OK') $(out '^# Ratio to MPI +: [0-9.]+x')"
    done
    ranks 2 "$perf" all_reduce -b 4K -e 4K -d bfloat16 --vs mpi
    t_expect "all_reduce of a type MPI lacks has no ratio" \
        "0 1" "$rc $(out '^# Ratio to MPI +: N/A')"
fi

# ---- symm-perf on GPUs ----
if SYMM_BACKEND=cuda run "$perf" barrier -t 1 && [ "$rc" = 0 ]; then
    export SYMM_BACKEND=cuda
    run "$perf" all_reduce -g 1 -t 1 -b 20 -e 1M -f 71 -d all -o all -n 2
    t_expect "one GPU: all types and reductions" "0 1" "$rc $(out 'Out of bounds values : 0 OK')"
    run "$perf" all_reduce -t 1 -b 1K -e 64M -f 16 -G 3 -n 4 --limits --json "$dir/gpu.json"
    t_expect "one GPU: captured and replayed, with the time to issue" "0 1 1" \
        "$rc $(out 'Out of bounds values : 0 OK')" \
        "$(grep -c '"backend": "cuda", "launch": "graph"' "$dir/gpu.json")"
    run "$perf" all_gather -t 1 -b 1K -e 64M -f 16 -R 0 -u 1 --corrupt
    t_expect "one GPU: a spoilt element is found" \
        "1 1" "$rc $(out 'Out of bounds values : [1-9][0-9]* FAILED')"
    run "$perf" all_reduce -g 1000 -t 1
    t_expect "more GPUs than there are" "2 1" "$rc $(err 'there are [0-9]+ GPUs')"
    run "$perf" all_reduce -t 1 --vs nccl --nccl /nonexistent/libnccl.so.2
    t_expect "NCCL that is not there" "2 1" "$rc $(err '/nonexistent/libnccl.so.2: cannot open')"
    export SYMM_BACKEND=host
else
    t_skip "symm-perf on GPUs" "needs cuda"
fi

# ---- symm-tune ----
not_tuned() { # text, flags...
    text=$1
    shift
    run "$tune" "$@"
    t_expect "symm-tune $*: refused" "2 1" "$rc $(err "^symm-tune: .*$text")"
}
not_tuned "'barrier' is no collective that can be tuned" barrier
not_tuned "'all_red' is no collective" all_red
not_tuned "-b does not take '1x'" -b 1x
not_tuned "-e does not take '1 '" -e '1 '
not_tuned "-b is larger than -e" -t 2 -b 2M -e 1M
not_tuned "-s does not take ''" -s
not_tuned "-t does not take '73'" -t 73
not_tuned "-x does not take 'y'" -x y
SYMM_ALGO=all_reduce_load_store not_tuned "SYMM_ALGO is set" -t 2
run "$tune" -t 2 -o /nonexistent/t
t_expect "symm-tune and a file that cannot be written" "1 1" \
    "$rc $(err '^symm-tune: cannot write /nonexistent/t.new: No such file')"
if [ -e /dev/full ]; then
    timeout 60 "$tune" -t 2 -b 4K -e 4K -s 1 all_gather >/dev/full 2>"$dir/err"
    t_expect "symm-tune and a full disk" "1 1" \
        "$? $(err '^symm-tune: cannot write the table: No space')"
else
    t_skip "symm-tune and a full disk" "needs /dev/full"
fi
run "$tune" --help
t_expect "symm-tune --help" "0 1" "$rc $(out '^usage: mpirun -np N symm-tune')"
run "$tune" -t 2 -b 4K -e 16K -s 1 all_gather
t_expect "symm-tune prints a table" "0 1 1" \
    "$rc $(out '^\[host ranks=2 cores=(few|enough)\]$')" \
    "$(out '^all_gather_[a-z_]+ upto=[0-9]+$' | sed 's/[1-9]/1/')"
run "$tune" -t 3 -b 256 -e 16K -s 100 -o "$dir/plan" all_reduce reduce_scatter
t_expect "symm-tune measures each size of each, and says where the table is" "0 14 1" \
    "$rc $(out '^(all_reduce|reduce_scatter) +[0-9]+ +(all_reduce|reduce_scatter)_.* [0-9.]+')" \
    "$(out "^# .*/plan has the table: SYMM_PLAN_TABLE=.*/plan$")"
SYMM_PLAN_TABLE=$dir/plan run "$perf" all_reduce -t 3 -b 256 -e 64K
t_expect "calls go by it, and are right" "0 1" "$rc $(out 'values : 0 OK')"
cores=$(nproc)
shown="Plan for 3 ranks"
[ "$cores" -ge 3 ] || shown="$shown, more than cores"
SYMM_PLAN_TABLE=$dir/plan run "$info" plan --ranks 3 --plot "$dir/plan.svg"
t_expect "symm-info plan shows what was measured here" "0 1 yes" \
    "$rc $(out "^$shown$")" \
    "$(out '^  all_reduce +0 B .. .*measured' | sed 's/[1-9]/yes/')"
t_expect "and draws it" "yes yes" \
    "$(grep -q '<title>all_reduce_[a-z0-9_]*: 0 B to .*, measured<' "$dir/plan.svg" && echo yes)" \
    "$(grep -q ', predicted<\|, shipped<' "$dir/plan.svg" && echo yes)"
if command -v python3 >/dev/null 2>&1; then
    run python3 -c 'import sys, xml.dom.minidom
print(len(xml.dom.minidom.parse(sys.argv[1]).getElementsByTagName("rect")) > 40)' "$dir/plan.svg"
    t_expect "as SVG" "0 True" "$rc $(cat "$dir/out")"
fi
echo "[host ranks=3" >"$dir/bad"
SYMM_PLAN_TABLE=$dir/bad run "$info" plan --ranks 3
t_expect "symm-info refuses a bad table" "1 2" \
    "$rc $(out "^  refused: SYMM_PLAN_TABLE, line 1: .*not closed, in .*/bad")"
SYMM_PLAN_TABLE=$dir/bad run "$perf" all_reduce -t 3 -b 256 -e 256
t_expect "and so does a communicator" "1 1" \
    "$rc $(err "SYMM_PLAN_TABLE, line 1: .*/bad" | sed 's/[1-9]/1/')"
run "$info" --plot
t_expect "a plot needs a file" "2 1" "$rc $(err '^symm-info: --plot needs a FILE')"
run "$info" machine --plot "$dir/x.svg"
t_expect "a plot is the plan's" "2 1" "$rc $(err '^symm-info: --plot goes with the section plan')"
run "$info" plan --plot /nonexistent/x.svg
t_expect "a plot that cannot be written is a failure" "1 1" \
    "$rc $(err 'cannot write /nonexistent/x.svg: No such file')"
if need_mpi "symm-tune under mpirun"; then
    ranks 2 "$tune" -b 1K -e 4K -s 5 broadcast
    t_expect "symm-tune under mpirun" "0 1" "$rc $(out '^\[host ranks=2 cores=')"
    ranks 2 "$tune" -t 2 broadcast
    t_expect "with threads as well: refused" "yes 1" \
        "$([ $rc -ne 0 ] && echo yes) $(err '^symm-tune: -t and -g are for a single process')"
fi

# ---- symm-info ----
run "$info"
t_expect "symm-info says whether peers' memory can be reached" \
    "0 1" "$rc $(out "^  peers' memory  *buffers in no window ")"
for section in Machine Backends 'Instruction sets' 'Memory driver of the host' Domain \
    Parameters 'Kernels of the host backend' 'Kernels for GPUs' 'Plan for 4 ranks' \
    'Plan for 4 GPUs of'; do
    t_expect "symm-info shows: $section" "0 1" "$rc $(out "^$section")"
done
t_expect "each refusal has its reason" 0 "$(out 'refused( here)?:? *$')"
rows=src/device/common/coll.def
colls=$(sed -nE 's/^SYMM_COLL\(\w+, "(\w+)".*/\1/p' $rows | paste -sd'|')
t_expect "symm-info lists each kernel of coll.def, those of both backends twice" \
    "$(grep -cE '^SYMM_KERNEL\(' $rows) $(grep -c 'SYMM_K_HOST | SYMM_K_GPU' $rows)" \
    "$(grep -oE "^  ($colls)_[a-z0-9_]+ +($colls) +(all 12|-) " "$dir/out" |
        awk '{ n[$1]++ } END { for (k in n) { all++; twice += n[k] == 2 } print all, twice }')"
SYMM_NCCL_LIB=${BUILD:-build}/test/libnccl-real.so SYMM_DOMAIN_SIZE=3 run "$info" memory
t_expect "symm-info shows the domain: what cuts it, a NCCL and its version" "0 1 1" \
    "$rc $(out '^  cut +SYMM_DOMAIN_SIZE=3') $(out 'NCCL +version 23007, in .*libnccl-real.so$')"
SYMM_NCCL_LIB=${BUILD:-build}/lib/nccl/libnccl.so.2 run "$info" memory
t_expect "the drop-in is no NCCL" "0 1" \
    "$rc $(out 'NCCL +refused: .*it is symm itself, or no NCCL')"
SYMM_NCCL_LIB=/nowhere/libnccl.so.2 run "$info" memory
t_expect "a NCCL that is not there" "0 1" \
    "$rc $(out 'NCCL +refused: .*/nowhere/libnccl.so.2: cannot')"
run "$info" --ranks 5 plan
t_expect "symm-info plan for 5 ranks" \
    "0 1 1" "$rc $(out '^Plan for 5 ranks') $(out '^Plan for 5 GPUs of [0-9]+ multiprocessors')"
SYMM_ALGO=all_gather_push_ll128,all_reduce_load_store SYMM_CTAS=3 SYMM_THREADS=64 \
    run "$info" --ranks 4 plan
t_expect "symm-info plans as the variables say" "0 1 1" \
    "$rc $(out '^  all_gather +0 B .. any +all_gather_push_ll128 +forced +3 x 64$')" \
    "$(out '^  all_reduce +0 B .. any +all_reduce_load_store +forced +3$')"
run "$info" --ranks 8 plan
t_expect "what was measured elsewhere is shipped, what was calculated is predicted" "0 1 1" \
    "$rc $(out '^  all_reduce +[0-9]+ B .. any +all_reduce_load_store +shipped +1$')" \
    "$(out '^  all_reduce +[0-9]+ B .. any +all_reduce_direct +predicted')"
SYMM_ALGO=ring run "$info" plan
t_expect "symm-info names a kernel that is none" "1 1" "$rc $(out "refused: .*'ring' is no kernel")"
run "$info" --ranks x
t_expect "symm-info refuses a bad number" "2 1" "$rc $(err "'x' is not a number")"
run "$info" --ranks 73
t_expect "symm-info refuses more ranks than a communicator has" \
    "2 1" "$rc $(err "'73' is not a number from 1 to 72")"
SYMM_BACKEND=auto run "$info" memory
state() { sed -n "s/^  $1  *\([a-z]*\).*/\1/p" "$dir/out"; }
gpus=$(out '^GPU [0-9]+$')
backends="host is $(state host), cuda is $(state cuda), GPUs: $gpus"
case $backends in
'host is in, cuda is refused, GPUs: 0') t_ok "without GPUs symm-info says what is lacking" ;;
'host is available, cuda is in, GPUs: '[1-9]*)
    t_expect "each GPU has a name, a capability, memory and its handles" \
        "$gpus $gpus $gpus $((gpus + 1)) $gpus" \
        "$(out '^  device  .*GiB, [0-9a-fA-F:.]+$') $(out '^  capability +[0-9]+\.[0-9]')" \
        "$(grep -A9 '^GPU' "$dir/out" | grep -c '^  sharing ')" \
        "$(out '^  fabric handles +(yes|refused: .)')" \
        "$(out '^  NVLink fabric +(cluster [0-9a-f-]{36}, clique [0-9]+$|refused: .)')"
    ;;
*) t_fail "symm-info tells the backends" "$backends" ;;
esac
# Over the fake driver: few machines have GPUs in such a fabric.
name="symm-info tells the fabric that a GPU is in, or why none"
objects=${BUILD:-build}/obj-test
if [ -e "$objects/libsymm.a" ] && [ -e "$objects/tests/parts.a" ] &&
    [ -e "$objects/tests/t.o" ]; then
    # shellcheck disable=SC2046
    run "${CC:-gcc}" -std=gnu11 -O1 -Wall -Wextra -Werror -pthread -DSYMM_TESTING -Iinclude -Isrc \
        -Itests/kit -Itests/fake -I"${BUILD:-build}" -rdynamic tests/fake/perf_stub.c \
        tools/symm_info.c $(find tools -name 'info_*.c') "$objects/tests/t.o" \
        "$objects/tests/parts.a" "$objects/libsymm.a" "$objects/tests/parts.a" \
        "$objects/src/device/common/kernel_images.o" -ldl -lrt -lm -o "$dir/info"
    t_expect "symm-info builds with the fake driver" 0 "$rc"
    SYMM_BACKEND=auto GPU_FAKE=2 run "$dir/info" memory
    none=$(out '^  NVLink fabric +refused: the GPU is in no NVLink fabric over hosts$')
    id=00000000-0000-0000-0000-00000000000c
    SYMM_BACKEND=auto GPU_FAKE=2 PERF_FABRIC=12 run "$dir/info" memory
    t_expect "$name" "0 2 1 1" "$rc $none $(out "^  NVLink fabric +cluster $id, clique 0$")" \
        "$(out "^  NVLink fabric +cluster $id, clique 1$")"
else
    t_skip "$name" "needs $objects: make check builds it"
fi
run "$info" --heap --ranks 3 --svg "$dir/heap.svg"
t_expect "symm-info makes a heap: limits, costs, layout" "0 1 1 4 1 1" \
    "$rc $(out '^  granularity +[1-9]') $(out '^  ranks +3, backend host')" \
    "$(out '^  (create|grow|trim|push) +[0-9.]+ [nu]s ') $(out '^  LOCAL pair +[0-9]+ ns$')" \
    "$(out '^heap symm-info: rank 0 of 3')"
if command -v python3 >/dev/null 2>&1; then
    run python3 -c 'import sys, xml.dom.minidom
titles = xml.dom.minidom.parse(sys.argv[1]).getElementsByTagName("title")
def count(kind): return len([t for t in titles if t.firstChild.data.startswith(kind)])
print(count("user: ") > 3, count("synced: ") > 0)' "$dir/heap.svg"
    t_expect "the heap's map is SVG and shows its blocks" "0 True True" "$rc $(cat "$dir/out")"
else
    t_skip "the heap's map is SVG" "needs python3"
fi
run "$info" --heap --svg /nonexistent/x.svg
t_expect "a map that cannot be written is a failure" \
    "1 1" "$rc $(err 'cannot write /nonexistent/x.svg: No such file')"
run "$info" --svg "$dir/heap.svg"
t_expect "a map of no heap is refused" "2 1" "$rc $(err '^symm-info: --svg goes with --heap or')"
run "$info" --map "$dir/heap.svg" --svg "$dir/x.svg"
t_expect "what is no dump is not drawn" "1 1" "$rc $(err 'heap.svg: no dump of a heap .*byte 0')"
run "$info" --map /nonexistent/x.json --svg "$dir/x.svg"
t_expect "a dump that is not there is a failure" "1 1" "$rc $(err 'cannot read /nonexistent/x')"
SYMM_WIN_STRIDE=1 run "$info" --heap
t_expect "symm-info says why there is no heap" "1 1" "$rc $(out '^  heap +refused: .')"
run "$info" nonsense
t_expect "symm-info refuses an unknown section" "2 1" "$rc $(err "what is 'nonsense'")"
SYMM_CTAS=999 run "$info" params
t_expect "symm-info names a bad variable" "1 1" "$rc $(out 'refused: .*SYMM_CTAS')"
run "$info" --params-md
# SYMM_FAIL is for test builds, which symm-info is not.
t_expect "the Markdown table has a row per parameter" \
    "$(grep '^SYMM_PARAM_' src/base/params.def | grep -vc '"SYMM_FAIL"')" "$(out '^\| `SYMM_')"
t_done
