package node

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/rpc"
)

// peersFile is the file in the first data directory that has the members of the cluster, for the next start.
const peersFile = "peers"

// addresses has the last known addresses of nodes.
type addresses struct {
	// removed reports whether a node was removed. Such a node has no address.
	removed func(id string) bool
	mu      sync.Mutex
	byID    map[string]string
}

func (a *addresses) set(id, addr string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.removed(id) {
		return
	}
	if a.byID == nil {
		a.byID = map[string]string{}
	}
	a.byID[id] = addr
}

func (a *addresses) get(id string) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	addr, ok := a.byID[id]
	return addr, ok
}

// forgetRemoved drops nodes that removed now reports.
func (a *addresses) forgetRemoved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.byID, func(id, _ string) bool { return a.removed(id) })
}

func (a *addresses) at(addr string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, x := range a.byID {
		if x == addr {
			return id
		}
	}
	return ""
}

func (a *addresses) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.byID))
}

// addressOf returns the last known address of a node.
func (n *Node) addressOf(id string) (string, bool) {
	if id == n.id() {
		return n.RPCAddr(), true
	}
	return n.known.get(id)
}

// nodeAt returns the id of the node at addr, or "" if it is unknown.
func (n *Node) nodeAt(addr string) string {
	if addr == "" {
		return ""
	}
	if addr == n.RPCAddr() {
		return n.id()
	}
	return n.known.at(addr)
}

// newFormer creates the former, which makes the node part of a cluster.
func (n *Node) newFormer() error {
	cfg := formation.Config{
		Self: formation.Peer{Name: n.cfg.Name, RPC: n.RPCAddr()}, Version: Version(),
		Join: n.cfg.Join, Expect: n.cfg.Expect, Keys: n.gossipKey.Keys(), Certified: n.security != nil,
		Store: &n.self, PeersFile: filepath.Join(n.cfg.DataDirs[0], peersFile),
		Found: n.security.Cluster(), Dialer: n.security.Dialer(""),
		Admit: n.admit, Removed: n.removed.Has, Caller: callerOf, Logger: n.log.With("part", "formation"),
	}
	n.self.View(func(f *identity.Folders) {
		cfg.Self.ID, cfg.Cluster, cfg.Voter, cfg.RaftEpoch = f.Node, f.Cluster, f.Voter(), f.RaftEpoch
	})
	if n.security != nil && cfg.Cluster == "" {
		founds, err := n.security.Founds(cfg.Join)
		if err != nil {
			return err
		}
		if cfg.Expect = 0; founds {
			cfg.Join = nil
		}
	}
	former, err := formation.New(cfg)
	n.former = former
	return err
}

// callerOf returns the node that made a call, or "" on an open node.
func callerOf(c *rpc.Call) string {
	if caller := authz.SubjectOf(c); caller != nil {
		return caller.Peer.Name
	}
	return ""
}

// joinCluster returns when the node belongs to a cluster and gossip runs.
func (n *Node) joinCluster(ctx context.Context) error {
	n.enter("other nodes, to form or join a cluster")
	out, err := n.former.Run(ctx)
	if err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	if want := n.security.Cluster(); want != "" && out.Cluster != want {
		return fmt.Errorf("join the cluster: it is %s, but the node's certificate belongs to %s", out.Cluster, want)
	}
	var gossips []string
	for _, p := range out.Members {
		n.known.set(p.ID, p.RPC)
		if p.Gossip != "" {
			gossips = append(gossips, p.Gossip)
		}
	}
	if n.cfg.Gossip == "off" {
		return nil
	}
	n.ring, err = gossip.Start(gossip.Config{
		Self: n.selfMeta(), Cluster: n.cluster(), Keys: n.gossipKey.Keys(), Bind: n.cfg.Gossip, Advertise: advertise.Host(n.cfg.Advertise),
		Seeds: n.former.Seeds, Removed: n.removed.Has, StreamMemory: n.cfg.gossipStreams(), Logger: n.log.With("part", "gossip"),
	})
	if err != nil {
		return fmt.Errorf("start gossip: %w", err)
	}
	n.former.SetGossip(n.ring.Address(), n.addMember)
	n.background.Go(n.followMembers)
	n.background.Go(n.publishLoad)
	// Remembered addresses may be dead, which takes long to detect. Members that know this node
	// contact it meanwhile.
	n.background.Go(func() { n.joinGossip(gossips) })
	return nil
}

// joinGossip contacts members by gossip, and logs a warning if none answers.
func (n *Node) joinGossip(addrs []string) {
	if len(addrs) == 0 {
		return
	}
	err := n.ring.Join(n.ctx, addrs)
	alone := !slices.ContainsFunc(n.ring.Members(), func(m gossip.Member) bool { return !m.Self && m.State == gossip.Alive })
	if err != nil && alone && n.ctx.Err() == nil {
		n.log.Warn("no member answers by gossip; retrying", "err", err)
	}
}

// addMember adds a member to gossip that has called from a new address.
func (n *Node) addMember(ctx context.Context, p formation.Peer) {
	n.known.set(p.ID, p.RPC)
	if err := n.ring.Join(ctx, []string{p.Gossip}); err != nil {
		n.log.Debug("member does not answer by gossip", "node", p.ID, "addr", p.Gossip, "err", err)
	}
}

// selfMeta returns what the node publishes by gossip.
func (n *Node) selfMeta() gossip.Meta {
	m := gossip.Meta{Name: n.cfg.Name, RPC: n.RPCAddr(), HTTP: n.HTTPAddr(), Zone: n.cfg.Zone, Version: Version()}
	n.self.View(func(f *identity.Folders) {
		m.ID, m.Start, m.Voter, m.RaftEpoch = f.Node, f.Starts, f.Voter(), f.RaftEpoch
	})
	m.CapacityBytes, m.FreeBytes = n.diskSpace()
	return m
}

// publishMeta publishes changes of this node by gossip.
func (n *Node) publishMeta() {
	if n.ring == nil {
		return
	}
	fresh := n.selfMeta()
	err := n.ring.UpdateMeta(func(m *gossip.Meta) {
		m.Voter, m.RaftEpoch, m.CapacityBytes, m.FreeBytes = fresh.Voter, fresh.RaftEpoch, fresh.CapacityBytes, fresh.FreeBytes
	})
	if err != nil {
		n.log.Warn("change not published by gossip", "err", err)
	}
}

const (
	// publishPeriod is the interval at which the free disk space is published.
	publishPeriod = 30 * time.Second
	// fullPeriod is the interval at which the node checks whether its disk has become full, or is no longer: that is published at once.
	fullPeriod = 2 * time.Second
)

func (n *Node) publishLoad() {
	tick := time.NewTicker(fullPeriod)
	defer tick.Stop()
	published, full := time.Now(), false
	for {
		select {
		case <-tick.C:
			_, free := n.diskSpace()
			if now := time.Now(); (free == 0) != full || now.Sub(published) >= publishPeriod {
				published, full = now, free == 0
				n.publishMeta()
			}
		case <-n.ctx.Done():
			return
		}
	}
}

// followMembers records the addresses of the other nodes, until the node closes.
func (n *Node) followMembers() {
	epochs := epochWatch{n: n}
	tick := time.NewTicker(epochPause)
	defer tick.Stop()
	for {
		changed := n.ring.Changed()
		var peers []formation.Peer
		members := n.ring.Members()
		for _, m := range members {
			if m.Self {
				continue
			}
			// A node that has left may come back when all are restarted.
			n.known.set(m.ID, m.RPC)
			peers = append(peers, formation.Peer{ID: m.ID, Name: m.Name, RPC: m.RPC, Gossip: m.Gossip})
		}
		slices.SortFunc(peers, func(a, b formation.Peer) int { return strings.Compare(a.ID, b.ID) })
		if err := n.former.SetMembers(peers, n.raftEpoch()); err != nil {
			n.log.Warn("members not saved for the next start", "err", err)
		}
		epochs.look(members)
		select {
		case <-changed:
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// admit rejects a node that was removed from the cluster.
func (n *Node) admit(ctx context.Context, p formation.Peer) error {
	if !n.serving.Load() {
		return nil // a removed node is rejected when it registers
	}
	return n.removed.Check(ctx, p.ID)
}

// leaveTimeout bounds the announcement that the node leaves.
const leaveTimeout = time.Second

func (n *Node) leaveCluster() error {
	var err error
	if n.ring != nil {
		if err := n.ring.Leave(leaveTimeout); err != nil {
			n.log.Debug("leaving not announced by gossip", "err", err)
		}
		err = n.ring.Close()
	}
	if n.former != nil {
		_ = n.former.Close()
	}
	return err
}

// forgetRemoved drops what this node has stored about removed nodes, so that it no longer spreads it, and closes their connections soon.
func (n *Node) forgetRemoved(gone map[string]bool) {
	n.known.forgetRemoved()
	if err := n.former.ForgetRemoved(); err != nil {
		n.log.Warn("peers file still contains removed nodes", "err", err)
	}
	if n.ring != nil {
		for id := range gone {
			n.ring.Forget(id)
		}
	}
	if n.security != nil {
		n.background.Go(func() { n.security.DisconnectRemoved(n.ctx, gone) })
	}
}
