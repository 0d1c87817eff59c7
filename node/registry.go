package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/namespace"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// record is the content of a node's file. It is JSON because people read it.
type record struct {
	Name string `json:"name"`
	Zone string `json:"zone,omitempty"`
	RPC  string `json:"rpc"`
	// Draining: the node shall have no vote and take no new data.
	Draining bool `json:"draining,omitempty"`
}

// register writes this node's file, and keeps the operators' settings in it.
func (n *Node) register(ctx context.Context) error {
	for {
		var r record
		f, err := n.catalog.Meta.Get(ctx, namespace.NodePath(n.id()))
		gen := uint64(0)
		switch {
		case err == nil:
			gen = f.Generation
			if err := json.Unmarshal(f.Data, &r); err != nil {
				return fmt.Errorf("read %s: %w", namespace.NodePath(n.id()), err)
			}
		case !errors.Is(err, metaapi.ErrNotFound):
			return err
		}
		want := record{Name: n.cfg.Name, Zone: n.cfg.Zone, RPC: n.RPCAddr(), Draining: r.Draining}
		if err == nil && r == want {
			return nil
		}
		b, err := json.Marshal(want)
		if err != nil {
			return err
		}
		_, err = n.catalog.Set(ctx, namespace.NodePath(n.id()), b, gen)
		if !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
	}
}

// clusterNode is a node as the registry and gossip know it.
type clusterNode struct {
	id string
	record
	gossip.Member // State is 0 if gossip does not know the node
}

// fleet returns all nodes of the cluster, ordered by id. The files mostly come from the session's cache, which is never stale.
func (n *Node) fleet(ctx context.Context) ([]clusterNode, error) {
	ids, err := n.catalog.List(ctx, namespace.NodesDir)
	if err != nil {
		return nil, err
	}
	s := n.meta.Current()
	var all []clusterNode
	for _, id := range ids {
		f, err := s.Get(ctx, namespace.NodePath(id))
		if errors.Is(err, metaapi.ErrNotFound) { // removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		x := clusterNode{id: id}
		if err := json.Unmarshal(f.Data, &x.record); err != nil {
			n.refused.WarnError(n.log, "node skipped: its record is damaged", err, "file", namespace.NodePath(id))
			continue
		}
		x.Member, _ = n.member(id)
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b clusterNode) int { return strings.Compare(a.id, b.id) })
	return all, nil
}

// member returns the gossip state of a node.
func (n *Node) member(id string) (gossip.Member, bool) {
	if n.ring != nil {
		return n.ring.Member(id)
	}
	if id == n.id() {
		return gossip.Member{Meta: n.selfMeta(), State: gossip.Alive, Since: n.started, Self: true}, true
	}
	return gossip.Member{}, false
}

// servers returns the nodes in the form that the master plans with.
func (n *Node) servers(ctx context.Context) ([]master.Server, error) {
	all, err := n.fleet(ctx)
	if err != nil {
		return nil, err
	}
	var servers []master.Server
	for _, x := range all {
		since := x.Since
		if x.State == 0 { // no gossip since this node started
			since = n.started
		}
		servers = append(servers, master.Server{
			ID: x.id, Zone: x.record.Zone, Alive: x.State == gossip.Alive, Since: time.Since(since), Draining: x.Draining,
			HasLog: x.Voter && x.RaftEpoch == n.raftEpoch(), Full: n.full(x),
		})
	}
	return servers, nil
}

// full reports whether a node's disk has no space left.
func (n *Node) full(x clusterNode) bool {
	if x.id == n.id() {
		if group, _ := n.voter.group(); group != nil {
			return group.DiskFull()
		}
	}
	return x.State == gossip.Alive && x.FreeBytes == 0 && x.CapacityBytes > 0
}

// find returns the node with that id or name. The error is api.ErrNodeNotFound, also for a name of several nodes.
func (n *Node) find(ctx context.Context, name string) (clusterNode, error) {
	all, err := n.fleet(ctx)
	if err != nil {
		return clusterNode{}, err
	}
	var found []clusterNode
	for _, x := range all {
		if x.id == name {
			return x, nil
		}
		if x.record.Name == name {
			found = append(found, x)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return clusterNode{}, fmt.Errorf("node %q: %w", name, api.ErrNodeNotFound)
	}
	return clusterNode{}, fmt.Errorf("%d nodes are named %q, give an id: %w", len(found), name, api.ErrNodeNotFound)
}

// setDraining marks a node as draining, or not.
func (n *Node) setDraining(ctx context.Context, name string, draining bool) error {
	x, err := n.find(ctx, name)
	if err != nil {
		return err
	}
	for {
		f, err := n.catalog.Meta.Get(ctx, namespace.NodePath(x.id))
		if err != nil {
			return err
		}
		var r record
		if err := json.Unmarshal(f.Data, &r); err != nil {
			return err
		}
		if r.Draining == draining {
			return nil
		}
		r.Draining = draining
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err = n.catalog.Set(ctx, namespace.NodePath(x.id), b, f.Generation); !errors.Is(err, metaapi.ErrGeneration) {
			return err
		}
	}
}
