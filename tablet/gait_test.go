package tablet

import (
	"context"
	"testing"
	"time"
)

// A compaction pauses while the server is serving reads, for a multiple of its work.
func TestGait(t *testing.T) {
	const turn = 200 * time.Microsecond
	for _, c := range []struct {
		name       string
		perTurn    int64 // reads
		times      time.Duration
		work, rest time.Duration // of a turn
	}{
		{"nobody reads", 0, 7, turn, 0},
		{"reads", 5, 7, turn, 7 * turn},
		{"reads, and compactions are somewhat behind", 5, 3, turn, 3 * turn},
		{"reads, and compactions are far behind", 5, 0, turn, 0},
		{"reads, and a disk that is slow", 5, 7, 50 * time.Millisecond, 7 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now, slept time.Duration
			var reads int64
			g := &gait{
				calls: func() int64 { return reads }, rest: func() time.Duration { return c.times }, now: func() time.Duration { return now },
				sleep: func(_ context.Context, d time.Duration) { slept, now = slept+d, now+d }, ctx: t.Context(),
			}
			g.turn()
			for range 10 {
				for range gaitBytes / 4096 {
					now += c.work / (gaitBytes / 4096)
					g.step(4096)
				}
				reads += c.perTurn
			}
			// Reads before the first slice do not count.
			if slept != 9*c.rest {
				t.Errorf("paused %v in ten slices, want %v in nine of them", slept, c.rest)
			}
		})
	}
}

// A compaction uses an eighth of a processor beside reads, a quarter when files pile up, and all of
// it when there are too many.
func TestGaitByBacklog(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	tab := e.tabletOfTest()
	cfg := &tab.server.cfg
	tab.lastMajor.Store(cfg.Now().UnixMicro())
	for files, want := range map[int]time.Duration{0: 7, 6: 7, 12: 7, 13: 3, 19: 3, 20: 0, 40: 0} {
		tab.mu.Lock()
		tab.setBacklog(cfg.backlogOf(files))
		tab.mu.Unlock()
		if got := tab.gaitRest(); got != want {
			t.Errorf("with %d files the pause ratio is %d, want %d", files, got, want)
		}
	}
	tab.lastMajor.Store(cfg.Now().Add(-cfg.MajorPeriod).UnixMicro())
	tab.mu.Lock()
	tab.setBacklog(noBacklog)
	tab.mu.Unlock()
	if got := tab.gaitRest(); got != 0 {
		t.Errorf("pause ratio of a late major compaction is %d", got)
	}
}

// A minor compaction pauses beside writes, but not while a caller waits for it, or memory is short.
func TestMinorRest(t *testing.T) {
	e := newEnv(t, Config{}, "f:")
	tab := e.tabletOfTest()
	s := tab.server
	want := func(what string, times time.Duration) {
		t.Helper()
		if got := tab.minorRest(); got != times {
			t.Errorf("%s: pause ratio is %d, want %d", what, got, times)
		}
	}
	want("nothing is the matter", 1)
	tab.minorWaiters.Add(1)
	want("somebody waits", 0)
	tab.minorWaiters.Add(-1)
	s.charged.Add(s.cfg.MemtablesBytesMax)
	want("memory is short", 0)
	s.charged.Add(-s.cfg.MemtablesBytesMax)
	want("no longer", 1)
	g := tab.newMinorGait(t.Context())
	slept := false
	g.sleep = func(context.Context, time.Duration) { slept = true }
	if g.step(gaitBytes); slept {
		t.Error("it pauses without writes")
	}
	e.mustApply("row", set("f", "q", 1, "value"))
	if g.step(gaitBytes); !slept {
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
		times := time.Duration(7)
		g := &gait{ctx: ctx, calls: func() int64 { return int64(now) }, rest: func() time.Duration { return times }, now: func() time.Duration { return now }}
		g.sleep = func(ctx context.Context, d time.Duration) {
			if now += d; now < 2*time.Second {
				return
			}
			switch what {
			case "interrupted":
				cancel()
			case "urgent":
				times = 0
			}
		}
		g.turn()
		now += time.Second
		g.step(100 << 20)
		paused := now - time.Second
		if whole := 100 << 20 / gaitBytes * gaitWorkMax * 7; what == "neither" && paused != whole || what != "neither" && paused > time.Second+2*pauseStep {
			t.Errorf("%s: paused %v", what, paused)
		}
	}
}
