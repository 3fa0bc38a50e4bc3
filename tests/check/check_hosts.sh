#!/bin/bash
# check_hosts.sh - communicators over several hosts: namespaces of this machine with Open MPI's TCP
# between them (tests/hosts.sh). The collectives, who is where, errors: tests/mp/mp_across.c.
# Messages, communicators made from one: mp_p2p.c, mp_across_child.c. MPI programs that nobody
# changed: mp_pmpi.c, mp_pmpi_life.c. Hosts whose ranks all die: mp_across_death.c.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
build=${BUILD:-build}
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
unset SYMM_DOMAIN_SIZE SYMM_DEBUG
export T_HOSTS=1
if [ ! -e "$build/test/mp_across" ]; then
    t_skip "several hosts" "needs mpi: $build/test/mp_across is not built"
    t_done
fi
tests/hosts.sh 1,1 true >"$dir/log" 2>&1
rc=$?
if [ $rc -ne 0 ]; then
    t_skip "several hosts" "no namespaces or no launcher over them: $(tail -n 1 "$dir/log")"
    t_done
fi

# hosts, layout, program, tests
on_hosts() {
    hosts=$1
    export LAYOUT=$2
    program=$3
    shift 3
    # Open MPI 4.1 may fail to connect processes on a busy machine, and says so: once more then.
    for try in 1 2; do
        timeout 300 tests/hosts.sh "$hosts" "$build/test/$program" "$@" >"$dir/log" 2>&1
        rc=$?
        # Whose ranks die is not connected to either, and the test has passed then.
        grep -q 'Open MPI failed to TCP connect' "$dir/log" && [ $rc -ne 0 ] || break
        echo "# $hosts, $LAYOUT, $program: Open MPI failed to connect ($try)"
    done
    t_of "hosts of $hosts ranks, $LAYOUT" "$dir/log" $rc
}
on_hosts 2,2 block mp_across
some='matrix matrix_in_rank_order ranks_are_where_they_say large_messages'
on_hosts 1,2 cyclic mp_across $some
on_hosts 1,1,2 cyclic mp_across $some
for program in mp_p2p mp_across_child mp_pmpi mp_pmpi_life; do
    [ -e "$build/test/$program" ] || continue # mp_pmpi* are for Open MPI alone
    on_hosts 2,2 block $program
    on_hosts 1,1,2 cyclic $program
done
export OMPI_MCA_orte_enable_recovery=1
on_hosts 2,2 block mp_across_death a_death_ends_the_calls_of_all
on_hosts 1,1,2 block mp_across_death a_domain_of_two_dies
t_done
