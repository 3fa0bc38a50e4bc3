#!/bin/sh
# run.sh - runs test programs, prints a line for each, and ends with `N passed, N failed, N
# skipped`.
#
#   tests/run.sh [-j J] PROGRAM...
#
# PROGRAM is one of
#   path [args]              a program
#   np=4:path [args]         the same under mpirun, with 4 ranks; rank 0 prints the results
#   recover=4:path [args]    the same; mpirun goes on when a rank dies (Open MPI)
#   @file                    a file with one such per line; blank lines and #... are ignored
#
#   J          programs at a time (default 1). Those under mpirun run last, one at a time.
#   TIMEOUT    seconds a program may take (default 600), multiplied by T_SLOW
#   FULL_NP    rank counts that T_FULL=1 holds for (default: all); with another one a program under
#              mpirun runs with the cases that it draws
#   REQUIRE    comma-separated words: a skip whose reason begins with `needs WORD` is a failure
#   MPIRUN     the launcher (default mpirun)
#
# A program's results are its TAP lines. Beside a `not ok` line these are failures:
#   - an exit status other than 0 and 77 (all skipped) without a failed line
#   - fewer lines than its plan promised, or none
# The exit status is 1 if anything failed. The output of a program is shown only if it failed. If
# stderr is a terminal, a line there names the program that has begun.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2

usage() {
    sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p;}' "$0" >&2
    exit 2
}

# ---- one program: run.sh --one DIR INDEX ----
# Runs it, prints its line, leaves `passed failed skipped` in DIR/INDEX.count.

# Reads a program's output; prints `passed failed skipped planned` and then what the summary should
# show.
judge() {
    awk -v require="${REQUIRE:-}" '
        BEGIN { words = split(require, word, ","); planned = -1 }
        function required(why, i) {
            for (i = 1; i <= words; i++)
                if (word[i] != "" && why ~ ("^needs " word[i] "([^A-Za-z0-9_]|$)")) return 1
            return 0
        }
        /^1\.\.[0-9]+/ { planned = substr($1, 4) + 0; if ($2 == "#") { skipped++; planned = -1 } }
        /^ok / {
            at = match($0, / # [Ss][Kk][Ii][Pp]/)
            if (!at) { passed++; next }
            why = substr($0, at + RLENGTH); sub(/^[^ ]* */, "", why)
            name = substr($0, 1, at - 1); sub(/^ok [0-9]* *(- )?/, "", name)
            if (required(why)) { failed++; note[++notes] = "required: " name ": " why }
            else { skipped++; note[++notes] = "skipped: " name ": " why }
        }
        /^not ok / { failed++ }
        END {
            print passed + 0, failed + 0, skipped + 0, planned
            for (i = 1; i <= notes; i++) print note[i]
        }' "$1"
}

execute() { # spec; becomes the program, so that its caller has timeout's pid
    # Under a sanitizer every program runs with the cases it draws: whole matrices would take hours.
    case $1 in *test-tsan/* | *test-asan*) unset T_FULL ;; esac
    case $1 in
    np=*:* | recover=*:*)
        ranks=${1%%:*}
        ranks=${ranks#*=}
        case " ${FULL_NP:-$ranks} " in *" $ranks "*) ;; *) unset T_FULL ;; esac
        case $1 in recover=*) export OMPI_MCA_orte_enable_recovery=1 ;; esac
        # Shared memory only: without it the launcher looks for networks first.
        export OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"
        exec timeout -k 10 "$limit" \
            sh -c '. "$0"; launch "$@"' "$here/../scripts/mpi.sh" "$ranks" ${1#*:} </dev/null
        ;;
    *) exec timeout -k 10 "$limit" $1 </dev/null ;;
    esac
}

# What is wrong with a program's end beyond its own `not ok` lines; nothing if all is well.
complaint() { # rc passed failed skipped planned
    if [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; then
        echo "ran past $limit s, or was killed"
    elif [ "$1" -ne 0 ] && [ "$1" -ne 77 ] && [ "$3" -eq 0 ]; then
        echo "exit status $1"
    elif [ $(($2 + $3 + $4)) -eq 0 ] && [ "$1" -ne 77 ]; then
        echo "printed no results"
    elif [ "$5" -gt $(($2 + $3 + $4)) ]; then
        echo "printed $(($2 + $3 + $4)) of $5 results"
    fi
}

# Where somebody watches: which program begins, on one line that the next one writes over.
progress() { # directory index spec
    [ -e "$1/watched" ] || return 0
    printf '\r[%3d/%d] %-60.60s\r' "$2" "$(wc -l <"$1/specs")" "${3#"${BUILD:-build}"/}" >&2
}

# Of all processes of a program, from what `times` says: minutes and seconds, user and system.
cpu() { # file
    awk -F '[ms ]+' 'NR == 2 { printf "%.1f", ($1 + $3) * 60 + $2 + $4 }' "$1"
}

one() { # directory index
    spec=$(sed -n "$2p" "$1/specs")
    progress "$1" "$2" "$spec"
    out=$1/$2.out
    start=$(date +%s%N)
    limit=$((${TIMEOUT:-600} * ${T_SLOW:-1}))
    # timeout leads a process group of its own, which a signal to ours does not reach: it is passed
    # on.
    execute "$spec" >"$out" 2>&1 &
    pid=$!
    trap 'kill -TERM $pid; exit 130' INT TERM HUP
    wait $pid 2>>"$out" # the shell itself tells of a signal there
    rc=$?
    took=$(($(date +%s%N) / 1000000 - start / 1000000))
    times >"$1/$2.times"
    judge "$out" >"$1/$2.verdict"
    read -r passed failed skipped planned <"$1/$2.verdict"
    [ "$rc" -ne 77 ] || [ $((passed + failed + skipped)) -ne 0 ] || skipped=1
    why=$(complaint "$rc" "$passed" "$failed" "$skipped" "$planned")
    [ -z "$why" ] || failed=$((failed + 1))
    echo "$passed $failed $skipped" >"$1/$2.count"
    {
        verdict=ok
        [ "$passed" -gt 0 ] || verdict=skip
        [ "$failed" -eq 0 ] || verdict=FAIL
        printf '%-4s %-44s %4d passed' "$verdict" "${spec#"${BUILD:-build}"/}" "$passed"
        [ "$failed" -eq 0 ] || printf ', %d failed' "$failed"
        [ "$skipped" -eq 0 ] || printf ', %d skipped' "$skipped"
        printf '  %d.%03d s, CPU %s s\n' $((took / 1000)) $((took % 1000)) "$(cpu "$1/$2.times")"
        [ -z "$why" ] || echo "       $why"
        sed -n '2,$s/^/       /p' "$1/$2.verdict"
        [ "$failed" -eq 0 ] || {
            head -n -300 "$out" | grep -E '^not ok|^#? *FAILED' | head -n 20
            tail -n 300 "$out"
        } | sed 's/^/     | /'
    } >"$1/$2.said"
    [ ! -e "$1/watched" ] || printf '\r\033[K' >&2
    cat "$1/$2.said" # at once, so that programs that run side by side do not mix
}

if [ "${1:-}" = --one ]; then
    one "$2" "$3"
    exit 0
fi

# ---- all of them

jobs=1
while getopts j: option; do
    case $option in
    j) jobs=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
case $jobs in '' | *[!0-9]* | 0) usage ;; esac

dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

for spec in "$@"; do
    case $spec in
    @*) sed -e 's/^[[:space:]]*//' -e '/^#/d' -e '/^$/d' "${spec#@}" || exit 2 ;;
    *) printf '%s\n' "$spec" ;;
    esac
done >"$dir/specs" || exit 2

count=$(wc -l <"$dir/specs")
[ ! -t 2 ] || : >"$dir/watched"
numbers() { # other or mpi: which specs, by number
    awk -v is="$1" -v jobs="$jobs" '
        { kind = jobs > 1 && /^(np|recover)=/ ? "mpi" : "other" }
        kind == is { print NR }' "$dir/specs"
}
numbers other | xargs -r -P "$jobs" -n 1 sh "$0" --one "$dir"
numbers mpi | xargs -r -n 1 sh "$0" --one "$dir"

# A program whose runner itself was lost left no count, and has failed.
awk -v count="$count" -v dir="$dir" '
    BEGIN {
        for (i = 1; i <= count; i++) {
            if ((getline spec < (dir "/specs")) <= 0) spec = "?"
            p = 0; f = 1; s = 0
            if ((getline line < (dir "/" i ".count")) > 0) {
                split(line, n, " ")
                p = n[1]; f = n[2]; s = n[3]
            }
            passed += p; failed += f; skipped += s
            if (f > 0) bad = bad "\n  " spec
        }
        if (bad != "") printf "\nfailed:%s\n", bad
        printf "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit failed > 0
    }'
