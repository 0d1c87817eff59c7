package world

import (
	"time"

	"github.com/steledb/stele/node"
	"github.com/steledb/stele/test/simulation/machine"
)

// stateSamples is the number of samples of served tablets for each sample of the voters' states, which takes longer.
const stateSamples = 16

// sampleVoters checks that all voters have the same state of the lock service after the same entry of the log (SW9),
// whenever each of them had it. A recovery of the lock service may replace entries; it ends the samples.
func (w inspector) sampleVoters() {
	for _, h := range w.hosts {
		n := h.node
		if n == nil || h.frozen || h.state != serving {
			continue
		}
		machine.Start(h.process, func() {
			applied, sum := node.LockServiceState(n)
			w.compare(h, applied, sum)
		})
	}
	time.Sleep(1)
}

// compare compares the state of a voter with that of the first one that had applied the same entries.
func (w inspector) compare(h *host, applied, sum uint64) {
	if applied == 0 || w.recovered {
		return
	}
	w.count("samples of voters")
	switch first, known := w.states[applied]; {
	case !known:
		w.states[applied] = voterState{h.name, sum}
	case first.sum != sum:
		w.fail("SW9 voters: after entry %d the lock service has another state on %s than on %s", applied, h.name, first.host)
	}
}

// A voterState is the state of the lock service on a voter.
type voterState struct {
	host string
	sum  uint64
}
