package blobfs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/place"
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

// peers is this store's own failure detector for other nodes.
type peers struct {
	s     *Store
	clock Clock

	// mu guards suspects. Never held across I/O.
	mu       sync.Mutex
	suspects map[string]*suspicion
}

// suspicion is the state of a node that did not answer. It is kept for suspectTime after the node
// answers again, to count flaps.
type suspicion struct {
	until    time.Duration // when the suspicion ends even without an answer; 0: the node answered
	since    time.Duration // when the node first did not answer
	answered time.Duration // when the node last answered
	flaps    int           // how often it was lost again within suspectTime of answering
	probing  bool
}

func (p *peers) init(s *Store) {
	p.s, p.clock = s, s.cluster.Clock
	p.suspects = make(map[string]*suspicion)
}

// suspect records that a node did not answer, and starts probing it.
func (p *peers) suspect(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
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
		x.probing = p.s.spawn(func() { p.probe(node) })
	}
}

// probe probes a node until it answers, or until the suspicion ends and the membership reports the
// node as dead. The next failed call starts a new probe.
func (p *peers) probe(node string) {
	for {
		p.mu.Lock()
		x, now := p.suspects[node], p.clock.Now()
		if x.until == 0 || now >= x.until && !p.s.believedAlive(node) {
			x.probing = false
			p.mu.Unlock()
			return
		}
		pause := max(probeDelayMin<<x.flaps, min((now-x.since)/4, probeDelayMax))
		p.mu.Unlock()
		if timing.SleepOn(p.s.ctx, p.clock, pause) != nil {
			return
		}
		if p.s.believedAlive(node) && p.s.ping(node) {
			p.markAlive(node)
		}
	}
}

// ping probes a node with an empty request.
func (s *Store) ping(node string) bool {
	ctx, cancel := context.WithTimeout(s.ctx, s.cluster.ReplyTimeout)
	defer cancel()
	peer, err := s.peer(ctx, node)
	if err == nil {
		_, err = peer.Check(ctx, nil)
	}
	return err == nil
}

// markAlive records that a node answered. Tasks that failed meanwhile are retried.
func (p *peers) markAlive(node string) {
	p.mu.Lock()
	x := p.suspects[node]
	back := x != nil && x.until != 0
	if back {
		x.until, x.answered = 0, p.clock.Now()
	}
	p.mu.Unlock()
	if back {
		p.s.repairer.peerRecovered()
	}
}

func (p *peers) suspected(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.suspects[node]
	return x != nil && p.clock.Now() < x.until
}

// singleNode reports whether this node is the only member.
func (s *Store) singleNode() bool {
	if s.cluster.Membership == nil {
		return true
	}
	for _, m := range s.cluster.Membership.Members() {
		if m.ID != s.self {
			return false
		}
	}
	return true
}

// others returns the IDs of all other members.
func (s *Store) others() []string {
	var ids []string
	for _, m := range s.cluster.Membership.Members() {
		if m.ID != s.self {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// nodes returns the members as placement sees them. Suspected and dead nodes count as draining.
func (s *Store) nodes() []place.Node {
	return s.nodesIf(func(node string) bool { return !s.peers.suspected(node) })
}

// nodesIf is nodes with a custom test of which nodes answer.
func (s *Store) nodesIf(answers func(node string) bool) []place.Node {
	members := s.cluster.Membership.Members()
	nodes := make([]place.Node, len(members))
	for i, m := range members {
		nodes[i] = place.Node{
			ID: m.ID, Zone: m.Zone, CapacityBytes: m.CapacityBytes,
			Full:     m.FreeBytes < s.ExtentBytes(),
			Draining: m.Draining || !m.Alive || !answers(m.ID),
		}
	}
	return nodes
}

func placeKey(id ExtentID) place.Key { return place.KeyOf(id.Blob, uint64(id.Index)) }

// peer returns the store of another node.
func (s *Store) peer(ctx context.Context, node string) (api.Peer, error) {
	if node == s.self {
		return nil, fmt.Errorf("%w: %s is this node", api.ErrUnreachable, node)
	}
	p, err := s.cluster.Membership.Peer(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrUnreachable, err)
	}
	return p, nil
}

// anyPeer is peer, but accepts this node too.
func (s *Store) anyPeer(ctx context.Context, node string) (api.Peer, error) {
	if node == s.self {
		return server{s}, nil
	}
	return s.peer(ctx, node)
}

// allNodes returns the IDs of all members including this node, sorted.
func (s *Store) allNodes() []string {
	if s.cluster.Membership == nil {
		return []string{s.self}
	}
	ids := append(s.others(), s.self)
	slices.Sort(ids)
	return ids
}

// eachMax is the most nodes that each asks at a time.
const eachMax = 16

// each calls ask for each node in parallel, with ReplyTimeout for all of them. It returns when all
// calls have ended.
func (s *Store) each(ctx context.Context, nodes []string, ask func(ctx context.Context, p api.Peer)) {
	ctx, cancel := context.WithTimeout(ctx, s.cluster.ReplyTimeout)
	defer cancel()
	var group sync.WaitGroup
	slots := make(chan struct{}, eachMax)
	for _, node := range nodes {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if p, err := s.peer(ctx, node); err == nil {
				ask(ctx, p)
			}
		})
	}
	group.Wait()
}

// inBackground is each in the background; errors are ignored.
func (s *Store) inBackground(nodes []string, ask func(ctx context.Context, p api.Peer)) {
	if len(nodes) > 0 {
		s.spawn(func() { s.each(s.ctx, nodes, ask) })
	}
}

// abortInBackground aborts a stream on nodes in the background. A node that is not reached drops
// the stream after StreamIdle.
func (s *Store) abortInBackground(nodes []string, stream api.StreamID) {
	s.inBackground(nodes, func(ctx context.Context, p api.Peer) { p.Abort(ctx, stream, func(error) {}) })
}
