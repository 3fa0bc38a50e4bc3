# shellcheck shell=sh
# fake_perf.sh - sourced after tap.sh: builds symm-perf over the fake driver (perf_stub.c) and the
# stub of NCCL into a directory of their own: libnccl.so, and libnccl-old.so, which lacks calls.
# Sets dir, perf and cc; where the tests' objects are missing the whole check is skipped.
build=${BUILD:-build} cc=${CC:-gcc}
objects=$build/obj-test
if [ ! -e "$objects/libsymm.a" ] || [ ! -e "$objects/tests/parts.a" ] ||
    [ ! -e "$objects/tests/t.o" ]; then
    t_skip "symm-perf over the fake driver" "needs $objects: make check builds it"
    t_done
fi
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
perf=$dir/symm-perf
flags="-std=gnu11 -O1 -Wall -Wextra -Werror -pthread"
flags="$flags -DSYMM_TESTING -Iinclude -Isrc -Itests/kit -Itests/fake"

# Without MPI: ranks are threads here.
sources="tools/symm_perf.c $(find tools -name 'perf_*.c' ! -name perf_mpi.c)"
library="$objects/tests/t.o $objects/tests/parts.a $objects/libsymm.a $objects/tests/parts.a"
library="$library $objects/src/device/common/kernel_images.o -ldl -lrt -lm"
# shellcheck disable=SC2086 # lists
$cc $flags -rdynamic tests/fake/perf_stub.c $sources $library -o "$perf" >"$dir/log" 2>&1 ||
    { t_fail "symm-perf builds with the fake driver" "$(cat "$dir/log")" && t_done; }
# shellcheck disable=SC2086
for name in libnccl libnccl-old; do
    $cc $flags $([ $name = libnccl ] || echo -DOLD) -shared -fPIC tests/fake/nccl_stub.c \
        -o "$dir/$name.so" >"$dir/log" 2>&1 ||
        { t_fail "the stub of NCCL builds" "$(cat "$dir/log")" && t_done; }
done
