package replog_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/replog"
)

// The extents that a log left early count as unused space until they are released, full ones do not.
func TestUnusedSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newIdleLog(t, 4)
		unused := func() int64 {
			time.Sleep(time.Minute)
			n, crowded := x.w.Unused(0)
			if crowded {
				t.Error("crowded")
			}
			return n
		}
		for first := x.open()[0].Seq; x.open()[0].Seq == first; {
			_, err := x.w.Append(t.Context(), blobtest.Bytes(1, 10_000))
			clustertest.NoError(t, err)
		}
		if n := unused(); n != 0 {
			t.Errorf("%d bytes are unused in a log of full extents", n)
		}
		pos := int64(0)
		for range 3 {
			var err error
			pos, err = x.w.Append(t.Context(), []byte("short"))
			clustertest.NoError(t, err)
			e := x.open()[0]
			clustertest.NoError(t, x.Get(e.Replicas[1]).DropLogReplica(t.Context(), x.id, e.Seq))
			time.Sleep(time.Minute)
		}
		short := int64(0)
		for _, e := range x.lists.LogList(t, "n1", x.id).Extents {
			if e.Length >= 0 && e.Length < 64<<10 {
				short++
			}
		}
		if n := unused(); short < 3 || n < short*(240<<10) || n > short*(256<<10) {
			t.Errorf("%d bytes are unused in %d short extents", n, short)
		}
		if n, _ := x.w.Unused(pos); n != 0 {
			t.Errorf("%d bytes are unused after the end", n)
		}
		x.w.Release(pos)
		if n := unused(); n != 0 {
			t.Errorf("%d bytes are unused after all was released", n)
		}
	})
}

// A log whose list is full rejects appends, as on a full disk, and accepts them again once extents are released.
func TestFullList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := clustertest.NewLists()
		cluster := clustertest.Quick
		cluster.Lists, cluster.Logs = lists, replog.Config{DeadlineMin: 4 * time.Millisecond, ExtentAge: time.Millisecond}
		c := clustertest.New(t, clustertest.Config{N: 1, Extent: 64 << 10, Cluster: cluster, Virtual: true})
		id := blobfs.NewID()
		w, err := c.All[0].ReplicatedLogs().Create(t.Context(), "n1", id)
		clustertest.NoError(t, err)
		defer w.Close()
		want, pos := 0, int64(0)
		for {
			end, err := w.Append(t.Context(), blobtest.Bytes(1, 10_000))
			if errors.Is(err, blobfs.ErrDiskFull) && errors.Is(err, logproto.ErrListFull) {
				break
			}
			if err != nil {
				t.Fatalf("append %d: %v", want, err)
			}
			if want++; want == 600 {
				pos = end
			}
			time.Sleep(20 * time.Millisecond)
		}
		l := lists.LogList(t, "n1", id)
		if _, crowded := w.Unused(0); !crowded || len(l.Extents) < 1000 {
			t.Errorf("crowded: %v, with %d extents", crowded, len(l.Extents))
		}
		if _, crowded := w.Unused(pos); crowded {
			t.Error("crowded, although most extents can be released")
		}
		w.Release(pos)
		time.Sleep(time.Second)
		_, err = w.Append(t.Context(), []byte("again"))
		clustertest.NoError(t, err)
	})
}
