package disks

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

const hour = 3600 // in s

// filled returns a history in which used bytes are added each minute.
func filled(used func(minute int64) int64, minutes int64) *history {
	h := &history{}
	for i := range minutes {
		h.add(sample{i * 60, used(i)})
	}
	return h
}

// TestGrowth (DK1): the growth is that of the period by which disks are full first, if it is trusted so long, and else of the longest
// period that was half observed.
func TestGrowth(t *testing.T) {
	steady := func(minute int64) int64 { return 1000 * minute } // 1,440,000 a day
	night := func(minute int64) int64 {                         // nothing for 8 days, then much for an hour
		return 1_000_000 * max(0, minute-8*24*60)
	}
	for _, x := range []struct {
		name    string
		used    func(minute int64) int64
		minutes int64
		free    int64
		perDay  int64
		over    time.Duration
	}{
		{"too short", steady, 29, 1e9, 0, 0},
		{"half an hour", steady, 31, 1e9, 1_440_000, time.Hour},
		{"eleven hours", steady, 11 * 60, 1e9, 1_440_000, time.Hour},
		{"a day", steady, 24 * 60, 1e9, 1_440_000, 24 * time.Hour},
		{"eight days", steady, 8 * 24 * 60, 1e9, 1_440_000, 7 * 24 * time.Hour},
		{"an hour that fills the disk today", night, 8*24*60 + 60, 1e9, 1_440_000_000, time.Hour},
		{"shrinking", func(m int64) int64 { return 1e9 - m }, 8 * 24 * 60, 1e9, -1440, 7 * 24 * time.Hour},
	} {
		perDay, over := filled(x.used, x.minutes).growth((x.minutes-1)*60, x.free)
		if off := perDay - x.perDay; off < -20_000_000 || off > 20_000_000 || over != x.over || x.perDay < 1e7 && off*off > 1 {
			t.Errorf("%s: %d bytes a day over %v, want %d over %v", x.name, perDay, over, x.perDay, x.over)
		}
	}
}

// TestClockSetBack: what was recorded at times that are to come is dropped.
func TestClockSetBack(t *testing.T) {
	h := filled(func(m int64) int64 { return m }, 600)
	h.add(sample{120 * 60, 7})
	if n := len(h.mu.hours); n != 3 || h.mu.hours[n-1] != (sample{120 * 60, 7}) {
		t.Errorf("hours: %v", h.mu.hours)
	}
	if n := len(h.mu.minutes); n > minutesMax || h.mu.minutes[n-1].used != 7 {
		t.Errorf("minutes: %v", h.mu.minutes)
	}
}

// TestHistoryAcrossRestart: the hours are there after a restart. A damaged file is ignored, and replaced.
func TestHistoryAcrossRestart(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, historyFile)
	kept := "100 5\n3700 6\n"
	if err := os.WriteFile(name, []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Config{FS: vfs.OS(), Dirs: []string{dir}})
	s.history.mu.hours = s.readHistory()
	if want := []sample{{100, 5}, {3700, 6}}; !slices.Equal(s.history.mu.hours, want) {
		t.Fatalf("read %v, want %v", s.history.mu.hours, want)
	}
	if s.history.add(sample{3760, 7}) || !s.history.add(sample{7300, 8}) {
		t.Error("an hour is recorded after a minute, or not after an hour")
	}
	s.writeHistory()
	if b, err := os.ReadFile(name); err != nil || string(b) != kept+"7300 8\n" {
		t.Errorf("written: %q, %v", b, err)
	}
	for i := range int64(24) {
		s.history.add(sample{7300 + i*hour, 1e6 * i})
	}
	if perDay, over := s.history.growth(7300+24*hour, 1e9); perDay < 23e6 || over != 24*time.Hour {
		t.Errorf("%d bytes a day over %v after a restart", perDay, over)
	}
	for _, damaged := range []string{"x", "5 6\n5 7\n", "1 -1\n", "1\n", string(make([]byte, historyFileMax+1))} {
		if err := os.WriteFile(name, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := s.readHistory(); got != nil {
			t.Errorf("%.9q: read %v", damaged, got)
		}
	}
}

// TestObserve: the used space is recorded each minute, and the growth known after half an hour.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem(vfs.MemOptions{Capacity: 1 << 20})
		if err := mem.MkdirAll("/a"); err != nil {
			t.Fatal(err)
		}
		f, err := mem.Create("/a/data")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var goroutines sync.WaitGroup
		s := New(Config{Ctx: t.Context(), Background: &goroutines, FS: mem, Dirs: []string{"/a"}, ReserveBytes: 1, Retired: func() map[string]error { return nil }})
		s.Observe()
		for i := range int64(40) {
			if _, err := f.WriteAt(make([]byte, 1000), i*1000); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if perDay, over := s.Growth(); over != time.Hour || perDay < 1_300_000 || perDay > 1_500_000 {
			t.Errorf("%d bytes a day over %v, want about 1,440,000 over an hour", perDay, over)
		}
	})
}
