package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// survey is the state of an extent's replicas, after asking the nodes that may have one.
type survey struct {
	info  local.ExtentInfo
	list  local.Holders // the newest list; this node has stored it, unless its folder is retired
	epoch uint64        // the highest epoch on any node
	// good are nodes with a good replica. held are these, nodes that may have one (silent or down),
	// and nodes that are healing theirs. Draining nodes are in neither: goodDraining are those of
	// them with a good replica.
	good, held, goodDraining []string
	// lost are on the list and have no good replica. corrupt have one that is corrupt or on a
	// failing disk.
	lost, corrupt []string
	// staleLists have an older list. conflicting means that different lists have the same epoch.
	staleLists  []string
	conflicting bool
	quarantined bool
	repairing   []string // nodes that report that they repair the extent
	copied      []string // nodes that have made a replica since the survey
	newer       []string // nodes with a newer list that were not asked
	answered    []string // nodes that answered
}

// takeSurvey asks the nodes that may have an extent and stores the newest list. It repeats this
// while lists name further nodes.
func (k *Repairer) takeSurvey(ctx context.Context, v *view, x local.ExtentID, extra ...string) (*survey, error) {
	var sv survey
	answers := map[string]api.Held{}
	done := map[string]bool{k.self: true}
	for {
		var err error
		if sv.info, err = k.deps.Disks.ExtentInfo(x); err != nil {
			return nil, err
		}
		sv.list = k.holders(&sv.info)
		for node, a := range answers {
			if a.State == api.Missing || a.Holders.Epoch < sv.list.Epoch {
				continue
			}
			if a.Holders.Epoch > sv.list.Epoch {
				sv.list = a.Holders
				if err := k.deps.Disks.SetHolders(ctx, x, a.Holders); err != nil && !sv.info.Retired {
					return nil, fmt.Errorf("store holder list of %s: %w", node, err)
				}
			}
		}
		nodes := slices.Concat(sv.list.Nodes, extra)
		for _, a := range answers {
			if a.Holders.Epoch == sv.list.Epoch {
				nodes = append(nodes, a.Holders.Nodes...)
			}
		}
		nodes = slices.DeleteFunc(nodes, func(n string) bool {
			old := done[n]
			done[n] = true
			return n == "" || old || k.stateOf(v, n) >= nodeDown || k.deps.Peers.Suspected(n)
		})
		if len(nodes) == 0 {
			break
		}
		for node, a := range k.remote.checkAll(ctx, nodes, x) {
			answers[node] = a
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if !k.localBad(&sv.info) {
		answers[k.self] = api.Held{State: api.Good, Holders: sv.list, Length: sv.info.Length}
	} else {
		answers[k.self] = api.Held{State: api.Bad, Holders: sv.list}
	}
	k.classify(v, &sv, answers)
	return &sv, nil
}

// classify sorts the nodes by their answers. A node with a good replica counts even if its list is
// older, or is a different one of the same epoch.
func (k *Repairer) classify(v *view, sv *survey, answers map[string]api.Held) {
	sv.epoch = sv.list.Epoch
	names := slices.Clone(sv.list.Nodes)
	for node, a := range answers {
		if a.State == api.Good && a.Holders.Epoch < sv.list.Epoch {
			sv.staleLists = append(sv.staleLists, node)
		}
		if a.State != api.Missing && a.Holders.Epoch == sv.list.Epoch && !slices.Equal(a.Holders.Nodes, sv.list.Nodes) {
			sv.conflicting = true
			if !slices.Contains(names, node) {
				names = append(names, node)
			}
		}
	}
	slices.Sort(names)
	for _, node := range names {
		a, answered := answers[node]
		st := k.stateOf(v, node)
		if answered {
			sv.answered = append(sv.answered, node)
		}
		if a.State == api.Quarantined {
			sv.quarantined = true
		}
		if a.Repairs {
			sv.repairing = append(sv.repairing, node)
		}
		if answered && a.State == api.Bad && node != k.self {
			sv.corrupt = append(sv.corrupt, node)
		}
		switch {
		case st == nodeLive && answered && a.State == api.Bad && a.Repairs && node != k.self:
			sv.held = append(sv.held, node)
		case st == nodeGone || answered && a.State != api.Good:
			sv.lost = append(sv.lost, node)
		case st == nodeDraining && answered:
			sv.goodDraining = append(sv.goodDraining, node)
		case st == nodeDraining:
		default:
			sv.held = append(sv.held, node)
			if answered {
				sv.good = append(sv.good, node)
			}
		}
	}
	// A draining node that is off the list may have the last replica, if those on the list have
	// lost theirs.
	self := k.self
	if answers[self].State == api.Good && k.stateOf(v, self) == nodeDraining && !slices.Contains(names, self) {
		sv.goodDraining = append(sv.goodDraining, self)
	}
}

// publish sends a new list to the nodes on it and to those on the old one, which may then drop
// their replicas. This node stores it last. It returns ErrStaleHolders if any node has a newer
// list.
func (k *Repairer) publish(ctx context.Context, sv *survey, nodes []string) error {
	if len(nodes) == 0 {
		return errNoGood // an empty list would take the last replica off
	}
	nodes = nodes[:min(len(nodes), local.HoldersMax)]
	x := sv.info.ID
	h := local.Holders{Epoch: sv.epoch + 1, Nodes: slices.Clone(nodes)}
	slices.Sort(h.Nodes)
	sv.epoch++
	to := slices.Clone(h.Nodes)
	for _, n := range slices.Concat(sv.list.Nodes, sv.goodDraining) {
		if !slices.Contains(to, n) && k.stateOf(k.watch.view(), n) <= nodeDraining {
			to = append(to, n)
		}
	}
	if err := k.remote.sendList(ctx, x, h, to); err != nil {
		return err
	}
	err := k.deps.Disks.SetHolders(ctx, x, h)
	if errors.Is(err, local.ErrFolderRetired) {
		err = nil
	}
	sv.list = h
	return err
}
