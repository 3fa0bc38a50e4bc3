#!/bin/sh
# check_docs_code.sh - the code in docs/memory.md, and that of host kernels in docs/device-api.md,
# compiles against the public headers and runs on two ranks.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
lib=${BUILD:-build}/lib
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# Each piece becomes a function that every rank calls.
{
    for h in include/symm_*.h; do
        case $h in *_mpi.h | *_types.h) ;; *) echo "#include \"$(basename "$h")\"" ;; esac
    done
    cat <<'C'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void ok_(symmResult_t r, const char *call) {
    if (r == symmSuccess) return;
    fprintf(stderr, "%s: %s: %s\n", call, symmGetErrorString(r), symmGetLastError(NULL));
    exit(1);
}
#define ok(call) ok_((call), #call)
static void touch(void *p) { memset(p, 1, 5000); }
static void invert(void *p) {
    for (int i = 0; i < 1 << 20; i++) ((char *)p)[i] = (char)-((char *)p)[i];
}
C
    awk '/^```c$/ { print "static void piece_" ++n \
                        "(symmComm_t comm, symmStream_t stream, int rank, int nranks) {"
                    print "(void)comm, (void)stream, (void)rank, (void)nranks;"
                    print "(void)invert, (void)touch;"
                    print "#line " NR + 1 " \"docs/memory.md\""; code = 1; next }
         /^```$/ { if (code) print "}"; code = 0; next }
         code { print }
         END { print "#define PIECES " n
               printf "static void (*const pieces[])(symmComm_t, symmStream_t, int, int) = {"
               for (i = 1; i <= n; i++) printf "piece_%d, ", i; print "};" }' docs/memory.md
    cat <<'C'
static symmComm_t comms[2];
static void *drive(void *arg) {
    symmStream_t stream;
    const int rank = arg != NULL;
    ok(symmStreamCreate(&stream));
    for (int i = 0; i < PIECES; i++) pieces[i](comms[rank], stream, rank, 2);
    ok(symmStreamDestroy(stream));
    return NULL;
}
int main(void) {
    pthread_t thread;
    ok(symmCommInitAll(comms, 2, NULL));
    if (pthread_create(&thread, NULL, drive, comms)) return 1;
    drive(NULL);
    pthread_join(thread, NULL);
    for (int r = 0; r < 2; r++) ok(symmCommDestroy(comms[r]));
    printf("%d pieces\n", PIECES);
}
C
} >"$dir/all.c"
want="$(grep -c '^```c$' docs/memory.md) pieces"
built=$(${CC:-gcc} -std=gnu11 -O1 -Wall -Wextra -Werror -Iinclude "$dir/all.c" -L"$lib" -lsymm \
    -Wl,-rpath,"$(cd "$lib" && pwd)" -pthread -o "$dir/all" 2>&1)
t_empty "the code in docs/memory.md compiles" "$built"
got=$(SYMM_BACKEND=host timeout 60 "$dir/all" 2>&1)
if [ "$got" = "$want" ]; then
    t_ok "and runs on two ranks"
else
    t_fail "and runs on two ranks" "wanted '$want', got '$got'"
fi

# A file of its own, whose function every rank calls.
{
    awk '/^```c$/ { print "#line " NR + 1 " \"docs/device-api.md\""; code = 1; next }
         /^```$/ { code = 0; next }
         code { print }' docs/device-api.md
    cat <<'C'
#include <pthread.h>
#include <stdio.h>
static symmComm_t comms[2];
static int wrong[2];
static void *drive(void *arg) {
    enum { N = 1000 };
    float y[N];
    const int rank = arg != NULL;
    wrong[rank] = first_host_kernel(comms[rank], y, N) != symmSuccess;
    for (int i = 0; i < N; i++) wrong[rank] += y[i] != 2 * (float)i;
    return NULL;
}
int main(void) {
    pthread_t thread;
    if (symmCommInitAll(comms, 2, NULL) || pthread_create(&thread, NULL, drive, comms)) return 1;
    drive(NULL);
    pthread_join(thread, NULL);
    printf("%d wrong\n", wrong[0] + wrong[1]);
    return symmCommDestroy(comms[0]) || symmCommDestroy(comms[1]);
}
C
} >"$dir/host.c"
built=$(${CC:-gcc} -std=gnu11 -O1 -Wall -Wextra -Werror -Iinclude "$dir/host.c" -L"$lib" -lsymm \
    -Wl,-rpath,"$(cd "$lib" && pwd)" -pthread -o "$dir/host" 2>&1)
t_empty "the host kernel in docs/device-api.md compiles" "$built"
got=$(SYMM_BACKEND=host timeout 60 "$dir/host" 2>&1)
if [ "$got" = "0 wrong" ]; then
    t_ok "and runs on two ranks"
else
    t_fail "and runs on two ranks" "$got"
fi
t_done
