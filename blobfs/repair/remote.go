package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
)

// remote is what repair asks of other nodes.
type remote struct{ k *Repairer }

// checkAll asks nodes for one extent. Nodes that do not answer are left out of the result.
func (r *remote) checkAll(ctx context.Context, nodes []string, x local.ExtentID) map[string]api.Held {
	answers := map[string]api.Held{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, node := range nodes {
		group.Go(func() {
			if a, err := r.k.deps.Peers.Check(ctx, node, []local.ExtentID{x}); err == nil {
				mu.Lock()
				answers[node] = a[0]
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return answers
}

// sendList sends nodes a list. Nodes that do not answer get it when they are next asked.
func (r *remote) sendList(ctx context.Context, x local.ExtentID, h local.Holders, nodes []string) error {
	var stale error
	var mu sync.Mutex
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == r.k.self })
	r.k.deps.Peers.Each(ctx, nodes, func(ctx context.Context, p api.Peer) {
		if err := p.SetHolders(ctx, x, h); errors.Is(err, api.ErrStaleHolders) {
			mu.Lock()
			stale = err
			mu.Unlock()
		}
	})
	return stale
}

// stat asks a node for an extent.
func (r *remote) stat(ctx context.Context, node string, x local.ExtentID) (local.ExtentStat, error) {
	ctx, cancel := context.WithTimeout(ctx, r.k.deps.ReplyTimeout)
	defer cancel()
	p, err := r.k.deps.Peers.Peer(ctx, node)
	if err != nil {
		return local.ExtentStat{}, err
	}
	return p.Stat(ctx, x)
}

// transferTimeout is how long a node may take to copy or read an extent: as long as at a tenth of
// RepairBytes, plus two SealTimeouts.
func (r *remote) transferTimeout(length int64) time.Duration {
	return 2*r.k.deps.CallTimeout + time.Duration(10*float64(length)/float64(r.k.cfg.RepairBytes)*float64(time.Second))
}

// copyTo makes a node copy an extent from the nodes that c names.
func (r *remote) copyTo(ctx context.Context, node string, c api.Copy, length int64) error {
	ctx, cancel := context.WithTimeout(ctx, r.transferTimeout(length))
	defer cancel()
	p, err := r.k.deps.Peers.Peer(ctx, node)
	if err == nil {
		err = p.Copy(ctx, c)
	}
	if errors.Is(err, api.ErrUnreachable) {
		r.k.deps.Peers.Suspect(node)
	}
	return err
}

// verify makes a node read and verify its replica.
func (r *remote) verify(ctx context.Context, node string, ref api.Ref, length int64) error {
	ctx, cancel := context.WithTimeout(ctx, r.transferTimeout(length))
	defer cancel()
	p, err := r.k.deps.Peers.Peer(ctx, node)
	if err != nil {
		return err
	}
	return p.Verify(ctx, ref)
}

// verifyOne makes nodes verify their replicas, one after the other, until one is good. It returns
// errNoGood if none is.
func (r *remote) verifyOne(ctx context.Context, nodes []string, ref api.Ref, length int64) error {
	errs := []error{errNoGood}
	for _, node := range rotate(ref.Extent, nodes) {
		if err := r.k.verifyRate.wait(ctx, length); err != nil {
			return err
		}
		err := r.verify(ctx, node, ref, length)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("on %s: %w", node, err))
	}
	return errors.Join(errs...)
}
