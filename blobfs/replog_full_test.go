package blobfs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/replog"
	"github.com/steledb/stele/internal/vfs"
)

// newFullLog returns a log of n1 that was created, with a standby, before all folders fell below
// their reserve.
func newFullLog(t *testing.T, n int, logs replog.Config) (*nodes, *lists, blobfs.ID, *replog.Writer) {
	l := newLists()
	cfg := quick
	cfg.Lists, cfg.Logs = l, logs
	c := newNodes(t, nodesConfig{n: n, cluster: cfg, reserve: vitalReserve})
	id := blobfs.NewID()
	w, err := c.all[0].ReplicatedLogs().Create(t.Context(), "n1", id)
	noError(t, err)
	_, err = w.Append(t.Context(), []byte("first"))
	noError(t, err)
	eventually(t, "a standby is registered", func() bool { return len(l.list(t, "n1", id).Extents) == 2 })
	for _, n := range c.all {
		c.setFree(n, -64<<10)
	}
	return c, l, id, w
}

// setFree sets the free space above a node's reserve, which may be negative, and updates the
// membership.
func (c *nodes) setFree(n *node, above int64) {
	for _, dir := range []string{"/a", "/b"} {
		n.fs.SetCapacity(dir, 0)
		for _, f := range n.Stats().Folders {
			if f.Path == dir {
				n.fs.SetCapacity(dir, f.BlobBytes+f.LogBytes+vitalReserve+above)
			}
		}
	}
	c.change(n.id, func(m *blobfs.Member) { m.FreeBytes = max(0, above) })
}

// If a replica is lost while all disks are full, the frames sent to it are acknowledged in an
// extent that uses the reserve, on all remaining nodes. Later appends are rejected when that extent
// is full, and accepted again when there is space (I1).
func TestFullLogLosesReplica(t *testing.T) {
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			t.Parallel()
			c, l, id, w := newFullLog(t, n, replog.Config{DeadlineMin: 2 * time.Second, Retry: 20 * time.Millisecond})
			c.all[n-1].kill()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			want := []logRecord{{p: []byte("first")}}
			for {
				p := blobtest.Bytes(uint64(len(want)), 50_000)
				pos, err := w.Append(ctx, p)
				if errors.Is(err, blobfs.ErrDiskFull) {
					break
				}
				if err != nil {
					t.Fatalf("append %d: %v", len(want), err)
				}
				want = append(want, logRecord{p, pos})
			}
			if len(want) < 3 {
				t.Errorf("only %d records were acknowledged", len(want))
			}
			list := l.list(t, "n1", id)
			if last := list.Extents[len(list.Extents)-1]; len(last.Replicas) < min(n-1, 3) {
				t.Errorf("the last extent is on %v", last.Replicas)
			}
			for _, x := range c.all[:n-1] {
				for _, dir := range []string{"/a", "/b"} {
					if free, err := x.fs.FreeBytes(dir); err != nil || free < vitalReserve/2 {
						t.Errorf("%d bytes are left in %s of %s, less than half of the reserve: %v", free, dir, x.id, err)
					}
				}
				c.setFree(x, 1<<30)
			}
			eventually(t, "appends go on", func() bool {
				pos, err := w.Append(ctx, []byte("again"))
				if err == nil {
					want = append(want, logRecord{[]byte("again"), pos})
				}
				return err == nil
			})
			noError(t, w.Close())
			got := readLog(t, c.all[0].Store, "n1", id)
			if len(got) != len(want) {
				t.Fatalf("%d records are read, %d were acknowledged", len(got), len(want))
			}
			equalRecords(t, got[1:], want[1:])
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
	c.all[2].fs.SetHook(func(op vfs.Op) error {
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
	noError(t, <-done)
	if err := w.Full(); err != nil {
		t.Errorf("no append waits: %v", err)
	}
	for range 3 {
		_, err := w.Append(ctx, []byte("more"))
		noError(t, err)
	}
	if st := w.Stats(); st.Slow > 0 || st.Failed > 0 {
		t.Errorf("replicas were given up: %+v", st)
	}
	noError(t, w.Close())
	if got := readLog(t, c.all[1].Store, "n1", id); len(got) != 5 {
		t.Errorf("%d records are read", len(got))
	}
}
