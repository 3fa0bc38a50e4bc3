#!/bin/sh
# check_examples.sh - every example runs and prints what it should. `make check` builds them as a user would: public headers, shared library.
set -u
cd "$(dirname "$0")/.." || exit 2
. tests/tap.sh
examples=${BUILD:-build}/examples
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
export OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"

# prints NAME COMMAND...: what it prints, in any order of lines, is on standard input. Nothing else may go to either output.
prints() {
    name=$1
    shift
    sort >"$dir/want"
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
    if [ "$1" = hello ] && ! command -v "${MPICC:-mpicc}" >/dev/null 2>&1; then
        t_skip "$1" "needs mpi"
    else
        t_fail "$1" "$examples/$1 is not there: make examples"
    fi
    return 1
}

if is_built hello; then
    for ranks in 1 4; do
        sum=$((ranks * (ranks - 1) / 2))
        seq 0 $((ranks - 1)) | sed "s/.*/rank &: the sum is $sum/" |
            prints "hello on $ranks ranks" sh -c '. scripts/mpi.sh; launch "$@"' - $ranks "$examples/hello"
    done
fi
if is_built threads; then
    seq 0 3 | sed 's/.*/rank & gathered 1000 1001 1002 1003/' | prints threads "$examples/threads"
fi
if is_built peer_ptr; then
    seq 0 2 | sed 's/.*/rank & found 10 20 30, sum 60/' | prints peer_ptr "$examples/peer_ptr"
fi
t_empty "every example is run here" "$(for f in examples/*.c; do grep -q "is_built $(basename "$f" .c)" "$0" || echo "$f"; done)"
t_done
