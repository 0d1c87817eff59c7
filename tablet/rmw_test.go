package tablet

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/steledb/stele/table"
)

// TestBothBranchesAreChecked: invalid mutations are an error whichever branch the predicate
// chooses, and nothing is changed.
func TestBothBranchesAreChecked(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	ctx := context.Background()
	e.mustApply("there", set("f", "q", 1, "v"))
	right := []table.Mutation{set("f", "new", 1, "v")}
	for _, wrong := range []struct {
		name string
		m    table.Mutation
		want error
	}{
		{"unknown family", set("nosuch", "q", 1, "v"), table.ErrNoFamily},
		{"negative timestamp", set("f", "q", -7, "v"), table.ErrBadTimestamp},
		{"range that ends at 0", table.DeleteColumnRange("f", []byte("q"), 0, table.Before(0)), table.ErrBadTimestamp},
	} {
		for _, row := range []string{"there", "absent"} {
			for i, branches := range [][2][]table.Mutation{{right, {wrong.m}}, {{wrong.m}, right}, {nil, {wrong.m}}, {{wrong.m}, nil}} {
				_, err := e.CheckAndMutate(ctx, testTable, []byte(row), nil, branches[0], branches[1])
				if !errors.Is(err, wrong.want) {
					t.Errorf("%s, row %s, branches %d: %v, want %v", wrong.name, row, i, err, wrong.want)
				}
			}
		}
	}
	for _, row := range []string{"there", "absent"} {
		if got := e.read(row, nil); len(got) != map[string]int{"there": 1}[row] {
			t.Errorf("row %s has %v", row, got)
		}
	}
}

// TestIncrementWraps: a sum that does not fit in 64 bits wraps around, as in Cloud Bigtable, whose
// clients rely on it.
func TestIncrementWraps(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	for _, c := range []struct{ from, add, want int64 }{
		{math.MaxInt64, 1, math.MinInt64},
		{math.MinInt64, -1, math.MaxInt64},
		{math.MaxInt64, math.MaxInt64, -2},
		{math.MinInt64, math.MinInt64, 0},
	} {
		e.mustApply("r", table.Set("f", []byte("n"), table.ServerTimestamp, binary.BigEndian.AppendUint64(nil, uint64(c.from))))
		row, err := e.ReadModifyWrite(context.Background(), testTable, []byte("r"),
			[]table.Rule{{Op: table.RuleIncrement, Family: "f", Qualifier: []byte("n"), Amount: c.add}})
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(binary.BigEndian.Uint64(row.Cells[0].Value)); got != c.want {
			t.Errorf("%d plus %d is %d, want %d", c.from, c.add, got, c.want)
		}
	}
}
