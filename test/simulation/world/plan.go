package world

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/steledb/stele/node"
	"github.com/steledb/stele/node/tabletserver"
)

// fault is a kind of fault, which a plan switches on or off.
type fault string

// The faults.
const (
	crash          fault = "crash"           // kill -9 of one process
	powerLoss      fault = "power-loss"      // of one host: what was not synced may be lost
	wholeCrash     fault = "whole-crash"     // of all processes
	wholePower     fault = "whole-power"     // of all hosts
	freeze         fault = "freeze"          // a process does nothing for 1 to 60 s
	late           fault = "late"            // goroutines of a process, or of all, run up to seconds later than they could
	cutOne         fault = "cut-one"         // one direction between two hosts
	cutPair        fault = "cut-pair"        // both
	isolate        fault = "isolate"         // one host
	partition      fault = "partition"       // the hosts in two parts
	cutClient      fault = "cut-client"      // one direction between a host and a machine of clients, or both
	resetHost      fault = "reset"           // all connections of a host, at once
	isolateClients fault = "isolate-clients" // a machine of clients; sometimes the leader of the lock service ends meanwhile
	slowLink       fault = "slow-link"       // delays, losses, duplicates
	diskStall      fault = "disk-stall"      // all operations, or syncs only
	diskFull       fault = "disk-full"       // and gets space back
	disksFull      fault = "disks-full"      // all of them
	diskError      fault = "disk-error"      // EIO
	diskCorruption fault = "disk-rot"        // stored sectors change
	clockStep      fault = "clock-step"      // of the wall clock, up to an hour
	clockDrift     fault = "clock-drift"     // 5 %
	restart        fault = "restart"         // an orderly stop, and a start
	reconfigure    fault = "reconfigure"     // the same, with other settings
	addNode        fault = "add-node"        // a host with an empty disk joins
	drainNode      fault = "drain-node"      // and restart it
	retireNode     fault = "retire-node"     // drain, stop and remove it for good
	loseNode       fault = "lose-node"       // for good; it is removed
	loseDisk       fault = "lose-disk"       // for good; the host joins as a new node
	cutClusters    fault = "cut-clusters"    // a host of the follower from all hosts of the source, or all hosts; one direction, or both
	slowClusters   fault = "slow-clusters"   // delays, losses, duplicates between all hosts of both
)

// faults lists for each fault how often it is on, of 100 plans, and its weight.
var faults = []struct {
	fault   fault
	percent int
	weight  int
}{
	{crash, 70, 20}, {powerLoss, 60, 12}, {wholeCrash, 25, 2}, {wholePower, 30, 4}, {freeze, 50, 12},
	{cutOne, 40, 10}, {cutPair, 40, 10}, {isolate, 40, 8}, {partition, 40, 6}, {cutClient, 50, 10}, {slowLink, 40, 10},
	{diskStall, 40, 8}, {diskFull, 40, 8}, {disksFull, 25, 2}, {diskError, 25, 4}, {diskCorruption, 25, 6},
	{clockStep, 30, 6}, {clockDrift, 30, 4}, {restart, 50, 10}, {reconfigure, 30, 6},
	{late, 50, 12}, {resetHost, 40, 10}, {isolateClients, 40, 6},
	{addNode, 20, 3}, {drainNode, 25, 4}, {retireNode, 25, 6}, {loseNode, 25, 6}, {loseDisk, 25, 6},
}

// plan is what happens to a world. It follows from its seed.
type plan struct {
	nodes, clients int
	secured        bool
	faults         []fault       // as often as their weights
	pause          time.Duration // the mean time between faults
	together       int           // faults at a time
	ambush         time.Duration // the mean time between faults at rare moments; 0: none
	moments        time.Duration // the mean time between delays and faults at moments of the program (internal/moment); 0: none
	// stir means that a client writes the lock service all the time, and that logs of voters are short: one that was away for a moment gets a snapshot.
	stir bool
	// slowOneIn is how many moments of the program there are for each one that is slow whenever it comes; 0: none is.
	slowOneIn uint64
	// aimOneIn is how many moments of the program there are for each one at which faults are aimed; 0: none.
	aimOneIn uint64
	// corruptSnapshots means that snapshots of the lock service become corrupt on the disk of its leader.
	corruptSnapshots bool
	// unnamed means that some files stay without a name for longer than garbage collection takes.
	unnamed bool
	// lostOneIn is how many methods there are for each one of which answers are lost again and again; 0: none.
	lostOneIn               uint64
	extentBytes             int64
	zones                   int
	diskBytes, reserveBytes int64
	// badDisk is the only host whose disk returns errors and corrupts sectors: what all replicas have lost
	// is lost for good.
	badDisk int
	// tuning makes frequent what is rare: snapshots, compactions, splits, rounds of garbage collection.
	tuning node.Tuning
	// recovery: in the end the lock service is recovered from few voters. settled: in the end all
	// replicas are waited for and checked.
	recovery, settled bool
	// full: all disks become full of a table, which is dropped then.
	full bool
	// quota: the writes of a table that has a quota are counted.
	quota bool
	// voterStable is how long a voter must be gone before another node gets its vote.
	voterStable time.Duration
	// blackout: all hosts lose their power when the other faults end.
	blackout bool
	// degraded: after all other faults one host has one that does not end.
	degraded bool
	// follower: another cluster follows some of the tables.
	follower bool
}

func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0x776f726c64))
	p := plan{nodes: 5 + r.IntN(5)*r.IntN(2), clients: 16 + r.IntN(49), secured: r.IntN(4) == 0, pause: time.Duration(500<<r.IntN(6)) * time.Millisecond,
		together: 1 + r.IntN(4), extentBytes: 64 << (10 + r.IntN(4)), zones: 1 + r.IntN(4), diskBytes: 2 << 30, reserveBytes: 8 << 20}
	if p.secured {
		p.clients = min(p.clients, 40) // they are one user, and a node accepts 128 connections of a user, lost ones included
	}
	p.badDisk = r.IntN(p.nodes)
	p.ambush = time.Duration(r.IntN(3)) * time.Duration(500<<r.IntN(5)) * time.Millisecond
	p.moments = time.Duration(r.IntN(4)) * time.Duration(20<<r.IntN(6)) * time.Millisecond
	p.tuning = newTuning(rand.New(rand.NewPCG(seed, 0x74756e65)))
	for _, f := range faults {
		on, weight := r.IntN(100) < f.percent, 1+r.IntN(2*f.weight)
		for range weight {
			if on {
				p.faults = append(p.faults, f.fault)
			}
		}
	}
	p.keepReplicas()
	p.recovery, p.settled, p.degraded = r.IntN(6) == 0, r.IntN(4) == 0, r.IntN(2) == 0
	p.blackout, p.full = r.IntN(3) == 0, r.IntN(4) == 0
	p.quota = r.IntN(6) == 0
	p.voterStable = time.Duration(1+r.IntN(10)) * time.Second
	if p.stir = r.IntN(5) == 0; p.stir {
		p.tuning.SnapshotBytes, p.tuning.TrailingLogs = 4<<10<<r.IntN(6), uint64(1+r.IntN(4))
		p.corruptSnapshots = r.IntN(2) == 0 && !p.losesDisks()
	}
	p.slowOneIn = uint64(r.IntN(2) * (8 << r.IntN(3)))
	if p.unnamed = r.IntN(4) == 0; p.unnamed {
		x := &p.tuning.GC
		x.Every, x.Warn, x.Grace, x.Away, p.tuning.SweepDelay = 2*time.Second, 3*time.Second, 2*time.Second, seconds(r, 30, 90), time.Second
	}
	p.lostOneIn = uint64(r.IntN(2) * (4 << r.IntN(3)))
	p.aimOneIn = uint64(r.IntN(2) * (4 << r.IntN(3)))
	if p.follower = HasFollower(seed); p.follower {
		p.recovery = false // it may lose changes that the follower has
		for range 1 + len(p.faults)/4 {
			p.faults = append(p.faults, cutClusters, slowClusters)
		}
	}
	return p
}

// dropEnds removes the phases that follow the healing, which take minutes of virtual time.
func (p *plan) dropEnds() {
	p.unnamed, p.recovery, p.settled, p.degraded, p.full, p.quota = false, false, false, false, false, false
}

// keepReplicas removes the faults of sectors from a plan that loses disks: what is corrupt on one
// disk and lost with another may have been on both only.
func (p *plan) keepReplicas() {
	if p.losesDisks() {
		p.faults = slices.DeleteFunc(p.faults, func(f fault) bool { return f == diskError || f == diskCorruption })
	}
}

// losesDisks reports whether hosts lose their disks for good.
func (p *plan) losesDisks() bool {
	return slices.Contains(p.faults, loseNode) || slices.Contains(p.faults, loseDisk)
}

// newTuning returns sizes and periods. Each is small in half of the plans, so that one that hides
// another does so only in some.
func newTuning(r *rand.Rand) (t node.Tuning) {
	small := func(low int64, doublings int) int64 {
		return low << r.IntN(doublings+1) * int64(r.IntN(2)) // both are drawn in any case
	}
	t.SnapshotBytes, t.TrailingLogs = small(8<<10, 5), uint64(small(4, 7))
	t.Tablets = tabletserver.Sizes{
		MemtableBytes: small(4<<10, 4), SplitBytes: small(16<<10, 4), LogBytesMax: small(64<<10, 4),
		MetadataMemtableBytes: small(4<<10, 3), MetadataSplitBytes: small(8<<10, 3), MetadataLogBytes: small(64<<10, 3),
		FilesMerge: 2 * r.IntN(2),
	}
	if x := &t.Repair; r.IntN(2) == 0 {
		x.Grace, x.ScanEvery, x.AuditEvery, x.TrimAfter = seconds(r, 2, 20), seconds(r, 2, 20), seconds(r, 5, 60), seconds(r, 5, 30)
		x.ScrubPeriod, x.BalanceGap = seconds(r, 30, 300), 1+r.IntN(5)
	}
	if x := &t.GC; r.IntN(2) == 0 {
		x.Every, x.Warn, x.Grace, x.Away = seconds(r, 3, 20), seconds(r, 6, 20), seconds(r, 3, 30), seconds(r, 30, 90)
		t.SweepDelay = seconds(r, 1, 10)
	}
	return t
}

// seconds returns a random time between low and high seconds.
func seconds(r *rand.Rand, low, high int) time.Duration {
	return time.Duration(low+r.IntN(high-low)) * time.Second
}
