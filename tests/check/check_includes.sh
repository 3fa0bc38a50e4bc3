#!/bin/bash
# check_includes.sh - what may be included where, besides the floors (check_floors.sh). Quoted
# includes are resolved to files of the tree; the rules are about those.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh

# Lines `file included-file`; what cannot be resolved keeps its name.
edges() {
    grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$@" /dev/null |
        sed -E 's/^([^:]+):[0-9]+:.*"(.*)".*/\1 \2/' |
        while read -r file name; do
            for dir in "$(dirname "$file")" include src; do
                [ -e "$dir/$name" ] && name=$(realpath --relative-to=. "$dir/$name") && break
            done
            echo "$file $name"
        done
}
files() {
    find "$@" -type f \( -name '*.c' -o -name '*.h' -o -name '*.inl' -o -name '*.cu' \
        -o -name '*.cuh' \) 2>/dev/null | sort
}
# Files under src and include whose includes match a pattern.
includers() {
    files src include |
        xargs grep -lE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]$1[>\"]" 2>/dev/null
}

t_empty "include/ includes nothing else of the tree" \
    "$(edges $(files include) | grep -vE ' include/')"
t_empty "mpi.h only in src/transport/mpi and symm_mpi.h" "$(includers '(symm_)?mpi\.h' |
    grep -vE '^(src/transport/mpi/[a-z_]+\.c|include/symm_mpi\.h)$')"
# The driver's types and constants are declared in cuda_driver.h: the library is built without a
# toolkit.
t_empty "cuda.h nowhere" "$(includers 'cuda\.h')"
t_empty "cuda.h in the tests only where it is compared" \
    "$(grep -rlE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]cuda\.h' tests tools examples |
    grep -vx tests/check/cuda_abi.cc)"
# The rest of the host side is the same for both backends: it calls these, or goes through vmm.h.
gpu_files='gpu/|launch/launch_gpu\.c|synced/synced_gpu\.c|comm/pages\.c|window/mem\.c'
gpu_files="$gpu_files"'|life/comm_((hello|init|open)\.c|make\.[ch]) '
t_empty "src/host meets the CUDA driver only where GPUs differ" \
    "$(edges $(files src/host) | grep -E ' src/transport/cuda/cuda_(driver|device)\.h$' |
    grep -vE "^src/host/($gpu_files)")"
t_empty "the probes of CUDA memory are its driver's own" \
    "$(edges $(files src) | grep -E ' src/transport/vmm/cuda_probe\.h$' |
    grep -vE '^src/transport/vmm/(cuda_probe|vmm_cuda)\.c ')"
t_empty "no CUDA runtime" "$(includers 'cuda_runtime(_api)?\.h')"

alone() { # compiler flags header...
    local compiler=$1 flags=$2 header
    shift 2
    for header; do
        # shellcheck disable=SC2086 # flags are words
        echo "#include \"$header\"" |
            $compiler -Wall -Wextra -Werror -fsyntax-only -Iinclude -Isrc -I. $flags - 2>&1 |
            head -n 3
    done
}
t_empty "every header compiles alone" \
    "$(alone "${CC:-gcc}" '-x c -std=gnu11' $(files src include | grep '\.h$' | grep -v symm_mpi))"
t_empty "symm.h is plain C99" "$(alone "${CC:-gcc}" '-x c -std=c99 -pedantic' include/symm.h)"
if command -v g++ >/dev/null 2>&1; then
    t_empty "symm.h is C++" "$(alone g++ '-x c++ -std=c++11 -pedantic' include/symm.h)"
else
    t_skip "symm.h is C++" "there is no g++"
fi
t_done
