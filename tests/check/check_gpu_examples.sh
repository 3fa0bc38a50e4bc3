#!/bin/sh
# check_gpu_examples.sh - examples with kernels of their own, on this machine's GPUs. They are built
# where nvcc is.
set -u
cd "$(dirname "$0")/../.." || exit 2
. tests/check/tap.sh
. scripts/gpu.sh
examples=${BUILD:-build}/examples
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# As mk/flags.mk looks for it.
has_nvcc() {
    [ "${CUDA:-auto}" != 0 ] || return 1
    [ -x "${NVCC:-}" ] || [ -x "${CUDA_HOME:-/nowhere}/bin/nvcc" ] ||
        command -v nvcc >/dev/null 2>&1 || [ -x /usr/local/cuda/bin/nvcc ]
}
is_built() { # example
    if [ -x "$examples/$1" ]; then
        return 0
    elif has_nvcc; then
        t_fail "$1" "$examples/$1 is not there: make examples"
    else
        t_skip "$1" "needs nvcc"
    fi
    return 1
}

devices=$(gpus)
if is_built step_gpu; then
    ranks=$((devices < 2 ? 2 : devices < 8 ? devices : 8))
    if [ "$devices" -eq 0 ]; then
        t_skip step_gpu "needs cuda: there is no GPU"
    else
        said='20 replays, 0 weights wrong; error 4.0000 before, 0.0000 after'
        said="$said; memory of the heap is used in place"
        seq 0 $((ranks - 1)) | sed "s/.*/rank &: $said/" >"$dir/want"
        timeout 60 "$examples/step_gpu" >"$dir/got" 2>"$dir/err"
        rc=$?
        if [ $rc -eq 0 ] && cmp -s "$dir/want" "$dir/got" && [ ! -s "$dir/err" ]; then
            t_ok "step_gpu on $ranks ranks"
        else
            t_fail "step_gpu on $ranks ranks" "exit status $rc, wanted and got:
$(diff "$dir/want" "$dir/got")
$(cat "$dir/err")"
        fi
    fi
fi
# Their times are other figures each time.
for example in fused_norm moe_device gemm_reduce; do
    is_built $example || continue # is_built fused_norm, is_built moe_device, is_built gemm_reduce
    ranks=$((devices < 2 ? 2 : devices < 8 ? devices : 8))
    if [ "$devices" -eq 0 ]; then
        t_skip $example "needs cuda: there is no GPU"
        continue
    fi
    seq 0 $((ranks - 1)) | sed 's/.*/rank &: 0 words differ from the unfused way/' >"$dir/want"
    timeout 120 "$examples/$example" "$ranks" >"$dir/got" 2>"$dir/err"
    rc=$?
    grep '^rank' "$dir/got" | sort >"$dir/ranks"
    if [ $rc -eq 0 ] && cmp -s "$dir/want" "$dir/ranks" && [ ! -s "$dir/err" ]; then
        t_ok "$example on $ranks ranks"
    else
        t_fail "$example on $ranks ranks" "exit status $rc: $(cat "$dir/got" "$dir/err")"
    fi
done
t_done
