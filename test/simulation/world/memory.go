package world

import (
	"time"

	"github.com/steledb/stele/node"
	"github.com/steledb/stele/test/simulation/machine"
)

// chargesMax bounds the time until no server has memory charged to a write, once no client works.
const chargesMax = 30 * time.Second

// judgeCharges checks that the memory of writes is released: each server has none in use at some time when no client works, and only splits and
// compactions write METADATA (SW15).
func (w inspector) judgeCharges() {
	if w.failed != "" {
		return
	}
	held := map[string]int64{}
	for _, h := range w.hosts {
		held[h.name] = -1 // not known
	}
	for end := time.Now().Add(chargesMax); time.Now().Before(end) && len(held) > 0; time.Sleep(100 * time.Millisecond) {
		for _, h := range w.hosts {
			n := h.node
			if _, waits := held[h.name]; !waits || n == nil || h.state != serving {
				continue
			}
			machine.Start(h.process, func() {
				if held[h.name] = node.WriteCharges(n); held[h.name] == 0 {
					delete(held, h.name)
				}
			})
			time.Sleep(1)
		}
	}
	for _, h := range w.hosts {
		if n := held[h.name]; n > 0 {
			w.fail("SW15 memory: %s has %d bytes charged to writes though no client works", h.name, n)
		}
	}
}
