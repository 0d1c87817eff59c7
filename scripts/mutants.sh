#!/usr/bin/env bash
# Plants small mistakes, one at a time, into the packages that guard data and access, and runs the short tests of the
# package on each: scripts/mutants.sh [PACKAGE|FILE.go|FILE.go:LINE…]
#
# Prints the mutants that no test notices and a table, and exits with 1 if fewer than MIN percent (90) of a package's
# mutants are killed. A mutant that makes the tests hang is killed. A mutant that does not compile is not counted.
# A mutant in code that the short tests do not execute is not tried: the table has the number of these. Accepted
# survivors, with the reason, are in scripts/mutants/accepted. One whose function or line does not exist ends the run at
# once. TABLE=FILE also writes the table to a file.
#
# All mutants take hours. SAMPLE=N tries N random mutants of each package, and the table then has a 95% confidence
# interval. The first line of output has the seed; SEED=S repeats the sample of a seed. Whether a mutant is in the sample
# depends on its place, its operator and the seed alone.
#
# Gremlins lists the mutants (scripts/mutants/go runs the tests for their coverage), scripts/mutants/try.py tries them, and
# scripts/mutants/report.py prints the result.
set -euo pipefail
cd "$(dirname "$0")/.."
go=$(command -v "${GO:-go}")
min=${MIN:-90}
sample=${SAMPLE:-0}
seed=${SEED:-$RANDOM}
packages=("$@")
if [ "$sample" -gt 0 ]; then
	echo "a sample of $sample mutants of each package; to repeat it: make mutants P=\"$*\" SAMPLE=$sample SEED=$seed"
fi
if [ ${#packages[@]} -eq 0 ]; then
	packages=(
		security/acl security/token security/audit security/pki security/keydir security/rollover # rights
		node/authz node/command node/quota                                                         # rights, fencing, quotas
		raftmeta/fsm/lock.go raftmeta/lease/events.go raftmeta/session rpc table                   # leases, and decoders of input
		tablet/commitlog tablet/sstable blobfs/logproto blobfs/place                               # acknowledged data
		client/metadata master
	)
fi
python3 -B scripts/mutants/accepted.py scripts/mutants/accepted
for package in "${packages[@]}"; do
	[ -e "${package%%:*}" ] || { echo "there is no $package" >&2; exit 1; }
done
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
"$go" build -modfile=tools/mutants/go.mod -o "$state/gremlins" github.com/go-gremlins/gremlins/cmd/gremlins
results=()
for package in "${packages[@]}"; do
	package=${package#./}
	package=${package%/}
	line=
	name=$package
	if [[ $name == *.go:* ]]; then
		line=${name##*:}
		name=${name%:*}
	fi
	echo "== $package"
	folder=$name
	exclude='/' # packages in subdirectories
	run=
	case $name in
	*.go)
		folder=$(dirname "$name")
		others=$(cd "$folder" && ls -- *.go | grep -vx "$(basename "$name")" | paste -sd'|')
		exclude="/|^(${others//./\\.})\$"
		;;
	esac
	case $name in # the other tests of these packages take minutes
	raftmeta/fsm/lock.go | raftmeta/lease/events.go) run='Machine|Model|Lock|Event|Watch|Acquire|WriteWaits|CloseSession|Queue' ;;
	esac
	result=$state/${package//\//-}.json
	PATH="$PWD/scripts/mutants:$PATH" MUTANTS_GO=$go MUTANTS_STATE=$state MUTANTS_RUN=$run \
		"$state/gremlins" unleash --dry-run --workers 1 --exclude-files "$exclude" \
		--invert-logical --invert-assignments --invert-bitwise --invert-loopctrl --invert-negatives=false \
		--output "$result" "./$folder" >"$state/list" || { cat "$state/list"; exit 1; }
	python3 -B scripts/mutants/try.py "$go" "$state" "$folder" "$result" "$line" "$run" "$sample" "$seed"
	results+=("$result=$package")
done
python3 -B scripts/mutants/report.py "$min" scripts/mutants/accepted "${TABLE:-$state/table}" "${results[@]}"
