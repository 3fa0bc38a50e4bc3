#!/bin/bash
# check_parts.sh - the parts of a communicator's record (src/host/comm/parts.h) and their owners, as
# the table in docs/communicator.md has them: only files of the owner's folder, and of
# src/host/life, name the fields of a part, its type or its address. What stands before the parts
# only src/host/life writes. Each rule is shown to fail on a tree that breaks it.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
parts=src/host/comm/parts.h

# Lines `part owner` of the table. page
owners() {
    sed -nE '/^## The record/,/^## /s/^\| `([a-z]+)` \| `(src\/[a-z/]+)` \|.*/\1 \2/p' "$1"
}
# Lines `part owner` of the header: the typedef's name, and the owner that its comment gives.
declared() {
    awk '/^\/\* Owner: / { sub(/\..*/, "", $3); owner = $3 }
         /^} symm_comm_[a-z]+;/ {
             name = $2; sub(/symm_comm_/, "", name); sub(/;/, "", name)
             print name, "src/host/" owner }' "$1"
}
# Lines `part field` of the header.
fields() {
    sed -E 's@/\*.*\*/@@; /\/\*/,/\*\//d' "$1" | awk '/^typedef struct/ { n = 0; next }
        /^} symm_comm_[a-z]+;/ { name = $2; sub(/symm_comm_/, "", name); sub(/;/, "", name)
            for (i = 1; i <= n; i++) print name, field[i]; next }
        /;/ {
            gsub(/\[[^]]*\]/, "")
            if (match($0, /\(\*[a-z_]+\)/)) { # a pointer to a function
                field[++n] = substr($0, RSTART + 2, RLENGTH - 3)
                next
            }
            sub(/;.*/, "")
            k = split($0, list, /,/)
            for (i = 1; i <= k; i++) { m = split(list[i], w, /[ *]+/); field[++n] = w[m] }
        }'
}
# Lines of files that name a part and are not its owner's. tree, table of owners, fields
strangers() {
    while read -r part owner; do
        names=$(awk -v p="$part" '$1 == p { printf "%s%s", sep, $2; sep = "|" }' "$3")
        (cd "$1" && grep -rnE -e "(->|\.)$part\.($names)\b" -e "\bsymm_comm_$part( |\)|;)" \
            -e "&(c|parent|([A-Za-z_>.-]*->)?comm)->$part\b([^.]|$)" \
            src --include='*.[ch]' --include='*.inl') |
            grep -vE "^($owner|src/host/life|src/host/comm/(parts|types)\.h)[:/]" |
            sed "s|^|$part of $owner: |"
    done <"$2"
}

# The fields that stand before the parts, but for the one that is a part, joined by |.
head_fields() {
    awk '/^typedef struct symm_comm \{/ { on = 1; next }
         / symm_comm_failure failure;/ { exit }
         on' src/host/comm/types.h |
        sed -E 's@/\*.*@@; s/\(\*([a-z_]+)\)\(.*/\1;/; s/\[[^]]*\]//' |
        sed -nE 's/;.*//; s/, \*?/\n/g; p' |
        sed -E 's/.*[ *]//; /^(entry)?$/d' | paste -sd'|'
}
# Lines that write one of them. tree, fields
head_writers() {
    local at="((\.[a-z_]+)|(\[[^]]*\]))*" writes="([-+|&]?=[^=]|\+\+|--)"
    (cd "$1" && grep -rnE "\b(c|comm|parent|child)->($2)$at ?$writes" src \
        --include='*.[ch]' --include='*.inl') | grep -v '^src/host/life/'
}

owners docs/communicator.md >"$dir/owners"
fields $parts >"$dir/fields"
t_empty "every part has a row, and every row a part with that owner" \
    "$(declared $parts | sort | diff - <(sort "$dir/owners"))"
t_empty "every owner is a folder" \
    "$(while read -r _ owner; do [ -d "$owner" ] || echo "$owner"; done <"$dir/owners")"
t_empty "every part has fields" \
    "$(while read -r part _; do
        grep -q "^$part " "$dir/fields" || echo "$part"
    done <"$dir/owners")"
if [ "$(wc -l <"$dir/fields")" -gt 40 ]; then
    t_ok "fields are found"
else
    t_fail "fields are found" "$(cat "$dir/fields")"
fi
t_empty "only the owner, and life, name a part" "$(strangers . "$dir/owners" "$dir/fields")"
head=$(head_fields)
t_equal "fields before the parts are found" "handle rank gpus gpu room ctl" \
    "$(echo "$head" | tr '|' '\n' | grep -xE 'handle|rank|gpus|gpu|room|ctl' | xargs)"
t_empty "only life writes what stands before the parts" "$(head_writers . "$head")"

# ---- shown to be seen ----
bad=$dir/bad
mkdir -p "$bad/src/host/lane" "$bad/src/host/life" "$bad/src/host/comm"
echo 'int f(symm_comm *c) { return c->entry.busy; }' |
    tee "$bad/src/host/life/may.c" "$bad/src/host/comm/may.c" >"$bad/src/host/lane/a.c"
echo 'void *f(symm_comm *c) { return &c->calls; }' >"$bad/src/host/lane/b.c"
echo 'int f(symm_comm_order *o) { return o->replays; }' >"$bad/src/host/lane/c.c"
t_equal "a field, an address and a type are seen" "a.c b.c c.c" \
    "$(strangers "$bad" "$dir/owners" "$dir/fields" |
        sed -E 's/.*\/([abc]\.c):.*/\1/' | sort | xargs)"
echo 'void f(symm_comm *c) { c->gpu = 0; }' |
    tee "$bad/src/host/life/may.c" >"$bad/src/host/lane/a.c"
echo 'void f(symm_comm *c) { c->gpus.budget++; }' >"$bad/src/host/lane/b.c"
echo 'int f(symm_comm *c) { return c->gpu == c->gpu->x; }' >"$bad/src/host/lane/c.c"
t_equal "what writes there is seen, not what reads" "a.c b.c" \
    "$(head_writers "$bad" "$head" | sed -E 's/.*\/([abc]\.c):.*/\1/' | sort | xargs)"
t_done
