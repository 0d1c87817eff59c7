package repair

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/blobfs/place"
	"github.com/steledb/stele/internal/timing"
)

// balanceEvery is how often a node checks whether it is too full.
const balanceEvery = 10 * time.Second

// balancer moves extents of this node to emptier nodes.
type balancer struct {
	k *Repairer
	// after is where the last round ended.
	after local.ExtentID
	// movedBytes is the bytes moved, by node, since the membership last reported a new FreeBytes
	// for it; negative for this node.
	movedBytes   map[string]int64
	reportedFree map[string]int64 // FreeBytes as last reported
}

// BalanceStatus is the state of this node's rebalancing.
type BalanceStatus struct {
	// Active means that this node is too full and moves extents away.
	Active       bool
	Moved, Bytes int64 // since the node started
	BytesPerSec  int64
}

func newBalancer(k *Repairer) *balancer {
	return &balancer{k: k, after: local.ExtentID{Index: -1}, movedBytes: map[string]int64{}, reportedFree: map[string]int64{}}
}

// run moves extents away while this node is fuller than others, no extent is under-replicated and
// membership is stable.
func (b *balancer) run() {
	k := b.k
	for timing.SleepOn(k.ctx, k.deps.Clock, balanceEvery) == nil {
		v := k.watch.view()
		active := false
		if _, endangered := k.queue.load(); endangered == 0 && k.membershipStable(v) && k.stateOf(v, k.self) == nodeLive {
			active = b.round(k.ctx)
		}
		k.mu.Lock()
		k.mu.balancing = active
		k.mu.Unlock()
	}
}

// fullness returns the used part of a node's disks in percent, estimated with the recent moves.
func (b *balancer) fullness(m *members.Member) float64 {
	if m.CapacityBytes <= 0 {
		return 0
	}
	return 100 * float64(m.CapacityBytes-m.FreeBytes+b.movedBytes[m.ID]) / float64(m.CapacityBytes)
}

// target returns the emptiest node, and whether this node moves extents to it: only if this node is
// BalanceGap fuller than it, and fuller than the average.
func (b *balancer) target() (emptiest members.Member, ok bool) {
	all := b.k.deps.Peers.Members()
	v := b.k.watch.view()
	var self members.Member
	var used, capacity float64
	var candidates []members.Member
	for i := range all {
		m := &all[i]
		if b.reportedFree[m.ID] != m.FreeBytes {
			b.reportedFree[m.ID] = m.FreeBytes
			delete(b.movedBytes, m.ID)
		}
		if b.k.stateOf(v, m.ID) != nodeLive || m.CapacityBytes <= 0 {
			continue
		}
		used += b.fullness(m) * float64(m.CapacityBytes)
		capacity += float64(m.CapacityBytes)
		if m.ID == b.k.self {
			self = *m
		} else if !b.k.deps.Peers.Suspected(m.ID) && m.FreeBytes >= b.k.deps.Disks.ExtentBytes() {
			candidates = append(candidates, *m)
		}
	}
	if len(candidates) == 0 || self.ID == "" {
		return emptiest, false
	}
	emptiest = slices.MinFunc(candidates, func(a, c members.Member) int { return cmp.Compare(b.fullness(&a), b.fullness(&c)) })
	mine := b.fullness(&self)
	return emptiest, mine > b.fullness(&emptiest)+float64(b.k.cfg.BalanceGap) && mine > used/capacity
}

// roundMax is how many extents one round looks at.
const roundMax = 4096

// round moves what it can of the next extents. It reports whether this node is too full.
func (b *balancer) round(ctx context.Context) bool {
	active := false
	for range roundMax {
		to, ok := b.target()
		if !ok || ctx.Err() != nil {
			return active
		}
		active = true
		next := b.k.deps.Disks.ListExtents(b.after, 1)
		if len(next) == 0 {
			b.after = local.ExtentID{Index: -1}
			return active
		}
		b.after = next[0].ID
		if !b.belongsOn(&next[0], to.ID) {
			continue
		}
		if err := b.move(ctx, next[0].ID, to.ID); err != nil {
			b.k.deps.Logger.Debug("extent not moved", "extent", next[0].ID.String(), "node", to.ID, "err", err)
			return active
		}
	}
	return active
}

// belongsOn reports whether an extent belongs on node to rather than here: of all nodes including
// this one, placement chooses it next to the extent's other holders. So no extent moves back or in
// circles.
func (b *balancer) belongsOn(x *local.ExtentInfo, to string) bool {
	self := b.k.self
	h := b.k.holders(x)
	if x.Retired || slices.Contains(h.Nodes, to) || !slices.Contains(h.Nodes, self) {
		return false
	}
	rest := slices.DeleteFunc(slices.Clone(h.Nodes), func(n string) bool { return n == self })
	nodes := b.k.deps.Peers.Nodes()
	for i := range nodes {
		nodes[i].Full = nodes[i].Full && nodes[i].ID != self
	}
	// If the best node is neither, it is not the emptiest node. The next one in rank decides.
	for {
		best := place.Choose(members.PlaceKey(x.ID), nodes, rest, 1)
		switch {
		case len(best) == 0 || best[0].ID == self:
			return false
		case best[0].ID == to:
			return true
		}
		nodes = slices.DeleteFunc(nodes, func(n place.Node) bool { return n.ID == best[0].ID })
	}
}

// move moves one extent to another node: it copies it, takes this node off the list and drops the
// local replica like any surplus one.
func (b *balancer) move(ctx context.Context, x local.ExtentID, to string) error {
	k := b.k
	if !k.queue.claim(x) {
		return nil // another task is working on it
	}
	defer k.queue.unclaim(x)
	v := k.watch.view()
	sv, err := k.takeSurvey(ctx, v, x)
	if err != nil {
		return err
	}
	r := k.deps.Replicas
	whole := len(sv.good) >= min(r, v.live) && len(sv.good) == len(sv.held) && len(sv.lost) == 0 && !sv.conflicting
	if sv.quarantined || !whole || !slices.Contains(sv.good, k.self) || slices.Contains(sv.list.Nodes, to) {
		return nil
	}
	st, err := k.deps.Disks.StatExtent(ctx, x)
	if err != nil {
		k.deps.Corruption.RecordIfCorrupt(x, err)
		return err
	}
	if err := k.balanceRate.wait(ctx, st.Length); err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(sv.held), func(n string) bool { return n == k.self })
	all := slices.Sorted(slices.Values(append(slices.Clone(sv.held), to)))
	if err := k.remote.copyTo(ctx, to, api.Copy{Ref: api.Ref{Extent: x, CRC: st.CRC}, From: []string{k.self}, Holders: local.Holders{Epoch: sv.epoch + 1, Nodes: all}}, st.Length); err != nil {
		return err
	}
	sv.epoch++
	if err := k.publish(ctx, sv, append(rest, to)); err != nil {
		return err
	}
	k.count(func(c *Counts) { c.Moved++; c.MovedBytes += st.Length })
	b.movedBytes[to] += st.Length
	b.movedBytes[k.self] -= st.Length
	if sv, err = k.takeSurvey(ctx, v, x); err != nil {
		return err
	}
	if k.selfListed(sv) {
		return nil
	}
	return k.dropSurplus(ctx, v, sv, min(r, v.remaining))
}
