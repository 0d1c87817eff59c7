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
	"github.com/steledb/stele/test/simulation/simdisk"
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

// World is a simulated cluster.
type World struct {
	cfg       Config
	plan      plan
	trace     *trace
	ambush    *ambush
	net       *simnet.Network
	hosts     []*host // those of the cluster
	bad       *host   // whose disk may return errors and corrupt sectors
	badUsed   bool    // it has done so
	clients   []*simnet.Host
	processes int
	counts    map[string]int64
	r         *rand.Rand
	failed    string
	failedAt  time.Duration
	broken    chan struct{} // closed at the first violation
	stacks    []byte        // of the first violation, if goroutines matter
	load      *workload.Workload
	opened    time.Duration // when the history of the clients began
	// peaceFrom and peaceTo are when clients first worked without faults.
	peaceFrom, peaceTo time.Duration
	// clockLow and clockHigh are the steps of clocks that were the farthest; drifted is set if a clock has drifted.
	clockLow, clockHigh time.Duration
	drifted             bool
	secured             *secured // nil in an open cluster
	created             int      // hosts
	done                chan struct{}
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

// Run runs a seed. A program can run one.
func Run(cfg Config) Result {
	machine.Seed(cfg.Seed)
	w := &World{cfg: cfg, plan: newPlan(cfg.Seed), broken: make(chan struct{}), counts: map[string]int64{}, complete: map[uint64]bool{}, states: map[uint64]voterState{}, r: rand.New(rand.NewPCG(cfg.Seed, 0x6e656d65736973))}
	w.trace, w.ambush = &trace{}, newAmbush(w)
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

func counters() (int64, int64) {
	a, b := machine.Counters()
	return int64(a), int64(b)
}

func (w *World) count(name string) { w.counts[name]++ }

// fail records the first violation.
func (w *World) fail(format string, args ...any) { w.failAt(machine.Now(), format, args...) }

// failAt is fail for a violation that is found later than it happened.
func (w *World) failAt(at time.Duration, format string, args ...any) {
	if w.failed == "" {
		w.failed, w.failedAt = fmt.Sprintf(format, args...), at
		close(w.broken)
		w.trace.addf("world", "VIOLATION %s", w.failed)
	}
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
	w.load = workload.New(cluster{w}, workload.NewPlan(w.cfg.Seed, w.plan.secured, w.plan.clients))
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
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{}, 1)
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
	w.operators().awaitOperators()
	w.inspector().judgeRemoved()
	w.inspector().judgeVoters(nil)
	w.inspector().judgeQuota()
	w.degrade()
	fullPhase{w}.run()
	w.inspector().judgeGoroutines(before)
	unwatch()
	stop()
	select {
	case <-ended:
	case <-time.After(finalMax):
		w.fail("SW1 service: clients do not end %v after the end of their work", finalMax)
		return
	}
	w.inspector().judgeCharges()
	if w.operators().recoverLocks() {
		w.final(ctx, load)
	}
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
	var join []string
	for range w.plan.nodes {
		h := w.newHost()
		w.hosts, join = append(w.hosts, h), append(join, h.address())
	}
	w.bad = w.hosts[w.plan.badDisk]
	for _, h := range w.hosts {
		h.cfg.Join = join
	}
	for i := range 4 {
		w.clients = append(w.clients, w.net.Host(fmt.Sprintf("10.1.0.%d", i+1)))
	}
	w.processes = 1 // the clients'
	w.trace.addf("world", "seed %d: %+v", w.cfg.Seed, w.plan)
}

// clientProcess is the process of all clients.
const clientProcess = 1

// inClients starts f in the process of the clients.
func (w *World) inClients(f func()) { machine.Start(clientProcess, f) }

// clientsDo runs f in the process of the clients, and reports whether it returned nil in time.
func (w *World) clientsDo(limit time.Duration, f func() error) bool {
	done := make(chan error, 1)
	w.inClients(func() { done <- f() })
	select {
	case err := <-done:
		if err != nil {
			w.trace.addf("world", "error: %v", err)
		}
		return err == nil
	case <-time.After(limit):
		return false
	}
}

// eventsOfCollection is the number of events after which memory is freed. It is a count of events, not of bytes: what else the program
// allocates, to print the events for example, must not change when finalizers run.
const eventsOfCollection = 40_000

// collect frees memory when much has happened since the last time.
func (w *World) collect(done <-chan struct{}) {
	last := int64(0)
	for {
		select {
		case <-time.After(50 * time.Millisecond):
			if w.trace.events-last > eventsOfCollection {
				last = w.trace.events
				machine.Collect()
			}
		case <-done:
			return
		}
	}
}

func (w *World) netEvent(e simnet.Event) {
	w.trace.numbers("net", func() string { return netLine(e) }, uint64(e.Kind), uint64(e.From)<<16|uint64(e.To), e.Conn, uint64(e.Bytes), e.Sum)
}

func netLine(e simnet.Event) string {
	return fmt.Sprintf("%v %d > %d, connection %d, %d bytes", e.Kind, e.From, e.To, e.Conn, e.Bytes)
}

func (w *World) diskEvent(host string) func(simdisk.Event) {
	return func(e simdisk.Event) {
		failed := uint64(0)
		if e.Failed {
			failed = 1
		}
		w.trace.numbers(host, func() string { return diskLine(e) }, uint64(e.Kind), hashText(e.Name), hashText(e.To), uint64(e.Off), uint64(e.Len), e.Sum, failed)
		w.ambush.stored(host, e)
	}
}

func diskLine(e simdisk.Event) string {
	line := fmt.Sprintf("%v %s", e.Kind, e.Name)
	if e.To != "" {
		line += " to " + e.To
	}
	if e.Len > 0 {
		line += fmt.Sprintf(", %d bytes at %d", e.Len, e.Off)
	}
	if e.Failed {
		line += ", failed"
	}
	return line
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
	report := judge.Judge(load.History().Ops(), judge.Options{PeaceFrom: int64(w.peaceFrom - w.opened), PeaceTo: int64(w.peaceTo - w.opened), ClockLow: low, ClockHigh: high})
	for name, n := range report.Outcomes {
		w.counts["op "+name] += int64(n)
	}
	w.counts["undecided"] += int64(len(report.Undecided))
	for _, v := range report.Violations {
		fmt.Fprintln(w.cfg.Text, v)
		w.failAt(w.opened+time.Duration(v.Time), "%s: %s", v.Invariant, v.Text)
	}
}
