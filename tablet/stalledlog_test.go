package tablet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/api"
)

// While the commit log makes no progress, tablets are written out, split, unloaded and dropped, or
// reject it at once: a tablet does while its own writes are pending. A drop waits for no write, and
// a write that becomes durable afterwards is not acknowledged.
func TestControlWhileLogStalls(t *testing.T) {
	s := newCluster(t, Config{OverloadWait: 20 * time.Millisecond}, 1, "f:").servers[0]
	lower, _, err := s.Split(t.Context(), lastTablet, []byte("row012"))
	noError(t, err)
	for _, row := range []string{"row001", "row019"} {
		_, err := applySync(s.Server, row, setCell(row))
		noError(t, err)
	}
	stalled := make(chan struct{})
	s.blobs.stalled.Store(&stalled)
	write := make(chan error, 1)
	go func() {
		_, err := applySync(s.Server, "row002", setCell("under way"))
		write <- err
	}()
	for s.commitLog.commits.AppendAge() < s.cfg.OverloadWait {
		time.Sleep(time.Millisecond)
	}

	for _, x := range s.served.all() {
		noError(t, ends(t, "flush", func() error { return x.flush(t.Context()) }))
		if n := x.views.activeBytes(); n > 0 {
			t.Errorf("tablet %d: %d bytes are in its memtable after a flush", x.id, n)
		}
	}
	var busy *api.OverloadedError
	if err := ends(t, "split", func() error { _, _, err := s.Split(t.Context(), lower, []byte("row001")); return err }); !errors.As(err, &busy) {
		t.Errorf("split: %v", err)
	}
	if err := ends(t, "merge", func() error { return s.Merge(t.Context(), lower, lastTablet) }); !errors.As(err, &busy) {
		t.Errorf("merge: %v", err)
	}
	if err := ends(t, "unload", func() error { return s.Unload(t.Context(), lower) }); !errors.As(err, &busy) {
		t.Errorf("unload of a tablet with a write under way: %v", err)
	}
	if x, err := s.served.tablet(lower); err != nil || x.fence.raised.Load() != nil {
		t.Errorf("the tablet that was not unloaded accepts no writes: %v", err)
	}
	noError(t, ends(t, "unload", func() error { return s.Unload(t.Context(), lastTablet) }))
	noError(t, ends(t, "drop", func() error { return s.DropTable(testTable) }))
	select {
	case err := <-write:
		t.Errorf("the write has ended before its append: %v", err)
	default:
	}
	close(stalled)
	if err := <-write; !errors.Is(err, api.ErrNotServing) {
		t.Errorf("a write to the dropped table: %v", err)
	}
}

// Writers do not wait while an unload waits for a compaction to end.
func TestUnloadStopsMergingBeforeWriters(t *testing.T) {
	s := newCluster(t, Config{OverloadWait: 100 * time.Millisecond}, 1, "f:").servers[0]
	x := s.served.all()[0]
	x.merge.mu.Lock() // of a compaction that does not end
	unloaded := make(chan error, 1)
	go func() { unloaded <- s.Unload(t.Context(), x.ref()) }()
	for waiting := false; !waiting; time.Sleep(time.Millisecond) {
		x.merge.state.Lock()
		waiting = x.merge.interrupts > 0
		x.merge.state.Unlock()
	}
	if _, err := applySync(s.Server, "row", setCell("v")); err != nil {
		t.Errorf("a write meanwhile: %v", err)
	}
	x.merge.mu.Unlock()
	if err := <-unloaded; err != nil {
		t.Error(err)
	}
}

// If the log makes no progress and its batch is full, a write fails as overloaded, or with disk
// full if that is the cause.
func TestStalledLogGivesReason(t *testing.T) {
	const batch = 4 << 10
	s := newCluster(t, Config{OverloadWait: 20 * time.Millisecond, LogBatchBytes: batch}, 1, "f:").servers[0]
	stalled := make(chan struct{})
	s.blobs.stalled.Store(&stalled)
	writes := make(chan error, 2)
	write := func(row string) error {
		_, err := applySync(s.Server, row, set("f", "q", 1, string(noise(batch))))
		return err
	}
	go func() { writes <- write("row1") }() // is being appended
	for s.commitLog.commits.AppendAge() == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() { writes <- write("row2") }() // fills the next batch
	for !s.commitLog.commits.Busy() {
		time.Sleep(time.Millisecond)
	}
	var busy *api.OverloadedError
	if err := write("row3"); !errors.As(err, &busy) || errors.Is(err, blobfs.ErrDiskFull) {
		t.Errorf("while disks have space: %v", err)
	}
	full := fmt.Errorf("log: %w", blobfs.ErrDiskFull)
	s.blobs.full.Store(&full)
	if err := write("row3"); errors.As(err, &busy) || !errors.Is(err, blobfs.ErrDiskFull) {
		t.Errorf("while no disk has space: %v", err)
	}
	close(stalled)
	for range 2 {
		noError(t, <-writes)
	}
}
