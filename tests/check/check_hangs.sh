#!/bin/sh
# check_hangs.sh - the program of docs/hangs.md runs and shows what the page says, by time, by
# signal and by SYMM_TIMEOUT; and the page's stages are the library's.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
lib=${BUILD:-build}/lib
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# run NAME SIGNAL_AFTER ENV...: what it prints goes to NAME.out
run() {
    name=$1 after=$2
    shift 2
    env SYMM_BACKEND=host "$@" "$dir/hang" >"$dir/$name.out" 2>"$dir/$name.err" &
    pid=$!
    [ "$after" = never ] || { sleep "$after" && kill -USR1 $pid; }
    wait $pid
}
shows() { # NAME TEXT...: all of them stand in what it printed
    name=$1
    shift
    for text; do
        grep -qF -- "$text" "$dir/$name.out" || echo "not shown: $text"
    done
}
dumps() { grep -c '^communicator ' "$dir/$1.out"; }

awk '/^```c$/ { code = 1; next } /^```$/ { code = 0 } code' docs/hangs.md >"$dir/hang.c"
built=$(${CC:-gcc} -std=gnu11 -O1 -Wall -Wextra -Werror -Iinclude "$dir/hang.c" -L"$lib" -lsymm \
    -Wl,-rpath,"$(cd "$lib" && pwd)" -pthread -o "$dir/hang" 2>&1)
t_empty "the program of docs/hangs.md compiles" "$built"
if [ -x "$dir/hang" ]; then
    run time never &
    run signal 1 &
    run limit never SYMM_TIMEOUT=700 &
    wait # they sleep most of the time
    t_empty "a watchdog dumps and revokes after two seconds without progress" "$(
        shows time 'collectives finished 3' 'has issued 4 collectives' \
            'has issued 3 collectives, the last symmAllReduce of 100 float32 (sum)'
        for r in 0 1; do
            grep -i "^rank $r: .*revoke" "$dir/time.out" >/dev/null || cat "$dir/time.out"
        done
    )"
    t_empty "and at a signal" "$([ "$(dumps signal)" -gt 1 ] || cat "$dir/signal.out")"
    # The page breaks that line.
    wanted='rank 1 did not come before a deadline (SYMM_TIMEOUT; in set-up SYMM_SETUP_TIMEOUT);'
    wanted="$wanted it has issued 3 collectives, the last symmAllReduce of 100 float32 (sum)"
    wanted="$wanted (collective 4, waiting for a packet)"
    t_empty "a limit names the late rank, its last call and the stage" "$(shows limit "$wanted")"
    t_empty "as the page quotes it" \
        "$(tr '\n' ' ' <docs/hangs.md | grep -qF "$wanted" || echo "not in the page: $wanted")"
else
    t_fail "the program runs" "it is not there"
fi
awk '/^const char \*symm_stage_name/,/^}/' src/host/comm/revoke.c | grep -o '"[^"?]*"' |
    tr -d '"' | sort >"$dir/stages"
awk '/^\| stage of a collective/ { on = 1; next } on && /^\| stage of set-up/ { on = 0 }
    on && /^\| [a-z]/ { split($0, f, "|"); gsub(/^ | $/, "", f[2]); print f[2] }' docs/hangs.md |
    sort >"$dir/told"
t_empty "the page has the library's stages" "$(diff "$dir/stages" "$dir/told")"
t_done
