package tablet

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/tablet/storage"
)

// heldBlobs blocks Create once it is armed, like a store that waits for its nodes. The error of
// Create is only that the caller's context has ended.
type heldBlobs struct {
	storage.Blobs
	armed  chan struct{} // closed when Create should block
	called chan struct{} // closed by the first blocked call
	once   sync.Once
}

func (b *heldBlobs) Create(ctx context.Context) (storage.BlobWriter, error) {
	select {
	case <-b.armed:
	default:
		return b.Blobs.Create(ctx)
	}
	waits := false
	b.once.Do(func() { waits = true })
	if !waits {
		return b.Blobs.Create(ctx)
	}
	close(b.called)
	<-ctx.Done()
	return nil, ctx.Err()
}

// A compaction that a split interrupts continues in the resulting tablets, even if the store
// reports only that a context ended: the caller of the compaction has not canceled it.
func TestInterruptedCompactionGoesOn(t *testing.T) {
	s := newCluster(t, Config{}, 1, "f:").servers[0]
	for _, row := range []string{"row001", "row019"} {
		if _, err := applySync(s.Server, row, setCell(row)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Compact(ctx, "t", false); err != nil {
		t.Fatal(err)
	}
	b := &heldBlobs{Blobs: s.cfg.Blobs, armed: make(chan struct{}), called: make(chan struct{})}
	s.useBlobs(b)
	close(b.armed)
	compacted := make(chan error, 1)
	go func() { compacted <- s.Compact(ctx, "t", true) }()
	<-b.called
	if _, _, err := s.Split(ctx, lastTablet, []byte("row012")); err != nil {
		t.Fatal(err)
	}
	if err := <-compacted; err != nil {
		t.Errorf("the major compaction: %v", err)
	}
	for _, tablet := range s.served.all() {
		if tablet.meta.lastMajor.Load() == 0 {
			t.Errorf("tablet %d is not compacted", tablet.id)
		}
	}
}

// TestInterrupt: a caller of stop ends the running compaction and those that begin before it has the
// lock, and no later one.
func TestInterrupt(t *testing.T) {
	var c mergeCompactor
	c.mu.Lock()
	ctx, done := c.interruptible(t.Context())
	stopped := make(chan struct{})
	go func() {
		c.stop()
		close(stopped)
	}()
	<-ctx.Done()
	if err := context.Cause(ctx); err != errInterrupted {
		t.Errorf("the compaction ends with %v", err)
	}
	done()
	ctx, done = c.interruptible(t.Context())
	if context.Cause(ctx) != errInterrupted {
		t.Error("another compaction begins although a caller waits")
	}
	done()
	c.mu.Unlock()
	<-stopped
	c.mu.Unlock()
	c.mu.Lock()
	if ctx, done = c.interruptible(t.Context()); ctx.Err() != nil {
		t.Errorf("a later compaction is interrupted: %v", ctx.Err())
	}
	done()
}
