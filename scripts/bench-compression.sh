#!/usr/bin/env bash
# What blocks of real pages shrink to, and how fast, by each kind of compression:
# scripts/bench-compression.sh [FOLDER of HTML pages]
# Without a folder the pages of two Debian packages are fetched: the manuals of
# Python and PostgreSQL of Debian 12, or those named in PACKAGES. Wants Go.
set -euo pipefail
cd "$(dirname "$0")/.."
bench() {
	echo "$1:"
	${GO:-go} test ./tablet/sstable/twopass -run '^$' -bench Corpus -benchtime 1x -timeout 30m -corpus "$2" |
		awk '/ratio/ { sub(/^BenchmarkCorpus\//, "", $1); sub(/-[0-9]+$/, "", $1)
			printf "  %-26s %7.2f : 1   encode %6.0f MB/s   decode %6.0f MB/s   dictionary %4.0f KB\n", $1, $7, $5, $3, $9 }
			/FAIL|panic/ { print; exit 1 }'
}
if [ $# -gt 0 ]; then
	bench "$1" "$(realpath "$1")"
	exit
fi
command -v apt-get >/dev/null || { echo "no apt-get to fetch pages with: give a folder of HTML pages" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for package in ${PACKAGES:-python3.11-doc postgresql-doc-15}; do
	mkdir "$tmp/$package"
	(cd "$tmp/$package" && { apt-get download -q "$package" || { apt-get update -q && apt-get download -q "$package"; }; } >apt.log 2>&1 &&
		dpkg-deb -x "$package"_*.deb pages) || { cat "$tmp/$package/apt.log" >&2; exit 1; }
	bench "$package" "$tmp/$package/pages"
done
