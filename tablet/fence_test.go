package tablet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/tablet/budget"
)

func newFence() (*writeFence, *viewSet) {
	cfg := (&Config{}).withDefaults()
	memory := budget.NewWrites(1<<20, func() {})
	vs := &viewSet{cfg: &cfg, backlogs: &backlogs{}, memory: memory}
	v := &view{active: newMem(memory)}
	v.hold()
	vs.setCurrent(v)
	return &writeFence{views: vs, memory: memory, claimed: make(chan struct{}, 1)}, vs
}

// TestFenceWaitsForWrites: a fence is up when the writes that did not see it are done. If the caller
// does not wait for that long, it is lifted again.
func TestFenceWaitsForWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := newFence()
		l := f.latches.Of([]byte("row"))
		l.LockShared()
		stalled := errors.New("stalled")
		if err := f.raiseSoon(t.Context(), time.Second, stalled); err != stalled || f.raised.Load() != nil {
			t.Errorf("a write is pending: %v, fence %v", err, f.raised.Load())
		}
		done := make(chan error, 1)
		go func() { done <- f.raise(t.Context()) }()
		synctest.Wait()
		up := f.raised.Load()
		if up == nil || len(done) != 0 {
			t.Fatalf("fence %v, %d raised", up, len(done))
		}
		l.UnlockShared()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		f.lift()
		<-up.lifted
		if f.raised.Load() != nil {
			t.Error("the fence is not lifted")
		}
	})
}

// TestFenceOfRetiredTablet: a tablet out of service accepts no writes ever again, but lets writers go
// on to its replacement. It cannot be claimed.
func TestFenceOfRetiredTablet(t *testing.T) {
	f, vs := newFence()
	if err := f.claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.claim(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("claimed twice: %v", err)
	}
	f.unclaim()
	if err := f.raise(t.Context()); err != nil {
		t.Fatal(err)
	}
	up := f.raised.Load()
	f.retire()
	<-up.lifted
	f.lift() // of the caller that raised it
	if h := f.raised.Load(); h == nil {
		t.Error("a retired tablet accepts writes")
	} else {
		<-h.lifted
	}
	if err := f.claim(t.Context()); err != errGone {
		t.Errorf("claimed a retired tablet: %v", err)
	}
	f, vs = newFence()
	vs.take(false).release()
	if err := f.claim(t.Context()); err != errGone {
		t.Errorf("claimed an unloaded tablet: %v", err)
	}
}
