package replog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/internal/background"
	"github.com/steledb/stele/internal/timing"
)

// listed is a membership that only lists its members. This node is n0.
type listed []members.Member

func (listed) Self() string                                   { return "n0" }
func (listed) Changed() <-chan struct{}                       { return nil }
func (l listed) Members() []members.Member                    { return l }
func (listed) Peer(context.Context, string) (api.Peer, error) { return nil, api.ErrUnreachable }

// placementOf returns a placement among members.
func placementOf(l listed) *placement {
	peers := members.NewPeers(members.Config{Membership: l, Self: "n0", Clock: timing.SystemClock(), Work: background.New(), ExtentBytes: 1})
	logs := &Logs{self: "n0", deps: Deps{Peers: peers, Clock: timing.SystemClock(), Replicas: 3}}
	return newPlacement(logs, local.ID{}, false, openings{})
}

// A writer whose extent and standby have only sound replicas would keep both also after a look at all nodes.
func TestSoundStays(t *testing.T) {
	sound := 0
	for seed := range uint64(5000) {
		rnd, l := rand.New(rand.NewPCG(seed, 2)), listed{}
		for i := range 3 + rnd.IntN(4) {
			l = append(l, members.Member{ID: fmt.Sprintf("n%d", i), Alive: rnd.IntN(6) > 0, Draining: rnd.IntN(6) == 0, FreeBytes: rnd.Int64N(3)})
		}
		p, now := placementOf(l), time.Hour
		for _, m := range l {
			p.excluded[m.ID] = exclusion{until: now + time.Duration(rnd.IntN(4)-2), full: rnd.IntN(2) == 0}
			p.slowNodes[m.ID] = slowNode{until: now + time.Duration(rnd.IntN(4)-2)}
		}
		current, standby := []string{"n0", "n1", "n2"}, []string{"n1", "n2", "n3"}
		if !p.sound(current, now) || !p.sound(standby, now) {
			continue
		}
		sound++
		o := leaveOptions{current: current, standby: standby, replicas: 3, least: p.replicasMin(), placeable: p.placeable(now)}
		for _, n := range p.usable(now, true) {
			o.live = append(o.live, n.ID)
		}
		for _, m := range l {
			if m.Draining {
				o.draining = append(o.draining, m.ID)
			} else if m.Alive {
				o.up = append(o.up, m.ID)
			}
		}
		if o.decide(reasonWiden) != stay {
			t.Fatalf("seed %d: leaves sound replicas: %+v", seed, o)
		}
	}
	if sound < 100 {
		t.Errorf("only %d of the states are sound", sound)
	}
}

// A look at the replicas of an extent allocates as little with 4000 members as with 4.
func TestSoundOfManyMembers(t *testing.T) {
	var l listed
	for i := range 4000 {
		l = append(l, members.Member{ID: fmt.Sprintf("n%d", i), Alive: true, FreeBytes: 2})
	}
	p, current := placementOf(l), []string{"n0", "n7", "n3999"}
	if got := testing.AllocsPerRun(100, func() { p.sound(current, time.Hour) }); got > 3 || !p.sound(current, time.Hour) {
		t.Errorf("%.0f allocations", got)
	}
	if p.sound([]string{"n0", "n1", "n4000"}, time.Hour) || !slices.Contains(p.placeable(time.Hour), "n3999") {
		t.Error("a node that is no member is sound, or a member is not")
	}
}
