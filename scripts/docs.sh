#!/bin/sh
# docs.sh - behind `make docs`: writes again what the documents copy from the tree. BIN is the
# folder of symm-info.
#  - docs/floors.svg: the drawing of the floors
#  - README.md: the program, between `<!-- examples/hello.c -->` and `<!-- end -->`
#  - docs/environment.md: the table of variables, as symm-info prints it
# tests/check/check_readme.sh and check_drawing.sh fail while a copy differs.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

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

fill README.md examples/hello.c examples/hello.c
"$BIN/symm-info" --params-md >"$dir/table"
fill docs/environment.md 'symm-info --params-md' "$dir/table"
sh scripts/draw_floors.sh >"$dir/floors.svg"
cat "$dir/floors.svg" >docs/floors.svg
