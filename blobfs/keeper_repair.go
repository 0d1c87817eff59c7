package blobfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/place"
)

// noTakerError means that there are too few replicas and no node that takes one.
type noTakerError struct {
	full, away int   // other nodes that have no room, and that do not answer or leave
	last       error // what the last that was asked said; nil if none was
}

func (e *noTakerError) Error() string {
	switch {
	case e.last != nil:
		return fmt.Sprintf("no node took a replica: %v", e.last)
	case e.full+e.away == 0:
		return "there is no other node for a replica"
	case e.away == 0:
		return "no node has room for a replica"
	case e.full == 0:
		return fmt.Sprintf("no node is there for a replica: %d more do not answer, or leave", e.away)
	}
	return fmt.Sprintf("no node is there for a replica: %d more do not answer, or leave, and %d have no room", e.away, e.full)
}

func (e *noTakerError) Unwrap() error { return e.last }

// errNoGood means that no replica is good.
var errNoGood = errors.New("no good replica is reachable")

// errUnsettled means that others kept changing the list of an extent.
var errUnsettled = errors.New("its list of holders changes all the time")

// errDoubted means that a node that said it has no good replica does not answer now.
var errDoubted = errors.New("a node that had no good replica does not answer")

// tendMax bounds how often a task begins anew because somebody else did something.
const tendMax = 8

// tend does what an extent here needs, step by step.
func (k *keeper) tend(ctx context.Context, t task) error {
	also := []string{t.also}
	for range tendMax {
		v := k.watch.view()
		sv, err := k.ask(ctx, v, t.id, also...)
		if errors.Is(err, local.ErrNoExtent) {
			return nil
		}
		if err != nil {
			return err
		}
		again, err := k.step(ctx, v, t, sv)
		also = slices.Concat(also, sv.made, sv.newer) // if the list that names them was not taken
		switch {
		case errors.Is(err, api.ErrStaleHolders):
		case err != nil || !again:
			return err
		}
	}
	return errUnsettled
}

// step does the most urgent thing for an extent, and tells whether there may be more.
func (k *keeper) step(ctx context.Context, v *view, t task, sv *survey) (again bool, err error) {
	if sv.unwanted {
		return false, nil // the sweep decides
	}
	if k.bad(&sv.info) && k.listsThis(sv) {
		err := k.heal(ctx, sv)
		if err == nil || errors.Is(err, local.ErrNoExtent) {
			return true, nil
		}
		if !goesElsewhere(err) {
			k.count(func(c *KeepCounts) { c.Unhealed++ })
			return false, err
		}
		if len(sv.held) > 0 && len(sv.good)+len(sv.goodLeaving) > 0 {
			// There is no room here. Those that have a good one see from the list that it is one less.
			return true, k.publish(ctx, sv, sv.held)
		}
	}
	if len(sv.behind) > 0 {
		if err := k.tell(ctx, t.id, sv.list, sv.behind); err != nil {
			return true, err
		}
	}
	self := k.s.self
	listed := k.listsThis(sv)
	short := k.want(v) - len(sv.held)
	bad := k.bad(&sv.info)
	among := sv.good
	if len(among) == 0 {
		among = sv.goodLeaving
	}
	mine := v.first(t.id, among) == self
	switch {
	case short > 0 && !listed && !bad && k.of(v, self) == present:
		// What came back with its old data, or was taken off a list for another that failed since.
		return true, k.publish(ctx, sv, append(slices.Clone(sv.held), self))
	case short > 0 && (mine || bad && len(among) == 0 || t.behind && len(sv.repairs) == 0):
		return true, k.replicate(ctx, v, sv, short)
	case short > 0 && len(sv.held) > 0 && k.listHasLost(sv) && k.of(v, self) == leaving:
		// Who is to make one may not know that there are too few, and sees it from the list.
		return true, k.publish(ctx, sv, sv.held)
	case short <= 0 && (sv.torn || mine && k.listHasLost(sv)):
		// Of lists of one epoch that differ, only nodes that are on one of them may know.
		return true, k.publish(ctx, sv, sv.held)
	}
	if t.doubted != "" && short <= 0 && slices.Contains(sv.held, t.doubted) && !slices.Contains(sv.heard, t.doubted) {
		// It counts as one that has a replica, since it is silent: no list tells that it is not.
		return false, fmt.Errorf("%w: %s", errDoubted, t.doubted)
	}
	return k.trim(ctx, v, sv, mine, listed)
}

// listsThis tells whether this node is on the list.
func (k *keeper) listsThis(sv *survey) bool { return slices.Contains(sv.list.Nodes, k.s.self) }

// listHasLost tells whether a node that is there is on the list and says that it has no good replica.
func (k *keeper) listHasLost(sv *survey) bool {
	return slices.ContainsFunc(sv.lost, func(n string) bool {
		return n != k.s.self && slices.Contains(sv.list.Nodes, n) && k.of(k.watch.view(), n) <= leaving
	})
}

// replicate has n more nodes make a replica, and gives all the new list.
func (k *keeper) replicate(ctx context.Context, v *view, sv *survey, n int) error {
	x := sv.info.ID
	from := slices.Concat(sv.good, sv.goodLeaving)
	if len(from) == 0 && sv.info.Retired && !k.s.rot.has(x) {
		from = []string{k.s.self} // its disk may well be read
	}
	if len(from) == 0 {
		return errNoGood
	}
	st, err := k.statAny(ctx, x, from)
	if err != nil {
		return err
	}
	tried := slices.Clone(sv.held)
	var made []string
	var last error
	for len(made) < n {
		target, ok := k.target(x, slices.Concat(sv.held, made), tried)
		if !ok {
			break
		}
		tried = append(tried, target)
		list := Holders{Epoch: sv.epoch + 1, Nodes: slices.Sorted(slices.Values(slices.Concat(sv.held, made, []string{target})))}
		if err := k.repairs.wait(ctx, st.Length); err != nil {
			return err
		}
		if k.returned(v, sv) {
			return nil // a node came back with its replica: begin anew
		}
		if err := k.copyTo(ctx, target, api.Copy{Ref: api.Ref{Extent: x, CRC: st.CRC}, From: spin(x, from), Holders: list}, st.Length); err != nil {
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
		made = append(made, target)
		sv.made = made
		k.count(func(c *KeepCounts) { c.Copied++; c.CopiedBytes += st.Length })
	}
	if len(made) == 0 {
		return k.noTaker(sv.held, last)
	}
	nodes := slices.Concat(sv.held, made)
	if len(made) < n {
		// Who is gone may come back with what it has: better than nothing.
		for _, g := range sv.lost {
			if slices.Contains(sv.list.Nodes, g) && k.of(v, g) == gone {
				nodes = append(nodes, g)
			}
		}
	}
	return k.publish(ctx, sv, nodes)
}

// returned tells whether a node that was gone when an extent was surveyed is there again.
func (k *keeper) returned(v *view, sv *survey) bool {
	now := k.watch.view()
	return slices.ContainsFunc(sv.lost, func(n string) bool { return k.of(v, n) == gone && k.of(now, n) < gone })
}

// noTaker says why no node takes a replica, beside those that hold one.
func (k *keeper) noTaker(held []string, last error) error {
	e := &noTakerError{last: last}
	for _, n := range k.s.nodes() {
		switch {
		case n.ID == k.s.self || slices.Contains(held, n.ID):
		case n.Leaving:
			e.away++
		case n.Full:
			e.full++
		}
	}
	return e
}

// target chooses the node for one more replica.
func (k *keeper) target(x ExtentID, taken, tried []string) (string, bool) {
	nodes := slices.DeleteFunc(k.s.nodes(), func(n place.Node) bool {
		return slices.Contains(tried, n.ID) && !slices.Contains(taken, n.ID)
	})
	// This node is a target only if it heals, which is done elsewhere.
	taken = append(slices.Clone(taken), k.s.self)
	chosen := place.Choose(placeKey(x), nodes, taken, 1)
	if len(chosen) == 0 {
		return "", false
	}
	return chosen[0].ID, true
}

// spin returns the nodes from another one on for each extent, so that all are read from.
func spin(x ExtentID, nodes []string) []string {
	i := int(uint64(placeKey(x)) % uint64(len(nodes)))
	return slices.Concat(nodes[i:], nodes[:i])
}

// statAny returns what the first of the nodes says that answers.
func (k *keeper) statAny(ctx context.Context, x ExtentID, nodes []string) (local.ExtentStat, error) {
	var errs []error
	if slices.Contains(nodes, k.s.self) {
		st, err := k.s.disks.StatExtent(ctx, x)
		if err == nil {
			return st, nil
		}
		k.s.judgeRead(x, err)
		errs = append(errs, err)
	}
	for _, n := range nodes {
		if n == k.s.self {
			continue
		}
		st, err := k.stat(ctx, n, x)
		if err == nil {
			return st, nil
		}
		errs = append(errs, err)
	}
	return local.ExtentStat{}, errors.Join(errs...)
}

func (k *keeper) stat(ctx context.Context, node string, x ExtentID) (local.ExtentStat, error) {
	ctx, cancel := context.WithTimeout(ctx, k.s.cluster.ReplyTimeout)
	defer cancel()
	p, err := k.s.peer(ctx, node)
	if err != nil {
		return local.ExtentStat{}, err
	}
	return p.Stat(ctx, x)
}

// transferTimeout is how long a node may take to copy or read an extent: as long as it takes at a tenth of the rate.
func (k *keeper) transferTimeout(length int64) time.Duration {
	return 2*k.s.cluster.SealTimeout + time.Duration(10*float64(length)/float64(k.cfg.RepairBytes)*float64(time.Second))
}

// copyTo has a node pull an extent.
func (k *keeper) copyTo(ctx context.Context, node string, c api.Copy, length int64) error {
	ctx, cancel := context.WithTimeout(ctx, k.transferTimeout(length))
	defer cancel()
	p, err := k.s.peer(ctx, node)
	if err == nil {
		err = p.Copy(ctx, c)
	}
	if errors.Is(err, api.ErrUnreachable) {
		k.s.peers.suspect(node)
	}
	return err
}

// take bounds what is copied here at a time, and how fast. done must be called.
func (k *keeper) take(ctx context.Context) (done func(), err error) {
	if k == nil {
		return func() {}, nil
	}
	select {
	case k.taking <- struct{}{}:
		return func() { <-k.taking }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// yieldAfter is how long a read of 512 KiB takes on a disk that is busy with what somebody waits for.
const yieldAfter = 50 * time.Millisecond

// yield rests as long as a read took, if the disk it came from is busy.
func (k *keeper) yield(ctx context.Context, took time.Duration) {
	if k != nil && took > yieldAfter {
		_ = sleep(ctx, k.s.cluster.Clock, took)
	}
}

// pace waits until n bytes may be copied here.
func (k *keeper) pace(ctx context.Context, n int64) error {
	if k == nil {
		return nil
	}
	return k.taken.wait(ctx, n)
}
