# make build       build bin/stele
# make test        all tests that a change must pass (under 15 minutes on 2 cores)
# make test-short  the quick ones (under 2 minutes)
# make check       format, vet, staticcheck, import rules, style and docs, race detector, known vulnerabilities (VULNDB=URL: a mirror)
# make demo        a cluster loads real pages while its leader is killed: see scripts/demo.sh
# make bench       the paper's six workloads against a new node
# make bench-growth  cost by number of rows and tablets: see scripts/bench-growth.sh
# make bench-nodes   the six workloads on one node and on three: see scripts/bench-nodes.sh
# make bench-tls     the six workloads with and without certificates: see scripts/bench-tls.sh
# make bench-compaction   reads with and without major compactions: see scripts/bench-compaction.sh
# make bench-policies     write, read and space cost of compaction policies: see scripts/bench-policies.sh
# make bench-compression  compression ratios of pages: see scripts/bench-compression.sh
# make package       build the Debian package in dist/
# make test-package  test it on a throw-away host with systemd (needs root)
# make test-bigtable [CLIENTS=go,java]  Google's clients of Cloud Bigtable, HBase's API and Apache Beam, while a node is killed: see test/bigtable/clients
# make test-ansible  test the playbooks of ansible/ on throw-away hosts, under load (needs root; at most 15 minutes)
# make availability  measure how long tablets are unavailable: see test/availability
# make soak T=1h     long random fault runs, FAULTS=500 of them at a time
# make simulate SEEDS=1000 [SEED=n]  whole clusters in simulated time, all operations and faults: see test/simulation/DESIGN.md
# make scale NODES=10,30,100  what clusters of growing size take and cost, in simulated time: see test/simulation/scale
# make fuzz T=10m    every fuzz target, T each
# make mutants P="security/acl rpc"  plant small mistakes into these packages, one at a time, and count those that tests detect
# make mutants P=rpc SAMPLE=50       50 random mutants of each package, with a confidence interval; SEED=S repeats a sample
# make hostile N=1000000  N hostile frames to every port of a node, half of them with credentials; then attacks by users with few
#                         rights or none (20 minutes more). Judges memory, and the latency of another user's reads

SHELL      := bash
GO         ?= go
T          ?= 10m
N          ?= 1000000
SEEDS      ?= 1000
NODES      ?= 10,30,100
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS    := -X github.com/steledb/stele/node.version=$(VERSION)
STATICCHECK = $(GO) tool -modfile=tools/go.mod staticcheck
GOVULNCHECK = $(GO) tool -modfile=tools/vuln/go.mod govulncheck
VULNDB     ?= https://vuln.go.dev

.PHONY: build test test-short check demo bench bench-growth bench-nodes bench-tls bench-compaction bench-policies bench-compression availability package test-package test-bigtable test-ansible soak simulate scale fuzz mutants hostile clean network promtool browser

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/stele ./cmd/stele

test: build network promtool browser
	$(GO) vet ./...
	$(GO) test -vet=off -timeout 20m ./test/limits # alone, since it judges memory and latency
	$(GO) test -vet=off -timeout 20m ./test/faults ./node ./test/simulation ./... # what waits longest begins first
	scripts/need.sh 'python3 -c "import venv, ensurepip"' python3 python3-venv
	scripts/need.sh 'node --version && npm --version' nodejs npm
	test/specclient/run.sh

test-short: network
	$(GO) test -short -timeout 2m ./...

check: network
	@files=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$files" ]; then echo "not formatted: $$files"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...
	$(GO) test ./internal/deptest/
	scripts/need.sh 'python3 -c "import json"' python3
	python3 -B scripts/mutants/accepted.py scripts/mutants/accepted
	$(GO) test -race -short ./...
	$(GO) mod verify >/dev/null
	$(GO) mod tidy -diff
	$(GOVULNCHECK) -db $(VULNDB) ./...

demo: build
	scripts/demo.sh

bench: build
	bin/stele bench --local --rows 1000000

bench-growth: build
	scripts/bench-growth.sh

bench-nodes: build
	scripts/bench-nodes.sh

bench-tls: build
	scripts/need.sh 'python3 -c "import json"' python3
	scripts/bench-tls.sh

bench-compaction: build
	scripts/need.sh 'python3 -c "import json"' python3
	scripts/bench-compaction.sh

bench-policies:
	scripts/need.sh 'python3 -c "import json"' python3
	GO=$(GO) scripts/bench-policies.sh

bench-compression:
	GO=$(GO) scripts/bench-compression.sh $(CORPUS)

package:
	GO=$(GO) scripts/package.sh dist

test-package:
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	GO=$(GO) scripts/package.sh "$$dir" && scripts/package-test.sh "$$dir"/*.deb

test-bigtable: build
	$(GO) run ./test/bigtable/clients $(if $(CLIENTS),-clients $(CLIENTS))

test-ansible:
	GO=$(GO) test/rollout/run.sh

availability: build
	$(GO) run ./test/availability

soak: build network
	FAULTS=$(FAULTS) scripts/soak.sh $(T)

simulate:
	$(GO) run ./test/simulation $(if $(SEED),-seed $(SEED),-seeds $(SEEDS))

scale:
	$(GO) run ./test/simulation/scale -nodes $(NODES)

# what test/faults makes networks with, and disks that fail
network:
	@scripts/need.sh 'ip -V' iproute2
	@scripts/need.sh 'strace -V' strace

# what ./node checks its metrics with
promtool:
	@scripts/need.sh 'promtool --version' prometheus

# what ./test/console opens pages with. Where Debian's package cannot be had, those tests state that they are skipped.
browser:
	@scripts/need.sh 'chromium --version' chromium || echo 'no Chromium: ./test/console does not test scripts and styles'

fuzz:
	scripts/fuzz.sh $(T)

mutants:
	scripts/need.sh 'python3 -c "import json"' python3
	GO=$(GO) SAMPLE=$(SAMPLE) SEED=$(SEED) scripts/mutants.sh $(P)

hostile:
	STELE_HOSTILE=$(N) $(GO) test -count=1 -v -timeout 0 -run '^TestHostilePorts$$' ./node
	STELE_HOSTILE=$(N) $(GO) test -count=1 -v -timeout 0 -run '^TestAttacks$$' ./test/limits

clean:
	rm -rf bin dist
