#!/bin/bash
# check_pmpi.sh - libsymm-pmpi.so from outside: what it shows and needs, that it is inert where
# there is no MPI, a program under symm-run, variables, another MPI (of which libsymm-mpi refuses
# programs, too). The calls: tests/mp/mp_pmpi.c.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
. scripts/mpi.sh
build=${BUILD:-build}
lib=$PWD/$build/lib/libsymm-pmpi.so run=$PWD/$build/bin/symm-run
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
export OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"
unset SYMM_PMPI SYMM_PMPI_AFTER SYMM_DEBUG
unset T_FULL # who serves the calls is looked at here; mp_pmpi itself runs with all its cases
if [ ! -e "$lib" ]; then
    t_skip "MPI programs that nobody changed" "built without Open MPI"
    t_done
fi

# ---- from outside ----
sed -n 's/^CALL(\([A-Za-z_]*\),.*/MPI_\1\nmpi_\L\1_\nmpi_\1_f08_/p' mpi-plugin/calls.def \
    >"$dir/want"
# Not taken, but noticed.
for name in Comm_disconnect Comm_free Comm_idup Finalize; do
    echo "MPI_$name mpi_$name""_ mpi_$name""_f08_" | sed 's/ mpi_[A-Z]/\L&/g' | tr ' ' '\n'
done >>"$dir/want"
nm -D --defined-only "$lib" | awk '{ print $3 }' | sort >"$dir/have"
t_empty "it shows the calls of its table, the ends, in C and in Fortran, and nothing else" \
    "$(sort "$dir/want" | diff - "$dir/have")"
t_empty "it needs no MPI and no other library of ours" \
    "$(readelf -d "$lib" | awk '/NEEDED/ { print $NF }' | grep -E 'mpi|symm|open')"
t_empty "all that it uses of MPI is weak" \
    "$(nm -D --undefined-only "$lib" | grep -iE 'mpi_' | grep -v ' w ')"
t_empty "it makes no call that a program's own profiling functions would see" \
    "$(nm -D --undefined-only "$lib" | awk '$2 ~ /^(MPI_|mpi_[a-z_]*_$)/ && !/mpi_fortran_/')"
t_empty "it includes include/ and itself only" "$(
    grep -hoE '^ *# *include *"[^"]*"' mpi-plugin/*.[ch] | sed 's/.*"\(.*\)"/\1/' | sort -u |
        while read -r name; do
            [ -e "mpi-plugin/$name" ] || [ -e "include/$name" ] || echo "$name"
        done)"
t_equal "preloaded into ls nothing changes" "$(ls / 2>&1)" "$(LD_PRELOAD=$lib ls / 2>&1)"
t_equal "nor where all symbols are bound at once" "$(ls / 2>&1)" \
    "$(LD_BIND_NOW=1 LD_PRELOAD=$lib ls / 2>&1)"
if command -v python3 >/dev/null 2>&1; then
    t_equal "nor into Python" 1 "$(LD_PRELOAD=$lib python3 -c 'print(1)' 2>&1)"
fi

# ---- a program of others ----
cat >"$dir/program.c" <<'C'
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int rank, n, bad = 0, calls = argc > 1 ? atoi(argv[1]) : 40;
    static double in[4000], out[4000];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    for (int i = 0; i < calls; i++) {
        for (int k = 0; k < 4000; k++) in[k] = k + rank + i;
        MPI_Allreduce(in, out, 4000, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int k = 0; k < 4000; k++) bad += out[k] != n * (k + i) + n * (n - 1) / 2;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) printf("%d wrong\n", bad);
    MPI_Finalize();
    return bad != 0;
}
C
OMPI_CC=${CC:-gcc} ${MPICC:-mpicc} -O1 "$dir/program.c" -o "$dir/program" || exit 2
# What it prints, also to $dir/out and $dir/err, how many warnings, and its status if that is not 0.
under() { # ranks command...
    launch "$@" >"$dir/out" 2>"$dir/err"
    status=$?
    [ $status = 0 ] && status= || status=" status $status"
    echo "$(cat "$dir/out") $(grep -c '^symm-pmpi: WARN' "$dir/err")$status"
}
served() { sed -n 's/^symm-pmpi: served: \(.*\)/\1/p' "$dir/err"; }
cat >"$dir/most.c" <<'C'
#include "report.c"
int main(void) {
    for (int c = 0; c < PMPI_CALLS; c++) {
        for (int k = 0; k < SIZES; k++) served[c][k] = UINT64_MAX / 4;
        left[c] = UINT64_MAX / 4;
    }
    pmpi_report();
}
C
OMPI_CC=${CC:-gcc} ${MPICC:-mpicc} -O1 -Impi-plugin -Iinclude "$dir/most.c" -o "$dir/most" || exit 2
t_equal "the line at exit has room for all calls, however many" "$(grep -c ^CALL \
    mpi-plugin/calls.def)" "$(SYMM_DEBUG=INFO "$dir/most" 2>&1 | tr ';' '\n' | grep -c \
    '[a-z] [0-9]\{20\} (<=1K [0-9]\{19\}, <=1M [0-9]\{19\}, >1M [0-9]\{19\}) of [0-9]\{20\}$')"
export SYMM_DEBUG=INFO
t_equal "a program under symm-run" "0 wrong 0" "$(under 2 "$run" "$dir/program")"
line="^symm-run: MPI's collectives go through $lib .*, which needs MPI$"
t_equal "symm-run says so, a line for each rank" 2 "$(grep -c "$line" "$dir/err")"
t_equal "a line at exit says what was served, behind the first 8 calls" 1 \
    "$(served | grep -c '^Allreduce 36 (<=1K 0, <=1M 36, >1M 0) of 40; Barrier .* of 40$')"
t_equal "from the first call on" "0 wrong 0" \
    "$(SYMM_PMPI_AFTER=0 SYMM_PMPI=all under 3 "$run" "$dir/program")"
t_equal "all of them" 1 "$(served | grep -c '^Allreduce 40 .*; Barrier 40 ')"
t_equal "not asked for" "0 wrong 0" "$(SYMM_PMPI=off under 2 "$run" "$dir/program")"
t_equal "it is not there" 0 "$(grep -c '^symm-pmpi' "$dir/err")"
SYMM_DEBUG=INFO launch 2 "$build/test/mp_pmpi" >"$dir/out" 2>"$dir/err"
t_equal "each call of the test of calls was served" "$(grep -c ^CALL mpi-plugin/calls.def)" \
    "$(served | tr ';' '\n' | awk '$2 > 30' | wc -l)"
SYMM_PMPI=auto launch 3 "$build/test/mp_pmpi" all_types_with_gaps any_call_after_any_other \
    made_and_freed >"$dir/out" 2>"$dir/err"
t_equal "sizes that symm serves between sizes that MPI does" "0 3" \
    "$? $(grep -c '^ok' "$dir/out")"

# Levels of threads below MPI_THREAD_MULTIPLE, which mp_pmpi asks for by itself.
for level in 0 1 2; do
    T_LEVEL=$level launch 3 "$build/test/mp_pmpi" any_call_after_any_other made_and_freed \
        mpi_goes_on_while_a_call_waits >"$dir/out" 2>"$dir/err"
    t_equal "level $level of MPI's threads" "0 3" "$? $(grep -c '^ok' "$dir/out")"
    T_LEVEL=$level launch 3 "$build/test/mp_pmpi_threads" >"$dir/out" 2>"$dir/err"
    t_equal "level $level, several threads where it allows them" "0 2 $((1 + (level < 2)))" \
        "$? $(grep -c '^ok' "$dir/out") $(grep -c 'SKIP' "$dir/out")"
done

# ---- over several domains: on one machine here; on hosts in check_hosts.sh ----
for how in "3 1" "4 2" "3 2"; do
    n=${how% *} size=${how#* }
    T_HOSTS=1 SYMM_DOMAIN_SIZE=$size launch "$n" "$build/test/mp_pmpi" >"$dir/out" 2>"$dir/err"
    t_equal "$n ranks in domains of $size, every call" "0 14 0" \
        "$? $(grep -c '^ok' "$dir/out") $(grep -c '^not ok' "$dir/out")"
    t_equal "each was served" "$(grep -c ^CALL mpi-plugin/calls.def)" \
        "$(served | tr ';' '\n' | awk '$2 > 10' | wc -l)"
done
T_HOSTS=1 SYMM_DOMAIN_SIZE=2 launch 4 "$build/test/mp_pmpi_life" >"$dir/out" 2>"$dir/err"
t_equal "communicators in the background, freed, with attributes, in domains of 2" "0 8 0" \
    "$? $(grep '^ok' "$dir/out" | grep -vc SKIP) $(grep -c '^not ok' "$dir/out")"
t_equal "a program that makes them in the background is MPI's there, and it is said why" yes \
    "$(grep -q 'hosts, and one has called MPI_Comm_idup$' "$dir/err" && echo yes)"
T_HOSTS=1 SYMM_DOMAIN_SIZE=2 launch 4 "$build/test/mp_pmpi_life" used_while_one_is_made \
    >"$dir/out" 2>"$dir/err"
t_equal "one that was served before is used meanwhile" "0 1 some" \
    "$? $(grep -c '^ok' "$dir/out") $(served | tr ';' '\n' |
        awk '/Scatterv/ { n = $2 } END { print n ? "some" : "none" }')"
T_LEVEL=2 SYMM_DOMAIN_SIZE=2 launch 4 "$build/test/mp_pmpi_threads" threads_in_turns \
    >"$dir/out" 2>"$dir/err"
t_equal "threads in turns, in domains of 2" "0 1 0 1" "$? $(grep -c '^ok' "$dir/out") $(
    grep -c SKIP "$dir/out") $(served | grep -c 'Allreduce 90 ')"
T_HOSTS=1 SYMM_PMPI=auto SYMM_DOMAIN_SIZE=2 launch 4 "$build/test/mp_pmpi" all_types_with_gaps \
    any_call_after_any_other >"$dir/out" 2>"$dir/err"
t_equal "sizes that symm serves between sizes that MPI does" "0 2" \
    "$? $(grep -c '^ok' "$dir/out")"
T_HOSTS=1 SYMM_PMPI=auto SYMM_DOMAIN_SIZE=2 launch 4 "$build/test/mp_pmpi" all_types_with_gaps \
    >"$dir/out" 2>"$dir/err"
t_equal "which sizes are served differs from those of one host" "Alltoall 0 Gather some" \
    "$(served | tr ';' '\n' | awk '/Alltoall / { all = $2 } / Gather / { some = $2 }
        END { print "Alltoall", all + 0, "Gather", some ? "some" : "none" }')"
T_HOSTS=1 SYMM_PMPI=auto SYMM_DOMAIN_SIZE=1 launch 3 "$build/test/mp_pmpi" all_types_with_gaps \
    >"$dir/out" 2>"$dir/err"
t_equal "hosts of one rank each are MPI's" "0 1 1" "$? $(grep -c '^ok' "$dir/out") $(
    grep -c 'MPI_COMM_WORLD: MPI serves it: its hosts have fewer than two ranks each$' "$dir/err")"
SYMM_DOMAIN_SIZE=0 launch 2 "$build/test/mp_pmpi" all_types_with_gaps >"$dir/out" 2>"$dir/err"
t_equal "SYMM_DOMAIN_SIZE=0 cuts nothing" "0 1 0" \
    "$? $(served | grep -c Bcast) $(grep -c 'several hosts' "$dir/err")"
SYMM_DOMAIN_SIZE=2 launch 4 "$build/test/mp_pmpi" all_types_and_ops >"$dir/out" 2>"$dir/err"
t_equal "with MPI_THREAD_MULTIPLE MPI serves all, and says why" "0 1 1" \
    "$? $(grep -c '^ok' "$dir/out") $(grep -c 'several hosts, and one has MPI_THREAD_MULTIPLE$' \
        "$dir/err")"

if command -v gfortran >/dev/null 2>&1 && command -v "${MPIFORT:-mpifort}" >/dev/null 2>&1; then
    for module in USE_MPIFH USE_MPI USE_F08; do
        "${MPIFORT:-mpifort}" -O0 -w -std=legacy -D$module tests/check/pmpi_calls.F90 \
            -o "$dir/calls" || exit 2
        for n in 2 3; do
            t_equal "a program in Fortran, $module, $n ranks" "0 wrong 0" \
                "$(SYMM_PMPI_AFTER=0 SYMM_PMPI=all under $n "$run" "$dir/calls")"
            t_equal "each call was served" "$(grep -c ^CALL mpi-plugin/calls.def)" \
                "$(served | tr ';' '\n' | awk '$2 > 30' | wc -l)"
        done
        t_equal "symm-run sees that it needs MPI" 3 "$(grep -c "$line" "$dir/err")"
    done
    # MPI's functions for Fortran come with a module of a program in C, and are not behind ours.
    OMPI_CC=${CC:-gcc} ${MPICC:-mpicc} -O1 tests/check/pmpi_loads.c -o "$dir/loads" -ldl || exit 2
    for module in USE_MPIFH USE_F08; do
        "${MPIFORT:-mpifort}" -O0 -w -D$module -fPIC -shared tests/check/pmpi_ends.F90 \
            -o "$dir/ends.so" || exit 2
        t_equal "ends of communicators and of MPI in a module in Fortran, $module" "0 wrong 0" \
            "$(SYMM_PMPI_AFTER=0 SYMM_PMPI=all under 2 "$run" "$dir/loads" "$dir/ends.so")"
        t_equal "its collectives were served, and MPI's end was noticed" 1 \
            "$(served | grep -c '^Allreduce 40 ')"
    done
else
    t_skip "programs in Fortran" "needs gfortran and mpifort"
fi
t_equal "a bad variable is named, and MPI goes on" "0 wrong 2" \
    "$(SYMM_PMPI=maybe under 2 "$run" "$dir/program")"
t_equal "with what is allowed" 2 \
    "$(grep -c 'SYMM_PMPI=maybe: must be off, auto or all$' "$dir/err")"
t_equal "a number that is none" "0 wrong 2" \
    "$(SYMM_PMPI_AFTER=4x under 2 "$run" "$dir/program")"
printf '#!/bin/sh\nSYMM_PMPI_AFTER=$OMPI_COMM_WORLD_RANK exec "$@"\n' >"$dir/differs"
chmod +x "$dir/differs"
t_equal "ranks that differ go on with MPI, and one says so" "0 wrong 1" \
    "$(under 3 "$dir/differs" "$run" "$dir/program")"
t_equal "what differs" 1 "$(grep -c 'SYMM_PMPI_AFTER differs between ranks' "$dir/err")"
t_equal "a backend that this host lacks is not looked at" "0 wrong 0" \
    "$(SYMM_BACKEND=cuda under 2 "$run" "$dir/program")"
t_equal "one rank" "0 wrong 0" "$(under 1 "$run" "$dir/program")"
cat >"$dir/late.c" <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *own = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    int (*run)(int, char **) = own ? dlsym(own, "run") : 0;
    return run ? run(argc - 1, argv + 1) : printf("%s\n", dlerror());
}
C
sed 's/int main(/int run(/' "$dir/program.c" >"$dir/plugin.c"
OMPI_CC=${CC:-gcc} ${MPICC:-mpicc} -O1 -fPIC -shared "$dir/plugin.c" -o "$dir/plugin.so" &&
    ${CC:-gcc} -O1 "$dir/late.c" -o "$dir/late" -ldl || exit 2
t_equal "MPI that is loaded later serves its calls itself" "0 wrong 2" \
    "$(under 2 env LD_PRELOAD="$lib" "$dir/late" "$dir/plugin.so")"
unset SYMM_DEBUG
t_equal "without SYMM_DEBUG it says nothing" "0 wrong 0 0" \
    "$(under 2 "$run" "$dir/program") $(grep -c '^symm-pmpi' "$dir/err")"

# ---- another MPI ----
if command -v mpirun.mpich >/dev/null 2>&1 &&
    MPICH_CC=${CC:-gcc} mpicc.mpich -O1 "$dir/program.c" -o "$dir/mpich" 2>/dev/null; then
    t_equal "MPICH serves its calls itself" "0 wrong 2" \
        "$(MPIRUN=mpirun.mpich under 2 env LD_PRELOAD="$lib" "$dir/mpich")"
    t_equal "and is named" 2 "$(grep -c 'built for Open MPI, and this is MPICH' "$dir/err")"
else
    t_skip "MPICH serves its calls itself" "needs mpich"
fi
cat >"$dir/other.c" <<'C'
#include <stdio.h>
#include "symm_mpi.h"
int main(int argc, char **argv) {
    symmComm_t comm = NULL;
    MPI_Init(&argc, &argv);
    const symmResult_t r = symmCommInitMPI(&comm, MPI_COMM_WORLD, NULL);
    puts(symmGetLastError(NULL));
    MPI_Finalize();
    return r != symmInvalidUsage || comm;
}
C
if command -v mpirun.mpich >/dev/null 2>&1 && MPICH_CC=${CC:-gcc} mpicc.mpich -O1 -Iinclude \
    "$dir/other.c" -o "$dir/other" -L"$build/lib" -lsymm-mpi -lsymm \
    -Wl,-rpath,"$PWD/$build/lib" 2>/dev/null; then
    SYMM_DEBUG=NONE MPIRUN=mpirun.mpich launch 2 "$dir/other" >"$dir/out" 2>"$dir/err"
    status=$? # of both ranks; their lines may mix
    t_equal "libsymm-mpi refuses a program for MPICH, and says so" "0 yes" "$status $(grep -q \
        'libsymm-mpi was built for Open MPI, and this program runs MPICH' "$dir/out" && echo yes)"
else
    t_skip "libsymm-mpi refuses a program for MPICH" "needs mpich"
fi
if command -v gfortran >/dev/null 2>&1 && command -v mpifort.mpich >/dev/null 2>&1; then
    mpifort.mpich -O0 -w -std=legacy -DUSE_MPIFH tests/check/pmpi_calls.F90 -o "$dir/calls" ||
        exit 2
    t_equal "and those of a program in Fortran" "0 wrong 2" \
        "$(MPIRUN=mpirun.mpich under 2 env LD_PRELOAD="$lib" "$dir/calls")"
else
    t_skip "MPICH serves the calls of a program in Fortran" "needs gfortran and mpifort.mpich"
fi
t_done
