#!/bin/bash
# check_load.sh - the installed library opened late: by dlopen from C, through a library that is
# itself opened late, from Python, and where other libraries have used up the room for variables of
# threads. And the reason why that works: what the built libraries ask for in every thread.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
build=${BUILD:-build} cc=${CC:-gcc}
export OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}" SYMM_BACKEND=host
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
to=$dir/prefix

# asks LIBRARY: what is wrong with the thread-local variables that a library brings along; nothing
# if all is well. A relocation against the thread pointer, or the flag that tells of one, means that
# all of them (the segment) must fit into what the loader keeps free in every thread for libraries
# that are opened late, and that is soon used up. What is found through the loader is allocated in
# each thread that touches it.
most=4096
asks() {
    local fixed flag bytes hex
    # x86-64, AArch64, POWER
    fixed=$(readelf -rW "$1" | grep -cE 'R_[A-Z0-9_]*TLS_TPREL|R_[A-Z0-9_]*(TPOFF|TPREL)')
    flag=$(readelf -dW "$1" | grep -c STATIC_TLS)
    hex=$(readelf -lW "$1" | awk '$1 == "TLS" { print $6 }')
    bytes=$((hex))
    [ "$fixed" = 0 ] || echo "$fixed relocations of $1 are against the thread pointer"
    [ "$flag" = 0 ] || echo "$1 has STATIC_TLS: its $bytes bytes must fit into every thread"
    [ $bytes -le $most ] || echo "$1 has $bytes bytes in each thread, more than $most"
}

# A library that the check must find fault with, or it is none.
$cc -DEATER=16384 -shared -fPIC tests/fake/load_dlopen.c -o "$dir/big.so" 2>"$dir/log" ||
    t_fail "a library of 16 KiB builds" "$(cat "$dir/log")"
if [ "$(asks "$dir/big.so" | wc -l)" = 3 ]; then
    t_ok "variables of threads are found"
else
    t_fail "variables of threads are found" "$(asks "$dir/big.so")"
fi
for so in "$build"/lib/libsymm.so "$build"/lib/libsymm-mpi.so; do
    [ ! -e "$so" ] || t_empty "$(basename "$so") needs no room in every thread" "$(asks "$so")"
done

make --no-print-directory OUT="$build" PREFIX="$to" DESTDIR= install >"$dir/log" 2>&1 ||
    { t_fail "it is installed" "$(cat "$dir/log")"; t_done; }
flags="-std=gnu11 -O1 -Wall -Wextra -Werror -I$to/include -pthread"
link="-L$to/lib -Wl,-rpath,$to/lib"
builds() { # what, command...
    local what=$1
    shift
    "$@" >"$dir/log" 2>&1 || { t_fail "$what builds" "$(cat "$dir/log")"; t_done; }
}
builds "the program" $cc $flags tests/fake/load_dlopen.c -ldl -o "$dir/late"
builds "the plug-in" \
    $cc $flags -fPIC -shared -DPLUGIN tests/fake/load_dlopen.c $link -lsymm -o "$dir/plugin.so"

says() { # name, what it must print, command...
    local name=$1 want=$2 got
    shift 2
    got=$(timeout $((60 * ${T_SLOW:-1})) "$@" 2>"$dir/err" || echo "exit status $?")
    if [ "$got" = "$want" ]; then t_ok "$name"; else t_fail "$name" "$got; $(cat "$dir/err")"; fi
}
for test in processes:3 threads:300; do
    want="${test#*:} ${test%:*}" test=${test%:*}
    says "opened by a program: $test" "$want" "$dir/late" symm "$to/lib/libsymm.so" $test
    says "opened by a plug-in: $test" "$want" "$dir/late" plugin "$dir/plugin.so" $test
done

for i in $(seq 60); do
    if [ "$i" = 1 ]; then
        builds "a library that is in the way" \
            $cc -DEATER=64 -shared -fPIC tests/fake/load_dlopen.c -o "$dir/eater1.so"
    else
        cp "$dir/eater1.so" "$dir/eater$i.so"
    fi
done
if "$dir/late" symm "$to/lib/libsymm.so" none "$dir"/eater*.so 2>/dev/null |
    grep -q 'some fit, others did not'; then
    for room in 512 0; do
        export GLIBC_TUNABLES=glibc.rtld.optional_static_tls=$room
        says "opened when others have used up the room ($room)" \
            "some fit, others did not; 3 processes" "$dir/late" symm "$to/lib/libsymm.so" \
            processes "$dir"/eater*.so
        unset GLIBC_TUNABLES
    done
else
    t_skip "opened when others have used up the room" \
        "this loader has room for 60 libraries, or refuses ours: the tests above say"
fi

if [ -e "$to/lib/libsymm-mpi.so" ]; then
    builds "the plug-in with MPI" \
        env OMPI_CC="$cc" MPICH_CC="$cc" ${MPICC:-mpicc} $flags -fPIC -shared -DPLUGIN \
        -DPLUGIN_MPI tests/fake/load_dlopen.c $link -lsymm-mpi -lsymm -o "$dir/mpi.so"
    says "libsymm-mpi, opened by a plug-in" \
        "2 ranks of MPI" sh -c '. scripts/mpi.sh; launch "$@"' - 2 "$dir/late" \
        plugin "$dir/mpi.so" mpi
else
    t_skip "libsymm-mpi, opened by a plug-in" "needs mpi"
fi

cat >"$dir/late.py" <<'PY'
import ctypes, os, sys
symm = ctypes.CDLL(sys.argv[1])
symm.symmGetLastError.restype = ctypes.c_char_p
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]
def ok(r):
    if r: raise SystemExit(symm.symmGetLastError(None).decode())
ident, comm, n, children = Id(), ctypes.c_void_p(), 3, []
ok(symm.symmGetUniqueId(ctypes.byref(ident)))
for rank in range(1, n):
    child = os.fork()
    if child == 0: break
    children.append(child)
else:
    rank = 0
ok(symm.symmCommInitRank(ctypes.byref(comm), n, ident, rank))
x = (ctypes.c_float * 100000)(*[rank + 1] * 100000)
ok(symm.symmAllReduce(x, x, ctypes.c_size_t(len(x)), 7, 0, comm, None))
assert set(x) == {6.0}, set(x)
ok(symm.symmCommDestroy(comm))
if rank == 0:
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    print("3 processes")
PY
if command -v python3 >/dev/null 2>&1 && python3 -c 'import ctypes' 2>/dev/null; then
    says "opened by Python" "3 processes" python3 "$dir/late.py" "$to/lib/libsymm.so"
else
    t_skip "opened by Python" "needs python3"
fi
t_done
