package tablet

import (
	"context"
	"testing"
	"time"
)

// TestWeakLogIsReleased (T4): the part of a log that lacks redundancy is released once no memtable and no commit under way needs it, also if it
// ends with bytes of an append that failed, after which nothing was appended. Before that it is kept.
func TestWeakLogIsReleased(t *testing.T) {
	f := newCluster(t, Config{}, 1, "f")
	s := f.servers[0]
	if _, err := applySync(s.Server, "row", setCell("v")); err != nil {
		t.Fatal(err)
	}
	const weak = 1 << 30 // beyond all records
	s.blobs.weak.Store(weak)
	released := func() bool {
		s.commitLog.trimWeak()
		return s.blobs.released.Load() >= weak
	}
	if released() {
		t.Error("released while a memtable needs it")
	}
	if err := s.Served().find(lastTablet).flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	stalled := make(chan struct{})
	s.blobs.stalled.Store(&stalled)
	done := make(chan error, 1)
	go func() {
		_, err := applySync(s.Server, "row", setCell("w"))
		done <- err
	}()
	for s.commitLog.commits.Idle() {
		time.Sleep(time.Millisecond)
	}
	if released() {
		t.Error("released while a commit is under way")
	}
	s.blobs.stalled.Store(nil)
	close(stalled)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if released() {
		t.Error("released while a memtable needs it, the second time")
	}
	if err := s.Served().find(lastTablet).flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); !released(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not released although nothing needs it")
		}
	}
}
