package members

import (
	"context"
	"time"

	"github.com/steledb/stele/internal/timing"
)

// suspectTime is how long a node that did not answer gets no new replicas and is read from last.
const suspectTime = 10 * time.Second

const (
	// probeDelayMin is the delay before a suspected node is first probed. Later delays are a
	// quarter of the time that the node has been silent, up to probeDelayMax.
	probeDelayMin = 500 * time.Millisecond
	probeDelayMax = 30 * time.Second
	// flapDoublingsMax bounds how often probeDelayMin is doubled for a node that is lost again
	// within suspectTime of answering.
	flapDoublingsMax = 5
)

// suspicion is the state of a node that did not answer. It is kept for suspectTime after the node
// answers again, to count flaps.
type suspicion struct {
	until    time.Duration // when the suspicion ends even without an answer; 0: the node answered
	since    time.Duration // when the node first did not answer
	answered time.Duration // when the node last answered
	flaps    int           // how often it was lost again within suspectTime of answering
	probing  bool
}

// Suspect records that a node did not answer, and starts probing it.
func (p *Peers) Suspect(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Clock.Now()
	x := p.suspects[node]
	switch {
	case x == nil || x.until == 0 && now-x.answered > suspectTime:
		x = &suspicion{since: now, probing: x != nil && x.probing}
		p.suspects[node] = x
	case x.until == 0:
		x.since, x.flaps = now, min(x.flaps+1, flapDoublingsMax)
	}
	x.until = now + suspectTime
	if !x.probing {
		x.probing = p.cfg.Work.Go(func() { p.probe(node) })
	}
}

// probe probes a node until it answers, or until the suspicion ends and the membership reports the
// node as dead. The next failed call starts a new probe.
func (p *Peers) probe(node string) {
	for {
		p.mu.Lock()
		x, now := p.suspects[node], p.cfg.Clock.Now()
		if x.until == 0 || now >= x.until && !p.BelievedAlive(node) {
			x.probing = false
			p.mu.Unlock()
			return
		}
		pause := max(probeDelayMin<<x.flaps, min((now-x.since)/4, probeDelayMax))
		p.mu.Unlock()
		if timing.SleepOn(p.cfg.Work.Context(), p.cfg.Clock, pause) != nil {
			return
		}
		if p.BelievedAlive(node) && p.ping(node) {
			p.MarkAlive(node)
		}
	}
}

// ping probes a node with an empty request.
func (p *Peers) ping(node string) bool {
	ctx, cancel := context.WithTimeout(p.cfg.Work.Context(), p.cfg.ReplyTimeout)
	defer cancel()
	peer, err := p.Peer(ctx, node)
	if err == nil {
		_, err = peer.Check(ctx, nil)
	}
	return err == nil
}

// MarkAlive records that a node answered. If it was suspected, Config.Recovered is called.
func (p *Peers) MarkAlive(node string) {
	p.mu.Lock()
	x := p.suspects[node]
	back := x != nil && x.until != 0
	if back {
		x.until, x.answered = 0, p.cfg.Clock.Now()
	}
	p.mu.Unlock()
	if back && p.cfg.Recovered != nil {
		p.cfg.Recovered()
	}
}

// Suspected reports whether a node did not answer recently.
func (p *Peers) Suspected(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.suspects[node]
	return x != nil && p.cfg.Clock.Now() < x.until
}
