#!/usr/bin/env bash
# The same workloads on a node that is open, on one with certificates as its administrator, and on one with certificates as a
# user who has a right on one family of two, in turn: what TLS costs, and what rights do. Prints the medians, and leaves the
# reports in OUT (dist/bench).
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
declare -A reports
for run in $(seq "${RUNS:-3}"); do
	for kind in open secure rights; do
		echo "== run $run: $kind" >&2
		credential=() as=()
		if [ "$kind" != open ]; then
			"$stele" init --data-dir "$tmp/data" --out "$tmp/admin.pem" >/dev/null 2>&1
			credential=(--credential "$tmp/admin.pem")
		fi
		env -u STELE_CREDENTIAL "$stele" serve --data-dir "$tmp/data" --listen 127.0.0.1:0 --gossip 127.0.0.1:0 --http 127.0.0.1:0 --bigtable off \
			</dev/null 2>"$tmp/log" &
		node=$!
		until addr=$(sed -n 's/.*msg="node serves".* rpc=\([^ ]*\).*/\1/p' "$tmp/log") && [ -n "$addr" ]; do
			kill -0 "$node" 2>/dev/null || { cat "$tmp/log" >&2; node=; exit 1; }
			sleep 0.2
		done
		if [ "$kind" = rights ]; then
			"$stele" user add user --addr "$addr" "${credential[@]}" --out "$tmp/user.pem" >/dev/null 2>&1
			as=(--as "$tmp/user.pem")
		fi
		report="$out/tls-$kind-$run.json"
		env -u STELE_CREDENTIAL "$stele" bench --addr "$addr" "${credential[@]}" "${as[@]}" --workloads "${WORKLOADS:-paper}" --rows "${ROWS:-200k}" \
			--clients "${CLIENTS:-64}" --report "$report" >&2
		reports[$kind]+="$report "
		kill -TERM "$node"
		wait "$node"
		node=
		rm -rf "$tmp/data" "$tmp/admin.pem" "$tmp/user.pem"
	done
done

python3 - "${reports[open]}" "${reports[secure]}" "${reports[rights]}" <<'PY'
import json, statistics, sys
def results(names):
    all = {}
    for name in names.split():
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
kinds = [results(names) for names in sys.argv[1:]]
for title, keys, form in ("rows/s", ("ops_per_s",), "{:,.0f}"), ("node's CPU a row, µs", ("nodes", "cpu_us"), "{:.1f}"), ("client's CPU a row, µs", ("client", "cpu_us"), "{:.1f}"):
    print("| " + title + " | open | certificates | | a right on one family | |")
    print("|---|--:|--:|--:|--:|--:|")
    for w in kinds[0]:
        first, *others = (median(k[w], *keys) for k in kinds)
        row = [w, form.format(first)]
        for v in others:
            row += [form.format(v), "{:+.0%}".format(v / first - 1) if first else "-"]
        print("| " + " | ".join(row) + " |")
    print()
PY
