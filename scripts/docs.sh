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
. scripts/fill.sh

fill README.md examples/hello.c examples/hello.c
"$BIN/symm-info" --params-md >"$dir/table"
fill docs/environment.md 'symm-info --params-md' "$dir/table"
sh scripts/draw_floors.sh >"$dir/floors.svg"
cat "$dir/floors.svg" >docs/floors.svg
