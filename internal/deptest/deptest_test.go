package deptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/steledb/stele/"

// allowed lists the top-level directories that each one may import, besides itself, table and
// internal.
var allowed = map[string][]string{
	"cmd":      {"node", "client", "tablet", "blobfs", "raftmeta", "security"},
	"gateway":  {"client", "rpc"}, // Google's API, in front of a client
	"console":  {"client"},        // pages, in front of a client
	"node":     {"console", "gateway", "master", "tablet", "client", "blobfs", "raftmeta", "rpc", "security"},
	"master":   {"client", "blobfs", "raftmeta", "rpc"},
	"tablet":   {"client", "blobfs", "raftmeta", "rpc"},
	"client":   {"rpc", "security"},
	"blobfs":   {"rpc"},
	"raftmeta": {"rpc"},
	"rpc":      {},
	"security": {}, // identities and rights, used by servers and clients
	"table":    {},
	"internal": {"client", "rpc"}, // internal/bench and internal/webload are clients
	"test":     {"node", "client", "tablet", "raftmeta", "rpc", "security"},
}

// parts lists, for the packages of a directory that has been divided, the siblings that each one may
// import. The parent imports any of them.
var parts = map[string]map[string][]string{
	"blobfs": {
		"local":    {"logproto"},
		"place":    {},
		"logproto": {},
		"api":      {"local", "logproto"},
		"members":  {"local", "place", "api"},
		"gc":       {"local", "logproto", "api", "members"},
		"replog":   {"local", "logproto", "place", "api", "members"},
		"repair":   {"local", "logproto", "place", "api", "members"},
	},
	"tablet": {
		"ikey":            {},
		"memtable":        {},
		"commitlog":       {},
		"sstable":         {"sstable/twopass"},
		"sstable/twopass": {},
		"latch":           {},
		"sched":           {},
		"budget":          {"sstable"},
		"deletion":        {},
		"heat":            {},
		"gcpolicy":        {},
		"tombstone":       {},
		"storage":         {"commitlog", "sstable"},
		"logbody":         {"ikey"},
		"changes":         {"ikey", "logbody", "sstable", "tombstone"},
		"replay":          {"changes", "ikey", "logbody", "memtable", "sstable", "storage"},
		"sortedrun":       {"commitlog", "ikey", "logbody", "sstable", "storage"},
	},
}

// only lists libraries that a single top-level directory may import, and why.
var only = []struct{ path, part, why string }{
	{"github.com/hashicorp/raft", "raftmeta", "the others see files with generations, not Raft"},
	{"github.com/hashicorp/memberlist", "node", "gossip is a hint that only the node interprets"},
	{"github.com/spf13/cobra", "cmd", "only commands know flags"},
	{"google.golang.org/grpc", "gateway", "the other packages speak the cluster's own protocol"},
	{"github.com/minio/minio-go/v7", "internal", "backups know objects by their names (internal/s3store)"},
	{"github.com/prometheus/client_golang", "node", "packages count in plain atomics; the node exports them"},
}

// simulation lists packages that stand in for the network and the disk in tests. They may import the libraries in only, to offer the
// interfaces of those.
var simulation = []string{module + "test/simulation/simdisk", module + "test/simulation/simnet", module + "test/simulation/bigcluster"}

// never lists what a directory and its packages must not import, and why.
var never = []struct{ dir, path, why string }{
	{"raftmeta/fsm", "github.com/hashicorp/raft", "the state machine depends only on commands"},
	{"raftmeta/fsm", module + "raftmeta/session", "the state machine depends only on commands"},
	{"raftmeta/fsm", module + "raftmeta/lease", "the state machine depends only on commands"},
	{"raftmeta/fsm", module + "raftmeta/storage", "the state machine depends only on commands"},
	{"raftmeta/storage", module + "raftmeta/lease", "files know nothing of sessions"},
	{"raftmeta/lease", module + "raftmeta/storage", "the lock service proposes commands through a Replica"},
	{"raftmeta/lease", "github.com/hashicorp/raft", "the lock service proposes commands through a Replica"},
}

// commands lists what the packages of the command line may import of each other, besides cmd/stele/cli.
var commands = map[string][]string{
	"cli":         {},
	"cli/clitest": {},
	"config":      {},
	"serve":       {"config"},
	"tools":       {"config"}, // stele.yaml(5)
	"access":      {}, "backups": {}, "bench": {}, "bigtable": {}, "blobs": {}, "cluster": {}, "locks": {}, "replications": {}, "rows": {}, "tables": {},
}

// TestCommands: the groups of commands are independent of each other, and only the program imports them.
func TestCommands(t *testing.T) {
	const program = module + "cmd/stele"
	for _, p := range packages(t) {
		name, isCommand := strings.CutPrefix(p.ImportPath, program+"/")
		may, known := commands[name]
		if isCommand && !known {
			t.Errorf("%s is not a known package of commands: see cmd/stele/doc.go", p.ImportPath)
		}
		for _, imp := range p.Imports {
			to, ok := strings.CutPrefix(imp, program+"/")
			if ok && p.ImportPath != program && to != "cli" && !slices.Contains(may, to) {
				t.Errorf("%s imports %s: groups of commands share only cmd/stele/cli", p.ImportPath, imp)
			}
		}
	}
}

// services lists, for each package below node, the others that it may import, from the bottom up: a package can be read, tested and
// replaced without those that are not listed.
var services = map[string][]string{
	"advertise":     {},
	"budget":        {},
	"formation":     {},
	"hostgate":      {},
	"masterkeys":    {},
	"metric":        {},
	"namespace":     {},
	"peers":         {},
	"quota":         {},
	"backup":        {},
	"raftstreams":   {},
	"reply":         {},
	"results":       {},
	"authz":         {"namespace", "reply"},
	"gossip":        {"advertise"},
	"identity":      {"formation"},
	"metarows":      {"namespace"},
	"removal":       {"namespace"},
	"stages":        {"namespace"},
	"certs":         {"authz"},
	"changes":       {"authz", "namespace", "reply"},
	"disks":         {"identity"},
	"lockclient":    {"gossip", "identity", "metric", "namespace"},
	"lockserver":    {"authz", "metric", "namespace", "reply"},
	"members":       {"formation", "gossip", "identity", "metric", "namespace", "removal"},
	"method":        {"authz", "reply"},
	"quorum":        {"gossip"},
	"roots":         {"backup", "metarows", "namespace"},
	"verify":        {"identity", "masterkeys"},
	"authority":     {"authz", "certs", "changes", "method", "namespace", "removal", "reply", "stages"},
	"blobs":         {"authz", "backup", "disks", "members", "metarows", "method", "metric", "namespace", "peers", "reply", "results", "roots"},
	"blockstore":    {"budget", "identity", "members", "namespace"},
	"command":       {"authz", "method", "namespace", "reply"},
	"dialer":        {"authz", "certs", "method"},
	"dispatch":      {"authz", "changes", "method", "peers", "reply"},
	"gossipkey":     {"authz", "changes", "method", "namespace", "removal", "reply", "stages"},
	"locate":        {"authz", "method", "namespace", "reply"},
	"monitor":       {"advertise", "authz", "certs", "metric"},
	"nodeadmin":     {"authz", "changes", "gossip", "identity", "members", "method", "namespace", "peers", "removal", "reply"},
	"actfor":        {"authz", "method", "reply"},
	"tokenauth":     {"advertise", "authz", "hostgate", "method"},
	"bigtableport":  {"actfor", "advertise", "authz", "metric", "tokenauth"},
	"signin":        {"actfor", "advertise", "authz", "certs"},
	"keyheat":       {"authz", "metarows", "method", "namespace", "peers", "reply"},
	"usage":         {"authz", "metarows", "method", "metric", "namespace", "peers", "reply"},
	"users":         {"authz", "certs", "changes", "method", "namespace", "reply"},
	"assign":        {"backup", "command", "metarows", "namespace", "roots"},
	"enrol":         {"advertise", "authz", "certs", "changes", "command", "formation", "hostgate", "identity", "method", "namespace", "removal", "reply"},
	"quotas":        {"authz", "changes", "command", "method", "metric", "namespace", "peers", "quota", "reply"},
	"auditlog":      {"authz", "method", "reply"},
	"otlp":          {},
	"slowlog":       {"authz", "method", "reply"},
	"recentlog":     {"authz", "method", "reply"},
	"clients":       {"authz", "method", "metric", "reply"},
	"activity":      {"authz", "method", "metric", "reply"},
	"status":        {"authz", "blobs", "disks", "gossip", "identity", "members", "method", "metric", "reply"},
	"tabletadmin":   {"authz", "command", "members", "metarows", "method", "namespace", "peers", "reply"},
	"tabletserver":  {"authz", "budget", "command", "metarows", "method", "namespace", "reply", "roots"},
	"voter":         {"command", "gossip", "identity", "namespace", "raftstreams"},
	"candidate":     {"assign", "members", "namespace"},
	"dataapi":       {"authz", "method", "metric", "quota", "quotas", "reply", "results"},
	"bulk":          {"authz", "method", "metric", "quota", "quotas", "reply"},
	"tables":        {"authz", "changes", "metarows", "method", "namespace", "quota", "quotas", "reply", "schemabundles", "tabletadmin", "users"},
	"backups":       {"authz", "backup", "changes", "method", "metric", "namespace", "reply", "results", "roots", "tabletadmin", "tables"},
	"replication":   {"authz", "changes", "method", "metric", "namespace", "remote", "reply", "tables"},
	"registry":      {"authz", "changes", "method", "namespace", "remote", "reply"},
	"appprofiles":   {"authz", "changes", "method", "namespace", "reply"},
	"schemabundles": {"authz", "changes", "method", "namespace", "reply"},
	"remote":        {},
}

type listed struct {
	ImportPath string
	Dir        string
	Imports    []string
	Doc        string
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		part := partOf(p.ImportPath)
		may, known := allowed[part]
		if !known {
			t.Errorf("%s: %q is not a known top-level directory: see ARCHITECTURE.md", p.ImportPath, part)
			continue
		}
		for _, imp := range p.Imports {
			for _, o := range only {
				if o.part == "gateway" && part == "test" { // programs of test/bigtable are its clients
					continue
				}
				if (imp == o.path || strings.HasPrefix(imp, o.path+"/")) && part != o.part && !slices.Contains(simulation, p.ImportPath) {
					t.Errorf("%s imports %s: only %s may, because %s", p.ImportPath, imp, o.part, o.why)
				}
			}
			for _, n := range never {
				if within(p.ImportPath, module+n.dir) && within(imp, n.path) {
					t.Errorf("%s imports %s: %s may not, because %s", p.ImportPath, imp, n.dir, n.why)
				}
			}
			if !strings.HasPrefix(imp, module) {
				continue
			}
			to := partOf(imp)
			if to != part && to != "table" && to != "internal" && !slices.Contains(may, to) {
				t.Errorf("%s imports %s: %s → %s is not allowed", p.ImportPath, imp, part, to)
			}
			if err := sibling(p.ImportPath, imp); err != nil {
				t.Error(err)
			}
			conformance := strings.HasSuffix(p.ImportPath, "test") // suites run by a parent's implementations
			if to == part && part != "internal" && strings.HasPrefix(p.ImportPath, imp+"/") && !conformance {
				t.Errorf("%s imports its parent %s: only parents import children", p.ImportPath, imp)
			}
		}
	}
}

// sibling returns an error if one part of a divided directory imports another that it may not.
// Packages for tests may import any.
func sibling(from, to string) error {
	dir, name, _ := strings.Cut(strings.TrimPrefix(from, module), "/")
	other, divided := strings.CutPrefix(to, module+dir+"/")
	if parts[dir] == nil || !divided || strings.HasSuffix(name, "test") || name == "" {
		return nil
	}
	if may, known := parts[dir][name]; !known || !slices.Contains(may, other) {
		return fmt.Errorf("%s imports %s: of its siblings it may import %v", from, to, may)
	}
	return nil
}

// TestServices holds the services of a node to the packages of node that they may import.
func TestServices(t *testing.T) {
	for _, p := range packages(t) {
		name, below := strings.CutPrefix(p.ImportPath, module+"node/")
		if !below || strings.HasSuffix(name, "test") {
			continue
		}
		may, known := services[name]
		if !known {
			t.Errorf("%s: enter in services what it may import of node's packages", p.ImportPath)
		}
		for _, imp := range p.Imports {
			if to, ok := strings.CutPrefix(imp, module+"node/"); ok && !slices.Contains(may, to) {
				t.Errorf("%s imports %s: it may import only %v of node's packages", p.ImportPath, imp, may)
			}
		}
	}
}

// TestProgramsImportNoTestPackages: packages that import testing are imported only by packages that
// do so too, not by programs.
func TestProgramsImportNoTestPackages(t *testing.T) {
	forTests := make(map[string]bool)
	for _, p := range packages(t) {
		forTests[p.ImportPath] = slices.Contains(p.Imports, "testing")
	}
	if !forTests[module+"internal/wire/wiretest"] {
		t.Fatal("wiretest is not recognized as a test package: is the detection broken?")
	}
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			if forTests[imp] && !forTests[p.ImportPath] {
				t.Errorf("%s imports %s, which is for tests only", p.ImportPath, imp)
			}
		}
	}
}

// TestDocs: each package has a package comment.
func TestDocs(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.Imports) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// TestArchitecturePage: ARCHITECTURE.md names each package, and defines each invariant that a
// comment, a page or a test cites as "I" and a number.
func TestArchitecturePage(t *testing.T) {
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages(t) {
		if path := strings.TrimPrefix(p.ImportPath, module); !strings.Contains(string(page), "`"+path+"/`") {
			t.Errorf("ARCHITECTURE.md does not name `%s/`", path)
		}
	}
	cited := regexp.MustCompile(`\bI[0-9]+\b`)
	places := make(map[string]string)
	err = filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "../.." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); ext != ".go" && ext != ".md" {
			return nil
		}
		b, err := os.ReadFile(path)
		for _, name := range cited.FindAllString(string(b), -1) {
			places[name] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(places) < 10 {
		t.Fatalf("only %d invariants are cited: is the pattern broken?", len(places))
	}
	for name, path := range places {
		if !strings.Contains(string(page), "\n| "+name+" | ") {
			t.Errorf("%s cites %s, which ARCHITECTURE.md does not define", path, name)
		}
	}
}

// TestFileSizes bounds the length of files.
func TestFileSizes(t *testing.T) {
	for _, p := range packages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(b), "\n"); n > 1000 || n > 600 && !strings.HasSuffix(f, "_test.go") {
				t.Errorf("%s has %d lines: does it hold one noun?", f, n)
			}
		}
	}
}

// within reports whether a package is dir or one of the packages in it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func partOf(path string) string {
	part, _, _ := strings.Cut(strings.TrimPrefix(path, module), "/")
	return part
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,Doc", module+"...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
