package local

import (
	"context"
	"errors"
	"testing"

	"github.com/steledb/stele/internal/vfs"
)

// DropExtentIf drops an extent only for a caller with its current holder list.
func TestDropExtentIf(t *testing.T) {
	ctx := t.Context()
	mem := vfs.NewMem(vfs.MemOptions{})
	s, err := Open(Config{FS: mem, Folders: []string{"/a"}, ReserveBytes: -1, ExtentBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	write := func(id ExtentID, h Holders) {
		w, err := s.CreateExtent(ctx, id, 0)
		if err == nil {
			if err = w.Write([]byte("bytes")); err == nil {
				_, err = w.Seal(ctx, true, h)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	id, old, now := ExtentID{Blob: ID{1}}, Holders{Epoch: 1, Nodes: []string{"a", "b"}}, Holders{Epoch: 2, Nodes: []string{"b", "c"}}
	write(id, old)
	if err := s.SetHolders(ctx, id, now); err != nil {
		t.Fatal(err)
	}
	if err := s.DropExtentIf(ctx, id, old); !errors.Is(err, ErrStaleHolders) {
		t.Errorf("with an old list: %v", err)
	}
	if err := s.DropExtentIf(ctx, id, now); err != nil {
		t.Error(err)
	}
	if err := s.DropExtentIf(ctx, id, now); !errors.Is(err, ErrNoExtent) {
		t.Errorf("twice: %v", err)
	}
	// In a retired folder the file stays, but is no longer listed.
	write(id, now)
	write(ExtentID{Blob: ID{2}}, now)
	mem.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpRemove {
			return errors.New("broken")
		}
		return nil
	})
	if err := s.DropExtent(ctx, ExtentID{Blob: ID{2}}); !errors.Is(err, ErrFolderRetired) {
		t.Fatal(err)
	}
	if x, err := s.ExtentInfo(id); err != nil || !x.Retired {
		t.Errorf("in a retired folder: %+v, %v", x, err)
	}
	if err := s.DropExtentIf(context.Background(), id, now); err != nil {
		t.Error(err)
	}
	if _, err := s.ExtentInfo(id); !errors.Is(err, ErrNoExtent) {
		t.Errorf("after the drop: %v", err)
	}
}
