#!/usr/bin/env bash
# Runs clients that know nothing but docs/rpc.md, and those that it shows, against nodes of its own:
# test/specclient/run.sh. It wants bin/stele (make build), or STELE_BIN, python3, node and npm.
set -euo pipefail
cd "$(dirname "$0")/../.."

stele=${STELE_BIN:-bin/stele}
[ -x "$stele" ] || { echo "specclient: no $stele: run make build first" >&2; exit 1; }
command -v python3 >/dev/null || { echo "specclient: python3 is not installed: apt-get install python3 python3-venv" >&2; exit 1; }
command -v node >/dev/null && command -v npm >/dev/null || { echo "specclient: node or npm is not installed: apt-get install nodejs npm" >&2; exit 1; }

# The msgpack package, from the system if it is there, else in a folder of ours.
python=python3
if ! python3 -c 'import msgpack; assert msgpack.version >= (1,)' 2>/dev/null; then
	venv=.cache/specclient
	if ! "$venv/bin/python" -c 'import msgpack' 2>/dev/null; then
		rm -rf "$venv"
		python3 -m venv "$venv" >&2 || { echo "specclient: cannot make a virtual environment: apt-get install python3-venv, or python3-msgpack" >&2; exit 1; }
		"$venv/bin/pip" install --quiet --disable-pip-version-check -r test/specclient/requirements.txt >&2 ||
			{ echo "specclient: pip cannot install msgpack: apt-get install python3-msgpack" >&2; exit 1; }
	fi
	python=$venv/bin/python
fi

# The package @msgpack/msgpack, of the version that package-lock.json names.
npm=.cache/specclient-npm
if ! cmp -s test/specclient/package-lock.json "$npm/installed"; then
	rm -rf "$npm"
	mkdir -p "$npm"
	cp test/specclient/package.json test/specclient/package-lock.json "$npm"
	npm ci --prefix "$npm" --no-audit --no-fund --loglevel=error >&2 ||
		{ echo "specclient: npm cannot install @msgpack/msgpack" >&2; exit 1; }
	cp test/specclient/package-lock.json "$npm/installed"
fi
export SPECCLIENT_MODULES=$PWD/$npm/node_modules

tmp=$(mktemp -d "${TMPDIR:-/tmp}/stele-specclient.XXXXXX")
pids=()
cleanup() {
	for pid in "${pids[@]}"; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	rm -rf "$tmp"
}
trap cleanup EXIT

read -r -a port <<<"$("$python" -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*[s.getsockname()[1] for s in held])')"

# serve NAME ADDRESS GOSSIP starts a node, and waits until it serves.
serve() {
	"$stele" serve --data-dir "$tmp/$1" --listen "$2" --gossip "$3" --http off --bigtable off --memory 512MiB --log-level warn 2>"$tmp/$1.log" &
	pids+=($!)
	for _ in $(seq 150); do
		"$stele" status --addr "$2" --timeout 1s >/dev/null 2>&1 && return
		kill -0 "${pids[-1]}" 2>/dev/null || break
		sleep 0.1
	done
	cat "$tmp/$1.log" >&2
	echo "specclient: the node did not start" >&2
	exit 1
}

export STELE_ADDR=127.0.0.1:${port[0]}
serve open "$STELE_ADDR" "127.0.0.1:${port[1]}"
"$python" test/specclient/client_test.py || { cat "$tmp/open.log" >&2; exit 1; }

# Three nodes, whose addresses the banner has.
mkdir "$tmp/dev"
"$stele" serve --dev --nodes 3 --data-dir "$tmp/dev" --listen 127.0.0.1:0 --gossip 127.0.0.1:0 --http off --bigtable off --memory 512MiB 2>"$tmp/dev.log" </dev/null &
pids+=($!)
for _ in $(seq 1200); do
	grep -q "Ctrl-C stops all" "$tmp/dev.log" && break
	kill -0 "${pids[-1]}" 2>/dev/null || break
	sleep 0.1
done
SPECCLIENT_ADDRS=$(sed -n 's/^  n[0-9]  clients \([^ ]*\) .*/\1/p' "$tmp/dev.log" | paste -sd,)
export SPECCLIENT_ADDRS
[ -n "$SPECCLIENT_ADDRS" ] || { cat "$tmp/dev.log" >&2; echo "specclient: the cluster did not start" >&2; exit 1; }
"$python" test/specclient/cluster_test.py || { tail -n 50 "$tmp"/dev/*.log >&2; exit 1; }

export STELE_ADDR=127.0.0.1:${port[2]} STELE_CREDENTIAL=$tmp/admin.pem
"$stele" init --data-dir "$tmp/secure" --out "$STELE_CREDENTIAL" >/dev/null 2>"$tmp/init" || { cat "$tmp/init" >&2; exit 1; }
serve secure "$STELE_ADDR" "127.0.0.1:${port[3]}"
"$python" test/specclient/secure_test.py || { cat "$tmp/secure.log" >&2; exit 1; }
