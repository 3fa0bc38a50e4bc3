#!/bin/sh
# check_setup.sh - scripts/setup.sh on machines that lack things. A machine is a directory of
# commands: the real tools that the script may use, and impostors for apt-get, id and sudo that
# write down what they were asked.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
setup=$PWD/scripts/setup.sh
top=$(mktemp -d) || exit 2
trap 'rm -rf "$top"' EXIT

command_file() { # path body
    printf '#!/bin/sh\n%s\n' "$2" >"$1"
    chmod +x "$1"
}

# machine UID "commands that are there": a compiler command answers the header probe with success.
# What apt-get "installs" appears.
machine() {
    rm -rf "${top:?}/bin" "$top/asked"
    mkdir "$top/bin"
    for tool in sh mktemp rm tail env sleep; do ln -s "$(command -v $tool)" "$top/bin/$tool"; done
    command_file "$top/bin/id" "echo $1"
    for tool in $2; do command_file "$top/bin/$tool" 'exit 0'; done
}
apt_get() { # body run before the books are kept
    command_file "$top/bin/apt-get" "$1
echo \"\$*\" >>'$top/asked'
case \"\$*\" in *install*)
    for t in gcc make mpicc mpirun; do
        printf '#!/bin/sh\nexit 0\n' >'$top/bin/'\$t
        chmod +x '$top/bin/'\$t
    done ;;
esac"
    ln -sf "$(command -v chmod)" "$top/bin/chmod"
}
run() { # sets out, err, rc, asked
    out=$(T_FULL=${full:-0} PATH=$top/bin SETUP_RETRY_SECONDS=0 CC=gcc MPICC=mpicc MPIRUN=mpirun \
        "$top/bin/sh" "$setup" 2>"$top/err")
    rc=$?
    err=$(cat "$top/err")
    asked=$(cat "$top/asked" 2>/dev/null)
}
expect() { # name, condition...
    name=$1
    shift
    if "$@"; then
        t_ok "$name"
    else
        t_fail "$name" "exit $rc, stdout: $out, stderr: $err, apt-get: $asked"
    fi
}
lines() { printf '%s' "$1" | grep -c ''; }

machine 0 "gcc make mpicc mpirun apt-get"
run
expect "a complete machine is left alone, silently" [ "$rc$out$err$asked" = 0 ]

machine 1000 "gcc make"
run
expect "without apt-get: one line that names the packages, exit 2" \
    [ "$rc $(lines "$err") $(echo "$err" | grep -c 'openmpi-bin libopenmpi-dev')" = "2 1 1" ]

machine 1000 "gcc make"
apt_get ''
run
expect "neither root nor sudo: one line, exit 2, nothing asked" \
    [ "$rc $(lines "$err") $(echo "$err" | grep -c 'openmpi-bin libopenmpi-dev')$asked" = "2 1 1" ]

machine 0 "gcc make"
apt_get ''
run
expect "root: updates, then installs what is missing" \
    [ "$rc|$asked" = "0|-qq update
-qq -y --no-install-recommends install openmpi-bin libopenmpi-dev" ]

machine 1000 "make mpirun mpicc"
apt_get ''
command_file "$top/bin/sudo" '[ "$1" = -n ] || exit 1; shift; "$@"'
ln -s "$(command -v true)" "$top/bin/true"
run
expect "sudo without a password serves as well" \
    [ "$rc $(echo "$asked" | grep -c 'install gcc libc6-dev$')" = "0 1" ]

machine 0 "gcc make"
apt_get "[ -e '$top/second' ] || { : >'$top/second'; exit 100; }"
run
expect "a mirror's bad moment: once more" [ "$rc $(echo "$asked" | grep -c install)" = "0 1" ]

machine 0 "gcc make"
apt_get "echo 'E: no network' >&2; exit 100"
run
expect "apt-get fails: its words, then the line with the packages, exit 2" \
    [ "$rc $(echo "$err" | grep -c 'no network') $(echo "$err" | tail -n 1 |
    grep -c 'openmpi-bin libopenmpi-dev')" = "2 1 1" ]

# ---- what only the long check uses ----
full=1
arm='gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user'
machine 0 "gcc make mpicc mpirun"
command_file "$top/bin/uname" 'echo x86_64'
apt_get ''
run
expect "the long check asks for a cross compiler and qemu, the only ones" \
    [ "$rc|$err|$asked" = "0||-qq update
-qq -y --no-install-recommends install $arm" ]

machine 1000 "gcc make mpicc mpirun"
command_file "$top/bin/uname" 'echo x86_64'
run
expect "it goes on without them, and says what that costs" \
    [ "$rc $(lines "$err") $(echo "$err" |
    grep -c "on ARM will be skipped without $arm (there is no apt-get")" = "0 1 1" ]

machine 0 "gcc make mpicc mpirun"
command_file "$top/bin/uname" 'echo aarch64'
apt_get ''
run
expect "a machine that is one needs none" [ "$rc$out$err$asked" = 0 ]

machine 0 "gcc make mpicc mpirun aarch64-linux-gnu-gcc qemu-aarch64"
command_file "$top/bin/uname" 'echo x86_64'
run
expect "what is there is not asked for" [ "$rc$out$err$asked" = 0 ]
t_done
