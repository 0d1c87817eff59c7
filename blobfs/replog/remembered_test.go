package replog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/blobtest"
	"github.com/steledb/stele/blobfs/clustertest"
)

// A writer that finds no nodes for another extent tries again and again, and remembers nothing of the attempts.
func TestFullDisksNeedNoMemory(t *testing.T) {
	fill := func(t *testing.T, x *idleLog) {
		for _, n := range x.All {
			x.SetFree(n, -64<<10)
		}
		var err error
		for err == nil {
			_, err = x.w.Append(t.Context(), blobtest.Bytes(1, 50_000))
		}
		if !errors.Is(err, blobfs.ErrDiskFull) {
			t.Fatal(err)
		}
	}
	check := func(t *testing.T, x *idleLog) {
		t.Helper()
		time.Sleep(5 * time.Minute)
		if salts, reserved := x.w.Remembered(); salts > 4 || reserved > 4 {
			t.Errorf("after five minutes on full disks the writer remembers %d salts and %d reservations", salts, reserved)
		}
	}
	t.Run("appends are rejected", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			x := newIdleLog(t, 3)
			fill(t, x)
			check(t, x)
		})
	})
	t.Run("sent frames wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			x := newIdleLog(t, 3)
			fill(t, x)
			for _, n := range x.All {
				x.SetFree(n, -clustertest.Reserve) // so no space is left for an extent that uses the reserve
			}
			var err error
			for n := 0; err == nil && n < 50; n++ { // each uses up a spare file
				for _, e := range x.open() {
					_ = x.Get(e.Replicas[len(e.Replicas)-1]).DropLogReplica(t.Context(), x.id, e.Seq)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err = x.w.Append(ctx, []byte("waits"))
				cancel()
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("an append without space for its extent: %v", err)
			}
			check(t, x)
		})
	})
}
