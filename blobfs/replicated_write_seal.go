package blobfs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/internal/moment"
)

// Seal implements local.ExtentSink. On return the extent is durable on all its nodes, and each has
// the holder list. Nodes that fail while sealing are replaced; if no node is available there are
// fewer.
func (x *replicatedWrite) Seal(ctx context.Context, last bool) (ExtentRef, error) {
	if len(x.sealed) > 0 {
		return x.sealAgain(ctx)
	}
	// All nodes must have the bytes first. If the local disk fills up with the last bytes, its
	// replica is lost, and other nodes may have to be filled from it.
	for !x.settle() {
	}
	x.last = last
	x.ref = ExtentRef{Index: x.id.Index, Length: x.length, CRC: x.tableCRC()}
	var errLocal error
	lists := 0 // how many different holder lists were sent
	for {
		if err := ctx.Err(); err != nil {
			return ExtentRef{}, err
		}
		pending := len(x.branches) > 0 || x.localReplica != nil && !slices.Contains(x.sealed, x.s.self)
		if !pending {
			break
		}
		x.epoch++
		lists++
		if err := x.sealRound(ctx); err != nil {
			errLocal = err
		}
		x.replace()
	}
	if len(x.sealed) == 0 {
		return ExtentRef{}, fmt.Errorf("seal extent %s: %w", x.id, errors.Join(errLocal, api.ErrUnreachable))
	}
	if lists > 1 || len(x.sealed) < x.planned {
		x.sendHolders()
	}
	moment.Pass("an extent is sealed", "")
	x.ref.Replicas = slices.Clone(x.sealed)
	x.s.repairer.ListChanged(x.id, Holders{Nodes: x.sealed})
	return x.ref, nil
}

// sealRound seals the extent wherever it is not sealed yet. The branches left afterwards are nodes
// that were behind a failed node.
func (x *replicatedWrite) sealRound(ctx context.Context) error {
	holders := Holders{Epoch: x.epoch, Nodes: x.replicas()}
	x.planned = len(holders.Nodes)
	branches := x.branches
	x.branches = nil
	for _, b := range branches {
		b.startSeal(api.Seal{Stream: x.stream, Length: x.length, CRC: x.ref.CRC, Last: x.last, Holders: holders})
	}
	var errLocal error
	if x.localReplica != nil && !slices.Contains(x.sealed, x.s.self) {
		ref, err := x.localReplica.Seal(ctx, x.last, holders)
		if err == nil && ref.CRC != x.ref.CRC {
			err = fmt.Errorf("BUG: table checksum %08x became %08x", x.ref.CRC, ref.CRC)
		}
		if err == nil {
			x.sealed = append([]string{x.s.self}, x.sealed...)
		} else {
			errLocal, x.localReplica = err, nil
		}
	}
	for _, b := range branches {
		nodes, err := b.awaitSeal()
		for _, n := range nodes {
			if slices.Contains(b.nodes, n) && !slices.Contains(x.sealed, n) {
				x.sealed = append(x.sealed, n)
			}
		}
		if err == nil {
			continue
		}
		x.resumeNodes(b, err)
	}
	return errLocal
}

// hasSealed asks whether a node has sealed the extent although no answer arrived, and records it if
// so.
func (x *replicatedWrite) hasSealed(node string) bool {
	if x.ref.Length != x.length || x.epoch == 0 {
		return false // the node was not asked to seal
	}
	ctx, cancel := context.WithTimeout(x.s.ctx, x.s.cluster.ReplyTimeout)
	defer cancel()
	p, err := x.s.peers.Peer(ctx, node)
	if err != nil {
		return false
	}
	if st, err := p.Stat(ctx, x.id); err != nil || st.CRC != x.ref.CRC {
		return false
	}
	x.sealed = append(x.sealed, node)
	return true
}

// sealAgain replaces the holder list if the folder of the local replica has failed since.
func (x *replicatedWrite) sealAgain(ctx context.Context) (ExtentRef, error) {
	if x.localReplica == nil {
		return x.ref, nil
	}
	if _, err := x.localReplica.Seal(ctx, x.last, Holders{Epoch: x.epoch, Nodes: x.sealed}); err != nil {
		if ctx.Err() != nil || len(x.sealed) == 1 {
			return ExtentRef{}, err
		}
		// The others have the extent; the repairer restores the missing replica.
		x.localReplica = nil
		x.sealed = slices.DeleteFunc(x.sealed, func(n string) bool { return n == x.s.self })
		x.epoch++
		x.sendHolders()
		x.ref.Replicas = slices.Clone(x.sealed)
	}
	return x.ref, nil
}

// sendHolders sends the holder list to all nodes that sealed the extent. A node that does not
// answer keeps its older list, which includes these nodes.
func (x *replicatedWrite) sendHolders() {
	x.epoch++
	h := Holders{Epoch: x.epoch, Nodes: slices.Clone(x.sealed)}
	var others []string
	for _, n := range x.sealed {
		if n != x.s.self {
			others = append(others, n)
			continue
		}
		if err := x.s.disks.SetHolders(context.Background(), x.id, h); err != nil {
			x.s.log.Warn("holder list not saved", "extent", x.id.String(), "err", err)
		}
	}
	id := x.id
	x.s.peers.Each(x.s.ctx, others, func(ctx context.Context, p api.Peer) {
		if err := p.SetHolders(ctx, id, h); err != nil {
			x.s.log.Warn("holder list not saved by a replica", "extent", id.String(), "err", err)
		}
	})
}

// Drop implements local.ExtentSink.
func (x *replicatedWrite) Drop() {
	if x.localReplica != nil {
		x.localReplica.Abort()
	}
	id := x.id
	var others []string
	for _, n := range x.sealed {
		if n != x.s.self {
			others = append(others, n)
			continue
		}
		_ = x.s.disks.DropExtent(context.Background(), id)
	}
	x.s.peers.EachInBackground(others, func(ctx context.Context, p api.Peer) { _ = p.Drop(ctx, id, api.GivenUp) })
	var streams []string
	for _, b := range x.branches {
		streams = append(streams, b.nodes...)
	}
	x.s.abortInBackground(streams, x.stream)
	x.localReplica, x.branches, x.sealed = nil, nil, nil
}
