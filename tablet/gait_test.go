package tablet

import (
	"testing"
	"time"
)

// A compaction rests while the server is read and compactions are not behind, three times as long as it works.
func TestGait(t *testing.T) {
	const turn = 200 * time.Microsecond
	for _, c := range []struct {
		name                string
		perTurn             int64 // reads
		behind              bool
		work, rest, restMax time.Duration // of ten turns
	}{
		{"nobody reads", 0, false, turn, 0, 0},
		{"reads", 5, false, turn, 3 * turn, 3 * turn},
		{"reads, and compactions are behind", 5, true, turn, 0, 0},
		{"reads, and a disk that is slow", 5, false, 50 * time.Millisecond, 3 * time.Millisecond, 3 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now, slept time.Duration
			var reads int64
			g := &gait{
				reads: func() int64 { return reads }, hurry: func() bool { return c.behind }, now: func() time.Duration { return now },
				sleep: func(d time.Duration) { slept, now = slept+d, now+d },
			}
			g.turn()
			for range 10 {
				for range gaitBytes / 4096 {
					now += c.work / (gaitBytes / 4096)
					g.step(4096)
				}
				reads += c.perTurn
			}
			// Reads before the first turn count for none.
			if c.perTurn > 0 && !c.behind && slept != 9*c.rest || c.rest == 0 && slept != 0 {
				t.Errorf("rested %v in ten turns, want %v in nine of them", slept, c.rest)
			}
		})
	}
}

// Whether compactions are behind is known of each tablet that is served, and of no other.
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
