package heat

import (
	"bytes"
	"cmp"
	"slices"
	"unique"
)

const (
	// bucketShare is the part of the operations from which a row or a range is a bucket of its own, and
	// bucketsMax the number of buckets that follows from it.
	bucketShare, bucketsMax = 1.0 / 15, 32
	// hotMax is the number of hot rows of a Part. A row is hot that has hotShare of the reads or writes, of
	// hotSamples at least.
	hotMax, hotShare, hotSamples = 4, 0.05, 8
	// UsersMax is the number of users of a hot row.
	UsersMax = 4
)

// Bucket has the operations on a range of rows: Start < row <= End; an empty End is no bound.
type Bucket struct {
	Start, End []byte
	Sums
}

// Hot is a row that has much of the operations. Its numbers are estimates.
type Hot struct {
	Row           []byte
	Reads, Writes int64
	// Users are those with the most operations on it, at most UsersMax, the one with the most first. Operations of nodes have no user.
	Users []UserOps
}

// UserOps is the number of a user's operations.
type UserOps struct {
	Name string
	Ops  int64
}

// Part is what was counted for ranges of a table.
type Part struct {
	Table   uint64
	Buckets []Bucket
	Hot     []Hot
	Large   []Large
}

// point is a sampled row with its part of the samples.
type point struct {
	row    []byte
	sums   Sums // of the samples, as weights: the times are in ns
	weight float64
}

// Take returns what was noted since the last call, and resets the counters. It returns nil if that is nothing.
func (t *Tablet) Take() *Part {
	if t == nil {
		return nil
	}
	var sums Sums
	var reads, writes []sample
	sums.Reads, sums.ReadBytes, sums.ReadMicros, reads = t.reads.take()
	sums.Writes, sums.WriteBytes, sums.WriteMicros, writes = t.writes.take()
	if sums.IsZero() {
		return nil
	}
	t.mu.Lock()
	p := &Part{Table: t.table, Large: t.large}
	t.large = nil
	t.mu.Unlock()
	points := pointsOf(reads, writes)
	p.Buckets = t.cut(points)
	share(p.Buckets, points, sums)
	p.Hot = hotOf(points, sums, int64(len(reads)), int64(len(writes)))
	for i := range p.Hot {
		h := &p.Hot[i]
		h.Users = append(usersOf(h.Row, reads, sums.Reads), usersOf(h.Row, writes, sums.Writes)...)
		h.Users = mostUsers(h.Users)
	}
	return p
}

// usersOf returns the users of a row with their parts of sum, in the proportion of a sample.
func usersOf(row []byte, rows []sample, sum int64) (users []UserOps) {
	counts := map[unique.Handle[string]]int64{}
	for _, s := range rows {
		if s.user != (unique.Handle[string]{}) && bytes.Equal(s.row, row) {
			counts[s.user]++
		}
	}
	for user, n := range counts {
		users = append(users, UserOps{user.Value(), part(sum, n, int64(len(rows)))})
	}
	return users
}

// mostUsers adds up the operations of each user, and returns those with the most.
func mostUsers(all []UserOps) []UserOps {
	slices.SortFunc(all, func(a, b UserOps) int { return cmp.Compare(a.Name, b.Name) })
	n := 0
	for _, u := range all {
		if n > 0 && all[n-1].Name == u.Name {
			all[n-1].Ops += u.Ops
			continue
		}
		all[n] = u
		n++
	}
	all = all[:n]
	slices.SortStableFunc(all, func(a, b UserOps) int { return cmp.Compare(b.Ops, a.Ops) })
	return all[:min(n, UsersMax)]
}

// pointsOf returns the sampled rows in order. The weight of all is 1 for each side that has any.
func pointsOf(reads, writes []sample) []point {
	all := make([]point, 0, len(reads)+len(writes))
	for _, s := range reads {
		all = append(all, point{s.row, Sums{Reads: 1, ReadBytes: int64(s.bytes), ReadMicros: int64(s.nanos)}, 1 / float64(len(reads))})
	}
	for _, s := range writes {
		all = append(all, point{s.row, Sums{Writes: 1, WriteBytes: int64(s.bytes), WriteMicros: int64(s.nanos)}, 1 / float64(len(writes))})
	}
	slices.SortFunc(all, func(a, b point) int { return bytes.Compare(a.row, b.row) })
	n := 0
	for i := range all {
		if n > 0 && bytes.Equal(all[n-1].row, all[i].row) {
			all[n-1].weight += all[i].weight
			all[n-1].sums.Add(all[i].sums)
			continue
		}
		all[n] = all[i]
		n++
	}
	return all[:n]
}

// cut divides the tablet at rows, so that each bucket has about bucketShare of the weight. A row with more has a bucket of
// its own, and so has each of a few rows, with the rows before it if none of them was sampled.
func (t *Tablet) cut(points []point) []Bucket {
	total := 0.0
	for i := range points {
		total += points[i].weight
	}
	all, weight, from := []Bucket(nil), 0.0, clip(t.start)
	end := func(at []byte) {
		if bytes.Compare(at, from) > 0 && (len(t.end) == 0 || bytes.Compare(at, clip(t.end)) < 0) && len(all) < bucketsMax-1 {
			all, from, weight = append(all, Bucket{Start: from, End: at}), at, 0
		}
	}
	few := len(points) < bucketsMax/2 // each row takes two buckets at most
	for i := range points {
		p := &points[i]
		heavy := few || p.weight >= total*bucketShare
		if heavy && (weight > 0 || !few) {
			end(Below(p.row))
		}
		if weight += p.weight; heavy || weight >= total*bucketShare {
			end(p.row)
		}
	}
	last := clip(t.end)
	if len(last) > 0 && bytes.Compare(last, from) <= 0 { // its bounds differ only beyond RowMax
		last = append(bytes.Clone(from), 0)
	}
	return append(all, Bucket{Start: from, End: last})
}

// Below returns a row that is below row, and above all rows below it that occur in practice.
func Below(row []byte) []byte {
	n := len(row)
	switch {
	case n == 0:
		return nil
	case row[n-1] == 0:
		return bytes.Clone(row[:n-1])
	}
	b := append(bytes.Clone(row), 0xff, 0xff)
	b[n-1]--
	return b
}

// clip returns the start of a row of which RowMax bytes are kept.
func clip(row []byte) []byte { return row[:min(len(row), RowMax)] }

// share divides sums among the buckets, in the proportion of the samples in each. The sum of the buckets is sums (HM1).
func share(all []Bucket, points []point, sums Sums) {
	parts := make([]Sums, len(all))
	for i := range points {
		p := &points[i]
		at, _ := slices.BinarySearchFunc(all[:len(all)-1], p.row, func(b Bucket, row []byte) int { return bytes.Compare(b.End, row) })
		parts[at].Add(p.sums)
	}
	for _, of := range []func(*Sums) *int64{
		func(s *Sums) *int64 { return &s.Reads }, func(s *Sums) *int64 { return &s.Writes },
		func(s *Sums) *int64 { return &s.ReadBytes }, func(s *Sums) *int64 { return &s.WriteBytes },
		func(s *Sums) *int64 { return &s.ReadMicros }, func(s *Sums) *int64 { return &s.WriteMicros },
	} {
		divide(all, parts, of, *of(&sums))
	}
}

// divide sets one of the numbers of each bucket to its share of sum. Without any weight, the last bucket has it all.
func divide(all []Bucket, parts []Sums, of func(*Sums) *int64, sum int64) {
	total, before, given := 0.0, 0.0, int64(0)
	for i := range parts {
		total += float64(*of(&parts[i]))
	}
	for i := range parts {
		upTo := int64(0)
		if before += float64(*of(&parts[i])); before > 0 {
			upTo = int64(float64(sum) * (before / total))
		}
		if i == len(parts)-1 {
			upTo = sum
		}
		upTo = min(max(upTo, given), sum)
		*of(&all[i].Sums) = upTo - given
		given = upTo
	}
}

// hotOf returns the rows with most of the samples of a side.
func hotOf(points []point, sums Sums, reads, writes int64) []Hot {
	var all []Hot
	for i := range points {
		p := &points[i]
		if len(p.row) < RowMax && (isHot(p.sums.Reads, reads) || isHot(p.sums.Writes, writes)) {
			all = append(all, Hot{Row: p.row, Reads: part(sums.Reads, p.sums.Reads, reads), Writes: part(sums.Writes, p.sums.Writes, writes)})
		}
	}
	return hottest(all, hotMax)
}

func isHot(n, of int64) bool { return n >= hotSamples && float64(n) >= hotShare*float64(of) }

// part returns n of of samples as a part of sum.
func part(sum, n, of int64) int64 {
	if of == 0 {
		return 0
	}
	return int64(float64(sum) * float64(n) / float64(of))
}

func hottest(all []Hot, most int) []Hot {
	slices.SortFunc(all, func(a, b Hot) int {
		return cmp.Or(cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes), bytes.Compare(a.Row, b.Row))
	})
	return all[:min(len(all), most)]
}
