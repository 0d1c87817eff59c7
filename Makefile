# make build       the binary, at bin/stele
# make test        everything a change must pass (under 15 minutes on 2 cores)
# make test-short  the quick part of it (under 2)
# make check       format, vet, staticcheck, arrows and docs, race detector, known vulnerabilities (VULNDB=URL: a mirror)
# make demo        the main job on real input: see scripts/demo.sh
# make bench       the paper's six workloads against a node of its own
# make bench-growth how cost grows with rows and tablets: see scripts/bench-growth.sh
# make bench-nodes the six workloads on one node and on three: see scripts/bench-nodes.sh
# make bench-tls   the six workloads with and without certificates: see scripts/bench-tls.sh
# make bench-compaction reads alone and beside major compactions: see scripts/bench-compaction.sh
# make bench-policies what compaction policies cost in writing, reading and space: see scripts/bench-policies.sh
# make bench-compression what pages shrink to: see scripts/bench-compression.sh
# make package     the Debian package, at dist/
# make test-package tries it on a throw-away host with systemd (needs root)
# make test-ansible  tries the playbooks of ansible/ on hosts of their own, under load (needs root; 15 minutes at most)
# make availability  how long tablets are not served: see test/availability
# make soak T=1h   long random fault runs, FAULTS=500 of them in one go
# make fuzz T=10m  every fuzz target, T each
# make mutants P="security/acl rpc"  mistakes planted into the packages that guard data and access, one at a time: how many do tests notice?
# make mutants P=rpc SAMPLE=50  50 random mutants of each package, with a confidence interval; SEED=S repeats a sample
# make hostile N=1000000  hostile frames to every port of a node, N each, half of them of who is known; tells seed and peak memory;
#                  then attacks by users with few rights or none: another user's reads, and memory, are judged (20 minutes more)

SHELL      := bash
GO         ?= go
T          ?= 10m
N          ?= 1000000
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS    := -X github.com/steledb/stele/node.version=$(VERSION)
STATICCHECK = $(GO) tool -modfile=tools/go.mod staticcheck
GOVULNCHECK = $(GO) tool -modfile=tools/vuln/go.mod govulncheck
VULNDB     ?= https://vuln.go.dev

.PHONY: build test test-short check demo bench bench-growth bench-nodes bench-tls bench-compaction bench-policies bench-compression availability package test-package test-ansible soak fuzz mutants hostile clean network

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/stele ./cmd/stele

test: build network
	$(GO) vet ./...
	$(GO) test -timeout 14m ./test/faults ./node ./... # what waits longest begins first
	scripts/need.sh 'python3 -c "import venv, ensurepip"' python3 python3-venv
	scripts/need.sh 'node --version && npm --version' nodejs npm
	test/specclient/run.sh

test-short: network
	$(GO) test -short -timeout 2m ./...

check: network
	@files=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$files" ]; then echo "not formatted: $$files"; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...
	$(GO) test ./internal/arrows/
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

test-ansible:
	GO=$(GO) test/rollout/run.sh

availability: build
	$(GO) run ./test/availability

soak: build network
	FAULTS=$(FAULTS) scripts/soak.sh $(T)

# what test/faults makes networks with, and disks that fail
network:
	@scripts/need.sh 'ip -V' iproute2
	@scripts/need.sh 'strace -V' strace

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
