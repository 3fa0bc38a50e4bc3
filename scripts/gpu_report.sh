#!/bin/sh
# gpu_report.sh - behind `make gpu-report`: takes what scripts/campaign.sh left in the directories
# named (build/campaign) into docs/gpu-runs.txt, and writes the tables of the documents again from
# that file: docs/gpu-validation.md (what ran), docs/performance.md (times beside NCCL). A newer run
# of a part on as many GPUs of the same kind replaces the older one. Without a directory that exists
# it only writes the tables.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
. scripts/fill.sh
runs=${GPU_RUNS:-docs/gpu-runs.txt}
[ $# -gt 0 ] || set -- build/campaign

# Records of parts, one a line; then the rows of each table, a line each.
taken() {
    for from in "$@"; do
        for part in "$from"/*.json; do
            [ ! -s "$part" ] || cat "$part"
        done
        for table in "$from"/tables/gpu-*.json; do
            [ ! -s "$table" ] || awk -v name="$(basename "$table" .json)" \
                -f scripts/gpu_rows.awk "$table"
        done
    done
}
taken "$@" >"$dir/new"
[ -f "$runs" ] || : >"$runs"
# What identifies a line is all in front of its date.
awk '{ key = $0; sub(/"date".*/, "", key) }
    NR == FNR { newer[key] = $0; next }
    key in newer { next }
    { print }
    END { for (key in newer) print newer[key] }' "$dir/new" "$runs" | sort >"$dir/runs"
cat "$dir/runs" >"$runs"
awk -v what=parts -f scripts/gpu_report.awk "$runs" >"$dir/parts"
awk -v what=tables -f scripts/gpu_report.awk "$runs" >"$dir/tables"
[ -n "${GPU_RUNS:-}" ] || {
    fill docs/gpu-validation.md 'gpu-report: parts' "$dir/parts"
    fill docs/performance.md 'gpu-report: tables' "$dir/tables"
    exit
}
cat "$dir/parts" "$dir/tables"
