package local

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// A disk that stalls while a spare is made or recycled does not keep logs from getting spares of
// another disk.
func TestStalledDiskHoldsNoSpares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem(vfs.MemOptions{Capacity: 1 << 30})
		s, err := Open(Config{Folders: []string{"/a", "/b"}, FS: fs, ReserveBytes: -1, ExtentBytes: 64 << 10, LogExtentsReady: 2})
		if err != nil {
			t.Fatal(err)
		}
		goOn := make(chan struct{})
		fs.SetHook(func(op vfs.Op) error {
			if strings.HasPrefix(op.Name, "/a/logs") {
				<-goOn
			}
			return nil
		})
		s.spares.start()
		synctest.Wait() // a worker waits for the disk of /a
		for i := range 5 {
			var f *logFile
			go func() { f, err = s.spares.take(false) }()
			synctest.Wait()
			if err != nil || f == nil || f.folder != s.folders[1] {
				t.Fatalf("spare %d: %v, %v", i, f, err)
			}
			if n := s.Stats().LogExtentsReady; n == 0 {
				t.Errorf("none is made ahead after spare %d", i)
			}
		}
		ran := false
		s.spares.later(s.folders[0], func() { <-goOn })
		s.spares.later(s.folders[0], func() {})
		s.spares.later(s.folders[1], func() { ran = true })
		if synctest.Wait(); !ran {
			t.Error("a job for a healthy disk waits for one on a disk that stalls")
		}
		close(goOn)
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Removing old spares from a stalled disk does not block the workers of another disk.
func TestStalledDiskHoldsNoRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem(vfs.MemOptions{Capacity: 1 << 30})
		s, err := Open(Config{Folders: []string{"/a", "/b"}, FS: fs, ReserveBytes: -1, ExtentBytes: 64 << 10, LogExtentsReady: 4, UsedSpareMax: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			f, err := s.folders[0].makeLogFile(s.cfg.ExtentBytes, func(time.Duration) {})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.spares.recycleFile(f); err != nil {
				t.Fatal(err)
			}
			time.Sleep(s.cfg.UsedSpareMax / 8) // so that another worker finds it
		}
		goOn := make(chan struct{})
		fs.SetHook(func(op vfs.Op) error {
			if strings.HasPrefix(op.Name, "/a/logs") {
				<-goOn
			}
			return nil
		})
		s.spares.start()
		time.Sleep(2 * s.cfg.UsedSpareMax)
		synctest.Wait()
		ran := false
		s.spares.later(s.folders[1], func() { ran = true })
		if synctest.Wait(); !ran {
			t.Error("a job for a healthy disk waits for removals on a disk that stalls")
		}
		close(goOn)
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
