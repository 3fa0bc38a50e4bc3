#!/bin/sh
# setup.sh - makes the machine able to build and test: a C compiler, make and Open MPI. Silent, and without effect, where all is
# there. What is missing comes from apt-get, as root or through `sudo -n`; where neither works, one line names the packages and
# the exit code is 2.
set -u
export DEBIAN_FRONTEND=noninteractive

# Whether a compiler or wrapper really finds a header: the command alone may be there without them.
compiles() { # command header
    printf '#include <%s>\n' "$2" | $1 -x c -E - >/dev/null 2>&1
}

missing_packages() {
    case ${CC:-gcc} in *clang*) compiler=clang ;; *) compiler=gcc ;; esac
    compiles "${CC:-gcc}" stdio.h || printf '%s libc6-dev ' "$compiler"
    command -v make >/dev/null 2>&1 || printf 'make '
    command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1 || printf 'openmpi-bin '
    compiles "${MPICC:-mpicc}" mpi.h || printf 'libopenmpi-dev '
}

packages=$(missing_packages)
[ -n "$packages" ] || exit 0
packages=${packages% }

refuse() {
    echo "symm: cannot continue without these packages: $packages ($1); install them, for example: apt-get install $packages" >&2
    exit 2
}

command -v apt-get >/dev/null 2>&1 || refuse "there is no apt-get to install them with"
if [ "$(id -u)" = 0 ]; then
    as_root=
elif sudo -n true >/dev/null 2>&1; then
    as_root='sudo -n env DEBIAN_FRONTEND=noninteractive'
else
    refuse "not root, and sudo asks for a password"
fi

# A package list from last month names versions that the mirror dropped: update first. Mirrors have bad moments: once more.
attempt() {
    $as_root apt-get -qq update && $as_root apt-get -qq -y --no-install-recommends install $packages
}

echo "symm: installing $packages"
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
if ! attempt >"$log" 2>&1; then
    sleep "${SETUP_RETRY_SECONDS:-5}"
    attempt >"$log" 2>&1 || { tail -n 20 "$log" >&2; refuse "apt-get failed twice, its last words are above"; }
fi

packages=$(missing_packages)
packages=${packages% }
[ -z "$packages" ] || refuse "apt-get has run, but they still do not work"
