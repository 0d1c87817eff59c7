package gc_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/clustertest"
	"github.com/steledb/stele/blobfs/local"
)

// fill makes all disks full, and returns how many extents are left in quarantine.
func (w *gcWorld) fill() int {
	w.t.Helper()
	for _, n := range w.c.All {
		for _, dir := range []string{"/a", "/b"} {
			n.FS.SetCapacity(dir, 1)
		}
		if _, err := n.CreateExtent(w.t.Context(), blobfs.ExtentID{Blob: blobfs.NewID()}, 0); !errors.Is(err, local.ErrDiskFull) {
			w.t.Fatalf("create on a full disk: %v", err)
		}
	}
	return len(w.quarantined())
}

// R12, R13: the roots have missed needed blobs, and one of them is read. Within minutes no full disk
// removes anything from quarantine, although only the node that served it has an alarm.
func TestFullDisksWhileHalted(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, blobs []*gcBlob) {
		s := w.c.All[2].GC().NewSweeper(w.catalog)
		missed := blobs[:8]
		for _, b := range missed {
			w.catalog.omits[b.h.ID] = true
		}
		for range 4 { // warned, quarantined, confirmed
			w.round(s)
		}
		clustertest.Get(t, w.c.All[0].Store, missed[3].h, missed[3].data)
		time.Sleep(2 * time.Minute)
		for _, n := range w.c.All {
			if why, err := n.GC().Halted(t.Context()); err != nil || !strings.Contains(why, missed[3].h.ID.String()) {
				t.Errorf("%s: halted %q, %v", n.ID, why, err)
			}
		}
		before := len(w.quarantined())
		if after := w.fill(); after != before {
			t.Errorf("%d of %d extents were removed from quarantine while garbage collection is halted", before-after, before)
		}
		for _, b := range missed {
			clustertest.Get(t, w.c.All[0].Store, b.h, b.data)
		}
	})
}

// A full disk removes garbage from quarantine while its node knows that garbage collection is not
// halted: not if the node cannot read that, and again soon after it can.
func TestFullDisksWithoutLockService(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, blobs []*gcBlob) {
		s := w.c.All[2].GC().NewSweeper(w.catalog)
		for range 4 {
			w.round(s)
		}
		down := func(down bool) {
			w.lists.Mu.Lock()
			defer w.lists.Mu.Unlock()
			w.lists.Down = down
		}
		down(true)
		time.Sleep(2 * time.Minute)
		if left := w.fill(); left != 2*3 {
			t.Errorf("without the lock service %d extents are left in quarantine, want all 6", left)
		}
		down(false)
		time.Sleep(time.Minute)
		if left := w.fill(); left != 0 {
			t.Errorf("with the lock service %d extents are left in quarantine", left)
		}
		w.check()
	})
}

// An alarm whose halt is in the lock service is not reported again: once an operator has resumed, and
// before the node has cleared its alarm, the node would halt garbage collection anew.
func TestHaltIsReportedOnce(t *testing.T) {
	inGCWorld(t, func(t *testing.T, w *gcWorld, _ []*gcBlob) {
		n := w.c.All[1]
		halted := func() string {
			t.Helper()
			time.Sleep(time.Minute)
			why, err := w.c.All[0].GC().Halted(t.Context())
			clustertest.NoError(t, err)
			return why
		}
		n.RaiseAlarm("one")
		if why := halted(); why != n.ID+": one" {
			t.Errorf("halted: %q", why)
		}
		w.cut(n, true)
		if err := w.c.All[0].GC().Resume(t.Context()); err == nil {
			t.Error("resumed, although the alarm of a node is not cleared")
		}
		if why := halted(); why != "" || n.Alarm() == "" {
			t.Errorf("halted again: %q; alarm of %s: %q", why, n.ID, n.Alarm())
		}
		w.cut(n, false)
		clustertest.NoError(t, w.c.All[0].GC().Resume(t.Context()))
		time.Sleep(time.Minute)
		n.RaiseAlarm("two")
		if why := halted(); why != n.ID+": two" {
			t.Errorf("halted: %q", why)
		}
	})
}
