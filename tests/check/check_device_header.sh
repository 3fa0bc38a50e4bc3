#!/bin/sh
# check_device_header.sh - the headers of the device API, as a program's compiler sees them: host
# side and host kernels in C and C++; the device side, with all that it has, for each architecture
# that it is meant for, with and without SYMM_DEVICE_DEBUG, and without local memory; the code of
# its page. The last two need nvcc.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# As mk/flags.mk looks for it.
find_nvcc() {
    [ "${CUDA:-auto}" != 0 ] || return 1
    for at in "${NVCC:-}" "${CUDA_HOME:-/nowhere}/bin/nvcc" \
        "$(command -v nvcc 2>/dev/null)" /usr/local/cuda/bin/nvcc; do
        [ -n "$at" ] && [ -x "$at" ] && echo "$at" && return 0
    done
    return 1
}

echo '#include "symm_device_host.h"' >"$dir/host.c"
t_empty "the host side is C" "$(${CC:-gcc} -std=c99 -pedantic -Wall -Wextra -Werror -fsyntax-only \
    -Iinclude "$dir/host.c" 2>&1 | head -n 3)"
if command -v g++ >/dev/null 2>&1; then
    cp "$dir/host.c" "$dir/host.cc"
    t_empty "and C++11" "$(g++ -std=c++11 -pedantic -Wall -Wextra -Werror -fsyntax-only -Iinclude \
        "$dir/host.cc" 2>&1 | head -n 3)"
else
    t_skip "and C++11" "there is no g++"
fi

cat >"$dir/all.cu" <<'CU'
#include "symm_device.cuh"
#include <cooperative_groups.h>
template <class Group> __device__ int uses(const symmDevComm_t &dc, const symmDevWindow_t &w,
                                           unsigned index, uint32_t (&l)[4],
                                           Group group = Group()) {
    symmDevBarrier<Group> barrier(dc, index, group);
    uint2 d = make_uint2(l[0], l[1]);
    int over = barrier.over() || symmDevIsOver(dc, group);
    over = over || barrier.sync() || barrier.syncRelaxed();
    symmDevSignalRaise(dc, group, 0, 1);
    symmDevSignalStore(dc, group, 0, 2, 5);
    over = over || symmDevSignalWait(dc, group, 1, symmDevSignalRead(dc, 2), 0);
    symmDevSignalReset(dc, 1);
    symmDevPackets<Group> session(dc, index, group);
    session.send(0, threadIdx.x, d);
    int gave_up = session.receive(0, threadIdx.x, d);
    uint2 more[3] = {d, d, d};
    gave_up |= session.template receiveSome<3>(0, threadIdx.x, 32, more);
    d.x += more[2].x;
    session.sendLines(0, threadIdx.x / 32, l);
    gave_up |= session.receiveLines(0, threadIdx.x / 32, l);
    over = session.end(gave_up) || over;
    symmDevCopy(group, symmDevPeerPtr(dc, w, 1, 3), symmDevLocalPtr(w, 3), 1000 + d.x);
    return over;
}
template <int T>
__device__ void sums(const symmDevComm_t &dc, const symmDevWindow_t &w, uint4 *to) {
    float sum[symmDevVec<T>::COUNT];
    uint4 v[4];
    symmDevLoadReduce<T>(dc, w, threadIdx.x * 16, sum);
    to[threadIdx.x] = symmDevVec<T>::pack(sum);
    symmDevLoadAll<4>(dc, w, threadIdx.x * 16, v);
    symmDevSum<T, 4>(v, sum);
    to[threadIdx.x + 1024] = symmDevVec<T>::pack(sum);
}
__global__ void everything(const __grid_constant__ symmDevComm_t dc,
                           const __grid_constant__ symmDevWindow_t w, uint4 *to) {
    uint32_t l[4] = {1, 2, 3, 4};
    symmDevWaitForGridBefore();
    symmDevLaunchDependents();
    if (uses<symmDevCta>(dc, w, blockIdx.x, l)) return;
    if (uses<symmDevWarp>(dc, w, threadIdx.x / 32, l)) return;
    const auto cta = cooperative_groups::this_thread_block();
    if (uses(dc, w, 40, l, symmDevCoop{cta})) return;
    if (uses(dc, w, threadIdx.x / 32, l, symmDevCoop{cooperative_groups::tiled_partition<32>(cta)}))
        return;
    symmDevBarrier half(dc, threadIdx.x / 16,
                        symmDevCoop{cooperative_groups::tiled_partition<16>(cta)});
    if (half.sync()) return;
    to[threadIdx.x + 2048] = make_uint4(l[0], l[1], l[2], symmDevMulticastPtr(w, 0) != nullptr);
    if (symmDevMulticastPtr(w, 0)) {
        symmDevMulticastStore(w, threadIdx.x * 16, symmDevMulticastSum<symmFloat32>(w, 0));
        symmDevMulticastFence();
        symmDevMulticastStore(w, threadIdx.x * 16, symmDevMulticastSum<symmFloat16>(w, 0));
        symmDevMulticastStore(w, threadIdx.x * 16, symmDevMulticastSum<symmBfloat16>(w, 0));
    }
    sums<symmFloat32>(dc, w, to);
    sums<symmFloat16>(dc, w, to);
    sums<symmBfloat16>(dc, w, to);
}
CU
# The pieces of code of the page, one after the other, are a program's.
awk '/^```cuda$/ { code = 1; print "#line " NR + 1 " \"docs/device-api.md\""; next }
     /^```$/ { code = 0 } code' docs/device-api.md >"$dir/page.cu"
nvcc=$(find_nvcc) || nvcc=
if [ -n "$nvcc" ]; then
    t_empty "the code of docs/device-api.md" "$("$nvcc" -std=c++17 -gencode \
        arch=compute_90,code=sm_90 -Xcompiler -Wall,-Wextra -Iinclude -c "$dir/page.cu" \
        -o "$dir/page.o" 2>&1 | head -n 5)"
else
    t_skip "the code of docs/device-api.md" "needs nvcc"
fi
for arch in 80 90 100; do
    for debug in '' -DSYMM_DEVICE_DEBUG; do
        name="the device side for sm_$arch${debug:+, debug}"
        if [ -z "$nvcc" ]; then
            t_skip "$name" "needs nvcc"
        elif ! "$nvcc" --list-gpu-arch 2>/dev/null | grep -qx "compute_$arch"; then
            t_skip "$name" "needs an nvcc that knows compute_$arch"
        elif ! "$nvcc" -std=c++17 -O3 ${debug:+"$debug"} \
            -gencode "arch=compute_$arch,code=sm_$arch" -cubin -Xptxas -v -Xcompiler -Wall,-Wextra \
            -Iinclude "$dir/all.cu" -o "$dir/all.cubin" >"$dir/log" 2>&1; then
            t_fail "$name" "$(grep -v '^ptxas info' "$dir/log" | head -n 5)"
        else
            t_empty "$name" "$(grep -E 'warning|[1-9][0-9]* bytes (stack|spill)' "$dir/log")"
        fi
    done
done
t_done
