#!/bin/bash
# check_cuda_abi.sh - our declarations of the CUDA driver against cuda.h, where there is a toolkit;
# and what must never be looked up.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh

header() { # the directory with cuda.h
    local nvcc
    nvcc=$(command -v nvcc) && nvcc=$(dirname "$(dirname "$(realpath "$nvcc")")")
    for dir in "${CUDA_HOME:-}" "$nvcc" /usr/local/cuda /usr; do
        [ -n "$dir" ] && [ -e "$dir/include/cuda.h" ] && echo "$dir/include" && return
    done
    return 1
}
compile() {
    g++ -std=c++14 -Wall -Wextra -Werror -fsyntax-only -Iinclude -Isrc -isystem "$dir" "$@" 2>&1 |
        grep -E 'error|warning'
}

if ! dir=$(header); then
    t_skip "cuda_driver.h agrees with cuda.h" "there is no cuda.h (CUDA_HOME says where)"
elif ! command -v g++ >/dev/null 2>&1; then
    t_skip "cuda_driver.h agrees with cuda.h" "there is no g++"
else
    t_empty "cuda_driver.h agrees with cuda.h" "$(compile tests/check/cuda_abi.cc)"
    t_empty "and with its older entry points" "$(compile -DOLDER tests/check/cuda_abi.cc)"
    # The comparison itself: one wrong size, value and parameter each must be seen.
    broken=$(mktemp -d) && trap 'rm -rf "$broken"' EXIT
    mkdir -p "$broken/transport/cuda" "$broken/base" && cp src/base/status.h "$broken/base/"
    differs() { # name file sed-script: our declarations changed by the script
        cp src/transport/cuda/cuda_{driver.h,calls.def,multicast.h,multicast.def} \
            "$broken/transport/cuda/"
        sed -i "$3" "$broken/transport/cuda/$2"
        if cmp -s "src/transport/cuda/$2" "$broken/transport/cuda/$2"; then
            t_fail "a $1 that differs is seen" "nothing was changed by: $3"
        elif g++ -std=c++14 -fsyntax-only -I"$broken" -Iinclude -isystem "$dir" \
            tests/check/cuda_abi.cc >/dev/null 2>&1; then
            t_fail "a $1 that differs is seen" "compiled: $3"
        else
            t_ok "a $1 that differs is seen"
        fi
    }
    differs "field" cuda_driver.h 's/unsigned char reserved\[4\];/unsigned char reserved[12];/'
    differs "constant" cuda_driver.h 's/SYMM_CUDA_ATTR_VMM = 102/SYMM_CUDA_ATTR_VMM = 101/'
    differs "parameter" cuda_calls.def 's/va, unsigned value, size_t/va, uint64_t value, size_t/'
    differs "parameter of multicast" cuda_multicast.def 's/size_t from, size_t bytes,/size_t from,/'
    differs "version" cuda_calls.def 's/"cuMemFree_v2"/"cuMemFree"/'
fi

# Multicast objects are looked for in one place, which is asked only where somebody wants them.
t_empty "no entry point of multicast objects elsewhere" \
    "$(grep -rnE 'cuMulticast|symm_cuda_multicast_load' src include |
        grep -vE '^src/transport/(cuda/cuda_multicast|vmm/cuda_objects)\.')"
t_done
