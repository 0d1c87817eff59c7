package world

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/steledb/stele/test/simulation/judge"
	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/simnet"
	"github.com/steledb/stele/test/simulation/workload"
)

// Config configures a run.
type Config struct {
	Seed   uint64
	Faults time.Duration // how long there are faults, in virtual time
	Quiet  bool          // neither clients nor faults, to measure what nodes do by themselves
	Events int           // how many lines to print around a violation
	Log    string        // the file for all events; empty for none
	Text   io.Writer     // for people
}

// Result is the result of a run.
type Result struct {
	Seed      uint64
	Hash      uint64 // of the history
	Events    int64
	Virtual   float64 // seconds
	Violation string  // empty if there is none
	Counts    map[string]int64
}

// World is a simulated cluster: the one that clients use, or its follower.
type World struct {
	*shared
	clusterNames
	plan    plan
	hosts   []*host // those of the cluster
	bad     *host   // whose disk may return errors and corrupt sectors
	badUsed bool    // it has done so
	// follower is the cluster whose tables follow those of this one; nil in most plans.
	follower *World
	replica  *workload.Replica  // of the follower
	load     *workload.Workload // nil for a follower
	opened   time.Duration      // when the history of the clients began
	// peaceFrom and peaceTo are when clients first worked without faults.
	peaceFrom, peaceTo time.Duration
	// clockLow and clockHigh are the steps of clocks that were the farthest; drifted is set if a clock has drifted.
	clockLow, clockHigh time.Duration
	drifted             bool
	secured             *secured        // nil in an open cluster
	created             int             // hosts
	operating           bool            // an operator changes the members of the cluster
	quiet               bool            // no fault begins, for the sake of an operator
	complete            map[uint64]bool // tables that have had all tablets (SW3)
	sampled             int             // number of the last sample of served tablets
	// states are those of the lock service after entries of its log, until it is recovered.
	states    map[uint64]voterState
	recovered bool
	// absent is the host that the others must do without, if any.
	absent *host
	// removed are the ids of nodes that were removed for good.
	removed []string
	// leader and master are the hosts that last became so.
	leader, master *host
}

// clusterNames distinguish the hosts of a cluster from those of another one.
type clusterNames struct {
	host    string // the beginning of their names
	network string // of their addresses
	streams uint64 // of random numbers of their disks: those above it
}

var (
	firstCluster    = clusterNames{"node-", "10.0.0.", 0}
	followerCluster = clusterNames{"follower-", "10.2.0.", 1 << 24}
)

// Run runs a seed. A program can run one.
func Run(cfg Config) Result {
	machine.Seed(cfg.Seed)
	w := newWorld(&shared{cfg: cfg, trace: &trace{}, broken: make(chan struct{}), counts: map[string]int64{}, r: rand.New(rand.NewPCG(cfg.Seed, 0x6e656d65736973))}, firstCluster, newPlan(cfg.Seed))
	w.ambush = newAmbush(w)
	defer w.trace.open(cfg.Log)()
	if cfg.Faults < endsFrom {
		w.plan.dropEnds()
	}
	w.trace.logged = func(host, message string) {
		if message == "handler panicked" {
			w.fail("SW17 panics: a handler of %s has panicked", host)
		}
		w.ambush.logged(host, message)
	}
	atMoments(w.ambush.pass)
	w.runUntilBroken()
	if w.load != nil && !cfg.Quiet {
		hash, events := w.trace.hash, w.trace.events
		w.judge(w.load)
		w.trace.hash, w.trace.events = hash, events
	}
	if w.failed != "" {
		w.trace.print(cfg.Text, w.failedAt, cfg.Events)
		_, _ = cfg.Text.Write(w.stacks)
	}
	w.counts["jumps"], w.counts["switches"] = counters()
	w.counts["events"] = w.trace.events
	return Result{Seed: cfg.Seed, Hash: w.trace.hash, Events: w.trace.events, Virtual: machine.Now().Seconds(), Violation: w.failed, Counts: w.counts}
}

// newWorld returns a cluster of a run, which has no hosts yet.
func newWorld(s *shared, names clusterNames, p plan) *World {
	w := &World{shared: s, clusterNames: names, plan: p, complete: map[uint64]bool{}, states: map[uint64]voterState{}}
	s.clusters = append(s.clusters, w)
	return w
}

func counters() (int64, int64) {
	a, b := machine.Counters()
	return int64(a), int64(b)
}

// Times of a run.
const (
	// endsFrom is the shortest time of faults after which there are the phases that follow the healing.
	endsFrom = 5 * time.Second
	// afterViolation is how long the world goes on after a violation: what happens then helps to explain it.
	afterViolation = 2 * time.Second

	foundingMax = 2 * time.Minute  // until the first cluster serves
	healMax     = 30 * time.Second // from the end of the faults until everything serves
	finalMax    = 2 * time.Minute
)

// runUntilBroken runs all phases, or those until shortly after the first violation.
func (w *World) runUntilBroken() {
	ended := make(chan struct{})
	go func() {
		w.run()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-w.broken:
	}
	select {
	case <-ended:
	case <-time.After(afterViolation):
	}
}

// run runs the phases: found a cluster, faults beside clients, heal, read everything.
func (w *World) run() {
	w.build()
	w.done = make(chan struct{})
	defer close(w.done)
	done := w.done
	go w.collect(done)
	if !w.found(done) {
		w.fail("SW1 service: the first nodes do not start within %v", foundingMax)
		return
	}
	w.opened = machine.Now()
	w.load = workload.New(cluster{w}, w.workloadPlan())
	load, ctx := w.load, context.Background()
	if !w.clientsDo(foundingMax, func() error { return load.Setup(ctx) }) {
		w.fail("SW1 service: the cluster does not serve %v after its start", foundingMax)
		return
	}
	w.trace.addf("world", "tables exist")
	if w.cfg.Quiet {
		time.Sleep(w.cfg.Faults)
		return
	}
	if !w.follow(ctx) {
		return
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{}, 1)
	replicaEnded := w.runReplica(running)
	w.inClients(func() { load.Run(running); ended <- struct{}{} })
	go w.inspector().watchServed(done)
	watching, unwatch := context.WithCancel(ctx)
	w.inClients(func() { w.inspector().watchMetadata(watching, load) })
	stirring, calm := context.WithCancel(ctx)
	w.inClients(func() { w.operators().stir(stirring) })
	before := w.inspector().goroutines()
	w.nemesis(w.cfg.Faults)
	calm()
	w.heal()
	healed := time.Now()
	w.trace.addf("world", "healed")
	w.inspector().awaitService(healed)
	if w.follower != nil {
		w.follower.inspector().awaitService(healed)
	}
	w.operators().awaitOperators()
	w.inspector().judgeRemoved()
	w.inspector().judgeVoters(nil)
	w.inspector().judgeQuota()
	w.degrade()
	fullPhase{w}.run()
	w.inspector().judgeGoroutines(before)
	unwatch()
	stop()
	for _, ended := range []<-chan struct{}{ended, replicaEnded} {
		select {
		case <-ended:
		case <-time.After(finalMax):
			w.fail("SW1 service: clients do not end %v after the end of their work", finalMax)
			return
		}
	}
	w.inspector().judgeCharges()
	if w.operators().recoverLocks() {
		w.final(ctx, load)
		w.judgeFollower(ctx)
	}
}

// workloadPlan returns the plan of the clients.
func (w *World) workloadPlan() workload.Plan {
	p := workload.NewPlan(w.cfg.Seed, w.plan.secured, w.plan.clients)
	if w.follower != nil {
		p = p.WithFollower()
	}
	return p
}

// final reads everything and judges the cluster as it is in the end.
func (w *World) final(ctx context.Context, load *workload.Workload) {
	if !w.clientsDo(finalMax, func() error { return load.Final(ctx) }) {
		w.inspector().lastErrors(load)
		w.fail("SW1 service: the last reads do not end within %v after all faults", finalMax)
		return
	}
	w.inspector().judgeTablets(load)
	w.inspector().judgeBlocks()
	w.inspector().judgeGarbage()
}

func (w *World) build() {
	w.net = simnet.New(simnet.Config{Rand: rand.New(rand.NewPCG(w.cfg.Seed, 0x6e6574)), Events: w.netEvent, Now: machine.Now})
	w.buildHosts()
	for i := range 4 {
		w.clients = append(w.clients, w.net.Host(fmt.Sprintf("10.1.0.%d", i+1)))
	}
	w.processes = 1 // the clients'
	w.trace.addf("world", "seed %d: %+v", w.cfg.Seed, w.plan)
	if w.plan.follower && !w.cfg.Quiet {
		w.follower = newWorld(w.shared, followerCluster, newFollowerPlan(w.cfg.Seed))
		w.follower.buildHosts()
		w.trace.addf("world", "follower: %+v", w.follower.plan)
	}
}

// buildHosts makes the first hosts of the cluster.
func (w *World) buildHosts() {
	var join []string
	for range w.plan.nodes {
		h := w.newHost()
		w.hosts, join = append(w.hosts, h), append(join, h.address())
	}
	w.bad = w.hosts[w.plan.badDisk]
	for _, h := range w.hosts {
		h.cfg.Join = join
	}
}

// lastErrors records the last operations that failed, one for each kind of error.
func (w inspector) lastErrors(load *workload.Workload) {
	ops, seen := load.History().Ops(), map[string]bool{}
	for i := len(ops) - 1; i >= 0 && len(seen) < 20; i-- {
		if op := ops[i]; op.Error != "" && !seen[string(op.Kind)+op.Error] {
			seen[string(op.Kind)+op.Error] = true
			w.trace.addf("clients", "%s", op.String())
		}
	}
}

// judge judges the history, which is over: from here on memory is freed when much is used, at times that are not exact.
func (w *World) judge(load *workload.Workload) {
	debug.SetGCPercent(100)
	low, high := w.inspector().clocks()
	options := judge.Options{PeaceFrom: int64(w.peaceFrom - w.opened), PeaceTo: int64(w.peaceTo - w.opened), ClockLow: low, ClockHigh: high}
	if w.follower != nil {
		options.FollowerLow, _ = w.follower.inspector().clocks()
	}
	report := judge.Judge(load.History().Ops(), options)
	for name, n := range report.Outcomes {
		w.counts["op "+name] += int64(n)
	}
	w.counts["undecided"] += int64(len(report.Undecided))
	for _, v := range report.Violations {
		fmt.Fprintln(w.cfg.Text, v)
		w.failAt(w.opened+time.Duration(v.Time), "%s: %s", v.Invariant, v.Text)
	}
}
