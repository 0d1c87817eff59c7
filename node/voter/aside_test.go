package voter

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/node/identity"
)

// TestRemoveOldLogs: a log that was set aside is removed a week later, and not while the node does not hold its lock.
func TestRemoveOldLogs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f, err := identity.Inspect([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		self := &identity.Self{}
		self.Open(f)
		old := filepath.Join(dir, "raft.aside."+time.Now().UTC().Format("20060102T150405Z"))
		if err := os.MkdirAll(old, 0o700); err != nil {
			t.Fatal(err)
		}
		there := func() bool {
			synctest.Wait()
			_, err := os.Stat(old)
			return err == nil
		}
		var leased atomic.Bool
		done := make(chan struct{})
		go func() {
			New(Config{Ctx: ctx, Log: slog.New(slog.DiscardHandler), Self: self}).RemoveOldLogs(leased.Load)
			close(done)
		}()
		time.Sleep(identity.AsideKept + 2*asidePeriod)
		if !there() {
			t.Error("removed without a lease")
		}
		leased.Store(true)
		time.Sleep(asidePeriod)
		if there() {
			t.Error("not removed with a lease")
		}
		cancel()
		<-done
	})
}
