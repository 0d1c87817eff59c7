package node_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/table"
)

// TestRowBytes: a row that is larger than a request permits is an error of its own, with that limit, and a scan first returns the rows before it.
func TestRowBytes(t *testing.T) {
	t.Parallel()
	f := newTestCluster(t, 1)
	f.startAll()
	ctx := within(t, 60*time.Second)
	c := f.client(0)
	if _, err := c.Tables().Create(ctx, "t", good(table.ParseFamilySpec("f"))); err != nil {
		t.Fatal(err)
	}
	tb := c.Table("t")
	const limit = 1000
	for i := range 9 {
		m := client.NewRowMutation(fmt.Sprint("r", i)).SetAt("f:q", 1, []byte("v"))
		switch i {
		case 4: // large by its value: with 96, 1 and 1 bytes besides
			m.SetAt("f:q", 1, []byte(strings.Repeat("v", limit-97)))
		case 6: // and by its cells
			for j := range 11 {
				m.SetAt("f:q", int64(j+1), nil)
			}
		case 2: // the largest that is not
			m.SetAt("f:q", 1, []byte(strings.Repeat("v", limit-98)))
		}
		if err := tb.Apply(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	most := client.RowBytesMax(limit)
	tooLarge := func(what string, err error) {
		t.Helper()
		var e *client.RowTooLargeError
		if !errors.As(err, &e) || e.Limit != limit {
			t.Errorf("%s: %v, want an error with the limit", what, err)
		}
	}
	for _, row := range []string{"r4", "r6"} {
		_, err := tb.Get(ctx, row, most)
		tooLarge("read", err)
		_, err = tb.GetAll(ctx, []string{row}, most)
		tooLarge("read_rows of one row", err)
		_, err = tb.GetAll(ctx, []string{"r1", row, "r3"}, most)
		tooLarge("read_rows", err)
	}
	if row, err := tb.Get(ctx, "r2", most); err != nil || row == nil {
		t.Errorf("the largest row: %v, %v", row, err)
	}
	if row, err := tb.Get(ctx, "r4", most, client.Filter(table.StripValue{})); err != nil || row == nil {
		t.Errorf("a filter that makes a row smaller: %v, %v", row, err)
	}
	if row, err := tb.Get(ctx, "r4"); err != nil || row == nil { // the option is not that of an earlier call
		t.Errorf("without the option: %v, %v", row, err)
	}
	for _, test := range []struct {
		options []client.ScanOption
		want    string
	}{
		{nil, "r0 r1 r2 r3"},
		{[]client.ScanOption{client.BatchRows(3)}, "r0 r1 r2 r3"},
		{[]client.ScanOption{client.BatchRows(4)}, "r0 r1 r2 r3"},
		{[]client.ScanOption{client.Reversed()}, "r8 r7"},
		{[]client.ScanOption{client.Start("r4")}, ""},
		{[]client.ScanOption{client.RowKeys("r1", "r5", "r6", "r8")}, "r1 r5"},
	} {
		s := tb.Scan(ctx, append(slices.Clone(test.options), most)...)
		var got []string
		for s.Next() {
			got = append(got, string(s.Row().Key))
		}
		tooLarge("scan", s.Close())
		if strings.Join(got, " ") != test.want {
			t.Errorf("a scan returned %q before the row that is too large, want %s", got, test.want)
		}
	}
	s := tb.Scan(ctx, client.End("r4"), most)
	defer s.Close()
	n := 0
	for s.Next() {
		n++
	}
	if s.Err() != nil || n != 4 {
		t.Errorf("%d rows, %v, want the 4 that are not too large", n, s.Err())
	}
}
