# shellcheck shell=sh
# fill.sh - sourced: puts what was generated into a document. The caller sets dir: a directory for
# files that are gone afterwards.
: "${dir:?}"

# fill DOCUMENT MARKER FILE: puts FILE between the marker and the end, and keeps the fences.
fill() {
    grep -qxF "<!-- $2 -->" "$1" || { echo "$1 has no line '<!-- $2 -->'" >&2; return 1; }
    awk -v mark="<!-- $2 -->" -v file="$3" '
        $0 == "<!-- end -->" { if (on && fence != "") print "```"; on = 0 }
        !on { print }
        on && /^```/ && !said { print; fence = $0 }
        on && !said { while ((getline line < file) > 0) print line; said = 1 }
        $0 == mark { on = 1; said = 0; fence = "" }' "$1" >"$dir/new"
    if cmp -s "$dir/new" "$1"; then
        echo "$1: $2 is up to date"
    else
        cat "$dir/new" >"$1"
        echo "$1: $2 written again"
    fi
}
