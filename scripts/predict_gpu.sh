#!/bin/sh
# predict_gpu.sh - what collectives should take on 2, 4, 8 and 72 GPUs, in microseconds: a
# calculation, not a measurement. Kernels are those that the rows of coll.def pick where windows are
# not multicast. The constants were measured on H200 with other programs:
#
#   first     a store seen by a peer, in a graph: 1.7, 2.0, 2.3 us for 2, 4, 8 GPUs; the least call
#   second    another hop of flags in the data: 1.1 us
#   barrier   release and acquire by all: 1.38, 1.45, 1.65 us; a direct or staged call ends with one
#   out       362, 354, 346 GB/s out of a GPU (or into one) by stores of 112 CTAs
#
# For 72 GPUs each peer adds what it adds from 4 to 8, 0.075 us to a hop and 0.05 us to a barrier:
# the most that was seen, as from 2 to 4 to 8 they grow with the logarithm. Links are those of H200.
#
# LL sends every byte twice, lines 128 bytes for 120. The busiest link carries n-1 parts, in two
# hops one message; of an all_reduce in two hops both. Sizes are nccl-tests': the total where a
# buffer has a part for each rank.
#
#   scripts/predict_gpu.sh          a table in Markdown
set -u
cd "$(dirname "$0")/.." || exit 2
awk '
function value(text) { # of .upto: 1024, 5 << 19
    return text ~ /<</ ? text * 2 ^ substr(text, index(text, "<<") + 2) : text + 0
}
function field(line, name,    at) {
    at = index(line, "." name " = ")
    return at ? substr(line, at + length(name) + 4) : ""
}
/^SYMM_KERNEL\(/ { id = $0; sub(/^SYMM_KERNEL\(/, "", id) }
id == "" { id = $0; sub(/^ */, "", id) }
{ sub(/,.*/, "", id) }
/min_ranks = / { least[id] = field($0, "min_ranks") + 0 }
/\.multicast = / { casts[id] }
/^SYMM_PLAN_GPU/ && !/_LOCAL,/ {
    rows++
    kernel[rows] = $0; sub(/^SYMM_PLAN_GPU\(/, "", kernel[rows]); sub(/,.*/, "", kernel[rows])
    ranks[rows] = field($0, "max_ranks") + 0
    upto[rows] = value(field($0, "upto"))
}
function pick(prefix, n, bytes,    i) {
    for (i = 1; i <= rows; i++)
        if (kernel[i] ~ "^" prefix "_" && !(kernel[i] in casts) && n >= least[kernel[i]] &&
            (!ranks[i] || n <= ranks[i]) && (!upto[i] || bytes <= upto[i]))
            return kernel[i]
}
function us(prefix, n, size,    part, k, link, hops, t) {
    part = each[prefix] ? size / n : size
    k = pick(prefix, n, part)
    hops = !each[prefix] && n > 2 && k ~ /DIRECT$|2SHOT128$/ ? 2 : 1
    link = hops == 1 ? (n - 1) * part : prefix == "AR" ? 2 * (n - 1) * part / n : part
    t = first[n]
    if (k ~ /LL$/) link *= 2
    else if (k ~ /128$/) link *= 128 / 120
    else t += barrier[n]
    if (hops == 2) t += second[n]
    return t + link / out[n] / 1000
}
END {
    first[2] = 1.7; first[4] = 2.0; first[8] = 2.3; first[72] = 2.3 + 64 * 0.075
    barrier[2] = 1.38; barrier[4] = 1.45; barrier[8] = 1.65; barrier[72] = 1.65 + 64 * 0.05
    out[2] = 362; out[4] = 354; out[8] = out[72] = 346
    second[4] = second[8] = 1.1; second[72] = 1.1 + 64 * 0.075
    names = split("AR AG RS A2A BC RD GA SC", prefix)
    split("all_reduce all_gather reduce_scatter alltoall broadcast reduce gather scatter", name)
    each["AG"] = each["RS"] = each["A2A"] = each["GA"] = each["SC"] = 1
    sizes = split("1K 16K 64K 256K 1M 4M 16M 64M 256M 1G", size)
    line = "| GPUs | predicted, us |"; rule = "|---|---|"
    for (s = 1; s <= sizes; s++) { line = line " " size[s] " |"; rule = rule "---:|" }
    print line; print rule
    for (n = 2; n <= 72; n *= n == 8 ? 9 : 2)
        for (c = 1; c <= names; c++) {
            line = "| " n " | " name[c] " |"
            for (s = 1; s <= sizes; s++) {
                unit = size[s] ~ /G/ ? 30 : size[s] ~ /M/ ? 20 : 10
                line = line sprintf(" %.1f |", us(prefix[c], n, size[s] * 2 ^ unit))
            }
            print line
        }
}' src/device/common/coll.def
