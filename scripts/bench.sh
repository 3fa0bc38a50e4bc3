#!/bin/sh
# bench.sh - the figures of docs/performance.md. Usage: bench.sh DIRECTORY [benchmark programs]. Tables go to the screen, JSON and
# SVG to DIRECTORY. Nothing else should run on the machine meanwhile.
set -eu
cd "$(dirname "$0")/.."
. scripts/mpi.sh

out=$1
shift
mkdir -p "$out"
status=0
for collective in all_reduce all_gather; do
    per_rank=
    [ $collective = all_reduce ] || per_rank=--per-rank
    for ranks in 2 4 8; do
        name=$out/$collective-$ranks
        limits=
        [ $ranks != 2 ] || limits=--limits
        # shellcheck disable=SC2086 # empty or single words
        launch $ranks "$BIN/symm-perf" $collective -b 1K -e 64M -f 2 $per_rank --vs mpi $limits --json "$name.json" \
            --plot "$name.svg" || status=1
        echo
    done
done
# Below 1 KB only the distance to the bare exchange is asked for.
launch 2 "$BIN/symm-perf" all_reduce -b 4 -e 1K -f 2 --vs mpi --limits --json "$out/small.json" || status=1

for program in "$@"; do
    case $program in
    np=*:*) ranks=${program%%:*} && launch "${ranks#np=}" "${program#*:}" || status=1 ;;
    *) "$program" || status=1 ;;
    esac
done
exit $status
