#!/usr/bin/env bash
# The main job on real input: three nodes on this machine found a cluster, the HTML of
# Debian's python3-doc is loaded into the paper's Webtable and read as in Figure 3, and in
# the middle of a second load the node that leads the lock service, and is the master, is
# killed with SIGKILL. The others take over, and every row that was acknowledged is there.
#
# Wants Go, and Debian or Ubuntu for the pages (or DEMO_PAGES=folder of HTML). Ports are
# free ones, data is in a temporary folder; both are gone when it ends.
set -euo pipefail
cd "$(dirname "$0")/.."

base=https://docs.python.org/3/
host=org.python.docs # as rows have it
stele=bin/stele
tmp=$(mktemp -d "${TMPDIR:-/tmp}/stele-demo.XXXXXX")
declare -A node rpc gossip # by name: the process, and the addresses
loader=                    # the process of the second load

cleanup() {
	for pid in $loader "${node[@]}"; do
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
	local log
	for log in "$tmp"/n?.log; do
		[ ! -s "$log" ] || { echo "${log##*/} ends with:" && tail -n 20 "$log"; } >&2
	done
	exit 1
}

# show prints a command, and runs it.
show() {
	printf '$ stele %s\n' "$*"
	"$stele" "$@"
}

# number and text read a figure or a text from an object in JSON: number NAME < FILE
number() { grep -o "\"$1\":[0-9]*" | head -n 1 | cut -d: -f2; }
text() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d'"' -f4; }

# now prints the time in ms, seconds ms as seconds.
now() { echo $((${EPOCHREALTIME//[^0-9]/} / 1000)); }
seconds() { printf '%d.%d s' $(($1 / 1000)) $(($1 % 1000 / 100)); }

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

# freePort prints a port that nobody listens on, below those that the system gives out.
freePort() {
	local port
	while port=$((10000 + RANDOM % 20000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
	echo "$port"
}

# startNode starts a node, with further flags: startNode NAME [FLAG...]
startNode() {
	local name=$1
	shift
	: >"$tmp/$name.log"
	"$stele" serve --name "$name" --data-dir "$tmp/$name" --listen "${rpc[$name]}" --gossip "${gossip[$name]}" --http off --bigtable off \
		--memory 256MiB --reserve 64MiB --log-format text "$@" 2>"$tmp/$name.log" &
	node[$name]=$!
}

# awaitNode waits until a node serves.
awaitNode() {
	local line
	for _ in $(seq 600); do
		if line=$(grep -m 1 'msg="node serves"' "$tmp/$1.log"); then
			echo "$1 serves at ${rpc[$1]}, started in $(sed 's/.*"started in"=\([^ ]*\).*/\1/' <<<"$line")"
			return
		fi
		kill -0 "${node[$1]}" 2>/dev/null || fail "$1 did not start"
		sleep 0.05
	done
	fail "$1 did not serve within 30 s"
}

# endNode sends a signal to a node and reaps it, so that the shell says nothing of it.
endNode() {
	{ kill "-$2" "${node[$1]}" && wait "${node[$1]}"; } 2>/dev/null || true
	unset "node[$1]"
}

# await runs a command until what it prints matches, for so many seconds at most, and prints it:
# await SECONDS PATTERN COMMAND...
await() {
	local end=$((SECONDS + $1)) pattern=$2 printed
	shift 2
	while [ "$SECONDS" -lt "$end" ]; do
		printed=$("$stele" "$@" 2>&1) || true
		if grep -q "$pattern" <<<"$printed"; then
			printf '$ stele %s\n%s\n' "$*" "$printed"
			return
		fi
		sleep 0.5
	done
	printf '$ stele %s\n%s\n' "$*" "$printed"
	fail "it did not come to '$pattern'"
}

# startLoad starts the second load, or goes on with it.
startLoad() {
	"$stele" "${load[@]}" --table webtable2 --ack-file "$acks" --json >"$tmp/second.json" 2>"$tmp/load.log" &
	loader=$!
}

# followLoad waits for the end of the second load. It sets pause to the longest time without an
# acknowledgement, in ms, and again to how often the load had to be run again.
followLoad() {
	local lines t since code
	lines=$(wc -l <"$acks") since=$(now) pause=0 again=0
	while :; do
		code=running
		kill -0 "$loader" 2>/dev/null || { code=0 && wait "$loader" || code=$?; }
		t=$(now)
		if [ "$(wc -l <"$acks")" -gt "$lines" ]; then
			lines=$(wc -l <"$acks")
			[ $((t - since)) -le "$pause" ] || pause=$((t - since))
			since=$t
		fi
		case $code in
		running) sleep 0.02 ;;
		0) loader= && return ;;
		*)
			sed 's/^/  /' "$tmp/load.log"
			again=$((again + 1))
			[ "$again" -le 5 ] || fail "the load did not come through"
			echo "the load is run again, and goes on where it was"
			startLoad
			;;
		esac
	done
}

began=$SECONDS
if [ ! -x "$stele" ]; then
	title "Building"
	go build -trimpath -o "$stele" ./cmd/stele
fi
findPages
load=(load webtable "$pages" --base-url "$base")

title "Three nodes found a cluster"
names=(n1 n2 n3)
for name in "${names[@]}"; do
	rpc[$name]=127.0.0.1:$(freePort)
	gossip[$name]=127.0.0.1:$(freePort)
done
all=${rpc[n1]},${rpc[n2]},${rpc[n3]}
export STELE_ADDR=$all
for name in "${names[@]}"; do
	startNode "$name" --join "$all" --expect 3
done
for name in "${names[@]}"; do
	awaitNode "$name"
done
await 60 '^healthy: 3 of 3 voters alive' raft status

title "A Webtable of real pages"
for try in 1 2 3; do # a node that is starved of processor time may give up its lock, and the load says: again
	! show "${load[@]}" --table webtable --json || break
	[ "$try" -lt 3 ] || fail "the pages could not be loaded"
done

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
cells=$(($("$stele" table describe webtable --json | grep -o '"entries":[0-9]*' | cut -d: -f2 | tr '\n' '+') 0))

title "A second load, and kill -9 of the leader in the middle of it"
"$stele" table create webtable2 --family contents:versions=3,group=pages,compression=zstd --family anchor --family language:versions=1 2>/dev/null
"$stele" raft status --json >"$tmp/raft.json"
victim=$(text leader_name <"$tmp/raft.json")
[ -n "$victim" ] || fail "no leader is known"
server=$("$stele" table describe webtable2 --json | text node)
acks=$tmp/acks.jsonl
: >"$acks"
echo "\$ stele ${load[*]} --table webtable2 --ack-file acks.jsonl &"
startLoad
while [ "$(wc -l <"$acks")" -lt $((cells / 4)) ]; do
	kill -0 "$loader" 2>/dev/null || fail "the second load ended before the node was killed: $(tail -n 3 "$tmp/load.log")"
	sleep 0.01
done
echo "\$ kill -9 ${node[$victim]} # $victim: the leader; master is $(text master_name <"$tmp/raft.json"), and $server serves webtable2"
endNode "$victim" KILL
acked=$(wc -l <"$acks")
rows=$(cut -d'"' -f4 "$acks" | sort -u | wc -l)
echo "acknowledged when the node died: $acked of $cells cells, in $rows rows"
[ "$acked" -lt "$cells" ] || fail "the second load was done before the node was killed"
followLoad
cat "$tmp/second.json"
echo "no write was acknowledged for $(seconds "$pause"); the load was run again $again times"

title "Every acknowledged row, from the two nodes that are left"
left=()
for name in "${names[@]}"; do
	[ "$name" = "$victim" ] || left+=("$name")
done
export STELE_ADDR=${rpc[${left[0]}]},${rpc[${left[1]}]}
total=$(wc -l <"$acks")
show load verify "$acks" --table webtable2 --json | tee "$tmp/verify.json" || fail "acknowledged rows are missing after the crash"
[ "$(number cells <"$tmp/verify.json")" -eq "$total" ] || fail "the verification read $(number cells <"$tmp/verify.json") cells of $total"
first=$("$stele" scan webtable --json | sha256sum)
second=$("$stele" scan webtable2 --json | sha256sum)
[ "$first" = "$second" ] || fail "the two tables differ"
echo "every row of webtable2 is as in webtable, which was loaded without a crash"
show node list

title "The node again, on the same data"
startNode "$victim"
awaitNode "$victim"
export STELE_ADDR=$all
await 60 '^healthy: 3 of 3 nodes alive' node list
# What could not be copied to the node while it started is tried again, ever more rarely.
await 150 '^healthy: .*, each with ' blob fsck

title "Every checksum of the files of a stopped node"
endNode "$victim" TERM
show check "$tmp/$victim" | sed "s|$tmp/||g"

printf '\nPASS: kill -9 of the leader, and each of %s acknowledged cells of %s rows is there (%s were when it died); no write was acknowledged for %s (%d s)\n' \
	"$total" "$(cut -d'"' -f4 "$acks" | sort -u | wc -l)" "$acked" "$(seconds "$pause")" $((SECONDS - began))
