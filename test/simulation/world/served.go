package world

import (
	"bytes"
	"fmt"
	"time"

	"github.com/steledb/stele/node"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/test/simulation/machine"
)

// A sample is what a node served at an instant.
type sample struct {
	host *host
	tablet.Loaded
}

// watchServed checks at many instants that each row is on one server (SW2).
func (w inspector) watchServed(done <-chan struct{}) {
	for {
		select {
		case <-time.After(w.between(10*time.Millisecond, 90*time.Millisecond)):
			w.sampleServed()
			if w.sampled/2%stateSamples == 0 {
				w.sampleVoters()
			}
		case <-done:
			return
		}
	}
}

// sampleServed asks each running node, in its own process and by its own clock, what it serves. All
// of them answer at the same instant; an answer that had to wait does not count.
func (w inspector) sampleServed() {
	w.sampled++
	number := w.sampled
	var samples []sample
	for _, h := range w.hosts {
		if n := h.node; n != nil && !h.frozen && h.state != down {
			machine.Start(h.process, func() {
				for _, t := range node.Served(n) {
					if w.sampled == number {
						samples = append(samples, sample{h, t})
					}
				}
			})
		}
	}
	time.Sleep(1) // no goroutine can run any more, so the samples are complete
	w.sampled++
	w.counts["samples of served tablets"] += int64(len(samples))
	for i, a := range samples {
		for _, b := range samples[:i] {
			if a.host != b.host && a.Table == b.Table && overlap(a.Loaded, b.Loaded) {
				w.fail("SW2 one server: %s and %s", a, b)
			}
		}
	}
}

func (s sample) String() string {
	return fmt.Sprintf("%s serves tablet %d of table %d with the rows after %q up to %q", s.host.name, s.ID, s.Table, s.Start, s.End)
}

// overlap reports whether a row is in both tablets of a table.
func overlap(a, b tablet.Loaded) bool {
	before := func(end, start []byte) bool { return len(end) > 0 && bytes.Compare(end, start) <= 0 }
	return !before(a.End, b.Start) && !before(b.End, a.Start)
}
