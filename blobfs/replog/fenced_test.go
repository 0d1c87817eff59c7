package replog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/replog"
)

// TestLogMayNotSave: a node that has lost the right to change lists gets the error at once,
// whether it creates a log or appends to one, instead of waiting forever.
func TestLogMayNotSave(t *testing.T) {
	c, l := clustertest.NewForLogs(t, 1, replog.Config{Retry: 20 * time.Millisecond})
	n := c.All[0]
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	id := blobfs.NewID()
	w, err := n.ReplicatedLogs().Create(ctx, "n1", id)
	clustertest.NoError(t, err)
	l.Mu.Lock()
	l.Fenced = true
	l.Mu.Unlock()
	var want []clustertest.Record
	for err == nil {
		p := blobtest.Bytes(uint64(len(want)), 50_000)
		var pos int64
		if pos, err = w.Append(ctx, p); err == nil {
			want = append(want, clustertest.Record{P: p, Pos: pos})
		}
	}
	if !errors.Is(err, blobfs.ErrFenced) {
		t.Errorf("after %d appends: %v", len(want), err)
	}
	if _, err := n.ReplicatedLogs().Create(ctx, "n1", blobfs.NewID()); !errors.Is(err, blobfs.ErrFenced) {
		t.Errorf("another log: %v", err)
	}
	_ = w.Close()
	if _, err := n.ReplicatedLogs().Open(ctx, "n1", id); !errors.Is(err, blobfs.ErrFenced) {
		t.Errorf("recovery: %v", err)
	}
	l.Mu.Lock()
	l.Fenced = false
	l.Mu.Unlock()
	got := clustertest.ReadLog(t, n.Store, "n1", id)
	clustertest.EqualRecords(t, got[:len(want)], want)
}
