package formation

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/steledb/stele/internal/vfs"
)

const peersPath = "/data/peers"

func newPeersFile(t *testing.T) (*vfs.Mem, *peersFile) {
	t.Helper()
	mem := vfs.NewMem(vfs.MemOptions{})
	if err := errors.Join(mem.MkdirAll("/data"), mem.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	return mem, &peersFile{fs: mem, path: peersPath}
}

// TestPeersPowerLoss: F7, with a power loss at each disk operation of a write.
func TestPeersPowerLoss(t *testing.T) {
	old, now := []Peer{{ID: "a", RPC: "h:1"}}, []Peer{{ID: "a", RPC: "h:1"}, {ID: "b", RPC: "h:2"}}
	for cut := int64(1); ; cut++ {
		lost := false
		for seed := range uint64(20) {
			mem, f := newPeersFile(t)
			if err := f.write("c1", old); err != nil {
				t.Fatal(err)
			}
			first := mem.Ops()
			mem.SetHook(func(op vfs.Op) error {
				if op.N-first >= cut {
					lost = true
					return vfs.ErrPowerCut
				}
				return nil
			})
			err := f.write("c1", now)
			after := &peersFile{fs: mem.Crash(rand.New(rand.NewPCG(uint64(cut), seed))), path: peersPath}
			got, readErr := after.read("c1")
			if readErr != nil || !slices.Equal(got, now) && (err == nil || !slices.Equal(got, old)) {
				t.Fatalf("F7: power loss at operation %d, seed %d: write returned %v, then the file has %v, %v", cut, seed, err, got, readErr)
			}
		}
		if !lost {
			return
		}
	}
}

// TestPeersDiskFull: a failed write leaves readable peers, and the next one is done even if the
// peers are those of the last success.
func TestPeersDiskFull(t *testing.T) {
	old, now := []Peer{{ID: "a", RPC: "h:1"}}, []Peer{{ID: "b", RPC: "h:2"}}
	for _, kind := range []vfs.OpKind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpSyncDir} {
		mem, f := newPeersFile(t)
		if err := f.write("c1", old); err != nil {
			t.Fatal(err)
		}
		mem.SetHook(func(op vfs.Op) error {
			if op.Kind == kind {
				return syscall.ENOSPC
			}
			return nil
		})
		if err := f.write("c1", now); !vfs.IsDiskFull(err) {
			t.Errorf("%v fails: write returned %v", kind, err)
		}
		if got, err := f.read("c1"); err != nil || !slices.Equal(got, old) && !slices.Equal(got, now) {
			t.Errorf("F7: %v fails: the file has %v, %v", kind, got, err)
		}
		mem.SetHook(nil)
		if err := f.write("c1", old); err != nil {
			t.Fatal(err)
		}
		if got, err := f.read("c1"); err != nil || !slices.Equal(got, old) {
			t.Errorf("after %v failed, the next write left %v, %v", kind, got, err)
		}
	}
}
