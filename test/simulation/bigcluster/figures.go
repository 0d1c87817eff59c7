package bigcluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/node"
	"github.com/steledb/stele/test/simulation/machine"
)

// Phase is what one phase has measured.
type Phase struct {
	Name    string
	Figures []Figure
}

// Figure is one number. Its unit is part of its name.
type Figure struct {
	Name  string
	Value float64
}

func (p *Phase) note(name string, value float64) {
	p.Figures = append(p.Figures, Figure{name, value})
}

// kinds are the kinds of methods, by the beginnings of their names. Others are rows and administration.
var kinds = []struct{ kind, prefixes string }{
	{"lock service", "meta."},
	{"master's commands", "tablet. cluster.nudge cluster.hail cluster.start_voting"},
	{"formation", "cluster."},
	{"block store", "blob. log. sweep."},
	{"rows", ""},
}

// kindOf returns the index in kinds of a method.
func kindOf(method string) int {
	for i, k := range kinds {
		for prefix := range strings.FieldsSeq(k.prefixes) {
			if strings.HasPrefix(method, prefix) {
				return i
			}
		}
	}
	return len(kinds) - 1
}

// usage is what one process had used at a time.
type usage struct {
	process int
	ticks   uint64
	gossip  gossipCount
	calls   []uint64 // by kind
	methods map[string]uint64
	conns   int64 // open now
}

// snapshot is the state of all counters at a time.
type snapshot struct {
	at, cpu time.Duration
	ticks   uint64 // of all processes
	hosts   map[*host]usage
}

// snap reads all counters.
func (c *Cluster) snap() snapshot {
	s := snapshot{at: machine.Now(), cpu: cpu(), hosts: map[*host]usage{}}
	for i := range c.processes + 1 {
		s.ticks += machine.Ticks(i)
	}
	for _, h := range c.hosts {
		if h.node == nil {
			continue
		}
		u := usage{process: h.process, ticks: machine.Ticks(h.process), gossip: h.gossip, calls: make([]uint64, len(kinds))}
		u.methods, u.conns = node.Calls(h.node)
		for method, n := range u.methods {
			u.calls[kindOf(method)] += n
		}
		s.hosts[h] = u
	}
	return s
}

// measure runs a phase. Its figures are the time that it took, those that f notes, and the load of the nodes meanwhile.
func (c *Cluster) measure(name string, f func(p *Phase)) {
	p := &Phase{Name: name}
	fmt.Fprintf(c.cfg.Log, "PHASE %s, %.1f s\n", name, machine.Now().Seconds())
	before := c.snap()
	f(p)
	c.load(p, before, c.snap())
	for _, x := range p.Figures { // so that a run that does not end has figures, too
		fmt.Fprintf(c.cfg.Log, "FIGURE %s, %s: %.4g\n", p.Name, x.Name, x.Value)
	}
	c.result.Phases = append(c.result.Phases, *p)
	if c.cfg.AfterPhase != nil {
		c.cfg.AfterPhase(name)
	}
}

// load notes the load between two snapshots.
func (c *Cluster) load(p *Phase, before, after snapshot) {
	took := (after.at - before.at).Seconds()
	spent := (after.cpu - before.cpu).Seconds()
	p.note("virtual s", took)
	p.note("CPU s", spent)
	p.note("CPU ms per node", 1000*spent/float64(len(after.hosts)))
	perTick := spent / float64(max(1, after.ticks-before.ticks))
	var cpus, packets, gossip, conns []float64
	calls := make([][]float64, len(kinds))
	for _, h := range c.hosts {
		a, b := after.hosts[h], before.hosts[h]
		if a.process == 0 {
			continue
		}
		if b.process != a.process { // it started meanwhile
			b = usage{calls: make([]uint64, len(kinds)), gossip: b.gossip}
		}
		cpus = append(cpus, float64(a.ticks-b.ticks)*perTick*1000)
		conns = append(conns, float64(a.conns))
		packets = append(packets, float64(a.gossip.packets-b.gossip.packets)/took)
		gossip = append(gossip, float64(a.gossip.packetBytes+a.gossip.streamBytes-b.gossip.packetBytes-b.gossip.streamBytes)/took)
		for i := range kinds {
			calls[i] = append(calls[i], float64(a.calls[i]-b.calls[i])/took)
		}
	}
	p.note("CPU ms of the busiest node", slices.Max(cpus))
	p.note("connections of the busiest node", slices.Max(conns))
	p.note("gossip packets/s per node", mean(packets))
	p.note("gossip bytes/s per node", mean(gossip))
	for i, k := range kinds {
		p.note(k.kind+" calls/s, all nodes", mean(calls[i])*float64(len(calls[i])))
		p.note(k.kind+" calls/s, busiest node", slices.Max(calls[i]))
	}
}

func mean(all []float64) (m float64) {
	for _, x := range all {
		m += x / float64(len(all))
	}
	return m
}
