#!/usr/bin/env bash
# Repeats the random tests, each time with new seeds and more runs of each, until
# the time is over: scripts/soak.sh [TIME], as 30s, 10m or 2h. Tests that take minutes
# are told by STELE_SOAK_END, in seconds since 1970, when to stop. A failure prints the
# seed and the command that replays it, and ends the run.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10m}
case $time in
*h) seconds=$((${time%h} * 3600)) ;;
*m) seconds=$((${time%m} * 60)) ;;
*s) seconds=${time%s} ;;
*) echo "usage: scripts/soak.sh 30s|10m|2h" >&2; exit 4 ;;
esac
packages=$(grep -rl --include='*_test.go' 'STELE_SOAK\|soakRuns' . | xargs -n1 dirname | sort -u)
end=$((SECONDS + seconds)) round=0
STELE_SOAK_END=$(($(date +%s) + seconds))
export STELE_SOAK_END
while [ $SECONDS -lt $end ]; do
	round=$((round + 1))
	for p in $packages; do
		[ $SECONDS -lt $end ] || break
		echo "== round $round $p, $((end - SECONDS)) s left"
		STELE_SOAK=${STELE_SOAK:-20} go test -count=1 -timeout 0 "$p"
	done
done
echo "soak: $round rounds, no failure"
