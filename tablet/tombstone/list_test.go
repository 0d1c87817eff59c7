package tombstone

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/steledb/stele/internal/testseed"
)

// rowsOf are the rows of the tests: enough to meet each bound, and the rows beside it.
func rowsOf() (rows []string) {
	for i := range 24 {
		rows = append(rows, fmt.Sprintf("%c", 'a'+i), fmt.Sprintf("%c\x00", 'a'+i))
	}
	return rows
}

func randomBound(r *rand.Rand) []byte {
	if r.IntN(6) == 0 {
		return nil
	}
	all := rowsOf()
	return []byte(all[r.IntN(len(all))])
}

// check verifies RT1.
func check(t *testing.T, l List) {
	t.Helper()
	for i := range l {
		if l[i].empty() || i > 0 && (len(l[i-1].End) == 0 || bytes.Compare(l[i-1].End, l[i].Start) > 0) {
			t.Fatalf("list %+v", l)
		}
	}
}

// RT1, RT2, RT3: random ranges, divided and joined at random, hide in each row what a map of rows hides.
func TestRandomRanges(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 3))
	for range 300 {
		var l List
		want := map[string]uint64{}
		for seq := uint64(1); seq < 30; seq += r.Uint64N(2) {
			add := Range{Start: randomBound(r), End: randomBound(r), Seq: seq}
			for _, row := range rowsOf() {
				if add.holds([]byte(row)) {
					want[row] = seq
				}
			}
			l = l.Add(add)
			check(t, l)
			at := randomBound(r)
			low, up := l.Clip(nil, at), l.Clip(at, nil)
			if check(t, low); len(at) > 0 {
				l = Join(up, low)
				check(t, l)
			}
			for _, row := range rowsOf() {
				if got := l.Of([]byte(row)); got != want[row] {
					t.Fatalf("row %q is hidden up to %d, want %d, after %+v", row, got, want[row], add)
				}
			}
		}
	}
}

// Neighbours with one number, as clears of many ranges of a tablet without writes are, take the space of one.
func TestNeighboursJoin(t *testing.T) {
	var l List
	for _, row := range []string{"c", "a", "b", "d"} {
		l = l.Add(Range{Start: []byte(row), End: []byte{row[0] + 1}, Seq: 7})
	}
	if len(l) != 1 || string(l[0].Start) != "a" || string(l[0].End) != "e" || l.Bytes() != 2 || l.Last() != 7 {
		t.Errorf("list %+v", l)
	}
	if l = l.Add(Range{Seq: 8}); len(l) != 1 || !l[0].Covers(nil, nil) {
		t.Errorf("list %+v after all rows", l)
	}
}

// A range covers a tablet if it has all rows of it, from after its start through its end.
func TestCovers(t *testing.T) {
	for i, x := range []struct {
		start, end string // of the range
		from, to   string // of the tablet
		want       bool
	}{
		{"", "", "", "", true},
		{"a", "", "", "", false},
		{"b\x00", "c\x00", "b", "c", true},
		{"b", "d", "b", "c", true},
		{"b\x00", "c", "b", "c", false},
		{"b\x01", "d", "b", "c", false},
		{"", "d", "", "", false},
	} {
		r := Range{Start: []byte(x.start), End: []byte(x.end)}
		if got := r.Covers([]byte(x.from), []byte(x.to)); got != x.want {
			t.Errorf("case %d: %v", i, got)
		}
	}
}
