#!/usr/bin/env bash
# The main job on real input: loads the HTML of Debian's python3-doc into the paper's
# Webtable, reads it as in Figure 3, kills the node with SIGKILL in the middle of a
# second load, and shows that every row that was acknowledged is there.
#
# Wants Go, and Debian or Ubuntu for the pages (or DEMO_PAGES=folder of HTML). Ports are
# free ones, data is in a temporary folder; both are gone when it ends.
set -euo pipefail
cd "$(dirname "$0")/.."

base=https://docs.python.org/3/
host=org.python.docs # as rows have it
stele=bin/stele
tmp=$(mktemp -d "${TMPDIR:-/tmp}/stele-demo.XXXXXX")
node=   # process of the node
loader= # and of the second load

cleanup() {
	for pid in $loader $node; do
		kill -KILL "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

title() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
[ -t 1 ] && [ -z "${NO_COLOR:-}" ] || title() { printf '\n== %s\n' "$*"; }
fail() {
	printf '\nFAIL: %s\n' "$*" >&2
	[ ! -s "$tmp/node.log" ] || { echo "the node's log ends with:" && tail -n 20 "$tmp/node.log"; } >&2
	exit 1
}

# show prints a command, and runs it.
show() {
	printf '$ stele %s\n' "$*"
	"$stele" "$@"
}

# number reads a figure from an object in JSON: number NAME < FILE
number() { grep -o "\"$1\":[0-9]*" | head -n 1 | cut -d: -f2; }

# firstPages prints the folder of python3-doc's pages below a root, if it is there.
firstPages() {
	local dir
	for dir in "$1"/usr/share/doc/python3-doc/html "$1"/usr/share/doc/python3*/html; do
		if [ -f "$dir/index.html" ] && [ -d "$dir/library" ]; then
			echo "$dir"
			return
		fi
	done
}

# findPages sets pages, and installs python3-doc if need be.
findPages() {
	pages=${DEMO_PAGES:-$(firstPages "")}
	if [ -n "$pages" ]; then
		[ -d "$pages" ] || fail "there is no folder $pages"
		return
	fi
	command -v apt-get >/dev/null || fail "python3-doc is not here, and there is no apt-get to install it with: set DEMO_PAGES to a folder of HTML pages"
	local sudo=
	if [ "$(id -u)" -ne 0 ]; then
		sudo=$(command -v sudo) || true
	fi
	title "Installing python3-doc for its pages"
	if [ "$(id -u)" -eq 0 ] || [ -n "$sudo" ]; then
		# Small images leave /usr/share/doc out unless told otherwise.
		local install=(apt-get install -y -q --no-install-recommends -o 'Dpkg::Options::=--path-include=/usr/share/doc/python3*' python3-doc)
		{ $sudo env DEBIAN_FRONTEND=noninteractive "${install[@]}" ||
			{ $sudo apt-get update -q && $sudo env DEBIAN_FRONTEND=noninteractive "${install[@]}"; }; } >"$tmp/apt.log" 2>&1 || true
		pages=$(firstPages "")
	fi
	if [ -z "$pages" ]; then # not root, or installed before without its pages
		local package
		package=$(apt-cache depends python3-doc 2>/dev/null | sed -n 's/.*Depends: *\(python3\.[0-9]*-doc\).*/\1/p' | head -n 1)
		if [ -n "$package" ] && (cd "$tmp" && apt-get download -q "$package" && dpkg-deb -x ./"$package"_*.deb pages) >>"$tmp/apt.log" 2>&1; then
			pages=$(firstPages "$tmp/pages")
		fi
	fi
	[ -n "$pages" ] || { tail -n 5 "$tmp/apt.log" >&2 || true; fail "python3-doc could not be installed: run 'apt-get install python3-doc' as root, or set DEMO_PAGES to a folder of HTML pages"; }
}

# startNode starts a node on free ports and waits until it serves.
startNode() {
	: >"$tmp/node.log"
	"$stele" serve --data-dir "$tmp/data" --listen 127.0.0.1:0 --gossip 127.0.0.1:0 --http off --reserve 64MiB --log-format text 2>"$tmp/node.log" &
	node=$!
	local line
	for _ in $(seq 600); do
		if line=$(grep -m 1 'msg="node serves"' "$tmp/node.log"); then
			STELE_ADDR=$(sed 's/.* rpc=\([^ ]*\).*/\1/' <<<"$line")
			export STELE_ADDR
			echo "node serves at $STELE_ADDR, started in $(sed 's/.*"started in"=\([^ ]*\).*/\1/' <<<"$line")"
			return
		fi
		kill -0 "$node" 2>/dev/null || fail "the node did not start"
		sleep 0.05
	done
	fail "the node did not serve within 30 s"
}

# killNode kills the node and reaps it, so that the shell says nothing of it.
killNode() {
	{ kill -KILL "$node" && wait "$node"; } 2>/dev/null || true
	node=
}

began=$SECONDS
if [ ! -x "$stele" ]; then
	title "Building"
	go build -trimpath -o "$stele" ./cmd/stele
fi
findPages
load=(load webtable "$pages" --base-url "$base")

title "A node"
startNode

title "A Webtable of real pages"
show "${load[@]}" --table webtable --json | tee "$tmp/first.json"
cells=$(($(number anchors <"$tmp/first.json") + 2 * $(number pages <"$tmp/first.json")))

title "Figure 3: the anchors of one page, with the text of each link"
page=$host/3/library/zipapp.html
"$stele" get webtable "$page" --json >/dev/null 2>&1 || page=$("$stele" scan webtable --family contents --rows-limit 1 | head -n 1 | cut -f1)
show get webtable "$page" --family anchor | cut -f2- | cut -c-140

title "A range: the pages of one host, with their languages"
show scan webtable --prefix "$host/" --family language --rows-limit 8
printf '...\nrows of the host: %s; rows of the table: %s\n' "$("$stele" count webtable --prefix "$host" | grep -o '[0-9]*' | head -n 1)" "$("$stele" count webtable | grep -o '[0-9]*' | head -n 1)"

title "Sizes before and after compression"
show table compact webtable --major
show table describe webtable

title "A second load, cut off by kill -9 of the node"
"$stele" table create webtable2 --family contents:versions=3,group=pages,compression=zstd --family anchor --family language:versions=1 2>/dev/null
acks=$tmp/acks.jsonl
: >"$acks"
echo "\$ stele ${load[*]} --table webtable2 --ack-file acks.jsonl &"
"$stele" "${load[@]}" --table webtable2 --ack-file "$acks" 2>"$tmp/load.log" &
loader=$!
while [ "$(wc -l <"$acks")" -lt $((cells / 4)) ]; do
	kill -0 "$loader" 2>/dev/null || break
	sleep 0.01
done
echo "\$ kill -9 $node"
killNode
kill -INT "$loader" 2>/dev/null || true
if { wait "$loader"; } 2>/dev/null; then
	fail "the second load was done before the node was killed"
fi
loader=
sed 's/^/  /' "$tmp/load.log"
acked=$(wc -l <"$acks")
rows=$(cut -d'"' -f4 "$acks" | sort -u | wc -l)
echo "acknowledged when the node died: $acked of $cells cells, in $rows rows"

title "The node again, on the same data"
startNode
show load verify "$acks" --table webtable2 --json | tee "$tmp/verify.json" || fail "acknowledged rows are missing after the crash"
[ "$(number cells <"$tmp/verify.json")" -eq "$acked" ] || fail "the verification read $(number cells <"$tmp/verify.json") cells of $acked"

title "The load goes on where it was"
show "${load[@]}" --table webtable2 --ack-file "$acks" --json | tee "$tmp/second.json"
show load verify "$acks" --table webtable2 || fail "acknowledged rows are missing"
first=$("$stele" scan webtable --json | sha256sum)
second=$("$stele" scan webtable2 --json | sha256sum)
[ "$first" = "$second" ] || fail "the two tables differ"
echo "every row of webtable2 is as in webtable, which was loaded without a crash"

title "Every checksum of the stopped node's files"
{ kill -TERM "$node" && wait "$node"; } 2>/dev/null || true
node=
show check "$tmp/data" | sed "s|$tmp/||g"

printf '\nPASS: %s cells of %s rows were acknowledged before kill -9, and every one of them is there (%d s)\n' \
	"$acked" "$rows" $((SECONDS - began))
