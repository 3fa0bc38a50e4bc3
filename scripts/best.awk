# best.awk - the best of several rivals beside ours. Input: JSON of `symm-perf --vs nccl`, one file
# for each setting of NCCL, STEM.json and STEM-SETTING.json (-v stem=STEM); or of --vs mpi, one for
# each MPI, STEM-NAME.json (-v rival=mpi -v name=MPI). Output: for each size that
# all files have, the run in which ours was least ahead. Both times and the ratio are of that one
# run, because only calls that ran in turns can be compared.
function value(key, text) {
    if (!match($0, "\"" key "\": [^,}]+")) return ""
    text = substr($0, RSTART, RLENGTH)
    sub(/.*: /, "", text)
    return text
}
function setting(text) {
    text = substr(FILENAME, length(stem) + 2)
    sub(/\.?json$/, "", text)
    return text == "" ? "as it comes" : text
}
BEGIN {
    if (rival == "") rival = "nccl"
    if (name == "") name = "NCCL"
}
FNR == 1 { files++ }
/"size": / {
    size = value("size")
    if (!(size in known)) sizes[++many] = size
    known[size] = 1
}
/"(out_of|in)_place": / && value(rival "_ratio") != "" {
    place = $0 ~ /"in_place"/ ? "in" : "out"
    at = size SUBSEP place
    seen[at]++
    if (at in ratio && ratio[at] <= value(rival "_ratio") + 0) next
    ratio[at] = value(rival "_ratio") + 0
    ours[at] = value("time")
    theirs[at] = value(rival "_time")
    by[at] = setting()
}
END {
    printf "# %d %s: the run in which ours is least ahead\n", files,
           rival == "mpi" ? "MPIs" : "settings of NCCL"
    printf "# %10s %6s %12s %12s %7s  %s\n", "size", "place", "time (us)", name " (us)", "ratio",
           rival == "mpi" ? "MPI" : "setting"
    for (i = 1; i <= many; i++)
        for (k = 1; k <= 2; k++) {
            place = k == 1 ? "out" : "in"
            at = sizes[i] SUBSEP place
            if (seen[at] != files) continue
            printf "%12s %6s %12.2f %12.2f %6.2fx  %s\n", sizes[i], place, ours[at], theirs[at],
                   ratio[at], by[at]
            sum += log(ratio[at])
            if (!n++ || ratio[at] < least) least = ratio[at]
        }
    if (n) printf "# geometric mean %.2fx, smallest %.2fx\n", exp(sum / n), least
    exit n == 0
}
