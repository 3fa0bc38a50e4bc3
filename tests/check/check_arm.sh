#!/bin/sh
# check_arm.sh - the host backend on ARM, where stores of one rank become visible to another in an
# order of their own: builds the library without a warning and runs its tests under qemu. For the
# long check (T_FULL=1); `tests/check/check_arm.sh now` runs it at once.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
cross=${ARM_CC:-aarch64-linux-gnu-gcc}
qemu=${ARM_QEMU:-qemu-aarch64}
out=${BUILD:-build}/arm64
libs=$(command -v "$cross" >/dev/null 2>&1 &&
    dirname "$(dirname "$("$cross" -print-file-name=libc.so.6)")")

pass_over() {
    t_skip "tests pass on ARM" "$1"
    t_done
}
[ "${1:-}" = now ] || [ "${T_FULL:-0}" != 0 ] ||
    pass_over "only in the long check (T_FULL=1): it takes minutes"
[ "$(uname -m)" != aarch64 ] || pass_over "this machine is one: all tests run on it"
command -v "$cross" >/dev/null 2>&1 ||
    pass_over "needs arm: there is no $cross (package gcc-aarch64-linux-gnu)"
echo '#include <stdio.h>' | "$cross" -x c -E - >/dev/null 2>&1 ||
    pass_over "needs arm: no headers (package libc6-dev-arm64-cross)"
command -v "$qemu" >/dev/null 2>&1 || pass_over "needs arm: there is no $qemu (package qemu-user)"

# Arithmetic, order, waits and set-up: what differs between processors. Not: bad arguments, plans of
# integers, more than 8 ranks, which are the same everywhere. And not what qemu itself cannot do,
# which is to start threads in a child forked from a process of several, and to keep to the kernel's
# limit of mappings.
programs='unit_reduce unit_copy unit_cores unit_first_touch unit_call_log unit_graph
    unit_mesh unit_agree unit_split unit_stream-forked_child_has_no_streams
    unit_vmm_share-the_limit_of_mappings_is_refused_and_left_again
    thr_order thr_matrix thr_mismatch thr_stream thr_p2p thr_onesided thr_device_api'
targets=
for p in $programs; do targets="$targets $out/test/${p%%-*}"; done

# A make of its own: what the one that called us was told does not hold here.
build() {
    env -u MAKEFLAGS -u MAKELEVEL -u CFLAGS -u CPPFLAGS -u LDFLAGS "${MAKE:-make}" \
        -j"$(nproc)" --no-print-directory \
        CC="$cross" CXX=none MPICC=none CUDA=0 WERROR=1 OUT="$out" "$@" 2>&1
}
# shellcheck disable=SC2086 # targets are words
text=$(build "$out/lib/libsymm.so" "$out/bin/symm-perf" "$out/bin/symm-info" $targets) || {
    t_fail "builds for ARM" "$(echo "$text" | grep -E 'error|warning|\*\*\*' | head -n 30)"
    t_done
}
t_empty "builds for ARM without a warning" "$(echo "$text" | grep -E 'warning:')"

# The loops of waits rest: `isb` in what kernels wait with, and in streams.
for object in device/host/kernels_host host/stream/stream; do
    if "${cross%gcc}objdump" -d "$out/obj/src/$object.o" | grep -qw isb; then
        t_ok "waits of $object rest"
    else
        t_fail "waits of $object rest" "there is no isb in it"
    fi
done

# As under a sanitizer, programs run with the cases they draw: whole matrices would take hours.
unset T_FULL
# A program's own lines, with its name in front.
for p in $programs; do
    name=${p%%-*}
    tests=
    case $p in *-*) tests=$("$qemu" -L "$libs" "$out/test/$name" -l | grep -vx "${p#*-}") ;; esac
    # shellcheck disable=SC2086 # tests are words
    text=$(QEMU_LD_PREFIX=$libs T_SLOW=$((${T_SLOW:-1} * 4)) timeout 1800 "$qemu" -L "$libs" \
        "$out/test/$name" $tests 2>&1)
    rc=$?
    passed=$(echo "$text" | grep -c '^ok')
    if [ $rc = 0 ] && [ "$passed" -gt 0 ]; then
        t_ok "$name: $passed tests pass on ARM"
    else
        t_fail "$name passes on ARM" "exit $rc
$(echo "$text" | grep -A 8 '^not ok')"
    fi
done
t_done
