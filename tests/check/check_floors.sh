#!/bin/bash
# check_floors.sh - the floors of docs/design.md, section 2: a folder includes, and refers to, only
# itself and folders that stand above it in that table. Includes are resolved to files; references
# are the undefined symbols of the objects in BUILD/obj. Each rule is shown to fail on a tree that
# breaks it.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
build=${BUILD:-build}
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
most_files=25
most_in_circle=2

# The table, lowest first: one folder a line.
floors() { sed -nE '/^## 2\. Floors/,/^## 3\./s/^\| `(src\/[a-z/]+)` \|.*/\1/p' "$1"; }
sources() {
    (cd "$1" && find src -type f \( -name '*.[ch]' -o -name '*.inl' -o -name '*.def' \
        -o -name '*.cu' -o -name '*.cuh' \) | sort)
}

# Lines `file included`, where both are in src. tree
edges() {
    (cd "$1" && sources . | xargs grep -HE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' |
        sed -E 's/^([^:]+):.*"(.*)".*/\1 \2/' | while read -r file name; do
        for at in "$(dirname "$file")" src; do
            [ -e "$at/$name" ] && echo "$file $(realpath --relative-to=. "$at/$name")" && break
        done
    done)
}
# Lines `object symbol object-that-defines-it`, as files of src. directory of objects
references() {
    (cd "$1" && find src -name '*.o' | sort | xargs nm -A --no-sort 2>/dev/null) |
        sed -E 's/^([^:]+):[0-9a-f ]* ([A-Za-z]) ([^ ]+)$/\1 \2 \3/' |
        awk '{ sub(/(\.[a-z0-9]+)?\.o$/, ".c", $1) }
             $2 == "U" { used[$1 " " $3] = 1; next }
             $2 ~ /[TDBRVWC]/ { at[$3] = $1 }
             END { for (k in used) { split(k, p, " ")
                     if (p[2] in at && at[p[2]] != p[1]) print p[1], p[2], at[p[2]] } }' | sort
}
# Of lines whose first and last word are files: those that go up. table
upwards() {
    awk -v table="$1" 'BEGIN { while ((getline f < table) > 0) floor[f] = ++n }
        { a = $1; b = $NF; sub(/\/[^\/]*$/, "", a); sub(/\/[^\/]*$/, "", b) }
        floor[b] > floor[a] { print }'
}
# Groups of files in one folder that refer to each other in circles, larger than MOST: lines of
# references on stdin
circles() {
    awk -v most="$1" '
        {   a = $1; b = $NF; x = a; y = b; sub(/\/[^\/]*$/, "", x); sub(/\/[^\/]*$/, "", y)
            if (x != y) next
            files[a]; files[b]
            if (!((a, b) in to)) { to[a, b]; out[a] = out[a] " " b } }
        function reach(from, mark,   i, n, p) { if ((mark, from) in seen) return; seen[mark, from]
            n = split(out[from], p, " "); for (i = 1; i <= n; i++) reach(p[i], mark) }
        END { for (f in files) reach(f, f)
            for (f in files) { n = 0; text = ""; low = f
                for (g in files) if (((f, g) in seen) && ((g, f) in seen)) {
                    n++; text = text " " g; if (g < low) low = g }
                if (low == f && n > most) print n " files:" text } }'
}

floors docs/design.md >"$dir/table"
sources . | sed 's|/[^/]*$||' | sort -u >"$dir/folders"
t_empty "every folder of src has a row, and every row a folder" \
    "$(sort "$dir/table" | diff - "$dir/folders")"
t_empty "a folder has at most $most_files files" \
    "$(sources . | sed 's|/[^/]*$||' | uniq -c | awk -v most=$most_files '$1 > most')"
t_empty "names of files are unique" "$(sources . | sed 's|.*/||' | sort | uniq -d)"
edges . >"$dir/edges"
t_empty "no include goes up" "$(upwards "$dir/table" <"$dir/edges")"

# ---- shown to be seen ----
bad=$dir/bad
mkdir -p "$bad/src/base" "$bad/src/host/comm" "$bad/obj/src/base" "$bad/obj/src/host/comm"
echo 'int symm_high(void);' >"$bad/src/host/comm/high.h"
cat >"$bad/src/base/low.c" <<'C'
#include "host/comm/high.h"
int symm_low(void);
int symm_low(void) { return symm_high(); }
C
cat >"$bad/src/host/comm/high.c" <<'C'
int symm_low(void);
int symm_high(void);
int symm_high(void) { return symm_low(); }
C
t_empty "an include that goes up is seen" \
    "$(edges "$bad" | upwards "$dir/table" | diff - <(echo 'src/base/low.c src/host/comm/high.h'))"
for f in base/low host/comm/high; do
    ${CC:-gcc} -I"$bad/src" -c "$bad/src/$f.c" -o "$bad/obj/src/$f.o"
done
t_empty "a reference that goes up is seen" "$(references "$bad/obj" | upwards "$dir/table" |
    diff - <(echo 'src/base/low.c symm_high src/host/comm/high.c'))"
for n in 1 2 3; do echo "src/base/$n.c s src/base/$((n % 3 + 1)).c"; done >"$dir/circle"
t_empty "a circle is seen" "$(circles 2 <"$dir/circle" | sed 's/:.*//' | diff - <(echo '3 files'))"

# ---- references of the library's objects ----
if [ -d "$build/obj/src" ]; then
    references "$build/obj" >"$dir/references"
    # What was compiled before a file moved or went is no part of the library.
    awk 'NR == FNR { here[$1]; next } ($1 in here) && ($NF in here)' \
        <(sources .) "$dir/references" >"$dir/own"
    if [ "$(wc -l <"$dir/own")" -gt 500 ]; then
        t_ok "objects refer to each other"
    else
        t_fail "objects refer to each other" "$(wc -l <"$dir/own") references in $build/obj"
    fi
    t_empty "no reference goes up" "$(upwards "$dir/table" <"$dir/own")"
    t_empty "a circle inside a folder has at most $most_in_circle files" \
        "$(circles $most_in_circle <"$dir/own")"
else
    t_skip "no reference goes up" "there are no objects in $build/obj"
fi
t_done
