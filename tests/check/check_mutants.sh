#!/bin/sh
# check_mutants.sh - whether the tests would notice: each mutant is one line of the library changed
# for the worse, in a copy; the test named beside it must fail, or not end. A mutant whose line is
# not found any more is stale, and a failure.
#
# Only the files that a change reaches are compiled anew; the rest comes from the archives that
# `make check` has built. First every program runs with the same files unchanged, and must pass: so
# it is the change that is found, and nothing else. The tests of a mutant have five times as long as
# they took so, and 8 s, two of the deadlines below: those that spin for ever would otherwise take
# most of the time of all. KEEP=1 leaves the copies and what the tests printed in build/mutants.
#
#   tests/check/check_mutants.sh [NAME... | K/N]
#
#   NAME...    these
#   K/N        the K-th of N parts of all of them: parts run side by side
#   neither    some, drawn with T_SEED. Without one what is drawn follows from the table and the
#              sources: the same tree draws the same everywhere.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
. scripts/mpi.sh
build=${BUILD:-build}
out=$build/mutants
case ${1:-} in [1-9]*/[1-9]*) out=$build/mutants.${1%/*} ;; esac
cc=${CC:-gcc}
flags="-std=gnu11 -O1 -g -fPIC -pthread -DSYMM_TESTING"
seconds=$((60 * ${T_SLOW:-1})) # for the unchanged kernels, on a busy machine
export SYMM_TIMEOUT=4000 SYMM_SETUP_TIMEOUT=4000 # a mutant that hangs is found out soon
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1}"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1}"
fixed=
# Older versions of ThreadSanitizer need their addresses where they expect them.
setarch -R true 2>/dev/null && fixed='setarch -R'

objects() { # kind: where its objects lie
    if [ "$1" = tsan ]; then echo "$build/obj-test-tsan"; else echo "$build/obj-test"; fi
}
programs() { # kind: where its programs lie
    if [ "$1" = tsan ]; then echo "$build/test-tsan"; else echo "$build/test"; fi
}
# Kind mpi3: plain, under mpirun with three ranks.
ranks_of() { case $1 in mpi*) echo "${1#mpi}" ;; esac; }
export OMPI_CC="$cc" OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"
sanitizer() { [ "$1" != tsan ] || echo '-fsanitize=thread'; }

# The sources that must be compiled when FILE has changed, as `source` or `source:instruction set`.
bodies=$(grep -l '^#include "signature.inl"' src/device/host/*.c)
reached() {
    case $1 in
    */lanes.inl | */lanes_types.inl | */types.inl | */copy.inl | */reduce_span.inl)
        echo src/device/host/reduce_host.c:base
        ;;
    src/device/host/*.inl) echo $bodies ;;
    src/host/place/*.inl) echo src/host/place/place_narrow.c ;;
    src/device/cuda/*) echo tests/fake/emu_kernels.cc ;;
    include/symm_device_host.h) echo tests/fake/host_kernels.c ;;
    include/*.cuh | examples/*.cuh)
        echo tests/fake/emu_device.cc tests/fake/emu_device_debug.cc
        ;;
    nccl-tests-plugin/*.h) ls nccl-tests-plugin/*.c ;;
    */colls.h | */launch.h) echo src/host/launch/launch_host.c src/host/launch/launch_gpu.c ;;
    src/device/common/records.h) echo tests/fake/emu_kernels.cc src/host/coll/plan_gpu.c ;;
    src/base/sized.h) grep -rl '^#include "base/sized.h"' src/host ;;
    src/host/across/domains.h) echo src/host/across/*.c src/host/life/comm_across.c ;;
    src/device/host/dev.h) echo $bodies src/device/host/wait.c ;;
    *) echo "$1" ;;
    esac
}

# Kernels of collectives are left out where a program runs none (emu_kernels.cc).
emulated() { case $1 in unit_p2p_* | unit_onesided_kernels) echo -DEMU_MESSAGES ;; esac; }
compiler() { [ -n "$(ranks_of "$1")" ] && echo "${MPICC:-mpicc}" || echo "$cc"; }
compile() { # directory, kind, test, sources: leaves objects in the directory, prints their names
    tree=$1 kind=$2 set=$(emulated "$3")
    shift 3
    for source; do
        isa=${source#*:}
        # Every type times every reduction: optimised, that one file would take longer than all else
        # here.
        [ "$isa" != "$source" ] && isa="-DSYMM_ISA=$isa -ffp-contract=off -Og" || isa=
        object=$tree/$(basename "${source%%:*}" .c).$kind.o
        case $source in *.cc)
            ${CXX:-g++} -std=c++17 -O0 -w $set -ffp-contract=off -fno-exceptions \
                -fno-rtti -I"$tree/include" -I"$tree/examples" -I"$tree/tests/fake" -Itests/kit \
                -c "$tree/$source" -o "$object" || return 1
            echo "$object"
            continue
            ;;
        esac
        $(compiler "$kind") $flags $(sanitizer "$kind") $isa -I"$tree/include" -I"$tree/src" \
            -Itests/kit -c "$tree/${source%%:*}" -o "$object" || return 1
        echo "$object"
    done
}
# Objects of a folder that are not among those given, by name.
others() { # folder, kind, objects
    folder=$1 made=" $(for object in "$@"; do basename "$object" ".$2.o"; done | xargs) "
    for object in "$folder"/*.o; do
        case $made in *" $(basename "$object" .o) "*) ;; *) echo "$object" ;; esac
    done
}
# What is preloaded is a library beside the program; other programs have all in themselves.
link_mpi() { # program, kind, test, objects
    program=$1 kind=$2 test=$3 at=$(objects "$2") beside=$(dirname "$1")
    shift 3
    case $test in
    mp_pmpi*)
        $cc -shared -Wl,-z,lazy -Wl,-Bsymbolic -Wl,--version-script=mpi-plugin/libsymm-pmpi.map \
            "$@" $(others "$build/obj/mpi-plugin" "$kind" "$@") "$build/lib/libsymm.a" -pthread \
            -lrt -ldl -o "$program.so" || return 1
        set -- -Wl,-rpath,"$(cd "$beside" && pwd)" "$program.so"
        ;;
    *) set -- "$@" $(others "$at/src/transport/mpi" "$kind" "$@") ;;
    esac
    beside=$(programs "$kind")
    "${MPICC:-mpicc}" "$at/tests/$test.o" "$at/tests/t.o" "$@" "$at/tests/parts.a" \
        "$at/libsymm.a" "$beside/libsymm-images.so" -Wl,-rpath,"$(cd "$beside" && pwd)" \
        -pthread -ldl -lrt -lm -o "$program"
}
link() { # program, kind, test, objects
    if [ -n "$(ranks_of "$2")" ]; then
        link_mpi "$@"
        return
    fi
    program=$1 at=$(objects "$2") kind=$2 test=$3
    shift 3
    case $test in unit_*kernels | unit_p2p_*)
        case $* in *emu_kernels*) ;; *) set -- "$@" "$at/tests/emu_kernels.o" ;; esac
        set -- "$@" "$at/tests/emu_run.o" "$at/tests/emu_stores.o"
        ;;
    unit_device_*)
        case $* in
        *emu_device*) ;;
        *) set -- "$@" "$at/tests/emu_device.o" "$at/tests/emu_device_debug.o" ;;
        esac
        set -- "$@" "$at/tests/emu_run.o" "$at/tests/emu_stores.o"
        ;;
    esac
    [ "$kind" != tsan ] || set -- "$@" "$at/tests/sanitized.o"
    case $test in
    unit_heap_dump) set -- "$@" "$at/tests/info_map.o" "$at/tests/info_map_svg.o" ;;
    *_nccl*) # the rest of the drop-in
        for object in "$at"/nccl-tests-plugin/*.o; do
            case "$* " in
            *"/$(basename "$object" .o).$kind.o "*) ;;
            *) set -- "$@" "$object" ;;
            esac
        done
        ;;
    esac
    beside=$(programs "$kind")
    $cc $(sanitizer "$kind") "$@" "$at/tests/$test.o" "$at/tests/t.o" "$at/tests/parts.a" \
        "$at/libsymm.a" "$beside/libsymm-images.so" -Wl,-rpath,"$(cd "$beside" && pwd)" \
        -pthread -ldl -lrt -lm -o "$program"
}
literal() { printf '%s' "$1" | sed 's/[][\\.*^$+?(){}]/\\&/g'; } # as a regular expression
run() { # program, seconds, tests: 0 passed, 1 failed, 2 neither
    program=$1 limit=$2
    shift 2
    case $program in /*) ;; *) program=$PWD/$program ;; esac # no other tree's: see pkill
    n=$(ranks_of "${program##*.}")
    case $program in
    *.tsan) set -- $fixed "$program" "$@" ;;
    *.mpi*) set -- sh -c '. scripts/mpi.sh && launch "$@" || exit 1' mpi "$n" "$program" "$@" ;;
    *) set -- "$program" "$@" ;;
    esac
    timeout -k 2 "$limit" "$@" >"$program.log" 2>&1
    rc=$?
    # Children that a mutant has forked and forgotten would spin on.
    [ "$rc" = 0 ] || ! command -v pkill >/dev/null 2>&1 || pkill -KILL -f "^$(literal "$program") "
    case $rc in 0) return 0 ;; 1 | 124 | 137) return 1 ;; *) return 2 ;; esac
}
now() { echo $(($(date +%s%N) / 1000000)); }
seconds_of() { echo "$(($1 / 1000)).$(($1 % 1000 / 100))"; } # milliseconds
have() { # kind, test
    [ -e "$(objects "$1")/libsymm.a" ] && [ -e "$(objects "$1")/tests/$2.o" ] &&
        [ -e "$(objects "$1")/tests/t.o" ]
}
copy() { # directory
    rm -rf "${1:?}"
    mkdir -p "$1/tests/fake" && cp -R src include examples nccl-tests-plugin mpi-plugin "$1" &&
        cp tests/fake/emu* tests/fake/host_kernels.c "$1/tests/fake"
}

# The rows of tests/check/mutants/, one line each: name|files|sed script|kind|test|its tests
mutants() { awk -f tests/check/mutants.awk tests/check/mutants/*.txt; }

# The rows that are to be run: of the table, those that are named, a part, or as many as `make
# check-rest` has the time for. A part is rows of few programs, for each program is run unchanged
# first. Kernels on fibers take twice as long as others to compile and run.
some=24
choose() { # names, or K/N, or nothing
    case ${1:-} in
    [1-9]*/[1-9]*)
        mutants | sort -t '|' -k 4,5 | awk -F"|" -v part="${1%/*}" -v parts="${1#*/}" '
            { row[NR] = $0; before[NR] = total; total += $5 ~ /kernels$|^unit_p2p_/ ? 2 : 1 }
            END { for (i = 1; i <= NR; i++)
                      if (int(before[i] * parts / total) == part - 1) print row[i] }'
        ;;
    '')
        mutants | awk -v seed="$seed" 'BEGIN { srand(seed) } { print rand() "\t" $0 }' | sort -n |
            cut -f2- | head -n "$some"
        ;;
    *)
        for name; do
            mutants | awk -F'|' -v n="$name" '$1 == n { print; found = 1 } END { exit !found }' ||
                t_fail "$name" "no such mutant" >&2
        done
        ;;
    esac | places >"$out/table"
    [ $# -gt 0 ] || echo "# $some of $(mutants | wc -l) mutants, T_SEED=$seed"
}
# Names of files made paths. One that is not there stays, and is found stale.
places() {
    {
        find src include tests -type f | awk -F'|' '
            FNR == NR { path = $0; sub(/.*\//, ""); at[$0] = path; next }
            { n = split($2, names, ","); $2 = ""
              for (i = 1; i <= n; i++)
                  $2 = $2 (i > 1 ? "," : "") (names[i] in at ? at[names[i]] : names[i])
              print }' OFS='|' - /dev/fd/3
    } 3<&0
}
column() { # of the chosen mutants of a program: kind, test, number
    awk -F'|' -v k="$1" -v t="$2" -v c="$3" '
        $4 == k && $5 == t { gsub(",", " ", $c); print $c }' "$out/table" | tr ' ' '\n' | sort -u
}

passing= # kind/test of what passes unchanged
limit_file() { # kind, test, its tests: where their limit is kept
    echo "$out/$2.$1.$(echo "$3" | cksum | cut -d ' ' -f 1).limit"
}
# Runs the tests of each of a program's chosen mutants, the files that they change compiled anew,
# and notes how long the mutants have.
run_unchanged() { # kind, test
    awk -F'|' -v k="$1" -v t="$2" '$4 == k && $5 == t { print $6 }' "$out/table" | sort -u \
        >"$out/$2.$1.tests"
    while read -r its; do
        began=$(now)
        run "$out/$2.$1" $seconds $its </dev/null || return 1
        echo $((8 + 5 * ($(now) - began) / 1000)) >"$(limit_file "$1" "$2" "$its")"
    done <"$out/$2.$1.tests"
}
control() { # kind, test
    have "$1" "$2" || return 0
    name="unchanged: $2 ($1)"
    sources=$(for file in $(column "$1" "$2" 2); do reached "$file"; done | tr ' ' '\n' | sort -u)
    # As the archive has them: these take long to build, and the kernels run faster as there.
    [ "$2" != unit_reduce ] || sources=
    made=$(compile "$out/unchanged" "$1" "$2" $sources 2>"$out/log") &&
        link "$out/$2.$1" "$1" "$2" $made 2>>"$out/log"
    if [ $? -ne 0 ]; then t_fail "$name" "$(cat "$out/log")"; return; fi
    if run_unchanged "$1" "$2"; then
        t_ok "$name" && passing="$passing $1/$2"
    else
        t_fail "$name" "$(tail -n 20 "$out/$2.$1.log")"
    fi
}

mutant() { # name, files, script, kind, test, tests
    name=$1 kind=$4 test=$5
    if ! have "$kind" "$test"; then
        t_skip "$name" "needs $(objects "$kind")/libsymm.a and $test.o: make check builds them"
        return
    fi
    case "$passing " in
    *" $kind/$test "*) ;;
    *) t_fail "$name" "unchanged, $test does not pass either, or is not run" && return ;;
    esac
    tree=$out/$name
    began=$(now)
    copy "$tree"
    changed=
    for file in $(echo "$2" | tr , ' '); do
        sed -i "$3" "$tree/$file"
        cmp -s "$file" "$tree/$file" || changed="$changed $file"
    done
    [ -n "$changed" ] || { t_fail "$name" "stale: the script changes nothing in $2: $3"; return; }
    sources=
    for file in $changed; do sources="$sources $(reached "$file")"; done
    made=$(compile "$tree" "$kind" "$test" $(echo $sources | tr ' ' '\n' | sort -u) 2>"$out/log") &&
        link "$tree/$test.$kind" "$kind" "$test" $made 2>>"$out/log"
    if [ $? -ne 0 ]; then t_fail "$name" "does not build: $(cat "$out/log")"; return; fi
    built=$(now)
    # Three times at most: what a mutant does to threads or processes may take the luck of a moment.
    program=$tree/$test.$kind limit=$(cat "$(limit_file "$kind" "$test" "$6")")
    run "$program" "$limit" $6 && run "$program" "$limit" $6 && run "$program" "$limit" $6
    verdict=$? ended=$(now)
    echo "# $(seconds_of $((built - began))) s to build," \
        "$(seconds_of $((ended - built))) s to run: $name ($test, $kind)"
    case $verdict in
    0) t_fail "$name" "survived: $test passes ($6)" ;;
    1) t_ok "$name" && [ -n "${KEEP:-}" ] || rm -rf "$tree" ;;
    *) t_fail "$name" "did not run: $(tail -n 20 "$tree/$test.$kind.log")" ;;
    esac
}

copy "$out/unchanged" || exit 2
# A | within a script would be taken for the end of a field (write . for it).
bad=$(mutants | awk -F'|' 'NF != 6 || $4 !~ /^(plain|tsan|mpi[1-9])$/ || seen[$1]++ { print $1 }')
if [ -z "$bad" ]; then
    t_ok "the table is well-formed"
else
    t_fail "the table is well-formed" "$bad"
fi
seed=${T_SEED:-$(find src include examples nccl-tests-plugin mpi-plugin tests/check/mutants \
    -type f | LC_ALL=C sort | xargs cat | cksum | cut -d ' ' -f 1)}
unset T_SEED T_FULL # the tests draw what they always draw
choose "$@"
awk -F'|' '{ print $4, $5 }' "$out/table" | sort -u >"$out/programs"
while read -r kind test; do
    control "$kind" "$test" </dev/null
done <"$out/programs"
while IFS='|' read -r name files script kind test tests; do
    mutant "$name" "$files" "$script" "$kind" "$test" "$tests" </dev/null
done <"$out/table"
t_done
