# columns.awk - whether nccl-tests shows what symm-perf does. Input: tables, by the name of their
# file perf.N (symm-perf beside NCCL), nccl.N and symm.N (nccl-tests over NCCL, and under symm-run);
# of several the least time of each size counts. Output: all times, out of place, and the ratios of
# NCCL's to ours. Fails if the two ratios differ by more than 5 % in the geometric mean, if a size
# is missing in one of the three, or if nothing is there.
function least(run, time) {
    if (time > 0 && (!((run, $1) in us) || time < us[run, $1])) us[run, $1] = time
}
{
    run = FILENAME
    sub(/.*\//, "", run)
    sub(/\..*/, "", run)
}
$1 !~ /^[0-9]+$/ || NF < 9 { next }
!($1 in known) { known[$1] = 1; size[++sizes] = $1 }
run == "perf" { least("ours", $6 + 0); least("nccl's", $10 + 0); next }
{ least(run, $6 + 0) }
END {
    printf "#       size  symm-perf   its NCCL   ratio  nccl-tests  over NCCL   ratio\n"
    for (i = 1; i <= sizes; i++) {
        s = size[i]
        if (!us["ours", s] || !us["nccl's", s] || !us["symm", s] || !us["nccl", s]) {
            printf "%12d  is not in every table\n", s
            missing++
            continue
        }
        own = us["nccl's", s] / us["ours", s]
        shown = us["nccl", s] / us["symm", s]
        printf "%12d  %9.2f  %9.2f  %5.2fx   %9.2f  %9.2f  %5.2fx\n", s, us["ours", s],
            us["nccl's", s], own, us["symm", s], us["nccl", s], shown
        owns += log(own)
        showns += log(shown)
        n++
    }
    if (!n) {
        print "# no size is in every table"
        exit 1
    }
    apart = exp((showns - owns) / n) - 1
    printf "# geometric mean: symm-perf %.2fx, nccl-tests %.2fx, %+.1f %% apart\n", exp(owns / n),
        exp(showns / n), 100 * apart
    exit missing > 0 || apart > 0.05 || apart < -0.05
}
