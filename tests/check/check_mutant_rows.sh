#!/bin/sh
# check_mutant_rows.sh - every row of tests/check/mutants/ still changes its file, so that none is
# stale when check_mutants.sh draws it. Builds nothing.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh

rows() { awk -f tests/check/mutants.awk tests/check/mutants/*.txt; }

# Rows without six fields, of an unknown kind, or with a name that another row has.
malformed() {
    awk -F'|' 'NF != 6 || $4 !~ /^(plain|tsan|mpi[1-9])$/ || $6 == "" || seen[$1]++ { print $1 }'
}
t_empty "the rows are well-formed" "$(rows | malformed)"
planted='a|b|c|plain|t|x\na|b|c|plain|t|x\nb|b|c|fast|t|x\n'
t_equal "malformed rows are found" "a b" "$(printf "$planted" | malformed | xargs)"

# Files of the drop-in stand with their folder, for some have names that files of src have too, and
# so do those of examples.
path() { case $1 in */*) ls "$1" 2>/dev/null ;; *) find src include tests/fake -name "$1" ;; esac; }
# Of the rows on stdin those whose script changes nothing.
stale() {
    while IFS='|' read -r name files script _; do
        changed=
        for file in $(echo "$files" | tr , ' '); do
            at=$(path "$file")
            [ -n "$at" ] && ! sed "$script" "$at" | cmp -s - "$at" && changed=1
        done
        [ -n "$changed" ] || echo "$name: $files: $script"
    done
}
t_empty "every row changes its file" "$(rows | stale)"
t_equal "a stale row is found" "x: coll.c: s/no such text/y/" \
    "$(echo 'x|coll.c|s/no such text/y/|plain|t|t' | stale)"

# The test that must notice is there, with the tests that the row names.
unknown() {
    while IFS='|' read -r name _ _ _ test tests; do
        at=$(find tests -name "$test.c")
        [ -n "$at" ] || echo "$name: no $test.c"
        for t in $tests; do
            [ -z "$at" ] || grep -q "\b${t%%(*}\b" "$at" tests/kit/*.h ||
                echo "$name: $test has no $t"
        done
    done
}
t_empty "the tests that rows name are there" "$(rows | unknown)"
t_done
