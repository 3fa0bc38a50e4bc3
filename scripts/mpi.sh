# shellcheck shell=sh
# mpi.sh - sourced: `launch N program args` runs N ranks on this machine. Open MPI must be told that
# root may run it and that there may be more ranks than cores. It must not wait for ssh, a resource
# manager or another host.
launch() {
    ranks=$1
    shift
    root=
    [ "$(id -u)" != 0 ] || root=--allow-run-as-root
    # shellcheck disable=SC2086 # an empty or a single word
    "${MPIRUN:-mpirun}" $root --oversubscribe -np "$ranks" "$@"
}
