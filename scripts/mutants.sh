#!/usr/bin/env bash
# Plants small mistakes, one at a time, into the packages that guard data and access, and runs the tests of the package
# on each: scripts/mutants.sh [PACKAGE…]
#
# Prints the mutants that no test notices, and fails if fewer than MIN percent (90) of those that tests execute are
# noticed. Without arguments it takes hours: name the packages that a change is about.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
min=${MIN:-90}
packages=("$@")
if [ ${#packages[@]} -eq 0 ]; then
	packages=(
		security/acl security/token security/audit security/pki # who may do what
		node/quota                                               # how much of it
		master                                                   # which server has which tablet
		tablet/commitlog blobfs/logproto blobfs/place            # what was acknowledged, and where it is
		raftmeta/session rpc                                     # leases, and what comes from outside
	)
fi
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for package in "${packages[@]}"; do
	package=${package#./}
	echo "== $package"
	# The long random tests are left out by -short. The timeout of a mutant is a multiple of the time in which the
	# tests ran before: a mutant that makes them hang has been noticed.
	GOFLAGS=-short=true "$go" tool -modfile=tools/mutants/go.mod gremlins unleash --workers 1 --timeout-coefficient 20 \
		--output "$results/${package//\//-}.json" --output-statuses l "./$package"
done
python3 - "$min" "$results"/*.json <<'PY'
import json, sys
least, killed, lived, skipped = float(sys.argv[1]), 0, 0, 0
for name in sys.argv[2:]:
    for file in json.load(open(name))["files"]:
        for mutation in file["mutations"]:
            status = mutation["status"]
            killed += status in ("KILLED", "TIMED OUT")
            lived += status == "LIVED"
            skipped += status == "NOT COVERED"
share = 100 * killed / max(killed + lived, 1)
print(f"{killed} of {killed + lived} mutants were noticed: {share:.1f}%; {skipped} are in code that the tests of its own package do not execute")
sys.exit(share < least)
PY
