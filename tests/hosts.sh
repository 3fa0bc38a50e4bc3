#!/bin/bash
# hosts.sh - runs an MPI program on "hosts" that are network and UTS namespaces of this machine,
# joined by a bridge: each has a name and an address of its own, and Open MPI uses TCP between them,
# shared memory inside. The hosts share the cores, so that MPI is told to yield. Needs root, `ip`
# and `nsenter` (packages iproute2, util-linux).
#
#   tests/hosts.sh RANKS[,RANKS...] COMMAND...     ranks of each host, rank by rank
#   LAYOUT=cyclic tests/hosts.sh 2,2 COMMAND...    ranks in turn over the hosts
#
# Exit status 77: this machine has no namespaces for us; the reason is on stderr.
set -u
ranks=$1
shift
id=symm$$
dir=$(mktemp -d) || exit 2
net=10.$((200 + $$ % 50)).$(($$ / 50 % 250))
hosts=$(echo "$ranks" | tr ',' ' ')
cleanup() {
    i=0
    for _ in $hosts; do
        ip netns pids "$id-$i" 2>/dev/null | xargs -r kill -9 2>/dev/null
        ip netns del "$id-$i" 2>/dev/null
        i=$((i + 1))
    done
    ip link del "$id" 2>/dev/null
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 143' TERM INT
cannot() {
    echo "hosts.sh: $1" >&2
    exit 77
}
command -v ip >/dev/null && command -v nsenter >/dev/null || cannot "needs ip and nsenter"
ip link add "$id" type bridge 2>"$dir/why" && ip link set "$id" up ||
    cannot "no bridge: $(cat "$dir/why")"
i=0 list=''
for n in $hosts; do
    { ip netns add "$id-$i" && ip link add "$id-$i" type veth peer name eth0 netns "$id-$i" &&
        ip link set "$id-$i" master "$id" up &&
        ip -n "$id-$i" addr add "$net.$((i + 1))/24" dev eth0 &&
        ip -n "$id-$i" link set eth0 up && ip -n "$id-$i" link set lo up; } 2>"$dir/why" ||
        cannot "no namespace: $(cat "$dir/why")"
    list=$list${list:+,}$net.$((i + 1)):$n
    i=$((i + 1))
done
# A host's shell: in its network, with its name.
cat >"$dir/on" <<EOF
#!/bin/sh
host=\$((\${1##*.} - 1))
shift
exec nsenter --net="/run/netns/$id-\$host" unshare --uts \
    sh -c 'hostname "$id-\$0" && exec sh -c "\$1"' "\$host" "\$*"
EOF
chmod +x "$dir/on"
by=slot
[ "${LAYOUT:-}" != cyclic ] || by=node
options="--allow-run-as-root --oversubscribe --map-by $by --mca plm_rsh_agent '$dir/on'
    --mca btl self,vader,tcp --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0
    --mca mpi_yield_when_idle 1 -H $list ${MPI_OPTIONS:-}"
# The program's words stay what they are, with their quotes.
"$dir/on" "$net.1" "exec mpirun $(echo "$options" | tr '\n' ' ') $(printf '%q ' "$@")" </dev/null &
wait $!
