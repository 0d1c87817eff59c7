package nodeadmin

import (
	"context"
	"fmt"
	"slices"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/gossip"
	"github.com/steledb/stele/node/members"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/removal"
	"github.com/steledb/stele/node/reply"
)

// removeNode removes a node from the cluster for good.
func (sv *Service) removeNode(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
	by := authz.RequestIn(ctx)
	forwarded := by.Caller != nil && by.Caller.Forwarded // forwarded by another node, which returns the answer
	return nil, sv.Changes.Do(ctx, by, func(ctx context.Context) error { return sv.remove(ctx, r.Names[0], r.Force, forwarded) })
}

// remove removes a node, within a change: the next change sees its mark.
func (sv *Service) remove(ctx context.Context, name string, force, forwarded bool) error {
	short, cancel := context.WithTimeout(ctx, removal.MarkTimeout)
	defer cancel()
	x, err := sv.removable(short, name, force, forwarded)
	if err != nil {
		if short.Err() != nil && ctx.Err() == nil {
			return reply.Recode(api.ErrUnavailable, fmt.Errorf("check that node %q may be removed: %w", name, err))
		}
		return err
	}
	if err := sv.Removed.Mark(ctx, x.ID, x.Record.Name); err != nil {
		return err
	}
	sv.Log.Info("node removed from the cluster", "node", x.ID, "name", x.Record.Name)
	return nil
}

// removable returns the node with that id or name if it may be removed now, otherwise an *api.NodeInUseError.
func (sv *Service) removable(ctx context.Context, name string, force, forwarded bool) (members.Node, error) {
	x, err := sv.Members.Find(ctx, name)
	switch {
	case err != nil:
		return x, err
	case x.State == gossip.Alive && !force:
		return x, &api.NodeInUseError{Node: x.ID, Reason: "it is alive: stop it first"}
	case x.ID == sv.Self.ID() && !forwarded:
		return x, &api.NodeInUseError{Node: x.ID, Reason: "it is the node that was asked: ask another one"}
	}
	return x, sv.CheckQuorumWithout(ctx, x.ID)
}

// CheckQuorumWithout rejects a removal that would leave the lock service without a majority of live voters at once: a node that is marked as
// removed stops before the group has replaced it. Nodes that were marked earlier and have not stopped yet do not count as live.
func (sv *Service) CheckQuorumWithout(ctx context.Context, id string) error {
	gone, err := sv.Catalog.List(ctx, namespace.RemovedDir)
	if err != nil {
		return err
	}
	s, err := sv.groupStatus(ctx)
	if err != nil {
		return err
	}
	return checkQuorum(s.Servers, gone, id)
}

// checkQuorum returns an *api.NodeInUseError if the servers would be left without a majority of live voters without the node with that id.
// The nodes in gone do not count as live.
func checkQuorum(servers []api.RaftServer, gone []string, id string) error {
	voters, live, votes := 0, 0, false
	for _, r := range servers {
		if !r.Voter {
			continue
		}
		voters++
		votes = votes || r.ID == id
		if r.ID != id && r.Alive && !slices.Contains(gone, r.ID) {
			live++
		}
	}
	if votes && live <= voters/2 {
		return &api.NodeInUseError{Node: id, Reason: fmt.Sprintf(
			"only %d of %d voters of the lock service would be left, and it takes %d: drain the node first, or bring others back", live, voters, voters/2+1)}
	}
	return nil
}
