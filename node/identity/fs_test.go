package identity_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/identity"
)

// TestSetAsideCrash: with a power loss at each disk operation of the end of a vote, the log is set aside as
// a whole at the next start, or its folder still has it.
func TestSetAsideCrash(t *testing.T) {
	for cut := int64(1); ; cut++ {
		mem, f := crashStart(t)
		ok(t, f.Join("c1"))
		dir, err := f.BeginVoter(1)
		ok(t, err)
		ok(t, mem.MkdirAll(dir))
		ok(t, vfs.WriteFile(mem, dir+"/raft.db", []byte("log")))
		ok(t, f.CompleteVoter())
		first, lost := mem.Ops(), false
		mem.SetHook(func(op vfs.Op) error {
			if op.N-first >= cut {
				lost = true
				return vfs.ErrPowerCut
			}
			return nil
		})
		_ = f.EndVoter()
		after := mem.Crash(rand.New(rand.NewPCG(uint64(cut), 1)))
		g, err := identity.InspectFS(after, crashDirs)
		ok(t, err)
		ok(t, g.Begin())
		log := dir + "/raft.db"
		if !g.Voter() {
			names, err := after.ReadDir(crashDirs[0])
			ok(t, err)
			i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "raft.aside.") })
			log = crashDirs[0] + "/" + names[max(i, 0)] + "/raft.db"
		}
		if b, err := vfs.ReadFile(after, log); err != nil || string(b) != "log" {
			t.Errorf("cut at %d: %s is %q, %v", cut, log, b, err)
		}
		if !lost {
			break
		}
	}
	if _, err := os.Stat(crashDirs[0]); !os.IsNotExist(err) {
		t.Errorf("on the disk: %v", err)
	}
}

// TestLockOnAnotherFileSystem: the lock is one of the file system, and creates folders there.
func TestLockOnAnotherFileSystem(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{})
	unlock, err := identity.LockFS(mem, crashDirs)
	ok(t, err)
	if _, err := identity.LockFS(mem, crashDirs[1:]); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	unlock, err = identity.LockFS(mem, crashDirs)
	ok(t, err)
	unlock()
	if _, err := os.Stat(crashDirs[0]); !os.IsNotExist(err) {
		t.Errorf("on the disk: %v", err)
	}
}
