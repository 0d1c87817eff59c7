package members

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossip"
)

// gossipOff is the address of gossip that means none.
const gossipOff = "off"

// Start records the members that the node has formed or joined a cluster with, and starts gossip unless cfg.Bind is "off". cfg has the
// bind and advertised addresses, the keys and the memory; Start fills in the others.
func (sv *Service) Start(service *formation.Service, found []formation.Peer, cfg gossip.Config) error {
	sv.formation = service
	var gossips []string
	for _, p := range found {
		sv.known.set(p.ID, p.RPC)
		if p.Gossip != "" {
			gossips = append(gossips, p.Gossip)
		}
	}
	if cfg.Bind == gossipOff {
		return nil
	}
	cfg.Self, cfg.Cluster, cfg.Seeds, cfg.Removed, cfg.Logger = sv.selfMeta(), sv.Self.Cluster(), service.Seeds, sv.Removed, sv.Log.With("part", "gossip")
	ring, err := gossip.Start(cfg)
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	sv.ring.Store(ring)
	service.SetGossip(ring.Address(), sv.addMember)
	sv.Background.Go(sv.followMembers)
	sv.Background.Go(sv.publishLoad)
	// Remembered addresses may be dead, which takes long to detect. Members that know this node
	// contact it meanwhile.
	sv.Background.Go(func() { sv.joinGossip(gossips) })
	return nil
}

// joinGossip contacts members by gossip, and logs a warning if none answers.
func (sv *Service) joinGossip(addrs []string) {
	if len(addrs) == 0 {
		return
	}
	err := sv.Ring().Join(sv.Ctx, addrs)
	noOther := !slices.ContainsFunc(sv.Ring().Members(), func(m gossip.Member) bool { return !m.Self && m.State == gossip.Alive })
	if err != nil && noOther && sv.Ctx.Err() == nil {
		sv.Log.Warn("no member answers by gossip; retrying", "err", err)
	}
}

// addMember adds a member to gossip that has called from a new address.
func (sv *Service) addMember(ctx context.Context, p formation.Peer) {
	sv.known.set(p.ID, p.RPC)
	if err := sv.Ring().Join(ctx, []string{p.Gossip}); err != nil {
		sv.Log.Debug("member does not answer by gossip", "node", p.ID, "addr", p.Gossip, "err", err)
	}
}

// followMembers records the addresses of the other nodes, until the node closes.
func (sv *Service) followMembers() {
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for sv.settle() {
		changed := sv.Ring().Changed()
		var peers []formation.Peer
		members := sv.Ring().Members()
		for _, m := range members {
			if m.Self {
				continue
			}
			// A node that has left may come back when all are restarted.
			sv.known.set(m.ID, m.RPC)
			peers = append(peers, formation.Peer{ID: m.ID, Name: m.Name, RPC: m.RPC, Gossip: m.Gossip})
		}
		slices.SortFunc(peers, func(a, b formation.Peer) int { return strings.Compare(a.ID, b.ID) })
		if err := sv.formation.SetMembers(peers, sv.Self.RaftEpoch()); err != nil {
			sv.Log.Warn("members not saved for the next start", "err", err)
		}
		sv.Look(members)
		select {
		case <-changed:
		case <-tick.C:
		case <-sv.Ctx.Done():
			return
		}
	}
}

// settlePause is the shortest time between two looks at all members. When many nodes start or die, gossip reports each of them in turn; a
// look at all for each of them would take a time that grows with the square of their number.
const settlePause = 50 * time.Millisecond

// settle waits for settlePause, and reports whether the node still runs.
func (sv *Service) settle() bool {
	wait := time.NewTimer(settlePause)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-sv.Ctx.Done():
		return false
	}
}

// lookPause is the interval at which Config.Look is called.
const lookPause = 2 * time.Second

// ForgetRemoved drops what this node has stored about removed nodes, so that it no longer spreads it. It is called after Start.
func (sv *Service) ForgetRemoved(gone map[string]bool) {
	sv.known.forgetRemoved()
	if err := sv.formation.ForgetRemoved(); err != nil {
		sv.Log.Warn("peers file still contains removed nodes", "err", err)
	}
	if ring := sv.Ring(); ring != nil {
		for id := range gone {
			ring.Forget(id)
		}
	}
}

// leaveTimeout bounds the announcement that the node leaves.
const leaveTimeout = time.Second

// Announce announces that the node leaves, with the error if it ends by itself.
func (sv *Service) Announce(reason string) {
	if ring := sv.Ring(); ring != nil {
		if err := ring.Leave(leaveTimeout, reason); err != nil {
			sv.Log.Debug("leaving not announced by gossip", "err", err)
		}
	}
}

// Leave announces that the node leaves, as Announce does, and ends gossip.
func (sv *Service) Leave(reason string) error {
	sv.Announce(reason)
	if ring := sv.Ring(); ring != nil {
		return ring.Close()
	}
	return nil
}
