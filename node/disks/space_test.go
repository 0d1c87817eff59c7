package disks

import (
	"errors"
	"math"
	"syscall"
	"testing"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
)

// TestRoomToVote: a node with less free disk space than its reserve does not become a voter.
func TestRoomToVote(t *testing.T) {
	for reserve, memory := range map[int64]bool{1: true, math.MaxInt64: false} {
		s := New(Config{FS: vfs.OS(), Dirs: []string{t.TempDir()}, ReserveBytes: reserve})
		err := s.CheckVoteSpace()
		if memory != (err == nil) {
			t.Errorf("with a reserve of %d: %v", reserve, err)
		}
		if !memory && !errors.Is(err, rpc.CodeUnavailable) {
			t.Errorf("refused with %v, want that it may be asked again", err)
		}
	}
}

// TestSpace: directories of one file system count once, and those whose block store has failed do not count.
func TestSpace(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	retired := map[string]error{}
	s := New(Config{FS: vfs.OS(), Dirs: []string{a, b}, ReserveBytes: 1, Retired: func() map[string]error { return retired }})
	disk, err := vfs.DiskOf(vfs.OS(), a)
	want := disk.TotalBytes
	if total, free := s.Space(); err != nil || total != want || free <= 0 || free >= total {
		t.Errorf("%d of %d bytes are free, want a total of %d", free, total, want)
	}
	retired[identity.BlobFolder(a)] = syscall.EIO
	if total, _ := s.Space(); total != want {
		t.Errorf("with one directory the total is %d, want %d", total, want)
	}
	retired[identity.BlobFolder(b)] = syscall.EIO
	if total, free := s.Space(); total != 0 || free != 0 {
		t.Errorf("without directories %d of %d bytes are free", free, total)
	}
	s.ReserveBytes, s.Retired = math.MaxInt64, func() map[string]error { return nil }
	if _, free := s.Space(); free != 0 {
		t.Errorf("%d bytes are free beside the reserve", free)
	}
}

// TestSpaceInMemory: the disks of another file system are those that it has.
func TestSpaceInMemory(t *testing.T) {
	mem := vfs.NewMem(vfs.MemOptions{Capacity: 1000})
	mem.SetCapacity("/b", 500)
	s := New(Config{FS: mem, Dirs: []string{"/a", "/b", "/c"}, Retired: func() map[string]error { return nil }})
	if got := s.Reserve(); got != 50 {
		t.Errorf("the reserve is %d bytes, want 50", got)
	}
	if total, free := s.Space(); total != 1500 || free != 1400 {
		t.Errorf("%d of %d bytes are free, want 1400 of 1500", free, total)
	}
}
