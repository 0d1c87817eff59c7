package blobfs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/place"
)

// suspectTime is how long a node that did not answer is asked after the others, and
// gets nothing new.
const suspectTime = 10 * time.Second

const (
	// askAgain is how long after it did not answer a suspected node is asked whether it does now; and then as long as
	// a quarter of the time that it has been silent, up to askSeldom.
	askAgain  = 500 * time.Millisecond
	askSeldom = 30 * time.Second
	// flickersMax is how often that is doubled for a node that keeps answering and being lost within suspectTime.
	flickersMax = 5
)

// peers is what the store has found out by itself about other nodes.
type peers struct {
	s     *Store
	clock Clock

	// mu guards suspects. Never held across I/O.
	mu       sync.Mutex
	suspects map[string]*suspicion
}

// suspicion is of a node that did not answer. It stays for a while after the node did again.
type suspicion struct {
	until    time.Duration // when it is over, whether the node was heard of or not; 0: it answered
	since    time.Duration // when the node first did not answer
	answered time.Duration // when it last did
	flickers int           // how many times it was lost again soon after it had answered
	asking   bool
}

func (p *peers) init(s *Store) {
	p.s, p.clock = s, s.cluster.Clock
	p.suspects = make(map[string]*suspicion)
}

// suspect notes that a node did not answer, and has it asked again.
func (p *peers) suspect(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	x := p.suspects[node]
	switch {
	case x == nil || x.until == 0 && now-x.answered > suspectTime:
		x = &suspicion{since: now, asking: x != nil && x.asking}
		p.suspects[node] = x
	case x.until == 0:
		x.since, x.flickers = now, min(x.flickers+1, flickersMax)
	}
	x.until = now + suspectTime
	if !x.asking {
		x.asking = p.s.spawn(func() { p.ask(node) })
	}
}

// ask asks a node until it answers, or it is said to be dead: when it is said to live again, somebody will want
// something of it.
func (p *peers) ask(node string) {
	for {
		p.mu.Lock()
		x, now := p.suspects[node], p.clock.Now()
		if x.until == 0 || now >= x.until && !p.s.believedAlive(node) {
			x.asking = false
			p.mu.Unlock()
			return
		}
		pause := max(askAgain<<x.flickers, min((now-x.since)/4, askSeldom))
		p.mu.Unlock()
		if sleep(p.s.ctx, p.clock, pause) != nil {
			return
		}
		if p.s.believedAlive(node) && p.s.answers(node) {
			p.trust(node)
		}
	}
}

// answers asks a node for nothing.
func (s *Store) answers(node string) bool {
	ctx, cancel := context.WithTimeout(s.ctx, s.cluster.ReplyTimeout)
	defer cancel()
	peer, err := s.peer(ctx, node)
	if err == nil {
		_, err = peer.Check(ctx, nil)
	}
	return err == nil
}

// trust notes that a node answered. What could not be done without it is tried again.
func (p *peers) trust(node string) {
	p.mu.Lock()
	x := p.suspects[node]
	back := x != nil && x.until != 0
	if back {
		x.until, x.answered = 0, p.clock.Now()
	}
	p.mu.Unlock()
	if back {
		p.s.keeper.heard()
	}
}

func (p *peers) suspected(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.suspects[node]
	return x != nil && p.clock.Now() < x.until
}

// alone tells whether there is no other node.
func (s *Store) alone() bool {
	if s.cluster.Fleet == nil {
		return true
	}
	for _, m := range s.cluster.Fleet.Members() {
		if m.ID != s.self {
			return false
		}
	}
	return true
}

// others returns the IDs of all other members.
func (s *Store) others() []string {
	var ids []string
	for _, m := range s.cluster.Fleet.Members() {
		if m.ID != s.self {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// nodes returns the members as placement sees them. Who does not answer, or is said to be
// dead, counts as leaving.
func (s *Store) nodes() []place.Node {
	return s.nodesIf(func(node string) bool { return !s.peers.suspected(node) })
}

// nodesIf is nodes, with another judge of who answers.
func (s *Store) nodesIf(answers func(node string) bool) []place.Node {
	members := s.cluster.Fleet.Members()
	nodes := make([]place.Node, len(members))
	for i, m := range members {
		nodes[i] = place.Node{
			ID: m.ID, Zone: m.Zone, CapacityBytes: m.CapacityBytes,
			Full:    m.FreeBytes < s.ExtentBytes(),
			Leaving: m.Leaving || !m.Alive || !answers(m.ID),
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
	p, err := s.cluster.Fleet.Peer(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrUnreachable, err)
	}
	return p, nil
}

// anyPeer is peer for this node as well.
func (s *Store) anyPeer(ctx context.Context, node string) (api.Peer, error) {
	if node == s.self {
		return server{s}, nil
	}
	return s.peer(ctx, node)
}

// allNodes returns the IDs of all members, this node among them, sorted.
func (s *Store) allNodes() []string {
	if s.cluster.Fleet == nil {
		return []string{s.self}
	}
	ids := append(s.others(), s.self)
	slices.Sort(ids)
	return ids
}

// eachMax is how many nodes are asked at a time.
const eachMax = 16

// each asks nodes in parallel, for as long as a node may be silent. It returns when all
// have ended.
func (s *Store) each(ctx context.Context, nodes []string, ask func(ctx context.Context, p api.Peer)) {
	ctx, cancel := context.WithTimeout(ctx, s.cluster.ReplyTimeout)
	defer cancel()
	var group sync.WaitGroup
	places := make(chan struct{}, eachMax)
	for _, node := range nodes {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			if p, err := s.peer(ctx, node); err == nil {
				ask(ctx, p)
			}
		})
	}
	group.Wait()
}

// later asks nodes in the background; errors do not matter.
func (s *Store) later(nodes []string, ask func(ctx context.Context, p api.Peer)) {
	if len(nodes) > 0 {
		s.spawn(func() { s.each(s.ctx, nodes, ask) })
	}
}

// abortLater ends a stream on nodes. One that does not hear of it gives the stream up by itself.
func (s *Store) abortLater(nodes []string, stream api.StreamID) {
	s.later(nodes, func(ctx context.Context, p api.Peer) { p.Abort(ctx, stream, func(error) {}) })
}
