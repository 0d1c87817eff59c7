package disks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/raftmeta"
)

// A disk that answers late, or with an error, ends nothing; one that does not answer ends the node, once.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answers := make(chan error)
		var failed []error
		go watch(ctx, "/data", func(string) error { return <-answers }, func(err error) { failed = append(failed, err) })
		for _, err := range []error{nil, errors.New("input/output error"), nil} {
			time.Sleep(probeEvery + stalledAfter - time.Second)
			answers <- err
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
