#!/bin/bash
# check_collectives.sh - who knows which collective it has: the files of
# docs/adding-a-collective.md, and nobody else. All other code reads the rows of coll.def.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

ids=$(sed -nE 's/^SYMM_COLL\((\w+),.*/\1/p' src/device/common/coll.def)
# A row of the document for each collective: <name> is all_reduce, the backends' bodies.
sed -nE 's/^\| `([a-z_/.<>]+)` \|.*/\1/p' docs/adding-a-collective.md >"$dir/rows"
names=$(sed -nE 's/^SYMM_COLL\(\w+, "(\w+)".*/\1/p' src/device/common/coll.def)
for name in $names; do sed "s/<name>/$name/" "$dir/rows"; done | sort -u >"$dir/listed"
# Lines "file collective" for each collective that a file names. directory
naming() {
    (cd "$1" && for id in $ids; do
        grep -rlw "symmColl$id" src tools | sed "s/$/ $id/"
    done | sort -u)
}
# Those that the document does not allow. coll.c may name the barrier alone.
strangers() {
    awk 'NR == FNR { ok[$1]; next } !($1 in ok) && $0 != "src/host/coll/coll.c Barrier"' \
        "$dir/listed" -
}

t_empty "the document's files are there" \
    "$(while read -r file; do [ -e "$file" ] || echo "$file"; done <"$dir/listed")"
t_empty "coll.def has a row for each collective of symm.h" \
    "$(for id in $ids; do grep -qE "^    symmColl$id = " include/symm.h || echo "$id"; done)"
if [ "$(echo "$ids" | wc -l)" -ge 3 ]; then
    t_ok "which are some"
else
    t_fail "which are some" "$ids"
fi
t_empty "no other file names a collective" "$(naming . | strangers)"
# At most five files of the library for both backends, three for one.
for backend in both host GPUs; do
    files=$(awk -F'|' -v b="$backend" '
        /^\| `/ && NF == 5 {
            at = $4; gsub(/ /, "", at)
            if (at == "tests") next
            if ($2 ~ /\.cu`/ && cu++) next # reduce.cu or move.cu, by what the collective does
            if (b == "both" || at == "both" || at == b) n++
        }
        END { print n + 0 }' docs/adding-a-collective.md)
    most=3; [ "$backend" != both ] || most=5
    name="a collective on $backend touches at most $most files"
    if [ "$files" -ge 3 ] && [ "$files" -le "$most" ]; then
        t_ok "$name"
    else
        t_fail "$name" "$files"
    fi
done
# Seen: files that do.
mkdir -p "$dir/bad" && cp -R src tools "$dir/bad"
echo 'static int is_barrier(int coll) { return coll == symmCollBarrier; }' \
    >>"$dir/bad/src/host/window/window.c"
echo 'static int is_gather(int coll) { return coll == symmCollAllGather; }' \
    >>"$dir/bad/src/host/coll/coll.c"
t_equal "those that do are seen" \
    "src/host/coll/coll.c AllGather src/host/window/window.c Barrier" \
    "$(naming "$dir/bad" | strangers | xargs)"
t_done
