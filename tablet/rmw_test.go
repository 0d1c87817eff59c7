package tablet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/steledb/stele/client/api"
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

// TestBoundedResult: rules whose result is larger than the caller has memory for change nothing.
func TestBoundedResult(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	e.mustApply("r", set("f", "q", 1, "0123456789"))
	rules := []table.Rule{{Op: table.RuleAppend, Family: "f", Qualifier: []byte("q"), Value: []byte("+")}}
	want := api.RowMemory([]table.Cell{{Family: "f", Qualifier: []byte("q"), Value: []byte("0123456789+")}})
	var large *api.RowTooLargeError
	if _, err := e.For(nil).ReadModifyWrite(t.Context(), testTable, []byte("r"), rules, want-1); !errors.As(err, &large) || large.Limit != want-1 {
		t.Errorf("with less memory than the result takes: %v", err)
	}
	if got := e.read("r", nil); len(got) != 1 || got[0] != "f:q@1=0123456789" {
		t.Errorf("the row is %v", got)
	}
	if row, err := e.For(nil).ReadModifyWrite(t.Context(), testTable, []byte("r"), rules, want); err != nil || string(row.Cells[0].Value) != "0123456789+" {
		t.Errorf("with as much memory: %v, %v", row, err)
	}
}

// TestPartsOfRows (RE1): each change and each part of a copy is made once, no part is made without the one before it, and an incomplete row gets no change but a
// later state of all of it.
func TestPartsOfRows(t *testing.T) {
	complete, incomplete := rowPosition{seq: 10}, rowPosition{seq: 10, copy: 7, parts: 2}
	whole, set := []table.Mutation{table.DeleteRow()}, []table.Mutation{set("f", "q", 1, "v")}
	part := func(copy, index uint64, last bool) *api.RowPart {
		return &api.RowPart{Copy: copy, Index: index, Last: last}
	}
	for _, x := range []struct {
		name      string
		have      rowPosition
		seq       uint64
		mutations []table.Mutation
		part      *api.RowPart
		made      api.Followed
		after     rowPosition // if it is made
	}{
		{"first change", rowPosition{}, 1, set, nil, api.FollowedNow, rowPosition{seq: 1}},
		{"next change", complete, 11, set, nil, api.FollowedNow, rowPosition{seq: 11}},
		{"repeated change", complete, 10, set, nil, api.FollowedBefore, rowPosition{}},
		{"earlier state", complete, 9, whole, nil, api.FollowedBefore, rowPosition{}},
		{"change of an incomplete row", incomplete, 11, set, nil, api.FollowedIncomplete, rowPosition{}},
		{"earlier change of an incomplete row", incomplete, 9, set, nil, api.FollowedIncomplete, rowPosition{}},
		{"state of an incomplete row", incomplete, 10, whole, nil, api.FollowedNow, rowPosition{seq: 10}},
		{"earlier state of an incomplete row", incomplete, 9, whole, nil, api.FollowedIncomplete, rowPosition{}},
		{"first part", complete, 11, whole, part(8, 0, false), api.FollowedNow, rowPosition{seq: 11, copy: 8, parts: 1}},
		{"first part of a state that the row has", complete, 10, whole, part(8, 0, false), api.FollowedBefore, rowPosition{}},
		{"part after another copy was completed", complete, 12, set, part(8, 2, false), api.FollowedIncomplete, rowPosition{}},
		{"next part", incomplete, 10, set, part(7, 2, false), api.FollowedNow, rowPosition{seq: 10, copy: 7, parts: 3}},
		{"last part", incomplete, 12, nil, part(7, 2, true), api.FollowedNow, rowPosition{seq: 12}},
		{"repeated part", incomplete, 10, set, part(7, 1, false), api.FollowedBefore, rowPosition{}},
		{"part after a missing one", incomplete, 11, set, part(7, 3, false), api.FollowedIncomplete, rowPosition{}},
		{"part of another copy", incomplete, 11, set, part(8, 2, false), api.FollowedIncomplete, rowPosition{}},
		{"another copy begins", incomplete, 10, whole, part(8, 0, false), api.FollowedNow, rowPosition{seq: 10, copy: 8, parts: 1}},
		{"an earlier copy begins", incomplete, 9, whole, part(8, 0, false), api.FollowedIncomplete, rowPosition{}},
	} {
		if x.made != api.FollowedNow {
			x.after = x.have
		}
		have, err := decodePosition(x.have.encode())
		if err != nil {
			t.Fatal(err)
		}
		made, after := have.follow(&api.Change{Seq: x.seq, Mutations: x.mutations}, x.part)
		if made != x.made || after != x.after {
			t.Errorf("%s: %d, %+v; want %d, %+v", x.name, made, after, x.made, x.after)
		}
	}
}

// TestPositionOfLaterVersion (RE1 of package replication): a row whose position has an unknown format gets no changes, and an error that names the remedy. Other rows do.
func TestPositionOfLaterVersion(t *testing.T) {
	e := newEnv(t, Config{}, "f")
	follower, err := e.schema.Follow("east")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetSchema(follower); err != nil {
		t.Fatal(err)
	}
	follow := func(row string, seq uint64) (api.Followed, error) {
		return e.For(nil).Follow(t.Context(), &api.FollowRequest{Table: testTable, Replication: "east",
			Change: api.Change{Row: []byte(row), Seq: seq, Mutations: []table.Mutation{table.Set("f", []byte("q"), 1, []byte("v"))}}})
	}
	for n := range 40 {
		if n == 0 || n == 8 || n == 24 {
			continue
		}
		row := fmt.Sprintf("row%02d", n)
		as := e.For(nil)
		as.follows = "east"
		if _, err := as.modify(t.Context(), testTable, []byte(row), nil, func(*reader, *Tablet) (*table.RowMutation, error) {
			value := append([]byte{0, 0, 0, 0, 0, 0, 0, 1}, make([]byte, 32)...)[:n]
			return &table.RowMutation{Row: []byte(row), Mutations: []table.Mutation{table.Set(table.PositionFamily, []byte(positionQualifier), e.clock.micros.Load(), value)}}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if made, err := follow(row, 1000); !errors.Is(err, errPositionFormat) || made == api.FollowedNow || !strings.Contains(err.Error(), "update this node") {
			t.Errorf("a position of %d bytes: %v, %v", n, made, err)
		}
		if got := e.read(row, nil); len(got) > 0 {
			t.Errorf("a position of %d bytes: cells %q", n, got)
		}
	}
	if made, err := follow("other", 1000); err != nil || made != api.FollowedNow {
		t.Errorf("another row: %v, %v", made, err)
	}
}
