package gcpolicy

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/internal/planted"
	"github.com/steledb/stele/table"
)

// Policy is a family's GC policy with values precomputed for the hot paths.
type Policy struct {
	gc          *table.GCPolicy
	leaves      []int // n of each versions=n rule
	maxVersions int   // versions of a higher rank are garbage whatever their age; 0: no limit
	maxAge      int64 // older versions are garbage whatever their rank, in µs; 0: no limit
	operands    bool  // versions of the same timestamp are operands of one cell
}

// New prepares the GC policy of a family.
func New(f *table.Family) Policy {
	gc := &f.GC
	return Policy{operands: f.Aggregate != table.AggregateNone, gc: gc, leaves: gc.VersionLeaves(), maxVersions: gc.MaxVersions(), maxAge: gc.MaxAge().Microseconds()}
}

// checkVersions is the number of versions after which Settle checks its context.
const checkVersions = 4096

// Verdict is the decision about one version of a column.
type Verdict uint8

const (
	Live     Verdict = iota
	Hidden           // committed after the read's sequence number
	Replaced         // the same version was written again later
	Deleted          // by a deletion committed after it
	Garbage          // by the family's GC policy
	Rest             // garbage, and so are all older versions of the column
	Merged           // an operand of the cell whose last operand is live
)

// timeRange is a deletion of the versions of a column with timestamps in [start, end); end 0 means
// no end.
type timeRange struct {
	start, end int64
	seq        uint64
}

func (r *timeRange) covers(ts int64, seq uint64) bool {
	return seq < r.seq && ts >= r.start && (r.end == 0 || ts < r.end)
}

// Judge decides which versions of one column live. Versions come newest first, and versions with
// the same timestamp last commit first, as internal keys are ordered.
//
// The rule is that of package table: a version is out of versions=n from the moment at which n
// newer ones exist beside it, even if those are deleted later. If only whole columns, families and
// rows were deleted, that is the same as not being among the n newest live versions: what a whole
// deletion covers does not count, and it never coexisted with what the deletion leaves. Only the
// deletion of a range of timestamps makes the order of commits matter: see Settle.
type Judge struct {
	now  int64  // µs
	snap uint64 // entries with a higher sequence number are hidden

	policy *Policy
	full   uint64      // last deletion of the whole column; older entries are dead
	ranges []timeRange // later deletions of parts of it
	cover  cover       // index of ranges, if they are many
	replay replay

	seen   bool
	lastTS int64
	live   bool // the last operand of lastTS
	rank   int  // number of newer versions that count

	outranked func(n int) bool // set once: a method value costs an allocation
}

// Init prepares the judge for a read, or a compaction, at sequence number snap. now is in µs.
func (j *Judge) Init(now int64, snap uint64) {
	const keep = 1024 // ranges or versions; judges are reused, and should not keep the buffers of one large column
	j.now, j.snap = now, snap
	if cap(j.ranges) > keep {
		j.ranges, j.cover = nil, cover{}
	}
	if cap(j.replay.events) > keep {
		j.replay = replay{}
	}
	if j.outranked == nil {
		j.outranked = func(n int) bool { return j.rank >= n }
	}
}

// BeginColumn starts a column whose family or row was last deleted at full, 0 if never.
func (j *Judge) BeginColumn(p *Policy, full uint64) {
	j.policy, j.full, j.ranges = p, full, j.ranges[:0]
	j.cover.built, j.seen, j.rank = false, false, 0
}

// Delete records a deletion in the column. Deletions come before the versions, last commit first.
func (j *Judge) Delete(start, end int64, seq uint64) {
	switch {
	case seq > j.snap || seq <= j.full:
	case start == 0 && end == 0:
		j.full = seq
	default:
		j.ranges = append(j.ranges, timeRange{start: start, end: end, seq: seq})
		j.cover.built = false
	}
}

// IsCovered reports whether an entry of the column is older than its last whole deletion.
func (j *Judge) IsCovered(seq uint64) bool { return seq <= j.full }

// Snapshot returns the sequence number above which entries are hidden.
func (j *Judge) Snapshot() uint64 { return j.snap }

// IsVisible reports whether an entry is visible at the read's sequence number.
func (j *Judge) IsVisible(seq uint64) bool { return seq <= j.snap }

// Ranges returns the number of deleted ranges that the judge holds.
func (j *Judge) Ranges() int { return len(j.ranges) }

// NeedsHistory reports whether the versions must be judged together, by Settle.
func (j *Judge) NeedsHistory() bool {
	return len(j.ranges) > 0 && len(j.policy.leaves) > 0 && !planted.On(planted.VersionsReappear)
}

// Next returns the verdict on the next version.
func (j *Judge) Next(ts int64, seq uint64) Verdict {
	if seq > j.snap {
		return Hidden
	}
	if j.seen && ts == j.lastTS {
		if j.policy.operands && j.live && !j.isDeleted(ts, seq) {
			return Merged
		}
		return Replaced
	}
	j.seen, j.lastTS, j.live = true, ts, false
	if j.isDeleted(ts, seq) {
		return Deleted
	}
	p, age := j.policy, j.now-ts
	if p.maxVersions > 0 && j.rank >= p.maxVersions || p.maxAge > 0 && age > p.maxAge {
		return Rest
	}
	out := p.gc.Kind != table.GCNone && p.gc.Garbage(j.outranked, age)
	j.rank++
	if out {
		return Garbage
	}
	j.live = true
	return Live
}

func (j *Judge) isDeleted(ts int64, seq uint64) bool {
	if seq <= j.full {
		return true
	}
	if len(j.ranges) > fewRanges {
		if !j.cover.built {
			j.cover.build(j.ranges)
		}
		return seq < j.cover.last(ts)
	}
	for i := range j.ranges {
		if j.ranges[i].covers(ts, seq) {
			return true
		}
	}
	return false
}

// fewRanges is the number of ranges up to which a linear search is used; an index pays off above
// it.
const fewRanges = 8

// cover finds the last deletion of a timestamp in O(log ranges). A column may have as many ranges
// as versions, and each version is looked up.
type cover struct {
	bounds []int64  // ascending; segment i starts at bounds[i] and ends at the next bound; the last one has no end
	seqs   []uint64 // by segment: last deletion that covers it; 0: none
	open   slots    // segments not covered so far
	built  bool
}

// build takes O(ranges log ranges): it sorts ranges by last deletion first, so that each segment is
// written once.
func (c *cover) build(ranges []timeRange) {
	slices.SortFunc(ranges, func(a, b timeRange) int { return cmp.Compare(b.seq, a.seq) })
	c.built, c.bounds = true, c.bounds[:0]
	for i := range ranges {
		c.bounds = append(c.bounds, ranges[i].start)
		if ranges[i].end != 0 {
			c.bounds = append(c.bounds, ranges[i].end)
		}
	}
	slices.Sort(c.bounds)
	c.bounds = slices.Compact(c.bounds)
	n := len(c.bounds)
	c.seqs = slices.Grow(c.seqs[:0], n)[:n]
	clear(c.seqs)
	c.open.reset(n)
	for i := range n {
		c.open.add(i)
	}
	for i := range ranges {
		r := &ranges[i]
		from, _ := slices.BinarySearch(c.bounds, r.start)
		to := n
		if r.end != 0 {
			to, _ = slices.BinarySearch(c.bounds, r.end)
		}
		for s := c.open.next(from); s >= 0 && s < to; s = c.open.next(s + 1) {
			c.open.remove(s)
			c.seqs[s] = r.seq
		}
	}
}

// last returns the sequence number of the last deletion of ts, or 0.
func (c *cover) last(ts int64) uint64 {
	at, exact := slices.BinarySearch(c.bounds, ts)
	if !exact {
		at--
	}
	if at < 0 {
		return 0
	}
	return c.seqs[at]
}

// Version is one version of a column whose history is needed.
type Version struct {
	Timestamp int64
	Seq       uint64
	out       uint64 // bit i: out of versions=leaves[i]
	Verdict   Verdict
}

// Settle judges all versions of a column together, by replaying its commits. It takes O(n log n)
// for n versions and ranges. The error is the cause of ctx.
func (j *Judge) Settle(ctx context.Context, vs []Version) error {
	j.prepare(vs)
	r := &j.replay
	for leaf, n := range j.policy.leaves {
		if n >= len(r.times) { // so many versions never coexist; later leaves are larger
			break
		}
		if leaf == 0 {
			slices.SortFunc(r.events, func(a, b event) int { return cmp.Compare(a.seq, b.seq) })
		}
		if err := r.outrank(ctx, vs, n, 1<<leaf); err != nil {
			return err
		}
	}
	return j.conclude(ctx, vs)
}

// prepare decides the versions for which history does not matter, and lists the commits of the
// others and of the deletions for replay.
func (j *Judge) prepare(vs []Version) {
	r := &j.replay
	r.events, r.times = r.events[:0], r.times[:0]
	for i := range vs {
		v := &vs[i]
		v.out = 0
		switch {
		case v.Seq > j.snap:
			v.Verdict = Hidden
		case v.Seq <= j.full:
			v.Verdict = Deleted
		default:
			v.Verdict = Live
			if n := len(r.times); n == 0 || r.times[n-1] != v.Timestamp {
				r.times = append(r.times, v.Timestamp)
			}
			r.events = append(r.events, event{seq: v.Seq, set: i, from: len(r.times) - 1})
		}
	}
	for i := range j.ranges {
		d := &j.ranges[i]
		from, to := 0, r.slot(d.start)
		if d.end != 0 {
			from = r.slot(d.end)
		}
		if from < to {
			r.events = append(r.events, event{seq: d.seq, set: -1, from: from, to: to})
		}
	}
	r.holders = slices.Grow(r.holders[:0], len(r.times))[:len(r.times)]
}

// conclude decides the other versions.
func (j *Judge) conclude(ctx context.Context, vs []Version) error {
	var v, last *Version
	outranked := func(n int) bool {
		leaf, _ := slices.BinarySearch(j.policy.leaves, n)
		return v.out&(1<<leaf) != 0
	}
	for i := range vs {
		if i%checkVersions == checkVersions-1 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if v = &vs[i]; v.Verdict != Live {
			continue
		}
		again := last != nil && last.Timestamp == v.Timestamp
		switch {
		case again && !(j.policy.operands && last.survives()): // what deletes or collects an operand does so with the earlier ones
			v.Verdict = Replaced
		case j.isDeleted(v.Timestamp, v.Seq):
			v.Verdict = Deleted
		case j.policy.gc.Garbage(outranked, j.now-v.Timestamp):
			v.Verdict = Garbage
		case again:
			v.Verdict = Merged
		}
		last = v
	}
	return nil
}

// survives reports whether the version is part of a cell that is returned.
func (v *Version) survives() bool { return v.Verdict == Live || v.Verdict == Merged }

// replay holds the commits of a column, to be processed in commit order.
type replay struct {
	events   []event
	times    []int64 // distinct timestamps, newest first
	standing slots   // slots of times that have a version among the newest
	holders  []int   // by slot of times: index of that version
}

// event is the commit of a version or, if set is negative, of a deletion.
type event struct {
	seq      uint64
	set      int // index of the version
	from, to int // slots of times: that of the version, or the range of the deletion
}

// slot returns the first slot whose timestamp is below ts.
func (r *replay) slot(ts int64) int {
	return sort.Search(len(r.times), func(i int) bool { return r.times[i] < ts })
}

// outrank replays the commits under versions=n and sets bit on each version that was not among the
// n newest at some time. Each removal matches one earlier insertion, so deletions of many versions
// cost no more than those versions did.
func (r *replay) outrank(ctx context.Context, vs []Version, n int, bit uint64) error {
	r.standing.reset(len(r.times))
	count := 0
	for i := range r.events {
		if i%checkVersions == checkVersions-1 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e := &r.events[i]
		if e.set < 0 {
			for s := r.standing.next(e.from); s >= 0 && s < e.to; s = r.standing.next(s + 1) {
				r.standing.remove(s)
				count--
			}
			continue
		}
		r.holders[e.from] = e.set
		if r.standing.has(e.from) {
			continue
		}
		r.standing.add(e.from)
		if count++; count > n {
			oldest := r.standing.last()
			r.standing.remove(oldest)
			vs[r.holders[oldest]].out |= bit
			count--
		}
	}
	return nil
}

// slots is a set of numbers below a bound: a bitmap, with upper levels that mark the non-empty
// words of the level below, up to a single word. Finding a member reads one or two words of each
// level, whatever the set.
type slots struct{ levels [][]uint64 }

// reset makes s empty, for numbers below n.
func (s *slots) reset(n int) {
	depth := 0
	for words := (n + 63) / 64; ; words = (words + 63) / 64 {
		if depth == len(s.levels) {
			s.levels = append(s.levels, nil)
		}
		level := slices.Grow(s.levels[depth][:0], words)[:words]
		clear(level)
		s.levels[depth] = level
		if depth++; words <= 1 {
			break
		}
	}
	s.levels = s.levels[:depth]
}

func (s *slots) has(i int) bool { return s.levels[0][i>>6]&(1<<(i&63)) != 0 }

func (s *slots) add(i int) {
	for _, level := range s.levels {
		word := &level[i>>6]
		had := *word != 0
		*word |= 1 << (i & 63)
		if had {
			return
		}
		i >>= 6
	}
}

func (s *slots) remove(i int) {
	for _, level := range s.levels {
		word := &level[i>>6]
		*word &^= 1 << (i & 63)
		if *word != 0 {
			return
		}
		i >>= 6
	}
}

// next returns the first member at or above i, or -1.
func (s *slots) next(i int) int {
	for up, level := range s.levels {
		word := i >> 6
		if word >= len(level) {
			return -1
		}
		if rest := level[word] >> (i & 63); rest != 0 {
			return s.first(up, i+bits.TrailingZeros64(rest))
		}
		i = word + 1
	}
	return -1
}

// first returns the first member under bit i of a level.
func (s *slots) first(level, i int) int {
	for ; level > 0; level-- {
		i = i<<6 | bits.TrailingZeros64(s.levels[level-1][i])
	}
	return i
}

// last returns the largest member. The set is not empty.
func (s *slots) last() int {
	i := 0
	for _, level := range slices.Backward(s.levels) {
		i = i<<6 | (63 - bits.LeadingZeros64(level[i]))
	}
	return i
}

// Clock is the time at which GC policies are evaluated. It never goes back with the wall clock,
// so a cell that a read found expired stays expired.
type Clock struct {
	wall func() time.Time
	last atomic.Int64 // latest result, in µs
}

// NewClock returns a clock that follows wall.
func NewClock(wall func() time.Time) *Clock { return &Clock{wall: wall} }

// Now returns the time, in µs, at which to evaluate GC policies.
func (c *Clock) Now() int64 {
	now := c.wall().UnixMicro()
	for {
		last := c.last.Load()
		if now <= last {
			return last
		}
		if c.last.CompareAndSwap(last, now) {
			return now
		}
	}
}
