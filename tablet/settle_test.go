package tablet

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/table"
)

// The reference for settle implements the rules in the simplest way: each commit is replayed on a
// sorted list of the versions that count, and each deletion is checked for each version.
type refColumn struct {
	*judge
	sets []refVersion
}

type refVersion struct {
	version
	outs map[int]bool // by n
}

func (c *refColumn) isDeleted(ts int64, seq uint64) bool {
	if seq <= c.full {
		return true
	}
	return slices.ContainsFunc(c.ranges, func(r timeRange) bool { return r.covers(ts, seq) })
}

func (c *refColumn) settle() []verdict {
	for _, n := range c.policy.leaves {
		c.outrank(n)
	}
	verdicts := make([]verdict, len(c.sets))
	var last *refVersion
	for i := range c.sets {
		v := &c.sets[i]
		switch again := last != nil && last.ts == v.ts; {
		case v.seq > c.snap:
			verdicts[i] = hidden
			continue
		case v.seq <= c.full:
			verdicts[i] = deleted
			continue
		case again:
			verdicts[i] = replaced
		case c.isDeleted(v.ts, v.seq):
			verdicts[i] = deleted
		case c.policy.gc.Garbage(func(n int) bool { return v.outs[n] }, c.now-v.ts):
			verdicts[i] = garbage
		}
		last = v
	}
	return verdicts
}

func (c *refColumn) outrank(n int) {
	type commit struct {
		seq uint64
		set *refVersion
		del *timeRange
	}
	var commits []commit
	for i := range c.sets {
		if v := &c.sets[i]; v.seq <= c.snap && v.seq > c.full {
			commits = append(commits, commit{seq: v.seq, set: v})
		}
	}
	for i := range c.ranges {
		commits = append(commits, commit{seq: c.ranges[i].seq, del: &c.ranges[i]})
	}
	slices.SortFunc(commits, func(a, b commit) int { return cmp.Compare(a.seq, b.seq) })
	var standing []*refVersion
	for _, e := range commits {
		if e.del != nil {
			standing = slices.DeleteFunc(standing, func(v *refVersion) bool { return e.del.covers(v.ts, v.seq) })
			continue
		}
		at, same := slices.BinarySearchFunc(standing, e.set.ts, func(v *refVersion, ts int64) int { return cmp.Compare(ts, v.ts) })
		if same {
			standing[at] = e.set
			continue
		}
		standing = slices.Insert(standing, at, e.set)
		if len(standing) > n {
			standing[n].outs[n] = true
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
func randomColumn(r *rand.Rand, j *judge, commits int, times int64) []version {
	var vs []version
	var dels []timeRange
	sets := 1 + r.IntN(9) // of ten
	for seq := range uint64(commits) {
		if r.IntN(10) < sets {
			vs = append(vs, version{ts: r.Int64N(times), seq: seq + 1})
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
	slices.SortFunc(vs, func(a, b version) int { return cmp.Or(cmp.Compare(b.ts, a.ts), cmp.Compare(b.seq, a.seq)) })
	for _, d := range slices.Backward(dels) {
		j.delete(d.start, d.end, d.seq)
	}
	return vs
}

// settle and isDeleted agree with the reference for each version of random columns.
func TestSettleLikeReference(t *testing.T) {
	seed := testseed.New(t)
	var j judge // one for all, as in a reader: columns must not affect each other
	for run := range uint64(soakRuns(3000)) {
		r := rand.New(rand.NewPCG(seed, run))
		commits, times := 1+r.IntN(60), 1+r.Int64N(40)
		if run%50 == 0 { // several levels of slots
			commits, times = 1000+r.IntN(4000), 1+r.Int64N(6000)
		}
		gc := randomPolicy(r, 1+r.IntN(commits))
		p := newPolicy(&gc)
		j.init(times+r.Int64N(60), uint64(commits-r.IntN(1+commits/4)))
		j.column(&p, uint64(r.IntN(1+commits/4)))
		vs := randomColumn(r, &j, commits, times)
		ref := refColumn{judge: &j}
		for _, v := range vs {
			ref.sets = append(ref.sets, refVersion{version: v, outs: map[int]bool{}})
		}
		want := ref.settle()
		for i, v := range vs {
			if got, want := j.isDeleted(v.ts, v.seq), ref.isDeleted(v.ts, v.seq); got != want {
				t.Fatalf("run %d: version %d at %d, seq %d: deleted %v, want %v\nfull %d, ranges %v",
					run, i, v.ts, v.seq, got, want, j.full, j.ranges)
			}
		}
		if err := j.settle(context.Background(), vs); err != nil {
			t.Fatal(err)
		}
		for i, v := range vs {
			if v.verdict != want[i] {
				t.Fatalf("run %d: policy %s, version %d at %d, seq %d: verdict %d, want %d\nranges %v",
					run, gc.String(), i, v.ts, v.seq, v.verdict, want[i], j.ranges)
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
		p := newPolicy(&gc)
		var j judge
		j.init(1, 1<<40)
		j.column(&p, 0)
		j.delete(1, 2, 1<<30)
		vs := make([]version, 3*checkEntries)
		for i := range vs {
			vs[i] = version{ts: int64(len(vs) - i), seq: uint64(i) + 1}
		}
		if err := j.settle(ctx, vs); !errors.Is(err, why) {
			t.Fatalf("versions=%d: got error %v", n, err)
		}
	}
}
