#!/usr/bin/env bash
# Repeats the random tests with new seeds until the time is over: scripts/soak.sh [TIME], as 30s, 10m or 2h.
#
# About three fifths of the time are TestCluster's: first one run of many short faults, FAULTS of them (500 for an hour) as
# far as the time goes, then runs of long ones. A seventh is for seeds of the simulation, a seventh for the other tests of
# test/faults, the rest for all packages with random tests, in turn; what is under way there when the time is over is given up. Tests that
# take minutes are told by STELE_SOAK_END, in seconds since 1970, when to be done, with what they check.
#
# A failure prints the seed and the command that replays it, and ends the run, which ends with code 1; logs and histories are kept.
set -uo pipefail
cd "$(dirname "$0")/.."
time=${1:-10m}
number=${time%?}
if ! [[ $number =~ ^[1-9][0-9]*$ ]]; then time=; fi
case $time in
*h) seconds=$((number * 3600)) ;;
*m) seconds=$((number * 60)) ;;
*s) seconds=$number ;;
*)
	echo "usage: [FAULTS=500] scripts/soak.sh 30s|10m|2h" >&2
	exit 4
	;;
esac
faults=${FAULTS:-$((seconds * 500 / 3600 + 1))}
began=$(date +%s)
end=$((began + seconds))
logs=$(mktemp -d "${TMPDIR:-/tmp}/stele-soak-XXXXXX") || exit 1
export TMPDIR=$logs # of runs that fail, what they leave
GO=${GO:-go}

# finish NOTE CODE: says what was done, and ends.
finish() {
	echo "== soak: $1 after $(($(date +%s) - began)) s"
	cat "$logs"/cluster-*.log 2>/dev/null | awk '
		/ faults: / {
			sub(/.* faults: /, "")
			n = split($0, kinds, /, */)
			for (i = 1; i <= n; i++) if (match(kinds[i], / [0-9]+$/)) {
				all += substr(kinds[i], RSTART + 1)
				by[substr(kinds[i], 1, RSTART - 1)] += substr(kinds[i], RSTART + 1)
			}
			runs++
		}
		/ operations on rows, a list of / {
			for (i = 1; i <= NF; i++) if ($i == "operations") ops += $(i - 1)
			match($0, /a list of [0-9]+/)
			rows += substr($0, RSTART + 10, RLENGTH - 10)
			whole++
		}
		END {
			printf "TestCluster: %d runs, %d of them judged to the end; %d faults, %d operations on rows, %d rows of the list\n", runs, whole, all, ops, rows
			fflush()
			for (k in by) printf "  %5d  %s\n", by[k], k | "sort -k2"
		}'
	if [ "$2" = 0 ]; then
		rm -rf "$logs"
	else
		echo "logs, and histories of what failed: $logs"
	fi
	exit "$2"
}
trap 'finish interrupted 130' INT TERM

# try NAME PACKAGE LEFT ARGUMENTS...: runs tests of a package for so many seconds at most. What is not over then has hung,
# unless $late allows it.
try() {
	local name=$1 package=$2 left=$3 binary="$logs/${2//[\/.]/_}.test" code
	shift 3
	[ "$left" -gt 0 ] || return 0
	echo "== $name: $((end - $(date +%s))) s left in all"
	[ -x "$binary" ] || "$GO" test -c -o "$binary" "$package" || finish "$package cannot be built" 1
	(cd "$package" && timeout --kill-after=20 "$left" "$binary" -test.count=1 -test.timeout 0 "$@") 2>&1 |
		tee "$logs/$name.log" | grep --line-buffered -Ev '&\{Node:|^=== (RUN|PAUSE|CONT)|^PASS$|^testing: '
	code=${PIPESTATUS[0]}
	case $code in
	0) ;;
	124 | 137)
		if [ -z "${late:-}" ]; then finish "$name hung" 1; fi
		if grep -q -e '--- FAIL' "$logs/$name.log"; then finish "$name failed" 1; fi # before its time was over
		;;
	*) finish "$name failed" 1 ;;
	esac
}

# left SHARE: the seconds until so many hundredths of the time are over.
left() { echo $((began + seconds * $1 / 100 - $(date +%s))); }

STELE_FAULTS=$faults STELE_SOAK_END=$((began + seconds * 45 / 100)) \
	try cluster-1 ./test/faults "$(left 100)" -test.v -test.run '^TestCluster$'
if [ "$(left 60)" -gt 240 ]; then
	STELE_SOAK=1000 STELE_SOAK_END=$((began + seconds * 60 / 100)) \
		try cluster-2 ./test/faults "$(left 100)" -test.v -test.run '^TestCluster$'
fi
if [ "$(left 75)" -gt 30 ]; then
	echo "== simulation: $((end - $(date +%s))) s left in all"
	"$GO" run ./test/simulation -time "$(left 75)s" -from $((1000000 + (RANDOM << 15 | RANDOM))) || finish "simulation failed" 1
fi
# Their runs are long: one that begins late would take the time of what follows.
late=1 STELE_SOAK=20 STELE_SOAK_END=$((began + seconds * 85 / 100)) \
	try faults ./test/faults "$(left 88)" -test.v -test.skip '^TestCluster$'

packages=$(grep -rl --include='*_test.go' 'STELE_SOAK\|soakRuns' . | xargs -n1 dirname | sort -u | grep -v '^./test/faults$')
late=1 round=0
while [ "$(date +%s)" -lt $end ]; do
	round=$((round + 1))
	for p in $packages; do
		STELE_SOAK=${STELE_SOAK:-5} try "round-$round${p//[\/.]/-}" "$p" $((end - $(date +%s)))
	done
done
finish "no failure" 0
