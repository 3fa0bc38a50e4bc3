#!/bin/sh
# check_descriptors.sh - no call of the library makes or receives a descriptor that may be 0, 1 or
# 2: each stands in symm_fd_above(), or asks the kernel for 3 and more.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh

# Statements of a file, one a line, without comments and preprocessor lines.
statements() {
    sed -e 's#//.*##' -e 's/^[[:space:]]*\#.*//' "$1" | tr '\n' ' ' |
        sed -e 's#/\*\([^*]\|\*[^/]\)*\*/# #g' -e 's/[;{}]/&\n/g' | tr -s ' '
}
# Calls, by name, that give a descriptor. -fd(...): what the file makes of that name itself is none.
# Not dup3: its caller says which number.
makers='socket|accept4?|open|openat|creat|dup|eventfd|memfd_create|timerfd_create|epoll_create1?|signalfd|inotify_init1?|mkstemp|mkostemp|userfaultfd|fanotify_init|SYS_[a-z_]*open[a-z_0-9]*'
bare() { # file
    statements "$1" | grep -E "(^|[^A-Za-z0-9_])(($makers) ?\(|SYS_[a-z_]*open)" |
        grep -vE 'symm_fd_above ?\(' | grep -vE '^ ?(static |extern )?[a-z_]+ \*?(socket|open)\(' |
        sed "s#^#$1:#"
}
sources() { find "$1" -type f \( -name '*.c' -o -name '*.h' -o -name '*.inl' \) | sort; }

t_empty "what makes a descriptor stands in symm_fd_above()" \
    "$(for f in $(sources src); do bare "$f"; done)"
# Those that make two, or a stream: there is no one number to move.
others='pipe2?|socketpair|fopen|freopen|opendir|popen|tmpfile|dup2'
t_empty "no pipe, socketpair, fopen, opendir or popen" "$(for f in $(sources src); do
    statements "$f" |
        grep -E "(^|[^A-Za-z0-9_])($others) ?\(" |
        sed "s#^#$f:#"
done)"
t_empty "copies are asked for beyond stdio" \
    "$(grep -rnE 'F_DUPFD(_CLOEXEC)?,' src | grep -v 'F_DUPFD_CLOEXEC, 3)')"
t_empty "what comes in messages is moved" \
    "$(grep -rlE 'SCM_RIGHTS' src | xargs grep -L 'symm_fd_above(fd)')"
t_empty "CUDA's are moved" "$(for f in $(grep -rl 'symm_cu.cuMemExportToShareableHandle(' src); do
    exports=$(grep 'symm_cu.cuMemExportToShareableHandle(' "$f" |
        grep -vc 'SYMM_CUDA_HANDLE_FABRIC, 0)') # those are bytes
    moves=$(grep -cE 'symm_fd_above\((got|fd)\)' "$f")
    [ "$exports" = "$moves" ] || echo "$f: $exports exports, $moves moved"
done)"

# The check itself: it finds what it is there for.
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
cat >"$dir/a.c" <<'C'
/* socket(1) in a comment */
int f(void) {
    int fd = FAIL(x, -1,
                  socket(AF_UNIX, 0, 0));
    return symm_fd_above(open("/", 0)), fd;
}
C
found=$(bare "$dir/a.c" | grep -c 'socket(AF_UNIX')
all=$(bare "$dir/a.c" | grep -c .)
if [ "$found $all" = "1 1" ]; then
    t_ok "a bare call is found"
else
    t_fail "a bare call is found" "$(bare "$dir/a.c")"
fi
t_done
