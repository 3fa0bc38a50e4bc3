#!/bin/sh
# check_pages.sh - the programs in docs/python.md and docs/cpp.md, exactly as they stand there, run
# and print what they should.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
lib=$(cd "${BUILD:-build}/lib" && pwd) || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
unset SYMM_BACKEND # the pages choose it themselves
export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# The page's program in a language. page, language
piece() { awk -v fence="\`\`\`$2" '$0 == fence { on = 1; next } /^```$/ { on = 0 } on' "$1"; }
prints() { # name, command...: three ranks and their sum, in any order
    name=$1
    shift
    got=$(timeout $((60 * ${T_SLOW:-1})) "$@" 2>"$dir/err" || echo "exit status $?")
    want=$(for r in 0 1 2; do echo "rank $r: the sum is 6"; done)
    if [ "$(printf '%s\n' "$got" | sort)" = "$want" ]; then
        t_ok "$name"
    else
        t_fail "$name" "$got $(cat "$dir/err")"
    fi
}

piece docs/python.md python >"$dir/three.py"
t_empty "docs/python.md has one program of at most 20 lines" \
    "$(awk 'END { if (NR < 10 || NR > 20) print NR " lines" }' "$dir/three.py")"
if command -v python3 >/dev/null 2>&1 && python3 -c 'import ctypes' 2>/dev/null; then
    prints "and it runs" python3 "$dir/three.py"
    # What fails says why, with its code.
    got=$(SYMM_BACKEND=none timeout 60 python3 "$dir/three.py" 2>&1)
    case $got in
    *"RuntimeError: 4: "*"SYMM_BACKEND=none"*) t_ok "and says what went wrong" ;;
    *) t_fail "and says what went wrong" "$got" ;;
    esac
else
    t_skip "and it runs" "needs python3"
fi

piece docs/cpp.md cpp >"$dir/three.cc"
if command -v "${CXX:-g++}" >/dev/null 2>&1; then
    t_empty "the program in docs/cpp.md compiles" \
        "$("${CXX:-g++}" -std=c++17 -Wall -Wextra -Werror -Iinclude "$dir/three.cc" -L"$lib" \
        -lsymm -pthread -o "$dir/three" 2>&1)"
    prints "and runs" "$dir/three"
    got=$(SYMM_BACKEND=none timeout 60 "$dir/three" 2>&1)
    case $got in
    *"SYMM_BACKEND=none"*) t_ok "and throws what went wrong" ;;
    *) t_fail "and throws what went wrong" "$got" ;;
    esac
else
    t_skip "the program in docs/cpp.md compiles" "needs a C++ compiler"
fi
t_done
