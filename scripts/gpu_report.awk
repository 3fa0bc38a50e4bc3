# gpu_report.awk - the tables of the documents from docs/gpu-runs.txt. -v what=parts: what ran on
# which GPUs; -v what=tables: geometric means and times beside NCCL.
function value(key, text) {
    if (!match($0, "\"" key "\": [^,}]+")) return ""
    text = substr($0, RSTART, RLENGTH)
    sub(/^[^:]*: /, "", text)
    gsub(/"/, "", text)
    return text
}
function ratio_text(sum, n) { return n ? sprintf("%.2fx", exp(sum / n)) : "-" }

what == "parts" && /"part": / {
    if (!n++) {
        print "| part | GPUs | passed, failed, skipped | seconds | date | commit |"
        print "|---|---|---|---:|---|---|"
    }
    printf "| `%s` | %d x %s | %d, %d, %d | %d | %s | %s |\n", value("part"), value("gpus"),
           value("gpu"), value("passed"), value("failed"), value("skipped"), value("seconds"),
           value("date"), value("commit")
}
what == "tables" && /"table": / {
    n++
    table = value("table")
    sub(/^gpu-/, "", table)
    at = table " on " value("gpu")
    if (!(at in rows)) name[++tables] = at
    rows[at]++
    date[at] = value("date")
    size = value("size") + 0
    theirs = value("nccl_us")
    if (theirs == "null") next
    ratio = theirs / value("us")
    if (size <= 16777216) { sum[at] += log(ratio); count[at]++ }
    if (!(at in least) || ratio < least[at]) { least[at] = ratio; where[at] = size }
}
END {
    if (!n) print "Nothing is recorded yet."
    if (what != "tables" || !n) exit
    print "| table | sizes | over NCCL, geometric mean to 16 MB | smallest, at bytes | date |"
    print "|---|---:|---:|---:|---|"
    for (i = 1; i <= tables; i++) {
        at = name[i]
        printf "| %s | %d | %s | %s | %s |\n", at, rows[at], ratio_text(sum[at], count[at]),
               at in least ? sprintf("%.2fx, %d", least[at], where[at]) : "-", date[at]
    }
}
