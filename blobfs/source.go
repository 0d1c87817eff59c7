package blobfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/local"
	"github.com/steledb/stele/blobfs/members"
	"github.com/steledb/stele/blobfs/place"
)

// source reads one extent of a blob: from the local replica while it is good, else from other
// nodes.
type source struct {
	s            *Store
	ref          api.Ref
	localReplica *local.ExtentReader // nil if there was no local replica at open
	// corrupt is set once a local read fails verification. From then on other nodes are read.
	corrupt atomic.Bool
	hints   []string

	// mu guards best, the node that answered last. Never held across I/O.
	mu   sync.Mutex
	best string
}

// openSource opens an extent here, or finds another node that has it.
func (s *Store) openSource(ctx context.Context, blob ID, ref ExtentRef) (*source, error) {
	x := &source{s: s, ref: api.Ref{Extent: ExtentID{Blob: blob, Index: ref.Index}, CRC: ref.CRC}, hints: ref.Replicas}
	localReplica, errLocal := s.disks.OpenRef(ctx, blob, ref)
	if errLocal == nil {
		x.localReplica = localReplica
		return x, nil
	}
	s.corruption.RecordIfCorrupt(x.ref.Extent, errLocal)
	if ctx.Err() != nil {
		return nil, errLocal
	}
	// Reading the last byte proves that the extent has the length of the handle.
	p := make([]byte, min(ref.Length, 1))
	err := x.search(ctx, p, ref.Length-int64(len(p)))
	if err == nil {
		return x, nil
	}
	if !errors.Is(errLocal, local.ErrNoExtent) || errors.Is(err, local.ErrNoExtent) {
		err = errors.Join(errLocal, err)
	}
	return nil, fmt.Errorf("extent %d: %w", ref.Index, err)
}

// localGood reports whether the local replica is used.
func (x *source) localGood() bool { return x.localReplica != nil && !x.corrupt.Load() }

// ReadRaw implements local.ExtentSource.
func (x *source) ReadRaw(p []byte, off int64) bool {
	if x.localGood() {
		return x.localReplica.ReadRaw(p, off)
	}
	return x.read(p, off) == nil
}

// ReadVerified implements local.ExtentSource.
func (x *source) ReadVerified(p []byte, off int64) error {
	var errLocal error
	if x.localGood() {
		if errLocal = x.localReplica.ReadVerified(p, off); errLocal == nil {
			return nil
		}
		x.corrupt.Store(true)
		x.s.corruption.RecordIfCorrupt(x.ref.Extent, errLocal)
	}
	if err := x.read(p, off); err != nil {
		return errors.Join(errLocal, err)
	}
	return nil
}

// Close implements local.ExtentSource.
func (x *source) Close() error {
	if x.localReplica != nil {
		return x.localReplica.Close()
	}
	return nil
}

// read reads from other nodes, which verify the bytes.
func (x *source) read(p []byte, off int64) error {
	for len(p) > 0 {
		part := p[:min(len(p), api.PieceBytesMax)]
		if err := x.readPart(part, off); err != nil {
			return err
		}
		p, off = p[len(part):], off+int64(len(part))
	}
	return nil
}

// readPart reads from the node that answered last, and from the others if that one does not answer.
func (x *source) readPart(p []byte, off int64) error {
	x.mu.Lock()
	best := x.best
	x.mu.Unlock()
	if best != "" && !x.s.peers.Suspected(best) {
		ctx, cancel := context.WithTimeout(x.s.ctx, x.s.cluster.HedgeAfter)
		err := x.readFrom(ctx, best, p, off)
		cancel()
		if err == nil {
			return nil
		}
	}
	return x.search(x.s.ctx, p, off)
}

func (x *source) readFrom(ctx context.Context, node string, p []byte, off int64) error {
	peer, err := x.s.peers.Peer(ctx, node)
	if err != nil {
		return err
	}
	return peer.Read(ctx, x.ref, p, off)
}

// candidates returns the other nodes in the order in which to ask them: those that the handle
// names, then the rest by placement rank. Dead and suspected nodes come last.
func (x *source) candidates() []string {
	nodes := x.s.peers.Nodes()
	rank := slices.Clone(x.hints)
	for _, n := range place.Rank(members.PlaceKey(x.ref.Extent), nodes) {
		rank = append(rank, n.ID)
	}
	doubtful := map[string]bool{}
	for _, m := range x.s.peers.Members() {
		doubtful[m.ID] = !m.Alive || x.s.peers.Suspected(m.ID)
	}
	var ids, last []string
	for _, id := range rank {
		if id == x.s.self || slices.Contains(ids, id) || slices.Contains(last, id) {
			continue
		}
		if doubt, member := doubtful[id]; doubt || !member {
			last = append(last, id)
		} else {
			ids = append(ids, id)
		}
	}
	return append(ids, last...)
}

// search reads from the first node that returns the bytes. It asks one node after the other: the
// next as soon as one fails, or after HedgeAfter.
func (x *source) search(ctx context.Context, p []byte, off int64) error {
	ids := x.candidates()
	type answer struct {
		node string
		p    []byte
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(ids))
	var errs []error
	for next, open := 0, 0; next < len(ids) || open > 0; {
		var fired <-chan time.Time
		stop := func() {}
		if next < len(ids) {
			node := ids[next]
			next++
			started := x.s.work.Go(func() {
				buf := make([]byte, len(p))
				ctx, cancel := context.WithTimeout(ctx, x.s.cluster.ReplyTimeout)
				defer cancel()
				answers <- answer{node, buf, x.readFrom(ctx, node, buf, off)}
			})
			if !started {
				return ErrClosed
			}
			open++
			fired, stop = x.s.cluster.Clock.Timer(x.s.cluster.HedgeAfter)
		}
		select {
		case a := <-answers:
			open--
			if a.err == nil {
				stop()
				copy(p, a.p)
				x.s.peers.MarkAlive(a.node)
				x.mu.Lock()
				x.best = a.node
				x.mu.Unlock()
				return nil
			}
			errs = append(errs, x.failed(a.node, a.err))
		case <-fired:
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
		stop()
	}
	return verdict(errs)
}

// failed wraps a node's error and marks an unreachable node as suspected.
func (x *source) failed(node string, err error) error {
	if errors.Is(err, api.ErrUnreachable) {
		x.s.peers.Suspect(node)
	}
	return &api.ReplicaError{Node: node, Err: err}
}

// verdict combines the errors of all nodes. It returns ErrNoExtent only if each node returned it.
func verdict(errs []error) error {
	var others []error
	for _, err := range errs {
		if !errors.Is(err, local.ErrNoExtent) {
			others = append(others, err)
		}
	}
	if len(others) == 0 {
		return local.ErrNoExtent
	}
	return errors.Join(others...)
}
