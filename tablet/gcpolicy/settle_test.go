package gcpolicy

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
)

// The reference for settle implements the rules in the simplest way: each commit is replayed on a
// sorted list of the versions that count, and each deletion is checked for each version.
type refColumn struct {
	*Judge
	sets []refVersion
}

type refVersion struct {
	Version
	outs map[int]bool // by n
}

func (c *refColumn) isDeleted(ts int64, seq uint64) bool {
	if seq <= c.full {
		return true
	}
	return slices.ContainsFunc(c.ranges, func(r timeRange) bool { return r.covers(ts, seq) })
}

func (c *refColumn) settle() []Verdict {
	for _, n := range c.policy.leaves {
		c.outrank(n)
	}
	verdicts := make([]Verdict, len(c.sets))
	var last *refVersion
	survived := false // last did
	for i := range c.sets {
		v := &c.sets[i]
		switch again := last != nil && last.Timestamp == v.Timestamp; {
		case v.Seq > c.snap:
			verdicts[i] = Hidden
			continue
		case v.Seq <= c.full:
			verdicts[i] = Deleted
			continue
		case again && c.policy.operands && !c.isDeleted(v.Timestamp, v.Seq) && !c.isGarbage(v):
			verdicts[i] = Merged
		case again && (!c.policy.operands || !survived):
			verdicts[i] = Replaced
		case c.isDeleted(v.Timestamp, v.Seq):
			verdicts[i] = Deleted
		case c.isGarbage(v):
			verdicts[i] = Garbage
		}
		last, survived = v, verdicts[i] == Live || verdicts[i] == Merged
	}
	return verdicts
}

func (c *refColumn) isGarbage(v *refVersion) bool {
	return c.policy.gc.Garbage(func(n int) bool { return v.outs[n] }, c.now-v.Timestamp)
}

// collect marks a version as out of versions=n, with its earlier operands.
func (c *refColumn) collect(v *refVersion, n int) {
	v.outs[n] = true
	for i := range c.sets {
		if o := &c.sets[i]; c.policy.operands && o.Timestamp == v.Timestamp && o.Seq < v.Seq {
			o.outs[n] = true
		}
	}
}

func (c *refColumn) outrank(n int) {
	type commit struct {
		seq uint64
		set *refVersion
		del *timeRange
	}
	var commits []commit
	for i := range c.sets {
		if v := &c.sets[i]; v.Seq <= c.snap && v.Seq > c.full {
			commits = append(commits, commit{seq: v.Seq, set: v})
		}
	}
	for i := range c.ranges {
		commits = append(commits, commit{seq: c.ranges[i].seq, del: &c.ranges[i]})
	}
	slices.SortFunc(commits, func(a, b commit) int { return cmp.Compare(a.seq, b.seq) })
	var standing []*refVersion
	for _, e := range commits {
		if e.del != nil {
			standing = slices.DeleteFunc(standing, func(v *refVersion) bool { return e.del.covers(v.Timestamp, v.Seq) })
			continue
		}
		at, same := slices.BinarySearchFunc(standing, e.set.Timestamp, func(v *refVersion, ts int64) int { return cmp.Compare(ts, v.Timestamp) })
		if same {
			standing[at] = e.set
			continue
		}
		standing = slices.Insert(standing, at, e.set)
		if len(standing) > n {
			c.collect(standing[n], n)
			standing = standing[:n]
		}
	}
}

func versionsRule(n int) table.GCPolicy {
	return table.GCPolicy{Kind: table.GCMaxVersions, Versions: n}
}

func ageRule(micros int64) table.GCPolicy {
	return table.GCPolicy{Kind: table.GCMaxAge, Age: time.Duration(micros) * time.Microsecond}
}

func randomPolicy(r *rand.Rand, most int) table.GCPolicy {
	n := func() table.GCPolicy { return versionsRule(1 + r.IntN(most)) }
	age := ageRule(1 + r.Int64N(100))
	switch r.IntN(4) {
	case 0:
		return n()
	case 1:
		return table.GCPolicy{Kind: table.GCUnion, Rules: []table.GCPolicy{n(), age}}
	case 2:
		return table.GCPolicy{Kind: table.GCIntersection, Rules: []table.GCPolicy{n(), age}}
	}
	both := table.GCPolicy{Kind: table.GCIntersection, Rules: []table.GCPolicy{n(), age}}
	return table.GCPolicy{Kind: table.GCUnion, Rules: []table.GCPolicy{n(), both, n()}}
}

// randomColumn fills a judge and returns the versions, as a reader would.
func randomColumn(r *rand.Rand, j *Judge, commits int, times int64) []Version {
	var vs []Version
	var dels []timeRange
	sets := 1 + r.IntN(9) // of ten
	for seq := range uint64(commits) {
		if r.IntN(10) < sets {
			vs = append(vs, Version{Timestamp: r.Int64N(times), Seq: seq + 1})
			continue
		}
		d := timeRange{start: r.Int64N(times), seq: seq + 1}
		if d.end = d.start + 1 + r.Int64N(times); r.IntN(8) == 0 {
			d.end = 0
		} else if r.IntN(2) == 0 {
			d.end = d.start + 1
		}
		dels = append(dels, d)
	}
	slices.SortFunc(vs, func(a, b Version) int {
		return cmp.Or(cmp.Compare(b.Timestamp, a.Timestamp), cmp.Compare(b.Seq, a.Seq))
	})
	for _, d := range slices.Backward(dels) {
		j.Delete(d.start, d.end, d.seq)
	}
	return vs
}

// Settle and isDeleted agree with the reference for each version of random columns.
func TestSettleLikeReference(t *testing.T) {
	seed := testseed.New(t)
	var j Judge // one for all, as in a reader: columns must not affect each other
	for run := range uint64(soak(3000)) {
		r := rand.New(rand.NewPCG(seed, run))
		commits, times := 1+r.IntN(60), 1+r.Int64N(40)
		if run%50 == 0 { // several levels of slots
			commits, times = 1000+r.IntN(4000), 1+r.Int64N(6000)
		}
		gc := randomPolicy(r, 1+r.IntN(commits))
		p := New(&table.Family{GC: gc, Aggregate: table.Aggregate(run % 2)})
		j.Init(times+r.Int64N(60), uint64(commits-r.IntN(1+commits/4)))
		j.BeginColumn(&p, uint64(r.IntN(1+commits/4)))
		vs := randomColumn(r, &j, commits, times)
		ref := refColumn{Judge: &j}
		for _, v := range vs {
			ref.sets = append(ref.sets, refVersion{Version: v, outs: map[int]bool{}})
		}
		want := ref.settle()
		for i, v := range vs {
			if got, want := j.isDeleted(v.Timestamp, v.Seq), ref.isDeleted(v.Timestamp, v.Seq); got != want {
				t.Fatalf("run %d: version %d at %d, seq %d: deleted %v, want %v\nfull %d, ranges %v",
					run, i, v.Timestamp, v.Seq, got, want, j.full, j.ranges)
			}
		}
		if err := j.Settle(context.Background(), vs); err != nil {
			t.Fatal(err)
		}
		for i, v := range vs {
			if v.Verdict != want[i] {
				t.Fatalf("run %d: policy %s, version %d at %d, seq %d: verdict %d, want %d\nranges %v",
					run, gc.String(), i, v.Timestamp, v.Seq, v.Verdict, want[i], j.ranges)
			}
		}
	}
}

// slots is a set.
func TestSlots(t *testing.T) {
	seed := testseed.New(t)
	r := rand.New(rand.NewPCG(seed, 1))
	var s slots
	for _, n := range []int{1, 63, 64, 65, 4096, 4097, 300_000, 2} {
		s.reset(n)
		in := map[int]bool{}
		for range 3000 {
			i := r.IntN(n)
			if r.IntN(3) > 0 {
				s.add(i)
				in[i] = true
			} else {
				s.remove(i)
				delete(in, i)
			}
			if s.has(i) != in[i] {
				t.Fatalf("%d of %d: %v, want %v", i, n, s.has(i), in[i])
			}
		}
		got, want := []int(nil), make([]int, 0, len(in))
		for i := range in {
			want = append(want, i)
		}
		slices.Sort(want)
		for i := s.next(0); i >= 0; i = s.next(i + 1) {
			got = append(got, i)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("members below %d: got %d, want %d", n, got, want)
		}
		for ; len(want) > 0; want = want[:len(want)-1] {
			last := s.last()
			if last != want[len(want)-1] {
				t.Fatalf("last below %d: %d, want %d", n, last, want[len(want)-1])
			}
			s.remove(last)
		}
		if i := s.next(0); i != -1 {
			t.Fatalf("an empty set has %d", i)
		}
	}
}

// Judging a column of many versions ends with its context.
func TestSettleCancelled(t *testing.T) {
	why := errors.New("the reader left")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	for _, n := range []int{3, 1 << 30} {
		gc := versionsRule(n)
		p := New(&table.Family{GC: gc})
		var j Judge
		j.Init(1, 1<<40)
		j.BeginColumn(&p, 0)
		j.Delete(1, 2, 1<<30)
		vs := make([]Version, 3*checkVersions)
		for i := range vs {
			vs[i] = Version{Timestamp: int64(len(vs) - i), Seq: uint64(i) + 1}
		}
		if err := j.Settle(ctx, vs); !errors.Is(err, why) {
			t.Fatalf("versions=%d: got error %v", n, err)
		}
	}
}

// soak returns the number of runs of a random test: n times STELE_SOAK.
func soak(n int) int {
	if times, err := strconv.Atoi(os.Getenv("STELE_SOAK")); err == nil && times > 0 {
		return n * times
	}
	return n
}
