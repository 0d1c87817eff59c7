package heat

import (
	"bytes"
	"slices"
)

// Merge returns the sums of buckets, which may overlap, as most buckets or fewer. Neighbours with few operations are joined first, so busy
// ranges stay apart. A bucket that others divide is divided evenly among their ranges.
func Merge(most int, all ...[]Bucket) []Bucket {
	var flat []Bucket
	for _, bs := range all {
		flat = append(flat, bs...)
	}
	if len(flat) == 0 {
		return nil
	}
	parts := divided(flat)
	if len(parts) <= most {
		return parts
	}
	total := int64(0)
	for i := range parts {
		total += parts[i].Ops()
	}
	low, high := int64(-1), total // the least bound of a bucket's operations with which most are enough
	for high-low > 1 {
		if mid := low + (high-low)/2; len(joined(parts, mid, false)) <= most {
			high = mid
		} else {
			low = mid
		}
	}
	if got := joined(parts, high, false); len(got) <= most {
		return got
	}
	return joinedAll(parts, most)
}

// divided returns the sums of buckets by the ranges between all of their bounds.
func divided(flat []Bucket) []Bucket {
	var bounds [][]byte
	unbounded := false
	for i := range flat {
		bounds = append(bounds, flat[i].Start)
		if len(flat[i].End) == 0 {
			unbounded = true
		} else {
			bounds = append(bounds, flat[i].End)
		}
	}
	slices.SortFunc(bounds, bytes.Compare)
	bounds = slices.CompactFunc(bounds, bytes.Equal)
	parts := make([]Bucket, 0, len(bounds))
	for i := range bounds {
		if i+1 < len(bounds) {
			parts = append(parts, Bucket{Start: bounds[i], End: bounds[i+1]})
		} else if unbounded {
			parts = append(parts, Bucket{Start: bounds[i]})
		}
	}
	covered := make([]bool, len(parts))
	for i := range flat {
		from, to := Span(bounds, len(parts), &flat[i])
		Spread(flat[i].Sums, from, to, func(at int, s Sums) {
			parts[at].Add(s)
			covered[at] = true
		})
	}
	n := 0
	for i := range parts {
		if covered[i] {
			parts[n] = parts[i]
			n++
		}
	}
	return parts[:n]
}

// Span returns which of n ranges a bucket covers, from and below to; one at least. The ranges begin at starts, and each ends where the next one begins.
func Span(starts [][]byte, n int, b *Bucket) (from, to int) {
	from, _ = slices.BinarySearchFunc(starts[:n], b.Start, bytes.Compare)
	if to = n; len(b.End) > 0 {
		to, _ = slices.BinarySearchFunc(starts[:n], b.End, bytes.Compare)
	}
	from = min(from, n-1)
	return from, max(to, from+1)
}

// Spread divides sums evenly among the ranges from and below to. The parts add up to the sums (HM1).
func Spread(s Sums, from, to int, add func(at int, s Sums)) {
	n := int64(to - from)
	part := func(v, i int64) int64 { return v/n + (v%n*(i+1)/n - v%n*i/n) }
	for i := range n {
		add(from+int(i), Sums{
			Reads: part(s.Reads, i), Writes: part(s.Writes, i), ReadBytes: part(s.ReadBytes, i), WriteBytes: part(s.WriteBytes, i),
			ReadMicros: part(s.ReadMicros, i), WriteMicros: part(s.WriteMicros, i),
		})
	}
}

// joined joins neighbours that have at most bound operations together. Those with a gap between them are joined only if across is set.
func joined(parts []Bucket, bound int64, across bool) []Bucket {
	var all []Bucket
	for i := range parts {
		if n := len(all); n > 0 && (across || bytes.Equal(all[n-1].End, parts[i].Start)) && all[n-1].Ops()+parts[i].Ops() <= bound {
			all[n-1].End = parts[i].End
			all[n-1].Add(parts[i].Sums)
			continue
		}
		all = append(all, parts[i])
	}
	return all
}

// joinedAll joins neighbours by their number alone.
func joinedAll(parts []Bucket, most int) []Bucket {
	var all []Bucket
	for i := range parts {
		if at := i * most / len(parts); at < len(all) {
			all[at].End = parts[i].End
			all[at].Add(parts[i].Sums)
			continue
		}
		all = append(all, parts[i])
	}
	return all
}

// MergeHot returns the sums of hot rows, the hottest first.
func MergeHot(most int, all ...[]Hot) []Hot {
	sums := map[string]*Hot{}
	var flat []Hot
	for _, hs := range all {
		for _, h := range hs {
			if s := sums[string(h.Row)]; s != nil {
				s.Reads, s.Writes = s.Reads+h.Reads, s.Writes+h.Writes
				s.Users = mostUsers(append(s.Users, h.Users...))
				continue
			}
			h.Users = slices.Clone(h.Users)
			sums[string(h.Row)] = &h
		}
	}
	for _, h := range sums {
		flat = append(flat, *h)
	}
	return hottest(flat, most)
}

// Overlap returns which ranges a bucket overlaps, from and below to; one at least. The ranges begin at starts, and each ends where the next one begins.
func Overlap(starts [][]byte, b *Bucket) (from, to int) {
	from, found := slices.BinarySearchFunc(starts, b.Start, bytes.Compare)
	if !found && from > 0 {
		from--
	}
	if to = len(starts); len(b.End) > 0 {
		to, _ = slices.BinarySearchFunc(starts, b.End, bytes.Compare)
	}
	from = min(from, len(starts)-1)
	return from, max(to, from+1)
}
