package world

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/test/simulation/machine"
	"github.com/steledb/stele/test/simulation/simdisk"
)

// An ambush waits for rare moments and makes faults in them. Faults at random times rarely meet a state that lasts for
// milliseconds, as that of a voter that has just installed a snapshot. The moments are what a node writes to its log, the
// files that it creates, renames and removes, and those that the program names (internal/moment), at which it may also be delayed.
// The rarer a moment has been in this run, the more probable is a fault.
type ambush struct {
	w *World
	r *rand.Rand
	// moments has those in which a fault is due. What does not fit is left out.
	moments chan dueFault
	armed   bool
	ends    time.Duration  // when faults end
	next    time.Duration  // no fault before that time
	seen    map[string]int // how often each kind of moment has been
	// passed counts the moments of the program, and after is the time before which none gets a delay or a fault.
	passed map[[2]string]int
	after  time.Duration
	slowly map[[2]string]time.Duration // likewise, for each slow moment
	lost   map[[2]string]time.Duration // likewise, for each method whose answers are lost
	// unnamed is the time before which no compaction waits for unnamedTime.
	unnamed time.Duration
	// aimAfter is the time before which no fault is aimed.
	aimAfter time.Duration
	named    map[string]string // the file that each host named last
}

// A dueFault is one that a host gets soon.
type dueFault struct {
	host  *host
	fault fault
	delay time.Duration
	limit time.Duration // when the fault ends at the latest; 0: with the other faults
	file  string        // that has just got its name; may be empty
	aimed bool          // it happens beside the others, see aim
}

// ambushFaults are the faults that matter in a moment.
var ambushFaults = []fault{crash, powerLoss, freeze, cutOne, cutPair, cutClient, isolate, diskStall, diskFull, restart, wholeCrash, wholePower, late, resetHost, isolateClients}

func newAmbush(w *World) *ambush {
	return &ambush{w: w, r: rand.New(rand.NewPCG(w.cfg.Seed, 0x616d62757368)), moments: make(chan dueFault, 4), seen: map[string]int{}, passed: map[[2]string]int{}, slowly: map[[2]string]time.Duration{}, lost: map[[2]string]time.Duration{}, named: map[string]string{}}
}

// arm begins the faults. What was common before them may be rare beside them.
func (a *ambush) arm(d time.Duration) {
	a.armed, a.ends = true, machine.Now()+d
	clear(a.passed)
}

func (a *ambush) disarm() { a.armed = false }

// logged reports a message that a host has logged.
func (a *ambush) logged(host, message string) {
	switch message {
	case "raftmeta is ready":
		if h := a.w.hostOf(host); h != nil {
			h.w.leader = h
		}
	case "became master":
		if h := a.w.hostOf(host); h != nil {
			h.w.master = h
		}
	}
	a.consider(host, "log "+message, "")
}

// stored reports an operation of a host's disk.
func (a *ambush) stored(host string, e simdisk.Event) {
	if e.Kind == simdisk.OpRename {
		a.named[host] = e.To
	}
	switch e.Kind {
	case simdisk.OpCreate, simdisk.OpRename, simdisk.OpRemove, simdisk.OpTruncate:
		a.consider(host, fmt.Sprint(e.Kind, strings.Map(withoutNumbers, e.Name)), e.To)
	}
}

// withoutNumbers drops the parts of file names that differ from file to file.
func withoutNumbers(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'a' && r <= 'f' {
		return -1
	}
	return r
}

// consider decides whether a moment of a host gets a fault. It runs in processes of nodes and does not block. file has just got its name, if it
// is not empty.
func (a *ambush) consider(name, class, file string) {
	n := a.seen[class]
	a.seen[class]++
	if !a.armed || a.w.plan.ambush == 0 || machine.Now() < a.next || a.r.IntN(n+1) > 0 {
		return
	}
	if a.ambush(&dueFault{host: a.w.hostOf(name), file: file}, class, n) {
		a.next = machine.Now() + time.Duration(a.r.Int64N(2*int64(a.w.plan.ambush)))
	}
}

// ambush makes a fault of a host soon, and reports whether it does.
func (a *ambush) ambush(m *dueFault, class string, n int) bool {
	if m.host == nil {
		return false
	}
	all := slices.DeleteFunc(slices.Clone(m.host.w.plan.faults), func(f fault) bool {
		return !slices.Contains(ambushFaults, f) && (f != diskCorruption || m.file == "" || m.host != m.host.w.bad)
	})
	if len(all) == 0 {
		return false
	}
	m.fault, m.delay = all[a.r.IntN(len(all))], time.Duration(a.r.ExpFloat64()*float64(ambushDelays[a.r.IntN(len(ambushDelays))]))
	select {
	case a.moments <- *m:
		a.w.trace.addf("nemesis", "%s at a rare moment of %s: %s, before that %d times", m.fault, m.host.name, class, n)
		return true
	default:
		return false
	}
}

// ambushDelays are the mean times from a moment to its fault: at once, before a sync ends, or after an answer.
var ambushDelays = []time.Duration{0, 0, 500 * time.Microsecond, 20 * time.Millisecond}

// commonMoment is how often a moment of the program must have been for its probability of a delay to be half of that of the first time.
const commonMoment = 8

// pass is called at each moment of the program, in its process, which it may delay.
func (a *ambush) pass(name, detail string) {
	key := [2]string{name, detail}
	n := a.passed[key]
	a.passed[key]++
	h := a.w.hostOfProcess(machine.Process())
	if name == unnamedMoment && h != nil && a.w.plan.unnamed && a.ends > 0 && machine.Now() >= max(a.unnamed, a.ends) {
		a.unnamed = machine.Now() + unnamedTime
		a.w.trace.addf("nemesis", "%s is delayed by %v %s", h.name, unnamedTime, name)
		a.w.count("files without a name")
		time.Sleep(unnamedTime)
		return
	}
	if !a.armed || h == nil {
		return
	}
	if name == answerMoment && a.loses(key) {
		a.w.trace.addf("nemesis", "%s loses its connections %s %s", h.name, name, detail)
		a.w.count("lost answers")
		h.net.Reset()
		return
	}
	if a.aimed(name, key, h) || !a.delays(key, n) {
		return
	}
	d := a.atMost(time.Millisecond<<a.r.IntN(delayDoublings) + time.Duration(a.r.Int64N(int64(time.Millisecond))))
	made := false
	switch a.r.IntN(3) {
	case 0:
		made = a.ambush(&dueFault{host: h, limit: d * time.Duration(a.r.IntN(2)) / 2}, name+" "+detail, n)
	case 1:
		made = a.make(aim(a.r.IntN(int(aims))), key, h, d)
	}
	if !made {
		a.w.trace.addf("nemesis", "%s is delayed by %v %s %s", h.name, d, name, detail)
	}
	a.w.count("delays at moments")
	time.Sleep(d)
}

// delayDoublings is how many lengths a delay at a moment has: from 1 ms to 16 s. After the longest, other nodes have given up and tried again.
const delayDoublings = 15

// atMost returns a delay that ends with the faults.
func (a *ambush) atMost(d time.Duration) time.Duration {
	return min(d, max(time.Millisecond, a.ends-machine.Now()))
}

// slowPause bounds the pause between two delays at a slow moment: those that come often are not all delayed, or nothing would work.
const slowPause = time.Second

// delays decides whether a moment that has been n times gets a delay, and perhaps a fault.
func (a *ambush) delays(key [2]string, n int) bool {
	if now := machine.Now(); a.slow(key) && now >= a.slowly[key] && a.r.IntN(2) == 0 {
		a.slowly[key] = now + time.Duration(a.r.Int64N(int64(slowPause)))
		return true
	}
	if a.w.plan.moments == 0 || machine.Now() < a.after || a.r.IntN(n+commonMoment) >= commonMoment {
		return false
	}
	a.after = machine.Now() + time.Duration(a.r.Int64N(2*int64(a.w.plan.moments)))
	return true
}

// unnamedMoment is one at which a server has written files that no row of METADATA names. They stay so for unnamedTime in some plans, after the
// faults, when rounds of garbage collection succeed and need less time for what they delete.
const (
	unnamedMoment = "files of a minor compaction are written"
	unnamedTime   = 15 * time.Second
)

// answerMoment is the moment at which a request was executed, and its caller has no answer. Its detail is the method.
const answerMoment = "before an answer is sent"

// lossPause bounds the pause between two lost answers of a method.
const lossPause = 2 * time.Second

// loses reports whether an answer is lost, of a node that goes on. Some methods lose answers again and again in a run: what was executed must not be
// executed twice, and what has an unknown outcome must not count as failed.
func (a *ambush) loses(key [2]string) bool {
	if now := machine.Now(); a.chosen("lost", a.w.plan.lostOneIn, key) && now >= a.lost[key] && a.r.IntN(2) == 0 {
		a.lost[key] = now + time.Duration(a.r.Int64N(int64(lossPause)))
		return true
	}
	return false
}

// slow reports whether a moment is one of those that are slow in this run, whenever they come: what must not happen meanwhile does so sooner or
// later. It follows from the seed.
func (a *ambush) slow(key [2]string) bool {
	return a.chosen("", a.w.plan.slowOneIn, key)
}

// chosen reports whether a moment is one of those of a kind, of which there is one in oneIn moments; 0: none. It follows from the seed.
func (a *ambush) chosen(kind string, oneIn uint64, key [2]string) bool {
	return oneIn > 0 && a.draw(kind, key)%oneIn == 0
}

// draw returns a number for a moment that follows from the seed.
func (a *ambush) draw(kind string, key [2]string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, kind, a.w.cfg.Seed, key[0], key[1]) // never fails
	return h.Sum64() >> 32                                   // the low bits of the sum depend on few bits of each byte
}
