#!/bin/sh
# check_examples.sh - every example runs and prints what it should. `make check` builds them as a
# user would: public headers, shared library.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
examples=${BUILD:-build}/examples
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
export OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"

# prints NAME WANTED COMMAND...: the lines may come in any order; no word of the library's may be
# among the errors.
prints() {
    name=$1
    printf '%s\n' "$2" | sort >"$dir/want"
    shift 2
    timeout 60 "$@" >"$dir/out" 2>"$dir/err"
    rc=$?
    sort "$dir/out" >"$dir/got"
    if [ $rc -eq 0 ] && cmp -s "$dir/want" "$dir/got" && ! grep -q symm "$dir/err"; then
        t_ok "$name"
    else
        t_fail "$name" "exit status $rc, wanted and got:
$(diff "$dir/want" "$dir/got")
$(cat "$dir/err")"
    fi
}
is_built() { # example
    [ -x "$examples/$1" ] && return 0
    if grep -q '"symm_mpi.h"' "examples/$1.c" &&
        ! command -v "${MPICC:-mpicc}" >/dev/null 2>&1; then
        t_skip "$1" "needs mpi"
    else
        t_fail "$1" "$examples/$1 is not there: make examples"
    fi
    return 1
}

each() { seq 0 $(($1 - 1)) | sed "s/.*/$2/"; } # ranks, what rank & prints

if is_built hello; then
    for n in 1 4; do
        prints "hello on $n ranks" "$(each $n "rank &: the sum is $((n * (n - 1) / 2))")" \
            sh -c '. scripts/mpi.sh; launch "$@"' - $n "$examples/hello"
    done
fi
# Its times are another figure each time.
if is_built halo; then
    for n in 1 2 3; do
        prints "halo on $n ranks" "$n slabs, edges of 65536 bytes: 0 wrong
send and receive: N us, pointers: N us, puts: N us, MPI_Sendrecv: N us" \
            sh -c '. scripts/mpi.sh; launch "$@" | sed "s/[0-9]*[.][0-9]*/N/g"' - $n \
            "$examples/halo"
    done
fi
if is_built moe_dispatch; then
    for n in 1 3; do
        prints "moe_dispatch on $n ranks" \
            "$n experts, 2048 tokens of 256 floats on each rank: 0 wrong
dispatch and combine: N us, with MPI_Alltoallv N us: Nx" \
            sh -c '. scripts/mpi.sh; launch "$@" | sed "s/[0-9]*[.][0-9]*/N/g"' - $n \
            "$examples/moe_dispatch"
    done
fi
if is_built fused_norm_host; then
    for n in 1 2 3; do
        prints "fused_norm_host on $n ranks" "$n ranks, 7 rows of 1000 floats: 0 wrong
unfused: N us, fused: N us, Nx" \
            sh -c '"$@" | sed "s/[0-9]*[.][0-9]*/N/g"' - "$examples/fused_norm_host" $n 7 1000
    done
fi
in_place='memory of the heap is used in place'
! is_built threads || prints threads "$(each 4 'rank & gathered 1000 1001 1002 1003')" \
    "$examples/threads"
! is_built peer_ptr || prints peer_ptr "$(each 3 'rank & found 10 20 30, sum 60')" \
    "$examples/peer_ptr"
! is_built step || prints step \
    "$(each 2 "rank &: error 4.0000 before, 0.0000 after 20 steps; $in_place")" "$examples/step"
! is_built grow || prints grow \
    "$(each 3 'rank &: 32 MiB of each rank, 0 elements wrong, at the same address')" \
    "$examples/grow"
# What is set for them holds, and what goes wrong is told with its code, which is the exit status
# too.
goes_wrong() { # name, status, words of its errors, command...
    name=$1 want=$2 words=$3
    shift 3
    timeout 60 "$@" >"$dir/out" 2>&1
    rc=$?
    if [ $rc -eq "$want" ] && grep -q "$words" "$dir/out"; then
        t_ok "$name"
    else
        t_fail "$name" "exit status $rc: $(cat "$dir/out")"
    fi
}
if is_built hello; then
    goes_wrong "hello says what went wrong" 4 'invalid argument.* (4): .*SYMM_BACKEND=none' \
        sh -c '. scripts/mpi.sh; SYMM_BACKEND=none launch 1 "$1"' - "$examples/hello"
fi
for example in threads peer_ptr grow step fused_norm_host; do
    ! is_built $example || goes_wrong "$example does not override SYMM_BACKEND" 1 \
        'SYMM_BACKEND=none' env SYMM_BACKEND=none "$examples/$example"
done
t_empty "every example is run" "$(for f in examples/*.c examples/*.cu; do
    grep -q "is_built $(basename "${f%.*}")" "$0" tests/check/check_gpu_examples.sh || echo "$f"
done)"
t_done
