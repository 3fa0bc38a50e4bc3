# shellcheck shell=sh
# mpi.sh - sourced: `launch N program args` runs N ranks on this machine. Open MPI must be told that
# root may run it and that there may be more ranks than cores; MPICH's knows neither flag. It must
# not wait for ssh, a resource manager or another host.
launch() {
    ranks=$1
    shift
    flags=--oversubscribe
    [ "$(id -u)" != 0 ] || flags="$flags --allow-run-as-root"
    case ${MPIRUN:-mpirun} in *mpich) flags= ;; esac
    # shellcheck disable=SC2086 # words
    "${MPIRUN:-mpirun}" $flags -np "$ranks" "$@"
}
