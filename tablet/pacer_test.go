package tablet

import (
	"context"
	"testing"
	"time"
)

// A compaction pauses while the server is serving reads, for a multiple of its work.
func TestPacer(t *testing.T) {
	const slice = 200 * time.Microsecond
	for _, c := range []struct {
		name        string
		perSlice    int64 // reads per slice
		ratio       time.Duration
		work, pause time.Duration // of a slice
	}{
		{"no reads", 0, 7, slice, 0},
		{"reads", 5, 7, slice, 7 * slice},
		{"reads, and compactions are somewhat behind", 5, 3, slice, 3 * slice},
		{"reads, and compactions are far behind", 5, 0, slice, 0},
		{"reads, and a disk that is slow", 5, 7, 50 * time.Millisecond, 7 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now, slept time.Duration
			var reads int64
			g := &pacer{
				calls: func() int64 { return reads }, ratio: func() time.Duration { return c.ratio }, now: func() time.Duration { return now },
				sleep: func(_ context.Context, d time.Duration) error { slept, now = slept+d, now+d; return nil }, ctx: t.Context(),
			}
			g.beginSlice()
			for range 10 {
				for range sliceBytes / 4096 {
					now += c.work / (sliceBytes / 4096)
					g.step(4096)
				}
				reads += c.perSlice
			}
			// Reads before the first slice do not count.
			if slept != 9*c.pause {
				t.Errorf("paused %v in ten slices, want %v in nine of them", slept, c.pause)
			}
		})
	}
}

// A compaction uses an eighth of a processor beside reads, a quarter when files pile up, and all of
// it when there are too many.
func TestPacerByBacklog(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	tab := e.tabletOfTest()
	cfg := &tab.server.cfg
	tab.lastMajor.Store(cfg.Now().UnixMicro())
	for files, want := range map[int]time.Duration{0: 7, 6: 7, 12: 7, 13: 3, 19: 3, 20: 0, 40: 0} {
		tab.mu.Lock()
		tab.setBacklog(cfg.backlogOf(files))
		tab.mu.Unlock()
		if got := tab.pauseRatio(); got != want {
			t.Errorf("with %d files the pause ratio is %d, want %d", files, got, want)
		}
	}
	tab.lastMajor.Store(cfg.Now().Add(-cfg.MajorPeriod).UnixMicro())
	tab.mu.Lock()
	tab.setBacklog(noBacklog)
	tab.mu.Unlock()
	if got := tab.pauseRatio(); got != 0 {
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
		if got := tab.minorPauseRatio(); got != ratio {
			t.Errorf("%s: pause ratio is %d, want %d", what, got, ratio)
		}
	}
	want("no urgency", 1)
	tab.minorWaiters.Add(1)
	want("a caller waits", 0)
	tab.minorWaiters.Add(-1)
	s.charged.Add(s.cfg.MemtablesBytesMax)
	want("memory is short", 0)
	s.charged.Add(-s.cfg.MemtablesBytesMax)
	want("no longer", 1)
	g := tab.newMinorPacer(t.Context())
	slept := false
	g.sleep = func(context.Context, time.Duration) error { slept = true; return nil }
	if g.step(sliceBytes); slept {
		t.Error("it pauses without writes")
	}
	e.mustApply("row", set("f", "q", 1, "value"))
	if g.step(sliceBytes); !slept {
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
		if e.behind() {
			t.Fatalf("behind with %d files", i)
		}
		add()
	}
	if !e.behind() {
		t.Fatal("not behind with half of FilesMax files")
	}
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	if e.behind() {
		t.Fatal("behind after a major compaction")
	}
	for range 20 {
		add()
	}
	if !e.behind() {
		t.Fatal("not behind")
	}
	if err := e.DropTable(testTable); err != nil {
		t.Fatal(err)
	}
	if e.behind() {
		t.Error("behind with a tablet that is not served")
	}
}

// The pause after a slice of work on one large value ends early when the compaction is cancelled,
// or when an operation begins to wait for it.
func TestPauseEndsEarly(t *testing.T) {
	for _, what := range []string{"interrupted", "urgent", "neither"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var now time.Duration
		ratio := time.Duration(7)
		g := &pacer{ctx: ctx, calls: func() int64 { return int64(now) }, ratio: func() time.Duration { return ratio }, now: func() time.Duration { return now }}
		g.sleep = func(ctx context.Context, d time.Duration) error {
			if now += d; now < 2*time.Second {
				return nil
			}
			switch what {
			case "interrupted":
				cancel()
			case "urgent":
				ratio = 0
			}
			return nil
		}
		g.beginSlice()
		now += time.Second
		g.step(100 << 20)
		paused := now - time.Second
		if whole := 100 << 20 / sliceBytes * sliceWorkMax * 7; what == "neither" && paused != whole || what != "neither" && paused > time.Second+2*pauseStep {
			t.Errorf("%s: paused %v", what, paused)
		}
	}
}
