package world

import (
	"testing"
	"time"

	"github.com/steledb/stele/client/api"
)

// TestExcused tests which findings of a check of all replicas are no violation: a lack on the one disk that corrupts sectors.
func TestExcused(t *testing.T) {
	replicas := func(states ...string) []finding {
		f := finding{ExtentInfo: api.ExtentInfo{ReplicationFactor: 3}}
		for i, state := range states {
			f.Replicas = append(f.Replicas, api.ReplicaInfo{Name: []string{"bad", "node-2", "node-3"}[i], State: state})
		}
		return []finding{f}
	}
	for _, test := range []struct {
		name   string
		faults []fault
		scrub  time.Duration
		bad    []finding
		want   bool
	}{
		{"corrupt on the bad disk", []fault{diskCorruption}, 0, replicas(api.ReplicaCorrupt, api.ReplicaGood, api.ReplicaGood), true},
		{"unreadable on the bad disk", []fault{diskError}, 0, replicas(api.ReplicaCorrupt, api.ReplicaGood, api.ReplicaGood), true},
		{"without such faults", nil, 0, replicas(api.ReplicaCorrupt, api.ReplicaGood, api.ReplicaGood), false},
		{"in spite of the scrub", []fault{diskCorruption}, time.Minute, replicas(api.ReplicaCorrupt, api.ReplicaGood, api.ReplicaGood), false},
		{"corrupt on another disk", []fault{diskCorruption}, 0, replicas(api.ReplicaGood, api.ReplicaCorrupt, api.ReplicaGood), false},
		{"too few", []fault{diskCorruption}, 0, replicas(api.ReplicaCorrupt, api.ReplicaGood), false},
	} {
		w := &World{bad: &host{name: "bad"}}
		w.plan.faults, w.plan.tuning.Repair.ScrubPeriod = test.faults, test.scrub
		if got := w.inspector().excused(test.bad); got != test.want {
			t.Errorf("%s: excused %t, want %t", test.name, got, test.want)
		}
	}
}
