#!/usr/bin/env bash
# Plants small mistakes, one at a time, into the packages that guard data and access, and runs the tests of the package
# on each: scripts/mutants.sh [PACKAGE|FILE.go…]
#
# Prints the mutants that no test notices and a table, and exits with 1 if fewer than MIN percent (90) of a package's
# mutants are noticed. A mutant that makes the tests hang is noticed. One that does not compile is not counted, and
# neither is one in code that the package's short tests do not execute: the table has their number. Survivors that are
# right, with the reason, are in scripts/mutants/accepted. Without arguments it takes hours: name the packages that a
# change is about. TABLE=FILE also writes the table to a file.
set -euo pipefail
cd "$(dirname "$0")/.."
go=$(command -v "${GO:-go}")
min=${MIN:-90}
packages=("$@")
if [ ${#packages[@]} -eq 0 ]; then
	packages=(
		security/acl security/token security/audit security/pki security/folder security/rollover # who may do what
		node/guard.go node/quota                                                                   # and how much of it
		raftmeta/session rpc table                                # leases, what comes from outside, and the codecs
		tablet/commitlog tablet/sstable blobfs/logproto blobfs/place # what was acknowledged, and where it is
		client/metadata master
	)
fi
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
"$go" build -modfile=tools/mutants/go.mod -o "$state/gremlins" github.com/go-gremlins/gremlins/cmd/gremlins
results=()
for package in "${packages[@]}"; do
	package=${package#./}
	package=${package%/}
	echo "== $package"
	folder=$package
	exclude='/' # the folders below
	run=
	case $package in
	*.go)
		folder=$(dirname "$package")
		others=$(cd "$folder" && ls -- *.go | grep -vx "$(basename "$package")" | paste -sd'|')
		exclude="/|^(${others//./\\.})\$"
		;;
	esac
	case $package in
	node/guard.go) run='Guard|Right|Method|Principal' ;; # the other tests of the node take minutes
	esac
	result=$state/${package//\//-}.json
	PATH="$PWD/scripts/mutants:$PATH" MUTANTS_GO=$go MUTANTS_STATE=$state MUTANTS_RUN=$run \
		"$state/gremlins" unleash --workers 1 --timeout-coefficient 10000 --exclude-files "$exclude" \
		--invert-logical --invert-assignments --invert-bitwise --invert-loopctrl --invert-negatives=false \
		--output "$result" --output-statuses l "./$folder"
	results+=("$result=$package")
done
python3 scripts/mutants/report.py "$min" scripts/mutants/accepted "${TABLE:-$state/table}" "${results[@]}"
