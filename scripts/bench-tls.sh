#!/usr/bin/env bash
# The same workloads on a node that is open and on one with certificates, in turn: what TLS and rights cost. Prints the medians,
# and leaves the reports in OUT (dist/bench).
#
#   RUNS=3 ROWS=200k CLIENTS=64 WORKLOADS=paper OUT=dist/bench scripts/bench-tls.sh
set -euo pipefail
cd "$(dirname "$0")/.."

stele=bin/stele
out=${OUT:-dist/bench}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/stele-bench-tls.XXXXXX")
node= # the process that runs it

cleanup() {
	if [ -n "$node" ]; then
		kill -TERM "$node" 2>/dev/null || true
		wait "$node" 2>/dev/null || true
	fi
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

mkdir -p "$out"
open=() secure=()
for run in $(seq "${RUNS:-3}"); do
	for kind in open secure; do
		echo "== run $run: $kind" >&2
		credential=()
		if [ "$kind" = secure ]; then
			"$stele" init --data-dir "$tmp/data" --out "$tmp/admin.pem" >/dev/null 2>&1
			credential=(--credential "$tmp/admin.pem")
		fi
		env -u STELE_CREDENTIAL "$stele" serve --data-dir "$tmp/data" --listen 127.0.0.1:0 --gossip 127.0.0.1:0 --http 127.0.0.1:0 \
			</dev/null 2>"$tmp/log" &
		node=$!
		until addr=$(sed -n 's/.*msg="node serves".* rpc=\([^ ]*\).*/\1/p' "$tmp/log") && [ -n "$addr" ]; do
			kill -0 "$node" 2>/dev/null || { cat "$tmp/log" >&2; node=; exit 1; }
			sleep 0.2
		done
		report="$out/tls-$kind-$run.json"
		env -u STELE_CREDENTIAL "$stele" bench --addr "$addr" "${credential[@]}" --workloads "${WORKLOADS:-paper}" --rows "${ROWS:-200k}" \
			--clients "${CLIENTS:-64}" --report "$report" >&2
		if [ "$kind" = open ]; then open+=("$report"); else secure+=("$report"); fi
		kill -TERM "$node"
		wait "$node"
		node=
		rm -rf "$tmp/data" "$tmp/admin.pem"
	done
done

python3 - "${open[@]}" "${secure[@]}" <<'PY'
import json, statistics, sys
files = sys.argv[1:]
half = len(files) // 2
def results(names):
    all = {}
    for name in names:
        with open(name) as f:
            for run in json.load(f)["runs"]:
                for r in run["results"]:
                    all.setdefault(r["workload"], []).append(r)
    return all
def median(rs, *keys):
    values = []
    for r in rs:
        for k in keys:
            r = r[k]
        values.append(r)
    return statistics.median(values)
a, b = results(files[:half]), results(files[half:])
print("| | open, rows/s | certificates, rows/s | | node's CPU a row | | client's CPU a row | |")
print("|---|--:|--:|--:|--:|--:|--:|--:|")
for w in a:
    row = [w]
    for keys, form in (("ops_per_s",), "{:,.0f}"), (("nodes", "cpu_us"), "{:.1f} µs"), (("client", "cpu_us"), "{:.1f} µs"):
        x, y = median(a[w], *keys), median(b[w], *keys)
        more = "{:+.0%}".format(y / x - 1) if x else "-"
        row += [form.format(x), form.format(y), more] if len(keys) == 1 else [form.format(x) + ", " + form.format(y), more]
    print("| " + " | ".join(row) + " |")
PY
