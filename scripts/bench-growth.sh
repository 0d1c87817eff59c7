#!/usr/bin/env bash
# How cost grows, with rows and with tablets: random writes, random reads and scans, each run on a
# node of its own that is gone after. Prints two tables, and leaves reports and pictures in OUT
# (dist/bench). A run of R rows takes about R x 6 kB of disk while it lasts.
#
#   ROWS=200k,1M,5M TABLETS=1,10,100,1000 TABLET_ROWS=200k WORKLOADS=random-write,random-read,scan \
#     DIR=/var/tmp OUT=dist/bench scripts/bench-growth.sh [FLAG...]
#
# Flags are handed to "stele bench". An empty ROWS or TABLETS leaves that table out.
set -euo pipefail
cd "$(dirname "$0")/.."

stele=bin/stele
out=${OUT:-dist/bench}
dir=${DIR:-${TMPDIR:-/tmp}}
rows=${ROWS-200k,1M,5M}
tablets=${TABLETS-1,10,100,1000}
tabletRows=${TABLET_ROWS:-200k}
workloads=${WORKLOADS:-random-write,random-read,scan}
mkdir -p "$out"

# room fails unless there is disk for the largest of so many rows.
room() {
	local most free
	most=$(tr , '\n' <<<"$1" | awk '{ n = $1 * (/[kK]$/ ? 1000 : /M$/ ? 1000000 : 1); if (n > most) most = n } END { printf "%d", most }')
	free=$(df -P -k "$dir" | awk 'NR == 2 { print $4 }')
	if [ "$free" -lt $((most * 6)) ]; then
		printf 'error: %s rows want %d GB of disk, and %s has %d\nhint: ROWS= and TABLET_ROWS= choose fewer, DIR= another folder\n' \
			"$most" $((most * 6 / 1000000)) "$dir" $((free / 1000000)) >&2
		exit 10
	fi
}

# measure NAME FLAG... measures, and prints the table.
measure() {
	local report=$out/growth-$1.json
	shift
	"$stele" bench --local --dir "$dir" --workloads "$workloads" --report "$report" "$@" >&2
	"$stele" bench plot "$report" --out "${report%.json}.svg"
	"$stele" bench table "$report"
}

[ -z "$rows" ] || room "$rows"
[ -z "$tablets" ] || room "$tabletRows"
[ -z "$rows" ] || measure rows --rows "$rows" "$@"
[ -z "$rows" ] || [ -z "$tablets" ] || echo
[ -z "$tablets" ] || measure tablets --rows "$tabletRows" --tablets "$tablets" "$@"
