package table

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/wire"
)

// TestRowSet compares random sets with lists of rows, before and after they are encoded.
func TestRowSet(t *testing.T) {
	seed := testseed.New(t)
	r := rand.New(rand.NewPCG(seed, 0))
	row := func() []byte {
		b := make([]byte, r.IntN(3))
		for i := range b {
			b[i] = "\x00ab"[r.IntN(3)]
		}
		return b
	}
	var all []string
	for _, a := range []string{"", "\x00", "a", "b"} {
		for _, b := range []string{"", "\x00", "a", "b"} {
			for _, c := range []string{"", "\x00", "a", "b"} {
				all = append(all, a+b+c)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for range 3000 {
		var ranges []RowRange
		in := map[string]bool{}
		for range r.IntN(6) {
			g := RowRange{row(), row()}
			if r.IntN(2) == 0 {
				g = RowKeyRange(row())
			}
			ranges = append(ranges, g)
			for _, key := range all {
				in[key] = in[key] || key >= string(g.Start) && (len(g.End) == 0 || key < string(g.End))
			}
		}
		s := NewRowSet(ranges)
		var e wire.Encoder
		AppendRowSet(&e, s)
		d := wire.NewDecoder(e.Bytes())
		again, err := DecodeRowSet(&d)
		if err != nil || fmt.Sprintf("%q", again.ranges) != fmt.Sprintf("%q", s.ranges) {
			t.Fatalf("%q was decoded as %q, %v", s.ranges, again.ranges, err)
		}
		checkRowSet(t, s, all, in)
	}
	if (*RowSet)(nil).Bytes() != 0 {
		t.Error("a set of all rows takes memory")
	}
}

func checkRowSet(t *testing.T, s *RowSet, all []string, in map[string]bool) {
	t.Helper()
	holds := func(i int, key string) bool {
		g := s.At(i)
		return key >= string(g.Start) && (len(g.End) == 0 || key < string(g.End))
	}
	for i := range s.Len() {
		if i > 0 && string(s.At(i).Start) <= string(s.At(i-1).End) {
			t.Fatalf("%q are not apart", s.ranges)
		}
		if key, ok := s.Key(i); ok != (string(s.At(i).End) == string(key)+"\x00") {
			t.Fatalf("%q is of one key: %v", s.At(i), ok)
		}
	}
	for _, key := range all {
		at, first, last := false, s.Len(), -1
		for i := range s.Len() {
			at = at || holds(i, key)
			if g := s.At(i); first == s.Len() && (len(g.End) == 0 || string(g.End) > key) {
				first = i
			}
			if key == "" || string(s.At(i).Start) < key {
				last = i
			}
		}
		if at != in[key] {
			t.Fatalf("%q has %q: %v, want %v", s.ranges, key, at, in[key])
		}
		if got := s.First([]byte(key)); got != first {
			t.Fatalf("first of %q from %q is %d, want %d", s.ranges, key, got, first)
		}
		if got := s.Last([]byte(key)); got != last {
			t.Fatalf("last of %q below %q is %d, want %d", s.ranges, key, got, last)
		}
	}
	for i := range s.Len() + 1 {
		if part := s.Slice(i, s.Len()); part.Len() != s.Len()-i {
			t.Fatalf("%d ranges from %d of %d", part.Len(), i, s.Len())
		}
	}
}

// TestRowSetLimits: a set that is decoded is bounded, and malformed ones are rejected.
func TestRowSetLimits(t *testing.T) {
	decode := func(f func(e *wire.Encoder)) error {
		var e wire.Encoder
		f(&e)
		d := wire.NewDecoder(e.Bytes())
		_, err := DecodeRowSet(&d)
		return err
	}
	many := func(n, bytes int) func(e *wire.Encoder) {
		return func(e *wire.Encoder) {
			e.Array(n)
			for range n {
				e.Bin(make([]byte, bytes))
			}
		}
	}
	for name, c := range map[string]struct {
		f  func(e *wire.Encoder)
		ok bool
	}{
		"most":      {many(RowSetRanges, 1), true},
		"too many":  {many(RowSetRanges+1, 1), false},
		"too large": {many(RowSetBytes/2000+1, 1000), false},
		"no array":  {func(e *wire.Encoder) { e.Int(1) }, false},
		"number":    {func(e *wire.Encoder) { e.Array(1); e.Int(1) }, false},
		"three":     {func(e *wire.Encoder) { e.Array(1); e.Array(3); e.Bin(nil); e.Bin(nil); e.Bin(nil) }, false},
		"empty end": {func(e *wire.Encoder) { e.Array(1); e.Array(2); e.Bin([]byte("a")); e.Bin(nil) }, false},
		"no end":    {func(e *wire.Encoder) { e.Array(1); e.Array(2); e.Bin([]byte("a")); e.Nil() }, true},
		"inverted":  {func(e *wire.Encoder) { e.Array(1); e.Array(2); e.Bin([]byte("b")); e.Bin([]byte("a")) }, true},
	} {
		if err := decode(c.f); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
