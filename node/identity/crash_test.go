package identity_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/identity"
)

// crashDirs are two disks of a node. They exist only in memory.
var crashDirs = []string{"/stele-crash-test/a", "/stele-crash-test/b"}

// steps are the changes of a node from its first start to a new voter of a cluster.
var steps = []func(*identity.Folders) error{
	(*identity.Folders).Begin,
	func(f *identity.Folders) error {
		return f.Save(formation.State{Attempt: 1, Promise: &formation.Promise{Founder: "n1", Attempt: 7, RPC: "h:1"}})
	},
	func(f *identity.Folders) error { return f.Join("c1") },
	(*identity.Folders).Begin,
	func(f *identity.Folders) error { return f.SetRaftEpoch(3) },
	func(f *identity.Folders) error { _, err := f.BeginVoter(4); return err },
}

// stateAfter returns the identity after each number of steps, without the revision and the ids,
// which are random.
func stateAfter(f *identity.Folders) identity.Identity {
	i := f.Identity
	i.Revision, i.Node, i.Raft, i.Folders = 0, "", "", nil
	return i
}

// crashStart prepares two empty disks and returns the node that has not begun.
func crashStart(t *testing.T) (*vfs.Mem, *identity.Folders) {
	t.Helper()
	mem := vfs.NewMem(vfs.MemOptions{})
	ok(t, mem.MkdirAll("/stele-crash-test"))
	ok(t, mem.SyncDir("/"))
	f, err := identity.InspectFS(mem, crashDirs)
	ok(t, err)
	return mem, f
}

// wantStates returns the identity before the first step and after each one.
func wantStates(t *testing.T) []identity.Identity {
	t.Helper()
	_, f := crashStart(t)
	want := []identity.Identity{stateAfter(f)}
	for _, step := range steps {
		ok(t, step(f))
		want = append(want, stateAfter(f))
	}
	return want
}

// TestPowerLoss: ID2, with a power loss at each disk operation of a node's first changes.
func TestPowerLoss(t *testing.T) {
	want := wantStates(t)
	for cut := int64(1); ; cut++ {
		lost := false
		for seed := range uint64(20) {
			mem, f := crashStart(t)
			first := mem.Ops()
			mem.SetHook(func(op vfs.Op) error {
				if op.N-first >= cut {
					lost = true
					return vfs.ErrPowerCut
				}
				return nil
			})
			done := 0
			for done < len(steps) && steps[done](f) == nil {
				done++
			}
			after := mem.Crash(rand.New(rand.NewPCG(uint64(cut), seed)))
			dirs := slices.Clone(crashDirs)
			if seed%2 == 1 {
				slices.Reverse(dirs)
			}
			g, err := identity.InspectFS(after, dirs)
			if err != nil {
				t.Fatalf("ID2: power loss at operation %d, seed %d, after %d changes: %v", cut, seed, done, err)
			}
			got, next := stateAfter(g), want[min(done+1, len(steps))]
			if !cmp.Equal(got, want[done]) && !cmp.Equal(got, next) {
				t.Fatalf("ID2: power loss at operation %d, seed %d, after %d changes (-old +got):\n%s", cut, seed, done, cmp.Diff(want[done], got))
			}
			if done > 0 && g.Node != f.Node {
				t.Fatalf("ID2: power loss at operation %d, seed %d, after %d changes: node %s became %s", cut, seed, done, f.Node, g.Node)
			}
			if err := g.Begin(); err != nil {
				t.Fatalf("power loss at operation %d, seed %d: the next start: %v", cut, seed, err)
			}
		}
		if !lost {
			return
		}
	}
}

// TestFailedWrite: ID2, if the process lives: after a change that failed at any disk operation, the
// folders have the old or the new identity, and the change can be made again.
func TestFailedWrite(t *testing.T) {
	want := wantStates(t)
	for at := int64(1); ; at++ {
		mem, f := crashStart(t)
		first, failed := mem.Ops(), false
		mem.SetHook(func(op vfs.Op) error {
			if op.N-first == at {
				failed = true
				return syscall.EIO
			}
			return nil
		})
		for n, step := range steps {
			err := step(f)
			if err == nil {
				continue
			}
			if !errors.Is(err, syscall.EIO) {
				t.Fatalf("fault at operation %d: %v", at, err)
			}
			g, err := identity.InspectFS(mem, crashDirs)
			if err != nil {
				t.Fatalf("ID2: fault at operation %d, in change %d: %v", at, n, err)
			}
			if got := stateAfter(g); !cmp.Equal(got, want[n]) && !cmp.Equal(got, want[n+1]) {
				t.Fatalf("ID2: fault at operation %d, in change %d (-old +got):\n%s", at, n, cmp.Diff(want[n], got))
			}
			f = g // as at the next start
			ok(t, step(f))
			break
		}
		if !failed {
			return
		}
	}
}
