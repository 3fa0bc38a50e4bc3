#!/bin/sh
# setup.sh - installs what building and testing need: a C compiler, make and Open MPI.
#   - If nothing is missing, it is silent and changes nothing.
#   - Packages come from apt-get, as root or through `sudo -n`. If neither works, one line names the
#     packages and the exit code is 2.
#   - The long check (T_FULL=1) also wants a cross compiler and qemu for ARM. It goes on without.
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

# What only the long check uses (T_FULL=1): without it some tests are skipped, so it is asked for
# once and may be missing.
extra_packages() {
    [ "${T_FULL:-0}" != 0 ] && [ "$(uname -m)" != aarch64 ] || return 0
    compiles aarch64-linux-gnu-gcc stdio.h || printf 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross '
    command -v qemu-aarch64 >/dev/null 2>&1 || printf 'qemu-user '
}

packages=$(missing_packages)
packages=${packages% }
extra=$(extra_packages)
extra=${extra% }
[ -n "$packages$extra" ] || exit 0

refuse() {
    echo "symm: cannot continue without these packages: $packages ($1);" \
        "install them, for example: apt-get install $packages" >&2
    exit 2
}

# How apt-get is called; 1: not at all, for the reason in why.
become_root() {
    why="there is no apt-get to install them with"
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root=
    [ "$(id -u)" != 0 ] || return 0
    as_root='sudo -n env DEBIAN_FRONTEND=noninteractive'
    why="not root, and sudo asks for a password"
    sudo -n true >/dev/null 2>&1
}

# A package list from last month names versions that the mirror dropped: update first. Mirrors have
# bad moments: once more.
attempt() {
    $as_root apt-get -qq update && $as_root apt-get -qq -y --no-install-recommends install "$@"
}
install() {
    why="apt-get failed twice, its last words are above"
    echo "symm: installing $*"
    attempt "$@" >"$log" 2>&1 && return 0
    sleep "${SETUP_RETRY_SECONDS:-5}"
    attempt "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2 && return 1; }
}

log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT
if [ -n "$packages" ]; then
    { become_root && install $packages; } || refuse "$why"
    packages=$(missing_packages)
    packages=${packages% }
    [ -z "$packages" ] || refuse "apt-get has run, but they still do not work"
fi
if [ -n "$extra" ]; then
    { become_root && install $extra; } ||
        echo "symm: the tests on ARM will be skipped without $extra ($why)" >&2
fi
