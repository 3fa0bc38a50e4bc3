#!/bin/bash
# check_collectives.sh - who knows which collective it has: the files of
# docs/adding-a-collective.md, and nobody else. All other code reads the rows of coll.def.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

sed -nE 's/^\| `([a-z_/.]+)` \|.*/\1/p' docs/adding-a-collective.md | sort >"$dir/listed"
ids=$(sed -nE 's/^SYMM_COLL\((\w+),.*/\1/p' src/device/common/coll.def)
# Files that name one of them. directory
naming() {
    (cd "$1" && for id in $ids; do grep -rlw "symmColl$id" src tools; done | sort -u)
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
t_empty "no other file names a collective" "$(naming . | grep -vxFf "$dir/listed")"
# Seen: a file that does.
mkdir -p "$dir/bad" && cp -R src tools "$dir/bad" &&
    echo 'static int is_barrier(int coll) { return coll == symmCollBarrier; }' \
    >>"$dir/bad/src/host/window/window.c"
t_empty "one that does is seen" "$(naming "$dir/bad" | grep -vxFf "$dir/listed" |
    diff - <(echo src/host/window/window.c) 2>&1)"
t_done
