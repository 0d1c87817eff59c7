package tablet

import (
	"context"
	"errors"
	"testing"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/table"
)

// A scan ends where what the server has ends, and says where that is.
func TestScanStopsAtWhatIsNotServed(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	ctx := context.Background()
	s := table.NewSchema("parts", 2)
	s, err := s.Apply(table.FamilySpec{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	for i, rg := range [][2]string{{"", "d"}, {"d", "h"}, {"p", ""}} { // nobody has (h, p]
		m := &Meta{ID: uint64(10 + i), Table: 2, Start: []byte(rg[0]), End: []byte(rg[1]), LastMajor: e.clock.now()}
		if err := e.AddTablet(ctx, Load{Meta: m, Schema: s}); err != nil {
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
		rows, next string // next: missing with ErrNotServing, at what follows it
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
