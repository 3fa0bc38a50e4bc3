#!/bin/sh
# check_readme.sh - what documents copy from the tree is the same there: the program, the table of
# variables, the names of files; and README.md is short.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
info=${BUILD:-build}/bin/symm-info
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# differs FILE: says how FILE differs from standard input, nothing if it does not.
differs() { diff "$1" - 2>&1; }
# marker document: the lines between `<!-- marker -->` and `<!-- end -->`, without a fence
between() {
    awk -v mark="<!-- $1 -->" '$0 == "<!-- end -->" { on = 0 } on && !/^```/ { print }
        $0 == mark { on = 1 }' "$2"
}

t_empty "the program is examples/hello.c" \
    "$(between 'examples/hello.c' README.md | differs examples/hello.c)"
t_empty "the program has at most 30 lines" \
    "$(awk 'END { if (NR > 30) print NR " lines" }' examples/hello.c)"
if [ -x "$info" ]; then
    "$info" --params-md >"$dir/table"
    t_empty "the table is what symm-info --params-md prints" \
        "$(between 'symm-info --params-md' docs/environment.md | differs "$dir/table")"
else
    t_fail "the table is what symm-info --params-md prints" "$info is not there"
fi

# Words in backquotes that look like files of the tree.
missing() { # document
    grep -oE '`[A-Za-z0-9_./-]+`' "$1" | tr -d '`' | sort -u |
        grep -E -e '^(src|include|tests|tools|docs|examples|scripts|mk|\.ci)/' \
            -e '^[A-Za-z_-]+\.(md|mk|sh)$|^Makefile$' |
        while read -r path; do
            [ -e "$path" ] || [ -e "$(dirname "$1")/$path" ] || echo "$1 names $path"
        done
}
for document in README.md CONTRIBUTING.md docs/*.md tests/README.md; do
    t_empty "$document names only files that are there" "$(missing "$document")"
done
# Tests that the table of faults names, as `program/test` or `program`.
unknown() {
    grep -oE '`(unit|thr|mp|fault)_[a-z0-9_]+(/[a-z0-9_]+)?`' tests/README.md | tr -d '`' |
        sort -u | while IFS=/ read -r program test; do
        [ -e "tests/${program%%_*}/$program.c" ] &&
            grep -qw -e "${test:-main}" -e "${test:-T_MAIN}" -e "${test:-T_MAIN_MPI}" \
            "tests/${program%%_*}/$program.c" || echo "$program $test"
    done
}
t_empty "tests/README.md names only tests that are there" "$(unknown)"
t_empty "README.md has at most 180 lines" \
    "$(awk 'END { if (NR > 180) print NR " lines" }' README.md)"
t_empty "README.md has the output of both commands" "$(for c in 'make run' 'make check'; do
    [ "$(between "$c output" README.md | wc -l)" -ge 3 ] || echo "no output of $c"; done)"
t_done
