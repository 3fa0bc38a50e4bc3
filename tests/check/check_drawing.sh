#!/bin/sh
# check_drawing.sh - docs/floors.svg shows the tree as it is: scripts/draw_floors.sh draws it again,
# and nothing differs. A planted include upwards gives a red dot.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

sh scripts/draw_floors.sh >"$dir/now.svg"
t_empty "docs/floors.svg is the tree as it is (make docs)" \
    "$(diff docs/floors.svg "$dir/now.svg" 2>&1)"
t_empty "the drawing has a row for each folder of src/" "$(
    find src -name '*.[ch]*' | sed 's|^src/\(.*\)/[^/]*$|\1|' | sort -u | while read -r folder; do
        grep -q "class=\"f\">[0-9]*  $folder</text>" "$dir/now.svg" || echo "no row for $folder"
    done)"
t_empty "no folder includes one above it" "$(grep '#d00' "$dir/now.svg")"

mkdir "$dir/tree" "$dir/tree/docs" "$dir/tree/scripts"
cp -r src "$dir/tree/src"
cp docs/design.md "$dir/tree/docs/"
cp scripts/draw_floors.sh "$dir/tree/scripts/"
echo '#include "host/comm/comm.h"' >>"$dir/tree/src/base/log.h"
if sh "$dir/tree/scripts/draw_floors.sh" | grep -q '#d00'; then
    t_ok "an include upwards is drawn in red"
else
    t_fail "an include upwards is drawn in red" "no red dot"
fi
t_done
