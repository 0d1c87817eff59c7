package tablet

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet/storage"
)

// heldDeletes are blobs whose deletion blocks until gate is closed.
type heldDeletes struct {
	storage.Blobs
	gate    chan struct{}
	Deleted atomic.Int64
}

func (b *heldDeletes) Delete(ctx context.Context, id blobfs.ID) error {
	<-b.gate
	b.Deleted.Add(1)
	return b.Blobs.Delete(ctx, id)
}

// Neither a read nor the applier, on which all commits wait, waits for the deletion of a file of
// which it releases the last reference.
func TestDeletionsHoldUpNobody(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	held := &heldDeletes{Blobs: e.Server.cfg.Blobs, gate: make(chan struct{})}
	e.Server.useBlobs(held)
	within := func(what string, f func() error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- f() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(time.Minute):
			close(held.gate)
			t.Fatalf("%s waits for a deletion", what)
		}
	}
	write := func() {
		e.mustApply("row", set("f", "q", 1, "value"))
		if err := e.tabletOfTest().flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write()
	within("a scan", func() error {
		_, err := e.Scan(t.Context(), testTable, Range{}, nil, func([]byte, []table.Cell) error { return e.Compact(t.Context(), testTable, true) })
		return err
	})
	write()
	within("dropping a table", func() error { return e.DropTable(testTable) })
	if n := held.Deleted.Load(); n != 0 {
		t.Fatalf("%d blobs deleted", n)
	}
	close(held.gate)
	e.close()
	if n := held.Deleted.Load(); n != 3 { // two files and the compaction's output of the first
		t.Errorf("%d blobs deleted, want 3", n)
	}
}
