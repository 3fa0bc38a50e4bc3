#!/bin/sh
# check_campaign.sh - scripts/campaign.sh and gpu_report.sh on the fake driver: parts run, leave
# records, are not run twice, fail the whole when they fail, and leave nothing when the time cuts
# them off; the tables are made from the records. T_FULL=1: every program.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
. tests/check/fake_perf.sh
if [ ! -x "$build/test/gpu_pointer" ]; then
    t_skip "a campaign on the fake driver" "needs $build/test/gpu_pointer: make check builds it"
    t_done
fi
export CAMPAIGN_FAKE=1 CAMPAIGN_OUT="$dir/campaign" PERF="$perf" BUILD="$build" SYMM_SCRATCH=1M
export GPU_CASES=2 T_SECONDS_TORTURE=2
unset CAMPAIGN_FORCE NCCL_TESTS GPU_FAKE
campaign() { # words
    scripts/campaign.sh run "$@" >"$dir/out" 2>&1
    rc=$?
    last=$(tail -n 1 "$dir/out")
}
shown() { cat "$dir/out" && tail -n 5 "$dir"/campaign/*.log; }
records() { find "$CAMPAIGN_OUT" -maxdepth 1 -name '*.json' | wc -l; }

campaign check-gpu_pointer
t_expect "a part runs and leaves a record" "0 1" "$rc $(records)"
t_expect "the counts of the record are those of the part" \
    "$(grep -oE '^[0-9]+ passed' "$CAMPAIGN_OUT/check-gpu_pointer.log" | tail -n 1)" \
    "$(echo "$last" | grep -oE '^[0-9]+ passed')"
campaign check-gpu_pointer
t_expect "what has left a record is not run again" "0 1" "$rc $(wc -l <"$dir/out")"
CAMPAIGN_FORCE=1 campaign check-gpu_pointer
t_expect "it is where that is asked for" "0 2" "$rc $(wc -l <"$dir/out")"
CAMPAIGN_SECONDS=1 campaign check-gpu_life
t_expect "without time nothing begins, and the rest is counted" \
    "0 1 1" "$rc $(records) $(grep -c '^# 1 parts are left' "$dir/out")"
campaign check-gpu_pointer chekc-gpu_life
t_expect "a word that no part begins with is named, and nothing runs" "2 1" \
    "$rc $(grep -c "^campaign.sh: no part begins with 'chekc-gpu_life'" "$dir/out")"
mkdir -p "$dir/smi" "$dir/unmade"
printf '#!/bin/sh\necho "GPU 0: one"\n' >"$dir/smi/nvidia-smi"
chmod +x "$dir/smi/nvidia-smi"
(unset CUDA_VISIBLE_DEVICES SYMM_BACKEND PERF BIN && CAMPAIGN_FAKE=0 BUILD=$dir/unmade \
    PATH=$dir/smi:$PATH scripts/campaign.sh run check-gpu_pointer) >"$dir/out" 2>&1
t_expect "without a build nothing runs" "2 1" \
    "$? $(grep -c '^campaign.sh: there is no .*/unmade/bin/symm-run: run ' "$dir/out")"
# One that fails, one that does not end.
mkdir -p "$dir/broken/test"
printf '#!/bin/sh\necho "not ok 1 - always"; echo 1..1; exit 1\n' >"$dir/broken/test/gpu_pointer"
printf '#!/bin/sh\nexec sleep 60\n' >"$dir/broken/test/gpu_life"
chmod +x "$dir"/broken/test/*
BUILD=$dir/broken CAMPAIGN_OUT=$dir/bad campaign check-gpu_pointer
t_expect "a part that fails fails the whole" "1 0 passed, 1 failed, 0 skipped" "$rc $last"
CAMPAIGN_SECONDS=3 CAMPAIGN_LEAST=1 BUILD=$dir/broken \
    CAMPAIGN_OUT=$dir/late campaign check-gpu_life
left=$(find "$dir/late" -name '*.json' | wc -l)
t_expect "what the time cuts off leaves no record" "0 1 1" \
    "$left $(grep -c 'the time was over' "$dir/out") $(grep -c '^# 1 parts are left' "$dir/out")"

# ---- tables ----
flags_of_tables() { sed -i 's/-b 1K -e 1G/-b 1K -e 64K/' "$1"; }
mkdir "$dir/tree" && cp -r scripts tests "$dir/tree/"
flags_of_tables "$dir/tree/scripts/gpu_tables.sh"
(cd "$dir/tree" && BUILD=$(cd "$OLDPWD" && cd "$build" && pwd) scripts/campaign.sh run \
    table-all_reduce-2) >"$dir/out" 2>&1
t_expect "a collective's tables" "0 1 passed, 0 failed, 0 skipped" "$? $(tail -n 1 "$dir/out")"
(cd "$dir/tree" && BUILD=$(cd "$OLDPWD" && cd "$build" && pwd) \
    CAMPAIGN_OUT=$dir/other scripts/campaign.sh run table-alltoall-2) >"$dir/out" 2>&1
t_expect "those of a collective without a bare loop" "0 1 passed, 0 failed, 0 skipped" \
    "$? $(tail -n 1 "$dir/out")"
# Beside the stand-in for NCCL, of a few sizes: one with symmetric kernels, one with a call that not
# every NCCL has, one of sends. T_FULL=1: all.
CAMPAIGN_OUT=$dir/none scripts/campaign.sh list table- | sed 's/^table-//;s/-2 *$//' | sort \
    >"$dir/listed"
measured() {
    "$perf" --help | sed -n '1{s/usage: symm-perf //;s/ .*//;s/|/\n/g;p;}' |
        grep -vxE 'barrier|pingpong|alltoall_sends|put' | sort
}
t_empty "all that symm-perf measures on GPUs has tables" "$(measured | diff - "$dir/listed" 2>&1)"
some=$(if [ "${T_FULL:-0}" != 0 ]; then cat "$dir/listed"; else
    printf '%s\n' reduce_scatter gather sendrecv; fi)
number=$(echo "$some" | wc -l)
# shellcheck disable=SC2046,SC2086 # words
sed -i 's/-b 1K -e 64K/-b 1K -e 2K/;s/-e 1M -G 0/-e 2K -G 0/' "$dir/tree/scripts/gpu_tables.sh"
beside=$dir/beside
(cd "$dir/tree" && BUILD=$(cd "$OLDPWD" && cd "$build" && pwd) CAMPAIGN_OUT=$beside \
    PERF_NCCL_LIB=$dir/libnccl.so scripts/campaign.sh run $(printf 'table-%s-2 ' $some)) \
    >"$dir/out" 2>&1
t_expect "tables of $number collectives beside NCCL" "0 $number passed, 0 failed, 0 skipped" \
    "$? $(tail -n 1 "$dir/out")"
lacking() { # what each table has to have
    grep -L "$1" "$beside"/tables/*.json | sed 's|.*/||'
}
t_empty "each has a ratio" "$(lacking nccl_ratio)"
t_empty "NCCL's results are right in all" "$(lacking nccl_nwrong)$(
    grep -l 'nccl_nwrong": [1-9]' "$beside"/tables/*.json)"
t_expect "under its settings: the best of them" "$number 3 6" \
    "$(find "$beside/tables" -name '*-best.txt' -size +0 | wc -l)" \
    "$(awk '/^# . settings/ { print $2 }' "$beside"/tables/*-best.txt | sort -u | xargs)"
GPU_RUNS=$dir/runs scripts/gpu_report.sh "$CAMPAIGN_OUT" >"$dir/out" 2>&1
t_expect "the report has a row of each part" "1 1" \
    "$(grep -c '^| `check-gpu_pointer` | 2 x fake |' "$dir/out")" \
    "$(grep -c '^| `table-all_reduce-2` | 2 x fake | 1, 0, 0 |' "$dir/out")"
t_expect "and of each table, with its sizes" "7" \
    "$(grep -E '^\| all_reduce-float-2 on ' "$dir/out" | cut -d'|' -f3 | tr -d ' ')"
cp "$dir/runs" "$dir/before"
GPU_RUNS=$dir/runs scripts/gpu_report.sh "$CAMPAIGN_OUT" >/dev/null 2>&1
t_empty "taken twice, it is the same" "$(diff "$dir/before" "$dir/runs" 2>&1)"

# ---- nccl-tests and PyTorch under the drop-in ----
mkdir -p "$dir/fake-bin" "$dir/nccl-tests"
printf '#!/bin/sh\nexec "$@"\n' >"$dir/fake-bin/symm-run"
# Its ranks: as many as processes, or as -g and -t say. It runs once.
cat >"$dir/fake-bin/mpirun" <<'STUB'
#!/bin/sh
while [ "$1" != -np ]; do shift; done
export STUB_RANKS=$2
shift 2
exec "$@"
STUB
cat >"$dir/nccl-tests/all_reduce_perf" <<'STUB'
#!/bin/sh
ranks=$STUB_RANKS
case " $* " in
*" -g "* | *" -t "*) ranks=$(echo " $* " | sed 's/.* -[gt] \([0-9]*\) .*/\1/') ;;
esac
[ "$STUB_RANKS:$ranks" != 2:2 ] || echo processes >>"$STUB_SEEN"
[ "$STUB_RANKS:$ranks" != 1:2 ] || echo one >>"$STUB_SEEN"
r=0
while [ $r -lt "$ranks" ]; do echo "#  Rank  $r Group  0" && r=$((r + 1)); done
case " $* " in *"$STUB_WRONG"*) bad='3 FAILED' ;; *) bad='0 OK' ;; esac
echo "# Out of bounds values : $bad"
STUB
chmod +x "$dir"/fake-bin/* "$dir/nccl-tests/all_reduce_perf"
nccl() { # an option whose runs are wrong, ranks
    PERF='' BIN=$dir/fake-bin PATH=$dir/fake-bin:$PATH MPIRUN=mpirun NCCL_TESTS=$dir/nccl-tests \
        STUB_SEEN=$dir/seen STUB_WRONG=$1 scripts/campaign.sh part "nccl-all_reduce_perf-$2" \
        2>/dev/null | tail -n 1
}
t_equal "nccl-tests with a GPU for each rank, in processes and in one" \
    '22 passed, 0 failed, 0 skipped 16 processes 6 one' \
    "$(nccl none 2) $(grep -c processes "$dir/seen") processes $(grep -c one "$dir/seen") one"
t_equal "ranks that share GPUs, in processes alone" '13 passed, 0 failed, 0 skipped' \
    "$(nccl none 4)"
t_equal "a wrong word fails" '19 passed, 3 failed, 0 skipped' "$(nccl '-d all -o all' 2)"
# symm-perf has NCCL twice as slow. nccl-tests takes 8 us over NCCL, under symm-run as asked.
# shellcheck disable=SC2016 # $STUB_UNDER
columns() { # us under symm-run, a size more of one table
    printf '#!/bin/sh\necho "1024 256 float sum -1 4 1 1 0 8 1 1 2x"\n%s' "$2" \
        >"$dir/fake-bin/symm-perf"
    printf '#!/bin/sh\necho "1024 256 float sum -1 ${STUB_UNDER:-8} 1 1 0 9 1 1 0"\n' \
        >"$dir/nccl-tests/all_reduce_perf"
    printf '#!/bin/sh\nSTUB_UNDER=%s exec "$@"\n' "$1" >"$dir/fake-bin/symm-run"
    chmod +x "$dir"/fake-bin/*
    PERF='' BIN=$dir/fake-bin PATH=$dir/fake-bin:$PATH MPIRUN=mpirun NCCL_TESTS=$dir/nccl-tests \
        scripts/campaign.sh part columns-all_reduce-2 2>/dev/null | tail -n 2 | xargs |
        sed 's/# geometric mean: symm-perf 2.00x, nccl-tests //'
}
t_equal "nccl-tests shows what symm-perf does" \
    '1.95x, -2.4 % apart 1 passed, 0 failed, 0 skipped' \
    "$(columns 4.1 '')"
t_equal "it shows less" \
    '1.86x, -7.0 % apart 0 passed, 1 failed, 0 skipped' \
    "$(columns 4.3 '')"
t_equal "it lacks a size" \
    '2.00x, +0.0 % apart 0 passed, 1 failed, 0 skipped' \
    "$(columns 4 'echo "4096 1 float sum -1 4 1 1 0 8 1 1 2x"')"
t_equal "it shows nothing" '# no size is in every table 0 passed, 1 failed, 0 skipped' \
    "$(columns x '')"
t_equal "there is such a part where there is such a program" 'columns-all_reduce-2' \
    "$(NCCL_TESTS=$dir/nccl-tests scripts/campaign.sh list columns | xargs)"
printf '#!/bin/sh\nexec "$@"\n' >"$dir/fake-bin/symm-run"
# shellcheck disable=SC2016 # $5 and $6 are the backend and the case
printf '#!/bin/sh\necho "$6: $(cat "%s/said.$5")"\n' "$dir" >"$dir/fake-bin/torchrun"
chmod +x "$dir"/fake-bin/*
trained() { # what gloo and the drop-in say
    echo "$1" >"$dir/said.gloo"
    echo "$2" >"$dir/said.nccl"
    PERF='' BIN=$dir/fake-bin PATH=$dir/fake-bin:$PATH scripts/campaign.sh part torch-ddp-2 \
        2>/dev/null | tail -n 1
}
t_equal "the same losses pass" '1 passed, 0 failed, 0 skipped' \
    "$(trained '2.30010 ok' '2.30010 ok')"
t_equal "losses that differ in the last digit fail" '0 passed, 1 failed, 0 skipped' \
    "$(trained '2.30010 ok' '2.30011 ok')"
t_equal "a loss that is missing fails" '0 passed, 1 failed, 0 skipped' "$(trained '1 2' 1)"
rm "$dir/fake-bin/symm-run"
t_equal "a run that says nothing fails" '0 passed, 1 failed, 0 skipped' "$(trained ok ok)"

# ---- vLLM under the drop-in ----
printf '#!/bin/sh\nexec "$@"\n' >"$dir/fake-bin/symm-run"
# shellcheck disable=SC2016 # $3 and $5 are the ranks and the case
printf '#!/bin/sh\necho "INFO: begins"\necho "$5: $(cat "%s/said.$3")"\n' "$dir" \
    >"$dir/fake-bin/torchrun"
chmod +x "$dir"/fake-bin/*
served() { # case, what one rank says, what two say under the drop-in
    echo "$2" >"$dir/said.1"
    echo "$3" >"$dir/said.2"
    PERF='' BIN=$dir/fake-bin PATH=$dir/fake-bin:$PATH scripts/campaign.sh part "vllm-$1-2" \
        2>/dev/null | tail -n 1
}
t_equal "vLLM's communicator passes" '1 passed, 0 failed, 0 skipped' "$(served comm - ok)"
t_equal "it fails" '0 passed, 1 failed, 0 skipped' "$(served comm - wrong)"
t_equal "a model that writes what one rank writes passes" '1 passed, 0 failed, 0 skipped' \
    "$(served graph '7 9 7' '7 9 7')"
t_equal "one that writes other words fails" '0 passed, 1 failed, 0 skipped' \
    "$(served model '7 9 7' '7 9 8')"
t_equal "one that writes nothing fails" '0 passed, 1 failed, 0 skipped' "$(served model '' '')"
# The server is no program of torchrun's.
# shellcheck disable=SC2016 # $1 and $2 are the script and the ranks
printf '#!/bin/sh\n[ "$1" = tests/torch/vllm_server.py ] && echo "server: $(cat "%s/said.$2")"\n' \
    "$dir" >"$dir/fake-bin/python3"
chmod +x "$dir/fake-bin/python3"
t_equal "a server that writes what one rank writes passes" '1 passed, 0 failed, 0 skipped' \
    "$(printf '#!/bin/sh\necho "model: 7 9 7"\n' >"$dir/fake-bin/torchrun" &&
        served server - '7 9 7')"
t_equal "one that writes other words fails" '0 passed, 1 failed, 0 skipped' \
    "$(served server - '7 9 8')"

# ---- PyTorch's own tests ----
printf '#!/bin/sh\nSTUB_UNDER=symm exec "$@"\n' >"$dir/fake-bin/symm-run"
# The words are those of $dir/own.nccl, own.symm and, of one job, own.again.
cat >"$dir/fake-bin/python3" <<'STUB'
#!/bin/sh
case " $* " in
*' --jobs 1 '*) cat "$STUB_WORDS.again" ;;
*) cat "$STUB_WORDS.${STUB_UNDER:-nccl}" ;;
esac
STUB
own() { # words over NCCL, under symm-run, of those that run again
    printf '%s\n' "$1" >"$dir/own.nccl"
    printf '%s\n' "$2" >"$dir/own.symm"
    printf '%s\n' "$3" >"$dir/own.again"
    PERF='' BIN=$dir/fake-bin PATH=$dir/fake-bin:$PATH STUB_WORDS=$dir/own \
        scripts/campaign.sh part own-2 2>/dev/null | tail -n 1
}
two='a ok
b ok'
t_equal "tests that pass over NCCL and under symm-run" '2 passed, 0 failed, 0 skipped' \
    "$(own "$two" "$two" '')"
t_equal "one that fails over NCCL, too, is nobody's failure" '1 passed, 0 failed, 1 skipped' \
    "$(own 'a ok
b FAILED' 'a ok
b FAILED' '')"
t_equal "one that fails under symm-run alone, twice" '1 passed, 1 failed, 0 skipped' \
    "$(own "$two" 'a ok
b FAILED' 'b FAILED')"
t_equal "once" '2 passed, 0 failed, 0 skipped' "$(own "$two" 'a ok
b FAILED' 'b ok')"
t_equal "one that was skipped under symm-run alone" '1 passed, 1 failed, 0 skipped' \
    "$(own "$two" 'a ok
b skipped' '')"
t_equal "no word at all" '0 passed, 2 failed, 0 skipped' "$(own "$two" '' '')"
t_equal "no test at all" '0 passed, 1 failed, 0 skipped' "$(own '' '' '')"

# ---- the documents ----
cp -r docs "$dir/tree/"
sh "$dir/tree/scripts/gpu_report.sh" "$dir/none" >"$dir/out" 2>&1
t_expect "the tables of the documents are those of docs/gpu-runs.txt" "0 " \
    "$? $(diff -r docs "$dir/tree/docs" 2>&1)"

# The campaign is what is tested here: of the programs' cases some will do.
if [ "${T_FULL:-0}" != 0 ]; then
    unset T_FULL
    rm -rf "$CAMPAIGN_OUT"
    # On one device two alone that do something else there: elsewhere three and more ranks share one
    # of the two as well. (gpu_fault would do so too, and take minutes.)
    GPU_CASES=1 CAMPAIGN_SECONDS=3000 campaign check- torture alone-gpu_p2p alone-gpu_side
    t_expect "every program on the fake driver" "0 0 0" \
        "$rc $(grep -c 'the time was over' "$dir/out") $(grep -c 'parts are left' "$dir/out")"
fi
t_done
