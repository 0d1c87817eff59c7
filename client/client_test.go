package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// values returns the cells of a row as "family:qualifier=value".
func values(row *table.Row) []string {
	if row == nil {
		return nil
	}
	all := []string{}
	for i := range row.Cells {
		all = append(all, ColumnName(&row.Cells[i])+"="+string(row.Cells[i].Value))
	}
	return all
}

func wantRow(t *testing.T, row *table.Row, want ...string) {
	t.Helper()
	if got := values(row); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("row %v, want %v", got, want)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWriteAndReadRows(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	tb := f.open(Config{}).Table("t")
	var ts int64
	m := NewRowMutation("r").Set("f:a", []byte("1")).SetAt("f:b:c", 42, []byte("2")).Set("g:", []byte("3"))
	check(t, tb.Apply(ctx, m, ReturnTimestamp(&ts)))
	if ts == 0 {
		t.Error("no timestamp was returned")
	}
	row, err := tb.Get(ctx, "r")
	check(t, err)
	wantRow(t, row, "f:a=1", "f:b:c=2", "g:=3")
	if c, ok := Latest(row, "f:b:c"); !ok || c.Timestamp != 42 || string(row.Key) != "r" {
		t.Errorf("latest of f:b:c is %v in row %q", c, row.Key)
	}
	check(t, tb.Apply(ctx, NewRowMutation("r").Delete("f:a").DeleteFrom("f:b:c", 43).DeleteFamily("g")))
	row, err = tb.Get(ctx, "r")
	check(t, err)
	wantRow(t, row, "f:b:c=2")
	check(t, tb.Apply(ctx, NewRowMutation("r").DeleteRow()))
	if row, err = tb.Get(ctx, "r"); row != nil || err != nil {
		t.Errorf("deleted row: %v, %v", row, err)
	}
}

func TestReadOptionsNarrowTogether(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	tb := f.open(Config{}).Table("t")
	m := NewRowMutation("r")
	for ts := int64(1); ts <= 3; ts++ {
		for _, column := range []string{"f:a", "f:b", "g:a", "g:x.y"} {
			m.SetAt(column, ts, fmt.Append(nil, ts))
		}
	}
	check(t, tb.Apply(ctx, m))
	at := time.UnixMicro
	for _, test := range []struct {
		name string
		opts []ReadOption
		want string
	}{
		{"versions", []ReadOption{Versions(1)}, "f:a=3 f:b=3 g:a=3 g:x.y=3"},
		{"family", []ReadOption{Families("g"), Versions(1)}, "g:a=3 g:x.y=3"},
		{"families", []ReadOption{Versions(1), Families("g", "f")}, "f:a=3 f:b=3 g:a=3 g:x.y=3"},
		{"no family", []ReadOption{Families()}, ""},
		{"column", []ReadOption{Columns("f:a")}, "f:a=3 f:a=2 f:a=1"},
		{"columns", []ReadOption{Columns("g:x.y", "f:a", "f:a"), Versions(1)}, "f:a=3 g:x.y=3"},
		{"no column", []ReadOption{Columns()}, ""},
		{"pattern", []ReadOption{ColumnsMatching(`f|g:x.*`), Versions(1)}, "g:x.y=3"},
		{"time", []ReadOption{TimeRange(at(2), at(3)), Columns("f:a")}, "f:a=2"},
		{"since", []ReadOption{TimeRange(at(2), time.Time{}), Columns("f:a")}, "f:a=3 f:a=2"},
		{"until, then newest", []ReadOption{Versions(1), TimeRange(time.Time{}, at(3)), Columns("f:a")}, "f:a=2"},
		{"empty time", []ReadOption{TimeRange(at(3), at(3))}, ""},
		{"before the epoch", []ReadOption{TimeRange(time.Time{}, at(-5))}, ""},
		{"filter", []ReadOption{Filter(table.ValueRegex("1|2")), Filter(nil), Columns("f:a"), Versions(1)}, "f:a=2"},
	} {
		row, err := tb.Get(ctx, "r", test.opts...)
		if got := strings.Join(values(row), " "); got != test.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
		}
	}
	for _, opt := range []ReadOption{Families("a:b"), Columns("a"), ColumnsMatching("a"), Versions(0), Columns(":q")} {
		if _, err := tb.Get(ctx, "r", opt); err == nil {
			t.Error("a wrong option was accepted")
		}
		s := tb.Scan(ctx, opt)
		if s.Next() || s.Err() == nil {
			t.Error("a wrong option was accepted by Scan")
		}
		_ = s.Close()
	}
}

func TestErrorsOfDataAreTyped(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	c := f.open(Config{})
	tb := c.Table("t")
	var family *table.NoFamilyError
	if err := tb.Apply(ctx, NewRowMutation("r").Set("x:a", nil)); !errors.As(err, &family) || family.Family != "x" || !errors.Is(err, ErrNoFamily) {
		t.Errorf("unknown family: %v", err)
	}
	var limit *table.LimitError
	if err := tb.Apply(ctx, NewRowMutation(strings.Repeat("k", 70000)).Set("f:a", nil)); !errors.As(err, &limit) || limit.Limit != 64<<10 || limit.Got != 70000 {
		t.Errorf("long key: %v", err)
	}
	if _, err := c.Table("none").Get(ctx, "r"); !errors.Is(err, ErrNoTable) {
		t.Errorf("unknown table: %v", err)
	}
	if _, err := tb.Get(ctx, ""); !errors.Is(err, table.ErrBadRowKey) {
		t.Errorf("empty key: %v", err)
	}
	var filter *table.FilterError
	if _, err := tb.Get(ctx, "r", Filter(table.Chain{table.PassAll{}, table.RowRegex("(")})); !errors.As(err, &filter) || filter.Path == "" {
		t.Errorf("bad filter: %v", err)
	}
	for _, m := range []*RowMutation{
		NewRowMutation(""), NewRowMutation("r"), NewRowMutation("r").Set("nocolon", nil), NewRowMutation("r").Set(":q", nil),
		NewRowMutation("r").Add(table.Mutation{Op: 99}), NewRowMutation("r").SetAt("f:a", -7, nil),
	} {
		if err := tb.Apply(ctx, m); err == nil || errors.Is(err, ErrAmbiguous) {
			t.Errorf("wrong mutation: %v", err)
		}
	}
}

func TestGetAllKeepsOrderAndHalvesBatches(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	tb := f.open(Config{BatchRows: 30, BatchesInFlight: 1}).Table("t")
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprintf("r%03d", i))
		if i%3 > 0 {
			check(t, tb.Apply(ctx, NewRowMutation(keys[i]).Set("f:a", []byte(keys[i]))))
		}
	}
	rows, err := tb.GetAll(ctx, keys) // the fake returns at most 7 rows
	check(t, err)
	if n, want := f.count(f.requests, api.MethodReadRows), 2+3*5+2; n != want { // 30 and 15 rows, which are too many, then 7 at most
		t.Errorf("%d requests, want %d", n, want)
	}
	for i, row := range rows {
		if i%3 == 0 && row != nil || i%3 > 0 && (row == nil || string(row.Cells[0].Value) != keys[i]) {
			t.Errorf("row %d is %v", i, values(row))
		}
	}
	if rows, err := tb.GetAll(ctx, nil); len(rows) != 0 || err != nil {
		t.Errorf("no rows: %v, %v", rows, err)
	}
	if _, err := tb.GetAll(ctx, []string{"a", ""}); !errors.Is(err, table.ErrBadRowKey) {
		t.Errorf("empty key: %v", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := tb.GetAll(canceled, keys); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestApplyAllReportsEachMutation(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	tb := f.open(Config{BatchRows: 10, BatchBytes: 500, RetriesPerSecond: 1000}).Table("t")
	var ms []*RowMutation
	for i := range 100 {
		m := NewRowMutation(fmt.Sprintf("once-%03d", i)) // each is rejected at first
		switch {
		case i == 17:
			m.Set("nofamily:a", nil)
		case i == 18:
			m.Set("nocolon", nil)
		case i%7 == 0:
			m.Set("f:a", make([]byte, 800)) // larger than a batch
		default:
			m.Set("f:a", []byte("v"))
		}
		ms = append(ms, m)
	}
	err := tb.ApplyAll(ctx, ms)
	var batch *BatchError
	if !errors.As(err, &batch) || batch.Failed != 2 || !errors.Is(batch.Errs[17], ErrNoFamily) || !errors.Is(batch.Errs[18], ErrBadName) {
		t.Fatalf("errors: %v", err)
	}
	if !errors.Is(err, ErrNoFamily) || !strings.Contains(err.Error(), "2 of 100") {
		t.Errorf("batch error: %v", err)
	}
	f.mu.Lock()
	if n := len(f.rows["t"]); n != 98 {
		t.Errorf("%d rows are there, want 98", n)
	}
	f.mu.Unlock()
	check(t, tb.ApplyAll(ctx, nil))
}

func TestCheckAndMutateAndModify(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	tb := f.open(Config{}).Table("t")
	yes, no := NewRowMutation("r").Set("f:yes", []byte("1")), NewRowMutation("r").Set("f:no", []byte("1"))
	for _, want := range []bool{false, true} {
		if matched, err := tb.CheckAndMutate(ctx, "r", nil, yes, no); matched != want || err != nil {
			t.Errorf("matched %v, %v, want %v", matched, err, want)
		}
	}
	if matched, err := tb.CheckAndMutate(ctx, "r", table.QualifierRegex("maybe"), yes, nil); matched || err != nil {
		t.Errorf("matched %v, %v", matched, err)
	}
	if _, err := tb.CheckAndMutate(ctx, "other", nil, yes, nil); err == nil {
		t.Error("a mutation of another row was accepted")
	}
	for want := int64(5); want <= 15; want += 5 {
		if got, err := tb.Increment(ctx, "r", "g:n", 5); got != want || err != nil {
			t.Errorf("increment: %d, %v, want %d", got, err, want)
		}
	}
	for _, want := range []string{"x", "xx"} {
		if got, err := tb.Append(ctx, "r", "g:s", []byte("x")); string(got) != want || err != nil {
			t.Errorf("append: %q, %v, want %q", got, err, want)
		}
	}
	if _, err := tb.Increment(ctx, "r", "g:s", 1); !errors.Is(err, ErrNotNumber) || !errors.Is(err, table.ErrBadValue) {
		t.Errorf("increment of text: %v", err)
	}
	if _, err := tb.Increment(ctx, "r", "nocolon", 1); !errors.Is(err, ErrBadName) {
		t.Errorf("increment of no column: %v", err)
	}
	row, err := tb.ReadModifyWrite(ctx, "r", AppendRule("g:s", []byte("y")), IncrementRule("g:n", -15))
	check(t, err)
	if c, _ := Latest(row, "g:s"); string(c.Value) != "xxy" || len(row.Cells) != 2 {
		t.Errorf("read-modify-write: %v", values(row))
	}
}

func TestAdministration(t *testing.T) {
	f := newFake(t)
	ctx := t.Context()
	c := f.open(Config{})
	spec, err := table.ParseFamilySpec("contents:versions=3,group=pages,compression=zstd,block=8KiB,bloom=row,in-memory")
	check(t, err)
	s, err := c.Tables().Create(ctx, "web", spec, table.FamilySpec{Name: "anchor"})
	check(t, err)
	if got, _ := s.Spec("contents"); !reflect.DeepEqual(got, spec) {
		t.Errorf("family is %v, want %v", got.String(), spec.String())
	}
	if _, err := c.Tables().Create(ctx, "web"); !errors.Is(err, ErrTableExists) {
		t.Errorf("second table: %v", err)
	}
	gc := table.MaxVersions(1)
	s, err = c.Tables().SetFamily(ctx, "web", table.FamilySpec{Name: "anchor", GC: &gc})
	check(t, err)
	if !s.Family("anchor").GC.Equal(&gc) {
		t.Error("policy was not set")
	}
	if s, err = c.Tables().DropFamily(ctx, "web", "anchor"); err != nil || s.Family("anchor") != nil {
		t.Errorf("drop family: %v", err)
	}
	info, err := c.Tables().Describe(ctx, "web")
	if err != nil || !info.Schema.Equal(s) || len(info.Tablets) != 1 || info.Tablets[0].ID != 7 {
		t.Errorf("describe: %v, %v", info, err)
	}
	check(t, c.Tables().Compact(ctx, "web", true))
	samples, err := c.Table("web").SampleRowKeys(ctx)
	if err != nil || len(samples) != 2 || string(samples[0].Key) != "m" {
		t.Errorf("samples: %v, %v", samples, err)
	}
	if all, err := c.Tables().List(ctx); err != nil || len(all) != 2 {
		t.Errorf("tables: %v, %v", all, err)
	}
	check(t, c.Tables().Drop(ctx, "web"))
	if err := c.Tables().Drop(ctx, "web"); !errors.Is(err, ErrNoTable) {
		t.Errorf("drop again: %v", err)
	}
	if p, err := c.Ping(ctx); err != nil || p.Protocol != api.ProtocolVersion {
		t.Errorf("ping: %v, %v", p, err)
	}
	if st, err := c.Status(ctx); err != nil || !st.Ready || st.Uptime != time.Second {
		t.Errorf("status: %v, %v", st, err)
	}
}

func TestOpen(t *testing.T) {
	f := newFake(t)
	dead := deadAddr(t)
	c, err := Open(t.Context(), dead+", "+f.addr, Config{})
	check(t, err)
	if _, err := c.Table("t").Get(t.Context(), "r"); err != nil {
		t.Errorf("second address: %v", err)
	}
	check(t, c.Close())
	check(t, c.Close())
	if _, err := c.Table("t").Get(t.Context(), "r"); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	s := c.Table("t").Scan(t.Context())
	if s.Next() || !errors.Is(s.Err(), ErrClosed) {
		t.Errorf("scan of a closed client: %v", s.Err())
	}
	var unreachable *UnreachableError
	if _, err := Open(t.Context(), dead, Config{}); !errors.As(err, &unreachable) || unreachable.Addr != dead {
		t.Errorf("dead address: %v", err)
	}
	for _, addr := range []string{"nohostport", "a:1,b"} {
		if _, err := Open(t.Context(), addr, Config{}); err == nil || errors.Is(err, ErrUnreachable) {
			t.Errorf("address %q: %v", addr, err)
		}
	}
	for _, cfg := range []Config{{Conns: -1}, {Conns: 100}, {DialTimeout: -1}, {RetriesPerSecond: -1}, {Replay: 9}, {BatchRows: -1}, {BatchBytes: -1}, {BatchesInFlight: -1}} {
		if _, err := Open(t.Context(), f.addr, cfg); err == nil {
			t.Errorf("config %+v was accepted", cfg)
		}
	}
}

// deadAddr returns an address without a listener.
func deadAddr(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestParseColumn(t *testing.T) {
	for _, test := range []struct{ in, family, qualifier string }{
		{"contents:", "contents", ""}, {"anchor:http://cnn.com", "anchor", "http://cnn.com"}, {"f:\x00\xff", "f", "\x00\xff"},
	} {
		family, qualifier, err := ParseColumn(test.in)
		if family != test.family || string(qualifier) != test.qualifier || err != nil {
			t.Errorf("%q: %q, %q, %v", test.in, family, qualifier, err)
		}
	}
}
