package local_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/vfs"
)

// testReserve and testExtent are the reserve and the extent size in these tests.
const testReserve, testExtent = 512 << 10, 64 << 10

// fullStore returns a store in folders that are full except for high-priority extents.
func fullStore(t *testing.T, folders, spares int) (*local.Store, *vfs.Mem, local.Config) {
	fs := vfs.NewMem(vfs.MemOptions{})
	cfg := crashConfig(fs, folders)
	cfg.ReserveBytes, cfg.LogExtentsReady = testReserve, spares
	for _, f := range cfg.Folders {
		fs.SetCapacity(f, 2<<20)
	}
	return mustOpen(t, cfg), fs, cfg
}

// fillStore writes blobs until one is rejected.
func fillStore(t *testing.T, s *local.Store) (all []local.Handle) {
	t.Helper()
	for {
		h, err := putBlob(s, blobtest.Bytes(1, 60_000))
		if errors.Is(err, local.ErrDiskFull) {
			return all
		}
		noError(t, err)
		all = append(all, h)
	}
}

func putVital(s *local.Store, bytes int64, data []byte) (local.Handle, error) {
	w, err := s.CreateHighPriorityAs(ctx, local.NewID(), bytes, nil)
	if err != nil {
		return local.Handle{}, err
	}
	if _, err := w.Write(data); err != nil {
		return local.Handle{}, err
	}
	return w.Seal(ctx)
}

// High-priority extents can use half of a folder's reserve, and no more.
func TestHighPriorityUsesHalfOfReserve(t *testing.T) {
	for _, c := range []struct {
		name            string
		expected, bytes int
		atMost          int64 // left above half of the reserve, when no more is taken
	}{
		{"whole extents", 1 << 30, 60_000, testExtent + 5000},
		{"small ones", 3000, 3000, 3000 + 5000},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, fs, cfg := fullStore(t, 1, -1)
			handles := fillStore(t, s)
			if free, _ := fs.FreeBytes(cfg.Folders[0]); free < testReserve || free > testReserve+testExtent+5000 {
				t.Fatalf("%d bytes are left when the folder is full", free)
			}
			data := blobtest.Bytes(2, c.bytes)
			n := 0
			for ; ; n++ {
				h, err := putVital(s, int64(c.expected), data)
				if errors.Is(err, local.ErrDiskFull) {
					break
				}
				noError(t, err)
				mustRead(t, s, h, data)
				handles = append(handles, h)
			}
			free, _ := fs.FreeBytes(cfg.Folders[0])
			if free < testReserve/2 || free > testReserve/2+c.atMost {
				t.Errorf("%d bytes free after %d high-priority blobs", free, n)
			}
			if _, err := putBlob(s, data); !errors.Is(err, local.ErrDiskFull) {
				t.Errorf("another blob: %v", err)
			}
			// Its deletion frees space for high-priority extents first, and for others once the
			// reserve is restored.
			noError(t, s.Delete(ctx, handles[len(handles)-1].ID))
			_, err := putVital(s, int64(c.expected), data)
			noError(t, err)
			if _, err := putBlob(s, data); !errors.Is(err, local.ErrDiskFull) {
				t.Errorf("another blob in the reserve: %v", err)
			}
			for _, h := range handles[:10] {
				noError(t, s.Delete(ctx, h.ID))
			}
			_, err = putBlob(s, data)
			noError(t, err)
		})
	}
}

// The reserve is used only if no folder has other free space.
func TestHighPriorityPrefersFreeSpace(t *testing.T) {
	s, fs, cfg := fullStore(t, 2, -1)
	fillStore(t, s)
	fs.SetCapacity(cfg.Folders[1], 3<<20)
	before := s.Stats().Folders[0].BlobFiles
	for range 10 {
		_, err := putVital(s, 1<<30, blobtest.Bytes(2, 60_000))
		noError(t, err)
	}
	if n := s.Stats().Folders[0].BlobFiles; n != before {
		t.Errorf("%d extents are in the folder that is full", n-before)
	}
}

// A high-priority extent whose folder fails may be written again in a folder that is full for
// others.
func TestHighPriorityMoves(t *testing.T) {
	for _, highPriority := range []bool{true, false} {
		s, fs, cfg := fullStore(t, 2, -1)
		fillStore(t, s)
		fs.SetCapacity(cfg.Folders[1], 3<<20) // there it begins
		w, err := s.CreateAs(ctx, local.NewID(), nil)
		if highPriority {
			w, err = s.CreateHighPriorityAs(ctx, local.NewID(), 1<<30, nil)
		}
		noError(t, err)
		fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite && strings.HasPrefix(op.Name, cfg.Folders[1]) {
				return syscall.EIO
			}
			return nil
		})
		data := blobtest.Bytes(2, 60_000)
		_, err = w.Write(data)
		noError(t, err)
		h, err := w.Seal(ctx)
		if highPriority {
			noError(t, err)
			mustRead(t, s, h, data)
		} else if !errors.Is(err, local.ErrDiskFull) {
			t.Errorf("normal priority: %v", err)
		}
	}
}

func openReplica(s *local.Store, seq uint64, highPriority bool) error {
	_, err := s.OpenLogReplica(ctx, local.LogOpen{Log: local.ID{9}, Server: "s1", Seq: seq, Epoch: 1, Salt: 1, HighPriority: highPriority})
	return err
}

// Extents of high-priority logs use the reserve as blobs do.
func TestHighPriorityLogs(t *testing.T) {
	s, fs, cfg := fullStore(t, 1, -1)
	fillStore(t, s)
	if err := openReplica(s, 1, false); !errors.Is(err, local.ErrDiskFull) {
		t.Fatalf("a log: %v", err)
	}
	seq := uint64(2)
	var err error
	for ; err == nil; seq++ {
		err = openReplica(s, seq, true)
	}
	if free, _ := fs.FreeBytes(cfg.Folders[0]); !errors.Is(err, local.ErrDiskFull) || seq < 6 || free < testReserve/2 || free > testReserve/2+testExtent {
		t.Errorf("%d bytes free after %d high-priority extents: %v", free, seq-3, err)
	}
	if st := s.Stats().Folders[0]; st.LogFiles != int(seq-3) || st.LogBytes != int64(seq-3)*testExtent {
		t.Errorf("%d replicas count as %d files of %d bytes", seq-3, st.LogFiles, st.LogBytes)
	}
}

// Spare log files do not bypass the reserve: a folder below its reserve gives them to high-priority
// logs only. Before a high-priority extent is rejected, spares are removed. Files that logs release
// there are removed.
func TestSparesOfFullFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fs, cfg := fullStore(t, 1, 3)
		defer s.Close()
		noError(t, openReplica(s, 1, false)) // starts the spare workers
		noError(t, openReplica(s, 2, false))
		synctest.Wait()
		spares := func() int { return s.Stats().LogExtentsReady }
		if n := spares(); n != 3 {
			t.Fatalf("%d spares", n)
		}
		fillStore(t, s)
		noError(t, openReplica(s, 3, false)) // the reserve is there still
		synctest.Wait()
		if n := spares(); n != 2 {
			t.Fatalf("%d spares in a full folder", n)
		}
		for err := error(nil); err == nil && spares() == 2; { // until only spares are left
			_, err = putVital(s, 1<<30, blobtest.Bytes(2, 60_000))
			noError(t, err)
			if free, _ := fs.FreeBytes(cfg.Folders[0]); free < testReserve/2+testExtent+5000 {
				break
			}
		}
		if n := spares(); n != 2 {
			t.Fatalf("%d spares, with space in the reserve", n)
		}
		if err := openReplica(s, 4, false); !errors.Is(err, local.ErrDiskFull) {
			t.Errorf("a log in a folder without its reserve, with spares: %v", err)
		}
		noError(t, openReplica(s, 5, true))
		if n := spares(); n != 1 {
			t.Errorf("%d spares after a high-priority log took one", n)
		}
		_, err := putVital(s, 1<<30, blobtest.Bytes(2, 60_000))
		noError(t, err)
		if n := spares(); n != 0 {
			t.Errorf("%d spares though a high-priority blob needed space", n)
		}
		before, _ := fs.FreeBytes(cfg.Folders[0])
		noError(t, s.DropLogReplica(ctx, local.ID{9}, 1))
		if after, _ := fs.FreeBytes(cfg.Folders[0]); after != before+testExtent || spares() != 0 {
			t.Errorf("a log's extent freed %d bytes and left %d spares", after-before, spares())
		}
	})
}
