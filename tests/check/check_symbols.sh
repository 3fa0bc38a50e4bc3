#!/bin/sh
# check_symbols.sh - what the libraries show: every function of the public headers, and nothing that
# is not symm*.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
lib=${BUILD:-build}/lib

defined() {
    nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | grep '^symm' |
        sort -u
}
declared() {
    cat "$@" | tr '\n' ' ' | grep -oE ' SYMM_API [^(;]*\(' |
        sed -E 's/.*[ *](symm[A-Za-z]+)\($/\1/' | grep '^symm' | sort -u
}
needed() { readelf -d "$1" | awk '/NEEDED/ { gsub(/[][]/, "", $NF); print $NF }'; }

for name in libsymm libsymm-mpi; do
    so=$lib/$name.so
    header=$(find include -name '*.h' ! -name symm_mpi.h | sort)
    [ $name = libsymm ] || header=include/symm_mpi.h
    if [ ! -e "$so" ]; then
        [ $name = libsymm-mpi ] && t_skip "$name is built" "there is no MPI" && continue
        t_fail "$name is built" "$so is not there"
        continue
    fi
    t_empty "$name shows only symm*" "$(defined "$so" | grep -vE '^(symm|SYMM_)')"
    want=$(mktemp)
    have=$(mktemp)
    declared $header >"$want"
    defined "$so" >"$have"
    t_empty "$name shows all of $(basename -a $header | tr '\n' ' ')" "$(comm -23 "$want" "$have")"
    t_empty "$name has a versioned name" \
        "$(readelf -d "$so" | grep -qE "SONAME.*\[$name\.so\.[0-9]+\]" ||
        echo 'no SONAME with a major version')"
    rm -f "$want" "$have"
done
[ ! -e $lib/libsymm.so ] ||
    t_empty "libsymm has no assertions" "$(strings -a $lib/libsymm.so | grep 'assertion failed')"
[ ! -e $lib/libsymm.so ] ||
    t_empty "libsymm needs no MPI and no CUDA" "$(needed $lib/libsymm.so | grep -E 'mpi|cuda|nccl')"
[ ! -e $lib/libsymm.a ] ||
    t_empty "one file of libsymm writes memory of other processes" \
        "$(nm -A --undefined-only $lib/libsymm.a 2>/dev/null | grep -E 'process_vm_writev|ptrace' |
            grep -vE ':peer_memory\.o:.* process_vm_writev')"
[ ! -e $lib/libsymm.a ] ||
    t_empty "libsymm.a defines only symm* globally" \
        "$(nm --defined-only -g $lib/libsymm.a 2>/dev/null | awk 'NF == 3 { print $3 }' |
            grep -vE '^symm')"
t_done
