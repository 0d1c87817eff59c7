package identity_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/identity"
)

func inspect(t *testing.T, dirs ...string) *identity.Folders {
	t.Helper()
	f, err := identity.Inspect(dirs)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func rejected(t *testing.T, dirs []string, texts ...string) {
	t.Helper()
	_, err := identity.Inspect(dirs)
	if err == nil {
		t.Fatalf("%q were taken", dirs)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

// makeLog creates a Raft log in a folder.
func makeLog(t *testing.T, dir string) {
	t.Helper()
	ok(t, os.MkdirAll(dir, 0o700))
	ok(t, os.WriteFile(filepath.Join(dir, "raft.db"), []byte("log"), 0o600))
}

func TestFreshNodeKeepsItsPromise(t *testing.T) {
	a, b := t.TempDir(), filepath.Join(t.TempDir(), "new")
	f := inspect(t, a, b)
	if !f.Fresh() || f.Node == "" || f.Voter() {
		t.Fatalf("a new node is %+v", f.Identity)
	}
	ok(t, f.Begin())
	want := formation.State{Attempt: 3, Promise: &formation.Promise{Founder: "n1", Attempt: 7, RPC: "h:1"}}
	ok(t, f.Save(want))
	for _, dirs := range [][]string{{a, b}, {b, a}, {a}, {b}} {
		g := inspect(t, dirs...)
		if g.Node != f.Node || !g.Fresh() || g.Starts != 1 {
			t.Errorf("%q: got %+v", dirs, g.Identity)
		}
		if d := cmp.Diff(want, g.State()); d != "" {
			t.Errorf("%q: %s", dirs, d)
		}
	}
}

// TestMemberIsNoVoter: a member without a vote needs no log, but all its folders.
func TestMemberIsNoVoter(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	f := inspect(t, a, b)
	ok(t, f.Begin())
	ok(t, f.Join("c1"))
	ok(t, f.Join("c1"))
	if err := f.Join("c2"); err == nil {
		t.Error("joined a second cluster")
	}
	if err := f.Found("c2"); err == nil {
		t.Error("founded a second cluster")
	}
	f = inspect(t, b, a)
	if f.Cluster != "c1" || f.Voter() || f.RaftDir() != "" {
		t.Errorf("got %+v", f.Identity)
	}
	rejected(t, []string{b}, a, "give all its folders")
	makeLog(t, filepath.Join(b, "raft"))
	rejected(t, []string{a, b}, b, "is no voter")
}

// TestVoterComesAndGoes becomes a voter and ends voting, with a restart after each step.
func TestVoterComesAndGoes(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	f := inspect(t, a, b)
	ok(t, f.Join("c1"))
	for range 2 {
		dir, err := f.BeginVoter(5)
		ok(t, err)
		f = inspect(t, a, b) // the log may be missing
		if f.Voter() || f.RaftDir() != dir || f.RaftEpoch != 5 {
			t.Fatalf("got %+v", f.Identity)
		}
		if err := f.CompleteVoter(); err == nil {
			t.Fatal("a voter without a log")
		}
		makeLog(t, dir)
		f = inspect(t, b, a)
		again, err := f.BeginVoter(5) // no voter counts on an incomplete log
		ok(t, err)
		if _, err := os.Stat(again); err == nil || again != dir {
			t.Fatalf("log in %s, then %s: %v", dir, again, err)
		}
		makeLog(t, again)
		ok(t, f.CompleteVoter())
		f = inspect(t, b, a)
		if !f.Voter() {
			t.Fatalf("got %+v", f.Identity)
		}
		ok(t, os.Rename(dir, dir+".away"))
		rejected(t, []string{a, b}, "log is missing")
		ok(t, os.Rename(dir+".away", dir))
		ok(t, f.EndVoter())
		f = inspect(t, a, b)
		if f.Voter() || f.Raft != "" || f.RaftAside != "" {
			t.Fatalf("got %+v", f.Identity)
		}
		if _, err := os.Stat(filepath.Join(asideOf(t, dir), "raft.db")); err != nil {
			t.Fatal(err)
		}
		ok(t, os.RemoveAll(asideOf(t, dir)))
	}
}

// TestInterruptedChange makes each change with a copy of one folder from before it, as if the write
// to all folders had been interrupted.
func TestInterruptedChange(t *testing.T) {
	for _, change := range []struct {
		name    string
		prepare func(*identity.Folders) error
		make    func(*identity.Folders) error
		holds   func(*identity.Folders) bool
	}{
		{"found", nil, func(f *identity.Folders) error { return f.Found("c1") },
			func(f *identity.Folders) bool {
				return f.Founding && f.Voter() && f.Cluster == "c1" && f.RaftDir() != ""
			}},
		{"join", nil, func(f *identity.Folders) error { return f.Join("c1") },
			func(f *identity.Folders) bool { return !f.Founding && f.Cluster == "c1" }},
		{"promise", nil, func(f *identity.Folders) error { return f.Save(formation.State{Attempt: 1, Active: true}) },
			func(f *identity.Folders) bool { return f.State().Active }},
		{"founded", func(f *identity.Folders) error {
			if err := f.Found("c1"); err != nil {
				return err
			}
			if err := os.MkdirAll(f.RaftDir(), 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(f.RaftDir(), "raft.db"), []byte("log"), 0o600)
		}, func(f *identity.Folders) error { return f.Founded() }, func(f *identity.Folders) bool { return f.Voter() && !f.Founding }},
	} {
		t.Run(change.name, func(t *testing.T) {
			a, b := t.TempDir(), t.TempDir()
			f := inspect(t, a, b)
			ok(t, f.Begin())
			if change.prepare != nil {
				ok(t, change.prepare(f))
			}
			before, after := map[string][]byte{}, map[string][]byte{}
			read := func(into map[string][]byte) {
				for _, dir := range []string{a, b} {
					text, err := os.ReadFile(filepath.Join(dir, "identity"))
					ok(t, err)
					into[dir] = text
				}
			}
			read(before)
			ok(t, change.make(f))
			read(after)
			for _, dir := range []string{a, b} {
				ok(t, os.WriteFile(filepath.Join(dir, "identity"), before[dir], 0o600))
				for _, dirs := range [][]string{{a, b}, {b, a}} {
					if g := inspect(t, dirs...); !change.holds(g) {
						t.Errorf("without the write to %s: got %+v", dir, g.Identity)
					}
				}
				ok(t, os.WriteFile(filepath.Join(dir, "identity"), after[dir], 0o600))
			}
		})
	}
}

// TestSetAsideResumed: a node that was killed in EndVoter completes it at its next start.
func TestSetAsideResumed(t *testing.T) {
	a := t.TempDir()
	f := inspect(t, a)
	ok(t, f.Join("c1"))
	dir, err := f.BeginVoter(0)
	ok(t, err)
	makeLog(t, dir)
	ok(t, f.CompleteVoter())
	ok(t, f.EndVoter())
	ok(t, os.Rename(asideOf(t, dir), dir)) // as if the rename had not happened
	f.RaftAside = f.Identity.Folders[0].ID
	ok(t, f.Write())
	f = inspect(t, a)
	if f.Voter() {
		t.Fatalf("got %+v", f.Identity)
	}
	ok(t, f.Begin())
	if _, err := os.Stat(dir); err == nil {
		t.Error("the log is still there")
	}
	inspect(t, a)
}

// TestVersionOne: files of version 1 are read.
func TestVersionOne(t *testing.T) {
	a := t.TempDir()
	text := `{"format":1,"cluster":"c1","node":"n1","folder":"f1","raft":"f1","folders":[{"id":"f1","path":"/old"}]}`
	ok(t, os.WriteFile(filepath.Join(a, "identity"), []byte(text), 0o600))
	rejected(t, []string{a}, "log is missing")
	makeLog(t, filepath.Join(a, "raft"))
	f := inspect(t, a)
	if !f.Voter() || f.Cluster != "c1" || f.Node != "n1" {
		t.Errorf("got %+v", f.Identity)
	}
	ok(t, f.Begin())
	if f = inspect(t, a); !f.Voter() || f.Format != 3 {
		t.Errorf("got %+v", f.Identity)
	}
	for _, text := range []string{`{"format":4}`, `{"format":1,"node":"n1","folder":"f1"}`, `{`} {
		ok(t, os.WriteFile(filepath.Join(a, "identity"), []byte(text), 0o600))
		rejected(t, []string{a}, "identity")
	}
}
