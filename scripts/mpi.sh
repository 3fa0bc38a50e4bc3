# shellcheck shell=sh
# mpi.sh - sourced: `launch N program args` runs N ranks on this machine. Root must say so to Open
# MPI; more ranks than cores must be allowed; ranks that wait for ssh, a resource manager or another
# host are of no use here.
launch() {
    ranks=$1
    shift
    root=
    [ "$(id -u)" != 0 ] || root=--allow-run-as-root
    # shellcheck disable=SC2086 # an empty or a single word
    "${MPIRUN:-mpirun}" $root --oversubscribe -np "$ranks" "$@"
}
