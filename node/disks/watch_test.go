package disks

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/raftmeta"
)

// A disk that answers late ends nothing; one that does not answer ends the node, once.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answers := make(chan error)
		var failed []error
		s := New(Config{Ctx: ctx, Dirs: []string{"/data"}, Retired: func() map[string]error { return nil }, Fail: func(err error) { failed = append(failed, err) }})
		go s.watch("/data", func(string) error { return <-answers })
		for range 3 {
			time.Sleep(stalledAfter - time.Second)
			answers <- nil
			time.Sleep(probeEvery)
			synctest.Wait()
		}
		if len(failed) > 0 {
			t.Fatalf("a disk that answers: %v", failed)
		}
		time.Sleep(probeEvery + 2*stalledAfter)
		synctest.Wait()
		var stalled *StalledError
		if len(failed) != 1 || !errors.As(failed[0], &stalled) || stalled.Folder != "/data" || !Stalled(failed[0]) {
			t.Errorf("a disk that does not: %v", failed)
		}
		cancel()
		answers <- nil
	})
	if Stalled(errors.New("another")) || !Stalled(&raftmeta.DiskError{Op: "write", Err: raftmeta.ErrStalled}) {
		t.Error("it is not told what is stalled")
	}
	dir := t.TempDir()
	service := New(Config{FS: vfs.OS()})
	for range 2 {
		if err := service.probe(dir); err != nil {
			t.Error(err)
		}
	}
	if st, err := os.Stat(filepath.Join(dir, probeFile)); err != nil || st.Size() != 1 {
		t.Errorf("what was written: %v, %v", st, err)
	}
}

// TestFailedDisks (DK2): a disk of several whose syncs fail is reported, and stays failed if later ones succeed. When the last one fails,
// the node ends. A full disk has not failed.
func TestFailedDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewFaulty(vfs.NewMem(vfs.MemOptions{}))
		dirs := []string{"/a", "/b"}
		for _, dir := range dirs {
			if err := fs.MkdirAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		store, err := blobfs.Open(blobfs.Config{FS: fs, Folders: identity.BlobFolders(dirs), Logger: slog.New(slog.DiscardHandler), ReserveBytes: 1, ExtentBytes: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var failures []error
		var background sync.WaitGroup
		s := New(Config{Ctx: ctx, Background: &background, FS: fs, Dirs: dirs, Report: store.FolderFailed, Fail: func(err error) { failures = append(failures, err) },
			Retired: func() map[string]error {
				retired := map[string]error{}
				for _, f := range store.Stats().Folders {
					retired[f.Path] = f.Retired
				}
				return retired
			}})
		s.Watch()
		fail := func(err error, dirs ...string) {
			fs.SetHook(func(op vfs.Op) error {
				if op.Kind == vfs.OpSync && slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(op.Name, d) }) {
					return err
				}
				return nil
			})
			time.Sleep(probeEvery)
			synctest.Wait()
		}
		fail(syscall.ENOSPC, dirs...)
		if r := s.Retired(); r["/a/blobs"] != nil || r["/b/blobs"] != nil || failures != nil {
			t.Errorf("full disks: retired %v, failures %v", r, failures)
		}
		fail(syscall.EIO, "/b")
		fail(nil)
		if r := s.Retired(); r["/a/blobs"] != nil || !errors.Is(r["/b/blobs"], syscall.EIO) || failures != nil {
			t.Errorf("one disk failed: retired %v, failures %v", r, failures)
		}
		fail(syscall.EIO, "/a")
		var all *FailedError
		if len(failures) == 0 || !errors.As(failures[0], &all) || !errors.Is(all, syscall.EIO) || !slices.Equal(all.Folders, dirs) {
			t.Errorf("all disks failed: failures %v", failures)
		}
		cancel()
		background.Wait()
	})
}
