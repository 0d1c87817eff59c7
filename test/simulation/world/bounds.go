package world

import (
	"bytes"
	"runtime/pprof"

	"github.com/steledb/stele/test/simulation/machine"
)

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
// goroutinesMore, and goroutinesClient for each client: other nodes and clients have connected to it since, for data and for locks. A
// server keeps goroutinesIdle for calls, at most: 1,024 for those that may wait for the disk, and as many for those that may wait longer.
const (
	goroutinesFactor = 2
	goroutinesMore   = 300
	goroutinesIdle   = 2 * 1024
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
		if limit := goroutinesFactor*before + goroutinesMore + goroutinesIdle + goroutinesClient*w.plan.clients; n > limit {
			w.fail("SW6 bounds: %s has %d goroutines after all faults, before them a node had at most %d: the limit is %d", h.name, n, before, limit)
			w.stacks = commonStacks(10)
		}
	}
}

// commonStacks returns the stacks that most goroutines of all processes have.
func commonStacks(n int) []byte {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return []byte(err.Error())
	}
	stacks := bytes.SplitAfter(all.Bytes(), []byte("\n\n"))
	return bytes.Join(stacks[:min(n, len(stacks))], nil)
}
