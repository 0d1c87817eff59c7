package commitlog

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A mark is kept for each MiB of log. Covered returns the last position below the redo point, and
// discards the marks below it.
func TestMarks(t *testing.T) {
	var m marks
	if got := m.covered(math.MaxUint64); got != 0 || m.end() != 0 {
		t.Fatalf("an empty log covers %d of %d bytes", got, m.end())
	}
	for _, k := range []mark{
		{100, 10}, {markBytes + 99, 20}, {markBytes + 100, 30}, {markBytes + 101, 40}, {2*markBytes + 100, 50}, {2*markBytes + 500, 60},
	} {
		m.add(k, 0)
	}
	if want := []mark{{100, 10}, {markBytes + 100, 30}, {2*markBytes + 100, 50}}; len(m.mu.list) != 3 || [3]mark(m.mu.list) != [3]mark(want) {
		t.Errorf("the marks are %v, want %v", m.mu.list, want)
	}
	for _, c := range []struct {
		redo  uint64
		want  int64
		marks int
	}{
		{9, 0, 3}, {10, 100, 2}, {29, 100, 2}, {30, markBytes + 100, 1}, {10, markBytes + 100, 1}, {49, markBytes + 100, 1},
		{50, 2*markBytes + 100, 0}, {59, 2*markBytes + 100, 0}, {60, 2*markBytes + 500, 0}, {61, 2*markBytes + 500, 0},
	} {
		if got := m.covered(c.redo); got != c.want || len(m.mu.list) != c.marks {
			t.Errorf("redo %d: covered %d with %d marks left, want %d with %d", c.redo, got, len(m.mu.list), c.want, c.marks)
		}
	}
	if got := m.end(); got != 2*markBytes+500 {
		t.Errorf("the log ends at %d", got)
	}
}

// Marks are at both ends of the batch during which the log moved to another extent, so an extent is released as soon as no record in it is
// needed, however short it is.
func TestMarksOfExtents(t *testing.T) {
	var m marks
	for i, extent := range []uint64{1, 1, 1, 2, 2, 2, 4} {
		m.add(mark{int64(i+1) * 10, uint64(i + 1)}, extent)
	}
	for redo, want := range []int64{0, 10, 10, 30, 40, 40, 60, 70} {
		if got := m.covered(uint64(redo)); got != want {
			t.Errorf("redo %d: covered %d, want %d", redo, got, want)
		}
	}
	m.add(mark{80, 8}, 4)
	m.add(mark{90, 9}, 4)
	m.add(mark{100, 10}, 5)
	if got := m.covered(9); got != 90 {
		t.Errorf("covered %d, want 90", got)
	}
}

// A record may be empty, and its last entry may have the highest number.
func TestRecordBounds(t *testing.T) {
	for _, r := range []Record{{Tablet: 1, First: 1, Ops: 1}, {First: math.MaxUint64 - 2, Ops: 2}, {First: math.MaxUint64}} {
		got, rest, err := ReadRecord(appendRecord(nil, &r))
		if err != nil || len(rest) != 0 || got.First != r.First || got.Ops != r.Ops || len(got.Body) != 0 {
			t.Errorf("%+v is read as %+v, %v", r, got, err)
		}
	}
	if _, _, err := ReadRecord(appendRecord(nil, &Record{First: math.MaxUint64 - 2, Ops: 3})); !errors.Is(err, ErrBadRecord) {
		t.Errorf("numbers that overflow: %v", err)
	}
	whole := appendRecord(nil, &Record{Body: []byte("body")})
	if _, _, err := ReadRecord(whole[:len(whole)-1]); err == nil || !strings.Contains(err.Error(), "body of 4 bytes, 3 are left") {
		t.Errorf("a record without its last byte: %v", err)
	}
}

// A batch has up to BatchBytesMax bytes with the headers of its records. A larger commit has a
// batch of its own.
func TestBatchBounds(t *testing.T) {
	const limit = 1000
	for _, c := range []struct {
		name   string
		bodies []int
		busy   bool // the last does not fit
	}{
		{"full", []int{300, limit - 300 - 2*headerLen}, false},
		{"one byte too many", []int{300, limit - 300 - 2*headerLen + 1}, true},
		{"large alone", []int{5 * limit}, false},
		{"behind a large one", []int{5 * limit, 0}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(stuck{}, 1, Config{BatchBytesMax: limit, CommitWait: time.Second})
				add := func(n int) error {
					return l.Commit(&Commit{Ops: 1, Body: bytes.Repeat([]byte{'x'}, n), Done: func(*Commit, error) {}})
				}
				if err := add(1); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the first batch is with the appender, which takes nothing
				start := time.Now()
				for i, n := range c.bodies {
					err, last := add(n), i == len(c.bodies)-1
					if busy := errors.Is(err, ErrBusy); busy != (c.busy && last) || !busy && err != nil {
						t.Errorf("commit %d of %d bytes: %v", i, n, err)
					}
				}
				if waited := time.Since(start); (waited == time.Second) != c.busy || !c.busy && waited != 0 {
					t.Errorf("commits waited for %v", waited)
				}
				l.CancelAppend()
				l.Close()
			})
		})
	}
}

func TestDefaults(t *testing.T) {
	l := New(&disk{}, 1, Config{})
	defer l.Close()
	if l.cfg.BatchBytesMax != 4194304 || l.cfg.CommitWait != 2*time.Second || l.cfg.Retryable(ErrBusy) {
		t.Errorf("the defaults are %+v", l.cfg)
	}
}

// The buffer of a batch is reused unless a large commit made it more than twice as large as a
// batch.
func TestLargeBuffersGo(t *testing.T) {
	const limit = 1000
	l := New(&disk{}, 1, Config{BatchBytesMax: limit})
	defer l.Close()
	for n, kept := range map[int]bool{limit: true, 2 * limit: true, 2*limit + 1: false, 9 * limit: false} {
		b := &batch{buf: make([]byte, 1, n), commits: []*Commit{nil}, err: ErrBusy}
		l.recycle(b)
		if (cap(b.buf) == n) != kept || len(b.buf) != 0 || len(b.commits) != 0 || b.err != nil {
			t.Errorf("a buffer of %d bytes is kept: %v, want %v", n, cap(b.buf) == n, kept)
		}
		<-l.free
	}
}
