#!/usr/bin/env bash
# Random reads of one row a call, at half the rate at which a node is saturated: alone, and while it runs one major compaction after
# the other of another table. Each goes on for so long that its first moment, in which the cache fills, is no hundredth of it. Prints the
# medians, and leaves the reports in OUT (dist/bench).
#
#   RUNS=3 ROWS=300k CLIENTS=64 MEMORY=2GiB COMPACT=500k READ_TIME=20s OUT=dist/bench scripts/bench-compaction.sh
set -euo pipefail
cd "$(dirname "$0")/.."

stele=bin/stele
out=${OUT:-dist/bench}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/stele-bench-compaction.XXXXXX")
node= # the process that runs it
loop= # the process that has it compact

cleanup() {
	for p in $loop $node; do
		kill -TERM "$p" 2>/dev/null || true
		wait "$p" 2>/dev/null || true
	done
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir -p "$out"
"$stele" serve --dev --data-dir "$tmp/data" --memory "${MEMORY:-2GiB}" --listen 127.0.0.1:0 --gossip 127.0.0.1:0 --http 127.0.0.1:0 \
	</dev/null 2>"$tmp/log" &
node=$!
until addr=$(sed -n 's/.*msg="node serves".* rpc=\([^ ]*\).*/\1/p' "$tmp/log") && [ -n "$addr" ]; do
	kill -0 "$node" 2>/dev/null || { cat "$tmp/log" >&2; node=; exit 1; }
	sleep 0.2
done
export STELE_ADDR=$addr

reads() { # OPTIONS...
	"$stele" bench --workloads random-read --rows "${ROWS:-300k}" --clients "${CLIENTS:-64}" --read-time "${READ_TIME:-20s}" "$@" >&2
}
compacting() {
	while "$stele" table compact "$table" --major --timeout 10m >/dev/null 2>&1; do
		echo >>"$tmp/compactions"
	done
}

"$stele" bench --workloads sequential-write --rows "${COMPACT:-500k}" --keep >&2
table=$("$stele" table list --json | python3 -c 'import json, sys; print([json.loads(l)["name"] for l in sys.stdin][0])')
reads --report "$tmp/full.json"
rate=$(python3 -c 'import json, sys; print(round(json.load(open(sys.argv[1]))["runs"][0]["results"][0]["ops_per_s"] / 2))' "$tmp/full.json")
alone=() beside=()
for run in $(seq "${RUNS:-3}"); do
	echo "== run $run, $rate reads a second: alone" >&2
	reads --rate "$rate" --report "$out/compaction-alone-$run.json"
	alone+=("$out/compaction-alone-$run.json")
	echo "== run $run, $rate reads a second: beside compactions" >&2
	compacting &
	loop=$!
	reads --rate "$rate" --report "$out/compaction-beside-$run.json"
	beside+=("$out/compaction-beside-$run.json")
	kill -TERM "$loop"
	wait "$loop" || true
	loop=
done
python3 - "$rate" "$(wc -l <"$tmp/compactions")" "${alone[@]}" "${beside[@]}" <<'PY'
import json, statistics, sys
rate, compactions, files = sys.argv[1], sys.argv[2], sys.argv[3:]
half = len(files) // 2
def column(names):
    rs = [json.load(open(n))["runs"][0]["results"][0] for n in names]
    of = lambda f: statistics.median(map(f, rs))
    return of(lambda r: r["ops_per_s"]), of(lambda r: r["p50_us"]), of(lambda r: r["p99_us"]), of(lambda r: r["p999_us"]), of(lambda r: r["nodes"]["cpu_us"])
a, b = column(files[:half]), column(files[half:])
print(f"{rate} random reads a second, half of what the node can do; {compactions} major compactions")
print("| | rows/s | p50 | p99 | p99.9 | node's CPU a row |")
print("|---|--:|--:|--:|--:|--:|")
for name, (ops, p50, p99, p999, cpu) in (("alone", a), ("beside compactions", b)):
    print(f"| {name} | {ops:,.0f} | {p50/1000:.2f} ms | {p99/1000:.2f} ms | {p999/1000:.2f} ms | {cpu:.1f} µs |")
print(f"p99: {b[2]/a[2]:.2f} times")
PY
