# gpu_rows.awk - the rows of a table of symm-perf as lines of docs/gpu-runs.txt. Input: its JSON.
# -v name: what the table is, gpu-COLLECTIVE-TYPE-RANKS with what is not as usual behind it.
function value(key, text) {
    if (!match($0, "\"" key "\": [^,}]+")) return ""
    text = substr($0, RSTART, RLENGTH)
    sub(/.*: /, "", text)
    gsub(/"/, "", text)
    return text
}
/"name": / && gpu == "" { gpu = value("name") }
/"size": / { size = value("size") }
/"out_of_place": / { us[++n] = value("time"); theirs[n] = value("nccl_time"); bytes[n] = size }
/"end_time": / { date = substr(value("end_time"), 1, 10) }
END {
    for (i = 1; i <= n; i++)
        printf "{\"table\": \"%s\", \"gpu\": \"%s\", \"size\": %012d, \"date\": \"%s\", " \
               "\"us\": %s, \"nccl_us\": %s}\n", name, gpu == "" ? "unknown" : gpu, bytes[i], date,
               us[i], theirs[i] == "" ? "null" : theirs[i]
}
