#!/bin/bash
# check_build.sh - what the Makefile makes of its variables, and what `make install` installs.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
cc=${CC:-gcc}
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
# What `make check` itself was given is meant for what it has built alone.
given=${MAKEFLAGS:-}
unset MAKEFLAGS MFLAGS GNUMAKEFLAGS WERROR CUDA

# One object, in a build directory of its own. NVCC is a name only: this object needs no compiler of
# CUDA's to be there.
object=obj/src/device/common/kernel_images.o
makes() {
    make --no-print-directory CC="$cc" OUT="$dir/out" "$@" "$dir/out/$object" >"$dir/log" 2>&1
}

# ---- warnings ----
echo '#warning "a newer compiler has found something"' >"$dir/warn.h"
if makes NVCC= CPPFLAGS="-include $dir/warn.h" && grep -q 'a newer compiler' "$dir/log"; then
    t_ok "a warning does not stop who only builds"
else
    t_fail "a warning does not stop who only builds" "$(cat "$dir/log")"
fi
rm -rf "$dir/out"
if makes NVCC= CPPFLAGS="-include $dir/warn.h" WERROR=1; then
    t_fail "WERROR=1 makes it an error" "$(cat "$dir/log")"
else
    t_ok "WERROR=1 makes it an error"
fi
rm -rf "$dir/out"
t_empty "libraries and tools of a user are built without -Werror" \
    "$(make -n V=1 CC="$cc" OUT="$dir/none" all examples 2>/dev/null | grep -e -Werror | head -n 3)"
# -n prints what the steps would run; nothing is built.
checked=$(make -n V=1 CC="$cc" OUT="$dir/none" check 2>/dev/null |
    grep -E -e '(^|/)(gcc|clang|cc) .* -c |'"^$cc .* -c ")
t_empty "make check compiles everything with -Werror" \
    "$(printf '%s\n' "$checked" | grep -v -e -Werror | head -n 3)"
if [ "$(printf '%s\n' "$checked" | wc -l)" -gt 100 ]; then
    t_ok "which is more than nothing"
else
    t_fail "which is more than nothing" "$checked"
fi
t_empty "and so does .ci/run" "$(grep -E '\bmake\b.* check' .ci/run | grep -v 'WERROR=1')"
t_empty "which runs all that check-full samples" \
    "$(for part in 'check .. exit' check-rest; do
        grep -qE "^(exec )?make .*WERROR=1 $part\$" .ci/run || echo "$part"
    done)"

# ---- clang ----
# Each file as make has it compiled, but for the code: nothing is written. mpicc names libraries.
name="clang does not warn of anything in the library, tools, examples and tests"
if command -v clang >/dev/null 2>&1; then
    only='-fsyntax-only -Wno-unused-command-line-argument'
    make -n V=1 CC=clang CXX=clang++ CUDA=0 NVCC= WERROR=1 OUT="${BUILD:-build}" \
        all tests-plain tests-more 2>/dev/null |
        sed -nE "s/-MMD -MP -MT [^ ]+ -MF [^ ]+//; s/ -c ([^ ]+\.c) -o .*/ $only \1/p" |
        awk '!seen[$NF]++' >"$dir/commands"
    tr '\n' '\0' <"$dir/commands" | xargs -0 -n 1 -P "$(nproc)" sh -c >"$dir/log" 2>&1
    case $?,$(wc -l <"$dir/commands") in
    0,[3-9]??) t_ok "$name" ;;
    *) t_fail "$name" "$(wc -l <"$dir/commands") files: $(grep -A3 error "$dir/log")" ;;
    esac
else
    t_skip "$name" "needs clang"
fi

# ---- why there are no kernels ----
cat >"$dir/why.c" <<'C'
#include <stdio.h>
#include "device/common/kernels.h"
int main(void) { return puts(symm_kernel_why_none()) < 0; }
C
why() { # make's arguments: what the object says
    makes "$@" && $cc -Iinclude -Isrc "$dir/why.c" "$dir/out/$object" \
        -o "$dir/why" >>"$dir/log" 2>&1 && "$dir/why" || cat "$dir/log"
}
is() { if [ "$2" = "$3" ]; then t_ok "$1"; else t_fail "$1" "$3"; fi; }
is "without nvcc there are no kernels for want of one" \
    "this build has no GPU kernels (no CUDA compiler was found)" "$(why NVCC=)"
is "with CUDA=0 because they were not wanted" \
    "this build has no GPU kernels (it was made with CUDA=0)" "$(why CUDA=0 NVCC=/bin/false)"

# ---- what is installed: documents and examples as they lie in the tree, and what the README says
# of them works ----
to=$dir/prefix doc=$dir/prefix/share/doc/symm
if ! MAKEFLAGS=$given make --no-print-directory CC="$cc" OUT="${BUILD:-build}" PREFIX="$to" \
    DESTDIR= install >"$dir/log" 2>&1; then
    t_fail "make install" "$(cat "$dir/log")"
    t_done
fi
t_empty "documents and examples are installed, and nothing else" \
    "$(diff <(cd "$doc" && find . -type f | sort) \
    <(find ./README.md ./CHANGELOG.md ./LICENSE ./docs/*.md ./docs/*.svg ./examples/*.c \
    ./examples/*.cu ./examples/*.cuh ./mpi-plugin/README.md ./nccl-tests-plugin/README.md \
    -type f | sort))"
t_empty "and are the same" \
    "$(cd "$doc" && find . -type f | while read -r file; do cmp "$file" "$OLDPWD/$file"; done 2>&1)"
t_empty "with DESTDIR they go there" \
    "$(make -n --no-print-directory CC="$cc" OUT="${BUILD:-build}" PREFIX=/usr \
    DESTDIR="$dir/dest" install 2>/dev/null |
    grep 'install -m' | grep -v " $dir/dest/usr/[a-z/-]*\$")"
for example in threads peer_ptr; do
    $cc -I"$to/include" "$doc/examples/$example.c" -L"$to/lib" -lsymm -Wl,-rpath,"$to/lib" \
        -pthread -o "$dir/$example" >"$dir/log" 2>&1 && "$dir/$example" >>"$dir/log" 2>&1
    rc=$?
    if [ $rc -eq 0 ]; then
        t_ok "$example is built and runs from there"
    else
        t_fail "$example is built and runs from there" "$(cat "$dir/log")"
    fi
done
t_done
