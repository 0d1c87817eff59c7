package tablet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// A scan ends where the server's rows end, and returns that key.
func TestScanStopsAtWhatIsNotServed(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	ctx := context.Background()
	s := table.NewSchema("parts", 2)
	s, err := s.Apply(table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	for i, rg := range [][2]string{{"", "d"}, {"d", "h"}, {"p", ""}} { // (h, p] is not served
		m := &Meta{ID: uint64(10 + i), Table: 2, Start: []byte(rg[0]), End: []byte(rg[1]), LastMajor: e.clock.now()}
		if err := e.Load(ctx, Load{Meta: m, Schema: s}); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []string{"a", "d", "d\x00", "h", "p\x00", "z"} {
		done := make(chan error, 1)
		rm := &table.RowMutation{Row: []byte(row), Mutations: []table.Mutation{set("f", "q", 1, "v")}}
		e.Apply("parts", rm, func(_ int64, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatalf("row %q: %v", row, err)
		}
	}
	const missing = "missing"
	for _, test := range []struct {
		name       string
		start, end string // "-" is no end
		last       string // the row at which emit ends it
		rows, next string // next: "missing" with ErrNotServing, at the key that follows
	}{
		{"all", "", "-", "", "a d d\x00 h ", missing + "h\x00"},
		{"up to the gap", "", "h\x00", "", "a d d\x00 h ", ""},
		{"up to a row below the gap", "b", "d\x00", "", "d ", ""},
		{"into the gap", "e", "k", "", "h ", missing + "h\x00"},
		{"in the gap", "k", "m", "", "", missing + "k"},
		{"from the gap on", "p", "-", "", "", missing + "p"},
		{"behind the gap", "p\x00", "-", "", "p\x00 z ", ""},
		{"ended before the gap", "", "-", "h", "a d d\x00 h ", "h\x00"},
		{"of nothing", "x", "x", "", "", ""},
		{"of nothing in the gap", "k", "k", "", "", ""},
	} {
		rg := Range{Start: []byte(test.start)}
		if test.end != "-" {
			rg.End = []byte(test.end)
		}
		rows := ""
		next, err := e.Scan(ctx, "parts", rg, nil, func(key []byte, _ []table.Cell) error {
			rows += string(key) + " "
			if string(key) == test.last {
				return ErrLast
			}
			return nil
		})
		got := string(next)
		if errors.Is(err, api.ErrNotServing) {
			got, err = missing+got, nil
		}
		if err != nil || rows != test.rows || got != test.next {
			t.Errorf("%s: rows %q, next %q, %v; want %q, %q", test.name, rows, got, err, test.rows, test.next)
		}
	}
}

// A bounded scan ends without a result, and finds the same rows as an unbounded one when it is
// resumed.
func TestBoundedScan(t *testing.T) {
	const all = 1000
	e := newEnv(t, Config{}, "f", "hidden")
	var want []string
	for i := range all {
		row := fmt.Sprintf("%04d", i)
		switch {
		case i%9 == 8:
			e.mustApply(row, set("f", "q", 1, "wanted"))
			e.mustApply(row, table.DeleteRow())
		case i%10 == 3:
			e.mustApply(row, set("f", "q", 1, "wanted"))
			want = append(want, row)
		case i%2 == 0:
			e.mustApply(row, set("hidden", "q", 1, "hidden"))
		default:
			e.mustApply(row, set("f", "q", 1, "v"))
		}
	}
	only, err := table.Compile(table.ValueRegex("wanted"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name        string
		most        ScanBounds
		access      Access
		least, ends int // how often it ends before the last time
	}{
		{"none", ScanBounds{}, nil, 0, 0},
		{"rows", ScanBounds{Rows: 7}, nil, all / 7, all / 7},
		{"one row", ScanBounds{Rows: 1}, nil, all - 1, all - 1},
		{"time", ScanBounds{Until: time.Unix(1, 0)}, nil, 1, 10},
		{"rows that the caller may not see", ScanBounds{Rows: 7}, &script{visible: Visibility{Families: []uint64{1}}}, 0, 0},
		{"time without access to all rows", ScanBounds{Until: time.Unix(1, 0)}, &script{visible: Visibility{Families: []uint64{1}}}, 1, 10},
	} {
		var got []string
		var rg Range
		ends, looked := 0, 0
		for {
			most := test.most
			next, err := e.For(test.access).Scan(t.Context(), testTable, rg, only, &most, func(key []byte, _ []table.Cell) error {
				got = append(got, string(key))
				return nil
			})
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			if test.most.Rows > 0 && most.Looked > test.most.Rows || most.Partly != (test.access != nil) {
				t.Errorf("%s: looked at %d rows, partly %v", test.name, most.Looked, most.Partly)
			}
			if looked += most.Looked; next == nil {
				break
			}
			if ends++; string(next) <= string(rg.Start) || ends > all {
				t.Fatalf("%s: goes on at %q after %q", test.name, next, rg.Start)
			}
			rg.Start = next
		}
		if !slices.Equal(got, want) || ends < test.least || ends > test.ends {
			t.Errorf("%s: rows %q, ended %d times; want %q, %d to %d", test.name, got, ends, want, test.least, test.ends)
		}
		if test.access == nil && looked != all || test.access != nil && looked != 0 {
			t.Errorf("%s: looked at %d rows of %d", test.name, looked, all)
		}
	}
}

// A scan of many small tablets without results ends at its deadline, or with its caller's context.
func TestScanOfManyTabletsEnds(t *testing.T) {
	const all, of = 100, 5
	e := newEnv(t, Config{}, "f")
	for i := range all {
		e.mustApply(fmt.Sprintf("%04d", i), set("f", "q", 1, "v"))
	}
	for i := of - 1; i < all-1; i += of {
		if _, _, err := e.Split(t.Context(), lastTablet, fmt.Appendf(nil, "%04d", i)); err != nil {
			t.Fatal(err)
		}
	}
	none, err := table.Compile(table.ValueRegex("another"))
	if err != nil {
		t.Fatal(err)
	}
	nothing := func([]byte, []table.Cell) error { return errors.New("unexpected row") }
	var rg Range
	ends := 0
	for {
		next, err := e.For(nil).Scan(t.Context(), testTable, rg, none, &ScanBounds{Until: time.Unix(1, 0)}, nothing)
		if err != nil {
			t.Fatal(err)
		}
		if next == nil {
			break
		}
		if ends++; string(next) <= string(rg.Start) || ends > all {
			t.Fatalf("goes on at %q after %q", next, rg.Start)
		}
		rg.Start = next
	}
	if ends != all/of-1 {
		t.Errorf("it ended %d times, want %d", ends, all/of-1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Scan(ctx, testTable, Range{}, none, nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("whose caller has gone: %v", err)
	}
	var keys [][]byte
	for i := 0; i < all; i += of {
		keys = append(keys, fmt.Appendf(nil, "%04d", i))
	}
	at, err := e.For(nil).ReadRows(ctx, testTable, keys, none, nil)
	if at > 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("rows of %d tablets: %d read, %v", len(keys), at, err)
	}
}
