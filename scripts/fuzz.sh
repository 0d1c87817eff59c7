#!/usr/bin/env bash
# Runs every fuzz target of the tree, one after the other: scripts/fuzz.sh [TIME]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10m}
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do
	for target in $(grep -h '^func Fuzz' "$dir"/*_test.go | sed 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/' | sort -u); do
		echo "== $dir $target $time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -parallel 2 "$dir"
	done
done
