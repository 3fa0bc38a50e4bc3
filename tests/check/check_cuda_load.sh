#!/bin/bash
# check_cuda_load.sh - the CUDA driver found as a shared library, by dlopen and dlsym: a stub of it
# that has every symbol, one that is too old, one that lacks a symbol; its cuInit forks, as the real
# one may; and a fork, after which CUDA cannot be used any more.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
build=${BUILD:-build} cc=${CC:-gcc}
archive=$build/obj-test/libsymm.a
if [ ! -e "$archive" ]; then
    t_skip "a driver is loaded" "needs $archive: make check builds it"
    t_done
fi
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
flags="-std=gnu11 -O1 -Wall -Wextra -Werror -Iinclude -Isrc -I$dir"
# A row a line; not those that the stub defines itself.
awk '/^SYMM_CU_CALL/ { while (!/\)\)$/ && (getline more) > 0) $0 = $0 more } { print }' \
    src/transport/cuda/cuda_calls.def |
    grep -vE '^SYMM_CU_CALL\((cuDriverGetVersion|cuDeviceGetCount|cuInit),' >"$dir/cuda_rest.def"

stub() { # version [what its cuInit returns]: libcuda.so.1 of that version
    rm -f "$dir/libcuda.so.1"
    $cc $flags -DSTUB="$1" -DINIT="${2:-0}" -shared -fPIC tests/fake/cuda_stub.c \
        -o "$dir/libcuda.so.1" -ldl >"$dir/log" 2>&1 ||
        { t_fail "the stub builds" "$(cat "$dir/log")"; t_done; }
}
says() { # name, what the program must say, its arguments
    local got name=$1 want=$2
    shift 2
    got=$(LD_LIBRARY_PATH=$dir timeout $((20 * ${T_SLOW:-1})) "$dir/load" "$@" 2>&1 ||
        echo "exit status $?")
    if [ "$got" = "$want" ]; then t_ok "$name"; else t_fail "$name" "$got"; fi
}

$cc $flags tests/fake/cuda_stub.c "$archive" -pthread -ldl -lrt -lm -rdynamic \
    -o "$dir/load" >"$dir/log" 2>&1 || { t_fail "the program builds" "$(cat "$dir/log")"; t_done; }
stub 12040
says "a driver is loaded, and a forked child cannot use it" \
    "load success, version 12040 devices 3 why []
child not supported, devices 0 why [this process was forked from one that uses CUDA]
after success, why []"
says "several threads at once, and a fork meanwhile" \
    "child not supported, why [this process was forked while another thread was starting CUDA]
4 of 4 threads, version 12040" threads
stub 12040 100
says "one without devices says so" \
    "load not supported, version 0 devices 0 why [cuInit: error (100)]
child not supported, devices 0 why [cuInit: error (100)]
after not supported, why [cuInit: error (100)]"
got=$(LD_LIBRARY_PATH=$dir timeout $((20 * ${T_SLOW:-1})) "$build/bin/symm-info" 2>&1 ||
    echo "exit status $?")
name="where cuInit forks and finds nothing, programs get the host backend"
case $got in
*"exit status"*) t_fail "$name" "$got" ;;
*"has no GPU kernels"*) t_skip "$name" "needs kernels: without them no driver is asked" ;;
*"host"*"cuInit: error (100)"*) t_ok "$name" ;;
*) t_fail "$name" "$got" ;;
esac
stub 11080
says "one that is too old says so" \
    "load not supported, version 0 devices 0 why [driver 11.8 is too old: 12.0 is needed]
child not supported, devices 0 why [driver 11.8 is too old: 12.0 is needed]
after not supported, why [driver 11.8 is too old: 12.0 is needed]"
sed -i '/^SYMM_CU_CALL(cuMemMap,/d' "$dir/cuda_rest.def"
stub 12040
says "one that lacks a symbol names it" \
    "load not supported, version 0 devices 0 why [driver 12.4 lacks cuMemMap]
child not supported, devices 0 why [driver 12.4 lacks cuMemMap]
after not supported, why [driver 12.4 lacks cuMemMap]"
echo 'not a library' >"$dir/libcuda.so.1"
got=$(LD_LIBRARY_PATH=$dir timeout 20 "$dir/load" 2>&1 | head -n 1)
name="what is no library says so"
case $got in
"load not supported, version 0 devices 0 why [no libcuda.so.1: "*) t_ok "$name" ;;
*) t_fail "$name" "$got" ;;
esac
t_done
