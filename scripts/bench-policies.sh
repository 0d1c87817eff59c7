#!/usr/bin/env bash
# What compaction policies cost the paper's six workloads and YCSB's: what is written, read and kept for each byte of users, in
# tables of policies by workloads. Counts, not times, so it does not matter what else the machine does. Wants Go and Python.
#
#   OUT=dist/bench scripts/bench-policies.sh [PATTERN of policies]
set -euo pipefail
cd "$(dirname "$0")/.."

out=${OUT:-dist/bench}
mkdir -p "$out"
${GO:-go} test ./tablet -run '^$' -bench "^BenchmarkMergePolicies\$/${1:-.}" -benchtime 1x -timeout 60m >"$out/policies.txt" ||
	{ cat "$out/policies.txt" >&2; exit 1; }
python3 - "$out/policies.txt" <<'PY'
import re, sys
cost = {} # by measure, policy and workload
policies, workloads = [], []
for line in open(sys.argv[1]):
    m = re.match(r"BenchmarkMergePolicies/([^/]+)/(\S+?)(?:-\d+)?\s+1\s+(.*)", line)
    if not m:
        continue
    policy, workload, rest = m.group(1).replace("_", " "), m.group(2), m.group(3).split()
    for seen, new in ((policies, policy), (workloads, workload)):
        if new not in seen:
            seen.append(new)
    for value, measure in zip(rest[::2], rest[1::2]):
        cost[measure, policy, workload] = float(value)
def table(title, measures, show):
    columns = {} # names of workloads by what they show
    for w in workloads:
        if any((measures[0], p, w) in cost for p in policies):
            shown = tuple(show([cost[m, p, w] for m in measures]) for p in policies)
            columns.setdefault(shown, []).append(w.replace("ycsb-", "") if any("ycsb" in o for o in columns.get(shown, [])) else w)
    print(f"\n{title}\n\n| | " + " | ".join(map(", ".join, columns.values())) + " |\n|---|" + "--:|" * len(columns))
    for i, p in enumerate(policies):
        print(f"| {p} | " + " | ".join(shown[i] for shown in columns) + " |")
number = lambda x: f"{x:.2f}" if x < 2 else f"{x:.1f}" if x < 10 else f"{x:.0f}"
one = lambda v: number(v[0])
table("Bytes written to files for each byte put", ["written/put"], one)
table("Files that a read of a row looks into", ["files/read"], one)
table("Files that a scan merges", ["files/scan"], one)
table("Blocks looked up for each row that is read", ["blocks/row"], one)
table("Bytes read from the disk for each byte that is read", ["disk/byte"], one)
table("Bytes of files for each that lives, on average (at most)", ["space", "space-most"], lambda v: f"{v[0]:.2f} ({v[1]:.1f})")
PY
