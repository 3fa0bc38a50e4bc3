#!/bin/bash
# check_doc_names.sh - the documents name files and functions that are there: source files in
# backquotes, pairs like `function` (`file.c`), the answers of "Where is it?" in docs/design.md, and
# links between pages. Each is shown to be seen.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

find src include tests tools examples -type f | awk -F/ '{ print $NF, $0 }' >"$dir/files"
ending='(c|h|inl|def|cu|cuh)'

# Source files that are nowhere. document...
lost_files() {
    grep -noE '`[a-z0-9_/]+\.'"$ending"'`' "$@" /dev/null | tr -d '`' |
        awk -F: -v list="$dir/files" '
            BEGIN {
                while ((getline line < list) > 0) { split(line, f, " "); here[f[1]]; here[f[2]] }
                here["cuda.h"]; here["mpi.h"] # of others
            }
            { name = $3; if (!(name in here)) print }'
}
# Lines `document function file` of pairs that are written as `f` (`file`) or `f`, `g` (`file`).
pairs() {
    grep -oHE '(`[A-Za-z0-9_]+`(, | and )?)+ \(`[a-z0-9_/]+\.'"$ending"'`' "$@" /dev/null |
        awk -F: '{ n = split($2, p, "`"); for (i = 2; i < n - 2; i += 2) print $1, p[i], p[n - 1] }'
}
# The same of the table of questions. document
answers() {
    sed -n '/^## .*Where is it?/,/^## [^W]/p' "$1" | awk -v doc="$1" '/^\| Where/ {
        n = split($0, p, "`")
        for (i = 2; i <= n; i += 2)
            if (p[i] !~ /\./) f[++k] = p[i]
            else for (; k; k--) print doc, f[k], p[i] }'
}
# Pairs whose file has no such name. From stdin
lost_names() {
    while read -r doc name file; do
        path=$(awk -v file="$file" '$1 == file || $2 == file { print $2; exit }' "$dir/files")
        if [ -z "$path" ] || ! grep -qw -e "$name" "$path"; then
            echo "$doc: $name is not in $file"
        fi
    done
}
# Links to pages that are not there, and to headings that those have not. document...
lost_links() {
    grep -oHE '\]\([^) ]+\)' "$@" /dev/null | sed -E 's/\]\(([^)]*)\)$/\1/' |
        grep -v ':http' | while IFS=: read -r doc to; do
        page=${to%%#*}
        page=${page:+$(dirname "$doc")/$page}
        page=${page:-$doc}
        if [ ! -e "$page" ]; then echo "$doc: no $to"; continue; fi
        case $to in *#*) ;; *) continue ;; esac
        grep -E '^#+ ' "$page" | sed -E 's/^#+ //' | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-' |
            grep -qx -e "${to#*#}" || echo "$doc: no $to"
    done
}

t_empty "files that documents name are there" "$(lost_files docs/*.md)"
t_empty "functions that documents name are in these files" "$(pairs docs/*.md | lost_names)"
t_empty "functions of the answers to 'Where is it?' are there" \
    "$(answers docs/design.md | lost_names)"
asked=$(grep -c '^| Where' docs/design.md)
found=$(answers docs/design.md | wc -l)
if [ "$asked" -ge 5 ] && [ "$found" -ge "$asked" ]; then
    t_ok "each question has one"
else
    t_fail "each question has one" "$found for $asked questions"
fi
t_empty "pages that documents link to are there" "$(lost_links README.md docs/*.md)"

cat >"$dir/bad.md" <<'X'
## 1. Where is it?
| Where is it lost? | `symm_lost` in `src/host/comm/comm.c` |
## 2. Other
`lost.c`, and `symm_lost`, `symm_comm_fail` (`revoke.c`), and [a page](lost.md), and
[a heading](#lost).
X
t_empty "a file that is gone is seen" "$(lost_files "$dir/bad.md" | grep -c lost.c | grep -vx 1)"
t_empty "a function that is gone is seen" \
    "$(pairs "$dir/bad.md" | lost_names | sed 's/.*: //' |
    diff - <(echo 'symm_lost is not in revoke.c'))"
t_empty "an answer that is gone is seen" \
    "$(answers "$dir/bad.md" | lost_names | sed 's/.*: //' |
    diff - <(echo 'symm_lost is not in src/host/comm/comm.c'))"
t_empty "a link that is gone is seen" "$(lost_links "$dir/bad.md" | wc -l | grep -vx 2)"
t_done
