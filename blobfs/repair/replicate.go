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
)

// noTargetError means that an extent has too few replicas and no node accepts another.
type noTargetError struct {
	full, down int   // other nodes that are full, and that are down or draining
	last       error // error of the last node that was asked; nil if none was
}

func (e *noTargetError) Error() string {
	switch {
	case e.last != nil:
		return fmt.Sprintf("no node accepted a replica: %v", e.last)
	case e.full+e.down == 0:
		return "no other node for a replica"
	case e.down == 0:
		return "no node for a replica: all others are full"
	case e.full == 0:
		return fmt.Sprintf("no node for a replica: %d others are down or draining", e.down)
	}
	return fmt.Sprintf("no node for a replica: %d others are down or draining, and %d are full", e.down, e.full)
}

func (e *noTargetError) Unwrap() error { return e.last }

// errNoGood means that no replica is good.
var errNoGood = errors.New("no good replica is reachable")

// errListUnstable means that other nodes kept changing the holder list of an extent.
var errListUnstable = errors.New("holder list keeps changing")

// errHolderSilent means that a node that reported no good replica does not answer now.
var errHolderSilent = errors.New("node without a good replica does not answer")

// repairStepsMax bounds how often a task starts over because another node changed something.
const repairStepsMax = 8

// repairExtent does what an extent here needs, one step at a time.
func (k *Repairer) repairExtent(ctx context.Context, t task) error {
	extra := []string{t.extra}
	for range repairStepsMax {
		v := k.watch.view()
		sv, err := k.takeSurvey(ctx, v, t.id, extra...)
		if errors.Is(err, local.ErrNoExtent) {
			return nil
		}
		if err != nil {
			return err
		}
		again, err := k.step(ctx, v, t, sv)
		extra = slices.Concat(extra, sv.copied, sv.newer) // in case the list that names them was rejected
		switch {
		case errors.Is(err, api.ErrStaleHolders):
		case err != nil || !again:
			return err
		}
	}
	return errListUnstable
}

// step does the most urgent step for an extent, and reports whether there may be more.
func (k *Repairer) step(ctx context.Context, v *view, t task, sv *survey) (again bool, err error) {
	if sv.quarantined {
		return false, nil // garbage collection decides
	}
	if k.localBad(&sv.info) && k.selfListed(sv) {
		err := k.heal(ctx, sv)
		if err == nil || errors.Is(err, local.ErrNoExtent) {
			return true, nil
		}
		if !local.RefusesExtents(err) {
			k.count(func(c *Counts) { c.Unhealed++ })
			return false, err
		}
		if len(sv.held) > 0 && len(sv.good)+len(sv.goodDraining) > 0 {
			// This node is full. The nodes with a good replica see from the new list that one is
			// missing.
			return true, k.publish(ctx, sv, sv.held)
		}
	}
	if len(sv.staleLists) > 0 {
		if err := k.remote.sendList(ctx, t.id, sv.list, sv.staleLists); err != nil {
			return true, err
		}
	}
	self := k.self
	listed := k.selfListed(sv)
	short := k.targetReplicas(v) - len(sv.held)
	bad := k.localBad(&sv.info)
	candidates := sv.good
	if len(candidates) == 0 {
		candidates = sv.goodDraining
	}
	responsible := v.firstRanked(t.id, candidates) == self
	switch {
	case short > 0 && !listed && !bad && k.stateOf(v, self) == nodeLive:
		// The replica came back with a restarted node, or this node was taken off for another that
		// has failed since.
		return true, k.publish(ctx, sv, append(slices.Clone(sv.held), self))
	case short > 0 && (responsible || bad && len(candidates) == 0 || t.fallback && len(sv.repairing) == 0):
		return true, k.replicate(ctx, v, sv, short)
	case short > 0 && len(sv.held) > 0 && k.listNamesLost(sv) && k.stateOf(v, self) == nodeDraining:
		// The responsible node may not know that there are too few replicas. It sees it from the
		// list.
		return true, k.publish(ctx, sv, sv.held)
	case short <= 0 && (sv.conflicting || responsible && k.listNamesLost(sv)):
		// If lists of one epoch differ, only the nodes on one of them may know it.
		return true, k.publish(ctx, sv, sv.held)
	}
	if t.suspectNode != "" && short <= 0 && slices.Contains(sv.held, t.suspectNode) && !slices.Contains(sv.answered, t.suspectNode) {
		// The node counts as a holder while it is silent: no list shows that its replica is lost.
		return false, fmt.Errorf("%w: %s", errHolderSilent, t.suspectNode)
	}
	return k.trim(ctx, v, sv, responsible, listed)
}

// selfListed reports whether this node is on the list.
func (k *Repairer) selfListed(sv *survey) bool { return slices.Contains(sv.list.Nodes, k.self) }

// listNamesLost reports whether a live node on the list has reported that it has no good replica.
func (k *Repairer) listNamesLost(sv *survey) bool {
	return slices.ContainsFunc(sv.lost, func(n string) bool {
		return n != k.self && slices.Contains(sv.list.Nodes, n) && k.stateOf(k.watch.view(), n) <= nodeDraining
	})
}

// replicate makes n more nodes copy the extent and publishes the new list.
func (k *Repairer) replicate(ctx context.Context, v *view, sv *survey, n int) error {
	x := sv.info.ID
	from := slices.Concat(sv.good, sv.goodDraining)
	if len(from) == 0 && sv.info.Retired && !k.deps.Corruption.Has(x) {
		from = []string{k.self} // a retired disk may still be readable
	}
	if len(from) == 0 {
		return errNoGood
	}
	st, err := k.statAny(ctx, x, from)
	if err != nil {
		return err
	}
	tried := slices.Clone(sv.held)
	var copied []string
	var last error
	for len(copied) < n {
		target, ok := k.target(x, slices.Concat(sv.held, copied), tried)
		if !ok {
			break
		}
		tried = append(tried, target)
		list := local.Holders{Epoch: sv.epoch + 1, Nodes: slices.Sorted(slices.Values(slices.Concat(sv.held, copied, []string{target})))}
		if err := k.repairRate.wait(ctx, st.Length); err != nil {
			return err
		}
		if k.lostNodeReturned(v, sv) {
			return nil // a node came back with its replica: start over
		}
		if err := k.remote.copyTo(ctx, target, api.Copy{Ref: api.Ref{Extent: x, CRC: st.CRC}, From: rotate(x, from), Holders: list}, st.Length); err != nil {
			last = fmt.Errorf("copy to %s: %w", target, err)
			if errors.Is(err, api.ErrStaleHolders) {
				sv.newer = append(sv.newer, target)
				return last
			}
			if ctx.Err() != nil {
				return last
			}
			continue
		}
		sv.epoch++
		copied = append(copied, target)
		sv.copied = copied
		k.count(func(c *Counts) { c.Copied++; c.CopiedBytes += st.Length })
	}
	if len(copied) == 0 {
		return k.noTarget(sv.held, last)
	}
	nodes := slices.Concat(sv.held, copied)
	if len(copied) < n {
		// A node that is gone may come back with its replica: better than none.
		for _, g := range sv.lost {
			if slices.Contains(sv.list.Nodes, g) && k.stateOf(v, g) == nodeGone {
				nodes = append(nodes, g)
			}
		}
	}
	moment.Pass("before the list of a copied extent is published", "")
	return k.publish(ctx, sv, nodes)
}

// lostNodeReturned reports whether a node that was gone at the survey is back.
func (k *Repairer) lostNodeReturned(v *view, sv *survey) bool {
	now := k.watch.view()
	return slices.ContainsFunc(sv.lost, func(n string) bool { return k.stateOf(v, n) == nodeGone && k.stateOf(now, n) < nodeGone })
}

// noTarget returns why no node accepts a replica, apart from those that hold one.
func (k *Repairer) noTarget(held []string, last error) error {
	e := &noTargetError{last: last}
	for _, n := range k.deps.Peers.Nodes() {
		switch {
		case n.ID == k.self || slices.Contains(held, n.ID):
		case n.Draining:
			e.down++
		case n.Full:
			e.full++
		}
	}
	return e
}

// target chooses the node for one more replica.
func (k *Repairer) target(x local.ExtentID, taken, tried []string) (string, bool) {
	nodes := slices.DeleteFunc(k.deps.Peers.Nodes(), func(n place.Node) bool {
		return slices.Contains(tried, n.ID) && !slices.Contains(taken, n.ID)
	})
	// This node is no target: it heals its own replica, which is done elsewhere.
	taken = append(slices.Clone(taken), k.self)
	chosen := place.Choose(members.PlaceKey(x), nodes, taken, 1)
	if len(chosen) == 0 {
		return "", false
	}
	return chosen[0].ID, true
}

// rotate rotates the nodes by an amount that depends on the extent, to spread the read load.
func rotate(x local.ExtentID, nodes []string) []string {
	i := int(uint64(members.PlaceKey(x)) % uint64(len(nodes)))
	return slices.Concat(nodes[i:], nodes[:i])
}

// statAny returns the answer of the first node that answers.
func (k *Repairer) statAny(ctx context.Context, x local.ExtentID, nodes []string) (local.ExtentStat, error) {
	var errs []error
	if slices.Contains(nodes, k.self) {
		st, err := k.deps.Disks.StatExtent(ctx, x)
		if err == nil {
			return st, nil
		}
		k.deps.Corruption.RecordIfCorrupt(x, err)
		errs = append(errs, err)
	}
	for _, n := range nodes {
		if n == k.self {
			continue
		}
		st, err := k.remote.stat(ctx, n, x)
		if err == nil {
			return st, nil
		}
		errs = append(errs, err)
	}
	return local.ExtentStat{}, errors.Join(errs...)
}
