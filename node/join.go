package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/steledb/stele/node/advertise"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/formation"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/identity"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/rpc"
)

// peersFile is the file in the first data directory that has the members of the cluster, for the next start.
const peersFile = "peers"

// newFormation creates the service that makes the node part of a cluster.
func (n *Node) newFormation() error {
	cfg := formation.Config{
		Self: formation.Peer{Name: n.cfg.Name, RPC: n.RPCAddr()}, Version: Version(),
		Join: n.cfg.Join, Expect: n.cfg.Expect, Keys: n.gossipKey.Keys(), Certified: n.security != nil,
		Store: &n.self, FS: n.cfg.FS, PeersFile: filepath.Join(n.cfg.DataDirs[0], peersFile),
		Found: n.security.Cluster(), Dialer: connector{n}.toAny,
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
	service, err := formation.New(cfg)
	n.formation = service
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
	n.life.enter("other nodes, to form or join a cluster")
	out, err := n.formation.Run(ctx)
	if err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	if want := n.security.Cluster(); want != "" && out.Cluster != want {
		return fmt.Errorf("join the cluster: it is %s, but the node's certificate belongs to %s", out.Cluster, want)
	}
	return n.members.Start(n.formation, out.Members, gossip.Config{
		Bind: n.cfg.Gossip, Open: n.cfg.Network.Gossip, Advertise: advertise.Host(n.cfg.Advertise), Keys: n.gossipKey.Keys(), StreamMemory: n.cfg.budget().GossipStreams,
	})
}

// admit refuses a node that was removed from the cluster. Other errors, those of the lock service, mean that this is not known now.
func (n *Node) admit(ctx context.Context, p formation.Peer) error {
	if !n.life.serving.Load() {
		return nil // a removed node is rejected when it registers
	}
	err := n.removed.Check(ctx, p.ID)
	if errors.Is(err, removal.ErrRemoved) {
		return &formation.RefusedError{Reason: err.Error()}
	}
	return err
}

func (n *Node) leaveCluster() error {
	reason := ""
	if failure := n.life.failure(); failure != nil {
		reason = failure.Error()
	}
	err := n.members.Leave(reason)
	if n.formation != nil {
		_ = n.formation.Close()
	}
	return err
}
