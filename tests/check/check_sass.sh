#!/bin/sh
# check_sass.sh - what nvcc made of the GPU kernels, in the machine code of each architecture of the
# build: a warp stores a line, and loads one, by one instruction, which all its lanes reach together
# because nothing that parts them lies between the vote on who is here and the store or the load
# (put_whole_warp and get_whole_warp in ptx.cuh). Two ranks' kernels store and load four lines so,
# one behind the other.
# And kernels that reduce over the multicast range let the switch do it: they have loads that
# reduce, at least one for each row that a warp has under way (multicast.cuh). Packets over the
# range (small.cuh) are halves of 8 bytes, each stored by one instruction. (Stores over the range
# are like others in machine code.)
# And what two ranks load and reduce does not wait for a look at `over` before the next loads.
# And two ranks' packets and lines load their epoch word right behind the wait for the kernel
# before: compilers like to put behind it what was written ahead of it (frame.cuh).
# Needs cuobjdump, with nvdisasm beside it: CUOBJDUMP, beside nvcc, or on PATH (where a toolkit
# lacks them: the wheels nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm).
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
build=${BUILD:-build}
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

find_tool() {
    for at in "${CUOBJDUMP:-}" "${CUDA_HOME:-/usr/local/cuda}/bin/cuobjdump" \
        "$(command -v cuobjdump 2>/dev/null)"; do
        [ -z "$at" ] || [ ! -x "$at" ] || { echo "$at" && return 0; }
    done
    return 1
}

# A site is a vote whose register is compared with all lanes, and the first store of 16 bytes that
# the comparison guards. Of loads the comparison is another one (GT -2), and several may be under
# way; a branch to behind the load, right before it, is the guard of one that stands alone. Says
# `arch function sites bad loads runs reads`, and of each bad one what is in between. runs, reads:
# sites of which four follow each other with nothing that parts lanes between them.
sites() {
    awk '
    function end_function() {
        if (f != "") print "sites", arch, f, n + 0, bad + 0, loads + 0, runs + 0, reads + 0
        for (i = 1; i <= n; i++)
            for (t in target)
                if (t > from[i] && t <= to[i]) print "bad", arch, f, "is jumped into at", t
        f = ""; n = bad = open = loads = looks = runs = reads = stored = loaded = 0
        delete target; delete from; delete to
    }
    /^[ \t]*code for sm_/ { end_function(); arch = $3 }
    /Function :/ { end_function(); f = $3; next }
    $1 !~ /^\/\*[0-9a-f][0-9a-f][0-9a-f][0-9a-f]+\*\/$/ { next }
    {
        at = substr($1, 3, length($1) - 4)
        while (length(at) < 8) at = "0" at
        guard = $2 ~ /^@/ ? $2 : ""
        op = guard == "" ? $2 : $3
        if (op ~ /^(BRA|BSSY|BRX|CALL|BREAK|JMP)/)
            for (i = 2; i <= NF && $i != "/*"; i++)
                if ($i ~ /^0x[0-9a-f]+$/ && $(i + 1) == ";") {
                    t = substr($i, 3)
                    while (length(t) < 8) t = "0" t
                    target[t] = 1
                }
        if (op ~ /^ISETP\.GT\.U32\.AND/ && $0 ~ / R[0-9]+(\.reuse)?, -0x2, /) looks++
        if (op ~ /^(BRA|BRX|CALL|RET|EXIT|BSYNC|WARPSYNC|BREAK|BAR|JMP|KILL|VOTE)/)
            stored = loaded = 0
        if (stored && guard != "" && op ~ /^STG?\.E\.128\.STRONG\.SYS/ && ++stored == 4) {
            runs++; to[n] = at; stored = 0
        }
        if (loaded && guard != "" && op ~ /^LDG?\.E\.128\.STRONG\.SYS/ && ++loaded == 4) {
            reads++; loaded = 0
        }
        # Of a line whose arrival alone matters the upper half is loaded, which may hold its flag.
        upper = op ~ /^LDG?\.E\.64\.STRONG\.SYS/ && $0 ~ /\+0x8\]/
        if (looks && (upper || op ~ /^LDG?\.E\.128\.STRONG\.SYS/)) {
            looks--; loads++; loaded = 1; jumps = ""
        } else if (jumps != "") { bad++; print "bad", arch, f, jumps; looks = 0; jumps = "" }
        if (looks && op ~ /^(BRA|BRX|CALL|RET|EXIT|BSYNC|WARPSYNC|BREAK|YIELD|BAR|JMP|KILL)/) {
            jumps = "has " op " before the load at " at
            if (looks > 1 || op != "BRA" || guard == "") {
                bad++; print "bad", arch, f, jumps
                looks = 0; jumps = ""
            }
        }
        if (op ~ /^VOTE/ && $0 ~ /VOTE\.ANY R[0-9]+, PT, PT/) {
            open = 1; began = at; held = ""
            mask = $0; sub(/.*VOTE\.ANY /, "", mask); sub(/,.*/, "", mask)
            next
        }
        if (!open) next
        if (op ~ /^ISETP\.(NE|EQ)/ && $0 ~ (" " mask ", -0x1")) {
            held = $0; sub(/.*ISETP[^ ]* /, "", held); sub(/,.*/, "", held)
            next
        }
        if (held != "" && op ~ /^STG?\.E\.128\.STRONG\.SYS/ && guard ~ ("^@!?" held "$")) {
            n++; from[n] = began; to[n] = at; open = 0; stored = 1
            next
        }
        if (op ~ /^(BRA|BRX|CALL|RET|EXIT|BSYNC|WARPSYNC|BREAK|YIELD|BAR|NANOSLEEP|JMP|KILL)/) {
            if (held != "") { bad++; print "bad", arch, f, "has", op, "before the store at", at }
            open = 0
        }
    }
    END { end_function() }' "$1"
}
# Kernels with lines: their sites; those of others must have none that are bad either.
verdict() { # report: why it is refused, or nothing
    grep '^bad' "$1"
    awk '$1 == "sites" && $3 ~ /ll128/ && !$4 { print $2, $3, "has no store of a whole warp" }
         $1 == "sites" && $3 ~ /ll128/ && !$6 { print $2, $3, "has no load of a whole warp" }
         $1 == "sites" && $3 ~ /push_ll128_(.*_)?n2$/ {
             if ($7 < 2) print $2, $3, "stores no runs"
             if (!$8) print $2, $3, "loads no runs"
         }
         $1 == "sites" { n++ } END { if (!n) print "no kernels" }' "$1"
}

# What an image's kernels lack that reduce over the multicast range; nothing where they have it.
# Types that the switch does not have have the kernels, which nothing launches.
unswitched() { # sass, image
    case $2 in i8 | u8 | e4m3 | e5m2 | move) return ;; esac
    awk '
    function end_function() {
        sm = substr(arch, 4) + 0
        if (f ~ /_multicast_packet_/ && !halves && sm >= 90)
            print arch, f, "stores no half of a packet as one"
        else if (f ~ /_multicast_/ && f !~ /_packet_/ && loads < 4 && sm >= 90)
            print arch, f, "has", loads + 0, "loads that reduce"
        n += f ~ /_multicast_/
        f = ""; loads = halves = 0
    }
    /^[ \t]*code for sm_/ { end_function(); arch = $3 }
    /Function :/ { end_function(); f = $3; next }
    f ~ /_multicast_/ && / LDG?MC\./ { loads++ }
    # Both have one address; what is stored by no other is the second.
    f ~ /_packet_/ && / STG?\.E\.64\.STRONG\.SYS .*\+0x8\]/ { halves++ }
    END { end_function(); if (!n) print "no kernels over the multicast range" }' "$1"
}

# Loops of two ranks that load what they reduce (pull.cuh): one whose stores are all of 16 bytes, in
# which no load waits for the look at `over` before it. The compiler has six counters to wait by; by
# one that the look shared with other stores such loops once lost 12 % of their time.
held() { # sass, image
    case $2 in move) return ;; esac
    awk '
    function digit(at) { return index("0123456789abcdef", substr($2, at, 1)) - 1 }
    function bit(value, n) { return int(value / 2 ^ n) % 2 }
    function end_turn() {
        if (loaded && whole && !odd) turns++
        if (loaded && whole && !odd && held) bad = held
        loaded = whole = odd = look = waited = 0
        held = ""
    }
    function end_function() {
        end_turn()
        if (f ~ /_(reduce_2hop_direct|reduce_scatter_staged|all_reduce_direct)_.*_n2$/) {
            if (bad) print arch, f, "waits for a look before it loads, at", bad
            if (!turns) print arch, f, "loads in no loop whose stores are whole"
            n++
        }
        f = bad = ""; turns = 0
    }
    /^[ \t]*code for sm_/ { end_function(); arch = $3 }
    /Function :/ { end_function(); f = $3; next }
    $1 ~ /^\/\*[0-9a-f][0-9a-f][0-9a-f][0-9a-f]+\*\/$/ {
        at = $1
        op = $2 ~ /^@/ ? $3 : $2
        next
    }
    # The second word of an instruction says with which counter it counts, and for which it waits.
    $1 == "/*" && $2 ~ /^0x[0-9a-f]+$/ && op != "" {
        counter = bit(digit(7), 2) + 2 * bit(digit(7), 3) + 4 * bit(digit(6), 0)
        waits = digit(5) + 16 * (digit(4) % 4)
        if (look && bit(waits, look - 1)) waited = 1
        if (op ~ /^LDG?\.E\.STRONG\.SYS$/) {
            end_turn()
            look = counter < 6 ? counter + 1 : 0
        } else if (op ~ /^LDG?\.E\.128\.STRONG\.SYS$/) {
            if (look && waited) held = at
            if (look) loaded = 1
            look = 0
        }
        if (op ~ /^(BRA|BRX|CALL|RET|EXIT)/) look = 0 # what follows depends on the look
        if (op ~ /^STG?\.E\.128$/) whole = 1
        if (op ~ /^STG?\.E\.U16/) odd = 1
        op = ""
    }
    END { end_function(); if (!n) print "no kernels that load" }' "$1"
}

# Kernels of two ranks in which more than a few instructions lie between that wait and the first
# load. (The wait is an instruction of sm_90 and later.)
late() { # sass
    awk '
    function end_function() {
        if (hurried && after > 24) print arch, f, "does", after, "instructions before it loads"
        if (hurried) n++
        f = ""; waits = after = hurried = done = 0
    }
    /^[ \t]*code for sm_/ { end_function(); arch = $3; sm = substr(arch, 4) + 0 }
    /Function :/ {
        end_function()
        f = $3
        hurried = sm >= 90 && f ~ /_(ll|push_ll128)_([a-z0-9]+_)?n2$/
        next
    }
    !hurried || done || $1 !~ /^\/\*[0-9a-f][0-9a-f][0-9a-f][0-9a-f]+\*\/$/ { next }
    / ACQBULK / { waits = 1; after = 0; next }
    / LDG?\.E\.STRONG\.SYS / && waits { done = 1; next }
    { after++ }
    END { end_function(); if (sm >= 90 && !n) print "no kernels of packets" }' "$1"
}

if ! ls "$build"/cuda/*.fatbin >/dev/null 2>&1; then
    t_skip "whole warps store and load lines" "needs nvcc: the build has no kernels"
elif ! tool=$(find_tool); then
    t_skip "whole warps store and load lines" \
        "needs cuobjdump (CUOBJDUMP names it; it comes with the CUDA toolkit)"
else
    archs=$(grep -o 'code=sm_[0-9a-z]*' "$build/cuda/flags" | sed 's/code=//' | sort -u)
    some="f32 move" # T_FULL=1: all
    [ -z "${T_FULL:-}" ] ||
        some=$(cd "$build/cuda" && ls ./*.fatbin | sed 's/.fatbin//; s/^..//' | grep -v user)
    for image in $(for name in $some; do echo "$build/cuda/$name.fatbin"; done); do
        name=$(basename "$image" .fatbin)
        "$tool" -sass "$image" >"$dir/$name.sass" 2>"$dir/log" ||
            { t_fail "$name" "$(cat "$dir/log")"; continue; }
        sites "$dir/$name.sass" >"$dir/$name.report"
        why=$(verdict "$dir/$name.report" && unswitched "$dir/$name.sass" "$name" &&
            held "$dir/$name.sass" "$name" && late "$dir/$name.sass")
        for arch in $archs; do
            grep -q "^sites $arch " "$dir/$name.report" || why="$why no code for $arch"
        done
        if [ -z "$why" ]; then
            t_ok "machine code of lines, of the range and of loads: $name ($(echo $archs))"
        else
            t_fail "whole warps store and load lines: $name" "$why"
        fi
    done
    # The check itself must refuse a branch before the store or the load, a jump to before the
    # store, and a store or load that is no such one.
    awk '/ISETP.*, -0x1,/ { print; sub(/ISETP.*/, "BSYNC B0 ;") } { print }' \
        "$dir/move.sass" >"$dir/branch.sass"
    awk '/VOTE\.ANY R[0-9]+, PT, PT/ { vote = $0 }
        /ISETP.*, -0x1,/ && vote {
            at = substr($1, 3, length($1) - 4); jump = vote
            sub(/VOTE.*/, "BRA 0x" at " ;", jump); print jump }
        { print }' "$dir/move.sass" >"$dir/jump.sass"
    sed 's/STG.E.128.STRONG.SYS/STG.E.64.STRONG.SYS/' "$dir/move.sass" >"$dir/halves.sass"
    awk '/ISETP.*, -0x2,/ { print; sub(/ISETP.*/, "BSYNC B0 ;") } { print }' \
        "$dir/move.sass" >"$dir/parted.sass"
    sed 's/LDG.E.128.STRONG.SYS/LDG.E.64.STRONG.SYS/' "$dir/move.sass" >"$dir/half_loads.sass"
    awk '{ print }
        /STG?\.E\.128\.STRONG\.SYS/ { sub(/(@!?P[0-9] )? *STG?\.E.*/, "BSYNC B0 ;"); print }
        ' "$dir/move.sass" >"$dir/store_by_store.sass"
    awk '{ print }
        /LDG?\.E\.128\.STRONG\.SYS/ { sub(/(@!?P[0-9] )? *LDG?\.E.*/, "BSYNC B0 ;"); print }
        ' "$dir/move.sass" >"$dir/load_by_load.sass"
    # Of each architecture, as the check goes by its number.
    sed 's/LDGMC/LDG/' "$dir/f32.sass" >"$dir/unswitched.sass"
    sed 's/STG.E.64.STRONG.SYS/STG.E.STRONG.SYS/' "$dir/f32.sass" >"$dir/parts.sass"
    sed 's/\(STG*\)\.E\.128 desc/\1.E.U16 desc/' "$dir/f32.sass" >"$dir/odd_stores.sass"
    awk '/LDG?\.E\.128\.STRONG/ { load = 1 }
        $1 == "/*" { if (load) $2 = substr($2, 1, 3) "3f" substr($2, 6); load = 0 }
        { print }' "$dir/f32.sass" >"$dir/late_loads.sass"
    # The wait where the kernel lets the next one in, which is the first thing that it does.
    sed 's/ ACQBULK / NOP /; s/ PREEXIT / ACQBULK /' "$dir/f32.sass" >"$dir/early_waits.sass"
    for doctored in unswitched parts odd_stores late_loads early_waits; do
        refuser=unswitched
        case $doctored in odd* | late*) refuser=held ;; early*) refuser=late ;; esac
        $refuser "$dir/$doctored.sass" f32 >"$dir/report"
        missed=$(for arch in $archs; do
            grep -q "^$arch " "$dir/report" || [ "${arch#sm_}" -lt 90 ] || echo "$arch"
        done)
        if [ -z "$missed" ]; then
            t_ok "$doctored: refused"
        else
            t_fail "$doctored: not refused" "the check finds nothing of" $missed
        fi
    done
    for doctored in branch jump halves parted half_loads store_by_store load_by_load; do
        sites "$dir/$doctored.sass" >"$dir/report"
        if [ -n "$(verdict "$dir/report")" ]; then
            t_ok "$doctored: refused"
        else
            t_fail "$doctored: not refused" "the check finds nothing"
        fi
    done
fi
t_done
