package client

import (
	"errors"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
)

// replaceTable drops the table t, which has two tablets, and creates another one with its name on
// the same servers.
func (f *fake) replaceTable(id uint64) {
	f.mu.Lock()
	f.cluster.ids["t"] = id
	f.mu.Unlock()
	f.create("t", "f", "g")
	f.layout("t", []string{"m"}, 2, 3)
}

// A client that has cached the tablets of a dropped table sends nothing to another table with that
// name before it has looked up its id.
func TestReplacedTable(t *testing.T) {
	f := newFakeCluster(newFake(t), 6)
	f.layout("t", []string{"m"}, 2, 3)
	tb := f.open(Config{}).Table("t")
	ctx := t.Context()
	id := uint64(70)
	for what, do := range map[string]func() error{
		"Apply":    func() error { return tb.Apply(ctx, put("a")) },
		"ApplyAll": func() error { return tb.ApplyAll(ctx, []*RowMutation{put("a"), put("b"), put("z")}) },
		"Get":      func() error { _, err := tb.Get(ctx, "a"); return err },
		"GetAll":   func() error { _, err := tb.GetAll(ctx, []string{"a", "b", "z"}); return err },
		"CheckAndMutate": func() error {
			_, err := tb.CheckAndMutate(ctx, "a", nil, put("a"), nil)
			return err
		},
		"Increment":     func() error { _, err := tb.Increment(ctx, "a", "f:n", 1); return err },
		"SampleRowKeys": func() error { _, err := tb.SampleRowKeys(ctx); return err },
		"Scan": func() error {
			for _, err := range tb.Scan(ctx).Rows() {
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		check(t, do())
		id++
		f.replaceTable(id)
		f.traced()
		if err := do(); err != nil {
			t.Errorf("%s on another table of the name: %v", what, err)
		}
		lookups := 0
		for _, request := range f.traced() {
			if request == api.MethodRoot+" t@0" {
				lookups++
			}
		}
		if lookups < 1 || lookups > 2 { // a lookup for each of two tablets
			t.Errorf("%s looked up the table's id %d times, want at most once for each tablet", what, lookups)
		}
	}
	if n := f.count(f.requests, withoutID); n != 0 {
		t.Errorf("%d requests had no table id", n)
	}

	f.replaceTable(id + 1)
	check(t, tb.Apply(ctx, put("a")))
	f.traced()
	f.replaceTable(id + 2)
	check(t, tb.Apply(ctx, put("a")))
	wantTrace(t, f, "another table of the name", "mutate t@2!", "root t@0", scanMetadata+"@1", "mutate t@2")
}

// C8: a scan returns rows of one table, and none of a table that got its name meanwhile.
func TestReplacedTableDuringScan(t *testing.T) {
	f := newFakeCluster(newFake(t), 6)
	f.layout("t", []string{"m"}, 2, 3)
	tb := f.open(Config{}).Table("t")
	ctx := t.Context()
	all := []string{"a", "b", "c", "d", "n", "o"}
	fill := func() {
		t.Helper()
		for _, row := range all {
			check(t, tb.Apply(ctx, put(row)))
		}
	}
	fill()
	for _, forget := range []bool{false, true} {
		s := tb.Scan(ctx, BatchRows(1))
		if !s.Next() {
			t.Fatal(s.Err())
		}
		f.replaceTable(f.cluster.ids["t"] + 1)
		if forget { // and the client has the other table's id when the scan continues
			f.mu.Lock()
			clear(f.cursors)
			f.mu.Unlock()
			tb.client.locator.forgetAll()
		}
		fill()
		rows := 1
		for s.Next() {
			rows++
		}
		if err := s.Err(); !errors.Is(err, ErrNoTable) || rows > 3 { // some are lookups ahead
			t.Errorf("scan of a table that was replaced: %d rows, %v", rows, err)
		}
		_ = s.Close() // returns the same error
	}
}

// A call that has no time left for a pause between two attempts looks up a table whose cached location is of a table that was dropped, instead of
// reporting that the table was replaced.
func TestReplacedTableAfterRetries(t *testing.T) {
	f := newFakeCluster(newFake(t), 6)
	f.layout("t", []string{"m"}, 2, 3)
	tb := f.open(Config{RetryTimeMax: time.Nanosecond}).Table("t")
	check(t, tb.Apply(t.Context(), put("a")))
	calls := 0
	f.on(func(when moment, method string) error {
		if when != before || method != api.MethodMutate {
			return nil
		}
		switch calls++; calls {
		case 1, 2: // these cost the attempts without a pause
			return &api.NotServingError{Addr: f.cluster.addrs[3], Node: serverName(3)}
		case 3:
			f.replaceTable(90)
		}
		return nil
	})
	if err := tb.Apply(t.Context(), put("a")); err != nil || calls != 4 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}
