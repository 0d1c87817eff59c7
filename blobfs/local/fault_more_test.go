package local_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/vfs"
)

// If a removal or a release is killed at any point, and the power fails after the next start, no
// log looks damaged.
func TestRemovalKilled(t *testing.T) {
	payload := blobtest.Bytes(1, 40_000)
	end := map[string]func(s *local.Store, w *local.LogWriter, mid int64){
		"remove":  func(s *local.Store, w *local.LogWriter, _ int64) { _ = s.RemoveLog(ctx, w.ID()) },
		"release": func(_ *local.Store, w *local.LogWriter, mid int64) { w.Release(mid) },
		"both": func(s *local.Store, w *local.LogWriter, mid int64) {
			w.Release(mid)
			_ = s.RemoveLog(ctx, w.ID())
		},
	}
	for name, finish := range end {
		for after := int64(1); ; after++ {
			fs := vfs.NewMem(vfs.MemOptions{})
			cfg := crashConfig(fs, 2)
			s, err := local.Open(cfg)
			noError(t, err)
			w, err := s.CreateLog(ctx, local.NewID())
			noError(t, err)
			var mid int64
			for i := range 4 {
				pos, err := w.Append(ctx, payload)
				noError(t, err)
				if i == 1 {
					mid = pos
				}
			}
			last := fs.Ops() + after
			fs.SetHook(cutPowerAt(last))
			finish(s, w, mid)
			done := fs.Ops() < last
			fs.SetHook(nil)
			fs.ReleaseLocks()

			look := func(fs *vfs.Mem) {
				cfg.FS = fs
				s, err := local.Open(cfg)
				noError(t, err)
				defer s.Close()
				noError(t, s.Verify(ctx, func(p local.Problem) { t.Errorf("%s, killed at %d: %v", name, after, p) }))
				r, err := s.OpenLog(ctx, w.ID())
				if errors.Is(err, local.ErrNoLog) && name != "release" {
					return
				}
				if err != nil {
					t.Errorf("%s, killed at %d: %v", name, after, err)
					return
				}
				defer r.Close()
				if name == "release" && r.Start() > mid {
					t.Errorf("killed at %d: the log starts at %d, only %d is released", after, r.Start(), mid)
				}
			}
			look(fs)
			rng := rand.New(rand.NewPCG(uint64(after), 1))
			for range 3 {
				look(fs.Crash(rng))
			}
			look(fs.Crash(nil))
			if t.Failed() {
				return
			}
			if done {
				break
			}
		}
	}
}

// A frame that the disk wrote to the wrong place is invalid there.
func TestMisplacedFrame(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	cfg := crashConfig(fs, 1)
	s := mustOpen(t, cfg)
	w, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	for i := range 3 {
		_, err := w.Append(ctx, []byte{byte(i)})
		noError(t, err)
	}
	noError(t, s.Close())
	names, err := fs.ReadDir(filepath.Join(cfg.Folders[0], "logs"))
	noError(t, err)
	f, err := fs.Open(filepath.Join(cfg.Folders[0], "logs", names[0]))
	noError(t, err)
	page := make([]byte, 4096)
	_, err = f.ReadAt(page, 2*4096)
	noError(t, err)
	_, err = f.WriteAt(page, 3*4096) // the second record, over the third
	noError(t, err)
	_, err = f.WriteAt(page, 4*4096) // and behind it
	noError(t, err)
	mustReadLog(t, mustOpen(t, cfg), w.ID(), []byte{0}, []byte{1})
}

// A folder may be retired by another operation while a blob is being sealed. The blob does not stay
// there, whether or not its extent was sealed.
func TestFolderRetiredDuringSeal(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	s := mustOpen(t, crashConfig(fs, 2))
	w, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	var logDisk string
	fs.SetHook(func(op vfs.Op) error { logDisk = op.Name[:6]; return nil })
	_, err = w.Append(ctx, []byte("one"))
	noError(t, err)
	armed := true
	fs.SetHook(func(op vfs.Op) error {
		switch {
		case op.Kind == vfs.OpSyncDir && op.Name == logDisk+"/data/blobs" && armed:
			armed = false // too late for this sync to be refused
			if _, err := w.Append(ctx, []byte("two")); err != nil {
				t.Error(err)
			}
		case op.Kind == vfs.OpSync && strings.HasPrefix(op.Name, logDisk+"/data/logs"):
			return syscall.EIO
		}
		return nil
	})
	data := blobtest.Bytes(1, 300_000)
	h, err := putBlob(s, data)
	noError(t, err)
	fs.SetHook(nil)
	if armed {
		t.Fatal("no folder was synced")
	}
	for _, f := range s.Stats().Folders {
		if gone := f.Path[:6] == logDisk; gone != (f.Retired != nil) || gone != (f.BlobFiles == 0) {
			t.Errorf("%d extents in %s, retired: %v", f.BlobFiles, f.Path, f.Retired)
		}
	}
	s2 := mustOpen(t, crashConfig(fs.Crash(nil), 2))
	mustRead(t, s2, h, data)
	mustReadLog(t, s2, w.ID(), []byte("one"), []byte("two"))
}

// A file system with space for new files but not for overwriting old ones must not keep a log busy
// for ever.
func TestOverwriteFindsNoSpace(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	s := mustOpen(t, crashConfig(fs, 2))
	w, err := s.CreateLog(ctx, local.NewID())
	noError(t, err)
	_, err = w.Append(ctx, []byte("one"))
	noError(t, err)
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, ".log") {
			return syscall.ENOSPC
		}
		return nil
	})
	if _, err := w.Append(ctx, []byte("two")); !errors.Is(err, local.ErrDiskFull) {
		t.Fatalf("append: %v", err)
	}
	fs.SetHook(nil)
	_, err = w.Append(ctx, []byte("three"))
	noError(t, err)
	for _, f := range s.Stats().Folders {
		if f.Retired != nil {
			t.Errorf("retired: %v", f.Retired)
		}
	}
	mustReadLog(t, s, w.ID(), []byte("one"), []byte("three"))
}

// A read-only store rejects changes and changes nothing.
func TestReadOnly(t *testing.T) {
	m := newMuseum(t)
	before := m.fs.Ops()
	s := m.reopen(t)
	w, errCreate := s.Create(ctx)
	_, errLog := s.CreateLog(ctx, local.NewID())
	for i, err := range []error{errCreate, errLog, s.Delete(ctx, m.hands[0].ID), s.RemoveLog(ctx, m.open)} {
		if !errors.Is(err, local.ErrReadOnly) || w != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	for _, h := range m.hands {
		mustRead(t, s, h, m.blobs[h.ID])
	}
	for id, records := range m.logs {
		r, err := s.OpenLog(ctx, id)
		noError(t, err)
		for _, want := range records {
			p, _, err := r.Next()
			noError(t, err)
			if !bytes.Equal(p, want.payload) {
				t.Error("record reads otherwise")
			}
		}
		if _, _, err := r.Next(); err != io.EOF {
			t.Errorf("end: %v", err)
		}
		noError(t, r.Close())
	}
	m.verify(t, s)
	noError(t, s.Close())
	if after := m.fs.Ops(); after != before {
		t.Errorf("%d operations changed something", after-before)
	}
}
