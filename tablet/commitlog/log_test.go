package commitlog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/steledb/stele/internal/testseed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGoldenRecord(t *testing.T) {
	r := Record{Table: 4, Tablet: 1, First: 2, Ops: 1, Time: 3, Body: []byte("x")}
	const want = "8411644b" + "01000000" + "0400000000000000" + "0100000000000000" + "0200000000000000" + "01000000" + "0300000000000000" + "78"
	if got := hex.EncodeToString(appendRecord(nil, &r)); got != want {
		t.Fatalf("got %s\nwant %s", got, want)
	}
}

// I7: every flipped bit and every truncation is detected.
func TestDamagedRecord(t *testing.T) {
	whole := appendRecord(nil, &Record{Table: 1 << 40, Tablet: 7, First: 9, Ops: 2, Body: []byte("some entries")})
	if _, rest, err := ReadRecord(append(bytes.Clone(whole), "more"...)); err != nil || string(rest) != "more" {
		t.Fatalf("rest %q, error %v", rest, err)
	}
	for bit := range len(whole) * 8 {
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if _, _, err := ReadRecord(b); !errors.Is(err, ErrBadRecord) {
			t.Fatalf("bit %d flipped: %v", bit, err)
		}
	}
	for n := range whole {
		if _, _, err := ReadRecord(whole[:n]); !errors.Is(err, ErrBadRecord) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
}

// disk is a log blob in memory. It fails append number failAt, if that is not 0.
type disk struct {
	mu      sync.Mutex
	data    []byte
	appends int
	failAt  int
	delay   time.Duration
	err     error
}

func (d *disk) Append(_ context.Context, p []byte) (int64, error) {
	time.Sleep(d.delay)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.appends++
	if d.appends == d.failAt {
		return 0, d.err
	}
	d.data = append(d.data, p...)
	return int64(len(d.data)), nil
}

// holds reports whether the log has the record whose first sequence number is seq.
func (d *disk) holds(seq uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for rest := d.data; len(rest) > 0; {
		r, after, err := ReadRecord(rest)
		if err != nil {
			return false
		}
		if r.First == seq {
			return true
		}
		rest = after
	}
	return false
}

type counter struct{ n int64 }

func (c *counter) Stamp() int64 { c.n++; return c.n }

// CL1, CL2: commits from many goroutines are durable when done, in sequence order, with timestamps in
// that order.
func TestManyWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := testseed.New(t)
		d := &disk{delay: time.Millisecond}
		l := New(d, 100, Config{BatchBytesMax: 2000})
		stamp := &counter{}
		var lastSeq uint64
		var lastTime int64
		var done atomic.Int64
		var wg sync.WaitGroup
		for w := range uint64(16) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, w))
				for range 50 {
					acked := make(chan error)
					c := &Commit{Tablet: w, Ops: 1 + r.Uint32N(3), Body: make([]byte, r.IntN(3000)), Stamp: stamp}
					c.Done = func(c *Commit, err error) {
						if c.First <= lastSeq || c.Time <= lastTime {
							t.Errorf("commit %d at %d after %d at %d", c.First, c.Time, lastSeq, lastTime)
						}
						lastSeq, lastTime = c.First, c.Time
						done.Add(1)
						go func() { acked <- err }()
					}
					if err := l.Commit(c); err != nil {
						t.Error(err)
						return
					}
					if err := <-acked; err != nil || !d.holds(c.First) {
						t.Errorf("commit %d acknowledged with %v, durable: %v", c.First, err, d.holds(c.First))
					}
				}
			})
		}
		wg.Wait()
		l.Close()
		if done.Load() != 16*50 {
			t.Fatalf("%d commits done", done.Load())
		}
		if s := l.Stats(); s.Batches >= s.Commits {
			t.Errorf("no batching: %d batches for %d commits", s.Batches, s.Commits)
		}
	})
}

// CL3: after a failed append nothing is acknowledged.
func TestFailureIsFinal(t *testing.T) {
	d := &disk{failAt: 3, err: errors.New("i/o error")}
	l := New(d, 1, Config{})
	defer l.Close()
	var failed *FailedError
	for i := range 10 {
		err := commit(l, "x")
		if got, want := err == nil, i < 2; got != want {
			t.Fatalf("commit %d: %v", i, err)
		}
		if err != nil && (errors.As(err, &failed) != (i == 2) || errors.Is(err, ErrClosed) != (i > 2)) {
			t.Fatalf("commit %d, the third was appended: %v", i, err)
		}
	}
	if d.appends != 3 {
		t.Fatalf("%d appends, the third failed", d.appends)
	}
}

func TestRetryableFailureHitsOneBatch(t *testing.T) {
	full := errors.New("disk full")
	d := &disk{failAt: 2, err: full}
	l := New(d, 1, Config{Retryable: func(err error) bool { return errors.Is(err, full) }})
	defer l.Close()
	for i := range 4 {
		err := commit(l, "x")
		if unsure := (*FailedError)(nil); errors.Is(err, full) != (i == 1) || errors.As(err, &unsure) {
			t.Fatalf("commit %d: %v", i, err)
		}
	}
}

func commit(l *Log, body string) error {
	acked := make(chan error, 1)
	c := &Commit{Ops: 1, Body: []byte(body), Done: func(_ *Commit, err error) { acked <- err }}
	if err := l.Commit(c); err != nil {
		return err
	}
	return <-acked
}

// stalledDisk completes no append before it is released.
type stalledDisk struct {
	disk
	began, release chan struct{}
}

func (d *stalledDisk) Append(ctx context.Context, p []byte) (int64, error) {
	d.began <- struct{}{}
	<-d.release
	return d.disk.Append(ctx, p)
}

// Between returns although the log blob is stalled, and Commit after CommitWait. Accepted commits
// complete later, and not while Between's function runs.
func TestStalledLogBlocksNoCaller(t *testing.T) {
	d := &stalledDisk{began: make(chan struct{}, 8), release: make(chan struct{})}
	l := New(d, 1, Config{BatchBytesMax: 1000, CommitWait: time.Millisecond})
	done := make(chan error, 2)
	commit := func() error {
		return l.Commit(&Commit{Ops: 1, Body: make([]byte, 900), Done: func(_ *Commit, err error) { done <- err }})
	}
	for i := range 2 { // one under way, and one that fills the next batch
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-d.began
		}
	}
	next := l.Next()
	if err := commit(); err != ErrBusy || l.Next() != next {
		t.Errorf("a commit without space: %v; the next number was %d, is %d", err, next, l.Next())
	}
	ran := 0
	if err := l.Between(func() {
		if ran++; len(done) > 0 {
			t.Error("a commit is done whose append is not")
		}
	}); err != nil || ran != 1 {
		t.Errorf("during a stalled append: ran %d times, %v", ran, err)
	}
	close(d.release)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	l.Close()
	if err := l.Between(func() { t.Error("called after the end") }); err != ErrClosed {
		t.Errorf("after the end: %v", err)
	}
}

// A failed log accepts no commits, and Between works until it is closed.
func TestBetweenAfterFailure(t *testing.T) {
	l := New(&disk{failAt: 1, err: errors.New("broken")}, 1, Config{})
	defer l.Close()
	if err := commit(l, "x"); err == nil {
		t.Fatal("committed to a broken log")
	}
	ran := false
	if err := l.Between(func() { ran = true }); err != nil || !ran {
		t.Errorf("ran: %v, %v", ran, err)
	}
}

func TestCoveredIsNeverTooMuch(t *testing.T) {
	d := &disk{}
	l := New(d, 1, Config{})
	type at struct {
		seq uint64
		pos int64
	}
	var acked []at
	for range 40 {
		if err := commit(l, strings.Repeat("x", 100<<10)); err != nil {
			t.Fatal(err)
		}
		acked = append(acked, at{seq: l.Next() - 1, pos: int64(len(d.data))})
	}
	for redo := uint64(1); redo <= l.Next(); redo++ {
		covered := l.Covered(redo)
		for _, a := range acked {
			if a.pos <= covered && a.seq >= redo {
				t.Fatalf("redo %d: covered %d, but record %d ends at %d", redo, covered, a.seq, a.pos)
			}
		}
	}
	if got := l.Covered(l.Next()); got != int64(len(d.data)) {
		t.Fatalf("all covered: %d of %d bytes", got, len(d.data))
	}
	l.Close()
}

// Sequence numbers continue above those of another server, and never decrease. Released log space
// is still only that below the redo point.
func TestRaise(t *testing.T) {
	d := &disk{}
	l := New(d, 5, Config{})
	defer l.Close()
	for _, c := range []struct{ raise, want uint64 }{{0, 5}, {6, 6}, {100, 100}, {50, 101}, {102, 102}} {
		l.Raise(c.raise)
		if err := commit(l, "x"); err != nil {
			t.Fatal(err)
		}
		if got := l.Next() - 1; got != c.want {
			t.Fatalf("raised to %d: the next number was %d, want %d", c.raise, got, c.want)
		}
		if !d.holds(c.want) {
			t.Fatalf("record %d is not in the log", c.want)
		}
	}
	whole := int64(len(d.data))
	if got := l.Covered(102); got >= whole {
		t.Fatalf("a redo point of 102 covers all %d bytes, and so record 102", got)
	}
	if got := l.Covered(103); got != whole {
		t.Fatalf("all is below the redo point, covered %d of %d bytes", got, whole)
	}
}

// stuck blocks every append until its context ends.
type stuck struct{}

func (stuck) Append(ctx context.Context, _ []byte) (int64, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// A log whose replicas do not answer can still be closed.
func TestAbandonedAppendEnds(t *testing.T) {
	l := New(stuck{}, 1, Config{})
	done := make(chan error, 1)
	if err := l.Commit(&Commit{Ops: 1, Body: []byte("x"), Done: func(_ *Commit, err error) { done <- err }}); err != nil {
		t.Fatal(err)
	}
	l.CancelAppend()
	l.Close()
	var failed *FailedError
	if err := <-done; !errors.As(err, &failed) {
		t.Errorf("a commit that may be in the log ends with %v", err)
	}
}

func TestClosedLogRefuses(t *testing.T) {
	l := New(&disk{}, 1, Config{})
	l.Close()
	if err := commit(l, "x"); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	l.Close()
}

func FuzzReadRecord(f *testing.F) {
	f.Add(appendRecord(nil, &Record{Tablet: 1, First: 2, Ops: 3, Body: []byte("body")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := ReadRecord(b)
		if err != nil {
			return
		}
		if !bytes.Equal(appendRecord(nil, &r), b[:len(b)-len(rest)]) {
			t.Fatal("record does not round-trip")
		}
	})
}

func BenchmarkCommit64Writers(b *testing.B) {
	l := New(&disk{data: make([]byte, 0, 64<<20)}, 1, Config{})
	defer l.Close()
	body := make([]byte, 1000)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		acked := make(chan struct{}, 1)
		c := &Commit{Ops: 1, Body: body, Done: func(*Commit, error) { acked <- struct{}{} }}
		for pb.Next() {
			if err := l.Commit(c); err != nil {
				b.Fatal(err)
			}
			<-acked
		}
	})
}
