#!/usr/bin/env bash
# The same workloads on one node and on three, which "stele serve --dev --nodes" runs on this
# machine: what replicas and hops cost, rather than what more machines give. Prints a table, and
# leaves the reports in OUT (dist/bench).
#
#   NODES="1 3" ROWS=200k TABLETS=12 CLIENTS=64 WORKLOADS=paper OUT=dist/bench scripts/bench-nodes.sh
set -euo pipefail
cd "$(dirname "$0")/.."

stele=bin/stele
out=${OUT:-dist/bench}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/stele-bench-nodes.XXXXXX")
nodes= # the process that runs them

cleanup() {
	if [ -n "$nodes" ]; then
		kill -TERM "$nodes" 2>/dev/null || true
		wait "$nodes" 2>/dev/null || true
	fi
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir -p "$out"
reports=()
for n in ${NODES:-1 3}; do
	echo "== nodes: $n" >&2
	"$stele" serve --dev --nodes "$n" --data-dir "$tmp/$n" --listen 127.0.0.1:0 --gossip 127.0.0.1:0 --http 127.0.0.1:0 --bigtable off \
		</dev/null 2>"$tmp/$n.log" &
	nodes=$!
	until grep -q 'Try this' "$tmp/$n.log"; do
		kill -0 "$nodes" 2>/dev/null || { cat "$tmp/$n.log" >&2; nodes=; exit 1; }
		sleep 0.2
	done
	addrs=$(awk '{ for (i = 1; i < NF; i++) if ($i == "clients") print $(i + 1) }' "$tmp/$n.log" | paste -sd,)
	"$stele" bench --addr "$addrs" --workloads "${WORKLOADS:-paper}" --rows "${ROWS:-200k}" --tablets "${TABLETS:-12}" \
		--clients "${CLIENTS:-64}" --report "$out/nodes-$n.json" >&2
	reports+=("$out/nodes-$n.json")
	kill -TERM "$nodes"
	wait "$nodes"
	nodes=
	rm -rf "${tmp:?}/$n"
done
"$stele" bench table "${reports[@]}"
