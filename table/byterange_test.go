package table

import "testing"

// TestByteRanges checks, for all small ranges, that the intersection contains what both contain,
// the hull what either contains, and an empty range nothing.
func TestByteRanges(t *testing.T) {
	points := []string{"", "\x00", "a", "a\x00", "b", "\xff"}
	bounds := []Bound{{}}
	for _, p := range points {
		bounds = append(bounds, Closed([]byte(p)), Open([]byte(p)))
	}
	var ranges []ByteRange
	for _, start := range bounds {
		for _, end := range bounds {
			ranges = append(ranges, ByteRange{start, end})
		}
	}
	for _, r := range ranges {
		for _, o := range ranges {
			and, or := r.and(o), r.or(o)
			for _, p := range points {
				b := []byte(p)
				if and.Contains(b) != (r.Contains(b) && o.Contains(b)) {
					t.Fatalf("%q in %+q and %+q: %v", p, r, o, and.Contains(b))
				}
				if (r.Contains(b) || o.Contains(b)) && !or.Contains(b) {
					t.Fatalf("%q is in %+q or %+q, but not in %+q", p, r, o, or)
				}
				if r.empty() && r.Contains(b) {
					t.Fatalf("%q is in %+q, which is empty", p, r)
				}
			}
		}
	}
}
