#!/usr/bin/env bash
# Random reads of one row a call, at half the rate at which a node is saturated: alone, while it runs one major compaction after the
# other of another table, and of the table that is read. The cache has all rows before, and compactions begin when reads do. Prints the
# medians, and leaves the reports in OUT (dist/bench).
#
#   RUNS=3 ROWS=300k CLIENTS=64 MEMORY=2GiB COMPACT=500k READ_TIME=15s OUT=dist/bench scripts/bench-compaction.sh
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
"$stele" serve --dev --data-dir "$tmp/data" --memory "${MEMORY:-2GiB}" --listen 127.0.0.1:0 --gossip 127.0.0.1:0 --http 127.0.0.1:0 --bigtable off \
	</dev/null 2>"$tmp/log" &
node=$!
until addr=$(sed -n 's/.*msg="node serves".* rpc=\([^ ]*\).*/\1/p' "$tmp/log") && [ -n "$addr" ]; do
	kill -0 "$node" 2>/dev/null || { cat "$tmp/log" >&2; node=; exit 1; }
	sleep 0.2
done
export STELE_ADDR=$addr

reads() { # OPTIONS...
	"$stele" bench --workloads random-read --rows "${ROWS:-300k}" --clients "${CLIENTS:-64}" --read-time "${READ_TIME:-15s}" --warm "$@" \
		2> >(tee "$tmp/phases" >&2) >&2
}
tables() { # SUFFIX
	"$stele" table list --json | python3 -c 'import json, sys; print(*[n for n in (json.loads(l)["name"] for l in sys.stdin) if n.endswith(sys.argv[1])])' "$1"
}
compacting() { # SUFFIX: of the tables so called, once they are read
	until grep -qx random-read "$tmp/phases" 2>/dev/null; do sleep 0.1; done
	table=$(tables "$1")
	while "$stele" table compact "$table" --major --timeout 10m >/dev/null 2>&1; do
		echo >>"$tmp/compactions$1"
	done
}
beside() { # SUFFIX OPTIONS...
	rm -f "$tmp/phases"
	compacting "$1" &
	loop=$!
	reads "${@:2}"
	kill -TERM "$loop" 2>/dev/null || true # it ends by itself when its table is dropped
	wait "$loop" || true
	loop=
}

"$stele" bench --workloads sequential-write --rows "${COMPACT:-500k}" --keep >&2
reads --report "$tmp/full.json"
rate=$(python3 -c 'import json, sys; print(round(json.load(open(sys.argv[1]))["runs"][0]["results"][0]["ops_per_s"] / 2))' "$tmp/full.json")
runs=${RUNS:-3}
for run in $(seq "$runs"); do
	echo "== run $run, $rate reads a second: alone" >&2
	reads --rate "$rate" --report "$out/compaction-alone-$run.json"
	echo "== run $run, $rate reads a second: beside compactions of another table" >&2
	beside -sequential --rate "$rate" --report "$out/compaction-other-$run.json"
	echo "== run $run, $rate reads a second: beside compactions of the table" >&2
	beside -random --rate "$rate" --report "$out/compaction-same-$run.json"
done
python3 - "$rate" "$runs" "$out" "$(wc -l <"$tmp/compactions-sequential")" "$(wc -l <"$tmp/compactions-random")" <<'PY'
import json, statistics, sys
rate, runs, out, other, same = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
def column(name):
    rs = [json.load(open(f"{out}/compaction-{name}-{run}.json"))["runs"][0]["results"][0] for run in range(1, runs + 1)]
    of = lambda f: statistics.median(map(f, rs))
    return of(lambda r: r["ops_per_s"]), of(lambda r: r["p50_us"]), of(lambda r: r["p99_us"]), of(lambda r: r["p999_us"]), of(lambda r: r["nodes"]["cpu_us"])
print(f"{rate} random reads a second, half of what the node can do")
print("| | major compactions | rows/s | p50 | p99 | times | p99.9 | node's CPU a row |")
print("|---|--:|--:|--:|--:|--:|--:|--:|")
alone = column("alone")
for title, name, n in (("alone", "alone", 0), ("beside those of another table", "other", other), ("of the table that is read", "same", same)):
    ops, p50, p99, p999, cpu = column(name)
    print(f"| {title} | {n} | {ops:,.0f} | {p50/1000:.2f} ms | {p99/1000:.2f} ms | {p99/alone[2]:.1f} | {p999/1000:.2f} ms | {cpu:.1f} µs |")
PY
