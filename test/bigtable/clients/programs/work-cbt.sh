#!/usr/bin/env bash
# Google's command line: see package clients. Each operation is a process.
set -euo pipefail
table=$1 seconds=$2
run() { "$CBT" -project p -instance i "$@" 2>>"$CBT.log" || { tail -n 3 "$CBT.log" >&2; return 1; }; }
run createtable "$table" families=f:maxversions=1 splits=2,4,6,8
rows=0 end=$((SECONDS + seconds))
while [ $SECONDS -lt "$end" ]; do
	key=$((rows % 10))-$(printf %07d "$rows")
	run set "$table" "$key" f:q="$key"@1000
	run lookup "$table" "$key" | grep -q "\"$key\""
	rows=$((rows + 1))
	[ $rows -ne 1 ] || echo begun
done
[ "$(run count "$table")" -eq $rows ]
run deletefamily "$table" f
run deletetable "$table"
echo "rows $rows"
