package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/testseed"
)

// fill writes n rows, with keys from r0000, to table t.
func (f *fake) fill(c *Client, n int) {
	f.t.Helper()
	var ms []*RowMutation
	for i := range n {
		ms = append(ms, NewRowMutation(key(i)).SetAt("f:a", int64(i), []byte(key(i))).SetAt("g:b", 1, nil))
	}
	check(f.t, c.Table("t").ApplyAll(context.Background(), ms))
}

func key(i int) string { return fmt.Sprintf("r%04d", i) }

// keysOf reads a scan to its end.
func keysOf(s *Scanner) (keys []string, err error) {
	defer s.Close()
	for s.Next() {
		keys = append(keys, string(s.Row().Key))
	}
	return keys, s.Err()
}

func wantKeys(t *testing.T, name string, s *Scanner, from, to int) {
	t.Helper()
	keys, err := keysOf(s)
	var want []string
	for i := from; i < to; i++ {
		want = append(want, key(i))
	}
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("%s: %d rows %.60v, %v, want %s to %s", name, len(keys), keys, err, key(from), key(to))
	}
}

func TestScanRanges(t *testing.T) {
	f := newFake(t)
	c := f.open(Config{})
	f.fill(c, 500)
	tb, ctx := c.Table("t"), t.Context()
	small := BatchRows(7)
	wantKeys(t, "all", tb.Scan(ctx), 0, 500)
	wantKeys(t, "all, small batches", tb.Scan(ctx, small), 0, 500)
	wantKeys(t, "few bytes", tb.Scan(ctx, BatchBytes(100)), 0, 500)
	wantKeys(t, "start", tb.Scan(ctx, small, Start(key(490))), 490, 500)
	wantKeys(t, "end", tb.Scan(ctx, small, End(key(10))), 0, 10)
	wantKeys(t, "prefix", tb.Scan(ctx, small, Prefix("r001")), 10, 20)
	wantKeys(t, "prefix and start", tb.Scan(ctx, Prefix("r001"), Start(key(15)), End(key(300))), 15, 20)
	wantKeys(t, "limit", tb.Scan(ctx, small, Limit(20)), 0, 20)
	wantKeys(t, "limit at a batch", tb.Scan(ctx, small, Limit(21)), 0, 21)
	wantKeys(t, "empty", tb.Scan(ctx, Start("x"), End("b")), 0, 0)
	wantKeys(t, "nothing there", tb.Scan(ctx, Prefix("zz")), 0, 0)
	s := tb.Scan(ctx, Columns("f:a"), small)
	for i := 0; s.Next(); i++ {
		if got := values(s.Row()); len(got) != 1 || got[0] != "f:a="+key(i) {
			t.Fatalf("row %d is %v", i, got)
		}
	}
	check(t, s.Close())
	n := 0
	for row, err := range tb.Scan(ctx).Rows() {
		check(t, err)
		if n++; string(row.Key) == key(99) {
			break
		}
	}
	if n != 100 {
		t.Errorf("iterator returned %d rows", n)
	}
	for _, err := range c.Table("none").Scan(ctx).Rows() {
		if !errors.Is(err, ErrNoTable) {
			t.Errorf("unknown table: %v", err)
		}
	}
}

// Rows stay valid while the scan continues.
func TestScannedRowsAreTheCallers(t *testing.T) {
	f := newFake(t)
	c := f.open(Config{})
	f.fill(c, 300)
	i := 0
	var kept [][]string
	for row, err := range c.Table("t").Scan(t.Context(), BatchRows(10)).Rows() {
		check(t, err)
		row.Cells = append(row.Cells, row.Cells[0]) // must not overwrite the next row
		kept = append(kept, values(row))
		i++
	}
	for i, got := range kept {
		if len(got) != 3 || got[0] != "f:a="+key(i) || got[1] != "g:b=" {
			t.Fatalf("row %d is %v", i, got)
		}
	}
}

// Invariant C3: whatever breaks, each row is returned once and in order.
func TestScanSurvivesEverything(t *testing.T) {
	seed := testseed.New(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	f := newFake(t)
	c := f.open(Config{RetriesPerSecond: 1000, Conns: 2})
	f.fill(c, 400)
	faults := []func() error{
		func() error { f.cut(); return nil },
		func() error { f.mu.Lock(); clear(f.cursors); f.mu.Unlock(); return nil },
		func() error { return api.ErrNotServing },
		func() error { return api.ErrCursorExpired },
		func() error { return &api.OverloadedError{RetryAfter: time.Millisecond} },
	}
	n := 0
	f.on(func(when moment, method string) error {
		f.mu.Lock()
		n++
		misbehave, fault := rng.IntN(3) == 0, rng.IntN(len(faults))
		f.mu.Unlock()
		if when == after && fault > 1 || !misbehave || method == api.MethodScanOpen && fault == 3 {
			return nil
		}
		return faults[fault]()
	})
	for range 10 {
		f.mu.Lock()
		f.silent = !f.silent
		f.mu.Unlock()
		limit := rng.IntN(500)
		to := min(400, limit)
		if limit == 0 {
			to = 400
		}
		wantKeys(t, "scan", c.Table("t").Scan(t.Context(), BatchRows(1+rng.IntN(40)), Limit(int64(limit))), 0, to)
	}
	f.on(func(moment, string) error { return nil })
	s := c.Table("t").Scan(t.Context(), BatchRows(100))
	for i := range 400 {
		if i == 150 {
			f.restart()
		}
		if !s.Next() || string(s.Row().Key) != key(i) {
			t.Fatalf("row %d across a restart: %v", i, s.Err())
		}
	}
	if s.Next() || s.Err() != nil {
		t.Errorf("after the last row: %v", s.Err())
	}
}

// Invariant C4: one batch is being read, one is ready, and no third one is requested.
func TestScanIsOneBatchAhead(t *testing.T) {
	f := newFake(t)
	c := f.open(Config{})
	f.fill(c, 100)
	s := c.Table("t").Scan(t.Context(), BatchRows(10))
	defer s.Close()
	time.Sleep(20 * time.Millisecond)
	if n := f.count(f.requests, api.MethodScanOpen); n != 0 {
		t.Errorf("%d requests before the first Next", n)
	}
	for i := range 25 {
		if !s.Next() {
			t.Fatal(s.Err())
		}
		if i%10 == 0 {
			fetched := func() int { return f.count(f.requests, api.MethodScanNext) }
			for deadline := time.Now().Add(10 * time.Second); fetched() < i/10+1 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(20 * time.Millisecond) // for a request that would be too many
			if n := fetched(); n != i/10+1 {
				t.Errorf("at row %d: %d batches were requested after the first", i, n)
			}
		}
	}
	check(t, s.Close())
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		open := len(f.cursors)
		f.mu.Unlock()
		if open == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the cursor was not closed")
		}
	}
	if s.Next() || s.Err() != nil || s.Row() != nil {
		t.Errorf("a closed scanner continued: %v", s.Err())
	}
}

func TestScanEndsWithItsContextAndClient(t *testing.T) {
	f := newFake(t)
	c := f.open(Config{})
	f.fill(c, 100)
	ctx, cancel := context.WithCancel(t.Context())
	s := c.Table("t").Scan(ctx, BatchRows(10))
	if !s.Next() {
		t.Fatal(s.Err())
	}
	cancel()
	for s.Next() {
	}
	if !errors.Is(s.Err(), context.Canceled) {
		t.Errorf("canceled scan: %v", s.Err())
	}
	s = c.Table("t").Scan(t.Context(), BatchRows(10))
	if !s.Next() {
		t.Fatal(s.Err())
	}
	check(t, c.Close())
	for s.Next() {
	}
	if !errors.Is(s.Err(), ErrClosed) {
		t.Errorf("scan of a client that was closed: %v", s.Err())
	}
	check(t, c.Table("t").Scan(t.Context()).Close())
}
