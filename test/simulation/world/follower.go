package world

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/simnet"
)

const (
	// followerOneIn is the number of plans for each one with a follower.
	followerOneIn  = 4
	followerStream = 0x666f6c6c6f77
	followerNodes  = 3
	// equalMax bounds the time from the end of all faults and writes until the follower has the cells of the source.
	equalMax = time.Minute
	// Bounds of a cut between the clusters.
	cutBetweenMin, cutBetweenMax = time.Second, 2 * time.Minute
)

// followerFaults are the faults of a follower: those that its master and its tablet servers meet. Members and disks are those of the first cluster.
var followerFaults = []fault{crash, powerLoss, wholeCrash, wholePower, freeze, late, cutOne, cutPair, isolate, partition, cutClient, resetHost, slowLink, diskStall, diskFull,
	clockStep, clockDrift, restart}

// HasFollower reports whether the plan of a seed has a follower.
func HasFollower(seed uint64) bool {
	return rand.New(rand.NewPCG(seed, followerStream)).IntN(followerOneIn) == 0
}

// newFollowerPlan returns the plan of a cluster that follows the one of the seed.
func newFollowerPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, followerStream+1))
	p := plan{nodes: followerNodes, zones: 1 + r.IntN(followerNodes), secured: r.IntN(4) == 0, extentBytes: 64 << (10 + r.IntN(4)), diskBytes: 2 << 30, reserveBytes: 8 << 20}
	p.tuning = newTuning(rand.New(rand.NewPCG(seed, followerStream+2)))
	p.voterStable = seconds(r, 1, 10)
	for _, f := range followerFaults {
		if r.IntN(2) == 0 {
			p.faults = append(p.faults, f)
		}
	}
	if len(p.faults) == 0 {
		p.faults = append(p.faults, crash)
	}
	return p
}

// follow starts the follower, if there is one, whose tables then follow some of those of this cluster. It reports whether they do in time.
func (w *World) follow(ctx context.Context) bool {
	f := w.follower
	if f == nil {
		return true
	}
	if !f.found(w.done) {
		w.fail("SW1 service: the first nodes of the follower do not start within %v", foundingMax)
		return false
	}
	var source []string
	for _, h := range w.hosts {
		source = append(source, h.address())
	}
	w.replica = w.load.Follow(cluster{f}, source)
	if !w.clientsDo(foundingMax, func() error { return w.replica.Setup(ctx) }) {
		w.inspector().lastErrors(w.load)
		w.fail("SW1 service: no table follows another cluster's %v after the start of the follower", foundingMax)
		return false
	}
	go f.inspector().watchServed(w.done)
	w.trace.addf("world", "tables follow")
	return true
}

// runReplica starts the clients of the follower, and returns a channel that receives when they have ended.
func (w *World) runReplica(ctx context.Context) <-chan struct{} {
	ended := make(chan struct{}, 1)
	if w.replica == nil {
		ended <- struct{}{}
		return ended
	}
	w.inClients(func() { w.replica.Run(ctx); ended <- struct{}{} })
	return ended
}

// judgeFollower waits until the follower has the cells of the source (SW18).
func (w *World) judgeFollower(ctx context.Context) {
	if w.replica == nil || w.failed != "" {
		return
	}
	began := machine.Now()
	ctx, cancel := context.WithTimeout(ctx, equalMax)
	defer cancel()
	differs := ""
	if !w.clientsDo(equalMax+time.Second, func() (err error) { differs, err = w.replica.Final(ctx); return err }) {
		w.fail("SW18 follower: %v after all faults and writes have ended: %s", equalMax, differs)
	}
	w.inspector().most("ms until the follower is equal", (machine.Now() - began).Milliseconds())
}

// troubleBetween cuts or slows the links between this cluster and its follower for a time.
func (w *World) troubleBetween(f fault, limit time.Duration) {
	if w.follower == nil {
		return
	}
	hosts, directions := w.follower.hosts, 1+w.r.IntN(3)
	if w.r.IntN(2) == 0 {
		hosts = hosts[w.r.IntN(len(hosts)):][:1]
	}
	bad := w.badLink()
	for _, h := range hosts {
		for _, o := range w.hosts {
			if f == slowClusters {
				w.net.SetLink(h.net, o.net, bad)
				w.net.SetLink(o.net, h.net, bad)
				continue
			}
			if directions&1 != 0 {
				w.net.Cut(h.net, o.net)
			}
			if directions&2 != 0 {
				w.net.Cut(o.net, h.net)
			}
		}
	}
	w.hold(limit, cutBetweenMin, cutBetweenMax)
	w.healBetween()
}

// healBetween ends all faults of the links between this cluster and its follower.
func (w *World) healBetween() {
	if w.follower == nil {
		return
	}
	for _, h := range w.follower.hosts {
		for _, o := range w.hosts {
			for _, link := range [][2]*simnet.Host{{h.net, o.net}, {o.net, h.net}} {
				w.net.Heal(link[0], link[1])
				w.net.SetLink(link[0], link[1], simnet.LAN)
			}
		}
	}
}
