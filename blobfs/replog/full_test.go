package replog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/vfs"
)

// newFullLog returns a log of n1 that was created, with a standby, before all folders fell below
// their reserve.
func newFullLog(t *testing.T, n int, logs replog.Config) (*clustertest.Cluster, *clustertest.Lists, blobfs.ID, *replog.Writer) {
	l := clustertest.NewLists()
	cfg := clustertest.Quick
	cfg.Lists, cfg.Logs = l, logs
	c := clustertest.New(t, clustertest.Config{N: n, Cluster: cfg, Reserve: clustertest.Reserve})
	id := blobfs.NewID()
	w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	clustertest.NoError(t, err)
	_, err = w.Append(t.Context(), []byte("first"))
	clustertest.NoError(t, err)
	clustertest.Eventually(t, "a standby is registered", func() bool { return len(l.LogList(t, "n1", id).Extents) == 2 })
	for _, n := range c.All {
		c.SetFree(n, -64<<10)
	}
	return c, l, id, w
}

// If a replica is lost while all disks are full, the frames sent to it are acknowledged in an
// extent that uses the reserve, on all remaining nodes. Later appends are rejected when that extent
// is full, and accepted again when there is space (I1).
func TestFullLogLosesReplica(t *testing.T) {
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			t.Parallel()
			c, l, id, w := newFullLog(t, n, replog.Config{DeadlineMin: 2 * time.Second, Retry: 20 * time.Millisecond})
			c.All[n-1].Kill()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			want := []clustertest.Record{{P: []byte("first")}}
			for {
				p := blobtest.Bytes(uint64(len(want)), 50_000)
				pos, err := w.Append(ctx, p)
				if errors.Is(err, blobfs.ErrDiskFull) {
					break
				}
				if err != nil {
					t.Fatalf("append %d: %v", len(want), err)
				}
				want = append(want, clustertest.Record{P: p, Pos: pos})
			}
			if len(want) < 3 {
				t.Errorf("only %d records were acknowledged", len(want))
			}
			list := l.LogList(t, "n1", id)
			if last := list.Extents[len(list.Extents)-1]; len(last.Replicas) < min(n-1, 3) {
				t.Errorf("the last extent is on %v", last.Replicas)
			}
			for _, x := range c.All[:n-1] {
				for _, dir := range []string{"/a", "/b"} {
					if free, err := x.FS.FreeBytes(dir); err != nil || free < clustertest.Reserve/2 {
						t.Errorf("%d bytes are left in %s of %s, less than half of the reserve: %v", free, dir, x.ID, err)
					}
				}
				c.SetFree(x, 1<<30)
			}
			clustertest.Eventually(t, "appends go on", func() bool {
				pos, err := w.Append(ctx, []byte("again"))
				if err == nil {
					want = append(want, clustertest.Record{P: []byte("again"), Pos: pos})
				}
				return err == nil
			})
			clustertest.NoError(t, w.Close())
			got := clustertest.ReadLog(t, c.All[0].Store, "n1", id)
			if len(got) != len(want) {
				t.Fatalf("%d records are read, %d were acknowledged", len(got), len(want))
			}
			clustertest.EqualRecords(t, got[1:], want[1:])
		})
	}
}

// A replica that does not answer for a time is waited for if no other node has space: if it were
// dropped, the log would stop although all replicas are good.
func TestFullLogWaitsForSlowReplica(t *testing.T) {
	const long = 300 * time.Millisecond
	c, _, id, w := newFullLog(t, 3, replog.Config{DeadlineMin: long / 10, DeadlineMax: long, Retry: 20 * time.Millisecond})
	healed := make(chan struct{})
	heal := sync.OnceFunc(func() { close(healed) })
	defer heal()
	c.All[2].FS.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync || op.Kind == vfs.OpWrite {
			<-healed
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { _, err := w.Append(ctx, []byte("late")); done <- err }()
	time.Sleep(4 * long)
	if err := w.Full(); !errors.Is(err, blobfs.ErrDiskFull) {
		t.Errorf("an append waits for a slow replica because the disks are full; Full returned %v", err)
	}
	heal()
	clustertest.NoError(t, <-done)
	if err := w.Full(); err != nil {
		t.Errorf("no append waits: %v", err)
	}
	for range 3 {
		_, err := w.Append(ctx, []byte("more"))
		clustertest.NoError(t, err)
	}
	if st := w.Stats(); st.Slow > 0 || st.Failed > 0 {
		t.Errorf("replicas were given up: %+v", st)
	}
	clustertest.NoError(t, w.Close())
	if got := clustertest.ReadLog(t, c.All[1].Store, "n1", id); len(got) != 5 {
		t.Errorf("%d records are read", len(got))
	}
}
