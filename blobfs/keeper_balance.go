package blobfs

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/place"
)

// balanceEvery is how often a node looks whether it is too full.
const balanceEvery = 10 * time.Second

// balancer gives extents of this node to emptier ones.
type balancer struct {
	k *keeper
	// after is where the last look through the extents ended.
	after ExtentID
	// shifted is what was given since the fleet last said something else of how full a node is: by node, this
	// one's own below 0.
	shifted map[string]int64
	said    map[string]int64 // free bytes then
}

// BalanceStatus is what a node gave to emptier ones.
type BalanceStatus struct {
	// Active means that this node is too full and gives.
	Active       bool
	Moved, Bytes int64 // since the node started
	BytesPerSec  int64
}

// balancing gives extents away while this node is fuller than others, all extents have what they should, and no
// node comes or goes.
func (k *keeper) balancing() {
	b := balancer{k: k, after: ExtentID{Index: -1}, shifted: map[string]int64{}, said: map[string]int64{}}
	for sleep(k.s.ctx, k.s.cluster.Clock, balanceEvery) == nil {
		v := k.watch.view()
		active := false
		if _, endangered := k.queue.load(); endangered == 0 && k.calm(v) && k.of(v, k.s.self) == present {
			active = b.round(k.s.ctx)
		}
		k.mu.Lock()
		k.mu.balancing = active
		k.mu.Unlock()
	}
}

// fullness returns the used part of a node's disks in percent, as far as is known.
func (b *balancer) fullness(m *Member) float64 {
	if m.CapacityBytes <= 0 {
		return 0
	}
	return 100 * float64(m.CapacityBytes-m.FreeBytes+b.shifted[m.ID]) / float64(m.CapacityBytes)
}

// target returns the emptiest node if this one is so much fuller that it gives to it. Only who is fuller than all are
// together gives.
func (b *balancer) target() (emptiest Member, ok bool) {
	members := b.k.s.cluster.Fleet.Members()
	v := b.k.watch.view()
	var self Member
	var used, capacity float64
	var candidates []Member
	for i := range members {
		m := &members[i]
		if b.said[m.ID] != m.FreeBytes {
			b.said[m.ID] = m.FreeBytes
			delete(b.shifted, m.ID)
		}
		if b.k.of(v, m.ID) != present || m.CapacityBytes <= 0 {
			continue
		}
		used += b.fullness(m) * float64(m.CapacityBytes)
		capacity += float64(m.CapacityBytes)
		if m.ID == b.k.s.self {
			self = *m
		} else if !b.k.s.peers.suspected(m.ID) && m.FreeBytes >= b.k.s.ExtentBytes() {
			candidates = append(candidates, *m)
		}
	}
	if len(candidates) == 0 || self.ID == "" {
		return emptiest, false
	}
	emptiest = slices.MinFunc(candidates, func(a, c Member) int { return cmp.Compare(b.fullness(&a), b.fullness(&c)) })
	mine := b.fullness(&self)
	return emptiest, mine > b.fullness(&emptiest)+float64(b.k.cfg.BalanceGap) && mine > used/capacity
}

// roundMax is how many extents are looked at between two looks at the fleet.
const roundMax = 4096

// round gives what it can of the next extents. It tells whether this node is too full.
func (b *balancer) round(ctx context.Context) bool {
	active := false
	for range roundMax {
		to, ok := b.target()
		if !ok || ctx.Err() != nil {
			return active
		}
		active = true
		next := b.k.s.disks.ListExtents(b.after, 1)
		if len(next) == 0 {
			b.after = ExtentID{Index: -1}
			return active
		}
		b.after = next[0].ID
		if !b.belongs(&next[0], to.ID) {
			continue
		}
		if err := b.move(ctx, next[0].ID, to.ID); err != nil {
			b.k.s.log.Debug("extent not given", "extent", next[0].ID.String(), "to", to.ID, "err", err)
			return active
		}
	}
	return active
}

// belongs tells whether an extent should rather be on another node than on this one: given its other
// holders, it is the one that placement chooses of all, this one included. So no extent goes back, and none goes round.
func (b *balancer) belongs(x *local.ExtentInfo, to string) bool {
	self := b.k.s.self
	h := b.k.listed(x)
	if x.Retired || slices.Contains(h.Nodes, to) || !slices.Contains(h.Nodes, self) {
		return false
	}
	rest := slices.DeleteFunc(slices.Clone(h.Nodes), func(n string) bool { return n == self })
	nodes := b.k.s.nodes()
	for i := range nodes {
		nodes[i].Full = nodes[i].Full && nodes[i].ID != self
	}
	// If the best is neither, it is not the emptiest: what comes after it counts.
	for {
		best := place.Choose(placeKey(x.ID), nodes, rest, 1)
		switch {
		case len(best) == 0 || best[0].ID == self:
			return false
		case best[0].ID == to:
			return true
		}
		nodes = slices.DeleteFunc(nodes, func(n place.Node) bool { return n.ID == best[0].ID })
	}
}

// move gives one extent to another node: it copies it, then takes this node off the list, and then
// drops it as any surplus replica.
func (b *balancer) move(ctx context.Context, x ExtentID, to string) error {
	k := b.k
	if !k.queue.claim(x) {
		return nil // something is being done to it
	}
	defer k.queue.unclaim(x)
	v := k.watch.view()
	sv, err := k.ask(ctx, v, x)
	if err != nil {
		return err
	}
	r := k.s.cluster.Replicas
	whole := len(sv.good) >= min(r, v.present) && len(sv.good) == len(sv.held) && len(sv.lost) == 0 && !sv.torn
	if sv.unwanted || !whole || !slices.Contains(sv.good, k.s.self) || slices.Contains(sv.list.Nodes, to) {
		return nil
	}
	st, err := k.s.disks.StatExtent(ctx, x)
	if err != nil {
		k.s.judgeRead(x, err)
		return err
	}
	if err := k.balances.wait(ctx, st.Length); err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(sv.held), func(n string) bool { return n == k.s.self })
	all := slices.Sorted(slices.Values(append(slices.Clone(sv.held), to)))
	if err := k.copyTo(ctx, to, api.Copy{Ref: api.Ref{Extent: x, CRC: st.CRC}, From: []string{k.s.self}, Holders: Holders{Epoch: sv.epoch + 1, Nodes: all}}, st.Length); err != nil {
		return err
	}
	sv.epoch++
	if err := k.publish(ctx, sv, append(rest, to)); err != nil {
		return err
	}
	k.count(func(c *KeepCounts) { c.Moved++; c.MovedBytes += st.Length })
	b.shifted[to] += st.Length
	b.shifted[k.s.self] -= st.Length
	if sv, err = k.ask(ctx, v, x); err != nil {
		return err
	}
	if k.listsThis(sv) {
		return nil
	}
	return k.release(ctx, v, sv, min(r, v.remaining))
}
