package tablet

import (
	"cmp"
	"slices"

	"github.com/steledb/stele/table"
)

// policy is a family's GC policy with what the hot paths ask of it worked out.
type policy struct {
	gc          *table.GCPolicy
	leaves      []int // the n of its versions=n rules
	maxVersions int   // beyond these, garbage whatever the age; 0: no such number
	maxAge      int64 // older, garbage whatever the rank, in µs; 0: no such age
}

func newPolicy(gc *table.GCPolicy) policy {
	return policy{gc: gc, leaves: gc.VersionLeaves(), maxVersions: gc.MaxVersions(), maxAge: gc.MaxAge().Microseconds()}
}

// verdict is what becomes of one version of a column.
type verdict uint8

const (
	live     verdict = iota
	hidden           // committed after the read's sequence number
	replaced         // the same version was written again later
	deleted          // by a deletion that was committed after it
	garbage          // by the family's GC policy
	rest             // garbage, and so are all older versions of the column
)

// timeRange is a deletion of those versions of a column whose timestamps are in
// [start, end), end 0 being none.
type timeRange struct {
	start, end int64
	seq        uint64
}

func (r *timeRange) covers(ts int64, seq uint64) bool {
	return seq < r.seq && ts >= r.start && (r.end == 0 || ts < r.end)
}

// judge decides which versions of one column live. Versions come newest first,
// and of the same timestamp the last commit first, as internal keys are ordered.
//
// The law is table's: a version is out of versions=n from the moment at which n
// newer ones stand beside it, even if those are deleted later. As long as
// nothing but whole columns, families and rows was deleted, that is the same as
// being beyond the n newest that live: what a whole deletion covers counts for
// nothing, and nothing that it leaves was ever beside it. Only a deletion of a
// range of timestamps makes the order of commits matter: see history.
type judge struct {
	now  int64  // µs
	snap uint64 // entries with a higher sequence number are hidden

	policy *policy
	full   uint64      // the last deletion of all the column; older entries are dead
	ranges []timeRange // deletions of parts of it, after full

	seen   bool
	lastTS int64
	rank   int // versions that stand above the next one

	outranked func(n int) bool // bound once: a method value costs an allocation
}

func (j *judge) init(now int64, snap uint64) {
	j.now, j.snap = now, snap
	if j.outranked == nil {
		j.outranked = func(n int) bool { return j.rank >= n }
	}
}

// column starts a column whose family or row was last deleted at full, 0 if never.
func (j *judge) column(p *policy, full uint64) {
	j.policy, j.full, j.ranges = p, full, j.ranges[:0]
	j.seen, j.rank = false, 0
}

// delete takes note of a deletion in the column. Those come before its versions,
// the last commit first.
func (j *judge) delete(start, end int64, seq uint64) {
	switch {
	case seq > j.snap || seq <= j.full:
	case start == 0 && end == 0:
		j.full = seq
	default:
		j.ranges = append(j.ranges, timeRange{start: start, end: end, seq: seq})
	}
}

// needsHistory says that the versions must be judged together, by settle.
func (j *judge) needsHistory() bool { return len(j.ranges) > 0 && len(j.policy.leaves) > 0 }

// version judges the next version.
func (j *judge) version(ts int64, seq uint64) verdict {
	if seq > j.snap {
		return hidden
	}
	if j.seen && ts == j.lastTS {
		return replaced
	}
	j.seen, j.lastTS = true, ts
	if j.isDeleted(ts, seq) {
		return deleted
	}
	p, age := j.policy, j.now-ts
	if p.maxVersions > 0 && j.rank >= p.maxVersions || p.maxAge > 0 && age > p.maxAge {
		return rest
	}
	out := p.gc.Kind != table.GCNone && p.gc.Garbage(j.outranked, age)
	j.rank++
	if out {
		return garbage
	}
	return live
}

func (j *judge) isDeleted(ts int64, seq uint64) bool {
	if seq <= j.full {
		return true
	}
	for i := range j.ranges {
		if j.ranges[i].covers(ts, seq) {
			return true
		}
	}
	return false
}

// version is one version of a column whose history must be known.
type version struct {
	ts         int64
	seq        uint64
	key, value []byte
	verdict    verdict
	out        uint64 // bit i: out of versions=leaves[i]
}

// settle judges all versions of a column together, by replaying its commits.
func (j *judge) settle(vs []version) {
	events := make([]event, 0, len(vs)+len(j.ranges))
	for i := range vs {
		v := &vs[i]
		v.out = 0
		switch {
		case v.seq > j.snap:
			v.verdict = hidden
		case v.seq <= j.full:
			v.verdict = deleted
		default:
			v.verdict = live
			events = append(events, event{seq: v.seq, set: v})
		}
	}
	for i := range j.ranges {
		events = append(events, event{seq: j.ranges[i].seq, del: &j.ranges[i]})
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.seq, b.seq) })
	for leaf, n := range j.policy.leaves {
		outrank(events, n, 1<<leaf)
	}
	var last *version
	for i := range vs {
		v := &vs[i]
		if v.verdict != live {
			continue
		}
		again := last != nil && last.ts == v.ts
		last = v
		switch {
		case again:
			v.verdict = replaced
		case j.isDeleted(v.ts, v.seq):
			v.verdict = deleted
		case j.policy.gc.Garbage(func(n int) bool {
			leaf, _ := slices.BinarySearch(j.policy.leaves, n)
			return v.out&(1<<leaf) != 0
		}, j.now-v.ts):
			v.verdict = garbage
		}
	}
}

type event struct {
	seq uint64
	set *version
	del *timeRange
}

// outrank replays a column's commits under versions=n and sets bit on each
// version that was out of the n newest at some time.
func outrank(events []event, n int, bit uint64) {
	var standing []*version // newest first, at most n
	for _, e := range events {
		if e.del != nil {
			standing = slices.DeleteFunc(standing, func(v *version) bool { return e.del.covers(v.ts, v.seq) })
			continue
		}
		at, same := slices.BinarySearchFunc(standing, e.set.ts, func(v *version, ts int64) int { return cmp.Compare(ts, v.ts) })
		if same {
			standing[at] = e.set
			continue
		}
		standing = slices.Insert(standing, at, e.set)
		if len(standing) > n {
			standing[n].out |= bit
			standing = standing[:n]
		}
	}
}
