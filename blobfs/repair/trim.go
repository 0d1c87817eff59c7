package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/blobfs/place"
	"github.com/steledb/stele/internal/moment"
	"github.com/steledb/stele/internal/planted"
)

// membershipStable reports whether membership has been unchanged for TrimAfter. Nothing is dropped
// before that: a surplus replica may be needed again when the next node leaves.
func (k *Repairer) membershipStable(v *view) bool {
	return k.deps.Clock.Now()-v.changed > k.cfg.TrimAfter
}

// surplus reports whether an extent with enough replicas has one to drop or a holder to take off
// the list.
func (k *Repairer) surplus(v *view, h local.Holders, listed, responsible bool, survivors int) bool {
	switch {
	case k.stateOf(v, k.self) == nodeDraining:
		return true
	case !k.membershipStable(v):
		return false
	}
	return !listed || responsible && survivors > k.deps.Replicas
}

// trim drops the local replica if it is surplus, or shortens the list if it has more nodes than the
// replication factor. Dropping takes two steps, which may be far apart. First a list without the
// node is published. Once the node has that list, it asks the nodes on it. It drops its replica if
// enough of them have theirs and the same list, and one of them has verified its replica. A node on
// the list never drops, so the nodes that answered still have theirs.
func (k *Repairer) trim(ctx context.Context, v *view, sv *survey, responsible, listed bool) (again bool, err error) {
	r := k.deps.Replicas
	self := k.stateOf(v, k.self)
	switch {
	case self == nodeDraining:
		// Dead members count: they may come back.
		need := max(1, min(r, v.remaining))
		if len(sv.good) < need {
			return false, nil
		}
		if listed {
			return true, k.publish(ctx, sv, sv.held)
		}
		return false, k.dropSurplus(ctx, v, sv, need)
	case !k.membershipStable(v):
		return false, nil
	case !listed:
		return false, k.dropSurplus(ctx, v, sv, r)
	case responsible && len(sv.good) > r && len(sv.good) == len(sv.held):
		return true, k.publish(ctx, sv, k.chooseHolders(v, sv, r))
	}
	return false, nil
}

// chooseHolders chooses n of the nodes that have an extent.
func (k *Repairer) chooseHolders(v *view, sv *survey, n int) []string {
	var nodes []place.Node
	for _, m := range v.members {
		if slices.Contains(sv.good, m.ID) {
			nodes = append(nodes, place.Node{ID: m.ID, Zone: m.Zone, CapacityBytes: m.CapacityBytes})
		}
	}
	var ids []string
	for _, c := range place.Choose(members.PlaceKey(sv.info.ID), nodes, nil, n) {
		ids = append(ids, c.ID)
	}
	return ids
}

// dropSurplus drops the local replica of an extent whose list does not name this node. At least
// need nodes on the list must have answered that they have the same bytes and the same list, and
// one of them must have verified its replica. Disk corruption is noticed only by reading, so the
// local replica may be the last good one. It returns errNoGood if none of the others is good.
func (k *Repairer) dropSurplus(ctx context.Context, v *view, sv *survey, need int) error {
	x := sv.info.ID
	if planted.On(planted.ReplicaCountsItself) {
		need = max(1, need-1)
	}
	mine, err := k.deps.Disks.StatExtent(ctx, x)
	if err != nil {
		k.deps.Corruption.RecordIfCorrupt(x, err)
	}
	var confirmed []string
	ref := api.Ref{Extent: x, CRC: mine.CRC}
	for _, node := range sv.list.Nodes {
		if node == k.self || k.stateOf(v, node) != nodeLive {
			continue
		}
		st, errStat := k.remote.stat(ctx, node, x)
		if errStat != nil || err == nil && (st.CRC != mine.CRC || st.Length != mine.Length) {
			continue
		}
		if st.Holders.Epoch == sv.list.Epoch && slices.Equal(st.Holders.Nodes, sv.list.Nodes) {
			confirmed = append(confirmed, node)
			ref.CRC = st.CRC
		}
	}
	if len(confirmed) < need || slices.Contains(sv.list.Nodes, k.self) {
		return nil
	}
	if !planted.On(planted.LastReplicaDropped) {
		if err := k.remote.verifyOne(ctx, confirmed, ref, sv.info.Length); err != nil {
			return fmt.Errorf("keep local replica: %w", err)
		}
	}
	err = k.dropLocal(ctx, x, sv.info.Holders)
	switch {
	case errors.Is(err, local.ErrStaleHolders), errors.Is(err, local.ErrExtentExists):
		return nil
	case err == nil:
		k.count(func(c *Counts) { c.Trimmed++; c.TrimmedBytes += sv.info.Length })
	}
	return err
}

// dropLocal drops this node's replica of an extent if its holder list is still h.
func (k *Repairer) dropLocal(ctx context.Context, x local.ExtentID, h local.Holders) error {
	k.deps.Forget(x)
	defer k.deps.Forget(x)
	moment.Pass("before a surplus replica is dropped", "")
	err := k.deps.Disks.DropExtentIf(ctx, x, h)
	if err == nil {
		k.deps.Corruption.Clear(x)
	}
	return err
}
