#!/bin/bash
# check_nccl.sh - the drop-in for NCCL from outside: what it exports, its declarations beside an
# nccl.h, how loaders find it, that it is inert where nobody uses it, the real NCCL that it finds,
# symm-run, and a client in Python. A conformance program is tests/mp/mp_nccl.c.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
build=${BUILD:-build} cc=${CC:-gcc}
lib=$PWD/$build/lib/nccl/libnccl.so.2 run=$build/bin/symm-run
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
export SYMM_BACKEND=host OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"
unset SYMM_NCCL SYMM_NCCL_FORWARD SYMM_NCCL_LIB SYMM_NCCL_VERSION
shown() { cat "$dir/err" 2>/dev/null; }
[ -e "$lib" ] || { t_fail "the library is built" "$lib is not there"; t_done; }

# ---- symbols ----
# Lines `name class` of the table.
printf '%s\n' '#define SYMBOL(class, ret, name, params, args, why) name class' \
    '#include "symbols.def"' | $cc -E -P -Inccl-tests-plugin - >"$dir/table"
awk '!/^#/ { print $1 }' tests/check/nccl_symbols.txt | sort >"$dir/names"
awk '{ print $1 }' "$dir/table" | sort >"$dir/rows"
t_empty "the table has the symbols of both versions, and no others" \
    "$(diff "$dir/names" "$dir/rows")"
t_empty "each symbol once" "$(uniq -d "$dir/rows")"
sed 's/.*/&\np&/' "$dir/names" | sort >"$dir/want"
nm -D --defined-only "$lib" | awk '{ print $3 }' | sort >"$dir/have"
t_empty "the library shows them under both names, without versions, and nothing else" \
    "$(diff "$dir/want" "$dir/have")"
t_equal "its SONAME" "[libnccl.so.2]" "$(readelf -d "$lib" | awk '/SONAME/ { print $NF }')"
t_empty "it binds its own calls to itself" \
    "$(readelf -d "$lib" | grep -q SYMBOLIC || echo 'no -Bsymbolic')"
t_empty "it needs no MPI and nothing of CUDA" \
    "$(readelf -d "$lib" | awk '/NEEDED/ { print $NF }' | grep -E 'mpi|cuda|nccl|symm')"
t_empty "the plug-in includes include/ and itself only" "$(
    grep -hoE '^ *# *include *"[^"]*"' nccl-tests-plugin/*.[ch] | sed 's/.*"\(.*\)"/\1/' | sort -u |
        while read -r name; do
            [ -e "nccl-tests-plugin/$name" ] || [ -e "include/$name" ] || echo "$name"
        done)"

# ---- declarations, beside each nccl.h that there is ----
mkdir "$dir/stubs"
cat >"$dir/stubs/cuda_runtime.h" <<'C'
#include <stddef.h>
#define CUDART_VERSION 13000
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
C
: >"$dir/stubs/cuda_fp16.h"
echo '#define __CUDA_BF16_TYPES_EXIST__ 1' >"$dir/stubs/cuda_bf16.h" # older nccl.h ask for it
headers() {
    {
        for d in ${NCCL_HOME:+"$NCCL_HOME/include"} /usr/include /usr/local/include \
            /usr/local/cuda*/include; do
            echo "$d/nccl.h"
        done
        python3 -c 'import sys; [print(p + "/nvidia/nccl/include/nccl.h") for p in sys.path if p]' \
            2>/dev/null
    } | while read -r f; do [ -e "$f" ] && realpath "$f"; done | sort -u
}
# Each row that the header has, as an assertion. header
assertions() {
    printf '%s\n' '#define SYMBOL(class, ret, name, params, args, why) name ret (*) params' \
        '#include "symbols.def"' | $cc -E -P -Inccl-tests-plugin - |
        while read -r name type; do
            grep -qw "$name" "$1" || continue
            echo "_Static_assert(__builtin_types_compatible_p(__typeof__(&$name), $type),"
            echo "               \"$name\");"
        done
}
# Where the fields are that the header has. header, what declares them
offsets() {
    echo '#include <stddef.h>'
    echo '#include <stdio.h>'
    echo "#include \"$2\""
    echo 'int main(void) {'
    for r in ncclConfig_t:size ncclConfig_t:magic ncclConfig_t:version ncclSimInfo_t:estimatedTime \
        $(sed -nE 's/^CONFIG_[A-Z]+\((\w+),.*/ncclConfig_t:\1/p' nccl-tests-plugin/config.def) \
        ncclCollConfig_t:ext ncclCollConfig_t:minCTAs ncclCollConfig_t:algSelection \
        ncclCollConfig_t:userProfilerTag ncclCollConfig_t:launchCompletionEvent; do
        grep -qw "${r%:*}" "$1" && grep -qw "${r#*:}" "$1" &&
            echo "printf(\"$r %zu\\n\", offsetof(${r%:*}, ${r#*:}));"
    done
    for v in ncclRemoteError ncclInProgress ncclFloat64 ncclBfloat16 ncclAvg ncclNumOps \
        ncclMaxRedOp ncclScalarHostImmediate NCCL_SPLIT_NOCOLOR NCCL_CONFIG_UNDEF_INT; do
        echo "printf(\"$v %d\\n\", (int)$v);"
    done
    echo 'return 0; }'
}
compare_header() { # header
    local inc version
    inc=$(dirname "$1")
    version=$(awk '$2 == "NCCL_VERSION_CODE" { print $3 }' "$1")
    printf '#include "%s"\ntypedef const char *nccl_text;\n' "$1" >"$dir/rows.c"
    assertions "$1" >>"$dir/rows.c"
    t_empty "prototypes are those of nccl.h $version ($(grep -c assert "$dir/rows.c"))" \
        "$($cc -w -fsyntax-only -DNCCL_OS_LINUX -I"$dir/stubs" -I"$inc" "$dir/rows.c" 2>&1)"
    offsets "$1" "$1" >"$dir/theirs.c"
    offsets "$1" abi.h >"$dir/ours.c"
    $cc -w -I"$dir/stubs" -I"$inc" "$dir/theirs.c" -o "$dir/theirs" 2>"$dir/err" &&
        $cc -Iinclude -Inccl-tests-plugin "$dir/ours.c" -o "$dir/ours" 2>>"$dir/err"
    t_empty "records and values are those of nccl.h $version" \
        "$(diff <("$dir/theirs") <("$dir/ours") 2>&1; shown)"
    conforms "$1" "$version"
    reads_windows "$inc" "$version"
    compare_properties "$inc" "$version"
}
# The conformance program, compiled with that header, under mpirun.
conforms() { # header version
    local obj=$build/obj-test/tests
    if [ ! -e "$build/test/mp_nccl" ]; then
        t_skip "a program compiled with nccl.h $2" "needs mpi"
        return
    fi
    if ! grep -q ncclCommWindowRegister "$1"; then
        t_skip "a program compiled with nccl.h $2" "it has no windows: needs nccl.h 22703"
        return
    fi
    OMPI_CC="$cc" MPICH_CC="$cc" ${MPICC:-mpicc} -std=gnu11 -w -DNCCL_TEST_HEADER -Iinclude \
        -Itests/kit -I"$dir/stubs" -I"$(dirname "$1")" tests/mp/mp_nccl.c "$obj/t.o" \
        "$obj/parts.a" "$lib" "$build/obj-test/libsymm.a" "$build/test/libsymm-images.so" \
        -Wl,-rpath,"$(dirname "$lib")" -Wl,-rpath,"$PWD/$build/test" -pthread -ldl -lrt -lm \
        -o "$dir/conform" 2>"$dir/err"
    if [ ! -e "$dir/conform" ]; then
        t_fail "a program compiled with nccl.h $2" "$(shown)"
        return
    fi
    timeout $((120 * ${T_SLOW:-1})) sh -c '. scripts/mpi.sh; launch "$@"' - 2 "$dir/conform" \
        >"$dir/out" 2>"$dir/err"
    t_equal "a program compiled with nccl.h $2 runs, on 2 ranks" \
        "$("$build/test/mp_nccl" -l | wc -l) 0" \
        "$(grep -c '^ok ' "$dir/out") $(grep -c '^not ok' "$dir/out")"
    rm "$dir/conform"
}
# NCCL's own device code, which reads a window's handle: its text, compiled for the host, over a
# record of the drop-in's. folder with nccl_device/, version
reads_windows() {
    local types=$1/nccl_device/impl/core__types.h code=$1/nccl_device/impl/core__funcs.h
    local cxx=${CXX:-g++}
    local name="device code of $2 reads the handle of a window"
    if [ ! -e "$code" ] || ! command -v "$cxx" >/dev/null; then
        t_skip "$name" "needs nccl_device/ (NCCL 2.28), and a C++ compiler"
        return
    fi
    {
        cat <<'CC'
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define NCCL_DEVICE_INLINE static inline
namespace nccl { namespace utility {
template <typename T> T loadConst(T const *p) { return *p; }
template <typename T> T add4G(T base, int delta) {
    return (T)((uint64_t)base + ((uint64_t)(uint32_t)delta << 32));
}
}}
namespace ours {
CC
        awk '/^struct ncclWindow_vidmem \{/, /^\};/' nccl-tests-plugin/abi.h
        echo '}'
        # As far as the functions go.
        awk '/^struct ncclWindow_vidmem \{/ { on = 1 }
            on { print }
            /mcOffset4K;/ { on = 0 }' "$types"
        echo '}; typedef ncclWindow_vidmem *ncclWindow_t;'
        awk '/ ncclGet(Lsa|Peer)Pointer\(ncclWindow_t w, size_t offset, int peer\)/, /^\}/' "$code"
        cat <<'CC'
int main() {
    /* Rank 3 of its team, 5 of all; parts lie 2 x 4 GB apart. */
    static ours::ncclWindow_vidmem mine = {};
    static ncclWindow_vidmem theirs;
    mine.lsaFlatBase = (char *)0x70010000;
    mine.lsaRank = 3;
    mine.worldRank = 5;
    mine.stride4G = 2;
    memcpy((void *)&theirs, (void *)&mine, sizeof theirs);
    printf("%p %p\n", ncclGetLsaPointer(&theirs, 0x24, 4), ncclGetPeerPointer(&theirs, 0x24, 4));
}
CC
    } >"$dir/device.cc"
    "$cxx" -w "$dir/device.cc" -o "$dir/device" 2>"$dir/err"
    t_expect "$name" "0x870010024 0x470010024" "$("$dir/device"; shown)"
    rm -f "$dir/device"
}
# The record that tells what a communicator has, which nccl.h has in a header of device code.
compare_properties() { # folder with nccl_device/, version
    local core=$1/nccl_device/core.h fields
    grep -q '^struct ncclCommProperties {' "$core" 2>/dev/null || return 0 # before 2.29
    fields=$(awk '/^struct ncclCommProperties \{/, /^\};/' "$core" |
        sed -nE 's/^ *(unsigned )?\w+ (\w+);$/\2/p')
    printed() {
        echo '#include <stddef.h>
#include <stdio.h>
#include <stdbool.h>'
        cat
        echo 'int main(void) {'
        for f in $fields; do
            echo "printf(\"$f %zu\\n\", offsetof(struct ncclCommProperties, $f));"
        done
        echo 'printf("%zu\n", sizeof(struct ncclCommProperties)); return 0; }'
    }
    {
        echo 'typedef int ncclGinType_t;'
        awk '/^struct ncclCommProperties \{/, /^\};/' "$core"
    } | printed >"$dir/theirs.c"
    echo '#include "abi.h"' | printed >"$dir/ours.c"
    $cc "$dir/theirs.c" -o "$dir/theirs" 2>"$dir/err" &&
        $cc -Iinclude -Inccl-tests-plugin "$dir/ours.c" -o "$dir/ours" 2>>"$dir/err"
    t_empty "what a communicator has is told as $2 declares it ($(echo "$fields" | wc -w) fields)" \
        "$(diff <("$dir/theirs") <("$dir/ours") 2>&1; shown)"
}
if [ -z "$(headers)" ]; then
    t_skip "declarations are those of nccl.h" "needs nccl.h (NCCL_HOME says where)"
fi
for h in $(headers); do compare_header "$h"; done

# ---- loaders ----
says() { # name, what it must print, command...
    local name=$1 want=$2 got
    shift 2
    got=$(timeout $((60 * ${T_SLOW:-1})) "$@" 2>"$dir/err" || echo "exit status $?")
    t_expect "$name" "$want" "$got"
}
mkdir "$dir/new" "$dir/old"
made() { # folder, version, flags...
    local to=$1 version=$2
    shift 2
    $cc -shared -fPIC -DVERSION="$version" "$@" -Wl,-soname,libnccl.so.2 tests/fake/nccl_real.c \
        -o "$to/libnccl.so.2" 2>>"$dir/err"
}
made "$dir/new" 23007 -DPARAMS && made "$dir/old" 22005 &&
    $cc tests/fake/nccl_program.c "$dir/new/libnccl.so.2" -ldl -Wl,--disable-new-dtags \
        -Wl,-rpath,"$dir/new" -o "$dir/rpath" 2>>"$dir/err" &&
    $cc tests/fake/nccl_program.c "$dir/new/libnccl.so.2" -ldl -o "$dir/plain" 2>>"$dir/err" &&
    $cc -DOPENS tests/fake/nccl_program.c -ldl -o "$dir/opens" 2>>"$dir/err" ||
    t_fail "programs for the loader build" "$(shown)"
path=$(dirname "$lib")
says "without us the program meets its own" 23007 "$dir/rpath"
says "LD_LIBRARY_PATH" 22809 env LD_LIBRARY_PATH="$path" "$dir/plain"
says "LD_LIBRARY_PATH does not beat DT_RPATH, as PyTorch has" 23007 \
    env LD_LIBRARY_PATH="$path" "$dir/rpath"
says "LD_PRELOAD does" 22809 env LD_PRELOAD="$lib" "$dir/rpath"
says "opened by its name, preloaded" 22809 env LD_PRELOAD="$lib" "$dir/opens" libnccl.so.2
says "opened by its path, RTLD_LOCAL" 22809 "$dir/opens" "$lib"
says "SYMM_NCCL_VERSION" 22304 env SYMM_NCCL_VERSION=22304 "$dir/opens" "$lib"
says "a bad SYMM_NCCL_VERSION" "exit status 1" env SYMM_NCCL_VERSION=2.3 "$dir/opens" "$lib"
t_equal "which says what is allowed" 1 "$(shown | grep -c 'SYMM_NCCL_VERSION=2.3: must be a whole')"

# ---- a real NCCL ----
key=NCCL_X
says "a real NCCL by SYMM_NCCL_LIB: its version, its calls" "23007
0 $key of 23007" env SYMM_NCCL_LIB="$dir/new/libnccl.so.2" "$dir/opens" "$lib" $key
says "preloaded too, and it calls itself, not us" "23007
0 $key of 23007" env LD_PRELOAD="$lib" SYMM_NCCL_LIB="$dir/new/libnccl.so.2" "$dir/rpath" - $key
says "one that is loaded already" "22809
0 $key of 23007" "$dir/opens" "$lib" $key "$dir/new/libnccl.so.2"
mkdir -p "$dir/site/torch/lib" "$dir/site/nvidia/nccl/lib"
cp "$dir/new/libnccl.so.2" "$dir/site/nvidia/nccl/lib"
echo 'int torch;' | $cc -shared -fPIC -x c - -o "$dir/site/torch/lib/libtorch_cuda.so"
says "one beside libtorch" "22809
0 $key of 23007" "$dir/opens" "$lib" $key "$dir/site/torch/lib/libtorch_cuda.so"
says "one on the library path, never ourselves" "22809
0 $key of 23007" env LD_LIBRARY_PATH="$path:$dir/new" "$dir/opens" "$lib" $key
for kind in DT_RPATH:--disable-new-dtags DT_RUNPATH:--enable-new-dtags; do
    $cc -DOPENS tests/fake/nccl_program.c -ldl -Wl,"${kind#*:}" -Wl,-rpath,"$dir/new" \
        -o "$dir/paths" 2>"$dir/err" || t_fail "a program with ${kind%:*} builds" "$(shown)"
    says "one on the program's ${kind%:*}, though by its name the loader finds us" "22809
0 $key of 23007" env LD_PRELOAD="$lib" "$dir/paths" "$lib" $key
done
says "an older one that lacks a call" "22005
5 ncclParamGetParameter is a call of NCCL's own: $dir/old/libnccl.so.2 has no \
pncclParamGetParameter" env SYMM_NCCL_LIB="$dir/old/libnccl.so.2" "$dir/opens" "$lib" $key
none="ncclParamGetParameter is a call of NCCL's own"
says "ourselves" "22809
5 $none: SYMM_NCCL_LIB=$lib: it is symm itself, or no NCCL" \
    env SYMM_NCCL_LIB="$lib" "$dir/opens" "$lib" $key
cp "$lib" "$dir/copy.so"
says "another copy of us: no circle" "22809
5 $none: SYMM_NCCL_LIB=$dir/copy.so: it is symm itself, or no NCCL" \
    env SYMM_NCCL_LIB="$dir/copy.so" "$dir/opens" "$lib" $key
t_equal "and the log says why" 1 "$(shown | grep -c 'copy.so: it is symm itself, or no NCCL')"
echo junk >"$dir/broken.so"
got=$(SYMM_NCCL_LIB=$dir/broken.so "$dir/opens" "$lib" $key 2>/dev/null)
t_equal "one that is broken is named" 1 \
    "$(echo "$got" | grep -c "^5 $none: SYMM_NCCL_LIB=$dir/broken.so: .*broken.so")"
if ! ls /usr/lib/libnccl.so.2 /usr/local/cuda/lib*/libnccl.so.2 >/dev/null 2>&1 &&
    ! ldconfig -p 2>/dev/null | grep -q libnccl; then
    says "none" "22809
5 $none: no real NCCL is loaded, beside libtorch or on the library path (SYMM_NCCL_LIB names one)" \
        "$dir/opens" "$lib" $key
fi

# ---- inert ----
quiet() { # name, command...
    local name=$1
    shift
    "$@" >"$dir/plain.out" 2>"$dir/plain.err"
    local without=$?
    LD_PRELOAD=$lib SYMM_DEBUG=TRACE "$@" >"$dir/out" 2>"$dir/err"
    t_expect "preloaded into $name nothing changes" "$without" $?
    t_empty "nor what it prints" \
        "$(diff "$dir/plain.out" "$dir/out"; diff "$dir/plain.err" "$dir/err")"
}
quiet "ls" ls -d / tests
quiet "sh" sh -c 'echo x; exit 3'
command -v python3 >/dev/null && quiet "python3" python3 -c pass
if command -v "${MPIRUN:-mpirun}" >/dev/null; then
    quiet "mpirun" sh -c '. scripts/mpi.sh; launch 1 true'
else
    t_skip "preloaded into mpirun nothing changes" "needs mpi"
fi

# ---- symm-run ----
says "symm-run puts us into a program" 22809 "$run" "$dir/rpath"
t_equal "and says what it found in a line" "1 1" \
    "$(shown | wc -l) $(shown | grep -c "^symm-run: NCCL is $lib .*, which needs libnccl.so.2$")"
says "what others open by a path" "$lib $lib" \
    "$run" sh -c 'echo $VLLM_NCCL_SO_PATH $SGLANG_NCCL_SO_PATH'
pmpi=$PWD/$build/lib/libsymm-pmpi.so
[ -e "$pmpi" ] || pmpi=
says "what was preloaded stays" "$lib${pmpi:+:$pmpi}:$dir/old/libnccl.so.2" \
    env LD_PRELOAD="$dir/old/libnccl.so.2" "$run" sh -c 'echo $LD_PRELOAD'
says "the command's exit status" "exit status 3" "$run" sh -c 'exit 3'
echo 'exit 4' >"$dir/plain" && chmod +x "$dir/plain"
says "a script that names no shell" "exit status 4" "$run" "$dir/plain"
says "no command" "exit status 2" "$run"
says "a command that is not there" "exit status 127" "$run" no-such-command
t_equal "is named" 1 "$(shown | grep -c '^symm-run: there is no command no-such-command$')"
# A folder of PATH without a name is the one that we are in; without PATH it is the system's.
echo 'echo "in the shell $1"' >"$dir/no-first-line" && chmod +x "$dir/no-first-line"
for at in ":/usr/bin:/bin" "/usr/bin::/bin" "/usr/bin:/bin:"; do
    says "a command in this folder, PATH=$at" "in the shell x" \
        env -C "$dir" PATH="$at" "$PWD/$run" no-first-line x
done
says "one elsewhere" "exit status 127" env -C "$dir" PATH=/usr/bin:/bin "$PWD/$run" no-first-line
says "no PATH" y env -u PATH "$run" echo y
if echo 'int main(void) { return 0; }' | $cc -static -x c - -o "$dir/static" 2>/dev/null; then
    says "a static program is refused" "exit status 2" "$run" "$dir/static"
    t_equal "with the reason" 1 "$(shown | grep -c 'is linked statically')"
else
    t_skip "a static program is refused" "there is no static libc"
fi
cp "$dir/plain" "$dir/setuid" && chmod u+s "$dir/setuid"
says "a setuid program is refused" "exit status 2" "$run" "$dir/setuid"

# ---- Python ----
if command -v python3 >/dev/null 2>&1 && python3 -c 'import ctypes' 2>/dev/null; then
    for n in 2 4; do
        says "a client of vLLM's kind in Python, $n ranks" "$n ranks" \
            python3 tests/check/nccl_client.py "$lib" $n
    done
else
    t_skip "a client of vLLM's kind in Python" "needs python3"
fi

# ---- what it says ----
made='ncclAllReduce 1, ncclAllGather 1, ncclReduceScatter 1, ncclBroadcast 1, ncclReduce 1'
made="$made, ncclSend 1, ncclRecv 1$"
SYMM_DEBUG=INFO python3 tests/check/nccl_client.py "$lib" 2 >"$dir/out" 2>"$dir/err"
t_equal "a line for each communicator" 2 \
    "$(shown | grep -c 'drop-in: communicator .*rank [01] of 2, native')"
t_equal "a line for each shape of a call" 2 \
    "$(shown | grep -c 'ncclAllReduce of 4 elements .*kernel')"
t_equal "counts when one ends" 2 \
    "$(shown | grep -c "drop-in: communicator 0x[0-9a-f]* ends: native: $made")"
t_equal "and at exit" 1 \
    "$(shown | grep -c "1 communicators, all native; 0 calls refused; native: $made")"
SYMM_DEBUG=INFO python3 - "$lib" >"$dir/out" 2>"$dir/err" <<'EOF'
import ctypes, os, sys
nccl, comm = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
assert nccl.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert nccl.ncclCommDestroy(comm) == 0
EOF
t_equal "a forked child reports nothing at its exit" "1 communicators, all native; 0" \
    "$(shown | sed -n 's/.*drop-in: \(1 communicators, .*\) calls refused.*/\1/p')"

# ---- forwarded ----
real=$PWD/$build/test/libnccl-real.so
if [ -e "$real" ]; then
    says "a client in Python, forwarded to a real NCCL" "2 ranks" \
        env SYMM_NCCL=forward SYMM_NCCL_LIB="$real" SYMM_DEBUG=INFO \
        python3 tests/check/nccl_client.py "$lib" 2
    t_equal "a line for each communicator, with the reason" 2 \
        "$(shown | grep -c "rank [01] of 2, forwarded to $real, .*: SYMM_NCCL=forward$")"
    t_equal "counts when one ends, with the reason" 2 "$(shown |
        grep -c "communicator 0x[0-9a-f]* ends: forwarded, as SYMM_NCCL=forward: $made")"
    t_equal "and at exit" 1 "$(shown |
        grep -c "1 communicators, 1 of .*; native: no calls; forwarded: $made")"
    says "a client in Python, with a real NCCL beside its communicators" "2 ranks" \
        env SYMM_NCCL_FORWARD=op SYMM_NCCL_LIB="$real" SYMM_DEBUG=INFO \
        python3 tests/check/nccl_client.py "$lib" 2
    t_equal "a line for each communicator, with what is beside it" 2 \
        "$(shown | grep -c "calls that symm does not serve go to $real, as SYMM_NCCL_FORWARD=op$")"
    counts="native: ${made%?}; forwarded: no calls"
    t_equal "counts of both when one ends" 2 "$(shown | grep -c "0x[0-9a-f]* ends: $counts$")"
    t_equal "and at exit, with both" 1 "$(shown |
        grep -c "1 communicators, all native, 1 with a real NCCL beside them; .*; $counts$")"
    # A type that symm does not have, in two sizes; a call that it does not serve.
    SYMM_NCCL_FORWARD=op SYMM_NCCL_LIB="$real" SYMM_DEBUG=INFO python3 - "$lib" 2>"$dir/err" <<'PY'
import ctypes
import sys
nccl = ctypes.CDLL(sys.argv[1])
comm = ctypes.c_void_p()
x = (ctypes.c_int * 4)(1, 2, 3, 4)
assert not nccl.ncclCommInitAll(ctypes.byref(comm), 1, None)
for count in 4, 4, 1:
    assert not nccl.ncclAllReduce(x, x, ctypes.c_size_t(count), 12, 0, comm, None)
for _ in range(2):
    assert not nccl.ncclCommSuspend(comm, 7)
assert not nccl.ncclCommDestroy(comm)
PY
    t_equal "a line for each shape that goes there, and for each call without one" "2 1" \
        "$(shown | grep -c 'ncclAllReduce of .* type 12, .*: by the real NCCL, .* such type$') \
$(shown | grep -c 'ncclCommSuspend: by the real NCCL, as symm does not serve it$')"
    t_equal "they are counted apart" 1 \
        "$(shown | grep -c 'ends: native: no calls; forwarded: ncclAllReduce 3, others 2$')"
    if [ -e "$build/test/mp_nccl" ]; then
        SYMM_NCCL_FORWARD=op SYMM_NCCL_LIB="$real" SYMM_NCCL_VERSION=22809 \
            timeout $((120 * ${T_SLOW:-1})) sh -c '. scripts/mpi.sh; launch "$@"' - 2 \
            "$build/test/mp_nccl" >"$dir/out" 2>"$dir/err"
        t_equal "programs of others see no difference, on 2 ranks" \
            "$("$build/test/mp_nccl" -l | wc -l) 0" \
            "$(grep -c '^ok ' "$dir/out") $(grep -c '^not ok' "$dir/out")"
    else
        t_skip "programs of others see no difference" "needs mpi"
    fi
    # One that the program loaded itself finds our functions by name: its ids are its own.
    mkdir "$dir/loaded" && cp "$real" "$dir/loaded/libnccl.so.2"
    says "one that is loaded already makes its own ids" "0 2 3" \
        env LD_PRELOAD="$lib" SYMM_NCCL=forward python3 - "$dir/loaded/libnccl.so.2" <<'PY'
import ctypes
import sys
real = ctypes.CDLL(sys.argv[1])
nccl = ctypes.CDLL(None)
comms = (ctypes.c_void_p * 2)()
code = nccl.ncclCommInitAll(comms, 2, None)
count = ctypes.c_int()
nccl.ncclCommCount(ctypes.c_void_p(comms[0]), ctypes.byref(count))
x = [(ctypes.c_int * 1)(1), (ctypes.c_int * 1)(2)]
nccl.ncclGroupStart()
for r in range(2):
    nccl.ncclAllReduce(x[r], x[r], ctypes.c_size_t(1), 2, 0, ctypes.c_void_p(comms[r]), None)
nccl.ncclGroupEnd()
print(code, count.value, x[0][0])
PY
else
    t_skip "a client in Python, forwarded to a real NCCL" "$real is not built"
fi
says "no real NCCL to forward to" "exit status 1" \
    env SYMM_NCCL=forward SYMM_NCCL_LIB="$lib" python3 tests/check/nccl_client.py "$lib" 2
t_equal "every rank says so" 2 \
    "$(shown | grep -c "SYMM_NCCL=forward; rank 0: SYMM_NCCL_LIB=$lib: it is symm itself")"

# ---- the second table of docs/environment.md ----
printf '%s\n' '#define NCCL_PARAM_INT(f, var, def, min, max, help) var|def|min to max|help' \
    '#define NCCL_PARAM_STR(f, var, help) var|empty|text|help' \
    '#define NCCL_PARAM_ENUM(f, var, def, names, help) var|names|names|help' \
    '#include "params.def"' |
    $cc -E -P -Inccl-tests-plugin - | tr -d '\n' | sed 's/"SYMM_/\n"SYMM_/g' |
    sed -nE 's/^"([A-Z_]+)"\|([^|"]*)\|([^|]*)\|"(.*)"\s*$/| `\1` | \2 | \3 | \4 |/p
        t
        # names: the first is the default; commas in place of bars
        s/^"([A-Z_]+)"\|"([a-z]+)[a-z|]*"\|"([a-z|]+)"\|"(.*)"\s*$/| `\1` | \2 | \3 | \4 |/
        T
        :more
        s/^(\| `[A-Z_]+` \| [a-z]+ \| [a-z, ]+)\|([a-z])/\1, \2/
        t more
        p' |
    sed -E 's/"\s+"//g; $s/$/\n/' | sed '/^$/d' >"$dir/rows.md"
awk '/^<!-- drop-in -->/ { on = 1; next } /^<!-- end -->/ { on = 0 } on && /^\| `/' \
    docs/environment.md >"$dir/doc.md"
t_empty "docs/environment.md has the drop-in's variables" "$(diff "$dir/rows.md" "$dir/doc.md")"
t_done
