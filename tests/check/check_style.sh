#!/bin/sh
# check_style.sh - sizes, format, and leftovers. Tools that a machine lacks are a skip that says so.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh

sources() {
    find include src tests tools examples nccl-tests-plugin mpi-plugin -type f \
        \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) 2>/dev/null | sort
}
scripts() {
    find scripts tests .ci -type f \( -name '*.sh' -o -path '*/.ci/run' \) 2>/dev/null | sort
}
texts() {
    sources
    scripts
    find src tests tools nccl-tests-plugin mpi-plugin -type f \
        \( -name '*.inl' -o -name '*.cc' -o -name '*.def' \) 2>/dev/null
    ls Makefile mk/*.mk
}

# Lines of more than 100 characters. Not counted: rows of tables and blocks between fences in
# Markdown, where programs' output is shown; a word that is longer by itself, such as a link. files
wide() {
    perl -CSD -e 'for $file (@ARGV) {
        open F, "<:utf8", $file or die "$file: $!";
        $fenced = 0;
        while (<F>) {
            chomp;
            if ($file =~ /\.md$/) {
                $fenced = !$fenced if /^\s*```/;
                next if $fenced || /^\s*\|/;
            }
            print "$file:$.: " . length() . " characters\n"
                if length() > 100 && !/^\s*(#|\*|-)?\s*\S+$/;
        }
        close F;
    }' "$@" 2>&1
}
pages() { find . -maxdepth 3 -name '*.md' -not -path './build*' | sort | sed 's|^\./||'; }
lists() { find tests scripts src -name '*.txt' -o -name '*.awk' -o -name '*.map'; }
if command -v perl >/dev/null 2>&1; then
    t_empty "lines have at most 100 characters" "$(wide $(texts) $(pages) $(lists))"
    dir=$(mktemp -d) || exit 2
    trap 'rm -rf "$dir"' EXIT
    long=$(printf 'w%.0s' $(seq 99))
    printf '%s\n' "# $long" "$long" "$long x" "\303\244" >"$dir/a.sh"
    printf '%s\n' "| $long x |" '```' "$long x" '```' "a $long" >"$dir/b.md"
    t_equal "a wide line is seen, also in a page, and what may be wide is not" \
        "$dir/a.sh:3: 101 characters $dir/b.md:5: 101 characters" \
        "$(wide "$dir/a.sh" "$dir/b.md" | tr '\n' ' ' | sed 's/ $//')"
else
    t_skip "lines have at most 100 characters" "there is no perl"
fi

t_empty "files have at most 600 lines" "$(texts | xargs wc -l |
    awk '$2 != "total" && $1 > 600 { print $2 ": " $1 " lines" }')"

# How many lines there are for each assertion (base/check.h). folder
lines_per_assertion() {
    find "$1" -type f -exec cat {} + |
        awk '{ n += gsub(/SYMM_ASSERT\(/, "") } END { print n ? NR / n : "none" }'
}
t_empty "src/host has an assertion in 60 lines" \
    "$(lines_per_assertion src/host | awk '!($1 + 0 > 0 && $1 <= 60) { print "one in " $1 }')"

# ctags takes a macro at file scope for the head of a function: names in capitals are left out.
long_functions() {
    texts | grep -E '\.(c|h|inl|cu|cuh)$' |
        ctags -L - -f - --fields=+ne --kinds-C=f --kinds-C++=f \
            --langmap=C:+.inl,C++:+.cu.cuh 2>/dev/null |
        awk -F '\t' '{
            l = e = 0
            for (i = 4; i <= NF; i++) {
                if ($i ~ /^line:/) l = substr($i, 6)
                if ($i ~ /^end:/) e = substr($i, 5)
            }
            n = e - l + 1
            if (n > 60 && $1 !~ /^[A-Z0-9_]+$/) print $2 ":" l ": " $1 ": " n " lines" }'
}
if ctags --version 2>/dev/null | grep -q 'Universal Ctags'; then
    t_empty "functions have at most 60 lines" "$(long_functions)"
else
    t_skip "functions have at most 60 lines" "there is no universal-ctags"
fi

# Other major versions format some constructs differently.
format=
for candidate in clang-format-14 clang-format; do
    $candidate --version 2>/dev/null | grep -qE 'version 14\.' && format=$candidate && break
done
if [ -n "$format" ]; then
    t_empty "sources are formatted" "$(sources | xargs $format --dry-run -Werror 2>&1 |
        grep -E 'error:' | sed -E 's/:[0-9]+:.*//' | sort | uniq -c)"
else
    t_skip "sources are formatted" "there is no clang-format 14"
fi

t_empty "nothing is left for later" \
    "$(texts | grep -v check_style.sh | xargs grep -nE '\b(TODO|FIXME|XXX)\b')"

if command -v shellcheck >/dev/null 2>&1; then
    t_empty "scripts pass shellcheck" \
        "$(scripts | xargs shellcheck -x -S warning -f gcc -e SC1091,SC2086,SC2046 2>&1)"
else
    t_skip "scripts pass shellcheck" "there is no shellcheck"
fi
t_done
