package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/place"
	"github.com/steledb/stele/internal/background"
	"github.com/steledb/stele/internal/timing"
)

// Config configures Peers.
type Config struct {
	Membership   Membership // nil if this node is the only one
	Self         string     // the ID of this node
	Clock        timing.Clock
	Work         *background.Group
	ReplyTimeout time.Duration   // of probes and of calls to many nodes
	ExtentBytes  int64           // a node with less free space is full
	Local        func() api.Peer // returns the store of this node
	// Recovered is called when a suspected node answers again. It must not block.
	Recovered func()
}

// Peers are the members as this node reaches them. It is safe for concurrent use.
type Peers struct {
	cfg Config

	// mu guards suspects. Never held across I/O.
	mu       sync.Mutex
	suspects map[string]*suspicion
}

// NewPeers returns the members of a membership.
func NewPeers(cfg Config) *Peers { return &Peers{cfg: cfg, suspects: map[string]*suspicion{}} }

// Self returns the ID of this node.
func (p *Peers) Self() string { return p.cfg.Self }

// Membership returns the membership, nil if this node is the only one.
func (p *Peers) Membership() Membership { return p.cfg.Membership }

// Members returns all members, including this node; none without a membership.
func (p *Peers) Members() []Member {
	if p.cfg.Membership == nil {
		return nil
	}
	return p.cfg.Membership.Members()
}

// Changed returns a channel that is closed when the result of Members next changes.
func (p *Peers) Changed() <-chan struct{} {
	if p.cfg.Membership == nil {
		return nil
	}
	return p.cfg.Membership.Changed()
}

// OnlyMember reports whether this node is the only member.
func (p *Peers) OnlyMember() bool { return len(p.Others()) == 0 }

// Others returns the IDs of all other members.
func (p *Peers) Others() []string {
	var ids []string
	for _, m := range p.Members() {
		if m.ID != p.cfg.Self {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// All returns the IDs of all members including this node, sorted.
func (p *Peers) All() []string {
	ids := append(p.Others(), p.cfg.Self)
	slices.Sort(ids)
	return ids
}

// AnyDraining reports whether any of the nodes is draining.
func (p *Peers) AnyDraining(nodes []string) bool {
	return slices.ContainsFunc(p.Members(), func(m Member) bool { return m.Draining && slices.Contains(nodes, m.ID) })
}

// BelievedAlive reports whether the membership reports a node as alive.
func (p *Peers) BelievedAlive(node string) bool {
	return slices.ContainsFunc(p.Members(), func(m Member) bool { return m.ID == node && m.Alive })
}

// Doubtful reports whether another node probably does not answer: the membership reports it as dead, does not have
// it, or it did not answer recently. Such a node is asked last.
func (p *Peers) Doubtful(node string) bool {
	return node != p.cfg.Self && (p.Suspected(node) || !p.BelievedAlive(node))
}

// Nodes returns the members as placement sees them. Suspected and dead nodes count as draining.
// Without a membership it returns this node.
func (p *Peers) Nodes() []place.Node {
	return p.NodesIf(func(node string) bool { return !p.Suspected(node) })
}

// NodesIf is Nodes with a custom test of which nodes answer.
func (p *Peers) NodesIf(answers func(node string) bool) []place.Node {
	if p.cfg.Membership == nil {
		return []place.Node{{ID: p.cfg.Self, CapacityBytes: 1}}
	}
	members := p.Members()
	nodes := make([]place.Node, len(members))
	for i, m := range members {
		nodes[i] = p.nodeOf(m, answers(m.ID))
	}
	return nodes
}

func (p *Peers) nodeOf(m Member, answers bool) place.Node {
	return place.Node{
		ID: m.ID, Zone: m.Zone, CapacityBytes: m.CapacityBytes,
		Full:     m.FreeBytes < p.cfg.ExtentBytes,
		Draining: m.Draining || !m.Alive || !answers,
	}
}

// NodesOf is Nodes of these nodes only, as far as they are members. It costs little with many members.
func (p *Peers) NodesOf(ids []string) (nodes []place.Node) {
	if p.cfg.Membership == nil {
		return slices.DeleteFunc(p.Nodes(), func(n place.Node) bool { return !slices.Contains(ids, n.ID) })
	}
	members := p.Members()
	for i := range members {
		if slices.Contains(ids, members[i].ID) {
			nodes = append(nodes, p.nodeOf(members[i], !p.Suspected(members[i].ID)))
		}
	}
	return nodes
}

// PlaceKey returns the key under which placement knows an extent of a blob.
func PlaceKey(id local.ExtentID) place.Key { return place.KeyOf(id.Blob, uint64(id.Index)) }

// Peer returns the store of another node. The error matches api.ErrUnreachable.
func (p *Peers) Peer(ctx context.Context, node string) (api.Peer, error) {
	if node == p.cfg.Self {
		return nil, fmt.Errorf("%w: %s is this node", api.ErrUnreachable, node)
	}
	if p.cfg.Membership == nil {
		return nil, fmt.Errorf("%w: %s is not a member", api.ErrUnreachable, node)
	}
	peer, err := p.cfg.Membership.Peer(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", api.ErrUnreachable, err)
	}
	return peer, nil
}

// Any is Peer, but accepts this node too.
func (p *Peers) Any(ctx context.Context, node string) (api.Peer, error) {
	if node == p.cfg.Self {
		return p.cfg.Local(), nil
	}
	return p.Peer(ctx, node)
}

// CallsMax is the most nodes that this node calls at a time for one purpose.
const CallsMax = 16

// Each calls ask for each node in parallel, with ReplyTimeout for all of them. It returns when all
// calls have ended.
func (p *Peers) Each(ctx context.Context, nodes []string, ask func(ctx context.Context, p api.Peer)) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ReplyTimeout)
	defer cancel()
	var group sync.WaitGroup
	slots := make(chan struct{}, CallsMax)
	for _, node := range nodes {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if peer, err := p.Peer(ctx, node); err == nil {
				ask(ctx, peer)
			}
		})
	}
	group.Wait()
}

// EachInBackground is Each in the background; errors are ignored.
func (p *Peers) EachInBackground(nodes []string, ask func(ctx context.Context, p api.Peer)) {
	if len(nodes) > 0 {
		p.cfg.Work.Go(func() { p.Each(p.cfg.Work.Context(), nodes, ask) })
	}
}

// Check asks another node for the state of extents, and records whether it answered.
func (p *Peers) Check(ctx context.Context, node string, xs []local.ExtentID) ([]api.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.ReplyTimeout)
	defer cancel()
	peer, err := p.Peer(ctx, node)
	if err != nil {
		return nil, err
	}
	all, err := peer.Check(ctx, xs)
	switch {
	case errors.Is(err, api.ErrUnreachable):
		p.Suspect(node)
	case err == nil:
		p.MarkAlive(node)
	}
	return all, err
}
