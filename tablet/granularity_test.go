package tablet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/steledb/stele/table"
)

// millisEnv is newEnv with a table of milliseconds.
func millisEnv(t testing.TB, specs ...string) *env {
	e := newEnv(t, Config{}, specs...)
	e.close()
	e.schema = e.schema.Clone()
	e.schema.Granularity = table.GranularityMillis
	e.open()
	return e
}

// TestMillis: in a table of milliseconds all operations stamp the same millisecond, so the last one replaces the others, and the
// stamps never decrease: when the clock goes back, after a crash, a split and a merge.
func TestMillis(t *testing.T) {
	e := millisEnv(t, "f:", "n:")
	at := func(micros int64) { e.clock.micros.Store(micros) }
	stamped := func(row, value string, want int64) {
		t.Helper()
		if ts := e.mustApply(row, set("f", "q", table.ServerTimestamp, value)); ts != want {
			t.Errorf("stamp %d, want %d", ts, want)
		}
	}
	at(2_000_000_123_456)
	stamped("row", "a", 2_000_000_123_000)
	at(2_000_000_123_999)
	stamped("row", "b", 2_000_000_123_000)
	if matched, err := e.CheckAndMutate(t.Context(), testTable, []byte("row"), nil, []table.Mutation{set("f", "q", table.ServerTimestamp, "c")}, nil); err != nil || !matched {
		t.Fatal(matched, err)
	}
	for range 3 {
		got, err := e.ReadModifyWrite(t.Context(), testTable, []byte("row"), []table.Rule{{Op: table.RuleAppend, Family: "f", Qualifier: []byte("q"), Value: []byte("+")},
			{Op: table.RuleIncrement, Family: "n", Qualifier: []byte("n"), Amount: 2}})
		if err != nil || got.Cells[0].Timestamp != 2_000_000_123_000 || got.Cells[1].Timestamp != 2_000_000_123_000 {
			t.Fatal(cellStrings(got.Cells), err)
		}
	}
	want := `["f:q@2000000123000=c+++" "n:n@2000000123000=\x00\x00\x00\x00\x00\x00\x00\x06"]`
	check := func() {
		t.Helper()
		if got := strings.ReplaceAll(fmt.Sprintf("%q", e.read("row", nil)), `\\`, `\`); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	check()
	if err := e.Compact(t.Context(), testTable, true); err != nil {
		t.Fatal(err)
	}
	check()
	at(2_000_000_100_000)
	stamped("row2", "a", 2_000_000_123_000)
	e.crash()
	e.open()
	check()
	stamped("row3", "a", 2_000_000_123_000)
	if _, _, err := e.Split(context.Background(), lastTablet, []byte("row2")); err != nil {
		t.Fatal(err)
	}
	stamped("row", "after", 2_000_000_123_000)
	stamped("row3", "after", 2_000_000_123_000)
	at(2_000_000_124_001)
	stamped("row", "later", 2_000_000_124_000)
}

// TestMillisRejectsOthers: explicit timestamps that do not fit are rejected, and change nothing.
func TestMillisRejectsOthers(t *testing.T) {
	e := millisEnv(t, "f:")
	for _, m := range []table.Mutation{set("f", "q", 1001, "v"), table.DeleteColumnRange("f", []byte("q"), 1, table.Before(1000))} {
		_, err := e.apply("row", m)
		_, checked := e.CheckAndMutate(t.Context(), testTable, []byte("row"), nil, nil, []table.Mutation{m})
		for _, err := range []error{err, checked} {
			if !errors.Is(err, table.ErrBadTimestamp) {
				t.Errorf("%+v: %v", m, err)
			}
		}
	}
	e.mustApply("row", set("f", "q", 3000, "v"))
	if got := fmt.Sprint(e.read("row", nil)); got != "[f:q@3000=v]" {
		t.Error(got)
	}
}
