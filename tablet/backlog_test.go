package tablet

import (
	"context"
	"testing"
	"time"

	"github.com/steledb/stele/tablet/sched"
)

// A compaction uses an eighth of a processor beside reads, a quarter when files pile up, and all of
// it when there are too many.
func TestPacerByBacklog(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	tab := e.tabletOfTest()
	cfg := &tab.server.cfg
	tab.meta.lastMajor.Store(cfg.Now().UnixMicro())
	for files, want := range map[int]time.Duration{0: 7, 6: 7, 12: 7, 13: 3, 19: 3, 20: 0, 40: 0} {
		tab.views.mu.Lock()
		tab.views.setBacklog(cfg.backlogOf(files))
		tab.views.mu.Unlock()
		if got := tab.merge.pauseRatio(); got != want {
			t.Errorf("with %d files the pause ratio is %d, want %d", files, got, want)
		}
	}
	tab.meta.lastMajor.Store(cfg.Now().Add(-cfg.MajorPeriod).UnixMicro())
	tab.views.mu.Lock()
	tab.views.setBacklog(noBacklog)
	tab.views.mu.Unlock()
	if got := tab.merge.pauseRatio(); got != 0 {
		t.Errorf("pause ratio of a late major compaction is %d", got)
	}
}

// A minor compaction pauses beside writes, but not while a caller waits for it, or memory is short.
func TestMinorPacer(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	tab := e.tabletOfTest()
	s := tab.server
	want := func(what string, ratio time.Duration) {
		t.Helper()
		if got := tab.minor.pauseRatio(); got != ratio {
			t.Errorf("%s: pause ratio is %d, want %d", what, got, ratio)
		}
	}
	want("no urgency", 1)
	tab.minor.waiters.Add(1)
	want("a caller waits", 0)
	tab.minor.waiters.Add(-1)
	s.writeMemory.Charge(s.cfg.MemtablesBytesMax)
	want("memory is short", 0)
	s.writeMemory.Release(s.cfg.MemtablesBytesMax)
	want("no longer", 1)
	g := tab.minor.pacer(t.Context())
	slept := false
	g.Sleep = func(context.Context, time.Duration) error { slept = true; return nil }
	if g.Step(sched.SliceBytes); slept {
		t.Error("it pauses without writes")
	}
	e.mustApply("row", set("f", "q", 1, "value"))
	if g.Step(sched.SliceBytes); !slept {
		t.Error("it does not pause beside writes")
	}
}

// Compactions are behind if they are for a served tablet, and for no other.
func TestBehind(t *testing.T) {
	e := newEnv(t, Config{FilesMerge: 30, FilesMax: 40, MemtableBytes: 64 << 10}, "f:")
	add := func() {
		e.mustApply("row", set("f", "q", 1, "value"))
		if err := e.tabletOfTest().flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if e.backlogs.behind() {
			t.Fatalf("behind with %d files", i)
		}
		add()
	}
	if !e.backlogs.behind() {
		t.Fatal("not behind with half of FilesMax files")
	}
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	if e.backlogs.behind() {
		t.Fatal("behind after a major compaction")
	}
	for range 20 {
		add()
	}
	if !e.backlogs.behind() {
		t.Fatal("not behind")
	}
	if err := e.DropTable(testTable); err != nil {
		t.Fatal(err)
	}
	if e.backlogs.behind() {
		t.Error("behind with a tablet that is not served")
	}
}
