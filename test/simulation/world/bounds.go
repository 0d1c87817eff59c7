package world

import "github.com/steledb/stele/test/simulation/machine"

// inspector judges a world while it runs and in the end.
type inspector struct{ *World }

func (w *World) inspector() inspector { return inspector{w} }

// goroutines returns the largest number of goroutines of a node.
func (w inspector) goroutines() (most int) {
	for _, h := range w.hosts {
		if h.state == serving {
			most = max(most, machine.Goroutines(h.process))
		}
	}
	return most
}

// A healed node may have goroutinesFactor times as many goroutines as one before the faults, and
// goroutinesMore, and goroutinesClient for each client: other nodes and clients have connected to it since, for data and for locks.
const (
	goroutinesFactor = 2
	goroutinesMore   = 300
	goroutinesClient = 6
)

// judgeGoroutines checks that healed nodes have about as many goroutines as before the faults (SW6).
func (w inspector) judgeGoroutines(before int) {
	w.most("goroutines before faults", int64(before))
	for _, h := range w.hosts {
		if h.state != serving {
			continue
		}
		n := machine.Goroutines(h.process)
		w.most("goroutines after faults", int64(n))
		if limit := goroutinesFactor*before + goroutinesMore + goroutinesClient*w.plan.clients; n > limit {
			w.fail("SW6 bounds: %s has %d goroutines after all faults, before them a node had at most %d: the limit is %d", h.name, n, before, limit)
		}
	}
}
