package replog_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/vfs"
)

// timesOf returns the times of a node.
func timesOf(t *testing.T, all []replog.ReplicaTimes, node string) replog.ReplicaTimes {
	t.Helper()
	for _, x := range all {
		if x.Node == node {
			return x
		}
	}
	t.Fatalf("no times of node %s in %+v", node, all)
	return replog.ReplicaTimes{}
}

// The replica with a slow disk is the one that appends wait for, and only its times are long. An append that it has not answered counts as well.
func TestSlowReplicaIsNamed(t *testing.T) {
	const slow, appends = 50 * time.Millisecond, 5
	c, _ := clustertest.NewForLogs(t, 3, replog.Config{DeadlineMin: 20 * time.Second, DeadlineMax: 30 * time.Second})
	stuck, healed := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	wait := func() { time.Sleep(slow) }
	c.All[2].FS.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			mu.Lock()
			w := wait
			mu.Unlock()
			w()
		}
		return nil
	})
	logs := c.All[0].ReplicatedLogs()
	w, err := logs.Create(t.Context(), "n1", blobfs.NewID())
	clustertest.NoError(t, err)
	for range appends {
		if _, err := w.Append(t.Context(), blobtest.Bytes(1, 1000)); err != nil {
			t.Fatal(err)
		}
		if got := w.Slowest(); got == nil || *got != c.All[2].ID {
			t.Errorf("the slowest replica is %v, want %s", got, c.All[2].ID)
		}
	}
	times := logs.ReplicaTimes()
	slowest := timesOf(t, times, c.All[2].ID)
	if slowest.Appends < appends || slowest.Total < appends*slow || slowest.Oldest != 0 {
		t.Errorf("of the slow node: %+v", slowest)
	}
	if other := timesOf(t, times, c.All[1].ID); other.Total >= slowest.Total || other.Appends < appends {
		t.Errorf("%+v, and of the slow node %+v", other, slowest)
	}
	entered := sync.OnceFunc(func() { close(stuck) })
	mu.Lock()
	wait = func() { entered(); <-healed }
	mu.Unlock()
	done := make(chan error, 1)
	go func() { _, err := w.Append(context.Background(), blobtest.Bytes(1, 1000)); done <- err }()
	<-stuck
	if got := timesOf(t, logs.ReplicaTimes(), c.All[2].ID); got.Oldest == 0 || got.Appends != slowest.Appends {
		t.Errorf("of a node that does not answer: %+v", got)
	}
	close(healed)
	clustertest.NoError(t, <-done)
	clustertest.NoError(t, w.Close())
}
