package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/client"
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

// judgeVoters checks that all voters of a healed cluster get what the leader had in its log in the beginning, and that there are as many as the hosts
// that can be one, except full ones, allow (SW13).
func (w inspector) judgeVoters(full *host) {
	if w.failed != "" {
		return
	}
	var why error
	var first uint64
	if !w.operators().await(time.Now().Add(votersMax), func(ctx context.Context, c *client.Client) error {
		why = w.votersFollow(ctx, c, full, &first)
		return why
	}) {
		w.fail("SW13 voters: %v after all faults have ended: %v", votersMax, why)
	}
}

// votersMax bounds the time until each voter follows: a node votes once it has been up for 10 s, and one change follows the other.
const votersMax = 90 * time.Second

// votersFollow returns an error unless all voters have the entries up to first, which it sets to the last one if it is zero, and there are enough voters.
// A voter that no answer proves to be at the leader's log may be few entries behind and never get them.
func (w inspector) votersFollow(ctx context.Context, c *client.Client, full *host, first *uint64) error {
	s, err := c.Nodes().RaftStatus(ctx)
	if err != nil {
		return err
	}
	if *first == 0 {
		*first = s.LastIndex
	}
	nodes, err := c.Nodes().List(ctx)
	if err != nil {
		return err
	}
	able := 0
	for i := range nodes {
		if h := w.hostOfNode(nodes[i].ID); h != nil && h != w.absent && h != full && !nodes[i].Draining {
			able++
		}
	}
	voters := 0
	for i := range s.Servers {
		v := &s.Servers[i]
		switch h := w.hostOfNode(v.ID); {
		case !v.Voter || h != nil && h == w.absent:
		case !v.Leader && (!v.Alive || s.LastIndex-min(v.Lag, s.LastIndex) < *first):
			return fmt.Errorf("voter %s is alive %t and %d entries behind entry %d; it must have entry %d", v.Name, v.Alive, v.Lag, s.LastIndex, *first)
		default:
			voters++
		}
	}
	if want := min(5, able-(1-able%2)); voters < want {
		return fmt.Errorf("%d voters, want %d of %d nodes", voters, want, able)
	}
	return nil
}

// hostOfNode returns the host of a node's id; nil if there is none.
func (w inspector) hostOfNode(id string) *host {
	if i := slices.IndexFunc(w.hosts, func(h *host) bool { return h.id == id }); i >= 0 {
		return w.hosts[i]
	}
	return nil
}
