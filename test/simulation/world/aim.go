package world

import (
	"time"

	"github.com/steledb/stele/test/simulation/machine"
)

// An aim is what a run does at one moment of the program, whenever it comes. Random faults rarely meet a state of a protocol that lasts for
// milliseconds, and even more rarely do so twice, or with the right fault.
type aim int

// The aims. The goroutine that is at the moment waits there meanwhile.
const (
	aimCrash   aim = iota // the process is killed, at once or after others had time to go on
	aimReset              // its connections break: its callers do not learn the outcome, and try again or give up
	aimIsolate            // the host is cut off, and goes on when others may have replaced it
	aimMaster             // the master is killed, cut off or frozen: another one acts on what it finds
	aimLeader             // likewise the leader of the lock service
	aimCorrupt            // the file that its host named last becomes corrupt, if sectors of its disk may
	aims
)

const (
	// aimPause bounds the pause between two aimed faults.
	aimPause = 3 * time.Second
	// aimDelay is the shortest time that a goroutine waits, and aimDoublings how many times there are: up to 16 s, in which other nodes take over.
	aimDelay     = 16 * time.Millisecond
	aimDoublings = 11
	// aimDetails is how many details of a moment, as methods of requests, there are for each one that is aimed at.
	aimDetails = 4
	// snapshotMoment is one at which a voter has named a snapshot.
	snapshotMoment = "a snapshot is durable"
)

// aimed makes the fault of a moment that is aimed at in this run, and reports whether it does.
func (a *ambush) aimed(name string, key [2]string, h *host) bool {
	if machine.Now() < a.aimAfter {
		return false
	}
	x, ok := a.aimOf(name, key, h)
	if !ok || a.r.IntN(2) == 0 {
		return false
	}
	d := a.atMost(aimDelay<<a.r.IntN(aimDoublings) + time.Duration(a.r.Int64N(int64(aimDelay))))
	if !a.make(x, key, h, d) {
		return false
	}
	a.aimAfter = machine.Now() + time.Duration(a.r.Int64N(int64(aimPause)))
	time.Sleep(d)
	return true
}

// make makes the fault of an aim while a goroutine of a host waits at a moment for a time, and reports whether it does.
func (a *ambush) make(x aim, key [2]string, h *host, wait time.Duration) bool {
	m := dueFault{host: h, aimed: true, delay: time.Duration(a.r.Int64N(int64(wait))) * time.Duration(a.r.IntN(2))}
	if x == aimCorrupt && (h.w.bad != h || !h.w.inspector().corrupts() || a.named[h.name] == "") {
		x = aimCrash
	}
	switch x {
	case aimCrash:
		m.fault = crash
	case aimReset:
		m.fault = resetHost
	case aimIsolate:
		m.fault, m.limit = isolate, 2*wait
	case aimMaster:
		m.host, m.fault = h.w.master, aimedFaults[a.r.IntN(len(aimedFaults))]
	case aimLeader:
		m.host, m.fault = h.w.leader, aimedFaults[a.r.IntN(len(aimedFaults))]
	case aimCorrupt:
		m.fault, m.file, m.delay = diskCorruption, a.named[h.name], 0
	}
	if m.host == nil {
		return false
	}
	select {
	case a.moments <- m:
	default:
		return false
	}
	a.w.trace.addf("nemesis", "%s of %s is aimed at %s %s of %s, which waits %v", m.fault, m.host.name, key[0], key[1], h.name, wait)
	a.w.count("aimed faults")
	return true
}

// aimedFaults are those of a master or leader that others replace.
var aimedFaults = []fault{crash, isolate, freeze}

// aimOf returns the aim at a moment, if it has one in this run. It follows from the seed, except that the disk that may corrupt sectors is that of
// the leader where snapshots become corrupt.
func (a *ambush) aimOf(name string, key [2]string, h *host) (aim, bool) {
	w := h.w
	if name == snapshotMoment && w.plan.corruptSnapshots {
		if w.leader == h && !w.badUsed {
			w.bad = h
		}
		return aimCorrupt, w.bad == h
	}
	whole := [2]string{name, ""}
	if !a.chosen("aim", w.plan.aimOneIn, whole) || key != whole && !a.chosen("aim", aimDetails, key) {
		return 0, false
	}
	return aim(a.draw("kind", whole) % uint64(aims)), true
}

// inflict makes an aimed fault when it is due.
func (a *ambush) inflict(m dueFault, end time.Time) {
	w := m.host.w
	time.Sleep(m.delay)
	limit := time.Until(end)
	if m.limit > 0 {
		limit = min(limit, m.limit)
	}
	if w.quiet || limit <= 0 {
		return
	}
	w.inflict(target{f: m.fault, h: m.host, o: w.host(), file: m.file}, limit)
	if m.fault == diskCorruption { // a voter that misses something gets the snapshot
		w.inflict(target{f: cutPair, h: m.host, o: w.host()}, limit)
	}
}
