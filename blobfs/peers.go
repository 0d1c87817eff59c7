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

// peers is what the store has found out by itself about other nodes.
type peers struct {
	clock Clock

	// mu guards suspects. Never held across I/O.
	mu       sync.Mutex
	suspects map[string]time.Duration // until when
}

func (p *peers) init(s *Store) {
	p.clock = s.cluster.Clock
	p.suspects = make(map[string]time.Duration)
}

// suspect notes that a node did not answer.
func (p *peers) suspect(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspects[node] = p.clock.Now() + suspectTime
}

// trust notes that it did.
func (p *peers) trust(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.suspects, node)
}

func (p *peers) suspected(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, ok := p.suspects[node]
	if ok && p.clock.Now() >= until {
		delete(p.suspects, node)
		ok = false
	}
	return ok
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
