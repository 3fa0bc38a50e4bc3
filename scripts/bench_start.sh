#!/bin/sh
# bench_start.sh - what libsymm-pmpi.so costs a program that calls no collective: from just before
# it is started to behind its MPI_Finalize, without and with `symm-run`, in turns. Each start counts
# by its slowest rank. Usage: bench_start.sh [STARTS]   (default 100 of each, of 1 and of 2 ranks)
#
#   BIN      where symm-run is (build/bin)
#   MPICC    the compiler wrapper of the MPI that MPIRUN belongs to (mpicc, mpirun)
set -eu
cd "$(dirname "$0")/.."
. scripts/mpi.sh
starts=${1:-100} bin=${BIN:-build/bin}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 143' TERM INT

# starter COMMAND...: becomes COMMAND, which finds in STARTED_NS when that was. By the clock that
# all ranks of a machine share.
cat >"$dir/starter.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char text[32];
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    snprintf(text, sizeof text, "%lld", (long long)t.tv_sec * 1000000000 + t.tv_nsec);
    setenv("STARTED_NS", text, 1);
    if (argc > 1) execvp(argv[1], argv + 1);
    return 127;
}
END
cat >"$dir/program.c" <<'END'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int argc, char **argv) {
    struct timespec t;
    MPI_Init(&argc, &argv);
    MPI_Finalize();
    clock_gettime(CLOCK_MONOTONIC, &t);
    printf("%lld\n", (long long)t.tv_sec * 1000000000 + t.tv_nsec - atoll(getenv("STARTED_NS")));
    return 0;
}
END
${CC:-cc} -O2 -o "$dir/starter" "$dir/starter.c"
"${MPICC:-mpicc}" -O2 -o "$dir/program" "$dir/program.c"

once() { # ranks, file, command: its slowest rank, in ns
    ranks=$1 file=$2
    shift 2
    launch "$ranks" "$dir/starter" "$@" "$dir/program" >"$dir/out" 2>"$dir/err" || {
        cat "$dir/err" >&2
        exit 1
    }
    sort -n "$dir/out" | tail -n 1 >>"$file"
}
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] / 1e6 }'; }

echo 'ranks  starts  without (ms)  with (ms)  later, middle of all pairs (ms)'
for ranks in 1 2; do
    i=0
    while [ $i -lt "$starts" ]; do
        # In each pair the other one is first.
        [ $((i % 2)) = 0 ] || once "$ranks" "$dir/with.$ranks" "$bin/symm-run"
        once "$ranks" "$dir/without.$ranks"
        [ $((i % 2)) != 0 ] || once "$ranks" "$dir/with.$ranks" "$bin/symm-run"
        i=$((i + 1))
    done
    paste "$dir/with.$ranks" "$dir/without.$ranks" | awk '{ print $1 - $2 }' >"$dir/later.$ranks"
    printf '%5d %7d %13s %10s %10s\n' "$ranks" "$starts" "$(median "$dir/without.$ranks")" \
        "$(median "$dir/with.$ranks")" "$(median "$dir/later.$ranks")"
done
