package keyheat

import (
	"bytes"
	"slices"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/tablet/heat"
)

// selection is the rows of a request: start < row <= end, with a prefix. Empty bounds, and an empty prefix, are none.
type selection struct {
	prefix, start, end []byte
	data               []dataPoint // of all rows of the table, in order
}

// dataPoint is a row of a sample, and the bytes of the rows up to it from the first of the sample.
type dataPoint struct {
	row   []byte
	bytes int64
}

// selectionOf returns the rows of a request, with the samples of the nodes' rows.
func selectionOf(r *api.KeyHeatRequest, parts []*part) *selection {
	s := &selection{prefix: r.Prefix, start: r.Start, end: r.End}
	if below := heat.Below(r.Prefix); bytes.Compare(below, s.start) > 0 {
		s.start = below
	}
	if last := heat.Below(afterPrefix(r.Prefix)); len(last) > 0 && (len(s.end) == 0 || bytes.Compare(last, s.end) < 0) {
		s.end = last
	}
	for _, p := range parts {
		for _, x := range p.samples {
			if len(x.Row) > 0 {
				s.data = append(s.data, dataPoint{x.Row, x.Bytes})
			}
		}
	}
	slices.SortFunc(s.data, func(a, b dataPoint) int { return bytes.Compare(a.row, b.row) })
	n, total := 0, int64(0)
	for _, x := range s.data {
		if total += x.bytes; n > 0 && bytes.Equal(s.data[n-1].row, x.row) {
			s.data[n-1].bytes = total
			continue
		}
		s.data[n] = dataPoint{x.row, total}
		n++
	}
	s.data = s.data[:n]
	return s
}

// has reports whether a row is selected.
func (s *selection) has(row []byte) bool {
	return bytes.HasPrefix(row, s.prefix) && bytes.Compare(row, s.start) > 0 && (len(s.end) == 0 || bytes.Compare(row, s.end) <= 0)
}

// part returns the part of a bucket that is selected, with the operations that count as its own. A bucket ends at a row that was used, so it
// counts in full if that row is selected. Otherwise the selected rows have the share of its operations that they have of its data.
func (s *selection) part(b heat.Bucket) (heat.Bucket, bool) {
	begins := bytes.Compare(b.Start, s.start) > 0 // among the selected rows, or after them
	ends := len(s.end) == 0 || len(b.End) > 0 && bytes.Compare(b.End, s.end) <= 0
	if ends && len(b.End) > 0 && bytes.Compare(b.End, s.start) <= 0 || begins && !ends && bytes.Compare(b.Start, s.end) >= 0 {
		return b, false
	}
	part := b
	if !begins {
		part.Start = s.start
	}
	if ends && (len(part.End) == 0 || bytes.Compare(part.End, part.Start) > 0) {
		return part, true
	}
	if ends {
		return b, false
	}
	if part.End = s.end; bytes.Compare(part.End, part.Start) <= 0 {
		return b, false
	}
	switch whole := s.dataOf(b.Start, b.End); {
	case whole > 0:
		part.Sums = b.Scale(float64(s.dataOf(part.Start, part.End)) / float64(whole))
	case !begins:
		return b, false
	}
	return part, !part.IsZero()
}

// dataOf returns the bytes of the sampled rows in a range.
func (s *selection) dataOf(start, end []byte) int64 {
	upTo := func(row []byte) int64 {
		at, found := slices.BinarySearchFunc(s.data, row, func(x dataPoint, row []byte) int { return bytes.Compare(x.row, row) })
		if found {
			at++
		}
		if at == 0 {
			return 0
		}
		return s.data[at-1].bytes
	}
	if len(end) == 0 {
		if len(s.data) == 0 {
			return 0
		}
		return s.data[len(s.data)-1].bytes - upTo(start)
	}
	return upTo(end) - upTo(start)
}

// dataIn returns the selected samples as buckets between them, with their bytes as ReadBytes.
func (s *selection) dataIn() []heat.Bucket {
	var all []heat.Bucket
	before := int64(0)
	for _, x := range s.data {
		if s.has(x.row) {
			b := heat.Bucket{Start: s.start, End: x.row, Sums: heat.Sums{ReadBytes: x.bytes - before}}
			if n := len(all); n > 0 {
				b.Start = all[n-1].End
			}
			all = append(all, b)
		}
		before = x.bytes
	}
	return all
}

// afterPrefix returns the least row above all rows with a prefix; nil if there is none.
func afterPrefix(prefix []byte) []byte {
	for n := len(prefix); n > 0; n-- {
		if prefix[n-1] < 0xff {
			end := bytes.Clone(prefix[:n])
			end[n-1]++
			return end
		}
	}
	return nil
}
