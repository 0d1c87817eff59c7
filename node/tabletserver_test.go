package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
)

// TestLockLostBeforeTheServerOpens: a node does not wait to become a tablet server under a lock that it has lost.
func TestLockLostBeforeTheServerOpens(t *testing.T) {
	n, _ := startInternal(t)
	lock := n.locks.ServerLock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := n.meta.Current().Close(ctx); err != nil {
		t.Fatal(err)
	}
	err := n.tabletServer.Open(ctx, lock)
	if err == nil || ctx.Err() != nil || lock.Held() {
		t.Fatalf("under a lost lock: %v; %v", err, ctx.Err())
	}
}

// TestLogFailed: a tablet server that was taken for dead starts afresh, and its node goes on; a log that
// failed while the server has its lock ends the node.
func TestLogFailed(t *testing.T) {
	n, _ := startInternal(t)
	dead := n.tabletServer.Current()
	heard := make(chan struct{})
	go func() {
		dead.LogFailed(fmt.Errorf("append: %w", blobfs.ErrFenced))
		close(heard)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := n.meta.Current().Close(ctx); err != nil {
		t.Fatal(err)
	}
	for n.tabletServer.Current() == dead || n.tabletServer.Current().Serving() != nil {
		select {
		case <-n.Done():
			t.Fatalf("the node ended: %v", n.Err())
		case <-ctx.Done():
			t.Fatal("no new tablet server after 20 s")
		case <-time.After(10 * time.Millisecond):
		}
	}
	select {
	case <-heard:
	case <-ctx.Done():
		t.Fatal("the loss of the lock was not heard of")
	}
	if err := n.Err(); err != nil {
		t.Fatalf("the node ended: %v", err)
	}
	n.tabletServer.Current().LogFailed(blobfs.ErrLogFailed)
	select {
	case <-n.Done():
	case <-ctx.Done():
		t.Fatal("the node goes on without a commit log")
	}
}
