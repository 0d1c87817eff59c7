package repair

import (
	"slices"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/internal/timing"
)

// auditor asks other nodes whether they have the replicas that they should.
type auditor struct{ k *Repairer }

// run asks other nodes whether they have the replicas that they should.
func (a *auditor) run() {
	for {
		if nodes := a.k.watch.auditsDue(); len(nodes) > 0 {
			a.audit(nodes)
		}
		if timing.SleepOn(a.k.ctx, a.k.deps.Clock, tickEvery) != nil {
			return
		}
	}
}

// audit asks nodes for the extents here that they should or may have: those whose list names the
// node, and those for which placement ranks it first, because a partition may have left a replica
// that no local list names. Nodes with a true value are asked for all extents.
func (a *auditor) audit(nodes map[string]bool) {
	v := a.k.watch.view()
	batches := map[string][]local.ExtentInfo{}
	flush := func(node string) {
		if b := batches[node]; len(b) > 0 && !a.auditBatch(node, b) {
			a.k.watch.auditFailed(node)
			delete(nodes, node)
		}
		delete(batches, node)
	}
	after := local.ExtentID{Index: -1}
	for a.k.ctx.Err() == nil && len(nodes) > 0 {
		infos := a.k.deps.Disks.ListExtents(after, scanPage)
		for _, x := range infos {
			topRanked := v.topRanked(x.ID, a.k.deps.Replicas)
			for node, whole := range nodes {
				if !whole && !slices.Contains(x.Holders.Nodes, node) && !slices.Contains(topRanked, node) {
					continue
				}
				if batches[node] = append(batches[node], x); len(batches[node]) == api.CheckMax {
					flush(node)
				}
			}
		}
		if len(infos) < scanPage {
			break
		}
		after = infos[len(infos)-1].ID
	}
	for node := range nodes {
		flush(node)
	}
	for node := range nodes {
		a.k.watch.auditSucceeded(node)
	}
}

// auditBatch asks a node for extents that it should or may have, and queues tasks for the
// differences. It returns false if the node did not answer.
func (a *auditor) auditBatch(node string, infos []local.ExtentInfo) bool {
	xs := make([]local.ExtentID, len(infos))
	for i := range infos {
		xs[i] = infos[i].ID
	}
	all, err := a.k.deps.Peers.Check(a.k.ctx, node, xs)
	if err != nil {
		return false
	}
	for i, held := range all {
		x := &infos[i]
		t := task{id: x.ID, created: x.Created, rank: max(len(x.Holders.Nodes)-1, 1), bytes: x.Length}
		switch {
		case !slices.Contains(a.k.holders(x).Nodes, node):
			if held.State != api.Missing && held.State != api.Quarantined {
				t.rank, t.extra = taskSurplus, node
				a.k.queue.push(t)
			}
		case held.State != api.Good:
			t.suspectNode = node
			a.k.queue.push(t)
		case held.Holders.Epoch != x.Holders.Epoch || !slices.Equal(held.Holders.Nodes, x.Holders.Nodes):
			t.rank = taskSurplus
			a.k.queue.push(t)
		}
	}
	return true
}
