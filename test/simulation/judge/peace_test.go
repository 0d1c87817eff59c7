package judge

import (
	"testing"

	"github.com/steledb/stele/test/simulation/workload"
)

// TestPeace (SJ12): a kind of operation of which none succeeds while there are no faults is a violation. Before and after, of users without
// rights, and of a few only, failures are none.
func TestPeace(t *testing.T) {
	ops := func(n int, kind workload.Kind, at int64, outcome workload.Outcome, user string) (all []workload.Op) {
		for range n {
			all = append(all, workload.Op{Number: len(all), Kind: kind, Call: at, Return: at + 1, Outcome: outcome, User: user})
		}
		return all
	}
	for what, x := range map[string]struct {
		ops  []workload.Op
		want int
	}{
		"all fail":            {ops(10, workload.Check, 15, workload.Failed, ""), 1},
		"a few fail":          {ops(9, workload.Check, 15, workload.Failed, ""), 0},
		"during faults":       {ops(10, workload.Check, 5, workload.Failed, ""), 0},
		"after it":            {ops(10, workload.Check, 20, workload.Failed, ""), 0},
		"of a user":           {ops(10, workload.Check, 15, workload.Failed, "user-1"), 0},
		"one succeeds":        {append(ops(10, workload.Check, 15, workload.Failed, ""), ops(1, workload.Check, 15, workload.OK, "")...), 0},
		"another kind does":   {append(ops(10, workload.Check, 15, workload.Failed, ""), ops(1, workload.Write, 15, workload.OK, "")...), 1},
		"that need not do so": {ops(10, workload.Split, 15, workload.Failed, ""), 0},
	} {
		if got := peace(x.ops, Options{PeaceFrom: 10, PeaceTo: 20}); len(got) != x.want {
			t.Errorf("%s: %v, want %d violations", what, got, x.want)
		}
	}
}
