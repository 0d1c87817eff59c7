package local

import (
	"bytes"
	"errors"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// sealExtent writes and seals an extent.
func sealExtent(t *testing.T, w *ExtentWriter, err error, data []byte, h Holders) error {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	_, err = w.Seal(t.Context(), true, h)
	return err
}

// A corrupt extent can be replaced, and stays until then. Holder lists set meanwhile are kept, and
// so is a drop.
func TestReplaceExtent(t *testing.T) {
	ctx := t.Context()
	mem := vfs.NewMem(vfs.MemOptions{})
	cfg := Config{FS: mem, Folders: []string{"/a", "/b"}, ReserveBytes: -1, ExtentBytes: 256 << 10}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	data := bytes.Repeat([]byte("0123456789"), 20_000)
	id, h := ExtentID{Blob: ID{1}}, Holders{Epoch: 3, Nodes: []string{"a", "b"}}
	if w, err := s.ReplaceExtent(ctx, id, 0); !errors.Is(err, ErrNoExtent) {
		t.Fatalf("replacing nothing: %v, %v", w, err)
	}
	for round := range 4 { // into either folder
		w, err := s.CreateExtent(ctx, id, 0)
		if err := sealExtent(t, w, err, data, h); err != nil {
			t.Fatal(err)
		}
		parts := s.partsLocked(id)
		flipByte(t, mem, parts[0].path(id.Blob), pageBytes+100_000)
		var corrupt *CorruptError
		if err := s.VerifyExtent(ctx, id); !errors.As(err, &corrupt) {
			t.Fatalf("not corrupt: %v", err)
		}
		w, err = s.ReplaceExtent(ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReplaceExtent(ctx, id, 0); !errors.Is(err, ErrExtentExists) {
			t.Errorf("replacing twice at once: %v", err)
		}
		newer := Holders{Epoch: 4, Nodes: []string{"c"}}
		if err := s.SetHolders(ctx, id, newer); err != nil {
			t.Fatal(err)
		}
		if err := sealExtent(t, w, nil, data, h); err != nil {
			t.Fatal(err)
		}
		if err := s.VerifyExtent(ctx, id); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		s.Close()
		if s, err = Open(cfg); err != nil {
			t.Fatal(err)
		}
		if x, err := s.ExtentInfo(id); err != nil || x.Holders.Epoch != 4 || s.extents.mu.parts != 1 {
			t.Errorf("after a restart: %+v, %d files, %v", x, s.extents.mu.parts, err)
		}
		if err := s.VerifyExtent(ctx, id); err != nil {
			t.Error(err)
		}
		w, err = s.ReplaceExtent(ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DropExtent(ctx, id); err != nil {
			t.Fatal(err)
		}
		if err := sealExtent(t, w, nil, data, h); !errors.Is(err, ErrNoExtent) {
			t.Errorf("replacing what was dropped: %v", err)
		}
		for _, dir := range []string{"/a/blobs", "/b/blobs"} {
			if names, _ := mem.ReadDir(dir); len(names) > 0 {
				t.Errorf("orphaned files: %v", names)
			}
		}
	}
}

// Extents in a retired folder are moved to another one.
func TestReplaceFromRetiredFolder(t *testing.T) {
	ctx := t.Context()
	mem := vfs.NewMem(vfs.MemOptions{})
	s, err := Open(Config{FS: mem, Folders: []string{"/a", "/b"}, ReserveBytes: -1, ExtentBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id, h := ExtentID{Blob: ID{1}}, Holders{Epoch: 3, Nodes: []string{"a", "b"}}
	w, err := s.CreateExtent(ctx, id, 0)
	if err := sealExtent(t, w, err, []byte("data"), h); err != nil {
		t.Fatal(err)
	}
	f := s.partsLocked(id)[0].folder
	f.failed(errors.New("broken"))
	if s.RetiredFolders() != 1 {
		t.Errorf("%d retired folders", s.RetiredFolders())
	}
	w, err = s.ReplaceExtent(ctx, id, 0)
	if err := sealExtent(t, w, err, []byte("data"), h); err != nil {
		t.Fatal(err)
	}
	if x, err := s.ExtentInfo(id); err != nil || x.Retired || s.partsLocked(id)[0].folder == f {
		t.Errorf("%+v, %v", x, err)
	}
}

// If an extent's new file has replaced the old one and its folder has no space to make that
// durable, the extent still exists: the old file is gone.
func TestReplaceExtentHalfWay(t *testing.T) {
	ctx := t.Context()
	mem := vfs.NewMem(vfs.MemOptions{})
	s, err := Open(Config{FS: mem, Folders: []string{"/a"}, ReserveBytes: -1, ExtentBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id, h := ExtentID{Blob: ID{1}}, Holders{Epoch: 3, Nodes: []string{"a", "b"}}
	w, err := s.CreateExtent(ctx, id, 0)
	if err := sealExtent(t, w, err, []byte("data"), h); err != nil {
		t.Fatal(err)
	}
	var renamed atomic.Bool
	mem.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpRename {
			renamed.Store(true)
		}
		if renamed.Load() && op.Kind == vfs.OpSyncDir {
			return syscall.ENOSPC
		}
		return nil
	})
	w, err = s.ReplaceExtent(ctx, id, 0)
	if err := sealExtent(t, w, err, []byte("data"), h); !errors.Is(err, ErrDiskFull) {
		t.Errorf("replaced on a full disk: %v", err)
	}
	mem.SetHook(nil)
	if !renamed.Load() {
		t.Error("it did not come so far")
	}
	if err := s.VerifyExtent(ctx, id); err != nil {
		t.Errorf("after a replacement that failed half way: %v", err)
	}
	w, err = s.ReplaceExtent(ctx, id, 0)
	if err := sealExtent(t, w, err, []byte("data"), h); err != nil {
		t.Errorf("replaced once more: %v", err)
	}
}

func TestScrubMark(t *testing.T) {
	want := ScrubProgress{After: ExtentID{Blob: exampleID, Index: 2}, Started: time.Unix(0x6553f100, 0)}
	if b := want.encode(); !bytes.Equal(b, example(t, "a mark", scrubProgressBytes)) {
		t.Errorf("the example is\n%s", dump(b))
	}
	mem := vfs.NewMem(vfs.MemOptions{})
	s, err := Open(Config{FS: mem, Folders: []string{"/a", "/b"}, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if m := s.LoadScrubProgress(); m.After.Index != -1 || !m.Started.IsZero() {
		t.Errorf("before the first: %+v", m)
	}
	for i := range 3 {
		if i == 2 {
			s.folders[0].failed(errors.New("broken"))
		}
		want.Ended = want.Ended.Add(time.Hour).Truncate(time.Second)
		want.Started = want.Started.Add(time.Hour)
		if err := s.SaveScrubProgress(want); err != nil {
			t.Fatal(err)
		}
		if m := s.LoadScrubProgress(); m.After != want.After || !m.Started.Equal(want.Started) {
			t.Errorf("%d: %+v", i, m)
		}
	}
	flipByte(t, mem, filepath.Join("/b", scrubFile), 20)
	if m := s.LoadScrubProgress(); !m.Started.Equal(want.Started.Add(-time.Hour)) {
		t.Errorf("with the newest damaged: %+v", m)
	}
}
